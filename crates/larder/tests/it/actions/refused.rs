//! Refusals name the bad value, and what was expected.

use config::AurSource;
use serde_json::json;

use super::post;
use crate::asking::{Says as _, each};
use crate::catalogue;
use crate::client::Response;
use crate::server::{TestServer, small};

#[track_caller]
fn check_problem(response: &Response, status: u16, action: Option<&str>, detail: &str) {
    response.tells(status, detail).has("content-type", "application/problem+json");
    let problem = response.json();
    assert_eq!(problem["status"], status);
    assert_eq!(problem["action"].as_str(), action);
}

/// One action, refused with 400.
#[track_caller]
fn check(action: &str, arguments: serde_json::Value, detail: &str) {
    let response = post(&json!({"actions": {action: arguments}}).to_string());
    check_problem(&response, 400, Some(action), detail);
}

#[test]
fn unknown_actions() {
    let expected = "there is no action `aur.inf`, expected one of: aur.info, aur.search, aur.suggest, article.get_version, article.get, article.history, article.search, article.put, article.rename, server.status, example.hello_world, example.fibonacci";
    check("aur.inf", json!({}), expected);
    check(
        "",
        json!({}),
        "there is no action ``, expected one of: aur.info, aur.search, aur.suggest, article.get_version, article.get, article.history, article.search, article.put, article.rename, server.status, example.hello_world, example.fibonacci",
    );
    check(
        "AUR.INFO",
        json!({"names": []}),
        "there is no action `AUR.INFO`, expected one of: aur.info, aur.search, aur.suggest, article.get_version, article.get, article.history, article.search, article.put, article.rename, server.status, example.hello_world, example.fibonacci",
    );
}

#[test]
fn arguments() {
    let rows = [
        (
            "example.hello_world",
            json!({"name": "x"}),
            "`name`: unknown field `name`, there are no fields",
        ),
        ("example.hello_world", json!([]), "`[]`, expected an object of arguments"),
        ("example.hello_world", json!(null), "`null`, expected an object of arguments"),
        ("example.fibonacci", json!({}), "missing field `n`"),
        ("example.fibonacci", json!({"n": 34, "m": 1}), "`m`: unknown field `m`, expected `n`"),
        (
            "example.fibonacci",
            json!({"n": "34"}),
            "`n`: invalid type: string \"34\", expected a whole number from 0 to 4294967295",
        ),
        (
            "example.fibonacci",
            json!({"n": -1}),
            "`n`: invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
        ),
        (
            "example.fibonacci",
            json!({"n": 3.5}),
            "`n`: invalid type: floating point `3.5`, expected a whole number from 0 to 4294967295",
        ),
        ("example.fibonacci", json!({"n": 46}), "`n` is 46, expected at most 45"),
        (
            "example.fibonacci",
            json!({"n": 5_000_000_000_u64}),
            "`n`: invalid value: integer `5000000000`, expected a whole number from 0 to 4294967295",
        ),
        (
            "aur.info",
            json!({"names": ["x", 1]}),
            "`names[1]`: invalid type: integer `1`, expected a string",
        ),
        ("aur.info", json!({"names": []}), "No request type/data specified."),
        ("aur.search", json!({"needle": "x"}), "Query arg too small."),
        ("aur.search", json!({"by": "name"}), "missing field `needle`"),
        ("aur.search", json!({"needle": "xy", "arg": "xy"}), "duplicate field `needle`"),
    ];
    each(rows, |(action, arguments, detail)| check(action, arguments, detail));
    let by = "`by` is `nam`, expected one of: name, name-desc, maintainer, submitter, depends, makedepends, optdepends, checkdepends, provides, conflicts, replaces, keywords, groups, comaintainers, pkgbase";
    check("aur.search", json!({"needle": "xy", "by": "nam"}), by);
    let mode = "`mode` is `ends`, expected one of: contains, starts-with";
    check("aur.search", json!({"needle": "xy", "mode": "ends"}), mode);
    check("aur.suggest", json!({}), "missing field `prefix`");
}

/// Values that would not fit into a URL or a header are refused, too.
#[test]
fn comments_types_and_contents_of_articles() {
    let server = TestServer::without_aur(|_| ());
    let check = |more: serde_json::Value, detail: &str| {
        let mut arguments = json!({"name": "a", "version": 0});
        arguments
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("too").clone());
        let response =
            server.root().post("/actions", json!({"actions": {"article.put": arguments}}));
        check_problem(&response, 400, Some("article.put"), detail);
    };
    let comment = |bytes: usize| json!({"text": "x", "comment": "x".repeat(bytes)});
    check(
        comment(2_001),
        "the comment of 2001 bytes is refused: at most 2000 without control characters were expected",
    );
    check(
        comment(100_000),
        "the comment of 100000 bytes is refused: at most 2000 without control characters were expected",
    );
    check(
        json!({"text": "x", "comment": "a\0"}),
        "the comment of 2 bytes is refused: at most 2000 without control characters were expected",
    );
    check(
        json!({"text": "x", "content_type": "text/plain\r\nX: y"}),
        "`text/plain\\r\\nX: y` is not a media type: `type/subtype`, perhaps with `; name=value`, in at most 255 bytes was expected",
    );
    check(json!({"base64": "***"}), "`base64` is not base64: Invalid symbol 42, offset 0.");
    check(json!({"text": "x", "base64": "eA=="}), "expected either `text` or `base64`");
    server.get("/article/a").expect(404);
}

