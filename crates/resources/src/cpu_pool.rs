//! [`CpuPool`]: threads for actions that only compute.
//!
//! job -> bounded queue -> a thread of low priority -> its result. The threads that answer requests never do such
//! work, and if there are not enough cores for both, the scheduler prefers them. No job waits for a disk, a socket or
//! another component's lock. Passwords are hashed elsewhere (crate `passwords`), at the usual priority: a login
//! must not wait behind other users' computations.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{io, thread};

use prometheus::{Histogram, IntCounter, IntGauge};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinError;

/// Niceness of the threads: the lowest priority, which every process may choose. On two cores it keeps other answers
/// quick; unlike an idle class, it still leaves the computations a share when all cores are busy.
const NICENESS: i32 = 19;

/// A fixed number of threads with a bounded queue.
#[derive(Debug)]
pub struct CpuPool {
    shared: Arc<PoolState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The queue is full; the job was refused at once.
    #[error("{waiting} computations are waiting already, the most that may")]
    Full {
        /// The length of the queue.
        waiting: usize,
    },
    /// The job panicked; its thread goes on with other jobs.
    #[error("the computation has failed; it has been logged")]
    Panicked,
    /// The pool has been stopped.
    #[error("the server is stopping")]
    Stopped,
}

/// The metrics of a pool.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Jobs that wait for a thread.
    pub queue_length: IntGauge,
    /// Threads that compute.
    pub busy_threads: IntGauge,
    /// Time that a job took after its start, in seconds.
    pub seconds: Histogram,
    /// Jobs refused because the queue was full.
    pub refused: IntCounter,
    /// Jobs whose callers gave up before they began.
    pub abandoned: IntCounter,
}

#[derive(Debug)]
struct PoolState {
    queue: Mutex<Queue>,
    /// Signals every new job, and the stop.
    changed: Condvar,
    queue_max: usize,
    counters: Counters,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedJob>,
    /// Threads without work: a job that one of them will take at once does not wait.
    idle: usize,
    next_number: u64,
    is_stopping: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

struct QueuedJob {
    number: u64,
    job: Box<dyn FnOnce() + Send>,
}

impl CpuPool {
    /// Starts `threads` threads; at most `queue_max` jobs may wait for one.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(threads: usize, queue_max: usize, counters: Counters) -> io::Result<CpuPool> {
        let shared = Arc::new(PoolState {
            queue: Mutex::default(),
            changed: Condvar::new(),
            queue_max,
            counters,
        });
        // The pool is made first: if a thread cannot be started, dropping the pool ends the others.
        let pool = CpuPool { shared, threads: Mutex::default() };
        for _ in 0..threads {
            let shared = pool.shared.clone();
            let thread = thread::Builder::new()
                .name("larder-cpu".to_owned())
                .spawn(move || shared.work())?;
            pool.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(thread);
        }
        Ok(pool)
    }

    /// Computes `job` on a thread of the pool. Dropping the future removes the job if it has not begun.
    ///
    /// # Errors
    /// [`PoolError::Full`] at once if the queue is full; [`PoolError::Panicked`] if the job panicked;
    /// [`PoolError::Stopped`] after [`CpuPool::stop`].
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (result, computed) = oneshot::channel();
        let number = self.shared.push(Box::new(move || {
            // A job owns everything that it uses, so a panic leaves nothing half done for others.
            let outcome = catch_unwind(AssertUnwindSafe(job));
            // If the caller has gone, nobody receives the result.
            let _ = result.send(outcome);
        }))?;
        let _place = QueuePlace { shared: &self.shared, number };
        match computed.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(PoolError::Panicked),
            Err(_) => Err(PoolError::Stopped),
        }
    }

    /// Accepts no more jobs, computes those that wait, and returns when all threads have ended.
    pub async fn stop(&self) {
        self.shared.stop();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(|it| it.into_inner()));
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the pool has failed");
                }
            }
        });
        if let Err(error) = joined.await {
            tracing::error!(%error, "waiting for the end of the pool failed");
        }
    }
}

