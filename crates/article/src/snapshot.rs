//! [`Snapshot`]: every article with all its revisions, in memory, without the texts.
//!
//! Applying records gives the next snapshot, which shares everything that did not change. The result depends only on
//! the last body of each key, not on the order of the records or on how they were divided into batches.

use std::ops::Bound;
use std::sync::Arc;

use ::record::{Key, Record, Serial, UnreadableReason, UnreadableRecord};
use imbl::ordmap::DiffItem;
use imbl::{OrdMap, OrdSet};

use crate::article::{Article, LinkTarget};
use crate::attachment::{self, Attachments};
use crate::name::normalize;
use crate::recent_articles::RecentArticles;
use crate::record::{key, parse, parse_key, render};
use crate::search::Search;
use crate::tree::{self, Tree, Visibility, VisibleTree};
use crate::{ATTACHMENTS_KIND, ArticleName, KIND, Kind, Revision, RevisionFacts, SearchIndex};

/// Articles of the search index that are looked up first, for each one that a page may have: some may be deleted.
const CONTAINING_FIRST: usize = 2;

/// Every article with all its revisions. It never changes; cloning it copies nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    articles: OrdMap<ArticleName, Arc<Article>>,
    /// Authors and media types, each kept once for all revisions.
    words: OrdSet<Arc<str>>,
    search: Search,
    changed_at: Serial,
    linked_at: Serial,
    recent: RecentArticles,
    /// Redirects, by where they lead.
    redirects: OrdMap<ArticleName, OrdSet<(ArticleName, Revision)>>,
    /// Articles that are in lists, by their tags.
    tags: OrdMap<Arc<str>, OrdSet<ArticleName>>,
    /// Drafts that are not deleted.
    drafts: OrdSet<ArticleName>,
    attachments: OrdMap<ArticleName, Arc<Attachments>>,
    pub(crate) tree: Tree,
}

/// The result of [`Snapshot::apply`].
#[derive(Clone, Debug)]
pub struct ApplyOutcome {
    /// The next snapshot.
    pub snapshot: Snapshot,
    /// The articles whose records were applied, each once, in ascending order.
    pub changed: Vec<ArticleName>,
    /// The records that could not be read.
    pub troubles: Vec<UnreadableRecord>,
}

/// Which articles a list shows.
#[derive(Clone, Debug)]
pub struct ListQuery<'a> {
    /// Only names that begin with this, after its normalization to form C; empty means all.
    pub prefix: &'a str,
    /// Only articles whose name or title contains this, in any case; empty means all.
    pub q: &'a str,
    /// Only names after this one.
    pub after: Option<&'a str>,
    /// Most articles on the page.
    pub limit: usize,
    /// Whether deleted articles are shown as well.
    pub with_deleted: bool,
}

impl Default for ListQuery<'_> {
    fn default() -> Self {
        ListQuery { prefix: "", q: "", after: None, limit: 100, with_deleted: false }
    }
}

/// The article that a record of this surface belongs to; `None` for other records.
pub fn article_of_record(record_key: &Key) -> Option<ArticleName> {
    if let Some(rest) = record_key.after(ATTACHMENTS_KIND) {
        return attachment::parse_key(rest);
    }
    Some(parse_key(record_key.after(KIND)?)?.0)
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Articles in ascending order of their names.
    pub articles: Vec<Arc<Article>>,
    /// The [`ListQuery::after`] of the next page; `None` if this is the last one.
    pub next: Option<ArticleName>,
}

impl Article {
    /// Numbers below the highest that no revision has, readable or not, and that no renaming explains. Ascending. `snapshot` is
    /// the one with this article.
    pub fn lacking(&self, snapshot: &Snapshot) -> impl Iterator<Item = Revision> {
        let first = self.revisions.front().map_or(Revision::NONE, |facts| facts.revision);
        // Numbers go on where a redirect was overwritten, and the article takes them with it. The redirect stays, at
        // the first name of the article.
        let first_name = self.revisions.iter().find_map(|facts| match &facts.kind {
            Kind::Renamed { from, .. } => Some(from),
            _ => None,
        });
        let there = first_name.and_then(|name| snapshot.article(name));
        let overwritten = there.and_then(|there| {
            let is_earlier = |facts: &&Arc<RevisionFacts>| facts.revision < first;
            there.revisions().take_while(is_earlier).filter(|it| it.redirect().is_some()).last()
        });
        let from = overwritten.map_or(0, |redirect| redirect.revision.0) + 1;
        (from..=self.highest().0).map(Revision).filter(|&number| {
            let is_there = self.position(number).is_ok() || self.unreadable().contains(&number);
            !is_there && self.redirect_of(number).is_none()
        })
    }
}

