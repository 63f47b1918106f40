//! Cached pages of an upstream and its list of projects, and how they are fetched and confirmed.
//!
//! subject -> memory -> disk -> the upstream, once for all requests that wait. A fresh page is served from memory. An aging page is
//! served, and confirmed in the background. An expired page is confirmed first, and served as stale if upstream fails or does not
//! answer in time. Only a page that was never fetched is an error.

mod answer;
mod follower;
mod stored;

use std::fmt;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pypi::ProjectName;
use pypi::upstream::{Freshness, UpstreamNames, UpstreamPage, standing};
use resources::turns::Turn;

use self::answer::{Answer, UpstreamAnswer};
pub use self::follower::FollowerPage;
use super::disk::EntryHead;
use super::flights::{FetchResult, Flight, landed};
use super::shared_cache::{FetchedEntry, Kind, page_of};
use super::upstream::{SMALL_PAGE_BYTES_MAX, UpstreamError};
use super::{LARGE_PAGE_COUNTS, MANY_FILES, Mirror, Mirrors, turn};

/// Largest page of a project and largest list of projects, inflated.
const PAGE_BYTES_MAX: usize = 32 << 20;
const LIST_BYTES_MAX: usize = 160 << 20;

/// The form in which pages are kept now. A page in an older form lacks something that its upstream may say: form 1 added the
/// other places of a project (PEP 708), form 2 reads encoded digests and other charsets.
pub(super) const PAGE_FORM: u32 = 2;

/// How long a request waits for an upstream to confirm what is known, before it is served as stale.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Time for one page or list to arrive.
const FETCH_TIMEOUT: Duration = Duration::from_secs(120);

/// A page, or the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// The list of projects.
    List,
    /// The page of a project.
    Project(ProjectName),
}

/// What upstream said.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The list of projects.
    Names(Arc<UpstreamNames>),
    /// The page of a project; `None` if upstream has no such project.
    Page(Option<Arc<UpstreamPage>>),
}

/// The page of a project, or the list of projects, as upstream last confirmed it.
#[derive(Clone, Debug)]
pub struct CachedPage {
    /// Upstream's content.
    pub content: Content,
    /// Changes with the content; no two contents of this process have the same.
    pub version: u64,
    confirmed_at: SystemTime,
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<String>,
    serial: Option<u64>,
    /// [`CachedPage::files`] of its page, found out when it was read.
    files: usize,
}

/// What a request gets: a cached page or list, and why upstream has not confirmed it if it is stale.
#[derive(Clone, Debug)]
pub struct PageLookup {
    /// The page or the list.
    pub known: Arc<CachedPage>,
    /// Why it may be out of date, if it may.
    pub stale: Option<StaleReason>,
    /// Why upstream has not confirmed it, in words.
    pub trouble: Option<UpstreamError>,
}

/// Why a page was not confirmed. Of several reasons, the greatest is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StaleReason {
    /// Upstream could not confirm it in time.
    Late,
    /// Upstream is not asked.
    Offline,
}

/// A cached page, as a waiting request holds it: a page of many files is held weakly, so that the cache can evict it.
#[derive(Clone, Debug)]
pub enum PageHandle {
    /// It is small, or the list, which stays in memory anyway.
    Strong(Arc<CachedPage>),
    /// It is in the cache, if that keeps it.
    Weak(Weak<CachedPage>),
}

/// A waiting request holds a page with more files weakly.
const HELD_FILES_MAX: usize = 256;

impl PageHandle {
    /// Keeps it, or lets it go.
    pub fn of(known: &Arc<CachedPage>) -> PageHandle {
        match known.files() > HELD_FILES_MAX {
            true => PageHandle::Weak(Arc::downgrade(known)),
            false => PageHandle::Strong(known.clone()),
        }
    }

    /// It, if it is in memory.
    fn in_memory(&self) -> Option<Arc<CachedPage>> {
        match self {
            PageHandle::Strong(known) => Some(known.clone()),
            PageHandle::Weak(known) => known.upgrade(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::List => formatter.write_str("the list of projects"),
            Subject::Project(name) => write!(formatter, "the page of {name}"),
        }
    }
}

impl Subject {
    /// Its name within its mirror.
    pub(super) fn name(&self) -> String {
        match self {
            Subject::List => "list".to_owned(),
            Subject::Project(name) => format!("page/{name}"),
        }
    }

