//! Commits, conditions and reads, one at a time.

use record::{Batch, Digest, Expected, KeyState, Mismatch, Record, Serial};
use store::records::{CommitError, OpenError, Records, RecordsOptions};

use crate::database::{Database, Kind, flaws, key, options, put, run};
use crate::on_both;

on_both!(
    what_is_committed_is_read,
    a_deleted_key_is_a_record_without_a_body,
    conditions_are_decided_by_the_store,
    a_batch_at_fault_spoils_no_other,
    keys_are_compared_byte_by_byte,
    odd_batches,
    what_was_written_is_there_after_reopening,
    the_queue_is_bounded_and_nobody_is_lost,
    a_dropped_commit_is_whole_or_not,
    closed_records_take_nothing,
    many_open_an_empty_database_at_once,
    a_newer_layout_is_refused,
    without_the_right_to_write,
);

async fn what_is_committed_is_read(database: Database) {
    let records = database.open().await;
    assert_eq!(records.records_after(Serial::ZERO).await, Ok((Vec::new(), Serial::ZERO)));
    let blobs = vec![Digest::of(b"one"), Digest::of(b"two")];
    let batch = Batch::new()
        .put(key("b"), Expected::Anything, vec![0, 255, 10], blobs.clone())
        .put(key("a/ü"), Expected::Anything, "", Vec::new());
    assert_eq!(records.commit(batch).await, Ok(Serial(1)));
    assert_eq!(records.commit(put("c", "3")).await, Ok(Serial(2)));
    let record = |text, serial, body: &'static [u8], blobs: &[Digest]| Record {
        key: key(text),
        serial: Serial(serial),
        body: Some(body.into()),
        blobs: blobs.to_vec(),
    };
    let a = record("a/ü", 1, b"", &[]);
    let b = record("b", 1, &[0, 255, 10], &blobs);
    let c = record("c", 2, b"3", &[]);
    let after = async |serial| records.records_after(Serial(serial)).await;
    assert_eq!(after(0).await, Ok((vec![a, b.clone(), c.clone()], Serial(2))));
    assert_eq!(after(1).await, Ok((vec![c], Serial(2))));
    assert_eq!(after(2).await, Ok((Vec::new(), Serial(2))));
    assert_eq!(after(9).await, Ok((Vec::new(), Serial(2))));
    assert_eq!(records.record(&key("b")).await, Ok(Some(b)));
    assert_eq!(records.record(&key("B")).await, Ok(None));
    assert_eq!(records.serial().await, Ok(Serial(2)));
    assert_eq!(flaws(&records).await, [""; 0]);
}

async fn a_deleted_key_is_a_record_without_a_body(database: Database) {
    let records = database.open().await;
    let blobs = vec![Digest::of(b"one")];
    let batch = Batch::new().put(key("a"), Expected::Absent, "1", blobs);
    assert_eq!(records.commit(batch).await, Ok(Serial(1)));
    let delete = || Batch::new().delete(key("a"), Expected::Present);
    assert_eq!(records.commit(delete()).await, Ok(Serial(2)));
    let deleted = Record { key: key("a"), serial: Serial(2), body: None, blobs: Vec::new() };
    assert_eq!(records.records_after(Serial(1)).await, Ok((vec![deleted.clone()], Serial(2))));
    assert_eq!(records.record(&key("a")).await, Ok(Some(deleted)));
    let found = KeyState { serial: Serial(2), is_present: false };
    let mismatch = Mismatch { key: key("a"), expected: Expected::Present, found };
    assert_eq!(records.commit(delete()).await, Err(CommitError::Mismatch(mismatch)));
    let again = Batch::new().put(key("a"), Expected::At(Serial(2)), "2", Vec::new());
    assert_eq!(records.commit(again).await, Ok(Serial(3)));
}

