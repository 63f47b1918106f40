//! When to send the next request: pure arithmetic, with the random number as an argument.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The wait after the first failure, before jitter; a shorter interval takes its place.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_secs(5);
/// After this many failures at the interval, the outage counts as a long one.
const FAILURES_AT_INTERVAL: u32 = 10;
/// In a long outage, retries are at most this many intervals apart.
const INTERVALS_MAX: u32 = 10;

/// How long to wait before the next attempt.
///
/// * no failure: the interval, ±10 %, so that a fleet of servers does not ask in step;
/// * `failures` in a row: 5 s, 10 s, 20 s .. up to the interval, ten times at the interval, then
///   doubling again up to ten intervals; of that, between half and all;
/// * never less than `retry_after` (plus up to 10 %, for the same reason as above).
///
/// `chance` is uniform in 0..1.
pub fn delay(
    failures: u32,
    interval: Duration,
    retry_after: Option<Duration>,
    chance: f64,
) -> Duration {
    let own = if failures == 0 {
        interval.mul_f64(0.9 + 0.2 * chance)
    } else {
        backoff(failures, interval).mul_f64(0.5 + 0.5 * chance)
    };
    let asked = retry_after.map_or(Duration::ZERO, |wait| wait.mul_f64(1.0 + 0.1 * chance));
    own.max(asked)
}

/// The wait after `failures` failures in a row, before jitter.
fn backoff(failures: u32, interval: Duration) -> Duration {
    let longest = interval.saturating_mul(INTERVALS_MAX);
    let mut wait = BACKOFF_FIRST.min(interval);
    let mut at_interval = 0;
    for _ in 1..failures {
        if wait < interval {
            wait = wait.saturating_mul(2).min(interval);
        } else if at_interval + 1 < FAILURES_AT_INTERVAL {
            at_interval += 1;
        } else if wait < longest {
            wait = wait.saturating_mul(2).min(longest);
        } else {
            break;
        }
    }
    wait
}

/// A small generator for jitter. Not for secrets.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// A generator with this seed; equal seeds give equal numbers.
    pub fn seeded(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// A generator with a seed from the system, which differs in each process.
    pub fn from_system() -> Jitter {
        Jitter(RandomState::new().hash_one("jitter"))
    }

    /// The next number, uniform in 0..1.
    pub fn chance(&mut self) -> f64 {
        // SplitMix64: one addition and some mixing of bits is enough to spread requests.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects these waits, in seconds, after failures in a row, each with the longest jitter (chance 1).
    #[track_caller]
    fn check(interval_seconds: u64, failures: std::ops::RangeInclusive<u32>, expected: &str) {
        let interval = Duration::from_secs(interval_seconds);
        let found: Vec<String> =
            failures.map(|count| delay(count, interval, None, 1.0).as_secs().to_string()).collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn backs_off_to_the_interval_and_later_to_ten_of_it() {
        check(300, 1..=9, "5 10 20 40 80 160 300 300 300");
        check(300, 15..=22, "300 300 600 1200 2400 3000 3000 3000");
        check(5, 1..=16, "5 5 5 5 5 5 5 5 5 5 10 20 40 50 50 50");
        check(2, 1..=2, "2 2");
        check(300, u32::MAX..=u32::MAX, "3000");
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_moves() {
        let interval = Duration::from_secs(100);
        let mut jitter = Jitter::seeded(7);
        let (mut lowest, mut highest) = (Duration::MAX, Duration::ZERO);
        for _ in 0..1000 {
            let wait = delay(0, interval, None, jitter.chance());
            (lowest, highest) = (lowest.min(wait), highest.max(wait));
            let wait = delay(1, interval, None, jitter.chance());
            assert!(wait >= BACKOFF_FIRST / 2 && wait <= BACKOFF_FIRST, "{wait:?}");
        }
        assert!(
            lowest >= Duration::from_secs(90) && lowest < Duration::from_secs(91),
            "{lowest:?}"
        );
        assert!(
            highest <= Duration::from_secs(110) && highest > Duration::from_secs(109),
            "{highest:?}"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_chances() {
        let draw = |seed| {
            let mut jitter = Jitter::seeded(seed);
            [jitter.chance(), jitter.chance()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn retry_after_is_a_floor() {
        let interval = Duration::from_secs(300);
        let asked = Some(Duration::from_secs(120));
        assert_eq!(delay(1, interval, asked, 0.0), Duration::from_secs(120));
        assert_eq!(delay(1, interval, asked, 1.0), Duration::from_secs(132));
        assert_eq!(delay(7, interval, asked, 1.0), interval);
    }
}
