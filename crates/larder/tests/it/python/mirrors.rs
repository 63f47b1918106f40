//! Mirrors of an upstream that the test scripts: pages, files, what is asked and what is not, and what happens when the
//! upstream fails.

mod json;
mod offline;
mod one_name;
mod prefetch;
mod transfer;

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use record::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Offer, Upstream};

use super::{Index, Response, result};
use crate::client::Client;
use crate::server::{ROOT, TestServer};
use crate::wait_until;

const JSON_PAGE: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+json");

/// Expected where a file that was not checked may not be whole.
const LARGE: usize = 3 << 20;

fn allow_this_machine(config: &mut Config) {
    config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
    // Every use is confirmed, unless a test says otherwise.
    config.python.mirror_cache_expiry = Duration::ZERO;
}

fn start() -> Index {
    Index::start_with(allow_this_machine)
}

fn fresh_for_long() -> Index {
    Index::start_with(|config| {
        allow_this_machine(config);
        config.python.mirror_cache_expiry = Duration::from_secs(100_000);
    })
}

fn list(names: &[&str]) -> Offer {
    let projects: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    Offer::json(json!({"meta": {"api-version": "1.1"}, "projects": projects}).to_string())
}

/// A page with these files as they are described.
fn page(project: &str, files: Value) -> Offer {
    Offer::json(
        json!({"meta": {"api-version": "1.1"}, "name": project, "files": files}).to_string(),
    )
}

/// A file on a page, at `/files/` of the upstream.
fn file(upstream: &Upstream, filename: &str, content: &[u8]) -> Value {
    let url = upstream.url(&format!("/files/{filename}"));
    json!({"filename": filename, "url": url, "hashes": {"sha256": Digest::of(content).to_string()},
        "size": content.len(), "upload-time": "2026-01-31T12:00:00.000000Z"})
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

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at % 251) as u8).collect()
}

/// Makes the mirror `alice/up` of this upstream, with further settings.
#[track_caller]
fn mirror(index: &Index, upstream: &Upstream, settings: Value) {
    let mut config = json!({"type": "mirror", "mirror_url": upstream.url("/simple")});
    for (key, value) in settings.as_object().expect("an object") {
        config[key] = value.clone();
    }
    index.stage("alice/up", config);
}

fn json_page(client: Client, stage: &str, project: &str) -> Response {
    client.get_with(&format!("/{stage}/+simple/{project}/"), &[JSON_PAGE])
}

fn place_of(upstream: &Upstream, filename: &str) -> String {
    format!("/alice/up/+upstream/{}/files/{filename}", upstream.host())
}

/// Everything that comes for this request, whole or not.
fn raw(client: Client, target: &str, header: &str) -> Vec<u8> {
    let mut stream = client.connect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut bytes = Vec::new();
    // What came before a reset counts.
    _ = stream.read_to_end(&mut bytes);
    bytes
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
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    for (stage, prefix) in [("alice/up", "../../"), ("alice/dev", "../../../../alice/up/")] {
        let answer = json_page(index.client(), stage, "foo");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("cache-control"), "max-age=0, must-revalidate");
        let mut expected = said.clone();
        expected["url"] = format!("{prefix}+upstream/{}/files/{WHEEL}", upstream.host()).into();
        assert_eq!(answer.json()["files"], json!([expected]));
        let tag = answer.header("etag").to_owned();
        let again = index
            .client()
            .get_with(&format!("/{stage}/+simple/foo/"), &[JSON_PAGE, ("If-None-Match", &tag)]);
        assert_eq!(again.status, 304);
        assert!(index.page(stage, "foo").contains("data-requires-python=\"&gt;=3.9\""));
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
    let index = start();
    mirror(&index, &upstream, json!({}));
    let answer = json_page(index.client(), "alice/up", "foo").json();
    assert_eq!(answer["files"][0]["hashes"], json!({"sha256": Digest::of(b"content").to_string()}));
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
}

