//! Substring search over one [`TextColumn`].

use memchr::memmem;

use crate::{DocId, DocSet, Documents, PostingList, Postings, TextColumn};

/// Every byte maps to one of 64 symbols, so a trigram is an 18-bit number and all trigrams fit into a table.
const SYMBOL_BITS: u32 = 6;
const SYMBOL_COUNT: usize = 1 << SYMBOL_BITS;
const TRIGRAM_COUNT: usize = 1 << (3 * SYMBOL_BITS);

/// The symbol for the end of a text.
const END: u8 = 0;

/// The most common letters come first, so that the busiest parts of a table over trigrams are close together.
const LETTERS: &[u8; 26] = b"ETAOINSRHLDCUMFPGWYBVKXJQZ";

/// Other bytes with a symbol of their own, besides upper-case letters and digits: the most common ones in package
/// names and descriptions.
const PUNCTUATION: &[u8] = b" -_.+,()/':;\"&@!#=";

/// The first symbol that several bytes share: lower-case letters, bytes of characters beyond ASCII, and rare
/// punctuation.
const SHARED: u8 = 1 + 26 + 10 + PUNCTUATION.len() as u8;

const SYMBOLS: [u8; 256] = {
    let mut symbols = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        symbols[byte] = SHARED + (byte % (SYMBOL_COUNT - SHARED as usize)) as u8;
        byte += 1;
    }
    let mut at = 0;
    while at < 26 {
        symbols[LETTERS[at] as usize] = 1 + at as u8;
        at += 1;
    }
    at = 0;
    while at < 10 {
        symbols[b'0' as usize + at] = 27 + at as u8;
        at += 1;
    }
    at = 0;
    while at < PUNCTUATION.len() {
        symbols[PUNCTUATION[at] as usize] = 37 + at as u8;
        at += 1;
    }
    symbols
};

#[inline]
fn trigram(first: u8, second: u8, third: u8) -> u32 {
    (u32::from(first) << (2 * SYMBOL_BITS)) | (u32::from(second) << SYMBOL_BITS) | u32::from(third)
}

/// Finds the documents whose text contains a substring. The result is exact: the same as that of a scan.
#[derive(Debug)]
pub struct TrigramIndex {
    column: TextColumn,
    postings: Postings,
}

impl Documents for TextColumn {
    /// The trigrams of a text. The last two begin with the last bytes and are filled up with end marks.
    fn each_list(&self, doc: DocId, mut add: impl FnMut(u32)) {
        const MASK: u32 = TRIGRAM_COUNT as u32 - 1;
        let symbol = |byte: u8| u32::from(SYMBOLS[byte as usize]);
        let mut last = match *self.text(doc) {
            [] => return,
            [only] => return add(symbol(only) << (2 * SYMBOL_BITS)),
            [first, second, ref rest @ ..] => {
                let mut last = symbol(first) << SYMBOL_BITS | symbol(second);
                for &byte in rest {
                    last = (last << SYMBOL_BITS | symbol(byte)) & MASK;
                    add(last);
                }
                last
            }
        };
        for _ in 0..2 {
            last = (last << SYMBOL_BITS | u32::from(END)) & MASK;
            add(last);
        }
    }
}

impl TrigramIndex {
    /// Indexes every text of `column`.
    pub fn build(column: TextColumn) -> TrigramIndex {
        let postings = Postings::build(TRIGRAM_COUNT, column.len(), &column);
        TrigramIndex { column, postings }
    }

    /// Only the texts, if they are few: every search looks at all of them. It gives the same results.
    pub fn without_lists(column: TextColumn) -> TrigramIndex {
        let postings = Postings::build(0, 0, &column);
        TrigramIndex { column, postings }
    }

    /// The indexed texts.
    pub fn column(&self) -> &TextColumn {
        &self.column
    }

    /// Whether more than `count` texts certainly contain `needle`, which is decided from sizes alone, for needles of
    /// two or three bytes. If the answer is no, there may still be more.
    pub fn is_in_more_than(&self, needle: &str, count: usize) -> bool {
        let needle = needle.as_bytes();
        let symbols = needle.iter().map(|&byte| SYMBOLS[byte as usize]);
        if self.postings.is_empty() || !symbols.clone().all(|symbol| symbol < SHARED) {
            return false;
        }
        let (first, lists) = match *needle {
            [first, second] => {
                (trigram(SYMBOLS[first as usize], SYMBOLS[second as usize], 0), SYMBOL_COUNT)
            }
            [first, second, third] => {
                let [first, second, third] =
                    [first, second, third].map(|byte| SYMBOLS[byte as usize]);
                (trigram(first, second, third), 1)
            }
            _ => return false,
        };
        (first..first + lists as u32)
            .any(|list| self.postings.list(list).count_min(self.column.len()) > count)
    }

