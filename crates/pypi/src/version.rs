//! [`Version`]: a version as its author writes it, with its place in the order of versions.
//!
//! Text in, order out. Nothing here rewrites a version: a release is stored, listed and looked up under
//! the text that was uploaded, as devpi does.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A version: 1 to 255 bytes of text, safe as a segment of a path.
///
/// Two versions are equal if their texts are: `1.0` and `1.0.0` are two versions, each with its own files,
/// as on devpi. Who wants to know whether PEP 440 calls them the same asks [`Version::is_same_release`].
///
/// The order is PEP 440's; what PEP 440 does not know (a *legacy* version: `2004d`, `1.0-final-2`, or a
/// number beyond 64 bits) stands before everything that it knows, by text; versions that are the same
/// release stand beside each other, by text.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    text: Arc<str>,
    parsed: Option<pep440_rs::Version>,
}

/// Text that is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Nothing at all.
    #[error("a version is missing")]
    Empty,
    /// More than [`Version::BYTES_MAX`].
    #[error("a version of {0} bytes is too long: at most {max} were expected", max = Version::BYTES_MAX)]
    TooLong(usize),
    /// A version is a segment of paths and URLs.
    #[error("{text:?} is not a version: {what} cannot be in one")]
    Unsafe {
        /// The text.
        text: String,
        /// What cannot be in it.
        what: &'static str,
    },
}

impl Version {
    /// Most bytes in a version: what a file system allows for a name.
    pub const BYTES_MAX: usize = 255;

    /// The version that `text` is. PEP 440 is not required, as devpi does not; what could lead out of a
    /// directory, break a line or be trimmed somewhere on its way is refused.
    ///
    /// # Errors
    /// [`VersionError`], by what is wrong.
    pub fn parse(text: &str) -> Result<Version, VersionError> {
        if text.is_empty() {
            return Err(VersionError::Empty);
        }
        if text.len() > Version::BYTES_MAX {
            return Err(VersionError::TooLong(text.len()));
        }
        let error = |what| Err(VersionError::Unsafe { text: text.to_owned(), what });
        if text.starts_with('.') {
            return error("a leading dot");
        }
        if text.starts_with('+') {
            return error("a leading `+`, which marks the index's own pages,");
        }
        if text.trim() != text {
            return error("white space at an end");
        }
        if let Some(what) = text.chars().find_map(unsafe_in_path) {
            return error(what);
        }
        Ok(Version { text: text.into(), parsed: text.parse().ok() })
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// PEP 440's spelling (`1.0-RC1` is `1.0rc1`); a legacy version has none and stays as it is.
    pub fn normalized(&self) -> String {
        self.parsed.as_ref().map_or_else(|| self.text.to_string(), ToString::to_string)
    }

    /// Whether an installer takes it only when asked: an alpha, beta, candidate or development release. A
    /// legacy version is none, as devpi (and the `packaging` that knew them) has it.
    pub fn is_prerelease(&self) -> bool {
        self.parsed.as_ref().is_some_and(pep440_rs::Version::any_prerelease)
    }

    /// Whether PEP 440 does not know it.
    pub fn is_legacy(&self) -> bool {
        self.parsed.is_none()
    }

    /// Whether PEP 440 calls the two the same (`1.0`, `v1`, `1.0.0`); legacy versions are by text.
    pub fn is_same_release(&self, other: &Version) -> bool {
        match (&self.parsed, &other.parsed) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }
}

/// What makes `character` unfit for a segment of a path, if anything does.
pub(crate) fn unsafe_in_path(character: char) -> Option<&'static str> {
    match character {
        '/' => Some("a slash"),
        '\\' => Some("a backslash"),
        // Line and paragraph separators, and the marks that turn the direction of text around.
        '\u{2028}'
        | '\u{2029}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => Some("a character that hides others"),
        _ if character.is_control() => Some("a control character"),
        _ => None,
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.text == other.text
    }
}

impl Eq for Version {}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        // `None` is before every `Some`: legacy versions come first.
        self.parsed.cmp(&other.parsed).then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Version, VersionError> {
        Version::parse(text)
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Version, VersionError> {
        Version::parse(&text)
    }
}

impl From<Version> for String {
    fn from(version: Version) -> String {
        version.as_str().to_owned()
    }
}

