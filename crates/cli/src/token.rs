//! `larder token …`: API tokens listed, made and revoked in the store itself.
//!
//! arguments -> [`Command::run`] -> an operation of [`operations::tokens`] -> the store. A new token stands alone on stdout, once,
//! for scripts to take.

use std::collections::BTreeSet;

use account::{IndexPattern, Limits, Scope, Token, TokenId, TokenText, UserName, change};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use config::Config;
use jiff::Timestamp;
use operations::tokens::{CreateToken, RevokeToken};
use serde_json::{Value, json};
use state::accounts::{self, Age, Expiry};
use state::secrets;

use super::directory::{Directory, Purpose};
use super::user::{answer, found};
use super::{Answer, Exit, note, runtime, table};

#[derive(Subcommand)]
pub(super) enum Command {
    /// List tokens; their secrets are not stored and cannot be shown
    List {
        /// Only the tokens of this user
        user: Option<UserName>,
        /// Only those that were neither made nor used for so long, such as 90d
        #[arg(long, value_name = "TIME")]
        unused: Option<Age>,
        #[command(flatten)]
        answer: Answer,
    },
    /// Make a token and print it, this once
    #[command(visible_alias = "add")]
    Create {
        /// Whose rights it uses
        user: UserName,
        /// What it may be used for; may be repeated
        #[arg(
            long = "scope",
            value_name = "SCOPE",
            required = true,
            value_delimiter = ',',
            value_parser = PossibleValuesParser::new(Scope::EVERY.map(Scope::as_str))
                .try_map(|name| name.parse::<Scope>())
        )]
        scopes: Vec<Scope>,
        /// Only for this index, or with USER/* for all of a user's; may be repeated
        #[arg(long = "index", value_name = "USER/INDEX")]
        indexes: Vec<IndexPattern>,
        /// Only for this project; may be repeated
        #[arg(long = "project", value_name = "NAME", value_parser = accounts::project)]
        projects: Vec<String>,
        /// Only for articles below this, and for no index unless --index names one; may be repeated
        #[arg(long = "prefix", value_name = "/PATH/", value_parser = accounts::prefix)]
        prefixes: Vec<String>,
        /// Until when it is valid: a duration such as 90d, a date such as 2027-01-01, or never [default: users.token_days]
        #[arg(long, value_name = "WHEN")]
        expires: Option<Expiry>,
        /// What it is for: one line
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        comment: String,
        #[command(flatten)]
        answer: Answer,
    },
    /// Revoke tokens
    Revoke {
        /// Ids as `token list` prints them, or tokens themselves
        #[arg(value_name = "ID", required = true, value_parser = token_id)]
        ids: Vec<TokenId>,
    },
}

/// A leaked token is pasted more easily than its id is found.
fn token_id(text: &str) -> Result<TokenId, account::TokenIdError> {
    text.parse::<TokenText>().map(|token| token.id()).or_else(|_| text.parse())
}

impl Command {
    /// Carries out the command on the store of `config`, and returns the text for stdout.
    ///
    /// # Errors
    /// What went wrong, with the exit code. Nothing is changed then.
    pub(super) fn run(self, config: &Config) -> Result<String, Exit> {
        let purpose = match self {
            Command::List { .. } => Purpose::Show,
            Command::Create { .. } | Command::Revoke { .. } => Purpose::Change,
        };
        runtime()?.block_on(Directory::with(config, purpose, async |directory| match self {
            Command::List { user, unused, answer } => {
                list_tokens(directory, user.as_ref(), unused, answer.is_json)
            }
            Command::Create {
                user,
                scopes,
                indexes,
                projects,
                prefixes,
                expires,
                comment,
                answer,
            } => {
                let limits = Limits::new(
                    indexes.into_iter().collect(),
                    projects.into_iter().collect(),
                    prefixes.into_iter().collect(),
                );
                let scopes = scopes.into_iter().collect();
                let secret = secrets::random().map_err(Exit::failure)?;
                let creating = CreateToken { user, comment, scopes, limits, expires, secret };
                create_token(directory, &creating, answer.is_json).await
            }
            Command::Revoke { ids } => revoke_tokens(directory, &ids).await,
        }))
    }
}

fn list_tokens(
    directory: &Directory,
    name: Option<&UserName>,
    unused: Option<Age>,
    is_json: bool,
) -> Result<String, Exit> {
    let now = Timestamp::now();
    let snapshot = directory.snapshot();
    let mut tokens: Vec<&Token> = match name {
        Some(name) => {
            found(directory, name)?;
            snapshot.tokens_of(name).into_iter().map(|token| &**token).collect()
        }
        None => {
            let mut tokens: Vec<&Token> = snapshot.tokens().map(|token| &**token).collect();
            tokens.sort_by(|one, other| {
                (&one.user, one.created_at, one.id).cmp(&(&other.user, other.created_at, other.id))
            });
            tokens
        }
    };
    let used_at = |token: &Token| snapshot.token_used_at(token.id);
    if let Some(unused) = unused {
        let since = unused.before(now);
        tokens.retain(|token| accounts::is_unused_since(token, used_at(token), since));
    }
    if is_json {
        let object = |token: &Token| accounts::token_json(token, used_at(token), now);
        let list = tokens.into_iter().map(object).collect();
        return Ok(format!("{:#}\n", Value::Array(list)));
    }
    let row = |token: &&Token| {
        let expires = match token.expires_at {
            None => "never".to_owned(),
            Some(_) if token.is_expired(now) => "expired".to_owned(),
            Some(time) => accounts::shown(time),
        };
        [
            token.id.to_string(),
            token.user.to_string(),
            token.scopes.to_string(),
            token.limits.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            accounts::shown(token.created_at),
            expires,
            used_at(token).map_or_else(|| "-".to_owned(), |at| at.strftime("%F").to_string()),
            token.comment.clone(),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    let titles = ["ID", "USER", "SCOPES", "LIMITED TO", "MADE", "EXPIRES", "LAST USED", "COMMENT"];
    Ok(table::columns(titles, &rows))
}

async fn create_token(
    directory: &mut Directory,
    creating: &CreateToken,
    is_json: bool,
) -> Result<String, Exit> {
    let (text, token) = directory.carry_out(creating).await?.outcome;
    let mut object = accounts::token_json(&token, None, token.created_at);
    object["token"] = json!(text.reveal());
    if !is_json {
        let until = token.expires_at.map_or_else(
            || "until it is revoked".to_owned(),
            |time| format!("until {}", accounts::shown(time)),
        );
        let limits = token.limits.as_deref();
        let limits = limits.map_or_else(String::new, |it| format!(", limited to {it}"));
        note(&format!(
            "made the token {} of the user {} for {}, {until}{limits}; shown only now:",
            token.id, token.user, token.scopes
        ));
    }
    Ok(answer(object, is_json, Some(&text.reveal())))
}

async fn revoke_tokens(directory: &mut Directory, ids: &[TokenId]) -> Result<String, Exit> {
    // All or none, as far as that can be checked beforehand.
    for id in ids {
        let token = directory.snapshot().token(*id);
        token.ok_or_else(|| Exit::failure(change::NoToken(*id)))?;
    }
    for id in ids.iter().collect::<BTreeSet<_>>() {
        let owner = directory.snapshot().token(*id).map(|token| token.user.clone());
        directory.carry_out(&RevokeToken { id: *id }).await?;
        if let Some(owner) = owner {
            note(&format!("revoked the token {id} of the user {owner}"));
        }
    }
    Ok(String::new())
}
