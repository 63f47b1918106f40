//! The sessions of browsers: their cookies, and where these count.
//!
//! A browser sends its cookies with every request that any page causes. So the cookie of a session identifies the sender in two
//! cases only: in a GET or HEAD for a page, or by one of our own pages, which changes nothing; and in the forms of
//! [`crate::people::forms`], which have a token that no other page knows. For any other request it does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use account::{Acl, Object, Principal, Scope, SessionText, identify_session};
use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, HeaderName, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderValue, Method};
use jiff::Timestamp;
use record::Serial;
use state::security;

use super::{X_DEVPI_AUTH, identified};
use crate::app::App;
use crate::front::error::HttpError;
use crate::front::outside::root_url;
use crate::front::request::{CountedSession, Parts};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The cookies of this server. Over TLS their names begin with `__Host-`, so that browsers accept them from this host alone; no
/// other cookie counts then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// The session, the last commit that it has seen, and our signature of both.
    Session,
    /// Random bytes that the form for logging in is tied to.
    Form,
    /// A log-in at an identity provider that has begun in this browser, signed.
    Pending,
    /// The name of the identity provider where the user of the session has logged in.
    Provider,
    /// How far a user has marked the changes as read in this browser. It gives no right, so it is not signed.
    Read,
}

impl Cookie {
    fn name(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Cookie::Session, true) => "__Host-larder-session",
            (Cookie::Session, false) => "larder-session",
            (Cookie::Form, true) => "__Host-larder-form",
            (Cookie::Form, false) => "larder-form",
            (Cookie::Pending, true) => "__Host-larder-pending",
            (Cookie::Pending, false) => "larder-pending",
            (Cookie::Provider, true) => "__Host-larder-provider",
            (Cookie::Provider, false) => "larder-provider",
            (Cookie::Read, true) => "__Host-larder-read",
            (Cookie::Read, false) => "larder-read",
        }
    }

    /// Its value, as a request shows it.
    pub(crate) fn shown<'head>(self, app: &App, head: &'head Parts) -> Option<&'head str> {
        // Fast path: nearly all requests have no cookies.
        if !head.headers.contains_key(COOKIE) {
            return None;
        }
        value(&head.headers, self.name(is_secure(app, head)))
    }

    /// The `Set-Cookie` header that keeps the cookie for this many seconds; zero deletes it.
    pub(crate) fn set(self, app: &App, head: &Parts, value: &str, seconds: u64) -> HeaderValue {
        let is_secure = is_secure(app, head);
        let secure = if is_secure { "; Secure" } else { "" };
        let name = self.name(is_secure);
        let text =
            format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::try_from(text).expect("base64url and digits are ASCII")
    }
}

/// Whether the browser reaches this server by TLS, as far as this server or a trusted proxy knows.
fn is_secure(app: &App, head: &Parts) -> bool {
    root_url(app, head).starts_with("https://")
}

/// The value of the first cookie of that name.
fn value<'head>(headers: &'head HeaderMap, name: &str) -> Option<&'head str> {
    let lines = headers.get_all(COOKIE).iter();
    // Another application on this host may have bytes in its cookies that are no ASCII.
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
    pairs.find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (found, value) = (&pair[..at], &pair[at + 1..]);
        let value = std::str::from_utf8(value).ok().filter(|value| value.is_ascii());
        value.filter(|_| found.trim_ascii() == name.as_bytes()).map(str::trim)
    })
}

/// The session in a request's cookie; whether it holds is not looked at.
pub(crate) fn shown(app: &App, head: &Parts) -> Option<SessionText> {
    Some(split(app, head)?.0)
}

/// The session in a request's cookie, and what follows it.
fn split<'head>(app: &App, head: &'head Parts) -> Option<(SessionText, &'head str)> {
    let (text, seen) = Cookie::Session.shown(app, head)?.split_once('.')?;
    Some((text.parse().ok()?, seen))
}

