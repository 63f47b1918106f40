//! Deltas between dumps, applied as a client does it: what comes out is the dump, byte for byte.

use std::fs;

use config::AurSource;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::catalogue::{self, gunzip};
use crate::client::Response;
use crate::server::{TestServer, small, source_path, wait_for};
use crate::wait_until;

const PACKAGES: u32 = 300;

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn delta(server: &TestServer, extension: &str, since: &str) -> Response {
    server.get(&format!("/packages-meta-ext-v1.delta.{extension}?since={since}"))
}

/// The dump that a client has when it has fetched it whole.
fn dump(server: &TestServer) -> Vec<u8> {
    gunzip(&server.get("/packages-meta-ext-v1.json.gz").body)
}

/// The dump that a client has when it has applied the lines of a delta.
fn applied(lines: &[u8], base: &[u8]) -> Vec<u8> {
    let mut lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let head: Value = serde_json::from_slice(lines.next().expect("a head")).expect("JSON");
    assert_eq!((&head["format"], &head["from"]), (&1.into(), &sha256(base).into()));
    let mut made = Vec::new();
    for line in lines {
        match serde_json::from_slice(line).expect("JSON") {
            Value::String(text) => made.extend_from_slice(text.as_bytes()),
            range => {
                let number = |at: usize| range[at].as_u64().expect("a number") as usize;
                made.extend_from_slice(&base[number(0)..][..number(1)]);
            }
        }
    }
    assert_eq!((&head["to"], &head["bytes"]), (&sha256(&made).into(), &made.len().into()));
    made
}

/// Waits until a delta leads from `base` to the dump with this content, and applies it in both forms.
#[track_caller]
fn check(server: &TestServer, base: &[u8], next: &[u8]) -> usize {
    let since = sha256(base);
    let to = format!("\"to\":\"{}\"", sha256(next));
    let mut size = 0;
    wait_until("the delta", || {
        let response = delta(server, "gz", &since);
        assert!(matches!(response.status, 200 | 503), "{}", response.text());
        size = response.body.len();
        let is_there = |lines: &[u8]| String::from_utf8_lossy(lines).contains(&to);
        response.status == 200 && is_there(&gunzip(&response.body))
    });
    let lines = gunzip(&delta(server, "gz", &since).body);
    let zstd = delta(server, "zst", &since).body;
    assert!(zstd::decode_all(&zstd[..]).expect("zstd") == lines);
    assert!(applied(&lines, base) == next);
    size
}

/// A dump in which a package was deleted, one is new, one was pushed, and one was adopted.
fn a_day_later(dump: &[u8]) -> Vec<u8> {
    let mut packages: Vec<Value> = serde_json::from_slice(dump).expect("a dump");
    let mut new = packages.remove(100);
    new["Name"] = "what-is-new-ä".into();
    packages.insert(20, new);
    packages[50]["Version"] = "77-1".into();
    packages[60]["Maintainer"] = "mallory".into();
    let lines: Vec<String> = packages.iter().map(Value::to_string).collect();
    format!("[\n{}\n]", lines.join(",\n")).into_bytes()
}

#[test]
fn a_client_keeps_its_dump_up_to_date() {
    let first = a_day_later(&catalogue::generation(0, PACKAGES));
    let server = TestServer::serving(&first);
    assert!(dump(&server) == first);
    check(&server, &first, &first);
    let mut dumps = vec![first];
    let days =
        [a_day_later as fn(&[u8]) -> Vec<u8>, |_| catalogue::generation(1, PACKAGES), a_day_later];
    for (day, later) in days.into_iter().enumerate() {
        let next = later(dumps.last().expect("the first"));
        server.replace_source(&next);
        wait_for(server.app.aur.reload()).expect("a good dump");
        for base in &dumps {
            check(&server, base, &next);
        }
        let size = check(&server, &next, &next);
        assert!(size < 300, "{size} bytes for nothing");
        assert!(dump(&server) == next, "day {day}");
        dumps.push(next);
    }
    // The deltas outlive the process.
    let server = TestServer::start_in(server.stop(), |config, directory| {
        config.aur.source = Some(AurSource::File(source_path(directory)));
    })
    .ready();
    let last = dumps.last().expect("some");
    for base in &dumps {
        check(&server, base, last);
    }
}

/// A delta is worth it: four packages of 300 are one in 75.
#[test]
fn a_delta_is_small() {
    let first = a_day_later(&catalogue::generation(0, PACKAGES));
    let server = TestServer::serving(&first);
    check(&server, &first, &first);
    let next = a_day_later(&first);
    server.replace_source(&next);
    wait_for(server.app.aur.reload()).expect("a good dump");
    let size = check(&server, &first, &next);
    assert!(size * 50 < next.len(), "{size} bytes for a dump of {}", next.len());
}

