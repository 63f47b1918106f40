//! The releases and files of an export: [`items`] lists them, [`import`] imports them, and [`verify`] checks that the
//! store has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use account::UserName;
use anyhow::bail;
use bytes::Bytes;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use pypi::change::upload as change;
use pypi::{
    ClaimedDigests, Decision, FileKind, FileLookup, FileRole, Filename, FilenameError, LogEntry,
    Metadata, Project, ProjectName, ReleaseFile, StageName, Version, doc_filename,
};
use record::Digest;
use serde_json::{Map, Value, json};

use super::dump::{self, Dump};
use crate::import::intake::Intake;
use crate::import::progress::Progress;
use crate::import::report::{Report, Tally};
use crate::import::stored_blobs::{self, Look};
use crate::import::writer::{Plan, Writer};
use crate::import::{AT_ONCE_MAX, TOGETHER_MAX};
use crate::maintenance::counted;
use crate::release_metadata;
use crate::stored::Stored;

/// A release or a file that has to be imported.
pub(super) struct Item {
    /// Its name in the report.
    subject: String,
    stage: StageName,
    project: ProjectName,
    version: Version,
    what: What,
}

enum What {
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
enum Outcome {
    /// The digest of its bytes, and their number.
    Imported(Digest, u64),
    AlreadyThere(Digest),
    Conflict(String),
    Failed(String),
}

/// All items for the stages that exist now; for each stage releases first, then files, then test results.
pub(super) fn items(
    dump: &Dump,
    directory: &Path,
    is_mirrored_file_missed: bool,
    stored: &Stored,
    report: &mut Report,
) -> Vec<Item> {
    let mut items = Vec::new();
    for (name, index) in &dump.indexes {
        if index.indexconfig.is_mirror() {
            leave_out_mirrored(name, index, is_mirrored_file_missed, report);
            continue;
        }
        let stage: Option<StageName> = name.parse().ok();
        let known = stage.as_ref().and_then(|stage| stored.index.stage(stage.as_str()));
        let (Some(stage), Some(known)) = (stage, known) else {
            leave_out(index, report);
            let count = index.files.len();
            if count > 0 {
                let text = format!("its {count} files were not imported, since the index was not");
                report.fail(format_args!("index {name}"), text);
            }
            continue;
        };
        if known.config().is_mirror() {
            leave_out_mirrored(name, index, is_mirrored_file_missed, report);
            continue;
        }
        let of_stage = OfStage { stage, directory, requires_python: BTreeMap::new() };
        of_stage.items(index, &mut items, report);
    }
    items
}

/// Counts the contents of a mirror in the export, which are not imported, and reports their numbers.
fn leave_out_mirrored(name: &str, index: &dump::Index, is_missed: bool, report: &mut Report) {
    let subject = format!("index {name}");
    let text = "a mirror: not imported, since this version fetches nothing from an upstream; indexes based on it \
                come without it, and show their own projects only";
    report.note(&subject, text);
    let releases: u64 = index.projects.values().map(|versions| versions.0.len() as u64).sum();
    let files = index.files.len() as u64;
    report.mirrored.indexes += 1;
    report.mirrored.projects += index.projects.len() as u64;
    report.mirrored.releases += releases;
    report.mirrored.files += files;
    if releases == 0 && files == 0 {
        return;
    }
    let counts = format!("{} and {}", counted(releases, "release"), counted(files, "file"));
    if is_missed {
        leave_out(index, report);
        let text = "of the mirror are not imported: they are its upstream's (`--without-mirrored-files`: they \
                    are not missed)";
        report.fail(subject, format_args!("{counts} {text}"));
    } else {
        report.note(subject, format_args!("{counts} of the mirror were left out, as asked"));
    }
}

/// Counts all contents of an index as not imported.
fn leave_out(index: &dump::Index, report: &mut Report) {
    report.releases.not_imported +=
        index.projects.values().map(|it| it.0.len() as u64).sum::<u64>();
    for file in &index.files {
        match file.kind.as_str() {
            "doczip" => report.documentation.not_imported += 1,
            "toxresult" => report.test_results.not_imported += 1,
            _ => report.files.not_imported += 1,
        }
    }
}

struct OfStage<'import> {
    stage: StageName,
    directory: &'import Path,
    /// The Python versions that each release supports.
    requires_python: BTreeMap<(ProjectName, Version), Option<String>>,
}

