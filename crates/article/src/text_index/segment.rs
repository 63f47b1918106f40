//! [`Segment`]: some articles with the posting lists of their words and links; it never changes.
//!
//! A posting is the difference to the document before it, and where the word stands there: in the name, the title, and how
//! often in the text. Nearly all take one or two bytes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::document::words;
use super::{Document, Question};
use crate::ArticleName;
use crate::search::fold;

/// Before the name that a link leads to. No word begins so.
const NEAR: char = '\u{1}';
/// Before the name that a link leads to where the article after [`NEAR`] is not there.
const FAR: char = '\u{2}';

/// Bits in the weight of a posting: the word is in the name, in the title; the lower bits say how often it is in the text.
const IN_NAME: u8 = 8;
const IN_TITLE: u8 = 4;
const IN_TEXT: u8 = 3;
const WEIGHT_BITS: u32 = 4;

/// Beside a weight, while a question is answered: the word is there at all, and not only as the beginning of a longer one.
const FOUND: u8 = 0x10;
const EXACT: u8 = 0x20;

/// A search for words that begin with a prefix reads at most this many of them, and this many bytes of their posting lists.
const PREFIX_TERMS_MAX: usize = 4_096;
const PREFIX_BYTES_MAX: usize = 256 << 10;

/// An article, as it goes into a segment.
pub(super) struct Entry {
    name: ArticleName,
    name_words: u8,
    title_words: u8,
    terms: HashMap<String, u8>,
}

/// Articles with their posting lists.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// In ascending order; their positions are the documents.
    names: Box<[ArticleName]>,
    /// How many different words each name and each title have.
    name_words: Box<[u8]>,
    title_words: Box<[u8]>,
    /// All terms in ascending order, one after the other.
    texts: Box<str>,
    /// Where each term begins in `texts`, and the end.
    starts: Box<[u32]>,
    postings: Box<[u8]>,
    /// Where the list of each term begins in `postings`, and the end.
    lists: Box<[u32]>,
}

/// A document that a search found. Most of them are only counted and compared, so this is two numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedHit {
    /// Less for a better document, and for an equally good one with an earlier name.
    pub(super) order: u64,
    tally: Score,
}

impl RankedHit {
    fn new(rank: u32, doc: u32, tally: Score) -> RankedHit {
        RankedHit { order: u64::from(!rank) << 32 | u64::from(doc), tally }
    }

    /// The better, the more.
    pub(super) fn rank(self) -> u32 {
        !((self.order >> 32) as u32)
    }

    pub(super) fn doc(self) -> usize {
        (self.order & u64::from(u32::MAX)) as usize
    }

    /// Where the words of the question are: in the name, the title, the text.
    pub(super) fn places(self) -> [bool; 3] {
        [Score::NAME, Score::TITLE, Score::TEXT].map(|at| self.tally.byte(at) != 0)
    }
}

impl Entry {
    pub(super) fn of(name: ArticleName, document: &Document) -> Entry {
        let mut terms: HashMap<String, u8> = HashMap::new();
        for (word, count) in document.counted_words() {
            let often = match count {
                1 => 1,
                2..=4 => 2,
                _ => IN_TEXT,
            };
            terms.insert(word, often);
        }
        let mut note = |text: &str, place: u8| -> u8 {
            let mut different = 0_u8;
            for word in words(&fold(text)) {
                let weight = terms.entry(word.to_owned()).or_default();
                different = different.saturating_add(u8::from(*weight & place == 0));
                *weight |= place;
            }
            different
        };
        let name_words = note(name.as_str(), IN_NAME);
        let title_words = note(&document.title, IN_TITLE);
        for link in &document.links {
            terms.insert(format!("{NEAR}{}", link.near), 0);
            if let Some(far) = &link.far {
                terms.insert(format!("{FAR}{far}{NEAR}{}", link.near), 0);
            }
        }
        Entry { name, name_words, title_words, terms }
    }
}

/// Makes a segment of terms in ascending order.
#[derive(Default)]
struct Builder {
    texts: String,
    starts: Vec<u32>,
    postings: Vec<u8>,
    lists: Vec<u32>,
}

