//! Files of mirrors, and of mirrors among the bases of a stage: below `+upstream`, and below devpi's `+f` and `+e`. A file that
//! a policy refuses is not sent.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, ETAG, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use mirrors::{Body as Source, FileAnswer, MirroredFile, UpstreamError};
use net::{FileRange, Pieces};
use pypi::upstream::{MirrorPath, UpstreamFile, projects_of};
use pypi::{Filename, ProjectName, ResolutionOrder, Stage, Version};

use super::{content_type, downloaded, insert_headers};
use crate::front::conditional::{
    RangeAnswer, check_expected, content_range, is_current, unsatisfiable, wanted,
};
use crate::front::error::HttpError;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::FilePath;
use crate::protocols::python::policy::{self, ServedFile};
use crate::protocols::python::reply;
use crate::protocols::python::rights::{IndexPart, admit, admit_to_file};
use crate::protocols::python::simple::mirrored::{failed, mirrors_of_one_project};

/// For a file without a digest from upstream: it may change under its URL.
const CHANGING: HeaderValue = HeaderValue::from_static("max-age=0, must-revalidate");
const CHANGING_PRIVATE: HeaderValue =
    HeaderValue::from_static("private, max-age=0, must-revalidate");

/// Answers for a place below a stage; the stage may not exist, or not be a mirror.
pub(crate) async fn find(
    ask: &Ask,
    stage: &str,
    path: &FilePath,
    place: Option<MirrorPath<'_>>,
) -> Result<Response, ApiError> {
    let Some(stage) = ask.stored.index.stage(stage) else { return Ok(none(ask)) };
    admit_to_file(ask, stage, IndexPart::File(path.place())).await?;
    match place {
        Some(place) => Ok(answered(ask, stage, place).await?),
        None => Ok(none(ask)),
    }
}

/// Answers for a place of a mirror to a server that follows this one, and judges by the same policy itself.
pub(crate) async fn for_follower(
    ask: &Ask,
    mirror: &Stage,
    place: MirrorPath<'_>,
) -> Result<Response, HttpError> {
    given(ask, mirror, &RequestedFile::At(place), false).await
}

/// Answers for a place, if the sender may read the stage.
pub(super) async fn answered(
    ask: &Ask,
    stage: &Stage,
    place: MirrorPath<'_>,
) -> Result<Response, HttpError> {
    if !stage.config().is_mirror() {
        return inherited(ask, stage, place).await;
    }
    if stage.config().policy.is_some() {
        let mut trouble = None;
        for project in projects_of(place.filename()) {
            match listed(ask, stage, stage, &project, &place).await {
                Ok(FileVerdict::Given(file)) => {
                    let is_public = stage.config().is_public();
                    return given_and_counted(ask, stage, &file.into(), is_public).await;
                }
                Ok(FileVerdict::Refused(response)) => return Ok(*response),
                Ok(FileVerdict::Absent | FileVerdict::Hidden) => {}
                Err(error) => trouble = Some(error),
            }
        }
        return trouble.map_or_else(|| Ok(none(ask)), Err);
    }
    given_and_counted(ask, stage, &RequestedFile::At(place), stage.config().is_public()).await
}

fn none(ask: &Ask) -> Response {
    reply::refusal(ask, StatusCode::NOT_FOUND, "no such file")
}

/// The file of a mirror among the bases, as pages of a stage with a policy link it. It asks upstream only what the stage's
/// pages would ask, too.
async fn inherited(ask: &Ask, stage: &Stage, place: MirrorPath<'_>) -> Result<Response, HttpError> {
    let order = ResolutionOrder::of(&ask.stored.index, stage.name().as_str());
    let Some(order) = order.filter(|order| order.has_mirror()) else { return Ok(none(ask)) };
    let mut trouble = None;
    for project in projects_of(place.filename()) {
        admit(ask, &order, IndexPart::Project(Some(&project))).await?;
        let own = order.project(project.as_str());
        // A file of ours with this name hides it.
        if own.is_some_and(|own| own.part_with(place.filename()).is_some()) {
            continue;
        }
        // The nearest mirror that has the project counts in any case: that does not depend on any other.
        let asked = order.mirrors_of(project.as_str()).asked;
        let mut counting: Option<Vec<&Arc<Stage>>> = None;
        for (position, mirror) in asked.into_iter().enumerate() {
            if position > 0 && counting.is_none() {
                match mirrors_of_one_project(ask, &order, &project).await {
                    Ok(found) => counting = Some(found),
                    Err(error) => {
                        trouble = Some(error);
                        break;
                    }
                }
            }
            let is_this = |it: &&Arc<Stage>| it.name() == mirror.name();
            if counting.as_ref().is_some_and(|counting| !counting.iter().any(is_this)) {
                continue;
            }
            match listed(ask, stage, mirror, &project, &place).await {
                Ok(FileVerdict::Given(file)) => {
                    let is_public = order.readers().is_empty();
                    return given_and_counted(ask, mirror, &file.into(), is_public).await;
                }
                Ok(FileVerdict::Refused(response)) => return Ok(*response),
                Ok(FileVerdict::Hidden) => break,
                Ok(FileVerdict::Absent) => {}
                Err(error) => trouble = Some(error),
            }
        }
    }
    trouble.map_or_else(|| Ok(none(ask)), Err)
}

