//! Configures clients for an index: pip, uv, twine and poetry, in the files that they read.
//!
//! URL -> `+api` -> [`Endpoints`] -> [`get_tokens`] -> [`changes`], which can be shown -> [`Change::write`], which makes a backup
//! beside the file. Everything else in these files stays. A file with a password in it is readable by its owner only.

mod edits;
mod file_change;
mod ini;
mod tokens;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use config::Environment;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde_json::Value;

pub use self::edits::credentials_in_pypirc;
use self::edits::{
    overruled, pip, poetry_project, pypi_token, table, twine, uv, uv_project, with_pypi_token,
};
pub use self::file_change::{Change, Undo};
pub use self::tokens::{Logins, TokenWish, Tokens, get_tokens};

/// What to do about a server whose certificate is signed by an authority of its own.
const AUTHORITY: &str = "its certificate is signed by an authority that this machine does not know. If that is your own, \
    `SSL_CERT_FILE=FILE` in the environment names its certificate for larder and uv, PIP_CERT for pip, TWINE_CERT for twine, \
    and `poetry config certificates.NAME.cert FILE` for poetry; with SSL_CERT_FILE, `larder use` writes it into the files of \
    pip, twine and poetry";

/// How long the index may take to answer with its endpoints.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// pip.
    Pip,
    /// uv.
    Uv,
    /// twine, and every other tool that reads `.pypirc`.
    Twine,
    /// Poetry.
    Poetry,
}

impl Tool {
    /// Every client.
    pub const ALL: [Tool; 4] = [Tool::Pip, Tool::Uv, Tool::Twine, Tool::Poetry];

    /// The name of the client.
    pub fn as_str(self) -> &'static str {
        match self {
            Tool::Pip => "pip",
            Tool::Uv => "uv",
            Tool::Twine => "twine",
            Tool::Poetry => "poetry",
        }
    }
}

/// A user and their secret, which is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    secret: String,
}

impl Credentials {
    /// A user with a password, or `__token__` with a token.
    ///
    /// # Errors
    /// If the files of clients cannot hold the user or the secret.
    pub fn new(user: &str, secret: &str) -> anyhow::Result<Credentials> {
        if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
            bail!("`{user}` is not the name of a user");
        }
        if secret.is_empty() || secret.trim() != secret || secret.chars().any(char::is_control) {
            bail!(
                "an empty password, or one with white space at its ends, cannot be written to these files"
            );
        }
        Ok(Credentials { user: user.to_owned(), secret: secret.to_owned() })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({}, …)", self.user)
    }
}

/// The URLs of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The name of the index in clients' files: `user-index`.
    pub name: String,
    /// The URL where installers look for packages.
    pub simple: Url,
    /// The URL that uploads are sent to; `None` for a mirror.
    pub submit: Option<Url>,
    /// The URL of the index itself, with a slash at its end.
    pub index: Url,
    /// Who asked, if credentials were sent.
    pub user: String,
    /// Their groups.
    pub groups: Vec<String>,
}

impl Endpoints {
    /// The name of the index at the server: `user/index`.
    fn stage(&self) -> String {
        let path = self.index.path().trim_matches('/');
        let start = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        percent_decode_str(&path[start..]).decode_utf8_lossy().into_owned()
    }
}

/// What to do about a failed request, if it failed because this machine does not know who signed the server's certificate.
pub fn about_authority(error: &reqwest::Error) -> Option<&'static str> {
    net::is_of_unknown_authority(error).then_some(AUTHORITY)
}

/// A server that gives no answer, with what to do.
fn unreachable(url: &Url, error: reqwest::Error) -> anyhow::Error {
    let hint = about_authority(&error).unwrap_or("does the server run, and is this its address?");
    anyhow::Error::new(error).context(format!("{url} cannot be reached: {hint}"))
}

