//! Mirrors of an upstream that the test scripts: pages, and which upstream is asked for what.

mod approved;
mod disk;
mod failures;
mod files;
mod json;
mod offline;
mod one_name;
pub(super) mod pages;
mod prefetch;
mod prefetch_by_server;
mod replaced;
mod serials;
mod spelling;
mod transfer;
mod trial;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use record::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Offer, Upstream};

use super::{Index, Response, result};
use crate::asking::Says as _;
use crate::client::Client;
use crate::server::TestServer;
use crate::wait_until;

pub(super) const JSON_PAGE: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+json");

pub(super) fn allow_this_machine(config: &mut Config) {
    config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
    // Every use is confirmed, unless a test says otherwise.
    config.python.mirror_cache_expiry = Duration::ZERO;
}

fn start() -> Index {
    Index::start_with(allow_this_machine)
}

pub(super) fn fresh_for_long() -> Index {
    fresh_for_long_with(|_| ())
}

pub(super) fn fresh_for_long_with(change: impl FnOnce(&mut Config)) -> Index {
    Index::start_with(|config| {
        allow_this_machine(config);
        config.python.mirror_cache_expiry = Duration::from_secs(100_000);
        change(config);
    })
}

pub(crate) fn list(names: &[&str]) -> Offer {
    let projects: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    Offer::json(json!({"meta": {"api-version": "1.1"}, "projects": projects}).to_string())
}

/// A page with these files as they are described.
pub(crate) fn page(project: &str, files: Value) -> Offer {
    Offer::json(
        json!({"meta": {"api-version": "1.1"}, "name": project, "files": files}).to_string(),
    )
}

/// A file on a page, at `/files/` of the upstream.
pub(crate) fn file(upstream: &Upstream, filename: &str, content: &[u8]) -> Value {
    let url = upstream.url(&format!("/files/{filename}"));
    json!({"filename": filename, "url": url, "hashes": {"sha256": Digest::of(content).to_string()},
        "size": content.len(), "upload-time": "2026-01-31T12:00:00.000000Z"})
}

/// An index with the mirror `alice/up` of [`upstream_of`].
fn mirroring(content: &[u8], index: Index, settings: Value) -> (Upstream, Index) {
    let upstream = upstream_of(content);
    let index = mirror_of(index, &upstream, settings);
    (upstream, index)
}

/// An upstream of the project `foo` with a wheel of this content, and a project `bar` without files.
fn upstream_of(content: &[u8]) -> Upstream {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["Foo", "bar"]).tagged("\"list\""));
    upstream.offer("/simple/bar/", page("bar", json!([])));
    upstream.offer(
        "/simple/foo/",
        page("foo", json!([file(&upstream, WHEEL, content)])).tagged("\"foo\""),
    );
    upstream.offer(&format!("/files/{WHEEL}"), Offer::file(content));
    upstream
}

const WHEEL: &str = "foo-1.0-py3-none-any.whl";

/// Makes the mirror `alice/up` of this upstream, with further settings.
#[track_caller]
pub(super) fn mirror(index: &Index, upstream: &Upstream, settings: Value) {
    let mut config = json!({"type": "mirror", "mirror_url": upstream.url("/simple")});
    for (key, value) in settings.as_object().expect("an object") {
        config[key] = value.clone();
    }
    index.stage("alice/up", config);
}

/// This index with the mirror `alice/up` of this upstream.
pub(super) fn mirror_of(index: Index, upstream: &Upstream, settings: Value) -> Index {
    mirror(&index, upstream, settings);
    index
}

pub(super) fn json_page(client: Client, stage: &str, project: &str) -> Response {
    client.get_with(&format!("/{stage}/+simple/{project}/"), &[JSON_PAGE])
}

fn place_of(upstream: &Upstream, filename: &str) -> String {
    format!("/alice/up/+upstream/{}/files/{filename}", upstream.host())
}

