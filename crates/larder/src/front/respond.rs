//! Makes a response of a finished reply: conditional GET and encodings, once for all surfaces.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_MATCH,
    IF_NONE_MATCH, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use net::{FileRange, Pieces};
use reply::{ENCODED_BYTES_MIN, Encoding, Reply};
use resources::turns::Turns;
use store::BlobReader;

use super::error::HttpError;
use super::negotiation::{accepted_encoding, has_any, listed};
use crate::published::finished_pages::FinishedPage;

/// Longer bodies are encoded on another thread, so that no other request waits for them.
const ENCODED_INLINE_BYTES_MAX: usize = 64 << 10;

/// Room for the headers of nearly every answer, so that their map grows once.
const HEADERS_MAX: usize = 8;

/// Long bodies that are encoded at once.
const ENCODED_AT_ONCE: usize = 4;

/// Bytes of long bodies that are encoded or wait for it, together; a further one is sent as it is. Each counts in steps.
const WAITING_BYTES_MAX: usize = 16 << 20;
const STEP_BYTES: usize = 64 << 10;

static ENCODING: LazyLock<Turns> = LazyLock::new(|| Turns::new(ENCODED_AT_ONCE));
static WAITING: LazyLock<Turns> = LazyLock::new(|| Turns::new(WAITING_BYTES_MAX / STEP_BYTES));

/// The headers of a request that decide how its reply is sent.
pub(crate) struct Conditions {
    if_match: Option<String>,
    if_none_match: Option<String>,
    encoding: Encoding,
}

impl Conditions {
    /// Whether the body will be sent as gzip, if it is worth that.
    pub(crate) fn wants_gzip(&self) -> bool {
        self.encoding == Encoding::Gzip
    }

    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Conditions {
        let is_safe = matches!(*method, Method::GET | Method::HEAD);
        let has_tags = is_safe && has_any(headers, [&IF_NONE_MATCH, &IF_MATCH]);
        let tags = |name| listed(headers, name).map(Cow::into_owned);
        let (if_match, if_none_match) = match has_tags {
            true => (tags(IF_MATCH), tags(IF_NONE_MATCH)),
            false => (None, None),
        };
        Conditions { if_match, if_none_match, encoding: accepted_encoding(headers) }
    }
}

/// The response for `reply`. For HEAD, too: the door drops the body and keeps its length.
pub(crate) async fn respond(
    reply: Reply,
    status: StatusCode,
    mut conditions: Conditions,
) -> Response {
    let is_known = |tags: &String| reply.is_known_by(tags);
    let is_known = conditions.if_none_match.as_ref().is_some_and(is_known);
    if is_known || !takes_long(&reply, &conditions) {
        return respond_now(reply, status, &conditions);
    }
    let steps = reply.body.len().div_ceil(STEP_BYTES).min(WAITING_BYTES_MAX / STEP_BYTES);
    let Some(waiting) = WAITING.try_take_many(steps as u32) else {
        conditions.encoding = Encoding::Identity;
        return respond_now(reply, status, &conditions);
    };
    let encode = move || {
        let _waiting = waiting;
        respond_now(reply, status, &conditions)
    };
    ENCODING.run(encode).await
}

/// Whether the body is so long that encoding it would keep other requests waiting.
pub(crate) fn takes_long(reply: &Reply, conditions: &Conditions) -> bool {
    conditions.encoding != Encoding::Identity && reply.body.len() > ENCODED_INLINE_BYTES_MAX
}

/// The response for `reply`, encoded on this thread.
pub(crate) fn respond_now(reply: Reply, status: StatusCode, conditions: &Conditions) -> Response {
    respond_with(&reply, status, conditions, |encoding| reply.encoded(encoding))
}

/// The response for a page that is kept; it is encoded once for all who ask for it.
pub(crate) fn respond_kept(page: &FinishedPage, conditions: &Conditions) -> Response {
    let encoded = |encoding| page.body.form(encoding).clone();
    respond_with(&page.reply, StatusCode::OK, conditions, encoded)
}

fn respond_with(
    reply: &Reply,
    status: StatusCode,
    conditions: &Conditions,
    encoded: impl FnOnce(Encoding) -> Bytes,
) -> Response {
    let encoding =
        if reply.body.len() < ENCODED_BYTES_MIN { Encoding::Identity } else { conditions.encoding };
    let is_other = |tags: &String| !reply.is_matched_by(tags);
    if status.is_success() && conditions.if_match.as_ref().is_some_and(is_other) {
        return HttpError::unexpected(&IF_MATCH).into_response();
    }
    let is_known = conditions.if_none_match.as_ref().is_some_and(|tags| reply.is_known_by(tags));
    let content_type = HeaderValue::from_static(reply.content_type);
    let etag = reply.etag.as_ref();
    let etag = etag.and_then(|etag| HeaderValue::try_from(etag.header_value(encoding)).ok());
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Response::new(Body::from(encoded(encoding)));
        *response.status_mut() = status;
        if let Some(name) = encoding.header_value() {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        response
    };
    let headers = response.headers_mut();
    headers.reserve(HEADERS_MAX);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(etag) = etag {
        headers.insert(ETAG, etag);
    }
    response
}

/// The policy of HTML for installers, which browsers show, too: it has links and a form, and nothing that runs.
pub(crate) const LINKS_ALONE: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
);

/// Keeps browsers from taking a body for something else than it is, and HTML that has no policy of its own from running
/// anything. Answers from memory have these headers already.
pub(crate) fn guard(headers: &mut HeaderMap) {
    let Some(content_type) = headers.get(CONTENT_TYPE) else { return };
    let html = ["text/html", "application/vnd.pypi.simple.v1+html", "application/xhtml+xml"];
    if html.iter().any(|html| content_type.as_bytes().starts_with(html.as_bytes())) {
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(LINKS_ALONE);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// A response with this range of a blob.
pub(crate) fn blob_range(blob: &BlobReader, range: Range<u64>) -> Response {
    let bytes = range.end - range.start;
    let file = blob.file_to_send(&range);
    let pieces = Pieces::beside(blob.bytes_ahead());
    let allowed = pieces.clone();
    let body = Body::from_stream(blob.read_range_by(range.clone(), move || allowed.next_bytes()));
    let mut response = ([(CONTENT_LENGTH, bytes)], body).into_response();
    response.extensions_mut().insert(pieces);
    if let Some(file) = file {
        response.extensions_mut().insert(FileRange::new(file, range));
    }
    response
}
