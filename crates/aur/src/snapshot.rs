//! The AUR snapshot: every package of one dump, ready to answer queries.
//!
//! packages -> [`SnapshotBuilder`] -> [`Snapshot`] -> [`Snapshot::answer`]
//!
//! Doc ids are positions in name order, so every posting list is in the order of an answer.
//! A snapshot never changes once built; a refresh builds the next one and swaps it in.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use postings::{DocId, TermIndex, TermIndexBuilder, TextColumn, TrigramIndex};

use crate::field::{By, Field};
use crate::fold::{fold, fold_into, lower};
use crate::package::{Package, Text, Texts};
use crate::record::{Record, RecordWriter};

/// Records lie in blocks of this size, so that growing never copies them. A record is smaller than
/// a block: the reader of dumps bounds it.
const BLOCK_BYTES: usize = 2 << 20;

/// Every package of one dump, with the indexes over them.
pub struct Snapshot {
    blocks: Vec<Vec<u8>>,
    /// Where each package's record is: block number times [`BLOCK_BYTES`] plus the place in it.
    records: Box<[u64]>,
    /// Folded names, ascending.
    names: TrigramIndex,
    /// Doc ids by the hash of the folded name.
    docs_by_name: HashTable<u32>,
    hasher: RandomState,
    /// Folded descriptions.
    descriptions: TrigramIndex,
    /// Folded names of package bases, ascending, and for each a package of that base.
    bases: TextColumn,
    packages_of_bases: Box<[DocId]>,
    /// Exact terms: one namespace for each [`By`].
    terms: TermIndex,
    duplicate_count: u32,
}

impl fmt::Debug for Snapshot {
    /// Its size; a hundred thousand packages are no debug output.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Snapshot")
            .field("packages", &self.package_count())
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Number of packages.
    pub fn package_count(&self) -> u32 {
        self.records.len() as u32
    }

    /// Number of package bases.
    pub fn package_base_count(&self) -> u32 {
        self.bases.len()
    }

    /// Records of the dump that were left out because a later one has the same name.
    pub fn duplicate_count(&self) -> u32 {
        self.duplicate_count
    }

    pub(crate) fn record(&self, doc: DocId) -> Record<'_> {
        let place = self.records[doc.0 as usize] as usize;
        Record::at(&self.blocks[place / BLOCK_BYTES][place % BLOCK_BYTES..])
    }

    /// The package with this name, whatever the case of its letters; accents count.
    pub(crate) fn find(&self, name: &str) -> Option<DocId> {
        let folded = fold(name);
        let first = self.find_folded(folded.as_bytes())?;
        let wanted = lower(name);
        (first.0..self.package_count())
            .map(DocId)
            .take_while(|&doc| self.names.column().text(doc) == folded.as_bytes())
            .find(|&doc| {
                let name: String =
                    serde_json::from_slice(self.record(doc).name()).unwrap_or_default();
                lower(&name) == wanted
            })
    }

    /// The first package whose folded name is `folded`.
    pub(crate) fn find_folded(&self, folded: &[u8]) -> Option<DocId> {
        self.docs_by_name
            .find(self.hasher.hash_one(folded), |&doc| {
                self.names.column().text(DocId(doc)) == folded
            })
            .map(|&doc| DocId(doc))
    }

    pub(crate) fn names(&self) -> &TrigramIndex {
        &self.names
    }

    pub(crate) fn descriptions(&self) -> &TrigramIndex {
        &self.descriptions
    }

    pub(crate) fn terms(&self) -> &TermIndex {
        &self.terms
    }

    /// Folded names of package bases, ascending.
    pub(crate) fn bases(&self) -> &TextColumn {
        &self.bases
    }

    /// A package of the base at this place in [`Snapshot::bases`].
    pub(crate) fn package_of_base(&self, base: u32) -> DocId {
        self.packages_of_bases[base as usize]
    }
}

/// Collects packages in any order.
#[derive(Default)]
pub struct SnapshotBuilder {
    writer: RecordWriter,
    record: Vec<u8>,
    blocks: Vec<Vec<u8>>,
    records: Vec<u64>,
    names: Texts32,
    descriptions: Texts32,
    bases: Texts32,
    terms: TermIndexBuilder,
    folded: String,
}

/// Texts in the order they came, in one allocation.
#[derive(Default)]
struct Texts32 {
    text: String,
    ends: Vec<u32>,
}

impl Texts32 {
    fn push_folded(&mut self, text: &str) {
        fold_into(text, &mut self.text);
        self.ends.push(u32::try_from(self.text.len()).expect("texts of one dump exceed 4 GiB"));
    }

    fn get(&self, at: u32) -> &str {
        let start = if at == 0 { 0 } else { self.ends[at as usize - 1] as usize };
        &self.text[start..self.ends[at as usize] as usize]
    }

    /// The places of all texts, in ascending order of the texts; equal texts in the order they came.
    fn sorted(&self) -> Vec<u32> {
        // Comparing the first eight bytes as one number decides most pairs without touching the texts.
        let mut places: Vec<(u64, u32)> = (0..self.ends.len() as u32)
            .map(|place| {
                let text = self.get(place).as_bytes();
                let mut head = [0; 8];
                let size = text.len().min(8);
                head[..size].copy_from_slice(&text[..size]);
                (u64::from_be_bytes(head), place)
            })
            .collect();
        places.sort_by(|one, other| {
            one.0.cmp(&other.0).then_with(|| self.get(one.1).cmp(self.get(other.1)))
        });
        places.into_iter().map(|(_, place)| place).collect()
    }
}

