//! Reads aurweb's own database, MariaDB, whenever a transaction has changed something that answers show.
//!
//! [`Gate`]: has anything changed? -> [`Pushes`]: none is running -> then, in one consistent snapshot ([`Transaction`]),
//!
//! - the first time, and from time to time, [`Catalogue`] after [`Catalogue`], a thousand packages each, until all tables are
//!   read -> a dump in a spool file -> [`SourceNews::Dump`]
//! - else [`LastRead`]: which package bases differ? -> [`Catalogue`] of these alone -> [`SourceNews::Changes`]
//!
//! The database is only read. After an error the next poll connects again, and the served snapshot stays.
//! `docs/aur-database.md` says what was tried on a real MariaDB.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use aur::{Changes, Popularities};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection};
use tokio::time::{Instant, sleep, timeout};

use super::{SourceError, SourceNews, SourceOptions, Update};

mod catalogue;
mod digests;
mod gate;
mod pushes;
mod questions;
mod spool;
mod transaction;
mod url;

pub use url::DatabaseUrl;

use catalogue::Catalogue;
use digests::LastRead;
use gate::{Gate, Tables};
use pushes::Pushes;
use questions::each;
use spool::DumpWriter;
use transaction::Transaction;

/// How often the database is asked whether anything has changed: while something has, within the last minute, and while nothing has. Each
/// question costs the server some 0.4 ms, and more where it asks for more.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(550);
/// For this long after a package was first read, its dependencies and other parts are read again when their tables move: a push may
/// have paused for longer than [`pushes::QUIET`].
const RECENT: Duration = Duration::from_secs(60);
/// After a wave of popularities, changes that came while it was read are looked for at once.
const AFTER_WAVE_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often all tables are read again while rows are waited for that have gone all at once.
const EMPTIED_LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// If more bases than this may differ in more than their popularity, all tables are read.
const DIFFERENT_MAX: usize = 4000;
/// How long the answer to a question may take that reads no tables.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// How long the next row may take.
const ROW_TIME_MAX: Duration = Duration::from_secs(15);
/// After this many intervals, all tables are read even if nothing seems to have changed: no digest covers everything, such as a
/// dependency that was changed by hand.
const INTERVALS_UNTIL_ALL: u32 = 12;

/// A package base with packages that were new at this time.
#[derive(Debug)]
struct NewBase {
    at: Instant,
    /// The sum of what belonged to its packages when they were read last, if it was asked for then.
    parts: Option<i64>,
}

