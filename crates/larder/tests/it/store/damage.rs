//! Every file and directory of a data directory lost, cut, overwritten, replaced and moved away, at rest and under a
//! running server. A start refuses or serves what is right; a write is refused, or found again after a restart; a
//! sweep, however it is forced, takes no blob that some store may own.
//!
//! Here: the files of SQLite and a directory of blobs. `postgres` and `bucket` have the same for the other backends,
//! `beside` for the other files in a data directory.

mod beside;
mod bucket;
mod harm;
mod postgres;

use std::fs;
use std::ops::Range;

use testbed::S3;

use self::harm::Harm::{self, Away, Deleted, Emptied, Garbage, Halved, Stranger, StrangerInPlace};
use self::harm::{
    ARTICLES, Case, Stores, aside, blob, blobs, body, check_articles, check_unswept, copy,
    each_harm, harm, object, write,
};
use super::{Place, article_request};
use crate::asking::Says as _;
use crate::client::Client;
use crate::process::Process;
use crate::wait_until;

/// The outcome of a start.
#[derive(Clone, Copy)]
enum Start {
    /// It prints this, and ends.
    Refused(&'static str),
    /// It serves everything, except perhaps this article.
    Serves(Option<u32>),
}
use Start::{Refused, Serves};

#[test]
fn at_rest() {
    let stores = Stores::new();
    let first = blob(0);
    let strangers = "belong to the store";
    let cases: &[Case<'_, Start>] = &[
        ("records.db", &[Deleted, Emptied, Away], Refused("there are no records in")),
        ("records.db", &[Halved], Refused("cannot open the records in")),
        ("records.db", &[Garbage], Refused("file is not a database")),
        ("records.db", &[Stranger, StrangerInPlace], Refused(strangers)),
        ("blobs", &[Deleted, Emptied, Away], Refused("but there are no blobs in")),
        ("blobs", &[Stranger], Refused(strangers)),
        ("blobs/sha256", &[Deleted, Emptied, Away], Refused("do not say whose they are")),
        ("blobs/sha256", &[Stranger], Refused(strangers)),
        (
            "blobs/sha256/IDENTITY",
            &[Emptied, Halved, Garbage],
            Refused("is not the name of a store"),
        ),
        ("blobs/sha256/IDENTITY", &[Stranger, StrangerInPlace], Refused(strangers)),
        ("blobs/sha256/IDENTITY", &[Deleted, Away], Serves(None)),
        ("blobs/sha256/SERIAL", &[Deleted, Emptied, Halved, Garbage, Stranger, Away], Serves(None)),
        ("blobs/VERSION", &[Emptied, Halved, Garbage], Refused("this program knows only")),
        ("blobs/VERSION", &[Deleted, Away, Stranger], Serves(None)),
        ("blobs/tmp", &[Deleted, Away], Serves(None)),
        ("blobs/lock", &[Deleted, Away], Serves(None)),
        ("larder.lock", &[Deleted, Away], Serves(None)),
        (&first, &[Deleted, Emptied, Halved, Garbage, Away], Serves(Some(0))),
    ];
    each_harm(cases, |number, path, harmed, start| {
        check_at_rest(&stores, number, path, harmed, start);
    });
}

fn check_at_rest(stores: &Stores, number: u32, path: &str, harmed: Harm, start: Start) {
    let (data, what) = (format!("rest{number}"), format!("{path}: {harmed:?}"));
    let root = stores.copy(&data);
    // For a blob that the other store does not have, another blob's bytes.
    let strange = if path == object(0) { &object(100) } else { path };
    harm(&root.join(path), &stores.root("other").join(strange), harmed);
    match start {
        Refused(text) => stores.refused(&data).fails(1, text).stderr.lacks("panicked"),
        Serves(lost) => {
            let mut process = stores.start(&data);
            let all: Vec<u32> = (0..ARTICLES).collect();
            check_articles(&process.client, &all, &what, |number| Some(number) == lost);
            if path == object(0) {
                bucket::check_mended(&process, &what);
            }
            assert_eq!(write(&process.client, 50), 201, "{what}");
            process.stop();
        }
    }
    stores.check_unswept(&data, &what, &[]);
    stores.remove(&data);
}

/// The outcome of writes to a running server.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    /// They go on.
    GoOn,
    /// They are refused until the server is started again.
    Stop,
    /// They are refused, and go on once the moved files are back.
    StopWhileAway,
}
use Writes::{GoOn, Stop, StopWhileAway};

