//! A gzip encoder for bodies whose maker knows where they repeat themselves.
//!
//! A general encoder spends most of its time on searching for repetitions. A list of records repeats its keys, and often the
//! start of a value, at places that are known when the list is written: an [`Outline`] names them. The encoder compares the
//! text there, looks for more only where such a repetition ends, and writes with a [`Code`] that was made beforehand for such
//! lists. It takes a third of the time of libdeflate at its fastest, for a body that is a quarter longer.

mod code;

use libdeflater::Crc;

use self::code::Code;

/// The places where a body probably repeats earlier text. A wrong place costs some size, but the body stays right.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    places: Vec<MatchPlace>,
    /// The last place.
    end: usize,
}

/// A place in a body.
#[derive(Clone, Copy, Debug)]
struct MatchPlace {
    /// The bytes since the place before.
    gap: u16,
    /// How far back the same text is; 0 if it is nowhere.
    distance: u16,
}

impl Outline {
    /// An outline with room for this many places.
    pub fn with_capacity(places: usize) -> Outline {
        Outline { places: Vec::with_capacity(places), end: 0 }
    }

    /// Notes that the text from `at` on probably begins like that from `earlier` on. Call it in ascending order; other places,
    /// and those too far from the earlier text, are left out.
    #[inline]
    pub fn note(&mut self, at: usize, earlier: usize) {
        let distance = at.saturating_sub(earlier);
        if at < self.end || distance == 0 || distance > DISTANCE_MAX {
            return;
        }
        while at - self.end > usize::from(u16::MAX) {
            self.places.push(MatchPlace { gap: u16::MAX, distance: 0 });
            self.end += usize::from(u16::MAX);
        }
        self.places.push(MatchPlace { gap: (at - self.end) as u16, distance: distance as u16 });
        self.end = at;
    }
}

/// The farthest that a match may be. Deflate allows one byte more.
const DISTANCE_MAX: usize = (1 << 15) - 1;

/// A shorter match takes as many bits as the bytes themselves.
const MATCH_MIN: usize = 4;

/// Like [`MATCH_MIN`], for matches that no outline announced: they are rarely near.
const FOUND_MIN: usize = 6;

/// The longest match of deflate, and its shortest.
const MATCH_BYTES_MAX: usize = 258;
const MATCH_BYTES_MIN: usize = 3;

/// RFC 1952: deflate, no flags, no time, made by the fastest way, on an unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// `body` as gzip.
pub(crate) fn gzip(body: &[u8], outline: &Outline) -> Vec<u8> {
    let code = code::for_lists();
    // A list becomes a sixth of its size.
    let mut bits = Bits::with_room(body.len() / 4 + 512);
    bits.bytes(&HEAD);
    for &(value, count) in &code.head {
        bits.push(value.into(), count.into());
        bits.flush();
    }
    let mut recent = RecentMatches::for_places(outline.places.len());
    // How much of the body is encoded, the place to look at, and the distance of the last match.
    let (mut done, mut place, mut last) = (0, 0, 0);
    for &MatchPlace { gap, distance } in &outline.places {
        place += usize::from(gap);
        let distance = usize::from(distance);
        // If the last match has passed the place, it may go on with another distance.
        let at = place.max(done);
        if distance == 0 || (at > place && distance == last) || distance > at {
            continue;
        }
        let size = repeated(body, at, distance);
        if size < MATCH_MIN {
            continue;
        }
        bits.literals(code, &body[done..at]);
        bits.repeat(code, size, distance);
        (done, last) = (at + size, distance);
        while let Some(distance) = recent.distance(body, done) {
            let size = repeated(body, done, distance);
            if size < FOUND_MIN {
                break;
            }
            bits.repeat(code, size, distance);
            (done, last) = (done + size, distance);
        }
    }
    bits.literals(code, body.get(done..).unwrap_or_default());
    bits.push(code.end.into(), code.end_bits.into());
    let mut out = bits.finish();
    let mut crc = Crc::new();
    crc.update(body);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    // RFC 1952 has the size modulo 2^32.
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out
}

/// Where matches have ended, by the text that follows. It depends only on the body, so that a body is always encoded alike.
struct RecentMatches {
    /// The lower half of the position, or nothing at all for a body without places.
    positions: Vec<u16>,
}

impl RecentMatches {
    const BITS: u32 = 12;

    fn for_places(count: usize) -> RecentMatches {
        RecentMatches { positions: vec![0; if count == 0 { 0 } else { 1 << RecentMatches::BITS }] }
    }

    /// How far back probably the same text is as from `at` on. Remembers `at`.
    #[inline(always)]
    fn distance(&mut self, body: &[u8], at: usize) -> Option<usize> {
        let word = u64::from_le_bytes(*body.get(at..)?.first_chunk()?);
        // The hash is of the first `FOUND_MIN` bytes.
        let hash = (word << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RecentMatches::BITS);
        let position = self.positions.get_mut(hash as usize)?;
        let distance = usize::from((at as u16).wrapping_sub(*position));
        *position = at as u16;
        (distance > 0 && distance <= DISTANCE_MAX.min(at)).then_some(distance)
    }
}

/// The number of bytes from `at` on that equal those `distance` before them.
#[inline(always)]
fn repeated(body: &[u8], at: usize, distance: usize) -> usize {
    let Some((now, before)) = body.get(at..).zip(body.get(at - distance..)) else { return 0 };
    let mut size = 0;
    loop {
        let words = now.get(size..).and_then(<[u8]>::first_chunk::<8>);
        let words = words.zip(before.get(size..).and_then(<[u8]>::first_chunk::<8>));
        let Some((now, before)) = words else { break };
        let differ = u64::from_le_bytes(*now) ^ u64::from_le_bytes(*before);
        if differ != 0 {
            return size + differ.trailing_zeros() as usize / 8;
        }
        size += 8;
    }
    size + now[size..].iter().zip(&before[size..]).take_while(|(now, before)| now == before).count()
}

