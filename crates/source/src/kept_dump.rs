//! The kept copy: the last good dump in the data directory, so that the server can serve at once after a restart and
//! other servers can fetch the dump from this one.
//!
//! accepted [`Arrival`] -> one gzip layer -> written to a temporary file, synced, renamed -> [`KeptDumpFile`]. Beside it
//! [`KeptDirectory`] remembers what the dump's server said about it. This module does not judge dumps; the caller passes only good ones.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aur::Compressed;
use aur::delta::HashingWriter;
use flate2::bufread::MultiGzDecoder;
use flate2::{Compression, GzBuilder};

use super::SourceError;
use super::arrival::{Arrival, ArrivalKind, FileReader, Stamp};
use super::kept_directory::{COPY_BUFFER_BYTES, KeptDirectory, copy, unwritten};
use super::lock::DataDirLock;

/// The name of the kept dump, the AUR's own.
pub const KEPT_FILE_NAME: &str = "packages-meta-ext-v1.json.gz";
const DIRECTORY_NAME: &str = "aur";
/// One layer is usual and two have been seen; a dump with more than this is not kept.
const GZIP_LAYERS_MAX: usize = 8;
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// A low level: a plain dump may arrive every few minutes, and requests need the CPU.
const RECOMPRESSION_LEVEL: u32 = 3;

/// The kept copy in one data directory, which stays locked as long as this exists.
#[derive(Debug)]
pub struct KeptDump {
    lock: Arc<DataDirLock>,
    directory: KeptDirectory,
    current: Option<KeptDumpFile>,
}

/// The kept dump in the form that is served: one gzip layer. Cheap to clone; an old one stays readable after the next
/// one has replaced it.
#[derive(Debug, Clone)]
pub struct KeptDumpFile {
    /// Its path; by now a later dump may be there.
    pub path: PathBuf,
    /// Size of the compressed file, in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the compressed file: 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// When the dump was modified at its source, as far as that is known; sent as `Last-Modified`.
    pub modified_at: SystemTime,
    file: Arc<File>,
    stamp: Stamp,
    /// The dump in zstd, once somebody has asked for it.
    zstd: Arc<Mutex<Zstd>>,
}

/// How long a failure to make a dump in zstd is remembered.
pub const ZSTD_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The state of the dump in zstd.
#[derive(Debug, Default)]
enum Zstd {
    #[default]
    Unmade,
    Made(ZstdFile),
    Failed {
        problem: ZstdProblem,
        at: Instant,
    },
}

/// Why there is no dump in zstd. It has been logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the dump cannot be compressed with zstd: {0}")]
pub struct ZstdProblem(Arc<str>);

/// A dump in zstd, in a file without a name, which is freed with its last owner.
#[derive(Debug, Clone)]
pub struct ZstdFile {
    /// Size of the compressed file, in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the compressed file: 64 lower-case hexadecimal digits.
    pub sha256: String,
    file: Arc<File>,
}

impl ZstdFile {
    /// A reader of exactly the bytes that `sha256` describes, from the first one. It blocks.
    pub fn reader(&self) -> FileReader {
        FileReader::new(Arc::clone(&self.file))
    }
}

impl KeptDumpFile {
    /// A reader of the dump itself, without its gzip layer. It blocks.
    pub fn content(&self) -> impl Read + use<> {
        MultiGzDecoder::new(io::BufReader::with_capacity(COPY_BUFFER_BYTES, self.reader()))
    }

    /// This dump in zstd if it was made before, or why making it failed a short time ago. Never waits.
    pub fn zstd_at_hand(&self) -> Option<Result<ZstdFile, ZstdProblem>> {
        match &*self.zstd() {
            Zstd::Made(made) => Some(Ok(made.clone())),
            Zstd::Failed { problem, at } if at.elapsed() < ZSTD_RETRY_AFTER => {
                Some(Err(problem.clone()))
            }
            Zstd::Unmade | Zstd::Failed { .. } => None,
        }
    }

