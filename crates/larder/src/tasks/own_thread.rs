//! [`on_own_thread`]: a task that follows something beside the requests.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long a thread sleeps before it waits for an answer. Most answers take less.
const ARRIVAL: Duration = Duration::from_millis(2);
/// How often it does so for one piece of work, which may need more answers than are expected.
const SLEEPS_MAX: u32 = 8;

thread_local! {
    /// How often this thread still sleeps before it waits.
    static SLEEPS: Cell<u32> = const { Cell::new(0) };
}

/// The output of `work`, which asks another thread for something a few times, such as a database. On a thread of [`on_own_thread`] each
/// wait begins with a sleep of two milliseconds: what arrives meanwhile then wakes the thread once, and not for each part of it.
pub(crate) async fn unhurried<T>(work: impl Future<Output = T>) -> T {
    SLEEPS.set(SLEEPS_MAX);
    let output = work.await;
    SLEEPS.set(0);
    output
}

fn before_waiting() {
    let left = SLEEPS.get();
    if left > 0 {
        SLEEPS.set(left - 1);
        std::thread::sleep(ARRIVAL);
    }
}

/// Runs `work` on a thread of its own, named `name`, and returns when it has ended. If this future is dropped, `work` is dropped at
/// its next await.
///
/// A task that mostly waits and then does a little, many times in a row, costs less there: among the threads that serve requests,
/// each time it goes on wakes two of them, one to run it, and one to take over what that one was waiting for. It may also compute
/// for some milliseconds without keeping a request waiting.
pub(crate) async fn on_own_thread(
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let stop = CancellationToken::new();
    let _stopping = stop.clone().drop_guard();
    let (ended, end) = oneshot::channel::<()>();
    let run = move || {
        // Dropped last, also in a panic.
        let _ended = ended;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        match runtime.enable_all().on_thread_park(before_waiting).build() {
            Ok(runtime) => {
                // A task of its own: the runtime wakes one for less than the future that it blocks on.
                let task = runtime.spawn(stop.run_until_cancelled_owned(work));
                if let Err(error) = runtime.block_on(task)
                    && error.is_panic()
                {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            Err(error) => tracing::error!(%error, name, "a thread cannot wait for events"),
        }
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(thread) => {
            // Nothing is sent: the end of the thread drops the other side.
            let _ = end.await;
            if tokio::task::spawn_blocking(|| thread.join()).await.is_ok_and(|ended| ended.is_err())
            {
                tracing::error!(name, "a thread has failed");
            }
        }
        Err(error) => tracing::error!(%error, name, "a thread cannot be started"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    /// Notes that it was dropped.
    struct Noted(Arc<AtomicU32>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn it_ends_with_the_work_even_if_that_panics() {
        let ended = Arc::new(AtomicU32::new(0));
        let noted = Noted(ended.clone());
        on_own_thread("test", async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(std::thread::current().name(), Some("test"));
            drop(noted);
        })
        .await;
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        let noted = Noted(ended.clone());
        on_own_thread("test", async move {
            let _noted = noted;
            panic!("the work fails");
        })
        .await;
        assert_eq!(ended.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn unhurried_work_waits_with_few_sleeps() {
        let (slept, found) = std::sync::mpsc::channel();
        on_own_thread("test", async move {
            for waits in [3, 20] {
                let began = std::time::Instant::now();
                let work = async {
                    for _ in 0..waits {
                        // Longer than the sleep, so that it has to wait.
                        tokio::time::sleep(ARRIVAL * 2).await;
                    }
                    SLEEPS.get()
                };
                let left = unhurried(work).await;
                let _ = slept.send((SLEEPS_MAX - left, SLEEPS.get(), began.elapsed()));
            }
        })
        .await;
        let found: Vec<_> = found.iter().collect();
        // One wait may have several sleeps.
        assert!((3..=SLEEPS_MAX).contains(&found[0].0) && found[1].0 == SLEEPS_MAX, "{found:?}");
        assert!(found.iter().all(|(_, left, _)| *left == 0), "{found:?}");
        assert!(found.iter().all(|(sleeps, _, took)| *took >= ARRIVAL * *sleeps), "{found:?}");
    }

    #[tokio::test]
    async fn the_work_is_dropped_with_the_future() {
        let ended = Arc::new(AtomicU32::new(0));
        let noted = Noted(ended.clone());
        let work = on_own_thread("test", async move {
            let _noted = noted;
            std::future::pending().await
        });
        let waiting = tokio::time::timeout(Duration::from_millis(20), work).await;
        assert!(waiting.is_err());
        while ended.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
