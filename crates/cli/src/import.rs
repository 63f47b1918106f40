//! `larder import-devpi`, `import-wheels` and `use`: import what another index has, and tell clients of the new one;
//! `import-articles` and `export-articles`: articles as a folder of files; `import-osv`: known malware and vulnerabilities.
//!
//! arguments -> [`Command::run`], [`Use::run`] -> the crate `import` -> a report of what was done, and what was not.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use account::UserName;
use anyhow::ensure;
use clap::{Args, Subcommand};
use config::{Config, Environment};
use futures_util::future::BoxFuture;
use import::clients::{self, ClientSetup, ConfigPlaces, Credentials, Logins, TokenWish, Tool};
use import::{
    ArticlesExport, ArticlesImport, DevpiImport, OsvImport, Report, SiteExport, SiteReport,
    WheelsImport, export_articles, import_articles, import_devpi, import_osv, import_wheels,
};
use jiff::Timestamp;
use pypi::StageName;
use serde::Serialize;
use state::accounts::TokenEnd;
use state::setup;

use super::kept_tokens::KeptTokens;
use super::remote::TOKEN_USER;
use super::{Answer, Exit, line_of_stdin, note, print, runtime};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Import the output of devpi-export: users, indexes, releases, files with their history; can be run again
    ImportDevpi {
        /// The directory that devpi-export wrote
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Read and check everything, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not count the files of mirrors as missing
        #[arg(long)]
        without_mirrored_files: bool,
        #[command(flatten)]
        answer: Answer,
    },
    /// Import a folder of wheels and source distributions, such as that of pypiserver; can be run again
    ImportWheels {
        /// The folder; the folders in it are searched too
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Into which index
        #[arg(long, value_name = "USER/INDEX")]
        index: StageName,
        /// Make the index and its user if they do not exist
        #[arg(long)]
        create: bool,
        /// Whom the history names as uploader of the files [default: the user of the index]
        #[arg(long, value_name = "NAME")]
        user: Option<UserName>,
        /// Read and check everything, and write nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        answer: Answer,
    },
    /// Import a folder of Markdown with its files as articles; files that differ become new versions; can be run again
    ImportArticles {
        /// The folder; the folders in it are imported too
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The folder of names that the articles go to, such as guide [default: none]
        #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
        prefix: String,
        /// Whom the history names
        #[arg(long, value_name = "NAME", default_value = "root")]
        user: UserName,
        /// Why, for the history [default: nothing]
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        comment: String,
        /// Leave the ending .md out of the names of articles, and out of links to them
        #[arg(long)]
        drop_md: bool,
        /// Read and check everything, and write nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        answer: Answer,
    },
    /// Import OSV records, known malware and vulnerabilities, in the place of those imported before; a server that runs on the data
    /// directory uses them at once
    ImportOsv {
        /// A zip of records in JSON files, as OSV exports them for PyPI, a folder of such files, or one of them
        #[arg(value_name = "ZIP|DIR|FILE")]
        path: PathBuf,
        /// Also if there are less than half as many records as before
        #[arg(long)]
        fewer: bool,
        /// Read and check everything, and write nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        answer: Answer,
    },
    /// Export the articles, each as it is now, as a new folder of Markdown with its files, or with --html as a static site
    ExportArticles {
        /// The folder, which is empty or does not exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Only articles in this folder of names, such as guide; the rest of the name is the path [default: all]
        #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
        prefix: String,
        /// As a static site: pages that look as on the server, for any file server or a disk
        #[arg(long)]
        html: bool,
        /// With --html: also drafts
        #[arg(long, requires = "html")]
        drafts: bool,
        /// With --html: even if not everybody may read articles (article.acl_read)
        #[arg(long, requires = "html")]
        private: bool,
        #[command(flatten)]
        answer: Answer,
    },
}

/// What makes a static site of articles: the server's pages.
pub type ExportSite =
    for<'a> fn(&'a Config, &'a SiteExport) -> BoxFuture<'a, anyhow::Result<SiteReport>>;

