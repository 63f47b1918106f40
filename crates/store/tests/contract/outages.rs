//! The database is full, locked, stopped, cut off: writers get an error that is true, readers go on
//! where they can, and afterwards all is as before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use record::{Batch, Expected, Serial};
use store::records::{
    CommitError, DatabaseLocation, OpenError, ReadError, Records, RecordsOptions, Rewound,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::database::{Database, Kind, flaws, in_runtime, key, options, put, run};
use crate::on_both;
use testbed::{Postgres, SilentProxy, SmallDisk};

on_both!(
    a_lock_that_is_not_let_go_is_an_error,
    a_store_that_fell_back_is_neither_read_nor_written,
    a_store_that_fell_back_and_went_on_otherwise_is_noticed,
    a_store_that_fell_back_stays_so_until_it_is_opened_again,
);

async fn a_lock_that_is_not_let_go_is_an_error(database: Database) {
    let options = RecordsOptions { database_timeout: Duration::from_millis(300), ..options() };
    let records = database.open_with(options).await;
    records.commit(put("a", "1")).await.expect("committed");
    let lock = database.lock().await;
    let error = records.commit(put("b", "2")).await.expect_err("locked");
    assert!(matches!(error, CommitError::Unavailable(_)), "{error}");
    assert!(error.is_temporary());
    assert_eq!(records.serial().await, Ok(Serial(1)));
    lock.release().await;
    assert_eq!(records.commit(put("b", "2")).await, Ok(Serial(2)));
}

/// The outcomes that writers got, by number.
type Told = Arc<Mutex<BTreeMap<u64, Result<Serial, CommitError>>>>;

/// Writes pairs of keys, in some tasks, until `events` are over.
async fn write_during(records: &Records, told: &Told, events: impl Future<Output = ()>) {
    let are_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let (records, told, are_over) = (records.clone(), told.clone(), are_over.clone());
            tokio::spawn(async move {
                for number in (task..).step_by(6) {
                    let batch = ["left", "right"].iter().fold(Batch::new(), |batch, side| {
                        let key = key(&format!("{side}/{number}"));
                        batch.put(key, Expected::Absent, "x", Vec::new())
                    });
                    let outcome = records.commit(batch).await;
                    if outcome.is_err() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    told.lock().expect("no panic").insert(number, outcome);
                    if are_over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            })
        })
        .collect();
    events.await;
    are_over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// How many of what writers were told were successes, and how many were errors.
fn tally(told: &Told) -> (usize, usize) {
    let told = told.lock().expect("no panic");
    let written = told.values().filter(|outcome| outcome.is_ok()).count();
    (written, told.len() - written)
}

/// Waits, but not forever, until the outcomes of writers are as wanted.
async fn until_told(told: &Told, is_wanted: impl Fn((usize, usize)) -> bool) {
    let wanted = async {
        while !is_wanted(tally(told)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let wanted = tokio::time::timeout(Duration::from_secs(60), wanted).await;
    assert!(wanted.is_ok(), "writers were told {:?} successes and errors", tally(told));
}

/// The store agrees with the outcomes: a refused number does not exist, an acknowledged one does.
async fn check_told(records: &Records, told: &Told) {
    let (read, serial) = records.records_after(Serial::ZERO).await.expect("read");
    let side = |side| -> BTreeMap<u64, Serial> {
        let numbers = read.iter().filter_map(|it| Some((it.key.after(side)?, it.serial)));
        numbers.map(|(number, serial)| (number.parse().expect("a number"), serial)).collect()
    };
    let (left, right) = (side("left"), side("right"));
    assert_eq!(left, right);
    let mut serials: Vec<Serial> = left.values().copied().collect();
    serials.sort_unstable();
    assert_eq!(serials, (1..=serial.0).map(Serial).collect::<Vec<_>>());
    let told = told.lock().expect("no panic");
    for (number, outcome) in told.iter() {
        match (outcome, left.get(number)) {
            (Ok(told), Some(there)) => assert_eq!(told, there),
            (Ok(_), None) => panic!("{number} was acknowledged, but is not there"),
            (Err(CommitError::OutcomeUnknown(_)), _) => {}
            (Err(error), Some(_)) => panic!("{number} is there, but was refused: {error}"),
            (Err(_), None) => {}
        }
    }
    assert!(told.values().any(Result::is_ok), "nothing was ever written");
}

#[test]
fn a_database_that_crashes_comes_back() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let options = RecordsOptions { database_timeout: Duration::from_secs(1), ..options() };
        let records = database.open_with(options.clone()).await;
        let follower = database.open_with(options).await;
        let told = Told::default();
        let outages = async {
            // Some that a commit under way may wait out, and some that last until a writer is refused.
            for is_long in [false, true, false, true] {
                let (written, refused) = tally(&told);
                until_told(&told, |(now, _)| now > written).await;
                tokio::task::block_in_place(|| server.own().crash());
                if is_long {
                    until_told(&told, |(_, now)| now > refused).await;
                } else {
                    tokio::time::sleep(Duration::from_millis(400)).await;
                }
                tokio::task::block_in_place(|| server.own().resume());
            }
        };
        write_during(&records, &told, outages).await;
        // The first use may still find a connection that died.
        let serial = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                match records.commit(put("n", "x")).await {
                    Ok(serial) => break serial,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        });
        let serial = serial.await.expect("commits work again");
        tokio::time::timeout(Duration::from_secs(60), follower.wait(Serial(serial.0 - 1)))
            .await
            .expect("followers are woken again");
        records.commit(Batch::new().delete(key("n"), Expected::Present)).await.expect("committed");
        // Both are back to a history of pairs alone, but for the two serials just used.
        let (read, _) = follower.records_after(Serial::ZERO).await.expect("reads work again");
        assert!(read.iter().any(|record| record.key == key("n") && record.body.is_none()));

        server.own().crash();
        assert!(records.commit(put("n", "y")).await.expect_err("stopped").is_temporary());
        assert!(records.serial().await.is_err());
        server.own().resume();
        check_told_but_for(&records, &told, "n").await;
    });
}

