//! [`compare`]: two texts, line by line, as a page shows them.

use similar::{Algorithm, DiffOp, TextDiff};

/// Lines around a change that are shown.
const CONTEXT_LINES: usize = 3;

/// Bytes of both texts together.
const BYTES_MAX: usize = 1 << 20;

/// Lines of both texts together.
const LINES_MAX: usize = 20_000;

/// Lines that are compared word by word with the line that replaces each, and how long they may be together.
const PAIRS_MAX: usize = 300;
const PAIR_BYTES_MAX: usize = 2_000;

/// The common and the different lines of two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The places that differ, each with some lines around it; empty if the texts are the same.
    pub places: Vec<Vec<Block>>,
    /// How many lines the second text has that the first has not.
    pub added: usize,
    /// How many lines the first text has that the second has not.
    pub removed: usize,
}

/// Lines that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Lines of both.
    Same(Vec<Line>),
    /// Lines of the first text that the second one replaces by others. One side may have none.
    Changed {
        /// Lines of the first.
        old: Vec<Cell>,
        /// Lines of the second.
        new: Vec<Cell>,
    },
}

/// A line of both texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the first text, from 1.
    pub old: usize,
    /// Its number in the second text, from 1.
    pub new: usize,
    /// The text without its line end.
    pub text: String,
}

/// A line of one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its number, from 1.
    pub number: usize,
    /// Its text, without its end.
    pub pieces: Vec<LinePart>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePart {
    /// Whether the other text differs here, in an otherwise similar line.
    pub is_changed: bool,
    /// The part.
    pub text: String,
}

/// The texts are too long to compare them for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the texts have {bytes} bytes and {lines} lines together: at most {BYTES_MAX} bytes and {LINES_MAX} lines are compared in \
     a page"
)]
pub struct InputTooLong {
    /// Bytes of both texts.
    pub bytes: usize,
    /// Lines of both texts.
    pub lines: usize,
}

impl Block {
    /// The lines side by side: `None` where a side has no line.
    pub fn pairs(&self) -> Vec<(Option<&Cell>, Option<&Cell>)> {
        match self {
            Block::Same(_) => Vec::new(),
            Block::Changed { old, new } => {
                (0..old.len().max(new.len())).map(|at| (old.get(at), new.get(at))).collect()
            }
        }
    }
}

/// Compares two texts.
///
/// # Errors
/// [`InputTooLong`]
pub fn compare(old: &str, new: &str) -> Result<Comparison, InputTooLong> {
    let bytes = old.len() + new.len();
    let lines = [old, new].map(|text| text.bytes().filter(|byte| *byte == b'\n').count() + 1);
    let lines = lines[0] + lines[1];
    if bytes > BYTES_MAX || lines > LINES_MAX {
        return Err(InputTooLong { bytes, lines });
    }
    let found = TextDiff::configure().algorithm(Algorithm::Myers).diff_lines(old, new);
    let old_lines: Vec<&str> = found.iter_old_slices().collect();
    let new_lines: Vec<&str> = found.iter_new_slices().collect();
    let mut comparison = Comparison::default();
    let mut pairs_left = PAIRS_MAX;
    for group in found.grouped_ops(CONTEXT_LINES) {
        let mut blocks: Vec<Block> = Vec::new();
        for op in group {
            if let DiffOp::Equal { old_index, new_index, len } = op {
                let line = |at: usize| Line {
                    old: old_index + at + 1,
                    new: new_index + at + 1,
                    text: without_end(old_lines[old_index + at]).to_owned(),
                };
                blocks.push(Block::Same((0..len).map(line).collect()));
                continue;
            }
            let (mut old, mut new) = (op.old_range(), op.new_range());
            comparison.removed += old.len();
            comparison.added += new.len();
            let mut sides = (Vec::new(), Vec::new());
            loop {
                let (old, new) = (old.next(), new.next());
                if let (Some(old), Some(new)) = (old, new)
                    && pairs_left > 0
                {
                    pairs_left -= 1;
                    let pieces = by_words(old_lines[old], new_lines[new]);
                    sides.0.push(Cell { number: old + 1, pieces: pieces.0 });
                    sides.1.push(Cell { number: new + 1, pieces: pieces.1 });
                    continue;
                }
                if old.is_none() && new.is_none() {
                    break;
                }
                sides.0.extend(old.map(|at| whole(at, old_lines[at])));
                sides.1.extend(new.map(|at| whole(at, new_lines[at])));
            }
            // A removal and an addition that touch each other are one change.
            match blocks.last_mut() {
                Some(Block::Changed { old, new }) => {
                    old.extend(sides.0);
                    new.extend(sides.1);
                }
                _ => blocks.push(Block::Changed { old: sides.0, new: sides.1 }),
            }
        }
        comparison.places.push(blocks);
    }
    Ok(comparison)
}

fn without_end(line: &str) -> &str {
    line.trim_end_matches(['\n', '\r'])
}

fn piece(text: &str, is_changed: bool) -> LinePart {
    LinePart { text: text.to_owned(), is_changed }
}

fn whole(at: usize, line: &str) -> Cell {
    Cell { number: at + 1, pieces: vec![piece(without_end(line), false)] }
}

