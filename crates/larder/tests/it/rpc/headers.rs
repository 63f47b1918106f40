//! Which headers each kind of response has: these and no others.

use crate::asking::each;
use crate::client::Response;
use crate::server::{TestServer, small};

const ALWAYS: &str = "connection content-length date";
const OPEN: &str = "access-control-allow-origin";
const DEVPI: &str = "x-devpi-api-version x-devpi-master-uuid x-devpi-primary-uuid x-devpi-serial \
                     x-devpi-server-version x-devpi-uuid x-larder-serial";
const LIMITED: &str = "ratelimit-limit ratelimit-policy ratelimit-remaining ratelimit-reset";
const TYPED: &str = "content-type x-content-type-options";
const FINISHED: &str = "content-type vary x-content-type-options";

#[track_caller]
fn check(what: &str, response: &Response, status: u16, expected: &[&str]) {
    assert_eq!(response.status, status, "{what}: {}", response.text());
    let mut expected: Vec<&str> = expected.iter().flat_map(|names| names.split(' ')).collect();
    expected.sort_unstable();
    // Only pages of other sites need this: `cors` tests it.
    let found =
        response.header_names().into_iter().filter(|name| *name != "access-control-expose-headers");
    assert_eq!(found.collect::<Vec<_>>(), expected, "{what}");
}

#[test]
fn each_kind_of_response_has_its_headers() {
    let server = small();
    let get = |target: &str| server.get(target);
    let with = |target: &str, header: (&str, &str)| server.client.get_with(target, &[header]);
    let page = "cache-control etag content-security-policy referrer-policy x-frame-options";
    let preflight =
        "allow access-control-allow-headers access-control-allow-methods access-control-max-age";
    let file = "etag last-modified accept-ranges cache-control access-control-allow-origin";
    let sum = "etag last-modified cache-control access-control-allow-origin";
    let info = "/rpc/v5/info/attest";
    let jsonp = "/rpc?v=5&type=suggest&arg=a&callback=f";
    let bad_callback = "/rpc?v=5&type=suggest&callback=!";
    let answer = [ALWAYS, OPEN, LIMITED, FINISHED, "etag"];
    let encoded = [ALWAYS, OPEN, LIMITED, FINISHED, "etag content-encoding"];
    let rows = [
        ("answer", get(info), 200, &answer[..]),
        ("refusal", get("/rpc?v=5&type=x"), 200, &answer),
        ("jsonp", get(jsonp), 200, &answer),
        ("bad callback", get(bad_callback), 200, &answer[..4]),
        ("version 6", get("/api/v6/info"), 400, &answer),
        ("encoded", with(info, ("Accept-Encoding", "gzip")), 200, &encoded),
        (
            "known",
            with(info, ("If-None-Match", "*")),
            304,
            &["connection date", OPEN, LIMITED, FINISHED, "etag"],
        ),
        ("documentation", get("/rpc"), 200, &[ALWAYS, OPEN, FINISHED, page]),
        ("page", get("/docs"), 200, &[ALWAYS, FINISHED, page, "x-larder-serial"]),
        ("redirect", get("/rpc/v5/info/attest/"), 307, &[ALWAYS, OPEN, "location"]),
        // Browsers get a page instead.
        ("missing", get("/rpc/x"), 404, &[ALWAYS, OPEN, FINISHED]),
        ("missing", get("/x"), 404, &[ALWAYS, DEVPI, FINISHED]),
        ("method", server.anybody().put("/rpc", ()), 405, &[ALWAYS, OPEN, FINISHED, "allow"]),
        (
            "preflight",
            server.anybody().send("OPTIONS", "/rpc", ()),
            204,
            &["connection date", OPEN, preflight],
        ),
        ("health", get("/readyz"), 200, &[ALWAYS, TYPED, "cache-control"]),
        ("version", get("/version"), 200, &[ALWAYS, TYPED]),
        ("metrics", get("/metrics"), 200, &[ALWAYS, TYPED]),
        ("file", get("/packages.gz"), 200, &[ALWAYS, TYPED, file]),
        (
            "part",
            with("/packages.gz", ("Range", "bytes=0-3")),
            206,
            &[ALWAYS, TYPED, file, "content-range"],
        ),
        ("digest", get("/packages.gz.sha256"), 200, &[ALWAYS, TYPED, sum]),
    ];
    each(rows, |(what, response, status, names)| check(what, &response, status, names));
}

#[test]
fn without_a_limit_nothing_is_said_of_it() {
    let server =
        TestServer::serving_with(&crate::catalogue::small(), |config| config.aur.rate_limit = 0);
    check("answer", &server.get("/rpc/v5/info/attest"), 200, &[ALWAYS, OPEN, FINISHED, "etag"]);
}

#[test]
fn content_types() {
    let rows = [
        ("/rpc/v5/info/attest", "application/json"),
        ("/rpc?v=5&type=info&arg=attest&callback=f", "text/javascript"),
        ("/rpc/v5/opensearch-suggest/attest", "application/x-suggestions+json"),
        ("/rpc", "text/html; charset=utf-8"),
        ("/openapi.json", "application/json"),
        ("/packages.gz", "application/gzip"),
        ("/packages.gz.sha256", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/x", "application/problem+json"),
    ];
    each(rows, |(target, expected)| {
        small().get(target).has("content-type", expected);
    });
}

/// The header of an answer must not depend on whether its body is sent.
#[test]
fn head_is_get_without_the_body() {
    let server = small();
    for target in [
        "/",
        "/docs",
        "/rpc",
        "/rpc?v=5&type=info&arg=attest",
        "/rpc/v5/search/attest",
        "/rpc/v5/suggest/a",
        "/rpc?v=5",
        "/api/v6/info",
        "/rpc/v5/info/attest/",
        "/rpc/x",
        "/x",
        "/openapi.json",
        "/docs/openapi-pages.json",
        "/rpc/stats",
        "/robots.txt",
        "/favicon.ico",
        "/livez",
        "/readyz",
        "/readyz?verbose",
        "/version",
        "/packages.gz",
        "/packages.gz.sha256",
        "/packages-meta-ext-v1.json.gz",
        "/packages-meta-ext-v1.json.gz.sha256",
    ] {
        for accepted in ["identity", "gzip", "zstd"] {
            let ask = |method: &str| {
                let mut response =
                    server.anybody().with("Accept-Encoding", accepted).send(method, target, ());
                // The clock and the count move on.
                let moving = ["date", "ratelimit-remaining", "ratelimit-reset"];
                response.headers.retain(|(name, _)| !moving.contains(&name.as_str()));
                response.headers.sort();
                response
            };
            let (get, head) = (ask("GET"), ask("HEAD"));
            assert_eq!(head.status, get.status, "{target}");
            assert_eq!(head.headers, get.headers, "{target} {accepted}");
        }
    }
}
