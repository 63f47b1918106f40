//! Requests and answers of LDAP (RFC 4511): a bind with a password, a search, and the wish to encrypt.

use crate::ber::{
    BOOLEAN, ENUMERATED, INTEGER, Malformed, OCTETS, Reader, SEQUENCE, SET, element, number, octets,
};

/// The end of a bind that went well, and of a search.
pub(crate) const SUCCESS: u32 = 0;
/// More entries were found than were asked for.
pub(crate) const SIZE_LIMIT_EXCEEDED: u32 = 4;

/// Results of a bind that say that this name cannot log in with this password, and nothing of the directory.
const REFUSALS: [u32; 6] = [
    19, // a constraint: the account is locked
    32, // there is no such entry
    34, // no entry can be called so
    48, // the entry has no password
    49, // the password is wrong
    53, // the directory is not willing, for this entry
];

/// How deep a search goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The base alone.
    Base,
    /// The entries directly below the base.
    One,
    /// The base and everything below it.
    #[default]
    Subtree,
}

impl Scope {
    /// The words of the configuration, in the order of the variants.
    pub const NAMES: &[&str] = &["base", "one", "subtree"];
}

/// A search.
#[derive(Clone, Debug)]
pub(crate) struct Search<'search> {
    pub(crate) base: &'search str,
    pub(crate) scope: Scope,
    /// In its encoding.
    pub(crate) filter: Vec<u8>,
    pub(crate) attribute: &'search str,
    pub(crate) entries_max: u32,
    pub(crate) seconds_max: u32,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The result of a bind, a search, or another wish.
    Result(Outcome),
    Entry(Entry),
    /// Another server may have more. It is not asked.
    Referral,
}

/// The result of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: u32,
    /// What the directory says about it; may be empty.
    pub(crate) says: String,
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) dn: String,
    attributes: Vec<(String, Vec<Vec<u8>>)>,
}

impl Outcome {
    pub(crate) fn is_refusal(&self) -> bool {
        REFUSALS.contains(&self.code)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.code {
            0 => "success",
            1 => "operationsError",
            3 => "timeLimitExceeded",
            4 => "sizeLimitExceeded",
            8 => "strongerAuthRequired",
            10 => "referral",
            11 => "adminLimitExceeded",
            13 => "confidentialityRequired",
            19 => "constraintViolation",
            32 => "noSuchObject",
            34 => "invalidDNSyntax",
            48 => "inappropriateAuthentication",
            49 => "invalidCredentials",
            50 => "insufficientAccessRights",
            51 => "busy",
            52 => "unavailable",
            53 => "unwillingToPerform",
            _ => "",
        };
        write!(formatter, "result {}", self.code)?;
        if !name.is_empty() {
            write!(formatter, " ({name})")?;
        }
        if !self.says.is_empty() {
            write!(formatter, ": {}", self.says)?;
        }
        Ok(())
    }
}

impl Entry {
    /// The values of an attribute that are text.
    pub(crate) fn values(&self, attribute: &str) -> Vec<&str> {
        let found = self.attributes.iter().filter(|(name, _)| name.eq_ignore_ascii_case(attribute));
        found.flat_map(|(_, values)| values).filter_map(|it| std::str::from_utf8(it).ok()).collect()
    }
}

/// A message with this number.
pub(crate) fn message(id: u32, wish: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&number(INTEGER, id), wish])
}

/// The wish to be this entry from now on.
pub(crate) fn bind(dn: &str, password: &[u8]) -> Vec<u8> {
    let simple = element(0x80, &[password]);
    element(0x60, &[&number(INTEGER, 3), &octets(dn.as_bytes()), &simple])
}

/// The wish to end the connection.
pub(crate) fn unbind() -> Vec<u8> {
    element(0x42, &[])
}

/// The wish to go on encrypted.
pub(crate) fn start_tls() -> Vec<u8> {
    element(0x77, &[&element(0x80, &[b"1.3.6.1.4.1.1466.20037"])])
}

