//! The command line: what can be asked of `larder`, and those answers that need no server.
//!
//! arguments -> [`parse`] -> [`Invocation`]; `main` runs the server or [`run_offline`], and turns an [`Exit`] into text
//! and exit code. The flags of `serve` are the keys of [`crate::config`], derived and never listed here.
//! Data goes to the writer that is given (stdout), complaints leave as an [`Exit`] (stderr).

pub mod accounts;
mod directory;
pub mod import;
pub mod index;
pub mod keeping;
mod offline;
pub mod release;
mod remote;
mod table;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use tokio::runtime::Runtime;

use crate::config::{self, ConfigError, Environment, Flags, Inputs, Key, Kind, Loaded};
use crate::version;

pub use self::offline::run_offline;

/// What the user asked for, checked.
#[derive(Debug)]
pub enum Invocation {
    /// Run the server. Its `warnings` are to be logged once logging works.
    Serve(Box<Loaded>),
    /// Write a generated catalogue as a dump.
    DemoData {
        /// How many packages.
        packages: usize,
        /// Equal seeds give equal bytes.
        seed: u64,
        /// Where to.
        out: Output,
    },
    /// Prepare the store, or look at or change users and tokens; [`accounts::run`] does it.
    Accounts(accounts::Request),
    /// Copy, restore, check or sweep the store; [`keeping::run`] does it.
    Keeping(keeping::Request),
    /// Take over what another index has, or tell clients of one; [`import::run`] does it.
    Import(import::Request),
    /// Look at or change indexes; [`index::run`] does it.
    Index(index::Request),
    /// Look at or change releases; [`release::run`] does it.
    Release(release::Request),
    /// Anything that needs no server; [`run_offline`] does it.
    Offline(Offline),
}

/// Where generated data goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, plain.
    Stdout,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether to compress: the name ends in `.gz`.
        gzip: bool,
    },
}

/// A request that needs no server.
#[derive(Debug)]
pub enum Offline {
    /// Say whether the configuration is valid.
    ConfigCheck(Box<Loaded>),
    /// Print the effective configuration.
    ConfigShow(Box<Loaded>),
    /// Print a commented template.
    ConfigInit,
    /// Print the reference of all keys.
    ConfigDocs,
    /// Print a goaurrpc configuration as one of larder.
    ConfigImportGoaurrpc(PathBuf),
    /// Print a shell's completions.
    Completions(Shell),
    /// Print the man page.
    Man,
    /// Ask a running server whether it is ready.
    Healthcheck(Healthcheck),
    /// Print the version.
    Version {
        /// As a JSON object.
        json: bool,
    },
}

/// Which server to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healthcheck {
    /// The URL to get.
    pub url: String,
    /// The Unix socket to use instead of TCP.
    pub socket: Option<PathBuf>,
    /// Whether the certificate is checked: it is not for this machine's own listener, whose certificate names its
    /// public host.
    pub is_certificate_checked: bool,
    /// Time for the whole answer.
    pub timeout: Duration,
}

/// Why the process ends without having done what was asked, or with `--help` having been it.
#[derive(Debug)]
pub enum Exit {
    /// What clap has to say: help and version (exit code 0), or a wrong command line (2).
    Clap(Box<clap::Error>),
    /// Anything else.
    Message {
        /// 1 failure, 2 usage, 78 bad configuration.
        code: u8,
        /// For stderr; may have several lines.
        text: String,
    },
}

impl Exit {
    /// A failure (exit code 1).
    pub fn failure(text: impl fmt::Display) -> Self {
        Self::Message { code: 1, text: text.to_string() }
    }

    /// The exit code: 0, 1 failure, 2 usage, 78 bad configuration.
    pub fn code(&self) -> u8 {
        match self {
            Self::Clap(error) => u8::try_from(error.exit_code()).unwrap_or(2),
            Self::Message { code, .. } => *code,
        }
    }

