//! A real server on the loopback, which answers each connection with the next line of a script and records the
//! requests.

use std::io::Read;
use std::path::Path;
use std::sync::Mutex;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// What the server does with one connection.
enum ServerAct {
    /// Sends these bytes and closes.
    Send(Vec<u8>),
    /// Sends these bytes and then nothing more, without closing.
    Stall(Vec<u8>),
}

struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
    spool_dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(script: Vec<ServerAct>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/dump.gz", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut stalled = Vec::new();
            for act in script {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                recorded.lock().unwrap().push(String::from_utf8(head).unwrap().to_lowercase());
                match act {
                    ServerAct::Send(bytes) => stream.write_all(&bytes).await.unwrap(),
                    ServerAct::Stall(bytes) => {
                        stream.write_all(&bytes).await.unwrap();
                        stalled.push(stream);
                    }
                }
            }
            std::future::pending::<()>().await;
        });
        Server { url, asked, task, spool_dir: tempfile::tempdir().unwrap() }
    }

    fn fetch(&self, change: impl FnOnce(&mut SourceOptions)) -> UrlFetch {
        fetch(&self.url, self.spool_dir.path(), change)
    }

    /// The value of a header of the numbered request.
    fn asked(&self, number: usize, name: &str) -> Option<String> {
        let asked = self.asked.lock().unwrap();
        let prefix = format!("{name}: ");
        asked[number].lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    }

    fn spool_files(&self) -> usize {
        std::fs::read_dir(self.spool_dir.path()).unwrap().count()
    }
}

fn fetch(url: &str, spool_dir: &Path, change: impl FnOnce(&mut SourceOptions)) -> UrlFetch {
    let mut options = SourceOptions {
        environment_proxy: false,
        jitter_seed: Some(1),
        dump_bytes_max: 1000,
        ..SourceOptions::default()
    };
    change(&mut options);
    UrlFetch::new(url.parse().unwrap(), "fingerprint".to_owned(), options, spool_dir.to_owned())
        .unwrap()
}

fn answer(status: &str, headers: &str, body: &[u8]) -> ServerAct {
    ServerAct::Send([format!("HTTP/1.1 {status}\r\n{headers}\r\n").as_bytes(), body].concat())
}

fn ok(headers: &str, body: &str) -> ServerAct {
    answer("200 OK", &format!("Content-Length: {}\r\n{headers}", body.len()), body.as_bytes())
}

/// The result of one poll: the content of the arrival, `-` for nothing new, or the error with the server as `HOST`.
async fn poll(fetch: &mut UrlFetch) -> String {
    match fetch.poll().await {
        Ok(Some(arrival)) => {
            let content = content(&arrival);
            fetch.accepted(&arrival.validators);
            String::from_utf8(content).unwrap()
        }
        Ok(None) => "-".to_owned(),
        Err(error) => {
            let host = format!("{}:{}", fetch.url.host().unwrap(), fetch.url.port().unwrap());
            error.to_string().replace(&host, "HOST")
        }
    }
}

fn content(arrival: &Arrival) -> Vec<u8> {
    let mut content = Vec::new();
    arrival.reader().read_to_end(&mut content).unwrap();
    content
}

/// Polls once for each line of the script.
async fn check(
    script: Vec<ServerAct>,
    change: impl FnOnce(&mut SourceOptions),
    expected: &[&str],
) -> Server {
    let server = Server::start(script).await;
    let mut fetch = server.fetch(change);
    for expected in expected {
        assert_eq!(poll(&mut fetch).await, *expected);
    }
    assert_eq!(server.spool_files(), 0, "a spool file was left behind");
    server
}

#[tokio::test]
async fn an_etag_is_sent_back() {
    let script = vec![
        ok("ETag: \"a\"\r\n", "one"),
        answer("304 Not Modified", "", b""),
        ok("ETag: W/\"b\"\r\n", "two"),
        ok("", "three"),
        ok("", "four"),
    ];
    let server = check(script, |_| {}, &["one", "-", "two", "three", "four"]).await;
    let asked: Vec<Option<String>> =
        (0..5).map(|number| server.asked(number, "if-none-match")).collect();
    let some = |etag: &str| Some(etag.to_owned());
    assert_eq!(asked, [None, some("\"a\""), some("\"a\""), some("w/\"b\""), None]);
}

#[tokio::test]
async fn a_time_is_sent_back_as_it_came() {
    let time = "Sun, 06 Nov 1994 08:49:37 GMT";
    let script =
        vec![ok(&format!("Last-Modified: {time}\r\n"), "one"), answer("304 Not Modified", "", b"")];
    let server = check(script, |_| {}, &["one", "-"]).await;
    assert_eq!(server.asked(0, "if-modified-since"), None);
    assert_eq!(server.asked(1, "if-modified-since"), Some(time.to_lowercase()));
}

