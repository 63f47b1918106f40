//! Refused operations in the words of this server's own interfaces: problems (RFC 9457), forms and actions.

use account::Restriction;
use http::StatusCode;
use operations::{Denied, Kind, Refusal, Right, Rule};
use store::BlobError;

use super::error::HttpError;

/// The status of a kind of rule.
pub(crate) fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Gone => StatusCode::GONE,
        Kind::Conflict => StatusCode::CONFLICT,
    }
}

impl From<Refusal> for HttpError {
    /// The refusals of articles depend on what the sender may see, and are worded there.
    fn from(refusal: Refusal) -> HttpError {
        match refusal {
            Refusal::Ended(refusal) => HttpError::unauthorized(refusal),
            Refusal::Denied(denied) => of_denied(&denied),
            Refusal::Rule(rule @ (Rule::CreateToken(_) | Rule::Expiry(_)))
                if rule.kind() == Kind::Invalid =>
            {
                HttpError::unusable(rule)
            }
            Refusal::Rule(rule) => HttpError::refused(status(rule.kind()), rule),
            Refusal::Withheld { .. } => HttpError::forbidden(refusal),
            Refusal::Failed(failure) => failure.into(),
            Refusal::Blobs(error) => unwritable(error),
            Refusal::BlobMissing(digest) => {
                tracing::error!(%digest, "a file is missing from the store");
                HttpError::lost("file")
            }
        }
    }
}

/// The answer where bytes cannot be stored or read now.
pub(crate) fn unwritable(error: BlobError) -> HttpError {
    tracing::error!(%error, "the blobs cannot be written or read");
    HttpError::unavailable("the store takes no files now; nothing was written", 5)
}

fn of_denied(denied: &Denied) -> HttpError {
    let purpose = match &denied.right {
        Right::WriteArticle(_) => "write articles",
        Right::ReadArticle(_) => "read articles",
        Right::ReadIndex(_) => "read this index",
        Right::User(error) => {
            return HttpError::forbidden(match &denied.lack {
                Some(Restriction::Scope(scope)) => {
                    format!(
                        "this token may not manage tokens: it lacks the scope `{}`",
                        scope.as_str()
                    )
                }
                Some(lack) => lack.to_string(),
                None => format!("{error}: {}", denied.otherwise),
            });
        }
        right @ Right::SeeAll(_) => return HttpError::forbidden(right),
        _ => return HttpError::forbidden(denied),
    };
    super::auth::denied_for(denied.by.as_deref(), denied.lack.as_ref(), purpose, &denied.otherwise)
}
