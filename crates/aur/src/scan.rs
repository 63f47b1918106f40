//! The fast path for reading a record in the form and order of the AUR's exports: it only cuts out pieces.
//!
//! It accepts a record only without white space between its pieces, without escapes in strings, with the known keys in
//! their order, and with others only after them. It leaves everything else to the JSON parser, mistakes included: it never reports an error,
//! and its results are the same as the parser's (a test compares them).

use std::borrow::Cow;

use crate::package::{self, Integer, Number, Package, Text, Texts};
use crate::words;

/// The record at the start of `text`, and its size in bytes; `None` if the parser must read it.
pub(crate) fn record(text: &str) -> Option<(Package<'_>, usize)> {
    let mut scanner = Scanner { text: text.as_bytes(), at: 0 };
    // Fields are read in the order in which they are written here: that of the exports.
    let package = Package {
        id: scanner.integer("{\"ID\":")?,
        name: scanner.text(",\"Name\":")?,
        package_base_id: scanner.integer(",\"PackageBaseID\":")?,
        package_base: scanner.text(",\"PackageBase\":")?,
        version: scanner.text(",\"Version\":")?,
        description: scanner.text_or_null(",\"Description\":")?,
        url: scanner.text_or_null(",\"URL\":")?,
        num_votes: scanner.integer(",\"NumVotes\":")?,
        popularity: scanner.number(",\"Popularity\":")?,
        out_of_date: scanner.integer_or_null(",\"OutOfDate\":")?,
        maintainer: scanner.text_or_null(",\"Maintainer\":")?,
        submitter: scanner.text_or_null(",\"Submitter\":")?,
        first_submitted: scanner.integer(",\"FirstSubmitted\":")?,
        last_modified: scanner.integer(",\"LastModified\":")?,
        depends: {
            // The URL path is not stored, as it follows from the base.
            scanner.text_or_null(",\"URLPath\":")?;
            scanner.list(",\"Depends\":")?
        },
        make_depends: scanner.list(",\"MakeDepends\":")?,
        check_depends: scanner.list(",\"CheckDepends\":")?,
        opt_depends: scanner.list(",\"OptDepends\":")?,
        conflicts: scanner.list(",\"Conflicts\":")?,
        provides: scanner.list(",\"Provides\":")?,
        replaces: scanner.list(",\"Replaces\":")?,
        groups: scanner.list(",\"Groups\":")?,
        license: scanner.list(",\"License\":")?,
        keywords: scanner.list(",\"Keywords\":")?,
        co_maintainers: scanner.list(",\"CoMaintainers\":")?,
        pending_requests: scanner.integer_or_null(",\"PendingRequests\":")?,
        unshown: scanner.unshown()?,
        others: scanner.others()?,
    };
    scanner.constant("}").then_some((package, scanner.at))
}

