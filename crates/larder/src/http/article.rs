//! `/article/…` and `/articles`: versioned documents that many read and a few write.
//!
//! reading: name -> snapshot -> contents in memory -> response; writing: body -> blob -> change ->
//! commit -> response. Who may is looked at first, before a byte of a body is read.

mod attached;
mod attachments;
pub(crate) mod call;
mod comparing;
mod diff;
mod pages;
mod read;
mod reading;
mod redirect;
mod rename;
mod search;
mod write;

use std::sync::Arc;

use article::{ArticleName, ArticlePath, Target};
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use super::error::HttpError;
use super::forms::see_other;
use super::options;
use super::parameters::parameters;
use super::words::in_path;
use crate::app::App;
use crate::endpoint::{Endpoint, Place, Tree};

pub(super) use attached::answer_attachment;
pub(super) use read::{list_articles, read_article_now};

/// Everything under `/article/`. Slashes are part of a name, so the path is parsed here, and not by the table.
pub(super) async fn answer(
    app: &Arc<App>,
    head: Parts,
    body: Body,
    endpoint: &mut Endpoint,
) -> Result<Response, HttpError> {
    let path = parse_path(head.uri.path())?;
    let pattern = match path.target {
        Target::Latest => "/article/{article}",
        Target::Version(_) => "/article/{article}/{version}",
        Target::History => "/article/{article}/history",
        Target::Diff => "/article/{article}/diff",
    };
    let place = Place::named(Tree::Main, pattern).expect("the table has these paths");
    *endpoint = place.first();
    let wrong = || HttpError::method_not_allowed(&head.method, head.uri.path(), place.allow());
    *endpoint = place.endpoint(&head.method).ok_or_else(wrong)?;
    if head.method == Method::OPTIONS {
        return Ok(options(place));
    }
    let base = match path.target {
        Target::Version(base) => Some(base),
        _ => None,
    };
    match *endpoint {
        Endpoint::ReplaceArticle | Endpoint::ReviseArticle
            if rename::is_asked(head.uri.query()) =>
        {
            rename::put(app, &head, path.name, base).await
        }
        Endpoint::ReplaceArticle | Endpoint::ReviseArticle => {
            write::put(app, &head, path.name, base, body).await
        }
        Endpoint::DeleteArticle => write::delete(app, &head, path.name, base).await,
        _ => read::read_article(app.clone(), &head, path).await,
    }
}

/// `/+edit/{article}`: the form for an article, and its submission.
pub(super) async fn edit_article(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let name = named_in_path(head.uri.path(), "/+edit/")?;
    match head.method {
        Method::POST => pages::edit(app, head, &name, body).await,
        _ => pages::show_edit(app, head, &name).await,
    }
}

/// `/+rename/{article}`: the form for another name.
pub(super) async fn rename_article(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let name = named_in_path(head.uri.path(), "/+rename/")?;
    match head.method {
        Method::POST => pages::rename(app, head, &name, body).await,
        _ => pages::show_rename(app, head, &name).await,
    }
}

/// The article that follows `start` in a path.
fn named_in_path(path: &str, start: &str) -> Result<ArticleName, HttpError> {
    let rest = percent_decode_str(path.strip_prefix(start).unwrap_or_default());
    let rest = rest.decode_utf8().map_err(|_| {
        HttpError::bad_request(format!("`{path}` is not UTF-8 after percent-decoding"))
    })?;
    ArticleName::parse(&rest).map_err(|error| HttpError::bad_request(error.to_string()))
}

/// `/+edit?name=…`: redirects to the form for the article of that name.
pub(super) fn choose_article(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let [name] = parameters(head.uri.query(), ["name"])?;
    let name = name.unwrap_or_default();
    if name.trim().is_empty() {
        return Ok(see_other(app, head, "/articles"));
    }
    let name = ArticleName::parse(name.trim())
        .map_err(|error| HttpError::bad_request(error.to_string()))?;
    Ok(see_other(app, head, &format!("/+edit/{}", in_path(name.as_str()))))
}

/// 404 for `/article` without a name.
pub(super) fn lacks_name(path: &str) -> HttpError {
    let detail = format!(
        "`{path}` lacks the name of an article: `GET /article/NAME` reads one, `POST /article/NAME/0` makes one of the \
         body; `/articles` lists them"
    );
    HttpError::not_found(detail)
}

fn parse_path(path: &str) -> Result<ArticlePath, HttpError> {
    let bad = |detail: String| HttpError::bad_request(detail);
    let rest = path.strip_prefix("/article/").unwrap_or_default();
    let rest = percent_decode_str(rest)
        .decode_utf8()
        .map_err(|_| bad(format!("`{path}` is not UTF-8 after percent-decoding")))?;
    ArticlePath::parse(&rest).map_err(|error| bad(error.to_string()))
}

/// The value of a header as text; what is not UTF-8 is replaced.
fn text_of(headers: &HeaderMap, name: http::HeaderName) -> Option<std::borrow::Cow<'_, str>> {
    Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()))
}
