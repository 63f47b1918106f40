//! A full disk: writers are told that nothing was written, readers go on, and when there is room again, so do writers.

use super::{Place, Wheel, article_request, make_stage, noise};
use crate::asking::{Says as _, each};
use crate::client::Client;
use testbed::SmallDisk;

/// A write that finds no room: its client is told so, and when to come again.
#[track_caller]
fn check_refused(client: &Client, request: &[u8]) {
    let refused = client.exchange(request, false).expect(503);
    assert!(refused.says("nothing was written").find("retry-after").is_some(), "{refused:?}");
}

#[track_caller]
fn check_done(client: &Client, request: &[u8]) {
    client.exchange(request, false).expect_one_of([200, 201]);
}

fn wheel(number: u64) -> Wheel {
    Wheel::new("pkg", &format!("{number}.0"), noise(number, 700_000), 1)
}

/// No room for blobs: neither files nor the texts of articles can be kept.
#[test]
fn no_room_for_blobs() {
    let place = Place::sqlite();
    let blobs = place.directory.path().join("blobs");
    let Some(disk) = SmallDisk::mount(&blobs, "size=8m") else { return };
    place.init();
    let process = place.start_with("data", &["--store-free-bytes-min", "0"]);
    let client = &process.client;
    make_stage(client);
    check_done(client, &article_request("a", 0, b"one"));
    let mut kept = 0;
    while client.exchange(&wheel(kept).request("team/dev"), false).status == 200 {
        kept += 1;
        assert!(kept < 30, "the disk has no end");
    }
    assert!(kept > 3, "{kept}");
    let check_reads = |kept: u64| {
        let page = client.get("/team/dev/+simple/pkg/").text();
        assert_eq!(page.matches("#sha256=").count() as u64, kept, "{page}");
        (0..kept).for_each(|number| wheel(number).check(client, "team/dev", &[]));
        for target in ["/article/a", "/article/a/1", "/articles", "/readyz", "/team/dev"] {
            client.get(target).expect(200);
        }
    };
    check_refused(client, &wheel(kept).request("team/dev"));
    assert_eq!(place.spools(), [""; 0], "what did not fit is gone");
    check_reads(kept);
    disk.fill();
    check_refused(client, &wheel(kept).request("team/dev"));
    check_refused(client, &Wheel::new("tiny", "1.0", vec![1], 1).request("team/dev"));
    check_refused(client, &article_request("a", 1, b"two"));
    client.get("/team/dev/+simple/tiny/").expect(404);
    check_reads(kept);
    disk.make_room();
    disk.remount("size=32m");
    check_done(client, &wheel(kept).request("team/dev"));
    check_done(client, &article_request("a", 1, b"two"));
    check_reads(kept + 1);
    assert_eq!(client.get("/article/a").text(), "two");
}

/// No room for records: nothing at all can be written.
#[test]
fn no_room_for_records() {
    let place = Place::sqlite();
    let path = place.directory.path().join("small");
    let Some(disk) = SmallDisk::mount(&path, "size=4m") else { return };
    let place =
        Place { database: format!("sqlite:{}", path.join("records.db").display()), ..place };
    place.init();
    let process = place.start_with("data", &["--store-free-bytes-min", "0"]);
    let client = &process.client;
    make_stage(client);
    check_done(client, &article_request("a", 0, b"one"));
    check_done(client, &wheel(0).request("team/dev"));
    disk.fill();
    // The pages that the database has may take a few.
    let mut version = 1;
    let mut post = || {
        let comment = "x".repeat(400);
        let target = format!("POST /article/a/{version}?comment={comment}");
        let request = super::request(&target, "text/plain", format!("{version}").as_bytes());
        let (status, text) = client.try_exchange(&request).expect("an answer");
        version += u32::from(status == 201);
        assert!(version < 20_000, "the disk has no end");
        (status, text)
    };
    while post().0 == 201 {}
    let (status, text) = post();
    assert_eq!(status, 503, "{text}");
    text.says("nothing was written");
    check_refused(client, &wheel(1).request("team/dev"));
    client.root().put("/alice", r#"{"password":"first"}"#).expect(503);
    client.get("/alice").expect(404);
    wheel(0).check(client, "team/dev", &[]);
    client.get("/team/dev/+simple/pkg/").lacks("pkg-1.0");
    for target in ["/article/a", "/article/a/1", "/articles", "/readyz"] {
        client.get(target).expect(200);
    }
    disk.make_room();
    assert_eq!(post().0, 201);
    check_done(client, &wheel(1).request("team/dev"));
    wheel(1).check(client, "team/dev", &[]);
    drop(process);
    let process = place.start_with("data", &["--store-free-bytes-min", "0"]);
    wheel(1).check(&process.client, "team/dev", &[]);
    let history = process.get("/article/a/history").json();
    assert_eq!(history["latest"], version);
}

/// Below the floor only administrators write; others are refused before their body is sent, and reads and removals go on.
#[test]
fn little_room_is_left_to_administrators() {
    let place = Place::sqlite();
    place.init();
    // No disk has as much free.
    let process = place.start_with("data", &["--store-free-bytes-min", "1099511627776"]);
    let client = &process.client;
    make_stage(client);
    check_done(client, &article_request("a", 0, b"one"));
    check_done(client, &wheel(0).request("team/dev"));
    let page = client.get("/team/dev/+simple/pkg/").text();
    let at = page.find("+f/").expect("a file");
    let file = format!("/team/dev/{}", page[at..].split('#').next().expect("a path"));
    let json = "application/json";
    let rows = [
        ("POST", "/article/a/1", "text/plain"),
        ("PATCH", "/team", json),
        ("PUT", "/team/other", json),
        ("PATCH", "/team/dev", json),
        ("POST", "/team/dev/", "multipart/form-data; boundary=b"),
        ("POST", "/team/dev/pkg/0.0/+yank", json),
        ("PUT", "/team/dev/pkg/+status", json),
        ("POST", "/+tokens", json),
        ("POST", &file, json),
    ];
    each(rows, |(method, target, content_type)| {
        // `team:team`; of the body nothing comes.
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic dGVhbTp0ZWFt\r\n\
             Content-Type: {content_type}\r\nContent-Length: 100\r\n\r\n"
        );
        client.exchange(request.as_bytes(), false).tells(507, "the disk has only SIZE bytes free, less than 1099511627776 (`store.free_bytes_min`): only administrators write now");
    });
    client.get("/readyz?verbose").says("only administrators write");
    client.get("/metrics").says("\nlarder_store_free_bytes ");
    wheel(0).check(client, "team/dev", &[]);
    let team = [("Authorization", "Basic dGVhbTp0ZWFt")];
    client.send("DELETE", "/team/dev/pkg/0.0", &team, b"").expect(200);
}
