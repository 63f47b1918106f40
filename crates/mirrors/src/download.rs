//! Files of mirrors: found by their place, downloaded once for everybody who waits, streamed while they arrive.
//!
//! place -> the disk, or the project's page -> [`FileAnswer`] -> [`Body`], read from the file on disk, which may still
//! grow. A file becomes an entry of the cache only if it has the length and the digest that upstream names. Until it is
//! checked, its last byte is held back: no client gets a whole file that is not the right one.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use pypi::upstream::{CoreMetadata, Place, UpstreamFile, link_of, projects_of};
use reqwest::Url;
use sha2::digest::DynDigest;
use tokio::sync::watch;

use super::disk::{EntryFile, HEAD_BYTES, Head, Key, Writing};
use super::known::Subject;
use super::shared::{CONTENT_BYTES_MAX, Kind};
use super::sink::{PIECE_BYTES, Sink};
use super::upstream::{Pace, UpstreamError, chunk};
use super::{Mirror, Mirrors, blocking, lock, milliseconds, turn};

/// Downloads of one mirror, those that wait for their turn among them; further ones are refused.
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
    /// Where the bytes are, as soon as there are any.
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

/// What there is at a place.
pub enum FileAnswer {
    /// Nothing.
    Absent,
    /// Only upstream has it, at this URL.
    Elsewhere(String),
    /// A file.
    File(MirroredFile),
}

/// A file of a mirror.
pub struct MirroredFile {
    /// Its SHA-256, if upstream names it or it is there already.
    pub sha256: Option<String>,
    /// Its size in bytes; `None` until all of it has arrived.
    pub size_bytes: Option<u64>,
    /// Whether upstream names its digest, so that it never changes.
    pub is_immutable: bool,
    /// When it was uploaded, or arrived here.
    pub modified_at: SystemTime,
    /// Its bytes.
    pub body: Body,
}

/// Where a file's bytes come from.
pub enum Body {
    /// They are all on disk.
    Held(Arc<EntryFile>),
    /// They arrive.
    Arriving(Arriving),
    /// Nobody has asked for them yet: for HEAD, if upstream's page says everything.
    Unasked,
}

/// A download, as one reader sees it.
pub struct Arriving {
    progress: watch::Receiver<Progress>,
}

/// A file to be downloaded.
pub(super) struct Order {
    pub(super) key: Key,
    name: String,
    url: Url,
    pub(super) size_bytes: Option<u64>,
    hashes: Vec<(Box<str>, Box<str>)>,
    upload_time: Option<Box<str>>,
}

impl Order {
    /// What of this mirror a file of a page is, or its metadata.
    pub(super) fn of(mirror: &Mirror, file: &UpstreamFile, is_metadata: bool) -> Option<Order> {
        let mut url = Url::parse(&file.url).ok()?;
        let upload_time = file.upload_time.clone();
        if !is_metadata {
            let key = mirror.key(&format!("file/{}", file.link()));
            let name = name_of(mirror, &url);
            let (size_bytes, hashes) = (file.size_bytes, file.hashes.clone());
            return Some(Order { key, name, url, size_bytes, hashes, upload_time });
        }
        let metadata = file.core_metadata.as_ref()?;
        let key = mirror.key(&format!("file/{}.metadata", file.link()));
        url.set_path(&format!("{}.metadata", url.path()));
        let hashes = match metadata {
            CoreMetadata::Sha256(digits) => vec![("sha256".into(), digits.clone())],
            CoreMetadata::Unhashed => Vec::new(),
        };
        Some(Order { key, name: name_of(mirror, &url), url, size_bytes: None, hashes, upload_time })
    }

    /// What its download is joined by: the same bytes are expected.
    fn expected(&self) -> Key {
        Key::of(format!("{} {:?}", self.key, self.hashes).as_bytes())
    }

    /// Its name in the head of an entry.
    pub(super) fn shown_name(&self) -> String {
        self.name.chars().take(1500).collect()
    }

