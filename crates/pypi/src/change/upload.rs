//! Adding to a stage: release files, registrations, documentation and test results.

use std::sync::Arc;

use account::{CiIdentity, UserName};
use jiff::Timestamp;
use record::{Batch, Digest, Expected};

use super::Decision;
use super::draft::{Draft, gone_after, without, writable};
use crate::record::file_key;
use crate::release_file::{Directory, FileParts, Origin, RareFields};
use crate::{
    ChangeError, FileLookup, FileRole, Filename, LogEntry, ProjectName, ReleaseFile, Snapshot,
    StageName, Version,
};

/// The upload of a file whose bytes are stored already.
#[derive(Clone, Copy, Debug)]
pub struct FileUpload<'text> {
    /// The stage that gets the file.
    pub stage: &'text StageName,
    /// The project of the file.
    pub project: &'text ProjectName,
    /// The version of the file.
    pub version: &'text Version,
    /// Its name.
    pub filename: &'text Filename,
    /// The kind of the file: a release file or documentation.
    pub role: FileRole,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The versions of Python that it supports, if it says.
    pub requires_python: Option<&'text str>,
    /// The digest of the `METADATA` in it, if that is stored as a blob.
    pub core_metadata: Option<Digest>,
    /// The digest of its provenance, if it came with attestations and that is stored as a blob.
    pub provenance: Option<Digest>,
    /// Whether the attestations in it were verified to be signed by `publisher`.
    pub is_attested: bool,
    /// The digest of the release's metadata as JSON: what this snapshot knows of it, merged with what came with this
    /// file. `None` leaves the metadata as it is; the release must be registered then.
    pub metadata: Option<Digest>,
    /// The uploader; `None` for an anonymous one.
    pub who: Option<&'text UserName>,
    /// The job of a CI system that uploads it.
    pub publisher: Option<&'text CiIdentity>,
    /// The current time.
    pub at: Timestamp,
    /// The history of a file that comes from another index, oldest first. If it is empty, the history is this upload
    /// alone.
    pub log: &'text [LogEntry],
}

impl FileUpload<'_> {
    /// Whether `known` is this file of this release.
    fn is(&self, known: &ReleaseFile) -> bool {
        *known.digest() == self.digest
            && known.role() == self.role
            && known.version() == self.version.as_str()
    }
}

