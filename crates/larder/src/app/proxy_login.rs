//! [`ProxyLogin`]: the headers in which proxies name users.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use config::Config;
use http::HeaderName;
use state::secrets;

/// The headers of `[proxy_login]`.
pub(crate) struct ProxyLogin {
    /// The one with the user.
    pub(crate) header: HeaderName,
    /// The one with the groups.
    pub(crate) groups_header: Option<HeaderName>,
    /// Random text that no client knows: what this process notes of a request with it was not written by a client.
    pub(crate) secret: String,
}

impl ProxyLogin {
    /// The headers that the configuration names, if it does.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn of(config: &Config) -> Result<Option<ProxyLogin>, getrandom::Error> {
        let login = &config.proxy_login;
        let Some(header) = login.header.clone() else { return Ok(None) };
        let secret = BASE64_URL_SAFE_NO_PAD.encode(secrets::random::<32>()?);
        Ok(Some(ProxyLogin { header, groups_header: login.groups_header.clone(), secret }))
    }
}
