//! Memory that connections take: one budget for the whole process, shared fairly between clients.
//!
//! bytes are read, a request is open, an answer waits for its reader -> [`ConnectionRoom`] -> [`Room`] -> there is room, or the
//! request gets 503, or its connection ends. What is counted is an upper bound of what the HTTP library keeps for the
//! connection. The content of bodies that handlers have read is counted in the budget of bodies instead.
//!
//! A connection that waits for its next request and keeps nothing is not counted, so there may be thousands. A client may take
//! at most half of what other clients and a reserve leave. The reserve is for clients that take little, and for HTTP/1.1
//! requests whose heads come at once. Trusted proxies speak for many clients and have no bound of their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::client::ClientKey;

/// Memory of a connection while it serves HTTP/1.1: two buffers of 8 KiB and the state around them.
pub(super) const HTTP1_BYTES: usize = 20 << 10;

/// Memory of a connection while it serves HTTP/2, which keeps its buffers and tables between requests.
pub(super) const HTTP2_BYTES: usize = 24 << 10;

/// Memory of TLS during the handshake, and while records are read and written.
pub(super) const TLS_BYTES: usize = 24 << 10;

/// Memory of TLS between requests.
pub(super) const TLS_IDLE_BYTES: usize = 8 << 10;

/// The buffers of an HTTP/1.1 body that arrives fast.
pub(super) const LARGE_READS_BYTES: usize = 128 << 10;

/// Bytes read for a request that are not charged to it: every connection has a buffer of this size anyway.
pub(super) const LITTLE_READ_BYTES: usize = 8 << 10;

/// A client that takes at most this much takes little, and may use the reserve.
const LITTLE_BYTES: usize = 64 << 10;

/// The reserve's share of the budget.
const RESERVE_SHARE: usize = 4;

/// The part of the budget that one answer counts as at the most.
const ANSWER_SHARE: usize = 4;

/// A larger piece of an answer is read only as long as half of the budget is free.
const LITTLE_PIECE_BYTES: usize = 24 << 10;

/// Shares grow by multiples of this, so that not every byte asks the budget.
const STEP_BYTES: usize = 4 << 10;

/// A share that is larger than needed by less than this stays so.
const SLACK_BYTES: usize = 32 << 10;

/// The memory for connections is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// The budget.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: usize,
    taken: Mutex<RoomUsage>,
    gauge: prometheus::IntGauge,
    refused: prometheus::IntCounter,
    /// A share was refused, or became tight, since the last sweep.
    is_pressed: AtomicBool,
}

#[derive(Debug, Default)]
struct RoomUsage {
    bytes: usize,
    /// Clients that take something.
    per_client: HashMap<ClientKey, usize>,
}

/// The memory of one connection. Its tasks write it.
#[derive(Debug)]
pub(super) struct ConnectionRoom {
    room: Arc<Room>,
    /// The client, if there is a bound for each client.
    client: Option<ClientKey>,
    /// Bytes taken of the room; changes under the room's lock.
    bytes: AtomicUsize,
    /// Bytes that the connection takes whatever is sent.
    base: AtomicUsize,
    /// Bytes that were read and are kept.
    read: AtomicUsize,
    /// Bytes of open HTTP/2 requests, and of answers that wait for their readers.
    open: AtomicUsize,
    /// Answers that are given to the HTTP library, and are not all written.
    unwritten: AtomicUsize,
    /// There is little room, so as soon as the connection waits for a request, it should keep nothing.
    is_tight: AtomicBool,
    /// It has taken a part of the reserve, which is for requests that do not wait.
    has_reserve: AtomicBool,
}

/// Whether a request may take memory of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    /// If its client takes little.
    Little,
    /// In any case.
    Always,
    /// Half of it, if its client takes little or is a proxy: pieces of answers leave the rest to requests.
    Piece,
}

/// Memory of one request or answer, counted until this is dropped.
#[derive(Debug)]
pub(super) struct HeldMemory {
    share: Arc<ConnectionRoom>,
    bytes: usize,
    /// The HTTP library may still have a part of the answer when this is dropped.
    is_unwritten_after: bool,
}

