//! What a write does, and how it names its base.

use super::{ask, code, store, wiki};
use crate::server::TestServer;

#[test]
fn an_article_is_made_changed_deleted_and_brought_back() {
    let server = wiki();
    let made = store(&server, "guide/start/0", b"# Start\n\nOne.\n");
    let json = made.json();
    assert_eq!(made.header("location"), "/article/guide/start/1");
    assert_eq!((json["version"].as_u64(), json["author"].as_str()), (Some(1), Some("root")));
    assert_eq!((json["title"].as_str(), json["kind"].as_str()), (Some("Start"), Some("put")));
    let read = server.get("/article/guide/start");
    assert_eq!((read.status, read.text()), (200, "# Start\n\nOne.\n".to_owned()));
    assert_eq!(read.header("etag"), made.header("etag"));
    assert_eq!(read.header("x-larder-serial"), made.header("x-larder-serial"));
    assert_eq!(read.header("x-article-version"), "1");

    let target = "/article/guide/start/1?comment=two%20now";
    let changed = ask(&server, "POST", target, &[], b"# Start\n\nTwo.\n");
    assert_eq!((changed.status, changed.json()["comment"].as_str()), (201, Some("two now")));
    assert_eq!(server.get("/article/guide/start").text(), "# Start\n\nTwo.\n");
    assert_eq!(server.get("/article/guide/start/1").text(), "# Start\n\nOne.\n");
    assert_eq!(server.get("/article/guide/start/2").text(), "# Start\n\nTwo.\n");

    let deleted = ask(&server, "DELETE", "/article/guide/start/2?comment=old", &[], b"");
    assert_eq!((deleted.status, deleted.json()["deleted"].as_bool()), (200, Some(true)));
    assert_eq!((deleted.json()["version"].as_u64(), deleted.find("etag")), (Some(3), None));
    let gone = server.get("/article/guide/start");
    assert_eq!(gone.status, 410);
    assert!(gone.text().contains("by root"), "{}", gone.text());
    assert_eq!(server.get("/article/guide/start/3").status, 410);
    assert_eq!(server.get("/article/guide/start/2").text(), "# Start\n\nTwo.\n");

    let restored = ask(&server, "POST", "/article/guide/start/3?restore=1", &[], b"");
    assert_eq!(restored.status, 201, "{}", restored.text());
    let json = restored.json();
    assert_eq!((json["version"].as_u64(), json["restored_from"].as_u64()), (Some(4), Some(1)));
    assert_eq!(server.get("/article/guide/start").text(), "# Start\n\nOne.\n");
    // A text on a deletion brings an article back as well.
    ask(&server, "DELETE", "/article/guide/start/4", &[], b"");
    store(&server, "guide/start/5", b"six");
    assert_eq!(server.get("/article/guide/start").header("x-article-version"), "6");
}

/// A server with `a` at version 2 and `gone` deleted as version 2, and the tags of `a`.
fn sample() -> (TestServer, [String; 2]) {
    let server = wiki();
    let tags = [("a/0", "one"), ("a/1", "two")]
        .map(|(at, body)| store(&server, at, body.as_bytes()).header("etag").to_owned());
    store(&server, "gone/0", b"text");
    assert_eq!(ask(&server, "DELETE", "/article/gone/1", &[], b"").status, 200);
    (server, tags)
}