    /// Its path below the mirror.
    fn path(&self) -> String {
        match self {
            Subject::List => "+simple/".to_owned(),
            Subject::Project(name) => format!("+simple/{name}"),
        }
    }

    /// The subject with this name.
    pub(super) fn named(name: &str) -> Option<Subject> {
        match name.strip_prefix("page/") {
            Some(project) => Some(Subject::Project(ProjectName::parse(project).ok()?)),
            None => (name == "list").then_some(Subject::List),
        }
    }

    /// Its largest content, in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        match self {
            Subject::List => LIST_BYTES_MAX,
            Subject::Project(_) => PAGE_BYTES_MAX,
        }
    }
}

impl CachedPage {
    /// No page, of an upstream that names no projects.
    fn absent() -> CachedPage {
        CachedPage {
            content: Content::Page(None),
            version: 0,
            confirmed_at: SystemTime::now(),
            etag: None,
            last_modified: None,
            serial: None,
            files: 0,
        }
    }

    /// The project's page, if upstream has it.
    pub fn page(&self) -> Option<&Arc<UpstreamPage>> {
        match &self.content {
            Content::Page(page) => page.as_ref(),
            Content::Names(_) => None,
        }
    }

    /// How many files its page has, or as many as others have that take as much memory.
    pub fn files(&self) -> usize {
        self.page().map_or(0, |_| self.files)
    }

    /// All but its content.
    fn without_content(&self) -> CachedPage {
        CachedPage {
            content: Content::Page(None),
            etag: self.etag.clone(),
            last_modified: self.last_modified.clone(),
            ..*self
        }
    }

    /// When upstream last confirmed it.
    pub fn confirmed_at(&self) -> SystemTime {
        self.confirmed_at
    }

    /// The list of projects.
    pub fn names(&self) -> Option<&Arc<UpstreamNames>> {
        match &self.content {
            Content::Names(names) => Some(names),
            Content::Page(_) => None,
        }
    }

    /// About how much memory it takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        512 + self.page().map_or(0, |page| page.memory_bytes())
    }
}

impl Mirrors {
    /// The mirror's page of a project, or the knowledge that there is none. With `is_forced` upstream is asked even if what is
    /// known is fresh.
    ///
    /// # Errors
    /// [`UpstreamError`] if nothing is known and upstream does not answer.
    pub async fn project(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        name: &ProjectName,
        is_forced: bool,
    ) -> Result<PageLookup, UpstreamError> {
        if !mirror.has_no_list {
            // A name that is not on the list is never sent.
            let is_listed = |list: &PageLookup| {
                list.known.names().is_some_and(|names| names.contains(name.as_str()))
            };
            let mut list = self.known(mirror, Subject::List, false).await;
            if is_forced && list.as_ref().is_ok_and(|list| !is_listed(list)) {
                // The project may be new.
                list = self.known(mirror, Subject::List, true).await;
            }
            match list {
                Ok(list) if !is_listed(&list) => {
                    let known = Arc::new(CachedPage {
                        content: Content::Page(None),
                        ..(*list.known).clone()
                    });
                    return Ok(PageLookup { known, ..list });
                }
                Ok(_) => {}
                // Nothing says that it has any project.
                Err(trouble) if trouble.has_no_list => {
                    let known = Arc::new(CachedPage::absent());
                    return Ok(PageLookup { known, stale: None, trouble: Some(trouble) });
                }
                // Nothing is sent: a page may be here without the list.
                Err(trouble) if trouble.is_offline => {}
                Err(trouble) => return Err(trouble),
            }
        }
        self.known(mirror, Subject::Project(name.clone()), is_forced).await
    }

