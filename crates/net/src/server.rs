//! [`Server`]: the bounds and counts of several listeners, and who is let in.
//!
//! A client's address -> `Server::admit` -> [`Admission`], its connection's place among the open ones.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;

use super::client::{ClientAddress, ClientKey, TrustedProxies};
use super::progress::Progress;
use super::room::{ConnectionRoom, Room};
use super::streams::Streams;
use super::wire::HTTP2_CONNECTION_WINDOW_BYTES;
use super::{Counters, Limits};

/// HTTP/2 streams that a client may open and reset before we have looked at them; more is an attack ("rapid reset").
const HTTP2_PENDING_RESETS_MAX: usize = 20;
/// Streams reset because of the client's errors before the connection is closed.
const HTTP2_LOCAL_RESETS_MAX: usize = 256;
/// Unread bytes of one HTTP/2 request's body.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// Bytes of one HTTP/2 answer that the library takes before the client does.
const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// How often a log line tells of connections that were closed for such floods: the first one, and then their number.
const FLOOD_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The bounds and counts that several listeners share.
pub struct Server {
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    trusted: TrustedProxies,
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<Streams>,
    pub(super) room: Arc<Room>,
    open: Mutex<OpenConnections>,
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
struct OpenConnections {
    total: usize,
    /// Clients with at least one connection.
    per_client: HashMap<ClientKey, usize>,
}

impl Server {
    /// A server with these bounds. Connections of `trusted` proxies are exempt from the bounds per client.
    pub fn new(limits: Limits, counters: Counters, trusted: TrustedProxies) -> Arc<Self> {
        let head_bytes_max = limits.head_buffer_bytes();
        // hyper's own header timeout counts idle time and costs a timer per request: the sweep does it.
        let mut http1 = http1::Builder::new();
        http1.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_bytes_max);
        let mut http2 = http2::Builder::new(Streams);
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
    pub(super) fn admit(self: &Arc<Self>, client: ClientAddress) -> Option<Admission> {
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

/// A connection's place among the open ones, given back when its task ends, even by a panic.
pub(super) struct Admission {
    pub(super) server: Arc<Server>,
    key: ClientKey,
    pub(super) progress: Arc<Progress>,
    pub(super) share: Arc<ConnectionRoom>,
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
