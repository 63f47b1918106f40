//! Configures clients for an index: pip, uv, twine and poetry, in the files that they read.
//!
//! URL -> `+api` -> [`Endpoints`] -> [`changes`], which can be shown -> [`Change::write`], which makes a backup
//! beside the file. Everything else in these files stays. A file with a password in it is readable by its owner only.

mod ini;
mod written;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use reqwest::Url;
use serde_json::Value;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use self::ini::Ini;
pub use self::written::{Change, Undo};
use crate::config::Environment;

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
    /// Where installers look for packages.
    pub simple: Url,
    /// Where uploads are sent; `None` for a mirror.
    pub submit: Option<Url>,
}

/// Asks the index at `url` for its endpoints.
///
/// # Errors
/// If the URL is invalid, if no index answers there, or if the index refuses the credentials.
pub async fn ask(url: &str, credentials: Option<&Credentials>) -> anyhow::Result<Endpoints> {
    let index = index_url(url)?;
    let api = index.join("+api")?;
    // Uses the proxy of the environment, as the clients do.
    let client = reqwest::Client::builder().timeout(ASK_TIMEOUT).build()?;
    let mut request = client.get(api.clone()).header("Accept", "application/json");
    if let Some(credentials) = credentials {
        request = request.basic_auth(&credentials.user, Some(&credentials.secret));
    }
    let response = request.send().await.with_context(|| format!("{api} cannot be reached"))?;
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
    Ok(Endpoints { name, simple, submit: place("pypisubmit").transpose()? })
}

/// Where the files of clients are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
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

impl Places {
    /// The places of the person whose environment this is.
    ///
    /// # Errors
    /// If the environment names no home directory.
    pub fn of(environment: &Environment) -> anyhow::Result<Places> {
        let home =
            environment.get("HOME").context("there is no HOME: `--dir` names a directory")?;
        let home = PathBuf::from(home);
        let config = environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let config =
            config.filter(|path| path.is_absolute()).unwrap_or_else(|| home.join(".config"));
        Ok(Places::Home { home, config })
    }

    fn file(&self, in_home: Option<&str>, in_config: &str, alone: &str) -> PathBuf {
        match (self, in_home) {
            (Places::Home { home, .. }, Some(name)) => home.join(name),
            (Places::Home { config, .. }, None) => config.join(in_config),
            (Places::Directory(directory), _) => directory.join(alone),
        }
    }

    /// How to point a client at its file, if it does not look there on its own.
    pub fn hint(&self, tool: Tool) -> Option<String> {
        let Places::Directory(directory) = self else { return None };
        let directory = directory.display();
        Some(match tool {
            Tool::Pip => format!("export PIP_CONFIG_FILE={directory}/pip.conf"),
            Tool::Uv => format!("export UV_CONFIG_FILE={directory}/uv.toml"),
            Tool::Twine => format!("twine upload --config-file {directory}/.pypirc …"),
            Tool::Poetry => format!("export POETRY_CONFIG_DIR={directory}"),
        })
    }
}

/// The changes for these clients: each file once, and only if it changes.
///
/// # Errors
/// If a file cannot be read, or if its client could not parse it either.
pub fn changes(
    endpoints: &Endpoints,
    credentials: Option<&Credentials>,
    tools: &BTreeSet<Tool>,
    places: &Places,
) -> anyhow::Result<Vec<Change>> {
    let mut changes = Vec::new();
    let change = |path: PathBuf, edit: &dyn Fn(&str) -> anyhow::Result<String>| {
        let secrets =
            credentials.map(|it| vec![it.secret.clone(), encoded(it)]).unwrap_or_default();
        Change::new(path, secrets, edit)
    };
    for tool in tools {
        match tool {
            Tool::Pip => {
                let path = places.file(None, "pip/pip.conf", "pip.conf");
                let mut change = change(path, &|text| Ok(pip(text, endpoints, credentials)))?;
                change.note = overruled(&change.after);
                changes.push(change);
            }
            Tool::Uv => {
                let path = places.file(None, "uv/uv.toml", "uv.toml");
                changes.push(change(path, &|text| uv(text, endpoints, credentials))?);
            }
            Tool::Twine => {
                let Some(submit) = &endpoints.submit else { continue };
                let path = places.file(Some(".pypirc"), "", ".pypirc");
                let edit = |text: &str| Ok(twine(text, &endpoints.name, submit, credentials));
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
                if let Some(Credentials { user, secret }) = credentials {
                    let path = places.file(None, "pypoetry/auth.toml", "auth.toml");
                    changes.push(change(path, &|text| {
                        let keys = [("username", user.as_str()), ("password", secret.as_str())];
                        table(text, ["http-basic", name], &keys)
                    })?);
                }
            }
        }
    }
    Ok(changes)
}

/// What else the person must do by hand for a client.
pub fn advice(tool: Tool, endpoints: &Endpoints) -> Option<String> {
    let name = &endpoints.name;
    let Endpoints { simple, submit, .. } = endpoints;
    match tool {
        Tool::Pip => None,
        Tool::Uv if submit.is_some() => Some(format!("uv publish --index {name}")),
        Tool::Twine if submit.is_some() => Some(format!("twine upload --repository {name} dist/*")),
        Tool::Uv | Tool::Twine => None,
        Tool::Poetry => {
            let publish = submit.as_ref().map(|_| format!("; poetry publish --repository {name}"));
            Some(format!(
                "in each project: poetry source add --priority=primary {name} {simple}{}",
                publish.unwrap_or_default()
            ))
        }
    }
}

