//! With `mirror_fill_sizes`, finds sizes that upstream's pages do not say: by HEAD in the background, and marked as ours.
//!
//! a page with files without a size, or a download -> [`Sizes`], a bounded queue of projects -> one task for each mirror, which asks
//! within the turns of the mirror -> a batch of sizes -> the page as it is then known, written once.
//!
//! A found size is only shown: a download is compared with what upstream's page says. A HEAD that fails does not count against
//! the upstream: [`Hosts`] says which servers of files are left alone.

mod hosts;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, StatusCode};
use pypi::ProjectName;
use pypi::upstream::{FoundSize, UpstreamFile, UpstreamPage, projects_of};
use reqwest::Url;

use self::hosts::{Hosts, host_of};
use super::download::Order;
use super::known::{Known, Subject};
use super::upstream::{SMALL_PAGE_BYTES_MAX, UpstreamError};
use super::{LARGE_PAGE_COUNTS, Mirror, Mirrors, lock, turn};

/// Files of one project for which sizes are requested while they are on its page, newest versions first.
const ASKED_OF_PROJECT_MAX: usize = 500;

/// Sizes that are written together.
const BATCH: usize = 100;

/// Projects of one mirror that wait; further ones wait for the next look at their page.
const WAITING_MAX: usize = 1_000;

/// Downloads of one project whose sizes wait.
const PROVED_MAX: usize = 1_000;

/// Time for one answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest size that is believed, in bytes: 1 TiB.
const SIZE_BYTES_MAX: u64 = 1 << 40;

/// The projects of a mirror whose pages lack sizes.
#[derive(Default)]
pub(super) struct Sizes {
    queue: Mutex<Queue>,
    hosts: Mutex<Hosts>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<ProjectName>,
    /// The waiting projects, with sizes of their downloaded files.
    proved: HashMap<ProjectName, Found>,
    is_running: bool,
}

/// Sizes by [`UpstreamFile::identity`].
type Found = HashMap<Box<str>, FoundSize>;

impl Queue {
    /// Adds a project; returns whether a task has to be started.
    fn add(&mut self, project: &ProjectName, proved: Option<(&str, u64)>) -> bool {
        if !self.proved.contains_key(project) {
            if self.waiting.len() >= WAITING_MAX {
                return false;
            }
            self.waiting.push_back(project.clone());
        }
        let found = self.proved.entry(project.clone()).or_default();
        if let Some((identity, bytes)) = proved
            && found.len() < PROVED_MAX
        {
            found.insert(identity.into(), FoundSize::Proved(bytes));
        }
        !std::mem::replace(&mut self.is_running, true)
    }

    /// The next project. Without one, the task ends.
    fn next(&mut self) -> Option<(ProjectName, Found)> {
        let next = self.waiting.pop_front();
        self.is_running = next.is_some();
        let project = next?;
        let found = self.proved.remove(&project).unwrap_or_default();
        Some((project, found))
    }

    fn clear(&mut self) {
        *self = Queue::default();
    }
}

/// Ends the task of a mirror, also by a panic.
struct Running(Arc<Mirror>);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.sizes.queue).clear();
        }
    }
}

/// The outcome of a HEAD.
enum Asked {
    /// An answer about the file.
    Said(FoundSize),
    /// A refusal, of the file or of HEAD.
    Refused,
    /// Its host is left alone.
    LeftAlone,
    /// This mirror sends no requests for now.
    Stopped,
}

impl Mirrors {
    /// Finds missing sizes of this page's files in the background, if its mirror is set to. This looks at each file, so call it
    /// only where the caller does so anyway: when a page arrives or is rendered.
    pub fn fill_sizes(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: &ProjectName,
        known: &Known,
    ) {
        if mirror.fills_sizes
            && let Some(page) = known.page()
            && left_to_ask(page) > 0
            && page.files.iter().any(UpstreamFile::lacks_size)
        {
            self.queue_sizes(mirror, project, None);
        }
    }

    /// Notes the size of a file that was downloaded, and was right, where upstream's page does not say it.
    pub(super) fn note_size(self: &Arc<Mirrors>, mirror: &Arc<Mirror>, order: &Order, bytes: u64) {
        let Some((filename, identity)) = &order.unsized_file else { return };
        if mirror.fills_sizes {
            for project in projects_of(filename) {
                self.queue_sizes(mirror, &project, Some((identity, bytes)));
            }
        }
    }

    fn queue_sizes(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: &ProjectName,
        proved: Option<(&str, u64)>,
    ) {
        if !lock(&mirror.sizes.queue).add(project, proved) {
            return;
        }
        let (mirrors, running) = (self.clone(), Running(mirror.clone()));
        tokio::spawn(async move {
            let mirror = &running.0;
            loop {
                if mirror.is_retired.load(Relaxed) {
                    return lock(&mirror.sizes.queue).clear();
                }
                let next = lock(&mirror.sizes.queue).next();
                let Some((project, proved)) = next else { return };
                mirrors.fill_sizes_of(mirror, &project, proved).await;
            }
        });
    }

