//! [`Arrival`]: a dump that has arrived, as one open file with what is known about it.
//!
//! The bytes are unchanged: plain, gzip, or gzip in gzip. They are read through the handle that was opened when the dump was
//! noticed, so a later dump of the same name is never mixed in.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tempfile::TempPath;

use super::SourceError;
use super::spool::spool_file;

/// One dump, ready to be read any number of times. Dropping it removes its spool file, if it has one.
#[derive(Debug)]
pub struct Arrival {
    /// Its origin for logs and `/readyz`: a path, or a URL without secrets.
    pub origin: String,
    /// Size as stored or sent, in bytes (before decompression).
    pub bytes: u64,
    /// When the dump was last modified, according to its server or file system; `None` if neither says so.
    pub modified_at: Option<SystemTime>,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    pub(crate) stamp: Stamp,
    /// [`super::SourceSpec::fingerprint`] of the source, empty for a file opened by hand.
    pub(crate) source_fingerprint: String,
    pub(crate) validators: Validators,
    /// SHA-256 of the stored bytes, if they were hashed on their way.
    pub(crate) sha256: Option<String>,
    pub(crate) kind: ArrivalKind,
    /// Further names of package bases, without packages in the dump, if the source knows them.
    pub bases: Vec<String>,
    /// The names of all users, one a line, if the source knows them.
    pub users: Option<Arc<str>>,
}

/// What a source hands over.
#[derive(Debug)]
pub enum SourceNews {
    /// Everything.
    Dump(Arrival),
    /// Changes of some package bases.
    Changes(Update),
}

impl SourceNews {
    /// The dump, if it is one.
    pub fn dump(self) -> Option<Arrival> {
        match self {
            SourceNews::Dump(arrival) => Some(arrival),
            SourceNews::Changes(_) => None,
        }
    }
}

/// Changes in a database, and facts about its state.
#[derive(Debug)]
pub struct Update {
    /// The package bases that differ, but for:
    pub changes: aur::Changes,
    /// The bases of which only the popularity differs, where they are many.
    pub popularities: aur::Popularities,
    /// Its origin for logs and `/readyz`: a URL without secrets.
    pub origin: String,
    /// The database's clock.
    pub modified_at: Option<SystemTime>,
    /// [`super::SourceSpec::fingerprint`].
    pub(crate) source_fingerprint: String,
}

impl Update {
    /// The facts, without changes.
    pub fn facts(&self) -> Update {
        Update {
            changes: aur::Changes::default(),
            popularities: aur::Popularities::default(),
            origin: self.origin.clone(),
            modified_at: self.modified_at,
            source_fingerprint: self.source_fingerprint.clone(),
        }
    }

    /// The facts about a dump, without changes.
    pub fn whole(arrival: &Arrival) -> Update {
        Update {
            changes: aur::Changes::default(),
            popularities: aur::Popularities::default(),
            origin: arrival.origin.clone(),
            modified_at: arrival.modified_at,
            source_fingerprint: arrival.source_fingerprint.clone(),
        }
    }
}

/// The owner of the file behind an arrival, which decides how it becomes the kept copy.
#[derive(Debug)]
pub(crate) enum ArrivalKind {
    /// The operator's file: it is only copied, since a link would show its next rewriting.
    Foreign,
    /// A spool file of Larder's own: it may be linked. The path is removed on drop.
    Spooled(TempPath),
    /// The kept copy itself.
    KeptDump,
}

