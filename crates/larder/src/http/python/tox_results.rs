//! The test results of a release file, as devpi-web shows them: a list, and one with what its commands wrote.
//!
//! path -> the nearest stage that has the file -> the bytes of its results, newest first -> [`ToxReport`]s -> a page,
//! or JSON. A result that is not tox's, or that is too long to be read for a page, is a link to its file.

use std::fmt::Write as _;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use pypi::devpi::{ToxCommand, ToxReport, file_url};
use pypi::{FileRole, Part, ReleaseFile};
use serde_json::{Value, json};

use super::ask::Ask;
use super::project::{in_one_spelling, readable};
use super::reply;
use super::rights::About;
use super::write::Refused;
use crate::app::App;
use crate::http::body::Shape;
use crate::http::error::HttpError;

/// Results in one list: the newest.
const RESULTS_MAX: usize = 100;

/// What is read for one page, in bytes and in values of JSON; the results after that are links.
const BYTES_MAX: u64 = 8 << 20;
const VALUES_MAX: usize = 50_000;

/// A result, and what it says where that is known.
struct Shown<'snapshot> {
    file: &'snapshot ReleaseFile,
    url: String,
    report: Option<ToxReport>,
}

/// `/{user}/{index}/{project}/{version}/+toxresults/{filename}`, and that with a result's name after it.
pub(super) async fn page(
    ask: &Ask,
    stage: &str,
    project: &str,
    version: &str,
    path: &[String],
) -> Result<Response, HttpError> {
    find(ask, stage, project, version, path).await.or_else(Refused::into_result)
}

async fn find(
    ask: &Ask,
    stage: &str,
    project: &str,
    version: &str,
    path: &[String],
) -> Result<Response, Refused> {
    let order = readable(ask, stage, false, About::Project(project)).await?;
    let missing = |text: String| Refused::from(reply::refusal(ask, StatusCode::NOT_FOUND, &text));
    let no_project = || missing(format!("The project {project} does not exist."));
    let name = in_one_spelling(ask, project, no_project)?;
    let (filename, wanted) = match path {
        [filename] => (filename, None),
        [filename, result] => (filename, Some(result.as_str())),
        _ => return Err(missing("The name of a release file was expected.".to_owned())),
    };
    let view = order.project(name.as_str()).ok_or_else(no_project)?;
    let versions = view.versions();
    let views = versions.iter().filter(|view| match version {
        "latest" => true,
        "stable" => !view.version.is_prerelease(),
        version => view.version.as_str() == version,
    });
    let tested = views.take(1).flat_map(|view| &view.parts).find(|part| {
        let file = part.project.file(filename);
        file.is_some_and(|file| file.role() == FileRole::Release)
    });
    let no_file = || missing(format!("There is no file {filename} of {name} {version}."));
    let part = tested.ok_or_else(no_file)?;
    let shown = read(ask, part, filename, wanted).await?;
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
    let body = match wanted {
        Some(_) => shown.iter().map(details).collect(),
        None => list(ask, &shown),
    };
    let title = reply::escaped(&title);
    Ok(reply::html(format!(
        "<!DOCTYPE html><html lang=\"en\"><head><title>{title}</title></head><body><h1>{title}</h1>\n\
         {body}</body></html>\n"
    )))
}

/// The results of a file, newest first; of one name, if one is wanted.
async fn read<'snapshot>(
    ask: &Ask,
    part: &Part<'snapshot>,
    filename: &str,
    wanted: Option<&str>,
) -> Result<Vec<Shown<'snapshot>>, HttpError> {
    let results = part.project.tox_results_of(filename).map(|file| &**file);
    let mut results: Vec<&ReleaseFile> =
        results.filter(|file| wanted.is_none_or(|name| file.filename() == name)).collect();
    results.sort_by_key(|file| std::cmp::Reverse((file.uploaded_at(), file.serial())));
    results.truncate(RESULTS_MAX);
    let mut shown = Vec::with_capacity(results.len());
    let (mut left, mut values_left) = (BYTES_MAX, VALUES_MAX);
    // Few pages are made at a time, as each may hold as much as this. It is never closed.
    let _permit = ask.app.bodies.parsing.acquire().await;
    for file in results {
        let bytes = match left.checked_sub(file.size_bytes()) {
            Some(rest) => {
                left = rest;
                stored(&ask.app, file).await?
            }
            None => None,
        };
        // Some megabytes of JSON: other requests of this thread move on to another.
        let report = bytes.and_then(|bytes| {
            tokio::task::block_in_place(|| {
                values_left = values_left.checked_sub(Shape::of(&bytes).values())?;
                ToxReport::parse(&bytes)
            })
        });
        let url = file_url(&ask.root_url, part.stage.name(), file);
        shown.push(Shown { file, url, report });
    }
    Ok(shown)
}

