//! [`BlobIntake`]: reads a file once, computes its digests, checks them, inspects the archive, and stores the bytes.
//!
//! path -> [`BlobIntake::read`] -> [`Arrival`] -> [`Arrival::persist`]. An arrival that is dropped without that leaves
//! nothing.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use pypi::archive::{ArchiveError, ArchiveFacts, ArchiveLimits, inspect};
use pypi::{ClaimedDigests, DigestHasher, FileDigests, Filename};
use rawzip::FileReader;
use record::Digest;
use store::{BlobStore, SpooledBlob};
use tokio::io::AsyncReadExt as _;

/// How many bytes of a file are in memory at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where the bytes of files are stored.
#[derive(Clone, Copy)]
pub(super) struct BlobIntake<'store> {
    /// `None` in a dry run: bytes are read and checked, but not stored.
    pub(super) blobs: Option<&'store BlobStore>,
}

/// A file that was read.
pub(super) struct Arrival {
    /// The digests of its bytes.
    pub(super) digests: FileDigests,
    /// The result of inspecting the archive; `None` if it was not inspected.
    pub(super) facts: Option<Result<ArchiveFacts, ArchiveError>>,
    staged: Option<SpooledBlob>,
}

impl BlobIntake<'_> {
    /// Reads the file at `path`; if `archive` names a release file, its contents are inspected too.
    ///
    /// # Errors
    /// If the file cannot be read or staged, or does not have a claimed digest; that error shows both digests.
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
                // The inspection reads the staged bytes, the same ones that will be stored.
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
    /// The digest that names the bytes.
    pub(super) fn digest(&self) -> Digest {
        self.digests.sha256
    }

    /// Stores the bytes durably.
    ///
    /// # Errors
    /// Those of the blob store.
    pub(super) async fn persist(&mut self) -> anyhow::Result<()> {
        if let Some(staged) = self.staged.take() {
            staged.persist().await?;
        }
        Ok(())
    }
}