#[test]
fn upstream_is_asked_conditionally_and_only_when_something_has_expired() {
    let upstream = upstream_of(b"content");
    let index = start();
    mirror(&index, &upstream, json!({}));
    for _ in 0..3 {
        assert_eq!(json_page(index.client(), "alice/up", "foo").status, 200);
    }
    let asked = upstream.requests();
    let pages: Vec<_> = asked.iter().filter(|request| request.path == "/simple/foo/").collect();
    assert_eq!(pages.len(), 3, "nothing is fresh");
    assert_eq!(pages[0].header("if-none-match"), "");
    assert_eq!(pages[2].header("if-none-match"), "\"foo\"");
    assert!(pages[0].header("accept").starts_with("application/vnd.pypi.simple.v1+json,"));

    let patch = json!({"mirror_cache_expiry": 100_000});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    let before = (upstream.count("/simple/"), upstream.count("/simple/foo/"));
    for _ in 0..3 {
        assert_eq!(json_page(index.client(), "alice/up", "foo").status, 200);
    }
    assert_eq!(upstream.count("/simple/foo/"), before.1, "it is fresh");
    let more =
        page("foo", json!([file(&upstream, WHEEL, b"x"), file(&upstream, "foo-2.0.tar.gz", b"y")]));
    upstream.offer("/simple/foo/", more);
    let done = index.alice().send("POST", "/alice/up/+simple/foo/refresh", json!({}));
    assert_eq!(done.status, 302, "{}", done.text());
    assert_eq!(upstream.count("/simple/foo/"), before.1 + 1);
    let files = json_page(index.client(), "alice/up", "foo").json()["files"].clone();
    assert_eq!(files.as_array().map(Vec::len), Some(2), "{files}");
}

#[test]
fn many_clients_make_one_request() {
    let content = large();
    let upstream = upstream_of(&content);
    let index = fresh_for_long();
    mirror(&index, &upstream, json!({}));
    let client = index.client();
    upstream.hold("/simple/foo/");
    let clients: Vec<_> =
        (0..20).map(|_| std::thread::spawn(move || json_page(client, "alice/up", "foo"))).collect();
    upstream.wait_for("/simple/foo/", 1);
    upstream.release("/simple/foo/");
    for client in clients {
        assert_eq!(client.join().expect("an answer").status, 200);
    }
    assert_eq!((upstream.count("/simple/"), upstream.count("/simple/foo/")), (1, 1));

    let path = format!("/files/{WHEEL}");
    upstream.offer(&path, Offer::file(content.clone()).held_after(1 << 20));
    upstream.hold(&path);
    let target = place_of(&upstream, WHEEL);
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let target = target.clone();
            std::thread::spawn(move || client.get(&target))
        })
        .collect();
    upstream.wait_for(&path, 1);
    upstream.release(&path);
    for client in clients {
        let answer = client.join().expect("an answer");
        assert_eq!(answer.status, 200);
        assert!(answer.body == content, "the file is whole");
    }
    assert_eq!(upstream.count(&path), 1);
    assert!(client.get(&target).body == content);
    assert_eq!(upstream.count(&path), 1, "it is kept");
}

#[test]
fn the_first_client_reads_while_the_file_arrives() {
    let content = large();
    let upstream = upstream_of(&content);
    let path = format!("/files/{WHEEL}");
    upstream.offer(&path, Offer::file(content.clone()).held_after(2 << 20));
    upstream.hold(&path);
    let index = start();
    mirror(&index, &upstream, json!({}));
    let target = place_of(&upstream, WHEEL);
    let mut stream = index.client().connect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    // As many bytes arrive before upstream sends the rest.
    let mut first = vec![0; 1 << 20];
    stream.read_exact(&mut first).expect("bytes");
    let part = index.client().get_with(&target, &[("Range", "bytes=1000-1999")]);
    assert_eq!(
        (part.status, part.header("content-range")),
        (206, &*format!("bytes 1000-1999/{LARGE}"))
    );
    assert!(part.body == content[1000..2000], "a part is served as soon as its bytes are there");
    upstream.release(&path);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let answer = [first, rest].concat();
    assert!(answer.ends_with(&content), "it is whole");
    assert_eq!(upstream.count(&path), 1);
}

