//! The published state of the store, as of one serial, and what a write needs of it.
//!
//! a batch (crate `operations`) -> [`LiveStore::commit`] -> the store -> its serial -> the tail (`larder::tasks::store_tail`, a
//! [`store::Follower`]) -> [`Stored`] published -> [`LiveStore::shows`] -> the write is acknowledged. No request applies its own
//! write. The tail does, as for other processes' writes, so that the published state cannot differ from the stored one.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use config::Config;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use prometheus::{Histogram, IntCounter};
use pypi::index_log::IndexLogs;
use record::{Batch, Record, Serial, UnreadableRecord};
use store::{CommitError, Records};
use tokio::sync::watch;

use crate::live::{Live, SnapshotGuard};

/// The key of the store's name in its records.
pub const IDENTITY_KEY: &str = "store/identity";

/// How long a committed write may take to become visible before its client is told so.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The published state of the store: the snapshots of all its surfaces, replaced together.
#[derive(Clone, Default)]
pub struct Stored {
    /// The last commit that is in the snapshots.
    pub serial: Serial,
    /// Users, groups and tokens.
    pub accounts: account::Snapshot,
    /// Articles.
    pub articles: article::Snapshot,
    /// The Python index.
    pub index: pypi::Snapshot,
    /// Who did what to its stages.
    pub logs: IndexLogs,
    /// The name of this store: 32 hexadecimal digits, the same for all its processes; devpi's clients see it.
    pub identity: Option<HeaderValue>,
    /// [`Stored::serial`], finished for a header.
    serial_header: Option<HeaderValue>,
    /// Headers of answers that depend on nothing but this state.
    pub heads: AnswerHeads,
}

/// Heads of answers, each finished when it is first needed. A copy of a state begins without any.
#[derive(Default)]
pub struct AnswerHeads([OnceLock<HeaderMap>; AnswerHeads::KINDS]);

impl AnswerHeads {
    /// How many kinds of heads there are.
    pub const KINDS: usize = 24;

    /// The head of this kind.
    pub fn of(&self, kind: usize, make: impl FnOnce() -> HeaderMap) -> &HeaderMap {
        self.0[kind].get_or_init(make)
    }
}

impl Clone for AnswerHeads {
    fn clone(&self) -> AnswerHeads {
        AnswerHeads::default()
    }
}

impl store::State for Stored {
    fn serial(&self) -> Serial {
        self.serial
    }

    /// Applies the records to every surface. What cannot be read is left out.
    fn apply(self, records: &[Record], serial: Serial) -> (Stored, Vec<UnreadableRecord>) {
        let (accounts, mut troubles) = self.accounts.apply(records);
        let articles = self.articles.after(records);
        troubles.extend(articles.troubles);
        let index = self.index.after(records);
        troubles.extend(index.troubles);
        let (logs, unread) = self.logs.apply(records);
        troubles.extend(unread);
        let identity = records
            .iter()
            .rfind(|record| record.key.as_str() == IDENTITY_KEY)
            .and_then(|record| HeaderValue::from_bytes(record.body.as_deref()?).ok())
            .or(self.identity);
        let (articles, index) = (articles.snapshot, index.snapshot);
        let serial_header = Some(HeaderValue::from(serial.0));
        let heads = AnswerHeads::default();
        let next =
            Stored { serial, accounts, articles, index, logs, identity, serial_header, heads };
        (next, troubles)
    }
}

impl Stored {
    /// The state after these records, for those who need no articles, and perhaps no indexes.
    pub fn apply_without_articles(
        self,
        records: &[Record],
        serial: Serial,
        has_index: bool,
    ) -> (Stored, Vec<UnreadableRecord>) {
        let (accounts, mut troubles) = self.accounts.apply(records);
        let mut next = Stored { serial, accounts, ..self };
        if has_index {
            let index = next.index.after(records);
            troubles.extend(index.troubles);
            next.index = index.snapshot;
            let (logs, unread) = next.logs.apply(records);
            troubles.extend(unread);
            next.logs = logs;
        }
        (next, troubles)
    }
}

