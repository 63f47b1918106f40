//! What a server that follows another one does not answer by itself: it sends such clients to the primary, or passes their
//! requests on. A copy of a part ([`Anonymous`]) answers only what everybody may read.
//!
//! The primary may trust this server as a proxy, and so believe what no client could tell it. So a request that is passed on has
//! only headers that mean the same from everybody ([`goes_on`]), what this server itself knows of the client, and
//! [`X_LARDER_HOPS`], with which no other server believes a user name.

use std::future::Future;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use config::FollowWrites;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, COOKIE, HeaderName, LOCATION,
    PROXY_AUTHENTICATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use net::causes;
use record::Serial;
use state::security;

use super::auth::{self, X_DEVPI_AUTH, X_LARDER_HOPS, is_named_by_proxy};
use super::error::HttpError;
use super::negotiation::has_any;
use super::outside::root_url;
use super::serial::X_LARDER_SERIAL;
use crate::app::App;
use crate::app::following::Following;
use crate::front::request::Parts;
use crate::routes::{Endpoint, Route, Surface, Tree};

/// How many servers pass a request on: a chain of followers is shorter, a circle is not.
const HOPS_MAX: u32 = 8;

/// How long the primary may be silent: without taking more of a request, or without a byte of its answer.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Headers of a request that the primary gets. All others stay here: they are between two machines, say where a request came
/// from, or may be what the primary, or a proxy in front of it, believes a proxy.
fn goes_on(name: &HeaderName) -> bool {
    [AUTHORIZATION, COOKIE, USER_AGENT, CACHE_CONTROL].contains(name)
        || ["accept", "access-control-request-", "content-", "if-", "x-devpi-", "x-larder-"]
            .iter()
            .any(|start| name.as_str().starts_with(start))
}

/// Headers of an answer that are between two machines.
fn stays_here(name: &HeaderName) -> bool {
    [CONNECTION, PROXY_AUTHENTICATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || ["keep-alive", "proxy-authentication-info", "proxy-connection"].contains(&name.as_str())
}

/// How many servers have passed a request on, this one included.
///
/// # Errors
/// 400 for what is no number; 503 for more than [`HOPS_MAX`].
fn hops(headers: &HeaderMap) -> Result<u32, HttpError> {
    // No server of ours sends it twice. Whoever does may only make the bound come sooner.
    let counts = headers.get_all(X_LARDER_HOPS).iter();
    let sum = counts
        .map(|value| value.to_str().ok()?.parse().ok())
        .try_fold(0_u32, |sum, count| Some(sum.saturating_add(count?)));
    let sum = sum.ok_or_else(|| {
        HttpError::bad_request("`X-Larder-Hops` is no whole number: expected one from a follower")
    })?;
    if sum >= HOPS_MAX {
        let detail = format!(
            "this request was passed on {sum} times, at most {HOPS_MAX} were expected: the servers follow each other in a \
             circle, and none of them is the primary"
        );
        return Err(HttpError::unavailable(detail, 60));
    }
    Ok(sum + 1)
}

/// The answer to a request that only the primary answers.
///
/// # Errors
/// The body, if this server answers it. Nothing of it was read.
pub(crate) async fn to_primary(
    app: &App,
    endpoint: Endpoint,
    head: &Parts,
    body: Body,
) -> Result<Response, Body> {
    match app.following.as_ref().filter(|_| endpoint.is_of_primary()) {
        Some(following) => Ok(by_primary(app, following, head, body).await),
        None => Err(body),
    }
}

/// The primary's answer, or the way to it.
async fn by_primary(app: &App, following: &Following, head: &Parts, body: Body) -> Response {
    match app.config.follow_writes {
        FollowWrites::Redirect => led(app, following, head),
        // The primary does not believe this server who a client is. Its own proxy may know it, too.
        FollowWrites::Forward if is_named_by_proxy(&head.headers) => led(app, following, head),
        FollowWrites::Forward => match Box::pin(forwarded(app, following, head, body)).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
    }
}

/// What a copy of a part answers by itself: what everybody may read. It knows no users, and what is not in it may be at the primary.
pub(crate) struct Anonymous<'app> {
    app: &'app App,
    following: &'app Following,
    head: Parts,
}

