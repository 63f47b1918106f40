//! [`Key`]: the key of a record.

use std::fmt;
use std::sync::Arc;

/// The key of a record: 1 to 1,024 bytes of text without control characters, compared byte by byte. Its first
/// segment, up to the first `/`, names the kind of the record: `article/…`, `user/…`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// Why a text cannot be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("an empty text is not a key")]
    Empty,
    /// The text is longer than [`Key::BYTES_MAX`].
    #[error("a key of {0} bytes is too long: at most {max} were expected", max = Key::BYTES_MAX)]
    TooLong(usize),
    /// The text contains a control character. No surface's names do, and databases treat them differently.
    #[error("`{key}` is not a key: it contains the control character U+{code:04X}", code = *.character as u32)]
    Control {
        /// The text, with the character escaped.
        key: String,
        /// The first such character.
        character: char,
    },
}

impl Key {
    /// Most bytes in a key.
    pub const BYTES_MAX: usize = 1024;

    /// Checks `text`.
    ///
    /// # Errors
    /// [`KeyError`], depending on what is wrong.
    pub fn new(text: &str) -> Result<Key, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > Key::BYTES_MAX {
            return Err(KeyError::TooLong(text.len()));
        }
        if let Some(character) = text.chars().find(|character| character.is_control()) {
            return Err(KeyError::Control { key: text.escape_debug().to_string(), character });
        }
        Ok(Key(text.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The rest after `kind` and a slash, if this is a key of that kind.
    pub fn after(&self, kind: &str) -> Option<&str> {
        self.0.strip_prefix(kind)?.strip_prefix('/')
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_short_text_without_controls() {
        assert_eq!(Key::new("article/a b/ü").expect("a key").as_str(), "article/a b/ü");
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(Key::new(&"x".repeat(1025)), Err(KeyError::TooLong(1025)));
        assert!(Key::new(&"x".repeat(1024)).is_ok());
        let error = Key::new("a\0b").expect_err("a control character");
        assert_eq!(
            error.to_string(),
            "`a\\0b` is not a key: it contains the control character U+0000"
        );
    }

    #[test]
    fn a_kind_is_a_whole_segment() {
        let key = Key::new("article/guide/1").expect("a key");
        assert_eq!(key.after("article"), Some("guide/1"));
        assert_eq!(key.after("art"), None);
        assert_eq!(key.after("user"), None);
    }
}
