//! `/+changed`: the articles and projects that changed since a user last looked, for those who are logged in.
//!
//! the mark of this browser -> the changes of the feeds after it, newest first -> those that the user may see now -> a line for
//! each article and project. The mark is a position of the feeds in a cookie; a button moves it to where the page stands, and
//! nothing else does. The server keeps nothing.

use std::collections::HashSet;
use std::sync::Arc;

use account::Principal;
use article::{Article, ArticleName, Revision};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::SET_COOKIE;
use pypi::{ProjectName, StageName};
use record::{ChangeKind, Digest, Serial, excerpt};
use serde_json::Value;
use state::stored::Stored;

use super::forms;
use crate::app::App;
use crate::front::auth::Cookie;
use crate::front::display::{Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Site};
use crate::front::request::Parts;
use crate::protocols::changes::{is_served, loaded};
use crate::published::changes::{Entry, Event, Feed, FeedPosition, FeedSurface, Subject};

/// Size of the form of this page.
const FORM_BYTES_MAX: usize = 4 << 10;

/// Changes of each surface that the page looks at.
const LOOKED_AT_MAX: usize = 5_000;

/// Changes that are taken from a feed at a time.
const PART: usize = 250;

/// Lines of each list.
const LINES_MAX: usize = 60;

/// How long a browser keeps the mark: browsers keep no cookie for longer.
const KEPT_SECONDS: u64 = 400 * 86_400;

/// Bytes of a position, and digits of a user's name in the cookie.
const POSITION_BYTES_MAX: usize = 40;
const NAME_DIGITS: usize = 16;

#[derive(Template)]
#[template(path = "changed.html")]
struct ChangedPage {
    site: Site,
    form: String,
    /// Where the mark goes to.
    position: String,
    /// Whether the browser has a mark of this user.
    is_marked: bool,
    /// Whether the lists have all changes after it.
    is_whole: bool,
    lists: Vec<List>,
}

impl ChangedPage {
    fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.lines.is_empty())
    }
}

/// What changed on a surface, newest first.
struct List {
    id: &'static str,
    title: &'static str,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    /// Its path on this server; `None` if nothing is there.
    path: Option<String>,
    title: String,
    what: String,
    /// The path of the comparison with what the user knows.
    comparison: Option<String>,
    at: Option<Time>,
    by: String,
}

