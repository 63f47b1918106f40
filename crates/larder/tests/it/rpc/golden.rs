//! aurweb's own answers, recorded, against ours over HTTP: status, content type, location, body and tags.
//!
//! `golden-differences.txt` lists the answers that differ in their JSON, `golden-status-differences.txt`
//! those that differ only around it; each line has the id of the reason in `docs/aur-differences.md`.

mod same;

use std::collections::BTreeMap;
use std::fs;

use same::is_same;
use serde_json::Value;

use crate::catalogue::testdata;
use crate::client::Response;
use crate::server::{TestServer, recorded};

#[derive(serde::Deserialize)]
struct Golden {
    group: String,
    request: Request,
    status: u16,
    content_type: Option<String>,
    etag: Option<String>,
    location: Option<String>,
    body: Option<String>,
}

#[derive(serde::Deserialize)]
struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

impl Request {
    /// How the lists of differences name it.
    fn key(&self) -> String {
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        let path = self.path.replace('\n', "%0A");
        let mut key = format!("{} {path} {body}", self.method);
        if let Some(tag) = self.headers.get("If-None-Match") {
            key = format!("{} If-None-Match: {tag}", key.trim_end());
        }
        key.trim_end().chars().take(200).collect()
    }

    fn send(&self, server: &TestServer, further: &[(&str, &str)]) -> Response {
        let body = match &self.body {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = own.chain(further.iter().copied()).collect();
        server.client.send(&self.method, &self.path, &headers, body.as_bytes())
    }
}

/// The parts of an answer around its body.
fn frame(status: u16, content_type: Option<&str>, location: Option<&str>, has_tag: bool) -> String {
    let tag = if has_tag { "tagged" } else { "untagged" };
    format!("{status} {} {} {tag}", content_type.unwrap_or("-"), location.unwrap_or("-"))
}

struct Differences {
    name: &'static str,
    /// Requests with their ids.
    listed: BTreeMap<String, String>,
    used: Vec<String>,
}

impl Differences {
    fn read(name: &'static str, ids: &str) -> Differences {
        let text = fs::read_to_string(testdata(name)).expect("a list of differences");
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let listed: BTreeMap<String, String> = lines
            .map(|line| line.split_once(' ').expect("id and request"))
            .map(|(id, request)| (request.to_owned(), id.to_owned()))
            .collect();
        for id in listed.values() {
            assert!(
                ids.contains(&format!("| {id} |")),
                "{name}: docs/aur-differences.md has no {id}"
            );
        }
        Differences { name, listed, used: Vec::new() }
    }

    /// Compares an answer; a request may differ only if the difference is listed.
    fn check(
        &mut self,
        key: &str,
        is_same: bool,
        wrong: &mut Vec<String>,
        shown: impl FnOnce() -> String,
    ) {
        match (is_same, self.listed.get(key)) {
            (true, None) => {}
            (true, Some(id)) => wrong.push(format!("{}: {id} is no difference: {key}", self.name)),
            (false, Some(_)) => self.used.push(key.to_owned()),
            (false, None) => wrong.push(format!("not in {}: {key}\n{}", self.name, shown())),
        }
    }

    fn check_all_used(&self, wrong: &mut Vec<String>) {
        let unused = self.listed.keys().filter(|key| !self.used.contains(key));
        wrong.extend(unused.map(|key| format!("{}: not among the goldens: {key}", self.name)));
    }
}

impl Golden {
    fn frame(&self) -> String {
        let (content_type, location) = (self.content_type.as_deref(), self.location.as_deref());
        frame(self.status, content_type, location, self.etag.is_some())
    }

    fn body(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    /// Whether the bodies are compared and differ.
    fn differs_in_body(&self, found: &Response) -> bool {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        let is_json = ["application/json", "text/javascript"].contains(&content_type);
        is_json && found.status != 304 && !is_same(self.body(), &found.text())
    }
}

/// A client that knows aurweb's answer keeps it, by aurweb's tag; and ours by ours. Returns how many tags were compared.
fn check_tags(golden: &Golden, found: &Response, wrong: &mut Vec<String>) -> usize {
    let request = &golden.request;
    if request.headers.contains_key("If-None-Match") || request.method != "GET" {
        return 0;
    }
    let is_same = golden.body() == found.text();
    let known = [found.find("etag"), golden.etag.as_deref().filter(|_| is_same)];
    let tags = known.into_iter().flatten().flat_map(|tag| [tag, tag.trim_matches('"')]);
    let mut count = 0;
    for tag in tags {
        count += 1;
        let again = request.send(recorded(), &[("If-None-Match", tag)]);
        let is_kept = again.status == 304 && again.body.is_empty();
        if !is_kept || again.find("etag") != found.find("etag") {
            let key = request.key();
            wrong.push(format!("{} for If-None-Match: {tag} on {key}", again.status));
        }
    }
    count
}

#[test]
fn answers_equal_aurwebs() {
    let reasons = testdata("../../docs/aur-differences.md");
    let reasons = fs::read_to_string(reasons).expect("the reasons");
    let mut bodies = Differences::read("golden-differences.txt", &reasons);
    let mut frames = Differences::read("golden-status-differences.txt", &reasons);
    let mut wrong = Vec::new();
    let (mut compared, mut tags_compared) = (0, 0);
    let goldens = fs::read_to_string(testdata("golden.jsonl")).expect("the goldens");
    for line in goldens.lines() {
        let golden: Golden = serde_json::from_str(line).expect("a golden");
        let key = golden.request.key();
        let found = golden.request.send(recorded(), &[]);
        compared += 1;
        let header = |name| found.find(name);
        let (content_type, location) = (header("content-type"), header("location"));
        let frame = frame(found.status, content_type, location, header("etag").is_some());
        let is_same = !golden.differs_in_body(&found);
        frames.check(&key, golden.frame() == frame || !is_same, &mut wrong, || {
            let (group, expected) = (&golden.group, golden.frame());
            format!("   {group}\n   expected {expected}\n   found    {frame}")
        });
        bodies.check(&key, is_same, &mut wrong, || {
            format!("   expected {:.400}\n   found    {:.400}", golden.body(), found.text())
        });
        tags_compared += check_tags(&golden, &found, &mut wrong);
    }
    bodies.check_all_used(&mut wrong);
    frames.check_all_used(&mut wrong);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= 314, "only {compared} goldens were compared");
    assert!(tags_compared > 600, "only {tags_compared} tags were compared");
}
