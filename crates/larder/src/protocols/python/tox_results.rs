//! The test results of a release file, as devpi-web shows them: a list, and a single result with the output of its commands.
//!
//! path -> the nearest stage that has the file -> the bytes of its results, newest first -> [`ToxReport`]s -> a page, or JSON.
//! A result that is not tox's, or is too long for a page, is shown as a link to its file.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use pypi::devpi::{ToxCommand, ToxEnvironment, ToxReport, ToxStatus, file_url};
use pypi::{FileRole, ProjectPart, ReleaseFile, VersionView};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::ask::Ask;
use super::error::ApiError;
use super::names::Names;
use super::project::{in_one_spelling, readable};
use super::reply;
use super::rights::IndexPart;
use crate::app::App;
use crate::front::body::Shape;
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::published::tox_outcomes::Outcome;

/// Results in one list, and those of a file that are counted: the newest.
pub(crate) const RESULTS_MAX: usize = 100;

/// How long a page that counts results reads those that are not in memory.
const READING_MAX: Duration = Duration::from_millis(250);

/// Bytes and JSON values that are read for one page; further results are links.
const BYTES_MAX: u64 = 8 << 20;
const VALUES_MAX: usize = 50_000;

/// A result, with its report if it could be read.
struct ToxResult<'snapshot> {
    file: &'snapshot ReleaseFile,
    url: String,
    report: Option<ToxReport>,
}

/// `/{user}/{index}/{project}/{version}/+toxresults/{filename}`, and that with a result's name after it.
pub(crate) async fn show_tox_results(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let Names { stage, project, version, file: path, .. } = names;
    let about = IndexPart::Project(project.name.as_ref());
    let order = readable(ask, stage, false, about).await?;
    let missing = |text: String| ApiError::from(reply::refusal(ask, StatusCode::NOT_FOUND, &text));
    let no_project = || missing(format!("The project {} does not exist.", project.as_sent));
    let name = in_one_spelling(ask, project, no_project)?;
    let (filename, wanted) = match path.names.as_slice() {
        [filename] => (filename, None),
        [filename, result] => (filename, Some(result.as_str())),
        _ => return Err(missing("The name of a release file was expected.".to_owned())),
    };
    let view = order.project(name.as_str()).ok_or_else(no_project)?;
    let finding = async {
        let versions = view.versions();
        let wanted_view = match version.as_str() {
            "latest" => versions.first(),
            "stable" => versions.iter().find(|view| !view.version.is_prerelease()),
            version => VersionView::meant(&versions, version),
        };
        let tested = wanted_view.into_iter().flat_map(|view| &view.parts).find(|part| {
            let file = part.project.file(filename);
            file.is_some_and(|file| file.role() == FileRole::Release)
        });
        let no_file = || missing(format!("There is no file {filename} of {name} {version}."));
        tested.copied().ok_or_else(no_file)
    };
    let part = ask.step_over(&view, finding).await?;
    let shown = read(ask, &part, filename, wanted).await?;
    if let Some(wanted) = wanted
        && shown.is_empty()
    {
        return Err(missing(format!("There is no test result {wanted}.")));
    }
    if ask.wants_json() {
        let items: Vec<Value> =
            shown.iter().flat_map(|result| items(result, wanted.is_some())).collect();
        return Ok(reply::result(StatusCode::OK, "toxresults", items, None));
    }
    let title = match wanted {
        Some(wanted) => format!("{}: {name} {version}, test result {wanted}", part.stage.name()),
        None => format!("{}: {name} {version}, test results of {filename}", part.stage.name()),
    };
    let site = ask.site();
    let page = match wanted {
        Some(_) => ToxPage { site, title: &title, lines: Vec::new(), details: Some(&shown) },
        None => ToxPage { site, title: &title, lines: lines(ask, &shown), details: None },
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}

#[derive(Template)]
#[template(path = "tox_results.html")]
struct ToxPage<'a> {
    site: Site,
    title: &'a str,
    /// The list: one line for each environment of a result.
    lines: Vec<Line<'a>>,
    /// The result that is shown alone.
    details: Option<&'a [ToxResult<'a>]>,
}

impl ToxPage<'_> {
    /// The commands of an environment by phase, with the phase's label and a text for a phase without commands.
    fn phases<'run>(
        &self,
        run: &'run ToxEnvironment,
    ) -> [(&'static str, &'static str, &'run [ToxCommand]); 2] {
        [("Setup", "No setup performed", &run.setup), ("Test", "No test run", &run.test)]
    }
}

/// A line of the list.
struct Line<'a> {
    url: String,
    name: &'a str,
    host: &'a str,
    platform: &'a str,
    environment: &'a str,
    python: &'a str,
    status: &'a str,
}