/// The differences within two lines; nothing is marked if they have little in common.
fn by_words(old: &str, new: &str) -> (Vec<LinePart>, Vec<LinePart>) {
    let (old, new) = (without_end(old), without_end(new));
    let unmarked = || (vec![piece(old, false)], vec![piece(new, false)]);
    if old.len() + new.len() > PAIR_BYTES_MAX {
        return unmarked();
    }
    let found = TextDiff::configure().algorithm(Algorithm::Myers).diff_words(old, new);
    let (old_words, new_words): (Vec<&str>, Vec<&str>) =
        (found.iter_old_slices().collect(), found.iter_new_slices().collect());
    let mut sides: (Vec<LinePart>, Vec<LinePart>) = (Vec::new(), Vec::new());
    let mut common_bytes = 0;
    for op in found.ops() {
        let is_changed = !matches!(op, DiffOp::Equal { .. });
        let (one, other) = (old_words[op.old_range()].concat(), new_words[op.new_range()].concat());
        if !is_changed {
            common_bytes += one.trim().len();
        }
        let texts = [(&mut sides.0, one), (&mut sides.1, other)];
        for (side, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            side.push(LinePart { text, is_changed });
        }
    }
    if common_bytes * 3 < old.len().min(new.len()) { unmarked() } else { sides }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places, one line of text for each line: `=` both, `-` the first, `+` the second; `[…]` is what changed.
    #[track_caller]
    fn check(old: &str, new: &str, expected: &[&str]) {
        let comparison = compare(old, new).expect("short texts");
        let text = |cell: &Cell| -> String {
            let shown = cell.pieces.iter().map(|piece| match piece.is_changed {
                true => format!("[{}]", piece.text),
                false => piece.text.clone(),
            });
            format!("{} {}", cell.number, shown.collect::<String>())
        };
        let mut found = Vec::new();
        for block in comparison.places.iter().flatten() {
            match block {
                Block::Same(lines) => found
                    .extend(lines.iter().map(|it| format!("={} {} {}", it.old, it.new, it.text))),
                Block::Changed { old, new } => {
                    found.extend(old.iter().map(|cell| format!("-{}", text(cell))));
                    found.extend(new.iter().map(|cell| format!("+{}", text(cell))));
                }
            }
        }
        assert_eq!(found, expected);
        let count = |mark: char| found.iter().filter(|line| line.starts_with(mark)).count();
        assert_eq!((comparison.removed, comparison.added), (count('-'), count('+')));
    }

    #[test]
    fn lines_are_compared_and_words_within_them() {
        check("a\nb\n", "a\nb\n", &[]);
        check(
            "1\n2\n3\n4\nthe old line\n",
            "1\n2\n3\n4\nthe new line\n",
            &["=2 2 2", "=3 3 3", "=4 4 4", "-5 the [old] line", "+5 the [new] line"],
        );
        check("", "x\n", &["+1 x"]);
        check("x", "", &["-1 x"]);
        check("a\n", "a\nb\n", &["=1 1 a", "+2 b"]);
        // Little in common: nothing is marked.
        check("alpha beta\n", "gamma delta\n", &["-1 alpha beta", "+1 gamma delta"]);
        check("<script>\r\n", "<b>\r\n", &["-1 <script>", "+1 <b>"]);
    }

    #[test]
    fn sides_have_as_many_lines_as_the_longer() {
        let comparison = compare("a\nb\nc\n", "x\n").expect("short texts");
        let pairs = comparison.places[0][0].pairs();
        let numbers = |pair: &(Option<&Cell>, Option<&Cell>)| {
            (pair.0.map(|cell| cell.number), pair.1.map(|cell| cell.number))
        };
        let numbers: Vec<_> = pairs.iter().map(numbers).collect();
        assert_eq!(numbers, [(Some(1), Some(1)), (Some(2), None), (Some(3), None)]);
    }

    #[test]
    fn long_texts_are_refused() {
        let long = "a\n".repeat(LINES_MAX);
        assert_eq!(compare(&long, "a").map_err(|error| error.lines), Err(LINES_MAX + 2));
        assert!(compare(&"x".repeat(BYTES_MAX), "x").is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_line_is_on_its_side(old in "([ab]{0,2}\n){0,9}", new in "([ab]{0,2}\n){0,9}") {
            let comparison = compare(&old, &new).expect("short texts");
            let (mut removed, mut added) = (0, 0);
            let (old_lines, new_lines): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
            let joined = |cell: &Cell| cell.pieces.iter().map(|piece| piece.text.as_str()).collect::<String>();
            for block in comparison.places.iter().flatten() {
                match block {
                    Block::Same(lines) => for line in lines {
                        proptest::prop_assert_eq!(old_lines[line.old - 1], &line.text);
                        proptest::prop_assert_eq!(new_lines[line.new - 1], &line.text);
                    },
                    Block::Changed { old, new } => {
                        removed += old.len();
                        added += new.len();
                        for cell in old {
                            proptest::prop_assert_eq!(old_lines[cell.number - 1], joined(cell));
                        }
                        for cell in new {
                            proptest::prop_assert_eq!(new_lines[cell.number - 1], joined(cell));
                        }
                    }
                }
            }
            proptest::prop_assert_eq!(old_lines.len() + added, new_lines.len() + removed);
            proptest::prop_assert_eq!(old == new, comparison.places.is_empty());
        }
    }
}
