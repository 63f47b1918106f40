//! How followers learn of new commits: at once from this process's own, by LISTEN from PostgreSQL, from the
//! system's events of SQLite's log file, and by polling. The same looks notice that the store is amiss.
//!
//! They get the serial that the store is known to have reached, never a mere signal: a follower that asks later finds it there,
//! so that no commit is missed between a read and the next wait.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use record::{Key, Serial};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::error::{ReadError, Rewound};
use super::log_events::LogEvents;
use super::observed_store::{Anchor, Mark, ObservedStore};
use super::recent_records::{LastRead, RecentRecords};
use super::sqlite;
use super::watch::{Stamps, Watch};

/// The latest serial that this process knows of.
pub(super) struct Wake {
    latest: watch::Sender<Serial>,
    /// The latest record that went by.
    mark: Mutex<Option<Mark>>,
    /// What went by lately.
    recent: Mutex<RecentRecords>,
    /// The record that names the store.
    anchor: OnceLock<Arc<Anchor>>,
    /// The loss that was noticed and has not ended.
    lost: Mutex<Option<NoticedLoss>>,
    /// The last look that found nothing amiss.
    looked: Mutex<Option<Look>>,
    /// Told when a look fails.
    alarm: Notify,
}

/// A look at how far the store is, by which nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Where the store was.
    pub serial: Serial,
    /// When the look began.
    pub began_at: Instant,
}

/// A loss that was noticed.
#[derive(Clone, Copy)]
struct NoticedLoss {
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
            looked: Mutex::default(),
            alarm: Notify::new(),
        }
    }

    /// What is known of the store by now.
    pub(super) fn seen(&self) -> ObservedStore {
        let mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let anchor = self.anchor.get().cloned();
        let lost = self.lost().map(|lost| lost.rewound);
        ObservedStore { serial: *self.latest.borrow(), mark, anchor, lost }
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
        *lost = Some(NoticedLoss { rewound, lowest });
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

    fn lost(&self) -> MutexGuard<'_, Option<NoticedLoss>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What went by lately.
    pub(super) fn recent(&self) -> MutexGuard<'_, RecentRecords> {
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

    /// Records the result of a look that began at this time. A failure wakes the caller of [`Wake::alarmed`]; the next look tries again.
    pub(super) fn learn(&self, began_at: Instant, found: Result<Serial, ReadError>) {
        match found {
            Ok(serial) => {
                *self.last_look() = Some(Look { serial, began_at });
                self.announce(serial);
            }
            Err(error) => {
                tracing::debug!(%error, "the store's serial could not be read");
                self.alarm.notify_one();
            }
        }
    }

    /// Notes that the store was then as at the last look.
    fn has_not_changed(&self, began_at: Instant) {
        if let Some(look) = &mut *self.last_look() {
            look.began_at = began_at;
        }
    }

    fn last_look(&self) -> MutexGuard<'_, Option<Look>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last look that found nothing amiss.
    pub(super) fn looked(&self) -> Option<Look> {
        *self.last_look()
    }

    /// Returns once a look has failed, or if one has since the last call.
    pub(super) async fn alarmed(&self) {
        self.alarm.notified().await;
    }

    /// Returns once a serial after `after` is known.
    pub(super) async fn wait(&self, after: Serial) -> Serial {
        let mut latest = self.latest.subscribe();
        let newer = latest.wait_for(|serial| *serial > after).await;
        *newer.expect("the sender is borrowed, so it exists")
    }
}

/// How often a store is looked at that tells of no changes: it may be lost, or be another one.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How often the file of SQLite's log is looked at where the system has no events of it. That is a question to the system's memory,
/// not to the database.
const GLANCE_INTERVAL: Duration = Duration::from_millis(50);

/// A commit shows a moment after its log was written, and two changes of a file within one tick of the system's clock have the same
/// time. So after a change, the database is asked this many times.
const ASKS_PER_CHANGE: u32 = 2;