    /// This dump in zstd. The first call makes it, which takes a second of CPU; the same dump gives the same bytes. It blocks,
    /// and concurrent calls would make it several times: the caller must prevent that.
    ///
    /// # Errors
    /// If there is no room for it; that is remembered for [`ZSTD_RETRY_AFTER`], and logged once for a dump.
    pub fn in_zstd(&self) -> Result<ZstdFile, ZstdProblem> {
        if let Some(at_hand) = self.zstd_at_hand() {
            return at_hand;
        }
        match self.make_zstd() {
            Ok(made) => {
                *self.zstd() = Zstd::Made(made.clone());
                Ok(made)
            }
            Err(error) => {
                let problem = ZstdProblem(error.to_string().into());
                let failed = Zstd::Failed { problem: problem.clone(), at: Instant::now() };
                let before = std::mem::replace(&mut *self.zstd(), failed);
                if matches!(before, Zstd::Unmade) {
                    tracing::error!(%error, "the dump cannot be compressed with zstd");
                }
                Err(problem)
            }
        }
    }

    fn zstd(&self) -> MutexGuard<'_, Zstd> {
        self.zstd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_zstd(&self) -> io::Result<ZstdFile> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let file = tempfile::tempfile_in(directory)
            .or_else(|error| tempfile::tempfile().map_err(|_| error))?;
        let hashing = Compressed::Zstd.write(HashingWriter::new(&file), |out| {
            io::copy(&mut self.content(), out)?;
            Ok(())
        })?;
        let sha256 = hashing.finish().1;
        let size_bytes = file.metadata()?.len();
        Ok(ZstdFile { size_bytes, sha256, file: Arc::new(file) })
    }

    /// Whether the file was not written to since its digest was taken: one system call without disk access.
    pub fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == self.stamp)
    }

    /// A reader of exactly the bytes that `sha256` describes, from the first one. It blocks.
    pub fn reader(&self) -> FileReader {
        FileReader::new(Arc::clone(&self.file))
    }
}

impl KeptDump {
    /// The path of the kept dump in a data directory, if there is one.
    pub fn path_in(data_dir: &Path) -> PathBuf {
        data_dir.join(DIRECTORY_NAME).join(KEPT_FILE_NAME)
    }

    /// Creates the directory if it does not exist, takes its lock, and removes what a killed process left behind. A
    /// read-only directory is accepted: [`KeptDump::load`] then works and [`KeptDump::keep`] fails.
    ///
    /// # Errors
    /// Those of [`DataDirLock::acquire`].
    pub fn open(data_dir: &Path) -> Result<KeptDump, SourceError> {
        Ok(KeptDump::with_lock(Arc::new(DataDirLock::acquire(data_dir)?)))
    }

    /// Opens the kept copy in a data directory whose lock the caller holds already.
    pub(crate) fn with_lock(lock: Arc<DataDirLock>) -> KeptDump {
        let directory = lock.data_dir().join(DIRECTORY_NAME);
        let directory = KeptDirectory::open(directory, KEPT_FILE_NAME);
        KeptDump { lock, directory, current: None }
    }

    /// The directory for spool files: on the same file system as the kept copy.
    pub fn spool_dir(&self) -> &Path {
        self.directory.path()
    }

    /// The lock, for other parts of the process that use the same data directory.
    pub fn lock(&self) -> &Arc<DataDirLock> {
        &self.lock
    }

    /// The dump that was last kept or loaded.
    pub fn current(&self) -> Option<&KeptDumpFile> {
        self.current.as_ref()
    }

    /// Opens the dump of an earlier run, if there is one, and reads it once to compute its digest. This blocks.
    ///
    /// # Errors
    /// [`SourceError::File`] or [`SourceError::NotAFile`] if it exists but cannot be read.
    pub fn load(&mut self) -> Result<Option<Arrival>, SourceError> {
        let Some((arrival, sha256)) = self.directory.load()? else { return Ok(None) };
        self.current = Some(KeptDumpFile {
            path: self.directory.file(),
            size_bytes: arrival.bytes,
            sha256,
            modified_at: arrival.modified_at.unwrap_or_else(SystemTime::now),
            file: Arc::clone(&arrival.file),
            stamp: arrival.stamp,
            zstd: Arc::default(),
        });
        Ok(Some(arrival))
    }

