//! Follows the store: serials -> records -> the next state of every surface -> publish.
//!
//! The first read loads everything; each later one applies the commits since then, of this process or another. If the store
//! cannot be read, the published state stays; a log line, a metric and [`LiveStore::trouble`](stored::LiveStore::trouble) tell
//! of it. If the store lacks commits that this process has read, this lasts until it has them again, or until a restart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use state::stored::{self, Stored};
use store::records::Rewound;
use store::{Follower, ReadError};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::highest_serial;
use crate::app::App;
use crate::published::changes::of_store::FollowedStore;

/// Shortest and longest wait after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How often the store is read although the records, which look at it more often, tell of nothing.
const READ_INTERVAL: Duration = Duration::from_secs(60);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let live_store = &app.live_store;
    let mut first = Stored::of_server(&app.config);
    first.index = first.index.with_advisories(app.python.advisories.live.clone());
    let first = FollowedStore::new(first, app.config.changes.history_max);
    let mut follower = Follower::new(app.store.records.clone(), first);
    let mut is_first = true;
    let mut retry = RETRY.0;
    let mut indexing: Option<JoinHandle<article::SearchIndex>> = None;
    let mut rewound: Option<Rewound> = None;
    loop {
        let started_at = Instant::now();
        let before = follower.state().stored.serial;
        // Boxed: it is large, and would be copied at each look.
        let looking = Box::pin(follower.catch_up());
        let Some(look) = shutdown.run_until_cancelled(looking).await else { return };
        match look {
            Ok(news) => {
                stored::log(&news.troubles);
                let serial = follower.state().stored.serial;
                retry = RETRY.0;
                rewound = None;
                app.metrics.store_is_rewound.set(0);
                if live_store.set_trouble(None) {
                    tracing::info!("the store can be read again");
                }
                if is_first {
                    let seconds = started_at.elapsed().as_secs_f64();
                    let records = news.records;
                    tracing::info!(serial = serial.0, records, seconds, "loaded the store");
                }
                if is_first || serial > before {
                    app.metrics.store_serial.set(i64::try_from(serial.0).unwrap_or(i64::MAX));
                    // Called before publishing, so that a client that learns of a change finds it in force; and after it,
                    // because requests may have read the old state in between.
                    app.python.mirrors.follow(&follower.state().stored.index);
                    live_store.publish(follower.state().stored.clone());
                    app.python.mirrors.follow(&follower.state().stored.index);
                    app.python.downloads.forget(follower.state_mut().take_gone());
                    follower.state_mut().tell(&app.changes);
                }
                live_store.looked(started_at);
                is_first = false;
                if follower.state().stored.articles.wants_index() && indexing.is_none() {
                    let articles = follower.state().stored.articles.clone();
                    indexing = Some(tokio::task::spawn_blocking(move || articles.build_index()));
                }
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    newer = app.store.records.wait(serial) => {
                        if newer.is_none() {
                            return;
                        }
                    }
                    // It may be lost.
                    () = app.store.records.alarmed() => {}
                    () = tokio::time::sleep(READ_INTERVAL) => {}
                    index = finished(&mut indexing) => {
                        indexing = None;
                        match index {
                            Ok(index) => {
                                let current = &mut follower.state_mut().stored;
                                current.articles = current.articles.with_index(index);
                                live_store.publish(current.clone());
                            }
                            Err(error) => tracing::error!(%error, "the articles cannot be indexed"),
                        }
                    }
                }
            }
            Err(error) => {
                app.metrics.store_read_failures.inc();
                // The server must not go on as if nothing were damaged: its operator must know.
                if is_first
                    && let ReadError::Damaged { .. } | ReadError::Rewound(Rewound::Damaged(_)) =
                        error
                {
                    let database = app.config.database();
                    return app.health.fail(format!(
                        "the records in {database} cannot be loaded: {error}. `larder verify` looks for what is \
                         damaged; a backup can be restored"
                    ));
                }
                // After an outage the database may have lost its latest commits; that is logged as well. A further outage does
                // not bring them back.
                let was_rewound = rewound.is_some();
                if let ReadError::Rewound(found) = error {
                    rewound = Some(found);
                }
                let is_rewound = rewound.is_some();
                if is_rewound && !was_rewound {
                    // The next start must notice that something is missing, whatever state the database is in then. The note
                    // comes before the log line: an operator who reads that line may restart at once.
                    highest_serial::note_up_to(&app, before).await;
                }
                app.metrics.store_is_rewound.set(is_rewound.into());
                let until = match rewound {
                    None => "",
                    Some(rewound) if rewound.may_end() => {
                        "; nothing is written until the right database is back, or larder is restarted"
                    }
                    Some(_) => "; nothing is written until larder is restarted",
                };
                let is_news = live_store.set_trouble(Some(format!("{error}{until}")));
                if is_rewound && !was_rewound {
                    tracing::error!(
                        %error,
                        "the store lacks commits that were read from it, or is damaged; the last state is served{until}"
                    );
                } else if is_news {
                    tracing::error!(%error, "the store cannot be read; the last state is served");
                }
                if shutdown.run_until_cancelled(tokio::time::sleep(retry)).await.is_none() {
                    return;
                }
                retry = (retry * 2).min(RETRY.1);
            }
        }
    }
}

/// Waits for the index that is being built; forever if there is none.
async fn finished(
    indexing: &mut Option<JoinHandle<article::SearchIndex>>,
) -> Result<article::SearchIndex, JoinError> {
    match indexing {
        Some(indexing) => indexing.await,
        None => std::future::pending().await,
    }
}
