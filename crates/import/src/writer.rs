//! [`Writer`]: an import's view of the store, and [`PlannedBatch`]: many decided changes that become one commit.
//!
//! state -> a plan -> [`PlannedBatch::add`], where each change is decided on the state after the changes before it
//! -> [`Writer::committed`] -> the next state, read back from the store. A dry run writes nothing, and the plan becomes
//! the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use article::{AttachmentLimits, Limits};
use config::Config;
use operations::imports::ImportRecords;
use operations::{Keeper, Rules, Sender, carry_out_with};
use record::{Batch, Digest, Expected, Key, Record, Serial, Write};
use state::stored::{self, Stored, WriteFailure};
use state::{maintenance, setup};
use store::{
    BlobError, BlobStore, CommitError, DatabaseLocation, Follower, Records, State as _, Store,
};
use tokio::sync::Mutex;

/// The store, and its state when it was last read.
pub(super) struct Writer {
    /// `None` in a dry run without a store.
    store: Option<Store>,
    state: WriterState,
    bytes: ByteStore,
    rules: Arc<Rules>,
}

/// Where bytes go. A dry run stores none.
#[derive(Clone)]
pub(super) struct ByteStore {
    store: Option<BlobStore>,
    is_trial: bool,
}

/// The state that is decided on.
enum WriterState {
    /// The store's own.
    Real(Follower<Stored>),
    /// The state of a dry run.
    Trial(Stored),
}

/// The message if the store accepts no more commits.
const STOPPED: &str = "the import stopped; run it again to continue";

/// Changes to be committed together.
pub(super) struct PlannedBatch {
    /// The state after these changes.
    stored: Stored,
    writes: BTreeMap<Key, Write>,
    checks: BTreeMap<Key, Expected>,
}

/// Whether there is no store yet, as far as one can see without opening it.
pub(super) fn is_missing(config: &Config) -> bool {
    match config.database() {
        DatabaseLocation::Sqlite(path) => matches!(path.try_exists(), Ok(false)),
        DatabaseLocation::Postgres(_) => false,
    }
}

impl Writer {
    /// Opens the store of `config` and loads its contents; makes a store if there is none, except in a dry run.
    ///
    /// # Errors
    /// If the store cannot be opened or read.
    pub(super) async fn open(config: &Config, is_dry_run: bool) -> anyhow::Result<Writer> {
        let (store, state) = match is_dry_run {
            // A dry run creates nothing, and nothing could be written.
            true if is_missing(config) => (None, WriterState::Trial(Stored::of_server(config))),
            true => {
                let store = maintenance::open_existing(config).await?;
                let stored = setup::load(config, &store.records).await?.into_state();
                (Some(store), WriterState::Trial(stored))
            }
            false => {
                setup::create_data_dir(&config.data_dir)?;
                let store = setup::open(config).await?;
                let follower = setup::load(config, &store.records).await?;
                (Some(store), WriterState::Real(follower))
            }
        };
        let blobs = store.as_ref().map(|store| store.blobs.clone());
        let bytes = ByteStore { store: blobs, is_trial: is_dry_run };
        Ok(Writer { store, state, bytes, rules: Arc::new(Rules::of(config)) })
    }

    /// The state as of the last commit.
    pub(super) fn stored(&self) -> &Stored {
        match &self.state {
            WriterState::Real(follower) => follower.state(),
            WriterState::Trial(stored) => stored,
        }
    }

    /// The store for bytes; `None` in a dry run.
    pub(super) fn blobs(&self) -> Option<&BlobStore> {
        self.bytes.readable().filter(|_| matches!(self.state, WriterState::Real(_)))
    }

    /// Where bytes go, apart from the records.
    pub(super) fn bytes(&self) -> ByteStore {
        self.bytes.clone()
    }

    /// The records; `None` in a dry run.
    pub(super) fn records(&self) -> Option<&Records> {
        match &self.state {
            WriterState::Real(follower) => Some(follower.records()),
            WriterState::Trial(_) => None,
        }
    }

    /// Makes a plan and commits it, and makes it again if another process wrote first; returns the result of `decide` for the
    /// plan that was committed.
    ///
    /// # Errors
    /// Those of `decide` and of the store.
    pub(super) async fn committed<T>(
        &mut self,
        decide: impl AsyncFnMut(&mut PlannedBatch) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        // The last decision, and what came of it. If it failed, there is nothing to write.
        let last = &Mutex::new((decide, None));
        carry_out_with(self, &Sender::Command, |basis| async move {
            let mut last = last.lock().await;
            let (decide, outcome) = &mut *last;
            let mut plan = PlannedBatch::on(&basis.stored);
            let decided = outcome.insert(decide(&mut plan).await);
            Ok(ImportRecords(decided.is_ok().then(|| plan.batch())))
        })
        .await
        .context(STOPPED)?;
        last.lock().await.1.take().context(STOPPED)?
    }

