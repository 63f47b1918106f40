//! Blocks that begin with `..`: directives, targets of links, substitutions, footnotes and comments.

use super::lines::{Kind, body_length, dedented, field, indent, is_simple_name, kind, trimmed};
use super::names::{Names, NoteLabel, Substitution};
use super::table::{self, Dialect};
use super::{SUBSTITUTION_BYTES_MAX, Writer, items};
use crate::{Escaped, push};

/// What ends a paragraph of pictures.
const ROW_END: &str = "</p>\n";

/// A directive, taken apart.
struct Directive<'text> {
    /// In small letters.
    name: String,
    /// The lines before the options.
    argument: Vec<&'text str>,
    options: Vec<(String, Vec<&'text str>)>,
    /// What comes after a blank line.
    content: Vec<&'text str>,
}

impl<'text> Directive<'text> {
    /// `name:: argument`, and the indented lines after it.
    fn parse(first: &'text str, body: &[&'text str]) -> Option<Directive<'text>> {
        let (name, argument) = first.split_once("::")?;
        let name = name.strip_suffix(' ').unwrap_or(name);
        let is_apart = argument.is_empty() || argument.starts_with(' ');
        if !is_simple_name(name) || !is_apart {
            return None;
        }
        let mut lines = vec![argument.trim()];
        lines.extend(dedented(body));
        // The argument may be on the next line.
        let lines = match lines[0].is_empty() {
            true => &lines[1..],
            false => &lines[..],
        };
        let head = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
        let arguments = lines[..head]
            .iter()
            .position(|line| field(line.trim_start()).is_some())
            .unwrap_or(head);
        let mut options: Vec<(String, Vec<&'text str>)> = Vec::new();
        for line in &lines[arguments..head] {
            match (field(line.trim_start()), options.last_mut()) {
                (Some((name, value)), _) => options.push((name.to_lowercase(), vec![value])),
                (None, Some((_, value))) => value.push(line.trim()),
                (None, None) => {}
            }
        }
        Some(Directive {
            name: name.to_lowercase(),
            argument: lines[..arguments].to_vec(),
            options,
            content: trimmed(&lines[head..]).to_vec(),
        })
    }

    fn option(&self, name: &str) -> Option<String> {
        let (_, lines) = self.options.iter().find(|(known, _)| known == name)?;
        Some(lines.join(" ").trim().to_owned())
    }

    fn count(&self, name: &str) -> usize {
        self.option(name).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn argument(&self) -> String {
        self.argument.join(" ")
    }

    /// The argument as an address.
    fn address(&self) -> String {
        self.argument.concat().split_whitespace().collect()
    }

    /// The content of a directive that has no argument: what looks like one is text.
    fn whole(&self) -> Vec<&'text str> {
        let mut lines = self.argument.clone();
        if !lines.is_empty() && !self.content.is_empty() {
            lines.push("");
        }
        lines.extend(&self.content);
        lines
    }

    /// The content of code: an argument that is no name of a language is text.
    fn code(&self) -> Vec<&'text str> {
        let is_language = self.argument.len() <= 1 && !self.argument().contains(' ');
        if is_language && (!self.content.is_empty() || self.options.is_empty()) {
            return self.content.clone();
        }
        if is_language { Vec::new() } else { self.whole() }
    }
}

impl Writer {
    /// Writes a block that begins with `..`, and returns how many lines it has.
    pub(super) fn explicit(&mut self, lines: &[&str], depth: usize) -> usize {
        let first = lines[0].strip_prefix("..").unwrap_or_default().trim();
        let length = 1 + body_length(&lines[1..]);
        let body = &lines[1..length];
        if first.starts_with('_') && first.len() > 1 && !first.starts_with("_ ") {
            // A target ends at a blank line: what is indented after that is a quotation.
            let length = lines[..length].iter().position(|it| it.is_empty()).unwrap_or(length);
            self.target(&first[1..], &lines[..length]);
            return length;
        }
        self.places.clear();
        if let Some((label, text)) = first.strip_prefix('[').and_then(|it| it.split_once(']'))
            && (text.is_empty() || text.starts_with(' '))
            && let Some(parsed) = NoteLabel::parse(label)
        {
            let mut content = vec![text.trim()];
            content.extend(dedented(body));
            self.note(parsed, label, &content, depth);
        } else if let Some(rest) = first.strip_prefix('|').filter(|rest| !rest.starts_with(' ')) {
            if !self.substitution(rest, body) {
                self.literal(&lines[..length]);
            }
        } else if let Some(directive) = Directive::parse(first, body) {
            if !self.directive(&directive, depth) {
                self.literal(&lines[..length]);
            }
        } else if first.is_empty() && lines.get(1).is_none_or(|next| next.is_empty()) {
            // An empty comment. What is indented after it is a quotation.
            return 1;
        }
        length
    }

