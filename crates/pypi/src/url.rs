//! Names as parts of URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that a path segment encodes: all but RFC 3986's `pchar`, and also `&` and `'`, which HTML would
/// have to escape.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// `segment`, encoded for a URL.
pub(crate) fn encoded(segment: &str) -> impl std::fmt::Display {
    utf8_percent_encode(segment, &SEGMENT)
}