impl Room {
    /// A budget of this many bytes, of which none are taken.
    pub(super) fn new(
        bytes_max: usize,
        gauge: prometheus::IntGauge,
        refused: prometheus::IntCounter,
    ) -> Arc<Room> {
        let (taken, is_pressed) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Room { bytes_max, taken, gauge, refused, is_pressed })
    }

    /// The share of a new connection; of a client with a bound of its own, if one is named.
    pub(super) fn share(self: &Arc<Self>, client: Option<ClientKey>) -> Arc<ConnectionRoom> {
        Arc::new(ConnectionRoom {
            room: self.clone(),
            client,
            bytes: AtomicUsize::new(0),
            base: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            unwritten: AtomicUsize::new(0),
            is_tight: AtomicBool::new(false),
            has_reserve: AtomicBool::new(false),
        })
    }

    /// Whether some share found little room since the last call.
    pub(super) fn take_pressed(&self) -> bool {
        self.is_pressed.swap(false, Relaxed)
    }

    fn change(&self, share: &ConnectionRoom, whose: Reserve) -> Result<(), NoRoom> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = share.bytes.load(Relaxed);
        // Read again: another task of the connection may have been quicker.
        let after = share.needed().next_multiple_of(STEP_BYTES);
        let own = share.client.and_then(|client| taken.per_client.get(&client).copied());
        let own = own.unwrap_or_default().saturating_sub(before) + after;
        if after > before {
            let free = self.bytes_max.saturating_sub(taken.bytes);
            let left = free.saturating_sub(after - before);
            let reserve = self.bytes_max / RESERVE_SHARE;
            let for_one = left.saturating_sub(reserve);
            let is_much = share.client.is_some() && own > LITTLE_BYTES;
            let is_little = share.client.is_some() && !is_much;
            let may_have_reserve = match whose {
                Reserve::Little => is_little,
                Reserve::Always => true,
                Reserve::Piece => !is_much && left >= reserve / 2,
            };
            let is_large_piece = whose == Reserve::Piece && after - before > LITTLE_PIECE_BYTES;
            if after - before > free
                || (is_large_piece && left < self.bytes_max / 2)
                || (left < reserve && !may_have_reserve)
                || (is_much && own > for_one)
            {
                drop(taken);
                self.is_pressed.store(true, Relaxed);
                return Err(NoRoom);
            }
            if left < reserve && whose == Reserve::Always {
                share.has_reserve.store(true, Relaxed);
            }
            if left < reserve || (is_much && 2 * own > for_one) {
                share.is_tight.store(true, Relaxed);
                self.is_pressed.store(true, Relaxed);
            }
        }
        taken.bytes = taken.bytes - before + after;
        if let Some(client) = share.client {
            match own {
                0 => _ = taken.per_client.remove(&client),
                _ => _ = taken.per_client.insert(client, own),
            }
        }
        share.bytes.store(after, Relaxed);
        self.gauge.set(i64::try_from(taken.bytes).unwrap_or(i64::MAX));
        Ok(())
    }
}

impl ConnectionRoom {
    fn needed(&self) -> usize {
        let counted = [&self.base, &self.read, &self.open, &self.unwritten];
        counted.iter().map(|bytes| bytes.load(Relaxed)).fold(0, usize::saturating_add)
    }

    /// Takes or gives back room, so that it is what the connection needs now.
    fn settle(&self) -> Result<(), NoRoom> {
        self.settle_for(Reserve::Little).inspect_err(|NoRoom| self.record_refused())
    }

    /// Counts a refusal.
    pub(super) fn record_refused(&self) {
        self.room.refused.inc();
    }

    fn settle_for(&self, whose: Reserve) -> Result<(), NoRoom> {
        let (needed, has) = (self.needed(), self.bytes.load(Relaxed));
        if needed <= has && has - needed < SLACK_BYTES {
            Ok(())
        } else {
            self.room.change(self, whose)
        }
    }

    /// Sets what the connection takes from now on, because the head of an HTTP/1.1 request has begun. If that needs the
    /// reserve, [`ConnectionRoom::has_reserve`] is true. A refusal is not counted, since the caller retries for a while.
    ///
    /// # Errors
    /// There is no room for more than before; nothing has changed.
    pub(super) fn wake(&self, bytes: usize) -> Result<(), NoRoom> {
        let before = self.base.swap(bytes, Relaxed);
        self.settle_for(Reserve::Always).inspect_err(|NoRoom| self.base.store(before, Relaxed))
    }

    /// Sets what the connection takes from now on, whatever is sent. A refusal is not counted.
    ///
    /// # Errors
    /// There is no room for more than before; nothing has changed.
    pub(super) fn set_base(&self, bytes: usize) -> Result<(), NoRoom> {
        let before = self.base.swap(bytes, Relaxed);
        self.settle_for(Reserve::Little).inspect_err(|NoRoom| self.base.store(before, Relaxed))
    }

