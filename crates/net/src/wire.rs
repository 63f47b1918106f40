//! The byte stream of one connection, plain or encrypted, that notes what passes through it.
//!
//! socket -> [`Layer`]: TLS or not -> [`Wire`] -> hyper. The wire tells [`Progress`] about bytes and waiting, takes room for
//! what hyper keeps of the bytes, mends a request's target, and ends the stream if a request line is too long or there is no
//! room. hyper's own refusals have no text, so they are held back. When hyper drops the wire, it can be kept for a last answer,
//! such as a refusal with a text.
//!
//! Over HTTP/2, the library flushes after each answer, although it has ten of them in one turn of the connection. There the wire
//! gathers what is written, and [`SharedWire::poll_send`] sends it at the end of the turn, or as soon as it fills a TLS record.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frames, PIECE_BYTES, PREFACE};
use super::progress::Progress;
use super::request_line::{LineOutcome, RequestLine};
use super::room::{self, ConnectionRoom, HeldMemory, NoRoom};
use super::socket::{Layer, READ_BYTES};

/// Read at once while hyper keeps nothing for the connection.
const WAKING_BYTES: usize = 4 << 10;

/// After this many bytes of a body, hyper chooses how much it reads at once: up to the size of a head.
const LARGE_BODY_BYTES: u64 = 256 << 10;

/// Unread bytes of all bodies of an HTTP/2 connection: a client may send this much before a handler reads any.
pub(super) const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;

/// Bytes that an HTTP/2 connection gathers before it sends them: those of the largest TLS record.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// Refusals for lack of memory that an HTTP/2 client may leave unread; with more, its connection ends.
const REFUSALS_UNREAD_MAX: u32 = 8;

/// Memory of a header field at most, for each byte on the wire: HTTP/2 names known fields by number.
const FIELD_GROWTH: usize = 100;

/// Memory of all fields of one header block at most, since their count and sizes are bounded.
const BLOCK_BYTES_MAX: usize = 256 << 10;

const LAYER: &str = "the layer is there until the wire is dropped";

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// Where the wire is left when hyper drops it.
pub(super) type Parking = Arc<Mutex<Option<Layer>>>;

/// The stream that hyper reads from and writes to.
#[derive(Debug)]
pub(super) struct Wire {
    /// Present until dropped.
    layer: Option<Layer>,
    progress: Arc<Progress>,
    parking: Parking,
    line: RequestLine,
    /// The connection's share of the process's memory.
    share: Arc<ConnectionRoom>,
    /// Bytes that were read before hyper was there.
    unread: Vec<u8>,
    /// Bytes that were read and mended, and that hyper had no room for yet.
    mended: Vec<u8>,
    /// Bytes of heads that hyper may have: since the last time that no request was open.
    head_bytes: usize,
    /// Bytes of the last read.
    last_bytes: usize,
    /// Bytes of bodies before the one that is being read.
    earlier_body_bytes: u64,
    /// Room for hyper's larger buffers, while a body is read in large pieces.
    large_reads: Option<HeldMemory>,
    /// For HTTP/2.
    frames: Option<Box<Frames>>,
    /// Bytes and pieces of data that hyper has let go of without a handler.
    lost_data: (u64, u64),
    /// What was written over HTTP/2 and is not sent yet.
    gathered: Vec<u8>,
    /// Nothing has been written since the library asked for a flush: it has nothing left.
    is_all_gathered: bool,
    /// The memory of `gathered`, while the client does not take it.
    gathered_room: Option<HeldMemory>,
    /// Why `gathered` could not be sent; the next read ends with it.
    send_error: Option<io::Error>,
    is_flush_blocked: bool,
    /// [`Progress::body_bytes_sent`] when everything was written that hyper had.
    body_bytes_flushed: u64,
}

impl Wire {
    pub(super) fn new(
        layer: Layer,
        progress: Arc<Progress>,
        parking: Parking,
        share: Arc<ConnectionRoom>,
        url_bytes_max: usize,
    ) -> Self {
        progress.is_plain_tcp.store(layer.plain_tcp().is_some(), Relaxed);
        Self {
            layer: Some(layer),
            progress,
            parking,
            line: RequestLine::new(url_bytes_max),
            share,
            unread: Vec::new(),
            mended: Vec::new(),
            head_bytes: 0,
            last_bytes: 0,
            earlier_body_bytes: 0,
            large_reads: None,
            frames: None,
            lost_data: (0, 0),
            gathered: Vec::new(),
            is_all_gathered: false,
            gathered_room: None,
            send_error: None,
            is_flush_blocked: false,
            body_bytes_flushed: 0,
        }
    }