impl OfStage<'_> {
    fn items(mut self, index: &dump::Index, items: &mut Vec<Item>, report: &mut Report) {
        for (project, versions) in &index.projects {
            for (version, metadata) in &versions.0 {
                let subject = format!("{} {project} {version}", self.stage);
                match self.release(project, version, metadata.to_map(), &subject, report) {
                    Ok(item) => items.push(item),
                    Err(error) => {
                        report.releases.not_imported += 1;
                        report.fail(subject, format_args!("{error:#}"));
                    }
                }
            }
        }
        let mut files = Vec::new();
        for file in &index.files {
            let subject = match file.relpath.as_str() {
                "" => format!("{} a file of {}", self.stage, file.projectname),
                relpath => relpath.to_owned(),
            };
            match self.file(file, &subject, report) {
                Ok(item) => {
                    let release = (item.project.clone(), item.version.clone());
                    if !self.requires_python.contains_key(&release) {
                        // A very old database has files of releases that it does not list.
                        let version = item.version.as_str();
                        let subject = format!("{} {} {version}", self.stage, item.project);
                        let named =
                            self.release(&file.projectname, version, Map::new(), &subject, report);
                        match named {
                            Ok(release) => items.push(release),
                            Err(error) => report.fail(subject, format_args!("{error:#}")),
                        }
                    }
                    files.push(item);
                }
                Err(error) => {
                    tally(report, role(&file.kind).ok()).not_imported += 1;
                    report.fail(subject, format_args!("{error:#}"));
                }
            }
        }
        let result_name = |item: &Item| match &item.what {
            What::File(file) if file.tested.is_some() => Some(file.filename.clone()),
            _ => None,
        };
        let results: Arc<BTreeSet<String>> =
            Arc::new(files.iter().filter_map(result_name).collect());
        for item in &mut files {
            if let What::File(file) = &mut item.what {
                file.results = results.clone();
            }
        }
        files.sort_by(|one, other| one.place().cmp(&other.place()));
        items.append(&mut files);
    }

    fn release(
        &mut self,
        project: &str,
        version: &str,
        mut metadata: Map<String, Value>,
        subject: &str,
        report: &mut Report,
    ) -> anyhow::Result<Item> {
        let name = ProjectName::normalize(project)?;
        let parsed = Version::parse(version)?;
        let written = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
        if ProjectName::normalize(written).is_ok_and(|written| written != name)
            || written.is_empty()
        {
            metadata.insert("name".to_owned(), json!(project));
        }
        metadata.insert("version".to_owned(), json!(version));
        // Fields whose type is not today's are left out one by one.
        let fits = |key: &String, value: &Value| {
            let one = Map::from_iter([(key.clone(), value.clone())]);
            Metadata::from_json(&one).map(|_| ())
        };
        metadata.retain(|key, value| match fits(key, value) {
            Ok(()) => true,
            Err(error) => {
                report.note(subject, format_args!("was imported without a field: {error}"));
                false
            }
        });
        let metadata = Metadata::from_json(&metadata)?;
        let requires_python = metadata.requires_python().map(str::to_owned);
        self.requires_python.insert((name.clone(), parsed.clone()), requires_python);
        Ok(Item {
            subject: subject.to_owned(),
            stage: self.stage.clone(),
            project: name,
            version: parsed,
            what: What::Release(metadata),
        })
    }

    fn file(&self, file: &dump::File, subject: &str, report: &mut Report) -> anyhow::Result<Item> {
        let role = role(&file.kind)?;
        let project = ProjectName::normalize(&file.projectname)?;
        let version = Version::parse(file.version.as_deref().unwrap_or_default())?;
        let path = Path::new(&file.relpath);
        let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
        if file.relpath.is_empty() || !path.components().all(is_below) {
            bail!("its path leads out of the export");
        }
        let filename = match role {
            FileRole::Release => {
                release_filename(file.basename(), &file.projectname, &version)?.to_string()
            }
            FileRole::Docs => doc_filename(&project, &version),
            FileRole::ToxResult => file.basename().to_owned(),
        };
        let tested = match role {
            FileRole::ToxResult => {
                let path = file.for_entrypath.as_deref().and_then(|path| path.rsplit('/').next());
                let named = || filename.rsplit_once(".toxresult").map(|(tested, _)| tested);
                let Some(tested) = path.or_else(named) else {
                    bail!("it does not say which file was tested");
                };
                Some(tested.to_owned())
            }
            _ => None,
        };
        let (claimed, unchecked) = claims(file)?;
        let log = log(file, &self.stage, subject, report);
        let came = log.iter().rev().find_map(|entry| match entry {
            LogEntry::Upload { who, at, .. } | LogEntry::Push { who, at, .. } => {
                Some((who.clone(), *at))
            }
            LogEntry::Overwrite { .. } => None,
        });
        let (who, at) = match (came, file.modified_at()) {
            (Some((who, at)), _) => (who, at),
            (None, Some(at)) => (None, at),
            (None, None) => {
                report.note(subject, "nothing says when it was uploaded: 1970 is assumed");
                (None, Timestamp::UNIX_EPOCH)
            }
        };
        let requires_python =
            self.requires_python.get(&(project.clone(), version.clone())).cloned().flatten();
        let file = NewFile {
            role,
            filename,
            path: self.directory.join(path),
            claimed,
            unchecked,
            requires_python,
            tested,
            results: Arc::default(),
            who,
            at,
            log,
        };
        Ok(Item {
            subject: subject.to_owned(),
            stage: self.stage.clone(),
            project,
            version,
            what: What::File(Box::new(file)),
        })
    }
}

