//! Writes what another store has committed, with the serials that it has there.
//!
//! records by ascending serial -> [`Replica::take`] -> [`Replica::finish`] at the serial that they add up to. It is one
//! transaction: no reader sees the store between two states of the other one. A store that is written like this is written by
//! nobody else: a serial that does not follow is refused.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use record::{Record, Serial};

use super::error::{Cause, CommitError, commit_error};
use super::restore::row;
use super::{Engine, Records, sqlite};

/// Records that are written at once.
const CHUNK_RECORDS_MAX: usize = 1024;
/// Bytes of bodies that are written at once, unless a single one has more.
const CHUNK_BYTES_MAX: usize = 4 << 20;

/// After a transaction with more chunks the connection is closed, for the memory that it has taken.
const CHUNKS_KEPT_MAX: usize = 8;

/// The side of a store that takes another store's commits. Dropped, it leaves nothing that is not finished.
pub struct Replica {
    records: Records,
    path: PathBuf,
    timeout: Duration,
    /// The store is at this serial.
    serial: Serial,
    /// `None` after a failure: a new connection is safer than the old one.
    engine: Option<sqlite::Replica>,
    /// Whether a transaction has begun.
    has_begun: bool,
    /// Chunks that the transaction has.
    chunks: usize,
    chunk: Vec<Record>,
    chunk_bytes: usize,
}

impl Records {
    /// The side that takes another store's commits.
    ///
    /// # Errors
    /// [`CommitError::ReadOnly`] on PostgreSQL, where a standby of the database does the same.
    pub async fn replica(&self) -> Result<Replica, CommitError> {
        let Engine::Sqlite { path, .. } = &self.shared.engine else {
            return Err(CommitError::ReadOnly(Cause::new(
                "only a file of SQLite follows another store",
            )));
        };
        let serial = self.serial().await;
        let serial = serial.map_err(|error| CommitError::Unavailable(Cause::new(error)))?;
        Ok(Replica {
            records: self.clone(),
            path: path.clone(),
            timeout: self.shared.options.database_timeout,
            serial,
            engine: None,
            has_begun: false,
            chunks: 0,
            chunk: Vec::new(),
            chunk_bytes: 0,
        })
    }

    /// The records of the latest serials, in no particular order, at most `records_max`, and the serial after which they are
    /// all that there are.
    ///
    /// # Errors
    /// [`CommitError`] as in [`Records::replica`].
    pub async fn latest(&self, records_max: usize) -> Result<(Vec<Record>, Serial), CommitError> {
        let Engine::Sqlite { reader, .. } = &self.shared.engine else {
            return Err(CommitError::ReadOnly(Cause::new(
                "only a file of SQLite follows another store",
            )));
        };
        let latest = reader.latest(records_max).await;
        let mut records = latest.map_err(|error| CommitError::Unavailable(Cause::new(error)))?;
        if records.len() < records_max {
            return Ok((records, Serial::ZERO));
        }
        // Some records of the lowest serial may be missing.
        let lowest = records.iter().map(|record| record.serial).min().unwrap_or_default();
        records.retain(|record| record.serial > lowest);
        Ok((records, lowest))
    }
}

impl Replica {
    /// The serial that the store is at.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// Takes the next record. If one key comes twice, the later one counts.
    ///
    /// # Errors
    /// [`CommitError`]; then everything since the last [`Replica::finish`] is forgotten.
    pub async fn take(&mut self, record: Record) -> Result<(), CommitError> {
        self.chunk_bytes += record.body.as_ref().map_or(0, |body| body.len());
        self.chunk.push(record);
        if self.chunk.len() >= CHUNK_RECORDS_MAX || self.chunk_bytes >= CHUNK_BYTES_MAX {
            self.write(None).await?;
        }
        Ok(())
    }

    /// Makes it so: the store is at `serial`.
    ///
    /// # Errors
    /// As [`Replica::take`].
    pub async fn finish(&mut self, serial: Serial) -> Result<(), CommitError> {
        if serial < self.serial {
            self.forget().await;
            let flaw = format!("serial {serial} was to follow serial {}", self.serial);
            return Err(CommitError::ReadOnly(Cause::new(flaw)));
        }
        if serial == self.serial && self.chunk.is_empty() && !self.has_begun {
            return Ok(());
        }
        let last = self.chunk.last().map(|record| (record.key.clone(), record.serial));
        self.write(Some(serial)).await?;
        self.serial = serial;
        let wake = &self.records.shared.wake;
        if let Some((key, serial)) = last {
            wake.mark(&key, serial);
        }
        wake.announce(serial);
        if self.chunks > CHUNKS_KEPT_MAX {
            self.forget().await;
        }
        self.chunks = 0;
        Ok(())
    }

    /// Forgets what was taken since the last [`Replica::finish`], and lets go of the database.
    pub async fn forget(&mut self) {
        self.chunk.clear();
        self.chunk_bytes = 0;
        self.chunks = 0;
        self.has_begun = false;
        if let Some(engine) = self.engine.take() {
            engine.close().await;
        }
    }

    async fn write(&mut self, serial: Option<Serial>) -> Result<(), CommitError> {
        let written = self.try_write(serial).await;
        if written.is_err() {
            self.forget().await;
        }
        written
    }

    async fn try_write(&mut self, serial: Option<Serial>) -> Result<(), CommitError> {
        let failed = |error: sqlx::Error| commit_error(&error);
        let engine = match &mut self.engine {
            Some(engine) => engine,
            empty => {
                let opened = sqlite::Replica::open(&self.path, self.timeout).await;
                empty.insert(opened.map_err(failed)?)
            }
        };
        if !self.has_begun {
            let found = engine.begin().await.map_err(failed)?;
            self.has_begun = true;
            if found != self.serial {
                let expected = self.serial;
                let flaw = format!(
                    "it is at serial {found}, but serial {expected} was expected: something else has written to it"
                );
                return Err(CommitError::ReadOnly(Cause::new(flaw)));
            }
        }
        // The later one of a key counts: a statement writes each key once.
        let mut latest = HashMap::with_capacity(self.chunk.len());
        for record in &self.chunk {
            latest.insert(&record.key, record);
        }
        let mut rows: Vec<_> = latest.into_values().map(row).collect();
        // In the order of the keys, so that pages are touched in order.
        rows.sort_unstable_by_key(|row| row.key);
        engine.insert(&rows, serial).await.map_err(failed)?;
        self.has_begun = serial.is_none();
        self.chunks += 1;
        self.chunk.clear();
        self.chunk_bytes = 0;
        Ok(())
    }
}
