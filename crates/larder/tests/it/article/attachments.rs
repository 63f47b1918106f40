//! Files of articles: added, read, replaced and removed, by programs and by forms, within bounds, with the right.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::words::limited;
use super::{code, noise, store, wiki, wiki_with};
use crate::asking::{Says as _, texts};
use crate::browser::{ACCEPT, Browser};
use crate::client::Response;
use crate::pages::check_harmless;
use crate::server::{ROOT, TestServer};
use crate::shown::{shown, shown_json};

pub(super) const PATH: &str = "/+attachments/a/x.png";

pub(super) fn put(
    server: &TestServer,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let is_empty = body.is_empty().then_some(("Content-Length", "0"));
    let headers: Vec<_> = headers.iter().copied().chain(is_empty).collect();
    server.root().with_all(&headers).put(target, body)
}

#[track_caller]
pub(super) fn added(server: &TestServer, target: &str, body: &[u8]) -> Response {
    put(server, target, &[], body).expect(201)
}

/// The names of an article's files.
#[track_caller]
pub(super) fn names(server: &TestServer, article: &str) -> Vec<String> {
    let list = server.get(&format!("/+attachments/{article}/")).expect(200);
    texts(&list.json()["attachments"], "name")
}

/// The feed's changes of attachments.
pub(super) fn told(server: &TestServer) -> Vec<Value> {
    let lines = server.get("/changes?surface=articles&since=0").json_lines().into_iter();
    lines.filter(|line| line["type"] == "attachment").collect()
}

#[test]
fn a_file_is_added_and_read() {
    let server = wiki();
    store(&server, "a/0", b"# A\n");
    assert_eq!(code(&put(&server, "/+attachments/none/x.png", &[], b"x")), "not_found");
    let made = added(&server, PATH, b"one");
    made.has("location", PATH);
    assert_snapshot!("added", shown_json(&made.json()));
    let tag = made.header("etag").to_owned();
    let read = server.get(PATH);
    assert_eq!((read.status, read.body.as_slice()), (200, &b"one"[..]));
    assert_eq!((read.header("etag"), read.header("content-type")), (tag.as_str(), "image/png"));
    read.has("cache-control", "no-cache").has("x-larder-serial", made.header("x-larder-serial"));
    let known = server.client.get_with(PATH, &[("If-None-Match", &tag)]);
    assert_eq!((known.status, known.body.len()), (304, 0));
    let part = server.client.get_with(PATH, &[("Range", "bytes=1-"), ("If-Range", &tag)]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"ne"[..]));
    part.has("content-range", "bytes 1-2/3");
    server.client.get_with(PATH, &[("Range", "bytes=9-")]).expect(416);
    server.anybody().send("HEAD", PATH, ()).has("content-length", "3");
}

#[test]
fn a_file_is_neither_overwritten_nor_removed_unseen() {
    let server = wiki();
    store(&server, "a/0", b"# A\n");
    let tag = added(&server, PATH, b"one").header("etag").to_owned();
    assert_eq!(code(&put(&server, PATH, &[], b"two")), "condition_missing");
    assert_eq!(code(&put(&server, PATH, &[("If-None-Match", "*")], b"two")), "precondition_failed");
    assert_eq!(code(&put(&server, PATH, &[("If-Match", "\"x\"")], b"two")), "precondition_failed");
    assert_eq!(code(&server.root().delete(PATH)), "condition_missing");
    let replaced = put(&server, PATH, &[("If-Match", &tag)], b"two").expect(200);
    assert_eq!(code(&put(&server, PATH, &[("If-Match", &tag)], b"three")), "precondition_failed");
    assert_eq!(code(&server.root().with("If-Match", &tag).delete(PATH)), "precondition_failed");
    assert_eq!(server.get(PATH).text(), "two");
    // Sending the same bytes again writes nothing.
    let serial = replaced.header("x-larder-serial").to_owned();
    put(&server, PATH, &[("If-Match", "*")], b"two").expect(200).has("x-larder-serial", serial);
}

#[test]
fn what_happened_to_files_is_listed_and_told() {
    let server = wiki();
    store(&server, "a/0", b"# A\n");
    let text_tag = server.get("/article/a").header("etag").to_owned();
    added(&server, PATH, b"one");
    put(&server, PATH, &[("If-Match", "*")], b"two").expect(200);
    added(&server, "/+attachments/a/b%20c.txt", b"");
    assert_eq!(names(&server, "a"), ["b c.txt", "x.png"]);
    let gone = server.root().with("If-Match", "*").delete(PATH);
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(code(&server.get(PATH)), "not_found");
    assert_eq!(code(&server.root().with("If-Match", "*").delete(PATH)), "not_found");
    let list = server.get("/+attachments/a/").json();
    assert_snapshot!("listed", shown_json(&list));
    // The text and its tag have not changed.
    server.get("/article/a").has("etag", text_tag);
    assert_snapshot!("told", shown_json(&told(&server).into()));
}

