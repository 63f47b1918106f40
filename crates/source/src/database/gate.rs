//! [`Gate`]: finds the tables in which a commit may have changed something that answers show, at almost no cost.
//!
//! MariaDB has no notifications, and each of its counters alone misses changes (`docs/aur-database.md`):
//!
//! - `ROWS_CHANGED` counts rows by table, but when a statement runs, before its commit; and not those of cascades.
//! - `UPDATE_TIME` is set at the commit, cascades included, but to the second, and to the one in which the transaction began.
//!   Asking for it costs the server more, so that is done once a second, and whenever another value has moved.
//! - The position of InnoDB's log moves with every commit of any table, and the number of commits also with those that only
//!   read. Asking for these costs the server most.
//!
//! So a table is looked at when a value of it moves, and for a while again whenever the log and the number of commits move: after a
//! quarter of a second, then after pauses as long as half the time since the move. A transaction that stays open for a time is seen
//! at most half that time later.

use std::time::Duration;

use sqlx::{MySqlConnection, Row as _};
use tokio::time::Instant;

use super::catalogue::each;

/// The shortest time between two reads for one move.
const AGAIN_MIN: Duration = Duration::from_millis(250);
/// How long after a move commits of other tables still cause reads.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How often the tables are read while the log moves, where the tables' values are not available.
const BLIND_INTERVAL: Duration = Duration::from_secs(5);
/// How often the times are asked for while no count moves. Polls come a little later than planned.
const TIMES_INTERVAL: Duration = Duration::from_millis(900);

/// A change by a cascade is not counted, and its time may be the same as that of a change before it, for about this long.
const TIMES_RESOLUTION: Duration = Duration::from_secs(3);

const NAMES: [&str; 12] = [
    "Users",
    "PackageBases",
    "Packages",
    "PackageDepends",
    "PackageRelations",
    "Groups",
    "PackageGroups",
    "Licenses",
    "PackageLicenses",
    "PackageKeywords",
    "PackageComaintainers",
    "PackageRequests",
];

const LOG_POSITION: &str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
     WHERE VARIABLE_NAME = 'INNODB_LSN_CURRENT'";

/// The number of commits of all other connections.
const COMMITS: &str = "SELECT CAST((SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
     WHERE VARIABLE_NAME = 'HANDLER_COMMIT') - (SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS \
     WHERE VARIABLE_NAME = 'HANDLER_COMMIT') AS SIGNED)";

/// All tables with their values, in one text: if it is the same as before, nothing has to be done.
const TIMES: &str = "SELECT GROUP_CONCAT(TABLE_NAME, '=', COALESCE(CONCAT_WS(' ', CREATE_TIME, UPDATE_TIME), '') SEPARATOR ';') \
     FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()";
const COUNTS: &str = "SELECT GROUP_CONCAT(TABLE_NAME, '=', ROWS_CHANGED SEPARATOR ';') \
     FROM information_schema.TABLE_STATISTICS WHERE TABLE_SCHEMA = DATABASE()";

/// Makes sure that these texts are not cut, whatever the server's settings are.
pub(super) const SESSION: &str = "SET SESSION group_concat_max_len = 1000000";

/// Some of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables(u16);

impl Tables {
    pub(super) const ALL: Tables = Tables((1 << NAMES.len()) - 1);

    pub(super) fn has(self, name: &str) -> bool {
        NAMES.iter().position(|other| *other == name).is_some_and(|at| self.0 >> at & 1 == 1)
    }

    /// These tables and one more.
    pub(super) fn and(self, name: &str) -> Tables {
        self.and_all(Tables::of(|at| NAMES[at] == name))
    }

    /// These tables and those.
    pub(super) fn and_all(self, others: Tables) -> Tables {
        Tables(self.0 | others.0)
    }

    /// Whether one of these tables has parts of packages.
    pub(super) fn has_parts(self) -> bool {
        ["PackageDepends", "PackageRelations", "PackageGroups", "PackageLicenses"]
            .iter()
            .any(|name| self.has(name))
    }

