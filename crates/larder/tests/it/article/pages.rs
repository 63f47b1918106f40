//! Lists, searches, histories and comparisons.

use serde_json::Value;

use super::{noise, store, wiki, wiki_with};
use crate::asking::{Says as _, each, texts};
use crate::server::TestServer;
use crate::wait_until;

/// The names of a list, with blanks between, and where the next part begins.
#[track_caller]
fn names(server: &TestServer, query: &str) -> String {
    let json = server.get(&format!("/articles{query}")).expect(200).json();
    let mut names = texts(&json["articles"], "name");
    names.extend(json["next_after"].as_str().map(|next| format!("…{next}")));
    names.join(" ")
}

#[test]
fn lists_and_searches() {
    let server = wiki();
    assert_eq!(names(&server, ""), "");
    for (name, body) in [
        ("guide/a", "# Getting *Started*\n"),
        ("guide/b", "# Second\n"),
        ("guide/c", "no title"),
        ("welcome", "# Straße\n"),
        ("%C3%A9t%C3%A9", "# Summer\n"),
        ("gone", "# Gone\n"),
    ] {
        store(&server, &format!("{name}/0"), body.as_bytes());
    }
    server.root().delete("/article/gone/1");
    let rows = [
        ("", "guide/a guide/b guide/c welcome été"),
        ("?deleted=true", "gone guide/a guide/b guide/c welcome été"),
        ("?deleted=false", "guide/a guide/b guide/c welcome été"),
        ("?prefix=guide/", "guide/a guide/b guide/c"),
        ("?prefix=guide/&limit=2", "guide/a guide/b …guide/b"),
        ("?prefix=guide/&limit=2&after=guide/b", "guide/c"),
        ("?limit=3", "guide/a guide/b guide/c …guide/c"),
        ("?limit=3&after=guide/c", "welcome été"),
        ("?prefix=e%CC%81", "été"),
        ("?prefix=x", ""),
        ("?q=STARTED", "guide/a"),
        ("?q=STRA%C3%9FE", "welcome"),
        ("?q=guide", "guide/a guide/b guide/c"),
        ("?q=guide&prefix=guide/b", "guide/b"),
        ("?q=guide&limit=1", "guide/a …guide/a"),
        ("?q=%C3%89T%C3%89", "été"),
        ("?q=gone", ""),
        ("?q=gone&deleted=true", "gone"),
        ("?q=nothing+of+the+kind", ""),
    ];
    each(rows, |(query, expected)| assert_eq!(names(&server, query), expected, "{query}"));
    // The title that counts is the latest one.
    store(&server, "guide/b/1", b"# Third\n");
    assert_eq!((&*names(&server, "?q=second"), &*names(&server, "?q=third")), ("", "guide/b"));
}

#[test]
fn a_list_is_of_one_moment_and_known_words() {
    let server = wiki();
    for query in ["?limit=0", "?limit=1001", "?limit=x", "?x=1", "?q=a&q=b", "?deleted=maybe"] {
        server.get(&format!("/articles{query}")).expect(400);
    }
    let list = server.get("/articles");
    list.has("cache-control", "no-cache");
    let tag = list.header("etag").to_owned();
    server.client.get_with("/articles", &[("If-None-Match", &tag)]).expect(304);
    store(&server, "new/0", b"x");
    server.client.get_with("/articles", &[("If-None-Match", &tag)]).expect(200);
}

/// The results of a search do not depend on whether the index has been built meanwhile.
#[test]
fn a_search_sees_every_write() {
    let server = wiki();
    for at in 0..60 {
        store(&server, &format!("bulk/{at:02}-x/0"), format!("# Title {at}\n").as_bytes());
        names(&server, &format!("?q=title+{at}")).says(&format!("bulk/{at:02}-x"));
    }
    wait_until("the list", || names(&server, "?q=TITLE&limit=1000").split(' ').count() == 60);
}

#[test]
fn a_history_is_read_in_parts() {
    let server = wiki();
    for version in 0..7 {
        let target = format!("/article/a/{version}?comment=nr%20{}", version + 1);
        server.root().post(&target, version.to_string().as_bytes()).expect(201);
    }
    server.root().delete("/article/a/7");
    let rows = [
        ("", &[8, 7, 6, 5, 4, 3, 2, 1][..], None),
        ("?limit=3", &[8, 7, 6], Some(6)),
        ("?limit=3&before=6", &[5, 4, 3], Some(3)),
        ("?limit=3&before=3", &[2, 1], None),
        ("?before=1", &[], None),
        ("?before=99", &[8, 7, 6, 5, 4, 3, 2, 1], None),
    ];
    each(rows, |(query, expected, next)| {
        let json = server.get(&format!("/article/a/history{query}")).expect(200).json();
        let versions = json["versions"].as_array().expect("versions").iter();
        let found: Vec<u64> =
            versions.map(|it| it["version"].as_u64().expect("a number")).collect();
        assert_eq!((found.as_slice(), json["next_before"].as_u64()), (expected, next), "{query}");
        assert_eq!((json["latest"].as_u64(), &json["deleted"]), (Some(8), &Value::Bool(true)));
    });
    let first = &server.get("/article/a/history?before=2").json()["versions"][0];
    assert_eq!((&first["comment"], &first["author"]), (&"nr 1".into(), &"root".into()));
    assert_eq!(first["sha256"], record::Digest::of(b"0").to_string());
    for target in
        ["/article/a/history?limit=0", "/article/a/history?before=x", "/article/a/history?x=1"]
    {
        server.get(target).expect(400);
    }
    server.get("/article/b/history").expect(404);
}

