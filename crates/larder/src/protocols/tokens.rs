//! `/+tokens`: the API tokens of the sender, and for administrators with `?user=` those of others.
//!
//! credentials -> principal -> [`CreateToken`] or [`RevokeToken`] -> response. A token is shown once, in the answer to the
//! request that made it; no answer may be cached. A token without the scope `user:admin` manages no tokens, and neither does a
//! limited one. No token makes one with more rights than its own.

use account::{Principal, Scope, Scopes, Token, TokenId, TokenText, UserName, change};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use operations::tokens::{self, CreateToken, RevokeToken};
use operations::{Basis, Done, Refusal, Sender, carry_out};
use record::Serial;
use serde::Deserialize;
use serde_json::{Value, json};
use state::accounts::{self, Expiry};

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::{auth, body, serial};
use crate::routes::Route;

/// Size of the request for a token.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The properties of a new token, as its owner asks for it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    /// `["article:write", …]`.
    pub(crate) scopes: Vec<String>,
    /// As for `larder token create --expires`; `None` for a token that does not expire.
    pub(crate) expires: Option<String>,
    /// The owner's note about it.
    #[serde(default)]
    pub(crate) comment: String,
    /// What the token is limited to: `["team/dev"]`, `["yourproject"]`, `["/docs/"]`. If absent, it is not limited; an empty
    /// list is refused, as it could be taken for either.
    pub(crate) indexes: Option<Vec<String>>,
    pub(crate) projects: Option<Vec<String>>,
    pub(crate) prefixes: Option<Vec<String>>,
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

/// Makes the token that `sender` wishes for `owner`: its text, and what is stored of it.
///
/// # Errors
/// 422 for a wish that cannot be; 403, 404 and 507.
pub(crate) async fn create(
    app: &App,
    sender: &Sender,
    owner: UserName,
    wish: Wish,
) -> Result<Done<(TokenText, Token)>, HttpError> {
    let unusable = |error: &dyn std::fmt::Display| HttpError::unusable(error.to_string());
    let scopes = wish.scopes.iter().map(|scope| scope.parse::<Scope>());
    let scopes: Scopes = scopes.collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    let expires_at = match &wish.expires {
        None => None,
        Some(text) => text
            .parse::<Expiry>()
            .and_then(|expiry| expiry.at(Timestamp::now()))
            .map_err(|error| unusable(&error))?,
    };
    let limits = wish.limits().map_err(|error| unusable(&error))?;
    let comment = wish.comment;
    let token = change::NewToken { user: owner, comment, scopes, limits, expires_at };
    let creating = CreateToken { token, secret: auth::random()? };
    Ok(carry_out(&mut app.keeper(), sender, &creating).await?)
}

/// The id of a token, which may be written as the whole token.
///
/// # Errors
/// 400.
pub(crate) fn id(text: &str) -> Result<TokenId, HttpError> {
    let id = text.parse::<TokenText>().map(|token| token.id()).or_else(|_| text.parse());
    id.map_err(|error| HttpError::bad_request(error.to_string()))
}

/// `GET /+tokens`
pub(crate) async fn list_tokens(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let asked = asking(app, head).await?;
    let owner = owner(head, asked.principal())?;
    manage(&asked, &owner)?;
    let stored = &asked.stored;
    if stored.accounts.user(&owner).is_none() {
        return Err(Refusal::from(change::NoUser(owner)).into());
    }
    let tokens = stored.accounts.tokens_of(&owner);
    let tokens: Vec<Value> =
        tokens.into_iter().map(|token| accounts::token_json(token, asked.now)).collect();
    let object = json!({"user": owner.as_str(), "tokens": tokens});
    Ok(answer(StatusCode::OK, Some(&object), stored.serial))
}

/// `POST /+tokens`
pub(crate) async fn create_token(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let asked = asking(app, head).await?;
    let owner = owner(head, asked.principal())?;
    manage(&asked, &owner)?;
    auth::admit_to_disk(app, asked.principal()).await?;
    let wish = wish(app, head, asked.principal(), body).await?;
    let done = create(app, asked.sender(), owner, wish).await?;
    let (text, token) = done.outcome;
    let mut object = accounts::token_json(&token, Timestamp::now());
    object["token"] = json!(text.reveal());
    Ok(answer(StatusCode::CREATED, Some(&object), done.seen))
}

/// `DELETE /+tokens/{id}`
pub(crate) async fn revoke_token(
    app: &App,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let asked = asking(app, head).await?;
    if let Some(query) = head.uri.query().filter(|query| !query.is_empty()) {
        let detail = format!("`{query}` is too much: the id says which token is meant");
        return Err(HttpError::bad_request(detail));
    }
    let id = id(route.raw("{id}"))?;
    let done = carry_out(&mut app.keeper(), asked.sender(), &RevokeToken { id }).await?;
    Ok(answer(StatusCode::NO_CONTENT, None, done.seen))
}

/// Refuses senders who may not manage that user's tokens.
fn manage(asked: &Basis, owner: &UserName) -> Result<(), HttpError> {
    Ok(tokens::admit(asked, owner)?)
}

/// The state that the request is answered from. Its sender must be a user.
async fn asking(app: &App, head: &Parts) -> Result<Basis, HttpError> {
    match auth::principal_of(app, head).await? {
        Principal::Anonymous => Err(unidentified()),
        principal => Ok(app.basis(auth::sender(principal, head))?),
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
