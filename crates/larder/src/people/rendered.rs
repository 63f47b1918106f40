//! Rendered texts of strangers for pages, cached, because the same description is read again and again.
//!
//! text and how it is shown -> [`markup::render`] on a thread that may take long -> [`RenderedText`], found again by a key of
//! everything that it was made of.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use markup::RenderedText;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use record::Digest;
use tokio::sync::Semaphore;

/// Memory for rendered texts, in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// Bytes that an entry takes besides its text, roughly.
const ENTRY_BYTES: u64 = 300;

/// What a text was rendered from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The digest of the bytes with the text.
    pub(crate) digest: Digest,
    /// What else the result depends on: where its links start from, and the commit that says which of them lead to something.
    pub(crate) place: Option<(String, u64)>,
}

#[derive(Clone)]
struct Weights;

impl Weighter<Key, Arc<RenderedText>> for Weights {
    fn weight(&self, key: &Key, rendered: &Arc<RenderedText>) -> u64 {
        let place = key.place.as_ref().map_or(0, |(place, _)| place.len());
        let headings = rendered.contents.iter().map(|it| it.id.len() + it.text.len() + 64);
        (rendered.html.len() + place + headings.sum::<usize>()) as u64 + ENTRY_BYTES
    }
}

/// Texts that are rendered at the same time. Uploads have their own permits, so none waits for readers.
const RENDERED_AT_ONCE: usize = 2;

static RENDERING: Semaphore = Semaphore::const_new(RENDERED_AT_ONCE);

static KEPT: LazyLock<Cache<Key, Arc<RenderedText>, Weights>> =
    LazyLock::new(|| Cache::with_weighter(500, BYTES_MAX, Weights));

/// The text that this key is of, as `render` makes it.
pub(crate) async fn rendered(key: Key, render: impl FnOnce() -> RenderedText) -> Arc<RenderedText> {
    // The first request for a text renders it; if its client disconnects, the next request does.
    let making = async { Ok::<_, Infallible>(rendered_once(render).await) };
    match KEPT.get_or_insert_async(&key, making).await {
        Ok(rendered) => rendered,
        Err(never) => match never {},
    }
}

/// Calls `render` for a text that differs from reader to reader and is not cached.
pub(crate) async fn rendered_once(render: impl FnOnce() -> RenderedText) -> Arc<RenderedText> {
    // Few are made at a time, as each may take milliseconds. It is never closed.
    let _permit = RENDERING.acquire().await;
    Arc::new(tokio::task::block_in_place(render))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, mpsc};

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    /// All ask before the first text is made, and the next one finds it.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_many_ask_for_at_once_is_rendered_once() {
        let key = Key { digest: Digest::of(b"asked for by many"), place: None };
        let made = Cell::new(0);
        let permits = RENDERING.acquire_many(RENDERED_AT_ONCE as u32).await.expect("never closed");
        let render = || {
            made.set(made.get() + 1);
            RenderedText::default()
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

    /// Tasks that come while a text is being rendered wait for it, even if more could be rendered at the same time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn what_many_tasks_ask_for_at_once_is_rendered_once() {
        let key = Key { digest: Digest::of(b"asked for by many tasks"), place: None };
        let (made, asking) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (key, made, asking, wait) =
                    (key.clone(), made.clone(), asking.clone(), wait.clone());
                tokio::spawn(async move {
                    asking.fetch_add(1, SeqCst);
                    rendered(key, move || {
                        made.fetch_add(1, SeqCst);
                        // Waits until the test has dropped the other end.
                        let _ = wait.lock().expect("not poisoned").recv();
                        RenderedText::default()
                    })
                    .await
                })
            })
            .collect();
        while asking.load(SeqCst) < 8 || made.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // All have asked. Others could begin now, if they did not wait for the first.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        drop(go);
        join_all(tasks).await;
        assert_eq!(made.load(SeqCst), 1);
    }
}
