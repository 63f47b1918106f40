//! What a page shows, as text for a snapshot: a line for each block, each link with its target, each field with its value.
//! JSON and the words of a command have their own lines.
//!
//! Times, ports, digests, tokens and the texts that only one session has are replaced by words, so that each run gives the same.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use crate::browser::{attribute, unescaped};

/// Elements that stand in a line.
const INLINE: [&str; 21] = [
    "a", "abbr", "b", "bdi", "button", "code", "del", "em", "i", "input", "ins", "kbd", "label",
    "mark", "option", "select", "small", "span", "strong", "td", "time",
];

/// The words of the main part of a page.
pub(crate) fn shown(page: &str) -> String {
    let main = page.split_once("<main").map_or(page, |(_, main)| main);
    let main = main.split("</main>").next().unwrap_or_default();
    let (_, main) = main.split_once('>').expect("a tag");
    let (mut text, mut links, mut hidden) = (String::new(), Vec::new(), None);
    for (at, piece) in main.split('<').enumerate() {
        let (tag, words) =
            if at == 0 { ("", piece) } else { piece.split_once('>').expect("a tag") };
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        match hidden {
            Some(until) if tag.starts_with('/') && name == until => hidden = None,
            Some(_) => continue,
            None if ["script", "style", "svg"].contains(&name) => {
                hidden = Some(name);
                continue;
            }
            None => {}
        }
        if at > 0 && !INLINE.contains(&name) {
            text.push('\n');
        }
        match name {
            "option" | "td" if !tag.starts_with('/') => text.push_str(" | "),
            "a" if tag.starts_with('/') => {
                text.push_str(&links.pop().map(|link| format!(" <{link}>")).unwrap_or_default());
            }
            "a" => links.push(attribute(tag, "href").unwrap_or_default()),
            "form" if !tag.starts_with('/') => {
                let of = |name| attribute(tag, name).unwrap_or_default();
                text.push_str(&format!("form “{}” to {}\n", of("aria-label"), of("action")));
            }
            "input" | "textarea" | "button" if !tag.starts_with('/') => text.push_str(&field(tag)),
            _ => {}
        }
        text.push_str(&unescaped(words));
    }
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    redacted(&lines)
}

/// What a page tells its reader about a request, in the elements that screen readers read out; of a page of an error, the reason.
pub(crate) fn notes(page: &str) -> String {
    let notes_with = |mark: &str| -> Vec<String> {
        let found = page.match_indices(mark).map(|(at, _)| {
            let start = page[..at].rfind('<').expect("a tag");
            let name = page[start + 1..].split(' ').next().unwrap_or_default();
            let note = page[start..].split(&format!("</{name}>")).next().unwrap_or_default();
            (note, name == "p")
        });
        let found = found.filter(|(note, _)| !note.contains(" hidden>"));
        // A paragraph may end without a tag.
        let words = |(note, is_paragraph)| match is_paragraph {
            true => shown(note).lines().next().unwrap_or_default().to_owned(),
            false => shown(note),
        };
        found.map(words).collect()
    };
    let notes = ["role=\"alert\"", "role=\"status\""].map(notes_with).concat();
    let notes = if notes.is_empty() { notes_with("<p class=\"lead\"") } else { notes };
    notes.join("\n")
}

/// JSON in lines: what is short is one line, and anything else has a line for each of its parts; short members of a large
/// object share lines.
pub(crate) fn shown_json(json: &Value) -> String {
    indented(json, "\n")
}

fn indented(json: &Value, line_break: &str) -> String {
    let line = redacted(&json.to_string());
    let deeper = format!("{line_break}  ");
    let parts: Vec<String> = match json {
        _ if line.len() <= 100 => return line,
        Value::Array(list) => list.iter().map(|it| indented(it, &deeper)).collect(),
        Value::Object(members) => {
            let lines = members
                .iter()
                .map(|(name, value)| format!("{name:?}: {}", indented(value, &deeper)));
            if members.len() > 8 { filled(lines) } else { lines.collect() }
        }
        _ => return line,
    };
    let (start, end) = (&line[..1], &line[line.len() - 1..]);
    format!("{start}{deeper}{}{line_break}{end}", parts.join(&format!(",{deeper}")))
}

/// These lines, of which short ones that follow each other are one.
fn filled(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    for line in lines {
        let is_short = |last: &str| last.len() + line.len() < 98 && !last.contains('\n');
        let fits = filled.last().is_some_and(|last| is_short(last) && !line.contains('\n'));
        let start = if fits { filled.pop().map(|last| last + ", ") } else { None };
        filled.push(start.unwrap_or_default() + &line);
    }
    filled
}

/// A field of a form: its name and its value.
fn field(tag: &str) -> String {
    let of = |name| attribute(tag, name).unwrap_or_default();
    let value = if of("name") == "form" { "…".to_owned() } else { of("value") };
    let ticked = if tag.contains(" checked") { " ticked" } else { "" };
    match of("name").as_str() {
        "" => String::new(),
        name => format!(" [{name}={value}{ticked}] "),
    }
}

/// `text` without what differs between runs.
pub(crate) fn redacted(text: &str) -> String {
    static RULES: OnceLock<Vec<(Regex, &str)>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let rules = [
            (r"(202[4-9]|20[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?", "TIME"),
            (r"(202[4-9]|20[3-9]\d)-\d\d-\d\d", "DATE"),
            (r"\b1[7-9]\d{8}\b", "UNIX_TIME"),
            (r"\[20\d\d(,\d+){5}\]", "[TIME]"),
            (r"\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d GMT", "TIME"),
            (r"127\.0\.0\.1([:_])\d+", "127.0.0.1${1}PORT"),
            (r"(/[^\s`/]+)*/\.tmp[A-Za-z0-9]{6}", "DIRECTORY"),
            (r"\b[0-9a-f]{12}\b", "TOKEN_ID"),
            (r"\b\d+ B taken", "SIZE taken"),
            (r"\b\d{7,} bytes free", "SIZE bytes free"),
            (r"\btakes \d{7,} bytes", "takes SIZE bytes"),
            (r"toxresult-\d+-", "toxresult-TIME-"),
            (r"[0-9a-f]{64}", "DIGEST"),
            (r"\b\d+\.[0-9a-f]{8}\b", "POSITION"),
            (r"larder_[A-Za-z0-9_-]+", "TOKEN"),
            (r#""wait_seconds":\d+"#, "\"wait_seconds\":SECONDS"),
        ];
        rules.map(|(rule, word)| (Regex::new(rule).expect("a rule"), word)).to_vec()
    });
    rules
        .iter()
        .fold(text.to_owned(), |text, (rule, word)| rule.replace_all(&text, *word).into_owned())
}