/// Where a list of the names that begin with `prefix` goes on after the name `after`.
fn start<'a>(prefix: &'a str, after: Option<&'a str>) -> Bound<&'a str> {
    match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    }
}

fn share(words: &mut OrdSet<Arc<str>>, word: &str) -> Arc<str> {
    if let Some(word) = words.get(word) {
        return word.clone();
    }
    let word: Arc<str> = word.into();
    words.insert(word.clone());
    word
}

fn change_redirect(
    redirects: &mut OrdMap<ArticleName, OrdSet<(ArticleName, Revision)>>,
    place: (ArticleName, Revision),
    before: Option<&ArticleName>,
    after: Option<&ArticleName>,
) {
    if let Some(before) = before
        && let Some(places) = redirects.get_mut(before)
    {
        places.remove(&place);
        if places.is_empty() {
            redirects.remove(before);
        }
    }
    if let Some(after) = after {
        redirects.entry(after.clone()).or_default().insert(place);
    }
}

impl Snapshot {
    /// The snapshot after `records`; if a key occurs twice, the later record counts. Keys of other kinds are ignored.
    /// Takes time in proportion to the number of records times the logarithm of the number of articles. Builds no
    /// search index (see [`Snapshot::wants_index`]).
    ///
    /// A record that cannot be read is listed in [`ApplyOutcome::troubles`] and does not affect the article's other
    /// revisions.
    #[must_use]
    pub fn apply(&self, records: &[Record]) -> ApplyOutcome {
        self.clone().after(records)
    }

    /// Like [`Snapshot::apply`], but takes the snapshot: what it shares with no other is changed in place.
    #[must_use]
    pub fn after(self, records: &[Record]) -> ApplyOutcome {
        let mut troubles = Vec::new();
        let mut snapshot = self;
        // All records of an article are applied at once: it is copied once, and only its last state goes into the
        // search.
        let mut changes: Vec<(ArticleName, Revision, &Record)> = Vec::new();
        for record in records {
            if let Some(rest) = record.key.after(ATTACHMENTS_KIND) {
                snapshot.changed_at = snapshot.changed_at.max(record.serial);
                snapshot.apply_to_attachments(rest, record, &mut troubles);
                continue;
            }
            let Some(rest) = record.key.after(KIND) else { continue };
            snapshot.changed_at = snapshot.changed_at.max(record.serial);
            match parse_key(rest) {
                Some((name, revision)) => changes.push((name, revision, record)),
                None if record.body.is_none() => {}
                None => {
                    troubles.push(UnreadableRecord::of(record, UnreadableReason::Key));
                }
            }
        }
        // Stable: records of one key keep their order.
        changes.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut changed = Vec::new();
        for changes in changes.chunk_by(|one, other| one.0 == other.0) {
            let Some((name, _, _)) = changes.first() else { continue };
            snapshot.apply_to_article(name, changes, &mut troubles);
            changed.push(name.clone());
        }
        ApplyOutcome { snapshot, changed, troubles }
    }

    fn apply_to_attachments(
        &mut self,
        rest: &str,
        record: &Record,
        troubles: &mut Vec<UnreadableRecord>,
    ) {
        let Some(name) = attachment::parse_key(rest) else {
            if record.body.is_some() {
                troubles.push(UnreadableRecord::of(record, UnreadableReason::Key));
            }
            return;
        };
        let Some(body) = &record.body else {
            self.attachments.remove(&name);
            return;
        };
        let parsed = attachment::parse(record, body, |word| share(&mut self.words, word));
        let parsed = parsed.unwrap_or_else(|reason| {
            troubles.push(UnreadableRecord::of(record, reason));
            Attachments::unreadable(record.serial)
        });
        self.attachments.insert(name, Arc::new(parsed));
    }

