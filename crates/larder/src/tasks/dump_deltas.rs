//! Compares each dump that is kept with the one before, for those who fetch only what differs.
//!
//! a kept dump -> [`Comparing::take`] -> the next one that was kept meanwhile, if any. A failure changes nothing but a log line and
//! the answers to those who want a delta: they fetch the dump.

use std::sync::Arc;

use anyhow::Context;

use crate::app::App;
use crate::changes::deltas::Comparing;
use crate::memory;

/// Runs until no other dump will be kept, and has then compared the last one: else the next process would not know how the dumps
/// of this one lead to it.
pub async fn run(app: Arc<App>) {
    let mut kept = app.deltas.kept();
    let mut comparing = Comparing::default();
    let mut has_failed = false;
    loop {
        let next = kept.borrow_and_update().clone();
        if let Some(next) = next {
            let app = app.clone();
            let mut taken = std::mem::take(&mut comparing);
            let work = tokio::task::spawn_blocking(move || {
                let outcome = taken.take(next, &app.deltas);
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
            () = app.deltas.ended.cancelled() => return,
        }
    }
}
