//! [`Turns`]: a bound on how much blocking work of a kind runs at once.
//!
//! work -> a turn -> a thread that may take long -> its result. The turn belongs to the work and not to its caller: a client that leaves ends the waiting, but the work runs to its end, and until then its turn is taken.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::cpu_pool;

/// How much work of a kind runs at once.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Semaphore>);

/// A turn, taken until this is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// This many turns, all of them free.
    pub fn new(most: usize) -> Turns {
        Turns(Arc::new(Semaphore::new(most)))
    }

    /// A turn, as soon as one is free; first come, first served. Work on another thread has to own it: [`Turns::run`].
    pub async fn take(&self) -> Turn {
        self.take_many(1).await
    }

    /// A turn that counts as `count` turns, as soon as they are free.
    pub async fn take_many(&self, count: u32) -> Turn {
        // The semaphore is never closed.
        Turn { _permit: self.0.clone().acquire_many_owned(count).await.ok() }
    }

    /// A turn, if one is free now.
    fn try_take(&self) -> Option<Turn> {
        self.try_take_many(1)
    }

    /// A turn that counts as `count` turns, if they are free now.
    pub fn try_take_many(&self, count: u32) -> Option<Turn> {
        let permit = self.0.clone().try_acquire_many_owned(count).ok()?;
        Some(Turn { _permit: Some(permit) })
    }

    /// Does `work`, when it is its turn, on a thread that may take long. Its panic is the caller's.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let turn = self.take().await;
        turn.run(work).await
    }

    /// Turns that are free now.
    pub fn free(&self) -> usize {
        self.0.available_permits()
    }
}

/// The share of one kind of work in threads that others use, too, and in the queue for them.
#[derive(Clone, Debug)]
pub struct ThreadShare {
    /// Work that runs or waits for its turn.
    places: Turns,
    places_max: usize,
    /// Work that is in the queue for the threads, or has one.
    pub turns: Turns,
}

impl ThreadShare {
    /// `turns_max` pieces of work at once, while at most `waiting_max` others wait.
    pub fn new(turns_max: usize, waiting_max: usize) -> ThreadShare {
        let places_max = turns_max + waiting_max;
        ThreadShare { places: Turns::new(places_max), places_max, turns: Turns::new(turns_max) }
    }

    /// Half of the threads and half of the queue; of the threads, at least one.
    pub fn half(threads: usize, queue_max: usize) -> ThreadShare {
        ThreadShare::new((threads / 2).max(1), queue_max / 2)
    }

    /// One piece of work at a time, while at most `waiting_max` others wait.
    pub fn one(waiting_max: usize) -> ThreadShare {
        ThreadShare::new(1, waiting_max)
    }

    /// The result of `look`, at once or when it is our turn; else that of `make`, on a thread that may take long. So concurrent
    /// requests for the same value make it once. A panic in `make` is passed on to the caller.
    ///
    /// # Errors
    /// If all places are taken: how many there are.
    pub async fn find_or_make<T: Send + 'static>(
        &self,
        look: impl Fn() -> Option<T>,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, usize> {
        if let Some(found) = look() {
            return Ok(found);
        }
        let place = self.enter()?;
        let turn = self.turns.take().await;
        if let Some(found) = look() {
            return Ok(found);
        }
        let making = turn.run(move || {
            let _place = place;
            make()
        });
        Ok(making.await)
    }

    /// A turn, as soon as one is free, while there is a place to wait for it. The caller keeps both for as long as it works.
    ///
    /// # Errors
    /// If all places are taken: how many there are.
    pub async fn take(&self) -> Result<[Turn; 2], usize> {
        let place = self.enter()?;
        Ok([self.turns.take().await, place])
    }

    /// A place to wait for a turn, which is kept for as long as the turn.
    ///
    /// # Errors
    /// If all places are taken: how many there are.
    pub fn enter(&self) -> Result<Turn, usize> {
        self.places.try_take().ok_or(self.places_max)
    }
}

impl Turn {
    /// Does `work` on a thread that may take long, and ends the turn with it. Its panic is the caller's.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        blocking(move || {
            let _turn = self;
            work()
        })
        .await
    }

    /// Does `work` on a thread of low priority, and gives the turn back when it is done.
    pub async fn run_apart<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let running = cpu_pool::apart(move || {
            let _turn = self;
            work()
        });
        running.await.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Does `work`, which may wait for a disk or a network or compute for long, on a thread that serves no requests. Its panic is the
/// caller's.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work)).await
}

/// What came of a task that nobody cancels. Its panic is the caller's.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn who_leaves_frees_no_turn() {
        let turns = Turns::new(1);
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let work = turns.run(move || {
            begun.send(()).expect("the test waits");
            may_go_on.recv().expect("the test says so");
        });
        tokio::select! {
            () = work => panic!("the work waits for this test"),
            begun = has_begun => begun.expect("it begins"),
        }
        // The future is dropped, the work goes on.
        assert_eq!(turns.free(), 0);
        go_on.send(()).expect("the work waits");
        assert_eq!(turns.run(|| 7).await, 7);
        turns.take().await;
        assert_eq!(turns.free(), 1);
    }

    #[tokio::test]
    async fn a_panic_ends_the_turn() {
        let turns = Turns::new(1);
        let running = turns.clone();
        let failed = tokio::spawn(async move { running.run(|| panic!("as a test")).await });
        assert!(failed.await.is_err_and(|error| error.is_panic()));
        assert_eq!(turns.free(), 1);
        let turn = turns.take().await;
        let failed = tokio::spawn(turn.run_apart(|| panic!("as a test"))).await;
        assert!(failed.is_err_and(|error| error.is_panic()));
        assert_eq!((turns.take().await.run_apart(|| 7).await, turns.free()), (7, 1));
    }

    /// Many callers want the same: one makes it, the others find it, and a caller that finds all places taken is refused at
    /// once.
    #[tokio::test]
    async fn what_many_want_is_made_once() {
        use std::sync::Mutex;
        let share = ThreadShare::one(2);
        let made: Arc<Mutex<Option<u32>>> = Arc::default();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let ask = |share: &ThreadShare, make: Box<dyn FnOnce() -> u32 + Send>| {
            let (share, looked, made) = (share.clone(), made.clone(), made.clone());
            async move {
                let make = move || {
                    // The others look meanwhile.
                    let value = make();
                    *made.lock().expect("no panic").insert(value)
                };
                share.find_or_make(move || *looked.lock().expect("no panic"), make).await
            }
        };
        let first = tokio::spawn(ask(
            &share,
            Box::new(move || {
                begun.send(()).expect("the test waits");
                may_go_on.recv().expect("the test says so");
                7
            }),
        ));
        has_begun.await.expect("it begins");
        let others: Vec<_> = (0..2)
            .map(|_| tokio::spawn(ask(&share, Box::new(|| panic!("it is made already")))))
            .collect();
        while share.places.free() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask(&share, Box::new(|| panic!("there is no place"))).await, Err(3));
        go_on.send(()).expect("the work waits");
        assert_eq!(first.await.expect("no panic"), Ok(7));
        for other in others {
            assert_eq!(other.await.expect("no panic"), Ok(7));
        }
        // A value that is at hand needs no turn.
        let _taken = share.turns.take().await;
        assert_eq!(ask(&share, Box::new(|| panic!("it is at hand"))).await, Ok(7));
    }
}
