//! How followers learn of new commits: at once from this process's own, by LISTEN from PostgreSQL, from the time of SQLite's
//! log file, and by polling.
//!
//! They get the serial that the store is known to have reached, never a mere signal: a follower that asks later finds it there,
//! so that no commit is missed between a read and the next wait.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use record::{Key, Serial};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::{ReadError, Rewound};
use super::seen::{Anchor, Mark, Seen};
use super::sqlite;
use super::watch::Watch;

/// The latest serial that this process knows of.
pub(super) struct Wake {
    latest: watch::Sender<Serial>,
    /// The latest record that went by.
    mark: Mutex<Option<Mark>>,
    /// The record that names the store.
    anchor: OnceLock<Arc<Anchor>>,
    /// The first loss that was noticed.
    lost: OnceLock<Rewound>,
}

impl Wake {
    pub(super) fn new(serial: Serial) -> Wake {
        Wake {
            latest: watch::Sender::new(serial),
            mark: Mutex::default(),
            anchor: OnceLock::new(),
            lost: OnceLock::new(),
        }
    }

    /// What is known of the store by now.
    pub(super) fn seen(&self) -> Seen {
        let mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (anchor, lost) = (self.anchor.get().cloned(), self.lost.get().copied());
        Seen { serial: *self.latest.borrow(), mark, anchor, lost }
    }

    /// From now on the store must have this record.
    pub(super) fn bind(&self, anchor: Anchor) {
        let _ = self.anchor.set(Arc::new(anchor));
    }

    /// Notes that the store lacks something that was seen.
    pub(super) fn lose(&self, rewound: Rewound) {
        let _ = self.lost.set(rewound);
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

/// Two changes of a file within one tick of the system's clock have the same time. So after a change, the database is asked
/// this many times.
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
        glance(watch.clone(), pause, Arc::downgrade(&changed));
    }
    let polling = async {
        loop {
            for ask in 0..ASKS_PER_CHANGE {
                if ask > 0 {
                    tokio::time::sleep(pause).await;
                }
                learn(reader.serial().await, wake);
            }
            while timeout(interval, changed.notified()).await.is_err() {
                learn(reader.serial().await, wake);
            }
        }
    };
    let _: Option<std::convert::Infallible> = closed.run_until_cancelled(polling).await;
}

/// Looks at the file of the log every `pause` and tells `changed`, until that is dropped. A thread that sleeps does it for less than the
/// runtime, which wakes two or three for each timer.
fn glance(watch: Watch, pause: Duration, changed: Weak<Notify>) {
    let mut log = watch.log_stamp();
    let looking = move || {
        while let Some(changed) = changed.upgrade() {
            let found = watch.log_stamp();
            if found != log {
                log = found;
                changed.notify_one();
            }
            drop(changed);
            std::thread::sleep(pause);
        }
    };
    // Without the thread, the store is asked every interval.
    if let Err(error) = std::thread::Builder::new().name("larder-glance".to_owned()).spawn(looking)
    {
        tracing::warn!(%error, "no thread looks at the log of the database");
    }
}

/// Announces a serial that was read; after a failure, the next read will do.
pub(super) fn learn(serial: Result<Serial, ReadError>, wake: &Wake) {
    match serial {
        Ok(serial) => wake.announce(serial),
        Err(error) => tracing::debug!(%error, "the store's serial could not be read"),
    }
}