#[test]
fn files_are_there_after_a_restart() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let body = noise(700_000);
    added(&server, PATH, &body);
    let server = server.restarted();
    let read = server.get(PATH);
    assert!(read.status == 200 && read.body == body, "{}", read.status);
    let line = &told(&server)[0];
    assert_eq!((&line["kind"], &line["file"]), (&json!("added"), &json!("x.png")));
}

#[test]
fn what_is_no_file_is_refused() {
    let server = wiki();
    store(&server, "a/0", b"text");
    for name in [
        "..",
        "%2E%2E",
        "a%5Cb",
        ".hidden",
        "a%00",
        "a%252Fb",
        "%20a",
        "a%E2%80%AEb",
        &"x".repeat(256),
    ] {
        put(&server, &format!("/+attachments/a/{name}"), &[], b"x").expect(400);
    }
    put(&server, "/+attachments/a", &[], b"x").expect(404);
    put(&server, "/+attachments/a/", &[], b"x").expect(405);
    server.root().with("Content-Encoding", "gzip").put(PATH, "x").expect(415);
    server.root().with("Content-Range", "bytes 0-0/2").put(PATH, "x").expect(400);
    added(&server, PATH, b"x");
    server.get(&format!("{PATH}?raw")).expect(400);
    server.root().with("If-Match", "*").delete(PATH).expect(204);
    assert_eq!(names(&server, "a"), [""; 0]);
    let done = server.anybody().send("OPTIONS", PATH, ());
    done.expect(204).has("allow", "GET, HEAD, PUT, DELETE, OPTIONS");
}

#[test]
fn files_are_bounded() {
    let server = wiki_with(|config| {
        config.article.attachment_bytes_max = 1_024;
        config.article.attachments_max = 3;
        config.article.attachments_bytes_max = 2_048;
    });
    store(&server, "a/0", b"text");
    let place = |name: &str| format!("/+attachments/a/{name}");
    assert_eq!(code(&put(&server, &place("large"), &[], &noise(1_025))), "too_large");
    // Its length is not announced.
    let (name, value) = ROOT;
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 2_000, "x".repeat(2_000));
    let request = format!(
        "PUT {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}: {value}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}",
        place("large")
    );
    assert_eq!(code(&server.client.exchange(request.as_bytes(), false)), "too_large");
    added(&server, &place("one"), &noise(1_024));
    added(&server, &place("two"), &noise(1_000));
    assert_eq!(code(&put(&server, &place("three"), &[], &noise(25))), "too_large");
    added(&server, &place("three"), &noise(24));
    assert_eq!(code(&put(&server, &place("four"), &[], b"")), "too_many_attachments");
    put(&server, &place("three"), &[("If-Match", "*")], b"").expect(200);
    assert_eq!(names(&server, "a"), ["one", "three", "two"]);
}

#[test]
fn of_writers_at_once_nobody_is_overwritten_and_bounds_hold() {
    let server = wiki_with(|config| config.article.attachments_max = 4);
    store(&server, "a/0", b"text");
    let tag = added(&server, PATH, b"first").header("etag").to_owned();
    let at_once =
        |target: &(dyn Fn(usize) -> String + Sync), headers: &[(&str, &str)]| -> Vec<u16> {
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..8)
                    .map(|number| {
                        let (server, target) = (&server, target(number));
                        scope.spawn(move || {
                            put(server, &target, headers, format!("by {number}").as_bytes()).status
                        })
                    })
                    .collect();
                writers.into_iter().map(|writer| writer.join().expect("a status")).collect()
            })
        };
    let replaced = at_once(&|_| PATH.to_owned(), &[("If-Match", &tag)]);
    assert_eq!(replaced.iter().filter(|status| **status == 200).count(), 1, "{replaced:?}");
    assert!(replaced.iter().all(|status| matches!(status, 200 | 412)), "{replaced:?}");
    let new = at_once(&|number| format!("/+attachments/a/{number}"), &[]);
    assert_eq!(new.iter().filter(|status| **status == 201).count(), 3, "{new:?}");
    assert!(new.iter().all(|status| matches!(status, 201 | 409)), "{new:?}");
    assert_eq!(names(&server, "a").len(), 4);
}

