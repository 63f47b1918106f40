//! [`AttachmentWrite`]: adding, replacing and removing a file of an article, checked against a snapshot.
//!
//! The batch expects the record of the files as it was seen, the latest revision to be there, and the next one to be absent:
//! so a file cannot be added to an article while it is being deleted or renamed, and a write replaces only the file that its
//! sender has seen.

use std::sync::Arc;

use ::record::{Batch, Digest, Expected};
use jiff::Timestamp;
use reply::{is_listed, is_matched};

use crate::attachment::{
    Attachment, AttachmentAct, AttachmentChange, Attachments, attachments_key, render,
};
use crate::record::key;
use crate::write::{check_author, whole_microseconds};
use crate::{ArticleName, AttachmentName, Limits, Snapshot};

/// Bounds on the files of an article.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachmentLimits {
    /// Most bytes in a file.
    pub file_bytes_max: u64,
    /// Most files of an article.
    pub files_max: usize,
    /// Most bytes in all files of an article.
    pub together_bytes_max: u64,
}

impl Default for AttachmentLimits {
    fn default() -> AttachmentLimits {
        let (file_bytes_max, together_bytes_max) = (64 << 20, 256 << 20);
        AttachmentLimits { file_bytes_max, files_max: 100, together_bytes_max }
    }
}

/// The condition on the file that has the name now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No precondition: the write adds the file, or replaces the one that exists.
    Anything,
    /// The preconditions of a request. Without either header, the name must be free.
    Headers {
        /// `If-Match`.
        if_match: Option<String>,
        /// `If-None-Match`.
        if_none_match: Option<String>,
    },
}

/// A change of a file of an article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentWrite {
    /// The article.
    pub article: ArticleName,
    /// The file.
    pub name: AttachmentName,
    /// The condition on the file that has the name now.
    pub condition: Condition,
    /// Who changes the file: 1 to 255 bytes on one line.
    pub author: String,
    /// The current time; kept in whole microseconds.
    pub at: Timestamp,
}

/// What a change does with the file, as far as the rules depend on it.
#[derive(Clone, Copy)]
enum FileAction {
    /// The file gets bytes that have not arrived yet.
    Announce,
    /// The file gets these bytes.
    Put(Digest),
    Remove,
}

/// A change that passed its checks against a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedAttachment {
    /// What to commit; `None` if the file has these bytes already.
    pub batch: Option<Batch>,
    /// Whether there was a file of the name.
    pub was_there: bool,
    /// The file after the change; `None` if it is gone.
    pub file: Option<Attachment>,
}

