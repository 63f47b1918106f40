//! The next snapshot, made of the last one and of what has changed.
//!
//! [`Changes`] or a dump -> [`Overlaying`]: which bases differ -> a new small segment -> [`Snapshot`]
//!
//! The large segment is shared, so a change costs work and memory only for the packages that have changed since that was built.
//! Once these are too many, [`Snapshot::merged`] builds a new large one.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use postings::{DocId, DocSet};

use crate::dump::{DumpError, DumpLimits, each_record};
use crate::fold::{fold, fold_into};
use crate::package::Package;
use crate::record::RecordWriter;
use crate::segment::{Segment, SegmentBuilder};
use crate::snapshot::{Overlay, SMALL, Snapshot};

/// The new state of some package bases.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The names of the bases. All packages that they had are replaced.
    pub bases: Vec<String>,
    /// The packages that they have now, as a dump: a JSON array of records.
    pub records: Vec<u8>,
    /// The names of those bases that exist and have no package.
    pub empty_bases: Vec<String>,
}

/// It is time for a new large segment once more packages are replaced than the square root of the number of all, times this. Each
/// change builds the small segment anew, so it costs in proportion to the packages in that, and a merge in proportion to all; by
/// what both were measured to cost, a change with its share of a merge costs least at about this number.
const OVERGROWN_FACTOR: u32 = 2;
/// After a dump, a large segment is kept as long as no more than one package in this many is replaced, or
/// [`REPLACED_MIN`]: all records are read for a dump anyway, and a merge takes memory for a second catalogue.
const REPLACED_SHARE: u32 = 64;
const REPLACED_MIN: u32 = 512;
/// If more than one in this many packages of a dump differs, all are read into a new large segment.
const DIFFERENT_SHARE: u32 = 32;
/// With up to this many differing packages, only these are read, whatever the size of the dump.
const DIFFERENT_MIN: u32 = 256;

impl Snapshot {
    /// The snapshot after `changes`, which shares the large segment of this one; `None` if nothing differs.
    ///
    /// # Errors
    ///
    /// [`DumpError`] if the records cannot be read, or if no package would be left.
    pub fn updated(
        &self,
        changes: &Changes,
        limits: &DumpLimits,
    ) -> Result<Option<Snapshot>, DumpError> {
        let mut next = Overlaying::new(self, changes.bases.len());
        let mut writer = RecordWriter::default();
        let mut offered: HashMap<Vec<u8>, Offered> = HashMap::new();
        each_record(&changes.records[..], limits, |package| {
            let name = String::from_utf8_lossy(package.name.as_bytes()).into_owned();
            writer.encode(package);
            let doc = self.find(&name);
            let offered = offered.entry(folded_base(package)).or_default();
            offered.differs |= doc.is_none_or(|doc| !writer.is(self.record_bytes(doc)));
            offered.names.push(name);
            true
        })?;
        offered.retain(|base, offered| {
            offered.differs || offered.names.len() != self.packages_of_base(base).count()
        });
        let mut all_records_of: HashSet<Vec<u8>> = HashSet::new();
        each_record(&changes.records[..], limits, |package| {
            let base = folded_base(package);
            if offered.contains_key(&base) {
                next.builder.add(package);
            }
            all_records_of.insert(base);
            true
        })?;
        next.touched.extend(offered.keys().cloned());
        for name in &changes.empty_bases {
            let folded = fold(name).into_bytes();
            let is_there = self.place_of_base(&folded).is_some_and(|(segment, base)| {
                let json = segment.base_name(base);
                segment.packages_of(base).is_empty()
                    && serde_json::from_slice::<String>(json).is_ok_and(|there| there == *name)
            });
            if !is_there && !all_records_of.contains(&folded) {
                next.builder.add_base(name.clone());
                next.touched.insert(folded.clone());
            }
            all_records_of.insert(folded);
        }
        // The others are gone, if they were there.
        for name in &changes.bases {
            let folded = fold(name).into_bytes();
            if !all_records_of.contains(&folded) && self.place_of_base(&folded).is_some() {
                next.touched.insert(folded);
            }
        }
        if next.touched.is_empty() {
            return Ok(None);
        }
        for base in &next.touched {
            next.dead.extend(self.packages_of_base(base).map(|doc| doc.0));
        }
        // A package may have moved here from another base, which keeps its other packages.
        for name in offered.values().flat_map(|offered| &offered.names) {
            if let Some(doc) = self.find(name)
                && next.dead.insert(doc.0)
            {
                next.touched.insert(self.folded_base_of(doc));
            }
        }
        next.finish().map(Some)
    }

