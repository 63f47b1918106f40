//! [`Sink`]: where the bytes of a file go, whether they come from upstream, from the shared cache or from a directory.

use std::io;

use sha2::digest::DynDigest;

use super::disk::Writing;

/// Bytes that are written and read at once.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// An entry that is being written, and the digests of what was written to it.
pub(super) struct Sink {
    pub(super) writing: Writing,
    pub(super) sha256: record::Hasher,
    pub(super) extra: Option<Box<dyn DynDigest + Send>>,
}

impl Sink {
    /// Writes and hashes these bytes. Blocks.
    pub(super) fn append(mut self, bytes: &[u8]) -> io::Result<Sink> {
        self.writing.append(bytes)?;
        self.sha256.update(bytes);
        if let Some(extra) = &mut self.extra {
            extra.update(bytes);
        }
        Ok(self)
    }
}
