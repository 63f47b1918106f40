//! The AUR snapshot: every package, ready to answer queries.
//!
//! A snapshot never changes; a refresh publishes the next one. It is one large [`Segment`], which later snapshots share,
//! and over it perhaps a small one:
//!
//! ```text
//! small    packages of the bases that have changed since the large one was built
//! gone     a bit for each package of the large one that is no longer part of the snapshot
//! large    all packages of some time ago
//! ```
//!
//! A base is in one of both, with all its packages. Both are searched, and what they find is merged: for each package of the
//! small one it is known between which packages of the large one it belongs. Answers are those of a snapshot that was
//! built at once (`tests/properties/updates.rs`). How the next small segment is made is in `update.rs`.

use std::fmt;
use std::io::{self, Write};
use std::iter::Peekable;
use std::sync::Arc;

use postings::{DocId, DocSet};

use crate::fold::fold;
use crate::record::Record;
use crate::searched::Searched;
use crate::segment::{Segment, SegmentBuilder};
use crate::sort_key::Key;

/// Every package, with the indexes over them. A clone shares them.
#[derive(Clone)]
pub struct Snapshot {
    large: Arc<Segment>,
    overlay: Option<Arc<Overlay>>,
    duplicate_count: u32,
}

/// The changes since the large segment was built.
pub(crate) struct Overlay {
    pub(crate) small: Segment,
    /// Packages of the large segment that are not part of the snapshot.
    pub(crate) gone: DocSet,
    pub(crate) gone_count: u32,
    /// Bases of the large segment that are not part of the snapshot, or are in the small one.
    pub(crate) gone_bases: DocSet,
    pub(crate) gone_base_count: u32,
    /// For each package of the small segment: the first one of the large segment that comes after it, gone or not.
    pub(crate) places: Box<[u32]>,
    /// For each base of the small segment: the first one of the large segment that comes after it, gone or not.
    pub(crate) base_places: Box<[u32]>,
}

/// Doc ids from here on are those of the small segment, counted from here.
pub(crate) const SMALL: u32 = 1 << 31;

/// A snapshot with an overlay.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    large: &'a Segment,
    over: &'a Overlay,
}

impl fmt::Debug for Snapshot {
    /// Shows the size only: a hundred thousand packages make no readable debug output.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Snapshot")
            .field("packages", &self.package_count())
            .finish_non_exhaustive()
    }
}

impl From<Segment> for Snapshot {
    fn from(segment: Segment) -> Snapshot {
        let duplicate_count = segment.duplicate_count();
        Snapshot { large: Arc::new(segment), overlay: None, duplicate_count }
    }
}

impl Snapshot {
    /// A snapshot with this one's large segment and this overlay.
    pub(crate) fn with_overlay(&self, overlay: Option<Overlay>) -> Snapshot {
        let overlay = overlay.map(Arc::new);
        Snapshot { large: self.large.clone(), overlay, duplicate_count: 0 }
    }