impl Item {
    /// The order of items: release files and documentation first, then test results by tested file, in the order of
    /// their creation.
    fn place(&self) -> (bool, &ProjectName, Option<&str>, Option<Timestamp>, &str) {
        match &self.what {
            What::Release(_) => (false, &self.project, None, None, ""),
            What::File(file) => match &file.tested {
                Some(tested) => {
                    (true, &self.project, Some(tested), Some(file.at), file.filename.as_str())
                }
                None => (false, &self.project, None, None, file.filename.as_str()),
            },
        }
    }

    fn role(&self) -> Option<FileRole> {
        match &self.what {
            What::Release(_) => None,
            What::File(file) => Some(file.role),
        }
    }

    fn tally<'report>(&self, report: &'report mut Report) -> &'report mut Tally {
        match &self.what {
            What::Release(_) => &mut report.releases,
            What::File(file) => tally(report, Some(file.role)),
        }
    }

    /// The project in the stage, if it exists.
    fn known<'stored>(&self, stored: &'stored Stored) -> Option<&'stored Arc<Project>> {
        stored.index.stage(self.stage.as_str())?.project(self.project.as_str())
    }

    /// Whether the store has the item already, or has something else in its place; `None` if neither.
    fn found(&self, stored: &Stored, digest: Option<Digest>) -> Option<Outcome> {
        let known = self.known(stored)?;
        let file = match &self.what {
            What::Release(_) => {
                let release = known.release(self.version.as_str())?;
                return Some(match digest {
                    Some(digest) if digest != release.metadata => {
                        let text =
                            "the release exists already with other metadata, and stays as it is";
                        Outcome::Conflict(text.to_owned())
                    }
                    _ => Outcome::AlreadyThere(release.metadata),
                });
            }
            What::File(file) => file,
        };
        if let Some(there) = known.file(&file.filename) {
            let is_same = digest == Some(*there.digest())
                && there.role() == file.role
                && there.version() == self.version.as_str();
            return Some(if is_same {
                Outcome::AlreadyThere(*there.digest())
            } else {
                let found = there.digest();
                let text =
                    format!("another file of this name exists already, with SHA-256 {found}");
                Outcome::Conflict(text)
            });
        }
        // A result may have another name here. Results of the export with equal contents do not count as this one.
        let tested = file.tested.as_deref()?;
        let mut results =
            known.tox_results_of(tested).filter(|it| !file.results.contains(it.filename()));
        let digest = digest?;
        results
            .any(|it| *it.digest() == digest && it.uploaded_at() == file.at)
            .then_some(Outcome::AlreadyThere(digest))
    }
}

fn tally(report: &mut Report, role: Option<FileRole>) -> &mut Tally {
    match role {
        Some(FileRole::Docs) => &mut report.documentation,
        Some(FileRole::ToxResult) => &mut report.test_results,
        _ => &mut report.files,
    }
}

fn role(kind: &str) -> anyhow::Result<FileRole> {
    let roles = [FileRole::Release, FileRole::Docs, FileRole::ToxResult];
    match roles.into_iter().find(|role| role.as_str() == kind) {
        Some(role) => Ok(role),
        None => bail!("its type is `{kind}`: releasefile, doczip or toxresult was expected"),
    }
}

/// Checks the name of a release file by devpi's rules: devpi did not always check that it contains the version, and
/// never that a wheel has tags.
fn release_filename(
    text: &str,
    project: &str,
    version: &Version,
) -> Result<Filename, FilenameError> {
    let checked = Filename::of_upload(text, project, version);
    checked.or_else(|_| Filename::of_project(text, project))
}

