//! Writes: the request, the check against a snapshot, and the batch that carries it out.
//!
//! A write names the revision that it was made from. If that is no longer the latest, someone else wrote in between;
//! the writer learns what, by whom and when, and overwrites nothing. The batch requires that the next revision is
//! absent and the latest present: a snapshot that is behind the store cannot lead to a wrong write, only to a
//! mismatch, after which the caller checks again.

use std::sync::Arc;

use ::record::{Batch, Expected, Key, Serial};
use jiff::Timestamp;
use reply::{ListedTag, is_listed, listed_tags};

use crate::attachment::{self, AttachmentAct, AttachmentChange, attachments_key};
use crate::record::{key, render};
use crate::tag::RevisionTag;
use crate::{Article, ArticleName, Content, Kind, Revision, RevisionFacts, Snapshot};

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

/// A new text for an article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The article.
    pub name: ArticleName,
    /// The revision that the text was made from; [`Revision::NONE`] creates the article.
    pub base: Revision,
    /// The text; its blob is stored before the batch is committed.
    pub content: Content,
    /// Who writes: 1 to 255 bytes on one line.
    pub author: String,
    /// Why; may be empty. White space around it is dropped.
    pub comment: String,
    /// The current time; kept in whole microseconds.
    pub at: Timestamp,
}

/// A deletion: the name is empty from then on, its history stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The article.
    pub name: ArticleName,
    /// The revision that the writer saw when deciding to delete.
    pub base: Revision,
    /// Who deletes.
    pub author: String,
    /// Why; may be empty.
    pub comment: String,
    /// The current time.
    pub at: Timestamp,
}

/// Makes an earlier revision's content the latest again. This undoes a deletion, or later texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The article.
    pub name: ArticleName,
    /// The revision that the writer saw when deciding to restore.
    pub base: Revision,
    /// The revision whose content is restored; `None` means the last one that has content.
    pub from: Option<Revision>,
    /// Who restores.
    pub author: String,
    /// Why; may be empty.
    pub comment: String,
    /// The current time.
    pub at: Timestamp,
}

/// Any of the writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new text.
    Put(Put),
    /// A deletion.
    Delete(Delete),
    /// A restoration.
    Restore(Restore),
}

/// A write that passed its checks against a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
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

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The latest revision is not the base: someone else wrote in between.
    #[error(
        "`{name}` is at version {latest}, by {author} at {at}, but this write was made from version \
         {base}",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at,
        base = .0.base
    )]
    Stale(Box<Stale>),
    /// No tag in `If-Match` is that of the latest revision, or `If-None-Match: *` was sent and the article exists.
    #[error(
        "`{name}` is at version {latest}, by {author} at {at}, which is not what the request's \
         precondition names",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    Precondition(Box<Stale>),
    /// The article does not exist, and this write would not create it.
    #[error("there is no article `{name}`: version 0 as the base creates it")]
    NotFound {
        /// The article.
        name: ArticleName,
    },
    /// The base is a version that does not exist yet.
    #[error("`{name}` has no version {base}: its latest is {latest}")]
    Future {
        /// The article.
        name: ArticleName,
        /// The base.
        base: Revision,
        /// The latest revision.
        latest: Revision,
    },
    /// The write would create the article, but it exists.
    #[error(
        "`{name}` exists, at version {latest}, by {author} at {at}; version 0 as the base creates a \
         new article",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    AlreadyExists(Box<Stale>),
    /// The article is deleted. The write was not made from that deletion, and is not a restoration.
    #[error(
        "`{name}` was deleted as version {latest}, by {author} at {at}; a write from version {latest} \
         or a restoration brings it back",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    Deleted(Box<Stale>),
    /// The article has another name now, and the write was not made from the redirect that says so.
    #[error(
        "`{name}` was renamed as version {latest}, by {author} at {at}; a write from version {latest} makes a new \
         article of that name",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    Renamed(Box<Stale>),
    /// The new name is the old one.
    #[error("`{name}` has this name already")]
    SameName {
        /// The article.
        name: ArticleName,
    },
    /// An article has, or had, the name that the article was to get.
    #[error(
        "there is, or was, an article `{name}`, so no other can be renamed to this: its versions are kept"
    )]
    NameTaken {
        /// The name.
        name: ArticleName,
    },
    /// The article has more revisions and redirects than one commit moves.
    #[error(
        "`{name}` cannot be renamed: with all its versions and redirects that writes {records} records, and at most \
         {records_max} are written at once"
    )]
    TooManyVersions {
        /// The article.
        name: ArticleName,
        /// How many records the renaming would write.
        records: usize,
        /// The most that it may write.
        records_max: usize,
    },
    /// The revision to be restored does not exist or has no content.
    #[error("`{name}` has no content at version {from} that could be restored")]
    NothingToRestore {
        /// The article.
        name: ArticleName,
        /// The revision.
        from: Revision,
    },
    /// Neither the URL nor `If-Match` names a base version.
    #[error(
        "the version that this write to `{name}` was made from is missing: it is expected in the URL \
         or as `If-Match`"
    )]
    BaseMissing {
        /// The article.
        name: ArticleName,
    },
    /// The content is larger than allowed.
    #[error("an article of {size_bytes} bytes is too large: at most {size_bytes_max} are allowed")]
    TooLarge {
        /// Its size.
        size_bytes: u64,
        /// The most bytes that are allowed.
        size_bytes_max: u64,
    },
    /// Author or comment are too long or contain control characters.
    #[error(
        "the {what} of {bytes} bytes is refused: at most {bytes_max} without control characters were \
         expected"
    )]
    Text {
        /// `author` or `comment`.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The most bytes that are allowed.
        bytes_max: usize,
    },
    /// This version of Larder cannot read the latest revision's record, so no revision can follow it.
    #[error(
        "version {revision} of `{name}` cannot be read here, so nothing can be written after it"
    )]
    Unreadable {
        /// The article.
        name: ArticleName,
        /// The revision.
        revision: Revision,
    },
    /// This version of Larder cannot read the record of the files at this name, so it can neither move nor delete them.
    #[error(
        "the attachments of `{name}` cannot be read here, so it can be neither deleted nor renamed, and no article can \
         get its name"
    )]
    UnreadableAttachments {
        /// The article.
        name: ArticleName,
    },
    /// The article has reached the highest version number.
    #[error("`{name}` has all the versions that there can be")]
    Full {
        /// The article.
        name: ArticleName,
    },
}

