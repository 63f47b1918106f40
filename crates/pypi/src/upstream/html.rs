//! A page as HTML (PEP 503, 592, 629, 658, 714, 740, 792): its links, and the facts in its head.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use encoding_rs::{Encoding, UTF_8};
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{IoReader, Span, Tokenizer};
use percent_encoding::percent_decode_str;
use url::Url;

use super::source::{DecodedText, PageStart, ShortTokens};
use super::{
    CoreMetadata, Files, Locations, PageError, UpstreamFile, UpstreamPage, absolute, digest,
    exactly, is_hexadecimal, one_line, specifiers, time,
};
use crate::{Filename, StatusMarker};

/// One link.
pub(super) struct Anchor {
    /// Its `href`.
    pub(super) href: String,
    /// Its text, without spaces around it.
    pub(super) text: String,
    attributes: Attributes,
}

/// What a page says outside of its links.
#[derive(Default)]
pub(super) struct PageHead {
    base: Option<String>,
    version: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    tracks: Vec<String>,
    alternates: Vec<String>,
    anchors: usize,
    /// The beginning of its title and of its headings.
    title: String,
    has_form: bool,
    has_password: bool,
}

/// After so many bytes of a link's text, nothing is added to it.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Longest title that is read, in bytes.
const TITLE_BYTES_MAX: usize = 500;

impl PageHead {
    /// Whether it calls itself a list: the page of an index without projects, or of an empty directory, has nothing else.
    fn is_titled_as_list(&self) -> bool {
        let title = self.title.to_lowercase();
        ["index", "links for", "directory"].iter().any(|word| title.contains(word))
    }

    /// Whether it may be a page of an index although it has no entry.
    pub(super) fn may_be_empty(&self) -> bool {
        self.version.is_some() || (self.is_titled_as_list() && !self.has_password)
    }

    /// Whether it asks for a password or for something else, and lists nothing.
    pub(super) fn is_form(&self) -> bool {
        let is_form = self.has_password || (self.has_form && !self.is_titled_as_list());
        is_form && self.version.is_none()
    }
}

/// Longest base of a page's links, in bytes: every link is read with it.
const BASE_BYTES_MAX: usize = 2_000;

/// The attributes with a meaning. All others are dropped while reading, however many a tag has.
const ATTRIBUTES: [&str; 12] = [
    "href",
    "rel",
    "type",
    "name",
    "content",
    "data-core-metadata",
    "data-dist-info-metadata",
    "data-provenance",
    "data-requires-python",
    "data-size",
    "data-upload-time",
    "data-yanked",
];

/// The known attributes of a tag, each once, and their values.
type Attributes = Vec<(&'static str, String)>;

/// The parts of a page with a meaning.
enum PagePart {
    Link(Attributes),
    LinkEnd,
    Base(Attributes),
    Meta(Attributes),
    Form,
    Input(Attributes),
    /// Text within a link.
    Text(String),
    /// Text within the title or a heading.
    Title(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Link,
    Base,
    Meta,
    Form,
    Input,
}

/// Turns tokens into [`PagePart`]s, and drops all others.
#[derive(Default)]
struct Sieve {
    tag: Option<Tag>,
    attributes: Attributes,
    /// Whether the attribute that is read means something.
    is_wanted: bool,
    is_in_link: bool,
    is_in_title: bool,
}

impl Sieve {
    fn piece(&mut self, event: CallbackEvent<'_>) -> Option<PagePart> {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.attributes.clear();
                self.is_in_title |= matches!(name, b"title" | b"h1");
                self.tag = match name {
                    b"a" => Some(Tag::Link),
                    b"base" => Some(Tag::Base),
                    b"meta" => Some(Tag::Meta),
                    b"form" => Some(Tag::Form),
                    b"input" => Some(Tag::Input),
                    _ => None,
                };
            }
            CallbackEvent::AttributeName { name } => {
                let known = ATTRIBUTES.into_iter().find(|known| known.as_bytes() == name);
                let known = known.filter(|_| self.tag.is_some());
                // If an attribute is repeated, the first one counts.
                let known = known.filter(|known| self.attributes.iter().all(|(it, _)| it != known));
                self.is_wanted = known.is_some();
                self.attributes.extend(known.map(|known| (known, String::new())));
            }
            CallbackEvent::AttributeValue { value } if self.is_wanted => {
                if let Some((_, text)) = self.attributes.last_mut() {
                    text.push_str(&String::from_utf8_lossy(value));
                }
            }
            CallbackEvent::CloseStartTag { .. } => {
                let attributes = std::mem::take(&mut self.attributes);
                let tag = self.tag.take()?;
                self.is_in_link |= tag == Tag::Link;
                return Some(match tag {
                    Tag::Link => PagePart::Link(attributes),
                    Tag::Base => PagePart::Base(attributes),
                    Tag::Meta => PagePart::Meta(attributes),
                    Tag::Form => PagePart::Form,
                    Tag::Input => PagePart::Input(attributes),
                });
            }
            CallbackEvent::EndTag { name: b"a" } => {
                self.is_in_link = false;
                return Some(PagePart::LinkEnd);
            }
            CallbackEvent::EndTag { name: b"title" | b"h1" } => self.is_in_title = false,
            CallbackEvent::String { value } if self.is_in_title && !self.is_in_link => {
                return Some(PagePart::Title(String::from_utf8_lossy(value).into_owned()));
            }
            CallbackEvent::String { value } if self.is_in_link => {
                return Some(PagePart::Text(String::from_utf8_lossy(value).into_owned()));
            }
            _ => {}
        }
        None
    }
}

