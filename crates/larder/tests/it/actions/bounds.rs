//! Requests that are too many, too large, too deep, or lie about their size.

use std::io::Write;
use std::net::Shutdown;

use super::post;
use crate::catalogue;
use crate::client::Response;
use crate::server::{TestServer, small};

fn many(count: usize) -> String {
    let calls: Vec<String> = (0..count).map(|at| format!("\"a{at}\":{{}}")).collect();
    format!("{{\"actions\":{{{}}}}}", calls.join(","))
}

#[test]
fn actions_in_one_request() {
    let most = post(&many(100)).expect(200);
    assert_eq!(most.json().as_object().expect("an object").len(), 100);
    for count in [101, 50_000] {
        post(&many(count)).tells(400, "the request is not as expected: more than 100 actions, the most that one request may have at line 1 column 908");
    }
}

#[test]
fn size() {
    let body = format!("{{\"actions\":{{\"{}\":{{}}}}}}", "x".repeat(1 << 20));
    post(&body).tells(413, "the body has more than 1048576 bytes, the most that is accepted");
    // An error repeats no more of a long name than is of use.
    let response = post(&body[body.len() / 2..]);
    assert!(response.body.len() < 1000, "{} bytes", response.body.len());
    let long = "x".repeat(1 << 19);
    for body in [format!("\"{long}\""), format!("{{\"actions\":\"{long}\"}}")] {
        let response = post(&body).expect(400);
        assert!(response.body.len() < 1000, "{} bytes", response.body.len());
        response.says("expected an object");
    }
    let name = format!("{{\"actions\":{{\"{}\":{{}}}}}}", "x".repeat(1 << 19));
    let known = post(&name).json()["detail"].as_str().map(str::len);
    assert!(known.is_some_and(|bytes| bytes < 1000), "{known:?}");
}

#[test]
fn depth() {
    for levels in [40, 100_000] {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        let response =
            post(&format!("{{\"actions\":{{\"aur.info\":{{\"names\":{open}{close}}}}}}}"));
        response.tells(400, "the JSON is nested deeper than 32 levels, the most that is accepted");
    }
}

#[test]
fn a_body_that_is_shorter_than_it_says() {
    let mut stream = small().connect();
    let head = "POST /actions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{\"actions\":";
    stream.write_all(head.as_bytes()).expect("a request");
    stream.shutdown(Shutdown::Write).expect("a half-closed connection");
    let mut bytes = Vec::new();
    // The server may answer or just close: it must not wait for the rest.
    let _ = std::io::Read::read_to_end(&mut stream, &mut bytes);
    assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 4"), "{bytes:?}");
}

#[test]
fn results_together() {
    let server = TestServer::serving_with(&catalogue::small(), |config| {
        config.actions.results_bytes_max = 2_000;
    });
    let ask = |body: &str| -> Response { server.post("/actions", "", body.as_bytes()) };
    ask(r#"{"actions":{"aur.search":{"needle":"e","by":"maintainer"}}}"#).expect(200);
    let large = r#"{"needle":"anna","by":"maintainer"}"#;
    ask(&format!("{{\"actions\":{{\"aur.search\":{large}}}}}")).tells(400, "with 2681 bytes more, the results of this request would have more than 2000, the most there may be; it was run");
    let several = ask(&format!(
        "{{\"actions\":{{\"example.hello_world\":{{}},\"aur.search\":{large},\"server.status\":{{}}}}}}"
    ));
    let answers = several.json();
    assert_eq!(answers["example.hello_world"]["result"], "Hello world!");
    assert_eq!(answers["aur.search"]["error"]["status"], 400);
    assert!(answers["server.status"]["result"].is_object(), "what fits after it is there");
}
