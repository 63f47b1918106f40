//! Substring search over names and titles: posting lists over most of them, a scan over the rest.
//!
//! A [`SearchIndex`] is built from one snapshot and never changes. Later changes go into a delta beside it: a search
//! scans the texts of the delta, and the delta hides what the index has under the same names. The delta is a
//! persistent data structure, as the snapshot is. No write builds an index: the owner of the snapshot asks
//! [`crate::Snapshot::wants_index`] and builds it on a thread of its choice, while writes go on making further
//! snapshots.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use imbl::OrdMap;
use postings::{DocId, TextColumn, TrigramIndex};

use crate::ArticleName;

/// Posting lists over the names and titles of one snapshot's articles.
#[derive(Debug)]
pub struct SearchIndex {
    /// In ascending order; their positions are the doc ids.
    names: Box<[ArticleName]>,
    trigrams: TrigramIndex,
    /// The generation of the delta that this index was built from.
    generation: u64,
}

/// The part of a snapshot that answers searches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    base: Option<Arc<SearchIndex>>,
    /// The articles that changed since the index was built, by name.
    delta: OrdMap<ArticleName, TextChange>,
    /// Grows with each change.
    generation: u64,
}

#[derive(Clone, Debug)]
struct TextChange {
    generation: u64,
    /// The folded text; `None` if the article was purged.
    text: Option<Arc<str>>,
}

/// Separates name and title, so that no match spans both.
const BETWEEN: char = '\n';

/// `text` in upper case, character by character, wherever both cases are single characters: `ς`, `σ` and `Σ` become
/// one, but `ß` stays apart from `ss`, and `é` from `e`.
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    crate::name::normalize(text).chars().map(fold_char).collect()
}

fn fold_char(character: char) -> char {
    fn single(character: char, mut mapped: impl Iterator<Item = char>) -> char {
        match (mapped.next(), mapped.next()) {
            (Some(mapped), None) => mapped,
            _ => character,
        }
    }
    // Lower case comes first: there is no other way from ẞ to ß, or from ϴ to θ.
    let lower = single(character, character.to_lowercase());
    single(lower, lower.to_uppercase())
}

/// The text that an article is searched by.
pub(crate) fn searched_text(name: &ArticleName, title: Option<&str>) -> String {
    let mut text = fold(name.as_str());
    if let Some(title) = title {
        text.push(BETWEEN);
        text.push_str(&fold(title));
    }
    text
}

impl Search {
    /// Records that `name` is now searched by `text`, or has been purged if that is `None`.
    pub(crate) fn change(&mut self, name: ArticleName, text: Option<String>) {
        self.generation += 1;
        let changed = TextChange { generation: self.generation, text: text.map(Arc::from) };
        self.delta.insert(name, changed);
    }

    /// Whether the delta is so large that scanning it is a noticeable part of a search.
    pub(crate) fn wants_index(&self) -> bool {
        /// Scanning this many texts takes some ten microseconds.
        const DELTA_MIN: usize = 256;
        let base = self.base.as_ref().map_or(0, |base| base.names.len());
        self.delta.len() > DELTA_MIN.max(base / 32)
    }

    pub(crate) fn build(
        &self,
        articles: impl Iterator<Item = (ArticleName, String)>,
    ) -> SearchIndex {
        let (names, texts): (Vec<ArticleName>, Vec<String>) = articles.unzip();
        let trigrams = TrigramIndex::build(TextColumn::from_texts(texts));
        SearchIndex { names: names.into(), trigrams, generation: self.generation }
    }

    /// Uses `index`, which was built from this snapshot or an earlier one.
    pub(crate) fn adopt(&mut self, index: Arc<SearchIndex>) {
        let current = self.base.as_ref().map_or(0, |base| base.generation);
        if index.generation < current || index.generation > self.generation {
            return;
        }
        let delta = std::mem::take(&mut self.delta);
        self.delta = delta.into_iter().filter(|(_, it)| it.generation > index.generation).collect();
        self.base = Some(index);
    }

