//! [`KnownAdvisories`]: the OSV records that count now, where they come from, and how their source is.
//!
//! source or kept copy -> [`crate::tasks::advisories`] -> [`Bundle`] -> published: matched by [`pypi::osv`], for policies and for
//! `/+osv/`, and read again from the zip where a whole record is asked for.

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

/// What is served of a bundle.
pub(crate) struct Served {
    /// Its records.
    pub(crate) bundle: Bundle,
    /// Where it came from, without credentials.
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
    /// What policies ask. Every snapshot of the index has this cell.
    pub(crate) live: Arc<LiveAdvisories>,
    served: Live<Served>,
    trouble: Mutex<Trouble>,
    /// Somebody wants the source to be looked at.
    pub(crate) wish: Notify,
}

#[derive(Default)]
struct Trouble {
    text: Option<String>,
    /// When the source last said that what is served is its latest.
    confirmed_at: Option<SystemTime>,
}

impl KnownAdvisories {
    /// What is served; `None` before the first bundle.
    pub(crate) fn served(&self) -> Option<Arc<Served>> {
        self.served.snapshot_full()
    }

    /// From now on this counts, everywhere.
    pub(crate) fn publish(&self, served: Arc<Served>) {
        let advisories: Arc<Advisories> = served.bundle.advisories.clone();
        self.served.publish(served);
        self.live.publish(advisories);
    }

    /// Why the last look at the source failed, if it did.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().text.clone()
    }

    /// When the source last confirmed what is served.
    pub(crate) fn confirmed_at(&self) -> Option<SystemTime> {
        self.lock().confirmed_at
    }

    /// The source was looked at, and what is served is its latest. True if there was trouble before.
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turns to read records from the zip.
pub(crate) fn reading() -> Turns {
    Turns::new(READING_MAX)
}
