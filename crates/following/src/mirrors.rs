//! [`MirrorSource`]: asks the primary for what its mirrors have.
//!
//! While this server is not connected to the primary, and for a while after an answer was of no use, it is not asked: the caller
//! asks the upstream then.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Response;

use crate::link::Link;
use crate::primary::{Primary, PrimaryError};

/// The path below which the primary has its mirrors.
const MIRRORS_PATH: &str = "/+follow/mirrors";

/// How long the primary is not asked after an answer that was of no use.
const PAUSE: Duration = Duration::from_secs(30);

/// The primary's mirrors.
pub struct MirrorSource {
    primary: Primary,
    link: Arc<Link>,
    asked_again_at: Mutex<Option<Instant>>,
    counted: Box<dyn Fn() + Send + Sync>,
}

impl MirrorSource {
    /// Asks there, as long as `link` says that it is there; `counted` is called for each answer.
    pub fn new(
        primary: Primary,
        link: Arc<Link>,
        counted: impl Fn() + Send + Sync + 'static,
    ) -> MirrorSource {
        MirrorSource { primary, link, asked_again_at: Mutex::default(), counted: Box::new(counted) }
    }

    fn asked_again_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.asked_again_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the primary has at this path below its mirrors: 200, 304, or 410 if the upstream does not have it. `None` if it is away
    /// or has nothing to say.
    pub async fn ask(
        &self,
        path: &str,
        mut headers: HeaderMap,
        is_forced: bool,
    ) -> Option<Response> {
        let is_paused = self.asked_again_at().is_some_and(|at| Instant::now() < at);
        if is_paused || self.link.state().connected_since.is_none() {
            return None;
        }
        if is_forced {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        match self.primary.ask(&format!("{MIRRORS_PATH}/{path}"), headers).await {
            Ok(response) => {
                let is_told = matches!(
                    response.status(),
                    StatusCode::OK | StatusCode::NOT_MODIFIED | StatusCode::GONE
                );
                is_told.then(|| {
                    (self.counted)();
                    response
                })
            }
            Err(error @ (PrimaryError::Unreachable { .. } | PrimaryError::Token { .. })) => {
                self.failed(&error);
                None
            }
            Err(_) => None,
        }
    }

    /// Notes that an answer was of no use: the primary is not asked for a while.
    pub fn failed(&self, trouble: &dyn Display) {
        tracing::warn!(%trouble, "the primary's mirrors are not asked for 30 seconds");
        *self.asked_again_at() = Some(Instant::now() + PAUSE);
    }
}
