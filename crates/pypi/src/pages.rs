//! [`Pages`]: a cache of finished simple pages with a memory budget, which makes each page once per change.
//!
//! request -> the page in memory, if what it shows is unchanged -> otherwise made, once for all requests that wait.
//!
//! A page remembers its *stamp*: the newest commit that touched anything it shows. Serials only grow, so a page is valid
//! exactly as long as the stamp of what it shows stays the same; no change has to invalidate anything. If nothing was committed
//! since the last request for a page, not even the stamps are compared. If a policy hides a file of a page for a time, the page
//! expires when that time is over. If a policy asked the records of malware and vulnerabilities, it expires when these change.
//! For other pages neither is checked.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use account::{Acl, Object, Portion, Principal, Scope};
use jiff::Timestamp;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use record::Serial;
use reply::{EncodedBody, Encoding, PerEncoding, Reply};

use crate::inherit::ResolutionOrder;
use crate::osv::AdvisoryStamp;
use crate::policy::Judge;
use crate::simple::{self, Links, PageForm, RenderedPage};
use crate::{ProjectName, Snapshot, StageName};

/// Tells the time.
pub type Clock = fn() -> Timestamp;

/// A cache of finished pages with a memory budget, shared by all threads.
pub struct Pages {
    pages: Cache<PageKey, Arc<Page>, PageWeight>,
    /// The list of projects may be larger than all other pages together, so lists have their own budget.
    lists: Cache<PageKey, Arc<Page>, PageWeight>,
    /// A thread that makes a page holds one of these, chosen by the hash of the request.
    making: [Mutex<()>; 64],
    making_list: [Mutex<()>; 4],
    clock: Clock,
    /// The URL of the root for users, if it is known: links to provenances are absolute then.
    root_url: Option<String>,
    rendered: AtomicU64,
    rendered_lists: AtomicU64,
    hidden_files: AtomicU64,
}

/// How much memory finished pages may take.
#[derive(Clone, Copy, Debug)]
pub struct PageBudget {
    /// Pages of projects, in bytes with their encodings. A page larger than an eighth of this is not stored.
    pub page_bytes_max: u64,
    /// Lists of projects, in bytes with their encodings. A list larger than this is not stored.
    pub list_bytes_max: u64,
}

/// A page expires at no time, whatever happens.
const NEVER: i64 = i64::MAX;

/// For a page that expires at a time that is not known yet. No clock ever reaches this value.
const SOME_TIME: i64 = i64::MAX - 1;

/// A finished page. It never changes, except that an encoding is added when it is first requested.
#[derive(Debug)]
pub struct Page {
    stamp: Serial,
    /// The newest serial of a snapshot for which the stamp is known to be valid.
    checked_at: AtomicU64,
    /// When it is out of date although nothing was committed, in microseconds; [`NEVER`], or at no known time.
    expires_at_microseconds: i64,
    /// The records of malware and vulnerabilities that decided about it.
    judged: Option<AdvisoryStamp>,
    hidden_files: u64,
    last_serial: Option<u64>,
    reply: Reply,
    body: EncodedBody,
    tags: PerEncoding<Box<str>>,
    readers: Box<[Acl]>,
}

/// Which page is requested; it borrows, so that a lookup copies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRequest<'text> {
    /// The stage: `user/index`.
    pub stage: &'text str,
    /// The project's normalized name; empty means the list of projects.
    pub project: &'text str,
    /// The format of the page.
    pub form: PageForm,
    /// How many `../` lead from the page's URL to the root: see [`Links::Depth`].
    pub depth: u8,
}

/// Why there is no page, with devpi's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPage {
    /// The stage does not exist.
    #[error("The stage {0} could not be found.")]
    NoStage(String),
    /// No stage in the resolution order has the project.
    #[error("The project {0} does not exist.")]
    NoProject(String),
}

/// How often pages have been made since the start, and how much memory they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages of projects that were made.
    pub rendered: u64,
    /// Lists of projects that were made.
    pub rendered_lists: u64,
    /// Files that policies left out of pages when they were made.
    pub hidden_files: u64,
    /// Pages of projects in memory.
    pub pages: usize,
    /// The memory that they take, in bytes.
    pub page_bytes: u64,
    /// Lists in memory.
    pub lists: usize,
    /// The memory that they take, in bytes.
    pub list_bytes: u64,
}

#[derive(Clone, PartialEq, Eq)]
struct PageKey {
    stage: StageName,
    project: Option<ProjectName>,
    form: PageForm,
    depth: u8,
}

impl PageKey {
    fn request(&self) -> PageRequest<'_> {
        PageRequest {
            stage: self.stage.as_str(),
            project: self.project.as_ref().map_or("", ProjectName::as_str),
            form: self.form,
            depth: self.depth,
        }
    }
}

impl Hash for PageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.request().hash(state);
    }
}

