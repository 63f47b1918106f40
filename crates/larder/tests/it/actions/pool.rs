//! Computations: bounded, refused at once if there are too many, and without delaying other requests.

use std::thread;

use crate::server::{TestServer, busy};
use crate::wait_until;

const COMPUTE: &[u8] = br#"{"actions":{"example.fibonacci":{"n":20}}}"#;

fn queue_length(server: &TestServer) -> f64 {
    server.metric("larder_cpu_pool_queue_length")
}

#[test]
fn a_full_queue_refuses_at_once_and_the_rest_is_answered() {
    let (server, release) = busy(1);
    let client = server.client;
    let waiting = thread::spawn(move || client.post("/actions", "", COMPUTE));
    wait_until("one to wait", || queue_length(&server) == 1.0);

    let refused = client.post("/actions", "", COMPUTE).expect(503);
    refused.has("retry-after", "1").has("content-type", "application/problem+json");
    assert_eq!(refused.json()["action"], "example.fibonacci");
    let answers = client
        .post(
            "/actions",
            "",
            br#"{"actions":{"example.fibonacci":{"n":20},"example.hello_world":{}}}"#,
        )
        .expect(200)
        .json();
    assert_eq!(answers["example.fibonacci"]["error"]["status"], 503);
    assert_eq!(answers["example.fibonacci"]["error"]["retry_after_seconds"], 1);
    assert_eq!(answers["example.hello_world"]["result"], "Hello world!");
    assert_eq!(server.get("/rpc/v5/info/attest").names(), "attest");
    server.get("/articles").expect(200);
    assert_eq!(server.metric("larder_cpu_pool_refused_total"), 2.0);
    let unavailable = "larder_actions_total{action=\"example.fibonacci\",outcome=\"unavailable\"}";
    assert_eq!(server.metric(unavailable), 2.0);

    drop(release);
    let answered = waiting.join().expect("an answer");
    assert_eq!(answered.text(), r#"{"n":20,"value":6765}"#);
    let ok = "larder_actions_total{action=\"example.fibonacci\",outcome=\"ok\"}";
    assert_eq!(server.metric(ok), 1.0);
}

#[test]
fn a_client_that_goes_away_takes_its_computation_with_it() {
    let (server, release) = busy(1);
    let mut stream = server.connect();
    let head =
        format!("POST /actions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", COMPUTE.len());
    std::io::Write::write_all(&mut stream, &[head.as_bytes(), COMPUTE].concat())
        .expect("a request");
    wait_until("it to wait", || queue_length(&server) == 1.0);
    drop(stream);
    wait_until("its place to be free", || queue_length(&server) == 0.0);
    assert_eq!(server.metric("larder_cpu_pool_abandoned_total"), 1.0);
    drop(release);
}

#[test]
fn unknown_actions_are_counted_under_one_name() {
    let server = TestServer::without_source(|_| ());
    for name in ["x", "y"] {
        let body = format!("{{\"actions\":{{\"{name}\":{{}}}}}}");
        server.post("/actions", "", body.as_bytes()).expect(400);
    }
    let refused = "larder_actions_total{action=\"unknown\",outcome=\"refused\"}";
    assert_eq!(server.metric(refused), 2.0);
}
