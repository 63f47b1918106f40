//! [`Episodes`]: which accounts and clients are being throttled, for one log line at the beginning and one at the
//! end.
//!
//! Refusals are counted and not logged one by one. An episode ends when it had no refusal for a while. Beyond a maximum of
//! episodes, all further ones count as one together. Time is an argument.

use std::collections::HashMap;

use super::throttle::ThrottleBound;

/// Most episodes that are counted separately.
const EPISODES_MAX: usize = 1_024;

/// An episode ends when it had no refusal for this many milliseconds.
pub(super) const QUIET_MILLISECONDS: u64 = 60_000;

/// Who is throttled: the account, the client, or both. Neither stands for all episodes beyond the maximum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// The bound that refuses.
    pub by: Option<ThrottleBound>,
    /// The account, if it is counted by accounts.
    pub account: Option<String>,
    /// The client, if it is counted by clients.
    pub client: Option<String>,
}

/// An episode that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottlingEnded {
    /// What was throttled.
    pub subject: Subject,
    /// Requests that were refused.
    pub refused: u64,
    /// Seconds from the first refusal to the last.
    pub seconds: u64,
}

#[derive(Clone, Copy, Debug)]
struct Episode {
    began: u64,
    last: u64,
    refused: u64,
}

/// The episodes that have not ended.
#[derive(Debug, Default)]
pub(super) struct Episodes(HashMap<Subject, Episode>);

impl Episodes {
    /// Counts a refusal; returns its subject if it begins an episode.
    pub(super) fn refused(&mut self, subject: Subject, now: u64) -> Option<Subject> {
        let subject = if self.0.len() >= EPISODES_MAX && !self.0.contains_key(&subject) {
            Subject { by: None, account: None, client: None }
        } else {
            subject
        };
        if let Some(episode) = self.0.get_mut(&subject) {
            episode.last = now;
            episode.refused += 1;
            return None;
        }
        self.0.insert(subject.clone(), Episode { began: now, last: now, refused: 1 });
        Some(subject)
    }

    /// Removes the episodes that have ended, and returns them.
    pub(super) fn ended(&mut self, now: u64) -> Vec<ThrottlingEnded> {
        let is_over = |_: &Subject, episode: &mut Episode| {
            now.saturating_sub(episode.last) >= QUIET_MILLISECONDS
        };
        let ended = self.0.extract_if(is_over).map(|(subject, episode)| ThrottlingEnded {
            subject,
            refused: episode.refused,
            seconds: (episode.last - episode.began) / 1000,
        });
        ended.collect()
    }

    /// Number of episodes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(account: &str) -> Subject {
        let (account, client) = (Some(account.to_owned()), Some("192.0.2.1".to_owned()));
        Subject { by: Some(ThrottleBound::Pair), account, client }
    }

    #[test]
    fn an_episode_has_a_beginning_and_an_end() {
        let mut episodes = Episodes::default();
        assert_eq!(episodes.refused(subject("alice"), 0), Some(subject("alice")));
        for now in 1..=5_000 {
            assert_eq!(episodes.refused(subject("alice"), now), None);
        }
        assert_eq!(episodes.ended(5_000 + QUIET_MILLISECONDS - 1), []);
        let ended = ThrottlingEnded { subject: subject("alice"), refused: 5_001, seconds: 5 };
        assert_eq!(episodes.ended(5_000 + QUIET_MILLISECONDS), [ended]);
        assert_eq!(episodes.ended(u64::MAX), []);
        assert_eq!(episodes.refused(subject("alice"), 99_999), Some(subject("alice")), "anew");
    }

    #[test]
    fn episodes_beyond_the_maximum_are_one() {
        let mut episodes = Episodes::default();
        let mut begun = 0;
        for number in 0..1_000_000 {
            begun += usize::from(episodes.refused(subject(&number.to_string()), 0).is_some());
        }
        assert_eq!((begun, episodes.len()), (EPISODES_MAX + 1, EPISODES_MAX + 1));
        let ended = episodes.ended(u64::MAX);
        let many = ended.iter().find(|ended| ended.subject.by.is_none()).expect("the others");
        assert_eq!(many.refused, 1_000_000 - EPISODES_MAX as u64);
    }
}