/// [`check_told`] on a copy that lacks `text`, which was written last.
async fn check_told_but_for(records: &Records, told: &Told, text: &str) {
    let read = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            if let Ok((read, _)) = records.records_after(Serial::ZERO).await {
                break read;
            }
        }
    });
    let mut read = read.await.expect("reads work again");
    read.retain(|record| record.key != key(text));
    let copy = Database::new(Kind::Sqlite).await.expect("a file");
    let copy = copy.open().await;
    let mut restore = copy.restore().await.expect("empty");
    let last = read.iter().map(|record| record.serial).max().unwrap_or_default();
    for record in read {
        restore.take(record).await.expect("taken");
    }
    restore.finish(last).await.expect("finished");
    check_told(&copy, told).await;
}

#[test]
fn sessions_that_are_ended_tell_the_truth() {
    run(Kind::Postgres, async |database| {
        let records = database.open().await;
        let told = Told::default();
        let cuts = async {
            for round in 0..60 {
                let statement = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                                 WHERE datname = current_database() AND pid <> pg_backend_pid()";
                database.execute(statement).await;
                tokio::time::sleep(Duration::from_millis(round % 23)).await;
            }
            let (written, _) = tally(&told);
            until_told(&told, |(now, _)| now > written).await;
        };
        write_during(&records, &told, cuts).await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        check_told(&records, &told).await;
    });
}

/// A proxy between us and the server, and what it does when it sees a COMMIT.
#[derive(Clone, Copy)]
enum Cut {
    Nothing = 0,
    /// The server gets it, we get no answer.
    Answer = 1,
    /// The server does not get it.
    Commit = 2,
    /// The server gets it, and from then on no connection gets through.
    AnswerAndAll = 3,
}

