//! CORS: which pages of other origins may read and write, over the whole table of routes.

use std::collections::BTreeSet;

use config::{Config, PageOrigin};
use larder::routes::{Place, Tree};
use serde_json::json;

use crate::asking::{Ask, Says as _};
use crate::browser::Browser;
use crate::catalogue;
use crate::client::Response;
use crate::server::TestServer;

const APP: &str = "https://app.example";
const OTHERS: [&str; 6] = [
    "https://app.example.evil.example",
    "https://app.example:8443",
    "http://app.example",
    "https://evil.example",
    "null",
    "",
];

fn allowing(origins: &[&str]) -> impl FnOnce(&mut Config) {
    let origin = |text: &&str| match *text {
        "*" => PageOrigin::Any,
        named => PageOrigin::Named(named.to_owned()),
    };
    let origins: Vec<PageOrigin> = origins.iter().map(origin).collect();
    |config| config.cors.origins = origins
}

fn start(origins: &[&str]) -> TestServer {
    let server = TestServer::serving_with(&catalogue::small(), allowing(origins));
    server.add_user("ann", "staple");
    server.root().put("/ann/secret", json!({"acl_read": ["ann"]})).expect(200);
    server.root().typed("text/plain").post("/article/guide/0", "text").expect(201);
    server
}

/// The names in a header with a list.
fn listed(response: &Response, name: &str) -> BTreeSet<String> {
    let listed = response.find(name).unwrap_or_default();
    listed.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

fn allowed(response: &Response) -> Option<&str> {
    response.find("access-control-allow-origin")
}

#[track_caller]
fn varies_by_origin(response: &Response) -> bool {
    response.headers.iter().any(|(name, by)| name == "vary" && by.contains("Origin"))
}

/// Every place of the main listener with a path of it.
fn places() -> Vec<(&'static Place, String)> {
    let places = Place::all().iter().filter(|place| place.tree != Tree::Admin);
    let places = places.filter(|place| !place.path.contains('…'));
    let path = |place: &Place| {
        let path = place.path.replace("{*}", "a/b").replace("{**}", "a").replace("{version}", "1");
        path.replace(['{', '}'], "")
    };
    places.map(|place| (place, path(place))).collect()
}

/// The methods of a place.
fn methods_of(place: &Place) -> Vec<&'static str> {
    match place.takes_every_method() {
        true => vec!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        false => place.methods(),
    }
}

fn preflight(server: &TestServer, origin: &str, method: &str, path: &str) -> Response {
    let asking = server.anybody().with("Origin", origin);
    let asking = asking.with("Access-Control-Request-Method", method);
    let asking = asking.with("Access-Control-Request-Headers", "authorization, content-type");
    asking.with("Sec-Fetch-Site", "cross-site").send("OPTIONS", path, ())
}

#[test]
fn a_preflight_names_the_methods_of_every_path() {
    let server = start(&[APP]);
    let mut count = 0;
    for (place, path) in places() {
        for method in methods_of(place) {
            let answer = preflight(&server, APP, method, &path).expect(204);
            let is_open = place.first().is_open_to_all();
            let origin = if is_open { "*" } else { APP };
            assert_eq!(allowed(&answer), Some(origin), "{method} {path}");
            let methods = listed(&answer, "access-control-allow-methods");
            assert!(methods.contains(method), "{method} {path}: {methods:?}");
            assert_eq!(methods, listed(&answer, "allow"), "{path}");
            let sent = listed(&answer, "access-control-allow-headers");
            assert!(sent.contains("Content-Type"), "{path}: {sent:?}");
            assert_eq!(sent.contains("Authorization"), !is_open, "{path}: {sent:?}");
            answer.has("access-control-max-age", "86400");
            assert_eq!(answer.find("access-control-allow-credentials"), None, "{path}");
            assert_eq!(varies_by_origin(&answer), !is_open, "{path}");
            count += 1;
        }
        for other in OTHERS {
            let answer = preflight(&server, other, "GET", &path).expect(204);
            let expected = place.first().is_open_to_all().then_some("*");
            assert_eq!(allowed(&answer), expected, "{other} {path}");
        }
    }
    assert!(count > 150, "{count}");
}

/// What is no preflight is answered as any other method, where a path takes all of them: a proxy asks about a URL with the method,
/// and the headers, of the request that it has.
#[test]
fn a_path_for_every_method_tells_preflights_from_others() {
    let server = start(&[APP]);
    let options = |path: &str| server.anybody().send("OPTIONS", path, ());
    options("/+authcheck").expect(200);
    options("/article/").expect(404);
    options("/+attachments/a").expect(404);
    let passed_on = |uri: &str| {
        let asking = of(server.anybody(), APP).with("Access-Control-Request-Method", "GET");
        asking.with("X-Original-URI", uri).send("OPTIONS", "/+authcheck", ())
    };
    passed_on("/ann/secret/+simple/").expect(401);
    passed_on("/+api").expect(200);
    // A slash too many is no redirect, which no browser would follow.
    let answer = preflight(&server, APP, "GET", "/status/").expect(204);
    assert_eq!(allowed(&answer), Some(APP));
}

