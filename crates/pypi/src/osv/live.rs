//! [`LiveAdvisories`]: the cell with the advisories that count now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::Advisories;

/// The advisories that count now; none before the first are published. All stages of a snapshot share one cell.
#[derive(Debug, Default)]
pub struct LiveAdvisories {
    current: RwLock<Option<Arc<Advisories>>>,
    generation: AtomicU64,
}

impl LiveAdvisories {
    /// Those that count now; `None` before the first are published.
    pub fn current(&self) -> Option<Arc<Advisories>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on these count. Pages that earlier ones decided about are out of date at once.
    pub fn publish(&self, next: Arc<Advisories>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(next);
        // After them: who sees this sees them, too.
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Which advisories something was decided by.
#[derive(Clone, Debug)]
pub struct Judged {
    live: Arc<LiveAdvisories>,
    generation: u64,
}

impl Judged {
    /// Something that is decided from now on by what `live` has.
    pub fn by(live: &Arc<LiveAdvisories>) -> Judged {
        Judged { live: live.clone(), generation: live.generation.load(Ordering::Acquire) }
    }

    /// Whether these advisories still count.
    pub fn is_current(&self) -> bool {
        self.live.generation.load(Ordering::Acquire) == self.generation
    }
}
