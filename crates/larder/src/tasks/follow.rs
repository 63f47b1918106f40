//! Follows the primary, if this server is a copy of one: its records, and its blobs where all are wanted.
//!
//! [`following::follow`] writes records into the store, and the tail takes them from there like any others. If the primary has
//! another history than before, a new copy is made beside the records while these are served; then the server starts again with
//! the new one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use config::FollowBlobs;
use following::{Link, Pace, PrimaryStore, follow, generation, take_copy};
use futures_util::StreamExt as _;
use record::Digest;
use state::maintenance::{self, ReadRecords, SweepPlan};
use store::blobs::FailureKind;
use store::records::{PagePosition, PageSize};
use store::{BlobError, BlobStore, DatabaseLocation};

use crate::app::App;
use crate::app::following::Following;

/// Records whose blobs are fetched together.
const PAGE: PageSize = PageSize { records_max: 256, bytes_max: 1 << 20 };

/// Blobs that are fetched at once, where all are wanted: clients that wait for one have places of their own.
const FETCHED_AT_ONCE: usize = 4;

/// How soon something large is tried again: a whole copy, or blobs that could not be fetched.
const LONG: Pace = Pace { first: Duration::from_secs(5), max: Duration::from_secs(15 * 60) };

/// Follows the primary; returns at once if this server follows nobody.
pub async fn run(app: Arc<App>) {
    let Some(following) = &app.following else { return };
    tokio::join!(
        follow_records(&app, following),
        follow_blobs(&app, &following.link),
        drop_unnamed_blobs(&app, following),
    );
}

/// Deletes the blobs that a copy of a part does not name: its token may have opened more before.
async fn drop_unnamed_blobs(app: &App, following: &Following) {
    if following.part.is_none() {
        return;
    }
    app.live_store.wait_until_loaded().await;
    let plan = SweepPlan { grace: Duration::ZERO, is_dry_run: false, is_forced: true };
    // What is served beside the records that are there now has been read from them.
    let swept = maintenance::sweep(&app.store, plan, &ReadRecords::default()).await;
    match swept {
        Ok(outcome) if outcome.report.deleted > 0 => {
            let deleted = outcome.report.deleted;
            tracing::info!(deleted, "deleted blobs that this copy does not name");
        }
        Ok(_) => {}
        Err(error) => {
            let error = format!("{error:#}");
            tracing::warn!(%error, "blobs that this copy does not name cannot be deleted now");
        }
    }
}

async fn follow_records(app: &App, following: &Following) {
    let Following { primary, link, starts_over, .. } = following;
    let DatabaseLocation::Sqlite(database) = app.config.database() else { return };
    let data_dir = app.config.data_dir.clone();
    // The state that the first read publishes has the name of the store.
    app.live_store.wait_until_loaded().await;
    let identity = app.live_store.snapshot().and_then(|stored| stored.identity.clone());
    let identity = identity.and_then(|name| name.to_str().ok().map(str::to_owned));
    let identity = identity.unwrap_or_default();
    let (records, pace, part) = (&app.store.records, Pace::default(), following.part);
    let own = (data_dir.clone(), identity.clone(), part);
    let why = follow(records, primary, link, own, pace).await;
    match part {
        None => tracing::error!(
            %why,
            "the primary has another history than before: everything is read anew, and the old records are served \
             meanwhile"
        ),
        Some(_) => tracing::warn!(
            %why,
            "the rights of the token have changed: the data is copied again, and the primary answers until then"
        ),
    }
    following.is_outdated.store(true, Relaxed);
    link.start_over(why);
    let mut failures = 0;
    loop {
        let copied = async {
            let generation = generation::of(records).await?;
            let known = PrimaryStore { identity: identity.clone(), generation, part };
            take_copy(primary, link, (&data_dir, &database), &known, pace).await
        };
        match copied.await {
            Ok(copy) => {
                tracing::info!(
                    serial = copy.serial.0,
                    "there is a new copy of the primary: the server starts again with it"
                );
                return starts_over.cancel();
            }
            Err(error) => {
                failures += 1;
                tracing::error!("no new copy can be made: {error:#}");
                link.lost(format!("{error:#}"));
                tokio::time::sleep(LONG.pause(failures)).await;
            }
        }
    }
}

