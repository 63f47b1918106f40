//! [`GroupMap`]: groups of a directory or of a proxy, and the groups here that they mean.
//!
//! Each line is `GROUP=HERE`; `*=PREFIX*` stands for all groups that no other line names. Groups here that some line can give
//! belong to the outside: a log-in sets them, and takes those away that the user no longer has there. All others are not touched.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::GroupName;

/// Which groups outside mean which groups here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMap(Vec<GroupLine>);

/// A line of a [`GroupMap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupLine {
    /// This group outside is that group here.
    One(String, GroupName),
    /// All others are groups here, with this before their names.
    Others(String),
}

/// Text that is no line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not GROUP=HERE, *=PREFIX* or *=*, with names of groups as they can be here")]
pub struct GroupLineError(String);

impl GroupMap {
    /// The map of these lines.
    pub fn new(lines: impl IntoIterator<Item = GroupLine>) -> GroupMap {
        GroupMap(lines.into_iter().collect())
    }

    /// The groups here that these groups outside mean. Names that no group here can have are left out.
    pub fn groups<'name>(
        &self,
        outside: impl IntoIterator<Item = &'name str>,
    ) -> BTreeSet<GroupName> {
        let named = outside.into_iter().map(str::trim).filter(|name| !name.is_empty());
        named.flat_map(|name| self.of(name)).collect()
    }

    fn of(&self, outside: &str) -> Vec<GroupName> {
        let named = self.0.iter().filter_map(|line| match line {
            GroupLine::One(name, here) => is_equal(name, outside).then(|| here.clone()),
            GroupLine::Others(_) => None,
        });
        let named: Vec<GroupName> = named.collect();
        if !named.is_empty() {
            return named;
        }
        let others = self.0.iter().filter_map(|line| match line {
            GroupLine::One(..) => None,
            GroupLine::Others(prefix) => {
                // What a line names alone stays with that line, and nobody becomes an administrator without one.
                let here: GroupName = format!("{prefix}{outside}").parse().ok()?;
                (here != GroupName::admin() && !self.names(&here)).then_some(here)
            }
        });
        others.collect()
    }

    fn names(&self, here: &GroupName) -> bool {
        self.0.iter().any(|line| matches!(line, GroupLine::One(_, it) if it == here))
    }

    /// Whether this group here is set by log-ins.
    pub fn owns(&self, here: &GroupName) -> bool {
        let by_prefix = |line: &GroupLine| match line {
            GroupLine::Others(prefix) => here.as_str().starts_with(prefix.as_str()),
            GroupLine::One(..) => false,
        };
        self.names(here) || (*here != GroupName::admin() && self.0.iter().any(by_prefix))
    }
}

/// Whether two names are of one group outside: directories do not distinguish capitals.
fn is_equal(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

impl FromStr for GroupLine {
    type Err = GroupLineError;

    fn from_str(text: &str) -> Result<GroupLine, GroupLineError> {
        let error = || GroupLineError(record::excerpt(text, 200).into());
        let (outside, here) = text.rsplit_once('=').ok_or_else(error)?;
        let (outside, here) = (outside.trim(), here.trim());
        if outside == "*" {
            let prefix = here.strip_suffix('*').ok_or_else(error)?;
            // It has to be the beginning of a name.
            format!("{prefix}x").parse::<GroupName>().map_err(|_| error())?;
            return Ok(GroupLine::Others(prefix.to_owned()));
        }
        if outside.is_empty() {
            return Err(error());
        }
        Ok(GroupLine::One(outside.to_owned(), here.parse().map_err(|_| error())?))
    }
}

impl fmt::Display for GroupLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupLine::One(outside, here) => write!(formatter, "{outside}={here}"),
            GroupLine::Others(prefix) => write!(formatter, "*={prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &str) -> GroupMap {
        GroupMap::new(lines.split(", ").map(|line| line.parse().expect(line)))
    }

    #[track_caller]
    fn check(lines: &str, outside: &[&str], here: &str) {
        let groups = map(lines).groups(outside.iter().copied());
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        assert_eq!(groups.join(" "), here, "{lines}");
    }

    #[test]
    fn groups_are_mapped() {
        let outside = ["Developers", "Domain Users", "ops", "admin"];
        check("developers=team", &outside, "team");
        check("developers=team, Domain Users=team, ops=admin", &outside, "admin team");
        check("developers=team, *=ldap-*", &outside, "ldap-admin ldap-ops team");
        check("*=*", &outside, "Developers ops");
        check("ops=a, ops=b, *=*", &outside, "Developers a b");
        check("CN=ops,DC=x=ops", &["cn=OPS,dc=x"], "ops");
        check("*=sso-*", &["", " ", "a b", " a"], "sso-a");
    }

    /// `*=*` gives no group that a line names for another one, and never `admin`.
    #[test]
    fn a_group_of_a_line_comes_from_that_line_alone() {
        check("chiefs=admin, leads=team, *=*", &["admin", "team", "other"], "other");
    }

    #[test]
    fn groups_that_log_ins_set() {
        let owns = |lines: &str, here: &str| map(lines).owns(&here.parse().expect(here));
        assert!(owns("a=team", "team") && !owns("a=team", "a") && !owns("a=team", "admin"));
        assert!(owns("*=ldap-*", "ldap-x") && !owns("*=ldap-*", "team"));
        assert!(owns("*=*", "team") && !owns("*=*", "admin") && owns("a=admin, *=*", "admin"));
        assert!(!GroupMap::default().owns(&"team".parse().expect("a name")));
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        for text in ["a=b", "*=*", "*=ldap-*", "CN=ops,DC=x=ops"] {
            assert_eq!(text.parse::<GroupLine>().expect(text).to_string(), text);
        }
        for bad in ["", "a", "=b", "a=", "a=b c", "*=team", "*=a b*", "a=*"] {
            assert!(bad.parse::<GroupLine>().is_err(), "{bad}");
        }
    }
}
