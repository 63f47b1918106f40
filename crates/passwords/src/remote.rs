//! [`RemotePasswords`]: passwords that another server checks. It is asked seldom, by few at once, and never twice for the same.
//!
//! check + client -> result known? -> throttle, shared with the passwords that are checked here -> a turn to ask -> told.
//!
//! What was told is remembered for a while: so the hundreds of requests of an installer are one question. Whoever sends the same
//! name and password meanwhile waits for the same answer. A question whose senders all left while it waited is not asked. A password
//! that is refused again and again is asked about more and more seldom: a program with an old one must not lock its user out there.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use account::{Password, UserName};
use net::ClientKey;
use prometheus::IntGauge;
use quick_cache::sync::Cache;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::fair_queue::Priority;
use crate::slots::HashSlots;
use crate::throttle::{Attempt, PriorResult};
use crate::{
    CheckRefused, Fingerprint, Inner, KNOWN_FOR, Passwords, REMEMBERED_MAX, TooMany, WRONG_MAX,
};

/// How long a password is not asked about that was refused so often: meanwhile it may have become the right one. Any half an hour has
/// at most four questions.
fn wrong_for(refusals: u32) -> Duration {
    Duration::from_secs(match refusals {
        ..=1 => 30,
        2 => 300,
        _ => 900,
    })
}

/// Checks passwords by asking another server, which tells `T` of a user whose password is right, or fails with `F`.
pub struct RemotePasswords<T, F>(Arc<RemoteCheck<T, F>>);

struct RemoteCheck<T, F> {
    passwords: Arc<Inner>,
    /// When the password with this fingerprint was told to be right, with what else was told.
    right: Cache<Fingerprint, (Instant, T)>,
    /// When it was told to be wrong the last time, and how often since it was right.
    wrong: Cache<Fingerprint, (Instant, u32)>,
    wrong_for: fn(u32) -> Duration,
    /// The questions that are asked now, each with the requests that wait for it.
    flights: Mutex<HashMap<Fingerprint, ResultSender<T, F>>>,
    slots: Arc<HashSlots>,
    remembered_for: Duration,
    /// How long a question waits for its turn.
    waits_for: Duration,
}

type ResultSender<T, F> = watch::Sender<Option<Outcome<T, F>>>;

/// What a question came to: what was told of the user, or nothing because the password is wrong.
type Outcome<T, F> = Result<Option<T>, NotAsked<F>>;

/// Why a password was not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAsked<F> {
    /// Too many wait, or too many wrong passwords were tried.
    Refused(CheckRefused),
    /// The other server does not tell.
    Failed(F),
}

