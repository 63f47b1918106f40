//! Commands that need no store: they check and show the configuration, print completions, the man page and the version,
//! and ask a running server whether it is ready.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Args, Command, Subcommand, value_parser};
use clap_complete::Shell;
use config::{AurSource, Inputs, LoadedConfig};

use super::{Exit, command, online};

#[derive(Subcommand)]
pub(super) enum Config {
    /// Say whether the configuration is valid; exit code 78 if not
    Check {
        /// Also try what it names: the database, the bucket, the AUR's source, issuers, identity providers, the directory, and
        /// upstreams of mirrors; exit code 1 if one fails
        #[arg(long)]
        online: bool,
    },
    /// Print the effective configuration as TOML, with the origin of each value; secrets are left out
    Show,
    /// Print a commented configuration file with every key and its default
    Init,
    /// Print the equivalent of a goaurrpc configuration (JSON)
    ImportGoaurrpc {
        file: PathBuf,
        /// Write it there, if all is well, instead of printing it
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print docs/config.md
    #[command(hide = true)]
    Docs,
}

impl Config {
    /// The text to print.
    ///
    /// # Errors
    /// A configuration that is not valid (exit code 78).
    pub(super) fn run(
        self,
        inputs: &Inputs,
        check_files: fn(&config::Config) -> anyhow::Result<()>,
    ) -> Result<String, Exit> {
        match self {
            Config::Check { online: is_online } => {
                let loaded = inputs.load()?;
                loaded.check_for_serving()?;
                let text = check(&loaded)?;
                check_files(&loaded.config)
                    .map_err(|error| Exit::Message { code: 78, text: format!("{error:#}") })?;
                if !is_online {
                    return Ok(text);
                }
                let (tried, failures) = online::check(&loaded.config, &inputs.environment)?;
                match failures {
                    0 => Ok(text + &tried),
                    _ => Err(Exit::failure((text + &tried).trim_end())),
                }
            }
            Config::Show => Ok(config::show(&inputs.load()?)),
            Config::Init => Ok(config::template()),
            Config::ImportGoaurrpc { file, output } => {
                let made = translated(&file, config::import_goaurrpc)?;
                let Some(output) = output else { return Ok(made) };
                std::fs::write(&output, made).map_err(|error| {
                    Exit::failure(format!("{} cannot be written: {error}", output.display()))
                })?;
                Ok(String::new())
            }
            Config::Docs => Ok(config::docs()),
        }
    }
}

/// The section `[ldap]` for a file of devpi-ldap.
///
/// # Errors
/// A file that is none (exit code 78).
pub(super) fn import_devpi_ldap(file: &Path) -> Result<String, Exit> {
    translated(file, config::import_devpi_ldap)
}

/// Another program's file as a file of this one.
fn translated(
    file: &Path,
    translate: impl FnOnce(&str) -> Result<String, String>,
) -> Result<String, Exit> {
    let problem =
        |text: String| Exit::Message { code: 78, text: format!("{}: {text}", file.display()) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| problem(format!("cannot be read: {error}")))?;
    translate(&text).map_err(problem)
}

/// The completion script for a shell.
pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "larder", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The report of `config check` about a valid configuration: the warnings, and missing files that it names.
fn check(loaded: &LoadedConfig) -> Result<String, Exit> {
    let config = &loaded.config;
    let mut missing = Vec::new();
    if let Some((certificate, key)) = config.tls.files() {
        for (name, path) in [("tls.certificate", certificate), ("tls.key", key)] {
            if let Err(error) = std::fs::File::open(path) {
                missing.push(format!("{name} = {:?}: {error}", path.display().to_string()));
            }
        }
    }
    if !missing.is_empty() {
        return Err(Exit::Message { code: 78, text: missing.join("\n") });
    }
    let mut warnings = loaded.warnings.clone();
    if let Some(AurSource::File(path)) = &config.aur.source
        && !path.exists()
    {
        // The file may appear later: the server waits for it.
        warnings.push(format!("aur.source = {:?} does not exist yet", path.display().to_string()));
    }
    let warnings: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    let file = loaded
        .file
        .as_ref()
        .map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    Ok(format!("{warnings}the configuration is valid ({file})\n"))
}

/// One man page for the program: the flags of `serve`, which is the default, and the other commands below.
pub(super) fn man() -> Result<String, Exit> {
    let mut page = command();
    for key in config::keys() {
        page = page.mut_arg(key.path(), |arg| arg.hide(false));
    }
    page.build();
    let mut roff = Vec::new();
    let man = clap_mangen::Man::new(page.clone());
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    writeln!(
        roff,
        ".SH SYNOPSIS\n\\fBlarder\\fR [\\fBserve\\fR] [\\fIOPTIONS\\fR]\n.br\n\\fBlarder\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]"
    )?;
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    writeln!(roff, ".SH COMMANDS")?;
    describe_commands(&page, &mut roff)?;
    writeln!(
        roff,
        ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nFailure.\n.TP\n2\nWrong command line.\n.TP\n3\n\\fBlarder upgrade\\-check\\fR has found changes.\n.TP\n78\nBad configuration.\n\
        .SH SIGNALS\n.TP\nSIGTERM, SIGINT\nThe server stops being ready, finishes open requests, and ends.\n\
        .TP\nSIGHUP\nThe server reads the configuration and the data again.\n\
        .TP\nSIGUSR1\nThe server writes its copy of the store into a new directory in the data directory."
    )?;
    Ok(String::from_utf8_lossy(&roff).into_owned())
}

/// The commands below `parent` with their arguments, as roff.
fn describe_commands(parent: &Command, roff: &mut Vec<u8>) -> io::Result<()> {
    for command in parent
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        if command.has_subcommands() {
            describe_commands(command, roff)?;
            continue;
        }
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(roff, ".TP\n\\fB{usage}\\fR\n{about}.")?;
        // The flags of the configuration are above.
        let is_own = |arg: &&Arg| {
            !arg.is_hide_set() && !config::keys().any(|key| arg.get_id().as_str() == key.path())
        };
        for arg in command
            .get_arguments()
            .filter(is_own)
            .filter(|arg| arg.get_id() != "help" && arg.get_id() != "config")
        {
            if let (Some(long), Some(help)) = (arg.get_long(), arg.get_help()) {
                writeln!(roff, ".br\n\\fB\\-\\-{}\\fR: {help}.", long.replace('-', "\\-"))?;
            }
        }
    }
    Ok(())
}

