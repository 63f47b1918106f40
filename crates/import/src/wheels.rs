//! Imports a folder of release files, as pypiserver has it: each file itself says which release it belongs to.
//!
//! folder -> paths -> bytes read, archives opened, metadata checked -> hundreds of files a commit. The modification
//! time of a file counts as its upload time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use account::{User, UserName};
use anyhow::{Context, bail};
use config::Config;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use pypi::change::{stage, upload as change};
use pypi::{
    ClaimedDigests, ConfigEdit, Decision, FileKind, FileRole, Filename, FilenameError, Metadata,
    ProjectName, StageName, Version,
};
use record::Digest;
use serde_json::{Map, json};
use state::maintenance::Progress;
use state::release_metadata;
use state::text::counted;

use super::intake::{Arrival, BlobIntake};
use super::report::Report;
use super::stored_blobs::{self, BlobCheck};
use super::writer::{self, ByteStore, PlannedBatch, Writer};
use super::{AT_ONCE_MAX, TOGETHER_MAX};

/// Most skipped files that the report names.
const NAMED_MAX: usize = 5;

/// What to import, and into which index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WheelsImport {
    /// The folder; its subfolders are included.
    pub directory: PathBuf,
    /// The index that gets the files.
    pub stage: StageName,
    /// Make the index and its user if they do not exist.
    pub is_creating: bool,
    /// The uploader in the history of the files; `None` means the user that owns the index.
    pub who: Option<UserName>,
    /// Only read and check everything; write nothing.
    pub is_dry_run: bool,
}

/// Runs the import. If `root` is made here, its password comes with the report.
///
/// # Errors
/// If the folder or the index does not exist, and errors of the store. Everything else that goes wrong is in the
/// report.
pub async fn import_wheels(
    config: &Config,
    import: &WheelsImport,
) -> anyhow::Result<(Report, Option<account::Password>)> {
    let directory = import.directory.clone();
    let (paths, others) = tokio::task::spawn_blocking(move || release_files(&directory)).await??;
    // Without a store there is no index. A mistyped path should not make another store.
    let is_reading = import.is_dry_run || (!import.is_creating && writer::is_missing(config));
    let mut writer = Writer::open(config, is_reading).await?;
    let done = everything(config, import, &paths, &others, &mut writer).await;
    writer.close().await;
    done
}

async fn everything(
    config: &Config,
    import: &WheelsImport,
    paths: &[PathBuf],
    others: &[PathBuf],
    writer: &mut Writer,
) -> anyhow::Result<(Report, Option<account::Password>)> {
    let mut report = Report { is_dry_run: import.is_dry_run, ..Report::default() };
    if !others.is_empty() {
        let named = others
            .iter()
            .take(NAMED_MAX)
            .map(|path| path.strip_prefix(&import.directory).unwrap_or(path).display().to_string());
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if others.len() > NAMED_MAX { ", …" } else { "" };
        let count = counted(others.len() as u64, "file");
        let text = format!("{count} skipped, neither wheels nor source archives: {named}{more}");
        report.note(import.directory.display(), text);
    }
    if paths.is_empty() {
        report.note(import.directory.display(), "contains neither wheels nor source archives");
    }
    make_stage(import, writer, &mut report).await?;
    let there = files(import, paths, writer, &mut report).await?;
    verify(import, &there, writer, &mut report).await?;
    Ok((report, writer.make_root(config).await?))
}

/// The paths of release files below `directory`, and those of other files, in order.
fn release_files(directory: &Path) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    if directory.is_file() {
        bail!("`{}` is a file: the folder that contains it was expected", directory.display());
    }
    let mut paths = Vec::new();
    let mut others = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(folder) = waiting.pop() {
        let unreadable = || format!("`{}` cannot be listed", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // A link to a folder could lead in a circle, so it is not followed; a link to a file counts as a file.
            if entry.file_type().with_context(unreadable)?.is_dir() {
                waiting.push(entry.path());
                continue;
            }
            match name.to_str().map(Filename::parse) {
                Some(Err(FilenameError::NotAnArchive(_))) => others.push(entry.path()),
                // A bad name is reported when the file is imported.
                _ => paths.push(entry.path()),
            }
        }
    }
    paths.sort();
    others.sort();
    Ok((paths, others))
}

