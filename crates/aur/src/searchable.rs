//! [`Searchable`]: the packages that a query searches, in one segment or in two.

use postings::DocId;

use crate::record::Record;
use crate::segment::Segment;

/// The packages that answer queries: one segment, or a small one over a large one.
///
/// Doc ids are those of the implementor; a list of them is in name order.
pub(crate) trait Searchable {
    /// The package with this name, in any case of letters; accents count.
    fn find(&self, name: &str) -> Option<DocId>;

    /// The first `limit` packages that `find` finds. It is called with a segment and how many packages to find there, in their order.
    fn found(&self, limit: usize, find: impl Fn(&Segment, usize) -> Vec<DocId>) -> Vec<DocId>;

    /// Whether a query surely finds more than `count` packages. `is_in_more` tells whether it surely finds more than a number
    /// in a segment.
    fn is_in_more_than(&self, count: usize, is_in_more: impl Fn(&Segment, usize) -> bool) -> bool;

    /// Calls `write` for the first `limit` names of packages, or of bases, whose folded form begins with `prefix`. `write` is called with
    /// their segment and their place in it.
    fn each_name(
        &self,
        are_bases: bool,
        prefix: &[u8],
        limit: u32,
        write: impl FnMut(&Segment, u32),
    );

    /// The record of a package.
    fn record(&self, doc: DocId) -> Record<'_>;

    /// A digest of the record. Packages that are equal in every value have the same digest in every process.
    fn digest(&self, doc: DocId) -> u64;

    /// Reads the first bytes of these records before they are needed.
    fn warm_up(&self, docs: &[DocId]);
}

impl Searchable for Segment {
    #[inline]
    fn find(&self, name: &str) -> Option<DocId> {
        Segment::find(self, name)
    }

    #[inline]
    fn found(&self, limit: usize, find: impl Fn(&Segment, usize) -> Vec<DocId>) -> Vec<DocId> {
        find(self, limit)
    }

    #[inline]
    fn is_in_more_than(&self, count: usize, is_in_more: impl Fn(&Segment, usize) -> bool) -> bool {
        is_in_more(self, count)
    }

    #[inline]
    fn each_name(
        &self,
        are_bases: bool,
        prefix: &[u8],
        limit: u32,
        mut write: impl FnMut(&Segment, u32),
    ) {
        let column = if are_bases { self.bases() } else { self.names().column() };
        for place in column.first_starting_with(prefix, limit) {
            write(self, place);
        }
    }

    #[inline]
    fn record(&self, doc: DocId) -> Record<'_> {
        Segment::record(self, doc)
    }

    #[inline]
    fn digest(&self, doc: DocId) -> u64 {
        Segment::digest(self, doc)
    }

    #[inline]
    fn warm_up(&self, docs: &[DocId]) {
        Segment::warm_up(self, docs);
    }
}
