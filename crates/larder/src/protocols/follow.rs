//! `/+follow/`: records, blobs and what mirrors have, for servers that follow this one.
//!
//! a token -> the serial after which the follower lacks records -> [`Frame`]s without an end: pages of records from the store, and
//! `Whole` where they add up to a state. Each page is a transaction of its own, so a slow follower holds nothing. Only tokens of
//! administrators with the scope `server:follow` get everything: records have password hashes and the secret that logins are signed
//! with. Those of other users with this scope get what they may read ([`part`]).

mod part;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use account::{AuthMethod, Object, Portion, Principal, Scope, UserName};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use following::frame::{self, End, Frame, Hello, PartialCopy, Whole};
use following::{PartState, X_LARDER_PART, generation};
use futures_util::{Stream, stream};
use http::header::{AGE, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use pypi::ProjectName;
use pypi::upstream::MirrorPath;
use record::{Digest, Serial};
use resources::turns::blocking;
use store::blobs::BlobVerdict;
use store::records::{PagePosition, PageSize};
use store::{BlobError, ReadError};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::app::{App, FOLLOWERS_MAX, FOLLOWERS_PER_USER_MAX};
use crate::front::auth;
use crate::front::error::HttpError;
use crate::front::parameters::{parameters, parsed};
use crate::front::request::Parts;
use crate::front::respond::blob_range;
use crate::front::turns::in_turn;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::files::mirrored;
use crate::protocols::python::simple::mirrored::failed;
use crate::routes::{Route, Surface};

use self::part::StreamEnd;

/// How often a follower that gets nothing else hears that this server is there. It gives up after four times as long.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Records at a time.
const PAGE: PageSize =
    PageSize { records_max: frame::RECORDS_MAX, bytes_max: frame::RECORDS_BYTES_MAX };

/// `GET /+follow/records?after=N&identity=NAME&generation=N`
pub(crate) async fn list_records(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (principal, extent) = follower(app, head).await?;
    let [after, generation, followed] =
        parameters(head.uri.query(), ["after", "generation", "identity"])?;
    let after = after.ok_or_else(|| {
        HttpError::bad_request(
            "the parameter `after` is missing: expected a serial, 0 for all records",
        )
    })?;
    let after: Serial = after
        .parse()
        .map_err(|error: record::SerialError| HttpError::bad_request(format!("after: {error}")))?;
    let held = match extent {
        Extent::Everything => None,
        Extent::Part => held(head)?,
    };
    let theirs: u64 = parsed("generation", generation, "a whole number")?.unwrap_or_default();
    let own = generation::of(&app.store.records).await.map_err(|error| {
        tracing::error!("{error:#}");
        HttpError::unavailable("the store cannot be read now; it has been logged", 5)
    })?;
    let stored = app.stored()?;
    let identity = stored.identity.as_ref().and_then(|name| name.to_str().ok());
    let identity = identity.unwrap_or_default().to_owned();
    let serial = stored.serial;
    drop(stored);
    // A follower of this very store says so: its token was proved by it. One of another store finds that out by the answer.
    if theirs > own && followed.is_some_and(|followed| followed == identity) {
        let is_request = head.method == Method::GET;
        if is_request && app.following.is_none() {
            app.health.leave_behind();
        }
        let detail = format!(
            "this server is of generation {own} of its store, and a follower of generation {theirs} was promoted since: \
             follow that one"
        );
        return Err(HttpError::conflict(detail));
    }
    let mut response = if head.method == Method::HEAD {
        // Of no length, as that of a GET.
        Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()).into_response()
    } else {
        let place = FollowerSlot::take(app, &principal, extent)?;
        let hello = Hello {
            identity,
            generation: own,
            serial: serial.0,
            is_follower: app.following.is_some(),
            part: match extent {
                Extent::Everything => None,
                Extent::Part => {
                    Some(PartialCopy { has_open_articles: part::has_open_articles(&app.config) })
                }
            },
            primary_url: match &app.following {
                Some(following) => Some(following.primary_url(&app.config)),
                None => app.config.public_url.clone(),
            },
            version: version::VERSION.to_owned(),
        };
        let asked = FollowRequest { principal, extent, after, held };
        Body::from_stream(frames(app.clone(), asked, hello, place)).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(frame::MEDIA_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would gather frames before it sends them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// `GET /+follow/blobs/{digest}`
pub(crate) async fn read_blob(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let (principal, extent) = follower(app, head).await?;
    parameters::<0>(head.uri.query(), [])?;
    let digest: Digest = route.raw("{digest}").parse().map_err(HttpError::bad_request)?;
    let absent = || HttpError::not_found(format!("there is no blob {digest}"));
    if extent == Extent::Part {
        let stored = app.stored()?;
        let of = app.clone();
        let looking = blocking(move || part::names_blob(&stored, &principal, &of.config, digest));
        let looking = in_turn(&app.limits.making_answers[Surface::Server as usize], looking);
        if !looking.await? {
            return Err(absent());
        }
    }
    let blob = app.store.blobs.open_blob(digest).await.map_err(|error| {
        tracing::error!(%error, "a blob cannot be read for a follower");
        match error {
            BlobError::Damaged { .. } => HttpError::damaged("blob"),
            _ => HttpError::unavailable("the blob cannot be read now; it has been logged", 5),
        }
    })?;
    let Some(blob) = blob else {
        // The follower has its digest from a record, unless that was deleted since.
        if state::named_blobs::is_named(&app.store.records, digest).await.unwrap_or(false) {
            app.store.blobs.note(digest, BlobVerdict::Missing);
        }
        return Err(absent());
    };
    let mut response = blob_range(&blob, 0..blob.size_bytes());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `GET /+follow/mirrors/{user}/{index}/…`: what a mirror has at a path below it, from its cache or from upstream. 410 if upstream
/// does not have it; everything else that is no answer lets the follower ask upstream itself.
pub(crate) async fn read_mirrored(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let (principal, extent) = follower(app, head).await?;
    parameters::<0>(head.uri.query(), [])?;
    let ask = Ask::new(app.clone(), head.clone()).await?;
    let none = || HttpError::not_found("no mirror has anything at this path");
    let path = route.names_below(&["mirrors"]);
    let [user, index, kind, names @ ..] = path.as_slice() else { return Err(none()) };
    let stage = ask.stored.index.stage(&format!("{user}/{index}")).ok_or_else(none)?;
    if extent == Extent::Part && !stage.may_read(&principal, Portion::Whole) {
        return Err(none());
    }
    let mirror = app.python.mirrors.of(stage).ok_or_else(none)?;
    let project = match (kind.as_str(), names) {
        ("+simple", [name]) if name.is_empty() => None,
        ("+simple", [name]) => Some(ProjectName::normalize(name).map_err(|_| none())?),
        _ => {
            let place = match kind.as_str() {
                "+upstream" => MirrorPath::of_upstream(names),
                "+f" => MirrorPath::of_digest(names),
                "+e" => MirrorPath::of_external(names),
                _ => None,
            };
            return mirrored::for_follower(&ask, stage, place.ok_or_else(none)?).await;
        }
    };
    let is_forced = head.headers.get(CACHE_CONTROL).is_some_and(|it| it == "no-cache");
    let kept = app.python.mirrors.follower_page(&mirror, project, is_forced).await;
    let kept = kept.map_err(|trouble| failed(stage.name().as_str(), &trouble))?;
    let Some(kept) = kept else {
        let detail = "the upstream does not have it";
        return Err(HttpError::gone(detail));
    };
    let is_known = head.headers.get(IF_NONE_MATCH).is_some_and(|it| *it == *kept.etag);
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => mirrored::body_of(mirrors::Body::Held(kept.file), 0..kept.size_bytes),
    };
    let headers = response.headers_mut();
    headers.insert(AGE, kept.age.as_secs().into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let said = [(ETAG, Some(kept.etag)), (LAST_MODIFIED, kept.last_modified)];
    for (name, value) in said {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(serial) = kept.serial {
        headers.insert("x-pypi-last-serial", serial.into());
    }
    Ok(response)
}

/// What a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All records, secrets included.
    Everything,
    /// What its owner may read with it.
    Part,
}

/// The sender, and what they may copy.
async fn follower(app: &App, head: &Parts) -> Result<(Principal, Extent), HttpError> {
    if let Some(following) = app.primary_of_part() {
        let primary = following.primary_url(&app.config);
        return Err(HttpError::conflict(format!(
            "this server has a copy of what one token of {primary} opens, and knows no other: it cannot be followed. \
             Follow {primary}"
        )));
    }
    let principal = auth::principal(app, &head.headers).await?;
    let extent = may_follow(&principal)?;
    Ok((principal, extent))
}

fn may_follow(principal: &Principal) -> Result<Extent, HttpError> {
    let is_token = principal.identity().is_some_and(|it| matches!(it.means, AuthMethod::Token(_)));
    if is_token && principal.is_administrator(Scope::ServerFollow, Object::Server) {
        return Ok(Extent::Everything);
    }
    if is_token && principal.lack(Scope::ServerFollow, Object::Server).is_none() {
        return Ok(Extent::Part);
    }
    let reason = "a token with the scope `server:follow` may: all of it, if its user is an administrator, otherwise what \
                  that user may read";
    let purpose = "copy what is here";
    Err(auth::denied(principal, Scope::ServerFollow, Object::Server, purpose, reason))
}

/// What a follower has already of the part that it may read.
fn held(head: &Parts) -> Result<Option<PartState>, HttpError> {
    let value = head.headers.get(X_LARDER_PART).ok_or_else(|| {
        HttpError::bad_request(
            "the user of this token is no administrator, so it opens only what that user may read, and a follower says in \
             `X-Larder-Part` that it knows such copies: expected a later version of Larder, or a token of an administrator",
        )
    })?;
    let value = String::from_utf8_lossy(value.as_bytes());
    PartState::parse(&value).map_err(HttpError::bad_request)
}

/// A place among the servers that follow this one.
struct FollowerSlot {
    app: Arc<App>,
    /// Whose token it is, if that is no administrator.
    user: Option<UserName>,
    _place: OwnedSemaphorePermit,
}

impl FollowerSlot {
    fn take(
        app: &Arc<App>,
        principal: &Principal,
        extent: Extent,
    ) -> Result<FollowerSlot, HttpError> {
        let full = |count: usize, whose: &str| {
            HttpError::unavailable(format!("{count} servers follow this one already{whose}"), 30)
        };
        let (places, user) = match extent {
            Extent::Everything => (&app.limits.followers, None),
            Extent::Part => (&app.limits.followers_of_parts, principal.user_name().cloned()),
        };
        let place = places.clone().try_acquire_owned();
        let place = place.map_err(|_| full(FOLLOWERS_MAX, ""))?;
        if let Some(user) = &user
            && !app.limits.followers_of_users.enter(user)
        {
            return Err(full(FOLLOWERS_PER_USER_MAX, " with tokens of this user"));
        }
        app.metrics.followers.inc();
        Ok(FollowerSlot { app: app.clone(), user, _place: place })
    }
}

impl Drop for FollowerSlot {
    fn drop(&mut self) {
        self.app.metrics.followers.dec();
        if let Some(user) = &self.user {
            self.app.limits.followers_of_users.leave(user);
        }
    }
}

/// What a follower has asked for.
struct FollowRequest {
    principal: Principal,
    extent: Extent,
    after: Serial,
    held: Option<PartState>,
}

struct FollowerStream {
    app: Arc<App>,
    principal: Principal,
    at: PagePosition,
    ready: VecDeque<Frame>,
    accounts: watch::Receiver<u64>,
    /// Which dump of the AUR's packages there is.
    aur_dump: watch::Receiver<Option<u64>>,
    /// The state that the follower was told of last.
    told: Option<Serial>,
    /// The serial of the store after which nothing has come yet.
    waits_after: Option<Serial>,
    has_ended: bool,
    extent: Extent,
    /// What the follower has said of its part, until that is begun.
    held: Option<PartState>,
    part: Option<part::Part>,
    _place: FollowerSlot,
}

fn frames(
    app: Arc<App>,
    asked: FollowRequest,
    hello: Hello,
    place: FollowerSlot,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let accounts = app.changes.accounts.subscribe();
    let aur_dump = app.aur.deltas.number();
    let FollowRequest { principal, extent, after, held } = asked;
    let sending = FollowerStream {
        app,
        principal,
        at: PagePosition::after(after),
        ready: VecDeque::from([Frame::Hello(hello)]),
        accounts,
        aur_dump,
        told: None,
        waits_after: None,
        has_ended: false,
        extent,
        held,
        part: None,
        _place: place,
    };
    stream::unfold(Box::new(sending), |mut sending| async move {
        let frame = sending.next().await?;
        Some((Ok(frame.encode()), sending))
    })
}

impl FollowerStream {
    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.has_ended {
                return None;
            }
            // Whoever may copy no more gets nothing more.
            self.accounts.mark_unchanged();
            let stored = self.app.live_store.snapshot_full()?;
            let as_of = self.principal.as_of(&stored.accounts, Timestamp::now());
            drop(stored);
            match as_of.ok().filter(|principal| may_follow(principal).ok() == Some(self.extent)) {
                Some(principal) => self.principal = principal,
                None => {
                    self.end("the token holds no longer".to_owned());
                    continue;
                }
            }
            if self.extent == Extent::Part && self.part.is_none() {
                let (principal, held) = (self.principal.clone(), self.held.take());
                match part::Part::new(&self.app, principal, (self.at.serial, held)).await {
                    Ok(part) => self.part = Some(part),
                    Err(ended) => self.end_part(ended),
                }
                continue;
            }
            if let Some(serial) = self.waits_after.take() {
                self.wait(serial).await?;
                continue;
            }
            match self.app.store.records.page_after(&self.at, PAGE).await {
                Ok(page) => {
                    self.at = page.next.clone();
                    let (serial, is_last) = (page.serial, page.is_last);
                    let is_news = !page.records.is_empty();
                    match &mut self.part {
                        Some(part) => match part.take(&self.app, page).await {
                            Ok(frames) => self.ready.extend(frames),
                            Err(ended) => {
                                self.end_part(ended);
                                continue;
                            }
                        },
                        None if is_news => self.ready.push_back(Frame::Records(page.records)),
                        None => {}
                    }
                    if is_last && (is_news || self.told != Some(serial)) {
                        self.told = Some(serial);
                        let view = self.part.as_ref().map(part::Part::view);
                        self.ready.push_back(Frame::Whole(Whole { view, ..self.whole(serial) }));
                    }
                    match is_last {
                        true if self.ready.is_empty() => self.waits_after = Some(serial),
                        // Nothing of many pages may be for this follower.
                        false if self.ready.is_empty() => {
                            self.ready.push_back(Frame::Alive(self.whole(serial)));
                        }
                        _ => {}
                    }
                }
                Err(error) => self.end(reason(&error)),
            }
        }
    }

    fn whole(&self, serial: Serial) -> Whole {
        let known = self.app.following.as_ref().map(|it| it.link.state().primary_serial);
        let primary = known.unwrap_or(serial).max(serial);
        Whole {
            serial: serial.0,
            primary_serial: primary.0,
            aur_dump: *self.aur_dump.borrow(),
            view: None,
        }
    }

    fn end(&mut self, reason: String) {
        self.end_part(StreamEnd { reason, starts_over: false });
    }

    fn end_part(&mut self, StreamEnd { reason, starts_over }: StreamEnd) {
        self.ready.push_back(Frame::End(End { reason, starts_over }));
        self.has_ended = true;
    }

    /// Waits until there is something to look at, or time for a sign of life; nothing if the server stops.
    async fn wait(&mut self, serial: Serial) -> Option<()> {
        tokio::select! {
            () = self.app.changes.closing.cancelled() => return None,
            newer = self.app.store.records.wait(serial) => { newer?; }
            changed = self.accounts.changed() => changed.ok()?,
            _ = self.aur_dump.changed() => {
                self.ready.push_back(Frame::Alive(self.whole(serial)));
                self.waits_after = Some(serial);
            }
            () = tokio::time::sleep(ALIVE_INTERVAL) => {
                self.ready.push_back(Frame::Alive(self.whole(serial)));
                // The store has nothing new to read.
                self.waits_after = Some(serial);
            }
        }
        Some(())
    }
}

fn reason(error: &ReadError) -> String {
    tracing::warn!(%error, "the store cannot be read for a follower");
    "its store cannot be read now".to_owned()
}