#[test]
fn while_running() {
    let stores = Stores::new();
    let cases: &[Case<'_, Writes>] = &[
        ("records.db", &[Deleted, Emptied, Halved, Garbage, Stranger, StrangerInPlace, Away], Stop),
        ("records.db-wal", &[Deleted, Emptied, Halved, Garbage, Away], Stop),
        ("records.db-shm", &[Deleted, Away], Stop),
        ("blobs", &[Deleted, Emptied], Stop),
        ("blobs", &[Stranger, Away], StopWhileAway),
        ("blobs/sha256", &[Deleted, Emptied], Stop),
        ("blobs/sha256", &[Stranger, Away], StopWhileAway),
        ("blobs/sha256/IDENTITY", &[Deleted, Emptied, Halved, Garbage, StrangerInPlace], Stop),
        ("blobs/sha256/IDENTITY", &[Stranger, Away], StopWhileAway),
        ("blobs/sha256/SERIAL", &[Deleted, Garbage, Stranger], GoOn),
        ("blobs/VERSION", &[Deleted, Emptied, Garbage, Away], GoOn),
        ("blobs/tmp", &[Deleted, Away], GoOn),
        ("blobs/lock", &[Deleted, Away], GoOn),
        ("larder.lock", &[Deleted, Away], GoOn),
    ];
    each_harm(cases, |number, path, harmed, writes| {
        check_running(&stores, number, path, harmed, writes);
    });
}

/// Writes these articles after the damage; returns the acknowledged ones: all or none.
#[track_caller]
fn writes_of(process: &Process, numbers: Range<u32>, go_on: bool, what: &str) -> Vec<u32> {
    for number in numbers.clone() {
        match write(&process.client, number) {
            201 => assert!(go_on, "{what}: a write was acknowledged"),
            503 => assert!(!go_on, "{what}: a write was refused: {}", process.log()),
            status => panic!("{what}: {status}"),
        }
    }
    if go_on { numbers.collect() } else { Vec::new() }
}

fn check_running(stores: &Stores, number: u32, path: &str, harmed: Harm, writes: Writes) {
    let (data, what) = (format!("run{number}"), format!("{path}: {harmed:?}"));
    let data = data.as_str();
    let root = stores.copy(data);
    let process = stores.start(data);
    let client = &process.client;
    let mut acknowledged: Vec<u32> = (0..ARTICLES).collect();
    // Some commits are in the log, and everything is in memory.
    for number in 20..24 {
        assert_eq!(write(client, number), 201, "{what}");
        acknowledged.push(number);
    }
    check_articles(client, &acknowledged, &what, |_| false);
    let (place, before) = (root.join(path), blobs(&root).len());
    harm(&place, &stores.root("other").join(path), harmed);
    let harmed_blobs = blobs(&root).len();

    acknowledged.extend(writes_of(&process, 30..33, writes == GoOn, &what));
    // A gateway makes directories for objects, and keeps what a refused write has sent.
    let is_directory = place.starts_with(stores.path(data));
    if is_directory && matches!(harmed, Deleted | Away) && writes != GoOn {
        assert!(!place.exists(), "{what}: it was made anew");
    }
    check_articles(client, &acknowledged, &what, |_| false);
    assert_eq!(client.get("/readyz").status, 200, "{what}");
    // Without its record a blob is only bytes that a sweep takes.
    if writes != GoOn && place.starts_with(root.join("blobs")) {
        assert_eq!(blobs(&root).len(), harmed_blobs, "{what}: a refused write left a blob");
    }
    // Moved back, as an administrator would do who finds it.
    let move_back = || {
        let _ = match place.is_dir() {
            true => fs::remove_dir_all(&place),
            false => fs::remove_file(&place),
        };
        fs::rename(aside(&place), &place).expect("renamed back");
    };
    if writes == StopWhileAway {
        move_back();
        assert!(!is_directory || blobs(&root).len() == before, "{what}");
        for number in 40..43 {
            assert_eq!(write(client, number), 201, "{what}: {}", process.log());
            acknowledged.push(number);
        }
    }
    assert!(!process.log().contains("panicked"), "{what}: {}", process.log());
    // Killed: nothing is tidied up at the end.
    process.signal("KILL");
    drop(process);
    if writes != Stop {
        if harmed == Away && writes == GoOn {
            move_back();
        }
        if path.ends_with("VERSION") && matches!(harmed, Emptied | Garbage) {
            // A start refuses such a VERSION because of its content.
            fs::copy(stores.root("data").join(path), &place).expect("mended");
        }
        let process = stores.start(data);
        check_articles(&process.client, &acknowledged, &what, |_| false);
    }
    // A log that is lost takes the latest commits with it, once the server that knows them is gone: then the grace
    // is what keeps their blobs.
    if !path.ends_with("records.db-wal") {
        stores.check_unswept(data, &what, &[30, 31, 32]);
    }
    stores.remove(data);
}

