//! Server-sent events: a position in a feed that moves on as the client reads.
//!
//! A waiting client takes its position and a few words of memory; all clients share the events of the feed. Nothing waits for a
//! slow client: once its position has left the history, its stream ends with the event `start-over`. A stream begins with it if
//! the client's position has left the history already.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use account::Principal;
use bytes::Bytes;
use futures_util::{Stream, stream};
use jiff::Timestamp;
use record::Serial;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::app::App;
use crate::published::changes::{Feed, FeedSurface, Subscription};

/// Entries that are looked at together.
const ENTRIES_AT_ONCE: usize = 64;

/// After how many milliseconds a client that was cut off is to connect again.
const RETRY_MILLISECONDS: u32 = 2_000;

struct Follower {
    app: Arc<App>,
    surface: FeedSurface,
    principal: Principal,
    /// Everything up to here was sent, or is in `ready`.
    at: Serial,
    ready: VecDeque<Bytes>,
    news: watch::Receiver<Serial>,
    /// For clients with credentials: any change of users and tokens may make them invalid.
    accounts: Option<watch::Receiver<u64>>,
    place: Subscription,
    /// When to send a keep-alive, if there is no event before.
    alive_at: Instant,
    /// Whether there was more to look at the last time.
    has_more: bool,
    has_ended: bool,
}

/// The events after `from`; first `start-over`, if the client `is_lost`.
pub(super) fn stream(
    app: Arc<App>,
    surface: FeedSurface,
    principal: Principal,
    (from, is_lost): (Serial, bool),
    place: Subscription,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let feed = app.changes.feed(surface);
    let news = feed.subscribe();
    let begin = format!("retry: {RETRY_MILLISECONDS}\nid: {}\n\n", feed.position(from));
    let accounts = principal.identity().is_some().then(|| app.changes.accounts.subscribe());
    let mut ready = VecDeque::from([Bytes::from(begin)]);
    if is_lost {
        ready.push_back(start_over(feed, from));
    }
    let follower = Follower {
        app,
        surface,
        principal,
        at: from,
        ready,
        news,
        accounts,
        place,
        alive_at: Instant::now(),
        has_more: false,
        has_ended: false,
    };
    stream::unfold(Box::new(follower), |mut follower| async move {
        let frame = follower.next().await?;
        Some((Ok(frame), follower))
    })
}

/// The event that tells a client to list everything again, and then to follow from `at`.
fn start_over(feed: &Feed, at: Serial) -> Bytes {
    let (next, (_, oldest)) = (feed.position(at), feed.oldest());
    let data = json!({"oldest": oldest, "next": next});
    format!("event: start-over\nid: {next}\ndata: {data}\n\n").into()
}

impl Follower {
    /// The next bytes to send; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.alive_at = Instant::now() + self.app.config.changes.keep_alive;
                return Some(frame);
            }
            if self.has_ended || !self.look() {
                return None;
            }
            match (self.ready.is_empty(), self.has_more) {
                (false, _) => {}
                // None of these changes was for this client; other tasks get a turn before it looks at more.
                (true, true) => tokio::task::yield_now().await,
                (true, false) => self.wait().await?,
            }
        }
    }

    /// Takes the next entries; false if the client's credentials hold no longer.
    fn look(&mut self) -> bool {
        self.news.mark_unchanged();
        if let Some(accounts) = &mut self.accounts {
            accounts.mark_unchanged();
        }
        let feed = self.app.changes.feed(self.surface);
        let slice = match feed.after(self.at, ENTRIES_AT_ONCE) {
            Ok(slice) => slice,
            Err(_) => {
                // A client that connects again goes on from here.
                self.ready.push_back(start_over(feed, feed.now().unwrap_or(self.at)));
                self.has_ended = true;
                return true;
            }
        };
        // The state is no older than the slice.
        let Some(stored) = self.app.live_store.snapshot_full() else { return false };
        match self.principal.as_of(&stored.accounts, Timestamp::now()) {
            Ok(principal) => self.principal = principal,
            Err(_) => return false,
        }
        for entry in &slice.entries {
            if let Some(event) = entry.for_reader(&self.app.config, &stored, &self.principal) {
                self.ready.push_back(event.frame());
                self.place.sent();
            }
        }
        (self.at, self.has_more) = (slice.up_to, slice.has_more);
        true
    }

    /// Waits until there is something to look at, or time for a sign of life; nothing if the server stops.
    async fn wait(&mut self) -> Option<()> {
        let accounts = async {
            match &mut self.accounts {
                Some(accounts) => accounts.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.app.changes.closing.cancelled() => return None,
            changed = self.news.changed() => changed.ok()?,
            changed = accounts => changed.ok()?,
            () = tokio::time::sleep_until(self.alive_at) => {
                // An identifier without data moves the client's position on without an event.
                let position = self.app.changes.feed(self.surface).position(self.at);
                let frame = format!(": keep-alive\nid: {position}\n\n");
                self.ready.push_back(frame.into());
            }
        }
        Some(())
    }
}
