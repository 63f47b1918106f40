//! Reads aurweb's own database, MariaDB, whenever a transaction has changed something that answers show.
//!
//! [`Gate`]: has anything changed? -> [`settled`]: no push is running -> then, in one consistent snapshot,
//!
//! - the first time, and from time to time, [`Catalogue`] after [`Catalogue`], a thousand packages each, until all tables are
//!   read -> a dump in a spool file -> [`News::Dump`]
//! - else [`Held`]: which package bases differ? -> [`Catalogue`] of these alone -> [`News::Changes`]
//!
//! The database is only read. After an error the next poll connects again, and the served snapshot stays.
//! `docs/aur-database.md` says what was tried on a real MariaDB.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use aur::Changes;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, Row as _};
use tokio::time::{Instant, sleep, timeout};

use super::{News, SourceError, SourceOptions, Update};

mod catalogue;
mod digests;
mod gate;
mod spool;
mod url;

pub use url::DatabaseUrl;

use catalogue::{Catalogue, begin, each, end};
use digests::{Held, sums_of_parts};
use gate::{Gate, Tables};
use spool::DumpWriter;

/// How often the database is asked whether anything has changed.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A push of aurweb commits a package before its dependencies. Packages that are newer than the last read are read only
/// after nothing was added to them for this long.
const QUIET: Duration = Duration::from_millis(200);
/// How often they are looked at meanwhile.
const QUIET_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where pushes never end, the database is read after this time all the same.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(5);
/// For this long after a package was first read, its dependencies and other parts are read again when their tables move: a push may
/// have paused for longer than [`QUIET`].
const RECENT: Duration = Duration::from_secs(60);
/// How often all tables are read again while rows are waited for that have gone all at once.
const EMPTIED_LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// If more bases than this may differ, all tables are read.
const DIFFERENT_MAX: usize = 4000;
/// After this many intervals, all tables are read even if nothing seems to have changed: no digest covers everything, such as a
/// dependency that was changed by hand.
const INTERVALS_UNTIL_ALL: u32 = 12;
/// At the start, this many of the latest packages count as newer than the last read.
const RECENT_PACKAGES: i64 = 100;

/// A package base with packages that were new at this time.
#[derive(Debug)]
struct Recent {
    at: Instant,
    /// The sum of what belonged to its packages when they were read last, if it was asked for then.
    parts: Option<i64>,
}

impl Recent {
    fn new(at: Instant) -> Recent {
        Recent { at, parts: None }
    }
}

