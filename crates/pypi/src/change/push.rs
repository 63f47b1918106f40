//! Pushing a release from one stage to another: files, metadata, test results, documentation and logs.

use account::UserName;
use jiff::Timestamp;
use record::{Batch, Expected};
use serde_json::{Map, Value};

use super::draft::{Draft, gone_after, without, writable};
use super::upload::overwrites;
use crate::record::{file_key, version_key};
use crate::release_file::Rare;
use crate::{
    ChangeError, FileRole, LogEntry, Project, ProjectName, Release, ReleaseFile, Snapshot, Stage,
    StageName,
};

/// What the body of a push asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushOrder {
    /// The project, as given.
    pub name: String,
    /// The version.
    pub version: String,
    /// Where to.
    pub target: PushTarget,
}

/// Where a push goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushTarget {
    /// To another stage.
    Stage {
        /// Which.
        stage: StageName,
        /// What of the release.
        content: PushContent,
    },
    /// To another index, by its upload API.
    External {
        /// Where to post to.
        url: String,
        /// With which user name.
        username: String,
        /// With which password.
        password: String,
        /// Whether the release is registered first.
        register_project: bool,
    },
}

/// What of a release is pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushContent {
    /// All of it.
    #[default]
    Everything,
    /// All but the documentation.
    NoDocs,
    /// The documentation alone.
    OnlyDocs,
}

/// A body that asks for nothing that can be done; devpi's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushOrderError {
    /// Not an object.
    #[error("a push is a JSON object with name, version and targetindex or posturl")]
    Shape,
    /// Name or version are missing, so nothing can be found.
    #[error("there are no files for {name} {version} on stage {stage}")]
    NoRelease {
        /// As given.
        name: String,
        /// As given.
        version: String,
        /// Where it was to be pushed from.
        stage: StageName,
    },
    /// Both.
    #[error("can't use 'no_docs' and 'only_docs' together")]
    Docs,
    /// Members that are not known, with commas between.
    #[error("unknown additional options: {0}")]
    Unknown(String),
    /// The target is no stage's name.
    #[error("targetindex not in format user/index")]
    Target,
    /// A member has another type.
    #[error("'{0}' in a push was expected to be a text")]
    NotText(&'static str),
}

impl PushOrder {
    /// Reads the body of a push from `source`.
    ///
    /// # Errors
    /// [`PushOrderError`], by what is wrong.
    pub fn parse(json: &Value, source: &StageName) -> Result<PushOrder, PushOrderError> {
        let mut object = json.as_object().cloned().ok_or(PushOrderError::Shape)?;
        let name = take_text(&mut object, "name")?.unwrap_or_default();
        let version = take_text(&mut object, "version")?.unwrap_or_default();
        if name.is_empty() || version.is_empty() {
            let stage = source.clone();
            return Err(PushOrderError::NoRelease { name, version, stage });
        }
        let target = match take_text(&mut object, "targetindex")? {
            Some(target) => {
                let no_docs = take_flag(&mut object, "no_docs");
                let only_docs = take_flag(&mut object, "only_docs");
                let content = match (no_docs, only_docs) {
                    (true, true) => return Err(PushOrderError::Docs),
                    (true, false) => PushContent::NoDocs,
                    (false, true) => PushContent::OnlyDocs,
                    (false, false) => PushContent::Everything,
                };
                let stage = target.parse().map_err(|_| PushOrderError::Target)?;
                PushTarget::Stage { stage, content }
            }
            None => PushTarget::External {
                url: take_text(&mut object, "posturl")?.ok_or(PushOrderError::Target)?,
                username: take_text(&mut object, "username")?.unwrap_or_default(),
                password: take_text(&mut object, "password")?.unwrap_or_default(),
                register_project: take_flag(&mut object, "register_project"),
            },
        };
        if !object.is_empty() {
            let unknown: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(PushOrderError::Unknown(unknown.join(", ")));
        }
        Ok(PushOrder { name, version, target })
    }
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

/// devpi asks Python whether the value is true.
fn take_flag(object: &mut Map<String, Value>, key: &str) -> bool {
    match object.remove(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(_) => true,
    }
}

/// A push to another stage.
#[derive(Clone, Copy, Debug)]
pub struct Push<'text> {
    /// From where; its bases do not count.
    pub source: &'text StageName,
    /// To where.
    pub target: &'text StageName,
    /// The project, as given: it is said so in the actions.
    pub name: &'text str,
    /// The version.
    pub version: &'text str,
    /// What of the release.
    pub content: PushContent,
    /// By whom; none: anonymously.
    pub who: Option<&'text UserName>,
    /// When: now.
    pub at: Timestamp,
}

