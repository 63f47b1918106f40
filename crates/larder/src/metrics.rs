//! Every metric, in one table; the doc comments are the help texts.
//!
//! goaurrpc's names stay as they are, because dashboards ask for them; Larder's own names begin with `larder_`. The counters
//! of requests are looked up beforehand: no label is hashed on the hot path.

mod counters;
mod maker;
pub(crate) mod rates;
mod times;

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aur::{By, Kind, QueryError, RequestKind};
use http::{Method, StatusCode};
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Registry, TextEncoder,
};
use resources::cpu_pool;
use state::stored;

use self::maker::{Maker, metrics, value};
use crate::published::changes;
use crate::routes::{Endpoint, Surface};

pub(crate) use self::times::{SAMPLED_OF, Stopwatch};

/// goaurrpc's buckets for `rpc_response_size_bytes`, in bytes.
const SIZE_BUCKETS: &[f64] = &[500.0, 1e3, 5e3, 1e4, 5e4, 1e5, 1e6, 2e6];

/// Methods of questions; any other one counts as the first, and reaches no question.
const METHODS: [&str; 3] = ["GET", "HEAD", "POST"];

/// The number of values of `type` in a request: all [`Kind`]s, and the older name of the first one.
const TYPES_COUNT: usize = Kind::ALL.len() + 1;

/// The result of a poll of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshResult {
    /// A new snapshot is served.
    Published,
    /// The source has nothing new.
    Unchanged,
    /// The old snapshot stays.
    Failed,
}

impl RefreshResult {
    fn label(self) -> &'static str {
        match self {
            RefreshResult::Published => "published",
            RefreshResult::Unchanged => "unchanged",
            RefreshResult::Failed => "failed",
        }
    }
}

