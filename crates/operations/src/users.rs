//! Users: made, changed, deleted; their groups, and whether they may log in.

use std::collections::BTreeSet;

use account::change::{self, NoUser};
use account::{
    Forbidden, GroupName, Object, PasswordHash, Principal, ProfileEdit, Restriction, Scope, User,
    UserName, UserPolicy,
};
use pypi::change::stage;

use crate::audit_notes::entries_of_change;
use crate::log_ins::check_password_of;
use crate::{Basis, Decided, Denied, Name, Operation, Refusal, Right, Rule};

/// The refusal of a change of users or tokens, with its cause: what the token lacks, or who may.
pub fn forbidden(basis: &Basis, error: Forbidden) -> Refusal {
    let principal = basis.principal();
    let otherwise = who_may(&error, basis.rules.is_restricted());
    let (by, lack) = (principal.called(), lack(basis));
    Refusal::Denied(Box::new(Denied { right: Right::User(error), by, lack, otherwise }))
}

fn lack(basis: &Basis) -> Option<Restriction> {
    basis.principal().lack(Scope::UserAdmin, Object::Server)
}

/// Those who may, as a part of a sentence; `is_restricted`: `python.restrict_modify` is set.
fn who_may(error: &Forbidden, is_restricted: bool) -> String {
    let only_named =
        || "only whom `python.restrict_modify` names and administrators may".to_owned();
    match error {
        Forbidden::CreateUser(name) if is_restricted && !name.is_root() => only_named(),
        Forbidden::ModifyUser(_) | Forbidden::DeleteUser(_) if is_restricted => only_named(),
        Forbidden::ChangePassword(name) if is_restricted => format!(
            "only `{name}`, administrators and, unless `{name}` is one, whom `python.restrict_modify` names may"
        ),
        Forbidden::ModifyUser(name)
        | Forbidden::ChangePassword(name)
        | Forbidden::DeleteUser(name)
        | Forbidden::ManageTokens(name) => format!("only `{name}` and administrators may"),
        Forbidden::CreateUser(_) | Forbidden::Administer(_) | Forbidden::WiderToken { .. } => {
            "only administrators may".to_owned()
        }
    }
}

/// Asks the policy, unless the sender is the machine itself.
pub(crate) fn admit(
    basis: &Basis,
    may: impl FnOnce(&UserPolicy) -> Result<(), Forbidden>,
) -> Result<(), Refusal> {
    if basis.sender().is_on_the_machine() {
        return Ok(());
    }
    may(&basis.rules.users).map_err(|error| forbidden(basis, error))
}

/// Asks a policy that no setting loosens: administrators may, and users for themselves. Credentials that hold no longer are
/// refused.
pub(crate) fn admit_always(
    basis: &Basis,
    may: impl FnOnce(&UserPolicy, &Principal) -> Result<(), Forbidden>,
) -> Result<(), Refusal> {
    if basis.sender().is_on_the_machine() {
        return Ok(());
    }
    may(&UserPolicy::default(), basis.valid_principal()?).map_err(|error| forbidden(basis, error))
}

/// Makes a user. The outcome is the user.
#[derive(Clone, Debug)]
pub struct CreateUser {
    /// The name.
    pub name: UserName,
    /// The password; `None` for a user who uses tokens.
    pub password: Option<PasswordHash>,
    /// The groups that they are in.
    pub groups: BTreeSet<GroupName>,
    /// What the profile says from the beginning.
    pub profile: ProfileEdit,
}

impl CreateUser {
    /// A user with nothing but a name.
    pub fn named(name: UserName) -> CreateUser {
        let (groups, profile) = (BTreeSet::new(), ProfileEdit::default());
        CreateUser { name, password: None, groups, profile }
    }

    /// Refuses senders who may not make a user of this name.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    pub fn admit(basis: &Basis, name: &UserName) -> Result<(), Refusal> {
        admit(basis, |policy| policy.create_user(basis.principal(), name))
    }
}

impl Operation for CreateUser {
    const NAME: Name = Name::CreateUser;

    type Outcome = User;

    fn decide(&self, basis: &Basis) -> Result<Decided<User>, Refusal> {
        CreateUser::admit(basis, &self.name)?;
        let mut user = User {
            password_hash: self.password.clone(),
            groups: self.groups.clone(),
            ..User::new(self.name.clone(), basis.now)
        };
        self.profile.apply(&mut user);
        Ok(Decided::new(change::create_user(&basis.stored.accounts, &user)?, user))
    }
}

/// Changes the profile of a user, or sets the password.
#[derive(Clone, Debug)]
pub struct ChangeUser {
    /// The user.
    pub name: UserName,
    /// What changes in the profile.
    pub profile: ProfileEdit,
    /// The new password.
    pub password: Option<PasswordHash>,
    /// Whether nothing but the password is to be changed.
    pub is_password_only: bool,
}