impl Builder {
    /// Adds a term with its documents, ascending. A full segment leaves out the rest.
    fn add(&mut self, term: &str, docs: &[(u32, u8)]) {
        let is_full = u32::try_from(self.texts.len() + term.len()).is_err()
            || u32::try_from(self.postings.len() + docs.len() * 5).is_err();
        if is_full || docs.is_empty() {
            return;
        }
        self.starts.push(self.texts.len() as u32);
        self.lists.push(self.postings.len() as u32);
        self.texts.push_str(term);
        let mut next = 0;
        for (doc, weight) in docs {
            let mut value = u64::from(doc - next) << WEIGHT_BITS | u64::from(*weight);
            next = doc + 1;
            while value >= 0x80 {
                self.postings.push(value as u8 | 0x80);
                value >>= 7;
            }
            self.postings.push(value as u8);
        }
    }

    fn finish(
        mut self,
        names: Vec<ArticleName>,
        name_words: Vec<u8>,
        title_words: Vec<u8>,
    ) -> Segment {
        self.starts.push(self.texts.len() as u32);
        self.lists.push(self.postings.len() as u32);
        Segment {
            names: names.into(),
            name_words: name_words.into(),
            title_words: title_words.into(),
            texts: self.texts.into(),
            starts: self.starts.into(),
            postings: self.postings.into(),
            lists: self.lists.into(),
        }
    }
}

/// The postings of a list: each document with its weight.
struct Postings<'a> {
    bytes: &'a [u8],
    next: u32,
}

impl Iterator for Postings<'_> {
    type Item = (usize, u8);

    #[inline]
    fn next(&mut self) -> Option<(usize, u8)> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let doc = self.next + (value >> WEIGHT_BITS) as u32;
        self.next = doc + 1;
        Some((doc as usize, value as u8 & 0xf))
    }
}

/// The state of a document while a question is answered, in one number, so that a posting costs one addition. One byte each,
/// with a bit for each word: the words that it has; those that it has exactly, and not as the beginning of another word; those
/// in the name, in the title and in the text. Then the score.
#[derive(Clone, Copy, Debug)]
struct Score(u64);

impl Score {
    /// The bits of the words in name and title.
    const PLACED: u64 = 0xff << Score::NAME | 0xff << Score::TITLE;
    const EXACT: u32 = 8;
    const NAME: u32 = 16;
    const TITLE: u32 = 24;
    const TEXT: u32 = 32;
    const SCORE: u32 = 40;

    /// What the word with this number adds, for each possible weight.
    fn of_word(number: usize) -> [u64; 64] {
        std::array::from_fn(|weight| {
            let weight = weight as u8;
            let bit_if = |is: u8, at: u32| u64::from(weight & is != 0) << at << number;
            if weight & FOUND == 0 {
                return 0;
            }
            let score = (weight & IN_TEXT) * 2 + u8::from(weight & EXACT != 0);
            bit_if(FOUND, 0)
                | bit_if(EXACT, Score::EXACT)
                | bit_if(IN_NAME, Score::NAME)
                | bit_if(IN_TITLE, Score::TITLE)
                | bit_if(IN_TEXT, Score::TEXT)
                | u64::from(score) << Score::SCORE
        })
    }

    fn byte(self, at: u32) -> u8 {
        (self.0 >> at) as u8
    }

    fn has_all(self, all: u8) -> bool {
        self.byte(0) == all
    }
}

impl Segment {
    /// A segment with these entries, in ascending order of their names.
    pub(super) fn of(entries: impl Iterator<Item = Entry>) -> Segment {
        let mut terms: BTreeMap<String, Vec<(u32, u8)>> = BTreeMap::new();
        let (mut names, mut name_words, mut title_words) = (Vec::new(), Vec::new(), Vec::new());
        for (doc, entry) in (0_u32..).zip(entries) {
            for (term, weight) in entry.terms {
                terms.entry(term).or_default().push((doc, weight));
            }
            names.push(entry.name);
            name_words.push(entry.name_words);
            title_words.push(entry.title_words);
        }
        let mut builder = Builder::default();
        for (term, docs) in terms {
            builder.add(&term, &docs);
        }
        builder.finish(names, name_words, title_words)
    }

