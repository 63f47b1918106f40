//! Checks passwords without hashing for each request, and throttles guessing.
//!
//! check + client -> result known? -> [`throttle`] -> a slot to hash in ([`slots`], [`fair_queue`]) -> right or wrong.
//!
//! A hash is slow on purpose, and clients send their password with every request. So a password that was found right
//! is remembered for a while, under a fingerprint that includes the stored hash: a changed password is forgotten at
//! once. A password that was found wrong is remembered in the same way, so that a client with an old password costs
//! nothing and does not look like a guesser: only different wrong passwords count. Nothing that could be a password
//! is stored. Requests that send the same password at the same time share one hash.
//!
//! For a longer time, it remembers for which client an account's password was right, and which password it was. Such a client
//! goes first in the queue, and is admitted where others are throttled. Accounts that do not exist are treated like those that
//! do.
//!
//! [`RemotePasswords`] does the same for passwords that another server checks, with the same counts of wrong ones.

mod budget;
mod episodes;
mod fair_queue;
mod remote;
mod slots;
mod throttle;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use account::{Password, PasswordCheck, PasswordHash, Principal, Refusal};
use net::ClientKey;
use prometheus::{IntCounter, IntGauge};
use quick_cache::sync::Cache;
use resources::turns::blocking;
use tokio::sync::{Notify, watch};

pub use budget::Budgets;
use episodes::Episodes;
pub use episodes::{Subject, ThrottlingEnded};
pub use fair_queue::Priority;
pub use remote::{NotAsked, RemotePasswords};
use slots::HashSlots;
use throttle::{Attempt, PriorResult, Throttle};
pub use throttle::{Bounds, ThrottleBound, Throttled};

/// Most right passwords that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// Most wrong passwords that are remembered.
const WRONG_MAX: usize = 10_000;

/// Most pairs of an account and a client for which it is remembered that the password was right.
const KNOWN_MAX: usize = 65_536;

/// How long such a pair is remembered.
const KNOWN_FOR: Duration = Duration::from_secs(7 * 86_400);

/// A fingerprint of a user, their hash and a password.
type Fingerprint = [u8; 32];

/// The metrics of password checks.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Passwords that wait to be hashed.
    pub waiting: IntGauge,
    /// Passwords that were refused because too many waited.
    pub refused: IntCounter,
    /// Wrong passwords that were hashed.
    pub wrong: IntCounter,
    /// Wrong passwords that were already known to be wrong.
    pub wrong_again: IntCounter,
    /// Tries that were refused, by [`ThrottleBound::ALL`].
    pub throttled: [IntCounter; ThrottleBound::ALL.len()],
    /// Clients, accounts and pairs of them that are throttled now.
    pub episodes: IntGauge,
}

/// Checks passwords, remembers the results, and hashes new passwords.
pub struct Passwords(Arc<Inner>);

struct Inner {
    /// When the password with this fingerprint was found right.
    right: Cache<Fingerprint, Instant>,
    /// Passwords that were found wrong, and whether the account could log in then: once it can, they are checked
    /// again.
    wrong: Cache<(Fingerprint, bool), ()>,
    /// By [`Attempt::pair`]: the last right password of the pair, and when it was found right.
    known: Cache<u64, (Fingerprint, Instant)>,
    /// The hashes in progress, each with the requests that wait for it.
    flights: Mutex<HashMap<Fingerprint, watch::Sender<Option<CheckResult>>>>,
    throttle: Mutex<Throttle>,
    episodes: Mutex<Episodes>,
    /// Told when an episode begins.
    throttling: Notify,
    /// A random secret that makes the fingerprints worthless elsewhere.
    secret: [u8; 32],
    remembered_for: Duration,
    slots: Arc<HashSlots>,
    /// Milliseconds are counted from this instant.
    epoch: Instant,
    hashed: AtomicU64,
    counters: Counters,
}

/// The result of a check.
type CheckResult = Result<Result<Principal, Refusal>, TooMany>;

