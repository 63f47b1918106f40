//! Writing articles: new texts, deletions, and taking either back.
//!
//! body -> blob, staged -> change, checked against the snapshot -> blob kept -> commit -> visible ->
//! acknowledged. A writer who was overtaken gets what the latest revision is, and where both are text,
//! a proposal of both changes merged.

use std::sync::Arc;

use account::{Principal, Scope};
use article::{
    ArticleName, Change, Checked, Content as Facts, ContentType, Delete, DifferenceError,
    DifferenceLimits, Inspector, Limits, Merge, MergeSides, NotMergeable, Put, Restore, Revision,
    RevisionFacts, Side, WriteError, merge, render, resolve_base,
};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH,
    LOCATION,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use record::Serial;
use reply::Encoding;
use store::{BlobError, CommitError, Staged};

use super::read;
use super::{parameters, parsed, text_of};
use crate::app::App;
use crate::contents::Content;
use crate::http::error::HttpError;
use crate::http::{auth, serial};
use crate::stored::{Stored, WriteFailure};

/// How often a write is checked again because another one came first, before that is given up: only a write
/// that still holds is repeated, so this ends earlier.
const ATTEMPTS_MAX: u32 = 5;

/// What is escaped in a path, besides what is not ASCII.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'%')
    .add(b'{')
    .add(b'}');

/// A body that has arrived.
struct Received {
    staged: Staged,
    facts: Facts,
    /// The bytes, where there are few enough to be merged.
    bytes: Option<Bytes>,
}

/// A new text: `base` is the version in the path, where there is one. `?restore=N` takes the text of that
/// version instead of the body.
pub(super) async fn put(
    app: Arc<App>,
    head: &Parts,
    name: ArticleName,
    base: Option<Revision>,
    body: Body,
) -> Result<Response, HttpError> {
    let writer = writer(&app, &head.headers).await?;
    let [comment, restored] = parameters(head.uri.query(), ["comment", "restore"])?;
    let restored: Option<Revision> = parsed("restore", restored, "a version")?;
    let stored = auth::stored(&app)?;
    let may_read = read::may_read(&app, &writer);
    let (base, failed) = match resolved(&stored, &head.headers, &name, base) {
        Ok(base) => (base, None),
        // Whoever named the revision that they saw gets to know what became of it, and of their text.
        Err(error) => match error.stale().map(|stale| stale.base) {
            Some(base) if may_read && base != Revision::NONE && restored.is_none() => {
                (base, Some(error))
            }
            _ => return Ok(refused(&error, None, stored.serial, may_read)),
        },
    };
    let (author, comment, at) = (author(&writer), comment.unwrap_or_default(), Timestamp::now());
    if let Some(from) = restored {
        // Its blob gets a new name-giver, so that no sweep takes it before.
        let content = stored.articles.revision(&name, from).and_then(|facts| facts.content());
        if let Some(content) = content {
            app.keeper.blobs.touch(content.digest).await.map_err(unwritable)?;
        }
        let change = Change::Restore(Restore { name, base, from: restored, author, comment, at });
        return commit(&app, change, None, may_read).await;
    }
    // What is refused whatever its content is, need not arrive first.
    let early = Change::Put(Put {
        name: name.clone(),
        base,
        content: Facts::of(b"", None).map_err(bad)?,
        author: author.clone(),
        comment: comment.clone(),
        at,
    });
    if let Err(error) = early.check(&stored.articles, &limits(&app))
        && error.stale().is_none()
    {
        return Ok(refused(&error, None, stored.serial, may_read));
    }
    let base_type = stored.articles.revision(&name, base).and_then(|facts| facts.content());
    let base_type = base_type.map(|content| content.content_type.clone());
    drop(stored);
    let received = receive(&app, &head.headers, base_type.as_ref(), body).await?;
    // A body may take its time: who has lost the right meanwhile, has lost it.
    self::writer(&app, &head.headers).await?;
    let content = received.facts.clone();
    let change = Change::Put(Put { name, base, content, author, comment, at });
    if let Some(error) = failed {
        let stored = auth::stored(&app)?;
        let merged = propose(&app, &stored, &change, &error, received.bytes.as_ref()).await;
        return Ok(refused(&error, merged.as_ref(), stored.serial, may_read));
    }
    commit(&app, change, Some(received), may_read).await
}

