//! [`Provider`]: an identity provider where people log in, by the authorization code flow of OpenID Connect with PKCE.
//!
//! [`Provider::authorization_url`], where a browser goes -> the code that it comes back with -> [`Provider::redeem`]: the token
//! endpoint -> identity token, checked as those of CI jobs are -> [`VerifiedLogIn`]
//!
//! The crate `openidconnect` would do this, too. It brings `rsa`, whose signatures leak time (RUSTSEC-2023-0071), and keys that it
//! fetches without our bounds. What is left to do beside the checks of this crate is one URL and one form, so there is no further
//! crate for it.

use std::collections::BTreeMap;
use std::fmt;

use account::GroupName;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use net::Egress;
use record::Digest;
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::keys::{Source, json_of};
use super::token::UnverifiedToken;
use super::{TokenRefusal, VerifiedLogIn, shown};

/// Size of the answer of a token endpoint, and of an identity token in it.
const ANSWER_BYTES_MAX: usize = 256 << 10;
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Longest code, in bytes.
const CODE_BYTES_MAX: usize = 4_000;

/// Codes that are redeemed at once at one provider.
const REDEEMING_MAX: usize = 64;

/// A provider, as the operator names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSettings {
    /// Its name in paths, logs and metrics.
    pub name: String,
    /// What its button says.
    pub title: String,
    /// Its URL, exactly as its tokens have it.
    pub issuer: String,
    /// What this server is called there.
    pub client_id: String,
    /// What this server proves that with; `None` for a public client.
    pub client_secret: Option<ClientSecret>,
    /// The scopes that are asked for.
    pub scopes: Vec<String>,
    /// Whether a user is made at the first log-in.
    pub make_users: bool,
    /// The claim with the name of a user who is made.
    pub name_claim: String,
    /// The claim with groups.
    pub groups_claim: Option<String>,
    /// Groups here, by values of that claim.
    pub groups: BTreeMap<String, GroupName>,
    /// Claims that have to have these values.
    pub require: BTreeMap<String, String>,
    /// Hosts beside the issuer's own at which its keys and endpoints may be.
    pub hosts: Vec<String>,
}

/// A secret that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(pub String);

impl fmt::Debug for ClientSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientSecret(…)")
    }
}

impl Default for ProviderSettings {
    fn default() -> ProviderSettings {
        ProviderSettings {
            name: String::new(),
            title: String::new(),
            issuer: String::new(),
            client_id: String::new(),
            client_secret: None,
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            make_users: false,
            name_claim: "preferred_username".to_owned(),
            groups_claim: None,
            groups: BTreeMap::new(),
            require: BTreeMap::new(),
            hosts: Vec::new(),
        }
    }
}

/// A provider, with what was fetched of it.
pub struct Provider {
    settings: ProviderSettings,
    source: Source,
    redeeming: Semaphore,
}

/// What a browser brings back from a provider.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'text> {
    /// The code.
    pub code: &'text str,
    /// Where the browser was sent back to.
    pub redirect_uri: &'text str,
    /// The verifier whose challenge was in the URL.
    pub verifier: &'text str,
    /// The nonce that was in the URL.
    pub nonce: &'text str,
}

impl Provider {
    /// A provider that nobody has asked yet. `egress` says where it may be asked, besides the issuer's own host.
    ///
    /// # Errors
    /// If there can be no HTTP client.
    pub fn new(settings: ProviderSettings, egress: &Egress) -> anyhow::Result<Provider> {
        let source = Source::new(&settings.issuer, None, &settings.hosts, egress)?;
        Ok(Provider { settings, source, redeeming: Semaphore::new(REDEEMING_MAX) })
    }