/// A token of `ann` for everything.
fn token_of_ann(server: &TestServer) -> String {
    server.user("ann", "staple").make_token(json!({"scopes": ["*"]}))
}

/// As a page of this origin asks.
fn of(ask: Ask, origin: &str) -> Ask {
    ask.with("Origin", origin).with("Sec-Fetch-Site", "cross-site")
}

#[test]
fn a_page_reads_and_writes_with_its_own_token() {
    let server = start(&[APP, "https://second.example:8443"]);
    let token = token_of_ann(&server);
    for origin in [APP, "https://second.example:8443"] {
        let answer = of(server.bearer(&token), origin).json().get("/ann/secret").expect(200);
        assert_eq!(allowed(&answer), Some(origin));
        assert!(varies_by_origin(&answer));
        let exposed = listed(&answer, "access-control-expose-headers");
        for name in ["ETag", "X-Larder-Serial", "Retry-After", "Link", "Location"] {
            assert!(exposed.contains(name), "{name}: {exposed:?}");
        }
    }
    // Errors and answers without a body can be read, too.
    let page = || of(server.bearer(&token), APP);
    assert_eq!(allowed(&page().get("/article/missing").expect(404)), Some(APP));
    let known = page().with("If-None-Match", "*").get("/article/guide").expect(304);
    assert_eq!(allowed(&known), Some(APP));
    assert_eq!(allowed(&of(server.anybody(), APP).get("/ann/secret/+simple/")), Some(APP));
    let put = || page().typed("text/plain").with("If-Match", "*");
    let written = put().put("/article/guide", "more");
    assert_eq!((written.status / 100, allowed(&written)), (2, Some(APP)), "{written:?}");
}

/// What a browser adds by itself opens nothing, and changes nothing, and neither does a token on a page of another origin.
#[test]
fn a_page_is_believed_nothing_but_its_own_token() {
    let server = start(&[APP, "https://second.example:8443"]);
    let token = token_of_ann(&server);
    let page = || of(server.bearer(&token), APP);
    let remembered = of(server.user("ann", "staple"), APP);
    assert_eq!(allowed(&remembered.get("/ann/secret/+simple/").expect(200)), None);
    remembered.typed("text/plain").put("/article/other", "x").expect(403);
    let ann = Browser::of(server.client, "ann", "staple");
    let with_cookie = page().with("Cookie", &ann.cookie());
    assert_eq!(allowed(&with_cookie.get("/article/guide").expect(200)), None);
    with_cookie.typed("text/plain").put("/article/other", "x").expect(403);
    let devpi = of(server.anybody(), APP).with("X-Devpi-Auth", "YW5uOnN0YXBsZQ==");
    assert_eq!(allowed(&devpi.get("/ann/secret/+simple/")), None);
    devpi.put("/ann/new", json!({})).expect(403);
    for other in OTHERS {
        let other = of(server.bearer(&token), other);
        assert_eq!(allowed(&other.get("/article/guide").expect(200)), None);
        other.typed("text/plain").put("/article/other", "x").expect(403);
    }
}

#[test]
fn every_page_reads_what_everybody_may_read_if_that_is_allowed() {
    let server = start(&["*"]);
    let page = || server.anybody().with("Origin", "https://any.example");
    for target in
        ["/article/guide", "/articles", "/+search?query=a", "/version", "/article/missing"]
    {
        let answer = page().accept("application/json").get(target);
        assert_eq!(allowed(&answer), Some("*"), "{target}");
    }
    assert_eq!(allowed(&page().with("Authorization", "Bearer x").get("/article/guide")), None);
    page().typed("text/plain").put("/article/other", "x").expect(403);
    page().post("/actions", json!({"actions": {"example.hello_world": {}}})).expect(403);
    let answer = preflight(&server, "https://any.example", "PUT", "/article/guide").expect(204);
    answer.has("access-control-allow-methods", "GET, HEAD");
    let sent = listed(&answer, "access-control-allow-headers");
    assert!(!sent.contains("Authorization") && !sent.contains("Content-Type"), "{sent:?}");
}

#[test]
fn without_origins_only_public_answers_are_open() {
    let server = start(&[]);
    for (place, path) in places() {
        let is_open = place.first().is_open_to_all();
        let answer = preflight(&server, APP, "GET", &path).expect(204);
        assert_eq!(allowed(&answer), is_open.then_some("*"), "{path}");
        assert!(!varies_by_origin(&answer), "{path}");
    }
    for target in [
        "/rpc/v5/info/attest",
        "/packages.gz",
        "/packages?names=attest",
        "/aur/history/attest",
        "/rss",
        "/+osv/v1/vulns/none",
        "/openapi.json",
    ] {
        let answer = server.client.get_with(target, &[("Origin", APP)]);
        answer.has("access-control-allow-origin", "*");
        answer.header("access-control-expose-headers").says("Retry-After");
    }
    for target in ["/article/guide", "/", "/version", "/+tokens"] {
        let answer = server.client.get_with(target, &[("Origin", APP)]);
        assert_eq!(allowed(&answer), None, "{target}");
    }
}
