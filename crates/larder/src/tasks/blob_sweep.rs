//! Deletes records that belong to no stage, and blobs that no record names, at intervals.
//!
//! a pause of `store.sweep_seconds`, more or less -> what a deleted stage left behind -> [`maintenance::sweep`] ->
//! metrics and a log line. Any number of processes may do so on one store: the sweep is safe beside writers and
//! other sweeps, and the pauses differ, so that they seldom meet.

use std::sync::Arc;
use std::time::Duration;

use operations::indexes::SweepLeftovers;
use operations::{Refusal, Sender, carry_out_long};
use resources::turns::blocking;
use source::schedule::Jitter;
use state::maintenance::{self, ReadRecords, SweepPlan};
use state::stored::WriteFailure;

use crate::app::App;

/// The longest pause before the first sweep: a process that is restarted daily sweeps as well.
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// Sweeps from time to time; returns at once if sweeping is switched off. Cut off anywhere, a sweep leaves nothing half done.
pub async fn run(app: Arc<App>) {
    let interval = app.config.store.sweep;
    if interval.is_zero() {
        return;
    }
    let mut jitter = Jitter::from_system();
    let mut pause = pause(interval.min(FIRST_PAUSE_MAX), jitter.chance());
    loop {
        tokio::time::sleep(pause).await;
        sweep(&app).await;
        pause = self::pause(interval, jitter.chance());
    }
}

/// A pause between half of `interval` and one and a half; `chance` is from 0 to 1.
fn pause(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.5 + chance)
}

/// Sweeps once.
pub async fn sweep(app: &App) {
    sweep_leftovers(app).await;
    if let Err(error) = app.health.clocks.check().await {
        app.metrics.blob_sweep_failures.inc();
        let error = format!("{error:#}");
        tracing::warn!(%error, "unnamed blobs are not swept");
        return;
    }
    let plan =
        SweepPlan { grace: app.config.store.sweep_grace, is_dry_run: false, is_forced: false };
    let Some(stored) = app.live_store.snapshot_full() else { return };
    let known = blocking(move || ReadRecords {
        serial: stored.serial,
        digests: stored.records().flat_map(|record| record.blobs).collect(),
    });
    let known = known.await;
    let swept = maintenance::sweep(&app.store, plan, &known).await;
    if let Ok(vanished @ 1..) = swept.as_ref().map(|outcome| outcome.vanished) {
        app.metrics.blob_sweep_failures.inc();
        tracing::error!(
            blobs = vanished,
            "records that this server has read are gone from the database, and no commit has deleted them; their blobs \
             stay. `larder rescue` writes what this server has in memory into a new store"
        );
    }
    match swept {
        Ok(outcome) if outcome.is_refused => {
            app.metrics.blob_sweep_failures.inc();
            tracing::error!(
                unnamed = outcome.report.unnamed.len(),
                blobs = outcome.report.examined,
                "most blobs are named by no record, and nothing was deleted: are these the records that \
                 belong to these blobs? If so, `larder sweep --force` deletes them"
            );
        }
        Ok(outcome) => {
            let report = outcome.report;
            app.metrics.blobs_swept.inc_by(report.deleted);
            app.metrics.blobs_swept_bytes.inc_by(report.bytes_freed);
            if report.deleted > 0 {
                let (deleted, bytes) = (report.deleted, report.bytes_freed);
                tracing::info!(deleted, bytes, "deleted blobs that no record names");
            }
        }
        Err(error) => {
            app.metrics.blob_sweep_failures.inc();
            tracing::warn!(%error, "unnamed blobs cannot be swept");
        }
    }
}

/// Removes records that were written into a stage of the Python index while it was being deleted, so that nothing names their
/// blobs any more.
async fn sweep_leftovers(app: &App) {
    if app.following.is_some() {
        return;
    }
    // Planning looks at every stage that ever existed.
    match carry_out_long(&mut app.keeper(), &Sender::Server, &SweepLeftovers).await {
        // Without a snapshot of the whole store there is nothing to decide on.
        Err(Refusal::Failed(WriteFailure::NotLoaded)) => {}
        Ok(done) if done.outcome > 0 => {
            let records = done.outcome;
            tracing::info!(records, "deleted records that a deleted index left behind");
        }
        Ok(_) => {}
        Err(error) => {
            app.metrics.blob_sweep_failures.inc();
            tracing::warn!(%error, "records that a deleted index left behind cannot be deleted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ() {
        let hour = Duration::from_secs(3_600);
        assert_eq!(pause(hour, 0.0), Duration::from_secs(1_800));
        assert_eq!(pause(hour, 1.0), Duration::from_secs(5_400));
    }
}
