//! Exact terms: from a term to the documents that have it.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{DocId, Documents, PostingList, Postings};

/// All distinct terms, and a hash table to find them.
#[derive(Debug, Default)]
struct Dictionary {
    /// The terms' bytes, one after another: first the namespace, then the text.
    bytes: Vec<u8>,
    /// Where each term ends.
    ends: Vec<u32>,
    /// Term numbers by the hash of the term. The upper half of the hash is stored too: it tells most different terms
    /// apart without a look at their bytes.
    table: HashTable<(u32, u32)>,
    hasher: RandomState,
}

impl Dictionary {
    fn hash(&self, namespace: u8, text: &[u8]) -> u64 {
        // The hash covers the namespace and the text without its length; no two keys have the same bytes.
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(namespace);
        hasher.write(text);
        hasher.finish()
    }

    fn term(&self, number: u32) -> &[u8] {
        let place = self.place(number);
        &self.bytes[place.start as usize..place.end as usize]
    }

    fn is(&self, number: u32, namespace: u8, text: &[u8]) -> bool {
        matches!(self.term(number).split_first(), Some((&first, rest)) if first == namespace && rest == text)
    }

    fn find(&self, namespace: u8, text: &[u8]) -> Option<u32> {
        let tag = self.tag(namespace, text);
        self.table
            .find(spread(tag), |&(other, number)| other == tag && self.is(number, namespace, text))
            .map(|&(_, number)| number)
    }

    fn tag(&self, namespace: u8, text: &[u8]) -> u32 {
        (self.hash(namespace, text) >> 32) as u32
    }

    /// The number of the first term with this tag: probably the wanted one.
    #[inline]
    fn candidate(&self, tag: u32) -> Option<u32> {
        self.table.find(spread(tag), |&(other, _)| other == tag).map(|&(_, number)| number)
    }

    /// The position of a term's bytes.
    #[inline]
    fn place(&self, number: u32) -> Range<u32> {
        let at = number as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        start..self.ends[at]
    }

    /// The number of the term with this `key`, its namespace and text, which is added if it is new.
    fn intern(&mut self, tag: u32, key: &[u8]) -> u32 {
        let found = self
            .table
            .find(spread(tag), |&(other, number)| other == tag && self.term(number) == key);
        if let Some(&(_, number)) = found {
            return number;
        }
        let number = self.ends.len() as u32;
        self.bytes.extend_from_slice(key);
        self.ends
            .push(u32::try_from(self.bytes.len()).expect("the terms of one index exceed 4 GiB"));
        self.table.insert_unique(spread(tag), (tag, number), |&(tag, _)| spread(tag));
        number
    }
}

/// A 64-bit hash from the stored 32 bits. Both ends of the word are filled, as the table uses both.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// How many terms are looked up together.
const BATCH_TERMS: usize = 256;

