//! Blobs as objects of an S3-type store, which any number of processes share.
//!
//! ```text
//! PREFIX/VERSION                    names this layout
//! PREFIX/IDENTITY                   names the store that the blobs belong to
//! PREFIX/SERIAL                     how far its records have come, at least
//! PREFIX/sha256/ab/cd/<64 digits>   the blobs
//! PREFIX/doomed/<64 digits>/<n>     a sweep is about to delete the blob
//! PREFIX/tmp/<n>                    a blob being touched
//! PREFIX/mirrors/…                  no blobs: see [`ObjectCache`]
//! ```
//! An object's age is that of its last upload, so a blob is uploaded again each time it is put; its bytes are the same. An
//! object store cannot delete an object on the condition that it was not uploaded again (the same content has the same ETag).
//! So puts and sweeps use markers, on a store that is strongly consistent:
//!
//! - a sweep writes its marker, *then* looks at the age again, deletes, and removes the marker;
//! - a put uploads, *then* waits until there is no marker, and *then* looks whether the blob exists.
//!
//! If the put saw no marker, every sweep whose marker comes later sees the new age and spares the
//! blob, and every earlier one is over, so that the put's last look tells what it did; then the put
//! uploads again. A sweep gives up [`DELETE_SECONDS_MAX`] after its marker; a marker that outlives
//! [`MARKER_SECONDS_MAX`] is of a sweep that was killed; the process that waits for it removes it.
//!
//! `IDENTITY` is read after each upload, beside the look for markers, and before it if it was not right the last
//! time: a write into a bucket that was put in the place of the right one is not acknowledged.

mod cache;
mod connect;
mod notes;

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutPayload,
    WriteMultipart,
};
use record::{Digest, Hasher};

use super::BlobEntry;
use super::directory::SweepAction;
use super::error::{BlobError, FailureKind, SPOOL, blocking};
use super::identity::StoreIdentity;
use super::spool::CHUNK_BYTES;
use super::sweep::is_young;

/// Bytes as they are read; nothing follows an error.
pub type BlobStream = BoxStream<'static, Result<Bytes, BlobError>>;

pub use self::cache::{ObjectCache, TrimReport};

/// The object store's own part of a blob store.
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// `bucket/prefix`, for messages.
    name: String,
    prefix: String,
    /// The store that the blobs must belong to; `None` if they are not bound.
    bound: Mutex<Option<StoreIdentity>>,
    /// Whether they did not belong to it at the last look.
    is_away: AtomicBool,
}

/// What is uploaded.
#[derive(Clone)]
pub(super) enum Upload {
    Memory(Bytes),
    /// A local file of this many bytes.
    File(Arc<File>, u64),
    /// A blob of this many bytes, onto itself.
    Object(Arc<Objects>, Digest, u64),
}

/// Larger blobs are uploaded in parts; S3 wants at least 5 MiB in each but the last.
const PART_BYTES: u64 = 8 << 20;
/// S3 takes at most 10,000 parts.
const PARTS_MAX: u64 = 10_000;
/// Parts in memory and under way at once, for one blob.
const PARTS_AT_ONCE: usize = 2;
/// A long range is read in pieces, so that each has its own retries and timeout.
const WINDOW_BYTES: u64 = 16 << 20;

/// A sweep deletes a blob this long after its marker was written, or not at all.
const DELETE_SECONDS_MAX: Duration = Duration::from_secs(10);
/// How long a put waits for a marker to go.
const MARKER_SECONDS_MAX: Duration = Duration::from_secs(30);
const MARKER_POLL: Duration = Duration::from_millis(50);
/// Markers and copies older than this are leftovers of killed processes.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);
/// How often a blob is uploaded, because a sweep removed it or the store was busy with it.
const ROUNDS_MAX: u32 = 4;
/// The pause before a busy store is asked again: this long, then twice, then three times as long.
const BUSY_WAIT: Duration = Duration::from_millis(100);

impl Objects {
    /// Uploads a blob, durably.
    pub(super) async fn persist(
        self: Arc<Objects>,
        digest: Digest,
        upload: Upload,
    ) -> Result<(), BlobError> {
        self.check_identity_if_away().await?;
        for round in 1..=ROUNDS_MAX {
            if self.is_busy(self.upload(&digest, &upload).await, round).await? {
                continue;
            }
            tokio::try_join!(self.wait_for_sweeps(&digest), self.check_identity())?;
            if self.size_bytes(&digest).await? == Some(upload.size_bytes()) {
                return Ok(());
            }
        }
        Err(self.vanished(&digest))
    }

