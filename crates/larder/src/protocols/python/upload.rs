//! Uploads: forms with release files, registrations and documentation.
//!
//! who -> fields -> bytes, spooled and digested as they come -> digests and archive checked -> kept -> one commit -> visible in
//! every page -> acknowledged. Every refusal comes before a byte is kept. It is in the reason phrase as well, where older
//! clients look for it.

use std::future::ready;
use std::sync::Arc;

use account::{CiIdentity, UserName};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use operations::uploads::{self, RegisterRelease, UploadFile, UploadOutcome};
use operations::{Basis, Operation, Refusal, carry_out_with};
use pypi::archive::{ArchiveError, ArchiveLimits, SafeZip, inspect};
use pypi::attestation::{Attestations, can_attest};
use pypi::{
    DigestHasher, FileDigests, FileRole, Filename, Metadata, StageName, UploadAction, UploadForm,
    Version,
};
use rawzip::FileReader;
use record::Digest;
use resources::bodies::{HeldMemory, MemoryHolder};
use state::release_metadata;
use state::stored::Stored;
use store::{BlobError, SpooledBlob};

use super::ask::Ask;
use super::error::ApiError;
use super::names::Names;
use super::refusals::answer_to_upload;
use super::reply;
use super::rights::IndexPart;
use crate::front::auth;
use crate::front::body::{self, announced, client};
use crate::front::error::HttpError;
use crate::front::multipart::{self, FormError, FormReader};

/// Text fields in one form, and their bytes together: a long description and hundreds of classifiers fit.
const FIELDS_MAX: usize = 10_000;
const FIELD_BYTES_MAX: usize = 4 << 20;

/// Bytes of files in a form that are ignored, such as signatures.
const IGNORED_BYTES_MAX: usize = 32 << 20;

/// Copies of a field's bytes in memory at a time: the form, the release's metadata, its JSON, and the blob.
const COPIES: usize = 5;

/// Other memory of an arriving form: the bytes between fields, and the spool's next chunk.
const FORM_BYTES: usize = multipart::HEAD_BYTES_MAX;
const SPOOL_BYTES: usize = 256 << 10;

/// A form that has arrived.
struct UploadedForm {
    fields: Vec<(String, String)>,
    content: Option<Content>,
    /// The memory of the fields.
    _held: HeldMemory,
}

/// Its file.
struct Content {
    filename: String,
    staged: SpooledBlob,
    digests: FileDigests,
}

/// `POST /{user}/{index}/` with a form.
pub(crate) async fn upload_file(ask: &Ask, stage: &str, body: Body) -> Result<Response, ApiError> {
    let metrics = &ask.app.metrics.python;
    match take(ask, stage, body).await {
        Ok(response) => {
            metrics.uploaded("stored");
            Ok(response)
        }
        Err(refused) => {
            let response = answer_to_upload(ask, refused).await?;
            metrics.uploaded("refused");
            Ok(response)
        }
    }
}

/// Whether `Content-Type` says that the body is a form.
pub(crate) fn is_form(ask: &Ask) -> bool {
    let content_type = ask.header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    ["multipart/form-data", "application/x-www-form-urlencoded"]
        .iter()
        .any(|form| content_type.starts_with(form))
}

/// 405 for a path without uploads, with the right URL: the index is missing in this one, or a project is too much.
pub(crate) fn no_uploads(ask: &Ask, names: &Names) -> Response {
    let root = ask.root_url();
    let (what, example) = match (names.user.as_str(), names.stage.as_str()) {
        ("", _) => ("`/`".to_owned(), format!("{root}/USER/INDEX/")),
        (user, "") => (format!("the user `{user}`"), format!("{root}/{user}/INDEX/")),
        (_, stage) => ("a project".to_owned(), format!("{root}/{stage}/")),
    };
    let text = format!("nothing can be uploaded to {what}: uploads go to an index, at {example}");
    let mut response = reply::upload_refusal(ask, StatusCode::METHOD_NOT_ALLOWED, &text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(names.place.allow()));
    response
}

