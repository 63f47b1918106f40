//! Notes what changes from one snapshot of the AUR to the next: who and when, and the feed.
//!
//! a published snapshot -> [`AurHistory::take`] -> the next one that was published meanwhile, if any. A refresh does not
//! wait for it. A history that cannot be written changes nothing but a log line and the answers about it.

use std::sync::Arc;
use std::time::Duration;

use state::side_files::{AUR_HISTORY_FILES, AUR_HISTORY_WHAT};
use tokio_util::sync::CancellationToken;

use super::memory;
use crate::app::App;
use crate::app::side_files;
use crate::published::changes::FeedSurface;
use crate::published::changes::aur_history::{self, AurHistory};

/// The pause after a failure, unless another snapshot is published earlier.
const RETRY: Duration = Duration::from_secs(30);

/// The time in which dropped connections are closed.
const CLOSED_WITHIN: Duration = Duration::from_millis(200);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut published = app.changes.aur.subscribe();
    let mut history = None;
    let mut has_failed = false;
    // Not twice without success between: that would not help.
    let mut may_begin_anew = true;
    loop {
        let next = published.borrow_and_update().clone();
        if let Some(next) = next {
            // All packages are looked at, or those of a large segment that is let go of.
            let is_large = history.is_none() || next.snapshot.changed_count() == 0;
            let noting = note(&app, &mut history, next);
            let Some(outcome) = shutdown.run_until_cancelled(noting).await else { break };
            if is_large {
                memory::give_back();
            }
            match outcome {
                Ok(()) => {
                    may_begin_anew = true;
                    if has_failed {
                        tracing::info!("the history of the AUR's packages is written again");
                    }
                    has_failed = false;
                    app.changes.aur_failing.send_if_modified(|failing| failing.take().is_some());
                }
                Err(error) if may_begin_anew && aur_history::is_damage(&error) => {
                    may_begin_anew = false;
                    if let Some(history) = history.take() {
                        history.records().close().await;
                    }
                    begin_anew(&app, &error).await;
                    continue;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    app.changes.aur_failing.send_replace(Some(error.clone()));
                    if !has_failed {
                        tracing::error!(
                            error,
                            "the history of the AUR's packages cannot be written"
                        );
                    }
                    has_failed = true;
                }
            }
        }
        let retry = async {
            match has_failed {
                true => tokio::time::sleep(RETRY).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            changed = published.changed() => if changed.is_err() { break },
            () = retry => {}
        }
    }
    if let Some(history) = history {
        history.records().close().await;
    }
}

/// Sets the history's files aside because of this error. They are made anew as if they had been missing.
async fn begin_anew(app: &App, error: &anyhow::Error) {
    app.changes.aur_records.send_replace(None);
    // A connection that was dropped is closed by a thread of its own. The last one to close removes the log at its path, which
    // must not be that of the new file.
    tokio::time::sleep(CLOSED_WITHIN).await;
    let data_dir = &app.config.data_dir;
    let paths = AUR_HISTORY_FILES.map(|name| data_dir.join(name));
    let done = side_files::set_aside_database(paths).await;
    let text = format!("it is of no use ({error:#}): {done}");
    app.health.side_files.note(AUR_HISTORY_WHAT, text);
}

async fn note(
    app: &App,
    history: &mut Option<AurHistory>,
    next: Arc<crate::published::aur_published::AurPublished>,
) -> anyhow::Result<()> {
    let open = match history {
        Some(open) => open,
        None => {
            let opening = AurHistory::open(&app.config.data_dir, app.config.changes.history_max);
            let open = history.insert(Box::pin(opening).await?);
            app.changes.aur_records.send_replace(Some(open.records().clone()));
            open
        }
    };
    let noted = Arc::downgrade(&next);
    open.take(next, app.changes.feed(FeedSurface::Aur)).await?;
    app.changes.aur_noted.send_replace(noted);
    Ok(())
}
