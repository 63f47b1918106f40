//! `/articles` for people: what is in a folder, names that begin alike, or what a search for words finds.

use std::sync::Arc;

use article::text_index::{Hit, SnippetPart};
use article::tree::Entry;
use article::{Article, Page};
use askama::Template;
use axum::response::Response;

use super::may_read_below;
use super::outline::{Breadcrumbs, in_tree};
use crate::app::App;
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::Site;
use crate::front::request::Parts;
use crate::protocols::articles::read::{ListResult, Listing, listing};
use crate::protocols::articles::reader::{PAGE, ReadRequest};
use crate::protocols::articles::search::{OFFSET_MAX, snippets};
use crate::published::article_texts::Hits;

/// Tags that are looked at for the list of tags, and that it shows.
const TAGS_LOOKED_AT_MAX: usize = 10_000;
const TAGS_MAX: usize = 40;

#[derive(Template)]
#[template(path = "articles.html")]
pub(super) struct ListPage<'a> {
    site: Site,
    place: Breadcrumbs,
    prefix: &'a str,
    query: &'a str,
    text: &'a str,
    /// The tag that the listed articles have.
    tag: &'a str,
    /// The tags of articles that the reader may read, with the queries of their lists and how many have each.
    tags: Vec<(String, String, usize)>,
    /// How many a search for words found.
    count: Option<String>,
    /// Whether a search for words looked at all texts.
    is_complete: bool,
    articles: Vec<Item>,
    next: Option<String>,
    /// The query of the list of all articles in the folders that are listed.
    all: Option<String>,
}

impl ListPage<'_> {
    /// A list of these, and nothing else.
    fn of(site: Site, articles: Vec<Item>) -> Self {
        ListPage {
            site,
            place: Breadcrumbs::of(""),
            prefix: "",
            query: "",
            text: "",
            tag: "",
            tags: Vec::new(),
            count: None,
            is_complete: true,
            articles,
            next: None,
            all: None,
        }
    }
}

#[derive(Default)]
struct Item {
    name: String,
    path: String,
    title: String,
    at: Option<Time>,
    author: String,
    is_deleted: bool,
    is_redirect: bool,
    /// Where the words of a search were found.
    found_in: String,
    /// The part of the text where they were found.
    snippet: Vec<SnippetPart>,
}

impl Item {
    fn of(article: &Article) -> Item {
        let latest = article.latest();
        let content = latest.and_then(|facts| facts.content());
        let name = article.name.as_str();
        Item {
            name: name.to_owned(),
            path: in_path(name),
            title: content.and_then(|it| it.title.as_deref()).unwrap_or_default().to_owned(),
            at: latest.map(|facts| Time(facts.at)),
            author: latest.map(|facts| facts.author.to_string()).unwrap_or_default(),
            is_deleted: article.is_deleted(),
            is_redirect: article.redirect().is_some(),
            found_in: String::new(),
            snippet: Vec::new(),
        }
    }

    /// An entry of a folder. A folder has a slash at the end of its name.
    fn of_entry(entry: &Entry<'_>) -> Item {
        let path = || format!("{}/", in_path(entry.path));
        let mut item = match entry.page {
            Some(page) => Item::of(page),
            None => Item { path: path(), ..Item::default() },
        };
        if entry.is_folder {
            item.name = format!("{}/", entry.path);
        }
        item
    }
}

/// `/articles`, for a browser.
pub(crate) async fn list_articles(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (stored, principal, listing) = listing(app, head).await?;
    let shown = ReadRequest { app, stored: &stored, head, principal: &principal };
    Ok(match &listing.found {
        ListResult::Page(_) if names_folder(head, &listing.prefix) => {
            show_folder(&shown, &listing).await
        }
        ListResult::Page(page) => show_page(&shown, &listing, page).await,
        ListResult::Hits(hits, offset) => show_hits(&shown, &listing, hits, *offset).await?,
    })
}

/// Whether the query asks for a folder and nothing else, rather than for a part of the list of names.
fn names_folder(head: &Parts, prefix: &str) -> bool {
    let query = head.uri.query().unwrap_or_default();
    let mut given = form_urlencoded::parse(query.as_bytes());
    let is_alone = given.all(|(name, value)| name == "prefix" || value.is_empty());
    is_alone && (prefix.is_empty() || prefix.ends_with('/'))
}

/// What is in a folder, in its order.
async fn show_folder(shown: &ReadRequest<'_>, query: &Listing) -> Response {
    let page = folder_page(shown, &query.prefix, shown.site(), PAGE.0);
    shown.send(&page).await
}

