//! Reading articles: the latest revision, any revision, histories and lists.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use account::{Object, Principal};
use article::{
    ArticleName, ArticlePath, Content as Facts, ListQuery, Page, RevisionFacts, Target, render,
};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    RANGE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use net::Answered;
use record::Serial;
use reply::Encoding;
use state::live::SnapshotGuard;
use state::stored::Stored;

use super::parse_path;
use super::reader::{
    PAGE, ReadRequest, admitted, caching, content_of, from_store, json, keep_private, load, lost,
    may_read, revision, unreadable,
};
use super::search::{HITS, OFFSET_MAX, rendered, search};
use super::{diff, folder, redirect};
use crate::app::App;
use crate::front::conditional::{
    RangeAnswer, check_expected, content_range, is_unmodified, last_modified, unsatisfiable, wanted,
};
use crate::front::error::HttpError;
use crate::front::negotiation::{accepted_encoding, has_any, has_known_tag, listed};
use crate::front::parameters::{parameters, parsed};
use crate::front::request::Parts;
use crate::front::respond::blob_range;
use crate::front::serial;
use crate::published::article_texts::Hits;
use crate::published::contents::{Content, RevisionHead};
use crate::routes::path::decoded;

/// The revision of the body, for clients that want no more than its number.
const X_ARTICLE_VERSION: HeaderName = HeaderName::from_static("x-article-version");

/// Anybody may have written an article: a page of it must not act as this server's.
const SANDBOX: &str = "sandbox allow-downloads allow-forms allow-popups allow-scripts";

/// Media types that no browser makes a page with scripts of: they need no sandbox.
const INERT: [&str; 10] = [
    "text/plain",
    "text/markdown",
    "text/csv",
    "application/json",
    "application/octet-stream",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
];

/// Answers nearly all requests: for one revision, whole, from memory, with headers that are finished too. `rest` is what
/// follows `/article/`.
pub(crate) fn read_article_now(
    app: &App,
    head: &Parts,
    rest: &str,
    is_for_people: bool,
) -> Option<Answered> {
    if !is_plain(app, head) {
        return None;
    }
    let rest = decoded(rest).ok()?;
    let stored = app.live_store.snapshot()?;
    let (facts, is_latest) = found(&stored, &rest)?;
    // People get a page of the latest revision.
    if is_latest && is_for_people {
        return None;
    }
    let content_facts = facts.content()?;
    let content = app.articles.contents.at_hand(&content_facts.digest)?;
    let revision = RevisionResponse { facts, content: content_facts, is_latest, is_open: true };
    Some(Answered::Finished(revision.whole(&head.headers, &content, stored.serial)))
}

/// The state to answer from, if a request without conditions asks for an article that is there, at its name.
pub(crate) fn latest_now(app: &App, head: &Parts, rest: &str) -> Option<SnapshotGuard<Stored>> {
    let rest = decoded(rest).ok().filter(|_| is_plain(app, head))?;
    let stored = app.live_store.snapshot()?;
    found(&stored, &rest).filter(|(_, is_latest)| *is_latest)?;
    Some(stored)
}

/// Whether a request asks for a whole article that everybody may read, without a condition.
fn is_plain(app: &App, head: &Parts) -> bool {
    let conditions = [
        &RANGE,
        &IF_MODIFIED_SINCE,
        &IF_MATCH,
        &IF_UNMODIFIED_SINCE,
        &serial::X_LARDER_SERIAL,
        &serial::X_DEVPI_SERIAL,
    ];
    head.uri.query().is_none() && app.articles.is_open && !has_any(&head.headers, conditions)
}

/// The revision that a path in its canonical spelling names, and whether as the latest. It is looked up unchecked: only valid
/// names are found, and none ends like a page of an article.
fn found<'stored>(
    stored: &'stored Stored,
    rest: &str,
) -> Option<(&'stored Arc<RevisionFacts>, bool)> {
    // Who reads a draft counts.
    let article = |name| stored.articles.article_named(name).filter(|it| !it.is_draft());
    if let Some(article) = article(rest) {
        return Some((article.latest()?, true));
    }
    let (name, revision) = rest.rsplit_once('/')?;
    let facts = article(name)?.revision(revision.parse().ok()?)?;
    Some((facts, false))
}

/// GET and HEAD of a path below `/article/`, for programs.
pub(crate) async fn read_article(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    if let Some(path) = head.uri.path().strip_suffix('/') {
        return folder::read(app, head, path).await;
    }
    let path = parse_path(head.uri.path())?;
    let object = Object::Article(path.name.as_str());
    let (stored, principal) = admitted(app, head, object).await?;
    let reading = ReadRequest { app, stored: &stored, head, principal: &principal };
    let response = match redirect::answer(&reading, &path) {
        Some(moved) => from_store(app, &stored, reading.answered(moved)),
        None => in_bytes(&reading, &path).await,
    };
    Ok(keep_private(response, &principal))
}

