//! The files that clients download whole: the dump as it came, and the lists made of it.
//!
//! A delta leads from one dump to the next ([`crate::published::changes::deltas`]). A list comes from [`crate::published::lists`], which is kept with its snapshot. The dump itself is read from the data directory and
//! sent in pieces.

use std::io::Read;
use std::sync::Arc;
use std::time::SystemTime;

use ::aur::{Compressed, List};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use net::{MadeForOne, Pieces};
use source::{FileReader, KEPT_FILE_NAME, ZSTD_RETRY_AFTER};

use crate::app::App;
use crate::front::conditional::{
    RangeAnswer, content_range, is_current, last_modified, unsatisfiable, wanted,
};
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::published::changes::deltas::DeltaOffer;
use crate::published::lists::MadeList;

/// A file that can be sent.
enum Download {
    Memory(Bytes),
    File { reader: FileReader, size_bytes: u64 },
}

struct DumpFile {
    download: Download,
    compressed: Compressed,
    sha256: String,
    modified_at: SystemTime,
}

async fn find(app: &App, name: &str) -> Result<DumpFile, HttpError> {
    let published = app.packages()?;
    let modified_at = published.modified_at;
    let unknown = || HttpError::not_found(format!("`{name}` is not one of the files"));
    let (stem, compressed) = Compressed::ALL
        .into_iter()
        .find_map(|it| Some((name.strip_suffix(it.extension())?.strip_suffix('.')?, it)))
        .ok_or_else(unknown)?;
    if Some(stem) == KEPT_FILE_NAME.strip_suffix(".gz") {
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
        let (reader, size_bytes, sha256) = match compressed {
            Compressed::Gzip => (kept.reader(), kept.size_bytes, kept.sha256),
            Compressed::Zstd => {
                let making = kept.clone();
                let made = app
                    .limits
                    .making_downloads
                    .find_or_make(|| kept.zstd_at_hand(), move || making.in_zstd())
                    .await
                    .map_err(too_many_wait)?;
                let made = made.map_err(|_| {
                    let detail = "the dump cannot be compressed with zstd now; it has been logged";
                    HttpError::unavailable(detail, ZSTD_RETRY_AFTER.as_secs() as u32)
                })?;
                (made.reader(), made.size_bytes, made.sha256)
            }
        };
        let download = Download::File { reader, size_bytes };
        return Ok(DumpFile { download, compressed, sha256, modified_at });
    }
    let list = List::ALL.into_iter().find(|list| list.stem() == stem).ok_or_else(unknown)?;
    let found = move |made: &MadeList| {
        let download = Download::Memory(made.body.clone());
        DumpFile { download, compressed, sha256: made.sha256.clone(), modified_at }
    };
    let making = published.clone();
    app.limits
        .making_downloads
        .find_or_make(
            || published.lists.at_hand(list, compressed).map(found),
            move || found(making.lists.get(&making.snapshot, list, compressed)),
        )
        .await
        .map_err(too_many_wait)
}

/// 503: a file that others wait for is ready soon.
fn too_many_wait(places: usize) -> HttpError {
    let detail = format!("{places} requests wait for files that are being made; try again soon");
    HttpError::unavailable(detail, 2)
}

/// `/packages.gz` and the other files, with conditional requests and ranges.
pub(crate) async fn download_dump(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let name = head.uri.path().trim_start_matches('/');
    send(find(app, name).await?, &head.headers)
}

/// `/packages.gz.sha256` and the others.
pub(crate) async fn show_dump_digest(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let name = head.uri.path().trim_start_matches('/').trim_end_matches(".sha256");
    let found = find(app, name).await?;
    let etag = etag(&found, ".sha256");
    let mut response = match is_current(&head.headers, &etag, Some(found.modified_at))? {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => format!("SHA256 ({name}) = {}", found.sha256).into_response(),
    };
    insert_validators(response.headers_mut(), &etag, found.modified_at);
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// `/packages-meta-ext-v1.delta.gz?since=SHA256`: the delta from the dump that the client has to the one that is kept now.
pub(crate) async fn download_delta(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let since = delta_since(head.uri.query())?;
    let is_gzip = head.uri.path().ends_with(Compressed::Gzip.extension());
    let compressed = if is_gzip { Compressed::Gzip } else { Compressed::Zstd };
    let (deltas, from) = (app.clone(), since.clone());
    let offering = app.aur.deltas.making.find_or_make(
        || app.aur.deltas.at_hand(&since, compressed).map(Ok),
        move || deltas.aur.deltas.offer(&from, compressed),
    );
    let offer = offering.await.map_err(too_many_wait)?.map_err(|error| {
        tracing::error!(%error, "a delta of the AUR's dump cannot be made");
        HttpError::internal("the delta cannot be made; it has been logged")
    })?;
    let made = match offer {
        DeltaOffer::Delta(made) => made,
        DeltaOffer::StartOver => {
            let detail = format!(
                "no delta leads from a dump with the SHA-256 `{since}` to the one of now: fetch /{KEPT_FILE_NAME}"
            );
            return Err(HttpError::gone(detail));
        }
        DeltaOffer::NotYet => {
            return Err(HttpError::unavailable(
                "the dump is still being compared with the one before",
                2,
            ));
        }
    };
    let etag = format!("\"{}-{}\"", &since[..16], &made.to[..16]);
    // Only the tag says whether the client has this delta: its date is that of the dump.
    let mut response = if is_current(&head.headers, &etag, None)? {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (StatusCode::OK, [(CONTENT_LENGTH, made.body.len())], made.body).into_response()
    };
    // The cache may drop the body before this client has read it, so it counts for this client.
    response.extensions_mut().insert(MadeForOne);
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(ETAG, etag);
    }
    if let Some(modified_at) = app.aur.deltas.modified_at() {
        headers.insert(LAST_MODIFIED, last_modified(modified_at));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(compressed.media_type()));
    Ok(response)
}

