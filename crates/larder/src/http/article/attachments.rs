//! Changes of the files of an article.
//!
//! bytes, spooled -> change, checked against the state -> blob stored -> commit -> visible -> acknowledged. The right to write an
//! article covers changes of its files.

use std::sync::{Arc, Mutex, PoisonError};

use account::Principal;
use article::{
    ArticleName, Attachment, AttachmentError, AttachmentLimits, AttachmentName, AttachmentWrite,
    CheckedAttachment, Condition, render,
};
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use record::Serial;
use resources::bodies::Holder;
use state::stored::{Refusing, Stored, WriteFailure};
use store::{BlobError, SpooledBlob};

use super::reading;
use super::write::{self, Base};
use crate::app::App;
use crate::http::error::HttpError;
use crate::http::parameters::parameters;
use crate::http::words::in_path;
use crate::http::{auth, body, serial};

/// Bytes of a file that wait in memory for the spool.
const SPOOL_BYTES: usize = 256 << 10;

/// Why a file is not stored or removed.
pub(super) enum Failed {
    /// The rules of attachments refuse it.
    Refused(AttachmentError),
    /// Anything else.
    Otherwise(HttpError),
}

/// A change that is committed and visible.
pub(super) struct Done {
    pub(super) was_there: bool,
    /// The file; `None` if it was removed.
    pub(super) file: Option<Attachment>,
    pub(super) serial: Serial,
}

impl From<HttpError> for Failed {
    fn from(error: HttpError) -> Failed {
        Failed::Otherwise(error)
    }
}

impl Refusing for Failed {
    fn is_about_state(&self) -> bool {
        match self {
            Failed::Refused(error) => !matches!(error, AttachmentError::TooLarge { .. }),
            Failed::Otherwise(error) => error.is_about_state(),
        }
    }
}

impl From<WriteFailure> for Failed {
    fn from(failure: WriteFailure) -> Failed {
        Failed::Otherwise(failure.into())
    }
}

impl From<AttachmentError> for Failed {
    fn from(error: AttachmentError) -> Failed {
        Failed::Refused(error)
    }
}

