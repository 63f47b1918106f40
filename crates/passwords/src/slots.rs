//! [`HashSlots`]: bounds how many passwords are hashed at once; further requests wait in a [`FairQueue`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::ClientKey;
use prometheus::IntGauge;
use tokio::sync::oneshot;

use super::TooMany;
use super::fair_queue::{FairQueue, Priority};

/// The slots for hashing passwords, and the queue for them.
pub(super) struct HashSlots {
    state: Mutex<State>,
    /// How many requests wait.
    waiting: IntGauge,
}

struct State {
    free: usize,
    queue: FairQueue<oneshot::Sender<HashSlot>>,
}

/// The right to hash a password; dropping it passes the slot to the next request in the queue.
pub(super) struct HashSlot(Option<Arc<HashSlots>>);

impl HashSlots {
    pub(super) fn new(slots: usize, waiting: IntGauge) -> Arc<HashSlots> {
        let state = Mutex::new(State { free: slots, queue: FairQueue::default() });
        Arc::new(HashSlots { state, waiting })
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// [`TooMany`] if the queue is full, or if a client with fewer requests has taken this request's slot in it.
    pub(super) async fn enter(
        self: &Arc<HashSlots>,
        priority: Priority,
        client: ClientKey,
    ) -> Result<HashSlot, TooMany> {
        let slot = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(HashSlot(Some(self.clone())));
            }
            let (sender, slot) = oneshot::channel();
            let mut pushed = state.queue.push(priority, client, sender);
            if let Err(sender) = pushed {
                state.queue.retain(|sender| !sender.is_closed());
                pushed = state.queue.push(priority, client, sender);
            }
            self.waiting.set(i64::try_from(state.queue.len()).unwrap_or(i64::MAX));
            // A request that loses its slot in the queue finds its channel closed.
            pushed.map_err(|_| TooMany)?;
            slot
        };
        slot.await.map_err(|_| TooMany)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HashSlot {
    fn drop(&mut self) {
        let Some(slots) = self.0.take() else { return };
        let mut state = slots.lock();
        loop {
            let Some(next) = state.queue.pop() else {
                state.free += 1;
                break;
            };
            match next.send(HashSlot(Some(slots.clone()))) {
                Ok(()) => break,
                // That request no longer waits. Dropping its slot here would pass it on while the lock is held.
                Err(mut slot) => slot.0 = None,
            }
        }
        slots.waiting.set(i64::try_from(state.queue.len()).unwrap_or(i64::MAX));
    }
}
