//! The stored form of stages, projects, releases and files: compact JSON with its version, `"v": 1`.
//!
//! | key | body |
//! | --- | --- |
//! | `python/stage/{user}/{index}` | its configuration |
//! | `python/project/{user}/{index}/{project}` | its status; absent for most |
//! | `python/version/{user}/{index}/{project}/{version}` | names the JSON of its metadata; yanked |
//! | `python/file/{user}/{index}/{project}/{filename}` | a file, or where files of that name lay |
//!
//! A removed file leaves a record with the directories that it was in, so that its URL is answered with "gone" and
//! not with "not found". A removed stage leaves nothing.

use std::sync::Arc;

use account::UserName;
use bytes::Bytes;
use jiff::Timestamp;
use record::{Digest, Key, Serial, UnreadableReason, check_form, read_body, write_body};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::project::{RemovedName, StoredStatus};
use crate::release_file::{Directory, FileParts, Origin, RareFields};
use crate::{
    ConfigError, FileRole, LogEntry, ProjectName, ProjectStatus, Release, ReleaseFile, StageConfig,
    StageName, StatusMarker,
};

/// The first segment of the keys of this surface.
pub const KIND: &str = "python";

/// The form of the record bodies that this version writes; it reads no other.
const FORM: u32 = 1;

/// The kind and the names in a key; texts are borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'key> {
    Stage { stage: &'key str },
    Project { stage: &'key str, project: &'key str },
    Version { stage: &'key str, project: &'key str, version: &'key str },
    File { stage: &'key str, project: &'key str, filename: &'key str },
}

/// The key of a stage's configuration.
pub fn stage_key(stage: &StageName) -> Key {
    key("stage", &[stage.as_str()])
}

/// The stage whose configuration has this key; `None` for any other key.
pub fn stage_of_key(key: &Key) -> Option<&str> {
    match Subject::of(key)? {
        Ok(Subject::Stage { stage }) => Some(stage),
        _ => None,
    }
}

pub(crate) fn project_key(stage: &StageName, project: &ProjectName) -> Key {
    key("project", &[stage.as_str(), project.as_str()])
}

pub(crate) fn version_key(stage: &StageName, project: &ProjectName, version: &str) -> Key {
    key("version", &[stage.as_str(), project.as_str(), version])
}

pub(crate) fn file_key(stage: &StageName, project: &ProjectName, filename: &str) -> Key {
    key("file", &[stage.as_str(), project.as_str(), filename])
}

fn key(kind: &str, segments: &[&str]) -> Key {
    let text = format!("{KIND}/{kind}/{}", segments.join("/"));
    Key::new(&text).expect("names are checked: at most 800 bytes without control characters")
}

impl<'key> Subject<'key> {
    /// The stage.
    pub(crate) fn stage(&self) -> &'key str {
        match self {
            Subject::Stage { stage }
            | Subject::Project { stage, .. }
            | Subject::Version { stage, .. }
            | Subject::File { stage, .. } => stage,
        }
    }
}

impl Subject<'_> {
    /// Parses a key; `None` if it belongs to another surface.
    pub(crate) fn of(key: &Key) -> Option<Result<Subject<'_>, UnreadableReason>> {
        let rest = key.after(KIND)?;
        Some(Subject::parse(rest).ok_or(UnreadableReason::Key))
    }

    fn parse(rest: &str) -> Option<Subject<'_>> {
        let (kind, rest) = rest.split_once('/')?;
        let slash = rest.find('/')?;
        let end = rest[slash + 1..].find('/').map_or(rest.len(), |at| slash + 1 + at);
        let stage = &rest[..end];
        let inner = rest[end..].strip_prefix('/');
        match kind {
            "stage" => inner.is_none().then_some(Subject::Stage { stage }),
            "project" => {
                let project = inner.filter(|inner| !inner.contains('/'))?;
                Some(Subject::Project { stage, project })
            }
            "version" | "file" => {
                let (project, last) = inner?.split_once('/')?;
                if last.is_empty() || last.contains('/') {
                    return None;
                }
                Some(match kind {
                    "version" => Subject::Version { stage, project, version: last },
                    _ => Subject::File { stage, project, filename: last },
                })
            }
            _ => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WireStage {
    v: u32,
    config: Value,
}

pub(crate) fn read_stage(name: &StageName, body: &[u8]) -> Result<StageConfig, UnreadableReason> {
    let wire: WireStage = read_body(body, FORM)?;
    check_form(wire.v, FORM)?;
    StageConfig::from_stored(name, &wire.config).map_err(|_| UnreadableReason::Member("config"))
}

/// The body of a stage's record. It is parsed again at once: a record that cannot be read would be the end of its
/// stage.
pub(crate) fn write_stage(name: &StageName, config: &StageConfig) -> Result<Bytes, ConfigError> {
    let body = |config: Value| write_body(&WireStage { v: FORM, config });
    let stored = config.to_stored();
    let whole = body(stored.clone());
    let Err(reason) = read_stage(name, &whole) else { return Ok(whole) };
    let type_ = stored["type"].clone();
    let is_at_fault = |(key, value): &(&String, &Value)| {
        let alone = body(json!({"type": type_, *key: value}));
        read_stage(name, &alone).is_err()
    };
    let fault = stored.as_object().and_then(|settings| settings.iter().find(is_at_fault));
    let key = fault.map_or_else(String::new, |(key, _)| key.clone());
    Err(ConfigError::NotReadBack { key, reason: reason.to_string() })
}

#[derive(Serialize, Deserialize)]
struct WireProject {
    v: u32,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Box<str>>,
    /// Whether the stage keeps the name without any content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
}

pub(crate) fn read_project(serial: Serial, body: &[u8]) -> Result<StoredStatus, UnreadableReason> {
    let wire: WireProject = read_body(body, FORM)?;
    check_form(wire.v, FORM)?;
    let marker = StatusMarker::parse(&wire.status).ok_or(UnreadableReason::Member("status"))?;
    // Without a status, a held name is written as active.
    let is_set = !wire.held || marker != StatusMarker::Active || wire.reason.is_some();
    let status = is_set.then_some(ProjectStatus { marker, reason: wire.reason });
    Ok(StoredStatus { status, is_held: wire.held, serial })
}

/// The body of a project's own record; `None` if it would say nothing.
pub(crate) fn write_project(status: Option<&ProjectStatus>, held: bool) -> Option<Bytes> {
    if status.is_none() && !held {
        return None;
    }
    let ProjectStatus { marker, reason } = status.cloned().unwrap_or_default();
    Some(write_body(&WireProject { v: FORM, status: marker.as_str().to_owned(), reason, held }))
}

#[derive(Serialize, Deserialize)]
struct WireVersion {
    v: u32,
    metadata: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    yanked: Option<Box<str>>,
}

fn digest(text: &str, member: &'static str) -> Result<Digest, UnreadableReason> {
    text.parse().map_err(|_| UnreadableReason::Member(member))
}

pub(crate) fn read_version(
    version: &str,
    serial: Serial,
    body: &[u8],
) -> Result<Release, UnreadableReason> {
    let wire: WireVersion = read_body(body, FORM)?;
    check_form(wire.v, FORM)?;
    let metadata = digest(&wire.metadata, "metadata")?;
    Ok(Release { version: version.into(), metadata, yanked: wire.yanked.map(Box::new), serial })
}

/// The body of a release's record, and the blob that it refers to.
pub(crate) fn write_version(metadata: Digest, yanked: Option<&str>) -> (Bytes, Vec<Digest>) {
    let wire =
        WireVersion { v: FORM, metadata: metadata.to_string(), yanked: yanked.map(Into::into) };
    (write_body(&wire), vec![metadata])
}

/// The body of a file's record. Members with their usual value are left out. A name without a file has only the form
/// and `gone`.
#[derive(Default, Serialize, Deserialize)]
struct WireFile<'body> {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<WireKind>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    version: Option<std::borrow::Cow<'body, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    sha256: Option<std::borrow::Cow<'body, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uploaded_at_unix_microseconds: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    uploader: Option<std::borrow::Cow<'body, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    requires_python: Option<std::borrow::Cow<'body, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    core_metadata_sha256: Option<std::borrow::Cow<'body, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    provenance_sha256: Option<std::borrow::Cow<'body, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publisher: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attested_by: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    yanked: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_file: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<Vec<WireLog>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireKind {
    Release,
    Docs,
    ToxResult,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum WireLog {
    Upload { who: Option<String>, at: i64, target: String },
    Push { who: Option<String>, at: i64, source: String, target: String },
    Overwrite { at: i64, count: u32 },
}

/// The content of a record under a file's name.
pub(crate) enum StoredFile {
    Present(ReleaseFile),
    Gone(RemovedName),
}

/// What the files of one project have in common, which [`read_file`] shares.
pub(crate) struct SharedParts<'project> {
    pub(crate) files: &'project [ReleaseFile],
    /// The position of the file among the files, or where it would be inserted.
    pub(crate) at: usize,
}

