//! The host of a request: named once, so that every server takes the same one (RFC 9112, 3.2).
//!
//! If two servers take a request to be for different hosts, an attacker can use that. So a request with two `Host` lines, or
//! without one, is refused, and the authority of a request's target replaces `Host`.

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Version};

/// What is wrong about the host of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostFault {
    /// None is named.
    #[error("the request names no host: expected one `Host` line")]
    Missing,
    /// Several are named, equal ones too.
    #[error("the request has several `Host` lines: expected one")]
    Several,
    /// The text is not a host.
    #[error("the request's `Host` is no host: expected a name or an address, and perhaps a port")]
    Invalid,
}

/// Checks the host of a request, and makes `Host` what its target says where that has an authority.
pub(super) fn settle(head: &mut Parts) -> Result<(), HostFault> {
    let headers = &head.headers;
    // Nearly no request repeats any header, and this is cheaper than looking for a second line of one.
    let repeats_some = headers.len() > headers.keys_len();
    if repeats_some && headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(HostFault::Several);
    }
    let host = headers.get(HOST);
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return Err(HostFault::Invalid);
    }
    match head.uri.authority() {
        Some(authority) => {
            if !is_host(authority.as_str().as_bytes()) {
                return Err(HostFault::Invalid);
            }
            let needs_line = head.version == Version::HTTP_11;
            match host {
                None if needs_line => return Err(HostFault::Missing),
                // The target wins (RFC 9112, 3.2.2).
                Some(host) if host.as_bytes() != authority.as_str().as_bytes() => {
                    let authority = HeaderValue::from_str(authority.as_str());
                    let authority = authority.map_err(|_| HostFault::Invalid)?;
                    head.headers.insert(HOST, authority);
                }
                None | Some(_) => {}
            }
            Ok(())
        }
        // HTTP/1.0 has no `Host`.
        None if host.is_none() && head.version > Version::HTTP_10 => Err(HostFault::Missing),
        None => Ok(()),
    }
}

/// Whether this is a name or an address, and perhaps a port. Not everything that RFC 3986 lets a name consist of: what
/// separates the parts of URLs, lists and markup is in no host that has ever been reached.
fn is_host(text: &[u8]) -> bool {
    let (has_name, port) = match text {
        [b'[', rest @ ..] => match rest.iter().position(|byte| *byte == b']') {
            Some(end) => (is_address(&rest[..end]), &rest[end + 1..]),
            None => return false,
        },
        _ => {
            let length = text.iter().position(|byte| !IS_OF_NAME[usize::from(*byte)]);
            let (name, port) = text.split_at(length.unwrap_or(text.len()));
            (!name.is_empty(), port)
        }
    };
    has_name
        && match port {
            [] => true,
            [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}

/// Whether `text` may be between brackets: only characters of an IPv6 address; their order is not checked.
fn is_address(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte))
}

/// For each byte, whether a name may contain it. A table, because every request has a host to check.
static IS_OF_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let it = byte as u8;
        table[byte] = it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// `Host` after it was settled, empty without one.
    fn settled(version: Version, target: &str, hosts: &[&str]) -> Result<String, HostFault> {
        let mut request = http::Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (mut head, ()) = request.body(()).expect("a request").into_parts();
        settle(&mut head)?;
        let host = head.headers.get(HOST).map(|host| host.to_str().expect("text"));
        Ok(host.unwrap_or_default().to_owned())
    }

    #[test]
    fn one_host() {
        use HostFault::{Invalid, Missing, Several};
        let check = |version, target: &str, hosts: &[&str], expected: Result<&str, HostFault>| {
            let found = settled(version, target, hosts);
            assert_eq!(found, expected.map(str::to_owned), "{version:?} {target} {hosts:?}");
        };
        check(Version::HTTP_11, "/", &["h"], Ok("h"));
        check(Version::HTTP_11, "/", &[], Err(Missing));
        check(Version::HTTP_11, "/", &["h", "h"], Err(Several));
        check(Version::HTTP_11, "/", &["h", "i"], Err(Several));
        check(Version::HTTP_11, "/", &[""], Err(Invalid));
        check(Version::HTTP_11, "/", &["h, i"], Err(Invalid));
        check(Version::HTTP_10, "/", &[], Ok(""));
        check(Version::HTTP_10, "/", &["h", "h"], Err(Several));
        check(Version::HTTP_10, "/", &["h/i"], Err(Invalid));
        check(Version::HTTP_11, "http://a:1/x", &["h"], Ok("a:1"));
        check(Version::HTTP_11, "http://a/", &[], Err(Missing));
        check(Version::HTTP_11, "http://a/", &["h", "a"], Err(Several));
        check(Version::HTTP_11, "http://u@a/", &["a"], Err(Invalid));
        check(Version::HTTP_2, "http://a/", &[], Ok(""));
        check(Version::HTTP_2, "http://a/", &["a"], Ok("a"));
        check(Version::HTTP_2, "http://a/", &["h"], Ok("a"));
        check(Version::HTTP_2, "/", &[], Err(Missing));
        check(Version::HTTP_2, "/", &["h"], Ok("h"));
    }

    #[test]
    fn hosts() {
        for host in [
            "h",
            "larder.example",
            "larder.example.",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "[::ffff:127.0.0.1]:65535",
            "a_b-c~d",
            "h:",
            "xn--bcher-kva.example",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for text in [
            "",
            ":80",
            "h:80:80",
            "h:x",
            "h:123456",
            "h i",
            "h,i",
            "h/i",
            "u@h",
            "h?",
            "h#",
            "<h>",
            "\"h\"",
            "h'",
            "[",
            "[]",
            "[::1",
            "[::1]80",
            "[x]",
            "[::1%25eth0]",
            "h%41",
            "http://h",
            "b\u{fc}cher.example",
        ] {
            assert!(!is_host(text.as_bytes()), "{text}");
        }
    }
}
