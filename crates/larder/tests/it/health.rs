//! What operators and their machines ask: alive, ready, which version, how many of what.

use crate::catalogue;
use crate::server::{TestServer, small, wait_for};
use crate::wait_until;

#[test]
fn before_the_first_snapshot() {
    let server = TestServer::without_source(|_| ());
    for target in ["/livez", "/healthz"] {
        assert_eq!((server.get(target).status, server.get(target).text()), (200, "ok\n".into()));
    }
    for target in ["/readyz", "/ready", "/readyz?verbose"] {
        let response = server.get(target);
        assert_eq!(response.status, 503, "{target}");
        assert!(
            response.text().contains("no snapshot has been published yet"),
            "{}",
            response.text()
        );
        assert_eq!(response.header("retry-after"), "1");
    }
    wait_until("the reason", || server.get("/readyz").text().contains("no source is configured"));
    for target in ["/rpc/v5/info/attest", "/packages.gz", "/packages-meta-ext-v1.json.gz.sha256"] {
        let response = server.get(target);
        assert_eq!(response.status, 503, "{target}");
        assert_eq!(response.header("content-type"), "application/problem+json");
        assert!(response.header("retry-after").parse::<u32>().is_ok(), "{target}");
    }
    assert_eq!(server.get("/rpc").status, 200, "documentation needs no data");
    assert_eq!(server.get("/rpc/stats").status, 200);
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn ready() {
    let response = small().get("/readyz");
    assert_eq!((response.status, response.text()), (200, "ok\n".into()));
    assert_eq!(response.header("cache-control"), "no-store");
    let verbose = small().get("/readyz?verbose").text();
    assert!(verbose.starts_with("[+] aur: 9 packages from "), "{verbose}");
}

#[test]
fn stopping_is_not_ready() {
    let server = TestServer::serving(&catalogue::small());
    server.app.begin_shutdown();
    let response = server.get("/readyz");
    assert_eq!(response.status, 503);
    assert!(response.text().contains("shutdown"), "{}", response.text());
    assert_eq!(server.get("/livez").status, 200);
    assert_eq!(server.get("/rpc/v5/info/attest").names(), "attest");
}

#[test]
fn a_surface_that_is_switched_off() {
    let server = TestServer::without_source(|config| config.aur.enabled = false);
    server.wait_until_ready();
    let verbose = server.get("/readyz?verbose").text();
    assert!(verbose.starts_with("[+] aur: switched off\n[+] store: serial "), "{verbose}");
    assert_eq!(server.get("/readyz").status, 200);
    for target in ["/rpc", "/rpc/v5/info/attest", "/api", "/packages.gz"] {
        assert_eq!(server.get(target).status, 404, "{target}");
    }
    let reload = wait_for(server.app.reload());
    assert!(reload.is_err(), "{reload:?}");
}

#[test]
fn version() {
    let version = small().get("/version").json();
    assert_eq!(version["name"], "larder");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn metrics_have_goaurrpcs_names_and_move() {
    let server = TestServer::serving(&catalogue::small());
    let check = |name: &str, ask: &dyn Fn()| {
        let before = server.metric(name);
        ask();
        assert_eq!(server.metric(name), before + 1.0, "{name}");
    };
    let get = |target: &'static str| move |server: &TestServer| drop(server.get(target));
    for (name, target) in [
        (r#"rpc_requests{by="name-desc",method="GET",type="search"}"#, "/rpc/v5/search/attest"),
        (
            r#"rpc_requests{by="provides",method="GET",type="search"}"#,
            "/rpc/v5/search/attest?by=provides",
        ),
        (r#"rpc_requests_error{error="Query arg too small."}"#, "/rpc/v5/search/a"),
        (r#"rpc_requests_error{error="Please specify an API version."}"#, "/rpc?x"),
        (r#"rpc_response_size_bytes_count{type="suggest"}"#, "/rpc/v5/suggest/a"),
        (r#"rpc_response_size_bytes_bucket{type="suggest",le="500"}"#, "/rpc/v5/suggest/a"),
        ("rpc_request_duration_seconds_count", "/rpc/v5/info/attest"),
        (r#"rpc_request_duration_seconds_bucket{le="10"}"#, "/rpc/v5/info/attest"),
        (r#"larder_http_requests_total{status="404",surface="python"}"#, "/x"),
        (r#"larder_http_requests_total{status="200",surface="aur"}"#, "/packages.gz"),
        (r#"larder_http_requests_total{status="200",surface="aur"}"#, "/rpc/v5/info/attest"),
    ] {
        check(name, &|| get(target)(&server));
    }
    let form = || drop(server.client.form("/rpc", "v=5&type=msearch&arg=anna"));
    let name = r#"rpc_response_size_bytes_count{type="msearch"}"#;
    check(name, &form);
    let posts = server.get("/metrics").text();
    let posts =
        posts.lines().filter(|line| line.starts_with("rpc_requests{") && line.contains("\"POST\""));
    assert_eq!(posts.count(), 1);

    let text = server.get("/rpc/metrics").text();
    for le in [
        "0.0001", "0.0003", "0.0005", "0.0007", "0.0009", "0.001", "0.003", "0.005", "0.01",
        "0.03", "0.05", "0.07", "0.1", "0.5", "1", "10", "+Inf",
    ] {
        assert!(
            text.contains(&format!("rpc_request_duration_seconds_bucket{{le=\"{le}\"}}")),
            "{le}"
        );
    }
    for name in [
        "rpc_cache_hits",
        "rpc_requests_rate_limited",
        "rpc_data_last_refresh",
        "process_resident_memory_bytes",
    ] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
    assert!(server.metric("rpc_data_last_refresh") > 1.7e9);
    assert_eq!(server.metric("larder_aur_packages"), 9.0);
    assert_eq!(server.metric("larder_aur_package_bases"), 7.0);
    assert_eq!(server.metric(r#"larder_aur_refresh_total{result="published"}"#), 1.0);
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
}

#[test]
fn metrics_can_be_switched_off() {
    let server = TestServer::without_source(|config| {
        config.metrics.enabled = false;
        config.aur.enabled = false;
    });
    server.wait_until_ready();
    assert_eq!(server.get("/metrics").status, 404);
}