/// The version and its commit; with `json` all that a bug report needs.
pub(super) fn version(json: bool) -> String {
    if !json {
        return format!("larder {}\n", version::text());
    }
    let object = serde_json::json!({
        "name": "larder",
        "version": version::VERSION,
        "commit": version::COMMIT,
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
    });
    format!("{object}\n")
}

#[derive(Args)]
pub(super) struct Healthcheck {
    /// URL to get instead of /readyz on the first address of `listen`
    #[arg(long)]
    url: Option<String>,
    /// Time for the whole answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = value_parser!(u64).range(1..=3600))]
    timeout_seconds: u64,
}

impl Healthcheck {
    /// Gets the URL once: its body if the status is a success.
    ///
    /// # Errors
    /// Exit code 1 with the status and body, or why there was no answer.
    pub(super) fn run(self, inputs: &Inputs) -> Result<String, Exit> {
        // A proxy of the environment is for the world outside, not for this server.
        let timeout = Duration::from_secs(self.timeout_seconds);
        let builder = || reqwest::Client::builder().no_proxy().timeout(timeout);
        let (url, client) = match self.url {
            Some(url) => (url, net::build_client(builder)),
            None => {
                let loaded = inputs.load()?;
                let (url, socket) = loaded.config.local_url("/readyz");
                let client = net::build_client(|| {
                    // The certificate of the listener on this machine names its public host.
                    let builder = builder().tls_danger_accept_invalid_certs(true);
                    match &socket {
                        Some(socket) => builder.unix_socket(*socket),
                        None => builder,
                    }
                });
                (url, client)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(ask(&url, client))
    }
}

async fn ask(url: &str, client: reqwest::Result<reqwest::Client>) -> Result<String, Exit> {
    let failed = |error: reqwest::Error| {
        // The chain of causes has what a person can act on, such as "connection refused".
        let mut text = format!("{url}: {error}");
        text.extend(net::causes(&error).map(|cause| format!(": {cause}")));
        if error.is_connect() {
            text.push_str("; does the server run, and is this its address?");
        }
        Exit::failure(text)
    };
    let response = client.map_err(failed)?.get(url).send().await.map_err(failed)?;
    let status = response.status();
    let body = response.text().await.map_err(failed)?;
    if status.is_success() {
        Ok(format!("{}\n", body.trim_end()))
    } else {
        Err(Exit::failure(format!("{url}: {status}: {}", body.trim_end())))
    }
}
