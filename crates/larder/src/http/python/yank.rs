//! Yanking (PEP 592), the status of projects (PEP 792), and removing old versions by a rule. devpi has none of these functions,
//! so the URLs are Larder's own.
//!
//! `POST` with an optional `{"reason": "…"}` yanks, `DELETE` takes that back. A member of a body may be a parameter of the URL
//! instead: `?reason=…`.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use jiff::Timestamp;
use pypi::change::retention::{self, Removal, RetentionPlan, RetentionRule};
use pypi::change::yank;
use pypi::{
    ChangeError, Decision, FileLookup, ProjectName, ProjectStatus, StageName, StatusMarker,
};
use serde_json::{Map, Value, json};
use state::stored::Basis;

use super::ask::Ask;
use super::project::readable;
use super::reply;
use super::rights::{About, keeper, remover};
use super::route::{FilePath, Project};
use super::write::{self, Refused, committed, optional_json_body, refused};
use crate::endpoint::Surface;
use crate::http::auth;
use crate::http::body::JsonBound;
use crate::http::error::HttpError;
use crate::http::turns::turn;

/// A reason with every character escaped, and the JSON around it.
const BOUND: JsonBound = JsonBound { bytes_max: 16 << 10, values_max: 100 };

/// The purpose, as a refusal names it.
const RETENTION: &str = "removing old versions";

/// `/{user}/{index}/{project}/{version}/+yank`
pub(super) async fn yank_release(
    ask: &Ask,
    stage: &str,
    project: &Project,
    version: &str,
    body: Body,
) -> Result<Response, Refused> {
    const PURPOSE: &str = "yanking a release";
    let principal = ask.principal().await?;
    let about = About::Project(project.name.as_ref());
    let stage = remover(ask, &ask.stored, &principal, stage, about, PURPOSE)?.name();
    let name = normalized(project)?;
    let reason = reason(ask, body).await?;
    decided(ask, |basis| {
        remover(ask, basis.stored(), basis.principal(), stage.as_str(), about, PURPOSE)?;
        let index = &basis.stored().index;
        yank::release(index, stage, name, version, reason.as_deref()).map_err(refused)
    })
    .await?;
    Ok(said(&format!("project '{name}' version '{version}'"), reason.is_some()))
}

/// `/{user}/{index}/+f/{abc}/{0123456789abc}/{filename}/+yank`
pub(super) async fn yank_file(
    ask: &Ask,
    stage: &str,
    path: &FilePath,
    body: Body,
) -> Result<Response, Refused> {
    const PURPOSE: &str = "yanking a file";
    let principal = ask.principal().await?;
    let about = About::File(path);
    let stage = remover(ask, &ask.stored, &principal, stage, about, PURPOSE)?;
    let shown = || format!("{}/+f/{}", stage.name(), path.joined());
    let missing = || refused(ChangeError::NoFile { path: shown() });
    let (directory, filename) = path.place().ok_or_else(missing)?;
    let reason = reason(ask, body).await?;
    decided(ask, |basis| {
        // Looked up for each decision: the release may be replaced meanwhile.
        let stored = basis.stored();
        let name = stage.name().as_str();
        let stage = remover(ask, stored, basis.principal(), name, about, PURPOSE)?;
        let project = match stage.file(directory, filename) {
            FileLookup::Found { project, .. } => project,
            FileLookup::Gone => {
                return Err(refused(ChangeError::FileGone { path: shown() }));
            }
            FileLookup::CoreMetadata { .. }
            | FileLookup::Provenance { .. }
            | FileLookup::Absent => return Err(missing()),
        };
        let reason = reason.as_deref();
        yank::file(&stored.index, stage.name(), &project, filename, reason).map_err(refused)
    })
    .await?;
    Ok(said(&format!("package '{}'", shown()), reason.is_some()))
}

async fn decided(
    ask: &Ask,
    decide: impl Fn(&Basis) -> Result<Decision, Refused>,
) -> Result<(), Refused> {
    committed(ask, |basis| Ok((decide(basis)?.batch(), ()))).await
}

