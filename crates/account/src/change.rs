//! What may become of users and tokens: each change checked against a snapshot, and turned into a batch.
//!
//! A batch expects what the snapshot showed; when somebody else was first, the store writes nothing, and
//! the caller decides anew on the next snapshot. Whether somebody may ask for a change is
//! [`UserPolicy`](crate::UserPolicy)'s business.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use record::{Batch, Digest, Expected, Serial};

use crate::record::{write_login_secret, write_sessions, write_token, write_user};
use crate::{
    GroupName, Limits, LoginSecret, PasswordHash, ProfileEdit, SESSIONS_PER_USER_MAX, Scope,
    Scopes, Session, SessionText, Snapshot, Token, TokenId, TokenText, User, UserName, is_reserved,
    login_secret_key, session_key, token_key, user_key,
};

/// Most tokens that one user has at a time; those that open nothing any more do not count, and go when the next one is
/// made.
pub const TOKENS_PER_USER_MAX: usize = 1000;

/// There is no such user; devpi's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user '{0}' does not exist")]
pub struct NoUser(pub UserName);

/// There is no such token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token '{0}' does not exist")]
pub struct NoToken(pub TokenId);

/// Why a user is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateUserError {
    /// There is one of that name; devpi's text.
    #[error("user already exists")]
    Exists,
    /// The server answers under that name itself.
    #[error("username '{0}' is reserved: the server answers at /{0} itself")]
    Reserved(UserName),
}

/// Why a user is not deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteUserError {
    /// There is none.
    #[error(transparent)]
    NoUser(#[from] NoUser),
    /// `root` stays.
    #[error("user 'root' cannot be deleted")]
    Root,
}

/// Why a token is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateTokenError {
    /// Its user is not there.
    #[error(transparent)]
    NoUser(#[from] NoUser),
    /// Its user is disabled.
    #[error("user '{0}' is disabled")]
    Disabled(UserName),
    /// It would be good for nothing.
    #[error("a token needs a scope: none was given")]
    NoScopes,
    /// It would be limited to what such a scope is not for.
    #[error("the scope `{scope}` is of no use to a token that is limited to {limits}", scope = .scope.as_str())]
    UselessScope {
        /// The scope.
        scope: Scope,
        /// The limits.
        limits: Box<Limits>,
    },
    /// Limits of too many things.
    #[error("a token is limited to at most {max} indexes, projects and prefixes each, not to {0}", max = Limits::EACH_MAX)]
    TooManyLimits(usize),
    /// Its time would be over.
    #[error("a token that expires at {expires_at} would be expired now, at {now}")]
    Expired {
        /// When it should expire.
        expires_at: Timestamp,
        /// When it should be made.
        now: Timestamp,
    },
    /// A comment of several lines, or with other control characters.
    #[error("the comment of a token is one line of text: `{0}` is not")]
    Comment(String),
    /// A long comment.
    #[error("a comment of {0} bytes is too long: at most {max} were expected", max = Token::COMMENT_BYTES_MAX)]
    CommentTooLong(usize),
    /// Too many.
    #[error("user '{user}' has {count} tokens, and may not have more: revoke some", count = TOKENS_PER_USER_MAX)]
    TooMany {
        /// Whose.
        user: UserName,
    },
    /// Its id is taken: try again with other random bytes.
    #[error("the token id '{0}' is taken")]
    Taken(TokenId),
}

/// What a new token is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Whose rights it uses.
    pub user: UserName,
    /// What its owner notes about it: one line, at most [`Token::COMMENT_BYTES_MAX`] bytes.
    pub comment: String,
    /// What it may be used for; at least something.
    pub scopes: Scopes,
    /// What it is limited to. None: it is not limited.
    pub limits: Option<Limits>,
    /// From when on it is refused; none: never.
    pub expires_at: Option<Timestamp>,
}

/// Makes `user`: see [`User::new`] and [`ProfileEdit::apply`].
///
/// # Errors
/// [`CreateUserError`], by what is in the way.
pub fn create_user(snapshot: &Snapshot, user: &User) -> Result<Batch, CreateUserError> {
    if snapshot.user(&user.name).is_some() {
        return Err(CreateUserError::Exists);
    }
    if is_reserved(&user.name) {
        return Err(CreateUserError::Reserved(user.name.clone()));
    }
    let key = user_key(&user.name);
    Ok(Batch::new().put(key, Expected::Absent, write_user(user), Vec::new()))
}

