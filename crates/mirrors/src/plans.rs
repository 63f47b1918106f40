//! [`Plans`]: bounds how much JSON of mirrors' projects is planned, waits and is sent at once.
//!
//! a request -> [`Plans::enter`]: a place to wait, then a turn -> what is shown -> [`Plans::stream`] if it is much -> portions.
//! These turns are separate from those of pages, so installers, which need pages, never wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use net::ClientKey;
use resources::turns::{ThreadShare, Turn, Turns};

use super::{MANY_FILES, lock};

/// Plans that are made at once. One of many files takes all turns: it may look at hundreds of thousands of names.
const TURNS: usize = 8;

/// Further plans that may wait.
const WAITING_MAX: usize = 64;

/// Answers that are sent at once: each keeps its plan and its pages as long as its reader takes. An answer whose pages take more
/// than [`BYTES_OF_STREAM`] counts as several.
const STREAMS_MAX: u32 = 64;
const BYTES_OF_STREAM: u64 = 512 << 10;

/// Of these, those for one client; a client without another answer may get one of any size.
const STREAMS_OF_CLIENT_MAX: u32 = 16;

/// Portions that are made at once.
const PORTIONS: usize = 4;

/// The bounds of plans.
#[derive(Debug)]
pub struct Plans {
    share: ThreadShare,
    streams: Turns,
    /// What is being sent to each client, counted as in `streams`.
    clients: Clients,
    portions: Turns,
}

type Clients = Arc<Mutex<HashMap<ClientKey, u32>>>;

/// The right to send an answer to a client.
#[derive(Debug)]
pub struct Stream {
    client: ClientKey,
    counts: u32,
    clients: Clients,
    _turn: Turn,
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut clients = lock(&self.clients);
        if let Some(counts) = clients.get_mut(&self.client) {
            *counts = counts.saturating_sub(self.counts);
            if *counts == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

impl Plans {
    pub(super) fn new() -> Plans {
        Plans {
            share: ThreadShare::new(TURNS, WAITING_MAX),
            streams: Turns::new(STREAMS_MAX as usize),
            clients: Clients::default(),
            portions: Turns::new(PORTIONS),
        }
    }

    /// Takes a place among those that plan or wait, and then the turn to plan with pages of this many files together. The work
    /// has to own both.
    ///
    /// # Errors
    /// If too many wait: how many may.
    pub async fn enter(&self, files: usize) -> Result<(Turn, Turn), usize> {
        let place = self.share.enter()?;
        let turns = if files > MANY_FILES { TURNS as u32 } else { 1 };
        Ok((place, self.share.turns.take_many(turns).await))
    }

    /// The right to send this client JSON in portions that is made of pages of this many bytes in memory; `None` if too much is
    /// being sent, to it or to all.
    pub fn stream(&self, client: ClientKey, page_bytes: u64) -> Option<Stream> {
        let counts = u32::try_from(page_bytes / BYTES_OF_STREAM + 1).unwrap_or(STREAMS_MAX);
        let counts = counts.min(STREAMS_MAX);
        let mut clients = lock(&self.clients);
        let before = clients.get(&client).copied().unwrap_or_default();
        if before > 0 && before + counts > STREAMS_OF_CLIENT_MAX {
            return None;
        }
        let turn = self.streams.try_take_many(counts)?;
        clients.insert(client, before + counts);
        Some(Stream { client, counts, clients: self.clients.clone(), _turn: turn })
    }

    /// The turn to make a portion.
    pub async fn portion(&self) -> Turn {
        self.portions.take().await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn only_so_many_wait_for_a_turn() {
        let plans = Plans::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut enter = |files| {
            let plans = &plans;
            let mut entering = Box::pin(plans.enter(files));
            let polled = entering.as_mut().poll(&mut context);
            (entering, polled)
        };
        let (_, Poll::Ready(Ok(large))) = enter(MANY_FILES + 1) else { panic!("it is first") };
        let waiting: Vec<_> = (1..TURNS + WAITING_MAX).map(|_| enter(1)).collect();
        assert!(waiting.iter().all(|(_, polled)| polled.is_pending()), "the large one has all");
        let refused = enter(1).1;
        assert!(matches!(refused, Poll::Ready(Err(most)) if most == TURNS + WAITING_MAX));
        // A request that leaves makes room, and an ended turn goes to another.
        drop(waiting);
        assert!(enter(1).1.is_pending());
        drop(large);
        assert!(matches!(enter(1).1, Poll::Ready(Ok(_))));
    }

    #[test]
    fn only_so_much_is_sent_at_once() {
        let plans = Plans::new();
        let stream = |client: u32, bytes: u64| plans.stream(ClientKey::Ipv4(client), bytes);
        let streams: Vec<_> = (0..STREAMS_MAX).map(|client| stream(client, 300)).collect();
        assert!(streams.iter().all(Option::is_some) && stream(STREAMS_MAX, 300).is_none());
        drop(streams);
        let large = stream(1, 60 * BYTES_OF_STREAM);
        assert!(large.is_some() && stream(2, 3 * BYTES_OF_STREAM).is_none());
        assert!(stream(2, 2 * BYTES_OF_STREAM).is_some());
        drop(large);
        assert!(stream(1, u64::MAX).is_some(), "however many, it is sent alone");
    }

    #[test]
    fn one_client_does_not_take_what_others_need() {
        let plans = Plans::new();
        let [one, other] = [1, 2].map(ClientKey::Ipv4);
        let mut streams: Vec<_> =
            (0..STREAMS_OF_CLIENT_MAX).map(|_| plans.stream(one, 300)).collect();
        assert!(streams.iter().all(Option::is_some) && plans.stream(one, 300).is_none());
        let others: Vec<_> = (0..STREAMS_OF_CLIENT_MAX).map(|_| plans.stream(other, 300)).collect();
        assert!(others.iter().all(Option::is_some));
        streams.pop();
        let again = plans.stream(one, 300);
        assert!(again.is_some() && plans.stream(one, 300).is_none(), "one has ended");
        drop((streams, again, others));
        // Something large may be the only one, and only that.
        let large = plans.stream(one, 20 * BYTES_OF_STREAM);
        assert!(large.is_some() && plans.stream(one, 300).is_none());
        drop(large);
        assert!(lock(&plans.clients).is_empty(), "nothing is kept of who has gone");
        let small = plans.stream(one, 300);
        assert!(small.is_some() && plans.stream(one, 20 * BYTES_OF_STREAM).is_none());
    }
}
