//! What the server says of itself, and whether somebody may read a URL, for a proxy that asks first.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderName, USER_AGENT};
use jiff::Timestamp;
use pypi::ResolutionOrder;
use serde_json::json;

use super::ask::{Ask, below};
use super::project::admit;
use super::route::Route;
use super::{SERVER_VERSION_TEXT, reply};
use crate::config::ListenAddress;
use crate::http::error::HttpError;

const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// `GET /+status`
pub(super) fn status(ask: &Ask) -> Response {
    let app = &ask.app;
    let (host, port) = match app.config.listen.first() {
        Some(ListenAddress::Tcp(address)) => (address.ip().to_string(), address.port()),
        Some(ListenAddress::Unix(path)) => (format!("unix:{}", path.display()), 0),
        None => (String::new(), 0),
    };
    let serial = ask.stored.serial.0;
    let identity = ask.stored.identity.as_ref().and_then(|value| value.to_str().ok());
    let counts = app.pages.counts();
    // A write is seen once it is in every page: what devpi's plugins are told later, is told at once here.
    let seen_at = app.keeper.seen_at().map(seconds);
    let result = json!({
        // Where it lies on the disk is nobody's business out here.
        "serverdir": "",
        "uuid": identity,
        "versioninfo": {"devpi-server": SERVER_VERSION_TEXT, "larder": env!("CARGO_PKG_VERSION")},
        "server-code": "larder",
        "host": host,
        "port": port,
        "outside-url": app.config.public_url,
        "serial": serial,
        "last-commit-timestamp": seen_at,
        "event-serial": serial,
        "event-serial-timestamp": seen_at,
        "event-serial-in-sync-at": seen_at,
        "metrics": [
            ["larder_python_pages_rendered_total", "counter", counts.rendered],
            ["larder_python_lists_rendered_total", "counter", counts.rendered_lists],
            ["larder_python_pages", "gauge", counts.pages],
            ["larder_python_page_bytes", "gauge", counts.page_bytes],
        ],
        "role": "MASTER",
        "polling_replicas": {},
    });
    reply::result(StatusCode::OK, "status", result, None)
}

/// Seconds since 1970, with a fraction.
fn seconds(time: Timestamp) -> f64 {
    time.as_microsecond() as f64 / 1e6
}

/// `/+authcheck`, with the URL in `X-Original-URI`: 200 if whoever asks may read it. 401 for nobody in
/// particular, so that a browser asks for a password, but 403 for devpi's client, which would log out.
pub(super) async fn auth_check(ask: &Ask) -> Result<Response, HttpError> {
    let forbidden = || Ok(reply::forbidden(ask, "reading this"));
    let Some(uri) = ask.header(X_ORIGINAL_URI) else { return Ok(StatusCode::OK.into_response()) };
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    // Some proxies send the whole URL.
    let path = path
        .split_once("://")
        .map_or(path, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    let Some(route) = Route::parse(&below(path, &ask.root_url)) else { return forbidden() };
    let Some(stage) = route.stage() else { return Ok(StatusCode::OK.into_response()) };
    let index = &ask.stored.index;
    let order = match route {
        Route::File { .. } | Route::ExternalFile { .. } | Route::FileYank { .. } => {
            ResolutionOrder::alone(index, stage)
        }
        _ => ResolutionOrder::of(index, stage),
    };
    // What is not there is answered by whoever is asked next.
    let Some(order) = order else { return Ok(StatusCode::OK.into_response()) };
    let is_client = ask.header(USER_AGENT).is_some_and(|agent| agent.starts_with("devpi-client"));
    match admit(ask, &order).await {
        Ok(()) => Ok(StatusCode::OK.into_response()),
        Err(_) if is_client => forbidden(),
        Err(error) => Err(error),
    }
}
