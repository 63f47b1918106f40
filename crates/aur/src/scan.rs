//! The short way of reading a record: of the form that exports have, whose pieces need only be cut out.
//!
//! What it reads has no white space between its pieces, no escape in a string, no key twice and no key but
//! the known ones. Anything else it leaves to the JSON parser, mistakes included: it never says why, and what
//! it gives is what the parser gives (a test compares them).

use crate::package::{Integer, Number, Package, Text, Texts};

/// The form of a member's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    TextOrNull,
    Integer,
    IntegerOrNull,
    Number,
    List,
}

/// The keys in the order of the exports, quoted and with their colon.
const MEMBERS: [(&str, Form); 26] = [
    ("\"ID\":", Form::Integer),
    ("\"Name\":", Form::Text),
    ("\"PackageBaseID\":", Form::Integer),
    ("\"PackageBase\":", Form::Text),
    ("\"Version\":", Form::Text),
    ("\"Description\":", Form::TextOrNull),
    ("\"URL\":", Form::TextOrNull),
    ("\"NumVotes\":", Form::Integer),
    ("\"Popularity\":", Form::Number),
    ("\"OutOfDate\":", Form::IntegerOrNull),
    ("\"Maintainer\":", Form::TextOrNull),
    ("\"Submitter\":", Form::TextOrNull),
    ("\"FirstSubmitted\":", Form::Integer),
    ("\"LastModified\":", Form::Integer),
    ("\"URLPath\":", Form::TextOrNull),
    ("\"Depends\":", Form::List),
    ("\"MakeDepends\":", Form::List),
    ("\"CheckDepends\":", Form::List),
    ("\"OptDepends\":", Form::List),
    ("\"Conflicts\":", Form::List),
    ("\"Provides\":", Form::List),
    ("\"Replaces\":", Form::List),
    ("\"Groups\":", Form::List),
    ("\"License\":", Form::List),
    ("\"Keywords\":", Form::List),
    ("\"CoMaintainers\":", Form::List),
];

/// The record at the start of `text`, and its size in bytes; `None` if the parser is to read it.
pub(crate) fn record(text: &str) -> Option<(Package<'_>, usize)> {
    let mut scanner = Scanner { text, at: 0 };
    // What each member has: a string without its quotes, a number or list as it stands.
    let mut pieces: [Option<&str>; MEMBERS.len()] = [None; MEMBERS.len()];
    let mut seen = 0_u32;
    let mut member = 0;
    scanner.byte(b'{')?;
    loop {
        member = scanner.key(member)?;
        if seen >> member & 1 == 1 {
            return None;
        }
        seen |= 1 << member;
        pieces[member] = match MEMBERS[member].1 {
            Form::Text => Some(scanner.string()?),
            Form::TextOrNull if scanner.is_null() => None,
            Form::TextOrNull => Some(scanner.string()?),
            Form::Integer => Some(scanner.integer()?),
            Form::IntegerOrNull if scanner.is_null() => None,
            Form::IntegerOrNull => Some(scanner.integer()?),
            Form::Number => Some(scanner.number()?),
            Form::List => scanner.list()?,
        };
        member = (member + 1) % MEMBERS.len();
        match scanner.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    let text = |member: usize| pieces[member].map(Text::Verbatim);
    let list = |member: usize| pieces[member].map_or_else(Texts::default, Texts::Verbatim);
    let package = Package {
        id: Integer::Verbatim(pieces[0]?),
        name: text(1)?,
        package_base_id: Integer::Verbatim(pieces[2]?),
        package_base: text(3)?,
        version: text(4)?,
        description: text(5),
        url: text(6),
        num_votes: Integer::Verbatim(pieces[7]?),
        popularity: Number(pieces[8]?),
        out_of_date: pieces[9].map(Integer::Verbatim),
        maintainer: text(10),
        submitter: text(11),
        first_submitted: Integer::Verbatim(pieces[12]?),
        last_modified: Integer::Verbatim(pieces[13]?),
        depends: list(15),
        make_depends: list(16),
        check_depends: list(17),
        opt_depends: list(18),
        conflicts: list(19),
        provides: list(20),
        replaces: list(21),
        groups: list(22),
        license: list(23),
        keywords: list(24),
        co_maintainers: list(25),
    };
    Some((package, scanner.at))
}

/// The first eight bytes of each key, as a number, and a mask of those that it has.
const HEADS: [(u64, u64); MEMBERS.len()] = {
    let mut heads = [(0, 0); MEMBERS.len()];
    let mut member = 0;
    while member < heads.len() {
        let key = MEMBERS[member].0.as_bytes();
        let (mut head, mut mask) = ([0; 8], [0; 8]);
        let mut at = 0;
        while at < head.len() && at < key.len() {
            (head[at], mask[at]) = (key[at], 0xff);
            at += 1;
        }
        heads[member] = (u64::from_ne_bytes(head), u64::from_ne_bytes(mask));
        member += 1;
    }
    heads
};

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    #[inline(always)]
    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    #[inline(always)]
    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline(always)]
    fn byte(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// The key that stands here; `likely` and those after it are looked for first.
    #[inline(always)]
    fn key(&mut self, likely: usize) -> Option<usize> {
        let rest = self.rest();
        let word = u64::from_ne_bytes(*rest.first_chunk()?);
        for member in (likely..MEMBERS.len()).chain(0..likely) {
            let (head, mask) = HEADS[member];
            if word & mask == head && rest.starts_with(MEMBERS[member].0.as_bytes()) {
                self.at += MEMBERS[member].0.len();
                return Some(member);
            }
        }
        None
    }

    #[inline(always)]
    fn is_null(&mut self) -> bool {
        let is_null = self.rest().starts_with(b"null");
        if is_null {
            self.at += "null".len();
        }
        is_null
    }

    /// The inside of a string.
    #[inline(always)]
    fn string(&mut self) -> Option<&'a str> {
        self.byte(b'"')?;
        let start = self.at;
        let end = start + plain_len(self.rest());
        self.at = end;
        self.byte(b'"')?;
        self.text.get(start..end)
    }

    /// A number of up to 18 digits, which every type of integer holds, without sign.
    #[inline(always)]
    fn integer(&mut self) -> Option<&'a str> {
        let start = self.at;
        let digits = self.digits()?;
        let is_zero_led = digits > 1 && self.text.as_bytes()[start] == b'0';
        (digits <= 18 && !is_zero_led && !matches!(self.rest().first(), Some(b'.' | b'e' | b'E')))
            .then(|| &self.text[start..self.at])
    }

    /// A number (RFC 8259, 6) without sign.
    #[inline(always)]
    fn number(&mut self) -> Option<&'a str> {
        let start = self.at;
        if self.digits()? > 1 && self.text.as_bytes()[start] == b'0' {
            return None;
        }
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.rest().first(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.rest().first(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(&self.text[start..self.at])
    }

    /// One digit or more; their number.
    #[inline(always)]
    fn digits(&mut self) -> Option<usize> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(count)
    }

    /// A list of strings as it stands; nothing if it is empty.
    #[inline(always)]
    fn list(&mut self) -> Option<Option<&'a str>> {
        let start = self.at;
        self.byte(b'[')?;
        if self.rest().first() == Some(&b']') {
            self.at += 1;
            return Some(None);
        }
        loop {
            self.byte(b'"')?;
            self.at += plain_len(self.rest());
            self.byte(b'"')?;
            match self.next()? {
                b',' => {}
                b']' => return Some(self.text.get(start..self.at)),
                _ => return None,
            }
        }
    }
}

