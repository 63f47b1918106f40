//! Files of articles: added, read, replaced and removed, by programs and by forms, within bounds, with the right.

use std::collections::BTreeSet;

use account::{Scope, Scopes};
use serde_json::{Value, json};

use super::words::limited;
use super::{ask, code, noise, store, wiki, wiki_with};
use crate::browser::{ACCEPT, Browser};
use crate::client::Response;
use crate::pages::check_harmless;
use crate::server::{ROOT, ROOT_PASSWORD, TestServer};

pub(super) const PATH: &str = "/+attachments/a/x.png";

pub(super) fn put(
    server: &TestServer,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let is_empty = body.is_empty().then_some(("Content-Length", "0"));
    let headers: Vec<_> = headers.iter().copied().chain(is_empty).collect();
    ask(server, "PUT", target, &headers, body)
}

#[track_caller]
pub(super) fn added(server: &TestServer, target: &str, body: &[u8]) -> Response {
    let response = put(server, target, &[], body);
    assert_eq!(response.status, 201, "{target}: {}", response.text());
    response
}

/// The names of an article's files.
#[track_caller]
pub(super) fn names(server: &TestServer, article: &str) -> Vec<String> {
    let list = server.get(&format!("/+attachments/{article}/"));
    assert_eq!(list.status, 200, "{}", list.text());
    let list = list.json()["attachments"].as_array().expect("files").clone();
    list.iter().map(|file| file["name"].as_str().expect("a name").to_owned()).collect()
}

/// The feed's changes of attachments.
pub(super) fn told(server: &TestServer) -> Vec<Value> {
    let lines = server.get("/changes?surface=articles&since=0").text();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["type"] == "attachment").collect()
}

