//! Files that a policy refuses: checked here for downloads, and answered with the reason.
//!
//! 403, never 401: installers go on to another index or stop at once, and do not ask for a password. The reason is in the body
//! and in the reason phrase, which is all that pip shows.

use account::{Principal, UserName};
use audit::{Entry, Event};
use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, Method};
use jiff::Timestamp;
use pypi::policy::{Excepted, Exception, RuleName, Warned};
use pypi::upstream::{UpstreamFile, UpstreamPage};
use pypi::{
    FileLookup, Judge, Policy, ProjectName, Refused, ReleaseFile, Stage, StageName, StatusMarker,
};
use record::Digest;
use serde_json::Map;
use state::security;

use super::ask::Ask;
use super::reply;
use crate::http::error::HttpError;

/// Why a file of the stage itself is not sent; `None` if it is.
pub(super) fn refusal_of_own(stage: &Stage, found: &FileLookup) -> Option<Refused> {
    let (FileLookup::Found { file, project, is_quarantined }
    | FileLookup::CoreMetadata { file, project, is_quarantined }
    | FileLookup::Provenance { file, project, is_quarantined }) = found
    else {
        return None;
    };
    if *is_quarantined && file.role() == pypi::FileRole::Release {
        let project = stage.project(project.as_str())?;
        return Some(Refused::by_status(stage.name(), project));
    }
    // The only check for stages without a policy.
    stage.config().policy.as_ref()?;
    judge(stage, stage, project)?.refusal_of_own(stage.name(), file)
}

/// The judge for files of `holder` that `asked` sends now.
pub(super) fn judge<'stages>(
    asked: &'stages Stage,
    holder: &'stages Stage,
    project: &'stages ProjectName,
) -> Option<Judge<'stages>> {
    Judge::between(asked, holder, project, Timestamp::now())
}

/// The refusal of all files of an upstream's page, because the upstream says that the project is quarantined.
pub(super) fn quarantine_of_upstream(mirror: &Stage, page: &UpstreamPage) -> Option<Refused> {
    match &page.status {
        Some((StatusMarker::Quarantined, reason)) => {
            Some(Refused::by_upstream(mirror.name(), reason.as_deref()))
        }
        _ => None,
    }
}

/// Why a file of an upstream's page is not sent. As on pages, an upstream's own quarantine counts even without a policy.
pub(super) fn refusal_of_upstream(
    asked: &Stage,
    mirror: &Stage,
    project: &ProjectName,
    page: &UpstreamPage,
    file: &UpstreamFile,
) -> Option<Refused> {
    let judged = || judge(asked, mirror, project)?.refusal_of_upstream(mirror.name(), file);
    quarantine_of_upstream(mirror, page).or_else(judged)
}

