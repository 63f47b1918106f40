//! How tests ask: `server.root().put("/alice", json!({…})).expect(201)`, and what an answer must say.
//!
//! [`Client`] or a server -> [`Ask`] with credentials and headers -> [`Response`], which names its request where a test fails.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::panic::{self, AssertUnwindSafe};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::browser::ACCEPT;
use crate::client::{Client, Response};
use crate::python::{Upload, sdist};
use crate::server::ROOT;
use crate::shown::{notes, redacted};
use crate::wait_until;

/// The value of `Authorization` for a name and a password.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// A request in the making.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    client: Client,
    headers: Vec<(String, String)>,
}

impl Client {
    /// Asks as a browser in which nobody has logged in.
    #[track_caller]
    pub(crate) fn browse(&self, target: &str) -> Response {
        self.anybody().browser().get(target)
    }

    /// The page that a browser gets in which nobody has logged in.
    #[track_caller]
    pub(crate) fn page(&self, target: &str) -> String {
        self.browse(target).html()
    }

    /// Asks without credentials.
    pub(crate) fn anybody(&self) -> Ask {
        Ask { client: *self, headers: Vec::new() }
    }

    pub(crate) fn user(&self, name: &str, password: &str) -> Ask {
        self.authorized(&basic(name, password))
    }

    /// Asks as `root`, with the password that it has on every server of a test.
    pub(crate) fn root(&self) -> Ask {
        self.authorized(ROOT.1)
    }

    /// Makes a user with this password.
    #[track_caller]
    pub(crate) fn add_user(&self, name: &str, password: &str) {
        self.root().put(&format!("/{name}"), json!({"password": password})).expect(201);
    }

    /// Logs in as devpi's clients do: the password that they get.
    #[track_caller]
    pub(crate) fn log_in(&self, name: &str, password: &str) -> String {
        let body = json!({"user": name, "password": password});
        let answer = self.anybody().json().post("/+login", body).expect(200).json();
        answer["result"]["password"].as_str().expect("a login").to_owned()
    }

    pub(crate) fn bearer(&self, token: &str) -> Ask {
        self.authorized(&format!("Bearer {token}"))
    }

    /// The value of a metric, by its printed name with labels; 0 if it does not exist.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.find_metric(name).unwrap_or_default()
    }

    pub(crate) fn find_metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().expect("a number"))
    }

    /// Waits until the answer has these words.
    #[track_caller]
    pub(crate) fn wait_for(&self, target: &str, words: &str) {
        wait_until(words, || self.get(target).text().contains(words));
    }

    /// Waits until the answer no longer has these words.
    #[track_caller]
    pub(crate) fn wait_until_gone(&self, target: &str, words: &str) {
        wait_until(&format!("no {words}"), || !self.get(target).text().contains(words));
    }

    /// Asks with this value of `Authorization`, or without one if it is empty.
    pub(crate) fn authorized(&self, value: &str) -> Ask {
        if value.is_empty() { self.anybody() } else { self.anybody().with("Authorization", value) }
    }
}

