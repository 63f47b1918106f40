//! [`TextIndex`]: the index of articles by the words of their names, titles and texts, and by their links.
//!
//! ```text
//! a text, its first 64 KiB ─► words, each with where it stands ─► Segment ─┐
//! its links ─► names that they may lead to ────────────────────────────────┴─► TextIndex ─► search, linking_to
//! ```
//!
//! Articles that changed become a small segment, and older segments mark their entries as gone. So the cost of a change depends
//! only on the size of the changed articles, and an index that is in use never changes. Segments of similar size are merged.
//! Small ones are merged at once. For large ones [`TextIndex::wants_merge`] asks the owner of the index, who merges them on
//! another thread and applies changes meanwhile. The size of one article's entry is bounded ([`Document`]);
//! [`TextIndex::memory_bytes`] is the size of all.

mod document;
mod question;
mod segment;
mod snippet;

use std::sync::Arc;

pub use self::document::{Document, Link, TEXT_BYTES_MAX};
pub use self::question::{Question, WORDS_MAX};
use self::segment::{Entry, RankedHit, Segment};
pub use self::snippet::SnippetPart;
use crate::ArticleName;

/// Articles of segments that are merged at once: some milliseconds.
const SMALL_MAX: usize = 1_024;

/// A search for backlinks reads at most this many links of each segment.
const LINKING_MAX: usize = 1_000;

/// Articles by their words. Cloning it copies nothing of the texts.
#[derive(Clone, Debug, Default)]
pub struct TextIndex {
    /// The oldest first, and so about the largest. Of an article's entries, one at most is not gone.
    parts: Vec<LiveSegment>,
}

#[derive(Clone, Debug)]
struct LiveSegment {
    segment: Arc<Segment>,
    /// A bit for each of its articles that has changed since.
    gone: Vec<u64>,
    gone_count: usize,
}

/// Segments that should become one. The index may change while they are merged.
#[derive(Debug)]
pub struct Merge {
    parts: Vec<LiveSegment>,
}

/// The outcome of a [`Merge`].
#[derive(Debug)]
pub struct MergedSegment {
    of: Vec<LiveSegment>,
    segment: Segment,
}

/// An article that a search found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its name.
    pub name: ArticleName,
    /// Whether a word of the question is in its name.
    pub in_name: bool,
    /// Whether a word of the question is in its title.
    pub in_title: bool,
    /// Whether a word of the question is in its text.
    pub in_text: bool,
}

/// The results of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResults {
    /// The best first: those with exactly this name, with exactly this title, those with all words in name or title, then those
    /// with some words there; among these, by how often the words occur in the text, then by name.
    pub hits: Vec<Hit>,
    /// How many there are in all.
    pub count: usize,
    /// Whether that is all. More words may begin with the last word of the question than the search reads.
    pub is_whole: bool,
}

/// The best documents of a segment. Their order is that of their names, so no name has to be looked up.
struct TopHits {
    limit: usize,
    ranked: Vec<RankedHit>,
    /// There are enough that are better than this.
    worst: u64,
}

impl TopHits {
    fn new(limit: usize) -> TopHits {
        TopHits { limit, ranked: Vec::new(), worst: u64::MAX }
    }

