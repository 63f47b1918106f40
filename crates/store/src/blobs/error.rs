//! [`BlobError`]: what can go wrong with blobs, by what a caller can do about it.

use std::fmt;
use std::io;
use std::path::Path;

use record::Digest;

/// The name in messages for the local file of an upload, which has no path any more.
pub(super) const SPOOL: &str = "spool";

/// Why bytes were not kept, or not found. Nothing is left behind by a write that failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// More bytes than the caller allows.
    #[error("more than {bytes_max} bytes")]
    TooLarge {
        /// Most bytes that were allowed.
        bytes_max: u64,
    },
    /// The upload cannot go on: an earlier write failed, or its future was dropped before its end.
    #[error("the upload lost some of its bytes when an earlier write failed or was abandoned")]
    Abandoned,
    /// Another program, or a later version of this one, prepared the place.
    #[error("`{place}` is `{found}`, but this program knows only `{expected}`")]
    Layout {
        /// The file or object that names the layout.
        place: String,
        /// The layout that was found, shortened.
        found: String,
        /// The layout that was expected.
        expected: &'static str,
    },
    /// The place was never prepared, and the caller does not want a new one.
    #[error("there are no blobs: `{place}` does not exist")]
    Absent {
        /// The file or object that would name the layout.
        place: String,
    },
    /// The place no longer has the blobs of this store: the directory was renamed, unmounted or replaced, or it is another
    /// bucket. Nothing was written. Once the right one is back, writes go on.
    #[error("the blobs of this store are not at their place: `{place}`: {flaw}")]
    Away {
        /// The file or object that must name the store.
        place: String,
        /// What is wrong with the place.
        flaw: String,
    },
    /// The bytes of a stored blob do not have the digest that is its name.
    #[error("the blob {expected} is damaged: the bytes in `{place}` have the digest {found}")]
    Damaged {
        /// The file or object.
        place: String,
        /// Its name.
        expected: Digest,
        /// The digest of the bytes that are there.
        found: Digest,
    },
    /// The settings of the object store cannot be used.
    #[error("the object store's settings cannot be used: {0}")]
    Settings(String),
    /// A stored blob ended before its size: a file cut while it was read, or a lying object store.
    #[error("`{place}` ended at byte {found}, but its size is {expected} bytes")]
    Cut {
        /// The file or object.
        place: String,
        /// Its size when it was opened, in bytes.
        expected: u64,
        /// The number of bytes that it had.
        found: u64,
    },
    /// The disk or the object store refused; the log has the whole text.
    #[error("cannot {action} `{place}`: {cause}")]
    Failed {
        /// The kind of refusal.
        kind: FailureKind,
        /// The failed action: "write", "rename" …
        action: &'static str,
        /// The file or object.
        place: String,
        /// The refusal itself.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The kind of refusal of a [`BlobError::Failed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The disk is full, or a quota is used up.
    NoSpace,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The process or its credentials lack a right.
    Denied,
    /// The object store cannot be reached, is too slow, or reports an error of its own.
    Unavailable,
    /// The object store answers 409: another request for the same object is under way.
    Busy,
    /// Anything else.
    Other,
}

impl BlobError {
    /// The kind of a refusal by the disk or the object store; `None` for the caller's own errors.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            BlobError::Failed { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// Whether reading the local file of an upload failed: then the object store is not to blame.
    pub fn is_of_local_file(&self) -> bool {
        matches!(self, BlobError::Failed { action: "read", place, .. } if place == SPOOL)
    }

    /// Whether the same call may succeed later without anyone changing the configuration: space
    /// can become free, an object store can return or be done with another request.
    pub fn is_temporary(&self) -> bool {
        use FailureKind::{Busy, NoSpace, Unavailable};
        matches!(self, BlobError::Away { .. })
            || matches!(self.kind(), Some(NoSpace | Unavailable | Busy))
    }

    /// A refusal by the file system.
    pub(super) fn io(action: &'static str, path: &Path, cause: io::Error) -> BlobError {
        use io::ErrorKind as Kind;
        let kind = match cause.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => FailureKind::NoSpace,
            Kind::ReadOnlyFilesystem => FailureKind::ReadOnly,
            Kind::PermissionDenied => FailureKind::Denied,
            _ => FailureKind::Other,
        };
        let place = path.display().to_string();
        BlobError::Failed { kind, action, place, cause: cause.into() }
    }

    /// A refusal by the object store, its bounded retries included.
    pub(super) fn object(
        action: &'static str,
        place: impl fmt::Display,
        cause: object_store::Error,
    ) -> BlobError {
        use object_store::Error as Cause;
        let kind = match cause {
            Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => FailureKind::Denied,
            Cause::Generic { .. } => FailureKind::Unavailable,
            // Nothing here is written on the condition that it is not there yet: it is a 409.
            Cause::AlreadyExists { .. } => FailureKind::Busy,
            _ => FailureKind::Other,
        };
        BlobError::Failed { kind, action, place: place.to_string(), cause: cause.into() }
    }
}

/// Runs `work`, which blocks on files or computes for long, away from the runtime's own threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(BlobError::task(error)))
}

impl BlobError {
    /// A task of ours that ended without a result: the runtime is shutting down, or it panicked.
    pub(super) fn task(cause: tokio::task::JoinError) -> BlobError {
        let kind = FailureKind::Other;
        let place = "blob store".to_owned();
        BlobError::Failed { kind, action: "finish a task of", place, cause: cause.into() }
    }
}
