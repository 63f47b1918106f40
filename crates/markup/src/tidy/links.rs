//! The targets of links: addresses in tags and in plain text, and the `id`s of headings that fragments name.

use std::borrow::Cow;
use std::collections::HashSet;

use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

use super::tokens::{Token, tokens};
use super::vocabulary::{Role, role};
use super::{ID_CHARS_MAX, attribute};
use crate::{Format, HREF_BYTES_MAX, ID_PREFIX, Options, Target};

/// The target of a link.
pub(super) enum Link {
    Page { href: String, is_missing: bool },
    Picture(String),
}

/// The target of a link, if it is allowed.
pub(super) fn target(options: &Options<'_>, href: &str) -> Option<Link> {
    let href = href.trim_matches(|c: char| c <= ' ');
    if href.is_empty() || href.len() > HREF_BYTES_MAX {
        return None;
    }
    if let Some(fragment) = href.strip_prefix('#') {
        let id = slug_of_fragment(fragment)?;
        return Some(Link::Page { href: format!("#{ID_PREFIX}{id}"), is_missing: false });
    }
    let outside = |url: Url| {
        let is_allowed = matches!(url.scheme(), "http" | "https" | "mailto");
        is_allowed.then(|| Link::Page { href: url.into(), is_missing: false })
    };
    match Url::parse(href) {
        Ok(url) => outside(url),
        Err(ParseError::RelativeUrlWithoutBase)
            if href.starts_with(['/', '\\']) && href[1..].starts_with(['/', '\\']) =>
        {
            outside(Url::parse(&format!("https:{href}")).ok()?)
        }
        Err(ParseError::RelativeUrlWithoutBase) => Some(match (options.resolve)(href)? {
            Target::Page(href) => Link::Page { href, is_missing: false },
            Target::Missing(href) => Link::Page { href, is_missing: true },
            Target::Picture(href) => Link::Picture(href),
        }),
        Err(_) => None,
    }
}

/// The addresses of the links in HTML, each once, at most `count_max`.
pub(crate) fn links(html: &str, count_max: usize) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for token in tokens(html) {
        let Token::Start { name, attributes, .. } = token else { continue };
        if role(&name) != Role::Link {
            continue;
        }
        let href = attribute(&attributes, "href").unwrap_or_default();
        let href = href.trim_matches(|c: char| c <= ' ');
        if !href.is_empty() && href.len() <= HREF_BYTES_MAX && known.insert(href.to_owned()) {
            links.push(href.to_owned());
            if links.len() >= count_max {
                break;
            }
        }
    }
    links
}

/// The `id`, without its prefix, of the heading that a fragment names.
pub(crate) fn slug_of_fragment(fragment: &str) -> Option<String> {
    slug(&percent_decode_str(fragment).decode_utf8_lossy())
}

/// Letters, digits, `-` and `_`, small; spaces as `-`. As on GitHub, so that links within a text hold.
pub(crate) fn slug(text: &str) -> Option<String> {
    let kept = text.trim().chars().flat_map(char::to_lowercase).filter_map(|c| match c {
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    });
    let id: String = kept.take(ID_CHARS_MAX).collect();
    (!id.is_empty()).then_some(id)
}

/// An address in a text.
pub(super) struct FirstLink<'text> {
    pub(super) before: &'text str,
    pub(super) shown: &'text str,
    pub(super) url: Cow<'text, str>,
    pub(super) after: &'text str,
}

/// The first address in a text: of a page, or what readers of the format take for one.
pub(super) fn first_link(text: &str, format: Format) -> Option<FirstLink<'_>> {
    let has_mail = matches!(format, Format::Markdown | Format::RestructuredText);
    for (at, byte) in text.bytes().enumerate() {
        let found = match byte {
            b':' if text[at..].starts_with("://") => page(text, at),
            b'w' if format == Format::Markdown && text[at..].starts_with("www.") => host(text, at),
            b'@' if has_mail => mail(text, at),
            _ => None,
        };
        if let Some((start, end, prefix)) = found {
            let shown = &text[start..end];
            let url = match prefix {
                "" => Cow::from(shown),
                prefix => format!("{prefix}{shown}").into(),
            };
            return Some(FirstLink { before: &text[..start], shown, url, after: &text[end..] });
        }
    }
    None
}

/// Where the address that goes on here ends.
fn end(text: &str, start: usize, from: usize) -> usize {
    let end = text[from..]
        .find(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | '|'))
        .map_or(text.len(), |length| from + length);
    let url =
        text[start..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_', ']', '}']);
    // A closing parenthesis belongs to the sentence, unless the address has its partner.
    let url = match url.contains('(') {
        true => url,
        false => url.trim_end_matches([')', '.', ',']),
    };
    start + url.len()
}

/// The address with `://` at this place: its start, its end and what has to be put before it.
fn page(text: &str, at: usize) -> Option<(usize, usize, &'static str)> {
    let scheme = ["https", "http"].into_iter().find(|it| text[..at].ends_with(it))?;
    let start = at - scheme.len();
    if text[..start].ends_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let end = end(text, start, at + 3);
    (end > at + 3).then_some((start, end, ""))
}

/// The address that begins with `www.` at this place.
fn host(text: &str, start: usize) -> Option<(usize, usize, &'static str)> {
    let may_be_before = |c: char| c.is_whitespace() || "*_~([\"'".contains(c);
    if !text[..start].chars().next_back().is_none_or(may_be_before) {
        return None;
    }
    let end = end(text, start, start);
    let rest = text.get(start + 4..end)?;
    let host = rest.split(['/', '?', '#', ':']).next().unwrap_or_default();
    is_host(host).then_some((start, end, "http://"))
}

/// The address with `@` at this place.
fn mail(text: &str, at: usize) -> Option<(usize, usize, &'static str)> {
    let is_local = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    let before = &text[text.ceil_char_boundary(at.saturating_sub(65))..at];
    let local = before.len() - before.trim_end_matches(is_local).len();
    let after = &text[at + 1..text.floor_char_boundary((at + 256).min(text.len()))];
    let host = after.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    let host = after[..host.unwrap_or(after.len())].trim_end_matches('.');
    let is_apart = !text[..at - local].ends_with(|c: char| c.is_alphanumeric() || c == '/');
    let is_address = (1..=64).contains(&local) && is_apart && host.contains('.') && is_host(host);
    is_address.then(|| (at - local, at + 1 + host.len(), "mailto:"))
}

/// Whether names with dots between them make a host.
fn is_host(host: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    };
    host.split('.').all(is_name) && !host.ends_with(['-', '_'])
}
