//! `/changes`: what changed on a surface, as lines of JSON or as events that go on.
//!
//! surface, position -> [`crate::published::changes::Feed`] -> the entries that the sender may read -> lines, or a
//! [`stream`](stream::stream) of server-sent events. A position that is not in the history is answered with 410, or, where a
//! browser connects again with it, with the event `start-over`.

mod atom;
mod history;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;

use account::{Object, Principal, Scope};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use record::Serial;
use reply::Reply;
use serde_json::{Map, Value, json};
use state::security;

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::negotiation::prefers;
use crate::front::parameters::{parameters, parsed};
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};
use crate::front::{auth, serial, turns};
use crate::published::changes::{
    Feed, FeedPosition, FeedSurface, LostPosition, SubscriptionRefusal,
};
use crate::routes::Surface;

pub(crate) use self::history::{Histories, list_package_histories, show_package_history};

/// The position of a browser that connects again.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const LAST_EVENT: &str = "Last-Event-ID";

/// Lines in an answer, where the request names no other number, and at most. A commit is never split, so there may be more.
const LINES: (usize, usize) = (1_000, 10_000);

/// The media type of lines of JSON.
const JSON_LINES: &str = "application/x-ndjson";

/// The media type of events.
const EVENTS: &str = "text/event-stream";

/// `GET /changes`.
pub(crate) async fn list_changes(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let [surface, since, limit] = parameters(head.uri.query(), ["surface", "since", "limit"])?;
    let wants_stream = wants_stream(&head.headers);
    let Some(surface) = surface else {
        if wants_stream || since.is_some() {
            return Err(no_surface("the parameter `surface` is missing"));
        }
        return Ok(list_feeds(app, head).await);
    };
    let surface = parse_surface(app, &surface)?;
    let principal = reader(app, &head.headers, surface).await?;
    if surface != FeedSurface::Aur {
        serial::wait_for_seen(app, &head.headers).await?;
    }
    let last_event_id = head.headers.get(LAST_EVENT_ID).filter(|_| wants_stream);
    let given = match last_event_id {
        Some(value) => Some((LAST_EVENT, String::from_utf8_lossy(value.as_bytes()))),
        None => since.as_deref().map(|since| ("since", since.into())),
    };
    let feed = loaded(app, surface).await;
    let now = || feed.now().map_err(|lost| refused(feed, &lost, ""));
    let from = match given {
        None => now()?,
        Some((name, text)) => match (positioned(app, feed, surface, name, &text).await, name) {
            (Ok(from), _) => from,
            // A browser asks no more after an error, and tells its page nothing: it is told in an event.
            (Err(error), LAST_EVENT) if error.status().is_client_error() => {
                return follow(app, head, surface, principal, now()?, true);
            }
            (Err(error), _) => return Err(error),
        },
    };
    if wants_stream {
        return follow(app, head, surface, principal, from, false);
    }
    let expected = format!("a whole number from 1 to {}", LINES.1);
    let limit = parsed::<usize>("limit", limit, &expected)?.unwrap_or(LINES.0);
    if !(1..=LINES.1).contains(&limit) {
        let detail = format!("`{limit}` is no value of the parameter `limit`: expected {expected}");
        return Err(HttpError::bad_request(detail));
    }
    let making = lines(app, head, feed, &principal, from, limit);
    if limit <= LINES.0 {
        return making.await;
    }
    // Many changes take a while to put together.
    turns::in_turn(&app.limits.making_answers[Surface::Server as usize], Box::pin(making)).await?
}

/// `GET /changes.atom`.
pub(crate) async fn show_changes_as_atom(
    app: &Arc<App>,
    head: &Parts,
) -> Result<Response, HttpError> {
    let [surface] = parameters(head.uri.query(), ["surface"])?;
    // Without a surface in the request, the first that is served.
    let first = || FeedSurface::ALL.into_iter().find(|surface| is_served(app, *surface));
    let surface = match surface {
        Some(surface) => parse_surface(app, &surface)?,
        None => first().ok_or_else(|| HttpError::not_found("no surface is served here"))?,
    };
    let principal = reader(app, &head.headers, surface).await?;
    let feed = loaded(app, surface).await;
    feed.now().map_err(|lost| refused(feed, &lost, ""))?;
    let stored = app.stored()?;
    let root = crate::front::outside::root_url(app, head);
    let body = atom::render(app, feed, surface, &stored, &principal, &root);
    let conditions = Conditions::of(&head.method, &head.headers);
    let reply = Reply::tagged("application/atom+xml; charset=utf-8", body);
    let mut response = respond(reply, StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// Whether the client asks for events rather than for lines.
fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| prefers(accept, EVENTS, JSON_LINES))
}

