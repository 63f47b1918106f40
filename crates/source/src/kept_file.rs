//! [`KeptFile`]: the last good arrival of a source, byte for byte, in a directory of its own in the data directory.
//!
//! [`Arrival`] -> [`KeptFile::stage`], a copy beside the old one -> (the caller reads the copy, and uses it if it is good) ->
//! [`KeptFile::keep`]: synced and renamed. A second file has what the server said about it, and names its digest, as for
//! [`super::KeptDump`].

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::SourceError;
use super::arrival::{Arrival, ArrivalKind, Validators};
use super::spec::hex;
use super::spool::SPOOL_PREFIX;

const STATE_FILE_NAME: &str = "source.json";
const COPY_BUFFER_BYTES: usize = 128 << 10;

/// The place of the last good arrival. The caller holds the lock of the data directory.
#[derive(Debug)]
pub struct KeptFile {
    directory: PathBuf,
    name: &'static str,
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

/// What is remembered about the kept file. Wire form: `source.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// SHA-256 of the kept file that the rest is about.
    sha256: String,
    /// The origin for people, without credentials.
    origin: String,
    /// [`super::SourceSpec::fingerprint`].
    source_fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
}

impl KeptFile {
    /// Creates the directory if it does not exist, and removes what a killed process left behind.
    pub fn open(directory: PathBuf, name: &'static str) -> KeptFile {
        // An error here would appear again, with its reason, when a file is kept.
        let _ = std::fs::create_dir(&directory);
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(SPOOL_PREFIX) || name.ends_with(".tmp") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        KeptFile { directory, name }
    }

    /// The directory for spool files.
    pub fn spool_dir(&self) -> &Path {
        &self.directory
    }

    fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// Opens what an earlier run kept, if there is anything, and reads it once for its digest. This blocks.
    ///
    /// # Errors
    /// [`SourceError::File`] or [`SourceError::NotAFile`] if it exists but cannot be read.
    pub fn load(&self) -> Result<Option<Arrival>, SourceError> {
        let path = self.path();
        let mut arrival = match Arrival::open(&path, u64::MAX) {
            Err(SourceError::File { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            outcome => outcome?,
        };
        let sha256 = copied(&arrival, None)?;
        arrival.origin = format!("{} (kept)", path.display());
        arrival.kind = ArrivalKind::KeptDump;
        let state = std::fs::read(self.directory.join(STATE_FILE_NAME)).ok();
        let state: Option<State> = state.and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(state) = state.filter(|state| state.sha256 == sha256) {
            arrival.origin = format!("{} (kept from {})", path.display(), state.origin);
            arrival.source_fingerprint = state.source_fingerprint;
            arrival.validators =
                Validators { etag: state.etag, last_modified: state.last_modified };
        }
        arrival.sha256 = Some(sha256);
        Ok(Some(arrival))
    }

    /// Copies an arrival, to be read and then kept. This blocks.
    ///
    /// # Errors
    /// [`SourceError::Write`] if the disk is full or read-only; [`SourceError::File`] or
    /// [`SourceError::ChangedWhileRead`] for the arrival.
    pub fn stage(&self, arrival: &Arrival) -> Result<Staged, SourceError> {
        match std::fs::create_dir(&self.directory) {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
                return Err(SourceError::Write { path: self.directory.clone(), cause });
            }
            _ => {}
        }
        let path = self.directory.join(format!("{}.tmp", self.name));
        let _ = std::fs::remove_file(&path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(unwritten(&path))?;
        let mut staged = Staged { path, file, sha256: String::new() };
        staged.sha256 = copied(arrival, Some((&staged.file, &staged.path)))?;
        arrival.check_unchanged()?;
        Ok(staged)
    }

    /// Puts a copy in the place of the one before, durably. This blocks.
    ///
    /// # Errors
    /// [`SourceError::Write`]. The former one then stays, or the next start sends an unconditional request.
    pub fn keep(&self, staged: &Staged, arrival: &Arrival) -> Result<(), SourceError> {
        let path = self.path();
        if let Some(modified_at) = arrival.modified_at {
            // Some file systems refuse it; then the time of keeping counts.
            let _ = staged.file.set_modified(modified_at);
        }
        let renamed = staged.file.sync_all().and_then(|()| std::fs::rename(&staged.path, &path));
        renamed.map_err(unwritten(&path))?;
        let state = State {
            sha256: staged.sha256.clone(),
            origin: arrival.origin.clone(),
            source_fingerprint: arrival.source_fingerprint.clone(),
            etag: arrival.validators.etag.clone(),
            last_modified: arrival.validators.last_modified.clone(),
        };
        let (path, aside) = (
            self.directory.join(STATE_FILE_NAME),
            self.directory.join(format!("{STATE_FILE_NAME}.tmp")),
        );
        let write = || {
            let mut text = serde_json::to_vec_pretty(&state)?;
            text.push(b'\n');
            let mut file = File::create(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&aside, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(unwritten(&path))
    }
}

/// Reads a whole arrival, and writes it to a file if one is given; returns its digest.
fn copied(arrival: &Arrival, to: Option<(&File, &Path)>) -> Result<String, SourceError> {
    let (mut reader, mut hasher) = (arrival.reader(), Sha256::new());
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(cause) => return Err(SourceError::File { path: arrival.path.clone(), cause }),
        };
        hasher.update(&buffer[..count]);
        if let Some((mut file, path)) = to {
            file.write_all(&buffer[..count]).map_err(unwritten(path))?;
        }
    }
}

fn unwritten(path: &Path) -> impl Fn(std::io::Error) -> SourceError {
    let path = path.to_owned();
    move |cause| SourceError::Write { path: path.clone(), cause }
}
