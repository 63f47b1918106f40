//! Compares this machine's clock with those of the store, at the start and every few minutes.
//!
//! a difference -> [`Clocks`](state::clocks::Clocks), which logs it -> `/readyz?verbose` and a metric; while it is too large, nothing
//! is deleted by time.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

const INTERVAL: Duration = Duration::from_secs(300);

/// The pause while they differ, or the store cannot be asked.
const RETRY: Duration = Duration::from_secs(20);

/// Compares the clocks now and then.
pub async fn run(app: Arc<App>) {
    loop {
        let pause = match app.health.clocks.check().await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::debug!(
                    error = format!("{error:#}"),
                    "this machine's clock and the store's differ or cannot be compared"
                );
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}
