//! [`StageName`]: `user/index`, the name under which everything of a stage is stored and shown.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use account::{NameError, UserName};

/// The name of a stage: its user's name, a slash, its index name. At most 257 bytes; case-sensitive. Safe as two
/// segments of a path. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageName {
    text: Arc<str>,
    /// The position of the slash.
    slash: u16,
}

/// The second half of a [`StageName`]: an index name, which follows the rule for user names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexName(UserName);

/// Why a text is not a stage's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageNameError {
    /// The text is not two segments with a slash between them.
    #[error("`{0}` is not the name of an index: `user/index` was expected")]
    NotTwoSegments(String),
    /// One of the segments is not a valid name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl StageName {
    /// The stage of `user` with the index name `index`.
    pub fn new(user: &UserName, index: &IndexName) -> StageName {
        let text = format!("{user}/{index}");
        StageName { slash: user.as_str().len() as u16, text: text.into() }
    }

    /// The whole text: `user/index`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text of the user's name.
    pub fn user(&self) -> &str {
        &self.text[..usize::from(self.slash)]
    }

    /// The text of the index name.
    pub fn index(&self) -> &str {
        &self.text[usize::from(self.slash) + 1..]
    }

    /// The user that the stage belongs to.
    pub fn user_name(&self) -> UserName {
        self.user().parse().expect("it was made from a user's name")
    }

    /// Whether the stage belongs to this user.
    pub fn is_of(&self, user: &UserName) -> bool {
        self.user() == user.as_str()
    }
}

impl FromStr for IndexName {
    type Err = NameError;

    /// Checks `text` and normalizes it to form C; the messages are devpi's.
    fn from_str(text: &str) -> Result<IndexName, NameError> {
        const KIND: &str = "indexname";
        text.parse::<UserName>().map(IndexName).map_err(|error| match error {
            NameError::Empty { .. } => NameError::Empty { kind: KIND },
            NameError::TooLong { bytes, .. } => NameError::TooLong { kind: KIND, bytes },
            NameError::Characters { name, .. } => NameError::Characters { kind: KIND, name },
            NameError::Dots { name, .. } => NameError::Dots { kind: KIND, name },
        })
    }
}

impl fmt::Display for IndexName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for StageName {
    type Err = StageNameError;

    /// Parses `user/index`. Slashes around it are ignored, as people copy names from URLs.
    fn from_str(text: &str) -> Result<StageName, StageNameError> {
        let inner = text.trim_matches('/');
        let error = || StageNameError::NotTwoSegments(record::excerpt(text, 300).into());
        let (user, index) = inner.split_once('/').ok_or_else(error)?;
        if index.contains('/') {
            return Err(error());
        }
        Ok(StageName::new(&user.parse()?, &index.parse()?))
    }
}

/// The hash of the text, by which maps find it.
impl std::hash::Hash for StageName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

record::checked_text!(StageName);
record::found_by_text!(StageName);

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects `user index`, or the error.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = text.parse::<StageName>();
        let found = found.map(|name| format!("{} {}", name.user(), name.index()));
        assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn a_stage_name_is_two_names_with_a_slash_between() {
        check("alice/dev", "alice dev");
        check("/alice/pypi/", "alice pypi");
        check("Ünsal/x@y-z_1.0", "Ünsal x@y-z_1.0");
        for text in ["alice", "a/b/c", "", "a/", "a//b", "a/../b"] {
            let why = "is not the name of an index: `user/index` was expected";
            check(text, &format!("`{text}` {why}"));
        }
        check("a/..", "indexname '..' consists of dots only, which a path cannot hold");
        check(
            "+a/b",
            "username '+a' contains characters that aren't allowed. Any ascii symbol besides -.@_ is blocked.",
        );
    }

    #[test]
    fn an_index_name_is_refused_in_devpis_words() {
        let error = "b c".parse::<IndexName>().expect_err("a blank");
        assert_eq!(
            error.to_string(),
            "indexname 'b c' contains characters that aren't allowed. Any ascii symbol besides \
             -.@_ is blocked."
        );
    }
}