impl AsRef<str> for Version {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Version({:?})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).expect("a version")
    }

    /// Versions in one line, in ascending order.
    #[track_caller]
    fn check_order(ascending: &str) {
        let mut versions: Vec<_> = ascending.split_whitespace().map(version).collect();
        versions.reverse();
        versions.sort();
        let sorted: Vec<_> = versions.iter().map(Version::as_str).collect();
        assert_eq!(sorted.join(" "), ascending);
    }

    #[test]
    fn the_order_is_pep_440s_with_legacy_versions_first() {
        check_order(
            "1.0.dev1 1.0a1.dev1 1.0a1 1.0b2 1.0rc1 1.0 1.0+a 1.0+1 1.0.post1.dev1 1.0.post1 1.1 1!0.1",
        );
        check_order("1.0-final-2 2004d dev 0.0.1 1");
        check_order("1 1.0 1.0.0 v1 1.0.0.1");
        check_order("9 10 2026.11.21");
    }

    /// Made with Python's `packaging`: `text<tab>normalized`, ascending; legacy versions, which it refuses, come
    /// first and have no second column.
    #[test]
    fn the_order_and_the_spelling_are_those_of_packaging() {
        let golden: Vec<_> = include_str!("version/golden.txt")
            .lines()
            .map(|line| line.split_once('\t').expect("two columns"))
            .collect();
        assert!(golden.len() > 200);
        for (text, normalized) in &golden {
            let version = version(text);
            assert_eq!(version.is_legacy(), normalized.is_empty(), "{text}");
            assert!(version.is_legacy() || version.normalized() == *normalized, "{text}");
        }
        for pair in golden.windows(2) {
            assert!(version(pair[0].0) < version(pair[1].0), "{pair:?}");
        }
    }

    #[test]
    fn equality_is_of_text_and_the_same_release_is_asked_for() {
        assert_ne!(version("1.0"), version("1.0.0"));
        assert!(version("1.0").is_same_release(&version("1.0.0")));
        assert!(version("1.0-RC.1").is_same_release(&version("v1rc1")));
        assert!(!version("1.0").is_same_release(&version("1.0+local")));
        assert!(!version("2004d").is_same_release(&version("2004")));
        assert!(version("2004d").is_same_release(&version("2004d")));
    }

    #[test]
    fn a_version_knows_its_kind_and_spelling() {
        let facts = |text: &str| {
            let version = version(text);
            (version.normalized(), version.is_prerelease(), version.is_legacy())
        };
        assert_eq!(facts("1.0-RC1"), ("1.0rc1".into(), true, false));
        assert_eq!(facts("1.0.dev3"), ("1.0.dev3".into(), true, false));
        assert_eq!(facts("1.0-2"), ("1.0.post2".into(), false, false));
        assert_eq!(facts("1.0+Ubuntu_1"), ("1.0+ubuntu.1".into(), false, false));
        assert_eq!(facts("1.0-final-2"), ("1.0-final-2".into(), false, true));
        assert_eq!(facts("1.*"), ("1.*".into(), false, true));
    }

    #[test]
    fn what_could_leave_a_directory_or_be_trimmed_is_refused() {
        for text in
            ["..", ".", ".1", "1/2", "../1", "1\\2", "1\n", " 1", "1 ", "1\0", "+f", "1\u{202e}2"]
        {
            let error = Version::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} is not a version: ")), "{error}");
        }
        assert_eq!(Version::parse(""), Err(VersionError::Empty));
        assert_eq!(Version::parse(&"1".repeat(256)), Err(VersionError::TooLong(256)));
        assert!(Version::parse("1.0 beta é").is_ok());
    }

    #[test]
    fn a_number_beyond_64_bits_is_a_legacy_version_and_no_panic() {
        assert!(version("1.18446744073709551616").is_legacy());
        assert!(!version("1.20261121123059").is_legacy());
    }

    proptest! {
        #[test]
        fn the_order_is_total(texts in proptest::collection::vec("[0-9]{1,2}(\\.[0-9]){0,2}(a|b|rc|\\.dev|-|\\+x)?[0-9]?|[a-z]{1,3}", 3)) {
            let versions: Vec<_> = texts.iter().map(|text| version(text)).collect();
            for one in &versions {
                for other in &versions {
                    prop_assert_eq!(one.cmp(other), other.cmp(one).reverse());
                    prop_assert_eq!(one.cmp(other).is_eq(), one == other);
                }
            }
            let (one, two, three) = (&versions[0], &versions[1], &versions[2]);
            prop_assert!(!(one <= two && two <= three) || one <= three);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Version::parse(&text).map(|version| version.normalized());
        }
    }
}
