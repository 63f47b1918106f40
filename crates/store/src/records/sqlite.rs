//! The records in a file of SQLite: one connection that writes, some that read.
//!
//! A write-ahead log, so that neither waits for the other; `synchronous=FULL`, so that a commit is on the disk before it is
//! acknowledged. If another process uses the file, a write waits for it, up to the database timeout. A file that was replaced
//! or damaged is not written to any more.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use record::{Batch, Record, Serial};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::time::Instant;

use super::error::{
    Cause, CommitError, Damage, OpenError, ReadError, Rewound, commit_error, is_damage, open_error,
};
use super::group::{self, GroupOutcome, GroupPlan, RecordRow, States};
use super::observed_store::ObservedStore;
use super::pools::Pools;
use super::rows;
use super::watch::{Alarm, Watch};

type Sqlite = sqlx::Sqlite;

/// The steps from an empty file to today's layout; a step is never changed once released.
const STEPS: [&str; 1] = [include_str!("schema/sqlite/0001_records.sql")];

/// Today's layout.
pub(super) const LAYOUT: usize = STEPS.len();

/// Rows that are read ahead of their consumer. They pass from one thread to another, which for single rows costs more than
/// reading them.
const ROWS_AHEAD: usize = 1024;

/// [`Reader::layout`] of a file with tables that are not those of a store.
const FOREIGN: i64 = -1;

/// Rows in one statement, each with four parameters. Groups are written in pieces of powers of two, and of up to
/// [`ROWS_AT_ONCE`], so that few statements are ever prepared.
const ROWS_MAX: usize = 256;
const ROWS_AT_ONCE: usize = 8;

/// Memory for pages of a transaction that takes another store's commits, in kB, negative as SQLite wants it. Keys come in any order, so
/// pages of their index change again and again: each one that finds no place in memory meanwhile is written and read again each time.
const REPLICA_CACHE: &str = "-65536";

/// The same for a restore, which writes all records of a store at once: as much as the index of ten million keys can use. The index by
/// serial is made when all are there.
const RESTORE_CACHE: &str = "-1048576";

/// The side that reads.
pub(super) type Reader = super::reader::Reader<Sqlite>;

/// The side that writes; one for each process.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    watch: Watch,
    /// `None` after a failure: a new connection is safer than the old one.
    connection: Option<SqliteConnection>,
}

/// Creates the file and the directories above it, and brings its layout to today's.
pub(super) async fn create(
    path: &Path,
    location: &str,
    timeout: Duration,
) -> Result<Writer, OpenError> {
    let unavailable = |cause| OpenError::Unavailable { location: location.to_owned(), cause };
    create_parents(path).await.map_err(|error| unavailable(Cause::new(error)))?;
    create_closed(path).await;
    let options = writer_options(path, timeout);
    let connect = options.clone().create_if_missing(true);
    let deadline = Instant::now() + timeout;
    let mut connection = loop {
        match connect.connect().await {
            // If several processes switch the same new file to its log, SQLite tells all but one at once that it is busy,
            // without waiting as it does elsewhere.
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => break outcome.map_err(|error| open_error(location, &error))?,
        }
    };
    let watch = Watch::new(path).map_err(|error| unavailable(Cause::new(error)))?;
    migrate(&mut connection, location).await?;
    let sized = check_size(&mut connection, path).await;
    sized.map_err(|cause| OpenError::Unreadable { location: location.to_owned(), cause })?;
    let begun = watch.begin(&mut connection).await;
    begun.map_err(|error| unavailable(Cause::new(error)))?;
    Ok(Writer { options, watch, connection: Some(connection) })
}

/// Checks that the file has all its pages, unless some may still be in the log.
async fn check_size(connection: &mut SqliteConnection, path: &Path) -> Result<(), Cause> {
    let asked = async {
        let (_, logged, filed): (i64, i64, i64) =
            sqlx::query_as("PRAGMA wal_checkpoint(NOOP)").fetch_one(&mut *connection).await?;
        let pages: i64 =
            sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *connection).await?;
        let bytes: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut *connection).await?;
        Ok((logged <= filed).then_some(pages * bytes))
    };
    let expected = asked.await.map_err(|error: sqlx::Error| Cause::new(error))?;
    let found = std::fs::metadata(path).map_err(Cause::new)?.len();
    match expected.and_then(|expected| u64::try_from(expected).ok()) {
        Some(expected) if found < expected => Err(Cause::new(format_args!(
            "it has {found} bytes, but {expected} were expected: it was cut"
        ))),
        _ => Ok(()),
    }
}

