//! [`Ask`]: a request of this surface, and what several steps need of it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use account::Principal;
use http::header::{ACCEPT, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use operations::{Basis, Done, Operation, Sender, carry_out};
use pypi::devpi::View;
use pypi::{ProjectName, ProjectView, StageName};
use record::Serial;
use state::security;
use state::stored::Stored;
use tokio::sync::OnceCell;

use super::error::ApiError;
use crate::app::App;
use crate::front::error::HttpError;
use crate::front::negotiation::{media_ranges, named_weight, weight};
use crate::front::outside::root_url;
use crate::front::page::Site;
use crate::front::parameters::parameter;
use crate::front::request::Parts;
use crate::front::turns;
use crate::front::{auth, serial};
use crate::routes::{Route, Surface, Tree};

/// How pip and other installers begin their `User-Agent`; they get pages for machines at the URLs of people.
const INSTALLERS: [&str; 5] = ["distribute/", "setuptools/", "pip/", "pex/", "uv/"];

/// A project with at most this many files is looked through at once, without a turn.
const FEW_FILES: usize = 64;

/// A request, with the state that it is answered from.
pub(crate) struct Ask {
    pub(crate) app: Arc<App>,
    pub(crate) head: Parts,
    /// The path, below the outside prefix of this server.
    pub(crate) path: String,
    /// The published state of the store, taken once.
    pub(crate) stored: Arc<Stored>,
    /// [`Ask::root_url`], once it was needed: most answers have no such URL.
    root_url: OnceLock<String>,
    /// The last commit of this request; zero if there is none.
    pub(crate) written: AtomicU64,
    /// The outcome of checking the credentials, once it was needed: a password is hashed only once.
    proved: OnceCell<Result<Principal, String>>,
}

impl Ask {
    /// # Errors
    /// 503 until the store is loaded, if it lags behind what the client has seen, or while too many passwords are being checked.
    pub(crate) async fn new(app: Arc<App>, head: Parts) -> Result<Ask, HttpError> {
        serial::wait_for_seen(&app, &head.headers).await?;
        let stored = app.stored()?;
        let path = head.uri.path().to_owned();
        let (root_url, proved, written) = Default::default();
        let mut ask = Ask { app, head, path, stored, root_url, written, proved };
        ask.know_index().await?;
        Ok(ask)
    }

    /// The request of `principal`, who sent `head`, for the page or the file at `path`, with this `Accept`. No header of `head`
    /// counts.
    ///
    /// # Errors
    /// 503 until the store is loaded.
    pub(super) fn at(
        app: Arc<App>,
        mut head: Parts,
        principal: Principal,
        path: String,
        accept: &'static str,
    ) -> Result<Ask, HttpError> {
        let stored = app.stored()?;
        let root_url = root_url(&app, &head);
        head.headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
        head.method = Method::GET;
        let (root_url, proved) = (OnceLock::from(root_url), OnceCell::from(Ok(principal)));
        Ok(Ask { app, head, path, stored, root_url, written: AtomicU64::default(), proved })
    }

    /// The outcome of a handler whose answer grows with the data, when it is its turn. The sender is found out before that: it
    /// may take a while, and needs no turn.
    pub(crate) async fn in_turn<T>(
        &self,
        making: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        self.principal().await?;
        self.taking_turn(making).await
    }

    /// The outcome of a step of a handler whose cost grows with the files of a project: when it is its turn, if they are many.
    /// Of few files it is done at once, as a turn may cost a thread.
    pub(crate) async fn step_over<T>(
        &self,
        view: &ProjectView<'_>,
        making: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        match view.file_count() <= FEW_FILES {
            true => making.await,
            false => self.taking_turn(making).await,
        }
    }

    async fn taking_turn<T>(
        &self,
        making: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let share = &self.app.limits.making_answers[Surface::Python as usize];
        turns::in_turn(share, Box::pin(making)).await?
    }

    /// The start of this server's URLs, without a trailing slash.
    pub(crate) fn root_url(&self) -> &str {
        self.root_url.get_or_init(|| root_url(&self.app, &self.head))
    }

    /// This server as the sender of the request sees it, for a page.
    pub(crate) fn site(&self) -> Site {
        Site::below(&self.app, &self.head, self.root_url())
    }

    /// The outcome of an operation of this request, whose response names the commit.
    pub(crate) fn done<T>(&self, done: Done<T>) -> T {
        if let Some(serial) = done.serial {
            self.written.fetch_max(serial.0, Relaxed);
        }
        done.outcome
    }

    /// A header's value, where it is text.
    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// The value of `Accept`; `*/*` if there is none.
    pub(crate) fn accept(&self) -> &str {
        self.header(ACCEPT).unwrap_or("*/*")
    }

    /// Whether JSON is wanted.
    pub(crate) fn wants_json(&self) -> bool {
        wants_json(self.accept())
    }

    /// Whether JSON of the API may be sent: unless something else, and nothing but that, is accepted.
    pub(crate) fn takes_json(&self) -> bool {
        weight(self.accept(), "application/json") > 0.0
    }

    /// Whether a simple page is wanted where people have the API's JSON.
    pub(crate) fn wants_page(&self) -> bool {
        let is_simple = |(range, weight): (&str, f32)| {
            let start = range.get(.."application/vnd.pypi.simple.".len());
            let is_named =
                start.is_some_and(|it| it.eq_ignore_ascii_case("application/vnd.pypi.simple."));
            is_named && weight > 0.0
        };
        self.is_installer() || (media_ranges(self.accept()).any(is_simple) && !self.wants_json())
    }

    /// Whether the client is pip or another installer.
    pub(crate) fn is_installer(&self) -> bool {
        self.header(USER_AGENT).is_some_and(is_installer)
    }

    /// Whether the query has this flag: its presence counts, whatever its value.
    pub(crate) fn has_flag(&self, name: &str) -> bool {
        self.parameter(name).is_some()
    }

    /// The first value of a parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        parameter(&self.head, name)
    }

    /// The path with this name of its project.
    pub(crate) fn path_with_project(&self, name: &ProjectName) -> String {
        let route = Route::find(Tree::Python, &self.path, Some(&self.head.method));
        route.map_or_else(|| self.path.clone(), |route| route.with("{project}", name.as_str()))
    }

    /// The sender; with invalid credentials they count as anonymous, as with devpi.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(crate) async fn principal(&self) -> Result<Principal, HttpError> {
        Ok(self.identified().await?.clone().unwrap_or_default())
    }

    /// The sender. The inner error says why the credentials are not valid.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(crate) async fn identified(&self) -> Result<&Result<Principal, String>, HttpError> {
        self.proved.get_or_try_init(|| auth::identified_of(&self.app, &self.head)).await
    }

    /// What the principal sees of users and stages; with devpi's defaults, everybody sees the same.
    pub(crate) fn view<'view>(&'view self, principal: &'view Principal) -> View<'view> {
        let shows_all = self.app.config.python.devpi_defaults;
        View { snapshot: &self.stored.index, principal, shows_all }
    }

    /// The sender, as operations know one.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(crate) async fn sender(&self) -> Result<Sender, HttpError> {
        let (proved, path) = (self.principal().await?, self.path.clone());
        Ok(Sender::Client { proved, address: security::client(), path })
    }

    /// The state that the request is answered from, as operations look at one.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(crate) async fn asked(&self) -> Result<Basis, HttpError> {
        Ok(self.app.basis_on(self.stored.clone(), self.sender().await?))
    }

    /// The newest state: a body may have taken long.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked.
    pub(crate) async fn basis(&self) -> Result<Basis, HttpError> {
        Ok(self.app.basis(self.sender().await?)?)
    }

    /// Before a write to an index that this process does not know: another one may have made it a moment ago. Strangers are not
    /// worth the question.
    ///
    /// # Errors
    /// 503 while too many passwords are being checked, or if the store does not say how far it is.
    async fn know_index(&mut self) -> Result<(), HttpError> {
        let is_read = matches!(self.head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if is_read || self.app.following.is_some() {
            return Ok(());
        }
        let route = Route::find(Tree::Python, &self.path, Some(&self.head.method));
        let stage = route.and_then(|route| route.stage().ok());
        if stage.is_none_or(|name| self.stored.index.stage(name.as_str()).is_some()) {
            return Ok(());
        }
        // Boxed: nearly no request comes here, and each would have to move as much.
        let is_somebody = Box::pin(self.principal()).await?.user_name().is_some();
        if is_somebody && Box::pin(self.is_behind(self.stored.serial)).await? {
            self.stored = self.app.stored()?;
        }
        Ok(())
    }

    /// Whether the store is further than `serial`, and this process shows that now.
    async fn is_behind(&self, serial: Serial) -> Result<bool, HttpError> {
        let patience = self.app.config.store.wait_for_serial;
        Ok(self.app.live_store.catch_up(serial, patience).await?)
    }

    /// The name of an index that is there.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn stage_name(&self, stage: &str) -> Result<StageName, HttpError> {
        let found = self.stored.index.stage(stage).map(|stage| stage.name().clone());
        found.ok_or_else(|| HttpError::unknown_stage(stage))
    }

    /// Carries out an operation of this request; the response names its commit.
    ///
    /// # Errors
    /// Why it is not carried out.
    pub(crate) async fn carry_out<O: Operation>(&self, wish: &O) -> Result<O::Outcome, ApiError> {
        let sender = self.sender().await?;
        Ok(self.done(carry_out(&mut self.app.keeper(), &sender, wish).await?))
    }
}

/// Whether this `Accept` wants JSON, as devpi tells: the media type occurs in it. It may prefer a page all the same.
pub(crate) fn wants_json(accept: &str) -> bool {
    let json = named_weight(accept, "application/json").unwrap_or(0.0);
    json > 0.0 && json >= named_weight(accept, "text/html").unwrap_or(0.0)
}

/// Whether this is the `User-Agent` of pip or another installer.
pub(crate) fn is_installer(user_agent: &str) -> bool {
    user_agent.split(' ').any(|word| INSTALLERS.iter().any(|name| word.starts_with(name)))
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
    fn who_wants_json() {
        for (accept, expected) in [
            ("application/json", true),
            ("Application/JSON;q=0.5", true),
            ("text/html, application/json", true),
            ("*/*", false),
            ("application/json;q=0, */*", false),
            ("text/html, application/json;q=0.1", false),
            ("application/vnd.pypi.simple.v1+json", false),
        ] {
            assert_eq!(wants_json(accept), expected, "{accept}");
        }
    }
}
