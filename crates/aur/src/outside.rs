//! [`Outside`]: what an answer needs that no snapshot has.

/// What an answer asks of whoever asks for it.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// Whether the search has cost more than it may; it is asked now and then.
    pub is_over: &'a dyn Fn() -> bool,
    /// The JSON of a field of the package with this name, which is not in a snapshot: its history.
    pub added: &'a dyn Fn(&str, &'static str) -> Option<String>,
}

impl Outside<'_> {
    /// A search may cost what it likes, and nothing is known but the snapshot.
    pub const NOTHING: Outside<'static> = Outside { is_over: &|| false, added: &|_, _| None };
}
