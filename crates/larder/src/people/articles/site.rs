//! Articles as a static site: the same pages, each a file, with links from file to file.
//!
//! the published articles -> [`Plan::of`], which file everything is -> [`Plan::write`]: pages from their templates, lists of what is
//! in a folder or has a tag, and other bytes as they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use article::tree::FOLDER_PAGES;
use article::{Article, ArticleName, Content as Facts};
use askama::Template;
use import::{FileNames, Omission, SiteFolder, SiteReport};
use record::Digest;
use reply::Encoding;

use super::list::{folder_page, query_of, tag_page};
use super::outline::{folders, in_tree, last_part};
use super::{article_page, format};
use crate::front::assets::SCRIPT;
use crate::front::display::in_path;
use crate::front::page::Site;
use crate::front::site_files::SiteFiles;
use crate::people::about::ICON;
use crate::protocols::articles::attachment_changes;
use crate::protocols::articles::folder::list_of;
use crate::protocols::articles::reader::ReadRequest;
use crate::published::article_texts::prefix;

/// Entries of a list: all of them, since a file has no further page.
const ENTRIES_MAX: usize = 1_000_000;

/// The page of a folder has its name; the list of what is in it has this one, where both are there.
const INDEX: &str = "index";
const CONTENTS: &str = "contents";

/// What the site consists of, and the file of each.
pub(crate) struct Plan {
    site: Arc<SiteFiles>,
    pages: Vec<(ArticleName, String)>,
    lists: Vec<(List, String)>,
    files: Vec<Bytes>,
    left_out: Vec<Omission>,
}

/// A list that is a page.
enum List {
    /// What is in a folder, by its prefix of names.
    Folder(String),
    /// The articles with a tag.
    Tag(String),
}

/// A file that is no page.
struct Bytes {
    /// What the report calls it.
    what: String,
    path: String,
    blob: (Digest, u64),
}

/// The content of an article that is exported.
fn content(article: &Article, with_drafts: bool) -> Option<&Facts> {
    article.latest()?.content().filter(|content| with_drafts || !content.draft)
}

fn path_of(name: &str) -> String {
    format!("/article/{}", in_path(name))
}

impl Plan {
    /// The site of all articles that the reader may see, or of those in the folder that a prefix names: it has a slash at its end.
    pub(crate) fn of(shown: &ReadRequest<'_>, prefix: &str, with_drafts: bool) -> Plan {
        let articles = &shown.stored.articles;
        let root = prefix.strip_suffix('/').unwrap_or_default();
        let exported =
            || articles.articles().filter_map(|it| Some((it, content(it, with_drafts)?)));
        // The part of a name, or of a folder, below the root of the site.
        let below = |name: &str| name.strip_prefix(prefix).unwrap_or_default().to_owned();
        let mut names = FileNames::default();
        // An unreadable revision does not count as a deletion.
        let is_unread = |it: &&Arc<Article>| {
            let has_latest = it.latest().is_some_and(|latest| latest.content().is_some());
            !has_latest && it.redirect().is_none() && !it.unreadable().is_empty()
        };
        let unread = articles.articles().filter(is_unread);
        let mut plan = Plan {
            site: Arc::default(),
            pages: Vec::new(),
            lists: Vec::new(),
            files: Vec::new(),
            left_out: unread
                .map(|it| Omission::new(it.name.as_str(), "its latest version cannot be read here"))
                .collect(),
        };
        let mut by_path = HashMap::new();
        // Which file each article is.
        let mut placed: BTreeMap<&ArticleName, String> = BTreeMap::new();

        let mut all_folders = BTreeSet::from([root]);
        for (article, content) in exported() {
            let above = folders(article.name.as_str()).filter(|it| it.starts_with(prefix));
            all_folders.extend(above.filter(|_| format(content).is_some()));
        }
        for folder in all_folders {
            let place = names.folder(&below(folder));
            let index = names.page(&place, INDEX);
            let pages = match folder.is_empty() {
                true => first_pages(shown),
                false => in_tree(shown, |view| view.page(folder).cloned()).into_iter().collect(),
            };
            let mut pages = pages.iter().filter_map(|page| articles.article(&page.name));
            let page = pages.find(|page| {
                content(page, with_drafts).is_some_and(|content| format(content).is_some())
                    && !placed.contains_key(&page.name)
            });
            let list = match page {
                Some(page) => {
                    placed.insert(&page.name, index.clone());
                    names.page(&place, CONTENTS)
                }
                None => index.clone(),
            };
            let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            by_path.insert(list_of(folder), list.clone());
            by_path.insert(format!("{}/", path_of(folder)), index.clone());
            if folder == root {
                // The folders above are no part of the site.
                for above in folders(root).chain([""]) {
                    by_path.insert(list_of(above), list.clone());
                }
                by_path.insert("/".to_owned(), index);
            }
            plan.lists.push((List::Folder(start), list));
        }
        for (article, content) in exported() {
            let name = below(article.name.as_str());
            let (folder, own) = name.rsplit_once('/').unwrap_or(("", &name));
            let folder = names.folder(folder);
            let essence = content.content_type.essence();
            if format(content).is_some() {
                let path = placed.entry(&article.name);
                let path = path.or_insert_with(|| names.page(&folder, own));
                plan.pages.push((article.name.clone(), path.clone()));
            } else {
                let path = names.file(&folder, own, &essence);
                placed.insert(&article.name, path.clone());
                let blob = (content.digest, content.size_bytes);
                plan.files.push(Bytes { what: article.name.to_string(), path, blob });
            }
            let files = articles.attachments(&article.name).map(|all| all.files());
            for file in files.unwrap_or_default() {
                let folder = names.folder(&format!("{name}-files"));
                let called = file.name.as_str();
                let path = names.file(&folder, called, file.name.sent_as().media_type);
                by_path.insert(attachment_changes::path(&article.name, called), path.clone());
                let what = format!("the attachment `{called}` of {}", article.name);
                plan.files.push(Bytes { what, path, blob: (file.digest, file.size_bytes) });
            }
        }
        for article in articles.articles() {
            let file = placed.get(article.redirect().unwrap_or(&article.name));
            by_path.extend(file.map(|file| (path_of(article.name.as_str()), file.clone())));
        }
        let tags = names.folder("tags");
        for (tag, _) in articles.tags() {
            let path = names.page(&tags, tag);
            by_path.insert(format!("/articles?{}", query_of(&[("tag", tag)])), path.clone());
            plan.lists.push((List::Tag(tag.to_owned()), path));
        }
        let assets = names.folder("assets");
        let asset = |path: &str| format!("{assets}{}", last_part(path));
        plan.site = Arc::new(SiteFiles {
            by_path,
            style: asset(&shown.app.pages.brand.style.path),
            script: asset(&SCRIPT.path),
            icon: asset("icon.svg"),
            logo: shown.app.pages.brand.logo.as_ref().map(|logo| asset(&logo.path)),
        });
        plan
    }

