//! Mirrors: indexes whose content comes from an upstream, and the cache of that content.
//!
//! ```text
//! stage of the type `mirror` ─► Mirror ─► pages:    pages and lists ─► memory ─► disk ─► upstream, once
//!                                    └──► download: files           ─► disk ─► upstream, once, streamed meanwhile
//!                                                                          └─► shared: what other processes have
//! ```
//!
//! Mirrored content is a cache and not a record: it has no serials, and can be fetched again if it is lost. `pypi::upstream`
//! and `pypi::ResolutionOrder::mirrors_of` decide what of it is shown; this crate has the clock, the disk and the network.

mod ahead;
mod disk;
mod download;
mod flights;
mod pages;
mod plans;
pub mod prefetch;
mod recent_requests;
mod shared_cache;
mod sink;
#[cfg(test)]
mod tests;
mod transfer;
mod trial;
mod upstream;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pypi::upstream::{Blame, Breaker, Outage};
use pypi::{MirrorSettings, Page, PageForm, PageRequest, ProjectName, Snapshot, Stage};
use record::{Digest, Serial};
use resources::turns::Turns;
use store::blobs::ObjectCache;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::disk::{Disk, Limits};
use self::download::Progress;
use self::flights::{FetchResult, Flights};
use self::pages::Subject;
use self::plans::Plans;
use self::recent_requests::RecentRequests;
use self::shared_cache::SharedCache;
use self::upstream::{Origin, Upstream};
use net::Egress;

pub use self::ahead::Ahead;
pub use self::download::{Body, FileAnswer, MirroredFile};
pub use self::pages::{CachedPage, FollowerPage, PageHandle, PageLookup, StaleReason};
pub use self::plans::Stream;
pub use self::recent_requests::{Requests, SPANS, UpstreamState};
pub use self::transfer::{TransferReport, export};
pub use self::trial::try_upstream;
pub use self::upstream::UpstreamError;

/// Pages and lists that are requested at once from one upstream, and from all together; further requests wait.
const ASKING_MAX: usize = 16;
const ASKING_TOGETHER_MAX: usize = 256;

/// Downloads at once of one upstream, and of all together; further ones wait.
const DOWNLOADS_MAX: usize = 32;
const DOWNLOADS_TOGETHER_MAX: usize = 256;

/// Pages, and downloads, of one mirror that are under way or wait for their turn; further ones are refused.
const PAGES_WAITING_MAX: usize = 4096;
const FILES_WAITING_MAX: usize = 1024;

/// How long anything waits for its turn at an upstream.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// Pages that are inflated, parsed, written and rendered at once; a large one counts as so many that no second one fits in.
const PAGES_MAX: usize = 16;
const LARGE_PAGE_COUNTS: u32 = 12;

/// Requests that wait to render pages.
const USING_MAX: usize = 512;

/// A page with more files is large.
pub const MANY_FILES: usize = 5_000;

/// The smallest part of a cache in memory, if the cache is that large.
const CACHE_PART_BYTES_MIN: u64 = 64 << 20;

/// Pages of one mirror whose failures are remembered.
const FAILING_MAX: usize = 4096;

/// Files that are hashed at once before they are served for the first time.
const CHECKS_MAX: usize = 8;

/// Memory and disk space of mirrors.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes of memory for pages, finished and not; half of it is for upstreams' pages.
    pub memory_bytes_max: u64,
    /// Disk for pages, lists and files, in bytes.
    pub disk_bytes_max: u64,
    /// Bytes that are left free on that disk.
    pub free_bytes_min: u64,
    /// How long a page is fresh if its mirror does not say.
    pub expiry: Duration,
    /// Whether no upstream is asked.
    pub is_offline: bool,
}

