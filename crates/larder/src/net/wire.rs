//! The byte stream of one connection, plain or encrypted, that notes what passes through it.
//!
//! socket -> [`Stream`] -> TLS or not -> [`Wire`] -> hyper. The wire tells [`Progress`] about bytes and about waiting,
//! mends a request's target, and ends the stream when a request line does not. hyper's own refusals have no text, so
//! they are held back. When hyper lets go of the wire, it can be kept for a last word, such as a refusal with a text.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::progress::Progress;
use super::request_line::{RequestLine, Taken};
use super::sendfile::BodyFile;

/// An accepted socket.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Reads and writes through whichever of two streams an enum holds.
macro_rules! forward_io {
    ($Type:ident { $First:ident, $Second:ident }) => {
        impl AsyncRead for $Type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::$First(stream) => Pin::new(stream).poll_read(cx, buffer),
                    Self::$Second(stream) => Pin::new(stream).poll_read(cx, buffer),
                }
            }
        }

        impl AsyncWrite for $Type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::$First(stream) => Pin::new(stream).poll_write(cx, bytes),
                    Self::$Second(stream) => Pin::new(stream).poll_write(cx, bytes),
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::$First(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
                    Self::$Second(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    Self::$First(stream) => stream.is_write_vectored(),
                    Self::$Second(stream) => stream.is_write_vectored(),
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::$First(stream) => Pin::new(stream).poll_flush(cx),
                    Self::$Second(stream) => Pin::new(stream).poll_flush(cx),
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::$First(stream) => Pin::new(stream).poll_shutdown(cx),
                    Self::$Second(stream) => Pin::new(stream).poll_shutdown(cx),
                }
            }
        }
    };
}

forward_io!(Stream { Tcp, Unix });

/// A socket with or without TLS on top.
#[derive(Debug)]
pub(super) enum Layer {
    Plain(Stream),
    Tls(Box<TlsStream<Stream>>),
}

forward_io!(Layer { Plain, Tls });

