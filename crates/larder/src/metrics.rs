//! Everything that is counted, in one place; the help texts are the documentation.
//!
//! goaurrpc's names are kept to the letter, as dashboards ask for them; names of ours begin with
//! `larder_`. What a request counts is looked up beforehand: no label is hashed on the hot path.

mod times;

use std::sync::{Mutex, OnceLock, PoisonError};

use aur::{Asked, By, Kind, QueryError};
use http::{Method, StatusCode};
use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::endpoint::{Endpoint, Surface};
use crate::{cpu_pool, passwords, stored};

pub use self::times::{SAMPLED_OF, Stopwatch};

/// goaurrpc's buckets for `rpc_request_duration_seconds`, in seconds.
const DURATION_BUCKETS: &[f64] = &[
    0.0001, 0.0003, 0.0005, 0.0007, 0.0009, 0.001, 0.003, 0.005, 0.01, 0.03, 0.05, 0.07, 0.1, 0.5,
    1.0, 10.0,
];

/// goaurrpc's buckets for `rpc_response_size_bytes`, in bytes.
const SIZE_BUCKETS: &[f64] = &[500.0, 1e3, 5e3, 1e4, 5e4, 1e5, 1e6, 2e6];

/// Methods of questions; any other one counts as the first, and reaches no question.
const METHODS: [&str; 3] = ["GET", "HEAD", "POST"];

/// The values of `type` in a request: those of [`Kind`], and the older name of its first.
const TYPES_COUNT: usize = Kind::ALL.len() + 1;

/// How a look at the source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshResult {
    /// A new snapshot is served.
    Published,
    /// The source has nothing new.
    Unchanged,
    /// The old snapshot stays.
    Failed,
}

/// All metrics of one server.
pub struct Metrics {
    registry: Registry,
    rpc_requests: IntCounterVec,
    /// Of [`Metrics::rpc_requests`]: by method, type and field.
    rpc_requests_known: Vec<OnceLock<IntCounter>>,
    rpc_errors: IntCounterVec,
    /// Requests refused by the rate limit.
    pub rpc_rate_limited: IntCounter,
    /// Time from a request's arrival to its finished answer.
    pub rpc_duration: Histogram,
    rpc_sizes: ResponseSizes,
    rpc_data_last_refresh: Gauge,
    http_requests: IntCounterVec,
    http_requests_known: Vec<OnceLock<IntCounter>>,
    http_times: times::Times,
    /// Connections, as the network layer counts them.
    pub connections: net::Counters,
    /// 1 where the AUR's surface is served.
    pub aur_enabled: IntGauge,
    /// Packages in the served snapshot.
    pub aur_packages: IntGauge,
    /// Package bases in the served snapshot.
    pub aur_package_bases: IntGauge,
    aur_snapshot_timestamp: Gauge,
    /// Time to read a dump and build its snapshot.
    pub aur_refresh_seconds: Histogram,
    aur_refresh_total: IntCounterVec,
    /// 1 while the last look at the source failed.
    pub aur_refresh_failing: IntGauge,
    /// Failures to keep a dump in the data directory.
    pub aur_keep_failures: IntCounter,
    /// The last commit that is served.
    pub store_serial: IntGauge,
    /// Writes, as they are committed.
    pub commits: stored::Commits,
    /// Since when the served state is known to be whole, in seconds, as `/metrics` brings it up to date.
    pub store_lag_seconds: Gauge,
    /// Failures to read the store.
    pub store_read_failures: IntCounter,
    /// 1 while the store lacks commits that were read from it.
    pub store_is_rewound: IntGauge,
    /// Blobs that nothing named, and that this process deleted.
    pub blobs_swept: IntCounter,
    /// What they held, in bytes.
    pub blobs_swept_bytes: IntCounter,
    /// Sweeps that failed or were refused.
    pub blob_sweep_failures: IntCounter,
    /// Blobs that were compared with their digest in the background.
    pub blobs_verified: IntCounter,
    /// Blobs that were found missing or damaged, as `/metrics` brings it up to date.
    pub blobs_damaged: IntGauge,
    /// Bytes free on the disk that has the fewest, as `/metrics` brings it up to date.
    pub store_free_bytes: IntGauge,
    /// The floor of that, as `/metrics` brings it up to date.
    pub store_free_bytes_min: IntGauge,
    /// Bytes of request bodies in memory, as `/metrics` brings it up to date.
    pub body_memory_bytes: IntGauge,
    /// Requests refused because that memory was taken.
    pub bodies_refused: IntCounter,
    /// Clients that the rate limit remembers.
    pub rate_limit_clients: IntGauge,
    /// Pages of the Python index, as `/metrics` brings them up to date.
    pub python: PythonMetrics,
    login_failures: IntCounterVec,
    /// Passwords, as they are checked.
    pub passwords: passwords::Counters,
    actions: IntCounterVec,
    /// Computations, as their threads count them.
    pub cpu_pool: cpu_pool::Counters,
}

