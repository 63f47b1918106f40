//! [`UserName`] and [`GroupName`]: the names of users and groups.
//!
//! The rule is devpi's, because users bring their names from there: ASCII letters, digits and `-.@_`, and characters beyond
//! ASCII. Of the latter only visible ones are accepted (letters, digits, signs, emoji), so that no two names differ by
//! something invisible. Names are stored in Unicode's composed form (NFC), so that a name is the same on every keyboard.

use std::str::FromStr;
use std::sync::Arc;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::{is_combining_mark, is_public_assigned};

/// A user's name: 1 to 128 bytes, of letters, digits, `-.@_` and visible characters beyond ASCII, in NFC; case matters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName(Arc<str>);

/// A group's name, under the same rule as a user's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

/// Text that cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("a {kind} may not be empty")]
    Empty {
        /// `username` or `groupname`.
        kind: &'static str,
    },
    /// More than [`UserName::BYTES_MAX`].
    #[error("a {kind} of {bytes} bytes is too long: at most {max} were expected", max = UserName::BYTES_MAX)]
    TooLong {
        /// `username` or `groupname`.
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A character that names do not have; devpi's text.
    #[error(
        "{kind} '{name}' contains characters that aren't allowed. Any ascii symbol besides -.@_ is \
         blocked."
    )]
    Characters {
        /// `username` or `groupname`.
        kind: &'static str,
        /// The text, with control characters escaped.
        name: String,
    },
    /// `.` and `..`, which are no segments of a path.
    #[error("{kind} '{name}' consists of dots only, which a path cannot hold")]
    Dots {
        /// `username` or `groupname`.
        kind: &'static str,
        /// The text.
        name: String,
    },
}

/// First segments of paths at which the server itself answers. `/{user}/…` would be hidden behind them, so new users cannot get
/// these names. No other word is reserved, because users who come from devpi bring their names with them; a test compares the
/// list with the server's table of endpoints.
pub const RESERVED: [&str; 29] = [
    // the AUR's
    "account",
    "api",
    "atom",
    "aur",
    "packages",
    "pkgbase",
    "rpc",
    "rpc.php",
    "rss",
    // articles and actions
    "actions",
    "article",
    "articles",
    // where clients ask for trusted publishing
    "_",
    // the server's own
    "changes",
    "changes.atom",
    "docs",
    "favicon.ico",
    "healthz",
    "livez",
    "metrics",
    "openapi.json",
    "ready",
    "readyz",
    "robots.txt",
    "search",
    "status",
    "version",
    // what proxies and standards put there
    ".well-known",
    // stands for "the password is a token" in credentials
    "__token__",
];

/// The names of the AUR's downloads, up to the first dot.
const DUMPS: [&str; 5] =
    ["packages", "packages-meta-v1", "packages-meta-ext-v1", "pkgbase", "users"];

/// Whether the server itself answers at `/{name}`, so that no new user may have this name.
///
/// A name that became reserved after its user was made stays valid: the user is still listed, can log in
/// and be deleted.
pub fn is_reserved(name: &UserName) -> bool {
    let name = name.as_str();
    // The AUR's dumps: /packages.gz, /packages-meta-v1.json.gz, their .sha256 and whatever joins them.
    let is_dump = name.split_once('.').is_some_and(|(stem, end)| {
        DUMPS.contains(&stem)
            && [".gz", ".zst", ".sha256"].iter().any(|it| format!(".{end}").ends_with(it))
    });
    is_dump || RESERVED.contains(&name)
}

fn check(kind: &'static str, text: &str) -> Result<Arc<str>, NameError> {
    // Composing shortens a text to a third at most; this check keeps the work for longer ones small.
    if text.len() > 3 * UserName::BYTES_MAX {
        return Err(NameError::TooLong { kind, bytes: text.len() });
    }
    let name: String = text.nfc().collect();
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    let is_allowed = |(at, character): (usize, char)| match character {
        '-' | '.' | '@' | '_' => true,
        _ if character.is_ascii() => character.is_ascii_alphanumeric(),
        JOINER => joins_signs(&name[..at], &name[at + JOINER.len_utf8()..]),
        _ => is_visible(character),
    };
    // A mark needs something to stand on.
    if !name.char_indices().all(is_allowed) || name.chars().next().is_some_and(is_combining_mark) {
        return Err(NameError::Characters { kind, name: name.escape_debug().to_string() });
    }
    if name == "." || name == ".." {
        return Err(NameError::Dots { kind, name });
    }
    if name.len() > UserName::BYTES_MAX {
        return Err(NameError::TooLong { kind, bytes: name.len() });
    }
    Ok(name.into())
}

/// Joins several signs into one emoji.
const JOINER: char = '\u{200d}';

/// Whether a joiner between these texts joins two signs, which look different without it. Between letters it would be
/// invisible.
fn joins_signs(before: &str, after: &str) -> bool {
    let is_sign = |character: char| {
        !character.is_ascii() && !character.is_alphanumeric() && is_visible(character)
    };
    let before = before.chars().rev().find(|character| !is_combining_mark(*character));
    let after = after.chars().next().filter(|character| !is_combining_mark(*character));
    before.is_some_and(is_sign) && after.is_some_and(is_sign)
}

