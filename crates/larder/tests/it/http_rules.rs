//! What HTTP asks of every endpoint alike: conditions, ranges, encodings of requests, spellings of paths, and URLs below a path.

use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::catalogue;
use crate::python::{path, sdist};
use crate::server::{ROOT, TestServer};

const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// Every kind of body, and whether parts of it are sent.
const BODIES: [(&str, bool); 20] = [
    ("/packages.gz", true),
    ("/packages-meta-ext-v1.json.gz", true),
    ("/users.zst", true),
    ("/packages.gz.sha256", false),
    ("/packages-meta-ext-v1.json.zst.sha256", false),
    ("/rpc?v=5&type=info&arg=attest", false),
    ("/rpc/v5/search/attest", false),
    ("/packages?names=attest", false),
    ("/packages/attest", false),
    ("/rss/", false),
    ("/docs", false),
    ("/openapi.json", false),
    ("/articles", false),
    ("/article/note", true),
    ("/article/note/1", true),
    ("/article/note/history", false),
    ("/+attachments/note/a.txt", true),
    ("/+attachments/note/", false),
    ("/root/dev/+simple/p/", false),
    ("FILE", true),
];

fn server() -> (TestServer, String) {
    let server = TestServer::serving(&catalogue::small());
    server.root().write("note/0", "twelve bytes").expect(201);
    server.root().typed("text/plain").put("/+attachments/note/a.txt", "a file").expect(201);
    server.root().put("/root/dev", json!({})).expect(200);
    server.root().release("root/dev", "p-1.0.zip");
    (server, path("root/dev", "p-1.0.zip", &sdist("p-1.0.zip")))
}

#[test]
fn conditions_hold_for_every_kind_of_body() {
    let (server, file) = server();
    for (target, _) in BODIES {
        let target = if target == "FILE" { &file } else { target };
        let first = server.get(target).expect(200);
        let (etag, date) = (first.header("etag"), first.header("last-modified"));
        assert!(etag.starts_with('"'), "{target}: {etag}");
        for method in ["GET", "HEAD"] {
            let check = |name: &str, value: &str, expected: u16| {
                server.client.send(method, target, &[(name, value)], b"").expect(expected);
            };
            check("If-None-Match", etag, 304);
            check("If-None-Match", &format!("\"x\", W/{etag}"), 304);
            check("If-None-Match", "\"x\"", 200);
            check("If-Match", etag, 200);
            check("If-Match", "*", 200);
            check("If-Match", "\"x\"", 412);
            check("If-Match", &format!("W/{etag}"), 412);
            let is_dated = !date.is_empty();
            check("If-Unmodified-Since", LONG_AGO, if is_dated { 412 } else { 200 });
            if is_dated {
                check("If-Unmodified-Since", date, 200);
                check("If-Modified-Since", date, 304);
                check("If-Modified-Since", LONG_AGO, 200);
            }
        }
    }
}

#[test]
fn a_range_may_be_longer_than_the_body() {
    let (server, file) = server();
    for (target, has_parts) in BODIES {
        let target = if target == "FILE" { &file } else { target };
        let whole = server.get(target).body;
        let size = whole.len();
        for (range, part) in [
            ("bytes=-99999999".to_owned(), Some(0..size)),
            (format!("bytes=-{size}"), Some(0..size)),
            ("BYTES=-1".to_owned(), Some(size - 1..size)),
            ("bytes=1-99999999999999999999999".to_owned(), Some(1..size)),
            (format!("bytes={size}-"), None),
            ("bytes=-0".to_owned(), None),
        ] {
            let response = server.client.get_with(target, &[("Range", &range)]);
            let expected = match part {
                _ if !has_parts => (200, String::new()),
                Some(part) => {
                    assert_eq!(response.body, whole[part.clone()], "{target} {range}");
                    (206, format!("bytes {}-{}/{size}", part.start, part.end - 1))
                }
                None => (416, format!("bytes */{size}")),
            };
            let found = (response.status, response.header("content-range").to_owned());
            assert_eq!(found, expected, "{target} {range}");
        }
    }
}

/// A part of another version than the client has is no use to it.
#[test]
fn a_part_of_another_version_is_not_sent() {
    let (server, _) = server();
    let old = server.get("/article/note");
    server.root().typed("text/plain").post("/article/note/1", "TWELVE BYTES").expect(201);
    let ask = [("If-Match", old.header("etag")), ("Range", "bytes=6-")];
    server
        .client
        .get_with("/article/note", &ask)
        .tells(412, "what is here now is not what `if-match` expects");
}