#[test]
fn requests() {
    for (body, detail) in [
        ("", "the request is not JSON: EOF while parsing a value at line 1 column 0"),
        ("example.hello_world", "the request is not JSON: expected value at line 1 column 1"),
        ("{\"actions\":{}}", "the request has no action, expected one"),
        (
            "{\"actions\":[]}",
            "the request is not as expected: invalid type: sequence, expected an object that holds the arguments of each action under its name at line 1 column 11",
        ),
        ("{}", "the request is not as expected: missing field `actions` at line 1 column 2"),
        (
            "[]",
            "the request is not as expected: invalid type: sequence, expected an object with the member `actions` at line 1 column 0",
        ),
        (
            "{\"actions\":{\"a\":{}},\"more\":1}",
            "the request is not as expected: unknown member `more`, expected `actions` at line 1 column 26",
        ),
        (
            "{\"actions\":{\"a\":{},\"a\":{}}}",
            "the request is not as expected: the action `a` is named twice at line 1 column 22",
        ),
        (
            "{\"actions\":{\"a\":{}}} x",
            "the request is not JSON: trailing characters at line 1 column 22",
        ),
    ] {
        check_problem(&post(body), 400, None, detail);
    }
    let not_utf8 = small().post("/actions", "", b"{\"actions\":{\"\xff\":{}}}");
    check_problem(&not_utf8, 400, None, "the request is not UTF-8 from byte 13 on, expected JSON");
    for (query, detail) in [
        ("%7B", "the request is not JSON: EOF while parsing an object at line 1 column 1"),
        (
            "%7B%22actions%22%3A%7B%22%ff%22:%7B%7D%7D%7D",
            "the request is not UTF-8 from byte 13 on, expected JSON",
        ),
        (
            "%7B%22actions%22:+%7B%7D%7D",
            "the request is not JSON: expected value at line 1 column 12; `+` is a plus in this query, a space is %20",
        ),
        ("b64=e30", "the request is not as expected: missing field `actions` at line 1 column 2"),
        ("b64=!", "`b64` is not base64url of the JSON of a request: Invalid symbol 33, offset 0."),
        ("b64=", "the request is not JSON: EOF while parsing a value at line 1 column 0"),
        (
            "actions=7",
            "the request is not as expected: invalid type: integer `7`, expected an object that holds the arguments of each action under its name at line 1 column 1",
        ),
    ] {
        check_problem(&small().get(&format!("/?{query}")), 400, None, detail);
    }
}

#[test]
fn methods() {
    for method in ["PUT", "DELETE", "PATCH"] {
        let response = small().anybody().send(method, "/actions", ());
        let expected = "is not a method of `/actions`, expected one of: GET, HEAD, POST, OPTIONS";
        check_problem(&response, 405, None, &format!("`{method}` {expected}"));
        response.has("allow", "GET, HEAD, POST, OPTIONS");
    }
    let done = small().anybody().send("OPTIONS", "/actions", ());
    done.expect(204).has("allow", "GET, HEAD, POST, OPTIONS");
    let posted = small().post("/?%7B%22actions%22:%7B%7D%7D", "", b"");
    assert_eq!(posted.status, 405, "a body belongs to /actions");
}

#[test]
fn without_the_surface_its_actions_are_not_there() {
    let server = TestServer::without_aur(|_| ());
    let body = br#"{"actions":{"aur.info":{"names":["attest"]}}}"#;
    let response = server.post("/actions", "", body);
    check_problem(
        &response,
        400,
        Some("aur.info"),
        "there is no action `aur.info`, expected one of: article.get_version, article.get, article.history, article.search, article.put, article.rename, server.status, example.hello_world, example.fibonacci",
    );
    let list = server.get("/actions").text();
    list.says("server.status");
    list.lacks("aur.");
}

#[test]
fn before_the_first_snapshot_packages_are_unavailable() {
    let server = TestServer::without_source(|config| {
        config.aur.source = Some(AurSource::File("/no-such-dump.json".into()));
    });
    let body = br#"{"actions":{"aur.info":{"names":["attest"]}}}"#;
    let response = server.post("/actions", "", body);
    check_problem(&response, 503, Some("aur.info"), "the catalogue of packages is not loaded yet");
    response.has("retry-after", "2");
}

#[test]
fn questions_count_as_requests_to_the_rpc() {
    let server = TestServer::serving_with(&catalogue::small(), |config| config.aur.rate_limit = 2);
    let body = br#"{"actions":{"aur.info":{"names":["attest"]},"aur.suggest":{"prefix":"a"},"aur.search":{"needle":"split"},"example.hello_world":{}}}"#;
    let answers = server.post("/actions", "", body).json();
    assert!(answers["aur.suggest"]["result"].is_array(), "{answers}");
    assert_eq!(answers["aur.search"]["error"]["status"], 429, "{answers}");
    assert!(answers["aur.search"]["error"]["retry_after_seconds"].is_u64(), "{answers}");
    assert_eq!(answers["example.hello_world"]["result"], "Hello world!", "{answers}");
    server.get("/rpc/v5/info/attest").expect(429);
    let alone = br#"{"actions":{"aur.info":{"names":["attest"]}}}"#;
    let response = server.post("/actions", "", alone);
    check_problem(&response, 429, Some("aur.info"), "Rate limit reached");
    assert!(response.find("retry-after").is_some());
}

#[test]
fn switched_off() {
    let server = TestServer::without_source(|config| {
        config.actions.enabled = false;
        config.aur.enabled = false;
    })
    .ready();
    server.get("/actions").expect(404);
    server
        .get("/?%7B%22actions%22:%7B%22example.hello_world%22:%7B%7D%7D%7D")
        .has("content-type", "text/html; charset=utf-8");
}
