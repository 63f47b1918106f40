//! What is around an article: the folders that it is in, the articles beside it, and those that are read before and after it.
//!
//! Only a part of a large folder is shown, so that the page stays small: what is nearest to the article.

use std::collections::VecDeque;

use account::Principal;
use article::tree::{Entry, EntryWindow, Visibility, VisibleTree, folder_of};
use article::{Article, ArticleName};

use super::{may_read, may_read_below};
use crate::front::display::in_path;
use crate::protocols::articles::folder::list_of;
use crate::protocols::articles::reader::ReadRequest;

/// Lines of the folder that the article is in, of the articles in it, and of each folder above.
const BESIDE_MAX: usize = 40;
const INNER_MAX: usize = 30;
const ABOVE_MAX: usize = 12;

/// Bytes of all lines, roughly; the line that leads to the article itself is always there.
const BYTES_MAX: usize = 16 << 10;

/// Bytes that a line takes besides its text.
const LINE_BYTES: usize = 40;

/// Characters of a line: some titles are sentences.
const LABEL_CHARS_MAX: usize = 60;

/// Asks the tree as this reader sees it.
pub(super) fn in_tree<T>(shown: &ReadRequest<'_>, ask: impl FnOnce(VisibleTree<'_>) -> T) -> T {
    let limits = match shown.principal {
        Principal::User(identity) => identity.limits.as_deref(),
        Principal::Anonymous | Principal::Publisher(_) => None,
    };
    let places = limits.into_iter().flat_map(|limits| limits.prefixes());
    let places: Vec<String> = places.map(|place| place.trim_matches('/').to_owned()).collect();
    let article = |name: &str| may_read(shown, name);
    let below = |start: &str| may_read_below(shown, start);
    let sight = Visibility { article: &article, below: &below, places: &places };
    ask(shown.stored.articles.tree(sight))
}

fn path_of(article: &Article) -> String {
    format!("/article/{}", in_path(article.name.as_str()))
}

/// The title of an article, short enough for a line; else `label`.
fn titled(article: Option<&Article>, label: &str) -> String {
    let content = article.and_then(|article| article.latest()?.content());
    let title = content.and_then(|content| content.title.as_deref()).unwrap_or(label);
    match record::excerpt(title, LABEL_CHARS_MAX) {
        start if start.len() < title.len() => format!("{}…", start.trim_end()),
        _ => title.to_owned(),
    }
}

/// The folders above a name: what each is called, and where it leads.
pub(super) struct Breadcrumbs {
    pub(super) above: Vec<(String, String)>,
}

impl Breadcrumbs {
    /// By the parts of the name.
    pub(super) fn of(name: &str) -> Breadcrumbs {
        let crumb = |folder: &str| (last_part(folder).to_owned(), list_of(folder));
        Breadcrumbs { above: folders(name).map(crumb).collect() }
    }

    /// By the titles of their pages.
    pub(super) fn in_tree(view: VisibleTree<'_>, name: &ArticleName) -> Breadcrumbs {
        let crumb = |folder: &str| {
            let page = view.page(folder);
            let place = page.map_or_else(|| list_of(folder), |page| path_of(page));
            (titled(page.map(|it| &**it), last_part(folder)), place)
        };
        // The page of a folder is not below itself.
        let is_other = |folder: &&str| view.page(folder).is_none_or(|page| page.name != *name);
        Breadcrumbs { above: folders(name.as_str()).filter(is_other).map(crumb).collect() }
    }
}

/// The folders above a name, the outermost first.
pub(super) fn folders(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(end, _)| &name[..end])
}

/// The last part of a path.
pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// A part of the tree around an article, line by line.
pub(super) struct Outline {
    pub(super) lines: Vec<Line>,
    /// The page that is read before it.
    pub(super) previous: Option<Link>,
    /// The page that is read after it.
    pub(super) next: Option<Link>,
}

/// A page, and its title.
pub(super) struct Link {
    pub(super) label: String,
    /// Its path on this server.
    pub(super) path: String,
}

/// An entry of a list in a list.
pub(super) struct Line {
    pub(super) link: Link,
    pub(super) kind: LineKind,
    /// Whether it begins a list within the line before.
    pub(super) is_first: bool,
    /// How many lists end after it.
    pub(super) ends: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Page,
    Folder,
    /// The article of the page.
    Here,
    /// There are more entries, in a list of their own.
    More,
}

/// The lines of one folder.
struct Level {
    /// The path of the list of all of them.
    list: String,
    before: Option<Line>,
    lines: VecDeque<Line>,
    /// The place of the line that is open.
    own: Option<usize>,
    after: Option<Line>,
}

impl Outline {
    pub(super) fn of(view: VisibleTree<'_>, name: &ArticleName) -> Outline {
        let here = view.path_of(name.as_str());
        let link = |page: &Article| Link {
            label: titled(Some(page), page.name.as_str()),
            path: path_of(page),
        };
        let mut room = BYTES_MAX;
        let mut levels = Vec::new();
        // The nearest lines take their room first.
        let mut inner = Level::of(view.first(here, INNER_MAX), here, "");
        let mut path = here;
        while let Some(folder) = folder_of(path) {
            let count_max = if path == here { BESIDE_MAX } else { ABOVE_MAX };
            let mut level = Level::of(view.around(path, count_max), folder, path);
            level.fit(&mut room);
            if path == here {
                if let Some(own) = level.own.and_then(|own| level.lines.get_mut(own)) {
                    own.kind = LineKind::Here;
                }
                inner.fit(&mut room);
            }
            levels.push(level);
            path = folder;
        }
        levels.reverse();
        levels.push(inner);
        // Those of the article itself and of the folders above it, which are in its path anyway.
        let own_count = levels.iter().filter(|level| level.own.is_some()).count();
        let mut lines = Vec::new();
        write(&mut levels.into_iter(), &mut lines);
        if lines.len() <= own_count {
            lines.clear();
        }
        let (previous, next) = (view.previous(here), view.next(here));
        Outline { lines, previous: previous.map(|it| link(it)), next: next.map(|it| link(it)) }
    }
}

