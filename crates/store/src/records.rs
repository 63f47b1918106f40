//! Records: the latest body under each key, and the serial of the commit that wrote it.
//!
//! a [`Batch`] -> [`Records::commit`] -> its [`Serial`]; a serial -> [`Records::read_after`] -> all [`Record`]s since, and the
//! serial that they add up to. The second serves loading, following and replicating alike.
//!
//! These rules hold on SQLite and on PostgreSQL: an acknowledged batch is durable; a batch is seen whole or not at all; serials
//! become visible in order, without gaps; a batch's preconditions are decided in the transaction that writes it. Many batches
//! that wait together share one transaction, each under its own serial: no reader sees the store between two serials of one
//! transaction. If a database falls back behind what a process has seen of it, is another store's, or has replaced or damaged
//! files, that process stops reading and writing it ([`Rewound`]). There is no history: a key that is written again has only
//! its latest serial.

mod downloads;
mod error;
mod group;
mod location;
mod log_events;
mod observed_store;
mod page;
mod pools;
mod postgres;
mod presence;
mod read;
mod reader;
mod recent_records;
mod replica;
mod restore;
mod rows;
mod sqlite;
mod wake;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use record::{Batch, Key, Record, Serial};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use downloads::{DownloadCount, Downloads, DownloadsError, ProjectDownloads, VersionDownloads};
pub use error::{Cause, CommitError, Damage, OpenError, ReadError, RestoreError, Rewound};
pub use location::{DatabaseLocation, DatabaseLocationError};
pub use page::{Page, PagePosition, PageSize};
pub use postgres::ASKED_ANEW_AFTER;
pub use replica::Replica;
pub use restore::Restore;
pub use wake::Look;

use error::{commit_error, is_damage, open_error};
use observed_store::{Anchor, ObservedStore};
use read::{EachRecord, ReadStop, Sink};
use recent_records::{LastRead, MarkingSink, UnknownRecord};
use wake::Wake;
use writer::{Request, Writer};

/// How the records are kept; the default suits a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsOptions {
    /// How often the database is asked for other processes' commits, besides its notifications. `None`: no other process
    /// writes it, so nothing is watched, and this process's commits are known at once.
    pub poll_interval: Option<Duration>,
    /// Most batches in the queue of the writer; a commit waits for a place in it.
    pub commit_queue_max: usize,
    /// Bytes at most of batches that wait to be written, or a single larger batch.
    pub commit_queue_bytes_max: usize,
    /// Most batches in one transaction.
    pub group_batches_max: usize,
    /// Most bytes in one batch: keys, bodies and digests.
    pub batch_bytes_max: usize,
    /// Most connections that read at once.
    pub readers_max: u32,
    /// How long the database may take to answer, and how long another writer's lock is waited for.
    pub database_timeout: Duration,
}

impl Default for RecordsOptions {
    fn default() -> RecordsOptions {
        RecordsOptions {
            poll_interval: Some(Duration::from_secs(1)),
            commit_queue_max: 1024,
            commit_queue_bytes_max: 64 << 20,
            group_batches_max: 256,
            batch_bytes_max: 32 << 20,
            readers_max: 4,
            database_timeout: Duration::from_secs(10),
        }
    }
}

/// The records of one database; clones share it. When the last one is dropped, queued batches are written and the database is
/// closed in the background; [`Records::close`] waits for that.
#[derive(Clone)]
pub struct Records {
    shared: Arc<SharedRecords>,
}

struct SharedRecords {
    engine: Engine,
    options: RecordsOptions,
    /// None if opened for reading only.
    queue: Option<mpsc::Sender<Request>>,
    /// The bytes that the queue still has room for.
    queue_room: Arc<Semaphore>,
    wake: Arc<Wake>,
    closed: CancellationToken,
    tasks: TaskTracker,
}

/// What a database is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenMode {
    ToWrite,
    ToRead,
    /// To read, and to leave no files behind.
    AtRest,
}

/// The side of a database that reads, and how to reach it.
enum Engine {
    Sqlite { path: PathBuf, reader: Arc<sqlite::Reader> },
    Postgres { options: Box<PgConnectOptions>, reader: Arc<postgres::Reader> },
}

impl Records {
    /// Opens the records at `location`: creates what is missing, and migrates an earlier layout. Call this inside a tokio
    /// runtime, which the records use from then on.
    ///
    /// # Errors
    /// [`OpenError`]: the database is unavailable, holds something else, or was written by a later
    /// version.
    pub async fn open(
        location: &DatabaseLocation,
        options: RecordsOptions,
    ) -> Result<Records, OpenError> {
        Records::open_as(location, options, OpenMode::ToWrite).await
    }

