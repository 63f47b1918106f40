//! Request bodies that are read whole, within a bound and the budget of [`resources::bodies`]. Bodies that are streamed to the
//! store are read by their handlers, where only the bytes in memory count.
//!
//! headers -> refused by what they announce (at the door by [`check_coding`], for every endpoint), before a byte is read ->
//! pieces, each counted as it comes -> [`HeldBody`] -> its [`Shape`], counted before any value is built -> JSON.

mod shape;

use std::ops::Deref;

use account::Principal;
use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, StatusCode};
use net::ClientAddress;
use resources::bodies::{HeldMemory, MemoryHolder, NoRoom};
use serde_json::Value;

use super::error::HttpError;
use super::negotiation::listed;
use crate::app::App;
use crate::front::request::Parts;

pub(crate) use self::shape::Shape;

/// Room for a body at first; most are smaller.
const FIRST_BYTES: usize = 1 << 10;

/// Longer bodies are parsed on another thread, so that no other request waits for them.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// When a client that found no room may try again.
const RETRY_SECONDS: u32 = 2;

/// The JSON that an endpoint accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonBound {
    /// Size of the body.
    pub(crate) bytes_max: usize,
    /// Values in it, of all kinds and at all depths; a tree of them takes some hundred bytes for each.
    pub(crate) values_max: usize,
}

/// A body that is there.
#[derive(Debug)]
pub(crate) struct HeldBody {
    bytes: Bytes,
    held: HeldMemory,
}

impl Deref for HeldBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// JSON that is there, and the memory that it takes.
#[derive(Debug)]
pub(crate) struct Json {
    pub(crate) value: Value,
    _held: HeldMemory,
}

/// Why there is no body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// More than the endpoint takes.
    #[error("the body has more than {bytes_max} bytes, the most that is accepted")]
    TooLarge { bytes_max: usize },
    /// More values than the endpoint takes.
    #[error("the body has more than {values_max} values, the most that is accepted")]
    TooMany { values_max: usize },
    /// The body ended early.
    #[error("the body did not arrive whole: {0}")]
    Broken(String),
    /// No JSON.
    #[error("Bad request: could not decode json")]
    NotJson,
    /// No memory for it now.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

