//! [`Disk`]: the cache of mirrors on disk: pages, lists and files, within a budget and above a floor of free space.
//!
//! size -> [`Disk::begin`] (makes room) -> [`EntryWriter`] (a temporary file) -> [`Disk::keep`] (synced, then renamed: an entry
//! exists whole or not at all) -> [`Disk::open_entry`]. An entry is one file: a head of 4096 bytes, then the content. The head
//! describes the content and has a checksum; an entry that cannot be read back exactly as it was written counts as absent, and
//! is removed.
//!
//! The budget counts every byte that takes space: entries, replaced ones that are still being read, and unfinished ones, at
//! their full size from the beginning if it is known. The least recently used entries are removed first, except those that are
//! being read, because that would free nothing. If no more can be removed, the error is [`no_room`].
//!
//! Nothing here is a record: the whole directory may be deleted while the server is stopped, and is filled again.

mod head;
mod space;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufReader, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use record::Digest;
use resources::files;
use tempfile::NamedTempFile;

pub(super) use self::head::{EntryHead, HEAD_BYTES, content_at, heads, opened_at, parsed_head};
use self::head::{head_bytes, read_head};
use self::space::{Space, SpaceUse};

/// An entry's time of use is written to disk at most this often, so that it survives a restart roughly.
const USED_EVERY: Duration = Duration::from_secs(3600);

/// The key of an entry.
pub(super) type Key = Digest;

/// Bounds of the cache.
pub(super) struct Limits {
    /// Bytes of all entries.
    pub(super) bytes_max: u64,
    /// Bytes that the cache leaves free on its disk.
    pub(super) free_bytes_min: u64,
    /// Bytes that are free on its disk now; `None` if that is not known. It may block.
    pub(super) free_bytes: Box<dyn Fn() -> Option<u64> + Send + Sync>,
}

/// The cache.
pub(super) struct Disk {
    directory: PathBuf,
    limits: Limits,
    taken: Arc<SpaceUse>,
    index: Mutex<Index>,
    /// Only one at a time makes room: two would count the same bytes as free.
    making_room: Mutex<()>,
}

/// The entries, by key and by time of use.
#[derive(Default)]
struct Index {
    clock: u64,
    entries: HashMap<Key, DiskEntry>,
    by_use: BTreeMap<u64, Key>,
}

struct DiskEntry {
    space: Arc<Space>,
    used: u64,
    /// When the time of use was last written to disk.
    noted_at: SystemTime,
}

/// The open file of an entry. While it is open, its space counts as taken.
#[derive(Debug)]
pub struct EntryFile {
    file: File,
    space: Arc<Space>,
    /// Whether the last use was so long ago that this one is worth noting.
    pub(super) is_use_noted: bool,
}

/// An entry that is being written. Dropping it leaves nothing.
pub(super) struct EntryWriter {
    disk: Arc<Disk>,
    file: NamedTempFile,
    written: u64,
    space: Arc<Space>,
}

/// The error of a full cache: pages are then cached in memory only, and files are downloaded again.
pub(super) fn no_room(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, text.into())
}

impl EntryFile {
    /// Its content, from its beginning.
    pub(super) fn content(&mut self) -> io::Result<BufReader<&File>> {
        self.file.seek(SeekFrom::Start(HEAD_BYTES))?;
        Ok(BufReader::with_capacity(64 << 10, &self.file))
    }

    /// Whether its bytes were compared with their digest in this process.
    pub(super) fn is_checked(&self) -> bool {
        self.space.is_checked.load(Relaxed)
    }

    /// The turn to check it, for the thread that does so.
    pub(super) async fn turn_to_check(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.space.checking.clone().lock_owned().await
    }
}

impl std::os::fd::AsFd for EntryFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl std::ops::Deref for EntryFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Index {
    fn touch(&mut self, key: &Key) -> Option<&mut DiskEntry> {
        self.clock += 1;
        let held = self.entries.get_mut(key)?;
        self.by_use.remove(&held.used);
        held.used = self.clock;
        self.by_use.insert(held.used, *key);
        Some(held)
    }