/// The URL with the credentials included.
fn with_credentials(url: &Url, credentials: Option<&Credentials>) -> String {
    let mut url = url.clone();
    if let Some(Credentials { user, secret }) = credentials {
        // Only URLs without a host refuse this, and this URL has one.
        let _ = url.set_username(user);
        let _ = url.set_password(Some(secret));
    }
    url.into()
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

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn pip(text: &str, endpoints: &Endpoints, credentials: Option<&Credentials>) -> String {
    let mut file = Ini::read(text);
    let simple = &endpoints.simple;
    file.set("global", "index-url", &[&with_credentials(simple, credentials)]);
    // pip refuses a host without TLS unless the file trusts that host.
    if let Some(host) = simple.host_str()
        && simple.scheme() == "http"
        && !is_loopback(host)
    {
        let host = match simple.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let known = file.get("global", "trusted-host").unwrap_or_default();
        let mut hosts: Vec<&str> = known.split_whitespace().collect();
        if !hosts.contains(&host.as_str()) {
            hosts.push(&host);
            file.set("global", "trusted-host", &hosts);
        }
    }
    file.text()
}

/// The settings in pip's file that override the new one: those in the sections of its commands.
fn overruled(text: &str) -> Option<String> {
    let file = Ini::read(text);
    let sections = file.sections_with("index-url").into_iter().filter(|name| *name != "global");
    let sections: Vec<String> = sections.map(|name| format!("[{name}]")).collect();
    if sections.is_empty() {
        return None;
    }
    let sections = sections.join(" and ");
    Some(format!(
        "the index-url in {sections} stays, and overrides this one there: remove it if that is not what you want"
    ))
}

fn twine(text: &str, name: &str, submit: &Url, credentials: Option<&Credentials>) -> String {
    let mut file = Ini::read(text);
    // Without a list of its own, twine knows these servers.
    let known = file.get("distutils", "index-servers");
    let known = known.unwrap_or_else(|| "pypi testpypi".to_owned());
    let mut servers: Vec<&str> = known.split_whitespace().collect();
    if !servers.contains(&name) {
        servers.push(name);
        file.set("distutils", "index-servers", &servers);
    }
    file.set(name, "repository", &[submit.as_str()]);
    if let Some(Credentials { user, secret }) = credentials {
        file.set(name, "username", &[user]);
        file.set(name, "password", &[secret]);
    }
    file.text()
}

/// The credentials that a `.pypirc` has for any index of a server: the section, the user and the password.
pub fn credentials_in_pypirc(text: &str, server: &Url) -> Option<(String, String, String)> {
    let file = Ini::read(text);
    let is_below = |repository: &str| {
        let url: Option<Url> = repository.trim().parse().ok();
        let path = format!("{}/", server.path().trim_end_matches('/'));
        url.is_some_and(|url| url.origin() == server.origin() && url.path().starts_with(&path))
    };
    file.sections_with("repository").into_iter().find_map(|section| {
        file.get(section, "repository").filter(|it| is_below(it))?;
        let (user, secret) = (file.get(section, "username")?, file.get(section, "password")?);
        Some((section.to_owned(), user, secret))
    })
}

fn document(text: &str) -> anyhow::Result<DocumentMut> {
    text.parse::<DocumentMut>().context("it is not TOML, and was left unchanged")
}

fn uv(
    text: &str,
    endpoints: &Endpoints,
    credentials: Option<&Credentials>,
) -> anyhow::Result<String> {
    let mut document = document(text)?;
    // The older keys with the same meaning.
    for key in ["index-url", "default-index"] {
        document.remove(key);
    }
    let indexes = document.entry("index").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(indexes) = indexes.as_array_of_tables_mut() else {
        bail!("its `index` is not a list of [[index]] tables; the file was left unchanged");
    };
    let name = endpoints.name.as_str();
    let is_ours = |table: &Table| table.get("name").and_then(Item::as_str) == Some(name);
    // Only one index may be the default.
    for table in indexes.iter_mut().filter(|table| !is_ours(table)) {
        if table.get("default").and_then(Item::as_bool) == Some(true) {
            table.remove("default");
        }
    }
    if !indexes.iter().any(is_ours) {
        let mut table = Table::new();
        table.insert("name", value(name));
        indexes.push(table);
    }
    if let Some(table) = indexes.iter_mut().find(|table| is_ours(table)) {
        table.insert("url", value(with_credentials(&endpoints.simple, credentials)));
        match &endpoints.submit {
            Some(submit) => {
                table.insert("publish-url", value(with_credentials(submit, credentials)));
            }
            None => drop(table.remove("publish-url")),
        }
        table.insert("default", value(true));
    }
    Ok(document.to_string())
}

/// Sets keys of the table `[first.second]`.
fn table(text: &str, path: [&str; 2], keys: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut document = document(text)?;
    let mut outer = Table::new();
    // Only the inner table has keys to show.
    outer.set_implicit(true);
    let outer = document.entry(path[0]).or_insert(Item::Table(outer));
    let unfit = || anyhow!("its `{}` is not a table; the file was left unchanged", path[0]);
    let outer = outer.as_table_like_mut().ok_or_else(unfit)?;
    let inner = outer.entry(path[1]).or_insert(Item::Table(Table::new()));
    let inner = inner.as_table_like_mut().ok_or_else(unfit)?;
    for (key, text) in keys {
        inner.insert(key, value(*text));
    }
    Ok(document.to_string())
}

/// A path as a person would write it.
fn shown(path: &Path) -> impl fmt::Display {
    path.display()
}

#[cfg(test)]
mod tests;
