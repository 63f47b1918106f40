//! `/articles` for people: names that begin alike, or that a search finds.

use article::{ListQuery, Page};
use askama::Template;
use axum::response::Response;

use super::{Place, Shown};
use crate::http::people::Site;
use crate::http::words::{Time, in_path};

#[derive(Template)]
#[template(path = "articles.html")]
struct ListPage<'a> {
    site: Site,
    place: Place,
    prefix: &'a str,
    query: &'a str,
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
}

/// This page of the list.
pub(in super::super) async fn show_list(
    shown: &Shown<'_>,
    query: &ListQuery<'_>,
    page: &Page,
) -> Response {
    let items = page.articles.iter().map(|article| {
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
        }
    });
    let next = page.next.as_ref().map(|after| {
        let mut next = form_urlencoded::Serializer::new(String::new());
        let given = [("prefix", query.prefix), ("q", query.q)];
        next.extend_pairs(given.into_iter().filter(|(_, value)| !value.is_empty()));
        if query.with_deleted {
            next.append_pair("deleted", "true");
        }
        next.append_pair("limit", &query.limit.to_string());
        next.append_pair("after", after.as_str()).finish()
    });
    let page = ListPage {
        site: shown.site(),
        place: Place::of(query.prefix),
        prefix: query.prefix,
        query: query.q,
        articles: items.collect(),
        next,
    };
    shown.send(&page).await
}
