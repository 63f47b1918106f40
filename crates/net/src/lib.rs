//! Connections: everything between a listening socket and the [`Door`] to the handlers.
//!
//! address -> [`bind`] -> [`Listener`] -> [`Server::serve`]: accept -> admission -> TLS -> HTTP/1.1 or HTTP/2 -> door. Each
//! connection is one task that does nothing but drive HTTP; one sweep per listener looks at all of them a few times per timeout
//! and closes those that hold resources without making progress. So a request costs no timer and no clock, and a slow or greedy
//! client harms only itself. One bound holds for the memory of all connections together; when memory is short, a connection
//! that waits for its next request keeps none.
//!
//! Requests that reach no handler are answered here: 400 and 431 for a head that hyper refuses, 400 for a request that names no
//! host or several, 414 for a URL over [`Limits::url_bytes_max`]. Everything else is the door's. This crate knows no route, no
//! surface and no configuration file, and never waits for one client on behalf of another.

mod address;
mod client;
mod connection;
mod disk_file;
mod egress;
mod frames;
mod front;
mod host;
mod listener;
mod open_files;
mod pieces;
mod progress;
mod request_line;
mod room;
mod sendfile;
mod serve;
mod server;
mod socket;
mod streams;
mod timeouts;
mod tls;
mod wire;

use std::time::Duration;

pub use self::address::{ListenAddress, Network, NotAMode, NotAnAddress, SocketMode};
pub use self::client::{ClientAddress, ClientKey, TrustedProxies};
pub use self::disk_file::FileRange;
pub use self::egress::{
    Egress, NotPublic, build_client, causes, is_of_unknown_authority, reason_of,
};
pub use self::front::{Answered, Door, MadeForOne};
pub use self::listener::{Access, Listener, bind, sockets_from_systemd};
pub use self::open_files::{OpenFiles, raise_open_files_limit};
pub use self::pieces::Pieces;
pub use self::server::Server;
pub use self::tls::{Reload, TlsError, TlsReloader, install_crypto_provider};

/// The other end of the connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The other end of the connection: the client, or the proxy in front of it ([`ClientAddress::resolve`]).
    pub address: ClientAddress,
    /// Whether the connection is encrypted up to this process.
    pub tls: bool,
}

/// How much one client, or all together, may take. Each bound is checked per connection unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once, over all listeners of one [`Server`]; a further one is closed at once.
    pub connections_max: usize,
    /// Connections open at once from one client ([`ClientKey`]); a further one is closed at once. 0 means no bound.
    /// Trusted proxies and unix socket peers are exempt: they speak for many clients.
    pub connections_per_client_max: usize,
    /// Memory that all connections of one [`Server`] together keep for heads, in buffers and for answers that wait for their
    /// readers. Beyond it a request is answered with 503, or its connection is closed.
    pub connections_memory_bytes_max: usize,
    /// Size of a request's head in bytes, request line included; more is answered with 431. Values under 8192, and
    /// values that leave no room beside `url_bytes_max`, are raised.
    pub header_bytes_max: usize,
    /// Length of a request's path and query in bytes; more is answered with 414.
    pub url_bytes_max: usize,
    /// Time for the TLS handshake, and after that for a whole request head, from its first byte (on a new connection:
    /// from the start). Then the connection is cut.
    pub header_timeout: Duration,
    /// Time for the next 64 KiB of a body that a handler is waiting for, or for its rest. Then the connection is cut.
    pub body_timeout: Duration,
    /// Time without progress after which a client that does not take its answer is cut off.
    pub write_stall_timeout: Duration,
    /// Time that a connection may stay open without a request. Then it is closed politely.
    pub idle_timeout: Duration,
    /// Requests at once on one HTTP/2 connection.
    pub http2_streams_max: u32,
}

impl Default for Limits {
    /// Bounds for a public server with some gigabytes of memory.
    fn default() -> Self {
        Self {
            connections_max: 8_192,
            connections_per_client_max: 2_048,
            connections_memory_bytes_max: 24 << 20,
            header_bytes_max: 64 * 1024,
            url_bytes_max: 32 * 1024,
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            write_stall_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            http2_streams_max: 128,
        }
    }
}

impl Limits {
    /// How often the connections are looked at while something moves. Timeouts are overrun by at most this much, and by four times as
    /// much on a connection that had rested before.
    fn sweep_interval(&self) -> Duration {
        let shortest = self
            .header_timeout
            .min(self.body_timeout)
            .min(self.write_stall_timeout)
            .min(self.idle_timeout);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Size of the buffer that a request head must fit into: room for the longest URL and some headers, at least the
    /// 8192 bytes that hyper insists on.
    fn head_buffer_bytes(&self) -> usize {
        self.header_bytes_max.max(self.url_bytes_max + 4 * 1024).max(8 * 1024)
    }
}

/// The metrics of connections. The caller makes and registers them; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Open connections, including those in their TLS handshake.
    pub connections_open: prometheus::IntGauge,
    /// Connections accepted and admitted.
    pub connections_accepted: prometheus::IntCounter,
    /// Connections closed at once because of `connections_max` or `connections_per_client_max`.
    pub connections_refused: prometheus::IntCounter,
    /// Memory that connections take of `connections_memory_bytes_max`.
    pub connections_memory: prometheus::IntGauge,
    /// Requests answered with 503, and connections closed, because of `connections_memory_bytes_max`.
    pub connections_out_of_room: prometheus::IntCounter,
    /// Connections cut off because a timeout of [`Limits`] ran out, or because the grace period of a shutdown did.
    pub connections_cut: prometheus::IntCounter,
    /// HTTP/2 connections closed because their clients reset or broke too many streams.
    pub http2_floods: prometheus::IntCounter,
    /// TLS handshakes that failed or took too long.
    pub tls_errors: prometheus::IntCounter,
    /// Errors of accept(2), such as a lack of file descriptors.
    pub accept_errors: prometheus::IntCounter,
}

impl Counters {
    /// Counters that are not registered: for tests, and for servers without metrics.
    pub fn unregistered() -> Self {
        let counter =
            |name: &str| prometheus::IntCounter::new(name, name).expect("the name is valid");
        let gauge = |name: &str| prometheus::IntGauge::new(name, name).expect("the name is valid");
        Self {
            connections_open: gauge("connections_open"),
            connections_memory: gauge("connections_memory"),
            connections_out_of_room: counter("connections_out_of_room"),
            connections_accepted: counter("connections_accepted"),
            connections_refused: counter("connections_refused"),
            connections_cut: counter("connections_cut"),
            http2_floods: counter("http2_floods"),
            tls_errors: counter("tls_errors"),
            accept_errors: counter("accept_errors"),
        }
    }
}
