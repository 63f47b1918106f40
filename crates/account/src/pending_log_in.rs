//! [`PendingLogIn`]: a log-in at an identity provider that has begun in a browser, and has not come back.
//!
//! The server keeps nothing of it: the browser's cookie has it, signed, and is of use for ten minutes. State, nonce and the
//! verifier of PKCE are signatures of it for a purpose each, so that whoever sees one learns nothing of the others, and all three
//! hold only with this cookie, for this provider.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use record::Digest;
use sha2::Sha256;

use crate::LoginSecret;

/// How long a log-in at a provider may take, in seconds.
pub const PENDING_LOG_IN_SECONDS: i64 = 600;

const RANDOM_BYTES: usize = 32;
const MAC_BYTES: usize = 32;

/// A log-in that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingLogIn {
    /// The name of the provider.
    pub provider: String,
    /// The path that the browser goes on to.
    pub next: String,
    /// The session whose user is to be linked with the identity, by the digest of its secret; `None` to log in.
    pub links: Option<Digest>,
    /// When it counts no longer.
    pub expires_at: Timestamp,
    /// Random bytes.
    pub random: [u8; RANDOM_BYTES],
}

/// What a log-in shows to the provider, or gets back from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OidcValue {
    /// Proves that the answer belongs to this browser.
    State,
    /// Proves that the identity token was made for this log-in.
    Nonce,
    /// Proves that the code was asked for by this server (PKCE).
    Verifier,
}

impl PendingLogIn {
    fn signed(&self) -> Vec<u8> {
        let links = self.links.as_ref().map(|digest| digest.as_bytes().as_slice());
        let mut bytes = self.random.to_vec();
        bytes.extend(self.expires_at.as_second().to_be_bytes());
        for part in [self.provider.as_bytes(), links.unwrap_or_default(), self.next.as_bytes()] {
            bytes.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend(part);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<PendingLogIn> {
        let (random, rest) = bytes.split_first_chunk::<RANDOM_BYTES>()?;
        let (seconds, mut rest) = rest.split_first_chunk::<8>()?;
        let mut part = || {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (part, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            rest = after;
            Some(part)
        };
        let (provider, links, next) = (part()?, part()?, part()?);
        let links = match links {
            [] => None,
            links => Some(Digest::from_bytes(links.try_into().ok()?)),
        };
        Some(PendingLogIn {
            provider: String::from_utf8(provider.to_vec()).ok()?,
            next: String::from_utf8(next.to_vec()).ok()?,
            links,
            expires_at: Timestamp::from_second(i64::from_be_bytes(*seconds)).ok()?,
            random: *random,
        })
    }
}

impl LoginSecret {
    /// The value of the cookie with a log-in that has begun.
    pub fn seal(&self, pending: &PendingLogIn) -> String {
        let signed = pending.signed();
        let mac = self.pending_mac("cookie", &signed).finalize().into_bytes();
        BASE64_URL_SAFE_NO_PAD.encode([signed.as_slice(), &mac].concat())
    }

    /// The log-in in a cookie, if this server has signed it and its time is not over. In constant time.
    pub fn unseal(&self, cookie: &str, now: Timestamp) -> Option<PendingLogIn> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (signed, mac) = bytes.split_last_chunk::<MAC_BYTES>()?;
        self.pending_mac("cookie", signed).verify_slice(mac).ok()?;
        PendingLogIn::read(signed).filter(|pending| now < pending.expires_at)
    }

    /// The state, the nonce or the verifier of a log-in.
    pub fn shown(&self, pending: &PendingLogIn, what: OidcValue) -> String {
        let mac = self.pending_mac(what.purpose(), &pending.signed());
        BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    /// Whether this is that text. In constant time.
    pub fn has_shown(&self, pending: &PendingLogIn, what: OidcValue, text: &str) -> bool {
        let mac = self.pending_mac(what.purpose(), &pending.signed());
        let text = BASE64_URL_SAFE_NO_PAD.decode(text);
        text.is_ok_and(|text| mac.verify_slice(&text).is_ok())
    }

    fn pending_mac(&self, purpose: &str, signed: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.as_bytes()).expect("HMAC takes keys of any length");
        // Names the purpose, so that nothing else signed with this secret can be shown as this.
        mac.update(b"larder provider 1 ");
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(signed);
        mac
    }
}

impl OidcValue {
    fn purpose(self) -> &'static str {
        match self {
            OidcValue::State => "state",
            OidcValue::Nonce => "nonce",
            OidcValue::Verifier => "verifier",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn pending(links: Option<Digest>) -> PendingLogIn {
        PendingLogIn {
            provider: "company".to_owned(),
            next: "/articles?q=a".to_owned(),
            links,
            expires_at: at(600),
            random: [7; 32],
        }
    }

    #[test]
    fn a_log_in_is_read_from_its_cookie_until_its_time_is_over() {
        let secret = LoginSecret::new([1; 32]);
        for links in [None, Some(Digest::of(b"session"))] {
            let cookie = secret.seal(&pending(links));
            assert_eq!(secret.unseal(&cookie, at(599)), Some(pending(links)));
            assert_eq!(secret.unseal(&cookie, at(600)), None);
            assert_eq!(LoginSecret::new([2; 32]).unseal(&cookie, at(0)), None);
            for at_byte in 0..cookie.len() {
                let mut changed = cookie.clone().into_bytes();
                changed[at_byte] = if changed[at_byte] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).expect("ASCII");
                assert_eq!(secret.unseal(&changed, at(0)), None, "byte {at_byte}");
            }
        }
        for text in ["", "AAAA", &"A".repeat(43), &"A".repeat(200)] {
            assert_eq!(secret.unseal(text, at(0)), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_holds_for_one_log_in_and_one_purpose() {
        let (secret, one) = (LoginSecret::new([1; 32]), pending(None));
        let state = secret.shown(&one, OidcValue::State);
        // PKCE wants 43 to 128 characters.
        assert_eq!(state.len(), 43);
        assert!(secret.has_shown(&one, OidcValue::State, &state));
        assert!(!secret.has_shown(&one, OidcValue::Nonce, &state));
        assert_ne!(state, secret.shown(&one, OidcValue::Verifier));
        for other in [
            PendingLogIn { provider: "other".to_owned(), ..one.clone() },
            PendingLogIn { random: [8; 32], ..one.clone() },
            PendingLogIn { next: "/".to_owned(), ..one.clone() },
            PendingLogIn { links: Some(Digest::of(b"x")), ..one.clone() },
        ] {
            assert!(!secret.has_shown(&other, OidcValue::State, &state), "{other:?}");
        }
        for text in ["", "x", &state[1..], &format!("{state}A")] {
            assert!(!secret.has_shown(&one, OidcValue::State, text), "{text}");
        }
    }
}
