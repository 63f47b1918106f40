//! [`Snapshot`]: every stage, project and file as of one serial.
//!
//! Records go in, and queries are answered. A snapshot never changes, and the next one shares with it what did not
//! change. The order and the portions in which records arrive do not matter: a file may arrive before its stage.

use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use record::{Digest, Key, Record, Serial, UnreadableReason, UnreadableRecord};

use crate::names::Names;
use crate::osv::LiveAdvisories;
use crate::project::Project;
use crate::record::{
    SharedParts, StoredFile, Subject, file_key, project_key, read_file, read_project, read_stage,
    read_version, stage_key, version_key, write_file, write_gone, write_project, write_stage,
    write_version,
};
use crate::release_file::Directory;
use crate::{ChangeError, ProjectName, ReleaseFile, StageConfig, StageName};

/// Projects of a stage that are known to have changed last. Tests go beyond it earlier.
const LATEST_MAX: usize = if cfg!(test) { 3 } else { 50 };

/// Every stage, project and file as of one serial. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Includes deleted stages, for their serials, and stages of which something arrived before their configuration.
    stages: OrdMap<StageName, Arc<Stage>>,
    /// The newest serial among the applied records of this surface.
    serial: Serial,
    /// The server's default for stages that do not set who may add test results.
    strangers_add_test_results: bool,
    /// The records of malware and vulnerabilities. They may change at any time, even for an existing snapshot; every stage
    /// shares the cell.
    advisories: Arc<LiveAdvisories>,
}

/// One stage as of one serial.
#[derive(Clone, Debug)]
pub struct Stage {
    name: StageName,
    /// `None` if the stage does not exist, or no longer, or if its configuration cannot be read.
    config: Option<StageConfig>,
    /// Whether the configuration cannot be read: the stage is not shown, but it exists.
    is_unreadable: bool,
    /// The commit that wrote the configuration, or deleted it.
    config_serial: Serial,
    /// The newest commit that added or removed a project, or changed whether one is in quarantine or its name is held.
    projects_serial: Serial,
    /// The newest commit that wrote anything of a project.
    changed_serial: Serial,
    /// Includes projects without any content, for their serials.
    projects: OrdMap<ProjectName, Arc<Project>>,
    /// Those of the projects that have content.
    names: Names,
    /// Those without content whose names the stage keeps.
    held: OrdSet<ProjectName>,
    /// Those with content that their owner put into quarantine.
    quarantined: OrdSet<ProjectName>,
    /// Those that changed last, with or without content, by their last commits.
    latest: OrdSet<(Serial, ProjectName)>,
    /// The cell of the snapshot.
    advisories: Arc<LiveAdvisories>,
}

/// A snapshot, and the records that could not be read.
#[derive(Clone, Debug)]
pub struct ApplyOutcome {
    /// The next snapshot.
    pub snapshot: Snapshot,
    /// Records that could not be read. They count as deleted, with one exception: a stage with an unreadable record
    /// can be neither made, changed nor removed.
    pub troubles: Vec<UnreadableRecord>,
}

/// What a path below `+f/` names.
#[derive(Clone, Debug)]
pub enum FileLookup {
    /// A file.
    Found {
        /// The file.
        file: ReleaseFile,
        /// Its project.
        project: ProjectName,
        /// Whether the owner put the project into quarantine.
        is_quarantined: bool,
    },
    /// The core metadata of a wheel: the blob of [`ReleaseFile::core_metadata`].
    CoreMetadata {
        /// The wheel.
        file: ReleaseFile,
        /// Its project.
        project: ProjectName,
        /// Whether the owner put the project into quarantine.
        is_quarantined: bool,
    },
    /// The provenance of a file: the blob of [`ReleaseFile::provenance`].
    Provenance {
        /// The file.
        file: ReleaseFile,
        /// Its project.
        project: ProjectName,
        /// Whether the owner put the project into quarantine.
        is_quarantined: bool,
    },
    /// A file that has been removed.
    Gone,
    /// No file ever had this path.
    Absent,
}

