//! Articles as a folder of files: which file an article becomes, and what the file alone does not say.
//!
//! names and media types -> [`Layout`] -> paths below the folder, and a [`Manifest`] of what the paths do not say. In the other
//! direction: paths -> [`Names`] -> articles. No path leaves the folder, and no two names share a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use article::{ArticleName, ArticleNameError, of_name};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use state::text::counted;

/// The file with what the other files do not say.
pub(crate) const MANIFEST: &str = "larder-articles.json";

/// Bytes of that file.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Bytes in the name of a file or a folder: no usual file system takes more.
const SEGMENT_BYTES_MAX: usize = 255;

/// What files do not say by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Articles, by the paths of their files.
    #[serde(default)]
    pub(crate) articles: BTreeMap<String, Entry>,
    /// Names that lead to articles, each with the name of the article.
    #[serde(default)]
    pub(crate) redirects: BTreeMap<String, String>,
    /// Attachments, by their paths in the folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attachments: BTreeMap<String, AttachedEntry>,
    /// Whether the export that writes this is still running, or was interrupted: then files may be missing, and the manifest
    /// does not yet have all names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unfinished: bool,
}

/// The article that a file of the folder is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedEntry {
    /// The name of the article.
    pub(crate) article: String,
    /// The name of the attachment.
    pub(crate) name: String,
}

/// The article in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The name of the article.
    pub(crate) name: String,
    /// Its media type.
    pub(crate) content_type: String,
}

/// Something that is left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// The path, or the name.
    pub what: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Omission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.what.escape_debug(), self.why)
    }
}

impl Omission {
    /// This was left out, for this reason.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Omission {
        Omission { what: what.into(), why: why.to_string() }
    }

    /// A summary of these, for what was to be `done`, such as "exported"; `None` if there are none.
    pub(crate) fn shortfall(all: &[Omission], done: &str) -> Option<String> {
        let summary =
            || format!("{}: not everything was {done}", counted(all.len() as u64, "failure"));
        (!all.is_empty()).then(summary)
    }
}

/// The folder of names for a prefix, with a trailing slash; empty for none. The rest of a name after it is a path.
///
/// # Errors
/// If no article's name can begin so.
pub(crate) fn whole_prefix(prefix: &str) -> Result<String, ArticleNameError> {
    if prefix.is_empty() {
        return Ok(String::new());
    }
    let slash = if prefix.ends_with('/') { "" } else { "/" };
    let mut name = ArticleName::parse(&format!("{prefix}{slash}x"))?.to_string();
    name.pop();
    Ok(name)
}

/// Names without what some file systems do not tell apart.
fn folded(path: &str) -> String {
    path.chars().flat_map(char::to_lowercase).collect()
}

/// The folders above a path, the outermost first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// The files that articles become.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Paths that are taken, folded: true for a file.
    taken: BTreeMap<String, bool>,
}

impl Layout {
    /// The path for an article's file.
    ///
    /// # Errors
    /// Why the path is refused: it conflicts with the files that were placed before.
    pub(crate) fn place(&mut self, name: &str, essence: &str) -> Result<String, String> {
        self.take(path_of(name, essence))
    }

    /// The path for an attachment of the article whose path is `article`: beside the article, so that its links work on a disk,
    /// too; in a separate folder if that path is taken.
    ///
    /// # Errors
    /// Why the path is refused: it conflicts with the files that were placed before.
    pub(crate) fn place_attached(&mut self, article: &str, name: &str) -> Result<String, String> {
        let folder = article.rsplit_once('/').map_or("", |(folder, _)| folder);
        let slash = if folder.is_empty() { "" } else { "/" };
        let beside = format!("{folder}{slash}{name}");
        if folded(&beside) != MANIFEST
            && let Ok(path) = self.take(beside)
        {
            return Ok(path);
        }
        self.take(format!("{article}.files/{name}"))
    }

