//! The records in a database of PostgreSQL, shared by any number of processes.
//!
//! Each commit locks the one row with the serial until its transaction ends. So serials become visible in order, and the keys
//! cannot change after they were read. A group takes four round trips: lock, read the keys, write everything, commit. NOTIFY
//! wakes the other processes and carries nothing.
//!
//! If a connection breaks during COMMIT, it is unknown whether the commit happened. So each process also writes its last serial
//! into a row of its own, in the same transaction. After such a break it locks the serial's row on a new connection (which
//! waits until the old session has ended) and reads its own row: then it knows. Only if the database stays away, the outcome is
//! reported as unknown.
//!
//! LISTEN and the session's settings need a whole session, not one that a pooler in transaction mode shares.

use std::time::{Duration, SystemTime};

use record::{Batch, Serial};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{Cause, CommitError, OpenError, ReadError, commit_error, open_error};
use super::group::{self, GroupOutcome, GroupPlan, RecordRow};
use super::observed_store::ObservedStore;
use super::pools::{NumberedPool, Pools};
use super::presence;
use super::reader::{is_silence, within};
use super::rows;
use super::wake::Wake;

/// The steps from nothing to today's layout; a step is never changed once released.
const STEPS: [&str; 1] = [include_str!("schema/postgres/0001_records.sql")];

/// Today's layout.
pub(super) const LAYOUT: usize = STEPS.len();

/// The lock of a process that changes the layout: `larder` in ASCII.
const LAYOUT_LOCK: i64 = 0x6c61_7264_6572;

/// The notification channel that wakes the other processes.
const CHANNEL: &str = "larder_records";

/// How often the database is polled while LISTEN is lost.
const POLL_INTERVAL_UNHEARD: Duration = Duration::from_millis(50);

/// Timeout for closing connections: a database that hangs would block us forever.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection may take over something that a database answers at once. A firewall may have forgotten the connection
/// silently.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after a poll over a connection that is silently gone, or to a server that has become the primary since the poll before,
/// new connections ask at the latest. With the poll's interval, and the time to connect and to read, this bounds how far a process is
/// behind, and how soon it writes after a promotion: docs/store.md promises both.
pub const ASKED_ANEW_AFTER: Duration = PATIENCE.saturating_add(POLL_INTERVAL_UNHEARD);

/// How long it may take to connect and be let in, for who asks again anyway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a writer's statement may take, and a second more for each MiB that it carries.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that was of use so recently is not asked whether it still is: that would be a round trip for each use.
const RECENT: Duration = Duration::from_secs(1);

/// Attempts at a group, each on a new connection, while it is certain that the one before has written nothing.
const ATTEMPTS_MAX: u32 = 4;

/// BEGIN takes the lock, in a separate statement before the reading: the reading statement's snapshot must not be older than
/// the lock.
const BEGIN_AND_LOCK: &str = "BEGIN; SELECT serial FROM larder_store WHERE id = 1 FOR UPDATE";

/// Without a sort the rows come by the index, the first one at once. A sort would write all bodies of a large store to the
/// database server's disk first.
const BEGIN_READING: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_sort = off";

/// The side that reads.
pub(super) type Reader = super::reader::Reader<sqlx::Postgres>;

/// The side that writes; one for each process.
pub(super) struct Writer {
    options: PgConnectOptions,
    timeout: Duration,
    /// The name of this process's row in `larder_writers`.
    id: String,
    /// With the time of its last use. `None` after a failure.
    connection: Option<(PgConnection, Instant)>,
}

/// The outcomes of a group's batches, and the serial after it.
type GroupResult = (Vec<Result<Serial, CommitError>>, Serial);

/// What became of a COMMIT that was not answered.
enum CommitOutcome {
    Written(GroupResult),
    /// Nothing was written, and this was the error.
    Not(sqlx::Error),
}

/// When a commit failed.
enum Failure {
    /// Before COMMIT was sent: nothing is written.
    Before(sqlx::Error),
    /// During COMMIT: this may be written.
    During(sqlx::Error, GroupResult),
}

