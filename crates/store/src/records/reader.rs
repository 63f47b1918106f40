//! The side of a database that reads: the same statements on both engines.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use record::{Key, Record, Serial};
use sqlx::{
    ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Pool, Row as _, Transaction,
    Type,
};
use tokio::time::{Instant, timeout_at};

use super::error::{Cause, ReadError};
use super::observed_store::ObservedStore;
use super::page::{Page, PageBuilder, PagePosition, PageSize};
use super::pools::{NumberedPool, Pools};
use super::read::{ReadStop, Sink};
use super::rows::{
    self, FIRST_RECORD, PAGE_AFTER, RECORD, RECORDS_AFTER, SERIAL, SERIAL_AND_HIGHEST,
};
use super::watch::Watch;

/// Connections that read.
pub(super) struct Reader<DB: Database> {
    pub(super) pools: Pools<DB>,
    /// How long the database may take over one answer.
    pub(super) timeout: Duration,
    /// How long a connection may take to answer before it counts as lost, and all others with it.
    /// `None`: no network lies in between.
    pub(super) patience: Option<Duration>,
    /// The statement for [`rows::checked_serial_of`].
    pub(super) serials: &'static str,
    /// The statement that begins a transaction which sees one moment of the store.
    pub(super) begin: &'static str,
    /// The files that must not be replaced, if the database is opened for writing.
    pub(super) watch: Option<Watch>,
}

/// One moment of the store, while it is read.
struct ReadTransaction<DB: Database> {
    /// The number of the pool.
    number: u64,
    transaction: Transaction<'static, DB>,
    serial: Serial,
}

