//! Old names: a renamed article is found under its new name, and so are its pages and earlier versions.
//!
//! Only senders who may read the article at its new name learn that name.

use article::{ArticleName, ArticlePath, Target};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};

use super::reader::{ReadRequest, may_read};
use crate::front::display::in_path;
use crate::front::error::HttpError;

/// 308 to the new name, if the article was renamed after it, or this version of it, had this name.
pub(crate) fn answer(
    shown: &ReadRequest<'_>,
    path: &ArticlePath,
) -> Option<Result<Response, HttpError>> {
    let articles = &shown.stored.articles;
    let article = articles.article(&path.name)?;
    let has = |to: &ArticleName, version| {
        let there = articles.article(to);
        there.is_some_and(|it| it.revision(version).is_some() || it.unreadable().contains(&version))
    };
    let to = match path.target {
        // There is no version 0, and the numbers of an article may begin later.
        Target::Version(version) => article.redirect_of(version).filter(|to| has(to, version)),
        Target::Latest | Target::History | Target::Diff => article.redirect(),
    };
    let to = to.filter(|to| **to != path.name)?;
    let page = match path.target {
        Target::Latest => String::new(),
        Target::Version(version) => format!("/{version}"),
        Target::History => "/history".to_owned(),
        Target::Diff => "/diff".to_owned(),
    };
    Some(match may_read(shown.app, shown.principal, to) {
        true => sent_on(shown, to, &format!("/article/{}{page}", in_path(to.as_str()))),
        false => Err(hidden(&path.name)),
    })
}

/// The answer to senders who may not read the article at its new name.
pub(crate) fn hidden(name: &ArticleName) -> HttpError {
    HttpError::gone(format!("`{name}` has another name now, which you may not read"))
}

/// 308 to a path of the article `to`, with the query of the request.
pub(crate) fn sent_on(
    shown: &ReadRequest<'_>,
    to: &ArticleName,
    path: &str,
) -> Result<Response, HttpError> {
    let query = shown.head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = HeaderValue::try_from(format!("{path}{query}"));
    let location =
        location.map_err(|_| HttpError::bad_request("the query is not that of a URL"))?;
    let text = format!("The article is `{to}` now.\n");
    let mut response = (StatusCode::PERMANENT_REDIRECT, text).into_response();
    let headers = response.headers_mut();
    headers.insert(LOCATION, location);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
