//! Actions: named calls with JSON arguments, many in one request.
//!
//! JSON -> [`request::Calls`] -> [`find`] -> a [`Handler`] with its [`Arguments`] -> JSON. Each surface has a
//! table of its [`Definition`]s, which drives the dispatch, the list of `GET /actions` and the OpenAPI document. All
//! calls of a request share one [`Context`], so they read the same snapshots. This module knows neither how a request
//! was sent nor what its response looks like.

mod arguments;
mod article;
mod aur;
pub(crate) mod endpoint;
mod example;
pub mod request;
mod server;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::StatusCode;
use net::ClientKey;
use operations::Sender;
use record::Serial;
use reply::Reply;
use resources::cpu_pool::PoolError;
use serde_json::{Map, Value, json};
use state::security;
use state::stored::Stored;

use crate::app::App;
use crate::front::auth::Claim;
use crate::front::error::HttpError;
use crate::published::aur_published::AurPublished;

pub(crate) use arguments::{Argument, Arguments};

use request::Call;

/// Seconds after which a client may retry if the queue was full.
const FULL_RETRY_SECONDS: u64 = 1;

/// One action: its description and its code.
pub(crate) struct Definition {
    /// `surface.verb`.
    pub(crate) name: &'static str,
    /// Its description in one sentence.
    pub(crate) summary: &'static str,
    /// Its arguments.
    pub(crate) arguments: &'static [Argument],
    /// Example arguments, as JSON.
    pub(crate) example: &'static str,
    /// Whether it changes anything; such an action refuses GET, because a link can send one.
    pub(crate) writes: bool,
    /// The code that answers.
    pub(crate) handler: Handler,
}

