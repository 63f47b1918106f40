//! Yanking (PEP 592), the status of projects (PEP 792), and removing old versions by a rule. devpi has none of these functions,
//! so the URLs are Larder's own.
//!
//! `POST` with an optional `{"reason": "…"}` yanks, `DELETE` takes that back. A member of a body may be a parameter of the URL
//! instead: `?reason=…`.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use operations::releases::{RemoveOldVersions, SetProjectStatus, YankFile, YankRelease};
use operations::rights::{IndexPart, remover};
use operations::{Done, Sender, carry_out_long};
use pypi::change::retention::{Removal, RetentionRule};
use pypi::change::yank;
use pypi::{ChangeError, ProjectName, ProjectStatus, StageName, StatusMarker};
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::error::ApiError;
use super::names::{FilePath, Project};
use super::project::readable;
use super::reply;
use super::write::optional_json_body;
use crate::app::App;
use crate::front::auth;
use crate::front::body::JsonBound;
use crate::front::error::HttpError;
use crate::front::turns::turn;
use crate::routes::Surface;

/// A reason with every character escaped, and the JSON around it.
const BOUND: JsonBound = JsonBound { bytes_max: 16 << 10, values_max: 100 };

/// `/{user}/{index}/{project}/{version}/+yank`
pub(crate) async fn yank_release(
    ask: &Ask,
    stage: &str,
    project: &Project,
    version: &str,
    body: Body,
) -> Result<Response, ApiError> {
    let stage = ask.stage_name(stage)?;
    let about = IndexPart::Project(project.name.as_ref());
    remover::<YankRelease>(&ask.asked().await?, &stage, about)?;
    let project = normalized(project)?.clone();
    let reason = reason(ask, body).await?;
    let said = said(&format!("project '{project}' version '{version}'"), reason.is_some());
    ask.carry_out(&YankRelease { stage, project, version: version.to_owned(), reason }).await?;
    Ok(said)
}

/// `/{user}/{index}/+f/{abc}/{0123456789abc}/{filename}/+yank`
pub(crate) async fn yank_file(
    ask: &Ask,
    stage: &str,
    path: &FilePath,
    body: Body,
) -> Result<Response, ApiError> {
    let stage = ask.stage_name(stage)?;
    remover::<YankFile>(&ask.asked().await?, &stage, IndexPart::File(path.place()))?;
    let shown = format!("{stage}/+f/{}", path.joined());
    let file = path.file().ok_or_else(|| ChangeError::NoFile { path: shown.clone() })?;
    let reason = reason(ask, body).await?;
    let said = said(&format!("package '{shown}'"), reason.is_some());
    ask.carry_out(&YankFile { stage, file, reason }).await?;
    Ok(said)
}

fn said(what: &str, is_yanked: bool) -> Response {
    let verb = if is_yanked { "yanked" } else { "no longer yanked" };
    reply::message(StatusCode::OK, &format!("{what} {verb}"))
}

fn normalized(project: &Project) -> Result<&ProjectName, ApiError> {
    project.name.as_ref().ok_or_else(|| ApiError::not_found("project not found"))
}

/// The members of a body, which may be missing; only the `known` ones. Each may be a parameter of the URL instead.
async fn members(ask: &Ask, body: Body, known: &[&str]) -> Result<Map<String, Value>, ApiError> {
    let principal = ask.principal().await?;
    let mut object =
        match optional_json_body(ask, &principal, body, BOUND).await?.map(|it| it.value) {
            None => Map::new(),
            Some(Value::Object(object)) => object,
            Some(_) => {
                return Err(ApiError::bad_request("the body was expected to be a JSON object"));
            }
        };
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        let known = known.join(", ");
        return Err(ApiError::bad_request(format_args!(
            "'{key}' is not known here: expected are {known}"
        )));
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
                return Err(ApiError::bad_request(text));
            }
        }
    }
    Ok(object)
}

fn reason_in(object: &Map<String, Value>) -> Result<Option<String>, ApiError> {
    let reason = match object.get("reason") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(reason)) => reason,
        Some(_) => return Err(ApiError::bad_request("'reason' was expected to be a text")),
    };
    yank::check_reason(reason).map_err(ApiError::bad_request)?;
    Ok(Some(reason.clone()))
}

