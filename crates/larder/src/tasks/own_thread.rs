//! [`on_own_thread`]: a task that follows something beside the requests.

use std::future::Future;

use resources::turns::joined;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

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
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                // A task of its own: the runtime wakes one for less than the future that it blocks on.
                let task = runtime.spawn(stop.run_until_cancelled_owned(work));
                runtime.block_on(joined(task));
            }
            Err(error) => tracing::error!(%error, name, "the runtime of a thread cannot be made"),
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