/// A mistyped or lost database beside the blobs of a store.
#[test]
fn a_mistyped_database_costs_nothing() {
    let stores = Stores::new();
    let before = blobs(&stores.path("data"));
    let serve = ["serve", "--data-dir", "data", "--database", "sqlite:data/record.db"];
    stores.run(&serve).check(1, ["belong to the store", "mistyped", "larder adopt"]);
    assert!(!stores.path("data/record.db").exists(), "no database is made");
    // An earlier version has made a database beside them already.
    let init = ["init", "--data-dir", "third", "--root-password", "x"];
    stores.run(&init).check(0, "");
    fs::rename(stores.path("third/records.db"), stores.path("data/record.db")).expect("a rename");
    stores.run(&serve).check(1, "belong to the store");
    for force in [&[][..], &["--force"]] {
        let sweep = ["sweep", "--data-dir", "data", "--database", "sqlite:data/record.db"];
        let sweep = [&sweep[..], &["--grace", "0"], force].concat();
        stores.run(&sweep).check(1, "nothing was swept");
    }
    assert_eq!(blobs(&stores.path("data")), before);
    stores.run(&["verify", "--data-dir", "data"]).check(0, "");
    // An administrator can adopt it deliberately.
    let adopt = ["adopt", "--data-dir", "data", "--database", "sqlite:data/record.db"];
    stores.run(&adopt).check(0, "8 there are named by no record");
    stores.refused("data").fails(1, "belong to the store");
    let told = "the records name 8 blobs, of which 8 are there";
    stores.run(&["adopt", "--data-dir", "data"]).check(0, told);
    let process = stores.start("data");
    check_articles(&process.client, &[0, 1, 2, 3, 4, 5, 6, 7], "adopted back", |_| false);
}

/// A data directory of an earlier version has no name beside its blobs.
#[test]
fn an_earlier_data_directory_goes_on() {
    let stores = Stores::new();
    let identity = "blobs/sha256/IDENTITY";
    let name = fs::read(stores.path("data").join(identity)).expect("a name");
    fs::remove_file(stores.path("data").join(identity)).expect("removed");
    let sweep = ["sweep", "--data-dir", "data", "--force", "--grace", "0"];
    stores.run(&sweep).check(1, "nothing was swept");
    // One blob is lost, and one was deleted and not swept: neither is a reason to refuse.
    fs::remove_file(stores.path("data").join(blob(0))).expect("removed");
    let mut process = stores.start("data");
    check_articles(&process.client, &[1, 2, 3], "as before", |_| false);
    assert_eq!(fs::read(stores.path("data").join(identity)).expect("a name"), name);
    process.stop();
}