    /// `_name: url`, of which `rest` is without the underscore.
    fn target(&mut self, rest: &str, lines: &[&str]) {
        if let Some(url) = rest.strip_prefix("_:").filter(|url| is_apart(url)) {
            return self.unnamed_target(url, &lines[1..]);
        }
        let joined = std::iter::once(rest).chain(lines[1..].iter().map(|line| line.trim()));
        let joined = joined.collect::<Vec<_>>().join(" ");
        let Some((name, url)) = named(&joined) else { return self.literal(lines) };
        if url.trim().is_empty() {
            self.names.define_place(name);
            if let Some(id) = self.names.place(name) {
                push(&mut self.html, format_args!("<a id=\"{}\"></a>", Escaped(id)));
            }
            return self.places.push(name.to_owned());
        }
        if let Some(target) = Names::target(url) {
            let places = std::mem::take(&mut self.places);
            self.names.define_instead(&places, &target);
            self.names.define(name, target);
        }
    }

    /// `__ url`, of which `rest` is without the underscores.
    pub(super) fn unnamed_target(&mut self, rest: &str, after: &[&str]) {
        let url = std::iter::once(rest).chain(after.iter().copied()).collect::<Vec<_>>().join(" ");
        if url.trim().is_empty() {
            self.names.define_unnamed_place();
            let target = self.names.unnamed.get(self.unnamed_targets);
            let href = target.cloned().flatten().and_then(|target| self.names.href_of(&target));
            if let Some(id) = href.as_deref().and_then(|href| href.strip_prefix('#')) {
                push(&mut self.html, format_args!("<a id=\"{}\"></a>", Escaped(id)));
            }
        } else {
            self.names.define_unnamed(Names::target(&url));
        }
        self.unnamed_targets += 1;
    }

    fn note(&mut self, label: NoteLabel, written: &str, content: &[&str], depth: usize) {
        self.names.define_note(label, written);
        let note = self.names.note_at(self.notes);
        let (id, shown) = note.map_or_else(
            || (String::new(), written.to_owned()),
            |note| (note.id.clone(), note.shown.clone()),
        );
        self.notes += 1;
        let (id, shown) = (Escaped(&id), Escaped(&shown));
        push(&mut self.html, format_args!("<div id=\"{id}\">[{shown}] "));
        self.compact(content, depth);
        self.push("</div>");
    }

    /// `|name| image:: url`, `|name| replace:: text`, of which `rest` is without the first bar. Whether it is one.
    fn substitution(&mut self, rest: &str, body: &[&str]) -> bool {
        let Some((name, rest)) = rest.split_once('|') else { return false };
        let Some(directive) = Directive::parse(rest.trim(), body) else { return false };
        let substitution = match directive.name.as_str() {
            "image" => {
                let alt = directive.option("alt").unwrap_or_else(|| name.to_owned());
                let alt = alt[..alt.floor_char_boundary(SUBSTITUTION_BYTES_MAX)].to_owned();
                let target = directive.option("target");
                let target = target.filter(|it| it.len() <= crate::HREF_BYTES_MAX);
                let Some(source) = Names::url(&directive.address()) else { return true };
                Substitution::Picture { source, alt, target }
            }
            // What day it is, nobody says here.
            "date" => return true,
            "unicode" => Substitution::Text(unicode(&directive.argument())),
            _ => Substitution::Text(directive.whole().join(" ").trim().to_owned()),
        };
        if !matches!(&substitution, Substitution::Text(text) if text.len() > SUBSTITUTION_BYTES_MAX)
        {
            self.names.define_substitution(name, substitution);
        }
        true
    }

