//! Actions: named calls with JSON arguments, many in one request.
//!
//! JSON -> [`request::Calls`] -> [`Catalogue`] -> a [`Handler`] with its [`Arguments`] -> JSON. Each surface has a
//! table of its [`Definition`]s, which drives the dispatch, the list of `GET /actions` and the OpenAPI document. All
//! calls of a request share one [`Context`], so they read the same snapshots. This module knows neither how a request
//! was sent nor what its response looks like.

mod arguments;
mod article;
mod aur;
pub mod cpu_pool;
mod example;
pub mod request;
mod server;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use net::ClientKey;
use record::Serial;
use reply::Reply;
use serde_json::json;

use crate::app::{App, AurPublished};
use crate::config::Config;
use crate::stored::Stored;

pub use arguments::{Argument, ArgumentKind, Arguments};

use cpu_pool::PoolError;
use request::Call;

/// Seconds after which a client may retry if the queue was full.
const FULL_RETRY_SECONDS: u64 = 1;

/// One action: its description and its code.
pub struct Definition {
    /// `surface.verb`.
    pub name: &'static str,
    /// Its description in one sentence.
    pub summary: &'static str,
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// Example arguments, as JSON.
    pub example: &'static str,
    /// Whether it changes anything; such an action refuses GET, as a mere link can send that.
    pub writes: bool,
    /// The code that answers.
    pub handler: Handler,
}

/// How an action is answered. Each handler refuses invalid arguments before it does anything.
pub enum Handler {
    /// At once, from the snapshots: it takes microseconds and never waits.
    Read(fn(&Context, Arguments<'_>) -> Outcome),
    /// On the pool, as it only computes.
    Compute(fn(Arguments<'_>) -> Result<Computation, Failure>),
    /// Asynchronously: it waits for the store, or for a write to become visible.
    Wait(for<'a> fn(&'a Context, Arguments<'a>) -> Waiting<'a>),
}

/// The computation of a [`Handler::Compute`].
pub type Computation = Box<dyn FnOnce() -> Outcome + Send>;

/// The future of a [`Handler::Wait`].
pub type Waiting<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// An action's result, one JSON value, or why there is none.
pub type Outcome = Result<Bytes, Failure>;

/// Why an action has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status for this failure.
    pub status: StatusCode,
    /// The message, which names the bad value and what was expected.
    pub message: String,
    /// When to retry, in seconds, if a retry may help.
    pub retry_after_seconds: Option<u64>,
}

impl Failure {
    /// A failure with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), retry_after_seconds: None }
    }

    /// 400: the call is not valid.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }

    /// 503, with the seconds after which to retry.
    pub fn unavailable(message: impl Into<String>, seconds: u64) -> Failure {
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, message);
        Failure { retry_after_seconds: Some(seconds), ..failure }
    }

    fn label(&self) -> &'static str {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "unavailable",
            status if status.is_server_error() => "failed",
            _ => "refused",
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        match error {
            PoolError::Full { .. } | PoolError::Stopped => {
                Failure::unavailable(error.to_string(), FULL_RETRY_SECONDS)
            }
            PoolError::Panicked => {
                Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
        }
    }
}

/// The state that the actions of one request share.
pub struct Context {
    /// The server.
    pub app: Arc<App>,
    /// The packages when the request arrived; `None` before the first snapshot.
    pub aur: Option<Arc<AurPublished>>,
    /// The state of the store when the request arrived; `None` before it has been loaded.
    pub stored: Option<Arc<Stored>>,
    /// The client that the rate limit counts.
    pub client: ClientKey,
    /// The request's headers, which have the credentials.
    pub headers: HeaderMap,
    /// Whether the request may change anything.
    pub may_write: bool,
    /// The last commit of the request's actions; zero if there was none.
    written: AtomicU64,
}

impl Context {
    /// Takes the current snapshots.
    pub fn new(app: Arc<App>, client: ClientKey, headers: HeaderMap, may_write: bool) -> Context {
        let (aur, stored) = (app.aur.snapshot_full(), app.live_store.snapshot_full());
        Context { app, aur, stored, client, headers, may_write, written: AtomicU64::new(0) }
    }