impl NewBase {
    fn new(at: Instant) -> NewBase {
        NewBase { at, parts: None }
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
    held: Option<LastRead>,
    /// `held` may lack some commits: the next poll reads all tables.
    is_all_wanted: bool,
    /// The highest number of a package at the last read.
    last_package: Option<i64>,
    /// Bases with packages that were new a short time ago.
    recent: HashMap<i64, NewBase>,
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
    /// A wave of popularities was read last.
    was_wave: bool,
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
            was_wave: false,
            handed_out: None,
            accepted: None,
        }
    }

    /// The time between two polls.
    pub(crate) fn poll_interval(&self) -> Duration {
        match self.gate.is_warm() {
            _ if self.was_wave => AFTER_WAVE_POLL_INTERVAL,
            true => POLL_INTERVAL,
            false => IDLE_POLL_INTERVAL,
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
    pub(crate) async fn poll(&mut self, force: bool) -> Result<Option<SourceNews>, SourceError> {
        // A poll that is dropped on its way leaves no connection in an unknown state.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        self.was_wave = false;
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
    ) -> Result<Option<SourceNews>, SourceError> {
        let bound = self.options.response_header_timeout.min(ANSWER_TIME_MAX);
        let asking = self.gate.look(connection, self.last_package.map(pushes::state_after));
        let (moved, mut pushed) = match timeout(bound, asking).await {
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
        let mut tables = match moved {
            _ if is_due => Tables::ALL,
            Some(tables) if is_waiting => tables.and("Packages"),
            Some(tables) => tables,
            None if is_waiting => Tables::default().and("Packages"),
            None => Tables::ALL,
        };
        let finding = Pushes::after(connection, self.last_package);
        let mut pushes = self.within(bound, "asking for the last package", finding).await?;
        // The transaction that reads looks for pushes, too. So where none has probably begun, no question is spent on it.
        let mut is_waited_for = reads_all || tables.have_pushes();
        loop {
            if is_waited_for && self.wait_for(&mut pushes, connection, pushed.take()).await? {
                // What the push has changed meanwhile is read now, so that the next poll need not.
                tables = tables.and_all(Tables::of_pushes());
            }
            let read = match self.held.take() {
                Some(held) if !reads_all => {
                    // If the future is dropped before `held` is set again, the next poll reads all tables.
                    self.is_all_wanted = true;
                    self.read_changes(connection, held, &mut pushes, tables, is_due).await?
                }
                held => {
                    self.held = held;
                    self.read_all(connection, &mut pushes).await?
                }
            };
            match read {
                ReadOutcome::Break(news) => return Ok(news),
                ReadOutcome::Continue(()) => is_waited_for = true,
            }
        }
    }

    /// Waits until no push is running; returns whether it had to wait. `seen`: the state of new packages, if it was asked for just now.
    async fn wait_for(
        &mut self,
        pushes: &mut Pushes,
        connection: &mut MySqlConnection,
        seen: Option<String>,
    ) -> Result<bool, SourceError> {
        // What it asks counts as commits of this connection.
        self.gate.has_committed();
        let bound = ANSWER_TIME_MAX + pushes::WAIT_MAX;
        self.within(bound, "waiting for pushes to end", pushes.wait(connection, seen)).await
    }

    /// Reads all tables.
    async fn read_all(
        &mut self,
        connection: &mut MySqlConnection,
        pushes: &mut Pushes,
    ) -> Result<ReadOutcome, SourceError> {
        self.is_all_wanted = true;
        let started_at = Instant::now();
        let (read, held) = loop {
            let bound = self.options.transfer_time_max;
            let reading = timeout(bound, self.read_everything(connection, pushes)).await;
            let read = reading.map_err(|_| self.timed_out("reading the tables", bound))??;
            let Some((read, held)) = read else { return Ok(ReadOutcome::Continue(())) };
            let has_lost = self.held.as_ref().is_some_and(|before| before.has_lost(&held));
            if !has_lost || started_at.elapsed() >= self.options.emptied_wait {
                break (read, held);
            }
            sleep(EMPTIED_LOOK_INTERVAL.min(self.options.emptied_wait)).await;
        };
        let now = Instant::now();
        self.recent.retain(|_, recent| now - recent.at < RECENT);
        self.recent.values_mut().for_each(|recent| recent.parts = None);
        self.recent.extend(read.recent.into_iter().map(|base| (base, NewBase::new(now))));
        self.last_package = Some(read.last_package);
        let (origin, fingerprint) = (self.url.to_string(), self.fingerprint.clone());
        let (arrival, digest) =
            read.dump.finish(read.now, held.empty_bases(), read.users, origin, fingerprint)?;
        (self.read_at, self.read_all_at) = (Some(now), Some(now));
        self.held = Some(held);
        self.is_all_wanted = false;
        self.emptied.clear();
        let digest = Some(digest);
        // A state that was handed out and not accepted is handed out again.
        if self.accepted == digest && self.handed_out == digest && !self.is_handed_out {
            return Ok(ReadOutcome::Break(None));
        }
        self.handed_out = digest;
        (self.is_handed_out, self.were_changes) = (true, false);
        Ok(ReadOutcome::Break(Some(SourceNews::Dump(arrival))))
    }

    /// Reads all tables in one transaction, some packages at a time. `None` if a push is running.
    async fn read_everything(
        &mut self,
        connection: &mut MySqlConnection,
        pushes: &mut Pushes,
    ) -> Result<Option<(ReadEverything, LastRead)>, SourceError> {
        let stall = self.options.body_stall_timeout.min(ROW_TIME_MAX);
        let mut transaction = Transaction::new(connection, stall, pushes.state());
        let begun = transaction.begin().await.map_err(|error| self.failed(&error))?;
        let now = begun.now;
        if !pushes.have_ended(&begun.pushed) {
            self.gate.has_committed();
            let ending = transaction.end(&[], |_, _| Ok(())).await;
            return ending.map(|()| None).map_err(|error| self.failed(&error));
        }
        self.gate.reading(Tables::ALL, begun.looked.clone());
        let failed = |error| self.failed(&error);
        let mut held = LastRead::see(&mut transaction).await.map_err(failed)?;
        let mut users = String::new();
        let names = [catalogue::USER_NAMES.to_owned()];
        let asking = transaction.ask(&names, |_, row| catalogue::add_user_name(&mut users, row));
        asking.await.map_err(failed)?;
        let known_package = pushes.last_package();
        let mut dump = DumpWriter::create(&self.spool_dir, self.options.dump_bytes_max)?;
        let (mut last_package, mut recent) = (0, Vec::new());
        loop {
            let part = Catalogue::read_after(&mut transaction, last_package);
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
        transaction.end(&[], |_, _| Ok(())).await.map_err(failed)?;
        self.gate.has_committed();
        Ok(Some((ReadEverything { now, last_package, recent, dump, users }, held)))
    }

    /// Reads the bases that differ from `held` in these tables.
    async fn read_changes(
        &mut self,
        connection: &mut MySqlConnection,
        mut held: LastRead,
        pushes: &mut Pushes,
        tables: Tables,
        is_due: bool,
    ) -> Result<ReadOutcome, SourceError> {
        self.recent.retain(|_, recent| recent.at.elapsed() < RECENT);
        let recent: Vec<i64> = match tables.has_parts() {
            true => self.recent.keys().copied().collect(),
            false => Vec::new(),
        };
        let stall = self.options.body_stall_timeout.min(ROW_TIME_MAX);
        let reading = async {
            let mut transaction = Transaction::new(connection, stall, pushes.state());
            let comparing = held.compare(&mut transaction, tables, &recent, is_due);
            let mut difference = comparing.await?;
            let begun = transaction.begin().await?;
            let have_ended = pushes.have_ended(&begun.pushed);
            let looked = begun.looked.clone();
            let known = |base: &i64| self.recent.get(base).and_then(|recent| recent.parts);
            let has_other_parts = |base: &i64| known(base) != Some(difference.parts_of(*base));
            let others: Vec<i64> = recent.iter().copied().filter(has_other_parts).collect();
            difference.bases.extend(others);
            difference.popularities.retain(|(base, _)| !difference.bases.contains(base));
            if !have_ended || difference.bases.len() > DIFFERENT_MAX {
                transaction.end(&[], |_, _| Ok(())).await?;
                return Ok((None, have_ended, looked));
            }
            let part = difference.read(transaction, tables).await?;
            Ok((Some((difference, part)), have_ended, looked))
        };
        let bound = self.options.transfer_time_max;
        let read = self.within(bound, "reading what has changed", reading).await?;
        let (read, have_ended, looked) = read;
        if have_ended {
            self.gate.reading(tables, looked);
        }
        self.gate.has_committed();
        let Some((mut difference, part)) = read else {
            self.held = Some(held);
            return match have_ended {
                true => self.read_all(connection, pushes).await,
                false => Ok(ReadOutcome::Continue(())),
            };
        };
        let now = Instant::now();
        if is_due {
            self.read_at = Some(now);
        }
        let last_package = self.last_package.unwrap_or(0);
        let is_new = |package: &&catalogue::Package| package.id > last_package;
        let new = part.packages.iter().filter(is_new);
        self.recent.extend(new.map(|package| (package.base, NewBase::new(now))));
        // Those that were not asked for may have changed since they were.
        let parts_of = |base: &i64| tables.have_pushes().then(|| difference.parts_of(*base));
        for base in difference.bases.iter().chain(&recent) {
            if let Some(recent) = self.recent.get_mut(base) {
                recent.parts = parts_of(base);
            }
        }
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
            users: difference.user_names.take().map(Into::into),
            ..Changes::default()
        };
        for id in difference.bases.iter().filter(|id| !except.contains(id)) {
            let name = part.bases.get(id).map(|base| base.name.as_str());
            changes.bases.extend(held.name(*id).into_iter().chain(name).map(str::to_owned));
            if !with_packages.contains(id) {
                changes.empty_bases.extend(name.map(str::to_owned));
            }
        }
        let popularities = std::mem::take(&mut difference.popularities).into_iter();
        let popularities: Popularities = popularities
            .filter_map(|(base, shown)| Some((held.name(base)?.to_owned(), shown)))
            .collect();
        self.was_wave = !popularities.is_empty();
        held.learn(difference, &part, &except);
        self.held = Some(held);
        self.is_all_wanted = false;
        if changes.bases.is_empty() && changes.users.is_none() && popularities.is_empty() {
            return Ok(ReadOutcome::Break(None));
        }
        // The last dump is no longer the served state.
        self.handed_out = None;
        (self.is_handed_out, self.were_changes) = (true, true);
        Ok(ReadOutcome::Break(Some(SourceNews::Changes(Update {
            changes,
            popularities,
            origin: self.url.to_string(),
            modified_at: spool::time(part.now),
            source_fingerprint: self.fingerprint.clone(),
        }))))
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

/// What is new, if anything is; or a push is running, so that nothing was read.
type ReadOutcome = ControlFlow<Option<SourceNews>>;

/// The result of reading all tables.
struct ReadEverything {
    /// The database's clock, in Unix seconds.
    now: i64,
    last_package: i64,
    /// Bases with packages that are newer than the last read.
    recent: Vec<i64>,
    dump: DumpWriter,
    /// The names of all users, one a line.
    users: String,
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

#[cfg(test)]
mod tests;
