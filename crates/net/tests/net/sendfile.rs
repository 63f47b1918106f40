//! Finished bodies, which are sent as files where that is possible.

use std::io::BufRead;

use super::*;

/// Bodies that stay where they are, with nothing that repeats in them.
pub(super) static FINISHED: LazyLock<[Bytes; 3]> = LazyLock::new(|| {
    [16_384_u64, 300_000, 1_000_000].map(|size| {
        let byte = |at: u64| ((at + size).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        (0..size).map(byte).collect()
    })
});

/// What is at `/finished/0` and so on.
pub(super) fn finished(head: &Parts) -> Option<Body> {
    let number: usize = head.uri.path().strip_prefix("/finished/")?.parse().ok()?;
    Some(Body::from(FINISHED[number].clone()))
}

/// How many files in memory hold bodies.
fn files_of_bodies() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("larder-body")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_bodies_are_the_same_from_files() {
    let server = Running::start(limits());
    let mut client = server.connect();
    // So little room that the server has to wait within each body.
    socket2::SockRef::from(&client).set_recv_buffer_size(32 << 10).unwrap();
    // All are asked for before any is read: the next is under way while the last is being written.
    let numbers: Vec<usize> = (0..40).map(|at| at * at % 7 % 3).collect();
    let requests: String = numbers
        .iter()
        .map(|number| format!("GET /finished/{number} HTTP/1.1\r\nhost: x\r\n\r\n"))
        .collect();
    blocking(move || {
        client.write_all(requests.as_bytes()).unwrap();
        let mut answers = std::io::BufReader::with_capacity(1500, client);
        for (at, number) in numbers.into_iter().enumerate() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(answers.read_until(b'\n', &mut head).unwrap() > 0);
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let length = format!("content-length: {}\r\n", FINISHED[number].len());
            assert!(head.starts_with("http/1.1 200 ok\r\n") && head.contains(&length), "{head}");
            let mut body = vec![0; FINISHED[number].len()];
            answers.read_exact(&mut body).unwrap();
            assert!(body == FINISHED[number], "answer {at}, body {number}");
        }
    })
    .await;
    assert_eq!(files_of_bodies(), FINISHED.len());
    // Clients that ask for the headers alone, or that break off, do not disturb others.
    let head = "HEAD /finished/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let head = server.exchange(head).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    for _ in 0..20 {
        let mut client = server.connect();
        client.write_all(b"GET /finished/2 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        blocking(move || client.read_exact(&mut [0; 1000]).unwrap()).await;
    }
    for version in [http1_client(), http2_client()] {
        for number in 0..FINISHED.len() {
            let url = format!("http://{}/finished/{number}", server.tcp());
            let body = version.get(url).send().await.unwrap().bytes().await.unwrap();
            assert!(body == FINISHED[number], "body {number}");
        }
    }
    server.stop().await;
}