/// Too many passwords are being hashed, to check them or to store them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked")]
pub struct TooMany;

/// Why a password was not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRefused {
    /// Too many passwords are waiting.
    TooMany,
    /// Too many wrong passwords were tried.
    Throttled {
        /// The bound that was reached, and how long it lasts.
        throttled: Throttled,
        /// Who is throttled, if that has just begun.
        began: Option<Box<ThrottlingBegan>>,
    },
}

/// Who is throttled from now on, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottlingBegan(pub Subject);

impl From<TooMany> for CheckRefused {
    fn from(_: TooMany) -> CheckRefused {
        CheckRefused::TooMany
    }
}

impl Passwords {
    /// Remembers right passwords for `remembered_for`; hashes `at_once` passwords at the same time.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn new(
        remembered_for: Duration,
        at_once: usize,
        bounds: Bounds,
        counters: Counters,
    ) -> Result<Passwords, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Passwords(Arc::new(Inner {
            right: Cache::new(REMEMBERED_MAX),
            wrong: Cache::new(WRONG_MAX),
            known: Cache::new(KNOWN_MAX),
            flights: Mutex::default(),
            throttle: Mutex::new(Throttle::new(bounds)),
            episodes: Mutex::default(),
            throttling: Notify::new(),
            secret,
            remembered_for,
            slots: HashSlots::new(at_once, counters.waiting.clone()),
            epoch: Instant::now(),
            hashed: AtomicU64::new(0),
            counters,
        })))
    }

    /// How many passwords have been hashed since the start, and not answered from memory.
    pub fn hashed(&self) -> u64 {
        self.0.hashed.load(Relaxed)
    }

    /// Runs the check for `client`, or skips it if the result is known.
    ///
    /// # Errors
    /// [`CheckRefused`], with the reason why it was not run.
    pub async fn check(
        &self,
        check: PasswordCheck,
        client: ClientKey,
    ) -> Result<Result<Principal, Refusal>, CheckRefused> {
        let inner = &self.0;
        let now = inner.now();
        let fingerprint = check.fingerprint(&inner.secret);
        let may_pass = check.passed();
        let attempt = inner.throttle().attempt_of(check.user_name().as_str(), client);
        let user = check.user_name().clone();
        let mut outcome = {
            // The lock is held from here on. A check stores its result before it leaves the flights, so a request
            // that finds no flight finds the result, and one password is not hashed twice.
            let mut flights = inner.flights();
            let known = inner.known.get(&attempt.pair).filter(|(_, at)| at.elapsed() < KNOWN_FOR);
            let is_remembered = may_pass.is_ok()
                && inner
                    .right
                    .get(&fingerprint)
                    .is_some_and(|at| at.elapsed() < inner.remembered_for);
            let prior = match known {
                Some((known, _)) if known == fingerprint && may_pass.is_ok() => {
                    PriorResult::RightHere
                }
                Some(_) if !is_remembered => PriorResult::AnotherWasRightHere,
                _ if is_remembered => PriorResult::RightElsewhere,
                _ => PriorResult::Nothing,
            };
            let is_right = matches!(prior, PriorResult::RightHere | PriorResult::RightElsewhere);
            if !is_right && inner.wrong.get(&(fingerprint, may_pass.is_ok())).is_some() {
                inner.counters.wrong_again.inc();
                return Ok(Err(Refusal::Password { user }));
            }
            let flight = flights.get(&fingerprint).filter(|_| !is_remembered);
            let mut throttle = inner.throttle();
            let admitted = match flight {
                Some(_) => throttle.may_follow(attempt, prior, now),
                None => throttle.admit(attempt, prior, now),
            };
            drop(throttle);
            if let Err(throttled) = admitted {
                drop(flights);
                return Err(inner.refused(throttled, user.as_str(), client, now));
            }
            if is_remembered {
                drop(flights);
                inner.known.insert(attempt.pair, (fingerprint, Instant::now()));
                return Ok(may_pass);
            }
            match flight {
                Some(flight) => flight.subscribe(),
                None => {
                    let (sender, outcome) = watch::channel(None);
                    flights.insert(fingerprint, sender);
                    let flight = Flight { inner: inner.clone(), fingerprint, attempt, prior };
                    tokio::spawn(flight.run(check, client));
                    outcome
                }
            }
        };
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(TooMany)),
            // The check panicked; the log has the message.
            Err(_) => Err(TooMany),
        };
        match &outcome {
            Ok(Ok(_)) => inner.known.insert(attempt.pair, (fingerprint, Instant::now())),
            Ok(Err(_)) => inner.counters.wrong.inc(),
            Err(TooMany) => inner.counters.refused.inc(),
        }
        Ok(outcome?)
    }

    /// Whether `client` may try a key, which costs no hash, and whether the key is right. `what` names what the key
    /// opens, in place of an account.
    ///
    /// # Errors
    /// [`CheckRefused::Throttled`] if it may not.
    pub fn check_key(
        &self,
        what: &str,
        given: &[u8],
        client: ClientKey,
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, CheckRefused> {
        let inner = &self.0;
        let now = inner.now();
        let fingerprint = inner.fingerprint_of(what, given);
        let mut throttle = inner.throttle();
        let attempt = throttle.attempt_of(what, client);
        let known = inner.known.get(&attempt.pair).filter(|(_, since)| since.elapsed() < KNOWN_FOR);
        let prior = match known {
            Some((known, _)) if known == fingerprint => PriorResult::RightHere,
            Some(_) => PriorResult::AnotherWasRightHere,
            None => PriorResult::Nothing,
        };
        if prior != PriorResult::RightHere && inner.wrong.get(&(fingerprint, true)).is_some() {
            return Ok(false);
        }
        if let Err(throttled) = throttle.admit(attempt, prior, now) {
            drop(throttle);
            return Err(inner.refused(throttled, what, client, now));
        }
        if is_right() {
            throttle.give_back(attempt, prior);
            inner.known.insert(attempt.pair, (fingerprint, Instant::now()));
            return Ok(true);
        }
        inner.wrong.insert((fingerprint, true), ());
        Ok(false)
    }

    /// Hashes a new password for `client`.
    ///
    /// # Errors
    /// [`TooMany`] if the queue is full.
    pub async fn hash(
        &self,
        password: Password,
        salt: [u8; 16],
        client: ClientKey,
        priority: Priority,
    ) -> Result<PasswordHash, TooMany> {
        let slot = self.0.slots.enter(priority, client).await;
        let slot = slot.inspect_err(|_| self.0.counters.refused.inc())?;
        self.0.hashed.fetch_add(1, Relaxed);
        let hashing = blocking(move || {
            let hash = password.hash(salt);
            drop(slot);
            hash
        });
        Ok(hashing.await)
    }

    /// Waits until an episode of throttling has begun; at once back if one has since the last call. For one caller.
    pub async fn throttled(&self) {
        self.0.throttling.notified().await;
    }

    /// Whether anything is throttled, or was lately.
    pub fn is_throttling(&self) -> bool {
        self.0.episodes().len() > 0
    }

    /// The episodes of throttling that have ended. While there are any, call this regularly, for the log.
    pub fn ended(&self) -> Vec<ThrottlingEnded> {
        let now = self.0.now();
        let mut episodes = self.0.episodes();
        let ended = episodes.ended(now);
        self.0.counters.episodes.set(i64::try_from(episodes.len()).unwrap_or(i64::MAX));
        ended
    }

    /// Ends all episodes of throttling, however recent, at the end of the process.
    pub fn end(&self) -> Vec<ThrottlingEnded> {
        self.0.episodes().ended(u64::MAX)
    }
}

