//! `/article/…` and `/articles`: versioned documents that many read and a few write.
//!
//! reading: name -> snapshot -> contents in memory -> response; writing: body -> blob -> change ->
//! commit -> response. Who may is looked at first, before a byte of a body is read.

pub(crate) mod attachment_changes;
pub(crate) mod attachments;
pub(crate) mod call;
pub(crate) mod comparison_turns;
pub(crate) mod diff;
pub(crate) mod folder;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod redirect;
pub(crate) mod rename;
pub(crate) mod search;
pub(crate) mod write;

use std::sync::Arc;

use article::{ArticleName, ArticlePath, Revision, Target};
use axum::body::Body;
use axum::response::Response;
use http::HeaderMap;

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::routes::path::decoded;

pub(crate) use attachments::{
    delete_attachment, lacks_attachment, list_attachments, put_attachment, read_attachment,
};
pub(crate) use read::{list_articles, read_article, read_article_now};

/// PUT and POST of a path below `/article/`: a revision in the body, or with `?rename=` another name.
pub(crate) async fn put_article(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let (name, base) = based(head)?;
    if rename::is_asked(head) {
        return rename::put(app, head, name, base).await;
    }
    write::put(app, head, name, base, body).await
}

/// DELETE of a path below `/article/`.
pub(crate) async fn delete_article(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (name, base) = based(head)?;
    write::delete(app, head, name, base).await
}

/// The article of a path, and the revision in it that a change begins from.
fn based(head: &Parts) -> Result<(ArticleName, Option<Revision>), HttpError> {
    let path = parse_path(head.uri.path())?;
    let base = match path.target {
        Target::Version(base) => Some(base),
        _ => None,
    };
    Ok((path.name, base))
}

/// 404 for `/article` without a name.
pub(crate) fn lacks_name(path: &str) -> HttpError {
    let detail = format!(
        "`{path}` lacks the name of an article: `GET /article/NAME` reads one, `POST /article/NAME/0` makes one of the \
         body; `/articles` lists them"
    );
    HttpError::not_found(detail)
}

/// What a path below `/article/` names.
///
/// # Errors
/// 400 with what is wrong with the name.
pub(crate) fn parse_path(path: &str) -> Result<ArticlePath, HttpError> {
    let rest = path.strip_prefix("/article/").unwrap_or_default();
    let rest = decoded(rest).map_err(|_| HttpError::not_utf8(path))?;
    ArticlePath::parse(&rest).map_err(HttpError::bad_request)
}

/// The value of a header as text; what is not UTF-8 is replaced.
fn text_of(headers: &HeaderMap, name: http::HeaderName) -> Option<std::borrow::Cow<'_, str>> {
    Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()))
}