fn no_surface(problem: &str) -> HttpError {
    let names = FeedSurface::ALL.map(FeedSurface::name).join(", ");
    HttpError::bad_request(format!("{problem}: expected one of {names}"))
}

fn parse_surface(app: &App, name: &str) -> Result<FeedSurface, HttpError> {
    let surface = FeedSurface::ALL.into_iter().find(|surface| surface.name() == name);
    let surface =
        surface.ok_or_else(|| no_surface(&format!("`{name}` is no value of `surface`")))?;
    match is_served(app, surface) {
        true => Ok(surface),
        false => Err(HttpError::not_found(format!("the surface `{name}` is not served here"))),
    }
}

pub(crate) fn is_served(app: &App, surface: FeedSurface) -> bool {
    match surface {
        FeedSurface::Aur => app.aur.is_on(),
        FeedSurface::Python => app.config.python.enabled,
        FeedSurface::Articles => app.config.article.enabled,
    }
}

/// The sender. The right to read is checked for each change.
///
/// # Errors
/// 401 for invalid credentials, and for anonymous senders who may read nothing.
async fn reader(
    app: &App,
    headers: &HeaderMap,
    surface: FeedSurface,
) -> Result<Principal, HttpError> {
    if surface == FeedSurface::Aur {
        return Ok(Principal::Anonymous);
    }
    let principal = auth::principal(app, headers).await?;
    if surface == FeedSurface::Articles && !app.articles.is_open && principal.identity().is_none() {
        let object = Object::Articles("");
        return Err(auth::denied(&principal, Scope::ArticleRead, object, "read articles", ""));
    }
    Ok(principal)
}

/// The feed of a surface, up to the published state: the feed gets a commit shortly after it is published, and a client that
/// was told of its write must find it here.
pub(crate) async fn loaded(app: &App, surface: FeedSurface) -> &Feed {
    let feed = app.changes.feed(surface);
    let served = match surface {
        FeedSurface::Aur => None,
        FeedSurface::Python | FeedSurface::Articles => {
            app.live_store.snapshot().map(|stored| stored.serial)
        }
    };
    let waiting = async {
        feed.loaded().await;
        if let Some(serial) = served {
            feed.reached(serial).await;
        }
    };
    let mut failing = app.changes.aur_failing.subscribe();
    let failing = async {
        match surface {
            FeedSurface::Aur => drop(failing.wait_for(Option::is_some).await),
            FeedSurface::Python | FeedSurface::Articles => std::future::pending().await,
        }
    };
    // If this fails or takes too long, the caller's look at the feed tells.
    tokio::select! {
        biased;
        () = waiting => {}
        () = failing => {}
        () = tokio::time::sleep(app.config.store.wait_for_serial) => {}
    }
    feed
}

/// The serial of the position that a client names.
///
/// # Errors
/// 400 for what is no position, 410 for one that is not in the history.
async fn positioned(
    app: &App,
    feed: &Feed,
    surface: FeedSurface,
    name: &str,
    text: &str,
) -> Result<Serial, HttpError> {
    let position = text.parse::<FeedPosition>().map_err(|()| {
        let expected = "a serial, or a `next` of an earlier answer";
        let detail = format!("`{text}` is no position for `{name}`: expected {expected}");
        HttpError::bad_request(detail)
    })?;
    found(app, feed, surface, &position, text).await
}

/// The serial of a position. One that this process has yet to see is waited for.
async fn found(
    app: &App,
    feed: &Feed,
    surface: FeedSurface,
    position: &FeedPosition,
    text: &str,
) -> Result<Serial, HttpError> {
    let mut outcome = feed.find(position);
    if outcome == Err(LostPosition::Ahead) && surface != FeedSurface::Aur {
        let reached = feed.reached(position.serial);
        // If this times out, the second look tells.
        let _ = tokio::time::timeout(app.config.store.wait_for_serial, reached).await;
        outcome = feed.find(position);
        // Another process may have committed this serial, and this process has not read it yet.
        if outcome == Err(LostPosition::Ahead)
            && app.store.records.serial().await.is_ok_and(|serial| serial >= position.serial)
        {
            let detail = format!("this process does not have serial {} yet", position.serial);
            return Err(HttpError::unavailable(detail, 1));
        }
    }
    outcome.map_err(|lost| refused(feed, &lost, text))
}