    /// Asks about the files of a project that lack a size, in batches.
    async fn fill_sizes_of(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: &ProjectName,
        proved: Found,
    ) {
        let subject = Subject::Project(project.clone());
        if !proved.is_empty() && !self.write_sizes(mirror, &subject, proved).await {
            return;
        }
        // Each round writes sizes or leaves another host alone, so that they end.
        let mut left_alone: HashSet<Box<str>> = HashSet::new();
        loop {
            // Upstream may change the page meanwhile, so each batch begins with the current one.
            let Some(known) = self.remembered(mirror, &subject).await else { return };
            let (mirrors, of, named) = (self.clone(), mirror.clone(), project.clone());
            let (avoided, now) = (left_alone.clone(), self.started_at.elapsed());
            let looking = tokio::task::spawn_blocking(move || {
                let page = known.page()?;
                let files_max = left_to_ask(page).min(BATCH);
                let hosts = lock(&of.sizes.hosts);
                let may_be_asked = |file: &UpstreamFile| {
                    let host = Url::parse(&file.url).map(|url| host_of(&url));
                    host.is_ok_and(|it| !avoided.contains(&it) && hosts.may_be_asked(&it, now))
                };
                let lacking = page.newest_lacking_size(&named, files_max, may_be_asked);
                drop(hosts);
                let found = mirrors.sizes_on_disk(&of, &lacking);
                Some((lacking.into_iter().cloned().collect::<Vec<_>>(), found))
            });
            let Some((lacking, mut found)) = looking.await.ok().flatten() else { return };
            if lacking.is_empty() {
                return;
            }
            let (mut refused, mut is_stopped) = (Vec::new(), false);
            for file in lacking {
                let identity = file.identity();
                let Ok(url) = Url::parse(&file.url) else { continue };
                let host = host_of(&url);
                if found.contains_key(&identity) || left_alone.contains(&host) {
                    continue;
                }
                match self.size_by_head(mirror, url, &host).await {
                    Asked::Said(size) => _ = found.insert(identity, size),
                    Asked::Refused => refused.push((identity, host)),
                    Asked::LeftAlone => _ = left_alone.insert(host),
                    Asked::Stopped => {
                        is_stopped = true;
                        break;
                    }
                }
            }
            for (identity, host) in refused {
                // If the host refuses HEAD, the refusal says nothing of the file.
                if !left_alone.contains(&host) {
                    found.insert(identity, FoundSize::Unknown);
                }
            }
            let is_written = found.is_empty() || self.write_sizes(mirror, &subject, found).await;
            if is_stopped || !is_written {
                return;
            }
        }
    }

    /// The sizes of these files that are in the cache. Blocks.
    fn sizes_on_disk(&self, mirror: &Mirror, files: &[&UpstreamFile]) -> Found {
        let held = files.iter().filter_map(|file| {
            let order = Order::of(mirror, file, false)?;
            let (head, _) = self.disk.open_entry(&order.key)?;
            order.is_of(&head).then(|| (file.identity(), FoundSize::Proved(head.size_bytes)))
        });
        held.collect()
    }

    /// Asks for a file's size, as a download would ask for the file.
    async fn size_by_head(&self, mirror: &Mirror, url: Url, host: &str) -> Asked {
        let Ok(_turn) = turn(&mirror.asking, &self.asking).await else { return Asked::Stopped };
        // It may have waited for its turn. An upstream that fails to send pages gets no further requests.
        let is_stopped = mirror.is_retired.load(Relaxed)
            || self.may_be_asked(mirror).is_err()
            || mirror.trouble().is_some();
        if is_stopped {
            return Asked::Stopped;
        }
        let now = || self.started_at.elapsed();
        if !lock(&mirror.sizes.hosts).may_be_asked(host, now()) {
            return Asked::LeftAlone;
        }
        self.counters.requests.fetch_add(1, Relaxed);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let asking = self.upstream.head(&mirror.origin, url, headers);
        let late = || UpstreamError::new("no answer to HEAD in time");
        let answer = tokio::time::timeout(HEAD_TIMEOUT, asking).await;
        let answer = answer.unwrap_or_else(|_| Err(late()));
        let mut hosts = lock(&mirror.sizes.hosts);
        match answer {
            Ok((StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, _)) => {
                hosts.knows_no_head(host, now());
                tracing::info!(
                    mirror = mirror.stage,
                    host,
                    "no sizes are asked for there: HEAD is not allowed"
                );
                Asked::LeftAlone
            }
            Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => {
                hosts.refused(host, now());
                Asked::Refused
            }
            Ok((status, headers)) => {
                hosts.answered(host);
                let bytes = if status == StatusCode::OK { size_of(&headers) } else { None };
                Asked::Said(bytes.map_or(FoundSize::Unknown, FoundSize::Claimed))
            }
            // A file that no client can get is no failure of the server.
            Err(trouble) if trouble.is_unfollowed => Asked::Said(FoundSize::Unknown),
            Err(trouble) => {
                hosts.failed(host, now());
                tracing::info!(mirror = mirror.stage, host, %trouble, "no sizes are asked for there for a while");
                Asked::LeftAlone
            }
        }
    }