#[test]
fn a_base_is_named_by_number_or_by_tag() {
    let (server, [old, latest]) = sample();
    let check = |method: &str, target: &str, headers: &[(&str, &str)], expected: &str| {
        let response = ask(&server, method, target, headers, b"text");
        let code = match response.status {
            200 | 201 => format!(" {}", response.json()["version"]),
            _ => format!(" {}", code(&response)),
        };
        let found = format!("{}{code}", response.status);
        assert_eq!(found, expected, "{method} {target} {headers:?}: {}", response.text());
    };
    let weak = format!("W/{latest}");
    let gzip = format!("{}-gz\"", latest.trim_end_matches('"'));
    check("POST", "/article/a/7", &[], "409 version_in_future");
    check("POST", "/article/a/0", &[], "409 already_exists");
    check("POST", "/article/a/1", &[], "409 stale");
    check("POST", "/article/new/3", &[], "404 not_found");
    check("PUT", "/article/a", &[], "428 base_missing");
    check("PUT", "/article/new", &[], "428 base_missing");
    check("DELETE", "/article/a", &[], "428 base_missing");
    check("PUT", "/article/a", &[("If-Match", &old)], "412 precondition_failed");
    check("PUT", "/article/a", &[("If-Match", &weak)], "412 precondition_failed");
    check("PUT", "/article/a", &[("If-Match", "\"nonsense\"")], "412 precondition_failed");
    check("PUT", "/article/a", &[("If-None-Match", "*")], "412 precondition_failed");
    check("POST", "/article/a/2", &[("If-Match", &old)], "412 precondition_failed");
    check("DELETE", "/article/a", &[("If-Match", &old)], "412 precondition_failed");
    check("DELETE", "/article/a/1", &[], "409 stale");
    check("DELETE", "/article/new/1", &[], "404 not_found");
    check("DELETE", "/article/gone/2", &[], "409 deleted");
    check("POST", "/article/gone/1", &[], "409 deleted");
    check("POST", "/article/a/2?restore=9", &[], "404 nothing_to_restore");
    check("POST", "/article/gone/2?restore=2", &[], "404 nothing_to_restore");
    // The refused writes left nothing; now the right ways.
    check("PUT", "/article/a", &[("If-Match", &gzip)], "201 3");
    check("PUT", "/article/a", &[("If-Match", "*")], "201 4");
    check("PUT", "/article/new", &[("If-None-Match", "*")], "201 1");
    check("PUT", "/article/gone", &[("If-None-Match", "*")], "201 3");
    let tag = server.get("/article/a").header("etag").to_owned();
    // A list may be sent in lines.
    check("DELETE", "/article/a", &[("If-Match", "\"x\""), ("If-Match", &tag)], "200 5");
}

