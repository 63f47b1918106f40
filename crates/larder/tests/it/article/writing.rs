//! What a write does, and how it names its base.

use insta::assert_snapshot;

use super::{code, store, wiki};
use crate::asking::each;
use crate::server::TestServer;
use crate::shown::shown_json;

#[test]
fn an_article_is_made_changed_deleted_and_brought_back() {
    let server = wiki();
    let made = store(&server, "guide/start/0", b"# Start\n\nOne.\n");
    made.has("location", "/article/guide/start/1");
    assert_snapshot!("made", shown_json(&made.json()));
    server
        .get("/article/guide/start")
        .expect(200)
        .is("# Start\n\nOne.\n")
        .has("etag", made.header("etag"))
        .has("x-larder-serial", made.header("x-larder-serial"))
        .has("x-article-version", "1");

    let target = "/article/guide/start/1?comment=two%20now";
    let changed = server.root().post(target, "# Start\n\nTwo.\n").expect(201);
    assert_eq!(changed.json()["comment"], "two now");
    let texts = [("", "Two"), ("/1", "One"), ("/2", "Two")];
    for (version, text) in texts {
        server.get(&format!("/article/guide/start{version}")).is(format!("# Start\n\n{text}.\n"));
    }
    let deleted = server.root().delete("/article/guide/start/2?comment=old").expect(200);
    assert_eq!(deleted.find("etag"), None);
    assert_snapshot!("deleted", shown_json(&deleted.json()));
    server.get("/article/guide/start").tells(410, "`guide/start` was deleted as version 3, by root at TIME; earlier versions are at `/article/guide/start/history`");
    server.get("/article/guide/start/3").expect(410);
    server.get("/article/guide/start/2").is("# Start\n\nTwo.\n");

    let restored = server.root().post("/article/guide/start/3?restore=1", ()).expect(201);
    assert_snapshot!("restored", shown_json(&restored.json()));
    server.get("/article/guide/start").is("# Start\n\nOne.\n");
    // A text on a deletion brings an article back as well.
    server.root().delete("/article/guide/start/4");
    store(&server, "guide/start/5", b"six");
    server.get("/article/guide/start").has("x-article-version", "6");
}

/// A server with `a` at version 2 and `gone` deleted as version 2, and the tags of `a`.
fn sample() -> (TestServer, [String; 2]) {
    let server = wiki();
    let tags = [("a/0", "one"), ("a/1", "two")]
        .map(|(at, body)| store(&server, at, body.as_bytes()).header("etag").to_owned());
    store(&server, "gone/0", b"text");
    server.root().delete("/article/gone/1").expect(200);
    (server, tags)
}

#[test]
fn a_base_is_named_by_number_or_by_tag() {
    let (server, [old, latest]) = sample();
    let check = |method: &str, target: &str, headers: &[(&str, &str)], expected: &str| {
        let response = server.root().with_all(headers).send(method, target, "text");
        let code = match response.status {
            200 | 201 => format!(" {}", response.json()["version"]),
            _ => format!(" {}", code(&response)),
        };
        let found = format!("{}{code}", response.status);
        assert_eq!(found, expected, "{method} {target} {headers:?}: {}", response.text());
    };
    let weak = format!("W/{latest}");
    let gzip = format!("{}-gz\"", latest.trim_end_matches('"'));
    let (old, weak) = (("If-Match", &*old), ("If-Match", &*weak));
    let rows = [
        ("POST", "/article/a/7", &[][..], "409 version_in_future"),
        ("POST", "/article/a/0", &[], "409 already_exists"),
        ("POST", "/article/a/1", &[], "409 stale"),
        ("POST", "/article/new/3", &[], "404 not_found"),
        ("PUT", "/article/a", &[], "428 base_missing"),
        ("PUT", "/article/new", &[], "428 base_missing"),
        ("DELETE", "/article/a", &[], "428 base_missing"),
        ("PUT", "/article/a", &[old], "412 precondition_failed"),
        ("PUT", "/article/a", &[weak], "412 precondition_failed"),
        ("PUT", "/article/a", &[("If-Match", "\"nonsense\"")], "412 precondition_failed"),
        ("PUT", "/article/a", &[("If-None-Match", "*")], "412 precondition_failed"),
        ("POST", "/article/a/2", &[old], "412 precondition_failed"),
        ("DELETE", "/article/a", &[old], "412 precondition_failed"),
        ("DELETE", "/article/a/1", &[], "409 stale"),
        ("DELETE", "/article/new/1", &[], "404 not_found"),
        ("DELETE", "/article/gone/2", &[], "409 deleted"),
        ("POST", "/article/gone/1", &[], "409 deleted"),
        ("POST", "/article/a/2?restore=9", &[], "404 nothing_to_restore"),
        ("POST", "/article/gone/2?restore=2", &[], "404 nothing_to_restore"),
        // The refused writes left nothing; now the right ways.
        ("PUT", "/article/a", &[("If-Match", &*gzip)], "201 3"),
        ("PUT", "/article/a", &[("If-Match", "*")], "201 4"),
        ("PUT", "/article/new", &[("If-None-Match", "*")], "201 1"),
        ("PUT", "/article/gone", &[("If-None-Match", "*")], "201 3"),
    ];
    each(rows, |(method, target, headers, expected)| check(method, target, headers, expected));
    let tag = server.get("/article/a").header("etag").to_owned();
    // A list may be sent in lines.
    check("DELETE", "/article/a", &[("If-Match", "\"x\""), ("If-Match", &tag)], "200 5");
}