/// The results of a file, newest first; of one name, if one is wanted.
async fn read<'snapshot>(
    ask: &Ask,
    part: &ProjectPart<'snapshot>,
    filename: &str,
    wanted: Option<&str>,
) -> Result<Vec<ToxResult<'snapshot>>, HttpError> {
    let results = part.project.tox_results_of(filename);
    let mut results: Vec<&ReleaseFile> =
        results.filter(|file| wanted.is_none_or(|name| file.filename() == name)).collect();
    results.sort_by_key(|file| std::cmp::Reverse((file.uploaded_at(), file.serial())));
    results.truncate(RESULTS_MAX);
    let mut shown = Vec::with_capacity(results.len());
    let (mut left, mut values_left) = (BYTES_MAX, VALUES_MAX);
    // Few pages are made at a time, as each may hold as much as this.
    let _turn = ask.app.limits.bodies.parsing.take().await;
    for file in results {
        let bytes = match left.checked_sub(file.size_bytes()) {
            Some(rest) => {
                left = rest;
                stored(&ask.app, file).await?
            }
            None => None,
        };
        // Some megabytes of JSON: other tasks of this thread move to another.
        let report = bytes.and_then(|bytes| {
            tokio::task::block_in_place(|| {
                values_left = values_left.checked_sub(Shape::of(&bytes).values())?;
                ToxReport::parse(&bytes)
            })
        });
        let url = file_url(ask.root_url(), part.stage.name(), file);
        shown.push(ToxResult { file, url, report });
    }
    Ok(shown)
}

/// What may still be read for a page that counts results.
pub(crate) struct ReadingBudget {
    until: Instant,
    bytes_left: u64,
}

impl ReadingBudget {
    /// For one page.
    pub(crate) fn new() -> ReadingBudget {
        ReadingBudget { until: Instant::now() + READING_MAX, bytes_left: BYTES_MAX }
    }

    /// How a result ended, from memory, or else read; `None` if it cannot be read now.
    pub(crate) async fn outcome(&mut self, ask: &Ask, file: &ReleaseFile) -> Option<Arc<Outcome>> {
        let known = &ask.app.python.tox_outcomes;
        if let Some(outcome) = known.find(file.digest()) {
            return Some(outcome);
        }
        if file.size_bytes() > BYTES_MAX {
            return Some(known.keep(file.digest(), None));
        }
        if Instant::now() >= self.until {
            return None;
        }
        self.bytes_left = self.bytes_left.checked_sub(file.size_bytes())?;
        let turn = timeout_at(self.until, known.reading.take()).await.ok()?;
        let (app, file) = (ask.app.clone(), file.clone());
        // What is read too late is there for the next reader.
        let reading = tokio::spawn(async move {
            let outcome = read_outcome(&app, &file).await;
            drop(turn);
            outcome
        });
        timeout_at(self.until, reading).await.ok()?.ok()?
    }
}

async fn read_outcome(app: &App, file: &ReleaseFile) -> Option<Arc<Outcome>> {
    let bytes = stored(app, file).await.ok()??;
    // Some megabytes of JSON, as above.
    let report = tokio::task::block_in_place(|| {
        let is_short = Shape::of(&bytes).values() <= VALUES_MAX;
        is_short.then(|| ToxReport::parse(&bytes)).flatten()
    });
    Some(app.python.tox_outcomes.keep(file.digest(), report.as_ref()))
}

async fn stored(app: &App, file: &ReleaseFile) -> Result<Option<Bytes>, HttpError> {
    app.store.blobs.bytes(*file.digest(), BYTES_MAX).await.map_err(|error| {
        tracing::error!(%error, "a test result cannot be read");
        HttpError::unavailable("the test result cannot be read now; it has been logged", 5)
    })
}

/// One object for each environment of a result, with its commands if it is shown alone.
fn items(result: &ToxResult<'_>, is_alone: bool) -> Vec<Value> {
    let mut base = json!({"basename": result.file.filename(), "href": result.url});
    let Some(report) = &result.report else {
        base["status"] = "unknown".into();
        return vec![base];
    };
    base["host"] = report.host.as_str().into();
    base["platform"] = report.platform.as_str().into();
    let environments = report.environments.iter().map(|environment| {
        let mut item = base.clone();
        if let (Some(item), Ok(Value::Object(more))) =
            (item.as_object_mut(), serde_json::to_value(environment))
        {
            let commands = |key: &str| matches!(key, "setup" | "test");
            item.extend(more.into_iter().filter(|(key, _)| is_alone || !commands(key)));
        }
        item
    });
    environments.collect()
}

fn lines<'a>(ask: &Ask, shown: &'a [ToxResult<'_>]) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for result in shown {
        let name = result.file.filename();
        let url = format!("{}{}/{name}", ask.root_url(), ask.path.trim_end_matches('/'));
        let unknown = Line {
            url,
            name,
            host: "",
            platform: "",
            environment: "",
            python: "",
            status: ToxStatus::Unknown.as_str(),
        };
        let Some(report) = &result.report else {
            lines.push(unknown);
            continue;
        };
        lines.extend(report.environments.iter().map(|environment| Line {
            url: unknown.url.clone(),
            host: &report.host,
            platform: &report.platform,
            environment: &environment.envname,
            python: environment.python_version.as_deref().unwrap_or_default(),
            status: environment.status.as_str(),
            ..unknown
        }));
    }
    lines
}
