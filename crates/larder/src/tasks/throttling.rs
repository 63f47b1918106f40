//! Says in the security log when wrong passwords are no longer throttled.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;

/// How often the throttled clients are checked.
const INTERVAL: Duration = Duration::from_secs(5);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let say = |ended: Vec<_>| ended.iter().for_each(|it| app.security.throttling_ended(it));
    while shutdown.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        say(app.limits.passwords.ended());
    }
    say(app.limits.passwords.end());
}