    /// An upper bound for the number of texts that contain `needle`, from the sizes of its lists alone; of a short needle, that of all
    /// texts.
    pub fn count_max(&self, needle: &str) -> usize {
        let texts = self.column.len() as usize;
        if self.postings.is_empty() {
            return texts;
        }
        // Each document takes at least a byte.
        let lists = needle.as_bytes().windows(3).map(|window| {
            let [first, second, third] = [0, 1, 2].map(|at| SYMBOLS[window[at] as usize]);
            self.postings.list(trigram(first, second, third)).size_bytes()
        });
        lists.min().map_or(texts, |rarest| rarest.min(texts))
    }

    /// The first `limit` documents whose text contains `needle`: ascending, without duplicates. Every text contains
    /// the empty needle.
    pub fn containing(&self, needle: &str, limit: usize) -> Vec<DocId> {
        self.containing_from(needle, DocId(0), limit)
    }

    /// [`TrigramIndex::containing`], of the documents from `first` on.
    pub fn containing_from(&self, needle: &str, first: DocId, limit: usize) -> Vec<DocId> {
        /// Candidates that are looked at first, for each document that is wanted: most of them contain the needle.
        const CANDIDATES: usize = 4;

        let needle = needle.as_bytes();
        if self.postings.is_empty() && !needle.is_empty() {
            let all = limit.saturating_add(first.0 as usize);
            let mut found = self.column.containing(&memmem::Finder::new(needle), all);
            found.retain(|doc| *doc >= first);
            found.truncate(limit);
            return found;
        }
        let is_exact =
            needle.len() <= 3 && needle.iter().all(|&byte| SYMBOLS[byte as usize] < SHARED);
        let mut candidates = match *needle {
            [] => return (first.0..self.column.len()).take(limit).map(DocId).collect(),
            [one] => self.union(trigram(SYMBOLS[one as usize], 0, 0), SYMBOL_COUNT * SYMBOL_COUNT),
            [one, other] => {
                let [one, other] = [one, other].map(|byte| SYMBOLS[byte as usize]);
                self.union(trigram(one, other, 0), SYMBOL_COUNT)
            }
            _ if is_exact => self.intersection(needle, first, limit).0,
            _ => {
                let some = limit.saturating_mul(CANDIDATES);
                let (candidates, is_all) = self.intersection(needle, first, some);
                let found = self.those_with(candidates, needle, limit);
                if is_all || found.len() == limit {
                    return found;
                }
                self.intersection(needle, first, usize::MAX).0
            }
        };
        let later = candidates.partition_point(|doc| *doc < first);
        candidates.drain(..later);
        if is_exact {
            candidates.truncate(limit);
            return candidates;
        }
        self.those_with(candidates, needle, limit)
    }

    /// The first `limit` of these documents that contain `needle`.
    fn those_with(&self, candidates: Vec<DocId>, needle: &[u8], limit: usize) -> Vec<DocId> {
        let finder = memmem::Finder::new(needle);
        let found = candidates.into_iter().filter(|&doc| self.column.contains(doc, &finder));
        found.take(limit).collect()
    }

    /// The documents in `count` lists from `first` on: those of all trigrams with the same beginning.
    fn union(&self, first: u32, count: usize) -> Vec<DocId> {
        let mut docs = DocSet::empty(self.column.len());
        for list in first..first + count as u32 {
            docs.extend(self.postings.list(list).iter());
        }
        docs.to_vec()
    }

