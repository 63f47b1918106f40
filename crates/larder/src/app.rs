//! All that a request may touch.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use account::AclEntry;
use anyhow::Context;
use audit::Audit;
use config::{Config, DEMO_UPSTREAM_HOST};
use mirrors::Mirrors;
use net::{Egress, TrustedProxies};
use operations::Rules;
use passwords::{Bounds, Passwords};
use resources::bodies::Bodies;
use resources::cpu_pool::CpuPool;
use resources::free_space::FreeSpace;
use resources::turns::{Share, Turns};
use state::clocks::Clocks;
use state::live::Live;
use state::security::SecurityLog;
use state::stored::LiveStore;
use store::{BlobLocation, DatabaseLocation, Store};
use tokio::sync::{mpsc, oneshot};

use crate::cache::archives::Archives;
use crate::cache::contents::Contents;
use crate::cache::finished_pages::FinishedPages;
use crate::cache::open_zips::OpenZips;
use crate::cache::small_blobs::SmallBlobs;
use crate::changes::Changes;
use crate::changes::deltas::Deltas;
use crate::changes::webhooks::Webhooks;
use crate::endpoint::Surface;
use crate::metrics::Metrics;
use crate::metrics::rates::Rates;
use crate::prefetches::Prefetches;
use crate::published::advisories::{self, KnownAdvisories};
use crate::published::article_texts::ArticleTexts;
use crate::published::aur_published::AurPublished;
use crate::published::required_by::LiveRequiredBy;
use crate::rate_limit::RateLimiter;
use crate::side_files::SideFiles;
use crate::token_uses::TokenUses;

/// Answers of one surface that are made at once, if their cost grows with the data.
const ANSWERS_AT_ONCE: usize = 4;

/// Lists of projects that are made at once: the largest pages.
const LISTS_AT_ONCE: usize = 2;

/// Requests that wait for such an answer, and those that wait for a page that installers ask for.
const ANSWERS_WAITING_MAX: usize = 256;
const PAGES_WAITING_MAX: usize = 512;

/// Requests that wait for files which are being made for downloads.
const MAKING_WAITING_MAX: usize = 128;

/// How a wished-for reload ended: whether the data was new, or why it failed.
pub type ReloadOutcome = Result<bool, String>;

/// The disks of the database and of the blobs, where they are on this machine.
fn free_space(config: &Config) -> FreeSpace {
    // Uploads are spooled in the data directory, even if blobs are stored elsewhere.
    let mut places = vec![config.data_dir.clone()];
    if let DatabaseLocation::Sqlite(file) = config.database() {
        places.extend(file.parent().map(PathBuf::from));
    }
    if let BlobLocation::Directory(directory) = config.blobs() {
        places.push(directory);
    }
    FreeSpace::new(places, config.store.free_bytes_min)
}

/// What other tasks and requests can ask of the refresh task.
pub enum RefreshRequest {
    /// Look at the source now.
    Reload(oneshot::Sender<ReloadOutcome>),
    /// Ask a URL this often from now on.
    SetInterval(Duration),
}

