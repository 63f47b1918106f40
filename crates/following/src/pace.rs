//! [`Pace`]: how soon a broken connection is made again; [`Failures`]: how often it broke in a row, and what the log knows of it.

use std::fmt::Display;
use std::time::Duration;

/// How soon something that failed is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { first: Duration::from_millis(100), max: Duration::from_secs(15) }
    }
}

impl Pace {
    /// The pause after so many failures in a row, shortened at random by up to half, so that followers which lost their primary
    /// together do not come back together.
    pub fn pause(self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        shortened(doubled.min(self.max))
    }
}

fn shortened(longest: Duration) -> Duration {
    let mut chance = [0; 2];
    // If there are no random bytes, the pause is not shortened.
    let _ = getrandom::fill(&mut chance);
    longest - longest.mul_f64(f64::from(u16::from_le_bytes(chance)) / f64::from(u16::MAX) / 2.0)
}

/// Failures in a row. An answer of the other server is no success: what it sends may be what cannot be written.
#[derive(Debug)]
pub(crate) struct Failures {
    pace: Pace,
    count: u32,
    /// What was logged last, if all was not well since.
    told: Option<String>,
}

impl Failures {
    pub(crate) fn new(pace: Pace) -> Failures {
        Failures { pace, count: 0, told: None }
    }

    /// Notes that something was achieved.
    pub(crate) fn progressed(&mut self) {
        self.count = 0;
    }

    /// Notes that all is well; says whether the log has it otherwise.
    pub(crate) fn are_over(&mut self) -> bool {
        self.told.take().is_some()
    }

    /// Notes a failure, and logs it if it is news; returns how long to wait. One that `is_lasting` needs an administrator.
    pub(crate) fn failed(&mut self, why: &impl Display, is_lasting: bool) -> Duration {
        self.count = self.count.saturating_add(1);
        let why = why.to_string();
        if self.told.as_ref() != Some(&why) {
            tracing::warn!(error = why, "the primary is not followed now");
            self.told = Some(why);
        }
        match is_lasting {
            true => shortened(self.pace.max),
            false => self.pace.pause(self.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let pace = Pace::default();
        for failures in [1, 2, 7, 8, 9, 100, u32::MAX] {
            let longest = (pace.first * (1 << (failures - 1).min(16))).min(pace.max);
            for _ in 0..50 {
                let found = pace.pause(failures);
                assert!(found <= longest && found >= longest / 2, "{failures}: {found:?}");
            }
        }
        let mut failures = Failures::new(pace);
        assert!(failures.failed(&"why", false) <= pace.first);
        assert!(failures.failed(&"why", false) >= pace.first);
        assert!(failures.failed(&"why", true) >= pace.max / 2);
        assert!(failures.are_over() && !failures.are_over());
        // Only progress makes the pause short again.
        assert!(failures.failed(&"why", false) >= pace.first * 4);
        failures.progressed();
        assert!(failures.failed(&"why", false) <= pace.first);
    }
}
