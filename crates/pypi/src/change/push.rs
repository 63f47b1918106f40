//! Pushing a release from one stage to another: files, metadata, test results, documentation and logs.

use std::sync::Arc;

use account::UserName;
use jiff::Timestamp;
use record::{Batch, Digest, Expected};
use serde_json::{Map, Value};

use super::draft::{Draft, gone_after, without, writable};
use super::upload::overwrites;
use crate::record::{file_key, version_key};
use crate::release_file::{FileParts, Origin, RareFields};
use crate::{
    ChangeError, FileRefusal, FileRole, Filename, Judge, LogEntry, Project, ProjectName, Release,
    ReleaseFile, Snapshot, Stage, StageName,
};

/// A push: a release, and where it goes. What is wrong with the options counts once that release has been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushOrder {
    /// The project, as given.
    pub name: String,
    /// The version.
    pub version: String,
    /// Which parts of the release are pushed.
    pub content: Result<PushContent, PushOrderError>,
    /// Where they go.
    pub target: Result<PushTarget, PushOrderError>,
}

/// The target of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushTarget {
    /// Another stage of this server.
    Stage(StageName),
    /// Another server, by its upload API.
    External {
        /// The URL to post to.
        url: String,
        /// The user name for it.
        username: String,
        /// The password for it.
        password: String,
        /// Whether the release is registered first.
        register_project: bool,
    },
}

/// Which parts of a release are pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushContent {
    /// All parts.
    #[default]
    Everything,
    /// Everything but the documentation.
    NoDocs,
    /// Only the documentation.
    OnlyDocs,
}

/// Why the body of a push is refused, with devpi's messages where devpi has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushOrderError {
    /// The body is not an object.
    #[error("a push is a JSON object with name, version and targetindex or posturl")]
    Shape,
    /// Name or version is missing, so no release can be found.
    #[error("there are no files for {name} {version} on stage {stage}")]
    NoRelease {
        /// The name, as given.
        name: String,
        /// The version, as given.
        version: String,
        /// The stage to push from.
        stage: StageName,
    },
    /// Both `no_docs` and `only_docs` are set.
    #[error("can't use 'no_docs' and 'only_docs' together")]
    Docs,
    /// Unknown members, separated by commas.
    #[error("unknown additional options: {0}")]
    Unknown(String),
    /// The target is not the name of a stage.
    #[error("targetindex not in format user/index")]
    Target,
    /// A member is not a text.
    #[error("'{0}' in a push was expected to be a text")]
    NotText(&'static str),
}

impl PushOrder {
    /// Parses the body of a push from `source`.
    ///
    /// # Errors
    /// [`PushOrderError::Shape`]; [`PushOrderError::NotText`] and [`PushOrderError::NoRelease`] about the name and the version.
    pub fn parse(json: Value, source: &StageName) -> Result<PushOrder, PushOrderError> {
        let Value::Object(mut options) = json else { return Err(PushOrderError::Shape) };
        let name = take_text(&mut options, "name")?.unwrap_or_default();
        let version = take_text(&mut options, "version")?.unwrap_or_default();
        if name.is_empty() || version.is_empty() {
            let stage = source.clone();
            return Err(PushOrderError::NoRelease { name, version, stage });
        }
        let mut is_set = |key| options.remove(key).is_some_and(|value| is_true(&value));
        let content = match (is_set("no_docs"), is_set("only_docs")) {
            (true, true) => Err(PushOrderError::Docs),
            (true, false) => Ok(PushContent::NoDocs),
            (false, true) => Ok(PushContent::OnlyDocs),
            (false, false) => Ok(PushContent::Everything),
        };
        Ok(PushOrder { name, version, content, target: target_of(options) })
    }
}

/// The target that the other members of a body name.
fn target_of(mut options: Map<String, Value>) -> Result<PushTarget, PushOrderError> {
    let check_rest = |options: Map<String, Value>| {
        if options.is_empty() {
            return Ok(());
        }
        let unknown: Vec<&str> = options.keys().map(String::as_str).collect();
        Err(PushOrderError::Unknown(unknown.join(", ")))
    };
    if let Some(target) = take_text(&mut options, "targetindex")? {
        check_rest(options)?;
        let stage = target.parse().map_err(|_| PushOrderError::Target)?;
        return Ok(PushTarget::Stage(stage));
    }
    let target = PushTarget::External {
        url: take_text(&mut options, "posturl")?.ok_or(PushOrderError::Target)?,
        username: take_text(&mut options, "username")?.unwrap_or_default(),
        password: take_text(&mut options, "password")?.unwrap_or_default(),
        register_project: options.remove("register_project").is_some_and(|it| is_true(&it)),
    };
    check_rest(options)?;
    Ok(target)
}

