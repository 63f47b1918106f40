//! When the upstream is asked again: by the age of what is known, and by recent failures.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

/// How good a page of a certain age is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Serve it.
    Fresh,
    /// Serve it, and ask the upstream in the background, so that no request waits when it expires.
    Aging,
    /// The upstream is asked before it is served.
    Expired,
}

/// How good something is that was confirmed `age` ago, if it expires after `expiry`. An age of `None` is that of the
/// future: the clock was set back, so it counts as expired.
pub fn standing(age: Option<Duration>, expiry: Duration) -> Freshness {
    match age {
        Some(age) if age < expiry * 4 / 5 => Freshness::Fresh,
        Some(age) if age < expiry => Freshness::Aging,
        _ => Freshness::Expired,
    }
}

/// A circuit breaker: after several failures in a row, something is left alone for a while, then one request probes it.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u32,
    retry_at: Duration,
}

impl Breaker {
    /// How many failures in a row open it.
    pub(crate) const FAILURES_MIN: u32 = 3;
    /// The first pause; each further failure doubles it.
    const PAUSE_MIN: Duration = Duration::from_secs(1);
    /// The longest pause.
    const PAUSE_MAX: Duration = Duration::from_secs(30);

    /// Whether it may be asked at `now`, a time since any fixed moment. After a pause, one request may, and
    /// the others wait for another pause or for its success.
    pub fn admits(&mut self, now: Duration) -> bool {
        let is_due = !self.is_open() || now >= self.retry_at;
        if is_due && self.is_open() {
            self.retry_at = now + self.pause();
        }
        is_due
    }

    /// It has failed at `now`.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now + self.pause();
    }

    /// When it was, or may next be, asked after a pause.
    pub fn retry_at(&self) -> Duration {
        self.retry_at
    }

    fn is_open(&self) -> bool {
        self.failures >= Breaker::FAILURES_MIN
    }

    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(Breaker::FAILURES_MIN).min(8);
        (Breaker::PAUSE_MIN * 2_u32.pow(doublings)).min(Breaker::PAUSE_MAX)
    }
}

/// What a failed request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// No request gets through now: there is no connection, or the upstream wants to be left alone.
    Upstream,
    /// The upstream fails, perhaps only at this page: it has not answered in time, or with an error of the server.
    Unclear,
    /// The upstream works, and this page of it does not.
    Page,
}

/// When an upstream is left alone as a whole. One page that fails again and again does not count: several different ones have
/// to. After a pause, a page that has not failed is preferred to probe the upstream.
#[derive(Clone, Debug)]
pub struct Outage<Page> {
    breaker: Breaker,
    /// The pages that have failed since the upstream last answered.
    failed: HashSet<Page>,
    /// When one of them may probe the upstream, because no other page was requested.
    repeat_at: Duration,
}

impl<Page> Default for Outage<Page> {
    fn default() -> Outage<Page> {
        Outage { breaker: Breaker::default(), failed: HashSet::new(), repeat_at: Duration::ZERO }
    }
}

impl<Page: Eq + Hash> Outage<Page> {
    /// Pages that are remembered. More fail only in an outage of hours.
    const FAILED_MAX: usize = 1_000;

    /// Whether the upstream may be asked for this page at `now`.
    pub fn admits(&mut self, page: &Page, now: Duration) -> bool {
        if self.breaker.is_open() && self.failed.contains(page) {
            let is_due = now >= self.repeat_at;
            if is_due {
                self.repeat_at = now + self.breaker.pause() * 2;
            }
            return is_due;
        }
        self.breaker.admits(now)
    }

    /// The upstream has answered.
    pub fn answered(&mut self) {
        self.breaker = Breaker::default();
        self.failed.clear();
    }

    /// The upstream has failed at this page at `now`, in a way that is not the page's alone.
    pub fn failed(&mut self, page: Page, now: Duration, blame: Blame) {
        let retry_at = self.breaker.retry_at;
        if self.failed.len() >= Self::FAILED_MAX {
            self.failed.clear();
        }
        let is_first = self.failed.insert(page);
        if is_first || blame == Blame::Upstream || self.breaker.is_open() {
            self.breaker.failed(now);
            self.repeat_at = now + self.breaker.pause() * 2;
        }
        if !is_first && blame == Blame::Unclear {
            // Pages that have not failed need not wait for this one.
            self.breaker.retry_at = retry_at;
        }
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
        check(Some(0), Freshness::Fresh);
        check(Some(79), Freshness::Fresh);
        check(Some(80), Freshness::Aging);
        check(Some(99), Freshness::Aging);
        check(Some(100), Freshness::Expired);
        check(None, Freshness::Expired);
        assert_eq!(
            standing(Some(seconds(0)), seconds(0)),
            Freshness::Expired,
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
        breaker = Breaker::default();
        assert!(breaker.admits(seconds(5)) && breaker.admits(seconds(5)), "it is closed again");
        for _ in 0..1000 {
            breaker.failed(seconds(10));
        }
        assert!(breaker.admits(seconds(40)), "a pause is never longer than half a minute");
    }

    #[test]
    fn one_page_that_fails_closes_nothing() {
        let mut outage = Outage::default();
        for second in 0..100 {
            outage.failed("bad", seconds(second), Blame::Unclear);
        }
        assert!(outage.admits(&"good", seconds(99)) && outage.admits(&"bad", seconds(99)));
        for page in ["worse", "worst"] {
            outage.failed(page, seconds(100), Blame::Unclear);
        }
        assert!(!outage.admits(&"good", seconds(100)), "three pages have failed");
        assert!(!outage.admits(&"bad", seconds(101)), "a page that has not failed goes first");
        assert!(outage.admits(&"good", seconds(101)) && !outage.admits(&"other", seconds(101)));
        assert!(outage.admits(&"bad", seconds(102)), "nobody else has asked");
        outage.failed("bad", seconds(102), Blame::Unclear);
        assert!(outage.admits(&"other", seconds(102)), "the trial of others was not used up");
        outage.answered();
        assert!(outage.admits(&"bad", seconds(102)) && outage.admits(&"good", seconds(102)));
        for second in 103..106 {
            outage.failed("bad", seconds(second), Blame::Upstream);
        }
        assert!(!outage.admits(&"good", seconds(105)), "there is no connection for any page");
    }
}
