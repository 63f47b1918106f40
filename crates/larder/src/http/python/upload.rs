//! Uploads: forms with release files, registrations and documentation.
//!
//! who -> fields -> bytes, spooled and digested as they come -> digests and archive checked -> kept -> one commit -> visible in
//! every page -> acknowledged. Every refusal comes before a byte is kept. It is in the reason phrase as well, where older
//! clients look for it.

use account::{Portion, Principal, Scope, UserName};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use pypi::archive::{ArchiveError, ArchiveLimits, SafeZip, inspect};
use pypi::attestation;
use pypi::change::upload as change;
use pypi::{
    DigestHasher, FileDigests, FileRole, Filename, Metadata, Stage, StageName, UploadAction,
    UploadForm, Version,
};
use rawzip::FileReader;
use record::Digest;
use resources::bodies::{Held, Holder};
use state::release_metadata;
use state::stored::{Basis, Refusing, Stored, WriteFailure};
use store::{BlobError, SpooledBlob};

use super::ask::Ask;
use super::reply;
use super::rights::{About, cause, no_replacing, not_listed};
use super::route::Route;
use super::write::{self, decided};
use crate::http::auth;
use crate::http::body::{self, BodyError, announced, client};
use crate::http::error::HttpError;
use crate::http::multipart::{self, FormReader};

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
struct Arrived {
    fields: Vec<(String, String)>,
    content: Option<Content>,
    /// The memory of the fields.
    _held: Held,
}

/// Its file.
struct Content {
    filename: String,
    staged: SpooledBlob,
    digests: FileDigests,
}

/// A refusal of this surface, or a failure of the server itself.
enum Refused {
    Upload(StatusCode, String),
    Failure(HttpError),
}

