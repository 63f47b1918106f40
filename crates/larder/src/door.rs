//! The one door to everything that is answered: from a request to its handler, and back.
//!
//! What is in memory is answered at once ([`Quick`]). Every other request is looked up in the table ([`RoutedRequest`]), and the handler
//! of its endpoint is called. [`Finish`] ends both. The paths are in [`crate::routes`]; `docs/urls.md` is the same table for
//! users.

mod handlers;
mod python;
mod routed_request;

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, COOKIE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use net::{Answered, Peer};
use state::security;

use crate::app::App;
use crate::front::copies::{Anonymous, Answerer};
use crate::front::error::HttpError;
use crate::front::negotiation::has_any;
use crate::front::page::{self, Site};
use crate::front::request::Parts;
use crate::front::{auth, body, cdn, copies, cors, respond, serial, target, turns};
use crate::metrics::Stopwatch;
use crate::people;
use crate::protocols::python::simple;
use crate::protocols::{self, admin, articles, aur};
use crate::routes::{Endpoint, Tree};

use self::routed_request::{RouteTarget, RoutedRequest};

/// The door of a listener.
pub(crate) struct Door {
    app: Arc<App>,
    tree: Tree,
}

impl Door {
    /// The door of the main listeners.
    pub(crate) fn main(app: Arc<App>) -> Arc<Door> {
        Arc::new(Door { app, tree: Tree::Main })
    }

    /// The door of the admin listener.
    pub(crate) fn admin(app: Arc<App>) -> Arc<Door> {
        Arc::new(Door { app, tree: Tree::Admin })
    }
}

impl net::Door for Door {
    fn answer(&self, head: http::request::Parts, body: Option<Body>, peer: &Peer) -> Answered {
        let mut head = Parts::new(head, *peer);
        if self.tree == Tree::Main {
            auth::take_proxys(&self.app, &mut head);
        }
        if let Some(answered) = self.answer_at_once(&head, body.is_none()) {
            return answered;
        }
        let root_path = match self.tree {
            Tree::Main => target::settle(&self.app, &mut head),
            _ => String::new(),
        };
        let body = body.unwrap_or_default();
        let answering = answer_later(self.app.clone(), self.tree, root_path, head, body);
        Answered::Later(Box::pin(answering))
    }
}

impl Door {
    /// The answer to one of nearly all requests, if it is in memory.
    fn answer_at_once(&self, head: &Parts, is_bodiless: bool) -> Option<Answered> {
        if !is_bodiless || head.method != Method::GET || self.tree != Tree::Main {
            return None;
        }
        let app = &self.app;
        let quick = Quick::of(app, head.uri.path())?;
        let is_of_part = app.primary_of_part().is_some() && !matches!(quick, Quick::Question);
        if is_of_part && !copies::may_answer_at_once(app, head) {
            return None;
        }
        let may_be_for_people =
            matches!(quick, Quick::Article(_)) || has_any(&head.headers, [&COOKIE]);
        let is_for_people = may_be_for_people && page::wants_page(&head.headers);
        // A page for a user who is logged in is theirs alone. This process may not have read yet what they have just written in
        // another.
        if is_for_people && auth::session::shown(app, head).is_some() {
            return None;
        }
        let endpoint = quick.endpoint();
        let stopwatch = Stopwatch::start_sampled();
        // The compiler does not see that no answer is left half made: a panic loses all of it.
        let found = catch_unwind(AssertUnwindSafe(|| quick.answer(app, head, is_for_people)));
        let answered = found.unwrap_or_else(|cause| Some(Answered::Now(panicked(cause))))?;
        if is_of_part && !is_final(app, endpoint, head, &answered) {
            return None;
        }
        let may_open = cors::may_open(app, endpoint);
        let page = if may_open { cors::Page::of(app, &head.headers) } else { None };
        let tags = cdn::Tags::of(app, head);
        let finish = Finish { endpoint, stopwatch, page, asks_first: false, tags };
        let site = || site_of_browser(app, head);
        let mut answered = match answered {
            Answered::Later(answering) => {
                let (app, site) = (app.clone(), site());
                return Some(Answered::Later(Box::pin(async move {
                    let answering = answering.map(|response| (endpoint, response));
                    let (_, mut response) = survived(endpoint, answering).await;
                    finish.apply(&app, &mut response, || site);
                    response
                })));
            }
            answered => answered,
        };
        if let Answered::Now(response) | Answered::Finished(response) = &mut answered {
            finish.apply(app, response, site);
        }
        Some(answered)
    }
}

