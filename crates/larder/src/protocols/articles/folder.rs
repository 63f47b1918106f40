//! Folders: where the page or the list is that the URL of one leads to, and what is said where an article is asked for that is
//! only a folder.

use std::sync::Arc;

use account::{Object, Principal, Scope};
use article::tree::FOLDER_PAGES;
use article::{ArticleName, ListQuery};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, json};
use state::stored::Stored;

use super::parse_path;
use super::reader::{ReadRequest, admitted, is_there, may_read};
use crate::app::App;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::request::Parts;

/// Articles that are looked at to see whether a folder has any that are not deleted.
const LOOKED_AT_MAX: usize = 100;

/// The path of the list of what is in a folder, whose name has no slash at its end.
pub(crate) fn list_of(folder: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    match folder {
        "" => "/articles".to_owned(),
        _ => format!("/articles?{}", query.append_pair("prefix", &format!("{folder}/")).finish()),
    }
}

/// The page of a folder that is there for this reader: the article of this name, or that of the first name for such a page in it. It
/// may have been renamed.
pub(crate) fn page_of(reading: &ReadRequest<'_>, folder: &str) -> Option<ArticleName> {
    let &ReadRequest { app, stored, principal, .. } = reading;
    let inner = FOLDER_PAGES.iter().map(|page| format!("{folder}/{page}"));
    std::iter::once(folder.to_owned()).chain(inner).find_map(|name| {
        let name = ArticleName::parse(&name).ok()?;
        let article = stored.articles.article(&name)?;
        let is_renamed = article.redirect().is_some() && may_read(app, principal, &name);
        (is_renamed || is_there(app, principal, article)).then_some(name)
    })
}

/// Whether the sender may list a folder, and the list has something.
fn may_list(reading: &ReadRequest<'_>, folder: &str) -> bool {
    let prefix = format!("{folder}/");
    let readers = &reading.app.config.article.acl_read;
    if !readers.admits(reading.principal, Scope::ArticleRead, Object::Articles(&prefix)) {
        return false;
    }
    let query = ListQuery {
        prefix: &prefix,
        limit: LOOKED_AT_MAX,
        with_deleted: true,
        ..ListQuery::default()
    };
    let first = reading.stored.articles.list(&query);
    first.articles.iter().any(|article| article.is_listed())
}

/// Where the URL of a folder leads: to its page, or else to the list of what is in it.
///
/// # Errors
/// 404 if there is nothing in it.
pub(crate) fn place_of(reading: &ReadRequest<'_>, folder: &str) -> Result<String, HttpError> {
    let page = page_of(reading, folder).map(|name| format!("/article/{}", in_path(name.as_str())));
    let list = || may_list(reading, folder).then(|| list_of(folder));
    let missing = || HttpError::not_found(format!("there is no article below `{folder}/`"));
    page.or_else(list).ok_or_else(missing)
}

/// The folder that a path with a slash at its end names. `path` is without the slash.
///
/// # Errors
/// 400 if articles cannot be below it.
pub(crate) fn parse(path: &str) -> Result<String, HttpError> {
    // Its name is the start of that of an article.
    let inner = parse_path(&format!("{path}/x"))?.name;
    Ok(inner.as_str().strip_suffix("/x").unwrap_or_default().to_owned())
}

/// 404 for an article that does not exist. If there is a folder of this name, it says where that is listed.
pub(crate) fn missing(reading: &ReadRequest<'_>, name: &ArticleName) -> HttpError {
    let folder = name.as_str();
    let unknown = HttpError::unknown_article(name);
    let page = page_of(reading, folder).map(|name| format!("/article/{}", in_path(name.as_str())));
    let list = may_list(reading, folder).then(|| list_of(folder));
    if page.is_none() && list.is_none() {
        return unknown;
    }
    let page_at = page.as_ref().map(|path| format!("its page is at `{path}`"));
    let list_at = list.as_ref().map(|path| format!("`{path}` lists what is in it"));
    let places: Vec<String> = page_at.into_iter().chain(list_at).collect();
    let detail = format!("`{name}` is a folder: {}; {}", places.join(", "), unknown.detail());
    let mut members = Map::new();
    members.insert("code".to_owned(), json!("is_folder"));
    members.insert("folder".to_owned(), json!(format!("{folder}/")));
    members.insert("page".to_owned(), json!(page));
    members.insert("list".to_owned(), json!(list));
    HttpError::not_found(detail).with(members)
}

/// 303 from the URL of a folder to its page or its list, for programs. `path` is without the last slash.
///
/// # Errors
/// 400 for no name of a folder; 401, 403; 404 if there is nothing in it.
pub(super) async fn read(app: &App, head: &Parts, path: &str) -> Result<Response, HttpError> {
    let folder = parse(path)?;
    let object = Object::Article(&folder);
    let (stored, principal): (Arc<Stored>, Principal) = admitted(app, head, object).await?;
    let reading = ReadRequest { app, stored: &stored, head, principal: &principal };
    let sent_on = place_of(&reading, &folder).map(|place| {
        let text = format!("`{folder}/` is a folder: {place}\n");
        let mut response = (StatusCode::SEE_OTHER, text).into_response();
        let headers = response.headers_mut();
        // The path is encoded.
        let location = HeaderValue::try_from(place);
        headers.insert(LOCATION, location.unwrap_or(HeaderValue::from_static("/articles")));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        super::reader::from_store(app, &stored, response)
    });
    Ok(reading.answered(sent_on))
}
