//! What changed on each surface: a bounded history in memory, encoded once for all who follow it.
//!
//! the store's tail, or a refresh of the AUR -> [`Draft`] -> [`Feed::push`] -> [`Entry`], encoded -> `protocols/changes.rs`
//! gives each client the entries that it may read. A subscriber has a position in the history and no queue: a slow one
//! costs nothing, and has to start over once its position has left the history. No write waits for a subscriber.

pub(crate) mod aur_history;
pub(crate) mod deltas;
mod entry;
pub(crate) mod of_store;
pub(crate) mod purges;
pub(crate) mod shapes;
mod subscribers;
pub(crate) mod tags;
pub(crate) mod webhooks;

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use config::Config;
use jiff::Timestamp;
use record::{Serial, excerpt};
use store::Records;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use entry::{Draft, Entry, Event, Subject};
pub(crate) use subscribers::{Counters, Subscribers, Subscription, SubscriptionRefusal};

use self::webhooks::Webhooks;
use super::aur_published::AurPublished;

/// A surface whose changes can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedSurface {
    /// The AUR's packages.
    Aur,
    /// The Python index.
    Python,
    /// Articles.
    Articles,
}

impl FeedSurface {
    pub(crate) const ALL: [FeedSurface; 3] =
        [FeedSurface::Aur, FeedSurface::Python, FeedSurface::Articles];

    /// The value of `surface` in a request.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            FeedSurface::Aur => "aur",
            FeedSurface::Python => "python",
            FeedSurface::Articles => "articles",
        }
    }
}

/// The feeds of all surfaces, and who follows them.
pub(crate) struct Changes {
    feeds: [Feed; FeedSurface::ALL.len()],
    /// Counts the commits that concern users, tokens or groups.
    pub(crate) accounts: watch::Sender<u64>,
    /// Who follows a feed now.
    pub(crate) subscribers: Arc<Subscribers>,
    /// The AUR's snapshot that was published last, for the history.
    pub(crate) aur: watch::Sender<Option<Arc<AurPublished>>>,
    /// The last of these snapshots that is in the history.
    pub(crate) aur_noted: watch::Sender<Weak<AurPublished>>,
    /// What is known of the AUR's packages, while it is open.
    pub(crate) aur_records: watch::Sender<Option<Records>>,
    /// The URLs that changes are posted to.
    pub(crate) webhooks: Webhooks,
    /// Why the history of the AUR's packages is not written now.
    pub(crate) aur_failing: watch::Sender<Option<String>>,
    /// Ends every subscription.
    pub(crate) closing: CancellationToken,
}

impl Changes {
    pub(crate) fn new(config: &Config, counters: Counters, webhooks: Webhooks) -> Changes {
        let settings = &config.changes;
        Changes {
            feeds: FeedSurface::ALL.map(|surface| Feed::new(surface, settings.history_max)),
            accounts: watch::Sender::new(0),
            subscribers: Subscribers::new(
                settings.subscribers_max,
                settings.subscribers_per_client_max,
                counters,
            ),
            webhooks,
            aur: watch::Sender::new(None),
            aur_noted: watch::Sender::new(Weak::new()),
            aur_records: watch::Sender::new(None),
            aur_failing: watch::Sender::new(None),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn feed(&self, surface: FeedSurface) -> &Feed {
        &self.feeds[surface as usize]
    }
}

/// A position in a feed: everything up to and including this serial is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeedPosition {
    pub(crate) serial: Serial,
    /// The first digits of the name of the history that the serial belongs to; unknown if a client gave the serial alone.
    pub(crate) history: Option<Box<str>>,
}

impl FromStr for FeedPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<FeedPosition, ()> {
        let (serial, history) = match text.split_once('.') {
            Some((serial, history)) if !history.is_empty() => (serial, Some(history.into())),
            Some(_) => return Err(()),
            None => (text, None),
        };
        let serial = serial.parse().map_err(|_| ())?;
        Ok(FeedPosition { serial: Serial(serial), history })
    }
}

/// Why a client's position is of no use; the client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LostPosition {
    /// The feed has nothing yet.
    NotLoaded,
    /// The position is older than the history.
    TooOld,
    /// The position is of another history.
    OfAnother,
    /// The position is ahead of the feed.
    Ahead,
}

