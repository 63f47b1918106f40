//! What every write of this surface does: a body read within bounds, a change decided, committed, and decided
//! again where another write came first.

use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use record::Batch;
use serde_json::Value;

use super::ask::Ask;
use super::reply;
use crate::http::error::HttpError;
use crate::stored::{Basis, WriteFailure};

/// A write that a rule forbids is answered as devpi words it; one that fails, as the house does.
pub(super) enum Refused {
    /// A rule.
    Rule(Box<Response>),
    /// The house.
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

impl From<WriteFailure> for Refused {
    fn from(failure: WriteFailure) -> Refused {
        Refused::Failure(failure.into())
    }
}

impl Refused {
    /// The response, or the house's error.
    pub(super) fn into_result(self) -> Result<Response, HttpError> {
        match self {
            Refused::Rule(response) => Ok(*response),
            Refused::Failure(error) => Err(error),
        }
    }
}

/// A refusal with a message of the API.
pub(super) fn rule(status: StatusCode, message: impl std::fmt::Display) -> Refused {
    Refused::from(reply::message(status, &message.to_string()))
}

/// A body as JSON, whatever it says it is; devpi's clients do not always say.
pub(super) async fn json_body(ask: &Ask, body: Body) -> Result<Value, Refused> {
    let bytes = whole_body(body, ask.app.config.limits.body_bytes_max).await?;
    decoded(&bytes)
}

/// The same for a body that may be missing.
pub(super) async fn optional_json_body(ask: &Ask, body: Body) -> Result<Option<Value>, Refused> {
    let bytes = whole_body(body, ask.app.config.limits.body_bytes_max).await?;
    if bytes.is_empty() { Ok(None) } else { decoded(&bytes).map(Some) }
}

/// How much white space may come before what a body begins with.
const PEEKED_BYTES_MAX: usize = 4 << 10;

/// The first byte of a body that is not white space, and the whole body. None: it has none so soon.
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

/// Bytes as JSON.
pub(super) fn decoded(bytes: &[u8]) -> Result<Value, Refused> {
    if bytes.trim_ascii().is_empty() {
        let text = "Bad request: could not decode json: there is no body, and JSON was expected, such as `{}`";
        return Err(rule(StatusCode::BAD_REQUEST, text));
    }
    serde_json::from_slice(bytes)
        .map_err(|_| rule(StatusCode::BAD_REQUEST, "Bad request: could not decode json"))
}

/// A body of at most so many bytes.
pub(super) async fn whole_body(body: Body, bytes_max: usize) -> Result<Bytes, Refused> {
    to_bytes(body, bytes_max).await.map_err(|_| {
        rule(
            StatusCode::PAYLOAD_TOO_LARGE,
            format_args!("the body did not arrive whole, or has more than {bytes_max} bytes"),
        )
    })
}

/// Decides on the state as it is, commits, and returns what was decided once everybody sees it. `decide` judges
/// whether the sender may, and gives what to commit, if anything.
pub(super) async fn committed<T>(
    ask: &Ask,
    decide: impl FnMut(&Basis) -> Result<(Option<Batch>, T), Refused>,
) -> Result<T, Refused> {
    let proved = ask.principal().await?;
    let patience = ask.app.config.store.wait_for_serial;
    let (outcome, serial) = ask.app.keeper.decided(&proved, patience, decide).await?;
    if let Some(serial) = serial {
        ask.wrote(serial);
    }
    Ok(outcome)
}

/// A step of [`committed`], for decisions that take waiting: commits what was decided on `basis`. False if another write
/// came first, and all is to be decided again, the right as well, on a new [`Ask::basis`].
pub(super) async fn commit(ask: &Ask, basis: Basis, batch: Batch) -> Result<bool, WriteFailure> {
    let patience = ask.app.config.store.wait_for_serial;
    let committed = ask.app.keeper.commit_decided(basis, batch, patience).await?;
    if let Some(serial) = committed {
        ask.wrote(serial);
    }
    Ok(committed.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `pieces` begin with, and that nothing of them is lost.
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
