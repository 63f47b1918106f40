//! The one door to everything that is answered: from a request to its handler, and back.
//!
//! request -> from memory at once ([`Quick`]), or its [`Place`] in the table -> [`Endpoint`] -> handler -> [`Finish`] ->
//! response. The paths are in [`crate::endpoint`]; `docs/urls.md` is the same table for users.

mod account;
mod action;
mod actions;
pub mod admin;
pub(crate) mod article;
mod assets;
mod aur;
mod auth;
mod body;
mod changes;
mod conditional;
pub mod dumps;
mod error;
mod faur;
mod forms;
mod health;
mod manage;
mod multipart;
mod negotiation;
mod osv;
mod outside;
mod pages;
mod parameters;
mod path;
mod people;
mod python;
mod refusals;
mod rendered;
mod respond;
mod serial;
mod target;
mod tokens;
mod turns;
mod words;

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::account::UserName;
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, LOCATION, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use net::{Answered, ClientAddress, Peer};
use state::security;

use crate::app::App;
use crate::endpoint::{Endpoint, Place, Surface, Tree};
use crate::metrics::Stopwatch;

use people::Site;

pub use error::HttpError;

/// The door of a listener.
pub struct Door {
    app: Arc<App>,
    tree: Tree,
}

impl Door {
    /// The door of the main listeners.
    pub fn main(app: Arc<App>) -> Arc<Door> {
        Arc::new(Door { app, tree: Tree::Main })
    }

    /// The door of the admin listener.
    pub fn admin(app: Arc<App>) -> Arc<Door> {
        Arc::new(Door { app, tree: Tree::Admin })
    }
}