fn writer_options(path: &Path, timeout: Duration) -> SqliteConnectOptions {
    options(path, timeout)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // For systems whose fsync does not reach the disk, such as macOS; no effect elsewhere.
        .pragma("fullfsync", "1")
        .pragma("checkpoint_fullfsync", "1")
        // The log shrinks again after a burst of commits.
        .pragma("journal_size_limit", "67108864")
}

/// Whether there is a log beside the file: a process has it open, or was killed, and the file alone may lack commits.
pub(super) fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::symlink_metadata(log).is_ok()
}

/// Opens the side that reads, beside `writer` if there is one; it connects when there is something to read. Of a file that
/// `is_at_rest`, SQLite takes no lock and makes no log.
pub(super) fn reader(
    path: &Path,
    readers_max: u32,
    timeout: Duration,
    writer: Option<&Writer>,
    is_at_rest: bool,
) -> Reader {
    let options = options(path, timeout).read_only(writer.is_none()).immutable(is_at_rest);
    let options = options.pragma("query_only", "1");
    let pools = Pools::new(move || {
        SqlitePoolOptions::new()
            .max_connections(readers_max)
            .acquire_timeout(timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_lazy_with(options.clone())
    });
    let watch = writer.map(|writer| writer.watch.clone());
    Reader { pools, timeout, patience: None, serials: rows::SERIALS, begin: "BEGIN", watch }
}

/// Converts a file that no process has open into one that needs no log beside it, so that it can be read from a read-only disk.
/// Opening it for writing converts it back.
pub(super) async fn close_log(path: &Path, timeout: Duration) -> Result<(), sqlx::Error> {
    let options = options(path, timeout).journal_mode(SqliteJournalMode::Delete);
    options.connect().await?.close().await
}

/// Copies the file at `from`, as of one moment, to `to`, where there is none, and where it needs no log. SQLite copies the table and each
/// index in its own order, so this takes little memory, and a page is written once.
pub(super) async fn copy_file(
    from: &Path,
    to: &Path,
    timeout: Duration,
) -> Result<(), sqlx::Error> {
    create_closed(to).await;
    // The caller syncs the whole file.
    let options = options(from, timeout).read_only(true).synchronous(SqliteSynchronous::Off);
    let to = std::path::absolute(to)?;
    let Some(to) = to.to_str() else {
        let text = format!("`{}` is no path in UTF-8, as SQLite wants it", to.display());
        return Err(sqlx::Error::Configuration(text.into()));
    };
    let mut connection = options.connect().await?;
    let copied = sqlx::query("VACUUM INTO $1").bind(to).execute(&mut connection).await;
    connection.close().await?;
    copied.map(drop)
}

pub(super) fn options(path: &Path, timeout: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(timeout)
        .row_buffer_size(ROWS_AHEAD)
        .disable_statement_logging()
}

/// Whether another connection's lock is in the way: SQLITE_BUSY, of whichever kind.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == 5)
}

/// Creates the directories above `path`, each one durable before the next.
async fn create_parents(path: &Path) -> std::io::Result<()> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(());
    };
    let parent = parent.to_owned();
    let create = move || {
        let missing: Vec<PathBuf> = parent
            .ancestors()
            .take_while(|it| !it.as_os_str().is_empty() && !it.exists())
            .map(Path::to_owned)
            .collect();
        for directory in missing.iter().rev() {
            match DirBuilder::new().mode(0o750).create(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error);
                }
                _ => {}
            }
            let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
            std::fs::File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    };
    tokio::task::spawn_blocking(create).await.map_err(std::io::Error::other)?
}

