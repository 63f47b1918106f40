//! The layers of a snapshot that was made of an earlier one and of changes.
//!
//! ```text
//! small    packages of the bases that have changed since the medium one was built; made anew by each change
//! medium   packages of the bases that had changed since the large one was built
//! large    all packages of some time ago
//! ```
//!
//! A base is in one of them, with all its packages: in a layer, all are marked as gone that are no longer part of the snapshot, or
//! are in a later layer. All layers are searched, and what they find is merged: for each package it is known between which packages
//! of each earlier layer it belongs.

use std::iter::Peekable;
use std::sync::Arc;

use postings::{DocId, DocSet};

use crate::record::Record;
use crate::searchable::Searchable;
use crate::segment::Segment;

/// A layer of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Large,
    Medium,
    Small,
}

impl Layer {
    /// All layers, the earliest first.
    pub(crate) const ALL: [Layer; 3] = [Layer::Large, Layer::Medium, Layer::Small];

    /// The place in a snapshot of what is at a position in this layer: a doc id, or the position of a base.
    #[inline]
    pub(crate) fn place(self, position: u32) -> u32 {
        (self as u32) << POSITION_BITS | position
    }

    /// The layer and the position in it of what is at a place in a snapshot. In the large layer, both numbers are equal.
    #[inline]
    pub(crate) fn at(place: u32) -> (Layer, u32) {
        (Layer::ALL[(place >> POSITION_BITS) as usize], place & POSITION_MAX)
    }
}

/// The rest of the bits of a place are for the layer.
const POSITION_BITS: u32 = 30;
const POSITION_MAX: u32 = (1 << POSITION_BITS) - 1;

/// The layers over the large one.
pub(crate) struct Overlay {
    pub(crate) medium: Arc<Segment>,
    pub(crate) small: Segment,
    pub(crate) gone_of_large: RemovedDocs,
    pub(crate) gone_of_medium: RemovedDocs,
    /// Where the medium layer belongs in the large one.
    pub(crate) medium_in_large: Arc<Successors>,
    small_in_large: Successors,
    small_in_medium: Successors,
}

/// What is no longer part of a snapshot, or is in a later layer.
#[derive(Clone)]
pub(crate) struct RemovedDocs {
    pub(crate) packages: MarkedDocs,
    pub(crate) bases: MarkedDocs,
}

/// Some of the packages, or of the bases, of a segment.
#[derive(Clone)]
pub(crate) struct MarkedDocs {
    set: DocSet,
    count: u32,
}

/// Where the packages and bases of a segment belong in an earlier one.
pub(crate) struct Successors {
    /// For each package, the first one of the earlier segment that comes after it, gone or not.
    packages: Box<[u32]>,
    /// For each base, the first one of the earlier segment that comes after it, gone or not.
    bases: Box<[u32]>,
}

impl RemovedDocs {
    /// Nothing of `segment`.
    pub(crate) fn none_of(segment: &Segment) -> RemovedDocs {
        RemovedDocs {
            packages: MarkedDocs::none_of(segment.package_count()),
            bases: MarkedDocs::none_of(segment.package_base_count()),
        }
    }
}

impl MarkedDocs {
    fn none_of(count: u32) -> MarkedDocs {
        MarkedDocs { set: DocSet::empty(count), count: 0 }
    }

    /// Adds one; tells whether it was not among them.
    pub(crate) fn insert(&mut self, position: u32) -> bool {
        let is_new = self.set.insert(DocId(position));
        self.count += u32::from(is_new);
        is_new
    }

