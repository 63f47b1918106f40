//! A group of batches that share one transaction: which of them succeed, and the rows to write for them.
//!
//! batches in order + the state of their keys -> an outcome for each + one row for each written key. Nothing here asks a
//! database; both engines write exactly what this decides.

use std::collections::HashMap;

use record::{Batch, Expected, Key, KeyState, Mismatch, Serial};

use super::error::CommitError;
use super::observed_store::ObservedStore;
use super::rows::KeyRow;

/// An outcome for each batch of a group, and the serial after it; or why all failed.
pub(super) type GroupOutcome = Result<(Vec<Result<Serial, CommitError>>, Serial), CommitError>;

/// How the keys of a group are before it.
pub(super) struct States<'a> {
    /// The serial of the latest commit.
    pub(super) serial: Serial,
    /// Whether the store has the record that names it.
    pub(super) is_anchored: bool,
    /// The keys that were ever written.
    pub(super) found: HashMap<&'a str, KeyState>,
}

/// The decisions about a group.
#[derive(Debug)]
pub(super) struct GroupPlan<'a> {
    /// One for each batch, in order.
    pub(super) outcomes: Vec<Result<Serial, CommitError>>,
    /// The rows to write, each key once. If empty, there is nothing to commit.
    pub(super) rows: Vec<RecordRow<'a>>,
    /// The serial after the group.
    pub(super) serial: Serial,
}

/// A row to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordRow<'a> {
    pub(super) key: &'a str,
    pub(super) serial: i64,
    pub(super) body: Option<&'a [u8]>,
    /// The digests, 32 bytes each.
    pub(super) blobs: Vec<u8>,
}

/// The keys that a group's outcome depends on, each once, that of `seen` among them.
pub(super) fn keys<'a>(batches: &[&'a Batch], seen: &'a ObservedStore) -> Vec<&'a str> {
    let mut keys: Vec<&str> = batches
        .iter()
        .flat_map(|batch| {
            let written = batch.writes.iter().map(|write| write.key.as_str());
            written.chain(batch.checks.iter().map(|(key, _)| key.as_str()))
        })
        .chain(seen.mark.as_ref().map(|mark| mark.key.as_str()))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Collects the database's rows about `keys`, which are sorted: the state of each key that was ever written, and in every row
/// the store's serial; without such keys, one row with the serial alone.
pub(super) fn states<'a, 'r>(
    keys: &[&'a str],
    rows: impl Iterator<Item = Result<KeyRow<'r>, sqlx::Error>>,
) -> Result<States<'a>, sqlx::Error> {
    let mut states = None;
    for row in rows {
        let (serial, is_anchored, state) = row?;
        let states =
            states.get_or_insert_with(|| States { serial, is_anchored, found: HashMap::new() });
        if let Some((key, found)) = state
            && let Ok(place) = keys.binary_search(&key)
        {
            states.found.insert(keys[place], found);
        }
    }
    // The row of the serial is gone: nothing can be committed, and nothing is made up.
    states.ok_or(sqlx::Error::RowNotFound)
}

/// Decides `batches` one after the other, each on the state that the earlier ones leave. If the store lacks what was `seen`,
/// all fail.
pub(super) fn plan<'a>(
    batches: &[&'a Batch],
    seen: &ObservedStore,
    states: States<'a>,
) -> GroupPlan<'a> {
    let States { mut serial, is_anchored, mut found } = states;
    let marked = found.get(seen.key()).map(|found| found.serial);
    if let Err(rewound) = seen.check(serial, marked, is_anchored) {
        let outcomes = batches.iter().map(|_| Err(rewound.into())).collect();
        return GroupPlan { outcomes, rows: Vec::new(), serial };
    }
    let mut latest: HashMap<&str, RecordRow<'a>> = HashMap::new();
    let mut outcomes = Vec::with_capacity(batches.len());
    for &batch in batches {
        if let Some(mismatch) = mismatch(batch, &found) {
            outcomes.push(Err(mismatch.into()));
            continue;
        }
        // A batch that writes nothing takes no serial; its conditions held at the current one.
        if batch.writes.is_empty() {
            outcomes.push(Ok(serial));
            continue;
        }
        serial = serial.next();
        for write in &batch.writes {
            let key = write.key.as_str();
            found.insert(key, KeyState { serial, is_present: write.body.is_some() });
            let row = RecordRow {
                key,
                serial: serial.0.cast_signed(),
                body: write.body.as_deref(),
                blobs: write.blobs.iter().flat_map(|digest| *digest.as_bytes()).collect(),
            };
            latest.insert(key, row);
        }
        outcomes.push(Ok(serial));
    }
    let mut rows: Vec<RecordRow<'a>> = latest.into_values().collect();
    // In the order of the keys, so that pages are touched in order, and equal groups write the same rows.
    rows.sort_unstable_by_key(|row| row.key);
    GroupPlan { outcomes, rows, serial }
}

fn mismatch(batch: &Batch, found: &HashMap<&str, KeyState>) -> Option<Mismatch> {
    let never = KeyState { serial: Serial::ZERO, is_present: false };
    let fault = |(key, expected): (&Key, Expected)| {
        let found = found.get(key.as_str()).copied().unwrap_or(never);
        (!expected.holds(found)).then(|| Mismatch { key: key.clone(), expected, found })
    };
    let written = batch.writes.iter().map(|write| (&write.key, write.expected));
    written.chain(batch.checks.iter().map(|(key, expected)| (key, *expected))).find_map(fault)
}

