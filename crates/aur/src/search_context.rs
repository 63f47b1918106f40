//! [`SearchContext`]: what an answer needs and no snapshot has.

/// What the caller of a search provides besides the snapshot.
#[derive(Clone, Copy)]
pub struct SearchContext<'a> {
    /// Whether the search has exceeded its time limit. A search calls this from time to time, and stops.
    pub is_over: &'a dyn Fn() -> bool,
    /// The JSON of a field of the package with this name, which is not in a snapshot: its history.
    pub added: &'a dyn Fn(&str, &'static str) -> Option<String>,
}

impl SearchContext<'_> {
    /// No time limit, and no fields besides those of the snapshot.
    pub const NOTHING: SearchContext<'static> =
        SearchContext { is_over: &|| false, added: &|_, _| None };
}
