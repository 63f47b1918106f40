//! [`ChangeError`]: why a change is refused, in devpi's words where it has some.

use crate::{ConfigError, ProjectName, StageName};

/// Why a change is refused. Nothing was decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// No such stage.
    #[error("The stage {0} could not be found.")]
    NoStage(StageName),
    /// A new stage has a name that is taken.
    #[error("index '{0}' exists")]
    StageExists(StageName),
    /// A stage whose record cannot be read, so that nothing may be decided about it.
    #[error(
        "index '{0}' exists, but its record cannot be read by this version of the server; the log says why"
    )]
    StageUnreadable(StageName),
    /// A stage that keeps what it has.
    #[error("index {0} non-volatile, cannot delete")]
    StageNonVolatile(StageName),
    /// A user with a stage that keeps what it has.
    #[error("user '{user}' has non-volatile index: {index}")]
    UserHasNonVolatile {
        /// The user.
        user: String,
        /// The stage's index name.
        index: String,
    },
    /// A configuration that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A change was asked for that changes nothing.
    #[error("The requested modifications resulted in no changes")]
    NoChange,
    /// Uploads go to stages.
    #[error("cannot submit to mirror index")]
    Mirror(StageName),
    /// Another file of this name is there and stays.
    #[error("{filename} already exists in non-volatile index")]
    FileExists {
        /// The name.
        filename: String,
    },
    /// Documentation of a version that nobody registered.
    #[error("{project}-{version} is not registered")]
    NotRegistered {
        /// The project.
        project: ProjectName,
        /// The version.
        version: String,
    },
    /// A project that the stage does not have.
    #[error("project not found")]
    NoProject(ProjectName),
    /// A project of a stage that keeps what it has.
    #[error("project '{project}' is on non-volatile index {stage}")]
    ProjectNonVolatile {
        /// The project.
        project: ProjectName,
        /// The stage.
        stage: StageName,
    },
    /// A version that the stage does not have.
    #[error("The version {version} of project {project} does not exist.")]
    NoVersion {
        /// The project.
        project: ProjectName,
        /// The version.
        version: String,
    },
    /// A version, or one of its files, in a stage that keeps what it has.
    #[error("cannot delete version on non-volatile index")]
    VersionNonVolatile,
    /// A file that was never there.
    #[error("package '{path}' doesn't exist")]
    NoFile {
        /// Its path below the stage.
        path: String,
    },
    /// A file that was there once.
    #[error("file '{path}' existed, deleted in later serial")]
    FileGone {
        /// Its path below the stage.
        path: String,
    },
    /// A test result of nothing.
    #[error("no release file found at {path}")]
    NoReleaseFile {
        /// The path below the stage.
        path: String,
    },
    /// Strangers have added as many test results as they may.
    #[error(
        "project '{0}' has as many test results of strangers as are kept ({count_max}, or {bytes_max} bytes): log in to add \
         more",
        count_max = crate::change::upload::STRANGERS_TOX_RESULTS_MAX,
        bytes_max = crate::change::upload::STRANGERS_TOX_RESULT_BYTES_MAX
    )]
    TestResultsFull(ProjectName),
    /// A release to push that is not registered.
    #[error("there are no files for {project} {version} on stage {stage}")]
    NothingToPush {
        /// The project, as given.
        project: String,
        /// The version, as given.
        version: String,
        /// Where it was looked for.
        stage: StageName,
    },
    /// A release to push that is registered and has no files.
    #[error("no release/files found for {project} {version}")]
    NoFilesToPush {
        /// The project, as given.
        project: String,
        /// The version, as given.
        version: String,
    },
}

/// What kind of refusal a [`ChangeError`] is: the HTTP layer gives each a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request makes no sense.
    Invalid,
    /// A rule of the stage forbids it, whoever asks.
    Forbidden,
    /// What it is about is not there.
    NotFound,
    /// What it is about was there once.
    Gone,
    /// Something else is in its place.
    Conflict,
}

impl ChangeError {
    /// What kind of refusal it is.
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
            | Mirror(_)
            | NoProject(_)
            | NoVersion { .. }
            | NoFile { .. }
            | NoReleaseFile { .. }
            | NoFilesToPush { .. } => Refusal::NotFound,
            FileGone { .. } => Refusal::Gone,
            StageExists(_) | StageUnreadable(_) | FileExists { .. } => Refusal::Conflict,
        }
    }
}