async fn conditions_are_decided_by_the_store(database: Database) {
    let records = database.open().await;
    records.commit(put("a", "1")).await.expect("committed");
    let a_at_1 = KeyState { serial: Serial(1), is_present: true };
    let never = KeyState { serial: Serial::ZERO, is_present: false };
    let write = |text, expected| Batch::new().put(key(text), expected, "2", Vec::new());
    let check = |text, expected| write("other", Expected::Anything).check(key(text), expected);
    let refused = [
        (write("a", Expected::Absent), "a", Expected::Absent, a_at_1),
        (write("a", Expected::At(Serial(2))), "a", Expected::At(Serial(2)), a_at_1),
        (check("a", Expected::At(Serial::ZERO)), "a", Expected::At(Serial::ZERO), a_at_1),
        (write("b", Expected::Present), "b", Expected::Present, never),
        (check("b", Expected::At(Serial(1))), "b", Expected::At(Serial(1)), never),
    ];
    for (batch, text, expected, found) in refused {
        let mismatch = Mismatch { key: key(text), expected, found };
        assert_eq!(records.commit(batch).await, Err(CommitError::Mismatch(mismatch)));
    }
    assert_eq!(records.serial().await, Ok(Serial(1)));
    let held = write("a", Expected::At(Serial(1))).check(key("b"), Expected::Absent);
    assert_eq!(records.commit(held).await, Ok(Serial(2)));
    let only_checks = Batch::new().check(key("a"), Expected::At(Serial(2)));
    assert_eq!(records.commit(only_checks).await, Ok(Serial(2)));
}

async fn a_batch_at_fault_spoils_no_other(database: Database) {
    let records = database.open().await;
    records.commit(put("seed", "0")).await.expect("committed");
    // Joined futures are queued before the writer runs, and so end up in few transactions.
    let commits = (0..60).map(|number| {
        let expected = if number % 3 == 1 { Expected::Present } else { Expected::Absent };
        let batch = put(&format!("beside/{number}"), "x");
        records.commit(batch.put(key(&format!("n/{number}")), expected, "x", Vec::new()))
    });
    let outcomes = futures_util::future::join_all(commits).await;
    let mut serials = Vec::new();
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(serial) if number % 3 != 1 => serials.push(serial),
            Err(CommitError::Mismatch(mismatch)) if number % 3 == 1 => {
                assert_eq!(mismatch.key, key(&format!("n/{number}")));
            }
            outcome => panic!("{number}: {outcome:?}"),
        }
    }
    serials.sort_unstable();
    assert_eq!(serials, (2..=41).map(Serial).collect::<Vec<_>>());
    let (written, serial) = records.records_after(Serial(1)).await.expect("read");
    assert_eq!((written.len(), serial), (80, Serial(41)));
}

async fn keys_are_compared_byte_by_byte(database: Database) {
    let records = database.open().await;
    let names =
        ["A", "Z", "a", "a b", "a%", "a_", "e\u{301}", "z", "é", "😀", "\u{ff5e}", "a'\"\\"];
    for name in names {
        let batch = Batch::new().put(key(name), Expected::Absent, name, Vec::new());
        records.commit(batch).await.expect("each is a key of its own");
    }
    let batch = names.iter().fold(Batch::new(), |batch, name| {
        batch.put(key(name), Expected::Present, *name, Vec::new())
    });
    let serial = records.commit(batch).await.expect("committed");
    let (read, _) = records.records_after(Serial(serial.0 - 1)).await.expect("read");
    let read: Vec<&str> = read.iter().map(|record| record.key.as_str()).collect();
    let mut sorted = names.to_vec();
    sorted.sort_unstable_by_key(|name| name.as_bytes());
    assert_eq!(read, sorted);
}

async fn odd_batches(database: Database) {
    let options = RecordsOptions { batch_bytes_max: 3_000_000, ..options() };
    let records = database.open_with(options).await;
    assert_eq!(records.commit(Batch::new()).await, Ok(Serial::ZERO));
    let twice = put("a", "1").delete(key("a"), Expected::Anything);
    assert_eq!(records.commit(twice).await, Err(CommitError::KeyTwice(key("a"))));
    let large = records.commit(put("abc", vec![7; 3_000_000 - 2])).await;
    let error = CommitError::TooLarge { bytes: 3_000_001, bytes_max: 3_000_000 };
    assert_eq!(large, Err(error));
    assert_eq!(records.commit(put("abc", vec![7; 3_000_000 - 3])).await, Ok(Serial(1)));
    let many = (0..5000).fold(Batch::new(), |batch, number| {
        batch.put(key(&format!("many/{number}")), Expected::Absent, "x", Vec::new())
    });
    assert_eq!(records.commit(many).await, Ok(Serial(2)));
    let (read, serial) = records.records_after(Serial::ZERO).await.expect("read");
    assert_eq!((read.len(), serial), (5001, Serial(2)));
    assert_eq!(read[0].body.as_ref().map(|body| body.len()), Some(3_000_000 - 3));
}