impl Snapshot {
    /// An empty snapshot.
    pub fn new() -> Snapshot {
        Snapshot::default()
    }

    /// An empty snapshot for a server on which strangers may add test results unless a stage says otherwise, as on devpi, or
    /// only users may.
    pub fn of_server(strangers_add_test_results: bool) -> Snapshot {
        Snapshot { strangers_add_test_results, ..Snapshot::default() }
    }

    /// An empty snapshot with the same defaults.
    #[must_use]
    pub fn without_stages(&self) -> Snapshot {
        Snapshot::of_server(self.strangers_add_test_results)
    }

    /// A snapshot without stages whose policies will ask these records of malware and vulnerabilities.
    #[must_use]
    pub fn with_advisories(self, advisories: Arc<LiveAdvisories>) -> Snapshot {
        debug_assert!(self.stages.is_empty(), "stages have theirs already");
        Snapshot { advisories, ..self }
    }

    /// Whether strangers may add test results to stages that do not set who may.
    pub(crate) fn strangers_add_test_results(&self) -> bool {
        self.strangers_add_test_results
    }

    /// The newest commit with a record of this surface that was applied.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The snapshot after `records`; if a key occurs twice, the later record counts. Keys of other surfaces are
    /// ignored. All records of a commit must come in one call. Takes time in proportion to the number of records
    /// times the logarithm of the number of projects; a project that is shared is copied once.
    ///
    /// A record that cannot be read is listed in [`ApplyOutcome::troubles`], and its subject is not shown.
    #[must_use]
    pub fn apply(&self, records: &[Record]) -> ApplyOutcome {
        self.clone().after(records)
    }

    /// Like [`Snapshot::apply`], but takes the snapshot: what it shares with no other is changed in place.
    #[must_use]
    pub fn after(self, records: &[Record]) -> ApplyOutcome {
        let mut snapshot = self;
        let mut troubles = Vec::new();
        for record in records {
            match Subject::of(&record.key) {
                None => {}
                Some(Ok(subject)) => {
                    snapshot.serial = snapshot.serial.max(record.serial);
                    if let Err(reason) = snapshot.apply_one(subject, record) {
                        troubles.push(UnreadableRecord::of(record, reason));
                    }
                }
                Some(Err(_)) if record.body.is_none() => {}
                Some(Err(reason)) => troubles.push(UnreadableRecord::of(record, reason)),
            }
        }
        ApplyOutcome { snapshot, troubles }
    }

    fn apply_one(&mut self, subject: Subject<'_>, record: &Record) -> Result<(), UnreadableReason> {
        match subject {
            Subject::Stage { stage } => {
                let strangers_add_test_results = self.strangers_add_test_results;
                self.stage_mut(stage)?.apply_config(record, strangers_add_test_results)
            }
            Subject::Project { stage, project } => {
                self.stage_mut(stage)?.change_project(project, record.serial, |project| {
                    let body = record.body.as_ref();
                    let read = body.map(|body| read_project(record.serial, body)).transpose();
                    project.status = read.as_ref().ok().cloned().flatten().map(Box::new);
                    read.map(|_| ())
                })
            }
            Subject::Version { stage, project, version } => {
                self.stage_mut(stage)?.change_project(project, record.serial, |project| {
                    project.apply_version(version, record)
                })
            }
            Subject::File { stage, project, filename } => {
                self.stage_mut(stage)?.change_project(project, record.serial, |project| {
                    project.apply_file(filename, record)
                })
            }
        }
    }

