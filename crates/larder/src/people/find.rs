//! `/search` and `/search/suggest`: one question to every surface, and the results in groups.
//!
//! The work for a question is bounded: packages come from the snapshot's indexes; the names of projects, own and listed by upstreams, are scanned, a million
//! in some milliseconds, and a bounded number of those with the words is looked at; articles are found by the start of their
//! names, and longer words through the indexes over names and titles, and over texts. Only what the sender may read is found or counted.

use std::sync::Arc;

use account::{Object, Portion, Principal, Scope};
use article::text_index::SnippetPart;
use article::{Article, ArticleName, ListQuery};
use askama::Template;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use pypi::policy::{shown_versions, shows_all};
use pypi::{Stage, Version};
use reply::Reply;
use serde_json::json;
use state::stored::Stored;

use crate::app::App;
use crate::front::auth;
use crate::front::display::{in_path, name_in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::front::parameters::typed_parameter;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};
use crate::front::search_words::{distinct_words, normal};
use crate::protocols::articles::search::snippets;
use crate::protocols::python::upstream_names::{ListedNames, listed_names};
use crate::published::article_texts::{Hits, Texts};

/// Characters of a question that are looked for.
const QUERY_CHARS_MAX: usize = 200;

/// Different words of a question that are looked for in names of projects.
const WORDS_MAX: usize = 16;

/// The most results that a group of the page shows.
const SHOWN: usize = 10;

/// The most results that a group of the suggestions shows.
const SUGGESTED: usize = 5;

/// Projects that are looked at for a question, of those that it finds, the ones whose names begin with it first: some milliseconds.
const PROJECTS_LOOKED_AT_MAX: usize = 250_000;

/// Articles for which a question checks the right to read.
const ARTICLES_LOOKED_AT_MAX: usize = 200;

/// Shorter questions find articles by the start of their names alone: nearly all titles have the letter `e`.
const ARTICLE_WORD_CHARS_MIN: usize = 3;

/// The group of articles.
const ARTICLES: &str = "articles";

/// The results of one surface.
struct Group {
    id: &'static str,
    title: &'static str,
    /// How many in all, where that is known.
    count: Option<String>,
    items: Vec<Item>,
    /// The path of the list of all.
    all: String,
}

/// A result.
struct Item {
    name: String,
    /// Its path, below the prefix of this server.
    path: String,
    /// Its version, or the index that it is in.
    note: String,
    /// Its description.
    text: String,
    /// A warning for the reader.
    warning: &'static str,
    /// The part of its text where the words are.
    snippet: Vec<SnippetPart>,
}

#[derive(Template)]
#[template(path = "find.html")]
struct SearchPage {
    site: Site,
    query: String,
    groups: Vec<Group>,
}

impl SearchPage {
    fn is_nothing(&self) -> bool {
        self.groups.iter().all(|group| group.items.is_empty())
    }
}

/// A question, and who sends it.
struct Question {
    app: Arc<App>,
    text: String,
    principal: Principal,
    limit: usize,
}

impl Question {
    async fn of(app: &Arc<App>, head: &Parts, limit: usize) -> Result<Question, HttpError> {
        let text = typed_parameter(head, "q", QUERY_CHARS_MAX);
        // Until the store is loaded, credentials cannot be checked, and nothing of it is found.
        let principal = match app.live_store.snapshot().is_some() {
            true => auth::identified_of(app, head).await?.unwrap_or_default(),
            false => Principal::Anonymous,
        };
        Ok(Question { app: app.clone(), text, principal, limit })
    }

    /// The question, and the results of each surface: found on a thread for computations, so that programs do not wait for it.
    async fn answer(self) -> Result<(String, Vec<Group>), HttpError> {
        let app = self.app.clone();
        // The index as it is: someone who types does not wait for the texts of the last commit.
        let texts = app.articles.texts.snapshot();
        let stored = app.live_store.snapshot_full().filter(|_| app.config.python.enabled);
        let lists = match &stored {
            Some(stored) => listed_names(&app, stored, &self.principal).await,
            None => Vec::new(),
        };
        let finding = app.limits.cpu_pool.run(move || (self.groups(&texts, &lists), self.text));
        let (groups, text) = finding.await.map_err(HttpError::uncomputed)?;
        Ok((text, groups))
    }

    /// The results of each surface that is served.
    fn groups(&self, texts: &Texts, lists: &[ListedNames]) -> Vec<Group> {
        if self.text.is_empty() {
            return Vec::new();
        }
        let stored = self.app.live_store.snapshot_full();
        let config = &self.app.config;
        let projects = stored.as_ref().filter(|_| config.python.enabled);
        let articles = stored.as_ref().filter(|_| config.article.enabled);
        self.packages()
            .into_iter()
            .chain(projects.map(|stored| self.projects(stored, lists)))
            .chain(articles.and_then(|stored| self.articles(stored, texts)))
            .collect()
    }

