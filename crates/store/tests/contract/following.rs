//! Followers see every commit, whole and in order, and are woken for it.

use std::time::Duration;

use record::{Batch, Expected, Record, Serial};
use store::records::{CommitError, Records, RecordsOptions};

use crate::database::{Database, Kind, key, options, put, run};
use crate::on_both;

on_both!(
    fifty_writers_are_seen_in_order,
    of_fifty_writers_of_one_key_one_wins,
    own_commits_wake_without_asking,
    another_process_is_seen,
    reading_does_not_wait_for_writing,
);

/// Far longer than anything here takes: a waiter that reaches it was never woken.
const NEVER: Duration = Duration::from_secs(60);
/// Asking is not what wakes us in a test that uses this.
const NO_POLL: Duration = Duration::from_secs(3600);

async fn wait(records: &Records, after: Serial) -> Serial {
    let serial = tokio::time::timeout(NEVER, records.wait(after)).await;
    serial.expect("a follower was not woken").expect("open")
}

/// Follows until serial `last`, and checks that each serial comes once, in order, with `count` records.
async fn follow(records: &Records, last: Serial, count: usize) {
    let mut serial = Serial::ZERO;
    while serial < last {
        wait(records, serial).await;
        let (read, now) = records.records_after(serial).await.expect("read");
        let serials: Vec<Serial> = read.iter().map(|record| record.serial).collect();
        let expected: Vec<Serial> =
            (serial.0 + 1..=now.0).flat_map(|serial| vec![Serial(serial); count]).collect();
        assert_eq!(serials, expected, "after {serial}");
        serial = now;
    }
    assert_eq!(serial, last);
}

async fn fifty_writers_are_seen_in_order(database: Database) {
    let processes = [database.open().await, database.open().await];
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..50 {
        let records = processes[writer % 2].clone();
        writers.spawn(async move {
            for number in 0..10 {
                let batch = ["a", "b", "c"].iter().fold(Batch::new(), |batch, part| {
                    let key = key(&format!("{part}/{writer}/{number}"));
                    batch.put(key, Expected::Absent, "x".repeat(writer * 10), Vec::new())
                });
                records.commit(batch).await.expect("committed");
            }
        });
    }
    let last = Serial(500);
    let beside = database.open().await;
    tokio::join!(
        follow(&processes[0], last, 3),
        follow(&processes[1], last, 3),
        follow(&beside, last, 3),
        async {
            while let Some(writer) = writers.join_next().await {
                writer.expect("no panic");
            }
        },
    );
}

async fn of_fifty_writers_of_one_key_one_wins(database: Database) {
    let processes = [database.open().await, database.open().await];
    let mut serial = Serial::ZERO;
    for round in 0..10 {
        let attempts: Vec<_> = (0..50)
            .map(|writer: usize| {
                let records = processes[writer % 2].clone();
                let body = format!("{round} {writer}");
                let batch = Batch::new().put(key("one"), Expected::At(serial), body, Vec::new());
                tokio::spawn(async move { (writer, records.commit(batch).await) })
            })
            .collect();
        let mut winners = Vec::new();
        for attempt in attempts {
            match attempt.await.expect("no panic") {
                (writer, Ok(serial)) => winners.push((writer, serial)),
                (_, Err(CommitError::Mismatch(mismatch))) => {
                    assert_eq!(mismatch.found.serial, serial.next());
                }
                (_, Err(error)) => panic!("{error}"),
            }
        }
        serial = serial.next();
        let [(winner, won)] = winners[..] else { panic!("winners: {winners:?}") };
        assert_eq!(won, serial);
        let body = format!("{round} {winner}").into();
        let expected = Record { key: key("one"), serial, body: Some(body), blobs: Vec::new() };
        assert_eq!(processes[0].record(&key("one")).await, Ok(Some(expected)));
    }
}

/// Commits of `writer` wake `follower` each time, whichever way a commit and the wait for it overlap.
async fn check_wakes(writer: &Records, follower: &Records, commits: u64) {
    let (done, mut is_done) = tokio::sync::watch::channel(Serial::ZERO);
    let write = async {
        for number in 0..commits {
            let serial = writer.commit(put("n", number.to_string())).await.expect("committed");
            // Every other one waits for the follower: then the follower may be anywhere in its loop.
            if number % 2 == 0 {
                is_done.wait_for(|seen| *seen >= serial).await.expect("following");
            }
        }
    };
    let last = Serial(writer.serial().await.expect("read").0 + commits);
    let follow = async {
        let mut serial = Serial(last.0 - commits);
        while serial < last {
            let known = wait(follower, serial).await;
            let (_, now) = follower.records_after(serial).await.expect("read");
            assert!(now >= known && known > serial, "{serial} {known} {now}");
            serial = now;
            done.send_replace(serial);
        }
    };
    tokio::join!(write, follow);
}

async fn own_commits_wake_without_asking(database: Database) {
    let options = RecordsOptions { poll_interval: None, ..options() };
    let records = database.open_with(options).await;
    check_wakes(&records, &records, 200).await;
    // A serial that is long past is answered at once.
    assert_eq!(wait(&records, Serial(3)).await, Serial(200));
}

async fn another_process_is_seen(database: Database) {
    let options = RecordsOptions { poll_interval: Some(NO_POLL), ..options() };
    let writer = database.open().await;
    writer.commit(put("before", "x")).await.expect("committed");
    let follower = database.open_with(options).await;
    check_wakes(&writer, &follower, 40).await;
}

async fn reading_does_not_wait_for_writing(database: Database) {
    let records = database.open().await;
    records.commit(put("a", "1")).await.expect("committed");
    // Holds the right to write, as another process in the middle of a commit does.
    let other = database.lock().await;
    let commit = tokio::spawn({
        let records = records.clone();
        async move { records.commit(put("b", "2")).await }
    });
    for _ in 0..20 {
        let (read, serial) = records.records_after(Serial::ZERO).await.expect("read");
        assert_eq!((read.len(), serial), (1, Serial(1)));
    }
    other.release().await;
    assert_eq!(commit.await.expect("no panic"), Ok(Serial(2)));
}

/// Cuts every connection of the database but the one that asks for it.
const CUT: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[test]
fn cut_connections_are_made_again() {
    run(Kind::Postgres, async |database| {
        let options = RecordsOptions { poll_interval: Some(NO_POLL), ..options() };
        let writer = database.open_with(options.clone()).await;
        let follower = database.open_with(options).await;
        for round in 0..6 {
            // In some rounds a commit finds LISTEN lost, in some it is back.
            database.execute(CUT).await;
            tokio::time::sleep(Duration::from_millis(round * 40)).await;
            let serial = writer.commit(put("n", "x")).await.expect("committed");
            assert_eq!(wait(&follower, Serial(serial.0 - 1)).await, serial);
        }
        check_wakes(&writer, &follower, 20).await;
    });
}
