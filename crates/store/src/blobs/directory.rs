//! Blobs as files of a directory, which several processes may share.
//!
//! ```text
//! VERSION                    names this layout
//! sha256/IDENTITY            names the store that the blobs belong to
//! sha256/SERIAL              how far its records have come, at least
//! lock                       held shared while a blob is put in place, alone while one is swept
//! sha256/ab/cd/<64 digits>   the blobs, sharded by the digest's first two bytes
//! tmp/                       spools
//! ```
//! A blob is written to a spool, synced, renamed into its shard, and the directories are synced up to `sha256`: after that it
//! survives a power cut. Its modification time is when it was last put or touched. A sweep looks at that time and removes the
//! file under the exclusive lock, so no writer can refresh a blob in between: a writer that comes later finds the blob missing
//! and puts it in place again.
//!
//! `IDENTITY` is in the same directory as the blobs, so that one look tells whether `sha256`, or any directory above it, was
//! renamed, unmounted, mounted over or replaced: is the file at this path still the one that is held open? Each write checks
//! that before and after; if it is another one, the write reads it, and goes on only if it names the same store.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use record::{Digest, Hasher};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::damage::{DamageLog, Stamp};
use super::error::{BlobError, FailureKind};
use super::highest_serial;
use super::identity::{self, StoreIdentity};
use super::spool::{self, CHUNK_BYTES, SpooledFile};
use super::{BlobEntry, BlobVerdict, LAYOUT};

/// The directory's own part of a blob store; every function blocks.
pub(super) struct Directory {
    root: PathBuf,
    spool: PathBuf,
    /// A bit for each shard whose directories this process has synced.
    shards_synced: Box<[AtomicU64]>,
    /// The store that the blobs must belong to; `None` if they are not bound.
    anchor: Mutex<Option<Anchor>>,
    damage: Arc<DamageLog>,
}

/// The store's name as it was last read.
struct Anchor {
    identity: StoreIdentity,
    stamp: Stamp,
    /// Held open, so that no other file gets its number.
    _file: File,
}

/// What a sweep did with one blob.
pub(super) enum SweepAction {
    /// The file is removed.
    Removed,
    /// It was put or touched since it was listed, or another sweep removed it.
    Spared,
}

const SHARDS: usize = 1 << 16;

impl Directory {
    /// Prepares `root`, or recognizes it; removes the spools that a killed process left behind. If it `must_exist`,
    /// it is only recognized.
    ///
    /// A directory that can only be read is opened all the same if it has been prepared before.
    pub(super) fn open(
        root: &Path,
        must_exist: bool,
        damage: Arc<DamageLog>,
    ) -> Result<Directory, BlobError> {
        let directory = Directory {
            root: root.to_owned(),
            spool: root.join("tmp"),
            shards_synced: (0..SHARDS / 64).map(|_| AtomicU64::new(0)).collect(),
            anchor: Mutex::default(),
            damage,
        };
        if must_exist {
            let is_there = directory.has_version()? || directory.identity_path().exists();
            return if is_there { Ok(directory) } else { Err(directory.absent()) };
        }
        create_durably(root)?;
        directory.prepare_version()?;
        let writable = create_durably(&directory.spool)
            .and_then(|()| create_durably(&root.join("sha256")))
            .and_then(|()| spool::remove_stale(&directory.spool, false));
        match writable {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed files of interrupted uploads"),
            Err(error)
                if matches!(
                    error.kind(),
                    Some(FailureKind::ReadOnly | FailureKind::Denied | FailureKind::NoSpace)
                ) =>
            {
                tracing::warn!(%error, "the blobs can be read, but not written");
            }
            Err(error) => return Err(error),
        }
        Ok(directory)
    }

    fn version_path(&self) -> PathBuf {
        self.root.join("VERSION")
    }

    fn identity_path(&self) -> PathBuf {
        self.root.join("sha256").join(identity::NAME)
    }

    /// The store that the blobs belong to now; `None` if they have no name yet.
    pub(super) fn identity(&self) -> Result<Option<StoreIdentity>, BlobError> {
        Ok(self.read_identity()?.map(|anchor| anchor.identity))
    }