/// Some entries of a feed.
pub(crate) struct FeedSlice {
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Everything up to here is in `entries`.
    pub(crate) up_to: Serial,
    /// Whether there is more after that.
    pub(crate) has_more: bool,
}

/// The history of one surface.
pub(crate) struct Feed {
    surface: FeedSurface,
    entries_max: usize,
    ring: Mutex<Ring>,
    /// The last serial that the feed knows.
    head: watch::Sender<Serial>,
    /// The last serial with a change of this surface; only such a serial wakes clients.
    news: watch::Sender<Serial>,
}

struct Ring {
    /// The name of the history; empty until the feed is loaded.
    history: Box<str>,
    /// By ascending serial; entries of one serial are added and dropped together.
    entries: VecDeque<Arc<Entry>>,
    /// Every change after this serial is in `entries`.
    oldest: Serial,
    head: Serial,
}

impl Ring {
    fn add(&mut self, surface: FeedSurface, drafts: &[Draft]) {
        let mut earlier = self.head;
        for (at, draft) in drafts.iter().enumerate() {
            let is_last = drafts.get(at + 1).is_none_or(|next| next.serial != draft.serial);
            // A client that is cut off within a commit gets the whole commit again.
            let known = if is_last { draft.serial } else { earlier };
            let entry = Entry::encode(surface, draft, &position(known, &self.history));
            self.entries.push_back(Arc::new(entry));
            if is_last {
                earlier = draft.serial;
            }
        }
    }

    /// Drops the oldest commits.
    fn cut(&mut self, entries_max: usize) {
        while self.entries.len() > entries_max {
            let Some(first) = self.entries.front().map(|entry| entry.serial) else { break };
            let end = self.entries.partition_point(|entry| entry.serial <= first);
            self.entries.drain(..end);
            self.oldest = first;
        }
    }
}

