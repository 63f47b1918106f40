//! The forms of our pages: who sent one, its fields, and whether one of our own pages sent it.
//!
//! request -> origin, media type, size -> session -> [`Fields`] -> token -> [`PostedForm`] -> an operation of its [`PostedForm::sender`].

use account::{Credentials, Password, Principal, SessionText};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use operations::Sender;
use percent_encoding::percent_decode;
use record::{Serial, excerpt};
use resources::bodies::HeldMemory;

use crate::app::App;
use crate::front::auth::{self, Cookie, session};
use crate::front::body;
use crate::front::error::HttpError;
use crate::front::negotiation::media_type;
use crate::front::outside::root_path;
use crate::front::request::Parts;
use crate::front::target::below;

/// Most fields of a form.
const FIELDS_MAX: usize = 200;

/// The field with the token.
pub(crate) const TOKEN_FIELD: &str = "form";

/// Random bytes that the form for logging in is tied to.
const NONCE_BYTES: usize = 16;

/// How long a form for logging in can be sent.
const NONCE_SECONDS: u64 = 86_400;

/// How long after logging in a user without a password may do what others need their password for.
const JUST_NOW: SignedDuration = SignedDuration::from_mins(10);

/// Bytes of an address to go on to.
const NEXT_BYTES_MAX: usize = 2_000;

/// The fields of a form.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pairs: Vec<(String, String)>,
    /// The memory that they take.
    _held: Option<HeldMemory>,
}

impl Fields {
    /// Parses `a=1&b=2`.
    ///
    /// # Errors
    /// 400 for text that is not UTF-8, and for more than [`FIELDS_MAX`] fields.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Fields, HttpError> {
        let mut fields = Vec::new();
        for pair in bytes.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
            if fields.len() == FIELDS_MAX {
                let detail = format!("the form has more than {FIELDS_MAX} fields");
                return Err(HttpError::bad_request(detail));
            }
            let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            let (name, value) = (&pair[..at], pair.get(at + 1..).unwrap_or_default());
            fields.push((decoded(name)?, decoded(value)?));
        }
        Ok(Fields { pairs: fields, _held: None })
    }

    /// The value of a field that may be missing.
    ///
    /// # Errors
    /// 400 if it is there twice.
    pub(crate) fn maybe(&self, name: &str) -> Result<Option<&str>, HttpError> {
        let mut values = self.all(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(HttpError::bad_request(format!("the form has the field `{name}` twice")));
        }
        Ok(value)
    }

    /// The value of a field.
    ///
    /// # Errors
    /// 400 if it is missing, or there twice.
    pub(crate) fn one(&self, name: &str) -> Result<&str, HttpError> {
        let missing = || HttpError::bad_request(format!("the form lacks the field `{name}`"));
        self.maybe(name)?.ok_or_else(missing)
    }

    /// The names of the fields, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(name, _)| name.as_str())
    }

    /// The values of a field that may be there several times.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The words of a field, separated by blanks, commas or ends of lines.
    pub(crate) fn words(&self, name: &str) -> Result<Vec<String>, HttpError> {
        let text = self.maybe(name)?.unwrap_or_default();
        let words = text.split([' ', ',', '\t', '\r', '\n']).filter(|word| !word.is_empty());
        Ok(words.map(str::to_owned).collect())
    }
}

/// The refusal of a form whose field `do` names nothing that its page offers.
pub(crate) fn asks_nothing() -> HttpError {
    HttpError::bad_request("the form does not say what to do")
}

fn decoded(text: &[u8]) -> Result<String, HttpError> {
    let text: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    let text = percent_decode(&text).decode_utf8();
    let text = text.map_err(|_| HttpError::bad_request("the form has text that is not UTF-8"))?;
    Ok(text.into_owned())
}

/// A form that a user sent.
pub(crate) struct PostedForm {
    pub(crate) session: SessionText,
    pub(crate) principal: Principal,
    pub(crate) fields: Fields,
}

impl PostedForm {
    /// Who sent it, as operations know a sender.
    pub(crate) fn sender(&self, head: &Parts) -> Sender {
        auth::sender(self.principal.clone(), head)
    }
}

