//! [`StoreIdentity`]: the name of a store, which its records and its blobs both carry.
//!
//! The records have it under a key; beside the blobs it is in a file or an object called `IDENTITY`. A blob store that is
//! [bound](super::BlobStore::bind) to an identity checks it with every write, so that no write is acknowledged that went into
//! another store's directory or bucket.

use std::fmt;
use std::str::FromStr;

use super::error::BlobError;

/// The name of the file or object.
pub(super) const NAME: &str = "IDENTITY";

/// Shortest and longest name, in characters.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=64;

/// The name of a store: 8 to 64 ASCII letters, digits and hyphens; 32 hexadecimal digits if Larder made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity(String);

/// A text that is no name of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a store: 8 to 64 letters, digits and hyphens were expected")]
pub struct StoreIdentityError(String);

impl FromStr for StoreIdentity {
    type Err = StoreIdentityError;

    fn from_str(text: &str) -> Result<StoreIdentity, StoreIdentityError> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match is_plain && LENGTHS.contains(&text.len()) {
            true => Ok(StoreIdentity(text.to_owned())),
            false => {
                let shown: String = record::excerpt(text, 80).escape_default().to_string();
                Err(StoreIdentityError(shown))
            }
        }
    }
}

impl fmt::Display for StoreIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl StoreIdentity {
    /// The content of the file or object.
    pub(super) fn to_line(&self) -> String {
        format!("{self}\n")
    }

    /// Parses the content of the file or object at `place`.
    pub(super) fn from_line(bytes: &[u8], place: &str) -> Result<StoreIdentity, BlobError> {
        let text = String::from_utf8_lossy(bytes);
        // Without its newline it is cut, and may be the start of another name.
        let name = text.strip_suffix('\n').unwrap_or_default();
        name.parse().map_err(|_: StoreIdentityError| {
            let shown = StoreIdentityError(record::excerpt(&text, 80).escape_default().to_string());
            BlobError::Away { place: place.to_owned(), flaw: shown.to_string() }
        })
    }

    /// Checks that `place` names this store.
    pub(super) fn check(
        &self,
        found: Option<&StoreIdentity>,
        place: &str,
    ) -> Result<(), BlobError> {
        let flaw = match found {
            Some(found) if found == self => return Ok(()),
            Some(found) => format!("the store {found} is named there, but {self} was expected"),
            None => format!("nothing is there, but the name of the store, {self}, was expected"),
        };
        Err(BlobError::Away { place: place.to_owned(), flaw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], expected: Result<&str, &str>) {
        let found = StoreIdentity::from_line(line, "blobs/IDENTITY");
        match expected {
            Ok(expected) => assert_eq!(found.expect("a name").to_string(), expected),
            Err(name) => {
                let expected =
                    "is not the name of a store: 8 to 64 letters, digits and hyphens were expected";
                let start = "the blobs of this store are not at their place: `blobs/IDENTITY`:";
                let error = found.expect_err("no name").to_string();
                assert_eq!(error, format!("{start} `{name}` {expected}"));
            }
        }
    }

    #[test]
    fn a_name_is_read_back() {
        check(b"0123456789abcdef0123456789abcdef\n", Ok("0123456789abcdef0123456789abcdef"));
        check(b"0123456789abcdef", Err("0123456789abcdef"));
        check(b"", Err(""));
        check(b"0123\n", Err("0123\\n"));
        check(b"\0\0\0\0\0\0\0\0\0", Err("\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}"));
        check(b"0123456789\n0123456789\n", Err("0123456789\\n0123456789\\n"));
        check(
            &[b'a'; 65],
            Err("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        );
    }

    #[test]
    fn only_the_same_name_will_do() {
        let name = |text: &str| text.parse::<StoreIdentity>().expect("a name");
        let ours = name("0123456789");
        assert!(ours.check(Some(&name("0123456789")), "x").is_ok());
        for (found, why) in [
            (None, "nothing is there, but the name of the store, 0123456789, was expected"),
            (
                Some(&name("9876543210")),
                "the store 9876543210 is named there, but 0123456789 was expected",
            ),
        ] {
            let error = ours.check(found, "x").expect_err("another").to_string();
            assert_eq!(
                error,
                format!("the blobs of this store are not at their place: `x`: {why}")
            );
        }
    }
}
