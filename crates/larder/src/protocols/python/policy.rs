//! Files that a policy refuses: checked here for downloads, and answered with the reason.
//!
//! 403, never 401: installers go on to another index or stop at once, and do not ask for a password. The reason is in the body
//! and in the reason phrase, which is all that pip shows.

use audit::{Entry, Event};
use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, Method};
use jiff::Timestamp;
use operations::Noter;
use pypi::upstream::{UpstreamFile, UpstreamPage};
use pypi::{FileLookup, FileRefusal, Judge, ProjectName, Stage, StatusMarker};
use serde_json::Map;
use state::security;

use super::ask::Ask;
use super::reply;
use crate::front::error::HttpError;

pub(crate) use operations::ServedFile;

/// Why a file of the stage itself is not sent; `None` if it is.
pub(crate) fn refusal_of_own(stage: &Stage, found: &FileLookup) -> Option<FileRefusal> {
    let (FileLookup::Found { file, project, is_quarantined }
    | FileLookup::CoreMetadata { file, project, is_quarantined }
    | FileLookup::Provenance { file, project, is_quarantined }) = found
    else {
        return None;
    };
    if *is_quarantined && file.role() == pypi::FileRole::Release {
        let project = stage.project(project.as_str())?;
        return Some(FileRefusal::by_status(stage.name(), project));
    }
    // The only check for stages without a policy.
    stage.config().policy.as_ref()?;
    judge(stage, stage, project)?.refusal_of_own(stage.name(), file)
}

/// The judge for files of `holder` that `asked` sends now.
pub(crate) fn judge<'stages>(
    asked: &'stages Stage,
    holder: &'stages Stage,
    project: &'stages ProjectName,
) -> Option<Judge<'stages>> {
    Judge::between(asked, holder, project, Timestamp::now())
}

/// The refusal of all files of an upstream's page, because the upstream says that the project is quarantined.
pub(crate) fn quarantine_of_upstream(mirror: &Stage, page: &UpstreamPage) -> Option<FileRefusal> {
    match &page.status {
        Some((StatusMarker::Quarantined, reason)) => {
            Some(FileRefusal::by_upstream(mirror.name(), reason.as_deref()))
        }
        _ => None,
    }
}

/// Why a file of an upstream's page is not sent. As on pages, an upstream's own quarantine counts even without a policy.
pub(crate) fn refusal_of_upstream(
    asked: &Stage,
    mirror: &Stage,
    project: &ProjectName,
    page: &UpstreamPage,
    file: &UpstreamFile,
) -> Option<FileRefusal> {
    let judged = || judge(asked, mirror, project)?.refusal_of_upstream(mirror.name(), file);
    quarantine_of_upstream(mirror, page).or_else(judged)
}

/// Notes in the audit log that a file is sent where a policy counts: by an exception or with a warning always, otherwise if the
/// log is configured so.
pub(crate) async fn note_given(
    ask: &Ask,
    asked: &Stage,
    holder: &Stage,
    project: &ProjectName,
    given: ServedFile<'_>,
) {
    let has_policy = asked.config().policy.is_some() || holder.config().policy.is_some();
    if !has_policy || ask.head.method == Method::HEAD {
        return;
    }
    let entries = noted(ask, |noter| noter.given(asked, holder, project, given));
    note(ask, entries).await;
}

/// What `note` notes of this request.
fn noted(ask: &Ask, note: impl FnOnce(&Noter<'_>) -> Vec<Entry>) -> Vec<Entry> {
    let (now, client) = (Timestamp::now(), security::client().to_string());
    let (path, notes_served) = (&*ask.path, ask.app.rules.notes_served);
    note(&Noter { now, path, who: None, client: &client, notes_served })
}

/// Notes entries about the sender, who is found out only if there are some.
async fn note(ask: &Ask, entries: Vec<Entry>) {
    if entries.is_empty() {
        return;
    }
    // If the credentials cannot be checked now, the sender counts as anonymous.
    let principal = ask.principal().await.ok();
    let who = principal.as_ref().and_then(|principal| principal.user_name());
    for entry in entries {
        ask.app.python.audit.note(Entry { who: who.map(ToString::to_string), ..entry });
    }
}

/// Refuses a request for a file or a version, and notes it in the audit log.
pub(crate) async fn refused(ask: &Ask, what: &str, refused: &FileRefusal) -> Response {
    let (rule, reason) = (Some(refused.rule), refused.reason.clone());
    let entries =
        noted(ask, |noter| vec![noter.entry(Event::Refused, &refused.stage, what, rule, reason)]);
    note(ask, entries).await;
    ask.app.metrics.python.policy_refused(refused.rule);
    let text = format!("{what} is {refused}");
    let mut members = Map::new();
    members.insert("index".to_owned(), refused.stage.as_str().into());
    members.insert("rule".to_owned(), refused.rule.as_str().into());
    members.insert("reason".to_owned(), refused.reason.as_str().into());
    if let Some(until) = refused.until {
        members.insert("until".to_owned(), until.to_string().into());
    }
    let mut response = reply::failure(ask, HttpError::forbidden(&text).with(members));
    reply::set_reason(&mut response, &text);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
