//! Searching projects by name: over all stages, as a page or JSON, and over one stage by XML-RPC, for `pip search`.
//!
//! It scans the names of all projects of the stages that the sender may read, and of those that upstreams list, until the page is full. A million names take some
//! milliseconds, on a thread for computations; no index has to be kept up to date.

mod xml_rpc;

use std::sync::{Arc, LazyLock};

use account::{Portion, Principal};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use jiff::Timestamp;
use pypi::policy::shown_versions;
use pypi::{Judge, Project, ProjectName, RefusedFiles, ResolutionOrder, Stage, Version};
use record::{Digest, excerpt};
use resources::turns::Turns;
use serde::Deserialize;
use serde_json::{Value, json};
use state::stored::Stored;
use store::BlobError;

use super::ask::Ask;
use super::error::ApiError;
use super::project::readable;
use super::reply;
use super::rights::{IndexPart, check_reader, no_stage};
use super::upstream_names::{ListedNames, listed_names};
use super::write::whole_body;
use crate::app::App;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::front::search_words::distinct_words;

/// Results on one page, and in one answer by XML-RPC.
const PAGE: usize = 100;

/// Pages at most: readers do not go further, and each is a scan from the start.
const PAGES_MAX: usize = 50;

/// Different words of one query.
const WORDS_MAX: usize = 16;

/// A query by XML-RPC.
const XML_BYTES_MAX: usize = 64 << 10;

/// Metadata that is read for its summary at a time, for all searches together.
const READ_AT_ONCE: usize = 16;

/// Metadata with more bytes is not read for its summary.
const METADATA_BYTES_MAX: u64 = 1 << 20;

/// Characters of a summary that are shown. Indexes take no longer ones.
const SUMMARY_CHARS_MAX: usize = 1_000;

static READING: LazyLock<Turns> = LazyLock::new(|| Turns::new(READ_AT_ONCE));

/// A project of a stage.
struct Hit {
    stage: String,
    project: String,
    version: Option<String>,
    metadata: Option<Digest>,
}

impl Hit {
    /// A hit with the newest of these versions.
    fn of(stage: &Stage, name: &ProjectName, project: &Project, versions: Vec<&str>) -> Hit {
        let versions = versions.into_iter();
        let newest = versions.filter_map(|text| Version::parse(text).ok()).max();
        let release = newest.as_ref().and_then(|version| project.release(version.as_str()));
        Hit {
            stage: stage.name().to_string(),
            project: name.to_string(),
            version: newest.map(String::from),
            metadata: release.map(|release| release.metadata),
        }
    }
}

/// A project that a search has found.
enum FoundProject<'a> {
    /// One of a stage, with the versions that it shows.
    Own(&'a Stage, &'a ProjectName, &'a Project, Vec<&'a str>),
    /// One that the upstream of a mirror lists: nothing else is known of it.
    Listed(&'a Stage, &'a str),
}

impl FoundProject<'_> {
    fn hit(self) -> Hit {
        match self {
            FoundProject::Own(stage, name, project, versions) => {
                Hit::of(stage, name, project, versions)
            }
            FoundProject::Listed(mirror, name) => Hit {
                stage: mirror.name().to_string(),
                project: name.to_owned(),
                version: None,
                metadata: None,
            },
        }
    }
}

fn has_all(name: &str, words: &[String]) -> bool {
    words.iter().all(|word| name.contains(word.as_str()))
}

