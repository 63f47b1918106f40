//! [`Content`]: facts about the content of an article, without its bytes.
//!
//! bytes, as they arrive -> [`Inspector`] -> media type, title -> [`Content`]

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ::record::Digest;
use encoding_rs::{Encoding, UTF_8};

use crate::front_matter::front_matter;
use crate::title::title;

/// Facts about the content of an article. Its bytes are the blob with its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// SHA-256 of the bytes: the name of their blob.
    pub digest: Digest,
    /// Number of bytes.
    pub size_bytes: u64,
    /// The media type that the bytes were sent with, or the one chosen for them. For UTF-8 text it names that
    /// charset.
    pub content_type: ContentType,
    /// The title that the text gives itself: at most 200 characters on one line; `None` for binary content.
    pub title: Option<Arc<str>>,
    /// Its place among the articles of its folder, as its front matter says; smaller ones come first.
    pub order: Option<i32>,
    /// What it is about, as its front matter says.
    pub tags: Arc<[Arc<str>]>,
    /// Whether its front matter says that it is for those who may write it, and in no list.
    pub draft: bool,
}

impl Content {
    /// Describes `bytes`, all of which are in memory.
    ///
    /// # Errors
    /// [`ContentTypeError`] if `content_type` is not a media type.
    pub fn of(bytes: &[u8], content_type: Option<&str>) -> Result<Content, ContentTypeError> {
        let mut inspector = Inspector::new();
        inspector.update(bytes);
        inspector.finish(Digest::of(bytes), content_type)
    }
}

/// A media type with its parameters, kept as it was sent (RFC 9110, 8.3): at most 255 bytes of ASCII. New `text/…`
/// contents in UTF-8 get a charset parameter if they were sent without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentType(Arc<str>);

/// The given text is not a media type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a media type: `type/subtype`, perhaps with `; name=value`, in at most 255 bytes was \
     expected"
)]
pub struct ContentTypeError(String);

/// Types of texts that browsers get as pages.
const PAGES: [&str; 7] = [
    "text/markdown",
    "text/x-markdown",
    "text/x-rst",
    "text/prs.fallenstein.rst",
    "text/html",
    "application/xhtml+xml",
    "text/plain",
];

impl ContentType {
    /// Most bytes in a media type.
    pub const BYTES_MAX: usize = 255;
    /// The type given to text that was sent without a media type.
    pub const TEXT: &str = "text/plain; charset=utf-8";
    /// The type given to all other bytes that were sent without a media type.
    pub(crate) const BINARY: &str = "application/octet-stream";

    /// Checks `text`. Surrounding white space is dropped, the rest stays as it is.
    ///
    /// # Errors
    /// [`ContentTypeError`] if `text` is not a media type.
    pub fn parse(text: &str) -> Result<ContentType, ContentTypeError> {
        ContentType::parse_with(text, |text| Arc::from(text))
            .ok_or_else(|| ContentTypeError(record::excerpt(text, 80).escape_default().to_string()))
    }

    /// Checks `text` as [`ContentType::parse`] does; `keep` allocates the result, or shares one that exists.
    pub(crate) fn parse_with(
        text: &str,
        keep: impl FnOnce(&str) -> Arc<str>,
    ) -> Option<ContentType> {
        let text = text.trim_matches([' ', '\t']);
        let is_one = text.len() <= ContentType::BYTES_MAX && is_media_type(text);
        is_one.then(|| ContentType(keep(text)))
    }

    /// The media type, as it was sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `type/subtype` in lower case.
    pub fn essence(&self) -> String {
        self.0.split(';').next().unwrap_or_default().trim_end().to_ascii_lowercase()
    }

    /// Whether browsers get a page of it: Markdown, reStructuredText, HTML and plain text.
    pub fn is_page(&self) -> bool {
        let essence = self.0.split(';').next().unwrap_or_default().trim_end();
        PAGES.iter().any(|page| essence.eq_ignore_ascii_case(page))
    }