/// The digest that the parameter `since` names, in lower case.
fn delta_since(query: Option<&str>) -> Result<String, HttpError> {
    const EXPECTED: &str =
        "the SHA-256 of the dump that you have, unpacked, as 64 hexadecimal digits";
    let mut since = None;
    for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if key != "since" {
            let detail = format!("the parameter `{key}` is unknown, expected: since");
            return Err(HttpError::bad_request(detail));
        }
        if value.len() != 64 || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let detail =
                format!("`{value}` is no value of the parameter `since`: expected {EXPECTED}");
            return Err(HttpError::bad_request(detail));
        }
        since = Some(value.to_ascii_lowercase());
    }
    let missing =
        || HttpError::bad_request(format!("the parameter `since` is missing: expected {EXPECTED}"));
    since.ok_or_else(missing)
}

fn insert_validators(headers: &mut HeaderMap, etag: &str, modified_at: SystemTime) {
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(LAST_MODIFIED, last_modified(modified_at));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

fn etag(found: &DumpFile, suffix: &str) -> String {
    format!("\"{}{suffix}\"", &found.sha256[..found.sha256.len().min(32)])
}

fn send(found: DumpFile, request: &HeaderMap) -> Result<Response, HttpError> {
    let size_bytes = match &found.download {
        Download::Memory(body) => body.len() as u64,
        Download::File { size_bytes, .. } => *size_bytes,
    };
    let (etag, modified_at) = (etag(&found, ""), found.modified_at);
    let mut response = if is_current(request, &etag, Some(modified_at))? {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match wanted(request, &etag, Some(modified_at), size_bytes) {
            RangeAnswer::Whole => part(&found.download, 0, size_bytes, StatusCode::OK),
            RangeAnswer::Part { start, end } => {
                let mut response = part(&found.download, start, end, StatusCode::PARTIAL_CONTENT);
                content_range(response.headers_mut(), start, end, size_bytes);
                response
            }
            RangeAnswer::Unsatisfiable => return Ok(unsatisfiable(size_bytes)),
        }
    };
    let headers = response.headers_mut();
    insert_validators(headers, &etag, modified_at);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(found.compressed.media_type()));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(response)
}

/// Bytes from `start` up to `end` of the file.
fn part(download: &Download, start: u64, end: u64, status: StatusCode) -> Response {
    let length = [(CONTENT_LENGTH, end - start)];
    match download {
        Download::Memory(bytes) => {
            (status, length, bytes.slice(start as usize..end as usize)).into_response()
        }
        Download::File { reader, .. } => {
            let pieces = Pieces::default();
            let body = Body::from_stream(read(reader, start, end, pieces.clone()));
            let mut response = (status, length, body).into_response();
            response.extensions_mut().insert(pieces);
            response
        }
    }
}

/// The file in pieces; each is read when the client has taken the one before.
fn read(
    file: &FileReader,
    start: u64,
    end: u64,
    pieces: Pieces,
) -> impl stream::Stream<Item = std::io::Result<Bytes>> + use<> {
    let reader = file.clone().starting_at(start).take(end - start);
    stream::unfold((Some(reader), pieces), |(reader, pieces)| async move {
        let mut reader = reader?;
        let bytes = pieces.next_bytes();
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(bytes);
            let read = (&mut reader).take(bytes as u64).read_to_end(&mut piece);
            (read.map(|_| piece), reader)
        });
        match reading.await {
            Ok((Ok(piece), _)) if piece.is_empty() => None,
            Ok((Ok(piece), reader)) => Some((Ok(Bytes::from(piece)), (Some(reader), pieces))),
            Ok((Err(error), _)) => Some((Err(error), (None, pieces))),
            Err(error) => Some((Err(std::io::Error::other(error)), (None, pieces))),
        }
    })
}
