//! Reads aurweb's own database, MariaDB, whenever a transaction has changed something that answers are made of.
//!
//! [`Gate`]: has anything changed? -> [`settled`]: no push is under way -> [`Catalogue`]: one consistent snapshot -> a
//! dump in a spool file -> [`Arrival`]. The database is only read. An error drops the connection; the next poll
//! connects again, and whatever was served stays. What was tried on a real MariaDB is in `docs/aur-database.md`.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection};
use tokio::time::{Instant, sleep, timeout};

use super::arrival::Arrival;
use super::{SourceError, SourceOptions};

mod catalogue;
mod gate;
mod spool;
mod url;

pub use url::DatabaseUrl;

use catalogue::Catalogue;
use gate::Gate;

/// How often the database is asked whether anything has changed.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// A push of aurweb commits a package before its dependencies. Packages that are newer than the last read are read only
/// after nothing was added to them for this long.
const QUIET: Duration = Duration::from_millis(200);
/// How often they are looked at meanwhile.
const QUIET_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where pushes never end, the database is read after this time all the same.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(5);
/// At the start, this many of the latest packages count as newer than the last read.
const RECENT_PACKAGES: i64 = 100;

/// One database, with what is known of it between polls.
#[derive(Debug)]
pub(crate) struct DatabaseWatch {
    url: DatabaseUrl,
    fingerprint: String,
    options: SourceOptions,
    spool_dir: PathBuf,
    connection: Option<MySqlConnection>,
    gate: Gate,
    /// The highest number of a package at the last read.
    last_package: Option<i64>,
    read_at: Option<Instant>,
    /// The digest of the last dump that was handed out, and of the last one that was accepted.
    handed_out: Option<String>,
    accepted: Option<String>,
}

impl DatabaseWatch {
    pub(crate) fn new(
        url: DatabaseUrl,
        fingerprint: String,
        options: SourceOptions,
        spool_dir: PathBuf,
    ) -> DatabaseWatch {
        DatabaseWatch {
            url,
            fingerprint,
            options,
            spool_dir,
            connection: None,
            gate: Gate::default(),
            last_package: None,
            read_at: None,
            handed_out: None,
            accepted: None,
        }
    }

    /// Changes the longest time between two reads.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.options.interval = interval;
    }

    /// The last arrival is served.
    pub(crate) fn accepted(&mut self) {
        self.accepted = self.handed_out.clone();
    }

    /// The last arrival is not served: the next poll reads the database again.
    pub(crate) fn rejected(&mut self) {
        self.read_at = None;
    }

    /// Asks whether anything has changed; reads it if so, if it was not read for as long as the interval, or if
    /// `force`. `None`: what was accepted last is current.
    pub(crate) async fn poll(&mut self, force: bool) -> Result<Option<Arrival>, SourceError> {
        // A poll that is dropped on its way leaves no connection in an unknown state.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let outcome = self.look(&mut connection, force).await;
        match &outcome {
            Ok(_) => self.connection = Some(connection),
            Err(_) => self.read_at = None,
        }
        outcome
    }

    async fn connect(&mut self) -> Result<MySqlConnection, SourceError> {
        let options: MySqlConnectOptions = self.url.options().clone();
        let options = options.disable_statement_logging();
        let connecting = async {
            let mut connection = MySqlConnection::connect_with(&options).await?;
            sqlx::raw_sql(
                "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET NAMES utf8mb4",
            )
            .execute(&mut connection)
            .await?;
            Ok(connection)
        };
        let bound = self.options.connect_timeout;
        let connection = self.within(bound, "connecting", connecting).await?;
        // What happened without a connection, nobody has seen.
        self.gate = Gate::default();
        self.read_at = None;
        Ok(connection)
    }

    async fn look(
        &mut self,
        connection: &mut MySqlConnection,
        force: bool,
    ) -> Result<Option<Arrival>, SourceError> {
        let bound = self.options.response_header_timeout;
        let asking = self.gate.look(connection);
        let has_changed = match timeout(bound, asking).await {
            Ok(outcome) => outcome.map_err(|error| self.failed(&error))?,
            Err(_) => return Err(self.timed_out("asking for changes", bound)),
        };
        let is_due = self.read_at.is_none_or(|at| at.elapsed() >= self.options.interval);
        if !has_changed && !is_due && !force {
            return Ok(None);
        }
        self.gate.reading();
        let settling = settled(connection, self.last_package);
        self.within(bound + QUIET_WAIT_MAX, "waiting for pushes to end", settling).await?;
        let bound = self.options.transfer_time_max;
        let reading = Catalogue::read(connection, self.options.body_stall_timeout);
        let catalogue = self.within(bound, "reading the tables", reading).await?;
        self.last_package = Some(catalogue.last_package());
        let origin = self.url.to_string();
        let (directory, bytes_max) = (self.spool_dir.clone(), self.options.dump_bytes_max);
        let fingerprint = self.fingerprint.clone();
        let spooling = tokio::task::spawn_blocking(move || {
            spool::write(&catalogue, &directory, bytes_max, origin, fingerprint)
        });
        let (arrival, digest) = spooling.await.map_err(|error| SourceError::Database {
            url: self.url.to_string(),
            cause: format!("the dump cannot be made: {error}"),
        })??;
        self.read_at = Some(Instant::now());
        let digest = Some(digest);
        // What was handed out and not accepted is handed out again.
        if self.accepted == digest && self.handed_out == digest {
            return Ok(None);
        }
        self.handed_out = digest;
        Ok(Some(arrival))
    }

    async fn within<T>(
        &self,
        bound: Duration,
        step: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, SourceError> {
        match timeout(bound, work).await {
            Ok(outcome) => outcome.map_err(|error| self.failed(&error)),
            Err(_) => Err(self.timed_out(step, bound)),
        }
    }

    fn failed(&self, error: &sqlx::Error) -> SourceError {
        SourceError::Database { url: self.url.to_string(), cause: error.to_string() }
    }

    fn timed_out(&self, step: &'static str, bound: Duration) -> SourceError {
        SourceError::TimedOut { url: self.url.to_string(), step, bound }
    }
}

