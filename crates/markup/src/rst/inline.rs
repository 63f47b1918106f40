//! Markup within a line: emphasis, code, links, roles and substitutions.

use super::{SUBSTITUTIONS_MAX, Substitution, Writer, key};
use crate::{Escaped, HREF_BYTES_MAX, push};

/// Substitutions within each other.
const DEPTH_MAX: usize = 3;

/// Bytes of a name that is a link.
const NAME_BYTES_MAX: usize = 100;

/// Whether the character before a mark is part of a word: then it is no mark.
fn is_word(before: Option<char>) -> bool {
    before.is_some_and(char::is_alphanumeric)
}

/// Ends of marks that a search did not find up to the end of the text: they are not searched for again.
#[derive(Default)]
struct Absent {
    marks: Vec<&'static str>,
}

impl Absent {
    /// The position of the closing mark, unless it comes directly after the opening one.
    fn close(&mut self, rest: &str, mark: &'static str) -> Option<usize> {
        if self.marks.contains(&mark) {
            return None;
        }
        let mut from = 0;
        loop {
            let Some(at) = rest.get(from..).and_then(|rest| rest.find(mark)) else {
                self.marks.push(mark);
                return None;
            };
            let at = from + at;
            let ends_well = at > 0 && !rest[..at].ends_with(char::is_whitespace);
            if ends_well {
                return Some(at);
            }
            if at > 200 || from > 200 {
                return None;
            }
            from = at + mark.len();
        }
    }
}

impl Writer {
    /// Writes a text of one or more lines.
    pub(super) fn inline(&mut self, text: &str) {
        let mut absent = Absent::default();
        let mut rest = text;
        let mut before = None;
        while let Some(at) = rest.find(['\\', '`', '*', '|', '_', '[', ':']) {
            if self.is_full() {
                return;
            }
            self.escaped(&rest[..at]);
            before = rest[..at].chars().next_back().or(before);
            rest = &rest[at..];
            let taken = match rest.as_bytes()[0] {
                b'\\' => {
                    let escaped = rest[1..].chars().next();
                    if let Some(c) = escaped.filter(|c| !c.is_whitespace()) {
                        self.escaped(c.encode_utf8(&mut [0; 4]));
                    }
                    1 + escaped.map_or(0, char::len_utf8)
                }
                _ if is_word(before) && rest.as_bytes()[0] != b'_' => 0,
                b'`' => self.quoted(rest, &mut absent),
                b'*' => self.emphasis(rest, &mut absent),
                b'|' => self.substituted(rest, &mut absent),
                b'[' => self.footnote(rest),
                b':' => self.role(rest, &mut absent),
                _ => self.reference(rest, text, before),
            };
            let taken = match taken {
                0 => {
                    self.escaped(&rest[..1]);
                    1
                }
                taken => taken,
            };
            before = rest[..taken].chars().next_back();
            rest = &rest[taken..];
        }
        self.escaped(rest);
    }

    fn tagged(&mut self, tag: &str, text: &str) {
        push(&mut self.html, format_args!("<{tag}>{}</{tag}>", Escaped(text)));
    }

    /// A link, or only its text if the address is too long for one.
    fn link(&mut self, url: &str, text: &str) {
        if url.len() > HREF_BYTES_MAX {
            return self.escaped(text);
        }
        let (url, text) = (Escaped(url), Escaped(text));
        push(&mut self.html, format_args!("<a href=\"{url}\">{text}</a>"));
    }

    /// ```` ``code`` ````, `` `text <url>`_ ``, `` `name`_ `` and `` `text` ``.
    fn quoted(&mut self, rest: &str, absent: &mut Absent) -> usize {
        if let Some(inner) = rest.strip_prefix("``") {
            let Some(end) = absent.close(inner, "``") else { return 0 };
            self.tagged("code", &inner[..end]);
            return 2 + end + 2;
        }
        let inner = &rest[1..];
        let Some(end) = absent.close(inner, "`") else { return 0 };
        let (text, after) = (&inner[..end], &inner[end + 1..]);
        let taken = 1 + end + 1;
        let Some(after) = after.strip_prefix('_') else {
            self.tagged("cite", text);
            return taken;
        };
        let is_unnamed = after.starts_with('_');
        let length = taken + 1 + usize::from(is_unnamed);
        let spelled = text.strip_suffix('>').and_then(|text| text.rsplit_once('<'));
        match spelled {
            Some((shown, url)) => {
                // `<name_>` is another link's name.
                let named =
                    url.strip_suffix('_').and_then(|name| self.names.targets.get(&key(name)));
                let url = named.cloned().unwrap_or_else(|| url.split_whitespace().collect());
                let shown = shown.trim();
                self.link(&url, if shown.is_empty() { &url } else { shown });
                if !is_unnamed && !shown.is_empty() && url.len() <= HREF_BYTES_MAX {
                    self.names.targets.entry(key(shown)).or_insert(url);
                }
            }
            None if is_unnamed => {
                let url = self.names.unnamed.get(self.unnamed).cloned().flatten();
                self.unnamed += 1;
                self.named(text, url);
            }
            None => {
                let url = self.names.targets.get(&key(text)).cloned();
                // The title of a section is a name, too.
                self.named(text, Some(url.unwrap_or_else(|| format!("#{text}"))));
            }
        }
        length
    }

