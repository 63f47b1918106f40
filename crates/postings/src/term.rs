//! Exact terms: from a term to the documents that have it.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{DocId, Documents, PostingList, Postings};

/// All distinct terms, and how to find one.
#[derive(Debug, Default)]
struct Dictionary {
    /// The terms' bytes, one after another: first the namespace, then the text.
    bytes: Vec<u8>,
    /// Where each term ends.
    ends: Vec<u32>,
    /// Term numbers by the hash of the term; the upper half of the hash is kept to tell most
    /// strangers apart without touching their bytes.
    table: HashTable<(u32, u32)>,
    hasher: RandomState,
}

impl Dictionary {
    fn hash(&self, namespace: u8, text: &[u8]) -> u64 {
        // The namespace and the text without its length: no two keys give the same bytes.
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(namespace);
        hasher.write(text);
        hasher.finish()
    }

    fn term(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    fn is(&self, number: u32, namespace: u8, text: &[u8]) -> bool {
        matches!(self.term(number).split_first(), Some((&first, rest)) if first == namespace && rest == text)
    }

    fn find(&self, namespace: u8, text: &[u8]) -> Option<u32> {
        let hash = self.hash(namespace, text);
        let tag = (hash >> 32) as u32;
        self.table
            .find(spread(tag), |&(other, number)| other == tag && self.is(number, namespace, text))
            .map(|&(_, number)| number)
    }

    fn intern(&mut self, namespace: u8, text: &[u8]) -> u32 {
        let tag = (self.hash(namespace, text) >> 32) as u32;
        let found = self
            .table
            .find(spread(tag), |&(other, number)| other == tag && self.is(number, namespace, text));
        if let Some(&(_, number)) = found {
            return number;
        }
        let number = self.ends.len() as u32;
        self.bytes.push(namespace);
        self.bytes.extend_from_slice(text);
        self.ends
            .push(u32::try_from(self.bytes.len()).expect("the terms of one index exceed 4 GiB"));
        self.table.insert_unique(spread(tag), (tag, number), |&(tag, _)| spread(tag));
        number
    }
}

/// A 64-bit hash from the kept 32 bits, with both ends of the word filled, as the table uses both.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Collects terms, document by document, before doc ids are known.
#[derive(Debug, Default)]
pub struct TermIndexBuilder {
    dictionary: Dictionary,
    /// Terms of all documents in the order they were added.
    terms: Vec<u32>,
    /// Where each document's terms end in `terms`.
    ends: Vec<u32>,
}

impl TermIndexBuilder {
    /// Notes that the current document has the term `text` in `namespace` (a field, say).
    pub fn add(&mut self, namespace: u8, text: &[u8]) {
        let term = self.dictionary.intern(namespace, text);
        self.terms.push(term);
    }

    /// Ends the current document; documents are numbered from 0 as they end.
    pub fn end_document(&mut self) {
        self.ends.push(u32::try_from(self.terms.len()).expect("postings of one index exceed 2^32"));
    }

    /// Builds the index. `order[doc]` is the number under which the document `doc` was added.
    ///
    /// # Panics
    ///
    /// If `order` names a document that was not added.
    pub fn build(mut self, order: &[u32]) -> TermIndex {
        let documents = Terms { order, terms: &self.terms, ends: &self.ends };
        let postings = Postings::build(self.dictionary.ends.len(), order.len() as u32, &documents);
        self.dictionary.bytes.shrink_to_fit();
        self.dictionary.ends.shrink_to_fit();
        TermIndex { dictionary: self.dictionary, postings }
    }
}

/// The terms of documents in their final order.
struct Terms<'a> {
    order: &'a [u32],
    terms: &'a [u32],
    ends: &'a [u32],
}

impl Documents for Terms<'_> {
    fn each_list(&self, doc: DocId, add: impl FnMut(u32)) {
        let added = self.order[doc.0 as usize] as usize;
        let start = if added == 0 { 0 } else { self.ends[added - 1] as usize };
        self.terms[start..self.ends[added] as usize].iter().copied().for_each(add);
    }
}

/// From a term to its documents.
#[derive(Debug)]
pub struct TermIndex {
    dictionary: Dictionary,
    postings: Postings,
}

impl TermIndex {
    /// The documents that have the term `text` in `namespace`; `None` if no document has it.
    pub fn postings(&self, namespace: u8, text: &[u8]) -> Option<PostingList<'_>> {
        self.dictionary.find(namespace, text).map(|term| self.postings.list(term))
    }

    /// The documents that have the term `text` in `namespace`: ascending, the first `limit` of them.
    pub fn documents(&self, namespace: u8, text: &[u8], limit: usize) -> Vec<DocId> {
        self.postings(namespace, text)
            .map_or_else(Vec::new, |list| list.iter().take(limit).collect())
    }

    /// All terms of `namespace`, in no particular order.
    pub fn terms(&self, namespace: u8) -> impl Iterator<Item = &[u8]> {
        (0..self.dictionary.ends.len() as u32)
            .filter_map(move |number| self.dictionary.term(number).split_first())
            .filter(move |(first, _)| **first == namespace)
            .map(|(_, text)| text)
    }

    /// Number of distinct terms in all namespaces.
    pub fn len(&self) -> usize {
        self.dictionary.ends.len()
    }

    /// Whether there are no terms.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_apart_and_order_is_the_callers() {
        let mut builder = TermIndexBuilder::default();
        for terms in [&[(0, "a"), (1, "a")][..], &[(0, "b"), (0, "b")], &[(0, "a"), (0, "")]] {
            terms.iter().for_each(|&(namespace, text)| builder.add(namespace, text.as_bytes()));
            builder.end_document();
        }
        let index = builder.build(&[2, 1, 0]);
        let check = |namespace, text: &str, expected: &[u32]| {
            let found: Vec<u32> =
                index.documents(namespace, text.as_bytes(), 9).iter().map(|doc| doc.0).collect();
            assert_eq!(found, expected, "{namespace} {text}");
        };
        check(0, "a", &[0, 2]);
        check(1, "a", &[2]);
        check(0, "b", &[1]);
        check(1, "b", &[]);
        check(0, "", &[0]);
        assert_eq!(index.documents(0, b"a", 1), [DocId(0)]);
        assert_eq!(index.terms(1).collect::<Vec<_>>(), [b"a"]);
    }

    proptest::proptest! {
        #[test]
        fn equals_a_naive_scan(documents in proptest::collection::vec(
            proptest::collection::vec((0_u8..3, "[ab]{0,3}"), 0..6), 0..60)) {
            let mut builder = TermIndexBuilder::default();
            for document in &documents {
                document.iter().for_each(|(namespace, text)| builder.add(*namespace, text.as_bytes()));
                builder.end_document();
            }
            let order: Vec<u32> = (0..documents.len() as u32).rev().collect();
            let index = builder.build(&order);
            for (namespace, text) in documents.iter().flatten() {
                let expected: Vec<DocId> = (0_u32..).zip(&order)
                    .filter(|(_, added)| documents[**added as usize].contains(&(*namespace, text.clone())))
                    .map(|(doc, _)| DocId(doc)).collect();
                proptest::prop_assert_eq!(index.documents(*namespace, text.as_bytes(), usize::MAX), expected);
            }
            proptest::prop_assert!(index.postings(7, b"a").is_none());
        }
    }
}
