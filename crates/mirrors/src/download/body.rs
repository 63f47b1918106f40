//! [`FileAnswer`]: the answer to a request for a file; and its [`Body`], read from the file on disk, which may still grow.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::watch;

use super::{DownloadState, Progress, lost};
use crate::disk::{EntryFile, HEAD_BYTES};
use crate::upstream::UpstreamError;

/// The answer for a place.
pub enum FileAnswer {
    /// There is no such file.
    Absent,
    /// Only upstream has the file, at this URL.
    Elsewhere(String),
    /// A file.
    File(MirroredFile),
}

/// A file of a mirror.
pub struct MirroredFile {
    /// Its SHA-256, if upstream names it or the file is on disk already.
    pub sha256: Option<String>,
    /// Its size in bytes; `None` until all of it has arrived.
    pub size_bytes: Option<u64>,
    /// Whether upstream names its digest, so that it never changes.
    pub is_immutable: bool,
    /// When it was uploaded, or arrived here.
    pub modified_at: SystemTime,
    /// Its bytes.
    pub body: Body,
}

/// The source of a file's bytes.
pub enum Body {
    /// The whole file on disk.
    Held(Arc<EntryFile>),
    /// A file that is being downloaded.
    Arriving(DownloadReader),
    /// The file is not downloaded: for HEAD, if upstream's page says everything.
    Unasked,
}

/// A download, as one reader sees it.
pub struct DownloadReader {
    pub(super) progress: watch::Receiver<Progress>,
}

impl DownloadReader {
    /// Waits until all bytes are there; their number, and their SHA-256.
    ///
    /// # Errors
    /// Why the download failed.
    pub async fn whole(&mut self) -> Result<(u64, String), UpstreamError> {
        let is_over =
            |it: &Progress| matches!(it.state, DownloadState::Whole(_) | DownloadState::Failed(_));
        let progress = self.progress.wait_for(is_over).await.map_err(|_| lost())?;
        match &progress.state {
            DownloadState::Failed(trouble) => Err(trouble.clone()),
            DownloadState::Whole(head) => Ok((head.size_bytes, head.sha256.clone())),
            DownloadState::Asking | DownloadState::Arriving => Err(lost()),
        }
    }

    /// Waits for bytes between `at` and `end` that may be sent; `None` at the end.
    async fn ready(
        &mut self,
        at: u64,
        end: Option<u64>,
    ) -> Result<Option<(Arc<EntryFile>, u64)>, UpstreamError> {
        let reached = |it: &Progress| match &it.state {
            DownloadState::Whole(_) => end.map_or(it.written, |end| end.min(it.written)),
            // The last byte is sent when the digest is known to be right.
            _ => {
                let last = it.total.unwrap_or(it.written).saturating_sub(1);
                let sent = it.written.min(last);
                end.map_or(sent, |end| end.min(sent))
            }
        };
        let is_over =
            |it: &Progress| matches!(it.state, DownloadState::Whole(_) | DownloadState::Failed(_));
        let progress = self.progress.wait_for(|it| is_over(it) || reached(it) > at).await;
        let progress = progress.map_err(|_| lost())?;
        if let DownloadState::Failed(trouble) = &progress.state {
            return Err(trouble.clone());
        }
        let (reached, file) = (reached(&progress), progress.file.clone());
        Ok(file.filter(|_| reached > at).map(|file| (file, reached)))
    }
}

impl Body {
    /// The file with these bytes, and their offset in it, if all of them are on disk.
    pub fn file_to_send(&self, range: &Range<u64>) -> Option<(Arc<EntryFile>, Range<u64>)> {
        let Body::Held(file) = self else { return None };
        Some((file.clone(), HEAD_BYTES + range.start..HEAD_BYTES + range.end))
    }

    /// The bytes from `start` up to, not including, `end`; without `end`, to the end of the file. Each piece has at most as many
    /// bytes as `piece_bytes` says when it is polled for.
    pub fn stream(
        self,
        start: u64,
        end: Option<u64>,
        piece_bytes: impl Fn() -> usize + Send + 'static,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let state = (self, start, piece_bytes);
        futures_util::stream::try_unfold(state, move |(mut body, at, piece_bytes)| async move {
            if end.is_some_and(|end| at >= end) {
                return Ok(None);
            }
            let ready = match &mut body {
                Body::Unasked => None,
                Body::Held(file) => Some((file.clone(), end.unwrap_or(u64::MAX))),
                Body::Arriving(arriving) => {
                    arriving.ready(at, end).await.map_err(io::Error::other)?
                }
            };
            let Some((file, until)) = ready else { return Ok(None) };
            let bytes = usize::try_from(until - at).unwrap_or(usize::MAX).min(piece_bytes());
            let reading = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; bytes];
                let read = file.read_at(&mut piece, HEAD_BYTES + at)?;
                piece.truncate(read);
                io::Result::Ok(Bytes::from(piece))
            });
            let piece = reading.await.map_err(io::Error::other)??;
            if piece.is_empty() {
                return Ok(None);
            }
            let next = at + piece.len() as u64;
            Ok(Some((piece, (body, next, piece_bytes))))
        })
    }
}

#[cfg(test)]
mod tests {
    use record::Digest;

    use super::*;
    use crate::disk::EntryHead;

    #[test]
    fn the_last_byte_waits_for_the_check() {
        let directory = tempfile::tempdir().expect("a directory");
        let limits = crate::disk::Limits {
            bytes_max: 1 << 20,
            free_bytes_min: 0,
            free_bytes: Box::new(|| None),
        };
        let disk = Arc::new(crate::disk::Disk::open(directory.path(), limits));
        let writing = disk.begin(10).expect("a disk");
        let (sender, progress) = watch::channel(Progress {
            file: Some(Arc::new(writing.reader().expect("a file"))),
            written: 10,
            total: Some(10),
            state: DownloadState::Arriving,
        });
        let mut arriving = DownloadReader { progress };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let reached = |arriving: &mut DownloadReader, at| {
            let ready = runtime.block_on(arriving.ready(at, Some(10)));
            ready.map(|ready| ready.map(|(_, until)| until))
        };
        assert_eq!(reached(&mut arriving, 0).expect("bytes"), Some(9));
        let sha256 = Digest::of(b"").to_string();
        let head = EntryHead { size_bytes: 10, sha256, ..EntryHead::default() };
        sender.send_modify(|it| it.state = DownloadState::Whole(head.into()));
        assert_eq!(reached(&mut arriving, 9).expect("bytes"), Some(10));
        sender.send_modify(|it| it.state = DownloadState::Failed(lost()));
        assert!(reached(&mut arriving, 9).is_err());
    }
}
