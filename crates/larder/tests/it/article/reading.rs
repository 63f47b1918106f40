//! One revision in its responses: encodings, tags, ranges, from memory and from the store alike.

use std::collections::BTreeSet;

use super::{noise, store, text, wiki, wiki_with};
use crate::asking::{Says as _, each};
use crate::catalogue::gunzip;
use crate::server::TestServer;

/// A server without room in memory, and one with the usual room: answers must not differ.
fn both(prepare: impl Fn(&TestServer)) -> [TestServer; 2] {
    [wiki(), wiki_with(|config| config.article.memory_bytes_max = 0)].map(|server| {
        prepare(&server);
        server
    })
}

#[test]
fn headers_of_a_text_and_of_a_page() {
    let server = wiki();
    store(&server, "a/0", &text(1_000));
    for _ in 0..2 {
        let response = server.get("/article/a");
        let names = "accept-ranges cache-control connection content-length content-type date etag last-modified \
                     vary x-article-version x-content-type-options x-larder-serial";
        assert_eq!(response.header_names().join(" "), names);
        response.has("cache-control", "no-cache");
    }
    server.get("/article/a/1").has("cache-control", "max-age=31536000, immutable");
    for said in ["text/html", "image/svg+xml", "TEXT/HTML; charset=utf-8"] {
        let name = said.replace(['/', ' ', ';', '+'], "-");
        let target = format!("/article/{name}/0");
        server.root().typed(said).post(&target, "<script>").expect(201);
        let page = server.get(&format!("/article/{name}"));
        assert!(page.header("content-security-policy").starts_with("sandbox"), "{said}");
        page.header("content-security-policy").lacks("same-origin");
        page.has("x-content-type-options", "nosniff");
    }
    let missing = server.get("/article/b").expect(404);
    missing.has("cache-control", "no-cache").has("content-type", "application/problem+json");
    assert!(missing.header("x-larder-serial").parse::<u64>().is_ok());
    server.get("/article/a/2").expect(404);
    server.get("/article/a/0").expect(404);
    server.get("/article/a?version=1").expect(400);
}

/// A server with `a`, its text, and the tags of its three forms: as it is, as gzip and as zstd.
fn with_forms() -> (TestServer, Vec<u8>, [String; 3]) {
    let server = wiki();
    let body = text(5_000);
    store(&server, "a/0", &body);
    let tags = ["", "gzip", "zstd"].map(|accepted| {
        server.get_with("/article/a", &[("Accept-Encoding", accepted)]).header("etag").to_owned()
    });
    (server, body, tags)
}

#[test]
fn every_form_has_its_tag() {
    let (server, body, tags) = with_forms();
    assert_eq!(tags.iter().collect::<BTreeSet<_>>().len(), 3, "{tags:?}");
    let rows = [
        ("", 0),
        ("gzip", 1),
        ("gzip, deflate, br", 1),
        ("gzip, deflate, br, zstd", 2),
        ("br", 0),
        ("gzip;q=0", 0),
    ];
    let zstd = reply::Encoding::Zstd.encode(&body.clone().into());
    each(rows, |(accepted, form)| {
        for target in ["/article/a", "/article/a", "/article/a/1"] {
            let response = server.get_with(target, &[("Accept-Encoding", accepted)]);
            response.has("content-encoding", ["", "gzip", "zstd"][form]).has("etag", &tags[form]);
            match form {
                1 => assert_eq!(gunzip(&response.body), body, "{accepted}"),
                2 => assert_eq!(response.body, zstd, "{accepted}"),
                _ => assert_eq!(response.body, body, "{accepted}"),
            }
        }
    });
}

#[test]
fn each_tag_confirms_each_form() {
    let (server, _, tags) = with_forms();
    for (target, varies_by) in
        [("/article/a", "Accept, Accept-Encoding"), ("/article/a/1", "Accept-Encoding")]
    {
        for (own, accepted) in ["", "gzip", "zstd"].iter().enumerate() {
            each(&tags, |tag| {
                let headers = [("If-None-Match", tag.as_str()), ("Accept-Encoding", *accepted)];
                let response = server.get_with(target, &headers).expect(304);
                response.is("").has("etag", &tags[own]).has("vary", varies_by);
                assert_eq!(response.find("content-encoding"), None);
            });
        }
    }
}