#[test]
fn a_file_comes_changes_and_goes() {
    let server = wiki();
    store(&server, "a/0", b"# A\n");
    let text_tag = server.get("/article/a").header("etag").to_owned();
    assert_eq!(code(&put(&server, "/+attachments/none/x.png", &[], b"x")), "not_found");
    let made = added(&server, PATH, b"one");
    assert_eq!(made.header("location"), PATH);
    let facts = made.json();
    assert_eq!((&facts["article"], &facts["name"]), (&json!("a"), &json!("x.png")));
    assert_eq!((&facts["size_bytes"], &facts["author"]), (&json!(3), &json!("root")));
    let tag = made.header("etag").to_owned();
    let read = server.get(PATH);
    assert_eq!((read.status, read.body.as_slice()), (200, &b"one"[..]));
    assert_eq!((read.header("etag"), read.header("content-type")), (tag.as_str(), "image/png"));
    assert_eq!(read.header("cache-control"), "no-cache");
    assert_eq!(read.header("x-larder-serial"), made.header("x-larder-serial"));
    let known = server.client.get_with(PATH, &[("If-None-Match", &tag)]);
    assert_eq!((known.status, known.body.len()), (304, 0));
    let part = server.client.get_with(PATH, &[("Range", "bytes=1-"), ("If-Range", &tag)]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"ne"[..]));
    assert_eq!(part.header("content-range"), "bytes 1-2/3");
    assert_eq!(server.client.get_with(PATH, &[("Range", "bytes=9-")]).status, 416);
    assert_eq!(server.client.send("HEAD", PATH, &[], b"").header("content-length"), "3");
    // A file cannot be overwritten or removed unseen.
    assert_eq!(code(&put(&server, PATH, &[], b"two")), "condition_missing");
    assert_eq!(code(&put(&server, PATH, &[("If-None-Match", "*")], b"two")), "precondition_failed");
    assert_eq!(code(&put(&server, PATH, &[("If-Match", "\"x\"")], b"two")), "precondition_failed");
    assert_eq!(code(&ask(&server, "DELETE", PATH, &[], b"")), "condition_missing");
    let replaced = put(&server, PATH, &[("If-Match", &tag)], b"two");
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(code(&put(&server, PATH, &[("If-Match", &tag)], b"three")), "precondition_failed");
    assert_eq!(
        code(&ask(&server, "DELETE", PATH, &[("If-Match", &tag)], b"")),
        "precondition_failed"
    );
    assert_eq!(server.get(PATH).text(), "two");
    // Sending the same bytes again writes nothing.
    let serial = replaced.header("x-larder-serial").to_owned();
    let same = put(&server, PATH, &[("If-Match", "*")], b"two");
    assert_eq!((same.status, same.header("x-larder-serial")), (200, serial.as_str()));
    added(&server, "/+attachments/a/b%20c.txt", b"");
    assert_eq!(names(&server, "a"), ["b c.txt", "x.png"]);
    let gone = ask(&server, "DELETE", PATH, &[("If-Match", "*")], b"");
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(code(&server.get(PATH)), "not_found");
    assert_eq!(code(&ask(&server, "DELETE", PATH, &[("If-Match", "*")], b"")), "not_found");
    let list = server.get("/+attachments/a/").json();
    let done = list["changes"].as_array().expect("changes").iter();
    let done: Vec<_> = done.map(|it| (it["kind"].as_str(), it["name"].as_str())).collect();
    let x = Some("x.png");
    assert_eq!(
        done,
        [
            (Some("removed"), x),
            (Some("added"), Some("b c.txt")),
            (Some("replaced"), x),
            (Some("added"), x)
        ]
    );
    // The text and its tag have not changed.
    assert_eq!(server.get("/article/a").header("etag"), text_tag);
    let told = told(&server);
    let kinds: Vec<_> = told.iter().map(|line| line["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["added", "changed", "added", "removed"]);
    let first = &told[0];
    assert_eq!(
        (&first["name"], &first["file"], &first["by"]),
        (&json!("a"), &json!("x.png"), &json!("root"))
    );
}

#[test]
fn files_are_there_after_a_restart() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let body = noise(700_000);
    added(&server, PATH, &body);
    let server = TestServer::start_in(server.stop(), |config, _| config.aur.enabled = false);
    server.wait_until_ready();
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
        let response = put(&server, &format!("/+attachments/a/{name}"), &[], b"x");
        assert_eq!(response.status, 400, "{name}: {}", response.text());
    }
    assert_eq!(put(&server, "/+attachments/a", &[], b"x").status, 404);
    assert_eq!(put(&server, "/+attachments/a/", &[], b"x").status, 405);
    assert_eq!(ask(&server, "PUT", PATH, &[("Content-Encoding", "gzip")], b"x").status, 415);
    assert_eq!(ask(&server, "PUT", PATH, &[("Content-Range", "bytes 0-0/2")], b"x").status, 400);
    added(&server, PATH, b"x");
    assert_eq!(server.get(&format!("{PATH}?raw")).status, 400);
    assert_eq!(ask(&server, "DELETE", PATH, &[("If-Match", "*")], b"").status, 204);
    assert_eq!(names(&server, "a"), [""; 0]);
    let options = server.client.send("OPTIONS", PATH, &[], b"");
    assert_eq!((options.status, options.header("allow")), (204, "GET, HEAD, PUT, DELETE, OPTIONS"));
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
    let smaller = put(&server, &place("three"), &[("If-Match", "*")], b"");
    assert_eq!(smaller.status, 200, "{}", smaller.text());
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
    let renamed = ask(&server, "POST", "/article/a/1?rename=b/c", &[], b"");
    assert_eq!(renamed.status, 201, "{}", renamed.text());
    for headers in [&[][..], &[ACCEPT]] {
        let old = server.client.get_with(PATH, headers);
        assert_eq!((old.status, old.header("location")), (308, "/+attachments/b/c/x.png"));
        let list = server.client.get_with("/+attachments/a/", headers);
        assert_eq!((list.status, list.header("location")), (308, "/+attachments/b/c/"));
    }
    assert_eq!(server.get("/+attachments/b/c/x.png").text(), "one");
    assert_eq!(code(&put(&server, PATH, &[("If-Match", "*")], b"two")), "renamed");
    // A new article of the old name has none of the files.
    store(&server, "a/2", b"new");
    assert_eq!(names(&server, "a"), [""; 0]);
    added(&server, "/+attachments/b/c/y", b"why");
    let deleted = ask(&server, "DELETE", "/article/b/c/2", &[], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(server.get("/+attachments/b/c/x.png").status, 410);
    assert_eq!(server.get("/+attachments/b/c/").status, 410);
    assert_eq!(code(&put(&server, "/+attachments/b/c/x.png", &[], b"x")), "deleted");
    let back = ask(&server, "POST", "/article/b/c/3?restore=1", &[], b"");
    assert_eq!(back.status, 201, "{}", back.text());
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
            let nobody = server.client.get_with(target, headers);
            assert_eq!(nobody.status, 401, "{target}");
            assert!(!nobody.text().contains("x.png,"), "{target}");
        }
        let nobody = server.client.send("PUT", target, &[("If-Match", "*")], b"x");
        assert!(matches!(nobody.status, 401 | 405), "{target}: {}", nobody.status);
    }
    let read = ask(&server, "GET", "/+attachments/secret/x.png", &[], b"");
    assert_eq!((read.status, read.header("cache-control")), (200, "private, no-cache"));
    // A writer who may not read, with a token for one prefix.
    let scopes = Scopes::default().with(Scope::ArticleWrite).with(Scope::ArticleRead);
    let ada = limited(&server, scopes);
    let as_ada = |method: &str, target: &str, body: &[u8]| {
        let headers = [("Authorization", ada.as_str()), ("If-Match", "*")];
        server.client.send(method, target, &headers, body)
    };
    assert_eq!(as_ada("GET", "/+attachments/docs/a/x.png", b"").status, 403);
    let blind = as_ada("PUT", "/+attachments/docs/a/x.png", b"two");
    assert_eq!(blind.status, 200, "{}", blind.text());
    assert!(!blind.text().contains("author"), "{}", blind.text());
    assert_eq!(as_ada("PUT", "/+attachments/secret/x.png", b"x").status, 403);
    assert_eq!(as_ada("DELETE", "/+attachments/secret/x.png", b"").status, 403);
    assert_eq!(ask(&server, "GET", "/+attachments/secret/x.png", &[], b"").text(), "hidden bytes");
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
        let response = put(&server, &target, &[("Content-Type", "text/html")], attack);
        assert_eq!(response.status, 201, "{name}: {}", response.text());
        let read = server.client.get_with(&target, &[ACCEPT]);
        assert_eq!((read.status, read.body.as_slice()), (200, &attack[..]), "{name}");
        assert_eq!(read.header("content-type"), media_type, "{name}");
        let found = read.header("content-disposition");
        assert!(found.starts_with(&format!("{disposition}; filename*=UTF-8''")), "{name}: {found}");
        assert!(!found.contains('"') && found.matches(';').count() == 1, "{found}");
        assert_eq!(read.header("x-content-type-options"), "nosniff");
        let policy = read.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.ends_with("sandbox"), "{policy}");
    }
}

