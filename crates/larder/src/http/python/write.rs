//! Shared by all writes of this surface: reading a body within bounds, deciding on a change, committing it, and deciding again
//! if another write came first.

use std::fmt::Display;
use std::future::{Future, ready};
use std::sync::{Arc, Mutex};

use account::Principal;
use audit::{Entry, Pending};
use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use pypi::{ChangeError, Refusal};
use record::Batch;
use state::stored::{Basis, Refusing, WriteFailure};
use store::CommitError;

use super::ask::Ask;
use super::reply;
use crate::http::auth;
use crate::http::body::{self, BodyError, Json, JsonBound, Received};
use crate::http::error::HttpError;

/// A refusal by a rule is worded as devpi does; a failure as the server words its own errors.
pub(super) enum Refused {
    /// A rule.
    Rule(Box<Response>),
    /// The server itself.
    Failure(HttpError),
}

impl From<Response> for Refused {
    fn from(response: Response) -> Refused {
        Refused::Rule(Box::new(response))
    }
}

impl From<HttpError> for Refused {
    fn from(error: HttpError) -> Refused {
        Refused::Failure(error)
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

impl Refusing for Refused {
    fn is_about_state(&self) -> bool {
        match self {
            Refused::Rule(response) => auth::is_about_state(response.status()),
            Refused::Failure(error) => error.is_about_state(),
        }
    }
}

impl From<WriteFailure> for Refused {
    fn from(failure: WriteFailure) -> Refused {
        Refused::Failure(failure.into())
    }
}

/// Refusals with a message of the API.
impl Refused {
    /// A refusal with the rule's status.
    pub(super) fn rule(status: StatusCode, message: impl Display) -> Refused {
        Refused::from(reply::message(status, &message.to_string()))
    }

    /// 400: a value is not as expected.
    pub(super) fn bad_request(message: impl Display) -> Refused {
        Refused::rule(StatusCode::BAD_REQUEST, message)
    }

    /// 403: the user may not do this.
    pub(super) fn forbidden(message: impl Display) -> Refused {
        Refused::rule(StatusCode::FORBIDDEN, message)
    }

    /// 404: something is not there.
    pub(super) fn not_found(message: impl Display) -> Refused {
        Refused::rule(StatusCode::NOT_FOUND, message)
    }

    /// 404: the user does not exist.
    pub(super) fn unknown_user(user: impl Display) -> Refused {
        Refused::not_found(format_args!("no user '{user}'"))
    }

    /// 409: the present state does not allow this.
    pub(super) fn conflict(message: impl Display) -> Refused {
        Refused::rule(StatusCode::CONFLICT, message)
    }
}

/// The status that devpi gives a refusal.
pub(super) fn status(error: &ChangeError) -> StatusCode {
    match error.refusal() {
        Refusal::Invalid => StatusCode::BAD_REQUEST,
        Refusal::Forbidden => StatusCode::FORBIDDEN,
        Refusal::NotFound => StatusCode::NOT_FOUND,
        Refusal::Gone => StatusCode::GONE,
        Refusal::Conflict => StatusCode::CONFLICT,
    }
}

/// A change that a rule forbids, as a message of the API.
pub(super) fn refused(error: ChangeError) -> Refused {
    Refused::rule(status(&error), error)
}

/// A body as JSON, whatever it says it is; devpi's clients do not always say.
pub(super) async fn json_body(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    bound: JsonBound,
) -> Result<Json, Refused> {
    let body = whole_body(ask, principal, body, bound.bytes_max).await?;
    if body.trim_ascii().is_empty() {
        let text = "Bad request: could not decode json: there is no body, and JSON was expected, such as `{}`";
        return Err(Refused::bad_request(text));
    }
    Ok(body.json(bound.values_max)?)
}

/// A body of JSON; None if the request has no body.
pub(super) async fn optional_json_body(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    bound: JsonBound,
) -> Result<Option<Json>, Refused> {
    let body = whole_body(ask, principal, body, bound.bytes_max).await?;
    if body.is_empty() { Ok(None) } else { Ok(Some(body.json(bound.values_max)?)) }
}

/// White space at most before the first byte of a body.
const PEEKED_BYTES_MAX: usize = 4 << 10;

/// The first byte of a body that is not white space, and the whole body. `None` if it begins with more white space than that.
pub(super) async fn peeked(body: Body) -> (Option<u8>, Body) {
    let mut pieces = body.into_data_stream();
    let mut seen = Vec::new();
    let (mut first, mut seen_bytes) = (None, 0);
    while first.is_none() && seen_bytes < PEEKED_BYTES_MAX {
        let Some(piece) = pieces.next().await else { break };
        if let Ok(piece) = &piece {
            seen_bytes += piece.len();
            first = piece.iter().copied().find(|byte| !byte.is_ascii_whitespace());
        }
        let is_broken = piece.is_err();
        seen.push(piece);
        if is_broken {
            break;
        }
    }
    (first, Body::from_stream(stream::iter(seen).chain(pieces)))
}

/// A body of at most this many bytes.
pub(super) async fn whole_body(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    bytes_max: usize,
) -> Result<Received, Refused> {
    Ok(body::whole(&ask.app, &ask.head, principal, body, bytes_max).await?)
}

/// [`decided`], for a decision that waits for nothing.
pub(super) async fn committed<T>(
    ask: &Ask,
    mut decide: impl FnMut(&Basis) -> Result<(Option<Batch>, T), Refused>,
) -> Result<T, Refused> {
    decided(ask, |basis| ready(decide(&basis))).await
}

/// Why [`committed_and_noted`] has no outcome.
enum Uncommitted {
    Refused(Refused),
    Failed(WriteFailure),
}

impl From<HttpError> for Uncommitted {
    fn from(error: HttpError) -> Uncommitted {
        Uncommitted::Refused(error.into())
    }
}

impl Refusing for Uncommitted {
    fn is_about_state(&self) -> bool {
        matches!(self, Uncommitted::Refused(refused) if refused.is_about_state())
    }
}

impl From<WriteFailure> for Uncommitted {
    fn from(failure: WriteFailure) -> Uncommitted {
        Uncommitted::Failed(failure)
    }
}

/// [`committed`] with entries for the audit log, which `decide` gives as well. They are noted if the batch is committed, and if
/// that is unknown, for example because the client left meanwhile.
pub(super) async fn committed_and_noted<T>(
    ask: &Ask,
    mut decide: impl FnMut(&Basis) -> Result<(Option<Batch>, Vec<Entry>, T), Refused>,
) -> Result<T, Refused> {
    decided_and_noted(ask, |basis: Arc<Basis>| ready(decide(&basis))).await
}

/// [`committed_and_noted`] for a decision that is a future.
pub(super) async fn decided_and_noted<T, D>(
    ask: &Ask,
    mut decide: impl FnMut(Arc<Basis>) -> D,
) -> Result<T, Refused>
where
    D: Future<Output = Result<(Option<Batch>, Vec<Entry>, T), Refused>>,
{
    let held = Mutex::new(Pending::new(&ask.app.audit));
    let set = |entries| held.lock().unwrap_or_else(|it| it.into_inner()).set(entries);
    let outcome = decided(ask, |basis: Arc<Basis>| {
        // The earlier decision was not committed.
        set(Vec::new());
        let (deciding, set) = (decide(basis), &set);
        async move {
            let (batch, entries, outcome) = deciding.await.map_err(Uncommitted::Refused)?;
            set(entries);
            Ok::<_, Uncommitted>((batch, outcome))
        }
    });
    let outcome = outcome.await;
    let pending = held.into_inner().unwrap_or_else(|it| it.into_inner());
    match outcome {
        Ok(outcome) => {
            pending.committed();
            Ok(outcome)
        }
        Err(Uncommitted::Refused(refused)) => {
            pending.refused();
            Err(refused)
        }
        Err(Uncommitted::Failed(failure)) => {
            match &failure {
                WriteFailure::NotVisible(_) => pending.committed(),
                WriteFailure::Commit(CommitError::OutcomeUnknown(_)) => drop(pending),
                WriteFailure::Commit(_)
                | WriteFailure::Overtaken
                | WriteFailure::NotLoaded
                | WriteFailure::Behind => pending.refused(),
            }
            Err(failure.into())
        }
    }
}

/// Decides on the current state, commits, and returns the decision once everybody sees it. `decide` checks the right and gives
/// a batch to commit, if any; it is called again if another write came first.
pub(super) async fn decided<T, E: From<HttpError> + Refusing, D>(
    ask: &Ask,
    decide: impl FnMut(Arc<Basis>) -> D,
) -> Result<T, E>
where
    D: Future<Output = Result<(Option<Batch>, T), E>>,
{
    let proved = ask.principal().await?;
    let patience = ask.app.config.store.wait_for_serial;
    let (outcome, serial) = ask.app.live_store.decided_async(&proved, patience, decide).await?;
    if let Some(serial) = serial {
        ask.wrote(serial);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use bytes::Bytes;

    use super::*;

    /// Compares the first byte of `pieces`, and that no byte is lost.
    async fn check(pieces: &[&'static str], expected: Option<u8>) {
        let body = pieces
            .iter()
            .map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        let body = Body::from_stream(stream::iter(body.collect::<Vec<_>>()));
        let (first, body) = peeked(body).await;
        assert_eq!(first, expected, "{pieces:?}");
        let whole = to_bytes(body, usize::MAX).await.expect("a body");
        assert_eq!(whole, pieces.concat().as_bytes(), "{pieces:?}");
    }

    #[tokio::test]
    async fn a_body_is_looked_at_and_stays_whole() {
        check(&[], None).await;
        check(&["", " ", "\r\n\t"], None).await;
        check(&["{\"a\"", ": 1}"], Some(b'{')).await;
        check(&["", " \n", " {", "}"], Some(b'{')).await;
        check(&[":action=submit", "&name=x"], Some(b':')).await;
    }
}