    /// Makes the blob young again, if it exists; returns whether it does. An object's age changes only when it is written, and
    /// it cannot be copied onto itself: it is copied away and back. A blob that is too large to be copied (Amazon's bound is 5
    /// GB) is downloaded and uploaded again.
    pub(super) async fn touch(self: Arc<Objects>, digest: Digest) -> Result<bool, BlobError> {
        self.check_identity_if_away().await?;
        let key = self.blob_key(&digest);
        let aside = self.key(&format!("tmp/{}", unique()));
        match self.store.copy(&key, &aside).await {
            Ok(()) => {}
            Err(Error::NotFound { .. }) => {
                // Nothing is known of a blob in another bucket.
                self.check_identity().await?;
                return Ok(false);
            }
            Err(error) => {
                let error = BlobError::object("copy", self.place(&key), error);
                if error.kind() == Some(FailureKind::Denied) {
                    return Err(error);
                }
                let Some(size_bytes) = self.size_bytes(&digest).await? else { return Ok(false) };
                if size_bytes <= PART_BYTES {
                    return Err(error);
                }
                // If the store refuses for another reason, it says so again.
                tracing::debug!(%error, size_bytes, "a blob is uploaded again");
                let upload = Upload::Object(Arc::clone(&self), digest, size_bytes);
                return self.persist(digest, upload).await.map(|()| true);
            }
        }
        let result = self.touch_from(&aside, &digest).await;
        if let Err(error) = self.store.delete(&aside).await {
            // A sweep will remove it.
            tracing::debug!(%error, "could not delete a copy");
        }
        result.map(|()| true)
    }

    async fn touch_from(&self, aside: &Path, digest: &Digest) -> Result<(), BlobError> {
        let key = self.blob_key(digest);
        for round in 1..=ROUNDS_MAX {
            let copied = self.store.copy(aside, &key).await;
            let copied =
                copied.map_err(|error| BlobError::object("copy to", self.place(&key), error));
            if self.is_busy(copied, round).await? {
                continue;
            }
            tokio::try_join!(self.wait_for_sweeps(digest), self.check_identity())?;
            if self.size_bytes(digest).await?.is_some() {
                return Ok(());
            }
        }
        Err(self.vanished(digest))
    }

    /// Whether a write is worth another round, after a pause: the store refused it because another
    /// request for the same object, a sweep's or another process's, was under way.
    async fn is_busy(&self, written: Result<(), BlobError>, round: u32) -> Result<bool, BlobError> {
        match written {
            Err(error) if error.kind() == Some(FailureKind::Busy) && round < ROUNDS_MAX => {
                tracing::debug!(%error, round, "the object store is busy with a blob");
                tokio::time::sleep(BUSY_WAIT * round).await;
                Ok(true)
            }
            written => written.map(|()| false),
        }
    }

    fn vanished(&self, digest: &Digest) -> BlobError {
        let place = self.place(&self.blob_key(digest));
        let cause = std::io::Error::other("it vanished each time it was uploaded");
        let kind = FailureKind::Unavailable;
        BlobError::Failed { kind, action: "keep", place, cause: cause.into() }
    }

    async fn upload(&self, digest: &Digest, upload: &Upload) -> Result<(), BlobError> {
        self.upload_to(&self.blob_key(digest), upload).await
    }

    async fn upload_to(&self, key: &Path, upload: &Upload) -> Result<(), BlobError> {
        let failed = |error| BlobError::object("write", self.place(key), error);
        let size_bytes = upload.size_bytes();
        if size_bytes <= PART_BYTES {
            let bytes = upload.read(0..size_bytes).await?;
            self.store.put(key, bytes.into()).await.map_err(failed)?;
            return Ok(());
        }
        let part_bytes = part_bytes(size_bytes);
        let parts = self.store.put_multipart(key).await.map_err(failed)?;
        let mut parts = WriteMultipart::new_with_chunk_size(parts, part_bytes as usize);
        let mut start = 0;
        while start < size_bytes {
            let end = size_bytes.min(start + part_bytes);
            let step = async {
                parts.wait_for_capacity(PARTS_AT_ONCE).await.map_err(failed)?;
                upload.read(start..end).await
            };
            match step.await {
                Ok(bytes) => parts.put(bytes),
                Err(error) => {
                    if let Err(error) = parts.abort().await {
                        let place = self.place(key);
                        tracing::warn!(%error, place, "could not abort an upload in parts");
                    }
                    return Err(error);
                }
            }
            start = end;
        }
        parts.finish().await.map_err(failed)?;
        Ok(())
    }

    /// Waits until no sweep is about to delete the blob.
    async fn wait_for_sweeps(&self, digest: &Digest) -> Result<(), BlobError> {
        let begun = Instant::now();
        loop {
            let markers = self.list_under(&format!("doomed/{digest}")).await?;
            if markers.is_empty() {
                return Ok(());
            }
            if begun.elapsed() >= MARKER_SECONDS_MAX {
                for marker in markers {
                    self.delete(&marker.location).await?;
                }
                return Ok(());
            }
            tokio::time::sleep(MARKER_POLL).await;
        }
    }

