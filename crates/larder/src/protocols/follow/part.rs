//! [`Part`]: of the store's records, those that the owner of a token may read, for a follower that has no more.
//!
//! a state of this server, `base` -> pages of records from the store -> records up to `base`: decided on it at once; later ones wait
//! until the last page -> the state after these -> compared with `base`: what could be read before and cannot now, or the other way
//! round, ends the copy -> the records that waited, decided on the new state, which is the next `base`.
//!
//! So each record is decided on the very state that it belongs to. A deletion is told only of what was readable: its key is a name. No
//! record of accounts is sent; users who have readable indexes are told of with what everybody may know ([`account::public_record`]).
//!
//! A follower that comes back names a digest of what was readable at its serial ([`View::digest`]). If the same was readable then by the
//! state of today, the records since then are enough.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use account::{AclEntry, Object, Principal, Scope};
use article::ArticleName;
use config::Config;
use following::frame::{Frame, RECORDS_BYTES_MAX, RECORDS_MAX};
use following::{PartState, generation};
use jiff::Timestamp;
use pypi::Readable;
use record::{Digest, Key, Record, Serial};
use state::stored::{IDENTITY_KEY, Stored, WriteFailure};
use store::State as _;
use store::records::Page;

use crate::app::App;

/// Bytes of records that wait for the last page, at most.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// How long this server may take to publish what its store has.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);

/// Most waits for a published state are shorter. After a longer one, the state is made here.
const PUBLISHED_SOON: Duration = Duration::from_millis(100);

/// Why an answer ends.
pub(super) struct StreamEnd {
    /// The reason, without a name that the follower may not read.
    pub(super) reason: String,
    /// Whether the follower has to read everything anew.
    pub(super) starts_over: bool,
}

impl StreamEnd {
    fn over(reason: &str) -> StreamEnd {
        StreamEnd { reason: reason.to_owned(), starts_over: true }
    }
}

/// What may be read of a state.
#[derive(Default)]
struct View {
    stages: Readable,
    /// Whether articles may be read.
    has_articles: bool,
    /// Drafts that may not be read.
    hidden: BTreeSet<ArticleName>,
}

impl View {
    fn of(stored: &Stored, principal: &Principal, config: &Config) -> View {
        let mut view = View::without_drafts(stored, principal, config);
        let drafts = stored.articles.articles().filter(|article| article.is_draft());
        if view.has_articles && !writes_articles(principal, config) {
            view.hidden = drafts.map(|article| article.name.clone()).collect();
        }
        view
    }

    fn without_drafts(stored: &Stored, principal: &Principal, config: &Config) -> View {
        let rights_of = principal.identity().map_or(Serial::ZERO, |it| it.user.serial);
        let object = Object::Articles("");
        View {
            stages: Readable::of(&stored.index, principal, rights_of),
            has_articles: config.article.acl_read.admits(principal, Scope::ArticleRead, object),
            hidden: BTreeSet::new(),
        }
    }

    /// This view, of a later state.
    fn after(
        &self,
        (before, next): (&Stored, &Stored),
        principal: &Principal,
        config: &Config,
    ) -> View {
        let mut view = View::without_drafts(next, principal, config);
        if view.has_articles != self.has_articles {
            return View::of(next, principal, config);
        }
        view.hidden.clone_from(&self.hidden);
        let hides = view.has_articles && !writes_articles(principal, config);
        for name in next.articles.changed_since(&before.articles) {
            match hides && next.articles.article(&name).is_some_and(|it| it.is_draft()) {
                true => view.hidden.insert(name),
                false => view.hidden.remove(&name),
            };
        }
        view
    }

    /// Whether something that was there may be read and could not be before, or the other way round.
    fn differs(&self, before: &Stored, (view, next): (&View, &Stored)) -> bool {
        let of_stages = self.stages.differs(&before.index, (&view.stages, &next.index));
        let was_there = |name: &ArticleName| before.articles.article(name).is_some();
        let is_there = |name: &ArticleName| next.articles.article(name).is_some();
        let mut changed = self.hidden.symmetric_difference(&view.hidden);
        of_stages.is_some()
            || self.has_articles != view.has_articles
            || changed.any(|name| was_there(name) && is_there(name))
    }

    /// A digest of what there was at the serial `up_to`, and could be read and not read, if rights were then as they are now.
    fn digest(&self, stored: &Stored, up_to: Serial) -> String {
        let mut text = self.stages.names(&stored.index, up_to);
        text.push_str(if self.has_articles { "articles\n" } else { "\n" });
        for name in self.hidden.iter().filter(|name| was_written(stored, name, up_to)) {
            text.push_str(name.as_str());
            text.push('\n');
        }
        Digest::of(text.as_bytes()).to_string()
    }

    /// Whether the article may be read, if it is there.
    fn has_article(&self, name: &ArticleName) -> bool {
        self.has_articles && !self.hidden.contains(name)
    }

