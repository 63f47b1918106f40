//! Answers that nobody reads: every kind of body, over every protocol, from many connections of many addresses. Resident memory
//! stays within a bound above rest, and the server answers others at once.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use testbed::{Offer, Upstream};

use super::connections::allow_connections;
use super::frames::{End, frame, head, preface};
use super::memory::{STRANGERS_BYTES_MAX, at_rest};
use crate::process::{Process, init};
use crate::python::mirrors::{self, file, list};
use crate::python::{Upload, path, zip};
use crate::store::noise;
use crate::{SetAtEnd, catalogue, is_long, wait_until};

/// Size of the bodies: several of the largest pieces that are read at once.
const BODY_BYTES: usize = 3 << 20;

/// Memory that they may take. Without optimization, futures and stacks are larger, which no budget counts.
const BYTES_MAX: u64 = STRANGERS_BYTES_MAX + if cfg!(debug_assertions) { 16 << 20 } else { 0 };

/// HTTP/2 requests on one connection; there may be a few more.
const STREAMS: u32 = 100;

/// Addresses that ask.
const ADDRESSES: usize = 100;

/// How long the server may take to say that it is alive: the promise is 100 ms, on a machine that does nothing else.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How a client asks, and stops reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// HTTP/1.1, as much as the system's buffers take.
    Http1,
    /// HTTP/2, where no stream may be sent a byte.
    NoWindow,
    /// HTTP/2, where each stream may be sent one byte.
    OneByte,
    /// HTTP/2, where each stream may be sent some pieces.
    SomePieces,
    /// HTTP/2 without such bounds, as much as the system's buffers take.
    Unbounded,
}

const WAYS: [Way; 5] = [Way::Http1, Way::NoWindow, Way::OneByte, Way::SomePieces, Way::Unbounded];

impl Way {
    /// Connections, of which there are more in a long run.
    fn connections(self) -> usize {
        let number = if self == Way::Http1 { 150 } else { 12 };
        if is_long() { 4 * number } else { number }
    }

    /// What a connection sends.
    fn requests(self, path: &str) -> Vec<u8> {
        let window: u32 = match self {
            Way::Http1 => {
                return format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes();
            }
            Way::NoWindow => 0,
            Way::OneByte => 1,
            Way::SomePieces => 40_000,
            Way::Unbounded => (1 << 31) - 1,
        };
        let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
        let all = frame(8, 0, 0, &((1_u32 << 31) - 1 - 65_535).to_be_bytes());
        let asked = (0..STREAMS).flat_map(|it| head(1 + 2 * it, "GET", path, 0, End::Request));
        [preface(), frame(4, 0, 0, &setting), all].concat().into_iter().chain(asked).collect()
    }
}

/// One end of a connection that may be encrypted.
enum Connection {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    fn write(&mut self, bytes: &[u8]) {
        // The server may refuse it.
        let _ = match self {
            Connection::Plain(stream) => stream.write_all(bytes),
            Connection::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        };
    }

    fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Bytes before an error count.
        let _ = match self {
            Connection::Plain(stream) => stream.read_to_end(&mut bytes),
            Connection::Tls(stream) => stream.read_to_end(&mut bytes),
        };
        bytes
    }
}

