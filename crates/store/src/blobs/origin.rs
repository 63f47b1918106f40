//! [`Origin`]: where blobs come from that are named by records and not here, as on a follower.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use record::Digest;

use super::BlobStore;
use super::error::BlobError;

/// Another place that has the same blobs.
pub trait Origin: Send + Sync {
    /// Stores the blob in `blobs`, compared with its digest; whether it is there now.
    fn fetch<'a>(
        &'a self,
        blobs: &'a BlobStore,
        digest: Digest,
    ) -> BoxFuture<'a, Result<bool, BlobError>>;
}

impl BlobStore {
    /// From now on, for all clones, a blob that is to be read and is not here comes from there. Only the first call counts.
    pub fn fetch_from(&self, origin: Arc<dyn Origin>) {
        let _ = self.origin.set(origin);
    }

    /// Whether blobs that are not here come from elsewhere when somebody reads them: a missing one is no damage.
    pub fn has_origin(&self) -> bool {
        self.origin.get().is_some()
    }

    /// Whether the blob is here, and was not found damaged.
    ///
    /// # Errors
    /// The error of the disk or the object store.
    pub async fn has(&self, digest: Digest) -> Result<bool, BlobError> {
        Ok(!self.damage.is_damaged(&digest) && self.contains(digest).await?)
    }

    /// Makes sure that the blob is here, wherever it comes from; whether it is.
    ///
    /// # Errors
    /// Those of the disk, the object store or the origin.
    pub async fn bring(&self, digest: Digest) -> Result<bool, BlobError> {
        if self.has(digest).await? {
            return Ok(true);
        }
        match self.origin.get() {
            Some(origin) => origin.fetch(self, digest).await,
            None => Ok(false),
        }
    }
}
