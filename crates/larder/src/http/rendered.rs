//! What strangers wrote, rendered for pages, and kept for a while: the same description is looked at again and again.
//!
//! text and how it is shown -> [`markup::render`] on a thread that may take long -> [`Rendered`], found again by a key that
//! says all that it was made of.

use std::sync::{Arc, LazyLock};

use markup::Rendered;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use record::Digest;
use tokio::sync::Semaphore;

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

/// Texts that are rendered at the same time. Uploads have permits of their own: none waits for readers.
const RENDERED_AT_ONCE: usize = 2;

static RENDERING: Semaphore = Semaphore::const_new(RENDERED_AT_ONCE);

static KEPT: LazyLock<Cache<Key, Arc<Rendered>, Weights>> =
    LazyLock::new(|| Cache::with_weighter(500, BYTES_MAX, Weights));

/// The text that this key is of, as `render` makes it.
pub(super) async fn rendered(key: Key, render: impl FnOnce() -> Rendered) -> Arc<Rendered> {
    if let Some(rendered) = KEPT.get(&key) {
        return rendered;
    }
    // Few are made at a time, as each may take milliseconds. It is never closed.
    let _permit = RENDERING.acquire().await;
    // Of all who came for the same text meanwhile, the first one has made it.
    if let Some(rendered) = KEPT.get(&key) {
        return rendered;
    }
    let rendered = Arc::new(tokio::task::block_in_place(render));
    KEPT.insert(key, rendered.clone());
    rendered
}

/// The same for a text that is another one for every reader.
pub(super) async fn rendered_once(render: impl FnOnce() -> Rendered) -> Arc<Rendered> {
    let _permit = RENDERING.acquire().await;
    Arc::new(tokio::task::block_in_place(render))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    /// All come before the first text is made: whoever is next finds it.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_many_ask_for_at_once_is_rendered_once() {
        let key = Key { digest: Digest::of(b"asked for by many"), place: None };
        let made = Cell::new(0);
        let permits = RENDERING.acquire_many(RENDERED_AT_ONCE as u32).await.expect("never closed");
        let render = || {
            made.set(made.get() + 1);
            Rendered::default()
        };
        let mut asked = Box::pin(join_all((0..8).map(|_| rendered(key.clone(), render))));
        let mut once = Box::pin(rendered_once(render));
        assert!(poll!(&mut asked).is_pending() && poll!(&mut once).is_pending());
        assert_eq!(made.get(), 0);
        drop(permits);
        asked.await;
        assert_eq!(made.get(), 1);
        once.await;
        assert_eq!(made.get(), 2);
    }
}
