//! `/rpc` and its older and younger names: questions about packages.
//!
//! The path, the query and the body become [`aur::Params`] by aurweb's rules; everything about
//! what they mean is in the `aur` crate.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use aur::{Answer, Body, Outcome, Params, PathParams, QueryError, Version};
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LOCATION,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;

use super::error::HttpError;
use super::pages;
use super::respond::{Conditions, respond};
use crate::app::App;
use crate::net::{ClientAddress, Peer};
use crate::rate_limit::Decision;

const METHODS: &str = "GET, HEAD, POST, OPTIONS";

/// Most fields of a multipart form: the names of the largest batch, and some.
const FORM_FIELDS_MAX: usize = 10_000;

/// Answers everything under `/rpc`, `/rpc.php` and `/api` that has no route of its own.
pub(super) async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    let mut response = match request.method() {
        &Method::GET | &Method::HEAD | &Method::POST => match question(&app, request).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
        &Method::OPTIONS => preflight(),
        other => HttpError::method_not_allowed(other, request.uri().path(), METHODS).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("ETag, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"),
    );
    response
}

/// What a browser asks before a request from another site: everything is allowed, as all is public.
fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*, Content-Type"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

async fn question(app: &App, request: Request) -> Result<Response, HttpError> {
    let arrived_at = Instant::now();
    let (parts, body) = request.into_parts();
    let path = Path::parse(parts.uri.path());
    let query = parts.uri.query();
    let is_post = parts.method == Method::POST;
    if let Path::Redirect(target) = path {
        return Ok(redirect(target, query));
    }
    let Path::Question { params: from_path, speaks_6 } = path else {
        return Err(HttpError::new(StatusCode::NOT_FOUND, format!("nothing is at `{}`", parts.uri.path())));
    };
    let conditions = Conditions::of(&parts.method, &parts.headers);
    let is_documentation = !is_post && from_path.version.is_none() && query.is_none_or(str::is_empty);
    if is_documentation {
        return Ok(pages::documentation_response(conditions).await);
    }

    let peer = parts.extensions.get::<Peer>().map_or(ClientAddress::Unix, |peer| peer.address);
    let client = ClientAddress::resolve(peer, &parts.headers, &app.trusted);
    let decision = app.rate_limiter.check(client.key(), arrived_at);
    if !decision.allowed {
        app.metrics.rpc_rate_limited.inc();
        app.metrics.refused(QueryError::RateLimited);
        // The body stays unread, so a version in a form is unknown.
        let version = given_version(&from_path, query);
        let answer = Answer::rate_limited(version);
        return Ok(finish(app, answer, StatusCode::TOO_MANY_REQUESTS, conditions, &decision).await);
    }

    let params = if is_post {
        let content_type = parts.headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or(""));
        let body = read_body(body, &parts.headers, app.config.limits.body_bytes_max).await?;
        if let Ok(boundary) = multer::parse_boundary(content_type) {
            let fields = multipart_fields(body, boundary).await?;
            Params::from_body(from_path, query, Body::Fields(&fields))
        } else if is_json(content_type) {
            Params::from_body(from_path, query, Body::Json(&body))
        } else {
            Params::from_body(from_path, query, Body::Form(&body))
        }
    } else {
        Params::from_query(from_path, query)
    };
    let Some(published) = app.aur.snapshot() else {
        return Err(HttpError::unavailable("the catalogue of packages is not loaded yet", 2));
    };
    let answer = Answer::to(params, &published.snapshot, speaks_6, app.results_max.load(Relaxed));
    drop(published);
    let status = match answer.outcome {
        Outcome::Answered(kind, by) => {
            app.metrics.answered(&parts.method, kind, by, answer.reply.body.len());
            StatusCode::OK
        }
        Outcome::Refused(error, version) => {
            app.metrics.refused(error);
            let is_bad = error.is_malformed() || (version == Version::V6 && speaks_6);
            if is_bad { StatusCode::BAD_REQUEST } else { StatusCode::OK }
        }
    };
    let response = finish(app, answer, status, conditions, &decision).await;
    app.metrics.rpc_duration.observe(arrived_at.elapsed().as_secs_f64());
    Ok(response)
}

async fn finish(
    app: &App,
    answer: Answer,
    status: StatusCode,
    conditions: Conditions,
    decision: &Decision,
) -> Response {
    let mut response = respond(answer.reply, status, conditions).await;
    app.rate_limiter.insert_headers(decision, response.headers_mut());
    response
}

