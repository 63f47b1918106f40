//! Pushes: a release of a stage, into another stage or to another server's index.
//!
//! A push into a stage is one commit, or nothing; no byte is copied, since files are named by their content. A push from a mirror
//! ([`mirrored`]) fetches the files first. An external push ([`external`]) is one upload after another, and the answer says how each went. As with devpi, the release is looked for
//! first, then the target, and then the right to push there is checked.

mod external;
mod mirrored;

use std::sync::Arc;

use account::{Portion, Principal, Scope};
use audit::Entry;
use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use pypi::change::push::{Push, PushContent, PushOrder, PushSource, PushTarget, push, replaced};
use pypi::{ChangeError, ProjectName, Stage, StageName};
use record::Batch;
use state::stored::Stored;

use super::ask::Ask;
use super::policy::{self, Given};
use super::reply;
use super::rights::{About, cause, no_replacing, not_listed, readable};
use super::write::{Refused, decided_and_noted, json_body, refused, status};
use crate::http::auth;
use crate::http::body::JsonBound;
use crate::http::error::HttpError;

/// An order: names, and a URL with a user and a password.
const BOUND: JsonBound = JsonBound { bytes_max: 32 << 10, values_max: 100 };

/// How many blobs are touched at a time.
const TOUCHED_AT_ONCE: usize = 16;

/// `PUSH /{user}/{index}`, and POST with JSON.
pub(super) async fn push_release(ask: &Ask, stage: &str, body: Body) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let source = readable(&ask.stored, &principal, stage, About::NotYetKnown)?.name();
    let json = json_body(ask, &principal, body, BOUND).await?;
    let bad = |error| Refused::bad_request(error);
    let order = PushOrder::parse(json.value, source).map_err(bad)?;
    // The body may have taken long: the right to read is checked again.
    let basis = ask.basis().await?;
    let stored = basis.stored();
    let name = ProjectName::normalize(&order.name).ok();
    let about = About::Project(name.as_ref());
    let from = readable(stored, basis.principal(), stage, about)?;
    if from.config().is_mirror() {
        return mirrored::push(ask, from, &order, order.content().map_err(bad)?).await;
    }
    let found = PushSource::find(&stored.index, source, &order.name, &order.version);
    let found = found.map_err(refused)?;
    let content = order.content().map_err(bad)?;
    check_withheld(ask, &found, content).await?;
    let files = found.files(content, &order.name).map_err(refused)?;
    match order.target().map_err(bad)? {
        PushTarget::Stage(target) => internal(ask, source, &target, &order, about, content).await,
        PushTarget::External { url, username, password, register_project } => {
            let release = external::Release::find(ask, &found, &order, files).await?;
            let target = external::Target::new(&ask.app.egress, &url, &username, &password)?;
            let principal = basis.principal();
            let project = about.of(found.stage);
            let object = found.stage.object(project.portion());
            external::release(ask, principal, object, &release, &target, register_project).await
        }
    }
}

async fn internal(
    ask: &Ask,
    source: &StageName,
    target: &StageName,
    order: &PushOrder,
    about: About<'_>,
    content: PushContent,
) -> Result<Response, Refused> {
    auth::admit_to_disk(&ask.app, &ask.principal().await?).await?;
    let deciding = decided_and_noted(ask, |basis| async move {
        let (stored, principal) = (basis.stored(), basis.principal());
        let project = about.of(readable(stored, principal, source.as_str(), about)?);
        check_target(ask, stored, principal, target, project.portion())?;
        let pushed = Push {
            source,
            target,
            name: &order.name,
            version: &order.version,
            content,
            who: principal.user_name(),
            at: Timestamp::now(),
        };
        let is_volatile = |stage: &Arc<Stage>| stage.config().volatile;
        let adds_only = stored.index.stage(target.as_str()).filter(|stage| is_volatile(stage));
        if adds_only.is_some_and(|stage| !stage.may_replace(principal, project.portion()))
            && let Some(filename) = replaced(&stored.index, &pushed)
        {
            return Err(Refused::forbidden(no_replacing(&filename)));
        }
        let found = PushSource::find(&stored.index, source, &order.name, &order.version);
        let found = found.map_err(refused)?;
        check_withheld(ask, &found, content).await?;
        let (batch, actions) = push(&stored.index, &pushed).map_err(told)?;
        if let Some(batch) = &batch {
            touch(ask, batch).await?;
        }
        let entries = entries_of_pushed(ask, &found, content).await;
        Ok::<_, Refused>((batch, entries, actions))
    });
    let actions = deciding.await?;
    Ok(reply::result(StatusCode::OK, "actionlog", actions, None))
}

