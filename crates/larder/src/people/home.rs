//! `/`: the operator's article, or else what is on this server, and forms with examples that find something. `/+use`: commands that
//! point clients at it, with examples that find something, too, and what is switched off.
//!
//! The lists have what their reader may see, what changed last first; they look at a bounded number of things.

use std::collections::HashSet;
use std::sync::Arc;

use ::article as article_surface;
use account::{Object, Portion, Principal, Scope};
use askama::Template;
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use pypi::ResolutionOrder;
use pypi::devpi::View;
use pypi::policy::shown_versions;
use state::stored::Stored;

use crate::app::App;
use crate::front::auth;
use crate::front::display::{Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::front::request::Parts;
use crate::protocols::articles::reader::is_there;

use super::python::{self, IndexLine};

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
    /// Whether nobody is logged in.
    is_stranger: bool,
    aur: Aur,
    python: Card<Indexes>,
    articles: Card<Readable>,
}

impl Home {
    /// Whether this reader may see nothing: a stranger has to log in first.
    fn is_closed(&self) -> bool {
        let reads_articles = matches!(&self.articles, Card::On(it) if it.may_read);
        let sees_indexes = matches!(&self.python, Card::On(it) if !it.indexes.is_empty());
        let sees_packages = matches!(self.aur, Aur::On(_) | Aur::Loading);
        self.is_stranger && !self.is_off() && !reads_articles && !sees_indexes && !sees_packages
    }

    /// Whether there is nothing for people.
    fn is_off(&self) -> bool {
        matches!(self.aur, Aur::Off | Aur::WithoutSource)
            && matches!(self.python, Card::Off)
            && matches!(self.articles, Card::Off)
    }
}

#[derive(Template)]
#[template(path = "use.html")]
struct Use {
    site: Site,
    version: &'static str,
    /// Whether nobody is logged in.
    is_stranger: bool,
    aur: Aur,
    python: Card<Indexes>,
    articles: Card<Readable>,
    actions: bool,
    hello: &'static str,
    metrics: bool,
}

