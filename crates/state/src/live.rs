//! [`Live`]: the cell that holds a surface's current snapshot.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};

/// The current `T`, empty until the first one is published. A reader takes it once and works with that one. Readers never wait
/// for a writer, and no writer waits for readers.
#[derive(Debug)]
pub struct Live<T> {
    current: ArcSwapOption<T>,
}

impl<T> Default for Live<T> {
    fn default() -> Live<T> {
        Live { current: ArcSwapOption::empty() }
    }
}

impl<T> Live<T> {
    /// The current snapshot, for use within one request; `None` before the first.
    pub fn snapshot(&self) -> Option<SnapshotGuard<T>> {
        let guard = self.current.load();
        guard.is_some().then_some(SnapshotGuard(guard))
    }

    /// The current snapshot as an `Arc`, for a longer use than [`Live::snapshot`]; `None` before the first.
    pub fn snapshot_full(&self) -> Option<Arc<T>> {
        self.current.load_full()
    }

    /// Makes `next` the current snapshot. The last reader of the old one frees it.
    pub fn publish(&self, next: Arc<T>) {
        self.current.store(Some(next));
    }
}

/// A snapshot in use.
pub struct SnapshotGuard<T>(Guard<Option<Arc<T>>>);

impl<T> std::ops::Deref for SnapshotGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect("only made around a snapshot")
    }
}
