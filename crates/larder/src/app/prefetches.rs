//! Locks whose files are fetched ahead into the caches of mirrors, and how the last one of each mirror ended. Each mirror
//! fetches one lock at a time, and this process knows only its own. A restart forgets them; fetched files stay.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mirrors::prefetch::FetchCounts;
use pypi::StageName;
use tokio_util::sync::CancellationToken;

/// Locks that are fetched at once, of all mirrors together.
const RUNNING_MAX: usize = 4;

/// The number of mirrors whose last lock is remembered.
const REMEMBERED_MAX: usize = 200;

/// Problems of a lock that are kept; further ones are counted.
const PROBLEMS_MAX: usize = 500;

/// Characters of a problem.
const PROBLEM_CHARS_MAX: usize = 500;

/// The last lock of each mirror.
#[derive(Default)]
pub(crate) struct Prefetches {
    last: Mutex<HashMap<StageName, Arc<Prefetch>>>,
}

/// Why no lock is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// A lock of this mirror is being fetched.
    Mirror,
    /// [`RUNNING_MAX`] are.
    Process,
}

/// A lock that is fetched, or was.
pub(crate) struct Prefetch {
    /// Who asked for it.
    pub(crate) by: String,
    /// When it was begun.
    pub(crate) begun_at: Timestamp,
    /// Releases that the lock names.
    pub(crate) releases: usize,
    /// Packages of the lock that do not come from an index.
    pub(crate) others: usize,
    /// Ends it.
    pub(crate) stop: CancellationToken,
    progress: Mutex<Progress>,
}

/// How far a lock is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Releases that were looked at.
    pub(crate) releases: usize,
    /// What was fetched of these releases.
    pub(crate) fetched: FetchCounts,
    /// What was not fetched, and why, in the order in which it happened.
    pub(crate) problems: Vec<String>,
    /// Problems that are not kept.
    pub(crate) problems_left_out: usize,
    /// How it ended; `None` while it runs.
    pub(crate) end: Option<End>,
}

/// How a lock ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// When.
    pub(crate) at: Timestamp,
    /// Why before its end, if so.
    pub(crate) stopped: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prefetches {
    /// The last lock of this mirror.
    pub(crate) fn of(&self, mirror: &StageName) -> Option<Arc<Prefetch>> {
        lock(&self.last).get(mirror).cloned()
    }

    /// Begins another lock.
    ///
    /// # Errors
    /// [`Busy`]
    pub(crate) fn begin(
        &self,
        mirror: &StageName,
        prefetch: Prefetch,
    ) -> Result<Arc<Prefetch>, Busy> {
        let mut last = lock(&self.last);
        if last.get(mirror).is_some_and(|it| it.is_running()) {
            return Err(Busy::Mirror);
        }
        if last.values().filter(|it| it.is_running()).count() >= RUNNING_MAX {
            return Err(Busy::Process);
        }
        if last.len() >= REMEMBERED_MAX {
            let ended = last.iter().filter(|(_, it)| !it.is_running());
            let oldest = ended.min_by_key(|(_, it)| it.begun_at).map(|(name, _)| name.clone());
            oldest.and_then(|name| last.remove(&name));
        }
        let prefetch = Arc::new(prefetch);
        last.insert(mirror.clone(), prefetch.clone());
        Ok(prefetch)
    }

    /// Forgets this lock of a mirror that is gone, unless another mirror with its name has begun one.
    pub(crate) fn forget_this(&self, mirror: &StageName, prefetch: &Arc<Prefetch>) {
        let mut last = lock(&self.last);
        if last.get(mirror).is_some_and(|it| Arc::ptr_eq(it, prefetch)) {
            last.remove(mirror);
        }
    }

    /// Forgets the lock of a mirror that is gone, and ends it.
    pub(crate) fn forget(&self, mirror: &StageName) {
        if let Some(last) = lock(&self.last).remove(mirror) {
            last.stop.cancel();
        }
    }
}

impl Prefetch {
    /// A prefetch that begins now.
    pub(crate) fn new(by: String, releases: usize, others: usize, begun_at: Timestamp) -> Prefetch {
        let (stop, progress) = (CancellationToken::new(), Mutex::default());
        Prefetch { by, begun_at, releases, others, stop, progress }
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Whether the lock is being fetched.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.progress).end.is_none()
    }

    /// Notes what became of a release.
    pub(crate) fn note(&self, fetched: FetchCounts, problems: Vec<String>) {
        let mut progress = lock(&self.progress);
        progress.releases += 1;
        progress.fetched += fetched;
        for problem in problems {
            if progress.problems.len() == PROBLEMS_MAX {
                progress.problems_left_out += 1;
            } else {
                progress.problems.push(record::shortened(&problem, PROBLEM_CHARS_MAX).into_owned());
            }
        }
    }

    /// Notes that it has ended, unless that is known: why before its end, if so.
    pub(crate) fn end(&self, stopped: Option<String>) {
        let end = End { at: Timestamp::now(), stopped };
        lock(&self.progress).end.get_or_insert(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(all: &Prefetches, mirror: &str) -> Result<Arc<Prefetch>, Busy> {
        let prefetch = Prefetch::new("alice".to_owned(), 1, 0, Timestamp::UNIX_EPOCH);
        all.begin(&mirror.parse().expect("a name"), prefetch)
    }

    #[test]
    fn one_of_each_mirror_runs_and_a_few_together() {
        let all = Prefetches::default();
        let first = begin(&all, "a/0").expect("the first");
        assert_eq!(begin(&all, "a/0").err(), Some(Busy::Mirror));
        for at in 1..RUNNING_MAX {
            begin(&all, &format!("a/{at}")).expect("another mirror");
        }
        assert_eq!(begin(&all, "a/x").err(), Some(Busy::Process));
        first.end(None);
        begin(&all, "a/x").expect("room for one");
        assert_eq!(begin(&all, "a/0").err(), Some(Busy::Process));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let all = Prefetches::default();
        let running = begin(&all, "a/running").expect("one");
        for at in 0..2 * REMEMBERED_MAX {
            begin(&all, &format!("a/{at}")).expect("another").end(None);
        }
        assert_eq!(lock(&all.last).len(), REMEMBERED_MAX);
        let problems = vec!["é".repeat(2 * PROBLEM_CHARS_MAX); PROBLEMS_MAX + 2];
        running.note(FetchCounts::default(), problems);
        let progress = running.progress();
        assert_eq!((progress.problems.len(), progress.problems_left_out), (PROBLEMS_MAX, 2));
        assert_eq!(progress.problems[0].chars().count(), PROBLEM_CHARS_MAX + 1);
        running.end(Some("first".to_owned()));
        running.end(None);
        let end = running.progress().end.expect("its end");
        assert_eq!(end.stopped.as_deref(), Some("first"));
    }
}
