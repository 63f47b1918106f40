//! Looks at the counters of requests now and then, for the charts of the status page.

use std::sync::Arc;
use std::time::Instant;

use crate::app::App;
use crate::metrics::rates::INTERVAL;

/// Looks at them.
pub async fn run(app: Arc<App>) {
    loop {
        app.metrics.rates.look(Instant::now(), app.metrics.requests_by_surface());
        tokio::time::sleep(INTERVAL).await;
    }
}
