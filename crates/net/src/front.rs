//! Between hyper and the [`Door`]: who sent the request, how long its URL is, and what its bodies are waiting for.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;

use super::disk_file::{FileBody, FileRange};
use super::pieces::{PieceReader, Pieces, keep};
use super::progress::{CountGuard, HandlerGuard, Progress, ResponseGuard, WaitFlag};
use super::room::{ConnectionRoom, HeldMemory, NoRoom};
use super::socket::{UNREAD_BYTES_MAX, UNREAD_PATIENCE};
use super::{Peer, host, sendfile};

/// Size of the largest HTTP/2 frame that clients accept by default: smaller pieces would make more frames.
const HTTP2_PIECE_BYTES: usize = 16 * 1024;

/// Memory of a request with a body, besides what is read of it: its head keeps a buffer alive, the body has another one, and a
/// handler reads it.
const BODY_BYTES: usize = 32 << 10;

/// Memory of an open HTTP/2 request: the stream and its task.
const STREAM_BYTES: usize = 3 << 10;

/// Memory of a handler that waits for something. Over HTTP/1.1 there is one for each connection, over HTTP/2 there are many.
const HANDLER_BYTES: usize = 24 << 10;

/// Memory of a field in the map of a request's headers, besides its bytes.
const FIELD_BYTES: usize = 104;

/// A larger answer that was made for one request counts until its reader has taken it. A smaller one does not count over
/// HTTP/1.1: there is one at a time, and the system's buffers have room for it.
const OWN_ANSWER_BYTES_MIN: u64 = 64 << 10;
const OWN_HTTP2_ANSWER_BYTES_MIN: u64 = 4 << 10;

/// When a client that found no room may try again.
pub(super) const RETRY_SECONDS: u32 = 2;

/// The text of a 503 when the memory for connections is taken.
pub(super) const NO_ROOM: &str =
    "the memory for connections is taken; nothing was done, try again in a moment\n";

/// The text of a 414.
pub(super) fn url_too_long(url_bytes_max: usize) -> String {
    format!(
        "the URL is longer than {url_bytes_max} bytes; send the parameters as the body of a POST instead\n"
    )
}

/// An extension of a response: its body was made for this request, although the body's memory is reused and does not show that.
/// Bodies that many answers share are not counted for each.
#[derive(Clone, Copy, Debug)]
pub struct MadeForOne;

/// What answers requests.
pub trait Door: Send + Sync {
    /// The answer to a request that `peer` sent; `body` is None if it has none.
    fn answer(&self, head: Parts, body: Option<Body>, peer: &Peer) -> Answered;
}