/// Why a change of a file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// The article does not exist.
    #[error("there is no article `{article}` that could have an attachment")]
    NoArticle {
        /// Its name.
        article: ArticleName,
    },
    /// The article is deleted.
    #[error("`{article}` is deleted, and has no attachments")]
    Deleted {
        /// Its name.
        article: ArticleName,
    },
    /// The article has another name now.
    #[error("`{article}` was renamed: its attachments are at the new name")]
    Renamed {
        /// The name that it had.
        article: ArticleName,
    },
    /// The file does not exist.
    #[error("`{article}` has no attachment `{name}`")]
    NoFile {
        /// The article.
        article: ArticleName,
        /// The file.
        name: AttachmentName,
    },
    /// The precondition of the request does not hold: it names another file than the existing one, or one where none exists, or
    /// none where one exists.
    #[error(
        "the attachment `{name}` of `{article}` is not as the precondition of the request says: it was added, replaced or \
         removed in between"
    )]
    Precondition {
        /// The article.
        article: ArticleName,
        /// The file's name.
        name: AttachmentName,
        /// The file that is there.
        current: Option<Box<Attachment>>,
        /// Whether it has the bytes of the refused write: this may be the same write, sent again because its answer was lost.
        has_same_content: bool,
    },
    /// There is a file, and the request does not say which one it replaces or removes.
    #[error(
        "`{article}` has an attachment `{name}`: `If-Match` with its tag was expected, or with `*` for any, to replace or \
         remove it"
    )]
    ConditionMissing {
        /// The article.
        article: ArticleName,
        /// The file's name.
        name: AttachmentName,
        /// The file that is there.
        current: Box<Attachment>,
        /// Whether it has the bytes of the refused write.
        has_same_content: bool,
    },
    /// The file is larger than allowed.
    #[error(
        "an attachment of {size} bytes is too large: at most {size_bytes_max} are allowed (`article.attachment_bytes_max`)"
    )]
    TooLarge {
        /// Its size in bytes; `more than …` if reading stopped at the bound.
        size: String,
        /// The most bytes.
        size_bytes_max: u64,
    },
    /// The article already has the most files that one article can have.
    #[error(
        "`{article}` has {files} attachments, and cannot have another one: at most {files_max} are allowed \
         (`article.attachments_max`)"
    )]
    TooMany {
        /// The article.
        article: ArticleName,
        /// Its files.
        files: usize,
        /// The most files.
        files_max: usize,
    },
    /// All files together would be larger than allowed.
    #[error(
        "all attachments of `{article}` would have {size_bytes} bytes: at most {size_bytes_max} are allowed \
         (`article.attachments_bytes_max`)"
    )]
    TooLargeTogether {
        /// The article.
        article: ArticleName,
        /// The bytes that they would have.
        size_bytes: u64,
        /// The most bytes.
        size_bytes_max: u64,
    },
    /// This version of Larder cannot read the latest revision's record, or that of the files.
    #[error(
        "the attachments of `{article}`, or its latest version, cannot be read here: another version of Larder wrote \
         them, or they are damaged"
    )]
    Unreadable {
        /// The article.
        article: ArticleName,
    },
    /// The author's name is too long, or contains control characters.
    #[error(
        "the name of an author is refused: 1 to 255 bytes without control characters were expected"
    )]
    Author,
}

impl AttachmentError {
    /// The message for a writer who may not read the article: it names the bounds, but neither the number nor the sizes of the
    /// files.
    pub fn blind(&self) -> String {
        match self {
            AttachmentError::TooMany { article, files_max, .. } => format!(
                "`{article}` would have more attachments than {files_max}, the most that are allowed \
                 (`article.attachments_max`)"
            ),
            AttachmentError::TooLargeTogether { article, size_bytes_max, .. } => format!(
                "all attachments of `{article}` would have more than {size_bytes_max} bytes, the most that are allowed \
                 (`article.attachments_bytes_max`)"
            ),
            error => error.to_string(),
        }
    }

    /// The file that is there, if that is why the write is refused.
    pub fn current(&self) -> Option<&Attachment> {
        match self {
            AttachmentError::Precondition { current, .. } => current.as_deref(),
            AttachmentError::ConditionMissing { current, .. } => Some(current),
            _ => None,
        }
    }

    /// Whether the file that is there has the bytes of the refused write; `None` if it is refused for something else.
    pub fn has_same_content(&self) -> Option<bool> {
        match self {
            AttachmentError::Precondition { has_same_content, .. }
            | AttachmentError::ConditionMissing { has_same_content, .. } => Some(*has_same_content),
            _ => None,
        }
    }

    /// The `code` of the error in answers, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            AttachmentError::NoArticle { .. } | AttachmentError::NoFile { .. } => "not_found",
            AttachmentError::Deleted { .. } => "deleted",
            AttachmentError::Renamed { .. } => "renamed",
            AttachmentError::Precondition { .. } => "precondition_failed",
            AttachmentError::ConditionMissing { .. } => "condition_missing",
            AttachmentError::TooLarge { .. } | AttachmentError::TooLargeTogether { .. } => {
                "too_large"
            }
            AttachmentError::TooMany { .. } => "too_many_attachments",
            AttachmentError::Unreadable { .. } => "unreadable",
            AttachmentError::Author => "bad_text",
        }
    }
}

