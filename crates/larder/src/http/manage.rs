//! `/+manage`: managing users, indexes and releases in a browser.
//!
//! form -> [`forms`], who sent it -> the call that a program would make, for that user -> its message, on a page. Only that
//! call checks rights, at the commit; a page merely leaves out what would be refused.

mod audit;
mod groups;
mod indexes;
mod prefetch;
mod releases;
mod users;
mod webhooks;

use std::sync::Arc;

use account::{Object, Principal, Scope, SessionText};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use record::Serial;
use serde_json::{Value, json};

use super::auth;
use super::error::HttpError;
use super::forms::{self, Posted};
use super::people::{self, Site, in_path};
use super::python;
use crate::app::App;
use crate::endpoint::Endpoint;

pub(super) use self::audit::show_audit;
pub(super) use groups::show_groups;
pub(super) use indexes::{change_index, create_index, show_index};
pub(super) use prefetch::{change_prefetch, show_prefetch};
pub(super) use releases::{change_release, list_releases, show_release};
pub(super) use users::{change_user, create_user, show_user};
pub(super) use webhooks::{change_webhook, show_webhooks};

/// Size of a form of these pages: lists of a policy may be long.
const FORM_BYTES_MAX: usize = 512 << 10;

/// Size of an answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Most users, and most indexes, on a page.
const LINES_MAX: usize = 200;

/// The name of an index in a path: its two parts are escaped, the slash between them is not.
fn stage_in_path(name: &pypi::StageName) -> String {
    name.as_str().split('/').map(in_path).collect::<Vec<_>>().join("/")
}

/// The path of the index that a request is about, and its name, below the path of a page.
fn named(head: &Parts, page: &str) -> Result<(String, String), HttpError> {
    let path = head.uri.path().strip_prefix(page).unwrap_or_default();
    let name = percent_encoding::percent_decode_str(path).decode_utf8().unwrap_or_default();
    let bad = |error: pypi::StageNameError| HttpError::bad_request(error.to_string());
    let name: pypi::StageName = name.parse().map_err(bad)?;
    Ok((stage_in_path(&name), name.to_string()))
}

/// The answer to a call.
struct Answer {
    status: StatusCode,
    message: String,
    value: Value,
    serial: Serial,
}

impl Answer {
    fn is_done(&self) -> bool {
        self.status.is_success()
    }

    fn refused(error: HttpError) -> Answer {
        let (status, message) = (error.status(), error.detail().to_owned());
        Answer { status, message, value: Value::Null, serial: Serial::ZERO }
    }
}

/// Makes the call that a program would make for `principal`.
async fn call(
    app: &Arc<App>,
    head: &Parts,
    principal: &Principal,
    (method, path): (Method, &str),
    body: Option<&Value>,
) -> Answer {
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    call_with(app, head, principal, (method, path), body).await
}

/// [`call`], with any body.
async fn call_with(
    app: &Arc<App>,
    head: &Parts,
    principal: &Principal,
    (method, path): (Method, &str),
    body: Body,
) -> Answer {
    let acting = forms::acting(head, principal, method, path);
    let mut endpoint = Endpoint::FindNoRoute;
    let response = Box::pin(python::answer(app, acting, body, &mut endpoint)).await;
    let status = response.status();
    let serial = response.headers().get("x-devpi-serial").and_then(|it| it.to_str().ok());
    let serial = serial.and_then(|serial| serial.parse().ok()).unwrap_or_default();
    let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    let value: Value = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
    let text = value["message"].as_str().or(value["detail"].as_str());
    let text = text.or(status.canonical_reason()).unwrap_or_default();
    Answer { status, message: text.to_owned(), serial, value }
}

/// 404 where there is no Python index.
fn check_on(app: &App, head: &Parts) -> Result<(), HttpError> {
    match app.config.python.enabled {
        true => Ok(()),
        false => Err(HttpError::nothing_at(head.uri.path())),
    }
}

/// The user's last form, and how it was answered.
#[derive(Default)]
struct Said {
    done: String,
    problem: String,
    /// Whether the call failed, but did a part.
    is_partial: bool,
    /// The text of a new token, which is shown only once.
    new_token: String,
}