#[test]
fn a_page_is_passed_on_with_all_that_upstream_says() {
    let upstream = upstream_of(b"content");
    let said = json!({
        "filename": WHEEL, "url": "../../files/foo-1.0-py3-none-any.whl", "hashes": {"sha256": "00".repeat(32)},
        "requires-python": ">=3.9", "size": 7, "upload-time": "2026-01-31T12:00:00.000001Z", "yanked": "broken",
        "core-metadata": {"sha256": "11".repeat(32)}, "provenance": "https://index.example/p",
    });
    upstream.offer("/simple/foo/", page("foo", json!([said.clone()])));
    let index = mirror_of(start(), &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    for (stage, prefix) in [("alice/up", "../../"), ("alice/dev", "../../../../alice/up/")] {
        let answer = json_page(index.client(), stage, "foo").expect(200);
        answer.has("cache-control", "max-age=0, must-revalidate");
        let mut expected = said.clone();
        expected["url"] = format!("{prefix}+upstream/{}/files/{WHEEL}", upstream.host()).into();
        assert_eq!(answer.json()["files"], json!([expected]));
        let tag = answer.header("etag").to_owned();
        index
            .client()
            .get_with(&format!("/{stage}/+simple/foo/"), &[JSON_PAGE, ("If-None-Match", &tag)])
            .expect(304);
        index.page(stage, "foo").says("data-requires-python=\"&gt;=3.9\"");
    }
    let listed = index.client().get_with("/alice/dev/+simple/", &[JSON_PAGE]).json();
    assert_eq!(listed["projects"], json!([{"name": "bar"}, {"name": "foo"}]));
    assert_eq!(json_page(index.client(), "alice/dev", "bar").json()["files"], json!([]));
}

#[test]
fn html_is_read_too() {
    let upstream = Upstream::start();
    upstream.offer("/simple/", Offer::of("text/html", "<!DOCTYPE html><a href=\"foo/\">Foo</a>"));
    let link = format!("<a href=\"/files/{WHEEL}#sha256={}\">{WHEEL}</a>", Digest::of(b"content"));
    // Some servers name another type than they send.
    upstream.offer("/simple/foo/", Offer::of("application/octet-stream", link));
    upstream.offer(&format!("/files/{WHEEL}"), Offer::file("content"));
    let index = mirror_of(start(), &upstream, json!({}));
    let answer = json_page(index.client(), "alice/up", "foo").json();
    assert_eq!(answer["files"][0]["hashes"], json!({"sha256": Digest::of(b"content").to_string()}));
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
}

#[test]
fn upstream_is_asked_conditionally_and_only_when_something_has_expired() {
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    for _ in 0..3 {
        json_page(index.client(), "alice/up", "foo").expect(200);
    }
    let asked = upstream.requests();
    let pages: Vec<_> = asked.iter().filter(|request| request.path == "/simple/foo/").collect();
    assert_eq!(pages.len(), 3, "nothing is fresh");
    assert_eq!(pages[0].header("if-none-match"), "");
    assert_eq!(pages[2].header("if-none-match"), "\"foo\"");
    assert!(pages[0].header("accept").starts_with("application/vnd.pypi.simple.v1+json,"));

    let patch = json!({"mirror_cache_expiry": 100_000});
    index.alice().patch("/alice/up", patch).expect(200);
    let before = (upstream.count("/simple/"), upstream.count("/simple/foo/"));
    for _ in 0..3 {
        json_page(index.client(), "alice/up", "foo").expect(200);
    }
    assert_eq!(upstream.count("/simple/foo/"), before.1, "it is fresh");
    let more =
        page("foo", json!([file(&upstream, WHEEL, b"x"), file(&upstream, "foo-2.0.tar.gz", b"y")]));
    upstream.offer("/simple/foo/", more);
    index.alice().post("/alice/up/+simple/foo/refresh", json!({})).expect(302);
    assert_eq!(upstream.count("/simple/foo/"), before.1 + 1);
    let files = json_page(index.client(), "alice/up", "foo").json()["files"].clone();
    assert_eq!(files.as_array().map(Vec::len), Some(2), "{files}");
}

#[test]
fn no_private_name_is_sent_upstream() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/", list(&["foo", "ours"]));
    upstream
        .offer("/simple/ours/", page("ours", json!([file(&upstream, "ours-9.9.tar.gz", b"evil")])));
    let index = mirror_of(start(), &upstream, json!({}));
    index.stage("bob/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["bob/base", "alice/up"]}));
    index.upload("bob/base", "ours-1.0.zip", &super::sdist("ours"));
    let names = |page: &str| -> Vec<String> {
        let answer = json_page(index.client(), "alice/dev", page);
        let files = answer.json()["files"].as_array().cloned().unwrap_or_default();
        files.iter().filter_map(|it| it["filename"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names("ours"), ["ours-1.0.zip"]);
    // A project that upstream does not list is not requested from it, whatever the client asks for.
    for project in ["our-secret", "foo2", "fo", "foo-1"] {
        json_page(index.client(), "alice/dev", project).expect(404);
        index.get(&place_of(&upstream, &format!("{project}-1.0.zip"))).expect(404);
    }
    let asked: Vec<String> = upstream.requests().iter().map(|it| it.path.clone()).collect();
    assert!(asked.iter().all(|path| path == "/simple/" || path == "/simple/foo/"), "{asked:?}");
    assert_eq!(
        index.notes("alice/dev", "ours"),
        "INFO: Because this project isn't in the mirror_whitelist, no releases from alice/up are included."
    );

    // The list of the stage says that upstream may have it, too.
    let patch = json!({"mirror_whitelist": ["ours"]});
    index.alice().patch("/alice/dev", patch.clone()).expect(200);
    index.user("bob").patch("/bob/base", patch).expect(200);
    assert_eq!(names("ours"), ["ours-1.0.zip", "ours-9.9.tar.gz"]);
}

#[test]
fn an_upstream_without_a_list_is_asked_for_each_project() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/", Offer::status(404));
    let index = mirror_of(start(), &upstream, json!({}));
    json_page(index.client(), "alice/up", "foo").tells(502, "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: it answered 404 Not Found: it has no list of projects; `mirror_no_project_list=true` asks it for each project instead");
    let patch = json!({"mirror_no_project_list": true});
    index.alice().patch("/alice/up", patch).expect(200);
    json_page(index.client(), "alice/up", "foo").expect(200);
    json_page(index.client(), "alice/up", "nothing").expect(404);
    assert_eq!(upstream.count("/simple/nothing/"), 1);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
}

#[test]
fn large_pages_are_served_whole() {
    let upstream = upstream_of(b"content");
    // A content that compression does not make small.
    let name = |at: usize| format!("foo-{at}-{}.tar.gz", Digest::of(&at.to_le_bytes()));
    let files: Vec<Value> =
        (0..20_000).map(|at| file(&upstream, &name(at), &at.to_le_bytes())).collect();
    let body = page("foo", files.clone().into()).body;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&body).expect("memory");
    let gzip = gzip.finish().expect("memory");
    assert!(gzip.len() > 1 << 20, "{} bytes", gzip.len());
    let index = mirror_of(start(), &upstream, json!({}));
    for offer in [Offer::json(body), Offer::json(gzip.clone()).with("Content-Encoding: gzip")] {
        upstream.offer("/simple/foo/", offer);
        let got = json_page(index.client(), "alice/up", "foo").json()["files"].clone();
        assert_eq!(got.as_array().map(Vec::len), Some(files.len()));
        assert_eq!(got[19_999]["filename"], files[19_999]["filename"]);
    }
    let cut = Offer::json(&gzip[..gzip.len() - 100]).with("Content-Encoding: gzip");
    upstream.offer("/simple/foo/", cut);
    let stale = json_page(index.client(), "alice/up", "foo");
    assert!(stale.header("warning").starts_with("110 "), "{:?}", stale.headers);
    // Less than a kilobyte for each of its megabytes.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..65 {
        bomb.write_all(&vec![b' '; 1 << 20]).expect("memory");
    }
    let bomb = bomb.finish().expect("memory");
    upstream.offer("/simple/bar/", Offer::json(bomb).with("Content-Encoding: gzip"));
    json_page(index.client(), "alice/up", "bar").tells(502, "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: the page has more than 33554432 bytes");
}