    /// Adds sizes to the current page, for files that lack one. Returns whether the page has them now.
    async fn write_sizes(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        subject: &Subject,
        found: Found,
    ) -> bool {
        // The turn first, as everywhere: nothing that has the lock waits for a turn.
        let turn = match (self.turn_to_load(mirror, subject).await, self.in_memory(mirror, subject))
        {
            (Some(turn), _) => turn,
            (None, Some(known)) => {
                let is_small = known.memory_bytes() <= SMALL_PAGE_BYTES_MAX as u64;
                self.pages_work.take_many(if is_small { 1 } else { LARGE_PAGE_COUNTS }).await
            }
            (None, None) => return false,
        };
        let _writing = self.writing(mirror, subject).lock().await;
        if mirror.is_retired.load(Relaxed) {
            return false;
        }
        let (mirrors, mirror, subject) = (self.clone(), mirror.clone(), subject.clone());
        turn.run(move || {
            // A page that is too large for the memory is only on the disk.
            let known = mirrors.in_memory(&mirror, &subject);
            let Some(known) = known.or_else(|| mirrors.load(&mirror, &subject)) else { return false };
            let Some(page) = known.page() else { return false };
            if let Some(page) = page.with_sizes(&found) {
                let known = Arc::new(known.with_page(page, mirrors.next_version()));
                mirrors.remember(&mirror, &subject, known.clone());
                if let Err(error) = mirrors.store(&mirror, &subject, &known, false) {
                    tracing::warn!(%error, "sizes of files of a mirror cannot be kept on disk; they are served from memory");
                    return false;
                }
            }
            true
        })
        .await
    }
}

/// How many files of the page may still be asked about.
fn left_to_ask(page: &UpstreamPage) -> usize {
    let is_asked = |file: &&UpstreamFile| {
        matches!(file.found_size, Some(FoundSize::Claimed(_) | FoundSize::Unknown))
    };
    ASKED_OF_PROJECT_MAX.saturating_sub(page.files.iter().filter(is_asked).count())
}

/// The size that an answer to HEAD names, if it can be that of the file.
fn size_of(headers: &HeaderMap) -> Option<u64> {
    let encoding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if !matches!(encoding, None | Some(b"" | b"identity")) {
        return None;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let (length, None) = (lengths.next()?, lengths.next()) else { return None };
    let is_digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let bytes: u64 = length.to_str().ok().filter(is_digits)?.parse().ok()?;
    (1..=SIZE_BYTES_MAX).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn project(name: &str) -> ProjectName {
        name.parse().expect("a name")
    }

    #[test]
    fn only_a_plain_length_is_a_size() {
        let check = |lines: &[(&'static str, &'static str)], expected: Option<u64>| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(size_of(&headers), expected, "{lines:?}");
        };
        check(&[("content-length", "12")], Some(12));
        check(&[("content-length", "12"), ("content-encoding", "identity")], Some(12));
        check(&[("content-length", "12"), ("content-encoding", "gzip")], None);
        check(&[("content-length", "12"), ("content-length", "13")], None);
        check(&[], None);
        for absurd in ["0", "-1", "+1", "1e3", "12, 12", "1099511627777", "99999999999999999999"] {
            check(&[("content-length", absurd)], None);
        }
    }

    #[test]
    fn the_queue_is_bounded_and_has_each_project_once() {
        let mut queue = Queue::default();
        assert!(queue.add(&project("foo"), None), "a task is started");
        assert!(!queue.add(&project("foo"), Some(("foo", 7))));
        for number in 0..2 * WAITING_MAX {
            assert!(!queue.add(&project(&format!("p{number}")), None));
        }
        assert_eq!((queue.waiting.len(), queue.proved.len()), (WAITING_MAX, WAITING_MAX));
        for number in 0..2 * PROVED_MAX {
            queue.add(&project("foo"), Some((&number.to_string(), 7)));
        }
        let (first, found) = queue.next().expect("a project");
        assert_eq!((first, found.len()), (project("foo"), PROVED_MAX));
        let mut rest = HashSet::new();
        while let Some((name, found)) = queue.next() {
            assert!(found.is_empty() && rest.insert(name));
        }
        assert_eq!(rest.len(), WAITING_MAX - 1);
        assert!(queue.add(&project("foo"), None), "the task has ended");
    }
}
