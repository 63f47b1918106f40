//! [`BlobReader`]: the bytes of one blob, or ranges of them, in bounded memory.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::{Digest, Hasher};

use super::BlobVerdict;
use super::damage::{DamageLog, Stamp};
use super::error::{BlobError, blocking};
use super::object::{BlobStream, Objects};
use super::spool::CHUNK_BYTES;

/// What the client of an object store keeps of an answer that is read slowly.
const OBJECT_BYTES_AHEAD: usize = 128 << 10;

/// One blob, opened. From a directory it can be read to its end even if it is swept meanwhile.
#[derive(Clone)]
pub struct BlobReader {
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
    pub(super) source: Source,
    pub(super) damage: Arc<DamageLog>,
}

#[derive(Clone)]
pub(super) enum Source {
    /// A file, its path for messages, and how it was when it was opened.
    File(Arc<File>, Arc<str>, Stamp),
    Object(Arc<Objects>),
}

impl BlobReader {
    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The part of `range` that is within the blob, in chunks of at most 256 KiB. One chunk is in memory at a time, and is read
    /// when the caller polls for it. Several ranges can be read at once.
    ///
    /// The stream fails with [`BlobError::Cut`] if the blob is shorter than its size. A stream of the whole blob fails with
    /// [`BlobError::Damaged`] before its last chunk if the digest is wrong, so that no reader takes the bytes for whole; a file
    /// that was whole before, and has not changed since, is not hashed again.
    pub fn read_range(&self, range: Range<u64>) -> BlobStream {
        self.read_range_by(range, || CHUNK_BYTES)
    }

    /// [`Self::read_range`], in chunks of a file that have at most as many bytes as `chunk_bytes` says when each is polled for.
    pub fn read_range_by(
        &self,
        range: Range<u64>,
        chunk_bytes: impl Fn() -> usize + Send + 'static,
    ) -> BlobStream {
        let end = range.end.min(self.size_bytes);
        let range = range.start.min(end)..end;
        if range.is_empty() {
            return futures_util::stream::empty().boxed();
        }
        let is_whole = range == (0..self.size_bytes);
        match &self.source {
            Source::File(file, place, stamp) => {
                let is_checked = is_whole && !self.damage.is_whole(&self.digest, *stamp);
                let state = FileState {
                    file: Arc::clone(file),
                    place: Arc::clone(place),
                    rest: range,
                    size_bytes: self.size_bytes,
                    chunk_bytes,
                    check: is_checked.then(|| (Hasher::new(), self.clone())),
                };
                futures_util::stream::try_unfold(state, next_chunk).boxed()
            }
            Source::Object(objects) => {
                let chunks = Arc::clone(objects).read_range(self.digest, self.size_bytes, range);
                match is_whole {
                    true => self.clone().checked(chunks),
                    false => chunks,
                }
            }
        }
    }

    /// Bytes that a stream of it keeps besides its chunk, because the network delivers more.
    pub fn bytes_ahead(&self) -> usize {
        match &self.source {
            Source::File(..) => 0,
            Source::Object(_) => OBJECT_BYTES_AHEAD,
        }
    }

    /// The blob's file, if [`Self::read_range`] with this range would read nothing but that file, and hash nothing: so
    /// that the system can send it.
    pub fn file_to_send(&self, range: &Range<u64>) -> Option<Arc<File>> {
        let Source::File(file, _, stamp) = &self.source else { return None };
        let is_whole = *range == (0..self.size_bytes);
        let is_right = !is_whole || self.damage.is_whole(&self.digest, *stamp);
        (is_right && range.end <= self.size_bytes).then(|| Arc::clone(file))
    }

    /// `chunks`, which are the whole blob; the last one only if the digest of all is right. They come from the network and are
    /// small enough to be hashed on this thread.
    fn checked(self, chunks: BlobStream) -> BlobStream {
        let state = (chunks, Some(Hasher::new()), self.size_bytes);
        futures_util::stream::try_unfold(state, move |(mut chunks, hasher, left)| {
            let reader = self.clone();
            async move {
                let Some(chunk) = chunks.try_next().await? else { return Ok(None) };
                let Some(mut hasher) = hasher else { return Ok(None) };
                hasher.update(&chunk);
                let left = left.saturating_sub(chunk.len() as u64);
                if left > 0 {
                    return Ok(Some((chunk, (chunks, Some(hasher), left))));
                }
                reader.judge(hasher.finish())?;
                Ok(Some((chunk, (chunks, None, 0))))
            }
        })
        .boxed()
    }

