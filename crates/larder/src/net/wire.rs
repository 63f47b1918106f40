//! The byte stream of one connection, plain or encrypted, that notes what passes through it.
//!
//! socket -> [`Stream`] -> TLS or not -> [`Wire`] -> hyper. The wire tells [`Progress`] about bytes and about waiting,
//! and ends the stream when a request line does not. When hyper lets go of it, it can be kept for a last word.

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
use super::sendfile::BodyFile;

/// What a request line holds beside the URL: the method and the version, generously.
const LINE_BYTES_BESIDE_URL: usize = 64;

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
    is_flush_blocked: bool,
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
        let line = RequestLine {
            bytes: 0,
            bytes_max: url_bytes_max + LINE_BYTES_BESIDE_URL,
            is_open: true,
            is_before_head: true,
        };
        Self { layer: Some(layer), progress, parking, line, is_flush_blocked: false, file: None }
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
        let before = buffer.filled().len();
        ready!(this.layer().poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            let is_first = this.progress.record_read();
            if this.progress.is_within_body() {
                // The next line begins with the next request.
                this.line.is_before_head = true;
            } else if this.line.is_too_long(read, is_first) && !this.progress.is_http2() {
                this.progress.is_url_too_long.store(true, Relaxed);
                // hyper sees the end of the stream in the middle of a head, and says nothing about it.
                buffer.set_filled(before);
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
        let written = this.layer().poll_write(cx, bytes);
        this.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
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
        let flushed = this.layer().poll_flush(cx);
        this.flushed(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.progress.is_url_too_long.load(Relaxed) {
            // The answer is still to come, from the connection's task.
            return Poll::Ready(Ok(()));
        }
        let shut = this.layer().poll_shutdown(cx);
        this.flushed(shut)
    }
}

/// Watches for a request line that is longer than any we would answer, before hyper's buffer is full of it.
#[derive(Debug)]
struct RequestLine {
    bytes: usize,
    bytes_max: usize,
    is_open: bool,
    /// No byte of a head has come since the last body.
    is_before_head: bool,
}

impl RequestLine {
    /// Takes note of bytes of a head, the first ones or further ones.
    fn is_too_long(&mut self, read: &[u8], is_first: bool) -> bool {
        if is_first || self.is_before_head {
            *self = Self { bytes: 0, is_open: true, is_before_head: false, ..*self };
        }
        if self.is_open {
            self.is_open = !read.contains(&b'\n');
            self.bytes += read.len();
        }
        self.is_open && self.bytes > self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reads: &[(&str, bool)], verdicts: &[bool]) {
        let mut line = RequestLine { bytes: 0, bytes_max: 8, is_open: true, is_before_head: true };
        let found: Vec<bool> = reads
            .iter()
            .map(|(read, is_first)| line.is_too_long(read.as_bytes(), *is_first))
            .collect();
        assert_eq!(found, verdicts);
    }

    #[test]
    fn only_lines_without_an_end_are_too_long() {
        check(&[("12345678", true), ("9", false)], &[false, true]);
        check(&[("123456789\r\n", true), ("headers without bound", false)], &[false, false]);
        check(&[("1234\n", true), ("123456789", true)], &[false, true]);
        check(&[("12345", true), ("12345", true), ("1234", false)], &[false, false, true]);
    }
}
