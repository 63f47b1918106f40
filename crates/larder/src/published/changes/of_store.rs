//! The changes of the Python index and of articles, from the records that the store's tail reads.
//!
//! the state before, whole commits, the state after -> [`Draft`]s. The first load has no state before: only the end of what it
//! reads becomes history, and whatever exists then counts as added.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use account::{Acl, AclEntry};
use jiff::Timestamp;
use pypi::index_log::{self, LogLine};
use pypi::{Item, ItemChange, ProjectName, StageName};
use record::{ChangeKind, Key, Record, Serial, UnreadableRecord};
use state::stored::Stored;
use store::State;

use super::{Changes, Draft, FeedSurface, Subject};

/// The published state of the store, and what changed on the way to it.
#[derive(Clone, Default)]
pub(crate) struct FollowedStore {
    /// What is served.
    pub(crate) stored: Stored,
    news: FeedNews,
    /// Most changes of the first load that become history.
    history_max: usize,
    /// Whether the feeds have begun.
    is_loaded: bool,
}

/// What changed since the feeds were last told.
#[derive(Clone, Default)]
pub(crate) struct FeedNews {
    python: Vec<Draft>,
    articles: Vec<Draft>,
    /// The list of readers of the last draft.
    readers: Option<Arc<Acl>>,
    /// The stages that are gone, and the projects that are gone from a stage.
    gone: BTreeSet<(StageName, Option<ProjectName>)>,
    /// Whether a record of a user, a token or a group was among them.
    has_accounts: bool,
    /// The last records of the first load, without those that changed no article.
    first: VecDeque<(Serial, Key)>,
    /// Every such record of the first load after this serial is in `first`.
    first_oldest: Serial,
}

impl FollowedStore {
    pub(crate) fn new(stored: Stored, history_max: usize) -> FollowedStore {
        FollowedStore { stored, news: FeedNews::default(), history_max, is_loaded: false }
    }

    /// The stages and projects that are gone since this was last called.
    pub(crate) fn take_gone(&mut self) -> Vec<(StageName, Option<ProjectName>)> {
        std::mem::take(&mut self.news.gone).into_iter().collect()
    }

    /// Tells the feeds what changed, now that the state after it is published.
    pub(crate) fn tell(&mut self, changes: &Changes) {
        let news = std::mem::take(&mut self.news);
        let serial = self.stored.serial;
        if news.has_accounts {
            changes.accounts.send_modify(|count| *count += 1);
        }
        let (python, articles) =
            (changes.feed(FeedSurface::Python), changes.feed(FeedSurface::Articles));
        if std::mem::replace(&mut self.is_loaded, true) {
            python.push(serial, news.python);
            articles.push(serial, news.articles);
            return;
        }
        let mut loaded = FeedNews { first_oldest: news.first_oldest, ..FeedNews::default() };
        let python_oldest = news.rights_known_after(&self.stored.index);
        for (serial, key) in &news.first {
            loaded.add(None, *serial, key, &self.stored, None);
        }
        loaded.python.retain(|draft| draft.serial > python_oldest);
        let history = self.stored.identity.as_ref().and_then(|name| name.to_str().ok());
        let history = history.unwrap_or("store").to_owned();
        python.load(&history, python_oldest, serial, loaded.python);
        articles.load(&history, loaded.first_oldest, serial, loaded.articles);
    }
}

impl State for FollowedStore {
    fn serial(&self) -> Serial {
        self.stored.serial()
    }

    fn apply(self, records: &[Record], serial: Serial) -> (FollowedStore, Vec<UnreadableRecord>) {
        let FollowedStore { stored, mut news, history_max, is_loaded } = self;
        // A first load is compared with nothing, so nothing else has this state, which is changed in place.
        let before = is_loaded.then(|| stored.clone());
        let (stored, troubles) = stored.apply(records, serial);
        let seen_at = Timestamp::now();
        for record in records {
            if is_loaded {
                news.add(before.as_ref(), record.serial, &record.key, &stored, Some(seen_at));
            } else if !is_log(&record.key) && !is_no_change(&record.key, &stored) {
                news.first.push_back((record.serial, record.key.clone()));
            }
        }
        while news.first.len() > history_max {
            let Some((first, _)) = news.first.front() else { break };
            let first = *first;
            let end = news.first.partition_point(|(serial, _)| *serial <= first);
            news.first.drain(..end);
            news.first_oldest = first;
        }
        (FollowedStore { stored, news, history_max, is_loaded }, troubles)
    }
}

/// Whether this record only says who made the changes of its commit.
fn is_log(key: &Key) -> bool {
    key.after(index_log::KIND).is_some()
}

/// Whether this record of the first load belongs to an article without changing it. Renaming an article with many versions
/// writes thousands of them, which would displace changes from the history. `stored` has the whole commit, so later records
/// cannot turn such a record into a change.
fn is_no_change(key: &Key, stored: &Stored) -> bool {
    let is_article = key.after(article::KIND).is_some();
    is_article && article::ArticleChange::of(key, None, &stored.articles).is_none()
}

