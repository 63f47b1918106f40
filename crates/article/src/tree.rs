//! [`Tree`]: the articles as pages in folders, in the order in which they are read.
//!
//! ```text
//! guide                a folder: its page is the article of this name, or `guide/index`, `guide/README` …
//! ├─ guide/start       a page
//! └─ guide/more        a folder without a page
//!    └─ guide/more/a   a page
//! ```
//!
//! The snapshot keeps it up to date: a change costs some look-ups, however many articles there are, and so does every question.
//! Entries of a folder are sorted by the `order` of their pages, those without one last, then by name.

use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::{Article, ArticleName};

/// Folders within each other. Deeper names are entries of the last one, so that a long name is not hundreds of folders.
pub const DEPTH_MAX: usize = 12;

/// What the page of a folder is called in it, the first one that there is.
pub const FOLDER_PAGES: [&str; 4] = ["index", "index.md", "README", "README.md"];

/// Entries that a walk looks at: a reader with few rights may have to pass many that are not shown.
const STEPS_MAX: usize = 500;

/// Every article by its name.
pub(crate) type Articles = OrdMap<ArticleName, Arc<Article>>;

/// The folders and their entries, by path. It shares what did not change with the tree before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The order of each entry, by its path.
    entries: OrdMap<Arc<str>, i32>,
    sorted: OrdSet<TreePosition>,
}

/// The place of an entry in its folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TreePosition {
    folder: Arc<str>,
    order: i32,
    path: Arc<str>,
}

/// What a reader may see: what they may not read is in no answer.
#[derive(Clone, Copy)]
pub struct Visibility<'a> {
    /// Whether they may read the article of this name.
    pub article: &'a dyn Fn(&str) -> bool,
    /// Whether they may read all articles whose names begin like this.
    pub below: &'a dyn Fn(&str) -> bool,
    /// Names at and below which they may read, though not all else.
    pub places: &'a [String],
}

/// An entry of a folder: a page, a folder, or both.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its path: the name of the article or of the folder, without a slash at the end.
    pub path: &'a str,
    /// The last part of the path.
    pub label: &'a str,
    /// Its page, if it has one that the reader may see.
    pub page: Option<&'a Arc<Article>>,
    /// Whether the reader may see something in it.
    pub is_folder: bool,
}

/// A part of a folder's entries, around one of them.
#[derive(Clone, Debug, Default)]
pub struct EntryWindow<'a> {
    /// The entries, in order.
    pub entries: Vec<Entry<'a>>,
    /// Whether there may be others before them.
    pub is_more_before: bool,
    /// Whether there may be others after them.
    pub is_more_after: bool,
}

/// The folder that an entry is in; `None` for the root, which is the empty path.
pub fn folder_of(path: &str) -> Option<&str> {
    if path.is_empty() {
        return None;
    }
    let end = path.match_indices('/').map(|(at, _)| at).take(DEPTH_MAX).last();
    Some(end.map_or("", |end| &path[..end]))
}

/// The part of a path below its folder.
fn label(path: &str) -> &str {
    let folder = folder_of(path).unwrap_or_default();
    path[folder.len()..].trim_start_matches('/')
}

fn is_page_of_folder(path: &str) -> bool {
    FOLDER_PAGES.contains(&label(path))
}

/// The page of the folder or article at this path. The root has none.
fn page_of<'a>(
    articles: &'a Articles,
    path: &str,
    may_read: &dyn Fn(&str) -> bool,
) -> Option<&'a Arc<Article>> {
    if path.is_empty() {
        return None;
    }
    let is_shown =
        |article: &&Arc<Article>| order(article).is_some() && may_read(article.name.as_str());
    let own = articles.get(path).filter(is_shown);
    own.or_else(|| {
        let mut names = FOLDER_PAGES.iter().map(|page| format!("{path}/{page}"));
        names.find_map(|name| articles.get(name.as_str()).filter(is_shown))
    })
}

/// The order of a page in its folder; `None` if it is not shown: the article is deleted, renamed, a draft, or no page.
pub(crate) fn order(article: &Article) -> Option<i32> {
    let content = article.latest()?.content()?;
    if content.draft || !content.content_type.is_page() {
        return None;
    }
    Some(content.order.unwrap_or(i32::MAX))
}

impl Tree {
    /// Notes that the article of this name came, went, or got another order.
    pub(crate) fn update(&mut self, articles: &Articles, name: &ArticleName) {
        let mut path = name.as_str();
        loop {
            let page = page_of(articles, path, &|_| true);
            let is_there = page.is_some() || self.has_any(path);
            let wanted = page.and_then(|it| order(it)).unwrap_or(i32::MAX);
            let wanted = is_there.then_some(wanted);
            let Some(folder) = folder_of(path) else { return };
            let had_any = self.has_any(folder);
            self.put(folder, path, name, wanted);
            let has_any = self.has_any(folder);
            // The folder came or went with it, or has another page now.
            let is_its_page = path == name.as_str() && is_page_of_folder(path);
            if had_any == has_any && !is_its_page {
                return;
            }
            path = folder;
        }
    }

