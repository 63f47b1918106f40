//! The role of each HTML element in a text.

/// How an element is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Left out with its contents: it runs, loads, or is not meant to be read.
    Skipped {
        /// Whether `/>` ends it.
        is_foreign: bool,
    },
    /// Its tags are left out.
    Unknown,
    /// A block, under this name.
    Block(&'static str),
    /// Part of a line, under this name.
    Inline(&'static str),
    /// A heading of this level.
    Heading(u8),
    Link,
    Picture,
    /// A field of a form.
    Field,
    Break,
    /// A place to break a line.
    Opportunity,
    Rule,
    Item,
    Term,
    Description,
    Table,
    /// Rows of a table.
    Section(&'static str),
    Caption,
    Row,
    Cell(&'static str),
}

/// The role of an element by its name, in lower case.
pub(super) fn role(name: &[u8]) -> Role {
    match name {
        b"a" => Role::Link,
        b"img" | b"image" => Role::Picture,
        b"input" => Role::Field,
        b"br" => Role::Break,
        b"wbr" => Role::Opportunity,
        b"hr" => Role::Rule,
        b"h1" => Role::Heading(1),
        b"h2" => Role::Heading(2),
        b"h3" => Role::Heading(3),
        b"h4" => Role::Heading(4),
        b"h5" => Role::Heading(5),
        b"h6" => Role::Heading(6),
        b"li" => Role::Item,
        b"dt" => Role::Term,
        b"dd" => Role::Description,
        b"table" => Role::Table,
        b"thead" => Role::Section("thead"),
        b"tbody" => Role::Section("tbody"),
        b"tfoot" => Role::Section("tfoot"),
        b"caption" => Role::Caption,
        b"tr" => Role::Row,
        b"td" => Role::Cell("td"),
        b"th" => Role::Cell("th"),
        b"p" => Role::Block("p"),
        b"div" | b"section" | b"article" | b"main" | b"header" | b"footer" | b"aside" | b"nav"
        | b"center" | b"address" | b"form" | b"fieldset" => Role::Block("div"),
        b"blockquote" => Role::Block("blockquote"),
        b"pre" | b"listing" => Role::Block("pre"),
        b"ul" | b"menu" | b"dir" => Role::Block("ul"),
        b"ol" => Role::Block("ol"),
        b"dl" => Role::Block("dl"),
        b"details" => Role::Block("details"),
        b"summary" => Role::Block("summary"),
        b"figure" => Role::Block("figure"),
        b"figcaption" => Role::Block("figcaption"),
        b"abbr" | b"acronym" => Role::Inline("abbr"),
        b"b" => Role::Inline("b"),
        b"cite" => Role::Inline("cite"),
        b"code" | b"tt" => Role::Inline("code"),
        b"del" | b"strike" => Role::Inline("del"),
        b"dfn" => Role::Inline("dfn"),
        b"em" => Role::Inline("em"),
        b"i" => Role::Inline("i"),
        b"ins" | b"u" => Role::Inline("ins"),
        b"kbd" => Role::Inline("kbd"),
        b"mark" => Role::Inline("mark"),
        b"q" => Role::Inline("q"),
        b"s" => Role::Inline("s"),
        b"samp" => Role::Inline("samp"),
        b"small" => Role::Inline("small"),
        b"strong" => Role::Inline("strong"),
        b"sub" => Role::Inline("sub"),
        b"sup" => Role::Inline("sup"),
        b"var" => Role::Inline("var"),
        b"svg" | b"math" => Role::Skipped { is_foreign: true },
        b"script" | b"style" | b"title" | b"iframe" | b"noembed" | b"noframes" | b"noscript"
        | b"xmp" | b"plaintext" | b"textarea" | b"template" | b"object" | b"applet"
        | b"frameset" | b"select" | b"audio" | b"video" | b"canvas" | b"map" => {
            Role::Skipped { is_foreign: false }
        }
        _ => Role::Unknown,
    }
}
