//! Other targets for the links and pictures of a Markdown text, which stays as it is otherwise.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Parser, Tag, TagEnd};

use crate::markdown::enabled;

/// The text, with the targets that `other` gives for the targets as they are written; `None` keeps one. A target that is written with
/// escapes stays.
pub fn relink(text: &str, other: impl Fn(&str) -> Option<String>) -> String {
    let mut events = Parser::new_ext(text, enabled(true)).into_offset_iter();
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (_, definition) in events.reference_definitions().iter() {
        let Range { start, end } = definition.span.clone();
        // The label comes first, and has no end of one in it.
        let after = text[start..end].find("]:").map_or(start, |at| start + at + 2);
        edits.extend(edit(text, after..end, &definition.dest, &other));
    }
    // The links that are open, each with its whole place and where what is in it ends.
    let mut open: Vec<(Range<usize>, usize, Option<String>)> = Vec::new();
    for (event, place) in &mut events {
        match event {
            Event::Start(
                Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. },
            ) => {
                let target = (link_type == LinkType::Inline).then(|| dest_url.into_string());
                let inside = place.start + 1;
                open.push((place, inside, target));
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                let Some((whole, inside, target)) = open.pop() else { continue };
                if let Some(target) = target {
                    edits.extend(edit(text, inside..whole.end, &target, &other));
                }
                if let Some((_, inside, _)) = open.last_mut() {
                    *inside = whole.end.max(*inside);
                }
            }
            _ => {
                if let Some((_, inside, _)) = open.last_mut() {
                    *inside = place.end.max(*inside);
                }
            }
        }
    }
    edits.sort_by_key(|(place, _)| place.start);
    edits.dedup_by(|next, first| next.0.start < first.0.end);
    let (mut done, mut rest) = (String::with_capacity(text.len()), 0);
    for (place, replacement) in edits {
        done.push_str(&text[rest..place.start]);
        done.push_str(&replacement);
        rest = place.end;
    }
    done + &text[rest..]
}

/// The first place of the target, if it gets another one.
fn edit(
    text: &str,
    within: Range<usize>,
    target: &str,
    other: &impl Fn(&str) -> Option<String>,
) -> Option<(Range<usize>, String)> {
    let at = within.start + text.get(within)?.find(target)?;
    Some((at..at + target.len(), other(target)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let other = |target: &str| target.strip_suffix(".md").map(str::to_owned);
        assert_eq!(relink(text, other), expected);
    }

    #[test]
    fn targets_are_replaced_and_nothing_else() {
        check("[a](b.md) [b.md](b.md \"b.md\") b.md", "[a](b) [b.md](b \"b.md\") b.md");
        check("[![p](p.md)](q.md) [](r.md)", "[![p](p)](q) [](r)");
        check(
            "[a][x.md] [x.md]\n\n[x.md]: <c.md> 'c.md'\n",
            "[a][x.md] [x.md]\n\n[x.md]: <c> 'c.md'\n",
        );
        check(
            "`[a](b.md)`\n\n    [a](b.md)\n\n```\n[a](b.md)\n```\n",
            "`[a](b.md)`\n\n    [a](b.md)\n\n```\n[a](b.md)\n```\n",
        );
        check("[a `](b.md)` c](b.md)", "[a `](b.md)` c](b)");
        check(
            "[a](b.md#x) <https://e.example/b.md> [[b.md]]",
            "[a](b.md#x) <https://e.example/b.md> [[b.md]]",
        );
        check(
            "| a |\n| - |\n| [a](b.md) |\n\n- [ ] [é](é.md)\n",
            "| a |\n| - |\n| [a](b) |\n\n- [ ] [é](é)\n",
        );
        check("[a](b\\_c.md)", "[a](b\\_c.md)");
        check(
            "---\ntitle: \"[a](b.md)\"\n---\n\n[a](b.md)\n",
            "---\ntitle: \"[a](b.md)\"\n---\n\n[a](b)\n",
        );
    }

    #[test]
    fn a_text_of_brackets_takes_no_long_time() {
        for piece in ["[", "[a](", "![", "[a]: b\n", "[[", "[a](b.md)"] {
            let text = piece.repeat(20_000);
            assert!(!relink(&text, |target| Some(target.to_owned())).is_empty());
        }
    }
}
