//! The admin listener: goaurrpc's jobs and settings, under a key.

use serde_json::json;

use crate::asking::each;
use crate::catalogue;
use crate::client::Response;
use crate::server::{KEY, TestServer, with_key};

fn server() -> TestServer {
    TestServer::serving_with(&catalogue::small(), with_key)
}

#[track_caller]
fn check(server: &TestServer, method: &str, target: &str, status: u16, text: &str) {
    server.admin(method, target).expect(status).is(text).has("cache-control", "no-store");
}

#[test]
fn without_a_key_there_is_no_listener() {
    let server = TestServer::serving(&catalogue::small());
    assert!(server.admin.is_none());
    server.get("/admin/settings").expect(404);
}

#[test]
fn without_the_right_key_there_is_nothing() {
    let server = server();
    let admin = server.admin.expect("a listener");
    let longer = format!("{KEY}x");
    let given: [&[(&str, &str)]; 6] = [
        &[],
        &[("APIKey", "")],
        &[("APIKey", "change-me")],
        &[("APIKey", &longer)],
        &[("APIKey", &KEY[1..])],
        &[("Authorization", KEY)],
    ];
    for headers in given {
        for (method, target) in [
            ("GET", "/admin/settings"),
            ("GET", "/admin/run-job/reload-data"),
            ("POST", "/admin/settings/max-results?value=1"),
        ] {
            admin.send(method, target, headers, b"").expect(401).is("Unauthorized");
        }
    }
    // This one needs none.
    admin.get("/admin/openapi.json").expect(200);
    server.admin("GET", "/admin/settings").expect(200);
    assert_eq!(server.get("/rpc/v5/info/attest").names(), "attest", "nothing was changed");
}

#[test]
fn jobs() {
    let server = server();
    for method in ["GET", "POST"] {
        check(
            &server,
            method,
            "/admin/run-job/reload-data",
            202,
            "Reload skipped. Data has not changed",
        );
        check(
            &server,
            method,
            "/admin/run-job/wipe-cache",
            202,
            "Wiped search-cache (0 entries removed)",
        );
        check(&server, method, "/admin/run-job/cleanup-cache", 202, "Cleaned up search-cache");
        check(&server, method, "/admin/run-job/cleanup-ratelimits", 202, "Cleaned up rate-limits");
        server.get("/rpc/v5/info/attest");
        check(
            &server,
            method,
            "/admin/run-job/wipe-ratelimits",
            202,
            "Wiped rate-limits (1 entries removed)",
        );
        check(&server, method, "/admin/run-job/nonsense", 400, "Job not found");
    }
    server.replace_source(b"[\n{\"ID\": nonsense");
    server
        .admin("POST", "/admin/run-job/reload-data")
        .tells(500, "`DIRECTORY/source.json`: line 2 column 9: expected ident");
    // The watch may have seen the good one before us; then there is nothing left to do.
    server.replace_source(&catalogue::generation(1, 9));
    server.admin("POST", "/admin/run-job/reload-data").expect(202);
    assert_eq!(server.get("/rpc/v5/info/shared-0001").names(), "shared-0001");
}