/// All mirrors of this process.
pub struct Mirrors {
    budget: Budget,
    disk: Arc<Disk>,
    /// The cache that processes share, if there is a place for it.
    shared: Option<Arc<SharedCache>>,
    upstream: Upstream,
    /// The server that this one follows, which is asked first.
    ahead: OnceLock<Arc<dyn Ahead>>,
    mirrors: Mutex<HashMap<String, Arc<Mirror>>>,
    pages: quick_cache::sync::Cache<PageKey, Arc<CachedPage>, PageWeight>,
    finished: quick_cache::sync::Cache<FinishedKey, Arc<FinishedPage>, FinishedWeight>,
    /// Requests to all upstreams at once.
    asking: Semaphore,
    downloading: Semaphore,
    pages_work: Turns,
    /// Places to wait for these turns.
    using: Turns,
    /// Bounds for the JSON of projects.
    pub plans: Plans,
    checks: Turns,
    versions: AtomicU64,
    /// Whether no upstream is asked, whatever a mirror's own setting says.
    is_offline: AtomicBool,
    started_at: Instant,
    counters: Counters,
}

/// The counts of mirrors.
#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    stale: AtomicU64,
    hidden_files: AtomicU64,
    shared: AtomicU64,
}

/// The counts of [`Mirrors`], for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests to upstreams.
    pub requests: u64,
    /// Failed requests to upstreams.
    pub failures: u64,
    /// Pages and lists that were served although upstream had not confirmed them in time.
    pub stale: u64,
    /// Files that policies left out of pages when they were made.
    pub hidden_files: u64,
    /// Pages, lists and files that were taken from the cache that processes share.
    pub shared: u64,
    /// Bytes of the cache on disk.
    pub disk_bytes: u64,
    /// Mirrors whose upstream fails for its list or for more than one page.
    pub failing: u64,
}

/// A stage of the type `mirror`, as it is configured now.
pub struct Mirror {
    /// Its name.
    pub stage: String,
    /// Whether files are redirected to rather than served.
    pub redirects_files: bool,
    origin: Origin,
    /// The [`lasting`] settings that it was made of.
    settings: MirrorSettings,
    /// The stage, its upstream and what the mirror takes from it: with another configuration it has another cache, and so has
    /// a mirror that is made anew under an old name.
    identity: Arc<str>,
    expiry: Duration,
    has_no_list: bool,
    ignores_serials: bool,
    provides_metadata: Option<bool>,
    /// Whether processes may share it: not with credentials in its URL, which its keys are digests of.
    is_shared: bool,
    /// Whether its own setting says now that upstream is not asked.
    is_offline: AtomicBool,
    /// The list of projects, which is never evicted.
    names: Mutex<Option<Arc<CachedPage>>>,
    health: Mutex<Health>,
    recent: Mutex<RecentRequests>,
    // Separate for each mirror: an upstream that hangs delays no other.
    flights: Flights<Option<FetchResult<Arc<CachedPage>>>>,
    downloads: Flights<Progress>,
    asking: Semaphore,
    downloading: Semaphore,
}

/// Which requests to the upstream failed.
#[derive(Default)]
struct Health {
    outage: Outage<Subject>,
    /// Why the upstream as a whole fails.
    trouble: Option<UpstreamError>,
    /// The pages whose last request failed.
    pages: HashMap<Subject, FailingPage>,
}

/// A page whose requests fail.
struct FailingPage {
    breaker: Breaker,
    trouble: UpstreamError,
}

/// A finished page, and the state that it was made of.
pub struct FinishedPage {
    /// The page.
    pub page: Arc<Page>,
    stamp: Serial,
    versions: Box<[u64]>,
}

/// A [`PageRequest`] that owns its names. Both hash alike, so a lookup copies nothing.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FinishedKey {
    stage: Box<str>,
    project: Box<str>,
    form: PageForm,
    depth: u8,
}

impl From<PageRequest<'_>> for FinishedKey {
    fn from(request: PageRequest<'_>) -> FinishedKey {
        let PageRequest { stage, project, form, depth } = request;
        FinishedKey { stage: stage.into(), project: project.into(), form, depth }
    }
}

impl quick_cache::Equivalent<FinishedKey> for PageRequest<'_> {
    fn equivalent(&self, key: &FinishedKey) -> bool {
        let FinishedKey { stage, project, form, depth } = key;
        *self == PageRequest { stage, project, form: *form, depth: *depth }
    }
}

/// The page of a project at a mirror.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PageKey {
    mirror: Arc<str>,
    project: ProjectName,
}

/// A [`PageKey`] that borrows its names, and hashes alike.
#[derive(Hash)]
struct PageKeyRef<'name> {
    mirror: &'name str,
    project: &'name str,
}

