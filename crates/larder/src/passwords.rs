//! Checking passwords without paying for it at each request.
//!
//! A hash is made to be slow, and clients send their password with every request: what was found right is
//! remembered for a while, under a fingerprint that the password's hash is part of, so that a changed password
//! is forgotten at once. Nothing that could be a password is kept. Wrong passwords are hashed each time. They and
//! passwords that are new share a few places, so many are hashed at once; beyond a queue they are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use account::{Password, PasswordCheck, PasswordHash, Principal, Refusal};
use tokio::sync::Semaphore;

/// Verified passwords that are remembered at once.
const REMEMBERED_MAX: usize = 10_000;

/// Passwords that wait for a core; more are refused.
const WAITING_MAX: usize = 256;

/// Checks passwords, remembers which were right, and hashes new ones.
pub struct Passwords {
    /// When what has this fingerprint was found right.
    right: quick_cache::sync::Cache<[u8; 32], Instant>,
    /// Makes the fingerprints worthless elsewhere.
    secret: [u8; 32],
    remembered_for: Duration,
    hashing: Arc<Semaphore>,
    waiting: AtomicUsize,
    hashed: AtomicU64,
}

/// More passwords are being hashed, to check or to keep them, than can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked")]
pub struct TooMany;

impl Passwords {
    /// Remembers for `remembered_for`; hashes `at_once` at the same time.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(remembered_for: Duration, at_once: usize) -> Result<Passwords, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Passwords {
            right: quick_cache::sync::Cache::new(REMEMBERED_MAX),
            secret,
            remembered_for,
            hashing: Arc::new(Semaphore::new(at_once)),
            waiting: AtomicUsize::new(0),
            hashed: AtomicU64::new(0),
        })
    }

    /// How many passwords were hashed, rather than remembered, since the start.
    pub fn hashed(&self) -> u64 {
        self.hashed.load(Relaxed)
    }

    /// Runs the check, or skips it where it was found right a moment ago.
    ///
    /// # Errors
    /// [`TooMany`] if the queue is full.
    pub async fn check(&self, check: PasswordCheck) -> Result<Result<Principal, Refusal>, TooMany> {
        let fingerprint = check.fingerprint(&self.secret);
        let is_remembered =
            self.right.get(&fingerprint).is_some_and(|since| since.elapsed() < self.remembered_for);
        // Who was disabled meanwhile waits for a hash, as for a wrong password.
        if is_remembered && let Ok(principal) = check.passed() {
            return Ok(Ok(principal));
        }
        let outcome = self.run(move || check.run()).await?;
        if outcome.is_ok() && !self.remembered_for.is_zero() {
            self.right.insert(fingerprint, Instant::now());
        }
        Ok(outcome)
    }

    /// The hash of a new password.
    ///
    /// # Errors
    /// [`TooMany`] if the queue is full.
    pub async fn hash(&self, password: Password, salt: [u8; 16]) -> Result<PasswordHash, TooMany> {
        self.run(move || password.hash(salt)).await
    }

    /// Runs what takes as long as a hash, once there is a place.
    async fn run<T: Send + 'static>(
        &self,
        hashing: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TooMany> {
        let waiting = Waiting::begin(&self.waiting)?;
        let permit = self.hashing.clone().acquire_owned().await;
        drop(waiting);
        self.hashed.fetch_add(1, Relaxed);
        let running = tokio::task::spawn_blocking(move || {
            let outcome = hashing();
            drop(permit);
            outcome
        });
        match running.await {
            Ok(outcome) => Ok(outcome),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// A place in the queue, given up when dropped.
struct Waiting<'queue>(&'queue AtomicUsize);

impl Waiting<'_> {
    fn begin(queue: &AtomicUsize) -> Result<Waiting<'_>, TooMany> {
        if queue.fetch_add(1, Relaxed) >= WAITING_MAX {
            queue.fetch_sub(1, Relaxed);
            return Err(TooMany);
        }
        Ok(Waiting(queue))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Hashes wait where checks do, and the one after the last place is refused.
    #[test]
    fn new_passwords_wait_in_the_queue() {
        let passwords = Passwords::new(Duration::ZERO, 0).expect("random numbers");
        let hash = || Box::pin(passwords.hash(Password::new("p").expect("a password"), [0; 16]));
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| hash()).collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(hash().as_mut().poll(&mut context), Poll::Ready(Err(TooMany)));
        waiting.pop();
        assert!(hash().as_mut().poll(&mut context).is_pending(), "whoever goes leaves a place");
        assert_eq!(passwords.hashed(), 0);
    }
}