    /// Whether dumps have replaced so much since the large segment was built that [`Snapshot::merged`] should be called.
    pub fn is_overgrown_by_dumps(&self) -> bool {
        // A changed package counts twice: as gone, and as added.
        self.changed_count() / 2 > (self.package_count() / REPLACED_SHARE).max(REPLACED_MIN)
    }

    /// Whether single changes have replaced so much since then that [`Snapshot::merged`] should be called.
    pub fn is_overgrown(&self) -> bool {
        // A changed package counts twice: as gone, and as added.
        self.changed_count() / 2 > self.package_count().isqrt() * OVERGROWN_FACTOR
    }

    /// The snapshot after reading a dump; it shares the large segment of this one. `bases` are further names of package bases.
    /// `None` if too much differs, or if packages are named twice: the dump must then be read into a new large segment.
    pub(crate) fn after_dump<'a>(
        &self,
        source: impl Read + Send + 'a,
        limits: &DumpLimits,
        bases: impl IntoIterator<Item = String>,
    ) -> Result<Option<Snapshot>, DumpError> {
        let different_max = (self.package_count() / DIFFERENT_SHARE).max(DIFFERENT_MIN) as usize;
        let mut next = Overlaying::new(self, 0);
        let small_count = self.overlay().map_or(0, |over| over.small.package_count());
        let mut seen = [DocSet::empty(self.large().package_count()), DocSet::empty(small_count)];
        let mut writer = RecordWriter::default();
        let is_all = each_record(source, limits, |package| {
            let name = std::str::from_utf8(package.name.as_bytes()).unwrap_or_default();
            if let Some(doc) = self.find(name) {
                if !seen[usize::from(doc.0 >= SMALL)].insert(DocId(doc.0 % SMALL)) {
                    return false;
                }
                writer.encode(package);
                if writer.is(self.record_bytes(doc)) {
                    return true;
                }
                next.touched.insert(self.folded_base_of(doc));
                next.dead.insert(doc.0);
            }
            next.touched.insert(folded_base(package));
            next.builder.add(package);
            next.builder.len() <= different_max
        })?;
        if !is_all {
            return Ok(None);
        }
        let mut gone_count = 0;
        for doc in self.docs() {
            if !seen[usize::from(doc.0 >= SMALL)].has(DocId(doc.0 % SMALL)) {
                next.touched.insert(self.folded_base_of(doc));
                next.dead.insert(doc.0);
                gone_count += 1;
            }
        }
        if gone_count > different_max {
            return Ok(None);
        }
        let mut named: HashMap<Vec<u8>, String> = HashMap::new();
        for name in bases {
            named.entry(fold(&name).into_bytes()).or_insert(name);
        }
        let empty_before: HashMap<Vec<u8>, String> = self
            .empty_base_names()
            .into_iter()
            .map(|name| (fold(&name).into_bytes(), name))
            .collect();
        for (folded, name) in &empty_before {
            if named.get(folded) != Some(name) {
                next.touched.insert(folded.clone());
            }
        }
        for folded in named.keys() {
            if !empty_before.contains_key(folded) && self.packages_of_base(folded).next().is_none()
            {
                next.touched.insert(folded.clone());
            }
        }
        // If such a base has a package, its name is ignored.
        for (folded, name) in named {
            if next.touched.contains(&folded) {
                next.builder.add_base(name);
            }
        }
        let next = next.finish()?;
        let is_twice = next.overlay().is_some_and(|over| over.small.duplicate_count() > 0);
        Ok(Some(next).filter(|_| !is_twice))
    }

    /// The packages of the base with this folded name.
    fn packages_of_base(&self, folded: &[u8]) -> impl Iterator<Item = DocId> {
        let found = self.place_of_base(folded).into_iter();
        found.flat_map(|(segment, base)| self.packages_in(segment, base))
    }

    /// The folded name of the base of this package.
    fn folded_base_of(&self, doc: DocId) -> Vec<u8> {
        folded_base(&self.record(doc).package())
    }
}

