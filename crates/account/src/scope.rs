//! [`Scope`]: what a token may be used for.

use std::fmt;
use std::str::FromStr;

/// What a token may be used for. A scope gives nothing by itself: it lets the token use a right that its
/// user has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `article:read`: read articles where reading needs a right.
    ArticleRead,
    /// `article:write`: `article:read`, and store and delete revisions.
    ArticleWrite,
    /// `python:read`: read indexes whose `acl_read` names the user.
    PythonRead,
    /// `python:upload`: `python:read`, and add: releases, documentation, test results, pushes.
    PythonUpload,
    /// `python:admin`: `python:upload`, and change and remove: indexes and their settings, releases, yanks.
    PythonAdmin,
    /// `user:admin`: change the user's own profile, password and tokens; for an administrator, everyone's,
    /// and groups. A token that may set passwords can become any user, so it is as strong as `*`.
    UserAdmin,
    /// `server:admin`: look at and steer the server itself (settings, sweeps, backups).
    ServerAdmin,
    /// `server:follow`: copy records and blobs, for a server that follows this one. Administrators copy all, secrets included;
    /// other users what they may read.
    ServerFollow,
    /// `*`: whatever the user may do, also what later versions add.
    All,
}

/// A set of [`Scope`]s; the empty set lets nothing be done that anybody could not do.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u16);

/// Text that is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a scope: one of {names} was expected", names = Scope::ALL_NAMES)]
pub struct ScopeError(String);

impl Scope {
    /// Every scope, in the order in which they are listed.
    pub const EVERY: [Scope; 9] = [
        Scope::ArticleRead,
        Scope::ArticleWrite,
        Scope::PythonRead,
        Scope::PythonUpload,
        Scope::PythonAdmin,
        Scope::UserAdmin,
        Scope::ServerAdmin,
        Scope::ServerFollow,
        Scope::All,
    ];

    const ALL_NAMES: &'static str = "article:read, article:write, python:read, python:upload, \
                                     python:admin, user:admin, server:admin, server:follow, *";

    /// Its text, as in `article:read`.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::ArticleRead => "article:read",
            Scope::ArticleWrite => "article:write",
            Scope::PythonRead => "python:read",
            Scope::PythonUpload => "python:upload",
            Scope::PythonAdmin => "python:admin",
            Scope::UserAdmin => "user:admin",
            Scope::ServerAdmin => "server:admin",
            Scope::ServerFollow => "server:follow",
            Scope::All => "*",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u8
    }

    /// This scope and those that it includes.
    fn bits(self) -> u16 {
        match self {
            Scope::ArticleWrite => self.bit() | Scope::ArticleRead.bits(),
            Scope::PythonUpload => self.bit() | Scope::PythonRead.bits(),
            Scope::PythonAdmin => self.bit() | Scope::PythonUpload.bits(),
            Scope::All => u16::MAX,
            _ => self.bit(),
        }
    }
}

impl Scopes {
    /// No scope.
    pub const NONE: Scopes = Scopes(0);
    /// The set of `*`.
    pub const ALL: Scopes = Scopes(1 << Scope::All as u8);

    /// Adds a scope.
    #[must_use]
    pub fn with(self, scope: Scope) -> Scopes {
        Scopes(self.0 | scope.bit())
    }

    /// The given scopes, in the order of [`Scope::EVERY`], without those that others include.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::EVERY.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }

    /// Whether no scope was given.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `scope` is among them, by itself or within a larger one.
    pub fn admit(self, scope: Scope) -> bool {
        self.reach() & scope.bit() != 0
    }

    /// Whether these include all of `other`.
    pub(crate) fn cover(self, other: Scopes) -> bool {
        other.reach() & !self.reach() == 0
    }

    fn reach(self) -> u16 {
        self.iter().fold(0, |bits, scope| bits | scope.bits())
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        scopes.into_iter().fold(Scopes::NONE, Scopes::with)
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Scope, ScopeError> {
        let found = Scope::EVERY.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| ScopeError(record::excerpt(text, 80).into()))
    }
}

impl FromStr for Scopes {
    type Err = ScopeError;

    /// Parses scopes with commas or spaces between them; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Scopes, ScopeError> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        words.map(str::parse::<Scope>).collect()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Display for Scopes {
    /// Writes them with commas between.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::as_str).collect();
        formatter.write_str(&names.join(","))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Scopes({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, admitted: &str) {
        let given: Scopes = given.parse().expect("scopes");
        let found: Scopes = Scope::EVERY.into_iter().filter(|scope| given.admit(*scope)).collect();
        assert_eq!(found.to_string(), admitted, "{given}");
    }

    #[test]
    fn a_scope_includes_the_smaller_ones() {
        check("", "");
        check("python:upload", "python:read,python:upload");
        check("python:admin", "python:read,python:upload,python:admin");
        check("article:write server:admin", "article:read,article:write,server:admin");
        check("*", &format!("{}*", Scope::ALL_NAMES.replace(", ", ",").trim_end_matches('*')));
    }

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["", "*", "article:write,python:read", "user:admin"] {
            assert_eq!(text.parse::<Scopes>().expect("scopes").to_string(), text);
        }
        for bad in ["python", "Python:read", "python:read;*"] {
            assert!(bad.parse::<Scopes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn larger_scopes_cover_smaller_ones() {
        let scopes = |text: &str| text.parse::<Scopes>().expect("scopes");
        assert!(Scopes::ALL.cover(scopes("python:admin,server:admin")));
        assert!(scopes("python:admin").cover(scopes("python:read,python:upload")));
        assert!(!scopes("python:upload").cover(scopes("python:admin")));
        assert!(!scopes("python:admin,server:admin,user:admin,article:write").cover(Scopes::ALL));
        assert!(Scopes::NONE.cover(Scopes::NONE));
    }
}
