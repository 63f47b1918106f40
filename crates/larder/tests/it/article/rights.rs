//! Who may read and write, and that closed articles show nowhere.

use config::Config;
use serde_json::json;

use super::{code, store, wiki, wiki_with};
use crate::asking::{Says as _, basic, each};
use crate::client::Response;
use crate::server::TestServer;

/// The password of `ada` and `bob`.
const PASSWORD: &str = "open-sesame";

/// The header of a token of `ada`, good for these scopes.
fn token_of_ada(server: &TestServer, scopes: &[&str]) -> String {
    format!("Bearer {}", server.user("ada", PASSWORD).make_token(json!({"scopes": scopes})))
}

#[track_caller]
fn send(server: &TestServer, method: &str, target: &str, who: &str) -> Response {
    let ask = server.authorized(who);
    let ask = if method == "PUT" { ask.with("If-Match", "*") } else { ask };
    ask.send(method, target, if method == "GET" { "" } else { "text" })
}

#[test]
fn writing_needs_a_name() {
    let server = wiki();
    store(&server, "a/0", b"one");
    server.add_user("ada", PASSWORD);
    let ada = basic("ada", PASSWORD);
    for (who, expected) in [
        ("", 401),
        (basic("ada", "wrong").as_str(), 401),
        (basic("nobody", "x").as_str(), 401),
        ("Basic !!!", 401),
        ("Digest x", 401),
        ("Bearer nonsense", 401),
    ] {
        for (method, target) in [
            ("POST", "/article/a/1"),
            ("PUT", "/article/a"),
            ("DELETE", "/article/a/1"),
            ("POST", "/article/a/1?restore=1"),
        ] {
            let response = send(&server, method, target, who).expect(expected);
            assert!(response.header("www-authenticate").starts_with("Basic"), "{who}");
            response.has("content-type", "application/problem+json");
        }
        // Reading is open, even with unknown credentials.
        send(&server, "GET", "/article/a", who).expect(200);
    }
    let written = send(&server, "POST", "/article/a/1", &ada);
    assert_eq!((written.status, written.json()["author"].as_str()), (201, Some("ada")));
    let ada = basic("ada", PASSWORD);
    let devpi = ada.trim_start_matches("Basic ");
    let written = server.anybody().with("X-Devpi-Auth", devpi).post("/article/a/2", "x");
    assert_eq!((written.status, written.json()["author"].as_str()), (201, Some("ada")));
}

#[test]
fn a_list_of_writers() {
    let server = wiki_with(|config| config.article.acl_write = "ada".parse().expect("a list"));
    for name in ["ada", "bob"] {
        server.add_user(name, PASSWORD);
    }
    send(&server, "POST", "/article/a/0", &basic("bob", PASSWORD)).expect(403);
    send(&server, "POST", "/article/a/0", &basic("ada", PASSWORD)).expect(201);
    let token = token_of_ada(&server, &["article:read"]);
    send(&server, "POST", "/article/a/1", &token)
        .tells(403, "this token may not write articles: it lacks the scope `article:write`");
    let token = token_of_ada(&server, &["article:read", "article:write"]);
    send(&server, "POST", "/article/a/1", &token).expect(201);
    let server =
        wiki_with(|config| config.article.acl_write = ":ANONYMOUS:".parse().expect("a list"));
    let written = send(&server, "POST", "/article/a/0", "");
    assert_eq!((written.status, written.json()["author"].as_str()), (201, Some("anonymous")));
}

fn closed(config: &mut Config) {
    config.article.acl_read = "ada".parse().expect("a list");
    config.article.acl_write = ":AUTHENTICATED:".parse().expect("a list");
}

/// A server with two versions of `secret-name`, which `ada` may read, and `bob` only write.
fn closed_wiki() -> (TestServer, String, String) {
    let server = wiki_with(closed);
    for name in ["ada", "bob"] {
        server.add_user(name, PASSWORD);
    }
    store(&server, "secret-name/0", b"# Secret title\n\nsecret text\n");
    store(&server, "secret-name/1", b"# Secret title\n\nsecret words\n");
    (server, basic("ada", PASSWORD), basic("bob", PASSWORD))
}

