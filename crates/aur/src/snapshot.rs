//! The AUR snapshot: every package, ready to answer queries.
//!
//! A snapshot never changes; a refresh publishes the next one. It is one large [`Segment`], which later snapshots share, and perhaps
//! smaller ones over it with what has changed since that was built ([`Overlay`]). Answers are those of a snapshot that was built at
//! once (`tests/properties/updates.rs`). How the next snapshot is made is in `update.rs`.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::ptr;
use std::sync::Arc;

use postings::DocId;

use crate::fold::fold;
use crate::layers::{Layer, LayerOrder, Layers, Overlay, RemovedDocs};
use crate::package::{Number, Package};
use crate::record::Record;
use crate::searchable::Searchable;
use crate::segment::{Segment, SegmentBuilder};
use crate::sort_key::Key;

/// The popularity of package bases, by their names.
pub type Popularities = HashMap<String, f64>;

/// Every package, with the indexes over them. A clone shares them.
#[derive(Clone)]
pub struct Snapshot {
    large: Arc<Segment>,
    overlay: Option<Arc<Overlay>>,
    duplicate_count: u32,
    users: Option<Arc<str>>,
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
        Snapshot { large: Arc::new(segment), overlay: None, duplicate_count, users: None }
    }
}

impl Snapshot {
    /// A snapshot with this one's large segment and this overlay.
    pub(crate) fn with_overlay(&self, overlay: Option<Overlay>) -> Snapshot {
        let overlay = overlay.map(Arc::new);
        let (large, users) = (self.large.clone(), self.users.clone());
        Snapshot { large, overlay, duplicate_count: 0, users }
    }

    /// The snapshot with the names of all users, one a line, also of those without a package; `None` if its source does not say them.
    #[must_use]
    pub fn with_users(self, users: Option<Arc<str>>) -> Snapshot {
        Snapshot { users, ..self }
    }

    /// The names of all users, if the source says them.
    pub(crate) fn all_users(&self) -> Option<&Arc<str>> {
        self.users.as_ref()
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
        self.large.package_count() - over.map_or(0, |over| over.gone_of_large.packages.count())
            + over.map_or(0, Overlay::package_count)
    }

    /// Number of package bases.
    pub fn package_base_count(&self) -> u32 {
        let over = self.overlay();
        self.large.package_base_count() - over.map_or(0, |over| over.gone_of_large.bases.count())
            + over.map_or(0, Overlay::base_count)
    }

    /// Records of the dump that were left out because a later one has the same name.
    pub fn duplicate_count(&self) -> u32 {
        self.duplicate_count
    }

    /// The number of packages in the layers over the large segment, plus those of the large one that they replace: a search pays for
    /// these. It is 0 for a snapshot that was built at once.
    pub fn changed_count(&self) -> u32 {
        self.overlay().map_or(0, |over| over.package_count() + over.gone_of_large.packages.count())
    }

    /// The name of the package in the middle, in the order of names; `None` if there are no packages.
    pub fn middle_name(&self) -> Option<String> {
        let doc = self.docs().nth(self.package_count() as usize / 2)?;
        serde_json::from_slice(self.record(doc).name()).ok()
    }

    /// The packages in name order.
    pub(crate) fn docs(&self) -> impl Iterator<Item = DocId> {
        self.docs_but_shared_with(None)
    }

    /// The packages in name order, without those of a shared large or medium segment that `other` has, too. This takes time only for
    /// changes since that segment was built, not for all packages.
    pub(crate) fn docs_not_shared_with(&self, other: &Snapshot) -> impl Iterator<Item = DocId> {
        self.docs_but_shared_with(Some(other))
    }

    fn docs_but_shared_with(&self, other: Option<&Snapshot>) -> impl Iterator<Item = DocId> {
        let [large, medium, small] = Layer::ALL.map(|layer| {
            let segment = self.segment(layer);
            let gone = self.gone_of(layer).map(|gone| &gone.packages);
            let is_shared = |other: &&Snapshot| {
                let [segment, other] =
                    [segment, other.segment(layer)].map(|it| it.map(ptr::from_ref));
                segment == other
            };
            let (count, only) = match other.filter(is_shared) {
                None => (segment.map_or(0, Segment::package_count), Vec::new()),
                Some(other) => {
                    let gone_there = other.gone_of(layer).map(|there| there.packages.without(gone));
                    (0, gone_there.unwrap_or_default())
                }
            };
            let all = (0..count).filter(move |&doc| gone.is_none_or(|gone| !gone.has(doc)));
            only.into_iter().map(|doc| doc.0).chain(all)
        });
        let order = self.overlay().map_or_else(LayerOrder::default, Overlay::package_order);
        order.merge(large, medium, small).map(DocId)
    }

