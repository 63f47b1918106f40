//! [`Writer`]: an import's view of the store, and [`Plan`]: many decided changes that become one commit.
//!
//! state -> a plan -> [`Plan::add`], where each change is decided on the state after the changes before it
//! -> [`Writer::committed`] -> the next state, read back from the store. A dry run writes nothing, and the plan becomes
//! the state.

use std::collections::BTreeMap;

use anyhow::Context;
use bytes::Bytes;
use config::Config;
use record::{Batch, Digest, Expected, Key, Record, Serial, Write};
use state::stored::{self, Stored, WriteFailure, until_committed};
use state::{maintenance, security, setup};
use store::{BlobStore, CommitError, DatabaseLocation, Follower, Records, State as _, Store};

/// The store, and its state when it was last read.
pub(super) struct Writer {
    /// `None` in a dry run without a store.
    store: Option<Store>,
    state: State,
}

/// The state that is decided on.
enum State {
    /// The store's own.
    Real(Follower<Stored>),
    /// The state of a dry run.
    Trial(Stored),
}

/// The message if the store accepts no more commits.
const STOPPED: &str = "the import stopped; run it again to continue";

/// Changes to be committed together.
pub(super) struct Plan {
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
        if is_dry_run {
            // A dry run creates nothing, and nothing could be written.
            if is_missing(config) {
                return Ok(Writer { store: None, state: State::Trial(Stored::of_server(config)) });
            }
            let store = maintenance::open_existing(config).await?;
            let stored = setup::load(config, &store.records).await?.into_state();
            return Ok(Writer { store: Some(store), state: State::Trial(stored) });
        }
        setup::create_data_dir(&config.data_dir)?;
        let store = setup::open(config).await?;
        let follower = setup::load(config, &store.records).await?;
        Ok(Writer { store: Some(store), state: State::Real(follower) })
    }

    /// The state as of the last commit.
    pub(super) fn stored(&self) -> &Stored {
        match &self.state {
            State::Real(follower) => follower.state(),
            State::Trial(stored) => stored,
        }
    }

    /// The store for bytes; `None` in a dry run.
    pub(super) fn blobs(&self) -> Option<&BlobStore> {
        self.readable_blobs().filter(|_| matches!(self.state, State::Real(_)))
    }

    /// The store to read bytes from; `None` in a dry run without a store.
    pub(super) fn readable_blobs(&self) -> Option<&BlobStore> {
        self.store.as_ref().map(|store| &store.blobs)
    }

    /// The records; `None` in a dry run.
    pub(super) fn records(&self) -> Option<&Records> {
        match &self.state {
            State::Real(follower) => Some(follower.records()),
            State::Trial(_) => None,
        }
    }

    /// Stores a small blob and returns its digest.
    ///
    /// # Errors
    /// Those of the blob store.
    pub(super) async fn put(&self, bytes: Bytes) -> anyhow::Result<Digest> {
        Ok(match self.blobs() {
            Some(blobs) => blobs.put(bytes).await?.digest,
            None => Digest::of(&bytes),
        })
    }

    /// Makes a plan and commits it, and makes it again if another process wrote first; returns the result of `decide` for the
    /// plan that was committed.
    ///
    /// # Errors
    /// Those of `decide` and of the store.
    pub(super) async fn committed<T>(
        &mut self,
        mut decide: impl AsyncFnMut(&Writer, &mut Plan) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let outcome = until_committed(async || {
            let mut plan = self.plan();
            let outcome = decide(self, &mut plan).await?;
            Ok(self.commit(plan).await?.then_some(outcome))
        });
        outcome.await.map_err(|error: anyhow::Error| match error.is::<WriteFailure>() {
            true => error.context(STOPPED),
            false => error,
        })
    }

    /// Begins a plan on the present state.
    fn plan(&self) -> Plan {
        Plan { stored: self.stored().clone(), writes: BTreeMap::new(), checks: BTreeMap::new() }
    }

    /// Commits the plan. False if another process has changed what the plan was decided on: the state is read again,
    /// and the caller must plan again.
    ///
    /// # Errors
    /// Those of the store.
    async fn commit(&mut self, plan: Plan) -> anyhow::Result<bool> {
        if plan.writes.is_empty() {
            return Ok(true);
        }
        let follower = match &mut self.state {
            State::Real(follower) => follower,
            State::Trial(stored) => {
                *stored = plan.stored;
                return Ok(true);
            }
        };
        let batch = Batch {
            writes: plan.writes.into_values().collect(),
            checks: plan.checks.into_iter().collect(),
        };
        let before = follower.state();
        let changes = security::changes(&before.accounts, Some(&before.index), &batch);
        let changes = changes.by_command();
        let outcome = follower.records().commit(batch).await;
        changes.settle(&outcome);
        let is_done = match outcome {
            Ok(_) => true,
            Err(CommitError::Mismatch(_)) => false,
            Err(error) => return Err(error).context(STOPPED),
        };
        self.refresh().await?;
        Ok(is_done)
    }

    /// Reads what was written since the state was last read.
    ///
    /// # Errors
    /// Those of the store.
    async fn refresh(&mut self) -> anyhow::Result<()> {
        if let State::Real(follower) = &mut self.state {
            stored::log(&follower.catch_up().await?.troubles);
        }
        Ok(())
    }

    /// Closes the database.
    pub(super) async fn close(self) {
        if let Some(store) = self.store {
            store.close().await;
        }
    }
}

impl Plan {
    /// The state after everything that was added.
    pub(super) fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Adds a change that was decided on [`Plan::stored`].
    pub(super) fn add(&mut self, batch: Batch) {
        let serial = Serial(self.stored.serial.0.saturating_add(1));
        let mut records = Vec::with_capacity(batch.writes.len());
        for mut write in batch.writes {
            records.push(Record {
                key: write.key.clone(),
                serial,
                body: write.body.clone(),
                blobs: write.blobs.clone(),
            });
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
        let (stored, troubles) = self.stored.apply(&records, self.stored.serial);
        stored::log(&troubles);
        self.stored = stored;
    }
}
