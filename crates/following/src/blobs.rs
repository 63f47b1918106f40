//! [`BlobSource`]: takes blobs that a follower lacks from its primary, by digest.
//!
//! a missing blob -> one download, whoever waits for it -> a spool -> compared with the digest -> the blob, for good. Few downloads
//! run at once; others wait. A download that has begun goes on if nobody waits for it any more: a file that takes longer than a
//! client's patience would never come otherwise.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
pub struct BlobSource(Arc<SharedDownloads>);

struct SharedDownloads {
    primary: Primary,
    turns: Arc<Semaphore>,
    flights: Mutex<HashMap<Digest, Weak<Flight>>>,
    counted: Box<dyn Fn(u64) + Send + Sync>,
}

/// The outcome of a download, for those who wait for it. The first of them holds the lock until there is one; if it goes away
/// before the download has begun, the next is the first.
type Flight = tokio::sync::Mutex<Option<Result<bool, DownloadError>>>;

/// Why a download failed.
#[derive(Clone)]
struct DownloadError {
    kind: FailureKind,
    text: String,
}

impl DownloadError {
    fn of(error: &BlobError) -> DownloadError {
        match error {
            BlobError::Failed { kind, cause, .. } => {
                DownloadError { kind: *kind, text: cause.to_string() }
            }
            error => DownloadError { kind: FailureKind::Other, text: error.to_string() },
        }
    }
}

impl BlobSource {
    /// Takes blobs from there; `counted` gets the size of each.
    pub fn new(primary: Primary, counted: impl Fn(u64) + Send + Sync + 'static) -> BlobSource {
        BlobSource(Arc::new(SharedDownloads {
            primary,
            turns: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            flights: Mutex::default(),
            counted: Box::new(counted),
        }))
    }

    async fn fetch_once(&self, blobs: &BlobStore, digest: Digest) -> Result<bool, BlobError> {
        let flight = self.0.flight(digest);
        let mut landing = flight.lock_owned().await;
        if let Some(outcome) = &*landing {
            return outcome.clone().map_err(|trouble| self.0.failed(trouble.kind, trouble.text));
        }
        if blobs.has(digest).await? {
            return Ok(true);
        }
        let Ok(turn) = self.0.turns.clone().acquire_owned().await else { return Ok(false) };
        // It goes on without the client that has asked: others may wait for it already, or ask again soon.
        let (shared, blobs) = (self.0.clone(), blobs.clone());
        let download = tokio::spawn(async move {
            let outcome = shared.download(&blobs, digest).await;
            drop(turn);
            // The next request for this blob starts a new download.
            shared.lock().remove(&digest);
            *landing = Some(outcome.as_ref().copied().map_err(DownloadError::of));
            outcome
        });
        match download.await {
            Ok(outcome) => outcome,
            Err(error) => Err(self.0.failed(FailureKind::Other, error)),
        }
    }
}

impl SharedDownloads {
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Weak<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flight(&self, digest: Digest) -> Arc<Flight> {
        let mut flights = self.lock();
        flights.retain(|_, flight| flight.strong_count() > 0);
        if let Some(flight) = flights.get(&digest).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::<Flight>::default();
        flights.insert(digest, Arc::downgrade(&flight));
        flight
    }

    async fn download(&self, blobs: &BlobStore, digest: Digest) -> Result<bool, BlobError> {
        let failed = |error: PrimaryError| {
            tracing::debug!(%digest, %error, "a blob cannot be fetched");
            self.failed(FailureKind::Unavailable, error)
        };
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

    fn failed(
        &self,
        kind: FailureKind,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> BlobError {
        let (place, cause) = (self.primary.url().to_owned(), cause.into());
        BlobError::Failed { kind, action: "fetch a blob from", place, cause }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use store::BlobLocation;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;

    use super::*;
    use crate::primary::Settings;
    use crate::testing::until;

    /// A blob whose second half is sent once somebody says so.
    async fn primary(listener: TcpListener, begun: Arc<AtomicU64>, goes_on: Arc<Notify>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await;
            begun.fetch_add(1, SeqCst);
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhalf";
            let _ = stream.write_all(head.as_bytes()).await;
            goes_on.notified().await;
            let _ = stream.write_all(b"half").await;
        }
    }

    #[tokio::test]
    async fn a_download_outlives_who_has_asked_for_it_and_serves_all_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, "larder_x").expect("a file");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (begun, goes_on) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        tokio::spawn(primary(listener, begun.clone(), goes_on.clone()));
        let location = BlobLocation::Directory(directory.path().join("blobs"));
        let blobs = BlobStore::open(&location, &directory.path().join("spool")).await;
        let blobs = blobs.expect("opened");
        let counted = Arc::new(AtomicU64::new(0));
        let source =
            BlobSource::new(Primary::new(Settings { url, token_file }).expect("a client"), {
                let counted = counted.clone();
                move |size_bytes| {
                    counted.fetch_add(size_bytes, SeqCst);
                }
            });
        let source = Arc::new(source);
        let ask = |digest| {
            let (source, blobs) = (source.clone(), blobs.clone());
            tokio::spawn(async move { source.fetch(&blobs, digest).await })
        };

        let digest = Digest::of(b"halfhalf");
        let first = ask(digest);
        until(|| begun.load(SeqCst) == 1).await;
        let others = [ask(digest), ask(digest)];
        first.abort();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        goes_on.notify_one();
        for other in others {
            assert!(other.await.expect("no panic").expect("a blob"));
        }
        assert!(blobs.has(digest).await.expect("a disk"));
        assert_eq!((begun.load(SeqCst), counted.load(SeqCst)), (1, 8));

        // A failure is told to all who wait; a later request starts a new download.
        let other = Digest::of(b"other bytes");
        for round in 2..4 {
            let asking = [ask(other), ask(other), ask(other)];
            until(|| begun.load(SeqCst) == round).await;
            goes_on.notify_one();
            for asked in asking {
                let error = asked.await.expect("no panic").expect_err("other bytes").to_string();
                assert!(error.contains("have the digest"), "{error}");
            }
        }
        assert_eq!(begun.load(SeqCst), 3);
    }
}
