//! `/+tokens`: the API tokens of the sender, and for administrators with `?user=` those of others.
//!
//! credentials -> principal -> [`UserPolicy`] -> change -> commit -> response. A token is shown once, in the answer to the
//! request that made it; no answer may be cached. A token without the scope `user:admin` manages no tokens, and neither does a
//! limited one. No token makes one with more rights than its own.

use account::{
    Forbidden, Lack, Object, Principal, Scope, Scopes, TokenId, TokenText, UserName, UserPolicy,
    change,
};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use record::Serial;
use serde::Deserialize;
use serde_json::{Value, json};
use state::accounts::{self, Expiry};
use state::secrets;
use state::stored::Stored;

use super::error::HttpError;
use super::{auth, body, serial};
use crate::app::App;

/// Size of the request for a token.
const BODY_BYTES_MAX: usize = 16 << 10;

/// No setting moves whose tokens are whose business.
const POLICY: UserPolicy = UserPolicy { strangers_create_users: false, modifiers: None };

/// The properties of a new token, as its owner asks for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    /// `["article:write", …]`.
    scopes: Vec<String>,
    /// As for `larder token create --expires`; `None` for a token that does not expire.
    expires: Option<String>,
    /// The owner's note about it.
    #[serde(default)]
    comment: String,
    /// What the token is limited to: `["team/dev"]`, `["yourproject"]`, `["/docs/"]`. If absent, it is not limited; an empty
    /// list is refused, as it could be taken for either.
    indexes: Option<Vec<String>>,
    projects: Option<Vec<String>>,
    prefixes: Option<Vec<String>>,
}

impl Wish {
    fn limits(&self) -> Result<Option<account::Limits>, String> {
        let lists = [
            ("indexes", &self.indexes),
            ("projects", &self.projects),
            ("prefixes", &self.prefixes),
        ];
        let texts = lists.map(|(name, list)| match list.as_deref() {
            Some([]) => Err(format!(
                "`{name}` is empty, which limits to nothing: leave it out for no limit"
            )),
            list => Ok(list.unwrap_or_default()),
        });
        let [indexes, projects, prefixes] = texts;
        accounts::limits(indexes?, projects?, prefixes?).map_err(|error| error.to_string())
    }
}

/// `GET /+tokens`
pub(super) async fn list_tokens(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let principal = asking(app, head).await?;
    let owner = owner(head, &principal)?;
    POLICY.manage_tokens(&principal, &owner).map_err(|error| refused(&principal, &error))?;
    let stored = auth::stored(app)?;
    found(&stored, &owner)?;
    let now = Timestamp::now();
    let tokens = stored.accounts.tokens_of(&owner);
    let tokens: Vec<Value> =
        tokens.into_iter().map(|token| accounts::token_json(token, now)).collect();
    let object = json!({"user": owner.as_str(), "tokens": tokens});
    Ok(answer(StatusCode::OK, Some(&object), stored.serial))
}

/// `POST /+tokens`
pub(super) async fn create_token(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let principal = asking(app, head).await?;
    let owner = owner(head, &principal)?;
    POLICY.manage_tokens(&principal, &owner).map_err(|error| refused(&principal, &error))?;
    auth::admit_to_disk(app, &principal).await?;
    let wish = wish(app, head, &principal, body).await?;
    let unusable = |error: &dyn std::fmt::Display| HttpError::unusable(error.to_string());
    let scopes = wish.scopes.iter().map(|scope| scope.parse::<Scope>());
    let scopes: Scopes = scopes.collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    let now = Timestamp::now();
    let expires_at = match &wish.expires {
        None => None,
        Some(text) => text
            .parse::<Expiry>()
            .and_then(|expiry| expiry.at(now))
            .map_err(|error| unusable(&error))?,
    };
    let limits = wish.limits().map_err(|error| unusable(&error))?;
    let new = change::NewToken { user: owner, comment: wish.comment, scopes, limits, expires_at };
    let ((text, token), serial) = commit(app, &principal, |stored, principal| {
        POLICY
            .create_token(principal, &new.user, scopes)
            .map_err(|error| refused(principal, &error))?;
        found(stored, &new.user)?;
        let secret = secrets::random().map_err(|error| {
            tracing::error!(%error, "no random numbers");
            HttpError::unavailable("the system has no random numbers now", 5)
        })?;
        let (new, forget_before) = (new.clone(), app.clocks.forget_before(now));
        let made = change::create_token(&stored.accounts, new, secret, now, forget_before);
        let (text, token, batch) = made.map_err(|error| unusable(&error))?;
        Ok((batch, (text, token)))
    })
    .await?;
    let mut object = accounts::token_json(&token, now);
    object["token"] = json!(text.reveal());
    Ok(answer(StatusCode::CREATED, Some(&object), serial))
}

