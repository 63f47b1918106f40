//! Projects and versions as JSON, over a stage and its bases; and removing them.

mod metadata;
mod mirrored;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use account::Principal;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use operations::releases::{DeleteProject, DeleteRelease};
use operations::rights::{IndexPart, remover};
use pypi::change::remove::RemovalExtent;
use pypi::devpi::{self, View};
use pypi::policy::HiddenFiles;
use pypi::{Judge, ProjectName, RefusedFiles, ResolutionOrder, VersionView};
use resources::turns::Turn;
use serde_json::Value;
use serde_json::json;
use tokio::sync::mpsc;

use self::metadata::MetadataReader;

use super::ask::Ask;
use super::error::ApiError;
use super::names::Project;
use super::rights::{admit, no_stage};
use super::{policy, reply};
use crate::front::body::client;
use crate::front::error::HttpError;
use crate::routes::Surface;

pub(crate) use self::metadata::metadata;

/// Metadata that is read, and versions that are written, at a time: a project with more is sent in portions, so
/// that thousands of long descriptions are never in memory together.
const AT_ONCE: usize = 16;

/// How long a reader may take for one portion, and on average for each: a slower reader occupies a place that others need.
const PORTION_TIMEOUT: Duration = Duration::from_secs(60);
const PORTION_PACE: Duration = Duration::from_secs(3);

/// The stages that answer for `stage`, if the sender may read all of them.
pub(crate) async fn readable<'ask>(
    ask: &'ask Ask,
    stage: &str,
    is_alone: bool,
    about: IndexPart<'_>,
) -> Result<ResolutionOrder<'ask>, ApiError> {
    let index = &ask.stored.index;
    let order = match is_alone {
        true => ResolutionOrder::alone(index, stage),
        false => ResolutionOrder::of(index, stage),
    };
    let order = order.ok_or_else(|| no_stage(stage))?;
    admit(ask, &order, about).await?;
    Ok(order)
}

/// The name of a project here, or a redirect to the normalized name.
fn normalized<'ask>(ask: &Ask, project: &'ask Project) -> Result<&'ask ProjectName, ApiError> {
    in_one_spelling(ask, project, || no_project(&project.as_sent))
}

/// The normalized name, or a redirect to it. `missing` makes the answer where no project can have this name.
pub(crate) fn in_one_spelling<'ask>(
    ask: &Ask,
    project: &'ask Project,
    missing: impl FnOnce() -> ApiError,
) -> Result<&'ask ProjectName, ApiError> {
    let name = project.name.as_ref().ok_or_else(missing)?;
    if project.is_normalized() {
        return Ok(name);
    }
    Err(ApiError::from(reply::redirect(ask, &ask.path_with_project(name))))
}

fn no_project(project: &str) -> ApiError {
    ApiError::not_found(format_args!("no project '{project}'"))
}

fn no_version(project: &str, version: &str) -> ApiError {
    let text = format!("The version {version} of project {project} does not exist.");
    ApiError::not_found(text)
}

/// Nothing but JSON is here.
fn check_accept(ask: &Ask) -> Result<(), ApiError> {
    if ask.takes_json() {
        return Ok(());
    }
    let text = "there is no page for people here; with `Accept: application/json` there is JSON";
    Err(ApiError::from(reply::refusal(ask, StatusCode::NOT_FOUND, text)))
}