    /// A segment with what several have, without what is gone. Apart from that, no article is in two of them.
    pub(super) fn merged<Gone: Fn(usize) -> bool>(segments: &[(&Segment, Gone)]) -> Segment {
        let mut docs: Vec<(&ArticleName, usize, usize)> = Vec::new();
        for (at, (segment, is_gone)) in segments.iter().enumerate() {
            let stay = (0..segment.len()).filter(|doc| !is_gone(*doc));
            docs.extend(stay.map(|doc| (segment.name(doc), at, doc)));
        }
        docs.sort_unstable();
        let gone = |(segment, _): &(&Segment, Gone)| vec![u32::MAX; segment.len()];
        let mut places: Vec<Vec<u32>> = segments.iter().map(gone).collect();
        for (place, (_, at, doc)) in (0_u32..).zip(&docs) {
            places[*at][*doc] = place;
        }
        let names = docs.iter().map(|(name, ..)| (*name).clone()).collect();
        let of_all = |words: fn(&Segment) -> &[u8]| {
            docs.iter().map(|(_, at, doc)| words(segments[*at].0)[*doc]).collect()
        };
        let (name_words, title_words) =
            (of_all(|segment| &segment.name_words), of_all(|segment| &segment.title_words));
        let mut builder = Builder::default();
        let mut nexts = vec![0; segments.len()];
        let mut list = Vec::new();
        loop {
            let heads = || segments.iter().zip(&nexts).map(|((it, _), next)| it.term(*next));
            let Some(term) = heads().flatten().min() else { break };
            list.clear();
            for (at, (segment, _)) in segments.iter().enumerate() {
                if segment.term(nexts[at]) == Some(term) {
                    let postings = segment.postings(nexts[at]);
                    let moved = postings.map(|(doc, weight)| (places[at][doc], weight));
                    list.extend(moved.filter(|(doc, _)| *doc != u32::MAX));
                    nexts[at] += 1;
                }
            }
            list.sort_unstable();
            builder.add(term, &list);
        }
        builder.finish(names, name_words, title_words)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, doc: usize) -> &ArticleName {
        &self.names[doc]
    }

    pub(super) fn find(&self, name: &ArticleName) -> Option<usize> {
        self.names.binary_search(name).ok()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let names = self.len() * (size_of::<ArticleName>() + 2);
        let tables = (self.starts.len() + self.lists.len()) * size_of::<u32>();
        names + tables + self.texts.len() + self.postings.len()
    }

    fn terms(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn term(&self, at: usize) -> Option<&str> {
        let (start, end) = (*self.starts.get(at)?, *self.starts.get(at + 1)?);
        Some(&self.texts[start as usize..end as usize])
    }

    fn postings(&self, at: usize) -> Postings<'_> {
        let bytes = self.lists[at] as usize..self.lists[at + 1] as usize;
        Postings { bytes: &self.postings[bytes], next: 0 }
    }

