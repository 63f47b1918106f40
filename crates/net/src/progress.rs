//! The progress of a connection.
//!
//! The connection's task counts bytes and requests into [`Progress`] as they pass; the sweep of the listener reads it, see
//! [`super::timeouts`].

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use super::disk_file::FilePart;
use super::room::ConnectionRoom;

/// The progress of one connection. Its tasks write it, the sweep reads it; no field depends on another.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Requests whose head is complete. Only the connection's own task writes it.
    started: AtomicU64,
    /// Handlers that have not returned a response yet.
    handlers: AtomicU32,
    /// Responses that hyper still draws from.
    responses: AtomicU32,
    /// The `responses` that wait for us, not for the client.
    responses_not_ready: AtomicU32,
    /// Request bodies that a handler is waiting for.
    bodies_awaited: AtomicU32,
    /// Request bodies that have not ended.
    bodies_open: AtomicU32,
    /// Refusals for lack of memory that the client has not taken, over HTTP/2.
    refusals_unread: AtomicU32,
    /// Bytes of request bodies that have arrived, and the pieces that they came in.
    body_bytes_received: AtomicU64,
    body_pieces_received: AtomicU64,
    /// Bytes of HTTP/2 header blocks that have ended since they were last counted.
    pub(super) block_bytes: AtomicUsize,
    /// Body bytes handed to hyper, which takes them when the client does.
    body_bytes_sent: AtomicU64,
    /// Successful writes to the socket. Only the connection's own task writes it.
    writes: AtomicU64,
    /// The last write had to wait for the client.
    is_write_blocked: AtomicBool,
    /// Bytes have arrived that belong to no complete request.
    has_partial_head: AtomicBool,
    is_http2: AtomicBool,
    is_in_handshake: AtomicBool,
    /// The connection is TCP without TLS.
    pub(super) is_plain_tcp: AtomicBool,
    /// A request's body was given up before its end, so that unread bytes may be in the socket.
    pub(super) left_body_unread: AtomicBool,
    /// The request line does not end: set by the wire, answered by the connection's task.
    pub(super) is_url_too_long: AtomicBool,
    /// The method of that request line is HEAD.
    pub(super) is_head: AtomicBool,
    /// There is no room for more of the head: set by the wire, answered by the connection's task.
    pub(super) is_out_of_room: AtomicBool,
    /// The status with which hyper refused a head, held back by the wire and answered by the connection's task; or 0.
    pub(super) refusal_status: AtomicU16,
    /// Keep the wire, for a last answer, when hyper drops it.
    pub(super) keeps_wire: AtomicBool,
    /// The connection is being cut: no more patience with the bytes still in flight.
    pub(super) is_cut: AtomicBool,
    /// The task has ended.
    pub(super) is_done: AtomicBool,
    closes: AtomicBool,
    /// The connection's share of the process's memory; set once, when it begins.
    pub(super) share: OnceLock<Arc<ConnectionRoom>>,
    waker: OnceLock<Waker>,
    /// Pieces of files whose stand-ins hyper has, in their order. Only the connection's own task uses it.
    pieces: Mutex<VecDeque<FilePart>>,
    has_pieces: AtomicBool,
}

impl Progress {
    /// A request's head is complete.
    pub(super) fn record_request(&self, is_http2: bool) {
        self.started.store(self.started.load(Relaxed) + 1, Relaxed);
        self.has_partial_head.store(false, Relaxed);
        if is_http2 {
            self.is_http2.store(true, Relaxed);
        }
    }

    /// Bytes have arrived. Whether they are the first ones after a request (or at all).
    pub(super) fn record_read(&self) -> bool {
        let is_first = !self.has_partial_head.load(Relaxed);
        if is_first {
            self.has_partial_head.store(true, Relaxed);
        }
        is_first
    }

    /// A request has a body, which is open until the answer is dropped.
    pub(super) fn open_body(self: &Arc<Self>) -> CountGuard {
        CountGuard::new(self.clone(), |progress| &progress.bodies_open)
    }

    /// A request over HTTP/2 is refused for lack of memory, until the client has taken that.
    pub(super) fn open_refusal(self: &Arc<Self>) -> CountGuard {
        CountGuard::new(self.clone(), |progress| &progress.refusals_unread)
    }

    /// Refusals for lack of memory that the client has not taken, over HTTP/2.
    pub(super) fn refusals_unread(&self) -> u32 {
        self.refusals_unread.load(Relaxed)
    }