#[test]
fn settings_under_goaurrpcs_names() {
    let server = server();
    let response = server.admin("GET", "/admin/settings");
    response.has("content-type", "application/json");
    response.lacks(KEY);
    let settings = response.json();
    assert_eq!(
        settings,
        json!({
            "AdminAPIKey": "********", "AurFileLocation": server.source_path().to_str(), "CacheCleanupInterval": 0,
            "CacheExpirationTime": 0, "EnableSearchCache": false, "MaxResults": 5000, "RateLimit": 4000,
            "RateLimitCleanupInterval": 0, "RateLimitTimeWindow": 86400, "RefreshInterval": 300,
        })
    );
    assert_eq!(server.admin("GET", "/admin/settings/").json(), settings);
    for (name, title) in [
        ("aur-file-location", "AurFileLocation"),
        ("max-results", "MaxResults"),
        ("refresh-interval", "RefreshInterval"),
        ("rate-limit", "RateLimit"),
        ("rate-limit-cleanup-interval", "RateLimitCleanupInterval"),
        ("rate-limit-time-window", "RateLimitTimeWindow"),
        ("cache-cleanup-interval", "CacheCleanupInterval"),
        ("cache-expiration-time", "CacheExpirationTime"),
        ("enable-search-cache", "EnableSearchCache"),
    ] {
        let target = format!("/admin/settings/{name}");
        let value =
            settings[title].as_str().map_or_else(|| settings[title].to_string(), str::to_owned);
        check(&server, "GET", &target, 200, &format!("Current setting for '{title}' is '{value}'"));
        check(&server, "POST", &target, 500, "Need new value: ?value=...");
    }
    check(&server, "GET", "/admin/settings/admin-api-key", 400, "Setting not found");
    check(&server, "POST", "/admin/settings/nonsense?value=1", 400, "Setting not found");
}

/// Sets a setting.
#[track_caller]
fn set(server: &TestServer, name: &str, value: &str) -> Response {
    server.admin("POST", &format!("/admin/settings/{name}?value={value}"))
}

#[test]
fn the_bound_on_results_takes_effect() {
    let server = server();
    let target = "/admin/settings/max-results?value=1";
    check(&server, "POST", target, 202, "Changed 'MaxResults' from '5000' to '1'");
    assert_eq!(server.get("/rpc/v5/search/attest").names(), "error: Too many package results.");
    set(&server, "max-results", "2").expect(202);
    assert_eq!(server.get("/rpc/v5/search/attest?by=name").names(), "attest attest-git");
    assert_eq!(server.admin("GET", "/admin/settings").json()["MaxResults"], 2);
}

#[test]
fn the_rate_limit_takes_effect() {
    let server = server();
    let target = "/admin/settings/rate-limit?value=1";
    check(&server, "POST", target, 202, "Changed 'RateLimit' from '4000' to '1'");
    server.get("/rpc/v5/info/attest").expect(200);
    server.get("/rpc/v5/info/attest").expect(429);
    set(&server, "rate-limit", "0").expect(202);
    assert_eq!(server.get("/rpc/v5/info/attest").find("ratelimit-limit"), None);
    set(&server, "rate-limit", "7").expect(202);
    set(&server, "rate-limit-time-window", "60").expect(202);
    server.get("/rpc/v5/info/attest").has("ratelimit-policy", "7;w=60");
}

#[test]
fn the_interval_of_refreshes_is_kept() {
    let server = server();
    set(&server, "refresh-interval", "17").expect(202);
    let says = "Current setting for 'RefreshInterval' is '17'";
    check(&server, "GET", "/admin/settings/refresh-interval", 200, says);
}

#[test]
fn values_that_are_refused_change_nothing() {
    let server = server();
    let before = server.admin("GET", "/admin/settings").json();
    each(["max-results", "refresh-interval", "rate-limit-time-window"], |name| {
        let target = format!("/admin/settings/{name}?value=0");
        check(&server, "POST", &target, 500, "Value can not be 0");
    });
    each(
        [
            ("max-results", "many"),
            ("rate-limit", "-1"),
            ("rate-limit", "4294967296"),
            ("max-results", ""),
        ],
        |(name, value)| {
            set(&server, name, value)
                .tells(500, &format!("'{value}' is not a whole number from 0 to 4294967295"));
        },
    );
    each(
        [
            "aur-file-location",
            "rate-limit-cleanup-interval",
            "cache-cleanup-interval",
            "cache-expiration-time",
            "enable-search-cache",
        ],
        |name| _ = set(&server, name, "1").expect(500),
    );
    assert_eq!(server.admin("GET", "/admin/settings").json(), before);
}

#[test]
fn its_requests_are_counted_apart() {
    let server = server();
    server.admin("GET", "/admin/settings");
    assert_eq!(server.metric(r#"larder_http_requests_total{status="200",surface="admin"}"#), 1.0);
}