/// State shared by all requests and tasks.
pub struct App {
    /// The configuration of the start.
    pub config: Config,
    /// The AUR's snapshot.
    pub aur: Live<AurPublished>,
    /// Users, articles and indexes, durable: records and blobs.
    pub store: Store,
    /// The published state of the store; writes go through it, too.
    pub live_store: LiveStore,
    /// This machine's clock, beside those of the store.
    pub clocks: Arc<Clocks>,
    /// Contents in memory.
    pub contents: Contents,
    /// Articles by the words in their texts.
    pub article_texts: ArticleTexts,
    /// Which projects of the Python index require which.
    pub(crate) required_by: LiveRequiredBy,
    /// Small release files and metadata in memory.
    pub files: SmallBlobs,
    /// Finished pages of the Python index.
    pub pages: pypi::Pages,
    /// Finished pages for people.
    pub(crate) finished_pages: FinishedPages,
    /// Mirrors of the Python index, and the cache of what their upstreams said.
    pub(crate) mirrors: Arc<Mirrors>,
    /// Locks whose files mirrors fetch ahead.
    pub(crate) prefetches: Prefetches,
    /// Known malware and vulnerabilities.
    pub(crate) advisories: KnownAdvisories,
    /// Turns to make answers whose cost grows with the data, by [`Surface`].
    pub(crate) making_answers: [Share; Surface::COUNT],
    /// Turns to make simple pages of projects.
    pub(crate) making_pages: Share,
    /// Turns to make simple pages with all projects of a stage.
    pub(crate) making_lists: Share,
    /// Turns to make a file for downloads that is not at hand: one at a time.
    pub(crate) making_downloads: Share,
    /// Turns to read whole OSV records.
    pub(crate) reading_advisories: Turns,
    /// Documentation of the Python index that is read now.
    pub documentation: OpenZips,
    /// Release files that people look into.
    pub(crate) archives: Archives,
    /// Checks passwords.
    pub passwords: Passwords,
    /// When tokens were used last.
    pub token_uses: TokenUses,
    /// What policies refused, and let pass.
    pub(crate) audit: Arc<Audit>,
    /// The settings that decisions depend on.
    pub(crate) rules: Arc<Rules>,
    /// Who did what, for the log.
    pub security: SecurityLog,
    /// Threads for work that only computes.
    pub cpu_pool: CpuPool,
    /// How many of these threads questions to the AUR may use.
    pub(crate) refined: Share,
    /// Memory for the bodies of requests.
    pub bodies: Bodies,
    /// Free space on the disks.
    pub free_space: Arc<FreeSpace>,
    /// When the server was started.
    pub started_at: Instant,
    /// What changed on each surface, and who follows it.
    pub(crate) changes: Changes,
    /// What differs between dumps.
    pub deltas: Deltas,
    /// The URLs that changes are posted to.
    pub(crate) webhooks: Webhooks,
    /// Everything that is counted.
    pub metrics: Metrics,
    /// How many requests a second were answered lately.
    pub(crate) rates: Rates,
    /// Requests per client.
    pub rate_limiter: RateLimiter,
    /// Proxies whose word about their clients is taken.
    pub trusted: TrustedProxies,
    /// Where this process may connect to on behalf of users.
    pub egress: Egress,
    /// Most packages in one answer; can be changed while running.
    pub results_max: AtomicUsize,
    /// How often a URL is asked, in seconds; can be changed while running.
    pub refresh_seconds: AtomicU64,
    /// By how many percent a dump may be smaller than the one that is served; can be changed while running.
    pub shrink_percent_max: AtomicU8,
    /// Whether the AUR's surface is off because no source is configured, rather than because an administrator switched it off.
    pub lacks_aur_source: bool,
    /// Why the last look at the source failed, if it did.
    pub aur_trouble: Mutex<Option<String>>,
    /// Files beside the record that were of no use.
    pub(crate) side_files: SideFiles,
    /// Wishes for the refresh task.
    pub refresh: mpsc::Sender<RefreshRequest>,
    is_stopping: AtomicBool,
    /// Why the server cannot go on, if it cannot.
    failure: tokio::sync::watch::Sender<Option<String>>,
}