/// Why a form that arrived is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormRefusal {
    /// The sender is not logged in.
    LoggedOut,
    /// The form lacks the token of the session, or has another session's.
    Token,
}

impl FormRefusal {
    /// What the page says of it: `here` is what to do after logging in, `again` what to do with the form that belongs to another
    /// session.
    pub(crate) fn problem(self, here: &str, again: &str) -> String {
        match self {
            FormRefusal::LoggedOut => {
                format!("You are not logged in any more. Log in in another tab, and then {here}.")
            }
            FormRefusal::Token => {
                format!("You have logged in anew since this form was loaded. {again} again.")
            }
        }
    }
}

impl From<FormRefusal> for HttpError {
    fn from(refusal: FormRefusal) -> HttpError {
        match refusal {
            FormRefusal::LoggedOut => {
                HttpError::unauthorized("the session has ended: log in again")
            }
            FormRefusal::Token => HttpError::forbidden(
                "the form lacks the token of this session: load its page again, and send it once more",
            ),
        }
    }
}

/// Reads the form of a user who is logged in. The inner result says whether it may be carried out.
///
/// # Errors
/// 400, 413 and 415 for a body that is no such form.
pub(crate) async fn received(
    app: &App,
    head: &Parts,
    body: Body,
    bytes_max: usize,
) -> Result<(Fields, Result<(SessionText, Principal), FormRefusal>), HttpError> {
    check_media_type(head)?;
    let session = sender(app, head)?;
    let holder = session.as_ref().map(|(_, principal)| principal.clone()).unwrap_or_default();
    let mut received = body::whole(app, head, &holder, body, bytes_max).await?;
    // The fields are a copy, and each is copied once more while it is read.
    received.hold(received.len() * 3)?;
    let fields = Fields::parse(&received)?;
    let fields = Fields { _held: Some(received.into_parts().1), ..fields };
    let Some((session, principal)) = session else {
        return Ok((fields, Err(FormRefusal::LoggedOut)));
    };
    let is_due = has_token(app, &fields, session.reveal().as_bytes())?;
    Ok((fields, if is_due { Ok((session, principal)) } else { Err(FormRefusal::Token) }))
}

/// The session that a form came with, and its user; `None` if the sender is not logged in.
///
/// # Errors
/// 503 if the store is not loaded.
pub(crate) fn sender(
    app: &App,
    head: &Parts,
) -> Result<Option<(SessionText, Principal)>, HttpError> {
    let Some(session) = session::shown(app, head) else { return Ok(None) };
    let principal = session::known(app, &session)?;
    Ok(principal.map(|principal| (session, principal)))
}

/// The user who asks for the page of a form. Senders who are not logged in get 401, whose page has a link to log in.
///
/// # Errors
/// 401.
pub(crate) async fn logged_in(
    app: &App,
    head: &Parts,
) -> Result<(SessionText, Principal), HttpError> {
    let nobody = || HttpError::unauthorized("log in to see this page");
    let session = session::caught_up(app, head).await.ok_or_else(nobody)?;
    let principal = session::known(app, &session)?.ok_or_else(nobody)?;
    Ok((session, principal))
}

/// A form that may be carried out.
///
/// # Errors
/// 400, 413 and 415 for a body that is no such form; 401 and 403 as [`FormRefusal`] says.
pub(crate) async fn posted(
    app: &App,
    head: &Parts,
    body: Body,
    bytes_max: usize,
) -> Result<PostedForm, HttpError> {
    let (fields, sender) = received(app, head, body, bytes_max).await?;
    let (session, principal) = sender?;
    Ok(PostedForm { session, principal, fields })
}

