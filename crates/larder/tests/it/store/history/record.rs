//! What is written down: each call of each client with its times and its answer, faults, and what the feeds say. The program in
//! `crates/testbed/porcupine` reads these lines.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Response;

/// How long a client waits for an answer. One that comes later is none.
const PATIENCE: Duration = Duration::from_secs(20);

/// A history that is being recorded.
pub(super) struct Recorder {
    began: Instant,
    path: PathBuf,
    lines: Mutex<BufWriter<File>>,
}

impl Recorder {
    pub(super) fn new(path: &Path, is_fleet: bool) -> Recorder {
        let file = File::create(path).expect("a file");
        let lines = Mutex::new(BufWriter::new(file));
        let recorder = Recorder { began: Instant::now(), path: path.to_owned(), lines };
        recorder.write(&json!({"type": "store", "fleet": is_fleet}));
        recorder
    }

    pub(super) fn write(&self, line: &Value) {
        let mut lines = self.lines.lock().expect("no panic");
        writeln!(lines, "{line}").expect("a disk with room");
    }

    /// Notes what was done to the servers.
    pub(super) fn fault(&self, what: &str) {
        self.write(&json!({"type": "fault", "what": what, "at": self.now()}));
    }

    /// Nanoseconds since it began, never 0.
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    /// The file, with everything in it.
    pub(super) fn finished(&self) -> &Path {
        self.lines.lock().expect("no panic").flush().expect("a disk with room");
        &self.path
    }
}

/// What came of a request.
pub(super) enum Sent {
    /// Nobody listened.
    Refused,
    /// It was sent, and there was no whole answer: nobody knows what came of it.
    Lost,
    Answered(Response),
}

/// Sends a request. With `is_cut`, the line breaks before the answer arrives.
pub(super) fn send(address: SocketAddr, request: &[u8], is_cut: bool) -> Sent {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return Sent::Refused;
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answer = Vec::new();
    if stream.write_all(request).is_err() || is_cut {
        return Sent::Lost;
    }
    // What came before a reset may be whole.
    let _ = stream.read_to_end(&mut answer);
    Response::parse(&answer, false).map_or(Sent::Lost, Sent::Answered)
}

/// Random numbers that are the same for the same seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// True once in so many times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