/// A deletion: history stays, and a later write brings the article back.
pub(super) async fn delete(
    app: Arc<App>,
    head: &Parts,
    name: ArticleName,
    base: Option<Revision>,
) -> Result<Response, HttpError> {
    let writer = writer(&app, &head.headers).await?;
    let [comment] = parameters(head.uri.query(), ["comment"])?;
    let stored = auth::stored(&app)?;
    let may_read = read::may_read(&app, &writer);
    let base = match resolved(&stored, &head.headers, &name, base) {
        Ok(base) => base,
        Err(error) => return Ok(refused(&error, None, stored.serial, may_read)),
    };
    drop(stored);
    let (author, comment, at) = (author(&writer), comment.unwrap_or_default(), Timestamp::now());
    commit(&app, Change::Delete(Delete { name, base, author, comment, at }), None, may_read).await
}

async fn writer(app: &App, headers: &HeaderMap) -> Result<Principal, HttpError> {
    // A browser adds the password that it remembers to what any page makes it send.
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        let detail = "a page of another site may not write here";
        return Err(HttpError::new(StatusCode::FORBIDDEN, detail));
    }
    serial::wait_for_seen(app, headers).await?;
    let principal = auth::principal(app, headers).await?;
    auth::admit(&app.config.article.acl_write, &principal, Scope::ArticleWrite, "write articles")?;
    Ok(principal)
}

fn author(writer: &Principal) -> String {
    writer.user_name().map_or_else(|| "anonymous".to_owned(), ToString::to_string)
}

fn limits(app: &App) -> Limits {
    Limits { content_bytes_max: app.config.article.body_bytes_max, ..Limits::default() }
}

fn bad(error: impl std::fmt::Display) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, error.to_string())
}

fn resolved(
    stored: &Stored,
    headers: &HeaderMap,
    name: &ArticleName,
    base: Option<Revision>,
) -> Result<Revision, WriteError> {
    let if_match = read::listed(headers, IF_MATCH);
    let if_none_match = read::listed(headers, IF_NONE_MATCH);
    resolve_base(&stored.articles, name, base, if_match.as_deref(), if_none_match.as_deref())
}

/// What clients send that were not told what they send.
const UNSAID: &str = "application/x-www-form-urlencoded";

/// Takes the body in, piece by piece: into a blob that is not kept yet. A media type that nobody said is that
/// of the base, where there is one.
async fn receive(
    app: &App,
    headers: &HeaderMap,
    base_type: Option<&ContentType>,
    body: Body,
) -> Result<Received, HttpError> {
    let bytes_max = app.config.article.body_bytes_max;
    let too_large = |size: &dyn std::fmt::Display| {
        let detail =
            format!("an article of {size} bytes is too large: at most {bytes_max} are allowed");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(announced) = announced.filter(|&announced| announced > bytes_max) {
        return Err(too_large(&announced));
    }
    let encoding = text_of(headers, CONTENT_ENCODING);
    if let Some(encoding) = encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        let detail =
            format!("a body in the encoding `{encoding}` is not taken: expected it as it is");
        return Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    if headers.contains_key(CONTENT_RANGE) {
        return Err(bad("a part of an article cannot be written: expected no `Content-Range`"));
    }
    let said = text_of(headers, CONTENT_TYPE).filter(|said| !said.eq_ignore_ascii_case(UNSAID));
    if let Some(said) = &said {
        ContentType::parse(said).map_err(bad)?;
    }
    let content_type = said.as_deref().or(base_type.map(ContentType::as_str));
    let mut upload = app.keeper.blobs.begin(bytes_max);
    let mut inspector = Inspector::new();
    let merged_bytes_max =
        usize::try_from(app.config.article.merge_bytes_max).unwrap_or(usize::MAX);
    let mut text = Some(BytesMut::new());
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece =
            piece.map_err(|error| bad(format!("the body did not arrive whole: {error}")))?;
        inspector.update(&piece);
        match &mut text {
            Some(kept) if kept.len() + piece.len() <= merged_bytes_max => {
                kept.extend_from_slice(&piece)
            }
            _ => text = None,
        }
        upload.write(piece).await.map_err(|error| match error {
            BlobError::TooLarge { .. } => too_large(&format_args!("more than {bytes_max}")),
            error => unwritable(error),
        })?;
    }
    let staged = upload.stage().await.map_err(unwritable)?;
    let facts = inspector.finish(staged.digest, content_type).map_err(bad)?;
    Ok(Received { staged, facts, bytes: text.map(BytesMut::freeze) })
}

