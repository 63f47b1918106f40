//! [`Disk`]: the cache of mirrors on disk: pages, lists and files, with a budget, the least recently used going first.
//!
//! bytes -> [`Writing`] (a temporary file) -> [`Disk::keep`] (synced, then renamed: an entry is there whole or not at
//! all) -> [`Disk::open_entry`]. An entry is one file: a head of 4096 bytes, then the content. The head says what the
//! content is, and has a checksum; what cannot be read back exactly as it was written counts as absent, and is removed.
//!
//! Nothing here is a record: the whole directory may be deleted while the server is stopped, and is filled again.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use record::Digest;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// Where the content begins in the file of an entry.
pub(super) const HEAD_BYTES: u64 = 4096;

/// An entry's time of use is written to disk at most this often, so that it survives a restart roughly.
const USED_EVERY: Duration = Duration::from_secs(3600);

/// What an entry is found by.
pub(super) type Key = Digest;

/// What is known of an entry's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// What it is, for people who look at the file.
    pub(super) name: String,
    /// Size of the content in bytes.
    pub(super) size_bytes: u64,
    /// SHA-256 of the content, in hexadecimal digits.
    pub(super) sha256: String,
    /// When upstream last said it, in milliseconds since 1970.
    pub(super) confirmed_at: i64,
    /// Upstream's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    /// Upstream's time of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_modified: Option<String>,
    /// Upstream's serial of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) serial: Option<u64>,
    /// Whether upstream named a digest that the content was compared with.
    #[serde(default)]
    pub(super) is_verified: bool,
}

/// The cache.
pub(super) struct Disk {
    directory: PathBuf,
    bytes_max: u64,
    index: Mutex<Index>,
}

/// What is there, by key and by time of use.
#[derive(Default)]
struct Index {
    bytes: u64,
    clock: u64,
    entries: HashMap<Key, Held>,
    by_use: BTreeMap<u64, Key>,
}

struct Held {
    bytes: u64,
    used: u64,
    /// When the time of use was last written to disk.
    noted_at: SystemTime,
}

/// An entry that is being written. Dropping it leaves nothing.
pub(super) struct Writing {
    file: NamedTempFile,
}

impl Index {
    fn touch(&mut self, key: &Key) -> Option<&mut Held> {
        self.clock += 1;
        let held = self.entries.get_mut(key)?;
        self.by_use.remove(&held.used);
        held.used = self.clock;
        self.by_use.insert(held.used, *key);
        Some(held)
    }

    fn insert(&mut self, key: Key, bytes: u64, noted_at: SystemTime) {
        self.remove(&key);
        self.clock += 1;
        self.bytes += bytes;
        self.entries.insert(key, Held { bytes, used: self.clock, noted_at });
        self.by_use.insert(self.clock, key);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(held) = self.entries.remove(key) {
            self.bytes -= held.bytes;
            self.by_use.remove(&held.used);
        }
    }
}