#[tokio::test]
async fn the_etag_of_a_server_that_never_compares_is_compared_here() {
    let script = vec![
        ok("ETag: \"a\"\r\n", "one"),
        ok("ETag: \"a\"\r\n", "one"),
        ok("ETag: W/\"a\"\r\n", "two"),
        ok("ETag: W/\"a\"\r\n", "two"),
    ];
    check(script, |_| {}, &["one", "-", "two", "two"]).await;
}

#[tokio::test]
async fn an_arrival_is_described() {
    let headers = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"a\"\r\n";
    let server = Server::start(vec![ok(headers, "one")]).await;
    let fetch = fetch(&server.url.replace("//", "//user:secret@"), server.spool_dir.path(), |_| {});
    let arrival = fetch.poll().await.unwrap().unwrap();
    assert_eq!(arrival.origin, server.url.replace("//", "//***@"));
    assert_eq!(arrival.bytes, 3);
    assert_eq!(
        arrival.modified_at,
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
    );
    assert_eq!(arrival.sha256, Some(crate::spec::sha256_hex(b"one")));
    assert_eq!(
        server.asked(0, "user-agent"),
        Some(format!("larder/{}", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(server.asked(0, "accept-encoding").as_deref(), Some("identity"));
    assert_eq!(server.asked(0, "authorization").as_deref(), Some("basic dxnlcjpzzwnyzxq="));
    assert_eq!(server.spool_files(), 1);
    drop(arrival);
    assert_eq!(server.spool_files(), 0);
}

#[tokio::test]
async fn a_content_encoding_changes_nothing() {
    let body = b"\x1f\x8b\x08 not really gzip";
    let headers = format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", body.len());
    let server = Server::start(vec![answer("200 OK", &headers, body)]).await;
    let arrival = server.fetch(|_| {}).poll().await.unwrap().unwrap();
    assert_eq!(content(&arrival), body);
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_the_connection() {
    check(vec![answer("200 OK", "", b"one")], |_| {}, &["one"]).await;
}

#[tokio::test]
async fn other_answers_are_errors() {
    let script = vec![
        answer("404 Not Found", "Content-Length: 4\r\n", b"gone"),
        answer("500 Internal Server Error", "Content-Length: 0\r\n", b""),
        answer("206 Partial Content", "Content-Length: 1\r\n", b"x"),
        answer("304 Not Modified", "", b""),
    ];
    let expected = [
        "`http://HOST/dump.gz` answered 404 Not Found, expected 200 or 304",
        "`http://HOST/dump.gz` answered 500 Internal Server Error, expected 200 or 304",
        "`http://HOST/dump.gz` answered 206 Partial Content, expected 200 or 304",
        "`http://HOST/dump.gz` answered 304 to a request without a condition, expected 200",
    ];
    check(script, |_| {}, &expected).await;
}

#[tokio::test]
async fn secrets_stay_out_of_errors() {
    let server = Server::start(vec![answer("403 Forbidden", "Content-Length: 0\r\n", b"")]).await;
    let url = format!("{}?sig=secret", server.url.replace("//", "//user:secret@"));
    let error = fetch(&url, server.spool_dir.path(), |_| {}).poll().await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    // Nothing listens on a port that was just released.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://user:secret@{}/?sig=secret", listener.local_addr().unwrap());
    drop(listener);
    let error = fetch(&url, server.spool_dir.path(), |_| {}).poll().await.unwrap_err();
    let text = error.to_string();
    assert!(!text.contains("secret") && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_truncated_body_is_an_error_and_asked_for_again() {
    let headers = "ETag: \"a\"\r\nContent-Length: 10\r\n";
    let server = Server::start(vec![
        answer("200 OK", headers, b"one"),
        answer("200 OK", "Transfer-Encoding: chunked\r\n", b"3\r\none\r\n"),
        ok("", "one"),
    ])
    .await;
    let mut fetch = server.fetch(|_| {});
    let error = poll(&mut fetch).await;
    let expected = "the dump from `http://HOST/dump.gz` was truncated: 3 bytes came, expected ";
    assert!(error.starts_with(&format!("{expected}10 (")), "{error}");
    let error = poll(&mut fetch).await;
    assert!(error.starts_with(&format!("{expected}more (")), "{error}");
    assert_eq!(poll(&mut fetch).await, "one");
    assert_eq!(server.asked(2, "if-none-match"), None);
    assert_eq!(server.spool_files(), 0);
}

#[tokio::test]
async fn too_many_bytes_are_refused_before_and_while_they_come() {
    let error = "the dump from `http://HOST/dump.gz` has more than 1000 bytes, the largest that is accepted";
    let long = "x".repeat(1001);
    let script = vec![
        ok("", &long[1..]),
        answer("200 OK", "Content-Length: 1001\r\n", b""),
        answer("200 OK", "", long.as_bytes()),
    ];
    check(script, |_| {}, &[&long[1..], error, error]).await;
}

#[tokio::test]
async fn silence_has_bounds() {
    let short = Duration::from_millis(100);
    let script = vec![
        ServerAct::Stall(Vec::new()),
        ServerAct::Stall(b"HTTP/1.1 200 OK\r\nContent-".to_vec()),
    ];
    let header = "cannot fetch `http://HOST/dump.gz`: waiting for the response header took longer than 100ms";
    check(script, |options| options.response_header_timeout = short, &[header, header]).await;

    let partial = || b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\none".to_vec();
    let body = "cannot fetch `http://HOST/dump.gz`: waiting for the next bytes of the body took longer than 100ms";
    check(vec![ServerAct::Stall(partial())], |options| options.body_stall_timeout = short, &[body])
        .await;

    let whole = "cannot fetch `http://HOST/dump.gz`: the transfer took longer than 100ms";
    check(vec![ServerAct::Stall(partial())], |options| options.transfer_time_max = short, &[whole])
        .await;
}

fn redirect(to: &str) -> ServerAct {
    answer("302 Found", &format!("Location: {to}\r\nContent-Length: 0\r\n"), b"")
}

#[tokio::test]
async fn five_redirects_are_followed() {
    let script =
        ["/1", "/2", "/3", "/4", "/5"].map(redirect).into_iter().chain([ok("", "one")]).collect();
    check(script, |_| {}, &["one"]).await;

    let script = ["/1", "/2", "/3", "/4", "/5", "/6"].map(redirect).into();
    let error =
        "cannot fetch `http://HOST/dump.gz`: error following redirect: more than 5 redirects";
    check(script, |_| {}, &[error]).await;

    let script =
        vec![redirect("/lost?sig=secret"), answer("404 Not Found", "Content-Length: 0\r\n", b"")];
    check(
        script,
        |_| {},
        &["`http://HOST/lost?sig=***` answered 404 Not Found, expected 200 or 304"],
    )
    .await;
}

/// The configuration names the source, so it may have any address. The targets of its redirects may not.
#[tokio::test]
async fn redirects_to_other_hosts_stay_outside() {
    let other = Server::start(vec![ok("", "two")]).await;
    let port = other.url.parse::<Url>().unwrap().port().unwrap();
    let redirected = |host: &str| redirect(&format!("http://{host}:{port}/"));
    for host in ["localhost", "127.0.0.2", "[::1]", "10.0.0.1"] {
        let server = Server::start(vec![redirected(host)]).await;
        let error = poll(&mut server.fetch(|_| {})).await;
        assert!(error.contains(&format!("no public address is known for `{host}`")), "{error}");
    }
    assert_eq!(other.asked.lock().unwrap().len(), 0);
    let server = Server::start(vec![redirected("localhost")]).await;
    let mut fetch = server.fetch(|options| {
        options.egress = Egress::new(["127.0.0.0/8", "::1"].map(|text| text.parse().unwrap()));
    });
    assert_eq!(poll(&mut fetch).await, "two");
}

#[tokio::test]
async fn giving_up_a_download_leaves_nothing() {
    let script =
        vec![ServerAct::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\none".to_vec())];
    let server = Server::start(script).await;
    let fetch = server.fetch(|_| {});
    {
        let mut poll = std::pin::pin!(fetch.poll());
        while server.spool_files() == 0 {
            let pause = tokio::time::sleep(Duration::from_millis(5));
            tokio::select! {
                outcome = &mut poll => panic!("the body never ends, yet {outcome:?}"),
                () = pause => {}
            }
        }
    }
    assert_eq!(server.spool_files(), 0);
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/dump.gz", listener.local_addr().unwrap().port());
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        assert!(acceptor.accept(stream).await.is_err());
    });
    let error = fetch(&url, &std::env::temp_dir(), |_| {}).poll().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot fetch `{url}`: ")), "{error}");
    assert!(error.contains("certificate"), "{error}");
    task.await.unwrap();
}

#[tokio::test]
async fn a_spool_file_goes_elsewhere_if_its_directory_is_missing() {
    let server = Server::start(vec![ok("", "one")]).await;
    let arrival =
        fetch(&server.url, Path::new("/does/not/exist"), |_| {}).poll().await.unwrap().unwrap();
    assert_eq!(content(&arrival), b"one");
}

#[test]
fn retry_after_is_read() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let read = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().unwrap());
        retry_after(&headers, now).map(|wait| wait.as_secs())
    };
    assert_eq!(read("120"), Some(120));
    assert_eq!(read(" 120 "), Some(120));
    assert_eq!(read("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
    assert_eq!(read("Sun, 06 Nov 1994 08:48:37 GMT"), None);
    assert_eq!(read("99999999999"), Some(86400));
    assert_eq!(read("-1"), None);
    assert_eq!(read("soon"), None);
}
