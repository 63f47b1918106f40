//! [`Outside`]: what an answer needs that no snapshot has.

/// What the caller gives to a search beside the snapshot.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// Whether the search has taken longer than it may. A search asks this now and then, and stops.
    pub is_over: &'a dyn Fn() -> bool,
    /// The JSON of a field of the package with this name, which is not in a snapshot: its history.
    pub added: &'a dyn Fn(&str, &'static str) -> Option<String>,
}

impl Outside<'_> {
    /// No limit of time, and no field beside those of the snapshot.
    pub const NOTHING: Outside<'static> = Outside { is_over: &|| false, added: &|_, _| None };
}
