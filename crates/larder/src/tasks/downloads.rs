//! Adds what was counted of downloads to the sums in the database, and forgets what is gone or old.
//!
//! [`Downloads`] -> a pause of a minute -> one transaction. A process that is killed loses at most the
//! last minute; a stop writes it. Nothing wakes this task while nothing is downloaded or removed.

use std::sync::Arc;
use std::time::Duration;

use state::side_files::{self as files, DOWNLOADS_WHAT};
use store::records::DownloadsError;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::app::downloads::{DAYS, Downloads, RemovedProject, today};
use crate::app::side_files;

/// How long after a download all that were counted are written; also after a failure.
const PAUSE: Duration = Duration::from_secs(60);

/// Longest time that writing takes of a stop: it is of no use to wait for a database that does not answer.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Projects that are looked up at a time.
const PROJECTS_AT_ONCE: i64 = 1_000;

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let Some(kept) = app.python.downloads.kept() else { return };
    let loaded = app.live_store.wait_until_loaded();
    if shutdown.run_until_cancelled(loaded).await.is_none() {
        return;
    }
    let (mut looked_through_on, mut has_failed) = (None, false);
    loop {
        let day = today();
        let working = async {
            write(&app.python.downloads, kept).await?;
            // What was removed while no process looked, or is too old: at the start, and once on a day on which something is written.
            match looked_through_on == Some(day) {
                true => Ok(()),
                false => look_through(&app, kept, day).await,
            }
        };
        let stopped = async {
            shutdown.cancelled().await;
            tokio::time::sleep(STOP_MAX).await;
        };
        let outcome = tokio::select! {
            outcome = working => outcome,
            () = stopped => return,
        };
        if outcome.is_ok() {
            looked_through_on = Some(day);
        }
        let had_failed = std::mem::replace(&mut has_failed, outcome.is_err());
        match outcome {
            Ok(()) if had_failed => tracing::info!("downloads are written again"),
            Ok(()) => {}
            Err(DownloadsError::Damaged(cause)) => begin_anew(&app, kept, &cause.to_string()).await,
            Err(error) if !had_failed => {
                tracing::warn!(%error, "cannot write download counts now; keeping them in memory");
            }
            Err(_) => {}
        }
        let counted = async {
            if !has_failed {
                app.python.downloads.wait().await;
            }
            tokio::time::sleep(PAUSE).await;
        };
        let due = async {
            tokio::select! {
                () = counted => {}
                () = app.python.downloads.wait_for_gone(), if !has_failed => {}
            }
        };
        if shutdown.run_until_cancelled(due).await.is_none() {
            _ = tokio::time::timeout(STOP_MAX, write(&app.python.downloads, kept)).await;
            return kept.let_go().await;
        }
    }
}

/// Forgets what is gone, and adds what was counted.
async fn write(downloads: &Downloads, kept: &store::Downloads) -> Result<(), DownloadsError> {
    let gone = downloads.take_gone();
    if let Err(error) = forget(kept, &gone).await {
        downloads.forget(gone);
        return Err(error);
    }
    if !gone.is_empty() {
        downloads.read_anew();
    }
    let counts = downloads.take();
    if counts.is_empty() {
        return Ok(());
    }
    let added = kept.add(counts.clone()).await;
    match &added {
        // Adding them once more could count them twice.
        Ok(()) | Err(DownloadsError::OutcomeUnknown(_)) => {}
        Err(DownloadsError::Unavailable(_) | DownloadsError::Damaged(_)) => {
            downloads.give_back(counts);
        }
    }
    added
}

async fn forget(kept: &store::Downloads, gone: &[RemovedProject]) -> Result<(), DownloadsError> {
    for (stage, project) in gone {
        kept.forget(stage.as_str(), project.as_ref().map(|name| name.as_str())).await?;
    }
    Ok(())
}

/// Forgets days that are too old, and projects that the published state does not have. What a mirror has is not looked up.
async fn look_through(
    app: &App,
    kept: &store::Downloads,
    today: i64,
) -> Result<(), DownloadsError> {
    kept.forget_before(today - DAYS + 1).await?;
    let mut last = (String::new(), String::new());
    loop {
        let found = kept.projects_after(&last.0, &last.1, PROJECTS_AT_ONCE).await?;
        let Some(end) = found.last() else { return Ok(()) };
        last = end.clone();
        let Some(stored) = app.live_store.snapshot_full() else { return Ok(()) };
        for (stage, project) in found {
            let is_there = stored.index.stage(&stage).is_some_and(|stage| {
                stage.config().is_mirror() || stage.project(&project).is_some()
            });
            if !is_there {
                kept.forget(&stage, Some(&project)).await?;
            }
        }
    }
}

/// Sets the file aside because of this flaw. It is made anew as if it had been missing.
async fn begin_anew(app: &App, kept: &store::Downloads, flaw: &str) {
    let Some(file) = kept.file() else { return };
    kept.let_go().await;
    let done = side_files::set_aside_database(files::of_sqlite(file)).await;
    app.health
        .side_files
        .note(DOWNLOADS_WHAT, format!("`{}` is of no use ({flaw}): {done}", file.display()));
}
