//! [`LinkedIdentity`]: who a user is at an identity provider; and [`log_in_linked`]: a log-in with such an identity.
//!
//! A provider's issuer and its subject, which it never gives twice, name an identity; no claim that people can change does. The
//! record of a link has the digest of both as its name, so that an identity belongs to one user, by every process. A link belongs
//! to one user, as a token does: the next user of that name does not inherit it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use record::{Batch, Digest, Expected, Serial};

use crate::change::opened_session;
use crate::record::{write_linked, write_user};
use crate::{GroupName, SessionText, Snapshot, User, UserName, is_reserved, linked_key, user_key};

/// Identities that one user is linked with at most.
pub(crate) const LINKED_PER_USER_MAX: usize = 16;

/// A link, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedIdentity {
    /// The issuer, as its tokens name it.
    pub issuer: String,
    /// Who the user is there (`sub`).
    pub subject: String,
    /// The user here.
    pub user: UserName,
    /// When that user was made.
    pub user_created_at: Timestamp,
    /// When the two were linked.
    pub linked_at: Timestamp,
    /// The commit that wrote this; [`Serial::ZERO`] before it is stored.
    pub serial: Serial,
}

/// What a provider says of somebody who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedIdentity {
    /// The issuer.
    pub issuer: String,
    /// Who it is there.
    pub subject: String,
    /// The name that a new user would get, or why the provider gives none that we can use.
    pub name: Result<UserName, String>,
    /// The address, if the provider has verified it.
    pub email: Option<String>,
    /// The groups that the provider puts its users into.
    pub groups: BTreeSet<GroupName>,
    /// The groups that it takes its users out of. Others stay as they are.
    pub not_groups: BTreeSet<GroupName>,
}

/// Why somebody whom a provider knows is not logged in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkedLogInError {
    /// No user is linked with the identity, and none is to be made.
    #[error(
        "no user of this server is linked with your account at the provider, and none is made by logging in"
    )]
    NotLinked,
    /// The provider gives no name that a user can have.
    #[error("no user can be made for your account at the provider: {0}")]
    NoName(String),
    /// Another user has the name.
    #[error(
        "your name at the provider is `{0}`, and this server has a user of that name who is not linked with your account there; if \
         that is you, log in with your password and link the two on the page of your account"
    )]
    NameTaken(UserName),
    /// The server answers under that name itself.
    #[error("your name at the provider is `{0}`, which no user of this server can have")]
    Reserved(UserName),
    /// The user is disabled.
    #[error("user '{0}' is disabled")]
    Disabled(UserName),
}

/// Why an identity is not linked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It is another user's.
    #[error("this account at the provider is linked with another user of this server")]
    Taken,
    /// The user has many.
    #[error(
        "user '{0}' is linked with {LINKED_PER_USER_MAX} accounts at providers, and may not have more: remove one"
    )]
    TooMany(UserName),
}

/// Why an identity stays linked: without it nobody could log in as the user any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "you have no password here, so this account is your only way to log in: link another one first, or ask whoever runs this \
     server for a password"
)]
pub struct LastLink;

/// The name of the record of this identity.
pub fn identity_digest(issuer: &str, subject: &str) -> Digest {
    // An issuer is a URL and has no zero byte.
    Digest::of(format!("{issuer}\0{subject}").as_bytes())
}

impl LinkedIdentity {
    /// The name of its record.
    pub fn digest(&self) -> Digest {
        identity_digest(&self.issuer, &self.subject)
    }

    /// Whether it is this user's, and not that of an earlier one of that name.
    pub fn belongs_to(&self, user: &User) -> bool {
        self.user == user.name && self.user_created_at == user.created_at
    }

    fn new(proved: &ProvedIdentity, user: &User, now: Timestamp) -> LinkedIdentity {
        LinkedIdentity {
            issuer: proved.issuer.clone(),
            subject: proved.subject.clone(),
            user: user.name.clone(),
            user_created_at: user.created_at,
            linked_at: now,
            serial: Serial::ZERO,
        }
    }
}

impl ProvedIdentity {
    /// The name of its record.
    pub fn digest(&self) -> Digest {
        identity_digest(&self.issuer, &self.subject)
    }
}

/// What a log-in with a linked identity gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedLogIn {
    /// The session of the browser.
    pub session: SessionText,
    /// Whether the user was made.
    pub is_new: bool,
}