impl Disk {
    /// Opens the cache in `directory`, which is made when something is first written. Files of interrupted downloads
    /// are removed.
    pub(super) fn open(directory: &Path, bytes_max: u64) -> Disk {
        let disk = Disk { directory: directory.to_owned(), bytes_max, index: Mutex::default() };
        _ = fs::remove_dir_all(disk.directory.join("tmp"));
        let mut found: Vec<(SystemTime, Key, u64)> = Vec::new();
        for part in fs::read_dir(directory).into_iter().flatten().flatten() {
            for entry in fs::read_dir(part.path()).into_iter().flatten().flatten() {
                let key = entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok());
                let (Some(key), Ok(data)) = (key, entry.metadata()) else { continue };
                found.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), key, data.len()));
            }
        }
        found.sort_unstable_by_key(|(used_at, ..)| *used_at);
        {
            let mut index = disk.index();
            for (used_at, key, bytes) in found {
                index.insert(key, bytes, used_at);
            }
        }
        disk.evict();
        disk
    }

    /// Bytes that the cache takes.
    pub(super) fn bytes(&self) -> u64 {
        self.index().bytes
    }

    /// Largest content that may be kept: one entry never drives out all the others.
    pub(super) fn entry_bytes_max(&self) -> u64 {
        self.bytes_max / 2
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        self.directory.join(&name[..2]).join(name)
    }

    /// The entry's head, and its file. Blocks.
    pub(super) fn open_entry(&self, key: &Key) -> Option<(Head, File)> {
        let now = SystemTime::now();
        let is_due = {
            let mut index = self.index();
            let held = index.touch(key)?;
            let is_due = now.duration_since(held.noted_at).is_ok_and(|age| age >= USED_EVERY);
            if is_due {
                held.noted_at = now;
            }
            is_due
        };
        let read = || -> io::Result<(Head, File)> {
            let file = File::open(self.path(key))?;
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
                Some((head, file))
            }
            Err(error) => {
                tracing::warn!(path = %self.path(key).display(), %error, "an entry of the mirrors' cache is unusable: removed");
                self.remove(key);
                None
            }
        }
    }

    /// The entry's head and content, which is compared with its digest. Blocks.
    pub(super) fn content(&self, key: &Key) -> Option<(Head, Vec<u8>)> {
        let (head, file) = self.open_entry(key)?;
        let mut content = vec![0; usize::try_from(head.size_bytes).ok()?];
        let is_read = file.read_exact_at(&mut content, HEAD_BYTES).is_ok();
        if is_read && Digest::of(&content).to_string() == head.sha256 {
            return Some((head, content));
        }
        tracing::warn!(name = head.name, "an entry of the mirrors' cache is damaged: removed");
        self.remove(key);
        None
    }

    /// A new entry. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub(super) fn begin(&self) -> io::Result<Writing> {
        let directory = self.directory.join("tmp");
        fs::create_dir_all(&directory)?;
        let mut file = NamedTempFile::new_in(&directory)?;
        file.seek(SeekFrom::Start(HEAD_BYTES))?;
        Ok(Writing { file })
    }

    /// Writes an entry whole. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, key: Key, head: &Head, content: &[u8]) -> io::Result<()> {
        let mut writing = self.begin()?;
        writing.append(content)?;
        self.keep(writing, key, head)
    }

    /// Makes a written entry visible. Blocks.
    ///
    /// # Errors
    /// If it cannot be written; then there is no entry with this key.
    pub(super) fn keep(&self, writing: Writing, key: Key, head: &Head) -> io::Result<()> {
        let file = writing.file.as_file();
        file.write_all_at(&head_bytes(head)?, 0)?;
        file.sync_all()?;
        let path = self.path(&key);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        writing.file.persist(&path).map_err(|error| error.error)?;
        self.index().insert(key, HEAD_BYTES + head.size_bytes, SystemTime::now());
        self.evict();
        Ok(())
    }

    /// Writes the head of an entry anew: upstream has confirmed the content. Blocks.
    pub(super) fn confirm(&self, key: &Key, head: &Head) {
        let write = || -> io::Result<()> {
            let file = File::options().write(true).open(self.path(key))?;
            file.write_all_at(&head_bytes(head)?, 0)
        };
        if self.index().entries.contains_key(key)
            && let Err(error) = write()
        {
            tracing::warn!(%error, "an entry of the mirrors' cache cannot be confirmed");
        }
    }

    /// Removes an entry. Blocks.
    pub(super) fn remove(&self, key: &Key) {
        self.index().remove(key);
        _ = fs::remove_file(self.path(key));
    }

    /// Removes what was not used for longest, until the rest is within the budget. Who reads such a file meanwhile
    /// reads it to its end.
    fn evict(&self) {
        loop {
            let key = {
                let mut index = self.index();
                if index.bytes <= self.bytes_max {
                    return;
                }
                let Some((_, key)) = index.by_use.pop_first() else { return };
                if let Some(held) = index.entries.remove(&key) {
                    index.bytes -= held.bytes;
                }
                key
            };
            _ = fs::remove_file(self.path(&key));
        }
    }
}

impl Writing {
    /// Appends to the content. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// The file, to read while it is written.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn reader(&self) -> io::Result<File> {
        self.file.reopen()
    }
}

