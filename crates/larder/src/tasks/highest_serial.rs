//! Writes the last serial beside the blobs, so that a start recognises an older copy of the records.
//!
//! the serial that is published -> [`BlobStore::note_serial`](store::BlobStore::note_serial): every few minutes if it has
//! grown, at the end of a server, and when the database is found to lack something. No write waits for it.

use std::sync::Arc;
use std::time::Duration;

use record::Serial;
use tokio_util::sync::CancellationToken;

use crate::app::App;

const INTERVAL: Duration = Duration::from_secs(300);

/// The timeout of a note: an object store that does not answer must not hold up the server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut noted = Serial::ZERO;
    while shutdown.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        let serial = app.live_store.snapshot().map_or(Serial::ZERO, |stored| stored.serial);
        if serial > noted {
            note(&app).await;
            noted = serial;
        }
    }
}

/// Writes the published serial beside the blobs, unless the store is in trouble.
pub async fn note(app: &App) {
    if app.live_store.trouble().is_some() {
        return;
    }
    if let Some(stored) = app.live_store.snapshot_full() {
        note_up_to(app, stored.serial).await;
    }
}

/// Writes `serial`, that of the last commit, beside the blobs.
pub(crate) async fn note_up_to(app: &App, serial: Serial) {
    if serial == Serial::ZERO {
        return;
    }
    match tokio::time::timeout(TIMEOUT, app.store.blobs.note_serial(serial)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "the last serial cannot be written beside the blobs");
        }
        Err(_) => tracing::warn!("the last serial was not written beside the blobs in time"),
    }
}
