//! The part of reStructuredText that descriptions of projects are made of, as HTML.
//!
//! Sections, paragraphs, lists of all kinds, literal and quoted blocks, tables, pictures, code, notes, footnotes, links with
//! their targets, and substitutions. Other directives are shown as plain text: nothing is included, evaluated or fetched. No
//! crate for this is complete and maintained, and docutils is in Python.
//!
//! lines -> [`Definitions`] -> blocks, each line looked at a bounded number of times -> HTML, all text escaped. What a text can
//! repeat (substitutions, targets of links, columns of tables) has its own bound, and so has the HTML.

mod inline;
mod table;

use std::collections::HashMap;

use crate::{Escaped, HREF_BYTES_MAX, WRITTEN_BYTES_MAX, push};

/// How deep blocks may be nested; deeper ones are shown as plain text.
const DEPTH_MAX: usize = 10;

/// Characters that underline a title.
const ADORNMENTS: &str = "=-`:'\"~^_*+#<>.";

/// Lines of a text; the rest is cut off. Blocks within each other hold lists of their lines.
const LINES_MAX: usize = 50_000;

/// Bytes that a substitution stands for; a longer one is no substitution.
const SUBSTITUTION_BYTES_MAX: usize = 1_000;

/// How often substitutions are written in a text; after that their names are.
const SUBSTITUTIONS_MAX: usize = 1_000;

/// The text as HTML, and whether it was cut.
pub(crate) fn html(text: &str) -> (String, bool) {
    let text = if text.contains('\t') { text.replace('\t', "        ") } else { text.to_owned() };
    let mut all = text.lines();
    let lines: Vec<&str> = all.by_ref().take(LINES_MAX).map(str::trim_end).collect();
    let mut writer = Writer { names: Definitions::of(&lines), ..Writer::default() };
    writer.blocks(&lines, 0);
    let is_cut = writer.is_full() || all.next().is_some();
    (writer.html, is_cut)
}

/// The definitions of links and substitutions: collected first, because texts use them before they define them.
#[derive(Default)]
struct Definitions {
    targets: HashMap<String, String>,
    /// Targets of links without a name, in their order; `None` for one that is too long.
    unnamed: Vec<Option<String>>,
    substitutions: HashMap<String, Substitution>,
}

enum Substitution {
    Text(String),
    Picture { source: String, alt: String, target: Option<String> },
}

impl Definitions {
    fn of(lines: &[&str]) -> Definitions {
        let mut found = Definitions::default();
        for (at, line) in lines.iter().enumerate() {
            let line = line.trim_start();
            if let Some(url) = line.strip_prefix("__ ") {
                found.unnamed.push(address(url));
                continue;
            }
            let Some(rest) = line.strip_prefix(".. ") else { continue };
            if let Some(url) = rest.strip_prefix("__:") {
                found.unnamed.push(address(url));
            } else if let Some(rest) = rest.strip_prefix('_') {
                found.target(rest, &lines[at + 1..]);
            } else if let Some(rest) = rest.strip_prefix('|') {
                found.substitution(rest, &lines[at + 1..]);
            }
        }
        found
    }

    /// `.. _name: url`
    fn target(&mut self, rest: &str, after: &[&str]) {
        let named = match rest.strip_prefix('`') {
            Some(rest) => rest.split_once("`:"),
            None => rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, ""))),
        };
        let Some((name, url)) = named else { return };
        let mut url = address(url);
        if url.as_deref() == Some("") {
            // The address may be in the next line; otherwise the target is this place.
            let next = after.first().filter(|next| next.starts_with(' '));
            url = next.map_or_else(|| address(&format!("#{name}")), |next| address(next));
        }
        if let Some(url) = url {
            self.targets.insert(key(name), url);
        }
    }

    /// `.. |name| image:: url`, `.. |name| replace:: text`
    fn substitution(&mut self, rest: &str, after: &[&str]) {
        let Some((name, rest)) = rest.split_once('|') else { return };
        let Some((kind, value)) = rest.trim().split_once("::") else { return };
        let substitution = match kind.trim() {
            "image" => {
                let options = options(after);
                let find =
                    |name: &str| options.iter().find(|(key, _)| *key == name).map(|(_, it)| *it);
                let alt = find("alt").unwrap_or(name);
                let alt = &alt[..alt.floor_char_boundary(SUBSTITUTION_BYTES_MAX)];
                let target = find("target").and_then(address);
                let Some(source) = address(value) else { return };
                Substitution::Picture { source, alt: alt.to_owned(), target }
            }
            _ if value.len() > SUBSTITUTION_BYTES_MAX => return,
            _ => Substitution::Text(value.trim().to_owned()),
        };
        self.substitutions.insert(key(name), substitution);
    }
}

