//! Release files, and the other files under `+f`: by range, cacheable forever, or gone.

mod downloaded;
pub(crate) mod mirrored;

use std::time::SystemTime;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use operations::releases::DeleteFile;
use operations::rights::{remover, tester};
use operations::uploads::AddToxResult;
use pypi::attestation::PROVENANCE_TYPE;
use pypi::devpi::FileMeta;
use pypi::upstream::MirrorPath;
use pypi::{ChangeError, FileLookup, FileRefusal, FileRole, ReleaseFile, ResolutionOrder, Stage};
use record::Digest;
use serde::de::IgnoredAny;
use store::blobs::BlobVerdict;
use store::{BlobError, BlobReader};

use super::ask::Ask;
use super::error::ApiError;
use super::names::{FilePath, Names};
use super::policy::{self, ServedFile};
use super::reply;
use super::rights::{IndexPart, admit, admit_to_file};
use super::write::whole_body;
use crate::front::auth;
use crate::front::body::{BodyError, Shape, parsed};
use crate::front::conditional::{
    RangeAnswer, content_range, is_current, last_modified, unsatisfiable, wanted,
};
use crate::front::error::HttpError;
use crate::front::outside::is_of_proxy;
use crate::front::respond::blob_range;
use crate::routes::Endpoint;

/// nginx sends the file at the internal location in this header instead of the body.
const X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");

/// A file never changes under its URL.
const FOR_EVER: &str = "max-age=365000000, immutable, public";
const FOR_EVER_PRIVATE: &str = "max-age=365000000, immutable, private";

/// For the files beside a release file, which may change.
const CHANGING: &str = "max-age=0, must-revalidate";
const CHANGING_PRIVATE: &str = "private, max-age=0, must-revalidate";

/// Devpi's text for a file that the stage once had.
const REMOVED: &str = "file existed, deleted in later serial";

/// Room for the headers of a file, so that their map grows once.
const HEADERS_MAX: usize = 15;

/// How deep the JSON of a test result may be nested; Python's parser fails at a depth little above that.
const TOX_RESULT_DEPTH_MAX: usize = 128;

/// The file at a path of one of the kinds that files have.
pub(crate) async fn get_file(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let Names { stage, file, .. } = names;
    // Files without a digest belong to mirrors.
    let place = match names.place.first() {
        Endpoint::FindUpstreamFile => MirrorPath::of_upstream(&file.names),
        Endpoint::FindExternalFile => MirrorPath::of_external(&file.names),
        _ => return download_file(ask, stage, file).await,
    };
    mirrored::find(ask, stage, file, place).await
}

/// `/{user}/{index}/+f/{abc}/{0123456789abc}/{filename}`
pub(crate) async fn download_file(
    ask: &Ask,
    stage: &str,
    path: &FilePath,
) -> Result<Response, ApiError> {
    let none = || Ok(reply::refusal(ask, StatusCode::NOT_FOUND, "no such file"));
    let Some(stage) = ask.stored.index.stage(stage) else { return none() };
    let Some((directory, filename)) = path.place() else { return none() };
    let found = stage.file(directory, filename);
    let is_public = stage.config().is_public();
    admit_to_file(ask, stage, IndexPart::File(path.place())).await?;
    if let Some(refused) = policy::refusal_of_own(stage, &found) {
        return Ok(policy::refused(ask, filename, &refused).await);
    }
    match found {
        FileLookup::Found { file, project, .. } if ask.wants_json() => {
            let meta = FileMeta { project: &project, file: &file };
            Ok(reply::result(StatusCode::OK, "releasefilemeta", meta, None))
        }
        FileLookup::Found { file, project, .. } => {
            if file.role() == FileRole::Release {
                policy::note_given(ask, stage, stage, &project, ServedFile::Own(&file)).await;
            }
            let (size_bytes, media_type) = (Some(file.size_bytes()), content_type(filename));
            let digest = *file.digest();
            let response = send(ask, &file, digest, size_bytes, media_type, is_public).await?;
            if file.role() == FileRole::Release {
                downloaded::note(ask, &response, stage, &project, file.version());
            }
            Ok(response)
        }
        FileLookup::CoreMetadata { file, .. } => match file.core_metadata() {
            Some(digest) => {
                let media_type = "application/octet-stream";
                Ok(send(ask, &file, digest, None, media_type, is_public).await?)
            }
            None => none(),
        },
        FileLookup::Provenance { file, .. } => match file.provenance() {
            Some(digest) => Ok(provenance(ask, &file, *digest, is_public).await?),
            None => none(),
        },
        // A base may still have a file that the stage itself removed: pages of a stage with a policy link all files below the
        // stage. Without a policy nothing links there any more, and 410 says that the file was removed, as devpi does.
        FileLookup::Gone if !has_policy(ask, stage) => {
            Ok(reply::refusal(ask, StatusCode::GONE, REMOVED))
        }
        found @ (FileLookup::Gone | FileLookup::Absent) => {
            if let Some(response) = inherited(ask, stage, path).await? {
                return Ok(response);
            }
            let answer = match MirrorPath::of_digest(&path.names) {
                Some(place) => mirrored::answered(ask, stage, place).await?,
                None => none()?,
            };
            let is_gone = matches!(found, FileLookup::Gone);
            Ok(match is_gone && answer.status() == StatusCode::NOT_FOUND {
                true => reply::refusal(ask, StatusCode::GONE, REMOVED),
                false => answer,
            })
        }
    }
}

