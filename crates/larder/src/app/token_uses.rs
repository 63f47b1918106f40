//! When each token was used last: [`TokenUses`] notes it in memory, and [`tasks::token_uses`](crate::tasks::token_uses) in the store.
//!
//! The store has it to the day: a write for each use would cost more than the use. A process knows the second for the tokens that
//! it was sent since it started.

use std::sync::atomic::{AtomicBool, Ordering};

use account::{Snapshot, TokenId};
use jiff::Timestamp;
use quick_cache::sync::Cache;
use tokio::sync::Notify;

/// Most tokens that are remembered; it takes some four megabytes.
const TOKENS_MAX: usize = 65_536;

/// When each token was used last, in whole seconds.
pub(crate) struct TokenUses {
    seconds: Cache<TokenId, i64>,
    /// Whether a use was noted since the last look.
    is_changed: AtomicBool,
    changed: Notify,
}

impl Default for TokenUses {
    fn default() -> TokenUses {
        TokenUses {
            seconds: Cache::new(TOKENS_MAX),
            is_changed: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }
}

impl TokenUses {
    /// Notes that a token was used at `now`.
    pub(crate) fn note(&self, id: TokenId, now: Timestamp) {
        // Most are used many times a second, or not at all.
        if self.seconds.get(&id) != Some(now.as_second()) {
            self.seconds.insert(id, now.as_second());
            if !self.is_changed.swap(true, Ordering::AcqRel) {
                self.changed.notify_one();
            }
        }
    }

    /// When it was used last; `None` if neither this process nor the store knows of a use.
    pub(crate) fn last(&self, accounts: &Snapshot, id: TokenId) -> Option<Timestamp> {
        let seen = self.seconds.get(&id).and_then(|second| Timestamp::from_second(second).ok());
        seen.max(accounts.token_used_at(id))
    }

    /// Waits until there is a use since the last [`TokenUses::take`].
    pub(crate) async fn wait(&self) {
        self.changed.notified().await;
    }

    /// All uses that this process remembers, if there is one since this was called last.
    pub(crate) fn take(&self) -> Vec<(TokenId, Timestamp)> {
        if !self.is_changed.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let uses = self.seconds.iter();
        uses.filter_map(|(id, second)| Some((id, Timestamp::from_second(second).ok()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_counts() {
        let (uses, none) = (TokenUses::default(), Snapshot::new());
        let id = "0123456789ab".parse().expect("an id");
        assert_eq!(uses.last(&none, id), None);
        assert_eq!(uses.take(), []);
        for second in [5, 5, 7] {
            uses.note(id, Timestamp::from_second(second).expect("a time"));
            assert_eq!(uses.last(&none, id), Timestamp::from_second(second).ok());
        }
        assert_eq!(uses.take(), [(id, Timestamp::from_second(7).expect("a time"))]);
        assert_eq!(uses.take(), []);
    }
}