/// Whether a copy of a part has an answer that its primary would give as well.
fn is_final(app: &App, endpoint: Endpoint, head: &Parts, answered: &Answered) -> bool {
    match answered {
        Answered::Now(response) | Answered::Finished(response) => {
            copies::may_give(app, endpoint, head, response.status())
        }
        Answered::Later(_) => false,
    }
}

/// The three kinds of paths that nearly all requests ask for. They are recognised before the table is searched.
enum Quick<'path> {
    Question,
    Article(&'path str),
    SimplePage { stage: &'path str, project: &'path str },
}

impl<'path> Quick<'path> {
    fn of(app: &App, path: &'path str) -> Option<Quick<'path>> {
        let config = &app.config;
        if let Some(rest) = path.strip_prefix("/article/") {
            return config.article.enabled.then_some(Quick::Article(rest));
        }
        if aur::is_question(path) {
            return app.aur.is_on().then_some(Quick::Question);
        }
        let (stage, project) = simple::simple_page(path).filter(|_| config.python.enabled)?;
        Some(Quick::SimplePage { stage, project })
    }

    fn endpoint(&self) -> Endpoint {
        match self {
            Quick::Question => Endpoint::AnswerQuestion,
            Quick::Article(_) => Endpoint::ReadArticle,
            Quick::SimplePage { .. } => Endpoint::ShowSimplePage,
        }
    }

    /// The answer to this GET; None if it is not in memory, or needs a closer look at the request.
    fn answer(&self, app: &Arc<App>, head: &Parts, is_for_people: bool) -> Option<Answered> {
        match *self {
            Quick::Question => aur::answer_question_now(app, head),
            Quick::Article(rest) if is_for_people => {
                people::articles::read_article_now(app, head, rest)
            }
            Quick::Article(rest) => articles::read_article_now(app, head, rest, false),
            Quick::SimplePage { stage, project } => {
                simple::show_simple_page_now(app, head, stage, project)
            }
        }
    }
}

/// This server as a browser sees it, and the page that the browser shows, so that it returns there after logging in.
fn site_of_browser(app: &App, head: &Parts) -> Option<Site> {
    let site = Site::of_browser(app, head)?;
    // A browser that remembers a password sends it, even if it is no longer valid, until the server asks for another one.
    let has_password = head.headers.contains_key(AUTHORIZATION);
    let comes_back = !has_password && !protocols::python::is_installer(&head.headers);
    Some(if comes_back { site } else { site.without_place() })
}

/// Answers what is not in memory, even if the handler panics. Paths of this server begin with `root_path` for the client.
async fn answer_later(
    app: Arc<App>,
    tree: Tree,
    root_path: String,
    mut head: Parts,
    body: Body,
) -> Response {
    let stopwatch = Stopwatch::start();
    let client = body::client(&app, &head);
    let page = cors::Page::of(&app, &head.headers);
    let asks_first = head.method == Method::OPTIONS;
    let is_head = head.method == Method::HEAD;
    let tags = cdn::Tags::of(&app, &head);
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let mut begun = None;
    let (endpoint, mut response, site, session) = match tree {
        Tree::Admin => {
            let answering = survived(Endpoint::FindNothingForAdmins, admin::answer(&app, &head));
            let (endpoint, response) = security::of_request(client, answering).await;
            (endpoint, response, None, None)
        }
        _ => {
            let routed = RoutedRequest::of(&app, &head);
            // Before anything is taken from the store, the session among it.
            let seen = match routed.waits() {
                true => serial::wait_for_seen(&app, &head.headers).await,
                false => Ok(()),
            };
            if is_read {
                begun = serial::of_published(&app);
            }
            let is_page = page::wants_page(&head.headers);
            // A copy of a part knows no sessions. The primary does.
            let session = match app.primary_of_part() {
                Some(_) => None,
                None => auth::session::note(&app, &mut head, is_page).await,
            };
            let site = site_of_browser(&app, &head);
            // Boxed: it would be moved from one future into the next, and it is the largest.
            let answering =
                Box::pin(survived(routed.endpoint, call_handler(&app, routed, seen, head, body)));
            let (endpoint, response) = security::of_request(client, answering).await;
            (endpoint, response, site, session)
        }
    };
    lead_outside(response.headers_mut(), &root_path);
    Finish { endpoint, stopwatch, page, asks_first, tags }.apply(&app, &mut response, || site);
    // The page of an error names its reader, too.
    if let Some(session) = session {
        session.finish(response.headers_mut());
    }
    respond::guard(response.headers_mut());
    serial::complete(&app, endpoint, begun, response.headers_mut());
    let length = response.body().size_hint().exact();
    if let Some(length) = length.filter(|_| !response.headers().contains_key(CONTENT_LENGTH)) {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    if is_head {
        // A body of unknown length stays one: no other length may be named (RFC 9110, 8.6).
        *response.body_mut() = match length {
            Some(_) => Body::empty(),
            None => Body::from_stream(futures_util::stream::empty::<Result<Bytes, Infallible>>()),
        };
    }
    response
}

/// The answer to a request to the main listener, and the endpoint that gave it. `seen`: whether the state is as new as the client
/// has seen.
async fn call_handler(
    app: &Arc<App>,
    RoutedRequest { endpoint, target }: RoutedRequest,
    seen: Result<(), HttpError>,
    head: Parts,
    body: Body,
) -> (Endpoint, Response) {
    let admitted = seen
        .and_then(|()| auth::refuse_foreign_pages(app, &head, endpoint))
        .and_then(|()| body::check_coding(&head.headers, &body));
    if let Err(refused) = admitted {
        return (endpoint, refused.into_response());
    }
    let target = match target {
        // Preflights among them, of which a browser follows no redirect.
        RouteTarget::Answer(answer) if head.method == Method::OPTIONS => return (endpoint, answer),
        target => target,
    };
    let body = match copies::to_primary(app, endpoint, &head, body).await {
        Ok(response) => return (endpoint, response),
        Err(body) => body,
    };
    // A copy of a part lets the primary answer what it does not know. Boxed, so that the futures of other requests stay small.
    let (anonymous, body) = match app.primary_of_part() {
        None => (None, body),
        Some(_) => match Box::pin(Anonymous::admit(app, endpoint, &head, body)).await {
            Answerer::Here(anonymous, body) => (anonymous, body),
            Answerer::Primary(response) => return (endpoint, response),
        },
    };
    let (endpoint, response) = match target {
        RouteTarget::Handler(route) => {
            let calling = handlers::call(app, endpoint, &route, &head, body);
            let outcome = match endpoint.looks_through_all() {
                true => {
                    let share = &app.limits.making_answers[endpoint.surface() as usize];
                    Box::pin(turns::in_turn(share, calling)).await.and_then(|outcome| outcome)
                }
                false => calling.await,
            };
            (endpoint, outcome.unwrap_or_else(HttpError::into_response))
        }
        // Boxed as well.
        RouteTarget::Python => Box::pin(python::call(app, head, body)).await,
        RouteTarget::Answer(answer) => (endpoint, answer),
    };
    match anonymous {
        None => (endpoint, response),
        Some(anonymous) => (endpoint, Box::pin(anonymous.settled(endpoint, response)).await),
    }
}

/// Makes a `Location` that is a path of this server one that the client reaches: handlers do not know what is in front of it.
fn lead_outside(headers: &mut HeaderMap, root_path: &str) {
    if root_path.is_empty() {
        return;
    }
    let Some(location) = headers.get_mut(LOCATION) else { return };
    let is_path = |bytes: &[u8]| bytes.starts_with(b"/") && !bytes.starts_with(b"//");
    if is_path(location.as_bytes())
        && let Ok(below) =
            HeaderValue::from_bytes(&[root_path.as_bytes(), location.as_bytes()].concat())
    {
        *location = below;
    }
}

/// An answer and the endpoint that gave it; if it panics, 500 in the name of `endpoint`.
async fn survived(
    endpoint: Endpoint,
    answering: impl Future<Output = (Endpoint, Response)>,
) -> (Endpoint, Response) {
    let outcome = AssertUnwindSafe(answering).catch_unwind().await;
    outcome.unwrap_or_else(|cause| (endpoint, panicked(cause)))
}

/// The last step of every request: headers, the error page for a browser, and the metrics.
struct Finish {
    endpoint: Endpoint,
    stopwatch: Stopwatch,
    /// The page that sent the request.
    page: Option<cors::Page>,
    /// Whether the request may be a preflight.
    asks_first: bool,
    /// What shared caches are told; in a box, as nearly no request has any.
    tags: Option<Box<cdn::Tags>>,
}

impl Finish {
    /// Completes the response, which is a 500 if that panics, and counts the request.
    fn apply(self, app: &App, response: &mut Response, site: impl FnOnce() -> Option<Site>) {
        let (endpoint, stopwatch) = (self.endpoint, self.stopwatch);
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| self.complete(app, response, site))) {
            *response = panicked(cause);
        }
        app.metrics.responded(endpoint, response.status(), stopwatch);
    }