/// The wish for entries.
pub(crate) fn search(search: &Search<'_>) -> Vec<u8> {
    let attributes = element(SEQUENCE, &[&octets(search.attribute.as_bytes())]);
    element(
        0x63,
        &[
            &octets(search.base.as_bytes()),
            &number(ENUMERATED, search.scope as u32),
            // Aliases are entries like others.
            &number(ENUMERATED, 0),
            &number(INTEGER, search.entries_max),
            &number(INTEGER, search.seconds_max),
            &element(BOOLEAN, &[&[0]]),
            &search.filter,
            &attributes,
        ],
    )
}

/// The number and the content of a message; `bytes` is the content of its sequence.
pub(crate) fn answer(bytes: &[u8]) -> Result<(u32, Answer), Malformed> {
    let mut reader = Reader(bytes);
    let id = reader.number(INTEGER)?;
    let (tag, content) = reader.next()?;
    let mut content = Reader(content);
    let answer = match tag {
        0x61 | 0x65 | 0x78 => {
            let code = content.number(ENUMERATED)?;
            content.content(OCTETS)?;
            let says = String::from_utf8_lossy(content.content(OCTETS)?);
            Answer::Result(Outcome { code, says: shown(&says) })
        }
        0x64 => {
            let dn = text(content.content(OCTETS)?)?;
            let (mut list, mut attributes) = (content.within(SEQUENCE)?, Vec::new());
            while !list.is_empty() {
                let mut attribute = list.within(SEQUENCE)?;
                let name = text(attribute.content(OCTETS)?)?;
                let (mut set, mut values) = (attribute.within(SET)?, Vec::new());
                while !set.is_empty() {
                    values.push(set.content(OCTETS)?.to_vec());
                }
                attributes.push((name, values));
            }
            Answer::Entry(Entry { dn, attributes })
        }
        0x73 => Answer::Referral,
        _ => return Err(Malformed),
    };
    Ok((id, answer))
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}

/// A text of the directory in a message: shortened, and on one line.
fn shown(text: &str) -> String {
    record::escaped_excerpt(text.trim_end_matches('\0'), 200)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(tag: u8, code: u32, says: &str) -> Vec<u8> {
        let wish =
            element(tag, &[&number(ENUMERATED, code), &octets(b""), &octets(says.as_bytes())]);
        [number(INTEGER, 7), wish].concat()
    }

    #[test]
    fn answers_are_read() {
        let outcome =
            |code, says: &str| Ok((7, Answer::Result(Outcome { code, says: says.to_owned() })));
        assert_eq!(answer(&result(0x61, 49, "no\n\0")), outcome(49, "no\\n"));
        assert_eq!(answer(&result(0x65, 0, "")), outcome(0, ""));
        let attribute = |name: &str, values: &[&[u8]]| {
            let values: Vec<u8> = values.iter().flat_map(|value| octets(value)).collect();
            element(SEQUENCE, &[&octets(name.as_bytes()), &element(SET, &[&values])])
        };
        let list = element(SEQUENCE, &[&attribute("UID", &[b"a", b"\xff", b"b"])]);
        let entry = element(0x64, &[&octets(b"uid=a,dc=x"), &list]);
        match answer(&[number(INTEGER, 8), entry].concat()) {
            Ok((8, Answer::Entry(entry))) => {
                assert_eq!(
                    (entry.dn.as_str(), entry.values("uid")),
                    ("uid=a,dc=x", vec!["a", "b"])
                );
                assert!(entry.values("cn").is_empty());
            }
            other => panic!("{other:?}"),
        }
        let referral = [number(INTEGER, 8), element(0x73, &[&octets(b"ldap://other")])].concat();
        assert_eq!(answer(&referral), Ok((8, Answer::Referral)));
        assert_eq!(answer(&[number(INTEGER, 8), element(0x70, &[])].concat()), Err(Malformed));
    }

    /// A stack of sequences costs nothing: what is not expected is not opened.
    #[test]
    fn nested_answers_are_refused() {
        let nested = (0..20_000).fold(Vec::new(), |inner, _| element(SEQUENCE, &[&inner]));
        assert_eq!(answer(&nested), Err(Malformed));
        let entry = element(0x64, &[&octets(b""), &nested]);
        assert_eq!(answer(&[number(INTEGER, 1), entry].concat()), Err(Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(&bytes);
            let _ = answer(&[number(INTEGER, 1), element(0x64, &[&bytes])].concat());
            let _ = answer(&[number(INTEGER, 1), element(0x61, &[&bytes])].concat());
        }
    }
}