/// The cookie of a session that has seen this commit.
pub(crate) fn cookie(app: &App, head: &Parts, session: &SessionText, seen: Serial) -> HeaderValue {
    let stored = app.stored().ok();
    let secret = stored.as_ref().and_then(|stored| stored.accounts.login_secret());
    let mac = secret.map(|secret| secret.sign_seen(session, seen)).unwrap_or_default();
    let value = format!("{}.{}.{mac}", session.reveal(), seen.0);
    Cookie::Session.set(app, head, &value, app.config.users.login.as_secs())
}

/// The commit in what follows a session, if this server signed it. Otherwise a client could write a number that never comes,
/// and each of its requests would wait for it.
fn seen(app: &App, session: &SessionText, text: &str) -> Option<Serial> {
    let (seen, mac) = text.split_once('.')?;
    let seen = Serial(seen.parse().ok()?);
    let stored = app.stored().ok()?;
    let secret = stored.accounts.login_secret()?;
    secret.has_signed_seen(session, seen, mac).then_some(seen)
}

/// The last commit that the browser has seen by this session, as its cookie says; zero if it says nothing that we signed.
pub(crate) fn seen_already(app: &App, head: &Parts, session: &SessionText) -> Serial {
    let sent = split(app, head).filter(|(sent, _)| sent.secret_digest() == session.secret_digest());
    sent.and_then(|(_, text)| seen(app, session, text)).unwrap_or_default()
}

/// Waits until this process has what the browser has seen. If it never comes, because the store was restored from a backup,
/// returns a cookie to send, so that the next request does not wait again.
async fn catch_up(
    app: &App,
    head: &Parts,
    session: &SessionText,
    text: &str,
) -> Option<HeaderValue> {
    let seen = seen(app, session, text)?;
    if app.live_store.wait_for(seen, app.config.store.wait_for_serial).await {
        return None;
    }
    let stored = app.stored().ok()?;
    Some(match identify_session(&stored.accounts, session, Timestamp::now()) {
        Ok(_) => cookie(app, head, session, stored.serial),
        Err(_) => Cookie::Session.set(app, head, "", 0),
    })
}

/// The session in a request's cookie, once this process has what the browser has seen.
pub(crate) async fn caught_up(app: &App, head: &Parts) -> Option<SessionText> {
    if let Some(counted) = &head.session {
        return Some(counted.session.clone());
    }
    let (session, text) = split(app, head)?;
    catch_up(app, head, &session, text).await;
    Some(session)
}

/// The user who is logged in, for the header of a page. An answer that names them is theirs alone, and says so.
#[derive(Clone, Debug)]
pub(crate) struct LoggedIn {
    principal: Principal,
    was_asked: Arc<AtomicBool>,
}

impl LoggedIn {
    /// The user of a browser. Credentials in a header win over the cookie, so with these nobody is logged in.
    pub(crate) fn of(app: &App, head: &Parts) -> Option<LoggedIn> {
        let headers = &head.headers;
        if headers.contains_key(X_DEVPI_AUTH) || headers.contains_key(AUTHORIZATION) {
            return None;
        }
        let (session, was_asked) = match &head.session {
            Some(counted) => (counted.session.clone(), counted.was_asked.clone()),
            // The answer to a form is never cached.
            None if !matches!(head.method, Method::GET | Method::HEAD) => {
                (shown(app, head)?, Arc::default())
            }
            None => return None,
        };
        let stored = app.live_store.snapshot()?;
        let principal = identify_session(&stored.accounts, &session, Timestamp::now()).ok()?;
        Some(LoggedIn { principal, was_asked })
    }

    /// A user whom an answer that is never cached is for.
    pub(crate) fn as_user(principal: Principal) -> LoggedIn {
        LoggedIn { principal, was_asked: Arc::default() }
    }

    /// Whether this list names them, for the navigation, which stands beside their name.
    pub(crate) fn is_on(&self, list: &Acl, scope: Scope, object: Object<'_>) -> bool {
        list.admits(&self.principal, scope, object)
    }

