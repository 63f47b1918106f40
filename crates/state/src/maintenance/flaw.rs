//! Describes flaws of blobs in messages and reports.

use std::fmt;

use record::{Digest, Key};
use serde::Serializer;

pub(super) fn damaged(found: &Digest) -> String {
    format!("is damaged: its bytes have the digest {found}")
}

pub(super) fn wrong_size(found: u64, expected: u64) -> String {
    format!("has {found} bytes, but {expected} were expected")
}

/// `; named by …`, if anybody is known to.
pub(super) fn write_keys(formatter: &mut fmt::Formatter<'_>, keys: &[Key]) -> fmt::Result {
    for (number, key) in keys.iter().enumerate() {
        let before = if number == 0 { "; named by" } else { "," };
        write!(formatter, "{before} `{key}`")?;
    }
    Ok(())
}

pub(super) fn as_text<S: Serializer>(
    value: &impl fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(super) fn as_texts<S: Serializer>(
    values: &[impl fmt::Display],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}
