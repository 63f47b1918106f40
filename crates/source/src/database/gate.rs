//! [`Gate`]: finds the tables in which a commit may have changed something that answers show, at almost no cost.
//!
//! MariaDB has no notifications, and each of its counters alone misses changes (`docs/aur-database.md`):
//!
//! - `ROWS_CHANGED` counts rows by table, but when a statement runs, before its commit; and not those of cascades.
//! - `UPDATE_TIME` is set at the commit, cascades included, but to the second, and to the one in which the transaction began.
//!   Asking for it costs the server more, so that is done every few seconds, and whenever a count has moved.
//! - The position of InnoDB's log moves with every commit of any table, and the number of commits also with those that only
//!   read. Asking for these costs the server most.
//!
//! So a table is looked at when a value of it moves, and for a while again whenever the log and the number of commits move: after a
//! quarter of a second, then after pauses as long as half the time since the move. A transaction that stays open for a time is seen
//! at most half that time later.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row as _};
use tokio::time::Instant;

use super::questions::one;

/// The shortest time between two reads for one move.
const AGAIN_MIN: Duration = Duration::from_millis(250);
/// How long after a move commits of other tables still cause reads.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How often the tables are read while the log moves, where the tables' values are not available.
const BLIND_INTERVAL: Duration = Duration::from_secs(5);
/// How often the times are asked for while no count moves: only they tell of the commit of a transaction that was open for longer than
/// [`AGAIN_MAX`].
const TIMES_INTERVAL: Duration = Duration::from_secs(4);

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

/// The number of commits of all connections, and the position of the log. Together they cost the server as much as one. Like the
/// next ones, this is an expression, so that one statement can ask for several of them.
const POSITION: &str = "(SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME SEPARATOR ' ') \
     FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('HANDLER_COMMIT', 'INNODB_LSN_CURRENT'))";

/// The number of commits of this connection.
const OWN_COMMITS: &str = "(SELECT CAST(VARIABLE_VALUE AS SIGNED) \
     FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'HANDLER_COMMIT')";

/// All tables with their values, in one text: if it is the same as before, nothing has to be done.
const TIMES: &str = "(SELECT GROUP_CONCAT(TABLE_NAME, '=', COALESCE(CONCAT_WS(' ', CREATE_TIME, UPDATE_TIME), '') SEPARATOR ';') \
     FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE())";
const COUNTS: &str = "(SELECT GROUP_CONCAT(TABLE_NAME, '=', ROWS_CHANGED SEPARATOR ';') \
     FROM information_schema.TABLE_STATISTICS WHERE TABLE_SCHEMA = DATABASE())";
/// In place of what is not asked for.
const NOTHING: &str = "NULL";

/// Makes sure that these texts are not cut, whatever the server's settings are.
pub(super) const SESSION: &str = "SET SESSION group_concat_max_len = 1000000";

/// Some of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables(u16);

impl Tables {
    pub(super) const ALL: Tables = Tables((1 << NAMES.len()) - 1);

    /// Those that a push changes.
    pub(super) fn of_pushes() -> Tables {
        Tables::of(|at| {
            NAMES[at] == "PackageBases" || NAMES[at] == "Packages" || is_part(NAMES[at])
        })
    }

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

    /// Whether a push may have changed one of these tables.
    pub(super) fn have_pushes(self) -> bool {
        self.has("Packages") || self.has_parts()
    }

    /// Whether one of these tables has parts of packages.
    pub(super) fn has_parts(self) -> bool {
        NAMES.into_iter().any(|name| is_part(name) && self.has(name))
    }

    fn of(is_in: impl Fn(usize) -> bool) -> Tables {
        Tables((0..NAMES.len()).filter(|&at| is_in(at)).fold(0, |tables, at| tables | 1 << at))
    }
}