/// Waits until nothing has been added for a while to packages with a higher number than `last_package`.
async fn settled(
    connection: &mut MySqlConnection,
    last_package: Option<i64>,
) -> Result<(), sqlx::Error> {
    const STATE: &str = "SELECT CONCAT_WS(' ', \
         (SELECT COUNT(*) FROM Packages WHERE ID > ?), \
         (SELECT COALESCE(MAX(ID), 0) FROM Packages), \
         (SELECT COUNT(*) FROM PackageDepends WHERE PackageID > ?), \
         (SELECT COUNT(*) FROM PackageRelations WHERE PackageID > ?), \
         (SELECT COUNT(*) FROM PackageGroups WHERE PackageID > ?), \
         (SELECT COUNT(*) FROM PackageLicenses WHERE PackageID > ?))";
    let highest = "SELECT CAST(COALESCE(MAX(ID), 0) AS SIGNED) FROM Packages";
    let highest: i64 = sqlx::query_scalar(highest).fetch_one(&mut *connection).await?;
    let last = last_package.unwrap_or(highest - RECENT_PACKAGES);
    let started_at = Instant::now();
    let mut quiet = Quiet::default();
    loop {
        let query =
            sqlx::query_scalar(STATE).bind(last).bind(last).bind(last).bind(last).bind(last);
        let state: String = query.fetch_one(&mut *connection).await?;
        if quiet.is_settled(state, started_at.elapsed()) {
            return Ok(());
        }
        sleep(QUIET_LOOK_INTERVAL).await;
    }
}

/// What was seen of packages that are newer than the last read, and since when it has been the same.
#[derive(Default)]
struct Quiet {
    state: String,
    since: Duration,
}

impl Quiet {
    /// Whether to read now, after seeing this `state` at this time. It begins with the number of new packages.
    fn is_settled(&mut self, state: String, now: Duration) -> bool {
        if state.starts_with("0 ") {
            return true;
        }
        if self.state != state {
            *self = Quiet { state, since: now };
        }
        now - self.since >= QUIET || now >= QUIET_WAIT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects that the tables are read at this time, in milliseconds, if what is seen changes at the others.
    #[track_caller]
    fn check(changes: &[u64], read: u64) {
        let mut quiet = Quiet::default();
        let mut looks = (0..).step_by(50);
        let found = looks.find(|now| {
            let rows = changes.iter().filter(|change| *change <= now).count();
            quiet.is_settled(format!("1 7 {rows}"), Duration::from_millis(*now))
        });
        assert_eq!(found, Some(read));
    }

    #[test]
    fn a_push_is_read_when_it_has_ended() {
        check(&[], 200);
        check(&[50, 100, 150, 290], 500);
        // One row after another, without end.
        let endless: Vec<u64> = (0..200).map(|number| number * 100).collect();
        check(&endless, 5000);
        assert!(Quiet::default().is_settled("0 7 1".to_owned(), Duration::ZERO));
    }
}
