//! Tells webhooks what changed: one task for each.
//!
//! its position, kept in a file -> what its feed has after that and its user may read -> one POST, signed -> the position
//! after it, kept. A POST that fails is made again, later each time, out of what the feed has then; so is one whose
//! position was not kept. Nothing is queued: a webhook that is away for too long is told to start over.
//!
//! A cache gets the tags of what changed instead, and gets them [again](AGAIN): an answer that was on its way to it, or one of a
//! process that was behind, may have come after the first purge. Its position is kept after the second, together with a mark of the
//! version and the settings: a page that was made with others may be wrong though nothing was written, so everything is dropped.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use account::Principal;
use jiff::Timestamp;
use record::{Digest, Serial};
use serde_json::json;
use state::stored::Stored;

use crate::app::App;
use crate::published::changes::purges::Cache;
use crate::published::changes::shapes::WebhookShape;
use crate::published::changes::webhooks::{Failure, NotedDelivery, Webhook, WebhookBody};
use crate::published::changes::{Event, Feed, FeedPosition, LostPosition, purges, shapes};

/// Entries that are looked at for one delivery; a commit is never split.
const ENTRIES_AT_ONCE: usize = 200;

/// The time between attempts: the first one, and at most.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// How often the position is kept while nothing is delivered.
const KEEP_INTERVAL: Duration = Duration::from_secs(30);

/// How long a cache gets to take answers that are on their way before it drops what has changed.
const SETTLE: Duration = Duration::from_millis(100);

/// When a cache drops the same again: all processes of a store have seen the change by then.
const AGAIN: Duration = Duration::from_secs(5);

/// The directory of positions in the data directory.
const DIRECTORY: &str = "webhooks";

const UNKEPT: &str = "its position cannot be kept";

/// Something to deliver.
struct Delivery {
    content: Content,
    /// The position after it.
    next: Serial,
}

/// What there is to deliver.
enum Content {
    Nothing,
    Sent(WebhookBody),
}

/// What a cache drops once more.
struct Again {
    cache: Cache,
    at: tokio::time::Instant,
    keys: Vec<String>,
    /// The position after it.
    next: Serial,
}

/// Delivers to one webhook.
pub(crate) async fn run(app: Arc<App>, webhook: Arc<Webhook>) {
    let (app, webhook) = (&*app, &*webhook);
    let feed = app.changes.feed(webhook.surface);
    feed.loaded().await;
    // Rights are judged by it.
    while app.live_store.snapshot().is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let path = app.config.data_dir.join(DIRECTORY).join(format!("{}.position", webhook.name));
    let mut news = feed.subscribe();
    let mut accounts = app.changes.accounts.subscribe();
    // `is_lost` makes the next delivery tell the webhook to start over, because its position was of no use.
    let (mut at, mut is_lost) = begin(app, webhook, feed, &path).await;
    webhook.reached(at, feed.position(at));
    let mut kept_at = tokio::time::Instant::now();
    let mut again: VecDeque<Again> = VecDeque::new();
    loop {
        if let Some((cache, keys, next)) = due(&again) {
            if let Err(failure) = app.changes.webhooks.purge(webhook, cache, &keys).await {
                fail(app, webhook, failure).await;
                continue;
            }
            again.retain(|it| it.next > next);
            keep(app, webhook, &path, feed.position(next)).await;
            continue;
        }
        news.mark_unchanged();
        accounts.mark_unchanged();
        let outcome = next(app, webhook, feed, at, is_lost);
        let (found, has_more) = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => {
                fail(app, webhook, failure).await;
                continue;
            }
        };
        let name = format!("{}/{}", webhook.name, feed.position(found.next));
        let delivered = match &found.content {
            Content::Nothing => Ok(false),
            Content::Sent(sent) => {
                if let WebhookBody::Keys(..) = sent {
                    tokio::time::sleep(SETTLE).await;
                }
                deliver(app, webhook, &name, sent).await.map(|()| true)
            }
        };
        let is_delivered = match delivered {
            Ok(is_delivered) => is_delivered,
            Err(failure) => {
                fail(app, webhook, failure).await;
                continue;
            }
        };
        let is_well_again = webhook.succeeded();
        if is_delivered {
            app.metrics.webhook_delivered(&webhook.name);
            webhook.delivered();
            if is_well_again {
                tracing::info!(webhook = webhook.name, "changes are delivered again");
            }
        }
        let is_due = match found.content {
            Content::Nothing => {
                again.is_empty() && kept_at.elapsed() >= KEEP_INTERVAL && found.next > at
            }
            Content::Sent(WebhookBody::Body(_)) => true,
            Content::Sent(WebhookBody::Keys(cache, keys)) => {
                let at = tokio::time::Instant::now() + AGAIN;
                again.push_back(Again { cache, at, keys, next: found.next });
                false
            }
        };
        (at, is_lost) = (found.next, false);
        webhook.reached(at, feed.position(at));
        if is_due {
            keep(app, webhook, &path, feed.position(at)).await;
            kept_at = tokio::time::Instant::now();
        }
        if has_more {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            changed = accounts.changed() => if changed.is_err() { return },
            () = wait_for(&again) => {}
        }
    }
}

