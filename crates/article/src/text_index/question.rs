//! [`Question`]: the words of a search.

use super::document::words;
use crate::search::fold;

/// Different words of a question that are looked for.
pub const WORDS_MAX: usize = 8;

/// Characters of the last word from which on it may be the beginning of a longer one.
const PREFIX_CHARS_MIN: usize = 2;

/// The words of a search: an article must have all of them, the last one at least as the beginning of a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    pub(super) words: Vec<String>,
    /// Whether the last word may be the beginning of a longer one.
    pub(super) has_prefix: bool,
}

impl Question {
    /// Reads the first words of `text`, in any case. Words after the eighth are left out.
    pub fn parse(text: &str) -> Question {
        let folded = fold(text);
        let mut question = Question::default();
        for word in words(&folded) {
            if question.words.len() == WORDS_MAX {
                return question;
            }
            // The last one stays last.
            question.words.retain(|known| known != word);
            question.words.push(word.to_owned());
        }
        let last = question.words.last();
        question.has_prefix = folded.ends_with(char::is_alphanumeric)
            && last.is_some_and(|last| last.chars().count() >= PREFIX_CHARS_MIN);
        question
    }

    /// Whether it has no words and finds nothing.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}
