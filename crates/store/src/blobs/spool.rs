//! Spools: local temporary files that are hashed while they are written.
//!
//! chunks -> hash and file -> (a rename, or an upload) or nothing. A process keeps a lock on its spools, so that other
//! processes can tell those in use from those that a `kill -9` left behind.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::SystemTime;

use record::{Digest, Hasher};
use tempfile::NamedTempFile;

use super::error::BlobError;

/// How much is hashed and written at once, and read at once, in bytes.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;

const PREFIX: &str = "upload-";
const SUFFIX: &str = ".part";

/// A file that is being written; dropping it removes it.
pub(super) struct Spool {
    file: NamedTempFile,
    hasher: Hasher,
    size_bytes: u64,
}

/// A complete file, with its size and digest; dropping it removes it.
pub(super) struct SpooledFile {
    pub(super) file: NamedTempFile,
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
}

impl Spool {
    /// A new file in `directory`, which is made if it is missing. The directory above it is not: where that is gone,
    /// a volume is gone.
    pub(super) fn create(directory: &Path) -> Result<Spool, BlobError> {
        loop {
            let file = match create_file(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => make_directory(directory)
                    .and_then(|()| create_file(directory))
                    .map_err(|error| BlobError::io("create a file in", directory, error))?,
                made => {
                    made.map_err(|error| BlobError::io("create a file in", directory, error))?
                }
            };
            match file.as_file().lock() {
                // If files cannot be locked, none is ever taken for left behind.
                Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                    return Err(BlobError::io("lock", file.path(), error));
                }
                _ => {}
            }
            let metadata = file
                .as_file()
                .metadata()
                .map_err(|error| BlobError::io("inspect", file.path(), error))?;
            // Between its creation and its lock, another process may have taken it for left behind.
            if metadata.nlink() > 0 {
                return Ok(Spool { file, hasher: Hasher::new(), size_bytes: 0 });
            }
        }
    }

    /// Takes the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        // Hashed in pieces that are still in the processor's cache when they are copied.
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.hasher.update(chunk);
            let written = self.file.as_file_mut().write_all(chunk);
            written.map_err(|error| BlobError::io("write", self.file.path(), error))?;
            self.size_bytes += chunk.len() as u64;
        }
        Ok(())
    }

    /// Writes something, and says when that was by the clock of the file system.
    pub(super) fn written_at(mut self) -> Result<SystemTime, BlobError> {
        self.write(b"the time")?;
        let inspected = self.file.as_file().metadata().and_then(|metadata| metadata.modified());
        inspected.map_err(|error| BlobError::io("inspect", self.file.path(), error))
    }

    /// All bytes are there.
    pub(super) fn finish(self) -> SpooledFile {
        let Spool { file, hasher, size_bytes } = self;
        SpooledFile { file, digest: hasher.finish(), size_bytes }
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        // Another upload was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn create_file(directory: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .suffix(SUFFIX)
        .permissions(std::fs::Permissions::from_mode(0o640))
        .tempfile_in(directory)
}

/// Removes the spools in `directory` that no living process uses; says how many there were. Files
/// of other names are left alone. With `is_dry_run` they are only counted.
pub(super) fn remove_stale(directory: &Path, is_dry_run: bool) -> Result<u64, BlobError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(|error| BlobError::io("list", directory, error))?,
    };
    let mut count = 0;
    for entry in entries {
        let entry = entry.map_err(|error| BlobError::io("list", directory, error))?;
        let name = entry.file_name();
        let is_spool =
            name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if !is_spool {
            continue;
        }
        let path = entry.path();
        // Some network file systems lock only files that are open for writing.
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(BlobError::io("open", &path, error)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                continue;
            }
            Err(TryLockError::Error(error)) => return Err(BlobError::io("lock", &path, error)),
        }
        if !is_dry_run {
            match std::fs::remove_file(&path) {
                // Its owner has kept or dropped it since the listing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                removed => removed.map_err(|error| BlobError::io("remove", &path, error))?,
            }
        }
        count += 1;
    }
    Ok(count)
}
