//! `/+attachments/{article}/{file}`: parsing requests, and answering those that read.
//!
//! path -> article and file -> right to the article -> bytes by range. How a file is sent depends on its name alone; a browser
//! shows it in a sandbox, where no script in it runs.

use std::sync::Arc;

use account::Object;
use article::{ArticleName, Attachment, AttachmentError, AttachmentName, Attachments, render};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use state::stored::Stored;
use store::BlobError;
use store::blobs::BlobVerdict;

use super::reader::{self, ReadRequest};
use super::{attachment_changes, redirect};
use crate::app::App;
use crate::front::conditional::{RangeAnswer, content_range, is_current, unsatisfiable, wanted};
use crate::front::error::HttpError;
use crate::front::parameters::parameters;
use crate::front::request::Parts;
use crate::front::respond::blob_range;
use crate::front::serial;
use crate::routes::Route;

/// A browser may show the file, and nothing else. Styles are allowed because browsers style the page that shows a picture.
const SANDBOX: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// 404 for a path of an article's files that names no file and does not list them.
pub(crate) fn lacks_attachment(path: &str) -> HttpError {
    HttpError::not_found(format!(
        "`{path}` lacks the name of a file: `{path}/` lists those of the article, `{path}/FILE` is one of them"
    ))
}

/// The file that a path names.
fn file_of(route: &Route) -> Result<AttachmentName, HttpError> {
    AttachmentName::parse(&route.text("{file}")?).map_err(HttpError::bad_request)
}

/// `PUT /+attachments/{article}/{file}`
pub(crate) async fn put_attachment(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    attachment_changes::put(app, head, route.article()?, file_of(route)?, body).await
}

/// `DELETE /+attachments/{article}/{file}`
pub(crate) async fn delete_attachment(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    attachment_changes::delete(app, head, route.article()?, file_of(route)?).await
}

/// GET and HEAD of `/+attachments/{article}/{file}`.
pub(crate) async fn read_attachment(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let article = route.article()?;
    let file = file_of(route)?;
    let object = Object::Article(article.as_str());
    let (stored, principal) = reader::admitted(app, head, object).await?;
    let reading = ReadRequest { app, stored: &stored, head, principal: &principal };
    let response = reading.answered(send(&reading, &article, &file).await);
    Ok(reader::keep_private(response, &principal))
}

/// GET and HEAD of `/+attachments/{article}/`, for programs.
pub(crate) async fn list_attachments(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let article = route.article()?;
    let object = Object::Article(article.as_str());
    let (stored, principal) = reader::admitted(app, head, object).await?;
    let reading = ReadRequest { app, stored: &stored, head, principal: &principal };
    Ok(reader::keep_private(reading.answered(list(&reading, &article).await), &principal))
}

/// Redirects from the files of an old name to those of the new one.
///
/// # Errors
/// 404 and 410 if there is no article, or the sender may not read the one at the new name.
pub(crate) fn moved(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
    file: &str,
) -> Result<Option<Response>, HttpError> {
    let article = shown.stored.articles.article(name);
    let article = article.ok_or_else(|| HttpError::unknown_article(name))?;
    let Some(to) = article.redirect() else {
        let latest = article.latest().map(|latest| reader::content_of(name, latest));
        return latest.transpose().map(|_| None);
    };
    if !reader::may_read(shown.app, shown.principal, to) {
        return Err(redirect::hidden(name));
    }
    redirect::sent_on(shown, to, &attachment_changes::path(to, file)).map(Some)
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

async fn list(reading: &ReadRequest<'_>, name: &ArticleName) -> Result<Response, HttpError> {
    let attachments = match listed(reading, name)? {
        FileList::Files(attachments) => attachments,
        FileList::Moved(response) => return Ok(response),
    };
    let body = render::attachments(name, attachments);
    reader::json(reading.app, reading.head, reading.stored, body).await
}

/// The files of an article, or the redirect to those of its new name.
pub(crate) enum FileList<'stored> {
    Files(Option<&'stored Attachments>),
    Moved(Response),
}

/// What a request for the files of an article finds.
///
/// # Errors
/// 400 for a query; as [`moved`]; if the record of the files cannot be read.
pub(crate) fn listed<'stored>(
    reading: &ReadRequest<'stored>,
    name: &ArticleName,
) -> Result<FileList<'stored>, HttpError> {
    parameters::<0>(reading.head.uri.query(), [])?;
    Ok(match moved(reading, name, "")? {
        Some(moved) => FileList::Moved(reader::from_store(reading.app, reading.stored, moved)),
        None => FileList::Files(readable(reading.stored, name)?),
    })
}

async fn send(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
    file: &AttachmentName,
) -> Result<Response, HttpError> {
    let &ReadRequest { app, stored, head, .. } = shown;
    if let Some(response) = moved(shown, name, file.as_str())? {
        return Ok(reader::from_store(app, stored, response));
    }
    parameters::<0>(head.uri.query(), [])?;
    let found = readable(stored, name)?.and_then(|all| all.file(file.as_str()));
    let found = found.ok_or_else(|| {
        let (article, name) = (name.clone(), file.clone());
        HttpError::from(AttachmentError::NoFile { article, name })
    })?;
    let etag = format!("\"{}\"", found.tag());
    let request = &head.headers;
    // A date has whole seconds and cannot tell two files of one second apart, so none is sent, and none matches.
    let mut response = if is_current(request, &etag, None)? {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let size_bytes = found.size_bytes;
        let (start, end, status) = match wanted(request, &etag, None, size_bytes) {
            RangeAnswer::Whole => (0, size_bytes, StatusCode::OK),
            RangeAnswer::Part { start, end } => (start, end, StatusCode::PARTIAL_CONTENT),
            RangeAnswer::Unsatisfiable => {
                return Ok(reader::from_store(app, stored, unsatisfiable(size_bytes)));
            }
        };
        let blob = app.store.blobs.open_blob(found.digest).await.map_err(unreadable)?;
        let blob = blob.ok_or_else(|| {
            app.store.blobs.note(found.digest, BlobVerdict::Missing);
            HttpError::lost("attachment")
        })?;
        if blob.size_bytes() != size_bytes {
            let (digest, expected) = (found.digest, size_bytes);
            tracing::error!(%digest, expected, found = blob.size_bytes(), "an attachment in the store is truncated");
            return Err(HttpError::damaged("attachment"));
        }
        let mut response = blob_range(&blob, start..end);
        *response.status_mut() = status;
        if status == StatusCode::PARTIAL_CONTENT {
            content_range(response.headers_mut(), start, end, size_bytes);
        }
        response
    };
    insert_headers(response.headers_mut(), found, app.articles.is_open);
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
    headers.insert(CACHE_CONTROL, reader::caching(is_open, false));
}

fn unreadable(error: BlobError) -> HttpError {
    tracing::error!(%error, "an attachment cannot be read");
    if matches!(error, BlobError::Damaged { .. }) {
        return HttpError::damaged("attachment");
    }
    HttpError::unavailable("the attachment cannot be read now; it has been logged", 5)
}