    /// Opens the records at `location` for reading only, as [`Records::open`] left them; nothing is
    /// created or changed.
    ///
    /// # Errors
    /// [`OpenError`], also if there is no database, or one of an earlier layout.
    pub async fn open_read_only(
        location: &DatabaseLocation,
        options: RecordsOptions,
    ) -> Result<Records, OpenError> {
        Records::open_as(location, options, OpenMode::ToRead).await
    }

    /// [`Records::open_read_only`] that leaves a file of SQLite without a log as it is: no files appear beside it, whose owner may
    /// not be the server's user. No process may begin to write the file meanwhile.
    ///
    /// # Errors
    /// Those of [`Records::open_read_only`].
    pub async fn open_at_rest(
        location: &DatabaseLocation,
        options: RecordsOptions,
    ) -> Result<Records, OpenError> {
        Records::open_as(location, options, OpenMode::AtRest).await
    }

    /// Whether there are no records at `location` yet: no file or an empty one, or a database without our tables. Makes
    /// nothing.
    ///
    /// # Errors
    /// [`OpenError::Unavailable`]: then it is not known.
    pub async fn is_new(
        location: &DatabaseLocation,
        options: &RecordsOptions,
    ) -> Result<bool, OpenError> {
        match location {
            DatabaseLocation::Sqlite(path) => {
                Ok(!path.exists() || std::fs::metadata(path).is_ok_and(|found| found.len() == 0))
            }
            DatabaseLocation::Postgres(url) => {
                let is_new = postgres::is_new(url, options.database_timeout).await;
                is_new.map_err(|error| open_error(&location.to_string(), &error))
            }
        }
    }

    /// The processes that have the records at `location` open and follow them, as people tell them apart. None of a file of
    /// SQLite, which belongs to one server: the lock of its data directory tells of that.
    ///
    /// # Errors
    /// [`OpenError::Unavailable`]: then it is not known.
    pub async fn processes(
        location: &DatabaseLocation,
        options: &RecordsOptions,
    ) -> Result<Vec<String>, OpenError> {
        let DatabaseLocation::Postgres(url) = location else { return Ok(Vec::new()) };
        let listed =
            async { presence::list(&postgres::options(url)?, options.database_timeout).await };
        listed.await.map_err(|error| open_error(&location.to_string(), &error))
    }

    async fn open_as(
        location: &DatabaseLocation,
        options: RecordsOptions,
        opening: OpenMode,
    ) -> Result<Records, OpenError> {
        let is_read_only = opening != OpenMode::ToWrite;
        let shown = location.to_string();
        let unavailable = |cause| OpenError::Unavailable { location: shown.clone(), cause };
        let timeout = options.database_timeout;
        let (engine, writer, layout, known) = match location {
            DatabaseLocation::Sqlite(path) => {
                let writer = match is_read_only {
                    true => None,
                    false => Some(sqlite::create(path, &shown, timeout).await?),
                };
                let is_at_rest = opening == OpenMode::AtRest && !sqlite::has_log(path);
                let reader =
                    sqlite::reader(path, options.readers_max, timeout, writer.as_ref(), is_at_rest);
                let layout = reader.layout().await;
                let engine = Engine::Sqlite { path: path.clone(), reader: Arc::new(reader) };
                (engine, writer.map(Writer::Sqlite), layout, sqlite::LAYOUT)
            }
            DatabaseLocation::Postgres(url) => {
                let connect =
                    postgres::options(url).map_err(|error| unavailable(Cause::new(error)))?;
                let writer = match is_read_only {
                    true => None,
                    false => {
                        let writer = postgres::create(&connect, &shown, timeout).await?;
                        Some(Writer::Postgres(writer))
                    }
                };
                let reader = postgres::reader(&connect, options.readers_max, timeout, is_read_only);
                let layout = reader.layout().await;
                let reader = Arc::new(reader);
                let engine = Engine::Postgres { options: Box::new(connect), reader };
                (engine, writer, layout, postgres::LAYOUT)
            }
        };
        let found = layout.map_err(|error| open_error(&shown, &error))?;
        current_layout(known_layout(found, known, &shown)?, known, &shown)?;
        let serial = match is_read_only {
            // A process that only reads may want to look for damage, so it can open damaged records.
            true => engine.serial().await.map_err(|error| unavailable(Cause::new(error)))?,
            false => {
                let looked = engine.look_through().await;
                let looked = looked.map_err(|error| open_error(&shown, &error))?;
                looked.map_err(|flaw| OpenError::Damaged { location: shown.clone(), flaw })?
            }
        };
        let wake = Arc::new(Wake::new(serial));
        let closed = CancellationToken::new();
        let tasks = TaskTracker::new();
        let queue = writer.map(|writer| {
            let (queue, requests) = mpsc::channel(options.commit_queue_max.max(1));
            let group_batches_max = options.group_batches_max.max(1);
            let (wake, closed) = (wake.clone(), closed.clone());
            tasks.spawn(writer::run(writer, requests, group_batches_max, wake, closed));
            queue
        });
        if let Some(poll_interval) = options.poll_interval {
            engine.follow(&tasks, &wake, poll_interval, &closed);
        }
        let room =
            options.commit_queue_bytes_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let queue_room = Arc::new(Semaphore::new(room));
        let shared = SharedRecords { engine, options, queue, queue_room, wake, closed, tasks };
        Ok(Records { shared: Arc::new(shared) })
    }

