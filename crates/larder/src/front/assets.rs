//! The style sheet and the script of all pages. Each has its digest in its path, so that it is kept forever: what changes
//! gets another path. Nothing else is run or loaded by a page.

use std::sync::LazyLock;

use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use reply::Reply;
use sha2::{Digest as _, Sha256};

use super::error::HttpError;
use super::respond::{Conditions, respond};

/// A path under which something else will never be.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// Hexadecimal digits of a digest that make a name.
const NAME_DIGITS: usize = 16;

/// A file of all pages.
pub(crate) struct Asset {
    /// Its path below the root of this server, without the leading slash.
    pub(crate) path: String,
    /// Its hash for `integrity` and for a policy: `sha256-` and the digest in base64.
    pub(crate) integrity: String,
    reply: Reply,
}

/// How all pages look.
pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("css", "text/css; charset=utf-8", include_str!("../../templates/style.css"))
});

/// The script of the pages. Every page works without it.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("js", "text/javascript; charset=utf-8", include_str!("../../templates/script.js"))
});

impl Asset {
    fn new(extension: &str, content_type: &'static str, text: &'static str) -> Asset {
        let digest = Sha256::digest(text);
        let digits = hex::encode(digest);
        Asset {
            path: format!("+static/larder-{}.{extension}", &digits[..NAME_DIGITS]),
            integrity: format!("sha256-{}", BASE64_STANDARD.encode(digest)),
            reply: Reply::tagged(content_type, text.as_bytes()),
        }
    }
}

/// `/+static/{file}`
///
/// # Errors
/// 404 for any file but the two of this version.
pub(crate) async fn show_asset(head: &Parts) -> Result<Response, HttpError> {
    let path = head.uri.path();
    let assets = [&*STYLE, &*SCRIPT];
    let asset = assets.into_iter().find(|asset| path.strip_prefix('/') == Some(&asset.path));
    let Some(asset) = asset else { return Err(HttpError::nothing_at(path)) };
    let conditions = Conditions::of(&head.method, &head.headers);
    let mut response = respond(asset.reply.clone(), StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, FOREVER);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_named_by_their_digests() {
        // The well-known SHA-256 of the empty text.
        let empty = Asset::new("css", "text/css", "");
        assert_eq!(empty.path, "+static/larder-e3b0c44298fc1c14.css");
        assert_eq!(empty.integrity, "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_ne!(Asset::new("css", "text/css", "a").path, empty.path);
    }
}