    fn read_identity(&self) -> Result<Option<Anchor>, BlobError> {
        let path = self.identity_path();
        let read = || -> io::Result<(File, Stamp, Vec<u8>)> {
            let file = File::open(&path)?;
            // Before the bytes: a change while they are read is a change after it.
            let stamp = Stamp::of(&file.metadata()?);
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(&file, 1024), &mut bytes)?;
            Ok((file, stamp, bytes))
        };
        let (file, stamp, bytes) = match read() {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            read => read.map_err(|error| BlobError::io("read", &path, error))?,
        };
        let identity = StoreIdentity::from_line(&bytes, &path.display().to_string())?;
        Ok(Some(Anchor { identity, stamp, _file: file }))
    }

    /// Durably names the store that the blobs belong to, if they have no name yet, or if `is_replacing`, whatever name they
    /// have.
    pub(super) fn adopt(
        &self,
        identity: &StoreIdentity,
        is_replacing: bool,
    ) -> Result<(), BlobError> {
        let path = self.identity_path();
        // If another process was faster, its name is checked below.
        self.write_line(&path, &identity.to_line(), is_replacing)?;
        identity.check(self.identity()?.as_ref(), &path.display().to_string())
    }

    /// Durably writes a small file; replaces an existing one only if `is_replacing`.
    fn write_line(&self, path: &Path, line: &str, is_replacing: bool) -> Result<(), BlobError> {
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".new-")
                .permissions(std::fs::Permissions::from_mode(0o640))
                .tempfile_in(&self.root)?;
            file.write_all(line.as_bytes())?;
            file.as_file().sync_all()?;
            match is_replacing {
                true => file.persist(path)?,
                false => match file.persist_noclobber(path) {
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                        return Ok(());
                    }
                    placed => placed?,
                },
            };
            Ok(())
        };
        write().map_err(|error| BlobError::io("write", path, error))?;
        sync_directory(&self.root.join("sha256"))
    }

    fn serial_path(&self) -> PathBuf {
        self.root.join("sha256").join(highest_serial::NAME)
    }

    /// The note of the records' serial; `None` if there is none.
    pub(super) fn read_serial(&self) -> Result<Option<Vec<u8>>, BlobError> {
        let path = self.serial_path();
        let read = || -> io::Result<Vec<u8>> {
            let mut line = Vec::new();
            let mut file = io::Read::take(File::open(&path)?, highest_serial::LINE_BYTES_MAX);
            io::Read::read_to_end(&mut file, &mut line)?;
            Ok(line)
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| BlobError::io("read", &path, error)),
        }
    }

    pub(super) fn write_serial(&self, line: &str) -> Result<(), BlobError> {
        self.write_line(&self.serial_path(), line, true)
    }

    /// The store that the blobs must belong to, if there is one.
    pub(super) fn bound(&self) -> Option<StoreIdentity> {
        let anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        anchor.as_ref().map(|anchor| anchor.identity.clone())
    }

    /// Binds the blobs to the store `identity`, if they belong to it now.
    pub(super) fn bind(&self, identity: &StoreIdentity) -> Result<(), BlobError> {
        let found = self.read_identity()?;
        let place = self.identity_path().display().to_string();
        identity.check(found.as_ref().map(|anchor| &anchor.identity), &place)?;
        *self.anchor.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// Checks that the path leads to the blobs of the store that this is bound to. Mostly this asks only the system's memory.
    ///
    /// # Errors
    /// [`BlobError::Away`].
    pub(super) fn check_identity(&self) -> Result<(), BlobError> {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = anchor.as_mut() else { return Ok(()) };
        let path = self.identity_path();
        if std::fs::metadata(&path).is_ok_and(|found| Stamp::of(&found) == current.stamp) {
            return Ok(());
        }
        let found = self.read_identity()?;
        let name = found.as_ref().map(|anchor| &anchor.identity);
        current.identity.check(name, &path.display().to_string())?;
        // The path leads to another directory: nothing in it is known to be synced.
        self.shards_synced.iter().for_each(|word| word.store(0, Ordering::Release));
        if let Some(found) = found {
            *current = found;
        }
        Ok(())
    }

    fn absent(&self) -> BlobError {
        BlobError::Absent { place: self.version_path().display().to_string() }
    }

    /// Whether the directory was prepared.
    fn has_version(&self) -> Result<bool, BlobError> {
        let path = self.version_path();
        match std::fs::read(&path) {
            Ok(found) if found == LAYOUT.as_bytes() => Ok(true),
            Ok(found) => Err(super::unknown_layout(path.display().to_string(), &found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(BlobError::io("read", &path, error)),
        }
    }

    fn prepare_version(&self) -> Result<(), BlobError> {
        if self.has_version()? {
            return Ok(());
        }
        let path = self.version_path();
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".version-")
                .permissions(std::fs::Permissions::from_mode(0o640))
                .tempfile_in(&self.root)?;
            file.write_all(LAYOUT.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|error| BlobError::io("write", &path, error))?;
        sync_directory(&self.root)
    }

    /// Where spools are made: in the same file system, so that a rename keeps one.
    pub(super) fn spool_directory(&self) -> &Path {
        &self.spool
    }

    /// The path of the blob, whether it exists or not.
    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        let digits = digest.to_string();
        self.shard_path(digest).join(digits)
    }

    /// Makes the two directories of a shard, but none above them: if `sha256` is gone, so are the blobs.
    fn create_shard(&self, digest: &Digest) -> Result<(), BlobError> {
        let shard = self.shard_path(digest);
        for path in [shard.parent().unwrap_or(&shard), &shard] {
            match DirBuilder::new().mode(0o750).create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(|error| BlobError::io("create the directory", path, error))?,
            }
        }
        Ok(())
    }

    fn shard_path(&self, digest: &Digest) -> PathBuf {
        let [first, second, ..] = digest.as_bytes();
        self.root.join(format!("sha256/{first:02x}/{second:02x}"))
    }

    /// Puts a complete file in place, durably; if the blob is there already, only renews its age.
    pub(super) fn persist(&self, spooled: SpooledFile) -> Result<(), BlobError> {
        let SpooledFile { file, digest, size_bytes } = spooled;
        self.check_identity()?;
        if !self.refresh(&digest, Some(size_bytes))? {
            file.as_file().sync_all().map_err(|error| BlobError::io("sync", file.path(), error))?;
            let path = self.path(&digest);
            if !self.is_synced(&digest) {
                self.create_shard(&digest)?;
            }
            let _lock = self.lock_shared()?;
            touch(file.as_file()).map_err(|error| BlobError::io("touch", file.path(), error))?;
            let placed = file.persist(&path).or_else(|error| {
                if error.error.kind() != io::ErrorKind::NotFound {
                    return Err(error.error);
                }
                // Somebody has removed an empty shard by hand: it is made, and synced, again.
                self.forget_synced(&digest);
                self.create_shard(&digest).map_err(|_| error.error)?;
                error.file.persist(&path).map_err(|error| error.error)
            });
            placed.map_err(|error| BlobError::io("rename a new file to", &path, error))?;
            self.damage.note(digest, BlobVerdict::Whole);
        }
        self.sync_shard(&digest)?;
        // Checked again: a write into a tree that was replaced meanwhile is not acknowledged.
        self.check_identity()
    }

    /// Renews the blob's age; returns whether the blob exists.
    pub(super) fn touch(&self, digest: &Digest) -> Result<bool, BlobError> {
        self.check_identity()?;
        if !self.refresh(digest, None)? {
            return Ok(false);
        }
        self.sync_shard(digest)?;
        self.check_identity()?;
        Ok(true)
    }

    /// Renews the blob's age, unless it is missing, or torn (not as large as it should be).
    fn refresh(&self, digest: &Digest, size_bytes: Option<u64>) -> Result<bool, BlobError> {
        let path = self.path(digest);
        let _lock = self.lock_shared()?;
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(|error| BlobError::io("open", &path, error))?,
        };
        let metadata = file.metadata().map_err(|error| BlobError::io("inspect", &path, error))?;
        if size_bytes.is_some_and(|size_bytes| size_bytes != metadata.len()) {
            let found = metadata.len();
            tracing::error!(%digest, found, expected = size_bytes, "replacing a torn blob");
            return Ok(false);
        }
        if size_bytes.is_some() && self.damage.is_damaged(digest) {
            tracing::warn!(%digest, "replacing a damaged blob");
            return Ok(false);
        }
        match touch(&file) {
            // Another user's file, which may be replaced all the same.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && size_bytes.is_some() =>
            {
                Ok(false)
            }
            touched => {
                touched.map_err(|error| BlobError::io("touch", &path, error))?;
                Ok(true)
            }
        }
    }

    /// Held while a blob is put in place or its age renewed; any number of writers at once.
    fn lock_shared(&self) -> Result<Option<File>, BlobError> {
        let (file, path) = self.lock_file()?;
        match file.lock_shared() {
            Ok(()) => Ok(Some(file)),
            // If files cannot be locked, no sweep removes anything: `lock_alone` fails.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(BlobError::io("lock", &path, error)),
        }
    }

    /// Held while a sweep looks at one blob and removes it.
    fn lock_alone(&self) -> Result<File, BlobError> {
        let (file, path) = self.lock_file()?;
        file.lock().map_err(|error| BlobError::io("lock", &path, error))?;
        Ok(file)
    }

    /// Each lock opens the file: clones of one open file would share the lock.
    fn lock_file(&self) -> Result<(File, PathBuf), BlobError> {
        let path = self.root.join("lock");
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o660)
            .open(&path);
        let file = opened.map_err(|error| BlobError::io("open", &path, error))?;
        Ok((file, path))
    }

    fn is_synced(&self, digest: &Digest) -> bool {
        let (word, bit) = shard_bit(digest);
        self.shards_synced[word].load(Ordering::Acquire) & bit != 0
    }

    fn forget_synced(&self, digest: &Digest) {
        let (word, bit) = shard_bit(digest);
        self.shards_synced[word].fetch_and(!bit, Ordering::AcqRel);
    }

    /// Makes the names in a blob's shard durable, and the shard's own name. Also if the blob was there
    /// already: the process that put it there may not have synced it yet, or may have been killed.
    fn sync_shard(&self, digest: &Digest) -> Result<(), BlobError> {
        let shard = self.shard_path(digest);
        sync_directory(&shard)?;
        if !self.is_synced(digest) {
            // Even if another process made them: it may not have reached this line yet.
            for parent in shard.ancestors().skip(1).take(2) {
                sync_directory(parent)?;
            }
            let (word, bit) = shard_bit(digest);
            self.shards_synced[word].fetch_or(bit, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The blob's file and its stamp; `None` if it does not exist.
    pub(super) fn open_blob(&self, digest: &Digest) -> Result<Option<(File, Stamp)>, BlobError> {
        let path = self.path(digest);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Nothing can be said of a blob whose directory is away.
                self.check_identity()?;
                return Ok(None);
            }
            opened => opened.map_err(|error| BlobError::io("open", &path, error))?,
        };
        let metadata = file.metadata().map_err(|error| BlobError::io("inspect", &path, error))?;
        Ok(Some((file, Stamp::of(&metadata))))
    }

    /// The blob's size in bytes, by its file alone.
    pub(super) fn size_bytes(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        let path = self.path(digest);
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_identity()?;
                Ok(None)
            }
            Err(error) => Err(BlobError::io("inspect", &path, error)),
        }
    }

    /// The digest of the bytes that the blob's file has now.
    pub(super) fn rehash(&self, digest: &Digest) -> Result<Option<Digest>, BlobError> {
        let Some((mut file, stamp)) = self.open_blob(digest)? else { return Ok(None) };
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let read = io::Read::read(&mut file, &mut buffer);
            match read.map_err(|error| BlobError::io("read", &self.path(digest), error))? {
                0 => {
                    let found = hasher.finish();
                    if found == *digest {
                        self.damage.note_whole(found, stamp);
                    }
                    return Ok(Some(found));
                }
                read => hasher.update(&buffer[..read]),
            }
        }
    }

    /// The blobs whose digest begins with `first`, in no particular order. Other files are passed by.
    pub(super) fn list(&self, first: u8) -> Result<Vec<BlobEntry>, BlobError> {
        self.check_identity()?;
        let mut blobs = Vec::new();
        for shard in read_directory(&self.root.join(format!("sha256/{first:02x}")))? {
            for path in read_directory(&shard)? {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let Ok(digest) = name.parse::<Digest>() else { continue };
                if self.path(&digest) != path {
                    continue;
                }
                let metadata = match std::fs::metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    found => found.map_err(|error| BlobError::io("inspect", &path, error))?,
                };
                if metadata.is_file() {
                    let touched_at = touched_at(&metadata, &path)?;
                    blobs.push(BlobEntry { digest, size_bytes: metadata.len(), touched_at });
                }
            }
        }
        Ok(blobs)
    }

    /// Removes a blob that was neither put nor touched since it was listed.
    pub(super) fn sweep(&self, listed: &BlobEntry) -> Result<SweepAction, BlobError> {
        let path = self.path(&listed.digest);
        self.check_identity()?;
        let _lock = self.lock_alone()?;
        let metadata = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SweepAction::Spared);
            }
            found => found.map_err(|error| BlobError::io("inspect", &path, error))?,
        };
        if touched_at(&metadata, &path)? != listed.touched_at {
            return Ok(SweepAction::Spared);
        }
        std::fs::remove_file(&path).map_err(|error| BlobError::io("remove", &path, error))?;
        Ok(SweepAction::Removed)
    }
}