    fn take(&mut self, path: String) -> Result<String, String> {
        if path.split('/').any(str::is_empty) {
            return Err("a part of its name is empty, so it is no path below the folder".to_owned());
        }
        if let Some(long) = path.split('/').find(|part| part.len() > SEGMENT_BYTES_MAX) {
            let bytes = long.len();
            return Err(format!(
                "a part of its name has {bytes} bytes: at most {SEGMENT_BYTES_MAX} fit"
            ));
        }
        let file = folded(&path);
        if let Some(&is_file) = self.taken.get(&file) {
            return Err(match is_file {
                true => format!(
                    "another article is the file `{path}`, or one that differs in case only"
                ),
                false => format!("`{path}` is a folder, with other articles in it"),
            });
        }
        if let Some(folder) = above(&file).find(|folder| self.taken.get(*folder) == Some(&true)) {
            return Err(format!(
                "`{folder}` is the file of another article, and cannot be a folder"
            ));
        }
        for folder in above(&file) {
            self.taken.insert(folder.to_owned(), false);
        }
        self.taken.insert(file, true);
        Ok(path)
    }
}

/// The preferred path of a name: the name itself, if its extension says the media type.
fn path_of(name: &str, essence: &str) -> String {
    let told = ArticleName::parse(name).ok().and_then(|name| of_name(&name));
    let ending = match essence {
        _ if told.is_some_and(|told| told.essence() == essence) => "",
        "text/markdown" => ".md",
        "text/x-rst" => ".rst",
        "text/html" => ".html",
        "text/plain" => ".txt",
        _ => ".bin",
    };
    let path = format!("{name}{ending}");
    // Files that begin with a dot are hidden, and are not imported.
    let seen = path.split('/').map(|part| match part.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => part.to_owned(),
    });
    let path = seen.collect::<Vec<_>>().join("/");
    let first = path.split('/').next().unwrap_or_default();
    if folded(first) == MANIFEST { format!("%6C{}", &path[1..]) } else { path }
}

/// The articles that files become.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Whether the ending `.md` of a path is no part of the name.
    drops_md: bool,
    /// The paths that names come from, by the names in the form that some file systems cannot distinguish.
    taken: BTreeMap<String, String>,
    /// The paths whose ending is no part of their name.
    dropped: BTreeSet<String>,
}

/// The path without the ending of Markdown.
fn without_md(path: &str) -> Option<&str> {
    let rest = path.strip_suffix(".md")?;
    (!rest.is_empty() && !rest.ends_with('/')).then_some(rest)
}

impl Names {
    /// Names of which none is taken.
    pub(crate) fn new(drops_md: bool) -> Names {
        Names { drops_md, ..Names::default() }
    }

    /// Whether the ending of this path is no part of its name.
    pub(crate) fn has_dropped(&self, path: &str) -> bool {
        self.dropped.contains(path)
    }

    /// The target of a link in the file at `path` that leads to a file whose ending is no part of its name, without that ending;
    /// `None` for every other target.
    pub(crate) fn mended(&self, path: &str, target: &str) -> Option<String> {
        let end = target.find(['#', '?']).unwrap_or(target.len());
        let (place, rest) = target.split_at(end);
        let shorter = without_md(place).filter(|_| !place.starts_with('/'))?;
        let decoded = percent_decode_str(place).decode_utf8().ok()?;
        let mut parts: Vec<&str> = path.split('/').collect();
        parts.pop();
        for part in decoded.split('/') {
            match part {
                "." => {}
                ".." => _ = parts.pop()?,
                part => parts.push(part),
            }
        }
        self.has_dropped(&parts.join("/")).then(|| format!("{shorter}{rest}"))
    }

