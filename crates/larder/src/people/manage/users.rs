//! Making and changing users: administrators do, and users themselves as far as they may.

use std::collections::BTreeSet;
use std::sync::Arc;

use account::{
    EditRules, GroupName, Object, Principal, Scope, UserEdit, UserName, UserPolicy, change,
};
use jiff::Timestamp;
use operations::tokens::RevokeToken;
use operations::users::{ChangeUser, CreateUser, DeleteUser, SetDisabled, SetGroups};

use super::*;
use crate::front::display::Time;
use crate::people::account::{SCOPES, token_wish};
use crate::protocols::tokens;
use crate::routes::Route;

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
    said: FormNotice,
}

/// `POST /+manage/users`
pub(crate) async fn create_user(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let fields = &posted.fields;
    let name = fields.one("name")?.trim();
    let path = in_path(name);
    // A user whom an unattended browser makes would outlast its session.
    let wish = match forms::proved_again(app, &posted, "own").await {
        Ok(_) => new_user(app, head, &posted, name).await,
        Err(error) => Err(error),
    };
    let answer = carry_out(app, head, &posted, wish).await;
    if answer.is_done() {
        let mut response = forms::see_other(app, head, &format!("/+manage/users/{path}"));
        seen(app, head, &mut response, &posted, answer.serial);
        return Ok(response);
    }
    let (said, status) = FormNotice::of(&answer, "");
    super::page(app, head, (&posted.session, &posted.principal), said, status, None).await
}

/// The user whom a form describes. The right to make one is checked before the password is hashed.
async fn new_user(
    app: &App,
    head: &Parts,
    posted: &PostedForm,
    name: &str,
) -> Result<CreateUser, HttpError> {
    let name: UserName = name.parse().map_err(HttpError::bad_request)?;
    CreateUser::admit(&app.basis(posted.sender(head))?, &name)?;
    let mut user = json!({"password": posted.fields.one("password")?});
    for key in ["email", "title"] {
        let text = posted.fields.maybe(key)?.unwrap_or_default().trim();
        if !text.is_empty() {
            user[key] = json!(text);
        }
    }
    let edit = edit(app, &user)?;
    let missing = || HttpError::bad_request("password needs to be set");
    let password = auth::hashed(app, edit.password.ok_or_else(missing)?).await?;
    let (password, profile) = (Some(password), edit.profile);
    Ok(CreateUser { password, profile, ..CreateUser::named(name) })
}

/// The fields of a form as an edit of a user.
fn edit(app: &App, fields: &Value) -> Result<UserEdit, HttpError> {
    let allow_empty_password = app.rules.devpi_defaults;
    let rules = EditRules { refuse_unknown_keys: true, allow_empty_password };
    let object = fields.as_object().cloned().unwrap_or_default();
    UserEdit::from_json(&object, rules).map_err(HttpError::bad_request)
}

/// A token of the user.
struct TokenLine {
    id: String,
    comment: String,
    scopes: String,
    created_at: Time,
    is_expired: bool,
}

/// `GET /+manage/users/{user}`
pub(crate) async fn show_user(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let name = route.user()?;
    let (session, principal) = forms::logged_in(app, head).await?;
    page(app, head, &name, (&session, &principal), FormNotice::default(), StatusCode::OK).await
}

/// Who may look at this page: the user, administrators, and those whom the configuration lets change users.
fn check_keeper(app: &App, principal: &Principal, name: &UserName) -> Result<(), HttpError> {
    let is_own = principal.acts_for(name, Scope::UserAdmin, Object::Server);
    if is_own || app.rules.users.modify_user(principal, name).is_ok() {
        return Ok(());
    }
    Err(HttpError::forbidden(format!("only `{name}` and administrators may see this page")))
}

async fn page(
    app: &App,
    head: &Parts,
    name: &UserName,
    (session, principal): (&SessionText, &Principal),
    said: FormNotice,
    status: StatusCode,
) -> Result<Response, HttpError> {
    check_keeper(app, principal, name)?;
    let stored = app.stored()?;
    let missing = || HttpError::not_found(change::NoUser(name.clone()));
    let user = stored.accounts.user(name).ok_or_else(missing)?;
    let now = Timestamp::now();
    let sessions = stored.accounts.sessions_of(name).into_iter().flat_map(|it| &it.sessions);
    let policy = &app.rules.users;
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
    Ok(page::send_once(&page, head, status).await)
}

