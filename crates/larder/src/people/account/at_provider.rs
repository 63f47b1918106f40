//! Logging in at an identity provider, and linking an account there with a user here.
//!
//! button -> a signed cookie ([`PendingLogIn`]), and the provider's own page -> code and state -> [`Provider::redeem`] ->
//! [`OpenSessionByProvider`] or [`LinkIdentity`] -> the page that the browser was on its way to
//!
//! The server keeps nothing of a log-in that has not come back. Each provider has a path of its own to come back to, so that an
//! answer of one is never taken for that of another. Who cannot be logged in gets the form for passwords, with the reason above it.

use account::{OidcValue, PENDING_LOG_IN_SECONDS, PendingLogIn, Principal};
use askama::Template;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use http::{HeaderValue, Method, StatusCode};
use issuers::{Answer, Provider, TokenRefusal, VerifiedLogIn};
use jiff::{SignedDuration, Timestamp};
use operations::providers::{LinkIdentity, OpenSessionByProvider, UnlinkIdentity};
use operations::{Refusal, carry_out};
use record::escaped_excerpt;

use super::{FORM_BYTES_MAX, log_in, own};
use crate::app::App;
use crate::front::auth::{self, Cookie, session};
use crate::front::error::HttpError;
use crate::front::outside::root_url;
use crate::front::page::{self, Site};
use crate::front::request::Parts;
use crate::people::forms;
use crate::routes::Route;

/// Why a browser that comes back from a provider is not logged in.
struct Failure {
    status: StatusCode,
    /// For the person.
    text: String,
    /// For the security log, if that is to have a line.
    logged: Option<String>,
}

#[derive(Template)]
#[template(path = "link.html")]
struct LinkPage<'a> {
    site: Site,
    title: &'a str,
    url: String,
}

fn found<'app>(app: &'app App, route: &Route) -> Result<&'app Provider, HttpError> {
    let name = route.raw("{provider}");
    app.logins.provider(name).ok_or_else(|| {
        let shown = record::excerpt(name, 80);
        HttpError::not_found(format!("there is no identity provider `{shown}`"))
    })
}

/// Where a provider sends browsers back to.
fn redirect_uri(app: &App, head: &Parts, provider: &Provider) -> String {
    let root = root_url(app, head);
    format!("{root}/+account/oidc/{}/callback", provider.settings().name)
}

/// A log-in that begins now: where the browser goes, and its cookie.
async fn begun(
    app: &App,
    head: &Parts,
    provider: &Provider,
    next: &str,
    links: Option<record::Digest>,
) -> Result<(String, HeaderValue), Failure> {
    let now = Timestamp::now();
    let pending = PendingLogIn {
        provider: provider.settings().name.clone(),
        next: next.to_owned(),
        links,
        expires_at: now + SignedDuration::from_secs(PENDING_LOG_IN_SECONDS),
        random: auth::random()?,
    };
    let stored = app.stored()?;
    let secret = stored.accounts.login_secret().ok_or_else(no_secret)?;
    let [state, nonce, verifier] = [OidcValue::State, OidcValue::Nonce, OidcValue::Verifier]
        .map(|what| secret.shown(&pending, what));
    let uri = redirect_uri(app, head, provider);
    let url = provider.authorization_url(&uri, &state, &nonce, &verifier).await;
    let url = url.map_err(|refused| Failure::of(provider, &refused))?;
    let seconds = u64::try_from(PENDING_LOG_IN_SECONDS).unwrap_or_default();
    let cookie = Cookie::Pending.set(app, head, &secret.seal(&pending), seconds);
    Ok((url.into(), cookie))
}

fn no_secret() -> HttpError {
    HttpError::unavailable("the store has no secret to sign log-ins with", 5)
}