/// Terms that wait to be looked up together. They are far apart in memory, so the processor waits for all of them at
/// once, with nothing else to do meanwhile.
#[derive(Debug, Default)]
struct Batch {
    /// Namespace and text of each term, one after another.
    bytes: Vec<u8>,
    /// The end of each term.
    ends: Vec<u32>,
    /// Ranges of earlier terms that are repeated, and before which of these terms each range comes.
    repeats: Vec<(u32, Range<u32>)>,
    tags: Vec<u32>,
    candidates: Vec<Option<u32>>,
    places: Vec<Range<u32>>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_TERMS || self.repeats.len() >= BATCH_TERMS
    }

    /// Looks all terms up, appends their numbers to `terms`, and empties the batch.
    fn look_up(&mut self, dictionary: &mut Dictionary, terms: &mut Vec<u32>) {
        // Each step runs for all terms before the next step, which needs the memory that this one fetched.
        let mut start = 0;
        self.tags.clear();
        self.tags.extend(self.ends.iter().map(|&end| {
            let key = &self.bytes[start as usize..end as usize];
            start = end;
            dictionary.tag(key[0], &key[1..])
        }));
        self.candidates.clear();
        self.candidates.extend(self.tags.iter().map(|&tag| dictionary.candidate(tag)));
        self.places.clear();
        self.places.extend(
            self.candidates
                .iter()
                .map(|candidate| candidate.map_or(0..0, |number| dictionary.place(number))),
        );
        let fetched = self.places.iter().fold(0, |sum, place| {
            sum ^ dictionary.bytes.get(place.start as usize).copied().unwrap_or(0)
        });
        std::hint::black_box(fetched);
        let mut start = 0;
        let mut repeats = self.repeats.drain(..).peekable();
        for (at, (((&end, &tag), candidate), place)) in
            (0_u32..).zip(self.ends.iter().zip(&self.tags).zip(&self.candidates).zip(&self.places))
        {
            while let Some((_, places)) = repeats.next_if(|&(before, _)| before == at) {
                terms.extend_from_within(places.start as usize..places.end as usize);
            }
            let key = &self.bytes[start as usize..end as usize];
            start = end;
            terms.push(match *candidate {
                Some(number)
                    if dictionary.bytes[place.start as usize..place.end as usize] == *key =>
                {
                    number
                }
                // The term is new, or new in this batch, or hidden by another term with its tag.
                _ => dictionary.intern(tag, key),
            });
        }
        for (_, places) in repeats {
            terms.extend_from_within(places.start as usize..places.end as usize);
        }
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Most sources of one namespace that are remembered: one for each remainder of their size.
const RECENT_PER_NAMESPACE: usize = 16;

/// Namespaces with entries of their own; the others share these.
const RECENT_NAMESPACES: usize = 16;

/// Longer sources are not remembered, so that all of them together fit into the processor's nearer caches.
const RECENT_SOURCE_BYTES_MAX: usize = 512;

/// The most recent sources of terms and the positions of those terms: consecutive documents have much in common.
#[derive(Debug)]
struct RecentSources(Box<[RecentTerms]>);

#[derive(Clone, Debug, Default)]
struct RecentTerms {
    /// Namespace and text of the source; empty if there was none yet.
    source: Vec<u8>,
    /// The positions of its terms among those of all documents.
    places: Range<u32>,
}

impl Default for RecentSources {
    fn default() -> RecentSources {
        RecentSources(vec![RecentTerms::default(); RECENT_PER_NAMESPACE * RECENT_NAMESPACES].into())
    }
}

impl RecentSources {
    /// The entry for a source.
    #[inline]
    fn place(&mut self, namespace: u8, source: &[u8]) -> &mut RecentTerms {
        let size = source.len() % RECENT_PER_NAMESPACE;
        let namespace = namespace as usize % RECENT_NAMESPACES;
        &mut self.0[namespace * RECENT_PER_NAMESPACE + size]
    }
}

/// Initial capacity per document: terms, distinct terms, and the bytes of those. Memory that is reserved and not
/// written to costs nothing; growth means copying.
const TERMS_PER_DOCUMENT: usize = 16;
const DIFFERENT_PER_DOCUMENT: usize = 2;
const BYTES_PER_DOCUMENT: usize = 48;

/// Collects terms document by document, before doc ids are known.
#[derive(Debug, Default)]
pub struct TermIndexBuilder {
    dictionary: Dictionary,
    batch: Batch,
    recent: RecentSources,
    /// The terms of all documents in the order in which they were added, except those in the batch.
    terms: Vec<u32>,
    /// The number of terms added so far, those in the batch included.
    count: u32,
    /// The end of each document's terms in `terms`.
    ends: Vec<u32>,
}

impl TermIndexBuilder {
    /// A builder with room for about this many documents.
    pub fn with_capacity(documents: usize) -> TermIndexBuilder {
        let mut builder = TermIndexBuilder::default();
        builder.reserve(documents);
        let table = &mut builder.dictionary.table;
        table.reserve(documents * DIFFERENT_PER_DOCUMENT, |&(tag, _)| spread(tag));
        builder
    }

    /// Reserves memory for about this many more documents; memory that stays unused costs nothing.
    pub fn reserve(&mut self, documents: usize) {
        self.terms.reserve(documents * TERMS_PER_DOCUMENT);
        self.ends.reserve(documents);
        let dictionary = &mut self.dictionary;
        dictionary.bytes.reserve(documents * BYTES_PER_DOCUMENT);
        dictionary.ends.reserve(documents * DIFFERENT_PER_DOCUMENT);
    }

    /// Adds the term `text` in `namespace` (a field, for example) to the current document.
    pub fn add(&mut self, namespace: u8, text: &[u8]) {
        self.add_with(namespace, |bytes| bytes.extend_from_slice(text));
    }

    /// Adds a term in `namespace` to the current document; `append` appends its text to the given bytes.
    #[inline]
    pub fn add_with(&mut self, namespace: u8, append: impl FnOnce(&mut Vec<u8>)) {
        let batch = &mut self.batch;
        batch.bytes.push(namespace);
        append(&mut batch.bytes);
        let end = u32::try_from(batch.bytes.len()).expect("the terms of one batch exceed 4 GiB");
        batch.ends.push(end);
        self.count_more(1);
    }

    /// Adds all terms that follow from `source`, by calling `add`. If the same source was added to this namespace
    /// recently, its terms are used again and `add` is not called.
    #[inline]
    pub fn add_from(&mut self, namespace: u8, source: &[u8], add: impl FnOnce(&mut Self)) {
        if source.len() > RECENT_SOURCE_BYTES_MAX {
            return add(self);
        }
        let recent = self.recent.place(namespace, source);
        if recent.source.split_first() == Some((&namespace, source)) {
            let places = recent.places.clone();
            let count = places.end - places.start;
            self.batch.repeats.push((self.batch.ends.len() as u32, places));
            return self.count_more(count);
        }
        let start = self.count;
        add(self);
        let end = self.count;
        let recent = self.recent.place(namespace, source);
        recent.source.clear();
        recent.source.push(namespace);
        recent.source.extend_from_slice(source);
        recent.places = start..end;
    }

    #[inline]
    fn count_more(&mut self, count: u32) {
        self.count = self.count.checked_add(count).expect("postings of one index exceed 2^32");
        if self.batch.is_full() {
            self.batch.look_up(&mut self.dictionary, &mut self.terms);
        }
    }

    /// Ends the current document; documents are numbered from 0 in this order.
    pub fn end_document(&mut self) {
        self.ends.push(self.count);
    }

    /// Builds the index. `order[doc]` is the number under which the document `doc` was added.
    ///
    /// # Panics
    ///
    /// If `order` names a document that was not added.
    pub fn build(mut self, order: &[u32]) -> TermIndex {
        self.batch.look_up(&mut self.dictionary, &mut self.terms);
        let documents = Terms { order, terms: &self.terms, ends: &self.ends };
        let postings = Postings::build(self.dictionary.ends.len(), order.len() as u32, &documents);
        self.dictionary.bytes.shrink_to_fit();
        self.dictionary.ends.shrink_to_fit();
        self.dictionary.table.shrink_to_fit(|&(tag, _)| spread(tag));
        TermIndex { dictionary: self.dictionary, postings }
    }
}

/// The terms of documents in their final order.
struct Terms<'a> {
    order: &'a [u32],
    terms: &'a [u32],
    ends: &'a [u32],
}

