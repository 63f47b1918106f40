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
    assert_eq!(page.header("content-type"), "text/html; charset=UTF-8");
    assert!(page.text().contains("&lt;all of&gt; web_frame"), "{}", page.text());
    let hostile = index.anybody().get("/+search?query=%22%3E%3Cscript%3E").text();
    assert!(!hostile.contains("<script>"), "{hostile}");
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
    assert_eq!(index.anybody().get("/+authcheck").status, 200);
}
