//! How many questions one client may ask.

use crate::catalogue;
use crate::client::Response;
use crate::server::TestServer;

const QUESTION: &str = "/rpc?v=5&type=info&arg=attest";

fn limited(limit: u32) -> TestServer {
    TestServer::serving_with(&catalogue::small(), |config| config.aur.rate_limit = limit)
}

fn ask(server: &TestServer, client: &str) -> Response {
    server.client.get_with(QUESTION, &[("X-Forwarded-For", client)])
}

#[test]
fn the_request_after_the_last_is_refused() {
    let server = limited(3);
    for remaining in ["2", "1", "0"] {
        let response = server.get(QUESTION).expect(200);
        response
            .has("ratelimit-limit", "3")
            .has("ratelimit-remaining", remaining)
            .has("ratelimit-policy", "3;w=86400");
        assert_eq!(response.find("retry-after"), None);
    }
    for (target, version) in [
        (QUESTION, "5"),
        ("/rpc/v5/info/attest", "5"),
        ("/rpc?type=x", "null"),
        ("/api/v6/info", "6"),
    ] {
        let response = server.get(target).expect(429);
        response.has("content-type", "application/json");
        assert_eq!(response.find("etag"), None);
        response.has("ratelimit-remaining", "0");
        let seconds: u32 = response.header("retry-after").parse().expect("seconds");
        assert!((1..=86_400).contains(&seconds), "{seconds}");
        response.has("ratelimit-reset", response.header("retry-after"));
        assert_eq!(
            response.text(),
            format!(
                "{{\"version\":{version},\"results\":[],\"resultcount\":0,\"type\":\"error\",\"error\":\"Rate limit reached\"}}"
            ),
            "{target}"
        );
    }
    server.form("/rpc", "v=5&type=info&arg=attest").expect(429);
    assert_eq!(server.metric("rpc_requests_rate_limited"), 5.0);
    assert_eq!(server.metric("larder_rate_limit_clients"), 1.0);
}

#[test]
fn what_is_no_question_is_not_counted() {
    let server = limited(2);
    for target in [
        "/rpc",
        "/rpc/",
        "/api",
        "/docs",
        "/rpc/swagger",
        "/openapi.json",
        "/rpc/stats",
        "/",
        "/readyz",
        "/metrics",
        "/packages.gz",
        "/rpc/v5/info/attest/",
        "/rpc/x",
    ] {
        let response = server.get(target);
        assert!(
            response.status < 429 && response.find("ratelimit-remaining").is_none(),
            "{target}"
        );
    }
    server.anybody().send("OPTIONS", "/rpc", ()).expect(204);
    assert_eq!(
        server.get("/rpc?v=5").header("ratelimit-remaining"),
        "1",
        "a refused question is one"
    );
    server.get(QUESTION).has("ratelimit-remaining", "0");
    server.get(QUESTION).expect(429);
    // Documentation stays.
    server.get("/rpc").expect(200);
}

#[test]
fn clients_behind_a_trusted_proxy_are_told_apart() {
    let server = limited(1);
    let check =
        |client: &str, status: u16| assert_eq!(ask(&server, client).status, status, "{client}");
    check("192.0.2.1", 200);
    check("192.0.2.1", 429);
    check("192.0.2.2", 200);
    // The client wrote everything to the left of the proxy's entry.
    check("198.51.100.7, 192.0.2.2", 429);
    // A /64 counts as one client.
    check("2001:db8:1:2::1", 200);
    check("2001:db8:1:2:ffff::99", 429);
    check("2001:db8:1:3::1", 200);
}

/// Whatever else a proxy passes on, the client has written it.
#[test]
fn one_header_names_the_client() {
    let server = limited(1);
    ask(&server, "192.0.2.1").expect(200);
    for (name, value) in [
        ("X-Real-IP", "192.0.2.9"),
        ("Forwarded", "for=192.0.2.9"),
        ("X-Client-IP", "192.0.2.9"),
        ("True-Client-IP", "192.0.2.9"),
        ("X-Forwarded-For", "192.0.2.9, 192.0.2.1"),
    ] {
        let headers = [(name, value), ("X-Forwarded-For", "192.0.2.1")];
        server.client.get_with(QUESTION, &headers).expect(429);
    }
    let server = TestServer::serving_with(&catalogue::small(), |config| {
        config.aur.rate_limit = 1;
        config.client_address_header = "X-Real-IP".parse().expect("a name");
    });
    let headers = |client| [("X-Forwarded-For", "192.0.2.9"), ("X-Real-IP", client)];
    let ask = |client| server.client.get_with(QUESTION, &headers(client)).status;
    assert_eq!((ask("192.0.2.1"), ask("192.0.2.1"), ask("192.0.2.2")), (200, 429, 200));
}

#[test]
fn nobody_else_is_believed() {
    let server = TestServer::serving_with(&catalogue::small(), |config| {
        config.aur.rate_limit = 1;
        config.trusted_proxies.clear();
    });
    ask(&server, "192.0.2.1").expect(200);
    ask(&server, "192.0.2.2").expect(429);
}

#[test]
fn zero_is_no_limit() {
    let server = limited(0);
    for _ in 0..20 {
        server.get(QUESTION).expect(200);
    }
    assert_eq!(server.metric("larder_rate_limit_clients"), 0.0);
}

/// Questions of faur's clients count like those of `/rpc`, and are refused like them.
#[test]
fn what_aura_asks_is_a_question() {
    let server = limited(2);
    let question = "/packages?names=attest";
    server.get(question).expect(200).has("ratelimit-remaining", "1");
    server.get("/packages?names=attest&by=name").expect(400).has("ratelimit-remaining", "0");
    let headers = [("Origin", "https://example.org")];
    let refused = server.client.get_with(question, &headers).expect(429);
    refused
        .has("ratelimit-remaining", "0")
        .has("retry-after", refused.header("ratelimit-reset"))
        .has("access-control-allow-origin", "*");
    server.get(QUESTION).expect(429);
    // Pages are no questions.
    server.get("/packages?K=attest").expect(200);
    assert_eq!(server.metric("rpc_requests_rate_limited"), 2.0);
}

/// Another thread encodes a long answer; the question still counts once.
#[test]
fn a_long_answer_is_counted_once() {
    let server = TestServer::serving_with(&catalogue::generation(1, 600), |config| {
        config.aur.rate_limit = 10;
    });
    let question = "/rpc?v=5&type=search&by=name&arg=shared";
    let plain = server.get(question);
    assert!(plain.body.len() > 64 << 10, "{} bytes are not long", plain.body.len());
    for remaining in ["8", "7"] {
        let answer = server.client.get_with(question, &[("Accept-Encoding", "gzip")]);
        answer.has("content-encoding", "gzip").has("ratelimit-remaining", remaining);
    }
    let answered = r#"rpc_requests{by="name",method="GET",type="search"}"#;
    assert_eq!(server.metric(answered), 3.0);
    assert_eq!(server.metric("rpc_request_duration_seconds_count"), 3.0);
}
