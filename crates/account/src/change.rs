//! Changes of users and tokens: each is checked against a snapshot, and turned into a batch.
//!
//! A batch expects what the snapshot showed. If another write came first, the store writes nothing, and the caller decides
//! again on the next snapshot. [`UserPolicy`](crate::UserPolicy) checks whether the sender may ask for a change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use record::{Batch, Digest, Expected, Serial};

use crate::record::{write_login_secret, write_sessions, write_token, write_token_use, write_user};
use crate::session::SESSIONS_PER_USER_MAX;
use crate::{
    GroupName, Limits, LoginSecret, PasswordHash, ProfileEdit, Scope, Scopes, Session, SessionText,
    Snapshot, Token, TokenId, TokenText, User, UserName, is_reserved, linked_key, login_secret_key,
    session_key, token_key, token_use_key, user_key,
};

/// Tokens that one user has at a time at most; those that are no longer valid do not count, and are removed when a later one
/// is made.
pub(crate) const TOKENS_PER_USER_MAX: usize = 1000;

/// How much later than the noted use of a token another one is noted. A write for each use would cost more than the use.
pub(crate) const USE_NOTED_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// Expired tokens of one user that are there at most; further ones are removed earlier.
const EXPIRED_PER_USER_MAX: usize = 1000;

/// The user does not exist; devpi's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user '{0}' does not exist")]
pub struct NoUser(pub UserName);

/// The token does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token '{0}' does not exist")]
pub struct NoToken(pub TokenId);

/// Why a user is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateUserError {
    /// A user with this name exists; devpi's text.
    #[error("user already exists")]
    Exists,
    /// The server answers under that name itself.
    #[error("username '{0}' is reserved: the server answers at /{0} itself")]
    Reserved(UserName),
}

/// Why a user is not deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteUserError {
    /// The user does not exist.
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
    /// The token would be useless.
    #[error("a token needs a scope: none was given")]
    NoScopes,
    /// The token would be limited to objects that this scope is not for.
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
        /// The user.
        user: UserName,
    },
    /// Its id is taken: try again with other random bytes.
    #[error("the token id '{0}' is taken")]
    Taken(TokenId),
}

/// The properties of a new token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// The user whose rights it uses.
    pub user: UserName,
    /// The owner's note about it: one line, at most [`Token::COMMENT_BYTES_MAX`] bytes.
    pub comment: String,
    /// What it may be used for; not empty.
    pub scopes: Scopes,
    /// What it is limited to; `None` if it is not limited.
    pub limits: Option<Limits>,
    /// When it expires; `None` if never.
    pub expires_at: Option<Timestamp>,
}

/// Makes `user`: see [`User::new`] and [`ProfileEdit::apply`].
///
/// # Errors
/// [`CreateUserError`], depending on the obstacle.
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

/// Changes the profile of a user, and the password if one is given. `None` if nothing changes.
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

/// Puts a user into these groups and no others. `None` if nothing changes.
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

/// Deletes a user with their tokens, sessions and linked identities. What else is theirs, as their indexes, the caller adds to the batch.
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
    let linked = snapshot.linked_of(name);
    batch =
        linked.fold(batch, |batch, it| batch.delete(linked_key(&it.digest()), Expected::Anything));
    // A token that is revoked meanwhile is gone anyway. A token that is made meanwhile stays behind, but is not valid: see
    // `Token::belongs_to`.
    let tokens = snapshot.tokens_of(name).into_iter();
    Ok(tokens.fold(batch, |batch, token| without_token(batch, snapshot, token.id)))
}

/// The batch that also removes a token, whatever was written meanwhile, and its last use.
fn without_token(batch: Batch, snapshot: &Snapshot, id: TokenId) -> Batch {
    without_use(batch.delete(token_key(id), Expected::Anything), snapshot, id)
}

fn without_use(batch: Batch, snapshot: &Snapshot, id: TokenId) -> Batch {
    match snapshot.token_used_at(id) {
        Some(_) => batch.delete(token_use_key(id), Expected::Anything),
        None => batch,
    }
}

/// Makes a token of 32 random bytes, `secret`: the text to show once, the stored token, and the batch. The batch also removes
/// tokens of that name that are of no use any more: those that expired before `forget_before`, and those of an earlier user. If
/// that is `None`, because the clock may be wrong, no expired one is removed.
///
/// # Errors
/// [`CreateTokenError`], depending on the obstacle.
pub fn create_token(
    snapshot: &Snapshot,
    new: NewToken,
    secret: [u8; 32],
    now: Timestamp,
    forget_before: Option<Timestamp>,
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
    let (own, mut dead): (Vec<_>, Vec<_>) =
        snapshot.tokens_of(&new.user).into_iter().partition(|token| token.belongs_to(user));
    let (mut expired, living): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|token| token.is_expired(now));
    if living.len() >= TOKENS_PER_USER_MAX {
        return Err(CreateTokenError::TooMany { user: new.user });
    }
    match forget_before {
        Some(forget_before) => {
            expired.sort_by_key(|token| token.expires_at);
            let old = expired.iter().filter(|token| token.is_expired(forget_before)).count();
            let many = expired.len().saturating_sub(EXPIRED_PER_USER_MAX);
            dead.extend(expired.drain(..old.max(many)));
        }
        None if expired.len() >= EXPIRED_PER_USER_MAX => {
            return Err(CreateTokenError::TooMany { user: new.user });
        }
        None => {}
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
    // A token that another write removes meanwhile is gone anyway.
    let batch = dead.into_iter().fold(batch, |batch, dead| without_token(batch, snapshot, dead.id));
    Ok((text, token, batch))
}