/// The page of a folder, whose prefix of names has a slash at its end.
pub(super) fn folder_page<'a>(
    shown: &ReadRequest<'_>,
    prefix: &'a str,
    site: Site,
    entries_max: usize,
) -> ListPage<'a> {
    let folder = prefix.strip_suffix('/').unwrap_or_default();
    let articles = in_tree(shown, |view| {
        let entries = view.first(folder, entries_max).entries;
        let page = view.page(folder).map(|page| Item::of(page));
        page.into_iter().chain(entries.iter().map(Item::of_entry)).collect()
    });
    ListPage {
        place: Breadcrumbs::of(prefix),
        prefix,
        tags: if folder.is_empty() { tags(shown) } else { Vec::new() },
        all: (!site.is_files()).then(|| all_below(prefix)),
        ..ListPage::of(site, articles)
    }
}

/// The page of all articles with a tag.
pub(super) fn tag_page<'a>(shown: &ReadRequest<'_>, tag: &'a str, site: Site) -> ListPage<'a> {
    let articles = shown.stored.articles.tagged(tag, "", None).map(|article| Item::of(article));
    ListPage { tag, ..ListPage::of(site, articles.collect()) }
}

/// A query with these parameters.
pub(super) fn query_of(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The tags that most articles have, in their order, for somebody who may read all articles: others would learn of those that
/// they may not read.
fn tags(shown: &ReadRequest<'_>) -> Vec<(String, String, usize)> {
    if !may_read_below(shown, "") {
        return Vec::new();
    }
    let all = shown.stored.articles.tags().take(TAGS_LOOKED_AT_MAX);
    let mut all: Vec<(&str, usize)> = all.map(|(tag, names)| (tag, names.len())).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.truncate(TAGS_MAX);
    all.sort_unstable();
    let line = |(tag, count): (&str, usize)| (tag.to_owned(), query_of(&[("tag", tag)]), count);
    all.into_iter().map(line).collect()
}

/// The query of the list of all names that begin like this.
fn all_below(prefix: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if !prefix.is_empty() {
        query.append_pair("prefix", prefix);
    }
    query.append_pair("limit", &PAGE.0.to_string()).finish()
}

/// One page of the list.
async fn show_page(shown: &ReadRequest<'_>, query: &Listing, page: &Page) -> Response {
    let next = page.next.as_ref().map(|after| {
        let mut next = form_urlencoded::Serializer::new(String::new());
        let given = [("prefix", &query.prefix), ("q", &query.q), ("tag", &query.tag)];
        next.extend_pairs(given.into_iter().filter(|(_, value)| !value.is_empty()));
        if query.with_deleted {
            next.append_pair("deleted", "true");
        }
        next.append_pair("limit", &query.limit.to_string());
        next.append_pair("after", after.as_str()).finish()
    });
    let articles = page.articles.iter().map(|article| Item::of(article));
    let page = ListPage {
        place: Breadcrumbs::of(&query.prefix),
        prefix: &query.prefix,
        query: &query.q,
        tag: &query.tag,
        next,
        ..ListPage::of(shown.site(), articles.collect())
    };
    shown.send(&page).await
}

/// The results of a search for words.
async fn show_hits(
    shown: &ReadRequest<'_>,
    query: &Listing,
    hits: &Hits,
    offset: usize,
) -> Result<Response, HttpError> {
    let Listing { prefix, text, limit, .. } = query;
    let content = |(article, hit): &(Arc<Article>, Hit)| {
        article.latest().filter(|_| hit.in_text).and_then(|facts| facts.content()).cloned()
    };
    let contents = hits.articles.iter().map(content).collect();
    let snippets = snippets(shown.app, text, contents).await?;
    let part = |offset: usize| {
        let (offset, limit) = (offset.to_string(), limit.to_string());
        let part: [(&str, &str); 4] =
            [("text", text.as_str()), ("prefix", prefix), ("offset", &offset), ("limit", &limit)];
        let given = part.into_iter().filter(|(_, value)| !value.is_empty());
        query_of(&given.collect::<Vec<_>>())
    };
    let next = offset + limit;
    let has_next = next < hits.count && next <= OFFSET_MAX;
    let found_in = |hit: &Hit| {
        let places = [("name", hit.in_name), ("title", hit.in_title), ("text", hit.in_text)];
        let places = places.into_iter().filter(|(_, is_there)| *is_there);
        places.map(|(place, _)| place).collect::<Vec<_>>().join(", ")
    };
    let items = hits.articles.iter().zip(snippets).map(|((article, hit), snippet)| {
        let found_in = found_in(hit);
        Item { found_in, snippet, ..Item::of(article) }
    });
    let page = ListPage {
        place: Breadcrumbs::of(prefix),
        prefix,
        text,
        count: Some(display::count(hits.count, "article", "articles")),
        is_complete: hits.is_complete,
        next: has_next.then(|| part(next)),
        ..ListPage::of(shown.site(), items.collect())
    };
    Ok(shown.send(&page).await)
}
