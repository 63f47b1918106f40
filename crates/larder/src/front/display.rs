//! How pages for people say what programs get as numbers: times, sizes, counts, and names in paths.

use std::fmt;

use account::{Acl, AclEntry};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Names of a path are encoded, except these characters.
const SEGMENTS: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'@').remove(b'/');

/// Names of a path, encoded for a URL; slashes separate them.
pub(crate) fn in_path(names: &str) -> String {
    utf8_percent_encode(names, &SEGMENTS).to_string()
}

/// One name of a path is encoded, except these characters.
const SEGMENT: AsciiSet = SEGMENTS.add(b'/').remove(b'~').remove(b'+');

/// A name as a part of a path, between slashes. It has no quote, so it is one word in a command, too.
pub(crate) fn name_in_path(name: &str) -> String {
    utf8_percent_encode(name, &SEGMENT).to_string()
}

/// A time on a page: to the second for programs, to the minute for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl Time {
    /// For the attribute `datetime`.
    pub(crate) fn exact(&self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// As HTML: see [`ago`].
    pub(crate) fn ago(&self) -> String {
        ago(&self.exact(), &self.to_string())
    }
}

/// A time as HTML, for a place where "3 hours ago" fits the sentence: the script of the pages says it so. A page may be kept, so
/// the server only says when, with the exact time and its zone as the title. `exact` is as [`Time::exact`] has it.
pub(crate) fn ago(exact: &str, shown: &str) -> String {
    let title = exact.replace('T', " ").replace('Z', " UTC");
    format!("<time class=\"ago\" datetime=\"{exact}\" title=\"{title}\">{shown}</time>")
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.strftime("%Y-%m-%d %H:%M"))
    }
}

/// A size in bytes, with two or three digits that count.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut shown = bytes as f64;
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut unit = units[0];
    for name in units {
        unit = name;
        shown /= 1_000.0;
        if shown < 999.5 {
            break;
        }
    }
    if shown < 9.95 { format!("{shown:.1} {unit}") } else { format!("{shown:.0} {unit}") }
}

/// `1 file`, `2 files`
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A stranger's text in which no character hides, moves or reorders others: control characters are shown as their pictures, and
/// those that are invisible or change the direction as their numbers: all that Unicode calls `Default_Ignorable_Code_Point`,
/// the other ends of lines, and an empty Braille cell. Lines and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            '\0'..='\x1f' => shown.extend(char::from_u32(0x2400 + u32::from(character))),
            '\x7f' => shown.push('\u{2421}'),
            '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' => {
                shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(character)));
            }
            other => shown.push(other),
        }
    }
    shown
}

/// [`visible`] for a name, which has to fit on one line.
pub(crate) fn visible_name(name: &str) -> String {
    visible(name).replace('\n', "\u{240a}").replace('\t', "\u{2409}")
}

/// Who has the right that a list of users and groups is for, in a sentence: administrators have it as well. `is_cut`: the list
/// names others, whom the reader does not see.
pub(crate) fn people(list: &Acl, is_cut: bool) -> String {
    let named = list.entries().iter().map(|entry| match entry {
        AclEntry::Everybody => "everybody".to_owned(),
        AclEntry::EveryUser => "every user".to_owned(),
        AclEntry::Group(name) => format!("the group {name}"),
        AclEntry::User(name) => name.to_string(),
    });
    let mut named: Vec<String> = named.collect();
    let is_open = |entry: &AclEntry| matches!(entry, AclEntry::Everybody | AclEntry::EveryUser);
    let is_open = list.entries().iter().any(is_open);
    if is_cut && !is_open {
        named.push("others".to_owned());
    }
    if !named.is_empty() && !is_open {
        named.push("administrators".to_owned());
    }
    match named.split_last() {
        None => "administrators only".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_one_word() {
        for (name, path) in
            [("yay", "yay"), ("c++", "c++"), ("a/b'c\"", "a%2Fb%27c%22"), ("é ", "%C3%A9%20")]
        {
            assert_eq!(name_in_path(name), path);
        }
    }

    #[test]
    fn sizes_have_few_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (9_949, "9.9 kB"),
            (12_345, "12 kB"),
            (999_499, "999 kB"),
            (999_501, "1.0 MB"),
            (1_500_000_000, "1.5 GB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn a_time_has_its_zone_beside_it() {
        let time = Time("2026-01-02T03:04:05.6Z".parse().expect("a time"));
        assert_eq!(
            time.ago(),
            "<time class=\"ago\" datetime=\"2026-01-02T03:04:05Z\" title=\"2026-01-02 03:04:05 UTC\">2026-01-02 03:04</time>"
        );
    }

    #[test]
    fn nothing_hides_in_what_is_shown() {
        assert_eq!(visible("a\n\tb\r\x1b[2J"), "a\n\tb\u{240d}\u{241b}[2J");
        assert_eq!(visible("x\u{202e}y\u{feff}é"), "x⟨U+202E⟩y⟨U+FEFF⟩é");
        let ranges = [
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x200b, 0x200f),
            (0x2028, 0x202e),
            (0x2060, 0x206f),
            (0x2800, 0x2800),
            (0x3164, 0x3164),
            (0xfe00, 0xfe0f),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff0, 0xfffb),
            (0x1bca0, 0x1bca3),
            (0x1d173, 0x1d17a),
            (0xe0000, 0xe0fff),
        ];
        for (first, last) in ranges {
            for number in first..=last {
                let character = char::from_u32(number).expect("a character");
                assert_eq!(visible(&character.to_string()), format!("⟨U+{number:04X}⟩"));
            }
        }
        assert_eq!(visible("ᄀ가a\u{301}"), "ᄀ가a\u{301}");
        assert_eq!(visible_name("a\nb\tc"), "a\u{240a}b\u{2409}c");
    }

    #[test]
    fn lists_are_said_in_words() {
        let said = |entries: &[&str], is_cut| {
            let list = Acl::from_entries(entries.iter().copied()).expect("entries");
            people(&list, is_cut)
        };
        let check = |entries: &[&str], expected: &str| assert_eq!(said(entries, false), expected);
        check(&[], "administrators only");
        check(&[":ANONYMOUS:"], "everybody");
        check(&["ann"], "ann and administrators");
        check(&["ann", ":team"], "ann, the group team and administrators");
        check(&["ann", ":team", ":AUTHENTICATED:"], "ann, the group team and every user");
        assert_eq!(said(&["ann"], true), "ann, others and administrators");
        assert_eq!(said(&[], true), "others and administrators");
        assert_eq!(said(&[":AUTHENTICATED:"], true), "every user");
    }
}
