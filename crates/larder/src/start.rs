//! From a configuration to a running server, and to its end.
//!
//! [`config`] -> [`run`]: open the data directory, bind, load, serve, drain.

pub(crate) mod demo;
mod follow;
pub(crate) mod site;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{AurSource, Config, LoadedConfig};
use net::{Egress, ListenAddress, Listener, Server, TlsReloader};
use source::{DataDirLock, KeptDump, Source, SourceOptions, SourceSpec};
use state::shared_settings::{self, Difference, SHARED};
use state::{security, setup};
use store::DatabaseLocation;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::app::following::PrimarysPackages;
use crate::app::live_settings::LiveSetting;
use crate::app::side_files::{self, SideFiles};
use crate::door::Door;
use crate::tasks::{self, rescue, until};

/// A server that is bound and about to serve.
pub struct RunningServer {
    /// Its state, for tests.
    pub app: Arc<App>,
    /// Where the main listeners listen.
    pub addresses: Vec<ListenAddress>,
    /// Where the admin listener listens, if there is one.
    pub admin_address: Option<ListenAddress>,
    tls: Option<Arc<TlsReloader>>,
    /// The main listeners once more, for a follower that starts over: clients that connect meanwhile wait.
    spare: Vec<Listener>,
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
    /// Tasks that open requests need until they have ended: a write is acknowledged when the store's tail has seen it.
    followers: JoinSet<()>,
    followers_stop: CancellationToken,
    /// The data directory is this server's alone, whichever surfaces are served.
    _lock: Arc<DataDirLock>,
}

