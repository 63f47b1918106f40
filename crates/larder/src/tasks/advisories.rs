//! Keeps the known malware and vulnerabilities current: arrival -> copy in the data directory -> bundle -> publish.
//!
//! The source is that of the configuration, or else the file that `larder import-osv` writes, as soon as there is one.
//! What an earlier run kept counts before the first request is answered. A bundle that cannot be read, or has lost more than half
//! of its records, changes nothing but a log line, a metric and `/readyz?verbose`.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use anyhow::Context as _;
use config::{BundleSource, Config};
use net::Egress;
use pypi::osv::{BUNDLE_SHRINK_MAX, BundleError};
use rawzip::FileReader;
use source::{Arrival, KeptFile, Source, SourceNews, SourceOptions, SourceSpec, Staged};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::App;
use crate::metrics::RefreshResult;
use crate::published::advisories::{Bundle, ServedBundle};

/// The source and the place of the last good bundle.
pub struct Refresh {
    app: Arc<App>,
    kept: Arc<KeptFile>,
    source: Source,
    /// The file that `larder import-osv` writes, if that is the source.
    imported: Option<PathBuf>,
    has_failed_to_keep: bool,
}

/// Opens the source, and publishes what an earlier run kept, then a file. A file is compared with what was kept, as if the
/// server had not stopped.
///
/// # Errors
/// If there can be no HTTP client.
pub async fn start(app: Arc<App>) -> anyhow::Result<Refresh> {
    let config = &app.config;
    let kept = KeptFile::open(config.data_dir.join("osv"), "bundle.zip");
    let source = source(config, &kept).context("the source of OSV records")?;
    let is_file = matches!(source.spec(), SourceSpec::File(_));
    let imported = config.advisories.source.is_none().then(|| config.imported_advisories());
    let kept = Arc::new(kept);
    let mut refresh = Refresh { app, kept, source, imported, has_failed_to_keep: false };
    refresh.load_kept().await;
    if is_file {
        refresh.look(false).await;
    }
    Ok(refresh)
}

fn source(config: &Config, kept: &KeptFile) -> anyhow::Result<Source> {
    let advisories = &config.advisories;
    let spec = match &advisories.source {
        None => SourceSpec::File(config.imported_advisories()),
        Some(BundleSource::File(path)) => SourceSpec::File(path.clone()),
        Some(BundleSource::Url(url)) => SourceSpec::parse(url)?,
    };
    let options = SourceOptions {
        interval: advisories.refresh,
        dump_bytes_max: advisories.bundle_bytes_max,
        egress: Egress::new(config.egress_allow.iter().copied()),
        ..SourceOptions::default()
    };
    Ok(Source::open(spec, options, kept.spool_dir())?)
}