/// Connects, and brings the layout to today's; any number of processes may do so at once.
pub(super) async fn create(
    options: &PgConnectOptions,
    location: &str,
    timeout: Duration,
) -> Result<Writer, OpenError> {
    let unavailable = |error: sqlx::Error| open_error(location, &error);
    let mut connection = connect(options, timeout).await.map_err(unavailable)?;
    let encoding = sqlx::query_scalar("SELECT current_setting('server_encoding')");
    let encoding = encoding.fetch_one(&mut connection);
    let encoding: String = within(Instant::now() + timeout, encoding).await.map_err(unavailable)?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding { location: location.to_owned(), found: encoding });
    }
    let found = within(Instant::now() + timeout, layout(&mut connection)).await;
    let found = found.map_err(unavailable)?;
    if super::known_layout(found, LAYOUT, location)? < LAYOUT {
        // A migration may take any time, but waits for another session's lock no longer than other statements do.
        migrate(&mut connection, location).await?;
    }
    let greet = async {
        // Processes that ended long ago: a running process has renewed its row within seconds.
        sqlx::query("DELETE FROM larder_writers WHERE seen_at < now() - interval '30 days'")
            .execute(&mut connection)
            .await?;
        // A name that no other process ever had.
        sqlx::query_scalar("SELECT gen_random_uuid()::text").fetch_one(&mut connection).await
    };
    let id = within(Instant::now() + timeout, greet).await.map_err(unavailable)?;
    let connection = Some((connection, Instant::now()));
    Ok(Writer { options: options.clone(), timeout, id, connection })
}

/// Whether the database has none of Larder's tables.
pub(super) async fn is_new(url: &str, timeout: Duration) -> Result<bool, sqlx::Error> {
    let options = options(url)?;
    let look = async {
        let mut connection = options.connect().await?;
        let is_new: bool = sqlx::query_scalar(
            "SELECT NOT EXISTS (SELECT 1 FROM pg_class WHERE relname IN \
             ('larder_layout', 'larder_store', 'larder_records') AND pg_table_is_visible(oid))",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        Ok(is_new)
    };
    within(Instant::now() + timeout, look).await
}

/// Opens the side that reads; no connection is made before there is something to read. A process that only reads may be given
/// a standby.
pub(super) fn reader(
    options: &PgConnectOptions,
    readers_max: u32,
    timeout: Duration,
    is_read_only: bool,
) -> Reader {
    let options = options.clone();
    let pools = Pools::new(move || {
        PgPoolOptions::new()
            .max_connections(readers_max)
            .acquire_timeout(timeout.min(CONNECT_TIMEOUT))
            .test_before_acquire(false)
            .before_acquire(|connection, about| {
                Box::pin(
                    async move { Ok(about.idle_for < RECENT || connection.ping().await.is_ok()) },
                )
            })
            .connect_lazy_with(options.clone())
    });
    let serials = match is_read_only {
        true => rows::SERIALS,
        false => rows::SERIALS_OF_PRIMARY,
    };
    let patience = Some(timeout.min(PATIENCE));
    Reader { pools, timeout, patience, serials, begin: BEGIN_READING, watch: None }
}

/// Reads a URL that was checked as a location.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    let options: PgConnectOptions = url.parse()?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("larder"),
    };
    Ok(options.disable_statement_logging())
}

/// A connection to write with.
async fn connect(
    options: &PgConnectOptions,
    timeout: Duration,
) -> Result<PgConnection, sqlx::Error> {
    let connect = async {
        let mut connection = options.connect().await?;
        let milliseconds =
            |of: Duration| format!("{}ms", of.as_millis().clamp(1, i32::MAX as u128));
        let statement = timeout.min(STATEMENT_TIMEOUT);
        // A session that waits for another's lock says so before it looks as if it were cut off. One that is cut off, or whose
        // process stands still, does not keep the lock for long. Acknowledged commits are durable: `off` in the server's
        // configuration is overridden, any stricter setting is not.
        sqlx::query(
            "SELECT set_config('lock_timeout', $1, false), \
             set_config('idle_in_transaction_session_timeout', $2, false), \
             set_config('tcp_keepalives_idle', '5', false), \
             set_config('tcp_keepalives_interval', '2', false), \
             set_config('tcp_keepalives_count', '3', false), \
             set_config('tcp_user_timeout', '10s', false), \
             set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
             WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
        )
        .bind(milliseconds(statement * 2 / 3))
        .bind(milliseconds(statement))
        .execute(&mut connection)
        .await?;
        Ok(connection)
    };
    within(Instant::now() + timeout, connect).await
}

