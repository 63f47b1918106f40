//! The Python index: devpi's URL space, and what installers and uploaders ask of it.
//!
//! path -> [`route::Route`] -> handler -> response, with devpi's headers on every one. Whatever no other
//! surface answers comes here: `/{user}/{index}/…` has no prefix of its own.

mod ask;
mod documentation;
mod files;
mod project;
mod push;
mod reply;
mod rights;
pub(super) mod route;
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
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use self::ask::Ask;
use self::route::Route;
use super::endpoint::{self, Posted};
use super::error::{self, HttpError};
use crate::app::App;
use crate::metrics::Endpoint;
use crate::stored::Stored;

pub use self::documentation::OpenZips;
pub(super) use self::simple::Pages;
pub(crate) use self::stages::NO_MIRRORS;

/// Which of devpi's protocols is spoken; its client refuses any other.
const API_VERSION: HeaderValue = HeaderValue::from_static("2");
/// The server whose behaviour this is.
const SERVER_VERSION_TEXT: &str = "6.20.3";
const SERVER_VERSION: HeaderValue = HeaderValue::from_static(SERVER_VERSION_TEXT);

const X_DEVPI_API_VERSION: HeaderName = HeaderName::from_static("x-devpi-api-version");
const X_DEVPI_SERVER_VERSION: HeaderName = HeaderName::from_static("x-devpi-server-version");
const X_DEVPI_UUID: HeaderName = HeaderName::from_static("x-devpi-uuid");
const X_DEVPI_MASTER_UUID: HeaderName = HeaderName::from_static("x-devpi-master-uuid");
const X_DEVPI_PRIMARY_UUID: HeaderName = HeaderName::from_static("x-devpi-primary-uuid");
const X_DEVPI_SERIAL: HeaderName = HeaderName::from_static("x-devpi-serial");

/// Answers whatever no other surface does.
pub(super) async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let written = Arc::new(AtomicU64::new(0));
    let mut endpoint = Endpoint::PythonOther;
    let mut response = match Ask::new(app.clone(), head, written.clone()).await {
        Ok(ask) => {
            let route = Route::parse(&ask.path);
            endpoint = endpoint::of_python(&ask.head.method, route.as_ref(), || posted(&ask));
            match dispatch(&ask, route, body).await {
                Ok(response) => response,
                Err(error) => reply::failure(&ask, error),
            }
        }
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    // A write names its own commit.
    let written = written.load(Relaxed);
    if written > 0 {
        headers.insert(X_DEVPI_SERIAL, HeaderValue::from(written));
    }
    if let Some(stored) = app.keeper.live.snapshot() {
        insert_headers(headers, &stored);
    }
    // Its paths have no prefix that would tell.
    response.extensions_mut().insert(endpoint);
    response
}

/// Whether `/` is asked for as devpi's client does, rather than people.
pub(super) fn wants_users(app: &App, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    app.config.python.enabled && accept.is_some_and(|accept| accept.contains("application/json"))
}

/// What devpi sends with every response.
fn insert_headers(headers: &mut HeaderMap, stored: &Stored) {
    headers.insert(X_DEVPI_API_VERSION, API_VERSION);
    headers.insert(X_DEVPI_SERVER_VERSION, SERVER_VERSION);
    if let Some(identity) = &stored.identity {
        for name in [X_DEVPI_UUID, X_DEVPI_MASTER_UUID, X_DEVPI_PRIMARY_UUID] {
            headers.insert(name, identity.clone());
        }
    }
    headers.entry(X_DEVPI_SERIAL).or_insert_with(|| HeaderValue::from(stored.serial.0));
}

