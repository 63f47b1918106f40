//! Searching, and what the server says of itself.

use insta::assert_snapshot;
use serde_json::json;

use super::{Index, Upload, result, sdist};
use crate::asking::each;
use crate::shown::shown;

fn searched() -> Index {
    let index = Index::with_dev();
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    index.stage("bob/dev", json!({"bases": ["alice/dev"]}));
    let upload = |stage: &str, project: &str| {
        let upload = Upload::named(project, "1.0", &format!("{project}-1.0.zip"), &sdist(project));
        let upload = upload.set("summary", &format!("<all of> {project}"));
        let user = stage.split('/').next().expect("a user");
        index.user(user).upload(stage, &upload).expect(200);
    };
    upload("alice/dev", "web_frame");
    upload("alice/dev", "other");
    upload("alice/secret", "web_secret");
    upload("bob/dev", "frame");
    index
}

#[test]
fn projects_by_their_names() {
    let index = searched();
    let check = |ask: super::Ask, query: &str, expected: &[&str]| {
        let found = result(&ask.json().get(&format!("/+search?query={query}")), "search");
        let items = found["items"].as_array().expect("items").clone();
        let shown: Vec<String> = items
            .iter()
            .map(|item| {
                format!(
                    "{}/{}",
                    item["index"].as_str().expect("a stage"),
                    item["name"].as_str().expect("a name")
                )
            })
            .collect();
        assert_eq!(shown, expected, "{query}");
    };
    check(index.anybody(), "frame", &["alice/dev/web-frame", "bob/dev/frame"]);
    check(index.anybody(), "WEB_", &["alice/dev/web-frame"]);
    check(index.alice(), "web", &["alice/dev/web-frame", "alice/secret/web-secret"]);
    check(index.anybody(), "frame+web", &["alice/dev/web-frame"]);
    check(index.anybody(), "nothing", &[]);
    check(index.anybody(), "", &[]);
    let answer = index.anybody().get("/+search?query=frame");
    assert_snapshot!("page", shown(&answer.html()));
    index.anybody().get("/+search?query=%22%3E%3Cscript%3E").lacks("<script>");
}

#[test]
fn summaries_take_little_memory() {
    let index = Index::with_dev();
    let upload = |project: &str, summary: &str, description: &str| {
        let upload = Upload::named(project, "1.0", &format!("{project}-1.0.zip"), &sdist(project));
        let upload = upload.set("summary", summary).set("description", description);
        index.alice().upload("alice/dev", &upload).expect(200);
    };
    upload("web-long", &"é".repeat(2_000), "");
    upload("web-much", "short", &"x".repeat(2 << 20));
    let found = result(&index.anybody().json().get("/+search?query=web"), "search");
    let summary = |at: usize| found["items"][at]["summary"].as_str().expect("a text").to_owned();
    assert_eq!((summary(0), summary(1)), ("é".repeat(1_000), String::new()));
}

#[test]
fn pip_search() {
    let index = searched();
    let call = |term: &str| {
        format!(
            "<?xml version='1.0'?><methodCall><methodName>search</methodName><params><param><value><struct>\
             <member><name>name</name><value><array><data><value><string>{term}</string></value></data></array></value></member>\
             <member><name>summary</name><value><array><data><value><string>{term}</string></value></data></array></value></member>\
             </struct></value></param><param><value><string>or</string></value></param></params></methodCall>"
        )
    };
    let ask = |term: &str| {
        index.anybody().with("Content-Type", "text/xml").post("/bob/dev/", call(term).as_bytes())
    };
    let found = ask("frame").expect(200);
    found.has("content-type", "text/xml; charset=UTF-8");
    assert_snapshot!("xml_rpc", found.text());
    ask("nothing").lacks("<struct>");
    let fault = index.anybody().with("Content-Type", "text/xml").post("/bob/dev/", "<x");
    fault.says("<name>faultString</name><value><string>the body is not XML: ");
}

