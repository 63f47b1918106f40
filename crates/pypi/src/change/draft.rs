//! [`Draft`]: a batch in the making, with each key once and the state that each was decided on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use record::{Batch, Digest, Expected, Key, Serial, Write};

use crate::record::{
    file_key, project_key, stage_key, version_key, write_file, write_gone, write_project,
    write_version,
};
use crate::release_file::Directory;
use crate::{
    ChangeError, Project, ProjectName, ProjectStatus, ReleaseFile, Snapshot, Stage, StageName,
};

/// How many directories of earlier files of one name are remembered; older ones are answered with "not found".
const GONE_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Draft {
    writes: BTreeMap<Key, Write>,
    checks: BTreeMap<Key, Expected>,
}

/// The stage with this name, if it takes uploads.
pub(super) fn writable<'snapshot>(
    snapshot: &'snapshot Snapshot,
    name: &StageName,
) -> Result<&'snapshot Arc<Stage>, ChangeError> {
    let stage = snapshot.stage_to_change(name)?;
    if stage.config().is_mirror() {
        return Err(ChangeError::Mirror(name.clone()));
    }
    Ok(stage)
}

fn at_or_absent(serial: Option<Serial>) -> Expected {
    serial.map_or(Expected::Absent, Expected::At)
}

impl Draft {
    pub(super) fn write(
        &mut self,
        key: Key,
        expected: Expected,
        body: Option<Bytes>,
        blobs: Vec<Digest>,
    ) {
        self.checks.remove(&key);
        self.writes.insert(key.clone(), Write { key, expected, body, blobs });
    }

    pub(super) fn check(&mut self, key: Key, expected: Expected) {
        if !self.writes.contains_key(&key) {
            self.checks.insert(key, expected);
        }
    }

    /// Makes it a condition of the commit that the stage's configuration has not changed.
    pub(super) fn check_stage(&mut self, stage: &Stage) {
        self.check(stage_key(stage.name()), Expected::At(stage.config_serial()));
    }

    /// Registers a version. If it is registered with these values already, that becomes a condition of the commit.
    pub(super) fn put_version(
        &mut self,
        stage: &Stage,
        project: &ProjectName,
        version: &str,
        metadata: Digest,
        yanked: Option<&str>,
    ) {
        let known = stage.project_trace(project.as_str()).and_then(|it| it.release(version));
        let key = version_key(stage.name(), project, version);
        let expected = at_or_absent(known.map(|release| release.serial));
        if known.is_some_and(|it| it.metadata == metadata && it.yanked() == yanked) {
            return self.check(key, expected);
        }
        let (body, blobs) = write_version(metadata, yanked);
        self.write(key, expected, Some(body), blobs);
    }

    /// Adds a file, replacing any that has its name.
    pub(super) fn put_file(&mut self, stage: &Stage, project: &ProjectName, file: &ReleaseFile) {
        let trace = stage.project_trace(project.as_str());
        let known = trace.and_then(|it| it.file(file.filename()));
        let is_new = known.is_none_or(|known| known.version() != file.version());
        let known = known.map(|known| known.serial());
        let gone = trace.and_then(|it| it.gone(file.filename())).map(|gone| gone.serial);
        let (body, blobs) = write_file(file);
        let key = file_key(stage.name(), project, file.filename());
        self.write(key, at_or_absent(known.or(gone)), Some(body), blobs);
        if is_new {
            self.rewrite_version(stage, project, file.version());
        }
    }

    /// Writes the record of a registered version again, unchanged, because the set of its files changes. Such changes
    /// write different files, so without this record they would not notice each other. With it, the removal of a
    /// version, which does not know a file that was added meanwhile, and the upload of that file cannot both be
    /// committed.
    pub(super) fn rewrite_version(&mut self, stage: &Stage, project: &ProjectName, version: &str) {
        let trace = stage.project_trace(project.as_str());
        let Some(release) = trace.and_then(|it| it.release(version)) else { return };
        let key = version_key(stage.name(), project, version);
        if !self.writes.contains_key(&key) {
            let (body, blobs) = write_version(release.metadata, release.yanked());
            self.write(key, Expected::At(release.serial), Some(body), blobs);
        }
    }

    /// Removes a file; its directory is remembered.
    pub(super) fn remove_file(&mut self, stage: &Stage, project: &ProjectName, file: &ReleaseFile) {
        let body = write_gone(&gone_after(file, None));
        let key = file_key(stage.name(), project, file.filename());
        self.write(key, Expected::At(file.serial()), Some(body), Vec::new());
    }

    /// Removes the test results of a file.
    pub(super) fn remove_tox_results(
        &mut self,
        stage: &Stage,
        project: &ProjectName,
        filename: &str,
    ) {
        let trace = stage.project_trace(project.as_str());
        for result in trace.into_iter().flat_map(|it| it.tox_results_of(filename)) {
            self.remove_file(stage, project, result);
        }
    }

