//! [`Filter`]: a search filter (RFC 4515) with places for the user's name and the user's DN.
//!
//! text -> [`Filter`], once -> its encoding, for each log-in. The places are filled in the parsed filter and not in its text. So
//! whatever a name contains is compared as it is, and never becomes a part of the filter.

use std::fmt;
use std::str::FromStr;

use crate::ber::{SEQUENCE, element, octets};

/// How deeply filters may be nested.
const DEPTH_MAX: usize = 20;

/// A search filter with `{username}` and `{userdn}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    node: Node,
}

/// What the places of a filter are filled with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterValues<'login> {
    pub(crate) name: &'login str,
    /// `None` while it is looked for.
    pub(crate) dn: Option<&'login str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// Tag of `&` or `|`, and what is combined.
    Several(u8, Vec<Node>),
    Not(Box<Node>),
    /// Tag of the comparison, attribute and value.
    Compared(u8, String, Value),
    Present(String),
    /// Attribute, what the value begins with, contains and ends with.
    Parts(String, Option<Value>, Vec<Value>, Option<Value>),
    Extensible {
        rule: Option<String>,
        attribute: Option<String>,
        value: Value,
        in_dn: bool,
    },
}

const AND: u8 = 0xa0;
const OR: u8 = 0xa1;
const NOT: u8 = 0xa2;
const EQUAL: u8 = 0xa3;
const PARTS: u8 = 0xa4;
const GREATER: u8 = 0xa5;
const LESS: u8 = 0xa6;
const PRESENT: u8 = 0x87;
const APPROXIMATE: u8 = 0xa8;
const EXTENSIBLE: u8 = 0xa9;

/// A value that is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Value(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    UserName,
    UserDn,
}

/// Text that is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Something else was expected at this place, counted in bytes from 0.
    #[error("expected {expected} at byte {at} of the filter")]
    Expected {
        /// What.
        expected: &'static str,
        /// Where.
        at: usize,
    },
    /// A place of another name.
    #[error("the filter has `{{{0}}}`: only `{{username}}` and `{{userdn}}` are known")]
    Place(String),
    /// Too many levels.
    #[error("the filter has more than {DEPTH_MAX} levels")]
    Deep,
}

impl Filter {
    /// The attributes that are compared with the name alone, without duplicates.
    pub fn name_attributes(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.node.name_attributes(&mut found);
        found
    }

    /// Whether it has a place for the user's name.
    pub fn asks_for_name(&self) -> bool {
        self.node.asks_for(&Piece::UserName)
    }

    /// Whether it has a place for the user's DN.
    pub fn asks_for_dn(&self) -> bool {
        self.node.asks_for(&Piece::UserDn)
    }

    /// Its encoding, with the places filled.
    pub(crate) fn encode(&self, filling: FilterValues<'_>) -> Vec<u8> {
        self.node.encode(filling)
    }
}

impl Node {
    fn children(&self) -> &[Node] {
        match self {
            Node::Several(_, nodes) => nodes,
            Node::Not(node) => std::slice::from_ref(&**node),
            _ => &[],
        }
    }

    fn values(&self) -> Vec<&Value> {
        match self {
            Node::Compared(_, _, value) | Node::Extensible { value, .. } => vec![value],
            Node::Parts(_, first, middle, last) => first.iter().chain(middle).chain(last).collect(),
            _ => Vec::new(),
        }
    }

