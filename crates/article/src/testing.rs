//! A store in memory, and short ways to write, for tests.

use std::collections::BTreeMap;

use ::record::{Batch, Expected, Key, KeyState, Mismatch, Record, Serial};
use jiff::Timestamp;

use crate::{
    ArticleName, Change, CheckedWrite, Content, Limits, Revision, Snapshot, WriteAction, WriteError,
};

/// Commits batches as the real store does, and applies each to a snapshot.
#[derive(Default)]
pub(crate) struct Store {
    records: BTreeMap<Key, Record>,
    /// Every record written, in order.
    pub(crate) log: Vec<Record>,
    serial: Serial,
    pub(crate) snapshot: Snapshot,
}

impl Store {
    pub(crate) fn commit(&mut self, batch: &Batch) -> Result<Serial, Mismatch> {
        let writes = batch.writes.iter().map(|write| (&write.key, write.expected));
        let checks = batch.checks.iter().map(|(key, expected)| (key, *expected));
        for (key, expected) in writes.chain(checks) {
            let record = self.records.get(key);
            let serial = record.map_or(Serial::ZERO, |record| record.serial);
            let is_present = record.is_some_and(|record| record.body.is_some());
            let found = KeyState { serial, is_present };
            if !expected.holds(found) {
                return Err(Mismatch { key: key.clone(), expected, found });
            }
        }
        assert_eq!(batch.key_written_twice(), None);
        self.serial = self.serial.next();
        let serial = self.serial;
        for write in &batch.writes {
            let (body, blobs) = (write.body.clone(), write.blobs.clone());
            let record = Record { key: write.key.clone(), serial, body, blobs };
            self.records.insert(write.key.clone(), record.clone());
            self.log.push(record.clone());
            self.snapshot = self.snapshot.apply(&[record]).snapshot;
        }
        Ok(serial)
    }

    pub(crate) fn check(&self, change: &Change) -> Result<CheckedWrite, WriteError> {
        change.check(&self.snapshot, &Limits::default())
    }

    #[track_caller]
    pub(crate) fn write(&mut self, change: &Change) -> Revision {
        let checked = self.check(change).expect("an allowed write");
        assert_ne!(
            checked.batch.writes.first().map(|write| write.expected),
            Some(Expected::Anything)
        );
        self.commit(&checked.batch).expect("no other writer");
        checked.revision
    }
}

#[track_caller]
pub(crate) fn name(text: &str) -> ArticleName {
    ArticleName::parse(text).expect("a name")
}

/// 2026-01-02 03:04:05.123456789 UTC.
pub(crate) fn at() -> Timestamp {
    "2026-01-02T03:04:05.123456789Z".parse().expect("a time")
}

fn change(text: &str, base: u32, author: &str, comment: &str, act: WriteAction) -> Change {
    let (author, comment) = (author.to_owned(), comment.to_owned());
    Change { name: name(text), base: Revision(base), author, comment, at: at(), act }
}

pub(crate) fn put(text: &str, base: u32, content: &str) -> Change {
    let content = Content::of(content.as_bytes(), Some("text/markdown")).expect("a media type");
    change(text, base, "ada", " why \n", WriteAction::Put(content))
}

pub(crate) fn delete(text: &str, base: u32) -> Change {
    change(text, base, "bob", "", WriteAction::Delete)
}

pub(crate) fn restore(text: &str, base: u32, from: Option<u32>) -> Change {
    change(text, base, "cyd", "", WriteAction::Restore(from.map(Revision)))
}

pub(crate) fn rename(text: &str, base: u32, to: &str) -> Change {
    change(text, base, "dan", " better", WriteAction::Rename(name(to)))
}
