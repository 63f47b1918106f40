//! Trials: an upstream is asked once when its mirror is made or changed, so that somebody hears what fails.
//!
//! settings of a mirror -> one request, as every other one of mirrors -> why it fails, with the setting that would help.

use std::sync::Arc;
use std::time::Duration;

use net::Egress;
use pypi::MirrorSettings;

use super::pages::Subject;
use super::upstream::{Origin, Upstream, UpstreamError, host_of};
use super::{Mirror, Mirrors};

/// How long somebody waits for the outcome.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

impl Mirrors {
    /// Why the upstream of this mirror fails, as far as it turns out within 5 seconds. It is asked for its list of projects, which is
    /// kept. `None` if it answers, or if a setting says that it is not asked.
    pub async fn try_upstream(self: &Arc<Mirrors>, mirror: &Arc<Mirror>) -> Option<UpstreamError> {
        let asking = async {
            if mirror.has_no_list {
                self.upstream_may_be_asked(mirror)?;
                return self.upstream.try_once(&mirror.origin, true).await;
            }
            let list = self.known(mirror, Subject::List, true).await?;
            list.trouble.map_or(Ok(()), Err)
        };
        let late = "; a large list may take longer, and is read to its end";
        in_time(&mirror.origin, late, asking).await.err().filter(|trouble| !trouble.is_offline)
    }
}

/// Asks the upstream that these settings name once, without a cache, for at most 5 seconds.
///
/// # Errors
/// Why it fails.
pub async fn try_upstream(settings: &MirrorSettings, egress: Egress) -> Result<(), UpstreamError> {
    let origin = settings.mirror_url.as_deref().and_then(Origin::parse);
    let origin = origin.ok_or_else(|| UpstreamError::new("`mirror_url` is no URL"))?;
    let upstream = Upstream::new(egress).map_err(|error| UpstreamError::new(error.to_string()))?;
    let has_no_list = settings.mirror_no_project_list.unwrap_or_default();
    in_time(&origin, "", upstream.try_once(&origin, has_no_list)).await
}

async fn in_time(
    origin: &Origin,
    late: &str,
    asking: impl Future<Output = Result<(), UpstreamError>>,
) -> Result<(), UpstreamError> {
    tokio::time::timeout(TRIAL_TIMEOUT, asking).await.unwrap_or_else(|_| {
        let (host, seconds) = (host_of(&origin.url), TRIAL_TIMEOUT.as_secs());
        Err(UpstreamError::new(format!("{host}: no whole answer within {seconds} seconds{late}")))
    })
}
