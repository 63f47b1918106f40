//! [`merge`]: a proposal to a writer whose text was made from a revision that is no longer the latest.

use similar::{Algorithm, ConflictStyle, TextMerge};

use crate::{DifferenceError, DifferenceLimits, Side};

/// The three texts of a merge.
#[derive(Clone, Copy, Debug)]
pub struct MergeSides<'a> {
    /// The text that both others were made from; `None` if the writer named no existing revision.
    pub base: Option<Side<'a>>,
    /// The latest revision; `None` if that is a deletion.
    pub latest: Option<Side<'a>>,
    /// The text that was refused; its revision number is not used.
    pub refused: Side<'a>,
}

/// The outcome of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The changes do not overlap: this text contains both.
    Clean(String),
    /// Some places were changed on both sides.
    Conflict {
        /// The text; at each such place it has all versions, between markers that name them: `<<<<<<< version 5 (latest)`,
        /// `||||||| version 3 (base)`, `=======`, `>>>>>>> this write`. The markers are longer than such runs of characters in
        /// the texts.
        text: String,
        /// The places that both changed, in order.
        hunks: Vec<Hunk>,
    },
    /// There is no proposal.
    NotMergeable(NotMergeable),
}

/// A place that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Its first line in the base, from 1; if the place is empty there, the line after it.
    pub base_line: usize,
    /// Its lines in the base.
    pub base: String,
    /// Its lines in the latest revision.
    pub latest: String,
    /// Its lines in the refused text.
    pub refused: String,
}

/// Why no merge is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMergeable {
    /// There is no common base text.
    #[error("the write was not made from a version that has a text")]
    NoBase,
    /// The latest revision has no text.
    #[error("the article was deleted in the meantime")]
    Deleted,
    /// The latest revision leads to another name.
    #[error("the article was renamed in the meantime")]
    Renamed,
    /// At least one side is not text.
    #[error("only text can be merged")]
    NotText,
    /// Comparing would take too long.
    #[error(transparent)]
    TooLarge(DifferenceError),
}

/// Proposes a text with both changes: those of the latest revision and those of the refused text.
pub fn merge(sides: MergeSides<'_>, limits: &DifferenceLimits) -> Merge {
    let Some(latest) = sides.latest else { return Merge::NotMergeable(NotMergeable::Deleted) };
    let Some(base) = sides.base else { return Merge::NotMergeable(NotMergeable::NoBase) };
    let refused = sides.refused;
    let (Some(base_text), Some(latest_text), Some(refused_text)) =
        (base.text(), latest.text(), refused.text())
    else {
        return Merge::NotMergeable(NotMergeable::NotText);
    };
    if let Err(error) = limits.check(&[base, latest, refused]) {
        return Merge::NotMergeable(NotMergeable::TooLarge(error));
    }
    let mut merged = TextMerge::configure().algorithm(Algorithm::Myers).merge_lines(
        base_text,
        latest_text,
        refused_text,
    );
    let longest_run = [base_text, latest_text, refused_text].into_iter().map(longest_marker).max();
    merged
        .conflict_style(ConflictStyle::Diff3)
        .conflict_marker_size((longest_run.unwrap_or_default() + 1).max(7))
        .labels(
            &format!("version {} (base)", base.revision),
            &format!("version {} (latest)", latest.revision),
            "this write",
        );
    if !merged.is_conflicted() {
        return Merge::Clean(merged.to_string());
    }
    let hunks = merged.conflicts().map(|region| Hunk {
        base_line: region.base_range().start + 1,
        base: region.base_range().filter_map(|line| merged.base_line(line)).collect(),
        latest: region.ours_range().filter_map(|line| merged.ours_line(line)).collect(),
        refused: region.theirs_range().filter_map(|line| merged.theirs_line(line)).collect(),
    });
    Merge::Conflict { text: merged.to_string(), hunks: hunks.collect() }
}

