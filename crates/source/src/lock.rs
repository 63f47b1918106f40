//! The lock of a data directory: one process at a time, released by the system when it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use super::SourceError;

const FILE_NAME: &str = "larder.lock";

/// Holds the lock of a data directory until it is dropped, or until the process ends in any way.
#[derive(Debug)]
pub struct DataDirLock {
    data_dir: PathBuf,
    /// `None` if the directory is read-only and has no lock file: no process can write there anyway.
    _file: Option<File>,
}

impl DataDirLock {
    /// Creates the directory if it does not exist, and takes its lock without waiting. A read-only directory is
    /// locked as far as possible, so that the server can serve a kept copy from it.
    ///
    /// # Errors
    /// [`SourceError::Locked`] if another process (or another lock of this one) holds it,
    /// [`SourceError::Write`] if the directory or the lock file can be neither created nor read.
    pub fn acquire(data_dir: &Path) -> Result<DataDirLock, SourceError> {
        let lock_path = data_dir.join(FILE_NAME);
        let failed = |path: &Path, cause| SourceError::Write { path: path.to_owned(), cause };
        std::fs::create_dir_all(data_dir).map_err(|cause| failed(data_dir, cause))?;
        // The file is not truncated: until this process has the lock, the process id in it is the holder's.
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock_path);
        let (mut file, writable) = match opened {
            Ok(file) => (file, true),
            Err(cause) if is_read_only(cause.kind()) => match File::open(&lock_path) {
                Ok(file) => (file, false),
                Err(_) => return Ok(DataDirLock { data_dir: data_dir.to_owned(), _file: None }),
            },
            Err(cause) => return Err(failed(&lock_path, cause)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let process =
                    file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(SourceError::Locked {
                    data_dir: data_dir.to_owned(),
                    lock_path,
                    process,
                });
            }
            Err(TryLockError::Error(cause)) if cause.kind() == ErrorKind::Unsupported => {
                tracing::warn!(path = %lock_path.display(), "this file system has no locks: {cause}");
            }
            Err(TryLockError::Error(cause)) => return Err(failed(&lock_path, cause)),
        }
        if writable {
            // The process id is only for the error message above, so a full disk is no reason to stop.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        }
        Ok(DataDirLock { data_dir: data_dir.to_owned(), _file: Some(file) })
    }

    /// The locked directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }
}

pub(crate) fn is_read_only(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_process_is_told_which_one_holds_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("new/data");
        let lock = DataDirLock::acquire(&data_dir).unwrap();
        let error = DataDirLock::acquire(&data_dir).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the data directory `{0}` is in use by process {1} (lock file `{0}/larder.lock`)",
                data_dir.display(),
                std::process::id()
            )
        );
        drop(lock);
        DataDirLock::acquire(&data_dir).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_created_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = DataDirLock::acquire(&file.join("data")).unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("cannot write `{}/data`: ", file.display())),
            "{error}"
        );
    }
}
