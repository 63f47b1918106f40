//! `/+tokens`: the API tokens of the sender, and for administrators with `?user=` those of others, or with `?user=*` of everybody.
//! `/+tokens/found`: tokens that somebody found where everybody can read them.
//!
//! credentials -> principal -> [`CreateToken`] or [`RevokeToken`] -> response. A token is shown once, in the answer to the
//! request that made it; no answer may be cached. A token without the scope `user:admin` manages no tokens, and neither does a
//! limited one. No token makes one with more rights than its own.

use account::{Principal, Scope, Scopes, Token, TokenId, TokenText, UserName, change};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use operations::rights::check_administrator;
use operations::tokens::{self, CreateToken, RevokeFoundToken, RevokeToken};
use operations::{Basis, Done, Refusal, Rule, Sender, carry_out};
use record::Serial;
use serde::Deserialize;
use serde_json::{Value, json};
use state::accounts::{self, Age, Expiry};

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::negotiation::media_type;
use crate::front::request::Parts;
use crate::front::{auth, body, serial};
use crate::routes::Route;

/// Size of the request for a token.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Size of a list of found tokens.
const FOUND_BYTES_MAX: usize = 64 << 10;

/// Most tokens in it.
const FOUND_MAX: usize = 100;

/// The properties of a new token, as its owner asks for it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// `["article:write", …]`.
    pub(crate) scopes: Vec<String>,
    /// As for `larder token create --expires`; without it, `users.token_days` say.
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

impl TokenRequest {
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
    wish: TokenRequest,
) -> Result<Done<(TokenText, Token)>, HttpError> {
    let scopes = wish.scopes.iter().map(|scope| scope.parse::<Scope>());
    let scopes: Scopes = scopes.collect::<Result<_, _>>().map_err(HttpError::unusable)?;
    let expires: Option<Expiry> =
        wish.expires.as_deref().map(str::parse).transpose().map_err(HttpError::unusable)?;
    let limits = wish.limits().map_err(HttpError::unusable)?;
    let (comment, secret) = (wish.comment, auth::random()?);
    let creating = CreateToken { user: owner, comment, scopes, limits, expires, secret };
    Ok(carry_out(&mut app.keeper(), sender, &creating).await?)
}

/// The id of a token, which may be written as the whole token.
///
/// # Errors
/// 400.
pub(crate) fn id(text: &str) -> Result<TokenId, HttpError> {
    let id = text.parse::<TokenText>().map(|token| token.id()).or_else(|_| text.parse());
    id.map_err(HttpError::bad_request)
}

/// `GET /+tokens`
pub(crate) async fn list_tokens(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let asked = asking(app, head).await?;
    let (stored, question) = (&asked.stored, Question::of(head)?);
    let used_at = |token: &Token| app.logins.token_uses.last(&stored.accounts, token.id);
    let (owner, tokens) = match question.user {
        Some(Whose::Everybody) => {
            let principal = asked.valid_principal()?;
            check_administrator(principal, Scope::UserAdmin, "the tokens of all users")?;
            let mut tokens: Vec<_> = stored.accounts.tokens().collect();
            tokens.sort_by_key(|token| (accounts::last_sign(token, used_at(token)), token.id));
            (None, tokens)
        }
        whose => {
            let owner = owner(whose, asked.principal())?;
            manage(&asked, &owner)?;
            if stored.accounts.user(&owner).is_none() {
                return Err(Refusal::from(change::NoUser(owner)).into());
            }
            let tokens = stored.accounts.tokens_of(&owner);
            (Some(owner), tokens)
        }
    };
    let since = question.unused.map(|unused| unused.before(asked.now));
    let is_meant = |token: &Token| {
        since.is_none_or(|since| accounts::is_unused_since(token, used_at(token), since))
    };
    let tokens = tokens.into_iter().filter(|token| is_meant(token));
    let tokens: Vec<Value> =
        tokens.map(|token| accounts::token_json(token, used_at(token), asked.now)).collect();
    let object = json!({"user": owner.as_ref().map(UserName::as_str), "tokens": tokens});
    Ok(answer(StatusCode::OK, Some(&object), stored.serial))
}

