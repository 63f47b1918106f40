//! Releases of the Python index: yanked, removed, kept by a rule; and the status of their projects.

use pypi::change::remove::{self, RemovalExtent};
use pypi::change::retention::{self, Removal, RetentionPlan, RetentionRule};
use pypi::change::yank;
use pypi::index_log::{Deed, DeedKind};
use pypi::{Directory, ProjectName, ProjectStatus, StageName};

use crate::rights::{IndexPart, NeedsRemover, check_keeper, remover};
use crate::{Basis, Decided, Name, Operation, Refusal, Right, Rule};

/// A release file, as its URL below `+f` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// Its directory.
    pub directory: Directory,
    /// Its name.
    pub filename: String,
}

impl FilePlace {
    fn about(&self) -> IndexPart<'_> {
        IndexPart::File(Some((self.directory, &self.filename)))
    }
}

/// What the log of the index says of a yank, or of one that is taken back.
fn yanked(project: &ProjectName, reason: Option<&str>) -> Deed {
    let what = if reason.is_some() { DeedKind::Yanked } else { DeedKind::Unyanked };
    Deed::of(what, project).because(reason)
}

/// A version, as the index spells it.
fn spelled(basis: &Basis, stage: &StageName, project: &ProjectName, version: &str) -> String {
    let found = basis.stored.index.stage(stage.as_str());
    let found = found.and_then(|stage| stage.project(project.as_str()));
    found.and_then(|project| project.version_meant(version)).unwrap_or(version).to_owned()
}

/// Yanks a release (PEP 592), or takes that back.
#[derive(Clone, Debug)]
pub struct YankRelease {
    /// The index.
    pub stage: StageName,
    /// The project.
    pub project: ProjectName,
    /// The version, in any spelling.
    pub version: String,
    /// Why, which may be empty; `None` takes the yank back.
    pub reason: Option<String>,
}

impl NeedsRemover for YankRelease {
    const PURPOSE: &'static str = "yanking a release";
}

impl Operation for YankRelease {
    const NAME: Name = Name::YankRelease;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let YankRelease { stage, project, version, reason } = self;
        remover::<Self>(basis, stage, IndexPart::Project(Some(project)))?;
        let index = &basis.stored.index;
        let reason = reason.as_deref();
        let decision = yank::release(index, stage, project, version, reason)?;
        let deed = yanked(project, reason).version(&spelled(basis, stage, project, version));
        Ok(Decided::new(decision.batch(), ()).logging(stage, deed))
    }
}

/// Yanks one file, or takes that back.
#[derive(Clone, Debug)]
pub struct YankFile {
    /// The index.
    pub stage: StageName,
    /// The file.
    pub file: FilePlace,
    /// Why, which may be empty; `None` takes the yank back.
    pub reason: Option<String>,
}

impl NeedsRemover for YankFile {
    const PURPOSE: &'static str = "yanking a file";
}

impl Operation for YankFile {
    const NAME: Name = Name::YankFile;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let YankFile { stage, file, reason } = self;
        let found = remover::<Self>(basis, stage, file.about())?;
        let (_, project) = found.file_to_change(file.directory, &file.filename)?;
        let (index, reason) = (&basis.stored.index, reason.as_deref());
        let decision = yank::file(index, stage, &project, &file.filename, reason)?;
        let deed = yanked(&project, reason).file(&file.filename);
        Ok(Decided::new(decision.batch(), ()).logging(stage, deed))
    }
}

/// Sets the status of a project (PEP 792).
#[derive(Clone, Debug)]
pub struct SetProjectStatus {
    /// The index.
    pub stage: StageName,
    /// The project.
    pub project: ProjectName,
    /// `None` removes it.
    pub status: Option<ProjectStatus>,
}

impl NeedsRemover for SetProjectStatus {
    const PURPOSE: &'static str = "changing a project's status";
}

impl Operation for SetProjectStatus {
    const NAME: Name = Name::SetProjectStatus;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let SetProjectStatus { stage, project, status } = self;
        remover::<Self>(basis, stage, IndexPart::Project(Some(project)))?;
        let index = &basis.stored.index;
        let decision = yank::set_project_status(index, stage, project, status.as_ref())?;
        let ProjectStatus { marker, reason } = status.clone().unwrap_or_default();
        let deed = Deed::of(DeedKind::Status, project).naming([marker.as_str()]);
        let deed = deed.because(reason.as_deref());
        Ok(Decided::new(decision.batch(), ()).logging(stage, deed))
    }
}

