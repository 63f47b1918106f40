//! The sanitiser: what of HTML a page of ours may hold, by a list of elements, attributes and values.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};

use crate::{ID_PREFIX, highlight};

/// Elements that a text may have.
pub(crate) const TAGS: [&str; 50] = [
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
    "span",
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

/// Elements of MathML: those of formulas as `crate::math` makes them. Nothing in them leads anywhere, runs, or holds HTML.
pub(crate) const MATH_TAGS: [&str; 24] = [
    "math",
    "mfrac",
    "mi",
    "mmultiscripts",
    "mn",
    "mo",
    "mover",
    "mpadded",
    "mphantom",
    "mprescripts",
    "mroot",
    "mrow",
    "mspace",
    "msqrt",
    "mstyle",
    "msub",
    "msubsup",
    "msup",
    "mtable",
    "mtd",
    "mtext",
    "mtr",
    "munder",
    "munderover",
];

/// Attributes of MathML, of any of its elements.
pub(crate) const MATH_ATTRIBUTES: [&str; 19] = [
    "accent",
    "accentunder",
    "columnspan",
    "depth",
    "display",
    "displaystyle",
    "height",
    "largeop",
    "linethickness",
    "lspace",
    "mathvariant",
    "maxsize",
    "minsize",
    "movablelimits",
    "rspace",
    "scriptlevel",
    "stretchy",
    "symmetric",
    "width",
];

/// The longest part of a formula that is empty, to either side or up, in the size of its letters.
const LENGTH_EM_MAX: f32 = 20.0;

/// Classes of alerts.
pub(crate) const ALERTS: [&str; 5] =
    ["alert-note", "alert-tip", "alert-important", "alert-warning", "alert-caution"];

/// Allowed classes, all of them ours.
const CLASSES: [(&str, &[&str]); 7] = [
    ("mtd", &["left", "right"]),
    ("a", &["missing"]),
    ("span", &highlight::CLASSES),
    ("td", &["center", "right"]),
    ("th", &["center", "right"]),
    ("div", &["wide", "toc", "footnote"]),
    ("blockquote", &ALERTS),
];

static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| builder(&[]));

/// For texts that have formulas. All others have no MathML at all: what browsers make of HTML in it is hard to foresee.
static CLEANER_WITH_MATH: LazyLock<Builder<'static>> = LazyLock::new(|| builder(&MATH_TAGS));

fn builder(math: &[&'static str]) -> Builder<'static> {
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
    let attributes = attributes.iter().map(|(tag, names)| (*tag, set(names)));
    let of_math = math.iter().map(|tag| (*tag, set(&MATH_ATTRIBUTES)));
    builder
        .tags(TAGS.iter().chain(&MORE_TAGS).chain(math).copied().collect())
        .tag_attributes(attributes.chain(of_math).collect())
        .attribute_filter(|tag, name, value| {
            let is_math = MATH_TAGS.contains(&tag) && MATH_ATTRIBUTES.contains(&name);
            (!is_math || is_modest(value)).then(|| value.into())
        })
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
}

/// Whether this is a word, or a length with which a formula stays about where it is.
fn is_modest(value: &str) -> bool {
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    let unit = &value[number.len()..];
    let is_short = |number: f32| match unit {
        // Of the size of letters, of the page, or of the place.
        "" | "em" | "rem" | "ex" => number.abs() <= LENGTH_EM_MAX,
        "px" | "pt" => number.abs() <= 12.0 * LENGTH_EM_MAX,
        _ => false,
    };
    number.is_empty() || number.parse::<f32>().is_ok_and(is_short)
}

/// The allowed part of this HTML; with formulas only if [`crate::math`] made some for it.
pub(crate) fn clean(html: &str, has_formulas: bool) -> String {
    let cleaner = if has_formulas { &CLEANER_WITH_MATH } else { &CLEANER };
    cleaner.clean(html).to_string()
}
