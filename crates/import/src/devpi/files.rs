//! The releases and files of an export, in three steps: [`items`] lists them, [`import`] imports them, and [`verify`]
//! checks that the store has them.

mod importing;
mod listing;
mod verifying;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use account::UserName;
use jiff::Timestamp;
use pypi::{
    ClaimedDigests, FileRole, LogEntry, Metadata, Project, ProjectName, StageName, Version,
};
use record::Digest;
use state::stored::Stored;

use crate::report::{ImportCounts, Report};

pub(super) use self::importing::{import, keep_names};
pub(super) use self::listing::items;
pub(super) use self::verifying::verify;

/// A release or a file that has to be imported.
pub(super) struct Item {
    /// Its name in the report.
    subject: String,
    stage: StageName,
    project: ProjectName,
    version: Version,
    what: ItemContent,
}

enum ItemContent {
    Release(Metadata),
    File(Box<NewFile>),
}

struct NewFile {
    role: FileRole,
    /// For a test result: the name that devpi has for it.
    filename: String,
    path: PathBuf,
    claimed: ClaimedDigests,
    /// Digest algorithms that Larder does not know.
    unchecked: Vec<String>,
    requires_python: Option<String>,
    /// For a test result: the name of the tested file.
    tested: Option<String>,
    /// For a test result: the names of this stage's results in the export.
    results: Arc<BTreeSet<String>>,
    who: Option<UserName>,
    at: Timestamp,
    log: Vec<LogEntry>,
}

/// The outcome for one item.
enum ItemResult {
    /// The digest of its bytes, and their number.
    Imported(Digest, u64),
    AlreadyThere(Digest),
    Conflict(String),
    Failed(String),
}

/// An item that the store has now.
pub(super) struct StoredItem {
    digest: Digest,
    /// Whether this import added it.
    is_new: bool,
}

impl Item {
    /// The order of items: release files and documentation first, then test results by tested file, in the order of
    /// their creation.
    fn place(&self) -> (bool, &ProjectName, Option<&str>, Option<Timestamp>, &str) {
        match &self.what {
            ItemContent::Release(_) => (false, &self.project, None, None, ""),
            ItemContent::File(file) => match &file.tested {
                Some(tested) => {
                    (true, &self.project, Some(tested), Some(file.at), file.filename.as_str())
                }
                None => (false, &self.project, None, None, file.filename.as_str()),
            },
        }
    }

    fn role(&self) -> Option<FileRole> {
        match &self.what {
            ItemContent::Release(_) => None,
            ItemContent::File(file) => Some(file.role),
        }
    }

    fn tally<'report>(&self, report: &'report mut Report) -> &'report mut ImportCounts {
        match &self.what {
            ItemContent::Release(_) => &mut report.releases,
            ItemContent::File(file) => tally(report, Some(file.role)),
        }
    }

    /// The project in the stage, if it exists.
    fn known<'stored>(&self, stored: &'stored Stored) -> Option<&'stored Arc<Project>> {
        stored.index.stage(self.stage.as_str())?.project(self.project.as_str())
    }

    /// Whether the store has the item already, or has something else in its place; `None` if neither.
    fn found(&self, stored: &Stored, digest: Option<Digest>) -> Option<ItemResult> {
        let known = self.known(stored)?;
        let file = match &self.what {
            ItemContent::Release(_) => {
                let release = known.release(self.version.as_str())?;
                return Some(match digest {
                    Some(digest) if digest != release.metadata => {
                        let text =
                            "the release exists already with other metadata, and stays as it is";
                        ItemResult::Conflict(text.to_owned())
                    }
                    _ => ItemResult::AlreadyThere(release.metadata),
                });
            }
            ItemContent::File(file) => file,
        };
        if let Some(there) = known.file(&file.filename) {
            let is_same = digest == Some(*there.digest())
                && there.role() == file.role
                && there.version() == self.version.as_str();
            return Some(if is_same {
                ItemResult::AlreadyThere(*there.digest())
            } else {
                let found = there.digest();
                let text =
                    format!("another file of this name exists already, with SHA-256 {found}");
                ItemResult::Conflict(text)
            });
        }
        // A result may have another name here. Results of the export with equal contents do not count as this one.
        let tested = file.tested.as_deref()?;
        let mut results =
            known.tox_results_of(tested).filter(|it| !file.results.contains(it.filename()));
        let digest = digest?;
        results
            .any(|it| *it.digest() == digest && it.uploaded_at() == file.at)
            .then_some(ItemResult::AlreadyThere(digest))
    }
}

fn tally(report: &mut Report, role: Option<FileRole>) -> &mut ImportCounts {
    match role {
        Some(FileRole::Docs) => &mut report.documentation,
        Some(FileRole::ToxResult) => &mut report.test_results,
        _ => &mut report.files,
    }
}
