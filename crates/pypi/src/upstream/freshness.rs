//! When the upstream is asked again: by the age of what is known, and by recent failures.

use std::time::Duration;

/// How good a page of a certain age is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Serve it.
    Fresh,
    /// Serve it, and ask the upstream in the background, so that no request waits when it expires.
    Aging,
    /// The upstream is asked before it is served.
    Expired,
}

/// How good something is that was confirmed `age` ago, if it expires after `expiry`. An age of `None` is that of the
/// future: the clock was set back, so it counts as expired.
pub fn standing(age: Option<Duration>, expiry: Duration) -> Standing {
    match age {
        Some(age) if age < expiry * 4 / 5 => Standing::Fresh,
        Some(age) if age < expiry => Standing::Aging,
        _ => Standing::Expired,
    }
}

/// A circuit breaker: after several failures in a row an upstream is left alone for a while, then one request probes it.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u32,
    retry_at: Duration,
}

impl Breaker {
    /// How many failures in a row open it.
    pub const FAILURES_MIN: u32 = 3;
    /// The first pause; each further failure doubles it.
    const PAUSE_MIN: Duration = Duration::from_secs(1);
    /// The longest pause.
    const PAUSE_MAX: Duration = Duration::from_secs(30);

    /// Whether the upstream may be asked at `now`, a time since any fixed moment. After a pause, one request may, and
    /// the others wait for another pause or for its success.
    pub fn admits(&mut self, now: Duration) -> bool {
        if self.failures < Breaker::FAILURES_MIN {
            return true;
        }
        let is_due = now >= self.retry_at;
        if is_due {
            self.retry_at = now + self.pause();
        }
        is_due
    }

    /// The upstream has answered.
    pub fn succeeded(&mut self) {
        *self = Breaker::default();
    }

    /// The upstream has failed at `now`.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now + self.pause();
    }

    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(Breaker::FAILURES_MIN).min(8);
        (Breaker::PAUSE_MIN * 2_u32.pow(doublings)).min(Breaker::PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn ages() {
        let check = |age: Option<u64>, expected| {
            assert_eq!(standing(age.map(seconds), seconds(100)), expected, "{age:?}");
        };
        check(Some(0), Standing::Fresh);
        check(Some(79), Standing::Fresh);
        check(Some(80), Standing::Aging);
        check(Some(99), Standing::Aging);
        check(Some(100), Standing::Expired);
        check(None, Standing::Expired);
        assert_eq!(
            standing(Some(seconds(0)), seconds(0)),
            Standing::Expired,
            "nothing is ever fresh"
        );
    }

    #[test]
    fn a_failing_upstream_is_left_alone_and_probed() {
        let mut breaker = Breaker::default();
        for second in 0..3 {
            assert!(breaker.admits(seconds(second)), "it is closed");
            breaker.failed(seconds(second));
        }
        assert!(!breaker.admits(seconds(2)), "it has just failed");
        assert!(breaker.admits(seconds(3)), "one probes");
        assert!(!breaker.admits(seconds(3)), "the others wait for the probe");
        breaker.failed(seconds(3));
        assert!(!breaker.admits(seconds(4)), "the pause has doubled");
        assert!(breaker.admits(seconds(5)), "one probes");
        breaker.succeeded();
        assert!(breaker.admits(seconds(5)) && breaker.admits(seconds(5)), "it is closed again");
        for _ in 0..1000 {
            breaker.failed(seconds(10));
        }
        assert!(breaker.admits(seconds(40)), "a pause is never longer than half a minute");
    }
}
