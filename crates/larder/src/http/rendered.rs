//! What strangers wrote, rendered for pages, and kept for a while: the same description is looked at again and again.
//!
//! text and how it is shown -> [`markup::render`] on a thread that may take long -> [`Rendered`], found again by a key that
//! says all that it was made of.

use std::sync::{Arc, LazyLock};

use markup::Rendered;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use record::Digest;

use crate::app::App;

/// Memory for what was rendered, in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// What one takes beside its text, roughly, in bytes.
const ENTRY_BYTES: u64 = 300;

/// What a text was rendered from: two that are the same have the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Of the bytes that hold the text.
    pub(super) digest: Digest,
    /// What else it depends on: where its links lead from, and the commit that says which of them lead to something.
    pub(super) place: Option<(String, u64)>,
}

#[derive(Clone)]
struct Weights;

impl Weighter<Key, Arc<Rendered>> for Weights {
    fn weight(&self, key: &Key, rendered: &Arc<Rendered>) -> u64 {
        let place = key.place.as_ref().map_or(0, |(place, _)| place.len());
        let headings = rendered.contents.iter().map(|it| it.id.len() + it.text.len() + 64);
        (rendered.html.len() + place + headings.sum::<usize>()) as u64 + ENTRY_BYTES
    }
}

static KEPT: LazyLock<Cache<Key, Arc<Rendered>, Weights>> =
    LazyLock::new(|| Cache::with_weighter(500, BYTES_MAX, Weights));

/// The text that this key is of, as `render` makes it.
pub(super) async fn rendered(
    app: &App,
    key: Key,
    render: impl FnOnce() -> Rendered,
) -> Arc<Rendered> {
    if let Some(rendered) = KEPT.get(&key) {
        return rendered;
    }
    // Few are made at a time, as each may take milliseconds.
    let _turn = app.bodies.parsing.take().await;
    let rendered = Arc::new(tokio::task::block_in_place(render));
    KEPT.insert(key, rendered.clone());
    rendered
}