/// Why something is yanked; `None` if that is taken back.
async fn reason(ask: &Ask, body: Body) -> Result<Option<String>, ApiError> {
    if ask.head.method == Method::DELETE {
        return Ok(None);
    }
    auth::admit_to_disk(&ask.app, &ask.principal().await?).await?;
    let object = members(ask, body, &["reason"]).await?;
    Ok(Some(reason_in(&object)?.unwrap_or_default()))
}

/// `/{user}/{index}/{project}/+status`
pub(crate) async fn show_project_status(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    let name = normalized(project)?;
    let order = readable(ask, stage, true, IndexPart::Project(Some(name))).await?;
    let found = order.stages().first().and_then(|stage| stage.project(name.as_str()));
    let found = found.ok_or_else(|| ChangeError::NoProject(name.clone()))?;
    Ok(status_result(&found.status().cloned().unwrap_or_default()))
}

/// `POST` and `PUT` set the status of a project (`{"status", "reason"}`), and `DELETE` removes it.
pub(crate) async fn change_project_status(
    ask: &Ask,
    stage: &str,
    project: &Project,
    body: Body,
) -> Result<Response, ApiError> {
    let name = normalized(project)?;
    let (stage, about) = (ask.stage_name(stage)?, IndexPart::Project(Some(name)));
    remover::<SetProjectStatus>(&ask.asked().await?, &stage, about)?;
    let status = match ask.head.method {
        Method::DELETE => None,
        _ => {
            auth::admit_to_disk(&ask.app, &ask.principal().await?).await?;
            Some(status_in(&members(ask, body, &["status", "reason"]).await?)?)
        }
    };
    let result = status_result(status.as_ref().unwrap_or(&ProjectStatus::default()));
    ask.carry_out(&SetProjectStatus { stage, project: name.clone(), status }).await?;
    Ok(result)
}

fn status_in(object: &Map<String, Value>) -> Result<ProjectStatus, ApiError> {
    let marker = object.get("status").and_then(Value::as_str).and_then(StatusMarker::parse);
    let expected = "'status' was expected to be active, archived, quarantined or deprecated";
    let marker = marker.ok_or_else(|| ApiError::bad_request(expected))?;
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
pub(crate) async fn apply_retention(
    ask: &Ask,
    stage: &str,
    body: Body,
) -> Result<Response, ApiError> {
    let stage = ask.stage_name(stage)?;
    RemoveOldVersions::admit(&ask.asked().await?, &stage)?;
    let object = members(ask, body, &["versions", "days"]).await?;
    let own = match object.is_empty() {
        true => None,
        false => Some(RetentionRule {
            versions: number(&object, "versions")?,
            days: number(&object, "days")?,
        }),
    };
    let is_dry = ask.has_flag("dry_run");
    let done = remove_old_versions(&ask.app, &ask.sender().await?, stage, own, is_dry).await?;
    let (rule, removals) = ask.done(done);
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
pub(crate) async fn remove_old_versions(
    app: &App,
    sender: &Sender,
    stage: StageName,
    rule: Option<RetentionRule>,
    is_dry: bool,
) -> Result<Done<(RetentionRule, Vec<Removal>)>, ApiError> {
    let stored = app.stored()?;
    let days = rule.or_else(|| Some(RetentionRule::of(stored.index.stage(stage.as_str())?)));
    if days.is_some_and(|rule| rule.days.is_some()) && !is_dry {
        let checked = app.health.clocks.check().await;
        checked.map_err(|error| HttpError::unavailable(format!("{error:#}"), 60))?;
    }
    let removing = RemoveOldVersions { stage, rule, is_dry };
    // A large stage takes its time.
    let _turn = turn(&app.limits.making_answers[Surface::Python as usize]).await?;
    Ok(carry_out_long(&mut app.keeper(), sender, &removing).await?)
}

fn number(object: &Map<String, Value>, key: &str) -> Result<Option<u32>, ApiError> {
    let value = match object.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let number = match value {
        Value::String(digits) => digits.parse().ok(),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    let wrong = || {
        ApiError::bad_request(format_args!(
            "'{key}' was expected to be a whole number, not {value}"
        ))
    };
    number.map(Some).ok_or_else(wrong)
}
