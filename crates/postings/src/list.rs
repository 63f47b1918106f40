//! Sorted doc ids, stored as differences: the form of all postings in this crate.

use std::ops::Range;
use std::sync::OnceLock;

use crate::{Block, DocSet};

/// The position of a document in one snapshot: dense, from 0, without meaning in any other snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocId(pub u32);

/// The ascending doc ids of one term, without duplicates, possibly empty; they are decoded during iteration.
#[derive(Clone, Copy, Debug)]
pub struct PostingList<'a> {
    bytes: &'a [u8],
    /// Its bits, if the list is long.
    bits: Option<&'a Bits>,
}

impl<'a> PostingList<'a> {
    /// Size of the encoded list in bytes. A list has at least a fifth as many doc ids, and at most as many.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A lower bound on the number of doc ids, among `doc_count` documents. It is computed without decoding, and is
    /// close to the real number if that is large.
    pub fn count_min(&self, doc_count: u32) -> usize {
        // A difference of 128 or more takes a second byte, and there is room for only this many of those. The same
        // holds for the third byte and the following ones.
        let others: u32 = (1..=4).map(|byte| doc_count >> (7 * byte)).sum();
        self.bytes.len().saturating_sub(others as usize)
    }

    /// The doc ids in ascending order.
    pub fn iter(&self) -> PostingIter<'a> {
        PostingIter { bytes: self.bytes, previous: BEFORE_FIRST }
    }

    /// The cost to [retain](PostingList::retain_in) some of `count` documents, in doc ids to decode.
    pub fn cost(&self, count: usize) -> usize {
        if self.bits.is_some() { count } else { self.bytes.len() }
    }

    /// Retains those of the ascending `docs` that are in this list.
    pub(crate) fn retain_in(&self, docs: &mut Vec<DocId>) {
        let Some(bits) = self.bits else {
            let mut others = self.iter();
            let mut other = others.next();
            return docs.retain(|&doc| {
                while other.is_some_and(|candidate| candidate < doc) {
                    other = others.next();
                }
                other == Some(doc)
            });
        };
        let set = bits.set.get_or_init(|| {
            let mut set = DocSet::empty(bits.doc_count);
            set.extend(self.iter());
            set
        });
        // Without a branch: which documents stay is not predictable.
        let mut count = 0;
        for at in 0..docs.len() {
            let doc = docs[at];
            docs[count] = doc;
            count += usize::from(set.has(doc));
        }
        docs.truncate(count);
    }
}

/// A bit for each document, for a long list: membership is found at once, without decoding what comes before. The
/// bits are made when the list is first searched; most lists never are.
#[derive(Debug)]
struct Bits {
    list: u32,
    doc_count: u32,
    set: OnceLock<DocSet>,
}

/// A list is long if its bits take at most this many times the bytes of its differences.
const BITS_FACTOR: usize = 8;

impl<'a> IntoIterator for PostingList<'a> {
    type Item = DocId;
    type IntoIter = PostingIter<'a>;

    fn into_iter(self) -> PostingIter<'a> {
        self.iter()
    }
}

/// One less than the first doc id, so that the first difference is encoded like the others. No document has this id.
const BEFORE_FIRST: u32 = u32::MAX;

/// Iterator over a [`PostingList`]. Once exhausted it stays exhausted.
#[derive(Clone, Debug)]
pub struct PostingIter<'a> {
    bytes: &'a [u8],
    previous: u32,
}

impl Iterator for PostingIter<'_> {
    type Item = DocId;

    #[inline]
    fn next(&mut self) -> Option<DocId> {
        let (&first, mut rest) = self.bytes.split_first()?;
        let mut difference = u32::from(first & 0x7f);
        let mut byte = first;
        let mut shift = 7;
        while byte & 0x80 != 0 {
            let (&next, after) = rest.split_first()?;
            byte = next;
            rest = after;
            difference |= u32::from(byte & 0x7f) << shift;
            shift += 7;
        }
        self.bytes = rest;
        self.previous = self.previous.wrapping_add(difference);
        Some(DocId(self.previous))
    }
}

/// Number of bytes that the encoded `difference` takes.
#[inline]
fn coded_size(difference: u32) -> u32 {
    // Seven bits a byte. There is no branch, since differences are not predictable.
    let bits = u32::BITS - (difference | 1).leading_zeros();
    // This is the number of bits divided by seven, rounded up: 9/64 is close enough for all possible values.
    (bits * 9 + 64) / 64
}

