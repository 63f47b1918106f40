//! The command line: the commands of `larder`, and their arguments.
//!
//! arguments -> [`parse`] -> [`Invocation`]; `main` runs the server, or [`Request::run`] does the rest, and an [`Exit`] becomes
//! text and exit code. clap derives the commands from the types below and in the modules. [`command`] adds the flags that many
//! commands share: those of the configuration, which are the keys of [`config`] and never listed here, and those that name a
//! server. Data goes to the given writer (stdout), errors are returned as an [`Exit`] (stderr).

mod audit;
mod directory;
mod import;
mod index;
mod init;
mod kept_tokens;
mod log_in;
mod maintenance;
mod mirror;
mod offline;
mod online;
mod password;
mod prefetch;
mod publisher;
mod release;
mod remote;
mod table;
mod token;
mod upgrade_check;
mod user;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead as _, Read as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{
    Arg, ArgAction, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    value_parser,
};
use clap_complete::Shell;
use config::{ConfigError, Environment, Flags, Inputs, Key, Kind, LoadedConfig};
use source::demo_data::{self, Output};
use state::maintenance::Progress;
use tokio::runtime::Runtime;

pub use self::import::ExportSite;
use self::remote::{CommandTarget, ServerFlags};

/// What the user asked for.
pub enum Invocation {
    /// Run the server. Its `warnings` are to be logged once logging works.
    Serve(Box<LoadedConfig>),
    /// Anything else.
    Other(Box<Request>),
}

/// Something other than serving; [`Request::run`] does it.
pub struct Request {
    command: Box<Command>,
    inputs: Inputs,
    /// The server to ask, for commands that can ask one.
    server: Option<ServerFlags>,
}

/// The whole command line.
#[derive(Parser)]
#[command(
    name = "larder",
    version = version::text(),
    about = "Larder is a server for packages and pages: it answers the AUR's package queries, is a private Python index for \
        pip, uv and twine, and publishes versioned articles, all from memory",
    long_about = None,
    after_help = "`larder serve` starts the server, `larder serve --demo` one with something to try, and `larder serve --help` \
        lists its flags. `larder --demo` is the same as `larder serve --demo`.",
    arg_required_else_help = true,
    subcommand_precedence_over_arg = true
)]
struct CommandLine {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the server
    #[command(
        after_help = "Every flag is also an environment variable and a key of the file. Flags win over the environment, \
        the environment over the file, the file over the defaults."
    )]
    Serve,
    #[command(flatten)]
    Other(Box<Command>),
}

#[derive(Subcommand)]
enum Command {
    /// Write a generated catalogue as packages-meta-ext-v1.json(.gz)
    DemoData(DemoData),
    /// Prepare the data directory and the store, and make the user root, without starting the server
    Init(init::Command),
    /// List, make and change users
    #[command(subcommand)]
    User(user::Command),
    /// List, make and revoke API tokens
    #[command(subcommand)]
    Token(token::Command),
    /// List, make, change and remove Python indexes
    #[command(subcommand)]
    Index(index::Command),
    /// List, add and remove trusted publishers: jobs of CI systems that upload without a stored token
    #[command(subcommand)]
    Publisher(publisher::Command),
    /// List, yank, push and remove releases of Python projects
    #[command(subcommand)]
    Release(release::Command),
    /// Show what the policies of Python indexes refused, and what they let pass by an exception
    Audit(audit::Command),
    #[command(flatten)]
    Maintenance(maintenance::Command),
    /// Say what the first start of this version would change in the data; exit code 0 if nothing, 3 if something, 1 if it cannot be
    /// used as it is
    UpgradeCheck(upgrade_check::Command),
    #[command(flatten)]
    Import(import::Command),
    /// Print the section [ldap] that is equivalent to a configuration of devpi-ldap (YAML)
    ImportDevpiLdap { file: PathBuf },
    #[command(flatten)]
    Mirror(mirror::Command),
    /// Ask an index for every file that a lock names, so that its mirrors keep them
    #[command(after_help = prefetch::HELP)]
    Prefetch(prefetch::Command),
    /// Tell pip, uv, twine and poetry of an index, in their own files; the old files are kept beside the new ones
    #[command(after_help = import::USE_HELP)]
    Use(import::Use),
    /// Log this machine in at a server, by a browser in which you are logged in there
    #[command(name = "login", after_help = log_in::HELP)]
    LogIn(log_in::LogIn),
    /// Revoke the token of `larder login`, and forget it
    #[command(name = "logout")]
    LogOut(log_in::LogOut),
    /// Check, show and make configuration files
    #[command(subcommand)]
    Config(offline::Config),
    /// Print completions for a shell
    Completions { shell: Shell },
    /// Print the man page, as roff
    Man,
    /// Ask a running server whether it is ready: exit code 0 if it is, else 1
    Healthcheck(offline::Healthcheck),
    /// Print the version
    Version {
        /// Answer as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct DemoData {
    /// How many packages
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    packages: u32,
    /// Equal seeds give equal bytes
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Where to: - is stdout; a file whose name ends in .gz is compressed
    #[arg(long, value_name = "FILE")]
    out: Output,
    /// Also write the same catalogue as SQL: aurweb's tables for an empty MariaDB database
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
}

/// The flag of commands whose answer a program may want.
#[derive(Args, Clone, Copy)]
struct Answer {
    /// Answer as JSON
    #[arg(long = "json")]
    is_json: bool,
}

/// Why the process ends: it has failed, or printed `--help`.
#[derive(Debug)]
pub enum Exit {
    /// clap's text: help and version (exit code 0), or an invalid command line (2).
    Clap(Box<clap::Error>),
    /// Anything else.
    Message {
        /// 1 failure, 2 usage, 3 for a check that found changes, 78 bad configuration.
        code: u8,
        /// The text for stderr; may have several lines.
        text: String,
    },
}

impl Exit {
    /// A failure (exit code 1).
    pub fn failure(text: impl fmt::Display) -> Self {
        Self::Message { code: 1, text: text.to_string() }
    }

