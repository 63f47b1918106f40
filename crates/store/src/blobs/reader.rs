//! [`BlobReader`]: the bytes of one blob, or ranges of them, in bounded memory.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;

use super::error::{BlobError, blocking};
use super::object::Objects;
use super::spool::CHUNK_BYTES;

/// Bytes as they are read; nothing follows an error.
pub type BlobStream = BoxStream<'static, Result<Bytes, BlobError>>;

/// One blob, opened. From a directory it can be read to its end even if it is swept meanwhile.
#[derive(Clone)]
pub struct BlobReader {
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
    pub(super) source: Source,
}

#[derive(Clone)]
pub(super) enum Source {
    /// A file, and its path for messages.
    File(Arc<File>, Arc<str>),
    Object(Arc<Objects>),
}

impl BlobReader {
    /// Its name.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The part of `range` that lies within the blob, in chunks of at most 256 KiB. One chunk is in
    /// memory at a time, and it is read when it is asked for. Several ranges can be read at once.
    ///
    /// The stream fails with [`BlobError::Cut`] if the blob turns out to be shorter than its size.
    pub fn read_range(&self, range: Range<u64>) -> BlobStream {
        let end = range.end.min(self.size_bytes);
        let range = range.start.min(end)..end;
        if range.is_empty() {
            return futures_util::stream::empty().boxed();
        }
        match &self.source {
            Source::File(file, place) => {
                let state = (Arc::clone(file), Arc::clone(place), range, self.size_bytes);
                futures_util::stream::try_unfold(state, next_chunk).boxed()
            }
            Source::Object(objects) => {
                Arc::clone(objects).read_range(self.digest, self.size_bytes, range)
            }
        }
    }

    /// All bytes.
    pub fn read(&self) -> BlobStream {
        self.read_range(0..self.size_bytes)
    }

    /// All bytes at once.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] if there are more than `bytes_max`: nothing was read.
    pub async fn bytes(&self, bytes_max: u64) -> Result<Bytes, BlobError> {
        let size = usize::try_from(self.size_bytes).ok().filter(|_| self.size_bytes <= bytes_max);
        let size = size.ok_or(BlobError::TooLarge { bytes_max })?;
        if let Source::File(file, place) = &self.source {
            let (file, place) = (Arc::clone(file), Arc::clone(place));
            return blocking(move || read_at(&file, &place, 0, size, size as u64)).await;
        }
        let chunks = self.read();
        let join = |mut all: BytesMut, chunk: Bytes| async move {
            all.extend_from_slice(&chunk);
            Ok(all)
        };
        Ok(chunks.try_fold(BytesMut::with_capacity(size), join).await?.freeze())
    }
}

type FileState = (Arc<File>, Arc<str>, Range<u64>, u64);

async fn next_chunk(state: FileState) -> Result<Option<(Bytes, FileState)>, BlobError> {
    let (file, place, range, size_bytes) = state;
    if range.is_empty() {
        return Ok(None);
    }
    blocking(move || {
        let length = (range.end - range.start).min(CHUNK_BYTES as u64) as usize;
        let chunk = read_at(&file, &place, range.start, length, size_bytes)?;
        let rest = range.start + chunk.len() as u64..range.end;
        Ok(Some((chunk, (file, place, rest, size_bytes))))
    })
    .await
}

/// Exactly `length` bytes from `offset` on.
fn read_at(
    file: &File,
    place: &str,
    offset: u64,
    length: usize,
    size_bytes: u64,
) -> Result<Bytes, BlobError> {
    let mut buffer = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => {
                let found = offset + filled as u64;
                return Err(BlobError::Cut {
                    place: place.to_owned(),
                    expected: size_bytes,
                    found,
                });
            }
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BlobError::io("read", place.as_ref(), error)),
        }
    }
    Ok(buffer.into())
}