impl SnapshotBuilder {
    pub(crate) fn add(&mut self, package: &Package<'_>) {
        self.record.clear();
        self.writer.write(package, &mut self.record);
        let fits =
            self.blocks.last().is_some_and(|block| block.len() + self.record.len() <= BLOCK_BYTES);
        if !fits {
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES));
        }
        let number = self.blocks.len() - 1;
        let block = &mut self.blocks[number];
        self.records.push((number * BLOCK_BYTES + block.len()) as u64);
        block.extend_from_slice(&self.record);

        self.names.push_folded(package.name.as_str());
        self.descriptions.push_folded(package.description.as_ref().map_or("", Text::as_str));
        self.bases.push_folded(package.package_base.as_str());

        let maintainer = package.maintainer.as_ref().map_or("", Text::as_str);
        self.add_term(By::Maintainer, maintainer);
        if let Some(submitter) = &package.submitter {
            self.add_term(By::Submitter, submitter.as_str());
        }
        for (by, texts) in [
            (By::Depends, &package.depends),
            (By::MakeDepends, &package.make_depends),
            (By::CheckDepends, &package.check_depends),
            (By::Provides, &package.provides),
            (By::Conflicts, &package.conflicts),
            (By::Replaces, &package.replaces),
        ] {
            self.add_terms(by, texts, relation_name);
        }
        self.add_terms(By::OptDepends, &package.opt_depends, optional_name);
        self.add_terms(By::Keywords, &package.keywords, |keyword| keyword);
        self.add_terms(By::Groups, &package.groups, |group| group);
        self.add_terms(By::CoMaintainers, &package.co_maintainers, |user| user);
        self.terms.end_document();
    }

    fn add_terms(&mut self, by: By, texts: &Texts<'_>, term: impl Fn(&str) -> &str) {
        for text in &texts.0 {
            self.add_term(by, term(text.as_str()));
        }
    }

    fn add_term(&mut self, by: By, term: &str) {
        self.folded.clear();
        // The collation ignores trailing spaces in comparisons for equality.
        fold_into(term.trim_end_matches(' '), &mut self.folded);
        self.terms.add(by as u8, self.folded.as_bytes());
    }

    /// Whether no package was added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn build(mut self) -> Snapshot {
        if let Some(block) = self.blocks.last_mut() {
            block.shrink_to_fit();
        }
        let mut order = self.names.sorted();
        // Names that differ in accents alone: brought into an order that is not that of the dump, with
        // equal names side by side, the later record last.
        for run in order.chunk_by_mut(|&one, &other| self.names.get(one) == self.names.get(other)) {
            if run.len() > 1 {
                run.sort_by_cached_key(|&place| self.name(place));
            }
        }
        let before = order.len();
        // Of equal names the last record wins; `dedup_by` keeps the first of a run, hence the swap.
        order.dedup_by(|later, earlier| {
            let is_same = self.names.get(*later) == self.names.get(*earlier)
                && self.name(*later) == self.name(*earlier);
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        let duplicate_count = (before - order.len()) as u32;

        let names = TextColumn::from_texts(order.iter().map(|&place| self.names.get(place)));
        let descriptions =
            TextColumn::from_texts(order.iter().map(|&place| self.descriptions.get(place)));
        self.names = Texts32::default();
        self.descriptions = Texts32::default();
        let records = order.iter().map(|&place| self.records[place as usize]).collect();

        let hasher = RandomState::default();
        let mut docs_by_name = HashTable::with_capacity(order.len());
        for doc in (0..order.len() as u32).map(DocId) {
            let name = names.text(doc);
            // Of names that differ in accents alone, the first stands for all.
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
        let mut bases = self.bases.sorted();
        bases.retain(|&place| docs[place as usize] != u32::MAX);
        bases.dedup_by(|later, earlier| {
            let is_same = self.bases.get(*later) == self.bases.get(*earlier);
            // The first by name stands for its base, wherever it stood in the dump.
            if is_same && docs[*later as usize] < docs[*earlier as usize] {
                *earlier = *later;
            }
            is_same
        });
        let packages_of_bases = bases.iter().map(|&place| DocId(docs[place as usize])).collect();
        let bases = TextColumn::from_texts(bases.iter().map(|&place| self.bases.get(place)));
        self.bases = Texts32::default();

        let terms = self.terms.build(&order);
        Snapshot {
            blocks: self.blocks,
            records,
            names: TrigramIndex::build(names),
            docs_by_name,
            hasher,
            descriptions: TrigramIndex::build(descriptions),
            bases,
            packages_of_bases,
            terms,
            duplicate_count,
        }
    }

    /// The JSON name of the record that came at this place, in lower case.
    fn name(&self, place: u32) -> String {
        let at = self.records[place as usize] as usize;
        let record = Record::at(&self.blocks[at / BLOCK_BYTES][at % BLOCK_BYTES..]);
        lower(&String::from_utf8_lossy(record.value(Field::Name).unwrap_or_default()))
    }
}

/// The name in a dependency or relation, without version condition.
fn relation_name(relation: &str) -> &str {
    let end = memchr::memchr3(b'<', b'>', b'=', relation.as_bytes()).unwrap_or(relation.len());
    &relation[..end]
}

/// As [`relation_name`], without the description that older dumps give optional dependencies.
fn optional_name(relation: &str) -> &str {
    let name = relation_name(relation);
    name.split_once(": ").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::{optional_name, relation_name};

    #[test]
    fn relation_names() {
        for (relation, name) in [
            ("pacman>5", "pacman"),
            ("libfoo.so=1-64", "libfoo.so"),
            ("lib:libfoo.so", "lib:libfoo.so"),
            ("a<=2", "a"),
            ("", ""),
        ] {
            assert_eq!(relation_name(relation), name);
        }
        assert_eq!(optional_name("gtk: for the window"), "gtk");
        assert_eq!(optional_name("lib:gtk>=3"), "lib:gtk");
    }
}
