//! [`Token`]: what a program sends instead of a password.
//!
//! Its text is `larder_<id>_<secret>`: 12 and 64 lower-case hexadecimal digits, which scanners for leaked secrets can look for.
//! Only the SHA-256 of the secret is stored. The id is the beginning of that digest, so that a text with a typo is recognized
//! without a lookup. The secret is 32 random bytes, which cannot be guessed, so a fast hash is enough, and the time of
//! comparing digests reveals nothing.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use record::{Digest, Serial, excerpt};

use crate::{Limits, Scopes, User, UserName};

/// A token as it is stored: everything but its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name in lists and logs.
    pub id: TokenId,
    /// The user whose rights it uses.
    pub user: UserName,
    /// When that user was made: the token is not that of a later user of the same name.
    pub user_created_at: Timestamp,
    /// The owner's note about it: one line.
    pub comment: String,
    /// What it may be used for.
    pub scopes: Scopes,
    /// What it is limited to; `None` if it is not limited.
    pub limits: Option<Arc<Limits>>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires; `None` if never.
    pub expires_at: Option<Timestamp>,
    /// The SHA-256 of its secret.
    pub secret_digest: Digest,
    /// The commit that wrote this; [`Serial::ZERO`] before it is stored.
    pub serial: Serial,
}

/// A token's name in lists and logs: 12 lower-case hexadecimal digits. No secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; 6]);

/// A token in the clear: shown once, to whom it is made for.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    secret: [u8; 32],
    digest: Digest,
}

/// Text that is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a token: `larder_`, 12 hexadecimal digits, `_` and 64 hexadecimal digits that belong to them were expected"
)]
pub struct TokenTextError;

/// Text that is no id of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the id of a token: 12 hexadecimal digits were expected")]
pub struct TokenIdError(String);

impl Token {
    /// Most bytes in a comment.
    pub const COMMENT_BYTES_MAX: usize = 256;

    /// Whether it has expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether it belongs to this user, and not to an earlier one with the same name.
    pub fn belongs_to(&self, user: &User) -> bool {
        self.user == user.name && self.user_created_at == user.created_at
    }
}

impl TokenId {
    /// The id of the token whose secret has this digest.
    pub fn of(secret_digest: &Digest) -> TokenId {
        let [a, b, c, d, e, f, ..] = *secret_digest.as_bytes();
        TokenId([a, b, c, d, e, f])
    }
}

impl TokenText {
    /// The start of every token.
    pub const PREFIX: &'static str = "larder_";

    /// The token with these random bytes as its secret.
    pub fn from_secret(secret: [u8; 32]) -> TokenText {
        TokenText { secret, digest: Digest::of(&secret) }
    }

    /// Its id.
    pub fn id(&self) -> TokenId {
        TokenId::of(&self.digest)
    }

    /// The SHA-256 of its secret, by which it is found.
    pub fn secret_digest(&self) -> Digest {
        self.digest
    }

    /// The text to show, once.
    pub fn reveal(&self) -> String {
        // A digest is written as 64 hexadecimal digits, and the secret has its length.
        format!("{}{}_{}", TokenText::PREFIX, self.id(), Digest::from_bytes(self.secret))
    }
}

impl FromStr for TokenText {
    type Err = TokenTextError;

    fn from_str(text: &str) -> Result<TokenText, TokenTextError> {
        let rest = text.strip_prefix(TokenText::PREFIX).ok_or(TokenTextError)?;
        let (id, secret) = rest.split_once('_').ok_or(TokenTextError)?;
        let secret: Digest = secret.parse().map_err(|_| TokenTextError)?;
        let token = TokenText::from_secret(*secret.as_bytes());
        // Also refuses upper-case digits, so that a token has one text.
        if token.reveal() == text && id.len() == 12 { Ok(token) } else { Err(TokenTextError) }
    }
}

impl FromStr for TokenId {
    type Err = TokenIdError;

    /// Reads 12 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<TokenId, TokenIdError> {
        let is_hexadecimal = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(text, 16) {
            Ok(number) if is_hexadecimal => {
                let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
                Ok(TokenId([a, b, c, d, e, f]))
            }
            _ => Err(TokenIdError(excerpt(text, 80).into())),
        }
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TokenId({self})")
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TokenText({}{}_…)", TokenText::PREFIX, self.id())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The SHA-256 of 32 zero bytes begins with 66687aadf862.
    const ZEROS: &str = "larder_66687aadf862_\
                         0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn a_token_is_its_id_and_its_secret() {
        let token = TokenText::from_secret([0; 32]);
        assert_eq!(token.reveal(), ZEROS);
        assert_eq!(ZEROS.parse(), Ok(token.clone()));
        assert_eq!(token.id().to_string(), "66687aadf862");
        assert_eq!(token.secret_digest(), Digest::of(&[0; 32]));
        assert_eq!(format!("{token:?}"), "TokenText(larder_66687aadf862_…)");
    }

    #[test]
    fn a_token_with_a_slip_is_none() {
        for bad in [
            "",
            "larder_",
            "larder__",
            &ZEROS[1..],
            &ZEROS[..ZEROS.len() - 1],
            &format!("{ZEROS}0"),
            &ZEROS.replace("_0000", "_0001"),
            &ZEROS.replace("66687", "66688"),
            &ZEROS.replace("aad", "AAD"),
            &ZEROS.replace("66687aadf862", "é"),
        ] {
            assert_eq!(bad.parse::<TokenText>(), Err(TokenTextError), "{bad}");
        }
    }

    #[test]
    fn an_id_is_12_digits() {
        let id: TokenId = "66687AADF862".parse().expect("an id");
        assert_eq!(id.to_string(), "66687aadf862");
        for bad in ["", "66687aadf86", "66687aadf8621", "+6687aadf862", "66687aadf86g", "ééééé66"]
        {
            assert!(bad.parse::<TokenId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_secret_is_read_again(secret: [u8; 32]) {
            let token = TokenText::from_secret(secret);
            prop_assert_eq!(token.reveal().parse(), Ok(token));
        }
    }
}