/// Listens where a server would, and passes on to `server`.
fn proxy(directory: &Path, server: String, cut: Arc<AtomicU8>) {
    let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).expect("bound");
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.expect("accepted");
            let (server, cut) = (server.clone(), cut.clone());
            tokio::spawn(async move {
                if cut.load(Ordering::SeqCst) == 4 {
                    return;
                }
                let server = UnixStream::connect(server).await.expect("connected");
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let mut back = tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                });
                let mut buffer = [0; 65536];
                while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
                    let is_commit = buffer[..length].windows(7).any(|it| it == b"COMMIT\0");
                    let mode = if is_commit { cut.load(Ordering::SeqCst) } else { 0 };
                    if mode == Cut::AnswerAndAll as u8 {
                        cut.store(4, Ordering::SeqCst);
                    } else if mode != 0 {
                        cut.store(Cut::Nothing as u8, Ordering::SeqCst);
                    }
                    if mode != 0 {
                        back.abort();
                        let _ = (&mut back).await;
                    }
                    if mode != Cut::Commit as u8 {
                        let _ = to_server.write_all(&buffer[..length]).await;
                    }
                    if mode != 0 {
                        // Gives the server time to carry out a COMMIT that has arrived.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        break;
                    }
                }
                back.abort();
            });
        }
    });
}

#[test]
fn a_commit_without_an_answer_is_looked_up() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let directory = tempfile::tempdir().expect("a directory");
        let cut = Arc::new(AtomicU8::new(Cut::Nothing as u8));
        let socket = server.own().socket();
        UnixStream::connect(&socket).await.expect("the server listens");
        proxy(directory.path(), socket, cut.clone());
        let name = database.url().split(['/', '?']).nth(3).expect("a name");
        let through = format!("postgres:///{name}?host={}&user=larder", directory.path().display());
        let location: DatabaseLocation = through.parse().expect("a location");
        let options = RecordsOptions { database_timeout: Duration::from_secs(1), ..options() };
        let records = Records::open(&location, options).await.expect("opened");
        assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(1)));

        cut.store(Cut::Answer as u8, Ordering::SeqCst);
        assert_eq!(records.commit(put("b", "2")).await, Ok(Serial(2)), "it had arrived");
        assert_eq!(records.wait(Serial(1)).await, Some(Serial(2)));

        cut.store(Cut::Commit as u8, Ordering::SeqCst);
        let written = records.commit(put("c", "3")).await;
        assert_eq!(written, Ok(Serial(3)), "it had not arrived, and was sent again");
        assert_eq!(records.commit(put("d", "4")).await, Ok(Serial(4)));

        cut.store(Cut::AnswerAndAll as u8, Ordering::SeqCst);
        let error = records.commit(put("e", "5")).await.expect_err("nobody can tell");
        assert!(matches!(error, CommitError::OutcomeUnknown(_)), "{error}");
        cut.store(Cut::Nothing as u8, Ordering::SeqCst);
        assert_eq!(records.commit(put("f", "6")).await, Ok(Serial(6)));
        let there = records.records_after(Serial(2)).await.expect("read").0;
        let there: Vec<&str> = there.iter().map(|record| record.key.as_str()).collect();
        assert_eq!(there, ["c", "d", "e", "f"]);
    });
}

#[test]
fn a_full_disk_is_an_error_until_there_is_room() {
    in_runtime(async {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(disk) = SmallDisk::mount(directory.path(), "size=1m") else { return };
        let location = DatabaseLocation::Sqlite(disk.path().join("larder.db"));
        let records = Records::open(&location, options()).await.expect("opened");
        let mut written = 0;
        let error = loop {
            let batch = put(&format!("left/{written}"), vec![7; 9000]);
            let right = key(&format!("right/{written}"));
            match records
                .commit(batch.put(right, Expected::Absent, vec![7; 9000], Vec::new()))
                .await
            {
                Ok(serial) => written = serial.0,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CommitError::Full(_)), "{error:?}");
        assert!(written > 3, "{written}");
        let check = async |records: &Records, written: u64| {
            let (read, serial) = records.records_after(Serial::ZERO).await.expect("read");
            assert_eq!((read.len() as u64, serial), (written * 2, Serial(written)));
        };
        check(&records, written).await;
        for _ in 0..3 {
            let error = records.commit(put("large", vec![7; 500_000])).await.expect_err("full");
            assert!(matches!(error, CommitError::Full(_)), "{error:?}");
        }
        check(&records, written).await;
        disk.remount("size=16m");
        let batch = put(&format!("left/{written}"), vec![7; 9000]);
        let right = key(&format!("right/{written}"));
        let batch = batch.put(right, Expected::Absent, vec![7; 9000], Vec::new());
        assert_eq!(records.commit(batch).await, Ok(Serial(written + 1)));
        check(&records, written + 1).await;
        assert_eq!(flaws(&records).await, [""; 0]);
        records.close().await;
        let records = Records::open(&location, options()).await.expect("opened");
        check(&records, written + 1).await;
        records.close().await;
    });
}