    /// From now on, for all clones, the record `key` must have this body, which only this store has: a database without it is
    /// neither read nor written, and fails with [`Rewound::Stranger`]. Only the first call counts.
    pub fn bind(&self, key: Key, body: Bytes) {
        self.shared.wake.bind(Anchor { key, body });
    }

    /// Writes `batch` whole, or nothing of it; returns once it is durable, with its serial. For a batch that writes nothing, it
    /// returns a serial at which the conditions held.
    ///
    /// If the future is dropped, the batch may be written or not, but never in part.
    ///
    /// # Errors
    /// [`CommitError`]; nothing is written then, except as [`CommitError::OutcomeUnknown`] says.
    pub async fn commit(&self, batch: Batch) -> Result<Serial, CommitError> {
        if let Some(key) = batch.key_written_twice() {
            return Err(CommitError::KeyTwice(key.clone()));
        }
        let bytes = group::bytes_of(&batch);
        let bytes_max = self.shared.options.batch_bytes_max;
        if bytes > bytes_max {
            return Err(CommitError::TooLarge { bytes, bytes_max });
        }
        let Some(queue) = &self.shared.queue else {
            return Err(CommitError::ReadOnly(Cause::new(
                "the records were opened for reading only",
            )));
        };
        let room_max = self.shared.options.commit_queue_bytes_max.clamp(1, u32::MAX as usize);
        let room = bytes.min(room_max) as u32;
        let room = self.shared.queue_room.clone().acquire_many_owned(room).await;
        let room = room.map_err(|_| CommitError::Closed)?;
        let (answer, answered) = oneshot::channel();
        queue.send(Request { batch, answer, room }).await.map_err(|_| CommitError::Closed)?;
        match answered.await {
            Ok(outcome) => outcome,
            Err(_) => Err(CommitError::OutcomeUnknown(Cause::new("the writing task ended"))),
        }
    }

    /// Hands `sink` all records whose serial is after `serial`, by ascending serial and then by key, one by one as they arrive,
    /// all from one moment of the store. Returns the store's serial at that moment, to continue from.
    ///
    /// # Errors
    /// [`ReadError`]; the sink may have been handed some records, which are not all. On
    /// [`ReadError::Rewound`] it was handed none.
    pub async fn read_after(
        &self,
        serial: Serial,
        sink: impl FnMut(Record) + Send,
    ) -> Result<Serial, ReadError> {
        self.read_into(serial, &mut EachRecord(sink)).await.map_err(|stop| match stop {
            ReadStop::Read(error) => error,
        })
    }

    /// [`Records::read_after`] into any sink; from then on the store must have what went by.
    async fn read_into<S: Sink>(
        &self,
        after: Serial,
        sink: &mut S,
    ) -> Result<Serial, ReadStop<S::Error>> {
        let wake = &self.shared.wake;
        let mut marking = MarkingSink { sink, last: LastRead::default() };
        if wake.seen().lost.is_some_and(Rewound::may_end) {
            self.compare_again().await?;
        }
        // The transaction begins later, so it must find everything that is seen now.
        let seen = wake.seen();
        let read = self.shared.engine.read_after(after, &seen, &mut marking).await;
        if let Err(ReadStop::Read(ReadError::Rewound(rewound))) = &read {
            wake.lose(*rewound);
        }
        let serial = read?;
        wake.read(after, serial, marking.last);
        wake.announce(serial);
        Ok(serial)
    }

