//! Adding, replacing and removing files, within bounds; files of renamed and deleted articles; what followers are told; and that
//! the order of the records does not matter.

use proptest::prelude::*;

use super::*;
use crate::attachment::{ATTACHMENT_CHANGES_MAX, ATTACHMENTS_KIND};
use crate::testing::{Store, at, delete, name, put, rename, restore};
use crate::{Revision, Snapshot, attachment_changes};

fn write(article: &str, file: &str, condition: Condition) -> AttachmentWrite {
    let file = AttachmentName::parse(file).expect("a name");
    AttachmentWrite {
        article: name(article),
        name: file,
        condition,
        author: "eve".to_owned(),
        at: at(),
    }
}

fn unconditional() -> Condition {
    Condition::Headers { if_match: None, if_none_match: None }
}

fn if_match(value: &str) -> Condition {
    Condition::Headers { if_match: Some(value.to_owned()), if_none_match: None }
}

fn if_none_match(value: &str) -> Condition {
    Condition::Headers { if_match: None, if_none_match: Some(value.to_owned()) }
}

fn content(text: &str) -> (Digest, u64) {
    (Digest::of(text.as_bytes()), text.len() as u64)
}

impl Store {
    /// Adds or replaces a file, whatever is there.
    fn attach(&mut self, article: &str, file: &str, text: &str) {
        let put = write(article, file, Condition::Anything);
        let checked = put.put(&self.snapshot, content(text), &AttachmentLimits::default());
        let batch = checked.expect("an allowed write").batch.expect("a change");
        self.commit(&batch).expect("no other writer");
    }

    fn detach(&mut self, article: &str, file: &str) {
        let removal = write(article, file, Condition::Anything).remove(&self.snapshot);
        let batch = removal.expect("an allowed removal").batch.expect("a change");
        self.commit(&batch).expect("no other writer");
    }

    /// The files of an article, each with its size.
    fn files(&self, article: &str) -> String {
        let all = self.snapshot.attachments(&name(article));
        let files = all.map(|all| all.files().to_vec()).unwrap_or_default();
        let files = files.iter().map(|file| format!("{}:{}", file.name, file.size_bytes));
        files.collect::<Vec<_>>().join(" ")
    }
}

/// `a` with `x.png`; `gone` deleted; `old` renamed to `new`.
fn sample() -> Store {
    let mut store = Store::default();
    store.write(&put("a", 0, "one"));
    store.attach("a", "x.png", "xx");
    store.write(&put("gone", 0, "text"));
    store.attach("gone", "y.png", "y");
    store.write(&delete("gone", 1));
    store.write(&put("old", 0, "text"));
    store.attach("old", "z.png", "zzz");
    store.write(&rename("old", 1, "new"));
    store
}

#[track_caller]
fn check(write: &AttachmentWrite, text: &str, expected: &str) {
    let store = sample();
    let limits = AttachmentLimits { file_bytes_max: 10, files_max: 2, together_bytes_max: 11 };
    let found = match write.put(&store.snapshot, content(text), &limits) {
        Ok(CheckedAttachment { batch: None, .. }) => "same",
        Ok(CheckedAttachment { was_there: true, .. }) => "replaced",
        Ok(_) => "added",
        Err(error) => error.code(),
    };
    assert_eq!(found, expected, "{write:?}");
}

#[test]
fn a_file_is_added_or_replaced_as_the_request_says() {
    let tag = format!("\"sha256-{}\"", Digest::of(b"xx"));
    check(&write("a", "new.png", unconditional()), "1", "added");
    check(&write("a", "new.png", if_none_match("*")), "1", "added");
    check(&write("a", "new.png", if_match("*")), "1", "precondition_failed");
    check(&write("a", "new.png", Condition::Anything), "1", "added");
    check(&write("a", "x.png", unconditional()), "1", "condition_missing");
    check(&write("a", "x.png", unconditional()), "xx", "condition_missing");
    check(&write("a", "x.png", if_none_match("*")), "1", "precondition_failed");
    check(&write("a", "x.png", if_none_match("\"other\"")), "1", "condition_missing");
    check(&write("a", "x.png", if_match("*")), "1", "replaced");
    check(&write("a", "x.png", if_match(&tag)), "1", "replaced");
    check(&write("a", "x.png", if_match(&format!("W/{tag}"))), "1", "precondition_failed");
    check(&write("a", "x.png", if_match("\"sha256-0\"")), "1", "precondition_failed");
    check(&write("a", "x.png", if_match(&tag)), "xx", "same");
    check(&write("a", "x.png", Condition::Anything), "1", "replaced");
    check(&write("none", "x.png", unconditional()), "1", "not_found");
    check(&write("gone", "x.png", unconditional()), "1", "deleted");
    check(&write("old", "x.png", unconditional()), "1", "renamed");
    check(&write("new", "z.png", if_match("*")), "1", "replaced");
}

