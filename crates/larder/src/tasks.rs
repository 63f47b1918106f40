//! The background tasks of the server.

pub mod advisories;
pub mod article_texts;
pub mod aur_history;
pub mod aur_refresh;
pub mod blob_sweep;
pub mod clocks;
pub mod downloads;
pub mod dump_deltas;
pub mod follow;
pub mod highest_serial;
mod memory;
mod own_thread;
pub mod rates;
pub mod required_by;
pub mod rescue;
pub mod retention;
pub mod scrub;
pub mod store_tail;
pub mod throttling;
pub mod token_uses;
pub mod webhooks;

use tokio_util::sync::CancellationToken;

pub(crate) use own_thread::on_own_thread;

/// Runs a task until `shutdown`, which may cut it off wherever it waits. Boxed: some are large, and are handed on several times.
pub(crate) fn until(
    shutdown: CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let task = Box::pin(task);
    async move { _ = shutdown.run_until_cancelled_owned(task).await }
}