    /// Gives an entry this order, or takes it out. The entry of the article `name` shares its name.
    fn put(&mut self, folder: &str, path: &str, name: &ArticleName, order: Option<i32>) {
        let known = self.entries.get_key_value(path).map(|(path, order)| (path.clone(), *order));
        if known.as_ref().map(|(_, order)| *order) == order {
            return;
        }
        // Entries of one folder share its name.
        let sibling = self.sorted.range((Bound::Included(start(folder)), Bound::Unbounded)).next();
        let sibling = sibling.filter(|it| &*it.folder == folder).map(|it| it.folder.clone());
        let folder = sibling.unwrap_or_else(|| folder.into());
        let new = || if path == name.as_str() { name.shared().clone() } else { path.into() };
        let shared = known.as_ref().map_or_else(new, |(path, _)| path.clone());
        if let Some((path, order)) = known {
            self.sorted.remove(&TreePosition { folder: folder.clone(), order, path });
        }
        match order {
            Some(order) => {
                self.entries.insert(shared.clone(), order);
                self.sorted.insert(TreePosition { folder, order, path: shared });
            }
            None => _ = self.entries.remove(path),
        }
    }

    fn place(&self, path: &str) -> Option<TreePosition> {
        let (path, order) = self.entries.get_key_value(path)?;
        let folder = folder_of(path)?.into();
        Some(TreePosition { folder, order: *order, path: path.clone() })
    }

    /// The entries of a folder, in order; the iterator works from both ends.
    fn all_in<'tree>(
        &'tree self,
        folder: &str,
    ) -> impl DoubleEndedIterator<Item = &'tree str> + use<'tree> {
        let range = (Bound::Included(start(folder)), Bound::Excluded(end(folder)));
        self.sorted.range(range).map(|it| &*it.path)
    }

    fn has_any(&self, folder: &str) -> bool {
        self.all_in(folder).next().is_some()
    }

    /// The entries after this one in its folder, in order.
    fn after(&self, place: TreePosition) -> impl Iterator<Item = &str> {
        let end = end(&place.folder);
        self.sorted.range((Bound::Excluded(place), Bound::Excluded(end))).map(|it| &*it.path)
    }

    /// The entries before this one in its folder, the nearest first.
    fn before(&self, place: TreePosition) -> impl Iterator<Item = &str> {
        let range = (Bound::Included(start(&place.folder)), Bound::Excluded(place));
        self.sorted.range(range).rev().map(|it| &*it.path)
    }
}

/// Where the entries of a folder begin.
fn start(folder: &str) -> TreePosition {
    TreePosition { folder: folder.into(), order: i32::MIN, path: "".into() }
}

/// Where they end: no folder has a name between the two.
fn end(folder: &str) -> TreePosition {
    TreePosition { folder: format!("{folder}\0").into(), order: i32::MIN, path: "".into() }
}

/// The tree as a reader sees it.
#[derive(Clone, Copy)]
pub struct VisibleTree<'a> {
    articles: &'a Articles,
    tree: &'a Tree,
    sight: Visibility<'a>,
}

