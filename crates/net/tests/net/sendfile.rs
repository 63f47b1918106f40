//! Files on disk, which are sent by sendfile where that is possible.

use std::io::BufRead;

use axum::extract::Path;
use net::FileRange;

use super::*;

/// A body without repetition that many answers share.
pub(super) static FINISHED: LazyLock<Bytes> = LazyLock::new(|| {
    let byte = |at: u64| ((at + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..300_000).map(byte).collect()
});

/// 5 MB with nothing in it that repeats, in a file.
static ON_DISK: LazyLock<(Bytes, Arc<fs::File>)> = LazyLock::new(|| {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let bytes: Bytes = (0..5_000_000).map(byte).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (bytes, Arc::new(file))
});

/// The body at `/file/{start}/{end}`: these bytes of [`ON_DISK`]. The body itself has inverted bytes, so that a test sees which
/// of the two was sent.
pub(super) async fn file(Path((start, end)): Path<(u64, u64)>) -> Response<Body> {
    let (bytes, file) = &*ON_DISK;
    let body = inverted(&bytes[start as usize..end as usize]);
    let range = FileRange::new(file.clone(), start..end);
    let response = Response::builder().header("content-length", end - start).extension(range);
    let pieces = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
    response.body(Body::from_stream(pieces)).unwrap()
}

fn inverted(bytes: &[u8]) -> Bytes {
    bytes.iter().map(|byte| !byte).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_on_disk_are_sent_as_files_over_plain_tcp() {
    let server = Running::start(limits());
    let ranges: Vec<(usize, usize)> = (0..40_usize)
        .map(|at| (at * 37_123, at * 37_123 + [1, 300, 70_000, 1 << 20, 3_000_000][at % 5]))
        .chain([(7, 7)])
        .collect();
    let mut client = server.connect();
    socket2::SockRef::from(&client).set_recv_buffer_size(32 << 10).unwrap();
    // Finished bodies and others are among them, and all are asked for before any is read.
    let mut requests = String::new();
    for (start, end) in &ranges {
        requests += &format!("GET /file/{start}/{end} HTTP/1.1\r\nhost: x\r\n\r\n");
        requests += "HEAD /file/0/9000 HTTP/1.1\r\nhost: x\r\n\r\n";
        requests += "GET /finished HTTP/1.1\r\nhost: x\r\n\r\n";
    }
    let expected = ranges.clone();
    blocking(move || {
        client.write_all(requests.as_bytes()).unwrap();
        let mut answers = std::io::BufReader::with_capacity(1500, client);
        let mut read = |body: &[u8]| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(answers.read_until(b'\n', &mut head).unwrap() > 0);
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
            let mut got = vec![0; body.len()];
            answers.read_exact(&mut got).unwrap();
            got == body
        };
        for (start, end) in expected {
            assert!(read(&ON_DISK.0[start..end]), "{start}..{end}");
            assert!(read(b""));
            assert!(read(&FINISHED));
        }
    })
    .await;
    let (start, end) = (1_000, 4_000_000);
    for (client, is_file) in [(http1_client(), true), (http2_client(), false)] {
        let url = format!("http://{}/file/{start}/{end}", server.tcp());
        let body = client.get(url).send().await.unwrap().bytes().await.unwrap();
        let file = &ON_DISK.0[start..end];
        assert!(body == if is_file { Bytes::copy_from_slice(file) } else { inverted(file) });
    }
    // A client that disconnects does not disturb others.
    for _ in 0..20 {
        let mut client = server.connect();
        client.write_all(b"GET /file/0/5000000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        blocking(move || client.read_exact(&mut [0; 1000]).unwrap()).await;
    }
    server.stop().await;
}