    fn insert(&mut self, key: Key, space: Arc<Space>, noted_at: SystemTime) {
        self.remove(&key);
        self.clock += 1;
        self.entries.insert(key, DiskEntry { space, used: self.clock, noted_at });
        self.by_use.insert(self.clock, key);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(held) = self.entries.remove(key) {
            self.by_use.remove(&held.used);
        }
    }

    /// The entries that are not being read, least recently used first.
    fn idle(&self) -> impl Iterator<Item = (&Key, &DiskEntry)> {
        let held = self.by_use.values().filter_map(|key| Some((key, self.entries.get(key)?)));
        held.filter(|(_, held)| Arc::strong_count(&held.space) == 1)
    }
}

impl Disk {
    /// Opens the cache in `directory`, which is made when something is first written. Files of interrupted downloads
    /// are removed.
    pub(super) fn open(directory: &Path, limits: Limits) -> Disk {
        let disk = Disk {
            directory: directory.to_owned(),
            limits,
            taken: Arc::default(),
            index: Mutex::default(),
            making_room: Mutex::default(),
        };
        _ = fs::remove_dir_all(disk.directory.join("tmp"));
        let mut found: Vec<(SystemTime, Key, u64)> = Vec::new();
        for part in fs::read_dir(directory).into_iter().flatten().flatten() {
            for entry in fs::read_dir(part.path()).into_iter().flatten().flatten() {
                let key = entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok());
                let (Some(key), Ok(data)) = (key, entry.metadata()) else { continue };
                // Whatever else has such a name is replaced when the entry is written.
                if !data.is_file() {
                    continue;
                }
                found.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), key, data.len()));
            }
        }
        found.sort_unstable_by_key(|(used_at, ..)| *used_at);
        {
            let mut index = disk.index();
            for (used_at, key, bytes) in found {
                index.insert(key, Space::held(&disk.taken, bytes), used_at);
            }
        }
        let surplus = disk.bytes().saturating_sub(disk.limits.bytes_max);
        disk.evict(surplus);
        disk
    }

    /// Bytes that the cache takes, including those that are promised to unfinished files.
    pub(super) fn bytes(&self) -> u64 {
        self.taken.bytes.load(Relaxed)
    }

    /// Bytes of the largest content that may be kept: one entry must not evict all others.
    pub(super) fn entry_bytes_max(&self) -> u64 {
        self.limits.bytes_max / 2
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        self.directory.join(&name[..2]).join(name)
    }

    /// The entry's head, and its file. Blocks.
    pub(super) fn open_entry(&self, key: &Key) -> Option<(EntryHead, EntryFile)> {
        let now = SystemTime::now();
        let (is_due, space) = {
            let mut index = self.index();
            let held = index.touch(key)?;
            let is_due = now.duration_since(held.noted_at).is_ok_and(|age| age >= USED_EVERY);
            if is_due {
                held.noted_at = now;
            }
            (is_due, held.space.clone())
        };
        let read = || -> io::Result<(EntryHead, File)> {
            let file = files::open(&self.path(key))?;
            let head = read_head(&file)?;
            let expected = HEAD_BYTES + head.size_bytes;
            if file.metadata()?.len() != expected {
                return Err(io::Error::other(format!("{expected} bytes were expected")));
            }
            Ok((head, file))
        };
        match read() {
            Ok((head, file)) => {
                if is_due {
                    _ = file.set_modified(now);
                }
                Some((head, EntryFile { file, space, is_use_noted: is_due }))
            }
            Err(error) => {
                tracing::warn!(path = %self.path(key).display(), %error, "removed an unreadable entry of the mirrors' cache");
                self.remove(key);
                None
            }
        }
    }

    /// Compares the content of an open entry with its digest; an entry with another digest is removed. Blocks.
    pub(super) fn check(&self, key: &Key, head: &EntryHead, file: &EntryFile) -> bool {
        let mut hasher = record::Hasher::new();
        let mut piece = vec![0; 256 << 10];
        let mut read = 0;
        while read < head.size_bytes {
            match file.read_at(&mut piece, HEAD_BYTES + read) {
                Ok(0) => break,
                Ok(bytes) => {
                    hasher.update(&piece[..bytes]);
                    read += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(name = head.name, %error, "an entry of the mirrors' cache cannot be read");
                    break;
                }
            }
        }
        if read == head.size_bytes && hasher.finish().to_string() == head.sha256 {
            file.space.is_checked.store(true, Relaxed);
            return true;
        }
        tracing::warn!(name = head.name, "removed a damaged entry of the mirrors' cache");
        // It may have been replaced meanwhile; then the new one stays.
        let mut index = self.index();
        if index.entries.get(key).is_some_and(|held| Arc::ptr_eq(&held.space, &file.space)) {
            index.remove(key);
            _ = fs::remove_file(self.path(key));
        }
        false
    }

    /// Bytes of the entry on disk, including its head; `None` if it does not exist.
    pub(super) fn entry_bytes(&self, key: &Key) -> Option<u64> {
        self.index().entries.get(key).map(|held| held.space.bytes())
    }

    /// The entry's head, and its file, whose content was compared with its digest. Blocks.
    pub(super) fn checked_entry(&self, key: &Key) -> Option<(EntryHead, EntryFile)> {
        let (head, file) = self.open_entry(key)?;
        self.check(key, &head, &file).then_some((head, file))
    }

    /// The entry's head and content. Blocks.
    #[cfg(test)]
    pub(super) fn content(&self, key: &Key) -> Option<(EntryHead, Vec<u8>)> {
        let (head, mut file) = self.checked_entry(key)?;
        let mut content = Vec::new();
        io::Read::read_to_end(&mut file.content().ok()?, &mut content).ok()?;
        Some((head, content))
    }

    /// A new entry, whose content has this many bytes, or more. Blocks.
    ///
    /// # Errors
    /// [`no_room`], or if the directory cannot be written.
    pub(super) fn begin(self: &Arc<Disk>, size_bytes: u64) -> io::Result<EntryWriter> {
        let bytes = HEAD_BYTES.saturating_add(size_bytes);
        let space = Space::of(&self.taken);
        self.promise(&space, bytes)?;
        let directory = self.directory.join("tmp");
        fs::create_dir_all(&directory)?;
        let mut file = NamedTempFile::new_in(&directory)?;
        file.seek(SeekFrom::Start(HEAD_BYTES))?;
        Ok(EntryWriter { disk: self.clone(), file, written: 0, space })
    }

    /// Writes an entry whole. Blocks.
    ///
    /// # Errors
    /// [`no_room`], or if it cannot be written.
    pub(super) fn write(
        self: &Arc<Disk>,
        key: Key,
        head: &EntryHead,
        content: &[u8],
    ) -> io::Result<()> {
        let mut writing = self.begin(content.len() as u64)?;
        writing.append(content)?;
        self.keep(writing, key, head)
    }

    /// Makes a written entry visible, whose digest is the one in its head. Blocks.
    ///
    /// # Errors
    /// If it cannot be written; then there is no entry with this key.
    pub(super) fn keep(&self, writing: EntryWriter, key: Key, head: &EntryHead) -> io::Result<()> {
        let file = writing.file.as_file();
        file.write_all_at(&head_bytes(head)?, 0)?;
        file.sync_all()?;
        let path = self.path(&key);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let EntryWriter { file, space, .. } = writing;
        let mut index = self.index();
        file.persist(&path).map_err(|error| error.error)?;
        space.wrote(HEAD_BYTES);
        space.is_checked.store(true, Relaxed);
        index.insert(key, space, SystemTime::now());
        Ok(())
    }

    /// Rewrites the head of an entry whose content upstream has confirmed. Blocks.
    pub(super) fn confirm(&self, key: &Key, head: &EntryHead) {
        let write = || -> io::Result<()> {
            let file = files::open_with(&self.path(key), File::options().write(true))?;
            file.write_all_at(&head_bytes(head)?, 0)
        };
        if self.index().entries.contains_key(key)
            && let Err(error) = write()
        {
            tracing::warn!(%error, "the head of an entry of the mirrors' cache cannot be updated");
        }
    }

    /// Removes an entry. Blocks.
    pub(super) fn remove(&self, key: &Key) {
        let mut index = self.index();
        index.remove(key);
        _ = fs::remove_file(self.path(key));
    }

    /// Makes room for this many bytes more in this space.
    fn promise(&self, space: &Space, bytes: u64) -> io::Result<()> {
        let _turn = self.making_room.lock().unwrap_or_else(PoisonError::into_inner);
        let Limits { bytes_max, free_bytes_min, free_bytes } = &self.limits;
        let over_budget = self.bytes().saturating_add(bytes).saturating_sub(*bytes_max);
        let free = (*free_bytes_min > 0).then(free_bytes).flatten();
        // Bytes that are promised to other files are free only until they are written.
        let needed =
            free_bytes_min.saturating_add(self.taken.unwritten.load(Relaxed)).saturating_add(bytes);
        let below_floor = free.map_or(0, |free| needed.saturating_sub(free));
        let surplus = over_budget.max(below_floor);
        if surplus == 0 || self.evict(surplus) {
            space.promise(bytes);
            return Ok(());
        }
        // If everything together would not be enough, it stays: at least it can be served.
        Err(no_room(match free {
            Some(free) if below_floor > over_budget => format!(
                "its disk has {free} bytes free; {bytes} more would leave less than {free_bytes_min} \
                 (`store.free_bytes_min`)"
            ),
            _ => format!(
                "{bytes} bytes more do not go into {bytes_max} (`python.mirror_disk_bytes_max`) \
                 beside what is read and written now"
            ),
        }))
    }

    /// Removes the least recently used entries that are not being read, until this many bytes are free; none if that cannot
    /// free enough. Returns whether the bytes are free now. Blocks.
    fn evict(&self, bytes: u64) -> bool {
        let mut index = self.index();
        let (mut keys, mut freed) = (Vec::new(), 0);
        for (key, held) in index.idle() {
            if freed >= bytes {
                break;
            }
            freed += held.space.bytes();
            keys.push(*key);
        }
        if freed < bytes {
            return false;
        }
        for key in keys {
            _ = fs::remove_file(self.path(&key));
            index.remove(&key);
        }
        true
    }
}