#[derive(Args)]
pub(super) struct Use {
    /// The index: https://host/user/index
    url: String,
    #[command(flatten)]
    tools: Tools,
    /// The user that the clients log in as; --password-stdin brings the password
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    user: Option<String>,
    /// Take the password from the first line of standard input
    #[arg(long, requires = "user")]
    password_stdin: bool,
    /// Take a token from the first line of standard input; it is written as it is
    #[arg(long, conflicts_with_all = ["user", "password_stdin"])]
    token_stdin: bool,
    /// When the tokens end that the server makes with the password: a duration such as 90d, or a date such as 2027-01-01
    #[arg(long, value_name = "WHEN", default_value = "90d", requires = "user")]
    expires: TokenEnd,
    /// Get no token that may upload, and take what could upload out of the files
    #[arg(long, requires = "user")]
    read_only: bool,
    /// Write all files into this directory instead of your home
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Name the index in this pyproject.toml as well, for uv and poetry; without credentials
    #[arg(long, value_name = "FILE")]
    project: Option<PathBuf>,
    /// Replace the public index: packages that this index does not have are not found any more
    #[arg(long)]
    only: bool,
    /// Show what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// The end of the help of `larder use`.
pub(super) const USE_HELP: &str = "With --user and the password, the server makes two tokens for this index alone, which end: one that only reads, for what \
    installs, and one that may upload. The files get these, and not the password; the next time, tokens that are still good stay. A \
    server that makes no tokens gets the password, and the command says so.\n\n\
    All other packages still come from the public index, unless --only says that this one replaces it. Each project says \
    which of its packages come from this index: the command prints the lines to copy.";

#[derive(Args)]
#[group(required = true, multiple = true)]
struct Tools {
    /// Write pip.conf, if --only is given; else say what to do
    #[arg(long)]
    pip: bool,
    /// Write uv.toml
    #[arg(long)]
    uv: bool,
    /// Write .pypirc
    #[arg(long)]
    twine: bool,
    /// Write poetry's config.toml and auth.toml
    #[arg(long)]
    poetry: bool,
    /// All four
    #[arg(long)]
    all: bool,
}

impl Tools {
    fn has(&self, tool: Tool) -> bool {
        self.all
            || match tool {
                Tool::Pip => self.pip,
                Tool::Uv => self.uv,
                Tool::Twine => self.twine,
                Tool::Poetry => self.poetry,
            }
    }
}

impl Command {
    /// Imports into the store of `config`, with the report into `out`.
    ///
    /// # Errors
    /// What went wrong, or was not imported, with exit code 1.
    pub(super) fn run(
        self,
        config: &Config,
        export_site: ExportSite,
        out: &mut dyn Write,
    ) -> Result<(), Exit> {
        let runtime = runtime()?;
        let (done, is_json) = match self {
            Command::ImportDevpi { directory, dry_run, without_mirrored_files, answer } => {
                let import = DevpiImport {
                    directory,
                    is_dry_run: dry_run,
                    is_without_mirrored_files: without_mirrored_files,
                };
                (runtime.block_on(import_devpi(config, &import)), answer.is_json)
            }
            Command::ImportWheels { directory, index, create, user, dry_run, answer } => {
                let import = WheelsImport {
                    directory,
                    stage: index,
                    is_creating: create,
                    who: user,
                    is_dry_run: dry_run,
                };
                (runtime.block_on(import_wheels(config, &import)), answer.is_json)
            }
            Command::ImportArticles {
                directory,
                prefix,
                user,
                comment,
                drop_md,
                dry_run,
                answer,
            } => {
                let author = user.to_string();
                let import = ArticlesImport {
                    directory,
                    prefix,
                    author,
                    comment,
                    drops_md: drop_md,
                    is_dry_run: dry_run,
                };
                let report = runtime.block_on(import_articles(config, &import))?;
                let shortfall = report.shortfall();
                return tell_all(&report, shortfall, answer.is_json, out);
            }
            Command::ImportOsv { path, fewer, dry_run, answer } => {
                let import = OsvImport { path, is_dry_run: dry_run, is_shrinking: fewer };
                let report = import_osv(config, &import)?;
                // Files that are no records are no failure: OSV's export may have some.
                return tell_all(&report, None, answer.is_json, out);
            }
            Command::ExportArticles { directory, prefix, html: true, drafts, private, answer } => {
                let export =
                    SiteExport { directory, prefix, with_drafts: drafts, with_private: private };
                let report = runtime.block_on(export_site(config, &export))?;
                let shortfall = report.shortfall();
                return tell_all(&report, shortfall, answer.is_json, out);
            }
            Command::ExportArticles { directory, prefix, answer, .. } => {
                let export = ArticlesExport { directory, prefix };
                let report = runtime.block_on(export_articles(config, &export))?;
                let shortfall = report.shortfall();
                return tell_all(&report, shortfall, answer.is_json, out);
            }
        };
        let (report, password) = done?;
        tell(config, &report, password, is_json, out)
    }
}

impl Use {
    /// Writes the files of the clients, and reports to `out`.
    ///
    /// # Errors
    /// What went wrong, with the exit code.
    pub(super) fn run(self, environment: &Environment, out: &mut dyn Write) -> Result<(), Exit> {
        let places = match &self.dir {
            Some(directory) => {
                ConfigPlaces::Directory(std::path::absolute(directory).map_err(Exit::failure)?)
            }
            None => ConfigPlaces::of(environment).map_err(Exit::failure)?,
        };
        let wish = ClientSetup {
            tools: Tool::ALL.into_iter().filter(|tool| self.tools.has(*tool)).collect(),
            places,
            project: self.project.as_deref().map(project).transpose()?,
            is_only: self.only,
            authority: environment
                .get("SSL_CERT_FILE")
                .map(std::path::absolute)
                .transpose()
                .map_err(Exit::failure)?,
        };
        let user = if self.token_stdin { Some(TOKEN_USER) } else { self.user.as_deref() };
        let kept = match self.url.parse() {
            Ok(url) if user.is_none() => KeptTokens::find(environment, &url)?,
            _ => None,
        };
        let credentials = match (user, kept) {
            (Some(user), _) => Some(Credentials::new(user, &line_of_stdin()?)?),
            (None, Some(kept)) => Some(Credentials::new(TOKEN_USER, &kept.token)?),
            (None, None) => None,
        };
        Ok(runtime()?.block_on(self.make(&wish, credentials.as_ref(), out))?)
    }

