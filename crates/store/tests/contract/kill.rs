//! A writing process is killed at random moments; acknowledged batches exist, and none exists in part.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use record::{Batch, Expected, Serial};
use store::records::{CommitError, DatabaseLocation, Records};

use crate::database::{Database, Kind, flaws, in_runtime, key, options, run};

/// The variable that tells the writer where to write, and from which number on.
const LOCATION: &str = "LARDER_TEST_WRITER_LOCATION";
const FIRST: &str = "LARDER_TEST_WRITER_FIRST";

/// Tasks that write at once, so that the groups are of several batches.
const TASKS: u64 = 8;

fn rounds(rounds_long: usize) -> usize {
    match std::env::var("LARDER_TEST_LONG").as_deref() {
        Ok("1") => rounds_long,
        _ => 10,
    }
}

#[test]
fn sqlite() {
    run(Kind::Sqlite, async |database| check(&database, rounds(200)).await);
}

#[test]
fn postgres() {
    run(Kind::Postgres, async |database| check(&database, rounds(50)).await);
}

/// Not a test: the process that is killed. Its numbers are acknowledged on its output.
#[test]
#[ignore = "it is started by the tests of this module"]
fn writer() {
    let Ok(location) = std::env::var(LOCATION) else { return };
    let first: u64 = std::env::var(FIRST).expect("a number").parse().expect("a number");
    in_runtime(async {
        let location: DatabaseLocation = location.parse().expect("a location");
        let records = Records::open(&location, options()).await.expect("opened");
        let write = async |task: u64| {
            for number in (first + task..).step_by(TASKS as usize) {
                match records.commit(batch(task, number)).await {
                    Ok(_) => println!("acknowledged {number}"),
                    // The database ended a commit of the process before after that one was killed.
                    Err(CommitError::Mismatch(_)) if number < first + 10 * TASKS => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let tasks = (0..TASKS).map(write);
        futures_util::future::join_all(tasks).await;
    });
}

/// Two keys that are never written again, and one that is.
fn batch(task: u64, number: u64) -> Batch {
    let body = vec![number as u8; (number % 7 * 1500) as usize];
    Batch::new()
        .put(key(&format!("left/{number}")), Expected::Absent, body.clone(), Vec::new())
        .put(key(&format!("latest/{task}")), Expected::Anything, number.to_string(), Vec::new())
        .put(key(&format!("right/{number}")), Expected::Absent, body, Vec::new())
}

async fn check(database: &Database, rounds: usize) {
    database.open().await.close().await;
    let location = match &database.location {
        DatabaseLocation::Sqlite(path) => format!("sqlite:{}", path.display()),
        DatabaseLocation::Postgres(url) => url.clone(),
    };
    let mut acknowledged = BTreeSet::new();
    let mut first = 0;
    for round in 0..rounds {
        let mut writer = Command::new(std::env::current_exe().expect("this program"))
            .args(["kill::writer", "--exact", "--ignored", "--nocapture"])
            .env(LOCATION, &location)
            .env(FIRST, first.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("started");
        let output = BufReader::new(writer.stdout.take().expect("piped"));
        let mut random = [0; 2];
        getrandom::fill(&mut random).expect("randomness");
        let patience = Duration::from_micros(u64::from(u16::from_le_bytes(random)) * 3);
        let (started, is_started) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut numbers = Vec::new();
            for line in output.lines() {
                let line = line.expect("text");
                let Some(number) = line.strip_prefix("acknowledged ") else { continue };
                numbers.push(number.parse::<u64>().expect("a number"));
                let _ = started.send(());
            }
            numbers
        });
        // In every fourth round it is killed while it starts.
        if round % 4 != 3 {
            is_started.recv().expect("an acknowledgement");
        }
        std::thread::sleep(patience);
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        acknowledged.extend(reader.join().expect("no panic"));
        first = check_round(database, &acknowledged).await.max(first);
    }
}

/// Checks what exists; returns a number that was not written yet.
async fn check_round(database: &Database, acknowledged: &BTreeSet<u64>) -> u64 {
    let records = database.open().await;
    let (read, serial) = records.records_after(Serial::ZERO).await.expect("read");
    let mut sides = [BTreeMap::new(), BTreeMap::new()];
    let mut latest = BTreeMap::new();
    for record in &read {
        let body = record.body.clone().expect("nothing is deleted");
        match record.key.as_str().split_once('/').expect("a kind") {
            ("latest", task) => {
                let text = String::from_utf8(body.to_vec()).expect("text");
                let number: u64 = text.parse().expect("a number");
                latest.insert(task.parse::<u64>().expect("a task"), (number, record.serial));
            }
            (side, number) => {
                let number: u64 = number.parse().expect("a number");
                assert_eq!(body, vec![number as u8; (number % 7 * 1500) as usize]);
                sides[usize::from(side == "right")].insert(number, record.serial);
            }
        }
    }
    let [left, right] = sides;
    assert_eq!(left, right, "a batch is there in halves");
    let missing: Vec<&u64> = acknowledged.iter().filter(|it| !left.contains_key(it)).collect();
    assert!(missing.is_empty(), "acknowledged but not there: {missing:?}");
    let mut serials: Vec<Serial> = left.values().copied().collect();
    serials.sort_unstable();
    assert_eq!(serials, (1..=serial.0).map(Serial).collect::<Vec<_>>());
    for (task, (number, serial)) in latest {
        // Serials, for a task of an earlier round had a number of another task's now.
        assert_eq!(left[&number], serial, "task {task}");
        assert!(left.iter().all(|(other, at)| other % TASKS != number % TASKS || *at <= serial));
    }
    assert_eq!(flaws(&records).await, [""; 0]);
    records.close().await;
    left.keys().next_back().map_or(0, |last| (last / TASKS + 1) * TASKS)
}