/// What an upstream's page and the policies say about a place.
enum FileVerdict {
    /// The file is on the page, and the policies let it pass.
    Given(JudgedFile),
    /// The file is on the page, and a policy refuses it.
    Refused(Box<Response>),
    /// The page has another file with this name.
    Hidden,
    /// The page has no such file.
    Absent,
}

/// A file of an upstream's page that the policies let pass, or its metadata. No other is given in its place.
struct JudgedFile {
    project: ProjectName,
    file: Box<UpstreamFile>,
    is_metadata: bool,
}

/// The file to send.
enum RequestedFile<'path> {
    /// Upstream's file at this place.
    At(MirrorPath<'path>),
    /// This judged file.
    Judged(JudgedFile),
}

impl From<JudgedFile> for RequestedFile<'_> {
    fn from(file: JudgedFile) -> Self {
        RequestedFile::Judged(file)
    }
}

impl RequestedFile<'_> {
    /// The release that it is a file of; `None` for its metadata. Where only the name is known, it is the likeliest one.
    fn release(&self) -> Option<(ProjectName, Version)> {
        let (project, filename) = match self {
            RequestedFile::At(place) if place.is_of_metadata() => return None,
            RequestedFile::Judged(JudgedFile { is_metadata: true, .. }) => return None,
            RequestedFile::At(place) => {
                (projects_of(place.filename()).into_iter().next()?, place.filename())
            }
            RequestedFile::Judged(JudgedFile { project, file, .. }) => {
                (project.clone(), &*file.filename)
            }
        };
        let version = Filename::of_upstream(filename).ok()?.split(Some(&project))?.version?;
        Some((project, version))
    }
}

async fn listed(
    ask: &Ask,
    asked: &Stage,
    holder: &Stage,
    project: &ProjectName,
    place: &MirrorPath<'_>,
) -> Result<FileVerdict, HttpError> {
    let mirrors = &ask.app.python.mirrors;
    let Some(mirror) = mirrors.of(holder) else { return Ok(FileVerdict::Absent) };
    let page = mirrors.page_to_judge_by(&mirror, project).await;
    let page = page.map_err(|trouble| failed(holder.name().as_str(), &trouble))?;
    let Some(page) = page else { return Ok(FileVerdict::Absent) };
    let Some((file, is_metadata)) = page.file_at(place) else {
        let is_named = page.files.iter().any(|file| *file.filename == *place.filename());
        return Ok(if is_named { FileVerdict::Hidden } else { FileVerdict::Absent });
    };
    let refused = policy::refusal_of_upstream(asked, holder, project, &page, file);
    let file = Box::new(file.clone());
    // Who sent this may have to be found out, and the page may be large.
    drop(page);
    Ok(match refused {
        Some(refused) => {
            FileVerdict::Refused(policy::refused(ask, &file.filename, &refused).await.into())
        }
        None => {
            if !is_metadata {
                policy::note_given(ask, asked, holder, project, ServedFile::Upstreams(&file)).await;
            }
            FileVerdict::Given(JudgedFile { project: project.clone(), file, is_metadata })
        }
    })
}

/// [`given`] for a client whose downloads are counted.
async fn given_and_counted(
    ask: &Ask,
    stage: &Stage,
    wished: &RequestedFile<'_>,
    is_public: bool,
) -> Result<Response, HttpError> {
    let response = given(ask, stage, wished, is_public).await?;
    if let Some((project, version)) = wished.release() {
        downloaded::note(ask, &response, stage, &project, version.as_str());
    }
    Ok(response)
}

