//! One connection, from the accepted socket to its end.
//!
//! TLS -> hyper, with room for what it keeps -> [`Front`] -> router. hyper is created when a request begins, and dropped
//! between requests if memory is short. Where hyper would refuse without a text, this adds one.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::StatusCode;
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsAcceptor;

use super::front::{Door, Front, NO_ROOM, RETRY_SECONDS, url_too_long};
use super::progress::Progress;
use super::room::{self, ConnectionRoom, NoRoom};
use super::server::{Admission, Server};
use super::socket::{Layer, Stream};
use super::wire::{Parking, SharedWire, Version, Wire};
use super::{Limits, Peer, streams};

/// How long a request waits for memory, unread in the system's buffer, before it is refused; and how often it retries. If a
/// thousand connections come while a thousand others end, they need extra room only for a moment.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
const ROOM_INTERVAL: Duration = Duration::from_millis(25);

/// Encrypted bytes that a connection keeps at most because the client does not take them; [`room::TLS_BYTES`] has them.
const TLS_UNSENT_BYTES_MAX: usize = 16 << 10;

/// How a connection's work ended.
enum ConnectionEnd {
    /// Nothing more to say.
    Done,
    /// hyper has said no to something that may still be arriving.
    Refused,
    /// The request line does not end.
    UrlTooLong,
    /// There is no memory to read more.
    NoRoom,
    /// hyper refused a head with this status and reason; the client does not know yet.
    Malformed(StatusCode, String),
}

impl Server {
    /// How hyper's work on a connection ended. To be asked before hyper lets go of the wire, which is kept for a last
    /// word if there is one to say.
    fn how_it_ended(
        &self,
        peer: Peer,
        progress: &Progress,
        result: &Result<(), hyper::Error>,
    ) -> ConnectionEnd {
        let end = if progress.is_url_too_long.load(Relaxed) {
            ConnectionEnd::UrlTooLong
        } else if progress.is_out_of_room.load(Relaxed) {
            ConnectionEnd::NoRoom
        } else if let Some(status) = progress.refusal() {
            let reason = result.as_ref().err().map_or_else(String::new, ToString::to_string);
            ConnectionEnd::Malformed(
                StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST),
                reason,
            )
        } else if result.as_ref().is_err_and(hyper::Error::is_parse)
            || (progress.left_body_unread.load(Relaxed) && !progress.is_http2())
        {
            ConnectionEnd::Refused
        } else {
            ConnectionEnd::Done
        };
        if let Err(error) = result {
            if is_flood(error) {
                self.note_flood(peer.address);
            }
            tracing::debug!(client = %peer.address, %error, "a connection ended early");
        }
        progress.keeps_wire.store(!matches!(end, ConnectionEnd::Done), Relaxed);
        end
    }
}

/// Whether HTTP/2 gave a connection up because of too many resets, or too much else that costs the client nothing.
fn is_flood(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error);
    let reason = cause.and_then(|cause| cause.downcast_ref::<h2::Error>()?.reason());
    reason == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

/// Takes the memory that a handshake or an HTTP/1.1 request needs as soon as there is some: `takes` tries.
///
/// # Errors
/// There was none for [`ROOM_PATIENCE`].
async fn take_room(
    share: &ConnectionRoom,
    progress: &Progress,
    takes: impl Fn() -> Result<(), NoRoom>,
) -> Result<(), NoRoom> {
    let begun_at = Instant::now();
    while takes().is_err() {
        if begun_at.elapsed() >= ROOM_PATIENCE || progress.closes() {
            share.record_refused();
            return Err(NoRoom);
        }
        tokio::time::sleep(ROOM_INTERVAL).await;
    }
    Ok(())
}

/// Says why hyper gave the connection up, where there is something to say.
async fn take_leave(layer: Layer, end: ConnectionEnd, is_head: bool, limits: &Limits) {
    let (status, text) = match end {
        ConnectionEnd::Done => return,
        ConnectionEnd::Refused => return layer.take_leave(b"").await,
        ConnectionEnd::UrlTooLong => (StatusCode::URI_TOO_LONG, url_too_long(limits.url_bytes_max)),
        ConnectionEnd::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, NO_ROOM.to_owned()),
        ConnectionEnd::Malformed(status, reason) => {
            let text = match status {
                StatusCode::URI_TOO_LONG => url_too_long(limits.url_bytes_max),
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                    let bytes_max = limits.head_buffer_bytes();
                    format!(
                        "the request line and the header lines have more than {bytes_max} bytes, or there are more \
                         than 100 header lines\n"
                    )
                }
                _ => malformed(&reason),
            };
            (status, text)
        }
    };
    layer.take_leave(last_words(status, &text, is_head).as_bytes()).await;
}

