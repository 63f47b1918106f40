//! [`SharedCache`]: the cache of mirrored content that processes on one object store share, behind the disk of each.
//!
//! ```text
//! key ─► disk ─► shared ─► upstream
//!         ▲        │  ▲       │
//!         └────────┘  └───────┘ once it is checked, and on the disk
//! ```
//! An entry of the disk is one file, and the object has the same bytes. Its head is compared first, so that only wanted objects
//! are transferred. It goes to the disk, and counts only if its length and its digest are right: a damaged, cut or wrong object
//! counts as missing. No client reads bytes of an object before all of them were compared, so large files are not shared: their
//! clients would wait.
//!
//! If the object store is slow or gone, a process asks the upstreams itself. Every request to it has a timeout, after which it
//! is left alone for a while. Clients cannot cause unbounded requests: keys that it did not have are remembered for some
//! seconds.
//!
//! A mirror with credentials in its URL is not shared: names of objects are digests of that URL, from which a password could be guessed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use pypi::upstream::UpstreamPage;
use sha2::digest::DynDigest;
use store::blobs::{BlobError, BlobStream, ObjectCache};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{timeout, timeout_at};

use super::disk::{Disk, EntryHead, EntryWriter, HEAD_BYTES, Key, parsed_head};
use super::sink::Sink;
use super::{Mirror, Mirrors, blocking, lock};

/// Pages and lists that are fetched at once; and files, which have their own turns.
const PAGES_MAX: usize = 32;
const FILES_MAX: usize = 32;

/// Entries that are written at once, and that wait for it. Further ones are shared when they are used again.
const WRITING_MAX: usize = 4;
const WAITING_MAX: usize = 256;

/// Largest content that is shared, in bytes.
pub(super) const CONTENT_BYTES_MAX: u64 = 64 << 20;

/// How long a request waits for its turn, for the head of an entry, and for the whole entry; together less than an installer's
/// timeout. A request may need a list, a page and a file, one after the other.
const TURN_PATIENCE: Duration = Duration::from_secs(1);
const HEAD_PATIENCE: Duration = Duration::from_secs(4);
const ENTRY_PATIENCE: Duration = Duration::from_secs(8);

/// An object store that sends less of a file in that time is left alone; a large file may be late although pages come in time.
/// After a late page or list it is always left alone, because the same request would wait for its next entry, too.
const ENTRY_BYTES_MIN: u64 = 1 << 20;

/// How long a write may take, and a look at all entries.
const WRITE_PATIENCE: Duration = Duration::from_secs(120);
const TRIM_PATIENCE: Duration = Duration::from_secs(1800);

/// How long the object store is not asked after a failure.
const PAUSE: Duration = Duration::from_secs(30);

/// How long and for how many keys it is remembered that the object store has nothing usable. At this number of keys, it is not asked at all: no
/// client can make it answer for more keys in this time.
const MISSING_FOR: Duration = Duration::from_secs(10);
const MISSING_MAX: usize = 4096;

/// Heads of files that are remembered as long, each of less than 4 KiB. Above this number, the object store is not asked for
/// more.
const HEADS_MAX: usize = 4096;

/// Most entries: each takes memory while the cache is trimmed.
const ENTRIES_MAX: usize = 500_000;

/// The cache is trimmed when this process has added this fraction of its size: one part of 20.
const TRIM_PARTS: u64 = 20;

/// The cache that processes share.
pub(super) struct SharedCache {
    cache: ObjectCache,
    bytes_max: u64,
    pages: Semaphore,
    files: Semaphore,
    writing: Semaphore,
    waiting: Semaphore,
    /// Bytes that this process has added since it last trimmed the cache; a large number at first.
    added_bytes: AtomicU64,
    trimming: tokio::sync::Mutex<()>,
    reads: Pause,
    writes: Pause,
    missing: Mutex<MissingKeys>,
    heads: Mutex<RecentHeads>,
}

/// The kind of entry, which has its own turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Page,
    File,
}

/// Whether the object store is left alone.
struct Pause {
    started_at: Instant,
    /// Milliseconds since the start.
    until: AtomicU64,
}