async fn what_was_written_is_there_after_reopening(database: Database) {
    let records = database.open().await;
    records.commit(put("a", "1")).await.expect("committed");
    records.close().await;
    let records = database.open().await;
    assert_eq!(records.commit(put("b", "2")).await, Ok(Serial(2)));
    drop(records);
    let records = database.open().await;
    let (read, serial) = records.records_after(Serial::ZERO).await.expect("read");
    assert_eq!((read.len(), serial), (2, Serial(2)));
    assert_eq!(records.commit(put("c", "3")).await, Ok(Serial(3)));
}

async fn the_queue_is_bounded_and_nobody_is_lost(database: Database) {
    let options = RecordsOptions {
        commit_queue_max: 2,
        commit_queue_bytes_max: 100,
        group_batches_max: 3,
        ..options()
    };
    let records = database.open_with(options).await;
    // Each alone has more bytes than the queue holds of some, and fewer of others.
    let commits = (0..100).map(|number: usize| {
        records.commit(put(&format!("n/{number}"), vec![1; (number % 5) * 40]))
    });
    let mut serials: Vec<Serial> = futures_util::future::join_all(commits)
        .await
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("committed");
    serials.sort_unstable();
    assert_eq!(serials, (1..=100).map(Serial).collect::<Vec<_>>());
}

async fn a_dropped_commit_is_whole_or_not(database: Database) {
    let records = database.open().await;
    for number in 0..50 {
        let batch = put(&format!("left/{number}"), "x");
        let batch = batch.put(key(&format!("right/{number}")), Expected::Anything, "x", Vec::new());
        let patience = std::time::Duration::from_micros(number * 20);
        let _ = tokio::time::timeout(patience, records.commit(batch)).await;
    }
    // The queue is a queue: once this is written, so is everything before it.
    records.commit(put("last", "x")).await.expect("committed");
    let (read, _) = records.records_after(Serial::ZERO).await.expect("read");
    let side = |side| -> Vec<(&str, Serial)> {
        read.iter().filter_map(|it| Some((it.key.after(side)?, it.serial))).collect()
    };
    assert_eq!(side("left"), side("right"));
}

async fn closed_records_take_nothing(database: Database) {
    let records = database.open().await;
    let clone = records.clone();
    let queued: Vec<_> = (0..20)
        .map(|number| {
            let records = records.clone();
            tokio::spawn(async move { records.commit(put(&format!("n/{number}"), "x")).await })
        })
        .collect();
    records.close().await;
    records.close().await;
    assert_eq!(clone.commit(put("a", "1")).await, Err(CommitError::Closed));
    assert_eq!(clone.wait(Serial(99)).await, None);
    assert!(clone.serial().await.is_err());
    let mut written = 0;
    for commit in queued {
        match commit.await.expect("no panic") {
            Ok(_) => written += 1,
            Err(error) => assert_eq!(error, CommitError::Closed),
        }
    }
    let records = database.open().await;
    assert_eq!(records.serial().await, Ok(Serial(written)));
}

async fn many_open_an_empty_database_at_once(database: Database) {
    let open = (0..8).map(|_| database.open());
    let all = futures_util::future::join_all(open).await;
    let commits = all.iter().enumerate().map(|(number, records): (usize, &Records)| {
        records.commit(put(&format!("n/{number}"), "x"))
    });
    let mut serials: Vec<_> = futures_util::future::join_all(commits).await;
    serials.sort_unstable_by_key(|serial| serial.as_ref().ok().copied());
    assert_eq!(serials, (1..=8).map(|serial| Ok(Serial(serial))).collect::<Vec<_>>());
}