/// Creates the file if there is none, readable only for its owner: it has the hashes of passwords. SQLite would let everybody
/// read it; the files beside it get its mode. Errors are ignored here, as SQLite meets them, too.
pub(super) async fn create_closed(path: &Path) {
    let path = path.to_owned();
    let create = move || OpenOptions::new().write(true).create_new(true).mode(0o640).open(path);
    drop(tokio::task::spawn_blocking(create).await);
}

async fn migrate(connection: &mut SqliteConnection, location: &str) -> Result<(), OpenError> {
    let unavailable = |error: sqlx::Error| open_error(location, &error);
    // Reading comes first: a process that starts beside a busy one need not wait for its writes.
    let found = layout(connection).await.map_err(unavailable)?;
    if super::known_layout(found, LAYOUT, location)? == LAYOUT {
        return Ok(());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
    let found = layout(&mut transaction).await.map_err(unavailable)?;
    let found = super::known_layout(found, LAYOUT, location)?;
    for (number, step) in STEPS.iter().enumerate().skip(found) {
        tracing::info!(
            location,
            layout = number + 1,
            "bringing the tables of the records to this layout"
        );
        sqlx::raw_sql(*step).execute(&mut *transaction).await.map_err(unavailable)?;
    }
    sqlx::query("UPDATE larder_layout SET layout = $1")
        .bind(LAYOUT as i64)
        .execute(&mut *transaction)
        .await
        .map_err(unavailable)?;
    transaction.commit().await.map_err(unavailable)
}

/// The layout of the file: how many steps it has taken, or [`FOREIGN`].
async fn layout(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_schema").fetch_all(&mut *connection).await?;
    if tables.is_empty() {
        return Ok(0);
    }
    if !tables.iter().any(|name| name == "larder_layout") {
        return Ok(FOREIGN);
    }
    sqlx::query_scalar("SELECT layout FROM larder_layout").fetch_one(connection).await
}

impl Writer {
    /// Writes the batches in one transaction.
    ///
    /// A failed COMMIT is rolled back by SQLite and reported as not written. One thing cannot be
    /// excluded: if the disk failed while the log was synced, and the machine then loses power
    /// before the next commit, the log may be found complete after all.
    pub(super) async fn commit(
        &mut self,
        batches: &[&Batch],
        seen: &ObservedStore,
    ) -> GroupOutcome {
        let lost = |rewound: Rewound| {
            Ok((batches.iter().map(|_| Err(rewound.into())).collect(), seen.serial))
        };
        if let Some(rewound @ (Rewound::Stranger | Rewound::Replaced | Rewound::Damaged(_))) =
            seen.lost
        {
            return lost(rewound);
        }
        // Connecting to a file that replaced the open one would write to it.
        let unavailable = |error| CommitError::Unavailable(Cause::new(error));
        if !self.watch.is_in_place().map_err(unavailable)? {
            return lost(Rewound::Replaced);
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.reconnect().await {
                Err(error) if is_damage(&error) => {
                    return lost(Rewound::Damaged(Damage::Unreadable));
                }
                connected => connected.map_err(|error| commit_error(&error))?,
            },
        };
        let outcome = match self.watch.look(&mut connection).await {
            Ok(()) => commit(&mut connection, batches, seen).await,
            Err(Alarm::Lost(rewound)) => {
                self.connection = Some(connection);
                return lost(rewound);
            }
            Err(Alarm::Unknown(error)) => Err(error),
        };
        let plan = match outcome {
            Ok(plan) => plan,
            Err(error) => {
                self.watch.end().await;
                // Waits until the connection is closed, and so until its lock is free.
                let _ = connection.close().await;
                if is_damage(&error) {
                    return lost(Rewound::Damaged(Damage::Unreadable));
                }
                return Err(commit_error(&error));
            }
        };
        // Checked again: writes into a file that was replaced or damaged meanwhile may be lost.
        let looked = self.watch.look_after(&mut connection).await;
        self.connection = Some(connection);
        match looked {
            Ok(()) => Ok((plan.outcomes, plan.serial)),
            Err(Alarm::Lost(rewound)) => lost(rewound),
            Err(Alarm::Unknown(error)) => Err(CommitError::OutcomeUnknown(Cause::new(error))),
        }
    }

    async fn reconnect(&self) -> Result<SqliteConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        // The log and the shared memory are there once something was read.
        layout(&mut connection).await?;
        self.watch.begin(&mut connection).await?;
        Ok(connection)
    }

    pub(super) async fn close(&mut self) {
        self.watch.end().await;
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the database was not closed cleanly");
        }
    }
}

