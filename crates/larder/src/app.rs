//! The state that requests and tasks share: by surface, and the bounds that hold for all of them.

mod aur;
pub(crate) mod brand;
pub(crate) mod directory;
pub(crate) mod downloads;
pub(crate) mod following;
pub mod keeper;
mod limits;
pub(crate) mod live_settings;
pub(crate) mod prefetches;
mod proxy_login;
mod python;
pub(crate) mod rate_limit;
pub(crate) mod side_files;
pub(crate) mod token_uses;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use account::AclEntry;
use config::{Config, Environment, read_providers};
use issuers::{Attestations, Issuers, Provider};
use net::Egress;
use operations::Rules;
use state::clocks::Clocks;
use state::security::SecurityLog;
use state::stored::LiveStore;
use store::Store;
use tokio::sync::mpsc;

use self::brand::Brand;
use self::directory::Directory;
use self::downloads::Downloads;
use self::following::Following;
use self::proxy_login::ProxyLogin;
use self::side_files::SideFiles;
use self::token_uses::TokenUses;
use crate::metrics::Metrics;
use crate::metrics::rates::Rates;
use crate::published::article_texts::ArticleTexts;
use crate::published::changes::Changes;
use crate::published::changes::webhooks::Webhooks;
use crate::published::contents::Contents;
use crate::published::finished_pages::FinishedPages;

pub use self::aur::{Aur, RefreshRequest, ReloadOutcome};
pub use self::limits::Limits;
pub(crate) use self::limits::{FOLLOWERS_MAX, FOLLOWERS_PER_USER_MAX};
pub use self::python::Python;

/// Requests that wait for an answer whose cost grows with the data, of each kind.
const ANSWERS_WAITING_MAX: usize = 256;

/// Where this process may connect to on behalf of users.
fn egress(config: &Config) -> Egress {
    Egress::new(config.egress_allow.iter().copied())
}

/// The identity providers of the configuration.
fn providers(config: &Config) -> anyhow::Result<Vec<Provider>> {
    let Some(path) = &config.oidc.providers_file else { return Ok(Vec::new()) };
    let named = |problem| anyhow::anyhow!("oidc.providers_file = {}: {problem}", path.display());
    let settings = read_providers(path, &Environment::of_process()).map_err(named)?;
    settings.into_iter().map(|settings| Provider::new(settings, &egress(config))).collect()
}

/// Checks the files that the configuration names and that a start reads in full.
///
/// # Errors
/// What is wrong in the file of webhooks, or with the logo.
pub fn check_files(config: &Config) -> anyhow::Result<()> {
    Brand::of(config)?;
    Webhooks::load(config.changes.webhooks_file.as_deref(), egress(config)).map(drop)
}

/// Articles' part of the state.
pub struct Articles {
    /// Contents in memory.
    pub contents: Contents,
    /// Articles by the words in their texts.
    pub texts: ArticleTexts,
}