/// Asks the index at `url` for its endpoints.
///
/// # Errors
/// If the URL is invalid, if no index answers there, or if the index refuses the credentials.
pub async fn ask(url: &str, credentials: Option<&Credentials>) -> anyhow::Result<Endpoints> {
    let index = index_url(url)?;
    let api = index.join("+api")?;
    // Uses the proxy of the environment, as the clients do.
    let client = net::build_client(|| reqwest::Client::builder().timeout(ASK_TIMEOUT))?;
    let mut request = client.get(api.clone()).header("Accept", "application/json");
    if let Some(credentials) = credentials {
        request = request.basic_auth(&credentials.user, Some(&credentials.secret));
    }
    let response = request.send().await.map_err(|error| unreachable(&api, error))?;
    let status = response.status();
    let body =
        response.bytes().await.with_context(|| format!("{api} sent an incomplete answer"))?;
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() || json["type"] != "apiconfig" {
        let said = json["message"].as_str().map(|said| format!(": {said}")).unwrap_or_default();
        bail!("{index} is not an index: {api} answered {status}{said}");
    }
    if credentials.is_some() && json["result"]["authstatus"][0] != "ok" {
        bail!("{index} does not accept this user with this password or token");
    }
    endpoints(&index, &json["result"])
}

/// The URL of the index with a slash at its end, for any of the URLs that belong to it.
fn index_url(text: &str) -> anyhow::Result<Url> {
    let parsed: Option<Url> = text.parse().ok();
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    let Some(url) = parsed.filter(is_web) else {
        bail!(
            "`{text}` is not the URL of an index: one like https://index.example/user/index was expected, with \
             http:// or https://"
        );
    };
    if !url.username().is_empty() || url.password().is_some() {
        bail!("the URL has a user in it: `--user` and `--password-stdin` were expected instead");
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/+simple").unwrap_or(path).trim_end_matches('/').to_owned();
    let mut url = url;
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(&format!("{path}/"));
    let is_index =
        url.path_segments().is_some_and(|it| it.filter(|it| !it.is_empty()).count() >= 2);
    if !is_index {
        bail!("`{text}` is not the URL of an index: one that ends in /user/index was expected");
    }
    Ok(url)
}

fn endpoints(index: &Url, result: &Value) -> anyhow::Result<Endpoints> {
    let place = |key: &str| {
        let text = result[key].as_str()?;
        // Relative URLs are relative to the index.
        Some(index.join(text).map_err(|error| anyhow!("`{text}` is not a URL: {error}")))
    };
    let simple = place("simpleindex")
        .ok_or_else(|| anyhow!("{index} does not say where installers look: is it an index?"))??;
    let segments: Vec<&str> =
        index.path_segments().into_iter().flatten().filter(|it| !it.is_empty()).collect();
    let last = &segments[segments.len().saturating_sub(2)..];
    let plain = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => character,
        _ => '-',
    };
    let name: String = last.join("-").chars().map(plain).collect();
    let [_, user, groups] = [0, 1, 2].map(|at| &result["authstatus"][at]);
    let groups = groups.as_array().into_iter().flatten();
    Ok(Endpoints {
        name,
        simple,
        submit: place("pypisubmit").transpose()?,
        index: index.clone(),
        user: user.as_str().unwrap_or_default().to_owned(),
        groups: groups.filter_map(|group| group.as_str().map(str::to_owned)).collect(),
    })
}

/// The places of clients' files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigPlaces {
    /// Each client's usual place for a person's settings.
    Home {
        /// The home directory.
        home: PathBuf,
        /// The directory of settings below it.
        config: PathBuf,
    },
    /// All files are in one directory; the person must point the clients at it.
    Directory(PathBuf),
}

impl ConfigPlaces {
    /// The places of the person whose environment this is.
    ///
    /// # Errors
    /// If the environment names no home directory.
    pub fn of(environment: &Environment) -> anyhow::Result<ConfigPlaces> {
        let home =
            environment.get("HOME").context("there is no HOME: `--dir` names a directory")?;
        let home = PathBuf::from(home);
        let config = environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let config =
            config.filter(|path| path.is_absolute()).unwrap_or_else(|| home.join(".config"));
        Ok(ConfigPlaces::Home { home, config })
    }

    fn file(&self, in_home: Option<&str>, in_config: &str, alone: &str) -> PathBuf {
        match (self, in_home) {
            (ConfigPlaces::Home { home, .. }, Some(name)) => home.join(name),
            (ConfigPlaces::Home { config, .. }, None) => config.join(in_config),
            (ConfigPlaces::Directory(directory), _) => directory.join(alone),
        }
    }