async fn take(ask: &Ask, stage: &str, body: Body) -> Result<Response, ApiError> {
    let found = ask.stored.index.stage(stage).ok_or_else(|| {
        let (status, text, _) = HttpError::unknown_stage(stage).into_facts();
        ApiError::Said(status, text)
    })?;
    if found.config().is_mirror() {
        let text = "cannot submit to mirror index".to_owned();
        return Err(ApiError::Said(StatusCode::NOT_FOUND, text));
    }
    let (name, asked) = (found.name().clone(), ask.asked().await?);
    uploads::admit(&asked, &name, IndexPart::NotYetKnown)?;
    auth::admit_to_disk(&ask.app, asked.principal()).await?;
    let arrived = arrive(ask, asked.principal().user_name().cloned(), body).await?;
    // The right is checked again: it may have been lost while the body came.
    uploads::admit(&ask.basis().await?, &name, IndexPart::NotYetKnown)?;
    let fields = arrived.fields.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let form =
        UploadForm::read(fields, arrived.content.is_some()).map_err(ApiError::bad_request)?;
    uploads::admit(&ask.basis().await?, &name, IndexPart::Project(Some(&form.project)))?;
    match form.action {
        UploadAction::Submit => submit(ask, name, &form).await,
        UploadAction::FileUpload | UploadAction::DocUpload => {
            // The form was read with a content.
            let content = arrived
                .content
                .ok_or_else(|| ApiError::bad_request("content file field not found"))?;
            let attestations = arrived.fields.iter().find(|(key, _)| key == "attestations");
            let attestations = attestations.map(|(_, text)| text.as_str());
            file(ask, &name, &form, content, attestations).await
        }
    }
}

/// Carries out an operation whose bytes depend on the state: `make` stores them.
async fn carry_out<O: Operation, M>(
    ask: &Ask,
    make: impl FnMut(Arc<Basis>) -> M,
) -> Result<O::Outcome, ApiError>
where
    M: Future<Output = Result<O, Refusal>>,
{
    let sender = ask.sender().await?;
    Ok(ask.done(carry_out_with(&mut ask.app.keeper(), &sender, make).await?))
}

/// Takes the form in: fields into memory, the file into a spool.
async fn arrive(ask: &Ask, who: Option<UserName>, body: Body) -> Result<UploadedForm, ApiError> {
    let content_type = ask.header(CONTENT_TYPE).unwrap_or_default();
    let holder = who.map_or_else(
        || MemoryHolder::Client(client(&ask.app, &ask.head).key()),
        MemoryHolder::User,
    );
    let Ok(boundary) = multer::parse_boundary(content_type) else {
        return urlencoded(ask, holder, body).await;
    };
    let bytes_max = ask.app.config.python.file_bytes_max;
    let length = announced(&ask.head.headers);
    if length.is_some_and(|length| length > bytes_max.saturating_add(FIELD_BYTES_MAX as u64)) {
        return Err(too_large(bytes_max));
    }
    let mut held = ask.app.limits.bodies.begin(holder).map_err(HttpError::from)?;
    let mut hold = |text_bytes: usize, spool_bytes: usize| {
        let bytes = FORM_BYTES + text_bytes * COPIES + spool_bytes.min(SPOOL_BYTES);
        held.hold(bytes).map_err(HttpError::from)
    };
    let (mut fields, mut content): (Vec<(String, String)>, Option<Content>) = Default::default();
    let (mut text_bytes, mut ignored_bytes) = (0, 0);
    hold(0, 0)?;
    let mut form = FormReader::new(body.into_data_stream(), boundary);
    let broken = |error: multer::Error| ApiError::bad_request(FormError::from(error));
    while let Some(mut field) = form.next_field().await.map_err(ApiError::bad_request)? {
        let key = field.name().unwrap_or_default().to_owned();
        let filename = multipart::file_name(&field);
        match filename {
            Some(filename) if key == "content" => {
                if content.is_some() {
                    return Err(ApiError::bad_request(
                        "the form has two fields `content`, and one was expected",
                    ));
                }
                let mut upload = ask.app.store.blobs.begin(bytes_max);
                let mut hasher = DigestHasher::of_all();
                let mut spooled_bytes = 0;
                while let Some(piece) = field.chunk().await.map_err(broken)? {
                    if spooled_bytes < SPOOL_BYTES {
                        spooled_bytes += piece.len();
                        hold(text_bytes, spooled_bytes)?;
                    }
                    hasher.update(&piece);
                    ask.app.metrics.python.upload_bytes(piece.len());
                    upload.write(piece).await.map_err(|error| unwritable(error, bytes_max))?;
                }
                let staged = upload.stage().await.map_err(|error| unwritable(error, bytes_max))?;
                let digests = hasher.finish();
                hold(text_bytes, 0)?;
                content = Some(Content { filename, staged, digests });
            }
            Some(_) => {
                while let Some(piece) = field.chunk().await.map_err(broken)? {
                    ignored_bytes += piece.len();
                    if ignored_bytes > IGNORED_BYTES_MAX {
                        return Err(ApiError::bad_request(format_args!(
                            "the file field `{key}` is too long"
                        )));
                    }
                }
            }
            None => {
                // A name is kept as its text is, and can be as long as a field's head.
                let mut count = |bytes: usize| -> Result<(), ApiError> {
                    text_bytes += bytes;
                    if text_bytes > FIELD_BYTES_MAX {
                        return Err(ApiError::bad_request(format_args!(
                            "the fields of the form have more than {FIELD_BYTES_MAX} bytes together"
                        )));
                    }
                    Ok(hold(text_bytes, 0)?)
                };
                let mut text = Vec::new();
                count(key.len())?;
                while let Some(piece) = field.chunk().await.map_err(broken)? {
                    count(piece.len())?;
                    text.extend_from_slice(&piece);
                }
                if fields.len() == FIELDS_MAX {
                    return Err(ApiError::bad_request(format_args!(
                        "the form has more than {FIELDS_MAX} fields"
                    )));
                }
                let text = String::from_utf8(text).map_err(|_| {
                    ApiError::bad_request(format_args!("the field `{key}` is not UTF-8"))
                })?;
                fields.push((key, text));
            }
        }
    }
    Ok(UploadedForm { fields, content, _held: held })
}

