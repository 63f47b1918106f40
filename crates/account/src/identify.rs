//! [`identify`]: from credentials to their owner, as far as that is fast.
//!
//! Tokens and logins are decided at once. For a password, the caller gets a [`PasswordCheck`], to run where slow work belongs,
//! or to skip if its [fingerprint](PasswordCheck::fingerprint) was checked a moment ago. An unknown user's password is hashed
//! as well, so that the response time does not reveal which users exist. A disabled user's right password is answered like a
//! wrong one.

use std::collections::BTreeMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use record::Digest;
use sha2::Sha256;

use crate::{
    AuthMethod, Credentials, Identity, Limits, LoginText, LoginTokenError, Password, PasswordHash,
    Principal, Scopes, SessionText, Snapshot, TokenId, TokenText, UploadToken, User, UserName,
};

/// The result of identifying credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identification {
    /// Their owner.
    Known(Principal),
    /// Their owner is known only after this check.
    NeedsPasswordCheck(PasswordCheck),
    /// Nothing.
    Refused(Refusal),
}

/// A password to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordCheck {
    user: UserName,
    password: Password,
    hash: PasswordHash,
    /// The result if the password is right.
    outcome: Result<Identity, Refusal>,
}

/// Why credentials are not valid, for logs and for clients that log in. On devpi's surface the sender of such credentials counts
/// as anonymous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The user does not exist, has no password, has another one, or is disabled; devpi's text.
    #[error("user '{user}' could not be authenticated")]
    Password {
        /// The user that the credentials name.
        user: UserName,
    },
    /// A user whose credentials are refused for now. Only the sender of a valid token or login is told so: a guesser must not learn
    /// that a password was right.
    #[error("user '{user}' is disabled")]
    Disabled {
        /// The user.
        user: UserName,
    },
    /// Revoked, of a deleted user, or never made here.
    #[error("the token `larder_{id}_…` is not known here: it was revoked, or is another server's")]
    TokenUnknown {
        /// The token's id.
        id: TokenId,
    },
    /// Its time is over.
    #[error("the token `larder_{id}_…` expired at {expired_at}")]
    TokenExpired {
        /// The token's id.
        id: TokenId,
        /// When.
        expired_at: Timestamp,
    },
    /// A login that does not hold.
    #[error(transparent)]
    Login(#[from] LoginTokenError),
    /// A login shown as somebody else's.
    #[error("this login is not of user '{user}'")]
    LoginOfAnother {
        /// The claimed user.
        user: UserName,
    },
    /// The time of a session is over, or its user logged out, or has another password since, or is gone.
    #[error("the session of user '{user}' has ended: log in again")]
    SessionEnded {
        /// The claimed user.
        user: UserName,
    },
}

/// Identifies the owner of `credentials`, as of `snapshot`, at `now`.
pub fn identify(snapshot: &Snapshot, credentials: &Credentials, now: Timestamp) -> Identification {
    let identity = match credentials {
        Credentials::Password { user, password } => {
            return Identification::NeedsPasswordCheck(password_check(snapshot, user, password));
        }
        Credentials::Token(token) => match by_token(snapshot, token, now) {
            Err(Refusal::TokenUnknown { id }) => return by_upload_token(snapshot, id, token, now),
            identity => identity,
        },
        Credentials::Login { user, login } => by_login(snapshot, user.as_ref(), login, now),
    };
    match identity {
        Ok(identity) => Identification::Known(Principal::User(identity)),
        Err(refusal) => Identification::Refused(refusal),
    }
}

/// The user of a browser's session, as of `snapshot`, at `now`.
///
/// # Errors
/// [`Refusal::SessionEnded`].
pub fn identify_session(
    snapshot: &Snapshot,
    session: &SessionText,
    now: Timestamp,
) -> Result<Principal, Refusal> {
    by_session(snapshot, session.user(), &session.secret_digest(), now).map(Principal::User)
}

/// The user of this name, whom somebody else has identified: a directory, or a proxy.
///
/// # Errors
/// [`Refusal::Password`], if there is no such user or the user is disabled, too.
pub fn identify_elsewhere(snapshot: &Snapshot, name: &UserName) -> Result<Principal, Refusal> {
    let user = snapshot.user(name).ok_or_else(|| Refusal::Password { user: name.clone() })?;
    admitted(user, AuthMethod::Password, Scopes::ALL, None).map(Principal::User)
}

