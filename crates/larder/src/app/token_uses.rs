//! When each token was used last, as far as this process knows: since it started, and for the tokens used last.
//!
//! Nothing is stored: a write for each read would cost more than the read.

use account::TokenId;
use jiff::Timestamp;
use quick_cache::sync::Cache;

/// Most tokens that are remembered; it takes some four megabytes.
const TOKENS_MAX: usize = 65_536;

/// When each token was used last, in whole seconds.
pub struct TokenUses(Cache<TokenId, i64>);

impl Default for TokenUses {
    fn default() -> TokenUses {
        TokenUses(Cache::new(TOKENS_MAX))
    }
}

impl TokenUses {
    /// Notes that a token was used at `now`.
    pub fn note(&self, id: TokenId, now: Timestamp) {
        // Most are used many times a second, or not at all.
        if self.0.get(&id) != Some(now.as_second()) {
            self.0.insert(id, now.as_second());
        }
    }

    /// When it was used last; None if that is not known.
    pub fn last(&self, id: TokenId) -> Option<Timestamp> {
        Timestamp::from_second(self.0.get(&id)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_counts() {
        let (uses, id) = (TokenUses::default(), "0123456789ab".parse().expect("an id"));
        assert_eq!(uses.last(id), None);
        for second in [5, 5, 7] {
            uses.note(id, Timestamp::from_second(second).expect("a time"));
            assert_eq!(uses.last(id), Timestamp::from_second(second).ok());
        }
    }
}
