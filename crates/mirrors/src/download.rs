//! Files of mirrors: found by their place, downloaded once for all clients that wait, streamed while they arrive.
//!
//! place -> the disk, or the project's page -> [`FileAnswer`] -> [`Body`], read from the file on disk, which may still grow. A
//! file becomes an entry of the cache only if it has the length and the digest that upstream names. Until it is checked, its
//! last byte is held back, so that no client gets a wrong file whole.

mod body;
mod order;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use bytes::BytesMut;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use pypi::upstream::{Place, UpstreamFile, link_of, projects_of};
use tokio::sync::watch;

use super::disk::{EntryFile, Head, Key};
use super::known::Subject;
use super::shared::{CONTENT_BYTES_MAX, Kind};
use super::sink::Sink;
use super::upstream::{Pace, UpstreamError, chunk};
use super::{Mirror, Mirrors, blocking, lock, milliseconds, turn};

use self::body::Arriving;
pub use self::body::{Body, FileAnswer, MirroredFile};
pub(super) use self::order::Order;

/// Downloads of one mirror, including those that wait for their turn; further ones are refused.
const WAITING_MAX: usize = 1024;

/// All downloads of a mirror that are under way, by [`Order::expected`].
#[derive(Default)]
pub(super) struct Downloads {
    under_way: Mutex<HashMap<Key, Arc<Download>>>,
}

/// One download.
struct Download {
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    /// The file with the bytes, as soon as there are any.
    file: Option<Arc<EntryFile>>,
    written: u64,
    total: Option<u64>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Upstream has not answered yet.
    Asking,
    /// Bytes arrive.
    Arriving,
    /// All bytes are there, and right.
    Whole(Arc<Head>),
    Failed(UpstreamError),
}

impl Mirrors {
    /// The file at this place. With `is_head`, a file whose size is known is not downloaded.
    ///
    /// # Errors
    /// [`UpstreamError`] if it is not here and upstream does not give it.
    pub async fn file(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        place: Place<'_>,
        is_head: bool,
    ) -> Result<FileAnswer, UpstreamError> {
        // A file that is here needs no upstream, unless a newer page names another digest.
        if let Some(path) = link_of(&place)
            && let Some(file) = self.held(mirror, mirror.key(&format!("file/{path}"))).await
            && self.is_current(mirror, &place, &file).await
        {
            return Ok(FileAnswer::File(file));
        }
        let Some(order) = self.order(mirror, &place).await? else { return Ok(FileAnswer::Absent) };
        self.ordered(mirror, order, is_head).await
    }

    /// This file of an upstream's page, or its metadata; not another file that may be at its URL by now.
    ///
    /// # Errors
    /// [`UpstreamError`] if it is not here and upstream does not give it.
    pub async fn listed_file(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        file: &UpstreamFile,
        is_metadata: bool,
        is_head: bool,
    ) -> Result<FileAnswer, UpstreamError> {
        let order = Order::of(mirror, file, is_metadata);
        let Some(order) = order else { return Ok(FileAnswer::Absent) };
        self.ordered(mirror, order, is_head).await
    }

    async fn ordered(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        order: Order,
        is_head: bool,
    ) -> Result<FileAnswer, UpstreamError> {
        if let Some(file) = self.held(mirror, order.key).await
            && order.sha256().is_none_or(|sha256| file.sha256.as_deref() == Some(sha256))
        {
            return Ok(FileAnswer::File(file));
        }
        if mirror.redirects_files {
            return Ok(FileAnswer::Elsewhere(order.url.into()));
        }
        let may_be_asked = self.may_be_asked(mirror);
        // Another process may have it.
        if !self.may_be_shared(mirror, &order.key) {
            may_be_asked.clone()?;
        }
        let modified_at =
            order.upload_time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let modified_at = modified_at.map_or_else(SystemTime::now, SystemTime::from);
        let sha256 = order.sha256().map(str::to_owned);
        let is_immutable = sha256.is_some();
        if let (true, Err(trouble)) = (is_head, &may_be_asked) {
            // Nothing is downloaded for that: the head in the shared cache says everything.
            let head = self.shared_head(mirror, &order.key, |head| order.is_of(head)).await;
            let head = head.ok_or_else(|| trouble.clone())?;
            return Ok(FileAnswer::File(MirroredFile {
                sha256: Some(head.sha256),
                size_bytes: Some(head.size_bytes),
                is_immutable,
                modified_at,
                body: Body::Unasked,
            }));
        }
        if let (true, Some(size_bytes), true) = (is_head, order.size_bytes, is_immutable) {
            let (size_bytes, body) = (Some(size_bytes), Body::Unasked);
            return Ok(FileAnswer::File(MirroredFile {
                sha256,
                size_bytes,
                is_immutable,
                modified_at,
                body,
            }));
        }
        let mut progress = self.download(mirror, order)?;
        let begun = progress.wait_for(|it| !matches!(it.state, State::Asking)).await;
        let begun = begun.map_err(|_| lost())?.clone();
        let size_bytes = match begun.state {
            State::Failed(trouble) if trouble.is_absent => return Ok(FileAnswer::Absent),
            State::Failed(trouble) => return Err(trouble),
            State::Whole(_) => Some(begun.written),
            State::Asking | State::Arriving => begun.total,
        };
        let body = Body::Arriving(Arriving { progress });
        Ok(FileAnswer::File(MirroredFile { sha256, size_bytes, is_immutable, modified_at, body }))
    }