/// `GET /+account/oidc/{provider}`: sends the browser to the provider.
pub(crate) async fn log_in_at_provider(
    app: &App,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let provider = found(app, route)?;
    let next = log_in::next(head);
    match begun(app, head, provider, &next, None).await {
        Ok((url, cookie)) => {
            let mut response = StatusCode::SEE_OTHER.into_response();
            let headers = response.headers_mut();
            let url = HeaderValue::try_from(url);
            headers.insert(LOCATION, url.expect("the URL of a parsed one is ASCII"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.append(SET_COOKIE, cookie);
            Ok(response)
        }
        Err(failure) => failed(app, head, provider, &next, None, failure).await,
    }
}

/// `GET /+account/oidc/{provider}/callback`: the browser comes back. It is no page to look at by `HEAD`, which would use up the code
/// and the session.
pub(crate) async fn return_from_provider(
    app: &App,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let provider = found(app, route)?;
    if head.method == Method::HEAD {
        return Err(HttpError::method_not_allowed(&head.method, head.uri.path(), "GET"));
    }
    let cookie = Cookie::Pending.shown(app, head);
    let pending = cookie.and_then(|cookie| {
        let stored = app.stored().ok()?;
        stored.accounts.login_secret()?.unseal(cookie, Timestamp::now())
    });
    let next = pending.as_ref().map_or(log_in::HOME, |pending| &pending.next).to_owned();
    let mut verified = None;
    let done = match verify(app, head, provider, pending.as_ref()).await {
        Err(failure) => Err(failure),
        Ok(log_in) => {
            let log_in = verified.insert(log_in);
            match pending.as_ref().and_then(|pending| pending.links) {
                None => open(app, head, log_in, &next).await,
                Some(session) => link_with(app, head, log_in, &session).await,
            }
        }
    };
    let mut response = match done {
        Ok(response) => response,
        Err(failure) => {
            let identity = verified.as_ref().map(|it| it.identity());
            let identity = identity.map(|it| format!("{} {}", it.issuer, it.subject));
            failed(app, head, provider, &next, identity.as_deref(), failure).await?
        }
    };
    // It is good for one return.
    response.headers_mut().append(SET_COOKIE, Cookie::Pending.set(app, head, "", 0));
    Ok(response)
}

/// Who came back, as the provider has signed it.
async fn verify(
    app: &App,
    head: &Parts,
    provider: &Provider,
    pending: Option<&PendingLogIn>,
) -> Result<VerifiedLogIn, Failure> {
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let pairs: Vec<_> = query.take(64).collect();
    let one = |wanted: &str| {
        let mut values = pairs.iter().filter(|(name, _)| name == wanted).map(|(_, value)| &**value);
        (values.next(), values.next().is_some())
    };
    let [(code, code_twice), (state, state_twice), (issuer, issuer_twice), (error, _), (about, _)] =
        ["code", "state", "iss", "error", "error_description"].map(one);
    let is_twice = code_twice || state_twice || issuer_twice;
    let secret = app.stored()?.accounts.login_secret().cloned().ok_or_else(no_secret)?;
    let pending = pending.filter(|pending| {
        !is_twice
            && pending.provider == provider.settings().name
            && secret.has_shown(pending, OidcValue::State, state.unwrap_or_default())
    });
    let title = &provider.settings().title;
    let Some(pending) = pending else {
        let text = format!(
            "This browser has not begun this log-in at {title}, or has begun it more than ten minutes ago. Try it again."
        );
        let logged = Some("the state is of another browser or log-in, or too old".to_owned());
        return Err(Failure { status: StatusCode::FORBIDDEN, text, logged });
    };
    let refused = |refused: TokenRefusal| Failure::of(provider, &refused);
    provider.check_issuer(issuer).await.map_err(refused)?;
    if let Some(error) = error {
        let [error, about] = [error, about.unwrap_or_default()].map(shown);
        let text = format!("{title} did not log you in: {error}. {about}");
        let logged = Some(format!("the provider answers {error} {about}"));
        return Err(Failure { status: StatusCode::FORBIDDEN, text, logged });
    }
    let verifier = secret.shown(pending, OidcValue::Verifier);
    let nonce = secret.shown(pending, OidcValue::Nonce);
    let uri = redirect_uri(app, head, provider);
    let code = code.unwrap_or_default();
    let answer = Answer { code, redirect_uri: &uri, verifier: &verifier, nonce: &nonce };
    provider.redeem(answer, Timestamp::now()).await.map_err(refused)
}

/// Opens a session for whom the provider has logged in.
async fn open(
    app: &App,
    head: &Parts,
    verified: &VerifiedLogIn,
    next: &str,
) -> Result<Response, Failure> {
    let stored = app.stored()?;
    let linked = stored.accounts.linked(&verified.identity().digest());
    let user = linked.and_then(|linked| stored.accounts.user(&linked.user));
    let principal = user.map(|user| Principal::on_the_machine(user.clone())).unwrap_or_default();
    auth::admit_to_disk(app, &principal).await?;
    let opening = OpenSessionByProvider {
        verified: verified.clone(),
        secret: auth::random()?,
        replaced: session::shown(app, head),
    };
    let sender = auth::sender(Principal::Anonymous, head);
    let done = carry_out(&mut app.keeper(), &sender, &opening).await.map_err(Failure::by_rule)?;
    let session = &done.outcome.session;
    let provider = verified.provider();
    app.logins.security.logged_in_at(provider, session.user().as_str(), done.outcome.is_new);
    app.metrics.provider_login(provider, "opened");
    let mut response = forms::carried_out(app, head, next, session, done.seen);
    let seconds = app.config.users.login.as_secs();
    response.headers_mut().append(SET_COOKIE, Cookie::Provider.set(app, head, provider, seconds));
    Ok(response)
}

/// Links whom the provider has logged in with the user of the session that asked for it.
async fn link_with(
    app: &App,
    head: &Parts,
    verified: &VerifiedLogIn,
    session: &record::Digest,
) -> Result<Response, Failure> {
    let sender = forms::sender(app, head)?;
    let sender = sender.filter(|(shown, _)| shown.secret_digest() == *session);
    let (session, principal) = sender.ok_or(HttpError::from(forms::FormRefusal::LoggedOut))?;
    let linking = LinkIdentity { name: session.user().clone(), verified: verified.clone() };
    let sender = auth::sender(principal, head);
    let done = carry_out(&mut app.keeper(), &sender, &linking).await.map_err(Failure::by_rule)?;
    app.metrics.provider_login(verified.provider(), "linked");
    Ok(forms::carried_out(app, head, log_in::HOME, &session, done.seen))
}

/// `POST /+account/oidc/{provider}`: a user wants to log in with their account there from then on. The page leads to the provider:
/// the answer to a form may not.
pub(crate) async fn link(
    app: &App,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let provider = found(app, route)?;
    // An account at a provider outlives the session, as a password does.
    if let Err(error) = forms::proved_again(app, &posted, "own").await {
        return own::refused(app, head, &posted, error).await;
    }
    let digest = posted.session.secret_digest();
    match begun(app, head, provider, log_in::HOME, Some(digest)).await {
        Ok((url, cookie)) => {
            let site = Site::of(app, head).for_user(&posted.principal);
            let page = LinkPage { site, title: &provider.settings().title, url };
            let mut response = page::send_once(&page, head, StatusCode::OK).await;
            response.headers_mut().append(SET_COOKIE, cookie);
            Ok(response)
        }
        Err(failure) => {
            let error = HttpError::refused(failure.status, failure.text);
            own::refused(app, head, &posted, error).await
        }
    }
}

/// `POST /+account/oidc/{provider}/unlink`
pub(crate) async fn unlink(
    app: &App,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let provider = found(app, route)?;
    let subject = posted.fields.one("subject")?;
    let identity = account::identity_digest(&provider.settings().issuer, subject);
    let unlinking = UnlinkIdentity { name: posted.session.user().clone(), identity };
    let done = carry_out(&mut app.keeper(), &posted.sender(head), &unlinking).await?;
    Ok(forms::carried_out(app, head, log_in::HOME, &posted.session, done.seen))
}

/// The form for passwords, with why the provider did not log anybody in.
async fn failed(
    app: &App,
    head: &Parts,
    provider: &Provider,
    next: &str,
    identity: Option<&str>,
    failure: Failure,
) -> Result<Response, HttpError> {
    let Failure { status, text, logged } = failure;
    let name = &provider.settings().name;
    let result = if status.is_server_error() { "unavailable" } else { "refused" };
    app.metrics.provider_login(name, result);
    if let Some(detail) = logged {
        app.logins.security.provider_refused(name, identity, &detail);
    }
    log_in::page(app, head, (next, ""), &text, status).await
}

impl Failure {
    fn of(provider: &Provider, refused: &TokenRefusal) -> Failure {
        let title = &provider.settings().title;
        let (status, text) = match refused {
            // Why it gives no answer is for the operator, in the log.
            TokenRefusal::Unavailable { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "{title} cannot be reached now, or does not answer as it should. Try it again in a minute; a password still works."
                ),
            ),
            TokenRefusal::NotAdmitted(_) => (
                StatusCode::FORBIDDEN,
                format!(
                    "{title} knows you, and this server admits only some of those whom it knows."
                ),
            ),
            TokenRefusal::Invalid(_) | TokenRefusal::UnknownIssuer(_) | TokenRefusal::Answer(_) => {
                (
                    StatusCode::FORBIDDEN,
                    format!("What {title} says of you is not valid, so it was not used: {refused}"),
                )
            }
        };
        Failure { status, text, logged: Some(refused.to_string()) }
    }

    fn by_rule(refusal: Refusal) -> Failure {
        let is_rule = matches!(refusal, Refusal::Rule(_));
        let text = refusal.to_string();
        if is_rule {
            let mut sentence = text.clone();
            sentence[..1].make_ascii_uppercase();
            sentence.push('.');
            return Failure { status: StatusCode::FORBIDDEN, text: sentence, logged: Some(text) };
        }
        HttpError::from(refusal).into()
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        let (status, text, _) = error.into_facts();
        Failure { status, text, logged: None }
    }
}

/// A text of a provider on a page and in the log: shortened, on one line.
fn shown(text: &str) -> String {
    escaped_excerpt(text, 200)
}