/// Whether the stage, or one of its bases, has a policy.
fn has_policy(ask: &Ask, stage: &Stage) -> bool {
    let order = ResolutionOrder::of(&ask.stored.index, stage.name().as_str());
    order.is_some_and(|order| order.has_policy())
}

/// A file of one of the bases, linked below this stage because the stage has a policy; `None` if no base has it.
async fn inherited(
    ask: &Ask,
    stage: &Stage,
    path: &FilePath,
) -> Result<Option<Response>, HttpError> {
    if stage.config().bases().is_empty() {
        return Ok(None);
    }
    let Some((directory, filename)) = path.place() else { return Ok(None) };
    let order = ResolutionOrder::of(&ask.stored.index, stage.name().as_str());
    let Some(order) = order else { return Ok(None) };
    for base in order.stages().iter().skip(1).filter(|base| !base.config().is_mirror()) {
        let found = base.file(directory, filename);
        let (FileLookup::Found { file, project, .. }
        | FileLookup::CoreMetadata { file, project, .. }
        | FileLookup::Provenance { file, project, .. }) = &found
        else {
            continue;
        };
        admit(ask, &order, IndexPart::Project(Some(project))).await?;
        let view = order.project(project.as_str());
        // A nearer file with this name hides it.
        let Some(part) = view.as_ref().and_then(|view| view.part_with(file.filename())) else {
            continue;
        };
        if part.stage.name() != base.name() {
            continue;
        }
        let refused = match part.project.is_quarantined() {
            true => Some(FileRefusal::by_status(base.name(), part.project)),
            false => policy::judge(stage, base, project)
                .and_then(|judge| judge.refusal_of_own(base.name(), file)),
        };
        if let Some(refused) = refused {
            return Ok(Some(policy::refused(ask, filename, &refused).await));
        }
        let is_public = order.readers().is_empty();
        let response = match (&found, file.core_metadata()) {
            (FileLookup::Found { .. }, _) if ask.wants_json() => {
                let meta = FileMeta { project, file };
                reply::result(StatusCode::OK, "releasefilemeta", meta, None)
            }
            (FileLookup::CoreMetadata { .. }, Some(digest)) => {
                let media_type = "application/octet-stream";
                send(ask, file, digest, None, media_type, is_public).await?
            }
            (FileLookup::Provenance { .. }, _) => match file.provenance() {
                Some(digest) => provenance(ask, file, *digest, is_public).await?,
                None => continue,
            },
            _ => {
                policy::note_given(ask, stage, base, project, ServedFile::Own(file)).await;
                let (size_bytes, media_type) = (Some(file.size_bytes()), content_type(filename));
                let digest = *file.digest();
                let response = send(ask, file, digest, size_bytes, media_type, is_public).await?;
                if file.role() == FileRole::Release {
                    downloaded::note(ask, &response, base, project, file.version());
                }
                response
            }
        };
        return Ok(Some(response));
    }
    Ok(None)
}

/// The provenance of a file. It may be added or changed after the file.
async fn provenance(
    ask: &Ask,
    file: &ReleaseFile,
    digest: Digest,
    is_public: bool,
) -> Result<Response, HttpError> {
    let mut response = send(ask, file, digest, None, PROVENANCE_TYPE, is_public).await?;
    let caching = if is_public { CHANGING } else { CHANGING_PRIVATE };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    Ok(response)
}