/// A server on this directory that may ask this machine.
fn start_in(directory: Arc<TempDir>, configure: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::without_aur_in(directory, |config| {
        allow_this_machine(config);
        configure(config);
    })
}

/// A server with the mirror `root/pypi`, which has the page and the wheel of `foo`.
fn start_with_root_pypi(upstream: &Upstream) -> TestServer {
    let server = start_in(Arc::new(tempfile::tempdir().expect("a directory")), |_| ());
    server
        .root()
        .put("/root/pypi", json!({"type": "mirror", "mirror_url": upstream.url("/simple/")}))
        .expect(200);
    json_page(server.client, "root/pypi", "foo").expect(200);
    assert_eq!(server.get(&root_place_of(upstream, WHEEL)).text(), "content");
    server
}

fn root_place_of(upstream: &Upstream, filename: &str) -> String {
    format!("/root/pypi/+upstream/{}/files/{filename}", upstream.host())
}

/// An index with the mirror `alice/up` of this upstream, which asks for `me` and `s3cret`.
fn with_credentials(upstream: &Upstream) -> Index {
    let index = start();
    let url = upstream.url("/simple/").replace("http://", "http://me:s3cret@");
    let config = json!({"type": "mirror", "mirror_url": url});
    let made = index.alice().json().put("/alice/up", config);
    assert_eq!(result(&made, "indexconfig")["mirror_url"], url.replace("me:s3cret", "***"));
    index
}