    /// Compares the digest of the whole blob, and notes the verdict.
    fn judge(&self, found: Digest) -> Result<(), BlobError> {
        if found == self.digest {
            match &self.source {
                Source::File(_, _, stamp) => self.damage.note_whole(found, *stamp),
                Source::Object(_) => self.damage.note(found, BlobVerdict::Whole),
            }
            return Ok(());
        }
        self.damage.note(self.digest, BlobVerdict::Damaged { found });
        let place = match &self.source {
            Source::File(_, place, _) => place.to_string(),
            Source::Object(objects) => objects.place_of(&self.digest),
        };
        Err(BlobError::Damaged { place, expected: self.digest, found })
    }

    /// Checks the digest of a blob without bytes, which has no last chunk to hold back.
    pub(super) fn check_empty(self) -> Result<BlobReader, BlobError> {
        match self.size_bytes {
            0 => self.judge(Digest::of(b"")).map(|()| self),
            _ => Ok(self),
        }
    }

    /// All bytes.
    pub fn read(&self) -> BlobStream {
        self.read_range(0..self.size_bytes)
    }

    /// The first bytes, at most `bytes_max`, read on this thread if it is a file, and else none. A whole blob is compared with its
    /// digest, as by [`Self::read_range`].
    pub(super) fn beginning_of_file(&self, bytes_max: usize) -> Result<Bytes, BlobError> {
        let Source::File(file, place, stamp) = &self.source else { return Ok(Bytes::new()) };
        let size = usize::try_from(self.size_bytes).unwrap_or(usize::MAX).min(bytes_max);
        let bytes = read_at(file, place, 0, size, self.size_bytes)?;
        let is_whole = bytes.len() as u64 == self.size_bytes;
        if is_whole && !self.damage.is_whole(&self.digest, *stamp) {
            self.judge(Digest::of(&bytes))?;
        }
        Ok(bytes)
    }

    /// All bytes at once, compared with the digest.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] if there are more than `bytes_max`: nothing was read. [`BlobError::Damaged`].
    pub async fn bytes(&self, bytes_max: u64) -> Result<Bytes, BlobError> {
        let size = usize::try_from(self.size_bytes).ok().filter(|_| self.size_bytes <= bytes_max);
        let size = size.ok_or(BlobError::TooLarge { bytes_max })?;
        if let Source::File(file, place, _) = &self.source {
            let (file, place, reader) = (Arc::clone(file), Arc::clone(place), self.clone());
            return blocking(move || {
                let bytes = read_at(&file, &place, 0, size, size as u64)?;
                reader.judge(Digest::of(&bytes))?;
                Ok(bytes)
            })
            .await;
        }
        let chunks = self.read();
        let join = |mut all: BytesMut, chunk: Bytes| async move {
            all.extend_from_slice(&chunk);
            Ok(all)
        };
        Ok(chunks.try_fold(BytesMut::with_capacity(size), join).await?.freeze())
    }
}

/// A file that is being read.
struct FileState<F> {
    file: Arc<File>,
    place: Arc<str>,
    rest: Range<u64>,
    size_bytes: u64,
    /// The most that may be read next.
    chunk_bytes: F,
    /// The hasher, if the digest is to be checked.
    check: Option<(Hasher, BlobReader)>,
}

async fn next_chunk<F: Fn() -> usize + Send + 'static>(
    mut state: FileState<F>,
) -> Result<Option<(Bytes, FileState<F>)>, BlobError> {
    if state.rest.is_empty() {
        return Ok(None);
    }
    let bytes_max = (state.chunk_bytes)().clamp(1, CHUNK_BYTES) as u64;
    blocking(move || {
        let length = (state.rest.end - state.rest.start).min(bytes_max) as usize;
        let (start, size_bytes) = (state.rest.start, state.size_bytes);
        let chunk = read_at(&state.file, &state.place, start, length, size_bytes)?;
        state.rest.start += chunk.len() as u64;
        if let Some((hasher, _)) = &mut state.check {
            hasher.update(&chunk);
        }
        if state.rest.is_empty()
            && let Some((hasher, reader)) = state.check.take()
        {
            reader.judge(hasher.finish())?;
        }
        Ok(Some((chunk, state)))
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
