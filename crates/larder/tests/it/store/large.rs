//! Uploads that are large, in little memory, and uploads that are slow, as long as they come at all.

use std::io::{Read, Write};
use std::time::Duration;

use super::{FORM, Place, Wheel, article_request, make_stage, noise};
use crate::client::Response;
use crate::server::ROOT;

#[test]
fn large_files_pass_through_little_memory() {
    const MEGABYTES: u32 = 300;
    let place = Place::sqlite();
    place.init();
    let process = place.start("data");
    let client = process.client;
    make_stage(&client);
    let tiny = Wheel::new("tiny", "1.0", noise(1, 1_000), 1);
    tiny.upload(&client, "team/dev");
    tiny.check(&client, "team/dev", &[]);
    let before = process.memory_peak_bytes();

    let wheel = Wheel::new("large", "1.0", noise(2, 1 << 20), MEGABYTES);
    let (first, last) = wheel.form();
    let length = first.len() + wheel.size_bytes() + last.len();
    let (name, value) = ROOT;
    let head = format!(
        "POST /team/dev/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}: {value}\r\n\
         Content-Type: {FORM}\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut stream = client.connect();
    let form = [head.as_bytes(), first.as_bytes()].into_iter().chain(wheel.pieces());
    for piece in form.chain([last.as_bytes()]) {
        stream.write_all(piece).expect("the server reads");
    }
    Response::read(&mut stream, false).expect(200);

    let mut stream = client.connect();
    let path = wheel.path("team/dev");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let (mut hasher, mut piece) = (record::Hasher::new(), vec![0; 1 << 16]);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut piece[..1]).expect("a head");
        head.push(piece[0]);
    }
    loop {
        match stream.read(&mut piece).expect("a file") {
            0 => break,
            bytes => hasher.update(&piece[..bytes]),
        }
    }
    assert_eq!(hasher.finish(), wheel.digest(), "{}", String::from_utf8_lossy(&head));

    let growth = process.memory_peak_bytes().saturating_sub(before);
    println!("{MEGABYTES} MiB in and out: {} KiB more memory than before", growth >> 10);
    assert!(growth < 64 << 20, "{growth} bytes");
}

/// The time for a body is the time for its next 64 KiB.
#[test]
fn slow_uploads_succeed_and_trickles_are_cut() {
    let place = Place::sqlite();
    place.init();
    let process = place.start_with("data", &["--limits-body-timeout-seconds", "2"]);
    let client = process.client;
    make_stage(&client);
    let wheel = Wheel::new("slow", "1.0", noise(3, 2_500_000), 1);
    std::thread::scope(|scope| {
        for request in [wheel.request("team/dev"), article_request("slow", 0, &noise(4, 2_500_000))]
        {
            scope.spawn(move || {
                let mut stream = client.connect();
                for piece in request.chunks(200_000) {
                    stream.write_all(piece).expect("the server reads");
                    // Together three times as long as the time.
                    std::thread::sleep(Duration::from_millis(500));
                }
                let response = Response::read(&mut stream, false);
                assert!(matches!(response.status, 200 | 201), "{}", response.text());
            });
        }
        let trickle = Wheel::new("trickle", "1.0", noise(5, 2_500_000), 1);
        for request in
            [trickle.request("team/dev"), article_request("trickle", 0, &noise(6, 2_500_000))]
        {
            scope.spawn(move || {
                let mut stream = client.connect();
                stream.write_all(&request[..100_000]).expect("the server reads");
                let rest = request[100_000..].chunks(100);
                let cut = rest.into_iter().position(|piece| {
                    std::thread::sleep(Duration::from_millis(50));
                    stream.write_all(piece).is_err()
                });
                assert!(cut.is_some(), "it was taken whole");
            });
        }
    });
    wheel.check(&client, "team/dev", &[]);
    assert_eq!(client.get("/article/slow").body, noise(4, 2_500_000));
    client.get("/team/dev/+simple/trickle/").expect(404);
    client.get("/article/trickle").expect(404);
    crate::wait_until("nothing of the trickles", || place.spools().is_empty());
}
