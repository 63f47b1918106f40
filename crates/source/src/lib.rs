//! The sources of AUR dumps: a file that is watched, a URL that is polled, a database or a primary that is followed; and the copy of
//! the last good dump in the data directory.
//!
//! [`SourceSpec`] -> [`Source`] -> [`Arrival`] -> (the caller builds a snapshot) -> [`KeptDump`]. From a database, changes of
//! some package bases follow the first arrival: [`SourceNews`]. This module handles bytes: it neither parses a dump nor decides
//! whether it is good. The caller that builds the snapshot reports the result by [`Source::accepted`] or [`Source::rejected`],
//! and only then is a dump remembered as seen. No text or log from this module contains a credential.
//!
//! ```no_run
//! # async fn example() -> Result<(), source::SourceError> {
//! use source::{KeptDump, Source, SourceNews, SourceOptions, SourceSpec};
//!
//! let mut kept = KeptDump::open("/var/lib/larder".as_ref())?;
//! let spec = SourceSpec::parse("https://example.org/packages-meta-ext-v1.json.gz")?;
//! let mut source = Source::open(spec, SourceOptions::default(), kept.spool_dir())?;
//! if let Some(arrival) = kept.load()? {
//!     // build a snapshot from `arrival.reader()` and publish it; if that worked:
//!     source.accepted(&arrival);
//! }
//! loop {
//!     source.wait().await; // beside it in a `select!`: reload requests, changes of the interval
//!     match source.poll(false).await? {
//!         Some(SourceNews::Dump(arrival)) => {
//!             // build on a blocking thread, `arrival.check_unchanged()`, publish; if that worked:
//!             source.accepted(&arrival);
//!             kept.keep(&arrival)?; // on a blocking thread as well
//!         }
//!         Some(SourceNews::Changes(_update)) => {
//!             // `Snapshot::updated`, publish; if that worked:
//!             source.accepted_changes();
//!         }
//!         None => {}
//!     }
//! }
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net::Egress;
use tokio::time::{Instant, sleep_until};

mod arrival;
mod database;
pub mod demo_data;
mod error;
mod file;
mod kept_directory;
mod kept_dump;
mod kept_file;
mod lock;
mod primary;
pub mod schedule;
mod spec;
mod spool;
mod url;

pub use arrival::{Arrival, FileReader, SourceNews, Update};
pub use database::DatabaseUrl;
pub use error::SourceError;
pub use kept_dump::{
    KEPT_FILE_NAME, KeptDump, KeptDumpFile, ZSTD_RETRY_AFTER, ZstdFile, ZstdProblem,
};
pub use kept_file::{KeptFile, Staged};
pub use lock::DataDirLock;
pub use primary::Primary;
pub use spec::SourceSpec;
pub use url::{REDIRECTS_MAX, RETRY_AFTER_MAX};

use arrival::ArrivalKind;
use database::DatabaseWatch;
use file::FileWatch;
use primary::PrimaryFetch;
use schedule::Jitter;
use url::{SpoolWriter, UrlFetch};

/// Shorter intervals are raised to this.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// While a database cannot be read, it is asked again this often.
const DATABASE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A primary is asked this often at most.
const PRIMARY_PAUSE: Duration = Duration::from_millis(500);
/// Longer intervals are lowered to this.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The bounds and intervals of a source.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// How often a URL is polled, before jitter, and the longest time between two reads of a database. From 1 s to a
    /// year. Default 5 minutes.
    pub interval: Duration,
    /// How often a file is looked at. Default 900 ms.
    pub file_look_interval: Duration,
    /// Longest time to connect, TLS included. Default 10 s.
    pub connect_timeout: Duration,
    /// Longest time from the start of a request to the response header, connection and redirects included. Default 30
    /// s.
    pub response_header_timeout: Duration,
    /// The longest pause between two pieces of a body. Default 30 s.
    pub body_stall_timeout: Duration,
    /// Longest time from the start of a request to the end of the body, however steadily it arrives. Default 30 min.
    pub transfer_time_max: Duration,
    /// The largest dump as stored or sent, before decompression. Default 2 GiB.
    pub dump_bytes_max: u64,
    /// Whether `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of the environment are used. Default: yes.
    pub environment_proxy: bool,
    /// Where redirects may lead, apart from the host of the source itself. Default: public addresses.
    pub egress: Egress,
    /// How long to wait for rows to come back if a database has lost many at once: a migration or a push may be running.
    /// Default 2 s.
    pub emptied_wait: Duration,
    /// Makes the jitter repeatable. Default: different in each process.
    pub jitter_seed: Option<u64>,
}