/// The target of a link; `None` if it is too long.
fn address(text: &str) -> Option<String> {
    let text = text.trim();
    (text.len() <= HREF_BYTES_MAX).then(|| text.to_owned())
}

/// The options of a directive: the lines `:name: value` after it.
fn options<'text>(after: &[&'text str]) -> Vec<(&'text str, &'text str)> {
    let lines = after.iter().take(20).take_while(|line| line.starts_with(' '));
    lines.map_while(|line| field(line.trim_start())).collect()
}

/// `:name: value`
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix(':')?.split_once(':')?;
    let is_field = !name.is_empty()
        && !name.starts_with(' ')
        && !name.contains('`')
        && (value.is_empty() || value.starts_with(' '));
    is_field.then_some((name, value.trim()))
}

/// Names are the same in any case and with any space.
fn key(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

#[derive(Default)]
struct Writer {
    names: Definitions,
    html: String,
    /// Kinds of underlines, highest level first, and whether there is one above the title as well.
    levels: Vec<(char, bool)>,
    /// How many links without a name were written.
    unnamed: usize,
    /// Substitutions that are being written within each other.
    depth: usize,
    /// How many substitutions were written.
    substituted: usize,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The character that a line consists of, if it underlines.
fn adornment(line: &str) -> Option<char> {
    let first = line.chars().next()?;
    let is_one = ADORNMENTS.contains(first) && line.len() >= 2 && line.chars().all(|c| c == first);
    is_one.then_some(first)
}

/// How many of these lines are blank or indented: they are the body of the line before them.
fn body_length(lines: &[&str]) -> usize {
    let length =
        lines.iter().position(|line| !line.is_empty() && indent(line) == 0).unwrap_or(lines.len());
    // Blank lines at the end separate.
    length - lines[..length].iter().rev().take_while(|line| line.is_empty()).count()
}

/// The lines without their common indentation.
fn dedented<'text>(lines: &[&'text str]) -> Vec<&'text str> {
    let common = lines.iter().filter(|line| !line.is_empty()).map(|line| indent(line)).min();
    let common = common.unwrap_or_default();
    lines.iter().map(|line| line.get(common..).unwrap_or_default()).collect()
}

