//! The Python index: devpi's URL space, and the URLs of installers and uploaders.
//!
//! path -> [`route::Route`] -> (by the method) [`Endpoint`] -> handler -> response, each with devpi's headers. All requests
//! that no other surface answers come here: `/{user}/{index}/…` has no prefix.

mod ask;
mod audit;
mod documentation;
mod files;
mod integrity;
mod pages;
mod policy;
mod prefetch;
mod project;
mod public_json;
mod push;
mod refusals;
mod refused;
mod reply;
mod rights;
mod route;
mod search;
mod simple;
mod stages;
mod status;
mod tox_results;
mod upload;
mod users;
mod write;
mod yank;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, USER_AGENT, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use pypi::upstream::Place;
use pypi::{ResolutionOrder, Version};
use state::stored::Stored;

use self::route::Route;
use super::error::HttpError;
use super::serial::{X_DEVPI_SERIAL, X_LARDER_SERIAL};
use super::{options, turns};
use crate::app::App;
use crate::endpoint::{Endpoint, Surface};

pub(super) use self::ask::Ask;
pub(super) use self::audit::entries as audit_entries;
pub(super) use self::prefetch::{
    LOCK_BYTES_MAX, last as last_prefetch, start as start_prefetch, stop as stop_prefetch,
};
pub(super) use self::push::push;
pub(super) use self::refusals::error_of;
pub(super) use self::refused::Refused;
pub(super) use self::simple::mirrored::refresh;
pub(super) use self::simple::{show_simple_page_now, simple_page};
pub(super) use self::yank::remove_old_versions;

/// The version of devpi's protocol; devpi's client refuses any other.
const API_VERSION: HeaderValue = HeaderValue::from_static("2");
/// The server whose behaviour this is.
const SERVER_VERSION_TEXT: &str = "6.20.3";
const SERVER_VERSION: HeaderValue = HeaderValue::from_static(SERVER_VERSION_TEXT);

const X_DEVPI_API_VERSION: HeaderName = HeaderName::from_static("x-devpi-api-version");
const X_DEVPI_SERVER_VERSION: HeaderName = HeaderName::from_static("x-devpi-server-version");
const X_DEVPI_UUID: HeaderName = HeaderName::from_static("x-devpi-uuid");
const X_DEVPI_MASTER_UUID: HeaderName = HeaderName::from_static("x-devpi-master-uuid");
const X_DEVPI_PRIMARY_UUID: HeaderName = HeaderName::from_static("x-devpi-primary-uuid");

/// Answers whatever no other surface does, and notes the endpoint that does.
pub(super) async fn answer(
    app: &Arc<App>,
    head: Parts,
    body: Body,
    endpoint: &mut Endpoint,
) -> Response {
    let written = Arc::new(AtomicU64::new(0));
    *endpoint = Endpoint::FindNoRoute;
    let is_safe = matches!(head.method, Method::GET | Method::HEAD);
    let mut response = match Ask::new(app.clone(), head, written.clone()).await {
        Ok(ask) => {
            let route = Route::parse(&ask.path, Some(&ask.head.method));
            let outcome = match route.map(|route| settled(&ask, route)) {
                Some(route) => {
                    let found = route.place.endpoint(&ask.head.method).map(|it| refined(&ask, it));
                    *endpoint = found.unwrap_or_else(|| route.place.first());
                    match found {
                        Some(endpoint) => dispatch(&ask, endpoint, &route, body).await,
                        None => wrong_method(&ask, &route),
                    }
                }
                None => Err(HttpError::nothing_at(&ask.path).into()),
            };
            match outcome {
                Ok(response) => response,
                Err(refused) => refusals::answer(&ask, refused).await,
            }
        }
        Err(error) => error.into_response(),
    };
    let is_refused = response.status().as_u16() >= 400;
    let headers = response.headers_mut();
    if is_safe && (has_page(*endpoint) || is_refused) {
        headers.entry(VARY).or_insert(BY_CLIENT);
    }
    // A write names its own commit.
    let written = written.load(Relaxed);
    if written > 0 {
        headers.insert(X_DEVPI_SERIAL, HeaderValue::from(written));
        headers.insert(X_LARDER_SERIAL, HeaderValue::from(written));
    }
    if let Some(stored) = app.live_store.snapshot() {
        insert_headers(headers, &stored);
    }
    response
}