/// State shared by all requests and tasks.
pub struct App {
    /// The configuration of the start.
    pub config: Config,
    /// What is served of the AUR.
    pub aur: Aur,
    /// The Python index, beside its records.
    pub python: Python,
    /// Articles, beside their records.
    pub articles: Articles,
    /// How much of the machine requests get.
    pub limits: Limits,
    /// Users, articles and indexes, durable: records and blobs.
    pub store: Store,
    /// The published state of the store; writes go through it, too.
    pub live_store: LiveStore,
    /// This machine's clock, beside those of the store.
    pub clocks: Arc<Clocks>,
    /// When tokens were used last.
    pub token_uses: TokenUses,
    /// How often releases are downloaded.
    pub(crate) downloads: Downloads,
    /// Issuers of identities of CI jobs, with their keys.
    pub(crate) issuers: Issuers,
    /// What verifies the attestations of those jobs.
    pub(crate) attestations: Attestations,
    /// The directory that knows users, if one is configured.
    pub(crate) directory: Option<Directory>,
    /// The headers in which proxies name users, if any is believed.
    pub(crate) proxy_login: Option<ProxyLogin>,
    /// Identity providers where people log in.
    pub(crate) providers: Vec<Provider>,
    /// Files beside the record that were of no use.
    pub(crate) side_files: SideFiles,
    /// What changed on each surface, and who follows it.
    pub(crate) changes: Changes,
    /// The URLs that changes are posted to.
    pub(crate) webhooks: Webhooks,
    /// Finished pages for people.
    pub(crate) finished_pages: FinishedPages,
    /// How pages present this site.
    pub(crate) brand: Arc<Brand>,
    /// The settings that decisions depend on.
    pub(crate) rules: Arc<Rules>,
    /// Who did what, for the log.
    pub security: SecurityLog,
    /// Everything that is counted.
    pub metrics: Metrics,
    /// How many requests a second were answered lately.
    pub(crate) rates: Rates,
    /// When the server was started.
    pub started_at: Instant,
    /// The primary, if this server follows one.
    pub(crate) following: Option<Following>,
    is_left_behind: AtomicBool,
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
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu_threads = match config.actions.cpu_threads {
            0 => cores.saturating_sub(1).max(1),
            threads => threads,
        };
        let metrics = Metrics::new();
        let clocks = Arc::new(Clocks::new(store.clone()));
        let limits = Limits::new(&config, cpu_threads, cores, &metrics)?;
        let app = App {
            aur: Aur::new(&config, cpu_threads, refresh),
            python: Python::new(&config, &store, clocks.clone(), cores, &metrics)?,
            articles: Articles {
                contents: Contents::new(config.article.memory_bytes_max),
                texts: ArticleTexts::default(),
            },
            directory: Directory::of(&config, &limits.passwords, &metrics)?,
            proxy_login: ProxyLogin::of(&config)?,
            limits,
            live_store: LiveStore::new(store.records.clone(), metrics.commits.clone()),
            downloads: Downloads::of(
                &store,
                config.python.enabled && config.python.count_downloads,
            ),
            store,
            clocks,
            token_uses: TokenUses::default(),
            issuers: Issuers::new(
                &config.publishing.issuers,
                &config.publishing_audience(),
                &egress(&config),
            )?,
            attestations: Attestations::new(config.publishing.sigstore_root.as_deref())
                .map_err(|problem| anyhow::anyhow!("publishing.sigstore_root: {problem}"))?,
            providers: providers(&config)?,
            side_files: SideFiles::default(),
            changes: Changes::new(&config, metrics.subscribers.clone()),
            webhooks: Webhooks::load(config.changes.webhooks_file.as_deref(), egress(&config))?,
            finished_pages: FinishedPages::default(),
            brand: Arc::new(Brand::of(&config)?),
            rules: Arc::new(Rules::of(&config)),
            security: SecurityLog::default(),
            metrics,
            rates: Rates::default(),
            started_at: Instant::now(),
            following: None,
            is_left_behind: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            failure: tokio::sync::watch::Sender::new(None),
            config,
        };
        Ok((app, requests))
    }

    /// Why the server is not ready: a line for each reason; empty if it is ready.
    pub fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if self.is_stopping.load(Relaxed) {
            obstacles.push("shutdown: the server is stopping".to_owned());
        }
        let awaits_packages = match self.aur.is_on() {
            true => self.aur.snapshot().is_none(),
            // If they cannot be had, everything else is served.
            false => self.aur.awaits_primary && self.aur.trouble().is_none(),
        };
        if awaits_packages {
            let trouble =
                self.aur.trouble().map_or_else(String::new, |trouble| format!(": {trouble}"));
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

#[cfg(test)]
impl App {
    /// The state of a server with an empty store, and its directory.
    pub(crate) async fn for_test() -> (Arc<App>, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
        let store = state::setup::open(&config).await.expect("a store");
        let (app, _requests) = App::new(config, store).expect("an app");
        (Arc::new(app), directory)
    }
}
