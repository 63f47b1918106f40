//! [`Line`]: who is next, fairly between clients.
//!
//! Those who were right lately have a line of their own, which goes first but for every fifth turn. In each line
//! the clients take turns, however many wait for one of them. A client has a bounded part of a line, and in a full
//! line the client with the most gives a place to one with fewer: nobody's flood keeps somebody else out.

use std::collections::{HashMap, VecDeque};

use crate::net::ClientKey;

/// Most that wait for one client, in each line.
pub(super) const PER_CLIENT_MAX: usize = 64;

/// Most that wait, in each line.
pub(super) const WAITING_MAX: usize = 256;

/// How often those who were right lately go first in a row while others wait.
const KNOWN_IN_A_ROW: u32 = 4;

/// Which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Somebody who was right lately.
    Known,
    /// Anybody else.
    Other,
}

/// Both lines.
#[derive(Debug)]
pub(super) struct Line<T> {
    known: Turns<T>,
    others: Turns<T>,
    known_in_a_row: u32,
}

/// One of them.
#[derive(Debug)]
struct Turns<T> {
    /// Clients with somebody waiting, each once, the next one first.
    clients: VecDeque<ClientKey>,
    waiting: HashMap<ClientKey, VecDeque<T>>,
    count: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        let turns = || Turns { clients: VecDeque::new(), waiting: HashMap::new(), count: 0 };
        Line { known: turns(), others: turns(), known_in_a_row: 0 }
    }
}

impl<T> Line<T> {
    /// Puts `item` at the end of its client's part; gives the one that it displaced, if any.
    ///
    /// # Errors
    /// The item itself, if there is no place for it.
    pub(super) fn push(&mut self, rank: Rank, client: ClientKey, item: T) -> Result<Option<T>, T> {
        match rank {
            Rank::Known => self.known.push(client, item),
            Rank::Other => self.others.push(client, item),
        }
    }

    /// Whoever is next.
    pub(super) fn pop(&mut self) -> Option<T> {
        let is_others_turn = self.known_in_a_row >= KNOWN_IN_A_ROW && self.others.count > 0;
        if self.known.count > 0 && !is_others_turn {
            self.known_in_a_row += 1;
            return self.known.pop();
        }
        self.known_in_a_row = 0;
        self.others.pop()
    }

    /// Lets go of those that need not wait any more.
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

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.known.count + self.others.count
    }
}

impl<T> Turns<T> {
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
            // Otherwise two clients would take each other's place for ever.
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
    fn fill(line: &mut Line<(u32, u32)>, rank: Rank, number: u32, count: u32) {
        for item in 0..count {
            assert_eq!(line.push(rank, client(number), (number, item)), Ok(None), "{item}");
        }
    }

    fn order(line: &mut Line<(u32, u32)>, count: usize) -> Vec<u32> {
        (0..count).filter_map(|_| line.pop()).map(|(number, _)| number).collect()
    }

    #[test]
    fn clients_take_turns() {
        let mut line = Line::default();
        fill(&mut line, Rank::Other, 1, 50);
        fill(&mut line, Rank::Other, 2, 2);
        fill(&mut line, Rank::Other, 3, 1);
        assert_eq!(order(&mut line, 7), [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(line.len(), 46);
    }

    #[test]
    fn who_was_right_lately_goes_first_but_not_for_ever() {
        let mut line = Line::default();
        fill(&mut line, Rank::Other, 1, 2);
        fill(&mut line, Rank::Known, 2, 9);
        assert_eq!(order(&mut line, 20), [2, 2, 2, 2, 1, 2, 2, 2, 2, 1, 2]);
    }

    #[test]
    fn a_flood_gives_way_to_who_has_fewer() {
        let mut line = Line::default();
        for number in 0..4 {
            fill(&mut line, Rank::Other, number, 64);
        }
        assert_eq!(line.push(Rank::Other, client(0), (0, 64)), Err((0, 64)), "its part is full");
        for number in 10..20 {
            let displaced = line.push(Rank::Other, client(number), (number, 0)).expect("a place");
            assert!(displaced.is_some_and(|(number, _)| number < 4));
            assert_eq!(line.len(), WAITING_MAX);
        }
        let first = order(&mut line, 14);
        assert!((10..20).all(|number| first.contains(&number)), "{first:?}");
        // 256 clients with one each have nobody to give way.
        let mut line = Line::default();
        for number in 0..256 {
            fill(&mut line, Rank::Other, number, 1);
        }
        assert_eq!(line.push(Rank::Other, client(999), (999, 0)), Err((999, 0)));
        fill(&mut line, Rank::Known, 999, 1);
    }

    #[test]
    fn whoever_goes_leaves_a_place() {
        let mut line = Line::default();
        fill(&mut line, Rank::Other, 1, 64);
        line.retain(|(_, item)| *item != 63);
        assert_eq!((line.len(), line.push(Rank::Other, client(1), (1, 64))), (63, Ok(None)));
        line.retain(|_| false);
        assert_eq!((line.len(), line.pop()), (0, None));
    }

    proptest! {
        /// Nothing is lost and nothing comes twice, whatever is pushed and popped.
        #[test]
        fn what_goes_in_comes_out_once(steps in prop::collection::vec((0_u32..6, 0_u32..3), 1..2000)) {
            let mut line = Line::default();
            let mut inside = std::collections::BTreeSet::new();
            for (number, (who, what)) in steps.into_iter().enumerate() {
                match what {
                    0 => match line.pop() {
                        Some(item) => prop_assert!(inside.remove(&item)),
                        None => prop_assert!(inside.is_empty()),
                    },
                    _ => {
                        let rank = if what == 1 { Rank::Other } else { Rank::Known };
                        if let Ok(displaced) = line.push(rank, client(who), number) {
                            inside.insert(number);
                            displaced.map(|it| inside.remove(&it));
                        }
                    }
                }
                prop_assert_eq!(line.len(), inside.len());
                prop_assert!(line.len() <= 2 * WAITING_MAX);
            }
            while let Some(item) = line.pop() {
                prop_assert!(inside.remove(&item));
            }
            prop_assert!(inside.is_empty());
        }
    }
}
