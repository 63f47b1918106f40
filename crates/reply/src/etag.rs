//! Entity tags: made from a digest, compared with `If-None-Match`.

use std::fmt;

use md5::{Digest, Md5};
use twox_hash::XxHash3_128;

use crate::Encoding;

/// A strong entity tag (RFC 9110, 8.8.3) for one body; each of its encodings has a spelling of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Etag(u128);

impl Etag {
    /// The tag of these bytes, which are a body or everything that determines one. Equal bytes have equal tags, in
    /// every process and after a restart.
    pub fn of(bytes: &[u8]) -> Etag {
        Etag(XxHash3_128::oneshot(bytes))
    }

    /// The header's value for a body that is sent in `encoding`, with quotes.
    pub fn header_value(&self, encoding: Encoding) -> String {
        let mut value = String::with_capacity(40);
        value.push('"');
        self.push_digits(&mut value);
        if !encoding.suffix().is_empty() {
            value.push('-');
            value.push_str(encoding.suffix());
        }
        value.push('"');
        value
    }

    /// Appends 32 hexadecimal digits. This is hand-written, as formatting takes longer than hashing a short body.
    fn push_digits(&self, text: &mut String) {
        let digits: [u8; 32] = std::array::from_fn(|at| {
            let digit = (self.0 >> (124 - 4 * at)) as usize & 15;
            b"0123456789abcdef"[digit]
        });
        text.push_str(std::str::from_utf8(&digits).expect("digits are ASCII"));
    }

    /// Whether `tag` (without quotes) is this tag, in any encoding.
    pub(crate) fn names(&self, tag: &str) -> bool {
        let (digits, suffix) = tag.split_at_checked(32).unwrap_or((tag, ""));
        u128::from_str_radix(digits, 16) == Ok(self.0)
            && digits.len() == 32
            && Encoding::is_suffix(suffix)
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = String::with_capacity(32);
        self.push_digits(&mut digits);
        formatter.write_str(&digits)
    }
}

/// One entry of an `If-Match` or `If-None-Match` list (RFC 9110, 13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedTag<'value> {
    /// The client marked it as weak.
    pub is_weak: bool,
    /// The tag without quotes, or `*`.
    pub tag: &'value str,
}

/// The entries of an `If-Match` or `If-None-Match` value. Quotes may be missing: some clients send tags without them.
pub fn listed_tags(value: &str) -> impl Iterator<Item = ListedTag<'_>> {
    value.split(',').map(|entry| {
        let entry = entry.trim();
        let strong = entry.strip_prefix("W/");
        ListedTag { is_weak: strong.is_some(), tag: strong.unwrap_or(entry).trim_matches('"') }
    })
}

/// Whether an `If-None-Match` header with this value lists a tag that `names` what the server has, or `*`. Tags are
/// compared weakly, as RFC 9110 requires here: 13.1.2.
pub fn is_listed(if_none_match: &str, names: impl Fn(&str) -> bool) -> bool {
    listed_tags(if_none_match).any(|listed| listed.tag == "*" || names(listed.tag))
}

/// Whether an `If-Match` header with this value lists a tag that `names` what the server has, or `*`. A weak tag names nothing
/// here: RFC 9110, 13.1.1.
pub fn is_matched(if_match: &str, names: impl Fn(&str) -> bool) -> bool {
    listed_tags(if_match).any(|listed| listed.tag == "*" || (!listed.is_weak && names(listed.tag)))
}

/// Whether `tag` is the MD5 of `body` in hexadecimal. The body is hashed only if the tag has that form.
pub(crate) fn is_md5_of(tag: &str, body: &[u8]) -> bool {
    let is_hexadecimal = tag.len() == 32 && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hexadecimal
        && u128::from_str_radix(tag, 16)
            .is_ok_and(|tag| tag == u128::from_be_bytes(Md5::digest(body).into()))
}

#[cfg(test)]
mod tests {
    use crate::{Encoding, Etag, Reply};

    #[track_caller]
    fn check(if_none_match: &str, expected: bool) {
        let reply = Reply::tagged("application/json", "[]".as_bytes());
        let tag = reply.etag.expect("tagged").to_string();
        assert_eq!(
            reply.is_known_by(&if_none_match.replace("TAG", &tag)),
            expected,
            "{if_none_match}"
        );
    }

    #[test]
    fn if_none_match() {
        check("\"TAG\"", true);
        check("\"TAG-gz\"", true);
        check("\"TAG-zst\"", true);
        check("\"TAG-br\"", false);
        check("\"TAGx\"", false);
        check("TAG", true);
        check("W/\"TAG\"", true);
        check("\"other\", \"TAG\"", true);
        check("*", true);
        check("\"other\"", false);
        check("", false);
        check("\"\"", false);
        check("é,\u{1F600}", false);
    }

    #[test]
    fn aurweb_tags_are_the_md5_of_the_body() {
        // printf '[]' | md5sum
        check("d751713988987e9331980363e24189ce", true);
        check("\"d751713988987e9331980363e24189ce\"", true);
        check("d751713988987e9331980363e24189cf", false);
    }

    /// The tags that clients have stored stay valid from version to version, on every processor.
    #[test]
    fn tags_are_xxh3() {
        assert_eq!(Etag::of(b"").to_string(), "99aa06d3014798d86001c324468d497f");
        let long: Vec<u8> = (0..5000_u32).map(|at| (at * 7) as u8).collect();
        assert_eq!(Etag::of(&long).to_string(), "a4ba2a60fb07e0166abe8be5abcb2760");
    }

    #[test]
    fn each_encoding_has_its_own_tag() {
        let etag = Reply::tagged("", "[]".as_bytes()).etag.expect("tagged");
        assert_ne!(etag.header_value(Encoding::Identity), etag.header_value(Encoding::Gzip));
        assert!(etag.header_value(Encoding::Zstd).ends_with("-zst\""));
    }

    #[test]
    fn untagged_replies_are_never_known() {
        assert!(!Reply::untagged("", "[]".as_bytes()).is_known_by("*"));
    }
}
