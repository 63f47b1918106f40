//! Users, as devpi's clients make, change and remove them; and logging in.

use account::change::{self, CreateUserError, DeleteUserError};
use account::{
    Credentials, EditError, EditRules, Forbidden, Object, PasswordHash, Principal, Scope, User,
    UserEdit, UserName, UserPolicy,
};
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use passwords::Priority;
use pypi::change::stage;
use pypi::devpi::{UserConfig, View, user_list};
use serde_json::{Value, json};
use state::secrets;
use state::security;
use state::stored::Basis;

use super::ask::Ask;
use super::policy::entries_of_change;
use super::reply;
use super::write::{Refused, committed, committed_and_noted, json_body};
use crate::app::App;
use crate::http::auth;
use crate::http::body::{Json, JsonBound};
use crate::http::error::HttpError;

/// A user's body: a description and custom data of 64 KiB each, some of it escaped, with the indexes that old clients send
/// back.
const BOUND: JsonBound = JsonBound { bytes_max: 256 << 10, values_max: 20_000 };

/// The body of a user who registers without credentials: there are no indexes yet, and little else.
const STRANGER_BOUND: JsonBound = JsonBound { bytes_max: 16 << 10, values_max: 200 };

/// A login: a name and a password.
const LOGIN_BOUND: JsonBound = JsonBound { bytes_max: 16 << 10, values_max: 100 };

/// Who may make and change users.
pub(in crate::http) fn policy(app: &App) -> UserPolicy {
    let python = &app.config.python;
    let modifiers = &python.restrict_modify;
    UserPolicy {
        strangers_create_users: app.config.users.may_register || python.devpi_defaults,
        modifiers: (!modifiers.entries().is_empty()).then(|| modifiers.clone()),
    }
}

/// `/`: the users whom one may know of.
pub(super) async fn list_users(ask: &Ask) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let users = ask.stored.accounts.users().map(|user| &**user);
    let list = user_list(users, ask.view(&principal));
    Ok(reply::result(StatusCode::OK, "list:userconfig", list, None))
}

fn known(user: &str) -> Result<UserName, Refused> {
    user.parse().map_err(|_| Refused::unknown_user(user))
}

/// The refusal of a user change, with its cause: what the token lacks, or who may. With `devpi_defaults`, devpi's messages are
/// unchanged; devpi has no tokens.
fn forbidden(ask: &Ask, principal: &Principal, error: Forbidden) -> Refused {
    let python = &ask.app.config.python;
    let text = match principal.lack(Scope::UserAdmin, Object::Server) {
        Some(lack) => format!("{error}: {lack}"),
        None if python.devpi_defaults => error.to_string(),
        None if principal.identity().is_none() => {
            format!("{error}: a user and a password, or a token, are needed")
        }
        None => {
            format!("{error}: {}", who_may(&error, !python.restrict_modify.entries().is_empty()))
        }
    };
    Refused::forbidden(text)
}

/// Those who may, as a part of a sentence; `is_restricted`: `python.restrict_modify` is set.
fn who_may(error: &Forbidden, is_restricted: bool) -> String {
    let only_named =
        || "only whom `python.restrict_modify` names and administrators may".to_owned();
    match error {
        Forbidden::CreateUser(name) if is_restricted && !name.is_root() => only_named(),
        Forbidden::ModifyUser(_) | Forbidden::DeleteUser(_) if is_restricted => only_named(),
        Forbidden::ChangePassword(name) if is_restricted => format!(
            "only `{name}`, administrators and, unless `{name}` is one, whom `python.restrict_modify` names may"
        ),
        Forbidden::ModifyUser(name)
        | Forbidden::ChangePassword(name)
        | Forbidden::DeleteUser(name)
        | Forbidden::ManageTokens(name) => format!("only `{name}` and administrators may"),
        Forbidden::CreateUser(_) | Forbidden::Administer(_) | Forbidden::WiderToken { .. } => {
            "only administrators may".to_owned()
        }
    }
}

/// `GET /{user}`
pub(super) async fn show_user(ask: &Ask, user: &str) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    // A client that looks for something else here did not ask for JSON: it gets the usual answer.
    let missing = || HttpError::not_found(format!("no user '{user}'"));
    let name: UserName = user.parse().map_err(|_| missing())?;
    let view = ask.view(&principal);
    let user = ask.stored.accounts.user(&name).filter(|user| view.knows(user));
    let config = UserConfig { user: user.ok_or_else(missing)?, view };
    Ok(reply::result(StatusCode::OK, "userconfig", config, None))
}

