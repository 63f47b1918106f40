//! `/+attachments/{article}/{file}`: the files of an article.
//!
//! read: path -> article and file -> right to the article -> bytes by range.
//! write: bytes, spooled -> change, checked against the state -> blob stored -> commit -> visible -> acknowledged.
//!
//! The right to read an article covers its files, and the right to write it covers changes of them. How a file is sent depends on
//! its name alone; a browser shows it in a sandbox, where nothing in it runs.

use std::sync::{Arc, Mutex, PoisonError};

use account::{Object, Principal};
use article::{
    ArticleName, Attachment, AttachmentError, AttachmentLimits, AttachmentName, AttachmentWrite,
    Attachments, CheckedAttachment, Condition, render,
};
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use record::Serial;
use resources::bodies::Holder;
use state::stored::{Stored, WriteFailure};
use store::blobs::Verdict;
use store::{BlobError, SpooledBlob};

use super::pages::Shown;
use super::write::{self, Base};
use super::{pages, parameters, read, redirect};
use crate::app::App;
use crate::http::conditional::{Wanted, content_range, names_tag, unsatisfiable, wanted};
use crate::http::error::HttpError;
use crate::http::respond::blob_range;
use crate::http::words::in_path;
use crate::http::{auth, body, people, serial};

/// A browser may show the file, and nothing else. Styles are allowed because browsers style the page that shows a picture.
const SANDBOX: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// Bytes of a file that wait in memory for the spool.
const SPOOL_BYTES: usize = 256 << 10;

/// What is below `/+attachments/`.
struct Place {
    article: ArticleName,
    /// The file; `None` for the list of files.
    file: Option<AttachmentName>,
}

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
    /// For somebody who may read the article.
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
            Failed::Refused(error) if !read::may_read(app, writer, article) => {
                let members = render::attachment_refusal(&error, false);
                HttpError::refused(status(&error), error.blind()).with(members)
            }
            failed => failed.into(),
        }
    }
}

impl From<Failed> for HttpError {
    /// For somebody who may read the article.
    fn from(failed: Failed) -> HttpError {
        match failed {
            Failed::Refused(error) => error.into(),
            Failed::Otherwise(error) => error,
        }
    }
}

impl Place {
    fn of(path: &str) -> Result<Place, HttpError> {
        let bad = |error: &dyn std::fmt::Display| HttpError::bad_request(error.to_string());
        let rest = path.strip_prefix("/+attachments/").unwrap_or_default();
        let decoded = |text| {
            let text = percent_decode_str(text).decode_utf8();
            text.map_err(|_| bad(&format_args!("`{path}` is not UTF-8 after percent-decoding")))
        };
        // The slash between them is that of the path, as everywhere else. An encoded one is part of a name.
        let Some((article, file)) = rest.rsplit_once('/') else {
            let detail = format!(
                "`{path}` lacks the name of a file: `{path}/` lists those of the article, `{path}/FILE` is one of them"
            );
            return Err(HttpError::not_found(detail));
        };
        let article = ArticleName::parse(&decoded(article)?).map_err(|error| bad(&error))?;
        let file = match file {
            "" => None,
            file => Some(AttachmentName::parse(&decoded(file)?).map_err(|error| bad(&error))?),
        };
        Ok(Place { article, file })
    }
}

/// The path of a file, or with an empty name of the list, below the prefix of this server.
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

/// Answers every method.
pub(in crate::http) async fn answer_attachment(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let place = Place::of(head.uri.path())?;
    match (&head.method, place.file) {
        (&Method::PUT, Some(file)) => put(app, head, place.article, file, body).await,
        (&Method::DELETE, Some(file)) => delete(app, head, place.article, file).await,
        (&Method::POST, None) => pages::change_attachments(app, head, &place.article, body).await,
        (&Method::GET | &Method::HEAD, file) => get(app, head, &place.article, file).await,
        (method, file) => {
            let allow = match file {
                Some(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
                None => "GET, HEAD, POST, OPTIONS",
            };
            Err(HttpError::method_not_allowed(method, head.uri.path(), allow))
        }
    }
}

/// GET and HEAD of a file, or of the list.
async fn get(
    app: &Arc<App>,
    head: &Parts,
    name: &ArticleName,
    file: Option<AttachmentName>,
) -> Result<Response, HttpError> {
    let object = Object::Article(name.as_str());
    let (app, stored, principal) = read::admitted(app.clone(), head, object).await?;
    let shown = Shown { app: &app, stored: &stored, head, principal: &principal };
    let answer = match file {
        Some(file) => send(&shown, name, &file).await,
        None => list(&shown, name).await,
    };
    // Even a 404 depends on the state of the store: the next write may add the file.
    Ok(answer.unwrap_or_else(|error| read::from_store(&app, &stored, error.into_response())))
}

/// Redirects from the files of an old name to those of the new one.
///
/// # Errors
/// 404 and 410 if there is no article, or the sender may not read the one at the new name.
pub(super) fn moved(
    shown: &Shown<'_>,
    name: &ArticleName,
    file: &str,
) -> Result<Option<Response>, HttpError> {
    let article = shown.stored.articles.article(name);
    let article = article.ok_or_else(|| HttpError::unknown_article(name))?;
    let Some(to) = article.redirect() else {
        let latest = article.latest().map(|latest| read::content_of(name, latest));
        return latest.transpose().map(|_| None);
    };
    if !read::may_read(shown.app, shown.principal, to) {
        return Err(redirect::hidden(name));
    }
    redirect::sent_on(shown, to, &path(to, file)).map(Some)
}

/// The list of an article's files. If their record cannot be read, the answer is an error and not an empty list: a client that
/// keeps copies would remove them.
fn readable<'stored>(
    stored: &'stored Stored,
    name: &ArticleName,
) -> Result<Option<&'stored Attachments>, HttpError> {
    let attachments = stored.articles.attachments(name).map(|all| &**all);
    if attachments.is_some_and(Attachments::is_unreadable) {
        return Err(AttachmentError::Unreadable { article: name.clone() }.into());
    }
    Ok(attachments)
}

