//! Compares each dump that is kept with the one before, for those who fetch only what differs.
//!
//! a kept dump -> [`Comparing::take`] -> the next one that was kept meanwhile, if any. A failure changes nothing but a log line and
//! the answers to those who want a delta: they fetch the dump.

use std::sync::Arc;

use anyhow::Context;
use source::KeptDumpFile;

use crate::app::App;
use crate::deltas::Comparing;
use crate::memory;

/// Runs until no other dump will be kept, and has then compared the last one: else the next process would not know how the dumps
/// of this one lead to it.
pub async fn run(app: Arc<App>) {
    let mut kept = app.deltas.kept();
    let mut comparing = None;
    let mut has_failed = false;
    loop {
        let next = kept.borrow_and_update().clone();
        if let Some(next) = next {
            let app = app.clone();
            let opened = comparing.take();
            let work = tokio::task::spawn_blocking(move || compare(&app, opened, next));
            let outcome =
                work.await.context("comparing has failed").and_then(|(opened, outcome)| {
                    comparing = opened;
                    outcome
                });
            match outcome {
                Ok(()) => has_failed = false,
                Err(error) => {
                    if !has_failed {
                        let error = format!("{error:#}");
                        tracing::error!(
                            error,
                            "the AUR's dump cannot be compared with the one before"
                        );
                    }
                    has_failed = true;
                }
            }
        }
        tokio::select! {
            biased;
            changed = kept.changed() => if changed.is_err() { return },
            () = app.deltas.ended.cancelled() => return,
        }
    }
}

fn compare(
    app: &App,
    opened: Option<Comparing>,
    next: KeptDumpFile,
) -> (Option<Comparing>, anyhow::Result<()>) {
    let opened = match opened {
        Some(opened) => Ok(opened),
        None => Comparing::open(&app.deltas),
    };
    let (opened, outcome) = match opened {
        Ok(mut opened) => {
            let outcome = opened.take(next, &app.deltas);
            (Some(opened), outcome)
        }
        Err(error) => (None, Err(error)),
    };
    memory::give_back();
    (opened, outcome)
}