/// How an action is answered. Each handler refuses invalid arguments before it does anything.
pub(crate) enum Handler {
    /// At once, from the snapshots: it takes microseconds and never waits.
    Read(fn(&Context, Arguments<'_>) -> ActionResult),
    /// On the pool, as it only computes.
    Compute(fn(Arguments<'_>) -> Result<Computation, Failure>),
    /// Asynchronously: it waits for the store, or for a write to become visible.
    Wait(for<'a> fn(&'a Context, Arguments<'a>) -> ActionFuture<'a>),
}

/// The computation of a [`Handler::Compute`].
pub(crate) type Computation = Box<dyn FnOnce() -> ActionResult + Send>;

/// The future of a [`Handler::Wait`].
pub(crate) type ActionFuture<'a> = Pin<Box<dyn Future<Output = ActionResult> + Send + 'a>>;

/// An action's result, one JSON value, or why there is none.
pub(crate) type ActionResult = Result<Bytes, Failure>;

/// Why an action has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The HTTP status for this failure.
    pub(crate) status: StatusCode,
    /// The message, which names the bad value and what was expected.
    pub(crate) message: String,
    /// When to retry, in seconds, if a retry may help.
    pub(crate) retry_after_seconds: Option<u64>,
    /// Members that the error has for programs, as at the paths of the surface.
    pub(crate) members: Map<String, Value>,
}

impl Failure {
    /// A failure with this status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        let (message, members) = (message.into(), Map::new());
        Failure { status, message, retry_after_seconds: None, members }
    }

    /// 400: the call is not valid.
    pub(crate) fn refused(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }

    /// 503, with the seconds after which to retry.
    pub(crate) fn unavailable(message: impl Into<String>, seconds: u64) -> Failure {
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
pub(crate) struct Context {
    /// The server.
    pub(crate) app: Arc<App>,
    /// The packages when the request arrived; `None` before the first snapshot.
    pub(crate) aur: Option<Arc<AurPublished>>,
    /// The state of the store when the request arrived; `None` before it has been loaded.
    pub(crate) stored: Option<Arc<Stored>>,
    /// The client that the rate limit counts.
    pub(crate) client: ClientKey,
    /// Who the request says it is from.
    pub(crate) claim: Claim,
    /// Whether the request may change anything.
    pub(crate) may_write: bool,
    /// The last commit of the request's actions; zero if there was none.
    written: AtomicU64,
}

impl Context {
    /// Takes the current snapshots.
    pub(crate) fn new(app: Arc<App>, client: ClientKey, claim: Claim, may_write: bool) -> Context {
        let (aur, stored) = (app.aur.snapshot_full(), app.live_store.snapshot_full());
        Context { app, aur, stored, client, claim, may_write, written: AtomicU64::new(0) }
    }

    /// The sender, as operations know one.
    ///
    /// # Errors
    /// 401, 429 and 503.
    async fn sender(&self) -> Result<Sender, HttpError> {
        let (proved, address) = (self.claim.principal(&self.app).await?, security::client());
        Ok(Sender::Client { proved, address, path: "/actions".to_owned() })
    }

    /// Remembers a commit.
    fn wrote(&self, serial: Serial) {
        self.written.fetch_max(serial.0, Relaxed);
    }

    /// The newest serial that the calls so far have read or written; `None` before the store has been loaded.
    pub(crate) fn serial(&self) -> Option<Serial> {
        let written = Some(Serial(self.written.load(Relaxed))).filter(|it| *it > Serial::ZERO);
        written.max(self.stored.as_ref().map(|stored| stored.serial))
    }

    /// Runs one call.
    ///
    /// # Errors
    /// Those of the action; 400 if no action has this name.
    pub(crate) async fn run(&self, call: &Call<'_>) -> ActionResult {
        let Some(action) = find(&self.app, &call.name) else {
            self.app.metrics.acted("unknown", "refused");
            let name = request::shortened(&call.name);
            let names: Vec<_> = enabled(&self.app).map(|action| action.name).collect();
            return Err(Failure::refused(format!(
                "there is no action `{name}`, expected one of: {}",
                names.join(", ")
            )));
        };
        let outcome = self.run_known(action, call).await;
        let label = outcome.as_ref().map_or_else(Failure::label, |_| "ok");
        self.app.metrics.acted(action.name, label);
        outcome
    }

    async fn run_known(&self, action: &Definition, call: &Call<'_>) -> ActionResult {
        if action.writes && !self.may_write {
            let message = "this action changes something: expected a POST to /actions";
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let arguments = Arguments::new(call.arguments);
        match action.handler {
            Handler::Read(read) => read(self, arguments),
            Handler::Compute(prepare) => self.app.limits.cpu_pool.run(prepare(arguments)?).await?,
            Handler::Wait(begin) => begin(self, arguments).await,
        }
    }
}

/// Whether a surface is enabled, and its actions.
type Table = (fn(&App) -> bool, &'static [Definition]);

/// All tables, in the order of the documentation.
const TABLES: &[Table] = &[
    (|app| app.aur.is_on(), aur::ACTIONS),
    (|app| app.config.article.enabled, article::ACTIONS),
    (|_| true, server::ACTIONS),
    (|_| true, example::ACTIONS),
];

/// The actions of all enabled surfaces.
fn enabled(app: &App) -> impl Iterator<Item = &'static Definition> {
    TABLES.iter().filter(|(is_enabled, _)| is_enabled(app)).flat_map(|(_, actions)| *actions)
}

fn find(app: &App, name: &str) -> Option<&'static Definition> {
    enabled(app).find(|action| action.name == name)
}

/// The answer to `GET /actions`.
pub(crate) fn listing(app: &App) -> Reply {
    let config = &app.config;
    let actions: Vec<_> = enabled(app).map(describe).collect();
    let listing = json!({
        "actions": actions,
        "actions_per_request_max": config.actions.per_request_max,
        "body_bytes_max": config.actions.body_bytes_max,
    });
    Reply::tagged("application/json", listing.to_string())
}

fn describe(action: &Definition) -> Value {
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

fn example(action: &Definition) -> Value {
    serde_json::from_str(action.example).expect("a test reads every example")
}

#[cfg(test)]
mod tests;
