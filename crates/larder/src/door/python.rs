//! The Python index's part of the door: from a path that no other surface answers to its handler, with devpi's headers on
//! whatever is answered.
//!
//! path -> [`Names`] -> (by the method, and by what the body says that it is) [`Endpoint`] -> handler -> response.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::VARY;
use http::{HeaderValue, Method};

use super::survived;
use crate::app::App;
use crate::front::error::HttpError;
use crate::front::negotiation::media_type;
use crate::front::request::Parts;
use crate::front::router::options;
use crate::front::serial::{X_DEVPI_SERIAL, X_LARDER_SERIAL};
use crate::front::{copies, cors};
use crate::people::python as pages;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::{Names, settled};
use crate::protocols::python::{
    audit, documentation, downloads, files, index_log, insert_headers, integrity, prefetch,
    project, public_json, push, refusals, search, simple, stages, status, tox_results, upload,
    users, write, yank,
};
use crate::routes::trees::Python;
use crate::routes::{Endpoint, InTree};

/// The endpoint of a request that no other surface answers, and its answer.
pub(super) async fn call(app: &Arc<App>, head: Parts, body: Body) -> (Endpoint, Response) {
    let is_safe = matches!(head.method, Method::GET | Method::HEAD);
    let (endpoint, mut response, ask) = match Ask::new(app.clone(), head).await {
        Ok(ask) => {
            let (endpoint, response) = answer_to(&ask, body).await;
            (endpoint, response, Some(ask))
        }
        Err(error) => (Endpoint::FindNoRoute, error.into_response(), None),
    };
    let is_refused = response.status().as_u16() >= 400;
    let headers = response.headers_mut();
    if is_safe && (endpoint.has_page() || is_refused) {
        headers.entry(VARY).or_insert(BY_CLIENT);
    }
    // A write names its own commit.
    let written = ask.as_ref().map_or(0, |ask| ask.written.load(Relaxed));
    if written > 0 {
        headers.insert(X_DEVPI_SERIAL, HeaderValue::from(written));
        headers.insert(X_LARDER_SERIAL, HeaderValue::from(written));
    }
    // A read names the state that it was answered from, which may no longer be the published one; other refusals and writes of
    // nothing were decided on the newest.
    if let Some(ask) = ask.filter(|_| is_safe) {
        insert_headers(headers, &ask.stored);
    } else if let Some(stored) = app.live_store.snapshot() {
        insert_headers(headers, &stored);
    }
    (endpoint, response)
}

async fn answer_to(ask: &Ask, body: Body) -> (Endpoint, Response) {
    // A preflight asks about the place that would answer the request after it.
    let method = cors::announced_method(&ask.head).unwrap_or_else(|| ask.head.method.clone());
    let Some(names) = Names::parse(&ask.path, Some(&method)) else {
        let nothing = HttpError::nothing_at(&ask.path).into();
        return (Endpoint::FindNoRoute, refusals::answer(ask, nothing).await);
    };
    let names = settled(ask, names);
    let found = names.place.endpoint(&ask.head.method).map(|it| refined(ask, it));
    let endpoint = found.unwrap_or_else(|| names.place.first());
    let answering = async {
        let outcome = match found {
            Some(endpoint) => match copies::to_primary(&ask.app, endpoint, &ask.head, body).await {
                Ok(response) => return (endpoint, response),
                Err(body) => dispatch(ask, endpoint, &names, body).await,
            },
            None => wrong_method(ask, &names),
        };
        let response = match outcome {
            Ok(response) => response,
            Err(refused) => refusals::answer(ask, refused).await,
        };
        (endpoint, response)
    };
    survived(endpoint, answering).await
}

/// The headers that decide between a page, JSON and the form for installers.
const BY_CLIENT: HeaderValue = HeaderValue::from_static("Accept, User-Agent");