impl Use {
    fn has_off(&self) -> bool {
        matches!(self.aur, Aur::Off | Aur::WithoutSource)
            || matches!(self.python, Card::Off)
            || matches!(self.articles, Card::Off)
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

/// What a page shows of a surface.
enum Card<T> {
    Off,
    Loading,
    On(T),
}

impl<T> Card<T> {
    fn of(is_on: bool, stored: Option<&Stored>, shown: impl FnOnce(&Stored) -> T) -> Card<T> {
        match stored {
            _ if !is_on => Card::Off,
            None => Card::Loading,
            Some(stored) => Card::On(shown(stored)),
        }
    }
}

struct Indexes {
    indexes: Vec<IndexLine>,
    has_more: bool,
    /// A project to search for.
    word: Option<String>,
    /// The index of the commands, in a path.
    index: String,
    /// Whether clients have to log in there.
    is_private: bool,
    project: String,
}

#[derive(Default)]
struct Readable {
    may_read: bool,
    folders: Vec<Folder>,
    articles: Vec<Article>,
    word: Option<String>,
    /// The article of the commands, in a path.
    example: Option<String>,
}

struct Folder {
    name: String,
    /// The query of its list.
    query: String,
}

struct Article {
    name: String,
    path: String,
    title: Option<String>,
    at: Option<Time>,
}

/// `/`
pub(crate) async fn show_home(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (stored, principal) = reader(app, head).await?;
    let home = app.config.site.home.as_ref().filter(|_| app.config.article.enabled);
    let article = home.and_then(|home| {
        let articles = &stored.as_ref()?.articles;
        let named = articles.article_named(&home.0)?;
        // It may have another name now.
        let article = named.redirect().map_or(Some(named), |name| articles.article(name))?;
        is_there(app, &principal, article).then_some(article)
    });
    let Some(article) = article else {
        let (is_stranger, audience) = audience(&principal);
        let page = Home {
            site: Site::of(app, head),
            is_stranger,
            aur: packages(app),
            python: python(app, stored.as_deref(), &principal),
            articles: articles(app, stored.as_deref(), &principal),
        };
        return Ok(page::send(&page, head, audience).await);
    };
    let mut response = StatusCode::FOUND.into_response();
    let target = format!("/article/{}", in_path(article.name.as_str()));
    // The name is encoded.
    let target = HeaderValue::try_from(target).unwrap_or(HeaderValue::from_static("/+use"));
    response.headers_mut().insert(LOCATION, target);
    page::insert_caching(response.headers_mut(), Audience::Reader);
    Ok(response)
}

/// What is served now, and who asks. Until the store is loaded, credentials cannot be checked, and nothing of it is shown.
async fn reader(app: &App, head: &Parts) -> Result<(Option<Arc<Stored>>, Principal), HttpError> {
    let stored = app.live_store.snapshot_full();
    let principal = match &stored {
        Some(_) => auth::identified_of(app, head).await?.unwrap_or_default(),
        None => Principal::Anonymous,
    };
    Ok((stored, principal))
}

/// `/+use`
pub(crate) async fn show_use(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (stored, principal) = reader(app, head).await?;
    let (is_stranger, audience) = audience(&principal);
    let page = Use {
        site: Site::of(app, head),
        version: version::VERSION,
        is_stranger,
        aur: packages(app),
        python: python(app, stored.as_deref(), &principal),
        articles: articles(app, stored.as_deref(), &principal),
        actions: app.config.actions.enabled,
        hello: HELLO,
        metrics: app.config.metrics.enabled,
    };
    Ok(page::send(&page, head, audience).await)
}

/// Whether nobody is logged in, and whom a page is for.
fn audience(principal: &Principal) -> (bool, Audience) {
    match principal {
        Principal::Anonymous => (true, Audience::Everybody),
        _ => (false, Audience::Reader),
    }
}

fn python(app: &App, stored: Option<&Stored>, reader: &Principal) -> Card<Indexes> {
    Card::of(app.config.python.enabled, stored, |stored| indexes(app, stored, reader))
}

fn articles(app: &App, stored: Option<&Stored>, reader: &Principal) -> Card<Readable> {
    Card::of(app.config.article.enabled, stored, |stored| readable(app, stored, reader))
}

fn packages(app: &App) -> Aur {
    if !app.aur.is_on() {
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

/// The indexes that the reader may see, and an example to install from.
fn indexes(app: &App, stored: &Stored, reader: &Principal) -> Indexes {
    let index = &stored.index;
    let shows_all = app.config.python.devpi_defaults;
    let view = View { snapshot: index, principal: reader, shows_all };
    let seen = python::seen(stored, view);
    // To install from an index, one has to be able to read its bases, too.
    let installable = seen.iter().take(LOOKED_AT_MAX).filter(|stage| {
        let order = || ResolutionOrder::of(index, stage.name().as_str());
        stage.may_read(reader, Portion::Whole)
            && order().is_some_and(|order| order.admits(reader, Portion::Whole))
    });
    let stages: Vec<_> = installable.take(SHOWN).collect();
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
        has_more: seen.len() > SHOWN,
        word: project.map(|(_, project)| project.to_string()),
        is_private: example
            .is_some_and(|stage| !stage.may_read(&Principal::Anonymous, Portion::Whole)),
        index: example.map_or("USER/INDEX".to_owned(), |stage| in_path(stage.name().as_str())),
        project: project.map_or("PROJECT".to_owned(), |(_, project)| project.to_string()),
        indexes: seen.iter().take(SHOWN).map(|stage| IndexLine::of(stage, view)).collect(),
    }
}

fn readable(app: &App, stored: &Stored, reader: &Principal) -> Readable {
    if !may_read_articles(app, reader) {
        return Readable::default();
    }
    let articles = &stored.articles;
    let first = FIRST_ARTICLES.iter().filter_map(|name| articles.article_named(name));
    let recent = articles.recent().filter_map(|name| articles.article(name));
    // The last changes may all be deletions.
    let others = recent.chain(articles.articles().take(LOOKED_AT_MAX));
    let others = others.filter(|article| !FIRST_ARTICLES.contains(&article.name.as_str()));
    let mut seen = HashSet::new();
    let shown = first.chain(others).filter(|article| article.is_listed());
    let shown = shown.filter(|article| seen.insert(article.name.clone()));
    let shown: Vec<Article> = shown.take(SHOWN).map(Article::of).collect();
    let first = shown.first();
    let word = first.and_then(|article| article.name.rsplit('/').next().map(str::to_owned));
    Readable {
        may_read: true,
        word,
        example: first.map(|article| article.path.clone()),
        folders: folders(articles),
        articles: shown,
    }
}

fn may_read_articles(app: &App, reader: &Principal) -> bool {
    let readers = &app.config.article.acl_read;
    app.articles.is_open || readers.admits(reader, Scope::ArticleRead, Object::Articles(""))
}

/// The folders at the top that changed last.
fn folders(articles: &article_surface::Snapshot) -> Vec<Folder> {
    let mut names: Vec<&str> = Vec::new();
    for name in articles.recent() {
        let Some((folder, _)) = name.as_str().split_once('/') else { continue };
        if !names.contains(&folder) {
            names.push(folder);
        }
        if names.len() == SHOWN {
            break;
        }
    }
    let folder = |name: &&str| {
        let name = format!("{name}/");
        let mut query = form_urlencoded::Serializer::new(String::new());
        Folder { query: query.append_pair("prefix", &name).finish(), name }
    };
    names.iter().map(folder).collect()
}

impl Article {
    fn of(article: &Arc<article_surface::Article>) -> Article {
        let latest = article.latest().and_then(|facts| facts.content());
        let title = latest.and_then(|content| shortened(content.title.as_deref()?));
        let at = article.latest().map(|facts| Time(facts.at));
        Article { name: article.name.to_string(), path: in_path(article.name.as_str()), title, at }
    }
}

/// The beginning of a text that fits on a line; `None` if it is empty.
fn shortened(title: &str) -> Option<String> {
    let title = Some(title.trim()).filter(|title| !title.is_empty())?;
    Some(record::shortened(title, TITLE_CHARS_MAX).into_owned())
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
