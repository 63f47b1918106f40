//! The largest, the widest, the deepest and the slowest bodies, for every endpoint that takes one, from strangers and as
//! each role: resident memory stays within a bound above rest, and the server answers meanwhile.
//!
//! What is measured is the peak of resident memory (`VmHWM`, reset before each attack): a limit on the address space
//! (`ulimit -v`) would count what the allocator reserves and never touches. With `LARDER_TEST_LONG` there are more
//! requests at once, and more of the unfinished ones.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::catalogue;
use crate::client::{Client, Response};
use crate::process::{Process, init};
use crate::python::{Upload, path, sdist};
use crate::server::{ROOT, ROOT_PASSWORD};
use crate::{SetAtEnd, is_long};

/// Memory that all requests of strangers may take, above rest.
pub(super) const STRANGERS_BYTES_MAX: u64 = 64 << 20;

/// Memory that all requests of users may take, above rest: the whole budget, and memory that is not counted.
const USERS_BYTES_MAX: u64 = 96 << 20;

/// Size of the bodies that are too large for everything but uploads.
const LARGE_BYTES: usize = 5 << 20;

/// The sender.
#[derive(Clone, Debug)]
struct Role {
    name: &'static str,
    header: Option<(&'static str, String)>,
}

/// Something that takes a body.
#[derive(Clone, Debug)]
struct Endpoint {
    method: &'static str,
    path: String,
    /// The media type, and what stands before and after the JSON or text that is tried.
    content_type: &'static str,
    around: [&'static str; 2],
    /// The most that it takes.
    bytes_max: usize,
}

fn endpoint(
    method: &'static str,
    path: &str,
    content_type: &'static str,
    around: [&'static str; 2],
    bytes_max: usize,
) -> Endpoint {
    Endpoint { method, path: path.to_owned(), content_type, around, bytes_max }
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=b";
const FIELD: &str = "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n";

/// Every endpoint that takes a body; `tested` is the path of a release file.
fn endpoints(tested: &str) -> Vec<Endpoint> {
    let whole = ["", ""];
    vec![
        endpoint("POST", "/+login", JSON, whole, 16 << 10),
        endpoint("POST", "/+login", JSON, ["{\"user\":", ",\"password\":\"x\"}"], 16 << 10),
        endpoint("PUT", "/mallory", JSON, whole, 256 << 10),
        endpoint("PUT", "/mallory", JSON, ["{\"custom_data\":", "}"], 256 << 10),
        endpoint("PATCH", "/root", JSON, whole, 256 << 10),
        endpoint("PATCH", "/alice", JSON, ["{\"custom_data\":", "}"], 256 << 10),
        endpoint("PUT", "/alice/new", JSON, ["{\"custom_data\":", "}"], 512 << 10),
        endpoint("PATCH", "/alice/dev", JSON, whole, 512 << 10),
        endpoint("PATCH", "/alice/dev", JSON, ["{\"bases\":", "}"], 512 << 10),
        endpoint("PUSH", "/alice/dev", JSON, whole, 32 << 10),
        endpoint("POST", "/alice/dev", JSON, ["{\"name\":", "}"], 32 << 10),
        endpoint("POST", "/alice/dev", FORM, whole, 4 << 20),
        endpoint("POST", "/alice/dev", MULTIPART, [FIELD, "\r\n--b--"], 4 << 20),
        endpoint("POST", "/alice/dev", "text/xml", whole, 64 << 10),
        endpoint("POST", "/alice/dev/+retention", JSON, whole, 16 << 10),
        endpoint("POST", "/alice/dev/+prefetch", "text/plain", whole, 4 << 20),
        endpoint("POST", "/alice/dev/+prefetch", "text/plain", ["a=", ""], 4 << 20),
        endpoint("POST", "/alice/dev/p/1.0/+yank", JSON, ["{\"reason\":", "}"], 16 << 10),
        endpoint("PUT", "/alice/dev/p/+status", JSON, ["{\"status\":", "}"], 16 << 10),
        endpoint("POST", &format!("{tested}/+yank"), JSON, whole, 16 << 10),
        endpoint("POST", tested, JSON, whole, 4 << 20),
        endpoint("POST", "/+tokens", JSON, ["{\"scopes\":", "}"], 16 << 10),
        endpoint("POST", "/actions", JSON, ["{\"actions\":{\"aur.search\":", "}}"], 1 << 20),
        endpoint("POST", "/actions", JSON, ["{\"actions\":", "}"], 1 << 20),
        endpoint("POST", "/rpc", FORM, whole, 1 << 20),
        endpoint("POST", "/rpc", MULTIPART, [FIELD, "\r\n--b--"], 1 << 20),
        endpoint("POST", "/rpc/v5/info", JSON, ["{\"arg\":", "}"], 1 << 20),
        endpoint("POST", "/rpc/v5/search", JSON, whole, 1 << 20),
        endpoint("PUT", "/article/a", "text/plain", whole, 4 << 20),
    ]
}

/// `times` of `part` between a start and an end, as many as fit into `bytes`.
fn repeated(start: &str, part: &str, end: &str, bytes: usize) -> Vec<u8> {
    let times = bytes.saturating_sub(start.len() + end.len()) / part.len();
    [start, &part.repeat(times), end].concat().into_bytes()
}

/// Bodies of this many bytes: the widest, the deepest, the longest.
fn bodies(endpoint: &Endpoint, bytes: usize) -> Vec<Vec<u8>> {
    let [before, after] = endpoint.around;
    let bytes = bytes - before.len() - after.len();
    let parts = [
        ("[", "{\"\":0},", "0]"),
        ("[", "[],", "0]"),
        ("[", "\"\",", "0]"),
        ("[", "0,", "0]"),
        ("{", "\"\":{},", "\"\":0}"),
        ("", "[", ""),
        ("", "{\"\":", ""),
        ("\"", "\\u0001", "\""),
        ("", "arg[]=a&", ""),
        ("", "&=", ""),
        ("", "%", ""),
        ("", "<a>", ""),
        ("<a ", "b='' ", "/>"),
        ("", "\r\n--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n", ""),
    ];
    let around = |(start, part, end): (&str, &str, &str)| {
        let inner = repeated(start, part, end, bytes);
        [before.as_bytes(), &inner, after.as_bytes()].concat()
    };
    parts.into_iter().map(around).collect()
}

/// The head of a request with a body of this many bytes, or of any number in chunks.
fn head(endpoint: &Endpoint, role: &Role, length: Option<usize>) -> String {
    let Endpoint { method, path, content_type, .. } = endpoint;
    let framing = match length {
        Some(length) => format!("Content-Length: {length}"),
        None => "Transfer-Encoding: chunked".to_owned(),
    };
    let credentials = role
        .header
        .as_ref()
        .map_or_else(String::new, |(name, value)| format!("{name}: {value}\r\n"));
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
         {credentials}{framing}\r\n\r\n"
    )
}

/// Sends a whole request; its status, if there is an answer.
fn exchange(client: &Client, request: &[u8]) -> Option<u16> {
    let mut stream = client.connect();
    // The server may refuse before all is sent.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    status(&answer)
}

fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
}

/// A server with a user, an index, a release and a catalogue, and what its memory is at rest.
pub(super) struct Target {
    pub(super) process: Process,
    roles: Vec<Role>,
    endpoints: Vec<Endpoint>,
    /// Resident memory before the first attack.
    pub(super) rest_bytes: u64,
}

impl Target {
    pub(super) fn start(more: &[&str]) -> Target {
        Target::start_with(more, catalogue::small())
    }