    /// Whether arriving bytes are a request's body, even if no handler wants it.
    pub(super) fn is_within_body(&self) -> bool {
        self.bodies_open.load(Relaxed) > 0 || self.left_body_unread.load(Relaxed)
    }

    /// A write took bytes.
    pub(super) fn record_write(&self) {
        self.writes.store(self.writes.load(Relaxed) + 1, Relaxed);
        self.is_write_blocked.store(false, Relaxed);
    }

    /// A write or a flush has to wait for the client, or not any more.
    pub(super) fn record_write_blocked(&self, is_blocked: bool) {
        self.is_write_blocked.store(is_blocked, Relaxed);
    }

    pub(super) fn record_body_received(&self, bytes: usize) {
        self.body_bytes_received.fetch_add(bytes as u64, Relaxed);
        self.body_pieces_received.fetch_add(1, Relaxed);
    }

    /// Bytes of request bodies that handlers have got, and pieces.
    pub(super) fn body_received(&self) -> (u64, u64) {
        (self.body_bytes_received.load(Relaxed), self.body_pieces_received.load(Relaxed))
    }

    /// Whether a request is being answered.
    pub(super) fn has_open_request(&self) -> bool {
        self.handlers.load(Relaxed) > 0 || self.responses.load(Relaxed) > 0
    }

    /// Whether part of a head is there and no request is being answered.
    pub(super) fn has_partial_head(&self) -> bool {
        self.has_partial_head.load(Relaxed)
    }

    /// Whether the connection has answered all that was asked over HTTP/1.1, and waits for the next request.
    pub(super) fn is_idle(&self) -> bool {
        self.has_started()
            && !self.has_partial_head()
            && !self.has_open_request()
            && !self.is_within_body()
            && !self.is_write_blocked.load(Relaxed)
            && !self.closes()
            && self.refusal().is_none()
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn record_body_sent(&self, bytes: usize) {
        self.body_bytes_sent.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes of bodies that hyper was given.
    pub(super) fn body_bytes_sent(&self) -> u64 {
        self.body_bytes_sent.load(Relaxed)
    }

    /// The status with which hyper refused a head, if it did.
    pub(super) fn refusal(&self) -> Option<u16> {
        Some(self.refusal_status.load(Relaxed)).filter(|&status| status != 0)
    }

    /// Whether bodies may be sent as files.
    pub(super) fn sends_files(&self) -> bool {
        self.is_plain_tcp.load(Relaxed) && !self.is_http2()
    }

    /// hyper is about to get this piece's stand-in.
    pub(super) fn queue_piece(&self, piece: FilePart) {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).push_back(piece);
        self.has_pieces.store(true, Relaxed);
    }

    /// Whether hyper has stand-ins that are not written.
    pub(super) fn has_pieces(&self) -> bool {
        self.has_pieces.load(Relaxed)
    }

    /// Lets `write` send from the first of the pieces.
    pub(super) fn write_piece(
        &self,
        write: impl FnOnce(&mut FilePart) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(piece) = pieces.front_mut() else { return Poll::Ready(Ok(0)) };
        let written = write(piece);
        if piece.is_sent() {
            pieces.pop_front();
            self.has_pieces.store(!pieces.is_empty(), Relaxed);
        }
        written
    }

    pub(super) fn record_handshake(&self, is_running: bool) {
        self.is_in_handshake.store(is_running, Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    pub(super) fn is_in_handshake(&self) -> bool {
        self.is_in_handshake.load(Relaxed)
    }

    /// Whether a request has ever been read.
    pub(super) fn has_started(&self) -> bool {
        self.started.load(Relaxed) > 0
    }

    /// Asks the connection to finish its requests and close.
    pub(super) fn close(&self) {
        self.closes.store(true, SeqCst);
        self.wake();
    }

    pub(super) fn closes(&self) -> bool {
        self.closes.load(SeqCst)
    }

    /// Remembers how to wake the connection. Its task's waker is the same one for ever, so the first one counts.
    pub(super) fn register(&self, waker: &Waker) {
        if self.waker.get().is_none() {
            let _ = self.waker.set(waker.clone());
        }
    }
}

/// A count in [`Progress`] that goes down again by itself.
#[derive(Debug)]
pub(super) struct CountGuard {
    progress: Arc<Progress>,
    count: fn(&Progress) -> &AtomicU32,
}

impl CountGuard {
    fn new(progress: Arc<Progress>, count: fn(&Progress) -> &AtomicU32) -> Self {
        count(&progress).fetch_add(1, Relaxed);
        Self { progress, count }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.count)(&self.progress).fetch_sub(1, Relaxed);
    }
}

/// A handler at work.
#[derive(Debug)]
pub(super) struct HandlerGuard(CountGuard);

impl HandlerGuard {
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self(CountGuard::new(progress.clone(), |progress| &progress.handlers))
    }

    /// The handler has returned a response.
    pub(super) fn responds(self) -> ResponseGuard {
        ResponseGuard::new(&self.0.progress)
    }
}

/// A response on its way.
#[derive(Debug)]
pub(super) struct ResponseGuard {
    waits: WaitFlag,
    counted: CountGuard,
}

impl ResponseGuard {
    /// Counts from now on.
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self {
            waits: WaitFlag::new(|progress| &progress.responses_not_ready),
            counted: CountGuard::new(progress.clone(), |progress| &progress.responses),
        }
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.counted.progress
    }

