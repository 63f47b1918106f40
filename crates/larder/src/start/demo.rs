//! The demonstration: a generated catalogue, written once per size and served like any dump; articles and small packages to
//! look at; a mirror with an index to mirror; and commands to try with them.

pub(crate) mod articles;
mod packages;
mod upstream;

use std::path::{Path, PathBuf};
use std::{fs, io};

use ::demo::Recipe;
use account::{Principal, UserName};
use anyhow::Context;
use config::Config;
use net::{ClientAddress, ListenAddress};
use operations::Sender;
use source::demo_data::{self, Output};
use state::maintenance::Progress;
use state::setup::PASSWORD_FILE;

use crate::app::App;

/// The seed of the catalogue that `--demo` serves.
const DEMO_SEED: u64 = 1;

/// The dump that `--demo` serves; made if the data directory does not have it.
///
/// # Errors
/// Those of writing.
pub(crate) fn dump(data_dir: &Path, packages: u32) -> io::Result<PathBuf> {
    let path = data_dir.join(format!("catalogue-{packages}.json.gz"));
    if !path.exists() {
        let unfinished = data_dir.join(format!("catalogue-{packages}.json.gz.tmp"));
        let out = Output::File { path: unfinished.clone(), gzip: true };
        let recipe = Recipe { packages, seed: DEMO_SEED };
        let progress = Progress::on_terminal();
        progress.begin_counted("generating packages", packages.into());
        demo_data::write(&recipe, &out, None, &mut |written| progress.reach(written.into()))?;
        progress.end();
        fs::rename(unfinished, &path)?;
    }
    Ok(path)
}

/// Writes the articles and the packages of the demonstration, each into a store that has none yet, and starts the upstream
/// of its mirror.
///
/// # Errors
/// Those of the store.
pub(crate) async fn fill(app: &App) -> anyhow::Result<()> {
    if app.config.article.enabled {
        articles::write(app).await?;
    }
    if app.config.python.enabled {
        packages::write(app).await?;
        upstream::write(app).await?;
    }
    Ok(())
}

/// `root`, who makes everything in the demonstration.
fn root(app: &App) -> anyhow::Result<Sender> {
    let stored = app.live_store.snapshot_full().context("the store is not loaded")?;
    let root = stored.accounts.user(&UserName::root()).context("there is no `root`")?;
    let (proved, path) = (Principal::on_the_machine(root.clone()), String::new());
    Ok(Sender::Client { proved, address: ClientAddress::Unix, path })
}

/// Commands to try with articles; those that write only if the password of `root` is known.
fn articles_to_try(config: &Config, curl: &str, base: &str) -> String {
    if !config.article.enabled {
        return String::new();
    }
    let reading = format!("{curl} '{base}/article/welcome'\n  ");
    match fs::read_to_string(config.data_dir.join(PASSWORD_FILE)) {
        Ok(password) => format!(
            "{reading}{curl} -u 'root:{}' -H 'Content-Type: text/markdown' --data-binary '# Hello' \
             '{base}/article/hello/0'\n  ",
            password.trim_end()
        ),
        Err(_) => reading,
    }
}

/// Commands to try with the Python index; those that upload only if the password of `root` is known.
fn python_to_try(config: &Config, base: &str) -> String {
    if !config.python.enabled {
        return String::new();
    }
    let simple = format!("{base}/{}/+simple/", packages::DEV);
    let installing = format!(
        "python3 -m venv venv && venv/bin/pip install --index-url '{simple}' larder-hello && \
         venv/bin/python -m larder_hello\n  \
         venv/bin/pip install --index-url '{simple}' larder-soup && venv/bin/python -m larder_soup   \
         # which {} mirrors\n  ",
        upstream::MIRROR
    );
    match fs::read_to_string(config.data_dir.join(PASSWORD_FILE)) {
        Ok(password) => format!(
            "{installing}twine upload --repository-url '{base}/{}/' -u root -p '{}' dist/*\n  ",
            packages::DEV,
            password.trim_end()
        ),
        Err(_) => installing,
    }
}

/// Commands to try on a server that listens at `addresses`.
pub(crate) fn what_to_try(config: &Config, addresses: &[ListenAddress]) -> String {
    let scheme = if config.tls.certificate.is_some() { "https" } else { "http" };
    let (base, curl) = match addresses.first() {
        Some(ListenAddress::Unix(path)) => {
            ("http://larder".to_owned(), format!("curl --unix-socket {}", path.display()))
        }
        Some(ListenAddress::Tcp(address)) => (format!("{scheme}://{address}"), "curl".to_owned()),
        None => (String::new(), "curl".to_owned()),
    };
    let articles = articles_to_try(config, &curl, &base);
    let python = python_to_try(config, &base);
    format!(
        "\nLarder serves a generated catalogue of {} packages at {base}\n\n\
         Try:\n  \
         {curl} '{base}/rpc?v=5&type=search&arg=attest'\n  \
         {curl} '{base}/rpc?v=5&type=suggest&arg=python-'\n  \
         {curl} '{base}/rpc/v5/search/ttf-font?by=provides'\n  \
         {articles}{python}\
         {curl} '{base}/metrics'\n\n\
         Open it in a browser: {base}/\n\
         Commands for each client: {base}/+use\n\
         Documentation: {base}/docs\n\
         Stop with Ctrl-C.\n",
        config.demo_packages
    )
}