    /// Whether this head of an entry is of this file.
    fn is_of(&self, head: &Head) -> bool {
        let is_same = match self.sha256() {
            Some(sha256) => *sha256 == *head.sha256,
            None => head.name == self.shown_name(),
        };
        is_same && self.size_bytes.is_none_or(|size_bytes| size_bytes == head.size_bytes)
    }

    /// The SHA-256 that upstream names.
    pub(super) fn sha256(&self) -> Option<&str> {
        let found = self.hashes.iter().find(|(name, _)| &**name == "sha256");
        found.map(|(_, digits)| &**digits).filter(|digits| digits.len() == 64)
    }

    /// What to compare the bytes with if upstream names no SHA-256: a digest to compute, and the expected one.
    fn digest_beside_sha256(&self) -> (Option<Box<dyn DynDigest + Send>>, Option<&str>) {
        match (self.sha256(), self.check()) {
            (None, Some((digest, digits))) => (Some(digest), Some(digits)),
            _ => (None, None),
        }
    }

    /// The digest that tells whether the bytes are right: the strongest that upstream names and we can compute.
    pub(super) fn check(&self) -> Option<(Box<dyn DynDigest + Send>, &str)> {
        let named = |wanted: &str| {
            let found = self.hashes.iter().find(|(name, _)| &**name == wanted);
            found.map(|(_, digits)| &**digits)
        };
        let make = |name: &str| -> Box<dyn DynDigest + Send> {
            match name {
                "sha512" => Box::new(sha2::Sha512::default()),
                "sha384" => Box::new(sha2::Sha384::default()),
                "sha224" => Box::new(sha2::Sha224::default()),
                _ => Box::new(md5::Md5::default()),
            }
        };
        ["sha512", "sha384", "sha224", "md5"]
            .into_iter()
            .find_map(|name| Some((make(name), named(name)?)))
    }
}

impl Mirrors {
    /// What is at this place. With `is_head`, nothing is downloaded whose size is known.
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

    /// This file of an upstream's page, or its metadata, and no other: what may have come under its URL since is not given.
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

