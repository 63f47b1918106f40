//! [`SmallBlobs`]: a cache of small blobs as they are: release files and metadata that whole fleets request at once.
//!
//! digest -> (memory, else the blob store, once for all concurrent requests) -> bytes. Larger blobs are streamed from the store
//! and are in the system's cache. Such files are compressed already, so an entry is only bytes, unlike in
//! [`super::contents`].

use bytes::Bytes;
use record::Digest;
use store::{BlobError, BlobStore};

/// Larger blobs are not cached.
const BLOB_BYTES_MAX: u64 = 256 << 10;

/// Approximate cost of an entry besides its bytes.
const ENTRY_BYTES: u64 = 256;

#[derive(Clone)]
struct BlobWeight;

impl quick_cache::Weighter<Digest, Bytes> for BlobWeight {
    fn weight(&self, _: &Digest, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + ENTRY_BYTES
    }
}

/// The cache of small blobs.
pub struct SmallBlobs {
    cache: quick_cache::sync::Cache<Digest, Bytes, BlobWeight>,
    blob_bytes_max: u64,
}

impl SmallBlobs {
    /// An empty cache that takes at most `memory_bytes_max`.
    pub fn new(memory_bytes_max: u64) -> SmallBlobs {
        let expected = usize::try_from(memory_bytes_max / 16_384).unwrap_or(usize::MAX);
        let cache = quick_cache::sync::Cache::with_weighter(
            expected.clamp(16, 1 << 20),
            memory_bytes_max,
            BlobWeight,
        );
        SmallBlobs { cache, blob_bytes_max: BLOB_BYTES_MAX.min(memory_bytes_max / 64) }
    }

    /// The blob, if it is in the cache.
    pub fn at_hand(&self, digest: &Digest) -> Option<Bytes> {
        self.cache.get(digest)
    }

    /// The blob, if its size is small enough to be cached; `None` if it is larger or does not exist.
    ///
    /// # Errors
    /// Errors of reading it.
    pub async fn load(
        &self,
        blobs: &BlobStore,
        digest: &Digest,
        size_bytes: u64,
    ) -> Result<Option<Bytes>, BlobError> {
        if size_bytes > self.blob_bytes_max {
            return Ok(None);
        }
        if let Some(bytes) = self.cache.get(digest) {
            return Ok(Some(bytes));
        }
        let reading = async {
            let bytes = blobs.bytes(*digest, self.blob_bytes_max).await;
            // `size_bytes` is what a record says, so the blob may be larger after all.
            let is_large = matches!(bytes, Err(BlobError::TooLarge { .. }));
            if is_large { Err(None) } else { bytes.map_err(Some)?.ok_or(None) }
        };
        match self.cache.get_or_insert_async(digest, reading).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }
}
