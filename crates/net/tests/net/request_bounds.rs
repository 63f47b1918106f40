//! Targets, heads and bodies beyond the bounds, and bytes that are no request.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn long_urls_get_414_however_long_they_are() {
    let server =
        Running::start(Limits { url_bytes_max: 8_192, header_bytes_max: 16_384, ..limits() });
    let request = |bytes: usize| {
        format!("GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "a".repeat(bytes - 1))
    };
    assert!(
        server.exchange(request(8_192)).await.starts_with("HTTP/1.1 404 "),
        "the longest that is allowed"
    );
    for bytes in [8_193, 9_000, 16_000, 17_000, 100_000, 1_000_000] {
        let answer = server.exchange(request(bytes)).await;
        assert!(answer.starts_with("HTTP/1.1 414 URI Too Long\r\n"), "{bytes}: {answer}");
        assert!(answer.contains("longer than 8192 bytes"), "{bytes}: {answer}");
    }
    // A later request on the connection has the same limit.
    let answer =
        server.exchange(format!("GET / HTTP/1.1\r\nhost: x\r\n\r\n{}", request(50_000))).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 4"), "{answer}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_get_431_however_large_they_are() {
    let server =
        Running::start(Limits { url_bytes_max: 8_192, header_bytes_max: 16_384, ..limits() });
    for bytes in [17_000, 100_000, 1_000_000] {
        let answer = server
            .exchange(format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "a".repeat(bytes)))
            .await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{bytes}: {answer}");
    }
    let many = (0..200).map(|number| format!("x-{number}: y\r\n")).collect::<String>();
    let answer = server.exchange(format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let allowed = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: {}\r\n\r\n",
        "a".repeat(12_000)
    );
    assert!(server.exchange(allowed).await.starts_with("HTTP/1.1 200 "));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_has_the_same_bounds() {
    let server =
        Running::start(Limits { url_bytes_max: 8_192, header_bytes_max: 16_384, ..limits() });
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .timeout(PATIENCE)
        .build()
        .unwrap();
    let url = |bytes: usize| format!("http://{}/{}", server.tcp(), "a".repeat(bytes - 1));
    assert_eq!(client.get(url(8_192)).send().await.unwrap().status(), 404);
    assert_eq!(client.get(url(8_193)).send().await.unwrap().status(), 414);
    let mut headers = HeaderMap::new();
    headers.insert("x", "a".repeat(17_000).parse().unwrap());
    // hyper's client follows the server's SETTINGS and may itself refuse.
    if let Ok(response) = client.get(url(1)).headers(headers).send().await {
        assert_eq!(response.status(), 431);
    }
    assert_eq!(client.get(url(1)).send().await.unwrap().status(), 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_end_of_the_body_arrives() {
    let server = Running::start(limits());
    let mut request =
        b"POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n".to_vec();
    request.resize(request.len() + 900_000, b'x');
    let answer = server.exchange(request).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("too large"), "{answer}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_refused_and_harms_nobody() {
    let server = Running::start(Limits { header_timeout: SHORT, idle_timeout: SHORT, ..limits() });
    let mut garbage: Vec<Vec<u8>> = vec![
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n".to_vec(),
        b"POST /echo HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage garbage garbage".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"\r\n".repeat(10_000),
    ];
    // A small generator of our own: the same bytes in each run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    garbage.extend((0..30).map(|_| {
        let mut bytes = vec![0; 400];
        bytes.fill_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        bytes
    }));
    for bytes in garbage {
        let answer = server.exchange(bytes.clone()).await;
        assert!(
            !answer.contains("HTTP/1.1 2") && !answer.contains("HTTP/1.1 5"),
            "{bytes:?}: {answer}"
        );
    }
    server.is_alive().await;
    server.stop().await;
}
