//! [`ProjectName`]: a project's name in the normalized form that is used for storage and lookup.
//!
//! A name arrives as its author writes it (`Foo.Bar`) and becomes `foo-bar`. The name as it was written is part of
//! the metadata, not of this module.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A project's normalized name: `a-z`, `0-9` and single `-`, 1 to 255 bytes. Safe as a segment of a path.
///
/// The rule is devpi's: every run of characters other than ASCII letters and digits becomes one `-`, and letters
/// become lower case. For names that PEP 508 allows, this is PEP 503's rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectName(Arc<str>);

/// Why a text is not a project's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectNameError {
    /// The text is empty.
    #[error("a project name is missing")]
    Empty,
    /// The text is longer than [`ProjectName::BYTES_MAX`].
    #[error("a project name of {0} bytes is too long: at most {max} were expected", max = ProjectName::BYTES_MAX)]
    TooLong(usize),
    /// The text contains a character beyond ASCII; the message is devpi's.
    #[error("unicode project names not allowed: {0:?}")]
    NotAscii(String),
    /// The text is not a name that a new project may have (PEP 508).
    #[error(
        "{0:?} is not a valid project name: ASCII letters, digits, `.`, `_` and `-` were expected, \
         with a letter or digit at both ends"
    )]
    NotAName(String),
}

impl ProjectName {
    /// Most bytes in a name: what file systems allow for one.
    pub const BYTES_MAX: usize = 255;

    /// Normalizes the name in an upload, after checking PEP 508's rule.
    ///
    /// # Errors
    /// [`ProjectNameError`], depending on what is wrong.
    pub fn parse(text: &str) -> Result<ProjectName, ProjectNameError> {
        let name = ProjectName::normalize(text)?;
        let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        let is_name = is_end(bytes.first())
            && is_end(bytes.last())
            && bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if is_name { Ok(name) } else { Err(ProjectNameError::NotAName(text.to_owned())) }
    }

    /// Normalizes any name from a URL or a foreign list: `foo bar!` becomes `foo-bar-`, which is harmless and will
    /// not be found.
    ///
    /// # Errors
    /// [`ProjectNameError`] if it is empty, too long or not ASCII.
    pub fn normalize(text: &str) -> Result<ProjectName, ProjectNameError> {
        if text.is_empty() {
            return Err(ProjectNameError::Empty);
        }
        if text.len() > ProjectName::BYTES_MAX {
            return Err(ProjectNameError::TooLong(text.len()));
        }
        if !text.is_ascii() {
            return Err(ProjectNameError::NotAscii(text.to_owned()));
        }
        if ProjectName::is_normalized(text) {
            return Ok(ProjectName(text.into()));
        }
        Ok(ProjectName(normalized(text).into()))
    }

    /// Whether `text` is normalized already, so that no redirect is needed.
    pub fn is_normalized(text: &str) -> bool {
        let mut last = b' ';
        !text.is_empty()
            && text.len() <= ProjectName::BYTES_MAX
            && text.bytes().all(|byte| {
                let follows = std::mem::replace(&mut last, byte);
                matches!(byte, b'a'..=b'z' | b'0'..=b'9') || byte == b'-' && follows != b'-'
            })
    }

    /// The normalized text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// devpi's `N(text)` of any text: a character beyond ASCII counts as a separator.
pub(crate) fn normalized(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            normalized.push(character.to_ascii_lowercase());
        } else if !normalized.ends_with('-') {
            normalized.push('-');
        }
    }
    normalized
}

record::checked_text!(ProjectName, ProjectNameError);
record::found_by_text!(ProjectName);
record::stored_as_text!(ProjectName, ProjectName::normalize, ProjectNameError);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Expects `normalized`, or `refused`, for each line of `written -> …`.
    #[track_caller]
    fn check(parse: fn(&str) -> Result<ProjectName, ProjectNameError>, cases: &str) {
        for case in cases.lines().map(str::trim).filter(|case| !case.is_empty()) {
            let (written, expected) = case.split_once(" -> ").expect("a case");
            let found = parse(written).map_or("refused".to_owned(), |name| name.to_string());
            assert_eq!(found, expected, "{written}");
        }
    }

    #[test]
    fn a_new_name_follows_pep_508_and_is_normalized() {
        check(
            ProjectName::parse,
            "foo -> foo
             Foo.Bar__baz -> foo-bar-baz
             A -> a
             7zip -> 7zip
             foo-_.-bar -> foo-bar
             -foo -> refused
             foo_ -> refused
             . -> refused
             .. -> refused
             foo bar -> refused
             foo/bar -> refused
             ../foo -> refused
             foo+bar -> refused
             naïve -> refused",
        );
    }

    #[test]
    fn more_names_are_normalized_in_a_url_than_by_pep_503() {
        check(
            ProjectName::normalize,
            "Foo Bar -> foo-bar
             foo+~bar! -> foo-bar-
             ___ -> -
             ../x -> -x
             naïve -> refused",
        );
        assert_eq!(ProjectName::normalize(""), Err(ProjectNameError::Empty));
        assert_eq!(ProjectName::normalize(&"x".repeat(256)), Err(ProjectNameError::TooLong(256)));
        assert!(ProjectName::normalize(&"x".repeat(255)).is_ok());
    }

    #[test]
    fn an_error_quotes_the_name() {
        let message = |text| ProjectName::parse(text).expect_err(text).to_string();
        assert_eq!(message("naïve"), "unicode project names not allowed: \"naïve\"");
        assert_eq!(
            message("foo\n"),
            "\"foo\\n\" is not a valid project name: ASCII letters, digits, `.`, `_` and `-` were expected, with a letter or digit at both ends"
        );
    }

    #[test]
    fn json_is_the_normalized_text() {
        let name: ProjectName = serde_json::from_str(r#""Foo_Bar""#).expect("a name");
        assert_eq!(serde_json::to_string(&name).expect("JSON"), r#""foo-bar""#);
        assert!(serde_json::from_str::<ProjectName>(r#""""#).is_err());
    }

    proptest! {
        #[test]
        fn the_normalized_form_is_a_fixed_point(text in ".{0,40}") {
            if let Ok(name) = ProjectName::normalize(&text) {
                prop_assert!(ProjectName::is_normalized(name.as_str()));
                prop_assert_eq!(ProjectName::is_normalized(&text), text == name.as_str());
                prop_assert_eq!(&ProjectName::normalize(name.as_str()).expect("a name"), &name);
            }
        }
    }
}