impl Equivalent<PageKey> for PageRequest<'_> {
    fn equivalent(&self, key: &PageKey) -> bool {
        *self == key.request()
    }
}

#[derive(Clone)]
struct PageWeight;

impl Weighter<PageKey, Arc<Page>> for PageWeight {
    fn weight(&self, key: &PageKey, page: &Arc<Page>) -> u64 {
        let body_bytes = page.reply.body.len() as u64;
        let name_bytes = key.stage.as_str().len() + key.request().project.len();
        // Encodings are added later. The digests in a page cannot be compressed to less than half their digits.
        body_bytes + body_bytes * 9 / 10 + name_bytes as u64 + 512
    }
}

impl Pages {
    /// Pages for a server whose users reach its root at this URL, which has no trailing slash.
    pub fn at(self, root_url: Option<String>) -> Pages {
        Pages { root_url, ..self }
    }

    /// An empty cache with this budget. The clock tells when pages expire that a policy leaves files out of.
    pub fn new(budget: PageBudget, clock: Clock) -> Pages {
        let cache = |bytes_max: u64, shards: usize, item_bytes: u64| {
            let options = OptionsBuilder::new()
                .weight_capacity(bytes_max)
                .estimated_items_capacity((bytes_max / item_bytes).clamp(16, 1 << 20) as usize)
                .shards(shards)
                .build()
                .expect("all that is required is given");
            Cache::with_options(
                options,
                PageWeight,
                quick_cache::DefaultHashBuilder::default(),
                quick_cache::sync::DefaultLifecycle::default(),
            )
        };
        Pages {
            pages: cache(budget.page_bytes_max, 8, 16 << 10),
            lists: cache(budget.list_bytes_max, 1, 1 << 20),
            making: [const { Mutex::new(()) }; 64],
            making_list: [const { Mutex::new(()) }; 4],
            clock,
            root_url: None,
            rendered: AtomicU64::new(0),
            rendered_lists: AtomicU64::new(0),
            hidden_files: AtomicU64::new(0),
        }
    }

    /// The page, if it is finished and valid for `snapshot` or a newer one. This takes no noticeable time: it
    /// allocates nothing, and compares stamps only if something was committed since the last request for it.
    pub fn ready(&self, snapshot: &Snapshot, request: PageRequest<'_>) -> Option<Arc<Page>> {
        let page = self.cache_for(request).get(&request)?;
        if page.may_expire() && page.has_expired((self.clock)()) {
            return None;
        }
        let now = snapshot.serial().0;
        if page.checked_at.load(Ordering::Relaxed) >= now {
            return Some(page);
        }
        let order = ResolutionOrder::of(snapshot, request.stage)?;
        if stamp(&order, request) != page.stamp {
            return None;
        }
        page.checked_at.fetch_max(now, Ordering::Relaxed);
        Some(page)
    }

    /// The page, which is made if necessary. Making a long list takes many milliseconds; a caller that cannot wait
    /// that long tries [`Pages::ready`] first.
    ///
    /// # Errors
    /// [`NoPage`] if the stage does not exist, or if no stage in its resolution order has the project.
    pub fn page(&self, snapshot: &Snapshot, request: PageRequest<'_>) -> Result<Arc<Page>, NoPage> {
        if let Some(page) = self.ready(snapshot, request) {
            return Ok(page);
        }
        let cache = self.cache_for(request);
        let locks: &[Mutex<()>] = if request.is_list() { &self.making_list } else { &self.making };
        let lock = &locks[hash(request) as usize % locks.len()];
        // The lock guards no data that a panic could have left half done.
        let _making = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made it meanwhile.
        if let Some(page) = self.ready(snapshot, request) {
            return Ok(page);
        }
        let links = Links::within(request.depth, self.root_url.as_deref());
        let (key, page) = Page::make(snapshot, request, links, (self.clock)())?;
        self.hidden_files.fetch_add(page.hidden_files, Ordering::Relaxed);
        let counter = if request.is_list() { &self.rendered_lists } else { &self.rendered };
        counter.fetch_add(1, Ordering::Relaxed);
        let page = Arc::new(page);
        cache.insert(key, page.clone());
        Ok(page)
    }

    /// How often pages have been made, and how much memory they take.
    pub fn counts(&self) -> PageCounts {
        PageCounts {
            rendered: self.rendered.load(Ordering::Relaxed),
            rendered_lists: self.rendered_lists.load(Ordering::Relaxed),
            hidden_files: self.hidden_files.load(Ordering::Relaxed),
            pages: self.pages.len(),
            page_bytes: self.pages.weight(),
            lists: self.lists.len(),
            list_bytes: self.lists.weight(),
        }
    }

