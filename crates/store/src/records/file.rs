//! The file that is open, told apart from another one that was put in its place.
//!
//! Who replaces a file by renaming leaves the one before it to those who have it open: what they write into it is
//! gone with it, and SQLite does not notice.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file by what the system knows it by.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl OpenFile {
    /// The file that is at `path` now.
    pub(super) fn at(path: &Path) -> io::Result<OpenFile> {
        Ok(OpenFile { path: path.to_owned(), identity: identity(path)? })
    }

    /// Whether it is there still. A question to the system's memory, not to the disk: it is asked wherever the
    /// file is used.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        match identity(&self.path) {
            Ok(found) => Ok(found == self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
