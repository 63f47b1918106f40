//! Logging in with a name and a password, and out again.

use account::{Credentials, Principal, SessionText};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::{HeaderName, SET_COOKIE};
use issuers::Provider;
use operations::carry_out;
use operations::sessions::{CloseSession, OpenSession};
use record::Serial;

use super::FORM_BYTES_MAX;
use crate::app::App;
use crate::front::auth::{self, Cookie, session};
use crate::front::error::HttpError;
use crate::front::page::{self, Site};
use crate::front::parameters::parameter;
use crate::front::request::Parts;
use crate::people::forms;

/// What a browser does with the answer.
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Where a browser goes after logging in, unless it was on its way to another page.
pub(super) const HOME: &str = "/+account";

#[derive(Template)]
#[template(path = "login.html")]
struct LogInPage<'a> {
    site: Site,
    token: String,
    /// A path to go on to.
    next: &'a str,
    name: &'a str,
    /// Why the last attempt failed.
    problem: &'a str,
    providers: Vec<Button>,
    /// The provider where somebody who has logged out here is still logged in.
    left: Option<ProviderLogOut>,
}

/// An identity provider with a page for logging out.
struct ProviderLogOut {
    title: String,
    url: String,
}

/// A button for logging in at an identity provider.
struct Button {
    title: String,
    /// A path of this server.
    path: String,
}

impl Button {
    fn of(provider: &Provider, next: &str) -> Button {
        let settings = provider.settings();
        let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let path = format!("/+account/oidc/{}?next={next}", settings.name);
        Button { title: settings.title.clone(), path }
    }
}

/// `/+account/login`
pub(crate) async fn show_log_in(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let next = next(head);
    // A proxy has asked for the password already. A page of another origin opens no sessions by an image or a frame.
    let is_visit = head.headers.get(SEC_FETCH_DEST).is_none_or(|it| it == "document");
    if is_visit && let Some(principal) = auth::named_by_proxy(app, &head.headers).await? {
        return opened(app, head, principal, &next).await;
    }
    page(app, head, (&next, ""), "", StatusCode::OK).await
}

/// Where a browser goes on to, by the query.
pub(super) fn next(head: &Parts) -> String {
    parameter(head, "next").as_deref().and_then(forms::next).unwrap_or(HOME).to_owned()
}

/// The provider that the query names after a log-out.
async fn left(app: &App, head: &Parts) -> Option<ProviderLogOut> {
    let provider = app.logins.provider(&parameter(head, "left")?)?;
    let url = provider.log_out_url().await?.into();
    Some(ProviderLogOut { title: provider.settings().title.clone(), url })
}

/// The form for logging in.
pub(super) async fn page(
    app: &App,
    head: &Parts,
    (next, name): (&str, &str),
    problem: &str,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let (token, cookie) = forms::nobodys_token(app, head)?;
    let providers =
        app.logins.providers.iter().map(|provider| Button::of(provider, next)).collect();
    let (site, left) = (Site::of(app, head), left(app, head).await);
    let page = LogInPage { site, token, next, name, problem, providers, left };
    let mut response = page::send_once(&page, head, status).await;
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `POST /+account/login`
pub(crate) async fn log_in(app: &App, head: &Parts, body: Body) -> Result<Response, HttpError> {
    let fields = forms::posted_by_nobody(app, head, body, FORM_BYTES_MAX).await?;
    let next = fields.maybe("next")?.and_then(forms::next).unwrap_or(HOME);
    let (name, password) = (fields.one("name")?, fields.one("password")?);
    let wrong = "The name or the password is wrong.";
    let again = |problem| page(app, head, (next, name), problem, StatusCode::UNAUTHORIZED);
    let Ok(credentials) = Credentials::from_user_and_password(name, password) else {
        auth::failed(app, Some(name), "malformed");
        return again(wrong).await;
    };
    // As for devpi's clients: neither a login nor a token opens a session; only a password does.
    let Credentials::Password { .. } = credentials else {
        auth::no_password(app, &credentials);
        return again("A token is no password: a browser logs in with the password of its user.")
            .await;
    };
    let Ok(principal) = auth::proved(app, &credentials).await? else { return again(wrong).await };
    opened(app, head, principal, next).await
}

/// Opens a session, and leads to the page that the browser was on its way to.
async fn opened(
    app: &App,
    head: &Parts,
    principal: Principal,
    next: &str,
) -> Result<Response, HttpError> {
    let replaced = session::shown(app, head);
    let (session, serial) = open(app, head, principal, replaced).await?;
    app.logins.security.logged_in(session.user().as_str());
    let mut response = forms::carried_out(app, head, next, &session, serial);
    response.headers_mut().append(SET_COOKIE, Cookie::Form.set(app, head, "", 0));
    if Cookie::Provider.shown(app, head).is_some() {
        response.headers_mut().append(SET_COOKIE, Cookie::Provider.set(app, head, "", 0));
    }
    Ok(response)
}

/// Opens a session for a user who just gave their password, and ends the one that the browser sent: an attacker who planted or
/// saw that one cannot use the new one.
pub(super) async fn open(
    app: &App,
    head: &Parts,
    principal: Principal,
    replaced: Option<SessionText>,
) -> Result<(SessionText, Serial), HttpError> {
    auth::admit_to_disk(app, &principal).await?;
    let nobody = || HttpError::unauthorized("to log in, a user and a password are needed");
    let name = principal.user_name().cloned().ok_or_else(nobody)?;
    let opening = OpenSession { name, secret: auth::random()?, replaced };
    let done = carry_out(&mut app.keeper(), &auth::sender(principal, head), &opening).await?;
    Ok((done.outcome, done.seen))
}

/// `POST /+account/logout`; with the field `everywhere`, out of all browsers.
pub(crate) async fn log_out(app: &App, head: &Parts, body: Body) -> Result<Response, HttpError> {
    let (fields, sender) = forms::received(app, head, body, FORM_BYTES_MAX).await?;
    // Logging out without being logged in is no error.
    let sender = match sender {
        Err(forms::FormRefusal::LoggedOut) => None,
        sender => Some(sender?),
    };
    if let Some((session, principal)) = sender {
        let is_everywhere = fields.maybe("everywhere")?.is_some();
        let name = session.user().clone();
        let closing = match is_everywhere {
            true => CloseSession { name, session: None },
            false => CloseSession { name, session: Some(session.secret_digest()) },
        };
        carry_out(&mut app.keeper(), &auth::sender(principal, head), &closing).await?;
    }
    let provider = Cookie::Provider.shown(app, head);
    let left = provider.and_then(|name| app.logins.provider(name));
    let left = left.map_or_else(String::new, |it| format!("?left={}", it.settings().name));
    let mut response = forms::see_other(app, head, &format!("/+account/login{left}"));
    response.headers_mut().append(SET_COOKIE, Cookie::Session.set(app, head, "", 0));
    if provider.is_some() {
        response.headers_mut().append(SET_COOKIE, Cookie::Provider.set(app, head, "", 0));
    }
    Ok(response)
}