#[test]
fn what_does_not_become_shorter_is_sent_as_it_is() {
    let server = wiki();
    store(&server, "noise/0", &noise(5_000));
    store(&server, "short/0", b"short");
    for target in ["/article/noise", "/article/short"] {
        let response = server.get_with(target, &[("Accept-Encoding", "gzip, zstd")]);
        assert_eq!(response.find("content-encoding"), None);
        response.has("vary", "Accept");
        let version = server.get_with(&format!("{target}/1"), &[("Accept-Encoding", "gzip")]);
        assert_eq!(version.find("vary"), None);
    }
}

#[test]
fn conditions() {
    for server in both(|server| _ = store(server, "a/0", &text(3_000))) {
        let first = server.get("/article/a");
        let (tag, date) =
            (first.header("etag").to_owned(), first.header("last-modified").to_owned());
        let check = |headers: &[(&str, &str)], expected: u16| {
            let response = server.get_with("/article/a", headers).expect(expected);
            response.has("x-article-version", "1");
            assert!(expected == 200 || response.body.is_empty());
        };
        check(&[("If-None-Match", &tag)], 304);
        check(&[("If-None-Match", &format!("\"x\", W/{tag}"))], 304);
        check(&[("If-None-Match", "\"x\""), ("If-None-Match", &tag)], 304);
        check(&[("If-None-Match", "*")], 304);
        check(&[("If-None-Match", "\"1-0000000000000000\"")], 200);
        check(&[("If-Modified-Since", &date)], 304);
        check(&[("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")], 200);
        check(&[("If-Modified-Since", "nonsense")], 200);
        check(&[("If-Modified-Since", &date), ("If-None-Match", "\"x\"")], 200);
        check(
            &[("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"), ("If-None-Match", &tag)],
            304,
        );
        store(&server, "a/1", &text(3_000));
        let again = server.get_with("/article/a", &[("If-None-Match", &tag)]);
        assert_eq!(
            (again.status, again.header("x-article-version")),
            (200, "2"),
            "the same text again"
        );
    }
}

/// A date names a second, in which there may have been another text.
#[test]
fn a_date_counts_for_the_only_revision_of_its_second() {
    let server = wiki();
    let date = |target: &str| server.get(target).header("last-modified").to_owned();
    let name = (0..).map(|number| format!("a{number}-x")).find(|name| {
        store(&server, &format!("{name}/0"), b"one");
        store(&server, &format!("{name}/1"), b"two");
        date(&format!("/article/{name}/1")) == date(&format!("/article/{name}/2"))
    });
    let name = name.expect("two writes in one second");
    let (latest, first) = (format!("/article/{name}"), format!("/article/{name}/1"));
    let date = date(&latest);
    let since = [("If-Modified-Since", date.as_str())];
    let part = [("Range", "bytes=0-0"), ("If-Range", date.as_str())];
    let check = |target: &str, headers: &[(&str, &str)], status: u16, body: &str| {
        server.get_with(target, headers).expect(status).is(body);
    };
    check(&latest, &since, 200, "two");
    check(&latest, &part, 200, "two");
    let tag = server.get(&latest).header("etag").to_owned();
    check(&latest, &[("Range", "bytes=0-0"), ("If-Range", &tag)], 206, "t");
    check(&latest, &[since[0], ("If-None-Match", &tag)], 304, "");
    // For a resource that never changes, any date decides.
    check(&first, &since, 304, "");
    check(&first, &part, 206, "o");
    // The next text of a later second is told by its date again.
    let is_later = || server.root().get(&latest).header("date") != date;
    crate::wait_until("the next second", is_later);
    store(&server, &format!("{name}/2"), b"three");
    let date = server.get(&latest).header("last-modified").to_owned();
    check(&latest, &[("If-Modified-Since", &date)], 304, "");
    check(&latest, &[("Range", "bytes=0-0"), ("If-Range", &date)], 206, "t");
}

