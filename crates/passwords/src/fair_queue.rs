//! [`FairQueue`]: a queue that is fair between clients.
//!
//! Clients with a recent right password have a queue of their own, which goes first except on every fifth turn. In
//! each queue the clients take turns, no matter how many requests each of them has. A client's share of a queue is
//! bounded, and in a full queue the client with the most requests loses a place to one with fewer: no client's flood
//! keeps others out.

use std::collections::{HashMap, VecDeque};

use net::ClientKey;

/// Most requests of one client that wait, in each queue.
pub(super) const PER_CLIENT_MAX: usize = 64;

/// Most requests that wait, in each queue.
pub(super) const WAITING_MAX: usize = 256;

/// How many turns in a row go to clients with a recent right password while others wait.
const KNOWN_IN_A_ROW: u32 = 4;

/// Which queue a request waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The client sent the account's right password recently.
    Known,
    /// Any other client.
    Other,
}

/// Both queues.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    known: ClientTurns<T>,
    others: ClientTurns<T>,
    known_in_a_row: u32,
}

/// One of the queues.
#[derive(Debug)]
struct ClientTurns<T> {
    /// Clients with waiting requests, each once, the next one first.
    clients: VecDeque<ClientKey>,
    waiting: HashMap<ClientKey, VecDeque<T>>,
    count: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        let turns = || ClientTurns { clients: VecDeque::new(), waiting: HashMap::new(), count: 0 };
        FairQueue { known: turns(), others: turns(), known_in_a_row: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds `item` at the end of its client's share; returns the item that lost its place, if any.
    ///
    /// # Errors
    /// The item itself, if it gets no place.
    pub(super) fn push(
        &mut self,
        priority: Priority,
        client: ClientKey,
        item: T,
    ) -> Result<Option<T>, T> {
        match priority {
            Priority::Known => self.known.push(client, item),
            Priority::Other => self.others.push(client, item),
        }
    }

    /// Removes and returns the next item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let is_others_turn = self.known_in_a_row >= KNOWN_IN_A_ROW && self.others.count > 0;
        if self.known.count > 0 && !is_others_turn {
            self.known_in_a_row += 1;
            return self.known.pop();
        }
        self.known_in_a_row = 0;
        self.others.pop()
    }

    /// Removes the items that need not wait any more.
    pub(super) fn retain(&mut self, mut is_waiting: impl FnMut(&T) -> bool) {
        for turns in [&mut self.known, &mut self.others] {
            turns.waiting.retain(|_, items| {
                items.retain(&mut is_waiting);
                !items.is_empty()
            });
            turns.clients.retain(|client| turns.waiting.contains_key(client));
            turns.count = turns.waiting.values().map(VecDeque::len).sum();
        }
    }

    /// Number of waiting items.
    pub(super) fn len(&self) -> usize {
        self.known.count + self.others.count
    }
}

impl<T> ClientTurns<T> {
    fn push(&mut self, client: ClientKey, item: T) -> Result<Option<T>, T> {
        let own = self.waiting.get(&client).map_or(0, VecDeque::len);
        if own >= PER_CLIENT_MAX {
            return Err(item);
        }
        let mut displaced = None;
        if self.count >= WAITING_MAX {
            let Some(longest) = self.waiting.iter().max_by_key(|(_, items)| items.len()) else {
                return Err(item);
            };
            let (client, length) = (*longest.0, longest.1.len());
            // Otherwise two clients could take each other's places for ever.
            if length <= own + 1 {
                return Err(item);
            }
            displaced = self.waiting.get_mut(&client).and_then(VecDeque::pop_back);
            self.count -= 1;
        }
        let items = self.waiting.entry(client).or_default();
        if items.is_empty() {
            self.clients.push_back(client);
        }
        items.push_back(item);
        self.count += 1;
        Ok(displaced)
    }