/// A hash that requests wait for.
struct Flight {
    inner: Arc<Inner>,
    fingerprint: Fingerprint,
    attempt: Attempt,
    prior: PriorResult,
}

impl Flight {
    /// Hashes the password, stores the result, and wakes the requests that wait. If all of them are dropped, a hash
    /// that has begun is finished, so that a client cannot get a free try by hanging up; one that has not begun is
    /// skipped.
    async fn run(self, check: PasswordCheck, client: ClientKey) {
        let inner = self.inner.clone();
        let priority =
            if self.prior == PriorResult::RightHere { Priority::Known } else { Priority::Other };
        let slot = inner.slots.enter(priority, client).await;
        let is_abandoned = || {
            let mut flights = inner.flights();
            let is_alone =
                flights.get(&self.fingerprint).is_some_and(|it| it.receiver_count() == 0);
            is_alone && flights.remove(&self.fingerprint).is_some()
        };
        let slot = match slot {
            Ok(slot) if !is_abandoned() => slot,
            _ => {
                inner.throttle().give_back(self.attempt, self.prior);
                self.land(Err(TooMany));
                return;
            }
        };
        inner.hashed.fetch_add(1, Relaxed);
        let running = tokio::task::spawn_blocking(move || {
            let may_pass = check.passed().is_ok();
            let outcome = check.run();
            drop(slot);
            if outcome.is_ok() {
                self.inner.throttle().give_back(self.attempt, self.prior);
                if !self.inner.remembered_for.is_zero() {
                    self.inner.right.insert(self.fingerprint, Instant::now());
                }
            } else {
                self.inner.wrong.insert((self.fingerprint, may_pass), ());
            }
            self.land(Ok(outcome));
        });
        if let Err(error) = running.await {
            tracing::error!(%error, "the check of a password failed");
        }
    }