/// `GET /{user}/{index}/{project}`
pub(crate) async fn show_project(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    check_accept(ask)?;
    let is_alone = ask.has_flag("ignore_bases");
    let order = readable(ask, stage, is_alone, IndexPart::Project(project.name.as_ref())).await?;
    let name = normalized(ask, project)?;
    let Some(view) = order.project(name.as_str()) else {
        if let Some(response) = mirrored::project(ask, &order, name).await? {
            return Ok(response);
        }
        // A project of a base alone exists, but with no releases of this index.
        let all = readable(ask, stage, false, IndexPart::Project(project.name.as_ref())).await?;
        return match all.project(name.as_str()) {
            Some(_) if is_alone => {
                Ok(reply::result(StatusCode::OK, "projectconfig", json!({}), None))
            }
            _ => Err(no_project(&project.as_sent)),
        };
    };
    let making = async {
        let mut versions = view.versions();
        let judge = Judge::of(&order, name, Timestamp::now());
        let shown = RefusedFiles::of(&view, judge.as_ref());
        leave_out(&mut versions, shown.as_ref());
        let principal = ask.principal().await?;
        let streamed =
            |principal, count| streamed(ask, principal, stage, name.clone(), is_alone, count);
        if versions.len() > AT_ONCE {
            return streamed(principal, versions.len());
        }
        let opened = MetadataReader::of(&ask.app, &versions).await?;
        if opened.is_large() && versions.len() > 1 {
            return streamed(principal, versions.len());
        }
        let metadata = opened.load().await?;
        let (viewer, url) = (ask.view(&principal), ask.root_url());
        let config = devpi::project_config(&versions, name, url, &metadata, viewer, judge.as_ref());
        let said = said(shown.as_ref());
        let said = Some(said.as_str()).filter(|said| !said.is_empty());
        Ok(reply::result(StatusCode::OK, "projectconfig", config, said))
    };
    ask.in_turn(making).await
}

/// Leaves out the versions whose files are all refused.
fn leave_out(versions: &mut Vec<VersionView<'_>>, shown: Option<&RefusedFiles<'_>>) {
    if let Some(shown) = shown {
        versions.retain(|view| shown.refusal_of(view.version.as_str()).is_none());
    }
}

/// The hidden versions, in words.
fn said(shown: Option<&RefusedFiles<'_>>) -> String {
    shown.map(|shown| sentences(shown.hidden())).unwrap_or_default()
}

fn sentences(hidden: &HiddenFiles) -> String {
    hidden.sentences().collect::<Vec<_>>().join("; ")
}

/// About what a version of an own project takes in memory while its JSON is sent.
const VERSION_BYTES: u64 = 128;

