//! Changes of the files of an article.
//!
//! bytes, spooled -> blob stored -> an operation of [`operations::attachments`] -> visible -> acknowledged. The right to write an
//! article covers changes of its files.

use std::sync::Arc;

use article::{ArticleName, AttachmentError, AttachmentName, Condition, render};
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use operations::articles::Base;
use operations::attachments::{
    AnnounceAttachment, ChangedAttachment, FileOfArticle, PutAttachment, RemoveAttachment,
};
use operations::{Done, Foreseen, Refusal, Rule, Sender, carry_out};
use resources::bodies::MemoryHolder;
use store::{BlobError, SpooledBlob};

use super::{reader, write};
use crate::app::App;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::parameters::parameters;
use crate::front::request::Parts;
use crate::front::{auth, body, serial};

/// Bytes of a file that wait in memory for the spool.
const SPOOL_BYTES: usize = 256 << 10;

impl From<AttachmentError> for HttpError {
    /// For a sender who may read the article.
    fn from(error: AttachmentError) -> HttpError {
        problem(&error, true)
    }
}

/// The answer to a refused writer. Without the right to read the article, it says nothing about files that the writer did not name.
pub(crate) fn told(refusal: Refusal, may_read: bool) -> HttpError {
    match refusal {
        Refusal::Rule(Rule::Attachment(error)) => problem(&error, may_read),
        refusal => refusal.into(),
    }
}

fn problem(error: &AttachmentError, may_read: bool) -> HttpError {
    let detail = if may_read { error.to_string() } else { error.blind() };
    HttpError::refused(status(error), detail).with(render::attachment_refusal(error, may_read))
}