fn shard_bit(digest: &Digest) -> (usize, u64) {
    let [first, second, ..] = *digest.as_bytes();
    let shard = usize::from(first) << 8 | usize::from(second);
    (shard / 64, 1 << (shard % 64))
}

fn touched_at(metadata: &std::fs::Metadata, path: &Path) -> Result<SystemTime, BlobError> {
    metadata.modified().map_err(|error| BlobError::io("read the age of", path, error))
}

/// Sets the modification time to now, by the file system's own clock. (Writing "now" takes the
/// right to write, any other time takes ownership.)
fn touch(file: &File) -> io::Result<()> {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: omitted, last_modification: now };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// The paths in a directory; empty if it is missing.
fn read_directory(path: &Path) -> Result<Vec<PathBuf>, BlobError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    };
    match list() {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        listed => listed.map_err(|error| BlobError::io("list", path, error)),
    }
}

/// Makes a directory, and those above it, and syncs them, so that they survive a power cut.
fn create_durably(path: &Path) -> Result<(), BlobError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    create_durably(parent)?;
    match DirBuilder::new().mode(0o750).create(path) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made.map_err(|error| BlobError::io("create the directory", path, error))?,
    }
    sync_directory(parent)
}

fn sync_directory(path: &Path) -> Result<(), BlobError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| BlobError::io("sync the directory", path, error))
}
