//! A push from a mirror into a stage: somebody approves a release of an upstream.
//!
//! the mirror's page -> its files of the release, judged as downloads are -> fetched through the mirror's cache, compared with
//! the page and opened as uploads are -> blobs -> one commit, with an entry in the audit log for each file.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::StatusCode;
use mirrors::{FileAnswer, Mirror};
use operations::pushes::{ApproveRelease, Order, check_withheld_upstream};
use operations::{Sender, carry_out};
use pypi::archive::{ArchiveError, ArchiveFacts, ArchiveLimits, inspect};
use pypi::change::push::{ApprovedFile, PushContent, PushOrder, PushTarget};
use pypi::upstream::UpstreamFile;
use pypi::{ChangeError, FileKind, Filename, Metadata, ProjectName, Stage, Version};
use rawzip::FileReader;
use record::Digest;
use resources::bodies::MemoryHolder;
use serde_json::{Map, json};
use state::{release_metadata, security};
use store::{BlobError, SpooledBlob};

use super::PushOutcome;
use crate::app::App;
use crate::front::auth;
use crate::front::error::HttpError;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::simple::mirrored::failed;

/// Most files of a pushed release.
const FILES_MAX: usize = 1_000;

/// Memory of a push: copies of one file's metadata, and a chunk of the spool.
const MEMORY_BYTES: usize = 8 << 20;

/// Pushes the release that `order` names from the mirror `source`.
pub(super) async fn push(
    app: &App,
    sender: &Sender,
    source: &Arc<Stage>,
    order: &PushOrder,
    content: PushContent,
) -> Result<PushOutcome, ApiError> {
    let stage = source.name();
    let target = match order.target.clone().map_err(ApiError::bad_request)? {
        PushTarget::Stage(target) => target,
        PushTarget::External { .. } => return Err(ChangeError::Mirror(stage.clone()).into()),
    };
    let (name, version) = (order.name.clone(), order.version.clone());
    let order = Order { source: stage.clone(), target, name, version, content };
    let nothing = || {
        let (project, version) = (order.name.clone(), order.version.clone());
        ChangeError::NothingToPush { project, version, stage: stage.clone() }
    };
    let project = &ProjectName::normalize(&order.name).map_err(|_| nothing())?;
    let version = Version::parse(&order.version).map_err(|_| nothing())?;
    // Nothing is fetched for senders who may not push it.
    let basis = app.basis(sender.clone())?;
    order.admit(&basis)?;
    auth::admit_to_disk(app, basis.principal()).await?;
    let holder = basis.principal().user_name().cloned();
    let holder =
        holder.map_or_else(|| MemoryHolder::Client(security::client().key()), MemoryHolder::User);
    let mirrors = &app.python.mirrors;
    let mirror = mirrors.of(source).ok_or_else(nothing)?;
    let page = mirrors.page_to_judge_by(&mirror, project).await;
    let page = page.map_err(|trouble| failed(stage.as_str(), &trouble))?.ok_or_else(nothing)?;
    let is_wanted = |file: &&UpstreamFile| {
        let filename = Filename::of_upstream(&file.filename).ok();
        let found = filename.and_then(|it| it.split(Some(project))?.version);
        found.is_some_and(|found| found.is_same_release(&version))
    };
    let files: Vec<&UpstreamFile> = page.files.iter().filter(is_wanted).collect();
    if files.is_empty() {
        return Err(nothing().into());
    }
    if content == PushContent::OnlyDocs {
        let (project, version) = (order.name.clone(), order.version.clone());
        return Err(ChangeError::NoFilesToPush { project, version }.into());
    }
    if files.len() > FILES_MAX {
        return Err(ApiError::bad_request(format_args!(
            "the release has {} files; at most {FILES_MAX} can be pushed",
            files.len()
        )));
    }
    check_withheld_upstream(&basis, source, project, &page, files.iter().copied())?;
    drop(basis);
    let mut held = app.limits.bodies.begin(holder).map_err(HttpError::from)?;
    held.hold(MEMORY_BYTES).map_err(HttpError::from)?;
    let said = Map::from_iter([
        ("name".to_owned(), json!(order.name)),
        ("version".to_owned(), json!(order.version)),
    ]);
    let said = Metadata::from_json(&said).map_err(ApiError::bad_request)?;
    let mut metadata = Metadata::default().with_empty_fields();
    let mut approved = Vec::with_capacity(files.len());
    for &file in &files {
        let (file, own) = fetched(app, &mirror, project, &version, file, &said).await?;
        if let Some(own) = own {
            metadata.merge(own);
        }
        approved.push(file);
    }
    // However a file spells it.
    metadata.merge(said);
    let metadata = release_metadata::blob(&metadata).map_err(ApiError::bad_request)?;
    let metadata = put(app, metadata).await?;
    let (project, page, files) = (project.clone(), page.clone(), approved);
    let approving = ApproveRelease { order, project, metadata, page, files };
    Ok(PushOutcome::Here(carry_out(&mut app.keeper(), sender, &approving).await?))
}