impl ChangeUser {
    /// Refuses senders who may not make this change of that user, without saying whether the user exists. The password may not be
    /// hashed yet, so `sets_password` says whether there is one.
    ///
    /// # Errors
    /// [`Refusal::Denied`], [`NoUser`].
    pub fn admit(
        basis: &Basis,
        name: &UserName,
        sets_password: bool,
        is_password_only: bool,
    ) -> Result<(), Refusal> {
        let current = basis.stored.accounts.user(name);
        let principal = basis.principal();
        if sets_password {
            admit(basis, |policy| match current {
                Some(current) => policy.change_password(principal, current),
                None => policy
                    .modify_user(principal, name)
                    .map_err(|_| Forbidden::ChangePassword(name.clone())),
            })?;
        }
        if !is_password_only {
            admit(basis, |policy| policy.modify_user(principal, name))?;
        }
        Ok(current.map(drop).ok_or_else(|| NoUser(name.clone()))?)
    }

    /// Refuses senders who may change nothing of that user, before a body is read.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    pub fn admit_to_something(basis: &Basis, name: &UserName) -> Result<(), Refusal> {
        let (principal, user) = (basis.principal(), basis.stored.accounts.user(name));
        admit(basis, |policy| {
            let may_change_password =
                || user.is_some_and(|user| policy.change_password(principal, user).is_ok());
            policy
                .modify_user(principal, name)
                .or_else(|error| may_change_password().then_some(()).ok_or(error))
        })
    }
}

impl Operation for ChangeUser {
    const NAME: Name = Name::ChangeUser;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let ChangeUser { name, profile, password, is_password_only } = self;
        ChangeUser::admit(basis, name, password.is_some(), *is_password_only)?;
        if password.is_some() {
            check_password_of(basis, name)?;
        }
        let accounts = &basis.stored.accounts;
        let batch = change::modify_user(accounts, name, profile, password.clone(), basis.now)?;
        Ok(Decided::new(batch, ()))
    }
}

/// Sets the password of a user; `None` takes it away.
#[derive(Clone, Debug)]
pub struct SetPassword {
    /// The user.
    pub name: UserName,
    /// The new one.
    pub password: Option<PasswordHash>,
}

impl Operation for SetPassword {
    const NAME: Name = Name::SetPassword;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let accounts = &basis.stored.accounts;
        let user = accounts.user(&self.name).ok_or_else(|| NoUser(self.name.clone()))?;
        admit_always(basis, |policy, principal| policy.change_password(principal, user))?;
        if self.password.is_some() {
            check_password_of(basis, &self.name)?;
        }
        let batch = change::set_password(accounts, &self.name, self.password.clone(), basis.now)?;
        Ok(Decided::new(batch, ()))
    }
}

/// Sets the groups of a user.
#[derive(Clone, Debug)]
pub struct SetGroups {
    /// The user.
    pub name: UserName,
    /// All groups that the user has from then on.
    pub groups: BTreeSet<GroupName>,
}

impl Operation for SetGroups {
    const NAME: Name = Name::SetGroups;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        administer(basis, &self.name)?;
        let (accounts, groups) = (&basis.stored.accounts, self.groups.clone());
        Ok(Decided::new(change::set_groups(accounts, &self.name, groups, basis.now)?, ()))
    }
}

/// Disables a user, or enables one again.
#[derive(Clone, Debug)]
pub struct SetDisabled {
    /// The user.
    pub name: UserName,
    /// Whether no password, token or session of the user is taken from then on.
    pub is_disabled: bool,
}

impl Operation for SetDisabled {
    const NAME: Name = Name::SetDisabled;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        administer(basis, &self.name)?;
        if self.is_disabled && self.name.is_root() {
            return Err(Rule::RootStays.into());
        }
        let (accounts, is_disabled) = (&basis.stored.accounts, self.is_disabled);
        let batch = change::set_disabled(accounts, &self.name, is_disabled, basis.now)?;
        Ok(Decided::new(batch, ()))
    }
}

/// Lets administrators pass.
fn administer(basis: &Basis, name: &UserName) -> Result<(), Refusal> {
    admit_always(basis, |policy, principal| policy.administer(principal, name))
}

/// Deletes a user with their indexes.
#[derive(Clone, Debug)]
pub struct DeleteUser {
    /// The user.
    pub name: UserName,
    /// Whether indexes that are not volatile go, too.
    pub force: bool,
}

impl DeleteUser {
    /// Refuses senders who may not delete that user, without saying whether the user exists.
    ///
    /// # Errors
    /// [`Refusal::Denied`], [`NoUser`].
    pub fn admit(basis: &Basis, name: &UserName) -> Result<(), Refusal> {
        let is_there = basis.stored.accounts.user(name).is_some();
        let none = || Refusal::from(NoUser(name.clone()));
        if basis.rules.devpi_defaults && !is_there {
            return Err(none());
        }
        admit(basis, |policy| policy.delete_user(basis.principal(), name))?;
        if is_there { Ok(()) } else { Err(none()) }
    }
}

impl Operation for DeleteUser {
    const NAME: Name = Name::DeleteUser;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        DeleteUser::admit(basis, &self.name)?;
        let index = &basis.stored.index;
        let mut batch = change::delete_user(&basis.stored.accounts, &self.name)?;
        let stages = stage::delete_of_user(index, &self.name, self.force);
        let stages = stages.map_err(Rule::IndexOfUser)?;
        batch.writes.extend(stages.writes);
        batch.checks.extend(stages.checks);
        let noted = index.stages_of(self.name.as_str()).flat_map(|stage| {
            entries_of_change(basis, stage.name(), stage.config().policy.as_deref(), None)
        });
        let noted = noted.collect();
        Ok(Decided::new(batch, ()).noting(noted))
    }
}