#[test]
fn files_go_with_their_article() {
    let server = wiki();
    store(&server, "a/0", b"text");
    added(&server, PATH, b"one");
    server.root().post("/article/a/1?rename=b/c", ()).expect(201);
    for headers in [&[][..], &[ACCEPT]] {
        let moved = server.client.get_with(PATH, headers);
        moved.expect(308).has("location", "/+attachments/b/c/x.png");
        let moved = server.client.get_with("/+attachments/a/", headers);
        moved.expect(308).has("location", "/+attachments/b/c/");
    }
    assert_eq!(server.get("/+attachments/b/c/x.png").text(), "one");
    assert_eq!(code(&put(&server, PATH, &[("If-Match", "*")], b"two")), "renamed");
    // A new article of the old name has none of the files.
    store(&server, "a/2", b"new");
    assert_eq!(names(&server, "a"), [""; 0]);
    added(&server, "/+attachments/b/c/y", b"why");
    server.root().delete("/article/b/c/2").expect(200);
    server.get("/+attachments/b/c/x.png").expect(410);
    server.get("/+attachments/b/c/").expect(410);
    assert_eq!(code(&put(&server, "/+attachments/b/c/x.png", &[], b"x")), "deleted");
    server.root().post("/article/b/c/3?restore=1", ()).expect(201);
    assert_eq!(names(&server, "b/c"), [""; 0]);
    let changes = server.get("/+attachments/b/c/").json();
    assert_eq!(changes["changes"][0]["kind"], "cleared");
    // The article's own lines tell of both.
    assert_eq!(told(&server).len(), 2);
}

#[test]
fn who_may_read_an_article_reads_its_files() {
    let server = wiki_with(|config| {
        config.article.acl_read = "root".parse().expect("a list");
        config.article.acl_write = "root,ada".parse().expect("a list");
    });
    store(&server, "docs/a/0", b"text");
    store(&server, "secret/0", b"text");
    added(&server, "/+attachments/docs/a/x.png", b"one");
    added(&server, "/+attachments/secret/x.png", b"hidden bytes");
    for target in ["/+attachments/secret/x.png", "/+attachments/secret/", "/+attachments/none/x"] {
        for headers in [&[][..], &[ACCEPT]] {
            server.client.get_with(target, headers).expect(401).lacks("x.png,");
        }
        server.anybody().with("If-Match", "*").put(target, "x").expect_one_of([401, 405]);
    }
    let read = server.root().get("/+attachments/secret/x.png").expect(200);
    read.has("cache-control", "private, no-cache");
    // A writer who may not read, with a token for one prefix.
    let ada = limited(&server, &["article:read", "article:write"]);
    let as_ada = |method: &str, target: &str, body: &[u8]| {
        server.authorized(ada.as_str()).with("If-Match", "*").send(method, target, body)
    };
    as_ada("GET", "/+attachments/docs/a/x.png", b"").expect(403);
    as_ada("PUT", "/+attachments/docs/a/x.png", b"two").expect(200).lacks("author");
    as_ada("PUT", "/+attachments/secret/x.png", b"x").expect(403);
    as_ada("DELETE", "/+attachments/secret/x.png", b"").expect(403);
    assert_eq!(server.root().get("/+attachments/secret/x.png").text(), "hidden bytes");
}

/// A file that a browser could run is saved and not shown, whatever media type its sender gave.
#[test]
fn nothing_of_a_file_runs() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let attack = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>";
    for (name, media_type, disposition) in [
        ("x.svg", "application/octet-stream", "attachment"),
        ("x.html", "application/octet-stream", "attachment"),
        ("x.png.html", "application/octet-stream", "attachment"),
        ("x.js", "application/octet-stream", "attachment"),
        ("x.xml", "application/octet-stream", "attachment"),
        ("x.pdf", "application/pdf", "attachment"),
        ("x.png", "image/png", "inline"),
        ("x.txt", "text/plain; charset=utf-8", "inline"),
        ("x\"; filename=y.html", "application/octet-stream", "attachment"),
    ] {
        let target = format!("/+attachments/a/{}", name.replace('"', "%22").replace(' ', "%20"));
        put(&server, &target, &[("Content-Type", "text/html")], attack).expect(201);
        let read = server.browse(&target);
        assert_eq!((read.status, read.body.as_slice()), (200, &attack[..]), "{name}");
        read.has("content-type", media_type);
        let found = read.header("content-disposition");
        assert!(found.starts_with(&format!("{disposition}; filename*=UTF-8''")), "{name}: {found}");
        assert_eq!((found.matches('"').count(), found.matches(';').count()), (0, 1), "{found}");
        read.has("x-content-type-options", "nosniff");
        read.has(
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        );
    }
}

/// Where the files of `guide/a` are listed.
const PLACE: &str = "/+attachments/guide/a/";

/// A server with the article `guide/a`, which shows files that are not there.
fn without_files() -> TestServer {
    let server = wiki();
    let text = b"# A\n\n![Plan](plan.png) [list](./list%20B.pdf) ![No](none.png)\n";
    store(&server, "guide/a/0", text);
    server
}

