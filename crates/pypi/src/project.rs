//! [`Project`]: everything that one stage has of one project.

use std::sync::Arc;

use record::{Digest, Serial};

use crate::release_file::Directory;
use crate::{FileRole, ReleaseFile, Version};

/// Everything that one stage has of one project. It never changes; the next state shares unchanged parts with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// The newest commit that touched any part of the project, deletions included.
    pub(crate) serial: Serial,
    /// Ascending by the text of the version.
    pub(crate) releases: Vec<Release>,
    /// Ascending by name.
    pub(crate) files: Vec<ReleaseFile>,
    /// Names under which no file is left, ascending.
    pub(crate) gone: Vec<Arc<RemovedName>>,
    pub(crate) status: Option<Box<StoredStatus>>,
    /// Whether a record of the project could not be read: something may be there that is not shown.
    pub(crate) has_unreadable: bool,
}

/// A name whose files were all removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemovedName {
    pub(crate) filename: Box<str>,
    pub(crate) serial: Serial,
    pub(crate) directories: Box<[Directory]>,
}

/// What the record of the project itself says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredStatus {
    /// The status that the owner set.
    pub(crate) status: Option<ProjectStatus>,
    /// Whether the stage keeps the name after everything under it was removed.
    pub(crate) is_held: bool,
    pub(crate) serial: Serial,
}

/// A version of a project that is registered in a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version's text, as uploaded.
    pub version: Box<str>,
    /// The digest of its metadata, a JSON blob.
    pub metadata: Digest,
    /// Few releases are yanked: one pointer for the others.
    pub(crate) yanked: Option<Box<Box<str>>>,
    /// The commit that wrote its record.
    pub serial: Serial,
}

impl Release {
    /// Why all of its files were yanked (may be empty); `None` if they were not.
    pub fn yanked(&self) -> Option<&str> {
        self.yanked.as_ref().map(|reason| &***reason)
    }
}

/// A project's status as its owner set it (PEP 792).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectStatus {
    /// The state of the project.
    pub marker: StatusMarker,
    /// The reason, for people.
    pub reason: Option<Box<str>>,
}

/// The states of PEP 792.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusMarker {
    /// No status is set.
    #[default]
    Active,
    /// No more updates are expected.
    Archived,
    /// Not to be used until somebody has examined it; its files are not listed.
    Quarantined,
    /// Something else should be used.
    Deprecated,
}

impl StatusMarker {
    /// PEP 792's name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            StatusMarker::Active => "active",
            StatusMarker::Archived => "archived",
            StatusMarker::Quarantined => "quarantined",
            StatusMarker::Deprecated => "deprecated",
        }
    }

    /// Parses PEP 792's name of a state.
    pub fn parse(text: &str) -> Option<StatusMarker> {
        use StatusMarker::{Active, Archived, Deprecated, Quarantined};
        [Active, Archived, Quarantined, Deprecated].into_iter().find(|it| it.as_str() == text)
    }
}