    /// The result of [`Mirrors::project`] for a normalized name, if it is in memory and needs no request to upstream.
    pub fn project_at_hand(&self, mirror: &Mirror, name: &str) -> Option<Arc<CachedPage>> {
        if self.offline_by(mirror).is_some() {
            return None;
        }
        let is_fresh = |known: &Arc<CachedPage>| self.standing(mirror, known) == Freshness::Fresh;
        if !mirror.has_no_list {
            let list = mirror.names_in_memory().filter(is_fresh)?;
            list.names()?.contains(name).then_some(())?;
        }
        self.page_in_memory(mirror, name).filter(is_fresh)
    }

    /// The mirror's list of projects; `None` if the mirror is configured to have none.
    ///
    /// # Errors
    /// [`UpstreamError`] if nothing is known and upstream does not answer.
    pub async fn list(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
    ) -> Result<Option<PageLookup>, UpstreamError> {
        if mirror.has_no_list {
            return Ok(None);
        }
        self.known(mirror, Subject::List, false).await.map(Some)
    }

    /// The mirror's list of projects as it is in memory or on disk, however old: upstream is not asked.
    pub async fn list_here(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
    ) -> Option<Arc<UpstreamNames>> {
        let known = match mirror.has_no_list {
            true => None,
            false => self.remembered(mirror, &Subject::List).await,
        };
        known?.names().cloned()
    }

    /// The page by which a policy judges a project's files: the result of [`Mirrors::project`], or if that fails, what is
    /// remembered, however old. `None` if upstream has no such project.
    ///
    /// # Errors
    /// [`UpstreamError`] if nothing is known and upstream does not answer.
    pub async fn page_to_judge_by(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        name: &ProjectName,
    ) -> Result<Option<Arc<UpstreamPage>>, UpstreamError> {
        let known = match self.project(mirror, name, false).await {
            Ok(found) => found.known,
            // The list of projects may have failed, although the page is here.
            Err(trouble) => {
                let remembered = self.remembered(mirror, &Subject::Project(name.clone())).await;
                remembered.ok_or(trouble)?
            }
        };
        Ok(known.page().cloned())
    }

    /// The page in memory or on disk, however old.
    pub(super) async fn remembered(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
    ) -> Option<Arc<CachedPage>> {
        if let Some(known) = self.in_memory(mirror, subject) {
            return Some(known);
        }
        let turn = self.turn_to_load(mirror, subject).await?;
        // Others may have waited for the same page.
        if let Some(known) = self.in_memory(mirror, subject) {
            return Some(known);
        }
        let (mirrors, mirror, subject) = (self.clone(), mirror.clone(), subject.clone());
        // The turn ends with the work, and not when the client leaves.
        turn.run(move || mirrors.load(&mirror, &subject)).await
    }

    /// The turn to use pages of this many files together, of those in which pages are read: while one of many files is rendered,
    /// no other is read or rendered. The caller keeps it for as long as it works, and asks no upstream meanwhile.
    ///
    /// # Errors
    /// [`UpstreamError`] if too many wait.
    pub async fn turn_to_use(&self, files: usize) -> Result<[Turn; 2], UpstreamError> {
        let busy = || UpstreamError::busy("too many requests wait for pages of mirrors");
        let place = self.using.try_take_many(1).ok_or_else(busy)?;
        let counts = if files > MANY_FILES { LARGE_PAGE_COUNTS } else { 1 };
        Ok([self.pages_work.take_many(counts).await, place])
    }

    /// A page that was let go, or what is known in its place now, from memory or from disk; for a caller with a turn to use it.
    pub async fn again(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        name: &ProjectName,
        kept: &PageHandle,
    ) -> Option<Arc<CachedPage>> {
        let subject = Subject::Project(name.clone());
        if let Some(known) = kept.in_memory().or_else(|| self.in_memory(mirror, &subject)) {
            return Some(known);
        }
        let (mirrors, mirror) = (self.clone(), mirror.clone());
        let loading = tokio::task::spawn_blocking(move || mirrors.load(&mirror, &subject));
        loading.await.ok().flatten()
    }

    /// A turn to read it from the disk; `None` if it is not there.
    pub(super) async fn turn_to_load(&self, mirror: &Mirror, subject: &Subject) -> Option<Turn> {
        let (disk, key) = (self.disk.clone(), mirror.key(&subject.name()));
        let looking = tokio::task::spawn_blocking(move || disk.entry_bytes(&key));
        let bytes = looking.await.ok().flatten()?;
        let is_small = bytes <= SMALL_PAGE_BYTES_MAX as u64;
        Some(self.pages_work.take_many(if is_small { 1 } else { LARGE_PAGE_COUNTS }).await)
    }