/// A server with large bodies of all kinds.
struct Target {
    process: Process,
    tls: Option<Arc<ClientConfig>>,
    rest_bytes: u64,
    /// Kind and path.
    bodies: Vec<(&'static str, String)>,
    _upstream: Upstream,
}

/// A dump whose compressed form is large, too.
fn dump() -> Vec<u8> {
    let text = noise(0, 600 * 6_000);
    catalogue::dump(text.chunks(600).zip(1..).map(|(chunk, number)| {
        let name = format!("package-{number}");
        let description: String = chunk.iter().map(|byte| char::from(b'!' + byte % 90)).collect();
        catalogue::record(number, &name, &name, json!({"Description": description}))
    }))
}

impl Target {
    fn start(with_tls: bool) -> Target {
        let upstream = Upstream::start();
        let arguments = ["--aur-source", "dump.json", "--egress-allow", "127.0.0.0/8"];
        let prepared = Process::start(&arguments, |directory| {
            fs::write(directory.join("dump.json"), dump()).expect("a dump");
            init(directory);
        });
        let bodies = fill(&prepared, &upstream);
        if !with_tls {
            let rest_bytes = at_rest(&prepared);
            return Target {
                process: prepared,
                tls: None,
                rest_bytes,
                bodies,
                _upstream: upstream,
            };
        }
        let directory = prepared.directory.clone();
        drop(prepared);
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
        fs::write(directory.path().join("cert.pem"), pair.cert.pem()).expect("a file");
        fs::write(directory.path().join("key.pem"), pair.signing_key.serialize_pem())
            .expect("a file");
        let arguments =
            [&arguments[..], &["--tls-certificate", "cert.pem", "--tls-key", "key.pem"]].concat();
        let process = Process::start_unready(directory, "data", &arguments);
        let mut roots = RootCertStore::empty();
        roots.add(pair.cert.der().clone()).expect("a certificate");
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = Some(Arc::new(config));
        let mut target = Target { process, tls, rest_bytes: 0, bodies, _upstream: upstream };
        wait_until("readiness", || target.status("/readyz") == Some(200));
        target.rest_bytes = at_rest(&target.process);
        target
    }

    /// Connects from the address with this number, with little room for what is received.
    fn connect(&self, number: usize, is_http2: bool) -> Option<Connection> {
        use socket2::{Domain, Socket, Type};

        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4 << 10).expect("a size");
        let number = u16::try_from(number).expect("small") + 1;
        let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + u32::from(number));
        socket.bind(&SocketAddr::from((from, 0)).into()).expect("an address");
        socket.connect(&self.process.client.address.into()).expect("the server listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ALIVE_TIMEOUT)).expect("a timeout");
        stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let Some(tls) = &self.tls else { return Some(Connection::Plain(stream)) };
        let mut config = ClientConfig::clone(tls);
        config.alpn_protocols.retain(|it| (it == b"h2") == is_http2);
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
        let mut stream = StreamOwned::new(connection, stream);
        // Without memory the server closes it.
        stream.conn.complete_io(&mut stream.sock).ok()?;
        Some(Connection::Tls(Box::new(stream)))
    }

    /// The status of an answer to a new connection of an address that asks nothing else.
    fn status(&self, path: &str) -> Option<u16> {
        let mut connection = self.connect(ADDRESSES, false)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        connection.write(request.as_bytes());
        std::str::from_utf8(connection.read_to_end().get(9..12)?).ok()?.parse().ok()
    }

    /// Whether the metric is at most this, if the server has room to say so.
    fn is_at_most(&self, name: &str, most: u64) -> bool {
        let Some(mut connection) = self.connect(ADDRESSES, false) else { return false };
        connection.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let text = String::from_utf8_lossy(&connection.read_to_end()).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<u64>().ok()).is_some_and(|value| value <= most)
    }

    /// Asks for the body and reads nothing of it.
    #[track_caller]
    fn check(&self, kind: &str, path: &str, way: Way) {
        let what = format!("{kind}, {way:?}, TLS: {}", self.tls.is_some());
        self.process.forget_memory_peak();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    // While memory is short, a handshake is refused if the client's last one has just ended.
                    wait_until("a sign of life", || self.status("/livez") == Some(200));
                    assert!(began.elapsed() < ALIVE_TIMEOUT, "{what}");
                }
            });
            let _over = SetAtEnd(&is_over);
            let requests = way.requests(path);
            let open = (0..way.connections()).filter_map(|number| {
                let mut connection = self.connect(number % ADDRESSES, way != Way::Http1)?;
                connection.write(&requests);
                Some(connection)
            });
            let open: Vec<Connection> = open.collect();
            // What is read was begun by now, or waits.
            let mut least = u64::MAX;
            let mut looks = 0;
            while looks < 5 {
                std::thread::sleep(Duration::from_millis(100));
                let peak = self.process.memory_peak_bytes();
                looks = if peak == least { looks + 1 } else { 0 };
                least = peak;
            }
            drop(open);
        });
        let taken = self.process.memory_peak_bytes().saturating_sub(self.rest_bytes);
        eprintln!("{what}: {} MiB above rest", taken >> 20);
        assert!(taken <= BYTES_MAX, "{what}: {taken} bytes above rest");
        wait_until("the connections to be gone", || {
            self.is_at_most("larder_http_connections_open", 3)
        });
        wait_until("their memory to be given back", || {
            self.is_at_most("larder_http_connections_memory_bytes", 200 << 10)
        });
    }
}

