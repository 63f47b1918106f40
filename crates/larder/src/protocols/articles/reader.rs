//! Shared by all ways to read an article: the right to read, the state that is answered from, revisions and their contents, and
//! caching.

use std::sync::Arc;

use account::{Object, Principal, Scope};
use article::{Article, ArticleName, Content as Facts, Revision, RevisionFacts};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use reply::Reply;
use state::stored::Stored;

use crate::app::App;
use crate::front::auth::Claim;
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};
use crate::front::{auth, page, serial};
use crate::published::contents::Content;

/// A page of a list or a history, where the request names no other size, and at most.
pub(crate) const PAGE: (usize, usize) = (100, 1_000);

/// A request that reads articles: the state that answers it, and its sender.
pub(crate) struct ReadRequest<'a> {
    pub(crate) app: &'a App,
    pub(crate) stored: &'a Stored,
    pub(crate) head: &'a Parts,
    pub(crate) principal: &'a Principal,
}

impl ReadRequest<'_> {
    /// The answer, also if it is a refusal: even a 404 depends on the state of the store, and the next write may add what is missing.
    pub(crate) fn answered(&self, outcome: Result<Response, HttpError>) -> Response {
        outcome.unwrap_or_else(|error| from_store(self.app, self.stored, error.into_response()))
    }
}

/// The state to answer from, and who reads, for a request that may.
pub(crate) async fn admitted(
    app: &App,
    head: &Parts,
    object: Object<'_>,
) -> Result<(Arc<Stored>, Principal), HttpError> {
    // If everybody may read, credentials are not checked, unless it is a draft.
    let is_draft = app.live_store.snapshot().is_some_and(|it| draft_of(&it, object).is_some());
    let principal = if app.articles.is_open && !is_draft {
        Principal::Anonymous
    } else {
        auth::principal_of(app, head).await?
    };
    check_reader(app, &principal, object)?;
    let stored = app.stored()?;
    check_draft(app, &stored, &principal, object)?;
    Ok((stored, principal))
}

/// The draft that a request asks for; `None` if it asks for something else.
fn draft_of<'stored>(stored: &'stored Stored, object: Object<'_>) -> Option<&'stored Arc<Article>> {
    let Object::Article(name) = object else { return None };
    stored.articles.article_named(name).filter(|article| article.is_draft())
}

/// Refuses senders who may not write a draft: for them it is not there.
///
/// # Errors
/// 404.
fn check_draft(
    app: &App,
    stored: &Stored,
    principal: &Principal,
    object: Object<'_>,
) -> Result<(), HttpError> {
    let Some(draft) = draft_of(stored, object) else { return Ok(()) };
    match sees_drafts(app, principal, object) {
        true => Ok(()),
        false => Err(HttpError::unknown_article(&draft.name)),
    }
}

/// Whether the sender may read this article while it is a draft.
fn sees_drafts(app: &App, principal: &Principal, object: Object<'_>) -> bool {
    app.config.article.acl_write.admits(principal, Scope::ArticleRead, object)
}

/// Whether the article is there for this sender.
pub(crate) fn is_there(app: &App, principal: &Principal, article: &Article) -> bool {
    let object = Object::Article(article.name.as_str());
    let may_read = check_reader(app, principal, object).is_ok();
    let is_hidden = article.is_draft() && !sees_drafts(app, principal, object);
    may_read && !is_hidden && !article.is_deleted()
}

/// Keeps caches from sharing an answer about a draft, even where everybody may read articles: `principal` is whom the answer was
/// made for, if that counted.
pub(crate) fn keep_private(mut response: Response, principal: &Principal) -> Response {
    if !matches!(principal, Principal::Anonymous) {
        response.headers_mut().insert(CACHE_CONTROL, caching(false, false));
    }
    response
}

/// The sender, if they may read.
///
/// # Errors
/// 401 and 403.
pub(crate) async fn reader(
    app: &App,
    stored: &Stored,
    claim: &Claim,
    object: Object<'_>,
) -> Result<Principal, HttpError> {
    let is_draft = draft_of(stored, object).is_some();
    let principal = match app.articles.is_open && !is_draft {
        true => Principal::Anonymous,
        false => claim.principal(app).await?,
    };
    check_reader(app, &principal, object)?;
    check_draft(app, stored, &principal, object)?;
    Ok(principal)
}

/// Admits senders who may read.
///
/// # Errors
/// 401 and 403.
pub(crate) fn check_reader(
    app: &App,
    principal: &Principal,
    object: Object<'_>,
) -> Result<(), HttpError> {
    if app.articles.is_open {
        return Ok(());
    }
    let readers = ("article.acl_read", &app.config.article.acl_read);
    auth::admit(readers, principal, Scope::ArticleRead, object, "read articles")
}

