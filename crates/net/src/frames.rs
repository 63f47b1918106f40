//! What the library keeps of HTTP/2 frames that were read: parts of frames, header blocks, and data.
//!
//! bytes as they come -> [`Frames::take`] -> counts. It follows the lengths of frames and checks nothing else; the library
//! reports invalid frames.

/// The client's first bytes, before its first frame.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length, type, flags and stream of a frame.
const HEADER_BYTES: usize = 9;

/// Memory that the library needs for each piece of data, besides its bytes.
pub(super) const PIECE_BYTES: u64 = 256;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The frames of one connection.
#[derive(Debug, Default)]
pub(super) struct Frames {
    preface_bytes: usize,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes left of the payload that is being read.
    payload_left: usize,
    payload_read: usize,
    /// Bytes of the header block that has not ended.
    open_block_bytes: usize,
    /// Bytes of header blocks that have ended since the last call of `take_block_bytes`.
    block_bytes: usize,
    data_bytes: u64,
    data_pieces: u64,
}

impl Frames {
    /// Takes note of further bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        let preface = bytes.len().min(PREFACE.len() - self.preface_bytes);
        self.preface_bytes += preface;
        bytes = &bytes[preface..];
        while !bytes.is_empty() {
            if self.header_bytes < HEADER_BYTES {
                let more = bytes.len().min(HEADER_BYTES - self.header_bytes);
                self.header[self.header_bytes..][..more].copy_from_slice(&bytes[..more]);
                self.header_bytes += more;
                bytes = &bytes[more..];
                if self.header_bytes < HEADER_BYTES {
                    return;
                }
                let [first, second, third, ..] = self.header;
                self.payload_left = u32::from_be_bytes([0, first, second, third]) as usize;
                self.payload_read = 0;
            }
            let more = bytes.len().min(self.payload_left);
            self.payload_left -= more;
            self.payload_read += more;
            bytes = &bytes[more..];
            if self.payload_left == 0 {
                self.end_frame();
            }
        }
    }

    fn end_frame(&mut self) {
        let bytes = self.payload_read;
        match self.header[3] {
            DATA => {
                self.data_bytes += bytes as u64;
                self.data_pieces += 1;
            }
            HEADERS | CONTINUATION => {
                self.open_block_bytes += bytes + HEADER_BYTES;
                if self.header[4] & END_HEADERS != 0 {
                    self.block_bytes += std::mem::take(&mut self.open_block_bytes);
                }
            }
            _ => {}
        }
        (self.header_bytes, self.payload_read) = (0, 0);
    }

    /// Bytes of a frame that has not ended.
    pub(super) fn partial_bytes(&self) -> usize {
        self.payload_read
    }

    /// Bytes of a header block that has not ended.
    pub(super) fn open_block_bytes(&self) -> usize {
        self.open_block_bytes
    }

    /// Bytes of header blocks that have ended since the last call.
    pub(super) fn take_block_bytes(&mut self) -> usize {
        std::mem::take(&mut self.block_bytes)
    }

    /// Bytes and pieces of data so far.
    pub(super) fn data(&self) -> (u64, u64) {
        (self.data_bytes, self.data_pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0, (payload >> 8) as u8, payload as u8, kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER_BYTES + payload, 7);
        frame
    }

    /// Reads the frames in pieces of every size and compares the counts: bytes of a partial frame, of an open block, of whole
    /// blocks and of data, and pieces of data.
    #[track_caller]
    fn check(all: &[Vec<u8>], expected: (usize, usize, usize, u64, u64)) {
        let bytes = [PREFACE, &all.concat()].concat();
        for size in 1..=bytes.len() {
            let mut frames = Frames::default();
            bytes.chunks(size).for_each(|piece| frames.take(piece));
            let (bytes, pieces) = frames.data();
            let block = frames.take_block_bytes();
            let found = (frames.partial_bytes(), frames.open_block_bytes(), block, bytes, pieces);
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn frames_are_counted_by_what_is_kept_of_them() {
        check(&[], (0, 0, 0, 0, 0));
        check(&[frame(4, 0, 12), frame(HEADERS, END_HEADERS, 30)], (0, 0, 39, 0, 0));
        check(&[frame(HEADERS, 0, 30), frame(CONTINUATION, 0, 300)], (0, 348, 0, 0, 0));
        check(&[frame(HEADERS, 0, 30), frame(CONTINUATION, END_HEADERS, 300)], (0, 0, 348, 0, 0));
        check(&[frame(DATA, 0, 0), frame(DATA, 1, 500)], (0, 0, 0, 500, 2));
        check(&[frame(DATA, 0, 20), frame(DATA, 0, 500)[..400].to_vec()], (391, 0, 0, 20, 1));
    }
}
