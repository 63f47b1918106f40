//! Small blobs in memory, as they are: release files and metadata that whole fleets ask for at once.
//!
//! digest -> (memory, else the blob store, once however many ask) -> bytes. Larger ones are streamed from the
//! store, which has them in the system's own cache.

use bytes::Bytes;
use record::Digest;
use store::{BlobError, BlobStore};

/// Larger blobs are not kept.
const BLOB_BYTES_MAX: u64 = 256 << 10;

/// What one entry costs besides its bytes, roughly.
const ENTRY_BYTES: u64 = 256;

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<Digest, Bytes> for Weight {
    fn weight(&self, _: &Digest, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + ENTRY_BYTES
    }
}

/// The small blobs that are in memory.
pub struct SmallBlobs {
    cache: quick_cache::sync::Cache<Digest, Bytes, Weight>,
    blob_bytes_max: u64,
}

impl SmallBlobs {
    /// None yet, and at most `memory_bytes_max` ever.
    pub fn new(memory_bytes_max: u64) -> SmallBlobs {
        let expected = usize::try_from(memory_bytes_max / 16_384).unwrap_or(usize::MAX);
        let cache = quick_cache::sync::Cache::with_weighter(
            expected.clamp(16, 1 << 20),
            memory_bytes_max,
            Weight,
        );
        SmallBlobs { cache, blob_bytes_max: BLOB_BYTES_MAX.min(memory_bytes_max / 64) }
    }

    /// The blob, if it is in memory.
    pub fn at_hand(&self, digest: &Digest) -> Option<Bytes> {
        self.cache.get(digest)
    }

    /// The blob, if it is of a size that is kept; `None` if it is larger, or not there.
    ///
    /// # Errors
    /// Those of reading it.
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
            // The size that was given is what somebody said.
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