/// The user edit in a body, and the JSON that holds its memory.
async fn edit(
    ask: &Ask,
    principal: &Principal,
    body: Body,
    refuse_unknown_keys: bool,
) -> Result<(UserEdit, Json), Refused> {
    let bound = if principal.user_name().is_some() { BOUND } else { STRANGER_BOUND };
    let json = json_body(ask, principal, body, bound).await?;
    let bad = |text: &dyn std::fmt::Display| Refused::bad_request(text);
    let Value::Object(object) = &json.value else {
        return Err(bad(&"a user's configuration is a JSON object"));
    };
    let allow_empty_password = ask.app.config.python.devpi_defaults;
    let rules = EditRules { refuse_unknown_keys, allow_empty_password };
    let edit = UserEdit::from_json(object, rules).map_err(|error: EditError| bad(&error))?;
    Ok((edit, json))
}

/// Takes tens of milliseconds, once there is a place for it.
async fn hashed(ask: &Ask, edit: &UserEdit) -> Result<Option<PasswordHash>, Refused> {
    let Some(password) = edit.password.clone() else { return Ok(None) };
    let salt = secrets::random().map_err(|error| {
        tracing::error!(%error, "the system has no random numbers");
        HttpError::unavailable("the system has no random numbers", 5)
    })?;
    let priority = if security::is_identified() { Priority::Known } else { Priority::Other };
    let hash = ask.app.passwords.hash(password, salt, security::client().key(), priority).await;
    Ok(Some(hash.map_err(|error| HttpError::unavailable(error.to_string(), 1))?))
}

/// `PUT /{user}`
pub(super) async fn create_user(ask: &Ask, user: &str, body: Body) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name: UserName =
        user.parse().map_err(|error: account::NameError| Refused::bad_request(error))?;
    let policy = policy(&ask.app);
    let may_create = policy.create_user(&principal, &name);
    let may_create = may_create.map_err(|error| forbidden(ask, &principal, error));
    // With `devpi_defaults`, the first refusal says that the user exists already.
    if !ask.app.config.python.devpi_defaults {
        may_create?;
    } else if ask.stored.accounts.user(&name).is_some() {
        return Err(Refused::conflict(CreateUserError::Exists));
    } else {
        may_create?;
    }
    auth::admit_to_disk(&ask.app, &principal).await?;
    let (edit, _json) = edit(ask, &principal, body, true).await?;
    let hash = hashed(ask, &edit).await?;
    if hash.is_none() {
        return Err(Refused::bad_request("password needs to be set"));
    }
    let mut user = User::new(name, Timestamp::now());
    user.password_hash = hash;
    edit.profile.apply(&mut user);
    let principal = committed(ask, |basis| {
        let may_create = policy.create_user(basis.principal(), &user.name);
        may_create.map_err(|error| forbidden(ask, basis.principal(), error))?;
        match change::create_user(&basis.stored().accounts, &user) {
            Ok(batch) => Ok((Some(batch), basis.principal().clone())),
            Err(error @ CreateUserError::Exists) => Err(Refused::conflict(error)),
            Err(error @ CreateUserError::Reserved(_)) => Err(Refused::bad_request(error)),
        }
    })
    .await?;
    // The client itself sent all of this, so nothing is left out.
    let view = View { shows_all: true, ..ask.view(&principal) };
    let config = UserConfig { user: &user, view };
    Ok(reply::result(StatusCode::CREATED, "userconfig", config, None))
}

/// `PATCH /{user}`
pub(super) async fn modify_user(ask: &Ask, user: &str, body: Body) -> Result<Response, Refused> {
    let name = known(user)?;
    if ask.app.config.python.devpi_defaults && ask.stored.accounts.user(&name).is_none() {
        return Err(Refused::unknown_user(&name));
    }
    // Senders who may change nothing of this user are refused before the body.
    let principal = ask.principal().await?;
    may_change_something(ask, &principal, &name)?;
    auth::admit_to_disk(&ask.app, &principal).await?;
    // The right that is needed depends on the body.
    let (edit, _json) = edit(ask, &principal, body, false).await?;
    let basis = ask.basis().await?;
    check_editor(ask, &basis, &name, &edit)?;
    drop(basis);
    let hash = hashed(ask, &edit).await?;
    let is_password = hash.is_some();
    committed(ask, |basis| {
        check_editor(ask, basis, &name, &edit)?;
        let (stored, now) = (basis.stored(), Timestamp::now());
        let batch = change::modify_user(&stored.accounts, &name, &edit.profile, hash.clone(), now);
        Ok((batch.map_err(|_| Refused::unknown_user(&name))?, ()))
    })
    .await?;
    if is_password {
        let stored = auth::stored(&ask.app)?;
        let changed = stored.accounts.user(&name).ok_or_else(|| Refused::unknown_user(&name))?;
        let login = proxy_auth(&ask.app, changed)?;
        let message = Some("user updated, new proxy auth");
        return Ok(reply::result(StatusCode::OK, "userpassword", login, message));
    }
    Ok(reply::message(StatusCode::OK, "user updated"))
}