    async fn list_under(&self, path: &str) -> Result<Vec<ObjectMeta>, BlobError> {
        let key = self.key(path);
        let listed = self.store.list(Some(&key)).try_collect().await;
        listed.map_err(|error| BlobError::object("list", self.place(&key), error))
    }

    async fn delete(&self, key: &Path) -> Result<(), BlobError> {
        match self.store.delete(key).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(BlobError::object("delete", self.place(key), error)),
        }
    }

    /// The blob's metadata in the store; `None` if it does not exist.
    async fn head(&self, digest: &Digest) -> Result<Option<ObjectMeta>, BlobError> {
        let key = self.blob_key(digest);
        match self.store.head(&key).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(BlobError::object("inspect", self.place(&key), error)),
        }
    }

    /// The blob's size in bytes.
    pub(super) async fn size_bytes(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        Ok(self.head(digest).await?.map(|found| found.size))
    }

    /// A range within a blob of that size, not empty.
    pub(super) fn read_range(
        self: Arc<Objects>,
        digest: Digest,
        size_bytes: u64,
        range: Range<u64>,
    ) -> BlobStream {
        let windows = futures_util::stream::unfold(range, |range| async move {
            let end = range.end.min(range.start + WINDOW_BYTES);
            (!range.is_empty()).then_some((range.start..end, end..range.end))
        });
        let read = move |window| Arc::clone(&self).read_window(digest, size_bytes, window);
        windows.then(read).try_flatten().boxed()
    }

    async fn read_window(
        self: Arc<Objects>,
        digest: Digest,
        size_bytes: u64,
        window: Range<u64>,
    ) -> Result<BlobStream, BlobError> {
        let key = self.blob_key(&digest);
        let place = self.place(&key);
        let options =
            GetOptions { range: Some(GetRange::Bounded(window.clone())), ..GetOptions::default() };
        let found = self.store.get_opts(&key, options).await;
        let chunks = found.map_err(|error| BlobError::object("read", &place, error))?.into_stream();
        let state = (chunks, Bytes::new(), window, place);
        Ok(futures_util::stream::try_unfold(state, move |state| async move {
            let (mut chunks, mut chunk, rest, place) = state;
            while chunk.is_empty() {
                let next = chunks.try_next().await;
                match next.map_err(|error| BlobError::object("read", &place, error))? {
                    Some(next) => chunk = next,
                    None if rest.is_empty() => return Ok(None),
                    None => {
                        let (expected, found) = (size_bytes, rest.start);
                        return Err(BlobError::Cut { place, expected, found });
                    }
                }
            }
            // The network delivers larger pieces now and then.
            let piece = chunk.split_to(chunk.len().min(CHUNK_BYTES));
            let rest = rest.start + piece.len() as u64..rest.end;
            Ok(Some((piece, (chunks, chunk, rest, place))))
        })
        .boxed())
    }

    /// The digest of the bytes that are stored as the blob now.
    pub(super) async fn rehash(
        self: Arc<Objects>,
        digest: Digest,
    ) -> Result<Option<Digest>, BlobError> {
        let Some(size_bytes) = self.size_bytes(&digest).await? else { return Ok(None) };
        let mut hasher = Hasher::new();
        if size_bytes > 0 {
            let mut chunks = self.read_range(digest, size_bytes, 0..size_bytes);
            // The chunks come from the network and are small enough to be hashed on this thread.
            while let Some(chunk) = chunks.try_next().await? {
                hasher.update(&chunk);
            }
        }
        Ok(Some(hasher.finish()))
    }

    /// All blobs, about a thousand at a time. Other objects are passed by.
    pub(super) fn list(
        self: Arc<Objects>,
        path: &str,
    ) -> impl futures_util::Stream<Item = Result<Vec<BlobEntry>, BlobError>> + Send + use<> {
        let key = self.key(path);
        let objects = self.store.list(Some(&key));
        objects.try_ready_chunks(1000).map(move |found| match found {
            Ok(found) => Ok(found.iter().filter_map(|found| self.entry(found)).collect()),
            Err(error) => Err(BlobError::object("list", self.place(&key), error.1)),
        })
    }

    fn entry(&self, found: &ObjectMeta) -> Option<BlobEntry> {
        let digest: Digest = found.location.filename()?.parse().ok()?;
        let is_ours = self.blob_key(&digest) == found.location;
        let touched_at = SystemTime::from(found.last_modified);
        is_ours.then_some(BlobEntry { digest, size_bytes: found.size, touched_at })
    }

    /// Deletes a blob that was neither put nor touched since it was listed.
    pub(super) async fn sweep(&self, listed: &BlobEntry) -> Result<SweepAction, BlobError> {
        let begun = Instant::now();
        let marker = self.key(&format!("doomed/{}/{}", listed.digest, unique()));
        let written = self.store.put(&marker, PutPayload::new()).await;
        written.map_err(|error| BlobError::object("write", self.place(&marker), error))?;
        let key = self.blob_key(&listed.digest);
        let found = self.head(&listed.digest).await;
        let is_doomed = match &found {
            // Headers tell whole seconds, listings tell more.
            Ok(Some(found)) => {
                whole_seconds(found.last_modified.into()) == whole_seconds(listed.touched_at)
            }
            _ => false,
        };
        let mut outcome = Ok(SweepAction::Spared);
        if is_doomed {
            let left = DELETE_SECONDS_MAX.saturating_sub(begun.elapsed());
            let Ok(deleted) = tokio::time::timeout(left, self.delete(&key)).await else {
                // The request may still arrive: the marker stays, for puts to wait.
                let place = self.place(&key);
                tracing::warn!(place, "the object store took too long to delete a blob");
                return Ok(SweepAction::Spared);
            };
            outcome = deleted.map(|()| SweepAction::Removed);
        }
        self.delete(&marker).await?;
        found?;
        outcome
    }

    /// Deletes, or in a dry run counts, markers and copies that killed processes left behind.
    pub(super) async fn remove_leftovers(
        &self,
        grace: Duration,
        now: SystemTime,
        is_dry_run: bool,
    ) -> Result<u64, BlobError> {
        let mut count = 0;
        for path in ["doomed", "tmp"] {
            for found in self.list_under(path).await? {
                if is_young(found.last_modified.into(), now, grace.max(LEFTOVER_AGE)) {
                    continue;
                }
                if !is_dry_run {
                    self.delete(&found.location).await?;
                }
                count += 1;
            }
        }
        Ok(count)
    }

    fn blob_key(&self, digest: &Digest) -> Path {
        let [first, second, ..] = digest.as_bytes();
        self.key(&format!("sha256/{first:02x}/{second:02x}/{digest}"))
    }

    /// The location of a blob, for messages.
    pub(super) fn place_of(&self, digest: &Digest) -> String {
        self.place(&self.blob_key(digest))
    }

    fn key(&self, path: &str) -> Path {
        Path::from(format!("{}{path}", self.prefix))
    }

    fn place(&self, key: &Path) -> String {
        format!("{}{key}", self.name)
    }
}

