//! Reads every blob that a record names once in `store.scrub_seconds`, and compares it with its digest.
//!
//! a part of the digests -> those that records name -> each read, at a steady and bounded pace -> what is missing or damaged is
//! in [`BlobStore::damaged`](store::BlobStore::damaged), and so in a metric and in `/readyz?verbose`. Disks lose bits silently:
//! without this, damage in a blob that is rarely read would be found only when it is needed. Each round begins at another
//! place, so that a process that is often restarted also reaches every blob.

use std::sync::Arc;
use std::time::Duration;

use record::Digest;
use source::schedule::Jitter;
use state::named_blobs;
use store::blobs::BlobVerdict;

use crate::app::App;

/// Digests are divided by their first byte: only the names of one part are in memory.
const PARTS: u32 = 256;

/// No faster than this, however much there is: in bytes a second.
const BYTES_PER_SECOND_MAX: u64 = 16 << 20;

/// Before anything is read, so that a start is over.
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How often blobs that were found missing or damaged are looked at again: the fault may have been an outage's.
const AGAIN: Duration = Duration::from_secs(30);

/// Blobs that are compared at a time.
const AGAIN_MAX: usize = 64;

/// Looks for damage.
pub async fn run(app: Arc<App>) {
    tokio::join!(look_again(&app), scrub_all(&app));
}

/// Looks again at blobs that were found missing or damaged, from time to time.
async fn look_again(app: &App) {
    let mut done = 0;
    loop {
        tokio::time::sleep(AGAIN).await;
        let damaged = app.store.blobs.damaged();
        // Each has its turn, however many there are.
        let begin = if done < damaged.len() { done } else { 0 };
        let some: Vec<_> = damaged.into_iter().skip(begin).take(AGAIN_MAX).collect();
        done = begin + some.len();
        for (digest, _) in some {
            let size_bytes = verify(app, digest).await;
            tokio::time::sleep(least(size_bytes)).await;
        }
    }
}

/// Reads all blobs, again and again; returns at once if it is switched off.
async fn scrub_all(app: &App) {
    let period = app.config.store.scrub;
    if period.is_zero() {
        return;
    }
    let first = (Jitter::from_system().chance() * f64::from(PARTS)) as u32;
    tokio::time::sleep(period.min(FIRST_PAUSE_MAX)).await;
    for part in (first..).map(|part| (part % PARTS) as u8) {
        scrub(app, part, period / PARTS).await;
    }
}

/// The time that reading this many bytes takes at least, so that the disk is left to others.
fn least(size_bytes: u64) -> Duration {
    Duration::from_millis(size_bytes.saturating_mul(1000) / BYTES_PER_SECOND_MAX)
}

/// Reads the blobs whose digest begins with `part`, within `period` if there are not too many.
async fn scrub(app: &App, part: u8, period: Duration) {
    let digests = match named_blobs::named_in_part(&app.store.records, part).await {
        Ok(digests) => digests,
        Err(error) => {
            tracing::debug!(%error, "the digests of named blobs cannot be read");
            return tokio::time::sleep(period).await;
        }
    };
    if digests.is_empty() {
        return tokio::time::sleep(period).await;
    }
    let pause = period / u32::try_from(digests.len()).unwrap_or(u32::MAX);
    for digest in digests {
        let size_bytes = verify(app, digest).await;
        tokio::time::sleep(pause.max(least(size_bytes))).await;
    }
}

/// Compares one blob with its digest; returns its size in bytes, zero if that is unknown.
async fn verify(app: &App, digest: Digest) -> u64 {
    let blobs = &app.store.blobs;
    match blobs.verify(digest).await {
        // It comes when somebody reads it.
        Ok(BlobVerdict::Missing) if blobs.has_origin() => blobs.note(digest, BlobVerdict::Whole),
        Ok(BlobVerdict::Missing) => {
            // Its record may have been deleted since, and a sweep been by.
            match named_blobs::is_named(&app.store.records, digest).await {
                Ok(true) => blobs.note(digest, BlobVerdict::Missing),
                // Nobody misses it any more.
                Ok(false) => blobs.note(digest, BlobVerdict::Whole),
                Err(error) => {
                    tracing::debug!(%error, "whether a record names a blob cannot be read")
                }
            }
        }
        Ok(BlobVerdict::Whole | BlobVerdict::Damaged { .. }) => app.metrics.blobs_verified.inc(),
        // The blob is gone or unreachable: its next reader logs that.
        Err(error) => tracing::debug!(%error, "a blob cannot be verified"),
    }
    blobs.size_bytes(digest).await.ok().flatten().unwrap_or(0)
}
