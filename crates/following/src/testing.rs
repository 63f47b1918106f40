//! A primary for tests, and stores with records.

use std::sync::{Arc, Mutex};

use record::{Batch, Expected, Key};
use store::records::RecordsOptions;
use store::{DatabaseLocation, Records};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::frame::{Frame, Hello};
use crate::primary::{Primary, Settings};

/// The name of the store.
pub(crate) const IDENTITY: &str = "0123456789";

/// A server that gives each connection the next of its answers, and the last one again and again.
pub(crate) struct FakePrimary {
    pub(crate) primary: Primary,
    asked: Arc<Mutex<Vec<String>>>,
    _directory: TempDir,
}

impl FakePrimary {
    pub(crate) async fn with(answers: Vec<Vec<u8>>) -> FakePrimary {
        let directory = tempfile::tempdir().expect("a directory");
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, "larder_x").expect("a file");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = asked.clone();
        tokio::spawn(async move {
            for at in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let mut request = vec![0; 4_096];
                let length = stream.read(&mut request).await.unwrap_or(0);
                let line = String::from_utf8_lossy(&request[..length]);
                let line = line.lines().next().unwrap_or_default().to_owned();
                noted.lock().expect("no panic").push(line);
                let answer = answers.get(at).or(answers.last()).expect("an answer");
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
        });
        let primary = Primary::new(Settings { url, token_file }).expect("a client");
        FakePrimary { primary, asked, _directory: directory }
    }

    /// The first lines of all requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

/// An answer with these frames, after which the connection ends.
pub(crate) fn frames(hello: Hello, frames: &[Frame]) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
    answer.extend_from_slice(&Frame::Hello(hello).encode());
    frames.iter().for_each(|frame| answer.extend_from_slice(&frame.encode()));
    answer
}

pub(crate) fn hello(serial: u64) -> Hello {
    let (identity, version) = (IDENTITY.to_owned(), "1.0".to_owned());
    let (part, primary_url) = (None, None);
    Hello { identity, generation: 0, serial, is_follower: false, part, primary_url, version }
}

pub(crate) async fn records() -> (Records, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let location = DatabaseLocation::Sqlite(directory.path().join("records.db"));
    let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
    (records, directory)
}

/// A commit of so many records; earlier ones of the same names are overwritten.
pub(crate) async fn commit(records: &Records, names: std::ops::Range<usize>, body: &str) {
    let batch = names.fold(Batch::new(), |batch, number| {
        let key = Key::new(&format!("n/{number:05}")).expect("a key");
        batch.put(key, Expected::Anything, format!("{body} {number}"), Vec::new())
    });
    records.commit(batch).await.expect("committed");
}

/// Waits until this is so.
pub(crate) async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
