//! Reads the texts of new and changed articles, and publishes the index of all texts ([`crate::published::article_texts`]).
//!
//! At the start it reads all texts, a few at a time, on threads of low priority; then those of each commit, at once. A text
//! that cannot be read is tried again later; until then its article is found by name and title.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use article::text_index::{Document, MergedSegment, TEXT_BYTES_MAX};
use article::{ArticleName, Content, Snapshot, TextIndex};
use bytes::Bytes;
use futures_util::StreamExt as _;
use resources::cpu_pool;
use state::stored::Stored;
use store::BlobError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::app::App;
use crate::published::article_texts::{Texts, document, prefix};

/// Articles whose texts are read and indexed together: at most 8 MiB of texts.
const CHUNK: usize = 128;

/// Texts that are read at the same time.
const READ_AT_ONCE: usize = 4;

/// The pause before an unreadable text is read again.
const RETRY: Duration = Duration::from_secs(30);

#[derive(Default)]
struct TextIndexer {
    /// Shared with what is published: a commit that changes no article copies nothing.
    index: Arc<TextIndex>,
    /// The articles that are in it.
    seen: Snapshot,
    serial: record::Serial,
    /// Articles whose texts could not be read.
    unread: BTreeSet<ArticleName>,
    /// Articles whose texts found no room in memory.
    without_room: BTreeSet<ArticleName>,
}

/// An article that has changed, and the beginning of its text.
#[derive(Clone)]
struct Source {
    name: ArticleName,
    /// None if it is gone.
    content: Option<Content>,
    /// The first bytes of its text, if it is text, can be read, and there is room.
    text: Option<Bytes>,
}

/// Takes in the texts of articles as they are written.
pub async fn run(app: Arc<App>) {
    let app = &app;
    let mut published = app.live_store.published();
    let mut indexing = TextIndexer::default();
    let mut merging: Option<MergeTask> = None;
    // Commits do not put it off.
    let mut retry_at: Option<Instant> = None;
    loop {
        published.borrow_and_update();
        if let Some(stored) = app.live_store.snapshot_full() {
            indexing.catch_up(app, &stored).await;
        }
        if merging.is_none()
            && let Some(merge) = indexing.index.wants_merge()
        {
            merging = Some(tokio::spawn(cpu_pool::apart(move || merge.run())));
        }
        retry_at = match indexing.unread.is_empty() {
            true => None,
            false => Some(retry_at.unwrap_or_else(|| Instant::now() + RETRY)),
        };
        tokio::select! {
            changed = published.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            merged = finished(&mut merging) => {
                merging = None;
                match merged {
                    Some(merged) => {
                        indexing.index = Arc::new(indexing.index.with(merged));
                        indexing.publish(app);
                    }
                    None => tracing::error!("the texts of articles cannot be merged"),
                }
            }
            () = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                retry_at = None;
                // Until it is read, each counts as missing.
                let unread: Vec<_> = indexing.unread.iter().cloned().collect();
                let articles = indexing.seen.clone();
                indexing.take(app, &articles, &unread).await;
                indexing.publish(app);
            }
        }
    }
}

/// A merge that runs on a thread of its own.
type MergeTask = JoinHandle<std::thread::Result<MergedSegment>>;

/// Waits for the running merge; forever if there is none. `None` if it failed.
async fn finished(merging: &mut Option<MergeTask>) -> Option<MergedSegment> {
    match merging {
        Some(merging) => merging.await.ok().and_then(Result::ok),
        None => std::future::pending().await,
    }
}

impl TextIndexer {
    async fn catch_up(&mut self, app: &Arc<App>, stored: &Arc<Stored>) {
        let changed = stored.articles.changed_since(&self.seen);
        self.take(app, &stored.articles, &changed).await;
        self.seen = stored.articles.clone();
        self.serial = stored.serial;
        self.publish(app);
    }

    fn publish(&self, app: &App) {
        app.metrics.article_text_bytes.set(self.index.memory_bytes() as i64);
        app.articles.texts.publish(Texts {
            index: self.index.clone(),
            serial: self.serial,
            left_out: self.unread.len() + self.without_room.len(),
        });
    }

