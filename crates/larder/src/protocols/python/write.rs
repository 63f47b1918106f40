//! Shared by all writes of this surface: reading a body within bounds.

use account::Principal;
use axum::body::Body;
use futures_util::{StreamExt as _, stream};

use super::ask::Ask;
use super::error::ApiError;
use crate::front::body::{self, HeldBody, Json, JsonBound};

/// A body as JSON, whatever it says it is; devpi's clients do not always say.
pub(crate) async fn json_body(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    bound: JsonBound,
) -> Result<Json, ApiError> {
    let body = whole_body(ask, principal, body, bound.bytes_max).await?;
    if body.trim_ascii().is_empty() {
        let text = "Bad request: could not decode json: there is no body, and JSON was expected, such as `{}`";
        return Err(ApiError::bad_request(text));
    }
    Ok(body.json(bound.values_max)?)
}

/// A body of JSON; None if the request has no body.
pub(crate) async fn optional_json_body(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    bound: JsonBound,
) -> Result<Option<Json>, ApiError> {
    let body = whole_body(ask, principal, body, bound.bytes_max).await?;
    if body.is_empty() { Ok(None) } else { Ok(Some(body.json(bound.values_max)?)) }
}

/// White space at most before the first byte of a body.
const PEEKED_BYTES_MAX: usize = 4 << 10;

/// The first byte of a body that is not white space, and the whole body. `None` if it begins with more white space than that.
pub(crate) async fn peeked(body: Body) -> (Option<u8>, Body) {
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
pub(crate) async fn whole_body(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    bytes_max: usize,
) -> Result<HeldBody, ApiError> {
    Ok(body::whole(&ask.app, &ask.head, principal, body, bytes_max).await?)
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
