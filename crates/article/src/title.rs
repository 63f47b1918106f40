//! The title of a text: the name that the text gives itself.

use crate::ContentType;
use crate::front_matter::front_matter;
use crate::one_line::one_line;

/// The title of a text that begins with `head`: for HTML the `<title>`; for Markdown and plain text
/// what its front matter says, else the first heading (`# …`, or a line underlined with `=` or `-`); without one, and for other kinds
/// of text, the first line with something on it. White space is one space, control characters are gone.
pub(crate) fn title(content_type: &ContentType, head: &str) -> Option<String> {
    let head = head.strip_prefix('\u{feff}').unwrap_or(head);
    match content_type.essence().as_str() {
        "text/html" | "application/xhtml+xml" => html_title(head),
        "text/markdown" | "text/x-markdown" | "text/plain" => {
            let before = front_matter(content_type, head);
            let body = &head[before.bytes..];
            before.title.or_else(|| heading(body)).or_else(|| first_line(body))
        }
        _ => first_line(head),
    }
}

fn first_line(text: &str) -> Option<String> {
    text.lines().find_map(one_line)
}

fn heading(text: &str) -> Option<String> {
    let mut fence: Option<&str> = None;
    let mut previous = "";
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(mark) = fence {
            if trimmed.starts_with(mark) {
                fence = None;
            }
            continue;
        }
        let is_indented = line.starts_with("    ") || line.starts_with('\t');
        if !is_indented {
            fence = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
            let text = trimmed.trim_start_matches('#');
            let level = trimmed.len() - text.len();
            if (1..=6).contains(&level) && text.starts_with([' ', '\t']) {
                let title = one_line(text.trim_end_matches('#'));
                if title.is_some() {
                    return title;
                }
            }
            let is_underline = trimmed.len() >= 3
                && (trimmed.bytes().all(|byte| byte == b'=')
                    || trimmed.bytes().all(|byte| byte == b'-'));
            if is_underline && !previous.is_empty() {
                return one_line(previous);
            }
        }
        previous = if fence.is_some() { "" } else { trimmed };
    }
    None
}

fn html_title(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let tag = lower.find("<title")?;
    let start = tag + lower.get(tag..)?.find('>')? + 1;
    let end = lower.get(start..)?.find("</title").map_or(text.len(), |length| start + length);
    let title = text.get(start..end)?;
    // Only the references that occur in titles. The ampersand comes last, so that nothing is unescaped twice.
    let title = title
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&nbsp;", " ")
        .replace("&amp;", "&");
    one_line(&title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_line::CHARS_MAX;

    #[track_caller]
    fn check(content_type: &str, text: &str, expected: &str) {
        let content_type = ContentType::parse(content_type).expect("a media type");
        assert_eq!(title(&content_type, text).unwrap_or_default(), expected, "{text:?}");
    }

    #[test]
    fn markdown() {
        check("text/markdown", "# Getting  started #\nText", "Getting started");
        check("text/markdown", "\u{feff}intro\n\n## Second level\n", "Second level");
        check("text/markdown", "Title\n=====\n", "Title");
        check("text/markdown", "Title\n---\n", "Title");
        check("text/plain", "---\nlayout: x\n---\n\nBody\n", "Body");
        check("text/markdown", "---\ntitle: \"The  title\"\n---\n\n# Head\n", "The title");
        check("text/plain", "---\nno end", "---");
        check("text/markdown", "```\n# comment\n```\n# Real\n", "Real");
        check("text/markdown", "#hashtag\n", "#hashtag");
        check("text/markdown", "#\n####### seven\n", "#");
        check("text/plain", "\n \n first line \nsecond", "first line");
        check("text/plain", "", "");
        check("text/plain", " \n\t\n", "");
    }

    #[test]
    fn html_and_other_text() {
        check("text/html", "<!doctype html><TITLE lang=en>A &amp;lt; B\n</title>", "A &lt; B");
        check("text/html", "<p>no title", "");
        check("text/html", "<title", "");
        check("text/html; charset=utf-8", "<title>İ open", "İ open");
        check("application/json", "\n{\"a\": 1}", "{\"a\": 1}");
        check("text/x-python", "# a comment\n", "# a comment");
    }

    #[test]
    fn titles_are_short_lines() {
        check("text/plain", &"é".repeat(300), &"é".repeat(200));
        check("text/plain", "a\u{1b}[31mb\rc", "a [31mb c");
        check("text/plain", "e\u{301}", "é");
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_clean_title_or_none(
            text in "[#`~=\\-<>/titleTITLE&; \n\r\té\u{85}😀]{0,40}",
            kind in 0_usize..4,
        ) {
            let kinds = ["text/markdown", "text/html", "text/plain", "text/css"];
            let content_type = ContentType::parse(kinds[kind]).expect("a media type");
            if let Some(title) = title(&content_type, &text) {
                proptest::prop_assert!(!title.is_empty() && title.chars().count() <= CHARS_MAX);
                proptest::prop_assert!(!title.chars().any(char::is_control));
                proptest::prop_assert_eq!(title.trim(), title.as_str());
            }
        }
    }
}
