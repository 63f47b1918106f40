//! Pages for people, and the OpenAPI document. They are part of the binary and need no other host.
//!
//! request -> [`Site`], the surfaces that are on, and a bounded look at the snapshots -> a template -> response. A page is made
//! on request, so no read or write has to keep it up to date; it shows only what everybody may read.

mod docs;

use std::sync::LazyLock;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use reply::Reply;

use crate::app::App;
use crate::front::page::{self, Audience, Site};
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};

static ROBOTS: LazyLock<Reply> =
    LazyLock::new(|| file("text/plain; charset=utf-8", include_str!("../../templates/robots.txt")));
/// The icon of all pages.
pub(crate) static ICON: LazyLock<Reply> =
    LazyLock::new(|| file("image/svg+xml", include_str!("../../templates/favicon.svg")));

fn file(content_type: &'static str, body: &'static str) -> Reply {
    Reply::tagged(content_type, body.as_bytes())
}

async fn send(file: &LazyLock<Reply>, head: &Parts) -> Response {
    let conditions = Conditions::of(&head.method, &head.headers);
    respond(Reply::clone(file), StatusCode::OK, conditions).await
}

/// `/docs`
pub(crate) async fn show_docs(app: &App, head: &Parts) -> Response {
    page::send(&docs::Documentation::of(app, head), head, Audience::Everybody).await
}

#[derive(Template)]
#[template(path = "aur.html")]
struct AurPage {
    site: Site,
    is_on: bool,
    word: String,
}

impl AurPage {
    fn of(app: &App, head: &Parts) -> AurPage {
        let published = app.aur.snapshot();
        let example = published.as_ref().map(|published| published.example(app.aur.results_max()));
        AurPage {
            site: Site::of(app, head),
            is_on: published.is_some(),
            word: example.map(|example| example.word.clone()).unwrap_or_default(),
        }
    }
}

/// `/docs/aur`, goaurrpc's old paths, and `/rpc` without a question.
pub(crate) async fn show_aur_docs(app: &App, head: &Parts) -> Response {
    let page = AurPage::of(app, head);
    page::send(&page, head, Audience::Everybody).await
}

/// `/robots.txt`
pub(crate) async fn show_robots(head: &Parts) -> Response {
    send(&ROBOTS, head).await
}

/// `/favicon.ico`
pub(crate) async fn show_icon(head: &Parts) -> Response {
    send(&ICON, head).await
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
pub(crate) async fn show_statistics(app: &App, head: &Parts) -> Response {
    let published = app.aur.snapshot_full();
    let published = published.as_ref();
    let count = |count: fn(&aur::Snapshot) -> u32| {
        published.map_or(0, |published| count(&published.snapshot) as usize)
    };
    let statistics = Statistics {
        site: Site::of(app, head),
        version: version::VERSION,
        commit: version::COMMIT,
        packages: count(aur::Snapshot::package_count),
        package_bases: count(aur::Snapshot::package_base_count),
        last_refresh: published.map(|published| httpdate::fmt_http_date(published.modified_at)),
        metrics: app.config.metrics.enabled,
    };
    page::send(&statistics, head, Audience::Everybody).await
}