#[test]
fn what_is_not_right_is_neither_served_whole_nor_kept() {
    let content = large();
    let upstream = upstream_of(&content);
    let index = start();
    mirror(&index, &upstream, json!({}));
    let (path, target) = (format!("/files/{WHEEL}"), place_of(&upstream, WHEEL));
    let mut wrong = content.clone();
    wrong[LARGE - 1] ^= 1;
    let longer = [&content[..], b"x"].concat();
    let encoded = Offer::file(content.clone()).with("Content-Encoding: gzip");
    let offers = [
        ("a wrong byte", Offer::file(wrong.clone())),
        ("cut off", Offer::file(content.clone()).cut(LARGE - 1)),
        ("shorter than the page says", Offer::file(&content[1..])),
        ("longer than the page says", Offer::file(longer.clone())),
        ("longer, without a length", Offer::file(longer).with("Transfer-Encoding: identity")),
        ("encoded", encoded),
        ("an error", Offer::status(500)),
    ];
    for (at, (what, offer)) in offers.into_iter().enumerate() {
        upstream.offer(&path, offer);
        let came = raw(index.client(), &target, "");
        let text = String::from_utf8_lossy(&came[..came.len().min(4000)]).into_owned();
        let is_refused = text.starts_with("HTTP/1.1 502");
        let end = came.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let body = came.len() - end - 4;
        assert!(
            is_refused || (text.starts_with("HTTP/1.1 200") && body < LARGE),
            "{what}: {body} bytes, {text}"
        );
        assert_eq!(upstream.count(&path), at + 1, "{what}: nothing was kept before");
    }
    upstream.offer(&path, Offer::file(content.clone()));
    assert!(index.client().get(&target).body == content, "nothing wrong stays");
}

#[test]
fn direct_links_need_no_page() {
    let upstream = upstream_of(b"content");
    let digest = Digest::of(b"content").to_string();
    let unhashed = json!({"filename": "foo-2.0.tar.gz", "url": upstream.url("/files/foo-2.0.tar.gz"), "hashes": {}});
    let mut wheel = file(&upstream, WHEEL, b"content");
    wheel["core-metadata"] = json!({"sha256": Digest::of(b"Name: foo").to_string()});
    upstream.offer("/simple/foo/", page("foo", json!([wheel, unhashed])));
    upstream.offer(&format!("/files/{WHEEL}.metadata"), Offer::file("Name: foo"));
    upstream.offer("/files/foo-2.0.tar.gz", Offer::file("two"));
    upstream.offer("/files/foo-3.0.tar.gz", Offer::file("not on the page"));
    let external =
        format!("/alice/up/+e/http_{}_files/foo-2.0.tar.gz", upstream.host().replace(':', "_"));
    let by_digest = format!("/alice/up/+f/{}/{}/{WHEEL}", &digest[..3], &digest[3..16]);
    for (target, expected) in [
        (place_of(&upstream, WHEEL), "content"),
        (format!("{}.metadata", place_of(&upstream, WHEEL)), "Name: foo"),
        (by_digest, "content"),
        (external, "two"),
        (place_of(&upstream, "foo-2.0.tar.gz"), "two"),
    ] {
        // Each from an empty cache.
        let index = start();
        mirror(&index, &upstream, json!({}));
        let head = index.client().send("HEAD", &target, &[], b"");
        assert_eq!(head.status, 200, "{target}");
        let answer = index.client().get(&target);
        assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{target}");
        assert_eq!(answer.header("content-length"), expected.len().to_string(), "{target}");
        let part = index.client().get_with(&target, &[("Range", "bytes=1-2")]);
        assert_eq!((part.status, part.text().as_str()), (206, &expected[1..3]), "{target}");
        let is_immutable = answer.header("cache-control").contains("immutable");
        assert_eq!(is_immutable, expected != "two", "{target}");
    }
    let index = start();
    mirror(&index, &upstream, json!({}));
    let absent = [
        place_of(&upstream, "foo-3.0.tar.gz"),
        place_of(&upstream, "secret-1.0.tar.gz"),
        format!("/alice/up/+upstream/{}/etc/passwd", upstream.host()),
        format!("/alice/up/+upstream/other.example/files/{WHEEL}"),
        format!("/alice/none/+upstream/{}/files/{WHEEL}", upstream.host()),
    ];
    let before = upstream.requests().len();
    for target in absent {
        assert_eq!(index.client().get(&target).status, 404, "{target}");
    }
    let asked: Vec<String> =
        upstream.requests()[before..].iter().map(|it| it.path.clone()).collect();
    assert!(
        asked.iter().all(|path| path.starts_with("/simple/") && !path.contains("secret")),
        "{asked:?}"
    );
}