fn head_bytes(head: &Head) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(head)?;
    let mut bytes = format!("{} {json}\n", Digest::of(json.as_bytes())).into_bytes();
    if bytes.len() as u64 > HEAD_BYTES {
        return Err(io::Error::other("what upstream says of it is too long to be kept"));
    }
    bytes.resize(HEAD_BYTES as usize, b' ');
    Ok(bytes)
}

fn read_head(file: &File) -> io::Result<Head> {
    let mut bytes = vec![0; HEAD_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let damaged = || io::Error::other("its head is damaged");
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
    let (checksum, json) = text.trim_end().split_once(' ').ok_or_else(damaged)?;
    if Digest::of(json.as_bytes()).to_string() != checksum {
        return Err(damaged());
    }
    Ok(serde_json::from_str(json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Digest::of(name.as_bytes())
    }

    fn head(name: &str, content: &[u8]) -> Head {
        Head {
            name: name.to_owned(),
            size_bytes: content.len() as u64,
            sha256: Digest::of(content).to_string(),
            confirmed_at: 1,
            etag: Some("\"tag\"".to_owned()),
            last_modified: None,
            serial: Some(7),
            is_verified: true,
        }
    }

    fn write(disk: &Disk, name: &str, content: &[u8]) {
        disk.write(key(name), &head(name, content), content).expect("a disk");
    }

    #[test]
    fn entries_survive_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Disk::open(directory.path(), 1 << 20);
        assert!(disk.content(&key("a")).is_none(), "nothing is there yet");
        write(&disk, "a", b"one");
        write(&disk, "a", b"two");
        drop(disk);
        let disk = Disk::open(directory.path(), 1 << 20);
        assert_eq!(disk.content(&key("a")), Some((head("a", b"two"), b"two".to_vec())));
        assert_eq!(disk.bytes(), HEAD_BYTES + 3);
        let confirmed = Head { confirmed_at: 2, ..head("a", b"two") };
        disk.confirm(&key("a"), &confirmed);
        assert_eq!(disk.content(&key("a")), Some((confirmed, b"two".to_vec())));
    }

    #[test]
    fn what_was_not_finished_is_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Disk::open(directory.path(), 1 << 20);
        let mut writing = disk.begin().expect("a disk");
        writing.append(b"half").expect("a disk");
        // As after a kill: nobody removes the temporary file.
        std::mem::forget(writing);
        let disk = Disk::open(directory.path(), 1 << 20);
        assert_eq!(disk.bytes(), 0);
        assert!(!directory.path().join("tmp").exists(), "it is removed");
    }

    #[test]
    fn damage_counts_as_absence() {
        let directory = tempfile::tempdir().expect("a directory");
        for damage in ["cut", "head", "content"] {
            let disk = Disk::open(directory.path(), 1 << 20);
            write(&disk, "a", b"content");
            let file = File::options().write(true).open(disk.path(&key("a"))).expect("the entry");
            match damage {
                "cut" => file.set_len(HEAD_BYTES + 3).expect("a disk"),
                "head" => file.write_all_at(b"x", 80).expect("a disk"),
                _ => file.write_all_at(b"x", HEAD_BYTES).expect("a disk"),
            }
            assert!(disk.content(&key("a")).is_none(), "{damage}");
            assert!(!disk.path(&key("a")).exists(), "{damage}: it is removed");
            assert_eq!(disk.bytes(), 0, "{damage}");
        }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Disk::open(directory.path(), 3 * (HEAD_BYTES + 10));
        for name in ["a", "b", "c"] {
            write(&disk, name, &[7; 10]);
        }
        assert!(disk.open_entry(&key("a")).is_some());
        write(&disk, "d", &[7; 10]);
        let is_there = |name: &str| disk.content(&key(name)).is_some();
        assert!(!is_there("b"), "it was used before all others");
        assert!(is_there("a") && is_there("c") && is_there("d"));
        assert_eq!(
            fs::read_dir(directory.path()).expect("a directory").count(),
            4 + 1,
            "tmp, and a directory each; `b`'s is empty"
        );
    }
}
