//! Front matter: what a text in Markdown says about itself before it begins, between two lines `---`.
//!
//! Only members on a line of their own are read, `name: value`, as site generators write them; the rest of YAML is passed over.

use crate::ContentType;
use crate::one_line::one_line;

/// What a front matter says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontMatter {
    /// `title`: one line of at most 200 characters.
    pub title: Option<String>,
    /// `order`: the place of the article in its folder.
    pub order: Option<i32>,
    /// Bytes of the text until its end; 0 without one.
    pub bytes: usize,
}

/// The front matter of a text of this type; an empty one if it has none.
pub fn front_matter(content_type: &ContentType, text: &str) -> FrontMatter {
    let mut found = FrontMatter::default();
    let essence = content_type.essence();
    if !matches!(essence.as_str(), "text/markdown" | "text/x-markdown" | "text/plain") {
        return found;
    }
    let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut lines = text[mark..].split_inclusive('\n');
    let first = lines.next().filter(|line| matches!(*line, "---\n" | "---\r\n"));
    let Some(first) = first else { return found };
    let mut end = mark + first.len();
    for line in lines {
        end += line.len();
        if line.trim_end() == "---" {
            return FrontMatter { bytes: end, ..found };
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = unquoted(value.trim());
        match name {
            "title" if found.title.is_none() => found.title = one_line(value),
            "order" if found.order.is_none() => found.order = value.parse().ok(),
            _ => {}
        }
    }
    // It has no end, so it is text.
    FrontMatter::default()
}

/// A value without the quotes around it.
fn unquoted(value: &str) -> &str {
    let within = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, title: &str, order: Option<i32>, rest: &str) {
        let kind = ContentType::parse("text/markdown").expect("a media type");
        let found = front_matter(&kind, text);
        let shown = (found.title.as_deref().unwrap_or_default(), found.order);
        assert_eq!((shown, &text[found.bytes..]), ((title, order), rest), "{text:?}");
    }

    #[test]
    fn members_on_their_own_lines() {
        check("---\ntitle: A  b\norder: -3\n---\n# C\n", "A b", Some(-3), "# C\n");
        check("\u{feff}---\r\ntitle: 'A: b'\r\n---\r\nc", "A: b", None, "c");
        check("---\ntitle: \"a\"\ntitle: b\ntags:\n  order: 3\n---\n", "a", None, "");
        check("---\ntitle:\norder: 1.5\n---\n", "", None, "");
        check("---\norder: 99999999999\ntitle: \"\n---\n", "\"", None, "");
    }

    #[test]
    fn a_text_without_one() {
        for text in ["", "---", "---\n", "---\ntitle: x\n", "a\n---\ntitle: x\n---\n", "----\n"] {
            check(text, "", None, text);
        }
        let kind = ContentType::parse("text/html").expect("a media type");
        assert_eq!(front_matter(&kind, "---\ntitle: x\n---\n"), FrontMatter::default());
    }
}
