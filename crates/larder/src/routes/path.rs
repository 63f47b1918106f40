//! Paths, cut at their slashes and percent-decoded. Every request pays for this, and in nearly all paths nothing is encoded.

use std::borrow::Cow;
use std::str::Utf8Error;

use memchr::{memchr, memchr_iter};
use percent_encoding::percent_decode_str;

/// The parts between the slashes, as `path.split('/')` gives them.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    memchr_iter(b'/', path.as_bytes()).chain([path.len()]).map(move |end| {
        let segment = &path[start..end];
        start = end + 1;
        segment
    })
}

/// Percent-decoded.
///
/// # Errors
/// For bytes that are not UTF-8.
pub(crate) fn decoded(text: &str) -> Result<Cow<'_, str>, Utf8Error> {
    if is_encoded(text) { percent_decode_str(text).decode_utf8() } else { Ok(text.into()) }
}

/// Percent-decoded, with replacement characters for bytes that are not UTF-8.
pub(crate) fn decoded_lossily(text: &str) -> Cow<'_, str> {
    if is_encoded(text) { percent_decode_str(text).decode_utf8_lossy() } else { text.into() }
}

fn is_encoded(text: &str) -> bool {
    memchr(b'%', text.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_those_of_a_split() {
        for path in ["", "/", "//", "a", "/a", "/a/", "/a//b", "/ä/b%2Fc/", "/rpc/v5/info/vim"] {
            let expected: Vec<&str> = path.split('/').collect();
            assert_eq!(segments(path).collect::<Vec<_>>(), expected, "{path:?}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(decoded("ä+b").as_deref(), Ok("ä+b"));
        assert_eq!(decoded("a%2Fb%").as_deref(), Ok("a/b%"));
        assert!(decoded("%ff").is_err());
        assert_eq!(decoded_lossily("a%ffb"), "a\u{fffd}b");
        assert_eq!(decoded_lossily("a%20b"), "a b");
    }
}