/// The place of the database behind a proxy.
fn behind(proxy: &SilentProxy, database: &Database) -> DatabaseLocation {
    let name = database.url().split(['/', '?']).nth(3).expect("a name");
    let url = format!("postgres:///{name}?host={}&user=larder", proxy.directory().display());
    url.parse().expect("a location")
}

/// A connection that is cut off without a word, as by a firewall that forgot it, is found out by asking.
#[test]
fn a_follower_whose_connection_falls_silent_listens_on_another() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let proxy = SilentProxy::start(&server.own().socket());
        let options = RecordsOptions {
            database_timeout: Duration::from_secs(1),
            poll_interval: Some(Duration::from_secs(3600)),
            ..options()
        };
        let follower = Records::open(&behind(&proxy, &database), options).await.expect("opened");
        let writer = database.open().await;
        let woken = async |after: u64| {
            let woken = tokio::time::timeout(Duration::from_secs(60), follower.wait(Serial(after)));
            assert_eq!(woken.await, Ok(Some(Serial(after + 1))));
        };
        for serial in 1..=2 {
            assert_eq!(writer.commit(put("a", "1")).await, Ok(Serial(serial)));
            woken(serial - 1).await;
        }
        proxy.drop_silently();
        for serial in 3..=4 {
            assert_eq!(writer.commit(put("a", "1")).await, Ok(Serial(serial)));
            woken(serial - 1).await;
        }
    });
}

/// With the defaults of a server a process is behind for three seconds at most, and its writes go through. The bounds of this
/// test leave room for a busy machine; without an answer, the database's timeout is ten seconds.
#[test]
fn connections_that_fall_silent_cost_seconds_and_no_write() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let proxy = SilentProxy::start(&server.own().socket());
        let location = behind(&proxy, &database);
        let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        let other = database.open().await;
        let mut serial = Serial::ZERO;
        let rounds = if std::env::var_os("LARDER_TEST_LONG").is_some() { 20 } else { 3 };
        for round in 0..rounds {
            let bound = Duration::from_secs(9);
            // Connections that were of use just now, and such that were not.
            for _ in 0..3 {
                serial = records.commit(put("mine", "1")).await.expect("committed");
                records.records_after(Serial::ZERO).await.expect("read");
            }
            tokio::time::sleep(Duration::from_millis(700) * (round % 4)).await;
            proxy.drop_silently();
            let seen = serial;
            serial = other.commit(put("other", "1")).await.expect("committed");
            let followed = async {
                records.wait(seen).await.expect("open");
                loop {
                    match records.records_after(seen).await {
                        Ok((_, read)) if read >= serial => break,
                        _ => {}
                    }
                }
            };
            tokio::time::timeout(bound, followed).await.expect("it follows within seconds");
            proxy.drop_silently();
            let written = tokio::time::timeout(bound, records.commit(put("mine", "2"))).await;
            serial = written.expect("it writes within seconds").expect("written");
        }
    });
}