#[test]
fn links_lead_to_names_with_signs_and_to_folders() {
    let server = wiki();
    let put = |name: &str, kind: &str, text: &[u8]| {
        server.root().typed(kind).post(&format!("/article/{name}/0"), text);
    };
    for name in ["C", "C%23", "Why%3F", "guide/index.md", "guide/start", "list/one", "Help:%20x"] {
        put(name, "text/markdown", b"# x");
    }
    put("w", "text/markdown", b"\xef\xbb\xbf# Head\n\n[[C#]] [[C#x]] [[Why?]] [[Help: x]] [[None?]] [a](guide/) [b](list/) [c](C%23)\n");
    let shown = |name: &str| {
        let page = server.browse(&format!("/article/{name}"));
        page.text()
    };
    let page = shown("w");
    let links = [
        "/article/C%23",
        "/article/C#u-x",
        "/article/Why%3F",
        "/article/Help%3A%20x",
        "/article/None%3F",
        "/article/guide/index.md",
        "/articles?prefix=list%2F",
    ];
    page.says(links.map(|link| format!("href=\"{link}\"")));
    page.says("<title>Head");
    put("latin", "text/markdown; charset=iso-8859-1", b"# caf\xe9\n\nna\xefve\n");
    shown("latin").says(["café", "naïve"]);
}

#[test]
fn what_changed_between_revisions() {
    let server = wiki();
    for (base, body) in ["one\ntwo\n", "one\n2\n", "one\n2\nthree\n"].iter().enumerate() {
        store(&server, &format!("a b/{base}").replace(' ', "%20"), body.as_bytes());
    }
    let check = |query: &str, expected: &str| {
        let done = server.get(&format!("/article/a%20b/diff{query}"));
        done.expect(200).is(expected).has("content-type", "text/x-diff; charset=utf-8");
    };
    let last = "--- a b\tversion 2\n+++ a b\tversion 3\n@@ -1,2 +1,3 @@\n one\n 2\n+three\n";
    let rows = [
        ("", last),
        ("?to=3", last),
        ("?from=2&to=3", last),
        (
            "?from=1&to=2",
            "--- a b\tversion 1\n+++ a b\tversion 2\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
        ),
        (
            "?from=3&to=2",
            "--- a b\tversion 3\n+++ a b\tversion 2\n@@ -1,3 +1,2 @@\n one\n 2\n-three\n",
        ),
        ("?from=0&to=1", "--- a b\tversion 0\n+++ a b\tversion 1\n@@ -0,0 +1,2 @@\n+one\n+two\n"),
        ("?to=1", "--- a b\tversion 0\n+++ a b\tversion 1\n@@ -0,0 +1,2 @@\n+one\n+two\n"),
        ("?from=2&to=2", ""),
    ];
    each(rows, |(query, expected)| check(query, expected));
    server.root().delete("/article/a%20b/3");
    check("", "--- a b\tversion 3\n+++ a b\tversion 4\n@@ -1,3 +0,0 @@\n-one\n-2\n-three\n");
    server.root().typed("image/png").post("/article/a%20b/4", b"\x89PNG");
    check("?from=3&to=5", "Binary files a b version 3 and a b version 5 differ\n");
    for (target, expected) in [
        ("/article/a%20b/diff?from=9", 404),
        ("/article/a%20b/diff?to=0", 404),
        ("/article/b/diff", 404),
        ("/article/a%20b/diff?from=x", 400),
        ("/article/a%20b/diff?from=1&from=2", 400),
    ] {
        server.get(target).expect(expected);
    }
}

#[test]
fn texts_that_are_too_large_are_not_compared() {
    let server = wiki_with(|config| config.article.merge_bytes_max = 10_000);
    store(&server, "a/0", &noise(10_001));
    store(&server, "a/1", &noise(10_002));
    server.get("/article/a/diff").expect(413);
    // Short bytes, but many lines.
    let server = wiki();
    store(&server, "a/0", "\n".repeat(40_000).as_bytes());
    store(&server, "a/1", "x\n".repeat(40_000).as_bytes());
    server.get("/article/a/diff").expect(413);
}