    /// Starts a server with this dump.
    pub(super) fn start_with(more: &[&str], dump: Vec<u8>) -> Target {
        let arguments = [&["--aur-source", "dump.json"], more].concat();
        let process = Process::start(&arguments, |directory| {
            fs::write(directory.join("dump.json"), dump).expect("a dump");
            init(directory);
        });
        let client = &process.client;
        client.add_user("alice", "open-sesame");
        client.root().put("/alice/dev", json!({"acl_upload": ["alice", "root"]})).expect(200);
        let token = |scope: &str| {
            let token = client.user("alice", "open-sesame").make_token(json!({"scopes": [scope]}));
            ("Authorization", format!("Bearer {token}"))
        };
        let roles = vec![
            Role { name: "anonymous", header: None },
            Role { name: "uploader", header: Some(token("python:upload")) },
            Role { name: "writer", header: Some(token("article:write")) },
            Role { name: "keeper", header: Some(token("python:admin")) },
            Role { name: "root", header: Some((ROOT.0, ROOT.1.to_owned())) },
        ];
        let tested = upload(client);
        let rest_bytes = at_rest(&process);
        Target { process, roles, endpoints: endpoints(&tested), rest_bytes }
    }

    /// Does this while another client asks whether the server is up, and looks at the most memory that it took meanwhile.
    #[track_caller]
    fn check(&self, what: &str, bytes_max: u64, attack: impl FnOnce()) {
        self.check_above(self.process.memory_bytes(), what, bytes_max, attack);
    }