impl SharedParts<'_> {
    /// The files next to it, which are likely to belong to the same release.
    fn neighbours(&self) -> impl Iterator<Item = &ReleaseFile> {
        let near = self.at.checked_sub(1).into_iter().chain([self.at, self.at + 1, 0]);
        near.filter_map(|at| self.files.get(at))
    }

    fn origin(
        &self,
        requires_python: Option<&str>,
        uploader: Option<&str>,
    ) -> Result<Arc<Origin>, UnreadableReason> {
        let is_same = |it: &&Arc<Origin>| {
            it.requires_python.as_deref() == requires_python
                && it.uploader.as_ref().map(UserName::as_str) == uploader
        };
        if let Some(origin) = self.neighbours().map(ReleaseFile::origin).find(is_same) {
            return Ok(origin.clone());
        }
        let mut names = self.neighbours().filter_map(|file| file.uploader());
        let uploader = uploader.map(|text| match names.find(|name| name.as_str() == text) {
            Some(name) => Ok(name.clone()),
            None => text.parse().map_err(|_| UnreadableReason::Member("uploader")),
        });
        let requires_python = requires_python.map(Into::into);
        Ok(Arc::new(Origin { requires_python, uploader: uploader.transpose()? }))
    }
}

fn time(microseconds: i64, member: &'static str) -> Result<Timestamp, UnreadableReason> {
    Timestamp::from_microsecond(microseconds).map_err(|_| UnreadableReason::Member(member))
}

