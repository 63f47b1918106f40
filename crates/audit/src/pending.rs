//! [`PendingEntries`]: entries about a change that is being committed.

use super::{Audit, Entry};

/// Entries about a change, held while it is committed. If this is dropped before the outcome is known, they are noted all the
/// same, and say so: a client that leaves hides no change.
pub struct PendingEntries<'audit> {
    audit: &'audit Audit,
    entries: Vec<Entry>,
}

impl<'audit> PendingEntries<'audit> {
    /// Entries about a change whose commit begins.
    pub fn new(audit: &'audit Audit, entries: Vec<Entry>) -> PendingEntries<'audit> {
        PendingEntries { audit, entries }
    }

    /// Notes the entries: they are committed.
    pub fn committed(mut self) {
        self.entries.drain(..).for_each(|entry| self.audit.note(entry));
    }

    /// Forgets them: nothing was written.
    pub fn refused(mut self) {
        self.entries.clear();
    }
}

impl Drop for PendingEntries<'_> {
    fn drop(&mut self) {
        for mut entry in self.entries.drain(..) {
            entry.reason.insert_str(0, "it is not known whether this was done: ");
            self.audit.note(entry);
        }
    }
}
