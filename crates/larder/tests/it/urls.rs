//! `docs/urls.md` against the server: what it promises exists, other paths are refused. The table of endpoints and the OpenAPI
//! documents list the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use larder::routes::{Place, Tree};
use serde_json::{Map, Value};

use crate::asking::each;
use crate::catalogue;
use crate::client::{Client, Response};
use crate::described;
use crate::server::{KEY, ROOT, TestServer, with_key};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"];

/// Paths as the table writes them, with their methods.
type Table = BTreeMap<String, BTreeSet<String>>;

/// The texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

struct Document {
    main: Table,
    admin: Table,
    /// The values that may replace `{type}`, `{by}`, `{mode}`, and `{name}`.
    words: BTreeMap<String, Vec<String>>,
}

impl Document {
    fn read() -> Document {
        let path = catalogue::testdata("../../docs/urls.md");
        let text = fs::read_to_string(path).expect("the table");
        let mut document =
            Document { main: Table::new(), admin: Table::new(), words: BTreeMap::new() };
        let mut is_admin = false;
        let mut paths: Vec<String> = Vec::new();
        for line in text.lines() {
            is_admin |= line.starts_with("## Admin");
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let &["", first, methods, _, ""] = cells.as_slice() else { continue };
            if first == "path" || first.starts_with("---") {
                continue;
            }
            if first.contains(".sha256") {
                let files = document
                    .main
                    .keys()
                    .filter(|path| path.ends_with(".gz") || path.ends_with(".zst"))
                    .filter(|path| !path.contains(".delta."));
                paths = files.map(|path| format!("{path}.sha256")).collect();
            } else if !first.is_empty() {
                let both = |path: &str| match path.strip_prefix('…') {
                    Some(rest) => vec![format!("/rpc{rest}"), format!("/api{rest}")],
                    None => vec![path.to_owned()],
                };
                paths = quoted(first)
                    .filter(|text| text.starts_with(['/', '…']))
                    .flat_map(both)
                    .collect();
            }
            let table = if is_admin { &mut document.admin } else { &mut document.main };
            for path in &paths {
                let known = table.entry(path.clone()).or_default();
                for method in methods.split(", ") {
                    known.insert(method.to_owned());
                    if method == "GET" {
                        known.insert("HEAD".to_owned());
                    }
                }
            }
        }
        for paragraph in text
            .replace(". `mode`:", ".\n`{mode}`:")
            .replace("\n`by`:", "\n`{by}`:")
            .split("\n`{")
            .skip(1)
        {
            let (name, rest) = paragraph.split_once("}`:").expect("a placeholder");
            let end = rest.find('.').expect("a full stop");
            let words = quoted(&rest[..end]).map(str::to_owned).collect();
            document.words.insert(name.to_owned(), words);
        }
        document
    }