    fn layer(&mut self) -> Pin<&mut Layer> {
        Pin::new(self.layer.as_mut().expect(LAYER))
    }

    /// Waits for the first bytes of a request, while hyper keeps nothing; then which HTTP it is, unless the client is gone.
    pub(super) fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Version>>> {
        loop {
            if !self.mended.is_empty() {
                return Poll::Ready(Ok(Some(Version::Http1)));
            }
            if !self.unread.is_empty() {
                let is_preface = !self.progress.has_started() && self.unread.starts_with(PREFACE);
                if is_preface {
                    self.frames = Some(Box::default());
                    return Poll::Ready(Ok(Some(Version::Http2)));
                }
                if self.progress.has_started() || !PREFACE.starts_with(&self.unread) {
                    return Poll::Ready(Ok(Some(Version::Http1)));
                }
            }
            let mut space = [const { MaybeUninit::uninit() }; WAKING_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(self.layer().poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(None));
            }
            self.unread.extend_from_slice(buffer.filled());
        }
    }

    /// Prepares the wire for the next request: hyper dropped it, and had read `unread` already.
    pub(super) fn rest(&mut self, unread: &[u8]) {
        self.unread.splice(..0, unread.iter().copied());
        (self.head_bytes, self.last_bytes) = (0, 0);
        self.large_reads = None;
    }

    /// Whether HTTP/2 is spoken.
    pub(super) fn is_http2(&self) -> bool {
        self.frames.is_some()
    }

    /// Gives up the socket, for a last word.
    pub(super) fn into_layer(mut self) -> Option<Layer> {
        self.layer.take()
    }

    /// Takes room for bytes of heads. hyper keeps them until the requests are over, in buffers that grow by doubling.
    fn count_head(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.head_bytes + bytes > room::LITTLE_READ_BYTES
            && !self.progress.has_open_request()
            && !self.progress.has_partial_head()
        {
            // The last read may contain the start of this head.
            self.head_bytes = self.last_bytes;
            self.large_reads = None;
            // Less is never refused.
            let _ = self.share.set_read(0);
        }
        self.head_bytes += bytes;
        self.last_bytes = bytes;
        if self.head_bytes <= room::LITTLE_READ_BYTES {
            return Ok(());
        }
        self.share.press();
        self.share.set_read(2 * self.head_bytes)
    }

    /// Takes room for large pieces, once a body is known to be large; without room its pieces stay small.
    fn count_body(&mut self) {
        if self.large_reads.is_none()
            && self.progress.body_received().0 - self.earlier_body_bytes > LARGE_BODY_BYTES
        {
            self.large_reads = self.share.hold(room::LARGE_READS_BYTES).ok();
            self.share.press();
            self.earlier_body_bytes = self.progress.body_received().0;
        }
    }

