//! `/{user}/{index}/pypi/{project}/json` and `…/{version}/json`: projects in the shape of the public index's JSON API.
//!
//! the simple page that the sender gets -> its files, by version -> with the metadata of one's own release -> JSON. So rights,
//! policies, bases and mirrors count as for the page.

use std::sync::LazyLock;

use ::reply::Reply;
use axum::response::Response;
use http::StatusCode;
use http::header::{CACHE_CONTROL, WARNING};
use http::response::Parts as ResponseParts;
use hyper::body::Body as _;
use pypi::public_json::{PublicFiles, PublicUrls};
use pypi::{PageForm, ProjectName, ResolutionOrder, Version};
use resources::turns::ThreadShare;
use serde_json::{Map, Value};

use super::ask::Ask;
use super::error::ApiError;
use super::names::Project;
use super::project::metadata;
use super::reply;
use super::simple;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::respond::{Conditions, respond};
use crate::front::turns;

/// A page of more bytes, with some twenty thousand files, has no JSON.
const PAGE_BYTES_MAX: u64 = 8 << 20;

/// A page of more bytes is let go while the request waits for its turn.
const WAITING_BYTES_MAX: u64 = 64 << 10;

/// Such pages are read one at a time: each takes several times its bytes. This many further requests wait for that.
const LARGE_WAITING_MAX: usize = 64;

static LARGE: LazyLock<ThreadShare> = LazyLock::new(|| ThreadShare::one(LARGE_WAITING_MAX));

/// Of a project, or with a `version`, of a release.
pub(crate) async fn show_public_json(
    ask: &Ask,
    stage: &str,
    project: &Project,
    version: Option<&str>,
) -> Result<Response, ApiError> {
    let Some(name) = &project.name else { return Err(missing(&project.as_sent)) };
    if !project.is_normalized() {
        return Ok(reply::redirect(ask, &ask.path_with_project(name)));
    }
    let page = page(ask, stage, name).await?;
    let bytes = page.body().size_hint().exact().unwrap_or(u64::MAX);
    let (head, json) = if bytes <= WAITING_BYTES_MAX {
        ask.in_turn(made(ask, stage, name, version, page)).await?
    } else {
        drop(page);
        let making = async {
            let page = self::page(ask, stage, name).await?;
            made(ask, stage, name, version, page).await
        };
        turns::in_turn(&LARGE, Box::pin(making)).await??
    };
    let conditions = Conditions::of(&ask.head.method, &ask.head.headers);
    let mut response = respond(json, StatusCode::OK, conditions).await;
    for name in [CACHE_CONTROL, WARNING] {
        if let Some(value) = head.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

fn missing(project: &str) -> ApiError {
    let text = format!("The project {project} does not exist.");
    ApiError::from(reply::message(StatusCode::NOT_FOUND, &text))
}

/// The simple page of the project, as JSON. A page that is not there is refused.
async fn page(ask: &Ask, stage: &str, name: &ProjectName) -> Result<Response, ApiError> {
    let path = format!("/{stage}/+simple/{name}/");
    let principal = ask.principal().await?;
    let accept = PageForm::Json.content_type();
    let asked = Ask::at(ask.app.clone(), ask.head.clone(), principal, path, accept)?;
    let project = Project { as_sent: name.to_string(), name: Some(name.clone()) };
    let page = simple::show_simple_page(&asked, stage, &project).await?;
    match page.status() {
        StatusCode::OK => Ok(page),
        StatusCode::NOT_FOUND => Err(missing(name.as_str())),
        _ => Err(ApiError::from(page)),
    }
}

/// The JSON, and the head of the page that it is made of.
async fn made(
    ask: &Ask,
    stage: &str,
    name: &ProjectName,
    version: Option<&str>,
    page: Response,
) -> Result<(ResponseParts, Reply), ApiError> {
    let (head, body) = page.into_parts();
    let Ok(page) = axum::body::to_bytes(body, PAGE_BYTES_MAX as usize).await else {
        let text = format!(
            "the page of {name} has more than {PAGE_BYTES_MAX} bytes: that is too much for its JSON, but \
             /{stage}/+simple/{name}/ lists them"
        );
        return Err(HttpError::refused(StatusCode::NOT_IMPLEMENTED, text).into());
    };
    let files = PublicFiles::read(&page, name);
    let files = files.map_err(HttpError::internal)?;
    let shown = match version {
        None => files.newest(),
        Some(text) => match files.version(text) {
            None => {
                let text = format!("The version {text} of project {name} does not exist.");
                return Err(ApiError::from(reply::message(StatusCode::NOT_FOUND, &text)));
            }
            shown => shown,
        },
    };
    let known = match shown {
        Some(shown) => own_metadata(ask, stage, name, shown).await?,
        None => Map::new(),
    };
    let order = ResolutionOrder::of(&ask.stored.index, stage);
    let serial = order.map_or(0, |order| order.project_stamp(name.as_str()).0);
    let stage = in_path(stage);
    let urls = PublicUrls { root: ask.root_url(), stage: &stage };
    let json = files.json(name, shown, version.is_none(), &known, urls, serial);
    Ok((head, Reply::tagged(reply::JSON, json)))
}

/// The metadata of the nearest release of the version in an index that has files of its own; empty if only mirrors have it.
async fn own_metadata(
    ask: &Ask,
    stage: &str,
    name: &ProjectName,
    version: &Version,
) -> Result<Map<String, Value>, ApiError> {
    let order = ResolutionOrder::of(&ask.stored.index, stage);
    let view = order.as_ref().and_then(|order| order.project(name.as_str()));
    let versions = view.map(|view| view.versions()).unwrap_or_default();
    let found = versions.iter().find(|view| view.version.is_same_release(version));
    let Some(found) = found else { return Ok(Map::new()) };
    let bytes = metadata(&ask.app, std::slice::from_ref(found)).await?;
    let mut releases =
        found.parts.iter().filter_map(|part| part.project.release(found.version.as_str()));
    let stored = releases.find_map(|release| bytes.get(&release.metadata));
    Ok(stored.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default())
}