/// Who answers a request to a server that may have a copy of a part.
pub(crate) enum Answerer<'app> {
    /// This server, perhaps for [`Anonymous`].
    Here(Option<Box<Anonymous<'app>>>, Body),
    /// The primary: this is its answer, or the way to it.
    Primary(Response),
}

impl<'app> Anonymous<'app> {
    /// The request, if this server has a copy of a part, and it reads what is in the store without credentials. Every other request to
    /// such a store is the primary's.
    pub(crate) async fn admit(
        app: &'app App,
        endpoint: Endpoint,
        head: &Parts,
        body: Body,
    ) -> Answerer<'app> {
        let Some(following) = app.primary_of_part().filter(|_| endpoint.is_of_store()) else {
            return Answerer::Here(None, body);
        };
        if !may_answer(app, following, head) {
            return Answerer::Primary(by_primary(app, following, head, body).await);
        }
        Answerer::Here(Some(Box::new(Anonymous { app, following, head: head.clone() })), body)
    }

    /// The answer, if it is one; otherwise the primary's, which knows more.
    pub(crate) async fn settled(self, endpoint: Endpoint, response: Response) -> Response {
        let is_known = may_give(self.app, endpoint, &self.head, response.status());
        if is_known && !is_of_whole_store(endpoint, &self.head) {
            return response;
        }
        drop(response);
        by_primary(self.app, self.following, &self.head, Body::empty()).await
    }
}

/// Whether a copy of a part may answer this request at once, if it has the answer.
pub(crate) fn may_answer_at_once(app: &App, head: &Parts) -> bool {
    app.primary_of_part().is_none_or(|following| may_answer(app, following, head))
}

/// Whether the primary would give an answer of this status as well, if this is a copy of a part of it: what is missing in an index
/// that everybody reads, or among articles that everybody reads, is missing there, too.
pub(crate) fn may_give(app: &App, endpoint: Endpoint, head: &Parts, status: StatusCode) -> bool {
    let part = app.following.as_ref().and_then(|following| following.part);
    match (part, status) {
        (None, _) => true,
        (Some(_), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => false,
        (Some(part), StatusCode::NOT_FOUND) => match endpoint.surface() {
            Surface::Article => part.has_open_articles,
            Surface::Python => {
                let route = Route::find(Tree::Python, head.uri.path(), None);
                let stage = route.and_then(|route| route.stage().ok());
                let stored = app.live_store.snapshot();
                stage.zip(stored).is_some_and(|(name, it)| it.index.stage(name.as_str()).is_some())
            }
            _ => false,
        },
        _ => true,
    }
}

fn may_answer(app: &App, following: &Following, head: &Parts) -> bool {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method);
    let is_anonymous = !has_any(&head.headers, [&AUTHORIZATION, &X_DEVPI_AUTH])
        && auth::session::shown(app, head).is_none();
    is_safe && is_anonymous && !following.is_outdated.load(Relaxed)
}

/// Whether the endpoint needs what no copy of a part has: who did what, and the changes of everything.
fn is_of_whole_store(endpoint: Endpoint, head: &Parts) -> bool {
    match endpoint {
        Endpoint::ListChanges | Endpoint::ShowChangesAsAtom => {
            !head.uri.query().is_some_and(|query| query.split('&').any(|it| it == "surface=aur"))
        }
        Endpoint::ShowIndexLog | Endpoint::RunActions | Endpoint::CheckAccess => true,
        _ => false,
    }
}

