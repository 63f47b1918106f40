//! `/{user}/{index}/+prefetch`: this process fetches the files of a lock into a mirror's cache, in the background.
//!
//! lock -> [`Lock`] -> [`Prefetches`](crate::app::prefetches::Prefetches), one at a time for each mirror -> [`mirrors::prefetch`],
//! which asks for each file as the sender's client would: policies, hashes and shared downloads are those of every request.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use account::{Portion, Principal};
use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::{Method, StatusCode};
use mirrors::Mirror;
use mirrors::prefetch::{self, FileStream, Index, IndexFile};
use operations::rights::prefetcher;
use operations::{Basis, Sender};
use pypi::lock::{Lock, LockBounds, LockShape, LockedRelease};
use pypi::{ProjectName, Stage, StageName};
use serde_json::{Value, json};

use super::ask::Ask;
use super::error::ApiError;
use super::names::Names;
use super::write::whole_body;
use super::{files, refusals, reply};
use crate::app::App;
use crate::app::prefetches::{Busy, Prefetch};
use crate::front::body::{BodyError, HeldBody, parsed};
use crate::front::error::HttpError;
use crate::front::request::Parts;

/// Size of a lock; that of a project with a thousand dependencies has about 3 MB.
pub(crate) const LOCK_BYTES_MAX: usize = 4 << 20;

/// Values of a lock, and tables of one package in it.
const VALUES_MAX: usize = 150_000;
const PACKAGE_TABLES_MAX: usize = 2_000;

/// Releases, and files, that a lock may name.
const BOUNDS: LockBounds = LockBounds { releases_max: 5_000, files_max: FILES_MAX };
const FILES_MAX: usize = 20_000;

/// Releases that are fetched at the same time; the files of each come one after the other.
const AT_ONCE: usize = 4;

/// How often it is looked whether the mirror, and the right of who asked, are still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Characters of a message about a lock, and of its name.
const MESSAGE_CHARS_MAX: usize = 400;
const NAME_CHARS_MAX: usize = 100;

/// What a request for a file accepts: a refusal is JSON.
const ACCEPTED: &str = "application/json, */*;q=0.1";

/// Bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// `GET`: how far the last lock is.
pub(crate) async fn show_prefetch(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let last = last(&ask.app, &ask.asked().await?, &ask.stage_name(stage)?)?;
    Ok(said(StatusCode::OK, last.as_deref()))
}

/// How far the last lock is, for a sender who may know.
pub(crate) fn last(
    app: &App,
    basis: &Basis,
    stage: &StageName,
) -> Result<Option<Arc<Prefetch>>, ApiError> {
    prefetcher(basis, stage)?;
    Ok(app.python.prefetches.of(stage))
}

/// `DELETE`: ends it.
pub(crate) async fn stop_prefetch(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let last = stop(&ask.app, &ask.asked().await?, &ask.stage_name(stage)?)?;
    Ok(said(StatusCode::OK, last.as_deref()))
}

/// Ends the last lock.
pub(crate) fn stop(
    app: &App,
    basis: &Basis,
    stage: &StageName,
) -> Result<Option<Arc<Prefetch>>, ApiError> {
    let last = last(app, basis, stage)?;
    if let Some(last) = &last {
        last.stop.cancel();
        last.end(Some("somebody stopped it".to_owned()));
    }
    Ok(last)
}

/// `POST` of a lock: begins to fetch its files.
pub(crate) async fn start_prefetch(
    ask: &Ask,
    stage: &str,
    body: Body,
) -> Result<Response, ApiError> {
    let (stage, principal) = (ask.stage_name(stage)?, ask.principal().await?);
    prefetcher(&ask.asked().await?, &stage)?;
    let received = whole_body(ask, &principal, body, LOCK_BYTES_MAX).await?;
    let sender = (&ask.head, ask.sender().await?);
    let begun =
        start(&ask.app, sender, &stage, ask.parameter("name").map(Cow::into_owned), received)
            .await?;
    Ok(said(StatusCode::ACCEPTED, Some(&begun)))
}