/// A process that stands still within a transaction does not keep the others from writing for long.
#[test]
fn a_connection_that_falls_silent_with_the_lock_loses_it() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let proxy = SilentProxy::start(&server.own().socket());
        let location = behind(&proxy, &database);
        let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        let other = database.open().await;
        let is_over = AtomicBool::new(false);
        let writing = async {
            let mut written = 0;
            while !is_over.load(Ordering::SeqCst) {
                records.commit(put("mine", "1")).await.expect("written");
                written += 1;
            }
            written
        };
        let cutting = async {
            for _ in 0..6 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                proxy.drop_silently();
                let write =
                    tokio::time::timeout(Duration::from_secs(12), other.commit(put("o", "1")));
                write.await.expect("in time").expect("written");
            }
            is_over.store(true, Ordering::SeqCst);
        };
        let (written, ()) = tokio::join!(writing, cutting);
        assert!(written > 0);
        let (all, serial) = records.records_after(Serial::ZERO).await.expect("read");
        assert_eq!((all.len(), serial), (2, Serial(written + 6)), "each write once");
    });
}

/// Records at serial 2, of a server that has become a standby with serial 1.
async fn before_a_standby(database: &Database, server: &Postgres) -> Records {
    let records = database.open_with(RecordsOptions::default()).await;
    assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(1)));
    server.stop();
    server.keep_copy();
    server.resume();
    assert_eq!(records.commit(put("b", "1")).await, Ok(Serial(2)));
    records.records_after(Serial::ZERO).await.expect("read");
    server.stop();
    server.become_standby_at_copy();
    server.resume();
    records
}

/// A standby is no database yet, and none that has lost anything.
#[test]
fn a_standby_that_is_promoted_without_a_loss_is_written_on() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let server = server.own();
        let records = before_a_standby(&database, server).await;
        for _ in 0..5 {
            let read = records.records_after(Serial(2)).await;
            assert_eq!(read, Err(ReadError::Standby), "whatever the standby has");
            let error = records.commit(put("c", "1")).await.expect_err("a standby");
            assert!(error.is_temporary() && !matches!(error, CommitError::Rewound(_)), "{error}");
        }
        // Who only reads may be given a standby.
        let location = &database.location;
        let backup = Records::open_read_only(location, options()).await.expect("opened");
        assert_eq!(backup.records_after(Serial::ZERO).await.expect("read").1, Serial(1));
        server.send_standby_the_rest();
        server.promote();
        assert_eq!(records.commit(put("c", "1")).await, Ok(Serial(3)));
        assert_eq!(records.records_after(Serial(2)).await.expect("read").1, Serial(3));
    });
}

#[test]
fn a_standby_that_is_promoted_with_a_loss_is_left_alone_until_the_right_one_is_back() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let server = server.own();
        let records = before_a_standby(&database, server).await;
        server.promote();
        let behind = |found| Rewound::Behind { found: Serial(found), seen: Serial(2) };
        let check = async |found: u64, word: &str| {
            let error = records.records_after(Serial(2)).await.expect_err("it lacks a commit");
            assert_eq!(error, ReadError::Rewound(behind(found)));
            assert!(error.to_string().contains(word), "{error}");
            let error = records.commit(put("c", "1")).await.expect_err("it lacks a commit");
            assert_eq!(error, CommitError::Rewound(behind(found)));
        };
        check(1, "fell back").await;
        let fresh = database.open().await;
        assert_eq!(fresh.commit(put("b", "another")).await, Ok(Serial(2)));
        check(2, "diverged").await;
        assert_eq!(fresh.commit(put("b", "1")).await, Ok(Serial(3)));
        check(3, "diverged").await;
        server.stop();
        server.return_to_primary();
        server.resume();
        assert_eq!(records.records_after(Serial(2)).await.expect("read").1, Serial(2));
        assert_eq!(records.commit(put("c", "1")).await, Ok(Serial(3)));
    });
}