    /// Sets the bytes that were read and are kept from now on.
    ///
    /// # Errors
    /// There is no room for more than before; nothing has changed.
    pub(super) fn set_read(&self, bytes: usize) -> Result<(), NoRoom> {
        let before = self.read.swap(bytes, Relaxed);
        if bytes == before {
            return Ok(());
        }
        self.settle().inspect_err(|NoRoom| self.read.store(before, Relaxed))
    }

    /// Takes `bytes` until the returned value is dropped.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Result<HeldMemory, NoRoom> {
        let held = self.hold_for(bytes, Reserve::Little);
        held.inspect_err(|NoRoom| self.record_refused())
    }

    fn hold_for(self: &Arc<Self>, bytes: usize, whose: Reserve) -> Result<HeldMemory, NoRoom> {
        self.open.fetch_add(bytes, Relaxed);
        let held = HeldMemory { share: self.clone(), bytes, is_unwritten_after: false };
        self.settle_for(whose)?;
        Ok(held)
    }

    /// Takes room for an answer until what this returns is dropped. A large answer counts as [`ANSWER_SHARE`] of the
    /// budget at the most, so that it can be sent at all.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn hold_answer(self: &Arc<Self>, bytes: usize) -> Result<HeldMemory, NoRoom> {
        // A proxy has a thousand connections and more. A request that found room there gets its answer if that is short.
        let is_of_proxy = self.client.is_none() && bytes <= LITTLE_BYTES;
        let whose = if is_of_proxy { Reserve::Always } else { Reserve::Little };
        let held = self.hold_for(bytes.min(self.room.bytes_max / ANSWER_SHARE), whose);
        held.inspect_err(|NoRoom| self.record_refused())
    }

    /// Takes room for a piece of an answer that is read while it is sent. A refusal is not counted, since the caller tries
    /// again.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn hold_piece(self: &Arc<Self>, bytes: usize) -> Result<HeldMemory, NoRoom> {
        self.hold_for(bytes, Reserve::Piece)
    }

    /// Counts `bytes` that are there already, until what this returns is dropped.
    pub(super) fn hold_made(self: &Arc<Self>, bytes: usize) -> HeldMemory {
        let mut held = HeldMemory { share: self.clone(), bytes: 0, is_unwritten_after: false };
        held.resize(bytes);
        held
    }

    /// All that was given to the HTTP library is written.
    pub(super) fn record_written(&self) {
        if self.unwritten.load(Relaxed) > 0 {
            self.unwritten.store(0, Relaxed);
            // Less is never refused.
            let _ = self.settle();
        }
    }

    /// The connection keeps nothing but `base`, until it reads again.
    pub(super) fn rest(&self, base: usize) {
        for counted in [&self.read, &self.unwritten] {
            counted.store(0, Relaxed);
        }
        self.base.store(base, Relaxed);
        self.is_tight.store(false, Relaxed);
        self.has_reserve.store(false, Relaxed);
        // Less is never refused.
        let _ = self.room.change(self, Reserve::Little);
    }

    /// Asks that the connection keeps nothing as soon as it waits for a request.
    pub(super) fn press(&self) {
        self.is_tight.store(true, Relaxed);
    }

    pub(super) fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }

    /// Whether it has taken a part of the reserve, and so may not wait for the rest of a head.
    pub(super) fn has_reserve(&self) -> bool {
        self.has_reserve.load(Relaxed)
    }
}

impl Drop for ConnectionRoom {
    fn drop(&mut self) {
        for counted in [&self.base, &self.read, &self.open, &self.unwritten] {
            counted.store(0, Relaxed);
        }
        let _ = self.room.clone().change(self, Reserve::Little);
    }
}