    /// Prints the text to where it belongs and gives the exit code: the last thing that `main` does.
    pub fn report(self) -> ExitCode {
        let code = self.code();
        match self {
            // A reader that has gone away is no reason to complain.
            Self::Clap(error) => drop(error.print()),
            Self::Message { text, .. } => {
                for line in text.lines() {
                    drop(writeln!(io::stderr(), "larder: {line}"));
                }
            }
        }
        ExitCode::from(code)
    }
}

impl From<clap::Error> for Exit {
    fn from(error: clap::Error) -> Self {
        Self::Clap(Box::new(error))
    }
}

impl From<ConfigError> for Exit {
    fn from(error: ConfigError) -> Self {
        Self::Message { code: error.exit_code(), text: error.to_string() }
    }
}

impl From<io::Error> for Exit {
    fn from(error: io::Error) -> Self {
        Self::failure(error)
    }
}

/// Most bytes of a password or token on standard input.
const SECRET_BYTES_MAX: u64 = 4_098;

/// For commands that take the configuration's flags without listing them.
const FLAGS_TOO: &str = "The flags of `larder serve` are accepted too.";

/// The whole command line, with every flag of the configuration.
pub fn command() -> Command {
    let serve = Command::new("serve")
        .about("Run the server")
        .after_help(
            "Every flag is also a variable of the environment and a key of the file; flags win over the \
            environment, that over the file, that over the defaults.",
        )
        .args(key_args(false));
    let config = Command::new("config")
        .about("Check, show and make configuration files")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("check").about("Say whether the configuration is valid; exit code 78 if not").after_help(FLAGS_TOO).args(key_args(true)),
        )
        .subcommand(
            Command::new("show")
                .about("Print the effective configuration as TOML, with the origin of each value; secrets are left out")
                .after_help(FLAGS_TOO)
                .args(key_args(true)),
        )
        .subcommand(Command::new("init").about("Print a commented configuration file with every key and its default"))
        .subcommand(
            Command::new("import-goaurrpc")
                .about("Print the equivalent of a goaurrpc configuration (JSON)")
                .arg(Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf))),
        )
        .subcommand(Command::new("docs").about("Print docs/config.md").hide(true));
    Command::new("larder")
        .about(
            "Larder is a server for packages and pages: it answers the AUR's package queries, is a private Python index for \
            pip, uv and twine, and publishes versioned articles, all from memory",
        )
        .version(version::text())
        .arg_required_else_help(true)
        .after_help(
            "`larder serve` starts the server, `larder serve --demo` one with something to try, and `larder serve --help` \
            lists its flags. `larder --demo` is the same as `larder serve --demo`.",
        )
        .subcommand_precedence_over_arg(true)
        .args(key_args(true))
        .subcommand(serve)
        .subcommand(
            Command::new("demo-data")
                .about("Write a generated catalogue as packages-meta-ext-v1.json(.gz)")
                .arg(
                    Arg::new("packages")
                        .long("packages")
                        .value_name("N")
                        .help("How many packages")
                        .default_value("100000")
                        .value_parser(value_parser!(u64).range(1..=100_000_000)),
                )
                .arg(
                    Arg::new("seed")
                        .long("seed")
                        .value_name("S")
                        .help("Equal seeds give equal bytes")
                        .default_value("1")
                        .value_parser(value_parser!(u64)),
                )
                .arg(
                    Arg::new("out")
                        .long("out")
                        .value_name("FILE")
                        .help("Where to: - is stdout, a name ending in .gz is compressed")
                        .required(true)
                        .value_parser(value_parser!(PathBuf)),
                ),
        )
        .subcommands(accounts::commands(|| key_args(true)))
        .subcommand(index::command(|| key_args(true)))
        .subcommand(release::command(|| key_args(true)))
        .subcommands(keeping::commands(|| key_args(true)))
        .subcommands(import::commands(|| key_args(true)))
        .subcommand(config)
        .subcommand(
            Command::new("completions")
                .about("Print completions for a shell")
                .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell))),
        )
        .subcommand(Command::new("man").about("Print the man page, as roff"))
        .subcommand(
            Command::new("healthcheck")
                .about("Ask a running server whether it is ready: exit code 0 if so, else 1")
                .arg(
                    Arg::new("url")
                        .long("url")
                        .value_name("URL")
                        .help("URL to get instead of /readyz on the first address of `listen`"),
                )
                .arg(
                    Arg::new("timeout")
                        .long("timeout-seconds")
                        .value_name("SECONDS")
                        .help("Time for the whole answer")
                        .default_value("5")
                        .value_parser(value_parser!(u64).range(1..=3600)),
                )
                .args(key_args(true)),
        )
        .subcommand(
            Command::new("version")
                .about("Print the version")
                .arg(Arg::new("json").long("json").help("As a JSON object").action(ArgAction::SetTrue)),
        )
}

