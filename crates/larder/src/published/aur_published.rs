//! [`AurPublished`]: the published state of the AUR.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use aur::{Filter, ListWindow, Order, PackageSelection, PackageSummary, Snapshot};
use source::KeptDumpFile;

use super::example::Example;
use super::lists::Lists;

/// Packages that a feed names.
const LATEST_MAX: usize = 100;

/// The published state of the AUR: one snapshot and what was made of it, replaced together.
pub struct AurPublished {
    /// The packages.
    pub snapshot: Snapshot,
    /// The source of the packages, for people.
    pub origin: String,
    /// When the dump was last modified at its source.
    pub modified_at: SystemTime,
    /// When this snapshot was published.
    pub published_at: SystemTime,
    /// The dump itself, once it is kept.
    pub kept: KeptCell,
    /// Lists made of the snapshot, each when it is first requested; shared with the one that was merged into this one.
    pub lists: Arc<Lists>,
    /// An example for people to try, searched for when a page first shows it.
    pub example: OnceLock<Example>,
    /// The packages that its feeds name, found when one is first asked for.
    pub latest: LatestPackages,
}

/// The newest packages, and those that changed last.
#[derive(Clone, Default)]
pub struct LatestPackages {
    newest: OnceLock<Vec<PackageSummary>>,
    modified: OnceLock<Vec<PackageSummary>>,
}

/// The dump that clients download beside a snapshot; empty until the first one is kept.
#[derive(Default)]
pub struct KeptCell(ArcSwapOption<KeptDumpFile>);

impl KeptCell {
    /// The latest one.
    pub fn get(&self) -> Option<KeptDumpFile> {
        self.0.load().as_deref().cloned()
    }

    /// Sets the dump that clients download.
    pub fn set(&self, file: KeptDumpFile) {
        self.0.store(Some(Arc::new(file)));
    }
}

impl AurPublished {
    /// Whether this is `other` after its segments were merged, so that both have the same packages.
    pub(crate) fn is_merged_from(&self, other: &AurPublished) -> bool {
        Arc::ptr_eq(&self.lists, &other.lists)
    }

    /// An example for people to try.
    pub fn example(&self, results_max: usize) -> &Example {
        self.example.get_or_init(|| Example::of(&self.snapshot, results_max))
    }

    /// The newest packages or, by [`Order::LastModified`], those that changed last; latest first, at most [`LATEST_MAX`]. The
    /// first call takes some milliseconds.
    pub fn latest(&self, order: Order) -> &[PackageSummary] {
        let list = match order {
            Order::LastModified => &self.latest.modified,
            _ => &self.latest.newest,
        };
        let part = ListWindow { order, is_descending: true, offset: 0, limit: LATEST_MAX };
        list.get_or_init(|| {
            self.snapshot.browse(&PackageSelection::All, Filter::default(), part).packages
        })
    }
}