impl net::Door for Door {
    fn answer(&self, mut head: Parts, body: Option<Body>, peer: &Peer) -> Answered {
        if let Some(answered) = self.answer_at_once(&mut head, body.is_none(), peer) {
            return answered;
        }
        head.extensions.insert(*peer);
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
    fn answer_at_once(&self, head: &mut Parts, is_bodiless: bool, peer: &Peer) -> Option<Answered> {
        if !is_bodiless || head.method != Method::GET || self.tree != Tree::Main {
            return None;
        }
        let app = &self.app;
        // Links of its page begin as the browser's URL does.
        if head.uri.path().starts_with("/article/") && people::wants_page(&head.headers) {
            head.extensions.insert(*peer);
        }
        let quick = Quick::of(app, head.uri.path())?;
        let endpoint = quick.endpoint();
        let stopwatch = Stopwatch::start_sampled();
        // The compiler does not see that no answer is given by halves: a panic loses it whole.
        let found = catch_unwind(AssertUnwindSafe(|| quick.answer(app, head, peer)));
        let answered = found.unwrap_or_else(|cause| Some(Answered::Now(panicked(cause))))?;
        let has_origin = endpoint == Endpoint::AnswerQuestion && head.headers.contains_key(ORIGIN);
        let finish = Finish { endpoint, stopwatch, has_origin };
        let mut site = || {
            head.extensions.insert(*peer);
            site_of_browser(app, head)
        };
        let mut answered = match answered {
            Answered::Later(answering) => {
                let (app, site) = (app.clone(), site());
                return Some(Answered::Later(Box::pin(async move {
                    let mut response = survived(answering.map(Ok)).await;
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

/// The three kinds of paths that nearly all requests ask for. They are recognised before the table is searched.
enum Quick<'path> {
    Question,
    Article(&'path str),
    SimplePage { stage: &'path str, project: &'path str },
}

impl<'path> Quick<'path> {
    fn of(app: &App, path: &'path str) -> Option<Quick<'path>> {
        let config = &app.config;
        if aur::is_question(path) {
            return config.aur.enabled.then_some(Quick::Question);
        }
        if let Some(rest) = path.strip_prefix("/article/") {
            return config.article.enabled.then_some(Quick::Article(rest));
        }
        let (stage, project) = python::simple_page(path).filter(|_| config.python.enabled)?;
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
    fn answer(&self, app: &Arc<App>, head: &Parts, peer: &Peer) -> Option<Answered> {
        match *self {
            Quick::Question => aur::answer_question_now(app, head, peer.address),
            Quick::Article(rest) => article::read_article_now(app, head, rest),
            Quick::SimplePage { stage, project } => {
                python::show_simple_page_now(app, head, stage, project)
            }
        }
    }
}

/// This server as a browser sees it, and the page that the browser shows, so that it returns there after logging in.
fn site_of_browser(app: &App, head: &Parts) -> Option<Site> {
    let site = Site::of_browser(app, head)?;
    let is_safe = matches!(head.method, Method::GET | Method::HEAD);
    // A browser that remembers a password sends it, even if it is no longer valid, until the server asks for another one.
    let has_password = head.headers.contains_key(AUTHORIZATION);
    let comes_back = is_safe && !has_password && !python::is_installer(&head.headers);
    Some(if comes_back { site.at_place(&head.uri) } else { site })
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
    let peer = head.extensions.get::<Peer>().map_or(ClientAddress::Unix, |peer| peer.address);
    let client = ClientAddress::resolve(peer, &head.headers, &app.trusted);
    let has_origin = head.headers.contains_key(ORIGIN);
    let site = if tree == Tree::Main { site_of_browser(&app, &head) } else { None };
    // Before anything is taken from the store, the session among it. The Python index waits by itself.
    let place = place(&app, head.uri.path());
    let awaited = match place.map(Place::first) {
        Some(endpoint) if tree == Tree::Main && serial::is_awaited_by(endpoint) => {
            serial::wait_for_seen(&app, &head.headers).await.map_err(|error| (endpoint, error))
        }
        _ => Ok(()),
    };
    let session = match tree {
        Tree::Main => auth::session::note(&app, &mut head, site.is_some()).await,
        _ => None,
    };
    let is_head = head.method == Method::HEAD;
    let mut endpoint = Endpoint::FindNothingForAdmins;
    // Boxed: it would be moved from one future into the next, and it is the largest.
    let answering = Box::pin(async {
        if tree == Tree::Admin {
            auth::refuse_foreign_pages(&app, &head, None)?;
            return admin::answer(&app, &head, &mut endpoint).await;
        }
        if let Err((waiting, error)) = awaited {
            endpoint = waiting;
            return Err(error);
        }
        endpoint = place.map_or(Endpoint::FindNothing, Place::first);
        let found = place.and_then(|place| place.endpoint(&head.method));
        auth::refuse_foreign_pages(&app, &head, found)?;
        answer(&app, place, head, body, &mut endpoint).await
    });
    let mut response = security::of_request(client, survived(answering)).await;
    if let Some(session) = session {
        session.finish(response.headers_mut());
    }
    lead_outside(response.headers_mut(), &root_path);
    Finish { endpoint, stopwatch, has_origin }.apply(&app, &mut response, || site);
    respond::guard(response.headers_mut());
    serial::complete(&app, endpoint, response.headers_mut());
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

/// Finds the endpoint of a request to a `place` of the main listener, notes it in `endpoint`, and calls its handler. Each
/// handler's future is boxed, so that requests to one handler do not take the memory of the largest.
async fn answer(
    app: &Arc<App>,
    place: Option<&'static Place>,
    head: Parts,
    body: Body,
    endpoint: &mut Endpoint,
) -> Result<Response, HttpError> {
    let path = head.uri.path();
    body::check_coding(&head.headers, &body)?;
    if path == "*" {
        return about_server(&head.method);
    }
    let Some(place) = place else {
        if let Some(found) = without_slash(app, path) {
            *endpoint = found.first();
            let path = path.trim_end_matches('/');
            return Ok(aur::redirect(path, head.uri.query()));
        }
        return answer_elsewhere(app, head, body, endpoint).await;
    };
    if endpoint.surface() == Surface::Aur && !app.config.aur.enabled {
        return Ok(aur::is_off(app, &head));
    }
    if *endpoint == Endpoint::ReadArticle {
        return Box::pin(article::answer(app, head, body, endpoint)).await;
    }
    let Some(found) = place.endpoint(&head.method) else {
        if head.method == Method::OPTIONS {
            return Ok(options(place));
        }
        // An upload that lacks the index in its URL is told so.
        if path == "/" && head.method == Method::POST && app.config.python.enabled {
            return answer_elsewhere(app, head, body, endpoint).await;
        }
        return Err(HttpError::method_not_allowed(&head.method, path, place.allow()));
    };
    *endpoint = found;
    let says_more = matches!(found, Endpoint::AnswerQuestion | Endpoint::MissArticleName);
    if head.method == Method::OPTIONS && !says_more {
        return Ok(options(place));
    }
    if found.looks_through_all() {
        let share = &app.making_answers[found.surface() as usize];
        return Box::pin(turns::in_turn(share, answer_found(app, head, body, endpoint))).await?;
    }
    answer_found(app, head, body, endpoint).await
}

/// Calls the handler of an endpoint of the main tree.
async fn answer_found(
    app: &Arc<App>,
    head: Parts,
    body: Body,
    endpoint: &mut Endpoint,
) -> Result<Response, HttpError> {
    let (head, path) = (&head, head.uri.path());
    Ok(match *endpoint {
        Endpoint::ShowHome => {
            if let Some(given) = actions::in_query(app, head) {
                *endpoint = Endpoint::RunActions;
                Box::pin(actions::run_actions_of_query(app, head, given?)).await
            } else if python::wants_users(app, &head.headers) {
                Box::pin(python::answer(app, head.clone(), body, endpoint)).await
            } else {
                Box::pin(pages::show_home(app, head)).await
            }
        }
        Endpoint::ShowSearch => Box::pin(pages::show_search(app, head)).await?,
        Endpoint::Suggest => Box::pin(pages::suggest(app, head)).await?,
        Endpoint::ShowStatus => Box::pin(pages::show_status(app, head)).await,
        Endpoint::ShowAsset => Box::pin(assets::show_asset(head)).await?,
        Endpoint::ShowDocs => Box::pin(pages::show_docs(app, head)).await,
        Endpoint::ShowAurDocs | Endpoint::ShowOldAurDocs => {
            Box::pin(pages::show_aur_docs(app, head)).await
        }
        Endpoint::ShowOpenapi | Endpoint::ShowOldOpenapi => {
            Box::pin(pages::show_openapi(app, head)).await
        }
        Endpoint::BrowsePackages if faur::is_asked(head) => {
            Box::pin(faur::list_packages(app, head)).await
        }
        Endpoint::BrowsePackages => Box::pin(pages::browse_packages(app, head)).await?,
        Endpoint::ShowPackage => Box::pin(pages::show_package(app, head)).await?,
        Endpoint::ShowPackageBase => Box::pin(pages::show_package_base(app, head)).await?,
        Endpoint::ShowMaintainer => Box::pin(pages::show_maintainer(app, head)).await?,
        Endpoint::FeedPackages => Box::pin(pages::feed_packages(app, head)).await?,
        Endpoint::ShowStatistics => Box::pin(pages::show_statistics(app, head)).await,
        Endpoint::ShowRobots => Box::pin(pages::show_robots(head)).await,
        Endpoint::ShowIcon => Box::pin(pages::show_icon(head)).await,
        Endpoint::CheckAlive => health::check_alive(),
        Endpoint::CheckReady => health::check_ready(app, head).await,
        Endpoint::ShowVersion => health::show_version(),
        Endpoint::ShowMetrics => health::show_metrics(app).await,
        Endpoint::ListTokens => Box::pin(tokens::list_tokens(app, head)).await?,
        Endpoint::CreateToken => Box::pin(tokens::create_token(app, head, body)).await?,
        Endpoint::RevokeToken => Box::pin(tokens::revoke_token(app, head)).await?,
        Endpoint::ShowAccount => Box::pin(account::show_account(app, head)).await?,
        Endpoint::ShowLogIn => Box::pin(account::show_log_in(app, head)).await?,
        Endpoint::LogInByForm => Box::pin(account::log_in(app, head, body)).await?,
        Endpoint::LogOut => Box::pin(account::log_out(app, head, body)).await?,
        Endpoint::ChangePasswordByForm => {
            Box::pin(account::change_password(app, head, body)).await?
        }
        Endpoint::CreateTokenByForm => Box::pin(account::create_token(app, head, body)).await?,
        Endpoint::RevokeTokenByForm => Box::pin(account::revoke_token(app, head, body)).await?,
        Endpoint::ShowManagement => Box::pin(manage::show_management(app, head)).await?,
        Endpoint::CreateUserByForm => Box::pin(manage::create_user(app, head, body)).await?,
        Endpoint::ManageUser => Box::pin(manage::show_user(app, head)).await?,
        Endpoint::ChangeUserByForm => Box::pin(manage::change_user(app, head, body)).await?,
        Endpoint::CreateIndexByForm => Box::pin(manage::create_index(app, head, body)).await?,
        Endpoint::ManageIndex => Box::pin(manage::show_index(app, head)).await?,
        Endpoint::ManagePrefetch => Box::pin(manage::show_prefetch(app, head)).await?,
        Endpoint::PrefetchByForm => Box::pin(manage::change_prefetch(app, head, body)).await?,
        Endpoint::ManageGroups => Box::pin(manage::show_groups(app, head)).await?,
        Endpoint::ListReleases => Box::pin(manage::list_releases(app, head)).await?,
        Endpoint::ManageRelease => Box::pin(manage::show_release(app, head)).await?,
        Endpoint::ChangeReleaseByForm => Box::pin(manage::change_release(app, head, body)).await?,
        Endpoint::ManageWebhooks => Box::pin(manage::show_webhooks(app, head)).await?,
        Endpoint::ChangeWebhookByForm => Box::pin(manage::change_webhook(app, head, body)).await?,
        Endpoint::ManageAudit => Box::pin(manage::show_audit(app, head)).await?,
        Endpoint::ChangeIndexByForm => Box::pin(manage::change_index(app, head, body)).await?,
        Endpoint::ListActions => Box::pin(actions::list_actions(app, head)).await,
        Endpoint::RunActions => Box::pin(actions::run_actions(app, head, body)).await?,
        Endpoint::ListChanges => Box::pin(changes::list_changes(app, head)).await?,
        Endpoint::ShowChangesAsAtom => Box::pin(changes::show_changes_as_atom(app, head)).await?,
        Endpoint::QueryOsv => Box::pin(osv::query(app, head, body)).await,
        Endpoint::QueryOsvBatch => Box::pin(osv::query_batch(app, head, body)).await,
        Endpoint::ShowOsvRecord => Box::pin(osv::show_record(app, head)).await,
        Endpoint::ShowPackageHistory => Box::pin(changes::show_package_history(app, head)).await?,
        Endpoint::ListPackageHistories => {
            Box::pin(changes::list_package_histories(app, head)).await?
        }
        Endpoint::ListArticles => Box::pin(article::list_articles(app, head)).await?,
        Endpoint::ChooseArticle => article::choose_article(app, head)?,
        Endpoint::ShowEditForm | Endpoint::EditArticle => {
            Box::pin(article::edit_article(app, head, body)).await?
        }
        Endpoint::ShowRenameForm | Endpoint::RenameArticle => {
            Box::pin(article::rename_article(app, head, body)).await?
        }
        Endpoint::ListAttachments
        | Endpoint::ChangeAttachmentsByForm
        | Endpoint::ReadAttachment
        | Endpoint::PutAttachment
        | Endpoint::DeleteAttachment => {
            Box::pin(article::answer_attachment(app, head, body)).await?
        }
        Endpoint::MissArticleName => return Err(article::lacks_name(path)),
        Endpoint::AnswerQuestion => Box::pin(aur::answer_question(app, head, body)).await?,
        Endpoint::DownloadDump => Box::pin(dumps::download_dump(app, head)).await?,
        Endpoint::DownloadDelta => Box::pin(dumps::download_delta(app, head)).await?,
        Endpoint::ShowDumpDigest => Box::pin(dumps::show_dump_digest(app, head)).await?,
        other => unreachable!("{other:?} has no place in the tree of the main listener"),
    })
}

/// Answers paths that are not in the main tree: from the Python index, if it is served.
async fn answer_elsewhere(
    app: &Arc<App>,
    head: Parts,
    body: Body,
    endpoint: &mut Endpoint,
) -> Result<Response, HttpError> {
    if app.config.python.enabled {
        // Boxed, so that the futures of other requests stay small.
        return Ok(Box::pin(python::answer(app, head, body, endpoint)).await);
    }
    *endpoint = Endpoint::FindNothing;
    Err(HttpError::nothing_at(head.uri.path()))
}

/// The place of a path in the main tree, if its surface is served. The AUR's is there in any case, to say so.
fn place(app: &App, path: &str) -> Option<&'static Place> {
    let config = &app.config;
    let is_served = |place: &&Place| match place.first() {
        Endpoint::ShowMetrics => config.metrics.enabled,
        Endpoint::QueryOsv | Endpoint::QueryOsvBatch | Endpoint::ShowOsvRecord => {
            config.python.enabled
        }
        endpoint => match endpoint.surface() {
            Surface::Article => config.article.enabled,
            Surface::Action => config.actions.enabled,
            _ => true,
        },
    };
    let named = |path| Place::named(Tree::Main, path).filter(is_served);
    let below = || match path.strip_prefix('/')?.split_once('/')? {
        (_, "") => None,
        ("rpc" | "api", _) => named("/rpc"),
        ("aur", rest) if rest.starts_with("history/") => {
            named("/aur/history/{package}").filter(|_| rest.matches('/').count() == 1)
        }
        ("article", _) => named("/article/{article}"),
        ("packages", name) if !name.contains('/') => named("/packages/{package}"),
        ("pkgbase", name) if !name.contains('/') => named("/pkgbase/{base}"),
        ("account", name) if !name.contains('/') => named("/account/{maintainer}"),
        ("+static", file) if !file.contains('/') => named("/+static/{file}"),
        ("+edit", _) => named("/+edit/{article}"),
        ("+rename", _) => named("/+rename/{article}"),
        ("+attachments", rest) if rest.ends_with('/') => named("/+attachments/{article}/"),
        ("+attachments", _) => named("/+attachments/{article}/{file}"),
        ("+manage", rest) => match rest.split_once('/')? {
            ("users", name) if !name.contains('/') => named("/+manage/users/{user}"),
            ("indexes", name) if name.matches('/').count() == 1 => {
                named("/+manage/indexes/{user}/{index}")
            }
            ("prefetch", name) if name.matches('/').count() == 1 => {
                named("/+manage/prefetch/{user}/{index}")
            }
            ("releases", name) => match name.matches('/').count() {
                1 => named("/+manage/releases/{user}/{index}"),
                2 => named("/+manage/releases/{user}/{index}/{project}"),
                _ => None,
            },
            _ => None,
        },
        ("+osv", rest) => match rest.split_once("v1/vulns/")? {
            ("", id) if !id.contains('/') => named("/+osv/v1/vulns/{id}"),
            _ => None,
        },
        ("+tokens", id) if !id.contains('/') => named("/+tokens/{id}"),
        _ => None,
    };
    let exact = if path.contains('{') { None } else { named(path) };
    exact.or_else(below).filter(|place| !is_of_user(app, place, path))
}

/// The place of a path whose slash at the end is one too many: links of wikis and bookmarks end so, and aurweb takes them.
fn without_slash(app: &App, path: &str) -> Option<&'static Place> {
    let path = path.strip_suffix('/')?.trim_end_matches('/');
    let is_page =
        |found: &&Place| matches!(found.first().route(), "page" | "feed" | "search" | "history");
    place(app, path).filter(is_page)
}

/// Whether a page's path begins with the name of a user. Such users were made before the page existed; their indexes keep their
/// URLs.
fn is_of_user(app: &App, place: &Place, path: &str) -> bool {
    let is_later = matches!(
        place.first(),
        Endpoint::ShowPackageBase
            | Endpoint::ShowMaintainer
            | Endpoint::FeedPackages
            | Endpoint::ShowStatus
    );
    if !is_later || !app.config.python.enabled {
        return false;
    }
    let name = path.split('/').nth(1).and_then(|name| name.parse::<UserName>().ok());
    let stored = app.live_store.snapshot();
    name.zip(stored).is_some_and(|(name, stored)| stored.accounts.user(&name).is_some())
}

/// 204 with the methods of a place. Load balancers ask so whether the server is there.
fn options(place: &'static Place) -> Response {
    let allow = match place.allow() {
        allow if allow.ends_with("OPTIONS") => HeaderValue::from_static(allow),
        allow => HeaderValue::try_from(format!("{allow}, OPTIONS")).expect("methods are ASCII"),
    };
    (StatusCode::NO_CONTENT, [(ALLOW, allow)]).into_response()
}

/// The answer to the target `*`, which is the server as a whole and not a path (RFC 9110, 9.3.7).
fn about_server(method: &Method) -> Result<Response, HttpError> {
    const ALL: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    if *method == Method::OPTIONS {
        return Ok((StatusCode::NO_CONTENT, [(ALLOW, ALL)]).into_response());
    }
    Err(HttpError::bad_request(format!("`*` is a target of OPTIONS alone, and not of `{method}`")))
}

/// The response of a handler, also if it fails or panics.
async fn survived(answering: impl Future<Output = Result<Response, HttpError>>) -> Response {
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(outcome) => outcome.unwrap_or_else(HttpError::into_response),
        Err(cause) => panicked(cause),
    }
}

/// The last step of every request: headers, the error page for a browser, and the metrics.
struct Finish {
    endpoint: Endpoint,
    stopwatch: Stopwatch,
    /// Whether a page of some site sent the request.
    has_origin: bool,
}

impl Finish {
    /// Adds the headers that all answers of the endpoint have, turns an error into a page for a browser (`site`), and counts the
    /// request.
    fn apply(self, app: &App, response: &mut Response, site: impl FnOnce() -> Option<Site>) {
        let headers = response.headers_mut();
        match self.endpoint {
            Endpoint::AnswerQuestion => aur::open_to_all(self.has_origin, headers),
            Endpoint::ListTokens | Endpoint::CreateToken | Endpoint::RevokeToken => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            _ => {}
        }
        if response.status().as_u16() >= 400 {
            let is_problem = people::is_problem(response);
            if is_problem {
                people::insert_vary(response.headers_mut());
            }
            let is_for_page = is_problem || response.status() == StatusCode::UNAUTHORIZED;
            if is_for_page && let Some(site) = site() {
                // A proxy that asks on behalf of a browser passes the question for a password on.
                if self.endpoint != Endpoint::CheckAccess {
                    people::ask_by_form(&site, response);
                }
                if is_problem {
                    *response = people::for_browser(&site, std::mem::take(response));
                }
            }
        }
        app.metrics.responded(self.endpoint, response.status(), self.stopwatch);
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
    use config::Config;

    async fn app() -> (Arc<App>, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
        let store = state::setup::open(&config).await.expect("a store");
        let (app, _requests) = App::new(config, store).expect("an app");
        (Arc::new(app), directory)
    }

    #[tokio::test]
    async fn a_panic_is_a_500_and_counted_as_one() {
        let (app, _directory) = app().await;
        let mut response = survived(async { panic!("a handler that panics") }).await;
        let endpoint = Endpoint::ShowDocs;
        let finish = Finish { endpoint, stopwatch: Stopwatch::start(), has_origin: false };
        finish.apply(&app, &mut response, || None);
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let metrics = String::from_utf8(app.metrics.render()).expect("text");
        let line = "larder_http_requests_total{status=\"500\",surface=\"server\"} 1\n";
        assert!(metrics.contains(line), "{metrics}");
    }

    /// The table and the way that requests take agree.
    #[tokio::test]
    async fn every_place_of_the_main_tree_is_found_by_a_path_of_it() {
        let (app, _directory) = app().await;
        for wanted in Place::all().iter().filter(|place| place.tree == Tree::Main) {
            let path = wanted.path.replace(['{', '}'], "");
            let found = place(&app, &path).expect(wanted.path);
            match found.first() {
                Endpoint::ReadArticle => {}
                endpoint => assert_eq!(endpoint, wanted.first(), "{path}"),
            }
        }
        for path in [
            "/x",
            "/article/{article}/diff",
            "/article",
            "/rpc/x",
            "/api/",
            "/+tokens/x/y",
            "/+tokens/",
            "/rpc.php/x",
            "",
        ] {
            let found = place(&app, path).map(|place| place.path);
            let expected = match path {
                "/article" | "/api/" => Some(path),
                "/rpc/x" => Some("/rpc"),
                "/article/{article}/diff" => Some("/article/{article}"),
                _ => None,
            };
            assert_eq!(found, expected, "{path}");
        }
    }
}