fn attribute(attributes: &Attributes, name: &str) -> Option<String> {
    attributes.iter().find(|(it, _)| *it == name).map(|(_, value)| value.clone())
}

/// Calls `take` with each link that has an `href`, in the page's order.
///
/// # Errors
/// [`PageError`] if the page has no link and does not say that it is of an index, as an error page; or if its base is too long.
pub(super) fn each_anchor(
    content_type: &str,
    body: PageStart<&mut dyn Read>,
    take: &mut dyn FnMut(&PageHead, Anchor),
) -> Result<PageHead, PageError> {
    let length = Rc::new(Cell::new(0));
    let text = DecodedText::of(body.all, encoding_of(content_type, &body.bytes));
    let text = IoReader::new(ShortTokens::of(text, length.clone()));
    let mut sieve = Sieve::default();
    let mut emitter = CallbackEmitter::new(move |event: CallbackEvent<'_>, _: Span<()>| {
        // An error may be within a token.
        if !matches!(event, CallbackEvent::Error(_)) {
            length.set(0);
        }
        sieve.piece(event)
    });
    emitter.naively_switch_states(true);
    let mut head = PageHead::default();
    let mut open: Option<Anchor> = None;
    for piece in Tokenizer::new_with_emitter(text, emitter) {
        match piece.map_err(PageError::new)? {
            PagePart::Link(attributes) => {
                finish(&mut head, &mut open, take);
                if let Some(href) = attribute(&attributes, "href") {
                    open = Some(Anchor { href, text: String::new(), attributes });
                }
            }
            PagePart::LinkEnd => finish(&mut head, &mut open, take),
            PagePart::Base(attributes) if head.base.is_none() => {
                head.base = attribute(&attributes, "href");
                let bytes = head.base.as_ref().map_or(0, String::len);
                if bytes > BASE_BYTES_MAX {
                    return Err(PageError(format!(
                        "the base of its links has {bytes} bytes; at most {BASE_BYTES_MAX} were expected"
                    )));
                }
            }
            PagePart::Base(_) => {}
            PagePart::Meta(attributes) => {
                let content = attribute(&attributes, "content");
                match attribute(&attributes, "name").as_deref() {
                    Some("pypi:repository-version") => head.version = content,
                    Some("pypi:project-status") => head.status = content,
                    Some("pypi:project-status-reason") => head.reason = content,
                    Some("pypi:tracks") => push_some(&mut head.tracks, content),
                    Some("pypi:alternate-locations") => push_some(&mut head.alternates, content),
                    _ => {}
                }
            }
            PagePart::Form => head.has_form = true,
            PagePart::Input(attributes) => {
                let kind = attribute(&attributes, "type").unwrap_or_default();
                head.has_password |= kind.eq_ignore_ascii_case("password");
            }
            PagePart::Title(text) => {
                if head.title.len() + text.len() <= TITLE_BYTES_MAX {
                    head.title.push_str(&text);
                    head.title.push(' ');
                }
            }
            PagePart::Text(text) => {
                if let Some(anchor) = &mut open
                    && anchor.text.len() <= TEXT_BYTES_MAX
                {
                    anchor.text.push_str(&text);
                }
            }
        }
    }
    finish(&mut head, &mut open, take);
    match &head.version {
        Some(version) if version.split('.').next() != Some("1") => Err(PageError(format!(
            "its repository-version is `{}`; 1.0 or a later 1.x was expected",
            record::excerpt(version, 20)
        ))),
        None if head.anchors == 0 && !head.may_be_empty() => Err(PageError(
            "HTML without a link, and without the `pypi:repository-version` of an empty page"
                .to_owned(),
        )),
        _ => Ok(head),
    }
}