/// Whether a character beyond ASCII is visible, or a mark on a visible one.
fn is_visible(character: char) -> bool {
    character.is_alphanumeric()
        || is_combining_mark(character)
        || (is_public_assigned(character)
            && !character.is_whitespace()
            && !character.is_control()
            && !is_format(character))
}

/// Whether the character only controls how others are shown: Unicode's category Cf.
fn is_format(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

impl UserName {
    /// Most bytes in a name, after composing.
    pub const BYTES_MAX: usize = 128;

    /// The administrator who always exists.
    pub const ROOT: &'static str = "root";

    /// The name `root`.
    pub fn root() -> UserName {
        UserName(UserName::ROOT.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `root`.
    pub fn is_root(&self) -> bool {
        &*self.0 == UserName::ROOT
    }
}

impl GroupName {
    /// The group whose members are administrators.
    pub const ADMIN: &'static str = "admin";

    /// The name `admin`.
    pub fn admin() -> GroupName {
        GroupName(GroupName::ADMIN.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = NameError;

    /// Checks and composes `text`. Reserved names pass: see [`is_reserved`].
    fn from_str(text: &str) -> Result<UserName, NameError> {
        check("username", text).map(UserName)
    }
}

impl FromStr for GroupName {
    type Err = NameError;

    /// Checks and composes `text`.
    fn from_str(text: &str) -> Result<GroupName, NameError> {
        check("groupname", text).map(GroupName)
    }
}

record::checked_text!(UserName);
record::checked_text!(GroupName);
record::found_by_text!(UserName);
record::found_by_text!(GroupName);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, outcome: Result<&str, &str>) {
        let found = text.parse::<UserName>();
        let found = found.as_ref().map(UserName::as_str).map_err(ToString::to_string);
        assert_eq!(found, outcome.map_err(str::to_owned));
    }

    fn blocked(name: &str) -> String {
        format!(
            "username '{name}' contains characters that aren't allowed. Any ascii symbol besides \
             -.@_ is blocked."
        )
    }

    #[test]
    fn letters_digits_and_four_symbols_are_names() {
        for name in ["a", "root", "alice@host.example", "x-1_y.z", "Ünsal", "名前", "क्षि", ".x"]
        {
            check(name, Ok(name));
        }
        // Names that devpi accepts, too.
        let woman_at_a_computer = "\u{1f469}\u{1f3fd}\u{200d}\u{1f4bb}";
        for name in
            ["€uro", "a☃", "\u{1f600}", "„a“", "a±b", "\u{2764}\u{fe0f}", woman_at_a_computer]
        {
            check(name, Ok(name));
        }
    }

    #[test]
    fn other_symbols_are_blocked() {
        for name in ["a b", "a/b", "+api", "a+b", "x:y", "~", "a,b"] {
            check(name, Err(&blocked(&name.escape_debug().to_string())));
        }
        // Invisible characters are refused: spaces, joiners unless between signs, directions, tags, unassigned ones.
        for name in [
            "a\u{a0}b",
            "a\u{2003}b",
            "a\u{2028}b",
            "a\u{85}b",
            "a\u{ad}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "\u{200d}a",
            "\u{1f600}\u{200d}",
            "\u{1f600}\u{200d}\u{200d}\u{1f600}",
            "a\u{200d}\u{1f600}",
            "a\u{202e}b",
            "a\u{2060}b",
            "a\u{feff}b",
            "a\u{e0041}b",
            "a\u{e000}b",
            "a\u{10ffff}b",
            "a\u{378}b",
        ] {
            check(name, Err(&blocked(&name.escape_debug().to_string())));
        }
        check("a\0", Err(&blocked("a\\0")));
    }

    #[test]
    fn names_are_short_and_composed() {
        check("", Err("a username may not be empty"));
        check("u\u{308}", Ok("ü"));
        check(&"x".repeat(128), Ok(&"x".repeat(128)));
        let error = "a username of 129 bytes is too long: at most 128 were expected";
        check(&"x".repeat(129), Err(error));
        check("..", Err("username '..' consists of dots only, which a path cannot hold"));
    }

    #[test]
    fn segments_of_other_surfaces_are_reserved() {
        for name in [
            "rpc",
            "actions",
            "packages-meta-v1.json.gz",
            "packages-meta-ext-v1.delta.zst",
            "users.gz.sha256",
            "packages",
            "status",
            "_",
            "__token__",
        ] {
            assert!(is_reserved(&name.parse().expect("a name")), "{name}");
        }
        for name in [
            "root",
            "pypi",
            "rpcs",
            "packager",
            "packages_team",
            "packages-team",
            "packages.team",
            "RPC",
            "users",
            "admin",
            "login",
            "logout",
            "static",
            "assets",
            "__",
        ] {
            assert!(!is_reserved(&name.parse().expect("a name")), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_again_as_itself(text in "\\PC{0,40}|[a-z@._\\-äü€\u{300}-\u{303}\u{200d}\u{1f600}]{0,140}") {
            if let Ok(name) = text.parse::<UserName>() {
                prop_assert!(name.as_str().len() <= UserName::BYTES_MAX);
                prop_assert_eq!(name.as_str().parse(), Ok(name.clone()));
            }
        }
    }
}
