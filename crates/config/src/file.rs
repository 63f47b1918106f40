//! Reading the TOML file: text -> the texts of known keys, each with its place.
//!
//! It knows only every key's name and TOML type; values are parsed where those of all layers meet.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::key::{Key, Kind, split};
use super::problem::{Origin, Problem, shown};
use super::{TABLES, keys};

/// A key that the file sets.
pub(super) struct FileValue {
    /// The key.
    pub(super) key: &'static Key,
    /// Its texts, as [`super::key::FromTexts`] takes them.
    pub(super) texts: Vec<String>,
    /// Its place in the file.
    pub(super) origin: Origin,
}

/// The known keys of a file's `text`, and the problems with the others. `path` is for messages.
pub(super) fn read(text: &str, path: &Path) -> (Vec<FileValue>, Vec<Problem>) {
    let mut reader = Reader { text, path, values: Vec::new(), problems: Vec::new() };
    match DeTable::parse(text) {
        Ok(document) => reader.top(document.get_ref()),
        Err(error) => {
            let message = format!("not valid TOML: {}", error.message());
            reader.complain(error.span().map_or(0, |span| span.start), &message);
        }
    }
    // The parser's tables are sorted by name; a reader of the messages goes through the file from top to bottom.
    reader.problems.sort_by_key(|(at, _)| *at);
    (reader.values, reader.problems.into_iter().map(|(_, problem)| problem).collect())
}

/// The file, what was found in it, and what was wrong with it.
struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    values: Vec<FileValue>,
    /// Each with its byte position in the file.
    problems: Vec<(usize, Problem)>,
}

impl Reader<'_> {
    fn top(&mut self, document: &DeTable<'_>) {
        for (name, value) in document {
            let at = name.span().start;
            let name = name.get_ref().as_ref();
            let is_section =
                TABLES.iter().any(|table| !table.section.is_empty() && table.section == name);
            match value.get_ref() {
                DeValue::Table(table) if is_section => {
                    for (key, value) in table {
                        self.key(
                            name,
                            key.get_ref(),
                            key.span().start,
                            value.get_ref(),
                            value.span(),
                        );
                    }
                }
                DeValue::Table(table) if !keys().any(|key| key.path() == name) => {
                    let sections = TABLES.iter().map(|table| table.section.to_owned());
                    let inner = table.keys().next().map(|key| format!("{name}.{}", key.get_ref()));
                    let guess = match nearest(name, sections) {
                        Some(section) => format!("; did you mean [{section}]?"),
                        None => did_you_mean(inner.as_deref().unwrap_or(name)),
                    };
                    self.complain(at, &format!("unknown section [{name}]{guess}"));
                }
                _ if is_section => {
                    self.complain(
                        at,
                        &format!("`{name}` is a section: write [{name}] and its keys below"),
                    );
                }
                other => self.key("", name, at, other, value.span()),
            }
        }
    }

    fn key(
        &mut self,
        section: &str,
        name: &str,
        at: usize,
        value: &DeValue<'_>,
        span: std::ops::Range<usize>,
    ) {
        let Some(key) = keys().find(|key| key.section == section && key.name == name) else {
            let path =
                if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
            self.complain(at, &format!("unknown key `{path}`{}", did_you_mean(&path)));
            return;
        };
        let origin = self.origin(at);
        match texts(key.kind, value) {
            Some(texts) => self.values.push(FileValue { key, texts, origin }),
            None => {
                let written = self.text.get(span).unwrap_or_default().to_owned();
                let written =
                    if key.kind == Kind::Secret { shown(key, &[written]) } else { written };
                let message = format!(
                    "{} = {written} ({origin}): expected {}{}",
                    key.path(),
                    key.kind.expected(),
                    unquoted(key.kind)
                );
                self.problems.push((at, Problem::new(&origin, message)));
            }
        }
    }

    fn complain(&mut self, at: usize, message: &str) {
        let origin = self.origin(at);
        self.problems.push((at, Problem::new(&origin, format!("{origin}: {message}"))));
    }

    fn origin(&self, at: usize) -> Origin {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Origin::File {
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// The value's texts, if its TOML type is that of the kind.
fn texts(kind: Kind, value: &DeValue<'_>) -> Option<Vec<String>> {
    match (kind, value) {
        (kind, DeValue::Boolean(switch)) if kind.is_switch() => Some(vec![switch.to_string()]),
        (Kind::Whole { .. } | Kind::Seconds { .. }, DeValue::Integer(number)) => {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(vec![number.to_string()])
        }
        (Kind::Switch | Kind::Whole { .. } | Kind::Seconds { .. }, _) => None,
        (_, DeValue::String(text)) => Some(split(kind, text)),
        (_, DeValue::Array(items)) if kind.is_list() => items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// A reminder for the most frequent mistake of type.
fn unquoted(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch | Kind::Whole { .. } | Kind::Seconds { .. } => ", without quotes",
        Kind::SwitchOrAuto => ", the word in quotes",
        _ if kind.is_list() => ", as an array of strings",
        _ => ", in quotes",
    }
}

/// "; did you mean …?" for a key that does not exist, or nothing where no key is like it.
pub(super) fn did_you_mean(path: &str) -> String {
    // A key in the wrong section is the likelier mistake, so an equal last part counts as near.
    let last = path.rsplit('.').next().unwrap_or(path);
    let elsewhere = keys().find(|key| key.name == last && path != key.path()).map(Key::path);
    match nearest(path, keys().map(Key::path)).or(elsewhere) {
        Some(guess) => format!("; did you mean `{guess}`?"),
        None => String::new(),
    }
}

/// The candidate nearest to `text`, if it is near enough to be a typing error.
pub(super) fn nearest(text: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let distance_max = (text.chars().count() / 3).max(2);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(text, &candidate), candidate))
        .filter(|(distance, candidate)| *distance <= distance_max && !candidate.is_empty())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