    /// The article for the file at `path`, below `prefix`, and its media type if the manifest names it.
    ///
    /// # Errors
    /// What is no name, or is the name of another file.
    pub(crate) fn place(
        &mut self,
        path: &str,
        prefix: &str,
        manifest: &Manifest,
    ) -> Result<(ArticleName, Option<String>), String> {
        let entry = manifest.articles.get(path);
        let shorter = without_md(path).filter(|_| self.drops_md && entry.is_none());
        let own = entry.map(|entry| entry.name.as_str()).or(shorter).unwrap_or(path);
        let name = format!("{prefix}{own}");
        let name = ArticleName::parse(&name).map_err(|error| error.to_string())?;
        match self.taken.entry(folded(name.as_str())) {
            std::collections::btree_map::Entry::Occupied(other) => {
                let other = other.get().escape_debug();
                Err(format!("`{other}` has the same name, or one that differs in case only"))
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(path.to_owned());
                if shorter.is_some() {
                    self.dropped.insert(path.to_owned());
                }
                let told = shorter.map(|_| "text/markdown".to_owned());
                Ok((name, entry.map(|entry| entry.content_type.clone()).or(told)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places names, given as `name type`, and compares the paths.
    #[track_caller]
    fn check(names: &[(&str, &str)], expected: &[&str]) {
        let mut layout = Layout::default();
        let placed = names.iter().map(|(name, essence)| match layout.place(name, essence) {
            Ok(path) => path,
            Err(why) => format!("! {why}"),
        });
        let placed: Vec<String> = placed.collect();
        assert_eq!(placed.len(), expected.len());
        for (placed, expected) in placed.iter().zip(expected) {
            let is_as_expected = match expected.strip_prefix('!') {
                Some(why) => placed.starts_with('!') && placed.contains(why.trim()),
                None => placed == expected,
            };
            assert!(is_as_expected, "{placed} instead of {expected}");
        }
    }

    const MARKDOWN: &str = "text/markdown";

    #[test]
    fn names_become_paths_that_say_what_they_are() {
        check(
            &[
                ("guide", MARKDOWN),
                ("guide/start", MARKDOWN),
                ("guide/logo.png", "image/png"),
                ("guide/logo.jpg", "image/webp"),
                ("notes.md", MARKDOWN),
                ("plain", "text/plain"),
                ("a/.hidden", MARKDOWN),
                (".x/y.md", MARKDOWN),
                ("larder-articles.json", "application/json"),
                ("a/larder-articles.json", "application/json"),
            ],
            &[
                "guide.md",
                "guide/start.md",
                "guide/logo.png",
                "guide/logo.jpg.bin",
                "notes.md",
                "plain.txt",
                "a/%2Ehidden.md",
                "%2Ex/y.md",
                "%6Carder-articles.json",
                "a/larder-articles.json",
            ],
        );
    }

    #[test]
    fn no_two_meet() {
        check(&[("Larder-Articles.json/x", MARKDOWN)], &["%6Carder-Articles.json/x.md"]);
        check(&[("a", MARKDOWN), ("a.md", MARKDOWN)], &["a.md", "! another article"]);
        check(&[("É.md", MARKDOWN), ("é.md", MARKDOWN)], &["É.md", "! differs in case only"]);
        check(&[("x.md", MARKDOWN), ("X.md/y.md", MARKDOWN)], &["x.md", "! cannot be a folder"]);
        check(&[("x.md/y.md", MARKDOWN), ("x.md", MARKDOWN)], &["x.md/y.md", "! is a folder"]);
        check(&[(&"x".repeat(253), MARKDOWN)], &["! 256 bytes"]);
        check(&[("/etc/x", MARKDOWN), ("a//b", MARKDOWN)], &["! is empty", "! is empty"]);
    }

    #[test]
    fn files_are_beside_their_article() {
        let mut layout = Layout::default();
        let mut check = |article: &str, name: &str, expected: &str| {
            assert_eq!(layout.place_attached(article, name).as_deref().unwrap_or("!"), expected);
        };
        check("a.md", "x.png", "x.png");
        check("b.md", "X.png", "b.md.files/X.png");
        check("g/a.md", "x.png", "g/x.png");
        check("g/a.md", "x.png", "g/a.md.files/x.png");
        check("a.md", "Larder-articles.json", "a.md.files/Larder-articles.json");
        check("g/a.md", "larder-articles.json", "g/larder-articles.json");
        check(&format!("{}.md", "x".repeat(250)), "x.png", "!");
    }

    #[test]
    fn a_prefix_is_a_folder() {
        let check = |prefix: &str, expected: Option<&str>| {
            let whole = whole_prefix(prefix);
            assert_eq!(whole.as_deref().ok(), expected, "{prefix}: {whole:?}");
        };
        check("", Some(""));
        check("guide", Some("guide/"));
        check("guide/", Some("guide/"));
        check("x/2024", Some("x/2024/"));
        check("e\u{301}", Some("é/"));
        for none in ["/", "/etc", "a//", "..", "a/../b", "a\\b", "a\n"] {
            check(none, None);
        }
    }

    #[test]
    fn paths_become_names_once() {
        let entry = |name: &str| Entry { name: name.into(), content_type: "text/plain".into() };
        let mut manifest = Manifest::default();
        manifest.articles.insert("b.txt".to_owned(), entry("b"));
        manifest.articles.insert("c.txt".to_owned(), entry("../c"));
        let mut names = Names::default();
        let mut check = |path: &str, expected: &str| {
            let placed = match names.place(path, "wiki/", &manifest) {
                Ok((name, content_type)) => format!("{name} {}", content_type.unwrap_or_default()),
                Err(why) => format!("! {why}"),
            };
            assert!(placed.starts_with(expected), "{path}: {placed}");
        };
        check("a.md", "wiki/a.md ");
        check("A.md", "! `a.md` has the same name");
        check("b.txt", "wiki/b text/plain");
        check("c.txt", "! `wiki/../c` is not an article's name");
        check("d/history", "! `wiki/d/history` is not");
        check("x%2Fy", "! `wiki/x%2Fy` is not");
        check("e\u{301}.md", "wiki/é.md");
        check("é.md", "! `e\u{301}.md` has the same name");
        check(&"x/".repeat(300), "! ");
    }

    #[test]
    fn endings_are_dropped_and_links_to_such_files_mended() {
        let mut manifest = Manifest::default();
        let entry = Entry { name: "kept.md".into(), content_type: "text/markdown".into() };
        manifest.articles.insert("kept.md".to_owned(), entry);
        let mut names = Names::new(true);
        let mut place = |path: &str| match names.place(path, "wiki/", &manifest) {
            Ok((name, content_type)) => format!("{name} {}", content_type.unwrap_or_default()),
            Err(why) => format!("! {why}"),
        };
        assert_eq!(place("guide/a b.md"), "wiki/guide/a b text/markdown");
        assert_eq!(place("index.md"), "wiki/index text/markdown");
        assert_eq!(place("guide/x.png"), "wiki/guide/x.png ");
        assert_eq!(place("kept.md"), "wiki/kept.md text/markdown");
        assert_eq!(place("x/.md"), "wiki/x/.md ");
        assert_eq!(
            place("index"),
            "! `index.md` has the same name, or one that differs in case only"
        );
        for (from, target, expected) in [
            ("index.md", "guide/a%20b.md#top", Some("guide/a%20b#top")),
            ("index.md", "./guide/a%20b.md?raw", Some("./guide/a%20b?raw")),
            ("guide/a b.md", "../index.md", Some("../index")),
            ("guide/a b.md", "index.md", None),
            ("guide/a b.md", "../../index.md", None),
            ("index.md", "kept.md", None),
            ("index.md", "/index.md", None),
            ("index.md", "https://e.example/index.md", None),
            ("index.md", "guide/x.png", None),
            ("index.md", "#index.md", None),
        ] {
            assert_eq!(names.mended(from, target).as_deref(), expected, "{from} {target}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_path_stays_below_the_folder(text in "[a-zA-Z0-9./ é%-]{1,30}", is_markdown: bool) {
            if let Ok(name) = ArticleName::parse(&text) {
                let essence = if is_markdown { MARKDOWN } else { "image/png" };
                let path = path_of(name.as_str(), essence);
                let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
                proptest::prop_assert!(path.split('/').all(is_plain), "{path}");
                proptest::prop_assert_ne!(&path, MANIFEST);
            }
        }
    }
}