/// `POST /+tokens`
pub(crate) async fn create_token(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let asked = asking(app, head).await?;
    let question = Question::of(head)?;
    if question.unused.is_some() {
        let detail = "the parameter `unused` is for the list: a new token was used by nobody";
        return Err(HttpError::bad_request(detail));
    }
    let owner = owner(question.user, asked.principal())?;
    manage(&asked, &owner)?;
    auth::admit_to_disk(app, asked.principal()).await?;
    let wish = wish(app, head, asked.principal(), body).await?;
    let done = create(app, asked.sender(), owner, wish).await?;
    let (text, token) = done.outcome;
    let mut object = accounts::token_json(&token, None, token.created_at);
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

/// Whose tokens are meant.
enum Whose {
    /// Those of this user.
    User(UserName),
    /// All of them.
    Everybody,
}

/// The parameters of a request.
#[derive(Default)]
struct Question {
    user: Option<Whose>,
    unused: Option<Age>,
}

impl Question {
    fn of(head: &Parts) -> Result<Question, HttpError> {
        let mut question = Question::default();
        let query = head.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_twice = match &*name {
                "user" if value == "*" => question.user.replace(Whose::Everybody).is_some(),
                "user" => {
                    let user = value.parse().map_err(HttpError::bad_request)?;
                    question.user.replace(Whose::User(user)).is_some()
                }
                "unused" => {
                    let age = value.parse().map_err(HttpError::bad_request)?;
                    question.unused.replace(age).is_some()
                }
                _ => {
                    let text =
                        format!("the parameter `{name}` is unknown, expected `user` or `unused`");
                    return Err(HttpError::bad_request(text));
                }
            };
            if is_twice {
                return Err(HttpError::bad_request(format!(
                    "the parameter `{name}` is given twice"
                )));
            }
        }
        Ok(question)
    }
}

/// The user who is asked about, else the sender.
fn owner(whose: Option<Whose>, principal: &Principal) -> Result<UserName, HttpError> {
    match whose {
        Some(Whose::User(user)) => Ok(user),
        Some(Whose::Everybody) => {
            let detail = "`*` is no user: a token is made for one, whom the parameter `user` names";
            Err(HttpError::bad_request(detail))
        }
        None => principal.user_name().cloned().ok_or_else(unidentified),
    }
}

/// A token that somebody found, as scanners for secrets send it. Members that are not read here are theirs to choose.
#[derive(Deserialize)]
struct FoundToken {
    token: String,
    /// Where it was found.
    url: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FoundTokens {
    Many(Vec<FoundToken>),
    One(FoundToken),
}

/// `POST /+tokens/found`: revokes tokens without credentials, as who has a token could do worse with it.
pub(crate) async fn revoke_found_tokens(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let bytes = body::whole(app, head, &Principal::Anonymous, body, FOUND_BYTES_MAX).await?;
    let expected =
        r#"{"token": "larder_…", "url": "https://…"}, or a list of at most 100 such objects"#;
    let bad = |text: &str| HttpError::bad_request(format!("{text}; expected: {expected}"));
    let found = match serde_json::from_slice(&bytes) {
        Ok(FoundTokens::Many(found)) => found,
        Ok(FoundTokens::One(found)) => vec![found],
        Err(_) => return Err(bad("the body names no tokens")),
    };
    if found.len() > FOUND_MAX {
        return Err(bad(&format!("the body names {} tokens", found.len())));
    }
    let sender = auth::sender(Principal::Anonymous, head);
    let (mut labels, mut seen) = (Vec::with_capacity(found.len()), Serial::ZERO);
    for found in &found {
        let mut revoked = None;
        if let Ok(text) = found.token.trim().parse::<TokenText>() {
            let id = text.id();
            match carry_out(&mut app.keeper(), &sender, &RevokeFoundToken { text }).await {
                Ok(done) => {
                    seen = seen.max(done.seen);
                    app.logins.security.token_found(id, &done.outcome, found.url.as_deref());
                    revoked = Some(id.to_string());
                }
                Err(Refusal::Rule(Rule::NoToken(_))) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        let label = if revoked.is_some() { "true_positive" } else { "false_positive" };
        labels.push(json!({"id": revoked, "label": label, "token_type": found.kind}));
    }
    Ok(answer(StatusCode::OK, Some(&Value::Array(labels)), seen))
}

async fn wish(
    app: &App,
    head: &Parts,
    principal: &Principal,
    body: Body,
) -> Result<TokenRequest, HttpError> {
    let media_type = media_type(&head.headers);
    if !media_type.eq_ignore_ascii_case("application/json") {
        let detail = format!(
            "a body of the type `{media_type}` is not read: `application/json` was expected"
        );
        return Err(HttpError::unsupported(detail));
    }
    let bytes = body::whole(app, head, principal, body, BODY_BYTES_MAX).await?;
    let bad = |reason: &dyn std::fmt::Display| {
        let detail = format!(
            "the body is no request for a token: {reason}; expected: \
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