impl AttachmentWrite {
    /// Checks what can be checked before the bytes arrive.
    ///
    /// # Errors
    /// [`AttachmentError`], for the first broken rule that does not depend on the bytes.
    pub fn check_announced(
        &self,
        snapshot: &Snapshot,
        size_bytes: Option<u64>,
        limits: &AttachmentLimits,
    ) -> Result<(), AttachmentError> {
        let attachments = self.judged(snapshot, FileAction::Announce)?;
        self.check_bounds(attachments.as_deref(), size_bytes.unwrap_or(0), limits)
    }

    /// Checks a write of these bytes. The caller stores the blob before it commits the batch.
    ///
    /// # Errors
    /// [`AttachmentError`], for the first rule that this breaks.
    pub fn put(
        &self,
        snapshot: &Snapshot,
        (digest, size_bytes): (Digest, u64),
        limits: &AttachmentLimits,
    ) -> Result<CheckedAttachment, AttachmentError> {
        let attachments = self.judged(snapshot, FileAction::Put(digest))?;
        let current = attachments.as_ref().and_then(|all| all.file(self.name.as_str()));
        if let Some(same) = current.filter(|file| file.digest == digest) {
            return Ok(CheckedAttachment {
                batch: None,
                was_there: true,
                file: Some(same.clone()),
            });
        }
        self.check_bounds(attachments.as_deref(), size_bytes, limits)?;
        let act = match current {
            Some(_) => AttachmentAct::Replaced,
            None => AttachmentAct::Added,
        };
        Ok(self.changed(snapshot, attachments.as_deref(), act, Some((digest, size_bytes))))
    }

    /// Checks a removal of the file.
    ///
    /// # Errors
    /// [`AttachmentError`], for the first rule that this breaks.
    pub fn remove(&self, snapshot: &Snapshot) -> Result<CheckedAttachment, AttachmentError> {
        let attachments = self.judged(snapshot, FileAction::Remove)?;
        Ok(self.changed(snapshot, attachments.as_deref(), AttachmentAct::Removed, None))
    }

    /// The article's files, if the article can have files and the condition holds.
    fn judged(
        &self,
        snapshot: &Snapshot,
        act: FileAction,
    ) -> Result<Option<Arc<Attachments>>, AttachmentError> {
        check_author(&self.author, "", &Limits::default()).map_err(|_| AttachmentError::Author)?;
        let article = || self.article.clone();
        let found = snapshot.article(&self.article);
        let found = found.ok_or_else(|| AttachmentError::NoArticle { article: article() })?;
        let latest = found.latest().filter(|latest| latest.revision == found.highest());
        let latest = latest.ok_or_else(|| AttachmentError::Unreadable { article: article() })?;
        if latest.redirect().is_some() {
            return Err(AttachmentError::Renamed { article: article() });
        }
        if latest.is_deleted() {
            return Err(AttachmentError::Deleted { article: article() });
        }
        let attachments = snapshot.attachments(&self.article);
        if attachments.is_some_and(|all| all.is_unreadable()) || latest.revision.next().is_none() {
            return Err(AttachmentError::Unreadable { article: article() });
        }
        let current = attachments.and_then(|all| all.file(self.name.as_str()));
        self.check_condition(current, act)?;
        Ok(attachments.cloned())
    }

