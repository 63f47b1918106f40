//! Turns texts of strangers into HTML that is safe in our pages: Markdown, reStructuredText, HTML and plain text.
//!
//! ```text
//! Markdown ─► pulldown-cmark ─┐  (formulas ─► math, inserted by tidy; code ─► highlight, called by it)
//! reStructuredText ─► rst ────┤                                                    ┌► Rendered::html
//! HTML ───────────────────────┼─► tidy: balanced, shallow, links resolved ─► clean ┤
//! plain text ─────────────────┘                                                    └► Rendered::contents
//! ```
//!
//! `clean` is the one sanitiser: it parses HTML as browsers do, and keeps what a list allows. `tidy` comes first because that
//! parsing takes quadratic time if elements are not closed or nested a thousand deep; its output is closed in order and never
//! deeper than a bound. It also makes the headings, lists, tables and links fit a page that already has a title. Everything
//! takes time in proportion to the input, which is bounded.
//!
//! [`compare()`] compares two texts line by line, for people. Nothing here does I/O or knows HTTP.

mod clean;
mod compare;
mod highlight;
mod markdown;
mod math;
mod relink;
mod rst;
mod tidy;

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use self::math::Formulas;

pub use self::compare::{Block, Cell, Comparison, InputTooLong, Line, LinePart, compare};
pub use self::relink::relink;

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CommonMark with tables, footnotes, strikethrough, task lists, alerts and codes of emoji, as on GitHub; for articles also
    /// with lists of definitions, `[TOC]` and formulas.
    Markdown,
    /// The part of reStructuredText that descriptions of projects use; see the documentation of the pages.
    RestructuredText,
    /// HTML.
    Html,
    /// Plain text.
    Plain,
}

impl Format {
    /// The format of a media type; `None` if it is not shown as a page.
    pub fn of_media_type(media_type: &str) -> Option<Format> {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Some(match essence.as_str() {
            "text/markdown" | "text/x-markdown" => Format::Markdown,
            "text/x-rst" | "text/prs.fallenstein.rst" => Format::RestructuredText,
            "text/html" | "application/xhtml+xml" => Format::Html,
            "text/plain" => Format::Plain,
            _ => return None,
        })
    }
}

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A page of this server, by its path.
    Page(String),
    /// A page of this server that does not exist (yet); the link is marked.
    Missing(String),
    /// A picture on this server. A link to it stays a link; an embedded picture is shown.
    Picture(String),
}

/// Answers where a relative link leads; `None` leaves only its text.
pub type Resolve<'a> = &'a (dyn Fn(&str) -> Option<Target> + Sync);

/// How a text is shown.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The level of the highest heading, 2 to 6: one below the heading that the text is shown under.
    pub heading_level: u8,
    /// Resolves relative links.
    pub resolve: Resolve<'a>,
    /// Whether Markdown has what documentation is written with: `[[name]]` as a link, lists of definitions, `[TOC]`,
    /// formulas.
    pub is_article: bool,
    /// Whether the page above the text takes its title from it: a highest heading that the text begins with is left out,
    /// and is [`RenderedText::title`].
    pub takes_title: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { heading_level: 2, resolve: &|_| None, is_article: false, takes_title: false }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = formatter.debug_struct("Options");
        all.field("heading_level", &self.heading_level).field("is_article", &self.is_article);
        all.finish_non_exhaustive()
    }
}

/// A text as HTML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedText {
    /// HTML that is safe in a page: only elements of the sanitiser's list; it runs no scripts and loads nothing.
    pub html: String,
    /// The heading that was left out, not escaped: see [`Options::takes_title`].
    pub title: Option<String>,
    /// Its headings, at most [`CONTENTS_MAX`].
    pub contents: Vec<Heading>,
    /// Whether the text was longer than what is shown.
    pub is_cut: bool,
}

/// A line of a table of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The level in the page, 2 to 6.
    pub level: u8,
    /// The `id` in the page.
    pub id: String,
    /// The text, not escaped.
    pub text: String,
}

/// Bytes of a text that are shown; the rest is cut off.
pub(crate) const INPUT_BYTES_MAX: usize = 256 << 10;

/// Bytes of HTML of one text at most.
const OUTPUT_BYTES_MAX: usize = 2 << 20;

/// Bytes of HTML after which conversion stops: part of them may not be shown.
const WRITTEN_BYTES_MAX: usize = 2 * OUTPUT_BYTES_MAX;

/// Bytes of an address; a longer one is no link.
const HREF_BYTES_MAX: usize = 2_048;

/// Lines of a table of contents.
pub(crate) const CONTENTS_MAX: usize = 200;

