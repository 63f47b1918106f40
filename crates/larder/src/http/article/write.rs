//! Writing articles: new texts, deletions, and undoing either.
//!
//! body -> blob, staged -> change, checked against the snapshot -> blob kept -> commit -> visible -> acknowledged. If another
//! write came first, the writer gets the latest revision and, if both are texts, a proposal of both changes merged.

mod outcome;
mod received;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use account::{Object, Principal, Scope};
use article::{
    Announced, ArticleName, Change, ContentType, Delete, Limits, Put, Restore, Revision,
    WriteError, resolve_base,
};
use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use jiff::Timestamp;
use resources::bodies::Holder;
use state::stored::{Basis, Stored};

use self::outcome::overtaken;
use self::received::{Received, check_framing, receive};
use super::{reading, text_of};
use crate::app::App;
use crate::cache::contents::Content;
use crate::http::error::HttpError;
use crate::http::parameters::{parameters, parsed};
use crate::http::{auth, body, negotiation};

pub(super) use self::outcome::{FailedWrite, Written, answered, refused, written};
pub(super) use self::received::{check_whole, unwritable};

/// The version that a write was made from, as its request says.
#[derive(Default)]
pub(super) struct Base {
    /// The version in the path.
    pub(super) version: Option<Revision>,
    /// The values of the headers with these names.
    pub(super) if_match: Option<String>,
    pub(super) if_none_match: Option<String>,
}

/// A text that is to be stored.
pub(super) struct NewText {
    pub(super) name: ArticleName,
    pub(super) base: Base,
    /// Its media type, where that is said; else it is that of the base, where there is one.
    pub(super) content_type: Option<String>,
    pub(super) comment: String,
    pub(super) body: Body,
    /// Whose memory budget the body counts in; `None` if the body is in memory and counted already.
    pub(super) holder: Option<Holder>,
}

impl Base {
    pub(super) fn of(headers: &HeaderMap, version: Option<Revision>) -> Base {
        let listed = |name| negotiation::listed(headers, name).map(Cow::into_owned);
        Base { version, if_match: listed(IF_MATCH), if_none_match: listed(IF_NONE_MATCH) }
    }

    pub(super) fn resolve(
        &self,
        stored: &Stored,
        name: &ArticleName,
    ) -> Result<Revision, WriteError> {
        let (if_match, if_none_match) = (self.if_match.as_deref(), self.if_none_match.as_deref());
        resolve_base(&stored.articles, name, self.version, if_match, if_none_match)
    }
}

/// PUT and POST: a new text; `version` is the one in the path, if any. `?restore=N` takes the text of that version instead of
/// the body.
pub(super) async fn put(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
    body: Body,
) -> Result<Response, HttpError> {
    let writer = writer(app, &head.headers, &name).await?;
    let [comment, restored] = parameters(head.uri.query(), ["comment", "restore"])?;
    let restored: Option<Revision> = parsed("restore", restored, "a version")?;
    let base = Base::of(&head.headers, version);
    let comment = comment.unwrap_or_default();
    let outcome = match restored {
        Some(from) => restore(app, &writer, name, base, from, comment).await,
        None => {
            check_framing(app, &head.headers)?;
            if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
                let detail = "there is no body: the text was expected, as `curl --data-binary @FILE` sends it; an empty \
                              one has `Content-Length: 0`";
                return Err(bad(detail));
            }
            let said = text_of(&head.headers, CONTENT_TYPE);
            let said = said.filter(|said| !said.eq_ignore_ascii_case(UNSAID));
            let content_type = said.map(Cow::into_owned);
            let holder = Some(body::holder(app, head, &writer));
            let new = NewText { name, base, content_type, comment, body, holder };
            store(app, &writer, new).await
        }
    };
    answered(outcome)
}

/// DELETE: history stays, and a later write brings the article back.
pub(super) async fn delete(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
) -> Result<Response, HttpError> {
    let writer = writer(app, &head.headers, &name).await?;
    let [comment] = parameters(head.uri.query(), ["comment"])?;
    let base = Base::of(&head.headers, version);
    answered(deleted(app, &writer, &name, base, &comment.unwrap_or_default()).await)
}

/// Deletes an article for `writer`, who saw version `base`.
///
/// # Errors
/// As [`store()`].
pub(super) async fn delete_for(
    app: &Arc<App>,
    writer: &Principal,
    name: &ArticleName,
    base: Revision,
    comment: &str,
) -> Result<Written, FailedWrite> {
    let base = Base { version: Some(base), ..Base::default() };
    deleted(app, writer, name, base, comment).await
}