fn unwritable(error: BlobError) -> HttpError {
    tracing::error!(%error, "a content cannot be kept");
    HttpError::unavailable("the content cannot be kept now; nothing was written", 5)
}

/// Checks, commits, and checks again where another write came first.
async fn commit(
    app: &Arc<App>,
    change: Change,
    received: Option<Received>,
    may_read: bool,
) -> Result<Response, HttpError> {
    let (mut staged, text) = match received {
        Some(received) => (Some(received.staged), received.bytes),
        None => (None, None),
    };
    for _ in 0..ATTEMPTS_MAX {
        let stored = auth::stored(app)?;
        let checked = match change.check(&stored.articles, &limits(app)) {
            Ok(checked) => checked,
            Err(error) => {
                let text = text.as_ref().filter(|_| may_read);
                let merged = propose(app, &stored, &change, &error, text).await;
                return Ok(refused(&error, merged.as_ref(), stored.serial, may_read));
            }
        };
        let latest = stored.articles.latest(&checked.name).and_then(|facts| facts.content());
        let is_hot = latest.is_some_and(|it| app.contents.at_hand(&it.digest).is_some());
        drop(stored);
        if let Some(staged) = staged.take() {
            let digest = staged.digest;
            staged.keep().await.map_err(unwritable)?;
            if let Some(text) =
                text.clone().filter(|text| is_hot && app.contents.keeps(text.len() as u64))
            {
                // Whoever reads the article reads the new text presently: it need not come from the store.
                let app = app.clone();
                tokio::task::spawn_blocking(move || {
                    app.contents.insert(digest, Content::new(text))
                });
            }
        }
        match app.keeper.commit(checked.batch.clone()).await {
            Ok(serial) => return written(app, &checked, serial),
            Err(WriteFailure::Commit(CommitError::Mismatch(mismatch))) => {
                // Another write was first: it is looked at as soon as it is visible here.
                app.keeper.wait_for(mismatch.found.serial, app.config.store.wait_for_serial).await;
            }
            Err(error) => return Err(auth::write_failed(&error)),
        }
    }
    Err(HttpError::unavailable("other writes came first again and again; nothing was written", 1))
}