/// Logs the records that cannot be read.
pub fn log(troubles: &[UnreadableRecord]) {
    for trouble in troubles {
        tracing::error!(%trouble, "a record cannot be read");
    }
}

impl Stored {
    /// The empty state of a server with this configuration.
    pub fn of_server(config: &Config) -> Stored {
        let index = pypi::Snapshot::of_server(config.python.devpi_defaults);
        Stored { index, ..Stored::default() }
    }

    /// The serial as a header's value.
    pub fn serial_header(&self) -> HeaderValue {
        self.serial_header.clone().unwrap_or_else(|| HeaderValue::from(self.serial.0))
    }

    /// The records of every surface, as they are in memory, without those that were deleted or could not be read.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let surfaces = self.accounts.records().chain(self.articles.records());
        surfaces.chain(self.index.records()).chain(self.logs.records())
    }
}

/// How long a write that came first is waited for at least, whatever the patience.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// The published state of the store, through which writes go, too.
pub struct LiveStore {
    /// Where writes go.
    records: Records,
    /// The published state.
    live: Live<Stored>,
    /// The serial of the published state, to wait for.
    published: watch::Sender<Serial>,
    /// When the published state was first seen here.
    seen_at: Mutex<Option<Timestamp>>,
    /// Why the store was not reached at the last look, if it was not.
    trouble: Mutex<Option<String>>,
    /// When the last look at the store began whose outcome is served.
    looked_at: Mutex<Option<Instant>>,
    /// Where writes are counted.
    commits: Commits,
}

/// How writes are counted. The caller makes and registers the metrics; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct Commits {
    /// Time that the store took for successful commits.
    pub seconds: Histogram,
    /// Writes that were decided again, since another write came first.
    pub overtaken: IntCounter,
    /// Writes that the store refused and that no retry would help.
    pub refused: IntCounter,
    /// Failed for the state of the database, or with an unknown outcome.
    pub failed: IntCounter,
}

impl Commits {
    fn count(&self, outcome: &Result<Serial, CommitError>, started_at: Instant) {
        match outcome {
            Ok(_) => self.seconds.observe(started_at.elapsed().as_secs_f64()),
            Err(CommitError::Mismatch(_)) => self.overtaken.inc(),
            Err(CommitError::KeyTwice(_) | CommitError::TooLarge { .. }) => self.refused.inc(),
            Err(_) => self.failed.inc(),
        }
    }
}

/// Why a write is not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteFailure {
    /// The store did not take it; nothing was written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The write is stored, but this process does not show it yet.
    #[error(
        "the write is kept as serial {0}, but is not visible here yet: the store cannot be read"
    )]
    NotVisible(Serial),
    /// The write was decided several times, and each time another write had come first.
    #[error(
        "other writes came first again and again, or are not visible here yet; nothing was written"
    )]
    Overtaken,
    /// There is no state yet to decide on.
    #[error("the store is not loaded yet")]
    NotLoaded,
    /// This server follows a primary, where clients write.
    #[error("this server is a read-only copy, and nothing was written: write to {0}")]
    OfFollower(String),
    /// This process was left behind as the primary: a follower of its store was promoted.
    #[error("a follower of this store was made its primary: nothing is written here any more")]
    LeftBehind,
    /// What this process knows refuses the write, but the store may be further.
    #[error("this process may be behind the store; nothing was written")]
    Behind,
}

impl LiveStore {
    /// A store that has published nothing yet, and counts its writes in `commits`.
    pub fn new(records: Records, commits: Commits) -> LiveStore {
        LiveStore {
            records,
            live: Live::default(),
            published: watch::Sender::new(Serial::ZERO),
            seen_at: Mutex::new(None),
            trouble: Mutex::new(None),
            looked_at: Mutex::new(None),
            commits,
        }
    }

    /// The published state, for use within one request; `None` before the first.
    pub fn snapshot(&self) -> Option<SnapshotGuard<Stored>> {
        self.live.snapshot()
    }