/// Whether the table with this name has parts of packages.
fn is_part(name: &str) -> bool {
    ["PackageDepends", "PackageRelations", "PackageGroups", "PackageLicenses"].contains(&name)
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

/// How far the database is.
#[derive(Clone, Debug, Default)]
struct DatabasePosition {
    /// What [`POSITION`] says; `None` if it is not known.
    text: Option<String>,
    /// The number of commits of this connection; `None` if it is not known.
    own: Option<i64>,
}

impl DatabasePosition {
    /// The number of commits of all connections.
    fn commits(&self) -> Option<i64> {
        let (commits, _) = self.text.as_ref()?.split_once(' ')?;
        commits.parse().ok()
    }

    /// The number of commits of all other connections.
    fn others(&self) -> Option<i64> {
        Some(self.commits()? - self.own?)
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
    position: DatabasePosition,
    /// The number of commits of other connections.
    others: Option<i64>,
    read_at: Option<Instant>,
    /// Something was committed since the last read.
    is_open: bool,
}

impl Gate {
    /// Notes that these tables are read by a transaction that has begun after what was `looked` at.
    pub(super) fn reading(&mut self, tables: Tables, looked: GateLook) {
        let now = Instant::now();
        if tables != Tables::default() {
            self.read_at = Some(now);
        }
        let GateLook { counts, times, position, .. } = looked;
        self.note_counts(counts, now);
        self.note_times(times, now);
        self.unseen = Tables(self.unseen.0 & !tables.0);
        self.take(position);
        // A commit may also have changed another table that moved recently.
        self.is_open &= self.moved_within(AGAIN_MAX, now).0 & !tables.0 != 0;
    }

    /// Notes that this connection has read something, which counts as a commit.
    pub(super) fn has_committed(&mut self) {
        self.position.own = None;
    }

    /// The tables that should be looked at now; `None` if none should. While changes go on, it also asks for the text that the expression
    /// `pushed` reads from tables.
    pub(super) async fn look(
        &mut self,
        connection: &mut MySqlConnection,
        pushed: Option<String>,
    ) -> Result<(Option<Tables>, Option<String>), sqlx::Error> {
        let pushed = pushed.filter(|_| self.is_warm());
        let looking = self.look_and_ask(connection, pushed.as_deref().unwrap_or(NOTHING));
        let found = looking.await?;
        if pushed.is_some() {
            // This has read tables, too: the next time there is one commit more.
            self.position.own = self.position.own.map(|own| own + 1);
        }
        Ok(found)
    }

    async fn look_and_ask(
        &mut self,
        connection: &mut MySqlConnection,
        pushed: &str,
    ) -> Result<(Option<Tables>, Option<String>), sqlx::Error> {
        let (is_first, was_counting) = (self.asked_times_at.is_none(), self.counts.has_any());
        let is_warm = self.is_warm();
        let is_time = self.asked_times_at.is_none_or(|at| at.elapsed() >= TIMES_INTERVAL);
        let asks_times = is_warm || is_time || !was_counting;
        let looking = ask(
            connection,
            [
                COUNTS,
                if asks_times { TIMES } else { NOTHING },
                if is_warm { POSITION } else { NOTHING },
                // This connection has read something since.
                if is_warm && self.position.own.is_none() { OWN_COMMITS } else { NOTHING },
                pushed,
            ],
        );
        let GateLook { counts, times, mut position, pushed } = looking.await?;
        let has_moved = self.note_counts(counts, Instant::now());
        if asks_times {
            self.note_times(times, Instant::now());
        } else if has_moved || !self.counts.has_any() {
            let times = ask(connection, [NOTHING, TIMES, NOTHING, NOTHING, NOTHING]).await?.times;
            self.note_times(times, Instant::now());
        }
        let now = Instant::now();
        let is_blind =
            !self.counts.has_any() && !self.times.values.iter().any(|time| says_when(time));
        if is_first {
            // Values that are not available never move, so only the log tells of changes in these tables.
            self.moved_at = [Some(now); NAMES.len()];
            self.unseen = Tables::ALL;
        }
        let (Some(moved_at), Some(read_at)) = (self.last_move(), self.read_at) else {
            return Ok((Some(Tables::ALL), pushed));
        };
        if self.unseen != Tables::default() {
            // They are read now, from a position that is asked for then.
            let tables = Tables(self.unseen.0 | self.moved_within(TIMES_RESOLUTION, now).0);
            return Ok((Some(tables), pushed));
        }
        if is_blind || now - moved_at <= AGAIN_MAX {
            if !is_warm {
                let asking = ask(connection, [NOTHING, NOTHING, POSITION, OWN_COMMITS, NOTHING]);
                position = asking.await?.position;
            }
            position.own = position.own.or(self.position.own);
            self.take(position);
        }
        if self.is_open && is_blind && now - read_at >= BLIND_INTERVAL {
            return Ok((Some(Tables::ALL), pushed));
        }
        if self.is_open && is_due(now - moved_at, now - read_at) {
            return Ok((Some(self.moved_within(AGAIN_MAX, now)), pushed));
        }
        Ok((None, pushed))
    }

    /// Notes these values of [`COUNTS`]; returns whether a table has moved.
    fn note_counts(&mut self, counts: Option<String>, now: Instant) -> bool {
        let moved = self.counts.take(counts.unwrap_or_default());
        self.note_moved(moved, now);
        moved != Tables::default()
    }

    /// Notes these values of [`TIMES`].
    fn note_times(&mut self, times: Option<String>, now: Instant) {
        let moved = self.times.take(times.unwrap_or_default());
        self.note_moved(moved, now);
        self.asked_times_at = Some(now);
    }

    fn note_moved(&mut self, moved: Tables, now: Instant) {
        for at in (0..NAMES.len()).filter(|at| moved.0 >> at & 1 == 1) {
            self.moved_at[at] = Some(now);
        }
        self.unseen.0 |= moved.0;
    }

    /// The tables that have moved within this time.
    fn moved_within(&self, time: Duration, now: Instant) -> Tables {
        let is_in = |at: Instant| now.saturating_duration_since(at) <= time;
        Tables::of(|at| self.moved_at[at].is_some_and(is_in))
    }

    /// Whether a table has moved a short time ago.
    pub(super) fn is_warm(&self) -> bool {
        self.last_move().is_some_and(|at| at.elapsed() <= AGAIN_MAX)
    }

    fn last_move(&self) -> Option<Instant> {
        self.moved_at.iter().flatten().max().copied()
    }

    /// Notes how far the database is, and whether another connection has committed since the position before: the log also moves for
    /// other reasons, such as the server's own maintenance, and the number of commits by this connection's own.
    fn take(&mut self, position: DatabasePosition) {
        if position.commits().is_none() || position.commits() != self.position.commits() {
            let others = position.others();
            self.is_open |= others.is_none() || others != self.others;
            self.others = others;
        }
        self.position = position;
    }
}

/// What one look has found; nothing in place of what was not asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct GateLook {
    counts: Option<String>,
    times: Option<String>,
    position: DatabasePosition,
    /// The state of new packages.
    pushed: Option<String>,
}

impl GateLook {
    /// The statement that asks for everything that does not read tables.
    pub(super) fn statement() -> String {
        look([COUNTS, TIMES, POSITION, OWN_COMMITS, NOTHING])
    }

    /// The one row of such a statement.
    pub(super) fn of(row: &MySqlRow) -> Result<GateLook, sqlx::Error> {
        let position = DatabasePosition { text: row.try_get(2)?, own: row.try_get(3)? };
        let (counts, times) = (row.try_get(0)?, row.try_get(1)?);
        Ok(GateLook { counts, times, position, pushed: row.try_get(4)? })
    }
}

/// The statement that asks for these expressions, each of which is the one in its place or [`NOTHING`].
fn look(expressions: [&str; 5]) -> String {
    format!("SELECT {}", expressions.join(", "))
}

/// Asks for these, as [`look`] does.
async fn ask(
    connection: &mut MySqlConnection,
    expressions: [&str; 5],
) -> Result<GateLook, sqlx::Error> {
    GateLook::of(&one(connection, look(expressions)).await?)
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
