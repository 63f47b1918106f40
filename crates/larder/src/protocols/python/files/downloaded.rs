//! What counts as a download of a release.
//!
//! a request for a release file, and its response -> [`note`] -> the [counts](crate::app::downloads) of this process.

use axum::response::Response;
use http::header::{CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pypi::{ProjectName, Stage};

use super::X_ACCEL_REDIRECT;
use crate::protocols::python::ask::Ask;

/// Counts this response with a file of the release, if it is a download.
pub(super) fn note(
    ask: &Ask,
    response: &Response,
    stage: &Stage,
    project: &ProjectName,
    version: &str,
) {
    if is_download(&ask.head.method, &ask.head.headers, response.status(), response.headers()) {
        ask.app.python.downloads.note(stage.name(), project, version);
    }
}

/// Whether the client gets the file from its first byte on: so that a download in parts, or one that is resumed, counts once. Where a
/// proxy sends the file itself, only the request says which part.
fn is_download(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
) -> bool {
    let begins = |range: &HeaderValue, start: &str| {
        range.to_str().is_ok_and(|range| range.trim_start().starts_with(start))
    };
    let is_from_start = match status {
        StatusCode::OK if response.contains_key(X_ACCEL_REDIRECT) => {
            request.get(RANGE).is_none_or(|range| begins(range, "bytes=0-"))
        }
        StatusCode::OK => true,
        StatusCode::PARTIAL_CONTENT => {
            response.get(CONTENT_RANGE).is_some_and(|range| begins(range, "bytes 0-"))
        }
        _ => false,
    };
    is_from_start && method == Method::GET
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as `METHOD [Range]`, a response as `status [Content-Range]`; `accel` in its place is a file that a proxy sends.
    #[track_caller]
    fn check(request: &str, response: &str, expected: bool) {
        let headers = |name, value: Option<&str>| {
            let value = value.map(|value| HeaderValue::from_str(value).expect("a value"));
            value.map(|value| (name, value)).into_iter().collect::<HeaderMap>()
        };
        let (method, range) = match request.split_once(' ') {
            Some((method, range)) => (method, Some(range)),
            None => (request, None),
        };
        let (status, part) = match response.split_once(' ') {
            Some((status, part)) => (status, Some(part)),
            None => (response, None),
        };
        let name = match part {
            Some("accel") => X_ACCEL_REDIRECT,
            _ => CONTENT_RANGE,
        };
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let status = status.parse().expect("a status");
        let found = is_download(&method, &headers(RANGE, range), status, &headers(name, part));
        assert_eq!(found, expected, "{request} -> {response}");
    }

    #[test]
    fn a_download_begins_at_the_first_byte() {
        check("GET", "200", true);
        check("GET bytes=5-", "200", true);
        check("GET bytes=0-", "206 bytes 0-9/10", true);
        check("GET bytes=0-4", "206 bytes 0-4/10", true);
        check("GET bytes=5-", "206 bytes 5-9/10", false);
        check("GET bytes=-5", "206 bytes 5-9/10", false);
        check("HEAD", "200", false);
        check("GET", "304", false);
        check("GET bytes=90-", "416 bytes */10", false);
        check("GET", "404", false);
        check("GET", "302", false);
        check("GET", "200 accel", true);
        check("GET bytes=0-", "200 accel", true);
        check("GET bytes=5-", "200 accel", false);
        check("GET bytes=-5", "200 accel", false);
    }
}