/// Reads a record piece by piece. Methods return `None` for anything that the parser must look at. A key is given
/// with the separator before it and its colon, and is accepted only with a value of the expected type.
///
/// Methods that read a value are not inlined: thirty copies of each would push other code out of the processor's
/// instruction cache.
struct Scanner<'a> {
    /// The text. Pieces are cut from it only beside ASCII bytes, so they are UTF-8 as well.
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    #[inline(always)]
    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// Consumes these bytes if they come next; tells whether they did.
    #[inline(always)]
    fn constant(&mut self, bytes: &'static str) -> bool {
        let is_next = self.rest().starts_with(bytes.as_bytes());
        if is_next {
            self.at += bytes.len();
        }
        is_next
    }

    #[inline(always)]
    fn text(&mut self, key: &'static str) -> Option<Text<'a>> {
        if self.constant(key) { self.string() } else { None }
    }

    #[inline(always)]
    fn text_or_null(&mut self, key: &'static str) -> Option<Option<Text<'a>>> {
        if !self.constant(key) || self.constant("null") {
            return Some(None);
        }
        self.string().map(Some)
    }

    #[inline(never)]
    fn string(&mut self) -> Option<Text<'a>> {
        if !self.constant("\"") {
            return None;
        }
        let start = self.at;
        self.at += words::unmarked(self.rest(), words::string_ends);
        let text = &self.text[start..self.at];
        self.constant("\"").then_some(Text::Verbatim(text))
    }

    #[inline(always)]
    fn integer<T>(&mut self, key: &'static str) -> Option<Integer<'a, T>> {
        if self.constant(key) { self.whole_number() } else { None }
    }

    #[inline(always)]
    fn integer_or_null<T>(&mut self, key: &'static str) -> Option<Option<Integer<'a, T>>> {
        if !self.constant(key) || self.constant("null") {
            return Some(None);
        }
        self.whole_number().map(Some)
    }

    /// A number without sign of up to 18 digits, which every integer type here can hold.
    #[inline(never)]
    fn whole_number<T>(&mut self) -> Option<Integer<'a, T>> {
        let digits = self.digits()?;
        let is_zero_led = digits.len() > 1 && digits[0] == b'0';
        let is_whole = !matches!(self.rest().first(), Some(b'.' | b'e' | b'E'));
        (digits.len() <= 18 && !is_zero_led && is_whole).then_some(Integer::Verbatim(digits))
    }

    /// A number without sign (RFC 8259, 6).
    #[inline(never)]
    fn number(&mut self, key: &'static str) -> Option<Number<'a>> {
        if !self.constant(key) {
            return None;
        }
        let start = self.at;
        let digits = self.digits()?;
        if digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        if self.constant(".") {
            self.digits()?;
        }
        if self.constant("e") || self.constant("E") {
            let _ = self.constant("+") || self.constant("-");
            self.digits()?;
        }
        Some(Number(&self.text[start..self.at]))
    }

    /// The member `Larder`, in the order in which Larder writes it.
    #[inline(always)]
    fn unshown(&mut self) -> Option<Cow<'a, [u8]>> {
        if self.constant(",\"Larder\":") { self.some_unshown() } else { Some(Cow::Borrowed(&[])) }
    }

    #[inline(never)]
    fn some_unshown(&mut self) -> Option<Cow<'a, [u8]>> {
        let start = self.at;
        let mut open = "{";
        if self.constant("{\"LastPackager\":") {
            if !self.constant("null") {
                self.string()?;
            }
            open = ",";
        }
        if self.begins(open, "\"Architectures\":") {
            self.members(|lists| lists.members(|list| list.strings()))?;
            open = ",";
        }
        if self.begins(open, "\"OptDependsDescriptions\":") {
            self.members(|texts| texts.string().map(drop))?;
            open = ",";
        }
        let end = if open == "," { "}" } else { "{}" };
        self.constant(end).then(|| Cow::Borrowed(&self.text[start..self.at]))
    }

    /// Consumes the separator and the key, if both come next.
    fn begins(&mut self, separator: &'static str, key: &'static str) -> bool {
        let start = self.at;
        let is_next = self.constant(separator) && self.constant(key);
        if !is_next {
            self.at = start;
        }
        is_next
    }

    /// An object whose values `take` reads.
    fn members(&mut self, mut take: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.constant("{}") {
            return Some(());
        }
        if !self.constant("{") {
            return None;
        }
        loop {
            self.string()?;
            if !self.constant(":") {
                return None;
            }
            take(self)?;
            if self.constant("}") {
                return Some(());
            }
            if !self.constant(",") {
                return None;
            }
        }
    }

    /// Members with unknown keys, if they come last, by rising key, with values that are words, whole numbers or strings.
    #[inline(always)]
    fn others(&mut self) -> Option<Cow<'a, [u8]>> {
        if self.rest().first() == Some(&b'}') {
            Some(Cow::Borrowed(&[]))
        } else {
            self.some_others()
        }
    }

    #[inline(never)]
    fn some_others(&mut self) -> Option<Cow<'a, [u8]>> {
        let start = self.at;
        let mut last: &[u8] = &[];
        while self.constant(",") {
            let Some(Text::Verbatim(key)) = self.string() else { return None };
            if key <= last
                || package::is_known(std::str::from_utf8(key).ok()?)
                || !self.constant(":")
            {
                return None;
            }
            last = key;
            if !["true", "false", "null"].iter().any(|word| self.constant(word)) {
                match self.rest().first() {
                    Some(b'"') => drop(self.string()?),
                    _ => drop(self.whole_number::<u64>()?),
                }
            }
        }
        Some(Cow::Borrowed(&self.text[start..self.at]))
    }

    /// One or more digits.
    #[inline(never)]
    fn digits(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.at += words::unmarked(self.rest(), words::non_digits);
        (self.at > start).then_some(&self.text[start..self.at])
    }

    /// A list of strings as the dump has it; an absent list is empty.
    #[inline(never)]
    fn list(&mut self, key: &'static str) -> Option<Texts<'a>> {
        if !self.constant(key) || self.constant("[]") {
            return Some(Texts::default());
        }
        let start = self.at;
        self.strings()?;
        Some(Texts::Verbatim(&self.text[start..self.at]))
    }

    /// A list of one string or more.
    #[inline(always)]
    fn strings(&mut self) -> Option<()> {
        if !self.constant("[") {
            return None;
        }
        loop {
            self.string()?;
            if self.constant("]") {
                return Some(());
            }
            if !self.constant(",") {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::RecordWriter;

    /// The stored form of a package, and the terms of its lists.
    fn kept(package: &Package<'_>) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut writer = RecordWriter::default();
        let mut record = vec![0; writer.encode(package)];
        writer.write_to(&mut record);
        let mut terms = Vec::new();
        for list in [&package.depends, &package.conflicts, &package.keywords] {
            list.each(|text| terms.push(text.to_owned()));
        }
        (record, terms)
    }

    /// Whether the fast path reads the record. If it does, its result must be the parser's.
    #[track_caller]
    fn check(text: &str) -> bool {
        let mut parser = serde_json::Deserializer::from_str(text).into_iter::<Package<'_>>();
        let Some((package, size)) = record(text) else { return false };
        let mut parsed = parser.next().expect("a record").expect("a record that can be parsed");
        parsed.others = package::others(&text[..size]).into();
        assert_eq!(kept(&package), kept(&parsed), "{text}");
        assert_eq!(size, parser.byte_offset(), "{text}");
        true
    }

    const RECORD: &str = r#"{"ID":7,"Name":"a-b","PackageBaseID":3,"PackageBase":"a","Version":"1-1","Description":"d, é","URL":null,"NumVotes":0,"Popularity":0.25,"OutOfDate":12,"Maintainer":null,"Submitter":"who","FirstSubmitted":1,"LastModified":2,"URLPath":"/x","Depends":["b>=1","a long name of a dependency",""],"Groups":[],"Keywords":["k"]}"#;

    #[test]
    fn exports_take_the_fast_path() {
        assert!(check(RECORD));
        assert!(check(&format!("{RECORD},{{")));
        for (others, is_short) in [
            (r#""FlaggedMalicious":false"#, true),
            (r#""A":1,"B":"x","Zz":null"#, true),
            (r#""B":1,"A":2"#, false),
            (r#""A":1,"A":2"#, false),
            (r#""A":[1]"#, false),
            (r#""A":1.5"#, false),
            (r#""A":"\n""#, false),
            (r#""A":{"b": true}"#, false),
            (r#""Name":"again""#, false),
            (r#""PendingRequests":0,"Larder":{}"#, true),
            (r#""Larder":{"LastPackager":null}"#, true),
            (r#""Larder":{"LastPackager":"a"},"Zz":1"#, true),
            (
                r#""Larder":{"LastPackager":"a","Architectures":{"Depends":{"b>=1":["x86_64","armv7h"]},"Replaces":{}}}"#,
                true,
            ),
            (
                r#""Larder":{"Architectures":{},"OptDependsDescriptions":{"b":"what for","c":""}}"#,
                true,
            ),
            (r#""Larder":{"OptDependsDescriptions":{"b":"\"what\" for"}}"#, false),
            (r#""Larder":{"OptDependsDescriptions":{},"LastPackager":"a"}"#, false),
            (r#""Larder":{"Architectures":{"Depends":["b"]}}"#, false),
            (r#""Larder":{"LastPackager":7}"#, false),
            (r#""Larder":{"LastPackager":"a","Later":1}"#, false),
            (r#""Larder":{,"LastPackager":"a"}"#, false),
            (r#""Larder": {}"#, false),
            (r#""Larder":[]"#, false),
            (r#""A":1,"Larder":{}"#, false),
        ] {
            let record = RECORD.replace("[\"k\"]}", &format!("[\"k\"],{others}}}"));
            assert_eq!(check(&record), is_short, "{others}");
        }
        for popularity in ["0", "10", "1.5e-7", "1E+9", "0.0"] {
            assert!(check(&RECORD.replace("0.25", popularity)), "{popularity}");
        }
        let mut dump = Vec::new();
        demo::write_dump(&demo::Recipe { packages: 500, seed: 3 }, &mut dump, &mut |_| ())
            .expect("a catalogue");
        let dump = String::from_utf8(dump).expect("UTF-8");
        let lines = dump.lines().filter(|line| line.starts_with('{'));
        let short = lines.filter(|line| check(line)).count();
        // Some have a quote or a backslash in their description.
        assert!((480..=500).contains(&short), "{short} of 500");
    }

    #[test]
    fn everything_else_is_left_to_the_parser() {
        for (old, new) in [
            ("a-b", "a\\u002db"),
            ("a-b", "a\tb"),
            ("\"a-b\"", "null"),
            ("\"ID\":7,", ""),
            ("\"ID\":7,\"Name\":\"a-b\",", "\"Name\":\"a-b\",\"ID\":7,"),
            ("\"ID\":7,", "\"ID\":7,\"ID\":7,"),
            ("\"ID\":7,", "\"ID\":7,\"Id\":7,"),
            ("\"ID\":7,", "\"ID\": 7,"),
            ("\"ID\":7,", "\"ID\":07,"),
            ("\"ID\":7,", "\"ID\":-7,"),
            ("\"ID\":7,", "\"ID\":7.0,"),
            ("\"ID\":7,", "\"ID\":7e1,"),
            ("\"ID\":7,", "\"ID\":1234567890123456789,"),
            ("\"ID\":7,", "\"ID\":null,"),
            ("0.25", "00.25"),
            ("0.25", ".25"),
            ("0.25", "1."),
            ("0.25", "1.e1"),
            ("0.25", "-1"),
            ("0.25", "1e"),
            ("0.25", "null"),
            ("[\"k\"]", "[\"k\",]"),
            ("[\"k\"]", "[\"k\" ]"),
            ("[\"k\"]", "[null]"),
            ("[\"k\"]", "[\"k\\n\"]"),
            ("[\"k\"]", "null"),
            ("[\"k\"]}", "[\"k\"],}"),
            ("[\"k\"]}", "[\"k\"]]"),
        ] {
            let text = RECORD.replacen(old, new, 1);
            assert_ne!(text, RECORD);
            assert!(record(&text).is_none(), "{text}");
        }
        for end in 0..RECORD.len() {
            assert!(RECORD.get(..end).and_then(record).is_none(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn strings_end_where_they_end(text in "[a\"\\\\\\x00\\x1f\\x20\u{7f}é😀]{0,40}") {
            let plain = text.bytes().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            prop_assert_eq!(words::unmarked(text.as_bytes(), words::string_ends), plain);
        }

        #[test]
        fn changed_records_are_read_as_the_parser_does(
            changes in proptest::collection::vec((0_usize..400, "[\\PC\"\\\\,:{}\\[\\]0-9eE.n-]{0,2}", 0_usize..3), 0..3),
        ) {
            let mut text = RECORD.to_owned();
            for (at, new, removed) in changes {
                let start = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
                let end = (start + removed..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
                text.replace_range(start..end, &new);
            }
            check(&text);
        }
    }
}
