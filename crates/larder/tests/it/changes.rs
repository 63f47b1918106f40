//! The feed of changes: lines and events, who may read what, positions that are lost, restarts.

mod aur;
mod stored;
mod webhooks;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use config::Config;
use serde_json::{Value, json};

use crate::client::{Client, Response};
use crate::python::{Upload, sdist};
use crate::server::{ROOT, TestServer};

/// The password of all users of these tests.
const PASSWORD: &str = "open-sesame";

/// A server without the AUR, and `alice` and `bob` on it.
fn start(change: impl FnOnce(&mut Config)) -> TestServer {
    let server = TestServer::without_source(|config| {
        config.aur.enabled = false;
        change(config);
    });
    server.wait_until_ready();
    for user in ["alice", "bob"] {
        send(&server, &[ROOT], "PUT", &format!("/{user}"), &json!({"password": PASSWORD}), 201);
    }
    server
}

/// The header with which this user asks.
fn basic(user: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{PASSWORD}")))
}

/// Sends JSON.
#[track_caller]
fn send(
    server: &TestServer,
    headers: &[(&str, &str)],
    method: &str,
    target: &str,
    body: &Value,
    status: u16,
) -> Response {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let headers: Vec<(&str, &str)> =
        headers.iter().copied().chain([("Content-Type", "application/json")]).collect();
    let response = server.client.send(method, target, &headers, &body);
    assert_eq!(response.status, status, "{method} {target}: {}", response.text());
    response
}

/// Makes or changes an index, as the user whose it is.
#[track_caller]
fn index(server: &TestServer, method: &str, name: &str, config: &Value) {
    let user = basic(name.split('/').next().expect("a user"));
    send(server, &[("Authorization", &user)], method, &format!("/{name}"), config, 200);
}

#[track_caller]
fn upload(server: &TestServer, index: &str, filename: &str) {
    let user = basic(index.split('/').next().expect("a user"));
    let (content_type, body) = Upload::of(filename, &sdist(filename)).form();
    let headers = [("Authorization", user.as_str()), ("Content-Type", content_type.as_str())];
    let done = server.client.send("POST", &format!("/{index}/"), &headers, &body);
    assert_eq!(done.status, 200, "{filename}: {}", done.text());
}

#[track_caller]
fn write_article(server: &TestServer, name_and_base: &str, text: &str) {
    let target = format!("/article/{name_and_base}");
    let headers = [ROOT, ("Content-Type", "text/plain")];
    let done = server.client.send("POST", &target, &headers, text.as_bytes());
    assert_eq!(done.status, 201, "{}", done.text());
}

/// The lines of an answer, the last one apart.
#[derive(Debug)]
struct Lines {
    changes: Vec<Value>,
    next: String,
    more: bool,
}

#[track_caller]
fn lines_of(response: &Response) -> Lines {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), "application/x-ndjson");
    assert_eq!(response.header("cache-control"), "no-store");
    let text = response.text();
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let end = lines.pop().expect("a last line");
    let next = end["next"].as_str().expect("a position").to_owned();
    Lines { changes: lines, next, more: end["more"].as_bool().expect("more or not") }
}

/// The changes after this position; those to come, if it is empty.
#[track_caller]
fn changes(server: &TestServer, surface: &str, since: &str, headers: &[(&str, &str)]) -> Lines {
    let mut target = format!("/changes?surface={surface}");
    if !since.is_empty() {
        target.push_str(&format!("&since={since}"));
    }
    lines_of(&server.client.get_with(&target, headers))
}

/// A change in a few words: kind, type, name, what is different.
fn brief(change: &Value) -> String {
    let text = |member: &str| change[member].as_str().unwrap_or_default().to_owned();
    let mut words = vec![text("kind"), text("type")];
    words.extend(["index", "project"].map(text).into_iter().filter(|text| !text.is_empty()));
    words.push(text("name"));
    if let Some(fields) = change["changed"].as_array() {
        let fields: Vec<&str> = fields.iter().filter_map(Value::as_str).collect();
        words.push(format!("({})", fields.join(" ")));
    }
    words.join(" ")
}

fn briefs(changes: &[Value]) -> Vec<String> {
    changes.iter().map(brief).collect()
}

/// A stream of events, as a browser reads it.
struct Events {
    reader: BufReader<TcpStream>,
    /// The identifier of the last event, or of what moved on without one.
    last_id: String,
}

/// An event.
#[derive(Debug)]
struct Event {
    name: String,
    data: Value,
}

impl Events {
    #[track_caller]
    fn open(client: &Client, target: &str, headers: &[(&str, &str)]) -> Events {
        let mut stream = client.connect();
        let mut request =
            format!("GET {target} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).expect("a request");
        let mut events = Events { reader: BufReader::new(stream), last_id: String::new() };
        let status = events.line().expect("a status line");
        assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
        let mut has_type = false;
        while let Some(line) = events.line().filter(|line| !line.is_empty()) {
            has_type |= line.eq_ignore_ascii_case("content-type: text/event-stream");
        }
        assert!(has_type);
        // The first frame says where the client is.
        while events.last_id.is_empty() {
            let line = events.line().expect("a position");
            events.note_id(&line);
        }
        events
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).expect("a line, or the end");
        (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn note_id(&mut self, line: &str) {
        if let Some(id) = line.strip_prefix("id: ") {
            self.last_id = id.to_owned();
        }
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        let mut name = "message".to_owned();
        loop {
            // Between frames are the lengths of chunks, and 0 at the end; no event looks like one.
            let line = self.line().filter(|line| line != "0")?;
            self.note_id(&line);
            if let Some(given) = line.strip_prefix("event: ") {
                name = given.to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(data).expect("JSON");
                return Some(Event { name, data });
            }
        }
    }

    /// The next change, in a few words.
    #[track_caller]
    fn brief(&mut self) -> String {
        let event = self.next().expect("an event");
        assert_eq!(event.name, "message");
        brief(&event.data)
    }
}