    /// The records of every stage, project status, version and file, and of the traces of deleted ones. Applied to an
    /// empty snapshot they give an equal one. Records that could not be read are not included.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.traces().flat_map(|stage| {
            let projects = stage.project_traces();
            stage
                .config_record()
                .into_iter()
                .chain(projects.flat_map(|(name, project)| project.records(&stage.name, name)))
        })
    }

    fn stage_mut(&mut self, name: &str) -> Result<&mut Stage, UnreadableReason> {
        if !self.stages.contains_key(name) {
            let parsed: StageName = name.parse().map_err(|_| UnreadableReason::Key)?;
            if parsed.as_str() != name {
                return Err(UnreadableReason::Key);
            }
            let stage = Stage::empty(parsed.clone(), self.advisories.clone());
            self.stages.insert(parsed, Arc::new(stage));
        }
        let stage = self.stages.get_mut(name).expect("it was there or was put there");
        Ok(Arc::make_mut(stage))
    }

    /// The stage with this name.
    pub fn stage(&self, name: &str) -> Option<&Arc<Stage>> {
        self.stages.get(name).filter(|stage| stage.config.is_some())
    }

    /// The stage with this name, for a change to it.
    ///
    /// # Errors
    /// [`ChangeError::NoStage`]; [`ChangeError::StageUnreadable`] if it exists but its record cannot be read.
    pub fn stage_to_change(&self, name: &StageName) -> Result<&Arc<Stage>, ChangeError> {
        let stage = self.trace(name.as_str()).ok_or_else(|| ChangeError::NoStage(name.clone()))?;
        stage.check_readable()?;
        match stage.exists() {
            true => Ok(stage),
            false => Err(ChangeError::NoStage(name.clone())),
        }
    }

    /// Every stage, by name.
    pub fn stages(&self) -> impl Iterator<Item = &Arc<Stage>> {
        self.stages.values().filter(|stage| stage.config.is_some())
    }

    /// The stages of one user, by name.
    pub fn stages_of<'snapshot>(
        &'snapshot self,
        user: &str,
    ) -> impl Iterator<Item = &'snapshot Arc<Stage>> {
        self.traces_of(user).filter(|stage| stage.exists())
    }

    /// The stages of one user, including deleted ones.
    pub(crate) fn traces_of<'snapshot>(
        &'snapshot self,
        user: &str,
    ) -> impl Iterator<Item = &'snapshot Arc<Stage>> {
        // In a name, `/` follows the user; `0` is the next character after `/`.
        let (from, to) = (format!("{user}/"), format!("{user}0"));
        let range = self.stages.range::<_, str>((
            std::ops::Bound::Included(from.as_str()),
            std::ops::Bound::Excluded(to.as_str()),
        ));
        let stages: Vec<&Arc<Stage>> = range.map(|(_, stage)| stage).collect();
        stages.into_iter()
    }

    /// The stage with this name, even if it was deleted.
    pub(crate) fn trace(&self, name: &str) -> Option<&Arc<Stage>> {
        self.stages.get(name)
    }

    /// Every stage, including deleted ones.
    pub(crate) fn traces(&self) -> impl Iterator<Item = &Arc<Stage>> {
        self.stages.values()
    }

    /// The commit that wrote or deleted the configuration of the stage with this name; [`Serial::ZERO`] if it never
    /// existed.
    pub(crate) fn config_serial(&self, name: &str) -> Serial {
        self.trace(name).map_or(Serial::ZERO, |stage| stage.config_serial)
    }

    /// Number of release files, documentation and test results in all stages.
    pub fn file_count(&self) -> usize {
        let projects = self.stages().flat_map(|stage| stage.projects.values());
        projects.map(|project| project.files().len()).sum()
    }
}

impl Stage {
    fn empty(name: StageName, advisories: Arc<LiveAdvisories>) -> Stage {
        Stage {
            name,
            config: None,
            is_unreadable: false,
            config_serial: Serial::ZERO,
            projects_serial: Serial::ZERO,
            changed_serial: Serial::ZERO,
            projects: OrdMap::new(),
            names: Names::default(),
            held: OrdSet::new(),
            quarantined: OrdSet::new(),
            latest: OrdSet::new(),
            advisories,
        }
    }

    /// The records of malware and vulnerabilities.
    pub(crate) fn advisories(&self) -> &Arc<LiveAdvisories> {
        &self.advisories
    }