    /// Looks whether a store that lacked something has everything again that went by.
    async fn compare_again(&self) -> Result<(), ReadError> {
        let wake = &self.shared.wake;
        let seen = ObservedStore { lost: None, ..wake.seen() };
        let recent = wake.recent().clone();
        let mut comparison = recent.compare();
        let compared = self.shared.engine.read_after(recent.start, &seen, &mut comparison).await;
        let rewound = match compared {
            Ok(_) if comparison.latest().is_some_and(|latest| wake.find_again(latest)) => {
                return Ok(());
            }
            Ok(_) | Err(ReadStop::Sink(UnknownRecord)) => {
                let found = self.shared.engine.serial().await?;
                Rewound::Behind { found, seen: seen.serial }
            }
            Err(ReadStop::Read(ReadError::Rewound(rewound))) => rewound,
            Err(ReadStop::Read(error)) => return Err(error),
        };
        wake.lose(rewound);
        Err(rewound.into())
    }

    /// [`Records::read_after`], gathered; for when there are not many.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn records_after(&self, serial: Serial) -> Result<(Vec<Record>, Serial), ReadError> {
        let mut records = Vec::new();
        let serial = self.read_after(serial, |record| records.push(record)).await?;
        Ok((records, serial))
    }

    /// The record under `key`, also if the key was deleted; `None` if it was never written.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn record(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        match &self.shared.engine {
            Engine::Sqlite { reader, .. } => reader.record(key).await,
            Engine::Postgres { reader, .. } => reader.record(key).await,
        }
    }

    /// The serial of the latest commit, from the database.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn serial(&self) -> Result<Serial, ReadError> {
        self.shared.engine.serial().await
    }

    /// What time it is for the database. `None` on SQLite, which has no clock of its own.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Standby`] also if the records were opened for reading only.
    pub async fn now(&self) -> Result<Option<SystemTime>, ReadError> {
        match &self.shared.engine {
            Engine::Sqlite { .. } => Ok(None),
            Engine::Postgres { reader, .. } => reader.now().await.map(Some),
        }
    }

    /// Waits until any process has made a commit after `after`; returns a serial that the store has reached, or `None` once the
    /// records are closed. A commit from before the call is not missed. Commits of this process are known at once, those of
    /// others within moments.
    pub async fn wait(&self, after: Serial) -> Option<Serial> {
        self.shared.closed.run_until_cancelled(self.shared.wake.wait(after)).await
    }

    /// The last look at the store that found nothing amiss. The records look by themselves, at least every two seconds if they are
    /// [watched](RecordsOptions::poll_interval): then a store needs no reading to learn whether there is anything to read.
    pub fn looked(&self) -> Option<Look> {
        self.shared.wake.looked()
    }

    /// Waits until a look has failed; at once back if one has since the last call. What was amiss, the next read says. For one
    /// caller.
    pub async fn alarmed(&self) {
        self.shared.wake.alarmed().await;
    }

    /// Begins to write records with the serials that they had elsewhere.
    ///
    /// # Errors
    /// [`RestoreError::NotEmpty`] if anything was ever committed here; [`RestoreError::Write`].
    pub async fn restore(&self) -> Result<Restore<'_>, RestoreError> {
        Restore::begin(self).await
    }

    /// Copies all records, as of one moment, into the empty store `target`, with their serials and deleted keys. Returns the
    /// serial of that moment.
    ///
    /// # Errors
    /// [`RestoreError`]; nothing is written then.
    pub async fn copy_into(&self, target: &Records) -> Result<Serial, RestoreError> {
        restore::copy(self, target).await
    }

    /// Copies the records, as of one moment, to a file of SQLite at `path`, where there is none yet, if they are such a file themselves;
    /// returns whether they are. It is not synced.
    ///
    /// # Errors
    /// [`RestoreError`]; a part of the file may be there then.
    pub async fn copy_file(&self, path: &Path) -> Result<bool, RestoreError> {
        let Engine::Sqlite { path: own, .. } = &self.shared.engine else { return Ok(false) };
        let timeout = self.shared.options.database_timeout;
        match sqlite::copy_file(own, path, timeout).await {
            Ok(()) => Ok(true),
            Err(error) if is_damage(&error) => Err(RestoreError::Read(error.into())),
            Err(error) => Err(commit_error(&error).into()),
        }
    }

    /// What is wrong with the records, a sentence each; empty if nothing is. Reads everything, and hands it to `sink` as
    /// [`Records::read_after`] does, up to the first record that cannot be read. Also returns the store's serial, or zero if
    /// there is such a record.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] if they cannot be read at all.
    pub async fn verify(
        &self,
        mut sink: impl FnMut(Record) + Send,
    ) -> Result<(Serial, Vec<String>), ReadError> {
        let mut flaws = match &self.shared.engine {
            Engine::Sqlite { reader, .. } => reader.flaws().await?,
            Engine::Postgres { .. } => Vec::new(),
        };
        let mut latest = Serial::ZERO;
        let mut deleted_with_blobs = Vec::new();
        let read = self.read_after(Serial::ZERO, |record| {
            latest = record.serial;
            if record.body.is_none() && !record.blobs.is_empty() {
                deleted_with_blobs.push(format!("the deleted record `{}` names blobs", record.key));
            }
            sink(record);
        });
        let read = match read.await {
            Ok(serial) if latest > serial => {
                flaws.push(format!("a record has serial {latest}, but the store is at {serial}"));
                serial
            }
            Ok(serial) => serial,
            Err(error @ ReadError::Damaged { .. }) => {
                flaws.push(format!("{error}; the records after it were not looked at"));
                Serial::ZERO
            }
            Err(
                error @ (ReadError::Unavailable(_) | ReadError::Rewound(_) | ReadError::Standby),
            ) => return Err(error),
        };
        flaws.append(&mut deleted_with_blobs);
        Ok((read, flaws))
    }

    /// [`Records::close`], after which a file of SQLite needs no log beside it, so that it can be read from a read-only disk,
    /// until a process opens it for writing.
    ///
    /// # Errors
    /// If another process has the file open, or it cannot be written; the records are closed anyway.
    pub async fn close_for_reading(&self) -> Result<(), CommitError> {
        self.close().await;
        match &self.shared.engine {
            Engine::Sqlite { path, .. } => {
                let closed = sqlite::close_log(path, self.shared.options.database_timeout).await;
                closed.map_err(|error| commit_error(&error))
            }
            Engine::Postgres { .. } => Ok(()),
        }
    }

    /// Refuses further commits, writes those that are queued, and closes the database. Later reads fail.
    pub async fn close(&self) {
        self.shared.closed.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        match &self.shared.engine {
            Engine::Sqlite { reader, .. } => reader.close().await,
            Engine::Postgres { reader, .. } => reader.close().await,
        }
    }
}