impl Arrival {
    /// Opens a regular file as a dump, once: all other information comes from the handle.
    ///
    /// # Errors
    /// [`SourceError::File`] if it cannot be opened, [`SourceError::NotAFile`] for a directory, a pipe
    /// or a device, [`SourceError::TooLarge`] above `bytes_max`.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Arrival, SourceError> {
        let failed = |cause| SourceError::File { path: path.to_owned(), cause };
        // This is for the error alone: opening does not wait for anybody.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(SourceError::NotAFile { path: path.to_owned() });
        }
        let file = resources::files::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let origin = path.display().to_string();
        if metadata.len() > bytes_max {
            return Err(SourceError::TooLarge { origin, bytes_max });
        }
        Ok(Arrival {
            origin,
            bytes: metadata.len(),
            modified_at: metadata.modified().ok(),
            path: path.to_owned(),
            file: Arc::new(file),
            stamp: Stamp::of(&metadata),
            source_fingerprint: String::new(),
            validators: Validators::default(),
            sha256: None,
            kind: ArrivalKind::Foreign,
            bases: Vec::new(),
            users: None,
        })
    }

    /// Writes a dump to a spool file in `directory`, as `write` writes it: that of the packages that are served after an [`Update`].
    ///
    /// # Errors
    /// [`SourceError::Write`] if that fails.
    pub fn spool(
        directory: &Path,
        update: &Update,
        write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> Result<Arrival, SourceError> {
        let unwritten = |cause| SourceError::Write { path: directory.to_owned(), cause };
        let (file, path) = spool_file(directory).map_err(unwritten)?.into_parts();
        let mut out = BufWriter::with_capacity(256 << 10, &file);
        write(&mut out).and_then(|()| out.flush()).map_err(unwritten)?;
        drop(out);
        let metadata = file.metadata().map_err(unwritten)?;
        Ok(Arrival {
            origin: update.origin.clone(),
            bytes: metadata.len(),
            modified_at: update.modified_at,
            path: path.to_path_buf(),
            file: Arc::new(file),
            stamp: Stamp::of(&metadata),
            source_fingerprint: update.source_fingerprint.clone(),
            validators: Validators::default(),
            sha256: None,
            kind: ArrivalKind::Spooled(path),
            bases: Vec::new(),
            users: None,
        })
    }

    /// The path of the file, for messages: by now another file may be there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A reader from the first byte, independent of other readers. It is unbuffered and blocks.
    pub fn reader(&self) -> FileReader {
        FileReader::new(Arc::clone(&self.file))
    }

    /// The open file, for readers that need one of their own. They must read it by position.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether it is the operator's file, which may be written to at any time.
    pub fn is_foreign(&self) -> bool {
        matches!(self.kind, ArrivalKind::Foreign)
    }

    /// Whether it is the kept copy of an earlier run.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.kind, ArrivalKind::KeptDump)
    }

    /// Identifies the source: equal texts mean equal sources. Empty for a file opened by hand.
    pub fn source_fingerprint(&self) -> &str {
        &self.source_fingerprint
    }

    /// Checks that the bytes read since [`Arrival::open`] belong to one version. Call it after reading: a file that
    /// is rewritten in place, and not replaced, can return half of each version.
    ///
    /// # Errors
    /// [`SourceError::ChangedWhileRead`], or [`SourceError::File`] if the system cannot find the file any more.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        // Larder's own files are only ever replaced, and keeping one sets its time.
        if !matches!(self.kind, ArrivalKind::Foreign) {
            return Ok(());
        }
        let metadata = (self.file.metadata())
            .map_err(|cause| SourceError::File { path: self.path.clone(), cause })?;
        if Stamp::of(&metadata) == self.stamp {
            Ok(())
        } else {
            Err(SourceError::ChangedWhileRead { origin: self.origin.clone() })
        }
    }
}

/// Reads an open file by position, so that readers of the same handle do not disturb each other.
#[derive(Debug, Clone)]
pub struct FileReader {
    file: Arc<File>,
    offset: u64,
}

impl FileReader {
    pub(crate) fn new(file: Arc<File>) -> FileReader {
        FileReader { file, offset: 0 }
    }
}

impl FileReader {
    /// A reader of the same file that begins at this byte.
    pub fn starting_at(self, offset: u64) -> FileReader {
        FileReader { offset, ..self }
    }
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// A server's validators for one version of a dump, which go into the next conditional request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    /// The `ETag` as it was sent, with quotes and `W/`.
    pub(crate) etag: Option<String>,
    /// The `Last-Modified` as it was sent: servers compare the text.
    pub(crate) last_modified: Option<String>,
}

impl Validators {
    pub(crate) fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// Distinguishes one version of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The file itself. The time of birth is included because a freed inode number is soon used again.
    pub(crate) identity: (u64, u64, Option<SystemTime>),
    pub(crate) modified_at: (i64, i64),
    pub(crate) size_bytes: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            identity: (metadata.dev(), metadata.ino(), metadata.created().ok()),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
            size_bytes: metadata.size(),
        }
    }
}
