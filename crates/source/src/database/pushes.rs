//! [`Pushes`]: notices pushes that are under way.
//!
//! A push of aurweb commits a package before its dependencies. So packages that are newer than the last read are read only
//! after nothing was added to them for a while.

use std::time::Duration;

use sqlx::{MySqlConnection, Row as _};
use tokio::time::{Instant, sleep};

use super::questions::one;

/// The time without additions after which a push counts as ended.
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// How often new packages are looked at once they had changed in that time.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where pushes never end, the database is read after this time all the same.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);
/// At the start, this many of the latest packages count as newer than the last read.
const RECENT_PACKAGES: i64 = 100;

/// What was seen of packages that are newer than the last read, since one poll has begun.
pub(super) struct Pushes {
    /// The highest number of a package at the last read.
    last_package: i64,
    started_at: Instant,
    quiet: QuietState,
}

impl Pushes {
    /// Those of packages with a higher number than that of the last read, if there was one.
    pub(super) async fn after(
        connection: &mut MySqlConnection,
        last_package: Option<i64>,
    ) -> Result<Pushes, sqlx::Error> {
        let last_package = match last_package {
            Some(last) => last,
            None => {
                let query = "SELECT CAST(COALESCE(MAX(ID), 0) AS SIGNED) FROM Packages";
                let row = one(connection, query.to_owned()).await?;
                row.try_get::<i64, _>(0)? - RECENT_PACKAGES
            }
        };
        Ok(Pushes { last_package, started_at: Instant::now(), quiet: QuietState::default() })
    }

    /// Packages with higher numbers are newer than the last read.
    pub(super) fn last_package(&self) -> i64 {
        self.last_package
    }

    /// The expression that reads the state of these packages, for [`Pushes::have_ended`].
    pub(super) fn state(&self) -> String {
        state_after(self.last_package)
    }

    /// Whether no push is running in this state, which was read now.
    pub(super) fn have_ended(&mut self, state: &str) -> bool {
        self.quiet.is_settled(state, self.started_at.elapsed())
    }

    /// Waits until no push is running; returns whether it had to wait. The first time it looks once, unless it was `seen` in which state
    /// they are: the transaction that reads looks again, and mostly finds that the push has ended.
    pub(super) async fn wait(
        &mut self,
        connection: &mut MySqlConnection,
        mut seen: Option<String>,
    ) -> Result<bool, sqlx::Error> {
        let is_first = self.quiet.state.is_empty();
        let mut has_waited = false;
        loop {
            let state: String = match seen.take() {
                Some(seen) => seen,
                None => one(connection, format!("SELECT {}", self.state())).await?.try_get(0)?,
            };
            if self.have_ended(&state) {
                return Ok(has_waited);
            }
            has_waited = true;
            if is_first {
                sleep(QUIET).await;
                return Ok(true);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }
}

/// The expression that reads the state of packages with higher numbers than this.
pub(super) fn state_after(last: i64) -> String {
    format!(
        "CONCAT_WS(' ', \
         (SELECT COUNT(*) FROM Packages WHERE ID > {last}), \
         (SELECT COALESCE(MAX(ID), 0) FROM Packages), \
         (SELECT COUNT(*) FROM PackageDepends WHERE PackageID > {last}), \
         (SELECT COUNT(*) FROM PackageRelations WHERE PackageID > {last}), \
         (SELECT COUNT(*) FROM PackageGroups WHERE PackageID > {last}), \
         (SELECT COUNT(*) FROM PackageLicenses WHERE PackageID > {last}))"
    )
}

/// A state, and since when it has not changed.
#[derive(Default)]
struct QuietState {
    state: String,
    since: Duration,
}

impl QuietState {
    /// Whether to read now, after seeing this `state` at this time. It begins with the number of new packages.
    fn is_settled(&mut self, state: &str, now: Duration) -> bool {
        if state.starts_with("0 ") {
            return true;
        }
        if self.state != state {
            *self = QuietState { state: state.to_owned(), since: now };
        }
        now - self.since >= QUIET || now >= WAIT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects that the tables are read at this time, in milliseconds, if what is seen changes at the others.
    #[track_caller]
    fn check(changes: &[u64], read: u64) {
        let mut quiet = QuietState::default();
        let mut looks = (0..).step_by(50);
        let found = looks.find(|now| {
            let rows = changes.iter().filter(|change| *change <= now).count();
            quiet.is_settled(&format!("1 7 {rows}"), Duration::from_millis(*now))
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
        assert!(QuietState::default().is_settled("0 7 1", Duration::ZERO));
    }
}
