//! Notes in the store when tokens were used last, so that it is known after a restart, to every process and to the command line.
//!
//! [`TokenUses`](crate::app::token_uses::TokenUses) -> a pause -> [`NoteTokenUses`], which keeps those whose noted use is more than
//! a day earlier. Uses of the last seconds before a crash are lost; a stop notes them.

use std::sync::Arc;
use std::time::Duration;

use operations::tokens::NoteTokenUses;
use operations::{Sender, carry_out};
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// How long after a use all uses are noted.
const PAUSE: Duration = Duration::from_secs(30);

/// Longest time that noting takes of a stop: it is of no use to wait for a store that does not answer.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Most uses in one batch.
const AT_ONCE: usize = 500;

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    loop {
        let used = async {
            app.logins.token_uses.wait().await;
            tokio::time::sleep(PAUSE).await;
        };
        let is_over = shutdown.run_until_cancelled(used).await.is_none();
        let noting = note(&app);
        if is_over {
            _ = tokio::time::timeout(STOP_MAX, noting).await;
            return;
        }
        noting.await;
    }
}

async fn note(app: &App) {
    let mut uses = app.logins.token_uses.take();
    let Some(stored) = app.live_store.snapshot_full() else { return };
    uses.retain(|(id, at)| account::change::is_use_late(&stored.accounts, *id, *at));
    drop(stored);
    for uses in uses.chunks(AT_ONCE) {
        let noting = NoteTokenUses { uses: uses.to_vec() };
        if let Err(refusal) = carry_out(&mut app.keeper(), &Sender::Server, &noting).await {
            // The next use is noted again.
            tracing::debug!(error = %refusal, "the last use of tokens is not noted");
            return;
        }
    }
}
