//! [`Aur`]: what is served of the AUR, its source as the refresh task sees it, and the bounds of questions.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use config::Config;
use resources::turns::{ThreadShare, Turns};
use state::live::{Live, SnapshotGuard};
use tokio::sync::{mpsc, oneshot};

use super::rate_limit::RateLimiter;
use crate::published::aur_published::AurPublished;
use crate::published::changes::deltas::Deltas;

/// How a wished-for reload ended: whether the data was new, or why it failed.
pub type ReloadOutcome = Result<bool, String>;

/// What other tasks and requests can ask of the refresh task.
pub enum RefreshRequest {
    /// Look at the source now.
    Reload(oneshot::Sender<ReloadOutcome>),
    /// Ask a URL this often from now on.
    SetInterval(Duration),
}

/// The AUR's part of the state.
pub struct Aur {
    /// The snapshot.
    pub published: Live<AurPublished>,
    /// What differs between dumps.
    pub deltas: Deltas,
    /// How many threads of the pool questions may use.
    pub(crate) refined: ThreadShare,
    /// How many large answers are made at once. Any number waits: each holds only its question.
    pub(crate) large: Turns,
    /// Questions per client.
    pub rate_limiter: RateLimiter,
    /// Most packages in one answer; can be changed while running.
    pub results_max: AtomicUsize,
    /// How often a URL is asked, in seconds; can be changed while running.
    pub refresh_seconds: AtomicU64,
    /// By how many percent a dump may be smaller than the one that is served; can be changed while running.
    pub shrink_percent_max: AtomicU8,
    /// Whether the surface is served. On a follower without a source of its own, it is once the primary has given it packages.
    is_on: AtomicBool,
    /// Whether the surface is off because there is no source, rather than because an administrator switched it off.
    pub lacks_source: bool,
    /// Whether the packages come from the primary that this server follows.
    pub(crate) is_of_primary: bool,
    /// Whether the first packages of the primary are on their way, and the server is not ready before.
    pub(crate) awaits_primary: bool,
    /// Wishes for the refresh task.
    pub refresh: mpsc::Sender<RefreshRequest>,
    /// Why the last look at the source failed, if it did.
    trouble: Mutex<Option<String>>,
}

impl Aur {
    pub(super) fn new(
        config: &Config,
        cpu_threads: usize,
        refresh: mpsc::Sender<RefreshRequest>,
    ) -> Aur {
        let aur = &config.aur;
        Aur {
            published: Live::default(),
            deltas: Deltas::new(&config.data_dir),
            refined: ThreadShare::half(cpu_threads, config.actions.cpu_queue_max),
            large: Turns::new(cpu_threads.max(1)),
            rate_limiter: RateLimiter::new(
                aur.rate_limit,
                aur.rate_limit_window,
                aur.rate_limit_clients_max,
            ),
            results_max: AtomicUsize::new(aur.results_max),
            refresh_seconds: AtomicU64::new(aur.refresh.as_secs()),
            shrink_percent_max: AtomicU8::new(aur.shrink_percent_max),
            is_on: AtomicBool::new(aur.enabled),
            lacks_source: false,
            is_of_primary: false,
            awaits_primary: false,
            refresh,
            trouble: Mutex::new(None),
        }
    }

    /// Whether the surface is served.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// From now on the surface is served, or not.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    /// What is served now, for a request.
    pub fn snapshot(&self) -> Option<SnapshotGuard<AurPublished>> {
        self.published.snapshot()
    }

    /// What is served now, for longer than a request.
    pub fn snapshot_full(&self) -> Option<Arc<AurPublished>> {
        self.published.snapshot_full()
    }

    /// Most packages in one answer, now.
    pub fn results_max(&self) -> usize {
        self.results_max.load(Relaxed)
    }

    /// Why the last look at the source failed, if it did.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Notes how the last look at the source went; says whether the trouble is new.
    pub fn set_trouble(&self, trouble: Option<String>) -> bool {
        let mut current = self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_new = *current != trouble;
        *current = trouble;
        is_new
    }

    /// Asks for a look at the source, and waits for how it went.
    pub async fn reload(&self) -> ReloadOutcome {
        let (outcome, answer) = oneshot::channel();
        let gone =
            || "the data is not refreshed: the server is stopping, or has no source".to_owned();
        self.refresh.send(RefreshRequest::Reload(outcome)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