/// Makes the index if it does not exist and the caller asked for that.
async fn make_stage(
    import: &WheelsImport,
    writer: &mut Writer,
    report: &mut Report,
) -> anyhow::Result<()> {
    let name = &import.stage;
    let planning = writer.committed(async |plan| {
        if let Some(stage) = plan.stored().index.stage(name.as_str()) {
            if stage.config().is_mirror() {
                bail!("`{name}` is a mirror, which takes no files");
            }
            return Ok(None);
        }
        if !import.is_creating {
            bail!("there is no index `{name}`; `--create` makes it, and its user");
        }
        let user = name.user_name();
        let is_new_user = plan.stored().accounts.user(&user).is_none();
        if is_new_user {
            let user = User::new(user, Timestamp::now());
            let batch = account::change::create_user(&plan.stored().accounts, &user)?;
            plan.add(batch);
        }
        let (batch, _) = stage::create(&plan.stored().index, name, &ConfigEdit::nothing())?;
        plan.add(batch);
        Ok(Some(is_new_user))
    });
    if let Some(is_new_user) = planning.await? {
        if is_new_user {
            report.users.imported += 1;
            let text = "was made without a password; `larder user password` sets one";
            report.note(format_args!("user {}", name.user()), text);
        }
        report.indexes.imported += 1;
    }
    Ok(())
}

/// A file that may be imported.
struct PreparedFile {
    filename: Filename,
    project: ProjectName,
    version: Version,
    metadata: Metadata,
    requires_python: Option<String>,
    core_metadata: Option<Digest>,
    digest: Digest,
    size_bytes: u64,
    at: Timestamp,
}

/// A file that the store has now.
struct ImportedFile {
    project: ProjectName,
    filename: Filename,
    digest: Digest,
    /// Whether this import added it.
    is_new: bool,
    subject: String,
}

enum ItemResult {
    Imported,
    AlreadyThere,
    Conflict(String),
    Failed(String),
}

async fn files(
    import: &WheelsImport,
    paths: &[PathBuf],
    writer: &mut Writer,
    report: &mut Report,
) -> anyhow::Result<Vec<ImportedFile>> {
    let progress = Progress::on_terminal();
    progress.begin_counted("importing", paths.len() as u64);
    let mut there = Vec::new();
    for chunk in paths.chunks(TOGETHER_MAX) {
        let mut ready = Vec::with_capacity(chunk.len());
        {
            let preparing = chunk.iter().map(|path| prepare(writer, path));
            let mut prepared = futures_util::stream::iter(preparing).buffered(AT_ONCE_MAX);
            while let Some(next) = prepared.next().await {
                ready.push(next);
                progress.step();
            }
        }
        let bytes = writer.bytes();
        let planning = writer.committed(async |plan| {
            let mut outcomes = Vec::with_capacity(ready.len());
            let mut releases = BTreeMap::new();
            for ready in &ready {
                outcomes.push(match ready {
                    Ok(ready) => decide(import, ready, &bytes, &mut releases, plan).await?,
                    Err(error) => ItemResult::Failed(format!("{error:#}")),
                });
            }
            Ok(outcomes)
        });
        let outcomes = planning.await?;
        for ((path, ready), outcome) in chunk.iter().zip(ready).zip(outcomes) {
            let subject =
                path.strip_prefix(&import.directory).unwrap_or(path).display().to_string();
            let is_new = matches!(outcome, ItemResult::Imported);
            let is_there = match outcome {
                ItemResult::Imported => {
                    report.files.imported += 1;
                    report.bytes += ready.as_ref().map_or(0, |ready| ready.size_bytes);
                    true
                }
                ItemResult::AlreadyThere => {
                    report.files.already_there += 1;
                    true
                }
                ItemResult::Conflict(text) => {
                    report.files.not_imported += 1;
                    report.conflict(&subject, text);
                    false
                }
                ItemResult::Failed(text) => {
                    report.files.not_imported += 1;
                    report.fail(&subject, text);
                    false
                }
            };
            if let Ok(PreparedFile { project, filename, digest, .. }) = ready
                && is_there
            {
                there.push(ImportedFile { project, filename, digest, is_new, subject });
            }
        }
    }
    progress.end();
    Ok(there)
}

