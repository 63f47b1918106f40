//! `X-Larder-Serial`: a client never reads an older state than it has seen.
//!
//! Every response from the store carries the serial that it was made from, or that it made (those of the Python index also in
//! `X-DEVPI-SERIAL`, as its clients know it). If a client sends one back in either header, to this process or another one of the
//! same store, the request waits until this process has that serial.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use record::Serial;

use super::error::HttpError;
use super::negotiation::has_any;
use crate::app::App;
use crate::routes::Endpoint;

/// The header, in both directions.
pub(crate) const X_LARDER_SERIAL: HeaderName = HeaderName::from_static("x-larder-serial");

/// devpi's name for [`X_LARDER_SERIAL`].
pub(crate) const X_DEVPI_SERIAL: HeaderName = HeaderName::from_static("x-devpi-serial");

/// Whether every request to `endpoint` waits for what its client has seen. A feed of the AUR is not of the store, which only the
/// handler knows.
pub(crate) fn is_awaited_by(endpoint: Endpoint) -> bool {
    endpoint.is_of_store() && endpoint != Endpoint::ListChanges
}

/// Waits until the published state is at least as new as what the client has seen.
///
/// # Errors
/// 400 for a value that is no serial; 503 if this process does not have it in time.
pub(crate) async fn wait_for_seen(app: &App, request: &HeaderMap) -> Result<(), HttpError> {
    if !has_any(request, [&X_LARDER_SERIAL, &X_DEVPI_SERIAL]) {
        return Ok(());
    }
    let mut seen = Serial::ZERO;
    for (name, shown) in [(X_LARDER_SERIAL, "X-Larder-Serial"), (X_DEVPI_SERIAL, "X-DEVPI-SERIAL")]
    {
        for value in request.get_all(name) {
            let text = String::from_utf8_lossy(value.as_bytes());
            let serial = text.parse::<Serial>();
            let serial =
                serial.map_err(|error| HttpError::bad_request(format!("{shown}: {error}")))?;
            seen = seen.max(serial);
        }
    }
    if seen == Serial::ZERO {
        return Ok(());
    }
    if app.live_store.wait_for(seen, app.config.store.wait_for_serial).await {
        return Ok(());
    }
    let current = app.live_store.snapshot().map_or(Serial::ZERO, |stored| stored.serial);
    let detail = format!("this process is at serial {current}, and serial {seen} was asked for");
    Err(HttpError::unavailable(detail, 1))
}

/// Names a serial, if a response names none and `endpoint` is of the store: that of a read which began at `begun`, else that of the
/// published state. A read that named a later state than it was made from would hide the changes between the two from a client
/// that follows the feed from there.
pub(crate) fn complete(
    app: &App,
    endpoint: Endpoint,
    begun: Option<HeaderValue>,
    headers: &mut HeaderMap,
) {
    if endpoint.is_of_store()
        && !headers.contains_key(X_LARDER_SERIAL)
        && let Some(serial) = begun.or_else(|| of_published(app))
    {
        headers.insert(X_LARDER_SERIAL, serial);
    }
}

/// The serial of the published state; `None` before there is one.
pub(crate) fn of_published(app: &App) -> Option<HeaderValue> {
    app.live_store.snapshot().map(|stored| stored.serial_header())
}

/// Names the serial that a response was made from.
pub(crate) fn insert(headers: &mut HeaderMap, serial: Serial) {
    headers.insert(X_LARDER_SERIAL, HeaderValue::from(serial.0));
}