    fn apply_to_article(
        &mut self,
        name: &ArticleName,
        changes: &[(ArticleName, Revision, &Record)],
        troubles: &mut Vec<UnreadableRecord>,
    ) {
        let known = self.articles.get(name);
        let searched_before = known.map(|article| article.searched_text());
        let linked_before = known.map_or(LinkTarget::Nothing, |article| article.linked());
        let order_before = known.and_then(|article| tree::order(article));
        let written_before = known.and_then(|article| article.written_at());
        let tags_before = known.map(|article| article.tags()).unwrap_or_default();
        // Shares the name that is already stored.
        let name = known.map_or(name, |article| &article.name).clone();
        let mut article =
            known.map_or_else(|| Article::new(name.clone()), |article| Article::clone(article));
        for (_, revision, record) in changes {
            let share = |word: &str| share(&mut self.words, word);
            let facts = record.body.as_ref().map(|body| parse(*revision, record, body, share));
            article.set_unreadable(*revision, matches!(facts, Some(Err(_))));
            let before = article.revision(*revision).and_then(|facts| facts.redirect().cloned());
            let after = facts.as_ref().and_then(|facts| facts.as_ref().ok()?.redirect());
            if before.as_ref() != after {
                let place = (name.clone(), *revision);
                change_redirect(&mut self.redirects, place, before.as_ref(), after);
            }
            match facts {
                Some(Ok(mut facts)) => {
                    article.share_title(&mut facts);
                    article.set(*revision, Some(facts));
                }
                Some(Err(reason)) => {
                    article.set(*revision, None);
                    troubles.push(UnreadableRecord::of(record, reason));
                }
                None => article.set(*revision, None),
            }
        }
        if article.linked() != linked_before {
            let newest = changes.iter().map(|(_, _, record)| record.serial).max();
            self.linked_at = self.linked_at.max(newest.unwrap_or_default());
        }
        let is_moved = tree::order(&article) != order_before;
        self.recent.change(&name, written_before, article.written_at());
        self.change_tags(&name, &tags_before, &article.tags());
        match article.is_draft() && !article.is_deleted() {
            true => self.drafts.insert(name.clone()),
            false => self.drafts.remove(&name),
        };
        if article.is_empty() {
            if self.articles.remove(&name).is_some() {
                self.search.change(name.clone(), None);
            }
        } else {
            // Most writes keep the title. Such articles keep their place in the index.
            let text = article.searched_text();
            if searched_before.as_ref() != Some(&text) {
                self.search.change(name.clone(), Some(text));
            }
            self.articles.insert(name.clone(), Arc::new(article));
        }
        if is_moved {
            self.tree.update(&self.articles, &name);
        }
    }

    fn change_tags(&mut self, name: &ArticleName, before: &[Arc<str>], after: &[Arc<str>]) {
        for tag in before.iter().filter(|tag| !after.contains(tag)) {
            if let Some(names) = self.tags.get_mut(tag) {
                names.remove(name);
                if names.is_empty() {
                    self.tags.remove(tag);
                }
            }
        }
        for tag in after.iter().filter(|tag| !before.contains(tag)) {
            self.tags.entry(tag.clone()).or_default().insert(name.clone());
        }
    }

