//! Bodies that are parts of files on disk, sent by sendfile(2): the kernel sends them from its cache of the file, without
//! a copy in this process.
//!
//! A handler adds a [`FileRange`] to a response beside the body that reads the same bytes. Over plain HTTP/1.1 on TCP,
//! [`FileBody`] takes the body's place: it waits until the next piece of the file is in the system's cache, queues a
//! [`FilePart`], and gives hyper as many bytes of [`STAND_IN`]. The wire knows these bytes by their address and sends the
//! piece instead; any other bytes while a piece is queued are an error that closes the connection, so that a stand-in
//! never reaches a client. Over TLS, HTTP/2, Unix sockets and on other systems than Linux the body itself is sent.

use std::fmt;
use std::future::Future as _;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::sendfile;

/// hyper gets these bytes instead of a file's. They are never read, so they take no memory.
static STAND_IN: LazyLock<Bytes> = LazyLock::new(|| vec![0; PIECE_BYTES].into());

/// The most that is queued at once.
const PIECE_BYTES: usize = 2 << 20;

/// One question covers this many bytes: whether they are in the system's cache. A question takes about a microsecond, and one
/// for every 128 KiB was a tenth of the work of sending a file.
const PROBE_BYTES: usize = 512 << 10;

/// The most that is read at once into the system's cache. Many threads may do that, so their buffers are small.
const READ_BYTES: usize = 16 << 10;

/// The most that is copied at once where the system does not send files.
const COPY_BYTES: usize = 64 << 10;

/// An extension of a response: its body is these bytes of this file, which do not change while it is open. It is ignored unless
/// the response's `Content-Length` matches.
#[derive(Clone)]
pub struct FileRange {
    file: Arc<dyn AsFd + Send + Sync>,
    range: Range<u64>,
}

impl FileRange {
    /// The bytes `range` of `file`.
    pub fn new(file: Arc<dyn AsFd + Send + Sync>, range: Range<u64>) -> Self {
        Self { file, range }
    }

    /// Removes it from a response, if it counts there.
    pub(super) fn of<B>(response: &mut http::Response<B>) -> Option<Self> {
        let it = response.extensions_mut().remove::<Self>()?;
        let length = response.headers().get(http::header::CONTENT_LENGTH)?.to_str().ok()?;
        let bytes = it.range.end.checked_sub(it.range.start)?;
        (length.parse() == Ok(bytes)).then_some(it)
    }
}

impl fmt::Debug for FileRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("FileRange").field(&self.range).finish()
    }
}

/// The rest of a [`FileRange`] that is not queued yet.
pub(super) struct FileBody {
    rest: FileRange,
    /// Reads the next piece into the system's cache.
    reading: Option<JoinHandle<io::Result<()>>>,
}

impl FileBody {
    pub(super) fn new(rest: FileRange) -> Self {
        Self { rest, reading: None }
    }

    /// The next piece, as soon as sending it does not wait for the disk, and its stand-in.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<(FilePart, Bytes)>>> {
        let bytes = self.bytes_left().min(PIECE_BYTES as u64) as usize;
        if bytes == 0 {
            return Poll::Ready(None);
        }
        let at = self.rest.range.start;
        if self.reading.is_none() && !is_cached(self.rest.file.as_fd(), at, bytes) {
            let file = self.rest.file.clone();
            let reading = move || read_through(file.as_fd(), at, bytes);
            self.reading = Some(tokio::task::spawn_blocking(reading));
        }
        if let Some(reading) = &mut self.reading {
            let read = ready!(Pin::new(reading).poll(cx));
            self.reading = None;
            if let Err(error) = read.map_err(io::Error::other).flatten() {
                return Poll::Ready(Some(Err(error)));
            }
        }
        self.rest.range.start += bytes as u64;
        let piece = FilePart { file: self.rest.file.clone(), at, bytes, sent: 0 };
        Poll::Ready(Some(Ok((piece, STAND_IN.slice(..bytes)))))
    }

    pub(super) fn bytes_left(&self) -> u64 {
        self.rest.range.end.saturating_sub(self.rest.range.start)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.bytes_left() == 0
    }
}

/// A part of a file that the wire sends in place of a stand-in that hyper writes.
pub(super) struct FilePart {
    file: Arc<dyn AsFd + Send + Sync>,
    at: u64,
    bytes: usize,
    sent: usize,
}

impl fmt::Debug for FilePart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, bytes, sent, .. } = self;
        formatter
            .debug_struct("Piece")
            .field("at", at)
            .field("bytes", bytes)
            .field("sent", sent)
            .finish()
    }
}

impl FilePart {
    /// Writes `slices` up to the end of the piece's stand-in, or a part of them; returns how many bytes.
    pub(super) fn poll_write(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(before) = slices.iter().position(|slice| self.is_stand_in(slice)) else {
            return Poll::Ready(Err(io::Error::other("a stand-in was copied")));
        };
        let (at, bytes) = (self.at + self.sent as u64, self.bytes - self.sent);
        let file = self.file.as_fd();
        let written =
            match ready!(sendfile::poll_send(stream, cx, &slices[..before], file, at, bytes)) {
                Err(error) if sendfile::is_refusal(&error) => {
                    sendfile::note_refusal(&error);
                    let of_file = ready!(poll_copy(stream, cx, file, at, bytes))?;
                    sendfile::SentBytes { before: 0, of_file }
                }
                written => written?,
            };
        self.sent += written.of_file;
        Poll::Ready(Ok(written.before + written.of_file))
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.bytes
    }

