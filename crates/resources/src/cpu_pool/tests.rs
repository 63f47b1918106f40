//! The pool's promises: it is bounded, survives panics, drops the jobs of callers that have gone, and ends.

use std::collections::HashSet;
use std::sync::mpsc;

use tokio::runtime::Runtime;

use super::*;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

fn pool(threads: usize, queue_max: usize) -> Arc<CpuPool> {
    let counters = Counters::unregistered();
    Arc::new(CpuPool::start(threads, queue_max, counters).expect("threads"))
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A pool of one thread that is busy until the sender is dropped.
fn busy(runtime: &Runtime, queue_max: usize) -> (Arc<CpuPool>, mpsc::Sender<()>) {
    let pool = pool(1, queue_max);
    let (release, released) = mpsc::channel::<()>();
    let running = pool.clone();
    runtime.spawn(async move { running.run(move || released.recv().is_err()).await });
    wait_until(|| pool.shared.counters.busy_threads.get() == 1);
    (pool, release)
}

#[test]
fn a_result_comes_back() {
    assert_eq!(runtime().block_on(pool(2, 1).run(|| 6 * 7)), Ok(42));
}

#[test]
fn the_threads_have_the_least_priority() {
    let niceness = || rustix::process::getpriority_process(None).expect("a priority");
    let own = niceness();
    assert_eq!(runtime().block_on(pool(1, 1).run(niceness)), Ok(NICENESS));
    assert_eq!(niceness(), own, "only the pool's threads");
}

/// Also while the threads of finished work have not ended.
#[test]
fn the_threads_apart_are_few() {
    let (runtime, mut ids) = (runtime(), HashSet::new());
    let running: Vec<_> = (0..200)
        .map(|_| {
            runtime.spawn(apart(|| {
                let niceness = rustix::process::getpriority_process(None).expect("a priority");
                (thread::current().id(), niceness)
            }))
        })
        .collect();
    for work in running {
        let (id, niceness) = runtime.block_on(work).expect("no panic").expect("no panic");
        assert_eq!(niceness, NICENESS);
        ids.insert(id);
    }
    let most = thread::available_parallelism().map_or(1, usize::from).max(APART_MIN);
    assert!(ids.len() <= most, "{ids:?}");
}

#[test]
fn a_panic_reaches_only_its_caller() {
    let (runtime, pool) = (runtime(), pool(1, 1));
    for _ in 0..3 {
        let panicking = pool.run(|| -> u32 { panic!("on purpose") });
        assert_eq!(runtime.block_on(panicking), Err(PoolError::Panicked));
    }
    assert_eq!(runtime.block_on(pool.run(|| 1)), Ok(1));
    wait_until(|| pool.shared.counters.busy_threads.get() == 0);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let runtime = runtime();
    let (pool, release) = busy(&runtime, 2);
    let waiting: Vec<_> = (0..2)
        .map(|number| {
            let pool = pool.clone();
            runtime.spawn(async move { pool.run(move || number).await })
        })
        .collect();
    wait_until(|| pool.shared.counters.queue_length.get() == 2);
    assert_eq!(runtime.block_on(pool.run(|| 9)), Err(PoolError::Full { waiting: 2 }));
    assert_eq!(pool.shared.counters.refused.get(), 1);
    drop(release);
    for (number, waiting) in waiting.into_iter().enumerate() {
        assert_eq!(runtime.block_on(waiting).expect("no panic"), Ok(number));
    }
    assert_eq!(pool.shared.counters.queue_length.get(), 0);
}

#[test]
fn without_a_queue_idle_threads_still_work() {
    let (runtime, pool) = (runtime(), pool(1, 0));
    wait_until(|| pool.shared.queue().idle == 1);
    assert_eq!(runtime.block_on(pool.run(|| 1)), Ok(1));
}

#[test]
fn a_caller_that_has_gone_leaves_no_job_behind() {
    let runtime = runtime();
    let (pool, release) = busy(&runtime, 1);
    let (begun, has_begun) = mpsc::channel::<()>();
    let going = pool.clone();
    let caller = runtime.spawn(async move { going.run(move || begun.send(())).await });
    wait_until(|| pool.shared.counters.queue_length.get() == 1);
    caller.abort();
    wait_until(|| pool.shared.counters.queue_length.get() == 0);
    assert_eq!(pool.shared.counters.abandoned.get(), 1);
    // The place in the queue is free again before the thread is.
    let next = pool.clone();
    let next = runtime.spawn(async move { next.run(|| 5).await });
    wait_until(|| pool.shared.counters.queue_length.get() == 1);
    drop(release);
    assert_eq!(runtime.block_on(next).expect("no panic"), Ok(5));
    assert!(has_begun.recv().is_err(), "the job was dropped, not computed");
}

#[test]
fn a_stop_computes_what_waits_and_takes_no_more() {
    let runtime = runtime();
    let (pool, release) = busy(&runtime, 1);
    let waiting = pool.clone();
    let waiting = runtime.spawn(async move { waiting.run(|| 3).await });
    wait_until(|| pool.shared.counters.queue_length.get() == 1);
    let stopping = pool.clone();
    let stopping = runtime.spawn(async move { stopping.stop().await });
    wait_until(|| pool.shared.queue().is_stopping);
    assert_eq!(runtime.block_on(pool.run(|| 9)), Err(PoolError::Stopped));
    drop(release);
    runtime.block_on(stopping).expect("no panic");
    assert_eq!(runtime.block_on(waiting).expect("no panic"), Ok(3));
}