    fn of(is_in: impl Fn(usize) -> bool) -> Tables {
        Tables((0..NAMES.len()).filter(|&at| is_in(at)).fold(0, |tables, at| tables | 1 << at))
    }
}

/// A value for each table; empty if the table has none.
#[derive(Debug, Default, PartialEq, Eq)]
struct Values {
    text: String,
    values: [String; NAMES.len()],
}

impl Values {
    /// The tables whose values are other ones now.
    fn take(&mut self, text: String) -> Tables {
        if text == self.text {
            return Tables::default();
        }
        let mut values: [String; NAMES.len()] = Default::default();
        for (name, value) in text.split(';').filter_map(|table| table.split_once('=')) {
            if let Some(at) = NAMES.iter().position(|other| *other == name) {
                value.clone_into(&mut values[at]);
            }
        }
        let moved = Tables::of(|at| self.values[at] != values[at]);
        *self = Values { text, values };
        moved
    }

    fn has_any(&self) -> bool {
        self.values.iter().any(|value| !value.is_empty())
    }
}

/// The values that were seen last.
#[derive(Debug, Default)]
pub(super) struct Gate {
    counts: Values,
    times: Values,
    asked_times_at: Option<Instant>,
    moved_at: [Option<Instant>; NAMES.len()],
    /// Tables that have moved and were not looked at since.
    unseen: Tables,
    log: Option<String>,
    commits: Option<i64>,
    read_at: Option<Instant>,
    /// Something was committed since the last read.
    is_open: bool,
}

impl Gate {
    /// Notes that these tables are read from now on.
    pub(super) fn reading(&mut self, tables: Tables) {
        let now = Instant::now();
        self.read_at = Some(now);
        self.unseen = Tables(self.unseen.0 & !tables.0);
        // A commit may also have changed another table that moved recently.
        self.is_open &= self.moved_within(AGAIN_MAX, now).0 & !tables.0 != 0;
    }

    /// The tables that should be looked at now; `None` if none should.
    pub(super) async fn look(
        &mut self,
        connection: &mut MySqlConnection,
    ) -> Result<Option<Tables>, sqlx::Error> {
        let (is_first, was_counting) = (self.asked_times_at.is_none(), self.counts.has_any());
        let is_warm = self.last_move().is_some_and(|at| at.elapsed() <= AGAIN_MAX);
        let is_time = self.asked_times_at.is_none_or(|at| at.elapsed() >= TIMES_INTERVAL);
        let mut statements = vec![COUNTS];
        if is_warm || is_time || !was_counting {
            statements.push(TIMES);
        }
        if is_warm {
            statements.push(LOG_POSITION);
        }
        let mut texts = texts(connection, &statements).await?.into_iter();
        let mut moved = self.counts.take(texts.next().flatten().unwrap_or_default());
        let mut times = texts.next();
        let mut log = texts.next();
        if times.is_none() && (moved != Tables::default() || !self.counts.has_any()) {
            times = self::texts(connection, &[TIMES]).await?.into_iter().next();
        }
        let now = Instant::now();
        if let Some(times) = times {
            moved.0 |= self.times.take(times.unwrap_or_default()).0;
            self.asked_times_at = Some(now);
        }
        let is_blind =
            !self.counts.has_any() && !self.times.values.iter().any(|time| says_when(time));
        for at in (0..NAMES.len()).filter(|at| moved.0 >> at & 1 == 1) {
            self.moved_at[at] = Some(now);
        }
        self.unseen.0 |= moved.0;
        if is_first {
            // Values that are not available never move, so only the log tells of changes in these tables.
            self.moved_at = [Some(now); NAMES.len()];
            self.unseen = Tables::ALL;
        }
        let (Some(moved_at), Some(read_at)) = (self.last_move(), self.read_at) else {
            return Ok(Some(Tables::ALL));
        };
        if moved != Tables::default() || is_blind || now - moved_at <= AGAIN_MAX {
            if log.is_none() {
                log = self::texts(connection, &[LOG_POSITION]).await?.into_iter().next();
            }
            self.ask_for_commits(connection, log.flatten()).await?;
        }
        if self.unseen != Tables::default() {
            return Ok(Some(Tables(self.unseen.0 | self.moved_within(TIMES_RESOLUTION, now).0)));
        }
        if self.is_open && is_blind && now - read_at >= BLIND_INTERVAL {
            return Ok(Some(Tables::ALL));
        }
        if self.is_open && is_due(now - moved_at, now - read_at) {
            return Ok(Some(self.moved_within(AGAIN_MAX, now)));
        }
        Ok(None)
    }