/// Documents that can list the posting lists they belong to.
pub trait Documents {
    /// Calls `add` for every list that `doc` belongs to, in any order, perhaps repeatedly; every call must give the
    /// same lists.
    fn each_list(&self, doc: DocId, add: impl FnMut(u32));

    /// Reads the memory that the lists of these documents are taken from, before it is needed, if it is far apart.
    /// The processor then waits for all of it at once, not for one document after another.
    fn warm_up(&self, _docs: Range<u32>) {}
}

/// How many documents are processed together.
const BATCH_DOCUMENTS: usize = 64;

/// Calls `add` for every document, ascending, and each list that it belongs to.
#[inline(always)]
fn each_pair(doc_count: u32, documents: &impl Documents, mut add: impl FnMut(u32, u32)) {
    for start in (0..doc_count).step_by(BATCH_DOCUMENTS) {
        let docs = start..doc_count.min(start.saturating_add(BATCH_DOCUMENTS as u32));
        documents.warm_up(docs.clone());
        for doc in docs {
            documents.each_list(DocId(doc), |list| add(doc, list));
        }
    }
}

/// Many posting lists, numbered from 0, in two allocations.
#[derive(Debug)]
pub struct Postings {
    /// Where each list starts in `bytes`; one more entry than there are lists.
    offsets: Box<[u32]>,
    bytes: Block,
    /// The bits of each long list, ascending.
    bits: Box<[Bits]>,
    /// The smallest size of a long list, in bytes.
    long_bytes: usize,
}

impl Postings {
    /// Builds `list_count` lists for `doc_count` documents.
    ///
    /// The documents are read twice, in ascending order: the first pass measures, the second writes, so nothing has
    /// to be moved.
    ///
    /// # Panics
    ///
    /// If a list number is out of range, or the lists together exceed 4 GiB.
    pub fn build(list_count: usize, doc_count: u32, documents: &impl Documents) -> Postings {
        // Per list: the last doc id, and the bytes needed so far. Both are used together, so they are next to each
        // other.
        let mut lists = vec![(BEFORE_FIRST, 0_u32); list_count];
        each_pair(doc_count, documents, |doc, list| {
            let (last, size) = &mut lists[list as usize];
            if *last != doc {
                *size += coded_size(doc.wrapping_sub(*last));
                *last = doc;
            }
        });
        let mut offsets = Vec::with_capacity(list_count + 1);
        let mut end = 0_u32;
        offsets.push(0);
        let long_bytes = (doc_count.div_ceil(u8::BITS) as usize).div_ceil(BITS_FACTOR).max(1);
        let mut bits = Vec::new();
        for (list, (last, size)) in (0_u32..).zip(&mut lists) {
            if *size as usize >= long_bytes {
                bits.push(Bits { list, doc_count, set: OnceLock::new() });
            }
            let start = end;
            end = end.checked_add(*size).expect("posting lists of one index exceed 4 GiB");
            offsets.push(end);
            *last = BEFORE_FIRST;
            *size = start;
        }
        let mut block = Block::zeroed(end as usize);
        let bytes = &mut block[..];
        each_pair(doc_count, documents, |doc, list| {
            let (last, write_at) = &mut lists[list as usize];
            if *last == doc {
                return;
            }
            let mut difference = doc.wrapping_sub(*last);
            *last = doc;
            let mut at = *write_at as usize;
            while difference >= 1 << 14 {
                bytes[at] = difference as u8 | 0x80;
                difference >>= 7;
                at += 1;
            }
            // One byte or two. There is no branch, as this is not predictable; a single byte is written twice.
            let more = u32::from(difference >= 0x80);
            bytes[at] = (difference & 0x7f | more << 7) as u8;
            at += more as usize;
            bytes[at] = (difference >> (7 * more)) as u8;
            *write_at = at as u32 + 1;
        });
        Postings {
            offsets: offsets.into_boxed_slice(),
            bytes: block,
            bits: bits.into_boxed_slice(),
            long_bytes,
        }
    }

