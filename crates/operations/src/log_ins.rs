//! Log-ins that somebody else has checked, a directory or a proxy: their users are made here, and get the groups that they have
//! there.

use std::collections::BTreeSet;
use std::sync::Arc;

use account::{Acl, AclEntry, GroupMap, GroupName, Snapshot, User, UserName, change};
use ldap::DirectoryUser;

use crate::{Basis, Decided, Name, Operation, Refusal, Rule, Rules};

/// Who identifies users besides this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// The directory of `[ldap]`.
    Directory,
    /// A trusted proxy, as `[proxy_login]` says.
    Proxy,
}

/// What the configuration says of users who are identified elsewhere.
#[derive(Clone, Debug, Default)]
pub struct ElsewhereRules {
    /// Users who are identified here alone.
    pub local_users: Acl,
    /// Groups that are set by log-ins.
    pub groups: GroupMap,
    /// Whether users are made at their first log-in.
    pub creates_users: bool,
    /// Whether users with a password here are identified there, too.
    pub admits_passwords: bool,
    /// Whether `root` is.
    pub admits_root: bool,
}

impl ElsewhereRules {
    /// Whether the user of this name may be identified elsewhere. Somebody who logs in at an identity provider and has no password
    /// is not the one whom a directory calls by that name.
    pub fn admit(&self, accounts: &Snapshot, name: &UserName) -> bool {
        let user = accounts.user(name);
        let is_of_directory =
            |user: &Arc<User>| user.password_hash.is_none() && !accounts.is_linked(user);
        let is_listed = |entry: &AclEntry| match entry {
            AclEntry::Everybody | AclEntry::EveryUser => true,
            AclEntry::User(listed) => listed == name,
            AclEntry::Group(group) => user.is_some_and(|user| user.groups.contains(group)),
        };
        (self.admits_root || !name.is_root())
            && (self.admits_passwords || user.is_none_or(is_of_directory))
            && !self.local_users.entries().iter().any(is_listed)
    }

    /// The groups of a user who has these there: those that are not set by log-ins stay.
    pub fn groups_of(&self, user: &User, given: &BTreeSet<GroupName>) -> BTreeSet<GroupName> {
        let kept = user.groups.iter().filter(|group| !self.groups.owns(group));
        kept.chain(given).cloned().collect()
    }
}

impl Rules {
    /// What the configuration says of users who are identified there; `None` if nobody is.
    pub fn elsewhere(&self, by: IdentitySource) -> Option<&ElsewhereRules> {
        match by {
            IdentitySource::Directory => self.directory.as_ref(),
            IdentitySource::Proxy => self.proxy.as_ref(),
        }
    }
}

/// A user who was identified elsewhere, and their groups here, if these come from there.
#[derive(Clone, Debug)]
pub struct ExternalUser {
    name: UserName,
    groups: Option<BTreeSet<GroupName>>,
    by: IdentitySource,
}

impl ExternalUser {
    /// A log-in that the directory has checked.
    pub fn by_directory(proof: &DirectoryUser) -> ExternalUser {
        let (name, groups) = (proof.name().clone(), proof.groups().cloned());
        ExternalUser { name, groups, by: IdentitySource::Directory }
    }

    /// A log-in that a trusted proxy has checked; `groups`: what its groups mean here, if it names any.
    pub fn by_proxy(name: UserName, groups: Option<BTreeSet<GroupName>>) -> ExternalUser {
        ExternalUser { name, groups, by: IdentitySource::Proxy }
    }
}

/// Notes that a user was identified elsewhere: makes the user if there is none, and sets those groups that come from there.
/// Nobody needs a right for it but that proof.
#[derive(Clone, Debug)]
pub struct NoteLogIn {
    /// The proof.
    pub user: ExternalUser,
}

impl Operation for NoteLogIn {
    const NAME: Name = Name::NoteLogIn;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let ExternalUser { name, groups, by } = &self.user;
        let accounts = &basis.stored.accounts;
        let user = accounts.user(name);
        let local = || Refusal::from(Rule::LocalUser(name.clone()));
        let rules = basis.rules.elsewhere(*by).ok_or_else(local)?;
        if !rules.admit(accounts, name) {
            return Err(local());
        }
        let Some(user) = user else {
            if !rules.creates_users {
                return Err(change::NoUser(name.clone()).into());
            }
            let groups = groups.clone().unwrap_or_default();
            let user = User { groups, ..User::new(name.clone(), basis.now) };
            return Ok(Decided::new(change::create_user(accounts, &user)?, ()));
        };
        // Nothing is written for users who are refused.
        let given = groups.as_ref().filter(|_| !user.is_disabled);
        let Some(given) = given else { return Ok(Decided::new(None, ())) };
        let groups = rules.groups_of(user, given);
        Ok(Decided::new(change::set_groups(accounts, name, groups, basis.now)?, ()))
    }
}

/// Refuses users who would give themselves a password here: with it, they could log in after the directory forgot them.
pub(crate) fn check_password_of(basis: &Basis, name: &UserName) -> Result<(), Refusal> {
    let Some(rules) = basis.rules.elsewhere(IdentitySource::Directory) else { return Ok(()) };
    let is_administrator =
        basis.principal().is_administrator(account::Scope::UserAdmin, account::Object::Server);
    let accounts = &basis.stored.accounts;
    if basis.sender().is_on_the_machine()
        || is_administrator
        || accounts.user(name).is_none()
        || !rules.admit(accounts, name)
    {
        return Ok(());
    }
    Err(Rule::PasswordElsewhere(name.clone()).into())
}