    /// Its name.
    pub fn name(&self) -> &StageName {
        &self.name
    }

    /// The record of its configuration or of its deletion; `None` if it never existed or its record cannot be read.
    fn config_record(&self) -> Option<Record> {
        let body = match &self.config {
            Some(config) => Some(write_stage(&self.name, config).ok()?),
            None => None,
        };
        let was_written = !self.is_unreadable && self.config_serial > Serial::ZERO;
        was_written.then(|| Record {
            key: stage_key(&self.name),
            serial: self.config_serial,
            body,
            blobs: Vec::new(),
        })
    }

    /// The configuration of the stage.
    ///
    /// # Panics
    /// Never for a stage that a [`Snapshot`] returned.
    pub fn config(&self) -> &StageConfig {
        self.config.as_ref().expect("a stage that is no more is never handed out")
    }

    pub(crate) fn exists(&self) -> bool {
        self.config.is_some()
    }

    /// Refuses a stage that exists but whose record cannot be read.
    pub(crate) fn check_readable(&self) -> Result<(), ChangeError> {
        match self.is_unreadable {
            true => Err(ChangeError::StageUnreadable(self.name.clone())),
            false => Ok(()),
        }
    }

    /// The commit that wrote its configuration.
    pub(crate) fn config_serial(&self) -> Serial {
        self.config_serial
    }

    /// The newest commit that added a project to this stage or removed one, or changed whether one is in quarantine.
    pub(crate) fn projects_serial(&self) -> Serial {
        self.projects_serial
    }

    /// The newest commit that wrote a record of a project of this stage.
    pub(crate) fn changed_serial(&self) -> Serial {
        self.changed_serial
    }

    /// The newest commit that changed its configuration or wrote anything of a project.
    pub fn last_changed(&self) -> Serial {
        self.config_serial.max(self.changed_serial)
    }

    /// The project in this stage itself, without its bases.
    pub fn project(&self, name: &str) -> Option<&Arc<Project>> {
        self.projects.get(name).filter(|project| !project.is_empty())
    }

    /// Whether the name is this stage's own: it has a project of this name, or had one and nobody has released the name.
    pub fn owns_name(&self, name: &str) -> bool {
        self.projects.get(name).is_some_and(|project| project.owns_name())
    }

    /// The names that this stage keeps though nothing is left under them, ascending.
    pub fn held_names(&self) -> impl Iterator<Item = &ProjectName> {
        self.held.iter()
    }

    /// The names of the stage's own projects that their owner put into quarantine, ascending.
    pub fn quarantined_names(&self) -> impl Iterator<Item = &ProjectName> {
        self.quarantined.iter()
    }

    /// Whether its owner put the project with this name into quarantine.
    pub fn is_quarantined(&self, name: &str) -> bool {
        self.quarantined.contains(name)
    }

    /// The project in this stage itself, with its name.
    pub fn project_entry(&self, name: &str) -> Option<(&ProjectName, &Arc<Project>)> {
        self.projects.get_key_value(name).filter(|(_, project)| !project.is_empty())
    }

    /// The stage's own projects, by name.
    pub fn projects(&self) -> impl Iterator<Item = (&ProjectName, &Arc<Project>)> {
        self.projects.iter().filter(|(_, project)| !project.is_empty())
    }

    /// Some of the stage's own projects, those that changed last first: at most [`LATEST_MAX`], and as many fewer as were
    /// removed since those changed.
    pub fn latest_projects(&self) -> impl Iterator<Item = (&ProjectName, &Arc<Project>)> {
        self.latest.iter().rev().filter_map(|(_, name)| self.project_entry(name.as_str()))
    }

