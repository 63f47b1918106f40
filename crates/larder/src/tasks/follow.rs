//! Follows the primary, if this server is a copy of one: its records, and its blobs where all are wanted.
//!
//! [`following::follow`] writes records into the store, and the tail takes them from there like any others. If the primary has
//! another history than before, a new copy is made beside the records while these are served; then the server starts again with
//! the new one.

use std::sync::Arc;

use config::FollowBlobs;
use following::{Ended, Pace, follow, take_copy};
use store::DatabaseLocation;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::app::following::Following;

/// Runs until `shutdown`; at once back if this server follows nobody.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let Some(following) = &app.following else { return };
    let both = async {
        tokio::join!(follow_records(&app, following), follow_blobs(&app));
    };
    shutdown.run_until_cancelled(both).await;
}

async fn follow_records(app: &App, following: &Following) {
    let Following { primary, link, starts_over, .. } = following;
    let DatabaseLocation::Sqlite(database) = app.config.database() else { return };
    let data_dir = app.config.data_dir.clone();
    // The state that the first read publishes has the name of the store.
    app.live_store.wait_until_loaded().await;
    let identity = app.live_store.snapshot().and_then(|stored| stored.identity.clone());
    let identity = identity.and_then(|name| name.to_str().ok().map(str::to_owned));
    let place = (data_dir.clone(), identity.unwrap_or_default());
    let pace = Pace::default();
    let why = match follow(&app.store.records, primary, link, place, pace).await {
        Ok(Ended::StartOver(why)) => why,
        Err(error) => return app.fail(format!("the primary cannot be followed: {error}")),
    };
    tracing::error!(
        %why,
        "the primary has another history than before: everything is read anew, and the old records are served meanwhile"
    );
    link.start_over(why);
    loop {
        match take_copy(primary, link, &data_dir, &database, pace).await {
            Ok(copy) => {
                tracing::info!(
                    serial = copy.serial.0,
                    "there is a new copy of the primary: the server starts again with it"
                );
                return starts_over.cancel();
            }
            Err(error) => {
                tracing::error!("no new copy can be made: {error:#}");
                tokio::time::sleep(pace.max).await;
            }
        }
    }
}

/// Fetches every blob that a record names, if all are wanted: those of each state, one after the other.
async fn follow_blobs(app: &App) {
    if app.config.follow_blobs != FollowBlobs::All {
        return;
    }
    let mut published = app.live_store.published();
    let pace = Pace::default();
    loop {
        let Ok(serial) = published.wait_for(|serial| serial.0 > 0).await.map(|serial| *serial)
        else {
            return;
        };
        let has_all = fetch_all(app).await;
        if !has_all {
            tokio::time::sleep(pace.max).await;
        } else if published.wait_for(|published| *published > serial).await.is_err() {
            return;
        }
    }
}

/// Fetches what is missing of the published state; whether all of it is here.
async fn fetch_all(app: &App) -> bool {
    let Some(stored) = app.live_store.snapshot_full() else { return false };
    let digests = tokio::task::spawn_blocking(move || {
        let mut digests: Vec<_> = stored.records().flat_map(|record| record.blobs).collect();
        digests.sort_unstable();
        digests.dedup();
        digests
    });
    let Ok(digests) = digests.await else { return false };
    let mut missing = 0_u64;
    for digest in digests {
        match app.store.blobs.bring(digest).await {
            Ok(true) => {}
            Ok(false) => missing += 1,
            Err(error) => {
                tracing::debug!(%digest, %error, "a blob cannot be fetched yet");
                return false;
            }
        }
    }
    if missing > 0 {
        tracing::warn!(missing, "the primary lacks blobs that its records name");
    }
    true
}