impl From<AttachmentError> for HttpError {
    /// For a sender who may read the article.
    fn from(error: AttachmentError) -> HttpError {
        let status = status(&error);
        HttpError::refused(status, error.to_string()).with(render::attachment_refusal(&error, true))
    }
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

impl Failed {
    /// The answer for this writer. Without the right to read the article, it says nothing about files that the writer did not name.
    fn told(self, app: &App, writer: &Principal, article: &ArticleName) -> HttpError {
        match self {
            Failed::Refused(error) if !reading::may_read(app, writer, article) => {
                let members = render::attachment_refusal(&error, false);
                HttpError::refused(status(&error), error.blind()).with(members)
            }
            failed => failed.into(),
        }
    }
}

impl From<Failed> for HttpError {
    /// For a sender who may read the article.
    fn from(failed: Failed) -> HttpError {
        match failed {
            Failed::Refused(error) => error.into(),
            Failed::Otherwise(error) => error,
        }
    }
}

/// The path of a file below the prefix of this server; with an empty name, that of the list.
pub(super) fn path(article: &ArticleName, file: &str) -> String {
    format!("/+attachments/{}/{}", in_path(article.as_str()), in_path(file))
}

pub(super) fn limits(app: &App) -> AttachmentLimits {
    let config = &app.config.article;
    AttachmentLimits {
        file_bytes_max: config.attachment_bytes_max,
        files_max: config.attachments_max,
        together_bytes_max: config.attachments_bytes_max,
    }
}

/// The preconditions of a request.
fn condition(headers: &HeaderMap) -> Condition {
    let Base { if_match, if_none_match, .. } = Base::of(headers, None);
    Condition::Headers { if_match, if_none_match }
}

pub(super) async fn put(
    app: &Arc<App>,
    head: &Parts,
    article: ArticleName,
    name: AttachmentName,
    body: Body,
) -> Result<Response, HttpError> {
    let writer = write::writer(app, &head.headers, &article).await?;
    parameters::<0>(head.uri.query(), [])?;
    write::check_whole(&head.headers)?;
    if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
        let detail = "there is no body: the file was expected, as `curl -T FILE` sends it; an empty one has \
                      `Content-Length: 0`";
        return Err(HttpError::bad_request(detail));
    }
    let write = written_by(&writer, article, name, condition(&head.headers));
    let announced = body::announced(&head.headers);
    let may_read = reading::may_read(app, &writer, &write.article);
    match admit(app, &writer, &write, announced).await {
        // The file may be sent again because the first answer was lost. Read the body to say so in the refusal.
        Err(Failed::Refused(error)) if may_read && may_be_same(&error, announced) => {}
        admitted => admitted.map_err(|failed| failed.told(app, &writer, &write.article))?,
    }
    let broken = |error: axum::Error| {
        HttpError::bad_request(format!("the body did not arrive whole: {error}"))
    };
    let pieces = body.into_data_stream().map(|piece| piece.map_err(broken));
    let kept = async {
        let staged = spooled(app, body::holder(app, head, &writer), pieces).await?;
        store(app, &writer, &write, staged).await
    };
    let done = kept.await.map_err(|failed| failed.told(app, &writer, &write.article))?;
    let file =
        done.file.ok_or_else(|| HttpError::internal("the file is kept, but cannot be shown"))?;
    let body = match may_read {
        true => render::attachment(&write.article, &file),
        false => render::blind_attachment(&write.article, &file),
    };
    let status = if done.was_there { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let texts = [
        (LOCATION, path(&write.article, file.name.as_str())),
        (ETAG, format!("\"{}\"", file.tag())),
    ];
    for (name, value) in texts {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    serial::insert(headers, done.serial);
    Ok(response)
}

/// Whether a refused file of this size can have the same bytes as the existing file.
fn may_be_same(error: &AttachmentError, announced: Option<u64>) -> bool {
    error.current().is_some_and(|current| announced == Some(current.size_bytes))
}

pub(super) async fn delete(
    app: &Arc<App>,
    head: &Parts,
    article: ArticleName,
    name: AttachmentName,
) -> Result<Response, HttpError> {
    let writer = write::writer(app, &head.headers, &article).await?;
    parameters::<0>(head.uri.query(), [])?;
    let write = written_by(&writer, article, name, condition(&head.headers));
    let done = remove(app, &writer, &write).await;
    let done = done.map_err(|failed| failed.told(app, &writer, &write.article))?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    serial::insert(response.headers_mut(), done.serial);
    Ok(response)
}

/// A change of a file by this writer, now.
pub(super) fn written_by(
    writer: &Principal,
    article: ArticleName,
    name: AttachmentName,
    condition: Condition,
) -> AttachmentWrite {
    let (author, at) = (write::author(writer), Timestamp::now());
    AttachmentWrite { article, name, condition, author, at }
}

/// Checks a write before its bytes arrive.
///
/// # Errors
/// Those of a write, as far as its headers tell, and 507.
pub(super) async fn admit(
    app: &App,
    writer: &Principal,
    write: &AttachmentWrite,
    size_bytes: Option<u64>,
) -> Result<(), Failed> {
    auth::admit_to_disk(app, writer).await?;
    let check = |stored: &Stored| write.check_announced(&stored.articles, size_bytes, &limits(app));
    let is_refused =
        |stored: &Stored| check(stored).is_err_and(|error| Failed::from(error).is_about_state());
    let stored = write::current(app, is_refused).await?;
    Ok(check(&stored)?)
}

/// Spools the bytes of a file piece by piece; the blob is not stored yet.
///
/// # Errors
/// 413 if there are too many bytes; 503 if there is no memory for them, or the spool cannot be written.
pub(super) async fn spooled(
    app: &App,
    holder: Holder,
    pieces: impl Stream<Item = Result<Bytes, HttpError>>,
) -> Result<(SpooledBlob, u64), Failed> {
    let limits = limits(app);
    let mut upload = app.store.blobs.begin(limits.file_bytes_max);
    let mut held = app.bodies.begin(holder).map_err(HttpError::from)?;
    let mut received_bytes = 0;
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        received_bytes += piece.len() as u64;
        let spool_bytes = received_bytes.min(SPOOL_BYTES as u64) as usize;
        held.hold(spool_bytes).map_err(HttpError::from)?;
        upload.write(piece).await.map_err(|error| match error {
            BlobError::TooLarge { .. } => {
                let size = format!("more than {}", limits.file_bytes_max);
                Failed::Refused(AttachmentError::too_large(size, &limits))
            }
            error => Failed::Otherwise(write::unwritable(error)),
        })?;
    }
    let staged = upload.stage().await.map_err(write::unwritable)?;
    Ok((staged, received_bytes))
}

/// Checks the change, stores the blob and commits. If another write came first, the change and the rights of `writer` are checked
/// again.
pub(super) async fn store(
    app: &App,
    writer: &Principal,
    write: &AttachmentWrite,
    (staged, size_bytes): (SpooledBlob, u64),
) -> Result<Done, Failed> {
    let digest = staged.digest;
    let staged = Mutex::new(Some(staged));
    let put = |stored: &Stored| write.put(&stored.articles, (digest, size_bytes), &limits(app));
    committed(app, writer, write, put, &staged).await
}

/// Removes a file.
pub(super) async fn remove(
    app: &App,
    writer: &Principal,
    write: &AttachmentWrite,
) -> Result<Done, Failed> {
    let remove = |stored: &Stored| write.remove(&stored.articles);
    committed(app, writer, write, remove, &Mutex::new(None)).await
}

async fn committed(
    app: &App,
    writer: &Principal,
    write: &AttachmentWrite,
    check: impl Fn(&Stored) -> Result<CheckedAttachment, AttachmentError>,
    staged: &Mutex<Option<SpooledBlob>>,
) -> Result<Done, Failed> {
    let patience = app.config.store.wait_for_serial;
    let check = &check;
    let deciding = app.live_store.decided_async(writer, patience, |basis| async move {
        write::check_writer(app, &basis, &write.article)?;
        let stored = basis.stored();
        let checked = check(stored)?;
        let kept = match checked.batch {
            // The record names this blob already.
            None => None,
            Some(_) => staged.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        if let Some(staged) = kept {
            staged.persist().await.map_err(write::unwritable)?;
        }
        Ok::<_, Failed>((checked.batch, (checked.was_there, checked.file, stored.serial)))
    });
    let ((was_there, file, seen), serial) = deciding.await?;
    Ok(Done { was_there, file, serial: serial.unwrap_or(seen) })
}
