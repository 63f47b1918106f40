//! The clients: each asks for one random thing after the other, of what all of them know, at any of the processes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use record::Digest;
use serde_json::{Map, Value, json};

use super::record::{Random, Recorder, Sent, send};
use crate::client::Response;
use crate::python::{Upload, sdist};
use crate::server::ROOT;

/// Articles, projects and tokens that are in use at a time; and how many calls later others are.
const AT_A_TIME: u64 = 3;
pub(super) const CALLS_OF_EPOCH: u64 = 500;
/// Releases of a project; the model has as many.
const RELEASES: u64 = 4;
/// Users that an index may name.
const MEMBERS: u64 = 8;

/// What all clients share.
pub(super) struct Run {
    pub(super) recorder: Recorder,
    /// Several processes share the store.
    pub(super) is_fleet: bool,
    /// Clients send the serial that they have seen, on one process now and then.
    pub(super) names_seen: bool,
    /// Where each process listens now, and which of its runs it is; `None` while it does not run.
    pub(super) servers: Mutex<Vec<Option<(SocketAddr, u32)>>>,
    pub(super) is_over: AtomicBool,
    pub(super) calls: AtomicU64,
    /// The highest serial that any client has seen.
    pub(super) seen: AtomicU64,
    texts: AtomicU64,
    known: Mutex<Known>,
    /// An answer that is given again later, to anybody who asks the same: a planted fault.
    pub(super) replayed: Option<Mutex<Option<Vec<u8>>>>,
}

/// What the clients believe, so that many of their writes succeed.
#[derive(Default)]
struct Known {
    /// By key and name: the version and the file of an article, and whether it has the other name now.
    articles: HashMap<(u64, &'static str), Article>,
    tokens: Vec<Token>,
    tokens_made: u64,
}

#[derive(Clone, Default)]
struct Article {
    version: u64,
    is_elsewhere: bool,
    file: String,
}

#[derive(Clone)]
struct Token {
    number: u64,
    id: String,
    secret: String,
    version: u64,
    /// The commit that made it: who uses the token knows of it.
    serial: u64,
}

impl Run {
    pub(super) fn new(recorder: Recorder, is_fleet: bool) -> Run {
        Run {
            recorder,
            is_fleet,
            names_seen: true,
            servers: Mutex::default(),
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            texts: AtomicU64::new(0),
            known: Mutex::default(),
            replayed: None,
        }
    }

    /// A text that nobody else sends.
    fn text(&self, what: &str) -> String {
        format!("{what}{}", self.texts.fetch_add(1, SeqCst))
    }

    fn epoch(&self) -> u64 {
        self.calls.load(SeqCst) / CALLS_OF_EPOCH
    }
}

/// What a client was told.
struct Told {
    status: u64,
    version: u64,
    got: String,
    serial: u64,
    response: Response,
}

/// What a call sends.
struct Request<'call> {
    method: &'call str,
    target: String,
    /// The token that is used; `root` asks without.
    token: Option<&'call str>,
    headers: Vec<(&'call str, String)>,
    body: Vec<u8>,
}

impl<'call> Request<'call> {
    fn new(method: &'call str, target: String) -> Request<'call> {
        Request { method, target, token: None, headers: Vec::new(), body: Vec::new() }
    }

    fn with(mut self, name: &'call str, value: impl Into<String>) -> Request<'call> {
        self.headers.push((name, value.into()));
        self
    }

    fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Request<'call> {
        self.body = body.into();
        self.with("Content-Type", content_type)
    }

    fn json(self, body: &Value) -> Request<'call> {
        self.body("application/json", body.to_string())
    }

