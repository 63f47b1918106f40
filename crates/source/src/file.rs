//! Watches a dump in a file by polling, since notifications miss bind mounts, network file systems and the target of
//! a symbolic link.
//!
//! path -> [`Stamp`] a little more often than every second -> changed and at rest -> opened once -> [`Arrival`]. A file with a new
//! identity was renamed into place and is taken at once; one that is rewritten under the same identity is taken when
//! two looks agree. The file itself is never written or linked.

mod looks;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use resources::turns::blocking;
use tokio::time::sleep;

use super::SourceError;
use super::arrival::{Arrival, Stamp};
use looks::PathState;

/// How long a very young new file is watched before it counts as complete.
const SETTLE: Duration = Duration::from_millis(50);
/// A file whose modification is older than this is not being written.
const YOUNG: Duration = Duration::from_secs(2);
/// How many looks a forced poll waits for a file that is being written; after them it takes the file as it is.
const FORCED_LOOKS_MAX: usize = 10;

/// Watches one path.
#[derive(Debug)]
pub(crate) struct FileWatch {
    path: PathBuf,
    fingerprint: String,
    bytes_max: u64,
    look_interval: Duration,
    /// The version that was handed out last.
    taken: Option<Stamp>,
    /// Whether the version that was handed out last could not be used.
    rejected: bool,
    /// A version that was seen once and may still be growing.
    growing: Option<Stamp>,
    /// The error that was reported last, so that it is not reported at each look.
    trouble: Option<String>,
    /// What was there, if the next look has an outcome only when that changes.
    unchanged: Option<PathState>,
}

impl FileWatch {
    pub(crate) fn new(
        path: PathBuf,
        fingerprint: String,
        bytes_max: u64,
        look_interval: Duration,
    ) -> FileWatch {
        FileWatch {
            path,
            fingerprint,
            bytes_max,
            look_interval,
            taken: None,
            rejected: false,
            growing: None,
            trouble: None,
            unchanged: None,
        }
    }

    /// Waits until the next look can have another outcome than the last one; `None` if that is a matter of time.
    pub(crate) fn changed(&self) -> Option<impl Future<Output = ()>> {
        self.unchanged.map(|found| looks::changed(&self.path, found, self.look_interval))
    }

    /// The time until the next look. It is shorter while a file grows.
    pub(crate) fn next_look(&self) -> Duration {
        if self.growing.is_some() { self.look_interval / 4 } else { self.look_interval }
    }

    /// The current error, if the last look failed.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether the version that was handed out last could not be used and no other one has followed.
    pub(crate) fn is_rejected(&self) -> bool {
        self.rejected
    }

    pub(crate) fn accepted(&mut self) {
        self.rejected = false;
    }

    pub(crate) fn rejected(&mut self) {
        self.rejected = true;
    }

    /// Looks once. Unless forced, an error that the last look reported is not reported again. If forced, a rejected
    /// file that is at rest is handed out again.
    pub(crate) async fn poll(&mut self, force: bool) -> Result<Option<Arrival>, SourceError> {
        let outcome = self.look(force).await;
        match outcome {
            Ok(arrival) => {
                self.trouble = None;
                Ok(arrival)
            }
            Err(error) => {
                let text = error.to_string();
                let repeated = self.trouble.replace(text.clone()) == Some(text);
                // After an error any file counts as new, even if it looks like the last one.
                self.growing = None;
                if std::mem::take(&mut self.rejected) {
                    self.taken = None;
                }
                if repeated && !force { Ok(None) } else { Err(error) }
            }
        }
    }

    async fn look(&mut self, force: bool) -> Result<Option<Arrival>, SourceError> {
        self.unchanged = None;
        let mut stamp = match self.find().await {
            (Ok(stamp), _) => stamp,
            (Err(error), found) => {
                self.unchanged = Some(found);
                return Err(error);
            }
        };
        if Some(stamp) == self.taken && !(force && self.rejected) {
            self.unchanged = Some(PathState::File(stamp));
            self.growing = None;
            return Ok(None);
        }
        if force {
            for _ in 0..FORCED_LOOKS_MAX {
                if self.is_at_rest(stamp).await? {
                    break;
                }
                sleep(self.look_interval).await;
                stamp = self.stamp().await?;
            }
        } else if self.growing != Some(stamp) {
            let is_new = self.taken.is_none_or(|taken| taken.identity != stamp.identity);
            if !is_new || !self.is_at_rest(stamp).await? {
                self.growing = Some(stamp);
                return Ok(None);
            }
        }
        let (path, bytes_max) = (self.path.clone(), self.bytes_max);
        let mut arrival = blocking(move || Arrival::open(&path, bytes_max)).await?;
        arrival.source_fingerprint = self.fingerprint.clone();
        // This is the stamp of the handle, not of the path: if the name has another file by now, the next look sees
        // it.
        self.taken = Some(arrival.stamp);
        self.rejected = false;
        self.growing = None;
        Ok(Some(arrival))
    }

    /// Whether this version was finished a while ago, or at least does not change for a moment.
    async fn is_at_rest(&self, stamp: Stamp) -> Result<bool, SourceError> {
        let (seconds, nanoseconds) = stamp.modified_at;
        let modified_at = u64::try_from(seconds).ok().and_then(|seconds| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds as u32))
        });
        let age = modified_at.and_then(|modified_at| modified_at.elapsed().ok());
        if age.is_some_and(|age| age > YOUNG) {
            return Ok(true);
        }
        sleep(SETTLE).await;
        Ok(self.stamp().await? == stamp)
    }

    async fn stamp(&self) -> Result<Stamp, SourceError> {
        self.find().await.0
    }

    /// What is there, and as a stamp or an error.
    async fn find(&self) -> (Result<Stamp, SourceError>, PathState) {
        let path = self.path.clone();
        blocking(move || {
            let found = std::fs::metadata(&path);
            let is = PathState::of(&found);
            let stamp = match (found, is) {
                (_, PathState::File(stamp)) => Ok(stamp),
                (Err(cause), _) => Err(SourceError::File { path, cause }),
                (Ok(_), _) => Err(SourceError::NotAFile { path }),
            };
            (stamp, is)
        })
        .await
    }
}

#[cfg(test)]
mod tests;