/// Refuses too many limits, and limits that make a scope useless.
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
    let batch = Batch::new().delete(token_key(id), Expected::At(token.serial));
    Ok(without_use(batch, snapshot, id))
}

/// Whether this use of a token is to be noted: the token is there, and the noted use is more than [`USE_NOTED_AFTER`] earlier.
pub fn is_use_late(snapshot: &Snapshot, id: TokenId, used_at: Timestamp) -> bool {
    let noted = snapshot.token_used_at(id);
    let is_late = |noted| used_at.duration_since(noted) > USE_NOTED_AFTER;
    snapshot.token(id).is_some() && noted.is_none_or(is_late)
}

/// Notes the last use of each of these tokens whose [use is to be noted](is_use_late); `None` if there is none.
pub fn note_token_uses(
    snapshot: &Snapshot,
    uses: impl IntoIterator<Item = (TokenId, Timestamp)>,
) -> Option<Batch> {
    let mut batch = Batch::new();
    for (id, used_at) in uses {
        if is_use_late(snapshot, id, used_at) {
            // A token that is revoked meanwhile keeps no use.
            batch = batch
                .put(token_use_key(id), Expected::Anything, write_token_use(used_at), Vec::new())
                .check(token_key(id), Expected::Present);
        }
    }
    (!batch.writes.is_empty()).then_some(batch)
}

/// Opens a session for `user`, who just gave their password: the text for the browser, and the batch. That ends the session
/// that the browser showed, those that expired before `forget_before`, and the oldest ones of the user where there are too many.
pub fn open_session(
    snapshot: &Snapshot,
    user: &User,
    secret: [u8; 32],
    replaced: Option<&SessionText>,
    now: Timestamp,
    forget_before: Option<Timestamp>,
    lifetime: Duration,
) -> (SessionText, Batch) {
    let (text, batch) =
        opened_session(snapshot, user, secret, replaced, now, forget_before, lifetime);
    (text, batch.check(user_key(&user.name), Expected::At(user.serial)))
}

/// [`open_session`], whose caller adds the condition that the user is as they are here.
pub(crate) fn opened_session(
    snapshot: &Snapshot,
    user: &User,
    secret: [u8; 32],
    replaced: Option<&SessionText>,
    now: Timestamp,
    forget_before: Option<Timestamp>,
    lifetime: Duration,
) -> (SessionText, Batch) {
    let text = SessionText::new(user.name.clone(), secret);
    let expires_at = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
    let stored = snapshot.sessions_of(&user.name);
    let replaced_digest = replaced.map(SessionText::secret_digest);
    let living = stored.into_iter().flat_map(|it| &it.sessions).filter(|session| {
        // One that has expired stays for a while: this clock may be wrong.
        session.holds(user, forget_before.unwrap_or(Timestamp::MIN))
            && Some(session.secret_digest) != replaced_digest
    });
    let mut sessions: Vec<Session> = living.cloned().collect();
    sessions.push(Session::new(user, &text, now, expires_at));
    sessions.drain(..sessions.len().saturating_sub(SESSIONS_PER_USER_MAX));
    let expected = stored.map_or(Expected::Absent, |stored| Expected::At(stored.serial));
    let key = session_key(&user.name);
    let mut batch = Batch::new().put(key, expected, write_sessions(&sessions), Vec::new());
    let others = replaced.filter(|replaced| *replaced.user() != user.name);
    let others = others.and_then(|it| close_session(snapshot, it.user(), &it.secret_digest()));
    batch.writes.extend(others.into_iter().flat_map(|batch| batch.writes));
    (text, batch)
}

/// Ends a session of that user; `None` if it does not exist.
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

/// Ends all sessions of that user; `None` if there are none.
pub fn close_sessions(snapshot: &Snapshot, name: &UserName) -> Option<Batch> {
    let stored = snapshot.sessions_of(name)?;
    Some(Batch::new().delete(session_key(name), Expected::At(stored.serial)))
}

/// Makes the login secret of 32 random bytes; `None` if it exists. If several processes start at once, the store lets one of
/// them succeed.
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
mod tests;
