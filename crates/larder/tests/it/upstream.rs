//! A source behind a URL: a little server that the test scripts, and the requests of the real one.

use config::{AurSource, Config};
use testbed::{Offer, Upstream};

use crate::server::{TestServer, wait_for};
use crate::shown::redacted;
use crate::{catalogue, wait_until};

const DUMP: &str = "/dump.json.gz";
const MODIFIED: &str = "Sat, 01 Feb 2020 10:00:00 GMT";

/// A dump with this tag.
fn dump(tag: &str, bytes: Vec<u8>) -> Offer {
    Offer::file(bytes).tagged(tag).with(&format!("Last-Modified: {MODIFIED}"))
}

fn offering(offer: Offer) -> Upstream {
    let upstream = Upstream::start();
    upstream.offer(DUMP, offer);
    upstream
}

/// This source, and an interval so long that it is asked only at the start and when told to.
fn asking(upstream: &Upstream) -> impl Fn(&mut Config) + use<> {
    let source = AurSource::Url(upstream.url(DUMP));
    move |config| {
        config.aur.source = Some(source.clone());
        config.aur.refresh = std::time::Duration::from_secs(100_000);
    }
}

fn version(server: &TestServer) -> String {
    let json = server.get("/rpc/v5/info/shared-0001").json();
    json["results"][0]["Version"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn a_url_is_asked_conditionally() {
    let upstream = offering(dump("\"one\"", catalogue::gzip(&catalogue::generation(1, 20))));
    let server = TestServer::without_source(asking(&upstream)).ready();
    assert_eq!(version(&server), "1-1");
    let first = &upstream.requests()[0];
    assert_eq!(first.method, "GET");
    assert!(!first.headers.iter().any(|(name, _)| name.starts_with("if-")), "{first:?}");
    server.get("/packages-meta-ext-v1.json.gz").has("last-modified", MODIFIED);

    assert_eq!(wait_for(server.app.aur.reload()), Ok(false));
    let second = &upstream.requests()[1];
    let conditions = ["if-none-match", "if-modified-since"].map(|name| second.header(name));
    assert_eq!(conditions, ["\"one\"", MODIFIED]);
    assert_eq!(server.metric(r#"larder_aur_refresh_total{result="unchanged"}"#), 1.0);

    upstream.offer(DUMP, dump("\"two\"", catalogue::generation(2, 20)));
    assert_eq!(wait_for(server.app.aur.reload()), Ok(true));
    assert_eq!(version(&server), "2-1");
    assert_eq!(wait_for(server.app.aur.reload()), Ok(false));
    assert_eq!(server.metric(r#"larder_aur_refresh_total{result="published"}"#), 2.0);
}

#[test]
fn a_url_in_trouble_changes_nothing() {
    let upstream = offering(dump("\"one\"", catalogue::generation(1, 20)));
    let server = TestServer::without_source(asking(&upstream)).ready();
    let check = |offer: Offer, trouble: &str| {
        upstream.offer(DUMP, offer);
        let error = wait_for(server.app.aur.reload()).expect_err("it is bad");
        assert_eq!(redacted(&error), trouble);
        assert_eq!(version(&server), "1-1");
        assert_eq!(server.metric("larder_aur_refresh_failing"), 1.0);
        let ready = server.get("/readyz?verbose").expect(200).line("[!] aur: ");
        let trouble =
            format!("[!] aur: the last refresh failed, the snapshot above stays: {trouble}");
        assert_eq!(ready, trouble);
    };
    let good = dump("\"two\"", catalogue::generation(2, 20));
    check(
        Offer { status: 503, ..good.clone() },
        "`http://127.0.0.1:PORT/dump.json.gz` answered 503 Service Unavailable, expected 200 or 304",
    );
    check(
        Offer { status: 404, ..good.clone() },
        "`http://127.0.0.1:PORT/dump.json.gz` answered 404 Not Found, expected 200 or 304",
    );
    check(
        dump("\"bad\"", b"[\n{]".to_vec()),
        "`http://127.0.0.1:PORT/dump.json.gz`: line 2 column 2: key must be a string",
    );
    check(
        good.cut(100),
        "the dump from `http://127.0.0.1:PORT/dump.json.gz` was truncated: 100 bytes came, expected 8113 (error decoding response body: error reading a body from connection: end of file before message length reached)",
    );
    check(
        Offer::file(""),
        "`http://127.0.0.1:PORT/dump.json.gz`: line 1 column 1: the dump ends here, expected `[`, the start of the list of packages",
    );
    check(
        dump("\"few\"", catalogue::generation(2, 3)),
        "`http://127.0.0.1:PORT/dump.json.gz`: the dump has 3 packages after 20, more than 50 percent fewer (aur.shrink_percent_max)",
    );
    // A bad dump is not remembered, so the same tag may be good later.
    upstream.offer(DUMP, dump("\"bad\"", catalogue::generation(3, 20)));
    assert_eq!(wait_for(server.app.aur.reload()), Ok(true));
    assert_eq!(version(&server), "3-1");
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
}

#[test]
fn a_restart_asks_with_the_tag_of_the_kept_dump() {
    let upstream = offering(dump("\"one\"", catalogue::generation(1, 20)));
    let ask = asking(&upstream);
    let directory = TestServer::without_source(&ask).ready().stop();
    let start = |directory| TestServer::start_in(directory, |config, _| ask(config)).ready();
    let server = start(directory);
    assert_eq!(version(&server), "1-1");
    wait_until("the question", || upstream.requests().len() == 2);
    assert_eq!(upstream.requests()[1].header("if-none-match"), "\"one\"");
    let directory = server.stop();

    // Without an answer, the kept dump is served.
    upstream.break_with(Some(500));
    let server = start(directory);
    assert_eq!(version(&server), "1-1");
    server.wait_for("/readyz?verbose", "500");
}
