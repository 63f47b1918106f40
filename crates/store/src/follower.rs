//! [`Follower`]: a state that is made of records, brought up to date commit by commit.
//!
//! the serial of a state -> the records that were committed after it -> whole commits -> [`State::apply`] -> the next state. A
//! first load and every later look are the same step, [`Follower::catch_up`]. Records from elsewhere go through an [`Intake`].
//! Only the state knows what a record means.

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use record::{Record, Serial, UnreadableRecord};

use crate::{ReadError, Records};

/// Records that are applied at a time. During a first load, at most three times as many are in memory beside the state.
const APPLIED_AT_ONCE_MIN: usize = 8_192;

/// A state that is made of records and of nothing else. Cloning it is cheap.
pub trait State: Clone {
    /// The last commit that is in it.
    fn serial(&self) -> Serial;

    /// The state after `records`, which are whole commits in the order of their serials, and what was wrong with some of them.
    /// [`State::serial`] of the new state is `serial`. What no other copy of the state has is changed in place: in a first load,
    /// everything.
    #[must_use]
    fn apply(self, records: &[Record], serial: Serial) -> (Self, Vec<UnreadableRecord>);
}

/// The outcome of a look at the records.
#[derive(Debug, Default)]
pub struct CatchUp {
    /// How many records there were.
    pub records: usize,
    /// The records that cannot be read.
    pub troubles: Vec<UnreadableRecord>,
}

/// A state, and the records that it follows.
pub struct Follower<S> {
    records: Records,
    state: S,
}

impl<S: State + Send + 'static> Follower<S> {
    /// Follows `records` from `state` on. Nothing is read yet.
    pub fn new(records: Records, state: S) -> Follower<S> {
        Follower { records, state }
    }

    /// The state as of the last look.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state as of the last look, for changes that come from no record, such as an index built over it.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// The state as of the last look, which is followed no more.
    pub fn into_state(self) -> S {
        self.state
    }

    /// The records that are followed.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Reads and applies everything that was committed since the last look.
    ///
    /// # Errors
    /// [`ReadError`]; then the state has not changed.
    pub async fn catch_up(&mut self) -> Result<CatchUp, ReadError> {
        let after = self.state.serial();
        let mut intake = Intake::new(self.state.clone());
        let serial = self.records.read_after(after, |record| intake.take(record)).await?;
        let (state, news) = intake.finish(serial);
        self.state = state;
        Ok(news)
    }
}

/// Takes records one by one, by ascending serial, and applies them in whole commits.
///
/// Many records, as in a first load, are applied by another thread, while the next ones are read.
pub struct Intake<S> {
    start: S,
    applier: Option<Applier<S>>,
    pending: Vec<Record>,
    records: usize,
}

impl<S: State + Send + 'static> Intake<S> {
    /// Goes on from `state`.
    pub fn new(state: S) -> Intake<S> {
        Intake { start: state, applier: None, pending: Vec::new(), records: 0 }
    }

    /// Takes the next record. Waits while a full slice is waiting to be applied.
    pub fn take(&mut self, record: Record) {
        let ends_commit = self.pending.last().is_some_and(|last| last.serial < record.serial);
        if ends_commit && self.pending.len() >= APPLIED_AT_ONCE_MIN {
            let records = mem::replace(&mut self.pending, Vec::with_capacity(APPLIED_AT_ONCE_MIN));
            let applier = self.applier.get_or_insert_with(|| Applier::new(self.start.clone()));
            applier.apply(Slice { records, serial: self.start.serial() });
        }
        self.records += 1;
        self.pending.push(record);
    }

    /// The state after all records, at `serial`.
    pub fn finish(self, serial: Serial) -> (S, CatchUp) {
        let (state, troubles) = match self.applier {
            None => self.start.apply(&self.pending, serial),
            Some(applier) => {
                applier.apply(Slice { records: self.pending, serial });
                applier.finish()
            }
        };
        (state, CatchUp { records: self.records, troubles })
    }
}

/// Whole commits that are applied together, and the serial of the state after them.
struct Slice {
    records: Vec<Record>,
    serial: Serial,
}

/// A thread that applies slices in order. It finishes those that it was sent even if the outcome is not wanted.
struct Applier<S> {
    slices: SyncSender<Slice>,
    thread: JoinHandle<(S, Vec<UnreadableRecord>)>,
}

impl<S: State + Send + 'static> Applier<S> {
    fn new(mut state: S) -> Applier<S> {
        let (slices, received) = sync_channel::<Slice>(1);
        let thread = thread::spawn(move || {
            let mut troubles = Vec::new();
            for slice in received {
                let (next, found) = state.apply(&slice.records, slice.serial);
                state = next;
                troubles.extend(found);
            }
            (state, troubles)
        });
        Applier { slices, thread }
    }

    fn apply(&self, slice: Slice) {
        // Fails only if the thread has panicked: `finish` passes that on.
        let _ = self.slices.send(slice);
    }

    fn finish(self) -> (S, Vec<UnreadableRecord>) {
        drop(self.slices);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use record::Key;

    use super::*;

    /// How many records came at a time, and the serial of the state that they came to.
    #[derive(Clone, Default)]
    struct Slices(Vec<(usize, u64)>, Serial);

    impl State for Slices {
        fn serial(&self) -> Serial {
            self.1
        }

        fn apply(self, records: &[Record], serial: Serial) -> (Slices, Vec<UnreadableRecord>) {
            let mut slices = self.0;
            slices.push((records.len(), serial.0));
            (Slices(slices, serial), Vec::new())
        }
    }

    /// `commits`: how many records each one has.
    #[track_caller]
    fn check(commits: &[usize], expected: &[(usize, u64)]) {
        let mut intake = Intake::new(Slices::default());
        for (serial, count) in (1..).map(Serial).zip(commits) {
            for _ in 0..*count {
                let key = Key::new("a").expect("a key");
                intake.take(Record { key, serial, body: None, blobs: Vec::new() });
            }
        }
        let (slices, news) = intake.finish(Serial(9));
        assert_eq!((slices.0.as_slice(), slices.1), (expected, Serial(9)), "{commits:?}");
        assert_eq!(news.records, commits.iter().sum::<usize>());
    }

    #[test]
    fn a_commit_is_applied_whole() {
        const MANY: usize = APPLIED_AT_ONCE_MIN;
        check(&[], &[(0, 9)]);
        check(&[1, 1, 1], &[(3, 9)]);
        check(&[MANY - 1, 1], &[(MANY, 9)]);
        check(&[MANY, 1], &[(MANY, 0), (1, 9)]);
        check(&[1, 3 * MANY, 1, 1], &[(3 * MANY + 1, 0), (2, 9)]);
    }
}
