//! [`Needles`]: several words that a package must have.
//!
//! Only the word that is rarest in the indexes is looked up; for the others, the found texts are searched. So a question with
//! many words costs hardly more than one with a single word.

use crate::field::Mode;
use crate::fold::fold;

/// Words that a question may have, each counted once.
pub(crate) const WORDS_MAX: usize = 32;

/// Folded words, longest first; none is part of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needles {
    words: Vec<String>,
}

impl Needles {
    /// The first `count_max` of these words, without those that are part of another: a text that contains `ab` contains `a`.
    pub(crate) fn of<'a>(
        words: impl Iterator<Item = &'a str>,
        mode: Mode,
        count_max: usize,
    ) -> Needles {
        let mut distinct: Vec<String> = Vec::new();
        for word in words.filter(|word| !word.is_empty()).map(fold) {
            if distinct.len() == count_max {
                break;
            }
            if !distinct.contains(&word) {
                distinct.push(word);
            }
        }
        // A stable sort: of words of one length the first stays the first.
        distinct.sort_by_key(|word| std::cmp::Reverse(word.len()));
        let mut words: Vec<String> = Vec::with_capacity(distinct.len());
        for word in distinct {
            let follows = words.iter().any(|longer| match mode {
                Mode::Contains => longer.contains(&word),
                Mode::StartsWith => longer.starts_with(&word),
            });
            if !follows {
                words.push(word);
            }
        }
        Needles { words }
    }

    /// Whether there are more than [`WORDS_MAX`] different ones among these.
    pub(crate) fn are_too_many<'a>(words: impl Iterator<Item = &'a str>) -> bool {
        let mut distinct: Vec<&str> = Vec::with_capacity(WORDS_MAX + 1);
        for word in words.filter(|word| !word.is_empty()) {
            if !distinct.contains(&word) {
                distinct.push(word);
            }
            if distinct.len() > WORDS_MAX {
                return true;
            }
        }
        false
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, mode: Mode, expected: &[&str]) {
        assert_eq!(Needles::of(words.split(' '), mode, 4).words, expected, "{words}");
    }

    #[test]
    fn a_word_that_says_nothing_new_is_not_looked_for() {
        check("a b a  A é e", Mode::Contains, &["A", "B", "E"]);
        check("p e pear ar bear", Mode::Contains, &["PEAR"]);
        check("ar pear pe", Mode::Contains, &["PEAR"]);
        check("ar pear pe", Mode::StartsWith, &["PEAR", "AR"]);
        check("", Mode::Contains, &[]);
    }

    #[test]
    fn different_words_are_counted() {
        let words: Vec<String> = (0..=WORDS_MAX).map(|number| number.to_string()).collect();
        let words = || words.iter().map(String::as_str);
        assert!(Needles::are_too_many(words()));
        assert!(!Needles::are_too_many(words().take(WORDS_MAX)));
        assert!(!Needles::are_too_many(words().take(WORDS_MAX).cycle().take(500)));
    }
}