#[test]
fn people_change_files_by_forms() {
    let server = wiki();
    store(
        &server,
        "guide/a/0",
        b"# A\n\n![Plan](plan.png) [list](./list%20B.pdf) ![No](none.png)\n",
    );
    let article = |browser: &mut Browser| browser.get("/article/guide/a");
    let mut reader = Browser::new(server.client);
    let before = article(&mut reader);
    assert!(!before.text().contains("+attachments/guide/a/plan.png"), "{}", before.text());
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let place = "/+attachments/guide/a/";
    let page = root.get(place);
    assert_eq!((page.status, page.header("cache-control")), (200, "no-store"), "{}", page.text());
    check_harmless(&page.text(), place);
    let sent =
        root.submit_file((&page.text(), "Add a file"), &[], Some(("C:\\x\\plan.png", b"one")));
    assert_eq!((sent.status, sent.header("location")), (303, place), "{}", sent.text());
    let page = root.get(place).text();
    let sent =
        root.submit_file((&page, "Add a file"), &[("name", "list B.pdf")], Some(("y", b"%PDF")));
    assert_eq!(sent.status, 303, "{}", sent.text());
    assert_eq!(names(&server, "guide/a"), ["list B.pdf", "plan.png"]);
    // The article's page shows the files, and has a new tag.
    let tag = before.header("etag").to_owned();
    let now = server.client.get_with("/article/guide/a", &[ACCEPT, ("If-None-Match", &tag)]);
    assert_eq!(now.status, 200);
    let shown = now.text();
    check_harmless(&shown, "the article");
    assert!(shown.contains("<img src=\"/+attachments/guide/a/plan.png\""), "{shown}");
    assert!(shown.contains("href=\"/+attachments/guide/a/list%20B.pdf\""), "{shown}");
    assert!(shown.contains("class=\"missing\""), "{shown}");
    // Another article has no such file.
    store(&server, "guide/b/0", b"![Plan](plan.png)\n");
    assert!(!server.client.get_with("/article/guide/b", &[ACCEPT]).text().contains("<img"));
    // The name exists, but the form has no tag.
    let page = root.get(place).text();
    let again = root.submit_file((&page, "Add a file"), &[], Some(("plan.png", b"two")));
    assert!(again.status == 428 && again.text().contains("There is a file"), "{}", again.text());
    let replaced = root.submit_file((&page, "Replace plan.png"), &[], Some(("other", b"two")));
    assert_eq!(replaced.status, 303, "{}", replaced.text());
    // The page from before is too old now.
    let stale = root.submit_file((&page, "Remove plan.png"), &[], None);
    assert!(stale.status == 412 && stale.text().contains("since you loaded"), "{}", stale.text());
    assert_eq!(server.get("/+attachments/guide/a/plan.png").text(), "two");
    let page = root.get(place).text();
    let empty = root.submit_file((&page, "Add a file"), &[], Some(("", b"")));
    assert!(empty.status == 400 && empty.text().contains("Choose a file"), "{}", empty.text());
    let removed = root.submit_file((&page, "Remove plan.png"), &[], None);
    assert_eq!(removed.status, 303, "{}", removed.text());
    assert_eq!(names(&server, "guide/a"), ["list B.pdf"]);
    assert!(!article(&mut reader).text().contains("<img"));
    // The edit page names them, and who deletes is told.
    let edit = root.get("/+edit/guide/a").text();
    assert!(edit.contains("list B.pdf") && edit.contains("deleted for good"), "{edit}");
    // Readers see the list, and no form.
    let list = reader.get(place);
    assert!(list.status == 200 && !list.text().contains("type=\"file\""), "{}", list.text());
}