/// `rpc_response_size_bytes` by its label.
struct ResponseSizes {
    info: Histogram,
    search: Histogram,
    maintainer_search: Histogram,
    error: Histogram,
}

/// What the Python index counts.
pub struct PythonMetrics {
    pages_rendered: IntCounter,
    lists_rendered: IntCounter,
    pages: IntGauge,
    page_bytes: IntGauge,
    lists: IntGauge,
    list_bytes: IntGauge,
    uploads: IntCounterVec,
    upload_bytes: IntCounter,
    retention_versions: IntCounter,
    retention_bytes: IntCounter,
    retention_failures: IntCounter,
    /// Whoever brings the counters up to date.
    updating: Mutex<()>,
}

impl PythonMetrics {
    /// Counts an upload by how it ended: `stored` or `refused`.
    pub fn uploaded(&self, outcome: &str) {
        self.uploads.with_label_values(&[outcome]).inc();
    }

    /// Counts the bytes of a release file or of documentation, as they come.
    pub fn upload_bytes(&self, bytes: usize) {
        self.upload_bytes.inc_by(bytes as u64);
    }

    /// Counts the versions that the rules of stages removed, and the bytes of their files.
    pub fn versions_removed(&self, versions: u64, bytes: u64) {
        self.retention_versions.inc_by(versions);
        self.retention_bytes.inc_by(bytes);
    }

    /// Counts a stage whose rule could not be applied.
    pub fn retention_failed(&self) {
        self.retention_failures.inc();
    }

    /// Takes over what the pages count themselves.
    pub fn update(&self, counts: pypi::PageCounts) {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let raise = |counter: &IntCounter, to: u64| {
            counter.inc_by(to.saturating_sub(counter.get()));
        };
        raise(&self.pages_rendered, counts.rendered);
        raise(&self.lists_rendered, counts.rendered_lists);
        let set = |gauge: &IntGauge, to: u64| gauge.set(i64::try_from(to).unwrap_or(i64::MAX));
        set(&self.pages, counts.pages as u64);
        set(&self.page_bytes, counts.page_bytes);
        set(&self.lists, counts.lists as u64);
        set(&self.list_bytes, counts.list_bytes);
    }
}

