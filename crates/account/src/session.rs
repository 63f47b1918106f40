//! [`Session`]: a browser in which a user has logged in with their password.
//!
//! Its text is the value of a cookie: 32 random bytes and the name of the user, in base64url. A record per user has the SHA-256
//! of each session's random bytes, so that any process of the server can end a session; there are at most
//! [`SESSIONS_PER_USER_MAX`]. A session ends when it expires, when the user logs out or is deleted, and when the password
//! changes.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use record::{Digest, Serial};
use sha2::Sha256;

use crate::login::{FINGERPRINT_BYTES, fingerprint};
use crate::{LoginSecret, NameError, User, UserName};

/// Sessions that one user has at a time at most: a further one ends the oldest.
pub(crate) const SESSIONS_PER_USER_MAX: usize = 16;

const SECRET_BYTES: usize = 32;

/// A session as it is stored: everything but its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The SHA-256 of its secret.
    pub secret_digest: Digest,
    /// A fingerprint that changes with the password, and with another user of that name.
    pub(crate) fingerprint: [u8; FINGERPRINT_BYTES],
    /// When its user logged in.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// The sessions of a user, oldest first, and the commit that wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// The stored sessions; some may have ended.
    pub sessions: Vec<Session>,
    /// The commit that wrote them.
    pub serial: Serial,
}

/// A session as a browser shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionText {
    user: UserName,
    secret: [u8; SECRET_BYTES],
}

/// Text that is no session's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionTextError {
    /// Something else.
    #[error("this is not a session of this server")]
    Notation,
    /// The user's name in it is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Session {
    pub(crate) fn new(
        user: &User,
        text: &SessionText,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Session {
        Session {
            secret_digest: text.secret_digest(),
            fingerprint: fingerprint(user),
            created_at: now,
            expires_at,
        }
    }

    /// Whether it is valid for this user at `now`.
    pub fn holds(&self, user: &User, now: Timestamp) -> bool {
        now < self.expires_at && !user.is_disabled && self.fingerprint == fingerprint(user)
    }
}

impl SessionText {
    /// The session with these random bytes.
    pub fn new(user: UserName, secret: [u8; SECRET_BYTES]) -> SessionText {
        SessionText { user, secret }
    }

    /// The claimed user.
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// The stored digest of its secret.
    pub fn secret_digest(&self) -> Digest {
        Digest::of(&self.secret)
    }

    /// The text for the cookie.
    pub fn reveal(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode([&self.secret, self.user.as_str().as_bytes()].concat())
    }
}

impl FromStr for SessionText {
    type Err = SessionTextError;

    fn from_str(text: &str) -> Result<SessionText, SessionTextError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| SessionTextError::Notation)?;
        let (secret, name) =
            bytes.split_first_chunk::<SECRET_BYTES>().ok_or(SessionTextError::Notation)?;
        let name = std::str::from_utf8(name).map_err(|_| SessionTextError::Notation)?;
        Ok(SessionText { user: name.parse()?, secret: *secret })
    }
}

impl fmt::Debug for SessionText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionText({}…)", self.user)
    }
}

