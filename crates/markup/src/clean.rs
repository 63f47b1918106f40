//! The sanitiser: what of HTML a page of ours may hold, by a list of elements, attributes and values.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};

use crate::ID_PREFIX;

/// Elements that a text may have.
pub(crate) const TAGS: [&str; 49] = [
    "a",
    "abbr",
    "b",
    "blockquote",
    "br",
    "caption",
    "cite",
    "code",
    "dd",
    "del",
    "details",
    "dfn",
    "div",
    "dl",
    "dt",
    "em",
    "figcaption",
    "figure",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "img",
    "ins",
    "kbd",
    "li",
    "mark",
    "ol",
    "p",
    "pre",
    "q",
    "s",
    "samp",
    "small",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
    "var",
];

/// Further elements, which only HTML has.
const MORE_TAGS: [&str; 2] = ["tfoot", "wbr"];

/// Classes of alerts.
pub(crate) const ALERTS: [&str; 5] =
    ["alert-note", "alert-tip", "alert-important", "alert-warning", "alert-caution"];

/// Allowed classes, all of them ours.
const CLASSES: [(&str, &[&str]); 5] = [
    ("a", &["missing"]),
    ("td", &["center", "right"]),
    ("th", &["center", "right"]),
    ("div", &["wide", "toc", "footnote"]),
    ("blockquote", &ALERTS),
];

static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    let attributes: [(&str, &[&str]); 6] = [
        ("a", &["href"]),
        ("div", &["tabindex", "role", "aria-label"]),
        ("img", &["src", "alt", "loading"]),
        ("ol", &["start"]),
        ("td", &["colspan", "rowspan"]),
        ("th", &["colspan", "rowspan"]),
    ];
    let set = |names: &[&'static str]| names.iter().copied().collect::<HashSet<_>>();
    builder
        .tags(TAGS.into_iter().chain(MORE_TAGS).collect())
        .tag_attributes(attributes.iter().map(|(tag, names)| (*tag, set(names))).collect())
        .tag_attribute_values(HashMap::new())
        .generic_attributes(HashSet::from(["id"]))
        .generic_attribute_prefixes(HashSet::new())
        .allowed_classes(CLASSES.iter().map(|(tag, names)| (*tag, set(names))).collect())
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::PassThrough)
        .link_rel(Some("nofollow noopener"))
        .strip_comments(true)
        // An `id` that does not begin with it gets it.
        .id_prefix(Some(ID_PREFIX));
    builder
});

/// The allowed part of this HTML.
pub(crate) fn clean(html: &str) -> String {
    CLEANER.clean(html).to_string()
}
