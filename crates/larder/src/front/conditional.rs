//! Conditional requests by tag and date, and ranges (RFC 9110, 13 and 14): which part of a body a client gets, if any.
//!
//! `If-Match` and `If-Unmodified-Since` -> 412; `If-None-Match` and `If-Modified-Since` -> 304; `Range` and `If-Range` ->
//! [`RangeAnswer`]. For bodies with a strong tag that are sent as they are: files, and the contents of articles. The tags of finished
//! replies are compared in [`super::respond`]. Conditions are for GET and HEAD; `net` leaves a `Range` only to GET.

use std::time::SystemTime;

use axum::response::{IntoResponse, Response};
use http::header::{
    CONTENT_RANGE, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, HeaderValue};

use super::error::HttpError;
use super::negotiation::listed;

/// Whether the client has the body already. Tags go before dates (13.2.2). `None` for a date: the body has none.
///
/// # Errors
/// 412 if the client wants only another body than this one.
pub(crate) fn is_current(
    request: &HeaderMap,
    etag: &str,
    modified_at: Option<SystemTime>,
) -> Result<bool, HttpError> {
    let etag = etag.trim_matches('"');
    check_expected(request, |tags| reply::is_matched(tags, |tag| tag == etag), modified_at)?;
    Ok(match listed(request, IF_NONE_MATCH) {
        Some(tags) => reply::is_listed(&tags, |tag| tag == etag),
        None => is_unmodified(request, modified_at),
    })
}

/// Refuses a request for another body than the one that would be sent. `is_matched` compares the tags of `If-Match`.
///
/// # Errors
/// 412.
pub(crate) fn check_expected(
    request: &HeaderMap,
    is_matched: impl FnOnce(&str) -> bool,
    modified_at: Option<SystemTime>,
) -> Result<(), HttpError> {
    let unexpected = match listed(request, IF_MATCH) {
        Some(tags) => (!is_matched(&tags)).then_some(IF_MATCH),
        None => header_date(request, IF_UNMODIFIED_SINCE)
            .zip(modified_at)
            .and_then(|(since, at)| (whole_seconds(at) > since).then_some(IF_UNMODIFIED_SINCE)),
    };
    unexpected.map_or(Ok(()), |name| Err(HttpError::unexpected(&name)))
}

/// Whether nothing is newer than the date that the client has (13.1.3).
pub(crate) fn is_unmodified(request: &HeaderMap, modified_at: Option<SystemTime>) -> bool {
    let since = header_date(request, IF_MODIFIED_SINCE);
    since.zip(modified_at).is_some_and(|(since, at)| whole_seconds(at) <= since)
}

/// The value of `Last-Modified`: never later than now (8.8.2.1), whatever the clock said that the time is from.
pub(crate) fn last_modified(modified_at: SystemTime) -> HeaderValue {
    let text = httpdate::fmt_http_date(modified_at.min(SystemTime::now()));
    HeaderValue::try_from(text).expect("a date is ASCII")
}