pub(crate) fn by_session(
    snapshot: &Snapshot,
    name: &UserName,
    secret_digest: &Digest,
    now: Timestamp,
) -> Result<Identity, Refusal> {
    let ended = || Refusal::SessionEnded { user: name.clone() };
    let (user, stored) = snapshot.user(name).zip(snapshot.sessions_of(name)).ok_or_else(ended)?;
    // These are digests of random bytes, so the time of the comparison reveals nothing.
    let found = stored.sessions.iter().find(|session| session.secret_digest == *secret_digest);
    found.filter(|session| session.holds(user, now)).ok_or_else(ended)?;
    let means = AuthMethod::Session { secret_digest: *secret_digest, serial: stored.serial };
    admitted(user, means, Scopes::ALL, None)
}

fn password_check(snapshot: &Snapshot, name: &UserName, password: &Password) -> PasswordCheck {
    let user = snapshot.user(name);
    let hash = user.and_then(|user| user.password_hash.clone());
    let outcome = match (user, &hash) {
        (Some(user), Some(_)) => admitted(user, AuthMethod::Password, Scopes::ALL, None),
        _ => Err(Refusal::Password { user: name.clone() }),
    };
    PasswordCheck {
        user: name.clone(),
        password: password.clone(),
        hash: hash.unwrap_or_else(|| PasswordHash::dummy_at(decoy_cost(snapshot, name))),
        outcome,
    }
}

/// What a check costs for a user without a password, or without existence: as much as for some user that has one. Hashes that
/// came from devpi cost more than others. Unknown names have each cost as often as users have it, so a cost says nothing, and
/// each name keeps its own while the users stay the same.
fn decoy_cost<'snapshot>(snapshot: &'snapshot Snapshot, name: &UserName) -> &'snapshot str {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for hash in snapshot.users().filter_map(|user| user.password_hash.as_ref()) {
        *counts.entry(hash.cost()).or_default() += 1;
    }
    let total: u64 = counts.values().sum();
    // Only this store knows which names have which cost.
    let secret = snapshot.login_secret().map_or(&[0; 32], |secret| secret.as_bytes());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(b"larder decoy 1\0");
    mac.update(name.as_str().as_bytes());
    let drawn = mac.finalize().into_bytes();
    let drawn = u64::from(u32::from_be_bytes([drawn[0], drawn[1], drawn[2], drawn[3]]));
    // In proportion, so that few names change their cost when a user comes or goes.
    let mut place = (drawn * total) >> 32;
    for (cost, count) in &counts {
        match place.checked_sub(*count) {
            Some(rest) => place = rest,
            None => return cost,
        }
    }
    PasswordHash::COST
}

fn by_token(snapshot: &Snapshot, text: &TokenText, now: Timestamp) -> Result<Identity, Refusal> {
    let id = text.id();
    let unknown = Refusal::TokenUnknown { id };
    let token = snapshot.token_by_text(text).ok_or_else(|| unknown.clone())?;
    let user = snapshot.user(&token.user).filter(|user| token.belongs_to(user)).ok_or(unknown)?;
    if let Some(expired_at) = token.expires_at.filter(|_| token.is_expired(now)) {
        return Err(Refusal::TokenExpired { id, expired_at });
    }
    admitted(user, AuthMethod::Token(id), token.scopes, token.limits.clone())
}

fn by_upload_token(
    snapshot: &Snapshot,
    id: TokenId,
    text: &TokenText,
    now: Timestamp,
) -> Identification {
    let found = snapshot.upload_token(id).ok_or(Refusal::TokenUnknown { id });
    let valid = found.and_then(|token| {
        upload_token(token, &text.secret_digest(), now)
            .map(|()| Principal::Publisher(token.clone()))
    });
    valid.map_or_else(Identification::Refused, Identification::Known)
}

/// Whether an upload token has this secret, and is valid at `now`.
pub(crate) fn upload_token(
    token: &UploadToken,
    secret_digest: &Digest,
    now: Timestamp,
) -> Result<(), Refusal> {
    let id = token.id;
    if token.secret_digest != *secret_digest {
        return Err(Refusal::TokenUnknown { id });
    }
    if token.is_expired(now) {
        return Err(Refusal::TokenExpired { id, expired_at: token.expires_at });
    }
    Ok(())
}

fn by_login(
    snapshot: &Snapshot,
    said: Option<&UserName>,
    login: &LoginText,
    now: Timestamp,
) -> Result<Identity, Refusal> {
    let secret = snapshot.login_secret().ok_or(LoginTokenError::Signature)?;
    let user = secret.check(login, snapshot, now)?;
    if let Some(said) = said.filter(|said| **said != user.name) {
        return Err(Refusal::LoginOfAnother { user: said.clone() });
    }
    let expires_at = login.expires_at().ok_or(LoginTokenError::Notation)?;
    admitted(user, AuthMethod::Login { expires_at }, Scopes::ALL, None)
}

