//! The metrics of every surface in `/metrics`, which the alerts and the dashboard of `packaging` must match.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use larder::routes::Endpoint;
use serde_json::{Value, json};

use crate::asking::Says as _;
use crate::process::Process;
use crate::python::Upload;
use crate::server::{TestServer, with_key};
use crate::{catalogue, wait_until};

const RULES: &str = "packaging/prometheus/larder.rules.yml";
const BOARD: &str = "packaging/grafana/larder.json";

/// An index of the user root.
const INDEX: &str = "root/dev";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("text")
}

/// A server with every surface, and a cache that it tells what has changed.
fn server() -> TestServer {
    let directory = tempfile::tempdir().expect("a directory");
    let hooks = directory.path().join("webhooks.toml");
    let hook = "[[webhook]]\nname = \"edge\"\nsurface = \"python\"\nshape = \"keys\"\nurl = \"http://127.0.0.1:9/\"\n";
    fs::write(&hooks, hook).expect("a file");
    TestServer::serving_with(&catalogue::small(), |config| {
        with_key(config);
        config.changes.webhooks_file = Some(hooks);
    })
}

/// Asks until the time of the `route` was taken: of some routes one request in many is timed.
#[track_caller]
fn ask(server: &TestServer, surface: &str, route: &str, ask: impl Fn(&TestServer) -> u16) {
    let name =
        format!(r#"larder_http_request_seconds_count{{route="{route}",surface="{surface}"}}"#);
    let before = server.metric(&name);
    wait_until(&name, || {
        let status = ask(server);
        assert!(status < 500, "{name}: {status}");
        server.metric(&name) > before
    });
}

/// Asks every surface for something.
#[track_caller]
fn ask_all(server: &TestServer) {
    let get = |surface: &str, route: &str, target: &str| {
        ask(server, surface, route, |server| server.root().get(target).status);
    };
    let send = |surface: &str, route: &str, method: &str, target: &str, body: &str| {
        ask(server, surface, route, |server| {
            server.root().send(method, target, body.as_bytes()).status
        });
    };
    get("aur", "rpc", "/rpc/v5/info/attest");
    get("aur", "rpc", "/rpc/v5/search/attest");
    server.get("/rpc/v5/search/a");
    get("aur", "dump", "/packages.gz");
    get("aur", "page", "/rpc/stats");
    send("article", "write", "POST", "/article/a/0", "text");
    get("article", "article", "/article/a");
    get("article", "history", "/article/a/history");
    get("article", "difference", "/article/a/diff");
    get("article", "list", "/articles");
    send("article", "delete", "DELETE", "/article/a", "");
    send("python", "index_write", "PUT", &format!("/{INDEX}"), &json!({}).to_string());
    get("python", "index", &format!("/{INDEX}"));
    let (content_type, form) = Upload::of("demo-1.0.tar.gz", b"content").form();
    ask(server, "python", "upload", |server| {
        server.root().typed(content_type.as_str()).post(&format!("/{INDEX}/"), &form).status
    });
    get("python", "simple_page", &format!("/{INDEX}/+simple/demo/"));
    get("python", "simple_list", &format!("/{INDEX}/+simple/"));
    get("python", "project", &format!("/{INDEX}/demo"));
    get("python", "version", &format!("/{INDEX}/demo/1.0"));
    let file = crate::python::path(INDEX, "demo-1.0.tar.gz", b"content");
    get("python", "file", &file);
    send("python", "version_write", "POST", &format!("/{INDEX}/demo/1.0/+yank"), "");
    get("python", "status", "/+api");
    get("python", "user", "/root");
    get("python", "other", &format!("/{INDEX}/+nothing"));
    let password = json!({"user": "root", "password": "wrong"}).to_string();
    send("account", "login", "POST", "/+login", &password);
    get("account", "tokens", "/+tokens");
    send("account", "tokens_found", "POST", "/+tokens/found", r#"{"token":"x"}"#);
    send("account", "user_write", "PUT", "/alice", &json!({"password": "open-sesame"}).to_string());
    get("action", "list", "/actions");
    send("action", "run", "POST", "/actions", r#"{"actions":{"a":{"action":"server.status"}}}"#);
    get("server", "page", "/docs");
    get("server", "health", "/readyz");
    get("server", "metrics", "/metrics");
    ask(server, "admin", "settings", |server| server.admin("GET", "/admin/settings").status);
    ask(server, "admin", "job", |server| server.admin("GET", "/admin/run-job/wipe-cache").status);
}

/// The names of the samples of a text of metrics.
fn names(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// The names of metrics in an expression or a file.
fn asked(text: &str) -> BTreeSet<&str> {
    let words = text.split(|part: char| !part.is_ascii_alphanumeric() && part != '_');
    let is_name = |word: &&str| {
        ["larder_", "rpc_", "process_"].iter().any(|start| word.starts_with(start))
            && !word.ends_with('_')
    };
    words.filter(is_name).collect()
}

#[test]
fn every_surface_has_its_times_and_what_is_watched_is_there() {
    let server = server();
    ask_all(&server);
    let text = server.get("/metrics").text();

    // The metrics in alerts and the dashboard exist, including the parts of histograms.
    let there = names(&text);
    for path in [RULES, BOARD] {
        let file = read(path);
        let asked = asked(&file);
        assert!(asked.len() > 20, "{path}: {asked:?}");
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "{path} asks for what a server does not have: {missing:?}");
        // A rule with a route that is not in the table would never match.
        let known: BTreeSet<&str> = Endpoint::ALL.iter().map(|it| it.route()).collect();
        for (_, rest) in file.match_indices("route=").map(|(at, _)| file.split_at(at)) {
            let routes = rest.trim_start_matches("route=").trim_start_matches(['~', '\\', '"']);
            let routes = routes.split(['\\', '"']).next().unwrap_or_default();
            for route in routes.split('|') {
                assert!(known.contains(route), "{path} asks for the route `{route}`");
            }
        }
    }

    // Each metric has a row in the manual.
    let manual = read("docs/operating.md");
    let table: String = manual.lines().filter(|line| line.starts_with("| `")).collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap_or_default();
        let is_described = name.starts_with("process_")
            || ['`', '{'].iter().any(|end| table.contains(&format!("`{name}{end}")));
        assert!(is_described, "docs/operating.md has no row for `{name}`");
    }
}

/// The number of series is bounded, whatever strangers request, and none has their words.
#[test]
fn no_path_of_a_client_becomes_a_label() {
    let server = server();
    for at in 0..20 {
        for target in [
            "/evil-N",
            "/evil-N/x/y/z/w",
            "/nobody/evil-N/+simple/x/",
            "/article/evil-N",
            "/rpc/v5/evil-N",
            "/+tokens/evil-N",
            "/evil-N.gz",
            "/+evil-N",
            "/u/i/p/1/+doc/evil-N",
        ] {
            server.get(&target.replace("-N", &at.to_string()));
        }
        server.anybody().send(&format!("EVIL{at}"), "/docs", ());
    }
    let text = server.get("/metrics").text();
    text.to_lowercase().lacks("evil");
    let series = text.lines().filter(|line| line.starts_with("larder_http_request_seconds_count{"));
    assert!(series.count() <= Endpoint::ALL.len());
}

#[test]
fn writes_are_timed() {
    let server = TestServer::without_source(|_| ()).ready();
    let commits = "larder_store_commit_seconds_count";
    let before = server.metric(commits);
    let status = server.root().post("/article/a/0", "text").status;
    assert_eq!(status, 201);
    // The server may have made a commit of its own meanwhile.
    assert!(server.metric(commits) >= before + 1.0);
    assert_eq!(server.metric(r#"larder_store_commit_failures_total{reason="failed"}"#), 0.0);
    assert!(server.metric("larder_store_free_bytes_min") > 0.0);
}

/// promtool, if it is installed; `./test` installs it.
fn promtool() -> Option<PathBuf> {
    if let Some(path) = env::var_os("LARDER_TEST_PROMTOOL") {
        return Some(path.into());
    }
    let found = env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join("promtool"))
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: promtool is not installed");
    }
    found
}

/// The queries of the dashboard, in the order of its panels.
fn queries() -> Vec<String> {
    let board: Value = serde_json::from_str(&read(BOARD)).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

#[test]
fn the_queries_of_the_dashboard_can_be_asked() {
    let Some(promtool) = promtool() else { return };
    let queries = queries();
    assert!(queries.len() > 50, "{} queries", queries.len());
    let rules: Vec<_> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| {
            let query = query.replace("$__rate_interval", "5m");
            json!({"record": format!("query_{at}"), "expr": query})
        })
        .collect();
    // JSON is YAML.
    let file = json!({"groups": [{"name": "board", "rules": rules}]});
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("board.yml");
    fs::write(&path, file.to_string()).expect("a file");
    let output = Command::new(promtool).args(["check", "rules"]).arg(&path).output();
    let output = output.expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// A server after its first start, without the AUR: three hours of its metrics raise no alert.
#[test]
fn a_server_without_the_aur_raises_no_alert() {
    let Some(promtool) = promtool() else { return };
    // A separate process: the values of `process_*` of this one are those of all tests together.
    let process = Process::start(&[], |_| ());
    process.get("/rpc/v5/info/attest").expect(404);
    let text = process.get("/metrics").text();
    text.says("\nlarder_aur_enabled 0\n");
    let mut series = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let labels = labels.replace('\'', "''");
        let comma = if labels == "}" { "" } else { "," };
        let _ = writeln!(
            series,
            "      - series: '{name}{{job=\"larder\",instance=\"a\"{comma}{labels}'\n        values: '{value}x180'"
        );
    }
    let rules = root().join(RULES).canonicalize().expect("the rules");
    let test = |up: u8, alerts: &str| {
        format!(
            "  - interval: 1m\n    input_series:\n      - series: 'up{{job=\"larder\",instance=\"a\"}}'\n        \
             values: '{up}x180'\n{series}    promql_expr_test:\n      - expr: 'count by (alertname) \
             (ALERTS{{alertstate=\"firing\"}})'\n        eval_time: 3h\n        exp_samples: {alerts}\n"
        )
    };
    // The second one shows that an alert would be seen.
    let file = format!(
        "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n{}{}",
        rules.display(),
        test(1, "[]"),
        test(0, "[{labels: '{alertname=\"LarderDown\"}', value: 1}]"),
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("test.yml");
    fs::write(&path, file).expect("a file");
    let output =
        Command::new(promtool).args(["test", "rules"]).arg(&path).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