/// Fetches every blob that a record names, if all are wanted: in the order of the commits. What cannot be fetched stops nothing
/// else, and is tried again later.
async fn follow_blobs(app: &App, link: &Link) {
    if app.config.follow_blobs != FollowBlobs::All {
        return;
    }
    let records = &app.store.records;
    let retry = Pace::default().max;
    let mut place = PagePosition::default();
    let mut lacking = MissingBlobs::default();
    loop {
        let page = match records.page_after(&place, PAGE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(%error, "the names of blobs cannot be read");
                tokio::time::sleep(retry).await;
                continue;
            }
        };
        let digests = page.records.into_iter().flat_map(|record| record.blobs);
        match fetch(app, link, digests).await {
            FetchOutcome::NotNow => {
                tokio::time::sleep(retry).await;
                continue;
            }
            FetchOutcome::AllBut(missing) => lacking.note(missing, &place),
        }
        place = page.next;
        if !page.is_last {
            continue;
        }
        app.metrics.follow_blobs_missing.set(lacking.count as i64);
        lacking.tell();
        let Some(from) = lacking.from.clone() else {
            lacking = MissingBlobs::default();
            match records.wait(page.serial).await {
                Some(_) => continue,
                None => return,
            }
        };
        match tokio::time::timeout(lacking.pause(), records.wait(page.serial)).await {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(_) => {
                place = from;
                lacking = lacking.again();
            }
        }
    }
}

/// Blobs that could not be fetched, though the primary is there.
#[derive(Default)]
struct MissingBlobs {
    count: usize,
    last: Option<Digest>,
    /// Where the first page begins that names one.
    from: Option<PagePosition>,
    /// How often all were tried again.
    rounds: u32,
    tried_at: Option<Instant>,
    /// How many the log knows of.
    told: usize,
}

impl MissingBlobs {
    fn note(&mut self, missing: Vec<Digest>, place: &PagePosition) {
        let Some(last) = missing.last() else { return };
        self.count += missing.len();
        self.last = Some(*last);
        self.from.get_or_insert_with(|| place.clone());
        self.tried_at.get_or_insert_with(Instant::now);
    }

    /// Logs them if there are more.
    fn tell(&mut self) {
        let count = self.count;
        if count > self.told {
            let digest = self.last.map(|last| last.to_string()).unwrap_or_default();
            tracing::warn!(
                count,
                digest,
                "blobs cannot be fetched, this one among them; they are tried again"
            );
        }
        self.told = count;
    }

    /// Until they are to be tried again.
    fn pause(&self) -> Duration {
        let waited = self.tried_at.map_or(Duration::ZERO, |at| at.elapsed());
        LONG.pause(self.rounds + 1).saturating_sub(waited)
    }

    /// What is known when all are tried again.
    fn again(self) -> MissingBlobs {
        MissingBlobs { rounds: self.rounds + 1, told: self.told, ..MissingBlobs::default() }
    }
}

/// What became of some blobs.
enum FetchOutcome {
    /// All were tried, and all are here but these.
    AllBut(Vec<Digest>),
    /// The primary is away, or this server's disk takes nothing: no other blob would fare better.
    NotNow,
}

/// Fetches those of these blobs that are missing, some at a time.
async fn fetch(app: &App, link: &Link, digests: impl Iterator<Item = Digest>) -> FetchOutcome {
    let fetching: Vec<_> = digests.map(|digest| fetch_one(&app.store.blobs, digest)).collect();
    let mut fetching = futures_util::stream::iter(fetching).buffer_unordered(FETCHED_AT_ONCE);
    let mut missing = Vec::new();
    while let Some((digest, fetched)) = fetching.next().await {
        match fetched {
            Ok(true) => {}
            Ok(false) => missing.push(digest),
            Err(error) => {
                tracing::debug!(%digest, %error, "a blob cannot be fetched");
                let is_of_primary = error.kind() == Some(FailureKind::Unavailable);
                if !is_of_primary || !link.state().is_connected() {
                    return FetchOutcome::NotNow;
                }
                missing.push(digest);
            }
        }
    }
    FetchOutcome::AllBut(missing)
}

async fn fetch_one(blobs: &BlobStore, digest: Digest) -> (Digest, Result<bool, BlobError>) {
    (digest, blobs.bring(digest).await)
}