/// `--config` and a flag for every key; hidden ones work and stay out of the help.
fn key_args(is_hidden: bool) -> Vec<Arg> {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("Configuration file (TOML)")
        .long_help(
            "Configuration file (TOML). Without it: $LARDER_CONFIG, else $XDG_CONFIG_HOME/larder/config.toml \
            (~/.config without that variable), else /etc/larder/config.toml, where these exist. An empty name reads none.",
        )
        .value_parser(value_parser!(PathBuf));
    let keys = config::keys().map(|key| key_arg(key).hide(is_hidden));
    std::iter::once(file).chain(keys).collect()
}

/// The flag of one key. Values stay text here: they are checked where those of all layers are.
fn key_arg(key: &'static Key) -> Arg {
    let default =
        if key.default.is_empty() { String::new() } else { format!(" [default: {}]", key.default) };
    let arg = Arg::new(key.path())
        .long(key.flag())
        .value_name(key.kind.placeholder())
        .help(format!("{}{default}", key.help()))
        .long_help(format!("{}\n[env: {}]{default}", key.help(), key.variable()));
    let arg = match key.section {
        "" => arg,
        section => arg.help_heading(format!("Options of [{section}]")),
    };
    match key.kind {
        // `joined_switches` sees to it that the value may also follow the flag.
        kind if kind.is_switch() => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        Kind::Choice(words) => arg.value_parser(PossibleValuesParser::new(words)),
        // A secret may begin with any character.
        Kind::Secret => arg.allow_hyphen_values(true),
        kind if kind.is_list() => arg.action(ArgAction::Append),
        _ => arg,
    }
}

/// Reads the arguments (the program's name first) and, for what depends on it, the configuration.
///
/// # Errors
/// Help and a wrong command line as clap words them; a bad configuration with every problem named.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Invocation, Exit> {
    let root = command().try_get_matches_from(joined_switches(args))?;
    let load = |matches: &ArgMatches| -> Result<Box<Loaded>, Exit> {
        // Flags may stand before the command as well; those after it win.
        let file = [matches, &root]
            .into_iter()
            .find_map(|matches| matches.get_one::<PathBuf>("config").cloned());
        let flags = Flags::of_matches(&[matches, &root]);
        Ok(Box::new(Inputs { file, flags, environment: environment.clone() }.load()?))
    };
    let offline = match root.subcommand() {
        None | Some(("serve", _)) => {
            let loaded = load(root.subcommand_matches("serve").unwrap_or(&root))?;
            loaded.check_for_serving()?;
            return Ok(Invocation::Serve(loaded));
        }
        Some(("demo-data", matches)) => return Ok(demo_data(matches)),
        Some((command @ ("init" | "user" | "token"), matches)) => {
            return Ok(Invocation::Accounts(accounts::parse(command, matches, load)?));
        }
        Some((
            command @ ("backup" | "restore" | "verify" | "migrate" | "sweep" | "adopt" | "rescue"),
            matches,
        )) => {
            return Ok(Invocation::Keeping(keeping::parse(command, matches, load)?));
        }
        Some((command @ ("import-devpi" | "import-wheels" | "use"), matches)) => {
            let request = import::parse(command, matches, environment, load)?;
            return Ok(Invocation::Import(request));
        }
        Some(("index", matches)) => {
            return Ok(Invocation::Index(index::parse(matches, environment, load)?));
        }
        Some(("release", matches)) => {
            return Ok(Invocation::Release(release::parse(matches, environment, load)?));
        }
        Some(("config", matches)) => match matches.subcommand() {
            Some(("check", matches)) => {
                let loaded = load(matches)?;
                loaded.check_for_serving()?;
                Offline::ConfigCheck(loaded)
            }
            Some(("show", matches)) => Offline::ConfigShow(load(matches)?),
            Some(("init", _)) => Offline::ConfigInit,
            Some(("import-goaurrpc", matches)) => {
                Offline::ConfigImportGoaurrpc(required(matches, "file"))
            }
            _ => Offline::ConfigDocs,
        },
        Some(("completions", matches)) => Offline::Completions(required(matches, "shell")),
        Some(("man", _)) => Offline::Man,
        Some(("healthcheck", matches)) => {
            let timeout = Duration::from_secs(required(matches, "timeout"));
            Offline::Healthcheck(match matches.get_one::<String>("url") {
                Some(url) => Healthcheck {
                    url: url.clone(),
                    socket: None,
                    is_certificate_checked: true,
                    timeout,
                },
                None => {
                    let loaded = load(matches)?;
                    let (url, socket) = loaded.config.local_url("/readyz");
                    Healthcheck {
                        url,
                        socket: socket.map(Path::to_owned),
                        is_certificate_checked: false,
                        timeout,
                    }
                }
            })
        }
        Some((_, matches)) => Offline::Version { json: matches.get_flag("json") },
    };
    Ok(Invocation::Offline(offline))
}