async fn stored(app: &App, file: &ReleaseFile) -> Result<Option<Bytes>, HttpError> {
    app.keeper.blobs.bytes(*file.digest(), BYTES_MAX).await.map_err(|error| {
        tracing::error!(%error, "a test result cannot be read");
        HttpError::unavailable("the test result cannot be read now; it has been logged", 5)
    })
}

/// One object for each environment of a result, with its commands if it is shown alone.
fn items(result: &Shown<'_>, is_alone: bool) -> Vec<Value> {
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

fn list(ask: &Ask, shown: &[Shown<'_>]) -> String {
    if shown.is_empty() {
        return "<p>There are no test results.</p>\n".to_owned();
    }
    let mut text = "<table><thead><tr><th>Result</th><th>Host</th><th>Platform</th>\
                    <th>Environment</th><th>Python</th><th>Status</th></tr></thead><tbody>\n"
        .to_owned();
    for result in shown {
        let name = result.file.filename();
        let below = format!("{}/{name}", ask.path.trim_end_matches('/'));
        let url = reply::escaped(&format!("{}{below}", ask.root_url));
        let link = format!("<a href=\"{url}\">{}</a>", reply::escaped(name));
        let Some(report) = &result.report else {
            let _ = writeln!(text, "<tr><td>{link}</td><td colspan=\"5\">unknown</td></tr>");
            continue;
        };
        let [host, platform] = [&report.host, &report.platform].map(|text| reply::escaped(text));
        for environment in &report.environments {
            let (name, python) = (
                reply::escaped(&environment.envname),
                reply::escaped(environment.python_version.as_deref().unwrap_or_default()),
            );
            let status = environment.status.as_str();
            let _ = writeln!(
                text,
                "<tr class=\"{status}\"><td>{link}</td><td>{host}</td><td>{platform}</td><td>{name}</td>\
                 <td>{python}</td><td>{status}</td></tr>"
            );
        }
    }
    text.push_str("</tbody></table>\n");
    text
}

/// What a result says, environment by environment.
fn details(result: &Shown<'_>) -> String {
    let url = reply::escaped(&result.url);
    let mut text = format!("<p><a href=\"{url}\">The result as tox wrote it</a></p>\n");
    let Some(report) = &result.report else {
        text.push_str("<p>It cannot be shown here.</p>\n");
        return text;
    };
    for environment in &report.environments {
        let python = environment.python_version.as_deref().unwrap_or_default();
        let title = [&report.host, &report.platform, &environment.envname, python].join(" ");
        let status = environment.status.as_str();
        let _ = writeln!(
            text,
            "<div class=\"toxresult {status}\"><h2>{} ({status})</h2>",
            reply::escaped(title.trim_end())
        );
        commands(&mut text, "Setup", "No setup performed", &environment.setup);
        commands(&mut text, "Test", "No test run", &environment.test);
        text.push_str("</div>\n");
    }
    text
}

fn commands(text: &mut String, kind: &str, none: &str, commands: &[ToxCommand]) {
    if commands.is_empty() {
        let _ = writeln!(text, "<p>{none}</p>");
    }
    for command in commands {
        let status = if command.failed { "failed" } else { "passed" };
        let _ = writeln!(
            text,
            "<h3>{kind} command: {status}</h3>\n<pre>{}</pre>\n<pre>{}</pre>",
            reply::escaped(&command.command),
            reply::escaped(&command.output)
        );
    }
}
