//! [`Ini`]: a file of `[section]`s and `key = value` lines, changed in one place and left alone elsewhere.
//!
//! Sections, keys, comments and multi-line values are recognized by Python's rules, since pip and twine parse these
//! files with Python. Comments, blank lines, order and line ends stay.

/// A file, line by line.
pub(super) struct Ini {
    lines: Vec<String>,
    line_end: &'static str,
}

/// The kind of a line to Python's parser.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line<'text> {
    Blank,
    Comment,
    Section(&'text str),
    Key(&'text str, &'text str),
    /// Continues the value of the key above.
    More(&'text str),
    /// Anything else, which Python's parser refuses.
    Other,
}

impl Ini {
    pub(super) fn read(text: &str) -> Ini {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Ini { lines: text.lines().map(str::to_owned).collect(), line_end }
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), self.line_end]).collect()
    }

    /// The value of a key; if it has several lines, each is without its indentation.
    pub(super) fn get(&self, section: &str, key: &str) -> Option<String> {
        let (from, to) = self.entry(section, key)?;
        let value = self.parsed().into_iter().take(to).skip(from).filter_map(|line| match line {
            Line::Key(_, text) | Line::More(text) => Some(text),
            Line::Blank => Some(""),
            _ => None,
        });
        Some(value.collect::<Vec<_>>().join("\n").trim().to_owned())
    }

    /// The sections that have this key, in order.
    pub(super) fn sections_with(&self, key: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let mut section = "";
        for line in self.parsed() {
            match line {
                Line::Section(name) => section = name,
                Line::Key(name, _) if same(name, key) && found.last() != Some(&section) => {
                    found.push(section);
                }
                _ => {}
            }
        }
        found
    }

    /// Sets a key; several `values` are written one a line.
    pub(super) fn set(&mut self, section: &str, key: &str, values: &[&str]) {
        let written = |indent: usize| -> Vec<String> {
            let indent = " ".repeat(indent);
            match values {
                [value] => vec![format!("{indent}{key} = {value}")],
                values => std::iter::once(format!("{indent}{key} ="))
                    .chain(values.iter().map(|value| format!("{indent}    {value}")))
                    .collect(),
            }
        };
        if let Some((from, to)) = self.entry(section, key) {
            let indent = self.indent(from);
            self.lines.splice(from..to, written(indent));
            return;
        }
        let (place, indent) = match self.section(section) {
            Some((from, to)) => {
                let lines = self.parsed();
                let used = lines[from..to].iter().rposition(|line| *line != Line::Blank);
                let last = lines[from..to].iter().rposition(|line| matches!(line, Line::Key(..)));
                // A line that is indented more than a key continues its value, even if it is the next section's head.
                let indent = match last {
                    Some(at) => self.indent(from + at),
                    None if to < lines.len() => self.indent(from).max(self.indent(to)),
                    None => self.indent(from),
                };
                (from + used.map_or(0, |at| at + 1), indent)
            }
            None => {
                if self.lines.last().is_some_and(|line| !line.trim().is_empty()) {
                    self.lines.push(String::new());
                }
                self.lines.push(format!("[{section}]"));
                (self.lines.len(), 0)
            }
        };
        self.lines.splice(place..place, written(indent));
    }

    /// Removes a key with its value.
    pub(super) fn remove(&mut self, section: &str, key: &str) {
        if let Some((from, to)) = self.entry(section, key) {
            self.lines.drain(from..to);
        }
    }

    /// The kind of each line. A line that is indented more than the key above continues its value, whatever it
    /// contains, even after blank lines and comments. Keys and section heads may be indented too.
    fn parsed(&self) -> Vec<Line<'_>> {
        let (mut indent_of_key, mut has_key) = (0, false);
        let lines = self.lines.iter().enumerate().map(|(at, line)| {
            let text = line.trim();
            if text.is_empty() {
                return Line::Blank;
            }
            if text.starts_with(['#', ';']) {
                return Line::Comment;
            }
            let indent = self.indent(at);
            if has_key && indent > indent_of_key {
                return Line::More(text);
            }
            indent_of_key = indent;
            if let Some(name) = section_of(text) {
                has_key = false;
                return Line::Section(name);
            }
            match text.split_once(['=', ':']) {
                Some((key, value)) => {
                    has_key = true;
                    Line::Key(key.trim_end(), value.trim_start())
                }
                None => Line::Other,
            }
        });
        lines.collect()
    }

    /// White space before a line's text, in characters.
    fn indent(&self, at: usize) -> usize {
        self.lines[at].chars().take_while(|character| character.is_whitespace()).count()
    }

    /// The lines of a section, its head first, up to the next one.
    fn section(&self, name: &str) -> Option<(usize, usize)> {
        let lines = self.parsed();
        let from = lines.iter().position(|line| *line == Line::Section(name))?;
        let rest = &lines[from + 1..];
        let length = rest.iter().position(|line| matches!(line, Line::Section(_)));
        Some((from, length.map_or(lines.len(), |length| from + 1 + length)))
    }

    /// The lines of a key with its value; if the key is repeated, those of the last one, which counts.
    fn entry(&self, section: &str, key: &str) -> Option<(usize, usize)> {
        let (from, to) = self.section(section)?;
        let lines = self.parsed();
        let is_key = |line: &Line<'_>| matches!(line, Line::Key(found, _) if same(found, key));
        let at = from + lines[from..to].iter().rposition(is_key)?;
        let is_next = |line: &Line<'_>| matches!(line, Line::Key(..) | Line::Other);
        let next = lines[at + 1..to].iter().position(is_next).map_or(to, |next| at + 1 + next);
        let is_more = |line: &Line<'_>| matches!(line, Line::More(_));
        let more = lines[at + 1..next].iter().rposition(is_more);
        Some((at, more.map_or(at, |more| at + 1 + more) + 1))
    }
}