impl Pause {
    fn new() -> Pause {
        Pause { started_at: Instant::now(), until: AtomicU64::new(0) }
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_on(&self) -> bool {
        self.milliseconds() < self.until.load(Relaxed)
    }

    fn begin(&self, error: &dyn std::fmt::Display) {
        let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
        self.until.store(self.milliseconds().saturating_add(pause), Relaxed);
        tracing::warn!(%error, "the mirrors' shared cache does not answer; this process does not use it for 30 seconds");
    }
}

/// Keys that the object store did not have a moment ago.
#[derive(Default)]
struct MissingKeys {
    keys: HashSet<Key>,
    by_age: VecDeque<(Instant, Key)>,
}

impl MissingKeys {
    fn add(&mut self, key: Key, now: Instant) {
        if self.keys.insert(key) {
            self.by_age.push_back((now, key));
        }
    }

    /// Whether the object store may be asked for this key.
    fn admits(&mut self, key: &Key, now: Instant) -> bool {
        while let Some((since, old)) = self.by_age.front()
            && now.duration_since(*since) >= MISSING_FOR
        {
            self.keys.remove(old);
            self.by_age.pop_front();
        }
        self.keys.len() < MISSING_MAX && !self.keys.contains(key)
    }
}

/// The heads of files that were asked for a moment ago.
#[derive(Default)]
struct RecentHeads {
    by_key: HashMap<Key, EntryHead>,
    by_age: VecDeque<(Instant, Key)>,
}

impl RecentHeads {
    fn add(&mut self, key: Key, head: EntryHead, now: Instant) {
        if self.by_key.insert(key, head).is_none() {
            self.by_age.push_back((now, key));
        }
    }

    fn get(&mut self, key: &Key, now: Instant) -> Option<EntryHead> {
        while let Some((since, old)) = self.by_age.front()
            && now.duration_since(*since) >= MISSING_FOR
        {
            self.by_key.remove(old);
            self.by_age.pop_front();
        }
        self.by_key.get(key).cloned()
    }

    fn is_full(&self) -> bool {
        self.by_key.len() >= HEADS_MAX
    }
}

/// An entry whose head is here.
struct IncomingEntry<'shared> {
    head: EntryHead,
    /// The content that came together with the head.
    first: Bytes,
    chunks: BlobStream,
    kind: Kind,
    _turn: SemaphorePermit<'shared>,
}

/// An entry that is on the disk, but not visible yet.
pub(super) struct FetchedEntry {
    pub(super) head: EntryHead,
    pub(super) writing: EntryWriter,
    /// The digest that was asked for, if one was.
    pub(super) extra: Option<Box<dyn DynDigest + Send>>,
}

impl SharedCache {
    pub(super) fn new(cache: ObjectCache, bytes_max: u64) -> SharedCache {
        SharedCache {
            cache,
            bytes_max,
            pages: Semaphore::new(PAGES_MAX),
            files: Semaphore::new(FILES_MAX),
            writing: Semaphore::new(WRITING_MAX),
            waiting: Semaphore::new(WAITING_MAX),
            added_bytes: AtomicU64::new(u64::MAX / 2),
            trimming: tokio::sync::Mutex::default(),
            reads: Pause::new(),
            writes: Pause::new(),
            missing: Mutex::default(),
            heads: Mutex::default(),
        }
    }

    /// Whether the object store may be asked for this key.
    fn admits(&self, key: &Key) -> bool {
        !self.reads.is_on() && lock(&self.missing).admits(key, Instant::now())
    }

    fn miss(&self, key: &Key) {
        lock(&self.missing).add(*key, Instant::now());
    }

    /// The entry's head, and its content to come; `None` if it does not exist, or does not come in time.
    async fn find(&self, key: &Key, kind: Kind, bytes_max: u64) -> Option<IncomingEntry<'_>> {
        if !self.admits(key) {
            return None;
        }
        let turns = match kind {
            Kind::Page => &self.pages,
            Kind::File => &self.files,
        };
        let turn = timeout(TURN_PATIENCE, turns.acquire()).await.ok()?.ok()?;
        // The work that had the turn before may have timed out.
        if !self.admits(key) {
            return None;
        }
        let failed = match timeout(HEAD_PATIENCE, self.begin(key, bytes_max)).await {
            Ok(Ok(Some((head, first, chunks)))) => {
                return Some(IncomingEntry { head, first, chunks, kind, _turn: turn });
            }
            Ok(Ok(None)) => {
                self.miss(key);
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(late) => late.to_string(),
        };
        self.reads.begin(&failed);
        None
    }

