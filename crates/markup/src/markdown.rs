//! Markdown -> HTML, which the next steps tidy and sanitise.

use std::collections::HashMap;

use pulldown_cmark::html::write_html_fmt;
use pulldown_cmark::{
    BlockQuoteKind, CowStr, Event, LinkType, Options as MarkdownOptions, Parser, Tag, TagEnd,
    TextMergeStream,
};

use crate::math::Formulas;
use crate::{BoundedText, Escaped, Options};

/// What is understood beside CommonMark.
pub(crate) fn enabled(is_article: bool) -> MarkdownOptions {
    let mut enabled = MarkdownOptions::ENABLE_TABLES
        | MarkdownOptions::ENABLE_FOOTNOTES
        | MarkdownOptions::ENABLE_STRIKETHROUGH
        | MarkdownOptions::ENABLE_TASKLISTS
        // Alerts.
        | MarkdownOptions::ENABLE_GFM
        // Metadata that site generators put before a text is not part of it.
        | MarkdownOptions::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let more = MarkdownOptions::ENABLE_WIKILINKS
        | MarkdownOptions::ENABLE_DEFINITION_LIST
        | MarkdownOptions::ENABLE_MATH;
    enabled.set(more, is_article);
    enabled
}

/// A text as HTML.
pub(crate) struct MarkdownHtml {
    pub(crate) html: String,
    /// The formulas that it has places for.
    pub(crate) formulas: Formulas,
    pub(crate) is_cut: bool,
}

/// The text as HTML. `addresses` are those of a wiki link: the last is the link's, the others have links
/// without text.
pub(crate) fn html(
    text: &str,
    options: &Options<'_>,
    addresses: &dyn Fn(&str) -> Vec<String>,
) -> MarkdownHtml {
    let mut notes = Footnotes::of(text);
    let mut formulas = Formulas::default();
    // Headings are also lines of a list, and a picture's text is an attribute.
    let mut plain_depth = 0_usize;
    // The end of the text that an event follows.
    let mut last: Option<char> = None;
    let mut is_code = false;
    let mut back: Option<String> = None;
    let mut events =
        TextMergeStream::new(Parser::new_ext(text, enabled(options.is_article))).peekable();
    let next = || {
        let event = events.next()?;
        if options.is_article
            && event == Event::Start(Tag::Paragraph)
            && matches!(events.peek(), Some(Event::Text(text)) if **text == *"[TOC]")
        {
            let text = events.next();
            if matches!(events.peek(), Some(Event::End(TagEnd::Paragraph))) {
                events.next();
                return Some([None, Some(raw("<div class=\"toc\"></div>".to_owned()))]);
            }
            return Some([Some(event), text]);
        }
        let mut before = None;
        let preceding = last.take();
        let event = match event {
            Event::Start(Tag::CodeBlock(_)) => {
                is_code = true;
                event
            }
            Event::End(TagEnd::CodeBlock) => {
                is_code = false;
                event
            }
            Event::Text(text) if !is_code => {
                last = text.chars().next_back();
                Event::Text(with_emoji(text))
            }
            Event::Start(Tag::Heading { .. } | Tag::Image { .. }) => {
                plain_depth += 1;
                event
            }
            Event::End(TagEnd::Heading(_) | TagEnd::Image) => {
                plain_depth = plain_depth.saturating_sub(1);
                event
            }
            // An amount, or the name of a variable: `US$5 to US$6`, `$HOME/$USER`.
            Event::InlineMath(source)
                if preceding.is_some_and(char::is_alphanumeric)
                    || matches!(events.peek(), Some(Event::Text(after)) if after.starts_with(char::is_alphanumeric)) =>
            {
                Event::Text(format!("${source}$").into())
            }
            Event::InlineMath(source) => {
                let formula = (plain_depth == 0).then(|| formulas.add(&source, false)).flatten();
                formula.map_or_else(|| Event::Code(format!("${source}$").into()), raw)
            }
            Event::DisplayMath(source) => {
                let formula = (plain_depth == 0).then(|| formulas.add(&source, true)).flatten();
                formula.map_or_else(|| Event::Code(format!("$${source}$$").into()), raw)
            }
            Event::Start(Tag::BlockQuote(Some(kind))) => {
                let (class, title) = match kind {
                    BlockQuoteKind::Note => ("note", "Note"),
                    BlockQuoteKind::Tip => ("tip", "Tip"),
                    BlockQuoteKind::Important => ("important", "Important"),
                    BlockQuoteKind::Warning => ("warning", "Warning"),
                    BlockQuoteKind::Caution => ("caution", "Caution"),
                };
                raw(format!(
                    "<blockquote class=\"alert-{class}\"><p><strong>{title}</strong></p>\n"
                ))
            }
            Event::End(TagEnd::BlockQuote(Some(_))) => raw("</blockquote>\n".to_owned()),
            // Their `id`s are none that a heading can have.
            Event::FootnoteReference(label) => {
                let note = notes.note(&label);
                let (id, number) = (&note.id, note.number);
                let own = match note.is_referenced {
                    true => String::new(),
                    false => format!(" id=\"{id}-r\""),
                };
                note.is_referenced = true;
                raw(format!("<sup><a{own} href=\"#{id}\">{number}</a></sup>"))
            }
            Event::Start(Tag::FootnoteDefinition(label)) => {
                let note = notes.note(&label);
                // The way back to the first place that refers to it.
                back = note.is_referenced.then(|| format!("<a href=\"#{}-r\">↩</a>", note.id));
                let (id, number) = (&note.id, note.number);
                raw(format!("<div class=\"footnote\" id=\"{id}\"><sup>{number}</sup> "))
            }
            Event::End(TagEnd::FootnoteDefinition) => {
                raw(format!("{}</div>\n", back.take().unwrap_or_default()))
            }
            Event::Start(Tag::Link {
                link_type: link_type @ LinkType::WikiLink { .. },
                dest_url,
                title,
                id,
            }) => {
                let mut addresses = addresses(&dest_url);
                let last = addresses.pop().unwrap_or_default();
                let more = addresses.iter().filter(|address| **address != last);
                let more: String =
                    more.map(|it| format!("<a href=\"{}\"></a>", Escaped(it))).collect();
                before = (!more.is_empty()).then(|| raw(more));
                Event::Start(Tag::Link { link_type, dest_url: last.into(), title, id })
            }
            event => event,
        };
        Some([before, Some(event)])
    };
    let events = std::iter::from_fn(next).flatten().flatten();
    let mut written = BoundedText(String::with_capacity(text.len() * 3 / 2));
    let is_cut = write_html_fmt(&mut written, events).is_err();
    MarkdownHtml { html: written.0, formulas, is_cut }
}

