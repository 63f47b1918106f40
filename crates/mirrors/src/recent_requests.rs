//! [`RecentRequests`]: how the requests of a mirror to its upstream went in the last day, for people who look at it.
//!
//! an answer or a failure -> the half hour that it falls into -> a ring of the last [`SPANS`] of them. Kept in memory, by each process of
//! its own requests.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use super::{Mirrors, lock};
use pypi::Stage;

/// The time whose requests are counted together.
const SPAN: Duration = Duration::from_secs(30 * 60);

/// Spans of a day.
pub const SPANS: usize = 48;

/// Requests of one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// How many upstream answered, also by saying that it has no such thing.
    pub answered: u32,
    /// How many had no answer, or another one than was expected.
    pub failed: u32,
}

/// The requests of a day.
#[derive(Debug)]
pub(super) struct RecentRequests {
    /// The newest last.
    spans: VecDeque<Requests>,
    /// The number of the newest, since the server started.
    newest: u64,
    answered_at: Option<SystemTime>,
}

/// How it goes between a mirror and its upstream.
#[derive(Clone, Debug)]
pub struct UpstreamState {
    /// The setting by which upstream is not asked.
    pub offline_by: Option<&'static str>,
    /// Why the upstream fails: at its list, or as a whole.
    pub trouble: Option<String>,
    /// When it last answered.
    pub answered_at: Option<SystemTime>,
    /// The requests of the last [`SPANS`] spans, oldest first.
    pub requests: Vec<Requests>,
}

impl Default for RecentRequests {
    fn default() -> RecentRequests {
        let spans = VecDeque::from(vec![Requests::default(); SPANS]);
        RecentRequests { spans, newest: 0, answered_at: None }
    }
}

impl RecentRequests {
    /// Counts a request that has ended so long after the server started.
    pub(super) fn note(&mut self, since_start: Duration, is_answered: bool) {
        self.forward(since_start);
        if let Some(newest) = self.spans.back_mut() {
            let count = if is_answered { &mut newest.answered } else { &mut newest.failed };
            *count = count.saturating_add(1);
        }
        if is_answered {
            self.answered_at = Some(SystemTime::now());
        }
    }

    /// Forgets what is older than a day.
    fn forward(&mut self, since_start: Duration) {
        let newest = since_start.as_secs() / SPAN.as_secs();
        for _ in 0..newest.saturating_sub(self.newest).min(SPANS as u64) {
            self.spans.pop_front();
            self.spans.push_back(Requests::default());
        }
        self.newest = self.newest.max(newest);
    }
}

impl Mirrors {
    /// How it goes between this mirror and its upstream; `None` if the stage is not a mirror, or names no upstream.
    pub fn state_of(&self, stage: &Stage) -> Option<UpstreamState> {
        let mirror = self.of(stage)?;
        let mut recent = lock(&mirror.recent);
        recent.forward(self.started_at.elapsed());
        Some(UpstreamState {
            offline_by: self.offline_by(&mirror),
            trouble: mirror.trouble(),
            answered_at: recent.answered_at,
            requests: recent.spans.iter().copied().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_day_is_forgotten() {
        let mut recent = RecentRequests::default();
        let at = |span: u64| SPAN * u32::try_from(span).expect("few") + Duration::from_secs(1);
        let said = |recent: &RecentRequests| {
            let counts = recent.spans.iter().enumerate();
            let counts = counts.filter(|(_, it)| **it != Requests::default());
            counts.map(|(at, it)| (at, it.answered, it.failed)).collect::<Vec<_>>()
        };
        assert_eq!((said(&recent), recent.answered_at), (vec![], None));
        recent.note(at(0), false);
        assert_eq!((said(&recent), recent.answered_at), (vec![(47, 0, 1)], None));
        recent.note(at(0), true);
        recent.note(at(2), true);
        assert_eq!(said(&recent), [(45, 1, 1), (47, 1, 0)]);
        assert!(recent.answered_at.is_some());
        // Two requests may end in another order than they look at the clock.
        recent.note(at(1), true);
        assert_eq!(said(&recent), [(45, 1, 1), (47, 2, 0)]);
        recent.forward(at(48));
        assert_eq!(said(&recent), [(1, 2, 0)]);
        recent.note(at(1_000_000), true);
        assert_eq!((said(&recent), recent.spans.len()), (vec![(47, 1, 0)], SPANS));
    }
}
