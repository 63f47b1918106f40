//! Documentation out of its zip.

use serde_json::json;

use super::{Index, Upload, zip};
use crate::asking::Says as _;

/// The size of the large file of the documentation.
const LARGE: usize = 3 << 20;

/// An index with documentation of two of three releases in its base.
fn documented() -> Index {
    let index = Index::start();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"]}));
    for version in ["1.0", "2.0b1", "3.0"] {
        let form = format!(":action=submit&name=p&version={version}");
        let ask = index.alice().typed("application/x-www-form-urlencoded");
        ask.post("/alice/base/", form).expect(200);
    }
    let pages = [
        ("index.html", &b"<h1>one</h1>"[..]),
        ("style.css", b"h1 {}"),
        ("api/index.html", b"<h1>api</h1>"),
        ("a b+c.js", b"1"),
        ("large.bin", &vec![b'x'; LARGE]),
    ];
    for (version, pages) in [("1.0", &pages[..]), ("2.0b1", &[("index.html", b"<h1>beta</h1>")])] {
        index.alice().upload("alice/base", &Upload::docs("p", version, &zip(pages))).expect(200);
    }
    index
}

#[track_caller]
fn check(index: &Index, path: &str, content_type: &str, body: &[u8]) {
    let page = index.get(&format!("/alice/dev/p/{path}")).expect(200);
    page.has("content-type", content_type)
        .has("x-content-type-options", "nosniff")
        .has("content-length", body.len());
    assert!(page.body == body, "{path}");
    assert!(page.header("content-security-policy").starts_with("sandbox"), "{page:?}");
}

const HTML: &str = "text/html; charset=utf-8";

#[test]
fn pages_come_out_of_the_zip_with_their_types() {
    let index = documented();
    for path in ["1.0/+doc/", "1.0/+doc/index.html", "1.0/+d/index.html", "stable/+doc/"] {
        check(&index, path, HTML, b"<h1>one</h1>");
    }
    check(&index, "latest/+doc/", HTML, b"<h1>beta</h1>");
    check(&index, "1.0/+doc/style.css", "text/css; charset=utf-8", b"h1 {}");
    check(&index, "1.0/+doc/api/", HTML, b"<h1>api</h1>");
    check(&index, "1.0/+doc/a%20b+c.js", "text/javascript; charset=utf-8", b"1");
    check(&index, "1.0/+doc/large.bin", "application/octet-stream", &vec![b'x'; LARGE]);
}

#[test]
fn a_folder_without_its_slash_leads_to_the_folder() {
    let index = documented();
    for folder in ["/alice/dev/p/1.0/+doc", "/alice/dev/p/1.0/+doc/api"] {
        let moved = index.get(folder).expect(302);
        assert!(moved.header("location").ends_with(&format!("{folder}/")), "{moved:?}");
    }
}

#[test]
fn what_is_not_in_the_zip_is_not_found() {
    let index = documented();
    for none in [
        "1.0/+doc/none",
        "1.0/+doc/api/none.html",
        "3.0/+doc/",
        "9/+doc/",
        "1.0/+doc/../../x",
        "1.0/+doc/%2e%2e/x",
        "1.0/+doc/..%2fx",
    ] {
        index.get(&format!("/alice/dev/p/{none}")).expect(404);
    }
}

#[test]
fn a_page_is_asked_for_with_a_condition_and_by_head() {
    let index = documented();
    let page = "/alice/dev/p/1.0/+doc/";
    let tag = index.get(page).header("etag").to_owned();
    index.anybody().with("If-None-Match", &tag).get(page).expect(304);
    let done = index.anybody().send("HEAD", &format!("{page}large.bin"), ());
    done.expect(200).has("content-length", LARGE);
}

#[test]
fn another_upload_replaces_documentation_at_once() {
    let index = documented();
    check(&index, "1.0/+doc/", HTML, b"<h1>one</h1>");
    let next = zip(&[("index.html", b"<h1>two</h1>")]);
    index.alice().upload("alice/base", &Upload::docs("p", "1.0", &next)).expect(200);
    check(&index, "1.0/+doc/", HTML, b"<h1>two</h1>");
    index.get("/alice/dev/p/1.0/+doc/style.css").expect(404);
}

#[test]
fn where_the_zip_lies() {
    let index = Index::with_dev();
    let docs = zip(&[("index.html", b"x")]);
    index
        .alice()
        .json()
        .upload("alice/dev", &Upload::docs("p", "", &docs).without("version"))
        .expect(400);
    // A version that is named is registered by it.
    index.alice().json().upload("alice/dev", &Upload::docs("p", "0.9", &docs)).expect(200);
    index.upload("alice/dev", "p-1.0.zip", &super::sdist("x"));
    let latest = Upload::docs("p", "", &docs).without("version");
    index.alice().upload("alice/dev", &latest).expect(200);
    let stored = super::path("alice/dev", "p-1.0.doc.zip", &docs);
    assert_eq!(index.anybody().get(&stored).body, docs);
    index.page("alice/dev", "p").lacks("doc.zip");
}