async fn a_newer_layout_is_refused(database: Database) {
    database.open().await.close().await;
    database.execute("UPDATE larder_layout SET layout = 99").await;
    let newer =
        OpenError::NewerLayout { location: database.location.to_string(), found: 99, known: 1 };
    let opened = Records::open(&database.location, options()).await;
    assert_eq!(opened.err(), Some(newer.clone()));
    let opened = Records::open_read_only(&database.location, options()).await;
    assert_eq!(opened.err(), Some(newer));
}

async fn without_the_right_to_write(database: Database) {
    let opened = Records::open_read_only(&database.location, options()).await;
    assert!(
        matches!(
            opened.as_ref().err(),
            Some(OpenError::OlderLayout { found: 0, known: 1, .. } | OpenError::Unavailable { .. })
        ),
        "{:?}",
        opened.err()
    );
    let records = database.open().await;
    records.commit(put("a", "1")).await.expect("committed");
    let read_only = Records::open_read_only(&database.location, options()).await.expect("opened");
    assert_eq!(read_only.serial().await, Ok(Serial(1)));
    assert!(matches!(read_only.commit(put("b", "1")).await, Err(CommitError::ReadOnly(_))));
    assert!(read_only.restore().await.is_err());
    assert_eq!(flaws(&read_only).await, [""; 0]);
    assert_eq!(records.serial().await, Ok(Serial(1)));
    // Opening read-only also works if no other process has the database open.
    records.close().await;
    read_only.close().await;
    let read_only = Records::open_read_only(&database.location, options()).await.expect("opened");
    assert_eq!(read_only.records_after(Serial::ZERO).await.expect("read").1, Serial(1));
}

/// Without a log beside it, a file can be read from a read-only disk.
#[test]
fn a_file_that_is_closed_for_reading_needs_no_log() {
    run(Kind::Sqlite, async |database| {
        let records = database.open().await;
        records.commit(put("a", "1")).await.expect("committed");
        let beside = database.open().await;
        assert_eq!(beside.serial().await, Ok(Serial(1)));
        assert!(records.close_for_reading().await.is_err(), "somebody else has it open");
        // The previous attempt closes its file on another thread.
        let mut closed = beside.close_for_reading().await;
        for _ in 0..100 {
            if closed.is_ok() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            closed = beside.close_for_reading().await;
        }
        closed.expect("nobody has");
        // Bytes 18 and 19 say how a file is to be written and read: 1 is without a log, 2 with one.
        let versions = || std::fs::read(database.path()).expect("a file")[18..20].to_vec();
        assert_eq!(versions(), [1, 1]);
        let directory = database.path().parent().expect("a directory");
        let files = || std::fs::read_dir(directory).expect("a directory").count();
        assert_eq!(files(), 1);
        let read_only = Records::open_read_only(&database.location, options()).await;
        let read_only = read_only.expect("opened");
        assert_eq!(read_only.records_after(Serial::ZERO).await.expect("read").1, Serial(1));
        assert_eq!((versions(), files()), (vec![1, 1], 1));
        read_only.close().await;
        let records = database.open().await;
        assert_eq!(records.commit(put("a", "2")).await, Ok(Serial(2)));
        assert_eq!(versions(), [2, 2]);
    });
}

#[test]
fn another_programs_file_is_left_alone() {
    run(Kind::Sqlite, async |database| {
        database.execute("CREATE TABLE somebodys (word TEXT)").await;
        let opened = Records::open(&database.location, options()).await;
        let location = database.location.to_string();
        assert_eq!(opened.err(), Some(OpenError::Foreign { location }));
    });
    run(Kind::Sqlite, async |database| {
        std::fs::create_dir_all(database.path().parent().expect("a parent")).expect("created");
        std::fs::write(database.path(), "no database at all, but some text").expect("written");
        let opened = Records::open(&database.location, options()).await;
        assert!(matches!(opened.err(), Some(OpenError::Unreadable { .. })));
    });
}
