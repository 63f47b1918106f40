//! [`Acl`]: a list of those who have a right, in devpi's notation.
//!
//! A list holds names of users, `:name` for the members of a group, `:ANONYMOUS:` for everybody and `:AUTHENTICATED:` for every
//! user. Administrators are on every list. Credentials that may not be used for the purpose count as none.

use std::fmt;
use std::str::FromStr;

use crate::{GroupName, NameError, Object, Principal, Scope, UserName};

/// Those who may do something; in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// One line of an [`Acl`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclEntry {
    /// `:ANONYMOUS:`: everybody.
    Everybody,
    /// `:AUTHENTICATED:`: every user.
    EveryUser,
    /// `:name`: the members of a group.
    Group(GroupName),
    /// `name`: one user, whether it exists or not.
    User(UserName),
}

/// Text that is no entry of an [`Acl`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{entry}` cannot be in an access list: a user, `:group`, `:AUTHENTICATED:` or `:ANONYMOUS:` was expected"
)]
pub struct AclError {
    /// The text.
    pub entry: String,
    /// What is wrong with the name.
    #[source]
    pub source: NameError,
}

impl Acl {
    /// The list of administrators alone.
    pub fn nobody() -> Acl {
        Acl::default()
    }

    /// The list of everybody: `:ANONYMOUS:`.
    pub fn everybody() -> Acl {
        Acl { entries: vec![AclEntry::Everybody] }
    }

    /// The list of one user.
    pub fn user(name: UserName) -> Acl {
        Acl { entries: vec![AclEntry::User(name)] }
    }

    /// Reads entries from texts, as in a JSON list.
    ///
    /// # Errors
    /// [`AclError`] for the first text that is not an entry.
    pub fn from_entries<'text>(
        entries: impl IntoIterator<Item = &'text str>,
    ) -> Result<Acl, AclError> {
        let entries = entries.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Acl { entries })
    }

    /// The entries, in the order in which they were given.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Whether the list itself names `principal`, administrator or not, whatever their credentials are for.
    fn names(&self, principal: &Principal) -> bool {
        self.entries.iter().any(|entry| match (entry, principal.identity()) {
            (AclEntry::Everybody, _) => true,
            (_, None) => false,
            (AclEntry::EveryUser, Some(_)) => true,
            (AclEntry::User(name), Some(identity)) => identity.user.name == *name,
            (AclEntry::Group(name), Some(identity)) => identity.user.groups.contains(name),
        })
    }

    /// Whether `principal` may do to `object` what the list is for, which needs `scope` of a token: those on the list, and
    /// administrators. If everybody may, so may a token without the scope, or with other limits.
    pub fn admits(&self, principal: &Principal, scope: Scope, object: Object<'_>) -> bool {
        self.entries.contains(&AclEntry::Everybody)
            || principal.is_administrator(scope, object)
            || (principal.may_use(scope, object) && self.names(principal))
    }
}

impl FromIterator<AclEntry> for Acl {
    fn from_iter<I: IntoIterator<Item = AclEntry>>(entries: I) -> Acl {
        Acl { entries: entries.into_iter().collect() }
    }
}

impl FromStr for AclEntry {
    type Err = AclError;

    /// Reads one entry; the two specials in any case.
    fn from_str(text: &str) -> Result<AclEntry, AclError> {
        if text.eq_ignore_ascii_case(":ANONYMOUS:") {
            return Ok(AclEntry::Everybody);
        }
        if text.eq_ignore_ascii_case(":AUTHENTICATED:") {
            return Ok(AclEntry::EveryUser);
        }
        let entry = match text.strip_prefix(':') {
            Some(group) => group.parse().map(AclEntry::Group),
            None => text.parse().map(AclEntry::User),
        };
        let shown = || record::escaped_excerpt(text, 80);
        entry.map_err(|source| AclError { entry: shown(), source })
    }
}

impl FromStr for Acl {
    type Err = AclError;

    /// Reads entries with commas between them; blanks around them and empty ones do not count.
    fn from_str(text: &str) -> Result<Acl, AclError> {
        Acl::from_entries(text.split(',').map(str::trim).filter(|entry| !entry.is_empty()))
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AclEntry::Everybody => formatter.write_str(":ANONYMOUS:"),
            AclEntry::EveryUser => formatter.write_str(":AUTHENTICATED:"),
            AclEntry::Group(name) => write!(formatter, ":{name}"),
            AclEntry::User(name) => name.fmt(formatter),
        }
    }
}

impl fmt::Display for Acl {
    /// Writes the entries with commas between.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, entry) in self.entries.iter().enumerate() {
            let separator = if position == 0 { "" } else { "," };
            write!(formatter, "{separator}{entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{anonymous, with_password, with_token};

    #[track_caller]
    fn reads(text: &str, written: &str) {
        assert_eq!(text.parse::<Acl>().expect("a list").to_string(), written);
    }

    #[test]
    fn a_list_is_written_as_it_was_read() {
        reads("", "");
        reads(" alice , :team,,:anonymous:", "alice,:team,:ANONYMOUS:");
        reads(":Authenticated:", ":AUTHENTICATED:");
        let entries = Acl::from_entries(["bob", ":ci"]).expect("a list");
        assert_eq!(entries.to_string(), "bob,:ci");
    }

    #[test]
    fn what_is_no_name_is_named_in_the_error() {
        let error = "alice,a b".parse::<Acl>().expect_err("no name");
        assert_eq!(error.entry, "a b");
        for bad in [":", "::", ":team:", "a/b"] {
            assert!(bad.parse::<Acl>().is_err(), "{bad}");
        }
    }

    /// Whether `list` admits, to upload: anonymous, alice of team, alice's token for reading, root.
    #[track_caller]
    fn check(list: &str, admitted: [bool; 4]) {
        let list: Acl = list.parse().expect("a list");
        let principals = [
            anonymous(),
            with_password("alice", &["team"]),
            with_token("alice", &["team"], "python:read"),
            with_password("root", &[]),
        ];
        let found = principals
            .map(|principal| list.admits(&principal, Scope::PythonUpload, Object::Server));
        assert_eq!(found, admitted, "{list}");
    }

    #[test]
    fn who_is_on_a_list() {
        check("", [false, false, false, true]);
        check("bob,:other", [false, false, false, true]);
        check("alice", [false, true, false, true]);
        check(":team", [false, true, false, true]);
        check(":authenticated:", [false, true, false, true]);
        check(":anonymous:", [true, true, true, true]);
    }

    #[test]
    fn administrators_are_on_every_list_as_far_as_their_token_goes() {
        let nobody = Acl::nobody();
        let admits =
            |principal: &Principal| nobody.admits(principal, Scope::PythonUpload, Object::Server);
        assert!(admits(&with_password("carol", &["admin"])));
        assert!(admits(&with_token("root", &[], "*")));
        assert!(admits(&with_token("root", &[], "python:admin")));
        assert!(!admits(&with_token("root", &[], "article:write")));
        assert!(!nobody.names(&with_password("root", &[])));
    }
}
