//! [`Ask`]: a request of this surface, and what several steps need of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use account::Principal;
use http::header::{ACCEPT, HeaderName, USER_AGENT};
use http::request::Parts;
use pypi::devpi::View;
use record::Serial;
use state::stored::{Basis, Stored};
use tokio::sync::OnceCell;

use crate::app::App;
use crate::http::error::HttpError;
use crate::http::outside::root_url;
use crate::http::{auth, serial};

/// How pip and other installers begin their `User-Agent`; they get pages for machines at the URLs of people.
const INSTALLERS: [&str; 5] = ["distribute/", "setuptools/", "pip/", "pex/", "uv/"];

/// A request, with the state that it is answered from.
pub(super) struct Ask {
    pub(super) app: Arc<App>,
    pub(super) head: Parts,
    /// The path below the outside prefix of this server; one leading slash.
    pub(super) path: String,
    /// The published state of the store, taken once.
    pub(super) stored: Arc<Stored>,
    /// The start of this server's URLs, without a trailing slash.
    pub(super) root_url: String,
    /// The last commit of this request; zero if there is none.
    written: Arc<AtomicU64>,
    /// The outcome of checking the credentials, once it was needed: a password is hashed only once.
    proved: OnceCell<Result<Principal, String>>,
}

impl Ask {
    /// # Errors
    /// 503 until the store is loaded, or if it lags behind what the client has seen.
    pub(super) async fn new(
        app: Arc<App>,
        head: Parts,
        written: Arc<AtomicU64>,
    ) -> Result<Ask, HttpError> {
        serial::wait_for_seen(&app, &head.headers).await?;
        let stored = auth::stored(&app)?;
        let root_url = root_url(&app, &head.uri, &head.headers, &head.extensions);
        let path = below(head.uri.path(), &root_url);
        let proved = OnceCell::new();
        Ok(Ask { app, head, path, stored, root_url, written, proved })
    }

    /// Notes a commit of this request, which its response names.
    pub(super) fn wrote(&self, serial: Serial) {
        self.written.fetch_max(serial.0, Relaxed);
    }

    /// A header's value, where it is text.
    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// The value of `Accept`; `*/*` if there is none.
    pub(super) fn accept(&self) -> &str {
        self.header(ACCEPT).unwrap_or("*/*")
    }

    /// Whether JSON is wanted, as devpi tells: the media type occurs in `Accept`.
    pub(super) fn wants_json(&self) -> bool {
        self.accept().contains("application/json")
    }

    /// Whether JSON of the API may be sent: unless something else, and nothing but that, is accepted.
    pub(super) fn takes_json(&self) -> bool {
        ["application/json", "application/*", "*/*"].iter().any(|it| self.accept().contains(it))
    }

    /// Whether a simple page is wanted where people have the API's JSON.
    pub(super) fn wants_page(&self) -> bool {
        let accept = self.accept();
        self.is_installer()
            || (accept.contains("application/vnd.pypi.simple.") && !self.wants_json())
    }

    /// Whether the client is pip or another installer.
    pub(super) fn is_installer(&self) -> bool {
        self.header(USER_AGENT).is_some_and(is_installer)
    }

    /// Whether the query has this flag: its presence counts, whatever its value.
    pub(super) fn has_flag(&self, name: &str) -> bool {
        let query = self.head.uri.query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == name)
    }

    /// The first value of a parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.head.uri.query().unwrap_or_default();
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    }

    /// The path with `name` at `position`, counted from 0 after the leading slash; `name` is not escaped.
    pub(super) fn path_with(&self, position: usize, name: &str) -> String {
        let names = self.path.split('/').enumerate();
        let names: Vec<&str> =
            names.map(|(at, old)| if at == position + 1 { name } else { old }).collect();
        names.join("/")
    }

    /// The sender; with invalid credentials they count as anonymous, as with devpi.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(super) async fn principal(&self) -> Result<Principal, HttpError> {
        Ok(self.identified().await?.clone().unwrap_or_default())
    }

    /// The sender. The inner error says why the credentials are not valid.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(super) async fn identified(&self) -> Result<&Result<Principal, String>, HttpError> {
        self.proved.get_or_try_init(|| auth::identified_of(&self.app, &self.head)).await
    }

    /// What the principal sees of users and stages; with devpi's defaults, everybody sees the same.
    pub(super) fn view<'view>(&'view self, principal: &'view Principal) -> View<'view> {
        let shows_all = self.app.config.python.devpi_defaults;
        View { snapshot: &self.stored.index, principal, shows_all }
    }

    /// The basis for a write of this request: its sender as of the newest state.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(super) async fn basis(&self) -> Result<Basis, HttpError> {
        Ok(self.app.live_store.basis(&self.principal().await?)?)
    }
}

/// Whether this is the `User-Agent` of pip or another installer.
pub(super) fn is_installer(user_agent: &str) -> bool {
    user_agent.split(' ').any(|word| INSTALLERS.iter().any(|name| word.starts_with(name)))
}

/// The path without the prefix of the outside URL, and with one slash at its start.
pub(super) fn below(path: &str, root_url: &str) -> String {
    let prefix = root_url
        .split_once("://")
        .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]))
        .unwrap_or_default();
    let path = path.trim_start_matches('/');
    let below = path
        .strip_prefix(prefix.trim_start_matches('/'))
        .filter(|rest| !prefix.is_empty() && (rest.is_empty() || rest.starts_with('/')));
    format!("/{}", below.unwrap_or(path).trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installers() {
        for name in ["pip/25.0 {\"ci\":null}", "uv/0.12.7 {}", "Mozilla pip/1", "setuptools/70"] {
            assert!(is_installer(name), "{name}");
        }
        for name in ["poetry/2.1", "devpi-client/7.3.0 (py3.11.7; linux)", "xpip/1", "curl/8", ""] {
            assert!(!is_installer(name), "{name}");
        }
    }

    #[test]
    fn the_path_below_the_prefix() {
        let check =
            |path: &str, root: &str, expected: &str| assert_eq!(below(path, root), expected);
        check("//u/i/", "http://h", "/u/i/");
        check("/pre/u/i/", "http://h/pre", "/u/i/");
        check("/u/i/", "http://h/pre", "/u/i/");
        check("/prefix/i", "http://h/pre", "/prefix/i");
        check("/pre", "http://h/pre", "/");
        check("/", "http://h:1", "/");
    }
}