fn take_text(
    object: &mut Map<String, Value>,
    key: &'static str,
) -> Result<Option<String>, PushOrderError> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(PushOrderError::NotText(key)),
    }
}

/// Whether Python treats the value as true, which is how devpi reads it.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) => true,
    }
}

/// The release to push, in the stage that has it; its bases are not searched.
#[derive(Clone, Copy, Debug)]
pub struct PushSource<'snapshot> {
    /// The stage.
    pub stage: &'snapshot Arc<Stage>,
    /// The project.
    pub project: &'snapshot Arc<Project>,
    /// The release.
    pub release: &'snapshot Release,
    project_name: &'snapshot ProjectName,
}

impl<'snapshot> PushSource<'snapshot> {
    /// The release of project `name` that `stage` has; name and version may be spelled in any way.
    ///
    /// # Errors
    /// [`ChangeError::NoStage`], [`ChangeError::Mirror`], [`ChangeError::NothingToPush`].
    pub fn find(
        snapshot: &'snapshot Snapshot,
        stage: &StageName,
        name: &str,
        version: &str,
    ) -> Result<PushSource<'snapshot>, ChangeError> {
        let source = writable(snapshot, stage)?;
        let found = ProjectName::normalize(name).ok().and_then(|normalized| {
            let (project_name, project) = source.project_entry(normalized.as_str())?;
            let release = project.release(project.version_meant(version)?)?;
            Some(PushSource { stage: source, project, release, project_name })
        });
        found.ok_or_else(|| ChangeError::NothingToPush {
            project: name.to_owned(),
            version: version.to_owned(),
            stage: stage.clone(),
        })
    }

    /// A release file to push that a download of the stage would refuse, and why: a push is no way around a policy.
    pub fn withheld(
        &self,
        content: PushContent,
        now: Timestamp,
    ) -> Option<(&'snapshot str, FileRefusal)> {
        if content == PushContent::OnlyDocs {
            return None;
        }
        let stage = self.stage.name();
        let judge = Judge::between(self.stage, self.stage, self.project_name, now);
        let files = self.project.files_of(&self.release.version);
        files.filter(|file| file.role() == FileRole::Release).find_map(|file| {
            let refused = match self.project.is_quarantined() {
                true => Some(FileRefusal::by_status(stage, self.project)),
                false => judge.as_ref().and_then(|judge| judge.refusal_of_own(stage, file)),
            };
            Some((file.filename(), refused?))
        })
    }

    /// The name of the project.
    pub fn project_name(&self) -> &'snapshot ProjectName {
        self.project_name
    }

    /// The release files among those to push.
    pub fn release_files(
        &self,
        content: PushContent,
    ) -> impl Iterator<Item = &'snapshot ReleaseFile> {
        let files = self.project.files_of(&self.release.version);
        files.filter(move |file| {
            content != PushContent::OnlyDocs && file.role() == FileRole::Release
        })
    }

    /// The files to push: each release file with its test results, then the documentation. Never empty.
    ///
    /// # Errors
    /// [`ChangeError::NoFilesToPush`], which names the project as `name`.
    pub fn files(
        &self,
        content: PushContent,
        name: &str,
    ) -> Result<Vec<&'snapshot ReleaseFile>, ChangeError> {
        let version = self.release.version.as_ref();
        let of = |role| self.project.files_of(version).filter(move |file| file.role() == role);
        let mut files: Vec<&ReleaseFile> = Vec::new();
        if content != PushContent::OnlyDocs {
            for file in of(FileRole::Release) {
                files.push(file);
                files.extend(self.project.tox_results_of(file.filename()));
            }
        }
        if content != PushContent::NoDocs {
            files.extend(of(FileRole::Docs));
        }
        if files.is_empty() {
            let (project, version) = (name.to_owned(), version.to_owned());
            return Err(ChangeError::NoFilesToPush { project, version });
        }
        Ok(files)
    }
}

/// A push to another stage.
#[derive(Clone, Copy, Debug)]
pub struct Push<'text> {
    /// The stage to push from; its bases are not searched.
    pub source: &'text StageName,
    /// The stage to push to.
    pub target: &'text StageName,
    /// The project, as given: the actions repeat it like this.
    pub name: &'text str,
    /// The version.
    pub version: &'text str,
    /// Which parts of the release are pushed.
    pub content: PushContent,
    /// The sender; `None` for an anonymous one.
    pub who: Option<&'text UserName>,
    /// The current time.
    pub at: Timestamp,
}