/// Refuses senders who may not push into the stage.
fn check_target(
    ask: &Ask,
    stored: &Stored,
    principal: &Principal,
    target: &StageName,
    portion: Portion<'_>,
) -> Result<(), Refused> {
    let stage = stored.index.stage(target.as_str());
    let stage = stage.ok_or_else(|| refused(ChangeError::NoStage(target.clone())))?;
    if stage.may_upload(principal, portion) {
        return Ok(());
    }
    let object = stage.object(portion);
    let list = || not_listed(principal, "acl_upload", target);
    let cause = cause(ask, principal, Scope::PythonUpload, object, list);
    Err(unauthorized(match principal.user_name() {
        Some(name) => format!("user '{name}' cannot upload to '{target}'{cause}"),
        None => format!("user None cannot upload to '{target}'"),
    }))
}

/// Refuses to push files that a policy refuses, with the answer of a download.
async fn check_withheld(
    ask: &Ask,
    found: &PushSource<'_>,
    content: PushContent,
) -> Result<(), Refused> {
    match found.withheld(content, Timestamp::now()) {
        Some((filename, refused)) => {
            Err(Refused::from(policy::refused(ask, filename, &refused).await))
        }
        None => Ok(()),
    }
}

/// The audit log's entries for pushed files where a policy counts: those of downloads.
async fn entries_of_pushed(ask: &Ask, found: &PushSource<'_>, content: PushContent) -> Vec<Entry> {
    let mut entries = Vec::new();
    for file in found.release_files(content) {
        let (stage, project) = (found.stage, found.project_name());
        let entry = policy::entries_of_given(ask, stage, stage, project, Given::Own(file));
        entries.extend(entry.await);
    }
    entries
}

/// The answer to a forbidden push; if a file would be replaced, the reason phrase names it as well.
fn told(error: ChangeError) -> Refused {
    let mut response = reply::message(status(&error), &error.to_string());
    if matches!(error, ChangeError::FileExists { .. }) {
        reply::set_reason(&mut response, &error.to_string());
    }
    Refused::from(response)
}

/// 401, devpi's answer to everybody who may not push.
fn unauthorized(text: String) -> Refused {
    let mut response = reply::message(StatusCode::UNAUTHORIZED, &text);
    let challenge = HeaderValue::from_static("Basic realm=\"pypi\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    Refused::from(response)
}

/// Touches the blobs of a batch, so that they are not swept before the commit.
async fn touch(ask: &Ask, batch: &Batch) -> Result<(), HttpError> {
    let blobs = &ask.app.store.blobs;
    let digests: Vec<_> = batch.writes.iter().flat_map(|write| write.blobs.clone()).collect();
    let touching = digests.into_iter().map(|digest| async move {
        let is_there = blobs.touch(digest).await.map_err(|error| {
            tracing::error!(%error, "a file cannot be touched");
            HttpError::unavailable("a file cannot be pushed now; nothing was written", 5)
        })?;
        if is_there {
            return Ok(());
        }
        tracing::error!(%digest, "a file is missing from the store");
        let text = "a file is missing from the store; it has been logged";
        Err(HttpError::internal(text))
    });
    let touching: Vec<_> = touching.collect();
    stream::iter(touching).buffer_unordered(TOUCHED_AT_ONCE).try_collect::<()>().await
}
