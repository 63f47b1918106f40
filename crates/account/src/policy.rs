//! [`UserPolicy`]: who may make, change and delete users, groups and tokens.
//!
//! Users change their own profile, password and tokens; administrators change those of all users, and the groups. Two settings
//! of devpi change that: everybody may register, and only named users may modify users at all. An allowed change is then made
//! by [`crate::change`], which checks no rights.

use crate::{Acl, Object, Principal, Scope, Scopes, UserName};

/// Who may make, change and delete users. By default, administrators make users, and users change themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPolicy {
    /// Whether anybody may make a user, as with devpi.
    pub strangers_create_users: bool,
    /// devpi's `--restrict-modify`: if given, only these, and administrators, make, change and delete users; users still change
    /// their own password and tokens.
    pub modifiers: Option<Acl>,
}

/// A forbidden action; the texts are devpi's if it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// Make a user.
    #[error("no permission to create user {0}")]
    CreateUser(UserName),
    /// Change a user's profile.
    #[error("no permission to modify user {0}")]
    ModifyUser(UserName),
    /// Change a user's password.
    #[error("no permission to change password for user {0}")]
    ChangePassword(UserName),
    /// Delete a user.
    #[error("no permission to delete user {0}")]
    DeleteUser(UserName),
    /// Change a user's groups, or disable them.
    #[error("no permission to change groups or state of user {0}: only administrators may")]
    Administer(UserName),
    /// List or revoke a user's tokens.
    #[error("no permission to manage tokens of user {0}")]
    ManageTokens(UserName),
    /// Make a token for more than one's own credentials are for.
    #[error("no permission to create a token for {asked} with credentials for {own}")]
    WiderToken {
        /// The requested scopes.
        asked: Scopes,
        /// The scopes of the credentials.
        own: Scopes,
    },
}

impl UserPolicy {
    /// Whether `by` may make a user with that name. No registration can take `root`.
    ///
    /// # Errors
    /// [`Forbidden::CreateUser`].
    pub fn create_user(&self, by: &Principal, name: &UserName) -> Result<(), Forbidden> {
        let may = match &self.modifiers {
            _ if name.is_root() => by.is_administrator(Scope::UserAdmin, Object::Server),
            Some(modifiers) => modifiers.admits(by, Scope::UserAdmin, Object::Server),
            None => {
                self.strangers_create_users || by.is_administrator(Scope::UserAdmin, Object::Server)
            }
        };
        may.then_some(()).ok_or_else(|| Forbidden::CreateUser(name.clone()))
    }

    /// Whether `by` may change the profile of that user.
    ///
    /// # Errors
    /// [`Forbidden::ModifyUser`].
    pub fn modify_user(&self, by: &Principal, name: &UserName) -> Result<(), Forbidden> {
        self.modifies(by, name).then_some(()).ok_or_else(|| Forbidden::ModifyUser(name.clone()))
    }

    /// Whether `by` may set the password of that user. If only some may modify users, these may not set an administrator's.
    ///
    /// # Errors
    /// [`Forbidden::ChangePassword`].
    pub fn change_password(&self, by: &Principal, user: &crate::User) -> Result<(), Forbidden> {
        let is_own = by.acts_for(&user.name, Scope::UserAdmin, Object::Server);
        let may = is_own || (!user.is_administrator() && self.modifies(by, &user.name));
        may.then_some(()).ok_or_else(|| Forbidden::ChangePassword(user.name.clone()))
    }

    /// Whether `by` may delete that user.
    ///
    /// # Errors
    /// [`Forbidden::DeleteUser`].
    pub fn delete_user(&self, by: &Principal, name: &UserName) -> Result<(), Forbidden> {
        self.modifies(by, name).then_some(()).ok_or_else(|| Forbidden::DeleteUser(name.clone()))
    }

    /// Whether `by` may change the groups of that user, and disable and enable them.
    ///
    /// # Errors
    /// [`Forbidden::Administer`].
    pub fn administer(&self, by: &Principal, name: &UserName) -> Result<(), Forbidden> {
        let may = by.is_administrator(Scope::UserAdmin, Object::Server);
        may.then_some(()).ok_or_else(|| Forbidden::Administer(name.clone()))
    }

    /// Whether `by` may list and revoke the tokens of that user.
    ///
    /// # Errors
    /// [`Forbidden::ManageTokens`].
    pub fn manage_tokens(&self, by: &Principal, owner: &UserName) -> Result<(), Forbidden> {
        let may = by.acts_for(owner, Scope::UserAdmin, Object::Server);
        may.then_some(()).ok_or_else(|| Forbidden::ManageTokens(owner.clone()))
    }

