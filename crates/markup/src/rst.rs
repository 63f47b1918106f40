//! The part of reStructuredText that descriptions of projects are made of, as HTML.
//!
//! Sections, paragraphs, lists of all kinds, literal and quoted blocks, tables, pictures, code, notes, footnotes, links with
//! their targets, and substitutions, as docutils reads them. What is not known is shown as it is written: nothing is included,
//! evaluated or fetched, and what was meant as text is not lost. No crate for this is complete and maintained, and docutils is in
//! Python.
//!
//! lines -> blocks, once to find the definitions ([`Names`]) where docutils sees them, and once more to write HTML, all text
//! escaped. Each line is looked at a bounded number of times. What a text can repeat (substitutions, targets of links, columns
//! of tables) has its own bound, and so has the HTML.

mod explicit;
mod inline;
mod lines;
mod names;
mod table;

use self::lines::{
    Enumerator, Kind, adornment, body_length, body_length_from, bullet, dedented, field, indent,
    kind, option, trimmed,
};
use self::names::Names;
use self::table::Table;
use crate::{Escaped, WRITTEN_BYTES_MAX, push};

/// How deep blocks may be nested; deeper ones are shown as plain text.
const DEPTH_MAX: usize = 12;

/// Lines of a text; the rest is cut off. Blocks within each other hold lists of their lines.
const LINES_MAX: usize = 50_000;

/// Bytes that a substitution stands for; a longer one is no substitution.
const SUBSTITUTION_BYTES_MAX: usize = 1_000;

/// How often substitutions are written in a text; after that their names are.
const SUBSTITUTIONS_MAX: usize = 1_000;

/// The text as HTML, and whether it was cut.
pub(crate) fn html(text: &str) -> (String, bool) {
    let text = without_tabs(text);
    let mut all = text.lines();
    let lines: Vec<&str> = all.by_ref().take(LINES_MAX).map(str::trim_end).collect();
    let write = |names: Names| {
        let mut writer = Writer { names, ..Writer::default() };
        writer.blocks(&lines, 0);
        writer
    };
    let mut names = write(Names::default()).names;
    names.complete();
    let mut writer = write(names);
    // Links without a name take targets in their order. If their numbers differ, nobody knows which of them is wrong.
    let is_uneven = writer.unnamed != writer.names.unnamed.len();
    if is_uneven && !writer.names.unnamed.is_empty() {
        let mut names = writer.names;
        names.unnamed.clear();
        writer = write(names);
    }
    let is_cut = writer.is_full() || all.next().is_some();
    (writer.html, is_cut)
}

/// The text with spaces up to the next eighth column for each tab.
fn without_tabs(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' => {
                let spaces = 8 - column % 8;
                spaced.push_str(&"        "[..spaces]);
                column += spaces;
            }
            // They separate words, but docutils takes them for no indentation.
            '\u{b}' | '\u{c}' => {
                spaced.push(' ');
                column += 1;
            }
            c => {
                spaced.push(c);
                column = if c == '\n' { 0 } else { column + 1 };
            }
        }
    }
    spaced
}

#[derive(Default)]
struct Writer {
    names: Names,
    html: String,
    /// Kinds of underlines, highest level first, and whether there is one above the title as well.
    levels: Vec<(char, bool)>,
    /// How many titles were written.
    titles: usize,
    /// How many footnotes were written.
    notes: usize,
    /// How many references to footnotes without a label, and to those with a sign, were written.
    counted_notes: usize,
    signed_notes: usize,
    /// How many links without a name were written, and how many targets for them were passed.
    unnamed: usize,
    unnamed_targets: usize,
    /// Names of places that were defined directly before: a target that follows is theirs, too.
    places: Vec<String>,
    /// Where a paragraph of pictures ends, if one was written last.
    row_end: Option<usize>,
    /// The caption of the next table.
    caption: Option<String>,
    /// Substitutions that are being written within each other.
    depth: usize,
    /// How many substitutions were written.
    substituted: usize,
}

impl Writer {
    fn push(&mut self, html: &str) {
        self.html.push_str(html);
    }

    /// Whether there is more HTML than is shown: every loop ends then.
    fn is_full(&self) -> bool {
        self.html.len() > WRITTEN_BYTES_MAX
    }

    fn escaped(&mut self, text: &str) {
        push(&mut self.html, format_args!("{}", Escaped(text)));
    }