impl<DB> Reader<DB>
where
    DB: Database,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    usize: ColumnIndex<DB::Row>,
    bool: for<'r> Decode<'r, DB> + Type<DB>,
    i64: for<'r> Decode<'r, DB> + for<'q> Encode<'q, DB> + Type<DB>,
    Option<i64>: for<'r> Decode<'r, DB>,
    for<'q> &'q str: Decode<'q, DB> + Encode<'q, DB> + Type<DB>,
    for<'q> &'q [u8]: Decode<'q, DB> + Encode<'q, DB> + Type<DB>,
{
    /// Begins to read one moment of the store, which has what was `seen`.
    async fn begin_reading(&self, seen: &ObservedStore) -> Result<ReadTransaction<DB>, ReadError> {
        self.check_file()?;
        let begun = self.ask(|NumberedPool { number, pool }| async move {
            let mut transaction = pool.begin_with(self.begin).await?;
            let row = self.serials(seen).fetch_one(&mut *transaction).await?;
            Ok((number, transaction, row))
        });
        let (number, transaction, row) = begun.await?;
        Ok(ReadTransaction { number, transaction, serial: rows::checked_serial_of(&row, seen)? })
    }

    pub(super) async fn read_after<S: Sink>(
        &self,
        after: Serial,
        seen: &ObservedStore,
        sink: &mut S,
    ) -> Result<Serial, ReadStop<S::Error>> {
        let ReadTransaction { number, mut transaction, serial } = self.begin_reading(seen).await?;
        let mut rows =
            sqlx::query(RECORDS_AFTER).bind(after.0.cast_signed()).fetch(&mut *transaction);
        while let Some(row) = self.patiently(number, rows.try_next()).await? {
            sink.take(rows::record_of(&row)?).await.map_err(ReadStop::Sink)?;
        }
        Ok(serial)
    }

    pub(super) async fn page_after(
        &self,
        place: &PagePosition,
        size: PageSize,
        seen: &ObservedStore,
    ) -> Result<Page, ReadError> {
        let ReadTransaction { number, mut transaction, serial } = self.begin_reading(seen).await?;
        let mut gathering = PageBuilder::new(size);
        let mut is_cut = false;
        {
            let (after, key) = place.bounds();
            let count = i64::try_from(size.records_max).unwrap_or(i64::MAX);
            let query = sqlx::query(PAGE_AFTER).bind(after).bind(key).bind(count);
            let mut rows = query.fetch(&mut *transaction);
            while let Some(row) = self.patiently(number, rows.try_next()).await? {
                if !gathering.take(rows::record_of(&row)?) {
                    is_cut = true;
                    break;
                }
            }
        }
        Ok(gathering.finish(place, serial, is_cut))
    }

    pub(super) async fn record(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.check_file()?;
        let row = self.ask(|NumberedPool { pool, .. }| async move {
            let mut connection = pool.acquire().await?;
            sqlx::query(RECORD).bind(key.as_str()).fetch_optional(&mut *connection).await
        });
        let row = row.await?;
        row.as_ref().map(rows::record_of).transpose()
    }

    pub(super) async fn serial(&self) -> Result<Serial, ReadError> {
        self.check_file()?;
        let row = self.ask(|NumberedPool { pool, .. }| async move {
            let mut connection = pool.acquire().await?;
            sqlx::query(SERIAL).fetch_one(&mut *connection).await
        });
        rows::store_serial_of(&row.await?)
    }

    /// The store's serial, if the store has what was `seen`.
    pub(super) async fn look(&self, seen: &ObservedStore) -> Result<Serial, ReadError> {
        self.check_file()?;
        let row = self.ask(|NumberedPool { pool, .. }| async move {
            let mut connection = pool.acquire().await?;
            self.serials(seen).fetch_one(&mut *connection).await
        });
        rows::checked_serial_of(&row.await?, seen)
    }

    pub(super) fn serials<'q>(
        &self,
        seen: &'q ObservedStore,
    ) -> sqlx::query::Query<'q, DB, DB::Arguments> {
        let (anchor, name) = seen.anchor();
        sqlx::query(self.serials).bind(seen.key()).bind(anchor).bind(name)
    }

    /// Asks something that is answered at once. If it is not, the pool is thrown away, and it is asked once more.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl Fn(NumberedPool<DB>) -> F,
    ) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let first = self.pools.current();
        let Some(patience) = self.patience else {
            return within(Instant::now() + self.timeout * 2, question(first)).await;
        };
        let number = first.number;
        let deadline = Instant::now() + patience;
        match self.unless_replaced(number, within(deadline, question(first))).await {
            Err(error) if is_silence(&error) => self.pools.throw_away(number),
            answered => return answered,
        }
        let second = self.pools.current();
        let number = second.number;
        let deadline = Instant::now() + self.timeout;
        self.unless_replaced(number, within(deadline, question(second))).await
    }

    /// Gives up when the pool of this number was thrown away.
    async fn unless_replaced<T>(
        &self,
        number: u64,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = self.pools.replaced(number) => Err(silence()),
        }
    }

    /// Waits for the next row, which may take its time while the connections of its pool still answer.
    async fn patiently<T>(
        &self,
        number: u64,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let deadline = Instant::now() + self.timeout;
        let mut work = pin!(work);
        if let Some(patience) = self.patience
            && let Ok(soon) = tokio::time::timeout(patience, &mut work).await
        {
            return soon;
        }
        self.unless_replaced(number, within(deadline, work)).await
    }

    /// Checks that the tables are as this program makes them; returns the store's serial, or what is wrong with them.
    pub(super) async fn look_through(&self) -> Result<Result<Serial, String>, sqlx::Error> {
        let pool = self.pool();
        let rows = async {
            let mut connection = pool.acquire().await?;
            let serials = sqlx::query(SERIAL_AND_HIGHEST).fetch_one(&mut *connection).await?;
            let first = sqlx::query(FIRST_RECORD).fetch_optional(&mut *connection).await?;
            Ok((serials, first))
        };
        let (serials, first) = within(Instant::now() + self.timeout * 2, rows).await?;
        // If one record is damaged, reading it reports that, with its key.
        if let Some(Err(ReadError::Unavailable(cause))) = first.as_ref().map(rows::record_of) {
            return Ok(Err(cause.to_string()));
        }
        let serial: i64 = serials.try_get(0)?;
        let highest: Option<i64> = serials.try_get(1)?;
        Ok(match highest.filter(|highest| *highest > serial) {
            None => Ok(Serial(serial.cast_unsigned())),
            Some(highest) => Err(format!(
                "the store is at serial {serial}, but a record has serial {highest}: the row in larder_store was set \
                 back, and the serials in between would be given again. If nothing else is wrong, `UPDATE \
                 larder_store SET serial = {highest}` mends it"
            )),
        })
    }

    /// The connections, for what may take its time.
    pub(super) fn pool(&self) -> Pool<DB> {
        self.pools.current().pool
    }

    /// Called before a connection is made or used: a new one would open the replaced file, beside the log of the old one.
    fn check_file(&self) -> Result<(), ReadError> {
        let Some(watch) = &self.watch else { return Ok(()) };
        match watch.glance() {
            Ok(None) => Ok(()),
            Ok(Some(rewound)) => Err(rewound.into()),
            Err(error) => Err(ReadError::Unavailable(Cause::new(error))),
        }
    }
}

/// Gives up at `deadline`: a server that is cut off does not say so.
pub(super) async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout_at(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(silence()),
    }
}

/// No answer came in time.
pub(super) fn silence() -> sqlx::Error {
    let error =
        std::io::Error::new(std::io::ErrorKind::TimedOut, "the database did not answer in time");
    sqlx::Error::Io(error)
}

pub(super) fn is_silence(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::TimedOut,
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => true,
        _ => false,
    }
}