/// The bytes of a revision, or JSON about the article.
pub(crate) async fn in_bytes(reading: &ReadRequest<'_>, path: &ArticlePath) -> Response {
    let &ReadRequest { app, stored, head, .. } = reading;
    let answer = match path.target {
        Target::Latest | Target::Version(_) => body(reading, path).await,
        Target::History => history(reading, &path.name).await,
        Target::Diff => diff::diff(app, stored, head, &path.name).await,
    };
    reading.answered(answer)
}

/// Whether the query is `raw`, with which a browser gets the bytes.
pub(crate) fn is_raw(head: &Parts) -> bool {
    matches!(head.uri.query(), Some("raw" | "raw="))
}

async fn body(reading: &ReadRequest<'_>, path: &ArticlePath) -> Result<Response, HttpError> {
    let &ReadRequest { app, stored, head, .. } = reading;
    if !is_raw(head) {
        parameters::<0>(head.uri.query(), [])?;
    }
    let (asked, is_latest) = match path.target {
        Target::Version(revision) => (Some(revision), false),
        _ => (None, true),
    };
    if is_latest && stored.articles.article(&path.name).is_none() {
        return Err(folder::missing(reading, &path.name));
    }
    let facts = revision(stored, &path.name, asked)?;
    let content_facts = content_of(&path.name, facts)?;
    let shown = RevisionResponse {
        facts,
        content: content_facts,
        is_latest,
        is_open: app.articles.is_open,
    };
    let etag = facts.tag.header_value(Encoding::Identity);
    let request = &head.headers;
    let is_told = || !is_latest || is_newest(stored, &path.name, facts);
    let is_dated = has_any(request, [&IF_MODIFIED_SINCE, &IF_UNMODIFIED_SINCE, &IF_RANGE]);
    // Who names a date that several revisions share may have an earlier one (RFC 9110, 8.8.2.2).
    let later = if !is_dated || is_told() { Duration::ZERO } else { Duration::from_secs(1) };
    let modified_at = Some(SystemTime::from(facts.at) + later);
    // A part is cut out of the bytes as they are.
    let is_matched = |tags: &str| match request.contains_key(RANGE) {
        true => reply::is_matched(tags, |tag| tag == etag.trim_matches('"')),
        false => facts.tag.is_matched_by(tags),
    };
    check_expected(request, is_matched, modified_at)?;
    let is_known = match listed(request, IF_NONE_MATCH) {
        Some(tags) => facts.tag.is_known_by(&tags),
        None => is_unmodified(request, modified_at),
    };
    if is_known {
        let content = app.articles.contents.at_hand(&content_facts.digest);
        return Ok(shown.not_modified(request, content.as_deref(), stored.serial));
    }
    let size_bytes = content_facts.size_bytes;
    let part = match wanted(request, &etag, modified_at, size_bytes) {
        RangeAnswer::Whole => None,
        RangeAnswer::Part { start, end } => Some((start, end)),
        RangeAnswer::Unsatisfiable => {
            return Ok(from_store(app, stored, unsatisfiable(size_bytes)));
        }
    };
    let content = if app.articles.contents.keeps(size_bytes) {
        Some(load(app, content_facts).await?)
    } else {
        None
    };
    let mut response = match (&content, part) {
        (Some(content), None) => return Ok(shown.whole(request, content, stored.serial)),
        (Some(content), Some((start, end))) => {
            let bytes = content.body().identity();
            Body::from(bytes.slice(start as usize..end as usize)).into_response()
        }
        (None, part) => {
            let (start, end) = part.unwrap_or((0, size_bytes));
            let blob = app.store.blobs.open_blob(content_facts.digest).await.map_err(unreadable)?;
            let blob = blob.ok_or_else(|| lost(app, content_facts))?;
            blob_range(&blob, start..end)
        }
    };
    shown.insert_headers(
        response.headers_mut(),
        Encoding::Identity,
        content.as_deref(),
        stored.serial,
    );
    if let Some((start, end)) = part {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        content_range(response.headers_mut(), start, end, size_bytes);
    }
    Ok(response)
}

/// Whether the date of the latest revision tells it from all others: it names a second, and clocks are set back.
fn is_newest(stored: &Stored, name: &ArticleName, latest: &RevisionFacts) -> bool {
    let is_earlier = |facts: &Arc<RevisionFacts>| facts.at.as_second() < latest.at.as_second();
    let revisions = stored.articles.article(name).map(|article| article.revisions());
    revisions.is_none_or(|all| all.rev().skip(1).all(is_earlier))
}

