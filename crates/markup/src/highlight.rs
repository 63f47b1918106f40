//! Code, with its words, strings, comments and values in elements of our own classes, by a library.
//!
//! The library's lexers are written by hand and go through a code once, without regular expressions that could go back. What it
//! returns are parts of the code, which are escaped here; the sanitiser sees them like everything else ([`crate::clean`]).

use hl_lite::{Kind, Lang, Span};

use crate::{Escaped, push};

/// Bytes of a block of code; a longer one stays plain. Only for the lexer of JavaScript there are texts for which it takes
/// quadratic time (each line begins a regular expression that nothing ends), and this bounds that, too.
pub(crate) const BLOCK_BYTES_MAX: usize = 8 << 10;

/// Bytes of all code of a text that is highlighted; what comes after it stays plain.
pub(crate) const CODE_BYTES_MAX: usize = 64 << 10;

/// Elements of a text, each of three dozen bytes.
pub(crate) const PARTS_MAX: usize = 10_000;

/// The classes. Operators and brackets have none: a page would be twice as long.
pub(crate) const CLASSES: [&str; 5] = ["hl-word", "hl-string", "hl-comment", "hl-value", "hl-name"];

/// Names of languages beside those that the library knows, which are like one of them.
const ALIASES: [(&str, Lang); 8] = [
    ("ini", Lang::Toml),
    ("jsonl", Lang::Json),
    ("makefile", Lang::Bash),
    ("make", Lang::Bash),
    ("pkgbuild", Lang::Bash),
    ("pycon", Lang::Python),
    ("python3", Lang::Python),
    ("xhtml", Lang::Html),
];

/// The language that the class of a `<code>` names, as Markdown and HTML have it; `None` if it is not highlighted.
pub(crate) fn language(class: &str) -> Option<Lang> {
    let name = class.split_ascii_whitespace().find_map(|class| class.strip_prefix("language-"))?;
    // What follows is for other tools: `rust,ignore`, `python{1,3}`, `sh:name`.
    let name = name.split([',', '{', ':']).next()?;
    Lang::from_slug(name).or_else(|| {
        let known = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        known.map(|(_, language)| *language)
    })
}

/// Writes the code of a text, within the bounds.
#[derive(Debug, Default)]
pub(crate) struct Highlighter {
    /// Bytes of code and elements so far.
    bytes: usize,
    parts: usize,
}

impl Highlighter {
    /// Appends the code as HTML.
    pub(crate) fn write(&mut self, code: &str, language: Lang, html: &mut String) {
        let Some(spans) = self.spans(code, language) else {
            return push(html, format_args!("{}", Escaped(code)));
        };
        for span in spans {
            let text = Escaped(span.text);
            match class(span.kind) {
                Some(class) => push(html, format_args!("<span class=\"{class}\">{text}</span>")),
                None => push(html, format_args!("{text}")),
            }
        }
    }

    /// The parts of the code; `None` if it is not highlighted.
    pub(crate) fn spans<'code>(
        &mut self,
        code: &'code str,
        language: Lang,
    ) -> Option<Vec<Span<'code>>> {
        if code.len() > BLOCK_BYTES_MAX || self.bytes + code.len() > CODE_BYTES_MAX {
            return None;
        }
        self.bytes += code.len();
        // It has no known way to fail; if it does, the code is shown nevertheless.
        let spans = std::panic::catch_unwind(|| hl_lite::highlight(language, code)).ok()?;
        let parts = spans.iter().filter(|span| class(span.kind).is_some()).count();
        if self.parts + parts > PARTS_MAX {
            return None;
        }
        self.parts += parts;
        Some(spans)
    }
}

fn class(kind: Kind) -> Option<&'static str> {
    let [word, string, comment, value, name] = CLASSES;
    Some(match kind {
        Kind::Keyword | Kind::Tag => word,
        Kind::String => string,
        Kind::Comment => comment,
        Kind::Number | Kind::Constant | Kind::Variable => value,
        Kind::Type | Kind::Function | Kind::Attribute | Kind::Property => name,
        Kind::Plain | Kind::Operator | Kind::Punctuation => return None,
    })
}
