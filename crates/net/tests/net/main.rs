//! Connections over real sockets: which are answered, which are closed, and what a shutdown does.
//!
//! Timeouts are short and nothing is timed: a test that waits for the wrong thing hangs until [`PATIENCE`] ends it.

mod request_bounds;
mod requests;
mod sendfile;
mod slow_clients;
mod sockets;
mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::routing::{get, post};
use http::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use net::{
    Access, Answered, ClientAddress, Counters, Door, Limits, ListenAddress, Listener, Peer, Reload,
    Server, TlsReloader, TrustedProxies, bind, install_crypto_provider, sockets_from_systemd,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// A limit that a test wants to see reached.
const SHORT: Duration = Duration::from_millis(400);

fn limits() -> Limits {
    Limits {
        header_timeout: PATIENCE,
        body_timeout: PATIENCE,
        write_stall_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        ..Limits::default()
    }
}

/// Lets the test look into, and end, a handler at `/slow`.
#[derive(Clone, Default)]
struct Gate {
    entered: Arc<Notify>,
    opened: Arc<Notify>,
}

/// Finished bodies at once, and everything else by a router.
struct Routes(Router);

impl Door for Routes {
    fn answer(&self, mut head: Parts, body: Option<Body>, peer: &Peer) -> Answered {
        if head.uri.path() == "/finished" && body.is_none() {
            return Answered::Finished(Response::new(Body::from(sendfile::FINISHED.clone())));
        }
        head.extensions.insert(*peer);
        let request = Request::from_parts(head, body.unwrap_or_default());
        let routed = self.0.clone().call(request);
        Answered::Later(Box::pin(
            async move { routed.await.unwrap_or_else(|never| match never {}) },
        ))
    }
}

fn router(gate: Gate) -> Router {
    let slow = move || async move {
        gate.entered.notify_one();
        gate.opened.notified().await;
        "slow"
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/slow", get(slow))
        .route("/file/{start}/{end}", get(sendfile::file))
        .route(
            "/peer",
            get(|request: Request| async move {
                let Peer { address, tls } = request.extensions().get::<Peer>().copied().unwrap();
                format!("{address} {tls} {:?}", request.version())
            }),
        )
        .route("/target/{*rest}", get(|request: Request| async move { request.uri().to_string() }))
        .route("/pieces", post(in_pieces))
        .route("/large", get(|| async { Bytes::from(vec![b'x'; 64 << 20]) }))
        .route(
            "/echo",
            post(|body: Body| async move {
                body.collect()
                    .await
                    .map(|body| body.to_bytes())
                    .map_err(|_| StatusCode::BAD_REQUEST)
            }),
        )
        .route("/refuse", post(|| async { (StatusCode::PAYLOAD_TOO_LARGE, "too large") }))
}

/// The posted body three times, each in a separate write.
async fn in_pieces(body: Bytes) -> Response<Body> {
    let length = 3 * body.len();
    let pieces = futures_util::stream::unfold(0, move |count| {
        let body = body.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            (count < 3).then_some((Ok::<_, std::convert::Infallible>(body), count + 1))
        }
    });
    let response = Response::builder().header("content-length", length);
    response.body(Body::from_stream(pieces)).unwrap()
}

struct Running {
    address: ListenAddress,
    counters: Counters,
    gate: Gate,
    shutdown: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(limits: Limits) -> Self {
        Self::start_on(tcp(), limits, None, TrustedProxies::default(), PATIENCE)
    }

    fn start_on(
        listener: Listener,
        limits: Limits,
        tls: Option<Arc<TlsReloader>>,
        trusted: TrustedProxies,
        grace: Duration,
    ) -> Self {
        let address = listener.address().clone();
        let counters = Counters::unregistered();
        let gate = Gate::default();
        let shutdown = CancellationToken::new();
        let server = Server::new(limits, counters.clone(), trusted);
        let served = tokio::spawn(server.serve(
            listener,
            tls,
            Arc::new(Routes(router(gate.clone()))),
            shutdown.clone(),
            grace,
        ));
        Self { address, counters, gate, shutdown, served }
    }

    fn tcp(&self) -> SocketAddr {
        match &self.address {
            ListenAddress::Tcp(address) => *address,
            ListenAddress::Unix(path) => panic!("{} is no TCP address", path.display()),
        }
    }

    /// Sends `request` on a new connection and reads until the server closes it.
    async fn exchange(&self, request: impl Into<Vec<u8>>) -> String {
        let mut client = self.connect();
        let request = request.into();
        blocking(move || {
            // A server that refuses may close before it has read everything.
            let _ = client.write_all(&request);
            read_to_end(&mut client)
        })
        .await
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.tcp()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        client
    }

    async fn is_alive(&self) {
        let answer = self.exchange("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
    }

    /// Asks the server to end and waits for it.
    async fn stop(self) {
        self.shutdown.cancel();
        within(self.served).await.unwrap().unwrap();
        assert_eq!(self.counters.connections_open.get(), 0);
    }
}

fn tcp() -> Listener {
    bind(&["127.0.0.1:0".parse().unwrap()], &Access::default()).unwrap().remove(0)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    within(tokio::task::spawn_blocking(work)).await.unwrap()
}

/// Everything that the server sends until it closes; a reset counts as closing, silence does not.
fn read_to_end(client: &mut impl Read) -> String {
    let mut answer = Vec::new();
    match client.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("the server keeps the connection open")
        }
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// Waits until `condition` holds.
async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn http2_client() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    client.timeout(PATIENCE).build().unwrap()
}

fn http1_client() -> reqwest::Client {
    install_crypto_provider();
    reqwest::Client::builder().no_proxy().http1_only().timeout(PATIENCE).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_on_one_connection() {
    let server = Running::start(limits());
    let mut client = server.connect();
    blocking(move || {
        for _ in 0..20 {
            client.write_all(b"GET /peer HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            while !answer.ends_with("\r\n\r\n127.0.0.1 false HTTP/1.1") {
                let mut buffer = [0; 1024];
                let read = client.read(&mut buffer).unwrap();
                assert_ne!(read, 0, "closed after: {answer}");
                answer += std::str::from_utf8(&buffer[..read]).unwrap();
            }
        }
    })
    .await;
    assert_eq!(server.counters.connections_accepted.get(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_with_prior_knowledge() {
    let server = Running::start(limits());
    let client = http2_client();
    let url = format!("http://{}/peer", server.tcp());
    assert_eq!(
        client.get(&url).send().await.unwrap().text().await.unwrap(),
        "127.0.0.1 false HTTP/2.0"
    );
    let body = "b".repeat(1 << 20);
    let echo = client
        .post(format!("http://{}/echo", server.tcp()))
        .body(body.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(echo.text().await.unwrap(), body);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_total_are_closed_at_once() {
    let server = Running::start(Limits { connections_max: 2, ..limits() });
    let (mut first, second) = (server.connect(), server.connect());
    until(|| server.counters.connections_open.get() == 2).await;
    assert_eq!(server.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await, "");
    assert_eq!(server.counters.connections_refused.get(), 1);
    drop(second);
    until(|| server.counters.connections_open.get() == 1).await;
    server.is_alive().await;
    first.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert!(blocking(move || read_to_end(&mut first)).await.ends_with("hello"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_clients_share_are_closed_at_once_except_for_proxies() {
    let limits = Limits { connections_per_client_max: 1, ..limits() };
    let server = Running::start(limits.clone());
    let _first = server.connect();
    until(|| server.counters.connections_open.get() == 1).await;
    assert_eq!(server.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await, "");
    assert_eq!(server.counters.connections_refused.get(), 1);

    let trusted = TrustedProxies::new(["127.0.0.1".parse().unwrap()]);
    let server = Running::start_on(tcp(), limits, None, trusted, PATIENCE);
    let _first = server.connect();
    until(|| server.counters.connections_open.get() == 1).await;
    server.is_alive().await;
    assert_eq!(server.counters.connections_refused.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_finishes_running_requests_and_refuses_new_connections() {
    let server = Running::start(limits());
    let mut idle = server.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let slow = tokio::spawn(http1_client().get(format!("http://{}/slow", server.tcp())).send());
    let http2 = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .timeout(PATIENCE)
        .build()
        .unwrap();
    within(server.gate.entered.notified()).await;
    let slow_http2 = tokio::spawn(http2.get(format!("http://{}/slow", server.tcp())).send());
    within(server.gate.entered.notified()).await;

    server.shutdown.cancel();
    assert!(
        blocking(move || read_to_end(&mut idle)).await.ends_with("hello"),
        "idle connections are closed"
    );
    let address = server.tcp();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    assert!(!server.served.is_finished());
    server.gate.opened.notify_waiters();
    for slow in [slow, slow_http2] {
        let response = within(slow).await.unwrap().unwrap();
        assert_eq!(response.text().await.unwrap(), "slow");
    }
    assert_eq!(server.counters.connections_cut.get(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_grace_period_connections_are_dropped() {
    let server = Running::start_on(tcp(), limits(), None, TrustedProxies::default(), SHORT);
    let slow = tokio::spawn(http1_client().get(format!("http://{}/slow", server.tcp())).send());
    within(server.gate.entered.notified()).await;
    let counters = server.counters.clone();
    server.stop().await;
    assert!(within(slow).await.unwrap().is_err());
    assert_eq!(counters.connections_cut.get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_in_the_queue_is_answered_although_a_shutdown_has_begun() {
    // Listening begins with the listener, so the client is in the queue before anybody serves.
    let listener = tcp();
    let mut client = TcpStream::connect(listener.tcp_address().unwrap()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let server = Server::new(limits(), Counters::unregistered(), TrustedProxies::default());
    let door = Arc::new(Routes(router(Gate::default())));
    within(server.serve(listener, None, door, shutdown, PATIENCE)).await.unwrap();
    let answer = blocking(move || read_to_end(&mut client)).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_serves_and_its_file_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("larder.sock");
    let listener =
        bind(&[ListenAddress::Unix(path.clone())], &Access::default()).unwrap().remove(0);
    let server = Running::start_on(listener, limits(), None, TrustedProxies::default(), PATIENCE);
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answer = blocking(move || read_to_end(&mut client)).await;
    assert!(answer.ends_with(&format!("{} false HTTP/1.1", ClientAddress::Unix)), "{answer}");
    server.stop().await;
    assert!(!path.exists());
}