/// Calls the handler of an endpoint. Each handler's future is boxed: the largest takes many kilobytes, and every request would
/// have to move as much.
async fn dispatch(
    ask: &Ask,
    endpoint: Endpoint,
    names: &Names,
    body: Body,
) -> Result<Response, ApiError> {
    let Names { user, stage, project, version, file, .. } = names;
    let InTree::Python(endpoint) = endpoint.in_tree() else {
        return Err(HttpError::nothing_at(&ask.path).into());
    };
    match endpoint {
        Python::ListUsers if ask.wants_json() => {
            Box::pin(ask.in_turn(users::list_users(ask))).await
        }
        Python::ListUsers => Err(HttpError::nothing_at(ask.head.uri.path()).into()),
        Python::ShowServerStatus => Box::pin(status::show_server_status(ask)).await,
        Python::ShowApi => Box::pin(stages::show_api(ask, stage)).await,
        Python::CheckAccess
            if cors::announced_method(&ask.head).is_some() && !status::names_url(ask) =>
        {
            Ok(options(names.place))
        }
        Python::CheckAccess => Box::pin(status::check_access(ask)).await,
        Python::LogIn => Box::pin(users::log_in(ask, body)).await,
        Python::Search if pages::lists_indexes(ask) => {
            Box::pin(ask.in_turn(pages::show_indexes(ask))).await
        }
        Python::Search => Box::pin(search::search(ask)).await,
        Python::ShowAudit => Box::pin(audit::show_audit(ask, stage)).await,
        Python::SearchByXmlRpc => Box::pin(search::search_by_xml_rpc(ask, stage, body)).await,
        Python::ShowUser if pages::is_wanted(ask) => {
            Box::pin(ask.in_turn(pages::show_user(ask, user))).await
        }
        Python::ShowUser => Box::pin(ask.in_turn(users::show_user(ask, user))).await,
        Python::CreateUser => Box::pin(users::create_user(ask, user, body)).await,
        Python::ModifyUser => Box::pin(users::modify_user(ask, user, body)).await,
        Python::DeleteUser => Box::pin(users::delete_user(ask, user)).await,
        Python::ShowIndex if ask.wants_page() => Box::pin(simple::list_projects(ask, stage)).await,
        Python::ShowIndex if pages::is_wanted(ask) => {
            Box::pin(ask.in_turn(pages::show_index(ask, stage))).await
        }
        Python::ShowIndex => Box::pin(ask.in_turn(stages::show_index(ask, stage))).await,
        Python::CreateIndex => Box::pin(stages::create_index(ask, stage, body)).await,
        Python::ModifyIndex => Box::pin(stages::modify_index(ask, stage, body)).await,
        Python::DeleteIndex => Box::pin(stages::delete_index(ask, stage)).await,
        Python::ApplyRetention => Box::pin(yank::apply_retention(ask, stage, body)).await,
        Python::ShowIndexLog if pages::is_wanted(ask) => {
            Box::pin(pages::show_index_log(ask, stage)).await
        }
        Python::ShowIndexLog => Box::pin(index_log::show_index_log(ask, stage)).await,
        Python::ShowPrefetch => Box::pin(prefetch::show_prefetch(ask, stage)).await,
        Python::StartPrefetch => Box::pin(prefetch::start_prefetch(ask, stage, body)).await,
        Python::StopPrefetch => Box::pin(prefetch::stop_prefetch(ask, stage)).await,
        Python::UploadFile => Box::pin(upload_or_push(ask, stage, body)).await,
        Python::PushRelease => Box::pin(push::push_release(ask, stage, body)).await,
        Python::DownloadFile | Python::FindExternalFile | Python::FindUpstreamFile => {
            Box::pin(files::get_file(ask, names)).await
        }
        Python::AddToxResult => Box::pin(files::add_tox_result(ask, stage, file, body)).await,
        Python::DeleteFile => Box::pin(files::delete_file(ask, stage, file)).await,
        Python::YankFile => Box::pin(yank::yank_file(ask, stage, file, body)).await,
        Python::ListProjects => Box::pin(simple::list_projects(ask, stage)).await,
        Python::ShowSimplePage => Box::pin(simple::show_simple_page(ask, stage, project)).await,
        Python::RefreshPage => Box::pin(simple::refresh_page(ask, stage, project)).await,
        Python::ShowPublicJson => {
            Box::pin(public_json::show_public_json(ask, stage, project, None)).await
        }
        Python::ShowPublicJsonOfRelease => {
            Box::pin(public_json::show_public_json(ask, stage, project, Some(version))).await
        }
        Python::ShowProject if ask.wants_page() => {
            Box::pin(simple::show_simple_page(ask, stage, project)).await
        }
        Python::ShowProject if pages::is_wanted(ask) => {
            Box::pin(pages::show_project(ask, stage, project)).await
        }
        Python::ShowProject => Box::pin(project::show_project(ask, stage, project)).await,
        Python::DeleteProject => Box::pin(project::delete_project(ask, stage, project)).await,
        Python::ShowProjectStatus => {
            Box::pin(ask.in_turn(yank::show_project_status(ask, stage, project))).await
        }
        Python::ChangeProjectStatus => {
            Box::pin(yank::change_project_status(ask, stage, project, body)).await
        }
        Python::ShowDownloads if pages::is_wanted(ask) => {
            Box::pin(pages::show_downloads(ask, stage, project)).await
        }
        Python::ShowDownloads => Box::pin(downloads::show_downloads(ask, stage, project)).await,
        Python::ShowRelease if pages::is_wanted(ask) => {
            Box::pin(pages::show_release(ask, stage, project, version)).await
        }
        Python::ShowRelease => Box::pin(project::show_release(ask, stage, project, version)).await,
        Python::DeleteRelease => {
            Box::pin(project::delete_release(ask, stage, project, version)).await
        }
        Python::YankRelease => {
            Box::pin(yank::yank_release(ask, stage, project, version, body)).await
        }
        Python::ShowDocumentation => Box::pin(documentation::show_documentation(ask, names)).await,
        Python::ShowProvenance => Box::pin(integrity::show_provenance(ask, names)).await,
        Python::ShowContents => Box::pin(pages::show_contents(ask, names)).await,
        Python::CompareReleases => Box::pin(pages::compare_releases(ask, names)).await,
        Python::ShowToxResults => Box::pin(tox_results::show_tox_results(ask, names)).await,
        Python::FindNoRoute => Err(HttpError::nothing_at(&ask.path).into()),
    }
}

