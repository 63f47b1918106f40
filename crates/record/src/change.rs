//! [`ChangeKind`]: what became of an item between two states of a surface.

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is there, and was not before.
    Added,
    /// It was there before, and is different.
    Changed,
    /// It is not there any more.
    Removed,
}

impl ChangeKind {
    /// The kind of an item that was there before, or not, and is there now, or not; None if it is in neither state.
    pub fn of(was_there: bool, is_there: bool) -> Option<ChangeKind> {
        match (was_there, is_there) {
            (false, true) => Some(ChangeKind::Added),
            (true, true) => Some(ChangeKind::Changed),
            (true, false) => Some(ChangeKind::Removed),
            (false, false) => None,
        }
    }

    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Added => "added",
            ChangeKind::Changed => "changed",
            ChangeKind::Removed => "removed",
        }
    }
}