    /// The file with this key on disk. Before one is served for the first time in this process, it is compared with its
    /// digest: a disk may have changed it.
    pub(super) async fn held(
        self: &Arc<Mirrors>,
        mirror: &Mirror,
        key: Key,
    ) -> Option<MirroredFile> {
        let disk = self.disk.clone();
        let opening = tokio::task::spawn_blocking(move || disk.open_entry(&key));
        let (head, file) = opening.await.ok().flatten()?;
        let file = Arc::new(file);
        if file.is_use_noted {
            self.note_shared_use(mirror, key);
        }
        if !file.is_checked() {
            let turn = file.turn_to_check().await;
            let (disk, head, opened) = (self.disk.clone(), head.clone(), file.clone());
            // Both turns end with the work, and not when the client leaves.
            let checking = move || {
                let _turn = turn;
                opened.is_checked() || disk.check(&key, &head, &opened)
            };
            if !self.checks.run(checking).await {
                return None;
            }
        }
        let modified_at =
            std::time::Duration::from_millis(u64::try_from(head.confirmed_at).unwrap_or(0));
        Some(MirroredFile {
            sha256: Some(head.sha256),
            size_bytes: Some(head.size_bytes),
            is_immutable: head.is_verified,
            modified_at: SystemTime::UNIX_EPOCH + modified_at,
            body: Body::Held(file),
        })
    }

    /// Whether no page that is known here names another digest for the file at this place.
    async fn is_current(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        place: &Place<'_>,
        held: &MirroredFile,
    ) -> bool {
        for project in projects_of(place.filename()) {
            let Some(known) = self.remembered(mirror, &Subject::Project(project)).await else {
                continue;
            };
            let found = known.page().and_then(|page| page.file_at(place));
            let order = found.and_then(|(file, is_metadata)| Order::of(mirror, file, is_metadata));
            if let Some(order) = order {
                return order.sha256().is_none_or(|sha256| held.sha256.as_deref() == Some(sha256));
            }
        }
        true
    }