#[test]
fn nothing_was_modified_later_than_now() {
    let server = TestServer::serving(&catalogue::small());
    let ahead = SystemTime::now() + Duration::from_secs(1_000_000);
    let file = std::fs::File::options().write(true).open(server.source_path()).expect("the dump");
    file.set_modified(ahead).expect("a time");
    crate::wait_until("the dump of the future", || {
        let published = server.app.aur.snapshot();
        published.is_some_and(|it| it.modified_at > SystemTime::now() && it.kept.get().is_some())
    });
    for target in ["/packages.gz", "/packages-meta-ext-v1.json.gz", "/packages.gz.sha256"] {
        let response = server.get(target);
        let date = httpdate::parse_http_date(response.header("last-modified"));
        assert!(date.is_ok_and(|date| date <= SystemTime::now()), "{target}: {}", response.text());
    }
}

#[test]
fn bodies_in_an_encoding_are_refused_everywhere() {
    let (server, _) = server();
    let json = "application/json";
    let form = "application/x-www-form-urlencoded";
    for (method, target, content_type) in [
        ("POST", "/rpc", form),
        ("POST", "/rpc/v5/info", json),
        ("POST", "/actions", json),
        ("POST", "/+login", json),
        ("POST", "/+osv/v1/query", json),
        ("POST", "/+tokens", json),
        ("POST", "/+account/login", form),
        ("POST", "/article/note/1", "text/plain"),
        ("PUT", "/article/note", "text/plain"),
        ("PUT", "/+attachments/note/b.txt", "text/plain"),
        ("PUT", "/root/up", json),
        ("POST", "/root/dev/", "multipart/form-data; boundary=x"),
        ("POST", "/root/dev/+prefetch", json),
    ] {
        for coding in ["gzip", "GZIP", "identity, br"] {
            server
                .root()
                .typed(content_type)
                .with("Content-Encoding", coding)
                .send(method, target, b"\x1f\x8b\x08")
                .expect(415)
                .has("accept-encoding", "identity");
        }
    }
    let response = server
        .anybody()
        .typed(form)
        .with("Content-Encoding", "Identity")
        .post("/rpc", "v=5&type=info&arg=attest");
    assert_eq!(response.names(), "attest");
}

#[test]
fn equal_paths_are_answered_alike() {
    let (server, file) = server();
    for (target, other) in [
        ("/rpc?v=5&type=info&arg=attest", "//rpc?v=5&type=info&arg=attest"),
        ("/rpc?v=5&type=info&arg=attest", "/%72pc?v=5&type=info&arg=attest"),
        ("/rpc/v5/info/attest", "///rpc//v5/info/attest"),
        ("/rpc/v5/info/attest", "/rpc/v5//info/attest"),
        ("/rpc/v5/info/attest", "/rpc/v5/info/%61ttest"),
        ("/packages.gz", "//packages.gz"),
        ("/packages.gz", "/packages%2Egz"),
        ("/packages/attest", "/packages//attest"),
        ("/article/note", "//article/note"),
        ("/article/note", "/article/%6eote"),
        ("/article/note/history", "/article/note/hist%6fry"),
        ("/+attachments/note/", "/%2Battachments/note/"),
        ("/+attachments/note/a.txt", "/%2battachments/note/a%2Etxt"),
        ("/+tokens", "/%2Btokens"),
        ("/+api", "/%2Bapi"),
        ("/root/dev/+simple/p/", "///root/dev//%2Bsimple/p/"),
        (&file, &file.replace('.', "%2E")),
    ] {
        let (plain, spelled) = (server.get(target), server.get(other));
        assert_eq!((spelled.status, spelled.body), (plain.status, plain.body), "{other}");
    }
    let response = server.form("//rpc", "v=5&type=info&arg=attest");
    assert_eq!(response.names(), "attest");
    // In a name a slash is a slash.
    server.get("/article/a//b").expect(400);
}

#[test]
fn a_slash_at_the_end_leads_to_the_page() {
    let (server, _) = server();
    for (target, location) in [
        ("/packages/attest/", "/packages/attest"),
        ("/packages/libstdc%2B%2B5/?x=1", "/packages/libstdc++5?x=1"),
        ("/pkgbase/attest/", "/pkgbase/attest"),
        ("/account/anna/", "/account/anna"),
        ("/rss/modified/", "/rss/modified"),
        ("/atom/modified/", "/atom/modified"),
        ("/status/", "/status"),
        ("/docs/aur/", "/docs/aur"),
    ] {
        for method in ["GET", "HEAD"] {
            server.anybody().send(method, target, ()).expect(307).has("location", location);
        }
        server.get(location).expect(200);
    }
}