/// The digests to check, and the names of those that cannot be checked.
fn claims(file: &dump::File) -> anyhow::Result<(ClaimedDigests, Vec<String>)> {
    let mut claimed = ClaimedDigests::default();
    let mut unchecked = Vec::new();
    for (algorithm, text) in file.digests() {
        match algorithm {
            "sha256" => claimed.sha256 = Some(digest(algorithm, text)?),
            "md5" => claimed.md5 = Some(digest(algorithm, text)?),
            other => unchecked.push(other.to_owned()),
        }
    }
    Ok((claimed, unchecked))
}

fn digest<const BYTES: usize>(algorithm: &str, text: &str) -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let is_digest = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        bail!("`{text}` is no {algorithm}: {} hexadecimal digits were expected", 2 * BYTES);
    }
    for (byte, at) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16)?;
    }
    Ok(bytes)
}

/// The history of a file. Entries without a time or of an unknown kind are left out.
fn log(file: &dump::File, stage: &StageName, subject: &str, report: &mut Report) -> Vec<LogEntry> {
    let mut log = Vec::new();
    for line in &file.log {
        let who = line.who.as_deref().and_then(|who| who.parse().ok());
        let name = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
        let target = name(&line.dst).unwrap_or_else(|| stage.clone());
        let entry = line.at().and_then(|at| match line.what.as_str() {
            "upload" => Some(LogEntry::Upload { who, at, target }),
            "push" => name(&line.src).map(|source| LogEntry::Push { who, at, source, target }),
            "overwrite" => Some(LogEntry::Overwrite { at, count: line.count.unwrap_or(1) }),
            _ => None,
        });
        match entry {
            Some(entry) => log.push(entry),
            None => report
                .note(subject, format_args!("a line of its history was left out: `{}`", line.what)),
        }
    }
    log
}

/// The state of an item before the decision about it.
enum Ready {
    /// The outcome is known already.
    Decided(Outcome),
    Metadata(Digest),
    File(Box<ReadyFile>),
}

struct ReadyFile {
    digest: Digest,
    size_bytes: u64,
    requires_python: Option<String>,
    core_metadata: Option<Digest>,
}

/// An item that the store has now.
pub(super) struct There {
    digest: Digest,
    /// Whether this import added it.
    is_new: bool,
}

/// Imports the items. Returns the digest of each item that the store has now; `None` for the others.
///
/// # Errors
/// Errors of the store; everything wrong with a single item is in the report.
pub(super) async fn import(
    writer: &mut Writer,
    items: &[Item],
    report: &mut Report,
) -> anyhow::Result<Vec<Option<There>>> {
    let progress = Progress::begin("importing", items.len() as u64);
    let mut there = Vec::with_capacity(items.len());
    // The decision about a test result needs its tested file, which may be in the same commit.
    for chunk in items.chunks(TOGETHER_MAX) {
        let mut notes = Vec::new();
        let mut ready = Vec::with_capacity(chunk.len());
        {
            let preparing = chunk.iter().map(|item| prepare(writer, item));
            let mut prepared = futures_util::stream::iter(preparing).buffered(AT_ONCE_MAX);
            while let Some(next) = prepared.next().await {
                let (next, note) = next?;
                ready.push(next);
                notes.push(note);
                progress.step();
            }
        }
        let planning = writer.committed(async |_, plan| {
            let decided = chunk.iter().zip(&ready).map(|(item, ready)| decide(item, ready, plan));
            Ok(decided.collect::<Vec<Outcome>>())
        });
        let outcomes = planning.await?;
        for ((item, outcome), note) in chunk.iter().zip(outcomes).zip(notes) {
            if let Some(note) = note {
                report.note(&item.subject, note);
            }
            there.push(match outcome {
                Outcome::Imported(digest, size_bytes) => {
                    item.tally(report).imported += 1;
                    report.bytes += size_bytes;
                    Some(There { digest, is_new: true })
                }
                Outcome::AlreadyThere(digest) => {
                    item.tally(report).already_there += 1;
                    Some(There { digest, is_new: false })
                }
                Outcome::Conflict(text) => {
                    item.tally(report).not_imported += 1;
                    report.conflict(&item.subject, text);
                    None
                }
                Outcome::Failed(text) => {
                    item.tally(report).not_imported += 1;
                    report.fail(&item.subject, text);
                    None
                }
            });
        }
    }
    progress.end();
    Ok(there)
}