metrics! {
    /// All metrics of one server.
    pub struct Metrics, made by make {
        /// The registry of all metrics.
        registry: Registry => make.0.clone();
        /// Valid questions, by method, type and field.
        rpc_requests: IntCounterVec = "rpc_requests" ["method", "type", "by"];
        /// Of [`Metrics::rpc_requests`]: by method, type and field.
        rpc_requests_known: Vec<OnceLock<IntCounter>>
            => empty_slots(METHODS.len() * TYPES_COUNT * By::ALL.len());
        /// Refused questions by the text of the error.
        rpc_errors: IntCounterVec = "rpc_requests_error" ["error"];
        /// Questions refused by the rate limit.
        pub rpc_rate_limited: IntCounter = "rpc_requests_rate_limited";
        /// Time from a question to its finished answer.
        pub rpc_duration: Histogram = "rpc_request_duration_seconds" [
            // goaurrpc's buckets.
            0.0001, 0.0003, 0.0005, 0.0007, 0.0009, 0.001, 0.003, 0.005, 0.01, 0.03, 0.05, 0.07, 0.1, 0.5, 1.0, 10.0,
        ];
        /// `rpc_response_size_bytes` by its label.
        rpc_sizes: ResponseSizes => ResponseSizes::made(make);
        /// When the data of the served snapshot was last modified at its source, in Unix seconds.
        rpc_data_last_refresh: Gauge = "rpc_data_last_refresh";
        /// Responses by surface and status.
        http_requests: IntCounterVec = "larder_http_requests_total" ["surface", "status"];
        /// Of [`Metrics::http_requests`]: by surface and status.
        http_requests_known: Vec<OnceLock<IntCounter>> => empty_slots(Surface::COUNT * STATUS_COUNT);
        /// How many requests a second were answered lately.
        pub(crate) rates: rates::Rates => rates::Rates::default();
        /// How long requests take.
        http_times: times::Times => make.registered(Ok(times::Times::new(
            "larder_http_request_seconds",
            &format!(
                "Time from a request to the head of its answer, by surface and route; of answers that are ready in memory one in {SAMPLED_OF} is timed, and counts for {SAMPLED_OF}."
            ),
        )));
        /// Connections, as the network layer counts them.
        pub connections: net::Counters => counters::connections(make);
        /// 1 where packages of the AUR are served, 0 where there is no source or they are switched off.
        pub aur_enabled: IntGauge = "larder_aur_enabled";
        /// Packages in the served snapshot.
        pub aur_packages: IntGauge = "larder_aur_packages";
        /// Package bases in the served snapshot.
        pub aur_package_bases: IntGauge = "larder_aur_package_bases";
        /// The same time as rpc_data_last_refresh, with fractions of a second.
        aur_snapshot_timestamp: Gauge = "larder_aur_snapshot_timestamp_seconds";
        /// Time to read a dump and build its snapshot.
        pub aur_refresh_seconds: Histogram = "larder_aur_refresh_seconds"
            [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0];
        /// Polls of the source by result.
        aur_refresh_total: IntCounterVec = "larder_aur_refresh_total" ["result"];
        /// 1 while the last poll of the source failed.
        pub aur_refresh_failing: IntGauge = "larder_aur_refresh_failing";
        /// Dumps that could not be written to the data directory; they are served nevertheless.
        pub aur_keep_failures: IntCounter = "larder_aur_keep_failures_total";
        /// Memory of the index of all words in articles, in bytes.
        pub article_text_bytes: IntGauge = "larder_article_search_bytes";
        /// The last commit that is served.
        pub store_serial: IntGauge = "larder_store_serial";
        /// Writes, as they are committed.
        pub commits: stored::Commits => counters::commits(make);
        /// Time since the last read of the store whose result is served: older commits are served, newer ones may not be.
        pub store_lag_seconds: Gauge = "larder_store_lag_seconds";
        /// Failures to read the store; the last state is served.
        pub store_read_failures: IntCounter = "larder_store_read_failures_total";
        /// 1 while the store lacks commits that were read from it, or is damaged; Larder does not write meanwhile.
        pub store_is_rewound: IntGauge = "larder_store_is_rewound";
        /// Seconds by which this machine's clock is ahead of the store's; negative if it is behind. If it is more than a minute
        /// off, Larder deletes nothing by age.
        pub clock_ahead_seconds: Gauge = "larder_clock_ahead_seconds";
        /// Blobs that no record named, deleted by this process.
        pub blobs_swept: IntCounter = "larder_blobs_swept_total";
        /// Bytes of the blobs that this process deleted.
        pub blobs_swept_bytes: IntCounter = "larder_blobs_swept_bytes_total";
        /// Sweeps of unnamed blobs that failed, or were refused because they would have deleted most blobs.
        pub blob_sweep_failures: IntCounter = "larder_blob_sweep_failures_total";
        /// Blobs that were read in the background and compared with their digest.
        pub blobs_verified: IntCounter = "larder_blobs_verified_total";
        /// Blobs that records name and that were found missing or damaged.
        pub blobs_damaged: IntGauge = "larder_blobs_damaged";
        /// Free bytes on the disk of the database or of the blobs, whichever has fewer.
        pub store_free_bytes: IntGauge = "larder_store_free_bytes";
        /// Free bytes below which only administrators may write; 0 without such a bound.
        pub store_free_bytes_min: IntGauge = "larder_store_free_bytes_min";
        /// Servers that follow this one now.
        pub followers: IntGauge = "larder_followers";
        /// 1 where this server follows a primary.
        pub follower: IntGauge = "larder_follower";
        /// 1 while this server is connected to the primary that it follows.
        pub follow_connected: IntGauge = "larder_follow_connected";
        /// Seconds for which this server may lack commits of the primary that it follows: 0 while it is connected and has all.
        pub follow_lag_seconds: Gauge = "larder_follow_lag_seconds";
        /// Commits of the primary that this server knows of and lacks.
        pub follow_serials_behind: IntGauge = "larder_follow_serials_behind";
        /// Seconds for which the packages of the AUR may lack changes, where they come from the primary: 0 while they are the same.
        pub follow_aur_lag_seconds: Gauge = "larder_follow_aur_lag_seconds";
        /// Connections to the primary that this server has made.
        pub follow_connections: IntCounter = "larder_follow_connections_total";
        /// Records that this server has taken from the primary.
        pub follow_records: IntCounter = "larder_follow_records_total";
        /// Blobs that this server has taken from the primary.
        pub follow_blobs: IntCounter = "larder_follow_blobs_total";
        /// Bytes of these blobs.
        pub follow_blob_bytes: IntCounter = "larder_follow_blob_bytes_total";
        /// Answers about mirrors that this server has taken from the primary: pages, lists and files.
        pub follow_mirrored: IntCounter = "larder_follow_mirrored_total";
        /// Missing blobs that the primary could not provide, where all are copied; they are retried.
        pub follow_blobs_missing: IntGauge = "larder_follow_blobs_missing";
        /// Memory of request bodies now, in bytes.
        pub body_memory_bytes: IntGauge = "larder_http_body_memory_bytes";
        /// Requests refused because the memory for bodies was taken.
        pub bodies_refused: IntCounter = "larder_http_bodies_refused_total";
        /// Clients that the rate limit remembers.
        pub rate_limit_clients: IntGauge = "larder_rate_limit_clients";
        /// The Python index.
        pub python: PythonMetrics => PythonMetrics::made(make);
        /// Credentials that were refused, by what they were: wrong_password, wrong_password_again (known to be wrong),
        /// token, login, disabled, malformed, no_password, admin_key.
        login_failures: IntCounterVec = "larder_login_failures_total" ["reason"];
        /// Log-ins that the directory was asked about, by its answer: right, wrong, failed.
        pub ldap_logins: IntCounterVec = "larder_ldap_logins_total" ["result"];
        /// Time that the directory took for a log-in.
        pub ldap_seconds: Histogram = "larder_ldap_login_seconds" [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
        /// Log-ins that wait for the directory.
        pub ldap_waiting: IntGauge = "larder_ldap_logins_waiting";
        /// Requests for an upload token with the identity of a CI job, by their result: minted, refused, unavailable.
        upload_tokens: IntCounterVec = "larder_upload_tokens_total" ["result"];
        /// Log-ins at identity providers, by provider and result: opened, linked, refused, unavailable.
        provider_logins: IntCounterVec = "larder_provider_logins_total" ["provider", "result"];
        /// Passwords, as they are checked.
        pub passwords: passwords::Counters => counters::passwords(make, &login_failures);
        /// Clients that follow a feed of changes.
        pub subscribers: changes::Counters => counters::subscribers(make);
        /// Deliveries to webhooks, by their name and result: ok, failed.
        webhook_deliveries: IntCounterVec = "larder_webhook_deliveries_total" ["webhook", "result"];
        /// Webhooks whose deliveries fail now.
        pub webhooks_failing: IntGauge = "larder_webhooks_failing";
        /// Changes that a webhook was not told of yet, by its name.
        webhook_waiting: IntGaugeVec = "larder_webhook_waiting" ["webhook"];
        /// Age of the oldest undelivered change, or of the failure to deliver, in seconds, by the name of the webhook.
        webhook_lag_seconds: IntGaugeVec = "larder_webhook_lag_seconds" ["webhook"];
        /// Actions by name and outcome: ok, refused, unavailable, failed.
        actions: IntCounterVec = "larder_actions_total" ["action", "outcome"];
        /// Pages for people that were served from the cache of rendered pages.
        pub pages_from_memory: IntCounter = "larder_pages_from_memory_total";
        /// Computations, as their threads count them.
        pub cpu_pool: cpu_pool::Counters => counters::computations(make);
    }
}

metrics! {
    /// What the Python index counts.
    pub struct PythonMetrics, made by make {
        /// Simple pages that were made, because what they show had changed or was not in memory.
        pages_rendered: IntCounter = "larder_python_pages_rendered_total";
        /// Lists of projects that were made.
        lists_rendered: IntCounter = "larder_python_lists_rendered_total";
        /// Finished simple pages in memory.
        pages: IntGauge = "larder_python_pages";
        /// Memory of finished simple pages and their encodings, in bytes.
        page_bytes: IntGauge = "larder_python_page_bytes";
        /// Finished lists of projects in memory.
        lists: IntGauge = "larder_python_lists";
        /// Memory of finished lists of projects and their encodings, in bytes.
        list_bytes: IntGauge = "larder_python_list_bytes";
        /// Uploads by outcome: stored, refused.
        uploads: IntCounterVec = "larder_python_uploads_total" ["outcome"];
        /// Uploads with attestations, by what became of these: verified, unverified, refused.
        attested: IntCounterVec = "larder_python_attested_uploads_total" ["outcome"];
        /// Bytes of uploaded files that arrived, stored or not.
        upload_bytes: IntCounter = "larder_python_upload_bytes_total";
        /// Old versions that this process removed by the rules of indexes.
        retention_versions: IntCounter = "larder_python_retention_versions_total";
        /// Bytes of the files of those versions.
        retention_bytes: IntCounter = "larder_python_retention_bytes_total";
        /// Indexes whose rule could not be applied.
        retention_failures: IntCounter = "larder_python_retention_failures_total";
        /// Requests of mirrors to their upstreams.
        mirror_requests: IntCounter = "larder_mirror_requests_total";
        /// Failed requests of mirrors for pages and lists of their upstreams.
        mirror_failures: IntCounter = "larder_mirror_failures_total";
        /// Pages and lists that were served although their upstream had not confirmed them in time.
        mirror_stale: IntCounter = "larder_mirror_stale_total";
        /// Pages, lists and files of mirrors that were taken from the cache that processes share.
        mirror_shared: IntCounter = "larder_mirror_shared_total";
        /// Disk space of the mirrors' cache, in bytes.
        mirror_disk_bytes: IntGauge = "larder_mirror_disk_bytes";
        /// Mirrors whose upstream fails for its list or for more than one page.
        mirrors_failing: IntGauge = "larder_mirrors_failing";
        /// Files that policies left out of pages when they were made.
        policy_hidden: IntCounter = "larder_policy_hidden_files_total";
        /// Requests for files that a policy refused, by rule.
        policy_refused: IntCounterVec = "larder_policy_refused_total" ["rule"];
        /// OSV records in use, by kind: malware, vulnerability; withdrawn records do not count as malware.
        osv_records: IntGaugeVec = "larder_osv_records" ["kind"];
        /// Files in the bundle that are not valid OSV records.
        osv_unreadable: IntGauge = "larder_osv_unreadable_records";
        /// When the OSV records in use were last modified at their source, in Unix seconds.
        osv_timestamp: Gauge = "larder_osv_bundle_timestamp_seconds";
        /// Polls of the source of OSV records by result.
        osv_refreshes: IntCounterVec = "larder_osv_refresh_total" ["result"];
        /// 1 while the last poll of the source of OSV records failed.
        osv_refresh_failing: IntGauge = "larder_osv_refresh_failing";
        /// Entries that the audit log has lost, because they arrived faster than they could be written.
        pub audit_lost: IntCounter = "larder_audit_lost_total";
        /// Held while the counters are brought up to date.
        updating: Mutex<()> => Mutex::new(());
    }
}

/// `rpc_response_size_bytes` by its label.
struct ResponseSizes {
    info: Histogram,
    search: Histogram,
    maintainer_search: Histogram,
    error: Histogram,
}

impl ResponseSizes {
    fn made(make: &Maker) -> ResponseSizes {
        let help = "Size of answers before compression, by the type that they name; suggestions name none.";
        let opts =
            HistogramOpts::new("rpc_response_size_bytes", help).buckets(SIZE_BUCKETS.to_vec());
        let sizes = make.registered(HistogramVec::new(opts, &["type"]));
        ResponseSizes {
            info: sizes.with_label_values(&["multiinfo"]),
            search: sizes.with_label_values(&["search"]),
            maintainer_search: sizes.with_label_values(&["msearch"]),
            error: sizes.with_label_values(&["error"]),
        }
    }
}

impl Metrics {
    /// Counts a delivery that a webhook took.
    pub(crate) fn webhook_delivered(&self, name: &str) {
        self.webhook_deliveries.with_label_values(&[name, "ok"]).inc();
    }

    /// Notes what a webhook was not told of yet, and for how long.
    pub(crate) fn webhook_is_behind(&self, name: &str, waiting: usize, lag: Duration) {
        let value = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.webhook_waiting.with_label_values(&[name]).set(value(waiting as u64));
        self.webhook_lag_seconds.with_label_values(&[name]).set(value(lag.as_secs()));
    }

    /// Counts a delivery that failed.
    pub(crate) fn webhook_failed(&self, name: &str) {
        self.webhook_deliveries.with_label_values(&[name, "failed"]).inc();
    }
}

impl PythonMetrics {
    /// Counts an upload by how it ended: `stored` or `refused`.
    pub fn uploaded(&self, outcome: &str) {
        self.uploads.with_label_values(&[outcome]).inc();
    }

    /// Counts an upload with attestations: `verified`, `unverified` or `refused`.
    pub(crate) fn attested(&self, outcome: &str) {
        self.attested.with_label_values(&[outcome]).inc();
    }

    /// Counts the bytes of a release file or of documentation, as they come.
    pub(crate) fn upload_bytes(&self, bytes: usize) {
        self.upload_bytes.inc_by(bytes as u64);
    }

    /// Counts the versions that the rules of stages removed, and the bytes of their files.
    pub(crate) fn versions_removed(&self, versions: u64, bytes: u64) {
        self.retention_versions.inc_by(versions);
        self.retention_bytes.inc_by(bytes);
    }

    /// Counts a stage whose rule could not be applied.
    pub(crate) fn retention_failed(&self) {
        self.retention_failures.inc();
    }

    /// Counts a request for a file that a rule of a policy refused.
    pub(crate) fn policy_refused(&self, rule: pypi::policy::RuleName) {
        self.policy_refused.with_label_values(&[rule.as_str()]).inc();
    }

    /// Copies the numbers that the pages and mirrors count themselves.
    pub(crate) fn update(&self, counts: pypi::PageCounts, mirrors: mirrors::Counts) {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let raise = |counter: &IntCounter, to: u64| {
            counter.inc_by(to.saturating_sub(counter.get()));
        };
        raise(&self.pages_rendered, counts.rendered);
        raise(&self.lists_rendered, counts.rendered_lists);
        raise(&self.mirror_requests, mirrors.requests);
        raise(&self.mirror_failures, mirrors.failures);
        raise(&self.mirror_stale, mirrors.stale);
        raise(&self.mirror_shared, mirrors.shared);
        raise(&self.policy_hidden, counts.hidden_files + mirrors.hidden_files);
        let set = |gauge: &IntGauge, to: u64| gauge.set(i64::try_from(to).unwrap_or(i64::MAX));
        set(&self.pages, counts.pages as u64);
        set(&self.page_bytes, counts.page_bytes);
        set(&self.lists, counts.lists as u64);
        set(&self.list_bytes, counts.list_bytes);
        set(&self.mirror_disk_bytes, mirrors.disk_bytes);
        set(&self.mirrors_failing, mirrors.failing);
    }
}

impl Metrics {
    /// Makes and registers all metrics.
    pub fn new() -> Metrics {
        let make = Maker(Registry::new());
        let build: IntGaugeVec = make.metric(
            "larder_build_info",
            "Which build is running; always 1.",
            &["version", "commit"],
        );
        build.with_label_values(&[version::VERSION, version::COMMIT]).set(1);
        // goaurrpc has a cache of search results; there is none here, and dashboards still ask.
        let _: IntCounter = make.metric(
            "rpc_cache_hits",
            "Answers from a cache of search results: there is none, so always 0.",
            &[],
        );
        if cfg!(target_os = "linux") {
            let process = prometheus::process_collector::ProcessCollector::for_self();
            make.0.register(Box::new(process)).expect("metric names are unique");
        }
        Metrics::made(&make)
    }

    /// Counts an answered question.
    pub fn answered(&self, method: &Method, asked: RequestKind, body_bytes: usize) {
        self.asked(method, asked);
        let sizes = &self.rpc_sizes;
        let size = match asked.kind {
            Kind::Info => &sizes.info,
            Kind::Search => &sizes.search,
            Kind::MaintainerSearch => &sizes.maintainer_search,
            // goaurrpc does not count these either; with them a dashboard's mean would change.
            _ => return,
        };
        size.observe(body_bytes as f64);
    }

    /// Counts a question that is refused because it finds more packages than one answer may have.
    pub(crate) fn found_too_many(&self, method: &Method, asked: RequestKind, body_bytes: usize) {
        self.asked(method, asked);
        self.rpc_sizes.error.observe(body_bytes as f64);
    }

    fn asked(&self, method: &Method, asked: RequestKind) {
        let method = match *method {
            Method::POST => 2,
            Method::HEAD => 1,
            _ => 0,
        };
        let type_ = if asked.is_multiinfo { Kind::ALL.len() } else { asked.kind as usize };
        let at = (method * TYPES_COUNT + type_) * By::ALL.len() + asked.by as usize;
        self.rpc_requests_known[at]
            .get_or_init(|| {
                let type_ = if asked.is_multiinfo { "multiinfo" } else { asked.kind.name() };
                self.rpc_requests.with_label_values(&[METHODS[method], type_, asked.by.name()])
            })
            .inc();
    }

    /// Counts a refused question.
    pub fn refused(&self, error: QueryError) {
        self.rpc_errors.with_label_values(&[&error.to_string()]).inc();
    }

    /// Counts an action; `action` is one of the table's names, never a client's text.
    pub fn acted(&self, action: &str, outcome: &str) {
        self.actions.with_label_values(&[action, outcome]).inc();
    }

    /// Counts credentials that did not hold; `reason` is one of few. Passwords count themselves.
    pub fn login_failed(&self, reason: &'static str) {
        self.login_failures.with_label_values(&[reason]).inc();
    }

    /// Counts a log-in at an identity provider, whose name is one of the configuration's.
    pub(crate) fn provider_login(&self, provider: &str, result: &'static str) {
        self.provider_logins.with_label_values(&[provider, result]).inc();
    }

    /// Counts a request for an upload token.
    pub(crate) fn upload_token(&self, result: &'static str) {
        self.upload_tokens.with_label_values(&[result]).inc();
    }

    /// Counts a response, and the time that it took.
    pub(crate) fn responded(&self, endpoint: Endpoint, status: StatusCode, stopwatch: Stopwatch) {
        self.http_times.add(endpoint, stopwatch);
        let surface = endpoint.surface();
        let number = usize::from(status.as_u16());
        let known = self
            .http_requests_known
            .get(surface as usize * STATUS_COUNT + number.min(STATUS_COUNT - 1));
        let count = |slot: &OnceLock<IntCounter>| {
            slot.get_or_init(|| {
                self.http_requests.with_label_values(&[surface.name(), status.as_str()])
            })
            .inc();
        };
        known.map(count);
    }

    /// How many requests each surface has answered.
    pub(crate) fn requests_by_surface(&self) -> [u64; Surface::COUNT] {
        let mut counts = [0; Surface::COUNT];
        let slots = self.http_requests_known.chunks(STATUS_COUNT);
        for (count, slots) in counts.iter_mut().zip(slots) {
            *count = slots.iter().filter_map(|slot| Some(slot.get()?.get())).sum();
        }
        counts
    }

    /// Notes the time of a newly published snapshot's data, in Unix seconds.
    pub fn published(&self, modified_at: f64) {
        // goaurrpc takes whole seconds.
        self.rpc_data_last_refresh.set(modified_at.floor());
        self.aur_snapshot_timestamp.set(modified_at);
    }

    /// Counts a look at the source.
    pub fn refreshed(&self, result: RefreshResult) {
        self.aur_refresh_total.with_label_values(&[result.label()]).inc();
        self.aur_refresh_failing.set(i64::from(result == RefreshResult::Failed));
    }

    /// Counts a look at the source of OSV records.
    pub(crate) fn osv_refreshed(&self, result: RefreshResult) {
        self.python.osv_refreshes.with_label_values(&[result.label()]).inc();
        self.python.osv_refresh_failing.set(i64::from(result == RefreshResult::Failed));
    }

    /// Notes the OSV records that count from now on.
    pub(crate) fn osv_published(
        &self,
        advisories: &pypi::osv::Advisories,
        unreadable: u64,
        modified_at: std::time::SystemTime,
    ) {
        let python = &self.python;
        let set = |kind: &str, count: usize| {
            python.osv_records.with_label_values(&[kind]).set(count as i64);
        };
        set("malware", advisories.malware());
        set("vulnerability", advisories.vulnerabilities());
        python.osv_unreadable.set(unreadable as i64);
        let since = modified_at.duration_since(std::time::UNIX_EPOCH);
        python.osv_timestamp.set(since.map_or(0.0, |since| since.as_secs_f64()));
    }

    /// All metrics in Prometheus' text format, version 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// Statuses have three digits; all unknown ones share the last slot.
const STATUS_COUNT: usize = 600;

fn empty_slots(count: usize) -> Vec<OnceLock<IntCounter>> {
    (0..count).map(|_| OnceLock::new()).collect()
}