impl Feed {
    fn new(surface: FeedSurface, entries_max: usize) -> Feed {
        let ring = Ring {
            history: Box::default(),
            entries: VecDeque::new(),
            oldest: Serial::ZERO,
            head: Serial::ZERO,
        };
        Feed {
            surface,
            entries_max,
            ring: Mutex::new(ring),
            head: watch::Sender::new(Serial::ZERO),
            news: watch::Sender::new(Serial::ZERO),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the feed: `history` is the name of its history, and `drafts` are all changes after `oldest`.
    pub(crate) fn load(&self, history: &str, oldest: Serial, head: Serial, drafts: Vec<Draft>) {
        let begin = |ring: &mut Ring| {
            ring.history = excerpt(history, HISTORY_CHARACTERS).into();
            ring.entries.clear();
            // A client that is cut off within the first commit gets that commit again.
            (ring.oldest, ring.head) = (oldest, oldest);
        };
        self.take(begin, head, drafts);
    }

    /// Adds the changes of the serials up to `head`, by ascending serial. Waits for no client.
    pub(crate) fn push(&self, head: Serial, drafts: Vec<Draft>) {
        self.take(|_| (), head, drafts);
    }

    /// Prepares the ring and adds changes to it under one lock, so that no reader sees only the first step.
    fn take(&self, prepare: impl FnOnce(&mut Ring), head: Serial, drafts: Vec<Draft>) {
        let mut ring = self.ring();
        prepare(&mut ring);
        if ring.history.is_empty() {
            return;
        }
        ring.add(self.surface, &drafts);
        ring.cut(self.entries_max);
        ring.head = head;
        drop(ring);
        self.head.send_replace(head);
        if !drafts.is_empty() {
            self.news.send_replace(head);
        }
    }

    /// The position of a client that wants only changes after now.
    pub(crate) fn now(&self) -> Result<Serial, LostPosition> {
        let ring = self.ring();
        if ring.history.is_empty() { Err(LostPosition::NotLoaded) } else { Ok(ring.head) }
    }

    /// The serial of a position.
    pub(crate) fn find(&self, position: &FeedPosition) -> Result<Serial, LostPosition> {
        let ring = self.ring();
        if ring.history.is_empty() {
            return Err(LostPosition::NotLoaded);
        }
        if position.history.as_ref().is_some_and(|history| *history != ring.history) {
            return Err(LostPosition::OfAnother);
        }
        match position.serial {
            serial if serial < ring.oldest => Err(LostPosition::TooOld),
            serial if serial > ring.head => Err(LostPosition::Ahead),
            serial => Ok(serial),
        }
    }

    /// At least `count` entries after `serial`, or all there are; never a part of a commit.
    pub(crate) fn after(&self, serial: Serial, count: usize) -> Result<FeedSlice, LostPosition> {
        let ring = self.ring();
        if serial < ring.oldest {
            return Err(LostPosition::TooOld);
        }
        let start = ring.entries.partition_point(|entry| entry.serial <= serial);
        let mut end = (start + count).min(ring.entries.len());
        if let Some(last) = end.checked_sub(1).and_then(|last| ring.entries.get(last)) {
            end = end.max(ring.entries.partition_point(|entry| entry.serial <= last.serial));
        }
        let end = end.max(start);
        let entries: Vec<Arc<Entry>> = ring.entries.range(start..end).cloned().collect();
        let has_more = end < ring.entries.len();
        let last = entries.last().map(|entry| entry.serial);
        let up_to = if has_more { last.unwrap_or(serial) } else { ring.head.max(serial) };
        Ok(FeedSlice { entries, up_to, has_more })
    }

    /// How many entries come after `serial`, and when the first of them happened; of what the history has no more, nothing is known.
    pub(crate) fn waiting(&self, serial: Serial) -> (usize, Option<Timestamp>) {
        let ring = self.ring();
        let start = ring.entries.partition_point(|entry| entry.serial <= serial);
        (ring.entries.len() - start, ring.entries.range(start..).find_map(|entry| entry.at))
    }

    /// The last entries before `serial`, or of the whole history: at least `count`, or all there are; never a part of a commit,
    /// newest first.
    pub(crate) fn before(&self, serial: Option<Serial>, count: usize) -> Vec<Arc<Entry>> {
        let ring = self.ring();
        let before = |serial| ring.entries.partition_point(|entry| entry.serial < serial);
        let end = serial.map_or(ring.entries.len(), before);
        let first = ring.entries.get(end.saturating_sub(count)).map(|entry| entry.serial);
        let start = first.map_or(end, before).min(end);
        ring.entries.range(start..end).rev().cloned().collect()
    }

    /// The serial that a client may ask from at least, as a position.
    pub(crate) fn oldest(&self) -> (Serial, String) {
        let ring = self.ring();
        (ring.oldest, position(ring.oldest, &ring.history))
    }

    /// A serial of this feed as a position.
    pub(crate) fn position(&self, serial: Serial) -> String {
        position(serial, &self.ring().history)
    }

    /// Waits until the feed has begun.
    pub(crate) async fn loaded(&self) {
        let mut heads = self.head.subscribe();
        while self.now().is_err() && heads.changed().await.is_ok() {}
    }

    /// Waits until the feed knows this serial.
    pub(crate) async fn reached(&self, serial: Serial) {
        // The sender is in `self`, so that it is not gone.
        let _ = self.head.subscribe().wait_for(|head| *head >= serial).await;
    }

    /// Is told of each new change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Serial> {
        self.news.subscribe()
    }
}

/// How many characters of a history's name are in a position: enough to tell it from any other.
const HISTORY_CHARACTERS: usize = 8;

fn position(serial: Serial, history: &str) -> String {
    format!("{serial}.{history}")
}

impl fmt::Debug for Feed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Feed").field("surface", &self.surface).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use record::ChangeKind;

    use super::*;

    fn draft(serial: u64) -> Draft {
        Draft::new(
            Serial(serial),
            ChangeKind::Added,
            "package",
            format!("p{serial}"),
            Subject::Open,
        )
    }

    fn feed(entries_max: usize) -> Feed {
        let feed = Feed::new(FeedSurface::Aur, entries_max);
        feed.load("0123456789abcdef", Serial(10), Serial(10), Vec::new());
        feed
    }

    /// Compares the entries after a serial: their serials, the serial they reach, and whether there is more.
    #[track_caller]
    fn check(
        feed: &Feed,
        (serial, count): (u64, usize),
        expected: Result<(&[u64], u64, bool), LostPosition>,
    ) {
        let found = feed.after(Serial(serial), count).map(|slice| {
            let serials: Vec<u64> = slice.entries.iter().map(|entry| entry.serial.0).collect();
            (serials, slice.up_to.0, slice.has_more)
        });
        let expected =
            expected.map(|(serials, up_to, has_more)| (serials.to_vec(), up_to, has_more));
        assert_eq!(found, expected, "after {serial}");
    }