/// The answer to a write that is kept and visible.
fn written(app: &App, checked: &Checked, serial: Serial) -> Result<Response, HttpError> {
    let stored = auth::stored(app)?;
    let lost = || {
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "the write is kept, but cannot be shown")
    };
    let article = stored.articles.article(&checked.name).ok_or_else(lost)?;
    let facts = article.revision(checked.revision).ok_or_else(lost)?;
    let status = if facts.is_deleted() { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = (status, render::revision(&checked.name, facts)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let path = utf8_percent_encode(checked.name.as_str(), PATH);
    if let Ok(location) = HeaderValue::try_from(format!("/article/{path}/{}", checked.revision)) {
        headers.insert(LOCATION, location);
    }
    if !facts.is_deleted()
        && let Ok(etag) = HeaderValue::try_from(checked.tag.header_value(Encoding::Identity))
    {
        headers.insert(ETAG, etag);
    }
    serial::insert(headers, serial);
    Ok(response)
}

/// The answer to a write that is refused. Who may not read gets to know the version to start from, no more.
fn refused(error: &WriteError, merged: Option<&Merge>, serial: Serial, may_read: bool) -> Response {
    let status = match error {
        WriteError::Stale(_)
        | WriteError::Future { .. }
        | WriteError::AlreadyExists(_)
        | WriteError::Deleted(_)
        | WriteError::Full { .. } => StatusCode::CONFLICT,
        WriteError::Precondition(_) => StatusCode::PRECONDITION_FAILED,
        WriteError::NotFound { .. } | WriteError::NothingToRestore { .. } => StatusCode::NOT_FOUND,
        WriteError::BaseMissing { .. } => StatusCode::PRECONDITION_REQUIRED,
        WriteError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        WriteError::Text { .. } => StatusCode::BAD_REQUEST,
        WriteError::Unreadable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut members = render::refusal(error, merged);
    if !may_read {
        members.retain(|name, _| !matches!(name.as_str(), "latest" | "same_content" | "merge"));
    }
    let mut response = HttpError::new(status, error.to_string()).with(members).into_response();
    let headers = response.headers_mut();
    if let Some(stale) = error.stale()
        && may_read
        && !stale.latest.is_deleted()
        && let Ok(etag) = HeaderValue::try_from(stale.latest.tag.header_value(Encoding::Identity))
    {
        headers.insert(ETAG, etag);
    }
    serial::insert(headers, serial);
    response
}

/// Both changes in one text, for a writer who was overtaken.
async fn propose(
    app: &App,
    stored: &Stored,
    change: &Change,
    error: &WriteError,
    text: Option<&Bytes>,
) -> Option<Merge> {
    let (Change::Put(put), Some(stale), Some(text)) = (change, error.stale(), text) else {
        return None;
    };
    let base = stored.articles.revision(&put.name, put.base).cloned();
    let latest = stale.latest.clone();
    let limits = DifferenceLimits::default();
    let bytes_max = app.config.article.merge_bytes_max;
    let sizes = [base.as_ref(), Some(&latest)].into_iter().flatten();
    let sizes = sizes.filter_map(|facts| Some(facts.content()?.size_bytes));
    if let Some(bytes) = sizes.max().filter(|&bytes| bytes > bytes_max) {
        let (bytes, bytes_max) = (bytes as usize, bytes_max as usize);
        let error = DifferenceError::Bytes { bytes, bytes_max };
        return Some(Merge::NotMergeable(NotMergeable::TooLarge(error)));
    }
    let base_bytes = bytes_of(app, base.as_deref()).await.ok()?;
    let latest_bytes = bytes_of(app, Some(&latest)).await.ok()?;
    let (name, text) = (put.name.clone(), text.clone());
    let is_textual = put.content.content_type.is_textual();
    let merging = tokio::task::spawn_blocking(move || {
        let base = base.as_ref().filter(|facts| !facts.is_deleted());
        let base = base.map(|facts| Side::of(&name, facts, &base_bytes));
        let revision = latest.revision;
        let latest = (!latest.is_deleted()).then(|| Side::of(&name, &latest, &latest_bytes));
        let refused = Side { name: &name, revision, bytes: &text, is_textual };
        merge(MergeSides { base, latest, refused }, &limits)
    });
    merging.await.ok()
}

/// The text of a revision; nothing for a deletion.
async fn bytes_of(app: &App, facts: Option<&RevisionFacts>) -> Result<Bytes, HttpError> {
    match facts.and_then(|facts| facts.content()) {
        Some(content) => read::bytes(app, content).await,
        None => Ok(Bytes::new()),
    }
}