impl Write for EntryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl EntryWriter {
    /// Reserves space for this many bytes of content. Blocks.
    ///
    /// # Errors
    /// [`no_room`].
    pub(super) fn reserve(&mut self, size_bytes: u64) -> io::Result<()> {
        let more = HEAD_BYTES.saturating_add(size_bytes).saturating_sub(self.space.bytes());
        if more > 0 { self.disk.promise(&self.space, more) } else { Ok(()) }
    }

    /// Appends to the content. Blocks.
    ///
    /// # Errors
    /// [`no_room`], or if it cannot be written.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.reserve(self.written + length)?;
        self.file.write_all(bytes)?;
        self.written += length;
        self.space.wrote(length);
        Ok(())
    }

    /// The offset in the file for the next bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        HEAD_BYTES + self.written
    }

    /// The content so far, read from its beginning. Blocks.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn content(&self) -> io::Result<BufReader<File>> {
        let mut file = self.file.reopen()?;
        file.seek(SeekFrom::Start(HEAD_BYTES))?;
        Ok(BufReader::with_capacity(64 << 10, file))
    }

    /// The file, to read while it is written.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn reader(&self) -> io::Result<EntryFile> {
        Ok(EntryFile { file: self.file.reopen()?, space: self.space.clone(), is_use_noted: false })
    }
}

#[cfg(test)]
mod tests;
