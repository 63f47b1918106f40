//! What a server that follows another one does not answer by itself: it sends such clients to the primary, or passes their
//! requests on.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use config::FollowWrites;
use futures_util::TryStreamExt as _;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderName, LOCATION, ORIGIN, REFERER, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use net::causes;
use record::Serial;
use state::security;

use super::error::HttpError;
use super::outside::root_url;
use super::serial::X_LARDER_SERIAL;
use crate::app::App;
use crate::app::following::Following;
use crate::routes::Endpoint;

/// Headers that are between two machines, or say where a request came from: each server sets its own.
fn stays_here(name: &HeaderName) -> bool {
    [CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE, ORIGIN, REFERER].contains(name)
        || [
            "keep-alive",
            "proxy-connection",
            "trailer",
            "expect",
            "forwarded",
            "x-real-ip",
            "x-outside-url",
        ]
        .contains(&name.as_str())
        || ["x-forwarded-", "sec-fetch-"].iter().any(|start| name.as_str().starts_with(start))
}

/// The answer to a request that only the primary answers.
///
/// # Errors
/// The body, if this server answers it. Nothing of it was read.
pub(crate) async fn to_primary(
    app: &App,
    endpoint: Endpoint,
    head: &Parts,
    body: Body,
) -> Result<Response, Body> {
    let Some(following) = app.following.as_ref().filter(|_| endpoint.is_of_primary()) else {
        return Err(body);
    };
    Ok(match app.config.follow_writes {
        FollowWrites::Redirect => led(app, following, head),
        FollowWrites::Forward => match Box::pin(forwarded(app, following, head, body)).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
    })
}

/// The way to the primary. A client sends the body there.
fn led(app: &App, following: &Following, head: &Parts) -> Response {
    let primary = following.primary_url(&app.config);
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let text = format!(
        "this server is a read-only copy of {primary}: the same request there is answered, and this redirect leads to it\n"
    );
    let Ok(location) = HeaderValue::try_from(format!("{primary}{target}")) else {
        return HttpError::unavailable(text, 60).into_response();
    };
    let headers = [
        (LOCATION, location),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
    ];
    (StatusCode::TEMPORARY_REDIRECT, headers, text).into_response()
}

/// The primary's answer. Once a write is acknowledged, this server shows it, too, if it has it in time.
async fn forwarded(
    app: &App,
    following: &Following,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let url = format!("{}{target}", following.link.url);
    let mut headers = HeaderMap::with_capacity(head.headers.len() + 2);
    for (name, value) in head.headers.iter().filter(|(name, _)| !stays_here(name)) {
        headers.append(name.clone(), value.clone());
    }
    // The primary believes them if it trusts this server as a proxy.
    let root_url = root_url(app, &head.uri, &head.headers, &head.extensions);
    for (name, value) in
        [("x-forwarded-for", security::client().to_string()), ("x-outside-url", root_url)]
    {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    let request = following.forwarding.request(head.method.clone(), url).headers(headers);
    let request = match body.is_end_stream() {
        true => request,
        false => request.body(reqwest::Body::wrap_stream(body.into_data_stream())),
    };
    let response = request.send().await.map_err(|error| {
        let reason = causes(&error).last().map_or_else(|| error.to_string(), ToString::to_string);
        tracing::warn!(error = reason, "a request cannot be passed on to the primary");
        let primary = following.primary_url(&app.config);
        HttpError::unavailable(
            format!("this server is a copy of {primary}, which cannot be reached now: {reason}"),
            5,
        )
    })?;
    let (status, mut headers) = (response.status(), response.headers().clone());
    let between: Vec<HeaderName> =
        headers.keys().filter(|name| stays_here(name)).cloned().collect();
    between.iter().for_each(|name| drop(headers.remove(name)));
    if let Some(serial) = headers.get(X_LARDER_SERIAL).and_then(|value| value.to_str().ok())
        && let Ok(serial) = serial.parse::<Serial>()
    {
        let patience: Duration = app.config.store.wait_for_serial;
        app.live_store.wait_for(serial, patience).await;
    }
    let mut answer =
        Response::new(Body::from_stream(response.bytes_stream().map_err(std::io::Error::other)));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    Ok(answer)
}
