//! [`HttpError`]: a status and what the client should know, as `application/problem+json` (RFC 9457). Surfaces that word errors
//! as another server does make their own answers of it.

use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use resources::cpu_pool::PoolError;
use serde_json::{Map, Value, json};

/// A status and what the client should know.
#[derive(Clone, Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    detail: String,
    retry_after_seconds: Option<u32>,
    allow: Option<&'static str>,
    challenges: bool,
    /// Whether a body is taken if it is not encoded.
    takes_identity: bool,
    /// Members that a surface adds for programs.
    members: Option<Box<Map<String, Value>>>,
}

impl HttpError {
    fn new(status: StatusCode, detail: impl Display) -> HttpError {
        HttpError {
            status,
            detail: detail.to_string(),
            retry_after_seconds: None,
            allow: None,
            challenges: false,
            takes_identity: false,
            members: None,
        }
    }

    /// A surface's own refusal and its status; `detail` names the bad value and what was expected.
    pub(crate) fn refused(status: StatusCode, detail: impl Display) -> HttpError {
        HttpError::new(status, detail)
    }

    /// 400: a value is not as expected.
    pub(crate) fn bad_request(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 400: a path that is not text.
    pub(crate) fn not_utf8(path: &str) -> HttpError {
        HttpError::bad_request(format_args!("`{path}` is not UTF-8 after percent-decoding"))
    }

    /// 403: the sender is known, and may not.
    pub(crate) fn forbidden(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404: something is not there.
    pub(crate) fn not_found(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::NOT_FOUND, detail)
    }

    /// 404 for a path that nothing answers.
    pub(crate) fn nothing_at(path: &str) -> HttpError {
        HttpError::not_found(format!("nothing is at `{path}`; `/docs` says what there is"))
    }

    /// 404: the stage does not exist, in devpi's words.
    pub(crate) fn unknown_stage(stage: &str) -> HttpError {
        HttpError::not_found(format!("The stage {stage} could not be found."))
    }

    /// 404: the article does not exist.
    pub(crate) fn unknown_article(name: impl Display) -> HttpError {
        HttpError::not_found(format!(
            "there is no article `{name}`; a POST to `/article/{name}/0` creates it"
        ))
    }

    /// 409: another write came first.
    pub(crate) fn conflict(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::CONFLICT, detail)
    }

    /// 410: something was there, and was deleted.
    pub(crate) fn gone(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::GONE, detail)
    }

    /// 412: a GET for another body than this one; `name` is the header that says so.
    pub(crate) fn unexpected(name: &http::HeaderName) -> HttpError {
        let detail = format!("what is here now is not what `{name}` expects");
        HttpError::new(StatusCode::PRECONDITION_FAILED, detail)
    }

    /// 413: the request, or its answer, would be too large.
    pub(crate) fn too_large(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    /// 415: a body of this type is not read.
    pub(crate) fn unsupported(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    /// 415: a body in a content coding is not read; the response says which codings are.
    pub(crate) fn encoded(coding: &str) -> HttpError {
        let coding = record::excerpt(coding, 40);
        let detail =
            format!("a body in the encoding `{coding}` is not taken: expected it as it is");
        HttpError { takes_identity: true, ..HttpError::unsupported(detail) }
    }

    /// 416: the range is outside of the body.
    pub(crate) fn range_outside(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::RANGE_NOT_SATISFIABLE, detail)
    }

    /// 422: the body was read, and asks for what cannot be.
    pub(crate) fn unusable(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// A computation without a result: 503 if there are too many, 500 if it failed.
    pub(crate) fn uncomputed(error: PoolError) -> HttpError {
        match error {
            PoolError::Full { .. } | PoolError::Stopped => HttpError::unavailable(error, 1),
            PoolError::Panicked => HttpError::internal(error),
        }
    }

    /// 500, for an error that was logged.
    pub(crate) fn internal(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// 500: `what` no longer has the bytes that were stored.
    pub(crate) fn damaged(what: &str) -> HttpError {
        HttpError::internal(format!("the {what} is damaged in the store; it has been logged"))
    }

    /// 500: the store has no bytes of `what`.
    pub(crate) fn lost(what: &str) -> HttpError {
        HttpError::internal(format!("the {what} is missing from the store; it has been logged"))
    }

    /// 500: the template of a page failed.
    pub(crate) fn unrendered(error: &askama::Error) -> HttpError {
        tracing::error!(%error, "a page cannot be rendered");
        HttpError::internal("the page cannot be rendered")
    }

    /// 507: the disk is nearly full.
    pub(crate) fn disk_full(detail: impl Display) -> HttpError {
        HttpError::new(StatusCode::INSUFFICIENT_STORAGE, detail)
    }

    /// Adds members that only this surface has.
    #[must_use]
    pub(crate) fn with(self, members: Map<String, Value>) -> HttpError {
        HttpError { members: Some(Box::new(members)), ..self }
    }

    /// Adds the time after which to try again, if it is known.
    #[must_use]
    pub(crate) fn after(self, seconds: Option<u32>) -> HttpError {
        HttpError { retry_after_seconds: seconds.or(self.retry_after_seconds), ..self }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The explanation for the client.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// 401, with the question for a user and a password.
    pub(crate) fn unauthorized(detail: impl Display) -> HttpError {
        HttpError { challenges: true, ..HttpError::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// 503, with the time after which to try again.
    pub(crate) fn unavailable(detail: impl Display, retry_after_seconds: u32) -> HttpError {
        let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        HttpError { retry_after_seconds: Some(retry_after_seconds), ..error }
    }

    /// 429, with the time after which to try again.
    pub(crate) fn too_many(detail: impl Display, retry_after_seconds: u32) -> HttpError {
        let error = HttpError::new(StatusCode::TOO_MANY_REQUESTS, detail);
        HttpError { retry_after_seconds: Some(retry_after_seconds), ..error }
    }

    /// 405, with the methods that the path has.
    pub(crate) fn method_not_allowed(
        method: &http::Method,
        path: &str,
        allow: &'static str,
    ) -> HttpError {
        let detail = format!("`{method}` is not a method of `{path}`, expected one of: {allow}");
        HttpError { allow: Some(allow), ..HttpError::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }
}

impl HttpError {
    /// The members that a surface has added, for an answer in another form.
    pub(crate) fn take_members(&mut self) -> Map<String, Value> {
        self.members.take().map(|members| *members).unwrap_or_default()
    }

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
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.challenges {
            // The realm that Python's clients keep passwords for.
            let challenge = HeaderValue::from_static("Basic realm=\"pypi\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if self.takes_identity {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}
