//! The state that requests and tasks share: by surface, and the bounds that hold for all of them.

mod aur;
pub(crate) mod brand;
pub(crate) mod directory;
pub(crate) mod downloads;
pub(crate) mod following;
mod health;
pub mod keeper;
mod limits;
pub(crate) mod live_settings;
mod logins;
pub(crate) mod prefetches;
mod proxy_login;
mod python;
pub(crate) mod rate_limit;
pub(crate) mod side_files;
pub(crate) mod token_uses;

use std::sync::Arc;

use account::AclEntry;
use config::Config;
use net::Egress;
use operations::Rules;
use state::clocks::Clocks;
use state::stored::LiveStore;
use store::Store;
use tokio::sync::mpsc;

use self::brand::Brand;
use self::following::Following;
use self::health::Health;
use self::logins::Logins;
use crate::metrics::Metrics;
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

/// The webhooks of the configuration.
fn webhooks(config: &Config) -> anyhow::Result<Webhooks> {
    Webhooks::load(config.changes.webhooks_file.as_deref(), egress(config))
}

/// Checks the files that the configuration names and that a start reads in full.
///
/// # Errors
/// What is wrong in the file of webhooks, or with the logo.
pub fn check_files(config: &Config) -> anyhow::Result<()> {
    Brand::of(config)?;
    webhooks(config).map(drop)
}

/// Articles' part of the state.
pub struct Articles {
    /// Contents in memory.
    pub contents: Contents,
    /// Articles by the words in their texts.
    pub texts: ArticleTexts,
    /// Whether everybody may read them.
    pub is_open: bool,
}

/// How pages for people are made.
pub(crate) struct Pages {
    /// How they present this site.
    pub(crate) brand: Arc<Brand>,
    /// Those that are finished.
    pub(crate) finished: FinishedPages,
}

/// State shared by all requests and tasks.
pub struct App {
    /// The configuration of the start.
    pub config: Config,
    /// The settings that decisions depend on.
    pub(crate) rules: Arc<Rules>,
    /// What is served of the AUR.
    pub aur: Aur,
    /// The Python index, beside its records.
    pub python: Python,
    /// Articles, beside their records.
    pub articles: Articles,
    /// What changed on each surface, and who is told of it.
    pub(crate) changes: Changes,
    /// Users, articles and indexes, durable: records and blobs.
    pub store: Store,
    /// The published state of the store; writes go through it, too.
    pub live_store: LiveStore,
    /// The primary, if this server follows one.
    pub(crate) following: Option<Following>,
    /// Who else vouches for users and CI jobs, and what is noted of log-ins.
    pub(crate) logins: Logins,
    /// How much of the machine requests get.
    pub limits: Limits,
    /// How pages for people are made.
    pub(crate) pages: Pages,
    /// Everything that is counted.
    pub metrics: Metrics,
    /// How this process fares, and whether it goes on.
    pub(crate) health: Health,
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
            rules: Arc::new(Rules::of(&config)),
            aur: Aur::new(&config, cpu_threads, refresh),
            python: Python::new(&config, &store, clocks.clone(), cores, &metrics)?,
            articles: Articles {
                contents: Contents::new(config.article.memory_bytes_max),
                texts: ArticleTexts::default(),
                is_open: config.article.acl_read.entries().contains(&AclEntry::Everybody),
            },
            changes: Changes::new(&config, metrics.subscribers.clone(), webhooks(&config)?),
            live_store: LiveStore::new(store.records.clone(), metrics.commits.clone()),
            store,
            following: None,
            logins: Logins::new(&config, &limits.passwords, &metrics)?,
            limits,
            pages: Pages {
                brand: Arc::new(Brand::of(&config)?),
                finished: FinishedPages::default(),
            },
            metrics,
            health: Health::new(clocks),
            config,
        };
        Ok((app, requests))
    }

    /// Why the server is not ready: a line for each reason; empty if it is ready.
    pub fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if self.health.is_stopping() {
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

    /// From now on the server is not ready.
    pub fn begin_shutdown(&self) {
        self.health.stop();
        self.changes.closing.cancel();
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