impl quick_cache::Equivalent<PageKey> for PageKeyRef<'_> {
    fn equivalent(&self, key: &PageKey) -> bool {
        *self.mirror == *key.mirror && self.project == key.project.as_str()
    }
}

#[derive(Clone)]
struct PageWeight;

impl quick_cache::Weighter<PageKey, Arc<CachedPage>> for PageWeight {
    fn weight(&self, _: &PageKey, known: &Arc<CachedPage>) -> u64 {
        known.memory_bytes()
    }
}

#[derive(Clone)]
struct FinishedWeight;

impl quick_cache::Weighter<FinishedKey, Arc<FinishedPage>> for FinishedWeight {
    fn weight(&self, _: &FinishedKey, finished: &Arc<FinishedPage>) -> u64 {
        // Encodings are added later.
        finished.page.reply().body.len() as u64 * 19 / 10 + 1024
    }
}

/// A cache of this many bytes. Its parts are large enough for a page of tens of thousands of files: a page larger than a part
/// is not kept, and would be made again for each request.
fn cache<K, V, W>(bytes: u64, weighter: W) -> quick_cache::sync::Cache<K, V, W>
where
    K: std::hash::Hash + Eq,
    V: Clone,
    W: quick_cache::Weighter<K, V> + Clone,
{
    let items = usize::try_from(bytes / 16_384).unwrap_or(usize::MAX).clamp(16, 1 << 20);
    let parts = usize::try_from(bytes / CACHE_PART_BYTES_MIN).unwrap_or(usize::MAX).clamp(1, 64);
    // The number of parts is rounded up to a power of two.
    let parts = if parts.is_power_of_two() { parts } else { parts.next_power_of_two() / 2 };
    let options = quick_cache::OptionsBuilder::new()
        .shards(parts)
        .estimated_items_capacity(items)
        .weight_capacity(bytes)
        .build()
        .expect("both capacities are set");
    quick_cache::sync::Cache::with_options(
        options,
        weighter,
        Default::default(),
        Default::default(),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(time: std::time::SystemTime) -> i64 {
    let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Mirrors {
    /// Opens the cache in `directory`.
    ///
    /// # Errors
    /// If there can be no client.
    pub fn open(directory: &Path, budget: Budget, egress: Egress) -> anyhow::Result<Mirrors> {
        let known_bytes = budget.memory_bytes_max / 2;
        let finished_bytes = budget.memory_bytes_max - known_bytes;
        let place = directory.to_owned();
        let limits = Limits {
            bytes_max: budget.disk_bytes_max,
            free_bytes_min: budget.free_bytes_min,
            free_bytes: Box::new(move || resources::free_space::free_bytes(&place)),
        };
        Ok(Mirrors {
            budget,
            disk: Arc::new(Disk::open(directory, limits)),
            shared: None,
            upstream: Upstream::new(egress)?,
            ahead: OnceLock::new(),
            mirrors: Mutex::default(),
            pages: cache(known_bytes, PageWeight),
            finished: cache(finished_bytes, FinishedWeight),
            asking: Semaphore::new(ASKING_TOGETHER_MAX),
            downloading: Semaphore::new(DOWNLOADS_TOGETHER_MAX),
            pages_work: Turns::new(PAGES_MAX),
            using: Turns::new(USING_MAX),
            plans: Plans::new(),
            checks: Turns::new(CHECKS_MAX),
            versions: AtomicU64::new(0),
            is_offline: AtomicBool::new(budget.is_offline),
            started_at: Instant::now(),
            counters: Counters::default(),
        })
    }

    /// Shares what the mirrors fetch with the other processes of this store, in at most this many bytes; with 0 it shares
    /// nothing.
    pub fn sharing(self, cache: Option<ObjectCache>, bytes_max: u64) -> Mirrors {
        let cache = cache.filter(|_| bytes_max > 0);
        Mirrors { shared: cache.map(|cache| Arc::new(SharedCache::new(cache, bytes_max))), ..self }
    }

    /// The mirror of this stage; `None` if the stage is no mirror, or names no upstream.
    pub fn of(&self, stage: &Stage) -> Option<Arc<Mirror>> {
        let settings = stage.config().mirror()?;
        let name = stage.name().as_str();
        let mut mirrors = lock(&self.mirrors);
        // Any change makes another mirror. With the same identity it finds the old one's entries on disk.
        if let Some(mirror) = mirrors.get(name)
            && mirror.settings == lasting(settings)
        {
            // This only switches: what is known stays, and so do waiting requests.
            mirror.is_offline.store(settings.mirror_offline.unwrap_or_default(), Relaxed);
            return Some(mirror.clone());
        }
        let mirror = Arc::new(Mirror::new(stage, self.budget.expiry)?);
        mirrors.insert(name.to_owned(), mirror.clone());
        Some(mirror)
    }

    /// A finished page, if it was made of exactly this state.
    pub fn finished(
        &self,
        request: PageRequest<'_>,
        stamp: Serial,
        versions: &[u64],
    ) -> Option<Arc<FinishedPage>> {
        let found = self.finished.get(&request)?;
        let is_made_of_this = found.stamp == stamp && *found.versions == *versions;
        let has_expired = found.page.may_expire() && found.page.has_expired(Timestamp::now());
        (is_made_of_this && !has_expired).then_some(found)
    }

    /// Keeps a finished page that was made of this state.
    pub fn finish(
        &self,
        request: PageRequest<'_>,
        page: Page,
        stamp: Serial,
        versions: Vec<u64>,
    ) -> Arc<FinishedPage> {
        self.counters.hidden_files.fetch_add(page.hidden_files(), Relaxed);
        let finished =
            Arc::new(FinishedPage { page: page.into(), stamp, versions: versions.into() });
        self.finished.insert(request.into(), finished.clone());
        finished
    }

    /// The counts, for metrics.
    pub fn counts(&self) -> Counts {
        Counts {
            requests: self.counters.requests.load(Relaxed),
            failures: self.counters.failures.load(Relaxed),
            stale: self.counters.stale.load(Relaxed),
            hidden_files: self.counters.hidden_files.load(Relaxed),
            shared: self.counters.shared.load(Relaxed),
            disk_bytes: self.disk.bytes(),
            failing: self.troubles().len() as u64,
        }
    }

    /// Forgets the mirrors that are no stages of the index any more, or have other settings now.
    pub fn keep_those_of(&self, index: &Snapshot) {
        lock(&self.mirrors).retain(|name, mirror| {
            let settings = index.stage(name).and_then(|stage| stage.config().mirror());
            settings.is_some_and(|settings| mirror.settings == lasting(settings))
        });
    }

    /// Follows a change of the index, so that a mirror that is set offline sends no request that waits for its turn.
    pub fn follow(&self, index: &Snapshot) {
        let names: Vec<String> = lock(&self.mirrors).keys().cloned().collect();
        for name in names {
            // `of` takes over the settings, or makes another mirror with them.
            let is_there = index.stage(&name).is_some_and(|stage| self.of(stage).is_some());
            if !is_there {
                lock(&self.mirrors).remove(&name);
            }
        }
    }

    /// The mirrors whose upstream fails for its list or for more than one page, and why.
    pub fn troubles(&self) -> Vec<(String, String)> {
        let mirrors = lock(&self.mirrors);
        let mut troubles: Vec<(String, String)> = mirrors
            .values()
            .filter_map(|mirror| Some((mirror.stage.clone(), mirror.trouble()?)))
            .collect();
        troubles.sort();
        troubles
    }

    /// Whether no upstream is asked.
    pub fn is_offline(&self) -> bool {
        self.is_offline.load(Relaxed)
    }

    /// Sets whether all upstreams are offline; if not, each mirror's own setting counts.
    pub fn set_offline(&self, is_offline: bool) {
        self.is_offline.store(is_offline, Relaxed);
    }

    /// Whether this mirror's upstream may not be asked, and by which setting.
    fn offline_by(&self, mirror: &Mirror) -> Option<&'static str> {
        match (self.is_offline(), mirror.is_offline.load(Relaxed)) {
            (true, _) => Some("python.mirrors_offline"),
            (false, true) => Some("mirror_offline"),
            (false, false) => None,
        }
    }

    /// Checks that upstream, or the server that this one follows, may be asked.
    ///
    /// # Errors
    /// [`UpstreamError`] if neither may be asked.
    fn may_be_asked(&self, mirror: &Mirror) -> Result<(), UpstreamError> {
        match self.ahead.get() {
            Some(_) => Ok(()),
            None => self.upstream_may_be_asked(mirror),
        }
    }

    /// Checks that upstream may be asked.
    ///
    /// # Errors
    /// [`UpstreamError`] if it may not be asked.
    fn upstream_may_be_asked(&self, mirror: &Mirror) -> Result<(), UpstreamError> {
        match self.offline_by(mirror) {
            None => Ok(()),
            Some(setting) => Err(UpstreamError::offline(format!(
                "this was never fetched, and the upstream is not asked ({setting}=true)"
            ))),
        }
    }

    fn next_version(&self) -> u64 {
        self.versions.fetch_add(1, Relaxed) + 1
    }

    fn in_memory(&self, mirror: &Mirror, subject: &Subject) -> Option<Arc<CachedPage>> {
        match subject {
            Subject::List => mirror.names_in_memory(),
            Subject::Project(name) => self.page_in_memory(mirror, name.as_str()),
        }
    }

    fn page_in_memory(&self, mirror: &Mirror, project: &str) -> Option<Arc<CachedPage>> {
        self.pages.get(&PageKeyRef { mirror: &mirror.identity, project })
    }

    fn remember(&self, mirror: &Mirror, subject: &Subject, known: Arc<CachedPage>) {
        match subject {
            Subject::List => *lock(&mirror.names) = Some(known),
            Subject::Project(name) => {
                let key = PageKey { mirror: mirror.identity.clone(), project: name.clone() };
                self.pages.insert(key, known);
            }
        }
    }
}

/// A turn at an upstream: its own, and one of all together.
async fn turn<'all>(
    own: &'all Semaphore,
    together: &'all Semaphore,
) -> Result<[SemaphorePermit<'all>; 2], UpstreamError> {
    // The upstream's own turn comes first: a request that waits for a hanging upstream must not hold a turn that others need.
    let both = async {
        Ok::<_, tokio::sync::AcquireError>([own.acquire().await?, together.acquire().await?])
    };
    match tokio::time::timeout(TURN_TIMEOUT, both).await {
        Ok(Ok(turns)) => Ok(turns),
        _ => Err(UpstreamError::busy("too many requests wait for this upstream")),
    }
}

/// Work that blocks, on the cache.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, UpstreamError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| {
        UpstreamError::new("the work has ended without an outcome; it has been logged")
    })?;
    done.map_err(|error| match error.kind() {
        // The disk may also be full without a known floor.
        io::ErrorKind::StorageFull => {
            UpstreamError::busy(format!("the cache of the mirrors has no room: {error}"))
        }
        _ => UpstreamError::new(format!("the cache of the mirrors cannot be written: {error}")),
    })
}