/// What a path asks.
enum Path<'a> {
    Question { params: PathParams, speaks_6: bool },
    /// The same without the slashes at its end.
    Redirect(&'a str),
    Unknown,
}

impl Path<'_> {
    fn parse(path: &str) -> Path<'_> {
        let trimmed = path.trim_end_matches('/');
        let mut segments = trimmed.split('/').skip(1);
        let first = segments.next().unwrap_or_default();
        let is_api = first == "api";
        let Some(version) = segments.next() else {
            // One slash at the end is as good as none, more are a slip.
            return if path.len() > trimmed.len() + 1 {
                Path::Redirect(trimmed)
            } else {
                Path::Question { params: PathParams::default(), speaks_6: is_api }
            };
        };
        let Some(version) = version.strip_prefix('v').filter(|_| first != "rpc.php") else {
            return Path::Unknown;
        };
        let segments: Vec<&str> = segments.collect();
        let decode = |text: &str| Some(percent_decode_str(text).decode_utf8_lossy().into_owned());
        let mut params = PathParams { version: decode(version), ..PathParams::default() };
        match (segments.as_slice(), version) {
            (&[type_], _) => params.type_ = decode(type_),
            (&[type_, arg], _) => {
                (params.type_, params.arg) = (decode(type_), decode(arg));
            }
            (&[type_, by, arg], "6") => {
                (params.type_, params.by, params.arg) = (decode(type_), decode(by), decode(arg));
            }
            (&[type_, by, mode, arg], "6") => {
                (params.type_, params.by) = (decode(type_), decode(by));
                (params.mode, params.arg) = (decode(mode), decode(arg));
            }
            _ => return Path::Unknown,
        }
        if path.len() > trimmed.len() {
            return Path::Redirect(trimmed);
        }
        Path::Question { params, speaks_6: is_api || version == "6" }
    }
}

/// 307 to a path on this server.
fn redirect(path: &str, query: Option<&str>) -> Response {
    let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    match HeaderValue::from_str(&target) {
        Ok(target) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, target)]).into_response(),
        Err(_) => HttpError::new(StatusCode::NOT_FOUND, format!("nothing is at `{path}/`")).into_response(),
    }
}

/// The version in path or query, for an error that names it.
fn given_version(path: &PathParams, query: Option<&str>) -> Option<i64> {
    let text = path.version.clone().or_else(|| {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        pairs.filter(|(key, _)| key == "v").last().map(|(_, value)| value.into_owned())
    });
    text.and_then(|text| text.trim().parse().ok())
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.rsplit_once('+').is_some_and(|(_, suffix)| suffix.eq_ignore_ascii_case("json"))
}

/// The whole body, if it is within the bound; the network layer bounds the time.
async fn read_body(body: axum::body::Body, headers: &HeaderMap, body_bytes_max: usize) -> Result<Bytes, HttpError> {
    let too_large = || {
        let detail = format!("the body has more than {body_bytes_max} bytes, the most that is accepted");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > body_bytes_max as u64) {
        return Err(too_large());
    }
    to_bytes(body, body_bytes_max).await.map_err(|error| {
        let is_too_large = std::error::Error::source(&error)
            .is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
        if is_too_large {
            too_large()
        } else {
            HttpError::new(StatusCode::BAD_REQUEST, format!("the body could not be read: {error}"))
        }
    })
}

/// The text fields of a multipart form. Files among them are read as text: nobody sends any.
async fn multipart_fields(body: Bytes, boundary: String) -> Result<Vec<(String, String)>, HttpError> {
    let bad = |error: multer::Error| {
        HttpError::new(StatusCode::BAD_REQUEST, format!("the multipart form could not be read: {error}"))
    };
    let stream = futures_util::stream::once(async move { Ok::<_, std::convert::Infallible>(body) });
    let mut form = multer::Multipart::new(stream, boundary);
    let mut fields = Vec::new();
    while let Some(field) = form.next_field().await.map_err(bad)? {
        if fields.len() == FORM_FIELDS_MAX {
            let detail = format!("the form has more than {FORM_FIELDS_MAX} fields, the most that is accepted");
            return Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        let name = field.name().unwrap_or_default().to_owned();
        let value = field.bytes().await.map_err(bad)?;
        fields.push((name, String::from_utf8_lossy(&value).into_owned()));
    }
    Ok(fields)
}