/// How many bytes of a page are searched for the name of its encoding, as browsers do.
const ENCODING_BYTES_MAX: usize = 1024;

/// The encoding that the header names, or the beginning of the page; otherwise UTF-8. A byte order mark counts more.
fn encoding_of(content_type: &str, body: &[u8]) -> &'static Encoding {
    let start = &body[..body.len().min(ENCODING_BYTES_MAX)];
    let start = String::from_utf8_lossy(start).to_ascii_lowercase();
    let named = |text: &str| {
        let (_, rest) = text.split_once("charset")?;
        let rest = rest.trim_start().strip_prefix('=')?.trim_start();
        let rest = rest.trim_start_matches(['"', '\'']);
        let end = rest.find(|one: char| !(one.is_ascii_alphanumeric() || "-_:.+".contains(one)));
        Encoding::for_label(&rest.as_bytes()[..end.unwrap_or(rest.len())])
    };
    let in_meta = || {
        let mut metas = start.split("<meta").skip(1);
        let found = metas.find_map(|meta| named(meta.split('>').next().unwrap_or_default()))?;
        // It was read byte by byte so far.
        Some(if found.is_ascii_compatible() { found } else { UTF_8 })
    };
    named(&content_type.to_ascii_lowercase()).or_else(in_meta).unwrap_or(UTF_8)
}

/// Keeps the first URLs only: each takes memory until the page has been read.
fn push_some(urls: &mut Vec<String>, url: Option<String>) {
    let url = url.filter(|url| url.len() <= Locations::URL_BYTES_MAX);
    urls.extend(url.filter(|_| urls.len() < Locations::URLS_MAX));
}

fn finish(head: &mut PageHead, open: &mut Option<Anchor>, take: &mut dyn FnMut(&PageHead, Anchor)) {
    if let Some(mut anchor) = open.take() {
        anchor.text = anchor.text.trim().to_owned();
        head.anchors += 1;
        take(head, anchor);
    }
}

pub(super) fn page(
    content_type: &str,
    body: PageStart<&mut dyn Read>,
    base: &Url,
) -> Result<UpstreamPage, PageError> {
    let mut files = Files::default();
    let mut own: Option<Url> = None;
    let head = each_anchor(content_type, body, &mut |head, anchor| {
        // Nothing is read of the rest of a page that is refused.
        if files.check().is_err() {
            return;
        }
        if own.is_none() {
            own = head.base.as_ref().and_then(|text| base.join(text).ok());
        }
        files.extend(file(&anchor, own.as_ref().unwrap_or(base)));
    })?;
    let files = files.all()?;
    if files.is_empty() && !head.may_be_empty() {
        return Err(PageError(
            "HTML without a link to a file, and without the `pypi:repository-version` of an empty page"
                .to_owned(),
        ));
    }
    let status = head.status.and_then(|text| {
        Some((StatusMarker::parse(&text)?, head.reason.and_then(|it| one_line(&it))))
    });
    let [tracks, alternates] =
        [&head.tracks, &head.alternates].map(|urls| urls.iter().map(String::as_str));
    let locations = Locations::read(base, tracks, alternates);
    Ok(UpstreamPage { status, locations, files, ..UpstreamPage::default() })
}

