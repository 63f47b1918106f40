//! A store in memory, and short ways to write, for tests.

use std::collections::BTreeMap;

use ::record::{Batch, Expected, Found, Key, Mismatch, Record, Serial};
use jiff::Timestamp;

use crate::{
    ArticleName, Change, Checked, Content, Delete, Limits, Put, Rename, Restore, Revision,
    Snapshot, WriteError,
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
            let found = Found { serial, is_present };
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

    pub(crate) fn check(&self, change: &Change) -> Result<Checked, WriteError> {
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

    #[track_caller]
    pub(crate) fn rename(&mut self, rename: &Rename) -> Revision {
        let checked = rename.check(&self.snapshot, &Limits::default()).expect("an allowed rename");
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

pub(crate) fn put(text: &str, base: u32, content: &str) -> Change {
    Change::Put(Put {
        name: name(text),
        base: Revision(base),
        content: Content::of(content.as_bytes(), Some("text/markdown")).expect("a media type"),
        author: "ada".to_owned(),
        comment: " why \n".to_owned(),
        at: at(),
    })
}

pub(crate) fn delete(text: &str, base: u32) -> Change {
    let (author, comment) = ("bob".to_owned(), String::new());
    Change::Delete(Delete { name: name(text), base: Revision(base), author, comment, at: at() })
}

pub(crate) fn restore(text: &str, base: u32, from: Option<u32>) -> Change {
    Change::Restore(Restore {
        name: name(text),
        base: Revision(base),
        from: from.map(Revision),
        author: "cyd".to_owned(),
        comment: String::new(),
        at: at(),
    })
}

pub(crate) fn rename(text: &str, base: u32, to: &str) -> Rename {
    Rename {
        name: name(text),
        base: Revision(base),
        to: name(to),
        author: "dan".to_owned(),
        comment: " better".to_owned(),
        at: at(),
    }
}