    /// The tables that have moved within this time.
    fn moved_within(&self, time: Duration, now: Instant) -> Tables {
        let is_in = |at: Instant| now.saturating_duration_since(at) <= time;
        Tables::of(|at| self.moved_at[at].is_some_and(is_in))
    }

    fn last_move(&self) -> Option<Instant> {
        self.moved_at.iter().flatten().max().copied()
    }

    /// If the `log` has moved, notes whether there was a commit: the log also moves for other reasons, such as the server's own
    /// maintenance.
    async fn ask_for_commits(
        &mut self,
        connection: &mut MySqlConnection,
        log: Option<String>,
    ) -> Result<(), sqlx::Error> {
        if log.is_some() && log == self.log {
            return Ok(());
        }
        self.log = log;
        let commits = sqlx::raw_sql(COMMITS).fetch_one(&mut *connection).await?;
        let commits: Option<i64> = commits.try_get(0)?;
        self.is_open |= commits.is_none() || commits != self.commits;
        self.commits = commits;
        Ok(())
    }
}

/// The results of statements that return one text each, or none.
async fn texts(
    connection: &mut MySqlConnection,
    statements: &[&str],
) -> Result<Vec<Option<String>>, sqlx::Error> {
    let mut texts = vec![None; statements.len()];
    let statements: Vec<String> = statements.iter().map(|&text| text.to_owned()).collect();
    each(connection, &statements, Duration::MAX, |at, row| {
        texts[at] = row.try_get(0)?;
        Ok(())
    })
    .await?;
    Ok(texts)
}

/// Whether the times of a table are two: date and time of its creation, date and time of its last change.
fn says_when(times: &str) -> bool {
    times.split(' ').count() >= 4
}

/// Whether to read again this long after a move, when the last read was this long ago.
fn is_due(since_move: Duration, since_read: Duration) -> bool {
    since_move <= AGAIN_MAX && since_read >= AGAIN_MIN.max(since_move / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_followed_by_fewer_and_fewer_reads() {
        let (mut read_at, mut reads) = (0, Vec::new());
        for now in (0..120_000).step_by(50) {
            if is_due(Duration::from_millis(now), Duration::from_millis(now - read_at)) {
                read_at = now;
                reads.push(now);
            }
        }
        assert_eq!(reads, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000]);
    }

    #[test]
    fn tables_say_when_they_were_changed() {
        assert!(!says_when("2026-01-01 10:00:00"));
        assert!(says_when("2026-01-01 10:00:00 2026-01-01 11:00:00"));
        assert!(!says_when(""));
    }

    #[test]
    fn tables_whose_values_are_others_have_moved() {
        let mut values = Values::default();
        assert_eq!(values.take(String::new()), Tables::default());
        let moved = values.take("Users=1;Sessions=5;Packages=2026-01-01 10:00:00".to_owned());
        assert_eq!(moved, Tables::default().and("Users").and("Packages"));
        let moved = values.take("Packages=2026-01-01 10:00:00;Users=2;Sessions=6".to_owned());
        assert_eq!(moved, Tables::default().and("Users"));
        assert!(values.has_any());
        let moved = values.take(String::new());
        assert_eq!(moved, Tables::default().and("Users").and("Packages"));
        assert!(!values.has_any());
    }

    #[test]
    fn tables_have_names() {
        assert!(NAMES.iter().all(|name| Tables::ALL.has(name)));
        let some = Tables::of(|at| at == 4);
        assert!(some.has("PackageRelations") && some.has_parts() && !some.has("Packages"));
        assert!(some.and("Packages").has("Packages") && !some.and("Packages").has("Groups"));
        assert!(!Tables::of(|at| at < 3).has_parts() && !Tables::ALL.has("Sessions"));
    }
}