#[test]
fn the_files_of_an_article_are_bounded() {
    check(&write("a", "b", unconditional()), "0123456789", "too_large");
    check(&write("a", "b", unconditional()), "01234567890", "too_large");
    check(&write("a", "b", unconditional()), "012345678", "added");
    check(&write("a", "x.png", if_match("*")), "0123456789", "replaced");
    let mut store = sample();
    store.attach("a", "second", "2");
    let limits = AttachmentLimits { files_max: 2, ..AttachmentLimits::default() };
    let third = write("a", "third", unconditional());
    let early = third.check_announced(&store.snapshot, None, &limits);
    assert_eq!(early.expect_err("full").code(), "too_many_attachments");
    let again = write("a", "second", Condition::Anything);
    assert!(again.check_announced(&store.snapshot, Some(1), &limits).is_ok());
}

#[test]
fn who_may_not_read_learns_no_sizes() {
    let mut store = sample();
    store.attach("a", "second", "22");
    let refused = |limits: &AttachmentLimits, text: &str| {
        let error =
            write("a", "third", unconditional()).put(&store.snapshot, content(text), limits);
        let error = error.expect_err("too much");
        (error.to_string(), error.blind())
    };
    let limits = AttachmentLimits { together_bytes_max: 8, ..AttachmentLimits::default() };
    let (whole, blind) = refused(&limits, "55555");
    assert_eq!(
        whole,
        "all attachments of `a` would have 9 bytes: at most 8 are allowed (`article.attachments_bytes_max`)"
    );
    assert_eq!(
        blind,
        "all attachments of `a` would have more than 8 bytes, the most that are allowed (`article.attachments_bytes_max`)"
    );
    let limits = AttachmentLimits { files_max: 1, ..AttachmentLimits::default() };
    let (whole, blind) = refused(&limits, "1");
    assert_eq!(
        whole,
        "`a` has 2 attachments, and cannot have another one: at most 1 are allowed (`article.attachments_max`)"
    );
    assert_eq!(
        blind,
        "`a` would have more attachments than 1, the most that are allowed (`article.attachments_max`)"
    );
}

/// The answer to a write was lost, and its sender repeats it.
#[test]
fn a_refusal_says_whether_the_file_has_these_bytes() {
    let store = sample();
    let limits = AttachmentLimits::default();
    for condition in [unconditional(), if_match("\"sha256-0\""), if_none_match("*")] {
        for (text, expected) in [("xx", true), ("other", false)] {
            let refused =
                write("a", "x.png", condition.clone()).put(&store.snapshot, content(text), &limits);
            let error = refused.expect_err("refused");
            assert_eq!(error.has_same_content(), Some(expected), "{condition:?} {text}");
            assert_eq!(error.current().expect("a file").size_bytes, 2);
        }
    }
    let none = write("a", "none", if_match("*")).put(&store.snapshot, content("x"), &limits);
    assert_eq!(none.expect_err("refused").has_same_content(), Some(false));
    let gone = write("none", "x", unconditional()).put(&store.snapshot, content("x"), &limits);
    assert_eq!(gone.expect_err("refused").has_same_content(), None);
}