/// Starts a server: if a file, a port or a right is missing, it fails here.
///
/// # Errors
/// What cannot be opened, bound or read, with its name.
pub async fn start(
    mut config: Config,
    handed_over: Vec<Listener>,
) -> anyhow::Result<RunningServer> {
    net::install_crypto_provider();
    if let Err(error) = net::raise_open_files_limit(config.limits.connections_max) {
        tracing::warn!(%error, "the limit on open files cannot be raised");
    }
    setup::create_data_dir(&config.data_dir)?;
    let looked_at = config.clone();
    let flaws = tokio::task::spawn_blocking(move || side_files::look(&looked_at)).await?;
    let kept = KeptDump::open(&config.data_dir)?;
    let lock = kept.lock().clone();
    let may_lack_source = config.aur.enabled && !config.demo && config.aur.source.is_none();
    let lacks_aur_source = may_lack_source && !KeptDump::path_in(&config.data_dir).exists();
    let asks_primary = may_lack_source && config.follow.is_some();
    if lacks_aur_source && !asks_primary {
        tracing::info!(
            "packages of the AUR are not served: there is no source, and the data directory keeps no earlier dump; \
             `--aur-source FILE|URL` (aur.source) switches them on"
        );
        config.aur.enabled = false;
    }
    let mut source = open_source(&config, &kept).await?;
    let tls = match config.tls.files() {
        Some((certificate, key)) => Some(TlsReloader::load(certificate, key)?),
        None => None,
    };
    let access = net::Access { mode: config.listen_mode, group: config.listen_group.clone() };
    let listeners =
        if handed_over.is_empty() { net::bind(&config.listen, &access)? } else { handed_over };
    let spare = match config.follow {
        Some(_) => Listener::spare(&listeners)?,
        None => Vec::new(),
    };
    let addresses: Vec<ListenAddress> =
        listeners.iter().map(|listener| listener.address().clone()).collect();
    let admin_listener = match &config.admin.key {
        Some(_) => {
            net::bind(std::slice::from_ref(&config.admin.listen), &net::Access::default())?.pop()
        }
        None => None,
    };
    let admin_address = admin_listener.as_ref().map(|listener| listener.address().clone());

    let following = follow::prepare(&config).await?;
    let mut awaits_primary = false;
    if let Some(following) = following.as_ref().filter(|_| asks_primary) {
        let packages = Arc::new(PrimarysPackages::new(following)?);
        source = Some(Source::of_primary(packages, source_options(&config), kept.spool_dir())?);
        awaits_primary = following.link.aur_dump().borrow().is_some();
    }
    follow::narrow(&mut config, following.as_ref());
    let store = match &following {
        Some(_) => setup::open_copy(&config).await?,
        None => setup::open_initialized(&config).await?,
    };
    let (mut app, requests) = App::new(config, store)?;
    app.follow(following);
    app.aur.lacks_source = lacks_aur_source;
    app.aur.is_of_primary = asks_primary;
    app.aur.awaits_primary = awaits_primary;
    app.aur.set_on(app.config.aur.enabled && !lacks_aur_source);
    app.health.side_files = SideFiles::new(flaws);
    app.metrics.aur_enabled.set(app.aur.is_on().into());
    security::configured(&app.config);
    let app = Arc::new(app);
    // A policy that refuses known malware must not wait for it while requests are answered.
    let advisories = tasks::advisories::start(app.clone()).await?;
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let config = &app.config;
    if config.aur.enabled {
        // They are large, and are handed from function to function: in boxes they take no place on a stack.
        let refreshing = Box::pin(tasks::aur_refresh::run(
            app.clone(),
            kept,
            source,
            requests,
            shutdown.clone(),
        ));
        let noting = Box::pin(tasks::aur_history::run(app.clone(), shutdown.clone()));
        tasks.spawn(tasks::on_own_thread("larder-aur", async move {
            let mut following = JoinSet::new();
            following.spawn(refreshing);
            following.spawn(noting);
            ended(&mut following).await;
        }));
        tasks.spawn(tasks::dump_deltas::run(app.clone()));
    }
    let mut followers = JoinSet::new();
    let followers_stop = CancellationToken::new();
    followers.spawn(tasks::store_tail::run(app.clone(), followers_stop.clone()));
    tasks.spawn(advisories.run(shutdown.clone()));
    if config.article.enabled {
        tasks.spawn(until(shutdown.clone(), tasks::article_texts::run(app.clone())));
    }
    if config.python.enabled {
        tasks.spawn(until(shutdown.clone(), tasks::required_by::run(app.clone())));
    }
    tasks.spawn(until(shutdown.clone(), tasks::clocks::run(app.clone())));
    tasks.spawn(until(shutdown.clone(), tasks::blob_sweep::run(app.clone())));
    tasks.spawn(until(shutdown.clone(), tasks::scrub::run(app.clone())));
    tasks.spawn(tasks::highest_serial::run(app.clone(), shutdown.clone()));
    if app.following.is_none() {
        tasks.spawn(until(shutdown.clone(), tasks::retention::run(app.clone())));
    }
    tasks.spawn(until(shutdown.clone(), tasks::follow::run(app.clone())));
    tasks.spawn(tasks::throttling::run(app.clone(), shutdown.clone()));
    tasks.spawn(tasks::token_uses::run(app.clone(), shutdown.clone()));
    tasks.spawn(tasks::downloads::run(app.clone(), shutdown.clone()));
    if app.config.metrics.enabled {
        tasks.spawn(until(shutdown.clone(), tasks::rates::run(app.clone())));
    }
    for webhook in app.changes.webhooks.all() {
        let delivering = tasks::webhooks::run(app.clone(), webhook.clone());
        tasks.spawn(until(shutdown.clone(), delivering));
    }
    if let Some(tls) = &tls {
        tasks.spawn(tls.clone().watch(config.tls.reload, shutdown.clone()));
    }
    let server =
        Server::new(limits(config), app.metrics.connections.clone(), app.limits.trusted.clone());
    let door = Door::main(app.clone());
    for listener in listeners {
        tracing::info!(address = %listener.address(), tls = tls.is_some(), "listening");
        let serving = server.clone().serve(
            listener,
            tls.clone(),
            door.clone(),
            shutdown.clone(),
            config.limits.shutdown_grace,
        );
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "a listener has failed");
            }
        });
    }
    if let Some(listener) = admin_listener {
        tracing::info!(address = %listener.address(), "listening for the admin API");
        // Its own bounds, so that a crowd at the front does not lock the operator out.
        let server =
            Server::new(limits(config), net::Counters::unregistered(), app.limits.trusted.clone());
        let serving = server.serve(
            listener,
            None,
            Door::admin(app.clone()),
            shutdown.clone(),
            config.limits.shutdown_grace,
        );
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the admin listener has failed");
            }
        });
    }
    Ok(RunningServer {
        app,
        addresses,
        admin_address,
        tls,
        spare,
        tasks,
        shutdown,
        followers,
        followers_stop,
        _lock: lock,
    })
}

