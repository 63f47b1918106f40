//! Who sent a request: credentials -> a user or an anonymous sender, for every surface.
//!
//! `Authorization` (Basic with a password, a login or a token; Bearer with a token or a login) and devpi's `X-Devpi-Auth`, which wins.
//! [`principal`] refuses invalid credentials with 401; [`identified`] returns the error, for surfaces that treat such senders
//! as anonymous, as devpi does. A trusted proxy may name the sender instead ([`take_proxys`]). Before that, [`refuse_foreign_pages`] refuses requests that a foreign page made a browser send
//! with its remembered password.

mod elsewhere;
mod origin;
mod proxy;
pub(crate) mod session;

use account::{
    Acl, AuthMethod, Credentials, CredentialsError, Identification, Object, Password, PasswordHash,
    Principal, Refusal, Restriction, Scope, identify,
};
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use operations::Sender;
use passwords::{CheckRefused, Priority};
use state::stored::WriteFailure;
use state::{secrets, security};
use store::CommitError;

use super::error::HttpError;
use crate::app::App;
use crate::front::request::Parts;

pub(crate) use elsewhere::has_password;
pub(crate) use origin::refuse_foreign_pages;
pub(crate) use proxy::{X_LARDER_HOPS, is_named_by_proxy, take as take_proxys};
pub(crate) use session::{Cookie, LoggedIn, identified_of, principal_of};

/// devpi's own header, which leaves `Authorization` to a proxy.
pub(crate) const X_DEVPI_AUTH: HeaderName = HeaderName::from_static("x-devpi-auth");

/// The sender of a request, as operations know one.
pub(crate) fn sender(proved: Principal, head: &Parts) -> Sender {
    Sender::Client { proved, address: security::client(), path: head.uri.path().to_owned() }
}

/// The sender of a request.
///
/// # Errors
/// 401 for invalid credentials; 429 after too many wrong passwords; 503 while too many are being checked.
pub(crate) async fn principal(app: &App, headers: &HeaderMap) -> Result<Principal, HttpError> {
    identified(app, headers).await?.map_err(HttpError::unauthorized)
}

/// What a request says of its sender. It is looked at only when a right depends on it.
pub(crate) enum Claim {
    /// Credentials, none, or why they are none.
    Own(Result<Option<Credentials>, String>),
    /// What a proxy says of the sender.
    Proxys(HeaderValue),
}

impl Claim {
    /// The credentials in the headers of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Claim {
        let credentials = match (headers.get(X_DEVPI_AUTH), headers.get(AUTHORIZATION)) {
            (Some(value), _) => Credentials::from_devpi_auth(value.as_bytes()),
            (None, Some(value)) if proxy::is_said(value) => return Claim::Proxys(value.clone()),
            (None, Some(value)) => Credentials::from_authorization(value.as_bytes()),
            (None, None) => return Claim::Own(Ok(None)),
        };
        Claim::Own(credentials.map(Some).map_err(|error| error.to_string()))
    }

    /// The sender.
    ///
    /// # Errors
    /// As [`principal`].
    pub(crate) async fn principal(&self, app: &App) -> Result<Principal, HttpError> {
        self.identified(app).await?.map_err(HttpError::unauthorized)
    }

    async fn identified(&self, app: &App) -> Result<Result<Principal, String>, HttpError> {
        let error = match self {
            Claim::Own(Ok(None)) => return Ok(Ok(Principal::Anonymous)),
            Claim::Own(Ok(Some(credentials))) => return proved(app, credentials).await,
            Claim::Own(Err(error)) => error.clone(),
            Claim::Proxys(value) => match proxy::said(app, value) {
                Some(Ok(said)) => return proved_by_proxy(app, said).await,
                Some(Err(problem)) => problem,
                None => CredentialsError::Scheme.to_string(),
            },
        };
        failed(app, None, "malformed");
        Ok(Err(error))
    }
}

/// Who sent a request. The inner error says why the credentials are not valid.
///
/// # Errors
/// 429 after too many wrong passwords; 503 while too many are being checked, or the store is not loaded.
pub(crate) async fn identified(
    app: &App,
    headers: &HeaderMap,
) -> Result<Result<Principal, String>, HttpError> {
    Claim::of(headers).identified(app).await
}

/// The user whom a trusted proxy names in a request without credentials.
///
/// # Errors
/// As [`identified`].
pub(crate) async fn named_by_proxy(
    app: &App,
    headers: &HeaderMap,
) -> Result<Option<Principal>, HttpError> {
    match Claim::of(headers) {
        claim @ Claim::Proxys(_) => claim.principal(app).await.map(Some),
        Claim::Own(_) => Ok(None),
    }
}