fn identity(name: &str, url: &str, settings: &MirrorSettings) -> String {
    let provides_metadata = settings.mirror_provides_core_metadata;
    let mut text = format!("{name}\n{url}\n{provides_metadata:?}");
    if let Some(serial) = settings.made_after {
        text.push_str(&format!("\n{serial}"));
    }
    // The URL may have credentials, which must not be guessable from names of files.
    Digest::of(text.as_bytes()).to_string()
}

/// The settings without those that may change while the mirror stays.
fn lasting(settings: &MirrorSettings) -> MirrorSettings {
    MirrorSettings { mirror_offline: None, mirror_web_url_fmt: None, ..settings.clone() }
}

/// How long a page is fresh.
fn expiry(settings: &MirrorSettings, default: Duration) -> Duration {
    settings.mirror_cache_expiry.map_or(default, |seconds| Duration::from_secs(seconds.into()))
}

impl Mirror {
    /// The mirror of this stage; `default_expiry` is how long pages are fresh by default. `None` if the stage is no mirror, or
    /// names no upstream.
    pub fn new(stage: &Stage, default_expiry: Duration) -> Option<Mirror> {
        let settings = stage.config().mirror()?;
        let url = settings.mirror_url.as_deref()?;
        let name = stage.name().as_str();
        Some(Mirror {
            stage: name.to_owned(),
            redirects_files: settings.mirror_use_external_urls.unwrap_or_default(),
            origin: Origin::parse(url)?,
            identity: identity(name, url, settings).into(),
            settings: lasting(settings),
            expiry: expiry(settings, default_expiry),
            has_no_list: settings.mirror_no_project_list.unwrap_or_default(),
            ignores_serials: settings.mirror_ignore_serial_header.unwrap_or_default(),
            provides_metadata: settings.mirror_provides_core_metadata,
            is_shared: !Origin::is_secret(url),
            is_offline: AtomicBool::new(settings.mirror_offline.unwrap_or_default()),
            names: Mutex::default(),
            health: Mutex::default(),
            recent: Mutex::default(),
            flights: Flights::new(PAGES_WAITING_MAX, "too many requests wait for upstreams"),
            downloads: Flights::new(FILES_WAITING_MAX, "too many files wait for their upstreams"),
            asking: Semaphore::new(ASKING_MAX),
            downloading: Semaphore::new(DOWNLOADS_MAX),
        })
    }