    /// Writes a directive. Whether it is known.
    fn directive(&mut self, directive: &Directive<'_>, depth: usize) -> bool {
        let content = &directive.content;
        match directive.name.as_str() {
            "code" | "code-block" | "sourcecode" | "console" | "prompt" | "highlight" | "math" => {
                let is_math = directive.name == "math";
                let code = if is_math { directive.whole() } else { directive.code() };
                let argument = directive.argument();
                let language = match directive.name.as_str() {
                    "console" => "console",
                    _ => argument.as_str(),
                };
                if code.is_empty() {
                    return true;
                }
                match is_math || !is_simple_name(language) {
                    true => self.literal(&code),
                    false => self.code(&code, language),
                }
            }
            "parsed-literal" => {
                self.push("<pre>\n");
                self.inline(&directive.whole().join("\n"));
                self.push("\n</pre>");
            }
            "image" | "figure" => {
                let alt = directive.option("alt").unwrap_or_default();
                let target = directive.option("target").and_then(|target| Names::target(&target));
                let target = target.and_then(|target| self.names.href_of(&target));
                // Badges follow each other in one row.
                let is_inline = directive.name == "image";
                match self.row_end.take().filter(|end| is_inline && *end == self.html.len()) {
                    Some(end) => {
                        self.html.truncate(end - ROW_END.len());
                        self.push(" ");
                    }
                    None => self.push("<p>"),
                }
                self.picture(&directive.address(), &alt, target.as_deref());
                self.push(ROW_END);
                self.row_end = is_inline.then_some(self.html.len());
                self.blocks(content, depth + 1);
            }
            "note" | "warning" | "tip" | "hint" | "important" | "caution" | "attention"
            | "danger" | "error" | "seealso" => {
                let title = match directive.name.as_str() {
                    "seealso" => "See also",
                    name => &format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]),
                };
                self.titled(title, "", &directive.whole(), depth);
            }
            "versionadded" | "versionchanged" | "deprecated" => {
                let title = match directive.name.as_str() {
                    "versionadded" => "New in version",
                    "versionchanged" => "Changed in version",
                    _ => "Deprecated since version",
                };
                self.titled(title, &directive.argument(), content, depth);
            }
            "admonition" | "topic" | "sidebar" => {
                let (title, more) = (directive.argument(), directive.option("subtitle"));
                self.titled(&title, &more.unwrap_or_default(), content, depth);
            }
            "rubric" => {
                self.push("<p><strong>");
                self.inline(&directive.argument());
                self.push("</strong></p>\n");
                self.blocks(content, depth + 1);
            }
            "epigraph" | "highlights" | "pull-quote" => {
                self.push("<blockquote>");
                self.blocks(&directive.whole(), depth + 1);
                self.push("</blockquote>");
            }
            "compound" | "header" | "footer" => self.blocks(&directive.whole(), depth + 1),
            // Their argument is for style sheets, and for other tools.
            "container" | "class" | "only" => self.blocks(content, depth + 1),
            "table" => {
                let title = directive.argument();
                self.caption = Some(title).filter(|title| !title.is_empty());
                self.blocks(content, depth + 1);
                if let Some(title) = self.caption.take() {
                    self.push("<p>");
                    self.inline(&title);
                    self.push("</p>\n");
                }
            }
            "list-table" => return self.list_table(directive, depth),
            "csv-table" => return self.csv_table(directive, depth),
            // The page has this in another form, or it is for another tool.
            "contents" | "toctree" | "meta" | "raw" | "include" | "sectnum"
            | "section-numbering" | "role" | "default-role" | "index" | "currentmodule"
            | "module" | "title" => {}
            _ => return false,
        }
        true
    }

    /// A box with a title.
    fn titled(&mut self, title: &str, more: &str, content: &[&str], depth: usize) {
        self.push("<blockquote><p><strong>");
        self.inline(title);
        self.push("</strong> ");
        self.inline(more);
        // One paragraph stands on the line of the title.
        let content = trimmed(content);
        let first = content.iter().position(|line| line.is_empty()).unwrap_or(content.len());
        let is_text = kind(content) == Kind::Text
            && content[..first].iter().all(|line| indent(line) == 0)
            && !content[..first].last().is_some_and(|line| line.ends_with("::"));
        let taken = if is_text { first } else { 0 };
        self.inline(&content[..taken].join("\n"));
        self.push("</p>");
        self.blocks(&content[taken..], depth + 1);
        self.push("</blockquote>");
    }

    /// A table that is a list of rows, each a list of cells.
    fn list_table(&mut self, directive: &Directive<'_>, depth: usize) -> bool {
        let Some(rows) = only_items(&directive.content) else { return false };
        let rows = rows.iter().map(|row| only_items(trimmed(row)));
        let Some(rows) = rows.collect::<Option<Vec<_>>>() else { return false };
        let heads = (directive.count("header-rows"), directive.count("stub-columns"));
        let Some(table) = table::of_cells(rows, heads) else { return false };
        self.caption = Some(directive.argument()).filter(|title| !title.is_empty());
        self.table(&table, depth);
        true
    }

    /// A table of values with separators.
    fn csv_table(&mut self, directive: &Directive<'_>, depth: usize) -> bool {
        // Files are not read.
        if directive.option("file").is_some() || directive.option("url").is_some() {
            return false;
        }
        let dialect = Dialect {
            separator: match directive.option("delim").as_deref() {
                Some("tab") => '\t',
                Some("space") => ' ',
                named => named.and_then(|it| it.chars().next()).unwrap_or(','),
            },
            quote: directive.option("quote").and_then(|it| it.chars().next()).unwrap_or('"'),
            escape: directive.option("escape").and_then(|it| it.chars().next()),
            keeps_space: directive.option("keepspace").is_some(),
        };
        let head = directive.options.iter().find(|(name, _)| name == "header");
        let head = head.map(|(_, lines)| lines.join("\n")).unwrap_or_default();
        let mut values = table::values(&head, &dialect);
        let heads = values.len() + directive.count("header-rows");
        values.extend(table::values(&directive.content.join("\n"), &dialect));
        let rows = values.iter().map(|row| row.iter().map(|cell| cell.lines().collect()).collect());
        let heads = (heads, directive.count("stub-columns"));
        let Some(table) = table::of_cells(rows.collect(), heads) else { return false };
        self.caption = Some(directive.argument()).filter(|title| !title.is_empty());
        self.table(&table, depth);
        true
    }

    pub(super) fn picture(&mut self, source: &str, alt: &str, target: Option<&str>) {
        if let Some(target) = target {
            push(&mut self.html, format_args!("<a href=\"{}\">", Escaped(target)));
        }
        let (source, alt) = (Escaped(source), Escaped(alt));
        push(&mut self.html, format_args!("<img src=\"{source}\" alt=\"{alt}\">"));
        if target.is_some() {
            self.push("</a>");
        }
    }
}