    /// Takes room for what hyper keeps of the frames so far.
    fn count_frames(&mut self) -> Result<(), NoRoom> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        if self.progress.refusals_unread() > REFUSALS_UNREAD_MAX {
            return Err(NoRoom);
        }
        let blocks = frames.take_block_bytes();
        if blocks > 0 {
            self.progress.block_bytes.fetch_add(blocks, Relaxed);
        }
        let ((bytes, pieces), (taken_bytes, taken_pieces)) =
            (frames.data(), self.progress.body_received());
        let (lost_bytes, lost_pieces) = self.lost_data;
        let kept_bytes = bytes.saturating_sub(taken_bytes + lost_bytes);
        let kept_pieces = pieces.saturating_sub(taken_pieces + lost_pieces);
        if kept_pieces > 0 && !self.progress.has_open_request() {
            self.lost_data = (bytes - taken_bytes.min(bytes), pieces - taken_pieces.min(pieces));
            return self.share.set_read(0);
        }
        // hyper silently drops data that no handler reads; the client's window bounds how much there can be.
        let data =
            kept_bytes.min(u64::from(HTTP2_CONNECTION_WINDOW_BYTES)) + kept_pieces * PIECE_BYTES;
        let block = (frames.open_block_bytes() * FIELD_GROWTH).min(BLOCK_BYTES_MAX);
        let kept = 2 * (data as usize + frames.partial_bytes()) + block;
        self.share.set_read(if kept > room::LITTLE_READ_BYTES { kept } else { 0 })
    }

    /// Reads from the socket, or what was read before.
    fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let bytes = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread[..bytes]);
            self.unread.drain(..bytes);
            if self.unread.is_empty() {
                self.unread = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        if buffer.remaining() <= READ_BYTES || self.large_reads.is_some() || self.frames.is_some() {
            return self.layer().poll_read(cx, buffer);
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut piece = ReadBuf::uninit(&mut space);
        ready!(self.layer().poll_read(cx, &mut piece))?;
        buffer.put_slice(piece.filled());
        Poll::Ready(Ok(()))
    }

    /// Writes from a file on disk, in place of its stand-in.
    fn poll_send_piece(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(stream) = self.layer.as_ref().and_then(Layer::plain_tcp) else {
            return Poll::Ready(Err(io::Error::other("a file is sent over TCP only")));
        };
        self.progress.write_piece(|piece| piece.poll_write(stream, cx, slices))
    }

    /// Takes as much of what hyper writes over HTTP/2 as there is room for.
    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.gathered.len() == GATHERED_BYTES_MAX {
            ready!(self.poll_send_gathered(cx))?;
        }
        self.gathered.reserve_exact(GATHERED_BYTES_MAX - self.gathered.len());
        self.is_all_gathered = false;
        let before = self.gathered.len();
        for slice in slices {
            let bytes = slice.len().min(GATHERED_BYTES_MAX - self.gathered.len());
            self.gathered.extend_from_slice(&slice[..bytes]);
        }
        Poll::Ready(Ok(self.gathered.len() - before))
    }

    fn poll_send_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let layer = self.layer.as_mut().expect(LAYER);
            let written = Pin::new(layer).poll_write(cx, &self.gathered);
            let bytes = ready!(self.wrote(written))?;
            if bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.drain(..bytes);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what was gathered in this turn.
    fn poll_end_turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_gathered(cx))?;
        self.gathered = Vec::new();
        self.gathered_room = None;
        if self.is_all_gathered {
            self.share.record_written();
        }
        let flushed = self.layer().poll_flush(cx);
        self.flushed(flushed)
    }

    /// Hands out mended bytes, as far as there is room.
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
        // A body might have the same bytes; but then hyper would have unwritten body bytes.
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
        if let Some(error) = this.send_error.take() {
            return Poll::Ready(Err(error));
        }
        if !this.mended.is_empty() {
            this.read_mended(buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(this.poll_bytes(cx, buffer))?;
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            if let Some(frames) = &mut this.frames {
                frames.take(read);
                this.progress.record_read();
                return Poll::Ready(
                    this.count_frames()
                        .map_err(|NoRoom| io::Error::other("the memory for connections is taken")),
                );
            }
            let is_within_body = this.progress.is_within_body();
            let has_room = is_within_body || this.count_head(read.len()).is_ok();
            let is_first = this.progress.record_read();
            if is_within_body {
                this.count_body();
                this.line.end_before_body();
            } else if !has_room && !this.progress.has_open_request() {
                this.progress.is_out_of_room.store(true, Relaxed);
                // Ends the stream, as for a line that is too long.
                buffer.set_filled(before);
            } else {
                match this.line.take(read, is_first) {
                    LineOutcome::AsTheyAre => {}
                    LineOutcome::Mended(bytes) => {
                        buffer.set_filled(before);
                        this.mended = bytes;
                        this.read_mended(buffer);
                    }
                    LineOutcome::TooLong => {
                        this.progress.is_url_too_long.store(true, Relaxed);
                        this.progress.is_head.store(this.line.is_head(), Relaxed);
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
        if this.is_http2() {
            return this.poll_gather(cx, &[io::IoSlice::new(bytes)]);
        }
        if this.holds_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = match this.progress.has_pieces() {
            true => this.poll_send_piece(cx, &[io::IoSlice::new(bytes)]),
            false => this.layer().poll_write(cx, bytes),
        };
        this.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_http2() {
            return this.poll_gather(cx, slices);
        }
        if let [only] = slices
            && this.holds_back(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        let written = match this.progress.has_pieces() {
            true => this.poll_send_piece(cx, slices),
            false => this.layer().poll_write_vectored(cx, slices),
        };
        this.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.layer.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_http2() {
            this.is_all_gathered = true;
            return Poll::Ready(Ok(()));
        }
        // hyper asks for it when all that it had is written.
        this.body_bytes_flushed = this.progress.body_bytes_sent();
        this.share.record_written();
        let flushed = this.layer().poll_flush(cx);
        this.flushed(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.progress.is_url_too_long.load(Relaxed)
            || this.progress.is_out_of_room.load(Relaxed)
            || this.progress.refusal().is_some()
        {
            // The connection's task still has to send the answer.
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_send_gathered(cx))?;
        let shut = this.layer().poll_shutdown(cx);
        this.flushed(shut)
    }
}

/// A wire over which HTTP/2 is spoken: one for the library, and one for the connection's task, which says when to send.
#[derive(Clone, Debug)]
pub(super) struct SharedWire(Arc<Mutex<Wire>>);

impl SharedWire {
    pub(super) fn new(wire: Wire) -> SharedWire {
        SharedWire(Arc::new(Mutex::new(wire)))
    }

    fn lock(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what was written since the last call. To be called each time after the connection was polled.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) {
        let mut wire = self.lock();
        match wire.poll_end_turn(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Pending if wire.gathered_room.is_some() => {}
            Poll::Pending => wire.gathered_room = Some(wire.share.hold_made(GATHERED_BYTES_MAX)),
            Poll::Ready(Err(error)) => {
                wire.gathered = Vec::new();
                wire.send_error = Some(error);
                cx.waker().wake_by_ref();
            }
        }
    }
}

impl AsyncRead for SharedWire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SharedWire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_shutdown(cx)
    }
}

/// The status, if these bytes are all of an answer that hyper itself makes: 4xx without a body, and only the headers that it
/// adds to every answer.
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
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;
    use crate::room::Room;
    use crate::socket::Stream;

    #[track_caller]
    fn check(answer: &str, expected: Option<u16>) {
        assert_eq!(status_of_refusal(answer.as_bytes()), expected, "{answer:?}");
    }

    /// A wire over which HTTP/2 is spoken, and the client's end.
    fn shared_wire() -> (SharedWire, UnixStream) {
        let refused = prometheus::IntCounter::new("refused", "refused").unwrap();
        let gauge = prometheus::IntGauge::new("taken", "taken").unwrap();
        let share = Room::new(1 << 20, gauge, refused).share(None);
        let (socket, client) = UnixStream::pair().unwrap();
        let layer = Layer::Plain(Stream::Unix(socket));
        let mut wire = Wire::new(layer, Arc::default(), Parking::default(), share, 1_000);
        wire.frames = Some(Box::default());
        (SharedWire::new(wire), client)
    }

    async fn end_turn(wire: &SharedWire) {
        poll_fn(|cx| {
            wire.poll_send(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// What arrives at the client at once.
    fn received(client: &UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let read = client.try_read(&mut bytes).unwrap_or_default();
        bytes.truncate(read);
        bytes
    }

    #[tokio::test]
    async fn answers_of_one_turn_are_sent_at_once() {
        let (mut wire, client) = shared_wire();
        client.writable().await.unwrap();
        for answer in ["first ", "second ", "third"] {
            wire.write_all(answer.as_bytes()).await.unwrap();
            wire.flush().await.unwrap();
        }
        assert_eq!(received(&client), b"");
        end_turn(&wire).await;
        client.readable().await.unwrap();
        assert_eq!(received(&client), b"first second third");
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_holds_up_one_record() {
        let (wire, mut client) = shared_wire();
        let answer: Vec<u8> = (0..u16::MAX).flat_map(u16::to_be_bytes).collect();
        let mut sent = Vec::new();
        // Until the system's buffers are full as well.
        poll_fn(|cx| {
            loop {
                let (_, left) = answer.split_at(sent.len() % answer.len());
                match Pin::new(&mut wire.clone()).poll_write(cx, left) {
                    Poll::Ready(taken) => sent.extend_from_slice(&left[..taken.unwrap()]),
                    Poll::Pending => return Poll::Ready(()),
                }
                assert!(wire.lock().gathered.len() <= GATHERED_BYTES_MAX);
            }
        })
        .await;
        end_turn(&wire).await;
        assert!(wire.lock().gathered_room.is_some());
        let mut taken = vec![0; sent.len()];
        let sending = poll_fn(|cx| {
            wire.poll_send(cx);
            if wire.lock().gathered.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::join!(sending, async { client.read_exact(&mut taken).await.unwrap() });
        assert!(taken == sent);
        assert!(wire.lock().gathered_room.is_none());
    }

    #[tokio::test]
    async fn a_client_that_is_gone_ends_the_reading() {
        let (mut wire, client) = shared_wire();
        drop(client);
        wire.write_all(b"an answer").await.unwrap();
        end_turn(&wire).await;
        let error = wire.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
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
