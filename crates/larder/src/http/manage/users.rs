//! Making and changing users: administrators do, and users themselves as far as they may.

use std::collections::BTreeSet;
use std::sync::Arc;

use account::{Forbidden, GroupName, Object, Principal, Scope, UserName, UserPolicy, change};
use jiff::Timestamp;

use super::*;
use crate::http::account::{SCOPES, token_wish};
use crate::http::words::Time;
use crate::http::{serial, tokens};

#[derive(Template)]
#[template(path = "manage_user.html")]
struct UserPage {
    site: Site,
    form: String,
    name: String,
    path: String,
    title: String,
    email: String,
    groups: String,
    created_at: Time,
    is_root: bool,
    is_own: bool,
    may_modify: bool,
    may_set_password: bool,
    is_disabled: bool,
    has_password: bool,
    tokens: usize,
    /// The tokens that the reader may revoke.
    token_lines: Vec<TokenLine>,
    sessions: usize,
    is_administrator: bool,
    /// The scopes for a new token, with what they are for; empty if the reader may not make one.
    scopes: Vec<(&'static str, &'static str)>,
    said: Said,
}

/// `POST /+manage/users`
pub(in crate::http) async fn create_user(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let fields = &posted.fields;
    let name = fields.one("name")?.trim();
    let mut user = json!({"password": fields.one("password")?});
    for key in ["email", "title"] {
        let text = fields.maybe(key)?.unwrap_or_default().trim();
        if !text.is_empty() {
            user[key] = json!(text);
        }
    }
    let path = format!("/{}", in_path(name));
    // A user whom an unattended browser makes would outlast its session.
    let answer = match forms::proved_again(app, &posted, "own").await {
        Ok(_) => call(app, head, &posted.principal, (Method::PUT, &path), Some(&user)).await,
        Err(error) => Answer::refused(error),
    };
    if answer.is_done() {
        let mut response = forms::see_other(app, head, &format!("/+manage/users{path}"));
        seen(app, head, &mut response, &posted, answer.serial);
        return Ok(response);
    }
    let (said, status) = Said::of(&answer, "");
    super::page(app, head, (&posted.session, &posted.principal), said, status).await
}

/// A token of the user.
struct TokenLine {
    id: String,
    comment: String,
    scopes: String,
    created_at: Time,
    is_expired: bool,
}

fn named(head: &Parts) -> Result<UserName, HttpError> {
    let name = head.uri.path().strip_prefix("/+manage/users/").unwrap_or_default();
    let name = percent_encoding::percent_decode_str(name).decode_utf8().unwrap_or_default();
    name.parse().map_err(|error: account::NameError| HttpError::bad_request(error.to_string()))
}

/// `GET /+manage/users/{user}`
pub(in crate::http) async fn show_user(
    app: &Arc<App>,
    head: &Parts,
) -> Result<Response, HttpError> {
    let name = named(head)?;
    let (session, principal) = forms::logged_in(app, head).await?;
    page(app, head, &name, (&session, &principal), Said::default(), StatusCode::OK).await
}

/// Who may look at this page: the user, administrators, and those whom the configuration lets change users.
fn check_keeper(app: &App, principal: &Principal, name: &UserName) -> Result<(), HttpError> {
    let is_own = principal.acts_for(name, Scope::UserAdmin, Object::Server);
    if is_own || python::user_policy(app).modify_user(principal, name).is_ok() {
        return Ok(());
    }
    Err(HttpError::forbidden(format!("only `{name}` and administrators may see this page")))
}

async fn page(
    app: &App,
    head: &Parts,
    name: &UserName,
    (session, principal): (&SessionText, &Principal),
    said: Said,
    status: StatusCode,
) -> Result<Response, HttpError> {
    check_keeper(app, principal, name)?;
    let stored = auth::stored(app)?;
    let missing = || HttpError::not_found(change::NoUser(name.clone()).to_string());
    let user = stored.accounts.user(name).ok_or_else(missing)?;
    let now = Timestamp::now();
    let sessions = stored.accounts.sessions_of(name).into_iter().flat_map(|it| &it.sessions);
    let policy = python::user_policy(app);
    let may_manage_tokens = UserPolicy::default().manage_tokens(principal, name).is_ok();
    let page = UserPage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        name: name.to_string(),
        path: in_path(name.as_str()),
        title: user.title.clone().unwrap_or_default(),
        email: user.email.clone().unwrap_or_default(),
        groups: user.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        created_at: Time(user.created_at),
        is_root: name.is_root(),
        is_own: principal.user_name() == Some(name),
        may_modify: policy.modify_user(principal, name).is_ok(),
        may_set_password: policy.change_password(principal, user).is_ok(),
        is_disabled: user.is_disabled,
        has_password: user.password_hash.is_some(),
        tokens: stored.accounts.tokens_of(name).len(),
        token_lines: match may_manage_tokens {
            true => stored
                .accounts
                .tokens_of(name)
                .into_iter()
                .rev()
                .take(LINES_MAX)
                .map(|token| TokenLine {
                    id: token.id.to_string(),
                    comment: token.comment.clone(),
                    scopes: token.scopes.to_string().replace(',', ", "),
                    created_at: Time(token.created_at),
                    is_expired: token.is_expired(now),
                })
                .collect(),
            false => Vec::new(),
        },
        scopes: match may_manage_tokens {
            true => SCOPES.iter().map(|(scope, about)| (scope.as_str(), *about)).collect(),
            false => Vec::new(),
        },
        sessions: sessions.filter(|session| session.holds(user, now)).count(),
        is_administrator: principal.is_administrator(Scope::UserAdmin, Object::Server),
        said,
    };
    Ok(people::send_once(&page, head, status).await)
}

