//! [`Attachments`]: the files of an article, as one record has them.
//!
//! The key is `attachments/{name of the article}`. All files of an article are in one record. Every write that adds a file,
//! and every write that renames or deletes the article, expects this record unchanged. So two of them cannot both succeed at once:
//! the bounds hold for all files together, and no file is left at a name without an article. The bytes are blobs. Files belong to
//! the article and not to a revision: a file that is replaced or removed is gone. The record also has the last changes of the
//! files, each with its author and time.

use std::sync::Arc;

use ::record::{Digest, Key, Record, Serial, UnreadableReason, check_form, read_body, write_body};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ArticleName;
use crate::attachment_name::AttachmentName;

/// The first segment of the keys of attachments.
pub const ATTACHMENTS_KIND: &str = "attachments";

/// The form of the record bodies that this version writes; it reads no other.
const FORM: u32 = 1;

/// A record keeps this many of the last changes.
pub(crate) const ATTACHMENT_CHANGES_MAX: usize = 100;

/// A file of an article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, which no other file of the article has.
    pub name: AttachmentName,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Who added or replaced it last.
    pub author: Arc<str>,
    /// When.
    pub at: Timestamp,
}

/// The kind of change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentAct {
    /// A file was added.
    Added,
    /// A file got other bytes.
    Replaced,
    /// A file was removed.
    Removed,
    /// The article was deleted, and all its files with it.
    Cleared,
}

/// A change of the files of an article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentChange {
    /// The number of the change, from 1; 0 if the record does not have the change any more.
    pub number: u64,
    /// The kind of change.
    pub act: AttachmentAct,
    /// The file; `None` if all files were removed.
    pub name: Option<AttachmentName>,
    /// Digest and size of the file after the change; `None` if it was removed.
    pub content: Option<(Digest, u64)>,
    /// Who did it.
    pub author: Arc<str>,
    /// When.
    pub at: Timestamp,
}

/// The files of an article.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    /// The commit that changed them last.
    pub serial: Serial,
    /// Ascending by name.
    files: Vec<Attachment>,
    /// The last changes, oldest first.
    changes: Vec<AttachmentChange>,
    /// Whether the record cannot be read: then there are no files, and none can be added.
    is_unreadable: bool,
}

impl Attachment {
    /// Its entity tag, without quotes: strong, as it names the bytes, and the name says how they are sent.
    pub fn tag(&self) -> String {
        format!("sha256-{}", self.digest)
    }
}

impl AttachmentAct {
    /// The word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            AttachmentAct::Added => "added",
            AttachmentAct::Replaced => "replaced",
            AttachmentAct::Removed => "removed",
            AttachmentAct::Cleared => "cleared",
        }
    }
}

impl Attachments {
    /// The files, ascending by name.
    pub fn files(&self) -> &[Attachment] {
        &self.files
    }

    /// The file with this name.
    pub fn file(&self, name: &str) -> Option<&Attachment> {
        let at = self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        self.files.get(at)
    }

    /// The last changes, oldest first.
    pub fn changes(&self) -> &[AttachmentChange] {
        &self.changes
    }

    /// Bytes in all files together.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// Whether the record cannot be read.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// The files after `change`, which gets the next number.
    pub(crate) fn with(&self, change: AttachmentChange) -> Attachments {
        let mut next = self.clone();
        match (&change.name, change.content) {
            (None, _) => next.files.clear(),
            (Some(name), content) => {
                let file = content.map(|(digest, size_bytes)| Attachment {
                    name: name.clone(),
                    digest,
                    size_bytes,
                    author: change.author.clone(),
                    at: change.at,
                });
                match (next.files.binary_search_by(|file| file.name.cmp(name)), file) {
                    (Ok(at), Some(file)) => next.files[at] = file,
                    (Ok(at), None) => _ = next.files.remove(at),
                    (Err(at), Some(file)) => next.files.insert(at, file),
                    (Err(_), None) => {}
                }
            }
        }
        let number = next.changes.last().map_or(1, |last| last.number + 1);
        next.changes.push(AttachmentChange { number, ..change });
        let surplus = next.changes.len().saturating_sub(ATTACHMENT_CHANGES_MAX);
        next.changes.drain(..surplus);
        next
    }

    /// The changes since the earlier states `before`, as far as the record still has them.
    pub(crate) fn changes_since<'a>(
        &'a self,
        before: &'a [&'a Attachments],
    ) -> impl Iterator<Item = &'a AttachmentChange> {
        let is_known = |change: &&AttachmentChange| {
            before.iter().any(|before| before.changes.contains(change))
        };
        self.changes.iter().filter(move |change| !is_known(change))
    }

    /// The last change of each file since the article was last deleted. A file whose changes the record no longer has counts as
    /// added.
    pub(crate) fn last_of_each_file(&self) -> Vec<AttachmentChange> {
        let is_cleared = |change: &AttachmentChange| change.act == AttachmentAct::Cleared;
        let start = self.changes.iter().rposition(is_cleared).map_or(0, |at| at + 1);
        let kept = &self.changes[start..];
        let unkept = self
            .files
            .iter()
            .filter(|file| !kept.iter().any(|change| change.name.as_ref() == Some(&file.name)));
        let unkept = unkept.map(|file| AttachmentChange {
            number: 0,
            act: AttachmentAct::Added,
            name: Some(file.name.clone()),
            content: Some((file.digest, file.size_bytes)),
            author: file.author.clone(),
            at: file.at,
        });
        let is_last = |(at, change): &(usize, &AttachmentChange)| {
            !kept[at + 1..].iter().any(|later| later.name == change.name)
        };
        let last = kept.iter().enumerate().filter(is_last).map(|(_, change)| change.clone());
        unkept.chain(last).collect()
    }

    /// Replaces a record that cannot be read.
    pub(crate) fn unreadable(serial: Serial) -> Attachments {
        Attachments { serial, is_unreadable: true, ..Attachments::default() }
    }

    /// The record.
    pub(crate) fn record(&self, article: &ArticleName) -> Record {
        let (body, blobs) = render(self);
        Record { key: attachments_key(article), serial: self.serial, body: Some(body), blobs }
    }
}