#[test]
fn forms_of_other_pages_change_nothing() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let place = "/+attachments/a/";
    let page = root.get(place).text();
    let file = Some(("x.png", &b"x"[..]));
    let wrong = root.submit_file((&page, "Add a file"), &[("form", "x")], file);
    assert_eq!(wrong.status, 403, "{}", wrong.text());
    let mut nobody = Browser::new(server.client);
    let refused = nobody.submit_file((&page, "Add a file"), &[], file);
    assert_eq!(refused.status, 401, "{}", refused.text());
    // The token after the file is too late, and a form without a file in it is no form of this page.
    let origin = format!("http://{}", server.client.address);
    let urlencoded =
        [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str())];
    assert_eq!(root.send("POST", place, &urlencoded, b"do=remove&name=x").status, 415);
    let foreign =
        [("Content-Type", "multipart/form-data; boundary=b"), ("Origin", "http://evil.example")];
    assert_eq!(root.send("POST", place, &foreign, b"--b--\r\n").status, 403);
    // Credentials of a program do not count in a form.
    let headers = [ROOT, ("Content-Type", "multipart/form-data; boundary=b")];
    assert_eq!(server.client.send("POST", place, &headers, b"--b--\r\n").status, 401);
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
    let removed = ask(&server, "DELETE", "/+attachments/a/x", &[("If-Match", "*")], b"");
    assert_eq!(removed.status, 204);
    assert_eq!(server.get("/+attachments/b/x").text(), "same");
}