impl App {
    /// The state of a server that has loaded nothing yet, and the wishes that its refresh task gets.
    ///
    /// # Errors
    /// If the system has no random numbers, or no threads.
    pub fn new(
        config: Config,
        store: Store,
    ) -> anyhow::Result<(App, mpsc::Receiver<RefreshRequest>)> {
        let (refresh, requests) = mpsc::channel(16);
        let aur = &config.aur;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let metrics = Metrics::new();
        let cpu_threads = match config.actions.cpu_threads {
            0 => cores.saturating_sub(1).max(1),
            threads => threads,
        };
        let cpu_pool =
            CpuPool::start(cpu_threads, config.actions.cpu_queue_max, metrics.cpu_pool.clone())
                .context("cannot start the threads for computations")?;
        let mut mirrors_egress = Egress::new(config.egress_allow.iter().copied());
        if config.demo {
            mirrors_egress = mirrors_egress.naming(DEMO_UPSTREAM_HOST);
        }
        let mirrors = Mirrors::open(
            &config.data_dir.join("mirrors"),
            mirrors::Budget {
                memory_bytes_max: config.python.mirror_memory_bytes_max,
                disk_bytes_max: config.python.mirror_disk_bytes_max,
                free_bytes_min: config.store.free_bytes_min,
                expiry: config.python.mirror_cache_expiry,
                is_offline: config.python.mirrors_offline,
            },
            mirrors_egress,
        )?;
        let clocks = Arc::new(Clocks::new(store.clone()));
        let mirrors = mirrors.sharing(store.blobs.cache(), config.python.mirror_shared_bytes_max);
        let app = App {
            aur: Live::default(),
            live_store: LiveStore::new(store.records.clone(), metrics.commits.clone()),
            store,
            clocks: clocks.clone(),
            contents: Contents::new(config.article.memory_bytes_max),
            article_texts: ArticleTexts::default(),
            required_by: LiveRequiredBy::default(),
            files: SmallBlobs::new(config.python.small_file_bytes_max),
            finished_pages: FinishedPages::default(),
            pages: pypi::Pages::new(
                pypi::PageBudget {
                    page_bytes_max: config.python.page_bytes_max,
                    list_bytes_max: config.python.list_bytes_max,
                },
                jiff::Timestamp::now,
            )
            .at(config.public_url.clone()),
            mirrors: Arc::new(mirrors),
            prefetches: Prefetches::default(),
            advisories: KnownAdvisories::default(),
            making_answers: std::array::from_fn(|_| {
                Share::new(ANSWERS_AT_ONCE, ANSWERS_WAITING_MAX)
            }),
            making_pages: Share::new(cores.max(2), PAGES_WAITING_MAX),
            making_lists: Share::new(LISTS_AT_ONCE, ANSWERS_WAITING_MAX),
            making_downloads: Share::one(MAKING_WAITING_MAX),
            reading_advisories: advisories::reading(),
            documentation: OpenZips::default(),
            archives: Archives::new(cores),
            passwords: Passwords::new(
                config.users.remember,
                cores,
                Bounds {
                    pair: config.users.wrong_passwords_max,
                    client: config.users.wrong_passwords_per_client_max,
                    account: config.users.wrong_passwords_per_account_max,
                },
                metrics.passwords.clone(),
            )?,
            token_uses: TokenUses::default(),
            rules: Arc::new(Rules::of(&config)),
            audit: Arc::new(Audit::new(
                audit::Log {
                    directory: config.data_dir.join("audit"),
                    bytes_max: config.python.audit_bytes_max,
                    days_max: config.python.audit_days_max,
                },
                config.python.audit_served,
                metrics.python.audit_lost.clone(),
                move || clocks.is_right(),
            )),
            security: SecurityLog::default(),
            cpu_pool,
            refined: Share::half(cpu_threads, config.actions.cpu_queue_max),
            bodies: Bodies::new(
                config.limits.bodies_memory_bytes_max,
                metrics.bodies_refused.clone(),
            ),
            free_space: Arc::new(free_space(&config)),
            changes: Changes::new(&config, metrics.subscribers.clone()),
            deltas: Deltas::new(&config.data_dir),
            started_at: Instant::now(),
            metrics,
            rates: Rates::default(),
            rate_limiter: RateLimiter::new(
                aur.rate_limit,
                aur.rate_limit_window,
                aur.rate_limit_clients_max,
            ),
            trusted: config.proxies(),
            webhooks: Webhooks::load(
                config.changes.webhooks_file.as_deref(),
                Egress::new(config.egress_allow.iter().copied()),
            )?,
            egress: Egress::new(config.egress_allow.iter().copied()),
            results_max: AtomicUsize::new(aur.results_max),
            refresh_seconds: AtomicU64::new(aur.refresh.as_secs()),
            shrink_percent_max: AtomicU8::new(aur.shrink_percent_max),
            lacks_aur_source: false,
            aur_trouble: Mutex::new(None),
            side_files: SideFiles::default(),
            refresh,
            is_stopping: AtomicBool::new(false),
            failure: tokio::sync::watch::Sender::new(None),
            config,
        };
        Ok((app, requests))
    }

    /// Most packages in one answer, now.
    pub fn results_max(&self) -> usize {
        self.results_max.load(Relaxed)
    }

    /// Why the server is not ready: a line for each reason; empty if it is ready.
    pub fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if self.is_stopping.load(Relaxed) {
            obstacles.push("shutdown: the server is stopping".to_owned());
        }
        if self.config.aur.enabled && self.aur.snapshot().is_none() {
            let trouble =
                self.aur_trouble().map_or_else(String::new, |trouble| format!(": {trouble}"));
            obstacles.push(format!("aur: no snapshot has been published yet{trouble}"));
        }
        if self.live_store.snapshot().is_none() {
            let trouble = self
                .live_store
                .trouble()
                .map_or_else(String::new, |trouble| format!(": {trouble}"));
            obstacles.push(format!("store: it is not loaded yet{trouble}"));
        }
        obstacles
    }

    /// Why the last look at the AUR's source failed, if it did.
    pub fn aur_trouble(&self) -> Option<String> {
        self.aur_trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Notes how the last look at the AUR's source went; says whether the trouble is new.
    pub fn set_aur_trouble(&self, trouble: Option<String>) -> bool {
        let mut current = self.aur_trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_new = *current != trouble;
        *current = trouble;
        is_new
    }

    /// Asks for a look at the source, and waits for how it went.
    pub async fn reload(&self) -> ReloadOutcome {
        let (outcome, answer) = oneshot::channel();
        let gone =
            || "the data is not refreshed: the server is stopping, or has no source".to_owned();
        self.refresh.send(RefreshRequest::Reload(outcome)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// The server cannot go on, and is to end.
    pub fn fail(&self, reason: String) {
        self.failure.send_replace(Some(reason));
    }

    /// Waits until the server cannot go on; returns why.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        let reason = failure.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    /// From now on the server is not ready.
    pub fn begin_shutdown(&self) {
        self.is_stopping.store(true, Relaxed);
        self.changes.closing.cancel();
    }

    /// Whether everybody may read articles.
    pub(crate) fn articles_are_open(&self) -> bool {
        self.config.article.acl_read.entries().contains(&AclEntry::Everybody)
    }
}
