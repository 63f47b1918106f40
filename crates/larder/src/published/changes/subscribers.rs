//! The clients that follow a feed now, counted together and per client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use net::ClientKey;
use prometheus::{IntCounter, IntGauge};

/// How they are counted. The caller makes and registers the metrics.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Subscriptions now.
    pub open: IntGauge,
    /// Refused subscriptions.
    pub refused: IntCounter,
    /// Events that were sent to them.
    pub events: IntCounter,
}

/// Why a subscription is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionRefusal {
    /// The feed has this many subscribers already.
    All(usize),
    /// This client has this many subscriptions already.
    Client(usize),
}

/// Everybody who follows a feed.
pub(crate) struct Subscribers {
    all_max: usize,
    per_client_max: usize,
    counters: Counters,
    state: Mutex<SubscriberCounts>,
}

#[derive(Default)]
struct SubscriberCounts {
    all: usize,
    /// The number of each client's subscriptions, if it has any.
    clients: HashMap<ClientKey, usize>,
}

impl Subscribers {
    pub(super) fn new(
        all_max: usize,
        per_client_max: usize,
        counters: Counters,
    ) -> Arc<Subscribers> {
        Arc::new(Subscribers { all_max, per_client_max, counters, state: Mutex::default() })
    }

    /// Counts one more subscription of this client, until it is dropped.
    pub(crate) fn add(
        self: &Arc<Self>,
        client: ClientKey,
    ) -> Result<Subscription, SubscriptionRefusal> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = state.clients.get(&client).copied().unwrap_or_default();
        let refused = if of_client >= self.per_client_max {
            Some(SubscriptionRefusal::Client(self.per_client_max))
        } else if state.all >= self.all_max {
            Some(SubscriptionRefusal::All(self.all_max))
        } else {
            None
        };
        if let Some(refused) = refused {
            self.counters.refused.inc();
            return Err(refused);
        }
        state.all += 1;
        state.clients.insert(client, of_client + 1);
        self.counters.open.set(i64::try_from(state.all).unwrap_or(i64::MAX));
        Ok(Subscription { subscribers: self.clone(), client })
    }
}

/// A counted subscription.
pub(crate) struct Subscription {
    subscribers: Arc<Subscribers>,
    client: ClientKey,
}

impl Subscription {
    /// Counts an event that was sent.
    pub(crate) fn sent(&self) {
        self.subscribers.counters.events.inc();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.subscribers.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.all -= 1;
        if let Some(count) = state.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                state.clients.remove(&self.client);
            }
        }
        self.subscribers.counters.open.set(i64::try_from(state.all).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_given_back() {
        let counters = Counters {
            open: IntGauge::new("open", "open").expect("a metric"),
            refused: IntCounter::new("refused", "refused").expect("a metric"),
            events: IntCounter::new("events", "events").expect("a metric"),
        };
        let subscribers = Subscribers::new(3, 2, counters.clone());
        let (one, other) = (ClientKey::Ipv4(1), ClientKey::Ipv4(2));
        let first = subscribers.add(one).expect("a place");
        let _second = subscribers.add(one).expect("a place");
        assert_eq!(subscribers.add(one).err(), Some(SubscriptionRefusal::Client(2)));
        let _third = subscribers.add(other).expect("a place");
        assert_eq!(subscribers.add(other).err(), Some(SubscriptionRefusal::All(3)));
        assert_eq!((counters.open.get(), counters.refused.get()), (3, 2));
        drop(first);
        assert_eq!(counters.open.get(), 2);
        drop(subscribers.add(one).expect("the place that was given back"));
        assert_eq!(counters.open.get(), 2);
    }
}