impl Ask {
    pub(crate) fn with(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_all(self, headers: &[(&str, &str)]) -> Ask {
        headers.iter().fold(self, |ask, (name, value)| ask.with(name, value))
    }

    /// Accepts what browsers accept.
    pub(crate) fn browser(self) -> Ask {
        self.with_all(&[ACCEPT])
    }

    /// Accepts JSON.
    pub(crate) fn json(self) -> Ask {
        self.accept("application/json")
    }

    pub(crate) fn accept(self, media_type: &str) -> Ask {
        self.with("Accept", media_type)
    }

    /// Says of which media type the body is.
    pub(crate) fn typed(self, media_type: &str) -> Ask {
        self.with("Content-Type", media_type)
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Response {
        self.send("GET", target, ())
    }

    #[track_caller]
    pub(crate) fn put(&self, target: &str, body: impl Body) -> Response {
        self.send("PUT", target, body)
    }

    #[track_caller]
    pub(crate) fn post(&self, target: &str, body: impl Body) -> Response {
        self.send("POST", target, body)
    }

    #[track_caller]
    pub(crate) fn patch(&self, target: &str, body: impl Body) -> Response {
        self.send("PATCH", target, body)
    }

    #[track_caller]
    pub(crate) fn delete(&self, target: &str) -> Response {
        self.send("DELETE", target, ())
    }

    /// Sends a body and says nothing of its type, as old clients do.
    #[track_caller]
    pub(crate) fn send(&self, method: &str, target: &str, body: impl Body) -> Response {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.client.send(method, target, &headers, &body.bytes())
    }

    /// Announces a body of this many bytes, and waits until the server wants it.
    #[track_caller]
    pub(crate) fn announce(&self, method: &str, target: &str, body_bytes: usize) -> TcpStream {
        let mut stream = self.client.connect();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{}Content-Length: {body_bytes}\r\n\r\n",
            self.header_lines()
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).expect("the server wants the body");
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    #[track_caller]
    pub(crate) fn upload(&self, stage: &str, upload: &Upload) -> Response {
        let (content_type, body) = upload.form();
        self.clone().typed(&content_type).post(&format!("/{stage}/"), body)
    }

    /// Makes a token as this wish has it.
    #[track_caller]
    pub(crate) fn make_token(&self, wish: Value) -> String {
        let made = self.clone().typed("application/json").post("/+tokens", wish).expect(201);
        made.json()["token"].as_str().expect("a token").to_owned()
    }

    /// Uploads a source archive of this name.
    #[track_caller]
    pub(crate) fn release(&self, stage: &str, filename: &str) {
        self.upload(stage, &Upload::of(filename, &sdist(filename))).expect(200);
    }

    /// Stores the next revision of an article at `/article/{name}/{base}`, as plain text.
    #[track_caller]
    pub(crate) fn write(&self, name_and_base: &str, text: impl Body) -> Response {
        self.clone().typed("text/plain").post(&format!("/article/{name_and_base}"), text)
    }

    pub(crate) fn client(&self) -> Client {
        self.client
    }

    /// The headers, as lines.
    pub(crate) fn header_lines(&self) -> String {
        self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
    }
}

/// What can be sent. JSON that is null is no body.
pub(crate) trait Body {
    fn bytes(self) -> Vec<u8>;
}

impl Body for () {
    fn bytes(self) -> Vec<u8> {
        Vec::new()
    }
}

impl Body for Value {
    fn bytes(self) -> Vec<u8> {
        (&self).bytes()
    }
}

impl Body for &Value {
    fn bytes(self) -> Vec<u8> {
        if self.is_null() { Vec::new() } else { self.to_string().into_bytes() }
    }
}

impl Body for Vec<u8> {
    fn bytes(self) -> Vec<u8> {
        self
    }
}

impl Body for String {
    fn bytes(self) -> Vec<u8> {
        self.into_bytes()
    }
}

impl<B: AsRef<[u8]> + ?Sized> Body for &B
where
    B: Bytes,
{
    fn bytes(self) -> Vec<u8> {
        self.as_ref().to_vec()
    }
}

/// What is bytes already, in a reference.
pub(crate) trait Bytes {}

impl Bytes for str {}
impl Bytes for String {}
impl Bytes for [u8] {}
impl Bytes for Vec<u8> {}
impl<const N: usize> Bytes for [u8; N] {}

impl Response {
    /// This answer, which must have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Response {
        self.check_status(status);
        self
    }

    #[track_caller]
    pub(crate) fn check_status(&self, status: u16) -> &Response {
        let (found, asked) = (self.status, &self.asked);
        assert_eq!(found, status, "{asked}: {found}, expected {status}: {}", self.text());
        self
    }

    /// This answer, which must have one of these statuses.
    #[track_caller]
    pub(crate) fn expect_one_of<const N: usize>(self, statuses: [u16; N]) -> Response {
        let (found, asked) = (self.status, &self.asked);
        assert!(
            statuses.contains(&found),
            "{asked}: {found}, not of {statuses:?}: {}",
            self.text()
        );
        self
    }

    /// This answer, which must be a success.
    #[track_caller]
    pub(crate) fn done(self) -> Response {
        let (found, asked) = (self.status, &self.asked);
        assert!((200..300).contains(&found), "{asked}: {found}: {}", self.text());
        self
    }

    /// The text of this answer, which must be a page that runs no script of strangers.
    #[track_caller]
    pub(crate) fn html(&self) -> String {
        self.check_status(200).has("content-type", "text/html; charset=utf-8");
        let policy = self.header("content-security-policy");
        policy.says("default-src 'none'");
        policy.lacks("unsafe");
        self.text()
    }

    /// This header has this value; it is empty if the header is not there.
    #[track_caller]
    pub(crate) fn has(&self, name: &str, value: impl ToString) -> &Response {
        let (value, text) = (value.to_string(), self.text());
        assert_eq!(self.header(name), value, "{name} of {}: {text}", self.asked);
        self
    }

    /// The body is this text.
    #[track_caller]
    pub(crate) fn is(&self, text: impl AsRef<str>) -> &Response {
        assert_eq!(self.text(), text.as_ref(), "{}", self.asked);
        self
    }

    /// The answer is JSON with this status and this message, as devpi's clients read it.
    #[track_caller]
    pub(crate) fn message(&self, status: u16, message: &str) {
        self.check_status(status).has("content-type", "application/json");
        assert_eq!(self.json()["message"], message, "{}: {}", self.asked, self.text());
    }

    /// The answer has this status, and tells its reader this and nothing else.
    #[track_caller]
    pub(crate) fn tells(&self, status: u16, text: &str) -> &Response {
        self.check_status(status);
        assert_eq!(self.told(), text, "{}", self.asked);
        self
    }

    /// The detail of a problem, the message of devpi's JSON, the notes of a page, or the text; without what differs between runs.
    #[track_caller]
    pub(crate) fn told(&self) -> String {
        let member = match self.header("content-type") {
            "application/problem+json" => "detail",
            "application/json" => "message",
            "text/html; charset=utf-8" | "text/html; charset=UTF-8" => return notes(&self.text()),
            _ => return redacted(self.text().trim_end()),
        };
        let json = self.json();
        redacted(json[member].as_str().unwrap_or_else(|| panic!("no {member}: {json}")))
    }

    /// The line of the text that starts with this, without what differs between runs.
    #[track_caller]
    pub(crate) fn line(&self, start: &str) -> String {
        line(&self.text(), start)
    }

    /// The names of the files on a page for installers, with blanks between.
    pub(crate) fn files(&self) -> String {
        let text = self.text();
        let (links, _) = text.rsplit_once("</a>").unwrap_or_default();
        let names = links.split("</a>").filter_map(|it| it.rsplit_once('>'));
        names.map(|(_, name)| name).collect::<Vec<_>>().join(" ")
    }

    /// All of these words are in the body.
    #[track_caller]
    pub(crate) fn says<W: AsRef<str>>(&self, words: impl Words<W>) -> &Response {
        check_words(&self.asked, &self.text(), words.all(), true);
        self
    }

    /// None of these words is in the body.
    #[track_caller]
    pub(crate) fn lacks<W: AsRef<str>>(&self, words: impl Words<W>) -> &Response {
        check_words(&self.asked, &self.text(), words.all(), false);
        self
    }
}

/// The line that starts with this, without what differs between runs.
#[track_caller]
pub(crate) fn line(text: &str, start: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(start));
    redacted(line.unwrap_or_else(|| panic!("no line `{start}` in: {text}")))
}

