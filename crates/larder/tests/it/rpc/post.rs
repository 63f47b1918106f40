//! Questions in bodies: forms, multipart and JSON, large, too large and broken.

use std::io::Write;

use crate::asking::each;
use crate::catalogue;
use crate::client::Response;
use crate::server::{TestServer, large, small};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

#[track_caller]
fn check(target: &str, content_type: &str, body: &str, names: &str) {
    let response = small().post(target, content_type, body.as_bytes());
    assert_eq!(response.names(), names, "{target} {body}");
    let is_bad = names.starts_with("error: the");
    assert_eq!(response.status, if is_bad { 400 } else { 200 }, "{target} {body}");
}

#[test]
fn forms() {
    for target in ["/rpc", "/rpc/", "/rpc.php", "/rpc.php/"] {
        // raur, paru.
        check(target, FORM, "arg%5B%5D=attest&arg%5B%5D=yogurt&v=5&type=info", "attest yogurt");
        check(target, FORM, "v=5&type=search&by=provides&arg=attest", "attest attest-git");
    }
    let rows = [
        ("/rpc", FORM, "v=5&type=info&arg=yogurt&arg[]=attest", "yogurt attest"),
        ("/rpc", FORM, "v=5&type=search&arg=red+apple", "two-words"),
        ("/rpc", FORM, "v=5&type=info&arg=libstdc%2B%2B5", "libstdc++5"),
        // aurutils begins with the separator; auracle leaves the brackets as they are.
        ("/rpc/v5/info", FORM, "&arg[]=attest&arg[]=yogurt", "attest yogurt"),
        ("/rpc/v5/info", FORM, "arg[]=attest&arg[]=Attest&arg[]=no-such", "attest"),
        ("/rpc/v5/search/attest", FORM, "by=name", "attest attest-git"),
        ("/rpc/v5/suggest", FORM, "arg=split", "split-a split-b"),
        ("/rpc/v5/info", "", "arg[]=attest", "attest"),
        ("/rpc/v5/info", "text/plain", "arg[]=attest", "attest"),
        ("/rpc", FORM, "", "error: Please specify an API version."),
        ("/rpc/v5/info", FORM, "", "error: No request type/data specified."),
        ("/api", FORM, "v=6&type=info&arg=attest&arg=yogurt", "attest yogurt"),
    ];
    each(rows, |(target, content_type, body, names)| check(target, content_type, body, names));
}

#[test]
fn multipart() {
    let body = "--sep\r\nContent-Disposition: form-data; name=\"v\"\r\n\r\n5\r\n\
                --sep\r\nContent-Disposition: form-data; name=\"type\"\r\n\r\ninfo\r\n\
                --sep\r\nContent-Disposition: form-data; name=\"arg[]\"\r\n\r\nlibstdc++5\r\n\
                --sep\r\nContent-Disposition: form-data; name=\"arg[]\"\r\n\r\nattest\r\n--sep--\r\n";
    let kind = "multipart/form-data; boundary=sep";
    check("/rpc", kind, body, "libstdc++5 attest");
    check("/rpc/v5/info", kind, body, "libstdc++5 attest");
    // A field that does not end is none, as in aurweb.
    check("/rpc", kind, &body[..body.len() - 30], "libstdc++5");
    let error = "error: Please specify an API version.";
    for broken in
        ["--sep\r\nContent-Disposition: form-data; name=\"v\"\r\n\r\n5", "no form at all", ""]
    {
        check("/rpc", kind, broken, error);
    }
    let file = body.replacen("name=\"arg[]\"", "name=\"arg[]\"; filename=\"a\"", 1);
    for (kind, body, status) in [("multipart/form-data", body, 400), (kind, &file, 422)] {
        let answer = small().post("/rpc", kind, body.as_bytes());
        answer.expect(status).has("content-type", "application/problem+json");
    }
}

