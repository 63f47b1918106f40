//! The tags by which shared caches know answers: of a package, of an article, of an index, of a project in it.
//!
//! `front/cdn.rs` puts them on answers, [`purges`](super::purges) names those of what has changed.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A name in a tag is encoded, except these characters: a tag has neither blanks nor commas nor quotes.
const NAME: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'@')
    .remove(b'+')
    .remove(b'/');

/// The tag of every answer of the AUR's packages, of articles, and of the Python index.
pub(crate) const AUR: &str = "aur";
pub(crate) const ARTICLES: &str = "articles";
pub(crate) const PYTHON: &str = "python";

/// The tag of lists and pages of articles, which also show others.
pub(crate) const ARTICLE_LISTS: &str = "article-lists";

/// The tag of every answer that more than one package decides.
pub(crate) const AUR_LISTS: &str = "aur-lists";

/// The tag of what is answered about one package. Names that differ in capitals are answered alike.
pub(crate) fn package(name: &str) -> String {
    format!("package:{}", in_tag(&name.to_ascii_lowercase()))
}

/// The tag of an article, in all its versions and forms.
pub(crate) fn article(name: &str) -> String {
    format!("article:{}", in_tag(name))
}

/// The tag of everything of a stage.
pub(crate) fn stage(name: &str) -> String {
    format!("index:{}", in_tag(name))
}

/// The tag of the list of a stage's projects.
pub(crate) fn list(stage: &str) -> String {
    format!("list:{}", in_tag(stage))
}

/// The tag of the files of a stage.
pub(crate) fn files(stage: &str) -> String {
    format!("files:{}", in_tag(stage))
}

/// The tag of the pages of a project in a stage.
pub(crate) fn project(stage: &str, project: &str) -> String {
    format!("project:{}/{project}", in_tag(stage))
}

fn in_tag(name: &str) -> String {
    utf8_percent_encode(name, &NAME).to_string()
}
