//! [`Python`]: pages and files of the Python index in memory, its mirrors, and what its answers may take.

use std::sync::Arc;

use audit::Audit;
use config::{Config, DEMO_UPSTREAM_HOST};
use issuers::Attestations;
use mirrors::Mirrors;
use resources::turns::{ThreadShare, Turns};
use state::clocks::Clocks;
use store::Store;

use super::downloads::Downloads;
use super::prefetches::Prefetches;
use super::{ANSWERS_WAITING_MAX, egress};
use crate::metrics::Metrics;
use crate::published::advisories::{self, KnownAdvisories};
use crate::published::archives::Archives;
use crate::published::open_zips::OpenZips;
use crate::published::required_by::LiveRequiredBy;
use crate::published::small_blobs::SmallBlobs;
use crate::published::tox_outcomes::ToxOutcomes;

/// Lists of projects that are made at once: the largest pages.
const LISTS_AT_ONCE: usize = 2;

/// Requests that wait for a page that installers ask for.
const PAGES_WAITING_MAX: usize = 512;

/// The Python index's part of the state.
pub struct Python {
    /// Finished simple pages.
    pub pages: pypi::Pages,
    /// Small release files and metadata in memory.
    pub small_files: SmallBlobs,
    /// Mirrors, and the cache of what their upstreams said.
    pub(crate) mirrors: Arc<Mirrors>,
    /// Locks whose files mirrors fetch ahead.
    pub(crate) prefetches: Prefetches,
    /// Known malware and vulnerabilities.
    pub(crate) advisories: KnownAdvisories,
    /// Turns to read whole OSV records.
    pub(crate) reading_advisories: Turns,
    /// Which projects require which.
    pub(crate) required_by: LiveRequiredBy,
    /// Documentation that is read now.
    pub documentation: OpenZips,
    /// Release files that people look into.
    pub(crate) archives: Archives,
    /// How test results ended.
    pub(crate) tox_outcomes: ToxOutcomes,
    /// Turns to make simple pages of projects.
    pub(crate) making_pages: ThreadShare,
    /// Turns to make simple pages with all projects of a stage.
    pub(crate) making_lists: ThreadShare,
    /// How often releases are downloaded.
    pub(crate) downloads: Downloads,
    /// What verifies the attestations of CI jobs that upload.
    pub(crate) attestations: Attestations,
    /// What policies refused, and let pass.
    pub(crate) audit: Arc<Audit>,
}

impl Python {
    pub(super) fn new(
        config: &Config,
        store: &Store,
        clocks: Arc<Clocks>,
        cores: usize,
        metrics: &Metrics,
    ) -> anyhow::Result<Python> {
        let python = &config.python;
        let budget = pypi::PageBudget {
            page_bytes_max: python.page_bytes_max,
            list_bytes_max: python.list_bytes_max,
        };
        let log = audit::Log {
            directory: config.data_dir.join("audit"),
            bytes_max: python.audit_bytes_max,
            days_max: python.audit_days_max,
        };
        let audit = Audit::new(log, metrics.python.audit_lost.clone(), move || clocks.is_right());
        Ok(Python {
            pages: pypi::Pages::new(budget, jiff::Timestamp::now).at(config.public_url.clone()),
            small_files: SmallBlobs::new(python.small_file_bytes_max),
            mirrors: Arc::new(open_mirrors(config, store)?),
            prefetches: Prefetches::default(),
            advisories: KnownAdvisories::default(),
            reading_advisories: advisories::reading(),
            required_by: LiveRequiredBy::default(),
            documentation: OpenZips::default(),
            archives: Archives::new(cores),
            tox_outcomes: ToxOutcomes::default(),
            making_pages: ThreadShare::new(cores.max(2), PAGES_WAITING_MAX),
            making_lists: ThreadShare::new(LISTS_AT_ONCE, ANSWERS_WAITING_MAX),
            downloads: Downloads::of(store, python.enabled && python.count_downloads),
            attestations: Attestations::new(config.publishing.sigstore_root.as_deref())
                .map_err(|problem| anyhow::anyhow!("publishing.sigstore_root: {problem}"))?,
            audit: Arc::new(audit),
        })
    }
}

fn open_mirrors(config: &Config, store: &Store) -> anyhow::Result<Mirrors> {
    let python = &config.python;
    let budget = mirrors::Budget {
        memory_bytes_max: python.mirror_memory_bytes_max,
        disk_bytes_max: python.mirror_disk_bytes_max,
        free_bytes_min: config.store.free_bytes_min,
        expiry: python.mirror_cache_expiry,
        is_offline: python.mirrors_offline,
    };
    let egress = match config.demo {
        true => egress(config).naming(DEMO_UPSTREAM_HOST),
        false => egress(config),
    };
    let mirrors = Mirrors::open(&config.data_dir.join("mirrors"), budget, egress)?;
    Ok(mirrors.sharing(store.blobs.cache(), python.mirror_shared_bytes_max))
}