impl Drop for SharedRecords {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Engine {
    async fn read_after<S: Sink>(
        &self,
        after: Serial,
        seen: &ObservedStore,
        sink: &mut S,
    ) -> Result<Serial, ReadStop<S::Error>> {
        match self {
            Engine::Sqlite { reader, .. } => reader.read_after(after, seen, sink).await,
            Engine::Postgres { reader, .. } => reader.read_after(after, seen, sink).await,
        }
    }

    async fn serial(&self) -> Result<Serial, ReadError> {
        match self {
            Engine::Sqlite { reader, .. } => reader.serial().await,
            Engine::Postgres { reader, .. } => reader.serial().await,
        }
    }

    async fn look_through(&self) -> Result<Result<Serial, String>, sqlx::Error> {
        match self {
            Engine::Sqlite { reader, .. } => reader.look_through().await,
            Engine::Postgres { reader, .. } => reader.look_through().await,
        }
    }

    /// Tells `wake` what other processes write, until `closed`.
    fn follow(
        &self,
        tasks: &TaskTracker,
        wake: &Arc<Wake>,
        poll_interval: Duration,
        closed: &CancellationToken,
    ) {
        let (wake, closed) = (wake.clone(), closed.clone());
        match self {
            Engine::Sqlite { reader, .. } => {
                let reader = reader.clone();
                tasks.spawn(async move {
                    wake::poll(&reader, &wake, poll_interval, closed).await;
                });
            }
            Engine::Postgres { options, reader } => {
                let (options, reader) = (options.clone(), reader.clone());
                // A lost store notifies nobody.
                let poll_interval = poll_interval.min(wake::LOOK_INTERVAL);
                tasks.spawn(async move {
                    postgres::follow(&reader, &options, &wake, poll_interval, closed).await;
                });
            }
        }
    }
}

/// The layout `found` in a database, if there are steps for it here.
fn known_layout(found: i64, known: usize, location: &str) -> Result<usize, OpenError> {
    match usize::try_from(found) {
        Ok(found) if found <= known => Ok(found),
        Ok(found) => Err(OpenError::NewerLayout {
            location: location.to_owned(),
            found: found as u64,
            known: known as u64,
        }),
        Err(_) => Err(OpenError::Foreign { location: location.to_owned() }),
    }
}

/// Whether the layout is one that can be read without migrating it.
fn current_layout(found: usize, known: usize, location: &str) -> Result<(), OpenError> {
    match found == known {
        true => Ok(()),
        false => Err(OpenError::OlderLayout {
            location: location.to_owned(),
            found: found as u64,
            known: known as u64,
        }),
    }
}