    /// [`Target::check`], counted from `rest` instead of the current memory.
    #[track_caller]
    pub(super) fn check_above(&self, rest: u64, what: &str, bytes_max: u64, attack: impl FnOnce()) {
        self.process.forget_memory_peak();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(self.process.client.get("/livez").status, 200, "{what}");
                }
            });
            let _over = SetAtEnd(&is_over);
            attack();
        });
        let taken = self.process.memory_peak_bytes().saturating_sub(rest);
        eprintln!("{what}: {} MiB above rest", taken >> 20);
        assert!(
            taken <= bytes_max,
            "{what}: {taken} bytes above rest, and {bytes_max} are allowed"
        );
    }
}

/// Resident memory after the memory of the start, such as for hashing passwords, was returned to the system.
pub(super) fn at_rest(process: &Process) -> u64 {
    let mut least = process.memory_bytes();
    let mut looks = 0;
    while looks < 3 {
        std::thread::sleep(Duration::from_millis(400));
        let now = process.memory_bytes();
        looks = if now + (1 << 20) < least { 0 } else { looks + 1 };
        least = least.min(now);
    }
    least
}

/// Uploads a release as root; its path.
fn upload(client: &Client) -> String {
    let file = sdist("x");
    client.root().upload("alice/dev", &Upload::of("p-1.0.zip", &file)).expect(200);
    path("alice/dev", "p-1.0.zip", &file)
}

/// Sends all requests, this many at a time.
fn send_all(client: &Client, requests: &[Vec<u8>], at_once: usize) {
    for some in requests.chunks(at_once) {
        std::thread::scope(|scope| {
            for request in some {
                scope.spawn(|| {
                    let status = exchange(client, request);
                    let start = String::from_utf8_lossy(&request[..request.len().min(60)]);
                    assert!(status.is_none_or(|status| status < 600 && status != 500), "{start}");
                });
            }
        });
    }
}

/// A body in chunks, so that nothing announces its size.
fn chunked(body: &[u8]) -> Vec<u8> {
    let chunks = body
        .chunks(60_000)
        .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    let mut all = chunks.collect::<Vec<_>>().concat();
    all.extend(b"0\r\n\r\n");
    all
}

