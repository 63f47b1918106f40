//! [`Remote`]: the HTTP client of commands that ask a running server, and [`Address`]: the server and the credentials.
//!
//! flags, environment -> [`Address`] -> [`Remote::connect`], which finds out whether it is a Larder and takes these credentials
//! -> [`Remote::send`] -> the JSON of the answer, or the server's own sentence as an [`Exit`]. Redirects are not followed, so
//! that credentials go only to the named server.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use config::{Environment, LoadedConfig, TOKEN_VARIABLE};
use http::{Method, StatusCode};
use import::clients;
use operations::{Refusal, Rule};
use pypi::{ChangeError, ConfigError, ProjectName, StageName};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde_json::Value;

use super::kept_tokens::KeptTokens;
use super::{Exit, line_of_stdin, note};

/// Time to connect, and for a whole answer. A push to elsewhere takes as long as it takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The user that says: the password is a token.
pub(super) const TOKEN_USER: &str = "__token__";

/// The end of these commands' `--help`.
pub(super) const HELP: &str = "\
    Without --server, the command works on the data directory, as larder user does: no password is needed, the flags of \
    `larder serve` say where it is (--data-dir, --config), and a running server sees the change at once.\n\n\
    With --server, it asks that server. Credentials are, in this order: --token-stdin, --user with --password-stdin, --token, \
    the variable LARDER_TOKEN, the token of `larder login`, and what `larder use URL --twine` wrote for this server into ~/.pypirc, which may upload to its index.";

/// A server that a command is to ask.
pub(super) struct Address {
    base: Url,
    credentials: Option<Credentials>,
}

/// Who asks.
struct Credentials {
    user: String,
    secret: String,
    /// Their source, for messages.
    origin: String,
}

// Doc comments here would replace the help of each command that has these flags.
#[derive(Args)]
#[group(skip)]
pub(super) struct ServerFlags {
    // A comment for the help, where angle brackets would be shown.
    #[allow(rustdoc::bare_urls)]
    /// Ask this server instead of the data directory: https://larder.example
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    server: Option<String>,
    /// A token for --server, which others on this machine can see while the command runs; LARDER_TOKEN they cannot see
    #[arg(long, group = "credentials", allow_hyphen_values = true, requires = "server")]
    token: Option<String>,
    /// Take a token for --server from the first line of standard input
    #[arg(long, group = "credentials", requires = "server")]
    token_stdin: bool,
    /// The user that asks --server; --password-stdin brings the password
    #[arg(long, value_name = "NAME", requires_all = ["server", "password_stdin"])]
    user: Option<String>,
    /// Take the password from the first line of standard input
    #[arg(long, group = "credentials", requires_all = ["server", "user"])]
    password_stdin: bool,
}

/// Where a command does its work.
pub(super) enum CommandTarget {
    /// On the store, by this process.
    Store(Box<LoadedConfig>),
    /// By a running server.
    Server(Box<Address>),
}

impl ServerFlags {
    /// The server that the flags name. None: the data directory is meant.
    ///
    /// # Errors
    /// An invalid URL (exit code 2); a secret that cannot be read, or is empty.
    pub(super) fn address(self, environment: &Environment) -> Result<Option<Address>, Exit> {
        let Some(text) = self.server else { return Ok(None) };
        let base = server_url(&text).map_err(Exit::usage)?;
        let given = |user: &str, secret: &str, origin: &str| match secret.trim() {
            "" => {
                Err(Exit::usage(format!("{origin} is empty: a password or a token was expected")))
            }
            secret => {
                let [user, secret, origin] = [user, secret, origin].map(str::to_owned);
                Ok(Some(Credentials { user, secret, origin }))
            }
        };
        let credentials = if self.token_stdin {
            given(TOKEN_USER, &line_of_stdin()?, "standard input")?
        } else if let Some(user) = &self.user {
            given(user, &line_of_stdin()?, "standard input")?
        } else if let Some(token) = &self.token {
            given(TOKEN_USER, token, "--token")?
        } else if let Some(token) = environment.get(TOKEN_VARIABLE) {
            given(TOKEN_USER, token, TOKEN_VARIABLE)?
        } else if let Some(kept) = KeptTokens::find(environment, &base)? {
            given(TOKEN_USER, &kept.token, "`larder login`")?
        } else {
            of_pypirc(&base, environment)
        };
        Ok(Some(Address { base, credentials }))
    }
}

