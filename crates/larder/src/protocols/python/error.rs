//! [`ApiError`]: why a request of this surface has no success; [`super::refusals`] makes the answer.

use std::fmt::Display;

use axum::response::Response;
use http::StatusCode;
use operations::Refusal;
use pypi::ChangeError;
use state::stored::WriteFailure;

use crate::front::body::BodyError;
use crate::front::error::HttpError;

/// Why a request of this surface has no success.
pub(crate) enum ApiError {
    /// An answer that is made already, such as a redirect.
    Answer(Box<Response>),
    /// A rule, in words of this surface.
    Said(StatusCode, String),
    /// An operation was refused.
    Operation(Refusal),
    /// The server's own error.
    Failure(HttpError),
}

impl From<Response> for ApiError {
    fn from(response: Response) -> ApiError {
        ApiError::Answer(Box::new(response))
    }
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> ApiError {
        ApiError::Failure(error)
    }
}

impl From<WriteFailure> for ApiError {
    fn from(failure: WriteFailure) -> ApiError {
        ApiError::Failure(failure.into())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        ApiError::Operation(refusal)
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> ApiError {
        ApiError::Operation(error.into())
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> ApiError {
        match error {
            BodyError::NoRoom(error) => ApiError::Failure(error.into()),
            error => ApiError::rule(error.status(), error),
        }
    }
}

/// Refusals with a message of the API.
impl ApiError {
    /// A refusal with the rule's status.
    pub(crate) fn rule(status: StatusCode, message: impl Display) -> ApiError {
        ApiError::Said(status, message.to_string())
    }

    /// 400: a value is not as expected.
    pub(crate) fn bad_request(message: impl Display) -> ApiError {
        ApiError::rule(StatusCode::BAD_REQUEST, message)
    }

    /// 404: something is not there.
    pub(crate) fn not_found(message: impl Display) -> ApiError {
        ApiError::rule(StatusCode::NOT_FOUND, message)
    }

    /// 404: the user does not exist.
    pub(crate) fn unknown_user(user: impl Display) -> ApiError {
        ApiError::not_found(format_args!("no user '{user}'"))
    }

    /// 409: the present state does not allow this.
    pub(crate) fn conflict(message: impl Display) -> ApiError {
        ApiError::rule(StatusCode::CONFLICT, message)
    }
}