/// Whether the client is pip or another installer: some of them name HTML first, as browsers do.
pub(super) fn is_installer(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.is_some_and(ask::is_installer)
}

/// Whether a request for `/` is from devpi's client, rather than from a browser.
pub(super) fn wants_users(app: &App, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    app.config.python.enabled && accept.is_some_and(ask::wants_json)
}

/// The headers that decide between a page, JSON and the form for installers.
const BY_CLIENT: HeaderValue = HeaderValue::from_static("Accept, User-Agent");

/// Whether browsers get a page where programs get JSON. For every refusal, they do.
fn has_page(endpoint: Endpoint) -> bool {
    matches!(
        endpoint,
        Endpoint::ListUsers
            | Endpoint::ShowUser
            | Endpoint::ShowIndex
            | Endpoint::ShowProject
            | Endpoint::ShowRelease
            | Endpoint::Search
            | Endpoint::ShowToxResults
            | Endpoint::ShowContents
            | Endpoint::CompareReleases
    )
}

/// The headers that devpi sends with every response.
fn insert_headers(headers: &mut HeaderMap, stored: &Stored) {
    headers.insert(X_DEVPI_API_VERSION, API_VERSION);
    headers.insert(X_DEVPI_SERVER_VERSION, SERVER_VERSION);
    if let Some(identity) = &stored.identity {
        for name in [X_DEVPI_UUID, X_DEVPI_MASTER_UUID, X_DEVPI_PRIMARY_UUID] {
            headers.insert(name, identity.clone());
        }
    }
    if !headers.contains_key(X_DEVPI_SERIAL) {
        let serial = stored.serial_header();
        headers.insert(X_DEVPI_SERIAL, serial.clone());
        headers.insert(X_LARDER_SERIAL, serial);
    }
}

