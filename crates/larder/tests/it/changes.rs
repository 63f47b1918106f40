//! The feed of changes: lines and events, who may read what, positions that are lost, restarts.

mod aur;
mod looked;
mod stored;
mod webhooks;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use config::Config;
use serde_json::{Value, json};

use crate::asking::Ask;
use crate::client::{Client, Response};
use crate::server::TestServer;

/// The password of all users of these tests.
const PASSWORD: &str = "open-sesame";

/// A server without the AUR, and `alice` and `bob` on it.
fn start(change: impl FnOnce(&mut Config)) -> TestServer {
    let server = TestServer::without_aur(change);
    for user in ["alice", "bob"] {
        server.add_user(user, PASSWORD);
    }
    server
}

/// Makes or changes an index, as the user whose it is.
#[track_caller]
fn index(server: &TestServer, method: &str, name: &str, config: &Value) {
    owner(server, name).send(method, &format!("/{name}"), config).expect(200);
}

/// Asks as the user whose index this is.
fn owner(server: &TestServer, index: &str) -> Ask {
    server.user(index.split('/').next().expect("a user"), PASSWORD)
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
    response.check_status(200);
    response.has("content-type", "application/x-ndjson").has("cache-control", "no-store");
    let mut lines = response.json_lines();
    let end = lines.pop().expect("a last line");
    let next = end["next"].as_str().expect("a position").to_owned();
    Lines { changes: lines, next, more: end["more"].as_bool().expect("more or not") }
}

/// The changes after this position; those to come, if it is empty.
#[track_caller]
fn changes(ask: &Ask, surface: &str, since: &str) -> Lines {
    let mut target = format!("/changes?surface={surface}");
    if !since.is_empty() {
        target.push_str(&format!("&since={since}"));
    }
    lines_of(&ask.get(&target))
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
