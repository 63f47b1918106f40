//! [`Buffer`]: the buffer in which one answer is written.

use std::mem;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The bytes so far, followed by room that was initialized earlier. The room is not cleared again for each record,
/// which would cost as much as the record itself.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Where the bytes end and the room begins.
    end: usize,
}

impl Buffer {
    /// A buffer with room for about this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Buffer {
        if bytes >= LARGE_BYTES {
            return Buffer { bytes: large(bytes), end: 0 };
        }
        let mut buffer = Buffer { bytes: Vec::with_capacity(bytes), end: 0 };
        buffer.room(bytes.min(128));
        buffer
    }

    /// Appends `bytes`.
    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// At least this many bytes of room after the end, with arbitrary contents. The caller writes from the start of
    /// the room, and then reports the number of bytes with [`Buffer::written`].
    #[inline]
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < bytes {
            self.grow(bytes);
        }
        &mut self.bytes[self.end..]
    }

    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        self.bytes.resize(self.end + bytes, 0);
    }

    /// Adds the first `bytes` of the room to the bytes so far.
    #[inline]
    pub(crate) fn written(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.bytes.len(), "more was written than there was room");
    }

    /// Removes the last byte, if there is one.
    pub(crate) fn pop(&mut self) {
        self.end = self.end.saturating_sub(1);
    }

    /// Empties the buffer.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// The bytes so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// The bytes, for an answer. A large buffer returns to the pool once they have been sent.
    pub(crate) fn finish(mut self) -> Bytes {
        if self.bytes.len() >= LARGE_BYTES {
            return Bytes::from_owner(SentBuffer(self));
        }
        self.bytes.truncate(self.end);
        self.bytes.into()
    }
}

/// A buffer of this size or more is reused once its answer has been sent. Getting this much memory from the system and clearing
/// it costs an eighth of writing the answer.
const LARGE_BYTES: usize = 64 << 10;

/// Larger buffers are freed: with the usual settings no answer needs as much.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Most buffers in the pool.
const KEPT_MAX: usize = 8;

/// The pool: buffers that are not in use, entirely room. The most recently used are at the end.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Room for this many bytes: the most recently used buffer, as it may still be in the processor's caches, or a new
/// one.
fn large(bytes: usize) -> Vec<u8> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match kept.iter().rposition(|room| room.len() >= bytes) {
        Some(latest) => kept.remove(latest),
        None => {
            drop(kept);
            vec![0; bytes.next_power_of_two()]
        }
    }
}

/// A large buffer while it is sent.
struct SentBuffer(Buffer);

impl AsRef<[u8]> for SentBuffer {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Drop for SentBuffer {
    fn drop(&mut self) {
        let room = mem::take(&mut self.0.bytes);
        if room.len() <= KEPT_BYTES_MAX {
            let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == KEPT_MAX {
                kept.remove(0);
            }
            kept.push(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer of this many bytes, each of them `byte`.
    fn sent(byte: u8, bytes: usize) -> Bytes {
        let mut buffer = Buffer::with_capacity(bytes);
        buffer.push(&vec![byte; bytes]);
        buffer.finish()
    }

    #[test]
    fn a_buffer_is_not_used_again_while_it_is_sent() {
        let sizes = [100, LARGE_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES, KEPT_BYTES_MAX + 1];
        let mut sending: Vec<(u8, Bytes)> = Vec::new();
        for byte in 0..=u8::MAX {
            let bytes = sent(byte, sizes[byte as usize % sizes.len()]);
            sending.push((byte, bytes));
            if byte % 3 == 0 {
                sending.swap_remove(sending.len() / 2);
            }
            for (byte, bytes) in &sending {
                assert_eq!((bytes[0], bytes[bytes.len() - 1]), (*byte, *byte));
            }
        }
        for (byte, bytes) in sending {
            assert!(bytes.iter().all(|other| *other == byte), "{byte}");
        }
    }

    #[test]
    fn a_buffer_grows_beyond_its_initial_capacity() {
        for asked in [0, 10, LARGE_BYTES] {
            let mut buffer = Buffer::with_capacity(asked);
            let piece = [7; 1000];
            for _ in 0..500 {
                buffer.push(&piece);
            }
            buffer.push(b"!");
            buffer.pop();
            let bytes = buffer.finish();
            assert_eq!(bytes.len(), 500_000);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
