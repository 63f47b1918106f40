//! Documentation: pages of the zip that was uploaded with a release.
//!
//! path -> the nearest stage's zip, out of [`crate::published::open_zips`] -> one member, as it is unpacked, a piece whenever the
//! client takes one. Nothing is unpacked to disk. A zip with paths outside of itself, or a zip bomb, is refused at the upload
//! and again here. Strangers wrote the pages, so a page must not act as this server's.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, StatusCode};
use net::Pieces;
use pypi::{FileRole, ReleaseFile, VersionView};
use record::Digest;
use resources::turns::Turns;
use tokio_util::task::AbortOnDropHandle;

use super::ask::Ask;
use super::error::ApiError;
use super::names::Names;
use super::project::{in_one_spelling, readable};
use super::reply;
use super::rights::IndexPart;
use crate::app::App;
use crate::front::conditional::{is_current, last_modified};
use crate::front::error::HttpError;
use crate::published::open_zips::{COPY_BYTES_MAX, OpenZipError, Zip};

/// Members up to this size are unpacked at once; larger ones as the client reads them.
const AT_ONCE_BYTES_MAX: u64 = 1 << 20;

/// Memory of a larger member that is being unpacked, besides the piece that is read.
const INFLATE_BYTES: usize = 96 << 10;

/// Most bytes of one member.
const MEMBER_BYTES_MAX: u64 = 4 << 30;

const SANDBOX: &str = "sandbox allow-downloads allow-forms allow-popups allow-scripts";

/// `/{user}/{index}/{project}/{version}/+doc/{path}`; the version may be `latest` or `stable`.
pub(crate) async fn show_documentation(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let Names { stage, project, version, file: path, .. } = names;
    let about = IndexPart::Project(project.name.as_ref());
    let order = readable(ask, stage, false, about).await?;
    let is_public = order.readers().is_empty();
    let missing = |text: String| ApiError::from(reply::refusal(ask, StatusCode::NOT_FOUND, &text));
    let no_project = || missing(format!("The project {} does not exist.", project.as_sent));
    let name = in_one_spelling(ask, project, no_project)?;
    let view = order.project(name.as_str()).ok_or_else(no_project)?;
    let finding = async {
        let docs = documented(&view.versions(), version);
        docs.ok_or_else(|| {
            missing(format!("There is no documentation of {name} in version {version}."))
        })
    };
    let docs = ask.step_over(&view, finding).await?;
    let zip = opened(&ask.app, *docs.digest()).await?;
    let joined = path.joined();
    let is_directory = ask.path.ends_with('/');
    let index = match joined.as_str() {
        "" => "index.html".to_owned(),
        joined => format!("{joined}/index.html"),
    };
    let at = |name: &str| zip.members().iter().position(|member| member.name == name);
    let found = if joined.is_empty() || is_directory { None } else { at(&joined) };
    let (at, name) = match found {
        Some(at) => (at, joined),
        None => match at(&index) {
            // The links of the page count from its directory.
            Some(_) if !is_directory => {
                let path = format!("{}/", ask.path);
                return Err(ApiError::from(reply::redirect(ask, &path)));
            }
            Some(at) => (at, index),
            None => return Err(missing(format!("The documentation has no page {joined}."))),
        },
    };
    send(ask, docs, zip, at, &name, is_public).await
}

/// The documentation that `version` names, of the nearest stage: that of this version; with `latest`, of the newest version
/// that has any; with `stable`, of the newest of these that is no pre-release.
fn documented<'view>(versions: &[VersionView<'view>], version: &str) -> Option<&'view ReleaseFile> {
    let docs_of = |view: &VersionView<'view>| {
        view.parts.iter().find_map(|part| {
            let mut files = part.project.files_of(view.version.as_str());
            files.find(|file| file.role() == FileRole::Docs)
        })
    };
    match version {
        "latest" => versions.iter().find_map(docs_of),
        "stable" => versions.iter().filter(|view| !view.version.is_prerelease()).find_map(docs_of),
        version => VersionView::meant(versions, version).and_then(docs_of),
    }
}

async fn opened(app: &App, digest: Digest) -> Result<Arc<Zip>, ApiError> {
    let directory = &app.config.data_dir;
    let opened = app.python.documentation.open(&app.store.blobs, directory, digest).await;
    opened.map_err(|error| match error {
        OpenZipError::Missing => {
            tracing::error!(%digest, "a file is missing from the store");
            let text = "the documentation is missing from the store; it has been logged";
            HttpError::internal(text).into()
        }
        OpenZipError::Large(bytes) => ApiError::not_found(format_args!(
                "the documentation cannot be shown: its zip has {bytes} bytes, and at most {COPY_BYTES_MAX} are \
                 copied from the object store"
            ),
        ),
        OpenZipError::Broken(error) => {
            ApiError::not_found(format_args!("the documentation cannot be shown: {error}"))
        }
        OpenZipError::Failed(error) => {
            tracing::error!(%digest, error, "documentation cannot be read");
            HttpError::unavailable("the documentation cannot be read now; it has been logged", 5)
                .into()
        }
    })
}