/// The state of an article, for a writer who expected another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The article.
    pub name: ArticleName,
    /// The base of the write; [`Revision::NONE`] also if tags named no known revision.
    pub base: Revision,
    /// The latest revision: who, when, what.
    pub latest: Arc<RevisionFacts>,
    /// Whether the latest revision has the same content as the refused write: this may be the same write, sent again
    /// because its answer was lost.
    pub has_same_content: bool,
}

/// Most bytes in an author's name.
const AUTHOR_BYTES_MAX: usize = 255;

impl WriteError {
    /// The message for a writer who may not read the article: it names the versions, but not who wrote the latest, or
    /// when.
    pub fn blind(&self) -> String {
        let (WriteError::Stale(stale)
        | WriteError::Precondition(stale)
        | WriteError::AlreadyExists(stale)
        | WriteError::Renamed(stale)
        | WriteError::Deleted(stale)) = self
        else {
            return self.to_string();
        };
        let (name, latest, base) = (&stale.name, stale.latest.revision, stale.base);
        match self {
            WriteError::Precondition(_) => format!(
                "`{name}` is at version {latest}, which is not what the request's precondition names"
            ),
            WriteError::AlreadyExists(_) => {
                format!(
                    "`{name}` exists, at version {latest}; version 0 as the base creates a new article"
                )
            }
            WriteError::Deleted(_) => format!(
                "`{name}` was deleted as version {latest}; a write from version {latest} or a restoration \
                 brings it back"
            ),
            WriteError::Renamed(_) => format!(
                "`{name}` was renamed as version {latest}; a write from version {latest} makes a new article of that \
                 name"
            ),
            _ => format!(
                "`{name}` is at version {latest}, but this write was made from version {base}"
            ),
        }
    }