async fn proved_by_proxy(
    app: &App,
    said: proxy::ProxyUser,
) -> Result<Result<Principal, String>, HttpError> {
    let name = said.name.clone();
    let outcome = proxy::identified(app, said).await?;
    Ok(match outcome {
        Ok(principal) => {
            security::identified(&principal);
            Ok(principal)
        }
        Err(refusal) => {
            failed(app, Some(name.as_str()), "not_admitted");
            Err(refusal.to_string())
        }
    })
}

/// The owner of these credentials; the inner error says why they are not valid.
///
/// # Errors
/// As [`identified`].
pub(crate) async fn proved(
    app: &App,
    credentials: &Credentials,
) -> Result<Result<Principal, String>, HttpError> {
    let stored = app.stored()?;
    if let Some(asked) = elsewhere::asks_directory(app, &stored, credentials) {
        drop(stored);
        let outcome = elsewhere::by_directory(app, asked).await?;
        return Ok(settled(app, credentials, outcome));
    }
    let outcome = match identify(&stored.accounts, credentials, Timestamp::now()) {
        Identification::Known(principal) => Ok(principal),
        Identification::Refused(refusal) => Err(refusal),
        Identification::NeedsPasswordCheck(check) => {
            drop(stored);
            let checking = app.limits.passwords.check(check, security::client().key()).await;
            checking.map_err(|error| check_refused(app, error))?
        }
    };
    Ok(settled(app, credentials, outcome))
}

/// Notes whether credentials hold; the error says why they do not.
fn settled(
    app: &App,
    credentials: &Credentials,
    outcome: Result<Principal, Refusal>,
) -> Result<Principal, String> {
    match outcome {
        Ok(principal) => {
            security::identified(&principal);
            if let Some(AuthMethod::Token(id)) =
                principal.identity().map(|identity| &identity.means)
            {
                app.logins.token_uses.note(*id, Timestamp::now());
            }
            Ok(principal)
        }
        Err(refusal) => {
            refused(app, credentials, &refusal);
            Err(refusal.to_string())
        }
    }
}

/// Counts and logs credentials that do not hold.
fn refused(app: &App, credentials: &Credentials, refusal: &Refusal) {
    let reason = match refusal {
        // Counted where it is checked.
        Refusal::Password { user } => {
            return app.logins.security.login_failed(Some(user.as_str()), "wrong_password");
        }
        Refusal::Disabled { .. } => "disabled",
        Refusal::TokenUnknown { .. } | Refusal::TokenExpired { .. } => "token",
        Refusal::Login(_) | Refusal::LoginOfAnother { .. } | Refusal::SessionEnded { .. } => {
            "login"
        }
    };
    failed(app, account_of(credentials).as_deref(), reason);
}

/// Whose the credentials are said to be, for the security log; of a token only the id.
fn account_of(credentials: &Credentials) -> Option<String> {
    match credentials {
        Credentials::Password { user, .. } | Credentials::Login { user: Some(user), .. } => {
            Some(user.to_string())
        }
        Credentials::Token(token) => Some(format!("token {}", token.id())),
        Credentials::Login { .. } => None,
    }
}

/// Counts and logs a token or a login that came where only a password does.
pub(crate) fn no_password(app: &App, credentials: &Credentials) {
    failed(app, account_of(credentials).as_deref(), "no_password");
}

/// Counts and logs credentials that do not hold.
pub(crate) fn failed(app: &App, account: Option<&str>, reason: &'static str) {
    app.metrics.login_failed(reason);
    app.logins.security.login_failed(account, reason);
}

/// The answer to somebody whose password was not looked at.
pub(crate) fn check_refused(app: &App, error: CheckRefused) -> HttpError {
    match error {
        CheckRefused::TooMany => HttpError::unavailable(passwords::TooMany.to_string(), 1),
        CheckRefused::Throttled { throttled, began } => {
            let seconds = throttled.wait_milliseconds.div_ceil(1000).max(1);
            if let Some(began) = began {
                app.logins.security.throttling_began(&began.0, seconds);
            }
            let detail = format!(
                "too many wrong passwords were tried: this one was not looked at; try again in {seconds} seconds, or \
                 use a token"
            );
            HttpError::too_many(detail, u32::try_from(seconds).unwrap_or(u32::MAX))
        }
    }
}

/// Random bytes.
///
/// # Errors
/// 503 if the system has none.
pub(crate) fn random<const COUNT: usize>() -> Result<[u8; COUNT], HttpError> {
    secrets::random().map_err(|error| {
        tracing::error!(%error, "the system has no random numbers");
        HttpError::unavailable("the system has no random numbers", 5)
    })
}

