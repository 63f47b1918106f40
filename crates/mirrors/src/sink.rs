//! [`Sink`]: writes and hashes the bytes of a file, which come from upstream, from the shared cache or from a directory.

use std::io;

use sha2::digest::DynDigest;

use super::disk::EntryWriter;

/// Bytes that are written and read at once.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// An unfinished entry, and the digests of what was written to it.
pub(super) struct Sink {
    pub(super) writing: EntryWriter,
    pub(super) sha256: record::Hasher,
    pub(super) extra: Option<Box<dyn DynDigest + Send>>,
}

impl Sink {
    /// How many of the `bytes` that have arrived to write now: none, or enough to fill whole pieces of the file. So the
    /// system's cache has the file in few large pieces, which take less work to send.
    pub(super) fn bytes_to_write(&self, bytes: usize) -> usize {
        let missing = PIECE_BYTES - (self.writing.file_bytes() % PIECE_BYTES as u64) as usize;
        bytes.checked_sub(missing).map_or(0, |rest| bytes - rest % PIECE_BYTES)
    }

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, HEAD_BYTES, Limits};

    #[test]
    fn writes_end_at_whole_pieces_of_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let limits =
            Limits { bytes_max: 8 << 20, free_bytes_min: 0, free_bytes: Box::new(|| None) };
        let disk = Arc::new(Disk::open(directory.path(), limits));
        let writing = disk.begin(0).expect("a disk");
        let mut sink = Sink { writing, sha256: record::Hasher::new(), extra: None };
        let first = PIECE_BYTES - HEAD_BYTES as usize;
        let cases = [
            (first - 1, 0),
            (first, first),
            (PIECE_BYTES - 1, 0),
            (3 * PIECE_BYTES + 7, 3 * PIECE_BYTES),
        ];
        for (arrived, written) in cases {
            assert_eq!(sink.bytes_to_write(arrived), written, "of {arrived}");
            sink = sink.append(&vec![0; written]).expect("a disk");
        }
    }
}
