//! [`User`]: a person or program with a name.

use std::collections::BTreeSet;

use jiff::Timestamp;
use record::Serial;

use crate::{GroupName, PasswordHash, UserName};

/// A person or program with a name. The fields of the profile are devpi's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: UserName,
    /// The hash of the password; `None` for users without a password, who use tokens.
    pub password_hash: Option<PasswordHash>,
    /// The groups that they are in.
    pub groups: BTreeSet<GroupName>,
    /// The e-mail address; not checked.
    pub email: Option<String>,
    /// A short text of their own.
    pub title: Option<String>,
    /// A longer text of their own.
    pub description: Option<String>,
    /// Whatever their tools keep here; never empty JSON (null, false, 0, `""`, `[]`, `{}`).
    pub custom_data: Option<serde_json::Value>,
    /// When the user was made, as precise as the clock. Credentials are tied to it, so that those of a deleted user are not
    /// valid for the next one with that name; shown in whole seconds.
    pub created_at: Timestamp,
    /// When the user was last changed, if ever.
    pub modified_at: Option<Timestamp>,
    /// Whether all their credentials are refused for now.
    pub is_disabled: bool,
    /// The commit that wrote this; [`Serial::ZERO`] before it is stored.
    pub serial: Serial,
}

impl User {
    /// A user with nothing but a name.
    pub fn new(name: UserName, created_at: Timestamp) -> User {
        User {
            name,
            password_hash: None,
            groups: BTreeSet::new(),
            email: None,
            title: None,
            description: None,
            custom_data: None,
            created_at,
            modified_at: None,
            is_disabled: false,
            serial: Serial::ZERO,
        }
    }

    /// Whether they may do everything: `root`, and the members of the group `admin`.
    pub fn is_administrator(&self) -> bool {
        self.name.is_root() || self.groups.contains(GroupName::ADMIN)
    }
}