    /// Wakes the requests that wait.
    fn land(&self, outcome: CheckResult) {
        if let Some(flight) = self.inner.flights().remove(&self.fingerprint) {
            flight.send_replace(Some(outcome));
        }
    }
}

impl Drop for Flight {
    /// After a panic, wakes the requests that wait.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.flights().remove(&self.fingerprint);
        }
    }
}

impl Inner {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<Fingerprint, watch::Sender<Option<CheckResult>>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn episodes(&self) -> MutexGuard<'_, Episodes> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fingerprint of a key.
    fn fingerprint_of(&self, what: &str, given: &[u8]) -> Fingerprint {
        use sha2::Digest as _;
        let mut digest = sha2::Sha256::new();
        digest.update(self.secret);
        digest.update(what.as_bytes());
        digest.update([0]);
        digest.update(given);
        digest.finalize().into()
    }

    /// Counts a refusal.
    fn refused(
        &self,
        throttled: Throttled,
        account: &str,
        client: ClientKey,
        now: u64,
    ) -> CheckRefused {
        self.counters.throttled[throttled.by as usize].inc();
        let names_client = throttled.by != ThrottleBound::Account;
        let names_account = throttled.by != ThrottleBound::Client;
        let subject = Subject {
            by: Some(throttled.by),
            account: names_account.then(|| account.to_owned()),
            client: names_client.then(|| client.to_string()),
        };
        let mut episodes = self.episodes();
        let began =
            episodes.refused(subject, now).map(|subject| Box::new(ThrottlingBegan(subject)));
        self.counters.episodes.set(i64::try_from(episodes.len()).unwrap_or(i64::MAX));
        if began.is_some() {
            self.throttling.notify_one();
        }
        CheckRefused::Throttled { throttled, began }
    }
}

impl Counters {
    /// Counters for tests, which are not registered.
    pub fn unregistered() -> Counters {
        let valid = "the name is valid";
        let gauge = |name: &str| IntGauge::new(name, name).expect(valid);
        let counter = |name: &str| IntCounter::new(name, name).expect(valid);
        Counters {
            waiting: gauge("waiting"),
            refused: counter("refused"),
            wrong: counter("wrong"),
            wrong_again: counter("wrong_again"),
            throttled: ThrottleBound::ALL.map(|bound| counter(bound.name())),
            episodes: gauge("episodes"),
        }
    }
}

#[cfg(test)]
mod tests;