    /// The names from `from` on whose text contains `needle` (folded by this function), in ascending order, and whether these are
    /// all: of the index, only the first `docs_max` are looked up.
    pub(crate) fn containing(
        &self,
        needle: &str,
        from: Bound<&str>,
        docs_max: usize,
    ) -> (Vec<ArticleName>, bool) {
        let needle = fold(needle);
        if needle.chars().any(char::is_control) {
            return (Vec::new(), true);
        }
        let base = self.base.as_ref();
        let range: (Bound<&str>, Bound<&str>) = (from, Bound::Unbounded);
        let docs = base.map_or_else(Vec::new, |base| {
            let is_before =
                |name: &ArticleName| !RangeBounds::<str>::contains(&range, name.as_str());
            let first = base.names.partition_point(is_before);
            base.trigrams.containing_from(&needle, DocId(first as u32), docs_max)
        });
        let is_all = docs.len() < docs_max;
        let name = |DocId(doc)| base.and_then(|base| base.names.get(doc as usize));
        let mut found = Vec::with_capacity(docs.len());
        let mut changed = self
            .delta
            .range::<_, str>(range)
            .filter(|(_, it)| it.text.as_ref().is_some_and(|text| text.contains(&needle)))
            .map(|(name, _)| name)
            .peekable();
        for name in docs.into_iter().filter_map(name) {
            if self.delta.contains_key(name) {
                continue;
            }
            while let Some(earlier) = changed.next_if(|changed| *changed < name) {
                found.push(earlier.clone());
            }
            found.push(name.clone());
        }
        // The index may have other names between those that changed.
        if is_all {
            found.extend(changed.cloned());
        }
        (found, is_all)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::{Search, fold};
    use crate::ArticleName;

    fn name(number: u32) -> ArticleName {
        ArticleName::parse(&format!("n{number:03}")).expect("a name")
    }

    proptest::proptest! {
        /// However few are looked up, they are the first ones.
        #[test]
        fn the_first_of_many(
            indexed in proptest::collection::btree_set(0_u32..60, 0..40),
            changed in proptest::collection::btree_map(0_u32..60, proptest::option::of("[ab]{0,2}"), 0..20),
            docs_max in 0_usize..30,
            after in 0_u32..60,
        ) {
            let mut search = Search::default();
            let texts = indexed.iter().map(|&number| (name(number), "XAX".to_owned()));
            let index = search.build(texts);
            search.adopt(index.into());
            for (number, text) in changed {
                search.change(name(number), text.map(|text| fold(&text)));
            }
            let (all, is_all) = search.containing("a", Bound::Unbounded, usize::MAX);
            proptest::prop_assert!(is_all && all.is_sorted());
            let after = name(after);
            let from = Bound::Excluded(after.as_str());
            let all: Vec<_> = all.into_iter().filter(|name| *name > after).collect();
            let (first, is_all) = search.containing("a", from, docs_max);
            proptest::prop_assert!(all.starts_with(&first));
            proptest::prop_assert!(!is_all || first == all);
            proptest::prop_assert!(is_all || docs_max <= indexed.len());
        }
    }

    #[track_caller]
    fn check(text: &str, folded: &str) {
        assert_eq!(fold(text), folded, "{text}");
    }

    #[test]
    fn case_is_folded_and_nothing_else() {
        check("Ab-1", "AB-1");
        check("ς σ Σ", "Σ Σ Σ");
        check("ß ẞ ss", "ß ß SS");
        check("ϴ θ ϑ", "Θ Θ Θ");
        check("ſ ı İ", "S I İ");
        check("ǆ ǅ", "Ǆ Ǆ");
        check("e\u{301} É e", "É É E");
        check("日😀", "日😀");
    }

    proptest::proptest! {
        #[test]
        fn what_is_folded_stays(text in "\\PC{0,8}") {
            let folded = fold(&text);
            proptest::prop_assert_eq!(fold(&folded), folded);
        }
    }
}
