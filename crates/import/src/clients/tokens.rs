//! [`Logins`]: what clients log in with. The server makes tokens with a user's password, each for one purpose, limited to the
//! index, with an end.
//!
//! files -> tokens in them -> those that the server lists as good are used again -> what is missing is made. To a server that
//! makes no tokens the clients log in with the password, and the user is told.

use std::collections::BTreeSet;
use std::time::Duration;

use account::{AclEntry, TokenText};
use anyhow::{Context, bail};
use jiff::Timestamp;
use reqwest::header::ACCEPT;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use state::accounts::shown;

use super::{ClientSetup, Credentials, Endpoints, Tool, changes, unreachable};

/// How long the server may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The user name that clients send with a token.
const TOKEN_USER: &str = "__token__";

/// Stands for a token that is not made yet, and never shown.
const PLANNED: &str = "to-be-made";

/// What clients log in with.
#[derive(Clone, Debug, Default)]
pub struct Logins {
    /// For what installs.
    pub reads: Option<Credentials>,
    /// For what uploads. Without it the files keep what they have, if it is not in a URL.
    pub uploads: Option<Credentials>,
    /// Whether the files lose what could upload.
    pub is_read_only: bool,
}

impl Logins {
    /// The same credentials for everything.
    pub fn alike(credentials: Option<Credentials>) -> Logins {
        Logins { reads: credentials.clone(), uploads: credentials, is_read_only: false }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Credentials> {
        self.reads.iter().chain(&self.uploads)
    }
}

/// Which tokens clients are to have.
#[derive(Clone, Copy, Debug)]
pub struct TokenWish {
    /// Now.
    pub now: Timestamp,
    /// When they end.
    pub expires_at: Timestamp,
    /// Whether none may upload.
    pub is_read_only: bool,
    /// Whether none is made, and this is only about what would be.
    pub is_dry_run: bool,
}

/// What was done about tokens.
#[derive(Debug, Default)]
pub struct Tokens {
    /// What the clients log in with.
    pub logins: Logins,
    /// What was done, line by line.
    pub lines: Vec<String>,
    /// Why the files have the password.
    pub warning: Option<String>,
}

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Upload,
}

impl Purpose {
    fn scope(self) -> &'static str {
        match self {
            Purpose::Read => "python:read",
            Purpose::Upload => "python:upload",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Purpose::Read => "only reads",
            Purpose::Upload => "reads and uploads to",
        }
    }
}

/// The tokens in a text, each once.
pub(super) fn tokens_in(text: &str) -> impl Iterator<Item = TokenText> + '_ {
    text.match_indices(TokenText::PREFIX).filter_map(|(at, _)| {
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let rest = &text[at..];
        rest[..rest.find(|it| !is_part(it)).unwrap_or(rest.len())].parse().ok()
    })
}

/// Gets tokens for the clients of `setup` with the password of `user`.
///
/// # Errors
/// If a file cannot be changed as the clients need it, or if the server cannot be reached or is busy. Then no token was made,
/// unless it was a second one that failed.
pub async fn get_tokens(
    endpoints: &Endpoints,
    user: &Credentials,
    setup: &ClientSetup,
    wish: TokenWish,
) -> anyhow::Result<Tokens> {
    let has = |tools: &[Tool]| tools.iter().any(|tool| setup.tools.contains(tool));
    let reads = has(&[Tool::Uv, Tool::Poetry]) || (setup.is_only && has(&[Tool::Pip]));
    let uploads = endpoints.submit.is_some() && has(&[Tool::Uv, Tool::Twine, Tool::Poetry]);
    // Whether the files can be changed is known before a token is made.
    let planned = Credentials { user: TOKEN_USER.to_owned(), secret: PLANNED.to_owned() };
    let files = changes(endpoints, &Logins::alike(Some(planned.clone())), setup)?;
    let mut found = Vec::new();
    for file in &files {
        found.extend(tokens_in(file.before()));
    }
    let server = TokenServer::new(endpoints, user)?;
    let mut tokens = Tokens::default();
    tokens.logins.is_read_only = wish.is_read_only;
    let listed = match server.list().await? {
        Ok(listed) => listed,
        Err(reason) => return Ok(with_password(tokens, user, &reason)),
    };
    let known: BTreeSet<String> = found.iter().map(|token| token.id().to_string()).collect();
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_known = |it: &&Value| it["id"].as_str().is_some_and(|id| known.contains(id));
    let known: Vec<&Value> = listed.iter().filter(is_known).collect();
    for (purpose, is_wanted) in [(Purpose::Read, reads), (Purpose::Upload, uploads)] {
        if !is_wanted || (wish.is_read_only && purpose == Purpose::Upload) {
            continue;
        }
        if purpose == Purpose::Upload && !server.may_upload().await? {
            let user = &endpoints.user;
            let index = endpoints.stage();
            tokens.lines.push(format!("`{user}` may not upload to {index}: no token does"));
            continue;
        }
        let (verb, index) = (purpose.verb(), endpoints.stage());
        let good = known.iter().find(|token| is_good(token, purpose, &index, wish));
        let good = good.and_then(|good| {
            let token = found.iter().find(|token| good["id"] == token.id().to_string().as_str())?;
            Some((token, good))
        });
        let text = match good {
            Some((token, good)) => {
                let (id, end) = (token.id(), good["expires_at"].as_str().unwrap_or_default());
                let line = format!("the token {id} is still good: it {verb} {index}, until {end}");
                tokens.lines.push(line);
                token.reveal()
            }
            None if wish.is_dry_run => {
                let end = shown(wish.expires_at);
                tokens.lines.push(format!("a token would be made: it {verb} {index}, until {end}"));
                planned.secret.clone()
            }
            None => match server.create(purpose, wish).await? {
                Ok(made) => {
                    let text = |name: &str| made[name].as_str().unwrap_or_default();
                    let (id, end) = (text("id"), text("expires_at"));
                    tokens
                        .lines
                        .push(format!("made the token {id}: it {verb} {index}, until {end}"));
                    text("token").to_owned()
                }
                Err(reason) => return Ok(with_password(tokens, user, &reason)),
            },
        };
        let login = Some(Credentials { user: TOKEN_USER.to_owned(), secret: text });
        match purpose {
            Purpose::Read => tokens.logins.reads = login,
            Purpose::Upload => tokens.logins.uploads = login,
        }
    }
    Ok(tokens)
}