    /// The tokens that the server is to make.
    fn tokens(&self) -> anyhow::Result<TokenWish> {
        let now = Timestamp::now();
        let expires_at = self.expires.at(now)?;
        ensure!(expires_at > now, "--expires: a time that is still to come was expected");
        let [is_read_only, is_dry_run] = [self.read_only, self.dry_run];
        Ok(TokenWish { now, expires_at, is_read_only, is_dry_run })
    }

    async fn make(
        &self,
        wish: &ClientSetup,
        credentials: Option<&Credentials>,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let endpoints = clients::ask(&self.url, credentials).await?;
        let mut text = String::new();
        let logins = match credentials.filter(|_| self.user.is_some()) {
            Some(user) => {
                let tokens = clients::get_tokens(&endpoints, user, wish, self.tokens()?).await?;
                if let Some(warning) = tokens.warning {
                    note(&format!("warning: {warning}"));
                }
                text.extend(tokens.lines.into_iter().map(|line| line + "\n"));
                tokens.logins
            }
            None => Logins::alike(credentials.cloned()),
        };
        let changes = clients::changes(&endpoints, &logins, wish)?;
        if wish.is_only {
            note(&format!(
                "warning: the public index is replaced: packages that {} does not have are not found any more, unless \
                 a mirror is among its bases. Without --only, the public index stays",
                endpoints.simple
            ));
        }
        if endpoints.submit.is_none() {
            text.push_str("the index is a mirror: nothing can be uploaded to it\n");
        }
        let mut undo = Vec::new();
        for change in &changes {
            if !change.is_needed() {
                let _ = writeln!(text, "{}: nothing to change", change.path().display());
                tell_note(change, &mut text);
                continue;
            }
            text.push_str(&change.shown());
            tell_note(change, &mut text);
            if !self.dry_run {
                match change.write() {
                    Ok(taken_back) => undo.push(taken_back),
                    Err(error) => {
                        // The user learns what was done before the failure.
                        finish(text, &undo, self.dry_run, out)?;
                        return Err(error);
                    }
                }
            }
        }
        for tool in &wish.tools {
            let hint = wish.places.hint(*tool).filter(|_| *tool != Tool::Pip || wish.is_only);
            for line in hint.into_iter().chain(clients::advice(*tool, &endpoints, wish)) {
                let _ = writeln!(text, "{}: {line}", tool.as_str());
            }
        }
        finish(text, &undo, self.dry_run, out)
    }
}

/// The project's file to change; it must exist.
fn project(path: &Path) -> Result<PathBuf, Exit> {
    let path = if path.is_dir() { path.join("pyproject.toml") } else { path.to_owned() };
    if path.is_file() {
        return Ok(path);
    }
    let text = format!("--project `{}`: an existing pyproject.toml was expected", path.display());
    Err(Exit::usage(text))
}

/// Prints what was done, and fails with what was not.
fn tell_all(
    report: &(impl Serialize + Display),
    shortfall: Option<String>,
    is_json: bool,
    out: &mut dyn Write,
) -> Result<(), Exit> {
    let text = if is_json {
        let json = serde_json::to_string_pretty(report).map_err(Exit::failure)?;
        format!("{json}\n")
    } else {
        report.to_string()
    };
    print(&text, out)?;
    shortfall.map_or(Ok(()), |text| Err(Exit::failure(text)))
}

fn tell(
    config: &Config,
    report: &Report,
    password: Option<account::Password>,
    is_json: bool,
    out: &mut dyn Write,
) -> Result<(), Exit> {
    let told = tell_all(report, report.shortfall(), is_json, out);
    if let Some(password) = password {
        // Not in the report, which may be kept.
        let shown = setup::hand_over(config, &password, io::stderr().is_terminal())?;
        let _ = writeln!(
            io::stderr(),
            "larder: made the user `root` {shown}; `larder user password root` changes the password"
        );
    }
    told
}

fn tell_note(change: &clients::Change, text: &mut String) {
    if let Some(note) = change.note() {
        let _ = writeln!(text, "{}: {note}", change.path().display());
    }
}

fn finish(
    mut text: String,
    undo: &[clients::Undo],
    is_dry_run: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if is_dry_run {
        text.push_str("nothing was written\n");
    } else if !undo.is_empty() {
        text.push_str("to take it back:\n");
        for undo in undo {
            let _ = writeln!(text, "  {undo}");
        }
    }
    // A reader that has gone away is no error.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
