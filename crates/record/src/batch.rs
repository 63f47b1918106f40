//! [`Batch`]: what one commit writes, and what must hold for it to be written.

use bytes::Bytes;

use crate::{Digest, Key, Serial};

/// Writes that happen together under one serial, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// What is written; a key appears at most once.
    pub writes: Vec<Write>,
    /// What else must hold: keys that are read, and not written.
    pub checks: Vec<(Key, Expected)>,
}

/// One key's part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What is written.
    pub key: Key,
    /// What must hold before.
    pub expected: Expected,
    /// The new body; none deletes the key.
    pub body: Option<Bytes>,
    /// The blobs that the new body needs; they are stored before the batch is committed.
    pub blobs: Vec<Digest>,
}

/// What must hold of a key for a batch to be written. A deleted key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing in particular.
    Anything,
    /// The key has no body.
    Absent,
    /// The key has a body, whichever.
    Present,
    /// The key was last written by this very commit (a deletion counts as a write);
    /// [`Serial::ZERO`]: it was never written.
    At(Serial),
}

/// A precondition that did not hold; nothing of the batch was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}, but this write expected it to be {expected}")]
pub struct Mismatch {
    /// The first key at fault.
    pub key: Key,
    /// What was expected of it.
    pub expected: Expected,
    /// How it is.
    pub found: Found,
}

/// How a key is, for [`Mismatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The commit that wrote it last; [`Serial::ZERO`] if none did.
    pub serial: Serial,
    /// Whether it has a body.
    pub is_present: bool,
}

impl Expected {
    /// Whether a key that is as `found` is as expected.
    pub fn holds(self, found: Found) -> bool {
        match self {
            Expected::Anything => true,
            Expected::Absent => !found.is_present,
            Expected::Present => found.is_present,
            Expected::At(serial) => found.serial == serial,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Anything => formatter.write_str("anything"),
            Expected::Absent => formatter.write_str("absent"),
            Expected::Present => formatter.write_str("present"),
            Expected::At(serial) => write!(formatter, "at serial {serial}"),
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.is_present { "present" } else { "absent" };
        write!(formatter, "{state} at serial {}", self.serial)
    }
}

impl Batch {
    /// A batch of nothing.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a write of `body` that expects `expected` and needs `blobs`.
    #[must_use]
    pub fn put(
        mut self,
        key: Key,
        expected: Expected,
        body: impl Into<Bytes>,
        blobs: Vec<Digest>,
    ) -> Batch {
        self.writes.push(Write { key, expected, body: Some(body.into()), blobs });
        self
    }

    /// Adds a deletion that expects `expected`.
    #[must_use]
    pub fn delete(mut self, key: Key, expected: Expected) -> Batch {
        self.writes.push(Write { key, expected, body: None, blobs: Vec::new() });
        self
    }

    /// Adds a condition on a key that is not written.
    #[must_use]
    pub fn check(mut self, key: Key, expected: Expected) -> Batch {
        self.checks.push((key, expected));
        self
    }

    /// The key that is written twice, if there is one: such a batch has no meaning.
    pub fn key_written_twice(&self) -> Option<&Key> {
        let mut keys: Vec<&Key> = self.writes.iter().map(|write| &write.key).collect();
        keys.sort_unstable();
        keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_of_a_key() {
        let never = Found { serial: Serial::ZERO, is_present: false };
        let deleted = Found { serial: Serial(4), is_present: false };
        let present = Found { serial: Serial(4), is_present: true };
        let outcomes = |expected: Expected| [never, deleted, present].map(|it| expected.holds(it));
        assert_eq!(outcomes(Expected::Anything), [true, true, true]);
        assert_eq!(outcomes(Expected::Absent), [true, true, false]);
        assert_eq!(outcomes(Expected::Present), [false, false, true]);
        assert_eq!(outcomes(Expected::At(Serial(4))), [false, true, true]);
        assert_eq!(outcomes(Expected::At(Serial::ZERO)), [true, false, false]);
    }

    #[test]
    fn a_key_written_twice_is_found() {
        let key = |text| Key::new(text).expect("a key");
        let batch = Batch::new()
            .put(key("b"), Expected::Anything, "1", Vec::new())
            .delete(key("a"), Expected::Anything);
        assert_eq!(batch.key_written_twice(), None);
        let batch = batch.put(key("b"), Expected::Absent, "2", Vec::new());
        assert_eq!(batch.key_written_twice(), Some(&key("b")));
    }
}