    /// A word for programs; all errors of one kind have the same word.
    pub fn code(&self) -> &'static str {
        match self {
            WriteError::Stale(_) => "stale",
            WriteError::Precondition(_) => "precondition_failed",
            WriteError::NotFound { .. } => "not_found",
            WriteError::Future { .. } => "version_in_future",
            WriteError::AlreadyExists(_) => "already_exists",
            WriteError::Deleted(_) => "deleted",
            WriteError::Renamed(_) => "renamed",
            WriteError::SameName { .. } => "same_name",
            WriteError::NameTaken { .. } => "name_taken",
            WriteError::TooManyVersions { .. } => "too_many_versions",
            WriteError::NothingToRestore { .. } => "nothing_to_restore",
            WriteError::BaseMissing { .. } => "base_missing",
            WriteError::TooLarge { .. } => "too_large",
            WriteError::Text { .. } => "bad_text",
            WriteError::Unreadable { .. } | WriteError::UnreadableAttachments { .. } => {
                "unreadable"
            }
            WriteError::Full { .. } => "full",
        }
    }

    /// The state of the article, if that is why the write is refused.
    pub fn stale(&self) -> Option<&Stale> {
        match self {
            WriteError::Stale(stale)
            | WriteError::Precondition(stale)
            | WriteError::AlreadyExists(stale)
            | WriteError::Renamed(stale)
            | WriteError::Deleted(stale) => Some(stale),
            _ => None,
        }
    }
}

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
        let stale =
            Stale { name: name.clone(), base, latest: latest.clone(), has_same_content: false };
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
        // `If-Match` compares strong tags only (RFC 9110, 13.1.1). A deletion has no tag to match.
        let is_match = !latest.is_deleted()
            && listed_tags(if_match).any(|ListedTag { is_weak, tag }| {
                tag == "*" || !is_weak && RevisionTag::parse(tag) == Some(latest.tag)
            });
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

/// A new text that has not come yet: what is known of it without its content.
#[derive(Clone, Copy, Debug)]
pub struct Announced<'text> {
    /// The article.
    pub name: &'text ArticleName,
    /// The revision that the text was made from.
    pub base: Revision,
    /// Who writes.
    pub author: &'text str,
    /// Why.
    pub comment: &'text str,
}

impl Announced<'_> {
    /// Checks all that [`Change::check`] checks of a [`Put`], except what depends on its content.
    ///
    /// # Errors
    /// [`WriteError`], for the first rule that the write breaks whatever it contains.
    pub fn check(&self, snapshot: &Snapshot, limits: &Limits) -> Result<(), WriteError> {
        let Announced { name, base, author, comment } = *self;
        check_author(author, comment.trim(), limits)?;
        check_base(What::Put(None), name, snapshot.article(name), base)?;
        next(name, base).map(drop)
    }
}

impl Change {
    /// The name of the article that this write changes.
    pub fn name(&self) -> &ArticleName {
        match self {
            Change::Put(Put { name, .. })
            | Change::Delete(Delete { name, .. })
            | Change::Restore(Restore { name, .. }) => name,
        }
    }

