//! Users, as devpi's clients make, change and remove them; and logging in.

use account::change::{self, CreateUserError, DeleteUserError};
use account::{
    Credentials, EditError, EditRules, Forbidden, PasswordHash, User, UserEdit, UserName,
    UserPolicy,
};
use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use jiff::Timestamp;
use pypi::change::stage;
use pypi::devpi::{UserConfig, user_list};
use serde_json::{Value, json};

use super::ask::Ask;
use super::reply;
use super::write::{Refused, committed, json_body, rule};
use crate::accounts;
use crate::app::App;
use crate::http::auth;
use crate::http::error::HttpError;

/// Who may make and change users.
fn policy(app: &App) -> UserPolicy {
    let python = &app.config.python;
    let modifiers = &python.restrict_modify;
    UserPolicy {
        strangers_create_users: app.config.users.may_register || python.devpi_defaults,
        modifiers: (!modifiers.entries().is_empty()).then(|| modifiers.clone()),
    }
}

/// `/`: all users.
pub(super) async fn list(ask: &Ask) -> Result<Response, HttpError> {
    let principal = ask.principal().await?;
    let users = ask.stored.accounts.users().map(|user| &**user);
    let list = user_list(users, &ask.stored.index, &principal);
    Ok(reply::result(StatusCode::OK, "list:userconfig", list, None))
}

/// `/{user}`, by every method.
pub(super) async fn user(ask: &Ask, user: &str, body: Body) -> Result<Response, HttpError> {
    let outcome = match ask.head.method {
        Method::GET | Method::HEAD => show(ask, user).await,
        Method::PUT => create(ask, user, body).await,
        Method::PATCH => modify(ask, user, body).await,
        Method::DELETE => delete(ask, user).await,
        _ => {
            let methods = "GET, HEAD, PUT, PATCH, DELETE";
            let path = &ask.path;
            return Err(HttpError::method_not_allowed(&ask.head.method, path, methods));
        }
    };
    outcome.or_else(Refused::into_result)
}

fn missing(user: impl std::fmt::Display) -> Refused {
    rule(StatusCode::NOT_FOUND, format_args!("no user '{user}'"))
}

fn known(user: &str) -> Result<UserName, Refused> {
    user.parse().map_err(|_| missing(user))
}

fn forbidden(error: Forbidden) -> Refused {
    rule(StatusCode::FORBIDDEN, error)
}

async fn show(ask: &Ask, user: &str) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    // Nobody asked for JSON who looks for something else here: the house answers.
    let missing = || HttpError::new(StatusCode::NOT_FOUND, format!("no user '{user}'"));
    let name: UserName = user.parse().map_err(|_| missing())?;
    let user = ask.stored.accounts.user(&name).ok_or_else(missing)?;
    let config = UserConfig { user, snapshot: &ask.stored.index, principal: &principal };
    Ok(reply::result(StatusCode::OK, "userconfig", config, None))
}

async fn edit(ask: &Ask, body: Body, refuse_unknown_keys: bool) -> Result<UserEdit, Refused> {
    let json = json_body(ask, body).await?;
    let bad = |text: &dyn std::fmt::Display| rule(StatusCode::BAD_REQUEST, text);
    let Value::Object(object) = json else {
        return Err(bad(&"a user's configuration is a JSON object"));
    };
    let allow_empty_password = ask.app.config.python.devpi_defaults;
    let rules = EditRules { refuse_unknown_keys, allow_empty_password };
    UserEdit::from_json(&object, rules).map_err(|error: EditError| bad(&error))
}

/// Takes tens of milliseconds, once there is a place for it.
async fn hashed(ask: &Ask, edit: &UserEdit) -> Result<Option<PasswordHash>, Refused> {
    let Some(password) = edit.password.clone() else { return Ok(None) };
    let salt = accounts::random().map_err(|error| {
        tracing::error!(%error, "the system has no random numbers");
        HttpError::unavailable("the system has no random numbers", 5)
    })?;
    let hash = ask.app.passwords.hash(password, salt).await;
    Ok(Some(hash.map_err(|error| HttpError::unavailable(error.to_string(), 1))?))
}

async fn create(ask: &Ask, user: &str, body: Body) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name: UserName =
        user.parse().map_err(|error: account::NameError| rule(StatusCode::BAD_REQUEST, error))?;
    // As with devpi, whoever makes what there is learns so before the rest.
    if ask.stored.accounts.user(&name).is_some() {
        return Err(rule(StatusCode::CONFLICT, CreateUserError::Exists));
    }
    policy(&ask.app).create_user(&principal, &name).map_err(forbidden)?;
    let edit = edit(ask, body, true).await?;
    // A body may take its time: who has lost the right meanwhile, has lost it.
    let principal = ask.principal().await?;
    policy(&ask.app).create_user(&principal, &name).map_err(forbidden)?;
    let hash = hashed(ask, &edit).await?;
    if hash.is_none() {
        return Err(rule(StatusCode::BAD_REQUEST, "password needs to be set"));
    }
    let mut user = User::new(name, Timestamp::now());
    user.password_hash = hash;
    edit.profile.apply(&mut user);
    committed(ask, |stored| match change::create_user(&stored.accounts, &user) {
        Ok(batch) => Ok((Some(batch), ())),
        Err(error @ CreateUserError::Exists) => Err(rule(StatusCode::CONFLICT, error)),
        Err(error @ CreateUserError::Reserved(_)) => Err(rule(StatusCode::BAD_REQUEST, error)),
    })
    .await?;
    let config = UserConfig { user: &user, snapshot: &ask.stored.index, principal: &principal };
    Ok(reply::result(StatusCode::CREATED, "userconfig", config, None))
}