impl Refresh {
    /// Follows the source until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let app = self.app.clone();
        loop {
            let is_wished = tokio::select! {
                () = shutdown.cancelled() => return,
                () = app.python.advisories.wish.notified() => true,
                () = self.source.wait() => false,
            };
            if shutdown.run_until_cancelled(self.look(is_wished)).await.is_none() {
                return;
            }
        }
    }

    /// Asks the source, and publishes what it has.
    async fn look(&mut self, is_wished: bool) {
        let source = &mut self.source;
        let arrival = match source.poll(is_wished).await {
            // Nothing was imported yet, or it was removed, and what counts goes on to count.
            Err(_) | Ok(None) if self.imported.as_ref().is_some_and(|path| !path.exists()) => {
                return;
            }
            Ok(Some(SourceNews::Dump(arrival))) => arrival,
            Ok(_) if source.error().is_some() => return,
            Ok(_) => {
                let is_url = matches!(source.spec(), SourceSpec::Url(_));
                if self.app.python.advisories.confirm() {
                    tracing::info!(source = %source.spec(), "the source of OSV records can be read again");
                }
                if is_url || is_wished {
                    self.app.metrics.osv_refreshed(RefreshResult::Unchanged);
                }
                return;
            }
            Err(error) => return self.fail(&error.to_string()),
        };
        match self.take(arrival).await {
            Ok(arrival) => {
                self.source.accepted(&arrival);
                self.app.python.advisories.confirm();
                self.app.metrics.osv_refreshed(RefreshResult::Published);
            }
            Err(problem) => {
                self.source.rejected(&problem);
                self.fail(&problem);
            }
        }
    }

    /// Publishes the bundle that an earlier run kept, if there is one.
    async fn load_kept(&mut self) {
        let kept = self.kept.clone();
        let (stop, _stop_when_dropped) = stop_when_dropped();
        let loaded = tokio::task::spawn_blocking(move || {
            let Some(arrival) = kept.load().map_err(|error| error.to_string())? else {
                return Ok(None);
            };
            let file = arrival.file().try_clone().map_err(|error| error.to_string())?;
            let bundle = read(file, &stop).map_err(|error| error.to_string())?;
            Ok::<_, String>(Some((bundle, arrival)))
        });
        match loaded.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(None) => {}
            Ok(Some((bundle, arrival))) => {
                self.publish(bundle, &arrival).await;
                self.source.accepted(&arrival);
            }
            Err(problem) => self.fail(&format!("the bundle that was kept is not good: {problem}")),
        }
    }

    /// Reads a bundle, publishes it and keeps it.
    async fn take(&mut self, arrival: Arrival) -> Result<Arrival, String> {
        let kept = self.kept.clone();
        let (stop, _stop_when_dropped) = stop_when_dropped();
        let reading = tokio::task::spawn_blocking(move || {
            // Reads the copy: only this task writes to it, so records can be read from it later, too.
            let staged = kept.stage(&arrival).map_err(|error| error.to_string());
            let file = match &staged {
                Ok(staged) => staged.file.try_clone(),
                Err(problem) if arrival.is_foreign() => {
                    return Err(format!("{}: it cannot be copied: {problem}", arrival.origin));
                }
                Err(_) => arrival.file().try_clone(),
            };
            let bundle = file.map_err(BundleError::Io).and_then(|file| read(file, &stop));
            let bundle = bundle.map_err(|error| format!("{}: {error}", arrival.origin))?;
            arrival.check_unchanged().map_err(|error| error.to_string())?;
            Ok::<_, String>((bundle, arrival, staged))
        });
        let (bundle, arrival, staged) = reading.await.map_err(|error| error.to_string())??;
        self.check_size(&bundle, &arrival)?;
        self.publish(bundle, &arrival).await;
        let (arrival, kept) = self.keep(arrival, staged).await;
        match kept {
            Ok(()) => self.has_failed_to_keep = false,
            Err(problem) if !self.has_failed_to_keep => {
                self.has_failed_to_keep = true;
                tracing::error!(
                    problem,
                    "OSV records are in use, but cannot be written to the data directory for the next start"
                );
            }
            Err(_) => {}
        }
        Ok(arrival)
    }

    async fn keep(
        &self,
        arrival: Arrival,
        staged: Result<Staged, String>,
    ) -> (Arrival, Result<(), String>) {
        let kept = self.kept.clone();
        let keeping = tokio::task::spawn_blocking(move || {
            let outcome = staged
                .and_then(|staged| kept.keep(&staged, &arrival).map_err(|error| error.to_string()));
            (arrival, outcome)
        });
        keeping.await.expect("nothing in it panics")
    }

    /// Refuses a bundle of the same source that has lost most of its records. One that was imported, the import has checked.
    fn check_size(&self, bundle: &Bundle, arrival: &Arrival) -> Result<(), String> {
        if self.imported.is_some() {
            return Ok(());
        }
        let Some(served) = self.app.python.advisories.served() else { return Ok(()) };
        let (before, after) = (served.bundle.advisories.len(), bundle.advisories.len());
        if *arrival.source_fingerprint() == served.source_fingerprint
            && after < before / BUNDLE_SHRINK_MAX
        {
            return Err(format!(
                "{}: it has {after} records, and {before} are served; at least {} were expected. If so many were really taken back, remove \
                 the directory `osv` from the data directory and start the server again",
                arrival.origin,
                before / BUNDLE_SHRINK_MAX
            ));
        }
        Ok(())
    }

    async fn publish(&self, bundle: Bundle, arrival: &Arrival) {
        let advisories = bundle.advisories.clone();
        for named in &bundle.unreadable_named {
            tracing::warn!(record = named, "an OSV record cannot be read and is skipped");
        }
        let modified_at = arrival.modified_at.unwrap_or_else(SystemTime::now);
        self.app.metrics.osv_published(&advisories, bundle.unreadable, modified_at);
        tracing::info!(
            records = advisories.len(),
            malware = advisories.malware(),
            unreadable = bundle.unreadable,
            origin = arrival.origin,
            "new OSV records are in use"
        );
        let served = Arc::new(ServedBundle {
            bundle,
            origin: arrival.origin.clone(),
            source_fingerprint: arrival.source_fingerprint().to_owned(),
            modified_at,
            has_failed: AtomicBool::new(false),
        });
        let app = self.app.clone();
        // The earlier ones are freed there, which takes long.
        let publishing = tokio::task::spawn_blocking(move || app.python.advisories.publish(served));
        publishing.await.expect("nothing in it panics");
    }

    fn fail(&self, problem: &str) {
        self.app.metrics.osv_refreshed(RefreshResult::Failed);
        if self.app.python.advisories.fail(problem) {
            match self.app.python.advisories.served() {
                Some(_) => tracing::error!(
                    problem,
                    "OSV records cannot be refreshed; the earlier ones stay in use"
                ),
                None => tracing::error!(problem, "there are no OSV records yet"),
            }
        }
    }
}

fn read(file: File, stop: &CancellationToken) -> Result<Bundle, BundleError> {
    let bytes = file.metadata().map_err(BundleError::Io)?.len();
    Bundle::read(FileReader::from(file), bytes, |_, _| !stop.is_cancelled())
}

/// A token that stops the reading of a bundle, and a guard that cancels it when dropped, so that shutdown does not wait for a
/// reading.
fn stop_when_dropped() -> (CancellationToken, DropGuard) {
    let stop = CancellationToken::new();
    (stop.clone(), stop.drop_guard())
}