    /// What is to be downloaded for this place: a file on the page of a project that it may be of.
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
        // It goes on when its clients leave: the next one finds the file.
        let (mirrors, mirror) = (self.clone(), mirror.clone());
        tokio::spawn(async move {
            let ended = Ended { mirror: mirror.clone(), key: expected, download };
            let outcome = mirrors.run(&mirror, &order, &ended.download.progress).await;
            // Before anybody learns how it ended: whoever comes next after a failure begins anew.
            ended.take_out();
            if let Err(trouble) = outcome {
                if !trouble.is_absent && !trouble.is_offline {
                    tracing::warn!(file = order.name, %trouble, "a file is not mirrored");
                }
                ended.download.progress.send_modify(|it| it.state = State::Failed(trouble));
            }
        });
        Ok(receiver)
    }

    /// Takes the file from the cache that processes share; whether it was there, and the one that upstream's page says.
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
        // This waits for no upstream, so it takes no turn at one.
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
            if piece.len() >= PIECE_BYTES || (is_end && !piece.is_empty()) {
                let bytes = piece.split().freeze();
                sink = blocking(move || sink.append(&bytes)).await?;
                written = arrived;
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
        // Who waits gets it even if the disk does not take it.
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

/// What a file is called in its head, in logs and where others read: without what gives access to it.
fn name_of(mirror: &Mirror, url: &Url) -> String {
    let mut url = url.clone();
    (_, _) = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    format!("{} {url}", mirror.stage)
}

fn lost() -> UpstreamError {
    UpstreamError::new("the download has ended without an outcome; it has been logged")
}

impl Arriving {
    /// Waits until all bytes are there; their number, and their SHA-256.
    ///
    /// # Errors
    /// Why they never will be.
    pub async fn whole(&mut self) -> Result<(u64, String), UpstreamError> {
        let is_over = |it: &Progress| matches!(it.state, State::Whole(_) | State::Failed(_));
        let progress = self.progress.wait_for(is_over).await.map_err(|_| lost())?;
        match &progress.state {
            State::Failed(trouble) => Err(trouble.clone()),
            State::Whole(head) => Ok((head.size_bytes, head.sha256.clone())),
            State::Asking | State::Arriving => Err(lost()),
        }
    }

    /// Bytes that may be sent now, from `at`, of those before `end`; none at the end.
    async fn ready(
        &mut self,
        at: u64,
        end: Option<u64>,
    ) -> Result<Option<(Arc<EntryFile>, u64)>, UpstreamError> {
        let reached = |it: &Progress| match &it.state {
            State::Whole(_) => end.map_or(it.written, |end| end.min(it.written)),
            // The last byte is sent when all of them are known to be right.
            _ => {
                let last = it.total.unwrap_or(it.written).saturating_sub(1);
                let sent = it.written.min(last);
                end.map_or(sent, |end| end.min(sent))
            }
        };
        let is_over = |it: &Progress| matches!(it.state, State::Whole(_) | State::Failed(_));
        let progress = self.progress.wait_for(|it| is_over(it) || reached(it) > at).await;
        let progress = progress.map_err(|_| lost())?;
        if let State::Failed(trouble) = &progress.state {
            return Err(trouble.clone());
        }
        let (reached, file) = (reached(&progress), progress.file.clone());
        Ok(file.filter(|_| reached > at).map(|file| (file, reached)))
    }
}

impl Body {
    /// The bytes from `start` up to, not including, `end`; without `end`, to the end of the file.
    pub fn stream(
        self,
        start: u64,
        end: Option<u64>,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send {
        futures_util::stream::try_unfold((self, start), move |(mut body, at)| async move {
            if end.is_some_and(|end| at >= end) {
                return Ok(None);
            }
            let ready = match &mut body {
                Body::Unasked => None,
                Body::Held(file) => Some((file.clone(), end.unwrap_or(u64::MAX))),
                Body::Arriving(arriving) => {
                    arriving.ready(at, end).await.map_err(io::Error::other)?
                }
            };
            let Some((file, until)) = ready else { return Ok(None) };
            let bytes = usize::try_from(until - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let reading = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; bytes];
                let read = file.read_at(&mut piece, HEAD_BYTES + at)?;
                piece.truncate(read);
                io::Result::Ok(Bytes::from(piece))
            });
            let piece = reading.await.map_err(io::Error::other)??;
            if piece.is_empty() {
                return Ok(None);
            }
            let next = at + piece.len() as u64;
            Ok(Some((piece, (body, next))))
        })
    }
}

#[cfg(test)]
mod tests {
    use record::Digest;

    use super::*;

    #[test]
    fn the_last_byte_waits_for_the_check() {
        let directory = tempfile::tempdir().expect("a directory");
        let limits = super::super::disk::Limits {
            bytes_max: 1 << 20,
            free_bytes_min: 0,
            free_bytes: Box::new(|| None),
        };
        let disk = Arc::new(super::super::disk::Disk::open(directory.path(), limits));
        let writing = disk.begin(10).expect("a disk");
        let (sender, progress) = watch::channel(Progress {
            file: Some(Arc::new(writing.reader().expect("a file"))),
            written: 10,
            total: Some(10),
            state: State::Arriving,
        });
        let mut arriving = Arriving { progress };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let reached = |arriving: &mut Arriving, at| {
            let ready = runtime.block_on(arriving.ready(at, Some(10)));
            ready.map(|ready| ready.map(|(_, until)| until))
        };
        assert_eq!(reached(&mut arriving, 0).expect("bytes"), Some(9));
        let head = Head {
            name: String::new(),
            size_bytes: 10,
            sha256: Digest::of(b"").to_string(),
            confirmed_at: 0,
            etag: None,
            last_modified: None,
            serial: None,
            form: 0,
            is_verified: true,
        };
        sender.send_modify(|it| it.state = State::Whole(head.into()));
        assert_eq!(reached(&mut arriving, 9).expect("bytes"), Some(10));
        sender.send_modify(|it| it.state = State::Failed(lost()));
        assert!(reached(&mut arriving, 9).is_err());
    }
}
