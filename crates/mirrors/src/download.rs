//! Files of mirrors: found by their place, downloaded once for all clients that wait, streamed while they arrive.
//!
//! place -> the disk, or the project's page -> [`FileAnswer`] -> [`Body`], read from the file on disk, which may still grow. A
//! file becomes an entry of the cache only if it has the length and the digest that upstream names. Until it is checked, its
//! last byte is held back, so that no client gets a wrong file whole.

mod body;
mod order;
mod written_file;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use pypi::ProjectName;
use pypi::upstream::{Freshness, MirrorPath, UpstreamFile, link_of, projects_of};
use tokio::sync::watch;

use super::disk::{EntryFile, EntryHead, Key};
use super::flights::{Flight, lost};
use super::pages::{PATIENCE, Subject};
use super::shared_cache::{CONTENT_BYTES_MAX, Kind};
use super::sink::Sink;
use super::upstream::{Pace, UpstreamError, chunk};
use super::{Mirror, Mirrors, blocking, milliseconds, turn};

use self::body::DownloadReader;
pub use self::body::{Body, FileAnswer, MirroredFile};
pub(super) use self::order::DownloadOrder;
use self::order::FileMatch;
use self::written_file::WrittenFile;

/// A file of at most this many bytes is checked before it is answered, if it comes in time: its first piece is all of it.
const TIME_TO_CHECK: Duration = PATIENCE;

/// The progress of a download.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// The file with the bytes, as soon as there are any.
    file: Option<Arc<EntryFile>>,
    written: u64,
    total: Option<u64>,
    state: DownloadState,
}

#[derive(Clone, Debug)]
enum DownloadState {
    /// Upstream has not answered yet.
    Asking,
    /// Bytes arrive.
    Arriving,
    /// All bytes have arrived and been checked.
    Whole(Arc<EntryHead>),
    Failed(UpstreamError),
}

impl Progress {
    fn is_over(&self) -> bool {
        matches!(self.state, DownloadState::Whole(_) | DownloadState::Failed(_))
    }

    /// Whether bytes have arrived, or the download has ended.
    fn is_seen(&self) -> bool {
        self.is_over() || (matches!(self.state, DownloadState::Arriving) && self.written > 0)
    }
}

/// A file on disk, which upstream may have replaced.
type CachedFile = Option<(EntryHead, MirroredFile)>;

impl Mirrors {
    /// The file at this place. With `is_head`, a file whose size is known is not downloaded.
    ///
    /// # Errors
    /// [`UpstreamError`] if it is not here and upstream does not give it.
    pub async fn file(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        place: MirrorPath<'_>,
        is_head: bool,
    ) -> Result<FileAnswer, UpstreamError> {
        // A file that is here needs no upstream, unless a newer page names another digest, or none.
        let mut held = None;
        if let Some(path) = link_of(&place) {
            held = self.held(mirror, mirror.key(&format!("file/{path}"))).await;
        }
        if let Some((head, file)) = held {
            match self.compared(mirror, &place, &head).await {
                FileMatch::Right => return Ok(FileAnswer::File(file)),
                FileMatch::Unconfirmed => held = Some((head, file)),
                FileMatch::Wrong => held = None,
            }
        }
        match (self.order(mirror, &place).await, held) {
            (Ok(Some(order)), _) => self.ordered(mirror, order, is_head).await,
            (_, Some((_, file))) => Ok(FileAnswer::File(file)),
            (Ok(None), None) => Ok(FileAnswer::Absent),
            (Err(trouble), None) => Err(trouble),
        }
    }

    /// This file of an upstream's page of a project, or its metadata; not another file that may be at its URL by now.
    ///
    /// # Errors
    /// [`UpstreamError`] if it is not here and upstream does not give it.
    pub async fn listed_file(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: &ProjectName,
        file: &UpstreamFile,
        is_metadata: bool,
        is_head: bool,
    ) -> Result<FileAnswer, UpstreamError> {
        let order = self.listed(mirror, project, file, is_metadata).await;
        let Some(order) = order else { return Ok(FileAnswer::Absent) };
        self.ordered(mirror, order, is_head).await
    }

