//! Yanking (PEP 592) releases and files, and what a project's owner says of its future (PEP 792).
//!
//! Neither changes a file, so both are possible in stages that keep what they have.

use super::Decision;
use super::draft::{Draft, writable};
use crate::record::write_project;
use crate::release_file::Rare;
use crate::{ChangeError, ProjectName, ProjectStatus, ReleaseFile, Snapshot, StageName};

/// Yanks a release for a reason (possibly empty), or takes that back with none.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`]; [`ChangeError::NoVersion`] if it is not registered.
pub fn release(
    snapshot: &Snapshot,
    stage: &StageName,
    project: &ProjectName,
    version: &str,
    reason: Option<&str>,
) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, stage)?;
    let known = stage.project(project.as_str()).and_then(|it| it.release(version));
    let no_version =
        || ChangeError::NoVersion { project: project.clone(), version: version.to_owned() };
    let known = known.ok_or_else(no_version)?;
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.put_version(stage, project, version, known.metadata, reason);
    Ok(decision(draft))
}

/// Yanks one file for a reason (possibly empty), or takes that back with none.
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
    let mut rare = known.rare.as_deref().cloned().unwrap_or_default();
    rare.yanked = reason.map(Into::into);
    let next = ReleaseFile {
        rare: (rare != Rare::default()).then(|| Box::new(rare)),
        ..ReleaseFile::clone(known)
    };
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.put_file(stage, project, &next);
    Ok(decision(draft))
}

/// Sets what is said of a project's future; with none, nothing is said any more.
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
    draft.put_status(stage, name, project.status.as_deref(), status.map(write_project));
    Ok(decision(draft))
}

fn decision(draft: Draft) -> Decision {
    match draft.is_empty() {
        true => Decision::AlreadyThere,
        false => Decision::Commit(draft.finish()),
    }
}