/// `/+search?query=…&page=…`: projects whose names have all words, by stage and name, and then those that upstreams list.
pub(crate) async fn search(ask: &Ask) -> Result<Response, ApiError> {
    let query = ask.parameter("query").unwrap_or_default();
    let page = ask.parameter("page").and_then(|page| page.parse::<usize>().ok());
    let page = page.unwrap_or(1).clamp(1, PAGES_MAX);
    let principal = ask.principal().await?;
    let words = distinct_words(&query, WORDS_MAX);
    let stored = ask.stored.clone();
    let lists = listed_names(&ask.app, &stored, &principal).await;
    // Looking through many names takes long.
    let scanning = ask
        .app
        .limits
        .cpu_pool
        .run(move || scan(&stored, &lists, &principal, &words, (page - 1) * PAGE));
    let (hits, has_more) = scanning.await.map_err(HttpError::uncomputed)?;
    let has_more = has_more && has_next(page);
    let summaries = summaries(&ask.app, &hits).await?;
    if ask.wants_json() {
        let items: Vec<Value> = hits
            .iter()
            .zip(&summaries)
            .map(|(hit, summary)| {
                json!({
                    "index": hit.stage,
                    "name": hit.project,
                    "version": hit.version,
                    "summary": summary,
                    "url": format!("{}/{}", ask.root_url(), path(hit)),
                })
            })
            .collect();
        let result = json!({"query": query, "page": page, "has_more": has_more, "items": items});
        return Ok(reply::result(StatusCode::OK, "search", result, None));
    }
    Ok(html(ask, &query, page, has_more, &hits, &summaries).await)
}

/// Whether there is a next page; after the last allowed one there is none.
fn has_next(page: usize) -> bool {
    page < PAGES_MAX
}

/// Up to a page of hits after the first `skipped`, and whether there are more.
fn scan(
    stored: &Stored,
    lists: &[ListedNames],
    principal: &Principal,
    words: &[String],
    skipped: usize,
) -> (Vec<Hit>, bool) {
    if words.is_empty() {
        return (Vec::new(), false);
    }
    let stages = stored.index.stages().filter(|stage| stage.may_read(principal, Portion::Unnamed));
    let named = stages.flat_map(|stage| stage.names_with(words).map(move |name| (stage, name)));
    // A token may be limited to some projects.
    let readable = named.filter(|(stage, name)| stage.may_read(principal, Portion::Project(name)));
    let now = Timestamp::now();
    let shown = readable.filter_map(|(stage, name)| {
        let (name, project) = stage.project_entry(name)?;
        let versions = shown_versions(stage, name, project, now)?;
        Some(FoundProject::Own(stage, name, project, versions))
    });
    let listed = lists.iter().flat_map(|list| {
        let names = list.with(stored, words);
        let names = names.filter(|name| list.mirror().may_read(principal, Portion::Project(name)));
        names.map(|name| FoundProject::Listed(list.mirror(), name))
    });
    let mut found = shown.chain(listed).skip(skipped);
    let hits = found.by_ref().take(PAGE).map(FoundProject::hit).collect();
    (hits, found.next().is_some())
}

/// The metadata that is shown: the rest may be long and is not built.
#[derive(Default, Deserialize)]
struct Summary {
    #[serde(default)]
    summary: String,
}

/// The summary of each hit; empty if it has none.
async fn summaries(app: &Arc<App>, hits: &[Hit]) -> Result<Vec<String>, HttpError> {
    let reading = hits.iter().map(|hit| {
        let metadata = hit.metadata;
        async move {
            let Some(digest) = metadata else { return Ok::<_, HttpError>(String::new()) };
            let blobs = &app.store.blobs;
            let _turn = READING.take().await;
            let bytes = match blobs.bytes(digest, METADATA_BYTES_MAX).await {
                // One bad release does not fail the search.
                Err(BlobError::TooLarge { .. }) => None,
                bytes => bytes.map_err(|error| {
                    tracing::error!(%error, "a release's metadata cannot be read");
                    HttpError::unavailable("the metadata cannot be read now; it has been logged", 5)
                })?,
            };
            let said = bytes.and_then(|bytes| serde_json::from_slice::<Summary>(&bytes).ok());
            let mut summary = said.unwrap_or_default().summary;
            summary.truncate(excerpt(&summary, SUMMARY_CHARS_MAX).len());
            Ok(summary)
        }
    });
    let reading: Vec<_> = reading.collect();
    stream::iter(reading).buffered(READ_AT_ONCE).try_collect().await
}

/// The path of a project's JSON, below the root.
fn path(hit: &Hit) -> String {
    format!("{}/{}", in_path(&hit.stage), in_path(&hit.project))
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage<'a> {
    site: Site,
    query: &'a str,
    items: Vec<Item<'a>>,
    next: Option<String>,
}

/// A line of the page.
struct Item<'a> {
    url: String,
    project: &'a str,
    version: &'a str,
    stage: &'a str,
    summary: &'a str,
}