#[test]
fn json() {
    check("/rpc/v5/info", JSON, r#"{"arg": ["attest", "yogurt"]}"#, "attest yogurt");
    check("/rpc/v5/info", "application/json; charset=utf-8", r#"{"arg": ["attest"]}"#, "attest");
    check("/rpc/v5/search", JSON, r#"{"arg": "attest", "by": "name"}"#, "attest attest-git");
    check("/rpc/v5/suggest", JSON, r#"{"arg": "split"}"#, "split-a split-b");
    check(
        "/rpc/v5/info",
        JSON,
        r#"{"arg": "attest"}"#,
        "error: the 'arg' parameter must be of array type",
    );
    check(
        "/rpc/v5/search",
        JSON,
        r#"{"arg": ["attest"]}"#,
        "error: the 'arg' parameter must be of string type",
    );
    check(
        "/rpc/v5/search",
        JSON,
        r#"{"arg": "at", "by": 1}"#,
        "error: the 'by' parameter must be of string type",
    );
    for broken in ["{", "", "[]", "null", "nonsense", "{\"arg\": [\"a\"]} more", "\u{feff}{}"] {
        check("/rpc/v5/info", JSON, broken, "error: the body must be a JSON object");
    }
    let deep = "[".repeat(100_000);
    check("/rpc/v5/info", JSON, &deep, "error: the body must be a JSON object");
    check(
        "/rpc/v5/info",
        JSON,
        &format!("{{\"arg\": {deep}"),
        "error: the body must be a JSON object",
    );
}

#[test]
fn bytes_that_are_no_text() {
    let bytes: Vec<u8> = (0..=255).cycle().take(20_000).collect();
    for content_type in
        [FORM, JSON, "multipart/form-data; boundary=x", "multipart/form-data", "\u{ff}"]
    {
        for target in ["/rpc", "/rpc/v5/info", "/rpc/v6/search"] {
            let response = small().post(target, content_type, &bytes);
            response.expect_one_of([200, 400]);
        }
    }
}

fn body_of(names: &[String]) -> String {
    // In aurutils' spelling.
    names.iter().map(|name| format!("&arg[]={}", name.replace('+', "%2B"))).collect()
}

#[test]
fn five_thousand_names() {
    let (_, names) = catalogue::large();
    let body = body_of(&names[..5_000]);
    assert!(body.len() > 100_000, "more than one read");
    let response = large().form("/rpc/v5/info", &body).expect(200);
    let json = response.json();
    assert_eq!((&json["resultcount"], &json["type"]), (&5_000.into(), &"multiinfo".into()));
    let found: Vec<&str> = json["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["Name"].as_str().unwrap())
        .collect();
    assert!(found == names[..5_000], "in the order of the request");

    let json = serde_json::json!({ "arg": names[..5_000] }).to_string();
    let response = large().post("/rpc/v5/info", JSON, json.as_bytes());
    assert_eq!(response.json()["resultcount"], 5_000);

    for body in [body_of(&names[..5_001]), body_of(names)] {
        let response = large().form("/rpc/v5/info", &body);
        assert_eq!(
            (response.status, response.names()),
            (200, "error: Too many package results.".to_owned())
        );
    }
}

fn small_bodies() -> TestServer {
    TestServer::serving_with(&catalogue::small(), |config| config.limits.body_bytes_max = 10_000)
}

#[track_caller]
fn check_too_large(response: &Response) {
    response
        .tells(413, "the body has more than 10000 bytes, the most that is accepted")
        .has("content-type", "application/problem+json");
}

#[test]
fn bodies_over_the_limit() {
    let server = small_bodies();
    let body = format!("arg[]=attest&x={}", "y".repeat(100_000));
    // Announced and sent.
    check_too_large(&server.form("/rpc/v5/info", &body));
    // Announced and never sent: the answer does not wait for it.
    let head = "POST /rpc/v5/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let request = format!("{head}Content-Length: 1000000000000\r\n\r\n");
    check_too_large(&server.exchange(request.as_bytes(), false));
    // Chunked, so that the length is not known beforehand.
    let chunks: String = (0..100).map(|_| format!("400\r\n{}\r\n", "y".repeat(1_024))).collect();
    let request = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    check_too_large(&server.exchange(request.as_bytes(), false));
    // Chunked and small enough.
    let request =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n6\r\n&arg[]\r\n7\r\n=attest\r\n0\r\n\r\n");
    assert_eq!(server.client.exchange(request.as_bytes(), false).names(), "attest");
    let fits = format!("arg[]=attest&x={}", "y".repeat(10_000 - 15));
    assert_eq!(server.client.form("/rpc/v5/info", &fits).names(), "attest");
    check_too_large(&server.form("/rpc/v5/info", &format!("{fits}y")));
}

/// A body that arrives in many pieces, without any line, is no endless request line.
#[test]
fn a_large_body_in_pieces_on_a_connection_that_goes_on() {
    let (_, names) = catalogue::large();
    let body = body_of(&names[..4_000]);
    let mut stream = large().connect();
    for closes in [false, true] {
        let connection = if closes { "close" } else { "keep-alive" };
        let head = format!(
            "POST /rpc/v5/info HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        for piece in body.as_bytes().chunks(10_000) {
            stream.write_all(piece).unwrap();
            stream.flush().unwrap();
            std::thread::yield_now();
        }
        if !closes {
            let mut first = Vec::new();
            read_one(&mut stream, &mut first);
            assert!(
                first.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(&first[..100])
            );
        }
    }
    let last = Response::read(&mut stream, false);
    assert_eq!(last.json()["resultcount"], 4_000);
}

/// Reads one answer with a `Content-Length`.
fn read_one(stream: &mut impl std::io::Read, bytes: &mut Vec<u8>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut buffer).expect("an answer");
        assert!(read > 0, "closed within an answer");
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        if bytes.len() >= end + 4 + length {
            return;
        }
    }
}
