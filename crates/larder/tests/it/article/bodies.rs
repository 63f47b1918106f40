//! Bodies that are large, late, cut, or not what they were said to be: a clear answer, and nothing kept.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::{code, noise, store, wiki, wiki_with};
use crate::client::Response;
use crate::server::{ROOT, TestServer};
use crate::{PATIENCE, wait_until};

fn limited() -> TestServer {
    wiki_with(|config| {
        config.article.body_bytes_max = 100_000;
        config.limits.body_timeout = Duration::from_secs(1);
    })
}

/// Sends a POST: its headers, then `body` unchanged.
#[track_caller]
fn post(server: &TestServer, headers: &str, body: &[u8]) -> Response {
    let mut stream = server.connect();
    let head = format!(
        "POST /article/a/0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}: {}\r\n{headers}\r\n",
        ROOT.0, ROOT.1
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    // The server may refuse before it has read everything.
    let _ = stream.write_all(body);
    Response::read(&mut stream, false)
}

fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

/// Nothing is kept, and nothing is left lying about.
#[track_caller]
fn check_nothing(server: &TestServer, files_before: usize) {
    server.get("/article/a").expect(404);
    let data_dir = &server.app.config.data_dir;
    wait_until("the parts to be removed", || blob_files(data_dir) == files_before);
}

fn blob_files(data_dir: &Path) -> usize {
    files(&data_dir.join("spool")) + files(&data_dir.join("blobs"))
}

#[test]
fn sizes() {
    let server = limited();
    let before = blob_files(&server.app.config.data_dir);
    // The announced length alone is refused: no byte of the body is sent.
    post(&server, "Content-Length: 100001\r\n", b"").expect(413);
    let response = post(&server, "Content-Length: 1099511627776\r\n", b"");
    assert_eq!((response.status, code(&response).as_str()), (413, "too_large"));
    for lie in ["-1", "x", "1, 2", ""] {
        post(&server, &format!("Content-Length: {lie}\r\n"), b"x").expect(400);
    }
    // A body in a coding that cannot be decoded is refused.
    let response = post(&server, "Transfer-Encoding: gzip, chunked\r\n", b"1\r\nx\r\n0\r\n\r\n");
    response.tells(501, "the transfer coding `gzip` is not understood, only `chunked` is");
    // Without an announced length, it is refused as soon as it is too long.
    let piece = [b"4000\r\n".as_slice(), &noise(0x4000), b"\r\n"].concat();
    let response = post(&server, "Transfer-Encoding: chunked\r\n", &piece.repeat(20));
    assert_eq!((response.status, code(&response).as_str()), (413, "too_large"));
    check_nothing(&server, before);
    let body = noise(100_000);
    server.root().post("/article/a/0", &body).expect(201);
    assert!(server.get("/article/a").body == body);
    let pieces = [b"3\r\none\r\n".as_slice(), b"4\r\n two\r\n", b"0\r\n\r\n"].concat();
    let response = post(&server, "Transfer-Encoding: chunked\r\n", &pieces);
    // It exists.
    response.expect(409);
}

#[test]
fn a_body_in_pieces() {
    let server = limited();
    let pieces = [b"3\r\none\r\n".as_slice(), b"4\r\n two\r\n", b"0\r\n\r\n"].concat();
    let response = post(&server, "Transfer-Encoding: chunked\r\n", &pieces);
    assert_eq!((response.status, server.get("/article/a").text()), (201, "one two".to_owned()));
}

#[test]
fn a_client_waits_until_its_body_is_wanted() {
    let server = limited();
    let expect = "Expect: 100-continue\r\nContent-Length: 100001\r\n";
    // No 100 comes before it.
    post(&server, expect, b"").expect(413);
}

#[test]
fn a_body_that_ends_early_or_never_is_not_kept() {
    let server = limited();
    let before = blob_files(&server.app.config.data_dir);
    // The connection is closed within the body.
    for framing in ["Content-Length: 50000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut stream = server.connect();
        let head = format!(
            "POST /article/a/0 HTTP/1.1\r\nHost: x\r\n{}: {}\r\n{framing}\r\n8000\r\n",
            ROOT.0, ROOT.1
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        stream.write_all(&noise(20_000)).expect("the server reads");
        drop(stream);
    }
    // The body stops in the middle: the connection is closed, with an answer or without.
    let mut stream = server.connect();
    let head = format!(
        "POST /article/a/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n{}: {}\r\n\r\nbeginning",
        ROOT.0, ROOT.1
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    check_nothing(&server, before);
    store(&server, "a/0", b"well");
}

#[test]
fn a_body_that_nobody_may_send_is_not_read() {
    let server = limited();
    let before = blob_files(&server.app.config.data_dir);
    let mut stream = server.connect();
    let head = "POST /article/a/0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 90000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the server reads");
    Response::read(&mut stream, false).expect(401);
    check_nothing(&server, before);
}

/// Writers who are refused leave no files that only a sweep would find.
#[test]
fn refused_writes_leave_no_blobs() {
    let server = wiki();
    store(&server, "a/0", b"one");
    store(&server, "a/1", b"two");
    let before = blob_files(&server.app.config.data_dir);
    for body in ["three", "four"] {
        server.root().post("/article/a/1", body.as_bytes()).expect(409);
    }
    assert_eq!(blob_files(&server.app.config.data_dir), before);
}