/// The arguments, with the value of a switch that follows its flag (`--demo false`) joined to it (`--demo=false`). Only
/// words of switches are taken for its value: anything else may be a command, or belong to one.
fn joined_switches(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    const WORDS: [&str; 7] = ["true", "false", "yes", "no", "on", "off", "auto"];
    let is_switch = |arg: &OsString| {
        let name = arg.to_str().and_then(|arg| arg.strip_prefix("--"));
        name.is_some_and(|name| {
            config::keys().any(|key| key.kind.is_switch() && key.flag() == name)
        })
    };
    let mut joined: Vec<OsString> = Vec::new();
    let mut are_flags_over = false;
    for arg in args {
        are_flags_over |= arg == "--";
        match joined.last_mut() {
            Some(flag)
                if !are_flags_over
                    && WORDS.iter().any(|word| arg.eq_ignore_ascii_case(word))
                    && is_switch(flag) =>
            {
                flag.push("=");
                flag.push(arg);
            }
            _ => joined.push(arg),
        }
    }
    joined
}

/// The flag of commands whose answer a program may want.
fn json_arg() -> Arg {
    Arg::new("json").long("json").help("Answer as JSON").action(ArgAction::SetTrue)
}

/// Writes a note for a person to stderr. Results go to stdout.
fn note(text: &str) {
    // A reader that has gone away is no reason to fail.
    let _ = writeln!(io::stderr(), "larder: {text}");
}

/// Writes all that a command has to say. A reader that has gone away is no error.
fn print(text: &str, out: &mut dyn Write) -> Result<(), Exit> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The threads of a command that uses a store or the network.
fn runtime() -> Result<Runtime, Exit> {
    net::install_crypto_provider();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Exit::failure(format!("cannot start threads: {error}")))
}

/// The first line of standard input, without its end: a password or a token.
fn line_of_stdin() -> Result<String, Exit> {
    let mut line = String::new();
    let read = io::stdin().lock().take(SECRET_BYTES_MAX).read_line(&mut line);
    read.map_err(|error| Exit::failure(format!("standard input cannot be read: {error}")))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// The value of an argument that is required or has a default.
fn required<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> T {
    matches.get_one::<T>(id).cloned().expect("clap refuses a command line without it")
}

fn demo_data(matches: &ArgMatches) -> Invocation {
    let path: PathBuf = required(matches, "out");
    let packages: u64 = required(matches, "packages");
    let out = if path.as_os_str() == "-" {
        Output::Stdout
    } else {
        let gzip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        Output::File { path, gzip }
    };
    Invocation::DemoData {
        packages: usize::try_from(packages).unwrap_or(usize::MAX),
        seed: required(matches, "seed"),
        out,
    }
}

#[cfg(test)]
mod tests;
