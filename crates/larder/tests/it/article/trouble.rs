//! A store that takes no writes: the writer is told, reads go on, and later writes go on when it can.

use std::sync::Arc;

use super::{noise, store};
use crate::server::TestServer;
use testbed::SmallDisk;

fn on_a_small_disk(check: impl FnOnce(&TestServer, &SmallDisk)) {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let Some(disk) = SmallDisk::mount(&directory.path().join("data"), "size=8m") else { return };
    let server = TestServer::without_aur_in(directory, |_| ());
    store(&server, "a/0", b"one");
    check(&server, &disk);
}

#[track_caller]
fn check_reads(server: &TestServer) {
    for target in ["/article/a", "/article/a/1", "/article/a/history", "/articles", "/readyz"] {
        server.get(target).expect(200);
    }
}

#[test]
fn a_full_disk() {
    on_a_small_disk(|server, disk| {
        let mut stored = 0;
        let refused = loop {
            let body = noise(700_000 + stored);
            let target = format!("/article/big/{stored}-x/0");
            let response = server.root().post(&target, &body);
            match response.status {
                201 => stored += 1,
                _ => break response,
            }
            assert!(stored < 30, "the disk has no end");
        };
        refused.check_status(503);
        assert!(refused.header("retry-after").parse::<u32>().is_ok());
        server.get(&format!("/article/big/{stored}-x")).expect(404);
        check_reads(server);
        for at in 0..stored {
            let response = server.get(&format!("/article/big/{at}-x"));
            assert!(response.body == noise(700_000 + at), "{at}");
        }
        disk.remount("size=32m");
        store(server, &format!("big/{stored}-x/0"), &noise(700_000));
        store(server, "a/1", b"two");
        check_reads(server);
    });
}

/// A disk without a byte of room: nothing but reading is possible, until there is room again.
#[test]
fn a_disk_that_takes_nothing() {
    on_a_small_disk(|server, disk| {
        disk.fill();
        for target in ["/article/a/1", "/article/b/0"] {
            server.root().post(target, noise(200_000)).expect(503);
        }
        check_reads(server);
        disk.make_room();
        store(server, "a/1", b"two");
        assert_eq!(server.get("/article/a").text(), "two");
    });
}

/// A content that is missing from the store: an error that says so, for that article alone.
#[test]
fn a_lost_content() {
    let server = super::wiki();
    store(&server, "a/0", b"one");
    store(&server, "b/0", b"two");
    let digest = record::Digest::of(b"one");
    let path = server.app.store.blobs.local_path(digest).expect("a directory");
    std::fs::remove_file(&path).expect("it is there");
    let response = server.get("/article/a").expect(500);
    response.lacks(path.to_str().expect("text"));
    assert_eq!(server.get("/article/b").text(), "two");
    server.get("/article/a/history").expect(200);
    // It cannot be restored.
    store(&server, "a/1", b"three");
    server.root().post("/article/a/2?restore=1", ()).expect(500);
    assert_eq!(server.get("/article/a").text(), "three");
    // The same text again brings it back.
    store(&server, "c/0", b"one");
    assert_eq!(server.get("/article/a/1").text(), "one");
}
