//! Pages for people, and the OpenAPI document. They are part of the binary and need no other host.
//!
//! request -> [`Site`], what is on, and a bounded look at the snapshots -> a template -> response. A page is made when it is
//! asked for, so that no read and no write has to keep it right; it shows only what everybody may read.

mod docs;
mod home;

use std::sync::LazyLock;

use askama::Template;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use reply::Reply;

use super::error::HttpError;
use super::people::{self, Site};
use super::respond::{Conditions, respond, respond_now};
use crate::app::App;

pub use home::Example;
pub(super) use home::show_home;

const HTML: &str = "text/html; charset=utf-8";

static OPENAPI: LazyLock<Reply> = LazyLock::new(|| file("application/json", docs::OPENAPI));
static ADMIN_OPENAPI: LazyLock<Reply> =
    LazyLock::new(|| file("application/json", docs::ADMIN_OPENAPI));
static ROBOTS: LazyLock<Reply> =
    LazyLock::new(|| file("text/plain; charset=utf-8", include_str!("../pages/robots.txt")));
static FAVICON: LazyLock<Reply> =
    LazyLock::new(|| file("image/svg+xml", include_str!("../pages/favicon.svg")));

/// The script of the page about the AUR's interface.
const AUR_SCRIPT: &str = include_str!("../pages/aur.js");
static AUR_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| people::policy(AUR_SCRIPT));

fn file(content_type: &'static str, body: &'static str) -> Reply {
    Reply::tagged(content_type, body.as_bytes())
}

async fn send(file: &LazyLock<Reply>, head: &Parts) -> Response {
    let conditions = Conditions::of(&head.method, &head.headers);
    respond(Reply::clone(file), StatusCode::OK, conditions).await
}

/// A page of a template, with the policy for its script if it has one.
async fn send_page(page: &impl Template, head: &Parts, policy: Option<&HeaderValue>) -> Response {
    match page.render() {
        Ok(html) => {
            let conditions = Conditions::of(&head.method, &head.headers);
            let response = respond(Reply::tagged(HTML, html), StatusCode::OK, conditions).await;
            with_headers(response, policy)
        }
        Err(error) => HttpError::unrendered(&error).into_response(),
    }
}

fn with_headers(mut response: Response, policy: Option<&HeaderValue>) -> Response {
    match policy {
        Some(policy) => people::insert_with(response.headers_mut(), policy.clone()),
        None => people::insert_headers(response.headers_mut()),
    }
    response
}

/// `/docs`
pub(super) async fn show_docs(app: &App, head: &Parts) -> Response {
    let here = docs::Here::of(app);
    let page = docs::Documentation { site: Site::of(app, head), here, reference: &docs::REFERENCE };
    send_page(&page, head, None).await
}

#[derive(Template)]
#[template(path = "aur.html")]
struct AurPage {
    site: Site,
    script: &'static str,
    is_on: bool,
    word: String,
}

impl AurPage {
    fn of(app: &App, head: &Parts) -> AurPage {
        let published = app.aur.snapshot();
        let example = published.as_ref().map(|published| published.example(app.results_max()));
        AurPage {
            site: Site::of(app, head),
            script: AUR_SCRIPT,
            is_on: published.is_some(),
            word: example.map(|example| example.word.clone()).unwrap_or_default(),
        }
    }

    fn policy(&self) -> Option<&'static HeaderValue> {
        self.is_on.then(|| &*AUR_POLICY)
    }
}

/// `/docs/aur`, and goaurrpc's old paths.
pub(super) async fn show_aur_docs(app: &App, head: &Parts) -> Response {
    let page = AurPage::of(app, head);
    send_page(&page, head, page.policy()).await
}

/// `/rpc` without a question.
pub(super) fn aur_now(app: &App, head: &Parts, conditions: &Conditions) -> Response {
    let page = AurPage::of(app, head);
    match page.render() {
        Ok(html) => {
            let response = respond_now(Reply::tagged(HTML, html), StatusCode::OK, conditions);
            with_headers(response, page.policy())
        }
        Err(error) => HttpError::unrendered(&error).into_response(),
    }
}

/// `/openapi.json`
pub(super) async fn show_openapi(head: &Parts) -> Response {
    send(&OPENAPI, head).await
}

/// `/admin/openapi.json`
pub(super) async fn show_admin_openapi(head: &Parts) -> Response {
    send(&ADMIN_OPENAPI, head).await
}

/// `/robots.txt`
pub(super) async fn show_robots(head: &Parts) -> Response {
    send(&ROBOTS, head).await
}

/// `/favicon.ico`
pub(super) async fn show_icon(head: &Parts) -> Response {
    send(&FAVICON, head).await
}

#[derive(Template)]
#[template(path = "stats.html")]
struct Statistics<'a> {
    site: Site,
    version: &'a str,
    commit: &'a str,
    packages: usize,
    package_bases: usize,
    last_refresh: Option<String>,
    metrics: bool,
}

/// `/rpc/stats`
pub(super) async fn show_statistics(app: &App, head: &Parts) -> Response {
    let published = app.aur.snapshot_full();
    let published = published.as_ref();
    let count = |count: fn(&aur::Snapshot) -> u32| {
        published.map_or(0, |published| count(&published.snapshot) as usize)
    };
    let statistics = Statistics {
        site: Site::of(app, head),
        version: crate::version::VERSION,
        commit: crate::version::COMMIT,
        packages: count(aur::Snapshot::package_count),
        package_bases: count(aur::Snapshot::package_base_count),
        last_refresh: published.map(|published| httpdate::fmt_http_date(published.modified_at)),
        metrics: app.config.metrics.enabled,
    };
    send_page(&statistics, head, None).await
}