/// The table: every URL of this surface and what answers it, as devpi orders them.
async fn dispatch(ask: &Ask, route: Option<Route>, body: Body) -> Result<Response, HttpError> {
    let Some(route) = route else {
        return Err(error::nothing_at(&ask.path));
    };
    if ask.is_read() {
        return read(ask, &route).await;
    }
    match (ask.head.method.as_str(), &route) {
        ("POST", Route::Login) => users::login(ask, body).await,
        (_, Route::AuthCheck) => status::auth_check(ask).await,
        ("PUT" | "PATCH" | "DELETE", Route::User { user }) => users::user(ask, user, body).await,
        ("POST", Route::Stage { stage }) => post(ask, stage, body).await,
        ("PUSH", Route::Stage { stage }) => push::release(ask, stage, body).await,
        ("PUT" | "PATCH" | "DELETE", Route::Stage { stage }) => {
            stages::stage(ask, stage, body).await
        }
        ("POST", Route::Retention { stage }) => yank::retain(ask, stage, body).await,
        ("POST", Route::File { stage, path }) => {
            files::add_tox_result(ask, stage, path, body).await
        }
        ("DELETE", Route::File { stage, path }) => files::remove(ask, stage, path).await,
        ("POST" | "DELETE", Route::FileYank { stage, path }) => {
            yank::file(ask, stage, path, body).await
        }
        ("POST", Route::SimpleList { stage } | Route::SimpleProject { stage, .. }) => {
            Ok(simple::no_uploads(ask, stage))
        }
        ("POST", Route::Refresh { stage, project }) => simple::refresh(ask, stage, project).await,
        ("POST", Route::Version { stage, project, version }) if version == "refresh" => {
            simple::refresh(ask, stage, project).await
        }
        ("DELETE", Route::Project { stage, project }) => project::remove(ask, stage, project).await,
        ("DELETE", Route::Version { stage, project, version }) => {
            project::remove_version(ask, stage, project, version).await
        }
        ("POST" | "PUT" | "DELETE", Route::ProjectStatus { stage, project }) => {
            yank::project_status(ask, stage, project, body).await
        }
        ("POST" | "DELETE", Route::Yank { stage, project, version }) => {
            yank::release(ask, stage, project, version, body).await
        }
        ("POST", Route::Root | Route::User { .. } | Route::Project { .. })
            if upload::is_form(ask) =>
        {
            Ok(upload::no_uploads(ask, &route))
        }
        _ => Err(HttpError::method_not_allowed(&ask.head.method, &ask.path, route.methods())),
    }
}

/// GET and HEAD.
async fn read(ask: &Ask, route: &Route) -> Result<Response, HttpError> {
    match route {
        Route::Root if ask.wants_json() => users::list(ask).await,
        Route::Root => Err(error::nothing_at(ask.head.uri.path())),
        Route::Status => status::status(ask).await,
        Route::Api { user, index } => stages::api(ask, user.as_deref(), index.as_deref()).await,
        Route::AuthCheck => status::auth_check(ask).await,
        Route::Search => search::search(ask).await,
        Route::User { user } => users::user(ask, user, Body::empty()).await,
        Route::Stage { stage } if ask.wants_page() => simple::list(ask, stage).await,
        Route::Stage { stage } => stages::stage(ask, stage, Body::empty()).await,
        Route::File { stage, path } => files::file(ask, stage, path).await,
        // Files without a digest are those of mirrors.
        Route::ExternalFile { .. } => {
            Ok(reply::refusal(ask, StatusCode::NOT_FOUND, "no such file"))
        }
        Route::SimpleList { stage } => simple::list(ask, stage).await,
        Route::SimpleProject { stage, project } => simple::project(ask, stage, project).await,
        Route::Project { stage, project } if ask.wants_page() => {
            simple::project(ask, stage, project).await
        }
        Route::Project { stage, project } => project::config(ask, stage, project).await,
        Route::Version { stage, project, version } => {
            project::version(ask, stage, project, version).await
        }
        Route::ProjectStatus { stage, project } => {
            yank::project_status(ask, stage, project, Body::empty()).await
        }
        Route::Documentation { stage, project, version, path } => {
            documentation::page(ask, stage, project, version, path).await
        }
        Route::ToxResults { stage, project, version, path } => {
            tox_results::page(ask, stage, project, version, path).await
        }
        Route::Login
        | Route::Retention { .. }
        | Route::FileYank { .. }
        | Route::Yank { .. }
        | Route::Refresh { .. } => {
            Err(HttpError::method_not_allowed(&ask.head.method, &ask.path, route.methods()))
        }
    }
}

/// `POST /{user}/{index}`: a form is an upload, XML a call, and everything else JSON, whatever it says it is; so is what
/// begins as an object of JSON and says that it is a form.
async fn post(ask: &Ask, stage: &str, body: Body) -> Result<Response, HttpError> {
    match posted(ask) {
        Posted::Form if !media_type(ask).starts_with("multipart/") => {
            // `curl -d` says that of whatever it sends.
            match write::peeked(body).await {
                (Some(b'{'), body) => push::release(ask, stage, body).await,
                (_, body) => upload::upload(ask, stage, body).await,
            }
        }
        Posted::Form => upload::upload(ask, stage, body).await,
        Posted::Xml => search::xml_rpc(ask, stage, body).await,
        Posted::Json => push::release(ask, stage, body).await,
    }
}

/// What the request says of its body.
fn posted(ask: &Ask) -> Posted {
    match media_type(ask).as_str() {
        "multipart/form-data" | "application/x-www-form-urlencoded" => Posted::Form,
        "text/xml" | "application/xml" => Posted::Xml,
        _ => Posted::Json,
    }
}

fn media_type(ask: &Ask) -> String {
    let content_type = ask.header(CONTENT_TYPE).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
