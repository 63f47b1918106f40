//! Articles for people, where programs get bytes and JSON: an article rendered, its history, what changed, and lists.
//!
//! The bytes stay where they were: at the number of a version for everybody, and with `?raw` at the name.

mod attachments;
mod difference;
mod edit;
mod link;
mod list;
mod outline;
mod rename;
pub(crate) mod site;

use std::collections::BTreeSet;
use std::sync::Arc;

use account::{Object, Principal};
use article::{
    Article, ArticleName, ArticlePath, Content as Facts, FrontMatter, Kind, Revision,
    RevisionFacts, Target,
};
use askama::Template;
use axum::response::Response;
use markup::{Format, Options, RenderedText};
use net::Answered;
use state::stored::Stored;

use super::forms::see_other;
use super::rendered::{Key, rendered, rendered_once};
use crate::app::App;
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, PageCacheKey, Site};
use crate::front::parameters::{parameters, parsed};
use crate::front::request::Parts;
use crate::protocols::articles::read::{in_bytes, is_raw, latest_now};
use crate::protocols::articles::reader::{
    PAGE, ReadRequest, admitted, bytes, check_reader, content_of, from_store, keep_private,
    revision,
};
use crate::protocols::articles::write;
use crate::protocols::articles::{self, folder, parse_path, redirect};
use crate::published::finished_pages::MadeOf;
use outline::{Breadcrumbs, LineKind, Outline, in_tree};

pub(crate) use attachments::{change_attachments, list_attachments};
pub(crate) use edit::{edit, show_edit};
pub(crate) use list::list_articles;
pub(crate) use rename::{rename, show_rename};

/// Bytes of a content that is shown as a page; a longer one is sent unrendered.
const BYTES_MAX: u64 = 1 << 20;

/// Articles that link to one, as its page names them.
const LINKING_MAX: usize = 50;

/// Old names of an article for which links are looked for.
const OLD_NAMES_MAX: usize = 20;

/// Refuses senders who may not both read and write an article: its forms show its text.
///
/// # Errors
/// 401 and 403.
fn admit_editor(app: &App, principal: &Principal, name: &ArticleName) -> Result<(), HttpError> {
    write::admit_user(app, principal, name)?;
    check_reader(app, principal, Object::Article(name.as_str()))
}

impl<'a> ReadRequest<'a> {
    fn audience(&self) -> Audience {
        if self.app.articles.is_open { Audience::Everybody } else { Audience::Reader }
    }

    fn site(&self) -> Site {
        Site::of(self.app, self.head)
    }

    async fn send(&self, page: &impl Template) -> Response {
        page::send(page, self.head, self.audience()).await
    }

    /// The article, for somebody who may read it.
    fn article(&self, name: &ArticleName) -> Result<&'a Arc<Article>, HttpError> {
        let found = self.stored.articles.article(name);
        found.ok_or_else(|| HttpError::unknown_article(name))
    }
}

#[derive(Template)]
#[template(path = "article.html")]
struct ArticlePage<'a> {
    site: Site,
    place: Breadcrumbs,
    name: &'a str,
    path: String,
    title: String,
    facts: Line<'a>,
    is_latest: bool,
    latest: Revision,
    previous: Option<Revision>,
    text: Arc<RenderedText>,
    /// The articles around it.
    outline: Outline,
    about: About,
    size: String,
    files: Vec<attachments::File>,
    /// Whether this version of Larder cannot read which there are.
    has_unreadable_files: bool,
    /// Articles that link here, with their paths.
    linking: Vec<(String, String)>,
    /// Whether there are more.
    is_linked_more: bool,
}

/// What an article says of itself before its text.
struct About {
    author: Option<String>,
    date: Option<String>,
    is_draft: bool,
    /// Its tags, and the queries of the lists of articles that have them.
    tags: Vec<(String, String)>,
}

impl About {
    fn of(before: FrontMatter) -> About {
        let FrontMatter { author, date, draft: is_draft, tags, .. } = before;
        let tags = tags.into_iter().map(|tag| {
            let query = list::query_of(&[("tag", tag.as_str())]);
            (tag, query)
        });
        About { author, date, is_draft, tags: tags.collect() }
    }

    fn has_any(&self) -> bool {
        self.author.is_some() || self.date.is_some() || !self.tags.is_empty()
    }
}

