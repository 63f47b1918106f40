//! Removing projects, versions and files from a stage. Afterwards their URLs are answered with "gone", not "not
//! found".
//!
//! A stage that is not volatile refuses first, whether or not it has what the request names.

use record::Batch;

use super::draft::{Draft, writable};
use crate::release_file::Directory;
use crate::{ChangeError, ProjectName, Snapshot, StageName};

/// How much of a project is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalExtent {
    /// Everything but its name, which the stage keeps: no mirror's project takes its place.
    Contents,
    /// Everything. From then on mirrors may be asked for the name.
    ContentsAndName,
    /// Only its name, if nothing else is left.
    Name,
}

/// Removes a project, or releases the name of one that was removed.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::NoProject`], [`ChangeError::NameHeld`],
/// [`ChangeError::NameInUse`]; [`ChangeError::ProjectNonVolatile`] unless `force`.
pub fn project(
    snapshot: &Snapshot,
    stage: &StageName,
    name: &ProjectName,
    extent: RemovalExtent,
    force: bool,
) -> Result<Batch, ChangeError> {
    let stage = writable(snapshot, stage)?;
    if !stage.config().volatile && !force {
        let (project, stage) = (name.clone(), stage.name().clone());
        return Err(ChangeError::ProjectNonVolatile { project, stage });
    }
    let trace = stage.project_trace(name.as_str()).filter(|project| project.owns_name());
    let project = trace.ok_or_else(|| ChangeError::NoProject(name.clone()))?;
    match (project.is_empty(), extent) {
        (true, RemovalExtent::Contents) => return Err(ChangeError::NameHeld(name.clone())),
        (false, RemovalExtent::Name) => return Err(ChangeError::NameInUse(name.clone())),
        _ => {}
    }
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.remove_project(stage, name, project, extent == RemovalExtent::Contents);
    Ok(draft.finish())
}

/// Removes a version, which may be spelled in another way, with all its files; with the last version the project is removed too.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::NoVersion`];
/// [`ChangeError::VersionNonVolatile`] unless `force`.
pub fn version(
    snapshot: &Snapshot,
    stage: &StageName,
    name: &ProjectName,
    version: &str,
    force: bool,
) -> Result<Batch, ChangeError> {
    let stage = writable(snapshot, stage)?;
    if !stage.config().volatile && !force {
        return Err(ChangeError::VersionNonVolatile);
    }
    let known = stage.project(name.as_str()).and_then(|project| project.version_meant(version));
    let Some(version) = known else {
        return Err(ChangeError::NoVersion { project: name.clone(), version: version.to_owned() });
    };
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.remove_version(stage, name, version);
    Ok(draft.finish())
}

/// Removes a file with its test results; with the last file of a version the version is removed too, as by
/// [`version()`].
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::NoFile`],
/// [`ChangeError::FileGone`]; [`ChangeError::VersionNonVolatile`] unless `force`.
pub fn file(
    snapshot: &Snapshot,
    stage: &StageName,
    directory: Directory,
    filename: &str,
    force: bool,
) -> Result<Batch, ChangeError> {
    let stage = writable(snapshot, stage)?;
    if !stage.config().volatile && !force {
        return Err(ChangeError::VersionNonVolatile);
    }
    let (file, name) = stage.file_to_change(directory, filename)?;
    let mut draft = Draft::default();
    draft.check_stage(stage);
    let project = stage.project_trace(name.as_str());
    let is_last = project.is_some_and(|project| {
        let mut left = project.files_of(file.version()).filter(|it| it.filename() != filename);
        left.all(|it| it.for_file() == Some(filename))
    });
    if is_last {
        draft.remove_version(stage, &name, file.version());
    } else {
        draft.remove_file(stage, &name, &file);
        draft.remove_tox_results(stage, &name, filename);
        // If two requests remove the last two files, one of them must notice that its file is the last.
        draft.rewrite_version(stage, &name, file.version());
    }
    Ok(draft.finish())
}