/// Adds a file to a release and registers the release if necessary. In a volatile stage it replaces another file of
/// that name, whose URL is then answered with "gone".
///
/// [`Decision::AlreadyThere`]: the stage has exactly this file.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::FileExists`],
/// [`ChangeError::NotRegistered`].
pub fn file(snapshot: &Snapshot, upload: &FileUpload<'_>) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, upload.stage)?;
    let (project, version) = (upload.project, upload.version.as_str());
    let filename = upload.filename.as_str();
    let trace = stage.project_trace(project.as_str());
    let release = trace.and_then(|it| it.release(version));
    let metadata = match (upload.metadata, release) {
        (Some(metadata), _) => metadata,
        (None, Some(release)) => release.metadata,
        (None, None) => {
            let (project, version) = (project.clone(), version.to_owned());
            return Err(ChangeError::NotRegistered { project, version });
        }
    };
    if is_kept(snapshot, upload)? {
        return Ok(Decision::AlreadyThere);
    }
    let known = trace.and_then(|it| it.file(filename));
    let is_same = known.is_some_and(|known| upload.is(known));
    let mut draft = Draft::default();
    draft.check_stage(stage);
    let yanked = release.and_then(|release| release.yanked());
    draft.put_version(stage, project, version, metadata, yanked);
    let mut next = FileParts {
        filename,
        version,
        digest: upload.digest,
        size_bytes: upload.size_bytes,
        uploaded_at_microseconds: upload.at.as_microsecond(),
        serial: Default::default(),
        origin: Arc::new(Origin {
            requires_python: upload.requires_python.map(Into::into),
            uploader: upload.who.cloned(),
        }),
        core_metadata: upload.core_metadata,
        rare: RareFields::default(),
        role: upload.role,
    };
    let finish =
        |parts| ReleaseFile::new(parts).expect("the texts of checked names are short enough");
    let attested_by =
        upload.publisher.filter(|_| upload.is_attested && upload.provenance.is_some());
    let attested_by: Option<Box<str>> = attested_by.map(|identity| identity.name().into());
    let mut rare = RareFields {
        provenance: upload.provenance,
        attested_by: attested_by.clone(),
        publisher: upload.publisher.map(|identity| identity.name().into()),
        ..RareFields::default()
    };
    match known {
        Some(known) if is_same => {
            // Only the description of the file may differ; the upload itself stays what it was.
            next.uploaded_at_microseconds = known.uploaded_at_microseconds();
            Arc::make_mut(&mut next.origin).uploader = known.uploader().cloned();
            let mut rare = known.rare().cloned().unwrap_or_default();
            // Attestations may come later; those that are there are lost only with the file.
            if upload.provenance.is_some_and(|brought| rare.provenance != Some(brought)) {
                (rare.provenance, rare.attested_by) = (upload.provenance, attested_by);
            }
            next.rare = rare;
            next.serial = known.serial();
            let next = finish(next);
            if next != *known {
                draft.put_file(stage, project, &next);
            }
            return Ok(match draft.is_empty() {
                true => Decision::AlreadyThere,
                false => Decision::Commit(draft.finish()),
            });
        }
        Some(known) => {
            let count = overwrites(&known.log(stage.name())) + 1;
            let upload_entry = LogEntry::Upload {
                who: upload.who.cloned(),
                at: upload.at,
                target: upload.stage.clone(),
            };
            let own = if upload.log.is_empty() { &[upload_entry][..] } else { upload.log };
            let overwrite = [LogEntry::Overwrite { at: upload.at, count }];
            rare.log = Some(overwrite.iter().chain(own).cloned().collect());
            rare.gone = gone_after(known, Some(Directory::of(&upload.digest))).into();
            draft.remove_tox_results(stage, project, filename);
        }
        None => {
            let gone = trace.and_then(|it| it.gone(filename));
            let gone = gone.map(|gone| gone.directories.to_vec()).unwrap_or_default();
            rare.gone = without(gone, Some(Directory::of(&upload.digest))).into();
        }
    }
    if rare.log.is_none() && !upload.log.is_empty() {
        rare.log = Some(upload.log.into());
    }
    next.rare = rare;
    draft.put_file(stage, project, &finish(next));
    Ok(Decision::Commit(draft.finish()))
}

/// Whether the stage has exactly this file already and keeps it: then the upload changes nothing. This does not depend on
/// [`FileUpload::metadata`], so it can be asked before that is stored.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`]; [`ChangeError::FileExists`] if the stage keeps another file of that
/// name.
pub fn is_kept(snapshot: &Snapshot, upload: &FileUpload<'_>) -> Result<bool, ChangeError> {
    let stage = writable(snapshot, upload.stage)?;
    let filename = upload.filename.as_str();
    let trace = stage.project_trace(upload.project.as_str());
    match trace.and_then(|it| it.file(filename)).filter(|_| !stage.config().volatile) {
        None => Ok(false),
        Some(known) if upload.is(known) => Ok(true),
        Some(_) => Err(ChangeError::FileExists { filename: filename.to_owned() }),
    }
}

/// Whether the upload would replace the contents of an existing file, what pages say of it, or its provenance by another one:
/// that needs more rights than adding a file. A provenance may be added.
pub fn replaces(snapshot: &Snapshot, upload: &FileUpload<'_>) -> bool {
    let stage = snapshot.stage(upload.stage.as_str());
    let project = stage.and_then(|stage| stage.project_trace(upload.project.as_str()));
    let known = project.and_then(|project| project.file(upload.filename.as_str()));
    known.is_some_and(|known| {
        let has_other = |provenance| known.provenance().is_some_and(|known| *known != provenance);
        *known.digest() != upload.digest
            || known.role() != upload.role
            // For files other than wheels, only the form says it; a form with another value would hide the file from installers.
            || (upload.core_metadata.is_none()
                && known.requires_python() != upload.requires_python)
            || known.core_metadata().is_some_and(|known| Some(known) != upload.core_metadata)
            || upload.provenance.is_some_and(has_other)
    })
}