/// Writes the lines of the first level, with those of the next one after the line that is open.
fn write(levels: &mut dyn Iterator<Item = Level>, lines: &mut Vec<Line>) {
    let Some(Level { before, lines: own_lines, own, after, .. }) = levels.next() else { return };
    let start = lines.len();
    lines.extend(before);
    for (at, line) in own_lines.into_iter().enumerate() {
        lines.push(line);
        if own == Some(at) {
            write(levels, lines);
        }
    }
    lines.extend(after);
    if let Some(first) = lines.get_mut(start) {
        first.is_first = true;
        if let Some(last) = lines.last_mut() {
            last.ends += 1;
        }
    }
}

fn more(label: &str, list: &str) -> Line {
    let link = Link { label: label.to_owned(), path: list.to_owned() };
    Line { link, kind: LineKind::More, is_first: false, ends: 0 }
}

fn earlier(list: &str) -> Line {
    more("Earlier ones", list)
}

fn later(list: &str) -> Line {
    more("More", list)
}

impl Level {
    /// The lines of a part of this folder, of which the one at `open` has lines in it.
    fn of(part: EntryWindow<'_>, folder: &str, open: &str) -> Level {
        let list = list_of(folder);
        let line = |entry: &Entry<'_>| {
            let path = match entry.page {
                Some(page) => path_of(page),
                None => list_of(entry.path),
            };
            let label = titled(entry.page.map(|it| &**it), entry.label);
            let kind = if entry.is_folder { LineKind::Folder } else { LineKind::Page };
            Line { link: Link { label, path }, kind, is_first: false, ends: 0 }
        };
        Level {
            before: part.is_more_before.then(|| earlier(&list)),
            lines: part.entries.iter().map(line).collect(),
            own: part.entries.iter().position(|entry| entry.path == open),
            after: part.is_more_after.then(|| later(&list)),
            list,
        }
    }

    /// Drops the lines that are farthest from the open one until the rest has room.
    fn fit(&mut self, room: &mut usize) {
        let size = |line: &Line| line.link.label.len() + line.link.path.len() + LINE_BYTES;
        let mut bytes: usize = self.lines.iter().map(size).sum();
        while bytes > *room && self.lines.len() > usize::from(self.own.is_some()) {
            let own = self.own.unwrap_or(0);
            let is_last_farther = self.lines.len() - 1 - own.min(self.lines.len() - 1) >= own;
            let dropped = match is_last_farther {
                true => {
                    self.after.get_or_insert_with(|| later(&self.list));
                    self.lines.pop_back()
                }
                false => {
                    self.before.get_or_insert_with(|| earlier(&self.list));
                    self.own = self.own.map(|own| own - 1);
                    self.lines.pop_front()
                }
            };
            bytes -= dropped.as_ref().map_or(0, size);
        }
        *room = room.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use article::ContentType;
    use markup::Format;

    use super::*;

    #[test]
    fn the_tree_shows_what_has_a_page() {
        for media_type in [
            "text/markdown",
            "Text/Markdown; charset=utf-8",
            "text/x-markdown",
            "text/x-rst",
            "text/prs.fallenstein.rst",
            "text/html",
            "application/xhtml+xml",
            "text/plain",
            "text/css",
            "application/json",
            "image/png",
        ] {
            let is_shown = ContentType::parse(media_type).expect("a media type").is_page();
            assert_eq!(is_shown, Format::of_media_type(media_type).is_some(), "{media_type}");
        }
    }

    fn level(labels: &str, own: Option<usize>) -> Level {
        let line = |label: &str| {
            let link = Link { label: label.to_owned(), path: String::new() };
            Line { link, kind: LineKind::Page, is_first: false, ends: 0 }
        };
        let lines = labels.split(' ').map(line).collect();
        Level { list: String::new(), before: None, lines, own, after: None }
    }

    #[test]
    fn the_nearest_lines_have_room() {
        let check = |own: Option<usize>, count: usize, expected: &str, left: usize| {
            let mut level = level("a b c d e f", own);
            let mut room = count * (LINE_BYTES + 1) + 5;
            level.fit(&mut room);
            let has_all = level.lines.len() == 6;
            assert_eq!(level.before.is_none() && level.after.is_none(), has_all);
            let labels: Vec<_> = level.lines.iter().map(|it| it.link.label.as_str()).collect();
            assert_eq!((labels.join(" ").as_str(), room), (expected, left), "{own:?} {count}");
            if let Some(own) = own {
                assert_eq!(labels[level.own.expect("kept")], "abcdef"[own..].split_at(1).0);
            }
        };
        check(Some(0), 9, "a b c d e f", 3 * (LINE_BYTES + 1) + 5);
        check(Some(0), 2, "a b", 5);
        check(Some(5), 2, "e f", 5);
        check(Some(3), 3, "c d e", 5);
        check(Some(2), 0, "c", 0);
        check(None, 3, "a b c", 5);
        check(None, 0, "", 5);
    }

    #[test]
    fn lists_are_in_lists() {
        let mut lines = Vec::new();
        let levels = [level("a b c", Some(1)), level("d e", Some(1)), level("f", None)];
        write(&mut levels.into_iter(), &mut lines);
        let shown = lines.iter().map(|line| {
            let start = if line.is_first { "(" } else { "" };
            format!("{start}{}{}", line.link.label, ")".repeat(line.ends))
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), "(a b (d e (f)) c)");
    }
}
