//! Writes: the request, the check against a snapshot, and the batch that carries it out.
//!
//! A write names the revision that it was made from. If that is no longer the latest, someone else wrote in between;
//! the writer learns what, by whom and when, and overwrites nothing. The batch requires that the next revision is
//! absent and the latest present: a snapshot that is behind the store cannot lead to a wrong write, only to a
//! mismatch, after which the caller checks again.

mod refusal;
mod rename;

use std::sync::Arc;

use ::record::{Batch, Expected, Key, Serial};
use jiff::Timestamp;
use reply::{is_listed, listed_tags};

use crate::attachment::{self, AttachmentAct, AttachmentChange, attachments_key};
use crate::record::{key, render};
use crate::tag::RevisionTag;
use crate::{Article, ArticleName, Content, Kind, Revision, RevisionFacts, Snapshot};

use self::rename::rename;

pub use self::refusal::{StaleWrite, WriteError};
pub use self::rename::{RECORDS_MAX as RENAMED_RECORDS_MAX, Redirect};

/// Bounds on what a write may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes in an article.
    pub content_bytes_max: u64,
    /// Most bytes in a comment.
    pub comment_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { content_bytes_max: 16 << 20, comment_bytes_max: 2_000 }
    }
}

/// A write of an article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The article.
    pub name: ArticleName,
    /// The revision that the text was made from, or that the writer saw when deciding; [`Revision::NONE`] creates the article.
    pub base: Revision,
    /// Who writes: 1 to 255 bytes on one line.
    pub author: String,
    /// Why; may be empty. White space around it is dropped.
    pub comment: String,
    /// The current time; kept in whole microseconds.
    pub at: Timestamp,
    /// What is done.
    pub act: WriteAction,
}

/// What a write does to the article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// Gives it this text, whose blob is stored before the batch is committed.
    Put(Content),
    /// Deletes it: the name is empty from then on, its history stays.
    Delete,
    /// Makes the content of this revision the latest again, or of the last one with a content. This undoes a deletion, or later
    /// texts.
    Restore(Option<Revision>),
    /// Gives it this name: all revisions move there, and the old name redirects. The result names the article by its new name; the
    /// caller touches the blobs of all its revisions before the commit.
    Rename(ArticleName),
}

/// A write that passed its checks against a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedWrite {
    /// The batch to commit.
    pub batch: Batch,
    /// The article.
    pub name: ArticleName,
    /// The number of the new revision.
    pub revision: Revision,
    /// The key of the new revision's record: if the commit reports a mismatch on it, someone else was first.
    pub key: Key,
    /// The new revision's entity tag.
    pub tag: RevisionTag,
}

/// Most bytes in an author's name.
const AUTHOR_BYTES_MAX: usize = 255;

/// The base that a request names: by the version in its URL, by the tags in `If-Match`, or by `If-None-Match: *`,
/// which creates an article. If a request names several, all must hold.
///
/// # Errors
/// [`WriteError::BaseMissing`] if the request names no base; [`WriteError::Precondition`] if no tag is that of the
/// latest revision, or if the article exists in spite of `If-None-Match: *`; [`WriteError::NotFound`] if tags are
/// given for an article that does not exist. A version in the URL is checked by [`Change::check`].
pub fn resolve_base(
    snapshot: &Snapshot,
    name: &ArticleName,
    version: Option<Revision>,
    if_match: Option<&str>,
    if_none_match: Option<&str>,
) -> Result<Revision, WriteError> {
    let latest = snapshot.latest(name);
    let is_creation = if_none_match.is_some_and(|value| is_listed(value, |_| false));
    let refused = |latest: &Arc<RevisionFacts>, base| {
        let stale = StaleWrite {
            name: name.clone(),
            base,
            latest: latest.clone(),
            has_same_content: false,
        };
        Err(WriteError::Precondition(Box::new(stale)))
    };
    if is_creation && let Some(latest) = latest.filter(|latest| !latest.is_deleted()) {
        return refused(latest, version.unwrap_or_default());
    }
    let latest_revision = latest.map_or(Revision::NONE, |latest| latest.revision);
    if let Some(if_match) = if_match {
        let Some(latest) = latest else {
            return Err(WriteError::NotFound { name: name.clone() });
        };
        // A deletion has no tag to match.
        let is_match = !latest.is_deleted() && latest.tag.is_matched_by(if_match);
        if !is_match {
            let named = listed_tags(if_match)
                .filter_map(|listed| RevisionTag::parse(listed.tag))
                .filter_map(|tag| snapshot.revision(name, tag.revision).filter(|it| it.tag == tag))
                .map(|facts| facts.revision)
                .max();
            return refused(latest, version.or(named).unwrap_or_default());
        }
    }
    match version {
        Some(version) => Ok(version),
        None if is_creation || if_match.is_some() => Ok(latest_revision),
        None => Err(WriteError::BaseMissing { name: name.clone() }),
    }
}