impl Metrics {
    /// Makes and registers all metrics.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        fn register<C: Collector + Clone + 'static>(
            registry: &Registry,
            metric: prometheus::Result<C>,
        ) -> C {
            let metric = metric.expect("metric names and labels are valid");
            registry.register(Box::new(metric.clone())).expect("metric names are unique");
            metric
        }
        let counter = |name: &str, help: &str| register(&registry, IntCounter::new(name, help));
        let gauge = |name: &str, help: &str| register(&registry, IntGauge::new(name, help));
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let rpc_response_size = register(
            &registry,
            HistogramVec::new(
                HistogramOpts::new(
                    "rpc_response_size_bytes",
                    "Size of answers before compression, by the type that they name; suggestions name none.",
                )
                .buckets(SIZE_BUCKETS.to_vec()),
                &["type"],
            ),
        );
        let build_info = register(
            &registry,
            IntGaugeVec::new(
                Opts::new("larder_build_info", "Which build is running; always 1."),
                &["version", "commit"],
            ),
        );
        build_info.with_label_values(&[crate::version::VERSION, crate::version::COMMIT]).set(1);
        // goaurrpc has a cache of search results; there is none here, and dashboards still ask.
        counter(
            "rpc_cache_hits",
            "Answers from a cache of search results: there is none, so always 0.",
        );
        if cfg!(target_os = "linux") {
            let process = prometheus::process_collector::ProcessCollector::for_self();
            registry.register(Box::new(process)).expect("metric names are unique");
        }
        let login_failures = counters(
            "larder_login_failures_total",
            "Credentials that did not hold, by what they were: wrong_password, wrong_password_again (known to be wrong), token, login, disabled, malformed, admin_key.",
            &["reason"],
        );
        let throttled = counters(
            "larder_logins_throttled_total",
            "Passwords that were not looked at since too many wrong ones were tried, by what was used up: client_and_account, client, account.",
            &["by"],
        );
        let commit_failures = counters(
            "larder_store_commit_failures_total",
            "Writes that the database did not take: overtaken by another one (and decided anew), refused for what they are, failed for its state.",
            &["reason"],
        );
        Metrics {
            rpc_requests: counters(
                "rpc_requests",
                "Questions with nothing wrong in them, by method, type and field.",
                &["method", "type", "by"],
            ),
            rpc_requests_known: empty_slots(METHODS.len() * TYPES_COUNT * By::ALL.len()),
            rpc_errors: counters(
                "rpc_requests_error",
                "Refused questions by the text of the error.",
                &["error"],
            ),
            rpc_rate_limited: counter(
                "rpc_requests_rate_limited",
                "Questions refused by the rate limit.",
            ),
            rpc_duration: register(
                &registry,
                Histogram::with_opts(
                    HistogramOpts::new(
                        "rpc_request_duration_seconds",
                        "Time from a question to its finished answer.",
                    )
                    .buckets(DURATION_BUCKETS.to_vec()),
                ),
            ),
            rpc_sizes: ResponseSizes {
                info: rpc_response_size.with_label_values(&["multiinfo"]),
                search: rpc_response_size.with_label_values(&["search"]),
                maintainer_search: rpc_response_size.with_label_values(&["msearch"]),
                error: rpc_response_size.with_label_values(&["error"]),
            },
            rpc_data_last_refresh: register(
                &registry,
                Gauge::new(
                    "rpc_data_last_refresh",
                    "When the data of the served snapshot was last modified at its source, in Unix seconds.",
                ),
            ),
            http_requests: counters(
                "larder_http_requests_total",
                "Responses by surface and status.",
                &["surface", "status"],
            ),
            http_requests_known: empty_slots(Surface::COUNT * STATUS_COUNT),
            http_times: register(
                &registry,
                Ok(times::Times::new(
                    "larder_http_request_seconds",
                    &format!(
                        "Time from a request to the head of its answer, by surface and route; of answers that are ready in memory one in {SAMPLED_OF} is timed, and counts for {SAMPLED_OF}."
                    ),
                )),
            ),
            connections: net::Counters {
                connections_open: gauge("larder_http_connections_open", "Connections open now."),
                connections_accepted: counter(
                    "larder_http_connections_accepted_total",
                    "Connections let in.",
                ),
                connections_refused: counter(
                    "larder_http_connections_refused_total",
                    "Connections closed at once because there are too many, in all or of one client.",
                ),
                connections_memory: gauge(
                    "larder_http_connections_memory_bytes",
                    "Memory that connections take, as limits.connections_memory_bytes_max counts it.",
                ),
                connections_out_of_room: counter(
                    "larder_http_connections_out_of_memory_total",
                    "Requests refused and connections closed because the memory for connections was taken.",
                ),
                connections_cut: counter(
                    "larder_http_connections_cut_total",
                    "Connections cut off because a client took too long.",
                ),
                http2_floods: counter(
                    "larder_http2_floods_total",
                    "HTTP/2 connections closed because their clients reset or broke too many streams.",
                ),
                tls_errors: counter("larder_tls_errors_total", "TLS handshakes that failed."),
                accept_errors: counter(
                    "larder_http_accept_errors_total",
                    "Errors of accepting connections.",
                ),
            },
            aur_enabled: gauge(
                "larder_aur_enabled",
                "1 where packages of the AUR are served, 0 where there is no source or they are switched off.",
            ),
            aur_packages: gauge("larder_aur_packages", "Packages in the served snapshot."),
            aur_package_bases: gauge(
                "larder_aur_package_bases",
                "Package bases in the served snapshot.",
            ),
            aur_snapshot_timestamp: register(
                &registry,
                Gauge::new(
                    "larder_aur_snapshot_timestamp_seconds",
                    "The same as rpc_data_last_refresh, under a name of ours.",
                ),
            ),
            aur_refresh_seconds: register(
                &registry,
                Histogram::with_opts(
                    HistogramOpts::new(
                        "larder_aur_refresh_seconds",
                        "Time to read a dump and build its snapshot.",
                    )
                    .buckets(vec![0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0]),
                ),
            ),
            aur_refresh_total: counters(
                "larder_aur_refresh_total",
                "Looks at the source by result.",
                &["result"],
            ),
            aur_refresh_failing: gauge(
                "larder_aur_refresh_failing",
                "1 while the last look at the source failed.",
            ),
            aur_keep_failures: counter(
                "larder_aur_keep_failures_total",
                "Dumps that could not be kept in the data directory; they are served all the same.",
            ),
            store_serial: gauge("larder_store_serial", "The last commit that is served."),
            commits: stored::Commits {
                seconds: register(
                    &registry,
                    Histogram::with_opts(
                        HistogramOpts::new(
                            "larder_store_commit_seconds",
                            "Time that the database took for a write that it took.",
                        )
                        .buckets(vec![0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]),
                    ),
                ),
                overtaken: commit_failures.with_label_values(&["overtaken"]),
                refused: commit_failures.with_label_values(&["refused"]),
                failed: commit_failures.with_label_values(&["failed"]),
            },
            store_lag_seconds: register(
                &registry,
                Gauge::new(
                    "larder_store_lag_seconds",
                    "Time since a look at the store whose outcome is served: what was written before it is seen, what was written since may not be.",
                ),
            ),
            store_read_failures: counter(
                "larder_store_read_failures_total",
                "Failures to read the store; what was read before is served.",
            ),
            store_is_rewound: gauge(
                "larder_store_is_rewound",
                "1 while the store lacks commits that were read from it, or is damaged; nothing is written then.",
            ),
            blobs_swept: counter(
                "larder_blobs_swept_total",
                "Blobs that no record named, deleted by this process.",
            ),
            blobs_swept_bytes: counter(
                "larder_blobs_swept_bytes_total",
                "Bytes of the blobs that this process deleted.",
            ),
            blob_sweep_failures: counter(
                "larder_blob_sweep_failures_total",
                "Sweeps of unnamed blobs that failed, or were refused because too much would have gone.",
            ),
            blobs_verified: counter(
                "larder_blobs_verified_total",
                "Blobs that were read in the background and compared with their digest.",
            ),
            blobs_damaged: gauge(
                "larder_blobs_damaged",
                "Blobs that records name and that were found missing or damaged.",
            ),
            store_free_bytes: gauge(
                "larder_store_free_bytes",
                "Bytes free on the disk of the database or the blobs that has fewer.",
            ),
            store_free_bytes_min: gauge(
                "larder_store_free_bytes_min",
                "Bytes of free space below which only administrators write; 0 where there is no such bound.",
            ),
            body_memory_bytes: gauge(
                "larder_http_body_memory_bytes",
                "Memory that the bodies of requests take now.",
            ),
            bodies_refused: counter(
                "larder_http_bodies_refused_total",
                "Requests refused because the memory for bodies was taken.",
            ),
            rate_limit_clients: gauge(
                "larder_rate_limit_clients",
                "Clients that the rate limit remembers.",
            ),
            python: PythonMetrics {
                pages_rendered: counter(
                    "larder_python_pages_rendered_total",
                    "Simple pages that were made, since what they show had changed or was not in memory.",
                ),
                lists_rendered: counter(
                    "larder_python_lists_rendered_total",
                    "Lists of projects that were made.",
                ),
                pages: gauge("larder_python_pages", "Finished simple pages in memory."),
                page_bytes: gauge(
                    "larder_python_page_bytes",
                    "What finished simple pages take, in bytes, with room for their encodings.",
                ),
                lists: gauge("larder_python_lists", "Finished lists of projects in memory."),
                list_bytes: gauge(
                    "larder_python_list_bytes",
                    "What finished lists of projects take, in bytes, with room for their encodings.",
                ),
                uploads: counters(
                    "larder_python_uploads_total",
                    "Uploads by outcome: stored, refused.",
                    &["outcome"],
                ),
                upload_bytes: counter(
                    "larder_python_upload_bytes_total",
                    "Bytes of uploaded files that have come, stored or not.",
                ),
                retention_versions: counter(
                    "larder_python_retention_versions_total",
                    "Old versions that this process removed by the rules of indexes.",
                ),
                retention_bytes: counter(
                    "larder_python_retention_bytes_total",
                    "Bytes of the files of those versions.",
                ),
                retention_failures: counter(
                    "larder_python_retention_failures_total",
                    "Indexes whose rule could not be applied.",
                ),
                updating: Mutex::new(()),
            },
            passwords: passwords::Counters {
                waiting: gauge("larder_passwords_waiting", "Passwords that wait to be hashed."),
                refused: counter(
                    "larder_passwords_refused_total",
                    "Passwords that were not hashed since too many waited.",
                ),
                wrong: login_failures.with_label_values(&["wrong_password"]),
                wrong_again: login_failures.with_label_values(&["wrong_password_again"]),
                throttled: passwords::Bound::ALL
                    .map(|bound| throttled.with_label_values(&[bound.name()])),
                episodes: gauge(
                    "larder_logins_throttled",
                    "Clients, accounts and pairs of them whose wrong passwords are throttled now.",
                ),
            },
            login_failures,
            actions: counters(
                "larder_actions_total",
                "Actions by name and outcome: ok, refused, unavailable, failed.",
                &["action", "outcome"],
            ),
            cpu_pool: cpu_pool::Counters {
                queue_length: gauge(
                    "larder_cpu_pool_queue_length",
                    "Computations that wait for a thread.",
                ),
                busy_threads: gauge("larder_cpu_pool_busy_threads", "Threads that compute."),
                seconds: register(
                    &registry,
                    Histogram::with_opts(
                        HistogramOpts::new(
                            "larder_cpu_pool_seconds",
                            "Time that a computation took once it had begun.",
                        )
                        .buckets(vec![0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]),
                    ),
                ),
                refused: counter(
                    "larder_cpu_pool_refused_total",
                    "Computations refused because too many were waiting.",
                ),
                abandoned: counter(
                    "larder_cpu_pool_abandoned_total",
                    "Computations given up by their clients before they began.",
                ),
            },
            registry,
        }
    }

    /// Counts an answered question.
    pub fn answered(&self, method: &Method, asked: Asked, body_bytes: usize) {
        self.asked(method, asked);
        let sizes = &self.rpc_sizes;
        let size = match asked.kind {
            Kind::Info => &sizes.info,
            Kind::Search => &sizes.search,
            Kind::MaintainerSearch => &sizes.maintainer_search,
            // goaurrpc leaves them out; a dashboard's mean would be another one with them.
            _ => return,
        };
        size.observe(body_bytes as f64);
    }

    /// Counts a question that finds more than one answer may have, besides its being refused.
    pub fn found_too_many(&self, method: &Method, asked: Asked, body_bytes: usize) {
        self.asked(method, asked);
        self.rpc_sizes.error.observe(body_bytes as f64);
    }

    fn asked(&self, method: &Method, asked: Asked) {
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

    /// Counts a response, and the time that it took.
    pub fn responded(&self, endpoint: Endpoint, status: StatusCode, stopwatch: Stopwatch) {
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

    /// Notes the time of a newly published snapshot's data, in Unix seconds.
    pub fn published(&self, modified_at: f64) {
        // goaurrpc takes whole seconds.
        self.rpc_data_last_refresh.set(modified_at.floor());
        self.aur_snapshot_timestamp.set(modified_at);
    }

    /// Counts a look at the source.
    pub fn refreshed(&self, result: RefreshResult) {
        let label = match result {
            RefreshResult::Published => "published",
            RefreshResult::Unchanged => "unchanged",
            RefreshResult::Failed => "failed",
        };
        self.aur_refresh_total.with_label_values(&[label]).inc();
        self.aur_refresh_failing.set(i64::from(result == RefreshResult::Failed));
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

/// Statuses have three digits; those of no known meaning share the last slot.
const STATUS_COUNT: usize = 600;

fn empty_slots(count: usize) -> Vec<OnceLock<IntCounter>> {
    (0..count).map(|_| OnceLock::new()).collect()
}