    #[test]
    fn a_commit_is_never_split() {
        let feed = feed(9);
        feed.push(Serial(15), [11, 12, 12, 12, 14].map(draft).to_vec());
        check(&feed, (10, 1), Ok((&[11], 11, true)));
        check(&feed, (10, 2), Ok((&[11, 12, 12, 12], 12, true)));
        check(&feed, (11, 1), Ok((&[12, 12, 12], 12, true)));
        check(&feed, (12, 1), Ok((&[14], 15, false)));
        check(&feed, (14, 9), Ok((&[], 15, false)));
        let ids = feed.before(None, 99);
        let ids: Vec<String> = ids.iter().map(|entry| entry.id().to_owned()).collect();
        let expected = ["14.01234567", "12.01234567", "11.01234567", "11.01234567", "11.01234567"];
        assert_eq!(ids, expected);
    }

    #[test]
    fn the_newest_come_first_and_in_whole_commits() {
        let feed = feed(9);
        feed.push(Serial(15), [11, 12, 12, 12, 14].map(draft).to_vec());
        let before = |serial: Option<u64>, count| {
            let found = feed.before(serial.map(Serial), count);
            found.iter().map(|entry| entry.serial.0).collect::<Vec<u64>>()
        };
        assert_eq!(before(None, 1), [14]);
        assert_eq!(before(Some(14), 1), [12, 12, 12]);
        assert_eq!(before(None, 2), [14, 12, 12, 12]);
        assert_eq!(before(Some(12), 5), [11]);
        assert_eq!(before(Some(11), 5), [0; 0]);
        assert_eq!(before(None, 0), [0; 0]);
    }

    #[test]
    fn a_client_that_is_cut_off_in_the_first_commit_gets_it_again() {
        let feed = feed(9);
        feed.load("0123456789abcdef", Serial(10), Serial(13), [12, 12].map(draft).to_vec());
        let entries = feed.before(None, 9);
        let ids: Vec<&str> = entries.iter().map(|entry| entry.id()).collect();
        assert_eq!(ids, ["12.01234567", "10.01234567"]);
        assert_eq!(feed.find(&ids[1].parse().expect("a position")), Ok(Serial(10)));
    }

    /// While the feed is loaded again, readers go on seeing its entries.
    #[test]
    fn a_feed_that_begins_again_is_never_seen_empty() {
        let feed = feed(9);
        let load =
            || feed.load("0123456789abcdef", Serial(10), Serial(12), [11, 12].map(draft).to_vec());
        load();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..2_000).for_each(|_| load());
                is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                check(&feed, (10, 9), Ok((&[11, 12], 12, false)));
            }
        });
    }

    #[test]
    fn the_oldest_commits_leave_the_history_whole() {
        let feed = feed(3);
        feed.push(Serial(13), [11, 11, 12, 13].map(draft).to_vec());
        check(&feed, (10, 9), Err(LostPosition::TooOld));
        check(&feed, (11, 9), Ok((&[12, 13], 13, false)));
        // A commit that is larger than the history leaves nothing.
        feed.push(Serial(14), [14, 14, 14, 14].map(draft).to_vec());
        check(&feed, (13, 9), Err(LostPosition::TooOld));
        check(&feed, (14, 9), Ok((&[], 14, false)));
    }

    #[test]
    fn positions_are_checked() {
        let feed = feed(3);
        feed.push(Serial(12), [12].map(draft).to_vec());
        let find = |text: &str| feed.find(&text.parse().expect("a position"));
        assert_eq!(find("11"), Ok(Serial(11)));
        assert_eq!(find("11.01234567"), Ok(Serial(11)));
        assert_eq!(find("11.76543210"), Err(LostPosition::OfAnother));
        assert_eq!(find("9"), Err(LostPosition::TooOld));
        assert_eq!(find("13"), Err(LostPosition::Ahead));
        for bad in ["", "x", "1.", "-1", "1 "] {
            assert_eq!(bad.parse::<FeedPosition>(), Err(()), "{bad}");
        }
        assert_eq!(Feed::new(FeedSurface::Aur, 1).now(), Err(LostPosition::NotLoaded));
    }
}