    /// Adds the headers that all answers of the endpoint have, and turns an error into a page for a browser (`site`).
    fn complete(self, app: &App, response: &mut Response, site: impl FnOnce() -> Option<Site>) {
        let headers = response.headers_mut();
        match self.endpoint {
            Endpoint::ListTokens
            | Endpoint::CreateToken
            | Endpoint::RevokeToken
            | Endpoint::RevokeFoundTokens => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            _ => {}
        }
        if response.status().as_u16() >= 400 {
            let is_problem = page::is_problem(response);
            if is_problem {
                page::insert_vary(response.headers_mut());
            }
            let is_for_page = is_problem || response.status() == StatusCode::UNAUTHORIZED;
            if is_for_page && let Some(site) = site() {
                // A proxy that asks on behalf of a browser passes the question for a password on.
                if self.endpoint != Endpoint::CheckAccess {
                    page::ask_by_form(&site, response);
                }
                if is_problem {
                    *response = page::for_browser(&site, std::mem::take(response));
                }
            }
        }
        if let Some(tags) = self.tags {
            tags.mark(app, response.status(), response.headers_mut());
        }
        cors::open(app, self.endpoint, self.page.as_ref(), self.asks_first, response);
    }
}

fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let cause = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(cause, "a request handler panicked");
    HttpError::internal("an internal error; it has been logged").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a request, its last step included, is 500, and counted as one.
    async fn check(
        answering: impl Future<Output = (Endpoint, Response)>,
        site: impl FnOnce() -> Option<Site>,
    ) {
        let (app, _directory) = App::for_test().await;
        let (endpoint, mut response) = survived(Endpoint::ShowDocs, answering).await;
        let stopwatch = Stopwatch::start();
        let finish = Finish { endpoint, stopwatch, page: None, asks_first: false, tags: None };
        finish.apply(&app, &mut response, site);
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let metrics = String::from_utf8(app.metrics.render()).expect("text");
        let line = "larder_http_requests_total{status=\"500\",surface=\"server\"} 1\n";
        assert!(metrics.contains(line), "{metrics}");
    }

    #[tokio::test]
    async fn a_panic_is_a_500_and_counted_as_one() {
        check(async { panic!("a handler that panics") }, || None).await;
        let missing = HttpError::not_found("nothing").into_response();
        let answering = async { (Endpoint::ShowDocs, missing) };
        check(answering, || panic!("a page of an error that panics")).await;
    }
}
