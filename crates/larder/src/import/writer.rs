//! [`Writer`]: an import's view of the store, and [`Plan`]: many decided changes that become one commit.
//!
//! state -> [`Writer::plan`] -> [`Plan::add`], where each change is decided on the state after the changes before it
//! -> [`Writer::commit`] -> the next state, read back from the store. A dry run writes nothing, and the plan becomes
//! the state.

use std::collections::BTreeMap;

use anyhow::Context;
use bytes::Bytes;
use record::{Batch, Digest, Expected, Key, Record, Serial, Write};
use store::{BlobStore, CommitError, DatabaseLocation, Records};

use crate::config::Config;
use crate::keeping::Store;
use crate::stored::Stored;
use crate::{security, setup};

/// The store, and its state when it was last read.
pub(super) struct Writer {
    /// `None` in a dry run without a store.
    records: Option<Records>,
    blobs: Option<BlobStore>,
    is_dry_run: bool,
    stored: Stored,
}

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
                let stored = Stored::default();
                return Ok(Writer { records: None, blobs: None, is_dry_run, stored });
            }
            let store = Store::open_existing(config).await?;
            let stored = setup::load(&store.records).await?;
            let Store { records, blobs } = store;
            return Ok(Writer { records: Some(records), blobs: Some(blobs), is_dry_run, stored });
        }
        setup::create_data_dir(&config.data_dir)?;
        let keeper = setup::open(config).await?;
        let stored = setup::load(&keeper.records).await?;
        let (records, blobs) = (Some(keeper.records), Some(keeper.blobs));
        Ok(Writer { records, blobs, is_dry_run, stored })
    }

    /// The state as of the last commit.
    pub(super) fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Where bytes are stored; `None` in a dry run.
    pub(super) fn blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref().filter(|_| !self.is_dry_run)
    }

    /// Where bytes can be read; `None` in a dry run without a store.
    pub(super) fn readable_blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref()
    }

    /// The records; `None` in a dry run.
    pub(super) fn records(&self) -> Option<&Records> {
        self.records.as_ref().filter(|_| !self.is_dry_run)
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

    /// Begins a plan on the present state.
    pub(super) fn plan(&self) -> Plan {
        Plan { stored: self.stored.clone(), writes: BTreeMap::new(), checks: BTreeMap::new() }
    }

    /// Commits the plan. False if another process has changed what the plan was decided on: the state is read again,
    /// and the caller must plan again.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn commit(&mut self, plan: Plan) -> anyhow::Result<bool> {
        if plan.writes.is_empty() {
            return Ok(true);
        }
        let Some(records) = self.records.as_ref().filter(|_| !self.is_dry_run) else {
            self.stored = plan.stored;
            return Ok(true);
        };
        let batch = Batch {
            writes: plan.writes.into_values().collect(),
            checks: plan.checks.into_iter().collect(),
        };
        let changes = security::changes(&self.stored.accounts, Some(&self.stored.index), &batch);
        let changes = changes.by_command();
        let is_done = match records.commit(batch).await {
            Ok(serial) => {
                changes.committed(serial);
                true
            }
            Err(CommitError::Mismatch(_)) => {
                changes.refused();
                false
            }
            Err(error) => {
                return Err(error).context("the import stopped; run it again to continue");
            }
        };
        self.refresh().await?;
        Ok(is_done)
    }

    /// Reads what was written since the state was last read.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn refresh(&mut self) -> anyhow::Result<()> {
        if let Some(records) = self.records() {
            let (changed, serial) = records.records_after(self.stored.serial).await?;
            self.stored = self.stored.apply(&changed, serial);
        }
        Ok(())
    }

    /// Closes the database.
    pub(super) async fn close(self) {
        if let Some(records) = self.records {
            records.close().await;
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
        self.stored = self.stored.apply(&records, self.stored.serial);
    }
}