/// Makes the bodies; kind and path of each.
fn fill(process: &Process, upstream: &Upstream) -> Vec<(&'static str, String)> {
    let client = &process.client;
    let upload = |upload: Upload| client.root().upload("root/dev", &upload).expect(200);
    let large = noise(0, BODY_BYTES);
    client.root().put("/root/dev", json!({})).expect(200);
    let sdist = zip(&[("p/setup.py", b""), ("p/large", &large)]);
    upload(Upload::of("p-1.0.zip", &sdist));
    upload(Upload::docs("p", "1.0", &zip(&[("index.html", b""), ("large.bin", &large)])));
    let text: String = large.iter().map(|byte| char::from(b'!' + byte % 90)).collect();
    client
        .root()
        .typed("text/plain")
        .with("If-None-Match", "*")
        .put("/article/large", text.as_bytes())
        .expect(201);
    client.root().put("/+attachments/large/a.bin", &large).expect(201);
    for name in ["whole-1.0.zip", "arriving-1.0.zip"] {
        upstream.offer(&format!("/files/{name}"), Offer::file(large.clone()).held_after(2 << 20));
    }
    upstream.hold("/files/arriving-1.0.zip");
    let page = |project: &str| {
        let file = file(upstream, &format!("{project}-1.0.zip"), &large);
        upstream.offer(&format!("/simple/{project}/"), mirrors::page(project, json!([file])));
    };
    page("whole");
    page("arriving");
    upstream.offer("/simple/", list(&["whole", "arriving"]));
    let mirror = json!({"type": "mirror", "mirror_url": upstream.url("/simple")});
    client.root().put("/root/up", mirror).expect(200);
    let mirrored = |project: &str| {
        let accept = ("Accept", "application/vnd.pypi.simple.v1+json");
        let page = client.get_with(&format!("/root/up/+simple/{project}/"), &[accept]).json();
        let url = page["files"][0]["url"].as_str().unwrap_or_else(|| panic!("{page}"));
        format!("/root/up/{}", url.trim_start_matches("../"))
    };
    let whole = mirrored("whole");
    let arriving = mirrored("arriving");
    assert!(client.get(&whole).body == large);
    wait_until("the dump", || client.get("/packages-meta-ext-v1.json.gz").status == 200);
    vec![
        ("release file", path("root/dev", "p-1.0.zip", &sdist)),
        ("member of documentation", "/root/dev/p/1.0/+doc/large.bin".to_owned()),
        ("article", "/article/large".to_owned()),
        ("attachment", "/+attachments/large/a.bin".to_owned()),
        ("file of a mirror", whole),
        ("arriving file of a mirror", arriving),
        ("dump", "/packages-meta-ext-v1.json.gz".to_owned()),
        ("list", "/packages-meta-v1.json.gz".to_owned()),
        ("answer", "/rpc/v5/search/package-12".to_owned()),
        ("events", "/changes".to_owned()),
    ]
}

fn check_all(with_tls: bool) {
    allow_connections(2_000);
    let target = Target::start(with_tls);
    for (kind, path) in &target.bodies {
        for way in WAYS {
            target.check(kind, path, way);
        }
    }
}

#[test]
fn answers_of_every_kind_that_nobody_reads() {
    check_all(false);
}

#[test]
fn encrypted_answers_of_every_kind_that_nobody_reads() {
    check_all(true);
}
