//! [`Health`]: how this process fares since its start, and whether it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use state::clocks::Clocks;
use tokio::sync::watch;

use super::side_files::SideFiles;

/// How this process fares, and whether it goes on.
pub(crate) struct Health {
    /// When the server was started.
    pub(crate) started_at: Instant,
    /// This machine's clock, beside those of the store.
    pub(crate) clocks: Arc<Clocks>,
    /// Files beside the record that were of no use.
    pub(crate) side_files: SideFiles,
    is_left_behind: AtomicBool,
    is_stopping: AtomicBool,
    /// Why the server cannot go on, if it cannot.
    failure: watch::Sender<Option<String>>,
}

impl Health {
    /// That of a process which starts now.
    pub(super) fn new(clocks: Arc<Clocks>) -> Health {
        Health {
            started_at: Instant::now(),
            clocks,
            side_files: SideFiles::default(),
            is_left_behind: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            failure: watch::Sender::new(None),
        }
    }

    /// The server cannot go on, and is to end.
    pub(crate) fn fail(&self, reason: String) {
        self.failure.send_replace(Some(reason));
    }

    /// Waits until the server cannot go on; returns why.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        let reason = failure.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    /// From now on the server is stopping.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// Notes that a follower of this store was made its primary.
    pub(crate) fn leave_behind(&self) {
        if !self.is_left_behind.swap(true, Relaxed) {
            tracing::error!(
                "a follower of this store was made its primary (`larder promote`), and this server is not the primary any \
                 more: it takes no writes. Start it with `--follow` and an empty data directory"
            );
        }
    }

    /// Whether a follower of this store was made its primary.
    pub(crate) fn is_left_behind(&self) -> bool {
        self.is_left_behind.load(Relaxed)
    }
}
