//! The audit log: what is found of it, its bounds, and what is left out.

use super::*;

fn log(directory: &Path, bytes_max: u64) -> Log {
    Log { directory: directory.to_owned(), bytes_max, days_max: 7 }
}

fn entry(what: &str, event: Event, at: Timestamp) -> Entry {
    Entry {
        at,
        event,
        index: "alice/up".to_owned(),
        path: "/alice/dev/+f/a".to_owned(),
        what: what.to_owned(),
        rule: Some("cooldown"),
        reason: "younger than 7 days".to_owned(),
        who: Some("bob".to_owned()),
        client: "10.0.0.1".to_owned(),
    }
}

fn audit(directory: &Path, bytes_max: u64) -> Audit {
    let lost = IntCounter::new("lost", "lost").expect("a counter");
    Audit { log: log(directory, bytes_max), has_served: true, lost, queue: OnceLock::new() }
}

#[track_caller]
fn check(audit: &Audit, query: &[(&str, &str)], expected: &str, next: Option<u64>) {
    let found = audit.query(&Query::of(query.iter().copied()).expect("a query")).expect("a log");
    let what: Vec<&str> = found.entries.iter().filter_map(|entry| entry["what"].as_str()).collect();
    assert_eq!((what.join(" ").as_str(), found.next), (expected, next), "{query:?}");
}

#[test]
fn entries_are_found_newest_first_also_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let now = Timestamp::now();
    let hours = |hours| now - SignedDuration::from_hours(hours);
    {
        let audit = audit(directory.path(), 1 << 20);
        check(&audit, &[], "", None);
        audit.note(entry("too-old", Event::Refused, hours(24 * 8)));
        audit.note(entry("one", Event::Refused, hours(3)));
        audit.note(entry("two", Event::Served, hours(2)));
        check(&audit, &[], "two one", None);
    }
    // A crash may cut off the last line.
    let segments = log(directory.path(), 1).segments().expect("segments");
    let mut file = OpenOptions::new().append(true).open(&segments[0].1).expect("a file");
    file.write_all(b"{\"id\":9,\"at\":\"20").expect("it is written");
    let audit = audit(directory.path(), 1 << 20);
    audit.note(entry("three", Event::Excepted, hours(1)));
    check(&audit, &[], "three two one", None);
    check(&audit, &[("limit", "2")], "three two", Some(3));
    check(&audit, &[("limit", "2"), ("before", "3")], "one", None);
    check(&audit, &[("event", "served")], "two", None);
    check(&audit, &[("index", "alice/up"), ("what", "t")], "three two", None);
    check(&audit, &[("index", "alice/dev")], "three two one", None);
    check(&audit, &[("index", "alice/d")], "", None);
    check(&audit, &[("who", "eve")], "", None);
    check(&audit, &[("client", "10.0.0.1"), ("rule", "cooldown")], "three two one", None);
    let (since, until) = (hours(2).to_string(), hours(1).to_string());
    check(&audit, &[("since", &since), ("until", &until)], "two", None);
}

#[test]
fn the_log_keeps_within_its_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let audit = audit(directory.path(), 128 << 10);
    for number in 0..3000 {
        // It waits for the thread now and then, so that nothing is left out.
        if number % 1000 == 0 {
            audit.query(&Query::default()).expect("a log");
        }
        audit.note(entry(&format!("file-{number}"), Event::Refused, Timestamp::now()));
    }
    check(&audit, &[("limit", "1")], "file-2999", Some(3000));
    assert_eq!(audit.lost(), 0);
    let segments = log(directory.path(), 1).segments().expect("segments");
    let bytes: u64 =
        segments.iter().map(|(_, path)| fs::metadata(path).expect("a file").len()).sum();
    assert!((16 << 10..192 << 10).contains(&bytes), "{bytes}");
    assert!(segments[0].0 > 1, "the oldest has gone");
}

#[test]
fn what_cannot_be_written_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("file");
    fs::write(&place, "").expect("a file");
    let blocked = audit(&place, 1 << 20);
    blocked.note(entry("one", Event::Refused, Timestamp::now()));
    // The query comes after it.
    drop(blocked.query(&Query::default()));
    assert_eq!(blocked.lost(), 1);
    let off = audit(&directory.path().join("off"), 0);
    off.note(entry("one", Event::Refused, Timestamp::now()));
    check(&off, &[], "", None);
    assert_eq!(off.lost(), 0);
}

#[test]
fn a_bad_query_is_refused_in_words() {
    let refused = |name, value| Query::of([(name, value)]).expect_err("a bad query");
    let expected =
        "`event` cannot be `x`: `refused`, `served`, `excepted` or `changed` was expected";
    assert_eq!(refused("event", "x"), expected);
    let expected = "`limit` cannot be `0`: a whole number from 1 to 1000 was expected";
    assert_eq!(refused("limit", "0"), expected);
    assert!(refused("when", "x").starts_with("`when` is unknown: one of index, event, "));
}
