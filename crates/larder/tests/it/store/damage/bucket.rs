//! A bucket whose objects are lost, cut, overwritten and replaced, at rest and under a running server. One gateway and
//! one bucket for all cases; each case has a copy of one prefix, and of the records.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use testbed::S3;

use super::Harm::{self, Away, Deleted, Emptied, Garbage, Halved, Stranger, StrangerInPlace};
use super::Start::{self, Refused, Serves};
use super::Writes::{self, GoOn, Stop, StopWhileAway};
use super::{
    ARTICLES, Case, aside, body, check_articles, check_unswept, copy, each_harm, harm, object,
    write, writes_of,
};
use crate::asking::Says as _;
use crate::process::{Done, Process, larder};
use crate::server::ROOT_PASSWORD;
use crate::store::{Wheel, article_request, make_stage, noise, try_exchange};
use crate::wait_until;

/// The prefixes `data` and `other` of one bucket, each with a data directory of its name.
struct Buckets {
    s3: &'static S3,
    bucket: String,
    directory: Arc<TempDir>,
}

impl Buckets {
    fn new() -> Option<Buckets> {
        let s3 = S3::shared()?;
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let buckets = Buckets { s3, bucket: s3.make_bucket(), directory };
        for (name, first) in [("data", 0), ("other", 100)] {
            buckets.run(name, &["init", "--root-password", ROOT_PASSWORD]).check(0, "");
            let mut process = buckets.start(name);
            for number in first..first + ARTICLES {
                assert_eq!(write(&process.client, number), 201, "{}", process.log());
            }
            process.stop();
        }
        Some(buckets)
    }

    /// The directory in which the gateway keeps the objects of a prefix.
    fn path(&self, name: &str) -> PathBuf {
        self.s3.path(&self.bucket).join(name)
    }

