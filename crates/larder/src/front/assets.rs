//! The style sheet, the script and the logo of all pages. Each has its digest in its path, so that it is kept forever: what changes
//! gets another path. Nothing else is run or loaded by a page.

use std::sync::LazyLock;

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use http::{HeaderValue, StatusCode};

use super::error::HttpError;
use super::respond::{Conditions, respond};
use crate::app::App;
use crate::app::brand::Asset;
use crate::front::request::Parts;

/// A path under which something else will never be.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// What a browser may do with an asset that it opens as a page: nothing, but a picture may have styles of its own.
const PICTURE_ALONE: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");

/// The script of the pages. Every page works without it.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../../templates/script.js");
    Asset::new("js", "text/javascript; charset=utf-8", text.to_owned())
});

/// `/+static/{file}`
///
/// # Errors
/// 404 for any file but those of this version and this site.
pub(crate) async fn show_asset(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let path = head.uri.path();
    let named = path.strip_prefix('/').unwrap_or_default();
    let script = Some(&*SCRIPT).filter(|script| script.path == named);
    let Some(asset) = script.or_else(|| app.pages.brand.asset(named)) else {
        return Err(HttpError::nothing_at(path));
    };
    let conditions = Conditions::of(&head.method, &head.headers);
    let mut response = respond(asset.reply.clone(), StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, FOREVER);
    // An SVG that is opened by itself is a document.
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, PICTURE_ALONE);
    Ok(response)
}
