//! [`LiveSetting`]: the settings that change while the server runs.
//!
//! SIGHUP reads them from the configuration again, the admin API gets them as numbers; both set them here.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use config::Config;

use super::{App, RefreshRequest};

/// A setting that takes effect at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveSetting {
    /// Results in one answer.
    ResultsMax,
    /// How often the source is asked, in seconds.
    Refresh,
    /// By how many percent a dump may be smaller than the served one.
    ShrinkPercentMax,
    /// Requests per client within one window.
    RateLimit,
    /// Length of a client's window, in seconds.
    RateLimitWindow,
    /// Whether no upstream of a mirror is asked: 0 or 1.
    MirrorsOffline,
}

impl LiveSetting {
    const ALL: [LiveSetting; 6] = [
        LiveSetting::ResultsMax,
        LiveSetting::Refresh,
        LiveSetting::ShrinkPercentMax,
        LiveSetting::RateLimit,
        LiveSetting::RateLimitWindow,
        LiveSetting::MirrorsOffline,
    ];

    /// The setting with this path in the configuration.
    pub(crate) fn of_path(path: &str) -> Option<LiveSetting> {
        LiveSetting::ALL.into_iter().find(|setting| setting.path() == path)
    }

    const fn path(self) -> &'static str {
        match self {
            LiveSetting::ResultsMax => "aur.results_max",
            LiveSetting::Refresh => "aur.refresh_seconds",
            LiveSetting::ShrinkPercentMax => "aur.shrink_percent_max",
            LiveSetting::RateLimit => "aur.rate_limit",
            LiveSetting::RateLimitWindow => "aur.rate_limit_window_seconds",
            LiveSetting::MirrorsOffline => "python.mirrors_offline",
        }
    }

    /// Its value in a configuration.
    pub(crate) fn configured(self, config: &Config) -> u64 {
        let aur = &config.aur;
        match self {
            LiveSetting::ResultsMax => aur.results_max as u64,
            LiveSetting::Refresh => aur.refresh.as_secs(),
            LiveSetting::ShrinkPercentMax => aur.shrink_percent_max.into(),
            LiveSetting::RateLimit => aur.rate_limit.into(),
            LiveSetting::RateLimitWindow => aur.rate_limit_window.as_secs(),
            LiveSetting::MirrorsOffline => config.python.mirrors_offline.into(),
        }
    }

    /// Its value now.
    pub(crate) fn value(self, app: &App) -> u64 {
        match self {
            LiveSetting::ResultsMax => app.aur.results_max.load(Relaxed) as u64,
            LiveSetting::Refresh => app.aur.refresh_seconds.load(Relaxed),
            LiveSetting::ShrinkPercentMax => app.aur.shrink_percent_max.load(Relaxed).into(),
            LiveSetting::RateLimit => app.aur.rate_limiter.limit().into(),
            LiveSetting::RateLimitWindow => app.aur.rate_limiter.window().as_secs(),
            LiveSetting::MirrorsOffline => app.python.mirrors.is_offline().into(),
        }
    }

    /// Changes the value. The caller has checked the bounds; a value too large for the type becomes the largest.
    ///
    /// # Errors
    /// The interval of a refresh cannot be changed if nothing is refreshed: there is no source, or the server is stopping.
    pub(crate) async fn set(self, app: &App, value: u64) -> Result<(), String> {
        match self {
            LiveSetting::ResultsMax => {
                app.aur.results_max.store(usize::try_from(value).unwrap_or(usize::MAX), Relaxed);
            }
            LiveSetting::Refresh => {
                let interval = RefreshRequest::SetInterval(Duration::from_secs(value));
                let sent = app.aur.refresh.send(interval).await;
                sent.map_err(|_| "the data is not refreshed: there is no source".to_owned())?;
                app.aur.refresh_seconds.store(value, Relaxed);
            }
            LiveSetting::ShrinkPercentMax => {
                app.aur.shrink_percent_max.store(u8::try_from(value).unwrap_or(u8::MAX), Relaxed);
            }
            LiveSetting::RateLimit => {
                app.aur.rate_limiter.set_limit(u32::try_from(value).unwrap_or(u32::MAX));
            }
            LiveSetting::RateLimitWindow => {
                app.aur.rate_limiter.set_window(Duration::from_secs(value));
            }
            LiveSetting::MirrorsOffline => app.python.mirrors.set_offline(value > 0),
        }
        Ok(())
    }
}