fn said(what: &str, is_yanked: bool) -> Response {
    let verb = if is_yanked { "yanked" } else { "no longer yanked" };
    reply::message(StatusCode::OK, &format!("{what} {verb}"))
}

fn normalized(project: &Project) -> Result<&ProjectName, Refused> {
    project.name.as_ref().ok_or_else(|| Refused::not_found("project not found"))
}

fn bad(error: impl std::fmt::Display) -> Refused {
    Refused::bad_request(error)
}

/// The members of a body, which may be missing; only the `known` ones. Each may be a parameter of the URL instead.
async fn members(ask: &Ask, body: Body, known: &[&str]) -> Result<Map<String, Value>, Refused> {
    let principal = ask.principal().await?;
    let mut object =
        match optional_json_body(ask, &principal, body, BOUND).await?.map(|it| it.value) {
            None => Map::new(),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(bad("the body was expected to be a JSON object")),
        };
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        let known = known.join(", ");
        return Err(bad(format_args!("'{key}' is not known here: expected are {known}")));
    }
    for key in known {
        let Some(text) = ask.parameter(key) else { continue };
        let is_same = |value: &Value| match value {
            Value::String(said) => *said == text,
            other => text.parse().is_ok_and(|parsed: Value| parsed == *other),
        };
        match object.get(*key) {
            None => _ = object.insert((*key).to_owned(), text.into()),
            Some(value) if is_same(value) => {}
            Some(_) => {
                let text = format!("'{key}' is in the URL and in the body, and not the same");
                return Err(bad(text));
            }
        }
    }
    Ok(object)
}

fn reason_in(object: &Map<String, Value>) -> Result<Option<String>, Refused> {
    let reason = match object.get("reason") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(reason)) => reason,
        Some(_) => return Err(bad("'reason' was expected to be a text")),
    };
    yank::check_reason(reason).map_err(bad)?;
    Ok(Some(reason.clone()))
}

/// Why something is yanked; `None` if that is taken back.
async fn reason(ask: &Ask, body: Body) -> Result<Option<String>, Refused> {
    if ask.head.method == Method::DELETE {
        return Ok(None);
    }
    auth::admit_to_disk(&ask.app, &ask.principal().await?).await?;
    let object = members(ask, body, &["reason"]).await?;
    Ok(Some(reason_in(&object)?.unwrap_or_default()))
}

