//! A page as HTML (PEP 503, 592, 629, 658, 714, 740, 792): anchors, and what the head says.

use std::collections::BTreeMap;

use html5gum::{DefaultEmitter, HtmlString, Spanned, Token, Tokenizer};
use percent_encoding::percent_decode_str;
use url::Url;

use super::{CoreMetadata, Files, PageError, UpstreamFile, UpstreamPage, absolute, is_hexadecimal};
use crate::{StatusMarker, check_segment};

/// One link.
pub(super) struct Anchor {
    /// Its `href`.
    pub(super) href: String,
    /// Its text, without spaces around it.
    pub(super) text: String,
    attributes: BTreeMap<HtmlString, Spanned<HtmlString, ()>>,
}

/// What a page says outside of its links.
#[derive(Default)]
pub(super) struct Head {
    base: Option<String>,
    version: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    anchors: usize,
}

type Attributes = BTreeMap<HtmlString, Spanned<HtmlString, ()>>;

fn attribute(attributes: &Attributes, name: &str) -> Option<String> {
    let value = attributes.get(name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Calls `take` with each link that has an `href`, in the page's order.
///
/// # Errors
/// [`PageError`] if the page has neither a link nor the version of the interface, as a page about an error.
pub(super) fn each_anchor(
    body: &[u8],
    take: &mut dyn FnMut(&Head, Anchor),
) -> Result<Head, PageError> {
    let text = String::from_utf8_lossy(body);
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut head = Head::default();
    let mut open: Option<Anchor> = None;
    for token in Tokenizer::new_with_emitter(&*text, emitter) {
        let token = match token {
            Ok(token) => token,
            Err(never) => match never {},
        };
        match token {
            Token::StartTag(tag) => match tag.name.as_slice() {
                b"a" => {
                    finish(&mut head, &mut open, take);
                    if let Some(href) = attribute(&tag.attributes, "href") {
                        let attributes = tag.attributes;
                        open = Some(Anchor { href, text: String::new(), attributes });
                    }
                }
                b"base" if head.base.is_none() => head.base = attribute(&tag.attributes, "href"),
                b"meta" => {
                    let content = attribute(&tag.attributes, "content");
                    match attribute(&tag.attributes, "name").as_deref() {
                        Some("pypi:repository-version") => head.version = content,
                        Some("pypi:project-status") => head.status = content,
                        Some("pypi:project-status-reason") => head.reason = content,
                        _ => {}
                    }
                }
                _ => {}
            },
            Token::EndTag(tag) if tag.name.as_slice() == b"a" => finish(&mut head, &mut open, take),
            Token::String(string) => {
                if let Some(anchor) = &mut open {
                    anchor.text.push_str(&String::from_utf8_lossy(&string));
                }
            }
            _ => {}
        }
    }
    finish(&mut head, &mut open, take);
    match &head.version {
        Some(version) if version.split('.').next() != Some("1") => Err(PageError(format!(
            "its repository-version is `{}`; 1.0 or a later 1.x was expected",
            version.chars().take(20).collect::<String>()
        ))),
        None if head.anchors == 0 => Err(PageError(
            "HTML without a link, and without the `pypi:repository-version` of an empty page"
                .to_owned(),
        )),
        _ => Ok(head),
    }
}

fn finish(head: &mut Head, open: &mut Option<Anchor>, take: &mut dyn FnMut(&Head, Anchor)) {
    if let Some(mut anchor) = open.take() {
        anchor.text = anchor.text.trim().to_owned();
        head.anchors += 1;
        take(head, anchor);
    }
}

pub(super) fn page(body: &[u8], base: &Url) -> Result<UpstreamPage, PageError> {
    let mut files = Files::default();
    let head = each_anchor(body, &mut |head, anchor| {
        let own = head.base.as_ref().and_then(|text| base.join(text).ok());
        files.extend(file(&anchor, own.as_ref().unwrap_or(base)));
    })?;
    let status = head
        .status
        .and_then(|text| Some((StatusMarker::parse(&text)?, head.reason.map(Into::into))));
    Ok(UpstreamPage { status, versions: Vec::new(), files: files.all()? })
}

fn file(anchor: &Anchor, base: &Url) -> Option<UpstreamFile> {
    let (url, fragment) = absolute(base, &anchor.href)?;
    let last = url.path_segments()?.next_back()?;
    let filename = percent_decode_str(last).decode_utf8().ok()?.into_owned();
    check_segment(&filename).ok()?;
    let said = |name: &str| attribute(&anchor.attributes, name);
    let hashes = fragment.as_deref().unwrap_or_default().split('&').filter_map(|pair| {
        let (name, digits) = pair.split_once('=')?;
        let digits = digits.to_ascii_lowercase();
        // Other fragments have the same form: `egg=name`.
        let is_known = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"].contains(&name);
        (is_known && is_hexadecimal(&digits, digits.len())).then(|| (name.into(), digits.into()))
    });
    let core_metadata = said("data-core-metadata").or_else(|| said("data-dist-info-metadata"));
    Some(UpstreamFile {
        filename: filename.into(),
        hashes: hashes.collect(),
        size_bytes: said("data-size").and_then(|text| text.parse().ok()),
        upload_time: said("data-upload-time").map(Into::into),
        first_seen: None,
        requires_python: said("data-requires-python").map(Into::into),
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
