//! The accept loop, its sweep and the drain.
//!
//! accept -> [`Server`] admits (bounds on connections) -> one task, see [`connection`]. Between accepts the loop sweeps over its
//! connections: less often while nothing moves, and not at all without any. At the end: stop accepting, let everybody finish, cut
//! who does not.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::ClientAddress;
use super::front::Door;
use super::listener::{Acceptor, Listener};
use super::progress::Progress;
use super::server::Server;
use super::socket::Stream;
use super::timeouts::{SweepVerdict, Watch};
use super::tls::TlsReloader;
use super::{Counters, Peer, connection};

/// If memory is short, a connection that keeps memory is closed after this time without a request.
const PRESSED_PATIENCE: Duration = Duration::from_secs(1);

/// How many times later the next sweep comes if no connection has moved and none is due: an idle server should not wake.
const QUIET_SWEEPS: u32 = 4;

/// Pauses after errors of accept(2), such as a lack of file descriptors: the first and the longest.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a shutdown waits for the first request on a connection that has just been accepted.
const FRESH_PATIENCE: Duration = Duration::from_millis(250);

/// How often a shutdown looks whether everybody has finished.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

impl Server {
    /// Serves what `door` answers on `listener` until `shutdown`, then drains: it stops accepting, HTTP/1.1 connections finish
    /// their running request, HTTP/2 connections get a GOAWAY and finish their streams. What has not finished after
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
        let listener = Acceptor::new(listener)?;
        let mut connections = Connections {
            sweep_interval: self.limits.sweep_interval(),
            server: self,
            tls: tls.map(|tls| tls.acceptor()),
            door,
            tracker: TaskTracker::new(),
            watched: Vec::new(),
            watched_after_sweep: 0,
            sweep_at: None,
        };
        connections.accept_until(&listener, &address, &shutdown).await;
        // Clients in the queue already see an open connection.
        for (stream, client) in listener.close() {
            connections.start(stream, client);
        }
        connections.drain(grace).await;
        Ok(())
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
    watched: Vec<WatchedConnection>,
    watched_after_sweep: usize,
    /// When the next sweep is due; `None` while there is nothing to sweep over.
    sweep_at: Option<Instant>,
}

struct WatchedConnection {
    progress: Arc<Progress>,
    watch: Watch,
    task: AbortHandle,
}

impl WatchedConnection {
    fn cut(&self, counters: &Counters) {
        if self.progress.is_cut.swap(true, Relaxed) {
            // The task was told to close; it may take a moment.
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
        listener: &Acceptor,
        address: &str,
        shutdown: &CancellationToken,
    ) {
        let mut cancelled = pin!(shutdown.cancelled());
        let mut sweep = pin!(tokio::time::sleep(Duration::ZERO));
        let mut sweep_at = None;
        let mut pause = Duration::ZERO;
        let mut paused_until = None;
        loop {
            if sweep_at != self.sweep_at {
                sweep_at = self.sweep_at;
                if let Some(at) = sweep_at {
                    sweep.as_mut().reset(at.into());
                }
            }
            tokio::select! {
                biased;
                () = &mut cancelled => return,
                () = &mut sweep, if sweep_at.is_some() => self.sweep(),
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
        let now = Instant::now();
        self.watched.push(WatchedConnection { progress, watch: Watch::new(now), task });
        let soon = now + self.sweep_interval;
        self.sweep_at = Some(self.sweep_at.map_or(soon, |at| at.min(soon)));
        if self.watched.len() > 2 * self.watched_after_sweep + 1024 {
            // Many short connections: forget the dead before the interval is over.
            self.sweep();
        }
    }

    /// Forgets connections that have ended, and closes those that hold something up.
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
                SweepVerdict::Keep
                    if is_pressed && connection.watch.has_idled(now, PRESSED_PATIENCE) =>
                {
                    if is_tls || connection.progress.is_http2() {
                        connection.progress.close();
                    } else if let Some(share) = connection.progress.share.get() {
                        share.press();
                        connection.progress.wake();
                    }
                }
                SweepVerdict::Keep => {}
                SweepVerdict::Close => connection.progress.close(),
                SweepVerdict::Cut => connection.cut(&server.counters),
            }
            true
        });
        self.watched_after_sweep = self.watched.len();
        self.sweep_at = self.next_sweep(now);
    }

    /// When to sweep after the sweep at `now`.
    fn next_sweep(&self, now: Instant) -> Option<Instant> {
        if self.watched.is_empty() {
            return None;
        }
        let soon = now + self.sweep_interval;
        let watches = || self.watched.iter().map(|connection| &connection.watch);
        if watches().any(|watch| watch.has_moved(now)) {
            return Some(soon);
        }
        let due = watches().filter_map(|watch| watch.due_at(&self.server.limits)).min();
        let quiet = now + self.sweep_interval * QUIET_SWEEPS;
        Some(due.map_or(quiet, |due| due.clamp(soon, quiet)))
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
    listener: &Acceptor,
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