    /// The names of the stage's own projects, ascending. This is much faster than [`Stage::projects`], which looks at each project, elsewhere
    /// in the memory.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter()
    }

    /// The names of the stage's own projects that are `text` or later, ascending.
    pub fn names_from<'stage>(&'stage self, text: &str) -> impl Iterator<Item = &'stage str> {
        self.names.from(text)
    }

    /// The names of the stage's own projects that have all of these words in them, ascending; all if there are no words.
    pub fn names_with<'stage>(
        &'stage self,
        words: &'stage [String],
    ) -> impl Iterator<Item = &'stage str> {
        let longest = words.iter().max_by_key(|word| word.len());
        let found = self.names.containing(longest.map_or("", String::as_str));
        let others = move |word: &&String| longest.is_none_or(|longest| *word != longest);
        found.filter(move |name| words.iter().filter(others).all(|word| name.contains(&**word)))
    }

    /// The stage's own projects, including those without any content.
    pub(crate) fn project_traces(&self) -> impl Iterator<Item = (&ProjectName, &Arc<Project>)> {
        self.projects.iter()
    }

    /// The stage's own projects, including those without any content, to compare them with others.
    pub(crate) fn project_map(&self) -> &OrdMap<ProjectName, Arc<Project>> {
        &self.projects
    }

    /// The project with this name, even without any content.
    pub(crate) fn project_trace(&self, name: &str) -> Option<&Arc<Project>> {
        self.projects.get(name)
    }

    /// The file at `+f/{directory}/{filename}`, and its project.
    ///
    /// # Errors
    /// [`ChangeError::FileGone`], [`ChangeError::NoFile`].
    pub fn file_to_change(
        &self,
        directory: Directory,
        filename: &str,
    ) -> Result<(ReleaseFile, ProjectName), ChangeError> {
        let path = || format!("{}/+f/{directory}/{filename}", self.name());
        match self.file(directory, filename) {
            FileLookup::Found { file, project, .. } => Ok((file, project)),
            FileLookup::Gone => Err(ChangeError::FileGone { path: path() }),
            FileLookup::CoreMetadata { .. }
            | FileLookup::Provenance { .. }
            | FileLookup::Absent => Err(ChangeError::NoFile { path: path() }),
        }
    }

    /// The file at `+f/{directory}/{filename}`, or what is remembered of it.
    ///
    /// The path does not name the project, but a file's name starts with it. So each possible start of the name is
    /// looked up, likely ones first; that takes some microseconds at most.
    pub fn file(&self, directory: Directory, filename: &str) -> FileLookup {
        let mut is_gone = false;
        let wheel = filename.strip_suffix(".metadata");
        let attested = filename.strip_suffix(".provenance");
        for (name, project) in self.projects_that_start(filename) {
            if let Some(file) = project.file(filename) {
                if file.directory() == directory {
                    let (file, is_quarantined) = (file.clone(), project.is_quarantined());
                    return FileLookup::Found { file, project: name.clone(), is_quarantined };
                }
                is_gone |= file.gone().contains(&directory);
            }
            if let Some(gone) = project.gone(filename) {
                is_gone |= gone.directories.contains(&directory);
            }
            if let Some(file) = attested.and_then(|attested| project.file(attested))
                && file.directory() == directory
                && file.provenance().is_some()
            {
                let (file, is_quarantined) = (file.clone(), project.is_quarantined());
                let project = name.clone();
                return FileLookup::Provenance { file, project, is_quarantined };
            }
            let Some(wheel) = wheel else { continue };
            if let Some(file) = project.file(wheel) {
                if file.directory() == directory && file.core_metadata().is_some() {
                    let (file, is_quarantined) = (file.clone(), project.is_quarantined());
                    let project = name.clone();
                    return FileLookup::CoreMetadata { file, project, is_quarantined };
                }
                is_gone |= file.gone().contains(&directory);
            }
            if let Some(gone) = project.gone(wheel) {
                is_gone |= gone.directories.contains(&directory);
            }
        }
        if is_gone { FileLookup::Gone } else { FileLookup::Absent }
    }

    /// The projects that `filename` may belong to, by the starts of its name: first those that end before a
    /// separator, longer ones first; then all others.
    fn projects_that_start(
        &self,
        filename: &str,
    ) -> impl Iterator<Item = (&ProjectName, &Arc<Project>)> {
        let normalized = crate::project_name::normalized(filename);
        [true, false].into_iter().flat_map(move |before_separator| {
            let bytes = normalized.as_bytes();
            let ends = (1..=bytes.len()).rev();
            let ends = ends.filter(|&end| (bytes.get(end) == Some(&b'-')) == before_separator);
            let starts = ends.filter_map(|end| self.projects.get_key_value(&normalized[..end]));
            starts.collect::<Vec<_>>()
        })
    }

    fn apply_config(
        &mut self,
        record: &Record,
        strangers_add_test_results: bool,
    ) -> Result<(), UnreadableReason> {
        let body = record.body.as_ref();
        let read = body.map(|body| {
            let config = read_stage(&self.name, body)?;
            Ok(config.with_strangers_adding_test_results(strangers_add_test_results))
        });
        let read = read.transpose();
        self.config_serial = record.serial;
        self.is_unreadable = read.is_err();
        self.config = read.as_ref().ok().cloned().flatten();
        read.map(|_| ())
    }

    fn change_project(
        &mut self,
        name: &str,
        serial: Serial,
        change: impl FnOnce(&mut Project) -> Result<(), UnreadableReason>,
    ) -> Result<(), UnreadableReason> {
        if !self.projects.contains_key(name) {
            let parsed = ProjectName::normalize(name).map_err(|_| UnreadableReason::Key)?;
            if parsed.as_str() != name {
                return Err(UnreadableReason::Key);
            }
            self.projects.insert(parsed, Arc::default());
        }
        let project = self.projects.get_mut(name).expect("it was there or was put there");
        let before = Listing::of(project);
        let serial_before = project.serial;
        let project = Arc::make_mut(project);
        let outcome = change(project);
        project.has_unreadable |= outcome.is_err();
        project.serial = project.serial.max(serial);
        let serial_after = project.serial;
        let after = Listing::of(project);
        self.changed_serial = self.changed_serial.max(serial);
        if after != before {
            self.projects_serial = self.projects_serial.max(serial);
            self.list(name, after);
        }
        if serial_after != serial_before {
            self.note_latest(name, serial_before, serial_after);
        }
        outcome
    }

    /// Notes that the project with this name changed last at a later serial, and lets go of the one that changed before all others.
    fn note_latest(&mut self, name: &str, before: Serial, after: Serial) {
        let is_full = self.latest.len() >= LATEST_MAX;
        if is_full && self.latest.get_min().is_some_and(|(oldest, _)| after < *oldest) {
            return;
        }
        let Some((name, _)) = self.projects.get_key_value(name) else { return };
        self.latest.remove(&(before, name.clone()));
        self.latest.insert((after, name.clone()));
        if self.latest.len() > LATEST_MAX {
            self.latest.remove_min();
        }
    }

    /// Lists the project with this name where it belongs.
    fn list(&mut self, name: &str, listing: Listing) {
        let Some((name, _)) = self.projects.get_key_value(name) else { return };
        self.names.set(name.as_str(), listing.has_content);
        let is_quarantined = listing.has_content && listing.is_quarantined;
        let is_held = listing.is_held && !listing.has_content;
        let others = [(&mut self.quarantined, is_quarantined), (&mut self.held, is_held)];
        for (names, is_in) in others {
            match is_in {
                true => _ = names.insert(name.clone()),
                false => _ = names.remove(name),
            }
        }
    }
}