/// Bits that are written, from the lowest of each byte on.
struct Bits {
    out: Vec<u8>,
    /// The end of the complete bytes.
    at: usize,
    /// The bits after these, and their number.
    pending: u64,
    count: u32,
}

impl Bits {
    fn with_room(bytes: usize) -> Bits {
        Bits { out: vec![0; bytes], at: 0, pending: 0, count: 0 }
    }

    /// Room for this many literals and one match more.
    #[inline(always)]
    fn ensure(&mut self, literals: usize) {
        /// The bytes of a flush, and those of a match.
        const SPARE: usize = 32;
        let wanted = self.at + 2 * literals + SPARE;
        if self.out.len() < wanted {
            self.grow(wanted);
        }
    }

    #[inline(never)]
    fn grow(&mut self, wanted: usize) {
        self.out.resize(wanted.max(2 * self.out.len()), 0);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Adds bits. At most 56 fit between two calls of [`Bits::flush`].
    #[inline(always)]
    fn push(&mut self, value: u64, count: u32) {
        self.pending |= value << self.count;
        self.count += count;
    }

    /// Writes the complete bytes.
    #[inline(always)]
    fn flush(&mut self) {
        if let Some(room) = self.out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *room = self.pending.to_le_bytes();
        }
        self.at += (self.count / 8) as usize;
        self.pending >>= self.count & !7;
        self.count &= 7;
    }

    #[inline(always)]
    fn literals(&mut self, code: &Code, bytes: &[u8]) {
        self.ensure(bytes.len());
        // Four times the longest code fits.
        let (fours, rest) = bytes.as_chunks::<4>();
        for four in fours {
            for &byte in four {
                let [bits, value] = code.literals[usize::from(byte)];
                self.push(value.into(), bits.into());
            }
            self.flush();
        }
        for &byte in rest {
            let [bits, value] = code.literals[usize::from(byte)];
            self.push(value.into(), bits.into());
        }
        self.flush();
    }

    #[inline(always)]
    fn repeat(&mut self, code: &Code, size: usize, distance: usize) {
        let (far, far_bits) = code.distance(distance);
        let mut left = size;
        while left > 0 {
            // What is left is never too short for a match.
            let part = match left {
                0..=MATCH_BYTES_MAX => left,
                _ => MATCH_BYTES_MAX.min(left - MATCH_BYTES_MIN),
            };
            let (length, length_bits) = code.sizes[(part - MATCH_BYTES_MIN) & 0xff];
            self.ensure(0);
            self.push(length.into(), length_bits.into());
            self.push(far, far_bits);
            self.flush();
            left -= part;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.ensure(0);
        self.count = self.count.next_multiple_of(8);
        self.flush();
        self.out.truncate(self.at);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(body: &[u8], places: &[(usize, usize)]) -> usize {
        let mut outline = Outline::default();
        for &(at, earlier) in places {
            outline.note(at, earlier);
        }
        let encoded = gzip(body, &outline);
        assert_eq!(encoded, gzip(body, &outline), "the same body is encoded alike");
        let mut decoded = Vec::new();
        let mut decoder = flate2::bufread::GzDecoder::new(&encoded[..]);
        decoder.read_to_end(&mut decoded).expect("gzip");
        assert!(decoder.into_inner().is_empty(), "nothing follows");
        assert!(decoded == body, "{} bytes", body.len());
        encoded.len()
    }

    #[test]
    fn bodies_without_places() {
        for body in [&b""[..], b"x", b"{\"resultcount\":0}", &[0xff; 300]] {
            check(body, &[]);
        }
        let every: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        check(&every, &[]);
    }

    #[test]
    fn repetitions_of_every_size_and_distance() {
        for size in (4..1_100).chain([65_535, 65_536, 200_000]) {
            let body = [&b"abcdefg"[..], &b"x".repeat(size), b"!"].concat();
            assert!(check(&body, &[(8, 7)]) < 130 + size / 60, "{size}");
        }
        for distance in (1..600).chain((600..DISTANCE_MAX).step_by(97)).chain([DISTANCE_MAX]) {
            let text: Vec<u8> = (0..distance).map(|at| (at * at / 7) as u8).collect();
            let body = [&text[..], &text, &text].concat();
            check(&body, &[(distance, 0), (2 * distance, distance)]);
        }
    }

    #[test]
    fn places_far_apart_and_places_that_cannot_be() {
        let body = b"a line of a list, ".repeat(20_000);
        let end = body.len();
        let far = [(18, 0), (200_000, 200_000 - 18), (end - 3, end - 21), (end, end - 18)];
        assert!(check(&body, &far) < body.len() / 50);
        let wrong = [(5, 9), (5, 5), (usize::MAX, 0), (end + 9, end), (40_000, 0), (7, usize::MAX)];
        check(&body[..1_000], &wrong);
    }

    proptest! {
        /// Whatever places somebody names, the body is the same.
        #[test]
        fn decoded_bodies_are_the_same(
            parts in prop::collection::vec(("[a-c]{0,12}|\\PC{0,6}", 1..40_usize), 0..40),
            places in prop::collection::vec((0..4_000_usize, 0..4_000_usize), 0..200),
            in_order in any::<bool>(),
        ) {
            let body: String = parts.iter().map(|(text, times)| text.repeat(*times)).collect();
            let mut places = places;
            if in_order {
                places.sort_unstable();
            }
            check(body.as_bytes(), &places);
        }
    }
}