/// Begins to fetch the files of a lock for a sender, and for the clients who ask as this request does.
pub(crate) async fn start(
    app: &Arc<App>,
    (head, sender): (&Parts, Sender),
    stage: &StageName,
    name: Option<String>,
    received: HeldBody,
) -> Result<Arc<Prefetch>, ApiError> {
    let lock = parsed_lock(app, name, received).await?;
    // The right may have ended while the lock came.
    let basis = app.basis(sender)?;
    check_source(app, prefetcher(&basis, stage)?)?;
    let sender = basis.principal();
    let by = sender.user_name().map(ToString::to_string).unwrap_or_default();
    let prefetch = Prefetch::new(by, lock.wanted.len(), lock.others, basis.now);
    let begun = app.python.prefetches.begin(stage, prefetch).map_err(|busy| match busy {
        Busy::Mirror => ApiError::conflict(
            "the files of a lock are being fetched for this mirror: wait for it, or stop it",
        ),
        Busy::Process => {
            let detail = "the files of locks are being fetched for other mirrors: try again later";
            HttpError::unavailable(detail, 30).into()
        }
    })?;
    let index = OwnIndex {
        app: app.clone(),
        head: head.clone(),
        sender: basis.sender().clone(),
        stage: stage.clone(),
        prefetch: begun.clone(),
        opened: AtomicUsize::new(0),
        lost: OnceLock::new(),
    };
    tokio::spawn(run(index, lock.wanted));
    Ok(begun)
}

/// The lock in a body.
async fn parsed_lock(
    app: &App,
    name: Option<String>,
    mut received: HeldBody,
) -> Result<Lock, ApiError> {
    let name = name.filter(|name| !name.is_empty());
    let name = name.map_or_else(
        || "the lock".to_owned(),
        |name| format!("`{}`", record::shortened(&name, NAME_CHARS_MAX).escape_debug()),
    );
    let unusable = |problem: &str| {
        let problem = record::shortened(problem, MESSAGE_CHARS_MAX);
        ApiError::rule(StatusCode::UNPROCESSABLE_ENTITY, format_args!("{name}: {problem}"))
    };
    let expected = "a requirements file with `name==version`, uv.lock, poetry.lock or pylock.toml was expected";
    let Ok(text) = std::str::from_utf8(&received) else {
        return Err(unusable(&format!("this is no text in UTF-8: {expected}")));
    };
    let shape = LockShape::of(text);
    let (values, tables) = (shape.values, shape.package_tables);
    if values > VALUES_MAX {
        return Err(unusable(&format!(
            "it has {values} values: at most {VALUES_MAX} were expected"
        )));
    }
    if tables > PACKAGE_TABLES_MAX {
        return Err(unusable(&format!(
            "a part of it has {tables} tables and lists: at most {PACKAGE_TABLES_MAX} were expected for one package"
        )));
    }
    let length = text.len();
    received.hold(2 * length)?;
    let (bytes, mut held) = received.into_parts();
    let text = std::str::from_utf8(&bytes).map(str::to_owned).unwrap_or_default();
    drop(bytes);
    held.hold(length + shape.memory_bytes(BOUNDS)).map_err(BodyError::from)?;
    // Its memory counts until it has been read, even if the client leaves.
    let reading = move || (Lock::parse_within(&text, BOUNDS), held);
    let (lock, _held) = parsed(app, length + values * 8, reading).await;
    let lock = lock.map_err(|problem| unusable(&problem))?;
    if lock.wanted.is_empty() {
        return Err(unusable(&format!("it names no file of an index: {expected}")));
    }
    Ok(lock)
}

