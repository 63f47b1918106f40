//! Writes records with the serials that they had elsewhere, into a store that has none yet.
//!
//! records of a backup or of another database -> [`Restore`] -> the same store, with its serials. It is one transaction: until
//! [`Restore::finish`], no reader sees any of it.

use record::{Record, Serial};

use super::error::{Cause, CommitError, RestoreError, commit_error};
use super::group::RecordRow;
use super::read::{ReadStop, Sink};
use super::{Engine, Records, postgres, sqlite};

/// Records that are written at once.
const CHUNK_RECORDS_MAX: usize = 1024;
/// Bytes of bodies that are written at once, unless a single one has more.
const CHUNK_BYTES_MAX: usize = 4 << 20;

/// A restore under way. Other writers wait, or fail as when the database is unavailable; dropped, it
/// leaves nothing behind.
pub struct Restore<'a> {
    records: &'a Records,
    engine: RestoreEngine,
    chunk: Vec<Record>,
    chunk_bytes: usize,
    /// The latest record so far.
    latest: Option<Record>,
}

enum RestoreEngine {
    Sqlite(sqlite::Restore),
    Postgres(postgres::Restore),
}

impl<'a> Restore<'a> {
    pub(super) async fn begin(records: &'a Records) -> Result<Restore<'a>, RestoreError> {
        if records.shared.queue.is_none() {
            let cause = Cause::new("the records were opened for reading only");
            return Err(CommitError::ReadOnly(cause).into());
        }
        let timeout = records.shared.options.database_timeout;
        let engine = match &records.shared.engine {
            Engine::Sqlite { path, .. } => {
                sqlite::Restore::begin(path, timeout).await.map(RestoreEngine::Sqlite)
            }
            Engine::Postgres { options, .. } => {
                postgres::Restore::begin(options, timeout).await.map(RestoreEngine::Postgres)
            }
        };
        let mut engine = engine.map_err(|error| commit_error(&error))?;
        let state = match &mut engine {
            RestoreEngine::Sqlite(engine) => engine.store_state().await,
            RestoreEngine::Postgres(engine) => engine.store_state().await,
        };
        match state.map_err(|error| commit_error(&error))? {
            (0, false) => {
                Ok(Restore { records, engine, chunk: Vec::new(), chunk_bytes: 0, latest: None })
            }
            (found, _) => Err(RestoreError::NotEmpty { found: Serial(found.cast_unsigned()) }),
        }
    }

    /// Takes the next record, in any order; each key once, with a serial of at least 1.
    ///
    /// # Errors
    /// [`RestoreError::SerialBeyond`] for serial 0, [`RestoreError::Write`] if the database does not
    /// take it, for one because its key was there before.
    pub async fn take(&mut self, record: Record) -> Result<(), RestoreError> {
        if record.serial == Serial::ZERO || record.serial.0 > i64::MAX as u64 {
            return Err(beyond(record, Serial(i64::MAX as u64)));
        }
        if self.latest.as_ref().is_none_or(|latest| latest.serial < record.serial) {
            // The body is not needed, and not kept.
            self.latest = Some(Record { body: None, blobs: Vec::new(), ..record.clone() });
        }
        self.chunk_bytes += record.body.as_ref().map_or(0, |body| body.len());
        self.chunk.push(record);
        if self.chunk.len() >= CHUNK_RECORDS_MAX || self.chunk_bytes >= CHUNK_BYTES_MAX {
            self.write().await?;
        }
        Ok(())
    }

    /// Makes it so: the records are there, and the store is at `serial`.
    ///
    /// # Errors
    /// [`RestoreError::SerialBeyond`] if a record is later than `serial`, [`RestoreError::Write`] if
    /// the database does not take it; nothing is written then.
    pub async fn finish(mut self, serial: Serial) -> Result<(), RestoreError> {
        if let Some(latest) = self.latest.take_if(|latest| latest.serial > serial) {
            return Err(beyond(latest, serial));
        }
        self.write().await?;
        let finished = match self.engine {
            RestoreEngine::Sqlite(engine) => engine.finish(serial).await,
            RestoreEngine::Postgres(engine) => engine.finish(serial).await,
        };
        finished.map_err(|error| commit_error(&error))?;
        self.records.shared.wake.announce(serial);
        Ok(())
    }

    async fn write(&mut self) -> Result<(), RestoreError> {
        let rows: Vec<RecordRow<'_>> = self.chunk.iter().map(row).collect();
        let written = match &mut self.engine {
            RestoreEngine::Sqlite(engine) => engine.insert(&rows).await,
            RestoreEngine::Postgres(engine) => engine.insert(&rows).await,
        };
        written.map_err(|error| commit_error(&error))?;
        self.chunk.clear();
        self.chunk_bytes = 0;
        Ok(())
    }
}

pub(super) fn row(record: &Record) -> RecordRow<'_> {
    RecordRow {
        key: record.key.as_str(),
        serial: record.serial.0.cast_signed(),
        body: record.body.as_deref(),
        blobs: record.blobs.iter().flat_map(|digest| *digest.as_bytes()).collect(),
    }
}

fn beyond(record: Record, serial_max: Serial) -> RestoreError {
    RestoreError::SerialBeyond { key: record.key, serial: record.serial, serial_max }
}

impl Sink for Restore<'_> {
    type Error = RestoreError;

    async fn take(&mut self, record: Record) -> Result<(), RestoreError> {
        Restore::take(self, record).await
    }
}

/// Copies all of `from` into the empty `to`; returns the serial that both are at.
pub(super) async fn copy(from: &Records, to: &Records) -> Result<Serial, RestoreError> {
    let mut restore = Restore::begin(to).await?;
    let read = from.read_into(Serial::ZERO, &mut restore).await;
    let serial = read.map_err(|stop| match stop {
        ReadStop::Read(error) => RestoreError::Read(error),
        ReadStop::Sink(error) => error,
    })?;
    restore.finish(serial).await?;
    Ok(serial)
}