    /// Removes a version with its files; with the last version, everything that is left of the project.
    pub(super) fn remove_version(&mut self, stage: &Stage, name: &ProjectName, version: &str) {
        let Some(project) = stage.project_trace(name.as_str()) else { return };
        if project.versions() == [version] {
            return self.remove_project(stage, name, project, true);
        }
        self.remove_one_of_versions(stage, name, version, project.files_of(version));
    }

    /// Removes a version that is not the last one, with `files`, which are all its files.
    pub(super) fn remove_one_of_versions<'project>(
        &mut self,
        stage: &Stage,
        name: &ProjectName,
        version: &str,
        files: impl IntoIterator<Item = &'project ReleaseFile>,
    ) {
        for file in files {
            self.remove_file(stage, name, file);
        }
        self.delete_version(stage, name, version);
        // Two requests may each remove one of the last two versions: neither sees that nothing is left.
        self.hold_name(stage, name);
    }

    fn delete_version(&mut self, stage: &Stage, project: &ProjectName, version: &str) {
        let trace = stage.project_trace(project.as_str());
        if let Some(release) = trace.and_then(|it| it.release(version)) {
            let key = version_key(stage.name(), project, version);
            self.write(key, Expected::At(release.serial), None, Vec::new());
        }
    }

    /// Writes the project's own record, or deletes it if it would say nothing.
    pub(super) fn put_status(
        &mut self,
        stage: &Stage,
        name: &ProjectName,
        status: Option<&ProjectStatus>,
        is_held: bool,
    ) {
        let trace = stage.project_trace(name.as_str());
        let known = trace.and_then(|project| project.status.as_deref());
        let expected = at_or_absent(known.map(|stored| stored.serial));
        let body = write_project(status, is_held);
        if known.is_some() || body.is_some() {
            self.write(project_key(stage.name(), name), expected, body, Vec::new());
        }
    }

    /// From now on the stage keeps the name, even with nothing left under it.
    pub(super) fn hold_name(&mut self, stage: &Stage, name: &ProjectName) {
        let trace = stage.project_trace(name.as_str());
        if !trace.is_some_and(|project| project.is_held()) {
            self.put_status(stage, name, trace.and_then(|project| project.status()), true);
        }
    }

    /// Removes everything that a stage has of a project; the directories of its files are remembered, and the name if it is kept.
    pub(super) fn remove_project(
        &mut self,
        stage: &Stage,
        name: &ProjectName,
        project: &Project,
        keeps_name: bool,
    ) {
        for file in project.files() {
            self.remove_file(stage, name, file);
        }
        self.delete_versions(stage, name, project);
        self.put_status(stage, name, None, keeps_name);
    }

    fn delete_versions(&mut self, stage: &Stage, name: &ProjectName, project: &Project) {
        for release in project.releases() {
            self.delete_version(stage, name, &release.version);
        }
    }

    /// Deletes every record of a project, including those that remember removed files.
    pub(super) fn erase_project(&mut self, stage: &Stage, name: &ProjectName, project: &Project) {
        let files = project.files().iter().map(|file| (file.filename(), file.serial()));
        let gone = project.gone.iter().map(|gone| (&*gone.filename, gone.serial));
        for (filename, serial) in files.chain(gone) {
            let key = file_key(stage.name(), name, filename);
            self.write(key, Expected::At(serial), None, Vec::new());
        }
        self.delete_versions(stage, name, project);
        self.put_status(stage, name, None, false);
    }

    /// Adds the writes of another draft, which has different keys.
    pub(super) fn append(&mut self, mut other: Draft) {
        self.writes.append(&mut other.writes);
        self.checks.append(&mut other.checks);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(super) fn finish(self) -> Batch {
        Batch {
            writes: self.writes.into_values().collect(),
            checks: self.checks.into_iter().collect(),
        }
    }
}

/// The directories of former files of a name, after `file` has been removed or a file in `next` has replaced it.
pub(super) fn gone_after(file: &ReleaseFile, next: Option<Directory>) -> Vec<Directory> {
    let mut gone = file.gone().to_vec();
    gone.push(file.directory());
    without(gone, next)
}

/// `gone` without duplicates and without `next`, which is in use again; only the newest ones.
pub(super) fn without(gone: Vec<Directory>, next: Option<Directory>) -> Vec<Directory> {
    let mut kept: Vec<Directory> = Vec::with_capacity(gone.len());
    for directory in gone.into_iter().rev() {
        if Some(directory) != next && !kept.contains(&directory) && kept.len() < GONE_MAX {
            kept.push(directory);
        }
    }
    kept.reverse();
    kept
}