async fn send(
    ask: &Ask,
    docs: &ReleaseFile,
    zip: Arc<Zip>,
    at: usize,
    name: &str,
    is_public: bool,
) -> Result<Response, ApiError> {
    let etag = format!("\"sha256-{}\"", docs.digest());
    let modified_at = SystemTime::from(docs.uploaded_at());
    let size_bytes = zip.members().get(at).map_or(0, |member| member.size_bytes);
    let mut response = if is_current(&ask.head.headers, &etag, Some(modified_at))? {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = match ask.head.method == Method::HEAD {
            true => Body::empty().into_response(),
            false => unpacked(ask, zip, at, size_bytes).await?,
        };
        response.headers_mut().insert(CONTENT_LENGTH, size_bytes.into());
        response
    };
    let headers = response.headers_mut();
    headers.insert(LAST_MODIFIED, last_modified(modified_at));
    let texts = [(CONTENT_TYPE, content_type(name).as_str()), (ETAG, etag.as_str())]
        .map(|(name, value)| (name, HeaderValue::from_str(value)));
    for (name, value) in texts {
        if let Ok(value) = value {
            headers.insert(name, value);
        }
    }
    // The documentation may be replaced at any time, and `latest` moves on.
    let caching = match is_public {
        true => "max-age=0, must-revalidate",
        false => "private, max-age=0, must-revalidate",
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_public {
        // In a sandbox a page has no origin, and could not load its own fonts.
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    Ok(response)
}

/// A member's bytes.
async fn unpacked(
    ask: &Ask,
    zip: Arc<Zip>,
    at: usize,
    size_bytes: u64,
) -> Result<Response, ApiError> {
    if size_bytes > MEMBER_BYTES_MAX {
        let text = format!("a page of {size_bytes} bytes is not unpacked");
        return Err(ApiError::from(reply::refusal(ask, StatusCode::NOT_FOUND, &text)));
    }
    if size_bytes <= AT_ONCE_BYTES_MAX {
        let reading = move || match zip.members().get(at) {
            Some(member) => zip.read(member, "bytes of a page", AT_ONCE_BYTES_MAX),
            None => Ok(Vec::new()),
        };
        let bytes = ask.app.python.documentation.unpacking.run(reading).await;
        return bytes.map(IntoResponse::into_response).map_err(|error| {
            let text = format_args!("the documentation cannot be shown: {error}");
            ApiError::not_found(text)
        });
    }
    let reader = match zip.members().get(at) {
        Some(member) => zip.detached_reader(member),
        None => return Ok(Body::empty().into_response()),
    };
    let reader = reader.map_err(|error| {
        let text = format_args!("the documentation cannot be shown: {error}");
        ApiError::not_found(text)
    })?;
    let threads = ask.app.python.documentation.unpacking.clone();
    let allowed = Pieces::beside(INFLATE_BYTES);
    let body = Body::from_stream(pieces(reader, size_bytes, threads, allowed.clone()));
    let mut response = body.into_response();
    response.extensions_mut().insert(allowed);
    Ok(response)
}

/// The first `size_bytes` of a member. Each piece is unpacked when the client is ready for it, on one of the `threads`.
fn pieces(
    reader: Box<dyn io::Read + Send>,
    size_bytes: u64,
    threads: Turns,
    allowed: Pieces,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold((reader, size_bytes), move |(mut reader, left)| {
        let (threads, bytes_max) = (threads.clone(), allowed.next_bytes() as u64);
        async move {
            if left == 0 {
                return Ok(None);
            }
            let unpacking = move || {
                let mut piece = vec![0; left.min(bytes_max) as usize];
                reader.read_exact(&mut piece)?;
                let left = left - piece.len() as u64;
                Ok(Some((Bytes::from(piece), (reader, left))))
            };
            // A task takes the turn: the body may not be polled again for long, and would keep a turn that it got meanwhile.
            let unpacking = tokio::spawn(async move { threads.run(unpacking).await });
            AbortOnDropHandle::new(unpacking).await.map_err(io::Error::other)?
        }
    })
}

/// The media type, by the name's extension.
fn content_type(name: &str) -> String {
    let guessed = mime_guess::from_path(name).first_or_octet_stream();
    let is_text = guessed.type_() == "text" || guessed.subtype() == "javascript";
    if is_text { format!("{guessed}; charset=utf-8") } else { guessed.to_string() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{StreamExt as _, TryStreamExt as _};

    use super::*;

    #[tokio::test]
    async fn who_reads_slowly_keeps_nobody_waiting() {
        let threads = Turns::new(2);
        let bytes = vec![7; Pieces::default().next_bytes() * 2 + 1];
        let page = || {
            let reader = Box::new(io::Cursor::new(bytes.clone()));
            Box::pin(pieces(reader, bytes.len() as u64, threads.clone(), Pieces::default()))
        };
        let mut slow = Vec::new();
        for _ in 0..5 {
            let mut page = page();
            let first = tokio::time::timeout(Duration::from_secs(20), page.next()).await;
            assert!(first.is_ok_and(|piece| piece.is_some_and(|piece| piece.is_ok())));
            slow.push(page);
        }
        let whole: Vec<Bytes> = page().try_collect().await.expect("it is whole");
        assert!(whole.concat() == bytes);
        // The slow readers get their whole page, too.
        for page in slow {
            let rest: Vec<Bytes> = page.try_collect().await.expect("it is whole");
            assert!(rest.concat() == bytes[Pieces::default().next_bytes()..]);
        }
        // Nor does a body that waits for a turn when its client stops reading.
        let taken = threads.take_many(2).await;
        let mut stopped = page();
        assert!(futures_util::poll!(stopped.next()).is_pending());
        tokio::task::yield_now().await;
        drop(taken);
        let both = tokio::time::timeout(Duration::from_secs(20), threads.take_many(2)).await;
        drop(both.expect("no turn is kept"));
        let short: io::Result<Vec<Bytes>> =
            pieces(Box::new(io::empty()), 1, threads.clone(), Pieces::default())
                .try_collect()
                .await;
        assert_eq!(short.expect_err("it is cut off").kind(), io::ErrorKind::UnexpectedEof);
    }
}