impl Default for SourceOptions {
    fn default() -> SourceOptions {
        SourceOptions {
            interval: Duration::from_secs(300),
            file_look_interval: Duration::from_millis(900),
            connect_timeout: Duration::from_secs(10),
            response_header_timeout: Duration::from_secs(30),
            body_stall_timeout: Duration::from_secs(30),
            transfer_time_max: Duration::from_secs(30 * 60),
            dump_bytes_max: 2 << 30,
            environment_proxy: true,
            egress: Egress::default(),
            emptied_wait: Duration::from_secs(2),
            jitter_seed: None,
        }
    }
}

/// One source, with its state between polls.
#[derive(Debug)]
pub struct Source {
    spec: SourceSpec,
    kind: Kind,
    interval: Duration,
    jitter: Jitter,
    /// When [`Source::wait`] ends.
    next_at: Instant,
    polled_at: Instant,
    failures: u32,
    error: Option<String>,
    retry_after: Option<Duration>,
}

#[derive(Debug)]
enum Kind {
    File(Box<FileWatch>),
    Url(Box<UrlFetch>),
    Database(Box<DatabaseWatch>),
    Primary(Box<PrimaryFetch>),
}

impl Source {
    /// Prepares a source. Nothing is read or requested yet; the first poll is due at once. Pass [`KeptDump::spool_dir`]
    /// as `spool_dir`.
    ///
    /// # Errors
    /// [`SourceError::Client`] if an HTTP client cannot be built.
    pub fn open(
        spec: SourceSpec,
        options: SourceOptions,
        spool_dir: &Path,
    ) -> Result<Source, SourceError> {
        let interval = options.interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let jitter = options.jitter_seed.map_or_else(Jitter::from_system, Jitter::seeded);
        let fingerprint = spec.fingerprint();
        let kind = match &spec {
            SourceSpec::File(path) => Kind::File(Box::new(FileWatch::new(
                path.clone(),
                fingerprint,
                options.dump_bytes_max,
                options.file_look_interval,
            ))),
            SourceSpec::Url(url) => Kind::Url(Box::new(UrlFetch::new(
                url.clone(),
                fingerprint,
                options,
                spool_dir.to_owned(),
            )?)),
            SourceSpec::Database(url) => Kind::Database(Box::new(DatabaseWatch::new(
                (**url).clone(),
                fingerprint,
                SourceOptions { interval, ..options },
                spool_dir.to_owned(),
            ))),
        };
        Ok(Source::new(spec, kind, interval, jitter))
    }

    /// The primary of a follower as a source: it is asked when it says that it has another dump. Otherwise as [`Source::open`].
    ///
    /// # Errors
    /// [`SourceError::Spec`] if it has no URL.
    pub fn of_primary(
        primary: Arc<dyn Primary>,
        options: SourceOptions,
        spool_dir: &Path,
    ) -> Result<Source, SourceError> {
        let spec = SourceSpec::parse(&primary.url(&format!("/{KEPT_FILE_NAME}")))?;
        let interval = options.interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let jitter = options.jitter_seed.map_or_else(Jitter::from_system, Jitter::seeded);
        let (origin, fingerprint) = (spec.to_string(), spec.fingerprint());
        let spooling =
            SpoolWriter { origin, fingerprint, options, spool_dir: spool_dir.to_owned() };
        let kind = Kind::Primary(Box::new(PrimaryFetch::new(primary, spooling)));
        Ok(Source::new(spec, kind, interval, jitter))
    }

    fn new(spec: SourceSpec, kind: Kind, interval: Duration, jitter: Jitter) -> Source {
        let now = Instant::now();
        Source {
            spec,
            kind,
            interval,
            jitter,
            next_at: now,
            polled_at: now,
            failures: 0,
            error: None,
            retry_after: None,
        }
    }

    /// The configured source; its `Display` may be logged.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// Waits until the next poll is due; for a file that has not changed, until it has. The future may be dropped, and the method called again, at any time.
    pub async fn wait(&self) {
        match &self.kind {
            Kind::File(watch) => match watch.changed() {
                Some(changed) => changed.await,
                None => sleep_until(self.next_at).await,
            },
            Kind::Url(_) | Kind::Database(_) => sleep_until(self.next_at).await,
            Kind::Primary(fetch) => {
                // However often it says that it has another one.
                let announced = async {
                    fetch.announced().await;
                    sleep_until(self.polled_at + PRIMARY_PAUSE).await;
                };
                tokio::select! {
                    () = announced => {}
                    () = sleep_until(self.next_at), if self.failures > 0 => {}
                }
            }
        }
    }