impl Said {
    /// The status of the page that says it.
    fn of(answer: &Answer, done: &str) -> (Said, StatusCode) {
        match answer.is_done() {
            true => (Said { done: done.to_owned(), ..Said::default() }, StatusCode::OK),
            false => {
                let problem = answer.message.clone();
                (Said { problem, ..Said::default() }, answer.status)
            }
        }
    }
}

/// Makes sure that the browser sees what a call wrote, whichever process it asks next.
fn seen(app: &App, head: &Parts, response: &mut Response, posted: &Posted, serial: Serial) {
    forms::keep_session(app, head, response, &posted.session, serial);
}

/// The outcome of a form that deletes.
enum Deletion {
    /// It was deleted; the browser goes back.
    Done(Response),
    Refused(Answer),
}

/// Deletes what is at `path`, if its name was typed as confirmation; `typed` is the message if it was not.
async fn delete(
    app: &Arc<App>,
    head: &Parts,
    posted: &Posted,
    path: &str,
    (name, typed): (&str, &str),
) -> Result<Deletion, HttpError> {
    if posted.fields.one("confirm")? != name {
        let detail = format!("{typed}, {name}.");
        return Ok(Deletion::Refused(Answer::refused(HttpError::unusable(detail))));
    }
    let force = if posted.fields.maybe("force")?.is_some() { "?force" } else { "" };
    let path = format!("{path}{force}");
    let answer = call(app, head, &posted.principal, (Method::DELETE, &path), None).await;
    if !answer.is_done() {
        return Ok(Deletion::Refused(answer));
    }
    let mut response = forms::see_other(app, head, "/+manage");
    seen(app, head, &mut response, posted, answer.serial);
    Ok(Deletion::Done(response))
}

#[derive(Template)]
#[template(path = "manage.html")]
struct ManagePage {
    site: Site,
    form: String,
    is_administrator: bool,
    name: String,
    query: String,
    users: Vec<UserLine>,
    indexes: Vec<IndexLine>,
    is_more: bool,
    said: Said,
}

struct UserLine {
    name: String,
    path: String,
    title: String,
    groups: String,
    is_administrator: bool,
    is_disabled: bool,
    has_password: bool,
}

struct IndexLine {
    name: String,
    path: String,
    about: String,
}

/// `/+manage`
pub(super) async fn show_management(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (session, principal) = forms::logged_in(app, head).await?;
    page(app, head, (&session, &principal), Said::default(), StatusCode::OK).await
}

async fn page(
    app: &App,
    head: &Parts,
    (session, principal): (&SessionText, &Principal),
    said: Said,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let stored = auth::stored(app)?;
    let query = head.uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let query = pairs.find_map(|(name, value)| (name == "q").then_some(value));
    let query: String = query.unwrap_or_default().trim().chars().take(200).collect();
    let is_administrator = principal.is_administrator(Scope::UserAdmin, Object::Server);
    let policy = python::user_policy(app);
    let users = stored.accounts.users().filter(|user| {
        let is_own = principal.user_name() == Some(&user.name);
        let may_see =
            is_administrator || is_own || policy.modify_user(principal, &user.name).is_ok();
        may_see && user.name.as_str().contains(&query)
    });
    let mut users = users.map(|user| UserLine {
        name: user.name.to_string(),
        path: in_path(user.name.as_str()),
        title: user.title.clone().unwrap_or_default(),
        groups: user.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        is_administrator: user.is_administrator(),
        is_disabled: user.is_disabled,
        has_password: user.password_hash.is_some(),
    });
    let stages = stored.index.stages().filter(|stage| {
        app.config.python.enabled
            && python::may_keep(app, principal, stage.name())
            && stage.name().as_str().contains(&query)
    });
    let mut indexes = stages.map(|stage| IndexLine {
        name: stage.name().to_string(),
        path: stage_in_path(stage.name()),
        about: if stage.config().is_mirror() { "mirror".into() } else { "index".into() },
    });
    let page = ManagePage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        is_administrator,
        name: principal.user_name().map(ToString::to_string).unwrap_or_default(),
        query: query.clone(),
        users: users.by_ref().take(LINES_MAX).collect(),
        indexes: indexes.by_ref().take(LINES_MAX).collect(),
        is_more: users.next().is_some() || indexes.next().is_some(),
        said,
    };
    Ok(people::send_once(&page, head, status).await)
}