    pub(super) async fn known(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: Subject,
        is_forced: bool,
    ) -> Result<PageLookup, UpstreamError> {
        let old = self.remembered(mirror, &subject).await;
        if let Err(trouble) = self.may_be_asked(mirror) {
            let old = match old {
                // Another process may have it. Upstream is not asked.
                None if self.may_be_shared(mirror, &mirror.key(&subject.name())) => {
                    let flight = self.ask(mirror, subject, None, false)?;
                    landed(flight).await.ok()
                }
                old => old,
            };
            let Some(known) = old else { return Err(trouble) };
            return Ok(self.offline(mirror, known));
        }
        let fresh = |known: Arc<CachedPage>| PageLookup { known, stale: None, trouble: None };
        let standing = old.as_ref().map(|old| self.standing(mirror, old));
        match (&old, standing) {
            (Some(old), Some(Freshness::Fresh)) if !is_forced => return Ok(fresh(old.clone())),
            (Some(old), Some(Freshness::Aging)) if !is_forced => {
                // No request waits for it. If it is refused, the next request tries again.
                _ = self.ask(mirror, subject, Some(old.clone()), false);
                return Ok(fresh(old.clone()));
            }
            _ => {}
        }
        let asked_at = SystemTime::now();
        let kept = old.as_ref().map(PageHandle::of);
        let outcome = self.ask_in_time(mirror, &subject, old, is_forced).await;
        let outcome = match outcome {
            // The request that was under way was not forced, so another process's page was enough for it.
            Ok(known) if is_forced && known.confirmed_at < asked_at => {
                self.ask_in_time(mirror, &subject, Some(known), is_forced).await
            }
            outcome => outcome,
        };
        // Another process knew it, although upstream does not tell now.
        let shared = || self.shared.as_ref().and_then(|_| self.in_memory(mirror, &subject));
        let old = match (&outcome, kept) {
            (Ok(_), _) => None,
            (Err(_), None) => shared(),
            (Err(_), Some(kept)) => match kept.in_memory() {
                Some(old) => Some(old),
                None => self.remembered(mirror, &subject).await,
            },
        };
        match (outcome, old) {
            (Ok(known), _) => {
                // The server that this one follows could not have it confirmed in time.
                let is_late = self.ahead.get().is_some()
                    && !mirror.expiry.is_zero()
                    && self.standing(mirror, &known) == Freshness::Expired;
                Ok(PageLookup { stale: is_late.then_some(StaleReason::Late), ..fresh(known) })
            }
            // The switch was thrown while the request waited.
            (Err(trouble), Some(known)) if trouble.is_offline => Ok(self.offline(mirror, known)),
            (Err(trouble), Some(known)) => {
                self.counters.stale.fetch_add(1, Relaxed);
                Ok(PageLookup { known, stale: Some(StaleReason::Late), trouble: Some(trouble) })
            }
            (Err(trouble), None) => Err(trouble),
        }
    }

    /// What is known of an upstream that must not be asked.
    fn offline(&self, mirror: &Mirror, known: Arc<CachedPage>) -> PageLookup {
        let setting = self.offline_by(mirror).unwrap_or("mirror_offline");
        let trouble = UpstreamError::offline(format!("it is not asked ({setting}=true)"));
        PageLookup { known, stale: Some(StaleReason::Offline), trouble: Some(trouble) }
    }

    /// The outcome of the request to upstream, unless it is late and something known can be served as stale meanwhile.
    async fn ask_in_time(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
        old: Option<Arc<CachedPage>>,
        is_forced: bool,
    ) -> FetchResult<Arc<CachedPage>> {
        let has_old = old.is_some();
        let flight = self.ask(mirror, subject.clone(), old, is_forced)?;
        let mut landed = pin!(landed(flight));
        loop {
            if let Ok(outcome) = tokio::time::timeout(PATIENCE, landed.as_mut()).await {
                return outcome;
            }
            // If another process knows it, that is in memory before upstream is asked.
            let brought = self.shared.as_ref().and_then(|_| self.in_memory(mirror, subject));
            let is_stale =
                |known: Arc<CachedPage>| self.standing(mirror, &known) == Freshness::Expired;
            if has_old || brought.is_some_and(is_stale) {
                return Err(UpstreamError::new("it has not answered in time"));
            }
        }
    }