/// Calls the handler of an endpoint. Each handler's future is boxed: the largest takes many kilobytes, and every request would
/// have to move as much.
async fn dispatch(
    ask: &Ask,
    endpoint: Endpoint,
    route: &Route,
    body: Body,
) -> Result<Response, Refused> {
    let Route { user, stage, project, version, file, .. } = route;
    match endpoint {
        Endpoint::ListUsers if ask.wants_json() => {
            Box::pin(in_turn(ask, users::list_users(ask))).await
        }
        Endpoint::ListUsers => Err(HttpError::nothing_at(ask.head.uri.path()).into()),
        Endpoint::ShowServerStatus => Box::pin(status::show_server_status(ask)).await,
        Endpoint::ShowApi => Box::pin(stages::show_api(ask, stage)).await,
        Endpoint::CheckAccess => Box::pin(status::check_access(ask)).await,
        Endpoint::LogIn => Box::pin(users::log_in(ask, body)).await,
        Endpoint::Search => Box::pin(search::search(ask)).await,
        Endpoint::ShowAudit => Box::pin(audit::show_audit(ask, stage)).await,
        Endpoint::SearchByXmlRpc => Box::pin(search::search_by_xml_rpc(ask, stage, body)).await,
        Endpoint::ShowUser if pages::is_wanted(ask) => {
            Box::pin(in_turn(ask, pages::show_user(ask, user))).await
        }
        Endpoint::ShowUser => Box::pin(in_turn(ask, users::show_user(ask, user))).await,
        Endpoint::CreateUser => Box::pin(users::create_user(ask, user, body)).await,
        Endpoint::ModifyUser => Box::pin(users::modify_user(ask, user, body)).await,
        Endpoint::DeleteUser => Box::pin(users::delete_user(ask, user)).await,
        Endpoint::ShowIndex if ask.wants_page() => {
            Box::pin(simple::list_projects(ask, stage)).await
        }
        Endpoint::ShowIndex if pages::is_wanted(ask) => {
            Box::pin(in_turn(ask, pages::show_index(ask, stage))).await
        }
        Endpoint::ShowIndex => Box::pin(in_turn(ask, stages::show_index(ask, stage))).await,
        Endpoint::CreateIndex => Box::pin(stages::create_index(ask, stage, body)).await,
        Endpoint::ModifyIndex => Box::pin(stages::modify_index(ask, stage, body)).await,
        Endpoint::DeleteIndex => Box::pin(stages::delete_index(ask, stage)).await,
        Endpoint::ApplyRetention => Box::pin(yank::apply_retention(ask, stage, body)).await,
        Endpoint::ShowPrefetch => Box::pin(prefetch::show_prefetch(ask, stage)).await,
        Endpoint::StartPrefetch => Box::pin(prefetch::start_prefetch(ask, stage, body)).await,
        Endpoint::StopPrefetch => Box::pin(prefetch::stop_prefetch(ask, stage)).await,
        Endpoint::UploadFile => Box::pin(upload_or_push(ask, stage, body)).await,
        Endpoint::PushRelease => Box::pin(push::push_release(ask, stage, body)).await,
        Endpoint::DownloadFile => Box::pin(files::download_file(ask, stage, file)).await,
        // Files without a digest belong to mirrors.
        Endpoint::FindExternalFile => {
            Box::pin(files::mirrored::find(ask, stage, file, Place::of_external(&file.names))).await
        }
        Endpoint::FindUpstreamFile => {
            Box::pin(files::mirrored::find(ask, stage, file, Place::of_upstream(&file.names))).await
        }
        Endpoint::AddToxResult => Box::pin(files::add_tox_result(ask, stage, file, body)).await,
        Endpoint::DeleteFile => Box::pin(files::delete_file(ask, stage, file)).await,
        Endpoint::YankFile => Box::pin(yank::yank_file(ask, stage, file, body)).await,
        Endpoint::ListProjects => Box::pin(simple::list_projects(ask, stage)).await,
        Endpoint::ShowSimplePage => Box::pin(simple::show_simple_page(ask, stage, project)).await,
        Endpoint::RefreshPage => Box::pin(simple::refresh_page(ask, stage, project)).await,
        Endpoint::ShowPublicJson => {
            Box::pin(public_json::show_public_json(ask, stage, project, None)).await
        }
        Endpoint::ShowPublicJsonOfRelease => {
            Box::pin(public_json::show_public_json(ask, stage, project, Some(version))).await
        }
        Endpoint::ShowProject if ask.wants_page() => {
            Box::pin(simple::show_simple_page(ask, stage, project)).await
        }
        Endpoint::ShowProject if pages::is_wanted(ask) => {
            Box::pin(pages::show_project(ask, stage, project)).await
        }
        Endpoint::ShowProject => Box::pin(project::show_project(ask, stage, project)).await,
        Endpoint::DeleteProject => Box::pin(project::delete_project(ask, stage, project)).await,
        Endpoint::ShowProjectStatus => {
            Box::pin(in_turn(ask, yank::show_project_status(ask, stage, project))).await
        }
        Endpoint::ChangeProjectStatus => {
            Box::pin(yank::change_project_status(ask, stage, project, body)).await
        }
        Endpoint::ShowRelease if pages::is_wanted(ask) => {
            Box::pin(pages::show_release(ask, stage, project, version)).await
        }
        Endpoint::ShowRelease => {
            Box::pin(project::show_release(ask, stage, project, version)).await
        }
        Endpoint::DeleteRelease => {
            Box::pin(project::delete_release(ask, stage, project, version)).await
        }
        Endpoint::YankRelease => {
            Box::pin(yank::yank_release(ask, stage, project, version, body)).await
        }
        Endpoint::ShowDocumentation => {
            Box::pin(documentation::show_documentation(ask, route)).await
        }
        Endpoint::ShowProvenance => Box::pin(integrity::show_provenance(ask, route)).await,
        Endpoint::ShowContents => Box::pin(pages::show_contents(ask, route)).await,
        Endpoint::CompareReleases => Box::pin(pages::compare_releases(ask, route)).await,
        Endpoint::ShowToxResults => Box::pin(tox_results::show_tox_results(ask, route)).await,
        other => unreachable!("{other:?} has no place in the tree of this surface"),
    }
}