/// Makes `root`.
///
/// # Errors
/// [`CreateUserError::Exists`].
pub fn create_first_administrator(
    snapshot: &Snapshot,
    password_hash: PasswordHash,
    now: Timestamp,
) -> Result<Batch, CreateUserError> {
    let user = User::new(UserName::root(), now);
    create_user(snapshot, &User { password_hash: Some(password_hash), ..user })
}

/// Changes what a user says of themselves, and their password if one is given. None if nothing changes.
///
/// # Errors
/// [`NoUser`].
pub fn modify_user(
    snapshot: &Snapshot,
    name: &UserName,
    profile: &ProfileEdit,
    password_hash: Option<PasswordHash>,
    now: Timestamp,
) -> Result<Option<Batch>, NoUser> {
    change(snapshot, name, now, |user| {
        profile.apply(user);
        if password_hash.is_some() {
            user.password_hash = password_hash;
        }
    })
}

/// Sets a user's password, or takes it away: then only tokens open. Their logins end, their tokens stay.
/// None if nothing changes.
///
/// # Errors
/// [`NoUser`].
pub fn set_password(
    snapshot: &Snapshot,
    name: &UserName,
    password_hash: Option<PasswordHash>,
    now: Timestamp,
) -> Result<Option<Batch>, NoUser> {
    change(snapshot, name, now, |user| user.password_hash = password_hash)
}

/// Puts a user into these groups and no others. None if nothing changes.
///
/// # Errors
/// [`NoUser`].
pub fn set_groups(
    snapshot: &Snapshot,
    name: &UserName,
    groups: BTreeSet<GroupName>,
    now: Timestamp,
) -> Result<Option<Batch>, NoUser> {
    change(snapshot, name, now, |user| user.groups = groups)
}

/// Refuses all credentials of a user from now on, or no longer, and ends their sessions: who disables a user for a stolen
/// cookie, and enables them again, does not bring it back. None if nothing changes.
///
/// # Errors
/// [`NoUser`].
pub fn set_disabled(
    snapshot: &Snapshot,
    name: &UserName,
    is_disabled: bool,
    now: Timestamp,
) -> Result<Option<Batch>, NoUser> {
    let batch = change(snapshot, name, now, |user| user.is_disabled = is_disabled)?;
    let has_sessions = snapshot.sessions_of(name).is_some();
    Ok(batch.map(|batch| match has_sessions {
        // A log-in at the same moment expects the user unchanged, so one of the two is retried.
        true => batch.delete(session_key(name), Expected::Anything),
        false => batch,
    }))
}

/// Deletes a user with their tokens and sessions. What else is theirs, as their indexes, the caller adds to the batch.
///
/// # Errors
/// [`DeleteUserError`].
pub fn delete_user(snapshot: &Snapshot, name: &UserName) -> Result<Batch, DeleteUserError> {
    if name.is_root() {
        return Err(DeleteUserError::Root);
    }
    let user = found(snapshot, name)?;
    let mut batch = Batch::new().delete(user_key(name), Expected::At(user.serial));
    if snapshot.sessions_of(name).is_some() {
        batch = batch.delete(session_key(name), Expected::Anything);
    }
    // A token that somebody revokes meanwhile is gone all the same. One that somebody makes meanwhile is
    // left behind, and opens nothing: see `Token::belongs_to`.
    let tokens = snapshot.tokens_of(name).into_iter();
    Ok(tokens.fold(batch, |batch, token| batch.delete(token_key(token.id), Expected::Anything)))
}