/// The JSON of a project with `count` versions, made and sent in portions.
///
/// # Errors
/// 503 if too much is being sent, to this client or to all.
fn streamed(
    ask: &Ask,
    principal: Principal,
    stage: &str,
    project: ProjectName,
    is_alone: bool,
    count: usize,
) -> Result<Response, ApiError> {
    let client = client(&ask.app, &ask.head).key();
    // The state that it is made of stays in memory anyway: only the list of versions is its own.
    let place = ask.app.python.mirrors.plans.stream(client, VERSION_BYTES * count as u64);
    let place =
        place.ok_or_else(|| HttpError::unavailable("too many large projects are being sent", 2))?;
    let (app, stored) = (ask.app.clone(), ask.stored.clone());
    let shows_all = app.config.python.devpi_defaults;
    let (stage, root_url) = (stage.to_owned(), ask.root_url().to_owned());
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _place = place;
        let turns = &app.limits.making_answers[Surface::Python as usize].turns;
        let mut turn = turns.take().await;
        let order = match is_alone {
            true => ResolutionOrder::alone(&stored.index, &stage),
            false => ResolutionOrder::of(&stored.index, &stage),
        };
        let view = order.as_ref().and_then(|order| order.project(project.as_str()));
        let judge = order.and_then(|order| Judge::of(&order, &project, Timestamp::now()));
        let (versions, shown) = tokio::task::block_in_place(|| {
            let mut versions = view.as_ref().map(|view| view.versions()).unwrap_or_default();
            let shown = view.as_ref().and_then(|view| RefusedFiles::of(view, judge.as_ref()));
            leave_out(&mut versions, shown.as_ref());
            (versions, shown)
        });
        let said = said(shown.as_ref());
        let mut text = "{\n  \"result\": {".to_owned();
        let mut separator = "";
        let viewer = View { snapshot: &stored.index, principal: &principal, shows_all };
        let mut portions: VecDeque<_> = versions.chunks(AT_ONCE).collect();
        let mut patience = PORTION_TIMEOUT;
        while let Some(portion) = portions.pop_front() {
            let opened = MetadataReader::of(&app, portion).await;
            if portion.len() > 1 && opened.as_ref().is_ok_and(MetadataReader::is_large) {
                portion.chunks(1).rev().for_each(|one| portions.push_front(one));
                continue;
            }
            let mut sending = None;
            let loaded = match opened {
                Ok(opened) => {
                    if opened.is_large() {
                        // Until the client has received what is before it, it keeps no turn that others need.
                        drop(turn);
                        sending = Some(opened.turn_to_send().await);
                        turn = turns.take().await;
                    }
                    opened.load().await
                }
                Err(error) => Err(error),
            };
            let Ok(metadata) = loaded else {
                // What was sent cannot be taken back, but the client sees that the body is cut short.
                let error = io::Error::other("the metadata of a version cannot be read");
                let _ = sender.send(Err(error)).await;
                return;
            };
            tokio::task::block_in_place(|| {
                for view in portion {
                    let version = Value::from(view.version.as_str());
                    let judge = judge.as_ref();
                    let value =
                        devpi::version_data(view, &project, &root_url, &metadata, viewer, judge);
                    // JSON escapes line feeds in texts, so all that are left are indentation.
                    let value = format!("{value:#}").replace('\n', "\n    ");
                    text.push_str(&format!("{separator}\n    {version}: {value}"));
                    separator = ",";
                }
            });
            drop((metadata, turn));
            let piece = (Bytes::from(std::mem::take(&mut text)), sending);
            if let Err(error) = hand_over(&sender, piece, &mut patience).await {
                let _ = sender.try_send(Err(error));
                return;
            }
            turn = turns.take().await;
        }
        drop(turn);
        text.push_str("\n  },\n  \"type\": \"projectconfig\"");
        if !said.is_empty() {
            text.push_str(&format!(",\n  \"message\": {}", Value::from(said)));
        }
        text.push_str("\n}\n");
        // A client that has gone misses nothing.
        let _ = sender.send(Ok((Bytes::from(text), None))).await;
    });
    let mut response = Body::from_stream(taken(receiver)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(reply::JSON));
    Ok(response)
}

/// The pieces of a body that come through a channel. Each piece's turn ends when the next one is asked for: then the client has
/// taken it.
fn taken(
    receiver: mpsc::Receiver<io::Result<(Bytes, Option<Turn>)>>,
) -> impl stream::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((receiver, None), |(mut receiver, turn)| async move {
        drop::<Option<Turn>>(turn);
        let piece = receiver.recv().await?;
        Some(match piece {
            Ok((bytes, turn)) => (Ok(bytes), (receiver, turn)),
            Err(error) => (Err(error), (receiver, None)),
        })
    })
}

/// Sends a portion as soon as the one before was taken. `patience` is how long that may take.
async fn hand_over<T>(
    sender: &mpsc::Sender<io::Result<T>>,
    portion: T,
    patience: &mut Duration,
) -> io::Result<()> {
    let began = Instant::now();
    let sending = tokio::time::timeout(*patience, sender.send(Ok(portion)));
    let sent = sending.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    *patience = patience_after(*patience, began.elapsed());
    sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
}

/// How long a reader may take for the next portion, if it took `taken` for one.
fn patience_after(patience: Duration, taken: Duration) -> Duration {
    (patience.saturating_sub(taken) + PORTION_PACE).min(PORTION_TIMEOUT)
}

/// The items of a channel, as a body's pieces.
pub(crate) fn received<T: Send + 'static>(
    receiver: mpsc::Receiver<T>,
) -> impl stream::Stream<Item = T> + Send {
    stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    })
}

