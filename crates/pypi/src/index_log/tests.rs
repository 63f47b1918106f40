//! Logs of stages: lines that come back from their records, and no more than there are slots for.

use super::*;

fn stage(name: &str) -> StageName {
    name.parse().expect("a name")
}

fn project() -> ProjectName {
    ProjectName::normalize("attest").expect("a name")
}

fn line(number: i64, deed: Deed) -> LogLine {
    let at = Timestamp::from_microsecond(number).expect("a time");
    LogLine { at, by: Doer::User("ann".parse().expect("a name")), deed }
}

/// Commits the write, if its condition holds.
#[track_caller]
fn commit(logs: &IndexLogs, serial: u64, write: Write) -> IndexLogs {
    let record =
        Record { key: write.key, serial: Serial(serial), body: write.body, blobs: Vec::new() };
    let (logs, troubles) = logs.apply(&[record]);
    assert_eq!(troubles, []);
    logs
}

#[test]
fn a_line_comes_back_from_its_record() {
    let deeds = [
        Deed::new(DeedKind::Created),
        Deed::new(DeedKind::Settings).naming(["acl_read", "volatile"]),
        Deed::of(DeedKind::Yanked, &project()).version("1.0").because(Some("broken")),
        Deed::of(DeedKind::Unyanked, &project()).file("attest-1.0.tar.gz"),
        Deed::of(DeedKind::Status, &project()).naming(["archived"]),
        Deed::of(DeedKind::Removed, &project()),
        Deed::of(DeedKind::Pushed, &project()).version("1.0").from(&stage("team/dev")),
        Deed::new(DeedKind::Retention).naming((0..30).map(|number| number.to_string())),
    ];
    let doers = [Doer::Nobody, Doer::Command, Doer::Server, line(0, deeds[0].clone()).by];
    let (name, mut logs) = (stage("team/prod"), IndexLogs::default());
    let mut expected = Vec::new();
    for (serial, deed) in (1..).zip(deeds) {
        let by = doers[serial as usize % doers.len()].clone();
        let line = LogLine { by, ..line(serial, deed) };
        let write = logs.write(&name, &line, serial as u64 * 7);
        logs = commit(&logs, serial as u64, write);
        expected.insert(0, (Serial(serial as u64), line));
    }
    let records: Vec<Record> = logs.records().collect();
    let (again, _) = IndexLogs::default().apply(&records);
    for logs in [&logs, &again] {
        let log = logs.log("team/prod").expect("a log");
        let found = log.lines(None).map(|(serial, line)| (serial, line.clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(log.lines(Some(Serial(3))).count(), 2);
        assert_eq!(log.at(Serial(8)).map(|it| (it.deed.names.len(), it.deed.more)), Some((20, 10)));
    }
    let yank =
        logs.log("team/prod").and_then(|log| log.last(DeedKind::Yanked, &project(), Some("1.0")));
    assert_eq!(yank.and_then(|line| line.deed.reason.as_deref()), Some("broken"));
    assert!(logs.log("team/dev").is_none());
}

#[test]
fn the_oldest_lines_are_written_over() {
    let (name, mut logs) = (stage("team/prod"), IndexLogs::default());
    let count = LINES_MAX as u64 + 500;
    for serial in 1..=count {
        let write =
            logs.write(&name, &line(serial as i64, Deed::new(DeedKind::Settings)), serial * 31);
        logs = commit(&logs, serial, write);
    }
    let log = logs.log("team/prod").expect("a log");
    assert_eq!((log.lines.len(), log.slots.len()), (LINES_MAX, LINES_MAX));
    let newest: Vec<u64> = log.lines(None).map(|(serial, _)| serial.0).take(400).collect();
    assert_eq!(newest, (count - 399..=count).rev().collect::<Vec<_>>());
    for (serial, write) in (count + 1..).zip(logs.erase(&name).collect::<Vec<_>>()) {
        logs = commit(&logs, serial, write);
    }
    assert!(logs.log("team/prod").is_none());
}

#[test]
fn two_writers_of_one_state_choose_other_slots_and_a_third_waits_its_turn() {
    let (name, logs) = (stage("team/prod"), IndexLogs::default());
    let write = |seed| logs.write(&name, &line(1, Deed::new(DeedKind::Settings)), seed);
    assert_ne!(write(1).key, write(2).key);
    // The same slot: both expect it to be absent, so the store refuses one.
    assert_eq!((write(1).key, write(1).expected), (write(1001).key, Expected::Absent));
}

#[test]
fn a_record_that_cannot_be_read_is_trouble_and_no_line() {
    for (key, body) in [
        ("index-log/team/prod/1", "{}"),
        ("index-log/team/prod/1", r#"{"v":1,"at_unix_microseconds":0,"what":"danced"}"#),
        ("index-log/team/prod/one", r#"{"v":1,"at_unix_microseconds":0,"what":"created"}"#),
        ("index-log/team/1", r#"{"v":1,"at_unix_microseconds":0,"what":"created"}"#),
    ] {
        let (key, body) = (Key::new(key).expect("a key"), Some(body.into()));
        let record = Record { key, serial: Serial(1), body, blobs: Vec::new() };
        let (logs, troubles) = IndexLogs::default().apply(&[record]);
        assert_eq!((logs.stages.len(), troubles.len()), (0, 1));
    }
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let deed = Deed::new(DeedKind::Yanked).because(Some(&"é".repeat(800)));
    assert_eq!(deed.reason.map(|reason| reason.len()), Some(1000));
}