    /// The published state as an `Arc`, for a longer use; `None` before the first.
    pub fn snapshot_full(&self) -> Option<Arc<Stored>> {
        self.live.snapshot_full()
    }

    /// Commits a batch. The published state has it once [`LiveStore::shows`] says so.
    ///
    /// # Errors
    /// [`CommitError`]
    pub async fn commit(&self, batch: Batch) -> Result<Serial, CommitError> {
        let started_at = Instant::now();
        let outcome = self.records.commit(batch).await;
        self.commits.count(&outcome, started_at);
        outcome
    }

    /// Waits until the published state has the commit; false if it has not in half a minute.
    pub async fn shows(&self, serial: Serial) -> bool {
        self.wait_for(serial, VISIBLE_TIMEOUT).await
    }

    /// Waits for a write that came first, for `patience` or at least a second.
    pub async fn catch_up_with(&self, serial: Serial, patience: Duration) -> bool {
        self.wait_for(serial, patience.max(PATIENCE_MIN)).await
    }

    /// Asks the store how far it is, and waits until the published state has that; whether it is newer than `serial`, which a
    /// request was decided on.
    ///
    /// # Errors
    /// [`WriteFailure::Behind`] if that is not known, or not published, after `patience`.
    pub async fn catch_up(&self, serial: Serial, patience: Duration) -> Result<bool, WriteFailure> {
        // A store that has lost something may be further, and is never published.
        if self.trouble().is_some() {
            return Err(WriteFailure::Behind);
        }
        let patience = patience.max(PATIENCE_MIN);
        let asked = tokio::time::timeout(patience, self.records.serial()).await;
        let latest = asked.ok().and_then(Result::ok).ok_or(WriteFailure::Behind)?;
        if latest <= serial {
            return Ok(false);
        }
        self.wait_for(latest, patience).await.then_some(true).ok_or(WriteFailure::Behind)
    }

    /// Waits until the published state has `serial`; false if it has not after `timeout`.
    pub async fn wait_for(&self, serial: Serial, timeout: Duration) -> bool {
        let mut published = self.published.subscribe();
        let seen = published.wait_for(|published| *published >= serial);
        matches!(tokio::time::timeout(timeout, seen).await, Ok(Ok(_)))
    }

    /// Waits until there is a published state.
    pub async fn wait_until_loaded(&self) {
        let mut published = self.published.subscribe();
        while self.snapshot().is_none() {
            if published.changed().await.is_err() {
                return;
            }
        }
    }

    /// The serial of the published state, to wait for the next one.
    pub fn published(&self) -> watch::Receiver<Serial> {
        self.published.subscribe()
    }

    /// Publishes the next state.
    pub fn publish(&self, next: Stored) {
        let serial = next.serial;
        self.live.publish(Arc::new(next));
        let mut seen_at = self.seen_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.published.send_replace(serial) != serial || seen_at.is_none() {
            *seen_at = Some(Timestamp::now());
        }
    }

    /// When this process published the last commit: a moment after it was made, or after this process started.
    pub fn seen_at(&self) -> Option<Timestamp> {
        *self.seen_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes that a look at the store that began then has an outcome, which is served.
    pub fn looked(&self, began_at: Instant) {
        *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(began_at);
    }

    /// How long ago the last such look began, or one of the records themselves that found no more than is served: everything that
    /// was committed before it is served. `None` before the first.
    pub fn lag(&self) -> Option<Duration> {
        let looked_at = *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let served = *self.published.borrow();
        let by_records = self.records.looked().filter(|look| look.serial <= served);
        let looked_at = looked_at?.max(by_records.map_or(looked_at?, |look| look.began_at));
        Some(looked_at.elapsed())
    }

    /// Why the store was not reached at the last look, if it was not.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Notes how the last look at the store went; says whether that is news.
    pub fn set_trouble(&self, trouble: Option<String>) -> bool {
        let mut current = self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_news = current.is_some() != trouble.is_some();
        *current = trouble;
        is_news
    }
}