impl From<HttpError> for Refused {
    fn from(error: HttpError) -> Refused {
        Refused::Failure(error)
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Refused {
        match error {
            BodyError::NoRoom(error) => Refused::Failure(error.into()),
            error => Refused::Upload(error.status(), error.to_string()),
        }
    }
}

impl Refusing for Refused {
    fn is_about_state(&self) -> bool {
        match self {
            Refused::Upload(status, _) => auth::is_about_state(*status),
            Refused::Failure(error) => error.is_about_state(),
        }
    }
}

impl From<WriteFailure> for Refused {
    fn from(failure: WriteFailure) -> Refused {
        Refused::Failure(failure.into())
    }
}

fn bad(error: impl std::fmt::Display) -> Refused {
    Refused::Upload(StatusCode::BAD_REQUEST, error.to_string())
}

fn refused(error: pypi::ChangeError) -> Refused {
    Refused::Upload(write::status(&error), error.to_string())
}

/// `POST /{user}/{index}/` with a form.
pub(super) async fn upload_file(
    ask: &Ask,
    stage: &str,
    body: Body,
) -> Result<Response, super::write::Refused> {
    let metrics = &ask.app.metrics.python;
    match take(ask, stage, body).await {
        Ok(response) => {
            metrics.uploaded("stored");
            Ok(response)
        }
        Err(Refused::Upload(status, text)) => {
            metrics.uploaded("refused");
            let mut response = reply::upload_refusal(ask, status, &text);
            if status == StatusCode::UNAUTHORIZED {
                let challenge = HeaderValue::from_static("Basic realm=\"pypi\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
            Ok(response)
        }
        Err(Refused::Failure(error)) => Err(error.into()),
    }
}

/// Whether `Content-Type` says that the body is a form.
pub(super) fn is_form(ask: &Ask) -> bool {
    let content_type = ask.header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    ["multipart/form-data", "application/x-www-form-urlencoded"]
        .iter()
        .any(|form| content_type.starts_with(form))
}

/// 405 for a path without uploads, with the right URL: the index is missing in this one, or a project is too much.
pub(super) fn no_uploads(ask: &Ask, route: &Route) -> Response {
    let root = &ask.root_url;
    let (what, example) = match (route.user.as_str(), route.stage.as_str()) {
        ("", _) => ("`/`".to_owned(), format!("{root}/USER/INDEX/")),
        (user, "") => (format!("the user `{user}`"), format!("{root}/{user}/INDEX/")),
        (_, stage) => ("a project".to_owned(), format!("{root}/{stage}/")),
    };
    let text = format!("nothing can be uploaded to {what}: uploads go to an index, at {example}");
    let mut response = reply::upload_refusal(ask, StatusCode::METHOD_NOT_ALLOWED, &text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(route.place.allow()));
    response
}

async fn take(ask: &Ask, stage: &str, body: Body) -> Result<Response, Refused> {
    let found = ask.stored.index.stage(stage).ok_or_else(|| {
        let (status, text, _) = HttpError::unknown_stage(stage).into_facts();
        Refused::Upload(status, text)
    })?;
    if found.config().is_mirror() {
        let text = "cannot submit to mirror index".to_owned();
        return Err(Refused::Upload(StatusCode::NOT_FOUND, text));
    }
    let (principal, reason) = match ask.identified().await? {
        Ok(principal) => (principal.clone(), None),
        Err(reason) => (Principal::Anonymous, Some(reason.as_str())),
    };
    check_uploader(ask, found, &principal, About::NotYetKnown, reason)?;
    let name = found.name().clone();
    auth::admit_to_disk(&ask.app, &principal).await?;
    let arrived = arrive(ask, principal.user_name().cloned(), body).await?;
    // The right is checked again: it may have been lost while the body came.
    admitted(ask, &name, About::NotYetKnown).await?;
    let fields = arrived.fields.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let form = UploadForm::read(fields, arrived.content.is_some()).map_err(bad)?;
    admitted(ask, &name, About::Project(Some(&form.project))).await?;
    match form.action {
        UploadAction::Submit => submit(ask, &name, &form).await,
        UploadAction::FileUpload | UploadAction::DocUpload => {
            // The form was read with a content.
            let content = arrived.content.ok_or_else(|| bad("content file field not found"))?;
            let attestations = arrived.fields.iter().find(|(key, _)| key == "attestations");
            let attestations = attestations.map(|(_, text)| text.as_str());
            file(ask, &name, &form, content, attestations).await
        }
    }
}

/// The newest state, if the sender may upload into that stage.
async fn admitted(ask: &Ask, stage: &StageName, about: About<'_>) -> Result<Basis, Refused> {
    let basis = ask.basis().await?;
    admit(ask, &basis, stage, about).await?;
    Ok(basis)
}

/// Refuses senders who may not upload into that stage, as of `basis`.
async fn admit(
    ask: &Ask,
    basis: &Basis,
    stage: &StageName,
    about: About<'_>,
) -> Result<(), Refused> {
    // A stage that is gone is the decision's business.
    if let Some(stage) = basis.stored().index.stage(stage.as_str()) {
        let lost = basis.refusal().map(ToString::to_string);
        let never = ask.identified().await?.as_ref().err();
        let reason = lost.as_ref().or(never).map(String::as_str);
        check_uploader(ask, stage, basis.principal(), about, reason)?;
    }
    Ok(())
}

/// Refuses senders who may not upload. A sender whose credentials are refused for this `reason` counts as anonymous, and some
/// stages let everybody upload.
fn check_uploader(
    ask: &Ask,
    stage: &Stage,
    principal: &Principal,
    about: About<'_>,
    reason: Option<&str>,
) -> Result<(), Refused> {
    let project = about.of(stage);
    if stage.may_upload(principal, project.portion()) {
        return Ok(());
    }
    if principal.identity().is_none() {
        // Clients look for the word in the reason phrase.
        let needed = "to upload, a user and a password or a token are needed";
        let text = format!("Unauthorized: {}", reason.unwrap_or(needed));
        return Err(Refused::Upload(StatusCode::UNAUTHORIZED, text));
    }
    let list = || not_listed(principal, "acl_upload", stage.name());
    let object = stage.object(project.portion());
    let cause = cause(ask, principal, Scope::PythonUpload, object, list);
    Err(Refused::Upload(StatusCode::FORBIDDEN, format!("no permission to submit{cause}")))
}

/// Takes the form in: fields into memory, the file into a spool.
async fn arrive(ask: &Ask, who: Option<UserName>, body: Body) -> Result<Arrived, Refused> {
    let content_type = ask.header(CONTENT_TYPE).unwrap_or_default();
    let holder =
        who.map_or_else(|| Holder::Client(client(&ask.app, &ask.head).key()), Holder::User);
    let Ok(boundary) = multer::parse_boundary(content_type) else {
        return urlencoded(ask, holder, body).await;
    };
    let bytes_max = ask.app.config.python.file_bytes_max;
    let length = announced(&ask.head.headers);
    if length.is_some_and(|length| length > bytes_max.saturating_add(FIELD_BYTES_MAX as u64)) {
        return Err(too_large(bytes_max));
    }
    let mut held = ask.app.bodies.begin(holder).map_err(HttpError::from)?;
    let mut hold = |text_bytes: usize, spool_bytes: usize| {
        let bytes = FORM_BYTES + text_bytes * COPIES + spool_bytes.min(SPOOL_BYTES);
        held.hold(bytes).map_err(HttpError::from)
    };
    let (mut fields, mut content): (Vec<(String, String)>, Option<Content>) = Default::default();
    let (mut text_bytes, mut ignored_bytes) = (0, 0);
    hold(0, 0)?;
    let mut form = FormReader::new(body.into_data_stream(), boundary);
    let broken = |error: multer::Error| bad(format_args!("the form did not arrive whole: {error}"));
    while let Some(mut field) = form.next_field().await.map_err(bad)? {
        let key = field.name().unwrap_or_default().to_owned();
        let filename = multipart::file_name(&field);
        match filename {
            Some(filename) if key == "content" => {
                if content.is_some() {
                    return Err(bad("the form has two fields `content`, and one was expected"));
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
                        return Err(bad(format_args!("the file field `{key}` is too long")));
                    }
                }
            }
            None => {
                // A name is kept as its text is, and can be as long as a field's head.
                let mut count = |bytes: usize| -> Result<(), Refused> {
                    text_bytes += bytes;
                    if text_bytes > FIELD_BYTES_MAX {
                        return Err(bad(format_args!(
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
                    return Err(bad(format_args!("the form has more than {FIELDS_MAX} fields")));
                }
                let text = String::from_utf8(text)
                    .map_err(|_| bad(format_args!("the field `{key}` is not UTF-8")))?;
                fields.push((key, text));
            }
        }
    }
    Ok(Arrived { fields, content, _held: held })
}

/// A form without a file.
async fn urlencoded(ask: &Ask, holder: Holder, body: Body) -> Result<Arrived, Refused> {
    let body = body::held(&ask.app, &ask.head.headers, holder, body, FIELD_BYTES_MAX).await?;
    let (bytes, mut held) = body.into_parts();
    held.hold(bytes.len() * COPIES).map_err(HttpError::from)?;
    let fields: Vec<_> = form_urlencoded::parse(&bytes).into_owned().take(FIELDS_MAX + 1).collect();
    if fields.len() > FIELDS_MAX {
        return Err(bad(format_args!("the form has more than {FIELDS_MAX} fields")));
    }
    Ok(Arrived { fields, content: None, _held: held })
}

fn too_large(bytes_max: u64) -> Refused {
    let text = format!("the file is too large: at most {bytes_max} bytes are allowed");
    Refused::Upload(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn unwritable(error: BlobError, bytes_max: u64) -> Refused {
    if matches!(error, BlobError::TooLarge { .. }) {
        return too_large(bytes_max);
    }
    tracing::error!(%error, "an upload cannot be kept");
    HttpError::unavailable("the file cannot be kept now; nothing was written", 5).into()
}

/// Registers a release, or replaces its metadata.
async fn submit(ask: &Ask, stage: &StageName, form: &UploadForm) -> Result<Response, Refused> {
    let version = form.version.as_ref().ok_or_else(|| bad("invalid metadata: no version"))?;
    let metadata = form.metadata.clone().with_empty_fields();
    let digest = put_json(ask, &metadata).await?;
    decided(ask, |basis| async move {
        admit(ask, &basis, stage, About::Project(Some(&form.project))).await?;
        let index = &basis.stored().index;
        let decision = change::submit(index, stage, &form.project, version, digest);
        Ok::<_, Refused>((decision.map_err(refused)?.batch(), ()))
    })
    .await?;
    Ok(accepted())
}

/// Adds a release file, or documentation.
async fn file(
    ask: &Ask,
    stage: &StageName,
    form: &UploadForm,
    content: Content,
    attestations: Option<&str>,
) -> Result<Response, Refused> {
    form.digests.verify(&content.digests).map_err(bad)?;
    let about = About::Project(Some(&form.project));
    let version = match &form.version {
        Some(version) => version.clone(),
        None => {
            let basis = admitted(ask, stage, about).await?;
            latest(basis.stored(), stage, form.project.as_str()).ok_or_else(|| {
                let name = form.metadata.text("name");
                bad(format_args!(
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
    let filename = filename.map_err(bad)?;
    let Content { staged, digests, .. } = content;
    let is_release = form.action == UploadAction::FileUpload;
    let attestations = attestations.filter(|text| is_release && !text.trim().is_empty());
    let provenance = match attestations {
        Some(text) => attestation::provenance_of(text, filename.as_str(), &digests.sha256),
        None => Ok(None),
    };
    let provenance = provenance.map_err(bad)?.map(Bytes::from);
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
    let upload = change::FileUpload {
        stage,
        project: &form.project,
        version: &version,
        filename: &filename,
        role: if is_release { FileRole::Release } else { FileRole::Docs },
        digest: digests.sha256,
        size_bytes: digests.size_bytes,
        // Installers use the wheel's own metadata.
        requires_python: match &inside.metadata {
            Some(metadata) => metadata.requires_python(),
            None => form.metadata.requires_python().filter(|_| is_release),
        },
        core_metadata: core_metadata.as_ref().map(|bytes| Digest::of(bytes)),
        provenance: provenance.as_ref().map(|bytes| Digest::of(bytes)),
        metadata: None,
        who: None,
        at: Timestamp::now(),
        log: &[],
    };
    // A conflict is reported before anything is kept, on the newest state, since the body may have taken long.
    let first = admitted(ask, stage, about).await?;
    check_adding(&first, &upload)?;
    if change::is_kept(&first.stored().index, &upload).map_err(refused)? {
        return Ok(identical());
    }
    drop(first);
    staged.persist().await.map_err(|error| unwritable(error, 0))?;
    for bytes in [core_metadata, provenance].into_iter().flatten() {
        put(ask, bytes).await?;
    }
    let version = &version;
    let deciding = decided(ask, |basis| async move {
        admit(ask, &basis, stage, about).await?;
        let stored = basis.stored();
        let metadata = match registers {
            true => Some(merged(ask, stored, stage, form, version).await?),
            false => None,
        };
        let who = basis.principal().user_name();
        let upload = change::FileUpload { metadata, who, ..upload };
        check_adding(&basis, &upload)?;
        let batch = change::file(&stored.index, &upload).map_err(refused)?.batch();
        let is_identical = batch.is_none() && !is_volatile(stored, stage);
        Ok::<_, Refused>((batch, is_identical))
    });
    Ok(if deciding.await? { identical() } else { accepted() })
}

/// Refuses a token that may only add files, if the upload would replace one. If nobody may replace files in this stage, the
/// decision refuses the upload instead.
fn check_adding(basis: &Basis, upload: &change::FileUpload<'_>) -> Result<(), Refused> {
    let stored = basis.stored();
    let stage = stored.index.stage(upload.stage.as_str());
    let stage = stage.filter(|stage| stage.config().volatile);
    match stage {
        Some(stage)
            if !stage.may_replace(basis.principal(), Portion::Project(upload.project.as_str()))
                && change::replaces(&stored.index, upload) =>
        {
            let text = no_replacing(upload.filename.as_str());
            Err(Refused::Upload(StatusCode::FORBIDDEN, text))
        }
        _ => Ok(()),
    }
}

fn is_volatile(stored: &Stored, stage: &StageName) -> bool {
    stored.index.stage(stage.as_str()).is_some_and(|stage| stage.config().volatile)
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
) -> Result<Inside, Refused> {
    let opened = staged.file().map_err(|error| unwritable(error, 0))?;
    let (size_bytes, name) = (staged.size_bytes, filename.clone());
    let looking =
        move || inspect(FileReader::from(opened), size_bytes, &name, &ArchiveLimits::default());
    let facts = ask.app.bodies.parsing.run(looking).await;
    // devpi does not open files, and its own tests upload files that are no archives.
    if matches!(facts, Err(ArchiveError::Unreadable { .. })) && ask.app.config.python.devpi_defaults
    {
        return Ok(Inside::default());
    }
    let facts = facts.map_err(unfit)?;
    let metadata = facts.core_metadata().map_err(bad)?;
    if let Some(metadata) = &metadata {
        form.metadata.check_file(facts.metadata_name, metadata).map_err(bad)?;
    }
    if filename.kind() != pypi::FileKind::Wheel {
        return Ok(Inside::default());
    }
    Ok(Inside { metadata, core_metadata: facts.metadata.map(Bytes::from) })
}

/// Opens documentation: a zip that every reader sees the same way, and that leads nowhere else.
async fn check_zip(ask: &Ask, staged: &SpooledBlob) -> Result<(), Refused> {
    let opened = staged.file().map_err(|error| unwritable(error, 0))?;
    let size_bytes = staged.size_bytes;
    let looking = move || {
        SafeZip::open(FileReader::from(opened), size_bytes, &ArchiveLimits::default()).map(|_| ())
    };
    match ask.app.bodies.parsing.run(looking).await {
        Err(ArchiveError::Unreadable { .. }) if ask.app.config.python.devpi_defaults => Ok(()),
        outcome => outcome.map_err(unfit),
    }
}

/// Why an archive is refused.
fn unfit(error: ArchiveError) -> Refused {
    match error {
        ArchiveError::Io(error) => {
            tracing::error!(%error, "an upload cannot be read");
            HttpError::unavailable("the file cannot be read now; nothing was written", 5).into()
        }
        error => bad(error),
    }
}

/// The stored metadata of the release merged with that of this file, as a stored blob.
async fn merged(
    ask: &Ask,
    stored: &Stored,
    stage: &StageName,
    form: &UploadForm,
    version: &Version,
) -> Result<Digest, Refused> {
    let known = stored.index.stage(stage.as_str());
    let known = known.and_then(|stage| stage.project(form.project.as_str()));
    let known = known.and_then(|project| project.release(version.as_str()));
    let mut metadata = match known {
        Some(release) => read_metadata(ask, release.metadata).await?,
        None => Metadata::default().with_empty_fields(),
    };
    metadata.merge(form.metadata.clone());
    put_json(ask, &metadata).await
}

async fn read_metadata(ask: &Ask, digest: Digest) -> Result<Metadata, Refused> {
    let bytes = ask.app.store.blobs.bytes(digest, release_metadata::BYTES_MAX).await;
    let bytes = bytes.map_err(|error| {
        tracing::error!(%error, "a release's metadata cannot be read");
        HttpError::unavailable("the release's metadata cannot be read now", 5)
    })?;
    let json = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    // If the stored metadata is lost, this upload replaces it.
    Ok(json.and_then(|json| Metadata::from_json(&json).ok()).unwrap_or_default())
}

async fn put_json(ask: &Ask, metadata: &Metadata) -> Result<Digest, Refused> {
    put(ask, release_metadata::blob(metadata).map_err(bad)?).await
}

async fn put(ask: &Ask, bytes: Bytes) -> Result<Digest, Refused> {
    let blob = ask.app.store.blobs.put(bytes).await;
    Ok(blob.map_err(|error| unwritable(error, 0))?.digest)
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
