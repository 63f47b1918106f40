//! Bodies that are read while they are sent, in pieces for which there is memory.
//!
//! A handler adds [`Pieces`] to a response whose body reads a file or asks another machine. Before each piece, [`PieceReader`]
//! takes room for it, and says how large it may be. The first one is small, because hyper asks for it whether or not the
//! client takes anything; each further one is larger, unless memory is short. Bytes are kept with their room ([`keep`]), so
//! they count until the last of them is dropped, wherever the HTTP library has them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::room::{ConnectionRoom, HeldMemory, NoRoom};

/// The largest piece, the first one, and the smallest.
const PIECE_BYTES_MAX: usize = 256 << 10;
const FIRST_PIECE_BYTES: usize = 16 << 10;
const PIECE_BYTES_MIN: usize = 4 << 10;

/// How long a piece waits for room, and how often it tries. Clients that take nothing are cut off sooner.
const ROOM_PATIENCE: Duration = Duration::from_secs(60);
const ROOM_INTERVAL: Duration = Duration::from_millis(25);

/// An extension of a response: its body is read in pieces while it is sent, and asks here how much it may read.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    next_bytes: Arc<AtomicUsize>,
    beside_bytes: usize,
}

impl Pieces {
    /// A body that keeps this many bytes besides the piece that it reads, as long as it is there.
    pub fn beside(bytes: usize) -> Pieces {
        Pieces { beside_bytes: bytes, ..Pieces::default() }
    }

    /// The most that may be read next; to be asked when the body is polled.
    pub fn next_bytes(&self) -> usize {
        self.next_bytes.load(Relaxed).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }
}

/// The room of a body that is read in pieces.
#[derive(Debug)]
pub(super) struct PieceReader {
    pieces: Pieces,
    share: Arc<ConnectionRoom>,
    /// How large the next piece may be if there is room.
    wanted_bytes: usize,
    /// What the library keeps with each piece.
    more_bytes: usize,
    /// Room for the piece that is being read.
    held: Option<HeldMemory>,
    _beside: HeldMemory,
    waits: Option<(Pin<Box<Sleep>>, Instant)>,
}

impl PieceReader {
    /// Takes room for what the body keeps, and for its first piece. The library keeps `more_bytes` with each piece.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn begin(
        pieces: Pieces,
        more_bytes: usize,
        share: &Arc<ConnectionRoom>,
    ) -> Result<PieceReader, NoRoom> {
        let mut this = PieceReader {
            _beside: share.hold_answer(pieces.beside_bytes)?,
            pieces,
            share: share.clone(),
            wanted_bytes: FIRST_PIECE_BYTES,
            more_bytes,
            held: None,
            waits: None,
        };
        if this.takes_room() {
            return Ok(this);
        }
        this.share.record_refused();
        Err(NoRoom)
    }

    fn takes_room(&mut self) -> bool {
        let mut bytes = self.wanted_bytes;
        loop {
            if let Ok(held) = self.share.hold_piece(bytes + self.more_bytes) {
                self.held = Some(held);
                self.pieces.next_bytes.store(bytes, Relaxed);
                self.wanted_bytes = (2 * bytes).min(PIECE_BYTES_MAX);
                return true;
            }
            if bytes <= PIECE_BYTES_MIN {
                return false;
            }
            bytes /= 2;
        }
    }

    /// Waits for room for the next piece.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.is_none() {
            if let Some((sleep, _)) = &mut self.waits {
                ready!(sleep.as_mut().poll(cx));
            }
            if self.takes_room() {
                self.waits = None;
                break;
            }
            let now = Instant::now();
            let (sleep, began_at) = self
                .waits
                .get_or_insert_with(|| (Box::pin(tokio::time::sleep(ROOM_INTERVAL)), now));
            if now.duration_since(*began_at) >= ROOM_PATIENCE {
                self.share.record_refused();
                let text = "there was no memory for the next piece of an answer";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
            sleep.as_mut().reset(now + ROOM_INTERVAL);
        }
        Poll::Ready(Ok(()))
    }

    /// The piece, which keeps its room.
    pub(super) fn read(&mut self, piece: Bytes) -> Bytes {
        let Some(mut held) = self.held.take() else { return piece };
        held.resize(piece.len() + self.more_bytes);
        keep(piece, held)
    }
}

/// Bytes, and what is to be dropped with the last of them.
struct OwnedBytes<T> {
    bytes: Bytes,
    _with: T,
}

impl<T> AsRef<[u8]> for OwnedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, at the same place; `with` is dropped with the last of them.
pub(super) fn keep(bytes: Bytes, with: impl Send + 'static) -> Bytes {
    Bytes::from_owner(OwnedBytes { bytes, _with: with })
}
