//! [`sweep()`]: deletes blobs that no record names, by hand or by the server's task.
//!
//! the time -> the names in the records -> the blobs to delete -> a check that they are not suspiciously many -> the sweep. In
//! this order no blob that a record names is ever deleted, however many processes write and sweep meanwhile.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use record::{Digest, Serial};
use store::Store;
use store::blobs::SweepReport;

use crate::clocks;
use crate::identity;
use crate::named_blobs::NamedBlobs;

/// Fewer blobs than this are deleted without asking how many there are in all.
const SUSPICIOUS_MIN: usize = 100;

/// How to sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepPlan {
    /// The minimum age of a blob; longer than the time between putting one and committing its record.
    pub grace: Duration,
    /// Only look.
    pub is_dry_run: bool,
    /// Delete also if it is more than half of all blobs.
    pub is_forced: bool,
}

/// The records that a server has read: a sweep keeps the blobs that they name, even if rows were removed from the database
/// since.
#[derive(Clone, Debug, Default)]
pub struct ReadRecords {
    /// The serial up to which it has read.
    pub serial: Serial,
    /// The blobs that the records named then.
    pub digests: HashSet<Digest>,
}

/// The outcome of a sweep.
#[derive(Clone, Debug)]
pub struct SweepOutcome {
    /// The serial of the records that were asked.
    pub serial: Serial,
    /// Blobs that records name.
    pub named: u64,
    /// Blobs that the records named when they were read, and do not name at the same serial: no commit has done that.
    pub vanished: u64,
    /// The blobs that were found, and deleted.
    pub report: SweepReport,
    /// Nothing was deleted, because it would have been more than half of all blobs: the blobs do not belong to these records,
    /// or much was deleted on purpose.
    pub is_refused: bool,
}

/// Deletes the blobs that no record names, by `plan`, except those that `known` names.
///
/// # Errors
/// Records and blobs with different names; a clock that is wrong; files that cannot be read or deleted. Blobs that were deleted until then stay
/// deleted.
pub async fn sweep(
    store: &Store,
    plan: SweepPlan,
    known: &ReadRecords,
) -> anyhow::Result<SweepOutcome> {
    if !plan.is_dry_run {
        // Always checked, even with `is_forced`: blobs of an unknown store stay, and those that only a wrong clock takes for old.
        identity::check_before_sweep(store).await?;
        clocks::check(store).await?;
    }
    // Taken first: blobs that are put from now on are young.
    let now = SystemTime::now();
    let named = NamedBlobs::read(&store.records).await?;
    if !plan.is_dry_run {
        // Older records might need the blobs that are deleted now, so they must not be used again.
        store.blobs.note_serial(named.serial).await?;
    }
    let vanished = match known.serial == named.serial {
        true => known.digests.iter().filter(|digest| !named.contains(digest)).count() as u64,
        false => 0,
    };
    let is_named = |digest: &Digest| named.contains(digest) || known.digests.contains(digest);
    let mut is_refused = false;
    let may_remove = |seen: &SweepReport| {
        // The wrong database would name none of these blobs.
        is_refused = !plan.is_dry_run && !plan.is_forced && is_suspicious(seen);
        !plan.is_dry_run && !is_refused
    };
    let report = store.blobs.sweep(is_named, plan.grace, now, may_remove).await?;
    let (serial, named) = (named.serial, named.count());
    Ok(SweepOutcome { serial, named, vanished, report, is_refused })
}

fn is_suspicious(seen: &SweepReport) -> bool {
    seen.unnamed.len() >= SUSPICIOUS_MIN && seen.unnamed.len() as u64 > seen.examined / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unnamed: usize, examined: u64, expected: bool) {
        let unnamed = vec![(Digest::of(b""), 1); unnamed];
        let seen = SweepReport { examined, unnamed, ..SweepReport::default() };
        assert_eq!(is_suspicious(&seen), expected);
    }

    #[test]
    fn more_than_half_of_many_is_suspicious() {
        check(99, 99, false);
        check(100, 100, true);
        check(100, 199, true);
        check(100, 200, false);
        check(0, 0, false);
    }
}