/// The way to the primary. A client sends the body there.
fn led(app: &App, following: &Following, head: &Parts) -> Response {
    let primary = following.primary_url(&app.config);
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let text = format!(
        "this server is a read-only copy of {primary}: the same request there is answered, and this redirect leads to it\n"
    );
    let Ok(location) = HeaderValue::try_from(format!("{primary}{target}")) else {
        return HttpError::unavailable(text, 60).into_response();
    };
    let headers = [
        (LOCATION, location),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
    ];
    (StatusCode::TEMPORARY_REDIRECT, headers, text).into_response()
}

/// The primary's answer. Once a write is acknowledged, this server shows it, too, if it has it in time.
async fn forwarded(
    app: &App,
    following: &Following,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let hops = hops(&head.headers)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let url = format!("{}{target}", following.link.url);
    let mut headers = HeaderMap::with_capacity(head.headers.len() + 3);
    for (name, value) in head.headers.iter().filter(|(name, _)| goes_on(name)) {
        headers.append(name.clone(), value.clone());
    }
    headers.insert(X_LARDER_HOPS, hops.into());
    // The primary believes them if it trusts this server as a proxy.
    let root_url = root_url(app, head);
    for (name, value) in
        [("x-forwarded-for", security::client().to_string()), ("x-outside-url", root_url)]
    {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    let silence = Silence::default();
    let request = following.forwarding.request(head.method.clone(), url).headers(headers);
    let request = match body.is_end_stream() {
        true => request,
        false => request.body(reqwest::Body::wrap_stream(silence.breaks_with(body))),
    };
    let primary = following.primary_url(&app.config);
    let response = silence.bounds(SILENCE_MAX, request.send()).await.ok_or_else(|| {
        let seconds = SILENCE_MAX.as_secs();
        tracing::warn!(seconds, "the primary does not answer a request that was passed on");
        let detail = format!(
            "this server is a copy of {primary}, which has not answered for {seconds} s: whether it did what was asked \
             shows later"
        );
        HttpError::unavailable(detail, 5)
    })?;
    let response = response.map_err(|error| {
        let reason = causes(&error).last().map_or_else(|| error.to_string(), ToString::to_string);
        tracing::warn!(error = reason, "a request cannot be passed on to the primary");
        HttpError::unavailable(
            format!("this server is a copy of {primary}, which cannot be reached now: {reason}"),
            5,
        )
    })?;
    let (status, mut headers) = (response.status(), response.headers().clone());
    let between: Vec<HeaderName> =
        headers.keys().filter(|name| stays_here(name)).cloned().collect();
    between.iter().for_each(|name| drop(headers.remove(name)));
    if let Some(serial) = headers.get(X_LARDER_SERIAL).and_then(|value| value.to_str().ok())
        && let Ok(serial) = serial.parse::<Serial>()
    {
        let patience: Duration = app.config.store.wait_for_serial;
        app.live_store.wait_for(serial, patience).await;
    }
    let mut answer = Response::new(Body::from_stream(bounded(response, SILENCE_MAX)));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    Ok(answer)
}

/// The bytes of an answer, which ends with an error if there are none for so long.
fn bounded(
    response: reqwest::Response,
    longest: Duration,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    let bytes = Box::pin(response.bytes_stream());
    stream::unfold(Some(bytes), move |bytes| async move {
        let mut bytes = bytes?;
        match tokio::time::timeout(longest, bytes.next()).await {
            Ok(piece) => piece.map(|piece| (piece.map_err(std::io::Error::other), Some(bytes))),
            Err(silent) => Some((Err(silent.into()), None)),
        }
    })
}

/// How long the other side has taken nothing of a request. It is not to blame for a client that is slow.
#[derive(Clone)]
struct Silence(Arc<Mutex<Since>>);

#[derive(Clone, Copy)]
enum Since {
    /// The client sends.
    ClientsTurn,
    /// The other side has everything that there is, since then.
    TheirTurn(Instant),
}

impl Default for Silence {
    fn default() -> Silence {
        Silence(Arc::new(Mutex::new(Since::TheirTurn(Instant::now()))))
    }
}

impl Silence {
    fn set(&self, since: Since) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// The bytes of a body; each that is taken breaks the silence.
    fn breaks_with(
        &self,
        body: Body,
    ) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + use<> {
        let silence = self.clone();
        stream::unfold(body.into_data_stream(), move |mut bytes| {
            let silence = silence.clone();
            async move {
                silence.set(Since::ClientsTurn);
                let piece = bytes.next().await;
                silence.set(Since::TheirTurn(Instant::now()));
                Some((piece?, bytes))
            }
        })
    }

    /// The outcome of `answering`; `None` once the silence has lasted for so long.
    async fn bounds<T>(&self, longest: Duration, answering: impl Future<Output = T>) -> Option<T> {
        let silent = async {
            loop {
                let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let left = match since {
                    Since::ClientsTurn => longest,
                    Since::TheirTurn(since) => longest.saturating_sub(since.elapsed()),
                };
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        };
        tokio::select! {
            biased;
            answer = answering => Some(answer),
            () = silent => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn only_headers_that_mean_the_same_from_everybody_go_on() {
        let passes = |name: &str| goes_on(&name.parse().expect("a name"));
        for name in [
            "authorization",
            "x-devpi-auth",
            "cookie",
            "content-type",
            "content-length",
            "content-encoding",
            "accept",
            "accept-language",
            "if-match",
            "user-agent",
            "x-larder-serial",
        ] {
            assert!(passes(name), "{name}");
        }
        for name in [
            "x-remote-user",
            "x-remote-groups",
            "remote-user",
            "x-forwarded-for",
            "x-forwarded-user",
            "x-forwarded-prefix",
            "x-client-of-ours",
            "x-real-ip",
            "x-outside-url",
            "forwarded",
            "host",
            "origin",
            "connection",
            "proxy-authorization",
            "te",
            "transfer-encoding",
            "apikey",
        ] {
            assert!(!passes(name), "{name}");
        }
    }

    #[test]
    fn who_passes_a_request_on_is_counted() {
        let check = |values: &[&'static str], expected: Result<u32, u16>| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| {
                headers.append(X_LARDER_HOPS, HeaderValue::from_static(value));
            });
            let found = hops(&headers).map_err(|error| error.status().as_u16());
            assert_eq!(found, expected, "{values:?}");
        };
        check(&[], Ok(1));
        check(&["1"], Ok(2));
        check(&["7"], Ok(8));
        check(&["8"], Err(503));
        check(&["4294967295"], Err(503));
        check(&["4", "4294967295"], Err(503));
        check(&["4", "2"], Ok(7));
        for value in ["", "-1", "x", "1, 1", "4294967296", "0x1"] {
            check(&[value], Err(400));
        }
    }

    #[tokio::test]
    async fn a_silent_primary_is_not_waited_for_but_a_slow_client_is() {
        let moment = Duration::from_millis(20);
        assert_eq!(Silence::default().bounds(moment, async { 7 }).await, Some(7));
        assert_eq!(Silence::default().bounds(moment, pending::<()>()).await, None);
        // The primary takes a body, and says nothing after its end.
        let silence = Silence::default();
        let mut taken = Box::pin(silence.breaks_with(Body::from("bytes")));
        let answering = async {
            while taken.next().await.is_some() {}
            pending::<()>().await;
        };
        assert_eq!(silence.bounds(moment, answering).await, None);
        // A client that sends nothing for longer is cut by the connection's own bound.
        let silence = Silence::default();
        let body = Body::from_stream(stream::once(async move {
            tokio::time::sleep(moment * 5).await;
            Ok::<_, std::io::Error>("late")
        }));
        let mut taken = Box::pin(silence.breaks_with(body));
        let answering = async { taken.next().await.is_some() };
        assert_eq!(silence.bounds(moment, answering).await, Some(true));
    }
}
