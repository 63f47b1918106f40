//! Looks at the counters of requests now and then, for the charts of the status page.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::metrics::rates::INTERVAL;

/// Looks until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    loop {
        app.metrics.rates.look(Instant::now(), app.metrics.requests_by_surface());
        if shutdown.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
            return;
        }
    }
}
