//! [`ChangeKind`]: what became of an item between two states of a surface.

/// The kind of change of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It did not exist before.
    Added,
    /// It existed before, and differs.
    Changed,
    /// It no longer exists.
    Removed,
}

impl ChangeKind {
    /// The kind of change of an item that existed before or not, and exists now or not; `None` if it exists in neither state.
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
