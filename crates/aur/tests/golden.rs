//! Compares our answers with recorded ones of aurweb: the parsed JSON is equal, or `docs/aur-differences.md` lists
//! the difference with its reason.

#[path = "golden/same.rs"]
mod same;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use aur::{Answer, Body, DumpLimits, Params, PathParams, Snapshot};
use same::is_same;
use serde_json::Value;

#[derive(serde::Deserialize)]
struct Golden {
    group: String,
    note: Option<String>,
    request: Request,
    status: u16,
    content_type: Option<String>,
    body: Option<String>,
}

#[derive(serde::Deserialize)]
struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

fn testdata(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/aur").join(name)
}

/// Our answer to a request for `/rpc...`; `None` for a path that is not part of the API.
fn ask(snapshot: &Snapshot, request: &Request) -> Option<Answer> {
    let (path, query) = match request.path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.path.as_str(), None),
    };
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let decode =
        |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut from_path = PathParams::default();
    match segments.as_slice() {
        ["rpc" | "rpc.php"] | ["rpc" | "rpc.php", ""] => {}
        ["rpc", version, rest @ ..] if version.starts_with('v') && !rest.contains(&"") => {
            from_path.version = Some(version[1..].to_owned());
            from_path.type_ = rest.first().map(|text| decode(text));
            from_path.arg = rest.get(1).map(|text| decode(text));
        }
        _ => return None,
    }
    let speaks_6 = from_path.version.is_some();
    let body = match &request.body {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let params = match request.method.as_str() {
        "GET" => Params::from_query(from_path, query),
        "POST" => {
            let is_json =
                request.headers.get("Content-Type").is_some_and(|value| value.contains("json"));
            let body =
                if is_json { Body::Json(body.as_bytes()) } else { Body::Form(body.as_bytes()) };
            Params::from_body(from_path, query, body)
        }
        _ => return None,
    };
    Some(Answer::to(params, snapshot, speaks_6, 5_000))
}

impl Golden {
    /// aurweb's answer; `None` if it has no body, or if its HTTP server did not understand the request.
    fn answer(&self) -> Option<&str> {
        let is_refused = self.content_type.as_deref() == Some("text/plain; charset=utf-8");
        self.body.as_deref().filter(|body| !body.is_empty() && !is_refused)
    }

    /// How the list of differences names the request.
    fn key(&self) -> String {
        let Request { method, path, body, .. } = &self.request;
        let body = body.as_ref().map(Value::to_string).unwrap_or_default();
        let key = format!("{method} {} {body}", path.replace('\n', "%0A"));
        key.trim_end().chars().take(200).collect()
    }
}

#[test]
fn answers_equal_aurwebs() {
    let dump = File::open(testdata("packages-meta-ext-v1.json.gz")).expect("the dump");
    let snapshot = aur::dump::read(dump, &DumpLimits::default()).expect("a good dump");
    assert_eq!(snapshot.package_count(), 106_983);
    let allowed = fs::read_to_string(testdata("golden-differences.txt")).expect("a list");
    let lines = allowed.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.map(|line| line.split_once(' ').expect("id and request"));
    let mut unused: BTreeMap<&str, &str> = lines.map(|(id, request)| (request, id)).collect();
    let (mut compared, mut wrong) = (0, Vec::new());
    let goldens = fs::read_to_string(testdata("golden.jsonl")).expect("the goldens");
    for line in goldens.lines() {
        let golden: Golden = serde_json::from_str(line).expect("a golden");
        let Some(expected) = golden.answer() else { continue };
        let Some(answer) = ask(&snapshot, &golden.request) else { continue };
        compared += 1;
        let found = std::str::from_utf8(&answer.reply.body).expect("UTF-8");
        let key = golden.key();
        match (is_same(expected, found), unused.remove(key.as_str())) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(id)) => wrong.push(format!("{id} lists a difference that is none: {key}")),
            (false, None) => wrong.push(format!(
                "{} ({}) {key}\n   status {}\n   expected {expected:.400}\n   found    {found:.400}",
                golden.group,
                golden.note.as_deref().unwrap_or_default(),
                golden.status,
            )),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 250, "only {compared} goldens were compared");
    assert!(unused.is_empty(), "listed, but not among the goldens: {:?}", unused.keys());
}