    fn names_in_memory(&self) -> Option<Arc<CachedPage>> {
        lock(&self.names).clone()
    }

    /// The key of something of this mirror on disk and in memory.
    fn key(&self, name: &str) -> Digest {
        Digest::of(format!("{}\n{name}", self.identity).as_bytes())
    }

    /// Checks that recent failures do not forbid to ask for this page now. A forced request may ask for a page that has failed.
    ///
    /// # Errors
    /// Why it may not.
    fn may_ask(
        &self,
        subject: &Subject,
        now: Duration,
        is_forced: bool,
    ) -> Result<(), UpstreamError> {
        let mut health = lock(&self.health);
        if let Some(failing) = health.pages.get_mut(subject)
            && !is_forced
            && !failing.breaker.admits(now)
        {
            return Err(failing.trouble.repeated(&format!("{} of {}", subject, self.stage)));
        }
        if !health.outage.admits(subject, now) {
            let trouble = health.trouble.clone();
            let trouble = trouble.unwrap_or_else(|| UpstreamError::new("several pages failed"));
            return Err(trouble.repeated(&format!("the upstream of {}", self.stage)));
        }
        Ok(())
    }

    fn succeeded(&self, subject: &Subject) {
        let mut health = lock(&self.health);
        health.pages.remove(subject);
        self.answered(&mut health);
    }