/// How often a file has been overwritten, according to its log.
pub(super) fn overwrites(log: &[LogEntry]) -> u32 {
    let counts = log.iter().map(|entry| match entry {
        LogEntry::Overwrite { count, .. } => *count,
        _ => 0,
    });
    counts.fold(0, u32::saturating_add)
}

/// Registers a release, or replaces the metadata of a registered one.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`].
pub fn submit(
    snapshot: &Snapshot,
    stage: &StageName,
    project: &ProjectName,
    version: &Version,
    metadata: Digest,
) -> Result<Decision, ChangeError> {
    let stage = writable(snapshot, stage)?;
    let trace = stage.project_trace(project.as_str());
    let release = trace.and_then(|it| it.release(version.as_str()));
    let yanked = release.and_then(|release| release.yanked());
    let mut draft = Draft::default();
    draft.check_stage(stage);
    draft.put_version(stage, project, version.as_str(), metadata, yanked);
    Ok(match draft.is_empty() {
        true => Decision::AlreadyThere,
        false => Decision::Commit(draft.finish()),
    })
}

/// Most test results of one project. Beyond this the oldest are removed, strangers' first.
pub(crate) const TOX_RESULTS_MAX: usize = 500;
/// Most bytes in the test results of one project. Beyond this the oldest are removed, strangers' first.
pub(crate) const TOX_RESULT_BYTES_MAX: u64 = 256 << 20;

/// Most test results of one project that strangers may add; beyond this they cannot add any. Their results do not
/// replace each other, as each that is removed would leave a trace.
pub const STRANGERS_TOX_RESULTS_MAX: usize = 100;
/// Most bytes in the test results of one project that strangers may add; beyond this they cannot add any.
pub(crate) const STRANGERS_TOX_RESULT_BYTES_MAX: u64 = 32 << 20;

/// The upload of a test result whose bytes are stored already.
#[derive(Clone, Copy, Debug)]
pub struct ToxUpload<'text> {
    /// The stage that gets the result.
    pub stage: &'text StageName,
    /// The directory of the tested file below `+f/`.
    pub directory: Directory,
    /// The tested file's name.
    pub filename: &'text str,
    /// The name of the result at its origin: the tested file's name, `.toxresult`, and letters, digits and `-`. If
    /// this is `None`, has another form, or is taken, the result gets a new name.
    pub name: Option<&'text str>,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Number of bytes.
    pub size_bytes: u64,
    /// The uploader; `None` for an anonymous one.
    pub who: Option<&'text UserName>,
    /// The current time.
    pub at: Timestamp,
    /// The history of the result, oldest first. If it is empty, the history is this upload alone.
    pub log: &'text [LogEntry],
    /// Whether the bounds on test results apply; an import of a whole index keeps all results.
    pub is_bounded: bool,
}

