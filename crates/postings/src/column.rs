//! One text per document, side by side in one allocation.

use std::ops::Range;

use crate::DocId;

/// A byte that no UTF-8 text contains: it ends each text, so no match can cross two texts.
const END: u8 = 0xff;

/// One text per document, in doc id order.
#[derive(Debug)]
pub struct TextColumn {
    bytes: Box<[u8]>,
    /// Where each text starts; one more entry than there are texts.
    starts: Box<[u32]>,
}

impl TextColumn {
    /// Builds the column from the texts in doc id order.
    ///
    /// # Panics
    ///
    /// If the texts together exceed 4 GiB.
    pub fn from_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> TextColumn {
        let texts = texts.into_iter();
        let mut bytes = Vec::new();
        let mut starts = Vec::with_capacity(texts.size_hint().0 + 1);
        starts.push(0);
        for text in texts {
            bytes.extend_from_slice(text.as_ref().as_bytes());
            bytes.push(END);
            starts.push(u32::try_from(bytes.len()).expect("texts of one column exceed 4 GiB"));
        }
        TextColumn { bytes: bytes.into_boxed_slice(), starts: starts.into_boxed_slice() }
    }

    /// Number of texts.
    pub fn len(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of `doc`, as bytes of UTF-8.
    ///
    /// # Panics
    ///
    /// If there is no such document.
    #[inline]
    pub fn text(&self, doc: DocId) -> &[u8] {
        let at = doc.0 as usize;
        &self.bytes[self.starts[at] as usize..self.starts[at + 1] as usize - 1]
    }

    /// The documents whose text begins with `prefix`. The texts must be in ascending order.
    pub fn starting_with(&self, prefix: &[u8]) -> Range<u32> {
        let first = self.partition_point(|text| text < prefix);
        let rest = self.starts.len() as u32 - 1 - first;
        let count = partition_point(rest, |at| self.text(DocId(first + at)).starts_with(prefix));
        first..first + count
    }

    /// The first `limit` documents whose text begins with `prefix`. The texts must be in ascending order.
    pub fn first_starting_with(&self, prefix: &[u8], limit: u32) -> Range<u32> {
        let first = self.partition_point(|text| text < prefix);
        let last = self.len().min(first.saturating_add(limit));
        // Neighbours lie side by side: looking at a few costs less than searching for the last of all.
        let end =
            (first..last).find(|&doc| !self.text(DocId(doc)).starts_with(prefix)).unwrap_or(last);
        first..end
    }

    /// The documents whose text is `wanted`. The texts must be in ascending order.
    pub fn equal_to(&self, wanted: &[u8]) -> Range<u32> {
        let first = self.partition_point(|text| text < wanted);
        let rest = self.len() - first;
        let count = partition_point(rest, |at| self.text(DocId(first + at)) == wanted);
        first..first + count
    }

    fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> u32 {
        partition_point(self.len(), |at| is_before(self.text(DocId(at))))
    }
}

/// The number of leading positions below `len` for which `is_before` holds, as in slices.
fn partition_point(len: u32, is_before: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prefix: &str, expected: Range<u32>) {
        let column = TextColumn::from_texts(["", "A", "AB", "ABC", "AC", "B_", "É"]);
        assert_eq!(column.starting_with(prefix.as_bytes()), expected);
        let first = expected.start..expected.end.min(expected.start + 2);
        assert_eq!(column.first_starting_with(prefix.as_bytes(), 2), first);
        assert_eq!(column.first_starting_with(prefix.as_bytes(), u32::MAX), expected);
    }

    #[test]
    fn prefixes() {
        check("", 0..7);
        check("A", 1..5);
        check("AB", 2..4);
        check("ABCD", 4..4);
        check("É", 6..7);
        check("Z", 6..6);
        check("\u{10ffff}", 7..7);
    }

    #[test]
    fn equal_texts_are_a_range() {
        let column = TextColumn::from_texts(["A", "B", "B", "C"]);
        assert_eq!(column.equal_to(b"B"), 1..3);
        assert_eq!(column.equal_to(b"BB"), 3..3);
        assert_eq!(column.equal_to(b""), 0..0);
    }

    #[test]
    fn an_empty_column() {
        let column = TextColumn::from_texts::<&str>([]);
        assert!(column.is_empty());
        assert_eq!(column.starting_with(b""), 0..0);
    }
}