#[test]
fn the_media_type_is_kept() {
    let server = wiki();
    let check = |target: &str, said: Option<&str>, body: &[u8], expected: &str| {
        let headers: Vec<_> = said.map(|said| ("Content-Type", said)).into_iter().collect();
        let response = ask(&server, "POST", target, &headers, body);
        assert_eq!(response.status, 201, "{target}: {}", response.text());
        let article = target.rsplit_once('/').expect("a base").0;
        let read = server.get(article);
        assert_eq!(read.header("content-type"), expected, "{target}");
        assert_eq!(read.body, body);
    };
    let form = Some("application/x-www-form-urlencoded");
    check(
        "/article/a/0",
        Some("Text/HTML; charset=\"utf-8\""),
        b"<p>",
        "Text/HTML; charset=\"utf-8\"",
    );
    check("/article/a/1", None, b"<p>", "Text/HTML; charset=\"utf-8\"");
    check("/article/a/2", form, b"<p>", "Text/HTML; charset=\"utf-8\"");
    // UTF-8 text gets the charset, whoever writes it and whatever it was before; other bytes keep their type.
    check("/article/a/3", Some("text/plain"), b"p", "text/plain; charset=utf-8");
    check("/article/a/4", Some("text/x-y; a=b"), "é".as_bytes(), "text/x-y; a=b; charset=utf-8");
    check("/article/a/5", Some("text/plain"), b"\xe9", "text/plain");
    check("/article/a/6", None, "é".as_bytes(), "text/plain; charset=utf-8");
    // The extension decides if the request names no type, unless the content is something else.
    check("/article/guide.md/0", None, "# é".as_bytes(), "text/markdown; charset=utf-8");
    check("/article/logo.svg/0", form, b"<svg/>", "image/svg+xml");
    check("/article/logo.PNG/0", None, b"\x89PNG\0", "image/png");
    check("/article/latin.txt/0", None, b"\xe9", "application/octet-stream");
    check("/article/said.md/0", Some("text/html"), b"<p>", "text/html; charset=utf-8");
    check("/article/said.md/1", None, b"<p>", "text/html; charset=utf-8");
    check("/article/b/0", None, "é".as_bytes(), "text/plain; charset=utf-8");
    check("/article/c/0", form, b"\xff\x00", "application/octet-stream");
    // A content that is said to be text and is not keeps the given type.
    check(
        "/article/d/0",
        Some("text/plain; charset=utf-8"),
        b"\xff\xfe\x00",
        "text/plain; charset=utf-8",
    );
    check("/article/e/0", None, b"", "text/plain; charset=utf-8");

    for said in
        ["nonsense", "text/html;", "text/html; x", "a/b/c", &format!("a/{}", "b".repeat(255))]
    {
        let response = ask(&server, "POST", "/article/f/0", &[("Content-Type", said)], b"x");
        let expected = if said == "text/html;" { 201 } else { 400 };
        assert_eq!(response.status, expected, "{said}: {}", response.text());
    }
    // Nothing at all is a slip; an empty text says that it is empty.
    let empty = ask(&server, "POST", "/article/empty/0", &[], b"");
    assert_eq!(empty.status, 201, "{}", empty.text());
    let nothing = ask(&server, "PUT", "/article/empty", &[("If-Match", "*")], b"");
    assert_eq!(nothing.status, 400, "{}", nothing.text());
    assert!(nothing.text().contains("curl --data-binary @FILE"), "{}", nothing.text());
    for path in ["/article", "/article/"] {
        for method in ["GET", "PUT", "POST"] {
            let nameless = ask(&server, method, path, &[], b"x");
            assert_eq!(nameless.status, 404, "{method} {path}");
            assert!(nameless.text().contains("POST /article/NAME/0"), "{}", nameless.text());
        }
    }
    let response = ask(&server, "POST", "/article/g/0", &[("Content-Encoding", "gzip")], b"x");
    assert_eq!(response.status, 415, "{}", response.text());
    let response = ask(&server, "POST", "/article/g/0", &[("Content-Range", "bytes 0-0/9")], b"x");
    assert_eq!(response.status, 400, "{}", response.text());
    assert_eq!(server.get("/article/g").status, 404);
}

#[test]
fn what_a_request_cannot_say() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let check = |method: &str, target: &str, expected: u16| {
        let response = ask(&server, method, target, &[("If-Match", "*")], b"x");
        assert_eq!(response.status, expected, "{method} {target}: {}", response.text());
    };
    check("POST", "/article/a/1?coment=x", 400);
    check("POST", "/article/a/1?comment=x&comment=y", 400);
    check("POST", "/article/a/1?comment=%1b", 400);
    check("POST", &format!("/article/a/1?comment={}", "x".repeat(2_001)), 400);
    check("POST", "/article/a/1?restore=latest", 400);
    check("DELETE", "/article/a/1?restore=1", 400);
    check("PUT", "/article/a/1", 405);
    check("POST", "/article/a", 405);
    check("DELETE", "/article/a/history", 405);
    check("POST", "/article/a/diff", 405);
    check("PATCH", "/article/a", 405);
    check("POST", "/articles", 405);
    assert_eq!(server.get("/article/a").header("x-article-version"), "1");
    let check = |target: &str, expected: &str| {
        let options = server.client.send("OPTIONS", target, &[], b"");
        assert_eq!((options.status, options.header("allow")), (204, expected), "{target}");
        let wrong = server.client.send("PATCH", target, &[], b"");
        assert_eq!((wrong.status, wrong.header("allow")), (405, expected), "{target}");
    };
    check("/article/a", "GET, HEAD, PUT, DELETE, OPTIONS");
    check("/article/a/1", "GET, HEAD, POST, DELETE, OPTIONS");
    check("/article/a/history", "GET, HEAD, OPTIONS");
    check("/article/a/diff", "GET, HEAD, OPTIONS");
}
