//! [`Ini`]: a file of `[section]`s and `key = value` lines, changed in one place and left alone elsewhere.
//!
//! What counts as a section, a key, a comment and a value of several lines is Python's rule, since pip and twine
//! read these files with it. Comments, blank lines, order and line ends stay.

/// A file, line by line.
pub(super) struct Ini {
    lines: Vec<String>,
    line_end: &'static str,
}

impl Ini {
    pub(super) fn read(text: &str) -> Ini {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Ini { lines: text.lines().map(str::to_owned).collect(), line_end }
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), self.line_end]).collect()
    }

    /// The value of a key: of several lines if it has some, each without its indentation.
    pub(super) fn get(&self, section: &str, key: &str) -> Option<String> {
        let (from, to) = self.entry(section, key)?;
        let first = key_of(&self.lines[from]).map(|(_, value)| value).unwrap_or_default();
        let more = self.lines[from + 1..to].iter().filter(|line| !is_comment(line));
        let lines: Vec<&str> = std::iter::once(first).chain(more.map(|line| line.trim())).collect();
        Some(lines.join("\n").trim().to_owned())
    }

    /// Sets a key; `values` of more than one are written one a line.
    pub(super) fn set(&mut self, section: &str, key: &str, values: &[&str]) {
        let written: Vec<String> = match values {
            [value] => vec![format!("{key} = {value}")],
            values => std::iter::once(format!("{key} ="))
                .chain(values.iter().map(|value| format!("    {value}")))
                .collect(),
        };
        if let Some((from, to)) = self.entry(section, key) {
            self.lines.splice(from..to, written);
            return;
        }
        let place = match self.section(section) {
            Some((from, to)) => {
                let is_blank = |line: &String| line.trim().is_empty();
                let used = self.lines[from..to].iter().rposition(|line| !is_blank(line));
                from + used.map_or(0, |at| at + 1)
            }
            None => {
                if self.lines.last().is_some_and(|line| !line.trim().is_empty()) {
                    self.lines.push(String::new());
                }
                self.lines.push(format!("[{section}]"));
                self.lines.len()
            }
        };
        self.lines.splice(place..place, written);
    }

    /// The lines of a section, its head first, up to the next one.
    fn section(&self, name: &str) -> Option<(usize, usize)> {
        let from = self.lines.iter().position(|line| section_of(line) == Some(name))?;
        let rest = &self.lines[from + 1..];
        let length = rest.iter().position(|line| section_of(line).is_some());
        Some((from, length.map_or(self.lines.len(), |length| from + 1 + length)))
    }

    /// The lines of a key with its value.
    fn entry(&self, section: &str, key: &str) -> Option<(usize, usize)> {
        let (from, to) = self.section(section)?;
        let is_key = |line: &String| key_of(line).is_some_and(|(found, _)| same(found, key));
        let at = from + 1 + self.lines[from + 1..to].iter().position(is_key)?;
        // What is indented goes on with the value, also after a blank line or a comment.
        let is_more = |line: &String| line.starts_with([' ', '\t']) && !line.trim().is_empty();
        let mut end = at + 1;
        for (further, line) in self.lines[..to].iter().enumerate().skip(at + 1) {
            if is_more(line) {
                end = further + 1;
            } else if !line.trim().is_empty() && !is_comment(line) {
                break;
            }
        }
        Some((at, end))
    }
}

/// Keys are compared as pip does.
fn same(one: &str, other: &str) -> bool {
    let normal = |key: &str| key.to_ascii_lowercase().replace('_', "-");
    normal(one) == normal(other)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with(['#', ';'])
}

fn section_of(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.split_once(']').map(|(name, _)| name)
}

fn key_of(line: &str) -> Option<(&str, &str)> {
    if line.starts_with([' ', '\t', '[']) || is_comment(line) {
        return None;
    }
    let (key, value) = line.split_once(['=', ':'])?;
    Some((key.trim_end(), value.trim()))
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
    fn a_value_may_have_several_lines() {
        let mut ini =
            Ini::read("[distutils]\nindex-servers =\n    one\n\n    # not this\n    two\n[one]\n");
        assert_eq!(ini.get("distutils", "index-servers").as_deref(), Some("one\n\ntwo"));
        ini.set("distutils", "index-servers", &["one", "three"]);
        assert_eq!(ini.text(), "[distutils]\nindex-servers =\n    one\n    three\n[one]\n");
        assert_eq!(ini.get("two", "x"), None);
    }
}