#[test]
fn no_private_name_is_sent_upstream() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/", list(&["foo", "ours"]));
    upstream
        .offer("/simple/ours/", page("ours", json!([file(&upstream, "ours-9.9.tar.gz", b"evil")])));
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("bob/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["bob/base", "alice/up"]}));
    index.upload("bob/base", "ours-1.0.zip", &super::sdist("ours"));
    let names = |page: &str| -> Vec<String> {
        let answer = json_page(index.client(), "alice/dev", page);
        let files = answer.json()["files"].as_array().cloned().unwrap_or_default();
        files.iter().filter_map(|it| it["filename"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names("ours"), ["ours-1.0.zip"]);
    // What upstream does not list is not sent, however it is asked for.
    for project in ["our-secret", "foo2", "fo", "foo-1"] {
        assert_eq!(json_page(index.client(), "alice/dev", project).status, 404, "{project}");
        assert_eq!(
            index.client().get(&place_of(&upstream, &format!("{project}-1.0.zip"))).status,
            404
        );
    }
    let asked: Vec<String> = upstream.requests().iter().map(|it| it.path.clone()).collect();
    assert!(asked.iter().all(|path| path == "/simple/" || path == "/simple/foo/"), "{asked:?}");
    let human =
        index.client().get_with("/alice/dev/+simple/ours/", &[("Accept", "text/html")]).text();
    assert!(human.contains("no releases from <strong>alice/up</strong> are included"), "{human}");

    // The list of the stage says that upstream may have it, too.
    let patch = json!({"mirror_whitelist": ["ours"]});
    assert_eq!(index.alice().send("PATCH", "/alice/dev", patch.clone()).status, 200);
    assert_eq!(index.user("bob").send("PATCH", "/bob/base", patch).status, 200);
    assert_eq!(names("ours"), ["ours-1.0.zip", "ours-9.9.tar.gz"]);
}

#[test]
fn an_upstream_without_a_list_is_asked_for_each_project() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/", Offer::status(404));
    let index = start();
    mirror(&index, &upstream, json!({}));
    let answer = json_page(index.client(), "alice/up", "foo");
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("mirror_no_project_list"), "{}", answer.text());
    let patch = json!({"mirror_no_project_list": true});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 200);
    assert_eq!(json_page(index.client(), "alice/up", "nothing").status, 404);
    assert_eq!(upstream.count("/simple/nothing/"), 1);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
}

#[test]
fn what_is_known_is_served_while_upstream_fails() {
    let upstream = upstream_of(b"content");
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    assert_eq!(json_page(index.client(), "alice/dev", "foo").status, 200);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    upstream.break_with(Some(503));
    let before = upstream.requests().len();
    for _ in 0..40 {
        let stale = json_page(index.client(), "alice/dev", "foo");
        assert_eq!(stale.status, 200, "{}", stale.text());
        assert_eq!(stale.json()["files"][0]["filename"], WHEEL);
        assert!(stale.header("warning").starts_with("110 "), "{:?}", stale.headers);
        assert!(stale.header("cache-control").contains("no-store"));
    }
    // Each of these pages needs two answers. The pauses double, up to half a minute.
    let asked = upstream.requests().len() - before;
    assert!(asked < 40, "an upstream that fails again and again is left alone: {asked}");
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    let unknown = json_page(index.client(), "alice/dev", "bar");
    assert_eq!(unknown.status, 502, "it was never known: {}", unknown.text());
    assert!(unknown.text().contains("alice/up"), "{}", unknown.text());
    let ready = index.client().get("/readyz?verbose");
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("[!] mirror alice/up: its upstream fails"), "{}", ready.text());
    assert_eq!(index.server.metric("larder_mirrors_failing"), 1.0);
    assert!(index.server.metric("larder_mirror_stale_total") >= 40.0);

    upstream.break_with(None);
    wait_until("the upstream to be asked again", || {
        let answer = json_page(index.client(), "alice/dev", "foo");
        assert_eq!(answer.status, 200);
        answer.find("warning").is_none()
    });
    assert_eq!(json_page(index.client(), "alice/dev", "bar").status, 200);
    assert_eq!(index.server.metric("larder_mirrors_failing"), 0.0);
    // An answer that is no page changes nothing either.
    for garbage in [
        "",
        "gone fishing",
        "<html><h1>Login</h1></html>",
        "{\"meta\":{\"api-version\":\"1.0\"},\"files\":[",
    ] {
        upstream.offer("/simple/foo/", Offer::of("text/html", garbage));
        let stale = json_page(index.client(), "alice/dev", "foo");
        assert_eq!(stale.json()["files"][0]["filename"], WHEEL, "{garbage}");
    }
}