    /// Files of the site, for a display of progress.
    pub(crate) fn len(&self) -> usize {
        self.pages.len() + self.lists.len() + self.files.len()
    }

    /// Writes all files; calls `step` after each.
    ///
    /// # Errors
    /// If the store cannot be read or a file cannot be written. What cannot be a page is in the report.
    pub(crate) async fn write(
        &self,
        shown: &ReadRequest<'_>,
        folder: &SiteFolder,
        step: impl Fn(),
    ) -> anyhow::Result<SiteReport> {
        let mut report = SiteReport { left_out: self.left_out.clone(), ..SiteReport::default() };
        let at = |path: &str| Site::in_files(shown.app, &self.site, path);
        // What links in texts may begin with.
        let outside = prefix(shown.app.config.public_url.as_deref());
        for (name, path) in &self.pages {
            step();
            let Some(facts) = shown.stored.articles.latest(name) else { continue };
            let Some(format) = facts.content().and_then(format) else { continue };
            match Box::pin(article_page(shown, name, facts, format, at(path), &outside)).await {
                Ok(page) => {
                    if page.has_unreadable_files {
                        let why = "its attachments cannot be read here";
                        report.left_out.push(Omission::new(name.as_str(), why));
                    }
                    folder.write(path, page.render()?.as_bytes())?;
                    report.pages += 1;
                }
                Err(error) => report.left_out.push(Omission::new(name.as_str(), error.detail())),
            }
        }
        for (list, path) in &self.lists {
            step();
            let page = match list {
                List::Folder(prefix) => folder_page(shown, prefix, at(path), ENTRIES_MAX),
                List::Tag(tag) => tag_page(shown, tag, at(path)),
            };
            folder.write(path, page.render()?.as_bytes())?;
            report.lists += 1;
        }
        for Bytes { what, path, blob } in &self.files {
            step();
            match folder.write_blob(&shown.app.store.blobs, path, *blob).await? {
                Ok(()) => report.files += 1,
                Err(why) => report.left_out.push(Omission::new(what, why)),
            }
        }
        let SiteFiles { style, script, icon, logo, .. } = &*self.site;
        let brand = &shown.app.pages.brand;
        let assets = [(style, &brand.style.reply), (script, &SCRIPT.reply), (icon, &*ICON)];
        let logo = logo.iter().zip(brand.logo.iter().map(|logo| &logo.reply));
        for (path, asset) in assets.into_iter().chain(logo) {
            folder.write(path, &asset.encoded(Encoding::Identity))?;
        }
        Ok(report)
    }
}

/// The articles that can be the first page of a whole site: the one that the operator names, and those that are called so.
fn first_pages(shown: &ReadRequest<'_>) -> Vec<Arc<Article>> {
    let home = shown.app.config.site.home.as_ref().map(|home| home.0.as_str());
    let names = home.into_iter().chain(FOLDER_PAGES);
    let articles = &shown.stored.articles;
    let now = |article: &Arc<Article>| match article.redirect() {
        Some(to) => articles.article(to).cloned(),
        None => Some(article.clone()),
    };
    names.filter_map(|name| articles.article_named(name).and_then(now)).collect()
}