    /// The tags of articles that are in lists, each with the articles that have it, in ascending order of both.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &OrdSet<ArticleName>)> {
        self.tags.iter().map(|(tag, names)| (&**tag, names))
    }

    /// The articles that are in lists and have this tag, those whose names begin with `prefix` and are after the name `after`, in
    /// ascending order of their names.
    pub fn tagged(
        &self,
        tag: &str,
        prefix: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Article>> + use<'_> {
        let prefix = normalize(prefix);
        let range = (start(&prefix, after), Bound::Unbounded);
        let names = self.tags.get(tag).map(|names| names.range::<_, str>(range));
        let names = names.into_iter().flatten();
        let names = names.take_while(move |name| name.as_str().starts_with(&prefix));
        names.filter_map(|name| self.articles.get(name))
    }

    /// Drafts, in ascending order of their names. They are only for those who may write them.
    pub fn drafts(&self) -> impl Iterator<Item = &Arc<Article>> {
        self.drafts.iter().filter_map(|name| self.articles.get(name))
    }

    /// The last commit that changed an article, or files of one.
    pub fn changed_at(&self) -> Serial {
        self.changed_at
    }

    /// The last commit that changed where a link leads: since then no article came or went, got another name, or became a
    /// picture.
    pub fn linked_at(&self) -> Serial {
        self.linked_at
    }

    /// The articles that were added, changed or removed since `before`. Takes time in proportion to these, if one of the
    /// snapshots was made of the other.
    pub fn changed_since(&self, before: &Snapshot) -> Vec<ArticleName> {
        let name = |item| match item {
            DiffItem::Add(name, _) | DiffItem::Remove(name, _) => ArticleName::clone(name),
            DiffItem::Update { new: (name, _), .. } => name.clone(),
        };
        before.articles.diff(&self.articles).map(name).collect()
    }

    /// Whether there is a record with this key, as far as it can be read.
    pub fn has_record(&self, key: &Key) -> bool {
        if let Some(rest) = key.after(ATTACHMENTS_KIND) {
            return self.attachments.contains_key(rest);
        }
        let Some((name, revision)) = key.after(KIND).and_then(parse_key) else { return false };
        self.revision(&name, revision).is_some()
    }

    /// Number of articles, deleted ones included.
    pub fn len(&self) -> usize {
        self.articles.len()
    }

    /// Whether there is no article.
    pub fn is_empty(&self) -> bool {
        self.articles.is_empty()
    }

    /// The article, deleted or not; `None` if it never existed.
    pub fn article(&self, name: &ArticleName) -> Option<&Arc<Article>> {
        self.articles.get(name)
    }

    /// The article with this unchecked name; `None` for text that cannot be a name.
    pub fn article_named(&self, name: &str) -> Option<&Arc<Article>> {
        self.articles.get(name)
    }

    /// Redirects to this name: each is this revision of an article that had that name. In ascending order.
    pub fn redirects_to(
        &self,
        name: &ArticleName,
    ) -> impl Iterator<Item = &(ArticleName, Revision)> {
        self.redirects.get(name).into_iter().flatten()
    }

    /// All articles in ascending order of their names, deleted ones included.
    pub fn articles(&self) -> impl Iterator<Item = &Arc<Article>> {
        self.articles.values()
    }

    /// The names of up to a thousand articles, the one that changed last first, without deleted ones.
    pub fn recent(&self) -> impl Iterator<Item = &ArticleName> {
        self.recent.names()
    }

    /// The files of the article, and their changes; `None` if it never had any under this name.
    pub fn attachments(&self, name: &ArticleName) -> Option<&Arc<Attachments>> {
        self.attachments.get(name)
    }

    /// The files of all articles that have or had any, in ascending order of their names.
    pub fn all_attachments(&self) -> impl Iterator<Item = (&ArticleName, &Arc<Attachments>)> {
        self.attachments.iter()
    }

    /// The records of every readable revision, and of all attachments. Applied to an empty snapshot they give an equal one.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let attachments = self.attachments.iter().filter(|(_, all)| !all.is_unreadable());
        let attachments = attachments.map(|(name, all)| all.record(name));
        let revisions = self.articles().flat_map(|article| {
            article.revisions().map(|facts| {
                let RevisionFacts { revision, kind, base, author, comment, at, serial, .. } =
                    &**facts;
                let (body, blobs) = render(kind, *base, author, comment, *at);
                let key = key(&article.name, *revision);
                Record { key, serial: *serial, body: Some(body), blobs }
            })
        });
        revisions.chain(attachments)
    }

    /// The articles with these names, and their attachments, as far as they can be read.
    #[must_use]
    pub fn part(&self, is_in: impl Fn(&str) -> bool) -> Snapshot {
        let is_in = |record: &Record| {
            let revision = record.key.after(KIND).and_then(|rest| rest.split_once('/'));
            let name = revision.map(|(_, name)| name);
            name.or(record.key.after(ATTACHMENTS_KIND)).is_some_and(&is_in)
        };
        Snapshot::default().apply(&self.records().filter(is_in).collect::<Vec<_>>()).snapshot
    }

    /// The latest revision of the article, which may be a deletion.
    pub fn latest(&self, name: &ArticleName) -> Option<&Arc<RevisionFacts>> {
        self.article(name)?.latest()
    }

    /// This revision of the article; a deleted article still has its revisions.
    pub fn revision(&self, name: &ArticleName, revision: Revision) -> Option<&Arc<RevisionFacts>> {
        self.article(name)?.revision(revision)
    }

    /// This revision of the article that had this name when it was written, and may have been renamed since.
    pub fn revision_written_as(
        &self,
        name: &ArticleName,
        revision: Revision,
    ) -> Option<&Arc<RevisionFacts>> {
        let article = self.article(name)?;
        let moved = || self.revision(article.redirect_of(revision)?, revision);
        article.revision(revision).or_else(moved)
    }

    /// The revisions of the article that are below `before`, latest first, at most `limit`.
    pub fn history(
        &self,
        name: &ArticleName,
        before: Option<Revision>,
        limit: usize,
    ) -> Vec<Arc<RevisionFacts>> {
        let Some(article) = self.article(name) else { return Vec::new() };
        let end = match before.map(|before| article.position(before)) {
            None => article.revisions.len(),
            Some(Ok(at) | Err(at)) => at,
        };
        let places = (0..end).rev().take(limit);
        places.filter_map(|at| article.revisions.get(at)).cloned().collect()
    }

    /// The pages in their folders, as a reader sees them.
    pub fn tree<'a>(&'a self, sight: Visibility<'a>) -> VisibleTree<'a> {
        VisibleTree::new(&self.articles, &self.tree, sight)
    }

    /// The articles that `query` asks for.
    pub fn list(&self, query: &ListQuery<'_>) -> Page {
        let prefix = normalize(query.prefix);
        let from = start(&prefix, query.after);
        let is_wanted = |article: &&Arc<Article>| {
            !article.is_draft() && (query.with_deleted || !article.is_deleted())
        };
        if query.q.is_empty() {
            let articles = self
                .articles
                .range::<_, str>((from, Bound::Unbounded))
                .map(|(_, article)| article)
                .take_while(|article| article.name.as_str().starts_with(&prefix))
                .filter(is_wanted);
            return Page::of(articles, query.limit);
        }
        let has_prefix = |name: &&ArticleName| name.as_str().starts_with(&prefix);
        let page = |found: &[ArticleName]| {
            let articles = found.iter().take_while(has_prefix);
            let articles = articles.filter_map(|name| self.articles.get(name)).filter(is_wanted);
            Page::of(articles, query.limit)
        };
        // Some words are in nearly all titles, and the first articles are enough for a page.
        let some = query.limit.saturating_add(1).saturating_mul(CONTAINING_FIRST);
        let (found, is_all) = self.search.containing(query.q, from, some);
        let first = page(&found);
        let is_past = found.last().is_some_and(|last| !has_prefix(&last));
        if is_all || is_past || first.next.is_some() {
            return first;
        }
        page(&self.search.containing(query.q, from, usize::MAX).0)
    }

    /// Whether enough articles have changed since the search index was built that a new index would make searches faster.
    pub fn wants_index(&self) -> bool {
        self.search.wants_index()
    }

    /// An index of this snapshot's names and titles, for [`Snapshot::with_index`]. Takes time in proportion to all of
    /// them, so build it on a thread that may block.
    pub fn build_index(&self) -> SearchIndex {
        let articles = self.articles.values();
        self.search.build(articles.map(|article| (article.name.clone(), article.searched_text())))
    }

    /// A snapshot with these articles that is searched by `index`. The index must have been built from this snapshot
    /// or from one that it descends from by [`Snapshot::apply`]. An index older than the one in use is ignored.
    #[must_use]
    pub fn with_index(&self, index: impl Into<Arc<SearchIndex>>) -> Snapshot {
        let mut snapshot = self.clone();
        snapshot.search.adopt(index.into());
        snapshot
    }
}

/// Snapshots are equal if their articles are; the search index does not count.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Snapshot) -> bool {
        self.articles == other.articles && self.attachments == other.attachments
    }
}

impl Eq for Snapshot {}

impl Page {
    /// The first of these, at most `limit`.
    pub fn of<'a>(articles: impl Iterator<Item = &'a Arc<Article>>, limit: usize) -> Page {
        let mut articles = articles.cloned();
        let page: Vec<Arc<Article>> = articles.by_ref().take(limit).collect();
        let has_more = articles.next().is_some();
        let next = page.last().filter(|_| has_more).map(|article| article.name.clone());
        Page { articles: page, next }
    }
}

#[cfg(test)]
mod tests;
