//! Front matter: what a text in Markdown says about itself before it begins, between two lines `---`.
//!
//! Only members on a line of their own are read, `name: value`, and the items of `tags` below it, as site generators write them; the
//! rest of YAML is passed over.

use crate::ContentType;
use crate::one_line::one_line;

/// Tags of an article, and characters of one; what is beyond that is left out.
const TAGS_MAX: usize = 20;
const TAG_CHARS_MAX: usize = 50;

/// What a front matter says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontMatter {
    /// `title`: one line of at most 200 characters.
    pub title: Option<String>,
    /// `order`: the place of the article in its folder.
    pub order: Option<i32>,
    /// `author`: one line of at most 200 characters.
    pub author: Option<String>,
    /// `date`: a day, perhaps with a time after it, as it is written.
    pub date: Option<String>,
    /// `tags`: each once, in small letters, in the order in which they are written.
    pub tags: Vec<String>,
    /// `draft: true`: only for those who may write the article.
    pub draft: bool,
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
    let mut is_list_of_tags = false;
    for line in lines {
        end += line.len();
        if line.trim_end() == "---" {
            return FrontMatter { bytes: end, ..found };
        }
        if is_list_of_tags && let Some(item) = line.trim_start().strip_prefix("- ") {
            found.add_tag(item);
            continue;
        }
        is_list_of_tags = false;
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name == "tags" && found.tags.is_empty() {
            is_list_of_tags = value.is_empty();
            let items = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            items.unwrap_or(value).split(',').for_each(|item| found.add_tag(item));
            continue;
        }
        let value = unquoted(value);
        match name {
            "title" if found.title.is_none() => found.title = one_line(value),
            "order" if found.order.is_none() => found.order = value.parse().ok(),
            "author" if found.author.is_none() => found.author = one_line(value),
            "date" if found.date.is_none() && is_date(value) => found.date = one_line(value),
            "draft" => found.draft = matches!(value, "true" | "True" | "yes"),
            _ => {}
        }
    }
    // It has no end, so it is text.
    FrontMatter::default()
}

impl FrontMatter {
    fn add_tag(&mut self, item: &str) {
        if let Some(tag) = tag(item)
            && self.tags.len() < TAGS_MAX
            && !self.tags.contains(&tag)
        {
            self.tags.push(tag);
        }
    }
}

/// A tag as it is kept and looked up; `None` if it is empty or too long.
pub fn tag(text: &str) -> Option<String> {
    let tag = one_line(unquoted(text.trim()))?.to_lowercase();
    (tag.chars().count() <= TAG_CHARS_MAX).then_some(tag)
}

/// Whether it begins like `2026-01-31`, and is short.
fn is_date(value: &str) -> bool {
    let is_digit = |at: usize| value.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let is_day = [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(is_digit);
    is_day && value.is_ascii() && value.len() <= 40 && &value[4..5] == "-" && &value[7..8] == "-"
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
    fn who_wrote_it_when_and_about_what() {
        let kind = ContentType::parse("text/markdown").expect("a media type");
        let found = |text: &str| front_matter(&kind, &format!("---\n{text}---\n"));
        let all = found(
            "author: 'Ann B'\ndate: 2026-01-31 12:00\ntags: [Web, \"two words\", web, ]\ndraft: true\n",
        );
        assert_eq!(
            (all.author.as_deref(), all.date.as_deref()),
            (Some("Ann B"), Some("2026-01-31 12:00"))
        );
        assert_eq!((all.tags.join("|").as_str(), all.draft), ("web|two words", true));
        assert_eq!(found("tags:\n  - a\n- B: c\norder: 1\n- d\n").tags, ["a", "b: c"]);
        assert_eq!(found("tags: a, b\ntags: c\n").tags, ["a", "b"]);
        let many: String = (0..30).map(|number| format!("- {number}\n")).collect();
        assert_eq!(found(&format!("tags:\n{many}- {}\n", "x".repeat(51))).tags.len(), TAGS_MAX);
        assert_eq!(found(&format!("tags: {}\n", "x".repeat(51))).tags, [""; 0]);
        for date in ["soon", "2026", "2026-1-1", "2026_01_01", "é026-01-01", ""] {
            assert_eq!(found(&format!("date: {date}\n")).date, None, "{date}");
        }
        assert!(!found("draft: false\n").draft && !found("draft:\n").draft);
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