/// The items, if the lines are a list and nothing else.
fn only_items<'text>(lines: &[&'text str]) -> Option<Vec<Vec<&'text str>>> {
    let (found, length) = items(lines);
    (length == lines.len() && !found.is_empty()).then_some(found)
}

fn is_apart(text: &str) -> bool {
    text.is_empty() || text.starts_with(' ')
}

/// `name: url` or `` `name`: url ``
fn named(text: &str) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('`') {
        let (name, url) = quoted.split_once("`:")?;
        return (!name.is_empty() && is_apart(url)).then_some((name, url));
    }
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find(':')?;
        let (name, url) = (&text[..at], &text[at + 1..]);
        if !name.is_empty() && !name.ends_with('\\') && is_apart(url) {
            return Some((name, url));
        }
        from = at + 1;
    }
}

/// Characters by their codes, between other words; a comment may follow.
fn unicode(text: &str) -> String {
    let text = text.split(" .. ").next().unwrap_or_default();
    let mut shown = String::new();
    for word in text.split_whitespace() {
        let digits = ["0x", "U+", "u+", "\\x", "\\u", "x", "u", "U", "&#x"].into_iter();
        let hexadecimal = digits
            .filter_map(|prefix| word.strip_prefix(prefix))
            .find_map(|digits| u32::from_str_radix(digits.trim_end_matches(';'), 16).ok());
        let character = word.parse().ok().or(hexadecimal).and_then(char::from_u32);
        match character {
            Some(character) => shown.push(character),
            None => {
                if !shown.is_empty() {
                    shown.push(' ');
                }
                shown.push_str(word);
            }
        }
    }
    shown
}