    /// Asks for an entry, and reads its head.
    async fn begin(
        &self,
        key: &Key,
        bytes_max: u64,
    ) -> Result<Option<(EntryHead, Bytes, BlobStream)>, BlobError> {
        let Some((size_bytes, mut chunks)) = self.cache.get(key).await? else { return Ok(None) };
        let content_bytes = size_bytes.checked_sub(HEAD_BYTES).filter(|size| *size <= bytes_max);
        let mut first = BytesMut::new();
        while (first.len() as u64) < HEAD_BYTES {
            match chunks.try_next().await {
                Ok(Some(chunk)) => first.extend_from_slice(&chunk),
                Ok(None) => break,
                // It may just have been removed; that says nothing of other entries.
                Err(error) => {
                    not_whole(key, &error);
                    return Ok(None);
                }
            }
        }
        let (Some(content_bytes), true) = (content_bytes, first.len() as u64 >= HEAD_BYTES) else {
            not_whole(key, &format!("it has {size_bytes} bytes"));
            return Ok(None);
        };
        let head = first.split_to(HEAD_BYTES as usize);
        match parsed_head(&head) {
            Ok(head) if head.size_bytes == content_bytes => {
                Ok(Some((head, first.freeze(), chunks)))
            }
            Ok(_) => {
                not_whole(key, &"its size is not that of its head");
                Ok(None)
            }
            Err(error) => {
                not_whole(key, &error);
                Ok(None)
            }
        }
    }

    /// All of an entry, in a file of the disk that is not visible yet; `None` if it is not whole, or not in time.
    async fn take(
        &self,
        disk: &Arc<Disk>,
        key: &Key,
        coming: IncomingEntry<'_>,
        extra: Option<Box<dyn DynDigest + Send>>,
    ) -> Option<FetchedEntry> {
        let IncomingEntry { head, first, mut chunks, kind, _turn } = coming;
        let until = tokio::time::Instant::now() + ENTRY_PATIENCE;
        let (begun, content_bytes) = (disk.clone(), head.size_bytes);
        let writing = blocking(move || begun.begin(content_bytes)).await.ok()?;
        let mut sink = Sink { writing, sha256: record::Hasher::new(), extra };
        let (mut piece, mut arrived) = (BytesMut::from(&first[..]), first.len() as u64);
        loop {
            if arrived > content_bytes {
                not_whole(key, &"it is longer than it said");
                return None;
            }
            let next = match timeout_at(until, chunks.try_next()).await {
                Ok(Ok(next)) => next,
                Ok(Err(error)) => {
                    not_whole(key, &error);
                    return None;
                }
                Err(late) => {
                    if kind == Kind::Page || arrived < ENTRY_BYTES_MIN {
                        self.reads.begin(&late);
                    }
                    return None;
                }
            };
            let is_end = next.is_none();
            if let Some(next) = next {
                arrived += next.len() as u64;
                piece.extend_from_slice(&next);
            }
            let bytes = if is_end { piece.len() } else { sink.bytes_to_write(piece.len()) };
            if arrived <= content_bytes && bytes > 0 {
                let bytes = piece.split_to(bytes).freeze();
                sink = blocking(move || sink.append(&bytes)).await.ok()?;
            }
            if is_end {
                break;
            }
        }
        let Sink { writing, sha256, extra } = sink;
        if arrived != content_bytes || sha256.finish().to_string() != head.sha256 {
            not_whole(key, &"its bytes are not those of its head");
            return None;
        }
        Some(FetchedEntry { head, writing, extra })
    }