impl RunningServer {
    /// Serves until `stop` resolves, then drains and returns once everything has ended.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) {
        stop.await;
        self.app.begin_shutdown();
        tracing::info!("stopping: no new connections, open requests finish");
        self.shutdown.cancel();
        ended(&mut self.tasks).await;
        self.followers_stop.cancel();
        ended(&mut self.followers).await;
        self.app.limits.cpu_pool.stop().await;
        tasks::highest_serial::note(&self.app).await;
        self.app.store.records.close().await;
        tracing::info!("stopped");
    }

    /// Reads certificate, configuration and data again; says why the data could not be.
    async fn reload(&self, loaded: &mut LoadedConfig) {
        if let Some(tls) = self.tls.clone() {
            // Its outcome is logged there.
            let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
        }
        if let Err(error) = logging::reopen() {
            tracing::error!(%error, "the security log cannot be opened again; the old file stays");
        }
        match loaded.reload() {
            Ok(next) => {
                self.apply(loaded, &next).await;
                *loaded = next;
            }
            Err(error) => {
                tracing::error!(%error, "the configuration cannot be read again; the old one stays")
            }
        }
        self.app.python.advisories.wish.notify_one();
        if self.app.config.aur.enabled
            && let Err(error) = self.app.aur.reload().await
        {
            tracing::warn!(error, "the reload brought no new data");
        }
    }

    /// Takes over what can be changed while running, and names what needs a restart.
    async fn apply(&self, before: &LoadedConfig, next: &LoadedConfig) {
        for key in before.changed_keys(next) {
            let key = key.path();
            let Some(setting) = LiveSetting::of_path(&key) else {
                tracing::warn!(key, "this setting has changed and takes effect at the next start");
                continue;
            };
            match setting.set(&self.app, setting.configured(&next.config)).await {
                Ok(()) => tracing::info!(key, "this setting has changed"),
                Err(reason) => {
                    tracing::warn!(key, reason, "this setting has changed, without effect")
                }
            }
        }
    }
}

/// Waits until all of them have ended.
async fn ended(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task has failed");
        }
    }
}

/// How long a start goes on once the server was told to stop.
const START_GRACE: Duration = Duration::from_secs(3);

/// Runs the server until SIGTERM or SIGINT; SIGHUP reloads.
///
/// # Errors
/// As [`start`].
pub async fn run(mut loaded: LoadedConfig, mut handed_over: Vec<Listener>) -> anyhow::Result<()> {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    loop {
        match run_once(&mut loaded, handed_over).await? {
            Outcome::Stopped => return Ok(()),
            Outcome::StartsOver(listeners) => handed_over = listeners,
        }
    }
}

/// Why a server has ended.
enum Outcome {
    /// It was told to.
    Stopped,
    /// It is to start again, with the new copy of its primary, and to listen at the same sockets.
    StartsOver(Vec<Listener>),
}

async fn run_once(
    loaded: &mut LoadedConfig,
    handed_over: Vec<Listener>,
) -> anyhow::Result<Outcome> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut user_defined = signal(SignalKind::user_defined1())?;
    let mut starting = std::pin::pin!(start(loaded.config.clone(), handed_over));
    let running = tokio::select! {
        running = &mut starting => Some(running?),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some(mut running) = running else {
        // A slow database must not make an administrator kill the start. But a start that is nearly done should finish: it may
        // have made a password that it has not shown yet.
        return match tokio::time::timeout(START_GRACE, starting).await {
            Ok(running) => {
                running?.run_until(std::future::ready(())).await;
                Ok(Outcome::Stopped)
            }
            Err(_) => {
                tracing::info!("stopped before the start was over");
                Ok(Outcome::Stopped)
            }
        };
    };
    notify(&[sd_notify::NotifyState::Ready]);
    compare_settings(&running.app, loaded);
    if loaded.config.demo {
        let app = running.app.clone();
        let text = demo::what_to_try(&app.config, &running.addresses);
        tokio::spawn(async move {
            while !app.obstacles().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if let Err(error) = demo::fill(&app).await {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the data of the demonstration cannot be written"
                );
            }
            println!("{text}");
        });
    }
    let mut failure = None;
    let mut outcome = Outcome::Stopped;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            reason = running.app.health.failed() => {
                failure = Some(reason);
                break;
            }
            () = running.app.starts_over() => {
                outcome = Outcome::StartsOver(std::mem::take(&mut running.spare));
                break;
            }
            _ = user_defined.recv() => {
                let app = running.app.clone();
                tokio::spawn(async move {
                    match rescue::rescue(&app, None).await {
                        Ok(rescued) => tracing::info!("{rescued}"),
                        Err(error) => tracing::error!("nothing was rescued: {error:#}"),
                    }
                });
            }
            _ = hang_up.recv() => {
                tracing::info!("reloading");
                if let Ok(now) = sd_notify::NotifyState::monotonic_usec_now() {
                    notify(&[sd_notify::NotifyState::Reloading, now]);
                }
                running.reload(loaded).await;
                notify(&[sd_notify::NotifyState::Ready]);
            }
        }
    }
    if let Outcome::Stopped = outcome {
        notify(&[sd_notify::NotifyState::Stopping]);
    }
    let draining = running.run_until(std::future::ready(()));
    tokio::select! {
        () = draining => {}
        _ = terminate.recv() => {
            tracing::warn!("a second signal: stopping at once");
            outcome = Outcome::Stopped;
        }
        _ = interrupt.recv() => {
            tracing::warn!("a second signal: stopping at once");
            outcome = Outcome::Stopped;
        }
    }
    match failure {
        Some(reason) => anyhow::bail!(reason),
        None => Ok(outcome),
    }
}