/// What is said of a revision.
struct Line<'a> {
    version: Revision,
    at: Time,
    author: &'a str,
    comment: &'a str,
    what: String,
    size: Option<String>,
    previous: Option<Revision>,
}

impl<'a> Line<'a> {
    fn of(shown: &ReadRequest<'_>, article: &Article, facts: &'a RevisionFacts) -> Line<'a> {
        let other = |what: &str, name: &ArticleName| match may_read(shown, name.as_str()) {
            true => format!("renamed {what} {name}"),
            false => "renamed".to_owned(),
        };
        let before = Revision(facts.revision.0.saturating_sub(1));
        Line {
            version: facts.revision,
            at: Time(facts.at),
            author: &facts.author,
            comment: &facts.comment,
            what: match &facts.kind {
                Kind::Put(_) => String::new(),
                Kind::Deleted => "deleted".to_owned(),
                Kind::Restored { from, .. } => format!("version {from} again"),
                Kind::Renamed { from, .. } => other("from", from),
                Kind::Redirect { to } => other("to", to),
            },
            size: facts.content().map(|content| display::size(content.size_bytes)),
            previous: article.revision(before).map(|facts| facts.revision),
        }
    }
}

/// Answers a browser's GET or HEAD below `/article/` with a page, or with the bytes if there is no page.
pub(crate) async fn read_article(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    if let Some(folder) = head.uri.path().strip_suffix('/') {
        return read_folder(app, head, folder).await;
    }
    let path = parse_path(head.uri.path())?;
    let object = Object::Article(path.name.as_str());
    let (stored, principal) = admitted(app, head, object).await?;
    let shown = ReadRequest { app, stored: &stored, head, principal: &principal };
    if let Some(moved) = redirect::answer(&shown, &path) {
        return Ok(from_store(app, &stored, shown.answered(moved)));
    }
    let response = match Box::pin(page_of(&shown, &path)).await.transpose() {
        Some(page) => shown.answered(page),
        None => in_bytes(&shown, &path).await,
    };
    Ok(keep_private(response, &principal))
}

/// Redirects a browser from a folder to its page, or else to the list of what is in it. `path` is without the last slash.
async fn read_folder(app: &Arc<App>, head: &Parts, path: &str) -> Result<Response, HttpError> {
    let folder = folder::parse(path)?;
    let (stored, principal) = admitted(app, head, Object::Article(&folder)).await?;
    let shown = ReadRequest { app, stored: &stored, head, principal: &principal };
    let place = folder::place_of(&shown, &folder);
    Ok(shown.answered(place.map(|place| see_other(app, head, &place))))
}

/// The page of a path, if there is one. `…/{version}` has none: everybody gets its bytes.
async fn page_of(
    shown: &ReadRequest<'_>,
    path: &ArticlePath,
) -> Result<Option<Response>, HttpError> {
    let &ReadRequest { stored, head, .. } = shown;
    let name = &path.name;
    Ok(match path.target {
        Target::Version(_) => None,
        Target::History => Some(show_history(shown, name).await?),
        Target::Diff => Some(difference::show_difference(shown, name).await?),
        Target::Latest if is_raw(head) => None,
        Target::Latest => {
            let facts = match named_version(stored, name, head.uri.query())? {
                Some(facts) => facts,
                // There may be others below its name.
                None if stored.articles.article(name).is_none() => {
                    let place = folder::place_of(shown, name.as_str());
                    let place = place.map_err(|_| HttpError::unknown_article(name))?;
                    return Ok(Some(see_other(shown.app, head, &place)));
                }
                None => revision(stored, name, None)?,
            };
            match format(content_of(name, facts)?) {
                Some(format) => Some(show_article(shown, name, facts, format).await?),
                None => None,
            }
        }
    })
}

/// `/+edit?name=…`: redirects to the form for the article of that name.
pub(crate) fn choose_article(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let [name] = parameters(head.uri.query(), ["name"])?;
    let name = name.unwrap_or_default();
    if name.trim().is_empty() {
        return Ok(see_other(app, head, "/articles"));
    }
    let name = ArticleName::parse(name.trim()).map_err(HttpError::bad_request)?;
    Ok(see_other(app, head, &format!("/+edit/{}", in_path(name.as_str()))))
}