#[test]
fn a_database_that_stands_still_is_left() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let patience = Duration::from_secs(1);
        let options = RecordsOptions { database_timeout: patience, ..options() };
        let records = database.open_with(options.clone()).await;
        assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(1)));
        let frozen = server.own().freeze();
        // A connection that was in use waits for an answer that is no longer wanted.
        for _ in 0..3 {
            assert!(records.serial().await.is_err());
        }
        let closed = tokio::time::timeout(Duration::from_secs(30), records.close()).await;
        assert_eq!(closed, Ok(()));
        let opened = Records::open(&database.location, options);
        let opened = tokio::time::timeout(Duration::from_secs(30), opened).await;
        assert!(matches!(opened.map(|it| it.err()), Ok(Some(OpenError::Unavailable { .. }))));
        drop(frozen);
    });
}

/// A server that stands still says nothing, not even that: callers get an error in bounded time.
#[test]
fn a_database_that_stands_still_is_an_error_until_it_goes_on() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let patience = Duration::from_secs(1);
        let options = RecordsOptions { database_timeout: patience, ..options() };
        let records = database.open_with(options).await;
        assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(1)));
        // Twice a statement's time, once more for the commit or a new connection, and some for the machine.
        let bound = patience * 10;
        let frozen = server.own().freeze();
        let writes = (0..5).map(|number| records.commit(put(&format!("lost/{number}"), "x")));
        let writes = tokio::time::timeout(bound, futures_util::future::join_all(writes)).await;
        for error in writes.expect("an answer in time") {
            let error = error.expect_err("nobody answers");
            assert!(matches!(error, CommitError::Unavailable(_)), "{error}");
            assert!(error.to_string().contains("did not answer in time"), "{error}");
        }
        let write = tokio::time::timeout(bound, records.commit(put("lost/again", "x")));
        assert!(write.await.expect("an answer in time").expect_err("nobody").is_temporary());
        let read = tokio::time::timeout(bound, records.records_after(Serial::ZERO)).await;
        assert!(matches!(read, Ok(Err(ReadError::Unavailable(_)))), "{read:?}");
        drop(frozen);
        let follower = database.open().await;
        let serial = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                match records.commit(put("b", "2")).await {
                    Ok(serial) => break serial,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        });
        let serial = serial.await.expect("commits work again");
        assert_eq!(serial, Serial(2), "what was refused was not written later");
        let there = follower.records_after(Serial::ZERO).await.expect("read").0;
        let there: Vec<&str> = there.iter().map(|record| record.key.as_str()).collect();
        assert_eq!(there, ["a", "b"]);
    });
}

#[test]
fn a_database_that_is_restarted_is_written_on() {
    in_runtime(async {
        let Some((database, server)) = Database::on_own_server().await else { return };
        let records = database.open().await;
        let follower = database.open().await;
        for round in 1..=3 {
            assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(round)));
            server.own().stop();
            server.own().resume();
        }
        // The connections of before are dead, of which no writer learns.
        assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(4)));
        let woken = tokio::time::timeout(Duration::from_secs(60), follower.wait(Serial(3))).await;
        assert_eq!(woken, Ok(Some(Serial(4))));
    });
}

/// Makes the database like a copy that took over before it had the serials 3 and 4.
const FALL_BACK: &str =
    "DELETE FROM larder_records WHERE serial > 2; UPDATE larder_store SET serial = 2";

/// A store at serial 4: `a` to `d` at 1 to 4.
async fn at_four(database: &Database) -> Records {
    let records = database.open().await;
    for (serial, text) in (1..).zip(["a", "b", "c", "d"]) {
        assert_eq!(records.commit(put(text, "1")).await, Ok(Serial(serial)));
    }
    records
}

#[track_caller]
fn check_rewound<T: std::fmt::Debug, E: std::error::Error>(outcome: Result<T, E>, found: u64) {
    let rewound = Rewound::Behind { found: Serial(found), seen: Serial(4) };
    assert_eq!(outcome.expect_err("it fell back").to_string(), rewound.to_string());
}