/// One action of a push, in the order in which they are reported; either all succeed, or none is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushAction {
    /// The release was registered.
    Register {
        /// The project, as given.
        name: String,
        /// The version.
        version: String,
        /// The stage that got it.
        target: StageName,
    },
    /// A release file was stored.
    File {
        /// Its path below the root.
        path: String,
    },
    /// A test result was stored.
    ToxResult {
        /// Its path below the root.
        path: String,
    },
    /// Documentation was stored.
    Docs {
        /// The project, as given.
        name: String,
        /// The version.
        version: String,
        /// The stage that got it.
        target: StageName,
    },
}

/// Pushes a release and returns the actions. A file that the target has already, byte for byte, stays as it is, and
/// its action is reported all the same; there is no batch if that is true of every file. If a target that is not
/// volatile has the release already, its metadata and its yank stay too.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`]; [`ChangeError::NothingToPush`],
/// [`ChangeError::NoFilesToPush`]; [`ChangeError::FileExists`] if the target has another file that it cannot replace.
pub fn push(
    snapshot: &Snapshot,
    push: &Push<'_>,
) -> Result<(Option<Batch>, Vec<PushAction>), ChangeError> {
    let (name, version) = (push.name.to_owned(), push.version.to_owned());
    let found = PushSource::find(snapshot, push.source, push.name, push.version)?;
    let pushed = found.files(push.content, push.name)?;
    let PushSource { stage: source, release, project_name, .. } = found;
    let target = writable(snapshot, push.target)?;
    let mut draft = Draft::default();
    draft.check_stage(source);
    draft.check_stage(target);
    // The source must still have the release: a blob exists only as long as a record names it.
    let source_key = version_key(source.name(), project_name, &release.version);
    draft.check(source_key, Expected::At(release.serial));
    put_release(&mut draft, target, project_name, release);
    let register = PushAction::Register {
        name: name.clone(),
        version: version.clone(),
        target: push.target.clone(),
    };
    let mut actions = vec![register];
    for file in pushed {
        let key = file_key(source.name(), project_name, file.filename());
        draft.check(key, Expected::At(file.serial()));
        put(&mut draft, target, project_name, file, push)?;
        let path = format!("{}/{}", push.target, file.path());
        actions.push(match file.role() {
            FileRole::Release => PushAction::File { path },
            FileRole::ToxResult => PushAction::ToxResult { path },
            FileRole::Docs => PushAction::Docs {
                name: name.clone(),
                version: version.clone(),
                target: push.target.clone(),
            },
        });
    }
    let batch = (!draft.is_empty()).then(|| draft.finish());
    Ok((batch, actions))
}

/// A release of an upstream that somebody pushes from a mirror into a stage.
#[derive(Clone, Copy, Debug)]
pub struct Approval<'text> {
    /// The push; its source is the mirror.
    pub push: Push<'text>,
    /// The project.
    pub project: &'text ProjectName,
    /// The digest of the release's metadata as JSON, which is stored.
    pub metadata: Digest,
    /// Why upstream has yanked the release, if it has.
    pub yanked: Option<&'text str>,
    /// Its files.
    pub files: &'text [ApprovedFile],
}

/// A file of an upstream, whose bytes are stored already.
#[derive(Clone, Debug)]
pub struct ApprovedFile {
    /// Its name.
    pub filename: Filename,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The versions of Python that it supports, if it says.
    pub requires_python: Option<Arc<str>>,
    /// The digest of the `METADATA` in it, if that is stored as a blob.
    pub core_metadata: Option<Digest>,
}

/// Pushes a release from a mirror, as [`push`] does from a stage.
///
/// # Errors
/// [`ChangeError::NoStage`]; [`ChangeError::Mirror`] if the target is one; [`ChangeError::FileExists`] if the target has another
/// file that it cannot replace.
pub fn approve(
    snapshot: &Snapshot,
    approval: &Approval<'_>,
) -> Result<(Option<Batch>, Vec<PushAction>), ChangeError> {
    let Approval { push, project, metadata, yanked, files } = *approval;
    let source = snapshot.stage_to_change(push.source)?;
    let target = writable(snapshot, push.target)?;
    let mut draft = Draft::default();
    // With it, the policy that the files were judged by.
    draft.check_stage(source);
    draft.check_stage(target);
    let release = Release {
        version: push.version.into(),
        metadata,
        yanked: yanked.map(|reason| Box::new(reason.into())),
        serial: Default::default(),
    };
    put_release(&mut draft, target, project, &release);
    let mut actions = vec![PushAction::Register {
        name: push.name.to_owned(),
        version: push.version.to_owned(),
        target: push.target.clone(),
    }];
    for approved in files {
        // Its history begins with the push.
        let rare = RareFields { log: Some(Box::default()), ..RareFields::default() };
        let file = ReleaseFile::new(FileParts {
            filename: approved.filename.as_str(),
            version: push.version,
            digest: approved.digest,
            size_bytes: approved.size_bytes,
            uploaded_at_microseconds: push.at.as_microsecond(),
            serial: Default::default(),
            origin: Arc::new(Origin {
                requires_python: approved.requires_python.as_deref().map(Into::into),
                uploader: None,
            }),
            core_metadata: approved.core_metadata,
            rare,
            role: FileRole::Release,
        })
        .expect("a version that was parsed is short enough");
        put(&mut draft, target, project, &file, &push)?;
        actions.push(PushAction::File { path: format!("{}/{}", push.target, file.path()) });
    }
    Ok(((!draft.is_empty()).then(|| draft.finish()), actions))
}