fn read_log(wire: WireLog) -> Option<LogEntry> {
    let who = |who: Option<String>| who.map(|who| who.parse()).transpose().ok();
    let stage = |text: String| text.parse::<StageName>().ok();
    let at = |at: i64| Timestamp::from_microsecond(at).ok();
    Some(match wire {
        WireLog::Upload { who: by, at: when, target } => {
            LogEntry::Upload { who: who(by)?, at: at(when)?, target: stage(target)? }
        }
        WireLog::Push { who: by, at: when, source, target } => LogEntry::Push {
            who: who(by)?,
            at: at(when)?,
            source: stage(source)?,
            target: stage(target)?,
        },
        WireLog::Overwrite { at: when, count } => LogEntry::Overwrite { at: at(when)?, count },
    })
}

fn write_log(entry: &LogEntry) -> WireLog {
    let by = |who: &Option<UserName>| who.as_ref().map(|who| who.as_str().to_owned());
    match entry {
        LogEntry::Upload { who, at, target } => {
            WireLog::Upload { who: by(who), at: at.as_microsecond(), target: target.to_string() }
        }
        LogEntry::Push { who, at, source, target } => WireLog::Push {
            who: by(who),
            at: at.as_microsecond(),
            source: source.to_string(),
            target: target.to_string(),
        },
        LogEntry::Overwrite { at, count } => {
            WireLog::Overwrite { at: at.as_microsecond(), count: *count }
        }
    }
}

fn directories(gone: &[String]) -> Result<Box<[Directory]>, UnreadableReason> {
    let parsed = gone.iter().map(|text| Directory::parse_joined(text));
    parsed.collect::<Option<_>>().ok_or(UnreadableReason::Member("gone"))
}

