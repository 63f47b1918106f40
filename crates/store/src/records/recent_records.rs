//! The latest records that went by, to tell whether a database that lacked something is the right one again.
//!
//! A [`Seen`](super::observed_store::ObservedStore) is compared at each read, so it is small, and a database that has gone on without some commits may
//! pass: the same key was written again. Therefore a database that was found to lack something has to have more before it is
//! trusted again: every one of these records, and no others among them.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use record::{Key, Record, Serial};

use super::read::Sink;

/// Most records that are remembered.
pub(super) const RECORDS_MAX: usize = 1024;

/// All records that went by with serials after `start` and up to `end`, as far as they were the latest of their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentRecords {
    pub(super) start: Serial,
    end: Serial,
    records: VecDeque<RecordWitness>,
}

#[derive(Clone, Debug)]
struct RecordWitness {
    key: Key,
    serial: Serial,
    content: u64,
}

/// The last records of a read.
#[derive(Debug, Default)]
pub(super) struct LastRead {
    records: VecDeque<Record>,
    /// The serial of the latest one that is not among them any more.
    cut_at: Option<Serial>,
}

impl LastRead {
    pub(super) fn take(&mut self, record: &Record) {
        if self.records.len() == RECORDS_MAX {
            self.cut_at = self.records.pop_front().map(|record| record.serial);
        }
        self.records.push_back(record.clone());
    }

    /// The key and the serial of the last one.
    pub(super) fn last(&self) -> Option<(&Key, Serial)> {
        self.records.back().map(|record| (&record.key, record.serial))
    }
}

/// A sink that remembers the last records which it passed on: those of the highest serials.
pub(super) struct MarkingSink<'a, S> {
    pub(super) sink: &'a mut S,
    pub(super) last: LastRead,
}

impl<S: Sink> Sink for MarkingSink<'_, S> {
    type Error = S::Error;

    async fn take(&mut self, record: Record) -> Result<(), S::Error> {
        self.last.take(&record);
        self.sink.take(record).await
    }
}

impl RecentRecords {
    /// Remembers what a read after `after` has handed out last, up to the serial `end` of the store.
    pub(super) fn take(&mut self, after: Serial, end: Serial, read: LastRead) {
        if end <= self.end {
            return;
        }
        // Only a read that begins where the last one ended leaves no gap.
        let gap = (after > self.end).then_some(after);
        let begin = gap.max(read.cut_at.filter(|cut| *cut > self.end));
        if let Some(begin) = begin {
            self.records.clear();
            self.start = begin;
        }
        let known = self.end.max(self.start);
        let new = read.records.into_iter().filter(|record| record.serial > known);
        self.records.extend(new.map(|record| RecordWitness::of(&record)));
        self.end = end;
        while self.records.len() > RECORDS_MAX
            || self.records.front().is_some_and(|first| first.serial <= self.start)
        {
            let first = self.records.pop_front();
            self.start = first.map_or(self.end, |first| first.serial.max(self.start));
        }
    }

    /// Begins to compare with all records after [`RecentRecords::start`].
    pub(super) fn compare(&self) -> Comparison<'_> {
        let mut missing = HashMap::with_capacity(self.records.len());
        // The last one of a key counts.
        missing.extend(self.records.iter().map(|witness| (&witness.key, witness)));
        Comparison { end: self.end, missing, latest: Serial::ZERO }
    }
}

impl RecordWitness {
    fn of(record: &Record) -> RecordWitness {
        let mut hasher = DefaultHasher::new();
        record.body.hash(&mut hasher);
        for digest in &record.blobs {
            digest.as_bytes().hash(&mut hasher);
        }
        RecordWitness { key: record.key.clone(), serial: record.serial, content: hasher.finish() }
    }
}

/// Compares records as they are read.
pub(super) struct Comparison<'a> {
    end: Serial,
    missing: HashMap<&'a Key, &'a RecordWitness>,
    /// The latest of them that is as it was.
    latest: Serial,
}

/// A record that did not go by, though it should have.
pub(super) struct UnknownRecord;

impl Comparison<'_> {
    /// If everything is there, or written anew: the serial of the latest record that is as it was.
    pub(super) fn latest(&self) -> Option<Serial> {
        (self.missing.is_empty() && self.latest > Serial::ZERO).then_some(self.latest)
    }
}

