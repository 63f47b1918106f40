//! [`Receiver`]: a server elsewhere that takes whole requests, keeps them, and answers each as a test says.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A server on this machine, which ends with the process.
#[derive(Clone)]
pub struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A request that a server of a test got.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// The header lines; their names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as it came, with the frames of its chunks if it has some.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads a request to its end.
    pub(crate) fn read(stream: &TcpStream) -> io::Result<Request> {
        let mut reader = BufReader::new(stream);
        let mut lines = reader.by_ref().lines();
        let first = lines.next().transpose()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = Vec::new();
        while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut request = Request { method, path, headers, body: Vec::new() };
        if request.header("transfer-encoding") == "chunked" {
            while !request.body.ends_with(b"0\r\n\r\n") {
                let mut byte = [0];
                reader.read_exact(&mut byte)?;
                request.body.extend(byte);
            }
        } else {
            request.body.resize(request.header("content-length").parse().unwrap_or(0), 0);
            reader.read_exact(&mut request.body)?;
        }
        Ok(request)
    }

    /// A header's value; empty without one.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

impl Receiver {
    /// Starts one on a free port of 127.0.0.1. It sends these bytes for each request, and closes.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let receiver = Receiver { address, requests: Arc::default() };
        let (answer, requests) = (Arc::new(answer), receiver.requests.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (answer, requests) = (answer.clone(), requests.clone());
                std::thread::spawn(move || {
                    // The client may go away, before its request has ended or before the answer has.
                    let Ok(request) = Request::read(&stream) else { return };
                    requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                    let _ = stream.write_all(&answer(&request));
                });
            }
        });
        receiver
    }

    /// An answer with this status line after the version, further header lines, and this body.
    pub fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    /// The URL of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