    pub(super) fn standing(&self, mirror: &Mirror, known: &CachedPage) -> Freshness {
        standing(SystemTime::now().duration_since(known.confirmed_at).ok(), mirror.expiry)
    }

    /// The request to upstream: the one that is running, or a new one.
    fn ask(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: Subject,
        old: Option<Arc<CachedPage>>,
        is_forced: bool,
    ) -> FetchResult<Flight<Option<FetchResult<Arc<CachedPage>>>>> {
        let landed = || {
            let known = self.in_memory(mirror, &subject)?;
            let is_same = old.as_ref().is_some_and(|old| Arc::ptr_eq(old, &known));
            let is_fresh = self.standing(mirror, &known) == Freshness::Fresh;
            // A forced request takes an answer that has arrived since it looked.
            (!is_same && (is_fresh || is_forced)).then_some(Some(Ok(known)))
        };
        let (mirrors, of, asked, asked_with) =
            (self.clone(), mirror.clone(), subject.clone(), old.clone());
        mirror.flights.join(mirror.key(&subject.name()), landed, None, move |_| async move {
            let outcome = mirrors.fetch(&of, &asked, asked_with, is_forced).await;
            move |landed: &mut Option<FetchResult<Arc<CachedPage>>>| *landed = Some(outcome)
        })
    }

    async fn fetch(
        self: Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
        old: Option<Arc<CachedPage>>,
        is_forced: bool,
    ) -> Result<Arc<CachedPage>, UpstreamError> {
        // Another request may have ended since the caller looked.
        let mut old = self.in_memory(mirror, subject).or(old);
        if old.is_none()
            && let Some(known) = self.take_shared_page(mirror, subject).await
        {
            let is_fresh = self.standing(mirror, &known) != Freshness::Expired;
            if is_fresh && !is_forced || self.may_be_asked(mirror).is_err() {
                return Ok(known);
            }
            old = Some(known);
        }
        let asked_with = old.as_deref().map(CachedPage::without_content);
        let kept = old.as_ref().map(PageHandle::of);
        drop(old);
        let _turn = turn(&mirror.asking, &self.asking).await?;
        self.may_be_asked(mirror)?;
        mirror.may_ask(subject, self.started_at.elapsed(), is_forced)?;
        let asking = self.request(mirror, subject, asked_with.as_ref(), is_forced);
        let outcome = tokio::time::timeout(FETCH_TIMEOUT, asking).await;
        let outcome = outcome.unwrap_or_else(|_| {
            Err(UpstreamError::unclear(format!(
                "no whole answer within {} seconds",
                FETCH_TIMEOUT.as_secs()
            )))
        });
        let is_needed = match &outcome {
            Ok(Answer::NotModified { .. }) => true,
            // It tells whether another process's page is asked for.
            Ok(Answer::Page(_)) => self.shared.is_some(),
            Err(_) => false,
        };
        let mut old = match kept.as_ref().and_then(PageHandle::in_memory) {
            None if kept.is_some() && is_needed => self.remembered(mirror, subject).await,
            old => old,
        };
        let mut theirs = None;
        let outcome = match (outcome, subject) {
            (Ok(Answer::NotModified { .. }), _) if old.is_none() => {
                Err(UpstreamError::busy("the cached page was evicted while upstream confirmed it"))
            }
            (Ok(Answer::NotModified { serial, age }), _) => {
                Ok((UpstreamAnswer::Confirmed { serial, age }, None))
            }
            (Ok(Answer::Page(page)), _) => {
                // The object store may be slow, so it is asked before the turn to read pages is taken: requests for pages on
                // the disk wait for these turns.
                if may_be_undated(subject, old.as_deref()) {
                    theirs = self.bring_known(mirror, subject).await;
                }
                // A page that was evicted meanwhile takes no memory while this one waits for its turn.
                old = None;
                // Upstream's answer is complete: the rest depends only on this machine.
                let understood = self.understand(mirror, subject, *page).await;
                if let (Ok((answer, _)), Some(kept)) = (&understood, &kept) {
                    old = self.replaced(mirror, subject, kept, answer).await;
                }
                understood
            }
            // For a project, its absence is an answer.
            (Err(trouble), Subject::Project(_)) if trouble.is_absent => {
                Ok((UpstreamAnswer::Absent, None))
            }
            (Err(trouble), Subject::List) if trouble.is_absent => {
                Err(UpstreamError::no_list(&trouble))
            }
            (Err(trouble), _) => Err(trouble),
        };
        match outcome {
            // The turn to read pages ends when the page is on the disk.
            Ok((answer, _turn)) => {
                mirror.succeeded(subject);
                Ok(self.take(mirror, subject, answer, old, theirs).await)
            }
            // Upstream is not to blame for that.
            Err(trouble) if trouble.is_busy || trouble.is_offline => Err(trouble),
            Err(trouble) => {
                self.counters.failures.fetch_add(1, Relaxed);
                mirror.failed(subject, self.started_at.elapsed(), &trouble);
                Err(trouble)
            }
        }
    }