/// The format of a content that is shown as a page; `None` if it is sent unrendered.
fn format(content: &Facts) -> Option<Format> {
    let format = Format::of_media_type(content.content_type.as_str())?;
    (content.size_bytes <= BYTES_MAX).then_some(format)
}

/// The place in the cache of the page that everybody sees; `None` if articles are not open to everybody.
fn keeping(app: &App, head: &Parts, stored: &Stored, site: &Site) -> Option<PageCacheKey> {
    let index = Arc::downgrade(&app.articles.texts.snapshot().index);
    let made_of = MadeOf::Articles(stored.articles.changed_at(), index);
    PageCacheKey::of(head, site, made_of).filter(|_| app.articles.is_open)
}

/// The cached page of the article that follows `/article/` in a path, if it is up to date. Not for users who are logged in.
pub(crate) fn read_article_now(app: &App, head: &Parts, rest: &str) -> Option<Answered> {
    // The bytes of a version are the same for everybody.
    let Some(stored) = latest_now(app, head, rest) else {
        return articles::read_article_now(app, head, rest, true);
    };
    let keeping = keeping(app, head, &stored, &Site::of(app, head))?;
    keeping.find(app, head, Audience::Everybody).map(Answered::Now)
}

/// An article as a page: the latest version, or with `?version=` another one.
async fn show_article(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
    facts: &Arc<RevisionFacts>,
    format: Format,
) -> Result<Response, HttpError> {
    let site = shown.site();
    let keeping = keeping(shown.app, shown.head, shown.stored, &site);
    let keeping = keeping.filter(|_| !shown.article(name).is_ok_and(|article| article.is_draft()));
    let kept = keeping.as_ref().and_then(|it| it.find(shown.app, shown.head, shown.audience()));
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let prefix = site.prefix().to_owned();
    let page = article_page(shown, name, facts, format, site, &prefix).await?;
    Ok(match keeping {
        Some(keeping) => keeping.send(shown.app, &page, shown.head, shown.audience()).await,
        None => shown.send(&page).await,
    })
}

/// The page of an article. Links in its text may begin with `prefix`.
async fn article_page<'a>(
    shown: &ReadRequest<'a>,
    name: &'a ArticleName,
    facts: &'a Arc<RevisionFacts>,
    format: Format,
    site: Site,
    prefix: &str,
) -> Result<ArticlePage<'a>, HttpError> {
    let article = shown.article(name)?;
    let content = content_of(name, facts)?;
    let bytes = bytes(shown.app, content).await?;
    let before = article::front_matter(&content.content_type, &content.content_type.text(&bytes));
    let render = || {
        let text = content.content_type.text(&bytes);
        let resolve = |link: &str| site.placed(link::resolve(shown, name, prefix, link)?, prefix);
        let options =
            Options { heading_level: 2, resolve: &resolve, is_article: true, takes_title: true };
        let mut rendered = markup::render(&text, format, &options);
        if rendered.title.is_none() {
            rendered.title = before.title.clone();
        }
        rendered
    };
    // If everybody may read all articles, everybody sees the same links; else the page is rendered for each reader.
    let text = if shown.app.articles.is_open && !site.is_files() {
        let place = format!("{} {prefix}/{name}", content.content_type);
        // A link to a file depends on the files of this article alone.
        let articles = &shown.stored.articles;
        let attached_at = articles.attachments(name).map(|all| all.serial).unwrap_or_default();
        let place = (place, articles.linked_at().max(attached_at).0);
        let key = Key { digest: content.digest, place: Some(place) };
        rendered(key, render).await
    } else {
        rendered_once(render).await
    };
    // Only HTML names its title in a head; the first line of another text need not be a title.
    let own = content.title.as_deref().filter(|_| format == Format::Html);
    let title = text.title.as_deref().or(own).unwrap_or(name.as_str()).to_owned();
    let (linking, is_linked_more) = linking(shown, name);
    let (place, outline) =
        in_tree(shown, |view| (Breadcrumbs::in_tree(view, name), Outline::of(view, name)));
    let mut about = About::of(before);
    // The tags of drafts have no lists.
    about.tags.retain(|(_, query)| site.has(&format!("/articles?{query}")));
    Ok(ArticlePage {
        place,
        outline,
        name: name.as_str(),
        path: in_path(name.as_str()),
        title,
        facts: Line::of(shown, article, facts),
        is_latest: facts.revision == article.highest(),
        latest: article.highest(),
        previous: Line::of(shown, article, facts).previous,
        text,
        about,
        size: display::size(content.size_bytes),
        files: attachments::files(shown.stored, name),
        has_unreadable_files: shown
            .stored
            .articles
            .attachments(name)
            .is_some_and(|all| all.is_unreadable()),
        linking,
        is_linked_more,
        site,
    })
}

