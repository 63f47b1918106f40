//! Random histories: the store and a map in memory agree on every step.

use std::collections::{BTreeMap, HashMap};

use record::{Batch, Expected, Key, KeyState, Mismatch, Record, Serial};
use store::records::CommitError;

use crate::database::{Database, flaws, key};
use crate::on_both;

on_both!(a_history_is_as_a_map_has_it);

/// SplitMix64: the same history for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[derive(Default)]
struct Model {
    serial: Serial,
    records: HashMap<Key, Record>,
}

impl Model {
    fn found(&self, key: &Key) -> KeyState {
        match self.records.get(key) {
            Some(record) => KeyState { serial: record.serial, is_present: record.body.is_some() },
            None => KeyState { serial: Serial::ZERO, is_present: false },
        }
    }

    fn commit(&mut self, batch: &Batch) -> Result<Serial, CommitError> {
        let writes = batch.writes.iter().map(|write| (write.key.clone(), write.expected));
        for (key, expected) in writes.chain(batch.checks.iter().cloned()) {
            let found = self.found(&key);
            let holds = match expected {
                Expected::Anything => true,
                Expected::Absent => !found.is_present,
                Expected::Present => found.is_present,
                Expected::At(serial) => found.serial == serial,
            };
            if !holds {
                return Err(CommitError::Mismatch(Mismatch { key, expected, found }));
            }
        }
        if !batch.writes.is_empty() {
            self.serial = Serial(self.serial.0 + 1);
        }
        for write in batch.writes.clone() {
            let record = Record {
                key: write.key.clone(),
                serial: self.serial,
                body: write.body,
                blobs: write.blobs,
            };
            self.records.insert(write.key, record);
        }
        Ok(self.serial)
    }

    fn after(&self, serial: Serial) -> Vec<Record> {
        let newer = self.records.values().filter(|record| record.serial > serial);
        let sorted: BTreeMap<(Serial, &Key), &Record> =
            newer.map(|record| ((record.serial, &record.key), record)).collect();
        sorted.into_values().cloned().collect()
    }

    fn batch(&self, random: &mut Random) -> Batch {
        let mut batch = Batch::new();
        // Few keys, so that conditions meet every state of them.
        let mut names: Vec<u64> = (0..7).collect();
        for _ in 0..random.below(4) {
            let key =
                key(&format!("k/{}", names.swap_remove(random.below(names.len() as u64) as usize)));
            let expected = self.expected(random, &key);
            batch = match random.below(4) {
                0 => batch.delete(key, expected),
                1 => batch.check(key, expected),
                _ => {
                    let body = vec![random.below(256) as u8; random.below(300) as usize];
                    let blobs = (0..random.below(3))
                        .map(|number| record::Digest::of(&[number as u8]))
                        .collect();
                    batch.put(key, expected, body, blobs)
                }
            };
        }
        batch
    }

    fn expected(&self, random: &mut Random, key: &Key) -> Expected {
        match random.below(8) {
            0 => Expected::Absent,
            1 => Expected::Present,
            2 => Expected::At(Serial(random.below(self.serial.0 + 2))),
            3..=5 => Expected::At(self.found(key).serial),
            _ => Expected::Anything,
        }
    }
}

async fn a_history_is_as_a_map_has_it(database: Database) {
    for seed in 0..3 {
        let mut random = Random(seed);
        let mut records = database.open().await;
        let mut model = Model::default();
        for record in records.records_after(Serial::ZERO).await.expect("read").0 {
            model.records.insert(record.key.clone(), record);
        }
        model.serial = records.serial().await.expect("read");
        for step in 0..120 {
            // Several at once share a transaction, and take effect in the order in which they come.
            let batches: Vec<Batch> =
                (0..1 + random.below(6)).map(|_| model.batch(&mut random)).collect();
            let commits = batches.iter().map(|batch| records.commit(batch.clone()));
            let outcomes = futures_util::future::join_all(commits).await;
            let expected: Vec<_> = batches.iter().map(|batch| model.commit(batch)).collect();
            assert_eq!(outcomes, expected, "seed {seed}, step {step}: {batches:?}");
            let after = Serial(random.below(model.serial.0 + 2));
            let read = records.records_after(after).await.expect("read");
            assert_eq!(read, (model.after(after), model.serial), "seed {seed}, step {step}");
            if random.below(40) == 0 {
                records.close().await;
                records = database.open().await;
            }
        }
        assert_eq!(flaws(&records).await, [""; 0]);
        records.close().await;
    }
}