/// Reads a file and determines its release.
async fn prepare(writer: &Writer, path: &Path) -> anyhow::Result<PreparedFile> {
    let name = path.file_name().and_then(|name| name.to_str()).context("its name is not UTF-8")?;
    let filename = Filename::parse(name)?;
    let written_at = tokio::fs::metadata(path).await?.modified()?;
    let at = Timestamp::try_from(written_at)?;
    let intake = BlobIntake { blobs: writer.blobs() };
    let mut arrival: Arrival =
        intake.read(path, &ClaimedDigests::default(), Some(&filename)).await?;
    let facts = arrival.facts.take().context("it was not inspected")??;
    let metadata = match facts.core_metadata()? {
        Some(metadata) => metadata,
        None => {
            let parts = filename.split(None).context("its name does not contain a project")?;
            let version = parts.version.as_ref().context("its name does not contain a version")?;
            let said = Map::from_iter([
                ("name".to_owned(), json!(parts.project)),
                ("version".to_owned(), json!(version.as_str())),
            ]);
            Metadata::from_json(&said)?
        }
    };
    let (project, version) = (metadata.project()?, metadata.version()?);
    let filename = Filename::of_upload(name, metadata.text("name"), &version)?;
    let core_metadata = match facts.metadata {
        Some(bytes) if filename.kind() == FileKind::Wheel => Some(writer.bytes().put(bytes).await?),
        _ => None,
    };
    arrival.persist().await?;
    Ok(PreparedFile {
        requires_python: metadata.requires_python().map(str::to_owned),
        digest: arrival.digest(),
        size_bytes: arrival.digests.size_bytes,
        filename,
        project,
        version,
        metadata,
        core_metadata,
        at,
    })
}

async fn decide(
    import: &WheelsImport,
    ready: &PreparedFile,
    bytes: &ByteStore,
    releases: &mut BTreeMap<(ProjectName, Version), Metadata>,
    plan: &mut PlannedBatch,
) -> anyhow::Result<ItemResult> {
    let known = plan.stored().index.stage(import.stage.as_str());
    let known = known.and_then(|stage| stage.project(ready.project.as_str())).cloned();
    if let Some(file) = known.as_ref().and_then(|it| it.file(ready.filename.as_str())) {
        return Ok(match *file.digest() == ready.digest {
            true => ItemResult::AlreadyThere,
            false => {
                let found = file.digest();
                ItemResult::Conflict(format!(
                    "another file of this name exists already, with SHA-256 {found}"
                ))
            }
        });
    }
    let release = (ready.project.clone(), ready.version.clone());
    let mut metadata = match releases.get(&release) {
        Some(metadata) => metadata.clone(),
        None => {
            let registered = known.as_ref().and_then(|it| it.release(ready.version.as_str()));
            match (registered, bytes.readable()) {
                (Some(release), Some(blobs)) => {
                    let read = blobs.bytes(release.metadata, release_metadata::BYTES_MAX).await?;
                    let json = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
                    json.and_then(|json| Metadata::from_json(&json).ok()).unwrap_or_default()
                }
                _ => Metadata::default().with_empty_fields(),
            }
        }
    };
    metadata.merge(ready.metadata.clone());
    let blob = match release_metadata::blob(&metadata) {
        Ok(blob) => blob,
        Err(error) => return Ok(ItemResult::Failed(error.to_string())),
    };
    let digest = bytes.put(blob).await?;
    releases.insert(release, metadata);
    let owner = import.stage.user_name();
    let upload = change::FileUpload {
        stage: &import.stage,
        project: &ready.project,
        version: &ready.version,
        filename: &ready.filename,
        role: FileRole::Release,
        digest: ready.digest,
        size_bytes: ready.size_bytes,
        requires_python: ready.requires_python.as_deref(),
        core_metadata: ready.core_metadata,
        provenance: None,
        is_attested: false,
        metadata: Some(digest),
        who: Some(import.who.as_ref().unwrap_or(&owner)),
        publisher: None,
        at: ready.at,
        log: &[],
    };
    let decided = change::file(&plan.stored().index, &upload);
    Ok(match decided {
        Ok(Decision::Commit(batch)) => {
            plan.add(batch);
            ItemResult::Imported
        }
        Ok(Decision::AlreadyThere) => ItemResult::AlreadyThere,
        Err(error) => ItemResult::Failed(error.to_string()),
    })
}

/// Checks that the store has every file; the bytes that this import added are hashed again.
async fn verify(
    import: &WheelsImport,
    there: &[ImportedFile],
    writer: &Writer,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Some(blobs) = writer.blobs() else { return Ok(()) };
    let stage = writer.stored().index.stage(import.stage.as_str()).cloned();
    let mut looks = Vec::with_capacity(there.len());
    for ImportedFile { project, filename, digest, is_new, subject } in there {
        let project = stage.as_ref().and_then(|stage| stage.project(project.as_str()));
        let file = project.and_then(|project| project.file(filename.as_str()));
        match file.filter(|file| file.digest() == digest) {
            Some(file) => looks.push(BlobCheck {
                subject,
                digest: *digest,
                size_bytes: file.size_bytes(),
                is_new: *is_new,
            }),
            None => report.fail(subject, "was imported, but is not found in the store"),
        }
    }
    stored_blobs::check(blobs, &looks, report).await
}