    fn data_dir(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A copy of `data` of another name.
    fn copy(&self, name: &str) {
        copy(&self.data_dir("data"), &self.data_dir(name));
        copy(&self.path("data"), &self.path(name));
    }

    fn remove(&self, name: &str) {
        fs::remove_dir_all(self.data_dir(name)).expect("it is ours");
        // The prefix may be gone already.
        let _ = fs::remove_dir_all(self.path(name));
        let _ = fs::remove_dir_all(aside(&self.path(name)));
    }

    fn location(&self, name: &str) -> String {
        format!("s3://{}/{name}", self.bucket)
    }

    fn start(&self, name: &str) -> Process {
        let location = self.location(name);
        let arguments = ["--aur-enabled=false", "--blobs", &location];
        Process::start_with(self.directory.clone(), name, &arguments, &self.s3.variables())
    }

    fn run(&self, name: &str, command: &[&str]) -> Done {
        self.run_at(name, &self.location(name), command)
    }

    fn run_at(&self, name: &str, location: &str, command: &[&str]) -> Done {
        let mut child = larder(self.directory.path());
        child.args(command).args(["--data-dir", name, "--blobs", location]);
        Done::of(child.envs(self.s3.variables()), "")
    }

    /// A server must refuse to start, and say this.
    #[track_caller]
    fn check_refused_at(&self, name: &str, location: &str, says: &str) {
        let serve = ["serve", "--aur-enabled=false", "--listen", "127.0.0.1:0"];
        self.run_at(name, location, &serve).check(1, says).said().lacks("panicked");
    }

    #[track_caller]
    fn check_unswept(&self, name: &str, what: &str, refused: &[u32]) {
        let sweep = ["sweep", "--force", "--grace", "0"];
        check_unswept(&self.path(name), what, refused, || self.run(name, &sweep));
    }
}

#[test]
fn at_rest() {
    let Some(buckets) = Buckets::new() else { return };
    let first = object(0);
    let strangers = "belong to the store";
    let cases: &[Case<'_, Start>] = &[
        ("", &[Deleted, Emptied, Away], Refused("but there are no blobs in")),
        ("", &[Stranger], Refused(strangers)),
        ("IDENTITY", &[Emptied, Halved, Garbage], Refused("is not the name of a store")),
        ("IDENTITY", &[Stranger], Refused(strangers)),
        ("IDENTITY", &[Deleted], Serves(None)),
        ("VERSION", &[Emptied, Halved, Garbage], Refused("this program knows only")),
        ("VERSION", &[Deleted], Serves(None)),
        ("SERIAL", &[Deleted, Emptied, Halved, Garbage, Stranger], Serves(None)),
        (&first, &[Deleted, Emptied, Halved, Garbage, Stranger], Serves(Some(0))),
    ];
    each_harm(cases, |number, path, harmed, start| {
        let (name, what) = (format!("rest{number}"), format!("{path}: {harmed:?}"));
        buckets.copy(&name);
        // For a blob that the other store does not have, another blob's bytes.
        let strange = if path.starts_with("sha256") { &object(100) } else { path };
        harm(&buckets.path(&name).join(path), &buckets.path("other").join(strange), harmed);
        match start {
            Refused(text) => {
                buckets.check_refused_at(&name, &buckets.location(&name), text);
            }
            Serves(lost) => {
                let mut process = buckets.start(&name);
                let all: Vec<u32> = (0..ARTICLES).collect();
                check_articles(&process.client, &all, &what, |number| Some(number) == lost);
                if lost == Some(0) {
                    check_mended(&process, &what);
                }
                assert_eq!(write(&process.client, 50), 201, "{what}");
                process.stop();
            }
        }
        buckets.check_unswept(&name, &what, &[]);
        buckets.remove(&name);
    });
    // A bucket that is not there, and one that is empty.
    let empty = buckets.s3.make_bucket();
    for (bucket, told) in [
        ("no-such-bucket", "has no bucket `no-such-bucket`: make it"),
        (&*empty, "but there are no blobs in"),
    ] {
        buckets.check_refused_at("data", &format!("s3://{bucket}/data"), told);
    }
}

/// A damaged object is an error that names it, counted, and mended by putting the same bytes again.
#[track_caller]
fn check_mended(process: &Process, what: &str) {
    let client = &process.client;
    assert_eq!(client.get("/article/a/0-x").status, 500, "{what}");
    assert_eq!(client.metric("larder_blobs_damaged"), 1.0, "{what}");
    let request = article_request("a/again", 0, body(0).as_bytes());
    assert_eq!(try_exchange(client, &request).expect("an answer").0, 201, "{what}");
    assert_eq!(client.get("/article/a/0-x").text(), body(0), "{what}");
}

#[test]
fn while_running() {
    let Some(buckets) = Buckets::new() else { return };
    let cases: &[Case<'_, Writes>] = &[
        ("", &[Deleted, Emptied], Stop),
        ("", &[Stranger, Away], StopWhileAway),
        ("IDENTITY", &[Deleted, Emptied, Halved, Garbage, StrangerInPlace], Stop),
        ("IDENTITY", &[Stranger, Away], StopWhileAway),
        ("VERSION", &[Deleted, Emptied, Garbage], GoOn),
        ("SERIAL", &[Deleted, Garbage, Stranger], GoOn),
    ];
    each_harm(cases, |number, path, harmed, writes| {
        check_running(&buckets, &format!("run{number}"), path, harmed, writes);
    });
}

fn check_running(buckets: &Buckets, name: &str, path: &str, harmed: Harm, writes: Writes) {
    let what = format!("{path}: {harmed:?}");
    buckets.copy(name);
    let process = buckets.start(name);
    let client = &process.client;
    let mut acknowledged: Vec<u32> = (0..ARTICLES).collect();
    check_articles(client, &acknowledged, &what, |_| false);
    let place = buckets.path(name).join(path);
    harm(&place, &buckets.path("other").join(path), harmed);
    acknowledged.extend(writes_of(&process, 30..32, writes == GoOn, &what));
    check_articles(client, &acknowledged, &what, |_| false);
    assert_eq!(client.get("/readyz").status, 200, "{what}");
    if writes == StopWhileAway {
        // Directories that the gateway made for the refused write.
        let _ = match place.is_dir() {
            true => fs::remove_dir_all(&place),
            false => fs::remove_file(&place),
        };
        fs::rename(aside(&place), &place).expect("renamed back");
        for number in 40..42 {
            assert_eq!(write(client, number), 201, "{what}: {}", process.log());
            acknowledged.push(number);
        }
    }
    assert!(!process.log().contains("panicked"), "{what}: {}", process.log());
    process.signal("KILL");
    drop(process);
    if writes != Stop {
        if path == "VERSION" {
            // A start refuses such a file because of its content.
            copy(&buckets.path("data").join(path), &place);
        }
        let process = buckets.start(name);
        check_articles(&process.client, &acknowledged, &what, |_| false);
    }
    buckets.check_unswept(name, &what, &[30, 31]);
    buckets.remove(name);
}

/// Uploads to an object store are gathered in the data directory first.
#[test]
fn the_spool_is_made_anew() {
    let Some(buckets) = Buckets::new() else { return };
    let process = buckets.start("data");
    let client = &process.client;
    make_stage(client);
    let spool = buckets.data_dir("data").join("spool");
    let mut version = 0;
    let mut upload = || {
        version += 1;
        let wheel = Wheel::new("spooled", &format!("{version}.0"), noise(version, 1000), 400);
        let status = try_exchange(client, &wheel.request("team/dev")).expect("an answer").0;
        (wheel, status)
    };
    let (first, status) = upload();
    assert_eq!(status, 200, "{}", process.log());
    wait_until("the spool to be empty", || {
        fs::read_dir(&spool).is_ok_and(|entries| entries.count() == 0)
    });
    fs::remove_dir_all(&spool).expect("removed");
    let (second, status) = upload();
    assert_eq!(status, 200, "{}", process.log());
    fs::remove_dir_all(&spool).expect("removed");
    fs::write(&spool, "no directory").expect("a file");
    let (_, status) = upload();
    assert!(matches!(status, 500 | 503 | 507), "{status}");
    fs::remove_file(&spool).expect("removed");
    let (last, status) = upload();
    assert_eq!(status, 200, "{}", process.log());
    for wheel in [first, second, last] {
        wheel.check(client, "team/dev", &[]);
    }
}
