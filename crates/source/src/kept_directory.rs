//! [`KeptDirectory`]: where one file is kept, with what its source said about it.
//!
//! a new file, written under [`KeptDirectory::aside`] -> renamed by its owner -> [`KeptDirectory::remember`]. `source.json` has what
//! is remembered, and names the file's digest: if the machine stops between the two renames, that information is not used.
//! [`copy`] into an [`aur::delta::HashingWriter`] writes a file and computes its digest on the way.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use aur::delta::HashingWriter;
use serde::{Deserialize, Serialize};

use super::SourceError;
use super::arrival::{Arrival, ArrivalKind, Validators};
use super::spool::SPOOL_PREFIX;

const REMEMBERED_FILE_NAME: &str = "source.json";
pub(crate) const COPY_BUFFER_BYTES: usize = 128 * 1024;

/// A directory that holds one kept file.
#[derive(Debug)]
pub(crate) struct KeptDirectory {
    path: PathBuf,
    file_name: &'static str,
}

/// What is remembered about the kept file. Wire form: `source.json`.
#[derive(Debug, Serialize, Deserialize)]
struct KeptFileFacts {
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

impl KeptDirectory {
    /// Creates the directory if it does not exist, and removes what a killed process left behind. An error would appear again,
    /// with its reason, when a file is kept, so it is ignored here.
    pub(crate) fn open(path: PathBuf, file_name: &'static str) -> KeptDirectory {
        let _ = std::fs::create_dir(&path);
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(SPOOL_PREFIX) || name.ends_with(".tmp") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        KeptDirectory { path, file_name }
    }

    /// Creates the directory if it is missing: there may have been no room when the process started, or somebody has removed it
    /// since.
    pub(crate) fn create(&self) -> Result<(), SourceError> {
        match std::fs::create_dir(&self.path) {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
                Err(SourceError::Write { path: self.path.clone(), cause })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the kept file.
    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(self.file_name)
    }

    /// Where the next file is written before it is renamed.
    pub(crate) fn aside(&self) -> PathBuf {
        self.path.join(format!("{}.tmp", self.file_name))
    }

    /// Opens the kept file of an earlier run, if there is one, and reads it once for its digest. This blocks.
    ///
    /// # Errors
    /// [`SourceError::File`] or [`SourceError::NotAFile`] if it exists but cannot be read.
    pub(crate) fn load(&self) -> Result<Option<(Arrival, String)>, SourceError> {
        let path = self.file();
        let mut arrival = match Arrival::open(&path, u64::MAX) {
            Err(SourceError::File { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            outcome => outcome?,
        };
        let mut sink = HashingWriter::new(io::sink());
        copy(&mut arrival.reader(), &mut sink, &path, &path)?;
        let sha256 = sink.finish().1;
        arrival.origin = format!("{} (kept)", path.display());
        arrival.kind = ArrivalKind::KeptDump;
        arrival.sha256 = Some(sha256.clone());
        if let Some(remembered) = self.remembered().filter(|it| it.sha256 == sha256) {
            arrival.origin = format!("{} (kept from {})", path.display(), remembered.origin);
            arrival.source_fingerprint = remembered.source_fingerprint;
            arrival.validators =
                Validators { etag: remembered.etag, last_modified: remembered.last_modified };
        }
        Ok(Some((arrival, sha256)))
    }

    /// If `source.json` is missing or damaged, nothing is remembered, at the cost of one download.
    fn remembered(&self) -> Option<KeptFileFacts> {
        let text = resources::files::read(&self.path.join(REMEMBERED_FILE_NAME)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Remembers what the source said about the kept file, which has this digest. Durable on return, as is the rename of the
    /// kept file before it.
    ///
    /// # Errors
    /// [`SourceError::Write`].
    pub(crate) fn remember(&self, sha256: &str, arrival: &Arrival) -> Result<(), SourceError> {
        let remembered = KeptFileFacts {
            sha256: sha256.to_owned(),
            origin: arrival.origin.clone(),
            source_fingerprint: arrival.source_fingerprint.clone(),
            etag: arrival.validators.etag.clone(),
            last_modified: arrival.validators.last_modified.clone(),
        };
        let path = self.path.join(REMEMBERED_FILE_NAME);
        let aside = self.path.join(format!("{REMEMBERED_FILE_NAME}.tmp"));
        let write = || {
            let mut text = serde_json::to_vec_pretty(&remembered)?;
            text.push(b'\n');
            let mut file = File::create(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&aside, &path)
        };
        write().map_err(unwritten(&path))?;
        self.sync()
    }

    /// Makes the renames durable.
    pub(crate) fn sync(&self) -> Result<(), SourceError> {
        File::open(&self.path)
            .and_then(|directory| directory.sync_all())
            .map_err(unwritten(&self.path))
    }
}

/// The error for a file at `path` that cannot be written.
pub(crate) fn unwritten(path: &Path) -> impl Fn(io::Error) -> SourceError {
    let path = path.to_owned();
    move |cause| SourceError::Write { path: path.clone(), cause }
}

/// Copies everything, and distinguishes errors of reading from errors of writing.
pub(crate) fn copy(
    input: &mut dyn Read,
    output: &mut dyn Write,
    input_path: &Path,
    output_path: &Path,
) -> Result<(), SourceError> {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => output.write_all(&buffer[..count]).map_err(unwritten(output_path))?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(SourceError::File { path: input_path.to_owned(), cause }),
        }
    }
}