impl Terms<'_> {
    /// The range of the terms of the document that was added under this number.
    #[inline]
    fn places(&self, added: u32) -> Range<usize> {
        let added = added as usize;
        let start = if added == 0 { 0 } else { self.ends[added - 1] as usize };
        start..self.ends[added] as usize
    }
}

impl Documents for Terms<'_> {
    #[inline]
    fn each_list(&self, doc: DocId, add: impl FnMut(u32)) {
        let places = self.places(self.order[doc.0 as usize]);
        self.terms[places].iter().copied().for_each(add);
    }

    fn warm_up(&self, docs: Range<u32>) {
        let added = &self.order[docs.start as usize..docs.end as usize];
        let ends = added.iter().fold(0, |sum, &added| sum ^ self.ends[added as usize]);
        std::hint::black_box(ends);
        let terms = added.iter().fold(0, |sum, &added| {
            sum ^ self.terms.get(self.places(added).start).copied().unwrap_or(0)
        });
        std::hint::black_box(terms);
    }
}

/// An index from terms to their documents.
#[derive(Debug)]
pub struct TermIndex {
    dictionary: Dictionary,
    postings: Postings,
}

impl TermIndex {
    /// The documents with the term `text` in `namespace`; `None` if no document has it.
    pub fn postings(&self, namespace: u8, text: &[u8]) -> Option<PostingList<'_>> {
        self.dictionary.find(namespace, text).map(|term| self.postings.list(term))
    }

    /// The first `limit` documents with the term `text` in `namespace`, ascending.
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
    fn namespaces_are_separate_and_the_caller_decides_the_order() {
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

    #[test]
    fn a_source_is_asked_once_while_it_is_remembered() {
        let mut builder = TermIndexBuilder::with_capacity(9);
        let mut asked = Vec::new();
        let long = "x".repeat(RECENT_SOURCE_BYTES_MAX + 1);
        // The sixth source has the size of the first and replaces it.
        for (namespace, source) in [
            (0, "a"),
            (0, "a"),
            (1, "a"),
            (0, ""),
            (0, ""),
            (0, "b"),
            (0, "a"),
            (2, &long),
            (2, &long),
        ] {
            builder.add_from(namespace, source.as_bytes(), |builder| {
                asked.push((namespace, source));
                builder.add(namespace, source.as_bytes());
            });
            builder.end_document();
        }
        let expected = [(0, "a"), (1, "a"), (0, ""), (0, "b"), (0, "a"), (2, &long), (2, &long)];
        assert_eq!(asked, expected);
        let index = builder.build(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let found = |namespace, text: &str| -> Vec<u32> {
            index.documents(namespace, text.as_bytes(), 9).iter().map(|doc| doc.0).collect()
        };
        assert_eq!(found(0, "a"), [0, 1, 6]);
        assert_eq!(found(1, "a"), [2]);
        assert_eq!(found(0, ""), [3, 4]);
        assert_eq!(found(0, "b"), [5]);
        assert_eq!(found(2, &long), [7, 8]);
    }

    proptest::proptest! {
        #[test]
        fn equals_a_naive_scan(documents in proptest::collection::vec(
            proptest::collection::vec((0_u8..3, proptest::collection::vec("[ab]{0,3}", 0..5)), 0..6), 0..200)) {
            let mut builder = TermIndexBuilder::default();
            for document in &documents {
                for (at, (namespace, texts)) in document.iter().enumerate() {
                    let add = |builder: &mut TermIndexBuilder| {
                        texts.iter().for_each(|text| builder.add(*namespace, text.as_bytes()));
                    };
                    // Adds terms from a source, or one by one.
                    if at % 3 == 2 {
                        add(&mut builder);
                    } else {
                        builder.add_from(*namespace, format!("{texts:?}").as_bytes(), add);
                    }
                }
                builder.end_document();
            }
            let order: Vec<u32> = (0..documents.len() as u32).rev().collect();
            let index = builder.build(&order);
            for (namespace, texts) in documents.iter().flatten() {
                for text in texts {
                    let has = |document: &Vec<(u8, Vec<String>)>| {
                        document.iter().any(|(other, texts)| other == namespace && texts.contains(text))
                    };
                    let expected: Vec<DocId> = (0_u32..).zip(&order)
                        .filter(|(_, added)| has(&documents[**added as usize]))
                        .map(|(doc, _)| DocId(doc)).collect();
                    proptest::prop_assert_eq!(index.documents(*namespace, text.as_bytes(), usize::MAX), expected);
                }
            }
            proptest::prop_assert!(index.postings(7, b"a").is_none());
        }
    }
}