async fn a_store_that_fell_back_is_neither_read_nor_written(database: Database) {
    let (writer, reader) = (at_four(&database).await, database.open().await);
    reader.records_after(Serial::ZERO).await.expect("read");
    database.execute(FALL_BACK).await;
    for records in [&writer, &reader] {
        check_rewound(records.commit(put("e", "1")).await, 2);
        check_rewound(records.commit(Batch::new()).await, 2);
        for after in [Serial::ZERO, Serial(2), Serial(4)] {
            check_rewound(records.records_after(after).await, 2);
        }
        assert_eq!(records.serial().await, Ok(Serial(2)), "that is what the database says");
    }
    // A new process has seen nothing else.
    let fresh = database.open().await;
    assert_eq!(fresh.commit(put("e", "1")).await, Ok(Serial(3)));
    assert_eq!(fresh.records_after(Serial::ZERO).await.expect("read").0.len(), 3);
    check_rewound(writer.commit(put("f", "1")).await, 3);
}

async fn a_store_that_fell_back_and_went_on_otherwise_is_noticed(database: Database) {
    let (writer, reader) = (at_four(&database).await, database.open().await);
    reader.records_after(Serial::ZERO).await.expect("read");
    database.execute(FALL_BACK).await;
    let fresh = database.open().await;
    for serial in 3..=6 {
        assert_eq!(fresh.commit(put("other", "1")).await, Ok(Serial(serial)));
    }
    for records in [&writer, &reader] {
        check_rewound(records.commit(put("e", "1")).await, 6);
        check_rewound(records.records_after(Serial(4)).await, 6);
    }
    assert_eq!(fresh.serial().await, Ok(Serial(6)));
}

/// The open file was replaced or removed: writes into it would be lost.
#[test]
fn a_file_that_is_replaced_is_neither_read_nor_written() {
    run(Kind::Sqlite, async |database| {
        let (writer, reader) = (at_four(&database).await, database.open().await);
        reader.records_after(Serial::ZERO).await.expect("read");
        let path = database.path();
        let (original, other) = (path.with_extension("original"), path.with_extension("other"));
        std::fs::copy(path, &other).expect("copied");
        std::fs::rename(path, &original).expect("renamed");
        let check = async |records: &Records| {
            let replaced = Rewound::Replaced.to_string();
            for batch in [put("e", "1"), Batch::new()] {
                let error = records.commit(batch).await.expect_err("another file");
                assert!(error.is_temporary());
                assert_eq!(error.to_string(), replaced);
            }
            let read = records.records_after(Serial(4)).await;
            assert_eq!(read, Err(ReadError::Rewound(Rewound::Replaced)));
        };
        check(&writer).await;
        std::fs::rename(&other, path).expect("renamed");
        check(&reader).await;
        assert!(reader.serial().await.is_err() && reader.record(&key("a")).await.is_err());
        // The original is back, but nothing is known of the time in between.
        std::fs::rename(&original, path).expect("renamed");
        check(&writer).await;
        check(&reader).await;
        writer.close().await;
        reader.close().await;
        let again = database.open().await;
        assert_eq!(again.records_after(Serial::ZERO).await.expect("read").0.len(), 4);
        assert_eq!(again.commit(put("e", "1")).await, Ok(Serial(5)));
    });
}

/// Nothing that is written later, not even the record that was lost, makes it good.
async fn a_store_that_fell_back_stays_so_until_it_is_opened_again(database: Database) {
    let (writer, reader) = (at_four(&database).await, database.open().await);
    reader.records_after(Serial::ZERO).await.expect("read");
    database.execute(FALL_BACK).await;
    check_rewound(writer.commit(put("e", "1")).await, 2);
    check_rewound(reader.records_after(Serial(4)).await, 2);
    let fresh = database.open().await;
    for serial in 3..=6 {
        assert_eq!(fresh.commit(put("d", "other")).await, Ok(Serial(serial)));
    }
    for records in [&writer, &reader] {
        check_rewound(records.commit(put("e", "1")).await, 6);
        check_rewound(records.records_after(Serial(4)).await, 6);
    }
    writer.close().await;
    let again = database.open().await;
    assert_eq!(again.records_after(Serial::ZERO).await.expect("read").1, Serial(6));
    assert_eq!(again.commit(put("e", "1")).await, Ok(Serial(7)));
}