impl Layer {
    /// The TCP socket that bytes go through as they are.
    fn plain_tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(Stream::Tcp(stream)) => Some(stream),
            _ => None,
        }
    }

    fn socket(&self) -> &Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Makes the kernel forget the connection at once, with whatever the client has not taken yet.
    fn reset(self) {
        if let Stream::Tcp(stream) = self.socket() {
            // Best effort: without it the kernel keeps the unsent bytes for some minutes.
            let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Says `last_words` and closes, reading on for a moment: closing with unread bytes would reset the connection,
    /// and the client would lose the answer that it has not read yet.
    pub(super) async fn take_leave(mut self, last_words: &[u8]) {
        const PATIENCE: Duration = Duration::from_secs(2);
        const UNREAD_BYTES_MAX: usize = 1 << 20;
        let farewell = async {
            self.write_all(last_words).await?;
            self.shutdown().await?;
            let mut buffer = vec![0; 16 * 1024];
            let mut bytes = 0;
            while bytes < UNREAD_BYTES_MAX {
                match self.read(&mut buffer).await? {
                    0 => break,
                    read => bytes += read,
                }
            }
            io::Result::Ok(())
        };
        // Best effort: whoever does not listen to the end has had their chance.
        let _ = tokio::time::timeout(PATIENCE, farewell).await;
    }
}

/// Where a wire is left when hyper lets go of it.
pub(super) type Parking = Arc<Mutex<Option<Layer>>>;

/// What hyper reads from and writes to.
#[derive(Debug)]
pub(super) struct Wire {
    /// Present until dropped.
    layer: Option<Layer>,
    progress: Arc<Progress>,
    parking: Parking,
    line: RequestLine,
    /// Bytes that were read and mended, and that hyper had no room for yet.
    mended: Vec<u8>,
    is_flush_blocked: bool,
    /// [`Progress::body_bytes_sent`] when everything was written that hyper had.
    body_bytes_flushed: u64,
    /// The body that is being written, if it has a file.
    file: Option<Arc<BodyFile>>,
}

impl Wire {
    pub(super) fn new(
        layer: Layer,
        progress: Arc<Progress>,
        parking: Parking,
        url_bytes_max: usize,
    ) -> Self {
        Self {
            layer: Some(layer),
            progress,
            parking,
            line: RequestLine::new(url_bytes_max),
            mended: Vec::new(),
            is_flush_blocked: false,
            body_bytes_flushed: 0,
            file: None,
        }
    }

    fn layer(&mut self) -> Pin<&mut Layer> {
        Pin::new(self.layer.as_mut().expect("the layer is there until the wire is dropped"))
    }

    /// Writes from the body's file; `None` if it has none, or nothing of that body is among these slices.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Option<Poll<io::Result<usize>>> {
        let announced = self.progress.take_file();
        let stream = self.layer.as_ref()?.plain_tcp()?;
        if announced.is_some() {
            self.file = announced;
        }
        let written = self.file.as_ref()?.poll_write(stream, cx, slices)?;
        Some(written.map_ok(|(bytes, is_at_end)| {
            if is_at_end {
                self.file = None;
            }
            bytes
        }))
    }

    /// Hands out what was mended, as far as there is room.
    fn read_mended(&mut self, buffer: &mut ReadBuf<'_>) {
        let bytes = self.mended.len().min(buffer.remaining());
        buffer.put_slice(&self.mended[..bytes]);
        self.mended.drain(..bytes);
        self.progress.record_read();
        if self.progress.is_within_body() {
            self.line.end_before_body();
        }
    }

    /// Whether hyper is about to refuse a head, in its way without a text: then its bytes are not written, and the
    /// connection's task refuses instead.
    fn holds_back(&self, bytes: &[u8]) -> bool {
        let Some(status) = status_of_refusal(bytes) else { return false };
        // The bytes of a body might look the same; there are none among what hyper has not written yet.
        let is_of_hyper = self.progress.body_bytes_sent() == self.body_bytes_flushed;
        if is_of_hyper {
            self.progress.refusal_status.store(status, Relaxed);
        }
        is_of_hyper
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(_)) => self.progress.record_write(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.progress.record_write_blocked(true),
        }
        written
    }

    fn flushed(&mut self, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if self.is_flush_blocked != flushed.is_pending() {
            self.is_flush_blocked = flushed.is_pending();
            self.progress.record_write_blocked(self.is_flush_blocked);
        }
        flushed
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(layer) = self.layer.take() else { return };
        if self.progress.is_cut.load(Relaxed) {
            layer.reset();
        } else if self.progress.keeps_wire.load(Relaxed) {
            *self.parking.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(layer);
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.mended.is_empty() {
            this.read_mended(buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(this.layer().poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            let is_first = this.progress.record_read();
            if this.progress.is_within_body() {
                this.line.end_before_body();
            } else if !this.progress.is_http2() {
                match this.line.take(read, is_first) {
                    Taken::AsTheyAre => {}
                    Taken::Mended(bytes) => {
                        buffer.set_filled(before);
                        this.mended = bytes;
                        this.read_mended(buffer);
                    }
                    Taken::TooLong => {
                        this.progress.is_url_too_long.store(true, Relaxed);
                        // hyper sees the end of the stream in the middle of a head, and says nothing about it.
                        buffer.set_filled(before);
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.holds_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = this.layer().poll_write(cx, bytes);
        this.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let [only] = slices
            && this.holds_back(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        let written = match this.poll_send_file(cx, slices) {
            Some(written) => written,
            None => this.layer().poll_write_vectored(cx, slices),
        };
        this.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.layer.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // hyper asks for it when all that it had is written.
        this.body_bytes_flushed = this.progress.body_bytes_sent();
        let flushed = this.layer().poll_flush(cx);
        this.flushed(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.progress.is_url_too_long.load(Relaxed) || this.progress.refusal().is_some() {
            // The answer is still to come, from the connection's task.
            return Poll::Ready(Ok(()));
        }
        let shut = this.layer().poll_shutdown(cx);
        this.flushed(shut)
    }
}

/// The status, if these bytes are all of an answer that hyper makes by itself: 4xx without a body, and no header but
/// those that it adds to every answer.
fn status_of_refusal(bytes: &[u8]) -> Option<u16> {
    const BYTES_MAX: usize = 200;
    if bytes.len() > BYTES_MAX || !bytes.starts_with(b"HTTP/1.1 4") {
        return None;
    }
    let mut lines = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?.split("\r\n");
    let status = lines.next()?.get(9..12)?.parse().ok()?;
    let mut is_empty = false;
    for line in lines {
        match line.split_once(':')? {
            ("content-length", " 0") => is_empty = true,
            ("connection" | "date", _) => {}
            _ => return None,
        }
    }
    is_empty.then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Option<u16>) {
        assert_eq!(status_of_refusal(answer.as_bytes()), expected, "{answer:?}");
    }

    #[test]
    fn refusals_of_hyper() {
        let date = "date: Sun, 22 Nov 2026 18:32:40 GMT";
        let refusal = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0";
        check(&format!("{refusal}\r\n{date}\r\n\r\n"), Some(400));
        check("HTTP/1.1 431 X\r\ncontent-length: 0\r\n\r\n", Some(431));
        check(&format!("{refusal}\r\ncontent-type: text/plain\r\n{date}\r\n\r\n"), None);
        check("HTTP/1.1 400 Bad Request\r\ncontent-length: 3\r\n\r\n", None);
        check("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nx", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None);
        check("HTTP/1.1 400 Bad Request\r\n\r\n", None);
    }
}