    /// The documents from `first` on that contain the rarest trigrams of `needle` (three bytes or more): a superset of those
    /// that contain the needle. Only the first `limit` with the rarest one are looked at; whether these are all is said, too.
    fn intersection(&self, needle: &[u8], first: DocId, limit: usize) -> (Vec<DocId>, bool) {
        /// To decode one posting costs about a twelfth of checking one candidate's text.
        const CHECK_COST_IN_POSTINGS: usize = 12;
        /// A long needle has many trigrams; the few rarest ones suffice.
        const LISTS_MAX: usize = 5;

        let mut trigrams: Vec<u32> = needle
            .windows(3)
            .map(|window| {
                trigram(
                    SYMBOLS[window[0] as usize],
                    SYMBOLS[window[1] as usize],
                    SYMBOLS[window[2] as usize],
                )
            })
            .collect();
        trigrams.sort_unstable();
        trigrams.dedup();
        let mut lists: Vec<PostingList<'_>> =
            trigrams.into_iter().map(|trigram| self.postings.list(trigram)).collect();
        lists.sort_unstable_by_key(PostingList::size_bytes);
        lists.truncate(LISTS_MAX);
        let Some((rarest, others)) = lists.split_first_mut() else { return (Vec::new(), true) };
        let mut docs: Vec<DocId> = match first {
            DocId(0) => rarest.iter().take(limit).collect(),
            _ => rarest.iter().skip_while(|doc| *doc < first).take(limit).collect(),
        };
        let is_all = docs.len() < limit;
        // The cheapest list comes first: it may leave so few documents that the others are not worth it.
        others.sort_by_key(|list| list.cost(docs.len()));
        for list in others {
            if list.cost(docs.len()) <= docs.len() * CHECK_COST_IN_POSTINGS {
                list.retain_in(&mut docs);
            }
        }
        (docs, is_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(texts: &[String], needle: &str) -> Vec<DocId> {
        (0_u32..)
            .zip(texts)
            .filter(|(_, text)| text.contains(needle))
            .map(|(doc, _)| DocId(doc))
            .collect()
    }

    #[track_caller]
    fn check(texts: &[&str], needle: &str) {
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        let index = TrigramIndex::build(TextColumn::from_texts(&texts));
        assert_eq!(index.containing(needle, usize::MAX), scan(&texts, needle), "needle {needle:?}");
    }

    #[test]
    fn short_needles_at_the_end_of_a_text() {
        for needle in ["", "B", "AB", "ZZ", "CAB", "\0", "A\0"] {
            check(&["AB", "B", "", "CAB", "BA", "A\0B"], needle);
        }
    }

    #[test]
    fn a_match_never_crosses_two_texts() {
        check(&["ABC", "DEF"], "CD");
        check(&["ABC", "DEF"], "C");
        check(&["ABC", "DEF"], "C\u{0}D");
    }

    #[test]
    fn the_limit_keeps_the_first() {
        let index = TrigramIndex::build(TextColumn::from_texts(["AAA", "BBB", "AAAA", "XAAAX"]));
        assert_eq!(index.containing("AAA", 2), [DocId(0), DocId(2)]);
        assert_eq!(index.containing("AA", 1), [DocId(0)]);
        assert_eq!(index.containing("AAAX", 0), []);
    }

    #[test]
    fn frequent_needles_are_recognized_by_the_sizes_of_lists() {
        let texts: Vec<String> = (0..50).map(|at| format!("{at}-AB-CA")).collect();
        let index = TrigramIndex::build(TextColumn::from_texts(&texts));
        for (needle, count, expected) in [
            ("AB", 49, true),
            ("AB", 50, false),
            ("AB-", 49, true),
            ("CA", 49, true),
            ("AB-C", 0, false),
            ("9-", 0, true),
            ("A", 0, false),
            ("", 0, false),
            ("ab", 0, false),
        ] {
            assert_eq!(index.is_in_more_than(needle, count), expected, "{needle} {count}");
        }
    }

    /// Texts of few characters of every width in UTF-8, so that needles often match.
    fn texts() -> impl Strategy<Value = String> {
        proptest::collection::vec(
            prop::sample::select(vec![
                'A', 'B', 'C', '-', '%', '_', '\0', 'a', 'É', '日', '本', '😀', '🦀',
            ]),
            0..24,
        )
        .prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn equals_a_naive_scan(texts in proptest::collection::vec(texts(), 0..80), needle in texts(), cut in 0_usize..8, from in 0_u32..90) {
            let index = TrigramIndex::build(TextColumn::from_texts(&texts));
            let scanned = TrigramIndex::without_lists(TextColumn::from_texts(&texts));
            let short: String = needle.chars().take(cut).collect();
            // A needle from the middle of a text certainly matches.
            let inner: String = texts.first().map(|text| text.chars().skip(1).take(cut).collect()).unwrap_or_default();
            for needle in [needle, short, inner] {
                prop_assert_eq!(index.containing(&needle, usize::MAX), scan(&texts, &needle));
                prop_assert_eq!(scanned.containing(&needle, usize::MAX), scan(&texts, &needle));
                let mut first = scan(&texts, &needle);
                for count in [0, first.len().saturating_sub(1), first.len()] {
                    prop_assert!(first.len() > count || !index.is_in_more_than(&needle, count));
                    prop_assert!(!scanned.is_in_more_than(&needle, count));
                }
                first.truncate(3);
                prop_assert_eq!(index.containing(&needle, 3), first.clone());
                prop_assert_eq!(scanned.containing(&needle, 3), first);
                let mut later = scan(&texts, &needle);
                later.retain(|doc| doc.0 >= from);
                later.truncate(3);
                prop_assert_eq!(index.containing_from(&needle, DocId(from), 3), later.clone());
                prop_assert_eq!(scanned.containing_from(&needle, DocId(from), 3), later);
            }
        }
    }
}
