//! For operators and their monitoring: alive, ready, version, metrics.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use config::AurSource;

use crate::asking::Says as _;
use crate::catalogue;
use crate::server::{TestServer, small, wait_for};
use crate::wait_until;

/// Sets a source that has nothing yet.
fn with_missing_source(config: &mut config::Config) {
    config.aur.source = Some(AurSource::File("/no-such-dump.json".into()));
}

#[test]
fn before_the_first_snapshot() {
    let server = TestServer::without_source(with_missing_source);
    for target in ["/livez", "/healthz"] {
        assert_eq!((server.get(target).status, server.get(target).text()), (200, "ok\n".into()));
    }
    for target in ["/readyz", "/ready", "/readyz?verbose"] {
        let refused = server.get(target);
        refused
            .check_status(503)
            .says("no snapshot has been published yet")
            .has("retry-after", "1");
    }
    server.wait_for("/readyz", "no-such-dump.json");
    for target in ["/rpc/v5/info/attest", "/packages.gz", "/packages-meta-ext-v1.json.gz.sha256"] {
        let response = server.get(target).expect(503);
        response.has("content-type", "application/problem+json");
        assert!(response.header("retry-after").parse::<u32>().is_ok(), "{target}");
    }
    // Documentation needs no data.
    server.get("/rpc").expect(200);
    server.get("/rpc/stats").expect(200);
    server.get("/").expect(200);
}

#[test]
fn ready() {
    small().get("/readyz").expect(200).is("ok\n").has("cache-control", "no-store");
    let verbose = small().get("/readyz?verbose").text();
    assert!(verbose.starts_with("[+] aur: 9 packages from "), "{verbose}");
}

#[test]
fn stopping_is_not_ready() {
    let server = TestServer::serving(&catalogue::small());
    server.app.begin_shutdown();
    server.get("/readyz").tells(503, "[-] shutdown: the server is stopping");
    server.get("/livez").expect(200);
    assert_eq!(server.get("/rpc/v5/info/attest").names(), "attest");
}

#[test]
fn a_surface_that_is_switched_off() {
    let server = TestServer::without_aur(|_| ());
    let verbose = server.get("/readyz?verbose").text();
    assert!(verbose.starts_with("[+] aur: switched off\n[+] store: serial "), "{verbose}");
    server.get("/readyz").expect(200);
    check_off(
        &server,
        "this server has no packages of the AUR: its operator has switched them off (`aur.enabled = false` in the configuration)",
    );
    let reload = wait_for(server.app.aur.reload());
    assert!(reload.is_err(), "{reload:?}");
}

/// Every path of the surface says why it is off, so that clients do not take it for an empty catalogue.
#[track_caller]
fn check_off(server: &TestServer, reason: &str) {
    for target in [
        "/rpc",
        "/rpc/",
        "/rpc.php",
        "/rpc.php/?v=5",
        "/rpc?v=5&type=info&arg=attest",
        "/rpc/v5/info/attest",
        "/rpc/stats",
        "/api",
        "/api/v6/search/attest",
        "/packages.gz",
        "/packages-meta-ext-v1.json.gz.sha256",
    ] {
        for method in ["GET", "POST"] {
            let response = server.anybody().send(method, target, ());
            response
                .tells(404, reason)
                .has("content-type", "application/problem+json")
                .has("access-control-allow-origin", "*");
        }
    }
    assert_eq!(server.metric("larder_aur_enabled"), 0.0);
}

/// Without a source and without an earlier dump the other surfaces are served, and a kept dump is served again.
#[test]
fn without_a_source_there_is_no_aur() {
    let server = TestServer::without_source(|config| {
        assert!(config.aur.enabled && config.aur.source.is_none(), "the defaults");
    })
    .ready();
    server.get("/readyz?verbose").says("[+] aur: not served, since there is no source");
    check_off(
        &server,
        "this server has no packages of the AUR: it was started without a source for them, and keeps no earlier dump; its operator can name one with `--aur-source FILE|URL` (`aur.source` in the configuration)",
    );
    server.get("/articles").expect(200);
    server.get("/+api").expect(200);
    server.get("/").expect(200);
    assert!(wait_for(server.app.aur.reload()).is_err());

    let directory = server.stop();
    let kept = directory.path().join("data/aur/packages-meta-ext-v1.json.gz");
    fs::write(kept, catalogue::gzip(&catalogue::small())).expect("a dump");
    let server = TestServer::start_in(directory, |_, _| ()).ready();
    assert_eq!(server.get("/rpc/v5/info/attest").names(), "attest");
    assert_eq!(server.metric("larder_aur_enabled"), 1.0);
}

