//! HTML as strangers write it -> HTML whose elements are closed in order, are not nested too deep, and fit a page.
//!
//! One pass over the tokens with a short stack. Elements that are not in the list lose their tags; those that run, load or are
//! not meant to be read lose their contents, too. Headings go below the page's own, without gaps, and get an `id`; links lead
//! to this server or, with `http`, `https` and `mailto`, elsewhere; pictures of other hosts become links. Lists have items and
//! tables have cells, so that screen readers announce them correctly. Safety does not depend on this module, but on
//! [`crate::clean`].

mod contents;
mod links;
mod tokens;
mod vocabulary;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use hl_lite::Lang;

use self::contents::toc;
use self::links::{Link, first_link, target};
use self::tokens::{Attributes, Token, tokens};
use self::vocabulary::{Role, role};
use crate::clean::ALERTS;
use crate::highlight::{self, Highlighter};
use crate::math::Formulas;
use crate::{CONTENTS_MAX, Escaped, Format, Heading, ID_PREFIX, OUTPUT_BYTES_MAX, Options, push};

pub(crate) use self::links::{links, slug, slug_of_fragment};

/// Elements within each other; further ones lose their tags.
const DEPTH_MAX: usize = 48;

/// Bytes of a heading in the table of contents, and characters of an `id`.
const HEADING_BYTES_MAX: usize = 200;
const ID_CHARS_MAX: usize = 80;

/// What is shown for a picture without a text.
const UNNAMED: &str = "Image";

/// The output.
pub(crate) struct TidyHtml {
    pub(crate) html: String,
    pub(crate) title: Option<String>,
    pub(crate) contents: Vec<Heading>,
    /// Whether there is a formula in it.
    pub(crate) has_formulas: bool,
    pub(crate) is_cut: bool,
}

fn attribute<'tag>(attributes: &'tag Attributes, name: &str) -> Option<Cow<'tag, str>> {
    attributes.get(name).map(String::from_utf8_lossy)
}

/// An open element.
struct Element {
    name: &'static str,
    /// Where its contents begin in the output; for a heading and a head cell, where its tag will be inserted.
    start: usize,
    has_text: bool,
    detail: ElementDetail,
}

enum ElementDetail {
    None,
    /// A heading of this level, with the `id` that it was given.
    Heading(u8, Option<String>),
    Link {
        /// Where its tag begins in the output.
        tag_start: usize,
        /// What is shown if it has no text.
        shown: String,
        is_missing: bool,
    },
    /// Whether it has terms and descriptions.
    Terms {
        has_term: bool,
        has_description: bool,
    },
    /// The attributes of a head cell.
    Cell(String),
    /// The language of a block of code.
    Code(Lang),
}

struct Tidy<'a> {
    options: &'a Options<'a>,
    /// What the text was before it was HTML.
    format: Format,
    formulas: Formulas,
    has_formulas: bool,
    highlighter: Highlighter,
    html: String,
    stack: Vec<Element>,
    skipped: Skipped,
    contents: Vec<Heading>,
    /// The text of the open heading.
    heading: String,
    /// The level of the last heading.
    level: u8,
    /// The first heading, if it is the page's own: later ones are then raised by one level.
    title: Option<String>,
    /// The ids that are taken.
    ids: HashSet<String>,
    /// The ids that elements of the text have: a heading without one gets another.
    reserved: HashSet<String>,
    /// How many ids begin like this one.
    numbers: HashMap<String, u32>,
    tables: usize,
    /// Where the table of contents goes.
    toc: Option<usize>,
    /// The last character of the line that is being written, and whether it is the end of a picture's text.
    last: Option<(char, bool)>,
}

/// Elements that are left out with their contents: their name, and how often it is open.
#[derive(Default)]
struct Skipped(Option<(Vec<u8>, usize)>);