/// Stores the bytes of an item, unless the store has it already or it cannot be imported. May return a note about it.
async fn prepare(writer: &Writer, item: &Item) -> anyhow::Result<(Ready, Option<String>)> {
    let file = match &item.what {
        What::Release(metadata) => {
            let blob = match release_metadata::blob(metadata) {
                Ok(blob) => blob,
                Err(error) => {
                    return Ok((Ready::Decided(Outcome::Failed(error.to_string())), None));
                }
            };
            if let Some(outcome) = item.found(writer.stored(), Some(Digest::of(&blob))) {
                return Ok((Ready::Decided(outcome), None));
            }
            return Ok((Ready::Metadata(writer.put(blob).await?), None));
        }
        What::File(file) => file,
    };
    let claimed = file.claimed.sha256.map(Digest::from_bytes);
    if claimed.is_some()
        && let Some(outcome) = item.found(writer.stored(), claimed)
    {
        return Ok((Ready::Decided(outcome), None));
    }
    let archive = match file.role {
        FileRole::Release => Filename::parse(&file.filename).ok(),
        FileRole::Docs | FileRole::ToxResult => None,
    };
    let intake = Intake { blobs: writer.blobs() };
    let mut arrival = match intake.read(&file.path, &file.claimed, archive.as_ref()).await {
        Ok(arrival) => arrival,
        Err(error) => {
            return Ok((Ready::Decided(Outcome::Failed(format!("{error:#}"))), None));
        }
    };
    let mut note = None;
    if file.claimed == ClaimedDigests::default() {
        let named = file.unchecked.join(", ");
        let named = if named.is_empty() { "no digest".to_owned() } else { named };
        note = Some(format!(
            "was imported without a check of its digest: the export has {named} for it"
        ));
    }
    let mut requires_python = file.requires_python.clone();
    let mut core_metadata = None;
    if archive.is_some_and(|archive| archive.kind() == FileKind::Wheel)
        && let Some(facts) = arrival.facts.take()
    {
        let found = facts.map_err(anyhow::Error::from).and_then(|facts| {
            let metadata = facts.core_metadata()?;
            Ok((facts.metadata, metadata))
        });
        match found {
            Ok((bytes, metadata)) => {
                if let Some(metadata) = metadata {
                    requires_python = metadata.requires_python().map(str::to_owned);
                }
                if let Some(bytes) = bytes {
                    core_metadata = Some(writer.put(Bytes::from(bytes)).await?);
                }
            }
            // devpi has served this file until now, and installers coped with it.
            Err(error) => note = Some(format!("is served without its metadata: {error:#}")),
        }
    } else if let Some(Err(error)) = &arrival.facts {
        note = Some(format!("would be refused as an upload: {error}"));
    }
    arrival.persist().await?;
    let ready = ReadyFile {
        digest: arrival.digest(),
        size_bytes: arrival.digests.size_bytes,
        requires_python,
        core_metadata,
    };
    Ok((Ready::File(Box::new(ready)), note))
}

fn decide(item: &Item, ready: &Ready, plan: &mut Plan) -> Outcome {
    let (index, stage) = (&plan.stored().index, &item.stage);
    match (&item.what, ready) {
        (_, Ready::Decided(outcome)) => match outcome {
            Outcome::Imported(digest, size) => Outcome::Imported(*digest, *size),
            Outcome::AlreadyThere(digest) => Outcome::AlreadyThere(*digest),
            Outcome::Conflict(text) => Outcome::Conflict(text.clone()),
            Outcome::Failed(text) => Outcome::Failed(text.clone()),
        },
        (What::Release(_), Ready::Metadata(digest)) => {
            if let Some(outcome) = item.found(plan.stored(), Some(*digest)) {
                return outcome;
            }
            match change::submit(index, stage, &item.project, &item.version, *digest) {
                Ok(Decision::Commit(batch)) => {
                    plan.add(batch);
                    Outcome::Imported(*digest, 0)
                }
                Ok(Decision::AlreadyThere) => Outcome::AlreadyThere(*digest),
                Err(error) => Outcome::Failed(error.to_string()),
            }
        }
        (What::File(file), Ready::File(ready)) => {
            if let Some(outcome) = item.found(plan.stored(), Some(ready.digest)) {
                return outcome;
            }
            let decided = match &file.tested {
                Some(tested) => decide_test_result(item, file, tested, ready, plan),
                None => decide_file(item, file, ready, plan),
            };
            match decided {
                Ok(Some(batch)) => {
                    plan.add(batch);
                    Outcome::Imported(ready.digest, ready.size_bytes)
                }
                Ok(None) => Outcome::AlreadyThere(ready.digest),
                Err(error) => Outcome::Failed(format!("{error:#}")),
            }
        }
        (What::Release(_), Ready::File(_)) | (What::File(_), Ready::Metadata(_)) => {
            Outcome::Failed("was prepared as something else".to_owned())
        }
    }
}

