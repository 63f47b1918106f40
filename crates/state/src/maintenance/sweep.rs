//! [`sweep()`]: blobs that no record names are deleted, by hand or by the server's task.
//!
//! the time -> the names in the records -> what would go -> (not suspiciously much) -> the sweep. In this order
//! nothing that a record names is ever deleted, however many processes write and sweep meanwhile.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use record::{Digest, Serial};
use store::Store;
use store::blobs::SweepReport;

use crate::identity;
use crate::named_blobs::Named;

/// Fewer blobs than this are deleted without asking how many there are in all.
const SUSPICIOUS_MIN: usize = 100;

/// What to sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepPlan {
    /// How old a blob must be; longer than it takes from putting one to committing its record.
    pub grace: Duration,
    /// Only look.
    pub is_dry_run: bool,
    /// Delete also if it is more than half of all blobs.
    pub is_forced: bool,
}

/// What a server has read of the records: a sweep keeps the blobs that they named, also if somebody has taken rows out of
/// the database since.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The serial up to which it has read.
    pub serial: Serial,
    /// The blobs that the records named then.
    pub digests: HashSet<Digest>,
}

/// What came of a sweep.
#[derive(Clone, Debug)]
pub struct SweepOutcome {
    /// The serial of the records that were asked.
    pub serial: Serial,
    /// Blobs that records name.
    pub named: u64,
    /// Blobs that the records named when they were read, and do not name at the same serial: no commit has done that.
    pub vanished: u64,
    /// What was found, and deleted.
    pub report: SweepReport,
    /// Nothing was deleted, because it would have been more than half of all blobs: these are not the
    /// records that belong to these blobs, or much was deleted on purpose.
    pub is_refused: bool,
}

/// Deletes the blobs that no record names, by `plan`, except those that are `known`.
///
/// # Errors
/// Records and blobs that do not carry the same name; what cannot be read or deleted; what was deleted until then
/// stays deleted.
pub async fn sweep(store: &Store, plan: SweepPlan, known: &Known) -> anyhow::Result<SweepOutcome> {
    if !plan.is_dry_run {
        // However many blobs there are, and whatever was forced: those of a store that is not known stay.
        identity::check_before_sweep(store).await?;
    }
    // Taken first: what is put from now on is young.
    let now = SystemTime::now();
    let named = Named::read(&store.records).await?;
    if !plan.is_dry_run {
        // What is deleted for these records, no older ones may miss.
        store.blobs.note_serial(named.serial).await?;
    }
    let vanished = match known.serial == named.serial {
        true => known.digests.iter().filter(|digest| !named.contains(digest)).count() as u64,
        false => 0,
    };
    let is_named = |digest: &Digest| named.contains(digest) || known.digests.contains(digest);
    let mut is_refused = false;
    let may_remove = |seen: &SweepReport| {
        // The wrong database beside these blobs names none of them.
        is_refused = !plan.is_dry_run && !plan.is_forced && is_suspicious(seen);
        !plan.is_dry_run && !is_refused
    };
    let report = store.blobs.sweep(is_named, plan.grace, now, may_remove).await?;
    let (serial, named) = (named.serial, named.sizes.len() as u64);
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