/// `DELETE /+tokens/{id}`
pub(super) async fn revoke_token(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let principal = asking(app, head).await?;
    if let Some(query) = head.uri.query().filter(|query| !query.is_empty()) {
        let detail = format!("`{query}` is too much: the id says which token is meant");
        return Err(HttpError::bad_request(detail));
    }
    let text = head.uri.path().strip_prefix("/+tokens/").unwrap_or_default();
    let id = text.parse::<TokenText>().map(|token| token.id()).or_else(|_| text.parse());
    let id: TokenId = id.map_err(|error| HttpError::bad_request(error.to_string()))?;
    // A user who may manage only their own tokens does not learn which other users exist.
    let own = principal.user_name().cloned().ok_or_else(unidentified)?;
    POLICY.manage_tokens(&principal, &own).map_err(|error| refused(&principal, &error))?;
    let ((), serial) = commit(app, &principal, |stored, principal| {
        POLICY.manage_tokens(principal, &own).map_err(|error| refused(principal, &error))?;
        let none = || HttpError::not_found(change::NoToken(id).to_string());
        let token = stored.accounts.token(id).ok_or_else(none)?;
        POLICY.manage_tokens(principal, &token.user).map_err(|_| none())?;
        let batch = change::revoke_token(&stored.accounts, id).map_err(|_| none())?;
        Ok((batch, ()))
    })
    .await?;
    Ok(answer(StatusCode::NO_CONTENT, None, serial))
}

/// The sender, who must be a user.
async fn asking(app: &App, head: &Parts) -> Result<Principal, HttpError> {
    let principal = auth::principal_of(app, head).await?;
    match principal {
        Principal::Anonymous => Err(unidentified()),
        principal => Ok(principal),
    }
}

fn unidentified() -> HttpError {
    HttpError::unauthorized("to manage tokens, a user and a password are needed")
}

/// The user whose tokens are meant: that of `?user=`, else the sender.
fn owner(head: &Parts, principal: &Principal) -> Result<UserName, HttpError> {
    let bad = |detail: String| HttpError::bad_request(detail);
    let mut owner = None;
    for (name, value) in form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()) {
        if name != "user" {
            return Err(bad(format!("the parameter `{name}` is unknown, expected `user`")));
        }
        let value: UserName =
            value.parse().map_err(|error: account::NameError| bad(error.to_string()))?;
        if owner.replace(value).is_some() {
            return Err(bad("the parameter `user` is given twice".to_owned()));
        }
    }
    owner.or_else(|| principal.user_name().cloned()).ok_or_else(unidentified)
}

/// 403, with what the token lacks, or who may.
fn refused(principal: &Principal, error: &Forbidden) -> HttpError {
    let detail = match (principal.lack(Scope::UserAdmin, Object::Server), error) {
        (Some(Lack::Scope(scope)), _) => {
            format!("this token may not manage tokens: it lacks the scope `{}`", scope.as_str())
        }
        (Some(lack), _) => lack.to_string(),
        (None, Forbidden::ManageTokens(owner)) => {
            format!("{error}: only `{owner}` and administrators may")
        }
        (None, error) => error.to_string(),
    };
    HttpError::forbidden(detail)
}

fn found(stored: &Stored, owner: &UserName) -> Result<(), HttpError> {
    let none = || HttpError::not_found(change::NoUser(owner.clone()).to_string());
    stored.accounts.user(owner).map(drop).ok_or_else(none)
}

async fn wish(
    app: &App,
    head: &Parts,
    principal: &Principal,
    body: Body,
) -> Result<Wish, HttpError> {
    let said =
        head.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let media_type = said.as_deref().unwrap_or_default().split(';').next().unwrap_or_default();
    if !media_type.trim().eq_ignore_ascii_case("application/json") {
        let detail = format!(
            "a body of the type `{media_type}` is not read: `application/json` was expected"
        );
        return Err(HttpError::unsupported(detail));
    }
    let bytes = body::whole(app, head, principal, body, BODY_BYTES_MAX).await?;
    let bad = |reason: &dyn std::fmt::Display| {
        let detail = format!(
            "the body is no request for a token: {reason}; expected was \
             {{\"scopes\": [\"article:write\"], \"expires\": \"90d\", \"comment\": \"\"}}"
        );
        HttpError::bad_request(detail)
    };
    // A struct could be read from an array, too, which no description mentions.
    if bytes.trim_ascii_start().first().is_some_and(|&first| first != b'{') {
        return Err(bad(&"it is not an object"));
    }
    serde_json::from_slice(&bytes).map_err(|error| bad(&error))
}

/// Commits what `decide` makes of the newest state and the sender; it is called again if another write came first. Returns its
/// result and the serial.
async fn commit<T>(
    app: &App,
    proved: &Principal,
    mut decide: impl FnMut(&Stored, &Principal) -> Result<(record::Batch, T), HttpError>,
) -> Result<(T, Serial), HttpError> {
    let patience = app.config.store.wait_for_serial;
    let deciding = app.live_store.decided(proved, patience, |basis| {
        let (batch, outcome) = decide(basis.stored(), auth::still(basis)?)?;
        Ok::<_, HttpError>((Some(batch), outcome))
    });
    let (outcome, serial) = deciding.await?;
    Ok((outcome, serial.unwrap_or_default()))
}

fn answer(status: StatusCode, object: Option<&Value>, serial: Serial) -> Response {
    let mut response = match object {
        Some(object) => (status, object.to_string()).into_response(),
        None => status.into_response(),
    };
    let headers = response.headers_mut();
    if object.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    serial::insert(headers, serial);
    response
}
