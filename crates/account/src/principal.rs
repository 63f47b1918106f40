//! [`Principal`]: who a request comes from.

use std::sync::Arc;

use crate::{GroupName, Scope, Scopes, TokenId, User, UserName};

/// Who a request comes from, for as long as it lasts. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Principal {
    /// Somebody who did not say, or whose credentials did not hold.
    #[default]
    Anonymous,
    /// A user who proved it.
    User(Identity),
}

/// A user who proved it, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who, as of the snapshot that was asked.
    pub user: Arc<User>,
    /// What was shown.
    pub means: Means,
    /// What that may be used for: [`Scopes::ALL`] unless a token says less.
    pub scopes: Scopes,
}

/// What somebody showed to prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// Their password.
    Password,
    /// What they got for their password a while ago.
    Login,
    /// A token.
    Token(TokenId),
    /// Access to the machine: the command line.
    Machine,
}

impl Principal {
    /// `user` on their own behalf, with nothing to limit them: for the command line, and for tests.
    pub fn on_the_machine(user: Arc<User>) -> Principal {
        Principal::User(Identity { user, means: Means::Machine, scopes: Scopes::ALL })
    }

    /// The identity, unless anonymous.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Principal::Anonymous => None,
            Principal::User(identity) => Some(identity),
        }
    }

    /// The user's name, unless anonymous.
    pub fn user_name(&self) -> Option<&UserName> {
        self.identity().map(|identity| &identity.user.name)
    }

    /// The user's groups, sorted; none for anonymous.
    pub fn groups(&self) -> impl Iterator<Item = &GroupName> {
        self.identity().into_iter().flat_map(|identity| &identity.user.groups)
    }

    /// Whether this is a user whose credentials may be used for `scope`. Says nothing about rights.
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.identity().is_some_and(|identity| identity.scopes.admit(scope))
    }

    /// Whether this is an administrator whose credentials may be used for `scope`.
    pub fn is_administrator(&self, scope: Scope) -> bool {
        self.has_scope(scope) && self.identity().is_some_and(|it| it.user.is_administrator())
    }

    /// Whether this is `owner` or an administrator, with credentials that may be used for `scope`: who
    /// may change what belongs to `owner`.
    pub fn acts_for(&self, owner: &UserName, scope: Scope) -> bool {
        self.has_scope(scope)
            && self.identity().is_some_and(|identity| {
                identity.user.name == *owner || identity.user.is_administrator()
            })
    }
}
