//! [`Throttle`]: whether a password may be tried now.
//!
//! (account, client) -> [`Throttle::try_of`] -> [`Throttle::admit`] -> hashed -> [`Throttle::give_back`] where it was
//! right. What counts are different wrong passwords: of a client for an account, of a client for all accounts, and for
//! an account of all clients where it was never right lately. The last bound is wide, and leaves alone where the
//! account was right lately: nobody locks an account's owner out from elsewhere. A password that is remembered as
//! right at this very client passes all of them, up to a bound of its own, as somebody else may guess behind the same
//! address. Time is an argument; memory is bounded; no account needs to exist.

use std::hash::{BuildHasher, RandomState};

use super::budget::Budgets;
use crate::net::ClientKey;

/// In what time a budget grows back, in milliseconds.
pub(super) const WINDOW_MILLISECONDS: u64 = 600_000;

/// Pairs, clients and accounts that are counted at a time, each.
const KEYS_MAX: usize = 65_536;

/// Wrong passwords that are looked at in [`WINDOW_MILLISECONDS`], where the bounds are used up, for whether they are
/// the one that was right here lately.
const NEIGHBOURS_TRIES: u32 = 1_000;

/// Different wrong passwords that may be tried within ten minutes; 0: as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// By a client for an account.
    pub pair: u32,
    /// By a client for all accounts together.
    pub client: u32,
    /// For an account by all clients together where it was not right lately.
    pub account: u32,
}

/// What was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// [`Bounds::pair`].
    Pair,
    /// [`Bounds::client`].
    Client,
    /// [`Bounds::account`].
    Account,
}

impl Bound {
    /// All of them.
    pub const ALL: [Bound; 3] = [Bound::Pair, Bound::Client, Bound::Account];

    /// As metrics and the log name it.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Pair => "client_and_account",
            Bound::Client => "client",
            Bound::Account => "account",
        }
    }
}

/// A refusal without looking at the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// What was used up.
    pub by: Bound,
    /// Until there is a try again.
    pub wait_milliseconds: u64,
}

/// Who tries to be whom, as hashes that nobody outside can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Try {
    pub(super) pair: u64,
    client: u64,
    account: u64,
}

/// What is known about a try beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// Nothing.
    Nothing,
    /// This password is known to be right, though not from here.
    RightElsewhere,
    /// Another password was right here lately.
    AnotherWasRightHere,
    /// This password was right here lately.
    RightHere,
}

/// What was tried lately.
#[derive(Debug)]
pub(super) struct Throttle {
    hasher: RandomState,
    pairs: Budgets,
    clients: Budgets,
    accounts: Budgets,
    neighbours: Budgets,
}

impl Throttle {
    pub(super) fn new(bounds: Bounds) -> Throttle {
        let budgets = |tries| Budgets::new(tries, WINDOW_MILLISECONDS, KEYS_MAX);
        Throttle {
            hasher: RandomState::new(),
            pairs: budgets(bounds.pair),
            clients: budgets(bounds.client),
            accounts: budgets(bounds.account),
            neighbours: budgets(NEIGHBOURS_TRIES),
        }
    }

    /// Who tries to be whom.
    pub(super) fn try_of(&self, account: &str, client: ClientKey) -> Try {
        Try {
            pair: self.hasher.hash_one((0_u8, account, client)),
            client: self.hasher.hash_one((1_u8, client)),
            account: self.hasher.hash_one((2_u8, account)),
        }
    }

