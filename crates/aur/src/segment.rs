//! A segment: packages with the indexes over them, built once.
//!
//! packages -> [`SegmentBuilder`] -> [`Segment`]. A [`crate::Snapshot`] is one large segment, and perhaps smaller ones with
//! what has changed since.
//!
//! Doc ids are positions in name order, so every posting list is in the order of an answer.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use postings::{Block, DocId, DocSet, HUGE_PAGE_BYTES, TermIndex, TextColumn, TrigramIndex};
use twox_hash::XxHash3_64;

use crate::fold::{folded_bytes, lower};
use crate::record::Record;
use crate::sort_key::{Key, Keys};

mod builder;

pub(crate) use builder::SegmentBuilder;

/// Records are stored in blocks of this size, so that growth never copies them. A larger record would need a block of
/// its own; the dump reader allows none that large.
const BLOCK_BYTES: usize = HUGE_PAGE_BYTES;

/// Up to this many sort keys are read from the records each time, in some hundred microseconds. Those of all packages take a hundred
/// times as long, and the first page of a package after a refresh would wait for them.
const KEYS_READ_MAX: usize = 1_024;

/// Packages, with the indexes over them.
pub(crate) struct Segment {
    blocks: Vec<Block>,
    records: Box<[RecordPlace]>,
    /// Folded names, ascending.
    names: TrigramIndex,
    /// The packages whose name is byte for byte the lower case of its folded form: nearly all.
    plain_names: DocSet,
    /// Doc ids by the hash of the folded name.
    docs_by_name: HashTable<u32>,
    hasher: RandomState,
    /// Folded descriptions.
    descriptions: TrigramIndex,
    /// Folded names of package bases, ascending, each with a package of that base.
    bases: TextColumn,
    /// The positions in `bases` of names that are the lower case of their folded form.
    plain_bases: DocSet,
    /// Where the packages of each base start in `docs_by_base`; one entry more than bases.
    base_starts: Box<[u32]>,
    /// The packages, by rising position of their base, and of one base by rising doc id.
    docs_by_base: Box<[DocId]>,
    /// The positions in `bases` of bases that have no package, ascending, with their names as JSON.
    empty_bases: Box<[(u32, Box<[u8]>)]>,
    /// Exact terms: one namespace for each [`crate::By`].
    terms: TermIndex,
    /// The sort keys of lists, once a long one is requested.
    keys: OnceLock<Keys>,
    duplicate_count: u32,
}

/// The place of a package's record.
struct RecordPlace {
    /// Block number times [`BLOCK_BYTES`], plus the offset in the block.
    place: u64,
    /// The record's digest, or 0 until an answer has needed it: most never do.
    digest: AtomicU64,
}

impl fmt::Debug for Segment {
    /// Shows the size only: a hundred thousand packages make no readable debug output.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Segment")
            .field("packages", &self.package_count())
            .finish_non_exhaustive()
    }
}

impl Segment {
    /// Number of packages.
    pub(crate) fn package_count(&self) -> u32 {
        self.records.len() as u32
    }

    /// Number of package bases.
    pub(crate) fn package_base_count(&self) -> u32 {
        self.bases.len()
    }

    /// Records that were left out because a later one has the same name.
    pub(crate) fn duplicate_count(&self) -> u32 {
        self.duplicate_count
    }

