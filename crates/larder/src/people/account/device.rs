//! The page on which a person approves the log-in of a command line (`larder login`), which makes a token of theirs.
//!
//! code -> [`DeviceLogIn`](account::DeviceLogIn) -> the person's password, or a log-in of a moment ago -> [`CreateToken`], with the secret of the log-in

use account::change::CreateTokenError;
use account::{Principal, Scopes, SessionText};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use operations::tokens::CreateToken;
use operations::{Refusal, Rule, carry_out};
use state::accounts::Expiry;

use super::{FORM_BYTES_MAX, log_in};
use crate::app::App;
use crate::front::auth::{self, session};
use crate::front::error::HttpError;
use crate::front::page::{self, Site};
use crate::front::parameters::typed_parameter;
use crate::front::request::Parts;
use crate::people::forms;

/// How many days the token lives, if the person does not say it.
const EXPIRES_DAYS: u32 = 30;

#[derive(Template)]
#[template(path = "device.html")]
struct DevicePage<'a> {
    site: Site,
    form: String,
    name: &'a str,
    code: &'a str,
    expires: &'a str,
    has_password: bool,
    problem: &'a str,
    is_done: bool,
}

/// `/+account/device`: the form, or the one for logging in first.
pub(crate) async fn show_device(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let code = typed_parameter(head, "code", 20);
    if let Some(session) = session::shown(app, head)
        && let Some(principal) = session::known(app, &session)?
    {
        let usual = match app.rules.token_days {
            0 => EXPIRES_DAYS,
            days => days.min(EXPIRES_DAYS),
        };
        let expires = format!("{usual}d");
        let said = DeviceNotice { code: &code, expires: &expires, problem: "", is_done: false };
        return page(app, head, (&session, &principal), said, StatusCode::OK).await;
    }
    let encoded: String = form_urlencoded::byte_serialize(code.as_bytes()).collect();
    let next = format!("/+account/device?code={encoded}");
    log_in::page(app, head, (&next, ""), "", StatusCode::OK).await
}

/// What the page says.
struct DeviceNotice<'a> {
    code: &'a str,
    expires: &'a str,
    problem: &'a str,
    is_done: bool,
}

async fn page(
    app: &App,
    head: &Parts,
    (session, principal): (&SessionText, &Principal),
    said: DeviceNotice<'_>,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let identity =
        principal.identity().ok_or_else(|| HttpError::from(forms::FormRefusal::LoggedOut))?;
    let DeviceNotice { code, expires, problem, is_done } = said;
    let page = DevicePage {
        site: Site::of(app, head).for_user(principal),
        form: forms::token(app, session)?,
        name: identity.user.name.as_str(),
        code,
        expires,
        has_password: auth::has_password(app, &*app.stored()?, &identity.user),
        problem,
        is_done,
    };
    Ok(page::send_once(&page, head, status).await)
}

/// `POST /+account/device`
pub(crate) async fn approve_device(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (code, expires) = (posted.fields.one("code")?, posted.fields.one("expires")?.trim());
    let sender = (&posted.session, &posted.principal);
    let done = approved(app, head, &posted, code, expires).await;
    let (problem, status) = match done {
        Ok(()) => {
            let said = DeviceNotice { code, expires, problem: "", is_done: true };
            return page(app, head, sender, said, StatusCode::CREATED).await;
        }
        // The answer says how long to wait.
        Err(error)
            if matches!(
                error.status(),
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            ) =>
        {
            return Err(error);
        }
        Err(error) => (error.detail().to_owned(), error.status()),
    };
    let said = DeviceNotice { code, expires, problem: &problem, is_done: false };
    page(app, head, sender, said, status).await
}

async fn approved(
    app: &App,
    head: &Parts,
    posted: &forms::PostedForm,
    code: &str,
    expires: &str,
) -> Result<(), HttpError> {
    let now = Timestamp::now();
    let stored = app.stored()?;
    let secret = stored.accounts.login_secret().and_then(|secret| {
        let log_in = secret.log_in_of_user(code, now)?;
        Some(secret.device_token(&log_in))
    });
    let Some(secret) = secret else {
        let text = "This code is not one of this server, or is more than ten minutes old: `larder login` shows another.";
        return Err(HttpError::unusable(text));
    };
    // The token of a log-in ends.
    let expires = Expiry::At(expires.parse().map_err(HttpError::unusable)?);
    // A token outlives the session.
    forms::proved_again(app, posted, "own").await?;
    auth::admit_to_disk(app, &posted.principal).await?;
    let creating = CreateToken {
        user: posted.session.user().clone(),
        comment: "larder login".to_owned(),
        scopes: Scopes::ALL,
        limits: None,
        expires: Some(expires),
        secret,
    };
    match carry_out(&mut app.keeper(), &posted.sender(head), &creating).await {
        Ok(_) => Ok(()),
        Err(Refusal::Rule(Rule::CreateToken(CreateTokenError::Taken(_)))) => {
            Err(HttpError::unusable("This code has been approved already."))
        }
        Err(refusal) => Err(refusal.into()),
    }
}