/// Asks `reader` when the files have changed, until `closed`; every `interval` where nothing tells of that.
pub(super) async fn poll(
    reader: &sqlite::Reader,
    wake: &Arc<Wake>,
    interval: Duration,
    closed: CancellationToken,
) {
    let pause = interval.min(GLANCE_INTERVAL);
    let notice =
        Arc::new(Notice { wake: wake.clone(), asked: Mutex::default(), due: Notify::new() });
    let is_told = match &reader.watch {
        Some(watch) => notice.begin(watch.clone(), pause),
        None => false,
    };
    let polling = async {
        loop {
            for ask in 0..ASKS_PER_CHANGE {
                if ask > 0 {
                    tokio::time::sleep(pause).await;
                }
                notice.ask(reader).await;
            }
            if is_told {
                notice.due.notified().await;
            } else {
                tokio::time::sleep(interval).await;
            }
        }
    };
    let _: Option<std::convert::Infallible> = closed.run_until_cancelled(polling).await;
}

/// What the thread that looks at SQLite's files shares with the task that asks the database.
struct Notice {
    wake: Arc<Wake>,
    /// The files as they were when the database was asked, and all was well.
    asked: Mutex<Option<Stamps>>,
    /// The database is to be asked.
    due: Notify,
}

impl Notice {
    fn asked(&self) -> MutexGuard<'_, Option<Stamps>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, reader: &sqlite::Reader) {
        let began_at = Instant::now();
        // What was written lately may not show yet.
        let stamps = reader.watch.as_ref().and_then(Watch::stamps).filter(Stamps::are_at_rest);
        let found = reader.look(&self.wake.seen()).await;
        *self.asked() = stamps.filter(|_| found.is_ok());
        self.wake.learn(began_at, found);
    }

    /// Begins to say, until this is dropped, when the database is to be asked: when its log was written to, by the system's events, or,
    /// where there are none, by a look every `pause`; and every [`LOOK_INTERVAL`], unless its files are as they were when it was
    /// asked. A thread that sleeps does it for less than the runtime, which wakes two or three for each timer. False if there can be
    /// no thread.
    fn begin(self: &Arc<Self>, watch: Watch, pause: Duration) -> bool {
        let this = Arc::downgrade(self);
        let looking = std::thread::Builder::new().name("larder-log".to_owned());
        match looking.spawn(move || look_at_files(&this, &watch, pause)) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "the thread that watches the database's log cannot be started");
                false
            }
        }
    }
}

fn look_at_files(notice: &Weak<Notice>, watch: &Watch, pause: Duration) {
    let mut events = LogEvents::of(&watch.log()).ok();
    let mut log = watch.log_stamp();
    let mut look_at = Instant::now() + LOOK_INTERVAL;
    loop {
        let told =
            events.as_ref().map(|it| it.wait(look_at.saturating_duration_since(Instant::now())));
        let is_written = match told {
            Some(Ok(is_written)) => is_written,
            // Without events any more, it is looked at.
            Some(Err(_)) => {
                events = None;
                true
            }
            None => {
                std::thread::sleep(pause);
                let before = std::mem::replace(&mut log, watch.log_stamp());
                log != before
            }
        };
        let Some(notice) = notice.upgrade() else { return };
        let now = Instant::now();
        if is_written {
            notice.due.notify_one();
        } else if now >= look_at {
            let stamps = watch.stamps();
            match stamps.is_some() && *notice.asked() == stamps {
                true => notice.wake.has_not_changed(now),
                false => notice.due.notify_one(),
            }
        } else {
            continue;
        }
        look_at = now + LOOK_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DatabaseLocation, Records, RecordsOptions};

    #[tokio::test]
    async fn a_file_is_looked_at_and_its_loss_is_told_though_nobody_reads() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, away) = (directory.path().join("records.db"), directory.path().join("away.db"));
        let location = DatabaseLocation::Sqlite(file.clone());
        let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        let looks_after = async |before: Option<Look>| {
            while records.looked() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            records.looked()
        };
        let mut look = None;
        for _ in 0..4 {
            look = looks_after(look).await;
        }
        assert_eq!(look.map(|look| look.serial), Some(Serial::ZERO));
        std::fs::rename(&file, &away).expect("renamed");
        records.alarmed().await;
        records.close().await;
    }
}
