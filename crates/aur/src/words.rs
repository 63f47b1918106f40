//! Functions on text, reading eight bytes at a time as one number with the first byte lowest.
//!
//! A *mark* is the highest bit of a byte in such a number.

/// Every byte is 1. Multiplied by a byte, this gives that byte eight times.
const ONES: u64 = u64::from_le_bytes([1; 8]);
/// Every mark is set.
const HIGHS: u64 = ONES << 7;

/// Marks the lowest byte that is less than `bound`, which is at most 0x80. Marks above that one may be wrong.
#[inline(always)]
fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGHS
}

/// Marks the first byte that ends the plain part of a JSON string: a quote, a backslash or a control character.
#[inline(always)]
pub(crate) fn string_ends(word: u64) -> u64 {
    // With this bit flipped, the quote comes right after the control characters.
    let turned = word ^ (ONES * 2);
    let backslash = word ^ (ONES * u64::from(b'\\'));
    below(turned, (b'"' ^ 2) + 1) | below(backslash, 1)
}

/// Marks the first quote.
#[inline(always)]
pub(crate) fn quotes(word: u64) -> u64 {
    below(word ^ (ONES * u64::from(b'"')), 1)
}

/// Marks the first of the signs that end a name in a relation: `<`, `=`, `>`.
#[inline(always)]
pub(crate) fn relation_signs(word: u64) -> u64 {
    below(word ^ (ONES * u64::from(b'<')), 3)
}

/// Marks the bytes that are not digits.
#[inline(always)]
pub(crate) fn non_digits(word: u64) -> u64 {
    let word = word ^ (ONES * u64::from(b'0'));
    (((word & !HIGHS) + ONES * (0x80 - 10)) | word) & HIGHS
}

/// The name in an optional dependency, without the version condition and without the description that older dumps
/// have.
pub(crate) fn optional_name(relation: &[u8]) -> &[u8] {
    let name = &relation[..unmarked(relation, relation_signs)];
    let end = name.windows(2).position(|pair| pair == b": ");
    &name[..end.unwrap_or(name.len())]
}

/// The number of bytes before the first one that `marks` marks.
#[inline(always)]
pub(crate) fn unmarked(bytes: &[u8], marks: impl Fn(u64) -> u64) -> usize {
    let (pairs, rest) = bytes.as_chunks::<PAIR_BYTES>();
    for (at, whole) in pairs.iter().enumerate() {
        let place = first_marked(pair(whole), &marks);
        if place < PAIR_BYTES {
            return at * PAIR_BYTES + place;
        }
    }
    pairs.len() * PAIR_BYTES + first_marked(pair(rest), marks).min(rest.len())
}

/// Most texts fit into two numbers. Read together, they need no branch that could be predicted wrongly.
pub(crate) const PAIR_BYTES: usize = 16;

/// The position of the first mark, or 16.
#[inline(always)]
fn first_marked((first, second): (u64, u64), marks: impl Fn(u64) -> u64) -> usize {
    let place = |marks: u64| marks.trailing_zeros() as usize / 8;
    let (first, second) = (marks(first), marks(second));
    if first != 0 { place(first) } else { 8 + place(second) }
}

/// The first sixteen bytes, padded with zeros.
#[inline(always)]
fn pair(bytes: &[u8]) -> (u64, u64) {
    match bytes.first_chunk::<PAIR_BYTES>() {
        Some(pair) => {
            let pair = u128::from_le_bytes(*pair);
            (pair as u64, (pair >> 64) as u64)
        }
        None => (padded(bytes), padded(bytes.get(8..).unwrap_or_default())),
    }
}

/// The first eight bytes, padded with zeros.
#[inline(always)]
fn padded(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    let size = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // The two reads may overlap: the same bytes then land in the same positions.
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (size - 4));
    }
    let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
    if size == 0 { 0 } else { byte(0) | byte(size / 2) | byte(size - 1) }
}

/// Turns ASCII letters into upper case; other bytes stay.
#[inline(always)]
fn upper(word: u64) -> u64 {
    // No byte carries into the next: all are below 0x80, and so are the addends.
    let low = word & !HIGHS;
    let from_a = low + ONES * u64::from(0x80 - b'a');
    let beyond_z = low + ONES * u64::from(0x80 - b'z' - 1);
    word ^ ((from_a & !beyond_z & !word & HIGHS) >> 2)
}

/// Appends the bytes before the first one that `marks` marks, with ASCII letters in upper case. Returns their number,
/// and whether all of them are certainly ASCII. It writes up to [`PAIR_BYTES`] more bytes and cuts them off again.
#[inline(always)]
pub(crate) fn append_upper(
    bytes: &[u8],
    marks: impl Fn(u64) -> u64,
    out: &mut Vec<u8>,
) -> (usize, bool) {
    let start = out.len();
    let mut seen = 0;
    let mut at = 0;
    let size = loop {
        let rest = &bytes[at..];
        let (first, second) = pair(rest);
        seen |= first | second;
        let pair = u128::from(upper(first)) | u128::from(upper(second)) << 64;
        out.extend_from_slice(&pair.to_le_bytes());
        let place = first_marked((first, second), &marks);
        if place < PAIR_BYTES || rest.len() <= PAIR_BYTES {
            break at + place.min(rest.len());
        }
        at += PAIR_BYTES;
    };
    // Cuts off the bytes after the mark.
    out.truncate(start + size);
    (size, seen & HIGHS == 0)
}

/// Calls `take` for each string of a list without escapes and white space, with the rest of the list from
/// the string's first character. `take` returns how many bytes of the string it has read.
#[inline(always)]
pub(crate) fn each_string<'a>(list: &'a [u8], mut take: impl FnMut(&'a [u8]) -> usize) {
    // Before each string come a bracket or comma and a quote; after the last one, a quote and a bracket.
    let mut rest = list.get(2..).unwrap_or_default();
    while !rest.is_empty() {
        let seen = take(rest);
        let end = seen + unmarked(&rest[seen..], quotes);
        rest = rest.get(end + 3..).unwrap_or_default();
    }
}

/// The string at the start of what [`each_string`] passes to `take`.
#[inline(always)]
pub(crate) fn string(rest: &[u8]) -> &[u8] {
    &rest[..unmarked(rest, quotes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place() {
        for size in 0..40 {
            for at in 0..size {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'1'; size];
                    text[at] = byte;
                    let check = |marks: fn(u64) -> u64, is_marked: bool| {
                        let place = if is_marked { at } else { size };
                        assert_eq!(unmarked(&text, marks), place, "{text:?}");
                        let mut upper = vec![b'-'];
                        assert_eq!(append_upper(&text, marks, &mut upper).0, place, "{text:?}");
                        assert_eq!(upper[1..], text[..place].to_ascii_uppercase(), "{text:?}");
                    };
                    check(|_| 0, false);
                    check(quotes, byte == b'"');
                    check(non_digits, !byte.is_ascii_digit());
                    check(relation_signs, matches!(byte, b'<' | b'=' | b'>'));
                    check(string_ends, matches!(byte, b'"' | b'\\' | 0..0x20));
                    let (_, is_ascii) = append_upper(&text, |_| 0, &mut Vec::new());
                    assert_eq!(is_ascii, byte.is_ascii(), "{text:?}");
                }
            }
        }
    }
}
