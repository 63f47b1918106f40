//! The accept loop, its sweep and the drain.
//!
//! accept -> admission (bounds on connections) -> one task, see [`connection`]. Between accepts the loop sweeps over its
//! connections. At the end: stop accepting, let everybody finish, cut who does not.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::{ClientAddress, ClientKey, TrustedProxies};
use super::front::Door;
use super::listener::{Accepting, Listener};
use super::progress::Progress;
use super::room::{Room, Share};
use super::socket::Stream;
use super::timeouts::{Verdict, Watch};
use super::tls::TlsReloader;
use super::wire::HTTP2_CONNECTION_WINDOW_BYTES;
use super::{Counters, Limits, Peer, connection};

/// HTTP/2 streams that a client may open and reset before we have looked at them; more is an attack ("rapid reset").
const HTTP2_PENDING_RESETS_MAX: usize = 20;
/// Streams reset because of the client's own mistakes before the connection is given up.
const HTTP2_LOCAL_RESETS_MAX: usize = 256;
/// Unread bytes of one HTTP/2 request's body.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// Bytes of one HTTP/2 answer that the library takes before the client does.
const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// After so long without a request, a connection that keeps memory meanwhile is closed if there is little of it.
const PRESSED_PATIENCE: Duration = Duration::from_secs(1);

/// How often connections that were closed for such floods are logged: the first, and then how many there were.
const FLOOD_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Pauses after errors of accept(2), such as a lack of file descriptors: the first and the longest.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a shutdown waits for the first request on a connection that has just been accepted.
const FRESH_PATIENCE: Duration = Duration::from_millis(250);

/// How often a shutdown looks whether everybody has finished.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// The bounds and counts that several listeners share.
pub struct Server {
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    trusted: TrustedProxies,
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<TokioExecutor>,
    room: Arc<Room>,
    open: Mutex<Open>,
    floods: Mutex<Floods>,
}

/// Floods that have not been logged yet.
#[derive(Default)]
struct Floods {
    logged_at: Option<Instant>,
    unlogged: u64,
}

/// Connections open now.
#[derive(Default)]
struct Open {
    total: usize,
    /// Clients with at least one connection.
    per_client: HashMap<ClientKey, usize>,
}

impl Server {
    /// A server with these bounds. Connections of `trusted` proxies are exempt from the bound per client.
    pub fn new(limits: Limits, counters: Counters, trusted: TrustedProxies) -> Arc<Self> {
        let head_bytes_max = limits.head_buffer_bytes();
        // hyper's own header timeout counts idle time and costs a timer per request: the sweep does it.
        let mut http1 = http1::Builder::new();
        http1.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_bytes_max);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.http2_streams_max)
            .max_header_list_size(u32::try_from(head_bytes_max).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS_MAX)
            .max_local_error_reset_streams(HTTP2_LOCAL_RESETS_MAX)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES);
        let room = Room::new(
            limits.connections_memory_bytes_max,
            counters.connections_memory.clone(),
            counters.connections_out_of_room.clone(),
        );
        let (open, floods) = (Mutex::default(), Mutex::default());
        Arc::new(Self { limits, counters, trusted, http1, http2, room, open, floods })
    }

    /// Serves what `door` answers on `listener` until `shutdown`, then drains: it stops accepting, HTTP/1.1 connections finish
    /// their running request, HTTP/2 connections get a GOAWAY and finish their streams. Whoever has not finished after
    /// `grace` is cut off. Returns when every connection is closed; the socket is closed, and its file removed, when
    /// the drain begins.
    ///
    /// # Errors
    /// The runtime cannot wait on the socket. Nothing else ends it: errors of accept(2) are counted and logged.
    pub async fn serve(
        self: Arc<Self>,
        listener: Listener,
        tls: Option<Arc<TlsReloader>>,
        door: Arc<dyn Door>,
        shutdown: CancellationToken,
        grace: Duration,
    ) -> io::Result<()> {
        let address = listener.address().to_string();
        let listener = Accepting::new(listener)?;
        let mut connections = Connections {
            sweep_interval: self.limits.sweep_interval(),
            server: self,
            tls: tls.map(|tls| tls.acceptor()),
            door,
            tracker: TaskTracker::new(),
            watched: Vec::new(),
            watched_after_sweep: 0,
        };
        connections.accept_until(&listener, &address, &shutdown).await;
        // Whoever is in the queue believes to be connected.
        for (stream, client) in listener.close() {
            connections.start(stream, client);
        }
        connections.drain(grace).await;
        Ok(())
    }

    /// Counts a connection that was closed for a flood of resets; logs at most a line a minute about them.
    pub(super) fn note_flood(&self, client: ClientAddress) {
        self.counters.http2_floods.inc();
        let mut floods = self.floods.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        floods.unlogged += 1;
        if floods.logged_at.is_some_and(|at| at.elapsed() < FLOOD_LOG_INTERVAL) {
            return;
        }
        let connections = std::mem::take(&mut floods.unlogged);
        floods.logged_at = Some(Instant::now());
        drop(floods);
        tracing::warn!(
            %client,
            connections,
            "HTTP/2 connections were closed: their clients reset or broke too many streams"
        );
    }

    /// Lets a connection in, if the bounds allow it.
    fn admit(self: &Arc<Self>, client: ClientAddress) -> Option<Admission> {
        let key = client.key();
        let per_client_max = match self.limits.connections_per_client_max {
            0 => usize::MAX,
            _ if client == ClientAddress::Unix || self.trusted.contains(client) => usize::MAX,
            max => max,
        };
        let mut open = self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_full = open.total >= self.limits.connections_max
            || open.per_client.get(&key).is_some_and(|count| *count >= per_client_max);
        if is_full {
            drop(open);
            self.counters.connections_refused.inc();
            return None;
        }
        open.total += 1;
        *open.per_client.entry(key).or_default() += 1;
        drop(open);
        self.counters.connections_accepted.inc();
        self.counters.connections_open.inc();
        let share = self.room.share((per_client_max < usize::MAX).then_some(key));
        let progress: Arc<Progress> = Arc::default();
        // It is set once, here.
        let _ = progress.share.set(share.clone());
        Some(Admission { server: self.clone(), key, progress, share })
    }
}