/// A text that has not arrived yet: what is known of it without its content.
#[derive(Clone, Copy, Debug)]
pub struct AnnouncedText<'text> {
    /// The article.
    pub name: &'text ArticleName,
    /// The revision that the text was made from.
    pub base: Revision,
    /// Who writes.
    pub author: &'text str,
    /// Why.
    pub comment: &'text str,
}

impl AnnouncedText<'_> {
    /// Checks all that [`Change::check`] checks of a [`WriteAction::Put`], except what depends on its content.
    ///
    /// # Errors
    /// [`WriteError`], for the first rule that the write breaks whatever it contains.
    pub fn check(&self, snapshot: &Snapshot, limits: &Limits) -> Result<(), WriteError> {
        let AnnouncedText { name, base, author, comment } = *self;
        check_author(author, comment.trim(), limits)?;
        check_base(None, name, snapshot.article(name), base)?;
        next(name, base).map(drop)
    }
}

impl Change {
    /// Checks this write against `snapshot`. The caller commits the batch of the result.
    ///
    /// # Errors
    /// [`WriteError`], for the first rule that the write breaks.
    pub fn check(&self, snapshot: &Snapshot, limits: &Limits) -> Result<CheckedWrite, WriteError> {
        let Change { name, base, author, comment, at, act } = self;
        let (base, comment) = (*base, comment.trim());
        check_author(author, comment, limits)?;
        let article = snapshot.article(name);
        if let WriteAction::Put(content) = act {
            check_size(content, limits)?;
        }
        check_base(Some(act), name, article, base)?;
        let kind = match act {
            WriteAction::Put(content) => Kind::Put(content.clone()),
            WriteAction::Delete => Kind::Deleted,
            WriteAction::Restore(from) => restored(name, article, *from)?,
            WriteAction::Rename(to) => return rename(self, to, snapshot),
        };
        let revision = next(name, base)?;
        let at = whole_microseconds(*at);
        let key = key(name, revision);
        let (body, blobs) = render(&kind, base, author, comment, at);
        // The name was never used; an article may get it meanwhile, with higher numbers.
        let expected =
            if article.is_none() { Expected::At(Serial::ZERO) } else { Expected::Absent };
        let mut batch = Batch::new().put(key.clone(), expected, body, blobs);
        if base != Revision::NONE {
            batch = batch.check(crate::key(name, base), Expected::Present);
        }
        // An older version of Larder, which does not know files, may have left files at a name without an article.
        let is_there = article.is_some_and(|it| it.latest().is_some_and(|it| !it.is_deleted()));
        let files = snapshot.attachments(name).map(|all| all.files()).unwrap_or_default();
        if matches!(kind, Kind::Deleted) || !is_there && !files.is_empty() {
            batch = cleared(batch, snapshot, name, author, at)?;
        }
        let content = match &kind {
            Kind::Put(content) | Kind::Restored { content, .. } | Kind::Renamed { content, .. } => {
                Some(content)
            }
            Kind::Deleted | Kind::Redirect { .. } => None,
        };
        let tag = RevisionTag::new(revision, content);
        Ok(CheckedWrite { batch, name: name.clone(), revision, key, tag })
    }
}

/// `batch`, which deletes or begins an article, with the removal of the files at its name. It expects their record unchanged, so
/// a write of a file at the same time is either committed before, or refused.
fn cleared(
    batch: Batch,
    snapshot: &Snapshot,
    name: &ArticleName,
    author: &str,
    at: Timestamp,
) -> Result<Batch, WriteError> {
    let key = attachments_key(name);
    let Some(attachments) = snapshot.attachments(name) else {
        return Ok(batch.check(key, Expected::Absent));
    };
    let expected = Expected::At(attachments.serial);
    if attachments.is_unreadable() {
        return Err(WriteError::UnreadableAttachments { name: name.clone() });
    }
    if attachments.files().is_empty() {
        return Ok(batch.check(key, expected));
    }
    let (act, author) = (AttachmentAct::Cleared, author.into());
    let change = AttachmentChange { number: 0, act, name: None, content: None, author, at };
    let (body, blobs) = attachment::render(&attachments.with(change));
    Ok(batch.put(key, expected, body, blobs))
}

