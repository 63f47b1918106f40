//! [`WriteError`]: why a write is refused, as a message and as a code; and what its writer learns of the write that came first.

use std::sync::Arc;

use crate::{ArticleName, Revision, RevisionFacts};

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
    Stale(Box<StaleWrite>),
    /// No tag in `If-Match` is that of the latest revision, or `If-None-Match: *` was sent and the article exists.
    #[error(
        "`{name}` is at version {latest}, by {author} at {at}, which is not what the request's \
         precondition names",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    Precondition(Box<StaleWrite>),
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
    AlreadyExists(Box<StaleWrite>),
    /// The article is deleted. The write was not made from that deletion, and is not a restoration.
    #[error(
        "`{name}` was deleted as version {latest}, by {author} at {at}; a write from version {latest} \
         or a restoration brings it back",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    Deleted(Box<StaleWrite>),
    /// The article has another name now, and the write was not made from the redirect that says so.
    #[error(
        "`{name}` was renamed as version {latest}, by {author} at {at}; a write from version {latest} makes a new \
         article of that name",
        name = .0.name, latest = .0.latest.revision, author = .0.latest.author, at = .0.latest.at
    )]
    Renamed(Box<StaleWrite>),
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
    /// The revision to restore does not exist or has no content.
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
    #[error("`{name}` has reached the highest version number")]
    Full {
        /// The article.
        name: ArticleName,
    },
}

/// The state of an article, for a writer who expected another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleWrite {
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

    /// Whether the state of the articles refuses the write, rather than the write itself: with a later state it may be right.
    pub fn is_about_state(&self) -> bool {
        match self {
            WriteError::Stale(_)
            | WriteError::Precondition(_)
            | WriteError::NotFound { .. }
            | WriteError::Future { .. }
            | WriteError::AlreadyExists(_)
            | WriteError::Deleted(_)
            | WriteError::Renamed(_)
            | WriteError::NameTaken { .. }
            | WriteError::NothingToRestore { .. } => true,
            WriteError::SameName { .. }
            | WriteError::TooManyVersions { .. }
            | WriteError::BaseMissing { .. }
            | WriteError::TooLarge { .. }
            | WriteError::Text { .. }
            | WriteError::Unreadable { .. }
            | WriteError::UnreadableAttachments { .. }
            | WriteError::Full { .. } => false,
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
    pub fn stale(&self) -> Option<&StaleWrite> {
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