/// One connection's place among the open ones, given back when its task ends, however it ends.
pub(super) struct Admission {
    pub(super) server: Arc<Server>,
    key: ClientKey,
    pub(super) progress: Arc<Progress>,
    pub(super) share: Arc<Share>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.progress.is_done.store(true, Relaxed);
        // The sweep has the progress for a while.
        self.share.rest(0);
        self.server.counters.connections_open.dec();
        let mut open = self.server.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        open.total -= 1;
        if let Some(count) = open.per_client.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.per_client.remove(&self.key);
            }
        }
    }
}

/// The connections of one listener.
struct Connections {
    server: Arc<Server>,
    tls: Option<TlsAcceptor>,
    door: Arc<dyn Door>,
    tracker: TaskTracker,
    sweep_interval: Duration,
    /// Every connection that was open at the last sweep or has come since; some have ended.
    watched: Vec<Watched>,
    watched_after_sweep: usize,
}

struct Watched {
    progress: Arc<Progress>,
    watch: Watch,
    task: AbortHandle,
}

impl Watched {
    fn cut(&self, counters: &Counters) {
        if self.progress.is_cut.swap(true, Relaxed) {
            // The task was told already; it may take a moment to be gone.
            return;
        }
        if self.progress.is_in_handshake() {
            counters.tls_errors.inc();
        }
        counters.connections_cut.inc();
        self.task.abort();
    }
}

impl Connections {
    async fn accept_until(
        &mut self,
        listener: &Accepting,
        address: &str,
        shutdown: &CancellationToken,
    ) {
        let mut cancelled = pin!(shutdown.cancelled());
        let mut sweeps = tokio::time::interval(self.sweep_interval);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pause = Duration::ZERO;
        let mut paused_until = None;
        loop {
            tokio::select! {
                biased;
                () = &mut cancelled => return,
                _ = sweeps.tick() => self.sweep(),
                accepted = accept_after(paused_until, listener) => match accepted {
                    Ok((stream, client)) => {
                        (pause, paused_until) = (Duration::ZERO, None);
                        self.start(stream, client);
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        self.server.counters.accept_errors.inc();
                        if pause.is_zero() {
                            tracing::error!(%error, address, "cannot accept connections; trying again");
                        }
                        pause = (pause * 2).clamp(ACCEPT_PAUSE_MIN, ACCEPT_PAUSE_MAX);
                        paused_until = Some(tokio::time::Instant::now() + pause);
                    }
                },
            }
        }
    }

    fn start(&mut self, stream: Stream, client: ClientAddress) {
        let Some(admission) = self.server.admit(client) else { return };
        let progress = admission.progress.clone();
        let peer = Peer { address: client, tls: self.tls.is_some() };
        let connection =
            connection::run(admission, stream, peer, self.tls.clone(), self.door.clone());
        let task = self.tracker.spawn(connection).abort_handle();
        self.watched.push(Watched { progress, watch: Watch::new(Instant::now()), task });
        if self.watched.len() > 2 * self.watched_after_sweep + 1024 {
            // Many short connections: forget the dead before the interval is over.
            self.sweep();
        }
    }

    /// Forgets connections that have ended and deals with those that hold something up.
    fn sweep(&mut self) {
        let now = Instant::now();
        let is_tls = self.tls.is_some();
        let Self { server, watched, .. } = self;
        let is_pressed = server.room.take_pressed();
        watched.retain_mut(|connection| {
            if connection.progress.is_done.load(Relaxed) {
                return false;
            }
            match connection.watch.check(&connection.progress, &server.limits, now) {
                Verdict::Keep
                    if is_pressed && connection.watch.has_idled(now, PRESSED_PATIENCE) =>
                {
                    if is_tls || connection.progress.is_http2() {
                        connection.progress.close();
                    } else if let Some(share) = connection.progress.share.get() {
                        share.press();
                        connection.progress.wake();
                    }
                }
                Verdict::Keep => {}
                Verdict::Close => connection.progress.close(),
                Verdict::Cut => connection.cut(&server.counters),
            }
            true
        });
        self.watched_after_sweep = self.watched.len();
    }

    async fn drain(mut self, grace: Duration) {
        self.tracker.close();
        let start = Instant::now();
        let tracker = self.tracker.clone();
        let mut finished = pin!(tracker.wait());
        let mut looks = tokio::time::interval(DRAIN_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = &mut finished => return,
                _ = looks.tick() => {}
            }
            self.sweep();
            let waited = start.elapsed();
            for connection in &self.watched {
                if waited >= grace {
                    connection.cut(&self.server.counters);
                } else if connection.progress.has_started()
                    || waited >= FRESH_PATIENCE.min(grace / 2)
                {
                    // Asked again at each look, in case it was about to wait when it was asked first.
                    connection.progress.close();
                }
            }
        }
    }
}

async fn accept_after(
    paused_until: Option<tokio::time::Instant>,
    listener: &Accepting,
) -> io::Result<(Stream, ClientAddress)> {
    if let Some(deadline) = paused_until {
        tokio::time::sleep_until(deadline).await;
    }
    poll_fn(|cx| listener.poll_accept(cx)).await
}

/// Whether an error of accept(2) belongs to a connection that died in the queue, so that the next one may be well.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