impl<T, F> RemotePasswords<T, F>
where
    T: Clone + Send + Sync + 'static,
    F: Clone + Send + Sync + 'static,
{
    /// Asks for `at_once` passwords at the same time, and remembers right ones for `remembered_for`. A question waits for its turn
    /// for `waits_for`. Wrong ones count together with those that `passwords` checks.
    pub fn new(
        passwords: &Passwords,
        at_once: usize,
        remembered_for: Duration,
        waits_for: Duration,
        waiting: IntGauge,
    ) -> RemotePasswords<T, F> {
        RemotePasswords::with(passwords, at_once, remembered_for, waits_for, waiting, wrong_for)
    }

    fn with(
        passwords: &Passwords,
        at_once: usize,
        remembered_for: Duration,
        waits_for: Duration,
        waiting: IntGauge,
        wrong_for: fn(u32) -> Duration,
    ) -> RemotePasswords<T, F> {
        RemotePasswords(Arc::new(RemoteCheck {
            passwords: passwords.0.clone(),
            right: Cache::new(REMEMBERED_MAX),
            wrong: Cache::new(WRONG_MAX),
            wrong_for,
            flights: Mutex::default(),
            slots: HashSlots::new(at_once, waiting),
            remembered_for,
            waits_for,
        }))
    }

    /// What `ask` tells of the user with this password, which `client` sent; `None` if it is wrong, or there is no such user. It is
    /// called only if that is not known.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub async fn check<Asks>(
        &self,
        user: &UserName,
        password: &Password,
        client: ClientKey,
        ask: impl FnOnce() -> Asks,
    ) -> Result<Option<T>, NotAsked<F>>
    where
        Asks: Future<Output = Result<Option<T>, F>> + Send + 'static,
    {
        let RemoteCheck { passwords: inner, .. } = &*self.0;
        let now = inner.now();
        let fingerprint = self.0.fingerprint(user, password);
        let attempt = inner.throttle().attempt_of(user.as_str(), client);
        let mut outcome = {
            // Held until the question is there, so that the same one is not asked twice.
            let mut flights = self.0.flights();
            let known = inner.known.get(&attempt.pair).filter(|(_, at)| at.elapsed() < KNOWN_FOR);
            let right = self.0.right.get(&fingerprint);
            let right = right.filter(|(at, _)| at.elapsed() < self.0.remembered_for);
            let wrong = self.0.wrong.get(&fingerprint);
            let prior = match known {
                // It may have been right until it was changed there: then it is a guess like others.
                Some((known, _)) if known == fingerprint && wrong.is_none() => {
                    PriorResult::RightHere
                }
                Some(_) if right.is_none() => PriorResult::AnotherWasRightHere,
                _ if right.is_some() => PriorResult::RightElsewhere,
                _ => PriorResult::Nothing,
            };
            let is_wrong =
                wrong.is_some_and(|(at, count)| at.elapsed() < (self.0.wrong_for)(count));
            if right.is_none() && is_wrong {
                inner.counters.wrong_again.inc();
                return Ok(None);
            }
            let flight = flights.get(&fingerprint).filter(|_| right.is_none());
            let admitted = match flight {
                Some(_) => inner.throttle().may_follow(attempt, prior, now),
                None => inner.throttle().admit(attempt, prior, now),
            };
            if let Err(throttled) = admitted {
                drop(flights);
                let refused = inner.refused(throttled, user.as_str(), client, now);
                return Err(NotAsked::Refused(refused));
            }
            if let Some((_, told)) = right {
                drop(flights);
                inner.known.insert(attempt.pair, (fingerprint, Instant::now()));
                return Ok(Some(told));
            }
            match flight {
                Some(flight) => flight.subscribe(),
                None => {
                    let (sender, outcome) = watch::channel(None);
                    flights.insert(fingerprint, sender);
                    let asking = self.0.clone();
                    let flight = Flight { asking, fingerprint, attempt, prior };
                    tokio::spawn(flight.run(ask(), client));
                    outcome
                }
            }
        };
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(too_many())),
            // The question panicked; the log has the message.
            Err(_) => Err(too_many()),
        };
        match &outcome {
            Ok(Some(_)) => inner.known.insert(attempt.pair, (fingerprint, Instant::now())),
            Ok(None) => inner.counters.wrong.inc(),
            Err(NotAsked::Refused(CheckRefused::TooMany)) => inner.counters.refused.inc(),
            Err(_) => {}
        }
        outcome
    }
}

fn too_many<F>() -> NotAsked<F> {
    NotAsked::Refused(TooMany.into())
}

