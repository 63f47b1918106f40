//! How often releases are downloaded: [`Downloads`] counts in memory, and [`tasks::downloads`](crate::tasks::downloads) adds what was
//! counted to the sums of all processes, in the database.
//!
//! a file that was sent -> [`Downloads::note`] -> at most once a minute [`Downloads::take`] -> the database -> [`Downloads::read`], which
//! remembers what it has read for a minute. A count is no record: it has no serial and wakes nobody.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pypi::{ProjectName, StageName};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use store::Store;
use store::records::{DownloadCount, DownloadsError, ProjectDownloads};
use tokio::sync::Notify;

/// How many days are shown and kept, today included.
pub(crate) const DAYS: i64 = 90;

/// Most releases of a project that are named.
pub(crate) const VERSIONS_MAX: i64 = 100;

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Requests for different releases do not wait for each other's lock.
const PARTS: usize = 16;

/// Most releases and days in a part that wait to be written; further ones are not counted. All parts together take some eight megabytes
/// at most.
const WAITING_MAX: usize = 4_096;

/// Memory for what was read from the database, in bytes.
const READ_BYTES_MAX: u64 = 4 << 20;

/// After this time it is read again.
const READ_AGE_MAX: Duration = Duration::from_secs(60);

/// Today, in UTC, counted from 1970-01-01.
pub(crate) fn today() -> i64 {
    Timestamp::now().as_second().div_euclid(DAY_SECONDS)
}

/// The first moment of a day.
pub(crate) fn start_of(day: i64) -> Timestamp {
    Timestamp::from_second(day.saturating_mul(DAY_SECONDS)).unwrap_or_default()
}

/// A release on a day.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ReleaseDay {
    stage: StageName,
    project: ProjectName,
    version: Box<str>,
    day: i64,
}

/// A stage that is gone, or a project of it.
pub(crate) type RemovedProject = (StageName, Option<ProjectName>);

/// The counts of this process, and those of all in the database.
pub(crate) struct Downloads {
    /// `None`: nothing is counted.
    kept: Option<store::Downloads>,
    hasher: RandomState,
    waiting: [Mutex<HashMap<ReleaseDay, u64>>; PARTS],
    is_changed: AtomicBool,
    changed: Notify,
    gone: Mutex<Vec<RemovedProject>>,
    gone_changed: Notify,
    /// How often something was forgotten.
    forgotten: AtomicU64,
    read: Cache<(StageName, ProjectName), Arc<CachedDownloads>, Weights>,
}

/// What was read of a project, and when.
struct CachedDownloads {
    downloads: ProjectDownloads,
    /// The day until which it was asked for.
    today: i64,
    at: Instant,
}

#[derive(Clone)]
struct Weights;

impl Weighter<(StageName, ProjectName), Arc<CachedDownloads>> for Weights {
    fn weight(&self, _: &(StageName, ProjectName), read: &Arc<CachedDownloads>) -> u64 {
        let of = |days: &Vec<(i64, u64)>| days.len() * size_of::<(i64, u64)>();
        let downloads = &read.downloads;
        let versions = downloads.versions.iter().map(|it| 100 + it.version.len() + of(&it.days));
        (500 + of(&downloads.days) + versions.sum::<usize>()) as u64
    }
}

impl Downloads {
    /// Counts beside this store, if anything is counted.
    pub(crate) fn of(store: &Store, is_on: bool) -> Downloads {
        Downloads {
            kept: is_on.then(|| store::Downloads::beside(&store.records)),
            hasher: RandomState::new(),
            waiting: std::array::from_fn(|_| Mutex::default()),
            is_changed: AtomicBool::new(false),
            changed: Notify::new(),
            gone: Mutex::default(),
            gone_changed: Notify::new(),
            forgotten: AtomicU64::new(0),
            read: Cache::with_weighter(1_000, READ_BYTES_MAX, Weights),
        }
    }

    /// Where all processes' counts are; `None` if nothing is counted.
    pub(crate) fn kept(&self) -> Option<&store::Downloads> {
        self.kept.as_ref()
    }