async fn commit<'a>(
    connection: &mut SqliteConnection,
    batches: &[&'a Batch],
    seen: &'a ObservedStore,
) -> Result<GroupPlan<'a>, sqlx::Error> {
    let keys = group::keys(batches, seen);
    let states = begin(connection, &keys, seen).await?;
    let plan = group::plan(batches, seen, states);
    if plan.rows.is_empty() {
        sqlx::raw_sql("ROLLBACK").execute(connection).await?;
        return Ok(plan);
    }
    insert(connection, &plan.rows, OVERWRITE, Some(plan.serial)).await?;
    Ok(plan)
}

/// Begins a transaction and reads the state of `keys`. It is not sqlx's, which asks for its beginning and for its end on their own: each
/// question wakes SQLite's thread and this one. If it does not come to its end, its connection must be closed.
async fn begin<'a>(
    connection: &mut SqliteConnection,
    keys: &[&'a str],
    seen: &ObservedStore,
) -> Result<States<'a>, sqlx::Error> {
    let (anchor, name) = seen.anchor();
    let asked = serde_json::to_string(keys).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let rows = sqlx::query(
        "BEGIN IMMEDIATE; SELECT store.serial, records.key, records.serial, records.body IS NOT NULL, \
         ($2 = '' OR EXISTS (SELECT 1 FROM larder_records WHERE key = $2 AND body = $3)) \
         FROM larder_store AS store LEFT JOIN larder_records AS records \
         ON records.key IN (SELECT value FROM json_each($1)) WHERE store.id = 1",
    )
    .bind(asked)
    .bind(anchor)
    .bind(name)
    .fetch_all(connection)
    .await?;
    group::states(keys, rows.iter().map(rows::state_of))
}

/// How a commit overwrites an existing key.
const OVERWRITE: &str = "ON CONFLICT (key) DO UPDATE SET \
    serial = excluded.serial, body = excluded.body, blobs = excluded.blobs";