async fn html(
    ask: &Ask,
    query: &str,
    page: usize,
    has_more: bool,
    hits: &[Hit],
    summaries: &[String],
) -> Response {
    let site = ask.site();
    let items = hits.iter().zip(summaries).map(|(hit, summary)| Item {
        url: format!("{}/{}", site.prefix(), path(hit)),
        project: &hit.project,
        version: hit.version.as_deref().unwrap_or_default(),
        stage: &hit.stage,
        summary,
    });
    let items = items.collect();
    let next = has_more.then(|| {
        form_urlencoded::Serializer::new(String::new())
            .append_pair("query", query)
            .append_pair("page", &(page + 1).to_string())
            .finish()
    });
    let page = SearchPage { site, query, items, next };
    page::send(&page, &ask.head, Audience::Reader).await
}

/// `POST /{user}/{index}/` with XML.
pub(crate) async fn search_by_xml_rpc(
    ask: &Ask,
    stage: &str,
    body: Body,
) -> Result<Response, ApiError> {
    readable(ask, stage, false, IndexPart::Whole).await?;
    let principal = ask.principal().await?;
    let body = whole_body(ask, &principal, body, XML_BYTES_MAX).await?;
    // A body may take its time: the answer is of what may be read now.
    let basis = ask.basis().await?;
    let order = ResolutionOrder::of(&basis.stored.index, stage).ok_or_else(|| no_stage(stage))?;
    check_reader(basis.principal(), &order, Portion::Whole)?;
    let query = match xml_rpc::Query::read(&body) {
        Ok(query) => query,
        Err(error) => return Ok(xml(xml_rpc::fault(&error))),
    };
    drop(order);
    let (stored, stage) = (basis.stored.clone(), stage.to_owned());
    let scanning = ask.app.limits.cpu_pool.run(move || {
        let order = ResolutionOrder::of(&stored.index, &stage)?;
        Some(inherited(&order, &query))
    });
    let hits = scanning.await.map_err(HttpError::uncomputed)?.unwrap_or_default();
    let summaries = summaries(&ask.app, &hits).await?;
    Ok(xml(xml_rpc::response(hits.iter().zip(&summaries).map(|(hit, summary)| xml_rpc::Item {
        name: &hit.project,
        version: hit.version.as_deref().unwrap_or_default(),
        summary: format!("[{}] {summary}", hit.stage),
    }))))
}

fn xml(body: String) -> Response {
    reply::typed(StatusCode::OK, body, "text/xml; charset=UTF-8")
}

/// The nearest hit for each project of these stages.
fn inherited(order: &ResolutionOrder<'_>, query: &xml_rpc::Query) -> Vec<Hit> {
    let terms: Vec<Vec<String>> =
        query.terms.iter().map(|term| distinct_words(term, WORDS_MAX)).collect();
    let terms: Vec<Vec<String>> = terms.into_iter().filter(|words| !words.is_empty()).collect();
    if terms.is_empty() {
        return Vec::new();
    }
    let is_wanted = |name: &str| match query.wants_all {
        true => terms.iter().all(|words| has_all(name, words)),
        false => terms.iter().any(|words| has_all(name, words)),
    };
    let names = order.project_names().filter(|name| is_wanted(name));
    let now = Timestamp::now();
    let found = names.filter_map(|name| {
        let (view, name) = (order.project(name)?, order.project_name(name)?);
        let shown = RefusedFiles::of(&view, Judge::of(order, name, now).as_ref());
        let is_shown =
            |version: &&str| shown.as_ref().is_none_or(|shown| shown.refusal_of(version).is_none());
        // The nearest stage with something to show.
        view.parts().iter().find_map(|part| {
            let versions: Vec<&str> =
                part.project.versions().into_iter().filter(is_shown).collect();
            let hit = || Hit::of(part.stage, name, part.project, versions.clone());
            (!versions.is_empty()).then(hit)
        })
    });
    found.take(PAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_to_an_end() {
        // Further ones are the last one.
        for (page, expected) in [(1, true), (PAGES_MAX - 1, true), (PAGES_MAX, false)] {
            assert_eq!(has_next(page), expected, "{page}");
        }
    }
}