    /// Writes an entry of the disk, as it is now.
    async fn write(&self, disk: &Arc<Disk>, key: Key) -> Result<(), BlobError> {
        let disk = disk.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let (head, entry) = disk.open_entry(&key)?;
            if head.size_bytes > CONTENT_BYTES_MAX {
                return None;
            }
            // Only content that was hashed here is shared: when it arrived, or since.
            let is_right = entry.is_checked() || disk.check(&key, &head, &entry);
            let file = entry.try_clone().ok().filter(|_| is_right)?;
            // While the entry is open, its space counts.
            Some((HEAD_BYTES + head.size_bytes, file, entry))
        });
        let Ok(Some((size_bytes, file, _entry))) = opened.await else { return Ok(()) };
        if size_bytes > self.bytes_max / 2 {
            return Ok(());
        }
        self.cache.put(&key, file, size_bytes).await?;
        // Small ones count as their part of the number that there may be.
        let counted = size_bytes.max(self.bytes_max / ENTRIES_MAX as u64);
        self.added_bytes.fetch_add(counted, Relaxed);
        Ok(())
    }

    /// Notes that an entry is used; a missing one is written.
    async fn note_use(&self, disk: &Arc<Disk>, key: Key) -> Result<(), BlobError> {
        match self.cache.contains(&key).await? {
            true => self.cache.note_use(&key).await,
            false => self.write(disk, key).await,
        }
    }

    async fn trim_if_due(&self) {
        if self.added_bytes.load(Relaxed) < self.bytes_max / TRIM_PARTS {
            return;
        }
        let Ok(_turn) = self.trimming.try_lock() else { return };
        self.added_bytes.store(0, Relaxed);
        let failed =
            match timeout(TRIM_PATIENCE, self.cache.trim(self.bytes_max, ENTRIES_MAX)).await {
                Ok(Ok(trimmed)) => {
                    tracing::debug!(?trimmed, "the shared cache of the mirrors");
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(late) => late.to_string(),
            };
        self.added_bytes.store(self.bytes_max, Relaxed);
        self.writes.begin(&failed);
    }
}

fn not_whole(key: &Key, cause: &dyn std::fmt::Display) {
    tracing::warn!(%key, %cause, "an entry of the mirrors' shared cache is unusable");
}

impl Mirrors {
    /// The cache that processes share, if this mirror has a part in it.
    fn shared_by(&self, mirror: &Mirror) -> Option<&Arc<SharedCache>> {
        self.shared.as_ref().filter(|_| mirror.is_shared)
    }

    /// Whether this entry may be in the shared cache.
    pub(super) fn may_be_shared(&self, mirror: &Mirror, key: &Key) -> bool {
        self.shared_by(mirror).is_some_and(|shared| shared.admits(key))
    }

    /// The head of a file in the shared cache, if it is the wanted one.
    pub(super) async fn shared_head(
        &self,
        mirror: &Mirror,
        key: &Key,
        is_wanted: impl FnOnce(&EntryHead) -> bool + Send,
    ) -> Option<EntryHead> {
        let shared = self.shared_by(mirror)?;
        let (remembered, is_full) = {
            let mut heads = lock(&shared.heads);
            (heads.get(key, Instant::now()), heads.is_full())
        };
        if remembered.is_some() || is_full {
            return remembered.filter(is_wanted);
        }
        let head = shared.find(key, Kind::File, CONTENT_BYTES_MAX).await?.head;
        if !is_wanted(&head) {
            shared.miss(key);
            return None;
        }
        lock(&shared.heads).add(*key, head.clone(), Instant::now());
        Some(head)
    }

    /// Brings an entry of the shared cache, if its head is wanted, in a file of the disk that is not visible yet.
    pub(super) async fn bring(
        &self,
        mirror: &Mirror,
        key: &Key,
        kind: Kind,
        extra: Option<Box<dyn DynDigest + Send>>,
        is_wanted: impl FnOnce(&EntryHead) -> bool + Send,
    ) -> Option<FetchedEntry> {
        let shared = self.shared_by(mirror)?;
        let coming = shared.find(key, kind, CONTENT_BYTES_MAX).await?;
        if !is_wanted(&coming.head) {
            shared.miss(key);
            return None;
        }
        let taken = shared.take(&self.disk, key, coming, extra).await;
        if taken.is_none() {
            // Remembered, so that it is not transferred again and again.
            shared.miss(key);
        }
        taken
    }

    /// Notes that a brought entry is not the wanted one, so that it is not transferred again and again.
    pub(super) fn reject_brought(&self, key: &Key) {
        if let Some(shared) = &self.shared {
            shared.miss(key);
        }
    }