impl Sink for Comparison<'_> {
    type Error = UnknownRecord;

    async fn take(&mut self, record: Record) -> Result<(), UnknownRecord> {
        let known = self.missing.remove(&record.key);
        if record.serial > self.end {
            return Ok(());
        }
        let found = RecordWitness::of(&record);
        let is_known =
            known.is_some_and(|it| it.serial == found.serial && it.content == found.content);
        if !is_known {
            return Err(UnknownRecord);
        }
        self.latest = record.serial;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a@3=x`: the key, its serial and its body.
    fn records(text: &str) -> Vec<Record> {
        let record = |text: &str| {
            let (key, rest) = text.split_once('@').expect("a serial");
            let (serial, body) = rest.split_once('=').expect("a body");
            Record {
                key: Key::new(key).expect("a key"),
                serial: Serial(serial.parse().expect("a number")),
                body: Some(body.to_owned().into()),
                blobs: Vec::new(),
            }
        };
        text.split_whitespace().map(record).collect()
    }

    fn read(recent: &mut RecentRecords, after: u64, end: u64, text: &str) {
        let mut last = LastRead::default();
        records(text).iter().for_each(|record| last.take(record));
        recent.take(Serial(after), Serial(end), last);
    }

    fn is_whole(recent: &RecentRecords, database: &str) -> bool {
        latest(recent, database).is_some()
    }

    fn latest(recent: &RecentRecords, database: &str) -> Option<u64> {
        let mut comparison = recent.compare();
        let all = records(database);
        let taken = all.into_iter().filter(|record| record.serial > recent.start).all(|record| {
            futures_util::FutureExt::now_or_never(comparison.take(record)).expect("no wait").is_ok()
        });
        comparison.latest().filter(|_| taken).map(|serial| serial.0)
    }

    #[track_caller]
    fn check(database: &str, expected: bool) {
        let mut recent = RecentRecords::default();
        read(&mut recent, 0, 2, "a@1=x b@2=x");
        read(&mut recent, 2, 4, "a@3=y c@4=x");
        // Read again, as by a backup: nothing new.
        read(&mut recent, 0, 4, "b@2=x a@3=y c@4=x");
        assert_eq!(is_whole(&recent, database), expected, "{database}");
    }

    #[test]
    fn the_right_database_has_everything_that_went_by() {
        check("b@2=x a@3=y c@4=x", true);
        check("b@2=x c@4=x d@5=x a@6=z", true);
    }

    #[test]
    fn what_is_as_it_was_is_told_from_what_was_written_anew() {
        let mut recent = RecentRecords::default();
        read(&mut recent, 0, 3, "a@1=x b@2=x c@3=x");
        assert_eq!(latest(&recent, "a@1=x b@2=x c@3=x"), Some(3));
        assert_eq!(latest(&recent, "a@1=x b@2=x c@5=x"), Some(2));
        assert_eq!(latest(&recent, "a@4=x b@5=x c@6=x"), None);
    }

    #[test]
    fn another_one_lacks_something_or_has_something_else() {
        check("a@1=x b@2=x", false);
        check("b@2=x a@3=y", false);
        check("b@2=x a@3=y d@4=x", false);
        check("b@2=x a@3=y d@4=x c@5=x", false);
        check("b@2=x a@3=y c@4=other", false);
        check("b@2=x a@3=y c@4=x e@4=x", false);
        check("a@1=x b@2=x c@3=x", false);
        check("", false);
    }

    #[test]
    fn what_was_not_read_without_a_gap_says_nothing() {
        let mut recent = RecentRecords::default();
        assert!(!is_whole(&recent, ""));
        read(&mut recent, 0, 1, "a@1=x");
        read(&mut recent, 5, 6, "f@6=x");
        assert_eq!(recent.start, Serial(5));
        assert!(is_whole(&recent, "z@4=x f@6=x"));
        assert!(!is_whole(&recent, "f@6=y"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = RecentRecords::default();
        let many = |serials: std::ops::RangeInclusive<usize>| {
            let texts: Vec<String> =
                serials.map(|serial| format!("k{serial}@{serial}=x")).collect();
            texts.join(" ")
        };
        read(&mut recent, 0, 2000, &many(1..=2000));
        assert_eq!((recent.start, recent.records.len()), (Serial(976), RECORDS_MAX));
        read(&mut recent, 2000, 2010, &many(2001..=2010));
        assert_eq!((recent.start, recent.records.len()), (Serial(986), RECORDS_MAX));
        assert!(is_whole(&recent, &many(1..=2010)));
        assert!(!is_whole(&recent, &many(1..=2009)));
    }
}
