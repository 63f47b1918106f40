//! `/articles` for people: names that begin alike, or that a search for words finds.

use std::sync::Arc;

use article::text_index::Hit;
use article::{Article, Page};
use askama::Template;
use axum::response::Response;
use http::request::Parts;

use super::Breadcrumbs;
use crate::app::App;
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::Site;
use crate::protocols::articles::read::{ListResult, Listing, listing};
use crate::protocols::articles::reader::Reading;
use crate::published::article_texts::Hits;

#[derive(Template)]
#[template(path = "articles.html")]
struct ListPage<'a> {
    site: Site,
    place: Breadcrumbs,
    prefix: &'a str,
    query: &'a str,
    text: &'a str,
    /// How many a search for words found.
    count: Option<String>,
    /// Whether a search for words looked at all texts.
    is_complete: bool,
    articles: Vec<Item<'a>>,
    next: Option<String>,
}

struct Item<'a> {
    name: &'a str,
    path: String,
    title: &'a str,
    at: Option<Time>,
    author: &'a str,
    is_deleted: bool,
    is_redirect: bool,
    /// Where the words of a search were found.
    found_in: String,
}

impl<'a> Item<'a> {
    fn of(article: &'a Article) -> Item<'a> {
        let latest = article.latest();
        let content = latest.and_then(|facts| facts.content());
        let name = article.name.as_str();
        Item {
            name,
            path: in_path(name),
            title: content.and_then(|it| it.title.as_deref()).unwrap_or_default(),
            at: latest.map(|facts| Time(facts.at)),
            author: latest.map_or("", |facts| &facts.author),
            is_deleted: article.is_deleted(),
            is_redirect: article.redirect().is_some(),
            found_in: String::new(),
        }
    }
}

/// `/articles`, for a browser.
pub(crate) async fn list_articles(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (stored, principal, listing) = listing(app, head).await?;
    let shown = Reading { app, stored: &stored, head, principal: &principal };
    Ok(match &listing.found {
        ListResult::Page(page) => show_page(&shown, &listing, page).await,
        ListResult::Hits(hits) => show_hits(&shown, &listing.prefix, &listing.text, hits).await,
    })
}

/// One page of the list.
async fn show_page(shown: &Reading<'_>, query: &Listing, page: &Page) -> Response {
    let next = page.next.as_ref().map(|after| {
        let mut next = form_urlencoded::Serializer::new(String::new());
        let given = [("prefix", &query.prefix), ("q", &query.q)];
        next.extend_pairs(given.into_iter().filter(|(_, value)| !value.is_empty()));
        if query.with_deleted {
            next.append_pair("deleted", "true");
        }
        next.append_pair("limit", &query.limit.to_string());
        next.append_pair("after", after.as_str()).finish()
    });
    let page = ListPage {
        site: shown.site(),
        place: Breadcrumbs::of(&query.prefix),
        prefix: &query.prefix,
        query: &query.q,
        text: "",
        count: None,
        is_complete: true,
        articles: page.articles.iter().map(|article| Item::of(article)).collect(),
        next,
    };
    shown.send(&page).await
}

/// The results of a search for words.
async fn show_hits(shown: &Reading<'_>, prefix: &str, text: &str, hits: &Hits) -> Response {
    let found_in = |hit: &Hit| {
        let places = [("name", hit.in_name), ("title", hit.in_title), ("text", hit.in_text)];
        let places = places.into_iter().filter(|(_, is_there)| *is_there);
        places.map(|(place, _)| place).collect::<Vec<_>>().join(", ")
    };
    let items = hits.articles.iter().map(|(article, hit)| {
        let found_in = found_in(hit);
        Item { found_in, ..Item::of(article) }
    });
    let page = ListPage {
        site: shown.site(),
        place: Breadcrumbs::of(prefix),
        prefix,
        query: "",
        text,
        count: Some(display::count(hits.count, "article", "articles")),
        is_complete: hits.is_complete,
        articles: items.collect(),
        next: None,
    };
    shown.send(&page).await
}