    fn check_condition(
        &self,
        current: Option<&Attachment>,
        act: FileAction,
    ) -> Result<(), AttachmentError> {
        let (article, name) = (self.article.clone(), self.name.clone());
        let Some(file) = current else {
            let is_expected = match &self.condition {
                Condition::Anything => true,
                Condition::Headers { if_match, .. } => if_match.is_none(),
            };
            return match (act, is_expected) {
                (FileAction::Remove, _) => Err(AttachmentError::NoFile { article, name }),
                (_, true) => Ok(()),
                (_, false) => {
                    let (current, has_same_content) = (None, false);
                    Err(AttachmentError::Precondition { article, name, current, has_same_content })
                }
            };
        };
        let Condition::Headers { if_match, if_none_match } = &self.condition else { return Ok(()) };
        let tag = file.tag();
        let is_match = if_match.as_ref().map(|value| is_matched(value, |listed| listed == tag));
        let is_excluded =
            if_none_match.as_ref().map(|value| is_listed(value, |listed| listed == tag));
        let has_same_content = matches!(act, FileAction::Put(digest) if digest == file.digest);
        let there = Box::new(file.clone());
        match (is_match, is_excluded) {
            (Some(false), _) | (_, Some(true)) => {
                let current = Some(there);
                Err(AttachmentError::Precondition { article, name, current, has_same_content })
            }
            // `If-None-Match` excludes some tags, but does not say which file the sender saw.
            (None, _) => {
                let current = there;
                Err(AttachmentError::ConditionMissing { article, name, current, has_same_content })
            }
            _ => Ok(()),
        }
    }

    fn check_bounds(
        &self,
        attachments: Option<&Attachments>,
        size_bytes: u64,
        limits: &AttachmentLimits,
    ) -> Result<(), AttachmentError> {
        if size_bytes > limits.file_bytes_max {
            return Err(AttachmentError::too_large(size_bytes, limits));
        }
        let current = attachments.and_then(|all| all.file(self.name.as_str()));
        let files = attachments.map_or(0, |all| all.files().len());
        if current.is_none() && files >= limits.files_max {
            let (article, files_max) = (self.article.clone(), limits.files_max);
            return Err(AttachmentError::TooMany { article, files, files_max });
        }
        let others = attachments.map_or(0, Attachments::size_bytes);
        let others = others - current.map_or(0, |file| file.size_bytes);
        let (together, size_bytes_max) =
            (others.saturating_add(size_bytes), limits.together_bytes_max);
        if together > size_bytes_max {
            let (article, size_bytes) = (self.article.clone(), together);
            return Err(AttachmentError::TooLargeTogether { article, size_bytes, size_bytes_max });
        }
        Ok(())
    }

    fn changed(
        &self,
        snapshot: &Snapshot,
        attachments: Option<&Attachments>,
        act: AttachmentAct,
        content: Option<(Digest, u64)>,
    ) -> CheckedAttachment {
        let was_there = act != AttachmentAct::Added;
        let before = attachments.cloned().unwrap_or_default();
        let after = before.with(AttachmentChange {
            number: 0,
            act,
            name: Some(self.name.clone()),
            content,
            author: self.author.as_str().into(),
            at: whole_microseconds(self.at),
        });
        let (body, blobs) = render(&after);
        let expected = attachments.map_or(Expected::Absent, |all| Expected::At(all.serial));
        let mut batch = Batch::new().put(attachments_key(&self.article), expected, body, blobs);
        // An article that passed the checks has a latest revision, and a next one is possible.
        let latest = snapshot.latest(&self.article).map(|latest| latest.revision);
        if let Some((latest, next)) = latest.and_then(|latest| Some((latest, latest.next()?))) {
            batch = batch.check(key(&self.article, latest), Expected::Present);
            batch = batch.check(key(&self.article, next), Expected::Absent);
        }
        let file = after.file(self.name.as_str()).cloned();
        CheckedAttachment { batch: Some(batch), was_there, file }
    }
}

impl AttachmentError {
    /// The error for a file of this size.
    pub fn too_large(size: impl ToString, limits: &AttachmentLimits) -> AttachmentError {
        let (size, size_bytes_max) = (size.to_string(), limits.file_bytes_max);
        AttachmentError::TooLarge { size, size_bytes_max }
    }
}

#[cfg(test)]
mod tests;
