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
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use state::stored::Stored;
use store::BlobError;
use store::blobs::Verdict;

use super::reading::{self, Reading};
use super::{attachments, pages, redirect};
use crate::app::App;
use crate::http::conditional::{Wanted, content_range, is_current, unsatisfiable, wanted};
use crate::http::error::HttpError;
use crate::http::parameters::parameters;
use crate::http::respond::blob_range;
use crate::http::{people, serial};

/// A browser may show the file, and nothing else. Styles are allowed because browsers style the page that shows a picture.
const SANDBOX: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// The part of a path below `/+attachments/`.
struct Place {
    article: ArticleName,
    /// The file; `None` for the list of files.
    file: Option<AttachmentName>,
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

/// Answers every method.
pub(in crate::http) async fn answer_attachment(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let place = Place::of(head.uri.path())?;
    match (&head.method, place.file) {
        (&Method::PUT, Some(file)) => attachments::put(app, head, place.article, file, body).await,
        (&Method::DELETE, Some(file)) => attachments::delete(app, head, place.article, file).await,
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
    let (app, stored, principal) = reading::admitted(app.clone(), head, object).await?;
    let shown = Reading { app: &app, stored: &stored, head, principal: &principal };
    let answer = match file {
        Some(file) => send(&shown, name, &file).await,
        None => list(&shown, name).await,
    };
    // Even a 404 depends on the state of the store: the next write may add the file.
    Ok(answer.unwrap_or_else(|error| reading::from_store(&app, &stored, error.into_response())))
}

/// Redirects from the files of an old name to those of the new one.
///
/// # Errors
/// 404 and 410 if there is no article, or the sender may not read the one at the new name.
pub(super) fn moved(
    shown: &Reading<'_>,
    name: &ArticleName,
    file: &str,
) -> Result<Option<Response>, HttpError> {
    let article = shown.stored.articles.article(name);
    let article = article.ok_or_else(|| HttpError::unknown_article(name))?;
    let Some(to) = article.redirect() else {
        let latest = article.latest().map(|latest| reading::content_of(name, latest));
        return latest.transpose().map(|_| None);
    };
    if !reading::may_read(shown.app, shown.principal, to) {
        return Err(redirect::hidden(name));
    }
    redirect::sent_on(shown, to, &attachments::path(to, file)).map(Some)
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

async fn list(shown: &Reading<'_>, name: &ArticleName) -> Result<Response, HttpError> {
    let &Reading { app, stored, head, .. } = shown;
    parameters::<0>(head.uri.query(), [])?;
    if let Some(response) = moved(shown, name, "")? {
        return Ok(reading::from_store(app, stored, response));
    }
    let attachments = readable(stored, name)?;
    if people::wants_page(&head.headers) {
        return pages::show_attachments(shown, name).await;
    }
    let body = render::attachments(name, attachments);
    reading::json(app, head, stored, body).await
}

async fn send(
    shown: &Reading<'_>,
    name: &ArticleName,
    file: &AttachmentName,
) -> Result<Response, HttpError> {
    let &Reading { app, stored, head, .. } = shown;
    if let Some(response) = moved(shown, name, file.as_str())? {
        return Ok(reading::from_store(app, stored, response));
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
            Wanted::Whole => (0, size_bytes, StatusCode::OK),
            Wanted::Part { start, end } => (start, end, StatusCode::PARTIAL_CONTENT),
            Wanted::Unsatisfiable => {
                return Ok(reading::from_store(app, stored, unsatisfiable(size_bytes)));
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
    insert_headers(response.headers_mut(), found, app.articles_are_open());
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
    headers.insert(CACHE_CONTROL, reading::caching(is_open, false));
}

fn unreadable(error: BlobError) -> HttpError {
    tracing::error!(%error, "an attachment cannot be read");
    if matches!(error, BlobError::Damaged { .. }) {
        return HttpError::damaged("attachment");
    }
    HttpError::unavailable("the attachment cannot be read now; it has been logged", 5)
}
