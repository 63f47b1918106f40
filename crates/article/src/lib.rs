//! Versioned articles: their stored form, when a write may replace one, and their JSON.
//!
//! ```text
//! store records ─► Snapshot::apply ─► Snapshot ─► latest, revision, history, list ─► render
//!                                        │
//! Change ───────────────────────────► check ─► record::Batch (committed by the caller)
//! AttachmentWrite ──────────────────► put, remove ─┘
//!                                        └────► WriteError ─► merge proposal ─► render
//! texts and links ─► TextIndex ─► search by words, backlinks
//! names and orders ─► tree::View ─► folders, previous and next
//! ```
//!
//! A revision is stored once and never changed. Deleting an article, undoing that and renaming it are revisions too, so
//! versions have no gaps and every old text stays readable, under the name that the article has now. The texts themselves are blobs: this crate knows their digests,
//! and sees their bytes only to describe, compare and merge them. It does no I/O, reads no clock and knows no HTTP.

mod article;
mod attachment;
mod attachment_name;
mod attachment_write;
mod content;
mod difference;
mod front_matter;
mod item_change;
mod joining;
mod media_type;
mod merge;
mod name;
mod one_line;
mod path;
mod recent_articles;
mod record;
pub mod render;
mod revision;
mod search;
mod snapshot;
mod tag;
#[cfg(test)]
mod testing;
pub mod text_index;
mod title;
pub mod tree;
mod write;

pub use article::Article;
pub use attachment::{ATTACHMENTS_KIND, Attachment, AttachmentAct, AttachmentChange, Attachments};
pub use attachment_name::{AttachmentName, AttachmentNameError, Disposition};
pub use attachment_write::{
    AttachmentError, AttachmentLimits, AttachmentWrite, CheckedAttachment, Condition,
};
pub use content::{Content, ContentType, ContentTypeError, Inspector, is_text};
pub use difference::{Difference, DifferenceError, DifferenceLimits, Side, difference};
pub use front_matter::{FrontMatter, front_matter, tag};
pub use item_change::{ArticleChange, attachment_changes};
pub use media_type::of_name;
pub use merge::{Hunk, Merge, MergeSides, NotMergeable, merge};
pub use name::{ArticleName, ArticleNameError};
pub use path::{ArticlePath, PathError, Target};
pub use record::{KIND, key};
pub use revision::{Kind, Revision, RevisionError, RevisionFacts};
pub use search::{SearchIndex, fold};
pub use snapshot::{ApplyOutcome, ListQuery, Page, Snapshot, article_of_record};
pub use tag::RevisionTag;
pub use text_index::TextIndex;
pub use write::{
    AnnouncedText, Change, CheckedWrite, Limits, RENAMED_RECORDS_MAX, Redirect, StaleWrite,
    WriteAction, WriteError, resolve_base,
};
