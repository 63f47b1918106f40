//! [`Places`]: bounds how many passwords are hashed at once; further requests wait in a [`Line`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::ClientKey;
use prometheus::IntGauge;
use tokio::sync::oneshot;

use super::TooMany;
use super::line::{Line, Rank};

/// The places for hashing passwords, and the line for them.
pub(super) struct Places {
    state: Mutex<State>,
    /// How many requests wait.
    waiting: IntGauge,
}

struct State {
    free: usize,
    line: Line<oneshot::Sender<Place>>,
}

/// The right to hash a password; dropping it passes the place to the next request in the line.
pub(super) struct Place(Option<Arc<Places>>);

impl Places {
    pub(super) fn new(places: usize, waiting: IntGauge) -> Arc<Places> {
        let state = Mutex::new(State { free: places, line: Line::default() });
        Arc::new(Places { state, waiting })
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// [`TooMany`] if the line is full, or if a client with fewer requests has taken this request's place in it.
    pub(super) async fn enter(
        self: &Arc<Places>,
        rank: Rank,
        client: ClientKey,
    ) -> Result<Place, TooMany> {
        let place = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Place(Some(self.clone())));
            }
            let (sender, place) = oneshot::channel();
            let mut pushed = state.line.push(rank, client, sender);
            if let Err(sender) = pushed {
                state.line.retain(|sender| !sender.is_closed());
                pushed = state.line.push(rank, client, sender);
            }
            self.waiting.set(i64::try_from(state.line.len()).unwrap_or(i64::MAX));
            // A request that loses its place in the line finds its channel closed.
            pushed.map_err(|_| TooMany)?;
            place
        };
        place.await.map_err(|_| TooMany)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.0.take() else { return };
        let mut state = places.lock();
        loop {
            let Some(next) = state.line.pop() else {
                state.free += 1;
                break;
            };
            match next.send(Place(Some(places.clone()))) {
                Ok(()) => break,
                // That request no longer waits. Dropping its place here would pass it on while the lock is held.
                Err(mut place) => place.0 = None,
            }
        }
        places.waiting.set(i64::try_from(state.line.len()).unwrap_or(i64::MAX));
    }
}