/// Whether the principal may change that user's profile, or at least the password.
fn may_change_something(ask: &Ask, principal: &Principal, name: &UserName) -> Result<(), Refused> {
    let policy = policy(&ask.app);
    let user = ask.stored.accounts.user(name);
    let may_change_password =
        || user.is_some_and(|user| policy.change_password(principal, user).is_ok());
    policy
        .modify_user(principal, name)
        .or_else(|error| may_change_password().then_some(()).ok_or(error))
        .map_err(|error| forbidden(ask, principal, error))
}

/// Refuses senders who may not make this change of that user, without saying whether the user exists.
fn check_editor(ask: &Ask, basis: &Basis, name: &UserName, edit: &UserEdit) -> Result<(), Refused> {
    let (policy, principal) = (policy(&ask.app), basis.principal());
    let current = basis.stored().accounts.user(name);
    if edit.password.is_some() {
        let may_change = match current {
            Some(current) => policy.change_password(principal, current),
            None => policy
                .modify_user(principal, name)
                .map_err(|_| Forbidden::ChangePassword(name.clone())),
        };
        may_change.map_err(|error| forbidden(ask, principal, error))?;
    }
    if !edit.is_password_only() {
        let may_modify = policy.modify_user(principal, name);
        may_modify.map_err(|error| forbidden(ask, principal, error))?;
    }
    current.map(drop).ok_or_else(|| Refused::unknown_user(name))
}

/// Refuses senders who may not delete that user, without saying whether the user exists.
fn check_deleter(
    ask: &Ask,
    accounts: &account::Snapshot,
    principal: &Principal,
    name: &UserName,
) -> Result<(), Refused> {
    let is_there = accounts.user(name).is_some();
    if ask.app.config.python.devpi_defaults && !is_there {
        return Err(Refused::unknown_user(name));
    }
    let may_delete = policy(&ask.app).delete_user(principal, name);
    may_delete.map_err(|error| forbidden(ask, principal, error))?;
    if is_there { Ok(()) } else { Err(Refused::unknown_user(name)) }
}

/// `DELETE /{user}`
pub(super) async fn delete_user(ask: &Ask, user: &str) -> Result<Response, Refused> {
    let name = known(user)?;
    check_deleter(ask, &ask.stored.accounts, &ask.principal().await?, &name)?;
    let force = ask.has_flag("force");
    committed_and_noted(ask, |basis| {
        let stored = basis.stored();
        check_deleter(ask, &stored.accounts, basis.principal(), &name)?;
        let mut batch = match change::delete_user(&stored.accounts, &name) {
            Ok(batch) => batch,
            Err(DeleteUserError::NoUser(_)) => return Err(Refused::unknown_user(&name)),
            Err(error) => return Err(Refused::forbidden(error)),
        };
        let stages =
            stage::delete_of_user(&stored.index, &name, force).map_err(Refused::forbidden)?;
        batch.writes.extend(stages.writes);
        batch.checks.extend(stages.checks);
        let noted = stored.index.stages_of(name.as_str()).flat_map(|stage| {
            let before = stage.config().policy.as_deref();
            entries_of_change(ask, basis.principal(), stage.name(), before, None)
        });
        Ok((Some(batch), noted.collect(), ()))
    })
    .await?;
    Ok(reply::message(StatusCode::OK, &format!("user '{name}' deleted")))
}

/// The answer to a login, after the password was checked.
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
pub(super) async fn log_in(ask: &Ask, body: Body) -> Result<Response, Refused> {
    let json = json_body(ask, &Principal::Anonymous, body, LOGIN_BOUND).await?;
    let text = |key: &str| json.value.get(key).and_then(Value::as_str);
    let (Some(user), Some(password)) = (text("user"), text("password")) else {
        let text = "Bad request: no user/password specified";
        return Err(Refused::bad_request(text));
    };
    let refused = || {
        Refused::rule(
            StatusCode::UNAUTHORIZED,
            format_args!("user '{user}' could not be authenticated"),
        )
    };
    let credentials = Credentials::from_user_and_password(user, password).map_err(|_| {
        auth::failed(&ask.app, Some(user), "malformed");
        refused()
    })?;
    // A login does not make a longer one, and a token is no login.
    let Credentials::Password { .. } = credentials else {
        auth::no_password(&ask.app, &credentials);
        return Err(refused());
    };
    let proved = auth::proved(&ask.app, &credentials).await?;
    let principal = proved.map_err(|_| refused())?;
    let identity = principal.identity().ok_or_else(refused)?;
    let login = proxy_auth(&ask.app, &identity.user)?;
    ask.app.security.logged_in(identity.user.name.as_str());
    Ok(reply::result(StatusCode::OK, "proxyauth", login, Some("login successful")))
}
