//! [`BlobStore::sweep`]: deletes blobs that no record names.
//!
//! A blob that a record names stays. One that was put or touched within the grace period stays, because its record may not be
//! committed yet. All others are deleted. If a blob is put or touched while the sweep considers it, each backend makes sure
//! that it is either spared, or that its writer finds it missing and puts it again.

use std::time::{Duration, SystemTime};

use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;

use super::directory::SweepAction;
use super::error::{BlobError, blocking};
use super::{Backend, BlobEntry, BlobStore};

/// The outcome of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Blobs that were looked at.
    pub examined: u64,
    /// Blobs that no record names, older than the grace period: each with its size in bytes, in no order.
    pub unnamed: Vec<(Digest, u64)>,
    /// Blobs that no record names, but too young to be removed.
    pub young: u64,
    /// How many of `unnamed` were put or touched during the sweep, and stayed.
    pub spared: u64,
    /// How many of `unnamed` are gone.
    pub deleted: u64,
    /// Bytes of the deleted blobs.
    pub bytes_freed: u64,
    /// Leftovers of interrupted uploads and sweeps that were removed, or, if the sweep only reports, would have been.
    pub temporaries_removed: u64,
}

/// Removals under way at once, in an object store.
const REMOVALS_MAX: usize = 8;

impl BlobStore {
    /// Removes the blobs for which `is_named` is false and that were last put or touched `grace` or longer before `now`. Only
    /// reports them unless `may_remove`, which is called once all are found. Takes some 100 bytes of memory for each of them.
    ///
    /// The caller takes `now` *before* it reads from the records which blobs are named, and chooses a `grace` longer than the
    /// time between putting a blob and committing the record that names it (and, for an object store, longer than the two
    /// clocks can differ). Then no blob that a record names is ever removed, even if other processes put, touch and commit
    /// meanwhile.
    ///
    /// # Errors
    /// The first error of the disk or the object store; what was removed until then stays removed.
    pub async fn sweep(
        &self,
        is_named: impl Fn(&Digest) -> bool + Send + Sync,
        grace: Duration,
        now: SystemTime,
        may_remove: impl FnOnce(&SweepReport) -> bool,
    ) -> Result<SweepReport, BlobError> {
        self.check_identity().await?;
        let mut report = SweepReport::default();
        let mut doomed = Vec::new();
        let mut batches = self.list_batches();
        while let Some(batch) = batches.try_next().await? {
            for blob in batch {
                report.examined += 1;
                if is_named(&blob.digest) {
                    continue;
                }
                if is_young(blob.touched_at, now, grace) {
                    report.young += 1;
                    continue;
                }
                report.unnamed.push((blob.digest, blob.size_bytes));
                doomed.push(blob);
            }
        }
        let may_remove = may_remove(&report);
        // Listing may have taken long.
        self.check_identity().await?;
        report.temporaries_removed = self.remove_leftovers(grace, now, !may_remove).await?;
        if may_remove {
            self.remove(doomed, &mut report).await?;
        }
        Ok(report)
    }

    async fn remove(
        &self,
        doomed: Vec<BlobEntry>,
        report: &mut SweepReport,
    ) -> Result<(), BlobError> {
        let mut count = |size_bytes, swept| match swept {
            SweepAction::Removed => {
                report.deleted += 1;
                report.bytes_freed += size_bytes;
            }
            SweepAction::Spared => report.spared += 1,
        };
        match &self.backend {
            Backend::Directory(directory) => {
                for blob in doomed {
                    let directory = directory.clone();
                    let size_bytes = blob.size_bytes;
                    count(size_bytes, blocking(move || directory.sweep(&blob)).await?);
                }
            }
            Backend::Objects(objects) => {
                let removals = futures_util::stream::iter(doomed).map(|blob| async move {
                    Ok::<_, BlobError>((blob.size_bytes, objects.sweep(&blob).await?))
                });
                let mut removals = removals.buffer_unordered(REMOVALS_MAX);
                while let Some((size_bytes, swept)) = removals.try_next().await? {
                    count(size_bytes, swept);
                }
            }
        }
        Ok(())
    }

    async fn remove_leftovers(
        &self,
        grace: Duration,
        now: SystemTime,
        is_dry_run: bool,
    ) -> Result<u64, BlobError> {
        let directory = self.spool_directory();
        let spools = blocking(move || super::spool::remove_stale(&directory, is_dry_run)).await?;
        match &self.backend {
            Backend::Directory(_) => Ok(spools),
            Backend::Objects(objects) => {
                Ok(spools + objects.remove_leftovers(grace, now, is_dry_run).await?)
            }
        }
    }
}

/// Whether a blob that was last touched at `touched_at` is too young at `now` to be removed; a time in the future is young.
pub(super) fn is_young(touched_at: SystemTime, now: SystemTime, grace: Duration) -> bool {
    !now.duration_since(touched_at).is_ok_and(|age| age >= grace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(age_seconds: i64, grace_seconds: u64, young: bool) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let age = Duration::from_secs(age_seconds.unsigned_abs());
        let touched_at = if age_seconds < 0 { now + age } else { now - age };
        assert_eq!(is_young(touched_at, now, Duration::from_secs(grace_seconds)), young);
    }

    #[test]
    fn a_blob_is_young_until_the_grace_is_over() {
        check(9, 10, true);
        check(10, 10, false);
        check(0, 0, false);
        check(-1, 0, true);
        check(-1_000, 10, true);
    }
}
