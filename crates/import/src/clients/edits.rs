//! Edits the text of each client's file; everything else in it stays.

use anyhow::{Context, anyhow, bail};
use reqwest::Url;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::ini::Ini;
use super::{Credentials, Endpoints, Logins};

/// The URL with the credentials included.
pub(super) fn with_credentials(url: &Url, credentials: Option<&Credentials>) -> String {
    let mut url = url.clone();
    if let Some(Credentials { user, secret }) = credentials {
        // Only URLs without a host refuse this, and this URL has one.
        let _ = url.set_username(user);
        let _ = url.set_password(Some(secret));
    }
    url.into()
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) fn pip(
    text: &str,
    endpoints: &Endpoints,
    credentials: Option<&Credentials>,
    authority: Option<&str>,
) -> String {
    let mut file = Ini::read(text);
    let simple = &endpoints.simple;
    file.set("global", "index-url", &[&with_credentials(simple, credentials)]);
    if let Some(authority) = authority {
        file.set("global", "cert", &[authority]);
    }
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
pub(super) fn overruled(text: &str) -> Option<String> {
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

pub(super) fn twine(
    text: &str,
    name: &str,
    submit: &Url,
    logins: &Logins,
    authority: Option<&str>,
) -> String {
    let mut file = Ini::read(text);
    // By default, twine knows these servers.
    let known = file.get("distutils", "index-servers");
    let known = known.unwrap_or_else(|| "pypi testpypi".to_owned());
    let mut servers: Vec<&str> = known.split_whitespace().collect();
    if !servers.contains(&name) {
        servers.push(name);
        file.set("distutils", "index-servers", &servers);
    }
    file.set(name, "repository", &[submit.as_str()]);
    match &logins.uploads {
        Some(Credentials { user, secret }) => {
            file.set(name, "username", &[user]);
            file.set(name, "password", &[secret]);
        }
        None if logins.is_read_only => {
            file.remove(name, "username");
            file.remove(name, "password");
        }
        None => {}
    }
    if let Some(authority) = authority {
        file.set(name, "ca_cert", &[authority]);
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

/// uv's own settings: the index beside the others, asked only for packages that a project takes from it; with `is_only`, as the
/// default.
pub(super) fn uv(
    text: &str,
    endpoints: &Endpoints,
    logins: &Logins,
    is_only: bool,
) -> anyhow::Result<String> {
    let mut document = document(text)?;
    if is_only {
        // The older keys with the same meaning.
        for key in ["index-url", "default-index"] {
            document.remove(key);
        }
    }
    let indexes = document.entry("index").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(indexes) = indexes.as_array_of_tables_mut() else {
        bail!("its `index` is not a list of [[index]] tables; the file was left unchanged");
    };
    if is_only {
        // Only one index may be the default.
        for table in indexes.iter_mut() {
            if table.get("default").and_then(Item::as_bool) == Some(true) {
                table.remove("default");
            }
        }
    }
    let table = named(indexes, &endpoints.name);
    set_uv_index(table, endpoints, logins, is_only);
    Ok(document.to_string())
}

/// The table with this name; if there is none, a new one at the end.
fn named<'tables>(tables: &'tables mut ArrayOfTables, name: &str) -> &'tables mut Table {
    let is_ours = |table: &Table| table.get("name").and_then(Item::as_str) == Some(name);
    let found = tables.iter().position(is_ours);
    let at = found.unwrap_or(tables.len());
    if found.is_none() {
        let mut table = Table::new();
        table.insert("name", value(name));
        tables.push(table);
    }
    tables.get_mut(at).expect("it was found, or put there")
}

fn set_uv_index(table: &mut Table, endpoints: &Endpoints, logins: &Logins, is_only: bool) {
    table.insert("url", value(with_credentials(&endpoints.simple, logins.reads.as_ref())));
    match &endpoints.submit {
        Some(submit) => {
            let submit = with_credentials(submit, logins.uploads.as_ref());
            table.insert("publish-url", value(submit));
        }
        None => drop(table.remove("publish-url")),
    }
    let (set, removed) = if is_only { ("default", "explicit") } else { ("explicit", "default") };
    table.remove(removed);
    table.insert(set, value(true));
}

/// A project's `pyproject.toml` for uv. No credentials go into a file that others read.
pub(super) fn uv_project(
    text: &str,
    endpoints: &Endpoints,
    is_only: bool,
) -> anyhow::Result<String> {
    let mut document = document(text)?;
    let indexes = tables_of_tool(&mut document, "uv", "index")?;
    set_uv_index(named(indexes, &endpoints.name), endpoints, &Logins::default(), is_only);
    Ok(document.to_string())
}

/// A project's `pyproject.toml` for poetry, without credentials.
pub(super) fn poetry_project(
    text: &str,
    endpoints: &Endpoints,
    is_only: bool,
) -> anyhow::Result<String> {
    let mut document = document(text)?;
    let sources = tables_of_tool(&mut document, "poetry", "source")?;
    let table = named(sources, &endpoints.name);
    table.insert("url", value(endpoints.simple.as_str()));
    table.insert("priority", value(if is_only { "primary" } else { "explicit" }));
    Ok(document.to_string())
}

/// `[[tool.NAME.KEY]]`.
fn tables_of_tool<'document>(
    document: &'document mut DocumentMut,
    name: &str,
    key: &str,
) -> anyhow::Result<&'document mut ArrayOfTables> {
    let implicit = || {
        let mut table = Table::new();
        // Only its contents are printed.
        table.set_implicit(true);
        Item::Table(table)
    };
    let unfit =
        || anyhow!("its `tool.{name}.{key}` is not a list of tables; the file was left unchanged");
    let tool = document.entry("tool").or_insert_with(implicit);
    let tool = tool.as_table_mut().ok_or_else(unfit)?.entry(name).or_insert_with(implicit);
    let list = tool.as_table_mut().ok_or_else(unfit)?.entry(key);
    let list = list.or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    list.as_array_of_tables_mut().ok_or_else(unfit)
}

/// Sets keys of the table `[first.second]`.
pub(super) fn table(text: &str, path: [&str; 2], keys: &[(&str, &str)]) -> anyhow::Result<String> {
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

/// The token in poetry's `auth.toml` for what it publishes to the repository of this name.
pub(super) fn pypi_token(text: &str, name: &str) -> Option<String> {
    let document = text.parse::<DocumentMut>().ok()?;
    document.get("pypi-token")?.get(name)?.as_str().map(str::to_owned)
}

/// The text with this token there, or without one.
pub(super) fn with_pypi_token(
    text: &str,
    name: &str,
    token: Option<&str>,
) -> anyhow::Result<String> {
    let mut document = document(text)?;
    let unfit = || anyhow!("its `pypi-token` is not a table; the file was left unchanged");
    match token {
        Some(token) => {
            let tokens = document.entry("pypi-token").or_insert(Item::Table(Table::new()));
            tokens.as_table_like_mut().ok_or_else(unfit)?.insert(name, value(token));
        }
        None => {
            if let Some(tokens) = document.get_mut("pypi-token") {
                let tokens = tokens.as_table_like_mut().ok_or_else(unfit)?;
                tokens.remove(name);
                if tokens.is_empty() {
                    document.remove("pypi-token");
                }
            }
        }
    }
    Ok(document.to_string())
}