/// The sender, as the password in this field proves them. An unattended browser must not be enough to take over an account, so what
/// gives lasting rights takes the sender's password once more. Users who have none have just logged in where they do.
///
/// # Errors
/// 403 if it is wrong, or the log-in was too long ago; 429 and 503 as for every password.
pub(crate) async fn proved_again(
    app: &App,
    posted: &PostedForm,
    field: &str,
) -> Result<Principal, HttpError> {
    let stored = app.stored()?;
    if let Some(identity) = posted.principal.identity()
        && !auth::has_password(app, &stored, &identity.user)
    {
        let (digest, now) = (posted.session.secret_digest(), Timestamp::now());
        let sessions = stored.accounts.sessions_of(&identity.user.name).into_iter();
        let mut sessions = sessions.flat_map(|stored| &stored.sessions);
        return match sessions
            .any(|it| it.secret_digest == digest && is_just_now(it.created_at, now))
        {
            true if field != "old" => Ok(posted.principal.clone()),
            true => Err(HttpError::forbidden(
                "You have no password here, so you cannot change it. Whoever runs this server can give you one.",
            )),
            false => Err(HttpError::forbidden(
                "This is possible within ten minutes of logging in: log out, log in again, and try it once more.",
            )),
        };
    }
    let password = posted.fields.maybe(field)?.unwrap_or_default();
    let (user, password) = (posted.session.user().clone(), Password::attempt(password));
    let proved = auth::proved(app, &Credentials::Password { user, password }).await?;
    proved.map_err(|_| {
        let detail = match field {
            "old" => "The old password is wrong.",
            _ => "Your own password is asked for once more, and what was sent is not it.",
        };
        HttpError::forbidden(detail)
    })
}

/// Whether a session that was opened then was opened a short while before `now`.
fn is_just_now(opened_at: Timestamp, now: Timestamp) -> bool {
    opened_at > now - JUST_NOW
}

/// The form for logging in, which is not tied to a session.
///
/// # Errors
/// As [`posted`].
pub(crate) async fn posted_by_nobody(
    app: &App,
    head: &Parts,
    body: Body,
    bytes_max: usize,
) -> Result<Fields, HttpError> {
    check_media_type(head)?;
    let received = body::whole(app, head, &Principal::Anonymous, body, bytes_max).await?;
    let fields = Fields::parse(&received)?;
    let cookie = Cookie::Form.shown(app, head).unwrap_or_default();
    let has_token = has_token(app, &fields, cookie.as_bytes())?;
    if cookie.is_empty() || !has_token {
        let detail = "the form is too old, or this browser keeps no cookies: load its page again, and send it once more";
        return Err(HttpError::forbidden(detail));
    }
    Ok(fields)
}

fn check_media_type(head: &Parts) -> Result<(), HttpError> {
    let media_type = media_type(&head.headers);
    if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Ok(());
    }
    let media_type = excerpt(&media_type, 80);
    let detail = format!(
        "a body of the type `{}` is no form: `application/x-www-form-urlencoded` was expected",
        media_type.escape_debug()
    );
    Err(HttpError::unsupported(detail))
}

fn has_token(app: &App, fields: &Fields, cookie: &[u8]) -> Result<bool, HttpError> {
    is_token(app, fields.maybe(TOKEN_FIELD)?.unwrap_or_default(), cookie)
}

/// Whether a form has the token of the session in this cookie.
///
/// # Errors
/// 503 if the store is not loaded.
pub(crate) fn is_token(app: &App, shown: &str, cookie: &[u8]) -> Result<bool, HttpError> {
    let stored = app.stored()?;
    Ok(stored.accounts.login_secret().is_some_and(|secret| secret.is_form_token(cookie, shown)))
}

/// The token for the forms of a session.
///
/// # Errors
/// 503 if the store has no secret, or is not loaded.
pub(crate) fn token(app: &App, session: &SessionText) -> Result<String, HttpError> {
    signed(app, session.reveal().as_bytes())
}

fn signed(app: &App, cookie: &[u8]) -> Result<String, HttpError> {
    let stored = app.stored()?;
    let secret = stored.accounts.login_secret();
    let none = || HttpError::unavailable("the store has no secret to sign forms with", 5);
    Ok(secret.ok_or_else(none)?.form_token(cookie))
}

