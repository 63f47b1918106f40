//! What this process has seen of the store, and whether the store still has it.
//!
//! A database can lose commits that it had acknowledged: it is restored from an older copy, or a copy that lagged behind takes
//! over. Its serials then mean other commits than before, and earlier reads do not fit later ones. Each read and each commit
//! therefore compares, in its own transaction, the store with a [`ObservedStore`]: the highest serial, and one record of the latest
//! commit that went by. A key's serial never falls. So this record also reveals a store that lost commits and has taken others
//! since, unless they wrote the same key. Therefore a loss that was noticed once stays noted: the process neither reads nor writes
//! until the store has all [records that went by lately](super::recent_records) again. A replaced or damaged file ([`super::watch`]) stays
//! noted until a restart.
//!
//! Another store's database, put in the place of this one, may have gone further, and have a record under the same key. It is
//! recognized by the record that names the store ([`Anchor`]), which never changes.

use std::sync::Arc;

use bytes::Bytes;
use record::{Key, Serial};

use super::error::Rewound;

/// What is known of the store. It was true before the transaction that it is compared in began.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedStore {
    /// The highest serial that the store is known to have reached.
    pub(super) serial: Serial,
    /// The latest record that was read or written here.
    pub(super) mark: Option<Mark>,
    /// The record that names the store, once the store's name is known.
    pub(super) anchor: Option<Arc<Anchor>>,
    /// The loss that was noticed before and has not ended.
    pub(super) lost: Option<Rewound>,
}

/// A key, and the serial that it had.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) key: Key,
    pub(super) serial: Serial,
}

/// A record that the store has for as long as it is the same store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) key: Key,
    pub(super) body: Bytes,
}

impl ObservedStore {
    /// The key and the body of the record that names the store; both empty while the name is not known, and then the
    /// database is asked nothing.
    pub(super) fn anchor(&self) -> (&str, &[u8]) {
        self.anchor.as_ref().map_or(("", &[]), |anchor| (anchor.key.as_str(), &anchor.body))
    }

    /// The key whose serial [`ObservedStore::check`] compares. Empty if there is none yet: no record has an empty key.
    pub(super) fn key(&self) -> &str {
        self.mark.as_ref().map_or("", |mark| mark.key.as_str())
    }

    /// Compares with a store at serial `store`, whose record under [`ObservedStore::key`] has the serial `found`;
    /// `is_anchored`: it has the record of [`ObservedStore::anchor`].
    ///
    /// # Errors
    /// [`Rewound`] if the store lacks something of this.
    pub(super) fn check(
        &self,
        store: Serial,
        found: Option<Serial>,
        is_anchored: bool,
    ) -> Result<(), Rewound> {
        match self.lost {
            Some(Rewound::Behind { seen, .. }) => {
                return Err(Rewound::Behind { found: store, seen });
            }
            Some(lost @ (Rewound::Stranger | Rewound::Replaced | Rewound::Damaged(_))) => {
                return Err(lost);
            }
            None => {}
        }
        if !is_anchored {
            return Err(Rewound::Stranger);
        }
        if store < self.serial {
            return Err(Rewound::Behind { found: store, seen: self.serial });
        }
        match &self.mark {
            Some(mark) if found < Some(mark.serial) => {
                Err(Rewound::Behind { found: store, seen: mark.serial })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares after serial 9 was seen, and `a` at 8; `lost` is the serial up to which commits are missing.
    #[track_caller]
    fn check(store: u64, found: Option<u64>, lost: Option<u64>) {
        let mark = Mark { key: Key::new("a").expect("a key"), serial: Serial(8) };
        let seen =
            ObservedStore { serial: Serial(9), mark: Some(mark), ..ObservedStore::default() };
        let rewound = lost.map(|seen| Rewound::Behind { found: Serial(store), seen: Serial(seen) });
        assert_eq!(seen.check(Serial(store), found.map(Serial), true).err(), rewound);
    }

    #[test]
    fn a_store_that_goes_on_has_what_was_seen() {
        check(9, Some(8), None);
        check(12, Some(8), None);
        check(12, Some(11), None);
    }

    #[test]
    fn a_store_that_fell_back_is_noticed() {
        check(8, Some(8), Some(9));
        check(5, Some(3), Some(9));
        check(0, None, Some(9));
    }

    #[test]
    fn so_is_one_that_has_taken_other_commits_since() {
        check(9, Some(7), Some(8));
        check(12, Some(3), Some(8));
        check(12, None, Some(8));
    }

    #[test]
    fn what_was_lost_stays_lost() {
        let check = |lost, expected| {
            let seen = ObservedStore { lost: Some(lost), ..ObservedStore::default() };
            assert_eq!(seen.check(Serial(9), None, true), Err(expected));
        };
        let behind = |found| Rewound::Behind { found: Serial(found), seen: Serial(4) };
        check(behind(2), behind(9));
        check(Rewound::Replaced, Rewound::Replaced);
        let cut = Rewound::Damaged(super::super::error::Damage::Cut);
        check(cut, cut);
    }

    #[test]
    fn nothing_seen_is_nothing_lost() {
        assert_eq!(ObservedStore::default().check(Serial::ZERO, None, true), Ok(()));
    }

    #[test]
    fn another_store_is_told_however_far_it_has_come() {
        let mark = Mark { key: Key::new("a").expect("a key"), serial: Serial(8) };
        let seen =
            ObservedStore { serial: Serial(9), mark: Some(mark), ..ObservedStore::default() };
        assert_eq!(seen.check(Serial(90), Some(Serial(80)), false), Err(Rewound::Stranger));
        let lost = ObservedStore { lost: Some(Rewound::Stranger), ..seen };
        assert_eq!(lost.check(Serial(9), Some(Serial(8)), true), Err(Rewound::Stranger));
    }
}
