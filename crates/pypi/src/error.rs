//! [`ChangeError`]: why a change is refused, with devpi's messages where devpi has some.

use account::UserName;

use crate::{ConfigError, ProjectName, StageName};

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The stage does not exist.
    #[error("The stage {0} could not be found.")]
    NoStage(StageName),
    /// The user of the new stage does not exist.
    #[error("no user '{0}'")]
    NoUser(UserName),
    /// The name of the new stage is taken.
    #[error("index '{0}' exists")]
    StageExists(StageName),
    /// The stage's record cannot be read, so no decision about the stage is possible.
    #[error(
        "index '{0}' exists, but its record cannot be read by this version of the server; the log says why"
    )]
    StageUnreadable(StageName),
    /// The stage is not volatile.
    #[error("index {0} non-volatile, cannot delete")]
    StageNonVolatile(StageName),
    /// The user has a stage that is not volatile.
    #[error("user '{user}' has non-volatile index: {index}")]
    UserHasNonVolatile {
        /// The user.
        user: String,
        /// The stage's index name.
        index: String,
    },
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The requested change would change nothing.
    #[error("The requested modifications resulted in no changes")]
    NoChange,
    /// Mirrors take no uploads.
    #[error("cannot submit to mirror index")]
    Mirror(StageName),
    /// Another file has this name, and cannot be replaced.
    #[error("{filename} already exists in non-volatile index")]
    FileExists {
        /// The name.
        filename: String,
    },
    /// Documentation was sent for a version that is not registered.
    #[error("{project}-{version} is not registered")]
    NotRegistered {
        /// The project.
        project: ProjectName,
        /// The version.
        version: String,
    },
    /// The stage does not have the project.
    #[error("project not found")]
    NoProject(ProjectName),
    /// Nothing is left of the project but its name, which the stage keeps.
    #[error("project not found: nothing is left of it but its name")]
    NameHeld(ProjectName),
    /// Only the name of a project was to be released, and the project exists.
    #[error("project '{0}' has releases: only an unused name can be released alone")]
    NameInUse(ProjectName),
    /// The project is in a stage that is not volatile.
    #[error("project '{project}' is on non-volatile index {stage}")]
    ProjectNonVolatile {
        /// The project.
        project: ProjectName,
        /// The stage.
        stage: StageName,
    },
    /// The stage does not have the version.
    #[error("The version {version} of project {project} does not exist.")]
    NoVersion {
        /// The project.
        project: ProjectName,
        /// The version.
        version: String,
    },
    /// The version, or one of its files, is in a stage that is not volatile.
    #[error("cannot delete version on non-volatile index")]
    VersionNonVolatile,
    /// No file ever had this path.
    #[error("package '{path}' doesn't exist")]
    NoFile {
        /// Its path below the stage.
        path: String,
    },
    /// The file was removed.
    #[error("file '{path}' existed, deleted in later serial")]
    FileGone {
        /// Its path below the stage.
        path: String,
    },
    /// A test result was sent for a file that does not exist.
    #[error("no release file found at {path}")]
    NoReleaseFile {
        /// The path below the stage.
        path: String,
    },
    /// The project has the maximum of test results from strangers.
    #[error(
        "project '{0}' has as many test results of strangers as are kept ({count_max}, or {bytes_max} bytes): log in to add \
         more",
        count_max = crate::change::upload::STRANGERS_TOX_RESULTS_MAX,
        bytes_max = crate::change::upload::STRANGERS_TOX_RESULT_BYTES_MAX
    )]
    TestResultsFull(ProjectName),
    /// The release to push is not registered.
    #[error("there are no files for {project} {version} on stage {stage}")]
    NothingToPush {
        /// The project, as given.
        project: String,
        /// The version, as given.
        version: String,
        /// The stage that was searched.
        stage: StageName,
    },
    /// The release to push is registered but has no files.
    #[error("no release/files found for {project} {version}")]
    NoFilesToPush {
        /// The project, as given.
        project: String,
        /// The version, as given.
        version: String,
    },
}

/// The kind of a [`ChangeError`]: the HTTP layer gives each a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not valid.
    Invalid,
    /// A rule of the stage forbids it, for every sender.
    Forbidden,
    /// The subject does not exist.
    NotFound,
    /// The subject was removed.
    Gone,
    /// Something else is in its place.
    Conflict,
}

impl ChangeError {
    /// The kind of this refusal.
    pub fn refusal(&self) -> Refusal {
        use ChangeError::*;
        match self {
            Config(_) | NoChange | NotRegistered { .. } | NothingToPush { .. } => Refusal::Invalid,
            StageNonVolatile(_)
            | UserHasNonVolatile { .. }
            | ProjectNonVolatile { .. }
            | VersionNonVolatile
            | TestResultsFull(_) => Refusal::Forbidden,
            NoStage(_)
            | NoUser(_)
            | Mirror(_)
            | NoProject(_)
            | NameHeld(_)
            | NoVersion { .. }
            | NoFile { .. }
            | NoReleaseFile { .. }
            | NoFilesToPush { .. } => Refusal::NotFound,
            FileGone { .. } => Refusal::Gone,
            StageExists(_) | StageUnreadable(_) | FileExists { .. } | NameInUse(_) => {
                Refusal::Conflict
            }
        }
    }
}