/// `DELETE` of a file; a test result and documentation, too.
pub(crate) async fn delete_file(
    ask: &Ask,
    stage: &str,
    path: &FilePath,
) -> Result<Response, ApiError> {
    let stage = ask.stage_name(stage)?;
    remover::<DeleteFile>(&ask.asked().await?, &stage, IndexPart::File(path.place()))?;
    let shown = format!("{stage}/+f/{}", path.joined());
    let file = path.file().ok_or_else(|| ChangeError::NoFile { path: shown.clone() })?;
    let force = ask.has_flag("force");
    ask.carry_out(&DeleteFile { stage, file, force }).await?;
    Ok(reply::message(StatusCode::OK, &format!("package '{shown}' deleted")))
}

/// `POST` of a test result to the file that was tested.
pub(crate) async fn add_tox_result(
    ask: &Ask,
    stage: &str,
    path: &FilePath,
    body: Body,
) -> Result<Response, ApiError> {
    let (stage, asked, place) = (ask.stage_name(stage)?, ask.asked().await?, path.file());
    let found = tester(&asked, &stage, IndexPart::File(path.place()))?;
    let path = format!("{stage}/+f/{}", path.joined());
    let missing = || ChangeError::NoReleaseFile { path: path.clone() };
    let file = place.ok_or_else(missing)?;
    // A missing file is reported before the body is read.
    let is_release = |lookup: &FileLookup| matches!(lookup, FileLookup::Found { file, .. } if file.role() == FileRole::Release);
    if !is_release(&found.file(file.directory, &file.filename)) {
        return Err(missing().into());
    }
    let principal = asked.principal().clone();
    auth::admit_to_disk(&ask.app, &principal).await?;
    let bytes_max = ask.app.config.python.tox_result_bytes_max;
    let body = whole_body(ask, &principal, body, bytes_max).await?;
    let (bytes, held) = body.into_parts();
    // Its memory counts until it has been looked at, even if the client leaves.
    let looked_at = bytes.clone();
    let looking = move || (is_flat_json(&looked_at), held);
    let (is_flat, _held) = parsed(&ask.app, bytes.len(), looking).await;
    if !is_flat {
        return Err(BodyError::NotJson.into());
    }
    let blob = ask.app.store.blobs.put(bytes).await.map_err(|error| {
        tracing::error!(%error, "a test result cannot be stored");
        HttpError::unavailable("the test result cannot be stored now; nothing was written", 5)
    })?;
    let (digest, size_bytes) = (blob.digest, blob.size_bytes);
    let path = ask.carry_out(&AddToxResult { stage, file, digest, size_bytes }).await?;
    // As in a link, the digest follows the path.
    let path = format!("{path}#sha256={}", blob.digest);
    Ok(reply::result(StatusCode::OK, "toxresultpath", path, None))
}