/// As goaurrpc's, it is the time of the data, and no restart changes it.
#[test]
fn the_last_refresh_is_the_time_of_the_data() {
    let server = TestServer::serving(&catalogue::small());
    let modified_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let beside = server.source_path().with_extension("next");
    fs::write(&beside, catalogue::generation(1, 9)).expect("a dump");
    File::options()
        .write(true)
        .open(&beside)
        .and_then(|file| file.set_modified(modified_at))
        .expect("a time");
    fs::rename(beside, server.source_path()).expect("a rename");
    wait_until("the new data", || server.get("/rpc/v5/info/shared-0001").names() == "shared-0001");
    server.wait_until_ready();
    let check = |server: &TestServer| {
        for name in ["rpc_data_last_refresh", "larder_aur_snapshot_timestamp_seconds"] {
            assert_eq!(server.metric(name), 1.5e9, "{name}");
        }
        server.get("/rpc/stats").says("Fri, 14 Jul 2017 02:40:00 GMT");
    };
    check(&server);
    let server = TestServer::start_in(server.stop(), |_, _| ()).ready();
    check(&server);
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
    for (name, target) in [
        (r#"rpc_requests{by="name-desc",method="GET",type="search"}"#, "/rpc/v5/search/attest"),
        (
            r#"rpc_requests{by="provides",method="GET",type="search"}"#,
            "/rpc/v5/search/attest?by=provides",
        ),
        (r#"rpc_requests_error{error="Query arg too small."}"#, "/rpc/v5/search/a"),
        (r#"rpc_requests_error{error="Please specify an API version."}"#, "/rpc?x"),
        (r#"rpc_requests{by="name",method="GET",type="info"}"#, "/rpc/v5/info/attest"),
        (
            r#"rpc_requests{by="provides",method="GET",type="info"}"#,
            "/rpc?v=5&type=info&by=provides&arg=attest",
        ),
        (r#"rpc_requests{by="name-desc",method="GET",type="multiinfo"}"#, "/rpc/v5/multiinfo/a"),
        (r#"rpc_requests{by="name-desc",method="GET",type="suggest"}"#, "/rpc/v5/suggest/a"),
        (r#"rpc_requests{by="maintainer",method="GET",type="msearch"}"#, "/rpc/v5/msearch/a"),
        (r#"rpc_response_size_bytes_count{type="multiinfo"}"#, "/rpc/v5/info/attest"),
        (r#"rpc_response_size_bytes_count{type="search"}"#, "/rpc/v5/search/attest"),
        (r#"rpc_response_size_bytes_bucket{type="multiinfo",le="500"}"#, "/rpc/v5/info/no-such"),
        ("rpc_request_duration_seconds_count", "/rpc/v5/info/attest"),
        (r#"rpc_request_duration_seconds_bucket{le="10"}"#, "/rpc/v5/info/attest"),
        (r#"larder_http_requests_total{status="404",surface="python"}"#, "/x"),
        (r#"larder_http_requests_total{status="200",surface="aur"}"#, "/packages.gz"),
        (r#"larder_http_requests_total{status="200",surface="aur"}"#, "/rpc/v5/info/attest"),
    ] {
        check(name, &|| drop(server.get(target)));
    }
    let form = || drop(server.form("/rpc", "v=5&type=msearch&arg=anna"));
    let name = r#"rpc_response_size_bytes_count{type="msearch"}"#;
    check(name, &form);
    let posts = server.get("/metrics").text();
    let posts =
        posts.lines().filter(|line| line.starts_with("rpc_requests{") && line.contains("\"POST\""));
    assert_eq!(posts.count(), 1);

    check(r#"rpc_requests{by="name",method="HEAD",type="info"}"#, &|| {
        drop(server.anybody().send("HEAD", "/rpc/v5/info/attest", ()));
    });
}

#[test]
fn metrics_have_goaurrpcs_labels_and_buckets() {
    let server = TestServer::serving(&catalogue::small());
    for target in
        ["/rpc/v5/search/attest", "/rpc/v5/search/a", "/rpc/v5/info/attest", "/rpc/v5/msearch/a"]
    {
        server.get(target);
    }
    let text = server.get("/rpc/metrics").text();
    let labels = |name: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.split('"').nth(1));
        lines.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let sizes = labels("rpc_response_size_bytes_count{type=");
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), ["error", "msearch", "multiinfo", "search"]);
    for le in ["500", "1000", "5000", "10000", "50000", "100000", "1000000", "2000000", "+Inf"] {
        text.says(&format!("rpc_response_size_bytes_bucket{{type=\"search\",le=\"{le}\"}}"));
    }
    for le in [
        "0.0001", "0.0003", "0.0005", "0.0007", "0.0009", "0.001", "0.003", "0.005", "0.01",
        "0.03", "0.05", "0.07", "0.1", "0.5", "1", "10", "+Inf",
    ] {
        text.says(&format!("rpc_request_duration_seconds_bucket{{le=\"{le}\"}}"));
    }
    for name in [
        "rpc_cache_hits",
        "rpc_requests_rate_limited",
        "rpc_data_last_refresh",
        "process_resident_memory_bytes",
    ] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
}

#[test]
fn metrics_say_what_is_served() {
    let server = TestServer::serving(&catalogue::small());
    assert!(server.metric("rpc_data_last_refresh") > 1.7e9);
    assert_eq!(server.metric("larder_aur_packages"), 9.0);
    assert_eq!(server.metric("larder_aur_package_bases"), 7.0);
    assert_eq!(server.metric(r#"larder_aur_refresh_total{result="published"}"#), 1.0);
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
}

/// goaurrpc counts such a question, and its answer as one of type `error`.
#[test]
fn too_many_results_are_counted_as_goaurrpc_counts_them() {
    let server = TestServer::serving_with(&catalogue::small(), |config| config.aur.results_max = 1);
    assert_eq!(server.get("/rpc/v5/search/green").names(), "error: Too many package results.");
    for name in [
        r#"rpc_requests{by="name-desc",method="GET",type="search"}"#,
        r#"rpc_requests_error{error="Too many package results."}"#,
        r#"rpc_response_size_bytes_count{type="error"}"#,
    ] {
        assert_eq!(server.metric(name), 1.0, "{name}");
    }
    assert_eq!(server.metric(r#"rpc_response_size_bytes_count{type="search"}"#), 0.0);
}

#[test]
fn metrics_can_be_switched_off() {
    let server = TestServer::without_source(|config| {
        config.metrics.enabled = false;
        config.aur.enabled = false;
    })
    .ready();
    server.get("/metrics").expect(404);
}
