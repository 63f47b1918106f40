//! Keeps the AUR snapshot current: arrival -> snapshot -> publish -> keep.
//!
//! If little differs, the next snapshot is the last one with small layers over it. When these have grown, all is merged into one
//! segment again, beside the requests.
//!
//! A dump that cannot be read, or has lost too many packages, changes nothing but a log line, a metric
//! and `/readyz?verbose`; the old snapshot goes on serving.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use aur::{Changes, DumpError, DumpLimits, Snapshot};
use source::{
    Arrival, KeptDump, KeptDumpFile, Source, SourceError, SourceNews, SourceSpec, Update,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::memory;
use crate::app::{App, RefreshRequest, ReloadOutcome};
use crate::metrics::RefreshResult;
use crate::published::aur_published::{AurPublished, KeptCell, LatestPackages};
use crate::published::lists::Lists;

/// A dump that could not be kept is tried again this often.
const KEEP_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Runs until `shutdown`, on a thread that serves no requests ([`super::on_own_thread`]), and keeps the last dump before it ends.
/// Without a source it serves the kept dump of the data directory.
pub async fn run(
    app: Arc<App>,
    kept: KeptDump,
    mut source: Option<Source>,
    mut requests: mpsc::Receiver<RefreshRequest>,
    shutdown: CancellationToken,
) {
    let _ended = app.aur.deltas.ended.clone().drop_guard();
    let mut refresh = Refresh {
        app,
        kept: Some(kept),
        keeping: None,
        kept_failed: false,
        kept_at: None,
        unkept: None,
        merging: None,
        wave: None,
    };
    refresh.run(&mut source, &mut requests, &shutdown).await;
    refresh.end_keeping().await;
    refresh.keep_late(true);
    refresh.end_keeping().await;
}

struct Refresh {
    app: Arc<App>,
    /// `None` while a dump is being kept.
    kept: Option<KeptDump>,
    keeping: Option<JoinHandle<KeepingOutcome>>,
    /// Whether the last dump could not be kept: only the first failure in a row is logged.
    kept_failed: bool,
    /// When a dump was last kept.
    kept_at: Option<Instant>,
    /// What is served and not kept yet: after a failure, or because the source is a database, which may change every second,
    /// while a dump is large.
    unkept: Option<(Unkept, Arc<AurPublished>)>,
    merging: Option<SegmentMerge>,
    /// Popularities of so many bases that they become part of the next large segment, while other changes are followed.
    wave: Option<Update>,
}

/// Where the dump of a snapshot is.
enum Unkept {
    Arrived(Arrival),
    /// Nowhere yet: it is written from the snapshot.
    Changed(Update),
}

/// A dump that was kept, or could not be.
struct KeepingOutcome {
    kept: KeptDump,
    dump: (Unkept, Arc<AurPublished>),
    outcome: Result<KeptDumpFile, SourceError>,
}

impl KeepingOutcome {
    /// Waits for the end of keeping; without end if nothing is being kept.
    async fn ended(
        keeping: &mut Option<JoinHandle<KeepingOutcome>>,
    ) -> Result<KeepingOutcome, JoinError> {
        match keeping {
            Some(keeping) => keeping.await,
            None => std::future::pending().await,
        }
    }
}

/// All of a snapshot is being put into one segment.
struct SegmentMerge {
    /// The snapshot that is merged, and that was served before `since`. If another one is published, the outcome is dropped.
    published: Arc<AurPublished>,
    /// What has changed since it began.
    since: Vec<Changes>,
    /// The facts about the popularities that are taken in.
    wave: Option<Update>,
    started_at: Instant,
    task: JoinHandle<Snapshot>,
}

impl SegmentMerge {
    /// Waits for the end; without end if nothing is being merged.
    async fn ended(merging: &mut Option<SegmentMerge>) -> Result<Snapshot, JoinError> {
        match merging {
            Some(merging) => (&mut merging.task).await,
            None => std::future::pending().await,
        }
    }
}

impl Refresh {
    async fn run(
        &mut self,
        source: &mut Option<Source>,
        requests: &mut mpsc::Receiver<RefreshRequest>,
        shutdown: &CancellationToken,
    ) {
        // A file is at hand, so it is read first. A URL may be slow or down, so the kept dump is read first.
        let is_file =
            source.as_ref().is_some_and(|source| matches!(source.spec(), SourceSpec::File(_)));
        if is_file && let Some(source) = source {
            let _ = shutdown.run_until_cancelled(self.look(source, false)).await;
        }
        if self.app.aur.snapshot().is_none() {
            self.load_kept(source.as_mut()).await;
        }
        loop {
            let due = async {
                match &*source {
                    Some(source) => source.wait().await,
                    None => std::future::pending().await,
                }
            };
            // A file that does not change is not looked at.
            let is_kept_again = self.kept_failed && self.unkept.is_some();
            let request = tokio::select! {
                () = shutdown.cancelled() => return,
                () = due => None,
                () = tokio::time::sleep(KEEP_RETRY_INTERVAL), if is_kept_again => {
                    self.keep_late(false);
                    continue;
                }
                merged = SegmentMerge::ended(&mut self.merging) => {
                    self.take_merged(merged);
                    continue;
                }
                kept = KeepingOutcome::ended(&mut self.keeping) => {
                    self.take_kept(kept);
                    continue;
                }
                request = requests.recv() => match request {
                    Some(request) => Some(request),
                    None => return,
                },
            };
            match (request, &mut *source) {
                (Some(RefreshRequest::SetInterval(interval)), source) => {
                    if let Some(source) = source {
                        source.set_interval(interval);
                    }
                }
                (Some(RefreshRequest::Reload(outcome)), None) => {
                    // The sender may no longer wait for the outcome.
                    let _ = outcome.send(Err("no source is configured".to_owned()));
                }
                (request, Some(source)) => {
                    let outcome: Option<oneshot::Sender<ReloadOutcome>> = match request {
                        Some(RefreshRequest::Reload(outcome)) => Some(outcome),
                        _ => None,
                    };
                    let looking = self.look(source, outcome.is_some());
                    let Some(result) = shutdown.run_until_cancelled(looking).await else { return };
                    self.keep_late(false);
                    if let Some(outcome) = outcome {
                        let _ = outcome.send(result);
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// Asks the source, and publishes what it has. True if a new snapshot is served.
    async fn look(&mut self, source: &mut Source, is_wished: bool) -> ReloadOutcome {
        let arrival = match source.poll(is_wished).await {
            Ok(Some(SourceNews::Dump(arrival))) => arrival,
            Ok(Some(SourceNews::Changes(update))) => return self.take_changes(source, update),
            Ok(None) => {
                // No news while there is trouble is trouble.
                match source.error().map(str::to_owned) {
                    Some(error) if is_wished => return Err(error),
                    Some(_) => {}
                    None => {
                        let was_failing = self.app.aur.set_trouble(None);
                        if was_failing {
                            tracing::info!(source = %source.spec(), "the source of the AUR's dump can be read again");
                        }
                        let is_url = matches!(source.spec(), SourceSpec::Url(_));
                        if was_failing || is_url || is_wished {
                            self.app.metrics.refreshed(RefreshResult::Unchanged);
                        }
                    }
                }
                return Ok(false);
            }
            Err(error) => {
                self.fail(&error.to_string());
                return Err(error.to_string());
            }
        };
        let origin = arrival.origin.clone();
        match self.take(arrival).await {
            Ok((published, arrival)) => {
                source.accepted(&arrival);
                self.app.aur.set_trouble(None);
                self.app.metrics.refreshed(RefreshResult::Published);
                let is_later = self.is_kept_later(source);
                let unkept = match source.spec() {
                    // The dump of a database is always written from the snapshot, so its order does not depend on how the
                    // tables were read.
                    SourceSpec::Database(_) => Unkept::Changed(Update::whole(&arrival)),
                    _ => Unkept::Arrived(arrival),
                };
                self.end_keeping().await;
                let earlier = self.kept.as_ref().and_then(KeptDump::current);
                match earlier.filter(|_| is_later).cloned() {
                    Some(earlier) => {
                        published.kept.set(earlier);
                        self.unkept = Some((unkept, published));
                    }
                    None => {
                        self.keep(unkept, published);
                        self.end_keeping().await;
                    }
                }
                Ok(true)
            }
            Err(problem) => {
                let problem = format!("`{origin}`: {problem}");
                source.rejected(&problem);
                self.fail(&problem);
                Err(problem)
            }
        }
    }

    /// Serves the last good dump of an earlier run, if there is one.
    async fn load_kept(&mut self, source: Option<&mut Source>) {
        let arrival = match self.kept.as_mut().map_or(Ok(None), KeptDump::load) {
            Ok(Some(arrival)) => arrival,
            Ok(None) => {
                if source.is_none() {
                    let problem =
                        "no source is configured, and the data directory keeps no earlier dump";
                    self.app.aur.set_trouble(Some(problem.to_owned()));
                    tracing::error!("{problem}: set aur.source, or start with --demo");
                }
                return;
            }
            Err(error) => return self.fail(&error.to_string()),
        };
        match self.take(arrival).await {
            Ok((published, arrival)) => {
                if let Some(file) = self.kept.as_ref().and_then(KeptDump::current) {
                    published.kept.set(file.clone());
                    self.app.aur.deltas.keep(file.clone());
                }
                if let Some(source) = source {
                    source.accepted(&arrival);
                }
            }
            Err(problem) => {
                let advice = match source {
                    Some(_) => "the source is waited for",
                    None => "remove it, or set aur.source",
                };
                self.fail(&format!(
                    "the dump that was kept in `{}` is not good ({problem}): {advice}",
                    KeptDump::path_in(&self.app.config.data_dir).display()
                ));
            }
        }
    }

    /// Builds a snapshot from a dump and publishes it.
    async fn take(&mut self, arrival: Arrival) -> Result<(Arc<AurPublished>, Arrival), String> {
        let limits = DumpLimits {
            dump_bytes_max: self.app.config.aur.dump_bytes_max,
            ..DumpLimits::default()
        };
        let started_at = Instant::now();
        let before = self.app.aur.snapshot_full();
        let building = tokio::task::spawn_blocking(move || {
            memory::give_back();
            let before = before.as_ref().map(|before| &before.snapshot);
            let snapshot = read(&arrival, before, &limits).map_err(|error| error.to_string())?;
            arrival.check_unchanged().map_err(|error| error.to_string())?;
            memory::give_back();
            Ok::<_, String>((snapshot, arrival))
        });
        let (snapshot, arrival) =
            building.await.map_err(|error| format!("building a snapshot failed: {error}"))??;
        self.check_size(&snapshot)?;
        let took = started_at.elapsed();
        let published_at = SystemTime::now();
        let published = Arc::new(AurPublished {
            origin: arrival.origin.clone(),
            modified_at: arrival.modified_at.unwrap_or(published_at),
            published_at,
            kept: KeptCell::default(),
            lists: Arc::new(Lists::default()),
            example: std::sync::OnceLock::new(),
            latest: LatestPackages::default(),
            snapshot,
        });
        self.app.aur.published.publish(published.clone());
        // A follower may not have served any packages so far.
        self.app.aur.set_on(true);
        self.app.metrics.aur_enabled.set(1);
        self.app.changes.aur.send_replace(Some(published.clone()));
        // It has these popularities.
        self.wave = None;
        if published.snapshot.is_overgrown() {
            self.merge(&published);
        }
        self.measure(&published, took);
        let duplicates = published.snapshot.duplicate_count();
        if duplicates > 0 {
            tracing::warn!(
                duplicates,
                "the dump names packages more than once; the last record of each counts"
            );
        }
        tracing::info!(
            packages = published.snapshot.package_count(),
            bases = published.snapshot.package_base_count(),
            changed = published.snapshot.changed_count(),
            seconds = took.as_secs_f64(),
            origin = published.origin,
            "published a snapshot of the AUR"
        );
        Ok((published, arrival))
    }

    /// Applies changed package bases to what is served, and publishes the result. True if anything differs.
    fn take_changes(&mut self, source: &mut Source, mut update: Update) -> ReloadOutcome {
        let Some(before) = self.app.aur.snapshot_full() else {
            let problem = "changes of a database came before its packages".to_owned();
            source.rejected(&problem);
            self.fail(&problem);
            return Err(problem);
        };
        let started_at = Instant::now();
        let changes = std::mem::take(&mut update.changes);
        let popularities = std::mem::take(&mut update.popularities);
        let updated = before.snapshot.updated(&changes, &DumpLimits::default());
        let outcome = updated.map_err(|error| error.to_string()).and_then(|next| {
            next.as_ref().map_or(Ok(()), |next| self.check_size(next)).map(|()| next)
        });
        let next = match outcome {
            Ok(next) => next,
            Err(problem) => {
                source.rejected(&problem);
                self.fail(&problem);
                return Err(problem);
            }
        };
        source.accepted_changes();
        let was_failing = self.app.aur.set_trouble(None);
        let waiting = self.wave.take().map(|wave| wave.popularities);
        let mut waiting = waiting.unwrap_or_default();
        // These were read later.
        for base in &changes.bases {
            waiting.remove(base);
        }
        waiting.extend(popularities);
        self.wave = (!waiting.is_empty()).then(|| {
            let mut wave = update.facts();
            wave.popularities = waiting;
            wave
        });
        let Some(snapshot) = next else {
            if self.wave.is_some() {
                self.merge(&before);
            } else if was_failing {
                self.app.metrics.refreshed(RefreshResult::Unchanged);
            }
            return Ok(false);
        };
        self.app.metrics.refreshed(RefreshResult::Published);
        let now = SystemTime::now();
        let published = Arc::new(AurPublished {
            origin: update.origin.clone(),
            modified_at: update.modified_at.unwrap_or(now),
            published_at: now,
            kept: KeptCell::default(),
            lists: Arc::default(),
            example: std::sync::OnceLock::new(),
            latest: LatestPackages::default(),
            snapshot,
        });
        if let Some(file) = before.kept.get() {
            published.kept.set(file);
        }
        self.app.aur.published.publish(published.clone());
        self.app.changes.aur.send_replace(Some(published.clone()));
        if let Some(merging) = &mut self.merging
            && Arc::ptr_eq(&merging.published, &before)
        {
            merging.published = published.clone();
            merging.since.push(changes);
        }
        if published.snapshot.is_overgrown() || self.wave.is_some() {
            self.merge(&published);
        }
        self.measure(&published, started_at.elapsed());
        self.unkept = Some((Unkept::Changed(update), published));
        Ok(true)
    }

    /// Shows the size and the age of a snapshot, and how long it took to make, in the metrics.
    fn measure(&self, published: &AurPublished, took: Duration) {
        let metrics = &self.app.metrics;
        metrics.aur_packages.set(published.snapshot.package_count().into());
        metrics.aur_package_bases.set(published.snapshot.package_base_count().into());
        metrics.aur_refresh_seconds.observe(took.as_secs_f64());
        metrics.published(unix_seconds(published.modified_at));
    }

    /// Begins to put everything into one segment, with the wave that waits for it, unless that is being done.
    fn merge(&mut self, published: &Arc<AurPublished>) {
        if self.merging.is_some() {
            return;
        }
        let snapshot = published.snapshot.clone();
        let mut wave = self.wave.take();
        let popularities = wave.as_mut().map(|wave| std::mem::take(&mut wave.popularities));
        let popularities = popularities.unwrap_or_default();
        let task = tokio::task::spawn_blocking(move || {
            memory::give_back();
            let merged = snapshot.merged(&popularities);
            memory::give_back();
            merged
        });
        self.merging = Some(SegmentMerge {
            published: published.clone(),
            since: Vec::new(),
            wave,
            started_at: Instant::now(),
            task,
        });
    }

    /// Publishes the merged snapshot, unless another snapshot was published meanwhile, and merges again if more waits for it.
    fn take_merged(&mut self, merged: Result<Snapshot, JoinError>) {
        let Some(merging) = self.merging.take() else { return };
        self.publish_merged(merging, merged);
        let current = self.app.aur.snapshot_full();
        if let Some(current) = current
            && (current.snapshot.is_overgrown() || self.wave.is_some())
        {
            self.merge(&current);
        }
    }

    fn publish_merged(&mut self, merging: SegmentMerge, merged: Result<Snapshot, JoinError>) {
        let SegmentMerge { published: before, since, wave, started_at, .. } = merging;
        let mut snapshot = match merged {
            Ok(snapshot) => snapshot,
            Err(error) => return tracing::error!(%error, "the AUR's snapshot cannot be merged"),
        };
        for changes in since {
            match snapshot.updated(&changes, &DumpLimits::default()) {
                Ok(next) => snapshot = next.unwrap_or(snapshot),
                Err(error) => return tracing::error!(%error, "the AUR's snapshot cannot be merged"),
            }
        }
        let current = self.app.aur.snapshot_full();
        if current.is_some_and(|current| !Arc::ptr_eq(&current, &before)) {
            return;
        }
        let mut published = AurPublished {
            origin: before.origin.clone(),
            modified_at: before.modified_at,
            published_at: before.published_at,
            kept: KeptCell::default(),
            lists: before.lists.clone(),
            example: before.example.clone(),
            latest: before.latest.clone(),
            snapshot,
        };
        if let Some(wave) = &wave {
            let now = SystemTime::now();
            published.modified_at = wave.modified_at.unwrap_or(now);
            published.published_at = now;
            published.lists = Arc::default();
            published.example = std::sync::OnceLock::new();
            published.latest = LatestPackages::default();
        }
        let published = Arc::new(published);
        if let Some(file) = before.kept.get() {
            published.kept.set(file);
        }
        if let Some((_, unkept)) = &mut self.unkept
            && Arc::ptr_eq(unkept, &before)
        {
            *unkept = published.clone();
        }
        self.app.aur.published.publish(published.clone());
        self.app.changes.aur.send_replace(Some(published.clone()));
        tracing::debug!("merged the AUR's snapshot");
        if let Some(facts) = wave {
            self.app.metrics.refreshed(RefreshResult::Published);
            self.measure(&published, started_at.elapsed());
            self.unkept = Some((Unkept::Changed(facts), published));
        }
    }

    /// Refuses a dump that has lost most of its packages: more likely an accident than the truth.
    fn check_size(&self, next: &Snapshot) -> Result<(), String> {
        let Some(current) = self.app.aur.snapshot() else { return Ok(()) };
        let percent_max = self.app.aur.shrink_percent_max.load(Relaxed);
        let (before, after) =
            (u64::from(current.snapshot.package_count()), u64::from(next.package_count()));
        let least = before * u64::from(100 - percent_max.min(100));
        if after * 100 < least {
            return Err(format!(
                "the dump has {after} packages after {before}, more than {percent_max} percent fewer \
                 (aur.shrink_percent_max)"
            ));
        }
        Ok(())
    }

    /// Begins to keep a dump, for the next start and for those who download it, unless one is being kept. For the whole AUR this takes
    /// a second; changes are followed meanwhile.
    fn keep(&mut self, unkept: Unkept, published: Arc<AurPublished>) {
        let Some(mut kept) = self.kept.take() else { return };
        self.kept_at = Some(Instant::now());
        self.unkept = None;
        self.keeping = Some(tokio::task::spawn_blocking(move || {
            let outcome = match &unkept {
                Unkept::Arrived(arrival) => kept.keep(arrival),
                Unkept::Changed(update) => {
                    let spooled = Arrival::spool(kept.spool_dir(), update, |out| {
                        published.snapshot.write_dump(out)
                    });
                    spooled.and_then(|spooled| kept.keep(&spooled))
                }
            };
            KeepingOutcome { kept, dump: (unkept, published), outcome }
        }));
    }

    /// Waits until no dump is being kept.
    async fn end_keeping(&mut self) {
        if let Some(keeping) = &mut self.keeping {
            let kept = keeping.await;
            self.take_kept(kept);
        }
    }

    /// Offers the dump that was kept, or notes that it could not be.
    fn take_kept(&mut self, kept: Result<KeepingOutcome, JoinError>) {
        self.keeping = None;
        let KeepingOutcome { kept, dump: (unkept, published), outcome } = match kept {
            Ok(kept) => kept,
            Err(error) => {
                return tracing::error!(%error, "dumps are no longer written to the data directory");
            }
        };
        self.kept = Some(kept);
        match outcome {
            Ok(file) => {
                published.kept.set(file.clone());
                // Changes may have been published since.
                if let Some(current) = self.app.aur.snapshot_full() {
                    current.kept.set(file.clone());
                }
                self.app.aur.deltas.keep(file);
                self.kept_failed = false;
            }
            Err(error) => {
                // Changes that came since are kept with it.
                self.unkept.get_or_insert((unkept, published));
                self.app.metrics.aur_keep_failures.inc();
                self.app.aur.deltas.keep_none();
                if !self.kept_failed {
                    tracing::error!(%error, "the dump cannot be written to the data directory; it is served, but lost with a restart");
                }
                self.kept_failed = true;
            }
        }
    }

    /// Whether to keep a dump of this source later, because the last one was kept a short time ago.
    fn is_kept_later(&self, source: &Source) -> bool {
        let interval = Duration::from_secs(self.app.aur.refresh_seconds.load(Relaxed));
        matches!(source.spec(), SourceSpec::Database(_))
            && self.kept_at.is_some_and(|at| at.elapsed() < interval)
    }

    /// Keeps a dump that had to wait or failed to be kept, if its time has come; with `at_once` in any case.
    fn keep_late(&mut self, at_once: bool) {
        let interval = Duration::from_secs(self.app.aur.refresh_seconds.load(Relaxed));
        let interval = if self.kept_failed { interval.min(KEEP_RETRY_INTERVAL) } else { interval };
        let is_due = at_once || self.kept_at.is_none_or(|at| at.elapsed() >= interval);
        if is_due
            && self.kept.is_some()
            && let Some((unkept, published)) = self.unkept.take()
        {
            self.keep(unkept, published);
        }
    }

    fn fail(&self, problem: &str) {
        self.app.metrics.refreshed(RefreshResult::Failed);
        if self.app.aur.set_trouble(Some(problem.to_owned())) {
            let is_serving = self.app.aur.snapshot().is_some();
            tracing::error!(problem, is_serving, "the AUR's dump cannot be refreshed");
        }
    }
}

/// Reads a dump: only what differs from the snapshot `before`, if that is little.
fn read(
    arrival: &Arrival,
    before: Option<&Snapshot>,
    limits: &DumpLimits,
) -> Result<Snapshot, DumpError> {
    let bases = || arrival.bases.iter().cloned();
    let next = match before {
        Some(before) => aur::dump::read_after(before, arrival.reader(), limits, bases())?,
        None => None,
    };
    let next = match next {
        Some(next) => next,
        None => aur::dump::read_with_bases(arrival.reader(), limits, bases())?,
    };
    Ok(next.with_users(arrival.users.clone()))
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}
