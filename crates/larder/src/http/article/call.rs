//! Articles for callers that are no HTTP requests of their own: the actions.
//!
//! The same rules, the same texts: who may, what is there, what a write is refused for. Readers name the state
//! that they read, since all calls of a request share one.

use std::sync::Arc;

use article::{ArticleName, Limits, Revision, render};
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPECT, IF_MATCH, IF_NONE_MATCH,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{read, write};
use crate::app::App;
use crate::http::error::HttpError;
use crate::stored::Stored;

/// Most bytes in the answer to a write: its facts, or a merge of texts that are bounded.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A new revision, as an action describes it.
pub(crate) struct NewRevision {
    pub(crate) name: String,
    pub(crate) base: u32,
    pub(crate) body: Bytes,
    pub(crate) content_type: Option<String>,
    pub(crate) comment: Option<String>,
}

fn bad(error: impl std::fmt::Display) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, error.to_string())
}

/// A name, if whoever sent these headers may read articles.
async fn reader(app: &App, headers: &HeaderMap, name: &str) -> Result<ArticleName, HttpError> {
    read::admit(app, headers).await?;
    ArticleName::parse(name).map_err(bad)
}

/// `{"version":4}`, and `"deleted":true` where the article is.
///
/// # Errors
/// As reading it has.
pub(crate) async fn latest_version(
    app: &App,
    stored: &Stored,
    headers: &HeaderMap,
    name: &str,
) -> Result<Bytes, HttpError> {
    let name = reader(app, headers, name).await?;
    let article = stored.articles.article(&name).ok_or_else(|| read::missing(&name))?;
    let mut answer = json!({"version": article.highest().0});
    if article.is_deleted() {
        answer["deleted"] = true.into();
    }
    Ok(answer.to_string().into())
}

/// A revision's facts with its content: `text`, or `base64` where it is not UTF-8.
///
/// # Errors
/// As reading it has; 413 for a content of more than `bytes_max`.
pub(crate) async fn revision(
    app: &App,
    stored: &Stored,
    headers: &HeaderMap,
    (name, version): (&str, Option<u32>),
    bytes_max: usize,
) -> Result<Bytes, HttpError> {
    let name = reader(app, headers, name).await?;
    let facts = read::revision(stored, &name, version.map(Revision))?;
    let content = read::content_of(&name, facts)?;
    if content.size_bytes > bytes_max as u64 {
        let detail = format!(
            "`{name}` has {} bytes, more than the {bytes_max} that an action answers: `/article/{name}` has them",
            content.size_bytes
        );
        return Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let bytes = read::bytes(app, content).await?;
    let mut answer: Value = serde_json::from_slice(&render::revision(&name, facts))
        .expect("what was rendered a moment ago is JSON");
    match std::str::from_utf8(&bytes) {
        Ok(text) => answer["text"] = text.into(),
        Err(_) => {
            use base64::Engine as _;
            answer["base64"] = base64::prelude::BASE64_STANDARD.encode(&bytes).into();
        }
    }
    Ok(answer.to_string().into())
}

/// Some of an article's revisions, as `/article/{name}/history` shows them.
///
/// # Errors
/// As reading it has.
pub(crate) async fn history(
    app: &App,
    stored: &Stored,
    headers: &HeaderMap,
    name: &str,
    (before, limit): (Option<u32>, Option<u32>),
) -> Result<Bytes, HttpError> {
    let name = reader(app, headers, name).await?;
    let limit = limit.map_or(read::PAGE.0, |limit| limit as usize);
    if !(1..=read::PAGE.1).contains(&limit) {
        return Err(bad(format!("`limit` is {limit}, expected 1 to {}", read::PAGE.1)));
    }
    let article = stored.articles.article(&name).ok_or_else(|| read::missing(&name))?;
    let versions = stored.articles.history(&name, before.map(Revision), limit);
    Ok(render::history(article, &versions))
}

/// Writes, as a POST to `/article/{name}/{version}` does; the answer is the new revision.
///
/// # Errors
/// As writing has, with the text of the refusal.
pub(crate) async fn put(
    app: Arc<App>,
    headers: &HeaderMap,
    new: NewRevision,
) -> Result<Bytes, HttpError> {
    let name = ArticleName::parse(&new.name).map_err(bad)?;
    let mut query = String::new();
    if let Some(comment) = &new.comment.as_deref().map(str::trim) {
        // It is checked where all comments are; a longer one may not even fit into a URL.
        let (bytes, bytes_max) = (comment.len(), Limits::default().comment_bytes_max);
        if bytes > bytes_max {
            return Err(bad(format_args!(
                "the comment of {bytes} bytes is refused: at most {bytes_max} were expected"
            )));
        }
        query = format!("?comment={}", utf8_percent_encode(comment, NON_ALPHANUMERIC));
    }
    let request = Request::builder().uri(format!("/{query}")).body(()).map_err(bad)?;
    let (mut head, ()) = request.into_parts();
    head.headers = headers.clone();
    // These were about the JSON around it.
    for name in [
        CONTENT_TYPE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        CONTENT_RANGE,
        TRANSFER_ENCODING,
        EXPECT,
        IF_MATCH,
        IF_NONE_MATCH,
    ] {
        head.headers.remove(name);
    }
    if let Some(content_type) = &new.content_type {
        let value = HeaderValue::from_str(content_type).map_err(|_| {
            let shown: String = content_type.chars().take(64).collect();
            bad(format_args!("`{}` is not a media type", shown.escape_debug()))
        })?;
        head.headers.insert(CONTENT_TYPE, value);
    }
    let (base, body) = (Revision(new.base), Body::from(new.body));
    let response = write::put(app, &head, name, Some(base), body).await?;
    let (head, body) = response.into_parts();
    let body = to_bytes(body, ANSWER_BYTES_MAX).await.map_err(bad)?;
    if head.status.is_success() {
        return Ok(body);
    }
    let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(HttpError::new(head.status, refusal["detail"].as_str().unwrap_or("the write was refused")))
}