/// Writes each row in turn: where, of which type it says that it is, its bytes, and the type that is read then.
fn check_types(rows: &[(&str, Option<&str>, &[u8], &str)]) {
    let server = wiki();
    each(rows, |(at, said, body, expected)| {
        let ask = said.iter().fold(server.root(), |ask, said| ask.typed(said));
        ask.post(&format!("/article/{at}"), *body).expect(201);
        let read = server.get(&format!("/article/{}", at.rsplit_once('/').expect("a base").0));
        read.has("content-type", expected);
        assert_eq!(read.body, *body);
    });
}

const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
const OCTETS: Option<&str> = Some("application/octet-stream");
const HTML: &str = "Text/HTML; charset=\"utf-8\"";

#[test]
fn the_media_type_is_kept() {
    check_types(&[
        ("a/0", Some(HTML), b"<p>", HTML),
        ("a/1", None, b"<p>", HTML),
        ("a/2", FORM, b"<p>", HTML),
        // A text in UTF-8 gets that charset, no matter who writes it; other bytes keep their media type.
        ("a/3", Some("text/plain"), b"p", "text/plain; charset=utf-8"),
        ("a/4", Some("text/x-y; a=b"), "é".as_bytes(), "text/x-y; a=b; charset=utf-8"),
        ("a/5", Some("text/plain"), b"\xe9", "text/plain"),
        ("a/6", None, "é".as_bytes(), "text/plain; charset=utf-8"),
        // A content that is said to be text and is not keeps the given type.
        ("d/0", Some("text/plain; charset=utf-8"), b"\xff\xfe\0", "text/plain; charset=utf-8"),
    ]);
}

/// The extension decides if the request names no type, unless the content is something else.
#[test]
fn a_type_that_is_not_said_follows_from_name_and_content() {
    check_types(&[
        ("guide.md/0", None, "# é".as_bytes(), "text/markdown; charset=utf-8"),
        ("logo.svg/0", FORM, b"<svg/>", "image/svg+xml"),
        ("logo.PNG/0", None, b"\x89PNG\0", "image/png"),
        ("latin.txt/0", None, b"\xe9", "application/octet-stream"),
        ("said.md/0", Some("text/html"), b"<p>", "text/html; charset=utf-8"),
        ("said.md/1", None, b"<p>", "text/html; charset=utf-8"),
        ("said.md/2", OCTETS, b"<b>", "text/html; charset=utf-8"),
        ("octets.md/0", OCTETS, b"# a", "text/markdown; charset=utf-8"),
        ("octets/0", OCTETS, b"\xff", "application/octet-stream"),
        ("b/0", None, "é".as_bytes(), "text/plain; charset=utf-8"),
        ("c/0", FORM, b"\xff\x00", "application/octet-stream"),
        ("e/0", None, b"", "text/plain; charset=utf-8"),
    ]);
}

#[test]
fn what_is_no_media_type_is_refused() {
    let server = wiki();
    each(["nonsense", "text/html; x", "a/b/c", &format!("a/{}", "b".repeat(255))], |said| {
        server.root().typed(said).post("/article/f/0", "x").expect(400);
    });
    server.root().typed("text/html;").post("/article/f/0", "x").expect(201);
}

#[test]
fn a_body_is_whole_and_of_an_article() {
    let server = wiki();
    // Nothing at all is a slip; an empty text says that it is empty.
    server.root().post("/article/empty/0", "").expect(201);
    let empty = server.root().with("If-Match", "*").put("/article/empty", "");
    empty.tells(400, "there is no body: the text was expected, as `curl --data-binary @FILE` sends it; an empty one has `Content-Length: 0`");
    for path in ["/article", "/article/"] {
        for method in ["GET", "PUT", "POST"] {
            let advice = "`GET /article/NAME` reads one, `POST /article/NAME/0` makes one of the body; `/articles` lists them";
            let told = format!("`{path}` lacks the name of an article: {advice}");
            server.root().send(method, path, "x").tells(404, &told);
        }
    }
    for (name, value, status) in
        [("Content-Encoding", "gzip", 415), ("Content-Range", "bytes 0-0/9", 400)]
    {
        server.root().with(name, value).post("/article/g/0", "x").expect(status);
    }
    server.get("/article/g").expect(404);
}

#[test]
fn what_a_request_cannot_say() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let comment = "x".repeat(2_001);
    let rows = [
        ("POST", "/article/a/1?coment=x", 400),
        ("POST", "/article/a/1?comment=x&comment=y", 400),
        ("POST", "/article/a/1?comment=%1b", 400),
        ("POST", &format!("/article/a/1?comment={comment}"), 400),
        ("POST", "/article/a/1?restore=latest", 400),
        ("DELETE", "/article/a/1?restore=1", 400),
        ("PUT", "/article/a/1", 405),
        ("POST", "/article/a", 405),
        ("DELETE", "/article/a/history", 405),
        ("POST", "/article/a/diff", 405),
        ("PATCH", "/article/a", 405),
        ("POST", "/articles", 405),
    ];
    each(rows, |(method, target, expected)| {
        server.root().with("If-Match", "*").send(method, target, "x").expect(expected);
    });
    server.get("/article/a").has("x-article-version", "1");
    let rows = [
        ("/article/a", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("/article/a/1", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/article/a/history", "GET, HEAD, OPTIONS"),
        ("/article/a/diff", "GET, HEAD, OPTIONS"),
    ];
    each(rows, |(target, expected)| {
        server.anybody().send("OPTIONS", target, ()).expect(204).has("allow", expected);
        server.anybody().patch(target, ()).expect(405).has("allow", expected);
    });
}