#[test]
fn the_status_is_devpis() {
    let index = searched();
    let status = result(&index.anybody().json().get("/+status"), "status");
    assert_eq!(status["role"], "MASTER");
    assert!(status["versioninfo"]["devpi-server"].is_string() && status["uuid"].is_string());
    for key in ["last-commit-timestamp", "event-serial-timestamp", "event-serial-in-sync-at"] {
        let age = jiff::Timestamp::now().as_second() as f64 - status[key].as_f64().unwrap_or(0.0);
        assert!(age.abs() < 600.0, "{key}: {}", status[key]);
    }
    assert!(status["metrics"].as_array().is_some_and(|metrics| !metrics.is_empty()));
}

#[test]
fn proxies_ask_what_may_be_read() {
    let index = searched();
    let rows = [
        ("/+api", 200),
        ("/alice/secret/+api", 200),
        ("/+login", 200),
        ("/alice/dev/+simple/other/?x=1", 200),
        ("/alice/secret/+simple/", 401),
        ("/alice/secret/+f/abc/0123456789abc/x.zip", 401),
        ("/%2e%2e/x", 403),
        ("/alice/dev/+nothing", 403),
        // Only the path decides, whatever stands behind it.
        ("/alice/secret/+simple/?next=http://h/+api", 401),
        ("/alice/secret/p/1.0/+doc/http://h/+api", 401),
        ("http://h/alice/secret/+simple/", 401),
        ("/alice/secret/+simple/?x=\u{ff}", 401),
        ("/alice/dev/+simple/?x=\u{ff}", 200),
        ("/alice/dev/../secret/+simple/", 403),
        ("/alice//secret/+simple/", 401),
        ("/alice/%73ecret/+simple/", 401),
    ];
    each(rows, |(uri, expected)| {
        index.anybody().with("X-Original-URI", uri).get("/+authcheck").expect(expected);
    });
    index.anybody().get("/+authcheck").expect(200);
    let twice = index.anybody().with("X-Original-URI", "/alice/secret/+simple/");
    twice.with("X-Original-URI", "/+api").get("/+authcheck").expect(403);
}

/// The test's address counts as a proxy that passes on all headers of the client.
#[test]
fn no_header_opens_what_is_closed() {
    let index = Index::with_dev();
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    let check = |ask: super::Ask, outside: &str, path: &str, expected: u16| {
        let ask = ask.with("X-Outside-URL", outside).with("X-Original-URI", path);
        ask.get("/+authcheck").expect(expected);
    };
    let secret = "/alice/secret/+f/abc/0123456789abc/x.zip";
    for outside in [
        "http://h/alice",
        "http://h/alice/secret",
        "http://h/alice/secret/+f",
        "http://h/alice/secret/+f/abc/0123456789abc",
        "http://h/pre",
        "x://h/alice/secret",
        "//alice/secret",
    ] {
        check(index.anybody(), outside, secret, 401);
        check(index.alice(), outside, secret, 200);
        check(index.anybody(), outside, "/alice/dev/+simple/", 200);
    }
    // Below a prefix, where the proxy says so.
    check(index.anybody(), "http://h/pre", &format!("/pre{secret}"), 401);
    check(index.alice(), "http://h/pre", &format!("/pre{secret}"), 200);
    // A prefix that is the name of a user, too.
    index.stage("bob/alice", json!({"acl_read": ["bob"]}));
    check(index.anybody(), "http://h/x", "/x/bob/alice/+simple/", 401);
    check(index.anybody(), "http://h/bob", "/bob/alice/+simple/", 401);
    check(index.anybody(), "http://h/bob", "/bob/alice/dev/+simple/p/", 200);
}

/// A client's header about the URL counts only if a trusted proxy sends it.
#[test]
fn strangers_name_no_urls() {
    let index = Index::start_with(|config| config.trusted_proxies.clear());
    index.stage("alice/dev", json!({}));
    let ask = || {
        let ask = index.anybody().json().with("X-Outside-URL", "https://evil.example/pre");
        ask.with("X-Forwarded-Proto", "https")
    };
    let api = result(&ask().get("/alice/dev/+api"), "apiconfig");
    let own = format!("http://{}", index.client().address);
    assert_eq!(api["login"], format!("{own}/+login"));
    ask().get("/pre/alice/dev/+api").expect(404);
    ask().get("/alice/dev/P").has("location", format!("{own}/alice/dev/p"));
    let write = index.alice().with("Origin", "https://evil.example");
    let write = write.with("X-Outside-URL", "https://evil.example/pre");
    write.put("/alice/other", json!({})).expect(403);
}