/// An older copy of the same records: a start and a sweep refuse it, until an administrator wants it.
#[test]
fn older_records_are_not_taken_for_the_latest() {
    let stores = Stores::new();
    let older = stores.copy("older");
    let mut process = stores.start("data");
    for number in 20..23 {
        assert_eq!(write(&process.client, number), 201);
    }
    process.stop();
    let data = stores.path("data");
    let newer = stores.copy("newer");
    fs::copy(older.join("records.db"), data.join("records.db")).expect("a copy");
    let before = blobs(&data);
    stores.refused("data").fails(1, ["are an older copy", "larder adopt"]);
    stores.check_unswept("data", "an older copy", &[]);
    stores.run(&["verify", "--data-dir", "data"]).check(1, "are an older copy");
    // The right ones are back.
    fs::copy(newer.join("records.db"), data.join("records.db")).expect("a copy");
    let process = stores.start("data");
    check_articles(&process.client, &[0, 20, 21, 22], "the right ones", |_| false);
    drop(process);
    // The older ones are wanted.
    for log in ["records.db-wal", "records.db-shm"] {
        let _ = fs::remove_file(data.join(log));
    }
    fs::copy(older.join("records.db"), data.join("records.db")).expect("a copy");
    stores.refused("data").fails(1, "are an older copy");
    stores.run(&["adopt", "--data-dir", "data"]).check(0, "is given up");
    let mut process = stores.start("data");
    check_articles(&process.client, &[0, 1], "adopted", |_| false);
    process.get("/article/a/20-x").expect(404);
    process.stop();
    stores.run(&["sweep", "--data-dir", "data", "--grace", "0"]).check(0, "");
    assert_eq!(blobs(&data).len(), before.len() - 3);
    // A restore is wanted, even beside blobs that know later records.
    stores.run(&["backup", "--data-dir", "older", "backup"]).check(0, "");
    for file in ["records.db", "records.db-wal", "records.db-shm"] {
        let _ = fs::remove_file(newer.join(file));
    }
    fs::remove_dir_all(stores.path("newer/blobs")).expect("removed");
    copy(&stores.path("older/blobs"), &stores.path("newer/blobs"));
    fs::copy(stores.path("data/blobs/sha256/SERIAL"), stores.path("newer/blobs/sha256/SERIAL"))
        .expect("a copy");
    stores.run(&["restore", "--data-dir", "newer", "backup"]).check(0, "");
    let process = stores.start("newer");
    check_articles(&process.client, &[0, 1, 7], "restored", |_| false);
}

/// A server that finds its log gone notes what it had read: a start does not take the file without it for whole.
#[test]
fn commits_that_were_in_a_lost_log_are_missed() {
    let stores = Stores::new();
    let process = stores.start("data");
    for number in 20..23 {
        assert_eq!(write(&process.client, number), 201);
    }
    for log in ["records.db-wal", "records.db-shm"] {
        fs::remove_file(stores.path("data").join(log)).expect("removed");
    }
    assert_eq!(write(&process.client, 30), 503);
    process.wait_for("/metrics", "\nlarder_store_is_rewound 1\n");
    let noted = || fs::read_to_string(stores.path("data/blobs/sha256/SERIAL")).expect("a note");
    let serial = process.get("/article/a/0-x").header("x-larder-serial").to_owned();
    wait_until("the note", || noted().trim_end().ends_with(&format!(" {serial}")));
    process.signal("KILL");
    drop(process);
    stores.refused("data").fails(1, "are an older copy");
    stores.check_unswept("data", "a lost log", &[30]);
}

/// A damaged blob is an error, and mended by putting the same bytes again.
#[test]
fn a_damaged_blob_is_never_served() {
    let stores = Stores::new();
    let path = stores.path("data").join(blob(3));
    let size = fs::metadata(&path).expect("a blob").len();
    harm(&path, &path, Garbage);
    let process = stores.start("data");
    let client = &process.client;
    client
        .get("/article/a/3-x")
        .tells(500, "the content is damaged in the store; it has been logged");
    client.get("/readyz?verbose").says("[!] blobs: 1 blob missing or damaged");
    client.get("/metrics").says("\nlarder_blobs_damaged 1\n");
    client.get("/readyz").expect(200);

    let request = article_request("a/again", 0, body(3).as_bytes());
    client.exchange(&request, false).expect(201);
    assert_eq!(fs::metadata(&path).expect("a blob").len(), size);
    assert_eq!(client.get("/article/a/3-x").text(), body(3));
    client.get("/metrics").says("\nlarder_blobs_damaged 0\n");
}

/// The scrub finds damage in a blob that is never read.
#[test]
fn the_scrub_finds_damage() {
    let stores = Stores::new();
    let paths = [2, 5].map(|number| stores.path("data").join(blob(number)));
    harm(&paths[0], &paths[0], Garbage);
    harm(&paths[1], &paths[1], Deleted);
    let arguments = ["--aur-enabled=false", "--store-scrub-seconds", "1"];
    let process = Process::start_in(stores.directory.clone(), "data", &arguments);
    process.wait_for("/readyz?verbose", "[!] blobs: 2 blobs missing or damaged");
    for number in [2, 5] {
        process.get(&format!("/article/a/{number}-x")).expect(500);
    }
}

