//! Compares each dump that is kept with the one before, for clients that fetch only what differs.
//!
//! a kept dump -> [`DumpComparison::take`] -> the next one that was kept meanwhile, if any. If it fails, it logs a line, and clients
//! that ask for a delta fetch the whole dump.

use std::sync::Arc;

use anyhow::Context;

use super::memory;
use crate::app::App;
use crate::published::changes::deltas::DumpComparison;

/// Runs until no other dump will be kept. It compares the last dump before it ends, because the next process cannot tell how
/// this process's dumps lead to it.
pub async fn run(app: Arc<App>) {
    let mut kept = app.aur.deltas.kept();
    let mut comparing = DumpComparison::default();
    let mut has_failed = false;
    loop {
        let next = kept.borrow_and_update().clone();
        if let Some(next) = next {
            let app = app.clone();
            let mut taken = std::mem::take(&mut comparing);
            let work = tokio::task::spawn_blocking(move || {
                let outcome = taken.take(next, &app.aur.deltas);
                memory::give_back();
                (taken, outcome)
            });
            let outcome = match work.await.context("comparing has failed") {
                Ok((taken, outcome)) => {
                    comparing = taken;
                    outcome
                }
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome
                && !has_failed
            {
                let error = format!("{error:#}");
                tracing::error!(error, "the AUR's dump cannot be compared with the one before");
            }
            has_failed = outcome.is_err();
        }
        tokio::select! {
            biased;
            changed = kept.changed() => if changed.is_err() { return },
            () = app.aur.deltas.ended.cancelled() => return,
        }
    }
}
