//! Searches the indexes of a segment: for texts that contain something, exact values, and texts with several words.

use memchr::memmem::Finder;
use postings::{DocId, TrigramIndex};

use crate::field::{By, Mode};
use crate::fold::{fold, folded_bytes};
use crate::needles::Needles;
use crate::params::Arg;
use crate::segment::Segment;

impl Segment {
    /// The packages whose name, or name or description, contains the folded `needle` or begins with it; at most
    /// `limit` of them.
    pub(crate) fn find_text(&self, by: By, mode: Mode, needle: &str, limit: usize) -> Vec<DocId> {
        let names = match mode {
            Mode::Contains => self.names().containing(needle, limit),
            Mode::StartsWith => self
                .names()
                .column()
                .starting_with(needle.as_bytes())
                .take(limit)
                .map(DocId)
                .collect(),
        };
        if by == By::Name || names.len() >= limit {
            return names;
        }
        let mut descriptions = match mode {
            Mode::Contains => self.descriptions().containing(needle, limit),
            Mode::StartsWith => self.descriptions().containing(needle, usize::MAX),
        };
        if mode == Mode::StartsWith {
            let column = self.descriptions().column();
            descriptions.retain(|&doc| column.text(doc).starts_with(needle.as_bytes()));
        }
        union(&names, &descriptions, limit)
    }

    /// The packages with `arg` as a value of an exact field, in name order.
    pub(crate) fn find_by(&self, by: By, arg: &Arg, limit: usize) -> Vec<DocId> {
        if matches!(by, By::Name | By::NameDesc) {
            return self.find_text(by, Mode::Contains, &fold(&arg.literal), limit);
        }
        self.find_term(by, &folded_bytes(arg.literal.trim_end_matches(' ')), limit)
    }

    /// The packages with a folded value of an exact field, in name order.
    fn find_term(&self, by: By, term: &[u8], limit: usize) -> Vec<DocId> {
        if by == By::PackageBase {
            let base = self.find_base(term).map(|base| self.packages_of(base));
            return base.unwrap_or_default().iter().take(limit).copied().collect();
        }
        let found = self.terms().documents(by as u8, term, limit);
        if by == By::Provides {
            let own: Vec<DocId> = self.names().column().equal_to(term).map(DocId).collect();
            return union(&found, &own, limit);
        }
        found
    }

    /// The packages with at least one of these as a value of an exact field, in name order; at most `limit` of them. A repeated
    /// value is looked up once, so all lists together are never longer than the index's lists for the field.
    pub(crate) fn find_any(&self, by: By, args: &[Arg], limit: usize) -> Vec<DocId> {
        if let [only] = args {
            return self.find_by(by, only, limit);
        }
        let mut terms: Vec<_> =
            args.iter().map(|arg| folded_bytes(arg.literal.trim_end_matches(' '))).collect();
        terms.sort_unstable();
        terms.dedup();
        let mut found: Vec<DocId> =
            terms.iter().flat_map(|term| self.find_term(by, term, limit)).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        found
    }

    /// The packages that have every word in their name, or in name or description; at most `limit` of them. Without words, all
    /// packages.
    pub(crate) fn find_words(
        &self,
        by: By,
        mode: Mode,
        needles: &Needles,
        limit: usize,
    ) -> Vec<DocId> {
        // An upper bound of the number of texts with the word.
        let count_max = |word: &str| {
            let descriptions = if by == By::Name { None } else { Some(self.descriptions()) };
            [Some(self.names()), descriptions]
                .into_iter()
                .flatten()
                .map(|index| index.count_max(word))
                .sum::<usize>()
        };
        let mut words: Vec<&str> = needles.words().collect();
        words.sort_by_cached_key(|word| count_max(word));
        let (rarest, others) = match *words {
            [] => return self.find_text(by, mode, "", limit),
            [only] => return self.find_text(by, mode, only, limit),
            [rarest, ref others @ ..] => (rarest, others),
        };
        let has = |index: &TrigramIndex, doc: DocId, finder: &Finder<'_>| match mode {
            Mode::Contains => index.column().contains(doc, finder),
            Mode::StartsWith => index.column().text(doc).starts_with(finder.needle()),
        };
        let finders: Vec<_> = others.iter().map(Finder::new).collect();
        let is_in = |doc: DocId| {
            finders.iter().all(|finder| {
                has(self.names(), doc, finder)
                    || by != By::Name && has(self.descriptions(), doc, finder)
            })
        };
        let found = self.find_text(by, mode, rarest, usize::MAX);
        found.into_iter().filter(|&doc| is_in(doc)).take(limit).collect()
    }

    /// The packages that have at least one of these words in their name, or in name or description; at most `limit` of them.
    pub(crate) fn find_any_word<'a>(
        &self,
        by: By,
        words: impl Iterator<Item = &'a str>,
        limit: usize,
    ) -> Vec<DocId> {
        let mut found = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for word in words.map(fold) {
            if seen.contains(&word) {
                continue;
            }
            found = union(&found, &self.find_text(by, Mode::Contains, &word, limit), limit);
            if found.len() == limit {
                break;
            }
            seen.push(word);
        }
        found
    }
}

/// The first `limit` of both ascending lists together, each doc id once.
fn union(one: &[DocId], other: &[DocId], limit: usize) -> Vec<DocId> {
    let mut merged = Vec::with_capacity((one.len() + other.len()).min(limit));
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while merged.len() < limit {
        let next = match (one.peek(), other.peek()) {
            (Some(&&first), Some(&&second)) => first.min(second),
            (Some(&&only), None) | (None, Some(&&only)) => only,
            (None, None) => break,
        };
        one.next_if(|&&doc| doc == next);
        other.next_if(|&&doc| doc == next);
        merged.push(next);
    }
    merged
}