    fn packages(&self) -> Option<Group> {
        let published = self.app.aur.snapshot_full().filter(|_| self.app.aur.is_on())?;
        let best = published.snapshot.best(&self.text, self.limit);
        let items = best.packages.into_iter().map(|package| Item {
            path: format!("/packages/{}", name_in_path(&package.name)),
            warning: match (&package.maintainer, package.out_of_date) {
                (None, _) => "orphan",
                (_, Some(_)) => "out of date",
                _ => "",
            },
            name: package.name,
            note: package.version,
            text: package.description.unwrap_or_default(),
            snippet: Vec::new(),
        });
        Some(Group {
            id: "packages",
            title: "AUR packages",
            count: Some(page::separated(best.count)),
            items: items.collect(),
            all: format!("/packages/?{}", pair("K", &self.text)),
        })
    }

    /// Projects of the stages that the sender may read, and those that upstreams list: the one with this name, those whose names begin
    /// with it, those whose names have all words.
    fn projects(&self, stored: &Stored, lists: &[ListedNames]) -> Group {
        /// A project of a stage, with its versions.
        type Hit<'state> = (&'state Arc<Stage>, &'state str, Vec<&'state str>);
        let words = distinct_words(&self.text, WORDS_MAX);
        let whole = self.text.split_whitespace().map(normal).collect::<Vec<_>>().join("-");
        let reader = &self.principal;
        let stages = || {
            let stages = stored.index.stages();
            stages.filter(|stage| stage.may_read(reader, Portion::Unnamed))
        };
        let may_read = |stage: &Stage, name: &str| stage.may_read(reader, Portion::Project(name));
        let mut ranks: [Vec<Hit<'_>>; 3] = Default::default();
        let mut count = 0;
        // Those that begin so come first: of all that are found, only some are looked at.
        let begins = |name: &&str| name.starts_with(&*whole);
        let has_all = |name: &&str| words.iter().all(|word| name.contains(word.as_str()));
        let beginning = stages().flat_map(|stage| {
            let names = stage.names_from(&whole).take_while(begins).filter(has_all);
            names.map(move |name| (stage, name, false))
        });
        let others = stages().flat_map(|stage| {
            let names = stage.names_with(&words).filter(|name| !begins(name));
            names.map(move |name| (stage, name, false))
        });
        let beginning_upstream = lists.iter().flat_map(|list| {
            let names = list.beginning(stored, &whole).filter(has_all);
            names.map(move |name| (list.mirror(), name, true))
        });
        let others_upstream = lists.iter().flat_map(|list| {
            let names = list.with(stored, &words).filter(|name| !begins(name));
            names.map(move |name| (list.mirror(), name, true))
        });
        let beginning = beginning.chain(beginning_upstream);
        let others = others.chain(others_upstream);
        let now = Timestamp::now();
        let mut looked_at = 0;
        for (stage, name, is_listed) in beginning.chain(others).take(PROJECTS_LOOKED_AT_MAX) {
            looked_at += 1;
            if !may_read(stage, name) {
                continue;
            }
            let rank = match name.strip_prefix(&*whole) {
                Some("") => 0,
                Some(_) => 1,
                None => 2,
            };
            // Most are only counted.
            let is_full = ranks[rank].len() == self.limit;
            let versions = if is_listed || is_full && shows_all(stage, name) {
                Some(Vec::new())
            } else {
                let found = stage.project_entry(name);
                found.and_then(|(name, project)| shown_versions(stage, name, project, now))
            };
            let Some(versions) = versions else { continue };
            count += 1;
            if !is_full {
                ranks[rank].push((stage, name, versions));
            }
        }
        let shown = ranks.iter().flatten().take(self.limit);
        let items = shown.map(|(stage, name, versions)| {
            let newest = versions.iter().filter_map(|text| Version::parse(text).ok()).max();
            let [user, index] = [stage.name().user(), stage.name().index()];
            Item {
                path: [user, index, name].map(|part| format!("/{}", name_in_path(part))).concat(),
                name: name.to_string(),
                note: newest.map(String::from).unwrap_or_default(),
                text: stage.name().to_string(),
                warning: "",
                snippet: Vec::new(),
            }
        });
        Group {
            id: "projects",
            title: "Python projects",
            items: items.collect(),
            // If not all were looked at, the number is not known.
            count: (looked_at < PROJECTS_LOOKED_AT_MAX).then(|| page::separated(count)),
            all: format!("/+search?{}", pair("query", &self.text)),
        }
    }

