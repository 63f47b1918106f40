//! Yanking releases and files (PEP 592), and setting the status of a project (PEP 792).
//!
//! Neither changes a file, so both are also possible in stages that are not volatile.

use super::Decision;
use super::draft::{Draft, writable};
use crate::{ChangeError, ProjectName, ProjectStatus, Snapshot, StageName};

/// Most bytes of a reason: installers show it in a line or two.
pub(crate) const REASON_BYTES_MAX: usize = 1_000;

/// The reason is too long, or has several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'reason' was expected to be one line of at most {REASON_BYTES_MAX} bytes")]
pub struct ReasonError;

/// Checks why somebody yanks something: one line that is not too long.
///
/// # Errors
/// [`ReasonError`].
pub fn check_reason(reason: &str) -> Result<(), ReasonError> {
    let is_fit = reason.len() <= REASON_BYTES_MAX && !reason.chars().any(char::is_control);
    is_fit.then_some(()).ok_or(ReasonError)
}

/// Yanks a release for a reason (may be empty); `None` takes the yank back. The version may be spelled in another way.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`]; [`ChangeError::NoVersion`] if the release is not registered.
pub fn release(
    snapshot: &Snapshot,
    stage: &StageName,
    project: &ProjectName,
    version: &str,
    reason: Option<&str>,
) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, stage)?;
    let known = stage.project(project.as_str());
    let known = known.and_then(|it| it.release(it.version_meant(version)?));
    let no_version =
        || ChangeError::NoVersion { project: project.clone(), version: version.to_owned() };
    let known = known.ok_or_else(no_version)?;
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.put_version(stage, project, &known.version, known.metadata, reason);
    Ok(decision(draft))
}

/// Yanks one file for a reason (may be empty); `None` takes the yank back.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`]; [`ChangeError::NoFile`].
pub fn file(
    snapshot: &Snapshot,
    stage: &StageName,
    project: &ProjectName,
    filename: &str,
    reason: Option<&str>,
) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, stage)?;
    let known = stage.project(project.as_str()).and_then(|it| it.file(filename));
    let known = known.ok_or_else(|| ChangeError::NoFile { path: filename.to_owned() })?;
    if known.yanked() == reason {
        return Ok(Decision::AlreadyThere);
    }
    let next = known.with(|parts| parts.rare.yanked = reason.map(Into::into));
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.put_file(stage, project, &next);
    Ok(decision(draft))
}

/// Sets the status of a project; `None` removes it.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::NoProject`].
pub fn set_project_status(
    snapshot: &Snapshot,
    stage: &StageName,
    name: &ProjectName,
    status: Option<&ProjectStatus>,
) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, stage)?;
    let project =
        stage.project(name.as_str()).ok_or_else(|| ChangeError::NoProject(name.clone()))?;
    if project.status() == status {
        return Ok(Decision::AlreadyThere);
    }
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.put_status(stage, name, status, project.is_held());
    Ok(decision(draft))
}

/// Has the stage keep a name that has nothing under it, as if the last version had been removed.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`].
pub fn keep_name(
    snapshot: &Snapshot,
    stage: &StageName,
    name: &ProjectName,
) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, stage)?;
    if stage.project(name.as_str()).is_some_and(|project| !project.is_empty()) {
        return Ok(Decision::AlreadyThere);
    }
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.hold_name(stage, name);
    Ok(decision(draft))
}

fn decision(draft: Draft) -> Decision {
    match draft.is_empty() {
        true => Decision::AlreadyThere,
        false => Decision::Commit(draft.finish()),
    }
}
