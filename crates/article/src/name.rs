//! [`ArticleName`]: which names articles may have, and why others are refused.
//!
//! A name appears in URLs, in lists and in keys of the store. So of two names that look alike, either both are one
//! name or at least one is refused: invisible characters are only where they change what is seen. A name must survive
//! every proxy between server and reader; and no name may be mistaken for one of an article's own pages.

use std::sync::Arc;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::joining::is_meaningful;

/// The name of an article: 1 to 512 bytes of visible text in Unicode's normalization form C, in segments separated by
/// `/`. Names are compared byte by byte and are case-sensitive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArticleName(Arc<str>);

/// Why a text cannot be an article's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArticleNameError {
    /// The text is empty.
    #[error("an article's name cannot be empty")]
    Empty,
    /// More than [`ArticleName::BYTES_MAX`] bytes after normalization.
    #[error(
        "an article's name of {size_bytes} bytes is too long: at most {max} were expected",
        max = ArticleName::BYTES_MAX
    )]
    TooLong {
        /// Its size in bytes.
        size_bytes: usize,
    },
    /// Two slashes in a row, or a slash at the start or the end.
    #[error("`{name}` is not an article's name: a path segment is empty")]
    EmptySegment {
        /// The text.
        name: String,
    },
    /// A segment `.` or `..`, which clients and proxies resolve before the server sees it.
    #[error("`{name}` is not an article's name: `.` and `..` cannot be segments of it")]
    DotSegment {
        /// The text.
        name: String,
    },
    /// A character that is invisible, changes the direction of text, is a control character or separates paths.
    #[error(
        "`{name}` is not an article's name: it contains {what} U+{code:04X}",
        code = *.character as u32
    )]
    Character {
        /// The text, with these characters escaped.
        name: String,
        /// The first such character.
        character: char,
        /// A description of the character.
        what: &'static str,
    },
    /// A segment that begins or ends with a space, or begins with a mark that would sit on the slash.
    #[error("`{name}` is not an article's name: its segment `{segment}` {what}")]
    SegmentEdge {
        /// The text.
        name: String,
        /// The segment.
        segment: String,
        /// What is wrong with the name.
        what: &'static str,
    },
    /// A percent sign followed by two hexadecimal digits: the name was encoded twice.
    #[error(
        "`{name}` is not an article's name: `{escape}` in it is a percent-escape, so the name was encoded twice"
    )]
    Escape {
        /// The text.
        name: String,
        /// The first such escape: three characters.
        escape: String,
    },
    /// The last segment is `history`, `diff` or a number, which are pages of the article before it.
    #[error(
        "`{name}` is not an article's name: it cannot end in `{segment}`, as `history`, `diff` and \
         numbers in the last place are pages of an article"
    )]
    Reserved {
        /// The text.
        name: String,
        /// The last segment.
        segment: String,
    },
}

impl ArticleName {
    /// Most bytes in a name.
    pub const BYTES_MAX: usize = 512;