    /// Whether a password may be hashed, and takes a try for it; or used without being hashed, if it is remembered as
    /// right.
    pub(super) fn admit(&mut self, it: Try, past: Past, now: u64) -> Result<(), Throttled> {
        let was_right_here = matches!(past, Past::RightHere | Past::AnotherWasRightHere);
        let waits = [
            (Bound::Pair, self.pairs.wait(it.pair, now)),
            (Bound::Client, self.clients.wait(it.client, now)),
            (Bound::Account, if was_right_here { 0 } else { self.accounts.wait(it.account, now) }),
        ];
        // The first of equal ones names the narrowest bound.
        let longest = waits.into_iter().rev().max_by_key(|(_, wait)| *wait);
        let throttled = longest.filter(|(_, wait)| *wait > 0);
        match (throttled, past) {
            (None, Past::RightHere | Past::RightElsewhere) => Ok(()),
            (None, Past::Nothing | Past::AnotherWasRightHere) => {
                self.pairs.take(it.pair, now);
                self.clients.take(it.client, now);
                if !was_right_here {
                    self.accounts.take(it.account, now);
                }
                Ok(())
            }
            (Some(_), Past::RightHere) if self.neighbours.wait(it.pair, now) == 0 => Ok(()),
            (Some((by, wait_milliseconds)), past) => {
                if past == Past::AnotherWasRightHere {
                    self.neighbours.take(it.pair, now);
                }
                Err(Throttled { by, wait_milliseconds })
            }
        }
    }

    /// Whether somebody may wait for what comes of the same password that somebody else tries.
    pub(super) fn may_follow(&mut self, it: Try, past: Past, now: u64) -> Result<(), Throttled> {
        let admitted = self.admit(it, past, now);
        if admitted.is_ok() {
            self.give_back(it, past);
        }
        admitted
    }

    /// Gives back what [`Throttle::admit`] took, for a password that was right or was not looked at.
    pub(super) fn give_back(&mut self, it: Try, past: Past) {
        if matches!(past, Past::Nothing | Past::AnotherWasRightHere) {
            self.pairs.give_back(it.pair);
            self.clients.give_back(it.client);
        }
        if past == Past::Nothing {
            self.accounts.give_back(it.account);
        }
    }

    /// What the tables take, in bytes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        [&self.pairs, &self.clients, &self.accounts, &self.neighbours]
            .map(Budgets::bytes)
            .iter()
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { pair: 10, client: 50, account: 100 };

    fn client(number: u32) -> ClientKey {
        ClientKey::Ipv4(number)
    }

    /// Different wrong passwords of a client for an account, until there is a refusal: how many, and by what.
    fn guess(
        throttle: &mut Throttle,
        account: &str,
        number: u32,
        past: Past,
        now: u64,
    ) -> (u32, Option<Bound>) {
        let it = throttle.try_of(account, client(number));
        for count in 0..10_000 {
            if let Err(throttled) = throttle.admit(it, past, now) {
                assert!(throttled.wait_milliseconds > 0);
                return (count, Some(throttled.by));
            }
        }
        (10_000, None)
    }

    #[track_caller]
    fn check(throttle: &mut Throttle, account: &str, number: u32, past: Past, expected: bool) {
        let it = throttle.try_of(account, client(number));
        let admitted = throttle.admit(it, past, 0);
        assert_eq!(admitted.is_ok(), expected, "{admitted:?}");
        if admitted.is_ok() {
            throttle.give_back(it, past);
        }
    }

    #[test]
    fn a_guesser_has_few_tries_and_then_one_a_minute() {
        let mut throttle = Throttle::new(BOUNDS);
        assert_eq!(guess(&mut throttle, "alice", 1, Past::Nothing, 0), (10, Some(Bound::Pair)));
        assert_eq!(guess(&mut throttle, "alice", 1, Past::Nothing, 59_999).0, 0);
        assert_eq!(guess(&mut throttle, "alice", 1, Past::Nothing, 60_000).0, 1);
        // A day of it.
        let tries: u32 = (2..=1440)
            .map(|minute| guess(&mut throttle, "alice", 1, Past::Nothing, minute * 60_000).0)
            .sum();
        assert_eq!(tries, 1439);
    }

    #[test]
    fn its_owner_comes_in_from_elsewhere() {
        let mut throttle = Throttle::new(BOUNDS);
        guess(&mut throttle, "alice", 1, Past::Nothing, 0);
        check(&mut throttle, "alice", 1, Past::Nothing, false);
        check(&mut throttle, "alice", 2, Past::Nothing, true);
        check(&mut throttle, "bob", 1, Past::Nothing, true);
    }

