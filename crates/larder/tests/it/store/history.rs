//! Histories of clients that work at the same time, judged by a checker: what each was told fits one order of all changes, and
//! serials and feeds fit it, too. See `docs/history.md`.
//!
//! clients and faults -> [`record::Recorder`] -> `crates/testbed/porcupine` -> whether it holds.

mod clients;
mod faults;
mod feeds;
mod record;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use testbed::{FarHost, Line, Porcupine, S3, SilentProxy, SmallDisk};

use super::{Place, make_stage};
use crate::asking::{Says as _, each};
use crate::client::Client;
use crate::{SetAtEnd, is_long, wait_until};
use clients::{CALLS_OF_EPOCH, Run, Worker};
use faults::Fleet;
use record::{Random, Recorder};

const CLIENTS: u64 = 8;

/// The file of a history; `LARDER_TEST_HISTORIES` names a directory in which histories are kept.
fn path(place: &Place, name: &str) -> PathBuf {
    let kept = std::env::var_os("LARDER_TEST_HISTORIES").map(PathBuf::from);
    kept.unwrap_or_else(|| place.directory.path().to_owned()).join(format!("{name}.jsonl"))
}

/// Makes the indexes that clients use, also those of later epochs.
#[track_caller]
fn prepare(client: &Client, calls_max: u64) {
    make_stage(client);
    client.root().patch("/team/dev", r#"["acl_upload+=root"]"#).expect(200);
    client.root().put("/team/final", r#"{"volatile": false, "acl_upload": ["root"]}"#).expect(200);
    for epoch in 0..=calls_max / CALLS_OF_EPOCH {
        client.root().put(&format!("/team/set{epoch}"), "{}").expect(200);
    }
}

/// Lets clients work while `disturb` does what it does, then reads everything.
fn drive(run: &Run, fleet: &mut Fleet, disturb: impl FnOnce(&mut Fleet)) {
    run.is_over.store(false, SeqCst);
    std::thread::scope(|scope| {
        let _ending = SetAtEnd(&run.is_over);
        let processes = fleet.processes.len();
        for process in 0..processes {
            for surface in ["articles", "python"] {
                scope.spawn(move || feeds::follow(run, process, surface));
            }
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || Worker::new(run, number).work()))
            .collect();
        disturb(fleet);
        // Everything is whole again before the last reads.
        wait_until("all processes", || {
            let mut processes = fleet.processes.iter().flatten();
            processes.all(|it| !it.get("/readyz?verbose").text().contains("[!] store"))
        });
        run.is_over.store(true, SeqCst);
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        Worker::new(run, CLIENTS).read_all();
    });
}

/// Judges a history, which must hold.
#[track_caller]
fn holds(porcupine: &Porcupine, history: &Path) {
    let (holds, said) = porcupine.judge(history);
    println!("{said}");
    assert!(holds, "{}: {said}", history.display());
}

/// Judges a history, which must not hold, for these reasons among others.
#[track_caller]
fn is_refused<const N: usize>(porcupine: &Porcupine, history: &Path, reasons: [&str; N]) {
    let (holds, said) = porcupine.judge(history);
    assert!(!holds, "{}: {said}", history.display());
    said.says(reasons);
}

/// How long a run takes, and the most calls that clients make in that time. A long run takes `LARDER_TEST_HISTORY_TIMES` times as
/// long.
fn seconds(short: u64, long: u64) -> (Duration, u64) {
    let times = std::env::var("LARDER_TEST_HISTORY_TIMES")
        .map_or(1, |it| it.parse().expect("a whole number"));
    let seconds = if is_long() { long * times } else { short };
    (Duration::from_secs(seconds), seconds * 1_000)
}

#[test]
fn one_server_on_sqlite() {
    let Some(porcupine) = Porcupine::prepare() else { return };
    let mut place = Place::sqlite();
    let path_of_disk = place.directory.path().join("small");
    let disk = SmallDisk::mount(&path_of_disk, "size=128m");
    if disk.is_some() {
        place.database = format!("sqlite:{}", path_of_disk.join("records.db").display());
        place.blobs = path_of_disk.join("blobs").display().to_string();
    }
    place.init();
    let (time, calls_max) = seconds(8, 240);
    let run = Run::new(Recorder::new(&path(&place, "sqlite"), false), false);
    let mut fleet = Fleet::new(&place, vec![place.database.clone()]);
    fleet.start(&run, 0, None);
    prepare(fleet.processes[0].as_ref().expect("it runs"), calls_max);
    drive(&run, &mut fleet, |fleet| {
        let (began, mut random) = (Instant::now(), Random::new(1));
        std::thread::sleep(Duration::from_secs(1));
        for round in 0.. {
            if began.elapsed() >= time {
                break;
            }
            faults::of_one(&run, fleet, disk.as_ref(), &mut random, round);
        }
        fleet.kill(&run, 0);
        fleet.start(&run, 0, None);
    });
    holds(&porcupine, run.recorder.finished());
    drop(fleet);
    place.check(&["verify", "--quick"]);
}

#[test]
fn three_processes_on_postgres_and_s3() {
    let Some(porcupine) = Porcupine::prepare() else { return };
    let far = FarHost::start();
    let store = far.as_ref().map(|far| far.addresses(Line::Store)[0]);
    let s3 = S3::start_at(store.unwrap_or(Ipv4Addr::LOCALHOST));
    let (Some(place), Some(s3)) = (Place::postgres(), s3) else { return };
    let blobs = format!("s3://{}/some/prefix", s3.make_bucket());
    let place = Place { blobs, variables: s3.variables(), ..place };
    let postgres = place.postgres.as_ref().expect("it was started");
    place.init();
    store.iter().for_each(|address| postgres.listen_at(*address));
    let (time, calls_max) = seconds(16, 360);
    let proxy = SilentProxy::start(&postgres.socket());
    let through = format!("postgres:///postgres?host={}&user=larder", proxy.directory().display());
    let own = place.database.clone();
    let there = store.map(|address| format!("postgres://larder@{address}/postgres"));
    let databases = vec![own.clone(), there.unwrap_or(own), through];
    let run = Run::new(Recorder::new(&path(&place, "fleet"), true), true);
    let mut fleet = Fleet::new(&place, databases);
    fleet.far = far;
    (0..3).for_each(|number| fleet.start(&run, number, None));
    prepare(fleet.processes[0].as_ref().expect("it runs"), calls_max);
    drive(&run, &mut fleet, |fleet| {
        let (began, mut random) = (Instant::now(), Random::new(2));
        std::thread::sleep(Duration::from_secs(1));
        for round in 0.. {
            if began.elapsed() >= time {
                break;
            }
            let store = (postgres, &s3, &proxy);
            faults::of_fleet(&run, fleet, store, &mut random, round);
        }
    });
    holds(&porcupine, run.recorder.finished());
    // The object store listens at its line.
    let _far = fleet.far.take();
    drop(fleet);
    place.check(&["verify", "--quick"]);
}

/// A cache between client and server that gives an old answer again.
#[test]
fn a_stale_read_is_found() {
    let Some(porcupine) = Porcupine::prepare() else { return };
    let place = Place::sqlite();
    place.init();
    let recorder = Recorder::new(&path(&place, "stale"), false);
    let mut run = Run::new(recorder, false);
    run.replayed = Some(Mutex::default());
    let mut fleet = Fleet::new(&place, vec![place.database.clone()]);
    fleet.start(&run, 0, None);
    prepare(fleet.processes[0].as_ref().expect("it runs"), 10_000);
    drive(&run, &mut fleet, |_| {
        wait_until("some calls", || run.calls.load(SeqCst) > CALLS_OF_EPOCH);
    });
    let reasons = [
        "article/0: ",
        "operations are not linearizable",
        "an answer is older than what its client had seen",
    ];
    is_refused(&porcupine, run.recorder.finished(), reasons);
}

/// The file of the database as it was before acknowledged commits, as a disk leaves it that never wrote them.
#[test]
fn a_lost_commit_is_found() {
    let Some(porcupine) = Porcupine::prepare() else { return };
    let place = Place::sqlite();
    place.init();
    let mut run = Run::new(Recorder::new(&path(&place, "lost"), false), false);
    // Otherwise they would wait for commits that are lost.
    run.names_seen = false;
    let mut fleet = Fleet::new(&place, vec![place.database.clone()]);
    fleet.start(&run, 0, None);
    prepare(fleet.processes[0].as_ref().expect("it runs"), 10_000);
    let file = |name: &str| place.directory.path().join(name);
    let move_files = |from: &str, to: &str| {
        for suffix in ["", "-wal"] {
            let (from, to) = (file(&format!("{from}{suffix}")), file(&format!("{to}{suffix}")));
            // The log is not there if the server ended well.
            let _ = fs::remove_file(&to);
            let _ = fs::copy(from, to);
        }
    };
    drive(&run, &mut fleet, |fleet| {
        let work_on = |more: u64| {
            let before = run.calls.load(SeqCst);
            wait_until("some calls", || run.calls.load(SeqCst) > before + more);
        };
        work_on(150);
        fleet.kill(&run, 0);
        move_files("shared.db", "before.db");
        fleet.start(&run, 0, None);
        work_on(150);
        fleet.kill(&run, 0);
        let seen = run.seen.load(SeqCst);
        move_files("before.db", "shared.db");
        let _ = fs::remove_file(file("shared.db-shm"));
        fleet.start(&run, 0, None);
        // Followers of the feed go on only then.
        wait_until("the serial that was there", || {
            let articles = fleet.processes[0].as_ref().expect("it runs").get("/articles");
            let serial: u64 = articles.header("x-larder-serial").parse().expect("a number");
            serial >= seen
        });
        work_on(50);
    });
    let reasons = [
        "operations are not linearizable",
        "two writes were acknowledged as one commit",
        "a write has a lower serial than one that was acknowledged before it began",
    ];
    is_refused(&porcupine, run.recorder.finished(), reasons);
}

/// A call in a history that nobody recorded; without an answer, it has not returned.
fn call(f: &str, key: &str, call: u64, answer: &str) -> String {
    let back = if answer.is_empty() { 0 } else { call + 5 };
    let answer = if answer.is_empty() { String::new() } else { format!(",{answer}") };
    format!(
        r#"{{"type":"op","client":0,"key":"{key}","f":"{f}","name":"a","call":{call},"return":{back}{answer}}}"#
    )
}

/// The first version of an article, with serial 7.
fn first() -> String {
    call("write", "article/0", 10, r#""text":"t","status":201,"version":1,"serial":7"#)
}

/// What a feed said from serial 6 on: the serials and versions of the article.
fn feed<const N: usize>(to: u64, lines: [(u64, u64); N]) -> String {
    let lines = lines.map(|(serial, version)| {
        format!(
            r#"{{"serial":{serial},"type":"article","kind":"added","name":"f0/a","version":{version}}}"#
        )
    });
    let lines = lines.join(",");
    format!(r#"{{"type":"feed","surface":"articles","from":6,"to":{to},"lines":[{lines}]}}"#)
}

/// What the checker says of each of these short histories, of which all but one have one thing that cannot be.
#[track_caller]
fn check_said<const N: usize>(rows: [(&str, Vec<String>); N]) {
    let Some(porcupine) = Porcupine::prepare() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("history.jsonl");
    each(rows, |(expected, lines)| {
        fs::write(&path, lines.join("\n")).expect("a file");
        let (holds, said) = porcupine.judge(&path);
        said.says(expected);
        assert_eq!(holds, expected.ends_with("holds"), "{said}");
    });
}

#[test]
fn answers_that_no_order_explains_are_found() {
    let made = call("make", "token/0", 10, r#""status":201,"serial":7"#);
    let revoked = call("revoke", "token/0", 20, r#""status":204,"serial":8"#);
    let used = r#""text":"w","status":201,"version":1,"serial":9"#;
    let uploaded = r#""text":"u","status":200,"serial":7"#;
    let refused = r#""name":"final","text":"v","status":409"#;
    let added = r#""text":"s","member":3,"status":200,"serial":7"#;
    check_said([
        ("verdict: the history holds", vec![first(), feed(7, [(7, 1)])]),
        (
            "article/0: 2 operations are not linearizable",
            vec![first(), call("read", "article/0", 20, r#""status":404,"serial":7"#)],
        ),
        (
            "project/0: 2 operations are not linearizable",
            vec![
                call("upload", "project/0", 10, uploaded),
                call("upload", "project/0", 20, refused),
            ],
        ),
        (
            "index/0: 2 operations are not linearizable",
            vec![
                call("add", "index/0", 10, added),
                call("read-index", "index/0", 20, r#""got":"s","status":200"#),
            ],
        ),
        ("a revoked token wrote", vec![made, revoked, call("use", "token/0", 30, used)]),
    ]);
}

/// Each of them may have done something at any time, which makes a billion orders.
#[test]
fn many_calls_without_an_answer_are_judged() {
    let lost = (0..30).map(|at| call("rename", "article/0", 12 + at, ""));
    let wrong = call("read", "article/0", 50, r#""status":404,"serial":7"#);
    let lines = [first()].into_iter().chain(lost).chain([wrong]).collect();
    check_said([("article/0: 32 operations are not linearizable", lines)]);
}

#[test]
fn serials_that_contradict_each_other_are_found() {
    let write = |begun: u64, serial: u64| {
        let answer = format!(r#""text":"x","status":201,"version":1,"serial":{serial}"#);
        call("write", "article/1", begun, &answer)
    };
    check_said([
        ("two writes were acknowledged as one commit", vec![first(), write(12, 7)]),
        (
            "a write has a lower serial than one that was acknowledged before it began",
            vec![first(), write(20, 6)],
        ),
        (
            "an answer is older than what its client had seen, serial 9",
            vec![call("read", "article/1", 20, r#""status":404,"serial":8,"seen":9"#)],
        ),
        (
            "a read shows what had been replaced by the serial that it names",
            vec![first(), call("read", "article/0", 12, r#""status":404,"serial":8"#)],
        ),
    ]);
}

#[test]
fn feeds_that_tell_something_else_are_found() {
    check_said([
        ("the feed of process 0 lacks a write", vec![first(), feed(7, [])]),
        (
            "the feed of process 0 has a change that nobody asked for",
            vec![first(), feed(8, [(7, 1), (8, 2)])],
        ),
        (
            "the feed of process 0 has a line of a commit that was another",
            vec![first(), feed(7, [(7, 2)])],
        ),
        (
            "the feed has 2 commits of article/0 beyond those acknowledged, and 1 calls had no answer",
            vec![call("write", "article/0", 10, ""), feed(8, [(7, 1), (8, 1)])],
        ),
    ]);
}