/// Warns of settings that another process of the store has otherwise. A file of SQLite has only one server.
fn compare_settings(app: &App, loaded: &LoadedConfig) {
    let DatabaseLocation::Postgres(_) = loaded.config.database() else { return };
    let shared = loaded.settings.iter().filter_map(|setting| {
        let key = setting.key.path();
        SHARED.contains(&key.as_str()).then(|| (key, setting.texts.join(", ")))
    });
    let (records, shared) = (app.store.records.clone(), shared.collect());
    tokio::spawn(async move {
        match shared_settings::note(&records, &shared).await {
            Ok(differences) => {
                for Difference { key, here, there } in differences {
                    tracing::warn!(
                        key,
                        here,
                        there,
                        "this setting should be the same for all processes of a store, but another process has a different value"
                    );
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the settings of other processes cannot be compared");
            }
        }
    });
}

/// Tells systemd, where it listens.
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}

fn limits(config: &Config) -> net::Limits {
    let limits = &config.limits;
    net::Limits {
        connections_max: limits.connections_max,
        connections_per_client_max: limits.connections_per_client_max,
        connections_memory_bytes_max: limits.connections_memory_bytes_max,
        header_bytes_max: limits.header_bytes_max,
        url_bytes_max: limits.url_bytes_max,
        header_timeout: limits.header_timeout,
        body_timeout: limits.body_timeout,
        write_stall_timeout: limits.write_stall_timeout,
        idle_timeout: limits.idle_timeout,
        http2_streams_max: limits.http2_streams_max,
    }
}

async fn open_source(config: &Config, kept: &KeptDump) -> anyhow::Result<Option<Source>> {
    let aur = &config.aur;
    if !aur.enabled {
        return Ok(None);
    }
    let spec = if config.demo {
        let (data_dir, packages) = (config.data_dir.clone(), config.demo_packages as u32);
        let path = tokio::task::spawn_blocking(move || demo::dump(&data_dir, packages))
            .await?
            .context("cannot write the generated catalogue")?;
        SourceSpec::File(path)
    } else {
        match &aur.source {
            None => return Ok(None),
            Some(AurSource::File(path)) => SourceSpec::File(path.clone()),
            Some(AurSource::Url(url)) => SourceSpec::parse(url)?,
            Some(AurSource::Database(url)) => SourceSpec::Database(Box::new(url.clone())),
        }
    };
    Ok(Some(Source::open(spec, source_options(config), kept.spool_dir())?))
}

fn source_options(config: &Config) -> SourceOptions {
    let aur = &config.aur;
    SourceOptions {
        interval: aur.refresh,
        connect_timeout: aur.connect_timeout,
        response_header_timeout: aur.header_timeout,
        body_stall_timeout: aur.stall_timeout,
        dump_bytes_max: aur.dump_bytes_max,
        egress: Egress::new(config.egress_allow.iter().copied()),
        ..SourceOptions::default()
    }
}
