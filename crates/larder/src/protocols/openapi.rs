//! `/openapi.json`: the description of what programs can ask, and that of the admin listener.

use std::sync::LazyLock;

use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use reply::Reply;
use serde_json::json;

use crate::app::App;
use crate::front::outside::root_path;
use crate::front::respond::{Conditions, respond};

/// The OpenAPI document of what everybody asks.
pub(crate) const OPENAPI: &str = include_str!("../../templates/openapi.json");

/// The OpenAPI document of the admin listener.
pub(crate) const ADMIN_OPENAPI: &str = include_str!("../../templates/admin-openapi.json");

static REPLY: LazyLock<Reply> = LazyLock::new(|| json_reply(OPENAPI));
static ADMIN_REPLY: LazyLock<Reply> = LazyLock::new(|| json_reply(ADMIN_OPENAPI));

fn json_reply(document: impl Into<bytes::Bytes>) -> Reply {
    Reply::tagged("application/json", document)
}

async fn send(document: Reply, head: &Parts) -> Response {
    respond(document, StatusCode::OK, Conditions::of(&head.method, &head.headers)).await
}

/// `/openapi.json`
pub(crate) async fn show_openapi(app: &App, head: &Parts) -> Response {
    let root_path = root_path(app, head);
    if root_path.is_empty() {
        return send(REPLY.clone(), head).await;
    }
    let server = json!({"url": root_path}).to_string();
    send(json_reply(OPENAPI.replacen(r#"{"url": "/"}"#, &server, 1)), head).await
}

/// `/admin/openapi.json`
pub(crate) async fn show_admin_openapi(head: &Parts) -> Response {
    send(ADMIN_REPLY.clone(), head).await
}