    fn add(&mut self, one: RankedHit) {
        if one.order < self.worst {
            self.ranked.push(one);
            if self.ranked.len() > 4 * self.limit {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        if let Some(last) = self.limit.checked_sub(1).filter(|last| *last < self.ranked.len()) {
            let (_, worst, _) = self.ranked.select_nth_unstable_by_key(last, |one| one.order);
            self.worst = worst.order;
        }
        self.ranked.truncate(self.limit);
    }

    fn finish(mut self) -> Vec<RankedHit> {
        self.cut();
        self.ranked
    }
}

impl LiveSegment {
    fn new(segment: Segment) -> LiveSegment {
        let gone = vec![0; segment.len().div_ceil(64)];
        LiveSegment { segment: Arc::new(segment), gone, gone_count: 0 }
    }

    fn is_gone(&self, doc: usize) -> bool {
        self.gone.get(doc / 64).is_some_and(|bits| bits & (1 << (doc % 64)) != 0)
    }

    fn remove(&mut self, name: &ArticleName) {
        if let Some(doc) = self.segment.find(name)
            && !self.is_gone(doc)
        {
            self.gone[doc / 64] |= 1 << (doc % 64);
            self.gone_count += 1;
        }
    }

    fn len(&self) -> usize {
        self.segment.len() - self.gone_count
    }

    fn is_mostly_gone(&self) -> bool {
        self.gone_count * 2 > self.segment.len()
    }
}

fn merged(parts: &[LiveSegment]) -> Segment {
    let segments: Vec<_> =
        parts.iter().map(|part| (&*part.segment, move |doc: usize| part.is_gone(doc))).collect();
    Segment::merged(&segments)
}

/// The parts to merge: the last two neighbours of similar size, or one that is mostly gone.
fn unbalanced(parts: &[LiveSegment]) -> Option<std::ops::Range<usize>> {
    // What is gone of the larger one counts: after a start many are exactly twice as large as the next one, and the first change
    // of an article in it would merge them.
    let at = parts.windows(2).rposition(|pair| pair[0].segment.len() < 2 * pair[1].len());
    let pair = at.map(|at| at..at + 2);
    pair.or_else(|| parts.iter().position(LiveSegment::is_mostly_gone).map(|at| at..at + 1))
}

impl TextIndex {
    /// The index after these articles got these documents, or with `None` were removed. If an article is named twice, the later
    /// counts.
    #[must_use]
    pub fn replaced(&self, changes: Vec<(ArticleName, Option<Document>)>) -> TextIndex {
        let mut next = self.clone();
        for (name, _) in &changes {
            next.parts.iter_mut().for_each(|part| part.remove(name));
        }
        let mut latest: std::collections::BTreeMap<ArticleName, Option<Document>> =
            changes.into_iter().collect();
        latest.retain(|_, document| document.is_some());
        let entries = latest.into_iter().filter_map(|(name, it)| Some(Entry::of(name, &it?)));
        let segment = Segment::of(entries);
        if segment.len() > 0 {
            next.parts.push(LiveSegment::new(segment));
        }
        next.parts.retain(|part| part.len() > 0);
        next.merge_small();
        next
    }

    fn merge_small(&mut self) {
        let is_small = |part: &LiveSegment| part.segment.len() <= SMALL_MAX;
        let small = self.parts.iter().rev().take_while(|part| is_small(part)).count();
        let from = self.parts.len() - small;
        while let Some(range) = unbalanced(&self.parts[from..]) {
            let range = range.start + from..range.end + from;
            let total: usize = self.parts[range.clone()].iter().map(LiveSegment::len).sum();
            if total > SMALL_MAX {
                break;
            }
            let segment = merged(&self.parts[range.clone()]);
            let part = (segment.len() > 0).then(|| LiveSegment::new(segment));
            self.parts.splice(range, part);
        }
    }

    /// Segments that should be merged, if there are some, on a thread that may take long.
    pub fn wants_merge(&self) -> Option<Merge> {
        let range = unbalanced(&self.parts)?;
        Some(Merge { parts: self.parts[range].to_vec() })
    }

    /// The index with the outcome of a merge. One of segments that it no longer has changes nothing.
    #[must_use]
    pub fn with(&self, merged: MergedSegment) -> TextIndex {
        let MergedSegment { of, segment } = merged;
        let is_same =
            |(one, other): (&LiveSegment, &LiveSegment)| Arc::ptr_eq(&one.segment, &other.segment);
        let mut places = self.parts.windows(of.len().max(1));
        let Some(at) = places.position(|parts| parts.iter().zip(&of).all(is_same)) else {
            return self.clone();
        };
        let mut part = LiveSegment::new(segment);
        let mut next = self.clone();
        // Removes what was removed during the merge.
        for (now, before) in self.parts[at..].iter().zip(&of) {
            for doc in (0..now.segment.len()).filter(|doc| now.is_gone(*doc)) {
                if !before.is_gone(doc) {
                    part.remove(now.segment.name(doc));
                }
            }
        }
        next.parts.splice(at..at + of.len(), (part.len() > 0).then_some(part));
        next
    }

    /// How many articles it has.
    pub fn len(&self) -> usize {
        self.parts.iter().map(LiveSegment::len).sum()
    }

    /// Whether it has no articles.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.parts.len()
    }

    /// Bytes that it takes, apart from the names, which it shares.
    pub fn memory_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.segment.memory_bytes() + part.gone.len() * 8).sum()
    }

    /// The articles that have all words of the question, at most `limit` of them, and how many there are in all. With
    /// `is_shown`, only articles for which it is true are found and counted.
    pub fn search(
        &self,
        question: &Question,
        limit: usize,
        is_shown: Option<&dyn Fn(&ArticleName) -> bool>,
    ) -> SearchResults {
        let mut found = SearchResults { is_whole: true, ..SearchResults::default() };
        if question.is_empty() {
            return found;
        }
        let mut best: Vec<(u32, Hit)> = Vec::new();
        for part in &self.parts {
            let mut ranked = TopHits::new(limit);
            let is_whole = part.segment.search(question, |one| {
                let is_shown = || is_shown.is_none_or(|is| is(part.segment.name(one.doc())));
                if !part.is_gone(one.doc()) && is_shown() {
                    found.count += 1;
                    ranked.add(one);
                }
            });
            found.is_whole &= is_whole;
            best.extend(ranked.finish().into_iter().map(|one| {
                let name = part.segment.name(one.doc()).clone();
                let [in_name, in_title, in_text] = one.places();
                (one.rank(), Hit { name, in_name, in_title, in_text })
            }));
        }
        best.sort_unstable_by(|(rank, hit), (other_rank, other)| {
            other_rank.cmp(rank).then_with(|| hit.name.cmp(&other.name))
        });
        best.truncate(limit);
        found.hits = best.into_iter().map(|(_, hit)| hit).collect();
        found
    }

    /// Articles with a link to `name`, at most `limit`, in ascending order, and whether there may be more. The search ends when it has
    /// enough, or has read [`LINKING_MAX`] links of each segment. A link may lead to one of two articles: to the nearer one if
    /// `is_there` says that it exists. Articles that are not `is_shown` are left out.
    pub fn linking_to(
        &self,
        name: &ArticleName,
        limit: usize,
        is_there: impl Fn(&str) -> bool,
        is_shown: impl Fn(&ArticleName) -> bool,
    ) -> (Vec<ArticleName>, bool) {
        let mut linking = std::collections::BTreeSet::new();
        let mut is_more = false;
        for part in &self.parts {
            let is_shown = |doc: usize| {
                let from = part.segment.name(doc);
                !part.is_gone(doc) && from != name && is_shown(from)
            };
            let limits = (limit, LINKING_MAX);
            let (docs, is_whole) = part.segment.linking_to(name, limits, &is_there, is_shown);
            is_more |= !is_whole;
            linking.extend(docs.into_iter().map(|doc| part.segment.name(doc).clone()));
        }
        is_more |= linking.len() > limit;
        (linking.into_iter().take(limit).collect(), is_more)
    }
}

impl Merge {
    /// Merges the segments. Takes time in proportion to their size.
    pub fn run(self) -> MergedSegment {
        let segment = merged(&self.parts);
        MergedSegment { of: self.parts, segment }
    }
}

#[cfg(test)]
mod tests;