#[test]
fn files_go_with_their_article() {
    let mut store = sample();
    assert_eq!((store.files("gone"), store.files("old")), (String::new(), String::new()));
    assert_eq!(store.files("new"), "z.png:3");
    // A deleted article that is restored has no files.
    store.write(&restore("gone", 2, None));
    assert_eq!(store.files("gone"), "");
    store.attach("gone", "y.png", "new");
    assert_eq!(store.files("gone"), "y.png:3");
    let all = store.snapshot.attachments(&name("gone")).expect("files");
    let acts: Vec<&str> = all.changes().iter().map(|change| change.act.as_str()).collect();
    assert_eq!(acts, ["added", "cleared", "added"]);
    assert_eq!(all.changes().iter().map(|change| change.number).collect::<Vec<_>>(), [1, 2, 3]);
    // Rename the article back.
    store.write(&rename("new", 2, "old"));
    assert_eq!((store.files("old"), store.files("new")), ("z.png:3".to_owned(), String::new()));
    store.detach("old", "z.png");
    assert_eq!(store.files("old"), "");
    let error = write("old", "z.png", if_match("*")).remove(&store.snapshot).expect_err("gone");
    assert_eq!(error.code(), "not_found");
    // The records of this state give an equal state.
    let again = Snapshot::default().apply(&store.snapshot.records().collect::<Vec<_>>());
    assert_eq!((again.snapshot, again.troubles), (store.snapshot.clone(), Vec::new()));
}

/// Two writes are decided on one state. The store refuses the second, whichever writes they are.
#[test]
fn of_two_writes_at_once_one_is_decided_anew() {
    let limits = AttachmentLimits::default();
    let batches = |store: &Store, article: &str, base: u32| {
        let add = write(article, "new", Condition::Anything);
        let add = add.put(&store.snapshot, content("1"), &limits).expect("added").batch;
        let other = write(article, "other", Condition::Anything);
        let other = other.put(&store.snapshot, content("2"), &limits).expect("added").batch;
        let gone = store.check(&delete(article, base)).expect("deleted").batch;
        let moved = rename(article, base, "elsewhere");
        let moved = moved.check(&store.snapshot, &crate::Limits::default()).expect("moved").batch;
        [add.expect("a change"), other.expect("a change"), gone, moved]
    };
    for has_files in [false, true] {
        for (first, second) in (0..4).flat_map(|one| (0..4).map(move |other| (one, other))) {
            let mut store = Store::default();
            store.write(&put("b", 0, "text"));
            if has_files {
                store.attach("b", "there", "1");
            }
            let batches = batches(&store, "b", 1);
            store.commit(&batches[first]).expect("nothing came first");
            assert!(store.commit(&batches[second]).is_err(), "{first} then {second}");
        }
    }
}

#[test]
fn a_record_of_another_version_blocks_writes() {
    let mut store = sample();
    let key = attachments_key(&name("a"));
    let record = ::record::Record {
        key,
        serial: ::record::Serial(99),
        body: Some("{\"v\":2}".into()),
        blobs: Vec::new(),
    };
    let applied = store.snapshot.apply(&[record]);
    assert_eq!(applied.troubles.len(), 1);
    store.snapshot = applied.snapshot;
    assert_eq!(store.files("a"), "");
    let error = write("a", "x", Condition::Anything).put(
        &store.snapshot,
        content("1"),
        &AttachmentLimits::default(),
    );
    assert_eq!(error.expect_err("unreadable").code(), "unreadable");
    assert_eq!(store.check(&delete("a", 1)).expect_err("unreadable").code(), "unreadable");
    let moved = rename("a", 1, "b").check(&store.snapshot, &crate::Limits::default());
    assert_eq!(moved.expect_err("unreadable").code(), "unreadable");
    // Its text can still be written.
    assert_eq!(store.check(&put("a", 1, "two")).expect("a write").revision, Revision(2));
}