impl Upload {
    fn size_bytes(&self) -> u64 {
        match self {
            Upload::Memory(bytes) => bytes.len() as u64,
            Upload::File(_, size_bytes) | Upload::Object(_, _, size_bytes) => *size_bytes,
        }
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        match self {
            // The range is within a slice in memory, so it fits usize.
            Upload::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Upload::Object(objects, digest, _) => {
                let key = objects.blob_key(digest);
                let read = objects.store.get_range(&key, range).await;
                read.map_err(|error| BlobError::object("read", objects.place(&key), error))
            }
            Upload::File(file, _) => {
                let file = Arc::clone(file);
                blocking(move || {
                    let mut buffer = vec![0; (range.end - range.start) as usize];
                    for (index, chunk) in buffer.chunks_mut(CHUNK_BYTES).enumerate() {
                        let offset = range.start + (index * CHUNK_BYTES) as u64;
                        let read = file.read_exact_at(chunk, offset);
                        read.map_err(|error| BlobError::io("read", SPOOL.as_ref(), error))?;
                    }
                    Ok(buffer.into())
                })
                .await
            }
        }
    }
}

/// The size of each part but the last, in bytes, so that at most [`PARTS_MAX`] are needed.
fn part_bytes(size_bytes: u64) -> u64 {
    PART_BYTES.max(size_bytes.div_ceil(PARTS_MAX).next_multiple_of(1 << 20))
}

fn whole_seconds(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

/// A name that no other process makes: two words from the keys of the standard library's hash maps.
fn unique() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(size_bytes: u64, part: u64) {
        assert_eq!(part_bytes(size_bytes), part, "{size_bytes}");
        assert!(size_bytes.div_ceil(part) <= PARTS_MAX);
    }

    #[test]
    fn parts_grow_with_the_blob() {
        check(PART_BYTES + 1, PART_BYTES);
        check(PART_BYTES * PARTS_MAX, PART_BYTES);
        check(PART_BYTES * PARTS_MAX + 1, PART_BYTES + (1 << 20));
        check(5 << 40, 525 << 20);
    }

    #[test]
    fn names_differ() {
        assert_ne!(unique(), unique());
    }
}