/// The strings of a list that [`record`] gave.
pub(crate) fn strings(list: &str) -> impl Iterator<Item = &str> {
    // The bracket or comma and the quote before a string; the quote behind the last and the bracket.
    let mut rest = list.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let end = plain_len(rest.as_bytes());
        let string = rest.get(..end).filter(|_| end < rest.len())?;
        rest = rest.get(end + 3..).unwrap_or_default();
        Some(string)
    })
}

/// How many bytes stand before the first quote, backslash or control character.
#[inline(always)]
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest byte that is less than `bound` gets its highest bit; higher bytes may get theirs wrongly.
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let marks = (below(quote, 1) | below(backslash, 1) | below(word, 0x20)) & HIGHS;
        if marks != 0 {
            return at * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let start = words.len() * 8;
    let is_plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
    start + bytes[start..].iter().take_while(is_plain).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::RecordWriter;

    /// What is kept of a package, and the terms of its lists.
    fn kept(package: &Package<'_>) -> (Vec<u8>, Vec<String>) {
        let mut record = Vec::new();
        let mut writer = RecordWriter::default();
        writer.encode(package);
        writer.append_to(&mut record);
        let mut terms = Vec::new();
        for list in [&package.depends, &package.conflicts, &package.keywords] {
            list.each(|text| terms.push(text.to_owned()));
        }
        (record, terms)
    }

    /// Whether the record is read the short way; what it gives must be what the parser gives.
    #[track_caller]
    fn check(text: &str) -> bool {
        let mut parser = serde_json::Deserializer::from_str(text).into_iter::<Package<'_>>();
        let Some((package, size)) = record(text) else { return false };
        let parsed = parser.next().expect("a record").expect("a record that can be parsed");
        assert_eq!(kept(&package), kept(&parsed), "{text}");
        assert_eq!(size, parser.byte_offset(), "{text}");
        true
    }

    const RECORD: &str = r#"{"ID":7,"Name":"a-b","PackageBaseID":3,"PackageBase":"a","Version":"1-1","Description":"d, é","URL":null,"NumVotes":0,"Popularity":0.25,"OutOfDate":12,"Maintainer":null,"Submitter":"who","FirstSubmitted":1,"LastModified":2,"URLPath":"/x","Depends":["b>=1","a long name of a dependency",""],"Groups":[],"Keywords":["k"]}"#;

    #[test]
    fn exports_are_read_the_short_way() {
        assert!(check(RECORD));
        assert!(check(&format!("{RECORD},{{")));
        assert!(check(&RECORD.replace("\"ID\":7,", "").replace("[\"k\"]", "[\"k\"],\"ID\":70")));
        for popularity in ["0", "10", "1.5e-7", "1E+9", "0.0"] {
            assert!(check(&RECORD.replace("0.25", popularity)), "{popularity}");
        }
        let mut dump = Vec::new();
        demo::write_dump(&demo::Recipe { packages: 500, seed: 3 }, &mut dump, &mut |_| ())
            .expect("a catalogue");
        let dump = String::from_utf8(dump).expect("UTF-8");
        let lines = dump.lines().filter(|line| line.starts_with('{'));
        let short = lines.filter(|line| check(line)).count();
        // Some have a description with a quote or a backslash.
        assert!((480..=500).contains(&short), "{short} of 500");
    }

    #[test]
    fn all_else_is_left_to_the_parser() {
        for (old, new) in [
            ("a-b", "a\\u002db"),
            ("a-b", "a\tb"),
            ("\"a-b\"", "null"),
            ("\"ID\":7,", ""),
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
            prop_assert_eq!(plain_len(text.as_bytes()), plain);
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