impl Line {
    fn of(entry: &Entry, event: &Event, name: String) -> Line {
        let json: Value = serde_json::from_slice(event.json()).unwrap_or_default();
        Line {
            name,
            path: None,
            title: String::new(),
            what: String::new(),
            comparison: None,
            at: entry.at.map(Time),
            by: json["by"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

/// The value of the cookie. It names the user, so that nobody else in this browser gets the mark, but not in clear.
fn cookie(user: &str, position: &str) -> String {
    format!("{}:{position}", &Digest::of(user.as_bytes()).to_string()[..NAME_DIGITS])
}

/// The mark of this user in the browser.
fn mark(app: &App, head: &Parts, user: &str) -> Option<FeedPosition> {
    let value = Cookie::Read.shown(app, head)?;
    let position = value.strip_prefix(&cookie(user, ""))?;
    is_position(position).then(|| position.parse().ok())?
}

/// Whether a cookie can have this text as a position.
fn is_position(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    text.len() <= POSITION_BYTES_MAX
        && text.bytes().all(is_plain)
        && text.parse::<FeedPosition>().is_ok()
}

/// `GET /+changed`
///
/// # Errors
/// 401 without a session; 503 until the changes are loaded, and if too much is being computed.
pub(crate) async fn show_changed(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (session, principal) = forms::logged_in(app, head).await?;
    let surfaces = [FeedSurface::Articles, FeedSurface::Python].into_iter();
    let surfaces: Vec<FeedSurface> = surfaces.filter(|surface| is_served(app, *surface)).collect();
    let mark = principal.user_name().and_then(|user| mark(app, head, user.as_str()));
    // Both feeds have the serials of the store. What happens from here on, the page may lack.
    let feed = loaded(app, FeedSurface::Articles).await;
    let not_loaded = |_| HttpError::unavailable("the changes are not loaded yet", 1);
    let position = feed.position(feed.now().map_err(not_loaded)?);
    for surface in &surfaces {
        loaded(app, *surface).await;
    }
    let since = |surface: &FeedSurface| known(app.changes.feed(*surface), mark.as_ref());
    let mut is_whole = mark.is_some() && surfaces.iter().all(|surface| since(surface).is_some());
    let asked = surfaces.iter().map(|surface| (*surface, since(surface))).collect::<Vec<_>>();
    let reading = ReaderChanges { app: app.clone(), stored: app.stored()?, principal };
    let finding = app.limits.cpu_pool.run(move || {
        asked.into_iter().map(|(surface, since)| reading.list(surface, since)).collect::<Vec<_>>()
    });
    let mut lists = Vec::new();
    for (list, is_all) in finding.await.map_err(HttpError::uncomputed)? {
        is_whole &= is_all;
        lists.push(list);
    }
    let page = ChangedPage {
        site: Site::of(app, head),
        form: forms::token(app, &session)?,
        position,
        is_marked: mark.is_some(),
        is_whole,
        lists,
    };
    Ok(page::send_once(&page, head, StatusCode::OK).await)
}

/// `POST /+changed`: the mark of this browser, at the position of the page that was shown.
///
/// # Errors
/// 401 and 403 as for every form; 400 for what is no position.
pub(crate) async fn mark_as_read(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let position = posted.fields.one("position")?;
    if !is_position(position) {
        let shown = excerpt(position, POSITION_BYTES_MAX);
        let expected = "the `next` of an answer of `/changes`, as the page has it";
        let detail = format!("`{}` is no position: expected {expected}", shown.escape_debug());
        return Err(HttpError::bad_request(detail));
    }
    let value = cookie(posted.session.user().as_str(), position);
    let mut response = forms::see_other(app, head, "/+changed");
    let cookie = Cookie::Read.set(app, head, &value, KEPT_SECONDS);
    response.headers_mut().append(SET_COOKIE, cookie);
    Ok(response)
}

/// The serial of the mark; `None` without a mark, or if the feed no longer has all changes since then.
fn known(feed: &Feed, mark: Option<&FeedPosition>) -> Option<Serial> {
    feed.find(mark?).ok()
}

/// The changes after a serial, newest first.
fn changes(feed: &Feed, since: Serial) -> impl Iterator<Item = Arc<Entry>> {
    let mut before = None;
    let parts = std::iter::from_fn(move || {
        let part = feed.before(before, PART);
        before = Some(part.last()?.serial);
        Some(part)
    });
    parts.flatten().take_while(move |entry| entry.serial > since)
}

/// What the lists are made of, and for whom.
struct ReaderChanges {
    app: Arc<App>,
    stored: Arc<Stored>,
    principal: Principal,
}

impl ReaderChanges {
    /// The changes of a surface after `since`, or the last ones, and whether these are all.
    fn list(&self, surface: FeedSurface, since: Option<Serial>) -> (List, bool) {
        let feed = self.app.changes.feed(surface);
        let mut changes = changes(feed, since.unwrap_or_default()).take(LOOKED_AT_MAX + 1);
        let mut looked_at = changes.by_ref().take(LOOKED_AT_MAX);
        let (id, title, (lines, is_cut)) = match surface {
            FeedSurface::Python => ("projects", "Python projects", self.projects(&mut looked_at)),
            _ => ("articles", "Articles", self.articles(&mut looked_at, since)),
        };
        let is_all = !is_cut && changes.next().is_none();
        (List { id, title, lines }, is_all)
    }

    /// The change, as this user gets it.
    fn seen<'entry>(&self, entry: &'entry Entry) -> Option<&'entry Event> {
        entry.for_reader(&self.app.config, &self.stored, &self.principal)
    }

    /// A line for each article, of its last change, and whether there are more than the list has.
    fn articles(
        &self,
        changes: &mut dyn Iterator<Item = Arc<Entry>>,
        since: Option<Serial>,
    ) -> (Vec<Line>, bool) {
        let (mut lines, mut known) = (Vec::new(), HashSet::new());
        for entry in changes {
            let Subject::Article(name) = &entry.subject else { continue };
            if known.contains(name) {
                continue;
            }
            let Some(event) = self.seen(&entry) else { continue };
            if lines.len() == LINES_MAX {
                return (lines, true);
            }
            known.insert(name.clone());
            lines.push(self.article(&entry, event, name, since));
        }
        (lines, false)
    }

    fn article(
        &self,
        entry: &Entry,
        event: &Event,
        name: &ArticleName,
        since: Option<Serial>,
    ) -> Line {
        let mut line = Line::of(entry, event, name.to_string());
        let path = in_path(name.as_str());
        let article = self.stored.articles.article(name);
        let Some(article) =
            article.filter(|it| it.is_deleted() || event.kind != ChangeKind::Removed)
        else {
            line.what = "no longer there".to_owned();
            return line;
        };
        match article.latest().map(|facts| (facts, facts.content())) {
            Some((_, Some(content))) => {
                line.title = content.title.as_deref().unwrap_or_default().to_owned();
                let (what, comparison) = difference(article, since);
                line.what = what;
                line.comparison = comparison.map(|query| format!("/article/{path}/diff?{query}"));
                line.path = Some(format!("/article/{path}"));
            }
            Some((facts, None)) if facts.redirect().is_some() => {
                line.what = "renamed".to_owned();
                line.path = Some(format!("/article/{path}"));
            }
            _ => {
                line.what = "deleted".to_owned();
                line.path = Some(format!("/article/{path}/history"));
            }
        }
        line
    }

    /// A line for each project of an index, of its last change, and whether there are more than the list has.
    fn projects(&self, changes: &mut dyn Iterator<Item = Arc<Entry>>) -> (Vec<Line>, bool) {
        let mut lines: Vec<Line> = Vec::new();
        let mut known: HashSet<(StageName, ProjectName)> = HashSet::new();
        // What the last line is of, and the commit that it tells of.
        let mut last = None;
        for entry in changes {
            let Subject::Stage(stage, Some(project)) = &entry.subject else { continue };
            let of = (stage.clone(), project.clone());
            let is_of_last = last.as_ref() == Some(&(entry.serial, of.clone()));
            if known.contains(&of) && !is_of_last {
                continue;
            }
            let Some(event) = self.seen(&entry) else { continue };
            let mut line = Line::of(&entry, event, format!("{stage}/{project}"));
            line.what = said(&entry, event);
            // A release comes with its files in one commit: it says more, and they say who made it.
            if is_of_last && let Some(other) = lines.last_mut() {
                if entry.item == "release" {
                    other.what = line.what;
                }
                if other.by.is_empty() {
                    other.by = line.by;
                }
                continue;
            }
            if lines.len() == LINES_MAX {
                return (lines, true);
            }
            known.insert(of.clone());
            let found = self.stored.index.stage(stage.as_str());
            let found = found.and_then(|stage| stage.project(project.as_str()));
            line.path = found.map(|_| format!("/{}", in_path(&line.name)));
            lines.push(line);
            last = Some((entry.serial, of));
        }
        (lines, false)
    }
}

/// What happened to an article that is there, and the query of the comparison with what the user knows.
fn difference(article: &Article, since: Option<Serial>) -> (String, Option<String>) {
    let latest = article.highest();
    let known = since.and_then(|since| {
        let known = article.revisions().rev().find(|facts| facts.serial <= since)?;
        known.content().map(|_| known.revision)
    });
    match (known, since) {
        (Some(known), _) if known == latest => ("its files".to_owned(), None),
        (Some(known), _) => {
            (format!("version {latest}"), Some(format!("from={known}&to={latest}")))
        }
        (None, None) if latest != Revision::FIRST => (format!("version {latest}"), None),
        (None, _) => ("new".to_owned(), None),
    }
}

/// What happened to a part of a project.
fn said(entry: &Entry, event: &Event) -> String {
    let name = match entry.item {
        "project" => "status".to_owned(),
        item => format!("{item} {}", entry.name),
    };
    match (event.kind, entry.item) {
        (ChangeKind::Added, "release") => name.replacen("release", "new release", 1),
        (ChangeKind::Added, _) => format!("{name} added"),
        (ChangeKind::Changed, _) => format!("{name} changed"),
        (ChangeKind::Removed, _) => format!("{name} removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_position_and_nothing_else() {
        for good in ["0", "12", "12.5f3a9c01", "18446744073709551615.store"] {
            assert!(is_position(good), "{good}");
        }
        for bad in ["", "x", "1.", "-1", "1 ", "1.a;b", "1.é", "1.a\r\nx: y", "1,2"] {
            assert!(!is_position(bad), "{bad}");
        }
        assert!(!is_position(&format!("1.{}", "a".repeat(POSITION_BYTES_MAX))));
    }

    #[test]
    fn a_mark_is_of_one_user() {
        let value = cookie("ann", "12.5f3a9c01");
        assert_eq!(value.strip_prefix(&cookie("ann", "")), Some("12.5f3a9c01"));
        assert_eq!(value.strip_prefix(&cookie("bob", "")), None);
        assert!(!value.contains("ann"), "{value}");
    }
}