    /// Indexes the current texts of these articles.
    async fn take(&mut self, app: &Arc<App>, articles: &Snapshot, names: &[ArticleName]) {
        let is_bulk = names.len() > CHUNK;
        let mut failed = None;
        for names in names.chunks(CHUNK) {
            let has_room =
                (self.index.memory_bytes() as u64) < app.config.article.search_memory_bytes_max;
            let reading = names.iter().cloned().map(|name| read(app, articles, name, has_room));
            let reading = futures_util::stream::iter(reading).buffer_unordered(READ_AT_ONCE);
            let mut sources = Vec::with_capacity(names.len());
            for (source, failure) in reading.collect::<Vec<_>>().await {
                let is_unread = failure.is_some();
                if let Some(failure) = failure {
                    failed.get_or_insert((source.name.clone(), failure));
                }
                let is_text =
                    source.content.as_ref().is_some_and(|it| it.content_type.is_textual());
                self.unread.remove(&source.name);
                self.without_room.remove(&source.name);
                if is_unread {
                    self.unread.insert(source.name.clone());
                } else if is_text && !has_room {
                    self.without_room.insert(source.name.clone());
                }
                sources.push(source);
            }
            if let Some(index) = indexed(app, self.index.clone(), sources, is_bulk).await {
                self.index = Arc::new(index);
            }
            // A merge may take as long as there are texts, so it does not run on the threads that compute for programs.
            while is_bulk && let Some(merge) = self.index.wants_merge() {
                match cpu_pool::apart(move || merge.run()).await {
                    Ok(merged) => self.index = Arc::new(self.index.with(merged)),
                    Err(_) => {
                        tracing::error!("the texts of articles cannot be merged");
                        break;
                    }
                }
            }
            if is_bulk {
                // Searches find these texts while the others are read.
                self.publish(app);
            }
        }
        // One log line, however many failed.
        if let Some((name, error)) = failed {
            let count = self.unread.len();
            tracing::warn!(count, %name, error, "the texts of some articles cannot be read, so searches do not find them; `name` is one of them");
        }
    }
}

/// An article with the beginning of its text, or why that cannot be read.
async fn read(
    app: &Arc<App>,
    articles: &Snapshot,
    name: ArticleName,
    has_room: bool,
) -> (Source, Option<String>) {
    let content = articles.latest(&name).and_then(|facts| facts.content()).cloned();
    // Nobody finds a draft.
    let content = content.filter(|content| !content.draft);
    let wanted = content.as_ref().filter(|it| has_room && it.content_type.is_textual());
    let text = match wanted {
        Some(content) => Some(beginning(app, content).await),
        None => None,
    };
    let (text, failure) = match text {
        Some(Ok(Some(text))) => (Some(text), None),
        Some(Ok(None)) => (None, Some("it is missing from the store".to_owned())),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    (Source { name, content, text }, failure)
}

/// The first bytes of a content; `None` if it is missing.
async fn beginning(app: &App, content: &Content) -> Result<Option<Bytes>, BlobError> {
    let (contents, blobs) = (&app.articles.contents, &app.store.blobs);
    let mut read = contents.beginnings(blobs, &[content.digest], TEXT_BYTES_MAX).await;
    read.pop().unwrap_or(Ok(None))
}

/// The index with these articles: many of them on a thread of low priority, where programs that read do not notice it.
/// None if it cannot be made.
async fn indexed(
    app: &App,
    index: Arc<TextIndex>,
    sources: Vec<Source>,
    is_bulk: bool,
) -> Option<TextIndex> {
    let prefix = prefix(app.config.public_url.as_deref());
    let work = move || {
        let changes = sources.into_iter().map(|source| {
            let Source { name, content, text } = source;
            let document = content.map(|content| match &text {
                Some(text) => {
                    let title = content.title.as_deref();
                    document((&name, title), &prefix, &content.content_type, text)
                }
                None => Document::titled(content.title.as_deref()),
            });
            (name, document)
        });
        index.replaced(changes.collect())
    };
    if is_bulk && let Ok(index) = app.limits.cpu_pool.run(work.clone()).await {
        return Some(index);
    }
    // The other threads have too much to do.
    match tokio::task::spawn_blocking(work).await {
        Ok(index) => Some(index),
        Err(error) => {
            tracing::error!(%error, "articles cannot be indexed");
            None
        }
    }
}
