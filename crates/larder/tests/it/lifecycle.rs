//! From start to stop: replaced dumps, broken dumps, kept dumps, and a shutdown that waits.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;

use crate::asking::Says as _;
use crate::catalogue::{self, gzip};
use crate::client::Response;
use crate::server::{TestServer, wait_for};
use crate::wait_until;

/// The generation that is served.
fn version(server: &TestServer) -> String {
    let json = server.get("/rpc/v5/info/shared-0001").json();
    json["results"][0]["Version"].as_str().unwrap_or("none").to_owned()
}

#[track_caller]
fn wait_for_version(server: &TestServer, expected: &str) {
    wait_until(expected, || version(server) == expected);
}

#[test]
fn a_replaced_file_is_noticed() {
    let server = TestServer::serving(&catalogue::generation(1, 20));
    assert_eq!(version(&server), "1-1");
    server.replace_source(&catalogue::generation(2, 20));
    wait_for_version(&server, "2-1");
    // Compressed from now on, and twice.
    server.replace_source(&gzip(&catalogue::generation(3, 20)));
    wait_for_version(&server, "3-1");
    server.replace_source(&gzip(&gzip(&catalogue::generation(4, 20))));
    wait_for_version(&server, "4-1");
    // Written in place, under the same identity.
    fs::write(server.source_path(), catalogue::generation(5, 20)).expect("a dump");
    wait_for_version(&server, "5-1");
    wait_until("the last dump to be offered", || {
        let dump = server.get("/packages-meta-ext-v1.json.gz");
        dump.status == 200 && catalogue::gunzip(&dump.body) == catalogue::generation(5, 20)
    });
}

#[test]
fn a_file_that_comes_later_is_noticed() {
    let server = TestServer::serving(&catalogue::generation(1, 20));
    fs::remove_file(server.source_path()).expect("it is there");
    wait_until("the trouble to show", || server.app.aur.trouble().is_some());
    assert_eq!(version(&server), "1-1");
    server.get("/readyz").expect(200);
    server.replace_source(&catalogue::generation(2, 20));
    wait_for_version(&server, "2-1");
    assert_eq!(server.app.aur.trouble(), None);
}

/// A bad dump changes nothing but what operators see, and the next good one mends it.
#[track_caller]
fn check_bad(dump: &[u8], trouble: &str) {
    let server = TestServer::serving(&catalogue::generation(1, 20));
    let failures = r#"larder_aur_refresh_total{result="failed"}"#;
    assert_eq!((server.metric(failures), server.metric("larder_aur_refresh_failing")), (0.0, 0.0));
    let kept = server.get("/packages-meta-ext-v1.json.gz").body;

    server.replace_source(dump);
    wait_until("the trouble to show", || server.metric("larder_aur_refresh_failing") == 1.0);
    assert_eq!(server.metric(failures), 1.0);
    let ready = server.get("/readyz?verbose");
    let text = ready.text();
    assert_eq!(ready.status, 200, "the old snapshot serves: {text}");
    text.says("[+] aur: 20 packages");
    let trouble = format!(
        "[!] aur: the last refresh failed, the snapshot above stays: `DIRECTORY/source.json`: {trouble}"
    );
    assert_eq!(ready.line("[!] aur: "), trouble);
    assert_eq!(version(&server), "1-1");
    assert_eq!(server.get("/packages-meta-ext-v1.json.gz").body, kept);
    assert!(wait_for(server.app.aur.reload()).is_err(), "asked for by hand, it fails as well");

    server.replace_source(&catalogue::generation(2, 20));
    wait_for_version(&server, "2-1");
    wait_until("the trouble to be over", || server.metric("larder_aur_refresh_failing") == 0.0);
    server.get("/readyz?verbose").lacks("[!]");
}

#[test]
fn a_broken_dump_is_refused() {
    check_bad(b"[\n{\"ID\": 1,,}\n]", "line 2 column 10: key must be a string");
    check_bad(
        b"<html>502 Bad Gateway</html>",
        "line 1 column 1: expected `[`, the start of the list of packages",
    );
}

#[test]
fn a_record_that_is_none_is_refused() {
    let dump = String::from_utf8(catalogue::generation(2, 20)).expect("text");
    let dump = dump.replacen("\"Name\":\"shared-0007\"", "\"Name\":7", 1);
    check_bad(dump.as_bytes(), "line 9 column 150: invalid type: integer `7`, expected a string");
}

#[test]
fn a_truncated_dump_is_refused() {
    let dump = catalogue::generation(2, 20);
    let half = &dump[..dump.len() / 2];
    let lines = half.iter().filter(|byte| **byte == b'\n').count() + 1;
    check_bad(
        half,
        &format!("line {lines} column 4: the dump ends here, expected the rest of a record"),
    );
    let compressed = gzip(&dump);
    check_bad(
        &compressed[..compressed.len() / 2],
        "line 6 column 219: the dump ends here, expected the rest of the compressed data",
    );
}