/// Every database and client keeps microseconds, but not always more.
pub(crate) fn whole_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

/// Checks that `base` is the latest revision, and that the article's state allows this write; `None`: of a text that has not
/// arrived.
fn check_base(
    act: Option<&WriteAction>,
    name: &ArticleName,
    article: Option<&Arc<Article>>,
    base: Revision,
) -> Result<(), WriteError> {
    let Some(article) = article else {
        return match (act, base) {
            (None | Some(WriteAction::Put(_)), Revision::NONE) => Ok(()),
            _ => Err(WriteError::NotFound { name: name.clone() }),
        };
    };
    let latest = match article.latest() {
        Some(latest) if latest.revision == article.highest() => latest,
        _ => {
            let revision = article.highest();
            return Err(WriteError::Unreadable { name: name.clone(), revision });
        }
    };
    let has_same_content =
        matches!(act, Some(WriteAction::Put(content)) if latest.content() == Some(content));
    let stale = || {
        let (name, latest) = (name.clone(), latest.clone());
        Box::new(StaleWrite { name, base, latest, has_same_content })
    };
    if base > latest.revision {
        return Err(WriteError::Future { name: name.clone(), base, latest: latest.revision });
    }
    let is_redirect = latest.redirect().is_some();
    let is_deleted = latest.is_deleted() && !is_redirect;
    match act {
        Some(WriteAction::Delete | WriteAction::Rename(_)) if is_deleted => {
            Err(WriteError::Deleted(stale()))
        }
        Some(WriteAction::Rename(_)) if is_redirect => Err(WriteError::Renamed(stale())),
        _ if base == latest.revision => Ok(()),
        _ if is_redirect => Err(WriteError::Renamed(stale())),
        _ if is_deleted => Err(WriteError::Deleted(stale())),
        _ if base == Revision::NONE => Err(WriteError::AlreadyExists(stale())),
        _ => Err(WriteError::Stale(stale())),
    }
}

/// The revision after `base`.
pub(crate) fn next(name: &ArticleName, base: Revision) -> Result<Revision, WriteError> {
    base.next().ok_or_else(|| WriteError::Full { name: name.clone() })
}

fn restored(
    name: &ArticleName,
    article: Option<&Arc<Article>>,
    from: Option<Revision>,
) -> Result<Kind, WriteError> {
    let facts = article.and_then(|article| match from {
        Some(from) => article.revision(from),
        None => article.latest_with_content(),
    });
    let content = facts.and_then(|facts| Some((facts.revision, facts.content()?.clone())));
    match content {
        Some((from, content)) => Ok(Kind::Restored { from, content }),
        None => {
            let from = from.unwrap_or_default();
            Err(WriteError::NothingToRestore { name: name.clone(), from })
        }
    }
}

fn check_size(content: &Content, limits: &Limits) -> Result<(), WriteError> {
    let (size_bytes, size_bytes_max) = (content.size_bytes, limits.content_bytes_max);
    match size_bytes <= size_bytes_max {
        true => Ok(()),
        false => Err(WriteError::TooLarge { size_bytes, size_bytes_max }),
    }
}

pub(crate) fn check_author(author: &str, comment: &str, limits: &Limits) -> Result<(), WriteError> {
    check_text("author", author, 1, AUTHOR_BYTES_MAX)?;
    check_text("comment", comment, 0, limits.comment_bytes_max)
}

fn check_text(
    what: &'static str,
    text: &str,
    bytes_min: usize,
    bytes_max: usize,
) -> Result<(), WriteError> {
    let is_control =
        |character: char| character.is_control() && !(what == "comment" && character == '\n');
    match (bytes_min..=bytes_max).contains(&text.len()) && !text.contains(is_control) {
        true => Ok(()),
        false => Err(WriteError::Text { what, bytes: text.len(), bytes_max }),
    }
}

#[cfg(test)]
mod tests;