pub(crate) fn admitted(
    user: &Arc<User>,
    means: AuthMethod,
    scopes: Scopes,
    limits: Option<Arc<Limits>>,
) -> Result<Identity, Refusal> {
    if user.is_disabled {
        let user = user.name.clone();
        return Err(match means {
            AuthMethod::Password => Refusal::Password { user },
            _ => Refusal::Disabled { user },
        });
    }
    Ok(Identity { user: Arc::clone(user), means, scopes, limits })
}

impl PasswordCheck {
    /// The claimed user.
    pub fn user_name(&self) -> &UserName {
        &self.user
    }

    /// Checks the password. Slow: tens of milliseconds of a core, and tens of megabytes.
    ///
    /// # Errors
    /// [`Refusal::Password`].
    pub fn run(&self) -> Result<Principal, Refusal> {
        if self.hash.verify(&self.password) {
            return self.passed();
        }
        Err(Refusal::Password { user: self.user.clone() })
    }

    /// The result if the password is right, for a caller that remembers the fingerprint of a run that succeeded. Calling it
    /// otherwise is a mistake of the caller.
    ///
    /// # Errors
    /// [`Refusal::Password`] if no such user has a password, or the user is disabled. The caller then runs the check anyway, so
    /// that the response time reveals nothing.
    pub fn passed(&self) -> Result<Principal, Refusal> {
        self.outcome.clone().map(Principal::User)
    }

    /// The key to remember a check by: a keyed digest of the user, the password and the hash. So a different password and a
    /// changed one are different checks, and remembered keys do not help to guess a password. `secret`: random bytes that only
    /// this process knows.
    pub fn fingerprint(&self, secret: &[u8; 32]) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        // A name and a hash have no NUL, so where each ends is told.
        for part in [self.user.as_str(), self.hash.as_str(), self.password.reveal()] {
            mac.update(part.as_bytes());
            mac.update(b"\0");
        }
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use record::{Record, Serial};

    use super::*;
    use crate::testing::{at, name, snapshot_of, user};
    use crate::{LOGIN_LIFETIME, LoginSecret, Token, change};

    fn alice() -> User {
        let hash = Password::attempt("secret").hash([1; 16]);
        User { password_hash: Some(hash), ..user("alice", &["team"]) }
    }

    fn token_of(user: &User) -> (TokenText, Token) {
        let text = TokenText::from_secret([1; 32]);
        let token = Token {
            id: text.id(),
            user: user.name.clone(),
            user_created_at: user.created_at,
            comment: String::new(),
            scopes: "python:upload".parse().expect("scopes"),
            limits: None,
            created_at: at(0),
            expires_at: Some(at(10)),
            secret_digest: text.secret_digest(),
            serial: Serial::ZERO,
        };
        (text, token)
    }

    fn with_token(snapshot: &Snapshot, token: &Token) -> Snapshot {
        let record = Record {
            key: crate::token_key(token.id),
            serial: Serial(2),
            body: Some(crate::record::write_token(token)),
            blobs: Vec::new(),
        };
        snapshot.apply(&[record]).0
    }