/// The token for the form for logging in, and, if the browser has none yet, the cookie that the token is tied to.
///
/// # Errors
/// 503, as [`token`].
pub(crate) fn nobodys_token(
    app: &App,
    head: &Parts,
) -> Result<(String, Option<HeaderValue>), HttpError> {
    // Another tab may have the form open: its cookie stays.
    let is_ours = |cookie: &&str| {
        cookie.len() == NONCE_BYTES * 2 && cookie.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some(cookie) = Cookie::Form.shown(app, head).filter(is_ours) {
        return Ok((signed(app, cookie.as_bytes())?, None));
    }
    let cookie = format!("{:032x}", u128::from_be_bytes(auth::random::<NONCE_BYTES>()?));
    let set = Cookie::Form.set(app, head, &cookie, NONCE_SECONDS);
    Ok((signed(app, cookie.as_bytes())?, Some(set)))
}

/// The path of this server that a browser goes to next; `None` for any other text.
pub(crate) fn next(text: &str) -> Option<&str> {
    // Browsers take `//` and `\` for the beginning of a host.
    let is_path = text.starts_with('/') && !text.starts_with("//");
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    (is_path && text.len() <= NEXT_BYTES_MAX && text.bytes().all(is_plain)).then_some(text)
}

/// Redirects the browser to a path of this server, such as `/+account`, after its form was carried out. The path may be as
/// the browser knows it, too.
pub(crate) fn see_other(app: &App, head: &Parts, path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    // A browser takes `//` for the beginning of a host.
    let inner = below(path, &root_path(app, head)).filter(|inner| !inner.starts_with("//"));
    let path = inner.unwrap_or(path);
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, location);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Keeps this session in the browser, which from now on sees no older state than this commit, or than what it has seen already:
/// a refused form makes no commit.
pub(crate) fn keep_session(
    app: &App,
    head: &Parts,
    response: &mut Response,
    session: &SessionText,
    seen: Serial,
) {
    let seen = seen.max(session::seen_already(app, head, session));
    response.headers_mut().append(SET_COOKIE, session::cookie(app, head, session, seen));
}

/// Redirects the browser after its form made this commit, as [`see_other`] and [`keep_session`] do.
pub(crate) fn carried_out(
    app: &App,
    head: &Parts,
    path: &str,
    session: &SessionText,
    seen: Serial,
) -> Response {
    let mut response = see_other(app, head, path);
    keep_session(app, head, &mut response, session, seen);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_stands_for_a_password_for_ten_minutes() {
        let at = |minutes: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        assert!(is_just_now(at(100), at(109)));
        assert!(!is_just_now(at(100), at(110)));
    }

    #[test]
    fn fields_of_a_form() {
        let fields = Fields::parse(b"a=1&b=%C3%A9+x&c&a=2&d=%2B%3D&&=e").expect("fields");
        assert_eq!(fields.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(fields.one("b").expect("b"), "é x");
        assert_eq!((fields.one("c").expect("c"), fields.one("d").expect("d")), ("", "+="));
        assert!(fields.one("a").is_err() && fields.one("x").is_err());
        assert!(Fields::parse(b"a=%ff").is_err());
        assert!(Fields::parse(&b"a=1&".repeat(FIELDS_MAX)).is_ok());
        assert!(Fields::parse(&b"a=1&".repeat(FIELDS_MAX + 1)).is_err());
        let words = Fields::parse(b"w=a,+b%0D%0A%09c").expect("fields").words("w");
        assert_eq!(words.expect("words"), ["a", "b", "c"]);
    }

    #[test]
    fn only_paths_of_this_server_are_gone_on_to() {
        for path in ["/", "/+account", "/a/b?c=%2F%2Fe.example&d#e", "/article/a%20b"] {
            assert_eq!(next(path), Some(path));
        }
        for path in [
            "",
            "x",
            "//e.example/",
            "/\\e.example/",
            "\\\\e.example",
            "https://e.example/",
            "javascript:alert(1)",
            "/a b",
            "/\t/e.example",
            "/\r\nSet-Cookie: a=b",
            "/é",
        ] {
            assert_eq!(next(path), None, "{path}");
        }
        assert_eq!(next(&format!("/{}", "x".repeat(NEXT_BYTES_MAX))), None);
    }
}
