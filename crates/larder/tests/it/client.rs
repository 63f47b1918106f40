//! An HTTP client that sends exactly the given bytes and shows exactly the answer.
//!
//! Every request has its own connection and reads it to the end, so nothing may follow an answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::{PATIENCE, wait_until};

/// Whom to ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Response {
    /// The request, for those who read of a failure; empty if only its bytes were known.
    pub(crate) asked: String,
    pub(crate) status: u16,
    /// Names in lower case, in the order of the answer.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn get(&self, target: &str) -> Response {
        self.send("GET", target, &[], b"")
    }

    pub(crate) fn get_with(&self, target: &str, headers: &[(&str, &str)]) -> Response {
        self.send("GET", target, headers, b"")
    }

    pub(crate) fn post(&self, target: &str, content_type: &str, body: &[u8]) -> Response {
        self.send("POST", target, &[("Content-Type", content_type)], body)
    }

    pub(crate) fn form(&self, target: &str, body: &str) -> Response {
        self.post(target, "application/x-www-form-urlencoded", body.as_bytes())
    }

    /// Sends the target unchanged, whatever bytes it has.
    #[track_caller]
    pub(crate) fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let bytes = self.request(method, target, headers, body);
        let start = String::from_utf8_lossy(&body[..body.len().min(200)]);
        let asked = format!("{method} {target} {headers:?} {start:?}");
        Response { asked, ..self.exchange(&bytes, method == "HEAD") }
    }

    /// [`Client::send`] from 127.0.0.`host`, which does not wait for the answer.
    #[track_caller]
    pub(crate) fn begin_from(
        &self,
        host: u8,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> TcpStream {
        let mut stream = connect_from(host, self.address);
        // A server that refuses a body may close before it has been sent.
        let _ = stream.write_all(&self.request(method, target, headers, body));
        stream
    }

    pub(crate) fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<u8> {
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.address
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || method == "POST" {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Sends these bytes and reads until the server closes.
    #[track_caller]
    pub(crate) fn exchange(&self, request: &[u8], is_head: bool) -> Response {
        let mut stream = self.connect();
        // A server that refuses a body may close before it has been sent.
        let _ = stream.write_all(request);
        Response::read(&mut stream, is_head)
    }

    /// Sends a request; returns its status and the rest of the answer, or `None` if the server is gone.
    pub(crate) fn try_exchange(&self, request: &[u8]) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(request).ok()?;
        let mut answer = Vec::new();
        // A reset is an end: what came before counts.
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        Some((text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?, text))
    }

    /// Waits until nobody listens any more.
    pub(crate) fn wait_until_closed(&self) {
        wait_until("the listener to close", || TcpStream::connect(self.address).is_err());
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

/// A connection from 127.0.0.`host`.
#[track_caller]
pub(crate) fn connect_from(host: u8, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::from(([127, 0, 0, host], 0));
    socket.bind(&from.into()).expect("an address of this machine");
    socket.connect(&address.into()).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

impl Response {
    /// Sends the body of a request that was begun, and reads to the end of the stream.
    #[track_caller]
    pub(crate) fn after(body: impl AsRef<[u8]>, mut stream: TcpStream) -> Response {
        stream.write_all(body.as_ref()).expect("the server reads");
        Response::read(&mut stream, false)
    }

    /// Reads to the end of the stream: one answer and nothing else.
    #[track_caller]
    pub(crate) fn read(stream: &mut impl Read, is_head: bool) -> Response {
        let mut bytes = Vec::new();
        // Bytes before a reset count.
        let outcome = stream.read_to_end(&mut bytes);
        Response::parse(&bytes, is_head)
            .unwrap_or_else(|| panic!("{outcome:?}, {}", String::from_utf8_lossy(&bytes)))
    }

    /// One whole answer; `None` if it is cut, or longer than it says.
    pub(crate) fn parse(bytes: &[u8], is_head: bool) -> Option<Response> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .map(|line| {
                line.split_once(": ")
                    .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            })
            .collect::<Option<_>>()?;
        let (asked, body) = (String::new(), bytes[end + 4..].to_vec());
        let mut response = Response { asked, status, headers, body };
        if is_head {
            assert!(response.body.is_empty(), "a body after HEAD: {:?}", response.text());
        } else if response.header("transfer-encoding") == "chunked" {
            response.body = unchunk(&response.body)?;
        } else if let Some(length) = response.find("content-length")
            && length != response.body.len().to_string()
        {
            return None;
        }
        Some(response)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The header's value, empty without one.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// The names of the headers, sorted.
    pub(crate) fn header_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Its lines, each of which is JSON.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let text = self.text();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The names of the packages in the answer, or of a suggestion, with blanks between; or the error.
    #[track_caller]
    pub(crate) fn names(&self) -> String {
        let json = self.json();
        if let Some(error) = json["error"].as_str() {
            return format!("error: {error}");
        }
        let list = match &json {
            Value::Array(list) => list,
            other => other["results"].as_array().expect("results"),
        };
        let names =
            list.iter().map(|item| item.as_str().or(item["Name"].as_str()).expect("a name"));
        names.collect::<Vec<_>>().join(" ")
    }
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        bytes = &bytes[end + 2..];
        if length == 0 {
            return (bytes == b"\r\n").then_some(body);
        }
        body.extend_from_slice(bytes.get(..length)?);
        bytes = bytes.get(length + 2..)?;
    }
}