/// Keys, bodies and digests of `batch`, in bytes: its size in the queue and in a message.
pub(super) fn bytes_of(batch: &Batch) -> usize {
    let written = batch.writes.iter().map(|write| {
        let body_bytes = write.body.as_ref().map_or(0, |body| body.len());
        write.key.as_str().len() + body_bytes + write.blobs.len() * 32
    });
    let checked = batch.checks.iter().map(|(key, _)| key.as_str().len());
    written.chain(checked).sum()
}

#[cfg(test)]
mod tests {
    use super::super::error::Rewound;
    use super::super::observed_store::Mark;
    use super::*;

    /// Batches as `key=body key!` (put, delete), each with the expectation after `?`:
    /// `-` absent, `+` present, a number for that serial; the store is at 7, with `a` present since
    /// 3 and `b` deleted by 5.
    #[track_caller]
    fn check(batches: &[&str], expected: &str) {
        check_seen(ObservedStore::default(), batches, expected);
    }

    #[track_caller]
    fn check_seen(seen: ObservedStore, batches: &[&str], expected: &str) {
        let batches: Vec<Batch> = batches.iter().map(|text| batch(text)).collect();
        let batches: Vec<&Batch> = batches.iter().collect();
        let found = [("a", 3, true), ("b", 5, false)].map(|(key, serial, is_present)| {
            (key, KeyState { serial: Serial(serial), is_present })
        });
        let found = HashMap::from(found);
        let states = States { serial: Serial(7), is_anchored: true, found };
        let plan = plan(&batches, &seen, states);
        let outcome = |outcome: &Result<Serial, CommitError>| match outcome {
            Ok(serial) => serial.to_string(),
            Err(CommitError::Mismatch(mismatch)) => format!("{}!", mismatch.key),
            Err(error) => error.to_string(),
        };
        let row = |row: &RecordRow<'_>| {
            let body = row.body.map_or("-".into(), String::from_utf8_lossy);
            format!("{}@{}:{body}", row.key, row.serial)
        };
        let outcomes: Vec<String> = plan.outcomes.iter().map(outcome).collect();
        let rows: Vec<String> = plan.rows.iter().map(row).collect();
        let shown = format!("{} | {} | {}", outcomes.join(" "), rows.join(" "), plan.serial);
        assert_eq!(shown, expected);
    }

    fn batch(text: &str) -> Batch {
        text.split_whitespace().fold(Batch::new(), |batch, word| {
            let (write, expected) = word.split_once('?').unwrap_or((word, ""));
            let expected = match expected {
                "" => Expected::Anything,
                "-" => Expected::Absent,
                "+" => Expected::Present,
                serial => Expected::At(serial.parse().expect("a serial")),
            };
            let key = |text| Key::new(text).expect("a key");
            match (write.split_once('='), write.strip_suffix('!')) {
                (Some((name, body)), _) => {
                    batch.put(key(name), expected, body.to_owned(), Vec::new())
                }
                (None, Some(name)) => batch.delete(key(name), expected),
                (None, None) => batch.check(key(write), expected),
            }
        })
    }

    #[test]
    fn each_batch_has_its_own_serial() {
        check(&["a=1 b=2", "c=3"], "8 9 | a@8:1 b@8:2 c@9:3 | 9");
    }

    #[test]
    fn a_batch_at_fault_takes_no_serial_and_spoils_no_other() {
        check(&["a=1", "b=2 a=2?3", "c=3"], "8 a! 9 | a@8:1 c@9:3 | 9");
    }

    #[test]
    fn a_batch_sees_what_those_before_it_wrote() {
        check(&["n=1?-", "n=2?-", "n=3?8", "n!?+", "n=4?+"], "8 n! 9 10 n! | n@10:- | 10");
    }

    #[test]
    fn conditions_hold_before_the_batch() {
        check(&["a!?3 a?+"], "8 | a@8:- | 8");
        check(&["b=1?5", "b=1?-"], "8 b! | b@8:1 | 8");
        check(&["never=1?0", "other=1?1"], "8 other! | never@8:1 | 8");
    }

    #[test]
    fn nothing_written_takes_no_serial() {
        check(&["a?3", "", "a?-"], "7 7 a! |  | 7");
    }

    #[test]
    fn the_first_key_at_fault_is_named() {
        check(&["c=1 b=2?+ a=1?-"], "b! |  | 7");
        check(&["c=1 a?- b?+"], "a! |  | 7");
    }

    #[test]
    fn keys_are_asked_for_once() {
        let batches = [batch("b=1 a=1"), batch("a=2 c?-")];
        let seen = seen("z", 3);
        assert_eq!(keys(&batches.iter().collect::<Vec<_>>(), &seen), ["a", "b", "c", "z"]);
    }

    fn seen(key: &str, serial: u64) -> ObservedStore {
        let mark = Mark { key: Key::new(key).expect("a key"), serial: Serial(serial) };
        ObservedStore { serial: Serial(serial), mark: Some(mark), ..ObservedStore::default() }
    }

    #[test]
    fn a_store_that_lacks_what_was_seen_takes_nothing() {
        check_seen(seen("a", 3), &["c=1"], "8 | c@8:1 | 8");
        let rewound = |seen| Rewound::Behind { found: Serial(7), seen: Serial(seen) };
        check_seen(seen("a", 4), &["c=1", "a?-"], &format!("{0} {0} |  | 7", rewound(4)));
        check_seen(seen("lost", 6), &["c=1"], &format!("{} |  | 7", rewound(6)));
    }
}
