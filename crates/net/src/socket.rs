//! The socket of a connection, of TCP or Unix, with or without TLS on top; and how it is left.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// Bytes that are read at once into hyper's buffers: the size of the first one; they grow with what comes at once.
pub(super) const READ_BYTES: usize = 8 << 10;

/// What a client has sent and nobody wants is still taken for this long, up to this many bytes, so that it reads its answer.
pub(super) const UNREAD_PATIENCE: Duration = Duration::from_secs(2);
pub(super) const UNREAD_BYTES_MAX: usize = 1 << 20;

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
    /// The TCP socket, if bytes go through it without TLS.
    pub(super) fn plain_tcp(&self) -> Option<&TcpStream> {
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
    pub(super) fn reset(self) {
        if let Stream::Tcp(stream) = self.socket() {
            // Best effort: without it the kernel keeps the unsent bytes for some minutes.
            let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Says `last_words` and closes, reading on for a moment: closing with unread bytes would reset the connection,
    /// and the client would lose the answer that it has not read yet.
    pub(super) async fn take_leave(mut self, last_words: &[u8]) {
        let farewell = async {
            self.write_all(last_words).await?;
            self.shutdown().await?;
            let mut bytes = 0;
            while bytes < UNREAD_BYTES_MAX {
                // On the stack for the moment of reading: many may be leaving.
                let read = poll_fn(|cx| {
                    let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
                    let mut buffer = ReadBuf::uninit(&mut space);
                    ready!(Pin::new(&mut self).poll_read(cx, &mut buffer))?;
                    Poll::Ready(io::Result::Ok(buffer.filled().len()))
                });
                match read.await? {
                    0 => break,
                    read => bytes += read,
                }
            }
            io::Result::Ok(())
        };
        // Best effort: a client that does not read to the end loses the rest.
        let _ = tokio::time::timeout(UNREAD_PATIENCE, farewell).await;
    }
}