/// The answer of a [`Door`].
pub enum Answered {
    /// The response is ready.
    Now(Response<Body>),
    /// The response is ready, and other responses have the same body: its memory is not counted for each.
    Finished(Response<Body>),
    /// The response is being made.
    Later(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

/// One connection's way to the door.
pub(super) struct Front {
    pub(super) door: Arc<dyn Door>,
    pub(super) peer: Peer,
    pub(super) progress: Arc<Progress>,
    pub(super) share: Arc<ConnectionRoom>,
    pub(super) url_bytes_max: usize,
}

impl Front {
    /// Takes room for a request that is not over at once: one with a body, and any over HTTP/2, where many are open.
    fn hold(&self, request: &Request<Incoming>) -> Result<Option<HeldMemory>, NoRoom> {
        let has_body = !request.body().is_end_stream();
        let bytes = if request.version() == Version::HTTP_2 {
            let headers = request.headers();
            let fields = headers.capacity().max(headers.len());
            let block = self.progress.block_bytes.swap(0, Relaxed);
            let body = if has_body { BODY_BYTES } else { 0 };
            STREAM_BYTES + body + 2 * block + FIELD_BYTES * fields
        } else if has_body {
            BODY_BYTES
        } else {
            return Ok(None);
        };
        self.share.hold(bytes).map(Some)
    }

    /// An answer that is there.
    fn ready(&self, made: BuiltResponse, held: Option<HeldMemory>) -> Answer {
        let responding = ResponseGuard::new(&self.progress);
        Answer(Source::Ready(Some(made.outgoing(held, responding))))
    }

    /// Refuses a request before its path is looked at.
    fn refused(&self, status: StatusCode, text: String, held: Option<HeldMemory>) -> Answer {
        self.ready(BuiltResponse::shared(at_once(status, text)), held)
    }
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<OutgoingBody>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        self.progress.record_request(request.version() == Version::HTTP_2);
        let held = match self.hold(&request) {
            Ok(held) => held,
            Err(NoRoom) => {
                leave_unread(request.into_body(), &self.progress);
                return self.ready(BuiltResponse::shared(no_room(&self.progress)), None);
            }
        };
        let url_bytes = request.uri().path_and_query().map_or(0, |url| url.as_str().len());
        if url_bytes > self.url_bytes_max {
            leave_unread(request.into_body(), &self.progress);
            let text = url_too_long(self.url_bytes_max);
            return self.refused(StatusCode::URI_TOO_LONG, text, held);
        }
        let (mut head, body) = request.into_parts();
        if let Err(fault) = host::settle(&mut head) {
            leave_unread(body, &self.progress);
            return self.refused(StatusCode::BAD_REQUEST, format!("{fault}\n"), held);
        }
        if head.method != Method::GET {
            // Ranges are defined for GET alone (RFC 9110, 14.2).
            head.headers.remove(header::RANGE);
        }
        let body = if body.is_end_stream() {
            None
        } else if let Some((status, text)) = refused_coding(&head.headers) {
            leave_unread(body, &self.progress);
            let mut response = at_once(status, text);
            // A proxy in front of this server may see the end of such a body elsewhere (RFC 9112, 6.1).
            let close = header::HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            return self.ready(BuiltResponse::shared(response), held);
        } else {
            Some(Body::new(Inbound {
                body: Some(body),
                open: Some(self.progress.open_body()),
                progress: self.progress.clone(),
                waits: WaitFlag::for_client(),
                has_ended: false,
            }))
        };
        match self.door.answer(head, body, &self.peer) {
            Answered::Finished(response) => self.ready(BuiltResponse::shared(response), held),
            // Counted at once: over HTTP/2 many are made before the first one is taken.
            Answered::Now(response) => {
                let mut context = Context::from_waker(Waker::noop());
                self.ready(counted(response, &self.progress, &mut context), held)
            }
            Answered::Later(making) => {
                let bytes = if self.progress.is_http2() { HANDLER_BYTES } else { 0 };
                let Ok(at_work) = self.share.hold(bytes) else {
                    return self.ready(BuiltResponse::shared(no_room(&self.progress)), held);
                };
                let (handling, at_work) = (Some(HandlerGuard::new(&self.progress)), Some(at_work));
                Answer(Source::Later { making, handling, at_work, held })
            }
        }
    }
}

/// Lets go of a body that no handler reads to its end.
///
/// Over HTTP/1.1, the connection is closed with care. Over HTTP/2, the library resets the stream right after the answer, and
/// clients such as curl 7.88 lose the answer if both arrive at once. So a part of the body is still taken first.
fn leave_unread(mut body: Incoming, progress: &Arc<Progress>) {
    if body.is_end_stream() {
        return;
    }
    progress.left_body_unread.store(true, Relaxed);
    let share = progress.share.get().filter(|_| progress.is_http2());
    let Some(Ok(held)) = share.map(|share| share.hold(STREAM_BYTES)) else { return };
    // While the process ends, a body may be dropped outside of the runtime.
    let Ok(runtime) = Handle::try_current() else { return };
    // Its bytes count as read by a request until the task has taken them.
    let taking_guard = HandlerGuard::new(progress);
    let progress = progress.clone();
    runtime.spawn(async move {
        let taking = async {
            let mut taken = 0;
            while taken < UNREAD_BYTES_MAX
                && let Some(Ok(frame)) = body.frame().await
            {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                progress.record_body_received(bytes);
                taken += bytes;
            }
        };
        let _ = tokio::time::timeout(UNREAD_PATIENCE, taking).await;
        drop((taking_guard, held));
    });
}

fn at_once(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    let nosniff = header::HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The answer where there is no room for another.
fn no_room(progress: &Arc<Progress>) -> Response<Body> {
    let mut response = at_once(StatusCode::SERVICE_UNAVAILABLE, NO_ROOM.to_owned());
    if progress.is_http2() {
        let text = keep(Bytes::from_static(NO_ROOM.as_bytes()), progress.open_refusal());
        *response.body_mut() = Body::from(text);
    }
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_SECONDS.into());
    response
}

/// Why the transfer codings of a body are not understood: only one `chunked` is, which hyper decodes. Nothing would undo
/// another one, and the body would be kept as it came (RFC 9112, 6.1).
fn refused_coding(headers: &http::HeaderMap) -> Option<(StatusCode, String)> {
    let codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let codings = codings.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let codings = codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
    let mut is_chunked = false;
    for coding in codings {
        if !coding.eq_ignore_ascii_case(b"chunked") {
            let coding: String = String::from_utf8_lossy(coding).chars().take(40).collect();
            let text =
                format!("the transfer coding `{coding}` is not understood, only `chunked` is\n");
            return Some((StatusCode::NOT_IMPLEMENTED, text));
        }
        if std::mem::replace(&mut is_chunked, true) {
            let text = "the transfer coding `chunked` is given twice\n".to_owned();
            return Some((StatusCode::BAD_REQUEST, text));
        }
    }
    None
}

/// A response, or one in the making.
pub(super) struct Answer(Source);

enum Source {
    Later {
        making: Pin<Box<dyn Future<Output = Response<Body>> + Send>>,
        /// Present until the response is there.
        handling: Option<HandlerGuard>,
        /// The memory of the handler, until then.
        at_work: Option<HeldMemory>,
        /// The memory of the request, unless it is over at once.
        held: Option<HeldMemory>,
    },
    Ready(Option<Response<OutgoingBody>>),
}

/// A response.
struct BuiltResponse {
    response: Response<Body>,
    /// The first part of its body, if that was looked at.
    first: Bytes,
}

impl BuiltResponse {
    /// A response that is not counted: it is small, its memory is shared, or it is read in pieces.
    fn shared(response: Response<Body>) -> Self {
        Self { response, first: Bytes::new() }
    }

