//! `/+manage`: managing users, indexes and releases in a browser.
//!
//! form -> [`forms`], who sent it -> an operation of that user -> what came of it, on a page. Only the operation checks rights; a
//! page merely leaves out what would be refused.

mod audit;
mod groups;
mod index_settings;
mod indexes;
mod prefetch;
mod releases;
mod tokens;
mod users;
mod webhooks;

use std::sync::Arc;

use account::{Object, Principal, Scope, SessionText};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use operations::Operation;
use operations::rights::{check_administrator, may_keep};
use pypi::StageName;
use record::Serial;
use serde_json::{Value, json};

use self::index_settings::{Kind, Setting, new_index, people};
use super::forms::{self, PostedForm};
use crate::app::App;
use crate::front::auth;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::page::{self, Site};
use crate::front::parameters::typed_parameter;
use crate::front::request::Parts;
use crate::protocols::python;

pub(crate) use self::audit::show_audit;
pub(crate) use groups::show_groups;
pub(crate) use indexes::{change_index, create_index, show_index};
pub(crate) use prefetch::{change_prefetch, show_prefetch};
pub(crate) use releases::{change_release, list_releases, show_release};
pub(crate) use tokens::show_tokens;
pub(crate) use users::{change_user, create_user, show_user};
pub(crate) use webhooks::{change_webhook, show_webhooks};

/// Size of a form of these pages: lists of a policy may be long.
const FORM_BYTES_MAX: usize = 512 << 10;

/// Most users, and most indexes, on a page.
const LINES_MAX: usize = 200;

/// What came of a form.
struct Answer {
    status: StatusCode,
    message: String,
    serial: Serial,
}

impl Answer {
    fn is_done(&self) -> bool {
        self.status.is_success()
    }

    fn done(serial: Serial) -> Answer {
        Answer { status: StatusCode::OK, message: String::new(), serial }
    }

    fn refused(error: HttpError) -> Answer {
        let (status, message) = (error.status(), error.detail().to_owned());
        Answer { status, message, serial: Serial::ZERO }
    }

    fn of<T>(outcome: Result<T, HttpError>) -> (Answer, Option<T>) {
        match outcome {
            Ok(outcome) => (Answer::done(Serial::ZERO), Some(outcome)),
            Err(error) => (Answer::refused(error), None),
        }
    }
}

/// Carries out what a form asks for; while the disk is nearly full, only for administrators.
async fn carry_out(
    app: &App,
    head: &Parts,
    posted: &PostedForm,
    wish: Result<impl Operation, HttpError>,
) -> Answer {
    let outcome = async {
        let wish = wish?;
        auth::admit_to_disk(app, &posted.principal).await?;
        Ok(operations::carry_out(&mut app.keeper(), &posted.sender(head), &wish).await?)
    };
    outcome.await.map_or_else(Answer::refused, |done| Answer::done(done.seen))
}

/// Carries out what a form removes, however full the disk is.
async fn remove(app: &App, head: &Parts, posted: &PostedForm, wish: &impl Operation) -> Answer {
    let outcome = operations::carry_out(&mut app.keeper(), &posted.sender(head), wish).await;
    outcome.map_or_else(|refusal| Answer::refused(refusal.into()), |done| Answer::done(done.seen))
}

/// [`remove`], if the name was typed: what goes is gone for good.
async fn remove_typed(
    app: &App,
    head: &Parts,
    posted: &PostedForm,
    (name, expected): (&str, &str),
    wish: &impl Operation,
) -> Answer {
    match posted.fields.one("confirm") {
        Ok(typed) if typed.trim() == name => remove(app, head, posted, wish).await,
        Ok(_) => Answer::refused(HttpError::unusable(format!("{expected}, {name}."))),
        Err(error) => Answer::refused(error),
    }
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
struct FormNotice {
    done: String,
    problem: String,
    /// Whether the call failed, but did a part.
    is_partial: bool,
    /// The text of a new token, which is shown only once.
    new_token: String,
}

impl FormNotice {
    /// The status of the page that says it.
    fn of(answer: &Answer, done: &str) -> (FormNotice, StatusCode) {
        match answer.is_done() {
            true => (FormNotice { done: done.to_owned(), ..FormNotice::default() }, StatusCode::OK),
            false => {
                let problem = answer.message.clone();
                (FormNotice { problem, ..FormNotice::default() }, answer.status)
            }
        }
    }
}

/// Makes sure that the browser sees what a call wrote, whichever process it asks next.
fn seen(app: &App, head: &Parts, response: &mut Response, posted: &PostedForm, serial: Serial) {
    forms::keep_session(app, head, response, &posted.session, serial);
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
    /// The form for a new index, and users and groups that can be chosen in it.
    new_name: String,
    new_index: Vec<Setting>,
    people: Vec<String>,
    /// Whether it was sent, and not carried out.
    is_new_open: bool,
    said: FormNotice,
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
pub(crate) async fn show_management(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (session, principal) = forms::logged_in(app, head).await?;
    page(app, head, (&session, &principal), FormNotice::default(), StatusCode::OK, None).await
}

/// `typed`: the form for a new index, if it was not carried out.
async fn page(
    app: &App,
    head: &Parts,
    (session, principal): (&SessionText, &Principal),
    said: FormNotice,
    status: StatusCode,
    typed: Option<&forms::Fields>,
) -> Result<Response, HttpError> {
    let stored = app.stored()?;
    let query = typed_parameter(head, "q", 200);
    let is_administrator = principal.is_administrator(Scope::UserAdmin, Object::Server);
    let policy = &app.rules.users;
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
            && may_keep(&app.rules, principal, stage.name())
            && stage.name().as_str().contains(&query)
    });
    let mut indexes = stages.map(|stage| IndexLine {
        name: stage.name().to_string(),
        path: in_path(stage.name().as_str()),
        about: if stage.config().is_mirror() { "mirror".into() } else { "index".into() },
    });
    let name = principal.user_name().map(ToString::to_string).unwrap_or_default();
    let new_name = typed.and_then(|fields| fields.one("name").ok()).map(str::to_owned);
    let page = ManagePage {
        new_name: new_name.unwrap_or_else(|| format!("{name}/")),
        new_index: new_index(typed),
        people: people(&stored.accounts, principal),
        is_new_open: typed.is_some(),
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        is_administrator,
        name,
        query: query.clone(),
        users: users.by_ref().take(LINES_MAX).collect(),
        indexes: indexes.by_ref().take(LINES_MAX).collect(),
        is_more: users.next().is_some() || indexes.next().is_some(),
        said,
    };
    Ok(page::send_once(&page, head, status).await)
}
