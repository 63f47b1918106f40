//! Pages for people, and the OpenAPI document. They are part of the binary and need no other host.

use std::sync::Arc;
use std::sync::LazyLock;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reply::Reply;

use super::error::HttpError;
use super::people;
use super::respond::{Conditions, respond, respond_now};
use crate::app::App;

const HTML: &str = "text/html; charset=utf-8";

/// A page, and what a browser may do for it.
struct Page {
    reply: Reply,
    policy: HeaderValue,
}

impl Page {
    fn new(html: &'static str) -> Page {
        Page { reply: Reply::tagged(HTML, html.as_bytes()), policy: people::policy(html) }
    }

    async fn send(&self, method: Method, headers: HeaderMap) -> Response {
        let conditions = Conditions::of(&method, &headers);
        let mut response = respond(self.reply.clone(), StatusCode::OK, conditions).await;
        people::insert_with(response.headers_mut(), self.policy.clone());
        response
    }
}

static INDEX: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("../pages/index.html")));
static DOCUMENTATION: LazyLock<Page> =
    LazyLock::new(|| Page::new(include_str!("../pages/rpc.html")));
static OPENAPI: LazyLock<Reply> =
    LazyLock::new(|| page("application/json", include_str!("../pages/openapi.json")));
static ADMIN_OPENAPI: LazyLock<Reply> =
    LazyLock::new(|| page("application/json", include_str!("../pages/admin-openapi.json")));
static ROBOTS: LazyLock<Reply> =
    LazyLock::new(|| page("text/plain; charset=utf-8", include_str!("../pages/robots.txt")));
static FAVICON: LazyLock<Reply> =
    LazyLock::new(|| page("image/svg+xml", include_str!("../pages/favicon.svg")));

fn page(content_type: &'static str, body: &'static str) -> Reply {
    Reply::tagged(content_type, body.as_bytes())
}

async fn send(page: &LazyLock<Reply>, method: Method, headers: HeaderMap) -> Response {
    respond(Reply::clone(page), StatusCode::OK, Conditions::of(&method, &headers)).await
}

/// `/`
pub(super) async fn index(method: Method, headers: HeaderMap) -> Response {
    INDEX.send(method, headers).await
}

/// `/docs`, and goaurrpc's old paths.
pub(super) async fn documentation(method: Method, headers: HeaderMap) -> Response {
    DOCUMENTATION.send(method, headers).await
}

/// `/rpc` without a question.
pub(super) fn documentation_response(conditions: &Conditions) -> Response {
    let mut response = respond_now(DOCUMENTATION.reply.clone(), StatusCode::OK, conditions);
    people::insert_with(response.headers_mut(), DOCUMENTATION.policy.clone());
    response
}

/// `/openapi.json`
pub(super) async fn openapi(method: Method, headers: HeaderMap) -> Response {
    send(&OPENAPI, method, headers).await
}

/// `/admin/openapi.json`
pub(super) async fn admin_openapi(method: Method, headers: HeaderMap) -> Response {
    send(&ADMIN_OPENAPI, method, headers).await
}

/// `/robots.txt`
pub(super) async fn robots(method: Method, headers: HeaderMap) -> Response {
    send(&ROBOTS, method, headers).await
}

/// `/favicon.ico`
pub(super) async fn favicon(method: Method, headers: HeaderMap) -> Response {
    send(&FAVICON, method, headers).await
}

#[derive(Template)]
#[template(path = "stats.html")]
struct Statistics<'a> {
    version: &'a str,
    commit: &'a str,
    packages: usize,
    package_bases: usize,
    last_refresh: Option<String>,
}

/// `/rpc/stats`
pub(super) async fn statistics(
    State(app): State<Arc<App>>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let published = app.aur.snapshot_full();
    let statistics = Statistics {
        version: crate::version::VERSION,
        commit: crate::version::COMMIT,
        packages: published
            .as_ref()
            .map_or(0, |published| published.snapshot.package_count() as usize),
        package_bases: published
            .as_ref()
            .map_or(0, |published| published.snapshot.package_base_count() as usize),
        last_refresh: published
            .as_ref()
            .map(|published| httpdate::fmt_http_date(published.modified_at)),
    };
    match statistics.render() {
        Ok(html) => {
            let conditions = Conditions::of(&method, &headers);
            let mut response = respond(Reply::tagged(HTML, html), StatusCode::OK, conditions).await;
            people::insert_headers(response.headers_mut());
            response
        }
        Err(error) => {
            tracing::error!(%error, "the page of statistics cannot be rendered");
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be rendered")
                .into_response()
        }
    }
}