    /// The response as it is sent, with what its request holds.
    fn outgoing(
        self,
        held: Option<HeldMemory>,
        responding: ResponseGuard,
    ) -> Response<OutgoingBody> {
        let BuiltResponse { mut response, first: rest } = self;
        let progress = responding.progress();
        let file = FileRange::of(&mut response);
        let file = file.filter(|_| rest.is_empty() && progress.sends_files());
        let file = file.filter(|_| cfg!(target_os = "linux") && !sendfile::is_refused());
        let file = file.map(FileBody::new).map(Box::new);
        let mut reading = None;
        if file.is_none()
            && let Some(pieces) = response.extensions_mut().remove::<Pieces>()
            && let Some(share) = progress.share.get()
        {
            let stream_bytes = if progress.is_http2() { STREAM_BYTES } else { 0 };
            match PieceReader::begin(pieces, stream_bytes, share) {
                Ok(begun) => reading = Some(Box::new(begun)),
                Err(NoRoom) => response = no_room(progress),
            }
        }
        // The library may keep the end of an answer, and its stream, when the body is gone.
        let held = if progress.is_http2() { held.map(HeldMemory::until_written) } else { held };
        response.map(|body| OutgoingBody { body, file, reading, rest, held, responding })
    }
}

impl Future for Answer {
    type Output = Result<Response<OutgoingBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AGAIN: &str = "an answer is not polled after it is there";
        Poll::Ready(Ok(match &mut self.get_mut().0 {
            Source::Ready(response) => response.take().expect(POLLED_AGAIN),
            Source::Later { making, handling, at_work, held } => {
                let response = ready!(making.as_mut().poll(cx));
                *at_work = None;
                let responding = handling.take().expect(POLLED_AGAIN).responds();
                let made = counted(response, responding.progress(), cx);
                made.outgoing(held.take(), responding)
            }
        }))
    }
}

/// Takes room for an answer that was made for one request, until its reader has taken it. Answers that share their memory are
/// not counted.
fn counted(
    mut response: Response<Body>,
    progress: &Arc<Progress>,
    cx: &mut Context<'_>,
) -> BuiltResponse {
    let bytes_min =
        if progress.is_http2() { OWN_HTTP2_ANSWER_BYTES_MIN } else { OWN_ANSWER_BYTES_MIN };
    let is_large = response.body().size_hint().exact().is_some_and(|bytes| bytes > bytes_min);
    let Some(share) = progress.share.get().filter(|_| is_large) else {
        return BuiltResponse::shared(response);
    };
    let first = match Pin::new(response.body_mut()).poll_frame(cx) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Poll::Ready(Some(Err(error))) => {
            tracing::error!(%error, "the body of a response failed before its first byte");
            let text = "the answer could not be made\n".to_owned();
            return BuiltResponse::shared(at_once(StatusCode::INTERNAL_SERVER_ERROR, text));
        }
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    if !first.is_unique() && response.extensions().get::<MadeForOne>().is_none() {
        return BuiltResponse { response, first };
    }
    match share.hold_answer(first.len()) {
        Ok(held) => BuiltResponse { response, first: keep(first, held) },
        Err(NoRoom) => BuiltResponse::shared(no_room(progress)),
    }
}