/// Compares keys as pip does.
fn same(one: &str, other: &str) -> bool {
    let normal = |key: &str| {
        let key = key.strip_prefix("--").unwrap_or(key);
        key.to_lowercase().replace('_', "-")
    };
    normal(one) == normal(other)
}

fn section_of(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('[')?.rsplit_once(']')?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str) {
        let mut ini = Ini::read(before);
        ini.set("global", "index-url", &["new"]);
        assert_eq!(ini.text(), after);
        assert_eq!(ini.get("global", "index-url").as_deref(), Some("new"));
    }

    #[test]
    fn a_key_is_set_in_its_place() {
        check("", "[global]\nindex-url = new\n");
        check("[install]\nx = 1", "[install]\nx = 1\n\n[global]\nindex-url = new\n");
        check(
            "# mine\n[global]\ntimeout = 5\n\n[install]\nindex-url = other\n",
            "# mine\n[global]\ntimeout = 5\nindex-url = new\n\n[install]\nindex-url = other\n",
        );
        check(
            "[global]\r\nIndex_URL: old\r\n  older\r\n; keep\r\nx = 1\r\n",
            "[global]\r\nindex-url = new\r\n; keep\r\nx = 1\r\n",
        );
    }

    #[test]
    fn indented_lines() {
        // Lines with the same indentation as the first key are keys.
        check(
            "[global]\n  timeout = 5\n  index-url = old\n    older\n  x = 1\n",
            "[global]\n  timeout = 5\n  index-url = new\n  x = 1\n",
        );
        check(
            "  [global]\n  x = 1\n  [install]\n",
            "  [global]\n  x = 1\n  index-url = new\n  [install]\n",
        );
        check("[global]\n  [install]\n", "[global]\n  index-url = new\n  [install]\n");
        // A line that is indented more than the key above continues its value.
        check(
            "[global]\ntimeout = 5\n  index-url = of the timeout\n",
            "[global]\ntimeout = 5\n  index-url = of the timeout\nindex-url = new\n",
        );
        check(
            "[global]\nextra =\n  [global]\n  index-url = x\n",
            "[global]\nextra =\n  [global]\n  index-url = x\nindex-url = new\n",
        );
        // If a key is repeated, the last one counts.
        check(
            "[global]\nindex_url = a\n--Index-URL = b\n",
            "[global]\nindex_url = a\nindex-url = new\n",
        );
    }

    #[test]
    fn a_key_is_removed_with_its_value() {
        let mut ini = Ini::read("[a]\nx = 1\n  2\n# keep\ny = 3\n[b]\nx = 4\n");
        ini.remove("a", "X");
        ini.remove("b", "y");
        assert_eq!(ini.text(), "[a]\n# keep\ny = 3\n[b]\nx = 4\n");
    }

    #[test]
    fn sections_that_have_a_key() {
        let ini = Ini::read("[a]\nx = 1\n y = 2\n[b]\n X : 1\n\n[c]\nz = x = 1\n");
        assert_eq!(ini.sections_with("x"), ["a", "b"]);
        assert!(ini.sections_with("y").is_empty());
    }

    #[test]
    fn a_value_may_have_several_lines() {
        let mut ini =
            Ini::read("[distutils]\nindex-servers =\n    one\n\n    # not this\n    two\n[one]\n");
        assert_eq!(ini.get("distutils", "index-servers").as_deref(), Some("one\n\ntwo"));
        ini.set("distutils", "index-servers", &["one", "three"]);
        assert_eq!(ini.text(), "[distutils]\nindex-servers =\n    one\n    three\n[one]\n");
        assert_eq!(ini.get("two", "x"), None);
    }
}
