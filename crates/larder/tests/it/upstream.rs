//! A source behind a URL: a little server that the test scripts, and the requests of the real one.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use config::AurSource;

use crate::server::{TestServer, wait_for};
use crate::{catalogue, wait_until};

/// The answer: status line, body, and the tag that makes it 304.
#[derive(Clone)]
struct Offer {
    status: &'static str,
    etag: &'static str,
    body: Vec<u8>,
    /// How much of the body is sent before the connection is closed.
    sent_bytes_max: usize,
}

impl Offer {
    fn of(etag: &'static str, body: Vec<u8>) -> Offer {
        Offer { status: "200 OK", etag, body, sent_bytes_max: usize::MAX }
    }
}

struct Upstream {
    address: SocketAddr,
    offer: Arc<Mutex<Offer>>,
    /// The header lines of each request, in lower case.
    requests: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Upstream {
    fn offering(offer: Offer) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let upstream = Upstream {
            address: listener.local_addr().expect("an address"),
            offer: Arc::new(Mutex::new(offer)),
            requests: Arc::default(),
        };
        let (offer, requests) = (upstream.offer.clone(), upstream.requests.clone());
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let offer = offer.lock().expect("no panic").clone();
                // The client may go away.
                let _ = answer(stream, &offer, &requests);
            }
        });
        upstream
    }

    fn offer(&self, offer: Offer) {
        *self.offer.lock().expect("no panic") = offer;
    }

    fn requests(&self) -> Vec<Vec<String>> {
        self.requests.lock().expect("no panic").clone()
    }

    /// A server with this source, and an interval so long that it asks only at the start and when told to.
    fn server(&self) -> TestServer {
        let source = AurSource::Url(format!("http://{}/dump.json.gz", self.address));
        TestServer::without_source(|config| {
            config.aur.source = Some(source);
            config.aur.refresh = std::time::Duration::from_secs(100_000);
        })
    }
}

fn answer(
    mut stream: TcpStream,
    offer: &Offer,
    requests: &Mutex<Vec<Vec<String>>>,
) -> std::io::Result<()> {
    let mut lines = Vec::new();
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        lines.push(line.to_ascii_lowercase());
    }
    let tag = format!("if-none-match: {}", offer.etag);
    let is_known = !offer.etag.is_empty() && lines.contains(&tag);
    requests.lock().expect("no panic").push(lines);
    if is_known {
        return write!(
            stream,
            "HTTP/1.1 304 Not Modified\r\nETag: {}\r\nConnection: close\r\n\r\n",
            offer.etag
        );
    }
    let modified = "Sat, 01 Feb 2020 10:00:00 GMT";
    write!(
        stream,
        "HTTP/1.1 {}\r\nETag: {}\r\nLast-Modified: {modified}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        offer.status,
        offer.etag,
        offer.body.len()
    )?;
    stream.write_all(&offer.body[..offer.body.len().min(offer.sent_bytes_max)])
}

fn version(server: &TestServer) -> String {
    let json = server.get("/rpc/v5/info/shared-0001").json();
    json["results"][0]["Version"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn a_url_is_asked_conditionally() {
    let upstream =
        Upstream::offering(Offer::of("\"one\"", catalogue::gzip(&catalogue::generation(1, 20))));
    let server = upstream.server().ready();
    assert_eq!(version(&server), "1-1");
    let first = &upstream.requests()[0];
    assert_eq!(first[0], "get /dump.json.gz http/1.1");
    assert!(!first.iter().any(|line| line.starts_with("if-")), "{first:?}");
    let modified = server.get("/packages-meta-ext-v1.json.gz").header("last-modified").to_owned();
    assert_eq!(modified, "Sat, 01 Feb 2020 10:00:00 GMT");

    assert_eq!(wait_for(server.app.aur.reload()), Ok(false));
    let second = upstream.requests()[1].clone();
    assert!(second.contains(&"if-none-match: \"one\"".to_owned()), "{second:?}");
    assert!(
        second.contains(&"if-modified-since: sat, 01 feb 2020 10:00:00 gmt".to_owned()),
        "{second:?}"
    );
    assert_eq!(server.metric(r#"larder_aur_refresh_total{result="unchanged"}"#), 1.0);

    upstream.offer(Offer::of("\"two\"", catalogue::generation(2, 20)));
    assert_eq!(wait_for(server.app.aur.reload()), Ok(true));
    assert_eq!(version(&server), "2-1");
    assert_eq!(wait_for(server.app.aur.reload()), Ok(false));
    assert_eq!(server.metric(r#"larder_aur_refresh_total{result="published"}"#), 2.0);
}

#[test]
fn a_url_in_trouble_changes_nothing() {
    let upstream = Upstream::offering(Offer::of("\"one\"", catalogue::generation(1, 20)));
    let server = upstream.server().ready();
    let check = |offer: Offer, trouble: &str| {
        upstream.offer(offer);
        let error = wait_for(server.app.aur.reload()).expect_err("it is bad");
        assert!(error.contains(trouble), "expected `{trouble}` in: {error}");
        assert_eq!(version(&server), "1-1");
        assert_eq!(server.metric("larder_aur_refresh_failing"), 1.0);
        let ready = server.get("/readyz?verbose");
        assert!(ready.status == 200 && ready.text().contains(trouble), "{}", ready.text());
    };
    let good = Offer::of("\"two\"", catalogue::generation(2, 20));
    check(Offer { status: "503 Service Unavailable", ..good.clone() }, "503");
    check(Offer { status: "404 Not Found", ..good.clone() }, "404");
    check(Offer::of("\"bad\"", b"[\n{]".to_vec()), "line 2 column");
    check(Offer { sent_bytes_max: 100, ..good.clone() }, "http://127.0.0.1");
    check(Offer::of("", Vec::new()), "line 1 column 1");
    check(Offer::of("\"few\"", catalogue::generation(2, 3)), "3 packages after 20");
    // A bad dump is not remembered, so the same tag may be good later.
    upstream.offer(Offer::of("\"bad\"", catalogue::generation(3, 20)));
    assert_eq!(wait_for(server.app.aur.reload()), Ok(true));
    assert_eq!(version(&server), "3-1");
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
}

#[test]
fn a_restart_asks_with_the_tag_of_the_kept_dump() {
    let upstream = Upstream::offering(Offer::of("\"one\"", catalogue::generation(1, 20)));
    let source = AurSource::Url(format!("http://{}/dump.json.gz", upstream.address));
    let server = upstream.server().ready();
    let directory = server.stop();
    let start = |directory| {
        TestServer::start_in(directory, |config, _| {
            config.aur.source = Some(source.clone());
            config.aur.refresh = std::time::Duration::from_secs(100_000);
        })
    };
    let server = start(directory).ready();
    assert_eq!(version(&server), "1-1");
    wait_until("the question", || upstream.requests().len() == 2);
    let last = upstream.requests()[1].clone();
    assert!(last.contains(&"if-none-match: \"one\"".to_owned()), "{last:?}");
    let directory = server.stop();

    // Without an answer, the kept dump is served.
    upstream.offer(Offer { status: "500 Internal Server Error", ..Offer::of("", Vec::new()) });
    let server = start(directory).ready();
    assert_eq!(version(&server), "1-1");
    server.wait_for("/readyz?verbose", "500");
}
