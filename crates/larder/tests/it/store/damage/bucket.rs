//! A bucket whose objects are lost, cut, overwritten and replaced, at rest and under a running server. One gateway and
//! one bucket for all cases; each case has a copy of one prefix, and of the records.

use std::fs;

use testbed::S3;

use super::Harm::{Away, Deleted, Emptied, Garbage, Halved, Stranger, StrangerInPlace};
use super::Start::{self, Refused, Serves};
use super::Writes::{self, GoOn, Stop, StopWhileAway};
use super::harm::{Case, SERVE, Stores, body, each_harm, object};
use super::{check_at_rest, check_running};
use crate::asking::Says as _;
use crate::process::Process;
use crate::store::{Wheel, article_request, make_stage, noise};
use crate::wait_until;

#[test]
fn at_rest() {
    let Some(stores) = Stores::in_bucket() else { return };
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
        check_at_rest(&stores, number, path, harmed, start);
    });
    // A bucket that is not there, and one that is empty.
    let empty = S3::shared().expect("it is there").make_bucket();
    for (bucket, told) in [
        ("no-such-bucket", "has no bucket `no-such-bucket`: make it"),
        (&*empty, "but there are no blobs in"),
    ] {
        let at = ["--data-dir", "data", "--blobs", &format!("s3://{bucket}/data")];
        stores.run(&[&SERVE[..], &at].concat()).check(1, told).said().lacks("panicked");
    }
}

/// A damaged object is an error that names it, counted, and mended by putting the same bytes again.
#[track_caller]
pub(super) fn check_mended(process: &Process, what: &str) {
    let client = &process.client;
    assert_eq!(client.get("/article/a/0-x").status, 500, "{what}");
    assert_eq!(client.metric("larder_blobs_damaged"), 1.0, "{what}");
    let request = article_request("a/again", 0, body(0).as_bytes());
    assert_eq!(client.exchange(&request, false).status, 201, "{what}");
    assert_eq!(client.get("/article/a/0-x").text(), body(0), "{what}");
}

#[test]
fn while_running() {
    let Some(stores) = Stores::in_bucket() else { return };
    let cases: &[Case<'_, Writes>] = &[
        ("", &[Deleted, Emptied], Stop),
        ("", &[Stranger, Away], StopWhileAway),
        ("IDENTITY", &[Deleted, Emptied, Halved, Garbage, StrangerInPlace], Stop),
        ("IDENTITY", &[Stranger, Away], StopWhileAway),
        ("VERSION", &[Deleted, Emptied, Garbage], GoOn),
        ("SERIAL", &[Deleted, Garbage, Stranger], GoOn),
    ];
    each_harm(cases, |number, path, harmed, writes| {
        check_running(&stores, number, path, harmed, writes);
    });
}

/// Uploads to an object store are gathered in the data directory first.
#[test]
fn the_spool_is_made_anew() {
    let Some(stores) = Stores::in_bucket() else { return };
    let process = stores.start("data");
    let client = &process.client;
    make_stage(client);
    let spool = stores.path("data/spool");
    let mut version = 0;
    let mut upload = || {
        version += 1;
        let wheel = Wheel::new("spooled", &format!("{version}.0"), noise(version, 1000), 400);
        let status = client.exchange(&wheel.request("team/dev"), false).status;
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