/// Whether this writer may read as well.
pub(crate) fn may_read(app: &App, principal: &Principal, name: &ArticleName) -> bool {
    let object = Object::Article(name.as_str());
    app.config.article.acl_read.admits(principal, Scope::ArticleRead, object)
}

/// How long an answer may be cached, and by whom. If not everybody may read, only the sender's browser may, and it revalidates
/// each time, so that the right is checked again.
pub(crate) fn caching(is_open: bool, is_immutable: bool) -> HeaderValue {
    HeaderValue::from_static(match (is_open, is_immutable) {
        (true, true) => "max-age=31536000, immutable",
        (true, false) => "no-cache",
        (false, _) => "private, no-cache",
    })
}

/// An answer that caches must revalidate, with the serial that it was made from.
pub(crate) fn from_store(app: &App, stored: &Stored, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, caching(app.articles.is_open, false));
    page::insert_vary(headers);
    serial::insert(headers, stored.serial);
    response
}

/// A list as JSON, with its tag and the serial of the state.
pub(crate) async fn json(
    app: &App,
    head: &Parts,
    stored: &Stored,
    body: Bytes,
) -> Result<Response, HttpError> {
    let reply = Reply::tagged("application/json", body);
    let conditions = Conditions::of(&head.method, &head.headers);
    Ok(from_store(app, stored, respond(reply, StatusCode::OK, conditions).await))
}

/// The revision with this number, or the latest one.
///
/// # Errors
/// 404.
pub(crate) fn revision<'stored>(
    stored: &'stored Stored,
    name: &ArticleName,
    revision: Option<Revision>,
) -> Result<&'stored Arc<RevisionFacts>, HttpError> {
    let article = stored.articles.article(name).ok_or_else(|| HttpError::unknown_article(name))?;
    let latest = article.highest();
    let found = match revision {
        None => article.latest(),
        Some(revision) => article.revision(revision),
    };
    found.ok_or_else(|| {
        let wanted = revision.unwrap_or(latest);
        HttpError::not_found(format!("`{name}` has no version {wanted}: its latest is {latest}"))
    })
}

/// The content of a revision.
///
/// # Errors
/// 410 for a revision that deleted or renamed the article.
pub(crate) fn content_of<'facts>(
    name: &ArticleName,
    facts: &'facts RevisionFacts,
) -> Result<&'facts Facts, HttpError> {
    facts.content().ok_or_else(|| {
        let (version, author, at) = (facts.revision, &facts.author, facts.at);
        if facts.redirect().is_some() {
            return HttpError::gone(format!(
                "what was `{name}` before was renamed as version {version}, by {author} at {at}"
            ));
        }
        HttpError::gone(format!(
            "`{name}` was deleted as version {version}, by {author} at {at}; earlier versions are \
                 at `/article/{name}/history`"
        ))
    })
}

/// The content, from memory or from the store.
pub(crate) async fn load(app: &App, facts: &Facts) -> Result<Arc<Content>, HttpError> {
    if let Some(content) = app.articles.contents.at_hand(&facts.digest) {
        return Ok(content);
    }
    let content =
        app.articles.contents.load(&app.store.blobs, &facts.digest).await.map_err(unreadable)?;
    content.ok_or_else(|| lost(app, facts))
}

/// All bytes of a content, which the caller knows to be few enough.
pub(crate) async fn bytes(app: &App, facts: &Facts) -> Result<Bytes, HttpError> {
    if app.articles.contents.keeps(facts.size_bytes) {
        return Ok(load(app, facts).await?.body().identity().clone());
    }
    let bytes = app.store.blobs.bytes(facts.digest, facts.size_bytes).await.map_err(unreadable)?;
    bytes.ok_or_else(|| lost(app, facts))
}

pub(crate) fn unreadable(error: store::BlobError) -> HttpError {
    tracing::error!(%error, "the content of an article cannot be read");
    if matches!(error, store::BlobError::Damaged { .. }) {
        return HttpError::damaged("content");
    }
    HttpError::unavailable("the content cannot be read from the store now; it has been logged", 5)
}

/// The answer where a content that a record names is not in the store, which is counted.
pub(crate) fn lost(app: &App, facts: &Facts) -> HttpError {
    app.store.blobs.note(facts.digest, store::blobs::BlobVerdict::Missing);
    tracing::error!(digest = %facts.digest, "the content of an article is missing from the store");
    HttpError::lost("content")
}
