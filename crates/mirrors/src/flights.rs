//! [`Flights`]: work that is done once for all callers that wait for it, and goes on when they leave.
//!
//! key -> the running flight, or a new one in its own task -> its progress, for all callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::disk::Key;
use super::lock;
use super::upstream::UpstreamError;

/// The outcome of a flight.
pub(super) type FetchResult<T> = Result<T, UpstreamError>;

/// A flight as one caller sees it. If it ends without an outcome, its sender is gone.
pub(super) type Flight<P> = watch::Receiver<P>;

/// All flights that are under way, with a progress of the type `P`.
pub(super) struct Flights<P> {
    under_way: Arc<Mutex<HashMap<Key, Flight<P>>>>,
    flights_max: usize,
    /// Why a further one is refused.
    refusal: &'static str,
}

/// Takes a flight out when it has landed, also by a panic.
struct FlightGuard<P> {
    flights: Arc<Mutex<HashMap<Key, Flight<P>>>>,
    key: Key,
}

impl<P> Drop for FlightGuard<P> {
    fn drop(&mut self) {
        lock(&self.flights).remove(&self.key);
    }
}

impl<P: Send + Sync + 'static> Flights<P> {
    pub(super) fn new(flights_max: usize, refusal: &'static str) -> Flights<P> {
        Flights { under_way: Arc::default(), flights_max, refusal }
    }

    /// The flight for `key`. `landed` looks once more whether one has ended since the caller looked: whatever work brings must
    /// be where `landed` finds it before `work` ends. A new flight begins with the progress `first`, and ends with the change
    /// that `work` returns.
    ///
    /// # Errors
    /// If too many are under way.
    pub(super) fn join<W, End>(
        &self,
        key: Key,
        landed: impl FnOnce() -> Option<P>,
        first: P,
        work: impl FnOnce(Arc<watch::Sender<P>>) -> W,
    ) -> FetchResult<Flight<P>>
    where
        W: Future<Output = End> + Send + 'static,
        End: FnOnce(&mut P) + Send,
    {
        let mut flights = lock(&self.under_way);
        if let Some(flight) = flights.get(&key) {
            return Ok(flight.clone());
        }
        if let Some(found) = landed() {
            return Ok(watch::channel(found).1);
        }
        if flights.len() >= self.flights_max {
            return Err(UpstreamError::busy(self.refusal));
        }
        let (sender, flight) = watch::channel(first);
        let sender = Arc::new(sender);
        flights.insert(key, flight.clone());
        let under_way = FlightGuard { flights: self.under_way.clone(), key };
        let work = work(sender.clone());
        tokio::spawn(async move {
            let end = work.await;
            // From now on requests find the result, or begin another flight.
            drop(under_way);
            sender.send_modify(end);
        });
        Ok(flight)
    }
}

/// Waits for the outcome.
pub(super) async fn landed<T: Clone>(mut flight: Flight<Option<FetchResult<T>>>) -> FetchResult<T> {
    match flight.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(lost())),
        Err(_) => Err(lost()),
    }
}

/// The error of a flight without an outcome.
pub(super) fn lost() -> UpstreamError {
    UpstreamError::new(
        "the request to the upstream has ended without an outcome; it has been logged",
    )
}