/// The name of a file at the target whose contents the approval would replace, if there is one.
pub fn replaced_by_approval(snapshot: &Snapshot, approval: &Approval<'_>) -> Option<String> {
    let target = snapshot.stage(approval.push.target.as_str())?;
    let target = target.project_trace(approval.project.as_str())?;
    let is_replaced = |file: &&ApprovedFile| {
        target.file(file.filename.as_str()).is_some_and(|known| *known.digest() != file.digest)
    };
    approval.files.iter().find(is_replaced).map(|file| file.filename.to_string())
}

/// The name of a file at the target whose contents the push would replace, if there is one.
pub fn replaced(snapshot: &Snapshot, push: &Push<'_>) -> Option<String> {
    let found = PushSource::find(snapshot, push.source, push.name, push.version).ok()?;
    let target =
        snapshot.stage(push.target.as_str())?.project_trace(found.project_name.as_str())?;
    let is_replaced = |file: &&ReleaseFile| {
        let known = target.file(file.filename());
        known.is_some_and(|known| known.digest() != file.digest() || known.role() != file.role())
    };
    let files = found.files(push.content, push.name).ok()?;
    Some(files.into_iter().find(is_replaced)?.filename().to_owned())
}

/// Registers the release at the target. If a target that is not volatile has it already, its metadata stays. A push
/// never takes back a yank: somebody has yanked the release there on purpose.
fn put_release(draft: &mut Draft, target: &Stage, project: &ProjectName, release: &Release) {
    let trace = target.project_trace(project.as_str());
    let known = trace.and_then(|it| it.release(&release.version));
    let (metadata, yanked) = match known {
        Some(known) if !target.config().volatile => (known.metadata, known.yanked()),
        Some(known) => (release.metadata, known.yanked().or(release.yanked())),
        None => (release.metadata, release.yanked()),
    };
    draft.put_version(target, project, &release.version, metadata, yanked);
}

fn put(
    draft: &mut Draft,
    target: &Stage,
    project: &ProjectName,
    file: &ReleaseFile,
    push: &Push<'_>,
) -> Result<(), ChangeError> {
    let trace = target.project_trace(project.as_str());
    let known = trace.and_then(|it| it.file(file.filename()));
    if known.is_some_and(|it| it.digest() == file.digest() && it.role() == file.role()) {
        return Ok(());
    }
    if known.is_some() && !target.config().volatile {
        return Err(ChangeError::FileExists { filename: file.filename().to_owned() });
    }
    let mut log = Vec::new();
    let mut gone = Vec::new();
    if let Some(known) = known {
        let count = overwrites(&known.log(target.name())) + 1;
        log.push(LogEntry::Overwrite { at: push.at, count });
        gone = gone_after(known, Some(file.directory()));
        draft.remove_tox_results(target, project, file.filename());
    } else if let Some(known) = trace.and_then(|it| it.gone(file.filename())) {
        gone = without(known.directories.to_vec(), Some(file.directory()));
    }
    let before = file.log(push.source).into_iter();
    log.extend(before.filter(|entry| !matches!(entry, LogEntry::Overwrite { .. })));
    log.push(LogEntry::Push {
        who: push.who.cloned(),
        at: push.at,
        source: push.source.clone(),
        target: push.target.clone(),
    });
    let rare = RareFields {
        log: Some(log.into()),
        gone: gone.into(),
        publisher: None,
        ..file.rare().cloned().unwrap_or_default()
    };
    let next = file.with(|parts| {
        parts.uploaded_at_microseconds = push.at.as_microsecond();
        Arc::make_mut(&mut parts.origin).uploader = push.who.cloned();
        parts.rare = rare;
    });
    draft.put_file(target, project, &next);
    Ok(())
}