    /// A wrong command line (exit code 2).
    pub(crate) fn usage(text: impl fmt::Display) -> Self {
        Self::Message { code: 2, text: text.to_string() }
    }

    /// The exit code: 0, 1 failure, 2 usage, 3 for a check that found changes, 78 bad configuration.
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

impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Exit {
        Exit::failure(format_args!("{error:#}"))
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

/// The remark in the help of commands that accept the configuration's flags without listing them.
const FLAGS_TOO: &str = "The flags of `larder serve` are accepted too.";

/// The whole command line, with the flags that many commands share.
fn command() -> clap::Command {
    let configured = |command: clap::Command| with_help(command, FLAGS_TOO).args(key_args(true));
    CommandLine::command().args(key_args(true)).mut_subcommands(|command| {
        match command.get_name() {
            "demo-data" | "use" | "login" | "logout" | "prefetch" | "completions" | "man"
            | "version" => command,
            "serve" => command.args(key_args(false)),
            "config" => command.mut_subcommands(|command| match command.get_name() {
                "check" | "show" => configured(command),
                _ => command,
            }),
            "user" | "token" => command.mut_subcommands(configured),
            "audit" => {
                let command = with_help(command, remote::HELP).args(key_args(true));
                ServerFlags::augment_args(command)
            }
            "index" | "publisher" | "release" => command.mut_subcommands(|command| {
                let command = with_help(command, remote::HELP).args(key_args(true));
                ServerFlags::augment_args(command)
            }),
            _ => configured(command),
        }
    })
}

/// Adds a paragraph to the end of a command's help.
fn with_help(command: clap::Command, text: &str) -> clap::Command {
    let text = match command.get_after_help() {
        Some(own) => format!("{own}\n\n{text}"),
        None => text.to_owned(),
    };
    command.after_help(text)
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
        // Unlike the parser of paths, this one takes an empty name.
        .value_parser(OsStringValueParser::new().map(PathBuf::from));
    let keys = config::keys().map(|key| key_arg(key).hide(is_hidden));
    std::iter::once(file).chain(keys).collect()
}

/// The flag of one key. Its value stays text here: it is checked together with those of the other layers.
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

/// Reads the arguments, the program's name first. Only for serving, the configuration is read as well.
///
/// # Errors
/// Help and a wrong command line as clap words them; a bad configuration with every problem named.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Invocation, Exit> {
    let root = command().try_get_matches_from(joined_switches(args))?;
    let verb = CommandLine::from_arg_matches(&root)?.verb;
    let mut leaf = &root;
    while let Some((_, matches)) = leaf.subcommand() {
        leaf = matches;
    }
    // Flags may come before the command as well; those after it win.
    let file = |matches: &ArgMatches| matches.try_get_one::<PathBuf>("config").ok()?.cloned();
    let inputs = Inputs {
        file: file(leaf).or_else(|| file(&root)),
        flags: Flags::of_matches(&[leaf, &root]),
        environment: environment.clone(),
    };
    let command = match verb {
        None | Some(Verb::Serve) => {
            let loaded = inputs.load()?;
            loaded.check_for_serving()?;
            return Ok(Invocation::Serve(Box::new(loaded)));
        }
        Some(Verb::Other(command)) => command,
    };
    let server = match *command {
        Command::Audit(_) | Command::Index(_) | Command::Publisher(_) | Command::Release(_) => {
            Some(ServerFlags::from_arg_matches(leaf)?)
        }
        _ => None,
    };
    Ok(Invocation::Other(Box::new(Request { command, inputs, server })))
}

/// What only the server can do, for commands.
#[derive(Clone, Copy)]
pub struct Server {
    /// Checks files that a configuration names, as the server does before it starts.
    pub check_files: fn(&config::Config) -> anyhow::Result<()>,
    /// Makes a static site of the articles.
    pub export_site: ExportSite,
}

impl Request {
    /// Carries out the command, with its output into `out`.
    ///
    /// # Errors
    /// What went wrong, with the exit code. If the reader of `out` has gone away, that is no error.
    pub fn run(self, out: &mut dyn Write, of_server: Server) -> Result<(), Exit> {
        let Request { command, inputs, server } = self;
        let place = || match server.and_then(|flags| flags.address(&inputs.environment).transpose())
        {
            Some(address) => Ok(CommandTarget::Server(Box::new(address?))),
            None => store_of(&inputs).map(CommandTarget::Store),
        };
        let text = match *command {
            Command::DemoData(DemoData { packages, seed, out, sql }) => {
                let recipe = demo::Recipe { packages, seed };
                let progress = Progress::on_terminal();
                progress.begin_counted("generating packages", packages.into());
                let mut reach = |written: u32| progress.reach(written.into());
                let written = demo_data::write(&recipe, &out, sql.as_deref(), &mut reach);
                progress.end();
                written.map_err(|error| {
                    Exit::failure(format!("cannot write the catalogue: {error}"))
                })?;
                let file = match &out {
                    Output::File { path, .. } => Some(path),
                    Output::Stdout => None,
                };
                // Standard output may be the catalogue.
                for path in file.into_iter().chain(&sql) {
                    note(&format!("wrote {packages} packages to {}", path.display()));
                }
                return Ok(());
            }
            Command::Init(command) => command.run(&store_of(&inputs)?.config)?,
            Command::User(command) => command.run(&store_of(&inputs)?.config)?,
            Command::Token(command) => command.run(&store_of(&inputs)?.config)?,
            Command::Audit(command) => command.run(place)?,
            Command::Index(command) => command.run(place)?,
            Command::Publisher(command) => command.run(place)?,
            Command::Release(command) => command.run(place)?,
            Command::Maintenance(command) => return command.run(&loaded(&inputs)?.config, out),
            Command::UpgradeCheck(command) => return command.run(&loaded(&inputs)?.config, out),
            Command::Import(command) => {
                return command.run(&store_of(&inputs)?.config, of_server.export_site, out);
            }
            Command::ImportDevpiLdap { file } => offline::import_devpi_ldap(&file)?,
            Command::Mirror(command) => return command.run(&loaded(&inputs)?.config, out),
            Command::Prefetch(command) => return command.run(&inputs.environment, out),
            Command::Use(command) => return command.run(&inputs.environment, out),
            Command::LogIn(command) => return command.run(&inputs.environment, out),
            Command::LogOut(command) => return command.run(&inputs.environment, out),
            Command::Config(command) => command.run(&inputs, of_server.check_files)?,
            Command::Completions { shell } => offline::completions(shell),
            Command::Man => offline::man()?,
            Command::Healthcheck(command) => command.run(&inputs)?,
            Command::Version { json } => offline::version(json),
        };
        print(&text, out)
    }
}

/// The configuration of a command that works on the store. Its warnings go to stderr.
fn loaded(inputs: &Inputs) -> Result<Box<LoadedConfig>, Exit> {
    let loaded = inputs.load()?;
    warn(&loaded);
    Ok(Box::new(loaded))
}

/// The configuration for a command that may change rights: the changes go into the security log, if that has a file.
fn store_of(inputs: &Inputs) -> Result<Box<LoadedConfig>, Exit> {
    let loaded = inputs.load()?;
    logging::init_command(&loaded.config, &inputs.environment).map_err(Exit::failure)?;
    warn(&loaded);
    Ok(Box::new(loaded))
}

fn warn(loaded: &LoadedConfig) {
    for warning in &loaded.warnings {
        note(&format!("warning: {warning}"));
    }
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

#[cfg(test)]
mod tests;
