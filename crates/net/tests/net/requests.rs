//! Request lines that hyper would refuse: targets that are mended, and refusals with a text.

use super::tls::Certificate;
use super::*;

/// Everything that may carry HTTP/1: plain TCP, TLS, and a Unix socket.
async fn check_everywhere(request: Vec<u8>, expected: impl Fn(&str)) {
    let plain = Running::start(limits());
    expected(&plain.exchange(request.clone()).await);
    // In pieces, as a slow network brings it.
    let mut client = plain.connect();
    client.set_nodelay(true).unwrap();
    let pieces: Vec<Vec<u8>> = request.chunks(7).map(<[u8]>::to_vec).collect();
    let answer = blocking(move || {
        for piece in pieces {
            let _ = client.write_all(&piece);
            std::thread::yield_now();
        }
        read_to_end(&mut client)
    });
    expected(&answer.await);
    plain.stop().await;

    install_crypto_provider();
    let certificate = Certificate::new();
    let trusted = TrustedProxies::default;
    let tls = Running::start_on(tcp(), limits(), Some(certificate.load()), trusted(), PATIENCE);
    let mut stream = certificate.stream(&tls);
    let sent = request.clone();
    let answer = blocking(move || {
        stream.write_all(&sent).unwrap();
        read_to_end(&mut stream)
    });
    expected(&answer.await);
    tls.stop().await;

    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let address = format!("unix:{}", socket.display()).parse().unwrap();
    let listener = bind(&[address], &Access::default()).unwrap().remove(0);
    let unix = Running::start_on(listener, limits(), None, trusted(), PATIENCE);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = blocking(move || {
        stream.write_all(&request).unwrap();
        read_to_end(&mut stream)
    });
    expected(&answer.await);
    unix.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_with_raw_bytes_are_answered() {
    let target = b"/target/\"<>`{|}\\^[]~\xc3\xa9\xff\xed\xa0\x80?q=\"<>`{|}\\^[]~\xc3\xa9\xff\xed\xa0\x80&r=>=1";
    let expected = "/target/%22%3C%3E%60{|}\\^[]~%C3%A9%FF%ED%A0%80?q=%22%3C%3E%60{|}\\^[]~%C3%A9%FF%ED%A0%80&r=%3E=1";
    let request = |start: &[u8]| {
        let headers = b" HTTP/1.1\r\nhost: x\r\nx: \"<>\xff\r\nconnection: close\r\n\r\n";
        [b"GET ".as_slice(), start, target, headers].concat()
    };
    for start in [b"".as_slice(), b"http://x"] {
        check_everywhere(request(start), |answer| {
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            let start = String::from_utf8_lossy(start);
            assert!(answer.ends_with(&format!("\r\n\r\n{start}{expected}")), "{answer}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mended_target_may_be_longer_than_a_read() {
    let server = Running::start(limits());
    let target = format!("/target/{}", "<".repeat(8_000));
    let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let answer = server.exchange(request).await;
    assert!(answer.ends_with(&target.replace('<', "%3C")), "{}", answer.len());
    // A URL that is too long is refused with that reason, whether its line is complete or not.
    for end in [" HTTP/1.1\r\nhost: x\r\n\r\n", ""] {
        let request = format!("GET /target/{}{end}", "<".repeat(11_000));
        let answer = server.exchange(request).await;
        assert!(answer.starts_with("HTTP/1.1 414 ") && answer.contains("32768 bytes"), "{answer}");
    }
    server.stop().await;
}

/// Bodies arrive unchanged, whichever way they are read and however they are split.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_stay_as_they_are() {
    let server = Running::start(limits());
    let body = "GET /<> HTTP/1.1\r\n\"`\u{e9}".repeat(2_000);
    let mut client = server.connect();
    let (sent, length) = (body.clone().into_bytes(), body.len());
    let answer = blocking(move || {
        let mut answer = Vec::new();
        for connection in ["keep-alive", "close"] {
            let head = format!(
                "POST /echo?<> HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\nconnection: {connection}\r\n\r\n"
            );
            client.write_all(head.as_bytes()).unwrap();
            for piece in sent.chunks(1_000) {
                client.write_all(piece).unwrap();
            }
            let mut buffer = [0; 16 * 1024];
            while connection == "keep-alive" && !answer.ends_with(&sent) {
                let read = client.read(&mut buffer).unwrap();
                assert_ne!(read, 0, "closed after {} bytes", answer.len());
                answer.extend_from_slice(&buffer[..read]);
            }
        }
        String::from_utf8(answer).unwrap() + &read_to_end(&mut client)
    });
    assert_eq!(answer.await.matches(&body).count(), 2);
    server.stop().await;
}

/// An unread body cannot hide a second request.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_body_hides_no_request() {
    let server = Running::start(limits());
    let hidden = "<<<<<<<<<<GET /peer HTTP/1.1\r\nhost: x\r\n\r\n";
    let long = "a".repeat(40_000);
    for (target, more) in [
        (long.as_str(), ""),
        ("refuse", ""),
        ("echo", "host: y\r\n"),
        ("echo", "transfer-encoding: gzip, chunked\r\n"),
    ] {
        let length = if !more.contains("gzip") {
            format!("content-length: {}\r\n", hidden.len())
        } else {
            String::new()
        };
        let head = format!("POST /{target} HTTP/1.1\r\nhost: x\r\n{length}{more}\r\n");
        let mut client = server.connect();
        let answer = blocking(move || {
            client.write_all(head.as_bytes()).unwrap();
            // The head is answered before the body comes.
            let mut first = [0; 12];
            client.read_exact(&mut first).unwrap();
            let _ = client.write_all(hidden.as_bytes());
            let _ = client.shutdown(std::net::Shutdown::Write);
            read_to_end(&mut client)
        });
        let answer = answer.await;
        assert!(!answer.contains("127.0.0.1 false"), "{target}: {answer}");
    }
    server.stop().await;
}

async fn check_refusal(request: &'static str, status: &'static str, text: &'static str) {
    check_everywhere(format!("{request}\r\n\r\n").into(), |answer| {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        for part in [
            "content-type: text/plain; charset=utf-8",
            "x-content-type-options: nosniff",
            &format!("content-length: {}", body.len()),
        ] {
            assert!(head.split("\r\n").any(|line| line == part), "{part}: {answer}");
        }
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
        assert!(body.contains(text), "{request:?}: {body}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_is_wrong() {
    let not_encoded = "any character but a space and control characters";
    let rows = [
        ("GET /a b HTTP/1.1\r\nhost: x", "a space in the path or query must be written as %20"),
        ("GET / HTTP/3.0\r\nhost: x", "must end in HTTP/1.1 or HTTP/1.0"),
        ("GET /a\tb HTTP/1.1\r\nhost: x", not_encoded),
        ("GET /a\u{7f} HTTP/1.1\r\nhost: x", not_encoded),
        ("GET <a> HTTP/1.1\r\nhost: x", "invalid URI"),
        ("G<T / HTTP/1.1\r\nhost: x", "must begin with a method"),
        ("GET / HTTP/1.1\r\nbad header", "NAME: VALUE"),
        ("GET / HTTP/1.1\r\nx: a\u{0}b", "NAME: VALUE"),
        ("POST /echo HTTP/1.1\r\ncontent-length: x", "a whole number of bytes"),
        ("POST /echo HTTP/1.0\r\ntransfer-encoding: chunked", "needs HTTP/1.1"),
        (
            "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, Chunked\r\n\r\n0",
            "`chunked` is given twice",
        ),
        (
            "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\
             transfer-encoding: chunked\r\n\r\n0",
            "`chunked` is given twice",
        ),
    ];
    let mut wrong = Vec::new();
    for (request, text) in rows {
        // A task's panic is told, and the next row is tried.
        let check = check_refusal(request, "400 Bad Request", text);
        wrong.extend(tokio::spawn(check).await.err().map(|_| request));
    }
    assert_eq!(wrong, [""; 0]);
    check_refusal(
        "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0",
        "501 Not Implemented",
        "`gzip` is not understood",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_or_too_long_headers_are_refused() {
    let server = Running::start(limits());
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    let large = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(100_000));
    for request in [many, large] {
        let answer = server.exchange(request).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(answer.contains("65536 bytes"), "{answer}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_behind_a_request_that_was_answered_says_what_is_wrong() {
    let server = Running::start(limits());
    let requests = "GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /a b HTTP/1.1\r\nhost: x\r\n\r\n";
    let answer = server.exchange(requests).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("must be written as %20\n"), "{answer}");
    server.stop().await;
}

/// A body that looks like hyper's refusal is a body.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_looks_like_a_refusal_is_sent() {
    let server = Running::start(limits());
    let body = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let request = format!(
        "POST /pieces HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = server.exchange(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(answer.matches(body).count(), 3, "{answer}");
    server.stop().await;
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// Flags: no more of the stream, no more of its header.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// What a client of HTTP/2 sends first.
pub(crate) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..]].concat()
}

/// A header of a request: the method as a number of the static table, http, and the path and the authority as literals.
pub(crate) fn header(method: u8, path: &str) -> Vec<u8> {
    [&[method, 0x86, 0x04, path.len() as u8], path.as_bytes(), b"\x01\x01x"].concat()
}

/// The next frame: its kind, flags, stream and payload.
fn next_frame(client: &mut impl Read) -> (u8, u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    client.read_exact(&mut head).unwrap();
    let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
    client.read_exact(&mut payload).unwrap();
    (head[3], head[4], head[8], payload)
}

/// Some clients lose an answer if the end of its stream comes along.
#[tokio::test(flavor = "multi_thread")]
async fn http2_takes_the_rest_of_a_body_that_was_refused() {
    const POST: u8 = 0x83;
    let server = Running::start(limits());
    let mut client = server.connect();
    let frames = blocking(move || {
        let asked = frame(HEADERS, END_HEADERS, 1, &header(POST, "/refuse"));
        client.write_all(&[preface(), asked].concat()).unwrap();
        let mut frames = Vec::new();
        loop {
            let (kind, flags, stream, payload) = next_frame(&mut client);
            match (kind, stream) {
                (DATA, 1) => {
                    frames.push(format!("{} {flags}", String::from_utf8_lossy(&payload)));
                    let rest =
                        [frame(DATA, END_STREAM, 1, b"the rest"), frame(PING, 0, 0, b"is there")];
                    client.write_all(&rest.concat()).unwrap();
                }
                (RST_STREAM, 1) => frames.push(format!("reset {payload:?}")),
                (PING, _) => return frames,
                _ => {}
            }
        }
    });
    assert_eq!(frames.await, ["too large 1"]);
    server.stop().await;
}

/// HTTP/2 has no line to mend: h2 resets a stream whose path it refuses, and the connection goes on.
#[tokio::test(flavor = "multi_thread")]
async fn http2_resets_a_stream_with_such_a_path() {
    const GET: u8 = 0x82;
    let server = Running::start(limits());
    let mut client = server.connect();
    let answers = blocking(move || {
        let ask = |stream: u8, path: &str| {
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &header(GET, path))
        };
        let frames = [preface(), ask(1, "/?a=>1"), ask(3, "/?a=%3E1")];
        client.write_all(&frames.concat()).unwrap();
        let mut answers = Vec::new();
        while answers.len() < 2 {
            let (kind, _, stream, payload) = next_frame(&mut client);
            match (stream, kind) {
                // PROTOCOL_ERROR.
                (1, RST_STREAM) => answers.push(format!("reset {payload:?}")),
                (3, HEADERS) => answers.push(format!("status {:#x}", payload[0])),
                _ => {}
            }
        }
        answers.sort();
        answers
    });
    // 0x88 is `:status: 200` of the static table.
    assert_eq!(answers.await, ["reset [0, 0, 0, 1]", "status 0x88"]);
    server.stop().await;
}
