//! `larder import-devpi`, `import-wheels` and `use`: moving in, and telling clients of the new place.
//!
//! arguments -> [`parse`] -> [`Request`] -> [`run`] -> [`crate::import`] -> what was done, and what was not.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use account::UserName;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use pypi::StageName;

use super::remote::TOKEN_USER;
use super::{Exit, line_of_stdin, note, print, required, runtime};
use crate::config::{Config, Environment, Loaded};
use crate::import::clients::{self, Credentials, Places, Tool, Wish};
use crate::import::{DevpiImport, Report, WheelsImport, import_devpi, import_wheels};
use crate::setup;

/// What is asked, checked.
#[derive(Debug)]
pub struct Request(Action);

#[derive(Debug)]
enum Action {
    Devpi { loaded: Box<Loaded>, import: DevpiImport, is_json: bool },
    Wheels { loaded: Box<Loaded>, import: WheelsImport, is_json: bool },
    Use(Use),
}

#[derive(Debug)]
struct Use {
    url: String,
    user: Option<String>,
    /// Whether a secret comes on standard input.
    is_secret_coming: bool,
    wish: Wish,
    is_dry_run: bool,
}

/// The commands; `configuration` makes the flags that those on a store take besides their own.
pub(super) fn commands(configuration: impl Fn() -> Vec<Arg>) -> [Command; 3] {
    let on_store = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).after_help(super::FLAGS_TOO).args(configuration())
    };
    let switch = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).help(help).action(ArgAction::SetTrue)
    };
    let directory = |help: &'static str| {
        Arg::new("directory")
            .value_name("DIR")
            .help(help)
            .required(true)
            .value_parser(value_parser!(PathBuf))
    };
    let dry_run = || switch("dry-run", "Read and check everything, and write nothing");
    let tools = Tool::ALL.map(|tool| {
        let about = match tool {
            Tool::Pip => "Write pip.conf, with --only; else say what to do",
            Tool::Uv => "Write uv.toml",
            Tool::Twine => "Write .pypirc",
            Tool::Poetry => "Write poetry's config.toml and auth.toml",
        };
        switch(tool.as_str(), about)
    });
    [
        on_store(
            "import-devpi",
            "Take over what devpi-export wrote: users, indexes, releases, files with their history; can be run again",
        )
        .arg(directory("What devpi-export wrote"))
        .arg(dry_run())
        .arg(switch("without-mirrored-files", "Do not count the files of mirrors as missing"))
        .arg(switch("json", "Report as JSON")),
        on_store(
            "import-wheels",
            "Take over a folder of wheels and source distributions, as pypiserver has it; can be run again",
        )
        .arg(directory("The folder; folders in it are looked into"))
        .arg(
            Arg::new("index")
                .long("index")
                .value_name("USER/INDEX")
                .help("Into which index")
                .required(true)
                .value_parser(value_parser!(StageName)),
        )
        .arg(switch("create", "Make the index, and its user, where they are missing"))
        .arg(
            Arg::new("user")
                .long("user")
                .value_name("NAME")
                .help("Who the history says uploaded the files [default: the index's user]")
                .value_parser(value_parser!(UserName)),
        )
        .arg(dry_run())
        .arg(switch("json", "Report as JSON")),
        Command::new("use")
            .about("Tell pip, uv, twine and poetry of an index, in their own files, which are kept beside the new ones")
            .after_help(
                "All other packages still come from the public index, unless --only says that this one replaces it. \
                Which of your packages come from this index is said in each project: the lines to copy are printed.",
            )
            .arg(
                Arg::new("url")
                    .value_name("URL")
                    .help("The index: https://host/user/index")
                    .required(true),
            )
            .args(tools)
            .arg(switch("all", "All four"))
            .group(
                ArgGroup::new("tools")
                    .args(["pip", "uv", "twine", "poetry", "all"])
                    .required(true)
                    .multiple(true),
            )
            .arg(
                Arg::new("user")
                    .long("user")
                    .value_name("NAME")
                    .help("Who the clients are; the password comes with --password-stdin")
                    .requires("password-stdin"),
            )
            .arg(
                switch("password-stdin", "Take the password from the first line of standard input")
                    .requires("user"),
            )
            .arg(
                switch("token-stdin", "Take a token from the first line of standard input")
                    .conflicts_with_all(["user", "password-stdin"]),
            )
            .arg(
                Arg::new("dir")
                    .long("dir")
                    .value_name("DIR")
                    .help("Write all files into this directory instead of your home")
                    .value_parser(value_parser!(PathBuf)),
            )
            .arg(
                Arg::new("project")
                    .long("project")
                    .value_name("FILE")
                    .help("Name the index in this pyproject.toml as well, for uv and poetry; without credentials")
                    .value_parser(value_parser!(PathBuf)),
            )
            .arg(switch("only", "Replace the public index: packages that this one does not have are not found then"))
            .arg(switch("dry-run", "Show what would change, and write nothing")),
    ]
}

