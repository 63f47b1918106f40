//! `/`: what is on this server, how to point a client at it, and forms with examples that find something.
//!
//! It shows only what everybody may read, also to users who may read more, and looks at a bounded number of things.

use std::sync::Arc;

use ::article as article_surface;
use account::{Portion, Principal};
use askama::Template;
use axum::response::Response;
use http::request::Parts;
use jiff::Timestamp;
use pypi::ResolutionOrder;
use pypi::policy::shown_versions;
use state::stored::Stored;

use crate::app::App;
use crate::front::display::in_path;
use crate::front::page::{self, Audience, Site};
use state::text;

/// Indexes and articles in a list.
const SHOWN: usize = 8;

/// How many a list looks through; a search finds the rest.
const LOOKED_AT_MAX: usize = 1_000;

/// Characters of a title.
const TITLE_CHARS_MAX: usize = 80;

/// Articles that readers start with, if they exist.
const FIRST_ARTICLES: [&str; 5] = ["welcome", "home", "index", "start", "readme"];

/// The smallest action, as a request has it.
const HELLO: &str = r#"{"example.hello_world":{}}"#;

#[derive(Template)]
#[template(path = "home.html")]
struct Home {
    site: Site,
    version: &'static str,
    aur: Aur,
    python: Python,
    articles: Articles,
    actions: bool,
    hello: &'static str,
    metrics: bool,
}

impl Home {
    fn has_off(&self) -> bool {
        matches!(self.aur, Aur::Off | Aur::WithoutSource)
            || matches!(self.python, Python::Off)
            || matches!(self.articles, Articles::Off)
            || !self.actions
            || !self.metrics
    }
}

enum Aur {
    Off,
    WithoutSource,
    Loading,
    On(Packages),
}

struct Packages {
    /// How many, with separators.
    packages: String,
    /// The date of the data.
    date: String,
    word: String,
    /// A package's name in a path.
    path: String,
}

enum Python {
    Off,
    Loading,
    On(Indexes),
}

struct Indexes {
    indexes: Vec<Index>,
    has_more: bool,
    /// A project to search for.
    word: Option<String>,
    /// The index of the commands, in a path.
    index: String,
    project: String,
}

struct Index {
    name: String,
    path: String,
    title: Option<String>,
}

enum Articles {
    Off,
    Loading,
    On(Readable),
}

struct Readable {
    is_open: bool,
    articles: Vec<Article>,
    word: Option<String>,
    /// The article of the commands, in a path.
    example: String,
}

struct Article {
    name: String,
    path: String,
    title: Option<String>,
}

/// `/`
pub(crate) async fn show_home(app: &App, head: &Parts) -> Response {
    let config = &app.config;
    let stored = app.live_store.snapshot_full();
    let page = Home {
        site: Site::of(app, head),
        version: version::VERSION,
        aur: packages(app),
        python: match &stored {
            _ if !config.python.enabled => Python::Off,
            None => Python::Loading,
            Some(stored) => Python::On(indexes(stored)),
        },
        articles: match &stored {
            _ if !config.article.enabled => Articles::Off,
            None => Articles::Loading,
            Some(stored) => Articles::On(readable(app, stored)),
        },
        actions: config.actions.enabled,
        hello: HELLO,
        metrics: config.metrics.enabled,
    };
    page::send(&page, head, Audience::Everybody).await
}

fn packages(app: &App) -> Aur {
    if !app.config.aur.enabled {
        return if app.aur.lacks_source { Aur::WithoutSource } else { Aur::Off };
    }
    let Some(published) = app.aur.snapshot() else { return Aur::Loading };
    let example = published.example(app.aur.results_max());
    let date = Timestamp::try_from(published.modified_at).unwrap_or(Timestamp::UNIX_EPOCH);
    Aur::On(Packages {
        packages: page::separated(published.snapshot.package_count() as usize),
        date: date.strftime("%Y-%m-%d").to_string(),
        word: example.word.clone(),
        path: in_path(if example.package.is_empty() { "PACKAGE" } else { &example.package }),
    })
}

/// The indexes that anonymous clients may install from: they may read the bases, too.
fn indexes(stored: &Stored) -> Indexes {
    let (index, stranger) = (&stored.index, Principal::Anonymous);
    let mut open = index.stages().take(LOOKED_AT_MAX).filter(|stage| {
        let order = || ResolutionOrder::of(index, stage.name().as_str());
        stage.may_read(&stranger, Portion::Whole)
            && order().is_some_and(|order| order.admits(&stranger, Portion::Whole))
    });
    let stages: Vec<_> = open.by_ref().take(SHOWN).collect();
    let has_more = open.next().is_some();
    let now = Timestamp::now();
    let project = stages.iter().find_map(|stage| {
        let first = stage
            .projects()
            .take(LOOKED_AT_MAX)
            .find(|(name, project)| shown_versions(stage, name, project, now).is_some());
        Some((*stage, first?.0))
    });
    let example = project.map(|(stage, _)| stage).or_else(|| stages.first().copied());
    Indexes {
        has_more,
        word: project.map(|(_, project)| project.to_string()),
        index: example.map_or("USER/INDEX".to_owned(), |stage| in_path(stage.name().as_str())),
        project: project.map_or("PROJECT".to_owned(), |(_, project)| project.to_string()),
        indexes: stages
            .iter()
            .map(|stage| Index {
                name: stage.name().to_string(),
                path: in_path(stage.name().as_str()),
                title: stage.config().title.as_deref().and_then(shortened),
            })
            .collect(),
    }
}

fn readable(app: &App, stored: &Stored) -> Readable {
    let is_open = app.articles_are_open();
    let articles = &stored.articles;
    let first = FIRST_ARTICLES.iter().filter_map(|name| articles.article_named(name));
    let others = articles.articles().take(LOOKED_AT_MAX);
    let others = others.filter(|article| !FIRST_ARTICLES.contains(&article.name.as_str()));
    let shown = first.chain(others).filter(|article| is_open && !article.is_deleted());
    let shown: Vec<Article> = shown.take(SHOWN).map(Article::of).collect();
    let first = shown.first();
    let word = first.and_then(|article| article.name.rsplit('/').next().map(str::to_owned));
    let example = first.map_or("NAME".to_owned(), |article| article.path.clone());
    Readable { is_open, word, example, articles: shown }
}

impl Article {
    fn of(article: &Arc<article_surface::Article>) -> Article {
        let latest = article.latest().and_then(|facts| facts.content());
        let title = latest.and_then(|content| shortened(content.title.as_deref()?));
        Article { name: article.name.to_string(), path: in_path(article.name.as_str()), title }
    }
}

/// The beginning of a text that fits on a line; `None` if it is empty.
fn shortened(title: &str) -> Option<String> {
    let title = Some(title.trim()).filter(|title| !title.is_empty())?;
    Some(text::shortened(title, TITLE_CHARS_MAX).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_fit_a_line() {
        assert_eq!(shortened("  "), None);
        assert_eq!(shortened(" a title\n").as_deref(), Some("a title"));
        let long = shortened(&"é".repeat(100)).expect("a title");
        assert_eq!(long.chars().count(), TITLE_CHARS_MAX + 1);
    }
}
