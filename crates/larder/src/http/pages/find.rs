//! `/search`: one question to every surface.

use askama::Template;
use aur::{Answer, Params, PathParams};
use axum::response::Response;
use http::request::Parts;

use crate::app::App;
use crate::http::error::HttpError;
use crate::http::people::{self, Audience, Site};

/// Characters of a question that are looked for; longer names are rare, and longer ones are found by their start.
const QUERY_CHARS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "find.html")]
struct Found {
    site: Site,
    query: String,
    packages: Vec<String>,
}

/// `/search?q=`
///
/// # Errors
/// None so far.
pub(in crate::http) async fn show_search(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let query = head.uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let query = pairs.find_map(|(name, value)| (name == "q").then_some(value));
    let query: String = query.unwrap_or_default().trim().chars().take(QUERY_CHARS_MAX).collect();
    let page = Found { site: Site::of(app, head), packages: packages(app, &query), query };
    Ok(people::send(&page, head, Audience::Everybody).await)
}

/// Names that begin with it.
fn packages(app: &App, query: &str) -> Vec<String> {
    let Some(published) = app.aur.snapshot().filter(|_| !query.is_empty()) else {
        return Vec::new();
    };
    let question = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("v", "5"), ("type", "suggest"), ("arg", query)])
        .finish();
    let params = Params::from_query(PathParams::default(), Some(&question));
    let answer = Answer::to(params, &published.snapshot, false, app.results_max());
    serde_json::from_slice(&answer.reply.body).unwrap_or_default()
}