/// Asks the mirror for this file.
async fn given(
    ask: &Ask,
    stage: &Stage,
    wished: &RequestedFile<'_>,
    is_public: bool,
) -> Result<Response, HttpError> {
    let mirrors = &ask.app.python.mirrors;
    let Some(mirror) = mirrors.of(stage) else { return Ok(none(ask)) };
    let name = stage.name().as_str();
    let is_head = ask.head.method == Method::HEAD;
    let failed = |trouble: UpstreamError| failed(name, &trouble);
    let (answer, filename) = match wished {
        RequestedFile::At(place) => {
            (mirrors.file(&mirror, *place, is_head).await, place.filename())
        }
        RequestedFile::Judged(JudgedFile { project, file, is_metadata }) => {
            let answer = mirrors.listed_file(&mirror, project, file, *is_metadata, is_head);
            let answer = answer.await;
            (answer, &*file.filename)
        }
    };
    match answer.map_err(failed)? {
        FileAnswer::Absent => Ok(none(ask)),
        FileAnswer::Elsewhere(url) => {
            let mut response = StatusCode::FOUND.into_response();
            if let Ok(url) = HeaderValue::try_from(url) {
                response.headers_mut().insert(LOCATION, url);
            }
            Ok(response)
        }
        FileAnswer::File(file) => send(ask, name, file, filename, is_public).await,
    }
}

async fn send(
    ask: &Ask,
    stage: &str,
    mut file: MirroredFile,
    filename: &str,
    is_public: bool,
) -> Result<Response, HttpError> {
    let request = &ask.head.headers;
    // A part can be cut out only of a file whose size and digest are known.
    let is_part_wanted = request.contains_key(http::header::RANGE);
    if let Source::Arriving(arriving) = &mut file.body
        && is_part_wanted
        && (file.size_bytes.is_none() || file.sha256.is_none())
    {
        let whole = arriving.whole().await;
        let (size_bytes, sha256) = whole.map_err(|trouble| failed(stage, &trouble))?;
        (file.size_bytes, file.sha256) = (Some(size_bytes), Some(sha256));
    }
    let etag = file.sha256.as_ref().map(|sha256| format!("\"sha256-{sha256}\""));
    let tag = etag.as_deref().unwrap_or_default();
    let modified_at = Some(file.modified_at);
    let is_known = match &etag {
        Some(etag) => is_current(request, etag, modified_at)?,
        None => {
            check_expected(request, |tags| ::reply::is_matched(tags, |_| false), modified_at)?;
            false
        }
    };
    let mut response = match (&etag, file.size_bytes) {
        _ if is_known => StatusCode::NOT_MODIFIED.into_response(),
        (Some(etag), Some(size_bytes)) => {
            let (start, end, status) = match wanted(request, etag, modified_at, size_bytes) {
                RangeAnswer::Whole => (0, size_bytes, StatusCode::OK),
                RangeAnswer::Part { start, end } => (start, end, StatusCode::PARTIAL_CONTENT),
                RangeAnswer::Unsatisfiable => return Ok(unsatisfiable(size_bytes)),
            };
            let mut response = body_of(file.body, start..end);
            *response.status_mut() = status;
            if status == StatusCode::PARTIAL_CONTENT {
                content_range(response.headers_mut(), start, end, size_bytes);
            }
            response
        }
        (_, Some(size_bytes)) => body_of(file.body, 0..size_bytes),
        (_, None) => streamed(file.body, 0, None),
    };
    insert_headers(
        response.headers_mut(),
        tag,
        file.modified_at,
        content_type(filename),
        is_public,
    );
    let headers = response.headers_mut();
    if etag.is_some() {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    } else {
        headers.remove(ETAG);
    }
    if !file.is_immutable {
        headers.insert(CACHE_CONTROL, if is_public { CHANGING } else { CHANGING_PRIVATE });
    }
    Ok(response)
}

/// A response with this range of a file.
pub(crate) fn body_of(source: Source, range: Range<u64>) -> Response {
    let file = source.file_to_send(&range);
    let mut response = streamed(source, range.start, Some(range.end));
    response.headers_mut().insert(CONTENT_LENGTH, (range.end - range.start).into());
    if let Some((file, place)) = file {
        response.extensions_mut().insert(FileRange::new(file, place));
    }
    response
}

/// A response that reads the file from `start` up to `end` while it is sent.
fn streamed(source: Source, start: u64, end: Option<u64>) -> Response {
    let pieces = Pieces::default();
    let allowed = pieces.clone();
    let body = Body::from_stream(source.stream(start, end, move || allowed.next_bytes()));
    let mut response = body.into_response();
    response.extensions_mut().insert(pieces);
    response
}
