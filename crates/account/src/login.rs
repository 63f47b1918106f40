//! [`LoginSecret`]: signs logins, which users get for their password, so that they need not send it again for ten hours.
//!
//! A login is a text that only this server can make: the user, the time of issue, the expiry, a fingerprint of the password,
//! and the HMAC-SHA256 of all that with the server's secret. It is not stored. It becomes invalid when it expires, when its
//! user is deleted, and when the password changes, as that changes the fingerprint. Clients cannot interpret it; it has no `:`,
//! so it can be sent as a password.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use record::Digest;
use sha2::Sha256;

use crate::{Snapshot, User, UserName};

/// How long devpi's logins last: ten hours.
pub const LOGIN_LIFETIME: Duration = Duration::from_secs(36_000);

pub(crate) const FINGERPRINT_BYTES: usize = 16;
/// Issued and expires in seconds, fingerprint; the name follows.
const HEAD_BYTES: usize = 8 + 8 + FINGERPRINT_BYTES;
const MAC_BYTES: usize = 32;

/// The key that the server signs logins with: 32 random bytes, shared by all its processes.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSecret([u8; 32]);

/// A login as its holder shows it: `larder-login-` and base64url. Its signature is not checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginText {
    /// The signed bytes.
    signed: Vec<u8>,
    mac: [u8; MAC_BYTES],
    user: UserName,
}

/// Why a login is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginTokenError {
    /// Text of another form.
    #[error("this is not a login of this server")]
    Notation,
    /// It was signed with another secret, or not at all.
    #[error("this login was not issued by this server")]
    Signature,
    /// Its time is over.
    #[error("the login of user '{user}' expired at {expired_at}")]
    Expired {
        /// Its user.
        user: UserName,
        /// When.
        expired_at: Timestamp,
    },
    /// Its user was deleted, perhaps replaced by another with that name, or has a new password.
    #[error("the login of user '{user}' ended with their password")]
    Ended {
        /// Its user.
        user: UserName,
    },
}

impl LoginSecret {
    /// The secret with these random bytes.
    pub fn new(random: [u8; 32]) -> LoginSecret {
        LoginSecret(random)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A login for `user`, who just gave their password, for `lifetime` from `now` in whole seconds.
    pub fn issue(&self, user: &User, now: Timestamp, lifetime: Duration) -> LoginText {
        let issued_at = now.as_second();
        let lifetime_seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        let expires_at = issued_at.saturating_add(lifetime_seconds);
        let mut signed = Vec::with_capacity(HEAD_BYTES + user.name.as_str().len());
        signed.extend_from_slice(&issued_at.to_be_bytes());
        signed.extend_from_slice(&expires_at.to_be_bytes());
        signed.extend_from_slice(&fingerprint(user));
        signed.extend_from_slice(user.name.as_str().as_bytes());
        let mac = self.mac(&signed).finalize().into_bytes().into();
        LoginText { signed, mac, user: user.name.clone() }
    }

    /// The user of `login`, if it holds at `now`. Whether they are disabled is not looked at.
    ///
    /// # Errors
    /// [`LoginTokenError`], by why it does not.
    pub fn check<'snapshot>(
        &self,
        login: &LoginText,
        snapshot: &'snapshot Snapshot,
        now: Timestamp,
    ) -> Result<&'snapshot std::sync::Arc<User>, LoginTokenError> {
        // `verify_slice` promises constant time.
        self.mac(&login.signed).verify_slice(&login.mac).map_err(|_| LoginTokenError::Signature)?;
        let (_issued_at, expires_at, signed_fingerprint) =
            head(&login.signed).ok_or(LoginTokenError::Notation)?;
        if expires_at <= now.as_second() {
            let expired_at = Timestamp::from_second(expires_at).unwrap_or(Timestamp::MIN);
            return Err(LoginTokenError::Expired { user: login.user.clone(), expired_at });
        }
        let user = snapshot.user(&login.user);
        user.filter(|user| fingerprint(user) == signed_fingerprint)
            .ok_or_else(|| LoginTokenError::Ended { user: login.user.clone() })
    }

    fn mac(&self, signed: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        // Names the purpose, so that nothing else signed with this secret can be shown as a login.
        mac.update(b"larder login 1\0");
        mac.update(signed);
        mac
    }
}

/// A fingerprint that changes with the password, and with another user of that name.
pub(crate) fn fingerprint(user: &User) -> [u8; FINGERPRINT_BYTES] {
    let hash = user.password_hash.as_ref().map_or("", |hash| hash.as_str());
    let digest = Digest::of(format!("{}\0{hash}", user.created_at.as_nanosecond()).as_bytes());
    let mut fingerprint = [0; FINGERPRINT_BYTES];
    fingerprint.copy_from_slice(&digest.as_bytes()[..FINGERPRINT_BYTES]);
    fingerprint
}

fn head(signed: &[u8]) -> Option<(i64, i64, [u8; FINGERPRINT_BYTES])> {
    let (issued_at, rest) = signed.split_first_chunk::<8>()?;
    let (expires_at, rest) = rest.split_first_chunk::<8>()?;
    let (fingerprint, _) = rest.split_first_chunk::<FINGERPRINT_BYTES>()?;
    Some((i64::from_be_bytes(*issued_at), i64::from_be_bytes(*expires_at), *fingerprint))
}

