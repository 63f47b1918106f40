//! devpi's three ways to answer: the envelope of its API, and two forms of refusal.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, VARY};
use http::{HeaderValue, StatusCode};
use hyper::ext::ReasonPhrase;
use pypi::devpi;
use record::shortened;
use serde::Serialize;
use serde_json::json;

use super::ask::Ask;
use crate::front::error::HttpError;
use crate::front::page;

/// Without a parameter: devpi's client compares the whole value.
pub(crate) const JSON: &str = "application/json";

/// For a page in HTML by default, rather than by `Accept`: people get another one than installers do.
pub(crate) const VARIES: HeaderValue =
    HeaderValue::from_static("Accept, User-Agent, Accept-Encoding");

/// Most characters of a message.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// A result of the API, of the type `kind`; devpi's client looks at both.
pub(crate) fn result(
    status: StatusCode,
    kind: &str,
    result: impl Serialize,
    message: Option<&str>,
) -> Response {
    typed(status, devpi::result(kind, result, message), JSON)
}

/// A message of the API, without a result: success or refusal.
pub(crate) fn message(status: StatusCode, message: &str) -> Response {
    typed(status, devpi::message(&shortened(message, MESSAGE_CHARS_MAX)), JSON)
}

/// A refusal at a URL that people may open: an envelope for clients that accept JSON, a short page for those that ask for
/// HTML, else a problem (RFC 9457) or text.
pub(crate) fn refusal(ask: &Ask, status: StatusCode, text: &str) -> Response {
    if ask.wants_json() {
        return message(status, text);
    }
    page(ask, status, &shortened(text, MESSAGE_CHARS_MAX))
}

/// Refuses with the status and the text of `error`.
pub(crate) fn refused(ask: &Ask, error: &HttpError) -> Response {
    refusal(ask, error.status(), error.detail())
}

/// A refusal for lack of a right: as with devpi, the same for anonymous senders and users; with its `cause`, if any.
pub(crate) fn forbidden(ask: &Ask, purpose: &str, cause: &str) -> Response {
    let text = format!("Unauthorized: {purpose} failed permission check{cause}");
    if ask.wants_json() {
        let body = json!({"message": text, "code": "403 Forbidden", "title": "Forbidden"});
        return typed(StatusCode::FORBIDDEN, body.to_string(), JSON);
    }
    page(ask, StatusCode::FORBIDDEN, &text)
}

/// An error of the server itself, with its headers; clients that accept JSON get devpi's envelope, the only one whose text
/// devpi's client shows.
pub(crate) fn failure(ask: &Ask, error: HttpError) -> Response {
    if !ask.wants_json() {
        return error.into_response();
    }
    let body = devpi::message(error.detail());
    let mut response = error.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = body.into();
    response
}

/// A refusal of an upload: its text is the reason phrase as well, which is all that older clients show.
pub(crate) fn upload_refusal(ask: &Ask, status: StatusCode, text: &str) -> Response {
    let text: &str = &shortened(text, MESSAGE_CHARS_MAX);
    let mut response = if ask.wants_json() {
        let code = format!("{} {text}", status.as_u16());
        let body = json!({"message": text, "code": code, "title": text}).to_string();
        typed(status, body, JSON)
    } else {
        page(ask, status, text)
    };
    set_reason(&mut response, text);
    response
}

/// Sets the reason phrase (HTTP/1.1 only). Characters that a header cannot have are left out, and a long text is cut, since
/// clients refuse long lines.
pub(crate) fn set_reason(response: &mut Response, text: &str) {
    let text = text.chars().take(MESSAGE_CHARS_MAX);
    let line: String =
        text.map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    if let Ok(reason) = ReasonPhrase::try_from(line.into_bytes()) {
        response.extensions_mut().insert(reason);
    }
}

fn page(ask: &Ask, status: StatusCode, text: &str) -> Response {
    let accept = ask.accept();
    if !accept.contains("text/html") {
        // Clients that take anything print what they get.
        if ["*/*", "application/*", "application/problem+json"].iter().any(|it| accept.contains(it))
        {
            return HttpError::refused(status, text).into_response();
        }
        let title = status.canonical_reason().unwrap_or("Error");
        let body = format!("{} {title}\n\n{text}\n", status.as_u16());
        return typed(status, body, "text/plain; charset=UTF-8");
    }
    let site = ask.site();
    let html = page::error_page(&site, status, text, None);
    let mut response = typed(status, html, "text/html; charset=UTF-8");
    page::insert_headers(response.headers_mut());
    response
}

pub(crate) fn typed(
    status: StatusCode,
    body: impl Into<Body>,
    content_type: &'static str,
) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static(content_type))], body.into()).into_response()
}

/// Redirects the client to another path of this server, with the query that it sent.
pub(crate) fn redirect(ask: &Ask, path: &str) -> Response {
    let query = ask.head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut response = StatusCode::FOUND.into_response();
    if let Ok(location) = HeaderValue::try_from(format!("{}{path}{query}", ask.root_url())) {
        response.headers_mut().insert(LOCATION, location);
    }
    response.headers_mut().insert(VARY, VARIES);
    response
}