/// The articles that link to this one and that the principal may read, and whether there are more than are shown.
fn linking(shown: &ReadRequest<'_>, name: &ArticleName) -> (Vec<(String, String)>, bool) {
    let articles = &shown.stored.articles;
    // A link leads to the nearer article even if the reader may not read it.
    let is_there = |near: &str| {
        let article = articles.article_named(near);
        let is_something = |it: &Arc<Article>| !it.is_deleted() || it.redirect().is_some();
        !may_read(shown, near) || article.is_some_and(is_something)
    };
    let is_shown = |from: &ArticleName| {
        articles.article(from).is_some_and(|it| it.is_listed()) && may_read(shown, from.as_str())
    };
    let texts = shown.app.articles.texts.snapshot();
    let (found, mut is_more) = texts.index.linking_to(name, LINKING_MAX, is_there, is_shown);
    let mut found: BTreeSet<ArticleName> = found.into_iter().collect();
    // Links to an old name are redirected here.
    let old = articles.redirects_to(name).map(|(old, _)| old);
    let mut old =
        old.filter(|old| articles.article(old).is_some_and(|it| it.redirect() == Some(name)));
    for old in old.by_ref().take(OLD_NAMES_MAX) {
        let (more, is_some_left) = texts
            .index
            .linking_to(old, LINKING_MAX, is_there, |from| from != name && is_shown(from));
        is_more |= is_some_left;
        found.extend(more);
    }
    is_more |= found.len() > LINKING_MAX || old.next().is_some();
    let found = found.iter().take(LINKING_MAX);
    (found.map(|from| (from.to_string(), in_path(from.as_str()))).collect(), is_more)
}

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage<'a> {
    site: Site,
    place: Breadcrumbs,
    name: &'a str,
    path: String,
    lines: Vec<Line<'a>>,
    latest: Revision,
    /// The query of the next page.
    next: Option<String>,
}

/// `/article/{name}/history`, as a page.
async fn show_history(shown: &ReadRequest<'_>, name: &ArticleName) -> Result<Response, HttpError> {
    let [before, limit] = parameters(shown.head.uri.query(), ["before", "limit"])?;
    let before = parsed("before", before, "a version")?;
    let limit = parsed::<usize>("limit", limit, "a whole number")?.unwrap_or(PAGE.0);
    let article = shown.article(name)?;
    let versions = shown.stored.articles.history(name, before, limit.clamp(1, PAGE.1));
    let first = article.revisions().next().map(|facts| facts.revision);
    let next = versions.last().filter(|last| Some(last.revision) != first);
    let page = HistoryPage {
        site: shown.site(),
        place: in_tree(shown, |view| Breadcrumbs::in_tree(view, name)),
        name: name.as_str(),
        path: in_path(name.as_str()),
        next: next.map(|last| format!("before={}", last.revision)),
        lines: versions.iter().map(|facts| Line::of(shown, article, facts)).collect(),
        latest: article.highest(),
    };
    Ok(shown.send(&page).await)
}

/// The revision that the query names, for a page; `None` if it names none.
fn named_version<'stored>(
    stored: &'stored Stored,
    name: &ArticleName,
    query: Option<&str>,
) -> Result<Option<&'stored Arc<RevisionFacts>>, HttpError> {
    let [version, _raw] = parameters(query, ["version", "raw"])?;
    let version: Option<Revision> = parsed("version", version, "a version")?;
    version.map(|version| revision(stored, name, Some(version))).transpose()
}

/// Whether the principal may read all articles whose names begin like this.
fn may_read_below(shown: &ReadRequest<'_>, start: &str) -> bool {
    let readers = &shown.app.config.article.acl_read;
    readers.admits(shown.principal, account::Scope::ArticleRead, Object::Articles(start))
}

/// Whether the principal may read this article, too.
fn may_read(shown: &ReadRequest<'_>, name: &str) -> bool {
    let readers = &shown.app.config.article.acl_read;
    readers.admits(shown.principal, account::Scope::ArticleRead, Object::Article(name))
}
