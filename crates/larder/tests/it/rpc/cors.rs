//! CORS: a browser's questions before a page of another site may read an answer.

use crate::asking::Says as _;
use crate::server::small;

#[track_caller]
fn check(target: &str) {
    let response = small()
        .anybody()
        .with("Origin", "https://example.org")
        .with("Access-Control-Request-Method", "POST")
        .with("Access-Control-Request-Headers", "content-type")
        .send("OPTIONS", target, ())
        .expect(204);
    response.has("access-control-allow-origin", "*");
    response
        .has("access-control-allow-methods", "GET, HEAD, POST, OPTIONS")
        .has("allow", "GET, HEAD, POST, OPTIONS");
    // `*` covers no header in requests with credentials, so the one that matters is named.
    response
        .has("access-control-allow-headers", "*, Content-Type")
        .has("access-control-max-age", "86400");
}

#[test]
fn a_preflight_allows_everything() {
    for target in [
        "/rpc",
        "/rpc/",
        "/rpc.php",
        "/rpc/v5/info",
        "/rpc/v5/search/x?by=name",
        "/api",
        "/api/v6/info",
    ] {
        check(target);
    }
}

#[test]
fn answers_and_errors_may_be_read_by_any_page() {
    for target in
        ["/rpc/v5/info/attest", "/rpc?v=9", "/rpc/x", "/packages.gz", "/packages.gz.sha256"]
    {
        let response = small().client.get_with(target, &[("Origin", "https://example.org")]);
        response.has("access-control-allow-origin", "*");
        assert_eq!(response.find("access-control-allow-credentials"), None, "{target}");
    }
    let response =
        small().client.get_with("/rpc/v5/info/attest", &[("Origin", "https://example.org")]);
    let exposed = response.header("access-control-expose-headers");
    exposed.says(["ETag", "Retry-After", "RateLimit-Remaining"]);
}