/// What decides where a project is listed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Listing {
    has_content: bool,
    owns_name: bool,
    is_held: bool,
    is_quarantined: bool,
}

impl Listing {
    fn of(project: &Project) -> Listing {
        Listing {
            has_content: !project.is_empty(),
            owns_name: project.owns_name(),
            is_held: project.is_held(),
            is_quarantined: project.is_quarantined(),
        }
    }
}

impl Project {
    fn records(&self, stage: &StageName, name: &ProjectName) -> Vec<Record> {
        let record = |key: Key, serial, (body, blobs): (Bytes, Vec<Digest>)| Record {
            key,
            serial,
            body: Some(body),
            blobs,
        };
        let status = self.status.iter().filter_map(|stored| {
            let body = write_project(stored.status.as_ref(), stored.is_held)?;
            Some(record(project_key(stage, name), stored.serial, (body, Vec::new())))
        });
        let releases = self.releases.iter().map(|release| {
            let body = write_version(release.metadata, release.yanked());
            record(version_key(stage, name, &release.version), release.serial, body)
        });
        let files = self.files.iter().map(|file| {
            record(file_key(stage, name, file.filename()), file.serial(), write_file(file))
        });
        let gone = self.gone.iter().map(|gone| {
            let body = (write_gone(&gone.directories), Vec::new());
            record(file_key(stage, name, &gone.filename), gone.serial, body)
        });
        let mut records: Vec<Record> = status.chain(releases).chain(files).chain(gone).collect();
        if records.iter().all(|record| record.serial < self.serial) {
            // The newest commit deleted something. The stamps of pages must not fall because of that.
            let mut texts = (0_u64..).map(|number| number.to_string());
            let version = texts.find(|text| self.release(text).is_none()).unwrap_or_default();
            let key = version_key(stage, name, &version);
            records.push(Record { key, serial: self.serial, body: None, blobs: Vec::new() });
        }
        records
    }