/// One database, with what is known of it between polls.
#[derive(Debug)]
pub(crate) struct DatabaseWatch {
    url: DatabaseUrl,
    fingerprint: String,
    options: SourceOptions,
    spool_dir: PathBuf,
    connection: Option<MySqlConnection>,
    gate: Gate,
    /// What the last read saw.
    held: Option<Held>,
    /// `held` may lack some commits: the next poll reads all tables.
    is_all_wanted: bool,
    /// The highest number of a package at the last read.
    last_package: Option<i64>,
    /// Bases with packages that were new a short time ago.
    recent: HashMap<i64, Recent>,
    /// Bases that had lost all packages at this time, and are still shown with them.
    emptied: HashMap<i64, Instant>,
    /// When all digests were compared.
    read_at: Option<Instant>,
    /// When all tables were read.
    read_all_at: Option<Instant>,
    /// The last handed-out state is not accepted yet.
    is_handed_out: bool,
    /// The state of all tables was refused.
    is_refused: bool,
    /// Changes were handed out last, not all tables.
    were_changes: bool,
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
            held: None,
            is_all_wanted: true,
            last_package: None,
            recent: HashMap::new(),
            emptied: HashMap::new(),
            read_at: None,
            read_all_at: None,
            is_handed_out: false,
            is_refused: false,
            were_changes: false,
            handed_out: None,
            accepted: None,
        }
    }

    /// Changes the longest time between two looks at everything.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.options.interval = interval;
    }

    /// The last handed-out state is served.
    pub(crate) fn accepted(&mut self) {
        self.accepted = self.handed_out.clone();
        self.is_handed_out = false;
    }

    /// The last handed-out state is not served. All tables are read again: at the next poll if it was only changes, otherwise
    /// when something changes.
    pub(crate) fn rejected(&mut self) {
        self.is_refused = !self.were_changes;
        self.is_all_wanted = true;
    }

    /// Whether all that the database holds was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Asks whether anything has changed, and reads it if so. If that was not checked for as long as the interval, compares all
    /// tables; the first time, and with `force`, reads everything. `None` if the last accepted state is current.
    pub(crate) async fn poll(&mut self, force: bool) -> Result<Option<News>, SourceError> {
        // A poll that is dropped on its way leaves no connection in an unknown state.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let outcome = self.look(&mut connection, force).await;
        match &outcome {
            Ok(_) => self.connection = Some(connection),
            Err(_) => self.is_all_wanted = true,
        }
        outcome
    }

    async fn connect(&mut self) -> Result<MySqlConnection, SourceError> {
        let options: MySqlConnectOptions = self.url.options().clone();
        let options = options.disable_statement_logging();
        let bound = self.options.connect_timeout;
        let connecting = async {
            let mut connection = MySqlConnection::connect_with(&options).await?;
            let session = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET NAMES utf8mb4";
            each(
                &mut connection,
                &[session.to_owned(), gate::SESSION.to_owned()],
                bound,
                |_, _| Ok(()),
            )
            .await?;
            Ok(connection)
        };
        let connection = self.within(bound, "connecting", connecting).await?;
        // Changes may have been missed without a connection.
        self.gate = Gate::default();
        self.is_all_wanted = true;
        Ok(connection)
    }

    async fn look(
        &mut self,
        connection: &mut MySqlConnection,
        force: bool,
    ) -> Result<Option<News>, SourceError> {
        let bound = self.options.response_header_timeout;
        let asking = self.gate.look(connection);
        let moved = match timeout(bound, asking).await {
            Ok(outcome) => outcome.map_err(|error| self.failed(&error))?,
            Err(_) => return Err(self.timed_out("asking for changes", bound)),
        };
        let interval = self.options.interval;
        let is_due = self.read_at.is_none_or(|at| at.elapsed() >= interval);
        if self.is_refused && moved.is_none() && !is_due && !force {
            // The same state would be refused again.
            return Ok(None);
        }
        self.is_refused = false;
        if self.is_handed_out {
            // Somebody gave up before it was served.
            self.is_all_wanted = true;
        }
        let is_all_due = self
            .read_all_at
            .is_none_or(|at| at.elapsed() >= interval.saturating_mul(INTERVALS_UNTIL_ALL));
        let is_waiting = !self.emptied.is_empty();
        let reads_all = force || is_all_due || self.is_all_wanted;
        if moved.is_none() && !is_due && !is_waiting && !reads_all {
            return Ok(None);
        }
        let tables = match moved {
            _ if is_due => Tables::ALL,
            Some(tables) if is_waiting => tables.and("Packages"),
            Some(tables) => tables,
            None if is_waiting => Tables::default().and("Packages"),
            None => Tables::ALL,
        };
        let settling = settled(connection, self.last_package);
        let has_waited =
            self.within(bound + QUIET_WAIT_MAX, "waiting for pushes to end", settling).await?;
        let tables = match has_waited {
            // Changes made while waiting are read now, so that the next poll need not.
            true => {
                let asking = self.gate.look(connection);
                let moved = timeout(bound, asking).await;
                let moved = moved.map_err(|_| self.timed_out("asking for changes", bound))?;
                tables.and_all(moved.map_err(|error| self.failed(&error))?.unwrap_or_default())
            }
            false => tables,
        };
        self.gate.reading(tables);
        match self.held.take() {
            Some(held) if !reads_all => {
                // If the future is dropped before `held` is set again, the next poll reads all tables.
                self.is_all_wanted = true;
                self.read_changes(connection, held, tables, is_due).await
            }
            held => {
                self.held = held;
                self.read_all(connection).await
            }
        }
    }

    /// Reads all tables.
    async fn read_all(
        &mut self,
        connection: &mut MySqlConnection,
    ) -> Result<Option<News>, SourceError> {
        self.is_all_wanted = true;
        let started_at = Instant::now();
        let (read, held) = loop {
            let bound = self.options.transfer_time_max;
            let reading = self.read_everything(connection);
            let (read, held) = timeout(bound, reading)
                .await
                .map_err(|_| self.timed_out("reading the tables", bound))??;
            let has_lost = self.held.as_ref().is_some_and(|before| before.has_lost(&held));
            if !has_lost || started_at.elapsed() >= self.options.emptied_wait {
                break (read, held);
            }
            sleep(EMPTIED_LOOK_INTERVAL.min(self.options.emptied_wait)).await;
        };
        let now = Instant::now();
        self.recent.retain(|_, recent| now - recent.at < RECENT);
        self.recent.values_mut().for_each(|recent| recent.parts = None);
        self.recent.extend(read.recent.into_iter().map(|base| (base, Recent::new(now))));
        self.last_package = Some(read.last_package);
        let (origin, fingerprint) = (self.url.to_string(), self.fingerprint.clone());
        let (arrival, digest) =
            read.dump.finish(read.now, held.empty_bases(), origin, fingerprint)?;
        (self.read_at, self.read_all_at) = (Some(now), Some(now));
        self.held = Some(held);
        self.is_all_wanted = false;
        self.emptied.clear();
        let digest = Some(digest);
        // A state that was handed out and not accepted is handed out again.
        if self.accepted == digest && self.handed_out == digest && !self.is_handed_out {
            return Ok(None);
        }
        self.handed_out = digest;
        (self.is_handed_out, self.were_changes) = (true, false);
        Ok(Some(News::Dump(arrival)))
    }

    /// Reads all tables in one transaction, some packages at a time.
    async fn read_everything(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<(ReadEverything, Held), SourceError> {
        let failed = |error| self.failed(&error);
        let stall = self.options.body_stall_timeout;
        let now = begin(connection).await.map_err(failed)?;
        let mut held = Held::see(connection, stall, now).await.map_err(failed)?;
        let known_package = match self.last_package {
            Some(last) => last,
            None => last_package(connection).await.map_err(failed)? - RECENT_PACKAGES,
        };
        let mut dump = DumpWriter::create(&self.spool_dir, self.options.dump_bytes_max)?;
        let (mut last_package, mut recent) = (0, Vec::new());
        loop {
            let part = Catalogue::read_after(connection, stall, now, last_package);
            let part = part.await.map_err(failed)?;
            if part.packages.is_empty() {
                break;
            }
            held.count(&part);
            last_package = part.last_package();
            let is_new = |package: &&catalogue::Package| package.id > known_package;
            recent.extend(part.packages.iter().filter(is_new).map(|package| package.base));
            let origin = self.url.to_string();
            let writing =
                tokio::task::spawn_blocking(move || dump.write(&part, &origin).map(|()| dump));
            dump = writing
                .await
                .map_err(|error| self.unmade(&format!("the dump cannot be made: {error}")))??;
        }
        end(connection).await.map_err(failed)?;
        Ok((ReadEverything { now, last_package, recent, dump }, held))
    }

    /// Reads the bases that differ from `held` in these tables.
    async fn read_changes(
        &mut self,
        connection: &mut MySqlConnection,
        mut held: Held,
        tables: Tables,
        is_due: bool,
    ) -> Result<Option<News>, SourceError> {
        self.recent.retain(|_, recent| recent.at.elapsed() < RECENT);
        let recent: Vec<i64> = match tables.has_parts() {
            true => self.recent.keys().copied().collect(),
            false => Vec::new(),
        };
        let stall = self.options.body_stall_timeout;
        let reading = async {
            let now = begin(connection).await?;
            let mut difference =
                held.compare(connection, stall, tables, is_due.then_some(now)).await?;
            let parts = match recent.is_empty() {
                true => BTreeMap::new(),
                false => sums_of_parts(connection, stall, &recent).await?,
            };
            let parts_of = |base: &i64| parts.get(base).copied().unwrap_or_default();
            let has_other_parts = |base: &i64| self.recent[base].parts != Some(parts_of(base));
            difference.bases.extend(recent.iter().copied().filter(has_other_parts));
            if difference.bases.len() > DIFFERENT_MAX {
                end(connection).await?;
                return Ok(None);
            }
            difference.see_beside(connection, stall, tables).await?;
            let bases: Vec<i64> = difference.bases.iter().copied().collect();
            let part = Catalogue::read(connection, stall, now, &bases).await?;
            end(connection).await?;
            let parts: Vec<(i64, i64)> =
                recent.iter().map(|base| (*base, parts_of(base))).collect();
            Ok(Some((difference, part, parts)))
        };
        let bound = self.options.transfer_time_max;
        let read = self.within(bound, "reading what has changed", reading).await?;
        let Some((difference, part, parts)) = read else {
            self.held = Some(held);
            return self.read_all(connection).await;
        };
        let now = Instant::now();
        if is_due {
            self.read_at = Some(now);
        }
        let last_package = self.last_package.unwrap_or(0);
        for base in &difference.bases {
            if let Some(recent) = self.recent.get_mut(base) {
                recent.parts = None;
            }
        }
        for (base, parts) in parts {
            if let Some(recent) = self.recent.get_mut(&base) {
                recent.parts = Some(parts);
            }
        }
        self.note_recent(&part, last_package, now);
        self.last_package = Some(last_package.max(part.last_package()));

        let with_packages: HashSet<i64> =
            part.packages.iter().map(|package| package.base).collect();
        let emptied = difference.bases.iter().copied().filter(|id| {
            part.bases.contains_key(id) && !with_packages.contains(id) && held.had_packages(*id)
        });
        let wait = self.options.emptied_wait;
        let except = left_for_later(&mut self.emptied, emptied, now, wait);

        let mut changes = Changes {
            records: spool::records(&part, &except)
                .map_err(|error| self.unmade(&format!("the records cannot be made: {error}")))?,
            ..Changes::default()
        };
        for id in difference.bases.iter().filter(|id| !except.contains(id)) {
            let name = part.bases.get(id).map(|base| base.name.as_str());
            changes.bases.extend(held.name(*id).into_iter().chain(name).map(str::to_owned));
            if !with_packages.contains(id) {
                changes.empty_bases.extend(name.map(str::to_owned));
            }
        }
        held.learn(difference, &part, &except);
        self.held = Some(held);
        self.is_all_wanted = false;
        if changes.bases.is_empty() {
            return Ok(None);
        }
        // The last dump is no longer the served state.
        self.handed_out = None;
        (self.is_handed_out, self.were_changes) = (true, true);
        Ok(Some(News::Changes(Update {
            changes,
            origin: self.url.to_string(),
            modified_at: spool::time(part.now),
            source_fingerprint: self.fingerprint.clone(),
        })))
    }

    /// Notes the bases that have packages with a higher number than `last_package`.
    fn note_recent(&mut self, catalogue: &Catalogue, last_package: i64, now: Instant) {
        self.recent.retain(|_, recent| now - recent.at < RECENT);
        for package in catalogue.packages.iter().filter(|package| package.id > last_package) {
            self.recent.insert(package.base, Recent::new(now));
        }
    }

    fn unmade(&self, cause: &str) -> SourceError {
        SourceError::Database { url: self.url.to_string(), cause: cause.to_owned() }
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

/// The result of reading all tables.
struct ReadEverything {
    /// The database's clock, in Unix seconds.
    now: i64,
    last_package: i64,
    /// Bases with packages that are newer than the last read.
    recent: Vec<i64>,
    dump: DumpWriter,
}

/// Of the bases that have lost all packages, those that are still shown with them; `since` has when each was first seen so.
fn left_for_later(
    since: &mut HashMap<i64, Instant>,
    emptied: impl Iterator<Item = i64>,
    now: Instant,
    wait: Duration,
) -> HashSet<i64> {
    let emptied = emptied.map(|base| (base, since.get(&base).copied().unwrap_or(now)));
    *since = emptied.filter(|(_, since)| now - *since < wait).collect();
    since.keys().copied().collect()
}

/// The highest number of a package.
async fn last_package(connection: &mut MySqlConnection) -> Result<i64, sqlx::Error> {
    let query = "SELECT CAST(COALESCE(MAX(ID), 0) AS SIGNED) FROM Packages";
    sqlx::raw_sql(query).fetch_one(connection).await?.try_get(0)
}

/// Waits until nothing has been added for a while to packages with a higher number than `last`; returns whether it had to wait.
async fn settled(connection: &mut MySqlConnection, last: Option<i64>) -> Result<bool, sqlx::Error> {
    let last = match last {
        Some(last) => last,
        None => last_package(connection).await? - RECENT_PACKAGES,
    };
    let state = format!(
        "SELECT CONCAT_WS(' ', \
         (SELECT COUNT(*) FROM Packages WHERE ID > {last}), \
         (SELECT COALESCE(MAX(ID), 0) FROM Packages), \
         (SELECT COUNT(*) FROM PackageDepends WHERE PackageID > {last}), \
         (SELECT COUNT(*) FROM PackageRelations WHERE PackageID > {last}), \
         (SELECT COUNT(*) FROM PackageGroups WHERE PackageID > {last}), \
         (SELECT COUNT(*) FROM PackageLicenses WHERE PackageID > {last}))"
    );
    let started_at = Instant::now();
    let mut quiet = Quiet::default();
    let mut has_waited = false;
    loop {
        let query = sqlx::raw_sql(AssertSqlSafe(state.clone()));
        let state: String = query.fetch_one(&mut *connection).await?.try_get(0)?;
        if quiet.is_settled(state, started_at.elapsed()) {
            return Ok(has_waited);
        }
        has_waited = true;
        sleep(QUIET_LOOK_INTERVAL).await;
    }
}

/// What was seen of packages that are newer than the last read, and since when it has not changed.
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
mod tests;