/// Writes `rows`, whose keys differ; `or` says what becomes of a key that is there already. With the last ones it writes the store's
/// `serial`, if that is given, and ends the transaction.
async fn insert(
    connection: &mut SqliteConnection,
    rows: &[RecordRow<'_>],
    or: &'static str,
    serial: Option<Serial>,
) -> Result<(), sqlx::Error> {
    let mut rest = rows;
    while !rest.is_empty() {
        let count = match rest.len() {
            few @ ..=ROWS_AT_ONCE => few,
            many => 1 << many.min(ROWS_MAX).ilog2(),
        };
        let (rows, after) = rest.split_at(count);
        rest = after;
        let serial = serial.filter(|_| rest.is_empty());
        // Without numbers: SQLite looks for the number of each parameter among all of them.
        let mut statement = format!(
            "INSERT INTO larder_records (key, serial, body, blobs) VALUES {} {or}",
            vec!["(?,?,?,?)"; rows.len()].join(",")
        );
        if serial.is_some() {
            statement += "; UPDATE larder_store SET serial = ? WHERE id = 1; COMMIT";
        }
        // Safe: only parameters are put together.
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for row in rows {
            query = query.bind(row.key).bind(row.serial).bind(row.body).bind(row.blobs.as_slice());
        }
        if let Some(serial) = serial {
            query = query.bind(serial.0.cast_signed());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn count(connection: &mut SqliteConnection, serial: Serial) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE larder_store SET serial = $1 WHERE id = 1")
        .bind(serial.0.cast_signed())
        .execute(connection)
        .await?;
    Ok(())
}

/// A restore under way; dropped, it leaves nothing behind.
pub(super) struct Restore {
    connection: SqliteConnection,
    /// The statement that makes the index by serial again, once the first records are written.
    by_serial: Option<String>,
}

impl Restore {
    /// Begins a transaction on a new connection, with the write lock.
    pub(super) async fn begin(path: &Path, timeout: Duration) -> Result<Restore, sqlx::Error> {
        let options = writer_options(path, timeout).pragma("cache_size", RESTORE_CACHE);
        let mut connection = options.connect().await?;
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await?;
        Ok(Restore { connection, by_serial: None })
    }

    pub(super) async fn store_state(&mut self) -> Result<(i64, bool), sqlx::Error> {
        let row = sqlx::query(rows::STORE_STATE).fetch_one(&mut self.connection).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Writes `rows`; a key that is there already is an error.
    pub(super) async fn insert(&mut self, rows: &[RecordRow<'_>]) -> Result<(), sqlx::Error> {
        if self.by_serial.is_none() {
            let index = "SELECT sql FROM sqlite_schema WHERE name = 'larder_records_by_serial'";
            self.by_serial = Some(sqlx::query_scalar(index).fetch_one(&mut self.connection).await?);
            sqlx::raw_sql("DROP INDEX larder_records_by_serial")
                .execute(&mut self.connection)
                .await?;
        }
        insert(&mut self.connection, rows, "", None).await
    }

    pub(super) async fn finish(mut self, serial: Serial) -> Result<(), sqlx::Error> {
        if let Some(index) = self.by_serial.take() {
            sqlx::raw_sql(AssertSqlSafe(index)).execute(&mut self.connection).await?;
        }
        count(&mut self.connection, serial).await?;
        sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
        self.connection.close().await
    }
}

/// A connection that writes what another store has committed.
pub(super) struct Replica {
    connection: SqliteConnection,
}

impl Replica {
    pub(super) async fn open(path: &Path, timeout: Duration) -> Result<Replica, sqlx::Error> {
        let options = writer_options(path, timeout).pragma("cache_size", REPLICA_CACHE);
        Ok(Replica { connection: options.connect().await? })
    }

    /// Begins a transaction with the write lock; returns the serial of the store.
    pub(super) async fn begin(&mut self) -> Result<Serial, sqlx::Error> {
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut self.connection).await?;
        let row = sqlx::query(rows::SERIAL).fetch_one(&mut self.connection).await?;
        Ok(Serial(row.try_get::<i64, _>(0)?.cast_unsigned()))
    }

    /// Writes `rows` over those of the same keys. With a `serial`, that is the store's from then on, and the transaction ends.
    pub(super) async fn insert(
        &mut self,
        rows: &[RecordRow<'_>],
        serial: Option<Serial>,
    ) -> Result<(), sqlx::Error> {
        insert(&mut self.connection, rows, OVERWRITE, serial).await?;
        if let Some(serial) = serial.filter(|_| rows.is_empty()) {
            count(&mut self.connection, serial).await?;
            sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
        }
        Ok(())
    }

    /// A transaction that has not ended is rolled back.
    pub(super) async fn close(self) {
        if let Err(error) = self.connection.close().await {
            tracing::debug!(%error, "a connection was not closed cleanly");
        }
    }
}

impl Reader {
    /// The records of the highest serials.
    pub(super) async fn latest(&self, records_max: usize) -> Result<Vec<Record>, ReadError> {
        let mut connection = self.pool().acquire().await?;
        let rows = sqlx::query(rows::LATEST).bind(records_max as i64).fetch_all(&mut *connection);
        rows.await?.iter().map(rows::record_of).collect()
    }

    /// The layout of the file, for [`super::known_layout`].
    pub(super) async fn layout(&self) -> Result<i64, sqlx::Error> {
        layout(&mut *self.pool().acquire().await?).await
    }

    /// SQLite's own list of what is wrong with the file.
    pub(super) async fn flaws(&self) -> Result<Vec<String>, ReadError> {
        let mut flaws: Vec<String> =
            sqlx::query_scalar("PRAGMA integrity_check").fetch_all(&self.pool()).await?;
        flaws.retain(|flaw| flaw != "ok");
        Ok(flaws)
    }

    pub(super) async fn close(&self) {
        self.pools.close().await;
    }
}
