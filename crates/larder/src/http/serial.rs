//! `X-Larder-Serial`: a client never reads an older state than it has seen.
//!
//! Every response from the store carries the serial that it was made from, or that it made (the Python index in
//! `X-DEVPI-SERIAL`, as its clients know it). If a client sends one back, to this process or another one of the same store, the
//! request waits until this process has that serial.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use record::Serial;

use super::error::HttpError;
use crate::app::App;

/// The header, in both directions.
pub(super) const X_LARDER_SERIAL: HeaderName = HeaderName::from_static("x-larder-serial");

/// Waits until the published state is at least as new as what the client has seen.
///
/// # Errors
/// 400 for a value that is no serial; 503 if this process does not have it in time.
pub(super) async fn wait_for_seen(app: &App, request: &HeaderMap) -> Result<(), HttpError> {
    let Some(value) = request.get(X_LARDER_SERIAL) else { return Ok(()) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let seen: Serial = text
        .parse()
        .map_err(|error| HttpError::bad_request(format!("X-Larder-Serial: {error}")))?;
    if app.live_store.wait_for(seen, app.config.store.wait_for_serial).await {
        return Ok(());
    }
    let current = app.live_store.snapshot().map_or(Serial::ZERO, |stored| stored.serial);
    let detail = format!("this process is at serial {current}, and serial {seen} was asked for");
    Err(HttpError::unavailable(detail, 1))
}

/// The serial of an answer; zero if it has none.
pub(super) fn of(headers: &HeaderMap) -> Serial {
    let text = headers.get(X_LARDER_SERIAL).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Names the serial that a response was made from.
pub(super) fn insert(headers: &mut HeaderMap, serial: Serial) {
    headers.insert(X_LARDER_SERIAL, HeaderValue::from(serial.0));
}
