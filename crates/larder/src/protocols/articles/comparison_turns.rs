//! Comparisons and merges of texts: each may take a core for a second, so only a few run at once.
//!
//! a place in the queue, or 503 -> a turn -> both texts, read only now, so that requests in the queue take no memory -> the work, on a
//! thread for blocking work. The turn belongs to the work: a client that disconnects does not free it.

use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;

use resources::turns::{ThreadShare, Turn};

use crate::front::error::HttpError;

/// Comparisons that readers asked for, at the same time.
const COMPARED_AT_ONCE: usize = 2;

/// Merges for writers who were overtaken, at the same time: they do not wait for readers.
const MERGED_AT_ONCE: usize = 2;

/// How many of each kind may wait.
const WAITING_MAX: usize = 64;

/// How long a turn is kept for texts that are being read.
const LOADING_MAX: Duration = Duration::from_secs(20);

static COMPARING: LazyLock<ThreadShare> =
    LazyLock::new(|| ThreadShare::new(COMPARED_AT_ONCE, WAITING_MAX));
static MERGING: LazyLock<ThreadShare> =
    LazyLock::new(|| ThreadShare::new(MERGED_AT_ONCE, WAITING_MAX));

/// Who waits for a comparison or a merge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requester {
    /// Somebody who reads a comparison: it is made on a thread of low priority.
    Reader,
    /// A writer whose change must be merged with another one.
    Writer,
}

/// Runs `work` on what `load` reads.
///
/// # Errors
/// Those of `load`; 503 if too many wait already, or if it takes too long to read the texts.
pub(crate) async fn computed<Loaded, Made>(
    waiting: Requester,
    load: impl Future<Output = Result<Loaded, HttpError>>,
    work: impl FnOnce(Loaded) -> Made + Send + 'static,
) -> Result<Made, HttpError>
where
    Loaded: Send + 'static,
    Made: Send + 'static,
{
    let share = match waiting {
        Requester::Reader => &COMPARING,
        Requester::Writer => &MERGING,
    };
    let (_place, turn, loaded) = in_turn(share, LOADING_MAX, load).await?;
    let work = move || work(loaded);
    Ok(match waiting {
        Requester::Reader => turn.run_apart(work).await,
        Requester::Writer => turn.run(work).await,
    })
}

/// Takes a place and a turn, and then loads.
async fn in_turn<Loaded>(
    share: &ThreadShare,
    loading_max: Duration,
    load: impl Future<Output = Result<Loaded, HttpError>>,
) -> Result<(Turn, Turn, Loaded), HttpError> {
    let place = share.enter().map_err(|waiting| {
        let detail = format!("{waiting} texts are being compared already; try again in a moment");
        HttpError::unavailable(detail, 2)
    })?;
    let turn = share.turns.take().await;
    let loaded = tokio::time::timeout(loading_max, load)
        .await
        .map_err(|_| HttpError::unavailable("reading the two versions timed out", 5))??;
    Ok((place, turn, loaded))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::poll;
    use http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn nothing_is_read_or_compared_before_its_turn() {
        let share = ThreadShare::new(1, WAITING_MAX);
        let taken = share.turns.take().await;
        let is_read = Cell::new(false);
        let load = async {
            is_read.set(true);
            Ok(3)
        };
        let mut reading = Box::pin(in_turn(&share, LOADING_MAX, load));
        assert!(poll!(&mut reading).is_pending() && !is_read.get());
        drop(taken);
        let (_place, turn, loaded) = reading.await.expect("it is read");
        assert_eq!((turn.run_apart(move || loaded + 4).await, share.turns.free()), (7, 1));
    }

    #[tokio::test]
    async fn what_cannot_be_read_keeps_no_turn() {
        let share = ThreadShare::new(1, WAITING_MAX);
        let failed =
            in_turn(&share, LOADING_MAX, async { Err::<(), _>(HttpError::not_found("lost")) })
                .await;
        assert_eq!(failed.err().map(|error| error.status()), Some(StatusCode::NOT_FOUND));
        assert_eq!(share.turns.free(), 1);
    }

    #[tokio::test]
    async fn what_takes_too_long_to_read_keeps_no_turn() {
        let share = ThreadShare::new(1, WAITING_MAX);
        let late =
            in_turn(&share, Duration::ZERO, std::future::pending::<Result<(), HttpError>>()).await;
        let status = late.err().map(|error| error.status());
        assert_eq!((status, share.turns.free()), (Some(StatusCode::SERVICE_UNAVAILABLE), 1));
    }

    #[tokio::test]
    async fn only_so_many_wait() {
        let share = ThreadShare::new(1, WAITING_MAX);
        let _taken = share.turns.take().await;
        let mut waiting: Vec<_> = (0..=WAITING_MAX)
            .map(|_| Box::pin(in_turn(&share, LOADING_MAX, async { Ok(()) })))
            .collect();
        for one in &mut waiting {
            assert!(poll!(one).is_pending());
        }
        let refused = in_turn(&share, LOADING_MAX, async { Ok(()) }).await;
        let status = refused.err().map(|error| error.status());
        assert_eq!(status, Some(StatusCode::SERVICE_UNAVAILABLE));
    }
}