/// A file that is sent.
pub(super) enum Given<'file> {
    Own(&'file ReleaseFile),
    Upstreams(&'file UpstreamFile),
}

/// Notes in the audit log that a file is sent where a policy counts: by an exception or with a warning always, otherwise if the
/// log is configured so.
pub(super) async fn note_given(
    ask: &Ask,
    asked: &Stage,
    holder: &Stage,
    project: &ProjectName,
    given: Given<'_>,
) {
    for entry in entries_of_given(ask, asked, holder, project, given).await {
        ask.app.audit.note(entry);
    }
}

/// The entries of [`note_given`], if any.
pub(super) async fn entries_of_given(
    ask: &Ask,
    asked: &Stage,
    holder: &Stage,
    project: &ProjectName,
    given: Given<'_>,
) -> Vec<Entry> {
    let has_policy = asked.config().policy.is_some() || holder.config().policy.is_some();
    if !has_policy || ask.head.method == Method::HEAD {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Some(judge) = judge(asked, holder, project)
        && (ask.app.audit.has_served() || judge.may_note())
    {
        let candidate = match given {
            Given::Own(file) => judge.own(file),
            Given::Upstreams(file) => judge.upstreams(file),
        };
        let what = candidate.filename.to_owned();
        if let Some(Warned { stage, rule, reason }) = judge.warning(holder.name(), &candidate) {
            found.push((Event::Warned, stage.clone(), what.clone(), Some(rule), reason));
        }
        match judge.exception(holder.name(), &candidate) {
            Some(Excepted { stage, rule, exception }) => {
                found.push((Event::Excepted, stage.clone(), what, Some(rule), exception));
            }
            None if ask.app.audit.has_served() => {
                found.push((Event::Served, asked.name().clone(), what, None, String::new()));
            }
            None => {}
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    // If the credentials cannot be checked now, the sender counts as anonymous.
    let principal = ask.principal().await.ok();
    let who = principal.as_ref().and_then(|principal| principal.user_name());
    found
        .into_iter()
        .map(|(event, index, what, rule, reason)| {
            entry(ask, who, event, &index, &what, rule, reason)
        })
        .collect()
}

/// The audit log's entries for files of a mirror that this sender pushes into a stage: by that, they are approved.
pub(super) fn entries_of_approved<'files>(
    ask: &Ask,
    who: Option<&UserName>,
    mirror: &StageName,
    target: &StageName,
    files: impl Iterator<Item = (&'files str, Digest)>,
) -> Vec<Entry> {
    files
        .map(|(filename, digest)| {
            let reason = format!("pushed from {mirror}, SHA-256 {digest}");
            entry(ask, who, Event::Approved, target, filename, None, reason)
        })
        .collect()
}

/// The audit log's entries for a change that this sender makes to the policy of an index: none if the policy stays the same.
/// `None` if the index does not exist, or has no policy.
pub(super) fn entries_of_change(
    ask: &Ask,
    principal: &Principal,
    stage: &StageName,
    before: Option<&Policy>,
    after: Option<&Policy>,
) -> Vec<Entry> {
    let (before, after) = (before.cloned().unwrap_or_default(), after.cloned().unwrap_or_default());
    let mut said = Vec::new();
    let is_new = |exception: &&Exception| !before.exceptions.contains(exception);
    said.extend(after.exceptions.iter().filter(is_new).map(|it| format!("exception set: {it}")));
    let is_gone = |exception: &&Exception| !after.exceptions.contains(exception);
    let gone = before.exceptions.iter().filter(is_gone);
    said.extend(gone.map(|it| format!("exception removed: {it}")));
    let changed = [
        ("policy_cooldown_days", before.cooldown_days != after.cooldown_days),
        ("policy_cutoff", before.cutoff != after.cutoff),
        ("policy_cooldown_except", before.cooldown_except != after.cooldown_except),
        ("policy_allow", before.allow != after.allow),
        ("policy_deny", before.deny != after.deny),
        ("policy_quarantine", before.quarantine != after.quarantine),
        ("policy_malware", before.malware != after.malware),
        ("policy_vulnerabilities", before.vulnerabilities != after.vulnerabilities),
    ];
    let changed = changed.iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| *name);
    let changed: Vec<&str> = changed.collect();
    if !changed.is_empty() {
        said.push(format!("its rules were changed: {}", changed.join(", ")));
    }
    let who = principal.user_name();
    said.into_iter()
        .map(|reason| entry(ask, who, Event::Changed, stage, "policy", None, reason))
        .collect()
}

async fn note(
    ask: &Ask,
    event: Event,
    index: &StageName,
    what: &str,
    rule: Option<RuleName>,
    reason: String,
) {
    // If the credentials cannot be checked now, the sender counts as anonymous.
    let principal = ask.principal().await.ok();
    let who = principal.as_ref().and_then(|principal| principal.user_name());
    ask.app.audit.note(entry(ask, who, event, index, what, rule, reason));
}

fn entry(
    ask: &Ask,
    who: Option<&UserName>,
    event: Event,
    index: &StageName,
    what: &str,
    rule: Option<RuleName>,
    reason: String,
) -> Entry {
    Entry {
        at: Timestamp::now(),
        event,
        index: index.to_string(),
        path: ask.path.clone(),
        what: what.to_owned(),
        rule: rule.map(RuleName::as_str),
        reason,
        who: who.map(ToString::to_string),
        client: security::client().to_string(),
    }
}

/// Refuses a request for a file or a version, and notes it in the audit log.
pub(super) async fn refused(ask: &Ask, what: &str, refused: &Refused) -> Response {
    let (rule, reason) = (Some(refused.rule), refused.reason.clone());
    note(ask, Event::Refused, &refused.stage, what, rule, reason).await;
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