/// `POST /+manage/users/{user}`, by what its field `do` names.
pub(in crate::http) async fn change_user(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let name = named(head)?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (fields, principal) = (&posted.fields, &posted.principal);
    // The right to see the page is checked first: without it, nothing is changed.
    check_keeper(app, principal, &name)?;
    let path = format!("/{}", in_path(name.as_str()));
    let is_own = principal.user_name() == Some(&name);
    let what = fields.one("do")?;
    let unproved = match what {
        "password" if is_own => None,
        "password" | "groups" | "enable" | "token" => {
            forms::proved_again(app, &posted, "own").await.err()
        }
        _ => None,
    };
    let mut new_token = String::new();
    let (answer, done) = match (what, unproved) {
        (_, Some(error)) => (Answer::refused(error), ""),
        ("profile", _) => {
            let edit = json!({"title": fields.one("title")?, "email": fields.one("email")?});
            let call = call(app, head, principal, (Method::PATCH, &path), Some(&edit));
            (call.await, "The profile is changed.")
        }
        // An unattended browser must not be enough to take over the account.
        ("password", _) if is_own => {
            let detail = "Your own password is changed on your own page, at /+account, where the old one is asked for.";
            (Answer::refused(HttpError::forbidden(detail)), "")
        }
        ("password", _) => {
            let edit = json!({"password": fields.one("password")?});
            let call = call(app, head, principal, (Method::PATCH, &path), Some(&edit));
            (call.await, "The password is set. Every browser of the user is logged out.")
        }
        ("groups", _) => {
            let groups: Result<BTreeSet<GroupName>, _> =
                fields.words("groups")?.iter().map(|name| name.parse()).collect();
            let answer = match groups {
                Ok(groups) => administer(app, principal, &name, Change::Groups(groups)).await,
                Err(error) => Answer::refused(HttpError::unusable(format!("{error}"))),
            };
            (answer, "The groups are set.")
        }
        ("token", _) => {
            let wish = token_wish(fields)?.to_string();
            let path = format!("/+tokens?user={}", in_path(name.as_str()));
            let acting = forms::acting(head, principal, Method::POST, &path);
            let answer = match tokens::create_token(app, &acting, Body::from(wish)).await {
                Ok(response) => {
                    let (status, serial) = (response.status(), serial::of(response.headers()));
                    let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
                    let token: Value =
                        serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
                    new_token = token["token"].as_str().unwrap_or_default().to_owned();
                    Answer { status, message: String::new(), value: Value::Null, serial }
                }
                Err(error) => Answer::refused(error),
            };
            (answer, "The token is made.")
        }
        ("revoke", _) => {
            let path = format!("/+tokens/{}", in_path(fields.one("id")?));
            let acting = forms::acting(head, principal, Method::DELETE, &path);
            let answer = match tokens::revoke_token(app, &acting).await {
                Ok(response) => Answer {
                    status: response.status(),
                    message: String::new(),
                    value: Value::Null,
                    serial: serial::of(response.headers()),
                },
                Err(error) => Answer::refused(error),
            };
            (answer, "The token is revoked.")
        }
        ("disable", _) => {
            let answer = administer(app, principal, &name, Change::Disabled(true)).await;
            (answer, "The user is disabled: no password, token or session of theirs is taken.")
        }
        ("enable", _) => {
            let answer = administer(app, principal, &name, Change::Disabled(false)).await;
            (answer, "The user is enabled again.")
        }
        ("delete", _) => {
            let typed = "To delete the user, type their name";
            match super::delete(app, head, &posted, &path, (name.as_str(), typed)).await? {
                Deletion::Done(response) => return Ok(response),
                Deletion::Refused(answer) => (answer, ""),
            }
        }
        _ => return Err(HttpError::bad_request("the form does not say what to do")),
    };
    let (said, status) = Said::of(&answer, done);
    let said = Said { new_token, ..said };
    let sender = (&posted.session, &posted.principal);
    // Users who disable themselves are logged out.
    if auth::session::known(app, &posted.session)?.is_none() {
        return Ok(forms::see_other(app, head, "/+account/login"));
    }
    let mut response = page(app, head, &name, sender, said, status).await?;
    seen(app, head, &mut response, &posted, answer.serial);
    Ok(response)
}

/// A change that only administrators may make.
#[derive(Clone)]
enum Change {
    Groups(BTreeSet<GroupName>),
    Disabled(bool),
}

/// Changes groups or state of a user; the right is judged on the state that the change is decided on.
async fn administer(app: &App, principal: &Principal, name: &UserName, what: Change) -> Answer {
    if let Err(error) = auth::admit_to_disk(app, principal).await {
        return Answer::refused(error);
    }
    let patience = app.config.store.wait_for_serial;
    let deciding = app.live_store.decided(principal, patience, |basis| {
        let forbidden = |error: Forbidden| HttpError::forbidden(error.to_string());
        UserPolicy::default().administer(auth::still(basis)?, name).map_err(forbidden)?;
        let (accounts, now) = (&basis.stored().accounts, Timestamp::now());
        let batch = match &what {
            Change::Groups(groups) => change::set_groups(accounts, name, groups.clone(), now),
            Change::Disabled(true) if name.is_root() => {
                return Err(HttpError::forbidden("user 'root' cannot be disabled"));
            }
            Change::Disabled(is_disabled) => {
                change::set_disabled(accounts, name, *is_disabled, now)
            }
        };
        let none = |error: change::NoUser| HttpError::not_found(error.to_string());
        Ok::<_, HttpError>((batch.map_err(none)?, ()))
    });
    match deciding.await {
        Ok(((), serial)) => Answer {
            status: StatusCode::OK,
            message: String::new(),
            value: Value::Null,
            serial: serial.unwrap_or_default(),
        },
        Err(error) => Answer::refused(error),
    }
}
