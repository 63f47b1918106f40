//! The audit log: its queries, its bounds, and entries that are left out.

use std::fs::{File, OpenOptions};
use std::io::Write as _;

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
    Audit::of(log(directory, bytes_max), lost, Arc::new(|| true))
}

#[track_caller]
fn check(audit: &Audit, query: &[(&str, &str)], expected: &str, next: Option<u64>) {
    let found =
        audit.query(&Query::of(query.iter().copied()).expect("a query"), |_| {}).expect("a log");
    let what: Vec<&str> = found.entries.iter().filter_map(|entry| entry["what"].as_str()).collect();
    assert_eq!((what.join(" ").as_str(), found.next), (expected, next), "{query:?}");
}

/// A pipe in the place of a segment, while the log is used, has no entries and hangs nothing.
#[test]
fn a_pipe_in_place_of_a_segment_hangs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let audit = audit(directory.path(), 1 << 20);
    audit.note(entry("one", Event::Refused, Timestamp::now()));
    check(&audit, &[], "one", None);
    let (_, path) = log(directory.path(), 1).segments().expect("segments").remove(0);
    std::fs::remove_file(&path).expect("it is there");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    check(&audit, &[], "", None);
    audit.note(entry("two", Event::Refused, Timestamp::now()));
    std::fs::remove_file(&path).expect("it is there");
    check(&audit, &[("limit", "1")], "", None);
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
        // It waits for the thread from time to time, so that no entry is left out.
        if number % 1000 == 0 {
            audit.query(&Query::default(), |_| {}).expect("a log");
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
    // The query waits for the entries before it.
    drop(blocked.query(&Query::default(), |_| {}));
    assert_eq!(blocked.lost(), 1);
    let off = audit(&directory.path().join("off"), 0);
    off.note(entry("one", Event::Refused, Timestamp::now()));
    check(&off, &[], "", None);
    assert_eq!(off.lost(), 0);
}

#[test]
fn a_bad_query_is_refused_in_words() {
    let refused = |name, value| Query::of([(name, value)]).expect_err("a bad query");
    let expected = "`event` cannot be `x`: `refused`, `served`, `excepted`, `warned` or `changed` was expected";
    assert_eq!(refused("event", "x"), expected);
    let expected = "`limit` cannot be `0`: a whole number from 1 to 1000 was expected";
    assert_eq!(refused("limit", "0"), expected);
    assert_eq!(
        refused("when", "x"),
        "`when` is unknown: one of index, event, rule, who, client, what, since, until, before, limit was expected"
    );
}

#[test]
fn a_segment_that_cannot_be_written_makes_no_further_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let full = directory.path().join("00000000000000000001.jsonl");
    let mut writer = Writer::open(log(directory.path(), 1 << 20), Arc::new(|| true));
    std::os::unix::fs::symlink("/dev/full", &full).expect("a link");
    let line = |what: &str, id| entry(what, Event::Refused, Timestamp::now()).line(id);
    for id in 1..=3 {
        assert!(!writer.append(&line("lost", id), 1));
    }
    let names = || fs::read_dir(directory.path()).expect("a directory").count();
    assert_eq!(names(), 1, "the segment that failed is tried again");
    fs::remove_file(&full).expect("a link");
    // The rest of a failed write is no entry, and hides none.
    fs::write(&full, "{\"id\":3,\"at\":").expect("a file");
    assert!(writer.append(&line("four", 4), 1));
    assert!(writer.append(&line("five", 5), 1));
    assert_eq!(names(), 1);
    check(&audit(directory.path(), 1 << 20), &[], "five four", None);
}

#[test]
fn what_is_too_old_goes_without_a_new_entry() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = directory.path().join("00000000000000000001.jsonl");
    let young = directory.path().join("00000000000000000002.jsonl");
    for (path, days) in [(&old, 8), (&young, 6)] {
        let file = File::create(path).expect("a file");
        let at = std::time::SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        file.set_modified(at).expect("a time");
    }
    let none = log(&directory.path().join("none"), 1 << 20);
    let lost = IntCounter::new("lost", "lost").expect("a counter");
    assert!(Audit::new(none, lost, || true).queue.get().is_none(), "there is nothing to watch");
    let audit = audit(directory.path(), 1 << 20);
    audit.queue();
    // The thread answers after it has looked.
    drop(audit.query(&Query::default(), |_| {}));
    assert_eq!((old.exists(), young.exists()), (false, true));
}

#[test]
fn segments_are_small_however_large_the_log() {
    let directory = Path::new("/nowhere");
    let sizes = [1, 1 << 20, 64 << 20, 1 << 40].map(|bytes| log(directory, bytes).segment_bytes());
    assert_eq!(sizes, [4096, 64 << 10, 4 << 20, 8 << 20]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 30).expect("a size");
    let text = read_segment(file.path()).expect("text");
    assert_eq!(text.len() as u64, 2 * SEGMENT_BYTES_MAX);
}

#[test]
fn texts_are_cut_before_they_wait() {
    let long = "\u{e9}".repeat(100_000);
    let whole = Entry {
        path: long.clone(),
        reason: long.clone(),
        ..entry(&long, Event::Served, Timestamp::now())
    };
    let cut = whole.cut();
    for text in [cut.path, cut.what, cut.reason] {
        assert_eq!((text.chars().count(), text.capacity() < 2000), (TEXT_CHARS_MAX, true));
    }
}

#[test]
fn a_change_is_noted_unless_nothing_was_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let audit = audit(directory.path(), 1 << 20);
    let pending = |what: &str| {
        PendingEntries::new(&audit, vec![entry(what, Event::Changed, Timestamp::now())])
    };
    pending("refused").refused();
    pending("committed").committed();
    drop(pending("left"));
    let found = audit.query(&Query::default(), |_| {}).expect("a log").entries;
    let said: Vec<_> = found.iter().map(|it| [&it["what"], &it["reason"]]).collect();
    let unknown = json!("it is not known whether this was done: younger than 7 days");
    let expected =
        [[&json!("left"), &unknown], [&json!("committed"), &json!("younger than 7 days")]];
    assert_eq!(said, expected);
}