#[test]
fn credentials_are_sent_to_their_upstream_alone() {
    let upstream = upstream_of(b"content");
    let other = Upstream::start();
    other.offer("/x/foo-2.0.tar.gz", Offer::file("two"));
    let mut files = vec![file(&upstream, WHEEL, b"content")];
    files.push(
        json!({"filename": "foo-2.0.tar.gz", "url": other.url("/x/foo-2.0.tar.gz"), "hashes": {}}),
    );
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = with_credentials(&upstream);
    json_page(index.client(), "alice/up", "foo").expect(200);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    let foreign = format!("/alice/up/+upstream/{}/x/foo-2.0.tar.gz", other.host());
    assert_eq!(index.client().get(&foreign).text(), "two");
    let basic = super::basic("me", "s3cret");
    assert!(upstream.requests().iter().all(|request| request.header("authorization") == basic));
    assert!(other.requests().iter().all(|request| request.header("authorization").is_empty()));
}

/// A client that sends back what it was shown changes nothing.
#[test]
fn credentials_are_never_shown() {
    let upstream = upstream_of(b"content");
    let index = with_credentials(&upstream);
    let shown = index.alice().json().get("/alice/up");
    shown.lacks("s3cret");
    let mut back = result(&shown, "indexconfig");
    back["title"] = "changed".into();
    let changed = index.alice().json().patch("/alice/up", back);
    assert_eq!(result(&changed, "indexconfig")["title"], "changed");
    json_page(index.client(), "alice/up", "foo").expect(200);
    let (asked, basic) = (upstream.requests(), super::basic("me", "s3cret"));
    assert!(!asked.is_empty() && asked.iter().all(|it| it.header("authorization") == basic));
    upstream.break_with(Some(401));
    for target in ["/alice/up/+simple/bar/", "/readyz?verbose", "/alice/up", "/alice", "/metrics"] {
        index.alice().json().get(target).lacks("s3cret");
    }
    for bad in ["http://me:s3cret@", "http://me:s3cret@h/?q", "ftp://me:s3cret@h/"] {
        let patch = json!({"mirror_url": bad});
        index.alice().json().patch("/alice/up", patch).expect(400).lacks("s3cret");
    }
}

#[test]
fn only_allowed_addresses_are_asked() {
    let upstream = upstream_of(b"content");
    let index = Index::start();
    mirror(&index, &upstream, json!({}));
    json_page(index.client(), "alice/up", "foo").tells(502, "the mirror alice/up has no usable answer from its upstream: no public address is known for `127.0.0.1`; `egress_allow` of the configuration may name others");
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn redirects_are_followed_and_counted() {
    let upstream = upstream_of(b"content");
    let moved = |to: &str| Offer::status(302).with(&format!("Location: {to}"));
    upstream.offer("/simple/foo/", moved("/moved/foo/"));
    let link = format!("<a href=\"../../files/{WHEEL}\">{WHEEL}</a>");
    upstream.offer("/moved/foo/", Offer::of("text/html", link));
    upstream.offer("/simple/bar/", moved("/simple/bar/"));
    let index = mirror_of(start(), &upstream, json!({}));
    let page = json_page(index.client(), "alice/up", "foo").json();
    let expected = format!("../../+upstream/{}/files/{WHEEL}", upstream.host());
    assert_eq!(page["files"][0]["url"], expected);
    json_page(index.client(), "alice/up", "bar").tells(
        502,
        "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: more than 5 redirects",
    );
    assert_eq!(upstream.count("/simple/bar/"), 6);
}

#[test]
fn who_may_not_read_a_stage_has_its_mirror_ask_nothing() {
    let (upstream, index) = mirroring(b"content", start(), json!({"acl_read": ["alice"]}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let targets = [
        "/alice/up/+simple/foo/".to_owned(),
        "/alice/dev/+simple/foo/".to_owned(),
        "/alice/up/+simple/".to_owned(),
        place_of(&upstream, WHEEL),
    ];
    let asked = upstream.requests().len();
    for target in &targets {
        index.get(target).expect(401);
        index.user("bob").get(target).expect(403);
    }
    assert_eq!(upstream.requests().len(), asked);
    for target in &targets {
        index.alice().with("User-Agent", "pip/26").get(target).expect(200);
    }
    let page = index.alice().with("User-Agent", "pip/26").get(&targets[0]);
    page.has("cache-control", "private, max-age=0, must-revalidate");
}
