//! [`Batch`]: the writes of one commit, and the conditions for it.

use bytes::Bytes;

use crate::{Digest, Key, Serial};

/// Writes that are committed together under one serial, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The writes; a key occurs at most once.
    pub writes: Vec<Write>,
    /// Further conditions: keys that were read and are not written.
    pub checks: Vec<(Key, Expected)>,
}

/// One key's part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key that is written.
    pub key: Key,
    /// The state that the key must have before.
    pub expected: Expected,
    /// The new body; `None` deletes the key.
    pub body: Option<Bytes>,
    /// The blobs that the new body needs; the caller stores them before it commits the batch.
    pub blobs: Vec<Digest>,
}

/// The state that a key must have for a batch to be written. A deleted key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any state.
    Anything,
    /// The key has no body.
    Absent,
    /// The key has a body, no matter which.
    Present,
    /// This commit was the last to write the key (a deletion counts as a write); with [`Serial::ZERO`], the key was
    /// never written.
    At(Serial),
}

/// A condition did not hold, and nothing of the batch was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}, but this write expected it to be {expected}")]
pub struct Mismatch {
    /// The first key whose condition did not hold.
    pub key: Key,
    /// The expected state.
    pub expected: Expected,
    /// The actual state.
    pub found: KeyState,
}

/// The actual state of a key, for [`Mismatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The commit that wrote it last; [`Serial::ZERO`] if it was never written.
    pub serial: Serial,
    /// Whether it has a body.
    pub is_present: bool,
}

impl Expected {
    /// Whether a key in the state `found` fulfils this condition.
    pub fn holds(self, found: KeyState) -> bool {
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

impl std::fmt::Display for KeyState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.is_present { "present" } else { "absent" };
        write!(formatter, "{state} at serial {}", self.serial)
    }
}

impl Batch {
    /// An empty batch.
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

    /// A key that is written twice, if there is one: such a batch is invalid.
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
    fn conditions_on_a_key() {
        let never = KeyState { serial: Serial::ZERO, is_present: false };
        let deleted = KeyState { serial: Serial(4), is_present: false };
        let present = KeyState { serial: Serial(4), is_present: true };
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