/// What a push does, in the order in which it says so; each succeeds, or none of it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushAction {
    /// The release was registered.
    Register {
        /// The project, as given.
        name: String,
        /// The version.
        version: String,
        /// Where to.
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
        /// Where to.
        target: StageName,
    },
}

/// Pushes a release, and tells what was done. What is at the target already, byte for byte, stays as it
/// is there, and is told all the same; no batch if that is all of it. Of a release that a stage which keeps what
/// it has knows already, metadata and yank stay as well.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::Mirror`]; [`ChangeError::NothingToPush`],
/// [`ChangeError::NoFilesToPush`]; [`ChangeError::FileExists`] if the target keeps another file.
pub fn push(
    snapshot: &Snapshot,
    push: &Push<'_>,
) -> Result<(Option<Batch>, Vec<PushAction>), ChangeError> {
    let (name, version) = (push.name.to_owned(), push.version.to_owned());
    let source = writable(snapshot, push.source)?;
    let nothing = || ChangeError::NothingToPush {
        project: name.clone(),
        version: version.clone(),
        stage: push.source.clone(),
    };
    let project_name = ProjectName::normalize(push.name).map_err(|_| nothing())?;
    let project = source.project(project_name.as_str()).ok_or_else(nothing)?;
    let release = project.release(push.version).ok_or_else(nothing)?;
    let target = writable(snapshot, push.target)?;
    let pushed = pushed_files(project, push);
    if pushed.is_empty() {
        let (project, version) = (name.clone(), version.clone());
        return Err(ChangeError::NoFilesToPush { project, version });
    }
    let mut draft = Draft::default();
    draft.check_stage(source);
    draft.check_stage(target);
    // What is pushed must still be there: its bytes live as long as the records that name them.
    let source_key = version_key(source.name(), &project_name, push.version);
    draft.check(source_key, Expected::At(release.serial));
    put_release(&mut draft, target, &project_name, release);
    let register = PushAction::Register {
        name: name.clone(),
        version: version.clone(),
        target: push.target.clone(),
    };
    let mut actions = vec![register];
    for file in pushed {
        let key = file_key(source.name(), &project_name, file.filename());
        draft.check(key, Expected::At(file.serial));
        put(&mut draft, target, &project_name, file, push)?;
        let path = format!("{}/{}", push.target, file.path());
        actions.push(match file.role {
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

/// What is pushed: each release file with its test results, then the documentation.
fn pushed_files<'project>(
    project: &'project Project,
    push: &Push<'_>,
) -> Vec<&'project ReleaseFile> {
    let mut pushed: Vec<&ReleaseFile> = Vec::new();
    if push.content != PushContent::OnlyDocs {
        let files = project.files_of(push.version);
        for file in files.filter(|file| file.role == FileRole::Release) {
            pushed.push(file);
            pushed.extend(project.tox_results_of(file.filename()).map(|it| &**it));
        }
    }
    if push.content != PushContent::NoDocs {
        let files = project.files_of(push.version);
        pushed.extend(files.filter(|file| file.role == FileRole::Docs).map(|it| &**it));
    }
    pushed
}

/// Registers the release at the target. Of one that is there already, a stage that keeps what it has keeps what is
/// known of it, too; and in no stage does a push take back a yank, which somebody pronounced there.
fn put_release(draft: &mut Draft, target: &Stage, project: &ProjectName, release: &Release) {
    let trace = target.project_trace(project.as_str());
    let known = trace.and_then(|it| it.release(&release.version));
    let (metadata, yanked) = match known {
        Some(known) if !target.config().volatile => (known.metadata, known.yanked.as_deref()),
        Some(known) => (release.metadata, known.yanked.as_deref().or(release.yanked.as_deref())),
        None => (release.metadata, release.yanked.as_deref()),
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
    if known.is_some_and(|it| it.digest == file.digest && it.role == file.role) {
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
    let rare = Rare {
        log: Some(log.into()),
        gone: gone.into(),
        ..file.rare.as_deref().cloned().unwrap_or_default()
    };
    let next = ReleaseFile {
        uploaded_at_microseconds: push.at.as_microsecond(),
        uploader: push.who.cloned(),
        rare: Some(Box::new(rare)),
        ..file.clone()
    };
    draft.put_file(target, project, &next);
    Ok(())
}