    fn literal(&mut self, lines: &[&str]) {
        self.push("<pre>\n");
        self.lines(lines);
        self.push("</pre>");
    }

    /// Code in this language.
    fn code(&mut self, lines: &[&str], language: &str) {
        push(&mut self.html, format_args!("<pre><code class=\"language-{}\">", Escaped(language)));
        self.lines(lines);
        self.push("</code></pre>");
    }

    fn lines(&mut self, lines: &[&str]) {
        for line in dedented(lines) {
            self.escaped(line);
            self.push("\n");
        }
    }

    fn blocks(&mut self, lines: &[&str], depth: usize) {
        if depth > DEPTH_MAX {
            return self.literal(lines);
        }
        let mut at = 0;
        while let Some(line) = lines.get(at)
            && !self.is_full()
        {
            if line.is_empty() {
                at += 1;
                continue;
            }
            at += self.block(&lines[at..], depth).max(1);
        }
    }

    /// Blocks, or only a line if there is one paragraph.
    fn compact(&mut self, lines: &[&str], depth: usize) {
        let lines = trimmed(lines);
        let is_paragraph = !lines.is_empty()
            && kind(lines) == Kind::Text
            && lines[1..].iter().all(|line| !line.is_empty() && indent(line) == 0)
            && !lines[lines.len() - 1].ends_with("::");
        match is_paragraph {
            true => self.inline(&lines.join("\n")),
            false => self.blocks(lines, depth + 1),
        }
    }

    /// Writes the block that these lines begin with, and returns how many lines it has.
    fn block(&mut self, lines: &[&str], depth: usize) -> usize {
        let kind = kind(lines);
        if kind != Kind::Explicit {
            self.places.clear();
        }
        match kind {
            Kind::Quote => {
                let length = body_length(lines).max(1);
                self.push("<blockquote>");
                self.blocks(&dedented(&lines[..length]), depth + 1);
                self.push("</blockquote>");
                length
            }
            Kind::Bullets => self.bullets(lines, depth),
            Kind::Counted => self.counted(lines, depth),
            Kind::Fields => self.pairs(lines, depth, Kind::Fields, field),
            Kind::Options => self.pairs(lines, depth, Kind::Options, option),
            Kind::Doctest => {
                let length = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
                self.literal(&lines[..length]);
                length
            }
            Kind::LineBlock => self.line_block(lines),
            Kind::GridTable | Kind::SimpleTable => {
                let length = table::length(lines, kind == Kind::GridTable);
                let table = match kind {
                    Kind::GridTable => table::grid(&lines[..length]),
                    _ => table::simple(&lines[..length]),
                };
                match table {
                    Some(table) => self.table(&table, depth),
                    None => self.literal(&lines[..length]),
                }
                length
            }
            Kind::Explicit => self.explicit(lines, depth),
            Kind::Unnamed => {
                let length = 1 + body_length(&lines[1..]);
                let length = lines[..length].iter().position(|it| it.is_empty()).unwrap_or(length);
                self.unnamed_target(&lines[0][2..], &lines[1..length]);
                length
            }
            Kind::Adornment => {
                self.overlined(lines, depth).unwrap_or_else(|| self.paragraph(lines))
            }
            Kind::Text => self.text(lines, depth),
        }
    }

    /// A title with a line above it, or a transition.
    fn overlined(&mut self, lines: &[&str], depth: usize) -> Option<usize> {
        let at = |at: usize| lines.get(at).copied().unwrap_or_default();
        let above = adornment(at(0))?;
        let title = at(1).trim();
        if title.is_empty() {
            if lines[0].len() < 4 {
                return None;
            }
            self.push("<hr>");
            return Some(1);
        }
        let is_title = adornment(at(2)) == Some(above) && depth == 0;
        let is_long = at(0).len() >= 4 || at(0).chars().count() >= title.chars().count();
        if !is_title || !is_long {
            return None;
        }
        self.title(title, (above, true));
        Some(3)
    }

    /// A title, a definition or a paragraph.
    fn text(&mut self, lines: &[&str], depth: usize) -> usize {
        let next = lines.get(1).copied().unwrap_or_default();
        if let Some(below) = adornment(next)
            && depth == 0
            && (next.len() >= 4 || next.chars().count() >= lines[0].chars().count())
        {
            self.title(lines[0], (below, false));
            return 2;
        }
        if indent(next) > 0 { self.terms(lines, depth) } else { self.paragraph(lines) }
    }