/// Makes a token of 32 random bytes, `secret`: the text to show once, what is stored, and the batch. That clears away,
/// too, what tokens of that name open nothing any more: expired ones, and those of an earlier user.
///
/// # Errors
/// [`CreateTokenError`], by what is in the way.
pub fn create_token(
    snapshot: &Snapshot,
    new: NewToken,
    secret: [u8; 32],
    now: Timestamp,
) -> Result<(TokenText, Token, Batch), CreateTokenError> {
    let user = found(snapshot, &new.user)?;
    if user.is_disabled {
        return Err(CreateTokenError::Disabled(new.user));
    }
    if new.scopes.is_empty() {
        return Err(CreateTokenError::NoScopes);
    }
    if let Some(limits) = &new.limits {
        check_limits(limits, new.scopes)?;
    }
    if let Some(expires_at) = new.expires_at.filter(|expires_at| *expires_at <= now) {
        return Err(CreateTokenError::Expired { expires_at, now });
    }
    if new.comment.len() > Token::COMMENT_BYTES_MAX {
        return Err(CreateTokenError::CommentTooLong(new.comment.len()));
    }
    if new.comment.chars().any(char::is_control) {
        return Err(CreateTokenError::Comment(new.comment.escape_debug().to_string()));
    }
    let is_dead = |token: &&Arc<Token>| token.is_expired(now) || !token.belongs_to(user);
    let (dead, living): (Vec<_>, Vec<_>) =
        snapshot.tokens_of(&new.user).into_iter().partition(is_dead);
    if living.len() >= TOKENS_PER_USER_MAX {
        return Err(CreateTokenError::TooMany { user: new.user });
    }
    let text = TokenText::from_secret(secret);
    let id = text.id();
    if snapshot.token(id).is_some() {
        return Err(CreateTokenError::Taken(id));
    }
    let token = Token {
        id,
        user: new.user,
        user_created_at: user.created_at,
        comment: new.comment,
        scopes: new.scopes,
        limits: new.limits.map(Arc::new),
        created_at: now,
        expires_at: new.expires_at,
        secret_digest: text.secret_digest(),
        serial: Serial::ZERO,
    };
    let batch = Batch::new()
        .put(token_key(id), Expected::Absent, write_token(&token), Vec::new())
        .check(user_key(&token.user), Expected::Present);
    // One that somebody else clears away meanwhile is gone all the same.
    let batch = dead
        .into_iter()
        .fold(batch, |batch, dead| batch.delete(token_key(dead.id), Expected::Anything));
    Ok((text, token, batch))
}

/// Refuses limits that are too many, and such that leave a scope without a use.
fn check_limits(limits: &Limits, scopes: Scopes) -> Result<(), CreateTokenError> {
    let counts = [limits.indexes().len(), limits.projects().len(), limits.prefixes().len()];
    if let Some(count) = counts.into_iter().find(|count| *count > Limits::EACH_MAX) {
        return Err(CreateTokenError::TooManyLimits(count));
    }
    match scopes.iter().find(|scope| !limits.reach(*scope)) {
        None => Ok(()),
        Some(scope) => {
            Err(CreateTokenError::UselessScope { scope, limits: Box::new(limits.clone()) })
        }
    }
}

/// Revokes a token. Whose it is, the snapshot says.
///
/// # Errors
/// [`NoToken`].
pub fn revoke_token(snapshot: &Snapshot, id: TokenId) -> Result<Batch, NoToken> {
    let token = snapshot.token(id).ok_or(NoToken(id))?;
    Ok(Batch::new().delete(token_key(id), Expected::At(token.serial)))
}

/// Opens a session for `user`, who just gave their password: the text for the browser, and the batch. That ends the session
/// that the browser showed, and the oldest ones of the user where there are too many.
pub fn open_session(
    snapshot: &Snapshot,
    user: &User,
    secret: [u8; 32],
    replaced: Option<&SessionText>,
    now: Timestamp,
    lifetime: Duration,
) -> (SessionText, Batch) {
    let text = SessionText::new(user.name.clone(), secret);
    let expires_at = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
    let stored = snapshot.sessions_of(&user.name);
    let replaced_digest = replaced.map(SessionText::secret_digest);
    let living = stored.into_iter().flat_map(|it| &it.sessions).filter(|session| {
        session.holds(user, now) && Some(session.secret_digest) != replaced_digest
    });
    let mut sessions: Vec<Session> = living.cloned().collect();
    sessions.push(Session::new(user, &text, now, expires_at));
    sessions.drain(..sessions.len().saturating_sub(SESSIONS_PER_USER_MAX));
    let expected = stored.map_or(Expected::Absent, |stored| Expected::At(stored.serial));
    let key = session_key(&user.name);
    let mut batch = Batch::new()
        .put(key, expected, write_sessions(&sessions), Vec::new())
        .check(user_key(&user.name), Expected::At(user.serial));
    let others = replaced.filter(|replaced| *replaced.user() != user.name);
    let others = others.and_then(|it| close_session(snapshot, it.user(), &it.secret_digest()));
    batch.writes.extend(others.into_iter().flat_map(|batch| batch.writes));
    (text, batch)
}

