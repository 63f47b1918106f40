//! The body of a write: it is spooled to a blob as it arrives, and its bytes are held in memory where it may be merged.

use std::sync::Arc;

use article::{Content as Facts, ContentType, Inspector};
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::HeaderMap;
use http::header::CONTENT_RANGE;
use resources::bodies::{HeldMemory, MemoryHolder};
use store::{BlobError, SpooledBlob};

use crate::app::App;
use crate::front::body;
use crate::front::error::HttpError;

/// A body that has arrived.
pub(super) struct ReceivedContent {
    /// Its blob, until that is kept.
    pub(super) staged: Option<SpooledBlob>,
    pub(super) facts: Facts,
    /// The bytes, if they are few enough to be merged.
    pub(super) bytes: Option<Bytes>,
    /// The memory that they take.
    pub(super) held: Option<Arc<HeldMemory>>,
}

/// Bytes of a body that wait in memory for the spool.
const SPOOL_BYTES: usize = 256 << 10;

/// 413, with the word for programs.
fn too_large(app: &App, size: impl std::fmt::Display) -> HttpError {
    let bytes_max = app.config.article.body_bytes_max;
    let detail =
        format!("an article of {size} bytes is too large: at most {bytes_max} are allowed");
    let code = [("code".to_owned(), "too_large".into())];
    HttpError::too_large(detail).with(code.into_iter().collect())
}

/// Refuses a body by its headers, before any of it is read.
pub(super) fn check_framing(app: &App, headers: &HeaderMap) -> Result<(), HttpError> {
    check_whole(headers)?;
    if let Some(announced) =
        body::announced(headers).filter(|&it| it > app.config.article.body_bytes_max)
    {
        return Err(too_large(app, announced));
    }
    Ok(())
}

/// Refuses a body that is only a part of the content (`Content-Range`).
pub(crate) fn check_whole(headers: &HeaderMap) -> Result<(), HttpError> {
    if headers.contains_key(CONTENT_RANGE) {
        return Err(HttpError::bad_request(
            "part of a body cannot be stored: the whole was expected, without `Content-Range`",
        ));
    }
    Ok(())
}

/// Takes the body in, piece by piece: into a blob that is not kept yet. A media type that is not known is `guessed`,
/// unless that is of text and the body is not.
pub(super) async fn receive(
    app: &App,
    holder: Option<MemoryHolder>,
    known: Option<&str>,
    guessed: Option<&ContentType>,
    body: Body,
) -> Result<ReceivedContent, HttpError> {
    let bytes_max = app.config.article.body_bytes_max;
    if let Some(known) = known {
        ContentType::parse(known).map_err(HttpError::bad_request)?;
    }
    let mut upload = app.store.blobs.begin(bytes_max);
    let mut inspector = Inspector::new();
    let merged_bytes_max =
        usize::try_from(app.config.article.merge_bytes_max).unwrap_or(usize::MAX);
    let mut text = Some(BytesMut::new());
    let mut held = holder.map(|holder| app.limits.bodies.begin(holder)).transpose()?;
    let mut received_bytes = 0;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| {
            HttpError::bad_request(format!("the body did not arrive whole: {error}"))
        })?;
        inspector.update(&piece);
        received_bytes += piece.len();
        let spool_bytes = received_bytes.min(SPOOL_BYTES);
        // A growing buffer doubles its allocation.
        let text_bytes = 2 * received_bytes;
        let has_room = |held: &mut Option<HeldMemory>, bytes| {
            held.as_mut().is_none_or(|held| held.hold(bytes).is_ok())
        };
        match &mut text {
            Some(kept)
                if received_bytes <= merged_bytes_max
                    && has_room(&mut held, spool_bytes + text_bytes) =>
            {
                kept.extend_from_slice(&piece)
            }
            // The text is stored anyway, but cannot be merged.
            _ => {
                text = None;
                if let Some(held) = &mut held {
                    held.hold(spool_bytes)?;
                }
            }
        }
        upload.write(piece).await.map_err(|error| match error {
            BlobError::TooLarge { .. } => too_large(app, format_args!("more than {bytes_max}")),
            error => unwritable(error),
        })?;
    }
    let staged = upload.stage().await.map_err(unwritable)?;
    let is_text = inspector.is_text();
    let fits = |guessed: &&ContentType| is_text || !guessed.essence().starts_with("text/");
    let content_type = known.or(guessed.filter(fits).map(ContentType::as_str));
    let facts = inspector.finish(staged.digest, content_type).map_err(HttpError::bad_request)?;
    let bytes = text.map(BytesMut::freeze);
    Ok(ReceivedContent { staged: Some(staged), facts, bytes, held: held.map(Arc::new) })
}

pub(crate) fn unwritable(error: BlobError) -> HttpError {
    tracing::error!(%error, "the content of an article cannot be stored");
    HttpError::unavailable("the content cannot be stored now; nothing was written", 5)
}