    /// Polls now, whether or not it is due. `None`: nothing new since the last accepted dump.
    ///
    /// Set `force` if a person asked for a reload. A URL gets a conditional request, as always. For a file that is
    /// being written, the poll waits for up to ten looks; a rejected file is handed out again; and an error of the
    /// file is reported even if the last poll reported it. (Otherwise an error is reported once, when it begins;
    /// meanwhile [`Source::error`] has it.)
    ///
    /// Dropping the future aborts a download and leaves nothing behind.
    ///
    /// # Errors
    /// Any [`SourceError`] except those of keeping. The next poll is then scheduled by [`schedule::delay`], or for a
    /// file at the next look.
    pub async fn poll(&mut self, force: bool) -> Result<Option<SourceNews>, SourceError> {
        let as_news = |arrival: Option<Arrival>| arrival.map(SourceNews::Dump);
        let outcome = match &mut self.kind {
            Kind::File(watch) => watch.poll(force).await.map(as_news),
            Kind::Url(fetch) => fetch.poll().await.map(as_news),
            Kind::Database(watch) => watch.poll(force).await,
            Kind::Primary(fetch) => fetch.poll(force).await.map(as_news),
        };
        self.polled_at = Instant::now();
        match (&outcome, &self.kind) {
            (Err(error), _) => self.failed(error.to_string(), error.retry_after()),
            (Ok(None), Kind::File(watch)) if watch.trouble().is_some() => {}
            // While the state cannot be used, its error stays the current one.
            (Ok(None), Kind::File(watch)) if watch.is_rejected() => {}
            (Ok(None), Kind::Database(watch)) if watch.is_refused() => {}
            // The error is over only when the dump has been accepted.
            (Ok(Some(_)), _) => {}
            (Ok(None), _) => self.recovered(),
        }
        self.schedule();
        outcome
    }

    /// Reports that a snapshot was built from this dump: from now on only later dumps are of interest. Call this for
    /// the arrival of [`KeptDump::load`] too; it has an effect only if that dump came from this source.
    pub fn accepted(&mut self, arrival: &Arrival) {
        let is_ours = arrival.source_fingerprint == self.spec.fingerprint();
        let is_kept = matches!(arrival.kind, ArrivalKind::KeptDump);
        match &mut self.kind {
            Kind::File(watch) if is_ours && !is_kept => watch.accepted(),
            Kind::Url(fetch) if is_ours => fetch.accepted(&arrival.validators),
            Kind::Database(watch) if is_ours && !is_kept => watch.accepted(),
            // A digest says whether a delta leads on from a dump, whoever it came from.
            Kind::Primary(fetch) => fetch.accepted(arrival),
            _ => {}
        }
        if !is_kept {
            self.recovered();
            self.schedule();
        }
    }

    /// Reports that the last changes are served.
    pub fn accepted_changes(&mut self) {
        if let Kind::Database(watch) = &mut self.kind {
            watch.accepted();
        }
        self.recovered();
        self.schedule();
    }

    /// Reports that no snapshot could be built from the last arrival, and why. A URL is polled again as after a
    /// failed download, a file or a database when it changes or when forced.
    pub fn rejected(&mut self, reason: &str) {
        match &mut self.kind {
            Kind::File(watch) => watch.rejected(),
            Kind::Database(watch) => watch.rejected(),
            Kind::Url(_) | Kind::Primary(_) => {}
        }
        self.failed(reason.to_owned(), None);
        self.schedule();
    }

    /// The current error: that of the last poll or of the last arrival. `None` if all is well.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Failed polls and rejected arrivals in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How often a URL is polled, before jitter; how often at least a database is read.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Changes the interval, which counts from the last poll; the next one may be due at once. No effect on files.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        if let Kind::Database(watch) = &mut self.kind {
            watch.set_interval(self.interval);
        }
        self.schedule();
    }

    fn failed(&mut self, error: String, retry_after: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        self.error = Some(error);
        self.retry_after = retry_after;
    }

    fn recovered(&mut self) {
        self.failures = 0;
        self.error = None;
        self.retry_after = None;
    }

    fn schedule(&mut self) {
        let wait = match &self.kind {
            Kind::File(watch) => watch.next_look(),
            // The database is near, and its tables may be right again at any moment.
            Kind::Database(watch) => schedule::delay(
                self.failures,
                if self.failures == 0 { watch.poll_interval() } else { DATABASE_RETRY_INTERVAL },
                None,
                self.jitter.chance(),
            ),
            Kind::Url(_) | Kind::Primary(_) => schedule::delay(
                self.failures,
                self.interval,
                self.retry_after,
                self.jitter.chance(),
            ),
        };
        self.next_at = self.polled_at + wait;
    }
}

#[cfg(test)]
mod tests;