    /// The paths that `pattern` stands for, with real words.
    fn expand(&self, pattern: &str) -> Vec<String> {
        let mut paths = vec![pattern.replace("{arg}", "attest").replace("{n}/…", "7/info")];
        for (name, words) in &self.words {
            let placeholder = format!("{{{name}}}");
            paths = paths
                .into_iter()
                .flat_map(|path| {
                    let is_there = path.contains(&placeholder);
                    let words: Vec<&str> = if is_there {
                        words.iter().map(String::as_str).collect()
                    } else {
                        vec![""]
                    };
                    words
                        .into_iter()
                        .map(|word| path.replace(&placeholder, word))
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        assert!(!paths.iter().any(|path| path.contains(['{', '…'])), "{paths:?}");
        paths
    }
}

#[track_caller]
fn check_problem(response: &Response, status: u16, path: &str) {
    response.check_status(status);
    assert_eq!(response.header("content-type"), "application/problem+json", "{status} for {path}");
    if !response.body.is_empty() {
        let problem = response.json();
        assert_eq!(problem["status"], status, "{path}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{path}");
    }
}

/// Every method on every path of the table: answered if it is listed, else 405 that says what is.
fn check(document: &Document, table: &Table, ask: impl Fn(&str, &str) -> Response) {
    let mut wrong = Vec::new();
    for (pattern, methods) in table {
        for path in document.expand(pattern) {
            for method in METHODS {
                let response = ask(method, &path);
                if methods.contains(method) {
                    // Without an argument, version 6 answers 400, as do actions without any; a setting without a
                    // value is 500.
                    let is_refused = match response.status {
                        400 if path == "/actions" => method != "POST",
                        // There is no article here, and anonymous clients may not write.
                        401 | 404 if path.starts_with("/article/") => {
                            (response.status == 404) != matches!(method, "GET" | "HEAD")
                        }
                        // This server knows no issuer.
                        400 | 403 | 404
                            if path == "/.well-known/pytp" || path.starts_with("/_/") =>
                        {
                            false
                        }
                        // No delta leads from nowhere.
                        400 if path.contains(".delta.") => false,
                        400 => !path.contains("/v6/") || path.ends_with("/attest"),
                        500 => !path.starts_with("/admin/settings/") || method != "POST",
                        status => status >= 400,
                    };
                    if is_refused {
                        wrong.push(format!("{} for {method} {path}", response.status));
                    }
                    continue;
                }
                // A preflight may be answered wherever questions are.
                let is_question = path.starts_with("/rpc/v") || path.starts_with("/api/v");
                if method == "OPTIONS" && response.status == 204 && is_question {
                    continue;
                }
                // OPTIONS is answered everywhere but at the admin listener.
                let is_answered = method == "OPTIONS" && response.status == 204;
                if response.status != 405 && !is_answered {
                    wrong.push(format!("{}, not 405, for {method} {path}", response.status));
                    continue;
                }
                if !is_answered && response.header("content-type") != "application/problem+json" {
                    wrong.push(format!("no problem+json for {method} {path}"));
                }
                let mut allowed: BTreeSet<String> = response
                    .header("allow")
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .collect();
                if is_answered && !allowed.remove("OPTIONS") {
                    wrong.push(format!("OPTIONS is not allowed at {path}"));
                }
                if allowed != *methods && !(is_question && allowed.is_superset(methods)) {
                    wrong.push(format!(
                        "Allow: {:?}, not {methods:?}, for {method} {path}",
                        response.find("allow")
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_row_is_answered_with_its_methods() {
    let document = Document::read();
    assert!(document.main.len() > 45, "{:?}", document.main);
    assert_eq!(document.words["type"].len(), 8);
    assert_eq!(document.words["by"].len(), 15);
    assert_eq!(document.words["mode"].len(), 4);
    // A separate server, since its history is in its data directory.
    let server = TestServer::serving_with(&catalogue::small(), |config| {
        config.aur.rate_limit = 1_000_000;
    });
    // Paths of the Python index name users and projects: their own tests request them.
    let mut table = document.main.clone();
    table.retain(|path, _| !is_indexes(path));
    check(&document, &table, |method, path| server.anybody().send(method, path, ()));
}

#[test]
fn every_row_of_the_admin_listener_is_answered_with_its_methods() {
    let document = Document::read();
    assert!(document.admin.len() >= 9, "{:?}", document.admin);
    assert_eq!(document.words["name"].len(), 9);
    let server = TestServer::serving_with(&catalogue::small(), with_key);
    let admin = server.admin.expect("a listener");
    check(&document, &document.admin, |method, path| {
        admin.send(method, path, &[("APIKey", KEY)], b"")
    });
}

#[test]
fn what_is_not_in_the_table_is_not_there() {
    let server = TestServer::serving_with(&catalogue::small(), with_key);
    let check = |client: &Client, path: &str| check_problem(&client.get(path), 404, path);
    for path in [
        "/x",
        "/rpcx",
        "/rpc.html",
        "/rpc/x",
        "/rpc/v5",
        "/rpc/v5/",
        "/rpc/V5/info/attest",
        "/rpc/v5/info/a/b",
        "/rpc/v5/search/name/attest",
        "/rpc/v6/search/name/contains/attest/more",
        "/rpc.php/v5/info/attest",
        "/packages/a/b",
        "/pkgbase",
        "/account/",
        "/packages.gz/",
        "/packages.gz.sha512",
        "/docs/x",
        "/admin/settings",
        "/apix",
    ] {
        check(&server.client, path);
    }
    let admin = server.admin.expect("a listener");
    for path in ["/", "/rpc", "/admin", "/admin/x", "/metrics"] {
        check(&admin, path);
    }
}

/// The paths of OpenAPI documents with their methods, placeholders as in the table.
fn openapi(operations: &Map<String, Value>) -> Table {
    let mut table = Table::new();
    for (path, item) in operations {
        let mut methods: BTreeSet<String> = item
            .as_object()
            .expect("methods")
            .keys()
            .filter(|key| *key != "x-also")
            .map(|key| key.to_uppercase())
            .collect();
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        for path in described::also(item).chain([path.as_str()]) {
            // A slash at the end makes no difference to the Python index.
            let path = if is_indexes(path) && !path.starts_with("/+attachments/") {
                path.trim_end_matches('/')
            } else {
                path
            };
            let known = table.insert(path.replace("v{version}", "v5"), methods.clone());
            assert!(known.is_none_or(|known| known == methods), "{path}");
        }
    }
    table
}

/// Whether a path is the Python index's, or of tokens.
fn is_indexes(path: &str) -> bool {
    path.starts_with("/{user}") || path.starts_with("/+")
}

/// The server's endpoints in these trees.
fn answered(trees: &[Tree]) -> Table {
    let mut table = Table::new();
    // Wider patterns are documented in a narrower form.
    let places =
        Place::all().iter().filter(|it| trees.contains(&it.tree) && !it.path.contains("{*"));
    for place in places.filter(|place| !place.methods().is_empty()) {
        let methods = place.methods().into_iter().map(str::to_owned);
        table.entry(place.path.to_owned()).or_default().extend(methods);
    }
    table
}

/// Whether an OpenAPI document lists this status, or its class, for a method of a path.
fn lists(document: &Value, path: &str, method: &str, status: u16) -> bool {
    let responses = &document["paths"][path][method.to_lowercase()]["responses"];
    let class = format!("{}XX", status / 100);
    [status.to_string(), class].iter().any(|key| responses.get(key).is_some())
}

/// A server with small bounds, an article that is over them, and one that is gone.
fn with_refusals() -> TestServer {
    let server = TestServer::without_aur(|config| {
        config.article.acl_read = "root".parse().expect("a list");
        config.article.merge_bytes_max = 10;
        config.actions.results_bytes_max = 1_024;
        config.store.wait_for_serial = std::time::Duration::ZERO;
    });
    let client = &server.client;
    for (target, body) in [("long/0", &[b'x'; 2_000][..]), ("gone/0", b"x")] {
        let target = format!("/article/{target}");
        client.root().post(&target, body).expect(201);
    }
    client.root().delete("/article/gone/1").expect(200);
    server
}

/// Checks that a request gets this status, and that the OpenAPI document lists it for the path.
fn checking(server: &TestServer) -> impl Fn(&str, &str, &[(&str, &str)], u16) {
    let client = server.client;
    let document = client.get("/openapi.json").json();
    move |path, target, headers, status| {
        // HEAD is answered as GET is.
        for method in ["GET", "HEAD"] {
            client.send(method, target, headers, b"").expect(status);
        }
        assert!(lists(&document, path, "GET", status), "{status} for GET {path}");
    }
}

#[test]
fn the_openapi_document_lists_the_refusals() {
    let server = with_refusals();
    let check = checking(&server);
    let (article, version) = ("/article/{article}", "/article/{article}/{version}");
    let (history, diff) = ("/article/{article}/history", "/article/{article}/diff");
    let late = [ROOT, ("X-Larder-Serial", "99999")];
    for (path, target) in [
        ("/articles", "/articles"),
        (article, "/article/long"),
        (version, "/article/long/1"),
        (history, "/article/long/history"),
        (diff, "/article/long/diff"),
    ] {
        check(path, target, &[], 401);
        check(path, target, &late, 503);
        check(path, &format!("{target}?x=1"), &[ROOT], 400);
    }
    let rows = [
        (article, "/article/x", 404),
        (version, "/article/x/1", 404),
        (history, "/article/x/history", 404),
        (diff, "/article/x/diff", 404),
        (article, "/article/gone", 410),
        (diff, "/article/long/diff", 413),
    ];
    each(rows, |(path, target, status)| check(path, target, &[ROOT], status));
}

#[test]
fn the_openapi_document_lists_the_refusals_of_actions() {
    let server = with_refusals();
    let check = checking(&server);
    let late = [ROOT, ("X-Larder-Serial", "99999")];
    let action =
        |name: &str, arguments: &str| format!("/?{{%22actions%22:{{%22{name}%22:{arguments}}}}}");
    let read = |name: &str| action("article.get", &format!("{{%22name%22:%22{name}%22}}"));
    let write = action("article.put", "{%22name%22:%22a%22,%22version%22:0,%22text%22:%22x%22}");
    let rows = [
        (&action("x", "{}"), &[ROOT][..], 400),
        (&read("long"), &[], 401),
        (&read("x"), &[ROOT], 404),
        (&write, &[ROOT], 405),
        (&read("gone"), &[ROOT], 410),
        (&read("long"), &[ROOT], 413),
        (&read("long"), &late, 503),
        (&format!("/?actions={}", "x".repeat(40_000)), &[ROOT], 414),
    ];
    each(rows, |(target, headers, status)| check("/", target, headers, status));
}

#[test]
fn the_table_of_endpoints_and_the_openapi_documents_list_the_same() {
    let mut document = Document::read();
    assert_eq!(answered(&[Tree::Main, Tree::Python]), document.main);
    document.main.remove("/rpc/v{n}/…");
    // No method of an OpenAPI document. It says of all paths at once that they answer OPTIONS.
    document.main.get_mut("/{user}/{index}").expect("the index").remove("PUSH");
    document.main.values_mut().for_each(|methods| _ = methods.remove("OPTIONS"));
    // The page at `/docs/` is no other than that at `/docs`.
    let server = TestServer::serving_with(&catalogue::small(), with_key);
    assert_eq!(openapi(&described::operations(&server.client)), document.main);
    let mut admin = Table::new();
    for (path, methods) in document.admin {
        let job = path.strip_prefix("/admin/run-job/").map(|_| "/admin/run-job/{name}".to_owned());
        admin.insert(job.unwrap_or(path), methods);
    }
    let mut described = Map::new();
    let listener = server.admin.expect("a listener");
    described::add(&mut described, &listener.get("/admin/openapi.json").json());
    assert_eq!(openapi(&described), admin);
    assert_eq!(answered(&[Tree::Admin]), admin);
}
