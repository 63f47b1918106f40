//! Documentation out of its zip.

use serde_json::json;

use super::{Index, Upload, zip};

#[test]
fn pages_out_of_the_zip() {
    let index = Index::start();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"]}));
    let large = vec![b'x'; 3 << 20];
    let docs = zip(&[
        ("index.html", b"<h1>one</h1>"),
        ("style.css", b"h1 {}"),
        ("api/index.html", b"<h1>api</h1>"),
        ("a b+c.js", b"1"),
        ("large.bin", &large),
    ]);
    let register = |stage: &str, version: &str| {
        let form = format!(":action=submit&name=p&version={version}");
        let ask = index.alice().with("Content-Type", "application/x-www-form-urlencoded");
        assert_eq!(ask.bytes("POST", &format!("/{stage}/"), form.as_bytes()).status, 200);
    };
    for version in ["1.0", "2.0b1", "3.0"] {
        register("alice/base", version);
    }
    assert_eq!(index.alice().upload("alice/base", &Upload::docs("p", "1.0", &docs)).status, 200);
    let beta = zip(&[("index.html", b"<h1>beta</h1>")]);
    assert_eq!(index.alice().upload("alice/base", &Upload::docs("p", "2.0b1", &beta)).status, 200);

    let get = |path: &str| index.anybody().get(&format!("/alice/dev/p/{path}"));
    let check = |path: &str, content_type: &str, body: &[u8]| {
        let page = get(path);
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        assert_eq!(page.header("content-type"), content_type, "{path}");
        assert_eq!(page.header("content-length"), body.len().to_string());
        assert!(page.body == body, "{path}");
        assert!(page.header("content-security-policy").starts_with("sandbox"), "{page:?}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    };
    let html = "text/html; charset=utf-8";
    check("1.0/+doc/", html, b"<h1>one</h1>");
    check("1.0/+doc/index.html", html, b"<h1>one</h1>");
    check("1.0/+d/index.html", html, b"<h1>one</h1>");
    check("1.0/+doc/style.css", "text/css; charset=utf-8", b"h1 {}");
    check("1.0/+doc/api/", html, b"<h1>api</h1>");
    check("1.0/+doc/a%20b+c.js", "text/javascript; charset=utf-8", b"1");
    check("1.0/+doc/large.bin", "application/octet-stream", &large);
    check("latest/+doc/", html, b"<h1>beta</h1>");
    check("stable/+doc/", html, b"<h1>one</h1>");
    for (asked, found) in
        [("1.0/+doc", "/alice/dev/p/1.0/+doc/"), ("1.0/+doc/api", "/alice/dev/p/1.0/+doc/api/")]
    {
        let moved = get(asked);
        assert_eq!(moved.status, 302, "{asked}");
        assert!(moved.header("location").ends_with(found), "{moved:?}");
    }
    for none in [
        "1.0/+doc/none",
        "1.0/+doc/api/none.html",
        "3.0/+doc/",
        "9/+doc/",
        "1.0/+doc/../../x",
        "1.0/+doc/%2e%2e/x",
        "1.0/+doc/..%2fx",
    ] {
        assert_eq!(get(none).status, 404, "{none}");
    }
    let page = get("1.0/+doc/");
    let known =
        index.anybody().with("If-None-Match", page.header("etag")).get("/alice/dev/p/1.0/+doc/");
    assert_eq!(known.status, 304);
    let head = index.anybody().bytes("HEAD", "/alice/dev/p/1.0/+doc/large.bin", b"");
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, large.len().to_string().as_str())
    );
    // Another upload replaces it at once.
    let next = zip(&[("index.html", b"<h1>two</h1>")]);
    assert_eq!(index.alice().upload("alice/base", &Upload::docs("p", "1.0", &next)).status, 200);
    check("1.0/+doc/", html, b"<h1>two</h1>");
    assert_eq!(get("1.0/+doc/style.css").status, 404);
}

#[test]
fn where_the_zip_lies() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    let docs = zip(&[("index.html", b"x")]);
    let orphan =
        index.alice().json().upload("alice/dev", &Upload::docs("p", "", &docs).without("version"));
    assert_eq!(orphan.status, 400, "{}", orphan.text());
    // A version that is named is registered by it.
    let registering = index.alice().json().upload("alice/dev", &Upload::docs("p", "0.9", &docs));
    assert_eq!(registering.status, 200, "{}", registering.text());
    index.upload("alice/dev", "p-1.0.zip", &super::sdist("x"));
    let latest = Upload::docs("p", "", &docs).without("version");
    assert_eq!(index.alice().upload("alice/dev", &latest).status, 200);
    let stored = super::path("alice/dev", "p-1.0.doc.zip", &docs);
    assert_eq!(index.anybody().get(&stored).body, docs);
    assert!(!index.page("alice/dev", "p").contains("doc.zip"));
}