/// A form without a file.
async fn urlencoded(ask: &Ask, holder: MemoryHolder, body: Body) -> Result<UploadedForm, ApiError> {
    let body = body::held(&ask.app, &ask.head.headers, holder, body, FIELD_BYTES_MAX).await?;
    let (bytes, mut held) = body.into_parts();
    held.hold(bytes.len() * COPIES).map_err(HttpError::from)?;
    let fields: Vec<_> = form_urlencoded::parse(&bytes).into_owned().take(FIELDS_MAX + 1).collect();
    if fields.len() > FIELDS_MAX {
        return Err(ApiError::bad_request(format_args!(
            "the form has more than {FIELDS_MAX} fields"
        )));
    }
    Ok(UploadedForm { fields, content: None, _held: held })
}

fn too_large(bytes_max: u64) -> ApiError {
    let text = format!("the file is too large: at most {bytes_max} bytes are allowed");
    ApiError::Said(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn unwritable(error: BlobError, bytes_max: u64) -> ApiError {
    if matches!(error, BlobError::TooLarge { .. }) {
        return too_large(bytes_max);
    }
    tracing::error!(%error, "an uploaded file cannot be stored");
    HttpError::unavailable("the file cannot be stored now; nothing was written", 5).into()
}

/// Registers a release, or replaces its metadata.
async fn submit(ask: &Ask, stage: StageName, form: &UploadForm) -> Result<Response, ApiError> {
    let version = form
        .version
        .clone()
        .ok_or_else(|| ApiError::bad_request("invalid metadata: no version"))?;
    let metadata = put_json(ask, &form.metadata.clone().with_empty_fields()).await?;
    let project = form.project.clone();
    let registering = RegisterRelease { stage, project, version, metadata };
    carry_out(ask, |_| ready(Ok(registering.clone()))).await?;
    Ok(accepted())
}

/// Adds a release file, or documentation.
async fn file(
    ask: &Ask,
    stage: &StageName,
    form: &UploadForm,
    content: Content,
    attestations: Option<&str>,
) -> Result<Response, ApiError> {
    form.digests.verify(&content.digests).map_err(ApiError::bad_request)?;
    let version = match &form.version {
        Some(version) => version.clone(),
        None => {
            let stored = ask.app.stored()?;
            latest(&stored, stage, form.project.as_str()).ok_or_else(|| {
                let name = form.metadata.text("name");
                ApiError::bad_request(format_args!(
                    "doczip has no version and '{name}' has no releases to derive one from"
                ))
            })?
        }
    };
    let mut is_opened = true;
    let filename = match form.filename(&content.filename, &version) {
        // No installer knows such a file, so it is not opened.
        Err(_) if ask.app.config.python.devpi_defaults => {
            is_opened = false;
            form.filename_for_devpi(&content.filename, &version)
        }
        checked => checked,
    };
    let filename = filename.map_err(ApiError::bad_request)?;
    let Content { staged, digests, .. } = content;
    let is_release = form.action == UploadAction::FileUpload;
    let attestations = attestations.filter(|text| is_release && !text.trim().is_empty());
    let attestations = match attestations {
        Some(text) => Attestations::read(text, filename.as_str(), &digests.sha256),
        None => Ok(None),
    };
    let (provenance, is_attested) = match attestations.map_err(ApiError::bad_request)? {
        Some(attestations) => {
            let signed = signer(ask, &attestations, digests.sha256).await?;
            (Some(Bytes::from(attestations.provenance(signed.as_ref()))), signed.is_some())
        }
        None => (None, false),
    };
    // Documentation of a version that is named registers it, as a file does.
    let registers = is_release || form.version.is_some();
    let inside = match is_release {
        true if !is_opened => Inside::default(),
        true => inspected(ask, form, &staged, &filename).await?,
        false => {
            check_zip(ask, &staged).await?;
            Inside::default()
        }
    };
    let core_metadata = inside.core_metadata;
    let upload = UploadFile {
        stage: stage.clone(),
        project: form.project.clone(),
        version: version.clone(),
        filename,
        role: if is_release { FileRole::Release } else { FileRole::Docs },
        digest: digests.sha256,
        size_bytes: digests.size_bytes,
        // Installers use the wheel's own metadata.
        requires_python: match &inside.metadata {
            Some(metadata) => metadata.requires_python(),
            None => form.metadata.requires_python().filter(|_| is_release),
        }
        .map(str::to_owned),
        core_metadata: core_metadata.as_ref().map(|bytes| Digest::of(bytes)),
        provenance: provenance.as_ref().map(|bytes| Digest::of(bytes)),
        is_attested,
        metadata: None,
    };
    // A conflict is reported before anything is kept, on the newest state, since the body may have taken long.
    if upload.foresee(&ask.basis().await?)? == Some(UploadOutcome::Identical) {
        return Ok(identical());
    }
    staged.persist().await.map_err(|error| unwritable(error, 0))?;
    for bytes in [core_metadata, provenance].into_iter().flatten() {
        put(ask, bytes).await.map_err(Refusal::Blobs)?;
    }
    let (upload, version) = (&upload, &version);
    let uploading = carry_out(ask, |basis| async move {
        let metadata = match registers {
            true => Some(merged(ask, &basis.stored, stage, form, version).await?),
            false => None,
        };
        Ok(UploadFile { metadata, ..upload.clone() })
    });
    Ok(match uploading.await? {
        UploadOutcome::Identical => identical(),
        UploadOutcome::Stored => accepted(),
    })
}

/// The job of a CI system that uploads, if it has signed all of the attestations. They are not verified if somebody else uploads: no
/// identity is known then that they would have to be of.
async fn signer(
    ask: &Ask,
    attestations: &Attestations<'_>,
    sha256: Digest,
) -> Result<Option<CiIdentity>, ApiError> {
    let metrics = &ask.app.metrics.python;
    let asked = ask.asked().await?;
    let job = asked.principal().publisher().map(|token| &token.identity);
    let Some(job) = job.filter(|job| can_attest(job.kind)).cloned() else {
        metrics.attested("unverified");
        return Ok(None);
    };
    let texts: Vec<String> = attestations.texts().map(str::to_owned).collect();
    let app = ask.app.clone();
    let looking = move || {
        let check = |(at, text): (usize, &String)| {
            let checked = app.python.attestations.check(text, &sha256, &job);
            checked.map_err(|error| format!("invalid attestations: number {}: {error}", at + 1))
        };
        texts.iter().enumerate().try_for_each(check).map(|()| job)
    };
    match ask.app.limits.bodies.parsing.run(looking).await {
        Ok(job) => {
            metrics.attested("verified");
            Ok(Some(job))
        }
        Err(text) => {
            metrics.attested("refused");
            Err(ApiError::bad_request(text))
        }
    }
}

/// The newest version that the stage itself has of the project.
fn latest(stored: &Stored, stage: &StageName, project: &str) -> Option<Version> {
    let versions = pypi::devpi::versions(&stored.index, stage.as_str(), project, true)?;
    versions.first().map(|view| view.version.clone())
}

/// The facts inside a release file.
#[derive(Default)]
struct Inside {
    metadata: Option<Metadata>,
    /// The original bytes of a wheel's metadata: installers read them beside the wheel.
    core_metadata: Option<Bytes>,
}

/// Opens the archive, on a thread that may take long, and checks that its metadata agrees with the form.
async fn inspected(
    ask: &Ask,
    form: &UploadForm,
    staged: &SpooledBlob,
    filename: &Filename,
) -> Result<Inside, ApiError> {
    let opened = staged.file().map_err(|error| unwritable(error, 0))?;
    let (size_bytes, name) = (staged.size_bytes, filename.clone());
    let looking =
        move || inspect(FileReader::from(opened), size_bytes, &name, &ArchiveLimits::default());
    let facts = ask.app.limits.bodies.parsing.run(looking).await;
    // devpi does not open files, and its own tests upload files that are no archives.
    if matches!(facts, Err(ArchiveError::Unreadable { .. })) && ask.app.config.python.devpi_defaults
    {
        return Ok(Inside::default());
    }
    let facts = facts.map_err(unfit)?;
    let metadata = facts.core_metadata().map_err(ApiError::bad_request)?;
    if let Some(metadata) = &metadata {
        form.metadata.check_file(facts.metadata_name, metadata).map_err(ApiError::bad_request)?;
    }
    if filename.kind() != pypi::FileKind::Wheel {
        return Ok(Inside::default());
    }
    Ok(Inside { metadata, core_metadata: facts.metadata.map(Bytes::from) })
}

/// Opens documentation: a zip that every reader sees the same way, and that leads nowhere else.
async fn check_zip(ask: &Ask, staged: &SpooledBlob) -> Result<(), ApiError> {
    let opened = staged.file().map_err(|error| unwritable(error, 0))?;
    let size_bytes = staged.size_bytes;
    let looking = move || {
        SafeZip::open(FileReader::from(opened), size_bytes, &ArchiveLimits::default()).map(|_| ())
    };
    match ask.app.limits.bodies.parsing.run(looking).await {
        Err(ArchiveError::Unreadable { .. }) if ask.app.config.python.devpi_defaults => Ok(()),
        outcome => outcome.map_err(unfit),
    }
}

/// Why an archive is refused.
fn unfit(error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Io(error) => {
            tracing::error!(%error, "an upload cannot be read");
            HttpError::unavailable("the file cannot be read now; nothing was written", 5).into()
        }
        error => ApiError::bad_request(error),
    }
}

/// The stored metadata of the release merged with that of this file, as a stored blob.
async fn merged(
    ask: &Ask,
    stored: &Stored,
    stage: &StageName,
    form: &UploadForm,
    version: &Version,
) -> Result<Digest, Refusal> {
    let known = stored.index.stage(stage.as_str());
    let known = known.and_then(|stage| stage.project(form.project.as_str()));
    let known = known.and_then(|project| project.release(version.as_str()));
    let mut metadata = match known {
        Some(release) => read_metadata(ask, release.metadata).await.map_err(Refusal::Blobs)?,
        None => Metadata::default().with_empty_fields(),
    };
    metadata.merge(form.metadata.clone());
    put_json(ask, &metadata).await
}

async fn read_metadata(ask: &Ask, digest: Digest) -> Result<Metadata, BlobError> {
    let bytes = ask.app.store.blobs.bytes(digest, release_metadata::BYTES_MAX).await?;
    let json = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    // If the stored metadata is lost, this upload replaces it.
    Ok(json.and_then(|json| Metadata::from_json(&json).ok()).unwrap_or_default())
}

async fn put_json(ask: &Ask, metadata: &Metadata) -> Result<Digest, Refusal> {
    let bytes = release_metadata::blob(metadata)?;
    put(ask, bytes).await.map_err(Refusal::Blobs)
}

async fn put(ask: &Ask, bytes: Bytes) -> Result<Digest, BlobError> {
    Ok(ask.app.store.blobs.put(bytes).await?.digest)
}

/// The success that twine and devpi's client expect: 200, without a body.
fn accepted() -> Response {
    Response::new(Body::empty())
}

fn identical() -> Response {
    let mut response = accepted();
    reply::set_reason(&mut response, "Upload of identical file to non volatile index.");
    response
}
