//! [`DamageLog`]: the blobs that were found missing or changed, until they are found whole again.
//!
//! Reads, verifications and every use that misses a blob named by a record write into it; reports about the store's state read
//! it. An upload of the same bytes replaces a blob that is in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use record::Digest;

use super::BlobVerdict;

/// Blobs that are remembered by name; beyond that damage is only reported to the caller.
const DAMAGED_MAX: usize = 10_000;

/// Files that are remembered as whole. When there are more, all are forgotten, and verified again when they are read.
const WHOLE_MAX: usize = 65_536;

/// What is known of the blobs' state in this process.
#[derive(Default)]
pub(super) struct DamageLog {
    damaged: Mutex<BTreeMap<Digest, BlobVerdict>>,
    /// Files that were read to their end and had the right digest, as they were then.
    whole: Mutex<HashMap<Digest, Stamp>>,
}

/// Distinguishes a file from another one, and from itself after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) size_bytes: u64,
    modified_at: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Stamp {
        use std::os::unix::fs::MetadataExt as _;
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl DamageLog {
    /// Notes the verdict about a blob.
    pub(super) fn note(&self, digest: Digest, verdict: BlobVerdict) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if verdict == BlobVerdict::Whole {
            damaged.remove(&digest);
            return;
        }
        if damaged.len() < DAMAGED_MAX && damaged.insert(digest, verdict) != Some(verdict) {
            tracing::error!(%digest, ?verdict, "a blob is missing or damaged");
        }
        drop(damaged);
        self.whole.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest);
    }

    /// Notes that the blob's file was whole when it had this stamp.
    pub(super) fn note_whole(&self, digest: Digest, stamp: Stamp) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if whole.len() >= WHOLE_MAX {
            whole.clear();
        }
        whole.insert(digest, stamp);
        drop(whole);
        self.note(digest, BlobVerdict::Whole);
    }

    /// Whether the file of a blob was whole, and has not been changed since.
    pub(super) fn is_whole(&self, digest: &Digest, stamp: Stamp) -> bool {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.get(digest) == Some(&stamp)
    }

    pub(super) fn is_damaged(&self, digest: &Digest) -> bool {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).contains_key(digest)
    }

    pub(super) fn all(&self) -> Vec<(Digest, BlobVerdict)> {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.iter().map(|(digest, verdict)| (*digest, *verdict)).collect()
    }
}