    /// The list with this number.
    ///
    /// # Panics
    ///
    /// If there is no such list.
    #[inline]
    pub fn list(&self, list: u32) -> PostingList<'_> {
        let at = list as usize;
        let bytes = &self.bytes[self.offsets[at] as usize..self.offsets[at + 1] as usize];
        let bits = if bytes.len() < self.long_bytes {
            None
        } else {
            self.bits.binary_search_by_key(&list, |bits| bits.list).ok().map(|at| &self.bits[at])
        };
        PostingList { bytes, bits }
    }

    /// Number of lists, empty ones included.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are no lists at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lists<'a>(&'a [&'a [u32]]);

    impl Documents for Lists<'_> {
        fn each_list(&self, doc: DocId, add: impl FnMut(u32)) {
            self.0[doc.0 as usize].iter().copied().for_each(add);
        }
    }

    struct Gaps<'a>(&'a [u32]);

    impl Documents for Gaps<'_> {
        fn each_list(&self, doc: DocId, mut add: impl FnMut(u32)) {
            if self.0.binary_search(&doc.0).is_ok() {
                add(0);
            }
        }
    }

    #[track_caller]
    fn check(documents: &[&[u32]], list_count: usize) {
        let postings = Postings::build(list_count, documents.len() as u32, &Lists(documents));
        for list in 0..list_count as u32 {
            let expected: Vec<u32> = (0..documents.len() as u32)
                .filter(|&doc| documents[doc as usize].contains(&list))
                .collect();
            let found: Vec<u32> = postings.list(list).iter().map(|doc| doc.0).collect();
            assert_eq!(found, expected, "list {list}");
            let count_min = postings.list(list).count_min(documents.len() as u32);
            assert!(count_min <= expected.len(), "list {list}: {count_min}");
            for step in [1, 3] {
                let mut docs: Vec<DocId> =
                    (0..documents.len() as u32).step_by(step).map(DocId).collect();
                postings.list(list).retain_in(&mut docs);
                let retained: Vec<u32> = docs.iter().map(|doc| doc.0).collect();
                let expected: Vec<u32> =
                    expected.iter().copied().filter(|doc| doc % step as u32 == 0).collect();
                assert_eq!(retained, expected, "list {list}, every {step}");
            }
        }
    }

    #[test]
    fn repeated_lists_count_once() {
        check(&[&[0, 0, 2], &[], &[2, 1, 2], &[0]], 4);
    }

    #[test]
    fn no_documents_and_no_lists() {
        check(&[], 3);
        check(&[], 0);
    }

    #[test]
    fn differences_of_every_size() {
        let gaps = [0_u32, 127, 128, 255, 256, 16_383, 16_384, 16_512, 2_097_152, 2_200_000];
        let postings = Postings::build(1, 2_200_001, &Gaps(&gaps));
        let found: Vec<u32> = postings.list(0).iter().map(|doc| doc.0).collect();
        assert_eq!(found, gaps);
        assert!(postings.list(0).count_min(2_200_001) <= gaps.len());
    }

    #[test]
    fn the_cost_of_a_long_list_depends_on_the_documents() {
        let every = |step: usize| -> Vec<u32> { (0..100_000).step_by(step).collect() };
        for (step, is_long) in [(1, true), (60, true), (68, false), (1_000, false)] {
            let postings = Postings::build(1, 100_000, &Gaps(&every(step)));
            let list = postings.list(0);
            assert_eq!(list.cost(7) == 7, is_long, "every {step}");
            // Asked twice, as the bits are made only once.
            for _ in 0..2 {
                let mut docs = vec![DocId(0), DocId(step as u32), DocId(99_999)];
                list.retain_in(&mut docs);
                assert_eq!(docs.contains(&DocId(99_999)), step == 1);
                assert!(docs.starts_with(&[DocId(0), DocId(step as u32)]));
            }
        }
    }

    #[test]
    fn the_least_count_of_long_lists_is_close() {
        let every = |step: usize| -> Vec<u32> { (0..100_000).step_by(step).collect() };
        for (step, count_min) in [(1, 99_213), (100, 213), (128, 776), (3_000, 0)] {
            let gaps = every(step);
            let postings = Postings::build(1, 100_000, &Gaps(&gaps));
            assert_eq!(postings.list(0).count_min(100_000), count_min, "every {step}");
        }
    }

    proptest::proptest! {
        #[test]
        fn lists_are_what_was_added(documents in proptest::collection::vec(
            proptest::collection::vec(0_u32..20, 0..30), 0..300)) {
            let documents: Vec<&[u32]> = documents.iter().map(Vec::as_slice).collect();
            check(&documents, 20);
        }
    }
}