impl Drop for CpuPool {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl PoolState {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, job: Box<dyn FnOnce() + Send>) -> Result<u64, PoolError> {
        let mut queue = self.queue();
        if queue.is_stopping {
            return Err(PoolError::Stopped);
        }
        let waiting = queue.waiting.len();
        if waiting >= self.queue_max + queue.idle {
            self.counters.refused.inc();
            return Err(PoolError::Full { waiting });
        }
        let number = queue.next_number;
        queue.next_number += 1;
        queue.waiting.push_back(QueuedJob { number, job });
        self.note(&queue);
        drop(queue);
        self.changed.notify_one();
        Ok(number)
    }

    fn note(&self, queue: &Queue) {
        self.counters.queue_length.set(queue.waiting.len() as i64);
    }

    fn work(&self) {
        lower_priority();
        while let Some(job) = self.next_job() {
            self.counters.busy_threads.inc();
            let started_at = Instant::now();
            // A job catches its own panics.
            job();
            self.counters.seconds.observe(started_at.elapsed().as_secs_f64());
            self.counters.busy_threads.dec();
        }
    }

    /// Waits for a job; `None` once the pool is stopping and no job waits.
    fn next_job(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut queue = self.queue();
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                self.note(&queue);
                return Some(next.job);
            }
            if queue.is_stopping {
                return None;
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            queue.idle -= 1;
        }
    }

    fn stop(&self) {
        self.queue().is_stopping = true;
        self.changed.notify_all();
    }
}

/// A job's place in the queue; dropping this removes the job.
struct QueuePlace<'pool> {
    shared: &'pool PoolState,
    number: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        // Numbers ascend, as jobs are queued in this order.
        if let Ok(at) = queue.waiting.binary_search_by_key(&self.number, |waiting| waiting.number) {
            let given_up = queue.waiting.remove(at);
            self.shared.note(&queue);
            drop(queue);
            // The job's data is freed without holding the lock.
            drop(given_up);
            self.shared.counters.abandoned.inc();
        }
    }
}

/// Threads for [`apart`], which end when they had nothing to do for some seconds. A new thread for each piece of work would be one
/// more for each that has returned its result and not ended yet, which takes long at this priority when all cores are busy.
static APART: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut threads = tokio::runtime::Builder::new_current_thread();
    threads.thread_name("larder-apart").on_thread_start(lower_priority);
    threads.max_blocking_threads(cores.max(APART_MIN)).build()
});

/// At least this many threads may work [`apart`], also on fewer cores: a piece of work may wait for a disk.
const APART_MIN: usize = 4;

/// Runs `work` on a thread of low priority, of which there are few: for work that takes seconds, so that it neither delays the
/// computations of programs nor takes the processor from threads that answer requests.
///
/// # Errors
/// The panic of `work`; or why there is no thread.
pub async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::Result<T> {
    let working = match &*APART {
        Ok(threads) => threads.spawn_blocking(work),
        Err(error) => return Err(Box::new(format!("no thread can be started: {error}"))),
    };
    working.await.map_err(JoinError::into_panic)
}

/// Lowers the priority of this thread below that of the threads that answer requests.
fn lower_priority() {
    // On Linux niceness belongs to a thread; elsewhere it belongs to the process, so there it stays unchanged.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "the priority of a computing thread cannot be lowered");
    }
}

impl Counters {
    /// Counters for tests, which are not registered.
    pub fn unregistered() -> Counters {
        let valid = "the name is valid";
        let gauge = |name: &str| IntGauge::new(name, name).expect(valid);
        let counter = |name: &str| IntCounter::new(name, name).expect(valid);
        let seconds = prometheus::HistogramOpts::new("seconds", "seconds");
        Counters {
            queue_length: gauge("queue_length"),
            busy_threads: gauge("busy_threads"),
            seconds: Histogram::with_opts(seconds).expect(valid),
            refused: counter("refused"),
            abandoned: counter("abandoned"),
        }
    }
}

#[cfg(test)]
mod tests;
