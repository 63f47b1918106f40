//! This machine's clock, beside the clocks of the store: whatever deletes by time asks here first.
//!
//! the database's `now()`, the time of a file or an object written just now -> the difference -> [`Clocks::check`], before much is
//! deleted, and [`Clocks::is_right`] for what it found. A clock that is wrong makes everything old at once, and what was deleted is
//! gone for all processes of the store. On a machine with SQLite and a directory, both are by the same clock, and agree.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use store::Store;

use crate::text::counted;

/// Clocks that differ by more do not agree.
pub(crate) const DIFFERENCE_MAX: Duration = Duration::from_secs(60);

/// Tokens and sessions are removed this long after they have expired: nobody misses one that a wrong clock took for expired.
pub(crate) const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How this machine's clock differs from one of the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The other clock.
    whose: &'static str,
    /// Negative if this machine is behind.
    ahead: SignedDuration,
}

/// A difference beyond [`DIFFERENCE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this machine's clock is {} {} that of {}: nothing is deleted by time until they agree within {} s",
    shown(.0.ahead.unsigned_abs()),
    if .0.ahead.is_negative() { "behind" } else { "ahead of" },
    .0.whose,
    DIFFERENCE_MAX.as_secs()
)]
pub struct WrongClock(Difference);

/// The clocks, as they were compared last.
pub struct Clocks {
    store: Store,
    known: Mutex<Option<KnownDifference>>,
}

#[derive(Clone, Copy)]
struct KnownDifference {
    difference: Difference,
    /// When it was, by this machine's clock, and by the one that is never set.
    at: (SystemTime, Instant),
}

impl Clocks {
    /// The clocks of `store`, which are not known yet.
    pub fn new(store: Store) -> Clocks {
        Clocks { store, known: Mutex::new(None) }
    }

    /// Compares them now.
    ///
    /// # Errors
    /// [`WrongClock`]; or a clock of the store cannot be asked.
    pub async fn check(&self) -> anyhow::Result<()> {
        let difference = compare(&self.store).await?;
        let known = KnownDifference { difference, at: (SystemTime::now(), Instant::now()) };
        let before = self.known().replace(known);
        match (difference.judged(), before.map(|before| before.difference.judged())) {
            (Err(error), None | Some(Ok(()))) => tracing::error!("{error}"),
            (Ok(()), Some(Err(_))) => tracing::info!("the clocks agree again"),
            _ => {}
        }
        Ok(difference.judged()?)
    }

    /// What is wrong, as far as it is known.
    pub fn trouble(&self) -> Option<WrongClock> {
        let known = (*self.known())?;
        known.difference_now().judged().err()
    }

    /// Whether the clocks were compared and agreed, and this machine's was not set since.
    pub fn is_right(&self) -> bool {
        self.known().is_some_and(|known| known.difference_now().judged().is_ok())
    }

    /// By how many seconds this machine is ahead, as far as it is known.
    pub fn seconds_ahead(&self) -> f64 {
        self.known().map_or(0.0, |known| known.difference_now().ahead.as_secs_f64())
    }

    /// What expired before this may be removed; `None` while nothing may.
    pub fn forget_before(&self, now: Timestamp) -> Option<Timestamp> {
        self.is_right().then(|| now.saturating_sub(FORGET_AFTER).unwrap_or(Timestamp::MIN))
    }

    fn known(&self) -> MutexGuard<'_, Option<KnownDifference>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownDifference {
    /// The difference now, if the other clock went on as time did, and this one may have been set.
    fn difference_now(&self) -> Difference {
        let (at, then) = self.at;
        let expected = at + then.elapsed();
        let ahead = self.difference.ahead.saturating_add(between(expected, SystemTime::now()));
        Difference { ahead, ..self.difference }
    }
}

impl Difference {
    /// From a clock's name and time, which was read between two moments of this machine's clock.
    fn of(
        (whose, other, begun, ended): (&'static str, SystemTime, SystemTime, SystemTime),
    ) -> Self {
        let ahead = if other < begun {
            between(other, begun)
        } else if other > ended {
            between(other, ended)
        } else {
            SignedDuration::ZERO
        };
        Difference { whose, ahead }
    }

    fn judged(self) -> Result<(), WrongClock> {
        match self.ahead.unsigned_abs() <= DIFFERENCE_MAX {
            true => Ok(()),
            false => Err(WrongClock(self)),
        }
    }
}

/// Compares this machine's clock with those of `store`, for commands that delete by time.
///
/// # Errors
/// [`WrongClock`]; or a clock of the store cannot be asked.
pub async fn check(store: &Store) -> anyhow::Result<()> {
    Ok(compare(store).await?.judged()?)
}

/// The largest difference.
async fn compare(store: &Store) -> anyhow::Result<Difference> {
    let begun = SystemTime::now();
    let database =
        store.records.now().await.context("the clock of the database cannot be asked")?;
    let database = database.map(|now| ("the database", now, begun, SystemTime::now()));
    let begun = SystemTime::now();
    let blobs = store.blobs.now().await.context("the clock beside the blobs cannot be asked")?;
    let blobs = ("the place of the blobs", blobs, begun, SystemTime::now());
    let blobs = Difference::of(blobs);
    let database = database.map(Difference::of);
    let larger = database.filter(|it| it.ahead.unsigned_abs() > blobs.ahead.unsigned_abs());
    Ok(larger.unwrap_or(blobs))
}

/// From `from` to `to`.
fn between(from: SystemTime, to: SystemTime) -> SignedDuration {
    let signed = |span: Duration| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    match to.duration_since(from) {
        Ok(span) => signed(span),
        Err(error) => -signed(error.duration()),
    }
}

/// `2 days`
fn shown(span: Duration) -> String {
    let seconds = (span + Duration::from_millis(500)).as_secs();
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or((1, "second"));
    counted(seconds / unit.0, unit.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(other_seconds: u64, expected: &str) {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let begun = 1_000_000;
        let difference =
            Difference::of(("the database", at(other_seconds), at(begun), at(begun + 5)));
        let said = difference.judged().err().map(|error| error.to_string()).unwrap_or_default();
        let said = said.split(':').next().unwrap_or_default();
        assert_eq!(said, expected, "{other_seconds}");
    }

    #[test]
    fn clocks_agree_within_a_minute() {
        check(1_000_000, "");
        check(1_000_005, "");
        check(1_000_065, "");
        check(999_940, "");
        check(999_900, "this machine's clock is 100 seconds ahead of that of the database");
        check(1_000_365, "this machine's clock is 6 minutes behind that of the database");
        check(
            1_000_000 - 2 * 86_400,
            "this machine's clock is 2 days ahead of that of the database",
        );
    }

    #[test]
    fn a_clock_that_was_set_since_is_wrong() {
        let right = Difference { whose: "the database", ahead: SignedDuration::ZERO };
        let known =
            |wall: SystemTime| KnownDifference { difference: right, at: (wall, Instant::now()) };
        let now = SystemTime::now();
        assert!(known(now).difference_now().judged().is_ok());
        let hour = Duration::from_secs(3_600);
        assert!(known(now - hour).difference_now().judged().is_err(), "it was set an hour ahead");
        assert!(known(now + hour).difference_now().judged().is_err(), "it was set an hour back");
    }
}