/// `GET /{user}/{index}/{project}/{version}`
pub(crate) async fn show_release(
    ask: &Ask,
    stage: &str,
    project: &Project,
    version: &str,
) -> Result<Response, ApiError> {
    check_accept(ask)?;
    let is_alone = ask.has_flag("ignore_bases");
    let order = readable(ask, stage, is_alone, IndexPart::Project(project.name.as_ref())).await?;
    let name = normalized(ask, project)?;
    let missing = || no_version(name.as_str(), version);
    let Some(view) = order.project(name.as_str()) else {
        return mirrored::release(ask, &order, name, version).await?.ok_or_else(missing);
    };
    let making = async {
        let versions = view.versions();
        let wanted = VersionView::meant(&versions, version).ok_or_else(missing)?;
        let version = wanted.version.as_str();
        let judge = Judge::of(&order, name, Timestamp::now());
        let judge = judge.as_ref();
        let shown = RefusedFiles::of(&view, judge);
        if let Some(refused) = shown.as_ref().and_then(|shown| shown.refusal_of(version)) {
            return Ok(policy::refused(ask, &format!("{name} {version}"), refused).await);
        }
        let metadata = metadata(&ask.app, std::slice::from_ref(wanted)).await?;
        let principal = ask.principal().await?;
        let viewer = ask.view(&principal);
        let data = devpi::version_data(wanted, name, ask.root_url(), &metadata, viewer, judge);
        Ok(reply::result(StatusCode::OK, "versiondata", data, None))
    };
    ask.in_turn(making).await
}

/// `DELETE /{user}/{index}/{project}`
pub(crate) async fn delete_project(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    let (stage, about) = (ask.stage_name(stage)?, IndexPart::Project(project.name.as_ref()));
    remover::<DeleteProject>(&ask.asked().await?, &stage, about)?;
    let missing = || ApiError::not_found("project not found");
    let project = project.name.clone().ok_or_else(missing)?;
    let (force, extent) = (ask.has_flag("force"), extent(ask)?);
    let text = match extent {
        RemovalExtent::Name => format!("the name {project} is released from stage {stage}"),
        _ => format!("project {project} deleted from stage {stage}"),
    };
    ask.carry_out(&DeleteProject { stage, project, extent, force }).await?;
    Ok(reply::message(StatusCode::OK, &text))
}

/// Whether the name of a project is released with it, or alone.
fn extent(ask: &Ask) -> Result<RemovalExtent, ApiError> {
    match ask.parameter("release_name").as_deref() {
        None | Some("0" | "no" | "false") => Ok(RemovalExtent::Contents),
        Some("" | "1" | "yes" | "true") => Ok(RemovalExtent::ContentsAndName),
        Some("only") => Ok(RemovalExtent::Name),
        Some(other) => {
            let expected =
                "1 was expected to release the name, `only` to release nothing else, or 0";
            let other = other.escape_debug();
            Err(ApiError::bad_request(format_args!(
                "`{other}` is no value of `release_name`: {expected}"
            )))
        }
    }
}

/// `DELETE /{user}/{index}/{project}/{version}`
pub(crate) async fn delete_release(
    ask: &Ask,
    stage: &str,
    project: &Project,
    version: &str,
) -> Result<Response, ApiError> {
    let (stage, about) = (ask.stage_name(stage)?, IndexPart::Project(project.name.as_ref()));
    remover::<DeleteRelease>(&ask.asked().await?, &stage, about)?;
    let missing = || no_version(&project.as_sent, version);
    let project = project.name.clone().ok_or_else(missing)?;
    let text = format!("project '{project}' version '{version}' deleted");
    let (version, force) = (version.to_owned(), ask.has_flag("force"));
    ask.carry_out(&DeleteRelease { stage, project, version, force }).await?;
    Ok(reply::message(StatusCode::OK, &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_slowly_all_the_time_has_little_patience() {
        let after = |taken: Duration, portions: u32| {
            (0..portions).fold(PORTION_TIMEOUT, |patience, _| patience_after(patience, taken))
        };
        assert_eq!(after(PORTION_PACE, 1000), PORTION_TIMEOUT);
        assert_eq!(after(PORTION_TIMEOUT, 1), PORTION_PACE, "once it may take long");
        assert_eq!(after(PORTION_PACE * 2, 1000), PORTION_PACE, "but not always");
    }
}
