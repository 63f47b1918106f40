//! [`Rates`]: how many requests a second each surface answered in the last hour, for people who look at the status page.
//!
//! the counters of [`super`] -> a look every [`INTERVAL`] -> a ring of the last [`LOOKS_MAX`] looks -> [`Rates::of`]. A request
//! costs nothing more: it is counted anyway.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::routes::Surface;

/// How often it is looked.
pub(crate) const INTERVAL: Duration = Duration::from_secs(15);

/// An hour of looks, plus the one before.
const LOOKS_MAX: usize = 241;

/// Requests so far, by surface.
pub(crate) type Counts = [u64; Surface::COUNT];

/// The last looks at the counters.
#[derive(Default)]
pub(crate) struct Rates(Mutex<VecDeque<(Instant, Counts)>>);

impl Rates {
    /// Keeps a look at the counters.
    pub(crate) fn look(&self, at: Instant, counts: Counts) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() == LOOKS_MAX {
            looks.pop_front();
        }
        looks.push_back((at, counts));
    }

    /// Requests a second of a surface between the looks, oldest first; empty until there are two.
    pub(crate) fn of(&self, surface: Surface) -> Vec<f64> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = |look: &(Instant, Counts)| (look.0, look.1[surface as usize]);
        let pairs = looks.iter().zip(looks.iter().skip(1));
        let rates = pairs.map(|(before, after)| {
            let ((from, first), (to, last)) = (counted(before), counted(after));
            let seconds = to.saturating_duration_since(from).as_secs_f64();
            if seconds > 0.0 { last.saturating_sub(first) as f64 / seconds } else { 0.0 }
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_looks() {
        let (rates, begin) = (Rates::default(), Instant::now());
        let look = |second: u64, count: u64| {
            let mut counts = Counts::default();
            counts[Surface::Aur as usize] = count;
            rates.look(begin + Duration::from_secs(second), counts);
        };
        look(0, 5);
        assert!(rates.of(Surface::Aur).is_empty());
        look(10, 25);
        look(20, 25);
        look(20, 26);
        assert_eq!(rates.of(Surface::Aur), [2.0, 0.0, 0.0]);
        assert_eq!(rates.of(Surface::Python), [0.0, 0.0, 0.0]);
        for second in 0..1_000 {
            look(100 + second, second);
        }
        assert_eq!(rates.of(Surface::Aur), [1.0; LOOKS_MAX - 1]);
    }
}