/// Fetches a file and stores it; returns what is known of it, and its metadata, if it has some.
async fn fetched(
    app: &App,
    mirror: &Arc<Mirror>,
    project: &ProjectName,
    version: &Version,
    file: &UpstreamFile,
    said: &Metadata,
) -> Result<(ApprovedFile, Option<Metadata>), ApiError> {
    let config = &app.config.python;
    let name = &*file.filename;
    let filename = match Filename::of_upload(name, project.as_str(), version) {
        // As for an upload, no installer knows such a file.
        Err(_) if config.devpi_defaults => {
            Filename::of_upload_to_devpi(name, project.as_str(), version)
        }
        checked => checked,
    };
    let filename = filename.map_err(|error| unfit(name, &error))?;
    let staged = spooled(app, mirror, project, file).await?;
    let facts = match looked_into(app, &staged, &filename).await {
        Err(ArchiveError::Unreadable { .. }) if config.devpi_defaults => None,
        Err(ArchiveError::Io(error)) => {
            tracing::error!(%error, "a pushed file cannot be read");
            let text = "a file cannot be read now; nothing was pushed";
            return Err(HttpError::unavailable(text, 5).into());
        }
        facts => Some(facts.map_err(|error| unfit(name, &error))?),
    };
    let metadata = facts.as_ref().map(ArchiveFacts::core_metadata).transpose();
    let metadata = metadata.map_err(|error| unfit(name, &error))?.flatten();
    if let (Some(facts), Some(metadata)) = (&facts, &metadata) {
        let checked = said.check_file(facts.metadata_name, metadata);
        checked.map_err(|error| unfit(name, &error))?;
    }
    let is_wheel = filename.kind() == FileKind::Wheel;
    let core_metadata = match facts.and_then(|facts| facts.metadata).filter(|_| is_wheel) {
        Some(bytes) => Some(put(app, Bytes::from(bytes)).await?),
        None => None,
    };
    let requires_python = match &metadata {
        Some(metadata) if is_wheel => metadata.requires_python(),
        _ => file.requires_python.as_deref(),
    };
    let requires_python = requires_python.map(Into::into);
    let size_bytes = staged.size_bytes;
    let digest = staged.persist().await.map_err(unwritable)?.digest;
    let approved = ApprovedFile { filename, digest, size_bytes, requires_python, core_metadata };
    Ok((approved, metadata))
}

/// How much of a file is read at once.
const PIECE_BYTES: usize = 256 << 10;

/// The bytes of a file, through the cache of the mirror, which compares them with upstream's page.
async fn spooled(
    app: &App,
    mirror: &Arc<Mirror>,
    project: &ProjectName,
    file: &UpstreamFile,
) -> Result<SpooledBlob, ApiError> {
    let bytes_max = app.config.python.file_bytes_max;
    let stage = &mirror.stage;
    let answer = app.python.mirrors.fetched_file(mirror, project, file).await;
    let answer = answer.map_err(|trouble| failed(stage, &trouble))?;
    let FileAnswer::File(answer) = answer else {
        let text = format!("the upstream of {stage} lists {}, but does not have it", file.filename);
        return Err(HttpError::refused(StatusCode::BAD_GATEWAY, text).into());
    };
    let mut upload = app.store.blobs.begin(bytes_max);
    let mut pieces = std::pin::pin!(answer.body.stream(0, None, || PIECE_BYTES));
    loop {
        let piece = pieces.try_next().await.map_err(|error| {
            let text = format!("{} of {stage} has not arrived: {error}", file.filename);
            HttpError::refused(StatusCode::BAD_GATEWAY, text)
        })?;
        let Some(piece) = piece else { break };
        match upload.write(piece).await {
            Err(BlobError::TooLarge { .. }) => {
                let text = format!(
                    "{} is too large: at most {bytes_max} bytes are allowed",
                    file.filename
                );
                return Err(HttpError::too_large(text).into());
            }
            written => written.map_err(unwritable)?,
        }
    }
    Ok(upload.stage().await.map_err(unwritable)?)
}

/// Opens the archive, on a thread that may take long.
async fn looked_into(
    app: &App,
    staged: &SpooledBlob,
    filename: &Filename,
) -> Result<ArchiveFacts, ArchiveError> {
    let opened = staged.file().map_err(|error| ArchiveError::Io(std::io::Error::other(error)))?;
    let (size_bytes, filename) = (staged.size_bytes, filename.clone());
    let looking =
        move || inspect(FileReader::from(opened), size_bytes, &filename, &ArchiveLimits::default());
    app.limits.bodies.parsing.run(looking).await
}

async fn put(app: &App, bytes: Bytes) -> Result<Digest, HttpError> {
    Ok(app.store.blobs.put(bytes).await.map_err(unwritable)?.digest)
}

/// A file that no upload could add.
fn unfit(filename: &str, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::bad_request(format_args!("{filename} cannot be pushed: {error}"))
}

fn unwritable(error: BlobError) -> HttpError {
    tracing::error!(%error, "a pushed file cannot be stored");
    HttpError::unavailable("a file cannot be stored now; nothing was pushed", 5)
}