/// Every later version must be able to read these bytes.
#[test]
fn the_stored_form() {
    let mut store = sample();
    store.attach("a", "x.png", "y");
    store.detach("a", "x.png");
    store.attach("a", "b", "");
    let record = store.log.last().expect("a record");
    assert_eq!(record.key.as_str(), "attachments/a");
    assert_eq!(record.blobs, [Digest::of(b"")]);
    let body = String::from_utf8_lossy(record.body.as_ref().expect("a body")).into_owned();
    let (xx, y, none) = (Digest::of(b"xx"), Digest::of(b"y"), Digest::of(b""));
    let end = r#""author":"eve","at":"2026-01-02T03:04:05.123456Z"}"#;
    let expected = format!(
        concat!(
            r#"{{"v":1,"files":[{{"name":"b","sha256":"{none}","size_bytes":0,{end}],"changes":["#,
            r#"{{"number":1,"act":"added","name":"x.png","sha256":"{xx}","size_bytes":2,{end},"#,
            r#"{{"number":2,"act":"replaced","name":"x.png","sha256":"{y}","size_bytes":1,{end},"#,
            r#"{{"number":3,"act":"removed","name":"x.png",{end},"#,
            r#"{{"number":4,"act":"added","name":"b","sha256":"{none}","size_bytes":0,{end}]}}"#,
        ),
        none = none,
        xx = xx,
        y = y,
        end = end,
    );
    assert_eq!(body, expected);
}

/// The files that the last records changed, for a follower that was told of `before`.
fn news(store: &Store, from: usize, before: Option<&Snapshot>) -> Vec<String> {
    let mut told = Vec::new();
    for record in &store.log[from..] {
        let changes = attachment_changes(&record.key, before, &store.snapshot);
        for change in changes.iter().flat_map(|(_, changes)| changes) {
            let file = change.name.as_ref().map_or("", AttachmentName::as_str);
            told.push(format!("{} {file}", change.act.as_str()));
        }
    }
    told
}

#[test]
fn followers_learn_of_every_change_once() {
    let mut store = Store::default();
    store.write(&put("a", 0, "one"));
    let (start, from) = (store.snapshot.clone(), store.log.len());
    store.attach("a", "x", "1");
    assert_eq!(news(&store, from, Some(&start)), ["added x"]);
    assert_eq!(news(&store, from, None), ["added x"]);
    let (before, from) = (store.snapshot.clone(), store.log.len());
    store.write(&rename("a", 1, "b"));
    assert_eq!(news(&store, from, Some(&before)), [""; 0]);
    // Without the state before, the file may be new to followers, so it is reported again.
    assert_eq!(news(&store, from, None), ["added x"]);
    // A follower that has not been told of the renaming either.
    let from = store.log.len();
    store.attach("b", "x", "2");
    assert_eq!(news(&store, from, Some(&before)), ["replaced x"]);
    let (before, from) = (store.snapshot.clone(), store.log.len());
    store.write(&delete("b", 2));
    assert_eq!(news(&store, from, Some(&before)), [""; 0], "the article says so");
    assert_eq!(news(&store, from, None), [""; 0], "the article says so");
}

/// After a start, a server may read only the last record of the files.
#[test]
fn without_the_state_before_no_file_is_missed() {
    let mut store = Store::default();
    store.write(&put("a", 0, "one"));
    store.attach("a", "before", "1");
    store.write(&delete("a", 1));
    store.write(&restore("a", 2, None));
    store.attach("a", "x", "1");
    store.attach("a", "y", "1");
    store.attach("a", "x", "2");
    store.attach("a", "gone", "1");
    store.detach("a", "gone");
    let last = store.log.len() - 1;
    assert_eq!(news(&store, last, None), ["added y", "replaced x", "removed gone"]);
    // The record no longer has a change of most files.
    for number in 0..ATTACHMENT_CHANGES_MAX {
        store.attach("a", "z", &number.to_string());
    }
    let last = store.log.len() - 1;
    assert_eq!(news(&store, last, None), ["added x", "added y", "replaced z"]);
    store.write(&rename("a", 3, "b"));
    let all = store.snapshot.attachments(&name("b")).expect("files").record(&name("b"));
    let told = attachment_changes(&all.key, None, &store.snapshot).expect("changes");
    assert_eq!((told.0, told.1.len()), (name("b"), 3));
}

