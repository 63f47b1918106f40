//! [`RevisionTag`]: the entity tag of a revision.
//!
//! It is made of the revision's number and of a digest over its content's digest and media type. The number lets a
//! tag in `If-Match` say which revision the writer saw, even if the same text was the latest twice. The media type
//! makes sure that a client does not get "not modified" when only the type has changed.

use std::fmt;

use ::record::Digest;
use reply::{Encoding, is_listed, is_matched};

use crate::{Content, Revision};

/// A strong entity tag (RFC 9110, 8.8.3) of one revision, in the form `3-9f86d081884c7d65`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RevisionTag {
    /// The revision.
    pub revision: Revision,
    /// Computed from the content's digest and media type; 0 for a deletion, whose tag is never sent.
    content: u64,
}

impl RevisionTag {
    /// The tag of `content` as `revision`; `None` as content means a deletion.
    pub(crate) fn new(revision: Revision, content: Option<&Content>) -> RevisionTag {
        let content = content.map_or(0, |content| {
            let mut hasher = ::record::Hasher::new();
            hasher.update(content.digest.as_bytes());
            hasher.update(content.content_type.as_str().as_bytes());
            let digest: Digest = hasher.finish();
            digest.as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        });
        RevisionTag { revision, content }
    }

    /// The header's value, with quotes, for a body that is sent in `encoding`.
    pub fn header_value(&self, encoding: Encoding) -> String {
        let suffix = match encoding {
            Encoding::Identity => "",
            Encoding::Gzip => "-gz",
            Encoding::Zstd => "-zst",
        };
        format!("\"{self}{suffix}\"")
    }

    /// Parses one tag without quotes, of any encoding.
    pub(crate) fn parse(text: &str) -> Option<RevisionTag> {
        let text = text.strip_suffix("-gz").or_else(|| text.strip_suffix("-zst")).unwrap_or(text);
        let (revision, content) = text.split_once('-')?;
        let is_one_spelling = content.len() == 16
            && content.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let content = u64::from_str_radix(content, 16).ok().filter(|_| is_one_spelling)?;
        Some(RevisionTag { revision: revision.parse().ok()?, content })
    }

    /// Whether an `If-None-Match` header with this value says that the client has this revision, in any encoding.
    pub fn is_known_by(&self, if_none_match: &str) -> bool {
        is_listed(if_none_match, |tag| RevisionTag::parse(tag) == Some(*self))
    }

    /// Whether an `If-Match` header with this value names this revision, in any encoding.
    pub fn is_matched_by(&self, if_match: &str) -> bool {
        is_matched(if_match, |tag| RevisionTag::parse(tag) == Some(*self))
    }
}

impl fmt::Display for RevisionTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{:016x}", self.revision, self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(revision: u32, content_type: &str) -> RevisionTag {
        let content = Content::of(b"text", Some(content_type)).expect("a content type");
        RevisionTag::new(Revision(revision), Some(&content))
    }

    #[test]
    fn a_tag_tells_revisions_and_media_types_apart() {
        assert_eq!(tag(3, "text/plain"), tag(3, "text/plain"));
        assert_ne!(tag(3, "text/plain"), tag(4, "text/plain"));
        assert_ne!(tag(3, "text/plain"), tag(3, "text/html"));
    }

    #[test]
    fn if_none_match() {
        let tag = tag(3, "text/plain");
        let check = |value: &str, expected: bool| {
            let value = value.replace("TAG", &tag.to_string());
            assert_eq!(tag.is_known_by(&value), expected, "{value}");
        };
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            assert!(tag.is_known_by(&tag.header_value(encoding)));
        }
        check("*", true);
        check("\"x\", W/\"TAG\"", true);
        check("\"TAG-br\"", false);
        check("\"TAG0\"", false);
        check("\"0TAG\"", false);
        check("", false);
        check("\"\"", false);
        check("é-,\"-\"", false);
    }
}
