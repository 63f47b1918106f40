//! The disk space that the cache's files take, also while they are written, and as long as they are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes that the cache takes.
#[derive(Debug, Default)]
pub(super) struct SpaceUse {
    pub(super) bytes: AtomicU64,
    /// Of these, bytes that are promised to files and not written yet.
    pub(super) unwritten: AtomicU64,
}

/// The space of one file. It is free again when the last owner drops it: the index, the writer, and all that have the file
/// open.
#[derive(Debug)]
pub(super) struct Space {
    taken: Arc<SpaceUse>,
    pub(super) bytes: AtomicU64,
    pub(super) unwritten: AtomicU64,
    /// Whether the bytes were hashed in this process: when they arrived, or since.
    pub(super) is_checked: AtomicBool,
    /// One task hashes the file; the others wait for its result.
    pub(super) checking: Arc<tokio::sync::Mutex<()>>,
}

impl Space {
    pub(super) fn of(taken: &Arc<SpaceUse>) -> Arc<Space> {
        Arc::new(Space {
            taken: taken.clone(),
            bytes: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            is_checked: AtomicBool::new(false),
            checking: Arc::default(),
        })
    }

    /// Space for a file that exists.
    pub(super) fn held(taken: &Arc<SpaceUse>, bytes: u64) -> Arc<Space> {
        let space = Space::of(taken);
        space.promise(bytes);
        space.wrote(bytes);
        space
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn promise(&self, bytes: u64) {
        for count in [&self.taken.bytes, &self.taken.unwritten, &self.bytes, &self.unwritten] {
            count.fetch_add(bytes, Relaxed);
        }
    }

    /// Only one task writes, so nothing else changes `unwritten`.
    pub(super) fn wrote(&self, bytes: u64) {
        let bytes = bytes.min(self.unwritten.load(Relaxed));
        self.unwritten.fetch_sub(bytes, Relaxed);
        self.taken.unwritten.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.taken.bytes.fetch_sub(self.bytes(), Relaxed);
        self.taken.unwritten.fetch_sub(self.unwritten.load(Relaxed), Relaxed);
    }
}
