//! What a request says about the answer it wants: the tags that the client has, and the media types and encodings that it takes.
//! For every surface.

use std::borrow::Cow;

use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use reply::Encoding;

/// Whether the request has one of these headers. Most have few headers, and looking at each is cheaper than one lookup.
pub(crate) fn has_any<const N: usize>(headers: &HeaderMap, names: [&HeaderName; N]) -> bool {
    headers.keys().any(|name| names.contains(&name))
}

/// The values of a header that is a list, which may be sent in several lines (RFC 9110, 5.3).
pub(crate) fn listed(headers: &HeaderMap, name: HeaderName) -> Option<Cow<'_, str>> {
    let mut list = String::from_utf8_lossy(headers.get(&name)?.as_bytes());
    // Nearly no request repeats any header, and this is cheaper than looking for further lines of one.
    if headers.len() > headers.keys_len() {
        for line in headers.get_all(name).iter().skip(1) {
            list.to_mut().push(',');
            list.to_mut().push_str(&String::from_utf8_lossy(line.as_bytes()));
        }
    }
    Some(list)
}

/// The media type in a `Content-Type`, without its parameters.
pub(crate) fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The media type of a request's body; empty if the request does not say it.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let said = headers.get(CONTENT_TYPE).map(|it| String::from_utf8_lossy(it.as_bytes()));
    essence(said.as_deref().unwrap_or_default()).to_owned()
}

/// The encoding that the client prefers among those that answers are sent in.
pub(crate) fn accepted_encoding(request: &HeaderMap) -> Encoding {
    listed(request, ACCEPT_ENCODING)
        .map_or(Encoding::Identity, |accepted| Encoding::negotiate(&accepted))
}

/// Whether `If-None-Match` is there and `is_known` finds in its list what would be sent.
pub(crate) fn has_known_tag(request: &HeaderMap, is_known: impl FnOnce(&str) -> bool) -> bool {
    has_any(request, [&IF_NONE_MATCH])
        && listed(request, IF_NONE_MATCH).is_some_and(|tags| is_known(&tags))
}

/// The media ranges of an `Accept`, in their order, each with its weight (RFC 9110, 12.5.1). Those with the weight 0 are there,
/// too: they are what the client does not take.
pub(crate) fn media_ranges(accept: &str) -> impl Iterator<Item = (&str, f32)> {
    accept.split(',').filter(|range| !range.trim().is_empty()).map(|range| {
        let mut parts = range.split(';');
        let media_type = parts.next().unwrap_or_default().trim();
        let weight = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().unwrap_or(0.0))
        });
        (media_type, weight.unwrap_or(1.0))
    })
}

/// The weight of a media type where `Accept` names it itself.
pub(crate) fn named_weight(accept: &str, media_type: &str) -> Option<f32> {
    let mut ranges = media_ranges(accept);
    ranges.find(|(range, _)| range.eq_ignore_ascii_case(media_type)).map(|(_, weight)| weight)
}

/// The weight of a media type: that of the narrowest range that it is in; 0 if it is in none.
pub(crate) fn weight(accept: &str, media_type: &str) -> f32 {
    let family = media_type.split('/').next().unwrap_or_default();
    let family = || named_weight(accept, &format!("{family}/*"));
    let named = named_weight(accept, media_type).or_else(family);
    named.or_else(|| named_weight(accept, "*/*")).unwrap_or(0.0)
}

/// Whether `Accept` names a media type itself, and prefers it to `other`.
pub(crate) fn prefers(accept: &str, media_type: &str, other: &str) -> bool {
    let named = named_weight(accept, media_type).unwrap_or(0.0);
    named > 0.0 && named >= weight(accept, other)
}

/// Whether `Accept` names a media type first, as browsers do with HTML, and prefers nothing to it.
pub(crate) fn names_first(accept: &str, media_type: &str) -> bool {
    // Fast path of nearly all programs: what comes first is something else, and is taken.
    let first = |text: &str| text.bytes().next().map(|byte| byte.to_ascii_lowercase());
    if first(accept) != first(media_type) && memchr::memchr(b';', accept.as_bytes()).is_none() {
        return false;
    }
    let mut ranges = media_ranges(accept).filter(|(_, weight)| *weight > 0.0);
    let named = ranges.next().filter(|(range, _)| range.eq_ignore_ascii_case(media_type));
    named.is_some_and(|(_, weight)| ranges.all(|(_, other)| other <= weight))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn request(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [(IF_NONE_MATCH, "\"a\""), (IF_NONE_MATCH, "\"b\", \"c\"")];
        assert_eq!(listed(&request(&lines), IF_NONE_MATCH).as_deref(), Some("\"a\",\"b\", \"c\""));
        assert_eq!(listed(&request(&[]), IF_NONE_MATCH), None);
        assert!(has_known_tag(&request(&lines), |tags| tags.contains("\"c\"")));
        assert!(!has_known_tag(&request(&[]), |_| true));
    }

    #[test]
    fn the_best_encoding_of_all_lines_is_taken() {
        let check = |lines: &[&'static str], expected| {
            let lines: Vec<_> = lines.iter().map(|line| (ACCEPT_ENCODING, *line)).collect();
            assert_eq!(accepted_encoding(&request(&lines)), expected, "{lines:?}");
        };
        check(&[], Encoding::Identity);
        check(&["gzip"], Encoding::Gzip);
        check(&["gzip", "zstd"], Encoding::Zstd);
        check(&["gzip;q=0.5", "identity"], Encoding::Identity);
    }

    #[test]
    fn media_types_have_weights_and_ignore_case() {
        let check = |accept: &str, html: f32, json: f32| {
            let found = (weight(accept, "text/html"), weight(accept, "application/json"));
            assert_eq!(found, (html, json), "{accept}");
        };
        check("", 0.0, 0.0);
        check("*/*", 1.0, 1.0);
        check("text/html", 1.0, 0.0);
        check("Text/HTML;Q=0.5, */* ; q=0.1", 0.5, 0.1);
        check("text/*;q=0.3, */*;q=0", 0.3, 0.0);
        check("*/*, text/html;q=0", 0.0, 1.0);
        check("text/html;level=1;q=0.7", 0.7, 0.0);
        check("text/html;q=much, application/json;q=1", 0.0, 1.0);
        check(",,text/html , application/json;q=0.9,", 1.0, 0.9);
    }

    #[test]
    fn a_named_type_is_preferred_to_another() {
        let check = |accept: &str, expected: bool| {
            let found = prefers(accept, "text/event-stream", "application/x-ndjson");
            assert_eq!(found, expected, "{accept}");
        };
        check("text/event-stream", true);
        check("Text/Event-Stream, */*", true);
        check("text/event-stream;q=0.5, application/x-ndjson;q=0.5", true);
        check("text/event-stream;q=0, */*", false);
        check("application/x-ndjson, text/event-stream;q=0.1", false);
        check("text/event-stream;q=0.1, */*", false);
        check("*/*", false);
        check("text/*", false);
        check("text/event-streams", false);
    }
}
