//! Questions to the server, which wake this process as seldom as can be.
//!
//! The server sends the result of each statement on its own, and the system tells that it has taken in the question. Each of these wakes
//! this thread, which costs more than what most answers say. So the thread sleeps for a moment once a question is sent, whatever
//! comes, and then finds all that has come.

use std::future::poll_fn;
use std::mem::replace;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Either, MySqlConnection};
use tokio::time::timeout;

/// How long the thread sleeps. Most answers take less.
const ARRIVAL: Duration = Duration::from_millis(2);

/// Sends statements together, and hands their rows to `take`, one after another, each with the place of its statement. They are made of
/// constants and numbers.
pub(super) async fn each(
    connection: &mut MySqlConnection,
    statements: &[String],
    stall: Duration,
    mut take: impl FnMut(usize, &MySqlRow) -> Result<(), sqlx::Error>,
) -> Result<(), sqlx::Error> {
    if statements.is_empty() {
        return Ok(());
    }
    let mut results = sqlx::raw_sql(AssertSqlSafe(statements.join("; "))).fetch_many(connection);
    let (mut at, mut is_first) = (0, true);
    loop {
        let next = async {
            match replace(&mut is_first, false) {
                true => after_arrival(results.try_next()).await,
                false => results.try_next().await,
            }
        };
        let next = timeout(stall, next).await.map_err(|_| {
            let query = statements.get(at).map_or("", String::as_str);
            sqlx::Error::Protocol(format!("the next row took longer than {stall:?} in: {query}"))
        })?;
        match next? {
            Some(Either::Right(row)) => take(at, &row)?,
            // The end of a statement's rows.
            Some(Either::Left(_)) => at += 1,
            None => return Ok(()),
        }
    }
}

/// The one row that a statement yields; it is made of constants and numbers.
pub(super) async fn one(
    connection: &mut MySqlConnection,
    statement: String,
) -> Result<MySqlRow, sqlx::Error> {
    after_arrival(sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(connection)).await
}

/// The output of `asking`; the first time that it has to wait, the thread sleeps.
async fn after_arrival<T>(asking: impl Future<Output = T>) -> T {
    let (mut asking, mut has_slept) = (pin!(asking), false);
    poll_fn(|context| {
        let polled = asking.as_mut().poll(context);
        if polled.is_pending() && !replace(&mut has_slept, true) {
            std::thread::sleep(ARRIVAL);
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn the_thread_sleeps_once() {
        let began = std::time::Instant::now();
        assert_eq!(after_arrival(std::future::ready(7)).await, 7);
        let mut polls = 0;
        let slow = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls < 100 { Poll::Pending } else { Poll::Ready(began.elapsed()) }
        });
        let took = after_arrival(slow).await;
        assert!(took >= ARRIVAL && polls == 100, "{took:?}");
    }
}
