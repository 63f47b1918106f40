//! [`SegmentBuilder`]: a segment from packages in any order.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use postings::{Block, DocId, DocSet, TermIndexBuilder, TextColumn, TrigramIndex};

use super::{BLOCK_BYTES, RecordPlace, Segment, is_plain};
use crate::field::{By, Field};
use crate::fold::{fold_into, fold_until, lower};
use crate::package::{Package, Text, Texts};
use crate::record::{Record, RecordWriter};
use crate::words;

/// Blocks of a small segment: smaller than a huge page.
const SMALL_BLOCK_BYTES: usize = 32 << 10;

/// In a segment of up to this many packages, scanning all texts is faster than an index.
const SCANNED_PACKAGES_MAX: usize = 8192;

/// The number of a named base among those of packages: no segment has half as many.
const NAMED_BASES: u32 = 1 << 31;

/// Initial capacity: the AUR of 2026 and a fifth more. Packages, bytes of a name, bytes of a description. Memory that
/// is reserved and not written to costs nothing; growth means copying.
const PACKAGES: usize = 128 << 10;
const NAME_BYTES: usize = 24;
const DESCRIPTION_BYTES: usize = 72;

/// If a catalogue does not fit, its capacity is multiplied by this at once.
const GROWTH: usize = 8;

/// Builds a segment from packages in any order.
pub(crate) struct SegmentBuilder {
    writer: RecordWriter,
    blocks: Vec<Block>,
    /// How many bytes of the last block have been written.
    block_bytes: usize,
    /// The size of a block.
    block_bytes_max: usize,
    records: Vec<u64>,
    names: Texts32,
    plain_names: Vec<bool>,
    descriptions: Texts32,
    bases: Texts32,
    plain_bases: Vec<bool>,
    /// Names of bases that may have no package.
    named_bases: Vec<String>,
    terms: TermIndexBuilder,
}

/// Texts in the order in which they were added, in one allocation.
#[derive(Default)]
struct Texts32 {
    /// Bytes of UTF-8.
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts32 {
    /// Reserves memory for this many more texts of this many bytes each.
    fn reserve(&mut self, more: usize, bytes: usize) {
        self.text.reserve(more * bytes);
        self.ends.reserve(more);
    }

    fn push_folded(&mut self, text: &[u8]) {
        fold_into(text, &mut self.text);
        self.ends.push(u32::try_from(self.text.len()).expect("texts of one dump exceed 4 GiB"));
    }

    fn get(&self, at: u32) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at as usize - 1] as usize };
        &self.text[start..self.ends[at as usize] as usize]
    }

    /// The positions of all texts in ascending order of the texts; equal texts in the order in which they were added.
    fn sorted(&self) -> Vec<u32> {
        // Comparing the first sixteen bytes as one number decides most pairs without reading the texts.
        let mut places: Vec<(u128, u32)> = (0..self.ends.len() as u32)
            .map(|place| {
                let text = self.get(place);
                let mut head = [0; 16];
                let size = text.len().min(16);
                head[..size].copy_from_slice(&text[..size]);
                (u128::from_be_bytes(head), place)
            })
            .collect();
        places.sort_by(|one, other| {
            one.0.cmp(&other.0).then_with(|| self.get(one.1).cmp(self.get(other.1)))
        });
        places.into_iter().map(|(_, place)| place).collect()
    }
}

impl Default for SegmentBuilder {
    fn default() -> SegmentBuilder {
        SegmentBuilder::with_room(PACKAGES)
    }
}

impl SegmentBuilder {
    /// A builder with room for about this many packages.
    pub(crate) fn with_room(packages: usize) -> SegmentBuilder {
        let is_small = packages <= SCANNED_PACKAGES_MAX;
        let mut builder = SegmentBuilder {
            writer: RecordWriter::default(),
            blocks: Vec::new(),
            block_bytes: 0,
            block_bytes_max: if is_small { SMALL_BLOCK_BYTES } else { BLOCK_BYTES },
            records: Vec::new(),
            names: Texts32::default(),
            plain_names: Vec::new(),
            descriptions: Texts32::default(),
            bases: Texts32::default(),
            plain_bases: Vec::new(),
            named_bases: Vec::new(),
            terms: TermIndexBuilder::with_capacity(packages),
        };
        builder.reserve(packages);
        builder
    }