    /// The download for this place: a file on the page of a project that the place may belong to.
    async fn order(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        place: &Place<'_>,
    ) -> Result<Option<Order>, UpstreamError> {
        let mut trouble = None;
        for project in projects_of(place.filename()) {
            match self.project(mirror, &project, false).await {
                Ok(found) => {
                    let file = found.known.page().and_then(|page| page.file_at(place));
                    let order =
                        file.and_then(|(file, is_metadata)| Order::of(mirror, file, is_metadata));
                    if order.is_some() {
                        return Ok(order);
                    }
                }
                Err(error) => trouble = Some(error),
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    /// Joins the download of this file, or begins it.
    fn download(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        order: Order,
    ) -> Result<watch::Receiver<Progress>, UpstreamError> {
        let expected = order.expected();
        let mut under_way = lock(&mirror.downloads.under_way);
        if let Some(download) = under_way.get(&expected) {
            return Ok(download.progress.subscribe());
        }
        if under_way.len() >= WAITING_MAX {
            return Err(UpstreamError::busy("too many files wait for their upstreams"));
        }
        let progress = Progress { file: None, written: 0, total: None, state: State::Asking };
        let download = Arc::new(Download { progress: watch::Sender::new(progress) });
        let receiver = download.progress.subscribe();
        under_way.insert(expected, download.clone());
        drop(under_way);
        // It goes on when its clients leave, so that the next one finds the file.
        let (mirrors, mirror) = (self.clone(), mirror.clone());
        tokio::spawn(async move {
            let ended = Ended { mirror: mirror.clone(), key: expected, download };
            let outcome = mirrors.run(&mirror, &order, &ended.download.progress).await;
            // Removed before its readers learn how it ended, so that the next request after a failure begins a new download.
            ended.take_out();
            if let State::Whole(head) = &ended.download.progress.borrow().state {
                mirrors.note_size(&mirror, &order, head.size_bytes);
            }
            if let Err(trouble) = outcome {
                if !trouble.is_absent && !trouble.is_offline {
                    tracing::warn!(file = order.name, %trouble, "a file is not mirrored");
                }
                ended.download.progress.send_modify(|it| it.state = State::Failed(trouble));
            }
        });
        Ok(receiver)
    }

    /// Takes the file from the cache that processes share; true if the cache had the file that upstream's page names.
    async fn take_shared(
        &self,
        mirror: &Mirror,
        order: &Order,
        progress: &watch::Sender<Progress>,
    ) -> bool {
        let bytes_max = self.disk.entry_bytes_max().min(CONTENT_BYTES_MAX);
        if order.size_bytes.is_some_and(|size_bytes| size_bytes > bytes_max) {
            return false;
        }
        let (extra, expected) = order.digest_beside_sha256();
        let is_wanted = |head: &Head| order.is_of(head) && head.size_bytes <= bytes_max;
        let brought = self.bring(mirror, &order.key, Kind::File, extra, is_wanted).await;
        let Some(mut brought) = brought else { return false };
        let is_right = match (brought.extra.take(), expected) {
            (Some(digest), Some(expected)) => hex::encode(digest.finalize()) == expected,
            _ => true,
        };
        let Some(reader) = brought.writing.reader().ok().filter(|_| is_right) else {
            self.reject_brought(&order.key);
            return false;
        };
        brought.head.is_verified = order.sha256().is_some();
        let head = brought.head.clone();
        if let Err(error) = self.keep_brought(mirror, order.key, brought).await {
            self.reject_brought(&order.key);
            tracing::warn!(file = order.name, %error, "a file of the shared cache cannot be kept");
            return false;
        }
        progress.send_modify(|it| {
            (it.file, it.total) = (Some(Arc::new(reader)), Some(head.size_bytes));
            (it.written, it.state) = (head.size_bytes, State::Whole(head.into()));
        });
        true
    }

    async fn run(
        self: &Arc<Mirrors>,
        mirror: &Mirror,
        order: &Order,
        progress: &watch::Sender<Progress>,
    ) -> Result<(), UpstreamError> {
        // Taking a shared file waits for no upstream, so it needs no turn.
        if self.take_shared(mirror, order, progress).await {
            return Ok(());
        }
        let _turn = turn(&mirror.downloading, &self.downloading).await?;
        self.may_be_asked(mirror)?;
        let bytes_max = self.disk.entry_bytes_max();
        let too_large = || {
            UpstreamError::new(format!(
                "the file has more than {bytes_max} bytes, half of python.mirror_disk_bytes_max"
            ))
        };
        let is_too_large = |size: Option<u64>| size.is_some_and(|size| size > bytes_max);
        if is_too_large(order.size_bytes) {
            return Err(too_large());
        }
        // Upstream is not asked for what there is no room for.
        let (disk, size_bytes) = (self.disk.clone(), order.size_bytes.unwrap_or(0));
        let begun = blocking(move || {
            let writing = disk.begin(size_bytes)?;
            let reader = writing.reader()?;
            Ok((writing, reader))
        });
        let (mut writing, reader) = begun.await?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (mut response, _) =
            self.upstream.get(&mirror.origin, order.url.clone(), headers).await?;
        let encoding = response.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        if response.status() != StatusCode::OK
            || !matches!(encoding, None | Some(b"" | b"identity"))
        {
            return Err(UpstreamError::new(
                "upstream sends the file in a form that was not asked for",
            ));
        }
        let declared = response.content_length();
        if let (Some(declared), Some(expected)) = (declared, order.size_bytes)
            && declared != expected
        {
            return Err(UpstreamError::new(format!(
                "upstream sends {declared} bytes; its page says {expected}"
            )));
        }
        let total = order.size_bytes.or(declared);
        if is_too_large(total) {
            return Err(too_large());
        }
        if let Some(total) = total {
            writing = blocking(move || writing.reserve(total).map(|()| writing)).await?;
        }
        let (extra, expected) = order.digest_beside_sha256();
        let mut sink = Sink { writing, sha256: record::Hasher::new(), extra };
        progress.send_modify(|it| {
            (it.file, it.total, it.state) = (Some(Arc::new(reader)), total, State::Arriving);
        });
        let (mut written, mut piece) = (0, BytesMut::new());
        let mut pace = Pace::new(Instant::now());
        loop {
            let next = chunk(&mut response).await?;
            let is_end = next.is_none();
            if let Some(next) = next {
                pace.arrived(next.len() as u64, Instant::now())?;
                piece.extend_from_slice(&next);
            }
            let arrived = written + piece.len() as u64;
            if arrived > total.unwrap_or(bytes_max) {
                return Err(match total {
                    Some(total) => UpstreamError::new(format!(
                        "upstream sends more than the {total} bytes of the file"
                    )),
                    None => too_large(),
                });
            }
            let bytes = if is_end { piece.len() } else { sink.bytes_to_write(piece.len()) };
            if bytes > 0 {
                let bytes = piece.split_to(bytes).freeze();
                written += bytes.len() as u64;
                sink = blocking(move || sink.append(&bytes)).await?;
                progress.send_modify(|it| it.written = written);
            }
            if is_end {
                break;
            }
        }
        if let Some(total) = total.filter(|total| *total != written) {
            return Err(UpstreamError::new(format!("upstream sends {written} of {total} bytes")));
        }
        let Sink { writing, sha256, extra } = sink;
        let sha256 = sha256.finish().to_string();
        if let Some(expected) = order.sha256().filter(|expected| *expected != sha256) {
            return Err(UpstreamError::new(format!(
                "the file has the SHA-256 {sha256}; upstream's page says {expected}"
            )));
        }
        if let (Some(digest), Some(expected)) = (extra, expected) {
            let found = hex::encode(digest.finalize());
            if found != expected {
                return Err(UpstreamError::new(format!(
                    "the file has the digest {found}; upstream's page says {expected}"
                )));
            }
        }
        let modified_at =
            order.upload_time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let head = Head {
            name: order.shown_name(),
            size_bytes: written,
            sha256,
            confirmed_at: milliseconds(modified_at.map_or_else(SystemTime::now, SystemTime::from)),
            etag: None,
            last_modified: None,
            serial: None,
            form: 0,
            is_verified: order.sha256().is_some(),
        };
        let (mirrors, key, kept) = (self.clone(), order.key, head.clone());
        // Clients that wait get the file even if the cache cannot keep it.
        match blocking(move || mirrors.disk.keep(writing, key, &kept)).await {
            Ok(()) => self.share(mirror, key),
            Err(trouble) => {
                tracing::warn!(file = order.name, %trouble, "a file that was mirrored cannot be kept");
            }
        }
        progress.send_modify(|it| it.state = State::Whole(head.into()));
        Ok(())
    }
}

/// Takes a download out when it has ended, also by a panic, which its readers see as a failure.
struct Ended {
    mirror: Arc<Mirror>,
    key: Key,
    download: Arc<Download>,
}

impl Ended {
    /// No request joins this download any more. Another one with the same key stays.
    fn take_out(&self) {
        let mut under_way = lock(&self.mirror.downloads.under_way);
        if under_way.get(&self.key).is_some_and(|it| Arc::ptr_eq(it, &self.download)) {
            under_way.remove(&self.key);
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.take_out();
        self.download.progress.send_if_modified(|it| {
            let is_open = matches!(it.state, State::Asking | State::Arriving);
            if is_open {
                it.state = State::Failed(lost());
            }
            is_open
        });
    }
}

fn lost() -> UpstreamError {
    UpstreamError::new("the download has ended without an outcome; it has been logged")
}