/// Hashes a new password, which takes tens of milliseconds once there is a place for it.
///
/// # Errors
/// 503.
pub(crate) async fn hashed(app: &App, password: Password) -> Result<PasswordHash, HttpError> {
    let priority = if security::is_identified() { Priority::Known } else { Priority::Other };
    let client = security::client().key();
    let hashing = app.limits.passwords.hash(password, random()?, client, priority);
    hashing.await.map_err(|error| HttpError::unavailable(error, 1))
}

/// Admits principals on the list named `called`.
///
/// # Errors
/// 401 for anonymous senders, 403 for users who may not.
pub(crate) fn admit(
    (called, list): (&str, &Acl),
    principal: &Principal,
    scope: Scope,
    object: Object<'_>,
    purpose: &str,
) -> Result<(), HttpError> {
    if list.admits(principal, scope, object) {
        return Ok(());
    }
    let name = principal.user_name().map_or("nobody", |name| name.as_str());
    Err(denied(principal, scope, object, purpose, &format!("`{name}` is not in `{called}`")))
}

/// Admits principals who may write with as little free disk space as there is now: everybody, or only administrators.
///
/// # Errors
/// 507.
pub(crate) async fn admit_to_disk(app: &App, principal: &Principal) -> Result<(), HttpError> {
    if principal.identity().is_some_and(|identity| identity.user.is_administrator()) {
        return Ok(());
    }
    let Some(free) = app.limits.free_space.shortage().await else { return Ok(()) };
    let detail = format!(
        "the disk has only {} bytes free, less than {} (`store.free_bytes_min`): only administrators write now",
        free.bytes, app.limits.free_space.bytes_min
    );
    Err(HttpError::disk_full(detail))
}

/// The answer to a sender who lacks a right: 401 if anonymous; 403 for a user, with the cause: what their token lacks, else
/// `reason`.
pub(crate) fn denied(
    principal: &Principal,
    scope: Scope,
    object: Object<'_>,
    purpose: &str,
    reason: &str,
) -> HttpError {
    denied_for(
        principal.called().as_deref(),
        principal.lack(scope, object).as_ref(),
        purpose,
        reason,
    )
}

/// [`denied`], for a sender with this name whose token lacks this.
pub(crate) fn denied_for(
    by: Option<&str>,
    lack: Option<&Restriction>,
    purpose: &str,
    reason: &str,
) -> HttpError {
    let detail = match (by, lack) {
        (None, _) => {
            let detail = format!("to {purpose}, a user and a password or a token are needed");
            return HttpError::unauthorized(detail);
        }
        (Some(_), Some(Restriction::Scope(scope))) => {
            format!("this token may not {purpose}: it lacks the scope `{}`", scope.as_str())
        }
        (Some(_), Some(lack @ (Restriction::Limits { .. } | Restriction::Publisher { .. }))) => {
            lack.to_string()
        }
        (Some(name), None) => format!("user '{name}' may not {purpose}: {reason}"),
    };
    HttpError::forbidden(detail)
}

/// The answer to a writer whose write is not acknowledged.
pub(crate) fn write_failed(error: &WriteFailure) -> HttpError {
    match error {
        WriteFailure::Commit(CommitError::TooLarge { .. }) => HttpError::too_large(error),
        WriteFailure::Commit(CommitError::OutcomeUnknown(_)) => {
            tracing::error!(%error, "a write's outcome is unknown");
            HttpError::unavailable(
                "the connection to the database broke during the commit; whether it succeeded is unknown",
                5,
            )
        }
        WriteFailure::Commit(CommitError::Mismatch(mismatch)) => {
            HttpError::conflict(format!("another write came first: {mismatch}"))
        }
        // Logged once, by the store's tail.
        WriteFailure::Commit(CommitError::Rewound(_)) => HttpError::unavailable(
            "the store is not the one that was read, or has lost commits, and is not written to; nothing was written",
            5,
        ),
        WriteFailure::Commit(_) => {
            tracing::error!(%error, "a write failed");
            HttpError::unavailable("the store takes no writes now; nothing was written", 5)
        }
        WriteFailure::NotVisible(_) | WriteFailure::OfFollower(_) | WriteFailure::LeftBehind => {
            HttpError::unavailable(error, 5)
        }
        WriteFailure::Overtaken | WriteFailure::NotLoaded | WriteFailure::Behind => {
            HttpError::unavailable(error, 1)
        }
    }
}

impl From<WriteFailure> for HttpError {
    fn from(failure: WriteFailure) -> HttpError {
        write_failed(&failure)
    }
}
