//! Says in the security log when wrong passwords are no longer throttled.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;

/// How often the throttled clients are checked, while there are any.
const INTERVAL: Duration = Duration::from_secs(5);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let say = |ended: Vec<_>| ended.iter().for_each(|it| app.logins.security.throttling_ended(it));
    let passwords = &app.limits.passwords;
    let watching = async {
        loop {
            passwords.throttled().await;
            while passwords.is_throttling() {
                tokio::time::sleep(INTERVAL).await;
                say(passwords.ended());
            }
        }
    };
    let _: Option<Infallible> = shutdown.run_until_cancelled(watching).await;
    say(passwords.end());
}