async fn migrate(connection: &mut PgConnection, location: &str) -> Result<(), OpenError> {
    let unavailable = |error: sqlx::Error| open_error(location, &error);
    let mut transaction = connection.begin().await.map_err(unavailable)?;
    lock_layout(&mut transaction).await.map_err(unavailable)?;
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

/// The layout of the schema: how many steps it has taken.
async fn layout(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    if !has_table(connection, "larder_layout").await? {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT layout FROM larder_layout").fetch_one(connection).await
}

/// Whether there is a table with this name.
pub(super) async fn has_table(
    connection: &mut PgConnection,
    name: &str,
) -> Result<bool, sqlx::Error> {
    // to_regclass would not do: a session remembers that a table was missing, even after it has waited for another session's
    // lock.
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relname = $1::text AND pg_table_is_visible(oid))",
    )
    .bind(name)
    .fetch_one(connection)
    .await
}

/// Keeps other processes from making tables until the transaction ends.
pub(super) async fn lock_layout(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LAYOUT_LOCK);
    lock.execute(connection).await?;
    Ok(())
}

impl Writer {
    /// Writes the batches in one transaction. While it is certain that nothing was written, a lost connection costs only time.
    pub(super) async fn commit(
        &mut self,
        batches: &[&Batch],
        seen: &ObservedStore,
    ) -> GroupOutcome {
        let give_up_at = Instant::now() + self.timeout * 2;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let may_repeat = attempts < ATTEMPTS_MAX && Instant::now() < give_up_at;
            // A connection that is kept from the last group may have died since, say because the database was restarted.
            let connection = match self.kept().await {
                Some(connection) => connection,
                None => {
                    let connected = connect(&self.options, self.timeout).await;
                    connected.map_err(|error| commit_error(&error))?
                }
            };
            let error = match self.commit_on(connection, batches, seen).await {
                Ok(written) => return Ok(written),
                Err(Failure::Before(error)) if may_repeat && is_connection_lost(&error) => error,
                Err(Failure::Before(error)) => return Err(commit_error(&error)),
                Err(Failure::During(error, written)) => match self.settle(error, written).await? {
                    CommitOutcome::Written(written) => return Ok(written),
                    CommitOutcome::Not(error) if may_repeat => error,
                    CommitOutcome::Not(error) => {
                        return Err(CommitError::Unavailable(Cause::new(error)));
                    }
                },
            };
            tracing::info!(%error, "the connection for writes was lost; connecting again");
        }
    }

    /// The connection of the last group, unless it does not answer.
    async fn kept(&mut self) -> Option<PgConnection> {
        let (mut connection, used_at) = self.connection.take()?;
        if used_at.elapsed() >= RECENT {
            let deadline = Instant::now() + self.timeout.min(PATIENCE);
            within(deadline, connection.ping()).await.ok()?;
        }
        Some(connection)
    }

    /// Keeps the connection on success; otherwise drops it, and its transaction with it.
    async fn commit_on(
        &mut self,
        mut connection: PgConnection,
        batches: &[&Batch],
        seen: &ObservedStore,
    ) -> Result<GroupResult, Failure> {
        lock(&mut connection, self.timeout).await.map_err(Failure::Before)?;
        let write = write(&mut connection, &self.id, batches, seen, self.timeout);
        let plan = write.await.map_err(Failure::Before)?;
        let written = (plan.outcomes, plan.serial);
        // A group that writes nothing has nothing to lose: its outcomes held under the lock.
        let is_empty = plan.rows.is_empty();
        let end = if is_empty { "ROLLBACK" } else { "COMMIT" };
        let end = sqlx::raw_sql(end).execute(&mut connection);
        match within(statement_deadline(self.timeout, 0), end).await {
            Ok(_) => self.connection = Some((connection, Instant::now())),
            Err(error) if is_empty => {
                tracing::debug!(%error, "an empty transaction cannot be rolled back")
            }
            Err(error) => return Err(Failure::During(error, written)),
        }
        Ok(written)
    }

    /// Finds out what became of a COMMIT that was not answered.
    async fn settle(
        &self,
        error: sqlx::Error,
        written: GroupResult,
    ) -> Result<CommitOutcome, CommitError> {
        tracing::warn!(%error, serial = %written.1, "a commit was not answered; asking the database whether it was made");
        // Twice the timeout: after one the server has ended the session that was cut off.
        let deadline = Instant::now() + self.timeout * 2;
        loop {
            match within(deadline, self.last_serial()).await {
                Ok(last) if last == Some(written.1) => return Ok(CommitOutcome::Written(written)),
                Ok(_) => return Ok(CommitOutcome::Not(error)),
                Err(still) if Instant::now() >= deadline => {
                    tracing::error!(error = %still, serial = %written.1, "a commit's outcome is unknown");
                    return Err(CommitError::OutcomeUnknown(Cause::new(error)));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// The last serial that this process wrote, read when none of its sessions writes any more.
    async fn last_serial(&self) -> Result<Option<Serial>, sqlx::Error> {
        let mut connection = connect(&self.options, self.timeout.min(CONNECT_TIMEOUT)).await?;
        sqlx::raw_sql(BEGIN_AND_LOCK).execute(&mut connection).await?;
        let last: Option<i64> =
            sqlx::query_scalar("SELECT last_serial FROM larder_writers WHERE writer = $1")
                .bind(&self.id)
                .fetch_optional(&mut connection)
                .await?;
        connection.close().await?;
        Ok(last.map(|last| Serial(last.cast_unsigned())))
    }

    pub(super) async fn close(&mut self) {
        if let Some((connection, _)) = self.connection.take()
            && let Err(error) = within(Instant::now() + CLOSE_TIMEOUT, connection.close()).await
        {
            tracing::debug!(%error, "the connection to the database was not closed cleanly");
        }
    }
}

/// Whether an error means that the connection is lost, rather than that a statement failed.
fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        // 57P01..57P03: shut down by an administrator, crashed, cannot connect now; 25P03: idle for
        // too long inside a transaction; 57P05: idle for too long outside of one.
        sqlx::Error::Database(error) => matches!(
            error.code().as_deref(),
            Some("57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "08006" | "08003")
        ),
        _ => false,
    }
}

/// When a statement that carries so many bytes must have been answered.
fn statement_deadline(timeout: Duration, bytes: usize) -> Instant {
    Instant::now() + timeout.min(STATEMENT_TIMEOUT) + Duration::from_millis(bytes as u64 / 1024)
}

/// Begins a transaction and takes the lock that orders the writers. The server says after a while that another one still has it:
/// so a connection that was cut off is told from one that waits.
async fn lock(connection: &mut PgConnection, timeout: Duration) -> Result<(), sqlx::Error> {
    let give_up_at = Instant::now() + timeout;
    loop {
        let lock = sqlx::raw_sql(BEGIN_AND_LOCK).execute(&mut *connection);
        let Err(error) = within(statement_deadline(timeout, 0), lock).await else {
            return Ok(());
        };
        let code = error.as_database_error().and_then(|error| error.code());
        // 55P03: lock_not_available.
        if code.as_deref() != Some("55P03") || Instant::now() >= give_up_at {
            return Err(error);
        }
        let end = sqlx::raw_sql("ROLLBACK").execute(&mut *connection);
        within(statement_deadline(timeout, 0), end).await?;
    }
}

/// Does everything in a transaction but begin and end it.
async fn write<'a>(
    connection: &mut PgConnection,
    writer: &str,
    batches: &[&'a Batch],
    seen: &'a ObservedStore,
    timeout: Duration,
) -> Result<GroupPlan<'a>, sqlx::Error> {
    let keys = group::keys(batches, seen);
    let (anchor, name) = seen.anchor();
    let states = sqlx::query(
        "SELECT store.serial, records.key, records.serial, records.body IS NOT NULL, \
         ($2 = '' OR EXISTS (SELECT 1 FROM larder_records WHERE key = $2 AND body = $3)) \
         FROM larder_store AS store LEFT JOIN larder_records AS records \
         ON records.key = ANY($1) WHERE store.id = 1",
    )
    .bind(&keys)
    .bind(anchor)
    .bind(name)
    .fetch_all(&mut *connection);
    let states = within(statement_deadline(timeout, 0), states).await?;
    let states = group::states(&keys, states.iter().map(rows::state_of))?;
    let plan = group::plan(batches, seen, states);
    if plan.rows.is_empty() {
        return Ok(plan);
    }
    let bytes = batches.iter().map(|batch| group::bytes_of(batch)).sum();
    let write = with_rows(WRITE_GROUP, &plan.rows)
        .bind(plan.serial.0.cast_signed())
        .bind(writer)
        .execute(connection);
    within(statement_deadline(timeout, bytes), write).await?;
    Ok(plan)
}

/// Writes the rows in `$1` to `$4`, the store's serial `$5`, and that serial into the row of the
/// writer `$6`: one statement, so that it is one round trip.
const WRITE_GROUP: &str = "\
    WITH written AS ( \
        INSERT INTO larder_records (key, serial, body, blobs) \
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[]) \
        ON CONFLICT (key) DO UPDATE SET \
        serial = excluded.serial, body = excluded.body, blobs = excluded.blobs \
    ), counted AS ( \
        UPDATE larder_store SET serial = $5 WHERE id = 1 \
    ), marked AS ( \
        INSERT INTO larder_writers (writer, last_serial, seen_at) VALUES ($6, $5, now()) \
        ON CONFLICT (writer) DO UPDATE SET \
        last_serial = excluded.last_serial, seen_at = excluded.seen_at \
    ) SELECT pg_notify('larder_records', '')";

/// `statement` with `rows` bound as four arrays, `$1` to `$4`.
fn with_rows(
    statement: &'static str,
    rows: &[RecordRow<'_>],
) -> sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments> {
    let keys: Vec<&str> = rows.iter().map(|row| row.key).collect();
    let serials: Vec<i64> = rows.iter().map(|row| row.serial).collect();
    let bodies: Vec<Option<&[u8]>> = rows.iter().map(|row| row.body).collect();
    let blobs: Vec<&[u8]> = rows.iter().map(|row| row.blobs.as_slice()).collect();
    sqlx::query(statement).bind(keys).bind(serials).bind(bodies).bind(blobs)
}

/// A restore under way; dropped, it leaves nothing behind.
pub(super) struct Restore {
    connection: PgConnection,
}

impl Restore {
    /// Begins a transaction on a new connection, with the write lock.
    pub(super) async fn begin(
        options: &PgConnectOptions,
        timeout: Duration,
    ) -> Result<Restore, sqlx::Error> {
        let mut connection = connect(options, timeout).await?;
        // The records to restore may come slowly.
        sqlx::raw_sql("SET idle_in_transaction_session_timeout = 0")
            .execute(&mut connection)
            .await?;
        sqlx::raw_sql(BEGIN_AND_LOCK).execute(&mut connection).await?;
        Ok(Restore { connection })
    }

    pub(super) async fn store_state(&mut self) -> Result<(i64, bool), sqlx::Error> {
        let row = sqlx::query(rows::STORE_STATE).fetch_one(&mut self.connection).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Writes `rows`; a key that is there already is an error.
    pub(super) async fn insert(&mut self, rows: &[RecordRow<'_>]) -> Result<(), sqlx::Error> {
        let statement = "INSERT INTO larder_records (key, serial, body, blobs) \
                         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[])";
        with_rows(statement, rows).execute(&mut self.connection).await?;
        Ok(())
    }

    pub(super) async fn finish(mut self, serial: Serial) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE larder_store SET serial = $1 WHERE id = 1")
            .bind(serial.0.cast_signed())
            .execute(&mut self.connection)
            .await?;
        sqlx::raw_sql("SELECT pg_notify('larder_records', '')")
            .execute(&mut self.connection)
            .await?;
        sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
        self.connection.close().await
    }
}

impl Reader {
    /// The layout of the schema, for [`super::known_layout`].
    pub(super) async fn layout(&self) -> Result<i64, sqlx::Error> {
        let pool = self.pool();
        let layout = async { layout(&mut *pool.acquire().await?).await };
        within(Instant::now() + self.timeout * 2, layout).await
    }

    /// What time it is for the database.
    pub(super) async fn now(&self) -> Result<SystemTime, ReadError> {
        let row = self.ask(|NumberedPool { pool, .. }| async move {
            let mut connection = pool.acquire().await?;
            let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_is_in_recovery()";
            sqlx::query(now).fetch_one(&mut *connection).await
        });
        let row = row.await?;
        if row.try_get(1)? {
            return Err(ReadError::Standby);
        }
        let milliseconds: i64 = row.try_get(0)?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds.max(0).cast_unsigned()))
    }

    /// Closes the connections; those that still wait for an answer are dropped after a moment.
    pub(super) async fn close(&self) {
        if tokio::time::timeout(CLOSE_TIMEOUT, self.pools.close()).await.is_err() {
            tracing::warn!("the database does not answer; its connections are dropped");
        }
    }
}

/// Announces new serials until `closed`: by LISTEN, and by asking over the same connection every `poll_interval`. If that is not
/// answered at once, the connection was cut off, and the other ones of this process most likely, too: new ones take their place.
pub(super) async fn follow(
    reader: &Reader,
    options: &PgConnectOptions,
    wake: &Wake,
    poll_interval: Duration,
    closed: CancellationToken,
) {
    let follow = async {
        let mut is_lost = false;
        let mut attempt_at = Instant::now();
        let mut attempt_pause = POLL_INTERVAL_UNHEARD;
        loop {
            if Instant::now() >= attempt_at {
                let number = reader.pools.current().number;
                let timeout = reader.timeout.min(CONNECT_TIMEOUT);
                let error = match listen(options, timeout).await {
                    Ok(listener) => {
                        if is_lost {
                            tracing::info!("the database announces commits again");
                        }
                        is_lost = false;
                        attempt_pause = POLL_INTERVAL_UNHEARD;
                        let error = hear(listener, reader, wake, poll_interval).await;
                        if is_silence(&error) {
                            reader.pools.throw_away(number);
                        }
                        error
                    }
                    Err(error) => error,
                };
                if !is_lost {
                    tracing::warn!(%error, "the connection on which the database announces commits has failed; polling more often");
                }
                is_lost = true;
                attempt_at = Instant::now() + attempt_pause;
                attempt_pause = (attempt_pause * 2).min(Duration::from_secs(5));
            }
            tokio::time::sleep(poll_interval.min(POLL_INTERVAL_UNHEARD)).await;
            let began_at = std::time::Instant::now();
            wake.learn(began_at, reader.look(&wake.seen()).await);
        }
    };
    closed.run_until_cancelled(follow).await;
}

async fn listen(options: &PgConnectOptions, timeout: Duration) -> Result<PgListener, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(timeout)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(options.clone());
    let listen = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        presence::show(&mut listener, options).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    };
    within(Instant::now() + timeout, listen).await
}

/// Announces until the connection is lost, and says how.
async fn hear(
    mut listener: PgListener,
    reader: &Reader,
    wake: &Wake,
    poll_interval: Duration,
) -> sqlx::Error {
    let patience = reader.timeout.min(PATIENCE);
    loop {
        // Asked before listening: commits before LISTEN took effect were not announced.
        let seen = wake.seen();
        let began_at = std::time::Instant::now();
        let asked = reader.serials(&seen).fetch_one(&mut listener);
        match within(Instant::now() + patience, asked).await {
            Ok(row) => wake.learn(began_at, rows::checked_serial_of(&row, &seen)),
            Err(error) => return error,
        }
        match tokio::time::timeout(poll_interval.min(reader.timeout), listener.try_recv()).await {
            // No process writes, or the connection is lost.
            Err(_) => {}
            Ok(Ok(Some(_))) => while listener.next_buffered().is_some() {},
            Ok(Ok(None)) => {
                return sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into());
            }
            Ok(Err(error)) => return error,
        }
    }
}
