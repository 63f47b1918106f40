//! A writer who was overtaken: who was first, and both changes in one text where that can be.

use insta::assert_snapshot;
use serde_json::Value;

use super::{code, noise, store, text, wiki, wiki_with};
use crate::client::Response;
use crate::server::TestServer;
use crate::shown::shown_json;

const BASE: &[u8] = b"one\ntwo\nthree\nfour\n";

fn sample() -> TestServer {
    let server = wiki();
    store(&server, "a/0", BASE);
    store(&server, "a/1", b"ONE\ntwo\nthree\nfour\n");
    server
}

/// The merge that is proposed to a writer of this text from version 1.
#[track_caller]
fn merge(server: &TestServer, body: &[u8]) -> Value {
    let response = server.root().post("/article/a/1", body);
    assert_eq!((response.status, code(&response).as_str()), (409, "stale"), "{}", response.text());
    response.json()["merge"].clone()
}

#[test]
fn changes_in_different_places_are_merged() {
    let server = sample();
    let response = server.root().post("/article/a/1", "one\ntwo\nthree\nFOUR\n").expect(409);
    let json = response.json();
    assert_snapshot!("merged", shown_json(&json));
    response.has("etag", server.get("/article/a").header("etag"));
    // The proposal is taken by sending it back.
    let merged = json["merge"]["text"].as_str().expect("a text").to_owned();
    assert_eq!(merged, "ONE\ntwo\nthree\nFOUR\n");
    store(&server, "a/2", merged.as_bytes());
    assert_eq!(server.get("/article/a").text(), merged);
}

#[test]
fn a_tag_that_is_old_is_worth_a_merge_too() {
    let server = sample();
    let old = server.get("/article/a/1").header("etag").to_owned();
    let put = |tag: &str| {
        server.root().with("If-Match", tag).put("/article/a", "one\ntwo\nthree\nFOUR\n")
    };
    let response = put(&old);
    assert_eq!((response.status, code(&response).as_str()), (412, "precondition_failed"));
    assert_eq!(response.json()["merge"]["text"], "ONE\ntwo\nthree\nFOUR\n");
    assert_eq!(put("\"unknown\"").json()["merge"], Value::Null);
    server.get("/article/a").has("x-article-version", "2");
}

#[test]
fn changes_in_one_place_are_shown() {
    let server = sample();
    assert_snapshot!("conflict", shown_json(&merge(&server, b"1\ntwo\nthree\nfour\n")));
}

#[test]
fn the_same_text_is_said_to_be() {
    let server = sample();
    let headers = [("Content-Type", "text/markdown")];
    let response = server.root().with_all(&headers).post("/article/a/1", "ONE\ntwo\nthree\nfour\n");
    assert_eq!((response.status, &response.json()["same_content"]), (409, &Value::Bool(true)));
}

#[test]
fn bytes_are_not_merged() {
    let server = sample();
    assert_eq!(merge(&server, b"\xff\n")["reason"], "only text can be merged");
    store(&server, "a/2", &noise(100));
    assert_eq!(merge(&server, BASE)["outcome"], "none");
    server.root().delete("/article/a/3");
    let response = server.root().post("/article/a/1", BASE);
    assert_eq!((response.status, code(&response).as_str()), (409, "deleted"));
    assert_eq!(response.json()["merge"]["outcome"], "none", "{}", response.text());
    assert_eq!(response.find("etag"), None);
}

#[test]
fn large_texts_are_not_merged() {
    let server = wiki_with(|config| config.article.merge_bytes_max = 10_000);
    store(&server, "a/0", &text(9_000));
    store(&server, "a/1", &text(9_100));
    assert_eq!(merge(&server, &text(9_200))["outcome"], "conflict");
    assert_eq!(merge(&server, &text(10_001)), Value::Null, "it was not kept in memory");
    store(&server, "a/2", &text(10_001));
    assert_eq!(merge(&server, &text(9_200))["outcome"], "none");
}

#[test]
fn texts_that_memory_does_not_keep_are_merged_and_compared() {
    let server = wiki_with(|config| config.article.memory_bytes_max = 0);
    store(&server, "a/0", BASE);
    store(&server, "a/1", b"ONE\ntwo\nthree\nfour\n");
    assert_eq!(merge(&server, b"one\ntwo\nthree\nFOUR\n")["text"], "ONE\ntwo\nthree\nFOUR\n");
    server.get("/article/a/diff").expect(200).says("-one\n+ONE\n");
}

/// A PUT of `BASE` with another end, under this precondition, whose body ends after another writer's revision of `name`.
#[track_caller]
fn put_slowly(server: &TestServer, name: &str, precondition: (&str, &str), base: u32) -> Response {
    let body = b"one\ntwo\nthree\nFOUR\n";
    let ask = server.root().typed("text/markdown").with("Connection", "close");
    let ask = ask.with(precondition.0, precondition.1);
    let stream = ask.announce("PUT", &format!("/article/{name}"), body.len());
    store(server, &format!("{name}/{base}"), b"ONE\ntwo\nthree\nfour\n");
    Response::after(body, stream)
}

/// A precondition is one of the moment of the write: what came while the body did, counts.
#[test]
fn a_precondition_that_fails_while_the_body_comes() {
    let server = wiki();
    let tag = store(&server, "a/0", BASE).header("etag").to_owned();
    let response = put_slowly(&server, "a", ("If-Match", &tag), 1);
    assert_eq!((response.status, code(&response).as_str()), (412, "precondition_failed"));
    let json = response.json();
    assert_eq!((&json["base_version"], &json["latest_version"]), (&1.into(), &2.into()));
    assert_eq!(json["merge"]["text"], "ONE\ntwo\nthree\nFOUR\n");
    response.has("etag", server.get("/article/a").header("etag"));
    let response = put_slowly(&server, "new", ("If-None-Match", "*"), 0);
    assert_eq!((response.status, code(&response).as_str()), (412, "precondition_failed"));
    // `*` matches whatever version exists at the commit.
    let response = put_slowly(&server, "a", ("If-Match", "*"), 2);
    assert_eq!((response.status, &response.json()["version"]), (201, &4.into()));
}

#[test]
fn a_precondition_that_fails_for_the_same_text_says_so() {
    let server = sample();
    let old = server.get("/article/a/1").header("etag").to_owned();
    let headers = [("If-Match", old.as_str()), ("Content-Type", "text/markdown")];
    let put = |body: &[u8]| server.root().with_all(&headers).put("/article/a", body);
    let response = put(b"ONE\ntwo\nthree\nfour\n");
    assert_eq!((response.status, &response.json()["same_content"]), (412, &true.into()));
    assert_eq!(put(BASE).json()["same_content"], false);
}
