//! [`OpenZips`]: zips of documentation that are being read; each is opened once and kept open for a while.
//!
//! digest -> the blob's file, or a copy of it on the disk if blobs are objects -> [`SafeZip`]. Memory for directories and disk
//! space for copies are bounded.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use pypi::archive::{ArchiveError, ArchiveLimits, SafeZip};
use quick_cache::sync::Cache;
use rawzip::FileReader;
use record::Digest;
use resources::turns::{Turn, Turns, blocking};
use store::BlobStore;

/// Memory for the directories of open zips; each counts for at least 1/32 of it, so that at most 32 are open.
const DIRECTORIES_BYTES_MAX: u64 = 64 << 20;
const DIRECTORY_BYTES_MIN: u64 = 2 << 20;

/// Bytes that a member takes in a directory, roughly.
const MEMBER_BYTES: u64 = 200;

/// Threads that unpack larger members at the same time; no client keeps one while it is slow to read.
const UNPACKING_MAX: usize = 32;

/// Directories of zips that are read at the same time: each takes memory before the cache counts it.
const OPENING_MAX: usize = 4;

/// Most bytes of a zip in an object store, which is copied to the disk so that its members can be read in any order.
pub(crate) const COPY_BYTES_MAX: u64 = 1 << 30;

/// Copies that are made at the same time.
const COPYING_MAX: usize = 4;

/// One byte of the cache's budget pays for this many bytes on disk, so at most 4 GiB of copies are kept.
const COPY_SHARE: u64 = 64;

/// A zip whose file is open.
pub(crate) type Zip = SafeZip<Arc<FileReader>>;

/// The zips that are open.
pub struct OpenZips {
    zips: Cache<Digest, OpenZip, ZipWeight>,
    /// One turn for each thread that may unpack.
    pub(crate) unpacking: Turns,
    opening: Turns,
    copying: Turns,
}

#[derive(Clone)]
struct OpenZip {
    zip: Arc<Zip>,
    /// Bytes of its copy on the disk; 0 without a copy.
    copied_bytes: u64,
}

#[derive(Clone)]
struct ZipWeight;

impl quick_cache::Weighter<Digest, OpenZip> for ZipWeight {
    fn weight(&self, _: &Digest, opened: &OpenZip) -> u64 {
        let directory_bytes = opened.zip.members().len() as u64 * MEMBER_BYTES;
        directory_bytes.max(opened.copied_bytes / COPY_SHARE).max(DIRECTORY_BYTES_MIN)
    }
}

impl Default for OpenZips {
    fn default() -> OpenZips {
        OpenZips {
            zips: Cache::with_weighter(32, DIRECTORIES_BYTES_MAX, ZipWeight),
            unpacking: Turns::new(UNPACKING_MAX),
            opening: Turns::new(OPENING_MAX),
            copying: Turns::new(COPYING_MAX),
        }
    }
}

/// Why a zip is not opened.
#[derive(Debug)]
pub(crate) enum OpenZipError {
    /// The store does not have it.
    Missing,
    /// The blob would have to be copied, and its size, in bytes, is above the bound.
    Large(u64),
    /// It is not a zip that may be read.
    Broken(ArchiveError),
    /// The store or the disk failed.
    Failed(String),
}

impl OpenZips {
    /// The zip with this digest. Copies are made in `directory`.
    ///
    /// # Errors
    /// [`OpenZipError`].
    pub(crate) async fn open(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        digest: Digest,
    ) -> Result<Arc<Zip>, OpenZipError> {
        let opening = async {
            let (file, is_copy) = match local(blobs, digest).await? {
                Some(file) => (file, false),
                None => {
                    let turn = self.copying.take().await;
                    (copied(blobs, directory, digest, COPY_BYTES_MAX, turn).await?.0, true)
                }
            };
            let opening = move || {
                let bytes = file.metadata().map_err(|error| failed(&error))?.len();
                let reader = Arc::new(FileReader::from(file));
                let zip = SafeZip::open(reader, bytes, &ArchiveLimits::default());
                let zip = zip.map(Arc::new).map_err(|error| match error {
                    ArchiveError::Io(error) => failed(&error),
                    error => OpenZipError::Broken(error),
                })?;
                Ok(OpenZip { zip, copied_bytes: if is_copy { bytes } else { 0 } })
            };
            self.opening.run(opening).await
        };
        Ok(self.zips.get_or_insert_async(&digest, opening).await?.zip)
    }
}

/// The file of a blob; `None` if blobs are no files here.
pub(crate) async fn local(blobs: &BlobStore, digest: Digest) -> Result<Option<File>, OpenZipError> {
    let Some(path) = blobs.local_path(digest) else { return Ok(None) };
    if blobs.has_origin() {
        blobs.bring(digest).await.map_err(|error| failed(&error))?;
    }
    match tokio::fs::File::open(path).await {
        Ok(file) => Ok(Some(file.into_std().await)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenZipError::Missing),
        Err(error) => Err(failed(&error)),
    }
}

/// Copies a blob of an object store to a file without a name, of at most `bytes_max`; returns the turn that it was copied in,
/// too.
pub(crate) async fn copied(
    blobs: &BlobStore,
    directory: &Path,
    digest: Digest,
    bytes_max: u64,
    mut turn: Turn,
) -> Result<(File, Turn), OpenZipError> {
    let blob = blobs.open_blob(digest).await.map_err(|error| failed(&error))?;
    let blob = blob.ok_or(OpenZipError::Missing)?;
    if blob.size_bytes() > bytes_max {
        return Err(OpenZipError::Large(blob.size_bytes()));
    }
    let mut pieces = blob.read();
    let mut file = tempfile::tempfile_in(directory).map_err(|error| failed(&error))?;
    while let Some(piece) = pieces.try_next().await.map_err(|error| failed(&error))? {
        // The copying keeps its turn even if the caller no longer waits.
        let written;
        (written, turn) = blocking(move || (file.write_all(&piece).map(|()| file), turn)).await;
        file = written.map_err(|error| failed(&error))?;
    }
    file.rewind().map_err(|error| failed(&error))?;
    Ok((file, turn))
}

fn failed(error: &dyn std::fmt::Display) -> OpenZipError {
    OpenZipError::Failed(error.to_string())
}