    /// Makes `root` if the store has none, and returns its password. Call this last, since only the report shows it.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn make_root(
        &self,
        config: &Config,
    ) -> anyhow::Result<Option<account::Password>> {
        match self.records() {
            Some(records) => {
                Ok(setup::initialize(records, setup::default_root_password(config)).await?)
            }
            None => Ok(None),
        }
    }

    /// The bounds of articles and of their files.
    pub(super) fn article_limits(&self) -> (Limits, AttachmentLimits) {
        (self.rules.article_limits, self.rules.attachment_limits)
    }

    /// Closes the database.
    pub(super) async fn close(self) {
        if let Some(store) = self.store {
            store.close().await;
        }
    }
}

impl Keeper for Writer {
    fn stored(&self) -> Result<Arc<Stored>, WriteFailure> {
        Ok(Arc::new(Writer::stored(self).clone()))
    }

    fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    async fn touch(&self, blob: Digest) -> Result<bool, BlobError> {
        match self.blobs() {
            Some(blobs) => blobs.touch(blob).await,
            None => Ok(true),
        }
    }

    async fn commit(&mut self, batch: Batch) -> Result<Serial, CommitError> {
        match &mut self.state {
            WriterState::Real(follower) => follower.records().commit(batch).await,
            WriterState::Trial(stored) => {
                let records: Vec<Record> = batch.writes.into_iter().map(written).collect();
                let (next, troubles) = stored.clone().apply(&records, stored.serial);
                stored::log(&troubles);
                *stored = next;
                Ok(stored.serial)
            }
        }
    }

    async fn shows(&mut self, serial: Serial) -> bool {
        if let WriterState::Real(follower) = &mut self.state {
            match follower.catch_up().await {
                Ok(news) => stored::log(&news.troubles),
                Err(error) => {
                    tracing::error!(%error, "the store cannot be read");
                    return false;
                }
            }
        }
        Writer::stored(self).serial >= serial
    }
}

fn written(write: Write) -> Record {
    let Write { key, body, blobs, .. } = write;
    Record { key, serial: Serial::ZERO, body, blobs }
}

impl ByteStore {
    /// The store to read bytes from; `None` in a dry run without a store.
    pub(super) fn readable(&self) -> Option<&BlobStore> {
        self.store.as_ref()
    }

    /// Stores a small blob and returns its digest.
    ///
    /// # Errors
    /// Those of the blob store.
    pub(super) async fn put(&self, bytes: impl Into<bytes::Bytes>) -> anyhow::Result<Digest> {
        let bytes = bytes.into();
        Ok(match self.readable().filter(|_| !self.is_trial) {
            Some(blobs) => blobs.put(bytes).await?.digest,
            None => Digest::of(&bytes),
        })
    }
}

impl PlannedBatch {
    /// Begins a plan on this state.
    fn on(stored: &Stored) -> PlannedBatch {
        PlannedBatch { stored: stored.clone(), writes: BTreeMap::new(), checks: BTreeMap::new() }
    }

    /// Everything that was added, as one batch.
    fn batch(self) -> Batch {
        let writes = self.writes.into_values().collect();
        Batch { writes, checks: self.checks.into_iter().collect() }
    }

    /// The state after everything that was added.
    pub(super) fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Adds a change that was decided on [`PlannedBatch::stored`].
    pub(super) fn add(&mut self, batch: Batch) {
        let serial = Serial(self.stored.serial.0.saturating_add(1));
        let mut records = Vec::with_capacity(batch.writes.len());
        for mut write in batch.writes {
            records.push(Record { serial, ..written(write.clone()) });
            // A key that an earlier change of this plan wrote is in the state that it left; only the state before can
            // differ.
            if let Some(earlier) = self.writes.get(&write.key) {
                write.expected = earlier.expected;
            }
            self.checks.remove(&write.key);
            self.writes.insert(write.key.clone(), write);
        }
        for (key, expected) in batch.checks {
            if !self.writes.contains_key(&key) {
                self.checks.insert(key, expected);
            }
        }
        // The serial stays, as nothing has been committed.
        let (stored, troubles) = self.stored.clone().apply(&records, self.stored.serial);
        stored::log(&troubles);
        self.stored = stored;
    }
}
