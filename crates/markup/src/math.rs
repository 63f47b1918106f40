//! Formulas in TeX -> MathML, by a library; what it does not take is shown as it was written.
//!
//! The library is recursive, so a formula is bounded before it sees it: its bytes, and how deep its commands can be within each
//! other. Its output is bounded, too, and goes through the sanitiser with everything else ([`crate::clean`]), which knows what of
//! MathML is harmless: no links, no styles, nothing that runs.

use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;

use math_core::{LatexToMathML, MathCoreConfig, MathDisplay};

/// Bytes of a formula; a longer one is shown as it was written.
const FORMULA_BYTES_MAX: usize = 4_000;

/// Commands, scripts and groups within each other, as they could be at most. The library takes one to three kilobytes of stack
/// for each.
const NESTING_MAX: usize = 200;

/// Elements within each other in the output.
const DEPTH_MAX: usize = 64;

/// Bytes of MathML of a text; further formulas are shown as they were written.
const MATHML_BYTES_MAX: usize = 512 << 10;

/// Without macros of its own: what a formula expands to is no longer than it is.
static CONVERTER: LazyLock<Option<LatexToMathML>> =
    LazyLock::new(|| LatexToMathML::new(MathCoreConfig::default()).ok());

/// The formulas of a text.
#[derive(Debug, Default)]
pub(crate) struct Formulas {
    /// As MathML, until they are in the output.
    waiting: Vec<Option<String>>,
    bytes: usize,
}

impl Formulas {
    /// What stands for the formula until the output is written, as HTML; `None` if it is not understood.
    pub(crate) fn add(&mut self, source: &str, is_display: bool) -> Option<String> {
        if self.bytes > MATHML_BYTES_MAX {
            return None;
        }
        let formula = mathml(source, is_display)?;
        self.bytes += formula.len();
        self.waiting.push(Some(formula));
        Some(format!("<math name=\"{}\"></math>", self.waiting.len() - 1))
    }

    /// The formula that a place is for. Each is there once: a text can name the places, too, but get no more than it has.
    pub(crate) fn take(&mut self, number: &str) -> Option<String> {
        self.waiting.get_mut(number.parse::<usize>().ok()?)?.take()
    }
}

/// The formula as MathML, which ends in the element that it begins with.
fn mathml(source: &str, is_display: bool) -> Option<String> {
    if source.len() > FORMULA_BYTES_MAX || nesting(source) > NESTING_MAX {
        return None;
    }
    let display = if is_display { MathDisplay::Block } else { MathDisplay::Inline };
    // It has no known way to fail but by an error; if it does, the text is shown nevertheless.
    let converting =
        || Some(CONVERTER.as_ref()?.convert_with_local_state(source, display).ok()?.mathml);
    let mut mathml = std::panic::catch_unwind(AssertUnwindSafe(converting)).ok()??;
    // The sides of cells, as classes instead of styles.
    for side in ["left", "right"] {
        let style = format!("<mtd style=\"text-align: {side};");
        mathml = mathml.replace(&style, &format!("<mtd class=\"{side}\" style=\""));
    }
    (depth(&mathml) <= DEPTH_MAX).then_some(mathml)
}

/// How deep the parts of a formula can be within each other at most: as if each command took all that follows it in its group.
fn nesting(source: &str) -> usize {
    // The commands of each open group.
    let mut groups = vec![0];
    let (mut deepest, mut deep) = (0, 0);
    let mut is_comment = false;
    let mut rest = source;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        let mut opens = false;
        let mut closes = false;
        match character {
            '\\' => {
                let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                let (name, after) = rest.split_at(letters);
                opens = matches!(name, "begin" | "left");
                closes = matches!(name, "end" | "right");
                rest = after;
                if name.is_empty() {
                    let mut after = rest.chars();
                    after.next();
                    rest = after.as_str();
                }
            }
            '{' => opens = true,
            '}' => closes = true,
            '^' | '_' | '[' => {}
            '%' | '\n' => {
                is_comment = character == '%';
                continue;
            }
            _ => continue,
        }
        if closes {
            // A comment ends nothing.
            if groups.len() > 1 && !is_comment {
                deep -= groups.pop().unwrap_or_default();
            }
            continue;
        }
        deep += 1;
        match groups.last_mut() {
            Some(last) if !opens => *last += 1,
            // What opens a group is gone with it.
            _ => groups.push(1),
        }
        deepest = deepest.max(deep);
    }
    deepest
}