/// Refuses an index whose files cannot be fetched ahead.
fn check_source(app: &App, stage: &Stage) -> Result<(), ApiError> {
    let name = stage.name();
    let Some(mirror) = app.python.mirrors.of(stage) else {
        let text = format_args!("{name} is no mirror: it has no upstream to fetch files from");
        return Err(ApiError::bad_request(text));
    };
    if let Some(why) = offline(app, stage) {
        return Err(ApiError::conflict(format_args!("{name}: {why}")));
    }
    if mirror.redirects_files {
        let text = format_args!(
            "{name} keeps no files: it sends clients to its upstream (mirror_use_external_urls=true)"
        );
        return Err(ApiError::conflict(text));
    }
    Ok(())
}

/// Why the upstream of a mirror is not asked, if so.
fn offline(app: &App, stage: &Stage) -> Option<&'static str> {
    if app.python.mirrors.is_offline() {
        return Some("its upstream is not asked (python.mirrors_offline=true)");
    }
    let is_offline = stage.config().mirror().and_then(|it| it.mirror_offline).unwrap_or_default();
    is_offline.then_some("its upstream is not asked (mirror_offline=true)")
}

fn said(status: StatusCode, prefetch: Option<&Prefetch>) -> Response {
    reply::result(status, "prefetch", described(prefetch), None)
}

/// The state of a prefetch, as JSON for programs.
fn described(prefetch: Option<&Prefetch>) -> Value {
    let Some(prefetch) = prefetch else { return json!({"state": "none"}) };
    let progress = prefetch.progress();
    let stopped = progress.end.as_ref().and_then(|end| end.stopped.as_ref());
    let state = match (&progress.end, stopped) {
        (None, _) => "running",
        (Some(_), None) => "done",
        (Some(_), Some(_)) => "stopped",
    };
    json!({
        "state": state,
        "reason": stopped,
        "by": prefetch.by,
        "begun": prefetch.begun_at.to_string(),
        "ended": progress.end.as_ref().map(|end| end.at.to_string()),
        "releases": prefetch.releases,
        "releases_done": progress.releases,
        "files": progress.fetched.files,
        "bytes": progress.fetched.bytes,
        "uncompared": progress.fetched.uncompared,
        "others": prefetch.others,
        "problems": progress.problems,
        "problems_left_out": progress.problems_left_out,
    })
}

/// Fetches everything, unless the mirror goes, goes offline, or who asked may not any more.
fn run(index: OwnIndex, wanted: Vec<LockedRelease>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    /// Ends it however the work ends.
    struct Ending(Arc<Prefetch>);
    impl Drop for Ending {
        fn drop(&mut self) {
            self.0.end(Some("it has ended without an outcome; it has been logged".to_owned()));
        }
    }
    Box::pin(async move {
        let ending = Ending(index.prefetch.clone());
        let prefetch = &ending.0;
        let index = Arc::new(index);
        let fetching = async {
            let mut running = futures_util::stream::iter(wanted)
                .map(|wanted| {
                    let index = index.clone();
                    async move { prefetch::fetch(&*index, &wanted).await }
                })
                .buffer_unordered(AT_ONCE);
            while let Some((fetched, problems)) = running.next().await {
                // If the whole prefetch ends, the file is no problem of its own: the next ones would fail for the same reason.
                if let Some(why) = index.lost.get() {
                    return Some(why.clone());
                }
                prefetch.note(fetched, problems);
            }
            None
        };
        let stopped = tokio::select! {
            why = fetching => why,
            () = prefetch.stop.cancelled() => Some("somebody stopped it".to_owned()),
            why = index.ended() => Some(why),
        };
        let progress = prefetch.progress();
        tracing::info!(
            mirror = %index.stage,
            files = progress.fetched.files,
            bytes = progress.fetched.bytes,
            problems = progress.problems.len() + progress.problems_left_out,
            stopped,
            "the files of a lock were fetched"
        );
        prefetch.end(stopped);
    })
}

/// The mirror, as who began it asks it.
struct OwnIndex {
    app: Arc<App>,
    head: Parts,
    sender: Sender,
    stage: StageName,
    /// The prefetch that reports on it.
    prefetch: Arc<Prefetch>,
    /// Files that were asked for.
    opened: AtomicUsize,
    /// Why the prefetch ends early, once it does.
    lost: OnceLock<String>,
}

