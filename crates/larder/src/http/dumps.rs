//! The files that clients download whole: the dump as it came, and the lists made of it.
//!
//! A list comes from [`crate::lists`], which is kept with its snapshot. The dump itself is read from the data directory and
//! sent in pieces.

use std::io::Read;
use std::time::SystemTime;

use aur::List;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    LAST_MODIFIED,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::conditional::{Wanted, content_range, is_current, unsatisfiable, wanted};
use super::error::HttpError;
use crate::app::App;
use crate::source::{KEPT_FILE_NAME, KeptDumpFile};

/// All files, without their `.sha256`.
pub const FILE_NAMES: [&str; 5] =
    [KEPT_FILE_NAME, "packages-meta-v1.json.gz", "packages.gz", "pkgbase.gz", "users.gz"];

/// How much of a file is read at once.
const PIECE_BYTES: usize = 256 << 10;

/// A file that can be sent.
enum Download {
    Memory(Bytes),
    File(KeptDumpFile),
}

struct Found {
    download: Download,
    sha256: String,
    modified_at: SystemTime,
}

async fn find(app: &App, name: &str) -> Result<Found, HttpError> {
    let published = app
        .aur
        .snapshot_full()
        .ok_or_else(|| HttpError::unavailable("the catalogue of packages is not loaded yet", 2))?;
    let modified_at = published.modified_at;
    if name == KEPT_FILE_NAME {
        let kept = published.kept.get().ok_or_else(|| {
            HttpError::unavailable(
                "the dump is not kept in the data directory, yet or for lack of space",
                2,
            )
        })?;
        if !kept.is_unchanged() {
            return Err(HttpError::unavailable(
                "the dump in the data directory was changed by something else; the next one that is fetched takes its place",
                60,
            ));
        }
        return Ok(Found {
            sha256: kept.sha256.clone(),
            download: Download::File(kept.clone()),
            modified_at,
        });
    }
    let list = List::ALL.into_iter().find(|list| list.file_name() == name).ok_or_else(|| {
        HttpError::not_found(format!("`{name}` is not one of the files: {}", FILE_NAMES.join(", ")))
    })?;
    let making = tokio::task::spawn_blocking(move || {
        let made = published.lists.get(&published.snapshot, list);
        Found {
            download: Download::Memory(made.body.clone()),
            sha256: made.sha256.clone(),
            modified_at,
        }
    });
    making.await.map_err(|error| {
        tracing::error!(%error, list = list.file_name(), "a list cannot be made");
        HttpError::internal("the list cannot be made; it has been logged")
    })
}

/// `/packages.gz` and the other files: conditional, and in ranges.
pub(super) async fn download_dump(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let name = head.uri.path().trim_start_matches('/');
    Ok(send(find(app, name).await?, &head.headers))
}

/// `/packages.gz.sha256` and the others.
pub(super) async fn show_dump_digest(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let name = head.uri.path().trim_start_matches('/').trim_end_matches(".sha256");
    let found = find(app, name).await?;
    let mut response = format!("SHA256 ({name}) = {}", found.sha256).into_response();
    insert_validators(response.headers_mut(), &found, ".sha256");
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

fn insert_validators(headers: &mut HeaderMap, found: &Found, suffix: &str) {
    let values =
        [(ETAG, etag(found, suffix)), (LAST_MODIFIED, httpdate::fmt_http_date(found.modified_at))];
    for (name, value) in values {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
}

fn etag(found: &Found, suffix: &str) -> String {
    format!("\"{}{suffix}\"", &found.sha256[..found.sha256.len().min(32)])
}

fn send(found: Found, request: &HeaderMap) -> Response {
    let size_bytes = match &found.download {
        Download::Memory(body) => body.len() as u64,
        Download::File(kept) => kept.size_bytes,
    };
    let etag = etag(&found, "");
    let mut response = if is_current(request, &etag, found.modified_at) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match wanted(request, &etag, found.modified_at, size_bytes) {
            Wanted::Whole => part(&found.download, 0, size_bytes, StatusCode::OK),
            Wanted::Part { start, end } => {
                let mut response = part(&found.download, start, end, StatusCode::PARTIAL_CONTENT);
                content_range(response.headers_mut(), start, end, size_bytes);
                response
            }
            Wanted::Unsatisfiable => return unsatisfiable(size_bytes),
        }
    };
    let headers = response.headers_mut();
    insert_validators(headers, &found, "");
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// Bytes from `start` up to `end` of the file.
fn part(download: &Download, start: u64, end: u64, status: StatusCode) -> Response {
    let body = match download {
        Download::Memory(bytes) => Body::from(bytes.slice(start as usize..end as usize)),
        Download::File(kept) => Body::from_stream(pieces(kept, start, end)),
    };
    (status, [(CONTENT_LENGTH, end - start)], body).into_response()
}

/// The file in pieces, each read when the client has taken the one before.
fn pieces(
    kept: &KeptDumpFile,
    start: u64,
    end: u64,
) -> impl stream::Stream<Item = std::io::Result<Bytes>> + use<> {
    let reader = kept.reader().starting_at(start).take(end - start);
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = (&mut reader).take(PIECE_BYTES as u64).read_to_end(&mut piece);
            (read.map(|_| piece), reader)
        });
        match reading.await {
            Ok((Ok(piece), _)) if piece.is_empty() => None,
            Ok((Ok(piece), reader)) => Some((Ok(Bytes::from(piece)), Some(reader))),
            Ok((Err(error), _)) => Some((Err(error), None)),
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    })
}