fn raw(html: String) -> Event<'static> {
    Event::InlineHtml(html.into())
}

/// The footnotes of a text.
struct Footnotes {
    /// What begins their `id`s: nothing in the text does.
    prefix: String,
    known: HashMap<String, Note>,
}

struct Note {
    id: String,
    /// In the order of their first use.
    number: usize,
    is_referenced: bool,
}

impl Footnotes {
    fn of(text: &str) -> Footnotes {
        let text = text.to_ascii_lowercase();
        let mut prefix = "fn-".to_owned();
        while text.contains(&prefix) && prefix.len() < 20 {
            prefix.insert(0, 'f');
        }
        Footnotes { prefix, known: HashMap::new() }
    }

    fn note(&mut self, label: &str) -> &mut Note {
        let number = self.known.len() + 1;
        self.known.entry(label.to_owned()).or_insert_with(|| Note {
            id: format!("{}{number}", self.prefix),
            number,
            is_referenced: false,
        })
    }
}

/// The text with emoji for their codes, as `:rocket:`.
fn with_emoji(text: CowStr<'_>) -> CowStr<'_> {
    let mut shown = String::new();
    let mut written = 0;
    let mut from = 0;
    while let Some(at) = text[from..].find(':') {
        let start = from + at;
        let rest = &text[start + 1..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-')))
            .filter(|end| rest[*end..].starts_with(':'));
        let emoji = end.and_then(|end| emojis::get_by_shortcode(&rest[..end]));
        from = start + 1;
        if let (Some(end), Some(emoji)) = (end, emoji) {
            shown.push_str(&text[written..start]);
            shown.push_str(emoji.as_str());
            from = start + end + 2;
            written = from;
        } else if let Some(end) = end {
            // The colon after it may begin the next code.
            from = start + 1 + end;
        }
    }
    if written == 0 {
        return text;
    }
    shown.push_str(&text[written..]);
    shown.into()
}
