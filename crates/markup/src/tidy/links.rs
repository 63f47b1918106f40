//! The targets of links: addresses in tags and in plain text, and the `id`s of headings that fragments name.

use std::collections::HashSet;

use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

use super::tokens::{Token, tokens};
use super::vocabulary::{Role, role};
use super::{ID_CHARS_MAX, attribute};
use crate::{HREF_BYTES_MAX, ID_PREFIX, Options, Target};

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
pub(super) fn slug(text: &str) -> Option<String> {
    let kept = text.trim().chars().flat_map(char::to_lowercase).filter_map(|c| match c {
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    });
    let id: String = kept.take(ID_CHARS_MAX).collect();
    (!id.is_empty()).then_some(id)
}

/// The first address of a page in a text, with what is before and after it.
pub(super) fn first_url(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("://")?;
        from = at + 3;
        let scheme = ["https", "http"].into_iter().find(|it| text[..at].ends_with(it));
        let Some(scheme) = scheme else { continue };
        let start = at - scheme.len();
        if text[..start].ends_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let end = text[from..]
            .find(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | '|'))
            .map_or(text.len(), |length| from + length);
        let url = text[start..end]
            .trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_', ']', '}']);
        // A closing parenthesis belongs to the sentence, unless the address has its partner.
        let url = match url.contains('(') {
            true => url,
            false => url.trim_end_matches([')', '.', ',']),
        };
        if url.len() <= scheme.len() + 3 {
            continue;
        }
        return Some((&text[..start], url, &text[start + url.len()..]));
    }
}