/// The length of the longest run of a marker's character at the beginning of a line.
fn longest_marker(text: &str) -> usize {
    let run = |line: &str| match line.as_bytes().first() {
        Some(&mark @ (b'<' | b'|' | b'=' | b'>')) => {
            line.bytes().take_while(|&byte| byte == mark).count()
        }
        _ => 0,
    };
    text.split(['\n', '\r']).map(run).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArticleName, Revision};

    fn merged(base: &[u8], latest: &[u8], refused: &[u8], limits: &DifferenceLimits) -> Merge {
        let name = ArticleName::parse("a").expect("a name");
        let side = |revision, bytes| Side {
            name: &name,
            revision: Revision(revision),
            bytes,
            is_textual: true,
        };
        let sides = MergeSides {
            base: Some(side(3, base)),
            latest: Some(side(5, latest)),
            refused: side(6, refused),
        };
        merge(sides, limits)
    }

    #[track_caller]
    fn check(base: &str, latest: &str, refused: &str, expected: &str) {
        let limits = DifferenceLimits::default();
        let found = match merged(base.as_bytes(), latest.as_bytes(), refused.as_bytes(), &limits) {
            Merge::Clean(text) => text,
            Merge::Conflict { text, .. } => format!("conflict\n{text}"),
            Merge::NotMergeable(reason) => reason.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn changes_in_different_places_merge_cleanly() {
        check("1\n2\n3\n4\n", "one\n2\n3\n4\n", "1\n2\n3\nfour\n", "one\n2\n3\nfour\n");
        check("1\n2\n3\n", "1\n2\n3\n", "1\n3\n", "1\n3\n");
        check("1\n", "same\n", "same\n", "same\n");
        check("", "", "", "");
        check("1\n2\n3", "0\n1\n2\n3", "1\n2\n3\n4", "0\n1\n2\n3\n4");
    }

    #[test]
    fn changes_in_one_place_are_shown_side_by_side() {
        check(
            "a\n1\nz\n",
            "a\n2\nz\n",
            "a\n3\nz\n",
            "conflict\na\n<<<<<<< version 5 (latest)\n2\n||||||| version 3 (base)\n1\n=======\n3\n\
             >>>>>>> this write\nz\n",
        );
        check(
            "1",
            "2",
            "<<<<<<<<",
            "conflict\n<<<<<<<<< version 5 (latest)\n2\n||||||||| version 3 (base)\n1\n=========\n\
             <<<<<<<<\n>>>>>>>>> this write\n",
        );
        let limits = DifferenceLimits::default();
        let Merge::Conflict { hunks, .. } = merged(b"a\n1\nz\n", b"a\n2\nz\n", b"a\nz\n", &limits)
        else {
            panic!("a conflict");
        };
        let text = |text: &str| text.to_owned();
        let hunk =
            Hunk { base_line: 2, base: text("1\n"), latest: text("2\n"), refused: String::new() };
        assert_eq!(hunks, [hunk]);
    }

    #[test]
    fn reasons_not_to_merge() {
        let limits = DifferenceLimits { bytes_max: 5, lines_max: 9 };
        let not_text = Merge::NotMergeable(NotMergeable::NotText);
        assert_eq!(merged(b"a", b"\xff", b"b", &limits), not_text);
        let too_large = DifferenceError::Bytes { bytes: 6, bytes_max: 5 };
        let too_large = Merge::NotMergeable(NotMergeable::TooLarge(too_large));
        assert_eq!(merged(b"aa", b"bb", b"cc", &limits), too_large);
        let name = ArticleName::parse("a").expect("a name");
        let side = Side { name: &name, revision: Revision(1), bytes: b"", is_textual: true };
        let sides = MergeSides { base: None, latest: Some(side), refused: side };
        assert_eq!(merge(sides, &limits), Merge::NotMergeable(NotMergeable::NoBase));
        let sides = MergeSides { base: Some(side), latest: None, refused: side };
        assert_eq!(merge(sides, &limits), Merge::NotMergeable(NotMergeable::Deleted));
    }

    proptest::proptest! {
        #[test]
        fn one_sided_changes_are_taken(
            base in "([abc]\n){0,6}", changed in "([abcd]\n){0,6}d?",
        ) {
            check(&base, &base, &changed, &changed);
            check(&base, &changed, &base, &changed);
            check(&base, &changed, &changed, &changed);
        }

        #[test]
        fn any_texts_are_merged(
            base in "[ab<=|>\n\r]{0,20}", latest in "[ab<=|>\n\r]{0,20}", refused in "[ab<=|>\n\ré]{0,20}",
        ) {
            let limits = DifferenceLimits::default();
            match merged(base.as_bytes(), latest.as_bytes(), refused.as_bytes(), &limits) {
                Merge::Clean(_) => {}
                Merge::Conflict { text, hunks } => {
                    // Only real markers are as long as the first one.
                    let marker: String = "<".repeat(longest_marker(&text));
                    let count = text.split(['\n', '\r']).filter(|line| line.starts_with(&marker)).count();
                    proptest::prop_assert_eq!(count, hunks.len());
                    for hunk in hunks {
                        proptest::prop_assert!(base.contains(&hunk.base));
                        proptest::prop_assert!(latest.contains(&hunk.latest));
                        proptest::prop_assert!(refused.contains(&hunk.refused));
                    }
                }
                Merge::NotMergeable(reason) => panic!("{reason}"),
            }
        }
    }
}