async fn deleted(
    app: &Arc<App>,
    writer: &Principal,
    name: &ArticleName,
    base: Base,
    comment: &str,
) -> Result<Written, FailedWrite> {
    let (author, at) = (author(writer), Timestamp::now());
    let change = |base| {
        let (name, author, comment) = (name.clone(), author.clone(), comment.to_owned());
        Change::Delete(Delete { name, base, author, comment, at })
    };
    commit(app, writer, name, &base, change, None).await
}

async fn restore(
    app: &Arc<App>,
    writer: &Principal,
    name: ArticleName,
    base: Base,
    from: Revision,
    comment: String,
) -> Result<Written, FailedWrite> {
    auth::admit_to_disk(app, writer).await?;
    let is_there = |stored: &Stored| {
        stored.articles.revision(&name, from).is_some_and(|it| it.content().is_some())
    };
    let is_refused = |stored: &Stored| {
        base.resolve(stored, &name).is_err_and(|error| error.is_about_state()) || !is_there(stored)
    };
    let stored = current(app, is_refused).await?;
    let may_read = reading::may_read(app, writer, &name);
    if let Err(error) = base.resolve(&stored, &name) {
        return Err(refused(error, None, &stored, (may_read, app.articles_are_open())));
    }
    // Its blob gets a new name-giver, so that no sweep takes it before.
    let content = stored.articles.revision(&name, from).and_then(|facts| facts.content());
    if let Some(content) = content
        && !app.store.blobs.touch(content.digest).await.map_err(unwritable)?
    {
        return Err(reading::lost(app, content).into());
    }
    drop(stored);
    let (author, at) = (author(writer), Timestamp::now());
    let change = |base| {
        let (name, author, comment) = (name.clone(), author.clone(), comment.clone());
        Change::Restore(Restore { name, base, from: Some(from), author, comment, at })
    };
    commit(app, writer, &name, &base, change, None).await
}

/// Stores a text for `writer`.
///
/// # Errors
/// What refuses or prevents it. 401 and 403 also for who lost the right while the body came.
pub(super) async fn store(
    app: &Arc<App>,
    writer: &Principal,
    new: NewText,
) -> Result<Written, FailedWrite> {
    let NewText { name, base, content_type, comment, body, holder } = new;
    auth::admit_to_disk(app, writer).await?;
    let author = author(writer);
    let announced = |base| Announced { name: &name, base, author: &author, comment: &comment };
    let is_refused = |stored: &Stored| {
        let base = base.resolve(stored, &name);
        let checked = base.and_then(|base| announced(base).check(&stored.articles, &limits(app)));
        checked.is_err_and(|error| error.is_about_state())
    };
    let stored = current(app, is_refused).await?;
    let may_read = reading::may_read(app, writer, &name);
    let sight = (may_read, app.articles_are_open());
    let (revision, failed) = match base.resolve(&stored, &name) {
        Ok(revision) => (revision, None),
        // A client that named the revision it saw is shown the conflict: the latest text, and its own.
        Err(error) => match error.stale().map(|stale| stale.base) {
            Some(revision) if may_read && revision != Revision::NONE => (revision, Some(error)),
            _ => return Err(refused(error, None, &stored, sight)),
        },
    };
    let at = Timestamp::now();
    // What can be refused without the content is refused before the body arrives.
    if let Err(error) = announced(revision).check(&stored.articles, &limits(app))
        && error.stale().is_none()
    {
        return Err(refused(error, None, &stored, sight));
    }
    let base_type = stored.articles.revision(&name, revision).and_then(|facts| facts.content());
    let base_type = base_type.map(|content| content.content_type.clone());
    drop(stored);
    // The media type: the one of the request, else the one of the base, else the one of the name's extension.
    let known = content_type.as_deref().or(base_type.as_ref().map(ContentType::as_str));
    let guessed = article::of_name(&name).filter(|_| known.is_none());
    let received = receive(app, holder, known, guessed.as_ref(), body).await?;
    if let Some(error) = failed {
        let basis = app.live_store.basis(writer)?;
        let may_read = reading::may_read(app, check_writer(app, &basis, &name)?, &name);
        return Err(overtaken(app, basis.stored(), error, Some(&received), may_read).await);
    }
    let content = received.facts.clone();
    let change = |base| {
        let (name, author, comment) = (name.clone(), author.clone(), comment.clone());
        Change::Put(Put { name, base, content: content.clone(), author, comment, at })
    };
    commit(app, writer, &name, &base, change, Some(received)).await
}

