//! [`Throttle`]: whether a password may be tried now.
//!
//! (account, client) -> [`Throttle::attempt_of`] -> [`Throttle::admit`] -> hashed -> [`Throttle::give_back`] if it was right.
//! Only different wrong passwords count, against three bounds: those of one client for one account, those of one client for all
//! accounts, and those of all clients for one account. The last bound is wide, and does not apply to clients where the
//! account's password was right recently, so nobody can lock the owner of an account out from elsewhere. A password that is
//! remembered as right for this client passes all bounds, up to a separate limit, because an attacker may be guessing behind
//! the same address. Time is an argument; memory is bounded; accounts need not exist.

use std::hash::{BuildHasher, RandomState};

use net::ClientKey;

use super::budget::Budgets;

/// The time in which a budget is refilled, in milliseconds.
pub(super) const WINDOW_MILLISECONDS: u64 = 600_000;

/// Most pairs, most clients and most accounts that are counted at a time.
const KEYS_MAX: usize = 65_536;

/// When the bounds are used up, this many wrong passwords per [`WINDOW_MILLISECONDS`] are still compared with the one
/// that was right for this client recently.
const NEIGHBOURS_TRIES: u32 = 1_000;

/// How many different wrong passwords may be tried within ten minutes; 0 means no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// By one client for one account.
    pub pair: u32,
    /// By one client for all accounts together.
    pub client: u32,
    /// By all clients together for one account, except where its password was right recently.
    pub account: u32,
}

/// The bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThrottleBound {
    /// [`Bounds::pair`].
    Pair,
    /// [`Bounds::client`].
    Client,
    /// [`Bounds::account`].
    Account,
}

impl ThrottleBound {
    /// All bounds.
    pub const ALL: [ThrottleBound; 3] =
        [ThrottleBound::Pair, ThrottleBound::Client, ThrottleBound::Account];

    /// The name in metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            ThrottleBound::Pair => "client_and_account",
            ThrottleBound::Client => "client",
            ThrottleBound::Account => "account",
        }
    }
}

/// A refusal without a look at the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// The bound that was reached.
    pub by: ThrottleBound,
    /// Milliseconds until another try is allowed.
    pub wait_milliseconds: u64,
}

/// A client's try for an account, as hashes that no client can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) pair: u64,
    client: u64,
    account: u64,
}

/// What is known about a password before it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriorResult {
    /// Nothing.
    Nothing,
    /// This password is known to be right, but not from this client.
    RightElsewhere,
    /// For this client, another password was right recently.
    AnotherWasRightHere,
    /// For this client, this password was right recently.
    RightHere,
}