impl Skipped {
    /// Whether the token is part of one.
    fn takes(&mut self, token: &Token) -> bool {
        if let Some((name, depth)) = &mut self.0 {
            match token {
                Token::Start { name: inner, self_closing: false, .. } if inner == name => {
                    *depth += 1;
                }
                Token::End(inner) if inner == name => {
                    *depth -= 1;
                    if *depth == 0 {
                        self.0 = None;
                    }
                }
                _ => {}
            }
            return true;
        }
        let Token::Start { name, self_closing, .. } = token else { return false };
        let Role::Skipped { is_foreign } = role(name) else { return false };
        if !(is_foreign && *self_closing) {
            self.0 = Some((name.clone(), 1));
        }
        true
    }
}

/// The ids that elements of this HTML have.
fn ids(html: &str) -> HashSet<String> {
    let mut skipped = Skipped::default();
    let mut ids = HashSet::new();
    for token in tokens(html) {
        if skipped.takes(&token) {
            continue;
        }
        if let Token::Start { name, attributes, .. } = token {
            let found = role(&name);
            let own = attribute(&attributes, "id").filter(|_| found != Role::Unknown);
            let name = || attribute(&attributes, "name").filter(|_| found == Role::Link);
            ids.extend(own.or_else(name).and_then(|id| slug(&id)));
        }
    }
    ids
}

/// The HTML of a text of this format, tidied, with its formulas in their places.
pub(crate) fn tidy(
    html: &str,
    formulas: Formulas,
    options: &Options<'_>,
    format: Format,
) -> TidyHtml {
    let mut tidy = Tidy {
        options,
        format,
        formulas,
        has_formulas: false,
        highlighter: Highlighter::default(),
        html: String::with_capacity(html.len() + html.len() / 4),
        stack: Vec::new(),
        skipped: Skipped::default(),
        contents: Vec::new(),
        heading: String::new(),
        level: options.heading_level.clamp(2, 6) - 1,
        title: None,
        ids: HashSet::new(),
        reserved: ids(html),
        numbers: HashMap::new(),
        tables: 0,
        toc: None,
        last: None,
    };
    let mut is_cut = false;
    for token in tokens(html) {
        if tidy.html.len() > OUTPUT_BYTES_MAX {
            is_cut = true;
            break;
        }
        tidy.take(token);
    }
    tidy.close_to(0);
    if let Some(place) = tidy.toc {
        tidy.html.insert_str(place, &toc(&tidy.contents));
    }
    let Tidy { html, title, contents, has_formulas, .. } = tidy;
    TidyHtml { html, title, contents, has_formulas, is_cut }
}