/// Logs in the user who is linked with this identity: the session, and the batch. If there is none and `makes_users` is set, makes
/// a user and links it. Groups that the provider decides about are set to what it says; the others stay. `secret` and what follows:
/// as for [`open_session`](crate::change::open_session).
///
/// # Errors
/// [`LinkedLogInError`].
pub fn log_in_linked(
    snapshot: &Snapshot,
    (proved, makes_users): (&ProvedIdentity, bool),
    secret: [u8; 32],
    replaced: Option<&SessionText>,
    (now, forget_before): (Timestamp, Option<Timestamp>),
    lifetime: Duration,
) -> Result<(LinkedLogIn, Batch), LinkedLogInError> {
    let digest = proved.digest();
    let stored = snapshot.linked(&digest);
    let expected = stored.map_or(Expected::Absent, |stored| Expected::At(stored.serial));
    let user = stored.and_then(|it| snapshot.user(&it.user).filter(|user| it.belongs_to(user)));
    let in_groups = |user: &User| {
        let kept = user.groups.difference(&proved.not_groups);
        kept.chain(&proved.groups).cloned().collect()
    };
    let opened = |user: &User| {
        opened_session(snapshot, user, secret, replaced, now, forget_before, lifetime)
    };
    let key = |user: &User| user_key(&user.name);
    if let Some(before) = user {
        if before.is_disabled {
            return Err(LinkedLogInError::Disabled(before.name.clone()));
        }
        let mut user = User { groups: in_groups(before), ..User::clone(before) };
        let (session, batch) = opened(before);
        let batch = batch.check(linked_key(&digest), expected);
        let at = Expected::At(before.serial);
        let batch = match user == **before {
            true => batch.check(key(before), at),
            false => {
                user.modified_at = Some(now);
                batch.put(key(before), at, write_user(&user), Vec::new())
            }
        };
        return Ok((LinkedLogIn { session, is_new: false }, batch));
    }
    if !makes_users {
        return Err(LinkedLogInError::NotLinked);
    }
    let name = proved.name.clone().map_err(LinkedLogInError::NoName)?;
    if snapshot.user(&name).is_some() {
        return Err(LinkedLogInError::NameTaken(name));
    }
    if is_reserved(&name) || name.is_root() {
        return Err(LinkedLogInError::Reserved(name));
    }
    let mut user = User { email: proved.email.clone(), ..User::new(name, now) };
    user.groups = in_groups(&user);
    let (session, batch) = opened(&user);
    let link = write_linked(&LinkedIdentity::new(proved, &user, now));
    let batch = batch
        .put(key(&user), Expected::Absent, write_user(&user), Vec::new())
        // A link of a user who is gone is replaced.
        .put(linked_key(&digest), expected, link, Vec::new());
    Ok((LinkedLogIn { session, is_new: true }, batch))
}

/// Links an identity with this user; `None` if it is linked already.
///
/// # Errors
/// [`LinkError`].
pub fn link(
    snapshot: &Snapshot,
    user: &User,
    proved: &ProvedIdentity,
    now: Timestamp,
) -> Result<Option<Batch>, LinkError> {
    let digest = proved.digest();
    let stored = snapshot.linked(&digest);
    let owner = stored.and_then(|it| snapshot.user(&it.user).filter(|user| it.belongs_to(user)));
    match owner {
        Some(owner) if owner.name == user.name => return Ok(None),
        Some(_) => return Err(LinkError::Taken),
        None => {}
    }
    let count = snapshot.linked_of(&user.name).filter(|it| it.belongs_to(user)).count();
    if count >= LINKED_PER_USER_MAX {
        return Err(LinkError::TooMany(user.name.clone()));
    }
    let expected = stored.map_or(Expected::Absent, |stored| Expected::At(stored.serial));
    let body = write_linked(&LinkedIdentity::new(proved, user, now));
    let batch = Batch::new()
        .put(linked_key(&digest), expected, body, Vec::new())
        .check(user_key(&user.name), Expected::At(user.serial));
    Ok(Some(batch))
}

/// Unlinks an identity from `user`; `None` if the two are not linked. Sessions that were opened with it stay open.
///
/// # Errors
/// [`LastLink`].
pub fn unlink(
    snapshot: &Snapshot,
    user: &User,
    digest: &Digest,
) -> Result<Option<Batch>, LastLink> {
    let Some(stored) = snapshot.linked(digest).filter(|it| it.user == user.name) else {
        return Ok(None);
    };
    let mut others = snapshot.linked_of(&user.name).filter(|it| it.digest() != *digest);
    if user.password_hash.is_none() && !others.any(|it| it.belongs_to(user)) {
        return Err(LastLink);
    }
    let batch = Batch::new()
        .delete(linked_key(digest), Expected::At(stored.serial))
        .check(user_key(&user.name), Expected::At(user.serial));
    Ok(Some(batch))
}

/// The stored links, by their digest and by their user.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinkedIdentities {
    by_digest: imbl::HashMap<Digest, Arc<LinkedIdentity>>,
    by_user: imbl::OrdSet<(UserName, Digest)>,
}

impl LinkedIdentities {
    pub(crate) fn insert(&mut self, linked: LinkedIdentity) {
        let digest = linked.digest();
        self.remove(&digest);
        self.by_user.insert((linked.user.clone(), digest));
        self.by_digest.insert(digest, Arc::new(linked));
    }

    pub(crate) fn remove(&mut self, digest: &Digest) {
        if let Some(linked) = self.by_digest.remove(digest) {
            self.by_user.remove(&(linked.user.clone(), *digest));
        }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<&Arc<LinkedIdentity>> {
        self.by_digest.get(digest)
    }

    pub(crate) fn of_user(&self, user: &UserName) -> impl Iterator<Item = &Arc<LinkedIdentity>> {
        let (first, last) = (Digest::from_bytes([0; 32]), Digest::from_bytes([255; 32]));
        let range = self.by_user.range((user.clone(), first)..=(user.clone(), last));
        range.filter_map(|(_, digest)| self.by_digest.get(digest))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<LinkedIdentity>> {
        self.by_digest.values()
    }
}

#[cfg(test)]
mod tests;