    fn cache_for(&self, request: PageRequest<'_>) -> &Cache<PageKey, Arc<Page>, PageWeight> {
        if request.is_list() { &self.lists } else { &self.pages }
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pages").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Chooses a lock and nothing else: it may differ from process to process.
fn hash(request: PageRequest<'_>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    request.hash(&mut hasher);
    hasher.finish()
}

/// The newest commit that touched what these stages show of what is requested.
fn stamp(order: &ResolutionOrder<'_>, request: PageRequest<'_>) -> Serial {
    if request.is_list() { order.list_stamp() } else { order.project_stamp(request.project) }
}

impl<'text> PageRequest<'text> {
    /// The part of the stage that the page shows.
    pub fn portion(&self) -> Portion<'text> {
        if self.is_list() { Portion::Whole } else { Portion::Project(self.project) }
    }

    fn is_list(&self) -> bool {
        self.project.is_empty()
    }
}

/// A page with links of any kind, which is not stored: for absolute links. `now` is the time for the policies.
///
/// # Errors
/// [`NoPage`] if the stage does not exist, or if no stage in its resolution order has the project.
pub fn render(
    snapshot: &Snapshot,
    stage: &str,
    project: &str,
    form: PageForm,
    links: Links<'_>,
    now: Timestamp,
) -> Result<RenderedPage, NoPage> {
    let order =
        ResolutionOrder::of(snapshot, stage).ok_or_else(|| NoPage::NoStage(stage.to_owned()))?;
    if project.is_empty() {
        return Ok(simple::list_page(&order, form, links, now));
    }
    let none = || NoPage::NoProject(project.to_owned());
    let view = order.project(project).ok_or_else(none)?;
    let name = ProjectName::normalize(project).map_err(|_| none())?;
    let judge = Judge::of(&order, &name, now);
    Ok(simple::project_page(&order, &view, &name, form, links, judge.as_ref()))
}

impl Page {
    fn make(
        snapshot: &Snapshot,
        request: PageRequest<'_>,
        links: Links<'_>,
        now: Timestamp,
    ) -> Result<(PageKey, Page), NoPage> {
        let PageRequest { stage, project, form, depth } = request;
        let rendered = render(snapshot, stage, project, form, links, now)?;
        let no_stage = || NoPage::NoStage(stage.to_owned());
        let order = ResolutionOrder::of(snapshot, stage).ok_or_else(no_stage)?;
        let page = Page::finished(rendered, &order, request);
        page.checked_at.store(snapshot.serial().0, Ordering::Relaxed);
        let key = PageKey {
            stage: stage.parse().map_err(|_| no_stage())?,
            project: ProjectName::normalize(project).ok(),
            form,
            depth,
        };
        Ok((key, page))
    }

    /// A page of `order` with this content, which is the answer to `request`.
    pub fn finished(
        rendered: RenderedPage,
        order: &ResolutionOrder<'_>,
        request: PageRequest<'_>,
    ) -> Page {
        let RenderedPage { reply, expires_at, hidden_files, judged, last_serial } = rendered;
        let at_latest = if judged.is_some() { SOME_TIME } else { NEVER };
        let tag = |encoding| {
            let etag = reply.etag.map(|etag| etag.header_value(encoding));
            etag.unwrap_or_default().into_boxed_str()
        };
        Page {
            stamp: stamp(order, request),
            checked_at: AtomicU64::new(0),
            expires_at_microseconds: expires_at.map_or(at_latest, Timestamp::as_microsecond),
            judged,
            hidden_files,
            last_serial,
            body: EncodedBody::new(reply.body.clone()),
            tags: PerEncoding::from_fn(tag),
            readers: order.readers().into(),
            reply,
        }
    }

    /// The upstream's serial of the page, if it is the page of a mirror itself.
    pub fn last_serial(&self) -> Option<u64> {
        self.last_serial
    }

    /// Whether a policy hides a file for a time, or asked the records of malware and vulnerabilities.
    pub fn may_expire(&self) -> bool {
        self.expires_at_microseconds != NEVER
    }

    /// Whether a hidden file is no longer refused, or the records that decided have changed.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        now.as_microsecond() >= self.expires_at_microseconds
            || self.judged.as_ref().is_some_and(|judged| !judged.is_current())
    }

    /// The number of files of the page that policies hide.
    pub fn hidden_files(&self) -> u64 {
        self.hidden_files
    }

    /// The page without an encoding, and its tag.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The body, whose compressed forms are made when they are first requested.
    pub fn body(&self) -> &EncodedBody {
        &self.body
    }

    /// The tag of the body in `encoding`, with quotes, as it is sent.
    pub fn tag(&self, encoding: Encoding) -> &str {
        self.tags.get(encoding)
    }

    /// Whether everybody may read it.
    pub fn is_public(&self) -> bool {
        self.readers.is_empty()
    }

    /// Whether `principal` may read the page, which `request` asks for: they may read each stage that it shows.
    pub fn admits(&self, principal: &Principal, request: PageRequest<'_>) -> bool {
        let object = Object::Index(request.stage, request.portion());
        self.readers.iter().all(|acl| acl.admits(principal, Scope::PythonRead, object))
    }
}

#[cfg(test)]
mod tests;