    #[inline]
    pub(crate) fn has(&self, position: u32) -> bool {
        self.set.has(DocId(position))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Those that are not among `other`, ascending.
    pub(crate) fn without(&self, other: Option<&MarkedDocs>) -> Vec<DocId> {
        match other {
            Some(other) => self.set.without(&other.set),
            None => self.set.to_vec(),
        }
    }
}

impl Successors {
    /// Where `later` belongs in `earlier`.
    pub(crate) fn of(later: &Segment, earlier: &Segment) -> Successors {
        let package = |doc| {
            let name = later.names().column().text(doc);
            earlier.position(name, || later.lower_name(doc))
        };
        let base = |base| earlier.bases().equal_to(later.bases().text(base)).start;
        Successors {
            packages: (0..later.package_count()).map(|doc| package(DocId(doc))).collect(),
            bases: (0..later.package_base_count()).map(|at| base(DocId(at))).collect(),
        }
    }
}

impl Overlay {
    pub(crate) fn new(
        large: &Segment,
        (medium, medium_in_large): (Arc<Segment>, Arc<Successors>),
        small: Segment,
        [gone_of_large, gone_of_medium]: [RemovedDocs; 2],
    ) -> Overlay {
        let (small_in_large, small_in_medium) =
            (Successors::of(&small, large), Successors::of(&small, &medium));
        Overlay {
            medium,
            small,
            gone_of_large,
            gone_of_medium,
            medium_in_large,
            small_in_large,
            small_in_medium,
        }
    }

    /// What is gone of a layer: nothing of the small one.
    pub(crate) fn gone_of(&self, layer: Layer) -> Option<&RemovedDocs> {
        match layer {
            Layer::Large => Some(&self.gone_of_large),
            Layer::Medium => Some(&self.gone_of_medium),
            Layer::Small => None,
        }
    }

    /// The packages in the layers over the large one.
    pub(crate) fn package_count(&self) -> u32 {
        self.small.package_count() + self.medium.package_count()
            - self.gone_of_medium.packages.count()
    }

    /// The bases in the layers over the large one.
    pub(crate) fn base_count(&self) -> u32 {
        self.small.package_base_count() + self.medium.package_base_count()
            - self.gone_of_medium.bases.count()
    }

    /// The order of packages.
    pub(crate) fn package_order(&self) -> LayerOrder<'_> {
        LayerOrder {
            medium_in_large: &self.medium_in_large.packages,
            small_in_large: &self.small_in_large.packages,
            small_in_medium: &self.small_in_medium.packages,
        }
    }

    /// The order of bases.
    pub(crate) fn base_order(&self) -> LayerOrder<'_> {
        LayerOrder {
            medium_in_large: &self.medium_in_large.bases,
            small_in_large: &self.small_in_large.bases,
            small_in_medium: &self.small_in_medium.bases,
        }
    }
}

/// In which order the packages, or the bases, of several layers come.
#[derive(Clone, Copy, Default)]
pub(crate) struct LayerOrder<'a> {
    medium_in_large: &'a [u32],
    small_in_large: &'a [u32],
    small_in_medium: &'a [u32],
}

impl<'a> LayerOrder<'a> {
    /// Merges ascending positions in the layers into places in the snapshot.
    #[inline]
    pub(crate) fn merge(
        self,
        large: impl Iterator<Item = u32>,
        medium: impl Iterator<Item = u32>,
        small: impl Iterator<Item = u32>,
    ) -> impl Iterator<Item = u32> {
        let LayerOrder { medium_in_large, small_in_large, small_in_medium } = self;
        let in_large_and_medium = MergedOrder {
            earlier: large.peekable(),
            later: medium.peekable(),
            layer: Layer::Medium,
            is_before: move |large, medium| large < medium_in_large[medium as usize],
        };
        MergedOrder {
            earlier: in_large_and_medium.peekable(),
            later: small.peekable(),
            layer: Layer::Small,
            is_before: move |place, small| match Layer::at(place) {
                (Layer::Large, large) => large < small_in_large[small as usize],
                (_, medium) => medium < small_in_medium[small as usize],
            },
        }
    }
}

/// The places of earlier layers, and the positions in the next one, in one order.
struct MergedOrder<E: Iterator<Item = u32>, L: Iterator<Item = u32>, B> {
    earlier: Peekable<E>,
    later: Peekable<L>,
    /// The layer of `later`.
    layer: Layer,
    /// Whether a place of `earlier` comes before a position in that layer.
    is_before: B,
}