/// `POST /+manage/users/{user}`, by what its field `do` names.
pub(crate) async fn change_user(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    let name = route.user()?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (fields, principal) = (&posted.fields, &posted.principal);
    // The right to see the page is checked first: without it, nothing is changed.
    check_keeper(app, principal, &name)?;
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
            let fields = json!({"title": fields.one("title")?, "email": fields.one("email")?});
            let changing = edit(app, &fields).map(|edit| ChangeUser {
                name: name.clone(),
                profile: edit.profile,
                password: None,
                is_password_only: false,
            });
            (carry_out(app, head, &posted, changing).await, "The profile is changed.")
        }
        // An unattended browser must not be enough to take over the account.
        ("password", _) if is_own => {
            let detail = "Your own password is changed on your own page, at /+account, where the old one is asked for.";
            (Answer::refused(HttpError::forbidden(detail)), "")
        }
        ("password", _) => {
            let setting = new_password(app, head, &posted, &name).await;
            let done = "The password is set. Every browser of the user is logged out.";
            (carry_out(app, head, &posted, setting).await, done)
        }
        ("groups", _) => {
            let groups: Result<BTreeSet<GroupName>, _> =
                fields.words("groups")?.iter().map(|name| name.parse()).collect();
            let groups = groups.map_err(HttpError::unusable);
            let setting = groups.map(|groups| SetGroups { name: name.clone(), groups });
            (carry_out(app, head, &posted, setting).await, "The groups are set.")
        }
        ("token", _) => {
            auth::admit_to_disk(app, principal).await?;
            let wish = token_wish(fields)?;
            let made = tokens::create(app, &posted.sender(head), name.clone(), wish).await;
            let answer = match made {
                Ok(done) => {
                    new_token = done.outcome.0.reveal().to_owned();
                    Answer::done(done.seen)
                }
                Err(error) => Answer::refused(error),
            };
            (answer, "The token is made.")
        }
        ("revoke", _) => {
            let revoking = RevokeToken { id: tokens::id(fields.one("id")?)? };
            (remove(app, head, &posted, &revoking).await, "The token is revoked.")
        }
        ("disable", _) => {
            let setting = SetDisabled { name: name.clone(), is_disabled: true };
            let done = "The user is disabled: no password, token or session of theirs is taken.";
            (carry_out(app, head, &posted, Ok(setting)).await, done)
        }
        ("enable", _) => {
            let setting = SetDisabled { name: name.clone(), is_disabled: false };
            (carry_out(app, head, &posted, Ok(setting)).await, "The user is enabled again.")
        }
        ("delete", _) => {
            let force = fields.maybe("force")?.is_some();
            let typed = (name.as_str(), "To delete the user, type their name");
            let deleting = DeleteUser { name: name.clone(), force };
            let answer = remove_typed(app, head, &posted, typed, &deleting).await;
            if answer.is_done() {
                let mut response = forms::see_other(app, head, "/+manage");
                seen(app, head, &mut response, &posted, answer.serial);
                return Ok(response);
            }
            (answer, "")
        }
        _ => return Err(forms::asks_nothing()),
    };
    let (said, status) = FormNotice::of(&answer, done);
    let said = FormNotice { new_token, ..said };
    let sender = (&posted.session, &posted.principal);
    // Users who disable themselves are logged out.
    if auth::session::known(app, &posted.session)?.is_none() {
        return Ok(forms::see_other(app, head, "/+account/login"));
    }
    let mut response = page(app, head, &name, sender, said, status).await?;
    seen(app, head, &mut response, &posted, answer.serial);
    Ok(response)
}

/// The new password of another user. The right to set it is checked before it is hashed.
async fn new_password(
    app: &App,
    head: &Parts,
    posted: &PostedForm,
    name: &UserName,
) -> Result<ChangeUser, HttpError> {
    let edit = edit(app, &json!({"password": posted.fields.one("password")?}))?;
    let missing = || HttpError::bad_request("password needs to be set");
    let password = edit.password.ok_or_else(missing)?;
    ChangeUser::admit(&app.basis(posted.sender(head))?, name, true, true)?;
    Ok(ChangeUser {
        name: name.clone(),
        profile: edit.profile,
        password: Some(auth::hashed(app, password).await?),
        is_password_only: true,
    })
}