#[test]
fn an_older_state_of_upstream_is_not_taken() {
    let upstream = upstream_of(b"content");
    let newer = |serial: &str, filename: &str| {
        let files = json!([file(&upstream, filename, b"x")]);
        page("foo", files).with(&format!("X-PyPI-Last-Serial: {serial}"))
    };
    let index = start();
    mirror(&index, &upstream, json!({}));
    let name =
        || json_page(index.client(), "alice/up", "foo").json()["files"][0]["filename"].clone();
    upstream.offer("/simple/foo/", newer("7", "foo-2.0.tar.gz"));
    assert_eq!(name(), "foo-2.0.tar.gz");
    upstream.offer("/simple/foo/", newer("6", "foo-1.0.tar.gz"));
    assert_eq!(name(), "foo-2.0.tar.gz");
    upstream.offer("/simple/foo/", newer("8", "foo-3.0.tar.gz"));
    assert_eq!(name(), "foo-3.0.tar.gz");
    let patch = json!({"mirror_ignore_serial_header": true});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    upstream.offer("/simple/foo/", newer("1", "foo-0.1.tar.gz"));
    assert_eq!(name(), "foo-0.1.tar.gz");
}

#[test]
fn large_pages_are_served_whole() {
    let upstream = upstream_of(b"content");
    // What a compression does not make small.
    let name = |at: usize| format!("foo-{at}-{}.tar.gz", Digest::of(&at.to_le_bytes()));
    let files: Vec<Value> =
        (0..20_000).map(|at| file(&upstream, &name(at), &at.to_le_bytes())).collect();
    let body = page("foo", files.clone().into()).body;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&body).expect("memory");
    let gzip = gzip.finish().expect("memory");
    assert!(gzip.len() > 1 << 20, "{} bytes", gzip.len());
    let index = start();
    mirror(&index, &upstream, json!({}));
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
    let refused = json_page(index.client(), "alice/up", "bar");
    assert_eq!(refused.status, 502);
    assert!(refused.text().contains("more than 67108864 bytes"), "{}", refused.text());
}

#[test]
fn an_upstream_that_hangs_delays_no_other() {
    let hanging = Upstream::start();
    let names: Vec<String> = (0..70).map(|at| format!("p{at}")).collect();
    let list_of: Vec<&str> = names.iter().map(String::as_str).collect();
    hanging.offer("/simple/", list(&list_of));
    let wheel = |name: &str| format!("{name}-1.0-py3-none-any.whl");
    for name in &names {
        let (page_path, file_path) =
            (format!("/simple/{name}/"), format!("/files/{}", wheel(name)));
        hanging.offer(&page_path, page(name, json!([file(&hanging, &wheel(name), b"content")])));
        hanging.offer(&file_path, Offer::file("content"));
        hanging.hold(&page_path);
        hanging.hold(&file_path);
    }
    let other = upstream_of(b"content");
    let index = fresh_for_long();
    mirror(&index, &hanging, json!({}));
    index.stage("alice/other", json!({"type": "mirror", "mirror_url": other.url("/simple")}));
    let client = index.client();

    let pages: Vec<_> = names
        .iter()
        .map(|name| {
            let name = name.clone();
            std::thread::spawn(move || json_page(client, "alice/up", &name).status)
        })
        .collect();
    let asked =
        |prefix: &str| hanging.requests().iter().filter(|it| it.path.starts_with(prefix)).count();
    // As many as are asked of one upstream at once.
    wait_until("the pages to be asked for", || asked("/simple/p") == 16);
    assert_eq!(json_page(client, "alice/other", "foo").status, 200);
    for name in &names {
        hanging.release(&format!("/simple/{name}/"));
    }
    for page in pages {
        assert_eq!(page.join().expect("an answer"), 200);
    }

    let files: Vec<_> = names
        .iter()
        .map(|name| {
            let target = place_of(&hanging, &wheel(name));
            std::thread::spawn(move || client.get(&target).text())
        })
        .collect();
    wait_until("the files to be asked for", || asked("/files/") == 32);
    let place = format!("/alice/other/+upstream/{}/files/{WHEEL}", other.host());
    assert_eq!(client.get(&place).text(), "content");
    for name in &names {
        hanging.release(&format!("/files/{}", wheel(name)));
    }
    for file in files {
        assert_eq!(file.join().expect("an answer"), "content");
    }
}