    /// This file of an upstream's page of a project, even if the mirror redirects clients to upstream's files.
    ///
    /// # Errors
    /// [`UpstreamError`] if it is not here and upstream does not give it.
    pub async fn fetched_file(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: &ProjectName,
        file: &UpstreamFile,
    ) -> Result<FileAnswer, UpstreamError> {
        let order = self.listed(mirror, project, file, false).await;
        let Some(mut order) = order else { return Ok(FileAnswer::Absent) };
        order.may_redirect = false;
        self.ordered(mirror, order, false).await
    }

    /// The order for a file of a page.
    async fn listed(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: &ProjectName,
        file: &UpstreamFile,
        is_metadata: bool,
    ) -> Option<DownloadOrder> {
        let order = DownloadOrder::of(mirror, file, is_metadata)?;
        let known = self.remembered(mirror, &Subject::Project(project.clone())).await;
        Some(match known {
            Some(known) => order.on_page_of(known.confirmed_at()),
            None => order,
        })
    }

    async fn ordered(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        order: DownloadOrder,
        is_head: bool,
    ) -> Result<FileAnswer, UpstreamError> {
        let mut held = self.held(mirror, order.key).await;
        if let Some((head, file)) = held {
            match order.compared(&head) {
                FileMatch::Right => return Ok(FileAnswer::File(file)),
                FileMatch::Unconfirmed => held = Some((head, file)),
                FileMatch::Wrong => held = None,
            }
        }
        if mirror.redirects_files && order.may_redirect {
            return Ok(FileAnswer::Elsewhere(order.url.into()));
        }
        let may_be_asked = self.may_be_asked(mirror);
        if let Some((_, file)) = held.take_if(|_| may_be_asked.is_err()) {
            return Ok(FileAnswer::File(file));
        }
        // Another process may have it.
        if !self.may_be_shared(mirror, &order.key) {
            may_be_asked.clone()?;
        }
        let modified_at =
            order.upload_time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let modified_at = modified_at.map_or_else(SystemTime::now, SystemTime::from);
        let sha256 = order.sha256().map(str::to_owned);
        let is_immutable = sha256.is_some();
        let unasked = |sha256, size_bytes| {
            let (size_bytes, body) = (Some(size_bytes), Body::Unasked);
            FileAnswer::File(MirroredFile { sha256, size_bytes, is_immutable, modified_at, body })
        };
        if let (true, Err(trouble)) = (is_head, &may_be_asked) {
            // Nothing is downloaded for that: the head in the shared cache says everything.
            let head = self.shared_head(mirror, &order.key, |head| order.is_of(head)).await;
            let head = head.ok_or_else(|| trouble.clone())?;
            return Ok(unasked(Some(head.sha256), head.size_bytes));
        }
        if let (true, Some(size_bytes), true) = (is_head, order.size_bytes, is_immutable) {
            return Ok(unasked(sha256, size_bytes));
        }
        let known = held.as_ref().map(|(head, _)| head.clone());
        let downloading = async {
            let mut progress = self.download(mirror, order, known)?;
            let seen = progress.wait_for(Progress::is_seen);
            let seen = tokio::time::timeout(TIME_TO_CHECK, seen).await.map(|it| it.map(|_| ()));
            match (seen, held.is_some()) {
                (Ok(seen), _) => seen.map_err(|_| lost())?,
                (Err(_), true) => return Err(UpstreamError::new("it has not answered in time")),
                (Err(_), false) => {}
            }
            let is_begun = |it: &Progress| !matches!(it.state, DownloadState::Asking);
            let begun = progress.wait_for(is_begun).await.map_err(|_| lost())?.clone();
            match &begun.state {
                DownloadState::Failed(trouble) => Err(trouble.clone()),
                _ => Ok((begun, progress)),
            }
        };
        let (begun, progress) = match (downloading.await, held) {
            (Ok(begun), _) => begun,
            // Upstream does not say that it is another one now.
            (Err(_), Some((_, file))) => return Ok(FileAnswer::File(file)),
            (Err(trouble), None) if trouble.is_absent => return Ok(FileAnswer::Absent),
            (Err(trouble), None) => return Err(trouble),
        };
        let (sha256, size_bytes) = match &begun.state {
            DownloadState::Whole(head) => {
                (sha256.or(Some(head.sha256.clone())), Some(begun.written))
            }
            _ => (sha256, begun.total),
        };
        let body = Body::Arriving(DownloadReader { progress });
        Ok(FileAnswer::File(MirroredFile { sha256, size_bytes, is_immutable, modified_at, body }))
    }