    fn title(&mut self, text: &str, kind: (char, bool)) {
        let level = self.levels.iter().position(|known| *known == kind).unwrap_or_else(|| {
            self.levels.push(kind);
            self.levels.len() - 1
        });
        let level = (level + 1).min(6);
        let start = self.html.len();
        self.inline(text);
        let inner = self.html.split_off(start);
        self.names.define_section(&text_of(&inner));
        let id = self.names.titles.get(self.titles).cloned().unwrap_or_default();
        self.titles += 1;
        let id = Escaped(&id);
        push(&mut self.html, format_args!("<h{level} id=\"{id}\">{inner}</h{level}>"));
    }

    /// The literal block that a `::` announced, indented or quoted; returns how many lines it has.
    fn literal_after(&mut self, lines: &[&str]) -> usize {
        let blank = lines.iter().take_while(|line| line.is_empty()).count();
        let lines = &lines[blank..];
        let mut length = body_length(lines);
        if length == 0 && blank > 0 {
            let quote = lines.first().and_then(|line| line.chars().next());
            let quote = quote.filter(char::is_ascii_punctuation);
            length = lines
                .iter()
                .take_while(|line| quote.is_some_and(|it| line.starts_with(it)))
                .count();
        }
        if length == 0 {
            return 0;
        }
        self.literal(&lines[..length]);
        blank + length
    }

    fn line_block(&mut self, lines: &[&str]) -> usize {
        let is_line = |line: &str| line == "|" || line.starts_with("| ");
        let length = lines.iter().take_while(|line| is_line(line) || indent(line) > 0).count();
        self.push("<p>");
        let mut at = 0;
        while at < length {
            let more = lines[at + 1..length].iter().take_while(|line| indent(line) > 0).count();
            let line: Vec<&str> = lines[at..=at + more].iter().map(|line| line.trim()).collect();
            self.inline(line.join("\n").trim_start_matches('|').trim());
            self.push("<br>");
            at += 1 + more;
        }
        self.push("</p>");
        length
    }

    fn item(&mut self, item: &[&str], depth: usize) {
        self.push("<li>");
        self.blocks(item, depth + 1);
        self.push("</li>");
    }

    fn bullets(&mut self, lines: &[&str], depth: usize) -> usize {
        self.push("<ul>");
        let (items, length) = items(lines);
        for item in items {
            self.item(&item, depth);
        }
        self.push("</ul>");
        length
    }

    fn counted(&mut self, lines: &[&str], depth: usize) -> usize {
        let Some(mut counted) = Enumerator::first(lines[0]) else { return self.paragraph(lines) };
        match counted.number() {
            1 => self.push("<ol>"),
            start => push(&mut self.html, format_args!("<ol start=\"{start}\">")),
        }
        let mut at = 0;
        loop {
            let (item, length) = item(&lines[at..], counted.length);
            self.item(&item, depth);
            at += length;
            let blank = lines[at..].iter().take_while(|line| line.is_empty()).count();
            let next = lines.get(at + blank).and_then(|line| counted.next(line));
            let Some(next) = next.filter(|_| kind(&lines[at + blank..]) == Kind::Counted) else {
                break;
            };
            counted = next;
            at += blank;
        }
        self.push("</ol>");
        at
    }