impl<T: Clone, F> RemoteCheck<T, F> {
    fn fingerprint(&self, user: &UserName, password: &Password) -> Fingerprint {
        // No account that is checked here has a NUL in its name.
        self.passwords.fingerprint_of(&format!("elsewhere\0{user}"), password.reveal().as_bytes())
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<Fingerprint, ResultSender<T, F>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that requests wait for.
struct Flight<T: Clone, F> {
    asking: Arc<RemoteCheck<T, F>>,
    fingerprint: Fingerprint,
    attempt: Attempt,
    prior: PriorResult,
}

impl<T: Clone, F> Flight<T, F> {
    /// Asks, remembers what was told, and wakes the requests that wait. If all of them have left before the turn came, nothing is
    /// asked; what has begun ends, so that a client cannot get a free try by hanging up.
    async fn run(self, ask: impl Future<Output = Result<Option<T>, F>>, client: ClientKey) {
        let priority =
            if self.prior == PriorResult::RightHere { Priority::Known } else { Priority::Other };
        let entering = self.asking.slots.enter(priority, client);
        let slot = timeout(self.asking.waits_for, entering).await;
        let slot = match slot {
            Ok(Ok(slot)) if !self.is_abandoned() => slot,
            _ => {
                self.give_back();
                return self.land(Err(too_many()));
            }
        };
        let told = ask.await;
        drop(slot);
        match &told {
            Ok(Some(told)) => {
                self.give_back();
                self.asking.wrong.remove(&self.fingerprint);
                if !self.asking.remembered_for.is_zero() {
                    self.asking.right.insert(self.fingerprint, (Instant::now(), told.clone()));
                }
            }
            Ok(None) => {
                self.asking.right.remove(&self.fingerprint);
                let before = self.asking.wrong.get(&self.fingerprint).map_or(0, |(_, count)| count);
                let refusals = (Instant::now(), before.saturating_add(1));
                self.asking.wrong.insert(self.fingerprint, refusals);
            }
            Err(_) => self.give_back(),
        }
        self.land(told.map_err(NotAsked::Failed));
    }

    fn is_abandoned(&self) -> bool {
        let mut flights = self.asking.flights();
        let is_alone = flights.get(&self.fingerprint).is_some_and(|it| it.receiver_count() == 0);
        is_alone && flights.remove(&self.fingerprint).is_some()
    }

    fn give_back(&self) {
        self.asking.passwords.throttle().give_back(self.attempt, self.prior);
    }

    /// Wakes the requests that wait.
    fn land(&self, outcome: Outcome<T, F>) {
        if let Some(flight) = self.asking.flights().remove(&self.fingerprint) {
            flight.send_replace(Some(outcome));
        }
    }
}

impl<T: Clone, F> Drop for Flight<T, F> {
    /// After a panic, wakes the requests that wait.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.asking.flights().remove(&self.fingerprint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{Bounds, Counters};

    type TestPasswords = RemotePasswords<&'static str, &'static str>;

    const CLIENT: ClientKey = ClientKey::Ipv4(1);

    struct World {
        elsewhere: TestPasswords,
        asked: Arc<AtomicU32>,
        /// Permits to answer.
        answers: Arc<Semaphore>,
        /// Whether `old` is no longer a right password.
        is_changed: bool,
    }

    impl World {
        fn new(remembered_for: Duration) -> World {
            World::with(remembered_for, wrong_for)
        }

        fn with(remembered_for: Duration, wrong_for: fn(u32) -> Duration) -> World {
            let bounds = Bounds { pair: 3, client: 100, account: 100 };
            let passwords = Passwords::new(Duration::ZERO, 1, bounds, Counters::unregistered())
                .expect("random");
            let waiting = Counters::unregistered().waiting;
            let second = Duration::from_secs(1);
            let elsewhere =
                RemotePasswords::with(&passwords, 2, remembered_for, second, waiting, wrong_for);
            let answers = Arc::new(Semaphore::new(1_000));
            World { elsewhere, asked: Arc::default(), answers, is_changed: false }
        }

        /// Asks; the right password is `right`, and with `gone` nothing is told.
        async fn check(&self, user: &str, password: &str) -> Result<Option<&'static str>, String> {
            let told = match password {
                "right" => Ok(Some("told")),
                "old" if !self.is_changed => Ok(Some("told")),
                "gone" => Err("gone"),
                _ => Ok(None),
            };
            let (asked, answers) = (self.asked.clone(), self.answers.clone());
            let ask = || async move {
                asked.fetch_add(1, Relaxed);
                answers.acquire().await.expect("open").forget();
                told
            };
            let (user, password) = (user.parse().expect("a name"), Password::attempt(password));
            let checked = self.elsewhere.check(&user, &password, CLIENT, ask).await;
            checked.map_err(|refused| match refused {
                NotAsked::Failed(reason) => reason.to_owned(),
                NotAsked::Refused(CheckRefused::TooMany) => "too many".to_owned(),
                NotAsked::Refused(CheckRefused::Throttled { .. }) => "throttled".to_owned(),
            })
        }

        fn asked(&self) -> u32 {
            self.asked.load(Relaxed)
        }
    }

    #[tokio::test]
    async fn the_same_is_asked_once() {
        let world = World::new(Duration::from_secs(60));
        let at_once = join_all((0..50).map(|_| world.check("alice", "right"))).await;
        assert!(at_once.iter().all(|told| *told == Ok(Some("told"))), "{at_once:?}");
        assert_eq!(world.check("alice", "right").await, Ok(Some("told")));
        assert_eq!(world.asked(), 1);
        assert_eq!(world.check("bob", "right").await, Ok(Some("told")));
        assert_eq!(world.asked(), 2);
    }

    #[tokio::test]
    async fn nothing_is_remembered_for_no_time() {
        let world = World::new(Duration::ZERO);
        for _ in 0..3 {
            assert_eq!(world.check("alice", "right").await, Ok(Some("told")));
        }
        assert_eq!(world.asked(), 3);
    }

    #[tokio::test]
    async fn different_wrong_passwords_are_throttled() {
        let world = World::new(Duration::from_secs(60));
        for password in ["a", "b", "c"] {
            assert_eq!(world.check("alice", password).await, Ok(None));
            assert_eq!(world.check("alice", password).await, Ok(None), "it is remembered");
        }
        assert_eq!(world.check("alice", "d").await, Err("throttled".to_owned()));
        assert_eq!(world.check("alice", "right").await, Err("throttled".to_owned()));
        assert_eq!(world.asked(), 3);
        assert_eq!(world.check("bob", "right").await, Ok(Some("told")));
    }

    /// A job goes on with a password that was right from its address, once what was told before is forgotten.
    #[tokio::test]
    async fn an_old_password_is_a_guess() {
        let mut world = World::with(Duration::ZERO, |_| Duration::ZERO);
        assert_eq!(world.check("alice", "old").await, Ok(Some("told")));
        world.is_changed = true;
        for _ in 0..4 {
            assert_eq!(world.check("alice", "old").await, Ok(None));
        }
        assert_eq!(world.check("alice", "old").await, Err("throttled".to_owned()));
        assert_eq!(world.asked(), 5);
        world.is_changed = false;
        assert_eq!(world.check("bob", "old").await, Ok(Some("told")));
    }

    /// The directory counts what it is asked, and locks accounts after five, say.
    #[tokio::test]
    async fn what_is_refused_again_and_again_is_asked_seldom() {
        let minutes = |refusals| wrong_for(refusals).as_secs_f64() / 60.0;
        assert_eq!([1, 2, 3, 4, u32::MAX].map(minutes), [0.5, 5.0, 15.0, 15.0, 15.0]);
        // The first refusal is forgotten at once here, the second is not.
        let forget_one = |refusals| Duration::from_secs(if refusals < 2 { 0 } else { 60 });
        let mut world = World::with(Duration::ZERO, forget_one);
        for _ in 0..5 {
            assert_eq!(world.check("alice", "old now").await, Ok(None));
        }
        assert_eq!(world.asked(), 2);
        // A password that is right in between begins anew.
        assert_eq!(world.check("alice", "old").await, Ok(Some("told")));
        world.is_changed = true;
        assert_eq!(world.check("alice", "old").await, Ok(None));
        world.is_changed = false;
        assert_eq!(world.check("alice", "old").await, Ok(Some("told")));
        world.is_changed = true;
        assert_eq!(world.check("alice", "old").await, Ok(None));
        world.is_changed = false;
        assert_eq!(world.check("alice", "old").await, Ok(Some("told")));
    }

    /// What could not be asked counts for nobody, and is asked again.
    #[tokio::test]
    async fn a_failure_costs_no_try() {
        let world = World::new(Duration::from_secs(60));
        for _ in 0..10 {
            assert_eq!(world.check("alice", "gone").await, Err("gone".to_owned()));
        }
        assert_eq!(world.asked(), 10);
        assert_eq!(world.check("alice", "right").await, Ok(Some("told")));
    }

    /// Two questions may be open; the others wait for a second.
    #[tokio::test]
    async fn a_silent_server_holds_up_few() {
        let world = World::new(Duration::from_secs(60));
        world.answers.forget_permits(1_000);
        let names: Vec<String> = (0..20).map(|number| format!("user{number}")).collect();
        let asking = join_all(names.iter().map(|name| world.check(name, "right")));
        let release = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            world.answers.add_permits(1_000);
        };
        let (told, ()) = tokio::join!(asking, release);
        let refused = told.iter().filter(|it| **it == Err("too many".to_owned())).count();
        assert_eq!((refused, world.asked()), (18, 2), "{told:?}");
    }
}