    /// Whether `slice` is what hyper has left of the stand-in.
    fn is_stand_in(&self, slice: &[u8]) -> bool {
        slice.as_ptr().addr() == STAND_IN.as_ptr().addr() + self.sent
            && slice.len() == self.bytes - self.sent
    }
}

/// Reads some of these bytes and writes them, if the system does not send the file.
fn poll_copy(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    file: BorrowedFd<'_>,
    at: u64,
    bytes: usize,
) -> Poll<io::Result<usize>> {
    let mut buffer = vec![0; COPY_BYTES.min(bytes)];
    let read = rustix::io::pread(file, &mut buffer[..], at)?;
    if read == 0 {
        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
    }
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_write(&buffer[..read]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}

/// Whether a read of these bytes would not wait for the disk, judged by samples.
#[cfg(target_os = "linux")]
fn is_cached(file: BorrowedFd<'_>, at: u64, bytes: usize) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};

    let mut byte = [0];
    let ends = (0..bytes).step_by(PROBE_BYTES).chain([bytes - 1]);
    ends.into_iter().all(|from| {
        let buffers = &mut [io::IoSliceMut::new(&mut byte)];
        preadv2(file, buffers, at + from as u64, ReadWriteFlags::NOWAIT).is_ok()
    })
}

#[cfg(not(target_os = "linux"))]
fn is_cached(_: BorrowedFd<'_>, _: u64, _: usize) -> bool {
    false
}

/// Reads these bytes once, to bring them into the system's cache.
fn read_through(file: BorrowedFd<'_>, at: u64, bytes: usize) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES.min(bytes)];
    let mut read = 0;
    while read < bytes {
        let space = buffer.len().min(bytes - read);
        match rustix::io::pread(file, &mut buffer[..space], at + read as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    fn file_of(bytes: &[u8]) -> Arc<std::fs::File> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("a disk");
        Arc::new(file)
    }

    /// Two ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).await;
        (client.expect("a connection"), listener.accept().await.expect("a connection").0)
    }

    async fn only_piece(
        file: Arc<std::fs::File>,
        range: Range<u64>,
    ) -> io::Result<(FilePart, Bytes)> {
        let mut body = FileBody::new(FileRange::new(file, range));
        poll_fn(|cx| body.poll_piece(cx)).await.expect("a piece")
    }

    #[tokio::test]
    async fn a_piece_is_sent_in_place_of_its_stand_in() {
        let (mut client, stream) = pair().await;
        let (mut piece, stand_in) = only_piece(file_of(b"0123456789"), 2..7).await.expect("bytes");
        let mut sent = 0;
        while !piece.is_sent() {
            let slices = [io::IoSlice::new(&b"head"[sent.min(4)..]), io::IoSlice::new(&stand_in)];
            let slices = if sent < 4 { &slices[..] } else { &slices[1..] };
            sent += poll_fn(|cx| piece.poll_write(&stream, cx, slices)).await.expect("written");
        }
        drop(stream);
        let mut got = String::new();
        client.read_to_string(&mut got).await.expect("text");
        assert_eq!((sent, got.as_str()), (9, "head23456"));
    }

    #[tokio::test]
    async fn a_copy_of_a_stand_in_is_not_written() {
        let (mut client, stream) = pair().await;
        let (mut piece, stand_in) = only_piece(file_of(b"0123456789"), 0..10).await.expect("bytes");
        let copied = stand_in.to_vec();
        for slices in [&[io::IoSlice::new(&copied)], &[io::IoSlice::new(&stand_in[1..])]] {
            let written = poll_fn(|cx| piece.poll_write(&stream, cx, slices)).await;
            written.expect_err("bytes that are not the stand-in");
        }
        drop(stream);
        assert_eq!(client.read_to_end(&mut Vec::new()).await.expect("an end"), 0);
    }

    #[tokio::test]
    async fn where_files_are_not_sent_they_are_copied() {
        let (mut client, stream) = pair().await;
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let file = file_of(&bytes);
        let copying = async {
            let mut at = 0;
            while at < bytes.len() {
                let (rest, file) = (bytes.len() - at, file.as_fd());
                at += poll_fn(|cx| poll_copy(&stream, cx, file, at as u64, rest))
                    .await
                    .expect("copied");
            }
        };
        let mut got = vec![0; bytes.len()];
        let (_, read) = tokio::join!(copying, client.read_exact(&mut got));
        assert_eq!((read.expect("bytes"), got == bytes), (bytes.len(), true));
    }

    #[tokio::test]
    async fn a_file_that_is_cut_is_an_error() {
        let (_client, stream) = pair().await;
        let file = file_of(b"0123456789");
        let (mut piece, stand_in) = only_piece(file.clone(), 4..10).await.expect("bytes");
        file.set_len(4).expect("a disk");
        let slices = &[io::IoSlice::new(&stand_in)];
        let written = poll_fn(|cx| piece.poll_write(&stream, cx, slices)).await;
        assert_eq!(written.expect_err("no bytes").kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            read_through(file.as_fd(), 0, 5).expect_err("4 bytes").kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_range_counts_only_with_the_length_that_the_response_says() {
        for (length, counts) in
            [(Some("3"), true), (Some("4"), false), (Some("x"), false), (None, false)]
        {
            let mut response = http::Response::new(());
            response.extensions_mut().insert(FileRange::new(file_of(b"0123"), 1..4));
            if let Some(length) = length {
                response.headers_mut().insert("content-length", length.parse().expect("a value"));
            }
            assert_eq!(FileRange::of(&mut response).is_some(), counts, "{length:?}");
            assert!(response.extensions().is_empty());
        }
    }
}