    /// The file with this key on disk. Before one is served for the first time in this process, it is compared with its
    /// digest: a disk may have changed it.
    pub(super) async fn held(self: &Arc<Mirrors>, mirror: &Mirror, key: Key) -> CachedFile {
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
        let file = MirroredFile {
            sha256: Some(head.sha256.clone()),
            size_bytes: Some(head.size_bytes),
            is_immutable: head.is_verified,
            modified_at: SystemTime::UNIX_EPOCH + modified_at,
            body: Body::Held(file),
        };
        Some((head, file))
    }

    /// Whether the file with this head is the one at this place, by the pages that are known here, however old.
    async fn compared(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        place: &MirrorPath<'_>,
        held: &EntryHead,
    ) -> FileMatch {
        for project in projects_of(place.filename()) {
            let Some(known) = self.remembered(mirror, &Subject::Project(project)).await else {
                continue;
            };
            let found = known.page().and_then(|page| page.file_at(place));
            let order =
                found.and_then(|(file, is_metadata)| DownloadOrder::of(mirror, file, is_metadata));
            let Some(order) = order else { continue };
            // Without a digest, it needs a page that counts.
            let is_expired = self.standing(mirror, &known) == Freshness::Expired;
            return match order.on_page_of(known.confirmed_at()) {
                order if order.has_no_digest() && is_expired => FileMatch::Unconfirmed,
                order => order.compared(held),
            };
        }
        let is_certain = held.is_verified || held.stamp.is_some();
        if is_certain { FileMatch::Right } else { FileMatch::Unconfirmed }
    }