/// Whether these bytes are JSON of a moderate depth; no value is built.
fn is_flat_json(bytes: &[u8]) -> bool {
    Shape::of(bytes).depth <= TOX_RESULT_DEPTH_MAX
        && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// Where a file's bytes come from.
enum Source {
    Memory(Bytes),
    Store(BlobReader),
}

/// Where a trusted proxy finds the blob, if it is to send files itself and they are in a directory. Other clients could not use
/// the location.
fn accelerated(ask: &Ask, digest: &Digest) -> Option<String> {
    if !is_of_proxy(&ask.app, &ask.head) {
        return None;
    }
    let prefix = ask.app.config.python.accel_redirect.as_ref()?.to_str()?;
    ask.app.store.blobs.local_path(*digest)?;
    let text = digest.to_string();
    Some(format!("{}/sha256/{}/{}/{text}", prefix.trim_end_matches('/'), &text[..2], &text[2..4]))
}

/// The response that tells a proxy to send the file; it answers ranges itself.
fn handed_over(
    place: String,
    etag: &str,
    modified_at: SystemTime,
    content_type: &str,
    is_public: bool,
) -> Response {
    let mut response = Response::new(Body::empty());
    insert_headers(response.headers_mut(), etag, modified_at, content_type, is_public);
    if let Ok(place) = HeaderValue::try_from(place) {
        response.headers_mut().insert(X_ACCEL_REDIRECT, place);
    }
    response
}

fn insert_headers(
    headers: &mut HeaderMap,
    etag: &str,
    modified_at: SystemTime,
    content_type: &str,
    is_public: bool,
) {
    headers.insert(LAST_MODIFIED, last_modified(modified_at));
    let texts = [(ETAG, etag), (CONTENT_TYPE, content_type)];
    for (name, value) in texts {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    let caching = if is_public { FOR_EVER } else { FOR_EVER_PRIVATE };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
}

async fn send(
    ask: &Ask,
    file: &ReleaseFile,
    digest: Digest,
    size_bytes: Option<u64>,
    content_type: &str,
    is_public: bool,
) -> Result<Response, HttpError> {
    let request = &ask.head.headers;
    let etag = format!("\"sha256-{digest}\"");
    let modified_at = SystemTime::from(file.uploaded_at());
    let blobs = &ask.app.store.blobs;
    let mut response = if is_current(request, &etag, Some(modified_at))? {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let unreadable = |error: BlobError| {
            tracing::error!(%error, "a file cannot be read");
            if matches!(error, BlobError::Damaged { .. }) {
                return HttpError::damaged("file");
            }
            HttpError::unavailable("the file cannot be read now; it has been logged", 5)
        };
        // Metadata is small, or it would not have been taken.
        let likely_bytes = size_bytes.unwrap_or(0);
        let small = ask
            .app
            .python
            .small_files
            .load(blobs, &digest, likely_bytes)
            .await
            .map_err(unreadable)?;
        if small.is_none()
            && let Some(place) = accelerated(ask, &digest)
            // A proxy finds only what is here.
            && (!blobs.has_origin() || blobs.bring(digest).await.map_err(unreadable)?)
        {
            return Ok(handed_over(place, &etag, modified_at, content_type, is_public));
        }
        let blob = match small {
            Some(_) => None,
            None => Some(blobs.open_blob(digest).await.map_err(unreadable)?),
        };
        let missing = || {
            blobs.note(digest, BlobVerdict::Missing);
            HttpError::lost("file")
        };
        let source = match (small, blob) {
            (Some(bytes), _) => Source::Memory(bytes),
            (None, blob) => Source::Store(blob.flatten().ok_or_else(missing)?),
        };
        let known_bytes = size_bytes;
        let size_bytes = match &source {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::Store(blob) => blob.size_bytes(),
        };
        if let Some(expected) = known_bytes.filter(|known| *known != size_bytes) {
            tracing::error!(%digest, expected, found = size_bytes, "a file in the store is truncated");
            return Err(HttpError::damaged("file"));
        }
        let (start, end, status) = match wanted(request, &etag, Some(modified_at), size_bytes) {
            RangeAnswer::Whole => (0, size_bytes, StatusCode::OK),
            RangeAnswer::Part { start, end } => (start, end, StatusCode::PARTIAL_CONTENT),
            RangeAnswer::Unsatisfiable => return Ok(unsatisfiable(size_bytes)),
        };
        let mut response = match &source {
            Source::Memory(bytes) => {
                let bytes = bytes.slice(start as usize..end as usize);
                let mut response = Response::new(Body::from(bytes));
                response.headers_mut().reserve(HEADERS_MAX);
                response.headers_mut().insert(CONTENT_LENGTH, (end - start).into());
                response
            }
            Source::Store(blob) => blob_range(blob, start..end),
        };
        response.headers_mut().reserve(HEADERS_MAX);
        *response.status_mut() = status;
        if status == StatusCode::PARTIAL_CONTENT {
            content_range(response.headers_mut(), start, end, size_bytes);
        }
        response
    };
    insert_headers(response.headers_mut(), &etag, modified_at, content_type, is_public);
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(response)
}

/// The media type by the name's extension, as Python's `mimetypes` has it; this server never looks into the file.
fn content_type(filename: &str) -> &'static str {
    let name = filename.to_ascii_lowercase();
    let types = [
        (".tar.gz", "application/x-tar"),
        (".tgz", "application/x-tar"),
        (".tar.bz2", "application/x-tar"),
        (".zip", "application/zip"),
        (".exe", "application/octet-stream"),
        (".json", "application/json"),
    ];
    let known = types.iter().find(|(end, _)| name.ends_with(end));
    known.map_or("application/octet-stream", |(_, content_type)| content_type)
}