    /// A record of this state, as it may be read.
    fn shown(&self, stored: &Stored, record: &Record) -> Option<Record> {
        if [IDENTITY_KEY, generation::KEY].contains(&record.key.as_str()) {
            return Some(record.clone());
        }
        match article::article_of_record(&record.key) {
            Some(name) => {
                (record.body.is_some() && self.has_article(&name)).then(|| record.clone())
            }
            None => self.stages.shown(&stored.index, record),
        }
    }

    /// Whether this state has a record with this key, and it may be read.
    fn has(&self, stored: &Stored, key: &Key) -> bool {
        match article::article_of_record(key) {
            Some(name) => self.has_article(&name) && stored.articles.has_record(key),
            None => {
                pypi::stage_of_record(key).is_some_and(|stage| self.stages.contains(stage))
                    && stored.index.has_record(key)
            }
        }
    }

    /// What everybody may know of the users who have readable indexes.
    fn users(&self, stored: &Stored, serial: Serial) -> BTreeMap<Key, Record> {
        let users = self.stages.users();
        let users = users.iter().filter_map(|name| stored.accounts.user(name));
        let records = users.map(|user| account::public_record(user, serial));
        records.map(|record| (record.key.clone(), record)).collect()
    }
}

fn writes_articles(principal: &Principal, config: &Config) -> bool {
    config.article.acl_write.admits(principal, Scope::ArticleRead, Object::Articles(""))
}

/// Whether the article had a revision then.
fn was_written(stored: &Stored, name: &ArticleName, up_to: Serial) -> bool {
    let article = stored.articles.article(name);
    article.is_some_and(|article| article.revisions().any(|facts| facts.serial <= up_to))
}

/// Whether everybody may read the articles of this server.
pub(super) fn has_open_articles(config: &Config) -> bool {
    config.article.acl_read.entries().contains(&AclEntry::Everybody)
}

/// Whether a record that `principal` may read names the blob. Looks at all of them.
pub(super) fn names_blob(
    stored: &Stored,
    principal: &Principal,
    config: &Config,
    digest: Digest,
) -> bool {
    let view = View::without_drafts(stored, principal, config);
    let stages = stored.index.stages();
    let mut readable = stages.filter(|stage| view.stages.contains(stage.name().as_str()));
    if readable.any(|stage| stage.names_blob(&digest)) {
        return true;
    }
    if !view.has_articles {
        return false;
    }
    let writes = writes_articles(principal, config);
    let reads = |name: &ArticleName| {
        writes || stored.articles.article(name).is_none_or(|article| !article.is_draft())
    };
    let is_text = |article: &article::Article| {
        let mut contents = article.revisions().filter_map(|facts| facts.content());
        contents.any(|content| content.digest == digest) && reads(&article.name)
    };
    let mut files = stored.articles.all_attachments();
    stored.articles.articles().any(|article| is_text(article))
        || files
            .any(|(name, all)| all.files().iter().any(|file| file.digest == digest) && reads(name))
}

/// The records that a follower gets, in the order in which the store has them.
pub(super) struct Part {
    principal: Principal,
    /// The state that the follower is at, or that the first records are decided on.
    base: Arc<Stored>,
    /// What may be read of `base`.
    view: View,
    /// The follower has what could be read at this serial; zero if it has nothing.
    held: Serial,
    /// The records of users that were sent.
    users: BTreeMap<Key, Record>,
    /// Records that are newer than `base`.
    waiting: Vec<Record>,
    waiting_bytes: usize,
    /// Whether the follower has all of `base`.
    is_settled: bool,
}

impl Part {
    /// Begins at what a follower has.
    ///
    /// # Errors
    /// Something else could be read then.
    pub(super) async fn new(
        app: &App,
        principal: Principal,
        (after, held): (Serial, Option<PartState>),
    ) -> Result<Part, StreamEnd> {
        if held.is_none() && after > Serial::ZERO {
            return Err(StreamEnd::over("its token opens only what its user may read"));
        }
        if let Some(held) = &held {
            app.live_store.wait_for(held.serial, PUBLISHED_WITHIN).await;
        }
        let base = app.live_store.snapshot_full().ok_or_else(|| StreamEnd {
            reason: WriteFailure::NotLoaded.to_string(),
            starts_over: false,
        })?;
        let principal = current(&principal, &base)?;
        let view = View::of(&base, &principal, &app.config);
        let held = match held {
            Some(held) if view.digest(&base, held.serial) == held.view => held.serial,
            Some(_) => return Err(StreamEnd::over("its token opens more or less than before")),
            None => Serial::ZERO,
        };
        let (users, waiting) = (BTreeMap::new(), Vec::new());
        let (waiting_bytes, is_settled) = (0, false);
        Ok(Part { principal, base, view, held, users, waiting, waiting_bytes, is_settled })
    }