/// Reads what was asked of `command`, one of [`commands`].
///
/// # Errors
/// As `load`, which reads the configuration by the flags of a command; and if there is no home to write to.
pub(super) fn parse(
    command: &str,
    matches: &ArgMatches,
    environment: &Environment,
    load: impl Fn(&ArgMatches) -> Result<Box<Loaded>, Exit>,
) -> Result<Request, Exit> {
    let is_set = |id| matches.get_flag(id);
    Ok(Request(match command {
        "import-devpi" => {
            let import = DevpiImport {
                directory: required(matches, "directory"),
                is_dry_run: is_set("dry-run"),
                is_without_mirrored_files: is_set("without-mirrored-files"),
            };
            Action::Devpi { loaded: load(matches)?, import, is_json: is_set("json") }
        }
        "import-wheels" => {
            let import = WheelsImport {
                directory: required(matches, "directory"),
                stage: required(matches, "index"),
                is_creating: is_set("create"),
                who: matches.get_one("user").cloned(),
                is_dry_run: is_set("dry-run"),
            };
            Action::Wheels { loaded: load(matches)?, import, is_json: is_set("json") }
        }
        _ => {
            let is_meant = |tool: &Tool| is_set("all") || is_set(tool.as_str());
            let places = match matches.get_one::<PathBuf>("dir") {
                Some(directory) => {
                    let directory = std::path::absolute(directory).map_err(Exit::failure)?;
                    Places::Directory(directory)
                }
                None => Places::of(environment).map_err(Exit::failure)?,
            };
            let is_token = is_set("token-stdin");
            let user = matches.get_one::<String>("user").cloned();
            Action::Use(Use {
                url: required(matches, "url"),
                user: if is_token { Some(TOKEN_USER.to_owned()) } else { user },
                is_secret_coming: is_token || is_set("password-stdin"),
                wish: Wish {
                    tools: Tool::ALL.into_iter().filter(is_meant).collect(),
                    places,
                    project: project(matches)?,
                    is_only: is_set("only"),
                },
                is_dry_run: is_set("dry-run"),
            })
        }
    }))
}

/// The project's file that is to be changed; it must be there.
fn project(matches: &ArgMatches) -> Result<Option<PathBuf>, Exit> {
    let Some(path) = matches.get_one::<PathBuf>("project") else { return Ok(None) };
    let path = if path.is_dir() { path.join("pyproject.toml") } else { path.clone() };
    if path.is_file() {
        return Ok(Some(path));
    }
    let text =
        format!("--project `{}`: a pyproject.toml that is there was expected", path.display());
    Err(Exit::Message { code: 2, text })
}

impl Request {
    /// The configuration of the store that is changed, if one is.
    pub fn config(&self) -> Option<&Config> {
        match &self.0 {
            Action::Devpi { loaded, .. } | Action::Wheels { loaded, .. } => Some(&loaded.config),
            Action::Use(_) => None,
        }
    }
}

/// Does what was asked, with its output into `out`.
///
/// # Errors
/// What went wrong, or was not imported, with exit code 1.
pub fn run(request: Request, out: &mut dyn Write) -> Result<(), Exit> {
    let runtime = runtime()?;
    let failed = |error: anyhow::Error| Exit::failure(format!("{error:#}"));
    match request.0 {
        Action::Devpi { loaded, import, is_json } => {
            warn(&loaded);
            let done = runtime.block_on(import_devpi(&loaded.config, &import));
            let (report, password) = done.map_err(failed)?;
            tell(&loaded.config, &report, password, is_json, out)
        }
        Action::Wheels { loaded, import, is_json } => {
            warn(&loaded);
            let done = runtime.block_on(import_wheels(&loaded.config, &import));
            let (report, password) = done.map_err(failed)?;
            tell(&loaded.config, &report, password, is_json, out)
        }
        Action::Use(wish) => {
            let secret = if wish.is_secret_coming { Some(line_of_stdin()?) } else { None };
            runtime.block_on(make_use(&wish, secret, out)).map_err(failed)
        }
    }
}

fn warn(loaded: &Loaded) {
    for warning in &loaded.warnings {
        note(&format!("warning: {warning}"));
    }
}

fn tell(
    config: &Config,
    report: &Report,
    password: Option<account::Password>,
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
    if let Some(password) = password {
        // Not in the report, which may be kept.
        let shown = setup::hand_over(config, &password, io::stderr().is_terminal());
        let shown = shown.map_err(|error| Exit::failure(format!("{error:#}")))?;
        let _ = writeln!(
            io::stderr(),
            "larder: made the user `root` {shown}; `larder user password root` changes the password"
        );
    }
    report.shortfall().map_or(Ok(()), |text| Err(Exit::failure(text)))
}

async fn make_use(asked: &Use, secret: Option<String>, out: &mut dyn Write) -> anyhow::Result<()> {
    let wish = &asked.wish;
    let credentials = match (&asked.user, secret) {
        (Some(user), Some(secret)) => Some(Credentials::new(user, &secret)?),
        _ => None,
    };
    let endpoints = clients::ask(&asked.url, credentials.as_ref()).await?;
    let changes = clients::changes(&endpoints, credentials.as_ref(), wish)?;
    let mut text = String::new();
    if wish.is_only {
        note(&format!(
            "warning: the public index is replaced: packages that {} does not have are not found any more, since this \
             version of Larder mirrors no other index. Without --only, the public index stays",
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
        if !asked.is_dry_run {
            match change.write() {
                Ok(taken_back) => undo.push(taken_back),
                Err(error) => {
                    // What was done is told all the same.
                    finish(text, &undo, asked, out)?;
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
    finish(text, &undo, asked, out)
}

fn tell_note(change: &clients::Change, text: &mut String) {
    if let Some(note) = change.note() {
        let _ = writeln!(text, "{}: {note}", change.path().display());
    }
}

fn finish(
    mut text: String,
    undo: &[clients::Undo],
    wish: &Use,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if wish.is_dry_run {
        text.push_str("nothing was written\n");
    } else if !undo.is_empty() {
        text.push_str("to take it back:\n");
        for undo in undo {
            let _ = writeln!(text, "  {undo}");
        }
    }
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