/// What a text must say, with all that is wrong in one failure.
pub(crate) trait Says {
    /// All of these words are in the text.
    fn says<W: AsRef<str>>(&self, words: impl Words<W>);

    /// None of these words is in the text.
    fn lacks<W: AsRef<str>>(&self, words: impl Words<W>);
}

impl Says for str {
    #[track_caller]
    fn says<W: AsRef<str>>(&self, words: impl Words<W>) {
        check_words("the text", self, words.all(), true);
    }

    #[track_caller]
    fn lacks<W: AsRef<str>>(&self, words: impl Words<W>) {
        check_words("the text", self, words.all(), false);
    }
}

#[track_caller]
fn check_words<W: AsRef<str>>(what: &str, text: &str, words: Vec<W>, are_there: bool) {
    let words = words.iter().map(AsRef::as_ref);
    let wrong: Vec<&str> = words.filter(|word| text.contains(word) != are_there).collect();
    let verb = if are_there { "lacks" } else { "has" };
    assert!(wrong.is_empty(), "{what} {verb} {wrong:?}: {text}");
}

/// One word or several.
pub(crate) trait Words<W> {
    fn all(self) -> Vec<W>;
}

impl<'word> Words<&'word str> for &'word str {
    fn all(self) -> Vec<&'word str> {
        vec![self]
    }
}

impl<'word> Words<&'word str> for &'word String {
    fn all(self) -> Vec<&'word str> {
        vec![self]
    }
}

impl<'word> Words<&'word str> for &[&'word str] {
    fn all(self) -> Vec<&'word str> {
        self.to_vec()
    }
}

impl<W, const N: usize> Words<W> for [W; N] {
    fn all(self) -> Vec<W> {
        self.into()
    }
}

/// The texts of this member of each item of a list.
#[track_caller]
pub(crate) fn texts(list: &Value, member: &str) -> Vec<String> {
    let items = list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter();
    items.map(|it| it[member].as_str().unwrap_or_else(|| panic!("{it}")).to_owned()).collect()
}

/// Runs a check on each row of a table, and fails at the end with what is wrong in every row.
#[track_caller]
pub(crate) fn each<R>(rows: impl IntoIterator<Item = R>, check: impl Fn(R)) {
    let (mut count, mut wrong) = (0, Vec::new());
    for row in rows {
        count += 1;
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| check(row)));
        wrong.extend(outcome.err().map(|panic| match panic.downcast::<String>() {
            Ok(said) => *said,
            Err(other) => other.downcast_ref::<&str>().unwrap_or(&"a panic").to_string(),
        }));
    }
    assert!(wrong.is_empty(), "{} of {count} rows fail:\n{}", wrong.len(), wrong.join("\n"));
}