/// The state in memory, of a store whose database is damaged, becomes a store again.
#[test]
fn a_rescued_store_answers_the_same() {
    let stores = Stores::new();
    let admin = ["--admin-listen", "unix:admin.sock", "--admin-key", crate::server::KEY];
    let arguments = [&["--aur-enabled=false"], &admin[..]].concat();
    let process = Process::start_in(stores.directory.clone(), "data", &arguments);
    let client = &process.client;
    super::make_stage(client);
    let wheel = super::Wheel::new("rescued", "1.0", super::noise(7, 1000), 400);
    wheel.upload(client, "team/dev");
    client.root().delete("/article/a/4-x/1").done();
    let all: Vec<u32> = (0..ARTICLES).filter(|number| *number != 4).collect();
    check_articles(client, &all, "before", |_| false);
    let seen = |client: &Client| {
        let targets =
            ["/article/a/3-x/history", "/article/a/4-x/history", "/articles", "/team", "/team/dev"];
        let more = ["/team/dev/+simple/rescued/", "/team/dev/rescued"];
        let ask = |target: &str| {
            let response = client.root().json().get(target);
            let text = response.text().replace(&client.address.to_string(), "HERE");
            (response.status, text, response.header("x-larder-serial").to_owned())
        };
        [&targets[..], &more].concat().into_iter().map(ask).collect::<Vec<_>>()
    };
    let before = seen(client);
    let path = stores.path("data/records.db");
    harm(&path, &path, Garbage);
    assert_eq!(write(client, 60), 503);
    process.signal("USR1");
    let rescued = || {
        let entries = fs::read_dir(stores.path("data")).expect("a directory");
        let mut names = entries.map(|entry| entry.expect("an entry").file_name());
        names.find_map(|name| name.to_str()?.starts_with("rescued-").then(|| name.clone()))
    };
    wait_until("the rescue", || {
        process.log().contains("rescued ") || process.log().contains("nothing was")
    });
    let data = format!("data/{}", rescued().expect("a directory").to_str().expect("a name"));
    process.log().says("into `");
    process.log().lacks(" lost:");
    // The same through the admin listener, but never over existing records.
    let rescue = [&["rescue", "asked"], &admin[..]].concat();
    stores.run(&rescue).check(0, "rescued ");
    stores.run(&rescue).check(1, "has records already");
    drop(process);
    for data in [&data, "asked"] {
        stores.run(&["verify", "--data-dir", data]).check(0, "no faults");
    }
    let process = stores.start(&data);
    check_articles(&process.client, &all, "rescued", |_| false);
    wheel.check(&process.client, "team/dev", &[]);
    assert_eq!(seen(&process.client), before);
    assert_eq!(write(&process.client, 60), 201);
}

/// On PostgreSQL and a bucket it is the same: a lost database costs no blob, another bucket no acknowledged write.
#[test]
fn a_database_server_and_a_bucket_are_told_apart_too() {
    let Some(place) = Place::postgres_and_s3() else { return };
    let (Some(other), Some(s3)) = (Place::postgres(), S3::shared()) else { return };
    place.init();
    let process = place.start("one");
    let client = &process.client;
    for number in 0..3 {
        assert_eq!(write(client, number), 201);
    }
    let bucket = place.blobs.strip_prefix("s3://").and_then(|rest| rest.split('/').next());
    let prefix = s3.path(bucket.expect("a bucket")).join("some/prefix");
    let before = blobs(&prefix);
    assert_eq!(before.len(), 3);

    let stranger = Place {
        directory: place.directory.clone(),
        database: other.database.clone(),
        postgres: None,
        blobs: place.blobs.clone(),
        variables: place.variables.clone(),
    };
    stranger.run(&["init", "--root-password", "x"]).fails(1, "belong to the store");
    for force in [&[][..], &["--force"]] {
        stranger.run(&[&["sweep", "--grace", "0"], force].concat()).check(1, "");
    }
    assert_eq!(blobs(&prefix), before);

    // In memory from then on.
    check_articles(client, &[0, 1, 2], "before", |_| false);
    fs::rename(&prefix, aside(&prefix)).expect("a rename");
    for number in 10..13 {
        assert_eq!(write(client, number), 503, "{}", process.log());
    }
    check_articles(client, &[0, 1, 2], "another bucket", |_| false);
    // Objects uploaded before the bucket was found to be another one.
    let _ = fs::remove_dir_all(&prefix);
    fs::rename(aside(&prefix), &prefix).expect("a rename");
    for number in 10..13 {
        assert_eq!(write(client, number), 201, "{}", process.log());
    }
    drop(process);
    let process = place.start("one");
    check_articles(&process.client, &[0, 1, 2, 10, 11, 12], "and back", |_| false);
    place.check(&["verify"]);
}