/// The largest that each endpoint takes, and larger ones that nothing announces, of every kind.
fn check_wide_and_deep(target: &Target, roles: &[Role], bytes_max: u64) {
    let copies = if is_long() { 8 } else { 2 };
    for role in roles {
        for endpoint in &target.endpoints {
            let fitting = bodies(endpoint, endpoint.bytes_max).into_iter().flat_map(|body| {
                let request = [head(endpoint, role, Some(body.len())).as_bytes(), &body].concat();
                vec![request; copies]
            });
            let large = bodies(endpoint, LARGE_BYTES).into_iter().take(1).flat_map(|body| {
                let body = chunked(&body);
                vec![[head(endpoint, role, None).as_bytes(), &body].concat(); copies]
            });
            let requests: Vec<_> = fitting.chain(large).collect();
            let what = format!("{}, {} {}", role.name, endpoint.method, endpoint.path);
            target.check(&what, bytes_max, || {
                send_all(&target.process.client, &requests, 2 * copies);
            });
        }
    }
}

#[test]
fn wide_and_deep_bodies_of_strangers() {
    let target = Target::start(&[]);
    check_wide_and_deep(&target, &target.roles[..1], STRANGERS_BYTES_MAX);
}

#[test]
fn wide_and_deep_bodies_of_strangers_who_may_do_as_with_devpi() {
    let target = Target::start(&["--python-devpi-defaults"]);
    check_wide_and_deep(&target, &target.roles[..1], STRANGERS_BYTES_MAX);
}

#[test]
fn wide_and_deep_bodies_of_users() {
    let target = Target::start(&[]);
    let roles = if is_long() { &target.roles[1..] } else { &target.roles[4..] };
    check_wide_and_deep(&target, roles, USERS_BYTES_MAX);
}

/// Begins requests whose bodies never end; those that were not refused meanwhile are open until the end.
fn begin_unfinished(
    target: &Target,
    endpoint: &Endpoint,
    role: &Role,
    number: usize,
) -> Vec<TcpStream> {
    let body = vec![b'['; endpoint.bytes_max - 1];
    let request = [head(endpoint, role, Some(body.len() + 1)).as_bytes(), &body].concat();
    let begin = || {
        let mut stream = target.process.connect();
        let _ = stream.write_all(&request);
        stream
    };
    std::iter::repeat_with(begin).take(number).collect()
}

fn login(client: &Client) -> Response {
    client.anybody().typed(JSON).post("/+login", json!({"user": "root", "password": ROOT_PASSWORD}))
}

/// Bodies that never end take no more than their share, and leave room for others: for a login from the same address, for
/// users, and for refused clients, which are told when to try again.
fn check_unfinished(more: &[&str], roles: std::ops::Range<usize>, bytes_max: u64) {
    let target = Target::start(more);
    let client = &target.process.client;
    let number = if is_long() { 1_000 } else { 200 };
    for role in &target.roles[roles] {
        for endpoint in &target.endpoints {
            let what = format!("unfinished, {}, {} {}", role.name, endpoint.method, endpoint.path);
            target.check(&what, bytes_max, || {
                let open = begin_unfinished(&target, endpoint, role, number);
                let written = client.root().typed("text/plain").put("/article/by-root", "x");
                // The second time it exists already.
                assert!(matches!(written.status, 201 | 428), "{what}: {}", written.text());
                let answer = login(client);
                assert!(matches!(answer.status, 200 | 503), "{what}: {}", answer.text());
                if answer.status == 503 {
                    assert!(!answer.header("retry-after").is_empty(), "{what}");
                }
                drop(open);
            });
            client.wait_for("/metrics", "\nlarder_http_body_memory_bytes 0\n");
            assert_eq!(login(client).status, 200, "{what}");
        }
    }
}

#[test]
fn bodies_of_strangers_that_never_end() {
    // With devpi's defaults, strangers may send more.
    check_unfinished(&["--python-devpi-defaults"], 0..1, STRANGERS_BYTES_MAX);
    if is_long() {
        check_unfinished(&[], 0..1, STRANGERS_BYTES_MAX);
    }
}

#[test]
fn bodies_of_users_that_never_end() {
    check_unfinished(&[], if is_long() { 1..5 } else { 1..2 }, USERS_BYTES_MAX);
}
