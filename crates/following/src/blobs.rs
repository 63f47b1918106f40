//! [`BlobSource`]: takes blobs that a follower lacks from its primary, by digest.
//!
//! a missing blob -> one download, whoever waits for it -> a spool -> compared with the digest -> the blob, for good. Few downloads
//! run at once; others wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use record::Digest;
use store::blobs::{FailureKind, Origin};
use store::{BlobError, BlobStore};
use tokio::sync::Semaphore;

use crate::primary::{Primary, PrimaryError, unreachable};

/// Downloads at once.
const AT_ONCE_MAX: usize = 8;

/// The largest blob if the primary does not say how large it is.
const BYTES_MAX: u64 = 1 << 40;

/// The primary's blobs.
pub struct BlobSource {
    primary: Primary,
    turns: Semaphore,
    /// A lock for each blob that is being fetched: whoever comes second waits for the first.
    flights: Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
    counted: Box<dyn Fn(u64) + Send + Sync>,
}

impl BlobSource {
    /// Takes blobs from there; `counted` gets the size of each.
    pub fn new(primary: Primary, counted: impl Fn(u64) + Send + Sync + 'static) -> BlobSource {
        BlobSource {
            primary,
            turns: Semaphore::new(AT_ONCE_MAX),
            flights: Mutex::default(),
            counted: Box::new(counted),
        }
    }

    fn flight(&self, digest: Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| flight.strong_count() > 0);
        if let Some(flight) = flights.get(&digest).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::<tokio::sync::Mutex<()>>::default();
        flights.insert(digest, Arc::downgrade(&flight));
        flight
    }

    async fn fetch_once(&self, blobs: &BlobStore, digest: Digest) -> Result<bool, BlobError> {
        let flight = self.flight(digest);
        let _alone = flight.lock().await;
        if blobs.has(digest).await? {
            return Ok(true);
        }
        let Ok(_turn) = self.turns.acquire().await else { return Ok(false) };
        let failed = |error: PrimaryError| self.failed(digest, error);
        let Some(response) = self.primary.blob(digest).await.map_err(failed)? else {
            return Ok(false);
        };
        let mut upload = blobs.begin(response.content_length().unwrap_or(BYTES_MAX));
        let mut bytes = response.bytes_stream();
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|error| failed(unreachable(self.primary.url(), &error)))?;
            upload.write(piece).await?;
        }
        let spooled = upload.stage().await?;
        if spooled.digest != digest {
            let flaw = format!("the bytes of the blob {digest} have the digest {}", spooled.digest);
            return Err(failed(self.primary.flawed(&flaw)));
        }
        let blob = spooled.persist().await?;
        (self.counted)(blob.size_bytes);
        Ok(true)
    }

    fn failed(&self, digest: Digest, error: PrimaryError) -> BlobError {
        tracing::debug!(%digest, %error, "a blob cannot be fetched");
        BlobError::Failed {
            kind: FailureKind::Unavailable,
            action: "fetch a blob from",
            place: self.primary.url().to_owned(),
            cause: error.into(),
        }
    }
}

impl Origin for BlobSource {
    fn fetch<'a>(
        &'a self,
        blobs: &'a BlobStore,
        digest: Digest,
    ) -> BoxFuture<'a, Result<bool, BlobError>> {
        self.fetch_once(blobs, digest).boxed()
    }
}
