//! Comparisons and merges of texts: each may take a core for a second, so only a few run at once.
//!
//! a turn -> both texts, read only now, so that those who wait take no memory -> the work, on a thread that may take long.
//! The turn belongs to the work: who asks and leaves again frees none.

use std::future::Future;
use std::sync::LazyLock;

use crate::turns::Turns;

/// Comparisons that readers asked for, at the same time.
const COMPARED_AT_ONCE: usize = 2;

/// Merges for writers who were overtaken: they do not wait for readers.
const MERGED_AT_ONCE: usize = 2;

static COMPARING: LazyLock<Turns> = LazyLock::new(|| Turns::new(COMPARED_AT_ONCE));
static MERGING: LazyLock<Turns> = LazyLock::new(|| Turns::new(MERGED_AT_ONCE));

/// What `work` makes of what `load` reads, for a reader.
///
/// # Errors
/// Those of `load`.
pub(super) async fn compared<Loaded, Made, Failure>(
    load: impl Future<Output = Result<Loaded, Failure>>,
    work: impl FnOnce(Loaded) -> Made + Send + 'static,
) -> Result<Made, Failure>
where
    Loaded: Send + 'static,
    Made: Send + 'static,
{
    in_turn(&COMPARING, load, work).await
}

/// The same for a writer.
///
/// # Errors
/// Those of `load`.
pub(super) async fn merged<Loaded, Made, Failure>(
    load: impl Future<Output = Result<Loaded, Failure>>,
    work: impl FnOnce(Loaded) -> Made + Send + 'static,
) -> Result<Made, Failure>
where
    Loaded: Send + 'static,
    Made: Send + 'static,
{
    in_turn(&MERGING, load, work).await
}

async fn in_turn<Loaded, Made, Failure>(
    turns: &Turns,
    load: impl Future<Output = Result<Loaded, Failure>>,
    work: impl FnOnce(Loaded) -> Made + Send + 'static,
) -> Result<Made, Failure>
where
    Loaded: Send + 'static,
    Made: Send + 'static,
{
    let turn = turns.take().await;
    let loaded = load.await?;
    Ok(turn.run(move || work(loaded)).await)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn nothing_is_read_or_compared_before_its_turn() {
        let turns = Turns::new(1);
        let taken = turns.take().await;
        let is_read = Cell::new(false);
        let load = async {
            is_read.set(true);
            Ok::<_, Infallible>(3)
        };
        let mut comparing = Box::pin(in_turn(&turns, load, |loaded| loaded + 4));
        assert!(poll!(&mut comparing).is_pending() && !is_read.get());
        drop(taken);
        assert_eq!(comparing.await, Ok(7));
        assert_eq!(turns.free(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_read_keeps_no_turn() {
        let turns = Turns::new(1);
        let failed = in_turn(&turns, async { Err::<(), _>("lost") }, |()| ()).await;
        assert_eq!((failed, turns.free()), (Err("lost"), 1));
    }
}