    /// Normalizes `text` to form C and checks it.
    ///
    /// # Errors
    /// [`ArticleNameError`], for the first rule that the text breaks.
    pub fn parse(text: &str) -> Result<ArticleName, ArticleNameError> {
        // Composing can shrink text, but only so far; this check keeps the work for hostile text small.
        if text.len() > 4 * ArticleName::BYTES_MAX {
            return Err(ArticleNameError::TooLong { size_bytes: text.len() });
        }
        let name = normalize(text);
        if name.is_empty() {
            return Err(ArticleNameError::Empty);
        }
        if name.len() > ArticleName::BYTES_MAX {
            return Err(ArticleNameError::TooLong { size_bytes: name.len() });
        }
        if let Some((character, what)) = first_refused(&name) {
            let name = name
                .chars()
                .flat_map(|character| match refused(character) {
                    Some(_) => character.escape_unicode().collect(),
                    None => vec![character],
                })
                .collect();
            return Err(ArticleNameError::Character { name, character, what });
        }
        if let Some(escape) = escape(&name) {
            return Err(ArticleNameError::Escape { escape: escape.to_owned(), name });
        }
        let edge = |segment: &str, what| {
            let (name, segment) = (name.clone(), segment.to_owned());
            Err(ArticleNameError::SegmentEdge { name, segment, what })
        };
        let mut last = "";
        for segment in name.split('/') {
            last = segment;
            if segment.is_empty() {
                return Err(ArticleNameError::EmptySegment { name });
            }
            if segment == "." || segment == ".." {
                return Err(ArticleNameError::DotSegment { name });
            }
            if segment.starts_with(' ') || segment.ends_with(' ') {
                return edge(segment, "begins or ends with a space");
            }
            if segment.starts_with(is_combining_mark) {
                return edge(segment, "begins with a combining mark");
            }
        }
        if is_reserved(last) {
            return Err(ArticleNameError::Reserved { segment: last.to_owned(), name });
        }
        Ok(ArticleName(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as text that others may share.
    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

/// `text` in Unicode's normalization form C.
pub(crate) fn normalize(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfc().collect() }
}

/// Whether a path's last segment names a page of an article and is not a part of its name.
pub(crate) fn is_reserved(segment: &str) -> bool {
    segment == "history" || segment == "diff" || is_number(segment)
}

pub(crate) fn is_number(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit())
}

/// The first `%` with two hexadecimal digits.
pub(crate) fn escape(name: &str) -> Option<&str> {
    let at = name.as_bytes().windows(3).position(|window| {
        window[0] == b'%' && window[1].is_ascii_hexdigit() && window[2].is_ascii_hexdigit()
    })?;
    name.get(at..at + 3)
}

/// The first character of a text that names cannot contain there, and a description of it.
pub(crate) fn first_refused(text: &str) -> Option<(char, &'static str)> {
    text.char_indices().find_map(|(at, _)| refused_at(text, at))
}

/// The character at this byte of a text and a description of it, if names cannot contain it there.
pub(crate) fn refused_at(text: &str, at: usize) -> Option<(char, &'static str)> {
    let (before, rest) = text.split_at(at);
    let mut characters = rest.chars();
    let found = refused(characters.next()?)?;
    (!is_meaningful(before, found.0, characters.as_str())).then_some(found)
}

/// The character and a description of it, if names cannot contain it, or only between certain others.
pub(crate) fn refused(character: char) -> Option<(char, &'static str)> {
    let what = match character {
        '\\' => "a backslash, which some systems take for a slash,",
        '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            "a mark that changes the direction of text,"
        }
        // Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt): soft hyphen, joiners and
        // other zero-width characters, fillers, variation selectors, tags.
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => "an invisible character,",
        '\u{fff9}'..='\u{fffb}' => "a mark of annotations,",
        '\u{fffd}' => "what broken text is replaced by,",
        '\u{fdd0}'..='\u{fdef}' => "no character at all,",
        _ if character as u32 & 0xfffe == 0xfffe => "no character at all,",
        _ if character.is_control() => "a control character,",
        ' ' => return None,
        _ if character.is_whitespace() => "white space other than a plain space,",
        _ => return None,
    };
    Some((character, what))
}

::record::checked_text!(ArticleName, ArticleNameError);
::record::found_by_text!(ArticleName);

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match ArticleName::parse(text) {
            Ok(name) => name.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(found, expected, "{text:?}");
    }

    #[track_caller]
    fn accepted(text: &str) {
        check(text, text);
    }

    #[track_caller]
    fn refused(text: &str, reason: &str) {
        let error = ArticleName::parse(text).expect_err(text).to_string();
        let (_, found) = error.split_once("` is not an article's name: ").expect(&error);
        assert_eq!(found, reason, "{text:?}");
    }

    #[test]
    fn names_are_hierarchies_of_visible_text() {
        accepted("a");
        accepted("Guide/Getting started");
        accepted("2024/report");
        accepted("history/of art");
        accepted("100%");
        accepted("5% 6%g");
        accepted("日本語/東京");
        accepted("a.b/..c/...");
        accepted("Ὀδύσσεια");
        accepted(&"x".repeat(512));
    }

    #[test]
    fn names_are_composed() {
        check("e\u{301}tude", "étude");
        check("\u{212b}", "Å");
        check(&"e\u{301}".repeat(256), &"é".repeat(256));
    }

