//! Removing old versions by a rule; the plan can be looked at before it is carried out.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use record::Batch;

use super::draft::{Draft, writable};
use crate::{ChangeError, ProjectName, ReleaseFile, Snapshot, Stage, StageName, Version};

/// Which versions may be removed. A version is removed if every part of the rule that is set allows it; an empty rule
/// removes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionRule {
    /// This many of the newest versions of each project stay, by PEP 440.
    pub versions: Option<u32>,
    /// Versions whose newest file is at most this many days old stay. Versions without files have no age and stay.
    pub days: Option<u32>,
}

/// The versions that a rule removes, and the batch that does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPlan {
    /// By project, oldest version first.
    pub removals: Vec<Removal>,
    /// The batch that removes them; `None` if there is nothing to remove.
    pub batch: Option<Batch>,
}

/// A version that a rule removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The project.
    pub project: ProjectName,
    /// The version.
    pub version: String,
    /// The names of its files, ascending.
    pub filenames: Vec<String>,
    /// The size of its files together, in bytes.
    pub size_bytes: u64,
}

impl RetentionRule {
    /// The rule in a stage's configuration.
    pub fn of(stage: &Stage) -> RetentionRule {
        let settings = stage.config().upload();
        RetentionRule {
            versions: settings.and_then(|settings| settings.retention_versions),
            days: settings.and_then(|settings| settings.retention_days),
        }
    }

    /// Whether the rule cannot remove anything.
    pub fn is_empty(&self) -> bool {
        self.versions.is_none() && self.days.is_none()
    }

    /// Whether the rule keeps no version at all, however new: that is a mistake and not a rule.
    pub fn keeps_nothing(&self) -> bool {
        self.versions == Some(0) && self.days.is_none()
    }
}

/// The versions that `rule` removes from a stage at the time `now`. The rule is the owner's own wish, so it also
/// applies to stages that are not volatile.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`].
pub fn plan(
    snapshot: &Snapshot,
    stage: &StageName,
    rule: RetentionRule,
    now: Timestamp,
) -> Result<RetentionPlan, ChangeError> {
    let stage = writable(snapshot, stage)?;
    let mut draft = Draft::default();
    let mut removals = Vec::new();
    if !rule.is_empty() {
        for (name, project) in stage.projects() {
            let mut files_of: FilesOf<'_> = HashMap::new();
            for file in project.files() {
                files_of.entry(file.version()).or_default().push(file);
            }
            let versions = project.versions();
            let versions_count = versions.len();
            let versions = removed_versions(versions, &files_of, rule, now);
            // With the last version, everything else of the project is removed.
            let is_whole = !versions.is_empty() && versions.len() == versions_count;
            if is_whole {
                draft.remove_project(stage, name, project, true);
            }
            for version in versions {
                let files = files_of.remove(version.as_str()).unwrap_or_default();
                if !is_whole {
                    let files = files.iter().copied();
                    draft.remove_one_of_versions(stage, name, &version, files);
                }
                removals.push(Removal {
                    project: name.clone(),
                    filenames: files.iter().map(|file| file.filename().to_owned()).collect(),
                    size_bytes: files.iter().map(|file| file.size_bytes()).sum(),
                    version,
                });
            }
        }
    }
    let batch = (!draft.is_empty()).then(|| {
        draft.check_stage(stage);
        draft.finish()
    });
    Ok(RetentionPlan { removals, batch })
}

/// The files of each version of a project, ascending by name. They are collected once, as a project may have
/// thousands of versions.
type FilesOf<'project> = HashMap<&'project str, Vec<&'project ReleaseFile>>;

/// The versions that `rule` removes, oldest first.
fn removed_versions(
    texts: Vec<&str>,
    files_of: &FilesOf<'_>,
    rule: RetentionRule,
    now: Timestamp,
) -> Vec<String> {
    let mut versions: Vec<Version> =
        texts.into_iter().filter_map(|version| Version::parse(version).ok()).collect();
    versions.sort();
    let kept = rule.versions.map_or(0, |count| count as usize);
    versions.truncate(versions.len().saturating_sub(kept));
    let is_old = |version: &Version| {
        let Some(days) = rule.days else { return true };
        let files = files_of.get(version.as_str());
        let newest = files.and_then(|files| files.iter().map(|file| file.uploaded_at()).max());
        let age = SignedDuration::from_hours(24 * i64::from(days));
        newest.is_some_and(|newest| now.duration_since(newest) > age)
    };
    versions.into_iter().filter(is_old).map(String::from).collect()
}