impl FeedNews {
    /// The serial after which the first load knows who could read what: the last one at which a stage was written that is gone,
    /// is not for everybody, or has older changes. Before it, that is not known: some clients must not be told of a change, and
    /// others must be told that a stage is gone. So clients at an earlier position start over.
    fn rights_known_after(&self, index: &pypi::Snapshot) -> Serial {
        let own = |(serial, key): &(Serial, Key)| {
            let (stage, is_own) = ItemChange::stage_of(key)?;
            is_own.then(|| (stage.to_owned(), *serial))
        };
        let written: HashMap<String, Serial> = self.first.iter().filter_map(own).collect();
        let unknown = self.first.iter().filter_map(|(serial, key)| {
            let (stage, _) = ItemChange::stage_of(key)?;
            let at = *written.get(stage)?;
            let readers = index.stage(stage).map(|stage| stage.config().acl_read.entries());
            let is_open = readers.is_some_and(|all| all.contains(&AclEntry::Everybody));
            (*serial < at || !is_open).then_some(at)
        });
        unknown.max().unwrap_or(self.first_oldest).max(self.first_oldest)
    }

    fn add(
        &mut self,
        before: Option<&Stored>,
        serial: Serial,
        key: &Key,
        after: &Stored,
        seen_at: Option<Timestamp>,
    ) {
        let (kind, _) = key.as_str().split_once('/').unwrap_or_default();
        match kind {
            pypi::KIND => {
                let before = before.map(|before| &before.index);
                if let Some(change) = ItemChange::of(before, key, &after.index) {
                    if before.is_some() && change.kind == ChangeKind::Removed {
                        self.gone.extend(gone(&change, &after.index));
                    }
                    let readers = change.readers.clone().map(|readers| self.shared(readers));
                    let log = after.logs.log(change.stage.as_str());
                    let line = log.and_then(|log| log.at(serial));
                    let draft = of_item(serial, change, line, seen_at);
                    self.python.push(Draft { readers, ..draft });
                }
            }
            article::KIND => {
                let before = before.map(|before| &before.articles);
                if let Some(change) = article::ArticleChange::of(key, before, &after.articles) {
                    self.articles.push(of_article(serial, change));
                }
            }
            article::ATTACHMENTS_KIND => {
                let before = before.map(|before| &before.articles);
                let changed = article::attachment_changes(key, before, &after.articles);
                if let Some((name, changes)) = changed {
                    let drafts = changes.iter().map(|change| of_attachment(serial, &name, change));
                    self.articles.extend(drafts);
                }
            }
            index_log::KIND => {}
            _ => self.has_accounts = true,
        }
    }

    /// Shares the list of the last draft if it is equal: most changes follow one of the same stage.
    fn shared(&mut self, readers: Acl) -> Arc<Acl> {
        match &self.readers {
            Some(last) if **last == readers => last.clone(),
            _ => self.readers.insert(Arc::new(readers)).clone(),
        }
    }
}

/// What is no more because of this change: its stage, or the last of its project there.
fn gone(change: &ItemChange, after: &pypi::Snapshot) -> Option<(StageName, Option<ProjectName>)> {
    let (stage, project) = (&change.stage, change.project.as_ref());
    match (after.stage(stage.as_str()), project) {
        (None, _) => Some((stage.clone(), None)),
        (Some(left), Some(project)) if left.project(project.as_str()).is_none() => {
            Some((stage.clone(), Some(project.clone())))
        }
        _ => None,
    }
}

/// A file says itself who uploaded it; `line`, of the index's log, says who made all other changes.
fn of_item(
    serial: Serial,
    change: ItemChange,
    line: Option<&LogLine>,
    seen_at: Option<Timestamp>,
) -> Draft {
    let project = change.project.as_ref().map(|project| project.as_str().to_owned());
    let (item, name) = match change.item {
        Item::Stage => ("index", change.stage.to_string()),
        Item::Project => ("project", project.unwrap_or_default()),
        Item::Release(version) => ("release", version.into()),
        Item::File(filename) => ("file", filename.into()),
    };
    let subject = Subject::Stage(change.stage, change.project);
    Draft {
        at: change.at.or(line.map(|line| line.at)).or(seen_at),
        fields: change.fields.into_iter().map(str::to_owned).collect(),
        by: change.by.or_else(|| line?.by.user().map(str::to_owned)),
        readers_before: change.readers_before,
        ..Draft::new(serial, change.kind, item, name, subject)
    }
}

/// The entry has the name of the article: readers of the article may read the entry.
fn of_attachment(
    serial: Serial,
    article: &article::ArticleName,
    change: &article::AttachmentChange,
) -> Draft {
    let kind = match change.act {
        article::AttachmentAct::Added => ChangeKind::Added,
        article::AttachmentAct::Replaced => ChangeKind::Changed,
        article::AttachmentAct::Removed | article::AttachmentAct::Cleared => ChangeKind::Removed,
    };
    let subject = Subject::Article(article.clone());
    let mut draft = Draft::new(serial, kind, "attachment", article.as_str(), subject);
    draft.at = Some(change.at);
    draft.by = Some(change.author.to_string());
    let file = change.name.as_ref().map_or("", article::AttachmentName::as_str);
    draft.more.insert("file".to_owned(), file.into());
    if change.number > 0 {
        draft.more.insert("number".to_owned(), change.number.into());
    }
    draft
}

fn of_article(serial: Serial, change: article::ArticleChange) -> Draft {
    let mut draft = Draft::new(
        serial,
        change.kind,
        "article",
        change.name.as_str(),
        Subject::Article(change.name.clone()),
    );
    draft.at = Some(change.revision.at);
    draft.fields = change.fields.into_iter().map(str::to_owned).collect();
    draft.by = Some(change.revision.author.to_string());
    draft.more.insert("version".to_owned(), change.revision.revision.0.into());
    draft.hides = change.hides;
    draft
}
