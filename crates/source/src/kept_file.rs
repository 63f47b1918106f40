//! [`KeptFile`]: the last good arrival of a source, byte for byte, in a directory of its own in the data directory.
//!
//! [`Arrival`] -> [`KeptFile::stage`], a copy beside the old one -> (the caller reads the copy, and uses it if it is good) ->
//! [`KeptFile::keep`]: synced and renamed. Beside it [`KeptDirectory`] remembers what the server said about it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use aur::delta::HashingWriter;

use super::SourceError;
use super::arrival::Arrival;
use super::kept_directory::{KeptDirectory, copy, unwritten};

/// The place of the last good arrival. The caller holds the lock of the data directory.
#[derive(Debug)]
pub struct KeptFile {
    directory: KeptDirectory,
}

/// A copy that is not kept yet. It is removed on drop.
#[derive(Debug)]
pub struct Staged {
    path: PathBuf,
    /// The copy.
    pub file: File,
    sha256: String,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After it was kept, nothing is there any more.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl KeptFile {
    /// Creates the directory if it does not exist, and removes what a killed process left behind.
    pub fn open(directory: PathBuf, name: &'static str) -> KeptFile {
        KeptFile { directory: KeptDirectory::open(directory, name) }
    }

    /// The directory for spool files.
    pub fn spool_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Opens what an earlier run kept, if there is a file, and reads it once for its digest. This blocks.
    ///
    /// # Errors
    /// [`SourceError::File`] or [`SourceError::NotAFile`] if it exists but cannot be read.
    pub fn load(&self) -> Result<Option<Arrival>, SourceError> {
        Ok(self.directory.load()?.map(|(arrival, _)| arrival))
    }

    /// Copies an arrival, to be read and then kept. This blocks.
    ///
    /// # Errors
    /// [`SourceError::Write`] if the disk is full or read-only; [`SourceError::File`] or
    /// [`SourceError::ChangedWhileRead`] for the arrival.
    pub fn stage(&self, arrival: &Arrival) -> Result<Staged, SourceError> {
        self.directory.create()?;
        let path = self.directory.aside();
        let _ = std::fs::remove_file(&path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(unwritten(&path))?;
        // Made now, so that an error removes the file.
        let mut staged = Staged { path, file, sha256: String::new() };
        let mut output = HashingWriter::new(&staged.file);
        copy(&mut arrival.reader(), &mut output, &arrival.path, &staged.path)?;
        staged.sha256 = output.finish().1;
        arrival.check_unchanged()?;
        Ok(staged)
    }

    /// Durably replaces the kept file by this copy. This blocks.
    ///
    /// # Errors
    /// [`SourceError::Write`]. The former one then stays, or the next start sends an unconditional request.
    pub fn keep(&self, staged: &Staged, arrival: &Arrival) -> Result<(), SourceError> {
        let path = self.directory.file();
        if let Some(modified_at) = arrival.modified_at {
            // Some file systems refuse it; then the time of keeping counts.
            let _ = staged.file.set_modified(modified_at);
        }
        let renamed = staged.file.sync_all().and_then(|()| std::fs::rename(&staged.path, &path));
        renamed.map_err(unwritten(&path))?;
        self.directory.remember(&staged.sha256, arrival)
    }
}