    /// Notes that a file of this release was downloaded.
    pub(crate) fn note(&self, stage: &StageName, project: &ProjectName, version: &str) {
        if self.kept.is_none() {
            return;
        }
        let (stage, project, version) = (stage.clone(), project.clone(), version.into());
        self.add(ReleaseDay { stage, project, version, day: today() }, 1);
        if !self.is_changed.load(Ordering::Relaxed) && !self.is_changed.swap(true, Ordering::AcqRel)
        {
            self.changed.notify_one();
        }
    }

    fn add(&self, counted: ReleaseDay, count: u64) {
        let part = self.hasher.hash_one(&counted) as usize % PARTS;
        let mut part = locked(&self.waiting[part]);
        let has_room = part.len() < WAITING_MAX;
        match part.entry(counted) {
            Entry::Occupied(mut known) => *known.get_mut() += count,
            Entry::Vacant(free) if has_room => {
                free.insert(count);
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Waits until something was counted since the last [`Downloads::take`].
    pub(crate) async fn wait(&self) {
        self.changed.notified().await;
    }

    /// All that waits to be written.
    pub(crate) fn take(&self) -> Vec<DownloadCount> {
        self.is_changed.store(false, Ordering::Release);
        let parts = self.waiting.iter().flat_map(|part| std::mem::take(&mut *locked(part)));
        let row = |(counted, count): (ReleaseDay, u64)| DownloadCount {
            stage: counted.stage.to_string(),
            project: counted.project.to_string(),
            version: counted.version.into(),
            day: counted.day,
            count,
        };
        parts.map(row).collect()
    }

    /// Takes back what was not written.
    pub(crate) fn give_back(&self, counts: Vec<DownloadCount>) {
        for row in counts {
            if let (Ok(stage), Ok(project)) = (row.stage.parse(), row.project.parse()) {
                let (version, day) = (row.version.into(), row.day);
                self.add(ReleaseDay { stage, project, version, day }, row.count);
            }
        }
    }

    /// Notes that these stages and projects are gone: their counts go, too.
    pub(crate) fn forget(&self, gone: Vec<RemovedProject>) {
        if self.kept.is_none() || gone.is_empty() {
            return;
        }
        let is_gone = |counted: &ReleaseDay| {
            gone.iter().any(|(stage, project)| {
                counted.stage == *stage
                    && project.as_ref().is_none_or(|project| counted.project == *project)
            })
        };
        for part in &self.waiting {
            locked(part).retain(|counted, _| !is_gone(counted));
        }
        self.read_anew();
        locked(&self.gone).extend(gone);
        self.gone_changed.notify_one();
    }

    /// From now on nothing is answered that was read before: something was forgotten.
    pub(crate) fn read_anew(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.read.clear();
    }

    /// Waits until something is gone since the last [`Downloads::take_gone`].
    pub(crate) async fn wait_for_gone(&self) {
        self.gone_changed.notified().await;
    }

    /// What is gone, once.
    pub(crate) fn take_gone(&self) -> Vec<RemovedProject> {
        std::mem::take(&mut *locked(&self.gone))
    }

    /// The downloads of the project in this stage on the [`DAYS`] that end `today`, by all processes, if they were read less than a
    /// minute ago. Nothing if nothing is counted.
    pub(crate) fn known(
        &self,
        stage: &StageName,
        project: &ProjectName,
        today: i64,
    ) -> Option<ProjectDownloads> {
        if self.kept.is_none() {
            return Some(ProjectDownloads::default());
        }
        let found = self.read.get(&(stage.clone(), project.clone()))?;
        let is_fresh = found.today == today && found.at.elapsed() < READ_AGE_MAX;
        is_fresh.then(|| found.downloads.clone())
    }

    /// [`Downloads::known`], or else read from the database.
    ///
    /// # Errors
    /// If the database does not answer.
    pub(crate) async fn read(
        &self,
        stage: &StageName,
        project: &ProjectName,
        today: i64,
    ) -> Result<ProjectDownloads, DownloadsError> {
        if let Some(known) = self.known(stage, project, today) {
            return Ok(known);
        }
        let Some(kept) = &self.kept else { return Ok(ProjectDownloads::default()) };
        let forgotten = self.forgotten.load(Ordering::Acquire);
        let since = today - DAYS + 1;
        let reading = kept.of_project(stage.as_str(), project.as_str(), since, VERSIONS_MAX);
        let downloads = reading.await?;
        if self.forgotten.load(Ordering::Acquire) == forgotten {
            let read = CachedDownloads { downloads: downloads.clone(), today, at: Instant::now() };
            self.read.insert((stage.clone(), project.clone()), Arc::new(read));
        }
        Ok(downloads)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn counting(is_on: bool) -> (Downloads, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let data_dir = directory.path().to_owned();
        let config = config::Config { data_dir, ..config::Config::default() };
        let store = state::setup::open(&config).await.expect("a store");
        (Downloads::of(&store, is_on), directory)
    }

    fn note(downloads: &Downloads, stage: &str, project: &str, version: &str) {
        let (stage, project) = (stage.parse().expect("a stage"), project.parse().expect("a name"));
        downloads.note(&stage, &project, version);
    }

    /// What waits, as `stage project version count`.
    fn taken(downloads: &Downloads) -> Vec<String> {
        let mut rows = downloads.take();
        rows.sort_unstable();
        let row = |it: &DownloadCount| {
            assert!((today() - 1..=today()).contains(&it.day), "{it:?}");
            format!("{} {} {} {}", it.stage, it.project, it.version, it.count)
        };
        rows.iter().map(row).collect()
    }

    #[tokio::test]
    async fn what_is_not_written_is_counted_on() {
        let (downloads, _directory) = counting(true).await;
        for version in ["1.0", "1.0", "2.0"] {
            note(&downloads, "a/b", "p", version);
        }
        downloads.wait().await;
        let rows = downloads.take();
        assert_eq!(taken(&downloads), [""; 0]);
        note(&downloads, "a/b", "p", "1.0");
        downloads.give_back(rows);
        assert_eq!(taken(&downloads), ["a/b p 1.0 3", "a/b p 2.0 1"]);
        downloads.wait().await;
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_known_releases_are_counted_on() {
        let (downloads, _directory) = counting(true).await;
        for version in 0..2 * PARTS * WAITING_MAX {
            note(&downloads, "a/b", "p", &version.to_string());
        }
        let rows = downloads.take();
        assert_eq!(rows.len(), PARTS * WAITING_MAX);
        let known = rows[0].version.clone();
        downloads.give_back(rows);
        note(&downloads, "a/b", "p", &known);
        let counted = downloads.take().into_iter().find(|row| row.version == known);
        assert_eq!(counted.map(|row| row.count), Some(2));
    }

    #[tokio::test]
    async fn what_is_gone_is_not_written() {
        let (downloads, _directory) = counting(true).await;
        for stage in ["a/b", "a/c"] {
            for project in ["p", "q"] {
                note(&downloads, stage, project, "1.0");
            }
        }
        let stage = |name: &str| name.parse::<StageName>().expect("a stage");
        let gone = vec![(stage("a/b"), Some("q".parse().expect("a name"))), (stage("a/c"), None)];
        downloads.forget(gone.clone());
        downloads.wait_for_gone().await;
        assert!(downloads.take_gone() == gone && downloads.take_gone().is_empty());
        assert_eq!(taken(&downloads), ["a/b p 1.0 1"]);
    }

    #[tokio::test]
    async fn nothing_is_counted_where_that_is_off() {
        let (downloads, _directory) = counting(false).await;
        note(&downloads, "a/b", "p", "1.0");
        assert_eq!(taken(&downloads), [""; 0]);
        assert!(downloads.kept().is_none());
    }

    #[test]
    fn days_are_those_of_utc() {
        assert_eq!(start_of(today()).as_second() % DAY_SECONDS, 0);
        assert_eq!(start_of(20_454).strftime("%F %T").to_string(), "2026-01-01 00:00:00");
    }
}