/// The route of a path below `simple`, which stands for the simple pages, unless a project is called so and is meant: if an index
/// has it, with the version that the path names. Only clients of devpi's API ask mirrors for it.
fn settled(ask: &Ask, route: Route) -> Route {
    let Some(of_project) = route.of_project_simple() else { return route };
    let Some(order) = ResolutionOrder::of(&ask.stored.index, &route.stage) else { return route };
    let version = of_project.version.as_str();
    let is_meant = match order.project(of_project.project.as_sent.as_str()) {
        Some(own) => {
            version.is_empty() || own.versions().iter().any(|it| it.version.as_str() == version)
        }
        None => {
            let is_version = || Version::parse(version).is_ok_and(|it| !it.is_legacy());
            order.has_mirror() && ask.wants_json() && (version.is_empty() || is_version())
        }
    };
    if is_meant { of_project } else { route }
}

/// The outcome of a handler whose answer grows with the data, when it is its turn. The sender is found out before that: it may
/// take a while, and needs no turn.
async fn in_turn<T>(
    ask: &Ask,
    making: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    ask.principal().await?;
    let share = &ask.app.making_answers[Surface::Python as usize];
    turns::in_turn(share, Box::pin(making)).await?
}

/// A method that the place does not have. An upload is told where it belongs.
fn wrong_method(ask: &Ask, route: &Route) -> Result<Response, Refused> {
    let is_post = ask.head.method == Method::POST;
    if ask.head.method == Method::OPTIONS {
        return Ok(options(route.place));
    }
    match route.place.first() {
        Endpoint::ListProjects | Endpoint::ShowSimplePage if is_post => {
            Ok(simple::no_uploads(ask, &route.stage))
        }
        Endpoint::ListUsers | Endpoint::ShowUser | Endpoint::ShowProject
            if is_post && upload::is_form(ask) =>
        {
            Ok(upload::no_uploads(ask, route))
        }
        _ => {
            let (method, allow) = (&ask.head.method, route.place.allow());
            Err(HttpError::method_not_allowed(method, &ask.path, allow).into())
        }
    }
}

/// The endpoint of a `POST /{user}/{index}`, by its body: a form is an upload, XML a call, and anything else JSON, whatever its
/// `Content-Type`.
fn refined(ask: &Ask, endpoint: Endpoint) -> Endpoint {
    match media_type(ask).as_str() {
        _ if endpoint != Endpoint::UploadFile => endpoint,
        "multipart/form-data" | "application/x-www-form-urlencoded" => Endpoint::UploadFile,
        "text/xml" | "application/xml" => Endpoint::SearchByXmlRpc,
        _ => Endpoint::PushRelease,
    }
}

/// Takes a form. What begins as an object of JSON and says that it is a form, is a push: `curl -d` says that of whatever it
/// sends.
async fn upload_or_push(ask: &Ask, stage: &str, body: Body) -> Result<Response, Refused> {
    if media_type(ask).starts_with("multipart/") {
        return upload::upload_file(ask, stage, body).await;
    }
    match write::peeked(body).await {
        (Some(b'{'), body) => push::push_release(ask, stage, body).await,
        (_, body) => upload::upload_file(ask, stage, body).await,
    }
}

fn media_type(ask: &Ask) -> String {
    let content_type = ask.header(CONTENT_TYPE).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