/// The state that a write is checked against before its content arrives. A process may be behind the store: a state that refuses
/// the write must be the store's latest.
///
/// # Errors
/// 503 if the store is further, or cannot be asked.
pub(super) async fn current(
    app: &App,
    is_refused: impl Fn(&Stored) -> bool,
) -> Result<Arc<Stored>, HttpError> {
    let stored = auth::stored(app)?;
    let patience = app.config.store.wait_for_serial;
    if is_refused(&stored) && app.live_store.catch_up(stored.serial, patience).await? {
        return auth::stored(app);
    }
    Ok(stored)
}

/// The sender of the request, if they may write the article.
///
/// # Errors
/// 401 and 403.
pub(super) async fn writer(
    app: &App,
    headers: &HeaderMap,
    name: &ArticleName,
) -> Result<Principal, HttpError> {
    let principal = auth::principal(app, headers).await?;
    admit(app, &principal, name)?;
    Ok(principal)
}

/// Checks the writer's rights again, in the state that the write is decided on.
pub(super) fn check_writer<'basis>(
    app: &App,
    basis: &'basis Basis,
    name: &ArticleName,
) -> Result<&'basis Principal, HttpError> {
    let principal = auth::still(basis)?;
    admit(app, principal, name)?;
    Ok(principal)
}

/// Admits principals who may write the article.
///
/// # Errors
/// 401 and 403.
pub(super) fn admit(app: &App, principal: &Principal, name: &ArticleName) -> Result<(), HttpError> {
    let writers = ("article.acl_write", &app.config.article.acl_write);
    let object = Object::Article(name.as_str());
    auth::admit(writers, principal, Scope::ArticleWrite, object, "write articles")
}

pub(super) fn author(writer: &Principal) -> String {
    writer.user_name().map_or_else(|| "anonymous".to_owned(), ToString::to_string)
}

pub(super) fn limits(app: &App) -> Limits {
    Limits { content_bytes_max: app.config.article.body_bytes_max, ..Limits::default() }
}

fn bad(error: impl std::fmt::Display) -> HttpError {
    HttpError::bad_request(error.to_string())
}

/// The media type that clients such as curl send by default.
const UNSAID: &str = "application/x-www-form-urlencoded";

/// Checks and commits, again whenever another write came first. Each time it also checks whether `writer` may write, and the
/// base that the request named: both must hold at the commit.
async fn commit(
    app: &Arc<App>,
    writer: &Principal,
    name: &ArticleName,
    base: &Base,
    change: impl Fn(Revision) -> Change,
    mut received: Option<Received>,
) -> Result<Written, FailedWrite> {
    let staged = received.as_mut().and_then(|received| received.staged.take());
    // The first decision that holds keeps it.
    let staged = Mutex::new(staged);
    let (staged, received, change) = (&staged, received.as_ref(), &change);
    let patience = app.config.store.wait_for_serial;
    let deciding = app.live_store.decided_async(writer, patience, |basis| async move {
        let may_read = reading::may_read(app, check_writer(app, &basis, name)?, name);
        let stored = basis.stored();
        let checked = base.resolve(stored, name);
        let checked = checked.and_then(|base| change(base).check(&stored.articles, &limits(app)));
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => {
                return Err(overtaken(app, stored, error, received, may_read).await);
            }
        };
        let latest = stored.articles.latest(name).and_then(|facts| facts.content());
        let is_hot = latest.is_some_and(|it| app.contents.at_hand(&it.digest).is_some());
        let staged = staged.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(staged) = staged {
            let digest = staged.digest;
            staged.persist().await.map_err(unwritable)?;
            let text = received.and_then(|received| received.bytes.clone());
            if let Some(text) = text.filter(|text| is_hot && app.contents.keeps(text.len() as u64))
            {
                // The next reads want the new text: keep it in memory.
                let app = app.clone();
                tokio::task::spawn_blocking(move || {
                    app.contents.insert(digest, Content::new(text))
                });
            }
        }
        Ok::<_, FailedWrite>((Some(checked.batch), (checked.revision, may_read)))
    });
    let ((revision, may_read), serial) = deciding.await?;
    let sight = (may_read, app.articles_are_open());
    written(app, name, revision, serial.unwrap_or_default(), sight)
}
