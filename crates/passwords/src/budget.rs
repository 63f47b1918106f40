//! [`Budgets`]: how many tries each key has left, in a table of a fixed size.
//!
//! A budget is full at first, each try takes one from it, and it refills evenly. Only the time at which it will be
//! full again is stored (the generic cell rate algorithm), so a full budget needs no entry and nothing has to be
//! cleaned up. If there are more keys than places, the fullest budgets are evicted first: a flood of new keys evicts
//! only itself, and does not help a client that has used up its budget. Time is an argument.

/// Keys that collide share a set of this size.
const SET_ENTRIES: usize = 8;

/// A key's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    key: u64,
    /// When it is full again, in milliseconds; if that time has passed, the place is free.
    whole_at: u64,
}

/// The budgets of many keys; keys are hashes that no client can choose.
#[derive(Debug)]
pub struct Budgets {
    /// Milliseconds in which one try is refilled; zero means no bound.
    each: u64,
    /// Milliseconds in which the whole budget is refilled.
    all: u64,
    sets: usize,
    /// The table, which is made when the first try is taken.
    entries: Vec<[Entry; SET_ENTRIES]>,
}

impl Budgets {
    /// Budgets of `tries` per `milliseconds`, for about `keys_max` keys at a time; with 0 tries there is no bound.
    /// Takes 16 bytes a key once the first try is taken, and never more.
    pub fn new(tries: u32, milliseconds: u64, keys_max: usize) -> Budgets {
        let each = milliseconds.checked_div(tries.into()).map_or(0, |each| each.max(1));
        let sets = keys_max.div_ceil(SET_ENTRIES).max(1);
        Budgets { each, all: each * u64::from(tries), sets, entries: Vec::new() }
    }

    /// Milliseconds until `key` has a try; 0 if it has one now.
    pub fn wait(&self, key: u64, now: u64) -> u64 {
        let used = self.find(key).map_or(0, |entry| entry.whole_at.saturating_sub(now));
        if self.each == 0 { 0 } else { (used + self.each).saturating_sub(self.all) }
    }

    /// Takes a try from `key`, even if it has none; at most one try is owed.
    pub fn take(&mut self, key: u64, now: u64) {
        if self.each == 0 {
            return;
        }
        if self.entries.is_empty() {
            self.entries = vec![[Entry::default(); SET_ENTRIES]; self.sets];
        }
        let at = self.set_of(key);
        let set = &mut self.entries[at];
        let is_it = |entry: &Entry| entry.key == key && entry.whole_at > now;
        let place = set.iter().position(is_it).unwrap_or_else(|| {
            // A free place, or else that of the fullest budget.
            (0..SET_ENTRIES).min_by_key(|&place| set[place].whole_at.max(now)).unwrap_or(0)
        });
        let entry = &mut set[place];
        if !is_it(entry) {
            *entry = Entry { key, whole_at: now };
        }
        entry.whole_at = (entry.whole_at + self.each).min(now + self.all + self.each);
    }

    /// Returns a try that was taken.
    pub fn give_back(&mut self, key: u64) {
        let (at, each) = (self.set_of(key), self.each);
        let set = self.entries.get_mut(at).into_iter().flatten();
        for entry in set.filter(|entry| entry.key == key) {
            entry.whole_at = entry.whole_at.saturating_sub(each);
        }
    }

    fn find(&self, key: u64) -> Option<&Entry> {
        self.entries.get(self.set_of(key))?.iter().find(|entry| entry.key == key)
    }

    fn set_of(&self, key: u64) -> usize {
        (key % self.sets as u64) as usize
    }

    /// The size of the table, in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<[Entry; SET_ENTRIES]>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_budget_is_used_up_and_grows_back() {
        let mut budgets = Budgets::new(10, 600_000, 64);
        for _ in 0..10 {
            assert_eq!(budgets.wait(7, 0), 0);
            budgets.take(7, 0);
        }
        assert_eq!(budgets.wait(7, 0), 60_000);
        assert_eq!(budgets.wait(8, 0), 0, "others have their own");
        assert_eq!(budgets.wait(7, 59_999), 1);
        assert_eq!(budgets.wait(7, 60_000), 0);
        budgets.give_back(7);
        assert_eq!(budgets.wait(7, 0), 0, "as if it had not been taken");
        budgets.give_back(9);
        assert_eq!(budgets.wait(9, 0), 0);
    }

    #[test]
    fn no_bound_is_no_bound() {
        let mut budgets = Budgets::new(0, 600_000, 64);
        (0..100).for_each(|_| budgets.take(7, 0));
        assert_eq!((budgets.wait(7, 0), budgets.bytes()), (0, 0));
    }

    /// A million keys with one try each, and one key that had used up its budget before.
    #[test]
    fn a_flood_of_keys_takes_no_memory_and_frees_nobody() {
        let mut budgets = Budgets::new(10, 600_000, 4096);
        (0..10).for_each(|_| budgets.take(u64::MAX / 3, 0));
        let bytes = budgets.bytes();
        assert!(bytes <= 4096 * 16 + 4096, "{bytes}");
        for key in 0..1_000_000_u64 {
            budgets.take(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        }
        assert_eq!(budgets.bytes(), bytes);
        assert_eq!(budgets.wait(u64::MAX / 3, 0), 60_000);
    }

    proptest! {
        /// A client that tries as soon as it may, at any times, gets at most the budget plus the refill.
        #[test]
        fn no_guesser_gets_more(tries in 1_u32..20, pauses in prop::collection::vec(0_u64..90_000, 1..200)) {
            let mut budgets = Budgets::new(tries, 600_000, 64);
            let (mut now, mut taken) = (1_000, Vec::new());
            for pause in pauses {
                now += pause;
                if budgets.wait(7, now) == 0 {
                    budgets.take(7, now);
                    taken.push(now);
                }
            }
            for (at, from) in taken.iter().enumerate() {
                for (count, until) in taken[at..].iter().enumerate() {
                    let grown = (until - from) / (600_000 / u64::from(tries));
                    prop_assert!((count as u64) < u64::from(tries) + grown);
                }
            }
        }

        /// Returning a try undoes taking it.
        #[test]
        fn giving_back_undoes_taking(before in 0_u32..10, now in 0_u64..1_000_000) {
            let mut budgets = Budgets::new(10, 600_000, 64);
            (0..before).for_each(|_| budgets.take(7, now));
            let wait = budgets.wait(7, now);
            budgets.take(7, now);
            budgets.give_back(7);
            prop_assert_eq!(budgets.wait(7, now), wait);
        }
    }
}