    /// Runs a check where one is needed; the answer as text, and the scopes.
    fn settled(snapshot: &Snapshot, credentials: &Credentials, second: i64) -> String {
        let outcome = match identify(snapshot, credentials, at(second)) {
            Identification::Known(principal) => Ok(principal),
            Identification::NeedsPasswordCheck(check) => check.run(),
            Identification::Refused(refusal) => Err(refusal),
        };
        match outcome {
            Ok(Principal::User(identity)) => {
                format!("{} by {:?} for {}", identity.user.name, identity.means, identity.scopes)
            }
            Ok(Principal::Anonymous | Principal::Publisher(_)) => "anonymous".into(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[track_caller]
    fn check_password(users: &[User], text: &str, outcome: &str) {
        let (user, password) = text.split_once(':').expect("a colon");
        let credentials = Credentials::from_user_and_password(user, password).expect("credentials");
        assert_eq!(settled(&snapshot_of(users), &credentials, 0), outcome, "{text}");
    }

    #[test]
    fn a_password_is_checked() {
        let wrong = "user 'alice' could not be authenticated";
        check_password(&[alice()], "alice:secret", "alice by Password for *");
        check_password(&[alice()], "alice:secreT", wrong);
        check_password(&[alice()], "bob:secret", "user 'bob' could not be authenticated");
        check_password(&[], "alice:secret", wrong);
        check_password(&[user("alice", &[])], "alice:", wrong);
        let disabled = User { is_disabled: true, ..alice() };
        check_password(slice::from_ref(&disabled), "alice:secret", wrong);
        check_password(&[disabled], "alice:guess", wrong);
    }

    #[test]
    fn an_unknown_user_costs_as_much_as_a_known_one() {
        let snapshot = snapshot_of(&[alice()]);
        let cost = |user: &str| {
            let credentials = Credentials::from_user_and_password(user, "x").expect("credentials");
            match identify(&snapshot, &credentials, at(0)) {
                // A hash shows only its cost.
                Identification::NeedsPasswordCheck(check) => format!("{:?}", check.hash),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(cost("alice"), cost("bob"));
    }

    /// The cost of a user that came from devpi is also that of names that nobody has.
    #[test]
    fn unknown_users_cost_what_users_cost() {
        let devpis = PasswordHash::dummy_at("$argon2id$v=19$m=65536,t=3,p=4");
        let cheap = Password::attempt("x").cheap_hash([1; 16]);
        let bob = User { password_hash: Some(devpis), ..user("bob", &[]) };
        let root = User { password_hash: Some(cheap), ..user("root", &[]) };
        let snapshot = snapshot_of(&[alice(), bob, root]);
        let mut dear = 0;
        for number in 0..600 {
            let text = format!("nobody{number}");
            let cost = decoy_cost(&snapshot, &name(&text));
            assert_eq!(cost, decoy_cost(&snapshot, &name(&text)));
            dear += u32::from(cost == "$argon2id$v=19$m=65536,t=3,p=4");
        }
        // A third of the users have it. The choice is by a fixed key, so this is the same each time.
        assert!((150..250).contains(&dear), "{dear}");
        assert_eq!(decoy_cost(&snapshot_of(&[]), &name("x")), PasswordHash::COST);
    }

    #[test]
    fn a_check_is_remembered_by_all_that_it_depends_on() {
        let print = |users: &[User], name: &str, password: &str, key: u8| {
            let credentials = Credentials::from_user_and_password(name, password);
            match identify(&snapshot_of(users), &credentials.expect("credentials"), at(0)) {
                Identification::NeedsPasswordCheck(check) => check.fingerprint(&[key; 32]),
                other => panic!("{other:?}"),
            }
        };
        let bob = User { name: name("bob"), ..alice() };
        let other_hash = Some(Password::attempt("secret").hash([2; 16]));
        let changed = User { password_hash: other_hash, ..alice() };
        let base = print(&[alice()], "alice", "secret", 1);
        assert_eq!(print(&[alice(), bob.clone()], "alice", "secret", 1), base);
        assert_ne!(print(&[alice()], "alice", "secret ", 1), base);
        assert_ne!(print(&[alice(), bob], "bob", "secret", 1), base);
        assert_ne!(print(&[changed], "alice", "secret", 1), base);
        assert_ne!(print(&[alice()], "alice", "secret", 2), base);
    }

    #[track_caller]
    fn check_token(user: &User, second: i64, outcome: &str) {
        let (text, token) = token_of(&alice());
        let snapshot = with_token(&snapshot_of(slice::from_ref(user)), &token);
        assert_eq!(settled(&snapshot, &Credentials::Token(text), second), outcome);
    }

    #[test]
    fn a_token_is_its_users() {
        let good = "alice by Token(TokenId(72cd6e8422c4)) for python:upload";
        check_token(&alice(), 0, good);
        check_token(&alice(), 9, good);
        let expired = format!("the token `larder_72cd6e8422c4_…` expired at {}", at(10));
        check_token(&alice(), 10, &expired);
        let disabled = User { is_disabled: true, ..alice() };
        check_token(&disabled, 0, "user 'alice' is disabled");
    }

    #[test]
    fn a_token_does_not_outlive_its_user() {
        let unknown = "the token `larder_72cd6e8422c4_…` is not known here: it was revoked, or is \
                       another server's";
        check_token(&User { created_at: at(5), ..alice() }, 6, unknown);
        check_token(&user("bob", &[]), 0, unknown);
        let (text, _) = token_of(&alice());
        let credentials = Credentials::Token(text);
        assert_eq!(settled(&snapshot_of(&[alice()]), &credentials, 0), unknown);
    }

    #[test]
    fn a_login_is_its_users() {
        let batch = change::create_login_secret(&Snapshot::new(), [3; 32]).expect("a batch");
        let records: Vec<Record> = batch
            .writes
            .into_iter()
            .map(|write| Record {
                key: write.key,
                serial: Serial(1),
                body: write.body,
                blobs: write.blobs,
            })
            .collect();
        let snapshot = snapshot_of(&[alice(), user("bob", &[])]);
        let (with_secret, _) = snapshot.apply(&records);
        let login = LoginSecret::new([3; 32]).issue(&alice(), at(0), LOGIN_LIFETIME);
        let check = |snapshot: &Snapshot, said: Option<&str>, outcome: &str| {
            let credentials = Credentials::Login { user: said.map(name), login: login.clone() };
            assert_eq!(settled(snapshot, &credentials, 1), outcome);
        };
        let good = format!("alice by Login {{ expires_at: {:?} }} for *", at(36_000));
        check(&with_secret, None, &good);
        check(&with_secret, Some("alice"), &good);
        check(&with_secret, Some("bob"), "this login is not of user 'bob'");
        check(&snapshot, None, "this login was not issued by this server");
        let disabled = User { is_disabled: true, ..alice() };
        let (disabled, _) = snapshot_of(&[disabled]).apply(&records);
        check(&disabled, None, "user 'alice' is disabled");
    }

    /// Checks a proof again after the accounts have changed.
    #[track_caller]
    fn check_later(proved: &Principal, later: &Snapshot, second: i64, outcome: &str) {
        let found = match proved.as_of(later, at(second)) {
            Ok(Principal::User(identity)) => {
                let groups: Vec<&str> = identity.user.groups.iter().map(|it| it.as_str()).collect();
                format!("{} in {groups:?} for {}", identity.user.name, identity.scopes)
            }
            Ok(Principal::Anonymous | Principal::Publisher(_)) => "anonymous".into(),
            Err(refusal) => refusal.to_string(),
        };
        assert_eq!(found, outcome);
    }

    #[test]
    fn a_proof_is_asked_again_of_a_later_snapshot() {
        let (text, token) = token_of(&alice());
        let first = with_token(&snapshot_of(&[alice()]), &token);
        let proved = |credentials: &Credentials| match identify(&first, credentials, at(0)) {
            Identification::Known(principal) => principal,
            Identification::NeedsPasswordCheck(check) => check.run().expect("it is right"),
            Identification::Refused(refusal) => panic!("{refusal}"),
        };
        let by_token = proved(&Credentials::Token(text));
        let password = Credentials::from_user_and_password("alice", "secret");
        let by_password = proved(&password.expect("credentials"));
        let expires_at = at(20);
        let Principal::User(identity) = &by_password else { panic!("a user") };
        let by_login = Principal::User(Identity {
            means: AuthMethod::Login { expires_at },
            ..identity.clone()
        });
        let with = |user: User| with_token(&snapshot_of(&[user]), &token);
        let hash = Password::attempt("other").hash([1; 16]);
        let unknown = "the token `larder_72cd6e8422c4_…` is not known here: it was revoked, or is \
                       another server's";
        let wrong = "user 'alice' could not be authenticated";
        let ended = "the login of user 'alice' ended with their password";
        let disabled = "user 'alice' is disabled";
        let all = [&by_token, &by_password, &by_login];
        let check = |later: &Snapshot, outcomes: [&str; 3]| {
            for (proved, outcome) in all.into_iter().zip(outcomes) {
                check_later(proved, later, 1, outcome);
            }
        };
        let [good_token, good] =
            ["python:upload", "*"].map(|it| format!("alice in [\"team\"] for {it}"));
        check(&first, [&good_token, &good, &good]);
        check(&with(User { is_disabled: true, ..alice() }), [disabled, wrong, disabled]);
        check(&with(User { created_at: at(1), ..alice() }), [unknown, wrong, ended]);
        check(&with(user("bob", &[])), [unknown, wrong, ended]);
        let changed = with(User { password_hash: Some(hash), ..alice() });
        check(&changed, [&good_token, wrong, ended]);
        check(&snapshot_of(&[alice()]), [unknown, &good, &good]);
        let left = with(User { groups: Default::default(), ..alice() });
        check(&left, ["alice in [] for python:upload", "alice in [] for *", "alice in [] for *"]);
        let expired = format!("the token `larder_72cd6e8422c4_…` expired at {}", at(10));
        check_later(&by_token, &first, 10, &expired);
        let expired = format!("the login of user 'alice' expired at {}", at(20));
        check_later(&by_login, &first, 20, &expired);
        check_later(&Principal::Anonymous, &first, 0, "anonymous");
        let keys = |proved: &Principal| {
            proved.rests_on().iter().map(|(key, it)| format!("{key} {it}")).collect::<Vec<_>>()
        };
        assert_eq!(keys(&by_token), ["user/alice at serial 1", "token/72cd6e8422c4 present"]);
        assert_eq!(keys(&by_login), ["user/alice at serial 1"]);
        assert_eq!(keys(&Principal::Anonymous), [""; 0]);
    }
}