pub(crate) fn read_file(
    filename: &str,
    serial: Serial,
    body: &[u8],
    shared: &SharedParts<'_>,
) -> Result<StoredFile, UnreadableReason> {
    let wire: WireFile<'_> = read_body(body, FORM)?;
    check_form(wire.v, FORM)?;
    let gone = directories(&wire.gone)?;
    let Some(sha256) = wire.sha256 else {
        return Ok(StoredFile::Gone(RemovedName {
            filename: filename.into(),
            serial,
            directories: gone,
        }));
    };
    let version = wire.version.ok_or(UnreadableReason::Member("version"))?;
    let microseconds = wire
        .uploaded_at_unix_microseconds
        .ok_or(UnreadableReason::Member("uploaded_at_unix_microseconds"))?;
    time(microseconds, "uploaded_at_unix_microseconds")?;
    let core_metadata = wire.core_metadata_sha256.as_deref();
    let core_metadata =
        core_metadata.map(|text| digest(text, "core_metadata_sha256")).transpose()?;
    let provenance = wire.provenance_sha256.as_deref();
    let provenance = provenance.map(|text| digest(text, "provenance_sha256")).transpose()?;
    let directory = match &wire.directory {
        Some(text) => {
            Some(Directory::parse_joined(text).ok_or(UnreadableReason::Member("directory"))?)
        }
        None => None,
    };
    let log = match wire.log {
        Some(log) => {
            let log: Option<Box<[LogEntry]>> = log.into_iter().map(read_log).collect();
            Some(log.ok_or(UnreadableReason::Member("log"))?)
        }
        None => None,
    };
    let rare = RareFields {
        yanked: wire.yanked,
        provenance,
        publisher: wire.publisher,
        attested_by: wire.attested_by,
        log,
        for_file: wire.for_file,
        directory,
        gone,
        ..RareFields::default()
    };
    let file = ReleaseFile::new(FileParts {
        filename,
        version: &version,
        digest: digest(&sha256, "sha256")?,
        size_bytes: wire.size_bytes.ok_or(UnreadableReason::Member("size_bytes"))?,
        uploaded_at_microseconds: microseconds,
        serial,
        origin: shared.origin(wire.requires_python.as_deref(), wire.uploader.as_deref())?,
        core_metadata,
        rare,
        role: match wire.kind {
            None | Some(WireKind::Release) => FileRole::Release,
            Some(WireKind::Docs) => FileRole::Docs,
            Some(WireKind::ToxResult) => FileRole::ToxResult,
        },
    });
    file.map(StoredFile::Present).ok_or(UnreadableReason::Member("version"))
}

/// The body of a file's record, and the blobs that it refers to.
pub(crate) fn write_file(file: &ReleaseFile) -> (Bytes, Vec<Digest>) {
    let rare = file.rare();
    let wire = WireFile {
        v: FORM,
        kind: match file.role() {
            FileRole::Release => None,
            FileRole::Docs => Some(WireKind::Docs),
            FileRole::ToxResult => Some(WireKind::ToxResult),
        },
        version: Some(file.version().into()),
        sha256: Some(file.digest().to_string().into()),
        size_bytes: Some(file.size_bytes()),
        uploaded_at_unix_microseconds: Some(file.uploaded_at_microseconds()),
        uploader: file.uploader().map(|name| name.as_str().into()),
        requires_python: file.requires_python().map(Into::into),
        core_metadata_sha256: file.core_metadata().map(|digest| digest.to_string().into()),
        provenance_sha256: file.provenance().map(|digest| digest.to_string().into()),
        publisher: file.publisher().map(Into::into),
        attested_by: file.attested_by().map(Into::into),
        yanked: rare.and_then(|rare| rare.yanked.clone()),
        for_file: rare.and_then(|rare| rare.for_file.clone()),
        directory: rare.and_then(|rare| rare.directory).map(Directory::joined),
        log: rare.and_then(|rare| rare.log.as_ref()).map(|log| log.iter().map(write_log).collect()),
        gone: file.gone().iter().map(|directory| directory.joined()).collect(),
    };
    let mut blobs = vec![*file.digest()];
    blobs.extend(file.core_metadata());
    blobs.extend(file.provenance());
    blobs.dedup();
    (write_body(&wire), blobs)
}

/// The body of the record that remembers the directories of a name's former files, after the last was removed.
pub(crate) fn write_gone(directories: &[Directory]) -> Bytes {
    let gone = directories.iter().map(|directory| directory.joined()).collect();
    write_body(&WireFile { v: FORM, gone, ..WireFile::default() })
}
