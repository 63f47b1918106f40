//! `/+manage/tokens`: the tokens of all users, for administrators; those that are of no use any more come first.

use account::Token;
use jiff::{SignedDuration, Timestamp};
use state::accounts::{is_unused_since, last_sign};

use super::*;
use crate::front::display::Time;
use crate::people::account::ending;

/// After how many days without a use a token is marked.
const UNUSED_DAYS: i64 = 90;

#[derive(Template)]
#[template(path = "manage_tokens.html")]
struct TokensPage {
    site: Site,
    tokens: Vec<TokenRow>,
    /// How many there are altogether.
    all: usize,
}

struct TokenRow {
    id: String,
    user: String,
    path: String,
    comment: String,
    scopes: String,
    created_at: Time,
    expires_at: Option<Time>,
    ending: Option<String>,
    used_at: Option<Time>,
    is_unused: bool,
}

/// `GET /+manage/tokens`
pub(crate) async fn show_tokens(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (_, principal) = forms::logged_in(app, head).await?;
    check_administrator(&principal, Scope::UserAdmin, "the tokens of all users")?;
    let stored = app.stored()?;
    let now = Timestamp::now();
    let unused_since = now - SignedDuration::from_hours(24 * UNUSED_DAYS);
    let used_at = |token: &Token| app.logins.token_uses.last(&stored.accounts, token.id);
    let mut tokens: Vec<_> = stored.accounts.tokens().collect();
    tokens
        .sort_by_key(|token| (!token.is_expired(now), last_sign(token, used_at(token)), token.id));
    let row = |token: &Token| TokenRow {
        id: token.id.to_string(),
        user: token.user.to_string(),
        path: in_path(token.user.as_str()),
        comment: token.comment.clone(),
        scopes: token.scopes.to_string().replace(',', ", "),
        created_at: Time(token.created_at),
        expires_at: token.expires_at.map(Time),
        ending: ending(token, now),
        used_at: used_at(token).map(Time),
        is_unused: is_unused_since(token, used_at(token), unused_since),
    };
    let page = TokensPage {
        site: Site::of(app, head),
        all: tokens.len(),
        tokens: tokens.into_iter().take(LINES_MAX).map(|token| row(token)).collect(),
    };
    Ok(page::send_once(&page, head, StatusCode::OK).await)
}