    /// The page that a new one replaces. One that was evicted is needed only if it may tell when files were first seen. For a
    /// caller with a turn to read pages.
    async fn replaced(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
        kept: &PageHandle,
        answer: &UpstreamAnswer,
    ) -> Option<Arc<CachedPage>> {
        match subject {
            Subject::Project(name) if answer.has_undated() => self.again(mirror, name, kept).await,
            _ => kept.in_memory().or_else(|| self.in_memory(mirror, subject)),
        }
    }

    /// Takes another process's page into the cache of this one.
    async fn take_shared_page(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
    ) -> Option<Arc<CachedPage>> {
        let key = mirror.key(&subject.name());
        let brought = self.bring_known(mirror, subject).await?;
        let kept = self.keep_brought(mirror, key, brought).await;
        let known = match kept {
            Ok(()) => self.remembered(mirror, subject).await,
            Err(_) => None,
        };
        if known.is_none() {
            self.reject_brought(&key);
        }
        known
    }

    /// Brings another process's page, in a file of the disk that is not visible yet.
    async fn bring_known(&self, mirror: &Mirror, subject: &Subject) -> Option<FetchedEntry> {
        let key = mirror.key(&subject.name());
        let (name, bytes_max) = (name_of(mirror, subject), subject.bytes_max() as u64);
        let is_wanted = |head: &EntryHead| head.name == name && head.size_bytes <= bytes_max;
        self.bring(mirror, &key, Kind::Page, None, is_wanted).await
    }

