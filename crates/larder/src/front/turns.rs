//! Turns for answers whose cost grows with the data: of each kind few are made at once, a bounded number waits, and further ones
//! get 503.
//!
//! request -> a place to wait, with no more memory than the request brought -> a turn -> the answer is made on a thread that may
//! take long -> the turn ends, and the answer is sent.

use std::future::poll_fn;
use std::pin::pin;

use resources::turns::{ThreadShare, Turn};

use super::error::HttpError;

/// When a client that found no place may try again.
const RETRY_SECONDS: u32 = 2;

/// A turn, as soon as one is free. The caller keeps it until the answer is made.
///
/// # Errors
/// 503 if too many wait.
pub(crate) async fn turn(share: &ThreadShare) -> Result<[Turn; 2], HttpError> {
    share.take().await.map_err(|places| {
        let detail = format!("{places} requests wait for answers of this kind: nothing was done");
        HttpError::unavailable(detail, RETRY_SECONDS)
    })
}

/// The outcome of `making`, whose every step is done where it may take long.
///
/// # Errors
/// 503 if too many wait.
pub(crate) async fn in_turn<T>(
    share: &ThreadShare,
    making: impl Future<Output = T>,
) -> Result<T, HttpError> {
    let _turn = turn(share).await?;
    let mut making = pin!(making);
    // Other tasks of this thread move to another one meanwhile.
    let step = poll_fn(|context| tokio::task::block_in_place(|| making.as_mut().poll(context)));
    Ok(step.await)
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn who_finds_no_place_is_told_to_come_again() {
        let share = ThreadShare::new(1, 1);
        let mut first = Box::pin(in_turn(&share, std::future::pending::<()>()));
        let mut second = Box::pin(in_turn(&share, std::future::ready(2)));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        let third = in_turn(&share, std::future::ready(3)).await.expect_err("there is no place");
        assert_eq!(third.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        assert!(third.detail().starts_with("2 requests wait"), "{}", third.detail());
        // Who leaves makes room.
        drop(first);
        assert_eq!(second.await.expect("it is its turn"), 2);
    }
}