/// A method that the place does not have. An upload is told where it belongs.
fn wrong_method(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let is_post = ask.head.method == Method::POST;
    if ask.head.method == Method::OPTIONS {
        return Ok(options(names.place));
    }
    match names.place.first() {
        Endpoint::ListProjects | Endpoint::ShowSimplePage if is_post => {
            Ok(simple::no_uploads(ask, &names.stage))
        }
        Endpoint::ListUsers | Endpoint::ShowUser | Endpoint::ShowProject
            if is_post && upload::is_form(ask) =>
        {
            Ok(upload::no_uploads(ask, names))
        }
        _ => {
            let (method, allow) = (&ask.head.method, names.place.allow());
            Err(HttpError::method_not_allowed(method, &ask.path, allow).into())
        }
    }
}

/// The endpoint of a `POST /{user}/{index}`, by its body: a form is an upload, XML a call, and anything else JSON, whatever its
/// `Content-Type`.
fn refined(ask: &Ask, endpoint: Endpoint) -> Endpoint {
    match media_type(&ask.head.headers).to_ascii_lowercase().as_str() {
        _ if endpoint != Endpoint::UploadFile => endpoint,
        "multipart/form-data" | "application/x-www-form-urlencoded" => Endpoint::UploadFile,
        "text/xml" | "application/xml" => Endpoint::SearchByXmlRpc,
        _ => Endpoint::PushRelease,
    }
}

/// Takes a form. What begins as an object of JSON and says that it is a form, is a push: `curl -d` says that of whatever it
/// sends.
async fn upload_or_push(ask: &Ask, stage: &str, body: Body) -> Result<Response, ApiError> {
    if media_type(&ask.head.headers).to_ascii_lowercase().starts_with("multipart/") {
        return upload::upload_file(ask, stage, body).await;
    }
    match write::peeked(body).await {
        (Some(b'{'), body) => push::push_release(ask, stage, body).await,
        (_, body) => upload::upload_file(ask, stage, body).await,
    }
}
