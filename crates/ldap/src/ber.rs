//! The basic encoding rules (X.690), as far as LDAP needs them: tags of one byte and definite lengths.
//!
//! A [`Reader`] goes through the elements of one level; the caller opens the next level. So no answer, however deeply it is
//! nested, makes this recurse.

/// Tag of a sequence.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Tag of an integer.
pub(crate) const INTEGER: u8 = 0x02;
/// Tag of a text or other bytes.
pub(crate) const OCTETS: u8 = 0x04;
/// Tag of a truth value.
pub(crate) const BOOLEAN: u8 = 0x01;
/// Tag of one of several numbered values.
pub(crate) const ENUMERATED: u8 = 0x0a;
/// Tag of a set.
pub(crate) const SET: u8 = 0x31;

/// Bytes that are not what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is malformed")]
pub(crate) struct Malformed;

/// An element with this content, in parts.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(length + 6);
    bytes.push(tag);
    if let Some(short) = u8::try_from(length).ok().filter(|length| *length < 0x80) {
        bytes.push(short);
    } else {
        let long = length.to_be_bytes();
        let zeros = long.iter().take_while(|byte| **byte == 0).count();
        bytes.push(0x80 | u8::try_from(long.len() - zeros).unwrap_or_default());
        bytes.extend_from_slice(&long[zeros..]);
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// A number that is not negative.
pub(crate) fn number(tag: u8, value: u32) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(3);
    // A first bit that is set would make it negative.
    let sign: &[u8] = if bytes[zeros] & 0x80 == 0 { &[] } else { &[0] };
    element(tag, &[sign, &bytes[zeros..]])
}

/// A text.
pub(crate) fn octets(bytes: &[u8]) -> Vec<u8> {
    element(OCTETS, &[bytes])
}

/// The length in the bytes after a tag, and how many bytes it takes; `None` if more bytes are needed.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    if first < 0x80 {
        return Ok(Some((usize::from(first), 1)));
    }
    let count = usize::from(first & 0x7f);
    // 0 would be an indefinite length, which LDAP does not have.
    if !(1..=4).contains(&count) {
        return Err(Malformed);
    }
    let Some(long) = bytes.get(1..=count) else { return Ok(None) };
    Ok(Some((long.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte)), 1 + count)))
}

/// The elements of one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'answer>(pub(crate) &'answer [u8]);

impl<'answer> Reader<'answer> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element: its tag and its content.
    pub(crate) fn next(&mut self) -> Result<(u8, &'answer [u8]), Malformed> {
        let (&tag, rest) = self.0.split_first().ok_or(Malformed)?;
        let (length, bytes) = length(rest)?.ok_or(Malformed)?;
        let content = rest.get(bytes..).and_then(|rest| rest.get(..length)).ok_or(Malformed)?;
        self.0 = &rest[bytes + length..];
        Ok((tag, content))
    }

    /// The content of the next element, which has this tag.
    pub(crate) fn content(&mut self, expected: u8) -> Result<&'answer [u8], Malformed> {
        let (tag, content) = self.next()?;
        if tag == expected { Ok(content) } else { Err(Malformed) }
    }

    /// The elements within the next element, which has this tag.
    pub(crate) fn within(&mut self, expected: u8) -> Result<Reader<'answer>, Malformed> {
        self.content(expected).map(Reader)
    }

    /// The next element, a number that is not negative.
    pub(crate) fn number(&mut self, expected: u8) -> Result<u32, Malformed> {
        let bytes = self.content(expected)?;
        let is_fit = matches!(bytes, [first, ..] if first & 0x80 == 0) && bytes.len() <= 5;
        let value = bytes.iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        u32::try_from(value).ok().filter(|_| is_fit).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let bytes = number(INTEGER, value);
            assert_eq!(Reader(&bytes).number(INTEGER), Ok(value), "{bytes:x?}");
        }
        assert_eq!(number(INTEGER, 0x80), [2, 2, 0, 0x80]);
        assert_eq!(Reader(&[2, 1, 0x80]).number(INTEGER), Err(Malformed), "it is negative");
        assert_eq!(Reader(&[2, 0]).number(INTEGER), Err(Malformed));
        assert_eq!(Reader(&[2, 6, 0, 0, 0, 0, 0, 1]).number(INTEGER), Err(Malformed));
    }

    #[test]
    fn lengths_are_definite_and_have_four_bytes_at_most() {
        assert_eq!(length(&[0x80]), Err(Malformed));
        assert_eq!(length(&[0x85, 0, 0, 0, 0, 1]), Err(Malformed));
        assert_eq!(length(&[0x82, 1]), Ok(None));
        assert_eq!(length(&[0x82, 1, 2]), Ok(Some((258, 3))));
        let mut beyond = Reader(&[4, 0x84, 0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(beyond.next(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn elements_are_read_as_they_are_written(content in proptest::collection::vec(any::<u8>(), 0..400)) {
            let bytes = element(SEQUENCE, &[&octets(&content), &number(INTEGER, 7)]);
            let mut outer = Reader(&bytes);
            let mut inner = outer.within(SEQUENCE).expect("a sequence");
            prop_assert_eq!(inner.content(OCTETS).expect("bytes"), &content[..]);
            prop_assert_eq!(inner.number(INTEGER), Ok(7));
            prop_assert!(outer.is_empty() && inner.is_empty());
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut reader = Reader(&bytes);
            while reader.next().is_ok() {}
        }
    }
}