/// Ends a session of that user. None if there is no such session.
pub fn close_session(
    snapshot: &Snapshot,
    name: &UserName,
    secret_digest: &Digest,
) -> Option<Batch> {
    let stored = snapshot.sessions_of(name)?;
    let others = stored.sessions.iter().filter(|it| it.secret_digest != *secret_digest);
    let others: Vec<Session> = others.cloned().collect();
    if others.len() == stored.sessions.len() {
        return None;
    }
    let (key, expected) = (session_key(name), Expected::At(stored.serial));
    Some(match others.as_slice() {
        [] => Batch::new().delete(key, expected),
        others => Batch::new().put(key, expected, write_sessions(others), Vec::new()),
    })
}

/// Ends all sessions of that user. None if there are none.
pub fn close_sessions(snapshot: &Snapshot, name: &UserName) -> Option<Batch> {
    let stored = snapshot.sessions_of(name)?;
    Some(Batch::new().delete(session_key(name), Expected::At(stored.serial)))
}

/// Makes the login secret of 32 random bytes. None if there is one; when several processes start at once,
/// the store lets one of them succeed.
pub fn create_login_secret(snapshot: &Snapshot, random: [u8; 32]) -> Option<Batch> {
    let body = write_login_secret(&LoginSecret::new(random));
    let is_absent = snapshot.login_secret().is_none();
    is_absent.then(|| Batch::new().put(login_secret_key(), Expected::Absent, body, Vec::new()))
}

fn found<'snapshot>(
    snapshot: &'snapshot Snapshot,
    name: &UserName,
) -> Result<&'snapshot Arc<User>, NoUser> {
    snapshot.user(name).ok_or_else(|| NoUser(name.clone()))
}

fn change(
    snapshot: &Snapshot,
    name: &UserName,
    now: Timestamp,
    apply: impl FnOnce(&mut User),
) -> Result<Option<Batch>, NoUser> {
    let before = found(snapshot, name)?;
    let mut user = User::clone(before);
    apply(&mut user);
    if user == **before {
        return Ok(None);
    }
    user.modified_at = Some(now);
    let (key, expected) = (user_key(name), Expected::At(before.serial));
    Ok(Some(Batch::new().put(key, expected, write_user(&user), Vec::new())))
}

#[cfg(test)]
mod tests {
    use record::{Found, Record};

    use super::*;
    use crate::testing::{at, limits as limits_of, name, user};
    use crate::{Field, Password};

    /// A store of one thread: a batch is written if it finds what it expects.
    #[derive(Default)]
    struct Store {
        snapshot: Snapshot,
        written: std::collections::BTreeMap<record::Key, Found>,
        serial: Serial,
    }

    impl Store {
        fn with(users: &[User]) -> Store {
            let mut store = Store::default();
            for user in users {
                let batch = create_user(&store.snapshot, user).expect("a new user");
                store.commit(batch).expect("a commit");
            }
            store
        }

        /// Its outcome, as text.
        fn commit(&mut self, batch: Batch) -> Result<(), String> {
            let never = Found { serial: Serial::ZERO, is_present: false };
            let writes = batch.writes.iter().map(|write| (&write.key, write.expected));
            for (key, expected) in writes.chain(batch.checks.iter().map(|(key, it)| (key, *it))) {
                let found = self.written.get(key).copied().unwrap_or(never);
                if !expected.holds(found) {
                    return Err(format!("{key} is {found}"));
                }
            }
            assert_eq!(batch.key_written_twice(), None);
            self.serial = self.serial.next();
            let serial = self.serial;
            let records = batch.writes.into_iter().map(|write| {
                let found = Found { serial, is_present: write.body.is_some() };
                self.written.insert(write.key.clone(), found);
                Record { key: write.key, serial, body: write.body, blobs: write.blobs }
            });
            let (next, troubles) = self.snapshot.apply(&records.collect::<Vec<_>>());
            assert_eq!(troubles, []);
            self.snapshot = next;
            let rescued: Vec<Record> = self.snapshot.records().collect();
            assert_eq!(Snapshot::new().apply(&rescued), (self.snapshot.clone(), Vec::new()));
            Ok(())
        }

