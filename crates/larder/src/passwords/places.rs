//! [`Places`]: so many passwords are hashed at once; the others wait in [`Line`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tokio::sync::oneshot;

use super::TooMany;
use super::line::{Line, Rank};
use crate::net::ClientKey;

/// Where passwords are hashed.
pub(super) struct Places {
    state: Mutex<State>,
    /// How many wait.
    waiting: IntGauge,
}

struct State {
    free: usize,
    line: Line<oneshot::Sender<Place>>,
}

/// A place to hash a password; whoever is next gets it when this is dropped.
pub(super) struct Place(Option<Arc<Places>>);

impl Places {
    pub(super) fn new(places: usize, waiting: IntGauge) -> Arc<Places> {
        let state = Mutex::new(State { free: places, line: Line::default() });
        Arc::new(Places { state, waiting })
    }

    /// A place, once there is one.
    ///
    /// # Errors
    /// [`TooMany`] if the line is full, or a fuller one's place in it was given to somebody else.
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
            // Whoever was displaced finds the channel closed.
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
                // It waits no more; without this its place would be given on from within.
                Err(mut place) => place.0 = None,
            }
        }
        places.waiting.set(i64::try_from(state.line.len()).unwrap_or(i64::MAX));
    }
}