/// The length of what begins an item of a list: `- `, `1. `, `#) `.
fn marker(line: &str) -> Option<(usize, bool)> {
    let first = line.chars().next()?;
    if matches!(first, '-' | '*' | '+' | '•') {
        let length = first.len_utf8();
        let rest = &line[length..];
        return (rest.is_empty() || rest.starts_with(' ')).then_some((length + 1, false));
    }
    let line = line.strip_prefix('(').unwrap_or(line);
    let digits = match line.strip_prefix('#') {
        Some(_) => 1,
        None => line.bytes().take_while(u8::is_ascii_digit).count(),
    };
    let rest = line.get(digits..).filter(|_| (1..=4).contains(&digits))?;
    let rest = rest.strip_prefix(['.', ')'])?;
    rest.starts_with(' ').then_some((digits + 2, true))
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
        for line in dedented(lines) {
            self.escaped(line);
            self.push("\n");
        }
        self.push("</pre>");
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

    /// Writes the block that these lines begin with, and returns how many lines it has.
    fn block(&mut self, lines: &[&str], depth: usize) -> usize {
        let line = lines[0];
        let next = lines.get(1).copied().unwrap_or_default();
        if indent(line) > 0 {
            let length = body_length(lines).max(1);
            self.push("<blockquote>");
            self.blocks(&dedented(&lines[..length]), depth + 1);
            self.push("</blockquote>");
            return length;
        }
        if let Some(length) = self.title(lines, depth) {
            return length;
        }
        if line.starts_with("__ ") {
            return 1;
        }
        if line == ".." || line.starts_with(".. ") {
            let length = 1 + body_length(&lines[1..]);
            self.explicit(&lines[..length], depth);
            return length;
        }
        if line == "::" {
            return 1 + self.literal_after(&lines[1..]);
        }
        if line.starts_with(">>> ") {
            let length = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
            self.literal(&lines[..length]);
            return length;
        }
        if line == "|" || line.starts_with("| ") {
            let length =
                lines.iter().take_while(|line| line.starts_with('|') || indent(line) > 0).count();
            self.push("<p>");
            for line in &lines[..length] {
                self.inline(line.trim_start_matches('|').trim());
                self.push("<br>");
            }
            self.push("</p>");
            return length;
        }
        if line.starts_with("+-") || line.starts_with("+=") {
            let length = lines.iter().take_while(|line| line.starts_with(['+', '|'])).count();
            self.literal(&lines[..length]);
            return length;
        }
        if let Some(table) = table::simple(lines) {
            self.table(&table);
            return table.length;
        }
        if let Some((_, is_numbered)) = marker(line) {
            return self.list(lines, is_numbered, depth);
        }
        if field(line).is_some() {
            return self.fields(lines, depth);
        }
        if indent(next) > 0 && !line.ends_with("::") {
            return self.terms(lines, depth);
        }
        self.paragraph(lines)
    }

    /// A title with the line below it, and maybe one above it.
    fn title(&mut self, lines: &[&str], depth: usize) -> Option<usize> {
        let at = |at: usize| lines.get(at).copied().unwrap_or_default();
        let (text, kind, length) = match adornment(at(0)) {
            Some(above) => {
                let text = at(1).trim();
                if text.is_empty() && at(0).len() >= 4 {
                    self.push("<hr>");
                    return Some(1);
                }
                (adornment(at(2)) == Some(above)).then_some(())?;
                (text, (above, true), 3)
            }
            None => {
                let below = adornment(at(1))?;
                // Some count wide characters differently.
                (at(1).len() >= 3 || at(1).len() >= at(0).len()).then_some(())?;
                (at(0), (below, false), 2)
            }
        };
        if text.is_empty() || depth > 0 {
            return None;
        }
        let level = self.levels.iter().position(|known| *known == kind).unwrap_or_else(|| {
            self.levels.push(kind);
            self.levels.len() - 1
        });
        let level = (level + 1).min(6);
        push(&mut self.html, format_args!("<h{level}>"));
        self.inline(text);
        push(&mut self.html, format_args!("</h{level}>"));
        Some(length)
    }

    /// A block that begins with `..`: a directive, a definition, a footnote or a comment.
    fn explicit(&mut self, lines: &[&str], depth: usize) {
        let first = lines[0].strip_prefix("..").unwrap_or_default().trim();
        let body = &lines[1..];
        if let Some(rest) = first.strip_prefix('_') {
            // A place in the text.
            let name = rest.trim_matches(['`', ':']);
            if rest.ends_with(':') && body_length(body) == 0 {
                push(&mut self.html, format_args!("<a id=\"{}\"></a>", Escaped(name)));
            }
            return;
        }
        if first.starts_with(['|']) || first.starts_with("__") {
            return;
        }
        if let Some((label, text)) = first.strip_prefix('[').and_then(|it| it.split_once(']')) {
            let id = Escaped(label.trim_start_matches('#'));
            push(&mut self.html, format_args!("<p id=\"fn-{id}\">[{id}] "));
            self.inline(text.trim());
            self.push("</p>");
            return self.blocks(&dedented(body), depth + 1);
        }
        let Some((name, argument)) = first.split_once("::") else { return };
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':' | '.'));
        if is_name {
            self.directive(name, argument.trim(), body, depth);
        }
    }

    fn directive(&mut self, name: &str, argument: &str, body: &[&str], depth: usize) {
        let given = options(body);
        let option =
            |name: &str| given.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let content = dedented(&body[given.len().min(body.len())..]);
        match name {
            "code" | "code-block" | "sourcecode" | "parsed-literal" | "console" | "prompt"
            | "highlight" => {
                let blank = content.iter().take_while(|line| line.is_empty()).count();
                if content.len() > blank {
                    self.literal(&content[blank..]);
                }
            }
            "image" | "figure" => {
                let alt = option("alt").unwrap_or_default();
                self.push("<p>");
                self.picture(argument, alt, option("target"));
                self.push("</p>");
                self.blocks(&content, depth + 1);
            }
            "note" | "warning" | "tip" | "hint" | "important" | "caution" | "attention"
            | "danger" | "error" | "admonition" | "seealso" | "versionadded" | "versionchanged"
            | "deprecated" | "topic" | "sidebar" | "rubric" => {
                self.push("<blockquote><p><strong>");
                let titled = ["admonition", "topic", "sidebar", "rubric"].contains(&name);
                if titled {
                    self.inline(argument);
                } else {
                    let mut letters = name.chars();
                    let first: String =
                        letters.next().into_iter().flat_map(char::to_uppercase).collect();
                    self.escaped(&first);
                    self.escaped(letters.as_str());
                }
                self.push("</strong> ");
                if !titled {
                    self.inline(argument);
                }
                self.push("</p>");
                self.blocks(&content, depth + 1);
                self.push("</blockquote>");
            }
            // The page has this in another form, or it is for another tool.
            "contents" | "toctree" | "meta" | "raw" | "include" | "sectnum"
            | "section-numbering" | "role" | "default-role" | "index" | "currentmodule"
            | "module" => {}
            _ => {
                let heading = format!(".. {name}:: {argument}");
                let mut lines = vec![heading.as_str()];
                lines.extend(body);
                self.literal(&lines);
            }
        }
    }

    fn picture(&mut self, source: &str, alt: &str, target: Option<&str>) {
        if let Some(target) = target {
            push(&mut self.html, format_args!("<a href=\"{}\">", Escaped(target)));
        }
        let (source, alt) = (Escaped(source), Escaped(alt));
        push(&mut self.html, format_args!("<img src=\"{source}\" alt=\"{alt}\">"));
        if target.is_some() {
            self.push("</a>");
        }
    }

    /// The literal block that a `::` announced; answers how many lines it has.
    fn literal_after(&mut self, lines: &[&str]) -> usize {
        let blank = lines.iter().take_while(|line| line.is_empty()).count();
        let length = body_length(&lines[blank..]);
        if length == 0 {
            return 0;
        }
        self.literal(&lines[blank..blank + length]);
        blank + length
    }

    fn list(&mut self, lines: &[&str], is_numbered: bool, depth: usize) -> usize {
        let tag = if is_numbered { "ol" } else { "ul" };
        push(&mut self.html, format_args!("<{tag}>"));
        let mut at = 0;
        while let Some((offset, kind)) = lines.get(at).and_then(|line| marker(line)) {
            if kind != is_numbered {
                break;
            }
            let length = 1 + body_length(&lines[at + 1..]);
            // Lines that continue without being indented belong to it as well.
            let mut item = vec![lines[at].get(offset..).unwrap_or_default().trim_start()];
            item.extend(dedented(&lines[at + 1..at + length]));
            self.push("<li>");
            self.blocks(&item, depth + 1);
            self.push("</li>");
            at += length;
            at += lines[at..].iter().take_while(|line| line.is_empty()).count();
        }
        push(&mut self.html, format_args!("</{tag}>"));
        at
    }

    fn fields(&mut self, lines: &[&str], depth: usize) -> usize {
        self.push("<dl>");
        let mut at = 0;
        while let Some((name, value)) = lines.get(at).and_then(|line| field(line)) {
            let length = 1 + body_length(&lines[at + 1..]);
            self.push("<dt>");
            self.inline(name);
            self.push("</dt><dd>");
            let mut item = vec![value];
            item.extend(dedented(&lines[at + 1..at + length]));
            self.blocks(&item, depth + 1);
            self.push("</dd>");
            at += length;
        }
        self.push("</dl>");
        at
    }

    /// Terms, each with its definition indented below it.
    fn terms(&mut self, lines: &[&str], depth: usize) -> usize {
        self.push("<dl>");
        let mut at = 0;
        loop {
            let is_term = lines.get(at).is_some_and(|line| !line.is_empty() && indent(line) == 0)
                && lines.get(at + 1).is_some_and(|line| indent(line) > 0 && !line.is_empty())
                && (at == 0 || marker(lines[at]).is_none() && !lines[at].starts_with(".. "));
            if !is_term {
                break;
            }
            let length = 1 + body_length(&lines[at + 1..]);
            self.push("<dt>");
            self.inline(lines[at]);
            self.push("</dt><dd>");
            self.blocks(&dedented(&lines[at + 1..at + length]), depth + 1);
            self.push("</dd>");
            at += length;
            at += lines[at..].iter().take_while(|line| line.is_empty()).count();
        }
        self.push("</dl>");
        at
    }

    fn paragraph(&mut self, lines: &[&str]) -> usize {
        let length = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len()).max(1);
        let text = lines[..length].join("\n");
        let announces = text.ends_with("::");
        let text = match text.strip_suffix("::") {
            Some(before) if before.ends_with([' ', '\n']) => before.trim_end(),
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

    fn table(&mut self, table: &table::Table<'_>) {
        self.push("<table>");
        for (at, row) in table.rows.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let cell = if at < table.head_rows { "th" } else { "td" };
            self.push("<tr>");
            for text in row {
                push(&mut self.html, format_args!("<{cell}>"));
                self.inline(text);
                push(&mut self.html, format_args!("</{cell}>"));
            }
            self.push("</tr>");
        }
        self.push("</table>");
    }
}
