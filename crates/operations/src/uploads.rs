//! Uploads into the Python index: releases, files, documentation and test results, whose bytes are stored already.

use pypi::change::upload as change;
use pypi::{Directory, FileRole, Filename, ProjectName, StageName, Version};
use record::Digest;

use crate::releases::FilePlace;
use crate::rights::{IndexPart, no_replacing, tester, uploader};
use crate::{Basis, Decided, Name, Operation, Refusal, Right};

/// Registers a release, or replaces its metadata.
#[derive(Clone, Debug)]
pub struct RegisterRelease {
    /// The index.
    pub stage: StageName,
    /// The project.
    pub project: ProjectName,
    /// The version.
    pub version: Version,
    /// The digest of its metadata as JSON.
    pub metadata: Digest,
}

impl Operation for RegisterRelease {
    const NAME: Name = Name::RegisterRelease;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let RegisterRelease { stage, project, version, metadata } = self;
        let about = IndexPart::Project(Some(project));
        admit(basis, stage, about)?;
        let index = &basis.stored.index;
        let decision = change::submit(index, stage, project, version, *metadata)?;
        Ok(Decided::new(decision.batch(), ()))
    }
}

/// Refuses senders who may not upload this part of the index.
///
/// # Errors
/// [`pypi::ChangeError::NoStage`], [`Refusal::Denied`].
pub fn admit(basis: &Basis, stage: &StageName, about: IndexPart<'_>) -> Result<(), Refusal> {
    let project = about.of(crate::rights::stage(basis, stage)?);
    uploader(basis, stage, project.portion(), Right::Upload).map(drop)
}

/// Adds a release file, or documentation.
#[derive(Clone, Debug)]
pub struct UploadFile {
    /// The index.
    pub stage: StageName,
    /// The project.
    pub project: ProjectName,
    /// The version.
    pub version: Version,
    /// The name of the file.
    pub filename: Filename,
    /// Its kind.
    pub role: FileRole,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The versions of Python that it supports, if it says.
    pub requires_python: Option<String>,
    /// The digest of the `METADATA` in it, if that is stored.
    pub core_metadata: Option<Digest>,
    /// The digest of its provenance, if that is stored.
    pub provenance: Option<Digest>,
    /// Whether the attestations in it were verified to be signed by the job that sends them.
    pub is_attested: bool,
    /// The digest of the release's metadata as JSON, merged with what this state knows of it; `None` leaves it as it is.
    pub metadata: Option<Digest>,
}

/// What an upload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    /// The file is new, or replaces another.
    Stored,
    /// The index keeps its files, and has exactly this one.
    Identical,
}

impl UploadFile {
    fn upload<'wish>(&'wish self, basis: &'wish Basis) -> change::FileUpload<'wish> {
        change::FileUpload {
            stage: &self.stage,
            project: &self.project,
            version: &self.version,
            filename: &self.filename,
            role: self.role,
            digest: self.digest,
            size_bytes: self.size_bytes,
            requires_python: self.requires_python.as_deref(),
            core_metadata: self.core_metadata,
            provenance: self.provenance,
            is_attested: self.is_attested,
            metadata: self.metadata,
            who: basis.principal().user_name(),
            publisher: basis.principal().publisher().map(|token| &token.identity),
            at: basis.now,
            log: &[],
        }
    }

    /// Refuses what can be refused before a byte is stored, whatever the release's metadata becomes. The outcome says whether
    /// there is nothing to do.
    ///
    /// # Errors
    /// As [`Operation::decide`].
    pub fn foresee(&self, basis: &Basis) -> Result<Option<UploadOutcome>, Refusal> {
        let (index, upload) = (&basis.stored.index, self.upload(basis));
        self.check(basis, &upload)?;
        Ok(change::is_kept(index, &upload)?.then_some(UploadOutcome::Identical))
    }

    /// Refuses senders who may not upload it; also a token that may only add files, if it would replace one. If nobody may
    /// replace files in this index, the decision refuses the upload instead.
    fn check(&self, basis: &Basis, upload: &change::FileUpload<'_>) -> Result<(), Refusal> {
        let about = IndexPart::Project(Some(&self.project));
        admit(basis, &self.stage, about)?;
        let (stage, principal) = (crate::rights::stage(basis, &self.stage)?, basis.principal());
        let portion = about.of(stage);
        if stage.config().volatile
            && !stage.may_replace(principal, portion.portion())
            && change::replaces(&basis.stored.index, upload)
        {
            return Err(no_replacing(principal, self.filename.as_str()));
        }
        Ok(())
    }
}

impl Operation for UploadFile {
    const NAME: Name = Name::UploadFile;

    type Outcome = UploadOutcome;

    fn decide(&self, basis: &Basis) -> Result<Decided<UploadOutcome>, Refusal> {
        let (index, upload) = (&basis.stored.index, self.upload(basis));
        self.check(basis, &upload)?;
        let batch = change::file(index, &upload)?.batch();
        let is_volatile = crate::rights::stage(basis, &self.stage)?.config().volatile;
        let outcome = match batch.is_none() && !is_volatile {
            true => UploadOutcome::Identical,
            false => UploadOutcome::Stored,
        };
        Ok(Decided::new(batch, outcome))
    }
}

/// Adds a test result to a release file. The outcome is its path below the root.
#[derive(Clone, Debug)]
pub struct AddToxResult {
    /// The index.
    pub stage: StageName,
    /// The file that was tested.
    pub file: FilePlace,
    /// The digest of the result.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

impl Operation for AddToxResult {
    const NAME: Name = Name::AddToxResult;

    type Outcome = String;

    fn decide(&self, basis: &Basis) -> Result<Decided<String>, Refusal> {
        let AddToxResult { stage, file, digest, size_bytes } = self;
        let (directory, filename): (Directory, &str) = (file.directory, &file.filename);
        tester(basis, stage, IndexPart::File(Some((directory, filename))))?;
        let upload = change::ToxUpload {
            stage,
            directory,
            filename,
            name: None,
            digest: *digest,
            size_bytes: *size_bytes,
            who: basis.principal().user_name(),
            at: basis.now,
            log: &[],
            is_bounded: true,
        };
        let (batch, path) = change::tox_result(&basis.stored.index, &upload)?;
        Ok(Decided::new(batch, path))
    }
}