    /// Puts upstream's answer in the place of the `old` page, in memory and on disk. `theirs` is another process's page.
    async fn take(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
        answer: UpstreamAnswer,
        old: Option<Arc<CachedPage>>,
        theirs: Option<FetchedEntry>,
    ) -> Arc<CachedPage> {
        let known = match answer {
            UpstreamAnswer::Confirmed { serial, age } => {
                let old = old.as_deref().cloned().unwrap_or_else(CachedPage::absent);
                let content = with_serial(&old.content, serial);
                self.next(Some(&old), CachedPage { content, serial, ..old.clone() }, age)
            }
            UpstreamAnswer::Changed { mut content, etag, last_modified, serial, age } => {
                let before = old.as_ref().and_then(|old| old.page());
                match (&mut content, age) {
                    // The server that this one follows has noted it already.
                    (Content::Page(Some(page)), Some(_)) => {
                        before.iter().for_each(|it| Arc::make_mut(page).take_older_first_seen(it));
                    }
                    (Content::Page(Some(page)), None) => {
                        note_first_seen(mirror, Arc::make_mut(page), before, theirs).await;
                    }
                    (Content::Page(None) | Content::Names(_), _) => {}
                }
                let files = files_of(&content);
                let new = CachedPage {
                    content,
                    etag,
                    last_modified,
                    serial,
                    files,
                    ..CachedPage::absent()
                };
                self.next(old.as_deref(), new, age)
            }
            UpstreamAnswer::Absent => self.next(old.as_deref(), CachedPage::absent(), None),
        };
        let known = Arc::new(known);
        self.remember(mirror, subject, known.clone());
        let is_same = old.as_ref().is_some_and(|old| old.version == known.version);
        let had_page = old.is_some_and(|old| old.page().is_some());
        let key = mirror.key(&subject.name());
        let (mirrors, of, subject, stored) =
            (self.clone(), mirror.clone(), subject.clone(), known.clone());
        let storing =
            tokio::task::spawn_blocking(move || mirrors.store(&of, &subject, &stored, is_same));
        let is_absent = matches!(known.content, Content::Page(None));
        match storing.await {
            Ok(Ok(_)) if is_absent && had_page => self.unshare(mirror, key),
            Ok(Ok(_)) if !is_absent && !is_same => self.share(mirror, key),
            Ok(Ok(true)) if !is_absent => self.note_shared_use(mirror, key),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a page of an upstream cannot be written to the cache on disk; it is served from memory");
            }
            _ => {}
        }
        known
    }

    /// The cached page after `old`, which upstream confirmed so long ago: with the same content, it has the same version.
    fn next(&self, old: Option<&CachedPage>, new: CachedPage, age: Option<Duration>) -> CachedPage {
        let now = SystemTime::now();
        let confirmed_at = now.checked_sub(age.unwrap_or_default()).unwrap_or(now);
        match old {
            Some(old) if old.content == new.content => CachedPage {
                content: old.content.clone(),
                version: old.version,
                serial: new.serial.or(old.serial),
                confirmed_at,
                ..new
            },
            _ => CachedPage { version: self.next_version(), confirmed_at, ..new },
        }
    }
}

/// A confirmed content, with the serial that upstream sent with its confirmation.
fn with_serial(content: &Content, serial: Option<u64>) -> Content {
    match content {
        Content::Page(Some(page)) if page.last_serial < serial => {
            let mut page = UpstreamPage::clone(page);
            page.last_serial = serial;
            Content::Page(Some(page.into()))
        }
        content => content.clone(),
    }
}

/// Notes when files without a time of upload were first seen: now, or at the time in the page `before` or in another process's
/// page, whichever is earlier.
async fn note_first_seen(
    mirror: &Mirror,
    page: &mut UpstreamPage,
    before: Option<&Arc<UpstreamPage>>,
    theirs: Option<FetchedEntry>,
) {
    page.note_first_seen(before.map(|page| &**page), Timestamp::now());
    let is_told = before.is_none_or(|before| **before != *page)
        && page.files.iter().any(|file| file.first_seen.is_some());
    let bytes_max = page.memory_bytes().max(SMALL_PAGE_BYTES_MAX as u64);
    let theirs = theirs.filter(|it| is_told && it.head.size_bytes <= bytes_max);
    if let Some(theirs) = theirs
        && let Some(theirs) = page_of(mirror, theirs).await
    {
        page.take_older_first_seen(&theirs);
    }
}

/// What a file of the public index takes in memory, in bytes.
const FILE_BYTES: u64 = 640;

/// [`CachedPage::files`] of this content.
fn files_of(content: &Content) -> usize {
    let Content::Page(Some(page)) = content else { return 0 };
    let usual = page.shown_bytes() / FILE_BYTES;
    page.files.len().max(usize::try_from(usual).unwrap_or(usize::MAX))
}

/// Whether upstream's page may have files without a time of upload, as far as is known.
fn may_be_undated(subject: &Subject, old: Option<&CachedPage>) -> bool {
    let may_be = |page: &Arc<UpstreamPage>| {
        page.files.is_empty() || page.files.iter().any(|file| file.first_seen.is_some())
    };
    *subject != Subject::List && old.and_then(CachedPage::page).is_none_or(may_be)
}

/// The name of an entry of the cache in its head.
fn name_of(mirror: &Mirror, subject: &Subject) -> String {
    format!("{} {}", mirror.stage, subject.name())
}
