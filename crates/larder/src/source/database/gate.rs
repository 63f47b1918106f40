//! [`Gate`]: whether a commit may have changed what answers are made of, for next to nothing.
//!
//! MariaDB has no notifications, and each of its counters alone misses changes (`docs/aur-database.md`):
//!
//! - `ROWS_CHANGED` counts rows by table, but when a statement runs, before its commit; and not those of cascades.
//! - `UPDATE_TIME` is set at the commit, cascades included, but to the second, and to the one in which the transaction
//!   began.
//! - The position of InnoDB's log moves with every commit of any table. To ask for it costs the server several times as
//!   much as the others.
//!
//! So the tables are read when a value of theirs moves, and for a while again whenever the log moves: after a quarter of
//! a second, then after pauses as long as half the time since the move. A transaction that stays open for a time is seen
//! at most half that time later.

use std::time::Duration;

use sqlx::MySqlConnection;
use tokio::time::Instant;

/// The shortest time between two reads for one move.
const AGAIN_MIN: Duration = Duration::from_millis(250);
/// How long after a move commits of other tables still cause reads.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How often the tables are read while the log moves, where the tables' values are not available.
const BLIND_INTERVAL: Duration = Duration::from_secs(5);

const LOG_POSITION: &str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
     WHERE VARIABLE_NAME = 'INNODB_LSN_CURRENT'";

/// The values of all tables in one text.
const TABLES: &str = "SELECT COALESCE(GROUP_CONCAT(CONCAT_WS(' ', TABLE_NAME, CREATE_TIME, UPDATE_TIME) \
     ORDER BY TABLE_NAME SEPARATOR '\n'), '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() \
     AND TABLE_NAME IN ('Users', 'PackageBases', 'Packages', 'PackageDepends', 'PackageRelations', 'Groups', \
     'PackageGroups', 'Licenses', 'PackageLicenses', 'PackageKeywords', 'PackageComaintainers', 'PackageRequests')";

const STATISTICS: &str = "SELECT COALESCE(GROUP_CONCAT(CONCAT_WS(' ', TABLE_NAME, ROWS_CHANGED) \
     ORDER BY TABLE_NAME SEPARATOR '\n'), '') FROM information_schema.TABLE_STATISTICS WHERE TABLE_SCHEMA = DATABASE() \
     AND TABLE_NAME IN ('Users', 'PackageBases', 'Packages', 'PackageDepends', 'PackageRelations', 'Groups', \
     'PackageGroups', 'Licenses', 'PackageLicenses', 'PackageKeywords', 'PackageComaintainers', 'PackageRequests')";

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Gate {
    tables: String,
    log: Option<String>,
    moved_at: Option<Instant>,
    read_at: Option<Instant>,
    /// The log has moved since the last read.
    is_open: bool,
}

impl Gate {
    /// The tables are read from now on.
    pub(super) fn reading(&mut self) {
        self.read_at = Some(Instant::now());
        self.is_open = false;
    }

    /// Whether the tables should be read now.
    pub(super) async fn look(
        &mut self,
        connection: &mut MySqlConnection,
    ) -> Result<bool, sqlx::Error> {
        let tables: String = sqlx::query_scalar(TABLES).fetch_one(&mut *connection).await?;
        let counts: String = sqlx::query_scalar(STATISTICS).fetch_one(&mut *connection).await?;
        let is_blind = counts.is_empty() && !says_when(&tables);
        let tables = format!("{tables}\n{counts}");
        let now = Instant::now();
        let has_moved = self.tables != tables;
        if has_moved {
            self.tables = tables;
            self.moved_at = Some(now);
        }
        let (Some(moved_at), Some(read_at)) = (self.moved_at, self.read_at) else {
            return Ok(true);
        };
        if has_moved || is_blind || now - moved_at <= AGAIN_MAX {
            let log = sqlx::query_scalar(LOG_POSITION).fetch_optional(&mut *connection).await?;
            self.is_open |= log.is_none() || log != self.log;
            self.log = log;
        }
        if has_moved {
            return Ok(true);
        }
        let is_due =
            is_due(now - moved_at, now - read_at) || is_blind && now - read_at >= BLIND_INTERVAL;
        Ok(self.is_open && is_due)
    }
}

/// Whether a table has a time of its last change: name, date and time of its creation, date and time.
fn says_when(tables: &str) -> bool {
    tables.lines().any(|line| line.split(' ').count() >= 5)
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
        assert!(!says_when("Groups 2026-01-01 10:00:00\nUsers 2026-01-01 10:00:00"));
        assert!(says_when(
            "Groups 2026-01-01 10:00:00\nUsers 2026-01-01 10:00:00 2026-01-01 11:00:00"
        ));
        assert!(!says_when(""));
    }
}