fn status(error: &AttachmentError) -> StatusCode {
    match error {
        AttachmentError::NoArticle { .. } | AttachmentError::NoFile { .. } => StatusCode::NOT_FOUND,
        AttachmentError::Deleted { .. }
        | AttachmentError::Renamed { .. }
        | AttachmentError::TooMany { .. } => StatusCode::CONFLICT,
        AttachmentError::Precondition { .. } => StatusCode::PRECONDITION_FAILED,
        AttachmentError::ConditionMissing { .. } => StatusCode::PRECONDITION_REQUIRED,
        AttachmentError::TooLarge { .. } | AttachmentError::TooLargeTogether { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        AttachmentError::Unreadable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        AttachmentError::Author => StatusCode::BAD_REQUEST,
    }
}

/// The path of a file below the prefix of this server; with an empty name, that of the list.
pub(crate) fn path(article: &ArticleName, file: &str) -> String {
    format!("/+attachments/{}/{}", in_path(article.as_str()), in_path(file))
}

/// The preconditions of a request.
fn condition(headers: &HeaderMap) -> Condition {
    let Base { if_match, if_none_match, .. } = write::base_of(headers, None);
    Condition::Headers { if_match, if_none_match }
}

pub(crate) async fn put(
    app: &Arc<App>,
    head: &Parts,
    article: ArticleName,
    name: AttachmentName,
    body: Body,
) -> Result<Response, HttpError> {
    let writer = write::writer(app, head, &article).await?;
    parameters::<0>(head.uri.query(), [])?;
    write::check_whole(&head.headers)?;
    if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
        let detail = "there is no body: the file was expected, as `curl -T FILE` sends it; an empty one has \
                      `Content-Length: 0`";
        return Err(HttpError::bad_request(detail));
    }
    let file = FileOfArticle { article, name, condition: condition(&head.headers) };
    let article = file.article.clone();
    let announced = body::announced(&head.headers);
    let may_read = reader::may_read(app, writer.proved(), &file.article);
    auth::admit_to_disk(app, writer.proved()).await?;
    match announce(app, &writer, &file, announced).await {
        // The file may be sent again because the first answer was lost. Read the body to say so in the refusal.
        Err(Refusal::Rule(Rule::Attachment(error)))
            if may_read && may_be_same(&error, announced) => {}
        outcome => outcome.map_err(|refusal| told(refusal, may_read))?,
    }
    let broken = |error: axum::Error| {
        HttpError::bad_request(format!("the body did not arrive whole: {error}"))
    };
    let pieces = body.into_data_stream().map(|piece| piece.map_err(broken));
    let staged = spooled(app, body::holder(app, head, writer.proved()), pieces).await?;
    let done = store(app, &writer, file, staged).await;
    let done = done.map_err(|refusal| told(refusal, may_read))?;
    let lost = || HttpError::internal("the file is kept, but cannot be shown");
    let file = done.outcome.file.ok_or_else(lost)?;
    let body = match may_read {
        true => render::attachment(&article, &file),
        false => render::blind_attachment(&article, &file),
    };
    let status = if done.outcome.was_there { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let texts =
        [(LOCATION, path(&article, file.name.as_str())), (ETAG, format!("\"{}\"", file.tag()))];
    for (name, value) in texts {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    serial::insert(headers, done.seen);
    Ok(response)
}

/// Whether a refused file of this size can have the same bytes as the existing file.
fn may_be_same(error: &AttachmentError, announced: Option<u64>) -> bool {
    error.current().is_some_and(|current| announced == Some(current.size_bytes))
}

pub(crate) async fn delete(
    app: &Arc<App>,
    head: &Parts,
    article: ArticleName,
    name: AttachmentName,
) -> Result<Response, HttpError> {
    let writer = write::writer(app, head, &article).await?;
    parameters::<0>(head.uri.query(), [])?;
    let may_read = reader::may_read(app, writer.proved(), &article);
    let file = FileOfArticle { article, name, condition: condition(&head.headers) };
    let done = remove(app, &writer, file).await.map_err(|refusal| told(refusal, may_read))?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    serial::insert(response.headers_mut(), done.seen);
    Ok(response)
}

/// Checks a change before its bytes arrive.
///
/// # Errors
/// Those of a change, as far as its headers tell.
pub(crate) async fn announce(
    app: &App,
    sender: &Sender,
    file: &FileOfArticle,
    size_bytes: Option<u64>,
) -> Result<(), Refusal> {
    let announcing = AnnounceAttachment { file: file.clone(), size_bytes };
    carry_out(&mut app.keeper(), sender, &announcing).await?;
    Ok(())
}

/// Spools the bytes of a file piece by piece; the blob is not stored yet.
///
/// # Errors
/// 413 if there are too many bytes; 503 if there is no memory for them, or the spool cannot be written.
pub(crate) async fn spooled(
    app: &App,
    holder: MemoryHolder,
    pieces: impl Stream<Item = Result<Bytes, HttpError>>,
) -> Result<(SpooledBlob, u64), HttpError> {
    let limits = app.rules.attachment_limits;
    let mut upload = app.store.blobs.begin(limits.file_bytes_max);
    let mut held = app.limits.bodies.begin(holder)?;
    let mut received_bytes = 0;
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        received_bytes += piece.len() as u64;
        let spool_bytes = received_bytes.min(SPOOL_BYTES as u64) as usize;
        held.hold(spool_bytes)?;
        upload.write(piece).await.map_err(|error| match error {
            BlobError::TooLarge { .. } => {
                let size = format!("more than {}", limits.file_bytes_max);
                HttpError::from(AttachmentError::too_large(size, &limits))
            }
            error => write::unwritable(error),
        })?;
    }
    let staged = upload.stage().await.map_err(write::unwritable)?;
    Ok((staged, received_bytes))
}

/// Puts a file whose bytes have arrived. They are stored only if something is to be written.
pub(crate) async fn store(
    app: &App,
    sender: &Sender,
    file: FileOfArticle,
    (staged, size_bytes): (SpooledBlob, u64),
) -> Result<Done<ChangedAttachment>, Refusal> {
    let putting = PutAttachment { file, digest: staged.digest, size_bytes };
    let mut keeper = app.keeper();
    let foreseen = carry_out(&mut keeper, sender, &Foreseen(&putting)).await?;
    let (is_news, outcome) = foreseen.outcome;
    if !is_news {
        return Ok(Done { outcome, serial: None, seen: foreseen.seen });
    }
    staged.persist().await.map_err(Refusal::Blobs)?;
    carry_out(&mut keeper, sender, &putting).await
}

/// Removes a file.
pub(crate) async fn remove(
    app: &App,
    sender: &Sender,
    file: FileOfArticle,
) -> Result<Done<ChangedAttachment>, Refusal> {
    carry_out(&mut app.keeper(), sender, &RemoveAttachment(file)).await
}