/// `/{user}/{index}/{project}/+status`
pub(super) async fn show_project_status(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, Refused> {
    let name = normalized(project)?;
    let order = readable(ask, stage, true, About::Project(Some(name))).await?;
    let found = order.stages().first().and_then(|stage| stage.project(name.as_str()));
    let found = found.ok_or_else(|| refused(ChangeError::NoProject(name.clone())))?;
    Ok(status_result(&found.status().cloned().unwrap_or_default()))
}

/// `POST` and `PUT` set the status of a project (`{"status", "reason"}`), and `DELETE` removes it.
pub(super) async fn change_project_status(
    ask: &Ask,
    stage: &str,
    project: &Project,
    body: Body,
) -> Result<Response, Refused> {
    const PURPOSE: &str = "changing a project's status";
    let name = normalized(project)?;
    let principal = ask.principal().await?;
    let about = About::Project(project.name.as_ref());
    let stage = remover(ask, &ask.stored, &principal, stage, about, PURPOSE)?.name();
    let status = match ask.head.method {
        Method::DELETE => None,
        _ => {
            auth::admit_to_disk(&ask.app, &ask.principal().await?).await?;
            Some(status_in(&members(ask, body, &["status", "reason"]).await?)?)
        }
    };
    decided(ask, |basis| {
        remover(ask, basis.stored(), basis.principal(), stage.as_str(), about, PURPOSE)?;
        let index = &basis.stored().index;
        yank::set_project_status(index, stage, name, status.as_ref()).map_err(refused)
    })
    .await?;
    Ok(status_result(&status.unwrap_or_default()))
}

fn status_in(object: &Map<String, Value>) -> Result<ProjectStatus, Refused> {
    let marker = object.get("status").and_then(Value::as_str).and_then(StatusMarker::parse);
    let expected = "'status' was expected to be active, archived, quarantined or deprecated";
    let marker = marker.ok_or_else(|| bad(expected))?;
    Ok(ProjectStatus { marker, reason: reason_in(object)?.map(Into::into) })
}

fn status_result(status: &ProjectStatus) -> Response {
    let mut result = json!({"status": status.marker.as_str()});
    if let Some(reason) = &status.reason {
        result["reason"] = (&**reason).into();
    }
    reply::result(StatusCode::OK, "projectstatus", result, None)
}

/// `POST /{user}/{index}/+retention`: removes versions by the stage's rule, or by the one in the body; with `?dry_run` it only
/// reports them.
pub(super) async fn apply_retention(
    ask: &Ask,
    stage: &str,
    body: Body,
) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name = keeper(ask, &ask.stored, &principal, stage, RETENTION)?.name();
    let object = members(ask, body, &["versions", "days"]).await?;
    let own = match object.is_empty() {
        true => None,
        false => Some(RetentionRule {
            versions: number(&object, "versions")?,
            days: number(&object, "days")?,
        }),
    };
    let is_dry = ask.has_flag("dry_run");
    let (rule, removals) = retained(ask, name, own, is_dry).await?;
    let size_bytes: u64 = removals.iter().map(|removal| removal.size_bytes).sum();
    let removals: Vec<Value> = removals
        .iter()
        .map(|removal| {
            json!({
                "project": removal.project.as_str(),
                "version": removal.version,
                "files": removal.filenames,
                "size": removal.size_bytes,
            })
        })
        .collect();
    let result = json!({
        "dry_run": is_dry,
        "rule": {"versions": rule.versions, "days": rule.days},
        "removals": removals,
        "size": size_bytes,
    });
    Ok(reply::result(StatusCode::OK, "retention", result, None))
}

/// The rule that was applied, and the versions that it removed, or with `is_dry` would remove.
async fn retained(
    ask: &Ask,
    name: &StageName,
    own: Option<RetentionRule>,
    is_dry: bool,
) -> Result<(RetentionRule, Vec<Removal>), Refused> {
    write::decided(ask, |basis| async move {
        keeper(ask, basis.stored(), basis.principal(), name.as_str(), RETENTION)?;
        let (stored, name) = (basis.stored().clone(), name.clone());
        // A large stage takes its time.
        let [turn, _place] = turn(&ask.app.making_answers[Surface::Python as usize]).await?;
        let (rule, plan) = turn.run(move || planned(&stored.index, &name, own)).await?;
        if rule.days.is_some() && !is_dry {
            let checked = ask.app.clocks.check().await;
            checked.map_err(|error| HttpError::unavailable(format!("{error:#}"), 60))?;
        }
        Ok((plan.batch.filter(|_| !is_dry), (rule, plan.removals)))
    })
    .await
}

/// The stage's rule, or the one that was sent, and the versions that it removes.
fn planned(
    index: &pypi::Snapshot,
    name: &StageName,
    own: Option<RetentionRule>,
) -> Result<(RetentionRule, RetentionPlan), Refused> {
    let rule = match own {
        Some(rule) => rule,
        None => RetentionRule::of(index.stage_to_change(name).map_err(refused)?),
    };
    if rule.keeps_nothing() {
        return Err(bad("'versions' was expected to be 1 or more: 0 would remove all"));
    }
    if rule.is_empty() {
        return Err(bad(
            "the index has no rule: set retention_versions or retention_days, or send \
             {\"versions\": …} or {\"days\": …}",
        ));
    }
    let plan = retention::plan(index, name, rule, Timestamp::now()).map_err(refused)?;
    Ok((rule, plan))
}

fn number(object: &Map<String, Value>, key: &str) -> Result<Option<u32>, Refused> {
    let value = match object.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let number = match value {
        Value::String(digits) => digits.parse().ok(),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    let wrong = || bad(format_args!("'{key}' was expected to be a whole number, not {value}"));
    number.map(Some).ok_or_else(wrong)
}