#[test]
fn head_is_get_without_the_body() {
    for server in both(|server| {
        store(server, "a/0", &text(5_000));
        store(server, "empty/0", b"");
        server.root().post("/article/gone/0", "x");
        server.root().delete("/article/gone/1");
    }) {
        for target in [
            "/article/a",
            "/article/a/1",
            "/article/empty",
            "/article/gone",
            "/article/none",
            "/article/a/history",
            "/article/a/diff",
            "/articles",
            "/articles?q=x",
        ] {
            // Ranges are for GET alone (RFC 9110, 14.2).
            let (gzip, range) = ([("Accept-Encoding", "gzip")], [("Range", "bytes=1-10")]);
            for (headers, of_get) in [(&[][..], &[][..]), (&gzip, &gzip), (&range, &[])] {
                let mut got = server.get_with(target, of_get);
                let mut head = server.client.send("HEAD", target, headers, b"");
                for response in [&mut got, &mut head] {
                    response.headers.retain(|(name, _)| name != "date");
                    response.headers.sort();
                }
                assert_eq!(
                    (got.status, &got.headers),
                    (head.status, &head.headers),
                    "{target} {headers:?}"
                );
            }
        }
    }
}

#[test]
fn ranges() {
    let body = text(300_000);
    for server in both(|server| _ = store(server, "a/0", &body)) {
        let tag = server.get("/article/a").header("etag").to_owned();
        let (length, tag) = (body.len(), tag.as_str());
        let gzip_tag = format!("{}-gz\"", tag.trim_end_matches('"'));
        let rows = [
            (&[][..], None),
            (&[("Range", "bytes=0-0")], Some((0, 1))),
            (&[("Range", "bytes=1000-199999")], Some((1_000, 200_000))),
            (&[("Range", "bytes=299990-")], Some((299_990, length))),
            (&[("Range", "bytes=-7")], Some((length - 7, length))),
            (&[("Range", "bytes=299990-999999999")], Some((299_990, length))),
            (&[("Range", "bytes=5-9"), ("Accept-Encoding", "gzip")], Some((5, 10))),
            (&[("Range", "bytes=5-9"), ("If-Range", tag)], Some((5, 10))),
            (&[("Range", "bytes=5-9"), ("If-Range", "\"other\"")], None),
            (&[("Range", "bytes=5-9"), ("If-Range", &*gzip_tag)], None),
            (&[("Range", "bytes=0-1,5-6")], None),
            (&[("Range", "nonsense")], None),
        ];
        each(rows, |(headers, expected)| {
            for target in ["/article/a", "/article/a/1"] {
                let response = server.get_with(target, headers);
                let (start, end) = expected.unwrap_or((0, length));
                response.check_status(if expected.is_some() { 206 } else { 200 });
                let found = response.body.len();
                assert!(response.body == body[start..end], "{headers:?}: {found} bytes");
                let range = format!("bytes {start}-{}/{length}", end.saturating_sub(1));
                response.has("content-range", expected.map_or("", |_| &*range));
                assert_eq!(response.find("content-encoding"), None);
            }
        });
        for range in ["bytes=300000-", "bytes=999999-"] {
            server
                .get_with("/article/a", &[("Range", range)])
                .expect(416)
                .has("content-range", "bytes */300000");
        }
        server
            .get_with("/article/a", &[("Range", "bytes=5-9"), ("If-None-Match", tag)])
            .expect(304);
    }
}

#[test]
fn nothing_is_something() {
    for server in both(|server| _ = store(server, "a/0", b"")) {
        for _ in 0..2 {
            let response = server.get("/article/a");
            assert_eq!((response.status, response.body.len()), (200, 0));
            response.has("content-length", "0");
        }
        server.get_with("/article/a", &[("Range", "bytes=0-")]).expect(416);
    }
}

/// More than memory keeps: read in pieces from the store.
#[test]
fn a_content_that_memory_does_not_keep_is_streamed() {
    let server = wiki_with(|config| config.article.memory_bytes_max = 1 << 20);
    let body = noise(3 << 20);
    assert!(!server.app.articles.contents.keeps(body.len() as u64));
    store(&server, "a/0", &body);
    for _ in 0..2 {
        let response = server.get_with("/article/a", &[("Accept-Encoding", "gzip")]);
        assert_eq!((response.status, response.find("content-encoding")), (200, None));
        assert!(response.body == body);
        response.has("content-length", body.len());
    }
    let response = server.get_with("/article/a", &[("Range", "bytes=2000000-2999999")]);
    assert!(response.body == body[2_000_000..3_000_000]);
    assert_eq!(server.app.articles.contents.memory_bytes(), 0);
}