/// The budgets of recent tries.
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

    /// The try of `client` for `account`.
    pub(super) fn attempt_of(&self, account: &str, client: ClientKey) -> Attempt {
        Attempt {
            pair: self.hasher.hash_one((0_u8, account, client)),
            client: self.hasher.hash_one((1_u8, client)),
            account: self.hasher.hash_one((2_u8, account)),
        }
    }

    /// Whether a password may be hashed, which takes a try; or, if it is remembered as right, whether it may be used
    /// without hashing, which takes none.
    pub(super) fn admit(
        &mut self,
        attempt: Attempt,
        prior: PriorResult,
        now: u64,
    ) -> Result<(), Throttled> {
        let was_right_here =
            matches!(prior, PriorResult::RightHere | PriorResult::AnotherWasRightHere);
        let waits = [
            (ThrottleBound::Pair, self.pairs.wait(attempt.pair, now)),
            (ThrottleBound::Client, self.clients.wait(attempt.client, now)),
            (
                ThrottleBound::Account,
                if was_right_here { 0 } else { self.accounts.wait(attempt.account, now) },
            ),
        ];
        // If waits are equal, the first one names the narrowest bound.
        let longest = waits.into_iter().rev().max_by_key(|(_, wait)| *wait);
        let throttled = longest.filter(|(_, wait)| *wait > 0);
        match (throttled, prior) {
            (None, PriorResult::RightHere | PriorResult::RightElsewhere) => Ok(()),
            (None, PriorResult::Nothing | PriorResult::AnotherWasRightHere) => {
                self.pairs.take(attempt.pair, now);
                self.clients.take(attempt.client, now);
                if !was_right_here {
                    self.accounts.take(attempt.account, now);
                }
                Ok(())
            }
            (Some(_), PriorResult::RightHere) if self.neighbours.wait(attempt.pair, now) == 0 => {
                Ok(())
            }
            (Some((by, wait_milliseconds)), prior) => {
                if prior == PriorResult::AnotherWasRightHere {
                    self.neighbours.take(attempt.pair, now);
                }
                Err(Throttled { by, wait_milliseconds })
            }
        }
    }

    /// Whether a request may wait for the result of another request with the same password.
    pub(super) fn may_follow(
        &mut self,
        attempt: Attempt,
        prior: PriorResult,
        now: u64,
    ) -> Result<(), Throttled> {
        let admitted = self.admit(attempt, prior, now);
        if admitted.is_ok() {
            self.give_back(attempt, prior);
        }
        admitted
    }

    /// Returns what [`Throttle::admit`] took, for a password that was right or was not checked.
    pub(super) fn give_back(&mut self, attempt: Attempt, prior: PriorResult) {
        if matches!(prior, PriorResult::Nothing | PriorResult::AnotherWasRightHere) {
            self.pairs.give_back(attempt.pair);
            self.clients.give_back(attempt.client);
        }
        if prior == PriorResult::Nothing {
            self.accounts.give_back(attempt.account);
        }
    }

    /// The size of the tables, in bytes.
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

    /// Tries different wrong passwords of a client for an account until one is refused: how many, and by which bound.
    fn guess(
        throttle: &mut Throttle,
        account: &str,
        number: u32,
        prior: PriorResult,
        now: u64,
    ) -> (u32, Option<ThrottleBound>) {
        let attempt = throttle.attempt_of(account, client(number));
        for count in 0..10_000 {
            if let Err(throttled) = throttle.admit(attempt, prior, now) {
                assert!(throttled.wait_milliseconds > 0);
                return (count, Some(throttled.by));
            }
        }
        (10_000, None)
    }

    #[track_caller]
    fn check(
        throttle: &mut Throttle,
        account: &str,
        number: u32,
        prior: PriorResult,
        expected: bool,
    ) {
        let attempt = throttle.attempt_of(account, client(number));
        let admitted = throttle.admit(attempt, prior, 0);
        assert_eq!(admitted.is_ok(), expected, "{admitted:?}");
        if admitted.is_ok() {
            throttle.give_back(attempt, prior);
        }
    }

    #[test]
    fn a_guesser_has_few_tries_and_then_one_a_minute() {
        let mut throttle = Throttle::new(BOUNDS);
        assert_eq!(
            guess(&mut throttle, "alice", 1, PriorResult::Nothing, 0),
            (10, Some(ThrottleBound::Pair))
        );
        assert_eq!(guess(&mut throttle, "alice", 1, PriorResult::Nothing, 59_999).0, 0);
        assert_eq!(guess(&mut throttle, "alice", 1, PriorResult::Nothing, 60_000).0, 1);
        // Tries for a whole day.
        let tries: u32 = (2..=1440)
            .map(|minute| guess(&mut throttle, "alice", 1, PriorResult::Nothing, minute * 60_000).0)
            .sum();
        assert_eq!(tries, 1439);
    }

    #[test]
    fn the_owner_can_log_in_from_elsewhere() {
        let mut throttle = Throttle::new(BOUNDS);
        guess(&mut throttle, "alice", 1, PriorResult::Nothing, 0);
        check(&mut throttle, "alice", 1, PriorResult::Nothing, false);
        check(&mut throttle, "alice", 2, PriorResult::Nothing, true);
        check(&mut throttle, "bob", 1, PriorResult::Nothing, true);
    }

    #[test]
    fn a_client_that_tries_all_accounts_is_throttled_too() {
        let mut throttle = Throttle::new(BOUNDS);
        let mut tries = 0;
        for number in 0..100 {
            tries += guess(&mut throttle, &format!("user-{number}"), 1, PriorResult::Nothing, 0).0;
        }
        assert_eq!(tries, 50);
        assert_eq!(
            guess(&mut throttle, "zoe", 1, PriorResult::Nothing, 0),
            (0, Some(ThrottleBound::Client))
        );
        // A neighbour behind the same address whose password was right there, and a user of another address.
        check(&mut throttle, "bob", 1, PriorResult::RightHere, true);
        check(&mut throttle, "bob", 1, PriorResult::RightElsewhere, false);
        check(&mut throttle, "bob", 2, PriorResult::Nothing, true);
    }

    #[test]
    fn many_clients_share_the_tries_for_an_account() {
        let mut throttle = Throttle::new(BOUNDS);
        let tries: u32 = (0..1000)
            .map(|number| guess(&mut throttle, "alice", number, PriorResult::Nothing, 0).0)
            .sum();
        assert_eq!(tries, 100);
        assert_eq!(
            guess(&mut throttle, "alice", 5000, PriorResult::Nothing, 0),
            (0, Some(ThrottleBound::Account))
        );
        let attempt = throttle.attempt_of("alice", client(5000));
        let throttled = throttle.admit(attempt, PriorResult::Nothing, 0).expect_err("a refusal");
        assert_eq!(throttled.wait_milliseconds, 6_000, "and never long");
        // Where her password was right recently nothing has changed, not even after a typo.
        check(&mut throttle, "alice", 6000, PriorResult::RightHere, true);
        check(&mut throttle, "alice", 6000, PriorResult::AnotherWasRightHere, true);
        check(&mut throttle, "bob", 5000, PriorResult::Nothing, true);
    }

    #[test]
    fn a_neighbour_who_guesses_does_not_keep_the_owner_out_nor_guess_for_ever() {
        let mut throttle = Throttle::new(BOUNDS);
        assert_eq!(guess(&mut throttle, "alice", 1, PriorResult::AnotherWasRightHere, 0).0, 10);
        check(&mut throttle, "alice", 1, PriorResult::RightHere, true);
        let attempt = throttle.attempt_of("alice", client(1));
        for _ in 0..500 {
            assert!(throttle.admit(attempt, PriorResult::AnotherWasRightHere, 0).is_err());
        }
        check(&mut throttle, "alice", 1, PriorResult::RightHere, true);
        for _ in 0..500 {
            assert!(throttle.admit(attempt, PriorResult::AnotherWasRightHere, 0).is_err());
        }
        check(&mut throttle, "alice", 1, PriorResult::RightHere, false);
        assert!(throttle.admit(attempt, PriorResult::RightHere, WINDOW_MILLISECONDS).is_ok());
    }

    #[test]
    fn without_bounds_nothing_is_refused() {
        let mut throttle = Throttle::new(Bounds { pair: 0, client: 0, account: 0 });
        assert_eq!(guess(&mut throttle, "alice", 1, PriorResult::Nothing, 0), (10_000, None));
        assert_eq!(throttle.bytes(), 0);
    }

    #[test]
    fn a_million_clients_and_accounts_take_no_more_memory() {
        let mut throttle = Throttle::new(BOUNDS);
        guess(&mut throttle, "alice", 1, PriorResult::Nothing, 0);
        let bytes = throttle.bytes();
        assert!(bytes <= 4 << 20, "{bytes}");
        for number in 0..1_000_000_u32 {
            let key = ClientKey::Ipv6Network(number.into());
            let attempt = throttle.attempt_of(&number.to_string(), key);
            let _ = throttle.admit(attempt, PriorResult::Nothing, 0);
        }
        assert!(throttle.bytes() <= 4 << 20, "{}", throttle.bytes());
        check(&mut throttle, "alice", 1, PriorResult::Nothing, false);
    }
}
