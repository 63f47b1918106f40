//! [`difference`]: what changed between two revisions, as a unified diff.

use std::borrow::Cow;

use similar::{Algorithm, TextDiff};

use crate::{ArticleName, Revision, RevisionFacts};

/// One side of a comparison or a merge.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The article.
    pub name: &'a ArticleName,
    /// The revision.
    pub revision: Revision,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether its media type is a text type ([`crate::ContentType::is_textual`]). Bytes that are not UTF-8, or
    /// contain a NUL, are treated as binary all the same.
    pub is_textual: bool,
}

/// Bounds on a comparison. No clock is read: these bounds limit the work too, as the search for the shortest
/// difference gives up early where the texts have few lines in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferenceLimits {
    /// Most bytes on all sides together.
    pub bytes_max: usize,
    /// Most lines on all sides together.
    pub lines_max: usize,
}

impl Default for DifferenceLimits {
    fn default() -> DifferenceLimits {
        DifferenceLimits { bytes_max: 8 << 20, lines_max: 60_000 }
    }
}

/// What changed between two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The unified diff, `text/x-diff; charset=utf-8`; empty if the bytes are the same.
    pub text: String,
    /// Whether a side is not text; the diff then says only that they differ.
    pub is_binary: bool,
}

/// Why two texts cannot be compared: it would take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DifferenceError {
    /// Too many bytes.
    #[error(
        "the texts have {bytes} bytes together, which is too much to compare: at most {bytes_max} were \
         expected"
    )]
    Bytes {
        /// Bytes on all sides together.
        bytes: usize,
        /// The most bytes that are allowed.
        bytes_max: usize,
    },
    /// Too many lines.
    #[error(
        "the texts have {lines} lines together, which is too much to compare: at most {lines_max} were \
         expected"
    )]
    Lines {
        /// Lines on all sides together.
        lines: usize,
        /// The most lines that are allowed.
        lines_max: usize,
    },
}

impl<'a> Side<'a> {
    /// A stored revision, whose blob is `bytes`; a deletion is an empty text.
    pub fn of(name: &'a ArticleName, facts: &RevisionFacts, bytes: &'a [u8]) -> Side<'a> {
        let is_textual = facts.content().is_none_or(|content| content.content_type.is_textual());
        Side { name, revision: facts.revision, bytes, is_textual }
    }

    /// The bytes as text; `None` if they are not text.
    pub(crate) fn text(&self) -> Option<&'a str> {
        let text = self.is_textual.then(|| std::str::from_utf8(self.bytes).ok()).flatten()?;
        (!self.bytes.contains(&0)).then_some(text)
    }
}

impl DifferenceLimits {
    pub(crate) fn check(&self, sides: &[Side<'_>]) -> Result<(), DifferenceError> {
        let bytes = sides.iter().map(|side| side.bytes.len()).sum();
        if bytes > self.bytes_max {
            return Err(DifferenceError::Bytes { bytes, bytes_max: self.bytes_max });
        }
        let is_end = |byte: &&u8| matches!(byte, b'\n' | b'\r');
        let lines = sides.iter().map(|side| side.bytes.iter().filter(is_end).count()).sum();
        if lines > self.lines_max {
            return Err(DifferenceError::Lines { lines, lines_max: self.lines_max });
        }
        Ok(())
    }
}

/// The unified diff from `from` to `to`, with three lines of context.
///
/// # Errors
/// [`DifferenceError`] if both sides are text, but too long to compare.
pub fn difference(
    from: Side<'_>,
    to: Side<'_>,
    limits: &DifferenceLimits,
) -> Result<Difference, DifferenceError> {
    // `patch` takes whatever follows a tab after the name for a time.
    let label =
        |side: &Side<'_>| format!("{}\tversion {}", quoted(side.name.as_str()), side.revision);
    let (Some(from_text), Some(to_text)) = (from.text(), to.text()) else {
        let said = |side: &Side<'_>| format!("{} version {}", side.name, side.revision);
        let text = match from.bytes == to.bytes {
            true => String::new(),
            false => format!("Binary files {} and {} differ\n", said(&from), said(&to)),
        };
        return Ok(Difference { text, is_binary: true });
    };
    if from_text == to_text {
        return Ok(Difference { text: String::new(), is_binary: false });
    }
    limits.check(&[from, to])?;
    let text = unified((&label(&from), from_text), (&label(&to), to_text));
    Ok(Difference { text, is_binary: false })
}

/// The name as a header has it: `patch` and git take a quotation mark for the beginning of a quoted name.
fn quoted(name: &str) -> Cow<'_, str> {
    match name.contains('"') {
        true => format!("\"{}\"", name.replace('"', "\\\"")).into(),
        false => name.into(),
    }
}