        fn user(&self, text: &str) -> User {
            User::clone(self.snapshot.user(&name(text)).expect("a user"))
        }
    }

    fn new_token(owner: &str) -> NewToken {
        let scopes = "python:upload".parse().expect("scopes");
        NewToken { user: name(owner), comment: "ci".into(), scopes, limits: None, expires_at: None }
    }

    fn create(store: &Store, new: NewToken, secret: u8) -> Result<(TokenText, Batch), String> {
        create_token(&store.snapshot, new, [secret; 32], at(5))
            .map(|(text, _, batch)| (text, batch))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_user_is_made_once() {
        let alice = user("alice", &["team"]);
        let store = Store::with(std::slice::from_ref(&alice));
        assert_eq!(store.user("alice"), User { serial: Serial(1), ..alice.clone() });
        assert_eq!(create_user(&store.snapshot, &alice), Err(CreateUserError::Exists));
        let error = create_user(&store.snapshot, &user("rpc", &[])).expect_err("reserved");
        assert_eq!(
            error.to_string(),
            "username 'rpc' is reserved: the server answers at /rpc itself"
        );
    }

    #[test]
    fn two_who_make_one_user_do_not_both() {
        let mut store = Store::default();
        let first = create_user(&store.snapshot, &user("alice", &[])).expect("a batch");
        let second = create_user(&store.snapshot, &user("alice", &["x"])).expect("a batch");
        assert_eq!(store.commit(first), Ok(()));
        assert_eq!(store.commit(second), Err("user/alice is present at serial 1".into()));
    }

    #[test]
    fn the_first_administrator_is_root() {
        let mut store = Store::default();
        let empty = Password::new_or_empty("").expect("a password");
        let hash = empty.hash([0; 16]);
        let make = |store: &Store| create_first_administrator(&store.snapshot, hash.clone(), at(0));
        store.commit(make(&store).expect("a batch")).expect("a commit");
        assert!(store.user("root").is_administrator());
        assert!(store.user("root").password_hash.expect("a hash").verify(&empty));
        assert_eq!(make(&store), Err(CreateUserError::Exists));
    }

    #[test]
    fn a_change_is_written_with_its_time() {
        let mut store = Store::with(&[user("alice", &[])]);
        let profile = ProfileEdit { title: Field::Set("T".into()), ..ProfileEdit::default() };
        let alice = name("alice");
        let modify = |store: &Store| {
            modify_user(&store.snapshot, &alice, &profile, Some(PasswordHash::dummy()), at(3))
        };
        let batch = modify(&store).expect("a user").expect("a change");
        let late = set_disabled(&store.snapshot, &alice, true, at(4)).expect("a user");
        store.commit(batch).expect("a commit");
        let found = store.user("alice");
        assert_eq!(found.title.as_deref(), Some("T"));
        assert_eq!(found.password_hash, Some(PasswordHash::dummy()));
        assert_eq!((found.created_at, found.modified_at), (at(0), Some(at(3))));
        assert_eq!(modify(&store), Ok(None));
        let late = store.commit(late.expect("a change"));
        assert_eq!(late, Err("user/alice is present at serial 2".into()));
    }

    #[test]
    fn groups_state_and_password_are_set() {
        let mut store = Store::with(&[user("alice", &["a", "b"])]);
        let alice = name("alice");
        let groups = BTreeSet::from([GroupName::admin()]);
        let batch = set_groups(&store.snapshot, &alice, groups.clone(), at(1));
        store.commit(batch.expect("a user").expect("a change")).expect("a commit");
        let batch = set_disabled(&store.snapshot, &alice, true, at(2));
        store.commit(batch.expect("a user").expect("a change")).expect("a commit");
        let batch = set_password(&store.snapshot, &alice, Some(PasswordHash::dummy()), at(3));
        store.commit(batch.expect("a user").expect("a change")).expect("a commit");
        let found = store.user("alice");
        assert_eq!((found.groups, found.is_disabled), (groups, true));
        assert!(found.password_hash.is_some());
        let batch = set_password(&store.snapshot, &alice, None, at(4));
        store.commit(batch.expect("a user").expect("a change")).expect("a commit");
        assert_eq!(store.user("alice").password_hash, None);
        let nobody = set_groups(&store.snapshot, &name("bob"), BTreeSet::new(), at(5));
        assert_eq!(nobody.expect_err("nobody").to_string(), "user 'bob' does not exist");
    }

    #[test]
    fn a_user_goes_with_their_tokens() {
        let mut store = Store::with(&[user("alice", &[]), user("bob", &[])]);
        for (owner, secret) in [("alice", 1), ("alice", 2), ("bob", 3)] {
            let (_, batch) = create(&store, new_token(owner), secret).expect("a token");
            store.commit(batch).expect("a commit");
        }
        let (_, late) = create(&store, new_token("alice"), 4).expect("a token");
        let batch = delete_user(&store.snapshot, &name("alice")).expect("a batch");
        store.commit(batch).expect("a commit");
        assert_eq!(store.snapshot.user(&name("alice")), None);
        assert_eq!(store.snapshot.tokens_count(), 1);
        assert_eq!(store.commit(late), Err("user/alice is absent at serial 6".into()));
        let again = delete_user(&store.snapshot, &name("alice"));
        assert_eq!(again.expect_err("gone").to_string(), "user 'alice' does not exist");
        assert_eq!(delete_user(&store.snapshot, &name("root")), Err(DeleteUserError::Root));
        let alice = User { created_at: at(9), ..user("alice", &[]) };
        let batch = create_user(&store.snapshot, &alice).expect("the name is free again");
        assert_eq!(store.commit(batch), Ok(()));
    }

    #[test]
    fn a_token_is_made_and_revoked() {
        let mut store = Store::with(&[user("alice", &[])]);
        let (text, batch) = create(&store, new_token("alice"), 1).expect("a token");
        let stored = batch.writes[0].body.clone().expect("a body");
        let secret = "01".repeat(32);
        assert!(text.reveal().ends_with(&secret));
        assert!(!String::from_utf8_lossy(&stored).contains(&secret), "only the digest is stored");
        store.commit(batch).expect("a commit");
        let token = store.snapshot.token_by_text(&text).expect("the token");
        assert_eq!((token.serial, token.created_at), (Serial(2), at(5)));
        let taken = format!("the token id '{}' is taken", text.id());
        assert_eq!(create(&store, new_token("alice"), 1), Err(taken));
        let batch = revoke_token(&store.snapshot, text.id()).expect("a batch");
        store.commit(batch).expect("a commit");
        assert_eq!(store.snapshot.token_by_text(&text), None);
        assert_eq!(revoke_token(&store.snapshot, text.id()), Err(NoToken(text.id())));
    }

    #[test]
    fn a_new_token_clears_dead_ones_away() {
        let mut store = Store::with(&[user("alice", &[]), user("bob", &[])]);
        let brief = |second| NewToken { expires_at: Some(at(second)), ..new_token("alice") };
        let news = [brief(10), brief(9), new_token("alice"), new_token("bob")];
        let batches =
            (1..).zip(news).map(|(secret, new)| create(&store, new, secret).expect("a token").1);
        for batch in batches.collect::<Vec<_>>() {
            store.commit(batch).expect("a commit");
        }
        let make = |store: &mut Store, owner: &str, secret: u8, second: i64| {
            let made = create_token(&store.snapshot, new_token(owner), [secret; 32], at(second));
            let (_, _, batch) = made.expect("a token");
            store.commit(batch).expect("a commit");
            store.snapshot.tokens_of(&name(owner)).len()
        };
        assert_eq!(make(&mut store, "alice", 5, 8), 4);
        assert_eq!(make(&mut store, "alice", 6, 9), 4);
        assert_eq!(make(&mut store, "alice", 7, 10), 4);
        // As if bob had been deleted, and made again, while his token was made.
        let bob = User { created_at: at(8), ..user("bob", &[]) };
        let written =
            Batch::new().put(user_key(&bob.name), Expected::Present, write_user(&bob), Vec::new());
        store.commit(written).expect("a commit");
        assert_eq!(make(&mut store, "bob", 8, 10), 1);
    }

    #[test]
    fn a_user_has_so_many_living_tokens() {
        let mut store = Store::with(&[user("alice", &[])]);
        let make = |store: &mut Store, number: usize, expires_at, second| {
            let mut secret = [0; 32];
            secret[..8].copy_from_slice(&number.to_be_bytes());
            let new = NewToken { expires_at, ..new_token("alice") };
            let (_, _, batch) = create_token(&store.snapshot, new, secret, at(second))
                .map_err(|error| error.to_string())?;
            store.commit(batch)
        };
        for number in 0..TOKENS_PER_USER_MAX {
            let expires_at = (number == 0).then(|| at(20));
            assert_eq!(make(&mut store, number, expires_at, 10), Ok(()));
        }
        let full = "user 'alice' has 1000 tokens, and may not have more: revoke some";
        assert_eq!(make(&mut store, 1_000, None, 19), Err(full.into()));
        assert_eq!(make(&mut store, 1_000, None, 20), Ok(()));
        assert_eq!(make(&mut store, 1_001, None, 20), Err(full.into()));
        assert_eq!(store.snapshot.tokens_count(), TOKENS_PER_USER_MAX);
    }

    #[test]
    fn a_token_that_makes_no_sense_is_not_made() {
        let disabled = User { is_disabled: true, ..user("dora", &[]) };
        let store = Store::with(&[user("alice", &[]), disabled]);
        let alices = || new_token("alice");
        let check = |new: NewToken, error: &str| {
            assert_eq!(create(&store, new, 1).map(|_| ()), Err(error.to_owned()));
        };
        check(new_token("bob"), "user 'bob' does not exist");
        check(new_token("dora"), "user 'dora' is disabled");
        let none = NewToken { scopes: Scopes::NONE, ..alices() };
        let limited = |limits: &str, scopes: &str| NewToken {
            scopes: scopes.parse().expect("scopes"),
            limits: limits_of(limits),
            ..alices()
        };
        check(
            limited("index=team/dev", "python:upload,user:admin"),
            "the scope `user:admin` is of no use to a token that is limited to team/dev",
        );
        check(
            limited("prefix=docs", "python:read"),
            "the scope `python:read` is of no use to a token that is limited to articles below `/docs/`",
        );
        let many: String = (0..101).map(|number| format!("project=p{number} ")).collect();
        let too_many =
            "a token is limited to at most 100 indexes, projects and prefixes each, not to 101";
        check(limited(&many, "python:read"), too_many);
        assert!(
            create(&store, limited("project=foo prefix=docs", "python:upload,article:read"), 1)
                .is_ok()
        );
        assert!(create(&store, limited("prefix=docs", "*"), 1).is_ok());
        check(none, "a token needs a scope: none was given");
        let expired = format!("a token that expires at {0} would be expired now, at {0}", at(5));
        check(NewToken { expires_at: Some(at(5)), ..alices() }, &expired);
        let lines = NewToken { comment: "a\nb".into(), ..alices() };
        check(lines, "the comment of a token is one line of text: `a\\nb` is not");
        let long = NewToken { comment: "x".repeat(257), ..alices() };
        check(long, "a comment of 257 bytes is too long: at most 256 were expected");
    }

    #[test]
    fn the_login_secret_is_made_once() {
        let mut store = Store::default();
        let first = create_login_secret(&store.snapshot, [1; 32]).expect("a batch");
        let second = create_login_secret(&store.snapshot, [2; 32]).expect("a batch");
        store.commit(first).expect("a commit");
        assert_eq!(store.commit(second), Err("secret/login is present at serial 1".into()));
        assert_eq!(store.snapshot.login_secret(), Some(&LoginSecret::new([1; 32])));
        assert_eq!(create_login_secret(&store.snapshot, [3; 32]), None);
    }
}