    /// The frames with the records of a page; after the last page all that add up to the state of the store.
    ///
    /// # Errors
    /// The follower has to come again, or to start over.
    pub(super) async fn take(&mut self, app: &App, page: Page) -> Result<Vec<Frame>, StreamEnd> {
        let mut records = Vec::new();
        for record in page.records {
            if record.serial > self.base.serial {
                self.waiting_bytes +=
                    record.key.as_str().len() + record.body.as_ref().map_or(0, |body| body.len());
                self.waiting.push(record);
            } else if record.body.is_some() {
                records.extend(self.view.shown(&self.base, &record));
            } else if self.tells_of(&record)? {
                records.push(record);
            }
        }
        if self.waiting_bytes > WAITING_BYTES_MAX {
            let reason = "much was written while it was read: to be read again".to_owned();
            return Err(StreamEnd { reason, starts_over: false });
        }
        if page.is_last && !(self.is_settled && self.waiting.is_empty()) {
            self.settle(app, page.serial, &mut records).await?;
        }
        Ok(frames(records))
    }

    /// The digest of what may be read of the state that the follower has all of.
    pub(super) fn view(&self) -> String {
        self.view.digest(&self.base, self.base.serial)
    }

    /// Whether a follower is told of a deletion that it may have missed. Whoever reads an index now and has read it since before the
    /// deletion knows the name.
    fn tells_of(&self, deletion: &Record) -> Result<bool, StreamEnd> {
        let (base, held, serial) = (&self.base, self.held, deletion.serial);
        if serial <= held {
            return Ok(false);
        }
        let may_be_held = match article::article_of_record(&deletion.key) {
            Some(name) => match base.articles.article(&name) {
                Some(_) if self.view.has_article(&name) => return Ok(true),
                Some(_) if was_written(base, &name, held) => return Ok(false),
                _ => self.view.has_articles,
            },
            None => {
                let Some(stage) = pypi::stage_of_record(&deletion.key) else { return Ok(false) };
                match self.view.stages.rights_serial(stage) {
                    Some(rights_serial) if rights_serial < serial => return Ok(true),
                    Some(_) => base.index.stage(stage).is_some_and(|it| it.has_record_up_to(held)),
                    None => false,
                }
            }
        };
        match may_be_held && held > Serial::ZERO {
            true => {
                Err(StreamEnd::over("it is not known any more who could read what was deleted"))
            }
            false => Ok(false),
        }
    }

    /// Goes on to the state of the store at that serial.
    async fn settle(
        &mut self,
        app: &App,
        serial: Serial,
        records: &mut Vec<Record>,
    ) -> Result<(), StreamEnd> {
        // The latest record of each key, in the order of the store.
        let mut waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let last: HashMap<Key, Serial> =
            waiting.iter().map(|record| (record.key.clone(), record.serial)).collect();
        waiting.retain(|record| last.get(&record.key) == Some(&record.serial));
        let next = match waiting.is_empty() {
            true => self.base.clone(),
            false => state_at(app, &self.base, &waiting, serial).await,
        };
        let principal = current(&self.principal, &next)?;
        let view = self.view.after((&*self.base, &*next), &principal, &app.config);
        if self.view.differs(&self.base, (&view, &*next)) {
            return Err(StreamEnd::over("its token opens more or less than before"));
        }
        for record in waiting {
            match record.body {
                Some(_) => records.extend(view.shown(&next, &record)),
                None if self.view.has(&self.base, &record.key) => records.push(record),
                None => {}
            }
        }
        let mut users = view.users(&next, serial);
        for (key, sent) in std::mem::take(&mut self.users) {
            match users.get_mut(&key) {
                Some(user) if user.body == sent.body => *user = sent,
                Some(_) => {}
                None => records.push(Record { body: None, serial, ..sent }),
            }
        }
        records.extend(users.values().filter(|user| user.serial == serial).cloned());
        (self.users, self.view, self.base, self.principal) = (users, view, next, principal);
        self.is_settled = true;
        Ok(())
    }
}

/// The sender, as of that state.
fn current(principal: &Principal, stored: &Stored) -> Result<Principal, StreamEnd> {
    let current = principal.as_of(&stored.accounts, Timestamp::now());
    current.map_err(|_| StreamEnd {
        reason: "the token holds no longer".to_owned(),
        starts_over: false,
    })
}

/// The state after `base` at that serial, up to which `records` are all that were written. It is the published one, if that is not
/// further already.
async fn state_at(
    app: &App,
    base: &Arc<Stored>,
    records: &[Record],
    serial: Serial,
) -> Arc<Stored> {
    app.live_store.wait_for(serial, PUBLISHED_SOON).await;
    let published = app.live_store.snapshot_full().filter(|stored| stored.serial == serial);
    published.unwrap_or_else(|| Arc::new(Stored::clone(base).apply(records, serial).0))
}

/// Frames with these records.
fn frames(records: Vec<Record>) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for record in records {
        bytes += record.key.as_str().len() + record.body.as_ref().map_or(0, |body| body.len());
        chunk.push(record);
        if chunk.len() == RECORDS_MAX || bytes >= RECORDS_BYTES_MAX {
            frames.push(Frame::Records(std::mem::take(&mut chunk)));
            bytes = 0;
        }
    }
    if !chunk.is_empty() {
        frames.push(Frame::Records(chunk));
    }
    frames
}
