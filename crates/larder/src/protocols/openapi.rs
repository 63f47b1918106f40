//! `/openapi.json`: the description of what programs can ask. Others are of the pages with their forms, and of the admin
//! listener.

use std::sync::LazyLock;

use axum::response::Response;
use http::StatusCode;
use reply::Reply;
use serde_json::json;

use crate::app::App;
use crate::front::outside::root_path;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};

/// The OpenAPI document of what programs ask.
pub(crate) const OPENAPI: &str = include_str!("../../templates/openapi.json");

/// The OpenAPI document of pages, their forms, feeds and dumps.
pub(crate) const PAGES_OPENAPI: &str = include_str!("../../templates/openapi-pages.json");

/// The OpenAPI document of the admin listener.
pub(crate) const ADMIN_OPENAPI: &str = include_str!("../../templates/admin-openapi.json");

static REPLY: LazyLock<Reply> = LazyLock::new(|| json_reply(OPENAPI));
static PAGES_REPLY: LazyLock<Reply> = LazyLock::new(|| json_reply(PAGES_OPENAPI));
static ADMIN_REPLY: LazyLock<Reply> = LazyLock::new(|| json_reply(ADMIN_OPENAPI));

fn json_reply(document: impl Into<bytes::Bytes>) -> Reply {
    Reply::tagged("application/json", document)
}

async fn send(document: Reply, head: &Parts) -> Response {
    respond(document, StatusCode::OK, Conditions::of(&head.method, &head.headers)).await
}

/// `/openapi.json`
pub(crate) async fn show_openapi(app: &App, head: &Parts) -> Response {
    send(below_root(OPENAPI, &REPLY, app, head), head).await
}

/// `/docs/openapi-pages.json`
pub(crate) async fn show_pages_openapi(app: &App, head: &Parts) -> Response {
    send(below_root(PAGES_OPENAPI, &PAGES_REPLY, app, head), head).await
}

/// A document whose server is the path that this one has outside.
fn below_root(document: &str, at_root: &Reply, app: &App, head: &Parts) -> Reply {
    let root_path = root_path(app, head);
    if root_path.is_empty() {
        return at_root.clone();
    }
    let server = json!({"url": root_path}).to_string();
    json_reply(document.replacen(r#"{"url": "/"}"#, &server, 1))
}

/// `/admin/openapi.json`
pub(crate) async fn show_admin_openapi(head: &Parts) -> Response {
    send(ADMIN_REPLY.clone(), head).await
}