#[test]
fn a_mirror_that_is_gone_fails_no_longer() {
    let upstream = upstream_of(b"content");
    upstream.break_with(Some(500));
    let index = start();
    mirror(&index, &upstream, json!({}));
    let check = |count: f64| {
        let ready = index.client().get("/readyz?verbose").text();
        assert_eq!(ready.contains("mirror alice/up"), count > 0.0, "{ready}");
        assert_eq!(index.server.metric("larder_mirrors_failing"), count);
    };
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 502);
    check(1.0);
    // Of its new upstream nothing is known.
    let patch = json!({"mirror_url": upstream.url("/elsewhere/")});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    check(0.0);
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 502);
    check(1.0);
    let deleted = index.alice().send("DELETE", "/alice/up", json!({}));
    assert!(deleted.status < 300, "{}", deleted.text());
    check(0.0);
}

/// Changes a byte in the middle of every entry of the cache that has this content.
fn damage(directory: &TempDir, content: &[u8]) {
    let mut found = 0;
    for part in
        std::fs::read_dir(directory.path().join("data/mirrors")).expect("the cache").flatten()
    {
        for entry in std::fs::read_dir(part.path()).expect("a directory").flatten() {
            let mut bytes = std::fs::read(entry.path()).expect("an entry");
            if bytes.ends_with(content) {
                let at = bytes.len() - content.len() / 2 - 1;
                bytes[at] ^= 1;
                std::fs::write(entry.path(), bytes).expect("a disk");
                found += 1;
            }
        }
    }
    assert_eq!(found, 1, "one file has this content");
}

#[test]
fn what_the_disk_has_changed_is_not_served() {
    let upstream = upstream_of(b"content");
    let (path, target) = (format!("/files/{WHEEL}"), root_place_of(&upstream, WHEEL));
    let directory = start_with_root_pypi(&upstream).stop();
    damage(&directory, b"content");
    upstream.offer(&path, Offer::status(500));
    let server = start_in(directory, |_| ());
    for header in [[("Range", "bytes=1-2")], [("Accept", "*/*")]] {
        let refused = server.client.get_with(&target, &header);
        assert_eq!(refused.status, 502, "{}", refused.text());
    }
    upstream.offer(&path, Offer::file("content"));
    assert_eq!(server.get(&target).text(), "content");
    let directory = server.stop();
    damage(&directory, b"content");
    let before = upstream.count(&path);
    let server = start_in(directory, |_| ());
    assert_eq!(server.get(&target).text(), "content", "it is fetched anew");
    assert_eq!(upstream.count(&path), before + 1);
    assert_eq!(server.get(&target).text(), "content");
    assert_eq!(upstream.count(&path), before + 1, "it is kept");
}

/// A server on this directory that may ask this machine.
fn start_in(directory: Arc<TempDir>, configure: impl FnOnce(&mut Config)) -> TestServer {
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.enabled = false;
        allow_this_machine(config);
        configure(config);
    });
    server.wait_until_ready();
    server
}

/// A server with the mirror `root/pypi`, which has the page and the wheel of `foo`.
fn start_with_root_pypi(upstream: &Upstream) -> TestServer {
    let server = start_in(Arc::new(tempfile::tempdir().expect("a directory")), |_| ());
    let config = json!({"type": "mirror", "mirror_url": upstream.url("/simple/")}).to_string();
    let made = server.client.send("PUT", "/root/pypi", &[ROOT], config.as_bytes());
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(json_page(server.client, "root/pypi", "foo").status, 200);
    assert_eq!(server.get(&root_place_of(upstream, WHEEL)).text(), "content");
    server
}

fn root_place_of(upstream: &Upstream, filename: &str) -> String {
    format!("/root/pypi/+upstream/{}/files/{filename}", upstream.host())
}

