//! How followers learn of new commits: at once from this process's own, by LISTEN from PostgreSQL, from the
//! system's events of SQLite's log file, and by polling.
//!
//! They get the serial that the store is known to have reached, never a mere signal: a follower that asks later finds it there,
//! so that no commit is missed between a read and the next wait.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use record::{Key, Serial};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::{ReadError, Rewound};
use super::log_events::LogEvents;
use super::recent::{LastRead, Recent};
use super::seen::{Anchor, Mark, Seen};
use super::sqlite;
use super::watch::Watch;

/// The latest serial that this process knows of.
pub(super) struct Wake {
    latest: watch::Sender<Serial>,
    /// The latest record that went by.
    mark: Mutex<Option<Mark>>,
    /// What went by lately.
    recent: Mutex<Recent>,
    /// The record that names the store.
    anchor: OnceLock<Arc<Anchor>>,
    /// The loss that was noticed and has not ended.
    lost: Mutex<Option<Lost>>,
}

/// A loss that was noticed.
#[derive(Clone, Copy)]
struct Lost {
    rewound: Rewound,
    /// How far the store was at its lowest since: nothing later than this was there then.
    lowest: Serial,
}

impl Wake {
    pub(super) fn new(serial: Serial) -> Wake {
        Wake {
            latest: watch::Sender::new(serial),
            mark: Mutex::default(),
            recent: Mutex::default(),
            anchor: OnceLock::new(),
            lost: Mutex::default(),
        }
    }

    /// What is known of the store by now.
    pub(super) fn seen(&self) -> Seen {
        let mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let anchor = self.anchor.get().cloned();
        let lost = self.lost().map(|lost| lost.rewound);
        Seen { serial: *self.latest.borrow(), mark, anchor, lost }
    }

    /// From now on the store must have this record.
    pub(super) fn bind(&self, anchor: Anchor) {
        let _ = self.anchor.set(Arc::new(anchor));
    }

    /// Notes that the store lacks something that was seen. A loss that never ends is not replaced by one that may.
    pub(super) fn lose(&self, rewound: Rewound) {
        let mut lost = self.lost();
        if lost.is_some_and(|lost| !lost.rewound.may_end()) {
            return;
        }
        let lowest = match rewound {
            Rewound::Behind { found, seen } => found.min(Serial(seen.0.saturating_sub(1))),
            _ => Serial::ZERO,
        };
        let lowest = lost.map_or(lowest, |lost| lost.lowest.min(lowest));
        *lost = Some(Lost { rewound, lowest });
    }

    /// Notes that the store has everything again that was seen, and the record of the serial `found` unchanged. If the store never
    /// had as much since the loss, that is the right store; otherwise it may have written what was lost anew.
    pub(super) fn find_again(&self, found: Serial) -> bool {
        let mut lost = self.lost();
        let is_right = lost.is_some_and(|lost| lost.rewound.may_end() && found > lost.lowest);
        if is_right {
            *lost = None;
        }
        is_right
    }

    fn lost(&self) -> MutexGuard<'_, Option<Lost>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What went by lately.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a read after `after` has handed out last, from a store at `serial`.
    pub(super) fn read(&self, after: Serial, serial: Serial, last: LastRead) {
        if let Some((key, serial)) = last.last() {
            self.mark(key, serial);
        }
        self.recent().take(after, serial, last);
    }

    /// Notes that `key` is in the store with `serial`.
    pub(super) fn mark(&self, key: &Key, serial: Serial) {
        let mut mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        if mark.as_ref().is_none_or(|mark| mark.serial < serial) {
            *mark = Some(Mark { key: key.clone(), serial });
        }
    }

    /// Wakes followers that wait for `serial` or less.
    pub(super) fn announce(&self, serial: Serial) {
        self.latest.send_if_modified(|latest| {
            let is_newer = serial > *latest;
            if is_newer {
                *latest = serial;
            }
            is_newer
        });
    }

    /// Returns once a serial after `after` is known.
    pub(super) async fn wait(&self, after: Serial) -> Serial {
        let mut latest = self.latest.subscribe();
        let newer = latest.wait_for(|serial| *serial > after).await;
        *newer.expect("the sender is borrowed, so it exists")
    }
}

/// How often the file of SQLite's log is looked at. That is a question to the system's memory, not to the database.
const GLANCE_INTERVAL: Duration = Duration::from_millis(50);

/// A commit shows a moment after its log was written, and two changes of a file within one tick of the system's clock have the same
/// time. So after a change, the database is asked this many times.
const ASKS_PER_CHANGE: u32 = 2;

/// Asks `reader` when the file of the log has changed, and every `interval`, until `closed`.
pub(super) async fn poll(
    reader: &sqlite::Reader,
    wake: &Wake,
    interval: Duration,
    closed: CancellationToken,
) {
    let pause = interval.min(GLANCE_INTERVAL);
    let changed = Arc::new(Notify::new());
    if let Some(watch) = &reader.watch {
        notice(watch.clone(), pause, Arc::downgrade(&changed));
    }
    let polling = async {
        loop {
            for ask in 0..ASKS_PER_CHANGE {
                if ask > 0 {
                    tokio::time::sleep(pause).await;
                }
                learn(reader.look(&wake.seen()).await, wake);
            }
            while timeout(interval, changed.notified()).await.is_err() {
                learn(reader.look(&wake.seen()).await, wake);
            }
        }
    };
    let _: Option<std::convert::Infallible> = closed.run_until_cancelled(polling).await;
}

/// Tells `changed`, until that is dropped, when the log was written to: by the system's events, or, where there are none, by a look
/// every `pause`. A thread that sleeps does it for less than the runtime, which wakes two or three for each timer.
fn notice(watch: Watch, pause: Duration, changed: Weak<Notify>) {
    let mut events = LogEvents::of(&watch.log()).ok();
    let mut log = watch.log_stamp();
    let looking = move || loop {
        match &events {
            // Without events any more, it is looked at.
            Some(told) => {
                if told.wait().is_err() {
                    events = None;
                }
            }
            None => std::thread::sleep(pause),
        }
        let Some(changed) = changed.upgrade() else { return };
        let found = watch.log_stamp();
        if events.is_some() || found != log {
            log = found;
            changed.notify_one();
        }
    };
    // Without the thread, the store is asked every interval.
    if let Err(error) = std::thread::Builder::new().name("larder-log".to_owned()).spawn(looking) {
        tracing::warn!(%error, "the thread that watches the database's log cannot be started");
    }
}

/// Announces a serial that was read; after a failure, the next read will do.
pub(super) fn learn(serial: Result<Serial, ReadError>, wake: &Wake) {
    match serial {
        Ok(serial) => wake.announce(serial),
        Err(error) => tracing::debug!(%error, "the store's serial could not be read"),
    }
}
