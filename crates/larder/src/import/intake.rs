//! Bytes on their way in: read once, digested, checked against what was claimed, looked into, then kept.
//!
//! path -> [`Intake::read`] -> [`Arrival`] -> [`Arrival::keep`]. What is dropped instead leaves nothing.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use pypi::archive::{ArchiveError, ArchiveFacts, ArchiveLimits, inspect};
use pypi::{ClaimedDigests, DigestHasher, FileDigests, Filename};
use rawzip::FileReader;
use record::Digest;
use store::{BlobStore, Staged};
use tokio::io::AsyncReadExt as _;

/// How much of a file is in memory at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where bytes go.
#[derive(Clone, Copy)]
pub(super) struct Intake<'store> {
    /// None in a dry run: bytes are read and judged, and go nowhere.
    pub(super) blobs: Option<&'store BlobStore>,
}

/// A file that was read.
pub(super) struct Arrival {
    /// What its bytes are.
    pub(super) digests: FileDigests,
    /// What was found in it, if it was looked into.
    pub(super) facts: Option<Result<ArchiveFacts, ArchiveError>>,
    staged: Option<Staged>,
}

impl Intake<'_> {
    /// Reads the file at `path`, and looks into it if `archive` says that it is a release file.
    ///
    /// # Errors
    /// A file that cannot be read or gathered; or that is not what was claimed, with both digests.
    pub(super) async fn read(
        &self,
        path: &Path,
        claimed: &ClaimedDigests,
        archive: Option<&Filename>,
    ) -> anyhow::Result<Arrival> {
        let unreadable = || format!("`{}` cannot be read", path.display());
        let mut file = tokio::fs::File::open(path).await.with_context(unreadable)?;
        if !file.metadata().await.with_context(unreadable)?.is_file() {
            anyhow::bail!("`{}` is not a file", path.display());
        }
        let mut hasher = DigestHasher::new(claimed);
        let mut upload = self.blobs.map(|blobs| blobs.begin(u64::MAX));
        let mut buffer = Vec::with_capacity(PIECE_BYTES);
        loop {
            buffer.clear();
            let mut piece = (&mut file).take(PIECE_BYTES as u64);
            if piece.read_to_end(&mut buffer).await.with_context(unreadable)? == 0 {
                break;
            }
            let digested = tokio::task::spawn_blocking(move || {
                hasher.update(&buffer);
                (hasher, buffer)
            });
            (hasher, buffer) = digested.await?;
            if let Some(upload) = &mut upload {
                upload.write(Bytes::copy_from_slice(&buffer)).await?;
            }
        }
        let digests = hasher.finish();
        claimed.verify(&digests).map_err(|mismatch| {
            let algorithm = mismatch.field.trim_end_matches("_digest");
            let (expected, found) = (mismatch.expected, mismatch.found);
            anyhow::anyhow!(
                "its {algorithm} is {found}, but {expected} was expected: it is damaged"
            )
        })?;
        let staged = match upload {
            Some(upload) => Some(upload.stage().await?),
            None => None,
        };
        let facts = match archive {
            None => None,
            Some(filename) => {
                // What is kept is what is looked into.
                let opened = match &staged {
                    Some(staged) => staged.file()?,
                    None => File::open(path).with_context(unreadable)?,
                };
                let (filename, size_bytes) = (filename.clone(), digests.size_bytes);
                let looking = tokio::task::spawn_blocking(move || {
                    let limits = ArchiveLimits::default();
                    inspect(FileReader::from(opened), size_bytes, &filename, &limits)
                });
                Some(looking.await?)
            }
        };
        Ok(Arrival { digests, facts, staged })
    }
}

impl Arrival {
    /// Names the bytes.
    pub(super) fn digest(&self) -> Digest {
        self.digests.sha256
    }

    /// Keeps the bytes, durably.
    ///
    /// # Errors
    /// Those of the blob store.
    pub(super) async fn keep(&mut self) -> anyhow::Result<()> {
        if let Some(staged) = self.staged.take() {
            staged.keep().await?;
        }
        Ok(())
    }
}