impl Tidy<'_> {
    fn take(&mut self, token: Token) {
        if let Token::Start { name, attributes, .. } = &token
            && name == b"math"
            && self.skipped.0.is_none()
        {
            self.formula(attributes);
        }
        // The place of a formula, too: it is empty, and what strangers call MathML is left out.
        if self.skipped.takes(&token) {
            return;
        }
        match token {
            Token::Start { name, attributes, .. } => self.start(role(&name), &attributes),
            Token::End(name) => self.end(&role(&name)),
            Token::Text(text) => self.text(&String::from_utf8_lossy(&text)),
        }
    }

    /// The place of the innermost open element of these names, within the cell that is open.
    fn open(&self, names: &[&str]) -> Option<usize> {
        let cell = |element: &Element| matches!(element.name, "td" | "th" | "caption" | "table");
        let from = self.stack.iter().rposition(cell).unwrap_or(0);
        let found = self.stack[from..].iter().rposition(|element| names.contains(&element.name));
        found.map(|at| from + at)
    }

    fn is_within(&self, names: &[&str]) -> bool {
        self.stack.iter().any(|element| names.contains(&element.name))
    }

    fn close_to(&mut self, length: usize) {
        while self.stack.len() > length {
            self.close();
        }
    }

    fn push(&mut self, name: &'static str, detail: ElementDetail) {
        if !matches!(detail, ElementDetail::Link { .. }) && !is_inline(name) {
            self.last = None;
        }
        self.stack.push(Element { name, start: self.html.len(), has_text: false, detail });
    }

    /// Opens an element with these attributes, which are HTML and begin with a space.
    fn open_tag(&mut self, name: &'static str, attributes: &str) {
        push(&mut self.html, format_args!("<{name}{attributes}>"));
        self.push(name, ElementDetail::None);
    }

    /// Opens the elements that must be open before text or a common element.
    fn fit(&mut self) {
        while let Some(top) = self.stack.last_mut() {
            let implied = match top.name {
                "table" | "thead" | "tbody" | "tfoot" => "tr",
                "tr" => "td",
                "ul" | "ol" => "li",
                "dl" => {
                    if let ElementDetail::Terms { has_description, .. } = &mut top.detail {
                        *has_description = true;
                    }
                    "dd"
                }
                _ => break,
            };
            self.open_tag(implied, "");
        }
    }

    /// Closes elements that cannot contain a block.
    fn make_room(&mut self) {
        if let Some(at) = self.open(&["p", "heading"]) {
            self.close_to(at);
        }
    }

    fn start(&mut self, role: Role, attributes: &Attributes) {
        let id = |tidy: &mut Self| {
            attribute(attributes, "id")
                .and_then(|id| tidy.free_id(&id))
                .map_or(String::new(), |id| format!(" id=\"{}\"", Escaped(&id)))
        };
        match role {
            Role::Break => {
                self.fit();
                self.last = None;
                self.html.push_str("<br>");
            }
            Role::Opportunity => self.html.push_str("<wbr>"),
            Role::Rule => {
                self.make_room();
                self.fit();
                self.html.push_str("<hr>");
            }
            Role::Picture => self.picture(attributes),
            Role::Field => {
                if attribute(attributes, "type").as_deref() == Some("checkbox") {
                    let is_checked = attribute(attributes, "checked").is_some();
                    self.text(if is_checked { "☑ " } else { "☐ " });
                }
            }
            Role::Link => self.link(attributes),
            Role::Section(_) | Role::Caption | Role::Row | Role::Cell(_) => {
                self.table_part(&role, attributes);
            }
            // A deeper element loses its tags. Parts of tables have only the depth of tables.
            _ if self.stack.len() >= DEPTH_MAX => {}
            Role::Heading(level) => {
                self.make_room();
                self.fit();
                let own = attribute(attributes, "id").map(Cow::into_owned);
                self.heading.clear();
                self.push("heading", ElementDetail::Heading(level, own));
            }
            Role::Item => {
                if let Some(at) = self.open(&["ul", "ol", "li"]) {
                    let is_item = self.stack[at].name == "li";
                    self.close_to(if is_item { at } else { at + 1 });
                    let id = id(self);
                    self.open_tag("li", &id);
                } else {
                    self.make_room();
                }
            }
            Role::Term | Role::Description => {
                let Some(at) = self.open(&["dl"]) else { return self.make_room() };
                self.close_to(at + 1);
                let is_term = matches!(role, Role::Term);
                if let Some(Element {
                    detail: ElementDetail::Terms { has_term, has_description },
                    ..
                }) = self.stack.last_mut()
                {
                    *(if is_term { has_term } else { has_description }) = true;
                }
                let id = id(self);
                self.open_tag(if is_term { "dt" } else { "dd" }, &id);
            }
            Role::Table => {
                self.make_room();
                self.fit();
                self.tables += 1;
                let id = id(self);
                let number = self.tables;
                // Readers can scroll a wide table without a mouse, too.
                let wide = format_args!(
                    "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table {number}\"><table{id}>"
                );
                push(&mut self.html, wide);
                self.push("table", ElementDetail::None);
            }
            Role::Block(name) => {
                self.make_room();
                if name == "summary" && self.stack.last().is_none_or(|top| top.name != "details") {
                    return;
                }
                let class = attribute(attributes, "class").unwrap_or_default();
                // Only there its place in the output does not move.
                if class == "toc" && self.options.is_article && self.stack.is_empty() {
                    self.toc = self.toc.or(Some(self.html.len()));
                    return;
                }
                self.fit();
                let mut own = id(self);
                if is_known_class(name, &class) {
                    own.push_str(&format!(" class=\"{class}\""));
                }
                if name == "ol"
                    && let Some(start) = attribute(attributes, "start")
                    && let Ok(start) = start.parse::<u16>()
                {
                    own.push_str(&format!(" start=\"{start}\""));
                }
                self.open_tag(name, &own);
                if name == "dl"
                    && let Some(list) = self.stack.last_mut()
                {
                    list.detail = ElementDetail::Terms { has_term: false, has_description: false };
                }
            }
            Role::Inline(name) => {
                self.fit();
                let id = id(self);
                let is_block = self.stack.last().is_some_and(|top| top.name == "pre");
                self.open_tag(name, &id);
                if name == "code"
                    && is_block
                    && let Some(class) = attribute(attributes, "class")
                    && let Some(language) = highlight::language(&class)
                    && let Some(code) = self.stack.last_mut()
                {
                    code.detail = ElementDetail::Code(language);
                }
            }
            Role::Skipped { .. } | Role::Unknown => {}
        }
    }

    fn table_part(&mut self, role: &Role, attributes: &Attributes) {
        let Some(table) = self.stack.iter().rposition(|element| element.name == "table") else {
            return self.make_room();
        };
        let named = |tidy: &Self, at: usize, names: &[&str]| {
            tidy.stack.get(at).is_some_and(|element| names.contains(&element.name))
        };
        let rows = match named(self, table + 1, &["thead", "tbody", "tfoot"]) {
            true => table + 2,
            false => table + 1,
        };
        match role {
            Role::Section(name) => {
                self.close_to(table + 1);
                self.open_tag(name, "");
            }
            Role::Caption => {
                self.close_to(table + 1);
                self.open_tag("caption", "");
            }
            Role::Row => {
                if named(self, table + 1, &["caption"]) {
                    self.close_to(table + 1);
                }
                self.close_to(rows);
                self.open_tag("tr", "");
            }
            Role::Cell(name) => {
                if named(self, table + 1, &["caption"]) {
                    self.close_to(table + 1);
                }
                if named(self, rows, &["tr"]) {
                    self.close_to(rows + 1);
                } else {
                    self.close_to(rows);
                    self.open_tag("tr", "");
                }
                let own = cell_attributes(attributes);
                if *name == "th" {
                    // Its tag is written when it is closed: without text, it is no head.
                    self.push("th", ElementDetail::Cell(own));
                } else {
                    self.open_tag("td", &own);
                }
            }
            _ => {}
        }
    }

    fn link(&mut self, attributes: &Attributes) {
        if let Some(at) = self.open(&["a"]) {
            self.close_to(at);
        }
        let own = attribute(attributes, "id").or_else(|| attribute(attributes, "name"));
        let id = own
            .and_then(|id| self.free_id(&id))
            .map_or(String::new(), |id| format!(" id=\"{}\"", Escaped(&id)));
        let link = attribute(attributes, "href").and_then(|href| target(self.options, &href));
        let is_deep = self.stack.len() >= DEPTH_MAX || self.is_within(&["a"]);
        let Some(link) = link.filter(|_| !is_deep) else {
            if !id.is_empty() {
                self.fit();
                push(&mut self.html, format_args!("<a{id}></a>"));
            }
            return;
        };
        self.fit();
        if self.last.is_some_and(|(_, is_picture)| is_picture) {
            self.space();
        }
        let tag_start = self.html.len();
        let (href, is_missing) = match link {
            Link::Page { href, is_missing } => (href, is_missing),
            Link::Picture(href) => (href, false),
        };
        let class = if is_missing { " class=\"missing\"" } else { "" };
        push(&mut self.html, format_args!("<a href=\"{}\"{class}{id}>", Escaped(&href)));
        let shown = shortened(&href, 60).to_owned();
        self.push("a", ElementDetail::Link { tag_start, shown, is_missing });
    }

    fn space(&mut self) {
        self.html.push(' ');
        self.last = Some((' ', false));
    }

    /// Separates the text of a picture from what is before it: as a picture it was apart.
    fn separate_picture(&mut self) {
        if self.last.is_some_and(|(last, is_picture)| is_picture || last.is_alphanumeric()) {
            self.space();
        }
    }

    fn picture(&mut self, attributes: &Attributes) {
        let named = |name| attribute(attributes, name).filter(|text| !text.trim().is_empty());
        let alt = named("alt").or_else(|| named("title")).unwrap_or_default();
        let alt = alt.trim();
        let source = attribute(attributes, "src").and_then(|source| target(self.options, &source));
        let is_in_link = self.is_within(&["a"]);
        for element in &mut self.stack {
            if let ElementDetail::Link { shown, .. } = &mut element.detail {
                // Not the address: the link is about what the picture shows.
                UNNAMED.clone_into(shown);
            }
        }
        match source {
            Some(Link::Picture(source)) => {
                self.fit();
                // In a link, it is the name of the link.
                let alt = if alt.is_empty() && is_in_link { UNNAMED } else { alt };
                let (source, text) = (Escaped(&source), Escaped(alt));
                let picture =
                    format_args!("<img src=\"{source}\" alt=\"{text}\" loading=\"lazy\">");
                push(&mut self.html, picture);
                if !alt.is_empty() {
                    self.note_text(alt);
                }
            }
            Some(Link::Page { href, is_missing }) if !is_in_link => {
                self.fit();
                self.separate_picture();
                let alt = if alt.is_empty() { UNNAMED } else { alt };
                let (class, mark) = match is_missing {
                    true => (" class=\"missing\"", "<sup>missing</sup>"),
                    false => ("", ""),
                };
                let (href, text) = (Escaped(&href), Escaped(alt));
                push(&mut self.html, format_args!("<a href=\"{href}\"{class}>{text}</a>{mark}"));
                self.note_text(alt);
                self.last = alt.chars().next_back().map(|last| (last, true));
            }
            _ if alt.is_empty() => {}
            _ => {
                self.separate_picture();
                self.text(alt);
                self.last = alt.chars().next_back().map(|last| (last, true));
            }
        }
    }

    /// Writes the formula that this is the place of.
    fn formula(&mut self, attributes: &Attributes) {
        let number = attribute(attributes, "name").unwrap_or_default();
        let Some(formula) = self.formulas.take(&number) else { return };
        self.fit();
        self.note_text(" ");
        self.last = Some((' ', false));
        self.html.push_str(&formula);
        self.has_formulas = true;
    }

    fn end(&mut self, role: &Role) {
        let name = match role {
            Role::Heading(_) => "heading",
            Role::Link => "a",
            Role::Item => "li",
            Role::Term => "dt",
            Role::Description => "dd",
            Role::Block(name) | Role::Inline(name) => name,
            Role::Table | Role::Section(_) | Role::Caption | Role::Row | Role::Cell(_) => {
                let name = match role {
                    Role::Section(name) | Role::Cell(name) => name,
                    Role::Caption => "caption",
                    Role::Row => "tr",
                    _ => "table",
                };
                let table = self.stack.iter().rposition(|element| element.name == "table");
                let Some(table) = table else { return };
                let found = self.stack[table..].iter().rposition(|element| element.name == name);
                if let Some(at) = found {
                    self.close_to(table + at);
                }
                return;
            }
            _ => return,
        };
        if let Some(at) = self.open(&[name]) {
            self.close_to(at);
        }
    }

    /// Closes the innermost element.
    fn close(&mut self) {
        let Some(element) = self.stack.pop() else { return };
        let Element { name, start, mut has_text, detail } = element;
        if name != "a" && !is_inline(name) {
            self.last = None;
        }
        match detail {
            ElementDetail::None | ElementDetail::Code(_) => match name {
                "table" => self.html.push_str("</table></div>"),
                "summary" if !has_text => {
                    has_text = true;
                    self.html.push_str("Details</summary>");
                }
                name => push(&mut self.html, format_args!("</{name}>")),
            },
            ElementDetail::Heading(level, id) => {
                let inner = self.html.split_off(start);
                self.heading_closed(level, id, &inner, has_text);
            }
            ElementDetail::Link { tag_start, shown, is_missing } => {
                if !has_text {
                    push(&mut self.html, format_args!("{}", Escaped(&shown)));
                    has_text = true;
                    self.last = shown.chars().next_back().map(|last| (last, true));
                }
                // Space at its ends is outside, so that two links do not look like one.
                let inner = self.html.split_off(start);
                let tag = self.html.split_off(tag_start);
                let is_space = |c: char| c.is_ascii_whitespace();
                let (text, after) = inner.split_at(inner.trim_end_matches(is_space).len());
                let (before, text) =
                    text.split_at(text.len() - text.trim_start_matches(is_space).len());
                for part in [before, &tag, text, "</a>"] {
                    self.html.push_str(part);
                }
                self.html.push_str(after);
                if is_missing {
                    self.html.push_str("<sup>missing</sup>");
                }
            }
            ElementDetail::Terms { has_term, has_description } => {
                if has_description && !has_term {
                    let inner = self.html.split_off(start);
                    push(&mut self.html, format_args!("<dt></dt>{inner}"));
                }
                if has_term && !has_description {
                    self.html.push_str("<dd></dd>");
                }
                self.html.push_str("</dl>");
            }
            ElementDetail::Cell(own) => {
                let inner = self.html.split_off(start);
                let name = if has_text { "th" } else { "td" };
                push(&mut self.html, format_args!("<{name}{own}>{inner}</{name}>"));
            }
        }
        if let Some(parent) = self.stack.last_mut() {
            parent.has_text |= has_text;
        }
    }

    fn heading_closed(&mut self, level: u8, id: Option<String>, inner: &str, has_text: bool) {
        let text = std::mem::take(&mut self.heading);
        if !has_text {
            self.html.push_str(inner);
            return;
        }
        let highest = self.options.heading_level.clamp(2, 6);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_first = self.contents.is_empty() && self.html.trim().is_empty();
        if is_first && level == 1 && self.options.takes_title && self.title.is_none() {
            self.title = Some(text);
            return;
        }
        // No level is left out on the way down.
        let level = level + highest - 1 - u8::from(self.title.is_some() && level > 1);
        let level = level.min(self.level + 1).min(6).max(highest);
        self.level = level;
        let id = id.and_then(|id| self.free_id(&id)).or_else(|| self.new_id(&text));
        let id = id.or_else(|| self.new_id("section")).unwrap_or_default();
        let shown = Escaped(&id);
        push(&mut self.html, format_args!("<h{level} id=\"{shown}\">{inner}</h{level}>"));
        if self.contents.len() < CONTENTS_MAX {
            self.contents.push(Heading { level, id, text });
        }
    }

    fn note_text(&mut self, text: &str) {
        if let Some(top) = self.stack.last_mut() {
            top.has_text = true;
        }
        if self.heading.len() < HEADING_BYTES_MAX {
            self.heading.push_str(shortened(text, HEADING_BYTES_MAX));
        }
    }

    /// Without leading line ends: each parse of `<pre>` drops one.
    fn after_pre<'text>(&self, text: &'text str) -> &'text str {
        match self.html.ends_with("<pre>") {
            true => text.trim_start_matches(['\n', '\r']),
            false => text,
        }
    }

    fn text(&mut self, text: &str) {
        let is_blank = text.bytes().all(|byte| byte.is_ascii_whitespace());
        if is_blank {
            self.last = self.last.map(|_| (' ', false));
            let is_between = self.stack.last().is_some_and(|top| {
                let names = ["table", "thead", "tbody", "tfoot", "tr", "ul", "ol", "dl"];
                names.contains(&top.name)
            });
            if !is_between {
                self.html.push_str(self.after_pre(text));
                if !self.heading.is_empty() {
                    self.heading.push(' ');
                }
            }
            return;
        }
        self.fit();
        self.note_text(text);
        if self.last.is_some_and(|(_, is_picture)| is_picture)
            && text.starts_with(char::is_alphanumeric)
        {
            self.space();
        }
        self.last = text.chars().next_back().map(|last| (last, false));
        if let Some(&Element { detail: ElementDetail::Code(language), .. }) = self.stack.last() {
            return self.highlighter.write(text, language, &mut self.html);
        }
        let mut rest = self.after_pre(text);
        let no_links: &[&str] = match self.format {
            Format::Plain => &["a"],
            _ => &["a", "code", "pre", "kbd", "samp"],
        };
        if !self.is_within(no_links) {
            while let Some(found) = first_link(rest, self.format) {
                push(&mut self.html, format_args!("{}", Escaped(found.before)));
                let shown = Escaped(found.shown);
                match target(self.options, &found.url) {
                    Some(Link::Page { href, is_missing: false }) => {
                        let href = Escaped(&href);
                        push(&mut self.html, format_args!("<a href=\"{href}\">{shown}</a>"));
                    }
                    _ => push(&mut self.html, format_args!("{shown}")),
                }
                rest = found.after;
            }
        }
        push(&mut self.html, format_args!("{}", Escaped(rest)));
    }

    /// An `id` like this one that no other element has; `None` if it has no usable characters.
    fn free_id(&mut self, wanted: &str) -> Option<String> {
        self.id(wanted, false)
    }

    /// An `id` for an element that has none.
    fn new_id(&mut self, wanted: &str) -> Option<String> {
        self.id(wanted, true)
    }

    fn id(&mut self, wanted: &str, is_new: bool) -> Option<String> {
        let base = slug(wanted)?;
        let mut id = base.clone();
        while self.ids.contains(&id) || is_new && self.reserved.contains(&id) {
            let number = self.numbers.entry(base.clone()).or_insert(0);
            *number += 1;
            id = format!("{base}-{number}");
        }
        self.ids.insert(id.clone());
        Some(format!("{ID_PREFIX}{id}"))
    }
}

/// Whether the element is part of a line.
fn is_inline(name: &str) -> bool {
    matches!(role(name.as_bytes()), Role::Inline(_))
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Whether it is one of the classes that our own steps write, and no more.
fn is_known_class(name: &str, class: &str) -> bool {
    match name {
        "div" => class == "footnote",
        "blockquote" => ALERTS.contains(&class),
        _ => false,
    }
}

/// How cells are aligned, and how many they span.
fn cell_attributes(attributes: &Attributes) -> String {
    let mut own = String::new();
    for name in ["colspan", "rowspan"] {
        let count = attribute(attributes, name).and_then(|count| count.parse::<u8>().ok());
        if let Some(count @ 2..=50) = count {
            own.push_str(&format!(" {name}=\"{count}\""));
        }
    }
    let align = attribute(attributes, "align").unwrap_or_default();
    let style = attribute(attributes, "style").unwrap_or_default();
    for side in ["right", "center"] {
        if align.eq_ignore_ascii_case(side) || style.trim() == format!("text-align: {side}") {
            own.push_str(&format!(" class=\"{side}\""));
            break;
        }
    }
    own
}
