//! Which part of a body a client wants: conditional requests by tag and date, and ranges (RFC 9110, 13 and 14).
//!
//! For bodies with a strong tag that are sent as they are: files, and the contents of articles.

use std::time::SystemTime;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_RANGE, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};

use super::error::HttpError;
use super::negotiation::listed;

/// Whether the client has the file already (RFC 9110, 13.2.2: tags before dates).
pub(super) fn is_current(request: &HeaderMap, etag: &str, modified_at: SystemTime) -> bool {
    names_tag(request, etag).unwrap_or_else(|| {
        header_date(request, IF_MODIFIED_SINCE)
            .is_some_and(|since| whole_seconds(modified_at) <= since)
    })
}

/// Whether the client has what this tag is of; `None` if it names no tags.
pub(super) fn names_tag(request: &HeaderMap, etag: &str) -> Option<bool> {
    let tags = listed(request, IF_NONE_MATCH)?;
    let etag = etag.trim_matches('"');
    Some(reply::is_listed(&tags, |tag| tag == etag))
}

fn header_date(request: &HeaderMap, name: http::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(request.get(name)?.to_str().ok()?).ok()
}

/// HTTP dates have no fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(time, |since| {
        SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since.as_secs())
    })
}

/// The part of a body that a client wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Whole,
    /// From `start` up to, not including, `end`.
    Part {
        start: u64,
        end: u64,
    },
    Unsatisfiable,
}

/// Names the part that is sent: from `start` up to, not including, `end`.
pub(super) fn content_range(headers: &mut HeaderMap, start: u64, end: u64, size_bytes: u64) {
    let value = format!("bytes {start}-{}/{size_bytes}", end - 1);
    if let Ok(value) = HeaderValue::from_str(&value) {
        headers.insert(CONTENT_RANGE, value);
    }
}

/// 416, with the size.
pub(super) fn unsatisfiable(size_bytes: u64) -> Response {
    let detail = format!("the range lies outside of the {size_bytes} bytes there are");
    let mut response = HttpError::range_outside(detail).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size_bytes}")) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}

/// Parses what the client wants. For several ranges, or a range that cannot be parsed, it is the whole body.
pub(super) fn wanted(
    request: &HeaderMap,
    etag: &str,
    modified_at: SystemTime,
    size_bytes: u64,
) -> Wanted {
    if let Some(condition) = request.get(IF_RANGE) {
        let is_same = condition.as_bytes() == etag.as_bytes()
            || header_date(request, IF_RANGE)
                .is_some_and(|date| date == whole_seconds(modified_at));
        if !is_same {
            return Wanted::Whole;
        }
    }
    let ranges = request
        .get(RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| http_range_header::parse_range_header(value).ok());
    let Some(ranges) = ranges else { return Wanted::Whole };
    if ranges.ranges.len() != 1 {
        return Wanted::Whole;
    }
    if size_bytes == 0 {
        // There is no first byte, and the crate counts from the last one.
        return Wanted::Unsatisfiable;
    }
    match ranges.validate(size_bytes).ok().as_deref() {
        Some([only]) => Wanted::Part { start: *only.start(), end: *only.end() + 1 },
        _ => Wanted::Unsatisfiable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(http::HeaderName, &'static str)], expected: Wanted) {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        assert_eq!(wanted(&headers, "\"tag\"", SystemTime::UNIX_EPOCH, 100), expected);
    }

    #[test]
    fn ranges() {
        check(&[], Wanted::Whole);
        check(&[(RANGE, "bytes=0-3")], Wanted::Part { start: 0, end: 4 });
        check(&[(RANGE, "bytes=90-")], Wanted::Part { start: 90, end: 100 });
        check(&[(RANGE, "bytes=-10")], Wanted::Part { start: 90, end: 100 });
        check(&[(RANGE, "bytes=50-1000")], Wanted::Part { start: 50, end: 100 });
        check(&[(RANGE, "bytes=100-")], Wanted::Unsatisfiable);
        check(&[(RANGE, "bytes=0-1,5-6")], Wanted::Whole);
        check(&[(RANGE, "lines=1-2")], Wanted::Whole);
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, "\"tag\"")], Wanted::Part { start: 0, end: 4 });
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, "\"old\"")], Wanted::Whole);
        check(
            &[(RANGE, "bytes=0-3"), (IF_RANGE, "Thu, 01 Jan 1970 00:00:00 GMT")],
            Wanted::Part { start: 0, end: 4 },
        );
    }
}