/// The tags of all that is to be dropped once more now, and the position after it.
fn due(again: &VecDeque<Again>) -> Option<(Cache, Vec<String>, Serial)> {
    let now = tokio::time::Instant::now();
    let due = || again.iter().take_while(|it| it.at <= now);
    let Again { cache, next, .. } = due().last()?;
    let keys: BTreeSet<&String> = due().flat_map(|it| &it.keys).collect();
    Some((*cache, keys.into_iter().cloned().collect(), *next))
}

/// Waits until something is to be dropped once more.
async fn wait_for(again: &VecDeque<Again>) {
    match again.front() {
        Some(first) => tokio::time::sleep_until(first.at).await,
        None => std::future::pending().await,
    }
}

/// Where to begin, and whether the kept position was lost. Without a usable position it begins now.
async fn begin(app: &App, webhook: &Webhook, feed: &Feed, path: &Path) -> (Serial, bool) {
    loop {
        let place = path.to_owned();
        let reading = tokio::task::spawn_blocking(move || {
            resources::files::read(&place).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        });
        let kept = match reading.await.map_err(std::io::Error::other).flatten() {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                fail(app, webhook, Failure::new("its position cannot be read", error)).await;
                continue;
            }
        };
        let Ok(now) = feed.now() else {
            feed.loaded().await;
            continue;
        };
        match kept {
            Some(text) => {
                let (position, mark) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
                if is_cache(webhook) && mark != made_with(app) {
                    return (now, true);
                }
                let position = position.parse::<FeedPosition>();
                let found =
                    position.map_err(|()| LostPosition::OfAnother).and_then(|it| feed.find(&it));
                return found.map_or((now, true), |serial| (serial, false));
            }
            // It may have anything.
            None if is_cache(webhook) => return (now, true),
            // From this position on, no change is missed.
            None => {
                keep(app, webhook, path, feed.position(now)).await;
                return (now, false);
            }
        }
    }
}

fn is_cache(webhook: &Webhook) -> bool {
    matches!(webhook.shape, WebhookShape::Cache(_))
}

/// A mark of the version and the settings that pages are made with.
fn made_with(app: &App) -> String {
    Digest::of(format!("{} {:?}", version::text(), app.config).as_bytes()).to_string()
}