    /// The only segment, or both layers.
    #[inline]
    pub(crate) fn layers(&self) -> Result<&Segment, Layers<'_>> {
        match &self.overlay {
            None => Ok(&self.large),
            Some(over) => Err(Layers { large: &self.large, over }),
        }
    }

    pub(crate) fn large(&self) -> &Segment {
        &self.large
    }

    pub(crate) fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_deref()
    }

    /// Number of packages.
    pub fn package_count(&self) -> u32 {
        let over = self.overlay();
        self.large.package_count() - over.map_or(0, |over| over.gone_count)
            + over.map_or(0, |over| over.small.package_count())
    }

    /// Number of package bases.
    pub fn package_base_count(&self) -> u32 {
        let over = self.overlay();
        self.large.package_base_count() - over.map_or(0, |over| over.gone_base_count)
            + over.map_or(0, |over| over.small.package_base_count())
    }

    /// Records of the dump that were left out because a later one has the same name.
    pub fn duplicate_count(&self) -> u32 {
        self.duplicate_count
    }

    /// The number of packages in the small segment, plus those of the large one that it replaces: a search pays for these. It
    /// is 0 for a snapshot that was built at once.
    pub fn changed_count(&self) -> u32 {
        self.overlay().map_or(0, |over| over.small.package_count() + over.gone_count)
    }

    /// The name of the package in the middle, in the order of names; `None` if there are no packages.
    pub fn middle_name(&self) -> Option<String> {
        let doc = self.docs().nth(self.package_count() as usize / 2)?;
        serde_json::from_slice(self.record(doc).name()).ok()
    }

    /// The packages in name order.
    pub(crate) fn docs(&self) -> impl Iterator<Item = DocId> {
        self.docs_with(0..self.large.package_count())
    }

    /// The packages in name order, without those of a shared large segment that `other` has, too. This takes time only for
    /// changes since that segment was built, not for all packages.
    pub(crate) fn docs_not_shared_with(&self, other: &Snapshot) -> impl Iterator<Item = DocId> {
        let is_shared = Arc::ptr_eq(&self.large, &other.large);
        let gone_there = other.overlay().filter(|_| is_shared).map(|over| over.gone.to_vec());
        let all = if is_shared { 0..0 } else { 0..self.large.package_count() };
        self.docs_with(gone_there.into_iter().flatten().map(|doc| doc.0).chain(all))
    }

    /// Those of these packages of the large segment, ascending, that are not gone, and those of the small one, in name order.
    fn docs_with(&self, large: impl Iterator<Item = u32>) -> impl Iterator<Item = DocId> {
        let over = self.overlay();
        let large = large.filter(move |&doc| over.is_none_or(|over| !over.gone.has(DocId(doc))));
        let small = 0..over.map_or(0, |over| over.small.package_count());
        let places = over.map_or(&[][..], |over| &over.places[..]);
        Merged { large: large.peekable(), small: small.peekable(), places }.map(DocId)
    }

    /// The names of package bases, as JSON, in their order.
    pub(crate) fn base_names(&self) -> impl Iterator<Item = &[u8]> {
        let over = self.overlay();
        let large = (0..self.large.package_base_count())
            .filter(move |&base| over.is_none_or(|over| !over.gone_bases.has(DocId(base))));
        let small = 0..over.map_or(0, |over| over.small.package_base_count());
        let places = over.map_or(&[][..], |over| &over.base_places[..]);
        Merged { large: large.peekable(), small: small.peekable(), places }
            .map(|base| self.segment_of(base).base_name(base % SMALL))
    }

    /// The segment that a doc id, or the position of a base, belongs to.
    #[inline]
    fn segment_of(&self, place: u32) -> &Segment {
        match &self.overlay {
            Some(over) if place >= SMALL => &over.small,
            _ => &self.large,
        }
    }

    /// The record of a package.
    #[inline]
    pub(crate) fn record(&self, doc: DocId) -> Record<'_> {
        self.segment_of(doc.0).record(DocId(doc.0 % SMALL))
    }

    /// The package's name, folded.
    pub(crate) fn folded_name(&self, doc: DocId) -> &[u8] {
        self.segment_of(doc.0).names().column().text(DocId(doc.0 % SMALL))
    }

    /// The sort key of the package.
    #[inline]
    pub(crate) fn key(&self, doc: DocId) -> Key {
        self.segment_of(doc.0).key(DocId(doc.0 % SMALL))
    }

    /// The base with this name: its name as it is written, and its packages by name.
    pub(crate) fn find_base(&self, name: &str) -> Option<(String, Vec<DocId>)> {
        let folded = fold(name.trim_end_matches(' '));
        let (segment, base) = self.place_of_base(folded.as_bytes())?;
        let name = serde_json::from_slice(segment.base_name(base)).ok()?;
        Some((name, self.packages_in(segment, base).collect()))
    }

    /// The base with this folded name: its segment, and its position there.
    pub(crate) fn place_of_base(&self, folded: &[u8]) -> Option<(&Segment, u32)> {
        let over = self.overlay();
        if let Some(over) = over
            && let Some(base) = over.small.find_base(folded)
        {
            return Some((&over.small, base));
        }
        let large = self.large.find_base(folded);
        large
            .filter(|&base| over.is_none_or(|over| !over.gone_bases.has(DocId(base))))
            .map(|base| (&*self.large, base))
    }

    /// The packages of a base at a position that [`Snapshot::place_of_base`] has found.
    pub(crate) fn packages_in(&self, segment: &Segment, base: u32) -> impl Iterator<Item = DocId> {
        let first = if std::ptr::eq(segment, &*self.large) { 0 } else { SMALL };
        segment.packages_of(base).iter().map(move |doc| DocId(doc.0 + first))
    }

    /// All packages that `find` finds in the segments, in name order.
    pub(crate) fn found_in_all(&self, find: impl Fn(&Segment, usize) -> Vec<DocId>) -> Vec<DocId> {
        match self.layers() {
            Ok(segment) => segment.found(usize::MAX, find),
            Err(layers) => layers.found(usize::MAX, find),
        }
    }

    /// The bytes from the start of the package's record on.
    pub(crate) fn record_bytes(&self, doc: DocId) -> &[u8] {
        self.segment_of(doc.0).bytes_from(DocId(doc.0 % SMALL))
    }

    /// The package with this name, in any case of letters; accents count.
    pub(crate) fn find(&self, name: &str) -> Option<DocId> {
        match self.layers() {
            Ok(segment) => segment.find(name),
            Err(layers) => layers.find(name),
        }
    }

    /// Writes the packages as a dump: `packages-meta-ext-v1.json` as aurweb's exporter writes it, with the number of open
    /// requests if that is known. The records are in name order.
    ///
    /// # Errors
    ///
    /// Those of writing to `out`.
    pub fn write_dump(&self, out: &mut impl Write) -> io::Result<()> {
        let mut record = Vec::new();
        let mut separator: &[u8] = b"[\n";
        for doc in self.docs() {
            record.clear();
            record.extend_from_slice(separator);
            separator = b",\n";
            self.record(doc).write_dumped(&mut record);
            out.write_all(&record)?;
        }
        out.write_all(if separator == b"[\n" { b"[\n]" } else { b"\n]" })
    }

    /// Builds one large segment of all packages and starts over with it. This takes as long as reading a dump.
    pub fn merged(&self) -> Snapshot {
        let mut builder = SegmentBuilder::default();
        for doc in self.docs() {
            builder.add(&self.record(doc).package());
        }
        for name in self.empty_base_names() {
            builder.add_base(name);
        }
        Snapshot::from(builder.build())
    }

    /// The names of bases that have no package.
    pub(crate) fn empty_base_names(&self) -> Vec<String> {
        let over = self.overlay();
        let large = self.large.empty_bases();
        let large = large.filter(|&base| over.is_none_or(|over| !over.gone_bases.has(DocId(base))));
        let small = over
            .into_iter()
            .flat_map(|over| over.small.empty_bases().map(|base| over.small.base_name(base)));
        large
            .map(|base| self.large.base_name(base))
            .chain(small)
            .filter_map(|json| serde_json::from_slice(json).ok())
            .collect()
    }
}

