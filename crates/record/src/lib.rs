//! The language between the surfaces and the store: records with serials, and batches of writes.
//!
//! a decided change -> [`Batch`] -> (the store commits it under one [`Serial`]) -> [`Record`]s -> the
//! next snapshot of a surface.
//!
//! A record is the latest body under a [`Key`]. A deleted key stays as a record without a body, so that every process
//! that follows the serials learns of the deletion. Large contents are not part of a record: they are blobs, named by
//! their [`Digest`], and a record lists the blobs that must exist as long as it does. This crate does no I/O.

mod batch;
mod change;
mod digest;
mod excerpt;
mod form;
mod key;
mod serial;
mod text;

pub use batch::{Batch, Expected, KeyState, Mismatch, Write};
pub use change::ChangeKind;
pub use digest::{Digest, DigestError, Hasher};
pub use excerpt::{escaped_excerpt, excerpt, shortened};
pub use form::{UnreadableReason, UnreadableRecord, check_form, read_body, write_body};
pub use key::{Key, KeyError};
pub use serial::{Serial, SerialError};

use bytes::Bytes;

/// The latest state of one key, as the store returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key of the record.
    pub key: Key,
    /// The commit that wrote it.
    pub serial: Serial,
    /// The body; `None` if the key was deleted.
    pub body: Option<Bytes>,
    /// The blobs that must exist as long as this record; empty if the key was deleted.
    pub blobs: Vec<Digest>,
}