    /// How to point a client at its file, if it does not look there on its own.
    pub fn hint(&self, tool: Tool) -> Option<String> {
        let ConfigPlaces::Directory(directory) = self else { return None };
        let directory = directory.display();
        Some(match tool {
            Tool::Pip => format!("export PIP_CONFIG_FILE={directory}/pip.conf"),
            Tool::Uv => format!("export UV_CONFIG_FILE={directory}/uv.toml"),
            Tool::Twine => format!("twine upload --config-file {directory}/.pypirc …"),
            Tool::Poetry => format!("export POETRY_CONFIG_DIR={directory}"),
        })
    }
}

/// How clients should be configured.
#[derive(Clone, Debug)]
pub struct ClientSetup {
    /// The clients.
    pub tools: BTreeSet<Tool>,
    /// The places of their files.
    pub places: ConfigPlaces,
    /// A project's `pyproject.toml`, which names the index as well.
    pub project: Option<PathBuf>,
    /// Whether the index replaces the public one, or is used beside it.
    pub is_only: bool,
    /// The file with the certificate of the authority that signed the server's, where that is not one of the machine's.
    pub authority: Option<PathBuf>,
}

impl ClientSetup {
    /// The file with the authority's certificate as clients name it, if the index is reached over TLS.
    fn authority(&self, endpoints: &Endpoints) -> Option<String> {
        let authority = self.authority.as_ref().filter(|_| endpoints.simple.scheme() == "https")?;
        Some(authority.display().to_string())
    }
}

/// The changes for these clients, one for each file that has to change.
///
/// # Errors
/// If a file cannot be read, or if its client could not parse it either.
pub fn changes(
    endpoints: &Endpoints,
    logins: &Logins,
    setup: &ClientSetup,
) -> anyhow::Result<Vec<Change>> {
    let ClientSetup { tools, places, project, is_only, .. } = setup;
    let is_only = *is_only;
    let authority = setup.authority(endpoints);
    let authority = authority.as_deref();
    let mut changes = Vec::new();
    let change = |path: PathBuf, edit: &dyn Fn(&str) -> anyhow::Result<String>| {
        let secrets = logins.all().flat_map(|it| [it.secret.clone(), encoded(it)]).collect();
        Change::new(path, secrets, edit)
    };
    for tool in tools {
        match tool {
            // pip takes the highest version of all its indexes, so no setting beside the public index is safe.
            Tool::Pip if !is_only => {}
            Tool::Pip => {
                let path = places.file(None, "pip/pip.conf", "pip.conf");
                let reads = logins.reads.as_ref();
                let edit = |text: &str| Ok(pip(text, endpoints, reads, authority));
                let mut change = change(path, &edit)?;
                change.note = overruled(&change.after);
                changes.push(change);
            }
            Tool::Uv => {
                let path = places.file(None, "uv/uv.toml", "uv.toml");
                changes.push(change(path, &|text| uv(text, endpoints, logins, is_only))?);
            }
            Tool::Twine => {
                let Some(submit) = &endpoints.submit else { continue };
                let path = places.file(Some(".pypirc"), "", ".pypirc");
                let edit = |text: &str| Ok(twine(text, &endpoints.name, submit, logins, authority));
                changes.push(change(path, &edit)?);
            }
            Tool::Poetry => {
                let name = &endpoints.name;
                if let Some(submit) = &endpoints.submit {
                    let path = places.file(None, "pypoetry/config.toml", "config.toml");
                    changes.push(change(path, &|text| {
                        let keys = [("url", submit.as_str())];
                        table(text, ["repositories", name], &keys)
                    })?);
                }
                if logins.reads.is_some() || authority.is_some() {
                    let path = places.file(None, "pypoetry/auth.toml", "auth.toml");
                    let edit = |text: &str| poetry_auth(text, name, logins, authority);
                    let mut change = change(path, &edit)?;
                    // It is shown as it is removed.
                    change.secrets.extend(pypi_token(change.before(), name));
                    changes.push(change);
                }
            }
        }
    }
    if let Some(path) = project {
        let is_meant = |tool| tools.contains(&tool);
        // The settings of both tools go into one file, so this is one change.
        changes.push(change(path.clone(), &|text| {
            let mut text = text.to_owned();
            if is_meant(Tool::Uv) {
                text = uv_project(&text, endpoints, is_only)?;
            }
            if is_meant(Tool::Poetry) {
                text = poetry_project(&text, endpoints, is_only)?;
            }
            Ok(text)
        })?);
    }
    Ok(changes)
}

