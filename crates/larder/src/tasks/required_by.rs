//! Reads what projects require, where that has changed, and publishes which projects are required by which
//! ([`crate::published::required_by`]).
//!
//! At the start it reads the metadata of all projects' newest versions, a few at a time; then those of each commit, at once.
//! What cannot be read is tried again later; until then the project counts as requiring nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use pypi::{ProjectName, RequiredNames, Snapshot, StageName};
use record::Digest;
use store::BlobError;
use tokio::time::Instant;

use crate::app::App;
use crate::published::required_by::RequiredBy;

/// Projects whose metadata is read together, before the index is published.
const CHUNK: usize = 256;

/// Metadata that is read at the same time.
const READ_AT_ONCE: usize = 4;

/// Longer metadata is not read: nearly all of it is a description.
const METADATA_BYTES_MAX: u64 = 4 << 20;

/// Memory for the index. Beyond it, what projects require is left out. For a moment there are two: [`RequirementIndexer::compact`].
const BYTES_MAX: usize = 128 << 20;

/// The pause before unreadable metadata is read again.
const RETRY: Duration = Duration::from_secs(30);

/// A project of a stage.
type Place = (StageName, ProjectName);

#[derive(Default)]
struct RequirementIndexer {
    index: pypi::RequiredBy,
    /// The projects that are in it.
    seen: Snapshot,
    /// Projects whose metadata could not be read.
    unread: BTreeMap<Place, Digest>,
    /// Whether all were looked at once.
    is_complete: bool,
    /// Whether some were left out, as the index was full.
    is_full: bool,
}

/// Takes in the requirements of projects as they are uploaded.
pub async fn run(app: Arc<App>) {
    let app = &app;
    let mut published = app.live_store.published();
    let mut indexing = RequirementIndexer::default();
    // Commits do not put it off.
    let mut retry_at: Option<Instant> = None;
    loop {
        published.borrow_and_update();
        if let Some(stored) = app.live_store.snapshot_full() {
            let changed = stored.index.described_anew_since(&indexing.seen);
            indexing.seen = stored.index.clone();
            // A state that is held is not freed.
            drop(stored);
            indexing.take(app, changed).await;
            if !std::mem::replace(&mut indexing.is_complete, true) {
                // The server may now run for long without a change.
                indexing.compact().await;
            }
            indexing.publish(app);
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
            () = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                retry_at = None;
                let unread = std::mem::take(&mut indexing.unread);
                let again = unread.into_iter().map(|((stage, project), it)| (stage, project, Some(it)));
                indexing.take(app, again.collect()).await;
                indexing.publish(app);
            }
        }
    }
}

impl RequirementIndexer {
    fn publish(&self, app: &App) {
        let (index, is_complete, is_full) = (self.index.clone(), self.is_complete, self.is_full);
        app.python.required_by.publish(Arc::new(RequiredBy { index, is_complete, is_full }));
    }

    async fn take(&mut self, app: &App, changed: Vec<(StageName, ProjectName, Option<Digest>)>) {
        let mut failed = None;
        let mut rest = changed.into_iter().peekable();
        while rest.peek().is_some() {
            let chunk: Vec<_> = rest.by_ref().take(CHUNK).collect();
            let reading = chunk.into_iter().map(|(stage, project, digest)| async move {
                let read = match digest {
                    Some(digest) => required(app, digest).await,
                    None => Ok(RequiredNames::default()),
                };
                ((stage, project), digest, read)
            });
            let mut reading = futures_util::stream::iter(reading).buffer_unordered(READ_AT_ONCE);
            while let Some((place, digest, read)) = reading.next().await {
                self.unread.remove(&place);
                let required = match (read, digest) {
                    (Ok(required), _) => required,
                    (Err(error), digest) => {
                        failed.get_or_insert((format!("{}/{}", place.0, place.1), error));
                        self.unread.extend(digest.map(|digest| (place.clone(), digest)));
                        RequiredNames::default()
                    }
                };
                let required = self.with_room(required).await;
                self.index.set(&place.0, &place.1, &required);
            }
            drop(reading);
            if self.index.is_loose() {
                self.compact().await;
            }
            // What was read counts while the rest is read.
            self.publish(app);
        }
        // One log line, however many failed.
        if let Some((project, error)) = failed {
            let count = self.unread.len();
            tracing::warn!(count, %project, %error, "the metadata of some projects cannot be read, so pages do not list what they require; `project` is one of them");
        }
    }

    /// Compacts the index. No request waits for it.
    async fn compact(&mut self) {
        let index = self.index.clone();
        if let Ok(index) = tokio::task::spawn_blocking(move || index.compacted()).await {
            self.index = index;
        }
    }

    /// The names, if there is room for them.
    async fn with_room(&mut self, required: RequiredNames) -> RequiredNames {
        if self.index.memory_bytes() >= BYTES_MAX && !self.index.is_compact() {
            self.compact().await;
        }
        if self.index.memory_bytes() < BYTES_MAX {
            return required;
        }
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                bytes = BYTES_MAX,
                "there are too many projects: pages no longer list everything that requires a project"
            );
        }
        RequiredNames::default()
    }
}

/// The requirements in this metadata; none if it is missing, too long, or not metadata.
async fn required(app: &App, digest: Digest) -> Result<RequiredNames, BlobError> {
    let bytes: Bytes = match app.store.blobs.bytes(digest, METADATA_BYTES_MAX).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) | Err(BlobError::TooLarge { .. }) => return Ok(RequiredNames::default()),
        Err(error) => return Err(error),
    };
    let reading = tokio::task::spawn_blocking(move || RequiredNames::of_metadata(&bytes));
    Ok(reading.await.ok().and_then(Result::ok).unwrap_or_default())
}
