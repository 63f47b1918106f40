//! The metadata of a release as a blob: JSON, no longer than readers of such blobs accept.

use bytes::Bytes;
use pypi::Metadata;

/// Bytes of such a blob at most. Answers read large ones one at a time.
pub const BYTES_MAX: u64 = 16 << 20;

/// The metadata is too long for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metadata of the release has {found} bytes as JSON: at most {BYTES_MAX} were expected")]
pub struct MetadataTooLong {
    found: usize,
}

/// The JSON to store as a blob.
///
/// # Errors
/// If it would have more than [`BYTES_MAX`].
pub fn blob(metadata: &Metadata) -> Result<Bytes, MetadataTooLong> {
    let json = serde_json::Value::Object(metadata.to_json()).to_string();
    match json.len() as u64 <= BYTES_MAX {
        true => Ok(json.into()),
        false => Err(MetadataTooLong { found: json.len() }),
    }
}