/// A revision that is being shown.
struct RevisionResponse<'stored> {
    facts: &'stored Arc<RevisionFacts>,
    content: &'stored Facts,
    /// Whether as the latest, rather than under its number.
    is_latest: bool,
    /// Whether everybody may read it.
    is_open: bool,
}

impl RevisionResponse<'_> {
    /// The response with a whole content, in the encoding that suits the client, or 304.
    fn whole(&self, request: &HeaderMap, content: &Content, serial: Serial) -> Response {
        if has_known_tag(request, |tags| self.facts.tag.is_known_by(tags)) {
            return self.not_modified(request, Some(content), serial);
        }
        let (encoding, bytes) = content.body().best(accepted_encoding(request));
        let mut response = Response::new(Body::from(bytes.clone()));
        *response.headers_mut() = self.headers(encoding, content, serial);
        response
    }

    /// All headers of a response with this revision, made once for each state of the store.
    fn headers(&self, encoding: Encoding, content: &Content, serial: Serial) -> HeaderMap {
        let place = content.head(encoding);
        let known = place.load();
        if let Some(head) = known.as_ref()
            && Arc::ptr_eq(&head.facts, self.facts)
            && head.serial == serial
            && head.is_latest == self.is_latest
        {
            return head.headers.clone();
        }
        let mut headers = HeaderMap::with_capacity(12);
        self.insert_headers(&mut headers, encoding, Some(content), serial);
        let head = RevisionHead {
            facts: self.facts.clone(),
            is_latest: self.is_latest,
            serial,
            headers: headers.clone(),
        };
        place.store(Some(Arc::new(head)));
        headers
    }

    /// 304, with the tag of the form that would have been sent, as far as that is known.
    fn not_modified(
        &self,
        request: &HeaderMap,
        content: Option<&Content>,
        serial: Serial,
    ) -> Response {
        let encoding = match content {
            Some(content) => content.body().best(accepted_encoding(request)).0,
            // The client has the form whose tag it sent.
            None => {
                let tags = listed(request, IF_NONE_MATCH).unwrap_or_default();
                let is_named =
                    |&encoding: &Encoding| tags.contains(&self.facts.tag.header_value(encoding));
                [Encoding::Gzip, Encoding::Zstd]
                    .into_iter()
                    .find(is_named)
                    .unwrap_or(Encoding::Identity)
            }
        };
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        let headers = response.headers_mut();
        self.insert_headers(headers, encoding, content, serial);
        // A client that has the body knows the headers that describe it (RFC 9110, 15.4.5).
        for name in [
            CONTENT_TYPE,
            CONTENT_ENCODING,
            CONTENT_SECURITY_POLICY,
            ACCEPT_RANGES,
            X_CONTENT_TYPE_OPTIONS,
        ] {
            headers.remove(name);
        }
        response
    }

    fn insert_headers(
        &self,
        headers: &mut HeaderMap,
        encoding: Encoding,
        content: Option<&Content>,
        serial: Serial,
    ) {
        let facts = self.facts;
        let texts = [
            (CONTENT_TYPE, self.content.content_type.as_str()),
            (ETAG, &facts.tag.header_value(encoding)),
        ];
        for (name, value) in texts {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        headers.insert(LAST_MODIFIED, last_modified(SystemTime::from(facts.at)));
        if let Some(name) = encoding.header_value() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        headers.insert(CACHE_CONTROL, caching(self.is_open, !self.is_latest));
        let varies_by = match (self.is_latest, content.is_none_or(Content::has_forms)) {
            // At the name, browsers get a page.
            (true, true) => Some("Accept, Accept-Encoding"),
            (true, false) => Some("Accept"),
            (false, true) => Some("Accept-Encoding"),
            (false, false) => None,
        };
        if let Some(varies_by) = varies_by {
            headers.insert(VARY, HeaderValue::from_static(varies_by));
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if !INERT.contains(&self.content.content_type.essence().as_str()) {
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
        }
        headers.insert(X_ARTICLE_VERSION, HeaderValue::from(facts.revision.0));
        serial::insert(headers, serial);
    }
}

/// `/article/{name}/history`
async fn history(shown: &ReadRequest<'_>, name: &ArticleName) -> Result<Response, HttpError> {
    let &ReadRequest { app, stored, head, principal } = shown;
    let [before, limit] = parameters(head.uri.query(), ["before", "limit"])?;
    let before = parsed("before", before, "a version")?;
    let article = stored.articles.article(name).ok_or_else(|| HttpError::unknown_article(name))?;
    let versions = stored.articles.history(name, before, page_size(limit)?);
    let names = |other: &ArticleName| may_read(app, principal, other);
    json(app, head, stored, render::history(article, &versions, &names)).await
}

/// What a request for `/articles` asks for, and what it finds.
pub(crate) struct Listing {
    pub(crate) prefix: String,
    pub(crate) q: String,
    pub(crate) text: String,
    pub(crate) tag: String,
    pub(crate) limit: usize,
    pub(crate) with_deleted: bool,
    pub(crate) found: ListResult,
}

/// One page of a list, or what a search for words finds.
pub(crate) enum ListResult {
    Page(Page),
    /// Without the first ones, which are this many.
    Hits(Hits, usize),
}

/// `/articles`, for programs.
pub(crate) async fn list_articles(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (stored, principal, listing) = listing(app, head).await?;
    let names = |other: &ArticleName| may_read(app, &principal, other);
    let listed = match &listing.found {
        ListResult::Page(page) => render::list(page, &names),
        ListResult::Hits(hits, _) => rendered(hits, &names),
    };
    json(app, head, &stored, listed).await
}

/// Finds what a request for `/articles` lists, for a sender who may read it.
pub(crate) async fn listing(
    app: &Arc<App>,
    head: &Parts,
) -> Result<(Arc<Stored>, Principal, Listing), HttpError> {
    let names = ["prefix", "q", "after", "limit", "deleted", "text", "tag", "offset"];
    let given = parameters(head.uri.query(), names);
    // The right to read is checked before the query.
    let prefix = given.as_ref().ok().and_then(|[prefix, ..]| prefix.as_deref());
    let listed = Object::Articles(prefix.unwrap_or_default());
    let (stored, principal) = admitted(app, head, listed).await?;
    let [prefix, q, after, limit, deleted, text, tag, offset] = given?;
    let prefix = prefix.unwrap_or_default();
    if let Some(tag) = tag.as_deref().and_then(article::tag) {
        let has_text = text.is_some_and(|text| !text.trim().is_empty());
        if q.is_some() || deleted.is_some() || offset.is_some() || has_text {
            let detail = "`tag` stands with `prefix`, `after` and `limit` only";
            return Err(HttpError::bad_request(detail));
        }
        let limit = page_size(limit)?;
        let found = stored.articles.tagged(&tag, &prefix, after.as_deref());
        let is_open = app.articles.is_open;
        let found = found.filter(|it| is_open || may_read(app, &principal, &it.name));
        let found = ListResult::Page(Page::of(found, limit));
        let (q, text) = (String::new(), String::new());
        let listing = Listing { prefix, q, text, tag, limit, with_deleted: false, found };
        return Ok((stored, principal, listing));
    }
    let tag = String::new();
    if offset.is_some() && text.as_ref().is_none_or(|text| text.trim().is_empty()) {
        return Err(HttpError::bad_request(
            "`offset` stands with `text`; elsewhere `after` names the next part",
        ));
    }
    // A form sends the field that is empty, too.
    if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
        if q.is_some() || after.is_some() || deleted.is_some() {
            let detail = "`text` stands with `prefix`, `offset` and `limit` only: what it finds is in the order of \
                          relevance";
            return Err(HttpError::bad_request(detail));
        }
        let limit = size(limit, HITS)?;
        let state = (&stored.articles, stored.serial);
        let expected = format!("a whole number from 0 to {OFFSET_MAX}");
        let offset = parsed::<usize>("offset", offset, &expected)?.unwrap_or(0);
        if offset > OFFSET_MAX {
            let detail =
                format!("`{offset}` is no value of the parameter `offset`: expected {expected}");
            return Err(HttpError::bad_request(detail));
        }
        let part = (offset, limit);
        let found =
            ListResult::Hits(search(app, state, &text, part, prefix.clone()).await?, offset);
        let q = String::new();
        let listing = Listing { prefix, q, text, tag, limit, with_deleted: false, found };
        return Ok((stored, principal, listing));
    }
    let q = q.unwrap_or_default();
    let limit = page_size(limit)?;
    let with_deleted = parsed("deleted", deleted, "`true` or `false`")?.unwrap_or(false);
    let query = ListQuery { prefix: &prefix, q: &q, after: after.as_deref(), limit, with_deleted };
    let found = ListResult::Page(stored.articles.list(&query));
    let text = String::new();
    let listing = Listing { prefix, q, text, tag, limit, with_deleted, found };
    Ok((stored, principal, listing))
}

fn page_size(limit: Option<String>) -> Result<usize, HttpError> {
    size(limit, PAGE)
}

/// The `limit` of a request, or `usual` without one; at most `most`.
fn size(limit: Option<String>, (usual, most): (usize, usize)) -> Result<usize, HttpError> {
    let expected = format!("a whole number from 1 to {most}");
    let limit = parsed::<usize>("limit", limit, &expected)?.unwrap_or(usual);
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("`{limit}` is no value of the parameter `limit`: expected {expected}");
    Err(HttpError::bad_request(detail))
}