    /// Makes an entry that was brought visible here; it counts as used.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(super) async fn keep_brought(
        &self,
        mirror: &Mirror,
        key: Key,
        brought: FetchedEntry,
    ) -> io::Result<()> {
        let (disk, FetchedEntry { head, writing, .. }) = (self.disk.clone(), brought);
        let keeping = tokio::task::spawn_blocking(move || disk.keep(writing, key, &head));
        keeping.await.map_err(io::Error::other)??;
        self.counters.shared.fetch_add(1, Relaxed);
        self.note_shared_use(mirror, key);
        Ok(())
    }

    /// Shares an entry of the disk, in the background.
    pub(super) fn share(&self, mirror: &Mirror, key: Key) {
        self.in_background(mirror, key, WorkKind::Write);
    }

    /// Removes a file from the shared cache that was removed here.
    pub(super) fn unshare(&self, mirror: &Mirror, key: Key) {
        self.in_background(mirror, key, WorkKind::Remove);
    }

    /// Tells the other processes that this entry is used, or shares the entry if they lack it.
    pub(super) fn note_shared_use(&self, mirror: &Mirror, key: Key) {
        self.in_background(mirror, key, WorkKind::NoteUse);
    }

    fn in_background(&self, mirror: &Mirror, key: Key, work: WorkKind) {
        let Some(shared) = self.shared_by(mirror).filter(|it| !it.writes.is_on()) else { return };
        let (shared, disk) = (shared.clone(), self.disk.clone());
        tokio::spawn(async move {
            let done = {
                let Ok(_waiting) = shared.waiting.try_acquire() else { return };
                let Ok(_turn) = shared.writing.acquire().await else { return };
                if shared.writes.is_on() {
                    return;
                }
                let doing = async {
                    match work {
                        WorkKind::Write => shared.write(&disk, key).await,
                        WorkKind::Remove => shared.cache.remove(&key).await,
                        WorkKind::NoteUse => shared.note_use(&disk, key).await,
                    }
                };
                timeout(WRITE_PATIENCE, doing).await
            };
            match done {
                Ok(Ok(())) => shared.trim_if_due().await,
                // The object store is not to blame for the disk of this machine.
                Ok(Err(error)) if error.is_of_local_file() => {
                    tracing::warn!(%key, %error, "an entry of the mirrors' cache cannot be shared");
                }
                Ok(Err(error)) => shared.writes.begin(&error),
                Err(late) => shared.writes.begin(&late),
            }
        });
    }
}

/// The page in an entry that was brought; `None` if it is no page.
pub(super) async fn page_of(mirror: &Mirror, brought: FetchedEntry) -> Option<UpstreamPage> {
    let (writing, url) = (brought.writing, mirror.origin.url.clone());
    let reading = blocking(move || {
        let mut content = writing.content()?;
        UpstreamPage::read("application/json", &mut content, &url).map_err(io::Error::other)
    });
    reading.await.ok()
}

/// Background work.
#[derive(Clone, Copy)]
enum WorkKind {
    Write,
    Remove,
    NoteUse,
}

#[cfg(test)]
mod tests {
    use record::Digest;

    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_once_in_a_while() {
        let key = |number: usize| Digest::of(&number.to_be_bytes());
        let start = Instant::now();
        let mut missing = MissingKeys::default();
        assert!(missing.admits(&key(0), start));
        missing.add(key(0), start);
        missing.add(key(0), start);
        assert!(!missing.admits(&key(0), start));
        assert!(missing.admits(&key(1), start));
        // Many names, as a stranger may make them up.
        for number in 1..MISSING_MAX {
            missing.add(key(number), start + MISSING_FOR / 2);
        }
        assert!(!missing.admits(&key(MISSING_MAX), start + MISSING_FOR / 2), "there are enough");
        assert!(missing.admits(&key(0), start + MISSING_FOR));
        assert!(!missing.admits(&key(1), start + MISSING_FOR));
        assert!(missing.admits(&key(1), start + MISSING_FOR * 2));
        assert!(missing.keys.is_empty() && missing.by_age.is_empty());
    }

    #[test]
    fn heads_are_remembered_for_a_moment() {
        let key = |number: usize| Digest::of(&number.to_be_bytes());
        let head = |size_bytes: u64| EntryHead {
            name: "team/pypi file".to_owned(),
            size_bytes,
            ..EntryHead::default()
        };
        let start = Instant::now();
        let mut heads = RecentHeads::default();
        heads.add(key(0), head(7), start);
        assert_eq!(heads.get(&key(0), start + MISSING_FOR / 2), Some(head(7)));
        assert_eq!(heads.get(&key(1), start), None);
        assert_eq!(heads.get(&key(0), start + MISSING_FOR), None);
        // Many files, as a client may ask for them.
        for number in 0..HEADS_MAX {
            assert!(!heads.is_full());
            heads.add(key(number), head(7), start);
            heads.add(key(number), head(8), start);
        }
        assert!(heads.is_full());
        assert_eq!(heads.get(&key(0), start), Some(head(8)));
        assert_eq!(heads.get(&key(0), start + MISSING_FOR), None);
        assert!(heads.by_key.is_empty() && heads.by_age.is_empty());
    }
}
