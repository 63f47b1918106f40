//! Memory for request bodies: one budget for the whole process, shared fairly between clients.
//!
//! a piece of a body arrives -> [`HeldMemory::hold`] -> it is kept, or its request is refused with 503 -> [`HeldMemory`] is dropped -> the
//! memory is free again. Held bytes count, not those that a header announces.
//!
//! A client may hold at most half of what others and a reserve leave. The reserve is for clients that hold little, so that a
//! later client finds room for a small body even if bodies of many others never end. All clients without credentials together
//! have one half of the budget; the other half is only for identified users.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use account::UserName;
use net::ClientKey;
use prometheus::IntCounter;

use crate::turns::Turns;

/// Memory of a request with a body, besides the body: its futures, its head, its entry here.
const REQUEST_BYTES: usize = 2 << 10;

/// A client that holds at most this much holds little, and may use the reserve.
const LITTLE_BYTES: usize = 64 << 10;

/// The reserve's share of the budget for a kind of holders.
const RESERVE_SHARE: usize = 4;

/// Long bodies that are parsed, and archives that are opened, at the same time.
const PARSED_AT_ONCE: usize = 2;

/// The budget.
#[derive(Debug)]
pub struct Bodies {
    shared: Arc<MemoryLedger>,
    /// A turn for each long parse.
    pub parsing: Turns,
}

/// Who holds memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemoryHolder {
    /// An anonymous client at this address.
    Client(ClientKey),
    /// A user, identified by credentials.
    User(UserName),
}

/// The budget has no bytes left for this body; the sender may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory for request bodies is taken; nothing was read or written")]
pub struct NoRoom;

#[derive(Debug)]
struct MemoryLedger {
    bytes_max: usize,
    refused: IntCounter,
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    bytes: usize,
    /// Of these, the bytes of clients without credentials.
    strangers_bytes: usize,
    /// Holders of at least one byte.
    by_holder: HashMap<MemoryHolder, usize>,
}

/// Memory of one request, given back when this is dropped.
#[derive(Debug)]
pub struct HeldMemory {
    shared: Arc<MemoryLedger>,
    holder: MemoryHolder,
    bytes: usize,
}

impl Bodies {
    /// A budget of this many bytes, of which none are held; counts refusals in `refused`.
    pub fn new(bytes_max: usize, refused: IntCounter) -> Bodies {
        let shared = MemoryLedger { bytes_max, refused, usage: Mutex::default() };
        Bodies { shared: Arc::new(shared), parsing: Turns::new(PARSED_AT_ONCE) }
    }

    /// The memory of a new request, which holds little yet.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn begin(&self, holder: MemoryHolder) -> Result<HeldMemory, NoRoom> {
        let mut held = HeldMemory { shared: self.shared.clone(), holder, bytes: 0 };
        held.hold(0)?;
        Ok(held)
    }

    /// The largest body that this holder can send while no other has any: for a moment one and a half times as much is held.
    pub fn single_bytes_max(&self, holder: &MemoryHolder) -> usize {
        // Three eighths, and two thirds of these.
        (self.shared.whole(holder) / 4).saturating_sub(REQUEST_BYTES)
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.shared.usage().bytes
    }
}

impl HeldMemory {
    /// Holds this many bytes from now on, instead of what it held before.
    ///
    /// # Errors
    /// [`NoRoom`], only for more bytes than before; the request then holds what it held.
    pub fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let bytes = bytes.saturating_add(REQUEST_BYTES);
        self.shared.clone().usage().change(self, bytes)
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        // Less is never refused.
        let _ = shared.usage().change(self, 0);
    }
}

impl MemoryLedger {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget for this kind of holders.
    fn whole(&self, holder: &MemoryHolder) -> usize {
        match holder {
            MemoryHolder::Client(_) => self.bytes_max / 2,
            MemoryHolder::User(_) => self.bytes_max,
        }
    }

    /// What is free for this kind of holders.
    fn free(&self, usage: &Usage, holder: &MemoryHolder) -> usize {
        let free = self.bytes_max.saturating_sub(usage.bytes);
        match holder {
            MemoryHolder::User(_) => free,
            MemoryHolder::Client(_) => {
                free.min((self.bytes_max / 2).saturating_sub(usage.strangers_bytes))
            }
        }
    }
}