    /// Whether this is a kind of text: `text/…`, JSON, XML and other formats that people read by line.
    /// Whether some bytes are text is decided by [`is_text`].
    pub fn is_textual(&self) -> bool {
        let essence = self.essence();
        essence.starts_with("text/")
            || essence.ends_with("+json")
            || essence.ends_with("+xml")
            || essence.ends_with("+yaml")
            || matches!(
                essence.as_str(),
                "application/json"
                    | "application/xml"
                    | "application/javascript"
                    | "application/ecmascript"
                    | "application/yaml"
                    | "application/x-yaml"
                    | "application/toml"
                    | "application/x-sh"
                    | "application/x-tex"
                    | "application/sql"
                    | "application/x-ndjson"
                    | "application/rtf"
                    | "message/rfc822"
            )
    }
}

impl ContentType {
    /// The charset that the type names.
    fn charset(&self) -> Option<&str> {
        let (_, charset) = parameters(&self.0).find(|it| it.0.eq_ignore_ascii_case("charset"))?;
        Some(charset)
    }

    /// The bytes as text in the charset that the type names, or in UTF-8, without a byte-order mark.
    pub fn text<'bytes>(&self, bytes: &'bytes [u8]) -> Cow<'bytes, str> {
        let named = self.charset().and_then(|label| Encoding::for_label(label.as_bytes()));
        named.unwrap_or(UTF_8).decode(bytes).0
    }

    /// Adds `charset=utf-8` to a `text/…` type that names no charset, for text that is UTF-8. Without it browsers
    /// would guess another charset.
    fn in_utf_8(self) -> ContentType {
        const CHARSET: &str = "; charset=utf-8";
        let says_charset = self.charset().is_some();
        let essence = self.essence();
        let fits = self.0.len() + CHARSET.len() <= ContentType::BYTES_MAX;
        if says_charset || !essence.starts_with("text/") || !fits {
            return self;
        }
        let said = self.0.trim_end_matches([' ', '\t', ';']);
        ContentType(format!("{said}{CHARSET}").into())
    }
}

/// The names of the parameters of `text`, which is a valid media type.
fn parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        let (name, value) = rest.split_once('=')?;
        let end = value.find([' ', '\t', ';']).unwrap_or(value.len());
        let value = match value.strip_prefix('"') {
            Some(quoted) => {
                rest = after_quoted(quoted)?;
                quoted.split('"').next().unwrap_or_default()
            }
            None => {
                rest = &value[end..];
                &value[..end]
            }
        };
        Some((name, value))
    })
}

/// Whether `bytes` of this media type can be compared and merged line by line: a textual type, UTF-8, no NUL.
pub fn is_text(content_type: &ContentType, bytes: &[u8]) -> bool {
    content_type.is_textual() && !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

impl fmt::Display for ContentType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether `text` is a token (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether `text` is a media type (RFC 9110, 8.3.1), in ASCII.
fn is_media_type(text: &str) -> bool {
    let (essence, mut parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_essence = essence
        .trim_end_matches([' ', '\t'])
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    if !is_essence {
        return false;
    }
    loop {
        parameters = parameters.trim_start_matches([' ', '\t', ';']);
        if parameters.is_empty() {
            return true;
        }
        let Some((name, value)) = parameters.split_once('=') else { return false };
        let rest = match value.strip_prefix('"') {
            Some(quoted) => after_quoted(quoted),
            None => {
                let end = value.find([' ', '\t', ';']).unwrap_or(value.len());
                let (token, rest) = value.split_at(end);
                is_token(token).then_some(rest)
            }
        };
        match rest.map(|rest| rest.trim_start_matches([' ', '\t'])) {
            Some(rest) if is_token(name) && (rest.is_empty() || rest.starts_with(';')) => {
                parameters = rest;
            }
            _ => return false,
        }
    }
}

/// The rest after a quoted string, whose opening quote has been consumed already.
fn after_quoted(text: &str) -> Option<&str> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\t' | b' '..=b'~' if is_escaped => is_escaped = false,
            b'"' => return Some(&text[at + 1..]),
            b'\\' => is_escaped = true,
            b'\t' | b' '..=b'~' => {}
            _ => return None,
        }
    }
    None
}

/// Looks at bytes as they arrive, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct Inspector {
    /// The first bytes, from which the title is taken.
    head: Vec<u8>,
    size_bytes: u64,
    is_broken: bool,
    /// The beginning of a character that the next bytes may complete.
    pending: Vec<u8>,
}

