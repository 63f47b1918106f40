//! Clients that send or read slowly, or not at all: they are cut off, and cost others nothing.

use super::requests::{END_HEADERS, END_STREAM, HEADERS, SETTINGS, frame, header, preface};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_head_is_cut_off_while_others_are_answered() {
    let server = Running::start(Limits { header_timeout: SHORT, ..limits() });
    let mut silent = server.connect();
    let mut slow = server.connect();
    let trickle = tokio::task::spawn_blocking(move || {
        let mut written = 0;
        while slow.write_all(b"GET / HTTP/1.1\r\nx: y\r\n").is_ok() && written < 1000 {
            written += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        written
    });
    server.is_alive().await;
    assert_eq!(blocking(move || read_to_end(&mut silent)).await, "");
    server.is_alive().await;
    assert!(within(trickle).await.unwrap() < 1000);
    until(|| server.counters.connections_cut.get() == 2).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_head_after_a_good_request_is_cut_off() {
    let server = Running::start(Limits { header_timeout: SHORT, ..limits() });
    let mut client = server.connect();
    let answer = blocking(move || {
        let mut buffer = [0; 1024];
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let read = client.read(&mut buffer).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhos").unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned() + &read_to_end(&mut client)
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    assert_eq!(server.counters.connections_cut.get(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_not_counted_as_cut() {
    let server = Running::start(Limits { idle_timeout: SHORT, ..limits() });
    let answer = server.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.ends_with("hello"), "{answer}");
    assert_eq!(server.counters.connections_cut.get(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_http2_connection_is_closed() {
    let server = Running::start(Limits { idle_timeout: SHORT, ..limits() });
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    client.get(format!("http://{}/", server.tcp())).send().await.unwrap().text().await.unwrap();
    until(|| server.counters.connections_open.get() == 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_cut_off() {
    let server = Running::start(Limits { body_timeout: SHORT, ..limits() });
    let answer =
        server.exchange("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc").await;
    assert_eq!(answer, "");
    assert_eq!(server.counters.connections_cut.get(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_cut_off_while_others_are_answered() {
    let server = Running::start(Limits { write_stall_timeout: SHORT, ..limits() });
    let mut client = server.connect();
    client.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    server.is_alive().await;
    until(|| server.counters.connections_cut.get() == 1).await;
    until(|| server.counters.connections_open.get() == 0).await;
    let answer = blocking(move || read_to_end(&mut client)).await;
    assert!(answer.len() < 64 << 20);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_that_opens_no_window_is_cut_off() {
    let server = Running::start(Limits { write_stall_timeout: SHORT, ..limits() });
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(16_384)
        .build()
        .unwrap();
    // The response is held, its body is not read: the window stays shut.
    let response = client.get(format!("http://{}/large", server.tcp())).send().await.unwrap();
    until(|| server.counters.connections_cut.get() == 1).await;
    assert!(response.bytes().await.is_err());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_that_reads_nothing_is_cut_off() {
    const GET: u8 = 0x82;
    const WINDOW_UPDATE: u8 = 8;
    // INITIAL_WINDOW_SIZE, and as much for the connection: only the system's buffers hold the server back.
    let windows = [
        frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &header(GET, "/large")),
    ];
    let server = Running::start(Limits { write_stall_timeout: SHORT, ..limits() });
    let mut client = server.connect();
    client.write_all(&[preface(), windows.concat()].concat()).unwrap();
    until(|| server.counters.connections_cut.get() == 1).await;
    until(|| server.counters.connections_open.get() == 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_everything() {
    let server = Running::start(Limits {
        write_stall_timeout: Duration::from_secs(2),
        idle_timeout: SHORT,
        ..limits()
    });
    let mut client = server.connect();
    client.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let bytes = blocking(move || {
        let mut buffer = vec![0; 4 << 20];
        let mut bytes = 0;
        while let Ok(read) = client.read(&mut buffer) {
            if read == 0 {
                break;
            }
            bytes += read;
            std::thread::sleep(Duration::from_millis(10));
        }
        bytes
    })
    .await;
    assert!(bytes > 64 << 20, "{bytes}");
    server.stop().await;
}
