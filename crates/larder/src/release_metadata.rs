//! The metadata of a release as a blob: JSON, and no longer than whoever reads it back takes.

use bytes::Bytes;
use pypi::Metadata;

/// Most bytes of it. Sixteen are read at once for one answer.
pub const BYTES_MAX: u64 = 16 << 20;

/// Metadata that nobody could read back.
#[derive(Debug, thiserror::Error)]
#[error("the metadata of the release has {found} bytes as JSON: at most {BYTES_MAX} were expected")]
pub struct TooLong {
    found: usize,
}

/// The blob.
///
/// # Errors
/// If it would have more than [`BYTES_MAX`].
pub fn blob(metadata: &Metadata) -> Result<Bytes, TooLong> {
    let json = serde_json::Value::Object(metadata.to_json()).to_string();
    match json.len() as u64 <= BYTES_MAX {
        true => Ok(json.into()),
        false => Err(TooLong { found: json.len() }),
    }
}
