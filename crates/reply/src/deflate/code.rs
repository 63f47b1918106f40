//! The code of lists: how many bits each literal, length and distance takes, and which (RFC 1951, 3.2.5 to 3.2.7).

use std::sync::LazyLock;

/// The number of bits for each byte, for the end of the block, and for each code of a size. They come from how often these
/// occur in the answers to the searches of `bench/run` over the real catalogue, and to its questions for one package, counted
/// ten times.
#[rustfmt::skip]
const LENGTHS: [u8; 286] = [
    13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13,
    6, 13, 4, 13, 13, 13, 13, 13, 10, 10, 13, 10, 6, 6, 6, 7, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 13, 13, 9, 10, 13,
    13, 10, 9, 10, 8, 11, 10, 10, 12, 9, 12, 11, 8, 9, 9, 9, 8, 13, 9, 9, 10, 9, 10, 12, 12, 13, 13, 8, 13, 8, 13, 12,
    13, 5, 7, 6, 6, 4, 7, 6, 7, 5, 9, 8, 5, 6, 5, 5, 6, 10, 5, 5, 5, 6, 7, 8, 9, 7, 9, 10, 13, 8, 11, 13,
    13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13,
    13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13,
    13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13,
    13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13,
    11,
    13, 10, 10, 8, 7, 9, 10, 9, 7, 8, 6, 7, 6, 8, 9, 9, 8, 8, 9, 9, 9, 9, 10, 12, 12, 12, 10, 12, 12,
];

/// How many bits each code of a distance takes.
const DISTANCES: [u8; 30] = [
    13, 13, 13, 13, 13, 13, 13, 13, 11, 11, 9, 5, 5, 8, 6, 7, 3, 1, 6, 4, 5, 5, 5, 6, 5, 6, 6, 7,
    6, 7,
];

/// How many bits each length takes in the head, and the repetition of a length.
const HEAD_LENGTHS: [u8; 19] = [0, 7, 0, 7, 6, 3, 3, 4, 4, 3, 3, 5, 4, 3, 0, 0, 3, 0, 0];

/// The first size of each length code, and how many bits follow it.
#[rustfmt::skip]
const SIZES: [(u16, u8); 29] = [
    (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 1), (13, 1), (15, 1), (17, 1), (19, 2), (23, 2), (27, 2),
    (31, 2), (35, 3), (43, 3), (51, 3), (59, 3), (67, 4), (83, 4), (99, 4), (115, 4), (131, 5), (163, 5), (195, 5), (227, 5), (258, 0),
];

/// The symbol that ends a block.
const END: usize = 256;

/// The order in which a block's head has the lengths of the code for lengths.
const HEAD_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// How symbols are written.
pub(super) struct Code {
    /// The start of a stream with one block: bits, and how many.
    pub(super) head: Vec<(u32, u8)>,
    /// For each byte, the number of bits and the bits.
    pub(super) literals: [[u16; 2]; 256],
    /// For each size of a match from 3 on, the bits and their number.
    pub(super) sizes: [(u32, u8); 256],
    /// For each code of a distance, its bits and their number.
    distances: [(u16, u8); 30],
    /// The bits that end the block, and their number.
    pub(super) end: u16,
    pub(super) end_bits: u8,
}

/// The code for lists of packages.
pub(super) fn for_lists() -> &'static Code {
    static CODE: LazyLock<Code> = LazyLock::new(|| Code::of(&LENGTHS, &DISTANCES));
    &CODE
}

impl Code {
    fn of(lengths: &[u8; 286], distances: &[u8; 30]) -> Code {
        let symbols = canonical(lengths);
        let of_size = |size: u16| {
            let at = SIZES.partition_point(|&(first, _)| first <= size) - 1;
            let (first, extra) = SIZES[at];
            let bits = lengths[END + 1 + at];
            let value = u32::from(symbols[END + 1 + at]) | u32::from(size - first) << bits;
            (value, bits + extra)
        };
        let far = canonical(distances);
        Code {
            head: head(lengths, distances),
            literals: std::array::from_fn(|at| [lengths[at].into(), symbols[at]]),
            sizes: std::array::from_fn(|at| of_size(at as u16 + 3)),
            distances: std::array::from_fn(|at| (far[at], distances[at])),
            end: symbols[END],
            end_bits: lengths[END],
        }
    }

    /// The bits of a distance, and their number.
    #[inline(always)]
    pub(super) fn distance(&self, distance: usize) -> (u64, u32) {
        // Two codes for each power of two; the first four have no further bits.
        let distance = distance as u32 - 1;
        let extra = (distance | 2).ilog2() - 1;
        let at = 2 * extra + (distance >> extra);
        let (value, bits) = self.distances[at as usize % 30];
        let rest = u64::from(distance & ((1 << extra) - 1));
        (u64::from(value) | rest << bits, u32::from(bits) + extra)
    }
}

/// The symbols of a code with these lengths, each with its first bit lowest.
fn canonical(lengths: &[u8]) -> Vec<u16> {
    let mut symbols = vec![0; lengths.len()];
    let mut next = 0_u16;
    for bits in 1..=15 {
        next <<= 1;
        for (symbol, _) in symbols.iter_mut().zip(lengths).filter(|(_, length)| **length == bits) {
            *symbol = next.reverse_bits() >> (16 - bits);
            next += 1;
        }
    }
    symbols
}

/// The head of the only block of a stream: the lengths of both codes, which are themselves written in a code.
fn head(lengths: &[u8; 286], distances: &[u8; 30]) -> Vec<(u32, u8)> {
    /// The length of the code before, three to six times more.
    const AGAIN: u8 = 16;

    let symbols = canonical(&HEAD_LENGTHS);
    // The last block; with its own code; the numbers of lengths, distances and lengths of lengths, each minus the smallest one.
    let mut head = vec![(1, 1), (2, 2), (286 - 257, 5), (30 - 1, 5), (19 - 4, 4)];
    head.extend(HEAD_ORDER.map(|at| (HEAD_LENGTHS[at].into(), 3)));
    let all = [&lengths[..], distances].concat();
    for run in all.chunk_by(|one, other| one == other) {
        // A length is written before it can be repeated, and is repeated three to six times at once.
        let mut left = run.len();
        while left > 0 {
            let again = if left < run.len() && left >= 3 { left.min(6) } else { 0 };
            let at = usize::from(if again > 0 { AGAIN } else { run[0] });
            head.push((symbols[at].into(), HEAD_LENGTHS[at]));
            if again > 0 {
                head.push((again as u32 - 3, 2));
            }
            left -= again.max(1);
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoders refuse a code that leaves symbols out, and the encoder writes four literals at once.
    #[test]
    fn codes_are_complete_and_short() {
        for lengths in [&LENGTHS[..], &DISTANCES, &HEAD_LENGTHS] {
            let used = lengths.iter().filter(|&&bits| bits > 0);
            assert_eq!(used.map(|&bits| 1 << (15 - bits)).sum::<u32>(), 1 << 15);
        }
        assert!(LENGTHS.iter().chain(&DISTANCES).all(|bits| (1..=14).contains(bits)));
        assert!(HEAD_LENGTHS.iter().all(|&bits| bits <= 7));
    }
}