fn file(anchor: &Anchor, base: &Url) -> Option<UpstreamFile> {
    let said = |name: &str| attribute(&anchor.attributes, name);
    let is_elsewhere = |rel: String| rel.split_whitespace().any(|it| it == "homepage");
    if said("rel").is_some_and(is_elsewhere) {
        return None;
    }
    let (url, fragment) = absolute(base, &anchor.href)?;
    let last = url.path_segments()?.next_back()?;
    let filename = percent_decode_str(last).decode_utf8().ok()?.into_owned();
    // Other links are for people: signatures, the parent directory, a page to log in.
    Filename::of_upstream(&filename).ok()?;
    let fragment = fragment.unwrap_or_default();
    let fragment = percent_decode_str(&fragment).decode_utf8_lossy();
    let hashes = fragment.split('&').filter_map(|pair| {
        let (name, digits) = pair.split_once('=')?;
        // Other fragments have the same form: `egg=name`.
        let name = name.to_ascii_lowercase();
        let is_known = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"].contains(&&*name);
        digest(&name, digits).filter(|_| is_known)
    });
    let core_metadata = said("data-core-metadata").or_else(|| said("data-dist-info-metadata"));
    Some(UpstreamFile {
        filename: filename.into(),
        hashes: exactly(hashes),
        size_bytes: said("data-size").and_then(|text| text.parse().ok()),
        upload_time: said("data-upload-time").as_deref().and_then(time),
        first_seen: None,
        requires_python: said("data-requires-python").as_deref().map(specifiers),
        yanked: said("data-yanked").map(Into::into),
        core_metadata: core_metadata.filter(|text| text != "false").map(|text| {
            let digits = text.strip_prefix("sha256=").map(str::to_ascii_lowercase);
            match digits.filter(|digits| is_hexadecimal(digits, 64)) {
                Some(digits) => CoreMetadata::Sha256(digits.into()),
                None => CoreMetadata::Unhashed,
            }
        }),
        provenance: said("data-provenance")
            .and_then(|text| absolute(base, &text))
            .map(|(url, _)| String::from(url).into()),
        url: String::from(url).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_nothing_takes_no_memory() {
        let noise: String = (0..10_000).map(|it| format!(" x{it}=y data-size={it}")).collect();
        let body = format!(
            "<html{noise}><base{noise} href=/f/><a{noise} data-yanked HREF='foo-1.0.tar.gz' data-yanked=no{noise}>\
             foo-1.0.tar.gz</a{noise}>"
        );
        let mut anchors = Vec::new();
        let mut body = body.as_bytes();
        let body = PageStart::of(&mut body as &mut dyn Read).expect("memory");
        let head = each_anchor("", body, &mut |_, anchor| anchors.push(anchor));
        assert_eq!(head.expect("a page").base.as_deref(), Some("/f/"));
        let [anchor] = &anchors[..] else { panic!("there is one link") };
        let expected = [("data-size", "0"), ("data-yanked", ""), ("href", "foo-1.0.tar.gz")];
        assert_eq!(anchor.attributes, expected.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(anchor.text, "foo-1.0.tar.gz");
    }

    #[test]
    fn a_base_that_each_link_would_repeat_is_short() {
        let url = Url::parse("https://index.example/simple/foo/").expect("a URL");
        let page_with = |base_bytes: usize| {
            let base = format!("/f{}/", "/f".repeat(base_bytes / 2 - 1));
            assert_eq!(base.len(), base_bytes + 1);
            let body = format!("<base href={base}><a href=foo-1.0.zip>foo</a>");
            UpstreamPage::parse("", body.as_bytes(), &url)
        };
        let files = page_with(BASE_BYTES_MAX - 2).expect("a page").files;
        assert!(files[0].url.ends_with("/f/f/foo-1.0.zip"), "{}", files[0].url);
        let refused = page_with(BASE_BYTES_MAX).expect_err("a byte too many").to_string();
        assert_eq!(
            refused,
            "the answer is no page of an index: the base of its links has 2001 bytes; at most 2000 were expected"
        );
    }
}
