//! The path of a request as handlers read it: in one spelling, and below the path of the URL that this server has outside.
//!
//! `/%70kg//rpc` -> `/pkg//rpc` -> `//rpc` -> `/rpc`. Nearly all paths stay as they are.

use std::borrow::Cow;

use http::Uri;

use super::outside;
use super::router::route;
use crate::app::App;
use crate::front::request::Parts;

/// Paths below which slashes belong to a name, which is never changed.
const NAMES: [&str; 4] = ["/article/", "/+edit/", "/+rename/", "/+attachments/"];

/// Gives a request the path that handlers read, and returns what paths of this server begin with for the client.
pub(crate) fn settle(app: &App, head: &mut Parts) -> String {
    let root = outside::root_path(app, head);
    let path = head.uri.path();
    let spelled = in_one_spelling(path);
    let inner = match below(&spelled, &in_one_spelling(&root)) {
        // Some proxies remove their prefix and some do not. A path that is answered as it is has lost it.
        Some(inner) if route(app, &spelled).is_none() => in_one_spelling(inner).into_owned(),
        _ if *spelled == *path => return root,
        _ => spelled.into_owned(),
    };
    let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = std::mem::take(&mut head.uri).into_parts();
    if let Ok(target) = format!("{inner}{query}").try_into() {
        parts.path_and_query = Some(target);
    }
    head.uri = Uri::from_parts(parts).unwrap_or_default();
    root
}

/// A path in the spelling that all equal ones have: characters that need no encoding, and `+`, are not encoded (RFC 3986,
/// 6.2.2.2), and slashes that follow each other are one, as behind nginx. Those at the end are left to the handler, and so
/// are those in names of articles.
pub(crate) fn in_one_spelling(path: &str) -> Cow<'_, str> {
    let decoded = plainly_encoded(path);
    if !decoded.contains("//") {
        return decoded;
    }
    let rest = decoded.trim_start_matches('/');
    let start = &decoded[(decoded.len() - rest.len()).saturating_sub(1)..];
    if NAMES.iter().any(|names| start.starts_with(names)) {
        return Cow::Owned(start.to_owned());
    }
    let end = start.trim_end_matches('/').len();
    let mut path = String::with_capacity(start.len());
    for letter in start[..end].chars() {
        if letter != '/' || !path.ends_with('/') {
            path.push(letter);
        }
    }
    path.push_str(&start[end..]);
    Cow::Owned(path)
}

/// The path without encodings of characters that need none. With a percent sign that encodes nothing, it is left as it is.
fn plainly_encoded(path: &str) -> Cow<'_, str> {
    if memchr::memchr(b'%', path.as_bytes()).is_none() {
        return path.into();
    }
    let mut pieces = path.split('%');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.get(..2).filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(digits) = digits else { return path.into() };
        match u8::from_str_radix(digits, 16) {
            Ok(byte) if byte.is_ascii_alphanumeric() || b"-._~+".contains(&byte) => {
                plain.push(char::from(byte));
                plain.push_str(&piece[2..]);
            }
            _ => {
                plain.push('%');
                plain.push_str(piece);
            }
        }
    }
    plain.into()
}

/// The path below a prefix, if it is below one.
pub(crate) fn below<'path>(path: &'path str, prefix: &str) -> Option<&'path str> {
    let rest = path.strip_prefix(prefix).filter(|_| !prefix.is_empty())?;
    match rest {
        "" => Some("/"),
        rest => rest.starts_with('/').then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_have_one_spelling() {
        for (path, expected) in [
            ("/", "/"),
            ("/rpc", "/rpc"),
            ("/%72pc", "/rpc"),
            ("/packages%2Egz", "/packages.gz"),
            ("/%2Bapi", "/+api"),
            ("/%2battachments/a%2Fb/", "/+attachments/a%2Fb/"),
            ("/packages/c%2b%2B%7E%20%C3%A4", "/packages/c++~%20%C3%A4"),
            // What is encoded twice stays so.
            ("/a%252Eb", "/a%252Eb"),
            ("/a%2%45", "/a%2%45"),
            ("/a%", "/a%"),
            ("/a%zz%2E", "/a%zz%2E"),
            ("//rpc", "/rpc"),
            ("///rpc//v5///info/x", "/rpc/v5/info/x"),
            ("/%2F/rpc", "/%2F/rpc"),
            ("//", "/"),
            ("/rpc//", "/rpc//"),
            ("//article/a//b", "/article/a//b"),
            ("//u/i//+simple/", "/u/i/+simple/"),
        ] {
            assert_eq!(in_one_spelling(path), expected, "{path}");
            assert_eq!(in_one_spelling(expected), expected, "{path}");
        }
    }

    #[test]
    fn the_path_below_the_prefix() {
        for (path, prefix, expected) in [
            ("/pre/u/i/", "/pre", Some("/u/i/")),
            ("/pre//u", "/pre", Some("//u")),
            ("/pre", "/pre", Some("/")),
            ("/pre/", "/pre", Some("/")),
            ("/prefix/i", "/pre", None),
            ("/u/i/", "/pre", None),
            ("/u/i/", "", None),
        ] {
            assert_eq!(below(path, prefix), expected, "{path}");
        }
    }
}
