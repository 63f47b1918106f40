//! [`Refused`]: why a request of this surface has no success; [`super::refusals`] makes the answer.

use std::fmt::Display;

use axum::response::Response;
use http::StatusCode;
use operations::Refusal;
use pypi::ChangeError;
use state::stored::WriteFailure;

use crate::front::body::BodyError;
use crate::front::error::HttpError;

/// Why a request of this surface has no success.
pub(crate) enum Refused {
    /// An answer that is made already, such as a redirect.
    Answer(Box<Response>),
    /// A rule, in words of this surface.
    Said(StatusCode, String),
    /// An operation was refused.
    Operation(Refusal),
    /// The server's own error.
    Failure(HttpError),
}

impl From<Response> for Refused {
    fn from(response: Response) -> Refused {
        Refused::Answer(Box::new(response))
    }
}

impl From<HttpError> for Refused {
    fn from(error: HttpError) -> Refused {
        Refused::Failure(error)
    }
}

impl From<WriteFailure> for Refused {
    fn from(failure: WriteFailure) -> Refused {
        Refused::Failure(failure.into())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused::Operation(refusal)
    }
}

impl From<ChangeError> for Refused {
    fn from(error: ChangeError) -> Refused {
        Refused::Operation(error.into())
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Refused {
        match error {
            BodyError::NoRoom(error) => Refused::Failure(error.into()),
            error => Refused::rule(error.status(), error),
        }
    }
}

/// Refusals with a message of the API.
impl Refused {
    /// A refusal with the rule's status.
    pub(crate) fn rule(status: StatusCode, message: impl Display) -> Refused {
        Refused::Said(status, message.to_string())
    }

    /// 400: a value is not as expected.
    pub(crate) fn bad_request(message: impl Display) -> Refused {
        Refused::rule(StatusCode::BAD_REQUEST, message)
    }

    /// 404: something is not there.
    pub(crate) fn not_found(message: impl Display) -> Refused {
        Refused::rule(StatusCode::NOT_FOUND, message)
    }

    /// 404: the user does not exist.
    pub(crate) fn unknown_user(user: impl Display) -> Refused {
        Refused::not_found(format_args!("no user '{user}'"))
    }

    /// 409: the present state does not allow this.
    pub(crate) fn conflict(message: impl Display) -> Refused {
        Refused::rule(StatusCode::CONFLICT, message)
    }
}