    /// The first term that is not before `text`.
    fn first_from(&self, text: &str) -> usize {
        let (mut low, mut high) = (0, self.terms());
        while low < high {
            let middle = low.midpoint(high);
            match self.term(middle).is_some_and(|term| term < text) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The terms that begin with `prefix`, at most [`PREFIX_TERMS_MAX`], and whether these are all.
    fn beginning(&self, prefix: &str) -> (Range<usize>, bool) {
        let first = self.first_from(prefix);
        let mut last = first;
        while self.term(last).is_some_and(|term| term.starts_with(prefix)) {
            let bytes = self.lists[last + 1] - self.lists[first];
            if last - first == PREFIX_TERMS_MAX || bytes as usize > PREFIX_BYTES_MAX {
                return (first..last, false);
            }
            last += 1;
        }
        (first..last, true)
    }

    /// Hands over the documents that have all words, in ascending order. False if there may be more.
    pub(super) fn search(&self, question: &Question, mut take: impl FnMut(RankedHit)) -> bool {
        let Some((last, before)) = question.words.split_last() else { return true };
        let count = question.words.len() as u8;
        let all = 1_u8.checked_shl(count.into()).unwrap_or(0).wrapping_sub(1);
        let own =
            |word: &str| Some(self.first_from(word)).filter(|at| self.term(*at) == Some(word));
        // The tallies of the words before the last one; empty if it is the only word.
        let mut tallies: Vec<u64> = Vec::new();
        for (number, word) in before.iter().enumerate() {
            let Some(own) = own(word) else { return true };
            let adds = Score::of_word(number);
            tallies.resize(self.len(), 0);
            for (doc, weight) in self.postings(own) {
                tallies[doc] += adds[usize::from(weight | FOUND | EXACT)];
            }
        }
        let adds = Score::of_word(before.len());
        let mut found = |doc: usize, weight: u8| {
            let before = tallies.get(doc).copied().unwrap_or_default();
            let tally = Score(before + adds[usize::from(weight)]);
            if tally.has_all(all) {
                take(self.ranked(doc, tally, (all, count)));
            }
        };
        let own = own(last);
        let (others, is_whole) = match question.has_prefix {
            true => self.beginning(last),
            false => (0..0, true),
        };
        if others.clone().all(|at| Some(at) == own) {
            let postings = own.into_iter().flat_map(|own| self.postings(own));
            postings.for_each(|(doc, weight)| found(doc, weight | FOUND | EXACT));
            return is_whole;
        }
        // Several terms of one document count once.
        let mut weights = vec![0_u8; self.len()];
        for at in others.filter(|at| Some(*at) != own) {
            for (doc, weight) in self.postings(at) {
                weights[doc] |= weight | FOUND;
            }
        }
        if let Some(own) = own {
            for (doc, weight) in self.postings(own) {
                // A longer word does not change how often the word itself is in the text.
                weights[doc] = weights[doc] & (IN_NAME | IN_TITLE) | weight | FOUND | EXACT;
            }
        }
        for (doc, weight) in weights.into_iter().enumerate().filter(|(_, weight)| *weight != 0) {
            found(doc, weight);
        }
        is_whole
    }

    /// The rank of a document that has all words of the question: `all` has a bit for each, `count` is their number.
    fn ranked(&self, doc: usize, tally: Score, (all, count): (u8, u8)) -> RankedHit {
        let tier = match tally.0 & Score::PLACED {
            // Nearly all.
            0 => 0,
            _ => self.tier(doc, tally, (all, count)),
        };
        let rank = tier << 8 | u32::from(tally.byte(Score::SCORE));
        RankedHit::new(rank, doc as u32, tally)
    }

    fn tier(&self, doc: usize, tally: Score, (all, count): (u8, u8)) -> u32 {
        let (name, title) = (tally.byte(Score::NAME), tally.byte(Score::TITLE));
        let is_name = name == all && self.name_words[doc] == count;
        let is_title = title == all && self.title_words[doc] == count;
        let is_exact = tally.byte(Score::EXACT) == all;
        match (is_name, is_title) {
            (true, _) if is_exact => 6,
            (_, true) if is_exact => 5,
            (true, _) | (_, true) => 4,
            _ if (name | title) == all => 2 + u32::from(is_exact),
            _ => u32::from(name | title != 0),
        }
    }

    /// The documents with a link to `name` that `is_shown`, and whether these are all. The search stops when it has found more than
    /// `limit`, or has read `looked_at_max` links.
    pub(super) fn linking_to(
        &self,
        name: &ArticleName,
        (limit, looked_at_max): (usize, usize),
        is_there: impl Fn(&str) -> bool,
        is_shown: impl Fn(usize) -> bool,
    ) -> (Vec<usize>, bool) {
        let mut docs = Vec::new();
        let mut looked_at = 0;
        // False if that is enough.
        let mut look = |docs: &mut Vec<usize>, doc: Option<usize>| {
            if docs.len() > limit || looked_at == looked_at_max {
                return false;
            }
            looked_at += 1;
            docs.extend(doc.filter(|doc| !docs.contains(doc) && is_shown(*doc)));
            true
        };
        let near = format!("{NEAR}{name}");
        let own = self.first_from(&near);
        if self.term(own) == Some(&near)
            && !self.postings(own).all(|(doc, _)| look(&mut docs, Some(doc)))
        {
            return (docs, false);
        }
        let far = format!("{FAR}{name}{NEAR}");
        let mut at = self.first_from(&far);
        while let Some(near) = self.term(at).and_then(|term| term.strip_prefix(&*far)) {
            if !look(&mut docs, None) {
                return (docs, false);
            }
            if !is_there(near) && !self.postings(at).all(|(doc, _)| look(&mut docs, Some(doc))) {
                return (docs, false);
            }
            at += 1;
        }
        (docs, true)
    }
}
