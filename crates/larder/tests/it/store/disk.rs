//! A full disk: whoever writes is told that nothing was written, whoever reads goes on, and when there is room
//! again, all goes on.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Place, Wheel, article_request, make_stage, noise, send, try_exchange};
use crate::client::Client;

/// A small disk of its own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None, with a line that says so, where this process may not have one.
    fn mount(path: &Path, megabytes: u32) -> Option<SmallDisk> {
        fs::create_dir_all(path).expect("a directory");
        let options = format!("size={megabytes}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "larder-test"]).arg(path);
        let output = mount.output();
        if output.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(path.to_owned()));
        }
        let must =
            std::env::var("CI").as_deref() == Ok("true") && rustix::process::geteuid().is_root();
        assert!(!must, "a small disk cannot be mounted: {output:?}");
        // Past what captures the output of tests that pass.
        let _ = writeln!(std::io::stderr(), "skipped: a small disk cannot be mounted here");
        None
    }

    /// Fills it to the last byte, or takes that back.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).expect("a file");
        while file.write_all(&[7; 4_096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A write that finds no room: its client is told so, and when to come again.
#[track_caller]
fn check_refused(client: &Client, request: &[u8]) {
    let (status, text) = try_exchange(client, request).expect("an answer");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("nothing was written"), "{text}");
    assert!(text.contains("\r\nretry-after: "), "{text}");
}

#[track_caller]
fn check_done(client: &Client, request: &[u8]) {
    let (status, text) = try_exchange(client, request).expect("an answer");
    assert!(matches!(status, 200 | 201), "{text}");
}

fn wheel(number: u64) -> Wheel {
    Wheel::new("pkg", &format!("{number}.0"), noise(number, 700_000), 1)
}

/// No room for blobs: neither files nor the texts of articles can be kept.
#[test]
fn no_room_for_blobs() {
    let place = Place::sqlite();
    let blobs = place.directory.path().join("blobs");
    let Some(disk) = SmallDisk::mount(&blobs, 8) else { return };
    place.init();
    let process = place.start("data");
    let client = &process.client;
    make_stage(client);
    check_done(client, &article_request("a", 0, b"one"));
    let mut kept = 0;
    while try_exchange(client, &wheel(kept).request("team/dev")).expect("an answer").0 == 200 {
        kept += 1;
        assert!(kept < 30, "the disk has no end");
    }
    assert!(kept > 3, "{kept}");
    let check_reads = |kept: u64| {
        let page = client.get("/team/dev/+simple/pkg/").text();
        assert_eq!(page.matches("#sha256=").count() as u64, kept, "{page}");
        (0..kept).for_each(|number| wheel(number).check(client, "team/dev", &[]));
        for target in ["/article/a", "/article/a/1", "/articles", "/readyz", "/team/dev"] {
            assert_eq!(client.get(target).status, 200, "{target}");
        }
    };
    check_refused(client, &wheel(kept).request("team/dev"));
    assert_eq!(place.spools(), [""; 0], "what did not fit is gone");
    check_reads(kept);
    disk.fill();
    check_refused(client, &wheel(kept).request("team/dev"));
    check_refused(client, &Wheel::new("tiny", "1.0", vec![1], 1).request("team/dev"));
    check_refused(client, &article_request("a", 1, b"two"));
    assert_eq!(client.get("/team/dev/+simple/tiny/").status, 404);
    check_reads(kept);
    disk.make_room();
    let remount = ["-o", "remount,size=32m"];
    let status = Command::new("mount").args(remount).arg(&disk.0).status();
    assert!(status.is_ok_and(|status| status.success()));
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
    let Some(disk) = SmallDisk::mount(&path, 4) else { return };
    let place =
        Place { database: format!("sqlite:{}", path.join("records.db").display()), ..place };
    place.init();
    let process = place.start("data");
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
        let (status, text) = try_exchange(client, &request).expect("an answer");
        version += u32::from(status == 201);
        assert!(version < 20_000, "the disk has no end");
        (status, text)
    };
    while post().0 == 201 {}
    let (status, text) = post();
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("nothing was written"), "{text}");
    check_refused(client, &wheel(1).request("team/dev"));
    let made = send(client, "PUT", "/alice", r#"{"password":"first"}"#);
    assert_eq!(made.status, 503, "{}", made.text());
    assert_eq!(client.get("/alice").status, 404);
    wheel(0).check(client, "team/dev", &[]);
    assert!(!client.get("/team/dev/+simple/pkg/").text().contains("pkg-1.0"));
    for target in ["/article/a", "/article/a/1", "/articles", "/readyz"] {
        assert_eq!(client.get(target).status, 200, "{target}");
    }
    disk.make_room();
    assert_eq!(post().0, 201);
    check_done(client, &wheel(1).request("team/dev"));
    wheel(1).check(client, "team/dev", &[]);
    drop(process);
    let process = place.start("data");
    wheel(1).check(&process.client, "team/dev", &[]);
    let history = process.client.get("/article/a/history").json();
    assert_eq!(history["latest"], version);
}