    /// The download for this place: a file on the page of a project that the place may belong to.
    async fn order(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        place: &MirrorPath<'_>,
    ) -> Result<Option<DownloadOrder>, UpstreamError> {
        let mut trouble = None;
        for project in projects_of(place.filename()) {
            match self.project(mirror, &project, false).await {
                Ok(found) => {
                    let file = found.known.page().and_then(|page| page.file_at(place));
                    let order = file.and_then(|(file, is_metadata)| {
                        DownloadOrder::of(mirror, file, is_metadata)
                    });
                    if let Some(order) = order {
                        return Ok(Some(order.on_page_of(found.known.confirmed_at())));
                    }
                }
                Err(error) => trouble = Some(error),
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    /// Joins the download of this file, or begins it. With the head of the file that is `held`, upstream is asked whether that
    /// is still the file.
    fn download(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        order: DownloadOrder,
        held: Option<EntryHead>,
    ) -> Result<Flight<Progress>, UpstreamError> {
        let first = Progress { file: None, written: 0, total: None, state: DownloadState::Asking };
        let (mirrors, of) = (self.clone(), mirror.clone());
        // It goes on when its clients leave, so that the next one finds the file.
        mirror.downloads.join(
            order.expected(),
            || None,
            first,
            move |progress| async move {
                let outcome = mirrors.run(&of, &order, held, &progress).await;
                if let Err(trouble) = &outcome
                    && !trouble.is_absent
                    && !trouble.is_offline
                {
                    tracing::warn!(file = order.name, %trouble, "a file cannot be fetched from its upstream");
                }
                move |it: &mut Progress| {
                    it.state = match outcome {
                        Ok(head) => DownloadState::Whole(head.into()),
                        Err(trouble) => DownloadState::Failed(trouble),
                    };
                }
            },
        )
    }

    /// Takes the file from the cache that processes share, if the cache has the file that upstream's page names.
    async fn take_shared(
        &self,
        mirror: &Mirror,
        order: &DownloadOrder,
        progress: &watch::Sender<Progress>,
    ) -> Option<EntryHead> {
        let bytes_max = self.disk.entry_bytes_max().min(CONTENT_BYTES_MAX);
        if order.size_bytes.is_some_and(|size_bytes| size_bytes > bytes_max) {
            return None;
        }
        let (extra, expected) = order.digest_beside_sha256();
        let is_offline = self.may_be_asked(mirror).is_err();
        let is_wanted = |head: &EntryHead| {
            let is_of = match order.compared(head) {
                FileMatch::Right => true,
                FileMatch::Unconfirmed => is_offline,
                FileMatch::Wrong => false,
            };
            is_of && head.size_bytes <= bytes_max
        };
        let brought = self.bring(mirror, &order.key, Kind::File, extra, is_wanted).await;
        let mut brought = brought?;
        let is_right = match (brought.extra.take(), expected) {
            (Some(digest), Some(expected)) => hex::encode(digest.finalize()) == expected,
            _ => true,
        };
        let Some(reader) = brought.writing.reader().ok().filter(|_| is_right) else {
            self.reject_brought(&order.key);
            return None;
        };
        brought.head.is_verified = order.sha256().is_some();
        let head = brought.head.clone();
        if let Err(error) = self.keep_brought(mirror, order.key, brought).await {
            self.reject_brought(&order.key);
            tracing::warn!(file = order.name, %error, "a file of the shared cache cannot be written to the disk");
            return None;
        }
        whole_at_once(progress, reader, head.size_bytes);
        Some(head)
    }

    /// Notes that upstream has confirmed the file with this head, which is on the disk.
    async fn confirm_held(
        &self,
        order: &DownloadOrder,
        held: EntryHead,
        progress: &watch::Sender<Progress>,
    ) -> Result<EntryHead, UpstreamError> {
        let (disk, key, stamp) = (self.disk.clone(), order.key, order.stamp_beside_sha256());
        let confirming = blocking(move || {
            let head = EntryHead { stamp, checked_at: milliseconds(SystemTime::now()), ..held };
            disk.confirm(&key, &head);
            Ok(disk.open_entry(&key).filter(|(found, _)| found.sha256 == head.sha256))
        });
        let (head, file) = confirming.await?.ok_or_else(|| {
            UpstreamError::new("the file that upstream has confirmed is no longer in the cache")
        })?;
        whole_at_once(progress, file, head.size_bytes);
        Ok(head)
    }

    async fn run(
        self: &Arc<Mirrors>,
        mirror: &Mirror,
        order: &DownloadOrder,
        held: Option<EntryHead>,
        progress: &watch::Sender<Progress>,
    ) -> Result<EntryHead, UpstreamError> {
        let mut is_ahead = false;
        let outcome = self.fetch_file(mirror, order, held, progress, &mut is_ahead).await;
        outcome.inspect_err(|trouble| self.ahead_failed_if(is_ahead, trouble))
    }

    /// [`Mirrors::run`]; `is_ahead` becomes whether the server that this one follows has answered.
    async fn fetch_file(
        self: &Arc<Mirrors>,
        mirror: &Mirror,
        order: &DownloadOrder,
        held: Option<EntryHead>,
        progress: &watch::Sender<Progress>,
        is_ahead: &mut bool,
    ) -> Result<EntryHead, UpstreamError> {
        // Taking a shared file waits for no upstream, so it needs no turn.
        if let Some(head) = self.take_shared(mirror, order, progress).await {
            return Ok(head);
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
        let conditions = held.as_ref().map(|held| {
            [
                (IF_NONE_MATCH, held.etag.as_deref()),
                (IF_MODIFIED_SINCE, held.last_modified.as_deref()),
            ]
        });
        for (name, value) in conditions.into_iter().flatten() {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        let fetched = self.get(mirror, &order.path, order.url.clone(), headers, false).await?;
        *is_ahead = fetched.is_ahead;
        let mut response = fetched.response;
        if response.status() == StatusCode::NOT_MODIFIED
            && let Some(held) = held
        {
            return self.confirm_held(order, held, progress).await;
        }
        let encoding = response.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        // Upstream may call a file encoded that is stored like that, or encode what it should not.
        let is_encoded = matches!(encoding, Some(b"gzip" | b"x-gzip"));
        let is_known = is_encoded || matches!(encoding, None | Some(b"" | b"identity"));
        if response.status() != StatusCode::OK || !is_known {
            return Err(UpstreamError::new(
                "upstream sends the file in a form that was not asked for",
            ));
        }
        let [etag, last_modified] = [ETAG, LAST_MODIFIED].map(|name| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.filter(|value| value.len() <= 500 && order.sha256().is_none()).map(str::to_owned)
        });
        let declared = response.content_length();
        if let (Some(declared), Some(expected)) = (declared, order.size_bytes)
            && declared != expected
            && !is_encoded
        {
            return Err(UpstreamError::new(format!(
                "upstream sends {declared} bytes; its page says {expected}"
            )));
        }
        let total = if is_encoded { declared } else { order.size_bytes.or(declared) };
        if is_too_large(total) {
            return Err(too_large());
        }
        if let Some(total) = total {
            writing = blocking(move || writing.reserve(total).map(|()| writing)).await?;
        }
        let (extra, expected) = order.digest_beside_sha256();
        let mut sink = Sink { writing, sha256: record::Hasher::new(), extra };
        let mut reader = Some(reader);
        if !is_encoded {
            progress.send_modify(|it| {
                (it.file, it.total) = (reader.take().map(Arc::new), total);
                it.state = DownloadState::Arriving;
            });
        }
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
                // The end is told of when it is known to be right, so that a small file is right or refused.
                if !is_encoded && !is_end {
                    progress.send_modify(|it| it.written = written);
                }
            }
            if is_end {
                break;
            }
        }
        if let Some(total) = total.filter(|total| *total != written) {
            return Err(UpstreamError::new(format!("upstream sends {written} of {total} bytes")));
        }
        let mut arrived = WrittenFile::of(sink, written);
        let mut checked = arrived.check(order, expected);
        if is_encoded {
            let is_wrong = checked.is_err();
            if is_wrong || order.is_uncompared() {
                let (disk, extra) = (self.disk.clone(), order.digest_beside_sha256().0);
                let name = order.name.clone();
                let choosing =
                    move || arrived.or_decoded(&name, is_wrong, (&disk, bytes_max), extra);
                arrived = blocking(choosing).await?;
                checked = arrived.check(order, expected);
            }
            let opened = arrived.writing.reader();
            reader = Some(blocking(move || opened).await?);
        }
        checked?;
        let WrittenFile { writing, size_bytes, sha256, .. } = arrived;
        let modified_at =
            order.upload_time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let modified_at = modified_at.map_or_else(SystemTime::now, SystemTime::from);
        let head = order.head(size_bytes, sha256, milliseconds(modified_at));
        let head = EntryHead { etag, last_modified, ..head };
        let (mirrors, key, kept) = (self.clone(), order.key, head.clone());
        // Clients that wait get the file even if the cache cannot keep it.
        match blocking(move || mirrors.disk.keep(writing, key, &kept)).await {
            Ok(()) => self.share(mirror, key),
            Err(trouble) => {
                tracing::warn!(file = order.name, %trouble, "a fetched file cannot be written to the cache");
            }
        }
        match reader {
            Some(reader) => whole_at_once(progress, reader, head.size_bytes),
            None => progress.send_modify(|it| it.written = head.size_bytes),
        }
        Ok(head)
    }
}

/// Notes the bytes of a file that is shown only as a whole.
fn whole_at_once(progress: &watch::Sender<Progress>, reader: EntryFile, size_bytes: u64) {
    progress.send_modify(|it| {
        (it.file, it.total) = (Some(Arc::new(reader)), Some(size_bytes));
        it.written = size_bytes;
    });
}
