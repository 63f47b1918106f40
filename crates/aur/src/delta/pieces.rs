//! Cuts dumps into pieces, to compare them: a cut is where a record, or the part of it that often changes, begins or ends.
//!
//! The cuts decide only how small a delta is: a delta always makes the next dump, byte for byte.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// A record ends after this.
const RECORD_END: &[u8] = b"},";
/// The fields that change without a push follow this: votes, popularity, out of date, maintainer.
const BEFORE_VOTES: &[u8] = b"\"NumVotes\":";
const AFTER_MAINTAINER: &[u8] = b",\"Submitter\":";

const PIECE_BYTES_MIN: usize = 32;
const PIECE_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;

/// A dump with more pieces is not compared. A dump of today has 320,000, and each takes 20 bytes.
const PIECES_MAX: usize = 2_000_000;

/// Initial capacity: the pieces of today and a fifth more. Memory that is reserved and not written to costs nothing, but growth would
/// leave twice as much behind, at the very moment when a refresh takes most memory.
const PIECES: usize = 384 << 10;

/// Cuts the bytes of a reader into pieces.
pub(super) struct Cutter<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    is_over: bool,
}

impl<R: Read> Cutter<R> {
    pub(super) fn new(reader: R) -> Cutter<R> {
        Cutter { reader, buffer: Vec::with_capacity(BUFFER_BYTES), start: 0, is_over: false }
    }

    /// The next piece; `None` after the last one.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if !self.is_over && self.buffer.len() - self.start < PIECE_BYTES_MAX {
            self.buffer.drain(..self.start);
            self.start = 0;
            let room = (BUFFER_BYTES - self.buffer.len()) as u64;
            let read = self.reader.by_ref().take(room).read_to_end(&mut self.buffer)?;
            self.is_over = (read as u64) < room;
        }
        let rest = &self.buffer[self.start..];
        if rest.is_empty() {
            return Ok(None);
        }
        let length = piece_bytes(rest);
        self.start += length;
        Ok(Some(&self.buffer[self.start - length..self.start]))
    }
}

/// The length of the piece at the start of `rest`.
fn piece_bytes(rest: &[u8]) -> usize {
    let window = &rest[..rest.len().min(PIECE_BYTES_MAX)];
    let Some(searched) = window.get(PIECE_BYTES_MIN..) else { return window.len() };
    let find = |text: &[u8], marker| memchr::memmem::find(text, marker);
    let record_end = find(searched, RECORD_END).map(|at| at + RECORD_END.len());
    let searched = &searched[..record_end.unwrap_or(searched.len())];
    let ends = [
        record_end,
        find(searched, BEFORE_VOTES).map(|at| at + BEFORE_VOTES.len()),
        find(searched, AFTER_MAINTAINER),
    ];
    if let Some(end) = ends.into_iter().flatten().min() {
        return PIECE_BYTES_MIN + end;
    }
    let mut end = window.len();
    // Do not cut a character in two.
    while end > PIECE_BYTES_MIN && rest.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    end
}

/// Finds the pieces of a dump by their digests.
pub struct Index {
    /// SHA-256 of the dump.
    pub sha256: String,
    /// Strangers write parts of a dump, but do not know the key, so they cannot make two pieces with one digest. If two have one by
    /// accident, the delta makes another dump than the one that it names, and clients fetch that.
    key: RandomState,
    digests: Vec<u64>,
    starts: Vec<u64>,
    by_digest: Vec<u32>,
    bytes: u64,
}

impl Index {
    /// Reads a dump; `None` if it has too many pieces.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn read(content: impl Read) -> io::Result<Option<Index>> {
        let mut cutter = Cutter::new(content);
        let mut hasher = Sha256::new();
        let key = RandomState::new();
        let (mut digests, mut starts) = (Vec::with_capacity(PIECES), Vec::with_capacity(PIECES));
        let mut bytes = 0;
        while let Some(piece) = cutter.next()? {
            if digests.len() == PIECES_MAX {
                return Ok(None);
            }
            hasher.update(piece);
            digests.push(key.hash_one(piece));
            starts.push(bytes);
            bytes += piece.len() as u64;
        }
        let mut by_digest: Vec<u32> = (0..digests.len() as u32).collect();
        // Among equal pieces, the first one in the dump comes first.
        by_digest.sort_unstable_by_key(|&at| (digests[at as usize], at));
        let sha256 = hex::encode(hasher.finalize());
        Ok(Some(Index { sha256, key, digests, starts, by_digest, bytes }))
    }

    /// The digest by which a piece is found.
    pub(super) fn digest(&self, piece: &[u8]) -> u64 {
        self.key.hash_one(piece)
    }

    /// Whether the piece with this digest is at this place.
    pub(super) fn is_at(&self, place: usize, digest: u64) -> bool {
        self.digests.get(place) == Some(&digest)
    }

    /// The first place of the piece with this digest.
    pub(super) fn find(&self, digest: u64) -> Option<usize> {
        let there = |at: u32| self.digests[at as usize];
        let first = self.by_digest.partition_point(|&at| there(at) < digest);
        let at = *self.by_digest.get(first)?;
        (there(at) == digest).then_some(at as usize)
    }

    /// The bytes of the piece at this place.
    pub(super) fn range(&self, place: usize) -> std::ops::Range<u64> {
        let end = self.starts.get(place + 1).copied().unwrap_or(self.bytes);
        self.starts[place]..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<String> {
        let mut cutter = Cutter::new(text.as_bytes());
        let mut pieces = Vec::new();
        while let Some(piece) = cutter.next().expect("memory") {
            pieces.push(String::from_utf8(piece.to_vec()).expect("no character is cut"));
        }
        pieces
    }

    #[test]
    fn records_are_cut_where_they_change() {
        let [a, b, c] = [
            r#"{"ID":200001,"Name":"0ad","PackageBaseID":1,"NumVotes":"#,
            r#"0,"Popularity":0.0,"OutOfDate":null,"Maintainer":null"#,
            ",\"Submitter\":\"anna\",\"FirstSubmitted\":1,\"Keywords\":[]},",
        ];
        let start = format!("[\n{a}");
        let next = format!("\n{a}");
        let text = format!("[\n{a}{b}{c}\n{a}{b}{c}");
        assert_eq!(pieces(&text), [&start, b, c, &next, b, c]);
    }

    #[test]
    fn what_is_no_dump_is_cut_as_well() {
        for text in ["", "x", &"},".repeat(500_000), &"ä".repeat(400_000), &"x".repeat(700_000)] {
            assert_eq!(pieces(text).concat(), *text);
        }
        let long = format!("x{}", "ä".repeat(400_000));
        assert_eq!(pieces(&long).concat(), long);
    }
}