/// Removes a project, or releases the name of one that was removed.
#[derive(Clone, Debug)]
pub struct DeleteProject {
    /// The index.
    pub stage: StageName,
    /// The project.
    pub project: ProjectName,
    /// How much of it.
    pub extent: RemovalExtent,
    /// Whether it goes even if the index is not volatile.
    pub force: bool,
}

impl NeedsRemover for DeleteProject {
    const PURPOSE: &'static str = "removing a project";
}

impl Operation for DeleteProject {
    const NAME: Name = Name::DeleteProject;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let DeleteProject { stage, project, extent, force } = self;
        remover::<Self>(basis, stage, IndexPart::Project(Some(project)))?;
        let batch = remove::project(&basis.stored.index, stage, project, *extent, *force)?;
        Ok(Decided::new(batch, ()).logging(stage, Deed::of(DeedKind::Removed, project)))
    }
}

/// Removes a version with its files.
#[derive(Clone, Debug)]
pub struct DeleteRelease {
    /// The index.
    pub stage: StageName,
    /// The project.
    pub project: ProjectName,
    /// The version, in any spelling.
    pub version: String,
    /// Whether it goes even if the index is not volatile.
    pub force: bool,
}

impl NeedsRemover for DeleteRelease {
    const PURPOSE: &'static str = "removing a version";
}

impl Operation for DeleteRelease {
    const NAME: Name = Name::DeleteRelease;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let DeleteRelease { stage, project, version, force } = self;
        remover::<Self>(basis, stage, IndexPart::Project(Some(project)))?;
        let batch = remove::version(&basis.stored.index, stage, project, version, *force)?;
        let version = spelled(basis, stage, project, version);
        let deed = Deed::of(DeedKind::Removed, project).version(&version);
        Ok(Decided::new(batch, ()).logging(stage, deed))
    }
}

/// Removes a file, a test result or documentation.
#[derive(Clone, Debug)]
pub struct DeleteFile {
    /// The index.
    pub stage: StageName,
    /// The file.
    pub file: FilePlace,
    /// Whether it goes even if the index is not volatile.
    pub force: bool,
}

impl NeedsRemover for DeleteFile {
    const PURPOSE: &'static str = "removing a file";
}

impl Operation for DeleteFile {
    const NAME: Name = Name::DeleteFile;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let DeleteFile { stage, file, force } = self;
        let found = remover::<Self>(basis, stage, file.about())?;
        let index = &basis.stored.index;
        let batch = remove::file(index, stage, file.directory, &file.filename, *force)?;
        let project = found.file_to_change(file.directory, &file.filename);
        let project = project.ok().map(|(_, project)| project);
        let deed = Deed { project, ..Deed::new(DeedKind::Removed) }.file(&file.filename);
        Ok(Decided::new(batch, ()).logging(stage, deed))
    }
}

/// Removes old versions by a rule. The outcome is the rule, and what it removes. Planning looks at the whole index, so the caller
/// takes a turn for it.
#[derive(Clone, Debug)]
pub struct RemoveOldVersions {
    /// The index.
    pub stage: StageName,
    /// `None`: that of the index.
    pub rule: Option<RetentionRule>,
    /// Whether nothing is removed, and the outcome only says what would be.
    pub is_dry: bool,
}

impl RemoveOldVersions {
    /// Refuses senders who may not remove old versions from the index.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    pub fn admit(basis: &Basis, stage: &StageName) -> Result<(), Refusal> {
        check_keeper(basis, stage, Right::Remove("removing old versions"))
    }
}

impl Operation for RemoveOldVersions {
    const NAME: Name = Name::RemoveOldVersions;

    type Outcome = (RetentionRule, Vec<Removal>);

    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal> {
        let RemoveOldVersions { stage, rule, is_dry } = self;
        RemoveOldVersions::admit(basis, stage)?;
        let index = &basis.stored.index;
        let rule = match rule {
            Some(rule) => *rule,
            None => RetentionRule::of(index.stage_to_change(stage)?),
        };
        if rule.keeps_nothing() {
            return Err(Rule::KeepsNothing.into());
        }
        if rule.is_empty() {
            return Err(Rule::NoRetention.into());
        }
        let RetentionPlan { removals, batch } = retention::plan(index, stage, rule, basis.now)?;
        let names =
            removals.iter().map(|removal| format!("{} {}", removal.project, removal.version));
        let deed = Deed::new(DeedKind::Retention).naming(names);
        let decided = Decided::new(batch.filter(|_| !is_dry), (rule, removals));
        Ok(decided.logging(stage, deed))
    }
}