fn folded_base(package: &Package<'_>) -> Vec<u8> {
    let mut folded = Vec::new();
    fold_into(package.package_base.as_bytes(), &mut folded);
    folded
}

/// The packages that changes have for a base.
#[derive(Default)]
struct Offered {
    names: Vec<String>,
    /// Whether one of them is new or differs.
    differs: bool,
}

/// The next overlay, while it is made.
struct Overlaying<'a> {
    before: &'a Snapshot,
    builder: SegmentBuilder,
    /// The folded names of the bases that are in the small segment from now on, or nowhere.
    touched: HashSet<Vec<u8>>,
    /// The packages of `before` that are replaced, or gone.
    dead: HashSet<u32>,
}

impl<'a> Overlaying<'a> {
    fn new(before: &'a Snapshot, more: usize) -> Overlaying<'a> {
        let room = before.overlay().map_or(0, |over| over.small.package_count()) as usize;
        let builder = SegmentBuilder::with_room(room + more);
        Overlaying { before, builder, touched: HashSet::new(), dead: HashSet::new() }
    }

    /// Adds the rest of the small segment: the other packages of bases that differ, and those that it had before.
    fn finish(mut self) -> Result<Snapshot, DumpError> {
        let (large, over) = (self.before.large(), self.before.overlay());
        let (mut gone, mut gone_count, mut gone_bases, mut gone_base_count) = match over {
            Some(over) => {
                (over.gone.clone(), over.gone_count, over.gone_bases.clone(), over.gone_base_count)
            }
            None => {
                let empty = DocSet::empty;
                (empty(large.package_count()), 0, empty(large.package_base_count()), 0)
            }
        };
        for folded in &self.touched {
            let Some(base) = large.find_base(folded) else { continue };
            if !gone_bases.insert(DocId(base)) {
                continue;
            }
            gone_base_count += 1;
            for &doc in large.packages_of(base) {
                gone.insert(doc);
                gone_count += 1;
                if !self.dead.contains(&doc.0) {
                    self.builder.add(&large.record(doc).package());
                }
            }
        }
        if let Some(Overlay { small, .. }) = over {
            for doc in 0..small.package_count() {
                if !self.dead.contains(&(doc + SMALL)) {
                    self.builder.add(&small.record(DocId(doc)).package());
                }
            }
            for base in small.empty_bases() {
                if !self.touched.contains(small.bases().text(DocId(base)))
                    && let Ok(name) = serde_json::from_slice(small.base_name(base))
                {
                    self.builder.add_base(name);
                }
            }
        }
        let small = self.builder.build();
        let is_changed = small.package_base_count() > 0 || gone_base_count > 0;
        let (places, base_places) = (places(large, &small), base_places(large, &small));
        let overlay =
            Overlay { small, gone, gone_count, gone_bases, gone_base_count, places, base_places };
        let next = self.before.with_overlay(Some(overlay).filter(|_| is_changed));
        if next.package_count() == 0 {
            return Err(DumpError::Empty);
        }
        Ok(next)
    }
}

/// For each package of `small`, the first one of `large` that comes after it.
fn places(large: &Segment, small: &Segment) -> Box<[u32]> {
    (0..small.package_count())
        .map(DocId)
        .map(|doc| large.position(small.names().column().text(doc), || small.lower_name(doc)))
        .collect()
}

/// For each base of `small`, the first one of `large` that comes after it.
fn base_places(large: &Segment, small: &Segment) -> Box<[u32]> {
    (0..small.package_base_count())
        .map(|base| large.bases().equal_to(small.bases().text(DocId(base))).start)
        .collect()
}
