//! A table of contents within a text.

use crate::{Escaped, Heading, push};

/// The headings as lists in lists, each a link.
pub(super) fn toc(contents: &[Heading]) -> String {
    let mut html = "<div class=\"toc\">".to_owned();
    let highest = contents.iter().map(|heading| heading.level).min().unwrap_or_default();
    let mut open = 0;
    for heading in contents {
        let depth = heading.level - highest + 1;
        if depth > open {
            html.push_str("<ul>");
            open += 1;
        } else {
            html.push_str(&"</li></ul>".repeat(usize::from(open - depth)));
            html.push_str("</li>");
            open = depth;
        }
        let (id, text) = (Escaped(&heading.id), Escaped(&heading.text));
        push(&mut html, format_args!("<li><a href=\"#{id}\">{text}</a>"));
    }
    html.push_str(&"</li></ul>".repeat(usize::from(open)));
    html.push_str("</div>");
    html
}