fn header_date(request: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
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
pub(crate) enum RangeAnswer {
    Whole,
    /// From `start` up to, not including, `end`.
    Part {
        start: u64,
        end: u64,
    },
    Unsatisfiable,
}

/// Names the part that is sent: from `start` up to, not including, `end`.
pub(crate) fn content_range(headers: &mut HeaderMap, start: u64, end: u64, size_bytes: u64) {
    let value = format!("bytes {start}-{}/{size_bytes}", end - 1);
    if let Ok(value) = HeaderValue::from_str(&value) {
        headers.insert(CONTENT_RANGE, value);
    }
}

/// 416, with the size.
pub(crate) fn unsatisfiable(size_bytes: u64) -> Response {
    let detail = format!("the range lies outside of the {size_bytes} bytes there are");
    let mut response = HttpError::range_outside(detail).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size_bytes}")) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}

/// Parses what the client wants. For several ranges, or a range that cannot be parsed, it is the whole body.
pub(crate) fn wanted(
    request: &HeaderMap,
    etag: &str,
    modified_at: Option<SystemTime>,
    size_bytes: u64,
) -> RangeAnswer {
    let Some(ranges) = listed(request, RANGE) else { return RangeAnswer::Whole };
    if let Some(condition) = request.get(IF_RANGE) {
        let is_same = condition.as_bytes() == etag.as_bytes()
            || header_date(request, IF_RANGE)
                .zip(modified_at)
                .is_some_and(|(date, at)| date == whole_seconds(at));
        if !is_same {
            return RangeAnswer::Whole;
        }
    }
    only_range(&ranges, size_bytes).unwrap_or(RangeAnswer::Whole)
}

/// The one range in the value of `Range`, within `size_bytes` (14.1.2). None for several, and for none that can be read.
fn only_range(ranges: &str, size_bytes: u64) -> Option<RangeAnswer> {
    let (unit, ranges) = ranges.split_once('=')?;
    let mut ranges = ranges.split(',').map(str::trim).filter(|range| !range.is_empty());
    let (range, None) = (ranges.next()?, ranges.next()) else { return None };
    let (first, last) = range.split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    // A number beyond all sizes is a number, too.
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    Some(match (first, last) {
        ("", last) => match (number(last)?, size_bytes) {
            (0, _) => RangeAnswer::Unsatisfiable,
            // No part of an empty body can be named.
            (_, 0) => RangeAnswer::Whole,
            (length, _) => {
                RangeAnswer::Part { start: size_bytes.saturating_sub(length), end: size_bytes }
            }
        },
        (first, last) => {
            let start = number(first)?;
            let last = if last.is_empty() { u64::MAX } else { number(last)? };
            if last < start {
                return None;
            }
            if start >= size_bytes {
                return Some(RangeAnswer::Unsatisfiable);
            }
            RangeAnswer::Part { start, end: last.saturating_add(1).min(size_bytes) }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DAY: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
    const NEXT_DAY: &str = "Fri, 02 Jan 1970 00:00:00 GMT";

    fn map(headers: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_static(value));
        }
        map
    }

    #[track_caller]
    fn check(headers: &[(HeaderName, &'static str)], expected: RangeAnswer) {
        let day = Some(SystemTime::UNIX_EPOCH);
        assert_eq!(wanted(&map(headers), "\"tag\"", day, 100), expected, "{headers:?}");
    }

    #[test]
    fn ranges() {
        let part = |start, end| RangeAnswer::Part { start, end };
        check(&[], RangeAnswer::Whole);
        for (range, expected) in [
            ("bytes=0-3", part(0, 4)),
            ("Bytes = 0-3", part(0, 4)),
            ("bytes=, 0-3 ,", part(0, 4)),
            ("bytes=90-", part(90, 100)),
            ("bytes=-10", part(90, 100)),
            ("bytes=-100", part(0, 100)),
            ("bytes=-99999", part(0, 100)),
            ("bytes=-99999999999999999999999999", part(0, 100)),
            ("bytes=-0", RangeAnswer::Unsatisfiable),
            ("bytes=99-99", part(99, 100)),
            ("bytes=50-1000", part(50, 100)),
            ("bytes=50-99999999999999999999999999", part(50, 100)),
            ("bytes=100-", RangeAnswer::Unsatisfiable),
            ("bytes=99999999999999999999999999-", RangeAnswer::Unsatisfiable),
            ("bytes=0-1,5-6", RangeAnswer::Whole),
            ("lines=1-2", RangeAnswer::Whole),
            ("bytes=5-2", RangeAnswer::Whole),
            ("bytes=-", RangeAnswer::Whole),
            ("bytes=--1", RangeAnswer::Whole),
            ("bytes=+1-2", RangeAnswer::Whole),
            ("bytes=1", RangeAnswer::Whole),
            ("bytes", RangeAnswer::Whole),
            ("", RangeAnswer::Whole),
        ] {
            check(&[(RANGE, range)], expected);
        }
        check(&[(RANGE, "bytes=0-3"), (RANGE, "bytes=5-6")], RangeAnswer::Whole);
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, "\"tag\"")], part(0, 4));
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, "\"old\"")], RangeAnswer::Whole);
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, "W/\"tag\"")], RangeAnswer::Whole);
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, DAY)], part(0, 4));
        check(&[(RANGE, "bytes=0-3"), (IF_RANGE, NEXT_DAY)], RangeAnswer::Whole);
        for (range, expected) in [
            ("bytes=0-", RangeAnswer::Unsatisfiable),
            ("bytes=-1", RangeAnswer::Whole),
            ("bytes=-0", RangeAnswer::Unsatisfiable),
        ] {
            assert_eq!(wanted(&map(&[(RANGE, range)]), "", None, 0), expected, "{range}");
        }
    }

    #[test]
    fn conditions() {
        let modified_at = SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_900);
        let check_at = |headers: &[(HeaderName, &'static str)], date, expected: u16| {
            let status = match is_current(&map(headers), "\"tag\"", date) {
                Ok(true) => 304,
                Ok(false) => 200,
                Err(error) => error.status().as_u16(),
            };
            assert_eq!(status, expected, "{headers:?}");
        };
        let check = |headers: &[_], expected| check_at(headers, Some(modified_at), expected);
        check(&[], 200);
        check(&[(IF_NONE_MATCH, "\"tag\"")], 304);
        check(&[(IF_NONE_MATCH, "W/\"tag\"")], 304);
        check(&[(IF_NONE_MATCH, "\"old\""), (IF_NONE_MATCH, "\"tag\"")], 304);
        check(&[(IF_NONE_MATCH, "\"old\""), (IF_MODIFIED_SINCE, NEXT_DAY)], 200);
        check(&[(IF_MODIFIED_SINCE, NEXT_DAY)], 304);
        check(&[(IF_MODIFIED_SINCE, DAY)], 200);
        check(&[(IF_MODIFIED_SINCE, "yesterday")], 200);
        check(&[(IF_MATCH, "\"old\"")], 412);
        check(&[(IF_MATCH, "W/\"tag\"")], 412);
        check(&[(IF_MATCH, "\"old\", \"tag\"")], 200);
        check(&[(IF_MATCH, "*")], 200);
        check(&[(IF_MATCH, "\"tag\""), (IF_NONE_MATCH, "\"tag\"")], 304);
        check(&[(IF_MATCH, "\"tag\""), (IF_UNMODIFIED_SINCE, DAY)], 200);
        check(&[(IF_UNMODIFIED_SINCE, DAY)], 412);
        check(&[(IF_UNMODIFIED_SINCE, NEXT_DAY)], 200);
        check(&[(IF_UNMODIFIED_SINCE, "yesterday")], 200);
        check(&[(IF_UNMODIFIED_SINCE, DAY), (IF_NONE_MATCH, "\"tag\"")], 412);
        // Without a date, no condition by date is evaluated (13.1.3 and 13.1.4).
        check_at(&[(IF_UNMODIFIED_SINCE, DAY)], None, 200);
        check_at(&[(IF_MODIFIED_SINCE, NEXT_DAY)], None, 200);
    }

    #[test]
    fn nothing_was_modified_in_the_future() {
        let now = SystemTime::now();
        let date = last_modified(now + Duration::from_secs(1_000_000));
        let date = httpdate::parse_http_date(date.to_str().expect("text")).expect("a date");
        assert!(date <= SystemTime::now());
        assert_eq!(last_modified(SystemTime::UNIX_EPOCH), DAY);
    }
}