impl<E, L, B> Iterator for MergedOrder<E, L, B>
where
    E: Iterator<Item = u32>,
    L: Iterator<Item = u32>,
    B: Fn(u32, u32) -> bool,
{
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let Some(&later) = self.later.peek() else { return self.earlier.next() };
        match self.earlier.next_if(|&earlier| (self.is_before)(earlier, later)) {
            Some(earlier) => Some(earlier),
            None => self.later.next().map(|position| self.layer.place(position)),
        }
    }
}

/// A snapshot with an overlay.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    pub(crate) large: &'a Segment,
    pub(crate) over: &'a Overlay,
}

impl<'a> Layers<'a> {
    /// The segment of a layer.
    #[inline]
    pub(crate) fn segment(self, layer: Layer) -> &'a Segment {
        match layer {
            Layer::Large => self.large,
            Layer::Medium => &self.over.medium,
            Layer::Small => &self.over.small,
        }
    }

    #[inline]
    fn segment_of(self, doc: DocId) -> (&'a Segment, DocId) {
        let (layer, doc) = Layer::at(doc.0);
        (self.segment(layer), DocId(doc))
    }
}

impl Searchable for Layers<'_> {
    fn find(&self, name: &str) -> Option<DocId> {
        // Nearly all packages are in the large layer, but whether that has it is known only after a look at its gone ones.
        Layer::ALL.into_iter().rev().find_map(|layer| {
            let DocId(doc) = self.segment(layer).find(name)?;
            let is_gone = self.over.gone_of(layer).is_some_and(|gone| gone.packages.has(doc));
            (!is_gone).then(|| DocId(layer.place(doc)))
        })
    }

    fn found(&self, limit: usize, find: impl Fn(&Segment, usize) -> Vec<DocId>) -> Vec<DocId> {
        let [large, medium, small] = Layer::ALL.map(|layer| {
            let gone = self.over.gone_of(layer).map(|gone| &gone.packages);
            // Some that are found may be gone.
            let more = gone.map_or(0, MarkedDocs::count) as usize;
            let found = find(self.segment(layer), limit.saturating_add(more));
            let found = found.into_iter().map(|doc| doc.0);
            found.filter(move |&doc| gone.is_none_or(|gone| !gone.has(doc)))
        });
        let merged = self.over.package_order().merge(large, medium, small);
        merged.take(limit).map(DocId).collect()
    }

    fn is_in_more_than(&self, count: usize, is_in_more: impl Fn(&Segment, usize) -> bool) -> bool {
        Layer::ALL.into_iter().any(|layer| {
            let gone = self.over.gone_of(layer).map_or(0, |gone| gone.packages.count());
            is_in_more(self.segment(layer), count.saturating_add(gone as usize))
        })
    }

    fn each_name(
        &self,
        are_bases: bool,
        prefix: &[u8],
        limit: u32,
        mut write: impl FnMut(&Segment, u32),
    ) {
        let [large, medium, small] = Layer::ALL.map(|layer| {
            let segment = self.segment(layer);
            let column = if are_bases { segment.bases() } else { segment.names().column() };
            let gone = self.over.gone_of(layer);
            let gone = gone.map(|gone| if are_bases { &gone.bases } else { &gone.packages });
            (column.first_starting_with(prefix, 0).start..column.len())
                .take_while(move |&place| column.text(DocId(place)).starts_with(prefix))
                .filter(move |&place| gone.is_none_or(|gone| !gone.has(place)))
        });
        let over = self.over;
        let order = if are_bases { over.base_order() } else { over.package_order() };
        for place in order.merge(large, medium, small).take(limit as usize) {
            let (segment, DocId(position)) = self.segment_of(DocId(place));
            write(segment, position);
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
        // The records of the other layers are close together.
        if docs.iter().all(|doc| Layer::at(doc.0).0 == Layer::Large) {
            self.large.warm_up(docs);
        }
    }
}