    /// Articles that the sender may read: the one with this name, those whose names begin with it, those with the words in name
    /// or title, those with the words in their texts. `None` if the sender may read none.
    fn articles(&self, stored: &Stored, texts: &Texts) -> Option<Group> {
        let acl = &self.app.config.article.acl_read;
        let admits = |object: Object<'_>| acl.admits(&self.principal, Scope::ArticleRead, object);
        let is_readable = |article: &Article| {
            article.is_listed() && admits(Object::Article(article.name.as_str()))
        };
        let list = |prefix, q| {
            let limit = ARTICLES_LOOKED_AT_MAX;
            stored.articles.list(&ListQuery { prefix, q, limit, ..ListQuery::default() }).articles
        };
        let text = self.text.as_str();
        let named = stored.articles.article_named(text).cloned().into_iter();
        let beginning = list(text, "");
        let is_long = text.chars().count() >= ARTICLE_WORD_CHARS_MIN;
        let containing = if is_long { list("", text) } else { Vec::new() };
        let state = (&stored.articles, stored.serial);
        let may_read = |name: &ArticleName| admits(Object::Article(name.as_str()));
        let having = match is_long {
            true => {
                let is_shown = (!self.app.articles.is_open).then_some(&may_read as _);
                Hits::find(texts, state, text, self.limit, is_shown).articles
            }
            false => Vec::new(),
        };
        let having = having.into_iter().map(|(article, _)| article);
        let mut items: Vec<Item> = Vec::new();
        for article in named.chain(beginning).chain(containing).chain(having) {
            if items.len() == self.limit {
                break;
            }
            let name = article.name.as_str();
            if items.iter().any(|item| item.name == name) || !is_readable(&article) {
                continue;
            }
            let latest = article.latest().and_then(|facts| facts.content());
            items.push(Item {
                name: name.to_owned(),
                path: format!("/article/{}", in_path(name)),
                note: String::new(),
                text: latest.and_then(|it| it.title.as_deref()).unwrap_or_default().to_owned(),
                warning: "",
                snippet: Vec::new(),
            });
        }
        if items.is_empty() && !admits(Object::Articles("")) {
            return None;
        }
        Some(Group {
            id: ARTICLES,
            title: "Articles",
            count: None,
            items,
            all: format!("/articles?{}", pair("text", text)),
        })
    }
}

/// One parameter of a query.
fn pair(name: &str, value: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
}

/// Adds to these articles, which the sender may read, where the words are in their texts.
async fn add_snippets(app: &App, query: &str, items: &mut [Item]) -> Result<(), HttpError> {
    let stored = app.stored()?;
    let content =
        |item: &Item| stored.articles.article_named(&item.name)?.latest()?.content().cloned();
    let snippets = snippets(app, query, items.iter().map(content).collect()).await?;
    for (item, snippet) in items.iter_mut().zip(snippets) {
        item.snippet = snippet;
    }
    Ok(())
}

/// `/search?q=`
///
/// # Errors
/// 429 and 503 for credentials that are not looked at now; 503 if too much is being computed.
pub(crate) async fn show_search(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (query, mut groups) = Question::of(app, head, SHOWN).await?.answer().await?;
    for group in groups.iter_mut().filter(|group| group.id == ARTICLES) {
        add_snippets(app, &query, &mut group.items).await?;
    }
    let page = SearchPage { site: Site::of(app, head), query, groups };
    Ok(page::send(&page, head, Audience::Reader).await)
}

/// `/search/suggest?q=`: a few results as JSON, while a person types.
///
/// # Errors
/// As [`show_search`].
pub(crate) async fn suggest(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (query, groups) = Question::of(app, head, SUGGESTED).await?.answer().await?;
    let site = Site::of(app, head);
    let url = |path: &str| format!("{}{path}", site.prefix());
    let groups = groups.iter().filter(|group| !group.items.is_empty()).map(|group| {
        let items = group.items.iter().map(|item| {
            json!({"name": item.name, "url": url(&item.path), "note": item.note, "text": item.text})
        });
        json!({
            "title": group.title,
            "count": group.count,
            "all": url(&group.all),
            "items": items.collect::<Vec<_>>(),
        })
    });
    let body = json!({"query": query, "groups": groups.collect::<Vec<_>>()}).to_string();
    let conditions = Conditions::of(&head.method, &head.headers);
    let reply = Reply::tagged("application/json", body);
    let mut response = respond(reply, StatusCode::OK, conditions).await;
    page::insert_caching(response.headers_mut(), Audience::Reader);
    Ok(response)
}
