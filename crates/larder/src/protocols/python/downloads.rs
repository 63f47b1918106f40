//! `/{user}/{index}/{project}/+downloads`: how often the releases of a project were downloaded, for those who may read the index.
//!
//! the counts of all processes, of the index that was asked and of its bases -> [`of_project`] -> JSON here, or a page for people. The
//! [files](super::files) say what counts.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use pypi::{ProjectName, Stage, StageName};
use resources::turns::ThreadShare;
use serde_json::{Map, Value, json};
use store::records::{DownloadsError, ProjectDownloads};

use super::ask::Ask;
use super::error::ApiError;
use super::names::Project;
use super::project::{in_one_spelling, readable};
use super::reply;
use super::rights::IndexPart;
use super::simple::mirrored::project_of;
use crate::app::downloads::{DAYS, Downloads, VERSIONS_MAX, start_of, today};
use crate::front::error::HttpError;
use crate::front::turns;

/// So few ask the database at once, because each project may have many rows; so many others wait.
const READING_AT_ONCE: usize = 2;
const READING_WAITING_MAX: usize = 256;

/// Days that the page of a project shows, today included.
pub(crate) const LATELY_DAYS: i64 = 30;

/// That page does not wait longer for them. They are read nevertheless, for the next reader.
const LATELY_WAIT_MAX: Duration = Duration::from_millis(250);

static READING: LazyLock<ThreadShare> =
    LazyLock::new(|| ThreadShare::new(READING_AT_ONCE, READING_WAITING_MAX));

/// The downloads of a project: from the index that was asked, and from its bases.
pub(crate) struct ProjectDays<'ask> {
    pub(crate) stage: &'ask Arc<Stage>,
    pub(crate) project: &'ask ProjectName,
    /// The first day and the last one, counted from 1970-01-01.
    pub(crate) days: (i64, i64),
    /// By day, of all releases; a day without any is left out.
    pub(crate) total: BTreeMap<i64, u64>,
    /// The releases that were downloaded most, most first.
    pub(crate) releases: Vec<(String, BTreeMap<i64, u64>)>,
    /// How many more there are.
    pub(crate) more: u64,
}

/// The downloads of a project that is there, if the sender may read it.
pub(crate) async fn of_project<'ask>(
    ask: &'ask Ask,
    stage: &str,
    project: &'ask Project,
) -> Result<ProjectDays<'ask>, ApiError> {
    let order = readable(ask, stage, false, IndexPart::Project(project.name.as_ref())).await?;
    let missing = || HttpError::not_found(format!("{stage} has no project `{}`", project.as_sent));
    let name = in_one_spelling(ask, project, || missing().into())?;
    if ask.app.python.downloads.kept().is_none() {
        let text = "downloads are not counted here: `python.count_downloads` is off";
        return Err(HttpError::not_found(text).into());
    }
    let own = order.project(name.as_str());
    let mirrors = order.mirrors_of(name.as_str()).asked;
    if own.is_none() && (mirrors.is_empty() || !project_of(ask, &order, name).await?.has_page) {
        return Err(missing().into());
    }
    let parts = own.iter().flat_map(|own| own.parts()).map(|part| part.stage.name());
    let holders = parts.chain(mirrors.iter().map(|mirror| mirror.name()));
    let today = today();
    let mut total: BTreeMap<i64, u64> = BTreeMap::new();
    let mut releases: BTreeMap<String, BTreeMap<i64, u64>> = BTreeMap::new();
    let mut count = 0;
    for holder in holders {
        let downloads = of_holder(&ask.app.python.downloads, holder, name, today).await?;
        add(&mut total, &downloads.days);
        count += downloads.version_count.saturating_sub(downloads.versions.len() as u64);
        for release in &downloads.versions {
            add(releases.entry(release.version.clone()).or_default(), &release.days);
        }
    }
    let mut releases: Vec<_> = releases.into_iter().collect();
    releases.sort_by_key(|(_, days)| std::cmp::Reverse(sum(days)));
    let most = releases.len().min(VERSIONS_MAX as usize);
    let more = count + (releases.len() - most) as u64;
    releases.truncate(most);
    let stage = order.stages().first().copied().ok_or_else(missing)?;
    Ok(ProjectDays { stage, project: name, days: (today - DAYS + 1, today), total, releases, more })
}

/// The downloads of a project by day, from these indexes together, in the last [`LATELY_DAYS`]; with the first day and the last one.
/// `None` if they are not counted, or not known soon.
pub(crate) async fn lately<'a>(
    ask: &Ask,
    holders: impl Iterator<Item = &'a StageName>,
    name: &ProjectName,
) -> Option<((i64, i64), BTreeMap<i64, u64>)> {
    ask.app.python.downloads.kept()?;
    let today = today();
    let (app, name) = (ask.app.clone(), name.clone());
    let holders: Vec<StageName> = holders.cloned().collect();
    // A task of its own: what is not read in time is there for the next reader.
    let reading = tokio::spawn(async move {
        let mut total = BTreeMap::new();
        for holder in &holders {
            add(
                &mut total,
                &of_holder(&app.python.downloads, holder, &name, today).await.ok()?.days,
            );
        }
        Some(total)
    });
    let mut total = tokio::time::timeout(LATELY_WAIT_MAX, reading).await.ok()?.ok()??;
    let first = today - LATELY_DAYS + 1;
    Some(((first, today), total.split_off(&first)))
}

/// The downloads of a project from this index alone: those that were read within the last minute, or else from the database.
async fn of_holder(
    downloads: &Downloads,
    holder: &StageName,
    name: &ProjectName,
    today: i64,
) -> Result<ProjectDownloads, HttpError> {
    if let Some(known) = downloads.known(holder, name, today) {
        return Ok(known);
    }
    let _turn = turns::turn(&READING).await?;
    downloads.read(holder, name, today).await.map_err(unreadable)
}

fn add(sums: &mut BTreeMap<i64, u64>, days: &[(i64, u64)]) {
    for (day, count) in days {
        *sums.entry(*day).or_default() += count;
    }
}

/// All days together.
pub(crate) fn sum(days: &BTreeMap<i64, u64>) -> u64 {
    days.values().sum()
}

fn unreadable(error: DownloadsError) -> HttpError {
    tracing::warn!(%error, "the downloads cannot be read");
    HttpError::unavailable("the downloads cannot be read now; it has been logged", 5)
}

/// A day as programs write it, in UTC.
pub(crate) fn day(day: i64) -> String {
    start_of(day).strftime("%F").to_string()
}

/// `GET /{user}/{index}/{project}/+downloads`
pub(crate) async fn show_downloads(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    let found = of_project(ask, stage, project).await?;
    let days = |days: &BTreeMap<i64, u64>| -> Map<String, Value> {
        days.iter().map(|(at, count)| (day(*at), (*count).into())).collect()
    };
    let release = |(version, of): &(String, BTreeMap<i64, u64>)| json!({"version": version, "total": sum(of), "days": days(of)});
    let releases: Vec<Value> = found.releases.iter().map(release).collect();
    let result = json!({
        "from": day(found.days.0),
        "to": day(found.days.1),
        "total": sum(&found.total),
        "days": days(&found.total),
        "releases": releases,
        "more": found.more,
    });
    Ok(reply::result(StatusCode::OK, "downloads", result, None))
}
