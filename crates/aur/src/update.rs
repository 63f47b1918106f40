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
        let mut order = DumpOrder::of(self);
        let is_all = each_record(source, limits, |package| {
            writer.encode(package);
            if let Some((doc, is_same)) = order.find(package, &writer) {
                let (layer, position) = Layer::at(doc.0);
                if !seen[layer as usize].insert(DocId(position)) {
                    return false;
                }
                if is_same {
                    return true;
                }
                next.touched.insert(self.folded_base_of(doc));
                next.dead.insert(doc.0);
            }
            next.touched.insert(folded_base(package));
            next.builder.add(package);
            next.builder.len() <= different_max
        })?;
        drop(order);
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

/// The packages of the large segment in the order of the dump that it was built from, in which their records also lie in memory. The
/// next dump mostly has the same order, so the record that comes next here is most often the same as the next one of the dump. It is not
/// looked up by its name then: a look-up reads half a dozen places all over the memory, and waits for each if the catalogue is large.
struct DumpOrder<'a> {
    snapshot: &'a Snapshot,
    /// The place of each record, and its package.
    records: Vec<(u64, DocId)>,
    next: usize,
    /// How many records in a row were found elsewhere.
    elsewhere: u32,
}

/// If so many records in a row were not the expected one, the dump goes on elsewhere: behind the last of them.
const ELSEWHERE_MAX: u32 = 8;

impl<'a> DumpOrder<'a> {
    fn of(snapshot: &'a Snapshot) -> DumpOrder<'a> {
        let docs = (0..snapshot.large().package_count()).map(DocId);
        let mut records: Vec<_> = docs.map(|doc| (snapshot.large().place(doc), doc)).collect();
        records.sort_unstable();
        DumpOrder { snapshot, records, next: 0, elsewhere: 0 }
    }

    /// The package with the name of this one, and whether its record is the one that was encoded last, which is this one's.
    fn find(&mut self, package: &Package<'_>, encoded: &RecordWriter) -> Option<(DocId, bool)> {
        if let Some(doc) = self.next_if_same(encoded) {
            return Some((doc, true));
        }
        let name = std::str::from_utf8(package.name.as_bytes()).unwrap_or_default();
        let doc = self.snapshot.find(name)?;
        if Layer::at(doc.0).0 == Layer::Large {
            self.go_on_after(doc);
        }
        Some((doc, encoded.is(self.snapshot.record_bytes(doc))))
    }

    /// The next package that is not gone, if its record is the one that was encoded last.
    fn next_if_same(&mut self, encoded: &RecordWriter) -> Option<DocId> {
        let gone = self.snapshot.overlay().map(|over| &over.gone_of_large.packages);
        let is_left = |(_, doc): &(u64, DocId)| gone.is_none_or(|gone| !gone.has(doc.0));
        self.next += self.records[self.next..].iter().position(is_left)?;
        let (place, doc) = self.records[self.next];
        if !encoded.is(self.snapshot.large().bytes_at(place)) {
            return None;
        }
        self.next += 1;
        self.elsewhere = 0;
        Some(doc)
    }

    /// Notes that this package of the large segment was found by its name.
    fn go_on_after(&mut self, doc: DocId) {
        let is_next = self.records.get(self.next).is_some_and(|(_, next)| *next == doc);
        self.elsewhere = if is_next { 0 } else { self.elsewhere + 1 };
        if is_next {
            self.next += 1;
        } else if self.elsewhere == ELSEWHERE_MAX {
            self.elsewhere = 0;
            let place = self.snapshot.large().place(doc);
            self.next = self.records.partition_point(|(other, _)| *other <= place);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn dump_of(numbers: impl Iterator<Item = u32>) -> String {
        let record = |number| {
            format!(
                "{{\"ID\":{number},\"Name\":\"p{number}\",\"PackageBaseID\":1,\"PackageBase\":\"b\",\"Version\":\"1\",\
                 \"NumVotes\":0,\"Popularity\":0,\"FirstSubmitted\":1,\"LastModified\":1}}"
            )
        };
        format!("[{}]", numbers.map(record).collect::<Vec<_>>().join(","))
    }

    /// How many of these packages are looked up by their names, after a dump that has those up to 100.
    #[track_caller]
    fn check(numbers: impl Iterator<Item = u32>, looked_up: usize) {
        let limits = DumpLimits::default();
        let before = crate::dump::read(dump_of(0..100).as_bytes(), &limits).expect("a dump");
        let (mut order, mut writer) = (DumpOrder::of(&before), RecordWriter::default());
        let mut count = 0;
        each_record(dump_of(numbers).as_bytes(), &limits, |package| {
            writer.encode(package);
            let next = order.records.get(order.next).map(|(_, doc)| *doc);
            let name = String::from_utf8_lossy(package.name.as_bytes()).into_owned();
            let found = order.find(package, &writer);
            assert_eq!(found, before.find(&name).map(|doc| (doc, true)), "{name}");
            count += usize::from(found.map(|(doc, _)| doc) != next);
            true
        })
        .expect("records");
        assert_eq!(count, looked_up);
    }

    #[test]
    fn a_dump_in_the_order_of_the_last_one_needs_no_names() {
        let most = ELSEWHERE_MAX as usize;
        check(0..100, 0);
        // Some are new.
        check((0..30).chain(200..220).chain(30..100), 20);
        // Some are gone.
        check((0..30).chain(60..100), most);
        check((60..100).chain(0..60), 2 * most);
        check((0..100).rev(), 100);
    }
}