impl BodyError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            BodyError::TooLarge { .. } | BodyError::TooMany { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Broken(_) | BodyError::NotJson => StatusCode::BAD_REQUEST,
            BodyError::NoRoom(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<BodyError> for HttpError {
    fn from(error: BodyError) -> HttpError {
        match error {
            BodyError::NoRoom(error) => error.into(),
            error => HttpError::refused(error.status(), error),
        }
    }
}

impl From<NoRoom> for HttpError {
    fn from(error: NoRoom) -> HttpError {
        HttpError::unavailable(error, RETRY_SECONDS)
    }
}

/// The address that sent this request.
pub(crate) fn client(app: &App, head: &Parts) -> ClientAddress {
    ClientAddress::resolve(head.peer.address, &head.headers, &app.limits.trusted)
}

/// Whose budget a request's body counts in: that of the user who sends it, else that of the client.
pub(crate) fn holder(app: &App, head: &Parts, principal: &Principal) -> MemoryHolder {
    match principal.user_name() {
        Some(name) => MemoryHolder::User(name.clone()),
        None => MemoryHolder::Client(client(app, head).key()),
    }
}

/// Refuses a body in a content coding (RFC 9110, 8.4): no endpoint would undo it, and all would take it for something else.
///
/// # Errors
/// 415, before a byte is read.
pub(crate) fn check_coding(headers: &HeaderMap, body: &Body) -> Result<(), HttpError> {
    if !headers.contains_key(CONTENT_ENCODING) || body.is_end_stream() {
        return Ok(());
    }
    let codings = listed(headers, CONTENT_ENCODING).unwrap_or_default();
    let mut codings = codings.split(',').map(str::trim).filter(|coding| !coding.is_empty());
    match codings.find(|coding| !coding.eq_ignore_ascii_case("identity")) {
        None => Ok(()),
        Some(coding) => Err(HttpError::encoded(coding)),
    }
}

/// The size that is announced.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// The whole body, of at most this many bytes; the network layer bounds the time.
///
/// # Errors
/// [`BodyError`], before a byte is read where the headers announce too much.
pub(crate) async fn whole(
    app: &App,
    head: &Parts,
    principal: &Principal,
    body: Body,
    bytes_max: usize,
) -> Result<HeldBody, BodyError> {
    held(app, &head.headers, holder(app, head, principal), body, bytes_max).await
}

/// Reads a whole body and counts its memory for `holder`.
///
/// # Errors
/// As [`whole`].
pub(crate) async fn held(
    app: &App,
    headers: &HeaderMap,
    holder: MemoryHolder,
    body: Body,
    bytes_max: usize,
) -> Result<HeldBody, BodyError> {
    let bytes_max = bytes_max.min(app.limits.bodies.single_bytes_max(&holder));
    let announced = announced(headers);
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(BodyError::TooLarge { bytes_max });
    }
    // The announced length is not trusted: room grows with the bytes that arrive, by doubling.
    let room_max = announced.map_or(bytes_max, |bytes| bytes as usize);
    let mut held = app.limits.bodies.begin(holder)?;
    let mut bytes = BytesMut::new();
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| BodyError::Broken(error.to_string()))?;
        let length = bytes.len() + piece.len();
        if length > bytes_max {
            return Err(BodyError::TooLarge { bytes_max });
        }
        if length > bytes.capacity() {
            let doubled = (bytes.capacity() * 2).max(FIRST_BYTES).min(room_max);
            let room = doubled.max(length);
            // While the body is copied, memory holds it twice.
            held.hold(bytes.capacity() + room)?;
            let mut larger = BytesMut::with_capacity(room);
            larger.extend_from_slice(&bytes);
            bytes = larger;
            held.hold(room)?;
        }
        // Copied, because a piece is a slice that keeps a larger buffer in memory.
        bytes.extend_from_slice(&piece);
    }
    Ok(HeldBody { bytes: bytes.freeze(), held })
}

impl HeldBody {
    /// The bytes, and the memory that they take.
    pub(crate) fn into_parts(self) -> (Bytes, HeldMemory) {
        (self.bytes, self.held)
    }

    /// Holds `bytes` from now on, for the body and what is made of it.
    ///
    /// # Errors
    /// [`BodyError::NoRoom`].
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), BodyError> {
        Ok(self.held.hold(bytes)?)
    }

    /// Refuses JSON with more than `values_max` values, and holds the memory for them.
    ///
    /// # Errors
    /// [`BodyError::TooMany`], [`BodyError::NoRoom`].
    pub(crate) fn measured(&mut self, values_max: usize) -> Result<(), BodyError> {
        let shape = Shape::of(&self.bytes);
        if shape.values() > values_max {
            return Err(BodyError::TooMany { values_max });
        }
        self.held.hold(self.bytes.len() + shape.memory_bytes(self.bytes.len()))?;
        Ok(())
    }

    /// The JSON that it is.
    ///
    /// # Errors
    /// [`BodyError`].
    pub(crate) fn json(mut self, values_max: usize) -> Result<Json, BodyError> {
        self.measured(values_max)?;
        let value = serde_json::from_slice(&self.bytes).map_err(|_| BodyError::NotJson)?;
        Ok(Json { value, _held: self.held })
    }
}

/// Parses a body of this many bytes: a long one on a thread that may take long, a few at a time.
pub(crate) async fn parsed<T: Send + 'static>(
    app: &App,
    bytes: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= INLINE_BYTES_MAX {
        return parse();
    }
    app.limits.bodies.parsing.run(parse).await
}
