//! Searching, and what the server says of itself.

use serde_json::json;

use super::{Index, Upload, result, sdist};

fn searched() -> Index {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    index.stage("bob/dev", json!({"bases": ["alice/dev"]}));
    let upload = |stage: &str, project: &str| {
        let upload = Upload::named(project, "1.0", &format!("{project}-1.0.zip"), &sdist(project));
        let upload = upload.set("summary", &format!("<all of> {project}"));
        let user = stage.split('/').next().expect("a user");
        assert_eq!(index.user(user).upload(stage, &upload).status, 200);
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
    let check = |ask: super::Ask<'_>, query: &str, expected: &[&str]| {
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
    let page = index.anybody().get("/+search?query=frame");
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.text().contains("&#60;all of&#62; web_frame"), "{}", page.text());
    let hostile = index.anybody().get("/+search?query=%22%3E%3Cscript%3E").text();
    assert!(!hostile.contains("<script>"), "{hostile}");
}

#[test]
fn summaries_take_little_memory() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    let upload = |project: &str, summary: &str, description: &str| {
        let upload = Upload::named(project, "1.0", &format!("{project}-1.0.zip"), &sdist(project));
        let upload = upload.set("summary", summary).set("description", description);
        assert_eq!(index.alice().upload("alice/dev", &upload).status, 200);
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
        index.anybody().with("Content-Type", "text/xml").bytes(
            "POST",
            "/bob/dev/",
            call(term).as_bytes(),
        )
    };
    let found = ask("frame");
    assert_eq!((found.status, found.header("content-type")), (200, "text/xml; charset=UTF-8"));
    let text = found.text();
    assert!(
        text.contains("<string>frame</string>") && text.contains("<string>web-frame</string>"),
        "{text}"
    );
    assert!(text.contains("<string>[alice/dev] &lt;all of&gt; web_frame</string>"), "{text}");
    assert!(!ask("nothing").text().contains("<struct>"));
    let fault = index.anybody().with("Content-Type", "text/xml").bytes("POST", "/bob/dev/", b"<x");
    assert!(fault.text().contains("<fault>"), "{}", fault.text());
}

#[test]
fn status_and_what_may_be_read() {
    let index = searched();
    let status = result(&index.anybody().json().get("/+status"), "status");
    assert_eq!(status["role"], "MASTER");
    assert!(status["versioninfo"]["devpi-server"].is_string() && status["uuid"].is_string());
    for key in ["last-commit-timestamp", "event-serial-timestamp", "event-serial-in-sync-at"] {
        let age = jiff::Timestamp::now().as_second() as f64 - status[key].as_f64().unwrap_or(0.0);
        assert!(age.abs() < 600.0, "{key}: {}", status[key]);
    }
    assert!(status["metrics"].as_array().is_some_and(|metrics| !metrics.is_empty()));
    let check = |uri: &str, expected: u16| {
        let found = index.anybody().with("X-Original-URI", uri).get("/+authcheck");
        assert_eq!(found.status, expected, "{uri}");
    };
    check("/+api", 200);
    check("/alice/secret/+api", 200);
    check("/+login", 200);
    check("/alice/dev/+simple/other/?x=1", 200);
    check("/alice/secret/+simple/", 401);
    check("/alice/secret/+f/abc/0123456789abc/x.zip", 401);
    check("/%2e%2e/x", 403);
    check("/alice/dev/+nothing", 403);
    // Only the path decides, whatever stands behind it.
    check("/alice/secret/+simple/?next=http://h/+api", 401);
    check("/alice/secret/p/1.0/+doc/http://h/+api", 401);
    check("http://h/alice/secret/+simple/", 401);
    check("/alice/secret/+simple/?x=\u{ff}", 401);
    check("/alice/dev/+simple/?x=\u{ff}", 200);
    check("/alice/dev/../secret/+simple/", 403);
    check("/alice//secret/+simple/", 401);
    check("/alice/%73ecret/+simple/", 401);
    assert_eq!(index.anybody().get("/+authcheck").status, 200);
    let twice = index.anybody().with("X-Original-URI", "/alice/secret/+simple/");
    let twice = twice.with("X-Original-URI", "/+api").get("/+authcheck");
    assert_eq!(twice.status, 403);
}

/// The test's address counts as a proxy that passes on all headers of the client.
#[test]
fn no_header_opens_what_is_closed() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    let check = |ask: super::Ask<'_>, outside: &str, path: &str, expected: u16| {
        let ask = ask.with("X-Outside-URL", outside).with("X-Original-URI", path);
        assert_eq!(ask.get("/+authcheck").status, expected, "{outside} {path}");
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
    assert_eq!(ask().get("/pre/alice/dev/+api").status, 404);
    assert_eq!(ask().get("/alice/dev/P").header("location"), format!("{own}/alice/dev/p"));
    let write = index.alice().with("Origin", "https://evil.example");
    let write = write.with("X-Outside-URL", "https://evil.example/pre");
    assert_eq!(write.send("PUT", "/alice/other", json!({})).status, 403);
}