impl LoginSecret {
    /// The token in a form of this server, which no other page knows: it is bound to the browser's cookie with these bytes.
    pub fn form_token(&self, cookie: &[u8]) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.form_mac(cookie).finalize().into_bytes())
    }

    /// Whether this is that text. In constant time.
    pub fn is_form_token(&self, cookie: &[u8], token: &str) -> bool {
        let shown = BASE64_URL_SAFE_NO_PAD.decode(token);
        shown.is_ok_and(|shown| self.form_mac(cookie).verify_slice(&shown).is_ok())
    }

    /// The signature that proves that this server told the browser of this commit, in this session.
    pub fn sign_seen(&self, session: &SessionText, seen: Serial) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.seen_mac(session, seen).finalize().into_bytes())
    }

    /// Whether this is that text. In constant time.
    pub fn has_signed_seen(&self, session: &SessionText, seen: Serial, shown: &str) -> bool {
        let shown = BASE64_URL_SAFE_NO_PAD.decode(shown);
        shown.is_ok_and(|shown| self.seen_mac(session, seen).verify_slice(&shown).is_ok())
    }

    fn seen_mac(&self, session: &SessionText, seen: Serial) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(b"larder seen 1\0");
        mac.update(&seen.0.to_be_bytes());
        mac.update(session.reveal().as_bytes());
        mac
    }

    fn form_mac(&self, cookie: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.as_bytes()).expect("HMAC takes keys of any length");
        // Names the purpose, so that nothing else signed with this secret can be shown as the token of a form.
        mac.update(b"larder form 1\0");
        mac.update(cookie);
        mac
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use record::{Batch, Record};

    use super::*;
    use crate::change::{
        close_session, close_sessions, delete_user, open_session, set_disabled, set_password,
    };
    use crate::testing::{at, name, snapshot_of, user};
    use crate::{Password, Refusal, Snapshot, identify_session, session_key};

    const HOUR: Duration = Duration::from_secs(3_600);

    fn users() -> Snapshot {
        let hash = |text| Password::attempt(text).hash([1; 16]);
        let alice = User { password_hash: Some(hash("one")), ..user("alice", &[]) };
        snapshot_of(&[alice, User { password_hash: Some(hash("two")), ..user("bob", &[]) }])
    }

    fn applied(snapshot: &Snapshot, serial: u64, batch: Batch) -> Snapshot {
        let records: Vec<Record> = batch
            .writes
            .into_iter()
            .map(|it| Record {
                key: it.key,
                serial: Serial(serial),
                body: it.body,
                blobs: it.blobs,
            })
            .collect();
        let (next, troubles) = snapshot.apply(&records);
        assert_eq!(troubles, []);
        let rescued: Vec<Record> = next.records().collect();
        assert_eq!(Snapshot::new().apply(&rescued), (next.clone(), Vec::new()));
        next
    }

    fn opened_at(
        snapshot: &Snapshot,
        user: &User,
        fill: u8,
        replaced: Option<&SessionText>,
        now: Timestamp,
        forget_before: Option<Timestamp>,
    ) -> (SessionText, record::Batch) {
        open_session(snapshot, user, [fill; 32], replaced, now, forget_before, HOUR)
    }

    #[test]
    fn a_clock_that_is_ahead_ends_no_other_session() {
        let alice = name("alice");
        let (text, after) = opened(&users(), 0, 1, None);
        let user = after.user(&alice).expect("alice");
        for forget_before in [None, Some(at(3_599))] {
            // A process whose clock is a day ahead.
            let (_, batch) = opened_at(&after, user, 2, None, at(90_000), forget_before);
            assert!(holds(&applied(&after, 20, batch), &text, 1), "{forget_before:?}");
        }
        let (_, batch) = opened_at(&after, user, 2, None, at(90_000), Some(at(3_600)));
        assert!(!holds(&applied(&after, 20, batch), &text, 1));
    }

    /// Alice logs in at `second` with these random bytes.
    fn opened(
        snapshot: &Snapshot,
        second: i64,
        fill: u8,
        replaced: Option<&SessionText>,
    ) -> (SessionText, Snapshot) {
        let alice = snapshot.user(&name("alice")).expect("alice");
        let (text, batch) =
            opened_at(snapshot, alice, fill, replaced, at(second), Some(at(second)));
        (text, applied(snapshot, 10 + u64::from(fill), batch))
    }

    fn holds(snapshot: &Snapshot, text: &SessionText, second: i64) -> bool {
        identify_session(snapshot, text, at(second)).is_ok()
    }

    #[test]
    fn a_session_holds_until_its_time_is_over() {
        let (text, after) = opened(&users(), 0, 1, None);
        let shown: SessionText = text.reveal().parse().expect("a session");
        let principal = identify_session(&after, &shown, at(3_599)).expect("alice");
        assert_eq!(principal.user_name(), Some(&name("alice")));
        assert_eq!(principal.as_of(&after, at(3_599)), Ok(principal.clone()));
        let ended = Refusal::SessionEnded { user: name("alice") };
        assert_eq!(principal.as_of(&after, at(3_600)), Err(ended));
        assert!(!holds(&after, &text, 3_600));
        let stored = (session_key(&name("alice")), record::Expected::At(Serial(11)));
        assert!(principal.rests_on().contains(&stored), "{:?}", principal.rests_on());
        // Another secret, or another name, is no session.
        assert!(!holds(&after, &SessionText::new(name("alice"), [2; 32]), 1));
        assert!(!holds(&after, &SessionText::new(name("bob"), [1; 32]), 1));
    }

    #[test]
    fn a_session_ends_with_the_password_the_user_and_the_log_out() {
        let (text, after) = opened(&users(), 0, 1, None);
        let alice = name("alice");
        let hash = Some(Password::attempt("new").hash([2; 16]));
        for batch in [
            set_password(&after, &alice, hash, at(1)).expect("alice").expect("a change"),
            set_password(&after, &alice, None, at(1)).expect("alice").expect("a change"),
            set_disabled(&after, &alice, true, at(1)).expect("alice").expect("a change"),
            delete_user(&after, &alice).expect("alice"),
            close_session(&after, &alice, &text.secret_digest()).expect("a session"),
            close_sessions(&after, &alice).expect("a session"),
        ] {
            assert!(holds(&after, &text, 1));
            assert!(!holds(&applied(&after, 20, batch), &text, 1));
        }
        // Disabled and enabled again: it stays over.
        let off = set_disabled(&after, &alice, true, at(1)).expect("alice").expect("a change");
        let off = applied(&after, 20, off);
        let on = set_disabled(&off, &alice, false, at(2)).expect("alice").expect("a change");
        assert!(!holds(&applied(&off, 21, on), &text, 3));
        // It does not belong to the next user with that name either.
        let gone = applied(&after, 20, delete_user(&after, &alice).expect("alice"));
        assert_eq!(gone.sessions_of(&alice), None);
    }

    #[test]
    fn a_user_has_so_many_sessions_and_no_more() {
        let (first, mut snapshot) = opened(&users(), 0, 0, None);
        let mut last = first.clone();
        for fill in 1..=16 {
            (last, snapshot) = opened(&snapshot, i64::from(fill), fill, None);
        }
        let count = |snapshot: &Snapshot| {
            snapshot.sessions_of(&name("alice")).map_or(0, |it| it.sessions.len())
        };
        assert_eq!(count(&snapshot), SESSIONS_PER_USER_MAX);
        assert!(!holds(&snapshot, &first, 20) && holds(&snapshot, &last, 20));
        // Logging in again in a browser ends its session; expired ones are removed.
        let (_, snapshot) = opened(&snapshot, 20, 17, Some(&last));
        assert!(!holds(&snapshot, &last, 20));
        assert_eq!(count(&snapshot), SESSIONS_PER_USER_MAX);
        assert_eq!(count(&opened(&snapshot, 10_000, 18, None).1), 1);
    }

    /// A session of somebody else that a browser shows ends, too.
    #[test]
    fn another_users_session_is_replaced() {
        let (alices, snapshot) = opened(&users(), 0, 1, None);
        let bob = snapshot.user(&name("bob")).expect("bob");
        let (bobs, batch) = opened_at(&snapshot, bob, 2, Some(&alices), at(1), Some(at(1)));
        let snapshot = applied(&snapshot, 30, batch);
        assert!(holds(&snapshot, &bobs, 1) && !holds(&snapshot, &alices, 1));
    }

    #[test]
    fn what_is_no_session_is_refused() {
        let shown = |text: &str| text.parse::<SessionText>().is_ok();
        for text in ["", "x", "AAAA", &"A".repeat(42), &"A".repeat(43), &"=".repeat(60)] {
            assert!(!shown(text), "{text}");
        }
        assert!(shown(&SessionText::new(name("alice"), [7; 32]).reveal()));
    }

    #[test]
    fn the_commit_that_a_browser_has_seen_is_signed() {
        let secret = LoginSecret::new([1; 32]);
        let session = |fill| SessionText::new(name("alice"), [fill; 32]);
        let shown = secret.sign_seen(&session(1), Serial(7));
        assert!(secret.has_signed_seen(&session(1), Serial(7), &shown));
        for (other, fill, seen, shown) in [
            (1, 1, 8, shown.as_str()),
            (1, 2, 7, &shown),
            (2, 1, 7, &shown),
            (1, 1, 7, ""),
            (1, 1, 7, &shown[1..]),
        ] {
            let other = LoginSecret::new([other; 32]);
            assert!(!other.has_signed_seen(&session(fill), Serial(seen), shown), "{seen} {shown}");
        }
    }

    #[test]
    fn the_token_of_a_form_is_that_of_one_cookie() {
        let secret = LoginSecret::new([1; 32]);
        let token = secret.form_token(b"one");
        assert!(secret.is_form_token(b"one", &token));
        for (other, cookie, shown) in [
            (1, &b"two"[..], token.as_str()),
            (2, b"one", &token),
            (1, b"one", ""),
            (1, b"one", &token[1..]),
        ] {
            assert!(!LoginSecret::new([other; 32]).is_form_token(cookie, shown), "{shown}");
        }
    }
}
