//! The style sheet and the script of all pages. Each has its digest in its path, so that it is kept forever: what changes
//! gets another path. Nothing else is run or loaded by a page.

use std::sync::LazyLock;

use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, StatusCode};

use super::error::HttpError;
use super::respond::{Conditions, respond};
use crate::app::App;
use crate::app::brand::Asset;

/// A path under which something else will never be.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// The script of the pages. Every page works without it.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../../templates/script.js");
    Asset::new("js", "text/javascript; charset=utf-8", text.to_owned())
});

/// `/+static/{file}`
///
/// # Errors
/// 404 for any file but the two of this version.
pub(crate) async fn show_asset(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let path = head.uri.path();
    let assets = [&app.brand.style, &*SCRIPT];
    let asset = assets.into_iter().find(|asset| path.strip_prefix('/') == Some(&asset.path));
    let Some(asset) = asset else { return Err(HttpError::nothing_at(path)) };
    let conditions = Conditions::of(&head.method, &head.headers);
    let mut response = respond(asset.reply.clone(), StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, FOREVER);
    Ok(response)
}