impl<'a> VisibleTree<'a> {
    pub(crate) fn new(
        articles: &'a Articles,
        tree: &'a Tree,
        sight: Visibility<'a>,
    ) -> VisibleTree<'a> {
        VisibleTree { articles, tree, sight }
    }

    /// The page of the folder or article at this path.
    pub fn page(&self, path: &str) -> Option<&'a Arc<Article>> {
        page_of(self.articles, path, self.sight.article)
    }

    /// Whether there is something in this folder that the reader may see.
    pub fn is_folder(&self, path: &str) -> bool {
        if !self.tree.has_any(path) {
            return false;
        }
        let start = if path.is_empty() { String::new() } else { format!("{path}/") };
        let may_read =
            |it: &Arc<Article>| order(it).is_some() && (self.sight.article)(it.name.as_str());
        let has_page = |place: &String| {
            let own = self.articles.get(place.as_str()).is_some_and(may_read);
            let below = format!("{place}/");
            let range = self.articles.range::<_, str>((Bound::Included(&*below), Bound::Unbounded));
            let range = range.map(|(_, it)| it).take(STEPS_MAX);
            let mut range = range.take_while(|it| it.name.as_str().starts_with(&below));
            own || range.any(may_read)
        };
        let mut places = self.sight.places.iter().filter(|place| place.starts_with(&start));
        (self.sight.below)(&start) || places.any(has_page)
    }

    /// The entry that shows this article: the folder whose page it is, or itself.
    pub fn path_of<'name>(&self, name: &'name str) -> &'name str {
        let folder = folder_of(name).unwrap_or_default();
        let is_its_page = |it: &Arc<Article>| it.name.as_str() == name;
        match is_page_of_folder(name) && self.page(folder).is_some_and(is_its_page) {
            true => folder,
            false => name,
        }
    }

    /// The entry at this path, if the reader may see it and it is more than the page of its folder.
    fn entry(&self, path: &'a str) -> Option<Entry<'a>> {
        let (page, is_folder) = (self.own_page(path), self.is_folder(path));
        let is_seen = page.is_some() || is_folder;
        is_seen.then_some(Entry { path, label: label(path), page, is_folder })
    }

    /// The first entries of a folder, at most `count_max`.
    pub fn first(&self, folder: &str, count_max: usize) -> EntryWindow<'a> {
        let mut found = self.tree.all_in(folder);
        let (entries, is_more_after) = self.taken(&mut found, count_max);
        EntryWindow { entries, is_more_before: false, is_more_after }
    }

    /// The entries of the folder after this one, at most `count_max`.
    pub fn following(&self, path: &str, count_max: usize) -> EntryWindow<'a> {
        let Some(place) = self.tree.place(path) else { return EntryWindow::default() };
        let (entries, is_more_after) = self.taken(&mut self.tree.after(place), count_max);
        EntryWindow { entries, is_more_before: true, is_more_after }
    }

    /// The entry and those around it in its folder, at most `count_max`. Without the entry, the first ones.
    pub fn around(&self, path: &str, count_max: usize) -> EntryWindow<'a> {
        let own = self.tree.entries.get_key_value(path).and_then(|(path, _)| self.entry(path));
        let (Some(own), Some(place)) = (own, self.tree.place(path)) else {
            return self.first(folder_of(path).unwrap_or_default(), count_max);
        };
        let half = count_max / 2;
        let (after, mut is_more_after) = self.taken(&mut self.tree.after(place.clone()), count_max);
        let wanted = half.max(count_max.saturating_sub(after.len() + 1));
        let (mut entries, is_more_before) = self.taken(&mut self.tree.before(place), wanted);
        entries.reverse();
        entries.push(own);
        let room = count_max.saturating_sub(entries.len());
        is_more_after |= after.len() > room;
        entries.extend(after.into_iter().take(room));
        EntryWindow { entries, is_more_before, is_more_after }
    }

    /// Entries at most `count_max`, and whether there may be more.
    fn taken(
        &self,
        paths: &mut dyn Iterator<Item = &'a str>,
        count_max: usize,
    ) -> (Vec<Entry<'a>>, bool) {
        let mut entries = Vec::new();
        for _ in 0..count_max + STEPS_MAX {
            let Some(path) = paths.next() else { return (entries, false) };
            if let Some(entry) = self.entry(path) {
                if entries.len() >= count_max {
                    return (entries, true);
                }
                entries.push(entry);
            }
        }
        (entries, true)
    }

    /// The page that is read after the one of this entry: the first one in it, else the next one.
    pub fn next(&self, path: &str) -> Option<&'a Arc<Article>> {
        let mut steps = STEPS_MAX;
        if let Some(found) = self.first_page_in(path, &mut steps) {
            return Some(found);
        }
        let mut path = path;
        while let Some(folder) = folder_of(path) {
            let after = self.tree.place(path).map(|place| self.tree.after(place));
            for path in after.into_iter().flatten() {
                steps = steps.checked_sub(1)?;
                let found = self.own_page(path).or_else(|| self.first_page_in(path, &mut steps));
                if found.is_some() {
                    return found;
                }
            }
            path = folder;
        }
        None
    }

    /// The page that is read before the one of this entry.
    pub fn previous(&self, path: &str) -> Option<&'a Arc<Article>> {
        let mut steps = STEPS_MAX;
        let mut path = path;
        while let Some(folder) = folder_of(path) {
            let before = self.tree.place(path).map(|place| self.tree.before(place));
            for path in before.into_iter().flatten() {
                steps = steps.checked_sub(1)?;
                let found = self.last_page_in(path, &mut steps).or_else(|| self.own_page(path));
                if found.is_some() {
                    return found;
                }
            }
            if let Some(page) = self.own_page(folder) {
                return Some(page);
            }
            path = folder;
        }
        None
    }

    /// The page of this entry, unless it is shown as that of its folder.
    fn own_page(&self, path: &str) -> Option<&'a Arc<Article>> {
        self.page(path).filter(|_| self.path_of(path) == path)
    }

    fn first_page_in(&self, folder: &str, steps: &mut usize) -> Option<&'a Arc<Article>> {
        for path in self.tree.all_in(folder) {
            *steps = steps.checked_sub(1)?;
            let found = self.own_page(path).or_else(|| self.first_page_in(path, steps));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn last_page_in(&self, folder: &str, steps: &mut usize) -> Option<&'a Arc<Article>> {
        for path in self.tree.all_in(folder).rev() {
            *steps = steps.checked_sub(1)?;
            let found = self.last_page_in(path, steps).or_else(|| self.own_page(path));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