    /// The settings.
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Where a browser logs in, and is sent back from to `redirect_uri`.
    ///
    /// # Errors
    /// [`TokenRefusal::Unavailable`].
    pub async fn authorization_url(
        &self,
        redirect_uri: &str,
        state: &str,
        nonce: &str,
        verifier: &str,
    ) -> Result<Url, TokenRefusal> {
        let endpoints = self.source.endpoints().await?;
        let mut url = endpoints.authorization.clone().map_err(|reason| self.unavailable(reason))?;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Digest::of(verifier.as_bytes()).as_bytes());
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", state)
            .append_pair("nonce", nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Where a browser logs out of the provider; `None` if it has no page for that, or does not answer. The provider asks the person,
    /// since this server keeps no identity token to show.
    pub async fn log_out_url(&self) -> Option<Url> {
        let mut url = self.source.endpoints().await.ok()?.end_session.clone()?;
        url.query_pairs_mut().append_pair("client_id", &self.settings.client_id);
        Some(url)
    }

    /// Tries what a log-in needs of the provider: its endpoints and its keys, which are counted.
    ///
    /// # Errors
    /// What is not there.
    pub async fn try_log_in(&self) -> anyhow::Result<usize> {
        self.authorization_url("http://localhost/", "", "", "").await?;
        self.source.try_keys().await
    }

    /// Checks the issuer that an answer names (RFC 9207), whatever else it says.
    ///
    /// # Errors
    /// [`TokenRefusal`]: it is another one, or is missing although this provider always names itself.
    pub async fn check_issuer(&self, named: Option<&str>) -> Result<(), TokenRefusal> {
        match named {
            Some(named) if named == self.settings.issuer => Ok(()),
            Some(named) => {
                Err(TokenRefusal::Answer(format!("it is of the issuer `{}` (`iss`)", shown(named))))
            }
            None if self.source.endpoints().await?.names_itself => {
                Err(TokenRefusal::Answer("it does not name its issuer (`iss`)".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Redeems a code, and checks the identity token that the provider gives for it.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub async fn redeem(
        &self,
        answer: Answer<'_>,
        now: Timestamp,
    ) -> Result<VerifiedLogIn, TokenRefusal> {
        let Answer { code, redirect_uri, verifier, nonce } = answer;
        if code.is_empty() || code.len() > CODE_BYTES_MAX {
            return Err(TokenRefusal::Answer(format!("its code has {} bytes", code.len())));
        }
        let Ok(_place) = self.redeeming.try_acquire() else {
            return Err(self.unavailable("too many log in at this moment".to_owned()));
        };
        let endpoints = self.source.endpoints().await?;
        let url = endpoints.token.clone().map_err(|reason| self.unavailable(reason))?;
        let settings = &self.settings;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        let request = self.source.client().post(url.clone()).header(ACCEPT, "application/json");
        let request = match &settings.client_secret {
            Some(ClientSecret(secret)) if endpoints.takes_basic => {
                // RFC 6749, 2.3.1: both are encoded as in a form first.
                request.basic_auth(encoded(&settings.client_id), Some(encoded(secret)))
            }
            Some(ClientSecret(secret)) => {
                form.extend([
                    ("client_id", settings.client_id.as_str()),
                    ("client_secret", secret),
                ]);
                request
            }
            None => {
                form.push(("client_id", &settings.client_id));
                request
            }
        };
        let body = form.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let body = body.collect::<Vec<_>>().join("&");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let sent = json_of(request, &url, ANSWER_BYTES_MAX).await;
        let (status, told) = sent.map_err(|error| self.unavailable(format!("{error:#}")))?;
        let text = |told: &Value, name: &str| told[name].as_str().map(shown).unwrap_or_default();
        let told = match told {
            Ok(told) if status.is_success() => told,
            Ok(told)
                if status.is_client_error() && status != reqwest::StatusCode::TOO_MANY_REQUESTS =>
            {
                let (error, about) = (text(&told, "error"), text(&told, "error_description"));
                return Err(TokenRefusal::Answer(format!("its code is refused: {error} {about}")));
            }
            told => {
                let reason = told.err().map(|error| format!(": {error}")).unwrap_or_default();
                return Err(self.unavailable(format!("{url}: it answered {status}{reason}")));
            }
        };
        let token = told["id_token"].as_str();
        let token =
            token.ok_or_else(|| TokenRefusal::Answer("it has no identity token".to_owned()))?;
        let unverified = UnverifiedToken::parse(token, TOKEN_BYTES_MAX)?;
        if unverified.issuer() != settings.issuer {
            return Err(TokenRefusal::Invalid("its issuer (`iss`) is another".to_owned()));
        }
        let key = self.source.key(unverified.key_id()).await?;
        let (claims, _) = unverified.claims(&settings.issuer, &key, &settings.client_id, now)?;
        VerifiedLogIn::of(settings, &claims, nonce)
    }

    fn unavailable(&self, reason: String) -> TokenRefusal {
        self.source.unavailable(reason, 5)
    }
}

/// A text as in a form.
fn encoded(text: &str) -> String {
    let mut url = Url::parse("http://form").expect("a URL");
    url.query_pairs_mut().append_key_only(text);
    url.query().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_as_in_a_form() {
        assert_eq!(encoded("a b&c=d+é:"), "a+b%26c%3Dd%2B%C3%A9%3A");
        assert_eq!(encoded(""), "");
    }
}
