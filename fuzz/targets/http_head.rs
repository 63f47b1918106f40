//! Bytes on a connection to a running server of all surfaces: requests of HTTP/1 and HTTP/2, and what is none.
//!
//! Every connection ends, and no answer has a status of 500 or more.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use config::{AurSource, Config};
use libfuzzer_sys::fuzz_target;
use net::ListenAddress;
use tokio::signal::unix::{SignalKind, signal};

/// A connection that is silent for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(10);

struct Server {
    socket: PathBuf,
    _runtime: tokio::runtime::Runtime,
    _directory: tempfile::TempDir,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, dump) = (directory.path().join("socket"), directory.path().join("dump.json"));
    std::fs::write(&dump, larder_fuzz::DUMP).expect("a dump");
    let mut config = Config::default();
    config.data_dir = directory.path().join("data");
    config.listen = vec![ListenAddress::Unix(socket.clone())];
    config.aur.source = Some(AurSource::File(dump));
    config.aur.rate_limit = 0;
    config.limits.header_timeout = Duration::from_secs(2);
    config.limits.body_timeout = Duration::from_secs(2);
    config.limits.idle_timeout = Duration::from_secs(2);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let running = runtime.block_on(larder::start(config, Vec::new())).expect("a server");
    // The C entry point of a fuzzer, unlike Rust's, leaves SIGPIPE deadly; any handler makes it an error.
    let _ = runtime.block_on(async { signal(SignalKind::pipe()) }).expect("a signal handler");
    let app = running.app.clone();
    runtime.spawn(running.run_until(std::future::pending()));
    while !app.obstacles().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    runtime.block_on(larder::write_demo_articles(&app)).expect("articles");
    Server { socket, _runtime: runtime, _directory: directory }
});

fuzz_target!(init: { LazyLock::force(&SERVER); }, |data: &[u8]| {
    let mut stream = UnixStream::connect(&SERVER.socket).expect("the server accepts");
    stream.set_read_timeout(Some(SILENCE_MAX)).expect("a timeout");
    stream.set_write_timeout(Some(SILENCE_MAX)).expect("a timeout");
    // The server may hang up before everything is written. What the bytes have left open is ended by
    // one more request, and where that is swallowed as well, by the end of the stream.
    let _ = stream.write_all(data);
    let _ = stream.write_all(b"\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut answers = Vec::new();
    let mut piece = [0; 16 << 10];
    let mut is_shut_down = false;
    loop {
        if !is_shut_down && answers.is_empty() {
            // Without an answer within a moment the server waits for more, or for nothing at all.
            stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(size) => answers.extend_from_slice(&piece[..size]),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {
                assert!(!is_shut_down, "the connection hangs after {:?}", data.escape_ascii().to_string());
                is_shut_down = true;
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(SILENCE_MAX)).expect("a timeout");
            }
            // A connection that was reset has ended, too.
            Err(_) => break,
        }
    }
    let mut rest = &answers[..];
    while let Some(at) = rest.windows(9).position(|window| window == b"HTTP/1.1 " || window == b"HTTP/1.0 ") {
        rest = &rest[at + 9..];
        // A status line, not a body that shows one: three digits and a space.
        if let [class, b'0'..=b'9', b'0'..=b'9', b' ', ..] = rest {
            assert!(*class < b'5', "answered {}", answers.escape_ascii());
        }
    }
});
