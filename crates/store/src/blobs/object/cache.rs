//! A cache beside the blobs of an object store: files that processes fetched from elsewhere and share, and may lose at any
//! time.
//!
//! ```text
//! PREFIX/mirrors/1/ab/<64 digits>   an entry: whole or not there
//! PREFIX/mirrors/used/<64 digits>   empty; its age is that of the entry's last use
//! ```
//! The owner of an entry defines its content, and has to check that it is whole and right: the cache compares no digests. No
//! process waits for another: if two write one entry, the later one wins, and if two trim the cache, both remove the same. An
//! entry that is removed while it is read is fetched again.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt as _, PutPayload};
use record::Digest;

use super::super::BlobStream;
use super::super::error::BlobError;
use super::{Objects, Upload};

/// The cache of an object store. Clones share it.
#[derive(Clone)]
pub struct ObjectCache {
    objects: Arc<Objects>,
}

/// The outcome of [`ObjectCache::trim`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// Bytes that are left.
    pub bytes: u64,
    /// Entries that were removed.
    pub removed: u64,
}

/// The place of entries in this form; another form has another place.
const ENTRIES: &str = "mirrors/1";
const USED: &str = "mirrors/used";

/// Requests of a trim that are under way at once.
const DELETES_AT_ONCE: usize = 8;

/// A note of a use without an entry is removed when it is older: its entry may just be on its way.
const LONE_NOTE_AGE: Duration = Duration::from_secs(3600);

/// The entries that a trim has found so far.
#[derive(Default)]
struct CacheListing {
    bytes: u64,
    removed: u64,
    /// Last use in seconds since 1970, key, size.
    entries: Vec<(u64, Digest, u64)>,
}