impl OwnIndex {
    /// Waits until the prefetch has to end early; returns why.
    async fn ended(&self) -> String {
        loop {
            tokio::select! {
                () = self.app.changes.closing.cancelled() => return "the server was stopped".to_owned(),
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
            if let Err(why) = self.still() {
                return why;
            }
        }
    }

    /// The sender, as of now, and the mirror.
    ///
    /// # Errors
    /// Why the prefetch ends early, which [`Self::lost`] then holds.
    fn still(&self) -> Result<(Principal, Arc<Stage>), String> {
        self.current().inspect_err(|why| drop(self.lost.set(why.clone())))
    }

    fn current(&self) -> Result<(Principal, Arc<Stage>), String> {
        let basis = self.app.basis(self.sender.clone()).map_err(|error| error.to_string())?;
        let stage = basis.stored.index.stage(self.stage.as_str());
        let Some(stage) = stage.filter(|stage| stage.config().is_mirror()) else {
            self.app.python.prefetches.forget_this(&self.stage, &self.prefetch);
            return Err("the mirror is gone".to_owned());
        };
        if let Some(why) = offline(&self.app, stage) {
            return Err(why.to_owned());
        }
        if prefetcher(&basis, stage.name()).is_err() {
            return Err("who began it may not change the mirror any more".to_owned());
        }
        Ok((basis.principal().clone(), stage.clone()))
    }

    /// The answer that the sender's client would get for this file.
    async fn response(&self, url: &str) -> Result<Response, String> {
        let (principal, _) = self.still()?;
        let path = format!("/{}/{url}", self.stage);
        let ask = Ask::at(self.app.clone(), self.head.clone(), principal, path, ACCEPTED);
        let ask = ask.map_err(|error| error.detail().to_owned())?;
        let names = Names::parse(&ask.path, Some(&Method::GET));
        let names = names.ok_or_else(|| format!("`{}` is no path of a file", ask.path))?;
        match files::get_file(&ask, &names).await {
            Ok(response) => Ok(response),
            Err(ApiError::Failure(error)) => Err(error.detail().to_owned()),
            Err(refused) => Ok(refusals::answer(&ask, refused).await),
        }
    }
}

impl Index for OwnIndex {
    async fn offered(&self, project: &ProjectName) -> Result<Vec<IndexFile>, String> {
        let (principal, stage) = self.still()?;
        if !stage.may_read(&principal, Portion::Project(project.as_str())) {
            return Err(format!("who began it may not read {}", self.stage));
        }
        let mirrors = &self.app.python.mirrors;
        let mirror: Option<Arc<Mirror>> = mirrors.of(&stage);
        let mirror = mirror.ok_or("the mirror has no upstream")?;
        // All files of upstream: for a file that a policy hides, the refusal names the rule.
        let page = mirrors.page_to_judge_by(&mirror, project).await;
        let page = page.map_err(|trouble| trouble.to_string())?;
        let page = page.ok_or("the upstream has no such project")?;
        let offered = page.files.iter().map(|file| {
            let hashes = file.hashes.iter().map(|(kind, digits)| (&**kind, &**digits));
            IndexFile::new(&file.filename, file.link(), hashes)
        });
        Ok(offered.collect())
    }

    async fn open(&self, file: &IndexFile) -> Result<FileStream, String> {
        if self.opened.fetch_add(1, Relaxed) >= FILES_MAX {
            return Err(format!("more than {FILES_MAX} files of one lock are not fetched"));
        }
        let response = self.response(&file.url).await?;
        let status = response.status();
        let body = response.into_body();
        if status.is_success() {
            return Ok(body.into_data_stream().map_err(|error| error.to_string()).boxed());
        }
        let bytes = axum::body::to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
        let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = said["message"].as_str().or(said["detail"].as_str()).unwrap_or_default();
        let word = if status == StatusCode::FORBIDDEN { "refused" } else { "not fetched" };
        Err(format!("{word} ({}): {text}", status.as_u16()))
    }
}