/// The key of the record with the attachments of an article: at most 524 bytes.
pub(crate) fn attachments_key(article: &ArticleName) -> Key {
    Key::new(&format!("{ATTACHMENTS_KIND}/{article}")).expect("a checked name has no controls")
}

/// The article of a key of [`attachments_key`], by what follows the first segment.
pub(crate) fn parse_key(rest: &str) -> Option<ArticleName> {
    ArticleName::parse(rest).ok().filter(|name| name.as_str() == rest)
}

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    v: u32,
    #[serde(borrow, default)]
    files: Vec<WireFile<'a>>,
    #[serde(borrow, default)]
    changes: Vec<WireChange<'a>>,
}

#[derive(Serialize, Deserialize)]
struct WireFile<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    sha256: std::borrow::Cow<'a, str>,
    size_bytes: u64,
    #[serde(borrow)]
    author: std::borrow::Cow<'a, str>,
    at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct WireChange<'a> {
    number: u64,
    act: WireAct,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    sha256: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(borrow)]
    author: std::borrow::Cow<'a, str>,
    at: Timestamp,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireAct {
    Added,
    Replaced,
    Removed,
    Cleared,
}

/// The body of the record, and the blobs that it needs.
pub(crate) fn render(attachments: &Attachments) -> (Bytes, Vec<Digest>) {
    let file = |file: &'_ Attachment| WireFile {
        name: file.name.as_str().to_owned().into(),
        sha256: file.digest.to_string().into(),
        size_bytes: file.size_bytes,
        author: file.author.to_string().into(),
        at: file.at,
    };
    let change = |change: &'_ AttachmentChange| WireChange {
        number: change.number,
        act: match change.act {
            AttachmentAct::Added => WireAct::Added,
            AttachmentAct::Replaced => WireAct::Replaced,
            AttachmentAct::Removed => WireAct::Removed,
            AttachmentAct::Cleared => WireAct::Cleared,
        },
        name: change.name.as_ref().map(|name| name.as_str().to_owned().into()),
        sha256: change.content.map(|(digest, _)| digest.to_string().into()),
        size_bytes: change.content.map(|(_, size_bytes)| size_bytes),
        author: change.author.to_string().into(),
        at: change.at,
    };
    let body = Body {
        v: FORM,
        files: attachments.files.iter().map(file).collect(),
        changes: attachments.changes.iter().map(change).collect(),
    };
    let mut blobs: Vec<Digest> = attachments.files.iter().map(|file| file.digest).collect();
    blobs.sort_unstable();
    blobs.dedup();
    (write_body(&body), blobs)
}

/// Parses the body of the record. Names of authors are taken from `share`.
pub(crate) fn parse(
    record: &Record,
    body: &[u8],
    mut share: impl FnMut(&str) -> Arc<str>,
) -> Result<Attachments, UnreadableReason> {
    let body: Body<'_> = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let named = |text: &str| {
        let name = AttachmentName::parse(text).ok().filter(|name| name.as_str() == text);
        name.ok_or(UnreadableReason::Member("name"))
    };
    let digest = |text: &str| text.parse().map_err(|_| UnreadableReason::Member("sha256"));
    let mut files = Vec::with_capacity(body.files.len());
    for file in &body.files {
        files.push(Attachment {
            name: named(&file.name)?,
            digest: digest(&file.sha256)?,
            size_bytes: file.size_bytes,
            author: share(&file.author),
            at: file.at,
        });
    }
    if !files.is_sorted_by(|one, other| one.name < other.name) {
        return Err(UnreadableReason::Member("files"));
    }
    let mut changes = Vec::with_capacity(body.changes.len());
    for change in &body.changes {
        let content = match (&change.sha256, change.size_bytes) {
            (Some(text), Some(size_bytes)) => Some((digest(text)?, size_bytes)),
            _ => None,
        };
        changes.push(AttachmentChange {
            number: change.number,
            act: match change.act {
                WireAct::Added => AttachmentAct::Added,
                WireAct::Replaced => AttachmentAct::Replaced,
                WireAct::Removed => AttachmentAct::Removed,
                WireAct::Cleared => AttachmentAct::Cleared,
            },
            name: change.name.as_deref().map(named).transpose()?,
            content,
            author: share(&change.author),
            at: change.at,
        });
    }
    Ok(Attachments { serial: record.serial, files, changes, is_unreadable: false })
}