#[test]
fn nothing_is_downloaded_onto_a_full_disk() {
    let upstream = upstream_of(b"content");
    let directory = start_with_root_pypi(&upstream).stop();
    let more = "foo-2.0.tar.gz";
    let files = [file(&upstream, WHEEL, b"content"), file(&upstream, more, b"more")];
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    upstream.offer(&format!("/files/{more}"), Offer::file("more"));
    let server = start_in(directory, |config| config.store.free_bytes_min = u64::MAX);
    // Pages are in memory, and what is there stays.
    let page = json_page(server.client, "root/pypi", "foo");
    assert_eq!(page.json()["files"][1]["filename"], more);
    assert_eq!(server.get(&root_place_of(&upstream, WHEEL)).text(), "content");
    let refused = server.get(&root_place_of(&upstream, more));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("free_bytes_min"), "{}", refused.text());
    assert!(refused.find("retry-after").is_some(), "{:?}", refused.headers);
    assert_eq!(upstream.count(&format!("/files/{more}")), 0, "upstream is not even asked");
    let server = start_in(server.stop(), |_| ());
    assert_eq!(server.get(&root_place_of(&upstream, more)).text(), "more");
}

#[test]
fn downloads_count_while_they_are_written() {
    let content = vec![7; 400 << 10];
    let upstream = upstream_of(b"content");
    let names = ["foo-1.tar.gz", "foo-2.tar.gz", "foo-3.tar.gz"];
    let files: Vec<Value> = names.iter().map(|name| file(&upstream, name, &content)).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    for name in names {
        let path = format!("/files/{name}");
        upstream.offer(&path, Offer::file(content.clone()).held_after(100));
        upstream.hold(&path);
    }
    let index = Index::start_with(|config| {
        allow_this_machine(config);
        config.python.mirror_disk_bytes_max = 1 << 20;
    });
    mirror(&index, &upstream, json!({}));
    let client = index.client();
    let get = |name: &str| {
        let target = place_of(&upstream, name);
        std::thread::spawn(move || client.get(&target))
    };
    let first = [get(names[0]), get(names[1])];
    for name in &names[..2] {
        upstream.wait_for(&format!("/files/{name}"), 1);
    }
    assert!(index.server.metric("larder_mirror_disk_bytes") >= (800 << 10) as f64);
    // Of both, upstream has sent 100 bytes: they are promised their space all the same.
    let refused = client.get(&place_of(&upstream, names[2]));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("mirror_disk_bytes_max"), "{}", refused.text());
    for name in names {
        upstream.release(&format!("/files/{name}"));
    }
    for download in first {
        assert!(download.join().expect("an answer").body == content);
    }
    // Readers may still have the files of the first two open for a moment.
    wait_until("the third instead of one that nobody reads", || {
        let answer = client.get(&place_of(&upstream, names[2]));
        answer.status == 200 && answer.body == content
    });
    assert!(index.server.metric("larder_mirror_disk_bytes") <= (1 << 20) as f64);
}

#[test]
fn the_cache_survives_a_restart_without_its_upstream() {
    let upstream = upstream_of(b"content");
    let target = root_place_of(&upstream, WHEEL);
    let directory = start_with_root_pypi(&upstream).stop();

    upstream.break_with(Some(500));
    // As a kill leaves it: a file that was not finished.
    let unfinished = directory.path().join("data/mirrors/tmp");
    std::fs::create_dir_all(&unfinished).expect("a directory");
    std::fs::write(unfinished.join("half"), "half").expect("a file");
    let server = start_in(directory, |_| ());
    assert!(!unfinished.join("half").exists());
    let page = json_page(server.client, "root/pypi", "foo");
    assert_eq!((page.status, &page.json()["files"][0]["filename"]), (200, &json!(WHEEL)));
    assert!(page.find("warning").is_some(), "it is not confirmed");
    assert_eq!(server.get(&target).text(), "content");
    assert_eq!(json_page(server.client, "root/pypi", "bar").status, 502, "it was never known");
    assert_eq!(json_page(server.client, "root/pypi", "nothing").status, 404, "the list is known");
}

