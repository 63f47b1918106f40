//! [`TextColumn`]: one text per document, one after another in one allocation.

use std::ops::Range;

use memchr::memmem::Finder;

use crate::{Block, DocId};

/// A byte that no UTF-8 text contains: it ends each text, so no match can cross two texts.
const END: u8 = 0xff;

/// One text per document, in doc id order.
#[derive(Debug)]
pub struct TextColumn {
    bytes: Block,
    /// Where each text starts; one more entry than there are texts.
    starts: Box<[u32]>,
    /// The heads of every [`NEIGHBOURS`]th text, if the texts are known to be in ascending order. A binary search
    /// over these reads memory that is close together.
    heads: Box<[u64]>,
}

/// One of this many neighbouring texts has its head stored.
const NEIGHBOURS: usize = 16;

/// The first eight bytes of a text as a number. If two heads differ, they compare as the texts do.
fn head(text: &[u8]) -> u64 {
    let mut head = [0; 8];
    let size = text.len().min(head.len());
    head[..size].copy_from_slice(&text[..size]);
    u64::from_be_bytes(head)
}

impl TextColumn {
    /// Builds the column from UTF-8 texts in doc id order.
    ///
    /// # Panics
    ///
    /// If the texts together exceed 4 GiB.
    pub fn from_texts<T: AsRef<[u8]>>(
        texts: impl IntoIterator<Item = T, IntoIter: Clone>,
    ) -> TextColumn {
        let texts = texts.into_iter();
        // Two passes, so that the allocation never has to grow.
        let bytes_total = texts.clone().map(|text| text.as_ref().len() + 1).sum();
        let mut bytes = Block::zeroed(bytes_total);
        let mut end = 0;
        let mut starts = Vec::with_capacity(texts.size_hint().0 + 1);
        starts.push(0);
        for text in texts {
            let text = text.as_ref();
            bytes[end..end + text.len()].copy_from_slice(text);
            end += text.len() + 1;
            bytes[end - 1] = END;
            starts.push(u32::try_from(end).expect("texts of one column exceed 4 GiB"));
        }
        TextColumn { bytes, starts: starts.into_boxed_slice(), heads: Box::default() }
    }

    /// Builds the column from UTF-8 texts in ascending order; prefixes are then found faster.
    ///
    /// # Panics
    ///
    /// If the texts together exceed 4 GiB.
    pub fn from_ascending<T: AsRef<[u8]>>(
        texts: impl IntoIterator<Item = T, IntoIter: Clone>,
    ) -> TextColumn {
        let mut column = TextColumn::from_texts(texts);
        let docs = (0..column.len()).step_by(NEIGHBOURS);
        column.heads = docs.map(|doc| head(column.text(DocId(doc)))).collect();
        column
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

    /// Whether the text of `doc` contains the needle of `finder`.
    ///
    /// # Panics
    ///
    /// If there is no such document.
    #[inline]
    pub fn contains(&self, doc: DocId, finder: &Finder<'_>) -> bool {
        /// A finder is fastest if this many bytes follow the needle's length.
        const ROOM_BYTES: usize = 32;

        let at = doc.0 as usize;
        let (start, end) = (self.starts[at] as usize, self.starts[at + 1] as usize - 1);
        let needle_bytes = finder.needle().len();
        // The bytes after a text cannot match: no needle contains the end mark.
        let last = (start + needle_bytes + ROOM_BYTES).min(self.bytes.len()).max(end);
        let found = finder.find(&self.bytes[start..last]);
        found.is_some_and(|place| start + place + needle_bytes <= end)
    }

    /// The first `limit` documents whose text contains the needle of `finder`, ascending, by a look at all texts. The needle is UTF-8 and
    /// not empty.
    pub fn containing(&self, finder: &Finder<'_>, limit: usize) -> Vec<DocId> {
        let mut docs = Vec::new();
        let mut at = 0;
        // No needle contains the end mark, so none matches across two texts.
        while docs.len() < limit
            && let Some(place) = finder.find(&self.bytes[at..])
        {
            let place = at + place;
            let doc = self.starts.partition_point(|&start| start as usize <= place) - 1;
            docs.push(DocId(doc as u32));
            at = self.starts[doc + 1] as usize;
        }
        docs
    }

    /// The documents whose text begins with `prefix`. The texts must be in ascending order.
    pub fn starting_with(&self, prefix: &[u8]) -> Range<u32> {
        let first = self.first_from(prefix);
        let rest = self.len() - first;
        let count = partition_point(rest, |at| self.text(DocId(first + at)).starts_with(prefix));
        first..first + count
    }

    /// The first `limit` documents whose text begins with `prefix`. The texts must be in ascending order.
    pub fn first_starting_with(&self, prefix: &[u8], limit: u32) -> Range<u32> {
        let first = self.first_from(prefix);
        let last = self.len().min(first.saturating_add(limit));
        // The results are neighbours: looking at a few of them costs less than a search for the last one.
        let end =
            (first..last).find(|&doc| !self.text(DocId(doc)).starts_with(prefix)).unwrap_or(last);
        first..end
    }

    /// The documents whose text is `wanted`. The texts must be in ascending order.
    pub fn equal_to(&self, wanted: &[u8]) -> Range<u32> {
        let first = self.first_from(wanted);
        let rest = self.len() - first;
        let count = partition_point(rest, |at| self.text(DocId(first + at)) == wanted);
        first..first + count
    }

    /// The first document whose text is not less than `wanted`. The texts must be in ascending order.
    fn first_from(&self, wanted: &[u8]) -> u32 {
        let (mut low, mut high) = (0, self.len());
        if !self.heads.is_empty() {
            // Texts with lower heads are less and texts with higher heads are not; for equal heads the texts decide.
            let wanted = head(wanted);
            let lower = self.heads.partition_point(|&head| head < wanted);
            let equal = self.heads[lower..].partition_point(|&head| head == wanted);
            low = (lower.saturating_sub(1) * NEIGHBOURS) as u32;
            high = high.min(((lower + equal) * NEIGHBOURS) as u32);
        }
        low + partition_point(high - low, |at| self.text(DocId(low + at)) < wanted)
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
        let texts = ["", "A", "AB", "ABC", "AC", "B_", "É"];
        for column in [TextColumn::from_texts(texts), TextColumn::from_ascending(texts)] {
            assert_eq!(column.starting_with(prefix.as_bytes()), expected);
            let first = expected.start..expected.end.min(expected.start + 2);
            assert_eq!(column.first_starting_with(prefix.as_bytes(), 2), first);
            assert_eq!(column.first_starting_with(prefix.as_bytes(), u32::MAX), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn heads_change_no_answer(
            // Few characters, one of them equal to a head's padding; some texts are longer than a head.
            mut texts in proptest::collection::vec("[A\0-]{0,3}[AB]{0,8}", 0..200),
            prefix in "[A\0-]{0,3}[AB]{0,8}",
        ) {
            texts.sort();
            let (plain, ascending) =
                (TextColumn::from_texts(&texts), TextColumn::from_ascending(&texts));
            for wanted in texts.iter().chain([&prefix]) {
                let wanted = wanted.as_bytes();
                proptest::prop_assert_eq!(ascending.starting_with(wanted), plain.starting_with(wanted));
                proptest::prop_assert_eq!(ascending.equal_to(wanted), plain.equal_to(wanted));
                proptest::prop_assert_eq!(
                    ascending.first_starting_with(wanted, 3),
                    plain.first_starting_with(wanted, 3)
                );
            }
        }
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