    /// Checks this write against `snapshot`. The caller commits the batch of the result.
    ///
    /// # Errors
    /// [`WriteError`], for the first rule that the write breaks.
    pub fn check(&self, snapshot: &Snapshot, limits: &Limits) -> Result<Checked, WriteError> {
        let (name, base, author, comment, at) = match self {
            Change::Put(Put { name, base, author, comment, at, .. })
            | Change::Delete(Delete { name, base, author, comment, at })
            | Change::Restore(Restore { name, base, author, comment, at, .. }) => {
                (name, *base, author, comment.trim(), *at)
            }
        };
        check_author(author, comment, limits)?;
        let article = snapshot.article(name);
        let what = match self {
            Change::Put(put) => {
                check_size(&put.content, limits)?;
                What::Put(Some(&put.content))
            }
            Change::Delete(_) => What::Delete,
            Change::Restore(_) => What::Restore,
        };
        check_base(what, name, article, base)?;
        let kind = match self {
            Change::Put(put) => Kind::Put(put.content.clone()),
            Change::Delete(_) => Kind::Deleted,
            Change::Restore(restore) => restored(name, article, restore.from)?,
        };
        let revision = next(name, base)?;
        let at = whole_microseconds(at);
        let key = key(name, revision);
        let (body, blobs) = render(&kind, base, author, comment, at);
        // Of a name that was never used: another article may get it meanwhile, with higher numbers.
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
        Ok(Checked { batch, name: name.clone(), revision, key, tag })
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

/// What a write does to the article.
#[derive(Clone, Copy)]
pub(crate) enum What<'content> {
    /// Gives it a new text, if that is known.
    Put(Option<&'content Content>),
    Delete,
    Restore,
    Rename,
}

/// Checks that `base` is the latest revision, and that the article's state allows this write.
pub(crate) fn check_base(
    what: What<'_>,
    name: &ArticleName,
    article: Option<&Arc<Article>>,
    base: Revision,
) -> Result<(), WriteError> {
    let Some(article) = article else {
        return match (what, base) {
            (What::Put(_), Revision::NONE) => Ok(()),
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
        matches!(what, What::Put(Some(content)) if latest.content() == Some(content));
    let stale = || {
        let (name, latest) = (name.clone(), latest.clone());
        Box::new(Stale { name, base, latest, has_same_content })
    };
    if base > latest.revision {
        return Err(WriteError::Future { name: name.clone(), base, latest: latest.revision });
    }
    let is_redirect = latest.redirect().is_some();
    let is_deleted = latest.is_deleted() && !is_redirect;
    match what {
        What::Delete | What::Rename if is_deleted => Err(WriteError::Deleted(stale())),
        What::Rename if is_redirect => Err(WriteError::Renamed(stale())),
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
mod tests {
    use super::*;
    use crate::testing::{Store, at, delete, name, put, restore};

    /// `a` at version 2, `gone` deleted as version 2.
    fn sample() -> Store {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.write(&put("a", 1, "two"));
        store.write(&put("gone", 0, "text"));
        store.write(&delete("gone", 1));
        store
    }

    /// Expects the version that a write makes, or the code of its refusal.
    #[track_caller]
    fn check(change: &Change, expected: &str) {
        let mut store = sample();
        let found = match store.check(change) {
            Ok(checked) => {
                store.commit(&checked.batch).expect("what is checked fits the store");
                let latest = store.snapshot.latest(change.name()).expect("the revision");
                assert_eq!((latest.revision, latest.tag), (checked.revision, checked.tag));
                checked.revision.to_string()
            }
            Err(error) => error.code().to_owned(),
        };
        assert_eq!(found, expected, "{change:?}");
        if let Change::Put(put) = change {
            check_announced(put, &found);
        }
    }

    /// Before a text has come, it is refused for the same reason, unless that is its content.
    #[track_caller]
    fn check_announced(put: &Put, found: &str) {
        let Put { name, base, author, comment, .. } = put;
        let announced = Announced { name, base: *base, author, comment };
        let early = announced.check(&sample().snapshot, &Limits::default());
        match early {
            Ok(()) => assert!(found.parse::<u32>().is_ok() || found == "too_large", "{put:?}"),
            Err(error) => assert_eq!(error.code(), found, "{put:?}"),
        }
    }

    #[test]
    fn a_text_is_made_from_the_latest() {
        check(&put("new", 0, "x"), "1");
        check(&put("new", 1, "x"), "not_found");
        check(&put("a", 2, "x"), "3");
        check(&put("a", 1, "x"), "stale");
        check(&put("a", 0, "x"), "already_exists");
        check(&put("a", 3, "x"), "version_in_future");
        check(&put("a", u32::MAX, "x"), "version_in_future");
        check(&put("gone", 2, "x"), "3");
        check(&put("gone", 1, "x"), "deleted");
        check(&put("gone", 0, "x"), "deleted");
        check(&put("gone", 3, "x"), "version_in_future");
    }

    #[test]
    fn deleting_and_restoring_are_revisions() {
        check(&delete("a", 2), "3");
        check(&delete("a", 1), "stale");
        check(&delete("a", 0), "already_exists");
        check(&delete("new", 0), "not_found");
        check(&delete("gone", 2), "deleted");
        check(&restore("a", 2, Some(1)), "3");
        check(&restore("a", 1, Some(1)), "stale");
        check(&restore("a", 2, Some(3)), "nothing_to_restore");
        check(&restore("a", 2, Some(0)), "nothing_to_restore");
        check(&restore("gone", 2, None), "3");
        check(&restore("gone", 2, Some(2)), "nothing_to_restore");
        check(&restore("new", 0, None), "not_found");
    }

    #[test]
    fn a_refusal_names_the_other_writer() {
        let error = sample().check(&put("a", 1, "two")).expect_err("stale");
        assert_eq!(
            error.to_string(),
            "`a` is at version 2, by ada at 2026-01-02T03:04:05.123456Z, but this write was made from \
             version 1"
        );
        let stale = error.stale().expect("how it is");
        assert!(stale.has_same_content);
        let error = sample().check(&put("a", 1, "other")).expect_err("stale");
        assert!(error.stale().is_some_and(|stale| !stale.has_same_content));
    }

    #[test]
    fn of_many_writers_one_wins_and_no_version_is_missing() {
        let mut store = Store::default();
        for round in 0..10_u32 {
            // All look at the same snapshot, then all commit.
            let checked: Vec<Checked> = (0..50)
                .map(|writer| put("a", round, &format!("{round} {writer}")))
                .map(|change| store.check(&change).expect("the right version"))
                .collect();
            let outcomes = checked.iter().map(|checked| store.commit(&checked.batch));
            let outcomes: Vec<_> = outcomes.collect();
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
            let mismatch = outcomes.into_iter().find_map(Result::err).expect("a loser");
            assert_eq!(mismatch.key, checked[0].key);
            let again = store.check(&put("a", round, "x")).expect_err("a later version");
            assert!(again.stale().is_some_and(|stale| stale.latest.revision.0 == round + 1));
        }
        let article = store.snapshot.article(&name("a")).expect("the article");
        let versions: Vec<u32> = article.revisions().map(|facts| facts.revision.0).collect();
        assert_eq!(versions, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn a_snapshot_of_another_store_writes_nothing() {
        let checked = sample().check(&put("a", 2, "x")).expect("allowed here");
        let mismatch = Store::default().commit(&checked.batch).expect_err("there is no version 2");
        assert_eq!(mismatch.key, key(&name("a"), Revision(2)));
    }

    #[test]
    fn bounds() {
        let limits = Limits { content_bytes_max: 3, comment_bytes_max: 5 };
        let check = |edit: fn(&mut Put), expected: Option<&str>| {
            let mut put = Put {
                name: name("new"),
                base: Revision::NONE,
                content: Content::of(b"abc", None).expect("a media type"),
                author: "ada".to_owned(),
                comment: "12345".to_owned(),
                at: at(),
            };
            edit(&mut put);
            let error = Change::Put(put).check(&Snapshot::default(), &limits).err();
            assert_eq!(error.as_ref().map(WriteError::code), expected);
        };
        check(|_| {}, None);
        check(|put| put.content.size_bytes = 4, Some("too_large"));
        check(|put| put.comment.push('6'), Some("bad_text"));
        check(|put| put.comment.push(' '), None);
        check(|put| put.comment = "a\nb".to_owned(), None);
        check(|put| put.comment = "a\u{1b}b".to_owned(), Some("bad_text"));
        check(|put| put.author.clear(), Some("bad_text"));
        check(|put| put.author.push('\n'), Some("bad_text"));
        check(|put| put.author = "x".repeat(256), Some("bad_text"));
    }

    #[test]
    fn a_base_is_named_in_several_ways() {
        let mut store = sample();
        let tag = |store: &Store, text: &str, revision: u32| {
            let facts = store.snapshot.revision(&name(text), Revision(revision));
            facts.expect("a revision").tag.header_value(reply::Encoding::Gzip)
        };
        let (old, latest, gone) =
            (tag(&store, "a", 1), tag(&store, "a", 2), tag(&store, "gone", 1));
        let check = |store: &Store,
                     text: &str,
                     version: Option<u32>,
                     if_match: Option<&str>,
                     if_none_match: Option<&str>,
                     expected: &str| {
            let version = version.map(Revision);
            let found =
                resolve_base(&store.snapshot, &name(text), version, if_match, if_none_match);
            let found = match found {
                Ok(base) => base.to_string(),
                Err(error) => match error.stale() {
                    Some(stale) => format!("{} from {}", error.code(), stale.base),
                    None => error.code().to_owned(),
                },
            };
            assert_eq!(found, expected, "{text} {version:?} {if_match:?} {if_none_match:?}");
        };
        check(&store, "a", None, None, None, "base_missing");
        check(&store, "a", Some(1), None, None, "1");
        check(&store, "a", None, Some(&latest), None, "2");
        check(&store, "a", None, Some(&format!("\"x\", {latest}")), None, "2");
        check(&store, "a", None, Some("*"), None, "2");
        check(&store, "a", None, Some(&format!("W/{latest}")), None, "precondition_failed from 2");
        check(&store, "a", None, Some(&old), None, "precondition_failed from 1");
        check(&store, "a", None, Some("\"x\""), None, "precondition_failed from 0");
        check(&store, "a", Some(1), Some(&latest), None, "1");
        check(&store, "a", Some(2), Some(&old), None, "precondition_failed from 2");
        check(&store, "a", None, None, Some("*"), "precondition_failed from 0");
        check(&store, "a", None, None, Some("\"x\""), "base_missing");
        check(&store, "new", None, None, Some("*"), "0");
        check(&store, "new", None, Some("*"), None, "not_found");
        check(&store, "gone", None, None, Some("*"), "2");
        check(&store, "gone", None, Some(&gone), None, "precondition_failed from 1");
        check(&store, "gone", None, Some("*"), None, "precondition_failed from 0");
        // The same text written again has another tag: a writer who saw the first has not seen what came after it.
        store.write(&put("a", 2, "one"));
        check(&store, "a", None, Some(&old), None, "precondition_failed from 1");
    }
}
