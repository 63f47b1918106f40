//! [`Parts`]: a request without its body, and what this server itself knows of it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use account::SessionText;
use http::HeaderValue;
use net::Peer;

/// The head of a request, with the connection that it came by and the session that counts for it.
#[derive(Clone)]
pub(crate) struct Parts {
    head: http::request::Parts,
    pub(crate) peer: Peer,
    /// The session of the browser, if [`super::auth::session::note`] has found that it counts.
    pub(super) session: Option<CountedSession>,
}

/// A session that counts for a request, and whether the answer depends on it.
#[derive(Clone)]
pub(crate) struct CountedSession {
    pub(super) session: SessionText,
    /// The cookie that replaces the one that was sent.
    pub(super) renewed: Option<HeaderValue>,
    pub(super) was_asked: Arc<AtomicBool>,
}

impl Parts {
    pub(crate) fn new(head: http::request::Parts, peer: Peer) -> Parts {
        Parts { head, peer, session: None }
    }
}

impl Deref for Parts {
    type Target = http::request::Parts;

    fn deref(&self) -> &http::request::Parts {
        &self.head
    }
}

impl DerefMut for Parts {
    fn deref_mut(&mut self) -> &mut http::request::Parts {
        &mut self.head
    }
}