/// Both layers' places in one order, where those of the small one begin at [`SMALL`].
struct Merged<'a, L: Iterator<Item = u32>, S: Iterator<Item = u32>> {
    large: Peekable<L>,
    small: Peekable<S>,
    /// For each place of the small layer, the first one of the large layer that comes after it.
    places: &'a [u32],
}

impl<L: Iterator<Item = u32>, S: Iterator<Item = u32>> Iterator for Merged<'_, L, S> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let Some(&small) = self.small.peek() else { return self.large.next() };
        let place = self.places[small as usize];
        match self.large.next_if(|&large| large < place) {
            Some(large) => Some(large),
            None => self.small.next().map(|small| small + SMALL),
        }
    }
}

impl Layers<'_> {
    #[inline]
    fn segment_of(&self, doc: DocId) -> (&Segment, DocId) {
        let segment = if doc.0 < SMALL { self.large } else { &self.over.small };
        (segment, DocId(doc.0 % SMALL))
    }
}

impl Searched for Layers<'_> {
    fn find(&self, name: &str) -> Option<DocId> {
        if let Some(DocId(doc)) = self.over.small.find(name) {
            return Some(DocId(doc + SMALL));
        }
        self.large.find(name).filter(|&doc| !self.over.gone.has(doc))
    }

    fn found(&self, limit: usize, find: impl Fn(&Segment, usize) -> Vec<DocId>) -> Vec<DocId> {
        // Some that the large segment finds may be gone.
        let large = find(self.large, limit.saturating_add(self.over.gone_count as usize));
        let large = large.into_iter().filter(|&doc| !self.over.gone.has(doc)).map(|doc| doc.0);
        let small = find(&self.over.small, limit).into_iter().map(|doc| doc.0);
        Merged { large: large.peekable(), small: small.peekable(), places: &self.over.places }
            .take(limit)
            .map(DocId)
            .collect()
    }

    fn is_in_more_than(&self, count: usize, is_in_more: impl Fn(&Segment, usize) -> bool) -> bool {
        is_in_more(self.large, count.saturating_add(self.over.gone_count as usize))
            || is_in_more(&self.over.small, count)
    }

    fn each_name(
        &self,
        are_bases: bool,
        prefix: &[u8],
        limit: u32,
        mut write: impl FnMut(&Segment, u32),
    ) {
        let over = self.over;
        let [large, small] = [self.large, &over.small]
            .map(|segment| if are_bases { segment.bases() } else { segment.names().column() });
        let (gone, places) = match are_bases {
            true => (&over.gone_bases, &over.base_places),
            false => (&over.gone, &over.places),
        };
        let large = (large.first_starting_with(prefix, 0).start..large.len())
            .take_while(|&place| large.text(DocId(place)).starts_with(prefix))
            .filter(|&place| !gone.has(DocId(place)));
        let small = small.first_starting_with(prefix, limit);
        let merged = Merged { large: large.peekable(), small: small.peekable(), places };
        for place in merged.take(limit as usize) {
            let (segment, DocId(place)) = self.segment_of(DocId(place));
            write(segment, place);
        }
    }

    #[inline]
    fn record(&self, doc: DocId) -> Record<'_> {
        let (segment, doc) = self.segment_of(doc);
        segment.record(doc)
    }

    fn digest(&self, doc: DocId) -> u64 {
        let (segment, doc) = self.segment_of(doc);
        segment.digest(doc)
    }

    fn warm_up(&self, docs: &[DocId]) {
        // The small segment's records are close together.
        if docs.iter().all(|doc| doc.0 < SMALL) {
            self.large.warm_up(docs);
        }
    }
}
