//! The next snapshot, made of the last one and of what has changed.
//!
//! [`Changes`] or a dump -> [`OverlayBuilder`]: which bases differ -> a new small segment -> [`Snapshot`]
//!
//! The large and the medium segment are shared, so a change costs work and memory only for the packages that have changed since the
//! medium one was built. Once these are too many, a new medium one is built with them, and in time a new large one
//! ([`Snapshot::merged`]).

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use postings::{DocId, DocSet};

use crate::dump::{DumpError, DumpLimits, each_record};
use crate::fold::{fold, fold_into};
use crate::layers::{Layer, Overlay, RemovedDocs, Successors};
use crate::package::Package;
use crate::record::RecordWriter;
use crate::segment::{Segment, SegmentBuilder};
use crate::snapshot::Snapshot;

/// The new state of some package bases.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The names of the bases. All packages that they had are replaced.
    pub bases: Vec<String>,
    /// The packages that they have now, as a dump: a JSON array of records.
    pub records: Vec<u8>,
    /// The names of those bases that exist and have no package.
    pub empty_bases: Vec<String>,
    /// The names of all users, one a line, if they are others than before.
    pub users: Option<Arc<str>>,
}

/// It is time for a new large segment once more than one package in this many is replaced, or [`REPLACED_MIN`] if that is more: a
/// search pays for these, a merge takes time and memory for a second catalogue.
const REPLACED_SHARE: u32 = 64;
const REPLACED_MIN: u32 = 512;
/// It is time for a new medium segment once the small one would have more packages than the square root of this many times those of
/// the medium one. A change costs as much as the small one has packages, and a new medium one as much as that has; by this number, the
/// sum of both is least.
const MEDIUM_FACTOR: u32 = 2;
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
        let mut next = OverlayBuilder::new(self, changes.bases.len());
        let mut writer = RecordWriter::default();
        let mut offered: HashMap<Vec<u8>, BaseUpdate> = HashMap::new();
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
            offered.differs || offered.names.len() != self.packages_of_folded(base).count()
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
            let is_there = self.place_of_base(&folded).is_some_and(|base| {
                let there = serde_json::from_slice::<String>(self.base_name(base));
                self.packages_of(base).next().is_none() && there.is_ok_and(|there| there == *name)
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
        let users = changes.users.as_ref().filter(|users| self.all_users() != Some(users));
        if next.touched.is_empty() {
            return Ok(users.map(|users| self.clone().with_users(Some(users.clone()))));
        }
        for base in &next.touched {
            next.dead.extend(self.packages_of_folded(base).map(|doc| doc.0));
        }
        // A package may have moved here from another base, which keeps its other packages.
        for name in offered.values().flat_map(|offered| &offered.names) {
            if let Some(doc) = self.find(name)
                && next.dead.insert(doc.0)
            {
                next.touched.insert(self.folded_base_of(doc));
            }
        }
        let next = next.finish()?;
        Ok(Some(match users {
            Some(users) => next.with_users(Some(users.clone())),
            None => next,
        }))
    }

    /// Whether so much was replaced since the large segment was built that [`Snapshot::merged`] should be called.
    pub fn is_overgrown(&self) -> bool {
        // A changed package counts twice: as gone, and as added.
        self.changed_count() / 2 > (self.package_count() / REPLACED_SHARE).max(REPLACED_MIN)
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
        let mut next = OverlayBuilder::new(self, 0);
        let mut seen = Layer::ALL
            .map(|layer| DocSet::empty(self.segment(layer).map_or(0, Segment::package_count)));
        let mut writer = RecordWriter::default();
        let is_all = each_record(source, limits, |package| {
            let name = std::str::from_utf8(package.name.as_bytes()).unwrap_or_default();
            if let Some(doc) = self.find(name) {
                let (layer, position) = Layer::at(doc.0);
                if !seen[layer as usize].insert(DocId(position)) {
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
            let (layer, position) = Layer::at(doc.0);
            if !seen[layer as usize].has(DocId(position)) {
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
            if !empty_before.contains_key(folded)
                && self.packages_of_folded(folded).next().is_none()
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
        let is_twice = next.overlay().is_some_and(|over| {
            over.small.duplicate_count() > 0 || over.medium.duplicate_count() > 0
        });
        Ok(Some(next).filter(|_| !is_twice))
    }

    /// The packages of the base with this folded name.
    fn packages_of_folded(&self, folded: &[u8]) -> impl Iterator<Item = DocId> {
        self.place_of_base(folded).into_iter().flat_map(|base| self.packages_of(base))
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
struct BaseUpdate {
    names: Vec<String>,
    /// Whether one of them is new or differs.
    differs: bool,
}

/// The next overlay, while it is made.
struct OverlayBuilder<'a> {
    before: &'a Snapshot,
    builder: SegmentBuilder,
    /// The folded names of the bases that are in the new segment, or nowhere.
    touched: HashSet<Vec<u8>>,
    /// The packages of `before` that are replaced, or gone.
    dead: HashSet<u32>,
}

impl<'a> OverlayBuilder<'a> {
    fn new(before: &'a Snapshot, more: usize) -> OverlayBuilder<'a> {
        let room = before.overlay().map_or(0, |over| over.small.package_count()) as usize;
        let builder = SegmentBuilder::with_room(room + more);
        OverlayBuilder { before, builder, touched: HashSet::new(), dead: HashSet::new() }
    }

    /// Adds the rest of the new segment, which becomes the small one, or the medium one if it is large for a small one: the other
    /// packages of bases that differ, and those that it had before.
    fn finish(mut self) -> Result<Snapshot, DumpError> {
        let (large, over) = (self.before.large(), self.before.overlay());
        let (mut gone, medium) = match over {
            Some(over) => {
                let medium = (over.medium.clone(), over.medium_in_large.clone());
                ([over.gone_of_large.clone(), over.gone_of_medium.clone()], medium)
            }
            None => {
                let none = SegmentBuilder::with_room(0).build();
                let gone = [RemovedDocs::none_of(large), RemovedDocs::none_of(&none)];
                let successors = Successors::of(&none, large);
                (gone, (Arc::new(none), Arc::new(successors)))
            }
        };
        for folded in &self.touched {
            for (layer, segment) in [(Layer::Large, large), (Layer::Medium, &medium.0)] {
                let gone = &mut gone[layer as usize];
                let Some(base) = segment.find_base(folded) else { continue };
                if !gone.bases.insert(base) {
                    continue;
                }
                for &doc in segment.packages_of(base) {
                    gone.packages.insert(doc.0);
                    if !self.dead.contains(&layer.place(doc.0)) {
                        self.builder.add(&segment.record(doc).package());
                    }
                }
            }
        }
        if let Some(Overlay { small, .. }) = over {
            for doc in 0..small.package_count() {
                if !self.dead.contains(&Layer::Small.place(doc)) {
                    self.builder.add(&small.record(DocId(doc)).package());
                }
            }
            let is_left = |base| !self.touched.contains(small.bases().text(DocId(base)));
            small.empty_base_names(is_left).for_each(|name| self.builder.add_base(name));
        }
        let (medium, small) = match self.builder.base_count_max() <= small_max(&medium.0) {
            true => (medium, self.builder.build()),
            false => {
                let is_left = |base| !gone[1].bases.has(base);
                medium.0.empty_base_names(is_left).for_each(|name| self.builder.add_base(name));
                for doc in (0..medium.0.package_count()).filter(|&doc| !gone[1].packages.has(doc)) {
                    self.builder.add(&medium.0.record(DocId(doc)).package());
                }
                let medium = self.builder.build();
                gone[1] = RemovedDocs::none_of(&medium);
                let successors = Successors::of(&medium, large);
                ((Arc::new(medium), Arc::new(successors)), SegmentBuilder::with_room(0).build())
            }
        };
        let overlay = Overlay::new(large, medium, small, gone);
        let is_changed = overlay.base_count() > 0 || overlay.gone_of_large.bases.count() > 0;
        let next = self.before.with_overlay(Some(overlay).filter(|_| is_changed));
        if next.package_count() == 0 {
            return Err(DumpError::Empty);
        }
        Ok(next)
    }
}

/// How many packages, or bases without one, a small segment over this medium one may have.
fn small_max(medium: &Segment) -> usize {
    let count = medium.package_count().max(medium.package_base_count());
    (count * MEDIUM_FACTOR).isqrt() as usize
}
