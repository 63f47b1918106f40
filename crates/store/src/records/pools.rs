//! The connections that read: a pool that can be thrown away.
//!
//! A firewall may forget a connection without telling either end. Then whoever asks over it waits, and so does a pool that tests
//! it. What is true of one connection is true of all that are as old, so after one question without an answer the whole pool
//! is replaced by an empty one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sqlx::{Database, Pool};
use tokio::sync::watch;

/// How long connections that nobody wants any more may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Pools<DB: Database> {
    open: Box<dyn Fn() -> Pool<DB> + Send + Sync>,
    current: watch::Sender<NumberedPool<DB>>,
    is_closed: AtomicBool,
}

/// A pool, and the how manieth it is.
pub(super) struct NumberedPool<DB: Database> {
    pub(super) number: u64,
    pub(super) pool: Pool<DB>,
}

impl<DB: Database> Clone for NumberedPool<DB> {
    fn clone(&self) -> Self {
        NumberedPool { number: self.number, pool: self.pool.clone() }
    }
}

impl<DB: Database> Pools<DB> {
    /// Pools that `open` makes; nothing connects yet.
    pub(super) fn new(open: impl Fn() -> Pool<DB> + Send + Sync + 'static) -> Pools<DB> {
        let current = watch::Sender::new(NumberedPool { number: 0, pool: open() });
        Pools { open: Box::new(open), current, is_closed: AtomicBool::new(false) }
    }

    pub(super) fn current(&self) -> NumberedPool<DB> {
        self.current.borrow().clone()
    }

    /// Replaces the pool of this number, if nobody has done so yet.
    pub(super) fn throw_away(&self, number: u64) {
        let mut old = None;
        self.current.send_if_modified(|current| {
            let is_current = current.number == number && !self.is_closed.load(Relaxed);
            if is_current {
                let next = NumberedPool { number: number + 1, pool: (self.open)() };
                old = Some(std::mem::replace(current, next));
            }
            is_current
        });
        if let Some(old) = old {
            tokio::spawn(
                async move { tokio::time::timeout(CLOSE_TIMEOUT, old.pool.close()).await },
            );
        }
    }

    /// Closes the connections for good.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.current().pool.close().await;
    }

    /// Returns once the pool of this number was thrown away.
    pub(super) async fn replaced(&self, number: u64) {
        let mut current = self.current.subscribe();
        // The sender is borrowed, so it exists.
        let _ = current.wait_for(|current| current.number != number).await;
    }
}