fn with_password(tokens: Tokens, user: &Credentials, reason: &str) -> Tokens {
    let is_read_only = tokens.logins.is_read_only;
    let uploads = (!is_read_only).then(|| user.clone());
    let warning = format!(
        "the files get the password itself, as the server makes no token with it: {reason}"
    );
    Tokens {
        logins: Logins { reads: Some(user.clone()), uploads, is_read_only },
        lines: tokens.lines,
        warning: Some(warning),
    }
}

/// Whether a listed token is for this purpose and no other, and ends about when it should: at least half of the wished time
/// is left of it.
fn is_good(token: &Value, purpose: Purpose, index: &str, wish: TokenWish) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    let ends_at = token["expires_at"].as_str().and_then(|it| it.parse::<Timestamp>().ok());
    let Some(ends_at) = ends_at else { return false };
    let [now, wished, ends_at] = [wish.now, wish.expires_at, ends_at].map(|time| time.as_second());
    let is_empty = |name: &str| token[name].as_array().is_some_and(Vec::is_empty);
    token["scopes"] == json!([purpose.scope()])
        && token["indexes"] == json!([index])
        && is_empty("projects")
        && is_empty("prefixes")
        && ends_at > now
        && ends_at - now >= (wished - now) / 2
        && ends_at <= wished + DAY
}

/// The part of a server that makes tokens.
struct TokenServer<'a> {
    client: Client,
    endpoints: &'a Endpoints,
    user: &'a Credentials,
}

