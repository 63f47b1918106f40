//! [`Streams`]: runs the requests of HTTP/2 connections.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use hyper::rt::Executor;

/// How long a connection answers by itself in one turn. A turn may answer a hundred streams, and the runtime looks for new
/// connections only every some dozen turns.
const TURN: Duration = Duration::from_micros(200);

thread_local! {
    /// When the turn of the connection that this thread polls ends.
    static TURN_ENDS_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// To be called each time before a connection is polled.
pub(super) fn begin_turn() {
    TURN_ENDS_AT.set(Some(Instant::now() + TURN));
}

/// Polls a stream's future where its connection is, and makes a task of it only if it must wait, or if the connection has had its
/// turn. Nearly all answers are there at once: a task for each would cost more than the answer, and the connection would be woken
/// and would write for each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streams;

impl<Stream> Executor<Stream> for Streams
where
    Stream: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: Stream) {
        if TURN_ENDS_AT.get().is_none_or(|at| Instant::now() >= at) {
            tokio::spawn(stream);
            return;
        }
        let mut stream = Box::pin(stream);
        // A task polls it again, and then with a waker of its own.
        let mut context = Context::from_waker(Waker::noop());
        // A panic ends this stream and not its connection, as in a task.
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(&mut context)));
        if matches!(polled, Ok(polled) if polled.is_pending()) {
            tokio::spawn(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::sync::Arc;
    use std::task::Poll;

    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;

    fn tasks() -> usize {
        tokio::runtime::Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test]
    async fn only_a_stream_that_waits_is_a_task() {
        begin_turn();
        Streams.execute(ready(()));
        assert_eq!(tasks(), 0);
        Streams.execute(pending());
        assert_eq!(tasks(), 1);
    }

    #[tokio::test]
    async fn a_stream_after_the_turn_is_a_task() {
        begin_turn();
        std::thread::sleep(TURN);
        Streams.execute(ready(()));
        assert_eq!(tasks(), 1);
    }

    #[tokio::test]
    async fn a_stream_that_waits_is_woken() {
        begin_turn();
        let (may_go_on, is_over) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (waited_for, ended) = (may_go_on.clone(), is_over.clone());
        Streams.execute(async move {
            waited_for.notified().await;
            yield_now().await;
            ended.notify_one();
        });
        may_go_on.notify_one();
        is_over.notified().await;
    }

    #[tokio::test]
    async fn a_panic_is_the_end_of_one_stream() {
        begin_turn();
        Streams.execute(poll_fn(|_| -> Poll<()> { panic!("a stream that panics") }));
        assert_eq!(tasks(), 0);
    }
}