    /// The names of package bases, as JSON, in their order.
    pub(crate) fn base_names(&self) -> impl Iterator<Item = &[u8]> {
        let [large, medium, small] = Layer::ALL.map(|layer| {
            let gone = self.gone_of(layer).map(|gone| &gone.bases);
            (0..self.segment(layer).map_or(0, Segment::package_base_count))
                .filter(move |&base| gone.is_none_or(|gone| !gone.has(base)))
        });
        let order = self.overlay().map_or_else(LayerOrder::default, Overlay::base_order);
        order.merge(large, medium, small).map(|base| self.base_name(base))
    }

    /// The segment of a layer; `None` if this snapshot has only the large one.
    pub(crate) fn segment(&self, layer: Layer) -> Option<&Segment> {
        match self.layers() {
            Ok(large) => (layer == Layer::Large).then_some(large),
            Err(layers) => Some(layers.segment(layer)),
        }
    }

    /// What is gone of a layer.
    fn gone_of(&self, layer: Layer) -> Option<&RemovedDocs> {
        self.overlay()?.gone_of(layer)
    }

    /// The segment that a place in this snapshot belongs to, and the position there.
    #[inline]
    fn at(&self, place: u32) -> (&Segment, u32) {
        match self.layers() {
            Ok(segment) => (segment, place),
            Err(layers) => {
                let (layer, position) = Layer::at(place);
                (layers.segment(layer), position)
            }
        }
    }

    /// The record of a package.
    #[inline]
    pub(crate) fn record(&self, doc: DocId) -> Record<'_> {
        let (segment, doc) = self.at(doc.0);
        segment.record(DocId(doc))
    }

    /// The package's name, folded.
    pub(crate) fn folded_name(&self, doc: DocId) -> &[u8] {
        let (segment, doc) = self.at(doc.0);
        segment.names().column().text(DocId(doc))
    }

    /// The sort key of the package, one of `count` that are wanted together.
    #[inline]
    pub(crate) fn key(&self, doc: DocId, count: usize) -> Key {
        let (segment, doc) = self.at(doc.0);
        segment.key(DocId(doc), count)
    }

    /// The base with this name: its name as it is written, and its packages by name.
    pub(crate) fn find_base(&self, name: &str) -> Option<(String, Vec<DocId>)> {
        let folded = fold(name.trim_end_matches(' '));
        let base = self.place_of_base(folded.as_bytes())?;
        let name = serde_json::from_slice(self.base_name(base)).ok()?;
        Some((name, self.packages_of(base).collect()))
    }

    /// The place of the base with this folded name.
    pub(crate) fn place_of_base(&self, folded: &[u8]) -> Option<u32> {
        Layer::ALL.into_iter().find_map(|layer| {
            let base = self.segment(layer)?.find_base(folded)?;
            let is_gone = self.gone_of(layer).is_some_and(|gone| gone.bases.has(base));
            (!is_gone).then(|| layer.place(base))
        })
    }

    /// The name of the base at a place, as JSON.
    pub(crate) fn base_name(&self, base: u32) -> &[u8] {
        let (segment, base) = self.at(base);
        segment.base_name(base)
    }

    /// The packages of the base at a place, by name.
    pub(crate) fn packages_of(&self, base: u32) -> impl Iterator<Item = DocId> {
        let ((layer, _), (segment, base)) = (Layer::at(base), self.at(base));
        segment.packages_of(base).iter().map(move |doc| DocId(layer.place(doc.0)))
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
        let (segment, doc) = self.at(doc.0);
        segment.bytes_from(DocId(doc))
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

    /// Builds one large segment of all packages and starts over with it, with these popularities of some bases. This takes as long as
    /// reading a dump.
    pub fn merged(&self, popularities: &Popularities) -> Snapshot {
        let mut builder = SegmentBuilder::default();
        for doc in self.docs() {
            let package = self.record(doc).package();
            let base = str::from_utf8(package.package_base.as_bytes());
            match base.ok().and_then(|base| popularities.get(base)) {
                None => builder.add(&package),
                Some(popularity) => {
                    let number = serde_json::Value::from(*popularity).to_string();
                    builder.add(&Package { popularity: Number(number.as_bytes()), ..package });
                }
            }
        }
        for name in self.empty_base_names() {
            builder.add_base(name);
        }
        Snapshot::from(builder.build()).with_users(self.users.clone())
    }

    /// The names of bases that have no package.
    pub(crate) fn empty_base_names(&self) -> Vec<String> {
        let names = Layer::ALL.into_iter().flat_map(|layer| {
            let gone = self.gone_of(layer).map(|gone| &gone.bases);
            let is_left = move |base| gone.is_none_or(|gone| !gone.has(base));
            self.segment(layer).into_iter().flat_map(move |it| it.empty_base_names(is_left))
        });
        names.collect()
    }
}