async fn modify(ask: &Ask, user: &str, body: Body) -> Result<Response, Refused> {
    let name = known(user)?;
    if ask.stored.accounts.user(&name).is_none() {
        return Err(missing(&name));
    }
    let policy = policy(&ask.app);
    // What it changes says who may; and a body may take its time, so it is asked who that is when it has come.
    let edit = edit(ask, body, false).await?;
    let principal = ask.principal().await?;
    if edit.password.is_some() {
        let stored = auth::stored(&ask.app)?;
        let current = stored.accounts.user(&name).ok_or_else(|| missing(&name))?;
        policy.change_password(&principal, current).map_err(forbidden)?;
    }
    if !edit.is_password_only() {
        policy.modify_user(&principal, &name).map_err(forbidden)?;
    }
    let hash = hashed(ask, &edit).await?;
    let is_password = hash.is_some();
    committed(ask, |stored| {
        let now = Timestamp::now();
        let batch = change::modify_user(&stored.accounts, &name, &edit.profile, hash.clone(), now);
        Ok((batch.map_err(|_| missing(&name))?, ()))
    })
    .await?;
    if is_password {
        let stored = auth::stored(&ask.app)?;
        let changed = stored.accounts.user(&name).ok_or_else(|| missing(&name))?;
        let login = proxy_auth(&ask.app, changed)?;
        let message = Some("user updated, new proxy auth");
        return Ok(reply::result(StatusCode::OK, "userpassword", login, message));
    }
    Ok(reply::message(StatusCode::OK, "user updated"))
}

async fn delete(ask: &Ask, user: &str) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name = known(user)?;
    if ask.stored.accounts.user(&name).is_none() {
        return Err(missing(&name));
    }
    policy(&ask.app).delete_user(&principal, &name).map_err(forbidden)?;
    let force = ask.has_flag("force");
    committed(ask, |stored| {
        let mut batch = match change::delete_user(&stored.accounts, &name) {
            Ok(batch) => batch,
            Err(DeleteUserError::NoUser(_)) => return Err(missing(&name)),
            Err(error) => return Err(rule(StatusCode::FORBIDDEN, error)),
        };
        let stages = stage::delete_of_user(&stored.index, &name, force)
            .map_err(|error| rule(StatusCode::FORBIDDEN, error))?;
        batch.writes.extend(stages.writes);
        batch.checks.extend(stages.checks);
        Ok((Some(batch), ()))
    })
    .await?;
    Ok(reply::message(StatusCode::OK, &format!("user '{name}' deleted")))
}

/// What a login gives, for the password that was shown a moment ago.
fn proxy_auth(app: &App, user: &User) -> Result<Value, HttpError> {
    let stored = auth::stored(app)?;
    let Some(secret) = stored.accounts.login_secret() else {
        return Err(HttpError::unavailable("the store has no secret to sign logins with", 5));
    };
    let lifetime = app.config.users.login;
    let login = secret.issue(user, Timestamp::now(), lifetime);
    Ok(json!({"password": login.reveal(), "expiration": lifetime.as_secs()}))
}

/// `POST /+login`
pub(super) async fn login(ask: &Ask, body: Body) -> Result<Response, HttpError> {
    log_in(ask, body).await.or_else(Refused::into_result)
}

async fn log_in(ask: &Ask, body: Body) -> Result<Response, Refused> {
    if ask.head.method != Method::POST {
        let error = HttpError::method_not_allowed(&ask.head.method, &ask.path, "POST");
        return Err(error.into());
    }
    let json = json_body(ask, body).await?;
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    let (Some(user), Some(password)) = (text("user"), text("password")) else {
        let text = "Bad request: no user/password specified";
        return Err(rule(StatusCode::BAD_REQUEST, text));
    };
    let refused =
        || rule(StatusCode::UNAUTHORIZED, format_args!("user '{user}' could not be authenticated"));
    let credentials = Credentials::from_user_and_password(user, password).map_err(|_| refused())?;
    // A login does not make a longer one, and a token is no login.
    let Credentials::Password { .. } = credentials else { return Err(refused()) };
    let proved = auth::proved(&ask.app, &credentials).await?;
    let principal = proved.map_err(|_| refused())?;
    let identity = principal.identity().ok_or_else(refused)?;
    let login = proxy_auth(&ask.app, &identity.user)?;
    Ok(reply::result(StatusCode::OK, "proxyauth", login, Some("login successful")))
}