/// A request's body, which tells when a handler waits for it.
struct Inbound {
    /// Present until this is dropped.
    body: Option<Incoming>,
    /// Present until the end of the body.
    open: Option<CountGuard>,
    progress: Arc<Progress>,
    waits: WaitFlag,
    has_ended: bool,
}

impl hyper::body::Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = this.body.as_mut().map(|body| Pin::new(body).poll_frame(cx));
        let frame = frame.unwrap_or(Poll::Ready(None));
        this.waits.set(&this.progress, frame.is_pending());
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.progress.record_body_received(bytes.len());
        }
        this.has_ended |= !matches!(frame, Poll::Pending | Poll::Ready(Some(Ok(_))));
        if this.has_ended || this.is_end_stream() {
            this.open = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.waits.set(&self.progress, false);
        if let Some(body) = self.body.take()
            && !self.has_ended
        {
            leave_unread(body, &self.progress);
        }
    }
}

/// A response's body, which tells whether the client or the handler is the slower one.
pub(super) struct OutgoingBody {
    body: Body,
    /// Sent rather than the body, which has the same bytes.
    file: Option<Box<FileBody>>,
    /// Present if the body is read in pieces.
    reading: Option<Box<PieceReader>>,
    /// The rest of a frame that is sent in pieces.
    rest: Bytes,
    /// The memory of the request; over HTTP/2 it goes along with the last bytes.
    held: Option<HeldMemory>,
    responding: ResponseGuard,
}

impl OutgoingBody {
    /// Bytes of the body, with the room that they take.
    fn counted(&mut self, bytes: Bytes) -> Bytes {
        if let Some(reading) = &mut self.reading {
            return reading.read(bytes);
        }
        // A part of a body that is made while it is sent: it is there already, so it counts even without room.
        let is_own = bytes.len() as u64 > OWN_HTTP2_ANSWER_BYTES_MIN
            && self.body.size_hint().exact().is_none()
            && bytes.is_unique();
        let share = self.responding.progress().share.get();
        let Some(share) = share.filter(|_| is_own) else { return bytes };
        let held = share.hold_made(bytes.len());
        keep(bytes, held)
    }

    /// hyper takes a whole frame as soon as an HTTP/2 client takes one byte of it, and nothing would tell how the rest is
    /// doing. In pieces, the body stays here until the client has taken nearly all of it. Over HTTP/1.1 the socket itself
    /// tells, so large writes are cheaper.
    fn piece(&mut self, mut bytes: Bytes) -> Bytes {
        let progress = self.responding.progress();
        if progress.is_http2() {
            if bytes.len() > HTTP2_PIECE_BYTES {
                self.rest = bytes.split_off(HTTP2_PIECE_BYTES);
            } else if self.body.is_end_stream()
                && let Some(held) = self.held.take()
            {
                bytes = keep(bytes, held);
            }
        }
        progress.record_body_sent(bytes.len());
        bytes
    }
}

impl hyper::body::Body for OutgoingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Some(file) = &mut this.file {
            let piece = file.poll_piece(cx);
            this.responding.is_not_ready(piece.is_pending());
            return piece.map_err(axum::Error::new).map_ok(|(piece, stand_in)| {
                let progress = this.responding.progress();
                progress.queue_piece(piece);
                progress.record_body_sent(stand_in.len());
                Frame::data(stand_in)
            });
        }
        if !this.rest.is_empty() {
            let rest = std::mem::take(&mut this.rest);
            return Poll::Ready(Some(Ok(Frame::data(this.piece(rest)))));
        }
        let frame = match &mut this.reading {
            None => Pin::new(&mut this.body).poll_frame(cx),
            Some(reading) => match reading.poll_room(cx) {
                Poll::Ready(Ok(())) => Pin::new(&mut this.body).poll_frame(cx),
                Poll::Ready(Err(error)) => Poll::Ready(Some(Err(axum::Error::new(error)))),
                Poll::Pending => Poll::Pending,
            },
        };
        this.responding.is_not_ready(frame.is_pending());
        frame.map_ok(|frame| match frame.into_data() {
            Ok(bytes) => {
                let bytes = this.counted(bytes);
                Frame::data(this.piece(bytes))
            }
            Err(trailers) => trailers,
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.file {
            Some(file) => file.is_at_end(),
            None => self.rest.is_empty() && self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(file) = &self.file {
            return SizeHint::with_exact(file.bytes_left());
        }
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
