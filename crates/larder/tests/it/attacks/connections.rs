//! Memory that connections of strangers take: heads that do not end, large ones, HTTP/2 frames and streams, answers that are
//! not read. Resident memory stays within a bound above rest, and other clients are answered meanwhile.
//!
//! All connections come from one address that is a trusted proxy, as loopback is by default: so no bound for one client helps.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::frames::{End, data, frame, head, preface};
use super::memory::{STRANGERS_BYTES_MAX, Target};
use crate::asking::Says as _;
use crate::{catalogue, is_long, wait_until};

/// Connections, of which there may be few by default.
pub(super) fn allow_connections(number: u64) {
    let most = rlimit::increase_nofile_limit(2 * number + 1_000).expect("a limit");
    assert!(most > 2 * number, "{most} open files are allowed, too few for {number} connections");
}

/// Opens this many connections, each of which sends these bytes as far as the server takes them.
fn open(target: &Target, number: usize, bytes: &[u8]) -> Vec<TcpStream> {
    allow_connections(number as u64);
    let mut streams: Vec<(TcpStream, usize)> = Vec::new();
    for _ in 0..number {
        let stream = target.process.connect();
        stream.set_nonblocking(true).expect("a socket");
        streams.push((stream, 0));
    }
    // In turn, so that all are open at once.
    let mut idle_rounds = 0;
    while idle_rounds < 20 && streams.iter().any(|(_, sent)| *sent < bytes.len()) {
        let mut progress = false;
        for (stream, sent) in &mut streams {
            let piece = &bytes[*sent..bytes.len().min(*sent + 65_536)];
            if piece.is_empty() {
                continue;
            }
            match stream.write(piece) {
                Ok(taken) => (*sent, progress) = (*sent + taken, true),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // The server refused it.
                Err(_) => *sent = bytes.len(),
            }
        }
        idle_rounds = if progress { 0 } else { idle_rounds + 1 };
        if !progress {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    streams.into_iter().map(|(stream, _)| stream).collect()
}

/// Opens `number` connections that send these bytes and nothing more, and checks that the server still answers a new one.
#[track_caller]
fn check(target: &Target, what: &str, number: usize, bytes: &[u8]) {
    let number = if is_long() { 4 * number } else { number };
    target.check_above(target.rest_bytes, what, STRANGERS_BYTES_MAX, || {
        let streams = open(target, number, bytes);
        for _ in 0..20 {
            assert_eq!(target.process.client.get("/livez").status, 200, "{what}");
        }
        drop(streams);
    });
    wait_until("the connections to be gone", || {
        let open = target.process.find_metric("larder_http_connections_open");
        open.is_some_and(|open| open <= 3.0)
    });
}

/// Header lines of this many kilobytes.
fn lines(kilobytes: usize) -> String {
    (0..kilobytes).map(|it| format!("x-{it}: {}\r\n", "a".repeat(1_000))).collect()
}

#[test]
fn heads_that_do_not_end() {
    let target = Target::start(&[]);
    let start = "GET /livez HTTP/1.1\r\nHost: x\r\n";
    let head = format!("{start}{}", lines(60));
    check(&target, "heads of 60 KiB without an end", 1_000, head.as_bytes());
    check(&target, "heads of 8 KiB without an end", 4_000, &head.as_bytes()[..8_192]);
    let line = format!("GET /{}", "a".repeat(32_000));
    check(&target, "request lines without an end", 3_000, line.as_bytes());
    let two = format!("{start}\r\n{head}");
    check(&target, "heads without an end behind a request", 1_000, two.as_bytes());
}

#[test]
fn logins_that_do_not_end() {
    let target = Target::start(&[]);
    let login = |lines: &str, body: usize| {
        format!(
            "POST /+login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 16384\r\n\
             {lines}\r\n{}",
            "[".repeat(body)
        )
    };
    check(&target, "logins without an end", 2_000, login("", 16_383).as_bytes());
    check(&target, "logins with large heads", 1_000, login(&lines(58), 1).as_bytes());
}

#[test]
fn http2_frames_and_heads_that_do_not_end() {
    let target = Target::start(&[]);
    let mut part = data(1, &[b'['; 16_384]);
    part.pop();
    let partial = [preface(), head(1, "POST", "/+login", 0, End::Body), part].concat();
    check(&target, "HTTP/2 frames without an end", 2_000, &partial);
    let open = [preface(), head(1, "GET", "/livez", 60, End::Open)].concat();
    check(&target, "HTTP/2 heads without an end", 1_000, &open);
    let streams = (0..100).flat_map(|it| head(1 + 2 * it, "POST", "/+login", 40, End::Body));
    let many: Vec<u8> = preface().into_iter().chain(streams).collect();
    check(&target, "many HTTP/2 streams with large heads", 30, &many);
    check(&target, "HTTP/2 connections that ask nothing", 4_000, &preface());
}

#[test]
fn http2_windows_that_are_full() {
    let target = Target::start(&[]);
    let logins = (0..128).flat_map(|it| head(1 + 2 * it, "POST", "/+login", 0, End::Body));
    let bodies = (0..128).flat_map(|it| data(1 + 2 * it, &[b'['; 510]));
    let many: Vec<u8> = preface().into_iter().chain(logins).chain(bodies).collect();
    check(&target, "many HTTP/2 logins without an end", 100, &many);
    let tiny = (0..60_000).flat_map(|_| data(1, b"["));
    let head = head(1, "PUT", "/article/x", 0, End::Body);
    let bytes: Vec<u8> = preface().into_iter().chain(head).chain(tiny).collect();
    check(&target, "HTTP/2 bodies of tiny pieces", 30, &bytes);
}

#[test]
fn answers_that_nobody_reads() {
    let target = Target::start_with(&[], catalogue::generation(1, 3_000));
    // No window, so that all is kept until it opens.
    let shut = [preface(), frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
    let path = "/rpc/?v=5&type=search&by=name&arg=shared";
    let asked = (0..100).flat_map(|it| head(1 + 2 * it, "GET", path, 0, End::Request));
    let bytes: Vec<u8> = shut.into_iter().chain(asked).collect();
    check(&target, "HTTP/2 answers that nobody reads", 20, &bytes);
}

/// Connections that wait for their next request take little and are not refused, as many as there may be.
#[test]
fn idle_connections_stay_and_take_little() {
    let target = Target::start(&[]);
    let request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    target.check_above(target.rest_bytes, "idle connections", STRANGERS_BYTES_MAX, || {
        let mut streams = open(&target, 6_000, b"");
        for _ in 0..2 {
            for stream in &mut streams {
                stream.set_nonblocking(false).expect("a socket");
                stream.write_all(request).expect("it is open");
            }
            for stream in &mut streams {
                let mut answer = [0; 12];
                stream.read_exact(&mut answer).expect("an answer");
                assert_eq!(&answer, b"HTTP/1.1 200");
                // The rest of it is short, and there by now or soon.
                let mut rest = [0; 4096];
                assert!(stream.read(&mut rest).expect("the rest") > 0);
            }
        }
    });
}

/// Heads that are answered are over: connections that ask again and again take no more than those that ask once.
#[test]
fn connections_that_ask_again_and_again_are_answered() {
    let target = Target::start(&["--limits-connections-memory-bytes-max", "4194304"]);
    let request = format!("GET /livez HTTP/1.1\r\nHost: x\r\nx: {}\r\n\r\n", "a".repeat(200));
    // These take nearly all the memory.
    let mut streams = open(&target, 190, b"");
    for stream in &streams {
        stream.set_nonblocking(false).expect("a socket");
    }
    for round in 0..100 {
        for stream in &mut streams {
            stream.write_all(request.as_bytes()).expect("it is open");
        }
        for stream in &mut streams {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"HTTP/1.1 200", "round {round}");
            let mut rest = [0; 4096];
            assert!(stream.read(&mut rest).expect("the rest") > 0);
        }
    }
    target.process.get("/metrics").says("larder_http_connections_out_of_memory_total 0\n");
}

/// A client that finds no room is told when to try again.
#[test]
fn a_refused_head_is_told_when_to_come_again() {
    let target = Target::start(&["--limits-connections-memory-bytes-max", "4194304"]);
    let head = format!("GET /livez HTTP/1.1\r\nHost: x\r\n{}", lines(60));
    let streams = open(&target, 100, head.as_bytes());
    let refusal = |mut stream: &TcpStream| {
        let mut answer = [0; 1024];
        let bytes = stream.read(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..bytes]).into_owned())
    };
    let mut answer = None;
    wait_until("a refusal", || {
        answer = streams.iter().find_map(refusal);
        answer.is_some()
    });
    let answer = answer.expect("it was waited for");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    answer.says("\r\nretry-after: ");
    target.process.get("/livez").expect(200);
    target.process.get("/metrics").says("larder_http_connections_out_of_memory_total");
}