impl CacheListing {
    /// Takes out the least recently used entries, until only nine tenths of the bound are left.
    fn doomed(&mut self, bytes_max: u64, entries_max: usize) -> Vec<Digest> {
        // The latest are at the front.
        self.entries.sort_unstable_by(|one, other| other.cmp(one));
        let mut doomed = Vec::new();
        while (self.bytes > bytes_max / 10 * 9 || self.entries.len() > entries_max / 10 * 9)
            && let Some((_, key, size_bytes)) = self.entries.pop()
        {
            (self.bytes, self.removed) = (self.bytes.saturating_sub(size_bytes), self.removed + 1);
            doomed.push(key);
        }
        doomed
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl ObjectCache {
    pub(in super::super) fn of(objects: &Arc<Objects>) -> ObjectCache {
        ObjectCache { objects: Arc::clone(objects) }
    }

    /// An entry's size in bytes, and its bytes as they come; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of the object store.
    pub async fn get(&self, key: &Digest) -> Result<Option<(u64, BlobStream)>, BlobError> {
        let (objects, key) = (&self.objects, self.entry(key));
        let place = objects.place(&key);
        match objects.store.get(&key).await {
            Ok(found) => {
                let size_bytes = found.meta.size;
                let failed = move |error| BlobError::object("read", &place, error);
                Ok(Some((size_bytes, found.into_stream().map_err(failed).boxed())))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(BlobError::object("read", place, error)),
        }
    }

    /// Writes the entry `key` with these bytes of a local file, replacing an existing one.
    ///
    /// # Errors
    /// [`BlobError::Away`], or the error of the disk or the object store; then the entry has not changed.
    pub async fn put(&self, key: &Digest, file: File, size_bytes: u64) -> Result<(), BlobError> {
        self.objects.check_identity_if_away().await?;
        self.objects.upload_to(&self.entry(key), &Upload::File(Arc::new(file), size_bytes)).await
    }

    /// Removes an entry, if it is there.
    ///
    /// # Errors
    /// Errors of the object store.
    pub async fn remove(&self, key: &Digest) -> Result<(), BlobError> {
        self.objects.delete(&self.entry(key)).await
    }

    /// Whether the entry exists.
    ///
    /// # Errors
    /// The error of the object store.
    pub async fn contains(&self, key: &Digest) -> Result<bool, BlobError> {
        let key = self.entry(key);
        match self.objects.store.head(&key).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(BlobError::object("inspect", self.objects.place(&key), error)),
        }
    }

    /// Notes that an entry was used now.
    ///
    /// # Errors
    /// Errors of the object store.
    pub async fn note_use(&self, key: &Digest) -> Result<(), BlobError> {
        self.objects.check_identity_if_away().await?;
        let key = self.used(key);
        let written = self.objects.store.put(&key, PutPayload::new()).await;
        written.map_err(|error| BlobError::object("write", self.objects.place(&key), error))?;
        Ok(())
    }

    /// Trims the cache if there are more than `entries_max` entries, or more than `bytes_max` bytes in all: removes the least
    /// recently used, until only nine tenths are left. Meanwhile up to twice `entries_max` entries, and as many notes, are in
    /// memory.
    ///
    /// # Errors
    /// The error of the object store; entries that were removed until then are gone.
    pub async fn trim(&self, bytes_max: u64, entries_max: usize) -> Result<TrimReport, BlobError> {
        self.objects.check_identity_if_away().await?;
        let listed_max = entries_max.saturating_mul(2);
        // By the clock of the object store.
        let mut latest = 0;
        let mut used: HashMap<Digest, u64> = HashMap::new();
        let mut notes = self.each(USED);
        while let Some((key, _, at)) = notes.try_next().await? {
            latest = latest.max(seconds(at));
            // Further notes are not read: they go with their entries, or another time.
            if used.len() < listed_max {
                used.insert(key, seconds(at));
            }
        }
        let mut found = CacheListing::default();
        let mut entries = self.each(ENTRIES);
        while let Some((key, size_bytes, written_at)) = entries.try_next().await? {
            let written_at = seconds(written_at);
            latest = latest.max(written_at);
            let used_at = used.remove(&key).map_or(written_at, |used_at| used_at.max(written_at));
            found.bytes = found.bytes.saturating_add(size_bytes);
            found.entries.push((used_at, key, size_bytes));
            if found.entries.len() >= listed_max {
                // The oldest entries are removed to make room for the rest of the list.
                self.remove_all(found.doomed(bytes_max, entries_max)).await?;
            }
        }
        if found.bytes > bytes_max || found.entries.len() > entries_max {
            self.remove_all(found.doomed(bytes_max, entries_max)).await?;
        }
        let is_old = |at: &u64| latest.saturating_sub(*at) >= LONE_NOTE_AGE.as_secs();
        let lone = used.into_iter().filter(|(_, at)| is_old(at));
        let removing =
            lone.map(|(key, _)| async move { self.objects.delete(&self.used(&key)).await });
        let mut removing = futures_util::stream::iter(removing).buffer_unordered(DELETES_AT_ONCE);
        while removing.try_next().await?.is_some() {}
        Ok(TrimReport { bytes: found.bytes, removed: found.removed })
    }

    /// Removes these entries, and the notes of their uses.
    async fn remove_all(&self, keys: Vec<Digest>) -> Result<(), BlobError> {
        let removing = keys.into_iter().map(|key| async move {
            self.objects.delete(&self.entry(&key)).await?;
            self.objects.delete(&self.used(&key)).await
        });
        let mut removing = futures_util::stream::iter(removing).buffer_unordered(DELETES_AT_ONCE);
        while removing.try_next().await?.is_some() {}
        Ok(())
    }

    /// The key, the size and the age of each object under this path.
    fn each(
        &self,
        path: &str,
    ) -> impl Stream<Item = Result<(Digest, u64, SystemTime), BlobError>> + Unpin + Send {
        let path = self.objects.key(path);
        let listed = self.objects.store.list(Some(&path));
        let place = self.objects.place(&path);
        let failed = move |error| BlobError::object("list", &place, error);
        let keyed = |found: ObjectMeta| {
            let key = found.location.filename().and_then(|name| name.parse().ok());
            let found = key.map(|key| (key, found.size, found.last_modified.into()));
            std::future::ready(Ok(found))
        };
        listed.map_err(failed).try_filter_map(keyed).boxed()
    }

    fn entry(&self, key: &Digest) -> Path {
        let [first, ..] = key.as_bytes();
        self.objects.key(&format!("{ENTRIES}/{first:02x}/{key}"))
    }

    fn used(&self, key: &Digest) -> Path {
        self.objects.key(&format!("{USED}/{key}"))
    }
}