    /// Remembers a commit.
    fn wrote(&self, serial: Serial) {
        self.written.fetch_max(serial.0, Relaxed);
    }

    /// The newest serial that the calls so far have read or written; `None` before the store has been loaded.
    pub fn serial(&self) -> Option<Serial> {
        let written = Some(Serial(self.written.load(Relaxed))).filter(|it| *it > Serial::ZERO);
        written.max(self.stored.as_ref().map(|stored| stored.serial))
    }

    /// Runs one call.
    ///
    /// # Errors
    /// Those of the action; 400 if no action has this name.
    pub async fn run(&self, call: &Call<'_>) -> Outcome {
        let Some(action) = self.app.actions.find(&call.name) else {
            self.app.metrics.acted("unknown", "refused");
            let name = request::shortened(&call.name);
            return Err(Failure::refused(format!(
                "there is no action `{name}`, expected one of: {}",
                self.app.actions.names()
            )));
        };
        let outcome = self.run_known(action, call).await;
        let label = outcome.as_ref().map_or_else(Failure::label, |_| "ok");
        self.app.metrics.acted(action.name, label);
        outcome
    }

    async fn run_known(&self, action: &Definition, call: &Call<'_>) -> Outcome {
        if action.writes && !self.may_write {
            let message = "this action changes something: expected a POST to /actions";
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let arguments = Arguments::new(call.arguments);
        match action.handler {
            Handler::Read(read) => read(self, arguments),
            Handler::Compute(prepare) => self.app.cpu_pool.run(prepare(arguments)?).await?,
            Handler::Wait(begin) => begin(self, arguments).await,
        }
    }
}

/// Whether a surface is enabled, and its actions.
type Table = (fn(&Config) -> bool, &'static [Definition]);

/// All tables, in the order of the documentation.
const TABLES: &[Table] = &[
    (|config| config.aur.enabled, aur::ACTIONS),
    (|config| config.article.enabled, article::ACTIONS),
    (|_| true, server::ACTIONS),
    (|_| true, example::ACTIONS),
];

/// The actions of one server.
pub struct Catalogue {
    actions: Vec<&'static Definition>,
    listing: Reply,
}

impl Catalogue {
    /// The actions of all enabled surfaces.
    pub fn new(config: &Config) -> Catalogue {
        let actions: Vec<&Definition> = TABLES
            .iter()
            .filter(|(is_enabled, _)| is_enabled(config))
            .flat_map(|(_, actions)| *actions)
            .collect();
        let listed: Vec<_> = actions.iter().map(|action| describe(action)).collect();
        let listing = json!({
            "actions": listed,
            "actions_per_request_max": config.actions.per_request_max,
            "body_bytes_max": config.actions.body_bytes_max,
        });
        let listing = Reply::tagged("application/json", listing.to_string());
        Catalogue { actions, listing }
    }

    /// The answer to `GET /actions`.
    pub fn listing(&self) -> Reply {
        self.listing.clone()
    }

    fn find(&self, name: &str) -> Option<&'static Definition> {
        self.actions.iter().copied().find(|action| action.name == name)
    }

    fn names(&self) -> String {
        self.actions.iter().map(|action| action.name).collect::<Vec<_>>().join(", ")
    }
}

fn describe(action: &Definition) -> serde_json::Value {
    let arguments: Vec<_> = action
        .arguments
        .iter()
        .map(|argument| {
            json!({
                "name": argument.name,
                "type": argument.kind.name(),
                "required": argument.is_required,
                "meaning": argument.meaning(),
            })
        })
        .collect();
    json!({
        "name": action.name,
        "summary": action.summary,
        "arguments": arguments,
        "example": {"actions": {action.name: example(action)}},
        "computes": matches!(action.handler, Handler::Compute(_)),
        "writes": action.writes,
    })
}

fn example(action: &Definition) -> serde_json::Value {
    serde_json::from_str(action.example).expect("a test reads every example")
}

#[cfg(test)]
mod tests;
