//! Serves one finished body with the HTTP of the whole server, and nothing behind it: `serve PORT BYTES`.
//!
//! For `bench/ablations`: what the connections cost is measured without building the rest.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::Response;
use http::request::Parts;
use net::{
    Access, Answered, Counters, Door, Limits, ListenAddress, Peer, Server, TrustedProxies, bind,
};
use tokio_util::sync::CancellationToken;

struct OneBody(Bytes);

impl Door for OneBody {
    fn answer(&self, _: Parts, _: Option<Body>, _: &Peer) -> Answered {
        Answered::Finished(Response::new(Body::from(self.0.clone())))
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (Some(Ok(port)), Some(Ok(size))) = (arguments.next(), arguments.next()) else {
        panic!("usage: serve PORT BYTES");
    };
    let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("a port")));
    let listener = bind(&[ListenAddress::Tcp(address)], &Access::default())?.remove(0);
    let server =
        Server::new(Limits::default(), Counters::unregistered(), TrustedProxies::default());
    let door = Arc::new(OneBody(Bytes::from(vec![b'x'; size])));
    let serving =
        server.serve(listener, None, door, CancellationToken::new(), Duration::from_secs(1));
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serving)
}