#[test]
fn options_are_answered_at_every_path() {
    let (server, _) = server();
    for target in ["*", "/", "/docs", "/packages.gz", "/changes", "/+account/login", "/rpc"] {
        let response = server.anybody().send("OPTIONS", target, ()).expect(204);
        let allow = response.header("allow");
        assert!(allow.starts_with("GET, HEAD") && allow.ends_with("OPTIONS"), "{target}: {allow}");
    }
    // As HAProxy asks.
    server.exchange(b"OPTIONS / HTTP/1.0\r\n\r\n", false).expect(204);
    server.anybody().get("*").expect(400);
}

/// A proxy may remove its prefix from the path or not, and may say it in two ways.
#[test]
fn below_a_path_everything_leads_below_it() {
    let (server, _) = server();
    let outside = ("X-Outside-URL", "http://h.example/pkg");
    for (told, root) in
        [(outside, "http://h.example"), (("X-Forwarded-Prefix", "/pkg/"), "http://127.0.0.1")]
    {
        for prefix in ["", "/pkg"] {
            let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
                let headers = [&[told, ROOT], headers].concat();
                server.client.send(method, &format!("{prefix}{path}"), &headers, body)
            };
            let name = format!("below-{}{}", prefix.len(), told.0.len());
            let article = format!("/article/{name}");
            let other = format!("/article/{name}-other");
            let rename = format!("{article}/1?rename={name}-other");
            let attached = format!("/+attachments/{name}-other/a.txt");
            for (method, path, expected) in [
                ("POST", format!("{article}/0"), format!("{article}/1")),
                ("POST", rename, format!("{other}/2")),
                ("GET", article.clone(), other.clone()),
                ("PUT", attached.clone(), attached),
                ("GET", "/rpc/v5/info/".to_owned(), "/rpc/v5/info".to_owned()),
                ("GET", "/packages/attest/".to_owned(), "/packages/attest".to_owned()),
            ] {
                let body: &[u8] = if method == "GET" { b"" } else { b"x" };
                let response = ask(method, &path, &[("Content-Type", "text/plain")], body);
                let found = response.header("location");
                assert_eq!(found, format!("/pkg{expected}"), "{method} {path} {}", response.text());
            }
            let location = ask("GET", "/root/dev/P", &[("User-Agent", "pip/25")], b"");
            let location = location.header("location").to_owned();
            assert!(
                location.starts_with(root) && location.ends_with("/pkg/root/dev/p"),
                "{location}"
            );
            for path in ["/rpc", "/rpc.php", "/docs/aur", "/docs", "/status", "/", "/articles"] {
                let text = ask("GET", path, &[("Accept", "text/html")], b"").expect(200).text();
                assert!(text.contains("href=\"/pkg/+static/larder-"), "{path}: {text}");
                assert!(!text.contains("href=\"/+static"), "{path}: {text}");
            }
            for path in crate::described::DOCUMENTS {
                let openapi = ask("GET", path, &[], b"").json();
                assert_eq!(openapi["servers"], json!([{"url": "/pkg"}]), "{path}");
            }
        }
        let home = server.client.get_with("/pkg", &[told]);
        assert_eq!((home.status, home.body), (200, server.client.get_with("/", &[told]).body));
    }
    // What begins like the prefix is not below it, and others are not believed.
    server.client.get_with("/pkgx/docs", &[outside]).expect(404);
    let own = server.get("/openapi.json").json();
    assert_eq!(own["servers"], json!([{"url": "/"}]));
    let evil = [("X-Forwarded-Prefix", "//evil.example")];
    server.client.get_with("/docs", &evil).lacks("evil");
}

/// RFC 4287, 4.2.6: a feed reader knows an entry by its identifier, whatever URL it reads.
#[test]
fn identifiers_in_feeds_do_not_depend_on_the_host() {
    let (server, _) = server();
    for target in ["/atom/", "/atom/modified", "/rss/", "/changes.atom?surface=articles"] {
        let identifiers = |host: &str| {
            let text = server.client.get_with(target, &[("X-Outside-URL", host)]).text();
            let parts: Vec<String> = text
                .split(['<', '>'])
                .collect::<Vec<_>>()
                .windows(2)
                .filter(|pair| pair[0] == "id" || pair[0].starts_with("guid "))
                .map(|pair| pair[1].to_owned())
                .collect();
            assert!(!parts.is_empty(), "{target}: {text}");
            parts
        };
        assert_eq!(identifiers("http://a.example"), identifiers("http://b.example"), "{target}");
    }
}

#[test]
fn feeds_say_how_old_they_are() {
    let server = TestServer::serving(&catalogue::small());
    crate::wait_until("a second", || !server.get("/rss/").header("last-modified").is_empty());
    for target in ["/rss/", "/rss/modified", "/atom/", "/atom/modified"] {
        let feed = server.get(target);
        feed.has("cache-control", "public, max-age=300");
        assert!(httpdate::parse_http_date(feed.header("last-modified")).is_ok(), "{target}");
    }
}