    fn pop(&mut self) -> Option<T> {
        let client = self.clients.pop_front()?;
        let items = self.waiting.get_mut(&client)?;
        let item = items.pop_front()?;
        self.count -= 1;
        if items.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.clients.push_back(client);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(number: u32) -> ClientKey {
        ClientKey::Ipv4(number)
    }

    #[track_caller]
    fn fill(queue: &mut FairQueue<(u32, u32)>, priority: Priority, number: u32, count: u32) {
        for item in 0..count {
            assert_eq!(queue.push(priority, client(number), (number, item)), Ok(None), "{item}");
        }
    }

    fn order(queue: &mut FairQueue<(u32, u32)>, count: usize) -> Vec<u32> {
        (0..count).filter_map(|_| queue.pop()).map(|(number, _)| number).collect()
    }

    #[test]
    fn clients_take_turns() {
        let mut queue = FairQueue::default();
        fill(&mut queue, Priority::Other, 1, 50);
        fill(&mut queue, Priority::Other, 2, 2);
        fill(&mut queue, Priority::Other, 3, 1);
        assert_eq!(order(&mut queue, 7), [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(queue.len(), 46);
    }

    #[test]
    fn known_clients_go_first_but_not_for_ever() {
        let mut queue = FairQueue::default();
        fill(&mut queue, Priority::Other, 1, 2);
        fill(&mut queue, Priority::Known, 2, 9);
        assert_eq!(order(&mut queue, 20), [2, 2, 2, 2, 1, 2, 2, 2, 2, 1, 2]);
    }

    #[test]
    fn a_flood_loses_places_to_clients_with_fewer_requests() {
        let mut queue = FairQueue::default();
        for number in 0..4 {
            fill(&mut queue, Priority::Other, number, 64);
        }
        assert_eq!(
            queue.push(Priority::Other, client(0), (0, 64)),
            Err((0, 64)),
            "its part is full"
        );
        for number in 10..20 {
            let displaced =
                queue.push(Priority::Other, client(number), (number, 0)).expect("a place");
            assert!(displaced.is_some_and(|(number, _)| number < 4));
            assert_eq!(queue.len(), WAITING_MAX);
        }
        let first = order(&mut queue, 14);
        assert!((10..20).all(|number| first.contains(&number)), "{first:?}");
        // All 256 clients have one request, so none loses its place.
        let mut queue = FairQueue::default();
        for number in 0..256 {
            fill(&mut queue, Priority::Other, number, 1);
        }
        assert_eq!(queue.push(Priority::Other, client(999), (999, 0)), Err((999, 0)));
        fill(&mut queue, Priority::Known, 999, 1);
    }

    #[test]
    fn an_item_that_no_longer_waits_frees_its_place() {
        let mut queue = FairQueue::default();
        fill(&mut queue, Priority::Other, 1, 64);
        queue.retain(|(_, item)| *item != 63);
        assert_eq!((queue.len(), queue.push(Priority::Other, client(1), (1, 64))), (63, Ok(None)));
        queue.retain(|_| false);
        assert_eq!((queue.len(), queue.pop()), (0, None));
    }

    proptest! {
        /// No item is lost or returned twice, for any sequence of pushes and pops.
        #[test]
        fn what_goes_in_comes_out_once(steps in prop::collection::vec((0_u32..6, 0_u32..3), 1..2000)) {
            let mut queue = FairQueue::default();
            let mut inside = std::collections::BTreeSet::new();
            for (number, (who, what)) in steps.into_iter().enumerate() {
                match what {
                    0 => match queue.pop() {
                        Some(item) => prop_assert!(inside.remove(&item)),
                        None => prop_assert!(inside.is_empty()),
                    },
                    _ => {
                        let priority = if what == 1 { Priority::Other } else { Priority::Known };
                        if let Ok(displaced) = queue.push(priority, client(who), number) {
                            inside.insert(number);
                            displaced.map(|it| inside.remove(&it));
                        }
                    }
                }
                prop_assert_eq!(queue.len(), inside.len());
                prop_assert!(queue.len() <= 2 * WAITING_MAX);
            }
            while let Some(item) = queue.pop() {
                prop_assert!(inside.remove(&item));
            }
            prop_assert!(inside.is_empty());
        }
    }
}