    /// Reserves memory for this many more packages. Memory that stays unused costs nothing.
    fn reserve(&mut self, more: usize) {
        self.records.reserve(more);
        self.names.reserve(more, NAME_BYTES);
        self.plain_names.reserve(more);
        self.descriptions.reserve(more, DESCRIPTION_BYTES);
        self.bases.reserve(more, NAME_BYTES);
        self.plain_bases.reserve(more);
        self.terms.reserve(more);
    }

    pub(crate) fn add(&mut self, package: &Package<'_>) {
        if self.records.len() == self.records.capacity() {
            self.reserve(self.records.len() * (GROWTH - 1));
        }
        let size = self.writer.encode(package);
        if self.blocks.is_empty() || self.block_bytes + size > self.block_bytes_max {
            self.blocks.push(Block::zeroed(self.block_bytes_max.max(size)));
            self.block_bytes = 0;
        }
        let number = self.blocks.len() - 1;
        self.records.push((number * BLOCK_BYTES + self.block_bytes) as u64);
        let place = self.block_bytes..self.block_bytes + size;
        self.writer.write_to(&mut self.blocks[number][place]);
        self.block_bytes += size;

        self.names.push_folded(package.name.as_bytes());
        self.plain_names.push(is_plain(package.name.as_bytes()));
        self.descriptions
            .push_folded(package.description.as_ref().map_or(&b""[..], Text::as_bytes));
        self.bases.push_folded(package.package_base.as_bytes());
        self.plain_bases.push(is_plain(package.package_base.as_bytes()));

        let maintainer = package.maintainer.as_ref().map_or(&b""[..], Text::as_bytes);
        self.add_person(By::Maintainer, maintainer);
        if let Some(submitter) = &package.submitter {
            self.add_person(By::Submitter, submitter.as_bytes());
        }
        for (by, texts) in [
            (By::Depends, &package.depends),
            (By::MakeDepends, &package.make_depends),
            (By::CheckDepends, &package.check_depends),
            (By::Replaces, &package.replaces),
        ] {
            self.add_shared(by, texts, words::relation_signs);
        }
        // These terms are specific to a package and seldom shared.
        self.add_terms(By::Provides, &package.provides, words::relation_signs);
        self.add_terms(By::Conflicts, &package.conflicts, words::relation_signs);
        package
            .opt_depends
            .each(|text| add_term(&mut self.terms, By::OptDepends, words::optional_name(text)));
        self.add_shared(By::Keywords, &package.keywords, |_| 0);
        self.add_shared(By::Groups, &package.groups, |_| 0);
        self.add_shared(By::CoMaintainers, &package.co_maintainers, |_| 0);
        self.terms.end_document();
    }

    /// Adds a package base by its name. Ignored if a package of that base is added.
    pub(crate) fn add_base(&mut self, name: String) {
        self.named_bases.push(name);
    }

    /// Adds terms as [`SegmentBuilder::add_terms`] does, for lists that several packages share unchanged, such as
    /// the packages of one base, which follow each other in a dump.
    #[inline(always)]
    fn add_shared(&mut self, by: By, texts: &Texts<'_>, marks: impl Fn(u64) -> u64) {
        match texts {
            Texts::Verbatim(list) => {
                self.terms.add_from(by as u8, list, |terms| add_listed(terms, by, list, marks));
            }
            Texts::Parsed(_) => self.add_terms(by, texts, marks),
        }
    }

    /// Adds a term for each text: the part before the first byte that `marks` marks.
    #[inline(always)]
    fn add_terms(&mut self, by: By, texts: &Texts<'_>, marks: impl Fn(u64) -> u64) {
        match texts {
            Texts::Verbatim(list) => add_listed(&mut self.terms, by, list, marks),
            Texts::Parsed(texts) => texts.iter().map(Text::as_bytes).for_each(|text| {
                add_term(&mut self.terms, by, &text[..words::unmarked(text, &marks)]);
            }),
        }
    }

    fn add_person(&mut self, by: By, name: &[u8]) {
        self.terms.add_from(by as u8, name, |terms| add_term(terms, by, name));
    }

    /// How many bases the segment has at most: one for each package, and those that were only named.
    pub(crate) fn base_count_max(&self) -> usize {
        self.records.len() + self.named_bases.len()
    }