    fn answered(&self, health: &mut Health) {
        health.outage.answered();
        if health.trouble.take().is_some() {
            tracing::info!(mirror = self.stage, "the upstream answers again");
        }
    }

    fn failed(&self, subject: &Subject, now: Duration, trouble: &UpstreamError) {
        let mut health = lock(&self.health);
        let text = trouble.to_string();
        let is_told =
            |known: Option<&UpstreamError>| known.is_some_and(|it| it.to_string() == text);
        // Once for each kind of trouble.
        let known = health.pages.get(subject).map(|failing| &failing.trouble);
        if !is_told(known) && !is_told(health.trouble.as_ref()) {
            tracing::warn!(
                mirror = self.stage,
                trouble = text,
                "{subject} of an upstream cannot be fetched; the cached one is served, if there is one"
            );
        }
        match trouble.blame {
            Blame::Page => self.answered(&mut health),
            blame => {
                health.outage.failed(subject.clone(), now, blame);
                health.trouble = Some(trouble.clone());
            }
        }
        if health.pages.len() >= FAILING_MAX && !health.pages.contains_key(subject) {
            health.pages.retain(|_, failing| failing.breaker.retry_at() > now);
            if health.pages.len() >= FAILING_MAX {
                health.pages.clear();
            }
        }
        let trouble = trouble.clone();
        let failing = health.pages.entry(subject.clone());
        let failing = failing
            .and_modify(|failing| failing.trouble = trouble.clone())
            .or_insert_with(|| FailingPage { breaker: Breaker::default(), trouble });
        failing.breaker.failed(now);
    }

    /// Why the upstream fails: at its list, or as a whole.
    fn trouble(&self) -> Option<String> {
        let health = lock(&self.health);
        let list = health.pages.get(&Subject::List).map(|failing| &failing.trouble);
        health.trouble.as_ref().or(list).map(ToString::to_string)
    }
}
