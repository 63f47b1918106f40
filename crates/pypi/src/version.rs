//! [`Version`]: a version as its author wrote it, with its position in the order of versions.
//!
//! Nothing here rewrites a version: a release is stored, listed and looked up under the text that was uploaded, as on
//! devpi.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A version: 1 to 255 bytes of text, safe as a segment of a path.
///
/// Two versions are equal if their texts are: `1.0` and `1.0.0` are two versions, each with its own files, as on
/// devpi. [`Version::is_same_release`] tells whether PEP 440 counts them as the same.
///
/// The order is PEP 440's. A version that PEP 440 cannot parse (a *legacy* version: `2004d`, `1.0-final-2`, or a
/// number beyond 64 bits) comes before all that it can parse; legacy versions are ordered by text. Versions of the
/// same release are next to each other, ordered by text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    /// The order of the fields is that of versions: `None` sorts before every `Some`, so legacy versions come first.
    parsed: Option<pep440_rs::Version>,
    text: Arc<str>,
}

/// What versions of the same release have in common: see [`Version::release_key`].
pub(crate) type ReleaseKey<'version> = (Option<&'version pep440_rs::Version>, &'version str);

/// Why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The text is empty.
    #[error("a version is missing")]
    Empty,
    /// The text is longer than [`Version::BYTES_MAX`].
    #[error("a version of {0} bytes is too long: at most {max} were expected", max = Version::BYTES_MAX)]
    TooLong(usize),
    /// The text is not safe in paths and URLs, of which a version is a segment.
    #[error("{text:?} is not a version: {what} cannot be in one")]
    Unsafe {
        /// The text.
        text: String,
        /// What a version cannot contain.
        what: &'static str,
    },
}

impl Version {
    /// Most bytes in a version: what file systems allow for a name.
    pub const BYTES_MAX: usize = 255;

    /// Parses a version. It need not follow PEP 440, as on devpi. A text that could leave a directory, break a line
    /// or be trimmed on its way is refused.
    ///
    /// # Errors
    /// [`VersionError`], depending on what is wrong.
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

    /// The text as it was sent.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// PEP 440's spelling (`1.0-RC1` becomes `1.0rc1`); a legacy version is unchanged.
    pub fn normalized(&self) -> String {
        self.parsed.as_ref().map_or_else(|| self.text.to_string(), ToString::to_string)
    }

    /// The newest of these by PEP 440; an alpha, beta or candidate only if there is no final version.
    pub fn latest(versions: impl Iterator<Item = Version>) -> Option<Version> {
        versions.max_by(|one, other| {
            other.is_prerelease().cmp(&one.is_prerelease()).then_with(|| one.cmp(other))
        })
    }

    /// Whether installers take it only on request: an alpha, beta, candidate or development release. A legacy version
    /// does not count as one, as on devpi (and in the releases of `packaging` that accepted them).
    pub fn is_prerelease(&self) -> bool {
        self.parsed.as_ref().is_some_and(pep440_rs::Version::any_prerelease)
    }

    /// Whether PEP 440 cannot parse it.
    pub fn is_legacy(&self) -> bool {
        self.parsed.is_none()
    }

    /// The version as PEP 440 compares it; `None` for a legacy version.
    pub(crate) fn as_pep440(&self) -> Option<&pep440_rs::Version> {
        self.parsed.as_ref()
    }

    /// Equal for versions of which [`Version::is_same_release`] holds.
    pub(crate) fn release_key(&self) -> ReleaseKey<'_> {
        let parsed = self.parsed.as_ref();
        (parsed, if parsed.is_some() { "" } else { &self.text })
    }

    /// The position of the version that somebody means by `wanted`: the one with this text, or else the first that is the same
    /// release. People, locks and the names of files do not spell a version as its upload did: `2025.9.4` is `2025.09.4`.
    pub fn position<'text>(
        wanted: &str,
        mut known: impl Iterator<Item = &'text str> + Clone,
    ) -> Option<usize> {
        known.clone().position(|text| text == wanted).or_else(|| {
            let wanted = Version::parse(wanted).ok().filter(|wanted| !wanted.is_legacy())?;
            known.position(|text| Version::parse(text).is_ok_and(|it| it.is_same_release(&wanted)))
        })
    }

    /// Whether PEP 440 counts both as the same (`1.0`, `v1`, `1.0.0`); legacy versions are compared by text.
    pub fn is_same_release(&self, other: &Version) -> bool {
        match (&self.parsed, &other.parsed) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }
}

/// Why `character` may not be in a path segment; `None` if it may.
pub(crate) fn unsafe_in_path(character: char) -> Option<&'static str> {
    match character {
        '/' => Some("a slash"),
        '\\' => Some("a backslash"),
        // Line and paragraph separators, and marks that change the direction of text.
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

record::checked_text!(Version, VersionError);
record::stored_as_text!(Version, Version::parse, VersionError);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).expect("a version")
    }

    /// Expects that these versions, in one line, are in ascending order.
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

    /// The expected values come from Python's `packaging`: `text<tab>normalized`, ascending. Legacy versions, which
    /// it refuses, come first and have no second column.
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
    fn equality_compares_texts_and_is_same_release_does_not() {
        assert_ne!(version("1.0"), version("1.0.0"));
        assert!(version("1.0").is_same_release(&version("1.0.0")));
        assert!(version("1.0-RC.1").is_same_release(&version("v1rc1")));
        assert!(!version("1.0").is_same_release(&version("1.0+local")));
        assert!(!version("2004d").is_same_release(&version("2004")));
        assert!(version("2004d").is_same_release(&version("2004d")));
    }

    #[test]
    fn a_wanted_version_is_found_in_another_spelling() {
        let check = |wanted: &str, known: &str, expected: Option<usize>| {
            assert_eq!(Version::position(wanted, known.split(' ')), expected, "{wanted}");
        };
        check("1.0", "1.0.0 1.0 1", Some(1));
        check("v1.0", "0.9 1.0.0 1", Some(1));
        check("2025.9.4", "2025.09.4", Some(0));
        check("3.4-1", "3.4 3.4.post1", Some(1));
        check("1.0", "1.0+local 1.0rc1 11.0", None);
        check("2004d", "2004 2004D", None);
        check("2004d", "2004 2004d", Some(1));
    }

    #[test]
    fn kinds_and_spellings_of_versions() {
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
    fn texts_that_could_leave_a_directory_or_be_trimmed_are_refused() {
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
    fn a_number_beyond_64_bits_makes_a_legacy_version_without_a_panic() {
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
