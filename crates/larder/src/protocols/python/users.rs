//! Users, as devpi's clients make, change and remove them; and logging in.

use account::change::CreateUserError;
use account::{Credentials, EditRules, Principal, User, UserEdit, UserName};
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use operations::Refusal;
use operations::users::{ChangeUser, CreateUser, DeleteUser};
use pypi::devpi::{UserConfig, View, user_list};
use serde_json::{Value, json};

use super::ask::Ask;
use super::error::ApiError;
use super::reply;
use super::write::json_body;
use crate::app::App;
use crate::front::auth;
use crate::front::body::{Json, JsonBound};
use crate::front::error::HttpError;

/// A user's body: a description and custom data of 64 KiB each, some of it escaped, with the indexes that old clients send
/// back.
const BOUND: JsonBound = JsonBound { bytes_max: 256 << 10, values_max: 20_000 };

/// The body of a user who registers without credentials: there are no indexes yet, and little else.
const STRANGER_BOUND: JsonBound = JsonBound { bytes_max: 16 << 10, values_max: 200 };

/// A login: a name and a password.
const LOGIN_BOUND: JsonBound = JsonBound { bytes_max: 16 << 10, values_max: 100 };

/// `/`: the users whom one may know of.
pub(crate) async fn list_users(ask: &Ask) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let users = ask.stored.accounts.users().map(|user| &**user);
    let list = user_list(users, ask.view(&principal));
    Ok(reply::result(StatusCode::OK, "list:userconfig", list, None))
}

fn known(user: &str) -> Result<UserName, ApiError> {
    user.parse().map_err(|_| ApiError::unknown_user(user))
}

/// `GET /{user}`
pub(crate) async fn show_user(ask: &Ask, user: &str) -> Result<Response, ApiError> {
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
) -> Result<(UserEdit, Json), ApiError> {
    let bound = if principal.user_name().is_some() { BOUND } else { STRANGER_BOUND };
    let json = json_body(ask, principal, body, bound).await?;
    let Value::Object(object) = &json.value else {
        return Err(ApiError::bad_request("a user's configuration is a JSON object"));
    };
    let allow_empty_password = ask.app.config.python.devpi_defaults;
    let rules = EditRules { refuse_unknown_keys, allow_empty_password };
    let edit = UserEdit::from_json(object, rules).map_err(ApiError::bad_request)?;
    Ok((edit, json))
}

/// `PUT /{user}`
pub(crate) async fn create_user(ask: &Ask, user: &str, body: Body) -> Result<Response, ApiError> {
    let name: UserName = user.parse().map_err(ApiError::bad_request)?;
    let (asked, is_there) = (ask.asked().await?, ask.stored.accounts.user(&name).is_some());
    // With `devpi_defaults`, the first refusal says that the user exists already.
    if ask.app.config.python.devpi_defaults && is_there {
        return Err(Refusal::from(CreateUserError::Exists).into());
    }
    CreateUser::admit(&asked, &name)?;
    let principal = asked.principal();
    auth::admit_to_disk(&ask.app, principal).await?;
    let (edit, _json) = edit(ask, principal, body, true).await?;
    let password =
        edit.password.ok_or_else(|| ApiError::bad_request("password needs to be set"))?;
    let password = Some(auth::hashed(&ask.app, password).await?);
    let creating = CreateUser { password, profile: edit.profile, ..CreateUser::named(name) };
    let user = ask.carry_out(&creating).await?;
    // The client itself sent all of this, so nothing is left out.
    let view = View { shows_all: true, ..ask.view(principal) };
    let config = UserConfig { user: &user, view };
    Ok(reply::result(StatusCode::CREATED, "userconfig", config, None))
}

/// `PATCH /{user}`
pub(crate) async fn modify_user(ask: &Ask, user: &str, body: Body) -> Result<Response, ApiError> {
    let name = known(user)?;
    if ask.app.config.python.devpi_defaults && ask.stored.accounts.user(&name).is_none() {
        return Err(ApiError::unknown_user(&name));
    }
    // Senders who may change nothing of this user are refused before the body.
    let asked = ask.asked().await?;
    ChangeUser::admit_to_something(&asked, &name)?;
    auth::admit_to_disk(&ask.app, asked.principal()).await?;
    // The right that is needed depends on the body.
    let (edit, _json) = edit(ask, asked.principal(), body, false).await?;
    let (is_password, is_password_only) = (edit.password.is_some(), edit.is_password_only());
    ChangeUser::admit(&ask.basis().await?, &name, is_password, is_password_only)?;
    let password = match edit.password {
        Some(password) => Some(auth::hashed(&ask.app, password).await?),
        None => None,
    };
    let changing = ChangeUser { name, profile: edit.profile, password, is_password_only };
    ask.carry_out(&changing).await?;
    if is_password {
        let (stored, name) = (ask.app.stored()?, &changing.name);
        let changed = stored.accounts.user(name).ok_or_else(|| ApiError::unknown_user(name))?;
        let login = proxy_auth(&ask.app, changed)?;
        let message = Some("user updated, new proxy auth");
        return Ok(reply::result(StatusCode::OK, "userpassword", login, message));
    }
    Ok(reply::message(StatusCode::OK, "user updated"))
}

/// `DELETE /{user}`
pub(crate) async fn delete_user(ask: &Ask, user: &str) -> Result<Response, ApiError> {
    let (name, force) = (known(user)?, ask.has_flag("force"));
    DeleteUser::admit(&ask.asked().await?, &name)?;
    let text = format!("user '{name}' deleted");
    ask.carry_out(&DeleteUser { name, force }).await?;
    Ok(reply::message(StatusCode::OK, &text))
}

/// The answer to a login, after the password was checked.
fn proxy_auth(app: &App, user: &User) -> Result<Value, HttpError> {
    let stored = app.stored()?;
    let Some(secret) = stored.accounts.login_secret() else {
        return Err(HttpError::unavailable("the store has no secret to sign logins with", 5));
    };
    let lifetime = app.config.users.login;
    let login = secret.issue(user, Timestamp::now(), lifetime);
    Ok(json!({"password": login.reveal(), "expiration": lifetime.as_secs()}))
}

/// `POST /+login`
pub(crate) async fn log_in(ask: &Ask, body: Body) -> Result<Response, ApiError> {
    let json = json_body(ask, &Principal::Anonymous, body, LOGIN_BOUND).await?;
    let text = |key: &str| json.value.get(key).and_then(Value::as_str);
    let (Some(user), Some(password)) = (text("user"), text("password")) else {
        let text = "Bad request: no user/password specified";
        return Err(ApiError::bad_request(text));
    };
    let refused = || {
        ApiError::rule(
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
    ask.app.logins.security.logged_in(identity.user.name.as_str());
    Ok(reply::result(StatusCode::OK, "proxyauth", login, Some("login successful")))
}
