//! Serves one file with the HTTP of the whole server, and nothing behind it: `serve PORT BYTES`.
//!
//! For `bench/ablations`: what the connections cost is measured without building the rest.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use net::{
    Access, Answered, Counters, Door, FileRange, Limits, ListenAddress, Peer, Server,
    TrustedProxies, bind,
};
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

/// What is read at once where the file is not sent by the system.
const PIECE_BYTES: usize = 256 << 10;

struct OneFile(Arc<File>, u64);

impl Door for OneFile {
    fn answer(&self, _: Parts, _: Option<Body>, _: &Peer) -> Answered {
        let OneFile(file, bytes) = self;
        let file = file.clone();
        let (sent, bytes) = (FileRange::new(file.clone(), 0..*bytes), *bytes);
        Answered::Later(Box::pin(async move {
            let opened = File::open(format!("/proc/self/fd/{}", fd(&file))).expect("a file");
            let read = ReaderStream::with_capacity(tokio::fs::File::from_std(opened), PIECE_BYTES);
            let response = Response::builder().header(CONTENT_LENGTH, bytes).extension(sent);
            response.body(Body::from_stream(read)).expect("a response")
        }))
    }
}

fn fd(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (Some(Ok(port)), Some(Ok(size))) = (arguments.next(), arguments.next()) else {
        panic!("usage: serve PORT BYTES");
    };
    let mut file = tempfile::tempfile()?;
    file.write_all(&vec![b'x'; size])?;
    let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("a port")));
    let listener = bind(&[ListenAddress::Tcp(address)], &Access::default())?.remove(0);
    let server =
        Server::new(Limits::default(), Counters::unregistered(), TrustedProxies::default());
    let door = Arc::new(OneFile(Arc::new(file), size as u64));
    let serving =
        server.serve(listener, None, door, CancellationToken::new(), Duration::from_secs(1));
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serving)
}