/// The delivery after `at`, and whether there is more.
fn next(
    app: &App,
    webhook: &Webhook,
    feed: &Feed,
    at: Serial,
    is_lost: bool,
) -> Result<(Delivery, bool), Failure> {
    let slice = match feed.after(at, ENTRIES_AT_ONCE) {
        Ok(slice) if !is_lost => slice,
        _ => {
            let next = feed.now().map_err(|_| "the history is not loaded")?;
            let content = match webhook.shape {
                WebhookShape::Changes => Content::Sent(WebhookBody::Body(empty_body(
                    webhook,
                    "start_over",
                    &feed.position(next),
                ))),
                WebhookShape::Chat(chat) => {
                    let text = "Some changes were missed: this webhook was away for too long.";
                    Content::Sent(WebhookBody::Body(chat.message(text)))
                }
                WebhookShape::Cache(cache) => Content::Sent(WebhookBody::Keys(
                    cache,
                    vec![purges::whole(webhook.surface).to_owned()],
                )),
            };
            return Ok((Delivery { content, next }, false));
        }
    };
    // The state is no older than the slice.
    let stored = app.live_store.snapshot_full().ok_or("the store is not loaded")?;
    let content = match webhook.shape {
        WebhookShape::Cache(cache) => {
            let keys = purges::keys_of(&slice.entries, &app.config, &stored);
            if keys.is_empty() {
                Content::Nothing
            } else {
                Content::Sent(WebhookBody::Keys(cache, keys))
            }
        }
        WebhookShape::Changes | WebhookShape::Chat(_) => {
            let principal = reader(webhook, &stored)?;
            let events = slice.entries.iter().filter_map(|entry| {
                let event = entry.for_reader(&app.config, &stored, &principal)?;
                webhook.filter.admits(entry, event.kind).then_some(event)
            });
            let events: Vec<&[u8]> = events.map(Event::json).collect();
            match webhook.shape {
                _ if events.is_empty() => Content::Nothing,
                WebhookShape::Chat(chat) => {
                    Content::Sent(WebhookBody::Body(chat.message(&shapes::told(&events))))
                }
                _ => {
                    let body = body(webhook, &events, &feed.position(slice.up_to));
                    Content::Sent(WebhookBody::Body(body))
                }
            }
        }
    };
    Ok((Delivery { content, next: slice.up_to }, slice.has_more))
}

/// Whose rights decide what the webhook is told.
fn reader(webhook: &Webhook, stored: &Stored) -> Result<Principal, Failure> {
    let Some(name) = &webhook.user else { return Ok(Principal::Anonymous) };
    let unusable = |why: String| Failure::new("its user is not there, or may not log in", why);
    let user = stored.accounts.user(name).cloned();
    let user = user.ok_or_else(|| unusable(format!("there is no user `{name}`")))?;
    let user = Principal::on_the_machine(user).as_of(&stored.accounts, Timestamp::now());
    user.map_err(|refusal| unusable(refusal.to_string()))
}

/// The body with these changes.
fn body(webhook: &Webhook, changes: &[&[u8]], next: &str) -> Vec<u8> {
    let (name, surface) = (json!(webhook.name), json!(webhook.surface.name()));
    let mut body =
        format!("{{\"webhook\":{name},\"surface\":{surface},\"changes\":[\n").into_bytes();
    body.extend_from_slice(&changes.join(&b",\n"[..]));
    body.extend_from_slice(format!("],\n\"next\":{}}}\n", json!(next)).as_bytes());
    body
}

/// A body without changes, which says why it is sent.
fn empty_body(webhook: &Webhook, why: &str, next: &str) -> Vec<u8> {
    let (name, surface) = (&webhook.name, webhook.surface.name());
    let body = json!({"webhook": name, "surface": surface, why: true, "changes": [], "next": next});
    body.to_string().into_bytes()
}

/// Notes a failure, and waits before the next attempt.
async fn fail(app: &App, webhook: &Webhook, failure: Failure) {
    app.metrics.webhook_failed(&webhook.name);
    let error = failure.detail.clone();
    let (attempts, pause, is_another) = webhook.failed(failure, pause);
    // A repeated failure is not logged.
    if is_another {
        tracing::warn!(webhook = webhook.name, attempts, error, "changes cannot be delivered");
    }
    webhook.pause(pause).await;
}