    /// Whether the body's next part is ours to make.
    pub(super) fn is_not_ready(&mut self, is_not_ready: bool) {
        self.waits.set(&self.counted.progress, is_not_ready);
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.waits.set(&self.counted.progress, false);
        // The bytes after the head were this request's body, not the start of the next head.
        self.counted.progress.has_partial_head.store(false, Relaxed);
    }
}

/// A flag of one body that is counted in [`Progress`] while it is up.
#[derive(Debug)]
pub(super) struct WaitFlag {
    is_up: bool,
    count: fn(&Progress) -> &AtomicU32,
}

impl WaitFlag {
    fn new(count: fn(&Progress) -> &AtomicU32) -> Self {
        Self { is_up: false, count }
    }

    /// The flag of a request body that a handler waits for.
    pub(super) fn for_client() -> Self {
        Self::new(|progress| &progress.bodies_awaited)
    }

    pub(super) fn set(&mut self, progress: &Progress, is_up: bool) {
        match (self.is_up, is_up) {
            (false, true) => (self.count)(progress).fetch_add(1, Relaxed),
            (true, false) => (self.count)(progress).fetch_sub(1, Relaxed),
            _ => return,
        };
        self.is_up = is_up;
    }
}

/// How much of a body must arrive to restart its timeout: a large upload may take long, but sending a byte now and then is not
/// enough.
const BODY_PART_BYTES: u64 = 64 * 1024;

/// What a connection is waiting for. The timeout of a phase restarts whenever the phase or its number changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The last answer is being sent, which has its own timeout.
    Leave,
    /// The client is to finish the TLS handshake.
    Handshake,
    /// A handler works: its own time limits apply.
    Handler,
    /// We have not made the next part of the body.
    Source,
    /// For the client to take bytes from the socket; number of writes so far.
    Write(u64),
    /// For the client to open its HTTP/2 window; body bytes taken so far.
    Window(u64),
    /// For the client to send the next part of its body, or the rest; requests and parts so far.
    Body(u64, u64),
    /// For the client to finish the head that it has begun; requests so far.
    Head(u64),
    /// For a request, which may come or not; requests so far.
    Idle(u64),
    /// For its end, as it was asked to close; writes so far.
    Closing(u64),
}

impl Phase {
    pub(super) fn of(progress: &Progress) -> Self {
        let started = progress.started.load(Relaxed);
        let writes = progress.writes.load(Relaxed);
        let responses = progress.responses.load(Relaxed);
        let is_http2 = progress.is_http2();
        if progress.keeps_wire.load(Relaxed) {
            Self::Leave
        } else if progress.is_in_handshake() {
            Self::Handshake
        } else if progress.is_write_blocked.load(Relaxed) {
            Self::Write(writes)
        } else if progress.bodies_awaited.load(Relaxed) > 0 {
            Self::Body(started, progress.body_bytes_received.load(Relaxed) / BODY_PART_BYTES)
        } else if progress.handlers.load(Relaxed) > 0 {
            Self::Handler
        } else if responses > progress.responses_not_ready.load(Relaxed) {
            Self::Window(progress.body_bytes_sent.load(Relaxed))
        } else if responses > 0 {
            Self::Source
        } else if progress.closes() {
            Self::Closing(writes)
        } else if started == 0 || (progress.has_partial_head.load(Relaxed) && !is_http2) {
            // HTTP/2 sends its own frames between requests; half a head there counts as idling.
            Self::Head(started)
        } else {
            Self::Idle(started)
        }
    }
}