/// How deep the elements of well-formed XML are within each other.
fn depth(xml: &str) -> usize {
    let (mut deepest, mut deep) = (0, 0_usize);
    for tag in xml.split('<').skip(1) {
        let is_empty = tag.split('>').next().is_some_and(|tag| tag.ends_with('/'));
        if tag.starts_with('/') {
            deep = deep.saturating_sub(1);
        } else if !is_empty {
            deep += 1;
            deepest = deepest.max(deep);
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nesting_is_never_underestimated() {
        for (source, expected) in [
            ("", 0),
            ("x+y", 0),
            ("\\frac{a}{b}", 2),
            ("{{{x}}}", 3),
            ("\\sqrt\\sqrt\\sqrt x", 3),
            ("\\frac a\\frac a b", 2),
            ("x^{y^{z}}", 4),
            ("\\left(\\left(x\\right)\\right)", 2),
            ("\\begin{matrix}a\\end{matrix}", 2),
            ("\\{\\{\\{", 3),
            ("}}}", 0),
            ("{%}\n{%}\n{x", 3),
        ] {
            assert_eq!(nesting(source), expected, "{source}");
        }
    }

    #[test]
    fn a_formula_is_bounded() {
        for (many, end) in [
            ("{", "x"),
            ("\\frac{", "x"),
            ("\\frac a", "x"),
            ("\\hat ", "x"),
            ("x^{", ""),
            ("\\left(", ""),
            ("\\begin{matrix}", ""),
            ("\\sqrt[", "2"),
            ("\\text{", ""),
            ("\\xrightarrow[", "x"),
            ("\\color{red}", "x"),
            ("\\overset x", "y"),
            ("\\binom a", "b"),
            ("_", "x"),
            ("\\", "x"),
            ("é^", "x"),
        ] {
            for count in [60, 198, 10_000] {
                let closed = many.matches('{').count() * count;
                for source in
                    [many.repeat(count) + end, many.repeat(count) + end + &"}".repeat(closed)]
                {
                    let made = mathml(&source, true);
                    assert!(made.is_none_or(|made| depth(&made) <= DEPTH_MAX));
                }
            }
        }
        assert!(mathml(&"x+".repeat(FORMULA_BYTES_MAX / 2), false).is_some());
        assert!(mathml(&"x".repeat(FORMULA_BYTES_MAX + 1), false).is_none());
    }

    #[test]
    fn formulas_are_taken_once_and_end_somewhere() {
        let mut formulas = Formulas::default();
        assert_eq!(formulas.add("x", false).as_deref(), Some("<math name=\"0\"></math>"));
        assert_eq!(formulas.take("0").as_deref(), Some("<math><mi>x</mi></math>"));
        for number in ["0", "1", "-1", "", "x", "99999999999999999999"] {
            assert_eq!(formulas.take(number), None, "{number}");
        }
        let long = "x+".repeat(1_900) + "x";
        let made = (0..1_000).filter(|_| formulas.add(&long, false).is_some()).count();
        assert!((2..100).contains(&made), "{made}");
    }

    proptest! {
        /// Whatever is written, the library gives MathML or an error.
        #[test]
        fn no_formula_ends_the_process(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "\\frac", "\\left", "\\right", "{", "}", "^", "_", "&", "\\\\", "\\begin{matrix}",
                    "\\end{matrix}", "\\begin{array}{c|c}", "\\end{array}", "x", "12", "'", "\\sqrt",
                    "[", "]", "\\text", "\\mathbf", "\\hat", "(", ")", "|", "\\sum", "\\limits",
                    "\\not", "\\over", "\\color{red}", "\\hspace{1em}", "%", "\n", "$", "~", "é", "∑",
                    "\\middle", "\\big", "\\operatorname", "\\tag", "\\label", "\\binom", "\\overset",
                    "\\underbrace", "\\xrightarrow", "\\genfrac", "\\kern1pt", "\\relax", "\\ ",
                    "\\begin{aligned}", "\\end{aligned}", "\\begin{cases}", "\\end{cases}", "\\hline",
                    "\0", "\u{301}", "<", ">", "\"", "\\dots", "\\cancel", "\\mathbb", "\\displaystyle",
                    "\\begin", "\\end", "#", "\\char", "\\ref{a}", "\\eqref{a}", "</math><script>",
                ]),
                0..40,
            ),
        ) {
            if let Some(made) = mathml(&pieces.concat(), true) {
                prop_assert!(made.starts_with("<math") && made.ends_with("</math>"), "{}", made);
                prop_assert!(!made.contains("<script"), "{}", made);
            }
        }
    }
}