impl<'a> TokenServer<'a> {
    fn new(endpoints: &'a Endpoints, user: &'a Credentials) -> anyhow::Result<TokenServer<'a>> {
        // The password goes to no other server.
        let builder = || Client::builder().timeout(ANSWER_TIMEOUT).redirect(Policy::none());
        Ok(TokenServer { client: net::build_client(builder)?, endpoints, user })
    }

    /// The user's tokens; or else why the server has none.
    async fn list(&self) -> anyhow::Result<Result<Value, String>> {
        let tokens = self.endpoints.index.join("../../+tokens")?;
        let answer = self.ask(self.client.get(tokens.clone())).await?;
        Ok(answer.and_then(|mut answer| match answer["tokens"].take() {
            listed @ Value::Array(_) => Ok(listed),
            _ => Err(format!("{tokens} lists no tokens")),
        }))
    }

    /// Makes a token; or else why the server does not.
    async fn create(
        &self,
        purpose: Purpose,
        wish: TokenWish,
    ) -> anyhow::Result<Result<Value, String>> {
        let tokens = self.endpoints.index.join("../../+tokens")?;
        let body = json!({
            "scopes": [purpose.scope()],
            "indexes": [self.endpoints.stage()],
            "expires": shown(wish.expires_at),
            "comment": comment(),
        });
        let request = self.client.post(tokens.clone()).header("Content-Type", "application/json");
        let answer = self.ask(request.body(body.to_string())).await?;
        Ok(answer.and_then(|made| match made["token"].is_string() {
            true => Ok(made),
            false => Err(format!("{tokens} answers without a token")),
        }))
    }

    /// Whether the user may upload, as far as the server says.
    async fn may_upload(&self) -> anyhow::Result<bool> {
        let mut index = self.endpoints.index.clone();
        index.set_path(index.path().trim_end_matches('/').to_owned().as_str());
        let Ok(answer) = self.ask(self.client.get(index)).await? else { return Ok(true) };
        let Endpoints { user, groups, .. } = self.endpoints;
        let is_named = |entry: &Value| match entry.as_str().map(str::parse) {
            Some(Ok(AclEntry::Everybody | AclEntry::EveryUser)) => true,
            Some(Ok(AclEntry::Group(name))) => groups.iter().any(|group| *group == name.as_str()),
            Some(Ok(AclEntry::User(name))) => *user == name.as_str(),
            _ => false,
        };
        let list = answer["result"]["acl_upload"].as_array();
        let is_administrator = user == "root" || groups.iter().any(|group| group == "admin");
        Ok(is_administrator || list.is_none_or(|list| list.iter().any(is_named)))
    }

    /// The JSON of an answer; or else why there is none.
    ///
    /// # Errors
    /// No answer, or one that may be another one later.
    async fn ask(&self, request: RequestBuilder) -> anyhow::Result<Result<Value, String>> {
        let Credentials { user, secret } = self.user;
        let request = request.header(ACCEPT, "application/json").basic_auth(user, Some(secret));
        let (client, request) = request.build_split();
        let request = request?;
        let url = request.url().clone();
        let response = client.execute(request).await;
        let response = response.map_err(|error| unreachable(&url, error))?;
        let status = response.status();
        let body = response.bytes().await;
        let body = body.with_context(|| format!("{url} sent an incomplete answer"))?;
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(match json.is_object() {
                true => Ok(json),
                false => Err(format!("{url} does not answer with JSON")),
            });
        }
        let said = ["detail", "message"].into_iter().find_map(|name| json[name].as_str());
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let text = format!("{url} answers {}{said}", status.as_u16());
        let is_busy = status == StatusCode::TOO_MANY_REQUESTS
            || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED);
        if is_busy {
            bail!("{text}. Nothing was written; try again later");
        }
        Ok(Err(text))
    }
}

/// What the list of the user's tokens says about one: where it is.
fn comment() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|it| !it.is_control()).take(64).collect();
    match host.as_str() {
        "" => "larder use".to_owned(),
        host => format!("larder use on {host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_any_file() {
        let one = TokenText::from_secret([1; 32]).reveal();
        let two = TokenText::from_secret([2; 32]).reveal();
        let text = format!(
            "url = \"https://__token__:{one}@h/\"\npassword = {two}\nlarder_x larder_ {}\n",
            &one[..70]
        );
        let found: Vec<String> = tokens_in(&text).map(|token| token.reveal()).collect();
        assert_eq!(found, [one, two]);
    }

    #[test]
    fn a_token_is_used_again_if_it_is_what_would_be_made() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let wish = TokenWish {
            now: time("2026-01-01T00:00:00Z"),
            expires_at: time("2026-04-01T00:00:00Z"),
            is_read_only: false,
            is_dry_run: false,
        };
        let token = |expires_at: &str| {
            json!({
                "scopes": ["python:read"], "indexes": ["team/dev"], "projects": [], "prefixes": [],
                "expires_at": expires_at,
            })
        };
        let good = token("2026-03-31T00:00:00Z");
        let check = |token: &Value, expected: bool| {
            assert_eq!(is_good(token, Purpose::Read, "team/dev", wish), expected, "{token}");
        };
        check(&good, true);
        check(&token("2026-02-20T00:00:00Z"), true);
        check(&token("2026-02-10T00:00:00Z"), false);
        check(&token("2025-12-31T00:00:00Z"), false);
        check(&token("2027-01-01T00:00:00Z"), false);
        for (name, value) in [
            ("expires_at", json!(null)),
            ("scopes", json!(["python:read", "python:admin"])),
            ("indexes", json!(["team/dev", "team/base"])),
            ("indexes", json!([])),
            ("projects", json!(["a"])),
            ("prefixes", json!(["/docs/"])),
        ] {
            let mut other = good.clone();
            other[name] = value;
            check(&other, false);
        }
        assert!(!is_good(&good, Purpose::Upload, "team/dev", wish));
    }
}
