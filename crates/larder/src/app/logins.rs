//! [`Logins`]: who vouches for users and CI jobs beside the store's own passwords and tokens, and what is noted of log-ins.

use config::{Config, Environment, read_providers};
use issuers::{Issuers, Provider};
use passwords::Passwords;
use state::security::SecurityLog;

use super::directory::Directory;
use super::egress;
use super::proxy_login::ProxyLogin;
use super::token_uses::TokenUses;
use crate::metrics::Metrics;

/// Who else vouches for users and CI jobs, and what is noted of log-ins.
pub(crate) struct Logins {
    /// Issuers of identities of CI jobs, with their keys.
    pub(crate) issuers: Issuers,
    /// The directory that knows users, if one is configured.
    pub(crate) directory: Option<Directory>,
    /// The headers in which proxies name users, if any is believed.
    pub(crate) proxy_login: Option<ProxyLogin>,
    /// Identity providers where people log in.
    pub(crate) providers: Vec<Provider>,
    /// When tokens were used last.
    pub(crate) token_uses: TokenUses,
    /// Who did what, for the log.
    pub(crate) security: SecurityLog,
}

impl Logins {
    pub(super) fn new(
        config: &Config,
        passwords: &Passwords,
        metrics: &Metrics,
    ) -> anyhow::Result<Logins> {
        let (issuers, audience) = (&config.publishing.issuers, config.publishing_audience());
        Ok(Logins {
            directory: Directory::of(config, passwords, metrics)?,
            proxy_login: ProxyLogin::of(config)?,
            issuers: Issuers::new(issuers, &audience, &egress(config))?,
            providers: providers(config)?,
            token_uses: TokenUses::default(),
            security: SecurityLog::default(),
        })
    }

    /// The identity provider with this name.
    pub(crate) fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.settings().name == name)
    }
}

/// The identity providers of the configuration.
fn providers(config: &Config) -> anyhow::Result<Vec<Provider>> {
    let Some(path) = &config.oidc.providers_file else { return Ok(Vec::new()) };
    let named = |problem| anyhow::anyhow!("oidc.providers_file = {}: {problem}", path.display());
    let settings = read_providers(path, &Environment::of_process()).map_err(named)?;
    settings.into_iter().map(|settings| Provider::new(settings, &egress(config))).collect()
}
