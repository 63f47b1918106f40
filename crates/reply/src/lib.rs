//! A finished answer, before HTTP: its bytes, their media type, and the tag that names them.
//!
//! A surface makes a [`Reply`]; the server decides whether the client already has it
//! ([`Reply::is_known_by`]), which encoding it gets ([`Encoding::negotiate`]) and sends it.
//! Nothing here knows a header map, a status or a socket.

mod deflate;
mod encoded;
mod encoding;
mod etag;

use bytes::Bytes;

pub use deflate::Outline;
pub use encoded::{ENCODED_BYTES_MIN, EncodedBody, PerEncoding};
pub use encoding::Encoding;
pub use etag::{Etag, ListedTag, is_listed, is_matched, listed_tags};

/// A finished answer. Cloning it copies no bytes.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Media type, exactly as sent.
    pub content_type: &'static str,
    /// The identity encoding.
    pub body: Bytes,
    /// The tag of this reply's data; `None` if the contract has no tag.
    pub etag: Option<Etag>,
    /// The bytes that the tag names, if they are not the body: the JSON within JSONP.
    pub core: Option<Bytes>,
    /// Where the body repeats itself, if its maker noted that: compressing then takes less time.
    pub outline: Option<Outline>,
}

impl Reply {
    /// A reply whose tag is the digest of its body.
    pub fn tagged(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
        let body = body.into();
        let etag = Etag::of(&body);
        Reply::with_tag(content_type, body, etag)
    }

    /// A reply whose tag was computed from everything that determines its body.
    pub fn with_tag(content_type: &'static str, body: impl Into<Bytes>, etag: Etag) -> Reply {
        Reply { content_type, body: body.into(), etag: Some(etag), core: None, outline: None }
    }

    /// A reply without a tag: it is always sent whole.
    pub fn untagged(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
        Reply { content_type, etag: None, body: body.into(), core: None, outline: None }
    }

    /// A reply whose `etag` names its `core`: JSON in a wrapper that the request chose.
    pub fn wrapped(
        content_type: &'static str,
        body: impl Into<Bytes>,
        core: Bytes,
        etag: Etag,
    ) -> Reply {
        Reply { core: Some(core), ..Reply::with_tag(content_type, body, etag) }
    }

    /// The body in `encoding`.
    pub fn encoded(&self, encoding: Encoding) -> Bytes {
        if encoding == Encoding::Gzip
            && let Some(outline) = &self.outline
        {
            let encoded = deflate::gzip(&self.body, outline);
            // A body with letters that lists rarely have may become longer.
            if encoded.len() < self.body.len() {
                return encoded.into();
            }
        }
        encoding.encode(&self.body)
    }

    /// Whether an `If-None-Match` header with this value says that the client has this reply.
    ///
    /// Besides RFC 9110 (lists, weak tags, `*`) this accepts two habits of the AUR's clients: a bare tag without
    /// quotes, and the MD5 of the tagged bytes, which was aurweb's tag.
    pub fn is_known_by(&self, if_none_match: &str) -> bool {
        is_listed(if_none_match, |tag| self.is_named_by(tag)) && self.etag.is_some()
    }

    /// Whether an `If-Match` header with this value lets this reply be sent.
    pub fn is_matched_by(&self, if_match: &str) -> bool {
        is_matched(if_match, |tag| self.is_named_by(tag))
    }

    fn is_named_by(&self, tag: &str) -> bool {
        let named = self.core.as_ref().unwrap_or(&self.body);
        self.etag.is_some_and(|etag| etag.names(tag) || etag::is_md5_of(tag, named))
    }
}
