//! CORS: which pages of other origins may read an answer, and what they may send.
//!
//! Answers that everybody gets without credentials, such as those of `/rpc`, are open to every page. All other answers are open
//! to the pages that `cors.origins` names. Only a token that the page itself sends counts for it: what a browser adds by itself,
//! a cookie or a remembered password, opens nothing, and no answer allows it.
//!
//! request -> [`Page::of`] -> a handler, which knows nothing of this -> [`open`] adds the headers. A preflight is the answer to
//! `OPTIONS`: its methods are those in `Allow`, which come from the table of routes.

use axum::response::Response;
use config::PageOrigin;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ALLOW,
    AUTHORIZATION, COOKIE, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::negotiation::has_any;
use crate::app::App;
use crate::front::request::Parts;
use crate::routes::{Endpoint, Surface};

/// Headers of answers that clients need, besides those that every page may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Accept-Ranges, Allow, Content-Disposition, Content-Encoding, Content-Range, Date, ETag, Link, Location, \
     RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, RateLimit-Reset, Retry-After, Vary, WWW-Authenticate, \
     X-Article-Version, X-Devpi-Serial, X-Larder-Serial, X-PyPI-Last-Serial",
);

/// Headers that a page may send to an endpoint that is open to all. `*` covers no header in requests with credentials.
const SENT_BY_ALL: HeaderValue = HeaderValue::from_static("*, Content-Type");

/// Headers that every page may send if `cors.origins` has `*`: those for reading.
const SENT_TO_READ: HeaderValue = HeaderValue::from_static(
    "Accept, If-Modified-Since, If-None-Match, If-Range, Last-Event-ID, Range, X-Larder-Serial",
);

/// Headers that a page may send that `cors.origins` names.
const SENT_BY_LISTED: HeaderValue = HeaderValue::from_static(
    "Accept, Authorization, Content-Encoding, Content-Type, If-Match, If-Modified-Since, If-None-Match, If-Range, \
     If-Unmodified-Since, Last-Event-ID, Range, X-Larder-Serial",
);

const READING: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// How long a browser remembers the answer to a preflight.
const REMEMBERED_SECONDS: HeaderValue = HeaderValue::from_static("86400");

/// The page that made a browser send a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// A page of this origin, which the configuration names: it reads and writes, with its own token or without one.
    Listed(HeaderValue),
    /// A page of any origin, if the configuration has `*`: it reads what everybody may read.
    Any,
    /// A page that may read only what is open to all.
    Other,
}

impl Page {
    /// The page that sent a request; `None` if a program did, or if the browser did not say.
    pub(crate) fn of(app: &App, headers: &HeaderMap) -> Option<Page> {
        if !has_any(headers, [&ORIGIN]) {
            return None;
        }
        let origin = headers.get(ORIGIN)?;
        let origins = &app.config.cors.origins;
        let is_origin = |it: &PageOrigin| matches!(it, PageOrigin::Named(named) if named.as_bytes() == origin.as_bytes());
        Some(if origins.is_empty() || has_other_credentials(headers) {
            Page::Other
        } else if origins.iter().any(is_origin) {
            Page::Listed(origin.clone())
        } else if origins.contains(&PageOrigin::Any) && !headers.contains_key(AUTHORIZATION) {
            Page::Any
        } else {
            Page::Other
        })
    }

    /// Whether the page may change something.
    pub(crate) fn may_write(&self) -> bool {
        matches!(self, Page::Listed(_))
    }
}

/// The method of the request that a preflight announces; `None` of any other request.
pub(crate) fn announced_method(head: &Parts) -> Option<Method> {
    let announced = head.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    let method = Method::from_bytes(announced.as_bytes()).ok()?;
    (head.method == Method::OPTIONS).then_some(method)
}

/// Whether a request has credentials besides a token, which a browser never adds by itself.
fn has_other_credentials(headers: &HeaderMap) -> bool {
    let is_bearer = |value: &HeaderValue| {
        let scheme = value.as_bytes().get(..b"bearer ".len());
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
    };
    headers.contains_key(COOKIE)
        || headers.contains_key("x-devpi-auth")
        || !headers.get_all(AUTHORIZATION).iter().all(is_bearer)
}

/// Whether pages of another origin may ever read an answer of this endpoint.
pub(crate) fn may_open(app: &App, endpoint: Endpoint) -> bool {
    let is_configured = !app.config.cors.origins.is_empty();
    endpoint.is_open_to_all() || (is_configured && endpoint.surface() != Surface::Admin)
}

/// Adds the headers that let a page read an answer of this endpoint. `asks_first`: the request was `OPTIONS`, so that the answer
/// may be one to a preflight.
pub(crate) fn open(
    app: &App,
    endpoint: Endpoint,
    page: Option<&Page>,
    asks_first: bool,
    response: &mut Response,
) {
    if !may_open(app, endpoint) {
        return;
    }
    let is_open_to_all = endpoint.is_open_to_all();
    let is_answer = response.status() == StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    if !is_open_to_all {
        // A cache must not give an answer without these headers to a page that needs them.
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    let (origin, sent) = match page {
        _ if is_open_to_all => (HeaderValue::from_static("*"), SENT_BY_ALL),
        Some(Page::Listed(origin)) => (origin.clone(), SENT_BY_LISTED),
        Some(Page::Any) => (HeaderValue::from_static("*"), SENT_TO_READ),
        Some(Page::Other) | None => return,
    };
    // Documentation in a sandbox has an origin of its own, which is let in already.
    if is_open_to_all || !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if page.is_some() {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    if asks_first
        && is_answer
        && let Some(methods) = headers.get(ALLOW).cloned()
    {
        let methods = if page == Some(&Page::Any) && !is_open_to_all { READING } else { methods };
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, sent);
        headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED_SECONDS);
    }
}
