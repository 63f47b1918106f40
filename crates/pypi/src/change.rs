//! What a write may do, decided against a snapshot: a [`Batch`] for the store, or a refusal.
//!
//! Each function here answers "may this happen to this stage as it is?", not "may this person?": that is
//! [`crate::Stage::may_upload`] and its kin, asked before.
//!
//! Writers do not wait for each other. A batch names what it was decided on: the stage's configuration,
//! and every record that it replaces, must be as they were, or the store refuses it and the caller
//! decides again on a newer snapshot. So two uploads of one name, or an upload into a stage while it is
//! deleted, cannot both win. Whatever changes which files a version has writes the version's record as well,
//! so that a removal of the version notices a file that came meanwhile.

mod draft;
pub mod push;
pub mod remove;
pub mod retention;
pub mod stage;
pub mod upload;
pub mod yank;

use record::Batch;

/// A decision that may find everything as wanted already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To be committed.
    Commit(Batch),
    /// Nothing needs to change.
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
