//! Answers that grow with the data: only so many are made and sent at once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{Index, Upload, sdist};
use crate::wait_until;

/// A client that reads nothing of what it asked for keeps a place, and only so many places are one client's.
#[test]
fn what_is_not_read_keeps_a_place_and_there_are_few() {
    const PLACES: usize = 16;
    let index = Index::with_dev();
    let description = "x".repeat(200_000);
    for number in 0..80 {
        let version = format!("1.{number}");
        let upload = Upload::named("p", &version, &format!("p-{version}.zip"), &sdist(&version));
        index.alice().upload("alice/dev", &upload.set("description", &description)).expect(200);
    }
    let begin = || {
        let mut stream = TcpStream::connect(index.client().address).expect("a connection");
        let request = b"GET /alice/dev/p HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n";
        stream.write_all(request).expect("it is sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
        stream
    };
    let begun: Vec<TcpStream> = (0..PLACES).map(|_| begin()).collect();
    index.anybody().json().get("/alice/dev/p").expect(503).has("retry-after", "2");
    // What needs no such place is answered.
    index.anybody().json().get("/alice/dev/p/1.7").expect(200);
    assert_eq!(index.files("alice/dev", "p").len(), 80);
    drop(begun);
    wait_until("a place is free again", || {
        index.anybody().json().get("/alice/dev/p").status == 200
    });
}
