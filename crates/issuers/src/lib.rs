//! Issuers of identities of CI jobs and of people: their keys, and the tokens that they sign.
//!
//! signed token -> [`Issuers::verify`]: size, form, issuer, key ([`keys`]), signature, audience, times -> [`VerifiedIdentity`]
//! code of a browser -> [`Provider::redeem`]: its token endpoint, the same checks, nonce -> [`VerifiedLogIn`]
//!
//! attestation of an upload -> [`Attestations::check`]: whether the job that uploads it has signed it
//!
//! Nothing but the named issuers is contacted, and each only when a token of it is shown, or somebody logs in there. Who may do
//! what with an identity is not decided here.

mod attestations;
mod endpoints;
mod issuer;
mod keys;
mod log_in;
mod provider;
mod token;

use account::CiIdentity;
use jiff::Timestamp;
use net::Egress;
use record::{Digest, escaped_excerpt};
use serde_json::Value;

use self::keys::Source;

pub use self::attestations::{AttestationRefusal, Attestations};
pub use self::issuer::{Issuer, IssuerError, is_safe_url};
pub use self::log_in::VerifiedLogIn;
pub use self::provider::{Answer, ClientSecret, Provider, ProviderSettings};

/// The named issuers, with the keys that were fetched of them.
pub struct Issuers {
    sources: Vec<(Issuer, Source)>,
    audience: String,
}

/// An identity that its issuer has signed for this server, and that has not ended. [`Issuers::verify`] makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedIdentity {
    identity: CiIdentity,
    proof: Digest,
    ends_at: Timestamp,
}

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is not a token, or not one that this server accepts.
    #[error("the identity token is not valid: {0}")]
    Invalid(String),
    /// No issuer of this URL is named.
    #[error("the issuer `{0}` is not one of `publishing.issuers`")]
    UnknownIssuer(String),
    /// What a browser brought back from a provider, or what it was redeemed for, is not what was asked for.
    #[error("the provider's answer is not valid: {0}")]
    Answer(String),
    /// Somebody whom the operator does not admit: this claim has another value than the provider's settings require.
    #[error("the provider's settings require another value of the claim `{0}`")]
    NotAdmitted(String),
    /// The issuer's keys, or another answer of it, could not be fetched.
    #[error(
        "the issuer {issuer} does not give its keys or answers: {reason}; try again in {retry_after_seconds} seconds"
    )]
    Unavailable {
        /// The issuer.
        issuer: String,
        /// What failed.
        reason: String,
        /// When another attempt makes sense.
        retry_after_seconds: u32,
    },
}

impl Issuers {
    /// These issuers, whose tokens must be for `audience`. `egress` says where their keys may be fetched from, besides the
    /// issuers themselves.
    ///
    /// # Errors
    /// If there can be no HTTP client.
    pub fn new(issuers: &[Issuer], audience: &str, egress: &Egress) -> anyhow::Result<Issuers> {
        let source = |issuer: &Issuer| {
            let source = Source::new(&issuer.url, issuer.jwks_url.as_deref(), &[], egress)?;
            Ok((issuer.clone(), source))
        };
        let sources = issuers.iter().map(source).collect::<anyhow::Result<_>>()?;
        Ok(Issuers { sources, audience: audience.to_owned() })
    }

    /// Whether any is named.
    pub fn are_named(&self) -> bool {
        !self.sources.is_empty()
    }

    /// For whom their tokens have to be.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// Fetches the keys of all issuers, and counts them.
    ///
    /// # Errors
    /// The first that cannot be fetched.
    pub async fn try_keys(&self) -> anyhow::Result<usize> {
        let mut count = 0;
        for (_, source) in &self.sources {
            count += source.try_keys().await?;
        }
        Ok(count)
    }

    /// The identity that `token` has, at `now`. Waits for the issuer's keys, if they are not there, for a few seconds.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub async fn verify(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, TokenRefusal> {
        let unverified = token::UnverifiedToken::parse(token, token::TOKEN_BYTES_MAX)?;
        let found = self.sources.iter().find(|(issuer, _)| issuer.url == unverified.issuer());
        let Some((issuer, source)) = found else {
            return Err(TokenRefusal::UnknownIssuer(shown(unverified.issuer())));
        };
        let key = source.key(unverified.key_id()).await?;
        unverified.verify(issuer, &key, &self.audience, now)
    }
}

impl VerifiedIdentity {
    /// An identity that no issuer has signed, for tests of decisions: nothing else calls this.
    pub fn without_checking(
        identity: CiIdentity,
        proof: Digest,
        ends_at: Timestamp,
    ) -> VerifiedIdentity {
        VerifiedIdentity { identity, proof, ends_at }
    }

    /// Who it is.
    pub fn identity(&self) -> &CiIdentity {
        &self.identity
    }

    /// The digest of what was signed. The signature is not part of it: some can be changed and stay valid.
    pub fn proof(&self) -> Digest {
        self.proof
    }

    /// Until when the token is accepted.
    pub fn ends_at(&self) -> Timestamp {
        self.ends_at
    }
}

/// A text of a stranger in a message: shortened, and on one line.
fn shown(text: &str) -> String {
    escaped_excerpt(text, 200)
}

/// A claim in a message, as JSON.
fn shown_claim(claim: &Value) -> String {
    shown(&claim.to_string()).replace("\\\"", "\"")
}