#[test]
fn an_empty_dump_is_refused() {
    check_bad(
        b"",
        "line 1 column 1: the dump ends here, expected `[`, the start of the list of packages",
    );
    check_bad(b"[\n]", "the dump has no packages");
    check_bad(&gzip(b"[]"), "the dump has no packages");
}

#[test]
fn a_shrunken_dump_is_refused() {
    check_bad(
        &catalogue::generation(2, 9),
        "the dump has 9 packages after 20, more than 50 percent fewer (aur.shrink_percent_max)",
    );
}

#[test]
fn a_dump_may_shrink_a_little_or_as_configured() {
    let server = TestServer::serving(&catalogue::generation(1, 20));
    server.replace_source(&catalogue::generation(2, 10));
    wait_for_version(&server, "2-1");
    let server = TestServer::serving_with(&catalogue::generation(1, 20), |config| {
        config.aur.shrink_percent_max = 100;
    });
    server.replace_source(&catalogue::generation(2, 2));
    wait_for_version(&server, "2-1");
}

#[test]
fn a_bad_dump_at_the_start_waits_for_a_good_one() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let source = directory.path().join("source.json");
    fs::write(&source, "nonsense").expect("a file");
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.source = Some(config::AurSource::File(source));
    });
    wait_until("the reason", || {
        let ready = server.get("/readyz");
        ready.status == 503 && ready.text().contains("line 1 column 1")
    });
    server.get("/rpc/v5/info/shared-0001").expect(503);
    server.replace_source(&catalogue::generation(1, 20));
    wait_until("the server to be ready", || server.get("/readyz").status == 200);
    assert_eq!(version(&server), "1-1");
}

#[test]
fn a_restart_serves_the_kept_dump() {
    let server = TestServer::serving(&catalogue::generation(3, 20));
    let before = server.get("/rpc/v5/search/shared");
    let dump = server.get("/packages-meta-ext-v1.json.gz");
    let directory = server.stop();

    // Without a source.
    let server = TestServer::start_in(directory, |_, _| ()).ready();
    let after = server.get("/rpc/v5/search/shared");
    assert_eq!((&after.body, after.header("etag")), (&before.body, before.header("etag")));
    let again = server.get("/packages-meta-ext-v1.json.gz");
    assert_eq!(
        (again.header("etag"), again.header("last-modified")),
        (dump.header("etag"), dump.header("last-modified"))
    );
    assert_eq!(again.body, dump.body);
    assert!(wait_for(server.app.aur.reload()).is_err(), "there is nothing to look at");
    let directory = server.stop();

    // With a source that is broken by now.
    let source = directory.path().join("source.json");
    fs::write(&source, "[").expect("a file");
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.source = Some(config::AurSource::File(source));
    })
    .ready();
    assert_eq!(version(&server), "3-1");
    server.wait_for("/readyz?verbose", "[!] aur");
}

#[test]
fn a_data_directory_has_one_server() {
    let server = TestServer::serving(&catalogue::generation(1, 20));
    let config = server.app.config.clone();
    let second = wait_for(larder::start(config, Vec::new()));
    let error = second.err().map(|error| format!("{error:#}")).expect("it is taken");
    error.says("data");
}

/// A request whose body is still coming when the server is told to stop is answered; later ones are not let in.
#[test]
fn a_shutdown_finishes_what_has_begun() {
    let mut server = TestServer::serving(&catalogue::generation(1, 20));
    let body = "v=5&type=info&arg=shared-0001";
    let stream = server.anybody().announce("POST", "/rpc", body.len());
    server.begin_stop();
    server.wait_until_closed();
    assert!(!server.has_ended());
    let response = Response::after(body, stream);
    assert_eq!((response.status, response.names()), (200, "shared-0001".to_owned()));
    wait_until("the server to end", || server.has_ended());
}

/// A write is acknowledged once it can be seen, so what makes it seen ends after the last request.
#[test]
fn a_shutdown_finishes_a_write_that_has_begun() {
    let mut server = TestServer::without_aur(|_| ());
    let stream = server.root().announce("POST", "/article/late/0", 4);
    server.begin_stop();
    server.wait_until_closed();
    Response::after("text", stream).expect(201);
    wait_until("the server to end", || server.has_ended());
}

#[test]
fn a_shutdown_does_not_wait_for_those_who_ask_nothing() {
    let mut server = TestServer::serving(&catalogue::generation(1, 20));
    let _idle = server.connect();
    let mut asked = server.connect();
    asked.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
    asked.read_exact(&mut [0; 12]).expect("an answer");
    server.begin_stop();
    wait_until("the server to end", || server.has_ended());
}