impl LoginText {
    /// The start of every login.
    pub const PREFIX: &'static str = "larder-login-";

    /// The claimed expiry; `None` if the login has another form.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let (_, expires_at, _) = head(&self.signed)?;
        Some(Timestamp::from_second(expires_at).unwrap_or(Timestamp::MAX))
    }

    /// The text to hand out.
    pub fn reveal(&self) -> String {
        let bytes = [self.signed.as_slice(), self.mac.as_slice()].concat();
        format!("{}{}", LoginText::PREFIX, BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for LoginText {
    type Err = LoginTokenError;

    /// Takes a login apart; its signature is [checked](LoginSecret::check) later.
    fn from_str(text: &str) -> Result<LoginText, LoginTokenError> {
        let read = |text: &str| {
            let body = text.strip_prefix(LoginText::PREFIX)?;
            let mut signed = BASE64_URL_SAFE_NO_PAD.decode(body).ok()?;
            let (_, mac) = signed.split_last_chunk::<MAC_BYTES>()?;
            let mac = *mac;
            signed.truncate(signed.len() - MAC_BYTES);
            let name = std::str::from_utf8(signed.get(HEAD_BYTES..)?).ok()?;
            let user: UserName = name.parse().ok()?;
            Some(LoginText { signed, mac, user })
        };
        read(text).ok_or(LoginTokenError::Notation)
    }
}

impl fmt::Debug for LoginSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LoginSecret(…)")
    }
}

impl fmt::Debug for LoginText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LoginText({}…)", self.user)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{at, snapshot_of, user};
    use crate::{Password, PasswordHash};

    fn hash(fill: u8) -> PasswordHash {
        let salt = BASE64_URL_SAFE_NO_PAD.encode([fill; 16]);
        let text = format!("$argon2id$v=19$m=19456,t=2,p=1${salt}${}", "A".repeat(43));
        text.parse().expect("a hash")
    }

    fn alice() -> User {
        User { password_hash: Some(hash(1)), ..user("alice", &[]) }
    }

    /// Issues a login for alice at second 0, and shows it at `second` to a server that knows `users`.
    fn shown(secret: u8, users: &[User], second: i64) -> Result<(), LoginTokenError> {
        let text = LoginSecret::new([1; 32]).issue(&alice(), at(0), LOGIN_LIFETIME).reveal();
        let login: LoginText = text.parse()?;
        let snapshot = snapshot_of(users);
        LoginSecret::new([secret; 32]).check(&login, &snapshot, at(second)).map(|user| {
            assert_eq!(user.name, alice().name);
        })
    }

    #[test]
    fn a_login_holds_until_its_time_is_over() {
        let alice_name = alice().name;
        assert_eq!(shown(1, &[alice()], 0), Ok(()));
        assert_eq!(shown(1, &[alice()], 35_999), Ok(()));
        let expired = LoginTokenError::Expired { user: alice_name, expired_at: at(36_000) };
        assert_eq!(shown(1, &[alice()], 36_000), Err(expired));
    }

    #[test]
    fn a_login_ends_with_the_password_and_with_the_user() {
        let ended = Err(LoginTokenError::Ended { user: alice().name });
        assert_eq!(shown(1, &[], 1), ended);
        assert_eq!(shown(1, &[User { password_hash: Some(hash(2)), ..alice() }], 1), ended);
        assert_eq!(shown(1, &[User { password_hash: None, ..alice() }], 1), ended);
        assert_eq!(shown(1, &[User { created_at: at(-1), ..alice() }], 1), ended);
        let title = Some("Doctor".to_owned());
        assert_eq!(shown(1, &[User { title, ..alice() }], 1), Ok(()));
    }

    #[test]
    fn a_login_of_another_server_is_refused() {
        assert_eq!(shown(2, &[alice()], 1), Err(LoginTokenError::Signature));
    }

    #[test]
    fn any_change_to_a_login_is_noticed() {
        let secret = LoginSecret::new([1; 32]);
        let login = secret.issue(&alice(), at(0), LOGIN_LIFETIME);
        let bytes = [login.signed.as_slice(), login.mac.as_slice()].concat();
        let snapshot = snapshot_of(&[alice()]);
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 1;
            let text = format!("larder-login-{}", BASE64_URL_SAFE_NO_PAD.encode(changed));
            let outcome = text.parse().and_then(|login| secret.check(&login, &snapshot, at(1)));
            assert!(outcome.is_err(), "byte {position}");
        }
    }

    #[test]
    fn a_login_passes_for_a_password() {
        let text = LoginSecret::new([1; 32]).issue(&alice(), at(0), LOGIN_LIFETIME).reveal();
        assert!(!text.contains(':') && text.is_ascii(), "{text}");
        assert!(text.len() < Password::BYTES_MAX);
    }

    proptest! {
        #[test]
        fn whatever_is_shown_is_read_or_refused(text in "(larder-login-)?[A-Za-z0-9_=:-]{0,200}") {
            if let Ok(login) = text.parse::<LoginText>() {
                prop_assert_eq!(login.reveal(), text);
            }
        }
    }
}