/// The unified diff of two labelled texts, whose lines end as those of `patch` do: a lone CR is a character.
fn unified(from: (&str, &str), to: (&str, &str)) -> String {
    let [old, new] = [from.1, to.1].map(|text| text.split_inclusive('\n').collect::<Vec<&str>>());
    let lines = TextDiff::configure().algorithm(Algorithm::Myers).diff_slices(&old, &new);
    let mut text = format!("--- {}\n+++ {}\n", from.0, to.0);
    for hunk in lines.unified_diff().iter_hunks() {
        text.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let line = change.value();
            text.push_str(&format!("{}{line}", change.tag()));
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(
        from: &[u8],
        to: &[u8],
        limits: &DifferenceLimits,
    ) -> Result<String, DifferenceError> {
        let name = ArticleName::parse("docs/a b").expect("a name");
        let side = |revision, bytes| Side {
            name: &name,
            revision: Revision(revision),
            bytes,
            is_textual: true,
        };
        difference(side(1, from), side(2, to), limits).map(|difference| difference.text)
    }

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        let text = compare(from.as_bytes(), to.as_bytes(), &DifferenceLimits::default());
        assert_eq!(text.as_deref(), Ok(expected));
    }

    #[test]
    fn changes_are_shown_in_their_context() {
        check(
            "1\n2\n3\n4\n5\n6\n",
            "1\n2\n3\n4\nfive\n6\n",
            "--- docs/a b\tversion 1\n+++ docs/a b\tversion 2\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n+five\n 6\n",
        );
        check(
            "",
            "new\n",
            "--- docs/a b\tversion 1\n+++ docs/a b\tversion 2\n@@ -0,0 +1 @@\n+new\n",
        );
        check(
            "a\n",
            "a",
            "--- docs/a b\tversion 1\n+++ docs/a b\tversion 2\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n",
        );
        check("same", "same", "");
    }

    #[test]
    fn lines_end_where_patch_sees_an_end() {
        let head = "--- docs/a b\tversion 1\n+++ docs/a b\tversion 2\n";
        let end = "\\ No newline at end of file\n";
        check("a\rb\nc\n", "a\rB\nc\n", &format!("{head}@@ -1,2 +1,2 @@\n-a\rb\n+a\rB\n c\n"));
        check("a\r", "b\r", &format!("{head}@@ -1 +1 @@\n-a\r\n{end}+b\r\n{end}"));
        check("a\r\n", "a\n", &format!("{head}@@ -1 +1 @@\n-a\r\n+a\n"));
        check("a\u{2028}b\n", "a\n", &format!("{head}@@ -1 +1 @@\n-a\u{2028}b\n+a\n"));
        assert_eq!((&*quoted("a\"b"), &*quoted("a b")), ("\"a\\\"b\"", "a b"));
    }

    #[test]
    fn a_diff_of_binary_content_says_only_that_it_differs() {
        let limits = DifferenceLimits { bytes_max: 0, lines_max: 0 };
        assert_eq!(
            compare(b"\xff", b"text", &limits).as_deref(),
            Ok("Binary files docs/a b version 1 and docs/a b version 2 differ\n")
        );
        assert_eq!(compare(b"a\0", b"a\0", &limits).as_deref(), Ok(""));
    }

    #[test]
    fn texts_too_long_to_compare_are_refused() {
        let limits = DifferenceLimits { bytes_max: 10, lines_max: 3 };
        assert!(compare(b"a\nb\n", b"a\n", &limits).is_ok());
        assert_eq!(
            compare(b"a\nb\n", b"a\nc\n", &limits),
            Err(DifferenceError::Lines { lines: 4, lines_max: 3 })
        );
        assert_eq!(
            compare(b"abcdef", b"abcde", &limits),
            Err(DifferenceError::Bytes { bytes: 11, bytes_max: 10 })
        );
    }

    /// Checks that the `-` and ` ` lines give the old text, and the `+` and ` ` lines the new one, for a diff with
    /// all context.
    #[track_caller]
    fn check_sides(from: &str, to: &str) {
        let text = compare(from.as_bytes(), to.as_bytes(), &DifferenceLimits::default());
        let text = text.expect("short texts");
        let side = |mark: char| -> Vec<String> {
            let lines = text.lines().skip(2).filter(|line| !line.starts_with('@'));
            lines
                .filter(|line| line.starts_with([' ', mark]))
                .map(|line| line[1..].to_owned())
                .collect()
        };
        if from != to {
            assert_eq!(side('-'), from.lines().collect::<Vec<_>>(), "{text}");
            assert_eq!(side('+'), to.lines().collect::<Vec<_>>(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_diff_has_both_texts(from in "([ab+-]?\n){0,4}", to in "([ab@-]?\n){0,4}") {
            check_sides(&from, &to);
        }
    }
}
