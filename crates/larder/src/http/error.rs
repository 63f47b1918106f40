//! Errors outside the surfaces' own envelopes: `application/problem+json` (RFC 9457).

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

/// A status and what the client should know.
#[derive(Clone, Debug)]
pub struct HttpError {
    status: StatusCode,
    detail: String,
    retry_after_seconds: Option<u32>,
    allow: Option<&'static str>,
    challenges: bool,
    /// What a surface adds for programs.
    members: Option<Box<Map<String, Value>>>,
}

impl HttpError {
    /// An error with this status; `detail` names the bad value and what was expected.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> HttpError {
        HttpError {
            status,
            detail: detail.into(),
            retry_after_seconds: None,
            allow: None,
            challenges: false,
            members: None,
        }
    }

    /// The same with members of a surface's own beside those of every error.
    #[must_use]
    pub(super) fn with(self, members: Map<String, Value>) -> HttpError {
        HttpError { members: Some(Box::new(members)), ..self }
    }

    /// What the client should know.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// 401, with the question for a user and a password.
    pub fn unauthorized(detail: impl Into<String>) -> HttpError {
        HttpError { challenges: true, ..HttpError::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// 503, with the time after which to try again.
    pub fn unavailable(detail: impl Into<String>, retry_after_seconds: u32) -> HttpError {
        let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        HttpError { retry_after_seconds: Some(retry_after_seconds), ..error }
    }

    /// 429, with the time after which to try again.
    pub fn too_many(detail: impl Into<String>, retry_after_seconds: u32) -> HttpError {
        let error = HttpError::new(StatusCode::TOO_MANY_REQUESTS, detail);
        HttpError { retry_after_seconds: Some(retry_after_seconds), ..error }
    }

    /// 405, with the methods that the path has.
    pub fn method_not_allowed(method: &http::Method, path: &str, allow: &'static str) -> HttpError {
        let detail = format!("`{method}` is not a method of `{path}`, expected one of: {allow}");
        HttpError { allow: Some(allow), ..HttpError::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }
}

impl HttpError {
    /// Status, detail, and the seconds after which to try again: for an answer in another form.
    pub(crate) fn into_facts(self) -> (StatusCode, String, Option<u32>) {
        (self.status, self.detail, self.retry_after_seconds)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let mut body = json!({"type": "about:blank", "title": title, "status": self.status.as_u16(), "detail": self.detail});
        for (name, value) in self.members.into_iter().flat_map(|members| *members) {
            body[name] = value;
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.challenges {
            // The realm that Python's clients keep passwords for.
            let challenge = HeaderValue::from_static("Basic realm=\"pypi\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

/// 404 for a path that nothing answers.
pub(super) async fn not_found(request: Request) -> HttpError {
    nothing_at(request.uri().path())
}

/// The same for this path.
pub(super) fn nothing_at(path: &str) -> HttpError {
    HttpError::new(
        StatusCode::NOT_FOUND,
        format!("nothing is at `{path}`; `/docs` says what there is"),
    )
}

/// 405 for the routes that answer GET alone.
pub(super) async fn wrong_method(request: Request) -> HttpError {
    HttpError::method_not_allowed(request.method(), request.uri().path(), "GET, HEAD")
}

/// 405 for the routes that answer GET and POST.
pub(super) async fn wrong_method_beside_post(request: Request) -> HttpError {
    HttpError::method_not_allowed(request.method(), request.uri().path(), "GET, HEAD, POST")
}
