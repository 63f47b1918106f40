//! The bytes of one answer while they are written, from the start to the end.

use std::mem;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Bytes so far, and room behind them that has been written before: it is not cleared again for each
/// record, which would cost as much as the record itself.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    bytes: Vec<u8>,
    /// Where the room begins.
    end: usize,
}

impl Sheet {
    /// A sheet for about so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Sheet {
        if bytes >= LARGE_BYTES {
            return Sheet { bytes: large(bytes), end: 0 };
        }
        let mut sheet = Sheet { bytes: Vec::with_capacity(bytes), end: 0 };
        sheet.room(bytes.min(128));
        sheet
    }

    /// Appends `bytes`.
    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Room for at least so many bytes behind the end; what it holds has no meaning. Whoever writes from its
    /// start on says how much with [`Sheet::written`].
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

    /// Moves the end behind the first `bytes` of its room.
    #[inline]
    pub(crate) fn written(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.bytes.len(), "more was written than there was room");
    }

    /// Takes back the last byte, if there is one.
    pub(crate) fn pop(&mut self) {
        self.end = self.end.saturating_sub(1);
    }

    /// Begins again at the start.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// The bytes so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// The bytes.
    pub(crate) fn finish(mut self) -> Bytes {
        if self.bytes.len() >= LARGE_BYTES {
            return Bytes::from_owner(Large(self));
        }
        self.bytes.truncate(self.end);
        self.bytes.into()
    }
}

/// From here on a sheet is used again once its answer has been sent. Getting so much memory from the system,
/// and clearing it, costs an eighth of what writing the answer does.
const LARGE_BYTES: usize = 64 << 10;

/// Larger sheets than this are not kept: no answer of a server with the usual settings has as much.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// How many sheets are kept.
const KEPT_MAX: usize = 8;

/// Sheets that are not in use, all of them room; those that were used last at the end.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Room for so many bytes: what is left in the processor's caches from its last use, or a new one.
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

/// A large sheet that is being sent.
struct Large(Sheet);

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Drop for Large {
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

    /// A sheet of so many bytes, all of them `byte`.
    fn sent(byte: u8, bytes: usize) -> Bytes {
        let mut sheet = Sheet::with_capacity(bytes);
        sheet.push(&vec![byte; bytes]);
        sheet.finish()
    }

    #[test]
    fn what_is_being_sent_is_not_written_to() {
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
    fn a_sheet_grows_beyond_what_was_asked_for() {
        for asked in [0, 10, LARGE_BYTES] {
            let mut sheet = Sheet::with_capacity(asked);
            let piece = [7; 1000];
            for _ in 0..500 {
                sheet.push(&piece);
            }
            sheet.push(b"!");
            sheet.pop();
            let bytes = sheet.finish();
            assert_eq!(bytes.len(), 500_000);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