    fn apply_version(&mut self, version: &str, record: &Record) -> Result<(), UnreadableReason> {
        let at = self.releases.binary_search_by(|release| (*release.version).cmp(version));
        let read = record.body.as_ref().map(|body| read_version(version, record.serial, body));
        match (at, read) {
            (Ok(at), Some(Ok(release))) => self.releases[at] = release,
            (Err(at), Some(Ok(release))) => insert(&mut self.releases, at, release),
            (Ok(at), unreadable) => {
                self.releases.remove(at);
                return unreadable.map_or(Ok(()), |read| read.map(|_| ()));
            }
            (Err(_), unreadable) => return unreadable.map_or(Ok(()), |read| read.map(|_| ())),
        }
        Ok(())
    }

    fn apply_file(&mut self, filename: &str, record: &Record) -> Result<(), UnreadableReason> {
        let place =
            self.files.binary_search_by(|file| file.filename_bytes().cmp(filename.as_bytes()));
        let (Ok(at) | Err(at)) = place;
        let shared = SharedParts { files: &self.files, at };
        let body = record.body.as_ref();
        let read = body.map(|body| read_file(filename, record.serial, body, &shared)).transpose();
        let (file, gone, outcome) = match read {
            Ok(Some(StoredFile::Present(file))) => (Some(file), None, Ok(())),
            Ok(Some(StoredFile::Gone(gone))) => (None, Some(gone), Ok(())),
            Ok(None) => (None, None, Ok(())),
            Err(reason) => (None, None, Err(reason)),
        };
        match (place, file) {
            (Ok(at), Some(file)) => self.files[at] = file,
            (Err(at), Some(file)) => insert(&mut self.files, at, file),
            (Ok(at), None) => _ = self.files.remove(at),
            (Err(_), None) => {}
        }
        let place = self.gone.binary_search_by(|gone| (*gone.filename).cmp(filename));
        match (place, gone) {
            (Ok(at), Some(gone)) => self.gone[at] = Arc::new(gone),
            (Err(at), Some(gone)) => self.gone.insert(at, Arc::new(gone)),
            (Ok(at), None) => _ = self.gone.remove(at),
            (Err(_), None) => {}
        }
        outcome
    }
}

/// Inserts an item into a list of which there are many: it grows by a sixteenth, so that little of it is empty.
fn insert<T>(items: &mut Vec<T>, at: usize, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(1 + items.len() / 16);
    }
    items.insert(at, item);
}

#[cfg(test)]
pub(crate) mod tests;
