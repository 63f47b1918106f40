//! [`KnownAdvisories`]: the OSV records that count now, and the state of their source.
//!
//! source or kept copy -> [`crate::tasks::advisories`] -> [`Bundle`] -> published: matched by [`pypi::osv`], for policies and
//! for `/+osv/`. A whole record is read from the zip again when it is requested.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pypi::osv::{Advisories, LiveAdvisories};
use rawzip::FileReader;
use resources::turns::Turns;
use state::live::Live;
use tokio::sync::Notify;

/// The records of a zip, and the zip, which stays open.
pub(crate) type Bundle = pypi::osv::Bundle<FileReader>;

/// Records that are read from the zip at the same time.
const READING_MAX: usize = 8;

/// The published bundle.
pub(crate) struct ServedBundle {
    /// Its records.
    pub(crate) bundle: Bundle,
    /// Its source, without credentials.
    pub(crate) origin: String,
    /// [`source::Arrival::source_fingerprint`].
    pub(crate) source_fingerprint: String,
    /// When it was modified there, as far as that is known.
    pub(crate) modified_at: SystemTime,
    /// Whether a record could not be read any more: that is logged once.
    pub(crate) has_failed: AtomicBool,
}

/// The advisories that count now.
#[derive(Default)]
pub(crate) struct KnownAdvisories {
    /// The cell that policies read; every snapshot of the index has it.
    pub(crate) live: Arc<LiveAdvisories>,
    served: Live<ServedBundle>,
    trouble: Mutex<RefreshTrouble>,
    /// Notified to have the source looked at.
    pub(crate) wish: Notify,
}

#[derive(Default)]
struct RefreshTrouble {
    text: Option<String>,
    /// When the source last confirmed that the published bundle is its latest.
    confirmed_at: Option<SystemTime>,
}

impl KnownAdvisories {
    /// The published bundle; `None` before the first one.
    pub(crate) fn served(&self) -> Option<Arc<ServedBundle>> {
        self.served.snapshot_full()
    }

    /// Publishes a bundle, also for policies.
    pub(crate) fn publish(&self, served: Arc<ServedBundle>) {
        let advisories: Arc<Advisories> = served.bundle.advisories.clone();
        self.served.publish(served);
        self.live.publish(advisories);
    }

    /// Why the last look at the source failed, if it did.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().text.clone()
    }

    /// When the source last confirmed the published bundle.
    pub(crate) fn confirmed_at(&self) -> Option<SystemTime> {
        self.lock().confirmed_at
    }

    /// Notes that the source confirmed the published bundle as its latest. True if there was trouble before.
    pub(crate) fn confirm(&self) -> bool {
        let mut trouble = self.lock();
        trouble.confirmed_at = Some(SystemTime::now());
        trouble.text.take().is_some()
    }

    /// Notes why a look at the source failed; true if that is new.
    pub(crate) fn fail(&self, text: &str) -> bool {
        let mut trouble = self.lock();
        let is_new = trouble.text.as_deref() != Some(text);
        trouble.text = Some(text.to_owned());
        is_new
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RefreshTrouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turns to read records from the zip.
pub(crate) fn reading() -> Turns {
    Turns::new(READING_MAX)
}