impl Usage {
    fn change(&mut self, held: &mut HeldMemory, bytes: usize) -> Result<(), NoRoom> {
        let own = self.by_holder.get(&held.holder).copied().unwrap_or_default();
        let own = own - held.bytes + bytes;
        if bytes > held.bytes {
            let added = bytes - held.bytes;
            let free = held.shared.free(self, &held.holder);
            let reserve = held.shared.whole(&held.holder) / RESERVE_SHARE;
            // A holder of much must leave as much for others as it would hold itself.
            let is_much = own > LITTLE_BYTES;
            if added > free || (is_much && own > (free - added).saturating_sub(reserve)) {
                held.shared.refused.inc();
                return Err(NoRoom);
            }
        }
        self.bytes = self.bytes - held.bytes + bytes;
        if let MemoryHolder::Client(_) = held.holder {
            self.strangers_bytes = self.strangers_bytes - held.bytes + bytes;
        }
        match own {
            0 => _ = self.by_holder.remove(&held.holder),
            _ => _ = self.by_holder.insert(held.holder.clone(), own),
        }
        held.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 64 << 20;

    fn bodies() -> Bodies {
        Bodies::new(BYTES_MAX, IntCounter::new("refused", "refused").expect("a name"))
    }

    fn stranger(number: u32) -> MemoryHolder {
        MemoryHolder::Client(ClientKey::Ipv4(number))
    }

    fn user(name: &str) -> MemoryHolder {
        MemoryHolder::User(name.parse().expect("a name"))
    }

    /// Begins requests until there is no room.
    fn fill(bodies: &Bodies, holder: &MemoryHolder, bytes: usize) -> Vec<HeldMemory> {
        let begin = || {
            let mut held = bodies.begin(holder.clone()).ok()?;
            held.hold(bytes).ok()?;
            Some(held)
        };
        std::iter::from_fn(begin).take(BYTES_MAX).collect()
    }

    fn bytes(held: &[HeldMemory]) -> usize {
        held.iter().map(|held| held.bytes).sum()
    }

    #[test]
    fn one_client_leaves_as_much_as_it_takes() {
        let bodies = bodies();
        let half = BYTES_MAX / 2;
        let first = fill(&bodies, &stranger(1), 8_000);
        assert!(bytes(&first).abs_diff(half * 3 / 8) < 20_000, "{}", bytes(&first));
        let second = fill(&bodies, &stranger(2), 8_000);
        assert!(bytes(&second).abs_diff(half * 3 / 16) < 20_000, "{}", bytes(&second));
        assert_eq!(bodies.shared.refused.get(), 2);
        drop((first, second));
        assert_eq!(bodies.held_bytes(), 0);
        assert!(bodies.shared.usage().by_holder.is_empty());
    }

    #[test]
    fn a_small_body_finds_room_beside_many_that_never_end() {
        let bodies = bodies();
        let endless: Vec<_> = (0..100).map(|it| fill(&bodies, &stranger(it), 4_000)).collect();
        assert!(endless.iter().all(|held| !held.is_empty()));
        let newcomer = bodies.begin(stranger(99)).and_then(|mut held| held.hold(100));
        assert_eq!(newcomer, Ok(()));
    }

    #[test]
    fn users_have_their_half_whatever_strangers_do() {
        let bodies = bodies();
        let strangers: Vec<_> = (0..200).map(|it| fill(&bodies, &stranger(it), 500)).collect();
        assert!(strangers.iter().map(|held| bytes(held)).sum::<usize>() <= BYTES_MAX / 2);
        let mut held = bodies.begin(user("alice")).expect("room");
        assert_eq!(held.hold(BYTES_MAX / 8 - REQUEST_BYTES), Ok(()));
        assert_eq!(held.hold(BYTES_MAX / 2), Err(NoRoom));
        assert_eq!(held.bytes, BYTES_MAX / 8, "what was refused changes nothing");
    }

    #[test]
    fn the_largest_body_can_be_copied_to_grow() {
        let bodies = bodies();
        for holder in [stranger(1), user("alice")] {
            let most = bodies.single_bytes_max(&holder);
            let mut held = bodies.begin(holder).expect("room");
            assert_eq!(held.hold(most + most / 2), Ok(()));
            assert_eq!(held.hold(2 * most), Err(NoRoom));
        }
    }
}