/// An older version of Larder, which does not know files, renames or deletes the article without them.
#[test]
fn files_that_an_older_version_left_do_not_come_back() {
    let older = |store: &mut Store, mut batch: ::record::Batch| {
        let is_of_text = |key: &::record::Key| key.after(ATTACHMENTS_KIND).is_none();
        batch.writes.retain(|write| is_of_text(&write.key));
        batch.checks.retain(|(key, _)| is_of_text(key));
        store.commit(&batch).expect("no other writer");
    };
    let moved = |store: &Store, from: &str, base: u32, to: &str| {
        let moved = rename(from, base, to).check(&store.snapshot, &crate::Limits::default());
        moved.expect("allowed").batch
    };
    for has_files in [false, true] {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.attach("a", "left", "1");
        let batch = moved(&store, "a", 1, "b");
        older(&mut store, batch);
        assert_eq!((store.files("a"), store.files("b")), ("left:1".to_owned(), String::new()));
        if has_files {
            store.attach("b", "own", "22");
        }
        // Rename the article back to the name that still has files.
        store.write(&rename("b", 2, "a"));
        assert_eq!(store.files("a"), if has_files { "own:2" } else { "" });
    }
    // Write a new text at a name that redirects, and at the name of a deleted article.
    let mut store = Store::default();
    store.write(&put("a", 0, "one"));
    store.attach("a", "left", "1");
    let batch = moved(&store, "a", 1, "b");
    older(&mut store, batch);
    store.write(&put("a", 2, "new"));
    assert_eq!(store.files("a"), "");
    store.write(&put("c", 0, "one"));
    store.attach("c", "left", "1");
    let batch = store.check(&delete("c", 1)).expect("allowed").batch;
    older(&mut store, batch);
    store.write(&restore("c", 2, None));
    assert_eq!(store.files("c"), "");
    // A write of the text of an existing article does not touch its files.
    store.attach("c", "x", "1");
    store.write(&put("c", 3, "two"));
    assert_eq!(store.files("c"), "x:1");
}

proptest! {
    /// Records give the same state in any order and in chunks of any size, and only articles that exist have files.
    #[test]
    fn chunks_and_order_make_no_difference(
        acts in proptest::collection::vec((0_u8..6, 0_usize..3, 0_usize..3), 0..40),
        chunk in 1_usize..9,
        order in any::<u64>(),
    ) {
        const NAMES: [&str; 3] = ["a", "a/b", "c"];
        const FILES: [&str; 3] = ["x", "y.png", "é"];
        let mut store = Store::default();
        for (number, (act, at, file)) in acts.into_iter().enumerate() {
            let (article, file) = (NAMES[at], FILES[file]);
            let latest = store.snapshot.latest(&name(article)).cloned();
            let base = latest.as_ref().map_or(0, |latest| latest.revision.0);
            let is_there = latest.is_some_and(|latest| !latest.is_deleted());
            match act {
                _ if !is_there => _ = store.write(&put(article, base, "text")),
                0 => _ = store.write(&delete(article, base)),
                1 => {
                    let renaming = rename(article, base, NAMES[(at + 1) % 3]);
                    if let Ok(checked) = renaming.check(&store.snapshot, &crate::Limits::default()) {
                        store.commit(&checked.batch).expect("no other writer");
                    }
                }
                2 if store.files(article).contains(file) => store.detach(article, file),
                _ => store.attach(article, file, &number.to_string()),
            }
        }
        for (name, all) in store.snapshot.all_attachments() {
            let is_there = store.snapshot.latest(name).is_some_and(|it| !it.is_deleted());
            prop_assert!(is_there || all.files().is_empty(), "{name}");
        }
        // Keep the last record of each key: a store returns no other.
        let mut records: Vec<_> = store.log.clone();
        let whole = Snapshot::default().apply(&records).snapshot;
        prop_assert_eq!(&whole, &store.snapshot);
        let mut last = std::collections::BTreeMap::new();
        for record in records.drain(..) {
            last.insert(record.key.clone(), record);
        }
        let mut records: Vec<_> = last.into_values().collect();
        records.sort_by_key(|record| record.serial.0.wrapping_mul(order | 1));
        let mut chunked = Snapshot::default();
        for chunk in records.chunks(chunk) {
            chunked = chunked.apply(chunk).snapshot;
        }
        prop_assert_eq!(&chunked, &store.snapshot);
    }
}
