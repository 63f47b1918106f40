//! [`Article`]: a name with all its revisions.

use std::sync::Arc;

use ::record::Serial;
use imbl::Vector;

use crate::search::searched_text;
use crate::{ArticleName, Kind, Revision, RevisionFacts};

/// An article: its name and its revisions. It has at least one, which may be unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Article {
    /// Its name.
    pub name: ArticleName,
    /// Ascending by number. Without damage they are 1, 2, 3 …, except those that moved to another name.
    pub(crate) revisions: Vector<Arc<RevisionFacts>>,
    /// Revisions whose records could not be read; ascending.
    unreadable: Vec<Revision>,
}

/// The target of links to a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    Nothing,
    Text,
    Picture,
    Redirect,
}

impl Article {
    pub(crate) fn new(name: ArticleName) -> Article {
        Article { name, revisions: Vector::new(), unreadable: Vec::new() }
    }

    /// The latest readable revision, which may be a deletion; `None` if no revision can be read.
    pub fn latest(&self) -> Option<&Arc<RevisionFacts>> {
        self.revisions.last()
    }

    /// The latest revision that has content: what undoing a deletion restores.
    pub fn latest_with_content(&self) -> Option<&Arc<RevisionFacts>> {
        self.revisions.iter().rev().find(|facts| !facts.is_deleted())
    }

    /// This revision; `None` if it does not exist or cannot be read.
    pub fn revision(&self, revision: Revision) -> Option<&Arc<RevisionFacts>> {
        self.position(revision).ok().and_then(|at| self.revisions.get(at))
    }

    /// All readable revisions, oldest first; the iterator works from both ends.
    pub fn revisions(
        &self,
    ) -> impl DoubleEndedIterator<Item = &Arc<RevisionFacts>> + ExactSizeIterator {
        self.revisions.iter()
    }

    /// Whether the latest revision is a deletion, or no revision can be read.
    pub fn is_deleted(&self) -> bool {
        self.latest().is_none_or(|facts| facts.is_deleted())
    }

    /// Whether it is a draft, which only those who may write it read, with all its revisions, and no list has. A draft that was
    /// deleted stays one.
    pub fn is_draft(&self) -> bool {
        let latest = self.latest().filter(|facts| facts.content().is_some());
        let latest = latest.or_else(|| self.latest_with_content());
        latest.and_then(|facts| facts.content()).is_some_and(|content| content.draft)
    }

    /// Whether it is in lists.
    pub fn is_listed(&self) -> bool {
        !self.is_deleted() && !self.is_draft()
    }

    /// What it is about, as long as it is in lists.
    pub(crate) fn tags(&self) -> Arc<[Arc<str>]> {
        let content = self.latest().filter(|_| self.is_listed()).and_then(|facts| facts.content());
        content.map(|content| content.tags.clone()).unwrap_or_default()
    }

    /// The commit of its latest revision; `None` while it is in no list.
    pub(crate) fn written_at(&self) -> Option<Serial> {
        self.latest().filter(|_| self.is_listed()).map(|facts| facts.serial)
    }

    /// The current name of the article that had this name; `None` if the name has an article.
    pub fn redirect(&self) -> Option<&ArticleName> {
        self.latest()?.redirect()
    }

    /// The current name of the article that had this revision, if it has been renamed since.
    pub fn redirect_of(&self, revision: Revision) -> Option<&ArticleName> {
        let at = match self.position(revision) {
            Ok(at) | Err(at) => at,
        };
        // A revision that went away was followed by a redirect.
        self.revisions.get(at)?.redirect()
    }

    /// The revisions of the article that has this name now: those after the last redirect, oldest first.
    pub(crate) fn own_revisions(&self) -> impl Iterator<Item = &Arc<RevisionFacts>> {
        let is_own = |facts: &&Arc<RevisionFacts>| facts.redirect().is_none();
        let count = self.revisions.iter().rev().take_while(is_own).count();
        self.revisions.iter().skip(self.revisions.len() - count)
    }

    /// Whether the commit that stored this revision stored a later one of the article, too.
    pub(crate) fn is_followed_in_its_commit(&self, facts: &RevisionFacts) -> bool {
        let next = match self.position(facts.revision) {
            Ok(at) => at + 1,
            Err(at) => at,
        };
        self.revisions.get(next).is_some_and(|next| next.serial == facts.serial)
    }

    /// The highest number of a revision, whether it can be read or not.
    pub fn highest(&self) -> Revision {
        let latest = self.latest().map_or(Revision::NONE, |facts| facts.revision);
        latest.max(self.unreadable.last().copied().unwrap_or_default())
    }

    /// Revisions whose records could not be read; ascending.
    pub fn unreadable(&self) -> &[Revision] {
        &self.unreadable
    }

    pub(crate) fn position(&self, revision: Revision) -> Result<usize, usize> {
        // Without gaps, the number gives the position.
        let likely = (revision.0 as usize).wrapping_sub(1);
        match self.revisions.get(likely) {
            Some(facts) if facts.revision == revision => Ok(likely),
            _ => self.revisions.binary_search_by_key(&revision, |facts| facts.revision),
        }
    }

    pub(crate) fn set(&mut self, revision: Revision, facts: Option<RevisionFacts>) {
        match (self.position(revision), facts) {
            (Ok(at), Some(facts)) => _ = self.revisions.set(at, Arc::new(facts)),
            (Ok(at), None) => _ = self.revisions.remove(at),
            (Err(at), Some(facts)) if at == self.revisions.len() => {
                self.revisions.push_back(Arc::new(facts));
            }
            (Err(at), Some(facts)) => self.revisions.insert(at, Arc::new(facts)),
            (Err(_), None) => {}
        }
    }

    /// Titles seldom change: equal ones share their memory.
    pub(crate) fn share_title(&self, facts: &mut RevisionFacts) {
        let latest = self.latest().and_then(|facts| facts.content());
        let title = latest.and_then(|content| content.title.as_ref());
        if let Kind::Put(content) | Kind::Restored { content, .. } | Kind::Renamed { content, .. } =
            &mut facts.kind
            && content.title.as_ref() == title
        {
            content.title = title.cloned();
        }
    }

    pub(crate) fn set_unreadable(&mut self, revision: Revision, is_unreadable: bool) {
        match (self.unreadable.binary_search(&revision), is_unreadable) {
            (Err(at), true) => self.unreadable.insert(at, revision),
            (Ok(at), false) => _ = self.unreadable.remove(at),
            _ => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.revisions.is_empty() && self.unreadable.is_empty()
    }

    pub(crate) fn linked(&self) -> LinkTarget {
        match self.latest().map(|facts| (facts.content(), facts.redirect())) {
            Some((Some(content), _)) if content.content_type.essence().starts_with("image/") => {
                LinkTarget::Picture
            }
            Some((Some(_), _)) => LinkTarget::Text,
            Some((None, Some(_))) => LinkTarget::Redirect,
            _ => LinkTarget::Nothing,
        }
    }

    pub(crate) fn searched_text(&self) -> String {
        let content = self.latest().and_then(|facts| facts.content());
        searched_text(&self.name, content.and_then(|content| content.title.as_deref()))
    }
}