/// Adds a test result to a release file, and returns its path below the root: `user/index/+f/…`.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::NoReleaseFile`],
/// [`ChangeError::TestResultsFull`].
pub fn tox_result(
    snapshot: &Snapshot,
    upload: &ToxUpload<'_>,
) -> Result<(Batch, String), ChangeError> {
    let stage = writable(snapshot, upload.stage)?;
    let (tested, project) = match stage.file(upload.directory, upload.filename) {
        FileLookup::Found { file, project, .. } if file.role() == FileRole::Release => {
            (file, project)
        }
        _ => {
            let path = format!("{}/+f/{}/{}", upload.stage, upload.directory, upload.filename);
            return Err(ChangeError::NoReleaseFile { path });
        }
    };
    let trace = stage.project_trace(project.as_str());
    let known_count = trace.map_or(0, |it| it.tox_results_of(upload.filename).count());
    let time = upload.at.strftime("%Y%m%d%H%M%S");
    // No name is used twice, not even that of a removed result.
    let is_free =
        |name: &str| trace.is_none_or(|it| it.file(name).is_none() && it.gone(name).is_none());
    let brought = upload.name.filter(|name| {
        let rest = name.strip_prefix(upload.filename).and_then(|it| it.strip_prefix(".toxresult"));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        rest.is_some_and(|rest| rest.len() <= 64 && rest.bytes().all(is_plain)) && is_free(name)
    });
    let made = || {
        let mut names =
            (known_count..).map(|it| format!("{}.toxresult-{time}-{it}", upload.filename));
        names.find(|name| is_free(name)).unwrap_or_default()
    };
    let filename = brought.map_or_else(made, str::to_owned);
    let rare = RareFields {
        for_file: Some(upload.filename.into()),
        directory: Some(tested.directory()),
        log: (!upload.log.is_empty()).then(|| upload.log.into()),
        ..RareFields::default()
    };
    let result = ReleaseFile::new(FileParts {
        filename: &filename,
        version: tested.version(),
        digest: upload.digest,
        size_bytes: upload.size_bytes,
        uploaded_at_microseconds: upload.at.as_microsecond(),
        serial: Default::default(),
        origin: Arc::new(Origin { requires_python: None, uploader: upload.who.cloned() }),
        core_metadata: None,
        rare,
        role: FileRole::ToxResult,
    })
    .expect("names of a key, and a version that was stored, are short enough");
    let mut draft = Draft::default();
    draft.check_stage(stage);
    if upload.is_bounded {
        let known = trace.map_or(&[][..], |it| it.files()).iter();
        let known = known.filter(|file| file.role() == FileRole::ToxResult);
        let known: Vec<&ReleaseFile> = known.collect();
        let too_many = match upload.who {
            Some(_) => oldest_beyond_bounds(known, upload.size_bytes),
            None => {
                check_strangers(&project, &known, upload.size_bytes)?;
                Vec::new()
            }
        };
        for file in too_many {
            draft.remove_file(stage, &project, file);
        }
    }
    let tested_key = file_key(stage.name(), &project, upload.filename);
    draft.check(tested_key, Expected::At(tested.serial()));
    draft.put_file(stage, &project, &result);
    Ok((draft.finish(), format!("{}/{}", upload.stage, result.path())))
}

/// The results that must be removed to make room for one of `size_bytes`.
fn oldest_beyond_bounds(mut known: Vec<&ReleaseFile>, size_bytes: u64) -> Vec<&ReleaseFile> {
    known.sort_by_key(|file| (file.uploader().is_some(), file.uploaded_at(), file.serial()));
    let (mut count, mut bytes) = (known.len() + 1, size_bytes);
    bytes += known.iter().map(|file| file.size_bytes()).sum::<u64>();
    let goes = |file: &&ReleaseFile| {
        let is_beyond = count > TOX_RESULTS_MAX || bytes > TOX_RESULT_BYTES_MAX;
        count -= 1;
        bytes -= file.size_bytes();
        is_beyond
    };
    known.into_iter().take_while(goes).collect()
}

/// Checks that a stranger may add a result of `size_bytes`.
fn check_strangers(
    project: &ProjectName,
    known: &[&ReleaseFile],
    size_bytes: u64,
) -> Result<(), ChangeError> {
    let theirs = known.iter().filter(|file| file.uploader().is_none());
    let (count, bytes) =
        theirs.fold((0, size_bytes), |(count, bytes), file| (count + 1, bytes + file.size_bytes()));
    if count >= STRANGERS_TOX_RESULTS_MAX || bytes > STRANGERS_TOX_RESULT_BYTES_MAX {
        return Err(ChangeError::TestResultsFull(project.clone()));
    }
    Ok(())
}