    #[inline]
    pub(crate) fn record(&self, doc: DocId) -> Record<'_> {
        Record::at(self.bytes_from(doc))
    }

    /// The bytes from the start of the package's record to the end of its block.
    pub(crate) fn bytes_from(&self, doc: DocId) -> &[u8] {
        self.bytes_at(self.place(doc))
    }

    /// The place of the package's record among all records: they lie in the order in which they were added.
    pub(crate) fn place(&self, doc: DocId) -> u64 {
        self.records[doc.0 as usize].place
    }

    /// The bytes from the start of the record at this place to the end of its block.
    pub(crate) fn bytes_at(&self, place: u64) -> &[u8] {
        let place = place as usize;
        &self.blocks[place / BLOCK_BYTES][place % BLOCK_BYTES..]
    }

    /// A digest of the record. Packages that are equal in every value have the same digest in every process.
    pub(crate) fn digest(&self, doc: DocId) -> u64 {
        match self.records[doc.0 as usize].digest.load(Relaxed) {
            0 => self.first_digest(doc),
            digest => digest,
        }
    }

    #[cold]
    fn first_digest(&self, doc: DocId) -> u64 {
        let bytes = self.bytes_from(doc);
        let digest = XxHash3_64::oneshot(&bytes[..Record::at(bytes).size_bytes()]);
        self.records[doc.0 as usize].digest.store(digest, Relaxed);
        digest
    }

    /// Reads the first bytes of these records before they are needed: the processor then waits for all of them at
    /// once, not for one after another.
    pub(crate) fn warm_up(&self, docs: &[DocId]) {
        /// The size of a cache line, and how many lines of most records a search shows.
        const LINE_BYTES: usize = 64;
        const LINES: usize = 5;

        let mut sum = 0_u8;
        for doc in docs {
            let place = self.records[doc.0 as usize].place as usize;
            let rest = self.blocks[place / BLOCK_BYTES].get(place % BLOCK_BYTES..);
            // The last records of a block have fewer lines after them.
            if let Some(lines) = rest.and_then(|rest| rest.first_chunk::<{ LINES * LINE_BYTES }>())
            {
                for line in 0..LINES {
                    sum ^= lines[line * LINE_BYTES];
                }
            }
        }
        std::hint::black_box(sum);
    }

    /// The package with this name, in any case of letters; accents count.
    pub(crate) fn find(&self, name: &str) -> Option<DocId> {
        let folded = folded_bytes(name);
        let first = self.find_folded(&folded)?;
        if name.is_ascii() && self.plain_names.has(first) {
            return Some(first);
        }
        let wanted = lower(name);
        (first.0..self.package_count())
            .map(DocId)
            .take_while(|&doc| self.names.column().text(doc) == folded)
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

    /// Appends the JSON string of the package's name.
    #[inline(always)]
    pub(crate) fn write_name(&self, doc: DocId, out: &mut Vec<u8>) {
        if self.plain_names.has(doc) {
            write_lower(self.names.column().text(doc), out);
        } else {
            out.extend_from_slice(self.record(doc).name());
        }
    }

    /// Appends the JSON string of the base's name at this position in [`Segment::bases`].
    #[inline(always)]
    pub(crate) fn write_base(&self, base: u32, out: &mut Vec<u8>) {
        if self.plain_bases.has(DocId(base)) {
            write_lower(self.bases.text(DocId(base)), out);
        } else {
            out.extend_from_slice(self.base_name(base));
        }
    }

    /// The JSON string of the base's name at this position in [`Segment::bases`].
    pub(crate) fn base_name(&self, base: u32) -> &[u8] {
        match self.packages_of(base) {
            // The first package by name stands for its base.
            [first, ..] => self.record(*first).package_base(),
            [] => {
                let place = self.empty_bases.binary_search_by_key(&base, |(base, _)| *base);
                place.map_or(b"\"\"", |at| &self.empty_bases[at].1)
            }
        }
    }

    /// The packages of the base at this position in [`Segment::bases`], ascending; empty if the base was only named.
    pub(crate) fn packages_of(&self, base: u32) -> &[DocId] {
        let [start, end] = [base, base + 1].map(|at| self.base_starts[at as usize] as usize);
        &self.docs_by_base[start..end]
    }

    /// The position of the base with this folded name in [`Segment::bases`].
    pub(crate) fn find_base(&self, folded: &[u8]) -> Option<u32> {
        self.bases.equal_to(folded).next()
    }

    /// The names of those bases without a package for which `is_wanted` yields true. It is called with their positions.
    pub(crate) fn empty_base_names(
        &self,
        is_wanted: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = String> {
        let wanted = self.empty_bases.iter().filter(move |(base, _)| is_wanted(*base));
        wanted.filter_map(|(_, json)| serde_json::from_slice(json).ok())
    }

    /// The position of the first package that does not come before one with this folded name, whose [`Segment::lower_name`] is `lower()`.
    pub(crate) fn position(&self, folded: &[u8], lower: impl FnOnce() -> String) -> u32 {
        let equal = self.names.column().equal_to(folded);
        if equal.is_empty() {
            return equal.start;
        }
        // Names that differ only in accents are ordered by their lower case.
        let lower = lower();
        equal.clone().find(|&doc| self.lower_name(DocId(doc)) >= lower).unwrap_or(equal.end)
    }

    /// The package's name as JSON in lower case: the order of names whose folded forms are equal.
    pub(crate) fn lower_name(&self, doc: DocId) -> String {
        lower(&String::from_utf8_lossy(self.record(doc).name()))
    }

    /// The sort key of the package, one of `count` that are wanted together: if these are many, the keys of all packages are read, once.
    pub(crate) fn key(&self, doc: DocId, count: usize) -> Key {
        let key = |doc| Key::of(self.record(DocId(doc)));
        match self.keys.get() {
            None if count <= KEYS_READ_MAX => key(doc.0),
            _ => {
                let keys = self.keys.get_or_init(|| (0..self.package_count()).map(key).collect());
                keys[doc.0 as usize]
            }
        }
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
}

/// Appends a folded name in lower case, as a JSON string.
#[inline(always)]
fn write_lower(folded: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.extend_from_slice(folded);
    out[start..].make_ascii_lowercase();
    out.push(b'"');
}

/// Whether `name` is the lower case of its folded form and needs no escape in JSON.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| {
        matches!(byte, b' '..=b'~') && !byte.is_ascii_uppercase() && !matches!(byte, b'"' | b'\\')
    })
}