    /// Whether `by` may make a token of that user for `scopes`: no token makes one with more scopes.
    ///
    /// # Errors
    /// [`Forbidden::ManageTokens`], [`Forbidden::WiderToken`].
    pub fn create_token(
        &self,
        by: &Principal,
        owner: &UserName,
        scopes: Scopes,
    ) -> Result<(), Forbidden> {
        self.manage_tokens(by, owner)?;
        // A limited token has been refused already, so limits need no comparison.
        let own = by.identity().map_or(Scopes::NONE, |identity| identity.scopes);
        own.cover(scopes).then_some(()).ok_or(Forbidden::WiderToken { asked: scopes, own })
    }

    fn modifies(&self, by: &Principal, name: &UserName) -> bool {
        match &self.modifiers {
            Some(modifiers) => modifiers.admits(by, Scope::UserAdmin, Object::Server),
            None => by.acts_for(name, Scope::UserAdmin, Object::Server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{anonymous, name, user, with_password, with_token};

    fn policies() -> [UserPolicy; 3] {
        let devpi = UserPolicy { strangers_create_users: true, modifiers: None };
        let modifiers = Some(":ops".parse().expect("a list"));
        let restricted = UserPolicy { strangers_create_users: true, modifiers };
        [UserPolicy::default(), devpi, restricted]
    }

    /// Whether `may` says yes under each of the policies: default, devpi's, restricted to `:ops`.
    #[track_caller]
    fn check(may: impl Fn(&UserPolicy) -> Result<(), Forbidden>, outcome: [bool; 3]) {
        assert_eq!(policies().map(|policy| may(&policy).is_ok()), outcome);
    }

    #[test]
    fn who_makes_users() {
        let check = |by: &Principal, outcome| check(|it| it.create_user(by, &name("new")), outcome);
        check(&anonymous(), [false, true, false]);
        check(&with_password("alice", &[]), [false, true, false]);
        check(&with_password("olga", &["ops"]), [false, true, true]);
        check(&with_password("root", &[]), [true, true, true]);
        check(&with_password("carol", &["admin"]), [true, true, true]);
        check(&with_token("root", &[], "python:admin"), [false, true, false]);
        check(&with_token("root", &[], "user:admin"), [true, true, true]);
    }

    #[test]
    fn nobody_becomes_root_by_coming_first() {
        let check = |by: &Principal, outcome| {
            check(|it| it.create_user(by, &UserName::root()), outcome);
        };
        check(&anonymous(), [false; 3]);
        check(&with_password("olga", &["ops"]), [false; 3]);
        check(&with_password("carol", &["admin"]), [true; 3]);
    }

    #[test]
    fn who_changes_and_deletes_users() {
        let check = |by: &Principal, outcome| {
            check(|it| it.modify_user(by, &name("alice")), outcome);
            check(|it| it.delete_user(by, &name("alice")), outcome);
        };
        check(&anonymous(), [false, false, false]);
        check(&with_password("alice", &[]), [true, true, false]);
        check(&with_password("bob", &[]), [false, false, false]);
        check(&with_password("olga", &["ops"]), [false, false, true]);
        check(&with_password("root", &[]), [true, true, true]);
        check(&with_token("alice", &[], "python:admin"), [false, false, false]);
    }

    #[test]
    fn who_sets_passwords() {
        let set = |by: &Principal, whose: &crate::User, outcome| {
            check(|it| it.change_password(by, whose), outcome);
        };
        let alice = user("alice", &[]);
        set(&with_password("alice", &[]), &alice, [true, true, true]);
        set(&with_token("alice", &[], "article:write"), &alice, [false, false, false]);
        set(&with_password("bob", &[]), &alice, [false, false, false]);
        set(&with_password("olga", &["ops"]), &alice, [false, false, true]);
        set(&with_password("olga", &["ops"]), &user("root", &[]), [false, false, false]);
        set(&with_password("olga", &["ops"]), &user("carol", &["admin"]), [false, false, false]);
        set(&with_password("carol", &["admin"]), &user("root", &[]), [true, true, true]);
    }

    #[test]
    fn only_administrators_change_groups() {
        let check = |by: &Principal, outcome| {
            check(|it| it.administer(by, &name("alice")), outcome);
        };
        check(&with_password("alice", &[]), [false; 3]);
        check(&with_password("olga", &["ops"]), [false; 3]);
        check(&with_password("root", &[]), [true; 3]);
    }

    #[test]
    fn no_token_makes_a_wider_one() {
        let check = |by: &Principal, scopes: &str, outcome| {
            let scopes = scopes.parse().expect("scopes");
            check(|it| it.create_token(by, &name("alice"), scopes), [outcome; 3]);
        };
        check(&with_password("alice", &[]), "*", true);
        check(&with_password("root", &[]), "*", true);
        check(&with_password("bob", &[]), "python:read", false);
        check(&with_token("alice", &[], "python:upload"), "python:read", false);
        check(&with_token("alice", &[], "user:admin,python:upload"), "python:read", true);
        check(&with_token("alice", &[], "user:admin,python:upload"), "python:admin", false);
        check(&with_token("alice", &[], "user:admin"), "*", false);
    }
}
