//! The result of each action, alone and together with others, in every form of a request.

use base64::Engine;
use base64::prelude::{BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use insta::assert_snapshot;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::post;
use crate::client::Response;
use crate::server::small;

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// One action with these arguments, whose result is the body.
#[track_caller]
fn check(action: &str, arguments: Value, expected: &str) {
    let response = post(&json!({"actions": {action: arguments}}).to_string());
    assert_eq!(response.text(), expected, "{action}");
    response.check_status(200);
    response.has("content-type", "application/json").has("cache-control", "no-cache");
}

#[test]
fn examples() {
    check("example.hello_world", json!({}), r#""Hello world!""#);
    check("example.fibonacci", json!({"n": 0}), r#"{"n":0,"value":0}"#);
    check("example.fibonacci", json!({"n": 24}), r#"{"n":24,"value":46368}"#);
}

#[test]
fn packages_are_answered_to_the_byte_as_by_the_rpc() {
    for (action, arguments, path) in [
        ("aur.info", json!({"names": ["attest"]}), "/rpc/v5/info?arg[]=attest"),
        (
            "aur.info",
            json!({"names": ["yogurt", "no-such", "libstdc++5", "yogurt"]}),
            "/rpc/v5/info?arg[]=yogurt&arg[]=no-such&arg[]=libstdc%2B%2B5&arg[]=yogurt",
        ),
        ("aur.info", json!({"names": ["no-such"]}), "/rpc/v5/info/no-such"),
        ("aur.search", json!({"needle": "attest"}), "/rpc/v5/search/attest"),
        ("aur.search", json!({"arg": "attest"}), "/rpc/v5/search/attest"),
        ("aur.search", json!({"needle": "green", "by": "name"}), "/rpc/v5/search/green?by=name"),
        (
            "aur.search",
            json!({"needle": "attest", "by": "provides", "mode": null}),
            "/rpc/v5/search/attest?by=provides",
        ),
        (
            "aur.search",
            json!({"needle": "split", "by": "name", "mode": "starts-with"}),
            "/rpc/v5/search/split?by=name&mode=starts-with",
        ),
        ("aur.search", json!({"needle": "größer"}), "/rpc/v5/search/gr%C3%B6%C3%9Fer"),
        ("aur.suggest", json!({"prefix": "s"}), "/rpc/v5/suggest/s"),
        ("aur.suggest", json!({"prefix": "no-such"}), "/rpc/v5/suggest/no-such"),
    ] {
        check(action, arguments, &small().get(path).text());
    }
}

#[test]
fn the_status_of_the_server() {
    let response = post(r#"{"actions":{"server.status":{}}}"#);
    let status = response.json();
    assert_eq!(status["version"], small().get("/version").json()["version"]);
    assert_eq!(status["ready"], true);
    assert!(status["uptime_seconds"].is_u64(), "{status}");
    let aur = &status["surfaces"]["aur"];
    assert_eq!((&aur["enabled"], &aur["packages"]), (&json!(true), &json!(9)));
    assert!(aur["snapshot_age_seconds"].is_u64() && aur["modified_unix_seconds"].is_u64(), "{aur}");
    assert_eq!(status["surfaces"]["python"]["enabled"], true);
    assert!(status["store"]["serial"].is_u64(), "{status}");
}

#[test]
fn several_come_back_by_name_in_the_requests_order() {
    let response = post(
        r#"{"actions":{"example.hello_world":{},"example.fibonacci":{"n":99},"aur.suggest":{"prefix":"split"},"no.such":{}}}"#,
    ).expect(200);
    assert_snapshot!("several", response.text().replace("},\"", "},\n\""));
}

#[test]
fn every_form_of_a_request() {
    let json = r#"{"actions":{"example.hello_world":{}}}"#;
    let targets = [
        format!("/?{}", encoded(json)),
        format!("/?{}=", encoded(json)),
        format!("/?{}", json.replace('"', "%22")),
        format!("/?b64={}", BASE64_URL_SAFE.encode(json)),
        format!("/?b64={}", BASE64_URL_SAFE_NO_PAD.encode(json)),
        format!("/?b64={}", encoded(&BASE64_URL_SAFE.encode(json))),
        format!("/?actions={}", encoded(r#"{"example.hello_world":{}}"#)),
        format!("/?lang=en&actions={}", encoded(r#"{"example.hello_world":{}}"#)),
    ];
    let check = |response: Response, what: &str| {
        let found = (response.status, response.text());
        assert_eq!(found, (200, r#""Hello world!""#.to_owned()), "{what}");
    };
    for target in targets {
        check(small().get(&target), &target);
    }
    for content_type in ["application/json", "text/plain", "application/x-www-form-urlencoded", ""]
    {
        check(small().post("/actions", content_type, json.as_bytes()), content_type);
    }
}

#[test]
fn a_plus_in_a_query() {
    let names = |target: &str| small().get(target).names();
    let request = json!({"actions": {"aur.info": {"names": ["libstdc++5"]}}}).to_string();
    assert_eq!(names(&format!("/?{}", request.replace('"', "%22"))), "libstdc++5");
    assert_eq!(names(&format!("/?{}", encoded(&request))), "libstdc++5");
    let inner = r#"{"aur.search":{"needle":"red apple"}}"#;
    assert_eq!(names(&format!("/?actions={}", encoded(inner).replace("%20", "+"))), "two-words");
}

#[test]
fn a_get_has_a_tag() {
    let target = format!("/?{}", encoded(r#"{"actions":{"aur.info":{"names":["attest"]}}}"#));
    let first = small().get(&target);
    let tag = first.find("etag").expect("a tag");
    let again = small().client.get_with(&target, &[("If-None-Match", tag)]);
    assert_eq!((again.status, again.body.len()), (304, 0));
    small().anybody().send("HEAD", &target, ()).has("content-length", first.body.len());
    let posted = post(r#"{"actions":{"aur.info":{"names":["attest"]}}}"#);
    assert_eq!(posted.find("etag"), None);
    assert_eq!(posted.body, first.body);
}

#[test]
fn other_queries_are_the_pages() {
    // Links to log in lead back to the path and the query.
    let without_login = |page: String| {
        let mut parts = page.split("/+account/login");
        let first = parts.next().map(str::to_owned);
        let rest = parts.filter_map(|part| part.split_once('"'));
        first.into_iter().chain(rest.map(|(_, after)| after.to_owned())).collect::<String>()
    };
    let page = without_login(small().get("/").text());
    for query in ["", "x=1", "b65=x", "action=%7B%7D", "%7A%7B"] {
        let response = small().get(&format!("/?{query}"));
        response.has("content-type", "text/html; charset=utf-8");
        assert_eq!(without_login(response.text()), page, "{query}");
    }
}