    /// How many packages have been added.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no package has been added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn build(mut self) -> Segment {
        let is_small = self.block_bytes_max == SMALL_BLOCK_BYTES;
        let mut order = self.names.sorted();
        // The order of names that differ only in accents must not depend on the dump. Equal names come side by side, the later
        // record last.
        for run in order.chunk_by_mut(|&one, &other| self.names.get(one) == self.names.get(other)) {
            if run.len() > 1 {
                run.sort_by_cached_key(|&place| self.name(place));
            }
        }
        let before = order.len();
        // The last record of equal names wins. `dedup_by` keeps the first of a run, hence the swap.
        order.dedup_by(|later, earlier| {
            let is_same = self.names.get(*later) == self.names.get(*earlier)
                && self.name(*later) == self.name(*earlier);
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        let duplicate_count = (before - order.len()) as u32;

        let names = TextColumn::from_ascending(order.iter().map(|&place| self.names.get(place)));
        let descriptions =
            TextColumn::from_texts(order.iter().map(|&place| self.descriptions.get(place)));
        drop(self.names);
        drop(self.descriptions);
        let plain_names =
            DocSet::from_bools(order.iter().map(|&place| self.plain_names[place as usize]));
        let records = order
            .iter()
            .map(|&place| RecordPlace {
                place: self.records[place as usize],
                digest: AtomicU64::new(0),
            })
            .collect();

        let hasher = RandomState::default();
        let mut docs_by_name = HashTable::with_capacity(order.len());
        for doc in (0..order.len() as u32).map(DocId) {
            let name = names.text(doc);
            // The first of several names that differ only in accents stands for all.
            if doc.0 == 0 || names.text(DocId(doc.0 - 1)) != name {
                docs_by_name.insert_unique(hasher.hash_one(name), doc.0, |&doc| {
                    hasher.hash_one(names.text(DocId(doc)))
                });
            }
        }

        let mut docs = vec![u32::MAX; self.records.len()];
        for (doc, &place) in (0_u32..).zip(&order) {
            docs[place as usize] = doc;
        }
        // Bases that were only named come after those of packages: the first of equal names counts.
        for (number, name) in (0..).zip(&self.named_bases) {
            self.bases.push_folded(name.as_bytes());
            self.plain_bases.push(is_plain(name.as_bytes()));
            docs.push(NAMED_BASES + number);
        }
        let mut places = self.bases.sorted();
        places.retain(|&place| docs[place as usize] != u32::MAX);
        // The place of each base's representative.
        let mut first_places = Vec::with_capacity(places.len());
        let mut base_starts = Vec::with_capacity(places.len() + 1);
        let mut docs_by_base: Vec<DocId> = Vec::with_capacity(order.len());
        let mut empty_bases = Vec::new();
        for run in places.chunk_by(|&one, &other| self.bases.get(one) == self.bases.get(other)) {
            let start = docs_by_base.len();
            // The first package by name represents its base, wherever the dump has it.
            let mut first = run[0];
            for &place in run {
                let doc = docs[place as usize];
                if doc < NAMED_BASES {
                    docs_by_base.push(DocId(doc));
                }
                if doc < docs[first as usize] {
                    first = place;
                }
            }
            docs_by_base[start..].sort_unstable();
            if docs_by_base.len() == start {
                let number = docs[first as usize] - NAMED_BASES;
                let name = serde_json::to_vec(&self.named_bases[number as usize]);
                let name = name.expect("strings serialize into memory");
                empty_bases.push((first_places.len() as u32, name.into_boxed_slice()));
            }
            first_places.push(first);
            base_starts.push(start as u32);
        }
        base_starts.push(docs_by_base.len() as u32);
        drop(places);
        let plain_bases =
            DocSet::from_bools(first_places.iter().map(|&place| self.plain_bases[place as usize]));
        let bases =
            TextColumn::from_ascending(first_places.iter().map(|&place| self.bases.get(place)));
        drop(first_places);
        drop(self.bases);

        let terms = self.terms.build(&order);
        let index = if is_small { TrigramIndex::without_lists } else { TrigramIndex::build };
        Segment {
            blocks: self.blocks,
            records,
            names: index(names),
            plain_names,
            docs_by_name,
            hasher,
            descriptions: index(descriptions),
            bases,
            plain_bases,
            base_starts: base_starts.into_boxed_slice(),
            docs_by_base: docs_by_base.into_boxed_slice(),
            empty_bases: empty_bases.into_boxed_slice(),
            terms,
            keys: OnceLock::new(),
            duplicate_count,
        }
    }

    /// The name of the record that was added at this position, as JSON in lower case.
    fn name(&self, place: u32) -> String {
        let at = self.records[place as usize] as usize;
        let record = Record::at(&self.blocks[at / BLOCK_BYTES][at % BLOCK_BYTES..]);
        lower(&String::from_utf8_lossy(record.value(Field::Name).unwrap_or_default()))
    }
}

/// Adds a term for each text of a list that is stored as in the dump: the part before the first byte that `marks`
/// marks.
#[inline(always)]
fn add_listed(terms: &mut TermIndexBuilder, by: By, list: &[u8], marks: impl Fn(u64) -> u64) {
    // Folding reads the text where it is, and finds its end on the way.
    words::each_string(list, |rest| {
        let mut size = 0;
        terms.add_with(by as u8, |term| {
            let start = term.len();
            size = fold_until(rest, |word| words::quotes(word) | marks(word), term);
            trim_end(term, start);
        });
        size
    });
}

/// Adds a text as a term.
fn add_term(terms: &mut TermIndexBuilder, by: By, text: &[u8]) {
    terms.add_with(by as u8, |term| {
        let start = term.len();
        fold_into(text, term);
        trim_end(term, start);
    });
}

/// Removes the spaces at the end of the term that begins at `start`: the collation ignores them when it compares for
/// equality.
#[inline]
fn trim_end(term: &mut Vec<u8>, start: usize) {
    while term.len() > start && term.last() == Some(&b' ') {
        term.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;
    use crate::scan;
    use crate::words::optional_name;

    fn record(name: &str, relation: &str) -> String {
        format!(
            "{{\"ID\":1,\"Name\":\"{name}\",\"PackageBaseID\":1,\"PackageBase\":\"a\",\"Version\":\"1\",\"NumVotes\":0,\
             \"Popularity\":0,\"FirstSubmitted\":1,\"LastModified\":1,\"Depends\":[\"{relation}\",\"{relation} \"]}}"
        )
    }

    #[test]
    fn a_catalogue_may_exceed_the_initial_capacity() {
        for room in [0, 1, 7] {
            let mut builder = SegmentBuilder::with_room(room);
            let names: Vec<String> = (10..99).map(|number| format!("p{number}")).collect();
            for name in &names {
                let json = record(name, &format!("of-{name}"));
                builder.add(&scan::record(&json).expect("a record").0);
            }
            let segment = builder.build();
            for (doc, name) in (0..).map(DocId).zip(&names) {
                assert_eq!(segment.find(name), Some(doc), "{room}");
                let term = fold(&format!("of-{name}"));
                let docs = segment.terms().documents(By::Depends as u8, term.as_bytes(), 9);
                assert_eq!(docs, [doc], "{room}");
            }
        }
    }

    #[track_caller]
    fn check(relation: &str, name: &str) {
        let json = record("a", relation);
        let mut builder = SegmentBuilder::default();
        // Both ways to read a list must give the same single term.
        builder.add(&serde_json::from_str(&json).expect("a record"));
        builder.add(&scan::record(&json).expect("a record").0);
        let segment = builder.build();
        assert_eq!(
            segment.terms().terms(By::Depends as u8).collect::<Vec<_>>(),
            [fold(name).as_bytes()]
        );
        assert_eq!(optional_name(relation.as_bytes()), name.as_bytes(), "{relation}");
    }

    #[test]
    fn relation_names() {
        for (relation, name) in [
            ("pacman>5", "pacman"),
            ("libfoo.so=1-64", "libfoo.so"),
            ("lib:libfoo.so", "lib:libfoo.so"),
            ("a<=2", "a"),
            ("a-name-of-more-than-sixteen-bytes>=2", "a-name-of-more-than-sixteen-bytes"),
            ("", ""),
        ] {
            check(relation, name);
        }
        assert_eq!(optional_name(b"gtk: for the window"), b"gtk");
        assert_eq!(optional_name(b"lib:gtk>=3"), b"lib:gtk");
    }
}