    /// Lines of the same kind, each with a name and a body.
    fn pairs<'text>(
        &mut self,
        lines: &[&'text str],
        depth: usize,
        same: Kind,
        split: impl Fn(&'text str) -> Option<(&'text str, &'text str)>,
    ) -> usize {
        self.push("<dl>");
        let mut at = 0;
        while let Some((name, value)) = lines.get(at).and_then(|line| split(line)) {
            let length = 1 + body_length(&lines[at + 1..]);
            self.push("<dt>");
            match same {
                Kind::Options => self.tagged_code(name),
                _ => self.inline(name),
            }
            self.push("</dt><dd>");
            let mut item = vec![value];
            item.extend(dedented(&lines[at + 1..at + length]));
            self.blocks(&item, depth + 1);
            self.push("</dd>");
            at += length;
            let blank = lines[at..].iter().take_while(|line| line.is_empty()).count();
            if lines.get(at + blank).is_none() || kind(&lines[at + blank..]) != same {
                break;
            }
            at += blank;
        }
        self.push("</dl>");
        at
    }

    fn tagged_code(&mut self, text: &str) {
        push(&mut self.html, format_args!("<code>{}</code>", Escaped(text)));
    }

    /// Terms, each with its definition indented below it.
    fn terms(&mut self, lines: &[&str], depth: usize) -> usize {
        self.push("<dl>");
        let mut at = 0;
        loop {
            let length = 1 + body_length(&lines[at + 1..]);
            self.push("<dt>");
            self.inline(lines[at]);
            self.push("</dt><dd>");
            self.blocks(&dedented(&lines[at + 1..at + length]), depth + 1);
            self.push("</dd>");
            at += length;
            let blank = lines[at..].iter().take_while(|line| line.is_empty()).count();
            let has_body = lines.get(at + blank + 1).is_some_and(|line| indent(line) > 0);
            if !has_body || kind(&lines[at + blank..]) != Kind::Text {
                break;
            }
            at += blank;
        }
        self.push("</dl>");
        at
    }

    fn paragraph(&mut self, lines: &[&str]) -> usize {
        let ends = |line: &&str| line.is_empty() || indent(line) > 0;
        let length = lines.iter().position(ends).unwrap_or(lines.len()).max(1);
        let text = lines[..length].join("\n");
        let announces = text.ends_with("::");
        let text = match text.strip_suffix("::") {
            Some(before) if before.ends_with([' ', '\n']) || before.is_empty() => before.trim_end(),
            Some(_) => &text[..text.len() - 1],
            None => &text,
        };
        if !text.is_empty() {
            self.push("<p>");
            self.inline(text);
            self.push("</p>\n");
        }
        match announces {
            true => length + self.literal_after(&lines[length..]),
            false => length,
        }
    }

    fn table(&mut self, table: &Table<'_>, depth: usize) {
        self.push("<table>");
        if let Some(caption) = self.caption.take() {
            self.push("<caption>");
            self.inline(&caption);
            self.push("</caption>");
        }
        for (at, row) in table.rows.iter().enumerate() {
            if self.is_full() {
                break;
            }
            self.push("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let is_head = at < table.head_rows || column < table.head_columns;
                let name = if is_head { "th" } else { "td" };
                push(&mut self.html, format_args!("<{name}"));
                for (attribute, count) in [("colspan", cell.columns), ("rowspan", cell.rows)] {
                    if count > 1 {
                        push(&mut self.html, format_args!(" {attribute}=\"{count}\""));
                    }
                }
                self.push(">");
                self.compact(&cell.lines, depth);
                push(&mut self.html, format_args!("</{name}>"));
            }
            self.push("</tr>");
        }
        self.push("</table>");
    }
}

/// The lines of an item that begins with a mark of this length, without the mark, and how many they are.
fn item<'text>(lines: &[&'text str], mark: usize) -> (Vec<&'text str>, usize) {
    let text = lines[0].get(mark..).unwrap_or_default();
    let after = &lines[1..];
    let mut item = vec![text];
    let length = match text.is_empty() {
        true => body_length(after),
        // The first line says how far the others are indented.
        false => body_length_from(after, lines[0].chars().count() - text.chars().count()),
    };
    match text.is_empty() {
        true => item.extend(dedented(&after[..length])),
        false => {
            let common = lines[0].chars().count() - text.chars().count();
            item.extend(after[..length].iter().map(|line| line.get(common..).unwrap_or_default()));
        }
    }
    (item, 1 + length)
}

/// The items of the list that these lines begin with, and how many lines it has.
fn items<'text>(lines: &[&'text str]) -> (Vec<Vec<&'text str>>, usize) {
    let mut found = Vec::new();
    let mut at = 0;
    let mut first = None;
    loop {
        let blank = lines[at..].iter().take_while(|line| line.is_empty()).count();
        let Some((mark, sign)) = lines.get(at + blank).and_then(|line| bullet(line)) else { break };
        if *first.get_or_insert(sign) != sign {
            break;
        }
        let (item, length) = item(&lines[at + blank..], mark);
        found.push(item);
        at += blank + length;
    }
    (found, at)
}

/// The text of this HTML, which is ours.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, shown)| shown));
    }
    for (reference, character) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
    {
        text = text.replace(reference, character);
    }
    text
}