/// One connection, from accept to close.
pub(super) async fn run(
    admission: Admission,
    stream: Stream,
    peer: Peer,
    tls: Option<TlsAcceptor>,
    door: Arc<dyn Door>,
) {
    let Admission { server, progress, share, .. } = &admission;
    let layer = match tls {
        None => Layer::Plain(stream),
        Some(tls) => {
            progress.record_handshake(true);
            // The connection before, of the same client, may be about to end.
            let takes = || share.set_base(room::TLS_BYTES);
            if take_room(share, progress, takes).await.is_err() {
                return;
            }
            let shaken = Box::pin(tls.accept_with(stream, |session| {
                session.set_buffer_limit(Some(TLS_UNSENT_BYTES_MAX));
            }))
            .await;
            progress.record_handshake(false);
            match shaken {
                Ok(stream) => Layer::Tls(Box::new(stream)),
                Err(error) => {
                    server.counters.tls_errors.inc();
                    tracing::debug!(client = %peer.address, %error, "the TLS handshake failed");
                    return;
                }
            }
        }
    };
    let (tls_bytes, tls_idle_bytes) =
        if peer.tls { (room::TLS_BYTES, room::TLS_IDLE_BYTES) } else { (0, 0) };
    let parking = Parking::default();
    let url_bytes_max = server.limits.url_bytes_max;
    let mut wire =
        Wire::new(layer, progress.clone(), parking.clone(), share.clone(), url_bytes_max);
    let mut front =
        Front { door, peer, progress: progress.clone(), share: share.clone(), url_bytes_max };
    // hyper exists from the first byte of a request until the connection waits for the next one and must give up its memory.
    let end = loop {
        let woken = poll_fn(|cx| {
            progress.register(cx.waker());
            if progress.closes() {
                return Poll::Ready(Ok(None));
            }
            wire.poll_wake(cx)
        });
        let bytes = match woken.await {
            Ok(Some(Version::Http1)) => room::HTTP1_BYTES,
            Ok(Some(Version::Http2)) => room::HTTP2_BYTES,
            Ok(None) | Err(_) => return,
        };
        let has_room = if wire.is_http2() {
            share.set_base(bytes + tls_bytes).inspect_err(|NoRoom| share.record_refused())
        } else {
            take_room(share, progress, || share.wake(bytes + tls_bytes)).await
        };
        if has_room.is_err() {
            if wire.is_http2() {
                return;
            }
            let Some(layer) = wire.into_layer() else { return };
            break (ConnectionEnd::NoRoom, Some(layer));
        }
        let end = if wire.is_http2() {
            let wire = SharedWire::new(wire);
            let io = TokioIo::new(wire.clone());
            let mut connection = Box::pin(server.http2.serve_connection(io, front));
            let mut is_closing = false;
            let result = poll_fn(|cx| {
                progress.register(cx.waker());
                if !is_closing && progress.closes() {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                streams::begin_turn();
                let polled = connection.as_mut().poll(cx);
                wire.poll_send(cx);
                polled
            })
            .await;
            // While the connection is there: how the wire is dropped depends on it.
            server.how_it_ended(peer, progress, &result)
        } else {
            let mut connection = Box::new(server.http1.serve_connection(TokioIo::new(wire), front));
            let mut is_closing = false;
            let ended = poll_fn(|cx| {
                progress.register(cx.waker());
                if !is_closing && progress.closes() {
                    is_closing = true;
                    Pin::new(&mut *connection).graceful_shutdown();
                }
                match Pin::new(&mut *connection).poll(cx) {
                    Poll::Ready(result) => Poll::Ready(Some(result)),
                    Poll::Pending if !share.is_tight() => Poll::Pending,
                    Poll::Pending if progress.is_idle() => Poll::Ready(None),
                    Poll::Pending
                        if share.has_reserve()
                            && progress.has_partial_head()
                            && !progress.has_open_request() =>
                    {
                        progress.is_out_of_room.store(true, Relaxed);
                        Poll::Ready(Some(Ok(())))
                    }
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            let Some(result) = ended else {
                let parts = connection.into_parts();
                wire = parts.io.into_inner();
                front = parts.service;
                wire.rest(&parts.read_buf);
                share.rest(tls_idle_bytes);
                continue;
            };
            server.how_it_ended(peer, progress, &result)
        };
        let layer = parking.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        break (end, layer);
    };
    let (end, Some(layer)) = end else { return };
    share.rest(tls_idle_bytes);
    Box::pin(take_leave(layer, end, progress.is_head.load(Relaxed), &server.limits)).await;
}
/// An answer after hyper has let go of the connection, which ends with it.
fn last_words(status: StatusCode, text: &str, is_head: bool) -> String {
    let retry = match status {
        StatusCode::SERVICE_UNAVAILABLE => format!("retry-after: {RETRY_SECONDS}\r\n"),
        _ => String::new(),
    };
    let body = if is_head { "" } else { text };
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nx-content-type-options: nosniff\r\n\
         content-length: {}\r\n{retry}connection: close\r\n\r\n{body}",
        text.len()
    )
}

/// The text for a head that hyper refuses; `reason` is hyper's.
fn malformed(reason: &str) -> String {
    let advice = [
        (
            "URI",
            "the path and query may hold any character but a space and control characters; write these \
             percent-encoded, a space as %20",
        ),
        (
            "version",
            "the request line must end in HTTP/1.1 or HTTP/1.0; a space in the path or query must be written as %20",
        ),
        ("method", "the request line must begin with a method, such as GET, and a space"),
        ("content-length", "give one content-length, a whole number of bytes"),
        ("transfer-encoding", "`chunked` must be the last transfer-encoding, and needs HTTP/1.1"),
        (
            "header",
            "each header line must be NAME: VALUE without control characters, and without a space before the colon",
        ),
    ];
    let advice = advice.iter().find(|(word, _)| reason.contains(word));
    let advice = advice.map_or_else(String::new, |(_, advice)| format!(": {advice}"));
    format!("the request cannot be read ({reason}){advice}\n")
}