    fn name_attributes<'node>(&'node self, found: &mut Vec<&'node str>) {
        if let Node::Compared(EQUAL, attribute, value) = self
            && value.0 == [Piece::UserName]
            && !found.iter().any(|other| other.eq_ignore_ascii_case(attribute))
        {
            found.push(attribute);
        }
        self.children().iter().for_each(|node| node.name_attributes(found));
    }

    fn asks_for(&self, place: &Piece) -> bool {
        self.values().iter().any(|value| value.0.contains(place))
            || self.children().iter().any(|node| node.asks_for(place))
    }

    fn encode(&self, filling: FilterValues<'_>) -> Vec<u8> {
        let value = |value: &Value| value.filled(filling);
        match self {
            Node::Several(tag, nodes) => {
                let nodes: Vec<_> = nodes.iter().map(|node| node.encode(filling)).collect();
                element(*tag, &nodes.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }
            Node::Not(node) => element(NOT, &[&node.encode(filling)]),
            Node::Compared(tag, attribute, compared) => {
                element(*tag, &[&octets(attribute.as_bytes()), &octets(&value(compared))])
            }
            Node::Present(attribute) => element(PRESENT, &[attribute.as_bytes()]),
            Node::Parts(attribute, first, middle, last) => {
                let part = |tag: u8, part: &Value| element(tag, &[&value(part)]);
                let mut parts = Vec::new();
                first.iter().for_each(|first| parts.extend(part(0x80, first)));
                middle.iter().for_each(|middle| parts.extend(part(0x81, middle)));
                last.iter().for_each(|last| parts.extend(part(0x82, last)));
                element(PARTS, &[&octets(attribute.as_bytes()), &element(SEQUENCE, &[&parts])])
            }
            Node::Extensible { rule, attribute, value: compared, in_dn } => {
                let mut parts = Vec::new();
                rule.iter().for_each(|rule| parts.extend(element(0x81, &[rule.as_bytes()])));
                attribute.iter().for_each(|it| parts.extend(element(0x82, &[it.as_bytes()])));
                parts.extend(element(0x83, &[&value(compared)]));
                if *in_dn {
                    parts.extend(element(0x84, &[&[0xff]]));
                }
                element(EXTENSIBLE, &[&parts])
            }
        }
    }
}

