//! Notes what changes from one snapshot of the AUR to the next: who and when, and the feed.
//!
//! a published snapshot -> [`AurHistory::take`] -> the next one that was published meanwhile, if any. A refresh does not
//! wait for it. A history that cannot be written changes nothing but a log line and the answers about it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::changes::Followed;
use crate::changes::aur_history::AurHistory;
use crate::memory;

/// The pause after a failure, unless another snapshot is published earlier.
const RETRY: Duration = Duration::from_secs(30);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut published = app.changes.aur.subscribe();
    let mut history = None;
    let mut has_failed = false;
    loop {
        let next = published.borrow_and_update().clone();
        if let Some(next) = next {
            // All packages are looked at, or those of a large segment that is let go of.
            let is_large = history.is_none() || next.snapshot.changed_count() == 0;
            let noting = pin!(note(&app, &mut history, next));
            let noted = match is_large {
                true => shutdown.run_until_cancelled(noting).await,
                false => shutdown.run_until_cancelled(super::unhurried(noting)).await,
            };
            let Some(outcome) = noted else { break };
            if is_large {
                memory::give_back();
            }
            match outcome {
                Ok(()) => {
                    if has_failed {
                        tracing::info!("the history of the AUR's packages is written again");
                    }
                    has_failed = false;
                }
                Err(error) => {
                    let error = format!("{error:#}");
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
            // Only this task opens it, and only once.
            let _ = app.changes.aur_records.set(open.records().clone());
            open
        }
    };
    let noted = Arc::downgrade(&next);
    open.take(next, app.changes.feed(Followed::Aur)).await?;
    app.changes.aur_noted.send_replace(noted);
    Ok(())
}