    /// Makes an arrival the kept copy; call this once a snapshot was built from it. A dump with one gzip layer is
    /// kept byte for byte, one with several is unwrapped to the last, a plain one is compressed. The copy is durable
    /// on return. This blocks, for seconds if the dump is large and plain.
    ///
    /// # Errors
    /// [`SourceError::Write`] if the disk is full or read-only; [`SourceError::File`],
    /// [`SourceError::ChangedWhileRead`] or [`SourceError::TooManyLayers`] for the arrival. The former copy then
    /// stays, with one exception: if only `source.json` could not be written, the new copy is in place, and the next
    /// start sends an unconditional request.
    pub fn keep(&mut self, arrival: &Arrival) -> Result<KeptDumpFile, SourceError> {
        if let (ArrivalKind::KeptDump, Some(current)) = (&arrival.kind, &self.current) {
            return Ok(current.clone());
        }
        self.directory.create()?;
        let aside = self.directory.aside();
        let outcome = self.keep_aside(arrival, &aside).and_then(|kept| {
            std::fs::rename(&aside, &kept.path).map_err(unwritten(&kept.path))?;
            Ok(kept)
        });
        if outcome.is_err() {
            let _ = std::fs::remove_file(&aside);
        }
        let kept = self.current.insert(outcome?).clone();
        self.directory.sync()?;
        self.directory.remember(&kept.sha256, arrival)?;
        Ok(kept)
    }

    /// Writes the arrival in its kept form under a temporary name, and syncs it.
    fn keep_aside(&self, arrival: &Arrival, aside: &Path) -> Result<KeptDumpFile, SourceError> {
        let _ = std::fs::remove_file(aside);
        let layers = gzip_layers(arrival)?;
        let linked = match (&arrival.kind, &arrival.sha256) {
            // Linking fails if the spool file had to go to another file system; it is then copied.
            (ArrivalKind::Spooled(path), Some(sha256)) if layers == 1 => {
                std::fs::hard_link(path, aside)
                    .ok()
                    .map(|()| (Arc::clone(&arrival.file), sha256.clone()))
            }
            _ => None,
        };
        let (file, sha256) = match linked {
            Some(linked) => linked,
            None => {
                let file = (OpenOptions::new().read(true).write(true).create_new(true).open(aside))
                    .map_err(unwritten(aside))?;
                let mut output = HashingWriter::new(&file);
                if layers == 0 {
                    // The header has no time and no name, so the same dump gives the same bytes.
                    let level = Compression::new(RECOMPRESSION_LEVEL);
                    let mut encoder = GzBuilder::new().write(&mut output, level);
                    copy(&mut arrival.reader(), &mut encoder, &arrival.path, aside)?;
                    encoder.finish().map_err(unwritten(aside))?;
                } else {
                    copy(&mut unwrapped(arrival, layers - 1), &mut output, &arrival.path, aside)?;
                }
                arrival.check_unchanged()?;
                let sha256 = output.finish().1;
                (Arc::new(file), sha256)
            }
        };
        let modified_at = arrival.modified_at.unwrap_or_else(SystemTime::now);
        // This preserves the time over a restart. Some file systems refuse it; then the time of keeping counts.
        let _ = file.set_modified(modified_at);
        file.sync_all().map_err(unwritten(aside))?;
        let stamp = Stamp::of(&file.metadata().map_err(unwritten(aside))?);
        let size_bytes = stamp.size_bytes;
        let path = self.directory.file();
        let zstd = Arc::default();
        Ok(KeptDumpFile { path, size_bytes, sha256, modified_at, file, stamp, zstd })
    }
}

/// The number of gzip layers of the arrival: 0 for a plain one.
fn gzip_layers(arrival: &Arrival) -> Result<usize, SourceError> {
    for layers in 0..=GZIP_LAYERS_MAX {
        let mut start = Vec::new();
        (unwrapped(arrival, layers).take(GZIP_MAGIC.len() as u64).read_to_end(&mut start))
            .map_err(|cause| SourceError::File { path: arrival.path.clone(), cause })?;
        if start != GZIP_MAGIC {
            return Ok(layers);
        }
    }
    Err(SourceError::TooManyLayers { origin: arrival.origin.clone(), layers_max: GZIP_LAYERS_MAX })
}

/// The arrival's bytes without the outermost `layers` layers.
fn unwrapped(arrival: &Arrival, layers: usize) -> Box<dyn Read> {
    let mut reader: Box<dyn Read> = Box::new(arrival.reader());
    for _ in 0..layers {
        let buffered = io::BufReader::with_capacity(COPY_BUFFER_BYTES, reader);
        reader = Box::new(MultiGzDecoder::new(buffered));
    }
    reader
}

#[cfg(test)]
pub(crate) mod tests;