/// Posts a signed delivery without changes, which says that it is a test. It neither contains nor changes the position of the
/// webhook.
///
/// # Errors
/// Why it did not arrive, or was not taken.
pub(crate) async fn test(app: &App, webhook: &Webhook) -> Result<(), Failure> {
    let sent = match webhook.shape {
        WebhookShape::Cache(cache) => WebhookBody::Keys(cache, vec!["larder-test".to_owned()]),
        WebhookShape::Chat(chat) => {
            WebhookBody::Body(chat.message("A test: changes will be told here."))
        }
        WebhookShape::Changes => {
            let position = webhook.state().position.ok_or("its task has not begun yet")?;
            WebhookBody::Body(empty_body(webhook, "test", &position))
        }
    };
    let name = format!("{}/test-{}", webhook.name, Timestamp::now().as_millisecond());
    attempt(app, webhook, &name, &sent).await
}

/// Sends once more what the webhook took: the same bytes under the same identifier, with a signature of now. The position stays.
///
/// # Errors
/// Why it did not arrive, or was not taken.
pub(crate) async fn send_again(
    app: &App,
    webhook: &Webhook,
    delivery: &NotedDelivery,
) -> Result<(), Failure> {
    let sent = delivery.sent.as_ref().ok_or("it is not kept, or was not taken")?;
    deliver(app, webhook, &delivery.name, sent).await
}

/// Sends something, and notes what became of it.
async fn deliver(
    app: &App,
    webhook: &Webhook,
    name: &str,
    sent: &WebhookBody,
) -> Result<(), Failure> {
    let outcome = attempt(app, webhook, name, sent).await;
    webhook.noted(name, sent, outcome.as_ref().err());
    outcome
}

async fn attempt(
    app: &App,
    webhook: &Webhook,
    name: &str,
    sent: &WebhookBody,
) -> Result<(), Failure> {
    match sent {
        WebhookBody::Body(body) => app.changes.webhooks.post(webhook, name, body.clone()).await,
        WebhookBody::Keys(cache, keys) => app.changes.webhooks.purge(webhook, *cache, keys).await,
    }
}

/// The pause after this many attempts: it doubles each time, and is shortened at random by up to half, so that webhooks which
/// failed together do not retry together.
fn pause(attempts: u32) -> Duration {
    let longest =
        RETRY_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(RETRY_MAX);
    let mut chance = [0; 2];
    // If there are no random bytes, the pause is not shortened.
    let _ = getrandom::fill(&mut chance);
    longest - longest.mul_f64(f64::from(u16::from_le_bytes(chance)) / f64::from(u16::MAX) / 2.0)
}

/// Keeps the position, and retries until that succeeds. Otherwise, after a restart, delivered changes would be sent again, and
/// a new webhook would miss changes.
async fn keep(app: &App, webhook: &Webhook, path: &Path, mut position: String) {
    if is_cache(webhook) {
        position = format!("{position} {}", made_with(app));
    }
    loop {
        let (path, text) = (path.to_owned(), position.clone());
        let outcome = tokio::task::spawn_blocking(move || write(&path, &text)).await;
        match outcome {
            Ok(Ok(())) => {
                webhook.succeeded();
                return;
            }
            Ok(Err(error)) => {
                fail(app, webhook, Failure::new(UNKEPT, error)).await;
            }
            Err(error) => fail(app, webhook, Failure::new(UNKEPT, error)).await,
        }
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let aside: PathBuf = path.with_extension("position.tmp");
    let mut file = std::fs::File::create(&aside)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    // A position that is cut short by a power failure would be useless.
    file.sync_all()?;
    std::fs::rename(aside, path)?;
    // The name must last, too: without it a webhook begins with what happens then.
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        for attempts in [1, 2, 3, 8, 9, 10, 100, u32::MAX] {
            let longest = RETRY_FIRST.saturating_mul(1 << (attempts - 1).min(16)).min(RETRY_MAX);
            for _ in 0..50 {
                let found = pause(attempts);
                assert!(found <= longest && found >= longest / 2, "{attempts}: {found:?}");
            }
        }
    }
}