    fn bytes(&self, seen: Option<u64>) -> Vec<u8> {
        let Request { method, target, token, headers, body } = self;
        let bearer = token.map(|token| format!("Bearer {token}"));
        let authorization = bearer.as_deref().unwrap_or(ROOT.1);
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {authorization}\r\n"
        );
        if let Some(seen) = seen {
            head += &format!("X-Larder-Serial: {seen}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if *method != "GET" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        [head.as_bytes(), b"\r\n", body].concat()
    }
}

/// One client.
pub(super) struct Worker<'run> {
    run: &'run Run,
    number: u64,
    /// The highest serial that this client has seen.
    seen: u64,
    random: Random,
    /// Nothing is cut any more, and every process answers.
    is_calm: bool,
}

impl<'run> Worker<'run> {
    pub(super) fn new(run: &'run Run, number: u64) -> Worker<'run> {
        Worker { run, number, seen: 0, random: Random::new(number), is_calm: false }
    }

    /// Asks until the run is over.
    pub(super) fn work(&mut self) {
        while !self.run.is_over.load(SeqCst) {
            self.step();
            let pause = self.random.below(24);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    /// Reads everything that may have been written, as a client that has seen all.
    pub(super) fn read_all(&mut self) {
        self.is_calm = true;
        self.seen = self.run.seen.load(SeqCst);
        for number in 0..(self.run.epoch() + 1) * AT_A_TIME {
            for name in ["a", "b"] {
                self.read(number, name);
                self.read_file(number, name);
            }
            for stage in ["dev", "final"] {
                self.read_page(number, stage);
            }
        }
        for number in 0..=self.run.epoch() {
            self.read_index(number);
        }
        let made = self.run.known.lock().expect("no panic").tokens_made;
        (0..made).for_each(|number| self.read_of_token(number));
    }

    fn step(&mut self) {
        self.run.calls.fetch_add(1, SeqCst);
        let number = self.run.epoch() * AT_A_TIME + self.random.below(AT_A_TIME);
        let name = ["a", "b"][self.random.below(2) as usize];
        let stage = if self.random.once_in(3) { "final" } else { "dev" };
        match self.random.below(100) {
            0..20 => self.read(number, name),
            20..42 => self.write(number, name),
            42..45 => self.rename(number, name),
            45..50 => self.attach(number, name),
            50..54 => self.read_file(number, name),
            54..62 => self.upload(number, stage),
            62..66 => self.yank(number, stage),
            66..69 => self.delete(number),
            69..73 => self.push(number),
            73..80 => self.read_page(number, stage),
            80..84 => self.change_index(self.run.epoch()),
            84..87 => self.read_index(self.run.epoch()),
            87..88 => self.make_token(),
            88..95 => self.use_token(),
            95..97 => self.revoke_token(),
            _ => {
                let made = self.run.known.lock().expect("no panic").tokens_made;
                if made > 0 {
                    let back = self.random.below(made.min(4));
                    self.read_of_token(made - 1 - back);
                }
            }
        }
    }

    /// Makes one call and notes it; `understand` finds in the answer what the model knows.
    fn call(
        &mut self,
        asked: Value,
        request: &Request<'_>,
        understand: impl FnOnce(&Response, &mut Map<String, Value>),
    ) -> Option<Told> {
        let run = self.run;
        let servers = run.servers.lock().expect("no panic").clone();
        let process = self.random.below(servers.len() as u64) as usize;
        let Some((address, _)) = servers[process] else {
            std::thread::sleep(Duration::from_millis(20));
            return None;
        };
        let Value::Object(mut line) = asked else { panic!("an object") };
        let is_cut = !self.is_calm && self.random.once_in(150);
        // One process never goes back by itself; and without the header, it answers another way.
        let names_seen = run.names_seen && (run.is_fleet || self.random.once_in(2));
        let call = run.recorder.now();
        let sent = send(address, &request.bytes(names_seen.then_some(self.seen)), is_cut);
        let returned = run.recorder.now();
        line.insert("type".into(), "op".into());
        line.insert("client".into(), self.number.into());
        line.insert("process".into(), process.into());
        line.insert("call".into(), call.into());
        line.insert("seen".into(), self.seen.into());
        let response = match sent {
            Sent::Refused => {
                std::thread::sleep(Duration::from_millis(20));
                return None;
            }
            Sent::Answered(response) => self.replay(&line, response),
            Sent::Lost => {
                run.recorder.write(&Value::Object(line));
                return None;
            }
        };
        let mut status = u64::from(response.status);
        if status >= 500 {
            // A read leaves nothing behind, and these refusals say so.
            let text = response.text();
            let is_read = request.method == "GET";
            let told = text.contains("nothing was written") || text.contains("was asked for");
            if status == 503 && (is_read || told) {
                line.insert("nothing".into(), true.into());
            } else {
                run.recorder.fault(&format!("an answer {status}: {text}"));
                run.recorder.write(&Value::Object(line));
                return None;
            }
        }
        // A project or a file that was there, and one that never was.
        if status == 410 {
            status = 404;
        }
        line.insert("return".into(), returned.into());
        line.insert("status".into(), status.into());
        // A process that is behind says in its refusal where it is.
        let named = if status < 500 { response.header("x-larder-serial") } else { "" };
        let serial: u64 = named.parse().unwrap_or_default();
        line.insert("serial".into(), serial.into());
        if status < 500 {
            understand(&response, &mut line);
            self.seen = self.seen.max(serial);
            run.seen.fetch_max(serial, SeqCst);
        }
        let number = |name: &str| line.get(name).and_then(Value::as_u64).unwrap_or_default();
        let got = line.get("got").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (status, version) = (number("status"), number("version"));
        let is_written_down = !line.contains_key("nothing");
        run.recorder.write(&Value::Object(line));
        is_written_down.then_some(Told { status, version, got, serial, response })
    }

    /// The planted fault: a read of the first article gets the first answer again, when there are later ones.
    fn replay(&self, line: &Map<String, Value>, response: Response) -> Response {
        let Some(kept) = &self.run.replayed else { return response };
        if line["key"] != "article/0" || line["f"] != "read" || response.status != 200 {
            return response;
        }
        let mut kept = kept.lock().expect("no panic");
        match &*kept {
            None => {
                let head = ["x-article-version", "x-larder-serial"]
                    .map(|name| format!("{name}: {}\r\n", response.header(name)));
                let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", head.concat());
                *kept = Some([head.as_bytes(), &response.body].concat());
                response
            }
            Some(bytes) => {
                let old = Response::parse(bytes, false).expect("an answer");
                let version = |it: &Response| it.header("x-article-version").to_owned();
                if version(&old) == version(&response) { response } else { old }
            }
        }
    }

    // ---- articles

    fn article(&self, number: u64, name: &'static str) -> Article {
        let known = self.run.known.lock().expect("no panic");
        known.articles.get(&(number, name)).cloned().unwrap_or_default()
    }

    fn learn(&self, number: u64, name: &'static str, change: impl FnOnce(&mut Article)) {
        let mut known = self.run.known.lock().expect("no panic");
        change(known.articles.entry((number, name)).or_default());
    }

    fn read(&mut self, number: u64, name: &'static str) {
        let request = Request::new("GET", format!("/article/f{number}/{name}"));
        let asked = json!({"key": format!("article/{number}"), "f": "read", "name": name});
        let told = self.call(asked, &request, understand_article);
        match told {
            Some(told) if told.status == 200 => self.learn(number, name, |it| {
                it.version = told.version;
                it.is_elsewhere = false;
            }),
            Some(told) if told.status == 308 => {
                self.learn(number, name, |it| it.is_elsewhere = true)
            }
            _ => {}
        }
    }

    fn write(&mut self, number: u64, name: &'static str) {
        let (mut name, other) = (name, other(name));
        let mut known = self.article(number, name);
        // A family begins with one name. Now and then somebody begins a new article at the name that redirects.
        if (known.version == 0 && name == "b" || known.is_elsewhere) && !self.random.once_in(20) {
            name = other;
            known = self.article(number, name);
        }
        // Sometimes from a version that is none, or no longer the latest.
        let base = match self.random.below(12) {
            0 => known.version.saturating_sub(1),
            1 => known.version + 1,
            _ => known.version,
        };
        let text = self.run.text("t");
        let request = Request::new("POST", format!("/article/f{number}/{name}/{base}"));
        let request = request.body("text/plain", text.clone());
        let asked = json!({
            "key": format!("article/{number}"), "f": "write", "name": name, "base": base, "text": text,
        });
        let told = self.call(asked, &request, understand_written);
        self.learn_written(number, name, told);
    }

    fn learn_written(&self, number: u64, name: &'static str, told: Option<Told>) {
        let Some(told) = told else { return };
        if told.status == 201 {
            self.learn(number, name, |it| {
                it.version = told.version;
                it.is_elsewhere = false;
            });
        } else if told.status == 409 {
            let told = told.response.json();
            let version = told["latest_version"].as_u64();
            self.learn(number, name, |it| {
                it.version = version.unwrap_or(it.version);
                it.is_elsewhere = told["code"] == "renamed";
            });
        }
    }

    fn rename(&mut self, number: u64, name: &'static str) {
        let (known, to) = (self.article(number, name), other(name));
        let base = known.version;
        let target = format!("/article/f{number}/{name}/{base}?rename=f{number}/{to}");
        let asked = json!({
            "key": format!("article/{number}"), "f": "rename", "name": name, "to": to, "base": base,
        });
        let told = self.call(asked, &Request::new("POST", target), understand_written);
        if let Some(told) = &told
            && told.status == 201
        {
            let file = known.file;
            self.learn(number, name, |it| {
                *it = Article { version: told.version, is_elsewhere: true, file: String::new() };
            });
            let version = told.version;
            self.learn(number, to, |it| *it = Article { version, is_elsewhere: false, file });
        }
    }

    fn attach(&mut self, number: u64, name: &'static str) {
        let known = self.article(number, name);
        let (text, old) = (self.run.text("a"), known.file);
        let mut request = Request::new("PUT", format!("/+attachments/f{number}/{name}/file.txt"));
        if !old.is_empty() {
            let tag = format!("\"sha256-{}\"", Digest::of(old.as_bytes()));
            request = request.with("If-Match", tag);
        }
        let request = request.body("text/plain", text.clone());
        let asked = json!({
            "key": format!("article/{number}"), "f": "attach", "name": name, "text": text, "old": old,
        });
        if let Some(Told { status: 200 | 201, .. }) = self.call(asked, &request, |_, _| ()) {
            self.learn(number, name, |it| it.file = text);
        }
    }

    fn read_file(&mut self, number: u64, name: &'static str) {
        let request = Request::new("GET", format!("/+attachments/f{number}/{name}/file.txt"));
        let asked = json!({"key": format!("article/{number}"), "f": "read-file", "name": name});
        let told = self.call(asked, &request, |response, line| {
            if response.status == 200 {
                line.insert("got".into(), response.text().into());
            }
        });
        match told {
            Some(told) if told.status == 200 => self.learn(number, name, |it| it.file = told.got),
            Some(told) if told.status == 404 => self.learn(number, name, |it| it.file.clear()),
            _ => {}
        }
    }

    // ---- the Python index

    fn upload(&mut self, number: u64, stage: &str) {
        let (project, member) = (format!("p{number}"), self.random.below(RELEASES));
        let content = sdist(&self.run.text("u"));
        let upload = Upload::of(&format!("{project}-{member}.zip"), &content);
        let (content_type, body) = upload.form();
        let request = Request::new("POST", format!("/team/{stage}/")).body(&content_type, body);
        let asked = json!({
            "key": format!("project/{number}"), "f": "upload", "name": stage, "member": member,
            "text": short(&Digest::of(&content).to_string()),
        });
        self.call(asked, &request, |_, _| ());
    }

    fn yank(&mut self, number: u64, stage: &str) {
        let member = self.random.below(RELEASES);
        let target = format!("/team/{stage}/p{number}/{member}/+yank");
        let key = format!("project/{number}");
        if self.random.once_in(3) {
            let asked = json!({"key": key, "f": "unyank", "name": stage, "member": member});
            self.call(asked, &Request::new("DELETE", target), |_, _| ());
        } else {
            let text = self.run.text("y");
            let request = Request::new("POST", target).json(&json!({"reason": text}));
            let asked =
                json!({"key": key, "f": "yank", "name": stage, "member": member, "text": text});
            self.call(asked, &request, |_, _| ());
        }
    }

    fn delete(&mut self, number: u64) {
        let member = self.random.below(RELEASES);
        let request = Request::new("DELETE", format!("/team/dev/p{number}/{member}"));
        let key = format!("project/{number}");
        let asked = json!({"key": key, "f": "delete", "name": "dev", "member": member});
        self.call(asked, &request, |_, _| ());
    }

    fn push(&mut self, number: u64) {
        let member = self.random.below(RELEASES);
        let order = json!({
            "name": format!("p{number}"), "version": member.to_string(), "targetindex": "team/final",
        });
        let request = Request::new("PUSH", "/team/dev".to_owned()).json(&order);
        let key = format!("project/{number}");
        let asked = json!({"key": key, "f": "push", "name": "dev", "member": member});
        self.call(asked, &request, |_, _| ());
    }

    fn read_page(&mut self, number: u64, stage: &str) {
        let request = Request::new("GET", format!("/team/{stage}/+simple/p{number}/"))
            .with("Accept", "application/vnd.pypi.simple.v1+json");
        let key = format!("project/{number}");
        let asked = json!({"key": key, "f": "read-page", "name": stage});
        self.call(asked, &request, |response, line| {
            // A project that never was has no page, and one that lost its releases an empty one.
            if matches!(response.status, 404 | 410) {
                line.insert("status".into(), 200.into());
            } else if response.status == 200 {
                line.insert("got".into(), page(&response.json()).into());
            }
        });
    }

    fn change_index(&mut self, number: u64) {
        let (member, text) = (self.random.below(MEMBERS), self.run.text("s"));
        let (f, operator) = if self.random.once_in(2) { ("add", "+=") } else { ("take", "-=") };
        let change = json!([format!("title={text}"), format!("acl_upload{operator}u{member}")]);
        let request = Request::new("PATCH", format!("/team/set{number}")).json(&change);
        let key = format!("index/{number}");
        let asked = json!({"key": key, "f": f, "member": member, "text": text});
        self.call(asked, &request, |_, _| ());
    }

    fn read_index(&mut self, number: u64) {
        let request = Request::new("GET", format!("/team/set{number}"));
        let request = request.with("Accept", "application/json");
        let asked = json!({"key": format!("index/{number}"), "f": "read-index"});
        self.call(asked, &request, |response, line| {
            if response.status == 200 {
                line.insert("got".into(), settings(&response.json()["result"]).into());
            }
        });
    }

    // ---- tokens

    fn make_token(&mut self) {
        let number = {
            let mut known = self.run.known.lock().expect("no panic");
            known.tokens_made += 1;
            known.tokens_made - 1
        };
        let wish = json!({"scopes": ["article:write"], "comment": format!("t{number}")});
        let request = Request::new("POST", "/+tokens".to_owned()).json(&wish);
        let asked = json!({"key": format!("token/{number}"), "f": "make"});
        let Some(told) = self.call(asked, &request, |_, _| ()) else { return };
        let json = told.response.json();
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let (id, secret, serial) = (text("id"), text("token"), told.serial);
        let token = Token { number, id, secret, version: 0, serial };
        self.run.known.lock().expect("no panic").tokens.push(token);
    }

    /// One of the last tokens.
    fn token(&mut self) -> Option<Token> {
        let at = self.random.below(4) as usize;
        let known = self.run.known.lock().expect("no panic");
        let token = known.tokens.iter().rev().nth(at).cloned()?;
        // Whoever passes on a token passes on what they know of it.
        self.seen = self.seen.max(token.serial);
        Some(token)
    }

    fn use_token(&mut self) {
        let Some(token) = self.token() else { return };
        let (number, base, text) = (token.number, token.version, self.run.text("w"));
        let request = Request::new("POST", format!("/article/tok/t{number}/{base}"));
        let mut request = request.body("text/plain", text.clone());
        request.token = Some(&token.secret);
        let asked =
            json!({"key": format!("token/{number}"), "f": "use", "base": base, "text": text});
        let Some(told) = self.call(asked, &request, understand_written) else { return };
        let latest = match told.status {
            201 => Some(told.version),
            409 => told.response.json()["latest_version"].as_u64(),
            _ => None,
        };
        let mut known = self.run.known.lock().expect("no panic");
        if let Some(latest) = latest
            && let Some(token) = known.tokens.iter_mut().find(|it| it.number == number)
        {
            token.version = latest;
        }
    }

    fn revoke_token(&mut self) {
        let Some(token) = self.token() else { return };
        let request = Request::new("DELETE", format!("/+tokens/{}", token.id));
        let asked = json!({"key": format!("token/{}", token.number), "f": "revoke"});
        self.call(asked, &request, |_, _| ());
    }

    fn read_of_token(&mut self, number: u64) {
        let request = Request::new("GET", format!("/article/tok/t{number}"));
        let asked = json!({"key": format!("token/{number}"), "f": "read"});
        self.call(asked, &request, understand_article);
    }
}

fn other(name: &str) -> &'static str {
    if name == "a" { "b" } else { "a" }
}

/// Enough of a digest to tell files apart.
fn short(digest: &str) -> &str {
    &digest[..16]
}

fn understand_article(response: &Response, line: &mut Map<String, Value>) {
    if response.status == 200 {
        let version = response.header("x-article-version").parse::<u64>().expect("a number");
        line.insert("version".into(), version.into());
        line.insert("got".into(), response.text().into());
    }
}

fn understand_written(response: &Response, line: &mut Map<String, Value>) {
    if response.status == 201 {
        line.insert("version".into(), response.json()["version"].clone());
    }
}

/// A page as the model renders it.
fn page(json: &Value) -> String {
    let files = json["files"].as_array().expect("files");
    let file = |file: &Value| {
        let name = file["filename"].as_str().expect("a name");
        let (_, release) = name.strip_suffix(".zip").and_then(|it| it.split_once('-')).expect(name);
        let digest = short(file["hashes"]["sha256"].as_str().expect("a digest"));
        format!("{release}={digest},{}", file["yanked"].as_str().unwrap_or_default())
    };
    let mut shown: Vec<String> = files.iter().map(file).collect();
    shown.sort();
    shown.join(" ")
}

/// Settings as the model renders them.
fn settings(json: &Value) -> String {
    let title = json["title"].as_str().unwrap_or_default().to_owned();
    let users = json["acl_upload"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let mut members: Vec<u64> =
        users.filter_map(|user| user.strip_prefix('u')?.parse().ok()).collect();
    members.sort_unstable();
    let members = members.iter().map(ToString::to_string);
    std::iter::once(title).chain(members).collect::<Vec<_>>().join(" ")
}