/// The prefix of every `id` in a text, so that none is one of the page's own.
pub(crate) const ID_PREFIX: &str = "u-";

/// The addresses that a text links to, as they are written: each once, at most `count_max`, from the part that is shown.
pub fn links(text: &str, format: Format, count_max: usize) -> Vec<String> {
    let (text, _) = cut(text);
    let html: Cow<'_, str> = match format {
        Format::Markdown => {
            let options = Options { is_article: true, ..Options::default() };
            markdown::html(text, &options, &|name| vec![encoded(name), name.to_owned()]).html.into()
        }
        Format::RestructuredText => rst::html(text).0.into(),
        Format::Html => text.into(),
        Format::Plain => return Vec::new(),
    };
    tidy::links(&html, count_max)
}

/// The text as HTML.
pub fn render(text: &str, format: Format, options: &Options<'_>) -> RenderedText {
    let (text, is_cut) = cut(text);
    let text = without_misplaced(text.into());
    let mut formulas = Formulas::default();
    let (html, is_translated_in_part) = match format {
        Format::Markdown => {
            let addresses = |name: &str| vec![wiki_address(name, options.resolve)];
            let written = markdown::html(&text, options, &addresses);
            formulas = written.formulas;
            owned((written.html, written.is_cut))
        }
        Format::RestructuredText => owned(rst::html(&text)),
        Format::Html => (text, false),
        Format::Plain => owned((format!("<pre>\n{}</pre>", Escaped(&text)), false)),
    };
    let tidied = tidy::tidy(&html, formulas, options, format);
    RenderedText {
        // Character references may name what the text itself does not have.
        html: without_misplaced(clean::clean(&tidied.html, tidied.has_formulas).into())
            .into_owned(),
        title: tidied.title,
        contents: tidied.contents,
        is_cut: is_cut || is_translated_in_part || tidied.is_cut,
    }
}

/// The text with a replacement character for each that HTML has no place for: control characters and noncharacters. A browser
/// would show nothing, or take NUL for the end of the text.
fn without_misplaced(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_misplaced = |character: char| {
        let code = u32::from(character);
        let is_noncharacter = (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe;
        let is_space = matches!(character, '\t' | '\n' | '\x0c' | '\r');
        is_noncharacter || (character.is_control() && !is_space)
    };
    match text.contains(is_misplaced) {
        true => text.replace(is_misplaced, "\u{fffd}").into(),
        false => text,
    }
}

fn owned((html, is_cut): (String, bool)) -> (Cow<'static, str>, bool) {
    (Cow::Owned(html), is_cut)
}

/// The `id` of the heading that a URL's fragment names; `None` if it has no usable characters.
pub fn fragment_id(fragment: &str) -> Option<String> {
    Some(format!("{ID_PREFIX}{}", tidy::slug_of_fragment(fragment)?))
}

/// The part that is shown, without a byte-order mark, and whether more was cut off.
fn cut(text: &str) -> (&str, bool) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() <= INPUT_BYTES_MAX {
        return (text, false);
    }
    (&text[..text.floor_char_boundary(INPUT_BYTES_MAX)], true)
}

/// What in a wiki link stands for itself, though it has a meaning in addresses.
const WIKI: &AsciiSet = &CONTROLS.add(b'#').add(b'?').add(b'%').add(b':');

/// The address of the page with exactly this name.
fn encoded(name: &str) -> String {
    utf8_percent_encode(name, WIKI).to_string()
}

/// The address of a wiki link: of the page with exactly this name, if there is one; else what follows `#` or `?` may be a place
/// in a page.
fn wiki_address(name: &str, resolve: Resolve<'_>) -> String {
    let exact = encoded(name);
    if exact == name {
        return exact;
    }
    let is_there =
        |address: &str| matches!(resolve(address), Some(Target::Page(_) | Target::Picture(_)));
    let is_outside = ["http:", "https:", "mailto:"].iter().any(|scheme| name.starts_with(scheme));
    let names_place = name.find(['#', '?']).is_some_and(|at| at > 0 && at + 1 < name.len());
    let is_address = is_outside || names_place || name.starts_with('#') || is_there(name);
    match is_there(&exact) || !is_address {
        true => exact,
        false => name.to_owned(),
    }
}

/// Accepts a little more than is shown.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() > WRITTEN_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A text, escaped for HTML, between tags or in a quoted value.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            formatter.write_str(&rest[..at])?;
            formatter.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        formatter.write_str(rest)
    }
}

/// Appends to a text in memory, which takes everything.
fn push(html: &mut String, text: fmt::Arguments<'_>) {
    html.write_fmt(text).expect("memory takes it");
}

#[cfg(test)]
mod tests;
