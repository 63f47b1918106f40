//! The changes that a write may make, decided on a snapshot: a [`Batch`] for the store, or a refusal.
//!
//! Each function answers "may this happen to this stage in its present state?" and not "may this person do it?": for
//! that the caller asks [`crate::Stage::may_upload`] and its kin first.
//!
//! Writers do not wait for each other. A batch names the state that it was decided on: the stage's configuration, and
//! every record that it replaces, must be unchanged, or the store refuses the batch and the caller decides again on a
//! newer snapshot. So of two uploads of one name only one wins, and so does only one of an upload into a stage and
//! the deletion of that stage. Every change to the set of a version's files also writes the version's record, so that
//! a removal of the version notices a file that was added meanwhile.

mod draft;
pub mod push;
pub mod remove;
pub mod retention;
pub mod stage;
pub mod upload;
pub mod yank;

use record::Batch;

/// A decision that may find the wanted state already in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The batch to commit.
    Commit(Batch),
    /// The wanted state is there already.
    AlreadyThere,
}

impl Decision {
    /// The batch, if there is something to commit.
    pub fn batch(self) -> Option<Batch> {
        match self {
            Decision::Commit(batch) => Some(batch),
            Decision::AlreadyThere => None,
        }
    }
}

#[cfg(test)]
mod tests;