    #[test]
    fn refusals_of_names_give_the_reason() {
        check("", "error: an article's name cannot be empty");
        check(
            "a\u{202e}b",
            "error: `a\\u{202e}b` is not an article's name: it contains a mark that changes the \
             direction of text, U+202E",
        );
        check(
            "docs/history",
            "error: `docs/history` is not an article's name: it cannot end in `history`, as `history`, \
             `diff` and numbers in the last place are pages of an article",
        );
        for (text, segment) in [("diff", "diff"), ("reports/2024", "2024"), ("0", "0")] {
            let pages =
                "as `history`, `diff` and numbers in the last place are pages of an article";
            refused(text, &format!("it cannot end in `{segment}`, {pages}"));
        }
        for (text, bytes) in [("x", 513), ("é", 514), ("x", 9_999)] {
            let expected = format!(
                "error: an article's name of {bytes} bytes is too long: at most 512 were expected"
            );
            check(&text.repeat(bytes / text.len()), &expected);
        }
        refused("/a", "a path segment is empty");
        refused("a/", "a path segment is empty");
        refused("a//b", "a path segment is empty");
        refused("a/../b", "`.` and `..` cannot be segments of it");
        refused(".", "`.` and `..` cannot be segments of it");
        refused("a\\b", "it contains a backslash, which some systems take for a slash, U+005C");
        refused("a\0", "it contains a control character, U+0000");
        refused("a\nb", "it contains a control character, U+000A");
        refused("a\u{85}b", "it contains a control character, U+0085");
        refused("a\u{a0}b", "it contains white space other than a plain space, U+00A0");
        refused("a\u{3000}b", "it contains white space other than a plain space, U+3000");
        refused("a\u{2028}b", "it contains white space other than a plain space, U+2028");
        refused("a\u{200b}b", "it contains an invisible character, U+200B");
        refused("a\u{200d}b", "it contains an invisible character, U+200D");
        refused("a\u{feff}", "it contains an invisible character, U+FEFF");
        refused("a\u{fe0f}", "it contains an invisible character, U+FE0F");
        refused("a\u{e0041}", "it contains an invisible character, U+E0041");
        refused("a\u{fffd}", "it contains what broken text is replaced by, U+FFFD");
        refused("a\u{1ffff}", "it contains no character at all, U+1FFFF");
        refused(" a", "its segment ` a` begins or ends with a space");
        refused("a /b", "its segment `a ` begins or ends with a space");
        refused("a/\u{301}b", "its segment `\u{301}b` begins with a combining mark");
        refused("a%2Fb", "`%2F` in it is a percent-escape, so the name was encoded twice");
        refused("%2e%2e", "`%2e` in it is a percent-escape, so the name was encoded twice");
        refused("%00", "`%00` in it is a percent-escape, so the name was encoded twice");
    }

    /// Text with many of the characters and sequences that the rules of names are about.
    pub(crate) fn hostile_text() -> impl Strategy<Value = String> {
        let character = prop_oneof![
            4 => prop::sample::select(vec![
                '/', '.', '%', '2', 'f', 'F', '0', ' ', '\\', 'a', 'B', 'é', '\u{301}', '\u{338}', '<',
                '\u{200b}', '\u{202e}', '\u{feff}', '\0', '\n', '日', '😀', '\u{fe0f}', '\u{212b}', 'ß',
                '\u{1100}', '\u{1161}', '\u{37e}',
            ]),
            1 => any::<char>(),
        ];
        proptest::collection::vec(character, 0..12)
            .prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn a_name_is_its_own_text(text in hostile_text()) {
            if let Ok(name) = ArticleName::parse(&text) {
                prop_assert_eq!(ArticleName::parse(name.as_str()), Ok(name.clone()));
                prop_assert_eq!(ArticleName::parse(&name.to_string()), Ok(name.clone()));
                prop_assert!(!name.as_str().split('/').any(|segment| matches!(segment, "" | "." | "..")));
                prop_assert!(name.as_str().nfc().eq(name.as_str().chars()));
            }
        }

        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            if let Err(error) = ArticleName::parse(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
