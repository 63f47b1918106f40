//! Users whom a proxy in front of this server has identified, and names in a header: `[proxy_login]`.
//!
//! request -> [`take`], at the door -> an `Authorization` that only this process can make -> [`said`] -> the user
//!
//! The header is taken out of every request, so nothing else ever sees it; only that of a trusted proxy counts, and none in a request
//! that a follower has passed on. From then on it is what a remembered password of a browser is: answers are for this reader alone,
//! pages of other origins gain nothing by it, and forms need a session all the same.

use std::pin::Pin;

use account::{UserName, identify_elsewhere, identify_session};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use ldap::GROUPS_MAX;
use operations::log_ins::{ExternalUser, IdentitySource, NoteLogIn};
use sha2::{Digest as _, Sha256};

use super::elsewhere::{Identification, note};
use super::{X_DEVPI_AUTH, session};
use crate::app::App;
use crate::front::outside::is_of_proxy;
use crate::front::request::Parts;

/// How many servers have passed a request on, from a follower to its primary. Each sets it itself.
pub(crate) const X_LARDER_HOPS: HeaderName = HeaderName::from_static("x-larder-hops");

/// What an `Authorization` begins with that [`take`] makes.
const SCHEME: &[u8] = b"Larder-Proxy ";

/// What a proxy says of the sender of a request.
pub(super) struct ProxyUser {
    pub(super) name: UserName,
    /// `None` without a header for them.
    groups: Option<Vec<String>>,
}

/// Takes the headers of `[proxy_login]` out of a request. If a trusted proxy sent them, and the request has no credentials of its
/// own, they become its `Authorization`.
pub(crate) fn take(app: &App, head: &mut Parts) {
    let Some(login) = &app.logins.proxy_login else { return };
    let names = taken(&mut head.headers, &login.header);
    let groups = login.groups_header.as_ref().map(|header| taken(&mut head.headers, header));
    // A follower that passes a request on is a proxy that has identified nobody, whatever its client has written.
    let has_own = [AUTHORIZATION, X_DEVPI_AUTH, X_LARDER_HOPS]
        .iter()
        .any(|name| head.headers.contains_key(name));
    if names.is_empty() || has_own || !is_of_proxy(app, head) {
        return;
    }
    let said = match text(&names, &login.header, groups.as_deref()) {
        Ok(Some((name, groups))) => {
            if has_session(app, head, &name) {
                return;
            }
            let lines = groups.map_or_else(String::new, |groups| format!("\n{groups}"));
            format!("{name}{lines}")
        }
        Ok(None) => return,
        // No name has a blank.
        Err(problem) => format!(" {problem}"),
    };
    let said = BASE64_URL_SAFE_NO_PAD.encode(said);
    let value = [SCHEME, login.secret.as_bytes(), b" ", said.as_bytes()].concat();
    if let Ok(mut value) = HeaderValue::from_bytes(&value) {
        value.set_sensitive(true);
        head.headers.insert(AUTHORIZATION, value);
    }
}

/// The values of a header, which the request no longer has.
fn taken(headers: &mut HeaderMap, name: &HeaderName) -> Vec<HeaderValue> {
    let values = headers.get_all(name).iter().cloned().collect();
    headers.remove(name);
    values
}

/// The name, and the groups with commas, in these headers; `None` if the proxy says that nobody has logged in.
fn text(
    names: &[HeaderValue],
    header: &HeaderName,
    groups: Option<&[HeaderValue]>,
) -> Result<Option<(UserName, Option<String>)>, String> {
    let only = |values: &[HeaderValue]| match values {
        [] => Ok(String::new()),
        [value] => match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(_) => Err(format!("`{header}` of the proxy is not UTF-8")),
        },
        // One of them may be the client's.
        _ => Err(format!(
            "the proxy sends `{header}` or its groups several times: it has to set them"
        )),
    };
    let name = only(names)?;
    if name.is_empty() {
        return Ok(None);
    }
    let name = name.parse().map_err(|error| format!("`{header}` of the proxy: {error}"))?;
    let groups = groups.map(only).transpose()?;
    if groups.as_ref().is_some_and(|groups| groups.split(',').count() > GROUPS_MAX as usize) {
        return Err(format!("the proxy names more than {GROUPS_MAX} groups of `{name}`"));
    }
    Ok(Some((name, groups)))
}

/// Whether the browser has logged in here as this user: then the session counts, which forms need.
fn has_session(app: &App, head: &Parts, name: &UserName) -> bool {
    let session = session::shown(app, head).filter(|session| session.user() == name);
    let stored = app.live_store.snapshot();
    session.zip(stored).is_some_and(|(session, stored)| {
        identify_session(&stored.accounts, &session, Timestamp::now()).is_ok()
    })
}

/// Whether a proxy may have said who sent a request with these headers.
pub(crate) fn is_named_by_proxy(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(is_said)
}

/// Whether [`take`] may have made this.
pub(super) fn is_said(value: &HeaderValue) -> bool {
    value.as_bytes().starts_with(SCHEME)
}

/// What [`take`] put into an `Authorization`; the inner error says why it is nothing. `None` if somebody else made it.
pub(super) fn said(app: &App, value: &HeaderValue) -> Option<Result<ProxyUser, String>> {
    let login = app.logins.proxy_login.as_ref()?;
    let (secret, said) =
        std::str::from_utf8(&value.as_bytes()[SCHEME.len()..]).ok()?.split_once(' ')?;
    // Digests are compared, so that the time tells nothing about the secret.
    if Sha256::digest(secret) != Sha256::digest(&login.secret) {
        return None;
    }
    let said = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(said).ok()?).ok()?;
    if let Some(problem) = said.strip_prefix(' ') {
        return Some(Err(problem.to_owned()));
    }
    let (name, groups) = match said.split_once('\n') {
        Some((name, groups)) => (name, Some(groups.split(',').map(str::to_owned).collect())),
        None => (said.as_str(), None),
    };
    Some(Ok(ProxyUser { name: name.parse().ok()?, groups }))
}

/// The user that a proxy names: as they are here, or made, or with other groups.
///
/// # Errors
/// 503 while the store takes no writes, if one is needed.
pub(super) fn identified(
    app: &App,
    said: ProxyUser,
) -> Pin<Box<dyn Future<Output = Identification> + Send + '_>> {
    // Boxed: hardly any request waits for it, and the futures of all would be larger.
    Box::pin(look_up(app, said))
}

async fn look_up(app: &App, said: ProxyUser) -> Identification {
    let ProxyUser { name, groups } = &said;
    let refused = || Ok(Err(account::Refusal::Password { user: name.clone() }));
    let Some(rules) = app.rules.elsewhere(IdentitySource::Proxy) else { return refused() };
    let given =
        groups.as_ref().map(|groups| rules.groups.groups(groups.iter().map(String::as_str)));
    let stored = app.stored()?;
    let found = stored.accounts.user(name).map(|user| &**user);
    let is_as_said = rules.admit(&stored.accounts, name)
        && found.is_some_and(|user| {
            given.as_ref().is_none_or(|it| rules.groups_of(user, it) == user.groups)
        });
    if is_as_said {
        return Ok(identify_elsewhere(&stored.accounts, name));
    }
    drop(stored);
    let wish = NoteLogIn { user: ExternalUser::by_proxy(name.clone(), given) };
    note(app, name, "proxy", &wish).await
}