#[test]
fn a_client_starts_over_when_its_dump_is_unknown() {
    let server = TestServer::serving(&catalogue::generation(0, PACKAGES));
    let first = dump(&server);
    check(&server, &first, &first);
    delta(&server, "gz", &sha256(b"another dump"))
        .tells(410, "no delta leads from a dump with the SHA-256 `DIGEST` to the one of now: fetch /packages-meta-ext-v1.json.gz");
    // The files are gone: earlier dumps are no longer known.
    let directory = server.stop();
    fs::remove_dir_all(directory.path().join("data/aur/deltas")).expect("the deltas");
    let next = catalogue::generation(1, PACKAGES);
    fs::write(source_path(&directory), &next).expect("a dump");
    let server = TestServer::start_in(directory, |config, directory| {
        config.aur.source = Some(AurSource::File(source_path(directory)));
    })
    .ready();
    check(&server, &next, &next);
    delta(&server, "zst", &sha256(&first)).expect(410);
}

#[test]
fn questions_are_checked() {
    let server = TestServer::serving(&catalogue::generation(0, PACKAGES));
    let path = "/packages-meta-ext-v1.delta.gz";
    for (query, says) in [
        (
            "",
            "the parameter `since` is missing: expected the SHA-256 of the dump that you have, unpacked, as 64 hexadecimal digits",
        ),
        (
            "?since=",
            "`` is no value of the parameter `since`: expected the SHA-256 of the dump that you have, unpacked, as 64 hexadecimal digits",
        ),
        (
            "?since=xyz",
            "`xyz` is no value of the parameter `since`: expected the SHA-256 of the dump that you have, unpacked, as 64 hexadecimal digits",
        ),
        ("?from=1", "the parameter `from` is unknown, expected: since"),
    ] {
        small().get(&format!("{path}{query}")).tells(400, says);
    }
    let first = dump(&server);
    check(&server, &first, &first);
    let since = sha256(&first);
    let response = delta(&server, "gz", &since.to_uppercase()).expect(200);
    response.has("content-type", "application/gzip");
    assert_eq!(response.find("content-encoding"), None);
    let etag = response.header("etag");
    let target = format!("{path}?since={since}");
    server.client.get_with(&target, &[("If-None-Match", etag)]).expect(304);
    server.client.get_with(&target, &[("If-None-Match", "\"x\"")]).expect(200);
    // A date says nothing about a delta.
    let date = "Fri, 01 Jan 2100 00:00:00 GMT";
    server.client.get_with(&target, &[("If-Modified-Since", date)]).expect(200);
}

/// A directory on a disk that is not there.
fn nowhere(path: &std::path::Path) {
    std::os::unix::fs::symlink("nowhere", path).expect("a link");
}

/// If deltas cannot be written, clients are told to start over, and not to wait.
#[test]
fn without_room_for_deltas_clients_start_over() {
    let directory = std::sync::Arc::new(tempfile::tempdir().expect("a directory"));
    fs::create_dir_all(directory.path().join("data/aur")).expect("a directory");
    nowhere(&directory.path().join("data/aur/deltas"));
    fs::write(source_path(&directory), catalogue::generation(0, PACKAGES)).expect("a dump");
    let server = TestServer::start_in(directory, |config, directory| {
        config.aur.source = Some(AurSource::File(source_path(directory)));
    })
    .ready();
    let since = sha256(&dump(&server));
    wait_until("the answer", || delta(&server, "gz", &since).status == 410);
    server.get("/packages-meta-ext-v1.json.gz").expect(200);
}

/// If the dump cannot be kept, there will never be a delta.
#[test]
fn without_a_kept_dump_clients_start_over() {
    let directory = std::sync::Arc::new(tempfile::tempdir().expect("a directory"));
    fs::create_dir(directory.path().join("data")).expect("a directory");
    nowhere(&directory.path().join("data/aur"));
    fs::write(source_path(&directory), catalogue::generation(0, PACKAGES)).expect("a dump");
    let server = TestServer::start_in(directory, |config, directory| {
        config.aur.source = Some(AurSource::File(source_path(directory)));
    });
    // It is not ready before the dump is kept.
    wait_until("the answer", || delta(&server, "gz", &sha256(b"any")).status == 410);
    server.get("/packages-meta-ext-v1.json.gz").expect(503);
}