impl Project {
    /// The newest commit that touched any part of the project, deletions included.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// Whether nothing is left of the project, so that it counts as absent.
    pub fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.files.is_empty()
    }

    /// Whether it has a record of that serial or an older one.
    pub(crate) fn has_record_up_to(&self, serial: Serial) -> bool {
        self.files.iter().any(|file| file.serial() <= serial)
            || self.releases.iter().any(|release| release.serial <= serial)
            || self.gone.iter().any(|gone| gone.serial <= serial)
            || self.status.iter().any(|status| status.serial <= serial)
    }

    /// Whether there is a record of files with this name, removed ones included.
    pub(crate) fn has_file_record(&self, filename: &str) -> bool {
        self.file(filename).is_some() || self.gone.iter().any(|gone| *gone.filename == *filename)
    }

    /// Whether a record of the project names the blob.
    pub(crate) fn names_blob(&self, digest: &Digest) -> bool {
        self.releases.iter().any(|release| release.metadata == *digest)
            || self.files.iter().any(|file| {
                let others = [file.core_metadata(), file.provenance().copied()];
                file.digest() == digest || others.contains(&Some(*digest))
            })
    }

    /// Its registered versions, ascending by their text.
    pub fn releases(&self) -> &[Release] {
        &self.releases
    }

    /// The registered version with this text.
    pub fn release(&self, version: &str) -> Option<&Release> {
        let at = self.releases.binary_search_by(|release| (*release.version).cmp(version)).ok()?;
        self.releases.get(at)
    }

    /// Its files of all kinds, ascending by name.
    pub fn files(&self) -> &[ReleaseFile] {
        &self.files
    }

    /// The files for installers, ascending by name.
    pub fn release_files(&self) -> impl Iterator<Item = &ReleaseFile> {
        self.files.iter().filter(|file| file.role() == FileRole::Release)
    }

    /// The file with this name.
    pub fn file(&self, filename: &str) -> Option<&ReleaseFile> {
        let at = self
            .files
            .binary_search_by(|file| file.filename_bytes().cmp(filename.as_bytes()))
            .ok()?;
        self.files.get(at)
    }

    /// The files of one version, of all kinds, ascending by name.
    pub fn files_of<'project>(
        &'project self,
        version: &str,
    ) -> impl Iterator<Item = &'project ReleaseFile> {
        self.files.iter().filter(move |file| file.version_bytes() == version.as_bytes())
    }

    /// The test results of a file, ascending by name.
    pub fn tox_results_of<'project>(
        &'project self,
        filename: &str,
    ) -> impl Iterator<Item = &'project ReleaseFile> {
        self.files.iter().filter(move |file| file.for_file() == Some(filename))
    }

    /// The texts of its versions, registered or with a file, ascending by text, each once.
    pub fn versions(&self) -> Vec<&str> {
        let registered = self.releases.iter().map(|release| &*release.version);
        let mut versions: Vec<&str> =
            registered.chain(self.files.iter().map(|file| file.version())).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// The newest version by PEP 440; an alpha, beta or candidate only if there is no final version.
    pub fn latest_version(&self) -> Option<Version> {
        Version::latest(self.versions().into_iter().filter_map(|text| Version::parse(text).ok()))
    }

    /// The metadata of the newest version, a JSON blob; `None` if that version has none.
    pub(crate) fn described_by(&self) -> Option<Digest> {
        let latest = self.latest_version()?;
        self.release(latest.as_str()).map(|release| release.metadata)
    }

    /// Why a file is yanked, alone or with its whole release; `None` if it is not.
    pub fn yanked<'project>(&'project self, file: &'project ReleaseFile) -> Option<&'project str> {
        file.yanked().or_else(|| self.release(file.version())?.yanked())
    }

    /// The text of the version that somebody means by `wanted`, as [`Version::position`] finds it.
    pub fn version_meant(&self, wanted: &str) -> Option<&str> {
        let versions = self.versions();
        Some(versions[Version::position(wanted, versions.iter().copied())?])
    }

    /// Whether the owner put it into quarantine.
    pub fn is_quarantined(&self) -> bool {
        self.status().is_some_and(|status| status.marker == StatusMarker::Quarantined)
    }

    /// The status that the owner set.
    pub fn status(&self) -> Option<&ProjectStatus> {
        self.status.as_deref().and_then(|stored| stored.status.as_ref())
    }

    /// Whether the stage keeps the name as its own once nothing is left of the project.
    pub(crate) fn is_held(&self) -> bool {
        self.status.as_deref().is_some_and(|stored| stored.is_held)
    }

    /// Whether the name is the stage's own: it has something under it, even unreadable, or had something and nobody has released
    /// the name.
    pub(crate) fn owns_name(&self) -> bool {
        !self.is_empty() || self.is_held() || self.has_unreadable
    }

    /// The directories of former files of this name, and the commit that wrote the name last.
    pub(crate) fn gone(&self, filename: &str) -> Option<&Arc<RemovedName>> {
        let at = self.gone.binary_search_by(|gone| (*gone.filename).cmp(filename)).ok()?;
        self.gone.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_version_is_preferred_as_the_latest() {
        let latest = |versions: &[&str]| {
            let releases = versions.iter().map(|version| Release {
                version: (*version).into(),
                metadata: Digest::of(b""),
                yanked: None,
                serial: Serial::ZERO,
            });
            let project = Project { releases: releases.collect(), ..Project::default() };
            project.latest_version().map(|version| version.to_string())
        };
        assert_eq!(latest(&["1.10", "1.9", "2.0rc1"]).as_deref(), Some("1.10"));
        assert_eq!(latest(&["1.0a1", "1.0b1"]).as_deref(), Some("1.0b1"));
        assert_eq!(latest(&[]), None);
    }
}