    /// Who they are. From now on the answer is kept from everybody else.
    pub(crate) fn principal(&self) -> &Principal {
        self.was_asked.store(true, Relaxed);
        &self.principal
    }
}

/// Notes the session of a browser's GET or HEAD; `is_page`: for a page. Waits until this process has what the browser has seen.
pub(crate) async fn note(app: &App, head: &mut Parts, is_page: bool) -> Option<CountedSession> {
    let is_safe = matches!(head.method, Method::GET | Method::HEAD);
    // A proxy asks there on behalf of other programs, which may not know of forms with tokens.
    let is_for_others = head.uri.path().trim_end_matches('/').ends_with("/+authcheck");
    let is_own = || head.headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
    if !is_safe || is_for_others || !(is_page || is_own()) {
        return None;
    }
    let (session, text) = split(app, head)?;
    let renewed = catch_up(app, head, &session, text).await;
    head.session = Some(CountedSession { session, renewed, was_asked: Arc::default() });
    head.session.clone()
}

impl CountedSession {
    /// Keeps an answer that depends on the session from everybody else.
    pub(crate) fn finish(&self, headers: &mut HeaderMap) {
        if let Some(cookie) = &self.renewed {
            headers.append(SET_COOKIE, cookie.clone());
        } else if !self.was_asked.load(Relaxed) {
            return;
        }
        if !says(headers, CACHE_CONTROL, "no-store") && !says(headers, CACHE_CONTROL, "private") {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        }
        vary_by_cookie(headers);
    }
}

/// Says that the answer differs for users who are logged in.
pub(crate) fn vary_by_cookie(headers: &mut HeaderMap) {
    if !says(headers, VARY, "cookie") {
        headers.append(VARY, HeaderValue::from_static("Cookie"));
    }
}

fn says(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains(word))
}

/// Who sent a request to a path for people and programs: the owner of its credentials, else of the session. A session that has
/// ended has no owner.
///
/// # Errors
/// As [`identified`].
pub(crate) async fn identified_of(
    app: &App,
    head: &Parts,
) -> Result<Result<Principal, String>, HttpError> {
    let headers = &head.headers;
    let has_credentials = headers.contains_key(X_DEVPI_AUTH) || headers.contains_key(AUTHORIZATION);
    match head.session.as_ref().filter(|_| !has_credentials) {
        Some(counted) => {
            counted.was_asked.store(true, Relaxed);
            Ok(Ok(known(app, &counted.session)?.unwrap_or_default()))
        }
        None => identified(app, headers).await,
    }
}

/// Who sent a request, as [`identified_of`].
///
/// # Errors
/// 401 for invalid credentials; 429 after too many wrong passwords; 503 while too many are being checked.
pub(crate) async fn principal_of(app: &App, head: &Parts) -> Result<Principal, HttpError> {
    identified_of(app, head).await?.map_err(HttpError::unauthorized)
}

/// The owner of this session; `None` if it has ended.
///
/// # Errors
/// 503 until the store is loaded.
pub(crate) fn known(app: &App, session: &SessionText) -> Result<Option<Principal>, HttpError> {
    let principal = identify_session(&app.stored()?.accounts, session, Timestamp::now()).ok();
    if let Some(principal) = &principal {
        security::identified(principal);
    }
    Ok(principal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_their_name() {
        let check = |lines: &[&str], expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, HeaderValue::from_bytes(line.as_bytes()).expect("a value"));
            }
            assert_eq!(value(&headers, "larder-session"), expected, "{lines:?}");
        };
        check(&[], None);
        check(&["larder-session=a"], Some("a"));
        check(&["x=1; larder-session=a; y=2"], Some("a"));
        check(&["x=1", "larder-session = a "], Some("a"));
        check(&["larder-session=a; larder-session=b"], Some("a"));
        check(&["xlarder-session=a; __Host-larder-session=b; larder-session2=c"], None);
        check(&["larder-session", "=", ";;"], None);
        check(&["other=ü; larder-session=a; x=é"], Some("a"));
        check(&["larder-session=ü; larder-session=a"], Some("a"));
    }
}