#[test]
fn what_is_closed_shows_nowhere() {
    let (server, ada, bob) = closed_wiki();
    let pages = [
        "/article/secret-name",
        "/article/secret-name/1",
        "/article/secret-name/history",
        "/article/secret-name/diff",
        "/articles",
        "/articles?q=secret",
    ];
    // In memory as well as not.
    for _ in 0..2 {
        each(pages, |target| {
            let tag = send(&server, "GET", target, &ada).header("etag").to_owned();
            for (who, expected) in [("", 401), (bob.as_str(), 403)] {
                let send = |method: &str, extra: (&str, &str)| {
                    let headers = [("Authorization", who), extra];
                    let headers = &headers[usize::from(who.is_empty())..];
                    server.client.send(method, target, headers, b"")
                };
                let with = |extra| send("GET", extra);
                let head = send("HEAD", ("If-None-Match", "*"));
                for response in [
                    with(("Accept", "*/*")),
                    with(("If-None-Match", &tag)),
                    with(("If-None-Match", "*")),
                    with(("Range", "bytes=0-3")),
                    with(("Accept-Encoding", "gzip")),
                    head,
                ] {
                    response.check_status(expected);
                    let all = format!("{:?} {}", response.headers, response.text());
                    all.lacks(["Secret", "secret t"]);
                    assert_eq!(response.find("etag"), None, "{who} {target}");
                    assert_eq!(response.find("x-article-version"), None, "{who} {target}");
                }
            }
            // The answer does not reveal whether a name exists.
            let other = target.replace("secret-name", "other-name");
            let (known, unknown) =
                (send(&server, "GET", target, ""), send(&server, "GET", &other, ""));
            assert_eq!((known.status, known.body), (unknown.status, unknown.body));
            send(&server, "GET", target, &ada)
                .expect(200)
                .has("cache-control", "private, no-cache");
        });
    }
    send(&server, "GET", "/article/other", &ada)
        .expect(404)
        .has("cache-control", "private, no-cache");
}

#[test]
fn a_writer_who_may_not_read_learns_which_version_to_start_from_and_no_more() {
    let (server, _, bob) = closed_wiki();
    for (method, target, expected) in [
        ("POST", "/article/secret-name/1", 409),
        ("POST", "/article/secret-name/0", 409),
        ("DELETE", "/article/secret-name/1", 409),
    ] {
        let response = send(&server, method, target, &bob).expect(expected);
        assert_eq!(response.json()["latest_version"], 2);
        response.lacks(["ecret t", "Secret", "by root"]);
        assert_eq!(response.find("etag"), None);
    }
    let put = r#"{"actions":{"article.put":{"name":"secret-name","version":1,"text":"x"}}}"#;
    let as_bob = server.authorized(&bob);
    as_bob.clone().typed("application/json").post("/actions", put).expect(409).lacks("by root");
    // A writer who may not read has not seen the text that they restore.
    let restored = send(&server, "POST", "/article/secret-name/2?restore=1", &bob).expect(201);
    let facts = restored.json();
    assert_eq!((&facts["version"], &facts["author"]), (&3.into(), &"bob".into()));
    for member in ["title", "size_bytes", "sha256", "content_type"] {
        assert_eq!(facts[member], serde_json::Value::Null, "{member}");
    }
    assert_eq!(restored.find("etag"), None);
    let stale = as_bob.with("If-Match", "\"1-0000000000000000\"");
    let response = stale.put("/article/secret-name", "text");
    assert_eq!((response.status, code(&response).as_str()), (412, "precondition_failed"));
    response.lacks("Secret");
}

#[test]
fn a_surface_that_is_switched_off_has_no_pages() {
    let server = wiki_with(|config| config.article.enabled = false);
    for target in ["/article/a", "/articles", "/article/a/history"] {
        server.get(target).expect(404);
    }
    // The Python index answers all other paths; here it has no page that accepts a POST.
    server.root().post("/article/a/0", "x").expect(405);
}