async fn list(shown: &Shown<'_>, name: &ArticleName) -> Result<Response, HttpError> {
    let &Shown { app, stored, head, .. } = shown;
    parameters::<0>(head.uri.query(), [])?;
    if let Some(response) = moved(shown, name, "")? {
        return Ok(read::from_store(app, stored, response));
    }
    let attachments = readable(stored, name)?;
    if people::wants_page(&head.headers) {
        return pages::show_attachments(shown, name).await;
    }
    let body = render::attachments(name, attachments);
    read::json(app, head, stored, body).await
}

async fn send(
    shown: &Shown<'_>,
    name: &ArticleName,
    file: &AttachmentName,
) -> Result<Response, HttpError> {
    let &Shown { app, stored, head, .. } = shown;
    if let Some(response) = moved(shown, name, file.as_str())? {
        return Ok(read::from_store(app, stored, response));
    }
    parameters::<0>(head.uri.query(), [])?;
    let found = readable(stored, name)?.and_then(|all| all.file(file.as_str()));
    let found = found.ok_or_else(|| {
        let (article, name) = (name.clone(), file.clone());
        HttpError::from(AttachmentError::NoFile { article, name })
    })?;
    let etag = format!("\"{}\"", found.tag());
    let request = &head.headers;
    let mut response = if names_tag(request, &etag) == Some(true) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let size_bytes = found.size_bytes;
        // A date does not tell two files apart that came in one second, so none is sent, and none matches.
        let never = std::time::SystemTime::UNIX_EPOCH;
        let (start, end, status) = match wanted(request, &etag, never, size_bytes) {
            Wanted::Whole => (0, size_bytes, StatusCode::OK),
            Wanted::Part { start, end } => (start, end, StatusCode::PARTIAL_CONTENT),
            Wanted::Unsatisfiable => {
                return Ok(read::from_store(app, stored, unsatisfiable(size_bytes)));
            }
        };
        let blob = app.store.blobs.open_blob(found.digest).await.map_err(unreadable)?;
        let blob = blob.ok_or_else(|| {
            app.store.blobs.note(found.digest, Verdict::Missing);
            HttpError::lost("attachment")
        })?;
        if blob.size_bytes() != size_bytes {
            let (digest, expected) = (found.digest, size_bytes);
            tracing::error!(%digest, expected, found = blob.size_bytes(), "an attachment is cut in the store");
            return Err(HttpError::damaged("attachment"));
        }
        let mut response = blob_range(&blob, start..end);
        *response.status_mut() = status;
        if status == StatusCode::PARTIAL_CONTENT {
            content_range(response.headers_mut(), start, end, size_bytes);
        }
        response
    };
    insert_headers(response.headers_mut(), found, read::is_open(app));
    serial::insert(response.headers_mut(), stored.serial);
    Ok(response)
}

fn insert_headers(headers: &mut HeaderMap, file: &Attachment, is_open: bool) {
    let sent = file.name.sent_as();
    let disposition = if sent.is_inline { "inline" } else { "attachment" };
    let name = utf8_percent_encode(file.name.as_str(), NON_ALPHANUMERIC);
    let disposition = format!("{disposition}; filename*=UTF-8''{name}");
    for (name, value) in [(ETAG, format!("\"{}\"", file.tag())), (CONTENT_DISPOSITION, disposition)]
    {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(sent.media_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CACHE_CONTROL, read::caching(is_open, false));
}

fn unreadable(error: BlobError) -> HttpError {
    tracing::error!(%error, "an attachment cannot be read");
    if matches!(error, BlobError::Damaged { .. }) {
        return HttpError::damaged("attachment");
    }
    HttpError::unavailable("the attachment cannot be read now; it has been logged", 5)
}

/// The preconditions of a request.
fn condition(headers: &HeaderMap) -> Condition {
    let Base { if_match, if_none_match, .. } = Base::of(headers, None);
    Condition::Headers { if_match, if_none_match }
}

async fn put(
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
    let may_read = read::may_read(app, &writer, &write.article);
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

async fn delete(
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
    let stored = auth::stored(app)?;
    Ok(write.check_announced(&stored.articles, size_bytes, &limits(app))?)
}

/// Spools the bytes of a file piece by piece; the blob is not stored yet.
///
/// # Errors
/// 413 if there are too many; 503 if there is no memory for them, or they cannot be written to the spool.
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
