//! [`Flights`]: work that is done once for all callers that wait for it, and goes on when they leave.
//!
//! key -> the running flight, or a new one in its own task -> its outcome, for all callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::upstream::UpstreamError;

/// Most flights at once; further ones are refused.
const FLIGHTS_MAX: usize = 4096;

/// The outcome of a flight.
pub(super) type FetchResult<T> = Result<T, UpstreamError>;

type Landing<T> = watch::Receiver<Option<FetchResult<T>>>;

/// All flights that are under way.
pub(super) struct Flights<T> {
    under_way: Arc<Mutex<HashMap<Arc<str>, Landing<T>>>>,
}

/// A flight that is running, or has landed already.
pub(super) enum Flight<T> {
    Landed(T),
    Waiting(Landing<T>),
}

/// Takes a flight out when it has landed, also by a panic.
struct UnderWay<T> {
    flights: Arc<Mutex<HashMap<Arc<str>, Landing<T>>>>,
    key: Arc<str>,
}

impl<T> Drop for UnderWay<T> {
    fn drop(&mut self) {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Flights<T> {
        Flights { under_way: Arc::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// The flight for `key`. `landed` looks once more whether a flight has ended since the caller looked: whatever work
    /// brings must be where `landed` finds it before `work` ends.
    pub(super) fn join<W>(
        &self,
        key: &Arc<str>,
        landed: impl FnOnce() -> Option<T>,
        work: impl FnOnce() -> W,
    ) -> FetchResult<Flight<T>>
    where
        W: Future<Output = FetchResult<T>> + Send + 'static,
    {
        let mut flights = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(key) {
            return Ok(Flight::Waiting(flight.clone()));
        }
        if let Some(found) = landed() {
            return Ok(Flight::Landed(found));
        }
        if flights.len() >= FLIGHTS_MAX {
            return Err(UpstreamError::busy("too many requests wait for upstreams"));
        }
        let (sender, receiver) = watch::channel(None);
        flights.insert(key.clone(), receiver.clone());
        let under_way = UnderWay { flights: self.under_way.clone(), key: key.clone() };
        let work = work();
        tokio::spawn(async move {
            let outcome = work.await;
            // From now on requests find the result in memory.
            drop(under_way);
            sender.send_replace(Some(outcome));
        });
        Ok(Flight::Waiting(receiver))
    }
}

impl<T: Clone> Flight<T> {
    /// Waits for the outcome.
    pub(super) async fn landed(self) -> FetchResult<T> {
        let mut landing = match self {
            Flight::Landed(found) => return Ok(found),
            Flight::Waiting(landing) => landing,
        };
        match landing.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(failed())),
            Err(_) => Err(failed()),
        }
    }
}

fn failed() -> UpstreamError {
    UpstreamError::new(
        "the request to the upstream has ended without an outcome; it has been logged",
    )
}
