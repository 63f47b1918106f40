//! [`Pattern`]: what a search with `mode=words` or `mode=regex` looks for.

use regex::bytes::{Regex, RegexBuilder};

use crate::field::Mode;
use crate::fold::fold;
use crate::needles::{Needles, WORDS_MAX};
use crate::options::shortened;

/// Characters of a regular expression.
const REGEX_CHARS_MAX: usize = 256;

/// Bytes of its compiled program: some hundreds of steps.
const REGEX_PROGRAM_BYTES_MAX: usize = 64 << 10;

/// Memory for tables that a regular expression needs during a search, in bytes.
const REGEX_TABLE_BYTES_MAX: usize = 1 << 20;

/// How deep its groups may be nested.
const REGEX_DEPTH_MAX: u32 = 16;

/// What a text must match.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// All of some words, and none of others.
    Words {
        wanted: Needles,
        unwanted: Vec<String>,
        /// The wanted words in their order, joined as in a name, and folded.
        name: String,
    },
    /// A match of a regular expression; texts are compared folded: in upper case, and without accents.
    Regex(Regex),
}

impl Pattern {
    /// Words divided by white space: `word`, `"several words"`, `-word` and `-"several words"` for what must not be there.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub(crate) fn words(text: &str) -> Result<Pattern, String> {
        let mut wanted = Vec::new();
        let mut unwanted: Vec<String> = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (is_unwanted, after) = match rest.strip_prefix('-') {
                Some(after) if !after.is_empty() && !after.starts_with(char::is_whitespace) => {
                    (true, after)
                }
                _ => (false, rest),
            };
            let word = if let Some(quoted) = after.strip_prefix('"') {
                let Some((word, after)) = quoted.split_once('"') else {
                    return Err(format!(
                        "a quote in `{}` has no end: expected another `\"`",
                        shortened(text)
                    ));
                };
                rest = after.trim_start();
                word
            } else {
                let (word, after) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
                rest = after.trim_start();
                word
            };
            if word.is_empty() {
                continue;
            }
            if is_unwanted { add_unwanted(&mut unwanted, word) } else { wanted.push(word) }
        }
        unwanted.sort();
        if wanted.is_empty() {
            return Err(format!(
                "`{}` has no word that must be there: expected at least one without `-`",
                shortened(text)
            ));
        }
        if unwanted.len() > WORDS_MAX || Needles::are_too_many(wanted.iter().copied()) {
            return Err(format!("too many different words: expected at most {WORDS_MAX}"));
        }
        let name = fold(&wanted.join("-").split_whitespace().collect::<Vec<_>>().join("-"));
        let wanted = Needles::of(wanted.into_iter(), Mode::Contains, WORDS_MAX);
        Ok(Pattern::Words { wanted, unwanted, name })
    }

    /// A regular expression in the syntax of the crate `regex`, which takes time in proportion to the texts.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub(crate) fn regex(text: &str) -> Result<Pattern, String> {
        if text.chars().count() > REGEX_CHARS_MAX {
            return Err(format!(
                "the regular expression is too long: expected at most {REGEX_CHARS_MAX} characters"
            ));
        }
        let regex = RegexBuilder::new(text)
            .case_insensitive(true)
            .size_limit(REGEX_PROGRAM_BYTES_MAX)
            .dfa_size_limit(REGEX_TABLE_BYTES_MAX)
            .nest_limit(REGEX_DEPTH_MAX)
            .build();
        match regex {
            Ok(regex) => Ok(Pattern::Regex(regex)),
            Err(regex::Error::CompiledTooBig(_)) => Err(format!(
                "the regular expression `{}` is too large when it is compiled: expected fewer or smaller repetitions",
                shortened(text)
            )),
            Err(error) => {
                // The last line names the error, those before show its position.
                let error = error.to_string();
                let cause = error.lines().last().unwrap_or_default();
                let cause = cause.strip_prefix("error: ").unwrap_or(cause);
                Err(format!(
                    "`{}` is not a regular expression: {}",
                    shortened(text),
                    shortened(cause)
                ))
            }
        }
    }
}

/// Adds a word that is not there yet. No more are held than one too many, however long the text is.
fn add_unwanted(unwanted: &mut Vec<String>, word: &str) {
    let folded = fold(word);
    if unwanted.len() <= WORDS_MAX && !unwanted.contains(&folded) {
        unwanted.push(folded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&[&str], &[&str]), &str>) {
        let found = Pattern::words(text).map(|pattern| match pattern {
            Pattern::Words { wanted, unwanted, .. } => {
                (wanted.words().map(str::to_owned).collect::<Vec<_>>(), unwanted)
            }
            Pattern::Regex(_) => unreachable!("they are words"),
        });
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let expected = expected
            .map(|(wanted, unwanted)| (owned(wanted), owned(unwanted)))
            .map_err(str::to_owned);
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn words_phrases_and_what_must_not_be_there() {
        check("tree plain", Ok((&["PLAIN", "TREE"], &[])));
        check(
            r#""plain text"  tree -lib -"old one""#,
            Ok((&["PLAIN TEXT", "TREE"], &["LIB", "OLD ONE"])),
        );
        check(r#"a-b - x"#, Ok((&["A-B", "X"], &[])));
        check(r#"say"so"#, Ok((&["SAY\"SO"], &[])));
        check(r#"tree "lib"#, Err("a quote in `tree \"lib` has no end: expected another `\"`"));
        check(
            "-lib",
            Err("`-lib` has no word that must be there: expected at least one without `-`"),
        );
        let many: Vec<String> = (0..33).map(|number| format!("w{number}")).collect();
        check(&many.join(" "), Err("too many different words: expected at most 32"));
        let many: Vec<String> = (0..33).map(|number| format!("-w{number}")).collect();
        check(
            &format!("tree {}", many.join(" ")),
            Err("too many different words: expected at most 32"),
        );
    }

    #[test]
    fn what_must_not_be_there_is_held_once_and_bounded() {
        let mut unwanted = Vec::new();
        ["lib", "Lib", "old"].iter().for_each(|word| add_unwanted(&mut unwanted, word));
        assert_eq!(unwanted, ["LIB", "OLD"]);
        (0..1000).for_each(|number| add_unwanted(&mut unwanted, &number.to_string()));
        assert_eq!(unwanted.len(), WORDS_MAX + 1);
        let Ok(Pattern::Words { unwanted, .. }) =
            Pattern::words(&format!("tree {}", "-lib ".repeat(5_000)))
        else {
            panic!("words")
        };
        assert!(unwanted.len() == 1 && unwanted.capacity() < 100, "{}", unwanted.capacity());
    }

    #[test]
    fn regular_expressions_are_bounded() {
        let refused = |text: &str| Pattern::regex(text).map(drop).unwrap_err();
        let Ok(Pattern::Regex(regex)) = Pattern::regex("^lib.*-git$") else { panic!("a pattern") };
        assert!(regex.is_match(b"LIBX-GIT"));
        assert!(refused("(a").starts_with("`(a` is not a regular expression: "));
        for text in [r"\w{200}", "((a{60}){60}){60}", &"(".repeat(100)] {
            assert!(!refused(text).is_empty());
        }
        assert!(refused(&"a".repeat(257)).contains("256 characters"));
    }
}