/// The answer to a client whose position is of no use.
fn refused(feed: &Feed, lost: &LostPosition, position: &str) -> HttpError {
    let (oldest, oldest_position) = feed.oldest();
    let what = match lost {
        LostPosition::NotLoaded => {
            return HttpError::unavailable("the history of this surface is not loaded yet", 1);
        }
        LostPosition::TooOld => "is older than the history",
        LostPosition::OfAnother => "is of another history",
        LostPosition::Ahead => "was never reached by this history",
    };
    let detail = format!(
        "start over: the position `{position}` {what}, whose oldest serial is {oldest}; ask without `since` for the \
         current position, list everything, and then follow from that position"
    );
    let mut members = Map::new();
    members.insert("oldest".to_owned(), json!(oldest.0));
    members.insert("oldest_position".to_owned(), json!(oldest_position));
    HttpError::gone(detail).with(members)
}

/// The feeds that are served, each with its positions.
async fn list_feeds(app: &App, head: &Parts) -> Response {
    let mut body = Vec::new();
    for surface in FeedSurface::ALL.into_iter().filter(|surface| is_served(app, *surface)) {
        let feed = app.changes.feed(surface);
        let Ok(now) = feed.now() else { continue };
        let (_, oldest) = feed.oldest();
        let line = json!({"surface": surface.name(), "oldest": oldest, "next": feed.position(now)});
        body.extend_from_slice(line.to_string().as_bytes());
        body.push(b'\n');
    }
    answer(head, body.into()).await
}

/// The changes after a serial, and from where to go on.
async fn lines(
    app: &App,
    head: &Parts,
    feed: &Feed,
    principal: &Principal,
    from: Serial,
    limit: usize,
) -> Result<Response, HttpError> {
    let mut body = Vec::new();
    let (mut at, mut left, mut has_more) = (from, limit, true);
    while has_more && left > 0 {
        let slice = feed.after(at, left).map_err(|lost| refused(feed, &lost, &at.to_string()))?;
        // The state is at least as new as the slice, so it has everything that the changes mention.
        let stored = app.stored()?;
        for entry in &slice.entries {
            if let Some(event) = entry.for_reader(&app.config, &stored, principal) {
                body.extend_from_slice(&event.line());
                left = left.saturating_sub(1);
            }
        }
        (at, has_more) = (slice.up_to, slice.has_more);
    }
    let next: Value = json!({"next": feed.position(at), "more": has_more});
    body.extend_from_slice(next.to_string().as_bytes());
    body.push(b'\n');
    Ok(answer(head, body.into()).await)
}

async fn answer(head: &Parts, body: Bytes) -> Response {
    let conditions = Conditions::of(&head.method, &head.headers);
    let mut response = respond(Reply::untagged(JSON_LINES, body), StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Begins a stream of events. `is_lost`: the client does not know what was before, and is told so.
fn follow(
    app: &Arc<App>,
    head: &Parts,
    surface: FeedSurface,
    principal: Principal,
    from: Serial,
    is_lost: bool,
) -> Result<Response, HttpError> {
    let mut response = if head.method == Method::HEAD {
        // Of no length, as that of a GET.
        Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>())
            .into_response()
    } else {
        let place = app.changes.subscribers.add(security::client().key());
        let place = place.map_err(|refused| match refused {
            SubscriptionRefusal::All(max) => HttpError::unavailable(
                format!("{max} clients follow a feed already (changes.subscribers_max)"),
                30,
            ),
            SubscriptionRefusal::Client(max) => HttpError::too_many(
                format!(
                    "this client follows a feed on {max} connections already \
                     (changes.subscribers_per_client_max)"
                ),
                30,
            ),
        })?;
        Body::from_stream(stream::stream(app.clone(), surface, principal, (from, is_lost), place))
            .into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would gather events before it sends them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}