    #[test]
    fn a_client_that_tries_all_accounts_is_throttled_too() {
        let mut throttle = Throttle::new(BOUNDS);
        let mut tries = 0;
        for number in 0..100 {
            tries += guess(&mut throttle, &format!("user-{number}"), 1, Past::Nothing, 0).0;
        }
        assert_eq!(tries, 50);
        assert_eq!(guess(&mut throttle, "zoe", 1, Past::Nothing, 0), (0, Some(Bound::Client)));
        // A neighbour behind the same address whose password was right there; and one who comes from elsewhere.
        check(&mut throttle, "bob", 1, Past::RightHere, true);
        check(&mut throttle, "bob", 1, Past::RightElsewhere, false);
        check(&mut throttle, "bob", 2, Past::Nothing, true);
    }

    #[test]
    fn many_clients_share_the_tries_for_an_account() {
        let mut throttle = Throttle::new(BOUNDS);
        let tries: u32 =
            (0..1000).map(|number| guess(&mut throttle, "alice", number, Past::Nothing, 0).0).sum();
        assert_eq!(tries, 100);
        assert_eq!(
            guess(&mut throttle, "alice", 5000, Past::Nothing, 0),
            (0, Some(Bound::Account))
        );
        let it = throttle.try_of("alice", client(5000));
        let throttled = throttle.admit(it, Past::Nothing, 0).expect_err("a refusal");
        assert_eq!(throttled.wait_milliseconds, 6_000, "and never long");
        // Where she was right lately nothing has changed, not even for a slip.
        check(&mut throttle, "alice", 6000, Past::RightHere, true);
        check(&mut throttle, "alice", 6000, Past::AnotherWasRightHere, true);
        check(&mut throttle, "bob", 5000, Past::Nothing, true);
    }

    #[test]
    fn a_neighbour_who_guesses_does_not_keep_the_owner_out_nor_guess_for_ever() {
        let mut throttle = Throttle::new(BOUNDS);
        assert_eq!(guess(&mut throttle, "alice", 1, Past::AnotherWasRightHere, 0).0, 10);
        check(&mut throttle, "alice", 1, Past::RightHere, true);
        let it = throttle.try_of("alice", client(1));
        for _ in 0..500 {
            assert!(throttle.admit(it, Past::AnotherWasRightHere, 0).is_err());
        }
        check(&mut throttle, "alice", 1, Past::RightHere, true);
        for _ in 0..500 {
            assert!(throttle.admit(it, Past::AnotherWasRightHere, 0).is_err());
        }
        check(&mut throttle, "alice", 1, Past::RightHere, false);
        assert!(throttle.admit(it, Past::RightHere, WINDOW_MILLISECONDS).is_ok());
    }

    #[test]
    fn without_bounds_nothing_is_refused() {
        let mut throttle = Throttle::new(Bounds { pair: 0, client: 0, account: 0 });
        assert_eq!(guess(&mut throttle, "alice", 1, Past::Nothing, 0), (10_000, None));
        assert_eq!(throttle.bytes(), 0);
    }

    #[test]
    fn a_million_clients_and_accounts_take_no_more_memory() {
        let mut throttle = Throttle::new(BOUNDS);
        guess(&mut throttle, "alice", 1, Past::Nothing, 0);
        let bytes = throttle.bytes();
        assert!(bytes <= 4 << 20, "{bytes}");
        for number in 0..1_000_000_u32 {
            let key = ClientKey::Ipv6Network(number.into());
            let it = throttle.try_of(&number.to_string(), key);
            let _ = throttle.admit(it, Past::Nothing, 0);
        }
        assert!(throttle.bytes() <= 4 << 20, "{}", throttle.bytes());
        check(&mut throttle, "alice", 1, Past::Nothing, false);
    }
}
