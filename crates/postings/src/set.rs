//! [`DocSet`]: a set of documents, with one bit for each document of the snapshot.

use crate::DocId;

/// Some of the documents of a snapshot.
#[derive(Clone, Debug)]
pub struct DocSet(Box<[u64]>);

impl DocSet {
    /// The empty set, with room for `doc_count` documents.
    pub fn empty(doc_count: u32) -> DocSet {
        DocSet(vec![0; doc_count.div_ceil(u64::BITS) as usize].into_boxed_slice())
    }

    /// The documents for which `is_in` yields true, in doc id order.
    pub fn from_bools(is_in: impl ExactSizeIterator<Item = bool>) -> DocSet {
        let mut words = vec![0; is_in.len().div_ceil(u64::BITS as usize)];
        for (at, is_in) in is_in.enumerate() {
            words[at / 64] |= u64::from(is_in) << (at % 64);
        }
        DocSet(words.into_boxed_slice())
    }

    /// Adds documents.
    #[inline]
    pub fn extend(&mut self, docs: impl Iterator<Item = DocId>) {
        for doc in docs {
            self.0[doc.0 as usize / 64] |= 1 << (doc.0 % 64);
        }
    }

    /// Adds a document; tells whether it was not in the set.
    #[inline]
    pub fn insert(&mut self, doc: DocId) -> bool {
        let (word, bit) = (&mut self.0[doc.0 as usize / 64], 1 << (doc.0 % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether `doc` is in the set.
    #[inline]
    pub fn has(&self, doc: DocId) -> bool {
        self.0[doc.0 as usize / 64] >> (doc.0 % 64) & 1 == 1
    }

    /// The documents, ascending.
    pub fn to_vec(&self) -> Vec<DocId> {
        docs_in(self.0.iter().copied())
    }

    /// The documents that are not in `other`, which belongs to the same snapshot; ascending.
    pub fn without(&self, other: &DocSet) -> Vec<DocId> {
        docs_in(self.0.iter().zip(&other.0).map(|(word, other)| word & !other))
    }
}

fn docs_in(words: impl Iterator<Item = u64>) -> Vec<DocId> {
    let mut docs = Vec::new();
    for (at, mut word) in words.enumerate() {
        while word != 0 {
            docs.push(DocId(at as u32 * 64 + word.trailing_zeros()));
            word &= word - 1;
        }
    }
    docs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_in_it_or_not() {
        let bools: Vec<bool> = (0..200).map(|doc| doc % 7 == 0 || doc == 63).collect();
        let set = DocSet::from_bools(bools.iter().copied());
        let mut same = DocSet::empty(200);
        same.extend((0..200).filter(|&doc| bools[doc as usize]).map(DocId));
        let mut other = DocSet::empty(200);
        for doc in (0..200).filter(|&doc| bools[doc as usize]).map(DocId) {
            assert_eq!((other.insert(doc), other.insert(doc)), (true, false));
        }
        assert_eq!(other.to_vec(), set.to_vec());
        for (doc, &is_in) in (0..).map(DocId).zip(&bools) {
            assert_eq!((set.has(doc), same.has(doc)), (is_in, is_in), "{doc:?}");
        }
        let docs: Vec<u32> = set.to_vec().iter().map(|doc| doc.0).collect();
        let expected: Vec<u32> = (0..200).filter(|&doc| bools[doc as usize]).collect();
        assert_eq!(docs, expected);
        assert!(DocSet::empty(0).to_vec().is_empty());
        let even = DocSet::from_bools((0..200).map(|doc| doc % 2 == 0));
        let odd: Vec<u32> = expected.into_iter().filter(|doc| doc % 2 == 1).collect();
        assert_eq!(set.without(&even).iter().map(|doc| doc.0).collect::<Vec<_>>(), odd);
    }
}