/// Poetry's `auth.toml`. It has one login for a name, and beside it a token for what it publishes there, which comes first.
fn poetry_auth(
    text: &str,
    name: &str,
    logins: &Logins,
    authority: Option<&str>,
) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    if let Some(Credentials { user, secret }) = &logins.reads {
        let keys = [("username", user.as_str()), ("password", secret.as_str())];
        text = table(&text, ["http-basic", name], &keys)?;
    }
    match &logins.uploads {
        Some(uploads) if logins.reads.as_ref() != Some(uploads) => {
            text = with_pypi_token(&text, name, Some(&uploads.secret))?;
        }
        Some(_) => text = with_pypi_token(&text, name, None)?,
        None if logins.is_read_only => text = with_pypi_token(&text, name, None)?,
        None => {}
    }
    if let Some(authority) = authority {
        text = table(&text, ["certificates", name], &[("cert", authority)])?;
    }
    Ok(text)
}

/// What else a person has to do for a client: lines to read, and to copy.
pub fn advice(tool: Tool, endpoints: &Endpoints, wish: &ClientSetup) -> Vec<String> {
    let name = &endpoints.name;
    let authority = wish.authority(endpoints);
    let Endpoints { simple, submit, .. } = endpoints;
    let is_beside = !wish.is_only;
    let certificate =
        authority.as_ref().map(|file| format!(" --cert '{file}'")).unwrap_or_default();
    let mut lines = Vec::new();
    if let Some(file) = authority.filter(|_| tool == Tool::Uv) {
        lines.push(format!("it has no setting for the authority: export SSL_CERT_FILE='{file}'"));
    }
    match tool {
        Tool::Pip if is_beside => lines.extend([
            "nothing was written: pip takes the highest version of all its indexes, also a stranger's of your name.".to_owned(),
            format!("take your own packages in a step of their own: pip install{certificate} --index-url {simple} --no-deps NAME==VERSION"),
            "an index that has all you need can be the only one: add --only".to_owned(),
        ]),
        Tool::Uv if is_beside => {
            if wish.project.is_none() {
                lines.extend([
                    "in each project's pyproject.toml (--project pyproject.toml writes it):".to_owned(),
                    "  [[tool.uv.index]]".to_owned(),
                    format!("  name = \"{name}\""),
                    format!("  url = \"{simple}\""),
                    "  explicit = true".to_owned(),
                ]);
            }
            lines.extend([
                "say there which packages are yours; all others come from the public index:".to_owned(),
                "  [tool.uv.sources]".to_owned(),
                format!("  yourproject = {{ index = \"{name}\" }}"),
            ]);
        }
        Tool::Poetry => {
            let priority = if is_beside { "explicit" } else { "primary" };
            if wish.project.is_none() {
                lines.push(format!("in each project: poetry source add --priority={priority} {name} {simple}"));
            }
            if is_beside {
                lines.push(format!("for each package of yours: poetry add --source {name} yourproject"));
            }
        }
        _ => {}
    }
    if submit.is_some() {
        match tool {
            Tool::Pip => {}
            Tool::Uv => lines.push(format!("uv publish --index {name}")),
            Tool::Twine => lines.push(format!("twine upload --repository {name} dist/*")),
            Tool::Poetry => lines.push(format!("poetry publish --repository {name}")),
        }
    }
    lines
}

/// A password, escaped for a URL.
fn encoded(credentials: &Credentials) -> String {
    let host: Result<Url, _> = "http://host.invalid/".parse();
    let url = host.ok().and_then(|mut url| {
        url.set_password(Some(&credentials.secret)).ok()?;
        url.password().map(str::to_owned)
    });
    url.unwrap_or_else(|| credentials.secret.clone())
}

/// A path as a person writes it.
fn shown(path: &Path) -> impl fmt::Display {
    path.display()
}

#[cfg(test)]
mod tests;