impl Value {
    fn filled(&self, filling: FilterValues<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Bytes(text) => bytes.extend_from_slice(text),
                Piece::UserName => bytes.extend_from_slice(filling.name.as_bytes()),
                Piece::UserDn => bytes.extend_from_slice(filling.dn.unwrap_or_default().as_bytes()),
            }
        }
        bytes
    }

    fn push(&mut self, byte: u8) {
        match self.0.last_mut() {
            Some(Piece::Bytes(bytes)) => bytes.push(byte),
            _ => self.0.push(Piece::Bytes(vec![byte])),
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let mut parser = Parser { bytes: text.as_bytes(), at: 0 };
        // People leave the outer parentheses out.
        let node =
            if parser.peek() == Some(b'(') { parser.node(0)? } else { parser.comparison()? };
        if parser.at < parser.bytes.len() {
            return Err(parser.expected("the end"));
        }
        Ok(Filter { text: text.to_owned(), node })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

struct Parser<'text> {
    bytes: &'text [u8],
    at: usize,
}

impl<'text> Parser<'text> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> FilterError {
        FilterError::Expected { expected, at: self.at }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), FilterError> {
        if self.peek() != Some(byte) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn node(&mut self, depth: usize) -> Result<Node, FilterError> {
        if depth >= DEPTH_MAX {
            return Err(FilterError::Deep);
        }
        self.take(b'(', "`(`")?;
        let node = match self.peek() {
            Some(sign @ (b'&' | b'|')) => {
                self.at += 1;
                let mut nodes = Vec::new();
                while self.peek() == Some(b'(') {
                    nodes.push(self.node(depth + 1)?);
                }
                if nodes.is_empty() {
                    return Err(self.expected("`(`"));
                }
                Node::Several(if sign == b'&' { AND } else { OR }, nodes)
            }
            Some(b'!') => {
                self.at += 1;
                Node::Not(Box::new(self.node(depth + 1)?))
            }
            _ => self.comparison()?,
        };
        self.take(b')', "`)`")?;
        Ok(node)
    }

    /// What is before `stop`, if it is a name of an attribute or a rule.
    fn word(&mut self) -> &'text str {
        let rest = &self.bytes[self.at..];
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.;_".contains(byte);
        let length = rest.iter().take_while(|byte| is_of_name(byte)).count();
        self.at += length;
        std::str::from_utf8(&rest[..length]).unwrap_or_default()
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        let attribute = self.word().to_owned();
        if self.peek() == Some(b':') {
            return self.extensible(attribute);
        }
        if attribute.is_empty() {
            return Err(self.expected("the name of an attribute"));
        }
        let tag = match self.peek() {
            Some(b'=') => EQUAL,
            Some(b'>') => GREATER,
            Some(b'<') => LESS,
            Some(b'~') => APPROXIMATE,
            _ => return Err(self.expected("`=`, `>=`, `<=` or `~=`")),
        };
        self.at += usize::from(tag != EQUAL);
        self.take(b'=', "`=`")?;
        let mut values = vec![self.value()?];
        while tag == EQUAL && self.peek() == Some(b'*') {
            self.at += 1;
            values.push(self.value()?);
        }
        let is_empty = |value: &Value| value.0.is_empty();
        if values.len() == 1 {
            return Ok(Node::Compared(tag, attribute, values.remove(0)));
        }
        if values.len() == 2 && values.iter().all(is_empty) {
            return Ok(Node::Present(attribute));
        }
        let last = values.pop().filter(|value| !is_empty(value));
        let first = Some(values.remove(0)).filter(|value| !is_empty(value));
        if values.iter().any(is_empty) {
            return Err(self.expected("something between two `*`"));
        }
        Ok(Node::Parts(attribute, first, values, last))
    }

    /// `attribute:dn:rule:=value`, of which the attribute or the rule may be missing.
    fn extensible(&mut self, attribute: String) -> Result<Node, FilterError> {
        let (mut rule, mut in_dn) = (None, false);
        loop {
            self.take(b':', "`:`")?;
            if self.peek() == Some(b'=') {
                self.at += 1;
                break;
            }
            match self.word() {
                "" => return Err(self.expected("`dn`, a rule or `=`")),
                "dn" if !in_dn && rule.is_none() => in_dn = true,
                word if rule.is_none() => rule = Some(word.to_owned()),
                _ => return Err(self.expected("`:=`")),
            }
        }
        let attribute = Some(attribute).filter(|attribute| !attribute.is_empty());
        if attribute.is_none() && rule.is_none() {
            return Err(self.expected("an attribute or a rule before `:=`"));
        }
        Ok(Node::Extensible { rule, attribute, value: self.value()?, in_dn })
    }

    /// A value, up to a parenthesis or a `*`.
    fn value(&mut self) -> Result<Value, FilterError> {
        let mut value = Value::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'(' | b')' | b'*' => break,
                0 => return Err(self.expected("no NUL")),
                b'\\' => {
                    let digits = self.bytes.get(self.at + 1..self.at + 3);
                    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                    let escaped = digits.filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
                    let escaped = escaped.and_then(|it| u8::from_str_radix(it, 16).ok());
                    value.push(escaped.ok_or_else(|| self.expected("two digits after `\\`"))?);
                    self.at += 3;
                }
                // Python's format, which devpi-ldap uses, writes a brace as two.
                b'{' | b'}' if self.bytes.get(self.at + 1) == Some(&byte) => {
                    value.push(byte);
                    self.at += 2;
                }
                b'{' => {
                    let rest = &self.bytes[self.at + 1..];
                    let end = rest.iter().position(|&byte| byte == b'}');
                    let place = &rest[..end.ok_or_else(|| self.expected("`{username}`"))?];
                    value.0.push(match place {
                        b"username" => Piece::UserName,
                        b"userdn" => Piece::UserDn,
                        other => {
                            return Err(FilterError::Place(String::from_utf8_lossy(other).into()));
                        }
                    });
                    self.at += place.len() + 2;
                }
                byte => {
                    value.push(byte);
                    self.at += 1;
                }
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn encoded(text: &str, name: &str) -> Vec<u8> {
        let filter: Filter = text.parse().expect(text);
        assert_eq!(filter.to_string(), text);
        filter.encode(FilterValues { name, dn: Some("uid=a,dc=x") })
    }

    fn equal(attribute: &str, value: &str) -> Vec<u8> {
        element(EQUAL, &[&octets(attribute.as_bytes()), &octets(value.as_bytes())])
    }

    /// Texts with these numbers as tags, one after another.
    fn parts_of(parts: &[(u8, &str)]) -> Vec<u8> {
        parts.iter().flat_map(|(tag, text)| element(0x80 | tag, &[text.as_bytes()])).collect()
    }

    fn parts(tag: u8, of: &[(u8, &str)]) -> Vec<u8> {
        element(tag, &[&parts_of(of)])
    }

    #[test]
    fn filters_are_encoded() {
        let class = equal("objectClass", "person");
        for (text, expected) in [
            ("(uid={username})", equal("uid", "alice")),
            ("uid={username}", equal("uid", "alice")),
            ("(uid=a\\2ab\\5c)", equal("uid", "a*b\\")),
            ("(cn={{{username}}})", equal("cn", "{alice}")),
            ("(cn=)", equal("cn", "")),
            (
                "(&(objectClass=person)(uid={username}))",
                element(AND, &[&class, &equal("uid", "alice")]),
            ),
            (
                "(|(objectClass=person)(member={userdn}))",
                element(OR, &[&class, &equal("member", "uid=a,dc=x")]),
            ),
            ("(!(objectClass=person))", element(NOT, &[&class])),
            ("(mail=*)", element(PRESENT, &[b"mail"])),
            ("(uid>=5)", element(GREATER, &[&octets(b"uid"), &octets(b"5")])),
            ("(uid~=5)", element(APPROXIMATE, &[&octets(b"uid"), &octets(b"5")])),
            (
                "(cn=a*b*{username})",
                element(
                    PARTS,
                    &[&octets(b"cn"), &parts(SEQUENCE, &[(0, "a"), (1, "b"), (2, "alice")])],
                ),
            ),
            (
                "(member:1.2.840.113556.1.4.1941:={userdn})",
                parts(
                    EXTENSIBLE,
                    &[(1, "1.2.840.113556.1.4.1941"), (2, "member"), (3, "uid=a,dc=x")],
                ),
            ),
            (
                "(ou:dn:=people)",
                element(
                    EXTENSIBLE,
                    &[&parts_of(&[(2, "ou"), (3, "people")]), &element(0x84, &[&[0xff]])],
                ),
            ),
        ] {
            assert_eq!(encoded(text, "alice"), expected, "{text}");
        }
    }

    /// Names that would be a filter of their own in a text.
    #[test]
    fn a_name_is_never_a_part_of_the_filter() {
        for name in ["*", "*)(uid=*", "a)(|(uid=*)", "\\2a", "\0", "a\\", "{userdn}", ""] {
            assert_eq!(encoded("(uid={username})", name), equal("uid", name), "{name:?}");
        }
    }

    #[test]
    fn attributes_that_are_the_name() {
        let of = |text: &str| {
            let filter: Filter = text.parse().expect(text);
            filter.name_attributes().join(" ")
        };
        assert_eq!(of("(&(objectClass=a)(uid={username}))"), "uid");
        assert_eq!(of("(|(uid={username})(mail={username})(UID={username}))"), "uid mail");
        assert_eq!(of("(|(uid=x{username})(cn=*{username}))"), "");
    }

    #[test]
    fn what_is_no_filter() {
        for (text, expected) in [
            ("", "expected the name of an attribute at byte 0"),
            ("(uid={username}", "expected `)` at byte 15"),
            ("(uid={username}))", "expected the end at byte 16"),
            ("(&)", "expected `(` at byte 2"),
            ("(uid)", "expected `=`"),
            ("(=x)", "expected the name of an attribute"),
            ("(uid={user})", "the filter has `{user}`"),
            ("(uid={username)", "expected `{username}`"),
            ("(uid=\\2)", "expected two digits after `\\`"),
            ("(uid=\\+1)", "expected two digits after `\\`"),
            ("(uid=a**b)", "expected something between two `*`"),
            ("(:=a)", "expected an attribute or a rule"),
        ] {
            let error = text.parse::<Filter>().expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(100_000), ")".repeat(100_000));
        assert_eq!(deep.parse::<Filter>(), Err(FilterError::Deep));
    }
}
