//! `/+search` without words, for people: the indexes that the reader may see, the one that changed last first.

use std::cmp::Reverse;
use std::sync::Arc;

use account::Principal;
use askama::Template;
use axum::response::Response;
use pypi::Stage;
use pypi::devpi::View;
use state::stored::Stored;

use crate::front::display::{self, in_path};
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;

/// Indexes on one page.
const PAGE: usize = 100;

/// Indexes that are looked through for a list, in the order of their names.
const LOOKED_AT_MAX: usize = 10_000;

/// A line of a list of indexes.
pub(crate) struct IndexLine {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) title: String,
    /// A description in a few words.
    pub(crate) about: String,
}

impl IndexLine {
    pub(crate) fn of<'a>(stage: &'a Stage, view: View<'a>) -> IndexLine {
        let config = stage.config();
        let about = match config.is_mirror() {
            true => "mirror".to_owned(),
            false => match view.config(stage).bases().len() {
                0 => "index".to_owned(),
                bases => format!("index with {}", display::count(bases, "base", "bases")),
            },
        };
        IndexLine {
            name: stage.name().to_string(),
            path: in_path(stage.name().as_str()),
            title: config.title.clone().unwrap_or_default(),
            about,
        }
    }
}

/// The indexes that a reader may see, the one that changed last first.
pub(crate) fn seen<'a>(stored: &'a Stored, view: View<'_>) -> Vec<&'a Arc<Stage>> {
    let stages = stored.index.stages().take(LOOKED_AT_MAX);
    let mut seen: Vec<_> = stages.filter(|stage| view.sees(stage)).collect();
    seen.sort_by_key(|stage| Reverse(stage.last_changed()));
    seen
}

#[derive(Template)]
#[template(path = "indexes.html")]
struct IndexesPage {
    site: Site,
    indexes: Vec<IndexLine>,
    is_first: bool,
    is_stranger: bool,
    /// The number of the next page.
    next: Option<usize>,
}

/// `/+search` without words.
pub(crate) async fn show_indexes(ask: &Ask) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let view = ask.view(&principal);
    let page = ask.parameter("page").and_then(|page| page.parse::<usize>().ok());
    let page = page.unwrap_or(1).clamp(1, LOOKED_AT_MAX / PAGE);
    let seen = seen(&ask.stored, view);
    let shown = seen.iter().skip((page - 1) * PAGE).take(PAGE);
    let page = IndexesPage {
        site: ask.site(),
        indexes: shown.map(|stage| IndexLine::of(stage, view)).collect(),
        is_first: page == 1,
        is_stranger: matches!(principal, Principal::Anonymous),
        next: (seen.len() > page * PAGE).then_some(page + 1),
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}
