//! [`Upstream`]: an index elsewhere that a test scripts: its answers, how slow and how complete they are, and the requests that
//! it got.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Request;

/// A scripted server on this machine. It answers 404 where nothing is offered, and ends with the process.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    script: Mutex<Script>,
    changed: Condvar,
}

#[derive(Default)]
struct Script {
    offers: HashMap<String, Offer>,
    requests: Vec<Request>,
    /// If set, every request is answered so.
    broken: Option<u16>,
    /// Paths that are answered no further than [`Offer::held_after`].
    held: Vec<String>,
}

/// The answer at a path.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The status.
    pub status: u16,
    /// Header lines without line ends; the length is added.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
    /// A request with this tag gets 304.
    pub etag: Option<String>,
    /// How much of the body is sent before the connection is closed.
    pub sent_bytes_max: usize,
    /// While the path is held: how much of the answer's body is sent; `None` is nothing at all, not even its head.
    pub held_after: Option<usize>,
}

impl Offer {
    /// A body of this content type, with 200.
    pub fn of(content_type: &str, body: impl Into<Vec<u8>>) -> Offer {
        Offer {
            status: 200,
            headers: vec![format!("Content-Type: {content_type}")],
            body: body.into(),
            etag: None,
            sent_bytes_max: usize::MAX,
            held_after: None,
        }
    }

    /// A page or a list as JSON.
    pub fn json(body: impl Into<Vec<u8>>) -> Offer {
        Offer::of("application/vnd.pypi.simple.v1+json", body)
    }

    /// A file.
    pub fn file(body: impl Into<Vec<u8>>) -> Offer {
        Offer::of("application/octet-stream", body)
    }

    /// An answer with this status.
    pub fn status(status: u16) -> Offer {
        Offer { status, ..Offer::of("text/plain", "no") }
    }

    /// Adds a header line.
    #[must_use]
    pub fn with(mut self, line: &str) -> Offer {
        self.headers.push(line.to_owned());
        self
    }

    /// Adds an `ETag`.
    #[must_use]
    pub fn tagged(self, etag: &str) -> Offer {
        Offer { etag: Some(etag.to_owned()), ..self }
    }

    /// Cuts the body off after `sent_bytes_max` bytes.
    #[must_use]
    pub fn cut(self, sent_bytes_max: usize) -> Offer {
        Offer { sent_bytes_max, ..self }
    }

    /// Sends the first `bytes` of the body even while the path is held.
    #[must_use]
    pub fn held_after(self, bytes: usize) -> Offer {
        Offer { held_after: Some(bytes), ..self }
    }
}

impl Upstream {
    /// Starts one on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let upstream = Upstream { address, state: Arc::default() };
        let state = upstream.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || {
                    // The client may go away.
                    let _ = answer(stream, &state);
                });
            }
        });
        upstream
    }

    /// The URL of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.state.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers with this at the path from now on; `HEAD /path` is for requests with that method alone.
    pub fn offer(&self, path: &str, offer: Offer) {
        self.script().offers.insert(path.to_owned(), offer);
    }

    /// Answers every request with this status from now on; `None`: as offered.
    pub fn break_with(&self, status: Option<u16>) {
        self.script().broken = status;
    }

    /// Makes requests for the path wait from now on.
    pub fn hold(&self, path: &str) {
        self.script().held.push(path.to_owned());
    }

    /// Requests for the path wait no longer.
    pub fn release(&self, path: &str) {
        self.script().held.retain(|held| held != path);
        self.state.changed.notify_all();
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.script().requests.clone()
    }

    /// How often this path was asked for.
    pub fn count(&self, path: &str) -> usize {
        self.script().requests.iter().filter(|request| request.path == path).count()
    }

    /// Waits until the path was asked for so often.
    pub fn wait_for(&self, path: &str, count: usize) {
        let mut script = self.script();
        while script.requests.iter().filter(|request| request.path == path).count() < count {
            script = self.state.changed.wait(script).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn answer(mut stream: TcpStream, state: &State) -> io::Result<()> {
    let lock = || state.script.lock().unwrap_or_else(PoisonError::into_inner);
    let request = Request::read(&stream)?;
    let (method, path) = (request.method.clone(), request.path.clone());
    let known = request.header("if-none-match").to_owned();
    let offer = {
        let mut script = lock();
        script.requests.push(request);
        state.changed.notify_all();
        match script.broken {
            Some(status) => Offer::status(status),
            None => {
                let of_method = script.offers.get(&format!("{method} {path}"));
                let offer = of_method.or_else(|| script.offers.get(&path));
                offer.cloned().unwrap_or_else(|| Offer::status(404))
            }
        }
    };
    let wait = || {
        let mut script = lock();
        while script.held.contains(&path) {
            script = state.changed.wait(script).unwrap_or_else(PoisonError::into_inner);
        }
    };
    if offer.held_after.is_none() {
        wait();
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\nConnection: close\r\n", offer.status);
    if let Some(etag) = &offer.etag {
        if *etag == known {
            let own = offer.headers.iter().filter(|line| line.starts_with("X-"));
            let own: String = own.map(|line| format!("{line}\r\n")).collect();
            return write!(
                stream,
                "HTTP/1.1 304 Not Modified\r\nETag: {etag}\r\n{own}Connection: close\r\n\r\n"
            );
        }
        head.push_str(&format!("ETag: {etag}\r\n"));
    }
    for line in &offer.headers {
        head.push_str(&format!("{line}\r\n"));
    }
    let is_length_named = offer.headers.iter().any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("content-length:") || line.starts_with("transfer-encoding:")
    });
    if !is_length_named {
        head.push_str(&format!("Content-Length: {}\r\n", offer.body.len()));
    }
    write!(stream, "{head}\r\n")?;
    if method == "HEAD" {
        return Ok(());
    }
    let end = offer.body.len().min(offer.sent_bytes_max);
    let first = offer.held_after.unwrap_or(end).min(end);
    stream.write_all(&offer.body[..first])?;
    stream.flush()?;
    wait();
    stream.write_all(&offer.body[first..end])
}
