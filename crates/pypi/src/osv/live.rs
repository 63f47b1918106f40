//! [`LiveAdvisories`]: the cell with the advisories that count now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::{Advisories, AffectedVersions};
use crate::ProjectName;

/// The current advisories; none before the first are published. All stages of a snapshot share one cell.
#[derive(Debug, Default)]
pub struct LiveAdvisories {
    current: RwLock<Option<Arc<Advisories>>>,
    generation: AtomicU64,
}

impl LiveAdvisories {
    /// The current advisories; `None` before the first are published.
    pub fn current(&self) -> Option<Arc<Advisories>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the current advisories say about a project, and which ones they are.
    pub(crate) fn about(
        self: &Arc<Self>,
        project: &ProjectName,
    ) -> (AdvisoryStamp, Option<Arc<[AffectedVersions]>>) {
        // Taken first: if others are published meanwhile, the decision is out of date.
        let judged = AdvisoryStamp::by(self);
        let affected = self.current().and_then(|it| it.of_project(project.as_str()).cloned());
        (judged, affected)
    }

    /// Publishes advisories. Pages that earlier ones decided about are out of date at once.
    pub fn publish(&self, next: Arc<Advisories>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = current.replace(next);
        // Under the lock: no decision uses the new ones while pages of earlier ones still count.
        self.generation.fetch_add(1, Ordering::Release);
        drop(current);
        // The earlier ones are freed outside of the lock.
        drop(before);
    }
}

/// The advisories that a decision was based on.
#[derive(Clone, Debug)]
pub struct AdvisoryStamp {
    live: Arc<LiveAdvisories>,
    generation: u64,
}

impl AdvisoryStamp {
    /// Something that is decided from now on by what `live` has.
    pub fn by(live: &Arc<LiveAdvisories>) -> AdvisoryStamp {
        AdvisoryStamp { live: live.clone(), generation: live.generation.load(Ordering::Acquire) }
    }

    /// Whether these advisories are still current.
    pub fn is_current(&self) -> bool {
        self.live.generation.load(Ordering::Acquire) == self.generation
    }
}