fn decide_file(
    item: &Item,
    file: &NewFile,
    ready: &ReadyFile,
    plan: &Plan,
) -> anyhow::Result<Option<record::Batch>> {
    let upload = change::FileUpload {
        stage: &item.stage,
        project: &item.project,
        version: &item.version,
        filename: &Filename::parse(&file.filename)?,
        role: file.role,
        digest: ready.digest,
        size_bytes: ready.size_bytes,
        requires_python: ready
            .requires_python
            .as_deref()
            .filter(|_| file.role == FileRole::Release),
        core_metadata: ready.core_metadata,
        metadata: None,
        who: file.who.as_ref(),
        at: file.at,
        log: unusual_log(item, file),
    };
    Ok(change::file(&plan.stored().index, &upload)?.batch())
}

/// The history to write: empty if it consists of the upload alone.
fn unusual_log<'file>(item: &Item, file: &'file NewFile) -> &'file [LogEntry] {
    let usual = LogEntry::Upload { who: file.who.clone(), at: file.at, target: item.stage.clone() };
    if file.log == [usual] { &[] } else { &file.log }
}

fn decide_test_result(
    item: &Item,
    file: &NewFile,
    tested: &str,
    ready: &ReadyFile,
    plan: &Plan,
) -> anyhow::Result<Option<record::Batch>> {
    let Some(found) = item.known(plan.stored()).and_then(|project| project.file(tested)) else {
        bail!("the file that was tested, `{tested}`, was not imported");
    };
    let upload = change::ToxUpload {
        stage: &item.stage,
        directory: found.directory(),
        filename: tested,
        name: Some(&file.filename),
        digest: ready.digest,
        size_bytes: ready.size_bytes,
        who: file.who.as_ref(),
        at: file.at,
        log: unusual_log(item, file),
        is_bounded: false,
    };
    let (batch, _) = change::tox_result(&plan.stored().index, &upload)?;
    Ok(Some(batch))
}

/// Checks that the store has everything that it should have: each file is looked up by its path, and the bytes that
/// this import added are hashed again.
///
/// # Errors
/// Errors of the store.
pub(super) async fn verify(
    writer: &Writer,
    items: &[Item],
    there: &[Option<There>],
    report: &mut Report,
) -> anyhow::Result<()> {
    let Some(blobs) = writer.blobs() else { return Ok(()) };
    let mut looks = Vec::with_capacity(items.len());
    for (item, there) in items.iter().zip(there) {
        let (What::File(file), Some(There { digest, is_new })) = (&item.what, there) else {
            continue;
        };
        let Some(there) = looked_up(writer.stored(), item, file, digest) else {
            report.fail(&item.subject, "was imported, but is not found in the store");
            continue;
        };
        if item.role() == Some(FileRole::ToxResult) && there.filename() != file.filename {
            report.note(&item.subject, format_args!("is now called `{}`", there.filename()));
        }
        let (digest, size_bytes) = (*digest, there.size_bytes());
        looks.push(Look { subject: &item.subject, digest, size_bytes, is_new: *is_new });
    }
    stored_blobs::check(blobs, &looks, report).await
}

/// The file that an item became, looked up by its path like a reader would.
fn looked_up(
    stored: &Stored,
    item: &Item,
    file: &NewFile,
    digest: &Digest,
) -> Option<Arc<ReleaseFile>> {
    let project = item.known(stored)?;
    let by_name = project.file(&file.filename).filter(|it| it.digest() == digest);
    let found = match &file.tested {
        Some(tested) => {
            by_name.or_else(|| project.tox_results_of(tested).find(|it| it.digest() == digest))
        }
        None => by_name,
    }?;
    let stage = stored.index.stage(item.stage.as_str())?;
    match stage.file(found.directory(), found.filename()) {
        FileLookup::Found { file, .. } => Some(file),
        FileLookup::CoreMetadata { .. } | FileLookup::Gone | FileLookup::Absent => None,
    }
}
