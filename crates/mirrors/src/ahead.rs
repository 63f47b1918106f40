//! [`Ahead`]: the server that this one follows, which is asked before the upstreams of mirrors.
//!
//! ```text
//! Mirrors::get ─► Ahead ─► its own mirror: cache, or upstream, once for all who follow it
//!           └───► upstream, if it is away or has nothing to say
//! ```
//! A page or a list comes as it is kept, with upstream's tag and serial, and with its age: it expires here when it does there. A
//! file comes as any reader gets it. Both are read and compared with digests as if they came from upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use reqwest::{Response, Url};

use crate::upstream::UpstreamError;
use crate::{Mirror, Mirrors, lock};

/// The server that this one follows.
pub trait Ahead: Send + Sync {
    /// What it has at `path`: the name of a mirror, and a path below that. 200, 304, or 410 for what upstream does not have; `None`
    /// if it is away or does not know. With `is_forced` it asks its upstream.
    fn ask(
        &self,
        path: String,
        headers: HeaderMap,
        is_forced: bool,
    ) -> BoxFuture<'_, Option<Response>>;

    /// Notes that an answer was of no use: it is not asked for a while.
    fn failed(&self, trouble: &UpstreamError);
}

/// An answer, of that server or of upstream.
pub(crate) struct UpstreamResponse {
    pub(crate) response: Response,
    /// Upstream's URL of it.
    pub(crate) url: Url,
    pub(crate) is_ahead: bool,
}

impl Mirrors {
    /// From now on that server is asked first, and the upstreams only if it is away.
    pub fn ask_first(&self, ahead: Arc<dyn Ahead>) {
        _ = self.ahead.set(ahead);
    }

    /// Notes that an answer was of no use, if it came from there.
    pub(crate) fn ahead_failed_if(&self, is_ahead: bool, trouble: &UpstreamError) {
        if let Some(ahead) = self.ahead.get().filter(|_| is_ahead) {
            ahead.failed(trouble);
        }
    }

    /// What is at `path` below a mirror: from the server that this one follows, or else from upstream, where it is at `url`.
    pub(crate) async fn get(
        &self,
        mirror: &Mirror,
        path: &str,
        url: Url,
        headers: HeaderMap,
        is_forced: bool,
    ) -> Result<UpstreamResponse, UpstreamError> {
        if let Some(ahead) = self.ahead.get() {
            let path = format!("{}/{path}", mirror.stage);
            if let Some(response) = ahead.ask(path, headers.clone(), is_forced).await {
                return match response.status() {
                    StatusCode::GONE => Err(UpstreamError::of_status("the primary", &response)),
                    _ => Ok(UpstreamResponse { response, url, is_ahead: true }),
                };
            }
        }
        self.upstream_may_be_asked(mirror)?;
        self.counters.requests.fetch_add(1, Relaxed);
        let answer = self.upstream.get(&mirror.origin, url, headers).await;
        let is_answered = answer.as_ref().err().is_none_or(|trouble| trouble.is_absent);
        lock(&mirror.recent).note(self.started_at.elapsed(), is_answered);
        let (response, url) = answer?;
        Ok(UpstreamResponse { response, url, is_ahead: false })
    }
}