#[test]
fn credentials_are_sent_and_never_shown() {
    let upstream = upstream_of(b"content");
    let other = Upstream::start();
    other.offer("/x/foo-2.0.tar.gz", Offer::file("two"));
    let mut files = vec![file(&upstream, WHEEL, b"content")];
    files.push(
        json!({"filename": "foo-2.0.tar.gz", "url": other.url("/x/foo-2.0.tar.gz"), "hashes": {}}),
    );
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = start();
    let url = upstream.url("/simple/").replace("http://", "http://me:s3cret@");
    let config = json!({"type": "mirror", "mirror_url": url});
    let made = index.alice().json().send("PUT", "/alice/up", config);
    assert_eq!(result(&made, "indexconfig")["mirror_url"], url.replace("me:s3cret", "***"));
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 200);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    let foreign = format!("/alice/up/+upstream/{}/x/foo-2.0.tar.gz", other.host());
    assert_eq!(index.client().get(&foreign).text(), "two");
    let basic = super::basic("me", "s3cret");
    assert!(upstream.requests().iter().all(|request| request.header("authorization") == basic));
    assert!(other.requests().iter().all(|request| request.header("authorization").is_empty()));

    // A client that sends back what it was shown changes nothing.
    let shown = index.alice().json().get("/alice/up");
    assert!(!shown.text().contains("s3cret"), "{}", shown.text());
    let mut back = result(&shown, "indexconfig");
    back["title"] = "changed".into();
    let changed = index.alice().json().send("PATCH", "/alice/up", back);
    assert_eq!(result(&changed, "indexconfig")["title"], "changed");
    let before = upstream.requests().len();
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 200);
    let asked = upstream.requests();
    assert!(asked.len() > before && asked.iter().all(|it| it.header("authorization") == basic));
    upstream.break_with(Some(401));
    for target in ["/alice/up/+simple/bar/", "/readyz?verbose", "/alice/up", "/alice", "/metrics"] {
        let answer = index.alice().json().get(target);
        assert!(!answer.text().contains("s3cret"), "{target}: {}", answer.text());
    }
    for bad in ["http://me:s3cret@", "http://me:s3cret@h/?q", "ftp://me:s3cret@h/"] {
        let patch = json!({"mirror_url": bad});
        let refused = index.alice().json().send("PATCH", "/alice/up", patch);
        assert_eq!(refused.status, 400, "{bad}");
        assert!(!refused.text().contains("s3cret"), "{}", refused.text());
    }
}

#[test]
fn only_allowed_addresses_are_asked() {
    let upstream = upstream_of(b"content");
    let index = Index::start();
    mirror(&index, &upstream, json!({}));
    let answer = json_page(index.client(), "alice/up", "foo");
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("egress_allow"), "{}", answer.text());
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
    let index = start();
    mirror(&index, &upstream, json!({}));
    let page = json_page(index.client(), "alice/up", "foo").json();
    let expected = format!("../../+upstream/{}/files/{WHEEL}", upstream.host());
    assert_eq!(page["files"][0]["url"], expected);
    let endless = json_page(index.client(), "alice/up", "bar");
    assert_eq!(endless.status, 502);
    assert!(endless.text().contains("redirects"), "{}", endless.text());
    assert_eq!(upstream.count("/simple/bar/"), 6);
}

#[test]
fn files_may_be_redirected_to() {
    let upstream = upstream_of(b"content");
    let index = start();
    mirror(&index, &upstream, json!({"mirror_use_external_urls": true}));
    let answer = index.client().get(&place_of(&upstream, WHEEL));
    assert_eq!(answer.status, 302);
    assert_eq!(answer.header("location"), upstream.url(&format!("/files/{WHEEL}")));
    assert_eq!(upstream.count(&format!("/files/{WHEEL}")), 0);
}

#[test]
fn who_may_not_read_a_stage_has_its_mirror_ask_nothing() {
    let upstream = upstream_of(b"content");
    let index = start();
    mirror(&index, &upstream, json!({"acl_read": ["alice"]}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let targets = [
        "/alice/up/+simple/foo/".to_owned(),
        "/alice/dev/+simple/foo/".to_owned(),
        "/alice/up/+simple/".to_owned(),
        place_of(&upstream, WHEEL),
    ];
    for target in &targets {
        assert_eq!(index.client().get(target).status, 401, "{target}");
        assert_eq!(index.user("bob").get(target).status, 403, "{target}");
    }
    assert_eq!(upstream.requests().len(), 0);
    for target in &targets {
        assert_eq!(index.alice().with("User-Agent", "pip/26").get(target).status, 200, "{target}");
    }
    let page = index.alice().with("User-Agent", "pip/26").get(&targets[0]);
    assert!(page.header("cache-control").starts_with("private"), "{:?}", page.headers);
}