    fn named(&mut self, text: &str, url: Option<String>) {
        match url {
            Some(url) => self.link(&url, text),
            None => self.escaped(text),
        }
    }

    fn emphasis(&mut self, rest: &str, absent: &mut Absent) -> usize {
        let (tag, mark) = if rest.starts_with("**") { ("strong", "**") } else { ("em", "*") };
        let inner = &rest[mark.len()..];
        if inner.starts_with(char::is_whitespace) {
            return 0;
        }
        let Some(end) = absent.close(inner, mark) else { return 0 };
        self.tagged(tag, &inner[..end]);
        end + 2 * mark.len()
    }

    fn substituted(&mut self, rest: &str, absent: &mut Absent) -> usize {
        let inner = &rest[1..];
        let Some(end) = absent.close(inner, "|") else { return 0 };
        let Some(found) = self.names.substitutions.get(&key(&inner[..end])) else { return 0 };
        let after = &inner[end + 1..];
        let underscores = after.bytes().take(2).take_while(|byte| *byte == b'_').count();
        let taken = end + 2 + underscores;
        if self.substituted >= SUBSTITUTIONS_MAX || self.depth >= DEPTH_MAX {
            self.escaped(&inner[..end]);
            return taken;
        }
        self.substituted += 1;
        match found {
            Substitution::Picture { source, alt, target } => {
                let (source, alt, target) = (source.clone(), alt.clone(), target.clone());
                self.picture(&source, &alt, target.as_deref());
            }
            Substitution::Text(text) => {
                let text = text.clone();
                self.depth += 1;
                self.inline(&text);
                self.depth -= 1;
            }
        }
        taken
    }

    /// `[1]_`
    fn footnote(&mut self, rest: &str) -> usize {
        let head = &rest[..rest.floor_char_boundary(40)];
        let Some(end) = head.find("]_") else { return 0 };
        let label = head[1..end].trim_start_matches('#');
        let is_label = !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
        if !is_label {
            return 0;
        }
        self.link(&format!("#fn-{label}"), &format!("[{label}]"));
        end + 2
    }

    /// `` :role:`text` ``
    fn role(&mut self, rest: &str, absent: &mut Absent) -> usize {
        let head = &rest[..rest.floor_char_boundary(40)];
        let Some(end) = head.find(":`") else { return 0 };
        let name = &head[1..end.max(1)];
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, ':' | '-' | '.' | '_'));
        if !is_name {
            return 0;
        }
        let inner = &rest[end + 2..];
        let Some(length) = absent.close(inner, "`") else { return 0 };
        let text = &inner[..length];
        // A role shows its text; its link target is for another tool.
        let shown = text.split_once(" <").filter(|_| text.ends_with('>')).map_or(text, |it| it.0);
        let tag = match name {
            "sub" | "subscript" => "sub",
            "sup" | "superscript" => "sup",
            "strong" => "strong",
            "emphasis" | "title" => "em",
            "kbd" => "kbd",
            _ => "code",
        };
        self.tagged(tag, shown.trim_start_matches(['~', '!']));
        end + 2 + length + 1
    }

    /// `name_`: the name was written as text already.
    fn reference(&mut self, rest: &str, text: &str, before: Option<char>) -> usize {
        let after = rest[1..].strip_prefix('_').unwrap_or(&rest[1..]);
        let at_end = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '`');
        if !is_word(before) || !at_end {
            return 0;
        }
        let written = &text[..text.len() - rest.len()];
        let written =
            &written[written.ceil_char_boundary(written.len().saturating_sub(NAME_BYTES_MAX))..];
        let start =
            written.rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '+')));
        let name = &written
            [start.map_or(0, |at| at + written[at..].chars().next().map_or(0, char::len_utf8))..];
        let taken = rest.len() - after.len();
        let url = if taken == 2 {
            let url = self.names.unnamed.get(self.unnamed).cloned().flatten();
            self.unnamed += 1;
            url
        } else {
            self.names.targets.get(&key(name)).cloned()
        };
        let (Some(url), true) = (url, self.html.ends_with(name) && !name.is_empty()) else {
            return 0;
        };
        self.html.truncate(self.html.len() - name.len());
        self.link(&url, name);
        taken
    }
}