/// The URL of a server, without a slash at its end.
pub(super) fn server_url(text: &str) -> Result<Url, String> {
    let expected =
        "the URL of a server was expected, as https://larder.example or http://127.0.0.1:8080";
    let url: Url = text.parse().map_err(|error| match text.contains("://") {
        true => format!("`{text}`: {expected} ({error})"),
        // What was expected says the rest.
        false => format!("`{text}`: {expected}"),
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("`{text}`: {expected}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the URL has a user in it: --user and --password-stdin, or a token, were expected instead"
                .to_owned(),
        );
    }
    let mut url = url;
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// The credentials for this server that `larder use` wrote for twine, if any.
fn of_pypirc(base: &Url, environment: &Environment) -> Option<Credentials> {
    let path = PathBuf::from(environment.get("HOME")?).join(".pypirc");
    let text = fs::read_to_string(&path).ok()?;
    let (section, user, secret) = clients::credentials_in_pypirc(&text, base)?;
    let origin = format!("[{section}] in `{}`", path.display());
    Some(Credentials { user, secret, origin })
}

/// Why a server did not carry out a request.
pub(super) struct Failure {
    /// The text for the user.
    text: String,
    /// The server's own sentence, if it gave one.
    said: Option<String>,
}

impl From<Failure> for Exit {
    fn from(failure: Failure) -> Exit {
        Exit::failure(failure.text)
    }
}

impl Failure {
    fn new(text: String) -> Failure {
        Failure { text, said: None }
    }

    /// The failure as an [`Exit`], with the hint for a refusal about one of these stages, or a project in them.
    pub(super) fn hinted(self, stages: &[StageName], project: Option<&ProjectName>) -> Exit {
        let known = stages.iter().flat_map(|stage| {
            let of_project = |project: &ProjectName| ChangeError::ProjectNonVolatile {
                project: project.clone(),
                stage: stage.clone(),
            };
            [
                Some(ChangeError::NoStage(stage.clone())),
                Some(ChangeError::NoUser(stage.user_name())),
                Some(ChangeError::StageNonVolatile(stage.clone())),
                project.cloned().map(ChangeError::NameHeld),
                project.map(of_project),
                Some(ChangeError::VersionNonVolatile),
                Some(ConfigError::Unexpected(String::new()).into()),
            ]
        });
        let said = self.said.unwrap_or_default();
        let error = known.flatten().find(|error| said.starts_with(&error.to_string()));
        Exit::failure(hinted(self.text, error.as_ref()))
    }
}

/// The text of a refusal, with what helps.
fn hinted(text: String, error: Option<&ChangeError>) -> String {
    match error.map_or("", hint) {
        "" => text,
        hint => text.trim_end_matches('.').to_owned() + hint,
    }
}

/// What devpi's wording of a refusal leaves out.
fn hint(error: &ChangeError) -> &'static str {
    match error {
        ChangeError::Config(ConfigError::Unexpected(_)) => {
            "; `larder index set --help` lists the settings"
        }
        ChangeError::StageNonVolatile(_)
        | ChangeError::ProjectNonVolatile { .. }
        | ChangeError::VersionNonVolatile => "; --force removes it anyway",
        ChangeError::NameHeld(_) => "; --all-versions --release-name does that here",
        ChangeError::NoUser(_) => "; `larder user add` makes users",
        ChangeError::NoStage(_) => "; `larder index list` shows the existing ones",
        _ => "",
    }
}

/// A refusal by a rule, with what helps.
pub(super) fn refused(error: impl Into<ChangeError>) -> Exit {
    let error = error.into();
    Exit::failure(hinted(error.to_string(), Some(&error)))
}

impl From<Refusal> for Exit {
    fn from(refusal: Refusal) -> Exit {
        match refusal {
            Refusal::Rule(Rule::Index(error)) => refused(error),
            Refusal::BlobMissing(digest) => Exit::failure(format!(
                "the file with the digest {digest} is missing from the blobs: nothing was written; `larder verify` \
                 lists all that is missing"
            )),
            refusal => Exit::failure(refusal),
        }
    }
}

/// A connection to a server that answered once.
pub(super) struct Remote {
    client: Client,
    address: Address,
}

impl Remote {
    /// Checks that the server is a Larder and accepts the credentials.
    ///
    /// # Errors
    /// No answer, an answer that is not a Larder's, or wrong credentials.
    pub(super) async fn connect(address: Address) -> Result<Remote, Exit> {
        let builder = || {
            Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .redirect(Policy::none())
                .user_agent(format!("larder/{}", version::VERSION))
        };
        let client = net::build_client(builder)
            .map_err(|error| Exit::failure(format!("cannot use the network: {error}")))?;
        let remote = Remote { client, address };
        let api = remote.get(&["+api"]).await?;
        let base = &remote.address.base;
        if api["authstatus"].is_null() {
            return Err(Exit::failure(format!(
                "{base} answers, but not as the Python index of a Larder: is this its URL?"
            )));
        }
        if let Some(Credentials { user, origin, .. }) = &remote.address.credentials {
            if api["authstatus"][0] != "ok" {
                let what = if user == TOKEN_USER { "the token" } else { "the password" };
                return Err(Exit::failure(format!(
                    "{base} does not accept {what} from {origin}: it is wrong, expired or revoked"
                )));
            }
            if origin.contains(".pypirc") {
                note(&format!("as the user of {origin}"));
            }
        }
        Ok(remote)
    }

    /// The `result` at this place.
    ///
    /// # Errors
    /// As [`Remote::send`].
    pub(super) async fn get(&self, place: &[&str]) -> Result<Value, Failure> {
        let answer = self.send(Method::GET, place, &[], None).await?;
        Ok(answer["result"].clone())
    }

    /// A simple page as JSON.
    ///
    /// # Errors
    /// As [`Remote::send`].
    pub(super) async fn simple(&self, place: &[&str]) -> Result<Value, Failure> {
        const TYPE: &str = "application/vnd.pypi.simple.v1+json";
        self.request(Method::GET, self.url(place, &[], true), None, TYPE).await
    }

    /// Sends a request to the path below the server's URL that these names make, and returns the JSON of the answer.
    ///
    /// # Errors
    /// No answer, or a refusal in the server's own words.
    pub(super) async fn send(
        &self,
        method: Method,
        place: &[&str],
        query: &[&str],
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        self.request(method, self.url(place, query, false), body, "application/json").await
    }

    fn url(&self, place: &[&str], query: &[&str], has_slash: bool) -> Url {
        let mut url = self.address.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(place);
            if has_slash {
                segments.push("");
            }
        }
        if !query.is_empty() {
            url.set_query(Some(&query.join("&")));
        }
        url
    }

    async fn request(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<Value, Failure> {
        let base = &self.address.base;
        let mut request = self.client.request(method.clone(), url.clone()).header("Accept", accept);
        if method != Method::POST {
            request = request.timeout(ANSWER_TIMEOUT);
        }
        if let Some(Credentials { user, secret, .. }) = &self.address.credentials {
            request = request.basic_auth(user, Some(secret));
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let response = request.send().await.map_err(|error| unreachable(base, &error))?;
        let status = response.status();
        if status.is_redirection() {
            let location = response.headers().get("location").and_then(|it| it.to_str().ok());
            return Err(Failure::new(format!(
                "{url} leads to {}: give the URL of the server itself",
                location.unwrap_or("another place")
            )));
        }
        let bytes = response.bytes().await.map_err(|error| unreachable(base, &error))?;
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(answer) if status.is_success() => Ok(answer),
            Ok(answer) => Err(self.refused(status, &answer)),
            Err(_) => Err(Failure::new(format!(
                "{url} answers {status} without the JSON of a Larder: is {base} the URL of one?"
            ))),
        }
    }

    /// A refusal in the server's words, which name their cause.
    fn refused(&self, status: StatusCode, answer: &Value) -> Failure {
        let base = &self.address.base;
        let said = ["message", "detail"].into_iter().find_map(|key| answer[key].as_str());
        let said = said.map(str::to_owned).or_else(|| failures(&answer["result"]));
        let said = said.unwrap_or_else(|| answer.to_string());
        let is_stranger = self.address.credentials.is_none()
            && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let hint = match is_stranger {
            true => {
                "; no credentials were sent: set LARDER_TOKEN, or give --token-stdin, or --user with --password-stdin"
            }
            false => "",
        };
        let text = format!("{base} answers {}: {said}{hint}", status.as_u16());
        Failure { text, said: Some(said) }
    }
}

/// The failures in the answer to an external push, which reports on each file.
fn failures(log: &Value) -> Option<String> {
    let is_failed = |entry: &&Value| !matches!(entry[0].as_u64(), Some(200 | 201));
    let lines: Vec<String> = log.as_array()?.iter().filter(is_failed).map(action).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// An entry of a push's log as a line.
pub(super) fn action(entry: &Value) -> String {
    let words = entry.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let words = words.map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn unreachable(base: &Url, error: &reqwest::Error) -> Failure {
    // The innermost cause is what a person can act on, such as "connection refused".
    let cause = net::causes(error).last().unwrap_or(error);
    if let Some(hint) = clients::about_authority(error) {
        return Failure::new(format!("{base} cannot be reached: {hint}"));
    }
    let text = match error.is_timeout() {
        true => format!("{base} does not answer in time"),
        false => format!("{base} cannot be reached: {cause}"),
    };
    Failure::new(format!("{text}. Does the server run, and is this its address?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        match (server_url(text), expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected),
            (Err(said), Err(expected)) => assert!(said.contains(expected), "{text}: {said}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn the_url_of_a_server() {
        check("http://127.0.0.1:8080", Ok("http://127.0.0.1:8080/"));
        check("https://h/larder/?x#y", Ok("https://h/larder/"));
        check("127.0.0.1:8080", Err("`127.0.0.1:8080`: the URL of a server was expected"));
        check("larder.example", Err("as https://larder.example"));
        check("ftp://h", Err("`ftp://h`: the URL"));
        check("http://bob:x@h", Err("--password-stdin"));
    }

    #[test]
    fn what_failed_of_a_push_is_told() {
        let log = serde_json::json!([
            [200, "upload", "team/dev/+f/a", ""],
            [403, "upload", "team/dev/+f/b", "no"],
        ]);
        assert_eq!(failures(&log).as_deref(), Some("403 upload team/dev/+f/b no"));
        assert_eq!(failures(&log["x"]), None);
    }
}