impl HeldMemory {
    /// Holds this many bytes from now on, even if there is no room for more: they are there already.
    pub(super) fn resize(&mut self, bytes: usize) {
        self.share.open.fetch_add(bytes, Relaxed);
        self.share.open.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Relaxed);
        let _ = self.share.settle_for(Reserve::Little);
    }

    /// For an answer that the HTTP library may still have when this is dropped: it counts until all is written.
    pub(super) fn until_written(mut self) -> HeldMemory {
        self.is_unwritten_after = true;
        self
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if self.is_unwritten_after {
            self.share.unwritten.fetch_add(self.bytes, Relaxed);
        }
        self.share.open.fetch_sub(self.bytes, Relaxed);
        // Less is never refused.
        let _ = self.share.settle_for(Reserve::Little);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 16 << 20;

    fn room() -> Arc<Room> {
        let refused = prometheus::IntCounter::new("refused", "refused").expect("a name");
        let gauge = prometheus::IntGauge::new("taken", "taken").expect("a name");
        Room::new(BYTES_MAX, gauge, refused)
    }

    fn client(number: u32) -> Option<ClientKey> {
        Some(ClientKey::Ipv4(number))
    }

    /// Opens connections until there is no room for one more.
    fn fill(room: &Arc<Room>, client: Option<ClientKey>) -> Vec<Arc<ConnectionRoom>> {
        let open = || {
            let share = room.share(client);
            share.wake(HTTP1_BYTES).ok()?;
            Some(share)
        };
        std::iter::from_fn(open).take(BYTES_MAX).collect()
    }

    fn taken(room: &Room) -> usize {
        room.taken.lock().expect("no panic").bytes
    }

    #[test]
    fn one_client_leaves_as_much_as_it_takes() {
        let room = room();
        let first = fill(&room, client(1));
        assert!(taken(&room).abs_diff(BYTES_MAX * 3 / 8) < 2 * HTTP1_BYTES, "{}", taken(&room));
        assert_eq!(room.share(client(2)).wake(HTTP1_BYTES), Ok(()));
        assert!(room.take_pressed() && first.last().expect("some").is_tight());
        assert!(!first[0].is_tight());
        drop(first);
        assert_eq!(taken(&room), 0);
        assert!(room.taken.lock().expect("no panic").per_client.is_empty());
    }

    #[test]
    fn pieces_of_answers_leave_room_for_requests() {
        for clients in [(1..2_000).map(client).collect(), vec![None; 2_000]] {
            let room = room();
            let answers = clients.into_iter().map(|client| {
                let share = room.share(client);
                (share.wake(HTTP1_BYTES).is_ok()).then(|| share.hold_piece(16 << 10))?.ok()
            });
            let answers: Vec<HeldMemory> = answers.map_while(|held| held).collect();
            assert!(taken(&room).abs_diff(BYTES_MAX * 7 / 8) < 2 * HTTP1_BYTES, "{}", taken(&room));
            assert_eq!(room.share(client(5_000)).wake(HTTP1_BYTES), Ok(()));
            drop(answers);
            assert_eq!(taken(&room), 0);
        }
    }

    #[test]
    fn a_newcomer_finds_room_beside_many_who_take_much() {
        let room = room();
        let _all: Vec<_> = (0..30).map(|it| fill(&room, client(it))).collect();
        assert_eq!(room.share(client(99)).wake(HTTP1_BYTES), Ok(()));
    }

    #[test]
    fn a_proxy_may_take_all_and_no_more() {
        let room = room();
        let all = fill(&room, None);
        assert!(taken(&room) <= BYTES_MAX && taken(&room) > BYTES_MAX - HTTP1_BYTES);
        assert!(!all[0].has_reserve() && all.last().expect("some").has_reserve());
        // The reserve is for requests that come at once.
        assert_eq!(all[0].set_read(HTTP1_BYTES), Err(NoRoom));
        assert_eq!(room.share(None).set_base(HTTP2_BYTES), Err(NoRoom));
        assert!(all[0].hold(HTTP1_BYTES).is_err());
        assert!(all[0].hold_answer(HTTP1_BYTES).is_err());
        all.last().expect("some").rest(0);
        assert_eq!(room.share(None).wake(HTTP1_BYTES), Ok(()));
    }

    #[test]
    fn a_short_answer_through_a_proxy_may_have_of_the_reserve() {
        let room = room();
        let _much = room.share(None).hold(BYTES_MAX * 3 / 4).expect("room");
        assert!(room.share(None).hold(HTTP1_BYTES).is_err());
        assert!(room.share(None).hold_answer(2 * LITTLE_BYTES).is_err());
        assert!(room.share(None).hold_answer(HTTP1_BYTES).is_ok());
    }

    #[test]
    fn what_is_refused_is_not_counted() {
        let room = room();
        let share = room.share(None);
        assert!(share.hold(BYTES_MAX + 1).is_err());
        assert_eq!(share.set_read(BYTES_MAX + 1), Err(NoRoom));
        assert_eq!(share.needed(), 0);
        let held = share.hold(BYTES_MAX * 3 / 4).expect("room");
        assert_eq!(share.set_base(1), Err(NoRoom));
        drop(held);
        assert_eq!(taken(&room), 0);
    }

    #[test]
    fn an_answer_counts_until_it_is_written() {
        let room = room();
        let share = room.share(None);
        drop(share.hold(100_000).expect("room").until_written());
        assert!(taken(&room) >= 100_000);
        share.record_written();
        assert_eq!(taken(&room), 0);
    }
}