impl Inspector {
    /// Number of bytes, from the start, in which a title is searched for.
    pub const HEAD_BYTES_MAX: usize = 65_536;

    /// An inspector that has seen nothing.
    pub fn new() -> Inspector {
        Inspector::default()
    }

    /// Looks at the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        let head_room = Inspector::HEAD_BYTES_MAX - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(head_room)]);
        if self.is_broken {
            return;
        }
        let mut bytes = bytes;
        while !self.pending.is_empty()
            && let Some((&first, rest)) = bytes.split_first()
        {
            self.pending.push(first);
            bytes = rest;
            match std::str::from_utf8(&self.pending) {
                Ok(_) => self.pending.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => self.is_broken = true,
            }
            if self.is_broken {
                return;
            }
        }
        self.is_broken = bytes.contains(&0);
        if let Err(error) = std::str::from_utf8(bytes) {
            match error.error_len() {
                None => self.pending = bytes[error.valid_up_to()..].to_vec(),
                Some(_) => self.is_broken = true,
            }
        }
    }

    /// Number of bytes seen.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether everything seen is UTF-8 without a NUL.
    pub fn is_text(&self) -> bool {
        !self.is_broken && self.pending.is_empty()
    }

    /// Describes the bytes seen so far, whose digest is `digest`. Without a media type they get [`ContentType::TEXT`]
    /// or [`ContentType::BINARY`], depending on the bytes. A `text/…` type without a charset gets `charset=utf-8` if
    /// the bytes are UTF-8.
    ///
    /// # Errors
    /// [`ContentTypeError`] if `content_type` is not a media type.
    pub fn finish(
        self,
        digest: Digest,
        content_type: Option<&str>,
    ) -> Result<Content, ContentTypeError> {
        let default = if self.is_text() { ContentType::TEXT } else { ContentType::BINARY };
        let content_type = ContentType::parse(content_type.unwrap_or(default))?;
        let content_type = if self.is_text() { content_type.in_utf_8() } else { content_type };
        // The head may end in the middle of a character.
        let head = match std::str::from_utf8(&self.head) {
            Err(error) if self.is_text() => &self.head[..error.valid_up_to()],
            _ => &self.head[..],
        };
        let is_known = self.is_text() || content_type.charset().is_some();
        let has_title = is_known && content_type.is_textual();
        let text = has_title.then(|| content_type.text(head));
        let title = text.as_ref().and_then(|text| title(&content_type, text));
        let before = text.map(|text| front_matter(&content_type, &text)).unwrap_or_default();
        Ok(Content {
            digest,
            size_bytes: self.size_bytes,
            content_type,
            title: title.map(Arc::from),
            order: before.order,
            tags: before.tags.into_iter().map(Arc::from).collect(),
            draft: before.draft,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: bool) {
        assert_eq!(ContentType::parse(text).is_ok(), expected, "{text:?}");
    }

    #[test]
    fn text_says_that_it_is_utf_8() {
        let check = |said: &str, bytes: &[u8], expected: &str| {
            let content = Content::of(bytes, Some(said)).expect("a media type");
            assert_eq!(content.content_type.as_str(), expected, "{said}");
        };
        let (text, latin) = ("grün".as_bytes(), b"gr\xfcn");
        check("text/markdown", text, "text/markdown; charset=utf-8");
        check("Text/HTML;", text, "Text/HTML; charset=utf-8");
        check("text/plain", b"", "text/plain; charset=utf-8");
        let variant = "text/markdown; variant=\"a; charset=b\"";
        check(variant, text, &format!("{variant}; charset=utf-8"));
        // A charset that was sent is kept. Bytes that are not UTF-8, and types that are not text, get none.
        check("text/plain; Charset=ISO-8859-1", text, "text/plain; Charset=ISO-8859-1");
        check("text/plain;charset=\"utf-8\"", text, "text/plain;charset=\"utf-8\"");
        check("text/markdown", latin, "text/markdown");
        check("text/markdown", b"a\0b", "text/markdown");
        check("application/json", text, "application/json");
        check("image/svg+xml", text, "image/svg+xml");
        let long = format!("text/{}", "x".repeat(245));
        check(&long, text, &long);
    }

    #[test]
    fn media_types() {
        check("text/plain", true);
        check("text/plain; charset=utf-8", true);
        check(" text/plain;charset=utf-8 ", true);
        check("text/plain ; charset=\"utf-8\" ; x=y", true);
        check("multipart/mixed; boundary=\"a; \\\"b\"", true);
        check("image/svg+xml;", true);
        check("application/vnd.a-b.c+json;v=1", true);
        check(&format!("text/{}", "x".repeat(250)), true);
        check(&format!("text/{}", "x".repeat(251)), false);
        for bad in [
            "",
            "text",
            "text/",
            "/plain",
            "text/plain/x",
            "text /plain",
            "text/pl ain",
            "text/é",
            "text/plain; charset",
            "text/plain; =x",
            "text/plain; a=",
            "text/plain; a=\"b",
            "text/plain; a=\"b\"c",
            "text/plain\r\nX: y",
            "text/plain; a=\"\r\n\"",
            "text/plain, text/html",
            "text/plain; a=b c",
            "text/plain\0",
            "*/*; é=1",
        ] {
            check(bad, false);
        }
    }

    #[test]
    fn bytes_without_a_media_type_get_one() {
        let content_type = |bytes: &[u8]| {
            let content = Content::of(bytes, None).expect("a default");
            content.content_type.as_str().to_owned()
        };
        assert_eq!(content_type("grün".as_bytes()), ContentType::TEXT);
        assert_eq!(content_type(b""), ContentType::TEXT);
        assert_eq!(content_type(b"\xff\xd8"), ContentType::BINARY);
        assert_eq!(content_type(b"a\0b"), ContentType::BINARY);
        assert_eq!(content_type(b"cut \xc3"), ContentType::BINARY);
    }

    #[test]
    fn text_needs_a_textual_type_and_utf_8() {
        let is_text = |content_type: &str, bytes: &[u8]| {
            is_text(&ContentType::parse(content_type).expect("a media type"), bytes)
        };
        assert!(is_text("TEXT/HTML; charset=utf-8", b"<p>"));
        assert!(is_text("image/svg+xml", b"<svg/>"));
        assert!(is_text("application/json", b"{}"));
        assert!(!is_text("text/plain", b"\xff"));
        assert!(!is_text("text/plain", b"\0"));
        assert!(!is_text("application/octet-stream", b"text"));
        assert!(!is_text("image/png", b"text"));
    }

    #[test]
    fn the_title_of_a_long_text_comes_from_its_head() {
        let text = format!("# Title\n{}", "é".repeat(Inspector::HEAD_BYTES_MAX));
        let content = Content::of(text.as_bytes(), Some("text/markdown")).expect("a media type");
        assert_eq!(content.title.as_deref(), Some("Title"));
        let content = Content::of(text.as_bytes(), Some("image/png")).expect("a media type");
        assert_eq!(content.title, None);
    }

    proptest::proptest! {
        #[test]
        fn pieces_are_seen_as_a_whole(
            bytes in proptest::prop_oneof![
                proptest::collection::vec(proptest::prelude::any::<u8>(), 0..12),
                "[a-zé日😀\0]{0,12}".prop_map(String::into_bytes),
            ],
            piece_bytes in 1_usize..5,
            cut in 0_usize..12,
        ) {
            let bytes = &bytes[..bytes.len() - cut.min(bytes.len()) / 3];
            let mut inspector = Inspector::new();
            bytes.chunks(piece_bytes).for_each(|piece| inspector.update(piece));
            let expected = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
            proptest::prop_assert_eq!(inspector.is_text(), expected);
            proptest::prop_assert_eq!(inspector.size_bytes(), bytes.len() as u64);
        }

        #[test]
        fn a_media_type_is_safe_in_a_header(text in "[a-z/;=\" \\\\\t\r\né,]{0,12}") {
            if let Ok(content_type) = ContentType::parse(&text) {
                let is_visible = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
                proptest::prop_assert!(content_type.as_str().bytes().all(is_visible));
                proptest::prop_assert_eq!(ContentType::parse(content_type.as_str()), Ok(content_type));
            }
        }
    }

    use proptest::strategy::Strategy;
}
