//! What a request says about the answer it wants: the tags that the client has, and the encoding that it takes. For every
//! surface.

use std::borrow::Cow;

use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use reply::Encoding;

/// Whether the request has one of these headers. Most have few headers, and looking at each is cheaper than one lookup.
pub(super) fn has_any<const N: usize>(headers: &HeaderMap, names: [&HeaderName; N]) -> bool {
    headers.keys().any(|name| names.contains(&name))
}

/// The values of a header that is a list, which may be sent in several lines (RFC 9110, 5.3).
pub(super) fn listed(headers: &HeaderMap, name: HeaderName) -> Option<Cow<'_, str>> {
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

/// The encoding that the client prefers among those that answers are sent in.
pub(super) fn accepted_encoding(request: &HeaderMap) -> Encoding {
    listed(request, ACCEPT_ENCODING)
        .map_or(Encoding::Identity, |accepted| Encoding::negotiate(&accepted))
}

/// Whether `If-None-Match` is there and `is_known` finds in its list what would be sent.
pub(super) fn has_known_tag(request: &HeaderMap, is_known: impl FnOnce(&str) -> bool) -> bool {
    listed(request, IF_NONE_MATCH).is_some_and(|tags| is_known(&tags))
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
}