/// Adds `plan.png` and `list B.pdf` to `guide/a` by the form.
fn add_two(root: &mut Browser) {
    let page = root.get(PLACE).expect(200);
    page.has("cache-control", "no-store");
    check_harmless(&page.text(), PLACE);
    root.submit_file((&page.text(), "Add a file"), &[], Some(("C:\\x\\plan.png", b"one")))
        .expect(303)
        .has("location", PLACE);
    let page = root.get(PLACE).text();
    root.submit_file((&page, "Add a file"), &[("name", "list B.pdf")], Some(("y", b"%PDF")))
        .expect(303);
}

#[test]
fn files_that_people_add_show_in_their_article() {
    let server = without_files();
    let before = server.browse("/article/guide/a");
    before.lacks("+attachments/guide/a/plan.png");
    add_two(&mut Browser::root(server.client));
    assert_eq!(names(&server, "guide/a"), ["list B.pdf", "plan.png"]);
    // The article's page shows the files, and has a new tag.
    let tag = before.header("etag").to_owned();
    let now =
        server.client.get_with("/article/guide/a", &[ACCEPT, ("If-None-Match", &tag)]).expect(200);
    let page = now.html();
    check_harmless(&page, "the article");
    page.says(["<img src=\"/+attachments/guide/a/plan.png\"", "class=\"missing\""]);
    assert_snapshot!("article_with_files", shown(&page));
    // Another article has no such file.
    store(&server, "guide/b/0", b"![Plan](plan.png)\n");
    server.browse("/article/guide/b").lacks("<img");
    // Readers see the list, and no form.
    assert_snapshot!("files_for_readers", shown(&server.page(PLACE)));
}

#[test]
fn people_replace_and_remove_only_the_file_that_they_saw() {
    let server = without_files();
    let mut root = Browser::root(server.client);
    add_two(&mut root);
    // The name exists, but the form has no tag.
    let page = root.get(PLACE).text();
    let again = root.submit_file((&page, "Add a file"), &[], Some(("plan.png", b"two")));
    again.tells(428, "Nothing was changed. There is a file `plan.png` already. Replace it in the list, or give yours another name.");
    root.submit_file((&page, "Replace plan.png"), &[], Some(("other", b"two"))).expect(303);
    // The page from before is too old now.
    let stale = root.submit_file((&page, "Remove plan.png"), &[], None);
    stale.tells(412, "Nothing was changed. Somebody added, replaced or removed `plan.png` since you loaded this page. Look at it, and send it again.");
    assert_eq!(server.get("/+attachments/guide/a/plan.png").text(), "two");
    let page = root.get(PLACE).text();
    let empty = root.submit_file((&page, "Add a file"), &[], Some(("", b"")));
    empty.tells(400, "Nothing was changed. Choose a file first.");
    root.submit_file((&page, "Remove plan.png"), &[], None).expect(303);
    assert_eq!(names(&server, "guide/a"), ["list B.pdf"]);
    server.browse("/article/guide/a").lacks("<img");
    // The edit page names them, and who deletes is told.
    root.get("/+edit/guide/a").says(["list B.pdf", "deleted for good"]);
}

#[test]
fn forms_of_other_pages_change_nothing() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let mut root = Browser::root(server.client);
    let place = "/+attachments/a/";
    let page = root.get(place).text();
    let file = Some(("x.png", &b"x"[..]));
    root.submit_file((&page, "Add a file"), &[("form", "x")], file).expect(403);
    let mut nobody = Browser::new(server.client);
    nobody.submit_file((&page, "Add a file"), &[], file).expect(401);
    // The token after the file is too late, and a form without a file in it is no form of this page.
    let origin = format!("http://{}", server.client.address);
    let urlencoded =
        [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str())];
    root.send("POST", place, &urlencoded, b"do=remove&name=x").expect(415);
    let foreign =
        [("Content-Type", "multipart/form-data; boundary=b"), ("Origin", "http://evil.example")];
    root.send("POST", place, &foreign, b"--b--\r\n").expect(403);
    // Credentials of a program do not count in a form.
    server.root().typed("multipart/form-data; boundary=b").post(place, "--b--\r\n").expect(401);
    assert_eq!(names(&server, "a"), [""; 0]);
}

/// Blobs of files are named by their records: a verification of the store finds all of them.
#[test]
fn equal_bytes_are_one_blob() {
    let server = wiki();
    let articles = ["a", "b"];
    let digests: BTreeSet<String> = articles
        .iter()
        .map(|article| {
            store(&server, &format!("{article}/0"), b"text");
            let made = added(&server, &format!("/+attachments/{article}/x"), b"same");
            made.json()["sha256"].as_str().expect("a digest").to_owned()
        })
        .collect();
    assert_eq!(digests.len(), 1);
    server.root().with("If-Match", "*").delete("/+attachments/a/x").expect(204);
    assert_eq!(server.get("/+attachments/b/x").text(), "same");
}
